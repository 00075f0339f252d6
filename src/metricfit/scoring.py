"""A fitted classifier as a function of frames, for engines that send it to many workers: Ray Data, Spark, any other."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from metricfit.choices import close_to
from metricfit.data import BadArgumentError

if TYPE_CHECKING:
    from metricfit.classifier import MetricClassifier

__all__ = ["Scorer", "predict_batches"]

_SENT: dict[str, Any] = {"callbacks": (), "checkpoint": None, "held_out_": None, "held_out": (), "n_jobs": 1}
"""What a classifier and its models have in a worker, instead of what only training needs."""


class Scorer:
    """Decisions and probabilities of frames, as ``metricfit predict`` gives them: ``prediction``, ``probability_…``.

    It takes one frame (``map_batches`` of Ray Data with ``batch_format="pandas"``, a function that calls it for Spark's
    ``pandas_udf``) and returns one, or takes an iterator of frames (Spark's ``mapInPandas``). It can be pickled.

    Args:
        classifier: Fitted.
        keep: Columns to pass through.
        raw: Whether to give the models' mean probabilities; otherwise they are calibrated where rows were held out.

    Example:
        >>> from metricfit import MetricClassifier
        >>> X = pd.DataFrame({"x": [0.5, 1, 2, 3] * 10, "id": range(40)})
        >>> classifier = MetricClassifier("f1", models="boosting", random_state=0).fit(X[["x"]], X["x"] > 1)
        >>> classifier.scorer(keep=["id"])(X[-2:]).columns.tolist()
        ['id', 'prediction', 'probability_False', 'probability_True']
        >>> classifier.scorer().schema
        '`prediction` boolean, `probability_False` double, `probability_True` double'
    """

    def __init__(self, classifier: MetricClassifier, *, keep: Sequence[str] = (), raw: bool = False) -> None:
        self.classifier, self.keep, held = classifier, list(keep), None if raw else classifier.held_out_
        self.calibration = None if held is None else classifier.calibration_
        self.several, labels = classifier.task_ == "multilabel", classifier.classes_.tolist()
        self.decided = [f"prediction_{label}" for label in labels] if self.several else ["prediction"]
        self.probable = [f"probability_{label}" for label in labels]
        if clash := [name for name in keep if name in (*self.decided, *self.probable)]:
            raise BadArgumentError("keep", f"{clash[0]!r} is the name of a result; rename the column.")

    @property
    def types(self) -> dict[str, str]:
        """The columns of the result, those kept apart, and their types in the words of Spark and MLflow."""
        known = {"b": "boolean", "i": "long", "u": "long", "f": "double"}
        kind = "long" if self.several else known.get(self.classifier.classes_.dtype.kind, "string")
        return dict.fromkeys(self.decided, kind) | dict.fromkeys(self.probable, "double")

    @property
    def schema(self) -> str:
        """The same as one text, as Spark wants it."""
        return ", ".join(f"`{name}` {kind}" for name, kind in self.types.items())

    def __call__(self, frames: Any) -> Any:
        """The result for a frame, or for each frame of an iterator."""
        if isinstance(frames, Iterator):
            return map(self, frames)
        if missing := [name for name in self.keep if name not in frames.columns]:
            raise BadArgumentError("keep", f"no column {missing[0]!r}; {close_to(missing[0], list(frames.columns))}")
        names = getattr(self.classifier, "feature_names_in_", frames.columns)
        used = frames[[name for name in names if name in frames.columns]]  # the classifier says what is missing
        return self.result(used, {name: frames[name].array for name in self.keep})

    def result(self, X: Any, kept: Mapping[str, Any]) -> pd.DataFrame:
        """The result for rows as the classifier takes them, after columns that are kept."""
        classes, rule = self.classifier.classes_, self.classifier.decision_rule_
        proba = self.classifier.predict_proba(X, raw=True) if len(X) else np.empty((0, len(classes)))
        chosen = rule.decide(proba)
        shown = proba
        if self.calibration is not None and len(X):
            shown = self.calibration.apply(self.classifier._by_group(proba, X, back=True))
        decided = chosen.T if self.several else [rule.named(chosen, classes) if len(X) else classes[:0]]
        found = zip([*self.decided, *self.probable], [*decided, *shown.T], strict=True)
        return pd.DataFrame(dict(kept) | dict(found))

    def __getstate__(self) -> dict[str, Any]:
        sent = _slim(self.classifier)
        sent.models_ = {name: _slim(model) for name, model in sent.models_.items()}
        return {**vars(self), "classifier": sent}


def _slim(model: Any) -> Any:
    slim = copy.copy(model)
    for name in _SENT.keys() & vars(model).keys():
        setattr(slim, name, _SENT[name])
    return slim


def predict_batches(
    model: MetricClassifier, frames: Iterable[pd.DataFrame], *, keep: Sequence[str] = (), raw: bool = False
) -> Iterator[pd.DataFrame]:
    """Decisions and probabilities of frames, one after another, wherever they come from; see :class:`Scorer`."""
    return map(Scorer(model, keep=keep, raw=raw), frames)
