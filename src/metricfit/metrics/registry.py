"""Metrics by name: the registry, its aliases, and ``get``."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from torch import Tensor

from metricfit.confusion import ConfusionMatrix
from metricfit.metrics import agreement, classification, ranking
from metricfit.metrics.base import CallableMetric, Metric
from metricfit.metrics.expression import parse

__all__ = ["MetricLike", "available", "get", "metric_class"]

MetricLike = Metric | str | Callable[[ConfusionMatrix], Tensor]
"""What :func:`get` takes: a metric, its name, spec or expression, or a function of the confusion matrix."""

_CLASSES: dict[str, Any] = {
    cls.name: cls
    for cls in (
        classification.Accuracy,
        classification.BalancedAccuracy,
        classification.Precision,
        classification.Recall,
        classification.Specificity,
        classification.NegativePredictiveValue,
        classification.FBeta,
        classification.F1,
        classification.Jaccard,
        classification.GMean,
        agreement.MCC,
        agreement.CohenKappa,
        agreement.Informedness,
        agreement.Markedness,
        classification.FowlkesMallows,
        agreement.TrueSkillStatistic,
        agreement.HeidkeSkillScore,
        classification.CriticalSuccessIndex,
        classification.ExpectedCost,
        classification.FalsePositiveRate,
        classification.FalseNegativeRate,
        classification.PredictedShare,
        ranking.AUROC,
        ranking.AUPRC,
        ranking.ThresholdMean,
    )
}

_ALIASES: dict[str, tuple[str, dict[str, Any]]] = {
    "matthews_corrcoef": ("mcc", {}),
    "matthews": ("mcc", {}),
    "cohen_kappa": ("kappa", {}),
    "cohen_kappa_score": ("kappa", {}),
    "quadratic_kappa": ("kappa", {"weights": "quadratic"}),
    "linear_kappa": ("kappa", {"weights": "linear"}),
    "roc_auc": ("auroc", {}),
    "roc_auc_ovr": ("auroc", {"average": "macro"}),
    "roc_auc_ovr_weighted": ("auroc", {"average": "weighted"}),
    "average_precision": ("auprc", {}),
    "f2": ("fbeta", {"beta": 2.0}),
    "f_beta": ("fbeta", {}),
    "iou": ("jaccard", {}),
    "dice": ("f1", {}),
    "sensitivity": ("recall", {}),
    "tpr": ("recall", {}),
    "tnr": ("specificity", {}),
    "ppv": ("precision", {}),
    "negative_predictive_value": ("npv", {}),
    "false_positive_rate": ("fpr", {}),
    "false_negative_rate": ("fnr", {}),
    "g_mean": ("gmean", {}),
    "geometric_mean": ("gmean", {}),
    "youden": ("informedness", {}),
    "true_skill_statistic": ("tss", {}),
    "heidke_skill_score": ("hss", {}),
    "critical_success_index": ("csi", {}),
    "expected_cost": ("cost", {}),
}
for _base in ("f1", "precision", "recall", "jaccard"):
    for _average in ("macro", "micro", "weighted"):
        _ALIASES[f"{_base}_{_average}"] = (_base, {"average": _average})


def available() -> list[str]:
    """The names of all metrics, sorted; aliases are not listed.

    >>> "mcc" in available()
    True
    """
    return sorted(_CLASSES)


def get(spec: MetricLike) -> Metric:
    """A metric from its name, spec, expression or function; a metric is returned as it is.

    >>> get("f1_macro")
    F1(average='macro', label=None, zero_division=0.0)
    >>> print(get("fbeta:beta=2,average=macro"), get("recall[fraud]"), sep="; ")
    fbeta:beta=2,average=macro; recall[fraud]
    >>> get("f1_makro")
    Traceback (most recent call last):
        ...
    ValueError: metric: unknown name 'f1_makro'; did you mean 'f1_macro', 'f1_micro' or 'recall_macro'?
    """
    if isinstance(spec, Metric):
        return spec
    if isinstance(spec, str):
        return parse(spec, _build)
    if isinstance(spec, type):
        raise TypeError(
            f"metric: expected a metric or a function, got the class {spec.__name__}; write {spec.__name__}()."
        )
    if callable(spec):
        return CallableMetric(spec)
    raise TypeError(
        f"metric: expected a name, an expression, a Metric or a function of the confusion matrix, got "
        f"{type(spec).__name__}."
    )


def metric_class(name: str) -> type[Metric]:
    """The class behind a name or alias: its docstring, range, formula and reference.

    >>> metric_class("matthews_corrcoef").__name__
    'MCC'
    """
    resolved, _ = _resolve(name)
    found: type[Metric] = _CLASSES[resolved]
    return found


def _resolve(name: str) -> tuple[str, dict[str, Any]]:
    if name in _CLASSES:
        return name, {}
    if name in _ALIASES:
        return _ALIASES[name]
    if name.endswith("_samples"):
        raise ValueError(f"metric: {name!r} averages over samples; it is no function of a confusion matrix.")
    known = [*_CLASSES, *_ALIASES]
    close = [repr(match) for match in difflib.get_close_matches(name.lower(), known, n=3, cutoff=0.5)]
    if close:
        hint = "did you mean " + (" or ".join([", ".join(close[:-1]), close[-1]]) if close[1:] else close[0]) + "?"
    else:
        hint = f"the names are {', '.join(available())}."
    raise ValueError(f"metric: unknown name {name!r}; {hint}")


def _build(name: str, parameters: dict[str, Any]) -> Metric:
    resolved, defaults = _resolve(name)
    cls = _CLASSES[resolved]
    allowed = [field.name for field in fields(cls)]
    for key in parameters:
        if key not in allowed:
            raise ValueError(f"metric: {name!r} has no parameter {key!r}; it takes {', '.join(allowed)}.")
        if key in defaults:
            raise ValueError(f"metric: {name!r} already sets {key}={defaults[key]}; write {resolved!r} instead.")
    built: Metric = cls(**defaults, **parameters)
    return built
