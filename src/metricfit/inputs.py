"""Validate and flatten what a loss is given: (N, C, d1, d2, …) inputs become rows of samples."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Literal, get_args

import torch
from torch import Tensor

__all__ = [
    "Samples", "Task", "accumulation_dtype", "check_ignore_index", "check_task", "flatten_inputs", "safe_divide",
    "values_can_be_inspected",
]  # fmt: skip

Task = Literal["multiclass", "binary", "multilabel"]
"""One of several classes, one of two, or any of several labels."""


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which counts are summed: float64 stays, everything else becomes float32.

    >>> accumulation_dtype(torch.float16)
    torch.float32
    """
    return torch.float64 if dtype == torch.float64 else torch.float32


def safe_divide(numerator: Tensor, denominator: Tensor, undefined: float = 0.0) -> Tensor:
    """``numerator / denominator``, and ``undefined`` (with a zero gradient) where the denominator vanishes.

    A single ``torch.where`` would give the right value and a NaN gradient at 0/0; the denominator is
    therefore replaced *before* the division as well.

    >>> safe_divide(torch.tensor([1.0, 0.0]), torch.tensor([4.0, 0.0]), undefined=1.0)
    tensor([0.2500, 1.0000])
    """
    vanishes = denominator.abs() <= torch.finfo(denominator.dtype).tiny
    ratio = numerator / torch.where(vanishes, torch.ones_like(denominator), denominator)
    return torch.where(vanishes, torch.full_like(ratio, undefined), ratio)


def check_task(task: str) -> None:
    """Raise unless ``task`` is one of the three that exist."""
    if task not in get_args(Task):
        raise ValueError(f"task: expected 'multiclass', 'binary' or 'multilabel', got {task!r}.")


def check_ignore_index(ignore_index: int) -> None:
    """Raise unless ``ignore_index`` is a whole number."""
    if not isinstance(ignore_index, Integral):
        raise TypeError(
            f"ignore_index: expected a whole number, got {ignore_index!r}; to ignore nothing leave it at -100."
        )


@dataclass(frozen=True)
class Samples:
    """Flattened samples, ready for the next room; with ensemble members their dimension leads everywhere.

    Attributes:
        scores: Logits (or probabilities), shape (…, n, d); d = 1 for a binary task.
        target: Multiclass: class indices (…, n) or class probabilities (…, n, d). Binary and multi-label:
            the share of positive, shape (…, n, d).
        weight: Weight of each sample, shape (…, n), or of each label decision, shape (…, n, d).
        ignored: Whether positions were (or may have been) ignored; their scores are 0 and weights 0.
    """

    scores: Tensor
    target: Tensor
    weight: Tensor
    ignored: bool

    @property
    def total(self) -> Tensor:
        """The sum of the weights, shape (…)."""
        dimensions = self.scores.ndim - 2
        return self.weight.flatten(dimensions).sum(dim=-1)


def values_can_be_inspected() -> bool:
    """False while a compiler traces or a function transform runs: there a check on values cannot branch."""
    return not torch.compiler.is_compiling() and not torch._C._are_functorch_transforms_active()


def flatten_inputs(
    input: Tensor,
    target: Tensor,
    *,
    task: Task,
    weight: Tensor | None = None,
    sample_weight: Tensor | None = None,
    ignore_index: int = -100,
    from_probabilities: bool = False,
    validate: bool = True,
    allow_empty: bool = False,
    members: int | None = None,
) -> Samples:
    """Check shapes, dtypes and values, then flatten; ignored positions are removed by selection.

    Args:
        input: Logits: (N, C, …) multiclass, (N, …) binary, (N, L, …) multi-label; with members (M, N, …).
        target: See :class:`metricfit.MetricLoss`.
        task: One of the three tasks.
        weight: Class weights, shape (C,), (2,) for a binary task, (L,) for a multi-label one.
        sample_weight: Shape (N,) or one weight per position; with members (M, N) or (M, N, …).
        ignore_index: Target value of positions that do not count.
        from_probabilities: Whether ``input`` holds probabilities instead of logits.
        validate: Whether to look at the values (NaN, labels out of range); shapes are always checked.
        allow_empty: Whether a batch may have no samples, because other processes have some.
        members: How many ensemble members lead every shape; None for no such dimension.
    """
    if not isinstance(input, Tensor) or not isinstance(target, Tensor):
        wrong = "input" if not isinstance(input, Tensor) else "target"
        kind = type(input if wrong == "input" else target).__name__
        raise TypeError(f"{wrong}: expected a torch.Tensor, got {kind}; convert it with torch.as_tensor.")
    if not input.is_floating_point():
        raise TypeError(f"input: expected floating-point logits, got {input.dtype}; call .float() first.")
    check_ignore_index(ignore_index)
    inspected = values_can_be_inspected()
    validate = validate and inspected
    looks = validate or (inspected and input.is_cpu)  # elsewhere a look waits for the device
    lead = 0 if members is None else 1
    _check_input_shape(input, task, allow_empty, members)
    dtype = accumulation_dtype(input.dtype)
    if task == "multiclass":
        samples = _multiclass(input, target, sample_weight, ignore_index, looks, dtype, lead)
    else:
        samples = _labels(input, target, sample_weight, ignore_index, looks, dtype, task, lead)
    if validate:
        slack = max(1e-3, *(torch.finfo(t.dtype).eps for t in (input, target) if t.is_floating_point()))
        _check_values(samples, task, from_probabilities, slack)
    if weight is None:
        return samples
    size = 2 if task == "binary" else input.shape[lead + 1]
    weight = _checked_class_weight(weight, size, task, validate, samples.scores)
    return _weigh_classes(samples, weight) if task == "multiclass" else _weigh_labels(samples, weight, task)


def _check_input_shape(input: Tensor, task: Task, allow_empty: bool, members: int | None) -> None:
    lead = 0 if members is None else 1
    layout = {"multiclass": "N, C, …", "binary": "N, …", "multilabel": "N, L, …"}[task]
    shape = tuple(input.shape)
    if input.ndim < lead + (1 if task == "binary" else 2) or (members is not None and shape[0] != members):
        wanted = f"({layout})" if members is None else f"({members}, {layout}) for {members} members"
        raise ValueError(f"input: a {task} task expects shape {wanted}, got {shape}.")
    if input.numel() == 0 and not allow_empty:
        raise ValueError(f"input: the batch is empty, shape {shape}; skip batches without samples.")
    if task == "multiclass" and shape[lead + 1] < 2:
        raise ValueError(
            f"input: a multiclass task needs at least 2 classes in dimension {lead + 1}, got shape {shape}; "
            "for one logit per sample use task='binary'."
        )


def _rows(tensor: Tensor, lead: int) -> Tensor:
    """(…, N, C, …) to (…, N·…, C)."""
    return tensor.movedim(lead + 1, -1).flatten(lead, -2)


def _multiclass(
    input: Tensor,
    target: Tensor,
    sample_weight: Tensor | None,
    ignore_index: int,
    looks: bool,
    dtype: torch.dtype,
    lead: int,
) -> Samples:
    positions = input.shape[: lead + 1] + input.shape[lead + 2 :]
    scores = _rows(input, lead).to(dtype)
    if target.shape == input.shape and target.is_floating_point():
        labels = _rows(target, lead).to(dtype)
        keep = ~(labels == ignore_index).all(dim=-1)
    elif target.shape == positions and not target.is_floating_point() and target.dtype != torch.bool:
        labels = target.flatten(lead).long()
        keep = labels != ignore_index
    else:
        raise _target_error(input, target, positions)
    weight = _flat_weight(sample_weight, positions, scores, lead)
    ignored = not looks or not bool(keep.all())
    if ignored:
        rows = keep[..., None]
        scores = torch.where(rows, scores, torch.zeros_like(scores))
        labels = torch.where(rows if labels.is_floating_point() else keep, labels, torch.zeros_like(labels))
        weight = torch.where(keep, weight, torch.zeros_like(weight))
    return Samples(scores, labels, weight, ignored)


def _target_error(input: Tensor, target: Tensor, positions: torch.Size) -> Exception:
    if target.shape == positions:
        return TypeError(
            f"target: expected integer class indices of shape {tuple(positions)}, got {target.dtype}; "
            "call .long(), or use task='binary' for 0/1 floats."
        )
    if target.shape == input.shape:
        return TypeError(
            f"target: one value per class (shape {tuple(target.shape)}) must be floating-point class probabilities, "
            f"got {target.dtype}; call .float(), or .argmax(1) for class indices."
        )
    return ValueError(
        f"target: for input of shape {tuple(input.shape)} expected class indices of shape {tuple(positions)} or "
        f"class probabilities of shape {tuple(input.shape)}, got {tuple(target.shape)}."
    )


def _labels(
    input: Tensor,
    target: Tensor,
    sample_weight: Tensor | None,
    ignore_index: int,
    looks: bool,
    dtype: torch.dtype,
    task: Task,
    lead: int,
) -> Samples:
    if target.shape != input.shape:
        raise ValueError(
            f"target: a {task} task expects the shape of input, {tuple(input.shape)}, got {tuple(target.shape)}."
        )
    several = task == "multilabel"
    scores, labels = (
        (_rows(values, lead) if several else values.flatten(lead).unsqueeze(-1)).to(dtype) for values in (input, target)
    )
    positions = input.shape[: lead + 1] + input.shape[lead + 2 :] if several else input.shape
    if isinstance(sample_weight, Tensor) and several and sample_weight.shape == input.shape:
        weight = _rows(_checked_weight(sample_weight, scores), lead)
    else:
        weight = _flat_weight(sample_weight, positions, scores, lead)[..., None].expand_as(scores)
    keep = labels != ignore_index
    ignored = not looks or not bool(keep.all())
    if ignored:
        scores = torch.where(keep, scores, torch.zeros_like(scores))
        labels = torch.where(keep, labels, torch.zeros_like(labels))
        weight = torch.where(keep, weight, torch.zeros_like(weight))
    return Samples(scores, labels, weight, ignored)


def _checked_weight(sample_weight: Tensor, like: Tensor) -> Tensor:
    if not isinstance(sample_weight, Tensor):
        raise TypeError(f"sample_weight: expected a torch.Tensor, got {type(sample_weight).__name__}.")
    return sample_weight.to(device=like.device, dtype=like.dtype)


def _flat_weight(sample_weight: Tensor | None, positions: torch.Size, like: Tensor, lead: int) -> Tensor:
    if sample_weight is None:
        return like.new_ones(like.shape[:-1])
    weight = _checked_weight(sample_weight, like)
    samples = positions[: lead + 1]
    if weight.shape == samples:
        weight = weight.reshape(weight.shape + (1,) * (len(positions) - len(samples))).expand(positions)
    elif weight.shape != positions:
        raise ValueError(
            f"sample_weight: expected shape {tuple(samples)} or {tuple(positions)}, got {tuple(weight.shape)}."
        )
    return weight.flatten(lead)


def _checked_class_weight(weight: Tensor, size: int, task: Task, validate: bool, like: Tensor) -> Tensor:
    meaning = {"multiclass": "one per class", "binary": "negative then positive", "multilabel": "one per label"}[task]
    if not isinstance(weight, Tensor):
        raise TypeError(f"weight: expected a torch.Tensor of {size} weights, {meaning}, got {type(weight).__name__}.")
    if weight.shape != (size,):
        raise ValueError(f"weight: expected shape ({size},), {meaning}, got {tuple(weight.shape)}.")
    if validate and not bool((weight.isfinite() & (weight >= 0)).all()):
        raise ValueError("weight: expected finite weights >= 0, got negative or non-finite ones.")
    return weight.to(device=like.device, dtype=like.dtype)


def _weigh_classes(samples: Samples, weight: Tensor) -> Samples:
    if samples.target.is_floating_point():
        return Samples(samples.scores, samples.target * weight, samples.weight, samples.ignored)
    return Samples(samples.scores, samples.target, samples.weight * weight[samples.target], samples.ignored)


def _weigh_labels(samples: Samples, weight: Tensor, task: Task) -> Samples:
    if task == "multilabel":
        return Samples(samples.scores, samples.target, samples.weight * weight, samples.ignored)
    # The positive share counts weight[1] and the rest weight[0], also where the target lies between 0 and 1.
    positive, negative = weight[1] * samples.target, weight[0] * (1 - samples.target)
    both = positive + negative
    return Samples(samples.scores, safe_divide(positive, both), samples.weight * both, samples.ignored)


def _check_values(samples: Samples, task: Task, from_probabilities: bool, slack: float) -> None:
    scores, target, weight = samples.scores.detach(), samples.target, samples.weight.detach()
    if bool((weight < 0).any()) or not bool(weight.isfinite().all()):
        raise ValueError("sample_weight: expected finite weights >= 0, got negative or non-finite ones.")
    _check_scores(scores, "probabilities" if from_probabilities else "logits", task)
    if from_probabilities:
        _check_probabilities("input", scores, weight, task, slack)
    if target.is_floating_point():
        if bool(target.isnan().any()):
            raise ValueError("target: got NaN; mark positions that do not count with ignore_index.")
        _check_probabilities("target", target, weight, task, slack)
        return
    classes = scores.shape[-1]
    outside = (target < 0) | (target >= classes)
    if bool(outside.any()):
        raise ValueError(
            f"target: expected class indices from 0 to {classes - 1} (or ignore_index), got {int(target[outside][0])}."
        )


def _check_scores(scores: Tensor, name: str, task: Task) -> None:
    # A row's softmax is NaN as well where its largest entry is infinite; -inf alone just rules a class out.
    highest = scores.amax(dim=-1)
    bad = highest.isnan() if task != "multiclass" else ~highest.isfinite()
    if bool(bad.any()):
        kind = "NaN" if bool(highest.isnan().any()) else "infinite"
        raise ValueError(
            f"input: {kind} {name} in {int(bad.sum())} of {bad.numel()} samples; the network has diverged or its "
            "input has gaps. Pass validate=False to let NaN propagate."
        )


def _check_probabilities(name: str, p: Tensor, weight: Tensor, task: Task, slack: float) -> None:
    outside = (p < 0) | (p > 1 + (slack if task == "multiclass" else 0))
    if bool(outside.any()):
        hint = "pass logits or apply softmax" if name == "input" else "or ignore_index"
        raise ValueError(f"{name}: expected probabilities in [0, 1], got {p[outside][0].item():g}; {hint}.")
    if task == "multiclass":
        sums = p.sum(dim=-1)
        off = ((sums - 1).abs() > slack) & ((sums != 0) | (weight != 0))  # ignored rows are zero
        if bool(off.any()):
            raise ValueError(f"{name}: rows of probabilities must sum to 1, got a sum of {sums[off][0].item():g}.")
