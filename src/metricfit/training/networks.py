"""Networks with a leading member dimension: an ensemble is trained as one network."""

from __future__ import annotations

import contextlib
import copy
import inspect
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

__all__ = ["MemberLinear", "MemberMLP", "StackedNetworks", "build_network", "lent_seed"]


NARROW = 8
"""Up to so many outputs products are quicker with the transposed matrix, though it has to be copied."""


class MemberLinear(nn.Module):
    """A linear layer a member: inputs (members, n, in_features) to (members, n, out_features).

    Started as :class:`torch.nn.Linear`, from a generator of its own.

    >>> layer = MemberLinear(5, 3, 2, generator=torch.Generator().manual_seed(0))
    >>> layer(torch.zeros(5, 7, 3)).shape
    torch.Size([5, 7, 2])
    """

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
        return torch.baddbmm(self.bias, input, self.factor())

    def factor(self) -> Tensor:
        """The weights as the right factor of a product: with few outputs columns one after the other.

        Where rows of two or three numbers lie one after the other, BLAS takes several times as long.
        """
        return self.weight.mT.contiguous().mT if self.is_narrow else self.weight

    @property
    def is_narrow(self) -> bool:
        """Whether the outputs are few."""
        return self.weight.shape[2] <= NARROW


class MemberDropout(nn.Module):
    """Dropout from generators of its own, so that no global seed is touched.

    On a CPU, drawing and converting a mask took about a fifth of a step. There the masks are windows, each at a random
    place, of one long mask that is drawn once: as rows are shuffled into other places of the batch every epoch, a row
    meets the same window at the same offset practically never.

    Args:
        rate: Share of activations dropped.
        seed: Seed of the long mask.
    """

    generator: torch.Generator | None = None
    part: tuple[slice, int] | None = None
    """Where a process has a part of each batch: which, and the size of the batch. Masks are drawn for all of it."""

    def __init__(self, rate: float, seed: int = 0) -> None:
        super().__init__()
        self.rate, self.seed = rate, seed
        self.long = torch.empty(0)

    def forward(self, input: Tensor) -> Tensor:
        """Activations with a share of ``rate`` dropped, in training only."""
        if not self.training or not self.rate:
            return input
        return input * self.mask(input)

    def mask(self, like: Tensor) -> Tensor:
        """0 where an activation is dropped and 1 / (1 - rate) elsewhere, of the shape of ``like``."""
        draw = self._window if like.device.type == "cpu" else self._fresh
        if self.part is None:
            return draw(like)
        rows, batch = self.part
        return draw(like.new_empty(()).expand(like.shape[0], batch, like.shape[2]))[:, rows]

    def _fresh(self, like: Tensor) -> Tensor:
        mask = torch.empty(like.shape, dtype=like.dtype, device=like.device)
        return mask.bernoulli_(1 - self.rate, generator=self.generator).div_(1 - self.rate)

    def _window(self, like: Tensor) -> Tensor:
        size = like.numel()
        start = self.window(size, like.dtype)
        return self.long[start : start + size].view(like.shape)

    def window(self, size: int, dtype: torch.dtype = torch.float32) -> int:
        """Where the next window of the long mask starts, which is drawn first where there is none of that length."""
        if self.long.dtype != dtype or len(self.long) < 2 * size:
            source = torch.Generator().manual_seed(self.seed)
            length = max(_SHORTEST_MASK, 4 * size)
            self.long = torch.empty(length, dtype=dtype).bernoulli_(1 - self.rate, generator=source)
            self.long.div_(1 - self.rate)
        return int(torch.randint(len(self.long) - size, (), generator=self.generator))


_SHORTEST_MASK = 1 << 18


class MemberMLP(nn.Module):
    """A multilayer perceptron a member; without hidden sizes a linear model.

    Args:
        members: Ensemble members.
        in_features: Inputs.
        out_features: Logits.
        hidden_sizes: Widths of the hidden layers, each followed by ReLU and dropout.
        dropout: Share of activations dropped.
        generator: Source of the starting weights.

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
        self.members = members
        layers: list[nn.Module] = []
        width = in_features
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

    def use_generator(self, generator: torch.Generator | None) -> None:
        """Draw dropout from this generator; without one the masks, several times the weights, are let go."""
        for module in self.modules():
            if isinstance(module, MemberDropout):
                module.generator = generator
                if generator is None:
                    module.long = torch.empty(0)

    def use_part(self, rows: slice, batch: int) -> None:
        """Batches are these rows of larger ones, whose other rows other processes have."""
        for module in self.modules():
            if isinstance(module, MemberDropout):
                module.part = (rows, batch)


class StackedNetworks(nn.Module):
    """Any modules side by side, one a member: the general, slower form of an ensemble.

    Args:
        networks: One module a member; each maps (n, features) to (n, out_features).
    """

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members = len(networks)
        self.networks = nn.ModuleList(networks)

    def forward(self, input: Tensor) -> Tensor:
        """Logits (members, n, out_features)."""
        inputs = input if input.ndim == 3 else input.expand(self.members, *input.shape)
        return torch.stack([network(x) for network, x in zip(self.networks, inputs, strict=True)])


def build_network(
    network: str | nn.Module | Callable[..., nn.Module],
    *,
    members: int,
    in_features: int,
    out_features: int,
    hidden_sizes: Sequence[int],
    dropout: float,
    seed: int,
) -> MemberMLP | StackedNetworks:
    """The network of an ensemble.

    Args:
        network: ``"mlp"``, ``"linear"``, a module (copied for each member, its parameters started anew where it can),
            or a factory ``(in_features, out_features) -> module``.
        members: Ensemble members.
        in_features: Inputs.
        out_features: Logits.
        hidden_sizes: Widths of the hidden layers of ``"mlp"``.
        dropout: Dropout of ``"mlp"``.
        seed: Seed of the starting weights; no global seed is changed.
    """
    if isinstance(network, str):
        if network not in ("mlp", "linear"):
            raise ValueError(
                f"network: expected 'mlp', 'linear', a module or a factory (in_features, out_features) -> module, "
                f"got {network!r}."
            )
        sizes = hidden_sizes if network == "mlp" else ()
        generator = torch.Generator().manual_seed(seed)
        return MemberMLP(members, in_features, out_features, sizes, dropout, generator=generator)
    # Foreign modules draw their weights from torch's global generator: lend it a seed and give it back as it was.
    with lent_seed(seed, torch.device("cpu")):
        networks = [_one_network(network, in_features, out_features) for _ in range(members)]
        for place, made in enumerate(networks):
            if not place or _is_lazy(made):
                _check_outputs(made, in_features, out_features)
    return StackedNetworks(networks)


def _one_network(network: Any, in_features: int, out_features: int) -> nn.Module:
    if isinstance(network, nn.Module):
        try:
            made = copy.deepcopy(network)
        except (RuntimeError, TypeError, ValueError) as error:
            raise ValueError(
                f"network: expected a module that can be copied for each member; give a factory (in_features, "
                f"out_features) -> module instead. The error: {error}"
            ) from error
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
    raise TypeError(
        f"network: expected a factory to be called as factory(in_features, out_features), or without arguments, got "
        f"one with the parameters {signature}; wrap it: lambda in_features, out_features: …"
    )


def _is_lazy(network: nn.Module) -> bool:
    """Whether it has weights whose shape only a first batch decides."""
    return any(is_lazy(tensor) for tensor in (*network.parameters(), *network.buffers()))


def _check_outputs(network: nn.Module, in_features: int, out_features: int) -> None:
    """Ask a module for one batch, so that a wrong shape is told before training starts."""
    training = network.training
    try:
        with torch.no_grad():
            output = network.eval()(torch.zeros(2, in_features))
    except RuntimeError as error:
        raise ValueError(
            f"network: it fails on a batch of shape (2, {in_features}), the number of features after preprocessing; "
            f"a factory (in_features, out_features) -> module is told both. The error: {error}"
        ) from error
    finally:
        network.train(training)
    if not isinstance(output, Tensor) or tuple(output.shape) != (2, out_features):
        got = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise ValueError(f"network: expected logits of shape (n, {out_features}), got {got} for n = 2.")


class lent_seed:  # noqa: N801 - reads as a statement
    """torch's global generator with a seed for a while, for modules that use it; afterwards as it was.

    One thread at a time: there is one such generator.
    """

    lock = threading.RLock()

    def __init__(self, seed: int, device: torch.device) -> None:
        self.seed = seed
        self.fork = torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])

    def __enter__(self) -> None:
        self.lock.acquire()
        self.fork.__enter__()
        torch.manual_seed(self.seed)

    def __exit__(self, *error: Any) -> None:
        try:
            self.fork.__exit__(*error)
        finally:
            self.lock.release()
