"""Plots in scikit-learn's ``Display`` style; matplotlib is imported when something is drawn."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray

from metricfit.decisions import best_threshold
from metricfit.decisions.problem import binary_samples, values_of
from metricfit.decisions.threshold import Sweep
from metricfit.inputs import expect
from metricfit.metrics import MetricLike
from metricfit.metrics import get as get_metric
from metricfit.metrics.algebra import named_class
from metricfit.report.page import coolings, correlation
from metricfit.steps import Annealed, StepLike
from metricfit.steps import get as get_step

__all__ = ["AlignmentDisplay", "AnnealingDisplay", "StepDisplay", "ThresholdCurveDisplay"]

_POINTS = 1000  # of a curve over the thresholds


class _Display:
    """A drawing; ``ax_`` are its axes, ``figure_`` its figure and ``line_`` its line once it was plotted."""

    def _draw_on(self, ax: Any, xlabel: str, ylabel: str) -> Any:
        """The axes given, or those of a new figure."""
        if ax is None:
            import matplotlib.pyplot as plt

            ax = plt.subplots()[1]
        ax.set(xlabel=xlabel, ylabel=ylabel)
        self.ax_, self.figure_ = ax, ax.figure
        return ax

    def _draw_line(self, x: Any, y: Any, given: dict[str, Any], **defaults: Any) -> None:
        """The line, with our keywords unless the caller's replace them, by their short names too."""
        from matplotlib.cbook import normalize_kwargs
        from matplotlib.lines import Line2D

        self.line_ = self.ax_.plot(x, y, **defaults | normalize_kwargs(given, Line2D))[0]


@dataclass
class ThresholdCurveDisplay(_Display):
    """A metric of two classes at every threshold (n,), rising; the best one is marked: ``best_`` once it was plotted.

    >>> display = ThresholdCurveDisplay.from_predictions([0, 1, 0, 1], [0.1, 0.4, 0.6, 0.9], metric="f1")
    >>> display.ax_.get_ylabel()
    'f1'
    """

    thresholds: NDArray[np.float64]
    values: NDArray[np.float64]
    _: KW_ONLY
    best_threshold: float | None = None
    best_value: float | None = None
    metric_name: str = ""
    estimator_name: str | None = None

    def plot(self, ax: Any = None, *, name: str | None = None, **kwargs: Any) -> Self:
        """Draw on ``ax``, or a new figure; ``name`` replaces ``estimator_name``, ``kwargs`` are for the curve."""
        ax = self._draw_on(ax, "Threshold", self.metric_name)
        label = name if name is not None else self.estimator_name
        self._draw_line(self.thresholds, self.values, kwargs, label=label)
        self.best_ = None
        if self.best_threshold is not None and self.best_value is not None:
            text = f"best: {self.best_value:.3f} at {self.best_threshold:.3g}"
            mark = {"marker": "D", "linestyle": "", "color": self.line_.get_color(), "markeredgecolor": "white"}
            (self.best_,) = ax.plot([self.best_threshold], [self.best_value], label=text, **mark)
        if label is not None or self.best_ is not None:
            ax.legend()
        return self

    @classmethod
    def from_predictions(
        cls, y_true: ArrayLike, y_score: ArrayLike, *, metric: MetricLike = "f1", name: str | None = None,
        ax: Any = None, sample_weight: ArrayLike | None = None, labels: Any = None,
        **kwargs: Any,
    ) -> Self:  # fmt: skip
        """Draw the metric of scores (n,) of the positive class; see :func:`metricfit.decisions.best_threshold`.

        With constraints the mark is the best threshold that meets them. ``kwargs`` are for the curve.
        """
        wanted = get_metric(metric)
        shown = getattr(wanted, "objective", wanted)
        best = best_threshold(y_true, y_score, wanted, sample_weight=sample_weight, labels=labels)
        sweep = Sweep.of(binary_samples(y_true, y_score, sample_weight, labels))
        few = np.unique(np.linspace(0, len(sweep) - 1, min(len(sweep), _POINTS)).astype(int))[::-1]
        values = values_of(shown, sweep.matrix(sweep.cells(sweep.tp[few], sweep.fp[few]))).numpy()
        return cls(
            sweep.thresholds(few), values, best_threshold=best.threshold, best_value=best.value,
            metric_name=str(shown), estimator_name=name,
        ).plot(ax, **kwargs)  # fmt: skip

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: ArrayLike, *, metric: MetricLike | None = None, name: str | None = None,
        **kwargs: Any,
    ) -> Self:  # fmt: skip
        """Draw the metric of a fitted classifier of two classes on rows, of the class that the metric names.

        Without a metric it is the classifier's own, or F1; without a name the legend names the classifier's type. Of a
        :class:`metricfit.MetricClassifier` the scores are the probabilities before its decision rule.
        """
        classes = np.asarray(estimator.classes_).tolist()
        if len(classes) != 2:
            raise ValueError(f"estimator: a threshold decides between two classes, this one has {len(classes)}.")
        wanted = get_metric(metric if metric is not None else getattr(estimator, "metric_", "f1"))
        positive = 0 if named_class(wanted, tuple(classes)) == 0 else 1
        order = [classes[1 - positive], classes[positive]]
        how = {"raw": True} if hasattr(estimator, "decision_rule_") or hasattr(estimator, "rule_") else {}
        scored = getattr(estimator, "predict_proba", None)
        found = np.asarray(scored(X, **how) if scored else estimator.decision_function(X))
        score = found[:, positive] if found.ndim == 2 else found if positive else -found
        name = type(estimator).__name__ if name is None else name
        return cls.from_predictions(y, score, labels=order, metric=wanted, name=name, **kwargs)


@dataclass
class AlignmentDisplay(_Display):
    """What was trained on against the exact metric, one point per epoch: on a line, training followed the metric.

    The line rises for a surrogate of the metric and falls for a loss, which has a ``loss_name``. The ``correlation`` is
    NaN if too few values differ. Colours show the epochs; the points are ``scatter_``.

    >>> round(AlignmentDisplay([0.2, 0.4, 0.5], [0.25, 0.45, 0.55]).plot().correlation, 3)
    1.0
    """

    surrogate: Any
    exact: Any
    _: KW_ONLY
    epochs: Any = None
    metric_name: str = "metric"
    loss_name: str = ""
    correlation: float = field(init=False)

    def __post_init__(self) -> None:
        first, second = np.asarray(self.surrogate, dtype=np.float64), np.asarray(self.exact, dtype=np.float64)
        fits = first.ndim == 1 and first.shape == second.shape
        expect(fits, "exact", f"one value for each of the surrogate's, {first.shape}", second.shape)
        number = np.arange(1, len(first) + 1) if self.epochs is None else np.asarray(self.epochs)
        known = np.isfinite(first) & np.isfinite(second)
        self.surrogate, self.exact, self.epochs = first[known], second[known], number[known]
        self.correlation = correlation(self.surrogate, self.exact)

    def plot(self, ax: Any = None, **kwargs: Any) -> Self:
        """Draw; ``kwargs`` are for the points."""
        ax = self._draw_on(ax, self.loss_name or f"Surrogate {self.metric_name}", f"Exact {self.metric_name}")
        self.scatter_ = ax.scatter(self.surrogate, self.exact, **{"c": self.epochs, "s": 25} | kwargs)
        if not self.loss_name:
            ax.axline((0.5, 0.5), slope=1, linestyle=":", color="grey", label="equal")
            ax.legend()
        if np.isfinite(self.correlation):
            ax.set_title(f"Correlation {self.correlation:.2f}")
        return self

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None, **kwargs: Any) -> Self:
        """Draw the loss that a fitted :class:`metricfit.MetricClassifier` was trained with, on its validation rows."""
        history, recipe, name = _history(estimator), estimator.recipe_, str(estimator.metric_)
        losses = {"log_loss": "Cross-entropy", "surrogate_fbeta": "Surrogate F-beta loss"}
        loss = losses.get(recipe.objective, f"1 - soft {name}" if not recipe.cross_entropy else "Loss as trained")
        named: Any = {"epochs": history["epoch"], "metric_name": name, "loss_name": loss}
        return cls(history["validation_loss"], history["hard_metric"], **named).plot(ax, **kwargs)


@dataclass
class AnnealingDisplay(_Display):
    """The temperature over the epochs, its ``coolings``, and the metric on validation rows, on ``metric_ax_``.

    The ``history`` is a classifier's: one row per epoch with ``epoch``, ``temperature`` and ``hard_metric``.
    """

    history: pd.DataFrame
    _: KW_ONLY
    metric_name: str = "metric"
    coolings: list[int] = field(init=False)

    def __post_init__(self) -> None:
        if missing := {"epoch", "temperature", "hard_metric"} - set(self.history.columns):
            raise ValueError(f"history: expected a classifier's history_, it lacks {', '.join(sorted(missing))}.")
        self.coolings = coolings(self.history)

    def plot(self, ax: Any = None, **kwargs: Any) -> Self:
        """Draw; ``kwargs`` are for the temperature's line."""
        ax = self._draw_on(ax, "Epoch", "Temperature T")
        style = {"color": "C1", "drawstyle": "steps-post", "label": "temperature"}
        self._draw_line(self.history["epoch"], self.history["temperature"], kwargs, **style)
        for i, epoch in enumerate(self.coolings):
            ax.axvline(epoch, linestyle=":", color="grey", label="cooling" if i == 0 else None)
        ax.set_ylim(bottom=0)
        known = self.history.dropna(subset=["hard_metric"])
        self.metric_ax_ = ax.twinx()
        self.metric_ax_.plot(known["epoch"], known["hard_metric"], color="C0", linestyle="--", label=self.metric_name)
        self.metric_ax_.set_ylabel(self.metric_name)
        ax.legend(handles=[*ax.get_legend_handles_labels()[0], *self.metric_ax_.get_legend_handles_labels()[0]])
        return self

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None, **kwargs: Any) -> Self:
        """Draw the training of a fitted :class:`metricfit.MetricClassifier`."""
        return cls(_history(estimator), metric_name=str(estimator.metric_)).plot(ax, **kwargs)


@dataclass
class StepDisplay(_Display):
    """How much a probability counts as a positive prediction in the loss, beside the exact step at ``tau``.

    >>> StepDisplay("sigmoid").plot().line_.get_label()
    'sigmoid:k=10'
    """

    step: StepLike = "annealed"
    _: KW_ONLY
    tau: float = 0.5

    def plot(self, ax: Any = None, **kwargs: Any) -> Self:
        """Draw; ``kwargs`` are for the step's line."""
        ax = self._draw_on(ax, "Probability", "Counts as positive")
        p, step = torch.linspace(0, 1, 401, dtype=torch.float64), get_step(self.step)
        heights = step(p, torch.tensor(self.tau, dtype=torch.float64))
        self._draw_line(p.numpy(), heights.numpy(), kwargs, label=str(step))
        ax.plot([0, self.tau, self.tau, 1], [0, 0, 1, 1], linestyle=":", color="grey", label="exact step")
        ax.legend()
        return self

    @classmethod
    def from_estimator(cls, estimator: Any, *, tau: float = 0.5, ax: Any = None, **kwargs: Any) -> Self:
        """Draw the step of a fitted :class:`metricfit.MetricClassifier` at its last temperature."""
        history, step = _history(estimator), get_step(estimator.recipe_.step)
        last = round(float(history["temperature"].iloc[-1]), 6) if len(history) else estimator.recipe_.temperature
        return cls(Annealed(last) if isinstance(step, Annealed) else step, tau=tau).plot(ax, **kwargs)


def _history(estimator: Any) -> Any:
    if not hasattr(estimator, "history_"):
        kind = type(estimator).__name__
        raise ValueError(f"estimator: expected a fitted MetricClassifier, got {kind} without history_.")
    return estimator.history_
