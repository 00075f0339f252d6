"""Every metric of one decision: each is one function, from which everything else is made."""

from __future__ import annotations

import math
from typing import Any

from metricfit.inputs import expect
from metricfit.metrics.base import spell
from metricfit.metrics.formula import Symbols
from metricfit.metrics.registry import metric


@metric(reference="sklearn.metrics.accuracy_score")
def accuracy(c: Symbols) -> Any:
    """The share of correct predictions."""
    return c.sum(c.tp) / c.n


@metric(reference="sklearn.metrics.balanced_accuracy_score")
def balanced_accuracy(c: Symbols) -> Any:
    """The mean recall of the classes that occur; of one class: the mean of its recall and specificity."""
    return c.mean(c.tp / (c.tp + c.fn))


@metric(reference="sklearn.metrics.precision_score", aliases=("ppv",))
def precision(c: Symbols) -> Any:
    """The share of positive predictions that are right (positive predictive value)."""
    return c.tp / (c.tp + c.fp)


@metric(reference="sklearn.metrics.recall_score", aliases=("sensitivity", "tpr"))
def recall(c: Symbols) -> Any:
    """The share of positives that are found (sensitivity, true positive rate)."""
    return c.tp / (c.tp + c.fn)


@metric(reference="recall of the negative class: sklearn.metrics.recall_score(pos_label=0)", aliases=("tnr",))
def specificity(c: Symbols) -> Any:
    """The share of negatives that are left alone (true negative rate)."""
    return c.tn / (c.tn + c.fp)


@metric(name="npv", reference="precision of the negative class: sklearn.metrics.precision_score(pos_label=0)")
def negative_predictive_value(c: Symbols) -> Any:
    """The share of negative predictions that are right."""
    return c.tn / (c.tn + c.fn)


@metric(name="fpr", greater_is_better=False, reference="1 - specificity")
def false_positive_rate(c: Symbols) -> Any:
    """The share of negatives that raise a false alarm; less is better."""
    return c.fp / (c.fp + c.tn)


@metric(name="fnr", greater_is_better=False, reference="1 - recall")
def false_negative_rate(c: Symbols) -> Any:
    """The share of positives that are missed; less is better."""
    return c.fn / (c.fn + c.tp)


@metric(greater_is_better=False, reference="predicted prevalence; for constraints such as predicted_share[1] <= 0.02")
def predicted_share(c: Symbols) -> Any:
    """The share of all samples that are predicted to be of the class: the alert volume; less is better."""
    return (c.tp + c.fp) / c.n


@metric(greater_is_better=False, range=(0.0, math.inf), reference="for predicted_count[1] <= 200 per day")
def predicted_count(c: Symbols) -> Any:
    """How many samples are predicted to be of the class: the alerts that somebody must look at; less is better."""
    return c.tp + c.fp


def _at_least_zero(fbeta: Any) -> None:
    betas = fbeta.beta if isinstance(fbeta.beta, tuple) else (fbeta.beta,)
    expect(min(betas) >= 0, "beta", "finite numbers >= 0", fbeta.beta)


@metric(
    name="fbeta", title=lambda fbeta: f"F{spell(fbeta.beta)}", reference="sklearn.metrics.fbeta_score",
    aliases={"f2": {"beta": 2.0}}, check=_at_least_zero,
)  # fmt: skip
def f_beta(c: Symbols, beta: Any = 1.0) -> Any:
    """The weighted harmonic mean of precision and recall; recall counts beta times as much."""
    hits = (1 + beta**2) * c.tp
    return hits / (hits + beta**2 * c.fn + c.fp)


@metric(reference="sklearn.metrics.f1_score", aliases=("dice",))
def f1(c: Symbols) -> Any:
    """The harmonic mean of precision and recall."""
    return 2 * c.tp / (2 * c.tp + c.fn + c.fp)


@metric(title="Jaccard index", reference="sklearn.metrics.jaccard_score", aliases=("iou",))
def jaccard(c: Symbols) -> Any:
    """Intersection over union."""
    return c.tp / (c.tp + c.fp + c.fn)


@metric(name="csi", reference="Schaefer 1990, doi:10.1175/1520-0434(1990)005<0570:TCSIAA>2.0.CO;2; equals jaccard")
def critical_success_index(c: Symbols) -> Any:
    """The forecasters' name of the Jaccard index: hits over hits, misses and false alarms."""
    return c.tp / (c.tp + c.fp + c.fn)


@metric(
    name="gmean", title="G-mean", reference="Kubat & Matwin 1997; imblearn.metrics.geometric_mean_score",
    aliases=("geometric_mean",),
)  # fmt: skip
def g_mean(c: Symbols) -> Any:
    """The geometric mean of the recalls of the classes that occur; of one class: of recall and specificity."""
    return c.geometric_mean(c.tp / (c.tp + c.fn))


@metric(title="Fowlkes-Mallows index", reference="Fowlkes & Mallows 1983, taken of the confusion matrix")
def fowlkes_mallows(c: Symbols) -> Any:
    """The geometric mean of precision and recall."""
    return c.tp / ((c.tp + c.fp) ** 0.5 * (c.tp + c.fn) ** 0.5)


def _square(cost: Any) -> None:
    if cost.label is not None or cost.average == "weighted":
        raise ValueError("cost: costs are of all classes together; it takes no class and no weighted average.")
    size = len(cost.matrix)
    expect(size > 1 and {*map(len, cost.matrix)} == {size}, "matrix", "a square matrix of costs", cost.matrix)
    expect(all(math.isfinite(v) for row in cost.matrix for v in row), "matrix", "finite costs", cost.matrix)


@metric(
    name="cost", title=lambda cost: "expected cost", greater_is_better=False, check=_square,
    range=lambda cost: (min(map(min, cost.matrix)), max(map(max, cost.matrix))),
    reference="Elkan 2001, The Foundations of Cost-Sensitive Learning",
)  # fmt: skip
def expected_cost(c: Symbols, matrix: Any = ((0.0, 1.0), (1.0, 0.0))) -> Any:
    """The mean cost of a decision; ``matrix[i][j]`` is the cost of predicting j when i is true; less is better."""
    return c.observed(matrix) / c.n


@metric(
    range=(-1.0, 1.0), reference="Gorodkin 2004; sklearn.metrics.matthews_corrcoef",
    aliases=("matthews_corrcoef", "matthews"),
)  # fmt: skip
def mcc(c: Symbols) -> Any:
    """Matthews' correlation coefficient; with more than two classes Gorodkin's R_K."""
    # Sums of products instead of differences of squares, n² - Σ pₖ²: exactly 0 on degenerate matrices.
    predicted, true = c.sum((c.tp + c.fp) * (c.tn + c.fn)), c.sum((c.tp + c.fn) * (c.tn + c.fp))
    return c.sum(c.tp * c.tn - c.fp * c.fn) / (predicted**0.5 * true**0.5)


def _known_weights(kappa: Any) -> None:
    known = kappa.weights in ("none", "linear", "quadratic")
    expect(known, "weights", "'none', 'linear' or 'quadratic'", kappa.weights)
    if kappa.weights != "none" and (kappa.average != "auto" or kappa.label is not None):
        raise ValueError(f"weights={kappa.weights!r} needs the order of all classes; give no class and no average.")


@metric(
    name="kappa", title=lambda kappa: "kappa" if kappa.weights == "none" else f"{kappa.weights} kappa",
    range=(-1.0, 1.0), check=_known_weights,
    reference="Cohen 1960, 1968; sklearn.metrics.cohen_kappa_score",
    aliases={
        "cohen_kappa_score": {}, "linear_kappa": {"weights": "linear"}, "quadratic_kappa": {"weights": "quadratic"},
    },
)  # fmt: skip
def cohen_kappa(c: Symbols, weights: Any = "none") -> Any:
    """Agreement beyond chance; the distance between classes weighs not at all, linearly or quadratically."""
    chance = c.expected(weights)
    return (chance - c.observed(weights) * c.n) / chance


@metric(name="hss", title="Heidke skill score", range=(-1.0, 1.0),
        reference="Heidke 1926; equals sklearn.metrics.cohen_kappa_score")  # fmt: skip
def heidke_skill_score(c: Symbols) -> Any:
    """The forecasters' name of unweighted kappa: the share of correct forecasts beyond chance."""
    return c.sum(c.tp * c.tn - c.fp * c.fn) / c.sum((c.tp + c.fn) * (c.fn + c.tn))


@metric(
    range=(-1.0, 1.0), aliases=("youden",),
    reference="Youden 1950; Powers 2011; sklearn.metrics.balanced_accuracy_score(adjusted=True)",
)  # fmt: skip
def informedness(c: Symbols) -> Any:
    """Recall plus specificity minus one (Youden's J, DeltaP'), of a class against the rest."""
    return c.tp / (c.tp + c.fn) + c.tn / (c.tn + c.fp) - 1


@metric(name="tss", range=(-1.0, 1.0), reference="Peirce 1884; Hanssen & Kuipers 1965")
def true_skill_statistic(c: Symbols) -> Any:
    """Peirce's (Hanssen-Kuipers') skill score; with two classes equal to informedness."""
    return c.sum(c.tp * c.tn - c.fp * c.fn) / c.sum((c.tp + c.fn) * (c.fp + c.tn))


@metric(range=(-1.0, 1.0), reference="Powers 2011, arXiv:2010.16061")
def markedness(c: Symbols) -> Any:
    """Precision plus negative predictive value minus one (DeltaP)."""
    return c.tp / (c.tp + c.fp) + c.tn / (c.tn + c.fn) - 1
