"""A fitted classifier as a function of frames, for engines that send it to many workers: Ray Data, Spark, any other."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from metricfit.data import BadArgumentError

if TYPE_CHECKING:
    from metricfit.classifier import MetricClassifier

__all__ = ["Scorer", "predict_batches"]

_NOT_SENT: dict[str, Any] = {
    "callbacks": (),
    "held_out_": None,
    "history_": None,
    "leaderboard_": None,
    "verbose": False,
}
_NOT_SENT_OF_MODELS: dict[str, Any] = {"callbacks": (), "checkpoint": None, "held_out": (), "n_jobs": 1}


class Scorer:
    """Decisions and probabilities of frames, as ``metricfit predict`` gives them: ``prediction``, ``probability_…``.

    It takes one frame (``map_batches`` of Ray Data with ``batch_format="pandas"``, Spark's ``pandas_udf``) and returns
    one, or takes an iterator of frames (Spark's ``mapInPandas``) and returns one. Columns are found by name. It can be
    pickled; what only training needs is not sent, and a worker uses one thread per forest.

    Args:
        classifier: Fitted.
        keep: Columns to pass through.
        raw: Whether to give the models' mean probabilities; otherwise they are calibrated where rows were held out.

    Example:
        >>> from metricfit import MetricClassifier
        >>> X = pd.DataFrame({"x": [0.5, 1, 2, 3] * 10, "id": range(40)})
        >>> classifier = MetricClassifier("f1", models="boosting", random_state=0).fit(X[["x"]], X["x"] > 1)
        >>> scorer = classifier.scorer(keep=["id"])
        >>> scorer(X[-2:]).columns.tolist()
        ['id', 'prediction', 'probability_False', 'probability_True']
        >>> scorer.schema
        '`prediction` boolean, `probability_False` double, `probability_True` double'
    """

    def __init__(self, classifier: MetricClassifier, *, keep: Sequence[str] = (), raw: bool = False) -> None:
        check_is_fitted(classifier, "models_")
        self.classifier, self.keep, held = classifier, list(keep), None if raw else classifier.held_out_
        self.calibration = None if held is None else held.calibration
        self.several, labels = classifier.task_ == "multilabel", classifier.classes_.tolist()
        self.decided = [f"prediction_{label}" for label in labels] if self.several else ["prediction"]
        self.probable = [f"probability_{label}" for label in labels]
        if clash := [name for name in keep if name in (*self.decided, *self.probable)]:
            raise BadArgumentError("keep", f"{clash[0]!r} is the name of a result; rename the column.")

    @property
    def schema(self) -> str:
        """The columns of the result, those kept apart, as Spark wants to know them."""
        kind = (
            "long"
            if self.several
            else {"b": "boolean", "i": "long", "u": "long", "f": "double"}.get(
                self.classifier.classes_.dtype.kind, "string"
            )
        )
        kinds = [(name, kind) for name in self.decided] + [(name, "double") for name in self.probable]
        return ", ".join(f"`{name}` {kind}" for name, kind in kinds)

    def __call__(self, frames: Any) -> Any:
        """The result for a frame, or for each frame of an iterator."""
        return map(self._of_frame, frames) if isinstance(frames, Iterator) else self._of_frame(frames)

    def result(self, X: Any, kept: Mapping[str, Any]) -> pd.DataFrame:
        """The result for rows as the classifier takes them, after columns that are kept."""
        classes = self.classifier.classes_
        if not len(X):
            decided = np.empty(0, np.int64 if self.several else classes.dtype)
            return pd.DataFrame(
                {**kept, **dict.fromkeys(self.decided, decided), **dict.fromkeys(self.probable, np.empty(0))}
            )
        proba = self.classifier.predict_proba(X, raw=True)
        chosen = self.classifier.decision_rule_.decide(proba)
        shown = proba if self.calibration is None else self.calibration.apply(proba)
        found = dict(kept) | dict(zip(self.decided, chosen.T if self.several else [classes[chosen]], strict=True))
        return pd.DataFrame(found | dict(zip(self.probable, shown.T, strict=True)))

    def _of_frame(self, frame: pd.DataFrame) -> pd.DataFrame:
        if missing := [name for name in self.keep if name not in frame.columns]:
            raise BadArgumentError("keep", f"no column {missing[0]!r}; the frame has {list(frame.columns)[:20]}.")
        names = getattr(self.classifier, "feature_names_in_", frame.columns)
        used = frame[[name for name in names if name in frame.columns]]  # what is missing is the classifier's to say
        return self.result(used, {name: frame[name].array for name in self.keep})

    def __getstate__(self) -> dict[str, Any]:
        slim = copy.copy(self.classifier)
        for name, value in {**_NOT_SENT, "models_": {n: _slim(model) for n, model in slim.models_.items()}}.items():
            setattr(slim, name, value)
        return {**vars(self), "classifier": slim}


def _slim(model: Any) -> Any:
    slim = copy.copy(model)
    for name in _NOT_SENT_OF_MODELS.keys() & vars(model).keys():
        setattr(slim, name, _NOT_SENT_OF_MODELS[name])
    if hasattr(slim, "result"):
        slim.result = slim.result._replace(history=[], validation=[])
    return slim


def predict_batches(
    model: MetricClassifier, frames: Iterable[pd.DataFrame], *, keep: Sequence[str] = (), raw: bool = False
) -> Iterator[pd.DataFrame]:
    """Decisions and probabilities of frames, one after another, wherever they come from; see :class:`Scorer`."""
    return map(Scorer(model, keep=keep, raw=raw), frames)
