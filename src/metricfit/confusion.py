"""The confusion matrix: soft counts, hard counts and whole sweeps of cut-offs; rows are true classes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, Literal, Unpack, get_args

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from metricfit.inputs import InputOptions, Samples, Task, check_task, check_tensor, expect, flatten_inputs, safe_divide
from metricfit.inputs import values_can_be_inspected as can_look
from metricfit.membership import dynamic_membership, threshold_membership
from metricfit.steps import Annealed, Heaviside, Step

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["ConfusionMatrix", "hard_confusion_matrix", "soft_confusion_matrix"]

Absent = Literal["count", "skip"]

Grid = tuple[float, ...] | None
"""Thresholds that a sweep is taken over; None for the decision itself."""

MATRIX_UP_TO = 4096
"""From this many classes on the counts of each class take the place of the matrix, where they are enough."""

WHOLE_ELEMENTS = 2**25
"""Up to this many memberships are counted at once."""

BLOCK_ELEMENTS = 2**22
"""More are counted in blocks of rows of about this size. The backward pass computes each block again: that takes half
as much time again, but the extra memory stays a few times the logits'."""


@dataclass(frozen=True, eq=False)
class ConfusionMatrix:
    """Counts of true (rows) against predicted classes; thresholds and ensemble members may lead.

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
        check_task(self.task)
        expect(self.absent in get_args(Absent), "absent", "'count' or 'skip'", self.absent)
        check_tensor("matrix", self.matrix)
        if not self.matrix.is_floating_point():
            object.__setattr__(self, "matrix", self.matrix.double())
        shape, several = tuple(self.matrix.shape), self.task == "multilabel"
        is_square = len(shape) >= 2 + several and shape[-1] == shape[-2] >= 1
        if not is_square or (self.task != "multiclass" and shape[-1] != 2):
            layout = {"multilabel": "shape (…, labels, 2, 2)", "binary": "shape (…, 2, 2)"}.get(self.task)
            wanted = layout or "a square matrix, shape (…, d, d)"
            raise ValueError(f"matrix: a {self.task} task expects {wanted}, got {shape}.")
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
        return self.matrix[..., 1, 1] if self.task == "multilabel" else self.matrix.diagonal(dim1=-2, dim2=-1)

    @property
    def fp(self) -> Tensor:
        """False positives of each class, shape (…, classes)."""
        return self.matrix[..., 0, 1] if self.task == "multilabel" else (self.matrix * self._others).sum(dim=-2)

    @property
    def fn(self) -> Tensor:
        """False negatives of each class, shape (…, classes)."""
        return self.matrix[..., 1, 0] if self.task == "multilabel" else (self.matrix * self._others).sum(dim=-1)

    @property
    def tn(self) -> Tensor:
        """True negatives of each class, shape (…, classes)."""
        if self.task == "multilabel":
            return self.matrix[..., 0, 0]
        if self.num_classes == 2:
            return self.tp.flip(-1)
        # Of the two ways to count what is neither of class k nor predicted so, the one that subtracts less: a small
        # count must not drown in the rounding of a large one, and exact zeros must stay zero.
        fp, fn = self.fp, self.fn
        support, predicted = ((n[..., None, :] * self._others).sum(dim=-1) for n in (self.support, self.predicted))
        return torch.where(fp < fn, support - fp, predicted - fn).clamp_min(0)

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
        sums = self.matrix.sum(dim=(-1, -2))
        return sums.amax(dim=-1) if self.task == "multilabel" else sums

    @property
    def counts(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The four one-versus-rest counts together: tp, fp, fn and tn."""
        return self.tp, self.fp, self.fn, self.tn

    @property
    def averaged(self) -> Tensor:
        """Which classes take part in averages: all of them, or only those with support."""
        present = ~(self.support <= 0)  # NaN counts as present, so that it reaches the average
        return present if self.absent == "skip" else torch.ones_like(present)

    @property
    def _others(self) -> Tensor:
        return 1 - torch.eye(self.num_classes, dtype=self.matrix.dtype, device=self.matrix.device)

    def class_index(self, label: Hashable) -> int:
        """The position of a class named by its label or, where no label is a number, by its index."""
        names: Sequence[Any] = range(self.num_classes) if self.labels is None else self.labels
        if label in names:
            return names.index(label)
        texts = [str(name) for name in names]
        if str(label) in texts:  # a spec holds text: '1.0' means the class 1.0
            return texts.index(str(label))
        if isinstance(label, int) and 0 <= label < len(names) and all(isinstance(name, str) for name in names):
            return label
        shown = ", ".join(texts[:20]) + (", …" if self.num_classes > 20 else "")
        hint = "" if self.labels is not None else "; to name classes pass labels=[…]"
        raise ValueError(f"class {label!r}: no such class; the classes are {shown}{hint}.")

    @classmethod
    def from_codes(
        cls, true: Tensor | ArrayLike, predicted: Tensor | ArrayLike, classes: int,
        weight: Tensor | ArrayLike | None = None, *, task: Task | None = None,
        labels: tuple[Hashable, ...] | None = None, absent: Absent = "count",
    ) -> ConfusionMatrix:  # fmt: skip
        """Count predicted against true class codes (…, n) from 0 to ``classes`` - 1, exactly, in float64.

        For a multi-label ``task`` they are 0 and 1, (…, n, labels); by default it is binary for two classes, else
        multiclass. ``weight`` is (…, n); leading dimensions broadcast.
        """
        task = task or ("binary" if classes == 2 else "multiclass")
        several = task == "multilabel"
        sides = 2 if several else classes
        first, second = torch.broadcast_tensors(torch.as_tensor(true).long(), torch.as_tensor(predicted).long())
        cells = (first * sides + second).mT if several else first * sides + second
        lead, weights = cells.shape[:-1], None
        if weight is not None:
            weights = torch.as_tensor(weight, device=cells.device).double()
            weights = (weights[..., None, :] if several else weights).expand(cells.shape).reshape(-1)
        rows = torch.arange(lead.numel(), device=cells.device).reshape(*lead, 1)
        flat = (cells + rows * sides**2).reshape(-1)
        counts = torch.bincount(flat, weights, minlength=lead.numel() * sides**2).double()
        return cls(counts.reshape(*lead, sides, sides), task, labels, absent)

    @classmethod
    def from_labels(
        cls, y_true: ArrayLike, y_pred: ArrayLike, *, labels: Sequence[Hashable] | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> ConfusionMatrix:  # fmt: skip
        """The exact confusion matrix of predicted labels; (n,) labels or (n, L) 0/1 indicators.

        Classes are those that occur in either array, in sorted order, unless ``labels`` gives them. Two classes
        make a binary matrix; a lone 0, 1 or -1 is completed to its usual pair.

        >>> ConfusionMatrix.from_labels(["cat", "dog", "dog"], ["cat", "dog", "cat"]).matrix
        tensor([[1., 0.],
                [1., 1.]], dtype=torch.float64)
        """
        from metricfit.labels import codes_of_labels

        true, predicted, weight, names, task = codes_of_labels(y_true, y_pred, labels, sample_weight)
        size = true.shape[1] if task == "multilabel" else len(names or ())
        return cls.from_codes(true, predicted, size, weight, task=task, labels=names)

    @classmethod
    def from_scores(
        cls, y_true: ArrayLike, score: ArrayLike, *, thresholds: Sequence[float] | None = None,
        labels: Sequence[Hashable] | None = None, sample_weight: ArrayLike | None = None,
    ) -> ConfusionMatrix:  # fmt: skip
        """The matrices at *every* distinct cut-off of the scores, from high to low, or at given thresholds.

        Binary: scores (n,) of the second class, or one column for each of the two, of which the second counts.
        Multiclass or multi-label: scores (n, classes), one class against the rest each; the matrices are then of a
        multi-label task, shape (cut-offs, classes, 2, 2), where classes with fewer distinct scores repeat their last
        matrix.

        >>> ConfusionMatrix.from_scores([0, 1, 1], [0.1, 0.4, 0.8], thresholds=[0.5]).matrix
        tensor([[[1., 0.],
                 [1., 1.]]], dtype=torch.float64)
        """
        from metricfit.labels import sweep_of_scores

        counts, task, names = sweep_of_scores(y_true, score, thresholds, labels, sample_weight)
        return cls(torch.from_numpy(counts), task, names)

    def with_matrix(self, matrix: Tensor) -> ConfusionMatrix:
        """The same task, labels and averaging around another tensor."""
        return replace(self, matrix=matrix)

    def __add__(self, other: ConfusionMatrix) -> ConfusionMatrix:
        """Counts of two disjoint sets of samples together."""
        if not isinstance(other, ConfusionMatrix):
            return NotImplemented
        kinds = [(cm.task, cm.num_classes, cm.labels or self.labels or other.labels) for cm in (self, other)]
        if kinds[0] != kinds[1]:
            raise ValueError(f"cannot add matrices of different tasks or classes, {kinds[0]} and {kinds[1]}.")
        return self.with_matrix(self.matrix + other.matrix)


def soft_confusion_matrix(
    input: Tensor, target: Tensor, *, step: Step | None = None, threshold: Tensor | float = 0.5,
    thresholds: Sequence[float] | None = None, sample_weight: Tensor | None = None,
    labels: tuple[Hashable, ...] | None = None, absent: Absent = "count", **options: Unpack[InputOptions],
) -> ConfusionMatrix:  # fmt: skip
    """The differentiable confusion matrix of a batch. Its cells always sum to the weights of the samples.

    Args:
        input: Logits (N, C, …), (N, …) or (N, L, …), as the task says.
        target: Indices (N, …) or probabilities (N, C, …); for binary and multi-label tasks 0/1, input's shape.
        step: The approximation of the Heaviside step, see :mod:`metricfit.steps`; by default ``Annealed()``.
        threshold: Fixed threshold of binary and multi-label tasks; one number, or one per label.
        thresholds: A grid of thresholds instead: the result has a leading dimension, and classes are
            taken one against the rest.
        sample_weight: Sample weights.
        labels: Class names, passed on to the matrix.
        absent: Passed on to the matrix.
        options: task, weight, ignore_index, from_probabilities, validate and members, as in
            :class:`metricfit.MetricLoss`; the matrix keeps the dimension of the members.

    >>> logits = torch.tensor([[9.0, 0.0, 0.0], [0.0, 9.0, 0.0], [0.0, 9.0, 0.0]])
    >>> soft_confusion_matrix(logits, torch.tensor([0, 1, 2])).matrix.round(decimals=1)
    tensor([[1., 0., 0.],
            [0., 1., 0.],
            [0., 1., 0.]])
    """
    samples = _checked_samples(input, target, sample_weight, threshold, thresholds, options)
    matrix = count_samples(samples, step or Annealed(), threshold=threshold, thresholds=thresholds)
    return as_confusion_matrix(matrix, samples.task, thresholds, labels, absent)


def hard_confusion_matrix(
    input: Tensor, target: Tensor, *, threshold: Tensor | float = 0.5, thresholds: Sequence[float] | None = None,
    sample_weight: Tensor | None = None, labels: tuple[Hashable, ...] | None = None, absent: Absent = "count",
    **options: Unpack[InputOptions],
) -> ConfusionMatrix:  # fmt: skip
    """The exact confusion matrix of arg max (multiclass) or ``p >= threshold`` predictions, in float64.

    Arguments as in :func:`soft_confusion_matrix`.

    >>> hard_confusion_matrix(torch.tensor([1.0, -1.0, 2.0]), torch.tensor([1, 0, 0]), task="binary").matrix
    tensor([[1., 1.],
            [0., 1.]], dtype=torch.float64)
    """
    samples = _checked_samples(input, target, sample_weight, threshold, thresholds, options)
    return hard_matrix(samples, threshold=threshold, thresholds=thresholds, labels=labels, absent=absent)


def hard_matrix(
    samples: Samples, *, threshold: Tensor | float = 0.5, thresholds: Sequence[float] | None = None,
    labels: tuple[Hashable, ...] | None = None, absent: Absent = "count",
) -> ConfusionMatrix:  # fmt: skip
    """The exact matrix of samples that are flattened already; arguments as in :func:`soft_confusion_matrix`."""
    scores, task = samples.scores.detach(), samples.task
    target = samples.target.double() if samples.target.is_floating_point() else samples.target
    if task == "multiclass" and thresholds is None:
        predicted, classes = scores.argmax(dim=-1), scores.shape[-1]
        how: Any = {"task": task, "labels": labels, "absent": absent}
        if not target.is_floating_point():
            return ConfusionMatrix.from_codes(target, predicted, classes, samples.weight, **how)
        return ConfusionMatrix(target.mT @ (indicator(predicted, target) * samples.weight.double()[..., None]), **how)
    # Compared in its own dtype, so that a float32 probability of 0.7 reaches a threshold of 0.7; counted in float64.
    p = replace(samples, scores=scores).probabilities
    exact = Samples(p, target, samples.weight.double(), task, from_probabilities=True)
    matrix = count_samples(exact, Heaviside(), threshold=threshold, thresholds=thresholds)
    return as_confusion_matrix(matrix, task, thresholds, labels, absent)


def as_confusion_matrix(
    matrix: Tensor, task: Task, thresholds: Sequence[float] | None, labels: tuple[Hashable, ...] | None, absent: Absent
) -> ConfusionMatrix:
    """Counts of samples as a matrix of the task; a multiclass grid is one class against the rest, as many labels."""
    if task == "binary":
        return ConfusionMatrix(matrix.squeeze(-3), task, labels, absent)
    return ConfusionMatrix(matrix, "multilabel" if thresholds is not None else task, labels, absent)


def _checked_samples(
    input: Tensor, target: Tensor, sample_weight: Tensor | None, threshold: Tensor | float,
    thresholds: Sequence[float] | None, options: InputOptions,
) -> Samples:  # fmt: skip
    """The flattened samples; raise an error for thresholds that do not fit."""
    samples = flatten_inputs(input, target, sample_weight, **options)
    columns, looks = samples.scores.shape[-1], can_look()
    values, grid = torch.as_tensor(threshold), torch.as_tensor([0.5] if thresholds is None else thresholds)
    inside = [not looks or bool(((found >= 0) & (found <= 1)).all()) for found in (values, grid)]
    expect(grid.ndim == 1 and len(grid) > 0 and inside[1], "thresholds", "a list of numbers in [0, 1]", thresholds)
    expect(inside[0], "threshold", "numbers in [0, 1]", threshold)
    fits, shape = values.shape in ((), (columns,)), tuple(values.shape)
    expect(fits, "threshold", f"one number or {columns}, one per label", shape)
    if looks and samples.task == "multiclass" and not bool((values == 0.5).all()):
        raise ValueError("threshold: has no effect with a multiclass task, whose threshold is dynamic.")
    return samples


def count_samples(
    samples: Samples, step: Step, *, threshold: Tensor | float = 0.5, thresholds: Sequence[float] | None = None,
    each_class: bool = False,
) -> Tensor:  # fmt: skip
    """The soft counts (…, d, d) at a dynamic threshold, or (d, 2, 2) of ``each_class``; else ([grid,] …, L, 2, 2)."""

    def count(scores: Tensor, target: Tensor, weight: Tensor) -> Tensor:
        p, several = replace(samples, scores=scores).probabilities, samples.task == "multiclass"
        if several and thresholds is None:
            return (_count_classes if each_class else _add_rows)(dynamic_membership(p, step), target, weight)
        if several:
            target, weight = one_against_rest(target, weight, p)
        grid = threshold
        if thresholds is not None:
            grid = torch.as_tensor(thresholds, dtype=p.dtype, device=p.device).reshape(-1, *(1,) * p.ndim)
        return count_labels(threshold_membership(p, grid, step), target, weight)

    parts = samples.scores, samples.target, samples.weight
    elements = samples.scores.numel() * (1 if thresholds is None else len(thresholds))
    if elements <= WHOLE_ELEMENTS or not can_look():
        return count(*parts)
    along = samples.scores.ndim - 2
    rows = max(1, BLOCK_ELEMENTS * samples.scores.shape[along] // elements)
    blocks = zip(*(part.split(rows, dim=along) for part in parts), strict=True)
    again: Callable[..., Tensor] = count
    if torch.is_grad_enabled() and samples.scores.requires_grad:
        again = partial(checkpoint, count, use_reentrant=False, preserve_rng_state=False)
    return reduce(torch.add, (again(*block) for block in blocks))


def _count_classes(membership: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    hit = membership.gather(1, target[:, None]).squeeze(1)
    nothing = membership.new_zeros(membership.shape[1])
    tp = nothing.index_add(0, target, weight * hit)
    fn = nothing.index_add(0, target, weight * (1 - hit))
    fp = weight @ membership.scatter(1, target[:, None], 0.0)
    tn = (weight.sum() - tp - fn - fp).clamp_min(0)
    return _two_by_two(tn, fp, fn, tp)


def _add_rows(membership: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    weighted = membership * weight[..., None]
    if target.is_floating_point():
        return target.mT @ weighted
    *lead, _, classes = membership.shape
    if lead:  # the matrices of all members stand below one another
        target = target + classes * torch.arange(lead[0], device=target.device)[:, None]
    rows = membership.new_zeros(*lead, classes, classes).flatten(0, -2)
    return rows.index_add(0, target.flatten(), weighted.flatten(0, -2)).reshape(*lead, classes, classes)


def indicator(target: Tensor, like: Tensor) -> Tensor:
    """1 at the target's class, else 0, in the shape (…, n, d) and dtype of ``like``."""
    return (target[..., None] == torch.arange(like.shape[-1], device=like.device)).to(like.dtype)


def one_against_rest(target: Tensor, weight: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
    """Share of positive and weight, both (…, n, d), of every class against the rest."""
    if not target.is_floating_point():
        return indicator(target, p), weight[..., None].expand_as(p)
    mass = target.sum(dim=-1, keepdim=True)  # not 1 where class weights scaled a row of probabilities
    return safe_divide(target, mass.expand_as(target)), (weight[..., None] * mass).expand_as(p)


def count_labels(membership: Tensor, positive: Tensor, weight: Tensor) -> Tensor:
    """(…, L, 2, 2) counts of soft predictions (…, n, L) against the share of positive."""
    positives, negatives, rejected = positive * weight, (1 - positive) * weight, 1 - membership
    parts = ((rejected, negatives), (membership, negatives), (rejected, positives), (membership, positives))
    return _two_by_two(*((said * true).sum(dim=-2) for said, true in parts))


def _two_by_two(tn: Tensor, fp: Tensor, fn: Tensor, tp: Tensor) -> Tensor:
    return torch.stack([torch.stack([tn, fp], dim=-1), torch.stack([fn, tp], dim=-1)], dim=-2)
