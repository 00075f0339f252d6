"""The confusion matrix: one value object for soft counts, hard counts and whole sweeps of cut-offs.

Rows are true classes, columns predicted ones. Leading batch dimensions hold a grid of thresholds.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from metricfit._counting import count_hard, count_samples, probabilities
from metricfit.inputs import Samples, Task, check_task, flatten_inputs, values_can_be_inspected
from metricfit.steps import Step, annealed_linear_step, heaviside

__all__ = ["ConfusionMatrix", "Counts", "hard_confusion_matrix", "soft_confusion_matrix"]

Absent = Literal["count", "skip"]


class Counts(NamedTuple):
    """One-versus-rest counts, each of shape (…, classes)."""

    tp: Tensor
    fp: Tensor
    fn: Tensor
    tn: Tensor

    def summed(self) -> Counts:
        """The counts added over all classes, for micro averages."""
        return Counts(*(count.sum(dim=-1) for count in self))

    def of_class(self, index: int) -> Counts:
        """The counts of one class."""
        return Counts(*(count[..., index] for count in self))

    def scaled(self) -> Counts:
        """The counts divided by their total, so that products of four of them neither over- nor underflow."""
        total = (self.tp + self.fp + self.fn + self.tn).detach()
        total = torch.where(total > 0, total, torch.ones_like(total))
        return Counts(*(count / total for count in self))


@dataclass(frozen=True, eq=False)
class ConfusionMatrix:
    """Counts of true against predicted classes, soft or hard.

    Attributes:
        matrix: Shape (…, d, d) for binary (d = 2) and multiclass, (…, L, 2, 2) for multi-label tasks; integer
            counts become float64.
        task: "binary", "multiclass" or "multilabel"; decides what a bare ``f1`` means.
        labels: Names of the classes in order, where they are known.
        absent: Whether class averages "count" classes without support or "skip" them.

    >>> cm = ConfusionMatrix(torch.tensor([[5.0, 1.0], [2.0, 4.0]]), task="binary")
    >>> cm.tp, cm.fp, cm.fn, cm.tn
    (tensor([5., 4.]), tensor([2., 1.]), tensor([1., 2.]), tensor([4., 5.]))
    >>> cm.support, cm.predicted
    (tensor([6., 6.]), tensor([7., 5.]))
    """

    matrix: Tensor
    task: Task = "multiclass"
    labels: tuple[Hashable, ...] | None = None
    absent: Absent = "count"

    def __post_init__(self) -> None:
        """Check the shape against the task."""
        check_task(self.task)
        if self.absent not in get_args(Absent):
            raise ValueError(f"absent: expected 'count' or 'skip', got {self.absent!r}.")
        if not isinstance(self.matrix, Tensor):
            kind = type(self.matrix).__name__
            raise TypeError(f"matrix: expected a torch.Tensor, got {kind}; convert it with torch.as_tensor.")
        if not self.matrix.is_floating_point():
            object.__setattr__(self, "matrix", self.matrix.double())
        shape = tuple(self.matrix.shape)
        if self.task == "multilabel":
            if len(shape) < 3 or shape[-2:] != (2, 2):
                raise ValueError(f"matrix: a multilabel task expects shape (…, labels, 2, 2), got {shape}.")
        elif len(shape) < 2 or shape[-1] != shape[-2] or shape[-1] < 1:
            raise ValueError(f"matrix: expected a square matrix of shape (…, d, d), got {shape}.")
        elif self.task == "binary" and shape[-1] != 2:
            raise ValueError(f"matrix: a binary task expects shape (…, 2, 2), got {shape}.")
        if self.labels is not None and len(self.labels) != self.num_classes:
            raise ValueError(f"labels: expected {self.num_classes} of them, got {len(self.labels)}: {self.labels}.")

    @property
    def num_classes(self) -> int:
        """The number of classes, or of labels in a multi-label task."""
        return self.matrix.shape[-3] if self.task == "multilabel" else self.matrix.shape[-1]

    @property
    def batch_shape(self) -> torch.Size:
        """The leading dimensions: empty for one matrix, (grid,) for a sweep."""
        return self.matrix.shape[:-3] if self.task == "multilabel" else self.matrix.shape[:-2]

    @property
    def tp(self) -> Tensor:
        """True positives of each class, shape (…, classes)."""
        return self.matrix[..., 1, 1] if self.task == "multilabel" else self._diagonal

    @property
    def fp(self) -> Tensor:
        """False positives of each class, shape (…, classes)."""
        return self.matrix[..., 0, 1] if self.task == "multilabel" else self._off_diagonal.sum(dim=-2)

    @property
    def fn(self) -> Tensor:
        """False negatives of each class, shape (…, classes)."""
        return self.matrix[..., 1, 0] if self.task == "multilabel" else self._off_diagonal.sum(dim=-1)

    @property
    def tn(self) -> Tensor:
        """True negatives of each class, shape (…, classes)."""
        if self.task == "multilabel":
            return self.matrix[..., 0, 0]
        if self.num_classes == 2:
            return self._diagonal.flip(-1)
        # Of the two ways to count what is neither of class k nor predicted so, the one that subtracts less: a small
        # count must not drown in the rounding of a large one, and exact zeros must stay zero.
        fp, fn = self.fp, self.fn
        tn = torch.where(fp < fn, self._of_others(self.support) - fp, self._of_others(self.predicted) - fn)
        return tn.clamp_min(0)

    @property
    def support(self) -> Tensor:
        """Weight of the samples that belong to each class, shape (…, classes)."""
        return self.tp + self.fn

    @property
    def predicted(self) -> Tensor:
        """Weight of the samples that are predicted to belong to each class, shape (…, classes)."""
        return self.tp + self.fp

    @property
    def total(self) -> Tensor:
        """Weight of all samples, shape (…): of one label's in a multi-label task."""
        if self.task == "multilabel":
            return self.matrix.sum(dim=(-1, -2)).amax(dim=-1)
        return self.matrix.sum(dim=(-1, -2))

    @property
    def counts(self) -> Counts:
        """The four one-versus-rest counts together."""
        return Counts(self.tp, self.fp, self.fn, self.tn)

    @property
    def averaged(self) -> Tensor:
        """Which classes take part in averages: all of them, or only those with support."""
        present = ~(self.support <= 0)  # NaN counts as present, so that it reaches the average
        return present if self.absent == "skip" else torch.ones_like(present)

    @property
    def _diagonal(self) -> Tensor:
        return self.matrix.diagonal(dim1=-2, dim2=-1)

    def _of_others(self, count: Tensor) -> Tensor:
        """For each class the sum of a count over all the other classes."""
        others = 1 - torch.eye(self.num_classes, dtype=count.dtype, device=count.device)
        return (count[..., None, :] * others).sum(dim=-1)

    @property
    def _off_diagonal(self) -> Tensor:
        return self.matrix * (1 - torch.eye(self.num_classes, dtype=self.matrix.dtype, device=self.matrix.device))

    def class_index(self, label: Hashable) -> int:
        """The position of a class named by its label or, where no label is a number, by its index.

        >>> cm = ConfusionMatrix(torch.eye(2), labels=("ok", "fraud"))
        >>> cm.class_index("fraud"), cm.class_index(0)
        (1, 0)
        """
        names: Sequence[Any] = range(self.num_classes) if self.labels is None else self.labels
        if label in names:
            return names.index(label)
        # A spec holds text: '1.0' means the class 1.0.
        for index, name in enumerate(names):
            if str(name) == str(label):
                return index
        if isinstance(label, int) and 0 <= label < len(names) and all(isinstance(name, str) for name in names):
            return label
        shown = ", ".join(str(name) for name in names[:20]) + (", …" if self.num_classes > 20 else "")
        hint = "" if self.labels is not None else "; to name classes pass labels=[…]"
        raise ValueError(f"class {label!r}: no such class; the classes are {shown}{hint}.")

    def with_matrix(self, matrix: Tensor) -> ConfusionMatrix:
        """The same task, labels and averaging around another tensor."""
        return replace(self, matrix=matrix)

    def detach(self) -> ConfusionMatrix:
        """The same counts without their history."""
        return self.with_matrix(self.matrix.detach())

    def __add__(self, other: ConfusionMatrix) -> ConfusionMatrix:
        """Counts of two disjoint sets of samples together."""
        if not isinstance(other, ConfusionMatrix):
            return NotImplemented
        if (other.task, other.num_classes) != (self.task, self.num_classes):
            raise ValueError(
                f"cannot add a {other.task} matrix of {other.num_classes} classes to a {self.task} matrix of "
                f"{self.num_classes}."
            )
        if None not in (self.labels, other.labels) and self.labels != other.labels:
            raise ValueError(f"cannot add matrices of different classes, {self.labels} and {other.labels}.")
        return self.with_matrix(self.matrix + other.matrix)


def soft_confusion_matrix(
    input: Tensor,
    target: Tensor,
    *,
    task: Task = "multiclass",
    step: Step = annealed_linear_step,
    threshold: Tensor | float = 0.5,
    thresholds: Sequence[float] | None = None,
    weight: Tensor | None = None,
    sample_weight: Tensor | None = None,
    ignore_index: int = -100,
    from_probabilities: bool = False,
    detach_threshold: bool = False,
    labels: tuple[Hashable, ...] | None = None,
    absent: Absent = "count",
    validate: bool = True,
) -> ConfusionMatrix:
    """The differentiable confusion matrix of a batch. Its cells always sum to the weights of the samples.

    Args:
        input: Logits (N, C, …), (N, …) or (N, L, …), as the task says.
        target: Indices (N, …) or probabilities (N, C, …); for binary and multi-label tasks 0/1, input's shape.
        task: "multiclass", "binary" or "multilabel".
        step: The approximation of the Heaviside step, see :mod:`metricfit.steps`.
        threshold: Fixed threshold of binary and multi-label tasks; a number or one a label.
        thresholds: A grid of thresholds instead: the result has a leading dimension, and classes are
            taken one against the rest.
        weight: Class weights.
        sample_weight: Sample weights.
        ignore_index: Target value of positions that do not count.
        from_probabilities: Whether input holds probabilities.
        detach_threshold: Stop the gradient through the dynamic threshold.
        labels: Class names, passed on to the matrix.
        absent: Passed on to the matrix.
        validate: Look at the values too, not only at the shapes.

    >>> logits = torch.tensor([[9.0, 0.0, 0.0], [0.0, 9.0, 0.0], [0.0, 9.0, 0.0]])
    >>> soft_confusion_matrix(logits, torch.tensor([0, 1, 2])).matrix.round(decimals=1)
    tensor([[1., 0., 0.],
            [0., 1., 0.],
            [0., 1., 0.]])
    """
    check_task(task)
    samples = flatten_inputs(
        input, target, task=task, weight=weight, sample_weight=sample_weight, ignore_index=ignore_index,
        from_probabilities=from_probabilities, validate=validate,
    )  # fmt: skip
    _check_thresholds(task, threshold, thresholds, samples.scores.shape[-1])
    if detach_threshold and (task != "multiclass" or thresholds is not None):
        raise ValueError("detach_threshold: has no effect, only the dynamic threshold of a multiclass task moves.")
    matrix = count_samples(
        samples, task, step, threshold=threshold, thresholds=thresholds, detach_threshold=detach_threshold,
        from_probabilities=from_probabilities,
    )  # fmt: skip
    return as_confusion_matrix(matrix, task, thresholds, labels, absent)


def hard_confusion_matrix(
    input: Tensor,
    target: Tensor,
    *,
    task: Task = "multiclass",
    threshold: Tensor | float = 0.5,
    thresholds: Sequence[float] | None = None,
    weight: Tensor | None = None,
    sample_weight: Tensor | None = None,
    ignore_index: int = -100,
    from_probabilities: bool = False,
    labels: tuple[Hashable, ...] | None = None,
    absent: Absent = "count",
    validate: bool = True,
) -> ConfusionMatrix:
    """The exact confusion matrix of arg max (multiclass) or ``p >= threshold`` predictions, in float64.

    Arguments as in :func:`soft_confusion_matrix`.

    >>> hard_confusion_matrix(torch.tensor([1.0, -1.0, 2.0]), torch.tensor([1, 0, 0]), task="binary").matrix
    tensor([[1., 1.],
            [0., 1.]], dtype=torch.float64)
    """
    check_task(task)
    samples = flatten_inputs(
        input, target, task=task, weight=weight, sample_weight=sample_weight, ignore_index=ignore_index,
        from_probabilities=from_probabilities, validate=validate,
    )  # fmt: skip
    samples = replace(samples, scores=samples.scores.detach())
    _check_thresholds(task, threshold, thresholds, samples.scores.shape[-1])
    if task == "multiclass" and thresholds is None:
        return ConfusionMatrix(count_hard(samples), task, labels, absent)
    # Compared in its own dtype, so that a float32 probability of 0.7 reaches a threshold of 0.7; counted in float64.
    p = probabilities(samples.scores, task, from_probabilities)
    target = samples.target.double() if samples.target.is_floating_point() else samples.target
    exact = Samples(p, target, samples.weight.double(), samples.ignored)
    matrix = count_samples(exact, task, heaviside, threshold=threshold, thresholds=thresholds, from_probabilities=True)
    return as_confusion_matrix(matrix, task, thresholds, labels, absent)


def as_confusion_matrix(
    matrix: Tensor,
    task: Task,
    thresholds: Sequence[float] | None,
    labels: tuple[Hashable, ...] | None,
    absent: Absent,
) -> ConfusionMatrix:
    """Counts of samples as a matrix of the task; a multiclass grid is one class against the rest, as many labels."""
    if task == "binary":
        return ConfusionMatrix(matrix.squeeze(-3), task, labels, absent)
    return ConfusionMatrix(matrix, "multilabel" if thresholds is not None else task, labels, absent)


def _check_thresholds(task: Task, threshold: Tensor | float, thresholds: Sequence[float] | None, columns: int) -> None:
    values, grid = torch.as_tensor(threshold), torch.as_tensor([0.5] if thresholds is None else thresholds)
    if grid.ndim != 1 or not len(grid):
        raise ValueError(f"thresholds: expected a list of numbers in [0, 1], got {thresholds}.")
    if values.ndim > 1 or (values.ndim == 1 and len(values) != columns):
        shape = tuple(values.shape)
        raise ValueError(f"threshold: expected a number or {columns} of them, one a label, got shape {shape}.")
    if not values_can_be_inspected():
        return
    if not bool(((grid >= 0) & (grid <= 1)).all()):
        raise ValueError(f"thresholds: expected a list of numbers in [0, 1], got {thresholds}.")
    if not bool(((values >= 0) & (values <= 1)).all()):
        raise ValueError(f"threshold: expected numbers in [0, 1], got {threshold}.")
    if task == "multiclass" and not bool((values == 0.5).all()):
        raise ValueError("threshold: has no effect with a multiclass task, whose threshold is dynamic.")
