"""The losses of the papers by the names that their tables have in ``published.csv``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from metricfit import MetricLoss
from metricfit.losses import (
    AdversarialF1Loss,
    AnyLoss,
    DiceLoss,
    MAELoss,
    SoftFBetaLoss,
    SurrogateFBetaLoss,
    WMWLoss,
)
from metricfit.metrics import AUROC, FBeta, Metric, ThresholdMean, get
from metricfit.steps import Linear, Sigmoid

__all__ = ["NAMES", "Approximation", "Built", "build"]

Approximation = Literal["linear", "sigmoid", "annealed"]
METRICS = {"accuracy": "accuracy", "mcc": "mcc", "f1": "fbeta:beta=1", "f2": "fbeta:beta=2", "f3": "fbeta:beta=3"}
PREFERENCES = {"fbeta_precision": 0.25, "fbeta_recall": 5.0}
AUROC_THRESHOLDS = tuple(i / 10 for i in range(1, 10))
"""Btg says nothing of the thresholds that it trains AUROC* with; these are those that it evaluates with."""

WMW = {"margin": 0.2, "power": 3}
"""Inside the range that Yan et al. recommend."""

ROBUSTNESS = 0.5
"""q of surrogate-fbeta's eq. 25, of which it says no more than 0 < q <= 1."""


@dataclass(frozen=True)
class Built:
    """A loss and what it asks of the training.

    Attributes:
        loss: ``loss(logits, target)``; with one output logits of shape (n,), otherwise (n, d); target int64 (n,).
        n_outputs: Outputs that the network needs.
        annealed: Whether the loss has a temperature to lower, by ``loss.set_temperature``.
        batch_size: A batch size that the method insists on.
        raw: Whether the network's output is the score itself, neither sigmoid nor softmax to follow.
    """

    loss: nn.Module
    n_outputs: int
    annealed: bool = False
    batch_size: int | None = None
    raw: bool = False


@dataclass(frozen=True)
class _Options:
    """What :func:`build` was told, for the builders below."""

    single_output: bool
    n_classes: int
    shares: Tensor
    weight: Tensor | None
    beta: float
    beta_of_class: Mapping[int, float] | None
    thresholds: tuple[float, ...]
    average: str | int | None
    step: Mapping[str, Any]
    balanced: bool

    @property
    def task(self) -> Literal["binary", "multiclass"]:
        return "binary" if self.single_output else "multiclass"

    @property
    def common(self) -> dict[str, Any]:
        """Options of all losses of metricfit. Values are not looked at: that costs time, and the data are clean."""
        return {"task": self.task, "weight": self.weight, "validate": False}

    @property
    def binary(self) -> dict[str, Any]:
        return self.common | {"task": "binary"}


def build(
    method: str,
    *,
    approximation: Approximation | str = "linear",
    n_classes: int,
    prior: float | Sequence[float] | Tensor,
    single_output: bool,
    temperature: float = 0.2,
    delta: float = 0.1,
    k: float = 10.0,
    beta: float = 1.0,
    beta_of_class: Mapping[int, float] | None = None,
    weighted: bool = False,
    balanced: bool = False,
    thresholds: Sequence[float] = (0.5,),
    average: str | int | None = None,
) -> Built:
    """The loss of a method.

    Args:
        method: One of :data:`NAMES`, or ``fbeta_<number>``.
        approximation: Of the step, for the losses on a metric: ``"linear"`` (``delta``), ``"sigmoid"`` (``k``) or
            ``"annealed"`` (``temperature``, to be lowered).
        n_classes: d.
        prior: Share of the positives in the training part, or shares of all classes.
        single_output: One sigmoid output for two classes (btg, AnyLoss), otherwise softmax over d.
        temperature: T₀.
        delta: Height of the linear step's knots.
        k: Steepness of the sigmoid step.
        beta: Of ``soft_fbeta``, ``surrogate_fbeta`` and ``surrogate_fbeta_q``.
        beta_of_class: Of the ``fbeta_…`` losses: β by class index, 1 for the classes that are not in it.
        weighted: Weigh samples by n / (d n_c), c their class (btg §7.2).
        balanced: Weigh samples by n / n_c and divide by their number, as surrogate-fbeta does with its own loss,
            cross-entropy and MAE (eq. 2). Its soft Fβ (eq. 24) is no mean over samples and stays as printed.
        thresholds: With one output, the loss is the mean over these.
        average: Of F-scores with softmax; by default the positive class's for two classes, otherwise macro.

    >>> build("f1", n_classes=2, prior=0.1, single_output=True).loss(torch.tensor([9.0, -9.0]), torch.tensor([1, 0]))
    tensor(0.0000)
    """
    if single_output and n_classes != 2:
        raise ValueError(f"single_output: one output tells two classes apart, got n_classes={n_classes}.")
    shares = torch.as_tensor(prior, dtype=torch.float32)
    shares = torch.stack([1 - shares, shares]) if shares.ndim == 0 else shares
    options = _Options(
        single_output=single_output,
        n_classes=n_classes,
        shares=shares,
        weight=1 / (n_classes * shares.clamp_min(1e-9)) if weighted else None,
        beta=beta,
        beta_of_class=beta_of_class,
        thresholds=tuple(thresholds),
        average=average,
        step=_step(approximation, temperature=temperature, delta=delta, k=k),
        balanced=balanced,
    )
    n_outputs = 1 if single_output else n_classes
    if method in METRICS or method.startswith("fbeta_"):
        return Built(_metric_loss(method, options), n_outputs, annealed=approximation == "annealed")
    if method not in _BUILDERS:
        raise ValueError(f"method: expected one of {', '.join(NAMES)}, got {method!r}.")
    kind = _BUILDERS[method]
    if weighted and not kind.weighted:
        raise ValueError(f"weighted: has no effect on {method!r}.")
    if balanced and not kind.balanced:
        raise ValueError(f"balanced: surrogate-fbeta has no {method!r}.")
    loss = kind.make(options)
    if kind.binary and not single_output:
        if n_classes != 2:
            raise ValueError(f"method: {method!r} tells two classes apart, got n_classes={n_classes}.")
        loss = OfDifference(loss)
    return Built(loss, n_outputs, batch_size=kind.batch_size, raw=kind.raw)


class OfDifference(nn.Module):
    """A loss of one logit, given two: softmax over two logits is the sigmoid of their difference."""

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return self.loss(input[:, 1] - input[:, 0], target)


class BinaryCrossEntropy(nn.BCEWithLogitsLoss):
    """Binary cross-entropy for whole-number targets."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return super().forward(input, target.to(input.dtype))


class BalancedLoss(nn.Module):
    """The mean over a batch of w_y times the loss of a sample, w_y = n / n_y of the training set (eq. 2).

    Args:
        each: The losses of the samples, from the logit and the class.
        shares: n_y / n.
    """

    def __init__(self, each: Callable[[Tensor, Tensor], Tensor], shares: Tensor) -> None:
        super().__init__()
        self.each = each
        self.register_buffer("weight", 1 / shares)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return (self.weight[target] * self.each(input, target)).mean()


def _entropies(input: Tensor, target: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(input, target.to(input.dtype), reduction="none")


def _absolute_errors(input: Tensor, target: Tensor) -> Tensor:
    """2 - 2 f_y (eq. 14)."""
    return 2 * (input.sigmoid() - target).abs()


class SquaredError(nn.Module):
    """The mean of (p - y)²."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss(input.sigmoid(), target.to(input.dtype))


class DicePerSample(nn.Module):
    """1 - mean of f y / (f² + y²), f a network's output: the form of Dice in btg's released code.

    It is no Dice coefficient of a batch: a negative sample adds nothing, so nothing speaks against false positives.

    Args:
        raw: Whether f is the plain output, otherwise its sigmoid (softmax for several).
    """

    def __init__(self, *, raw: bool) -> None:
        super().__init__()
        self.raw = raw

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        single = input.ndim == 1
        f = input if self.raw else input.sigmoid() if single else input.softmax(dim=-1)
        y = target.to(f.dtype) if single else F.one_hot(target, f.shape[-1]).to(f.dtype)
        return 1 - (f * y / (f**2 + y**2 + 1e-7)).mean()


def _step(approximation: str, *, temperature: float, delta: float, k: float) -> dict[str, Any]:
    steps: dict[str, dict[str, Any]] = {
        "linear": {"step": Linear(delta)},
        "sigmoid": {"step": Sigmoid(k)},
        "annealed": {"temperature": temperature},
    }
    # Losses that approximate no step have an empty one in the tables.
    if (approximation or "linear") not in steps:
        raise ValueError(f"approximation: expected 'linear', 'sigmoid' or 'annealed', got {approximation!r}.")
    return steps[approximation or "linear"]


def _metric_loss(method: str, options: _Options) -> nn.Module:
    # The papers' averages over classes count those that a batch lacks.
    shared = {**options.common, **options.step, "absent": "count"}
    if method not in METRICS:
        return MetricLoss(_fbeta(method, options), **shared)
    metric: Metric = get(METRICS[method])
    if options.single_output:
        at_half = options.thresholds == (0.5,)
        return MetricLoss(metric if at_half else ThresholdMean(metric, grid=options.thresholds), **shared)
    if not isinstance(metric, FBeta):
        return MetricLoss(metric, **shared)
    average = options.average
    if average is None:
        average = 1 if options.n_classes == 2 else "macro"
    return MetricLoss(metric, average=average, **shared)


def _fbeta(method: str, options: _Options) -> FBeta:
    """Macro F-beta with a β of its own for some classes."""
    if options.single_output:
        raise ValueError(f"method: {method!r} has one β a class, and so needs an output for each.")
    by_class = options.beta_of_class
    if by_class is None:
        value = PREFERENCES.get(method) or float(method.removeprefix("fbeta_"))
        by_class = dict.fromkeys(range(options.n_classes), value)
    return FBeta(beta=[by_class.get(c, 1.0) for c in range(options.n_classes)], average="macro")


def _cross_entropy(options: _Options) -> nn.Module:
    weight = options.weight
    if options.balanced:
        loss = BalancedLoss(_entropies, options.shares)
        return loss if options.single_output else OfDifference(loss)
    if not options.single_output:
        return nn.CrossEntropyLoss(weight)
    return BinaryCrossEntropy(pos_weight=None if weight is None else weight[1] / weight[0])


def _surrogate(options: _Options, q: float | None) -> nn.Module:
    share = float(options.shares[1])
    return SurrogateFBetaLoss(options.beta, q=q, positive_share=share, class_balanced=options.balanced, validate=False)


def _mae(options: _Options) -> nn.Module:
    if not options.balanced:
        return MAELoss(**options.common)
    loss = BalancedLoss(_absolute_errors, options.shares)
    return loss if options.single_output else OfDifference(loss)


def _dice(options: _Options, *, raw: bool) -> nn.Module:
    return DiceLoss(squared=True, from_probabilities=raw, **options.common)


@dataclass(frozen=True)
class _Kind:
    make: Callable[[_Options], nn.Module]
    binary: bool = False
    raw: bool = False
    batch_size: int | None = None
    weighted: bool = True
    balanced: bool = False


_BUILDERS: dict[str, _Kind] = {
    "bce": _Kind(_cross_entropy, balanced=True),
    "ce": _Kind(_cross_entropy, balanced=True),
    "auroc": _Kind(lambda o: MetricLoss(AUROC(grid=AUROC_THRESHOLDS), **o.binary, **o.step), binary=True),
    "wmw_auroc": _Kind(lambda o: WMWLoss(**WMW, **o.binary), binary=True),  # type: ignore[arg-type]
    "adversarial_f1": _Kind(lambda o: AdversarialF1Loss(validate=False), binary=True, batch_size=20, weighted=False),
    "dice": _Kind(lambda o: _dice(o, raw=True), raw=True),
    "dice_sigmoid": _Kind(lambda o: _dice(o, raw=False)),
    "dice_released": _Kind(lambda o: DicePerSample(raw=True), raw=True, weighted=False),
    "dice_released_sigmoid": _Kind(lambda o: DicePerSample(raw=False), weighted=False),
    "mae": _Kind(_mae, balanced=True),
    "mse": _Kind(lambda o: SquaredError(), binary=True, weighted=False),
    "soft_fbeta": _Kind(lambda o: SoftFBetaLoss(o.beta, **o.binary), binary=True, balanced=True),
    "surrogate_fbeta": _Kind(lambda o: _surrogate(o, None), binary=True, weighted=False, balanced=True),
    "surrogate_fbeta_q": _Kind(lambda o: _surrogate(o, ROBUSTNESS), binary=True, weighted=False, balanced=True),
    **{
        f"anyloss_{metric}": _Kind(lambda o, metric=metric: AnyLoss(metric, **o.binary), binary=True)
        for metric in ("accuracy", "f1", "balanced_accuracy", "gmean")
    },
}
NAMES = (*METRICS, *PREFERENCES, "fbeta_<number>", *_BUILDERS)
"""All methods."""
