"""Training steps of a multilayer perceptron in one compiled call: rows, products, loss, gradients, AdamW, average.

On a network of a tabular size the dozens of calls that a step takes from Python cost more than its matrix products.
These go to the BLAS of SciPy; the rest are plain loops. Tensors of the layers are handed over as addresses, so that one
compiled function serves any depth.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg.cython_blas  # noqa: F401 - where numba finds its matrix product
from numba import carray

from metricfit.fast.compiled import compiled
from metricfit.fast.member_loss import Goal, many_classes, two_classes
from metricfit.fast.small import floats_at

__all__ = ["AdamW", "Data", "Dropout", "Goal", "train_steps"]

Array = np.ndarray[Any, Any]

VALUE, FIRST_MOMENT, SECOND_MOMENT, AVERAGE = 0, 1, 2, 3
"""Rows of the addresses."""

TINY = float(np.finfo(np.float32).tiny)


class Data(NamedTuple):
    """All rows: features (n, columns) and weights (n,) float32, classes (n,) int64."""

    features: Array
    target: Array
    weight: Array


class Dropout(NamedTuple):
    """Addresses (layers,) of the long masks, where their windows start (steps, layers), and 1 / the share kept."""

    masks: Array
    starts: Array
    scale: np.float32


class AdamW(NamedTuple):
    """The optimiser's settings in an epoch.

    Attributes:
        rates: Learning rates (steps,).
        taken: Steps before this epoch.
        beta1: Decay of the first moment.
        beta2: Of the second.
        epsilon: Added to its root.
        weight_decay: Of weights, not of biases.
        clip: Largest norm of the gradient; 0 for any.
        averaging: Shares (steps,) of the new weights in their average; none at all where nothing is averaged.
    """

    rates: Array
    taken: int
    beta1: float
    beta2: float
    epsilon: float
    weight_decay: float
    clip: float
    averaging: Array


@compiled()
def _matrix(address: int, rows: int, columns: int) -> Any:
    return carray(floats_at(address), (rows, columns))


@compiled()
def _vector(address: int, size: int) -> Any:
    return carray(floats_at(address), (size,))


@compiled()
def _take(data: Any, index: Any, goal: Any, x: Any, target: Any, weight: Any, mass: Any) -> None:
    """The rows of a batch with their weights, and the weights of their cross-entropies."""
    total = 0.0
    for i in range(len(index)):
        row = index[i]
        target[i], weight[i] = data.target[row], data.weight[row]
        mass[i] = weight[i] * goal.class_weight[target[i]]
        total += mass[i]
        for j in range(x.shape[1]):
            x[i, j] = data.features[row, j]
    share = x.dtype.type(goal.cross_entropy / max(total, TINY))
    for i in range(len(index)):
        mass[i] *= share


@compiled()
def _activate(x: Any, bias: Any) -> None:
    zero = x.dtype.type(0)
    for i in range(len(x)):
        for j in range(len(bias)):
            y = x[i, j] + bias[j]
            x[i, j] = zero if y < zero else y  # NaN stays NaN


@compiled()
def _add_bias(x: Any, bias: Any) -> None:
    for i in range(len(x)):
        for j in range(len(bias)):
            x[i, j] += bias[j]


@compiled()
def _multiply(x: Any, mask: Any) -> None:
    for i in range(len(x)):
        x[i] *= mask[i]


@compiled()
def _pull_back_activation(gradient: Any, output: Any, scale: Any) -> None:
    """What is not positive was cut off, by ReLU or by dropout."""
    zero = scale - scale
    for i in range(len(gradient)):
        g = gradient[i] * scale
        gradient[i] = zero if output[i] <= zero else g


@compiled()
def _column_sums(gradient: Any, sums: Any) -> None:
    for j in range(len(sums)):
        sums[j] = 0
    for i in range(len(gradient)):
        for j in range(len(sums)):
            sums[j] += gradient[i, j]


@compiled()
def _forward(sizes: Any, batch: int, member: int, step: int, addresses: Any, dropout: Any, outputs: Any) -> None:
    """From the inputs at the start of ``outputs`` the outputs of all layers, one behind the other."""
    layers, at = len(sizes) - 1, outputs.ctypes.data
    for layer in range(layers):
        inner, outer = sizes[layer], sizes[layer + 1]
        x = _matrix(at, batch, inner)
        at += 4 * batch * inner
        y = _matrix(at, batch, outer)
        np.dot(x, _matrix(addresses[VALUE, 2 * layer] + 4 * member * inner * outer, inner, outer), y)
        bias = _vector(addresses[VALUE, 2 * layer + 1] + 4 * member * outer, outer)
        if layer == layers - 1:
            _add_bias(y, bias)
            continue
        _activate(y, bias)
        if len(dropout.masks):
            window = dropout.starts[step, layer] + member * batch * outer
            _multiply(_vector(at, batch * outer), _vector(dropout.masks[layer] + 4 * window, batch * outer))


@compiled()
def _backward(
    sizes: Any, batch: int, member: int, addresses: Any, scale: Any, outputs: Any, pulled: Any, gradients: Any
) -> None:  # fmt: skip
    """Gradients of all weights and biases, from the last to the first.

    Args:
        sizes: Of the layers.
        batch: Rows.
        member: Which.
        addresses: As in :func:`train_steps`.
        scale: 1 / the share that dropout keeps.
        outputs: Inputs and outputs of the layers, one behind the other.
        pulled: The gradients of the outputs; those of the logits, at the end, are there.
        gradients: Where the gradients of weight and bias of each layer go.
    """
    end, end_of_pulled = outputs.ctypes.data + 4 * len(outputs), pulled.ctypes.data + 4 * len(pulled)
    at = gradients.ctypes.data + 4 * len(gradients)
    for layer in range(len(sizes) - 2, -1, -1):
        inner, outer = sizes[layer], sizes[layer + 1]
        end -= 4 * batch * outer
        end_of_pulled -= 4 * batch * outer
        gradient, before = _matrix(end_of_pulled, batch, outer), end - 4 * batch * inner
        at -= 4 * outer
        _column_sums(gradient, _vector(at, outer))
        at -= 4 * inner * outer
        np.dot(_matrix(before, batch, inner).T, gradient, _matrix(at, inner, outer))
        if layer:
            weight = _matrix(addresses[VALUE, 2 * layer] + 4 * member * inner * outer, inner, outer)
            behind = end_of_pulled - 4 * batch * inner
            np.dot(gradient, weight.T, _matrix(behind, batch, inner))
            _pull_back_activation(_vector(behind, batch * inner), _vector(before, batch * inner), scale)


@compiled()
def _norm(gradients: Any) -> float:
    square = 0.0
    for i in range(len(gradients)):
        square += gradients[i] * gradients[i]
    return float(np.sqrt(square))


@compiled(fastmath={"contract"})
def _adamw(
    value: Any, gradient: Any, first: Any, second: Any, factor: Any, rate: float, decay: float, step: int, adamw: Any
) -> None:
    number = value.dtype.type
    keep = number(1.0 - rate * decay)
    share1, share2, keep2 = number(1.0 - adamw.beta1), number(1.0 - adamw.beta2), number(adamw.beta2)
    size = number(rate / (1.0 - adamw.beta1**step))
    root = number(np.sqrt(1.0 - adamw.beta2**step))
    epsilon = number(adamw.epsilon)
    for i in range(len(value)):
        g = gradient[i] * factor
        m = first[i] + share1 * (g - first[i])
        v = keep2 * second[i] + share2 * g * g
        first[i], second[i] = m, v
        value[i] = value[i] * keep - size * m / (np.sqrt(v) / root + epsilon)


@compiled()
def _blend(average: Any, value: Any, share: Any) -> None:
    for i in range(len(value)):
        average[i] += share * (value[i] - average[i])


@compiled()
def _update(sizes: Any, member: int, step: int, addresses: Any, gradients: Any, adamw: Any) -> None:
    number = gradients.dtype.type
    factor = number(min(1.0, adamw.clip / max(_norm(gradients), 1e-12)) if adamw.clip else 1.0)
    at = gradients.ctypes.data
    for tensor in range(addresses.shape[1]):
        is_bias = tensor % 2
        size = sizes[tensor // 2 + 1] * (1 if is_bias else sizes[tensor // 2])
        offset = 4 * member * size
        value = _vector(addresses[VALUE, tensor] + offset, size)
        first, second = addresses[FIRST_MOMENT, tensor] + offset, addresses[SECOND_MOMENT, tensor] + offset
        decay = 0.0 if is_bias else adamw.weight_decay
        _adamw(
            value, _vector(at, size), _vector(first, size), _vector(second, size), factor, adamw.rates[step], decay,
            adamw.taken + step + 1, adamw,
        )  # fmt: skip
        if len(adamw.averaging):
            _blend(_vector(addresses[AVERAGE, tensor] + offset, size), value, number(adamw.averaging[step]))
        at += 4 * size


@compiled()
def train_steps(
    member: int, sizes: Array, addresses: Array, data: Data, index: Array, goal: Goal, dropout: Dropout, adamw: AdamW,
    first: int, losses: Array,
) -> None:  # fmt: skip
    """Some steps of one member of an ensemble.

    Args:
        member: Which: all tensors begin with the members' dimension.
        sizes: Columns, widths of the hidden layers, classes.
        addresses: Of the values, both moments and averages (4, 2 · layers) of weight and bias of each layer, float32.
        data: All rows.
        index: The rows of each step of the epoch, (steps, batch).
        goal: The loss.
        dropout: The masks.
        adamw: The optimiser.
        first: The first of these steps in the epoch.
        losses: Where their losses go.
    """
    batch, classes = index.shape[1], sizes[-1]
    units, parameters = sizes[0], 0
    for layer in range(len(sizes) - 1):
        units += sizes[layer + 1]
        parameters += (sizes[layer] + 1) * sizes[layer + 1]
    outputs, gradients = np.empty(batch * units, np.float32), np.empty(parameters, np.float32)
    pulled = np.empty(batch * (units - sizes[0]), np.float32)
    # Addresses keep nothing alive: these three arrays have to be used in the loop.
    last = batch * (units - classes)
    x = _matrix(outputs.ctypes.data, batch, sizes[0])
    logits = _matrix(outputs.ctypes.data + 4 * last, batch, classes)
    of_logits = _matrix(pulled.ctypes.data + 4 * (last - batch * sizes[0]), batch, classes)
    target, weight, mass = np.empty(batch, np.int64), np.empty(batch, np.float32), np.empty(batch, np.float32)
    for i in range(len(losses)):
        step = first + i
        _take(data, index[step], goal, x, target, weight, mass)
        _forward(sizes, batch, member, step, addresses, dropout, outputs)
        is_first = goal.is_first and step == 0
        if classes == 2:
            losses[i] = two_classes(logits, target, mass, weight, goal, is_first, of_logits)
        else:
            losses[i] = many_classes(logits, target, mass, weight, goal, is_first, of_logits)
        _backward(sizes, batch, member, addresses, dropout.scale, outputs, pulled, gradients)
        _update(sizes, member, step, addresses, gradients, adamw)
