"""A small batch of few classes, from logits to losses and gradient in one compiled call.

There the calls between Python, NumPy and torch cost more than the samples. So tensors are handed over as addresses, and
the gradient is taken at once: a second call, the arrays it needs and their bookkeeping would take longer.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray
from numba.core import types
from numba.extending import intrinsic

from metricfit.fast import derivative
from metricfit.fast.lanes import count_lanes, pull_back_lanes
from metricfit.fast.loops import GOOD, compiled

__all__ = ["losses_and_gradient", "losses_of_sums"]

_fraction, _mcc = compiled()(derivative.fraction), compiled()(derivative.mcc)


def _pointer(element: Any) -> Any:
    @intrinsic  # type: ignore[untyped-decorator]
    def pointer(context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

        return types.CPointer(element)(types.intp), generate  # type: ignore[attr-defined]

    return pointer


_floats, _integers = _pointer(types.float32), _pointer(types.int64)


@compiled()
def losses_of_sums(sums: Any, form: Any, label: int, skip_absent: bool, losses: Any, gradient: Any) -> None:
    """The loss of each member and its gradient (M, 2, d), given sums (M, 3, d); see ``metricfit.fast.derivative``."""
    for member in range(len(sums)):
        if len(form) > derivative.UNDEFINED + 1:
            losses[member] = _fraction(sums[member], form, label, skip_absent, gradient[member])
        else:
            losses[member] = _mcc(sums[member], form, gradient[member])


@compiled()
def losses_and_gradient(
    scores_at: int, target_at: int, weight_at: int, class_weight_at: int, gradient_at: int, losses_at: int, size: int,
    classes: int, length: int, ignore: int, knots: Any, is_fixed: bool, form: Any, label: int, skip_absent: bool,
) -> int:  # fmt: skip
    """The losses of contiguous float32 scores (members · size, classes, length), unless something is wrong.

    Args end in ``_at`` where they are addresses; 0 is none. ``form`` and ``label`` are those of ``ClosedForm``; knots
    are the step of each member, (M, 5).
    """
    members, points = len(knots), knots.astype(np.float32)
    shape, samples = (members * size, classes, length), members * size * length
    scores = carray(_floats(scores_at), shape)
    target = carray(_integers(target_at), (samples,))
    weight = carray(_floats(weight_at), (samples if weight_at else 0,))
    class_weight = carray(_floats(class_weight_at), (classes if class_weight_at else 0,))
    out = carray(_floats(gradient_at if gradient_at else scores_at), shape)  # without a gradient nothing is written
    kept, places = np.empty((samples, 4), np.float32), np.empty((samples, 2), np.int32)
    parts, sums = np.empty((members, 3), np.int64), np.zeros((members, 3, classes))
    for member in range(members):
        parts[member] = member * size * length, (member + 1) * size * length, member
    status: int = count_lanes(
        scores, target, weight, class_weight, ignore, points, parts, 0, members, True, sums, gradient_at != 0, out,
        kept, places,
    )  # fmt: skip
    if status:
        return status
    vectors = np.zeros((members, 2, classes))
    losses_of_sums(sums, form, label, skip_absent, carray(_floats(losses_at), (members,)), vectors)
    if gradient_at:
        gradient = vectors.astype(np.float32)
        pull_back_lanes(target, points, parts, 0, members, True, gradient, is_fixed, kept, places, out)
    return GOOD
