"""Validate and flatten what a loss is given: (N, C, d1, d2, …) inputs become rows of samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from metricfit._numerics import accumulation_dtype

__all__ = ["Samples", "Task", "check_task", "flatten_inputs", "values_can_be_inspected"]

Task = Literal["multiclass", "binary", "multilabel"]


def check_task(task: str) -> None:
    """Raise unless ``task`` is one of the three that exist."""
    if task not in get_args(Task):
        raise ValueError(f"task: expected 'multiclass', 'binary' or 'multilabel', got {task!r}.")


@dataclass(frozen=True)
class Samples:
    """Flattened samples, ready for the next room.

    Attributes:
        scores: Logits (or probabilities), shape (n, d); d = 1 for a binary task.
        target: Multiclass: class indices (n,) or class probabilities (n, d). Binary and multi-label:
            the share of positive, shape (n, d).
        weight: Weight of each sample, shape (n,), or of each label decision, shape (n, d).
        ignored: Whether positions were (or may have been) ignored; their scores are 0 and weights 0.
    """

    scores: Tensor
    target: Tensor
    weight: Tensor
    ignored: bool


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
) -> Samples:
    """Check shapes, dtypes and values, then flatten; ignored positions are removed by selection.

    Args:
        input: Logits: (N, C, …) multiclass, (N, …) binary, (N, L, …) multi-label.
        target: See :class:`metricfit.MetricLoss`.
        task: One of the three tasks.
        weight: Class weights, shape (C,), (2,) for a binary task, (L,) for a multi-label one.
        sample_weight: Shape (N,) or one weight a position.
        ignore_index: Target value of positions that do not count.
        from_probabilities: Whether ``input`` holds probabilities instead of logits.
        validate: Whether to look at the values (NaN, labels out of range); shapes are always checked.
    """
    if not isinstance(input, Tensor) or not isinstance(target, Tensor):
        wrong = "input" if not isinstance(input, Tensor) else "target"
        kind = type(input if wrong == "input" else target).__name__
        raise TypeError(f"{wrong}: expected a torch.Tensor, got {kind}; convert it with torch.as_tensor.")
    if not input.is_floating_point():
        raise TypeError(f"input: expected floating-point logits, got {input.dtype}; call .float() first.")
    validate = validate and values_can_be_inspected()
    classes = _check_input_shape(input, task)
    dtype = accumulation_dtype(input.dtype)
    if task == "multiclass":
        samples = _multiclass(input, target, sample_weight, ignore_index, validate, dtype)
        samples = _weigh_classes(samples, weight, classes)
    else:
        samples = _labels(input, target, sample_weight, ignore_index, validate, dtype, task)
        samples = _weigh_labels(samples, weight, task)
    if validate:
        _check_values(samples, task, from_probabilities)
    return samples


def _check_input_shape(input: Tensor, task: Task) -> int:
    smallest = 1 if task == "binary" else 2
    layout = {"multiclass": "(N, C, …)", "binary": "(N, …)", "multilabel": "(N, L, …)"}[task]
    if input.ndim < smallest:
        raise ValueError(f"input: a {task} task expects shape {layout}, got {tuple(input.shape)}.")
    if input.numel() == 0:
        raise ValueError(f"input: the batch is empty, shape {tuple(input.shape)}; skip batches without samples.")
    classes = 2 if task == "binary" else input.shape[1]
    if task == "multiclass" and classes < 2:
        raise ValueError(
            f"input: a multiclass task needs at least 2 classes in dimension 1, got shape {tuple(input.shape)}; "
            "for one logit a sample use task='binary'."
        )
    return classes


def _rows(tensor: Tensor) -> Tensor:
    """(N, C, …) to (N·…, C)."""
    return tensor.movedim(1, -1).reshape(-1, tensor.shape[1])


def _multiclass(
    input: Tensor,
    target: Tensor,
    sample_weight: Tensor | None,
    ignore_index: int,
    validate: bool,
    dtype: torch.dtype,
) -> Samples:
    positions = input.shape[:1] + input.shape[2:]
    scores = _rows(input).to(dtype)
    if target.shape == input.shape and target.is_floating_point():
        labels = _rows(target).to(dtype)
        keep = ~(labels == ignore_index).all(dim=-1)
    elif target.shape == positions and not target.is_floating_point() and target.dtype != torch.bool:
        labels = target.reshape(-1).long()
        keep = labels != ignore_index
    else:
        raise _target_error(input, target, positions)
    weight = _flat_weight(sample_weight, positions, scores)
    ignored = not validate or not bool(keep.all())
    if ignored:
        rows = keep[:, None]
        scores = torch.where(rows, scores, torch.zeros_like(scores))
        labels = torch.where(keep if labels.ndim == 1 else rows, labels, torch.zeros_like(labels))
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
            f"target: one value a class (shape {tuple(target.shape)}) must be floating-point class probabilities, "
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
    validate: bool,
    dtype: torch.dtype,
    task: Task,
) -> Samples:
    if target.shape != input.shape:
        raise ValueError(
            f"target: a {task} task expects the shape of input, {tuple(input.shape)}, got {tuple(target.shape)}."
        )
    scores = _rows(input) if task == "multilabel" else input.reshape(-1, 1)
    labels = _rows(target) if task == "multilabel" else target.reshape(-1, 1)
    scores, labels = scores.to(dtype), labels.to(dtype)
    positions = input.shape[:1] + input.shape[2:] if task == "multilabel" else input.shape
    if sample_weight is not None and task == "multilabel" and sample_weight.shape == input.shape:
        weight = _checked_weight(sample_weight, scores)
        weight = _rows(weight)
    else:
        weight = _flat_weight(sample_weight, positions, scores)[:, None].expand_as(scores)
    keep = labels != ignore_index
    ignored = not validate or not bool(keep.all())
    if ignored:
        scores = torch.where(keep, scores, torch.zeros_like(scores))
        labels = torch.where(keep, labels, torch.zeros_like(labels))
        weight = torch.where(keep, weight, torch.zeros_like(weight))
    return Samples(scores, labels, weight, ignored)


def _checked_weight(sample_weight: Tensor, like: Tensor) -> Tensor:
    if not isinstance(sample_weight, Tensor):
        raise TypeError(f"sample_weight: expected a torch.Tensor, got {type(sample_weight).__name__}.")
    return sample_weight.to(device=like.device, dtype=like.dtype)


def _flat_weight(sample_weight: Tensor | None, positions: torch.Size, like: Tensor) -> Tensor:
    if sample_weight is None:
        return like.new_ones(like.shape[0])
    weight = _checked_weight(sample_weight, like)
    if weight.shape == positions[:1]:
        weight = weight.reshape(weight.shape + (1,) * (len(positions) - 1)).expand(positions)
    elif weight.shape != positions:
        raise ValueError(
            f"sample_weight: expected shape {tuple(positions[:1])} or {tuple(positions)}, got {tuple(weight.shape)}."
        )
    return weight.reshape(-1)


def _checked_class_weight(weight: Tensor, size: int, like: Tensor, meaning: str) -> Tensor:
    if weight.shape != (size,):
        raise ValueError(f"weight: expected shape ({size},), {meaning}, got {tuple(weight.shape)}.")
    return weight.to(device=like.device, dtype=like.dtype)


def _weigh_classes(samples: Samples, weight: Tensor | None, classes: int) -> Samples:
    if weight is None:
        return samples
    weight = _checked_class_weight(weight, classes, samples.scores, "one weight a class")
    if samples.target.ndim == 2:
        return Samples(samples.scores, samples.target * weight, samples.weight, samples.ignored)
    # Labels out of range are reported with their value by _check_values; here they must not crash first.
    looked_up = weight[samples.target.clamp(0, classes - 1)]
    return Samples(samples.scores, samples.target, samples.weight * looked_up, samples.ignored)


def _weigh_labels(samples: Samples, weight: Tensor | None, task: Task) -> Samples:
    if weight is None:
        return samples
    if task == "binary":
        weight = _checked_class_weight(weight, 2, samples.scores, "negative then positive")
        factor = weight[0] * (1 - samples.target) + weight[1] * samples.target
    else:
        labels = samples.scores.shape[1]
        factor = _checked_class_weight(weight, labels, samples.scores, "one weight a label")
    return Samples(samples.scores, samples.target, samples.weight * factor, samples.ignored)


def _check_values(samples: Samples, task: Task, from_probabilities: bool) -> None:
    scores, target, weight = samples.scores.detach(), samples.target, samples.weight.detach()
    name = "probabilities" if from_probabilities else "logits"
    if bool(scores.isnan().any()):
        count = int(scores.isnan().any(dim=-1).sum())
        raise ValueError(
            f"input: NaN {name} in {count} of {scores.shape[0]} samples; the network has diverged or its input has "
            "gaps. Pass validate=False to let NaN propagate."
        )
    if from_probabilities:
        _check_probabilities("input", scores, simplex=task == "multiclass")
    if bool((weight < 0).any()) or not bool(weight.isfinite().all()):
        raise ValueError("sample_weight / weight: expected finite weights >= 0, got negative or non-finite ones.")
    if task != "multiclass" or target.ndim == 2:
        if bool((target < 0).any()) or (task != "multiclass" and bool((target > 1).any())):
            wrong = target[(target < 0) | (target > 1)][0].item()
            raise ValueError(f"target: expected values in [0, 1] (or ignore_index), got {wrong:g}.")
        if bool(target.isnan().any()):
            raise ValueError("target: got NaN; mark positions that do not count with ignore_index.")
        return
    classes = scores.shape[1]
    outside = (target < 0) | (target >= classes)
    if bool(outside.any()):
        raise ValueError(
            f"target: expected class indices from 0 to {classes - 1} (or ignore_index), got {int(target[outside][0])}."
        )


def _check_probabilities(name: str, p: Tensor, *, simplex: bool) -> None:
    if bool((p < 0).any()) or bool((p > 1).any()):
        wrong = p[(p < 0) | (p > 1)][0].item()
        raise ValueError(f"{name}: expected probabilities in [0, 1], got {wrong:g}; pass logits or apply softmax.")
    if simplex:
        sums = p.sum(dim=-1)
        off = ((sums - 1).abs() > 1e-3) & (sums != 0)  # rows of zeros are ignored positions
        if bool(off.any()):
            raise ValueError(f"{name}: rows of probabilities must sum to 1, got a sum of {sums[off][0].item():g}.")
