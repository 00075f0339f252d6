"""Several trials of a small fully connected network at once, as one batched network.

A network of 32 and 16 units leaves a processor waiting for Python. Ten of them with their own weights, rows, masks and
stopping cost little more than one, and each gets what it would get alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.func import vmap

from benchmarks.papers.training import Fit, Part, Settings, new_optimiser

__all__ = ["train_together"]


def train_together(
    make_network: Callable[[], nn.Module],
    loss: nn.Module,
    trainings: Sequence[Part],
    validations: Sequence[Part],
    settings: Settings,
    *,
    seeds: Sequence[int],
) -> list[Fit]:
    """What ``training.train`` does, for one trial after another at the same time; no annealing, no augmentation.

    Args:
        make_network: Builds an ``nn.Sequential`` of linear layers, ReLU and dropout.
        loss: The loss of all trials; it must not keep a state.
        trainings: Features and classes of each trial. If one has fewer rows (as oversampling brings about), its last
            batch is filled up with rows from the start of the epoch.
        validations: The same of the validation parts, which have one size.
        settings: Optimiser, batches, stopping.
        seeds: Of each trial: weights, batches, dropout.
    """
    networks = [_seeded(make_network, seed) for seed in seeds]
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    fits = [Fit(network.eval()) for network in networks]
    stack = _Stack(networks)
    optimiser = new_optimiser(stack.parameters, settings)
    criterion = _criterion(loss)
    X_held, y_held = (torch.stack([part[i] for part in validations]) for i in (0, 1))
    best = [[p[i].detach().clone() for p in stack.parameters] for i in range(len(fits))]
    alive = list(range(len(fits)))
    for epoch in range(1, settings.max_epochs + 1):
        loss.train()
        _epoch(stack, criterion, optimiser, [trainings[i] for i in alive], [generators[i] for i in alive], settings)
        loss.eval()
        with torch.no_grad():
            values = criterion(stack(X_held), y_held).tolist()
        for place, i in enumerate(alive):
            fits[i].epochs = epoch
            if values[place] < fits[i].validation_loss:
                fits[i].validation_loss, fits[i].best_epoch = values[place], epoch
                for kept, parameter in zip(best[i], stack.parameters, strict=True):
                    kept.copy_(parameter.detach()[place])
        going = [place for place, i in enumerate(alive) if epoch - fits[i].best_epoch < settings.patience]
        if not going:
            break
        if len(going) < len(alive):
            alive = [alive[place] for place in going]
            X_held, y_held = X_held[going], y_held[going]
            _keep(stack, optimiser, going)
    for fit, weights in zip(fits, best, strict=True):
        _Stack.load(fit.network, weights)
    return fits


class _Stack:
    """Linear layers, ReLU and dropout with a leading dimension for the trials."""

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        self.parameters: list[Tensor] = []
        self.plan: list[float | str] = []
        for layers in zip(*networks, strict=True):
            first = layers[0]
            if isinstance(first, nn.Linear):
                weight = torch.stack([layer.weight.detach().T for layer in layers])
                bias = torch.stack([layer.bias.detach()[None] for layer in layers])
                self.parameters += [weight.contiguous().requires_grad_(), bias.requires_grad_()]
                self.plan.append("linear")
            elif isinstance(first, nn.Dropout):
                self.plan.append(first.p)
            elif isinstance(first, nn.ReLU):
                self.plan.append("relu")
            elif not isinstance(first, nn.Flatten):
                raise ValueError(f"make_network: only linear layers, ReLU and dropout can be stacked, got {first}.")
        self.single = self.parameters[-1].shape[-1] == 1

    def __call__(self, X: Tensor, masks: Sequence[Tensor] | None = None) -> Tensor:
        """Logits (trials, n) or (trials, n, classes); without masks as in evaluation."""
        parameters, left = iter(self.parameters), iter(masks or ())
        for step in self.plan:
            if step == "linear":
                weight = next(parameters)
                X = torch.baddbmm(next(parameters), X, weight)
            elif step == "relu":
                X = torch.relu(X)
            elif masks is not None and step:
                X = X * next(left)
        return X.squeeze(-1) if self.single else X

    def masks(self, n: int, generators: Sequence[torch.Generator]) -> list[Tensor]:
        """One random byte for each hidden unit and row that dropout may leave out: those below 256 p are."""
        units = [p.shape[-1] for p in self.parameters[::2]]
        made, layer = [], -1
        for step in self.plan:
            layer += step == "linear"
            if isinstance(step, float) and step:
                made.append(torch.stack([_bytes(n * units[layer], g).view(n, units[layer]) for g in generators]))
        return made

    def scaled(self, masks: Sequence[Tensor]) -> list[Tensor]:
        """Bytes to 0 and 1 / (1 - p)."""
        shares = [step for step in self.plan if isinstance(step, float) and step]
        return [
            (mask >= round(256 * p)).to(torch.float32).mul_(1 / (1 - p)) for mask, p in zip(masks, shares, strict=True)
        ]

    @staticmethod
    def load(network: nn.Module, weights: Sequence[Tensor]) -> None:
        """Put the weights of one trial into its own network."""
        layers = [layer for layer in network.children() if isinstance(layer, nn.Linear)]
        with torch.no_grad():
            for layer, weight, bias in zip(layers, weights[::2], weights[1::2], strict=True):
                layer.weight.copy_(weight.T)
                layer.bias.copy_(bias[0])


def _seeded(make_network: Callable[[], nn.Module], seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make_network()


def _bytes(n: int, generator: torch.Generator) -> Tensor:
    words = torch.empty((n + 7) // 8, dtype=torch.int64).random_(-(2**63), None, generator=generator)
    return words.view(torch.uint8)[:n]


def _criterion(loss: nn.Module) -> Callable[[Tensor, Tensor], Tensor]:
    """The loss of each trial: vectorised, or one after another where it cannot be (pairs of rows, for instance)."""
    batched = vmap(lambda logits, target: loss(logits, target))
    vectorised: bool | None = None

    def losses(logits: Tensor, targets: Tensor) -> Tensor:
        nonlocal vectorised
        if vectorised is not False:
            try:
                made = batched(logits, targets)
                vectorised = True
                return made
            except RuntimeError:
                if vectorised:
                    raise
                vectorised = False
        return torch.stack([loss(one, y) for one, y in zip(logits, targets, strict=True)])

    return losses


def _epoch(
    stack: _Stack,
    criterion: Callable[[Tensor, Tensor], Tensor],
    optimiser: torch.optim.Optimizer,
    parts: Sequence[Part],
    generators: Sequence[torch.Generator],
    settings: Settings,
) -> None:
    longest = max(len(y) for _, y in parts)
    orders = [torch.randperm(len(y), generator=g) for (_, y), g in zip(parts, generators, strict=True)]
    orders = [torch.cat([order, order[: longest - len(order)]]) for order in orders]
    X = torch.stack([features[order] for (features, _), order in zip(parts, orders, strict=True)])
    y = torch.stack([target[order] for (_, target), order in zip(parts, orders, strict=True)])
    masks = stack.masks(longest, generators)
    size = settings.batch_size
    for batch in range(math.ceil(longest / size)):
        here = slice(batch * size, (batch + 1) * size)
        if longest - here.start < 2:
            continue
        logits = stack(X[:, here], stack.scaled([mask[:, here] for mask in masks]))
        # Each trial has weights of its own, so the gradient of the sum is the gradient of each.
        criterion(logits, y[:, here]).sum().backward()
        optimiser.step()
        for parameter in stack.parameters:
            parameter.grad = None


def _keep(stack: _Stack, optimiser: torch.optim.Optimizer, going: list[int]) -> None:
    """Go on with some of the trials only."""
    for parameter in stack.parameters:
        state = optimiser.state[parameter]
        for name, value in state.items():
            if isinstance(value, Tensor) and value.shape == parameter.shape:
                state[name] = value[going].contiguous()
        parameter.data = parameter.data[going].contiguous()
