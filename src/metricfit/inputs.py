"""Validate and flatten what a loss is given: (N, C, d1, d2, …) inputs become rows of samples."""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Integral
from typing import Literal, TypedDict, get_args

import torch
from torch import Tensor

__all__ = [
    "LEAST_WEIGHT", "WEIGHTS_FROM_TO", "InputOptions", "Samples", "Task", "accumulation_dtype", "check_task",
    "check_tensor", "expect", "flatten_inputs", "safe_divide", "values_can_be_inspected",
]  # fmt: skip

Task = Literal["multiclass", "binary", "multilabel"]
"""One of several classes, one of two, or any of several labels."""

WEIGHTS_FROM_TO = 1e-18, 1e18
"""What the weights of a batch may sum to: metrics multiply two such sums, in single precision."""

LEAST_WEIGHT = 1e-30
"""A sample that weighs less counts as none: what is divided by such a count overflows in single precision."""


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which counts are summed: float64 stays, everything else becomes float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def safe_divide(numerator: Tensor, denominator: Tensor, undefined: float = 0.0) -> Tensor:
    """``numerator / denominator``, and ``undefined`` (with a zero gradient) where the denominator vanishes.

    A single ``torch.where`` after the division would have a NaN gradient at 0/0: the denominator is replaced before.

    >>> safe_divide(torch.tensor([1.0, 0.0]), torch.tensor([4.0, 0.0]), undefined=1.0)
    tensor([0.2500, 1.0000])
    """
    vanishes = denominator.abs() <= torch.finfo(denominator.dtype).tiny
    ratio = numerator / torch.where(vanishes, torch.ones_like(denominator), denominator)
    return torch.where(vanishes, torch.full_like(ratio, undefined), ratio)


def expect(holds: object, name: str, wanted: str, got: object, advice: str = "") -> None:
    """Raise an error that names an argument, what was wanted, what came and what to do, unless it ``holds``."""
    if not holds:
        raise ValueError(f"{name}: expected {wanted}, got {got!r}{advice and '; '}{advice}.")


def check_tensor(name: str, value: object) -> None:
    """Raise an error unless the value is a tensor."""
    if not isinstance(value, Tensor):
        kind = type(value).__name__
        raise TypeError(f"{name}: expected a torch.Tensor, got {kind}; convert it with torch.as_tensor.")


def check_task(task: str, ignore_index: int = -100) -> None:
    """Raise an error unless there is such a task, and ``ignore_index`` is a whole number."""
    expect(task in get_args(Task), "task", "'multiclass', 'binary' or 'multilabel'", task)
    if not isinstance(ignore_index, Integral):
        raise TypeError(f"ignore_index: expected a whole number, got {ignore_index!r}; leave it at -100 for none.")


class InputOptions(TypedDict, total=False):
    """How input and target are to be read; every loss and count takes these, see :class:`metricfit.MetricLoss`."""

    task: Task  # "multiclass" by default
    weight: Tensor | None  # of the classes: (C,); (2,) for a binary task, (L,) for a multi-label one
    ignore_index: int  # -100 by default
    from_probabilities: bool
    validate: bool
    members: int | None


@dataclass(frozen=True)
class Samples:
    """Flattened samples; with ensemble members their dimension leads everywhere."""

    scores: Tensor  # logits (or probabilities), shape (…, n, d); d = 1 for a binary task
    target: Tensor  # class indices (…, n) or probabilities (…, n, d); else the share of positive, (…, n, d)
    weight: Tensor  # of each sample, (…, n), or of each label decision, (…, n, d); 0 where ignored, as the scores
    task: Task = "multiclass"
    from_probabilities: bool = False

    @property
    def total(self) -> Tensor:
        """The sum of the weights, shape (…)."""
        return self.weight.flatten(self.scores.ndim - 2).sum(dim=-1)

    @property
    def probabilities(self) -> Tensor:
        """Softmax for a multiclass task, sigmoid for the others, (…, n, d)."""
        if self.from_probabilities:
            return self.scores
        return self.scores.softmax(dim=-1) if self.task == "multiclass" else self.scores.sigmoid()


def values_can_be_inspected() -> bool:
    """False while a compiler traces or a function transform runs: there a check on values cannot branch."""
    return not torch.compiler.is_compiling() and not torch._C._are_functorch_transforms_active()


def flatten_inputs(
    input: Tensor, target: Tensor, sample_weight: Tensor | None = None, *, task: Task = "multiclass",
    weight: Tensor | None = None, ignore_index: int = -100, from_probabilities: bool = False, validate: bool = True,
    members: int | None = None, allow_empty: bool = False,
) -> Samples:  # fmt: skip
    """Check shapes, dtypes and values, then flatten; ignored positions get a weight of zero.

    Arguments are as in :class:`metricfit.MetricLoss`. With ``allow_empty`` a batch may have no samples.
    """
    check_tensor("input", input)
    check_tensor("target", target)
    if not input.is_floating_point():
        raise TypeError(f"input: expected floating-point logits, got {input.dtype}; call .float() first.")
    check_task(task, ignore_index)
    lead, inspected = 0 if members is None else 1, values_can_be_inspected()
    validate = validate and inspected
    looks = validate or (inspected and input.is_cpu)  # elsewhere a look waits for the device
    input, target = _without_channel(input, target, task, lead)
    _check_input_shape(input, task, allow_empty, members)
    dtype, whole = accumulation_dtype(input.dtype), not target.is_floating_point() and target.dtype != torch.bool
    positions = input.shape if task == "binary" else input.shape[: lead + 1] + input.shape[lead + 2 :]
    scores = _rows(input, task, lead).to(dtype)
    if target.shape == input.shape and (task != "multiclass" or target.is_floating_point()):
        labels = _rows(target, task, lead).to(dtype)
    elif task == "multiclass" and target.shape == positions and whole:
        labels = target.flatten(lead).long()
    else:
        raise _target_error(input, target, positions, task)
    decisions = input.shape if task == "multilabel" else positions
    mass = _flat_weight(sample_weight, positions, decisions, scores, lead)
    keep = labels != ignore_index
    if task == "multiclass":
        keep = keep if labels.ndim < scores.ndim else keep.any(dim=-1)
    else:
        mass = mass if mass.ndim == scores.ndim else mass[..., None].expand_as(scores)
    if not looks or not bool(keep.all()):
        rows = keep if keep.ndim == scores.ndim else keep[..., None]
        scores = torch.where(rows, scores, torch.zeros_like(scores))
        labels = torch.where(rows if labels.ndim == scores.ndim else keep, labels, torch.zeros_like(labels))
        mass = torch.where(keep, mass, torch.zeros_like(mass))
    samples = Samples(scores, labels, mass, task, from_probabilities)
    if validate:
        slack = max(1e-3, *(torch.finfo(t.dtype).eps for t in (input, target) if t.is_floating_point()))
        _check_values(samples, slack)
    if isinstance(weight, Tensor):
        weight = weight.to(scores)  # as the sample weights: what is infinite or 0 in this dtype is so everywhere
    weighed = samples if weight is None else _weigh_classes(samples, weight, validate)
    if validate and (weight is not None or sample_weight is not None):
        _check_sum_of_weights(samples, sample_weight, weight)
    if weight is None and sample_weight is None:
        return weighed
    return replace(weighed, weight=weighed.weight.masked_fill(weighed.weight.abs() < LEAST_WEIGHT, 0.0))


def _rows(values: Tensor, task: Task, lead: int) -> Tensor:
    return (values.unsqueeze(-1) if task == "binary" else values.movedim(lead + 1, -1)).flatten(lead, -2)


def _without_channel(input: Tensor, target: Tensor, task: Task, lead: int) -> tuple[Tensor, Tensor]:
    """Drop the channel of masks (N, 1, …) beside (N, …), which can only be read in one way."""
    if task == "binary" and input.ndim == target.ndim + 1 and input.shape[lead + 1] == 1:
        input = input.squeeze(lead + 1)
    extra = target.ndim - input.ndim + (task == "multiclass")
    if task != "multilabel" and extra == 1 and target.ndim > lead + 1 and target.shape[lead + 1] == 1:
        target = target.squeeze(lead + 1)
    return input, target


def _check_input_shape(input: Tensor, task: Task, allow_empty: bool, members: int | None) -> None:
    lead = 0 if members is None else 1
    layout = {"multiclass": "N, C, …", "binary": "N, …", "multilabel": "N, L, …"}[task]
    shape, hint = tuple(input.shape), "" if task == "binary" else "; for one logit per sample use task='binary'"
    if input.ndim < lead + (1 if task == "binary" else 2) or (members is not None and shape[0] != members):
        wanted = f"({layout})" if members is None else f"({members}, {layout}) for {members} members"
        hint = hint if input.ndim == lead + 1 else ""
        raise ValueError(f"input: a {task} task expects shape {wanted}, got {shape}{hint}.")
    if input.numel() == 0 and not allow_empty:
        raise ValueError(f"input: the batch is empty, shape {shape}; skip batches without samples.")
    if task == "multiclass" and shape[lead + 1] < 2:
        needs = f"a multiclass task needs at least 2 classes in dimension {lead + 1}"
        raise ValueError(f"input: {needs}, got shape {shape}{hint}.")


def _target_error(input: Tensor, target: Tensor, positions: torch.Size, task: Task) -> Exception:
    shape, got = tuple(input.shape), tuple(target.shape)
    if task != "multiclass":
        fits = target.shape == input.shape[:1] + input.shape[2:]
        hint = "; for class indices beside one logit per class use task='multiclass'" if fits else ""
        return ValueError(f"target: a {task} task expects the shape of input, {shape}, got {got}{hint}.")
    if target.shape == positions:
        advice = "call .long(), or use task='binary' for 0/1 floats"
        return TypeError(f"target: expected integer class indices, got {target.dtype}; {advice}.")
    if target.shape == input.shape:
        advice = "call .float(), or .argmax(1) for class indices; for several labels per sample use task='multilabel'"
        wanted = "one value per class must be floating-point class probabilities"
        return TypeError(f"target: {wanted}, got {target.dtype}; {advice}.")
    wanted = f"class indices of shape {tuple(positions)} or class probabilities of shape {shape}"
    return ValueError(f"target: for input of shape {shape} expected {wanted}, got {got}.")


def _flat_weight(given: Tensor | None, positions: torch.Size, decisions: torch.Size, like: Tensor, lead: int) -> Tensor:
    if given is None:
        return like.new_ones(like.shape[:-1])
    check_tensor("sample_weight", given)
    weight, samples = given.to(device=like.device, dtype=like.dtype), positions[: lead + 1]
    if weight.shape == decisions != positions:
        return _rows(weight, "multilabel", lead)
    if weight.shape == samples:
        weight = weight.reshape(weight.shape + (1,) * (len(positions) - len(samples))).expand(positions)
    wanted = f"shape {tuple(samples)} or {tuple(positions)}"
    expect(weight.shape == positions, "sample_weight", wanted, tuple(weight.shape))
    return weight.flatten(lead)


def _weigh_classes(samples: Samples, weight: Tensor, validate: bool) -> Samples:
    task = samples.task
    size = 2 if task == "binary" else samples.scores.shape[-1]
    meaning = {"multiclass": "one per class", "binary": "negative then positive", "multilabel": "one per label"}[task]
    if not isinstance(weight, Tensor):
        raise TypeError(f"weight: expected a torch.Tensor of {size} weights, {meaning}, got {type(weight).__name__}.")
    expect(weight.shape == (size,), "weight", f"shape ({size},), {meaning}", tuple(weight.shape))
    if validate and not bool((weight.isfinite() & (weight >= 0)).all()):
        raise ValueError("weight: expected finite weights >= 0, got negative or non-finite ones.")
    weight, target = weight.to(samples.weight), samples.target
    if task == "multilabel":
        return replace(samples, weight=samples.weight * weight)
    if task == "multiclass" and target.is_floating_point():
        return replace(samples, target=target * weight)
    if task == "multiclass":
        return replace(samples, weight=samples.weight * weight[target])
    # The positive share counts weight[1] and the rest weight[0], also where the target lies between 0 and 1.
    positive, negative = weight[1] * target, weight[0] * (1 - target)
    both = positive + negative
    share = positive / both.masked_fill(both == 0, 1.0)  # a denormal weight is none of 0
    return replace(samples, target=share, weight=samples.weight * both)


def _check_sum_of_weights(samples: Samples, sample_weight: Tensor | None, weight: Tensor | None) -> None:
    target = samples.target.double() if samples.target.is_floating_point() else samples.target
    exact = replace(samples, target=target, weight=samples.weight.detach().double())
    exact = exact if weight is None else _weigh_classes(exact, weight, validate=False)
    if samples.task == "multiclass" and target.is_floating_point():
        exact = replace(exact, weight=exact.weight * exact.target.sum(dim=-1))
    total, (least, most) = exact.total, WEIGHTS_FROM_TO
    if bool((wrong := (total != 0) & ~((total >= least) & (total <= most))).any()):
        given = {"sample_weight": sample_weight, "weight": weight}
        names = " · ".join(name for name, value in given.items() if value is not None)
        wanted, got = f"weights with a sum between {least:g} and {most:g}", f"{total[wrong].flatten()[0]:g}"
        raise ValueError(f"{names}: expected {wanted}, got {got}; divide them by their mean.")


def _check_values(samples: Samples, slack: float) -> None:
    scores, target, weight = samples.scores.detach(), samples.target, samples.weight.detach()
    task, from_probabilities = samples.task, samples.from_probabilities
    if bool((weight < 0).any()) or not bool(weight.isfinite().all()):
        raise ValueError("sample_weight: expected finite weights >= 0, got negative or non-finite ones.")
    # A row's softmax is NaN as well where its largest entry is infinite; -inf beside a finite one rules a class out.
    bad = ~(scores.amax(dim=-1).isfinite() if task == "multiclass" else scores.isfinite().all(dim=-1))
    if bool(bad.any()):
        kind, name = "infinite", "probabilities" if from_probabilities else "logits"
        cause = (
            "float16 overflows beyond 65,504: compute the last layer in float32, outside of autocast (logits.float() "
            "comes too late), use bfloat16, or lower the learning rate"
        )
        if bool(scores.isnan().any()):
            kind = "NaN"
            cause = "the network has diverged or its input has gaps. Pass validate=False to let NaN propagate"
        raise ValueError(f"input: {kind} {name} in {int(bad.sum())} of {bad.numel()} samples; {cause}.")
    if from_probabilities:
        _check_probabilities("input", scores, weight, task, slack)
    classes = scores.shape[-1]
    if target.is_floating_point():
        if bool(target.isnan().any()):
            raise ValueError("target: got NaN; mark positions that do not count with ignore_index.")
        _check_probabilities("target", target, weight, task, slack)
    elif bool((outside := (target < 0) | (target >= classes)).any()):
        found = int(target[outside][0])
        raise ValueError(f"target: expected class indices from 0 to {classes - 1} (or ignore_index), got {found}.")


def _check_probabilities(name: str, p: Tensor, weight: Tensor, task: Task, slack: float) -> None:
    outside = (p < 0) | (p > 1 + (slack if task == "multiclass" else 0))
    if bool(outside.any()):
        hint = "pass logits or apply softmax" if name == "input" else "or ignore_index"
        raise ValueError(f"{name}: expected probabilities in [0, 1], got {p[outside][0].item():g}; {hint}.")
    if task == "multiclass":
        sums = p.sum(dim=-1)
        off = ((sums - 1).abs() > slack) & ((sums != 0) | (weight != 0))  # ignored rows are zero
        if bool(off.any()):
            hint = "; for several labels per sample use task='multilabel'" if name == "target" else ""
            got = sums[off][0].item()
            raise ValueError(f"{name}: rows of probabilities must sum to 1, got a sum of {got:g}{hint}.")
