"""Networks with a leading member dimension, so that an ensemble is trained as one, and what moves their weights."""

from __future__ import annotations

import contextlib
import copy
import inspect
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from metricfit.inputs import Task, expect
from metricfit.training.checkpoint import Resumable
from metricfit.training.recipes import Recipe

NARROW = 8  # outputs up to which products are quicker with the transposed matrix, though it has to be copied
SHORTEST_MASK = 1 << 18  # numbers that a long mask of dropout has at least
BLOCK_CELLS = 1 << 22  # numbers that the inputs of a block hold, about: 16 MB
PIECE_CELLS = 1 << 18  # the same on a CPU, for inputs and activations of a layer: 1 MB, which stay in cache


class MemberLinear(nn.Module):
    """One linear layer per member, (members, n, in_features) to (members, n, out_features), started as torch's."""

    def __init__(
        self, members: int, in_features: int, out_features: int, *, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        bound = 1 / math.sqrt(in_features)
        weight = torch.empty(members, in_features, out_features).uniform_(-bound, bound, generator=generator)
        bias = torch.empty(members, 1, out_features).uniform_(-bound, bound, generator=generator)
        self.weight, self.bias = nn.Parameter(weight), nn.Parameter(bias)

    def forward(self, input: Tensor) -> Tensor:
        """All members at once, by one batched product."""
        # Where rows of two or three numbers lie one after the other, BLAS takes several times as long.
        narrow = self.weight.shape[2] <= NARROW
        return torch.baddbmm(self.bias, input, self.weight.mT.contiguous().mT if narrow else self.weight)


class MemberDropout(nn.Module):
    """Dropout from generators of its own, so that no global seed is touched.

    On a CPU, drawing and converting a mask took about a fifth of a step. There the masks are windows, each at a random
    place, of one long mask that is drawn once: as rows are shuffled into other places of the batch every epoch, a row
    meets the same window at the same offset practically never.
    """

    generator: torch.Generator | None = None
    part: tuple[slice, int] | None = None  # masks are drawn for the whole batch, whatever part of it is here

    def __init__(self, rate: float, seed: int = 0) -> None:
        super().__init__()
        self.rate, self.seed, self.long = rate, seed, torch.empty(0)

    def forward(self, input: Tensor) -> Tensor:
        """Activations with a share of ``rate`` dropped, in training only."""
        if not self.training or not self.rate:
            return input
        if self.part is None:
            return input * self._mask(input, input.shape)
        rows, batch = self.part
        return input * self._mask(input, (input.shape[0], batch, input.shape[2]))[:, rows]

    def _mask(self, like: Tensor, shape: Sequence[int]) -> Tensor:
        """0 where an activation is dropped and 1 / (1 - rate) elsewhere."""
        if not like.is_cpu:
            fresh = torch.empty(shape, dtype=like.dtype, device=like.device)
            return fresh.bernoulli_(1 - self.rate, generator=self.generator).div_(1 - self.rate)
        size = math.prod(shape)
        if self.long.dtype != like.dtype or len(self.long) < 2 * size:
            source = torch.Generator().manual_seed(self.seed)
            self.long = torch.empty(max(SHORTEST_MASK, 4 * size), dtype=like.dtype)
            self.long.bernoulli_(1 - self.rate, generator=source).div_(1 - self.rate)
        start = int(torch.randint(len(self.long) - size, (), generator=self.generator))
        return self.long[start : start + size].view(*shape)


class MemberMLP(nn.Module):
    """One multilayer perceptron per member; without hidden sizes a linear model.

    Each hidden layer is followed by ReLU and dropout. Starting weights are drawn from the generator.

    >>> MemberMLP(5, 10, 3, (32, 16))(torch.zeros(5, 4, 10)).shape
    torch.Size([5, 4, 3])
    """

    def __init__(
        self,
        members: int,
        in_features: int,
        out_features: int,
        hidden_sizes: Sequence[int] = (128, 64),
        dropout: float = 0.0,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        self.members, width = members, in_features
        for size in hidden_sizes:
            layers += [MemberLinear(members, width, size, generator=generator), nn.ReLU(inplace=True)]
            if dropout:
                layers.append(MemberDropout(dropout, int(torch.randint(2**62, (), generator=generator))))
            width = size
        self.layers = nn.Sequential(*layers, MemberLinear(members, width, out_features, generator=generator))

    def forward(self, input: Tensor) -> Tensor:
        """Logits (members, n, out_features) of inputs (members, n, in_features), or of the same (n, in_features)."""
        if input.ndim == 2:
            input = input.expand(self.members, *input.shape)
        output: Tensor = self.layers(input)
        return output

    def use_generator(self, generator: torch.Generator | None, part: tuple[slice, int] | None = None) -> None:
        """Draw dropout from this generator, for rows of a batch of a size; without one the long masks are let go."""
        for module in self.layers:
            if isinstance(module, MemberDropout):
                module.generator, module.part = generator, part
                module.long = module.long if generator else torch.empty(0)


class StackedNetworks(nn.Module):
    """Any modules side by side, one per member; each maps (n, features) to (n, out_features)."""

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members, self.networks = len(networks), nn.ModuleList(networks)

    def forward(self, input: Tensor) -> Tensor:
        """Logits (members, n, out_features)."""
        inputs = input if input.ndim == 3 else input.expand(self.members, *input.shape)
        return torch.stack([network(x) for network, x in zip(self.networks, inputs, strict=True)])


def build_network(
    recipe: Recipe, members: int, in_features: int, out_features: int, *, seed: int
) -> MemberMLP | StackedNetworks:
    """The network of an ensemble, as a complete recipe says; no global seed is changed.

    Its ``network`` is ``"mlp"``, ``"linear"``, a module (copied for each member, its parameters started anew where it
    can), or a factory ``(in_features, out_features) -> module``.
    """
    network = recipe.network
    if isinstance(network, str):
        known = "'mlp', 'linear', a module or a factory (in_features, out_features) -> module"
        expect(network in ("mlp", "linear"), "network", known, network)
        sizes = recipe.hidden_sizes if network == "mlp" else ()
        generator = torch.Generator().manual_seed(seed)
        return MemberMLP(members, in_features, out_features, sizes, recipe.dropout, generator=generator)
    # Foreign modules draw their weights from torch's global generator: lend it a seed and give it back as it was.
    with lent_seed(seed, torch.device("cpu")):
        networks = [_one_network(network, in_features, out_features) for _ in range(members)]
        for made in networks:  # each: weights of lazy modules are drawn with the first batch
            _check_outputs(made, in_features, out_features)
    return StackedNetworks(networks)


def _one_network(network: Any, in_features: int, out_features: int) -> nn.Module:
    if isinstance(network, nn.Module):
        try:
            made = copy.deepcopy(network)
        except (RuntimeError, TypeError, ValueError) as error:
            instead = "give a factory (in_features, out_features) -> module instead"
            told = f"network: expected a module that can be copied for each member; {instead}. The error: {error}"
            raise ValueError(told) from error
        for module in made.modules():
            if callable(reset := getattr(module, "reset_parameters", None)):
                reset()
        return made
    if not callable(network):
        raise TypeError(f"network: expected a name, a module or a factory, got {type(network).__name__}.")
    made = network(*_factory_arguments(network, in_features, out_features))
    if not isinstance(made, nn.Module):
        raise TypeError(f"network: the factory must return a torch.nn.Module, got {type(made).__name__}.")
    return made


def _factory_arguments(factory: Callable[..., Any], *sizes: int) -> tuple[int, ...]:
    """Both sizes where the factory takes them, otherwise none."""
    try:
        signature = inspect.signature(factory)
    except ValueError:  # some built-in functions have none
        return sizes
    for arguments in (sizes, ()):
        with contextlib.suppress(TypeError):
            signature.bind(*arguments)
            return arguments
    wanted = "a factory to be called as factory(in_features, out_features), or without arguments"
    got = f"one with the parameters {signature}; wrap it: lambda in_features, out_features: …"
    raise TypeError(f"network: expected {wanted}, got {got}")


def _check_outputs(network: nn.Module, in_features: int, out_features: int) -> None:
    """Ask a module for one batch, so that a wrong shape is told before training starts."""
    try:
        with torch.no_grad():
            output = network.eval()(torch.zeros(2, in_features))
    except RuntimeError as error:
        raise ValueError(
            f"network: it fails on a batch of shape (2, {in_features}), the number of features after preprocessing; "
            f"a factory (in_features, out_features) -> module is told both. The error: {error}"
        ) from error
    got = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
    if got != (2, out_features):
        raise ValueError(f"network: expected logits of shape (n, {out_features}), got {got} for n = 2.")


_GLOBAL_GENERATOR = threading.RLock()


@contextlib.contextmanager
def lent_seed(seed: int, device: torch.device) -> Iterator[None]:
    """Lend torch's global generator a seed, for modules that use it; one thread at a time, since there is only one."""
    with _GLOBAL_GENERATOR, torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


def member_of(name: str) -> int | None:
    """The member a tensor of a :class:`StackedNetworks` belongs to; ``None`` if its first dimension is the members'."""
    parts = name.split(".")
    return int(parts[1]) if parts[0] == "networks" else None


def broadcast_members(values: Tensor, name: str, like: Tensor) -> Tensor:
    """Values (members,) as they broadcast against a tensor of a network, by its name."""
    member = member_of(name)
    return values.reshape(-1, *[1] * (like.ndim - 1)) if member is None else values[member]


def make_optimiser(network: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """AdamW or SGD; weight decay on weights but not on biases, norms and other vectors."""
    found: dict[float, list[nn.Parameter]] = {recipe.weight_decay: [], 0.0: []}
    for name, parameter in network.named_parameters():
        matrix = parameter.ndim > (2 if member_of(name) is None else 1) and "bias" not in name
        found[recipe.weight_decay if matrix else 0.0].append(parameter)
    groups = [{"params": parameters, "weight_decay": decay} for decay, parameters in found.items() if parameters]
    if not groups:
        raise ValueError("network: it has no parameters, there is nothing to train.")
    if recipe.optimiser == "sgd":
        return torch.optim.SGD(groups, lr=recipe.learning_rate, momentum=recipe.momentum, fused=True)
    return torch.optim.AdamW(groups, lr=recipe.learning_rate, fused=True)


def clip_gradients(parameters: Iterable[tuple[str, nn.Parameter]], members: int, largest: float) -> None:
    """Scale down the gradient of each member whose norm exceeds ``largest``; members do not affect each other."""
    found = [(name, p.grad) for name, p in parameters if p.grad is not None]
    squares = torch.zeros(members, device=found[0][1].device)
    for name, gradient in found:
        if (member := member_of(name)) is None:
            squares = squares + gradient.flatten(1).square().sum(dim=1)
        else:
            squares[member] += gradient.square().sum()
    factor = (largest / squares.sqrt().clamp_min(1e-12)).clamp_max(1.0)
    for name, gradient in found:
        gradient.mul_(broadcast_members(factor, name, gradient))


class WeightAverage(Resumable):
    """A moving average of a network's weights and buffers that reaches back so many steps; of none, the weights."""

    kept = ("live", "averaged")

    def __init__(self, network: nn.Module, horizon: float) -> None:
        self.live: dict[str, Tensor] = {**dict(network.named_parameters()), **dict(network.named_buffers())}
        self.decay = 1 - 1 / horizon if horizon > 1 else 0.0
        self.averaged = {name: v.detach().clone() for name, v in self.live.items()} if self.decay else self.live
        self._pairs = [(self.averaged[name], live) for name, live in self.live.items()]
        self._moved = [pair for pair in self._pairs if pair[1].is_floating_point()]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take in the weights after a step, counted from 0; the first steps are forgotten faster."""
        if self.decay:
            share = 1 - min(self.decay, (1 + step) / (10 + step))
            torch._foreach_lerp_([kept for kept, _ in self._moved], [live for _, live in self._moved], share)
            for kept, live in self._pairs:
                if not live.is_floating_point():
                    kept.copy_(live)

    @contextlib.contextmanager
    def lent(self) -> Iterator[None]:
        """Give the network the averaged weights, for the length of a ``with`` block."""
        pairs = self._pairs if self.decay else []
        try:
            for kept, live in pairs:
                kept.data, live.data = live.data, kept.data
            yield
        finally:
            for kept, live in pairs:
                kept.data, live.data = live.data, kept.data


class BestMembers(Resumable):
    """The best weights of each member so far; of equals the latest. Those to start from are given."""

    kept = ("key", "epoch", "state")

    def __init__(self, members: int, state: dict[str, Tensor]) -> None:
        self.key = torch.full((members,), -math.inf, dtype=torch.float64)
        self.epoch = torch.zeros(members, dtype=torch.long)
        self.state = {name: value.detach().clone() for name, value in state.items()}

    def update(self, key: Tensor, epoch: int, state: dict[str, Tensor], active: Tensor) -> None:
        """Keep the weights of the active members whose key is at least the best so far."""
        key = key.detach().double().cpu()
        better = (key >= self.key) & active & key.isfinite()
        self.key = torch.where(better, key, self.key)
        self.epoch = torch.where(better, torch.full_like(self.epoch, epoch), self.epoch)
        for name, kept in self.state.items():
            rows = broadcast_members(better.to(kept.device), name, kept)
            kept.copy_(torch.where(rows, state[name], kept))


def member_probabilities(logits: Tensor, task: Task) -> Tensor:
    """Softmax, or sigmoid for a multi-label task."""
    if task != "multilabel" and logits.shape[-1] == 2:  # softmax of two takes ten times as long
        return (logits - logits.flip(-1)).sigmoid()
    return logits.sigmoid() if task == "multilabel" else logits.softmax(dim=-1)


def each_probabilities(network: nn.Module, features: NDArray[np.float32], task: Task) -> NDArray[np.float64]:
    """Each member's probabilities, (members, n, classes) or (members, n, labels)."""
    members, device = int(getattr(network, "members", 1)), next(network.parameters()).device
    size = rows_at_once(members, features.shape[1], PIECE_CELLS if device.type == "cpu" else BLOCK_CELLS)
    network.eval()
    with torch.no_grad():
        blocks = torch.from_numpy(features).split(size)
        found = [member_probabilities(network(block.to(device)).cpu().double(), task) for block in blocks]
    return np.asarray(torch.cat(found, dim=1).numpy())


def rows_at_once(members: int, features: int, cells: int) -> int:
    """Rows of a block whose inputs hold about so many numbers."""
    return max(256, cells // (members * max(features, 128)))
