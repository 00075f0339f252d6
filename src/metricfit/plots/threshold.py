"""A metric over the threshold."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metricfit.decisions import best_threshold, score_sweep
from metricfit.metrics import MetricLike
from metricfit.metrics import get as get_metric
from metricfit.plots.axes import axes_for, merged

__all__ = ["ThresholdCurveDisplay"]


class ThresholdCurveDisplay:
    """A metric of two classes at every threshold, with the best one marked.

    Args:
        thresholds: Rising thresholds.
        values: The metric at each.
        best_threshold: Where it is best, or None.
        best_value: Its value there.
        metric_name: For the axis.
        estimator_name: For the legend.

    Attributes:
        ax_: The axes.
        figure_: The figure.
        line_: The curve.
        best_: The mark, or None.

    >>> display = ThresholdCurveDisplay(np.array([0.0, 0.5, 1.0]), np.array([0.4, 0.8, 0.0]), metric_name="f1")
    >>> display.plot().ax_.get_ylabel()
    'f1'
    """

    def __init__(
        self,
        thresholds: NDArray[np.float64],
        values: NDArray[np.float64],
        *,
        best_threshold: float | None = None,
        best_value: float | None = None,
        metric_name: str = "",
        estimator_name: str | None = None,
    ) -> None:
        self.thresholds, self.values = thresholds, values
        self.best_threshold, self.best_value = best_threshold, best_value
        self.metric_name, self.estimator_name = metric_name, estimator_name

    def plot(self, ax: Any = None, *, name: str | None = None, **kwargs: Any) -> Self:
        """Draw.

        Args:
            ax: Axes, or a new figure's.
            name: For the legend, instead of ``estimator_name``.
            **kwargs: For the curve.
        """
        self.ax_ = axes_for(ax)
        self.figure_ = self.ax_.figure
        label = name if name is not None else self.estimator_name
        (self.line_,) = self.ax_.plot(self.thresholds, self.values, **merged({"label": label}, kwargs))
        self.best_ = None
        if self.best_threshold is not None and self.best_value is not None:
            text = f"best: {self.best_value:.3f} at {self.best_threshold:.3g}"
            mark = {"marker": "D", "linestyle": "", "color": self.line_.get_color(), "markeredgecolor": "white"}
            (self.best_,) = self.ax_.plot([self.best_threshold], [self.best_value], label=text, **mark)
        self.ax_.set(xlabel="Threshold", ylabel=self.metric_name)
        if label is not None or self.best_ is not None:
            self.ax_.legend()
        return self

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        y_score: ArrayLike,
        *,
        metric: MetricLike = "f1",
        sample_weight: ArrayLike | None = None,
        labels: Sequence[Hashable] | None = None,
        pos_label: Hashable | None = None,
        name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the metric of scores.

        Args:
            y_true: Labels of two classes.
            y_score: Scores of the positive class.
            metric: The metric, also with constraints: then the mark is the best threshold that meets them.
            sample_weight: Weights.
            labels: The two classes.
            pos_label: The positive class.
            name: For the legend.
            ax: Axes, or a new figure's.
            **kwargs: For the curve.
        """
        wanted = get_metric(metric)
        options: dict[str, Any] = {"sample_weight": sample_weight, "labels": labels, "pos_label": pos_label}
        best = best_threshold(y_true, y_score, wanted, **options)
        shown = getattr(wanted, "objective", wanted)
        curve = score_sweep(y_true, y_score, shown, **options)
        found = cls(
            curve.thresholds,
            curve.values[str(shown)],
            best_threshold=best.threshold,
            best_value=best.value,
            metric_name=str(shown),
            estimator_name=name,
        )
        return found.plot(ax, **kwargs)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike,
        *,
        metric: MetricLike | None = None,
        sample_weight: ArrayLike | None = None,
        name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the metric of a fitted classifier's scores.

        Args:
            estimator: A fitted classifier of two classes; of a :class:`metricfit.MetricClassifier` the probabilities
                before its decision rule.
            X: Rows.
            y: Labels.
            metric: The metric; the classifier's own, or F1, if it is not given.
            sample_weight: Weights.
            name: For the legend; the class's name if it is not given.
            ax: Axes, or a new figure's.
            **kwargs: For the curve.
        """
        classes = np.asarray(estimator.classes_).tolist()
        if len(classes) != 2:
            raise ValueError(f"estimator: a threshold decides between two classes, this one has {len(classes)}.")
        if hasattr(estimator, "predict_raw_proba"):
            score = estimator.predict_raw_proba(X)[:, 1]
        elif hasattr(estimator, "predict_proba"):
            score = estimator.predict_proba(X)[:, 1]
        else:
            score = estimator.decision_function(X)
        wanted = metric if metric is not None else getattr(estimator, "metric_", "f1")
        return cls.from_predictions(
            y, score, metric=wanted, sample_weight=sample_weight, labels=classes,
            name=type(estimator).__name__ if name is None else name, ax=ax, **kwargs,
        )  # fmt: skip
