"""What happened in training: whether the loss tracked the metric, the temperature, the step."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray

from metricfit.plots.axes import axes_for, merged
from metricfit.report.sections import coolings
from metricfit.steps import Annealed, Step, StepLike
from metricfit.steps import get as get_step

__all__ = ["AlignmentDisplay", "AnnealingDisplay", "StepDisplay"]


class AlignmentDisplay:
    """The surrogate against the exact metric, one point per epoch: on a rising line, the loss tracked the metric.

    Args:
        surrogate: Values of the surrogate.
        exact: The exact metric at the same time.
        epochs: The epoch of each point, for its colour.
        metric_name: For the axes.

    Attributes:
        correlation: Of the two; NaN if there are too few different values.
        ax_: The axes.
        figure_: The figure.
        scatter_: The points.
    """

    def __init__(
        self, surrogate: ArrayLike, exact: ArrayLike, *, epochs: ArrayLike | None = None, metric_name: str = "metric"
    ) -> None:
        first, second = np.asarray(surrogate, dtype=np.float64), np.asarray(exact, dtype=np.float64)
        if first.ndim != 1 or first.shape != second.shape:
            raise ValueError(
                f"exact: expected one value for each of the surrogate's, got {second.shape} for {first.shape}."
            )
        number = np.arange(1, len(first) + 1) if epochs is None else np.asarray(epochs)
        known = np.isfinite(first) & np.isfinite(second)
        self.surrogate, self.exact, self.epochs = first[known], second[known], number[known]
        self.metric_name = metric_name
        varied = len(self.exact) > 2 and self.surrogate.std() > 0 and self.exact.std() > 0
        self.correlation = float(np.corrcoef(self.surrogate, self.exact)[0, 1]) if varied else float("nan")

    def plot(self, ax: Any = None, **kwargs: Any) -> Self:
        """Draw; ``kwargs`` are for the points."""
        self.ax_ = axes_for(ax)
        self.figure_ = self.ax_.figure
        self.scatter_ = self.ax_.scatter(self.surrogate, self.exact, **merged({"c": self.epochs, "s": 25}, kwargs))
        if len(self.exact):
            ends = [min(self.surrogate.min(), self.exact.min()), max(self.surrogate.max(), self.exact.max())]
            self.ax_.plot(ends, ends, linestyle=":", color="grey", label="equal")
            self.ax_.legend()
        self.ax_.set(xlabel=f"Surrogate {self.metric_name}", ylabel=f"Exact {self.metric_name}")
        if np.isfinite(self.correlation):
            self.ax_.set_title(f"Correlation {self.correlation:.2f}")
        return self

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None, **kwargs: Any) -> Self:
        """Draw the epochs of a fitted :class:`metricfit.MetricClassifier` that were validated."""
        history = _history(estimator)
        found = cls(
            history["soft_metric"], history["hard_metric"], epochs=history["epoch"], metric_name=str(estimator.metric_)
        )
        return found.plot(ax, **kwargs)

    @classmethod
    def from_predictions(
        cls, surrogate: ArrayLike, exact: ArrayLike, *, metric_name: str = "metric", ax: Any = None, **kwargs: Any
    ) -> Self:
        """Draw values of your own, such as those of a training loop.

        >>> display = AlignmentDisplay.from_predictions([0.2, 0.4, 0.5], [0.25, 0.45, 0.55])
        >>> round(display.correlation, 3)
        1.0
        """
        return cls(surrogate, exact, metric_name=metric_name).plot(ax, **kwargs)


class AnnealingDisplay:
    """The temperature over the epochs, its coolings, and the metric on validation rows.

    Args:
        history: ``history_`` of a classifier: one row per epoch with ``epoch``, ``temperature`` and ``hard_metric``.
        metric_name: For the legend.

    Attributes:
        coolings: Epochs at whose end the temperature was lowered.
        ax_: The axes of the temperature.
        metric_ax_: The axes of the metric, at the right.
        figure_: The figure.
        line_: The temperature.
    """

    def __init__(self, history: pd.DataFrame, *, metric_name: str = "metric") -> None:
        if missing := {"epoch", "temperature", "hard_metric"} - set(history.columns):
            raise ValueError(f"history: expected a classifier's history_, it lacks {', '.join(sorted(missing))}.")
        self.history, self.metric_name = history, metric_name
        self.coolings = coolings(history)

    def plot(self, ax: Any = None, **kwargs: Any) -> Self:
        """Draw; ``kwargs`` are for the temperature's line."""
        self.ax_ = axes_for(ax)
        self.figure_ = self.ax_.figure
        options = merged({"color": "C1", "drawstyle": "steps-post", "label": "temperature"}, kwargs)
        (self.line_,) = self.ax_.plot(self.history["epoch"], self.history["temperature"], **options)
        for i, epoch in enumerate(self.coolings):
            self.ax_.axvline(epoch, linestyle=":", color="grey", label="cooling" if i == 0 else None)
        self.ax_.set(xlabel="Epoch", ylabel="Temperature T")
        self.ax_.set_ylim(bottom=0)
        known = self.history.dropna(subset=["hard_metric"])
        self.metric_ax_ = self.ax_.twinx()
        self.metric_ax_.plot(known["epoch"], known["hard_metric"], color="C0", linestyle="--", label=self.metric_name)
        self.metric_ax_.set_ylabel(self.metric_name)
        lines = [*self.ax_.get_legend_handles_labels()[0], *self.metric_ax_.get_legend_handles_labels()[0]]
        self.ax_.legend(handles=lines)
        return self

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None, **kwargs: Any) -> Self:
        """Draw the training of a fitted :class:`metricfit.MetricClassifier`."""
        return cls(_history(estimator), metric_name=str(estimator.metric_)).plot(ax, **kwargs)


class StepDisplay:
    """How much a probability counts as a positive prediction in the loss, beside the exact step.

    Args:
        p: Probabilities.
        heights: The step at each.
        tau: Its threshold.
        name: For the legend.

    Attributes:
        ax_: The axes.
        figure_: The figure.
        line_: The step.
    """

    def __init__(
        self, p: NDArray[np.float64], heights: NDArray[np.float64], *, tau: float = 0.5, name: str = "step"
    ) -> None:
        self.p, self.heights, self.tau, self.name = p, heights, tau, name

    def plot(self, ax: Any = None, **kwargs: Any) -> Self:
        """Draw; ``kwargs`` are for the step's line."""
        self.ax_ = axes_for(ax)
        self.figure_ = self.ax_.figure
        (self.line_,) = self.ax_.plot(self.p, self.heights, **merged({"label": self.name}, kwargs))
        self.ax_.plot([0, self.tau, self.tau, 1], [0, 0, 1, 1], linestyle=":", color="grey", label="exact step")
        self.ax_.set(xlabel="Probability", ylabel="Counts as positive")
        self.ax_.legend()
        return self

    @classmethod
    def from_step(
        cls, step: StepLike = "annealed", *, tau: float = 0.5, ax: Any = None, **kwargs: Any
    ) -> Self:
        """Draw a step.

        Args:
            step: A step of :mod:`metricfit.steps`, its spec, or a function.
            tau: The threshold.
            ax: Axes, or a new figure's.
            **kwargs: For the line.

        >>> StepDisplay.from_step("sigmoid").name
        'sigmoid:k=10'
        """
        p = torch.linspace(0, 1, 401, dtype=torch.float64)
        chosen = get_step(step)
        heights = chosen(p, torch.tensor(tau, dtype=torch.float64))
        return cls(p.numpy(), heights.numpy(), tau=tau, name=str(chosen)).plot(ax, **kwargs)

    @classmethod
    def from_estimator(cls, estimator: Any, *, tau: float = 0.5, ax: Any = None, **kwargs: Any) -> Self:
        """Draw the step of a fitted :class:`metricfit.MetricClassifier` at its last temperature."""
        history = _history(estimator)
        last = round(float(history["temperature"].iloc[-1]), 6) if len(history) else estimator.recipe_.temperature
        step: Step = get_step(estimator.recipe_.step)
        step = Annealed(last) if isinstance(step, Annealed) else step
        return cls.from_step(step, tau=tau, ax=ax, **kwargs)


def _history(estimator: Any) -> pd.DataFrame:
    if not hasattr(estimator, "history_"):
        raise ValueError(
            f"estimator: expected a fitted MetricClassifier, got {type(estimator).__name__} without history_."
        )
    found: pd.DataFrame = estimator.history_
    return found
