"""The closed form in plain torch: for other devices, and for matrices of counts where numba is not installed.

Tensors are (b, classes, l), so that a table (l = 1), its transpose (b = 1) and images with their classes in front are
the same to every formula. Choices are written with minima, maxima and masks of 0 and 1 in the dtype of the scores:
torch vectorises those, and neither ``where`` nor comparisons that give booleans. On a small batch every operation
counts, and one with a number takes twice as long as one with a tensor, unless it is called ``value`` or ``alpha``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache

import torch
from torch import Tensor

from metricfit.fast.batch import FivePoints
from metricfit.steps import SMALLEST_WIDTH, THRESHOLD_MARGIN

__all__ = ["Counted", "count_block", "pull_back_block"]


@dataclass(slots=True)
class Steps:
    """The five-point steps of a block.

    Attributes:
        tau: Thresholds inside (0, 1), (b, 1, l); so are the other attributes up to ``above``.
        start: Where the middle begins.
        middle: 2 / width of the middle; slopes are a number times these.
        below: 1 / width of the segment below.
        above: 1 / width of the segment above.
        missing: 1 - start · below from the start of the middle on, (b, classes, l), where that may not be 0; else None.
        low: The smaller of p and ``start``, (b, classes, l).
        inner: How far p lies in the middle, from 0 to its width.
        over: How far p lies over the middle, >= 0.
        h: The steps, or memberships: the steps through their sum over classes.
    """

    tau: Tensor
    start: Tensor
    middle: Tensor
    below: Tensor
    above: Tensor
    missing: Tensor | None
    low: Tensor
    inner: Tensor
    over: Tensor
    h: Tensor


@dataclass(slots=True)
class Counted:
    """A block and what its gradient needs.

    Attributes:
        p: Probabilities, (b, classes, l).
        mean: Of the two largest, (b, 1, l).
        second: The second largest, (b, 1, l); None where two are all there are.
        inverse: 1 / sum of steps, (b, 1, l).
        steps: The steps, where they are kept instead of being computed again.
    """

    p: Tensor
    mean: Tensor
    second: Tensor | None
    inverse: Tensor
    steps: Steps | None


def count_block(scores: Tensor, points: FivePoints, *, is_softmax: bool, keeps: bool = False) -> tuple[Tensor, Counted]:
    """The memberships of a block, and what its gradient needs; ``keeps``: as few operations as possible later."""
    p = _softmax(scores) if is_softmax else scores
    mean, second = _thresholds(p, is_softmax)
    steps = _steps(p, mean, points)
    total = steps.h.sum(dim=1, keepdim=True)
    nothing = p.shape[1] * torch.finfo(p.dtype).eps  # rows of zeros; with softmax a sum is at least 1/2
    inverse = total.reciprocal() if is_softmax else total.clamp_min(nothing).reciprocal_().mul_(total > nothing)
    return steps.h.mul_(inverse), Counted(p, mean, second, inverse, steps if keeps else None)


def pull_back_block(
    g: Tensor, weight: Tensor | None, block: Counted, points: FivePoints, *, is_softmax: bool, is_fixed: bool
) -> Tensor:
    """The gradient of the scores, given that of the memberships and weights (b, 1, l) or None; overwrites both."""
    p, steps = block.p, block.steps
    if steps is None:
        steps = _steps(p, block.mean, points)
        steps.h.mul_(block.inverse)
    g.sub_(steps.h.mul_(g).sum(dim=1, keepdim=True)).mul_(block.inverse if weight is None else block.inverse * weight)
    moves = not is_fixed and block.second is not None
    velocity = _velocity(steps, points) if moves else None
    g.mul_(_slopes(steps, points))
    if velocity is not None:
        of_threshold = velocity.mul_(g).sum(dim=1, keepdim=True).mul_((steps.tau == block.mean).to(p.dtype))
        _subtract_from_two_largest(g, of_threshold, block)
    return _pull_back_softmax(g, p) if is_softmax else g


def _softmax(scores: Tensor) -> Tensor:
    # Over a last dimension torch has a loop of its own.
    return scores.softmax(dim=1) if scores.shape[2] > 1 else scores.squeeze(2).softmax(dim=1).unsqueeze(2)


def _pull_back_softmax(g: Tensor, p: Tensor) -> Tensor:
    if g.shape[2] > 1:
        return torch._softmax_backward_data(g, p, 1, p.dtype)
    return torch._softmax_backward_data(g.squeeze(2), p.squeeze(2), 1, p.dtype).unsqueeze(2)


def _thresholds(p: Tensor, is_softmax: bool) -> tuple[Tensor, Tensor | None]:
    """The mean of the two largest, and the second of them; ``topk`` takes twice as long or more."""
    if is_softmax and p.shape[1] == 2:
        return torch.full_like(p[:, :1], 0.5), None
    first = p.amax(dim=1, keepdim=True)
    buffer = torch.ge(p, first, out=torch.empty_like(p))
    ties = buffer.sum(dim=1, keepdim=True)
    second = torch.sub(p, buffer, alpha=2, out=buffer).amax(dim=1, keepdim=True)
    # The first itself where it is there twice.
    second = torch.maximum(second, torch.add(first, (_number(2.0, p) - ties).clamp_min_(0), alpha=-2))
    return (first + second).mul_(_number(0.5, p)), second


def _steps(p: Tensor, mean: Tensor, points: FivePoints) -> Steps:
    margin, smallest = _limits(p.dtype)
    tau = mean.clamp(margin, 1 - margin)
    above = _number(1.0, p) - tau
    half = torch.minimum(tau, above).mul_(_number(points.factor / 2, p))
    start = tau - half
    above.sub_(half)
    missing = None
    if smallest / margin < points.factor < 1.9:  # no width can be near 0
        below = start.reciprocal()
    else:
        half.clamp_min_(smallest / 2)
        below = start.clamp_min(smallest).reciprocal_()
        above.clamp_min_(smallest)
        missing = (1 - start * below) * (p >= start)
    above.reciprocal_()
    offset = p - tau
    # With one bound a row torch's clamp is not vectorised.
    inner = torch.clamp(offset, -half, half) if p.shape[2] > 1 else torch.minimum(offset, half).maximum(-half)
    over = offset.sub_(inner).clamp_min_(0)
    inner.add_(half)
    low = torch.minimum(p, start)
    middle = half.reciprocal_()
    # Small probabilities are many: a sum of larger terms that cancel would be off by a rounding error for each.
    h = (low * below).mul_(_number(points.delta, p)).addcmul_(inner, middle, value=0.5 - points.delta)
    h.addcmul_(over, above, value=points.delta)
    if missing is not None:
        h.add_(missing * points.delta)
    return Steps(tau, start, middle, below, above, missing, low, inner, over, h)


def _velocity(steps: Steps, points: FivePoints) -> Tensor:
    """How fast the step moves to the right at p as the threshold grows; overwrites ``inner``.

    The points at 0 and 1 stay where they are; those at the ends of the middle move with the threshold, apart or
    together as the middle widens or shrinks; in between the velocity is interpolated.
    """
    one = _number(1.0, steps.tau)
    growth = torch.sub(one, steps.tau, alpha=2).sign_().mul_(_number(points.factor / 2, one))  # of half the width
    of_start, of_above = one - growth, (one + growth).mul_(steps.above)
    velocity = steps.inner.mul_(growth.mul_(steps.middle)).addcmul_(steps.low, of_start * steps.below)
    velocity.addcmul_(steps.over, of_above, value=-1)
    return velocity if steps.missing is None else velocity.addcmul_(steps.missing, of_start)


def _slopes(steps: Steps, points: FivePoints) -> Tensor:
    """The derivative of the step with respect to p, exactly one of three numbers; overwrites the steps."""
    is_under, is_over = steps.low.sub_(steps.start).sign_(), steps.over.sign_()  # -1 and 1
    is_inside = torch.add(is_under, _number(1.0, is_under), out=steps.h).sub_(is_over)
    slopes = is_inside.mul_(steps.middle * _number(0.5 - points.delta, is_inside))
    slopes.addcmul_(is_under, steps.below, value=-points.delta)
    return slopes.addcmul_(is_over, steps.above, value=points.delta)


def _subtract_from_two_largest(g: Tensor, of_threshold: Tensor, block: Counted) -> None:
    """Half of it from the largest and half from the second; equals share theirs."""
    p, second = block.p, block.second
    if second is None:
        return
    largest = torch.ge(p, second, out=torch.empty_like(p))
    number = largest.sum(dim=1, keepdim=True)
    if p.is_cpu and number.amax().item() == 2:
        g.addcmul_(largest, of_threshold, value=-0.5)
        return
    is_tie = (block.mean <= second).to(p.dtype)
    of_second = (1 + is_tie) / 2 / (number - 1 + is_tie)
    g.addcmul_(largest, of_threshold * of_second, value=-1)
    torch.gt(p, second, out=largest)
    g.addcmul_(largest, of_threshold * (0.5 - of_second), value=-1)


def _number(value: float, like: Tensor) -> Tensor:
    return _number_of(value, like.dtype, like.device)


@lru_cache(maxsize=256)
def _number_of(value: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.full((), value, dtype=dtype, device=device)


@cache
def _limits(dtype: torch.dtype) -> tuple[float, float]:
    information = torch.finfo(dtype)
    return max(THRESHOLD_MARGIN, information.eps), max(SMALLEST_WIDTH, information.tiny)
