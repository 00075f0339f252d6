"""Networks for two classes, of one output or two, trained by compiled loops.

A network of 32 and 16 units leaves a processor waiting for Python: this takes a third of the time of
``training.train``, with 512, 256 and 128 units two thirds of it, and does the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.papers.compiled_losses import Goal, goal_of, is_of_two_outputs, loss_and_gradient
from benchmarks.papers.training import Fit, Part, Settings, Stopping
from metricfit.fast.compiled import compiled
from metricfit.fast.mlp import AdamW, Dropout, _adamw, _backward, _forward, _matrix, _vector

__all__ = ["can_train", "train"]

DECAY = {"adam": 0.0, "adamw": 0.01}
"""Torch's defaults."""


@compiled()
def _draw(mask: Any, dropped: int, scale: Any, state: Any) -> None:
    """Zeros with probability dropped / 256, otherwise the scale; eight from each number of Marsaglia's xorshift."""
    words = np.empty((len(mask) + 7) // 8, np.uint64)
    x = state[0]
    for i in range(len(words)):
        x ^= x << np.uint64(13)
        x ^= x >> np.uint64(7)
        x ^= x << np.uint64(17)
        words[i] = x
    state[0] = x
    some, limit, zero = words.view(np.uint8), np.uint8(dropped), scale - scale
    for i in range(len(mask)):
        mask[i] = zero if some[i] < limit else scale


@compiled()
def _differences(outputs: Any, count: int, z: Any) -> None:
    """Of the last rows, one output or the second minus the first."""
    n = len(z)
    last = outputs[len(outputs) - n * count :]
    for i in range(n):
        z[i] = last[i] if count == 1 else last[2 * i + 1] - last[2 * i]


@compiled()
def _update(sizes: Any, step: int, addresses: Any, gradients: Any, adamw: Any) -> None:
    """AdamW; the decay is that of all tensors, as in torch unless told otherwise."""
    at = gradients.ctypes.data
    for tensor in range(addresses.shape[1]):
        size = sizes[tensor // 2 + 1] * (1 if tensor % 2 else sizes[tensor // 2])
        value, gradient = _vector(addresses[0, tensor], size), _vector(at, size)
        first, second = _vector(addresses[1, tensor], size), _vector(addresses[2, tensor], size)
        rate, taken = adamw.rates[step], adamw.taken + step + 1
        _adamw(value, gradient, first, second, np.float32(1), rate, adamw.weight_decay, taken, adamw)
        at += 4 * size


@compiled()
def _epoch(
    sizes: Any, addresses: Any, X: Any, y: Any, order: Any, size: int, goal: Any, dropped: int, state: Any, adamw: Any
) -> None:  # fmt: skip
    units, parameters, hidden = sizes[0], 0, 0
    for layer in range(len(sizes) - 1):
        units += sizes[layer + 1]
        parameters += (sizes[layer] + 1) * sizes[layer + 1]
        hidden += sizes[layer + 1] if layer < len(sizes) - 2 else 0
    outputs, pulled = np.empty(size * units, np.float32), np.empty(size * (units - sizes[0]), np.float32)
    z, slope = np.empty(size, np.float32), np.empty(size, np.float32)
    gradients, mask = np.empty(parameters, np.float32), np.empty(size * hidden, np.float32)
    target = np.empty(size, np.int64)
    scale = np.float32(256 / (256 - dropped))
    starts, masks = np.zeros((1, len(sizes) - 2), np.int64), np.zeros((len(sizes) - 2) * (dropped > 0), np.int64)
    dropout = Dropout(masks, starts, scale)
    for step in range((len(order) + size - 1) // size):
        index = order[step * size : (step + 1) * size]
        batch = len(index)
        if batch < 2:
            continue
        x = _matrix(outputs.ctypes.data, batch, sizes[0])
        for i in range(batch):
            target[i] = y[index[i]]
            x[i] = X[index[i]]
        at = mask.ctypes.data
        for layer in range(len(masks)):
            masks[layer] = at
            at += 4 * batch * sizes[layer + 1]
        if dropped:
            _draw(mask[: batch * hidden], dropped, scale, state)
        here, back = outputs[: batch * units], pulled[: batch * (units - sizes[0])]
        _forward(sizes, batch, 0, 0, addresses, dropout, here)
        _differences(here, sizes[-1], z[:batch])
        loss_and_gradient(goal, z[:batch], target[:batch], slope[:batch])
        for i in range(1, batch + 1):
            back[-sizes[-1] * i] = -slope[batch - i]
            back[-sizes[-1] * i + sizes[-1] - 1] = slope[batch - i]
        _backward(sizes, batch, 0, addresses, scale, here, back, gradients)
        _update(sizes, step, addresses, gradients, adamw)


@compiled()
def _value(sizes: Any, addresses: Any, X: Any, y: Any, goal: Any) -> float:
    """The loss of all rows at once, without dropout."""
    batch, units = len(X), 0
    for size in sizes:
        units += size
    outputs = np.empty(batch * units, np.float32)
    _matrix(outputs.ctypes.data, batch, sizes[0])[:] = X
    dropout = Dropout(np.zeros(0, np.int64), np.zeros((1, 0), np.int64), np.float32(1))
    _forward(sizes, batch, 0, 0, addresses, dropout, outputs)
    z = np.empty(batch, np.float32)
    _differences(outputs, sizes[-1], z)
    return float(loss_and_gradient(goal, z, y, np.empty(batch, np.float32)))


def can_train(make_network: Callable[[], nn.Module], loss: nn.Module, settings: Settings) -> bool:
    """Whether :func:`train` covers all of it: linear layers, ReLU, dropout, two classes, a loss from above, Adam."""
    network = _made(make_network, 0)
    linear, odd = _layers(network)
    known = all(isinstance(module, nn.Linear | nn.ReLU | nn.Dropout | nn.Flatten) for module in network.children())
    rates = {module.p for module in network.children() if isinstance(module, nn.Dropout)}
    # An L2 penalty is no decay of the weights.
    plain = settings.optimiser == "adamw" or (settings.optimiser == "adam" and not settings.weight_decay)
    even = len(rates) <= 1 and all((256 * rate).is_integer() for rate in rates)
    if not (known and linear and even and plain and not odd):
        return False
    return linear[-1].out_features == 1 + is_of_two_outputs(loss) and goal_of(loss) is not None


def _layers(network: nn.Module) -> tuple[list[nn.Linear], bool]:
    """The linear layers, and whether something other than their usual order comes between them."""
    modules = [module for module in network.children() if not isinstance(module, nn.Flatten | nn.Dropout)]
    linear = [module for module in modules if isinstance(module, nn.Linear)]
    odd = any(isinstance(module, nn.Linear) == bool(i % 2) for i, module in enumerate(modules))
    return linear, odd


def train(
    make_network: Callable[[], nn.Module],
    loss: nn.Module,
    training: Part,
    validation: Part,
    settings: Settings,
    *,
    seed: int,
) -> Fit:
    """What ``training.train`` does, where :func:`can_train`; arguments as there."""
    _known_goal(loss)
    network = _made(make_network, seed)
    linear, _ = _layers(network)
    dropped = round(256 * next((m.p for m in network.children() if isinstance(m, nn.Dropout)), 0.0))
    values = [part.detach().numpy().T.copy() for layer in linear for part in (layer.weight, layer.bias)]
    moments = [[np.zeros_like(value) for value in values] for _ in range(2)]
    addresses = np.array([[array.ctypes.data for array in kind] for kind in (values, *moments, values)], np.int64)
    sizes = np.array([linear[0].in_features, *(layer.out_features for layer in linear)], np.int64)
    (X, y), (X_held, y_held) = ([part[0].numpy(), part[1].numpy()] for part in (training, validation))
    random = np.random.default_rng(seed)
    state = random.integers(1, 2**63, 1, dtype=np.uint64)
    steps = -(-len(y) // settings.batch_size)
    fit, best = Fit(network.eval()), [value.copy() for value in values]
    stopping = Stopping(loss, settings)
    decay = settings.weight_decay if settings.weight_decay is not None else DECAY[settings.optimiser]
    while not stopping.finished and fit.epochs < settings.max_epochs:
        goal, temperature = _known_goal(loss), stopping.temperature
        adamw = AdamW(
            rates=np.full(steps, settings.learning_rate),
            taken=fit.epochs * steps,
            beta1=0.9,
            beta2=0.999,
            epsilon=1e-8,
            weight_decay=decay,
            clip=0.0,
            averaging=np.zeros(0),
        )
        order = random.permutation(len(y))
        _epoch(sizes, addresses, X, y, order, settings.batch_size, goal, dropped, state, adamw)
        fit.epochs += 1
        value = _value(sizes, addresses, X_held, y_held, goal)
        if value < fit.validation_loss:
            fit.validation_loss, fit.best_epoch, fit.temperature = value, fit.epochs, temperature
            for kept, now in zip(best, values, strict=True):
                kept[:] = now
        stopping.step(value)
    with torch.no_grad():
        for layer, weight, bias in zip(linear, best[::2], best[1::2], strict=True):
            layer.weight.copy_(torch.from_numpy(weight.T.copy()))
            layer.bias.copy_(torch.from_numpy(bias))
    return fit


def _known_goal(loss: nn.Module) -> Goal:
    goal = goal_of(loss)
    if goal is None:
        raise ValueError(f"loss: {loss} is not among the compiled ones; can_train() tells.")
    return goal


def _made(make_network: Callable[[], nn.Module], seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make_network()
