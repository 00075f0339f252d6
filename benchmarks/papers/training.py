"""The papers' plain training loop: batches, an optimiser, early stopping on the validation loss, annealing."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from metricfit import TemperatureAnnealer

__all__ = ["Fit", "Part", "Settings", "new_optimiser", "outputs", "train"]

Part = tuple[Tensor, Tensor]
LARGEST_BLOCK = 1_000_000
"""Numbers that go through a network at once in evaluation: one go for any table, pieces for images."""


@dataclass(frozen=True)
class Settings:
    """What the loop needs to know; the fields are those of :class:`benchmarks.papers.config.Protocol`."""

    optimiser: str
    learning_rate: float
    batch_size: int
    patience: int
    max_epochs: int
    momentum: float = 0.0
    weight_decay: float | None = None
    factor: float | None = None
    """r of the annealing; ``None`` for none."""
    fruitless: int = 3
    augment: bool = False
    min_delta: float = 0.0
    """A validation loss has to fall by more than this to count as lower."""


@dataclass
class Fit:
    """A trained network.

    Attributes:
        network: With the weights of its best epoch, in evaluation mode.
        validation_loss: Its loss there.
        epochs: Epochs trained.
        best_epoch: The one that was kept, from 1.
        temperature: At that epoch; NaN without annealing.
        history: What ``watch`` returned after each epoch.
    """

    network: nn.Module
    validation_loss: float = math.inf
    epochs: int = 0
    best_epoch: int = 0
    temperature: float = math.nan
    history: list[dict[str, float]] = field(default_factory=list)


def train(
    make_network: Callable[[], nn.Module],
    loss: nn.Module,
    training: Part,
    validation: Part,
    settings: Settings,
    *,
    seed: int,
    device: str = "cpu",
    watch: Callable[[nn.Module], dict[str, float]] | None = None,
) -> Fit:
    """Train until the validation loss has not fallen for ``patience`` epochs, and keep the best epoch.

    With a ``factor`` the loss is annealed: after each plateau the temperature falls by it, until the validation loss
    has not got lower over ``fruitless`` drops. The state of torch's random numbers is left as it was.

    Args:
        make_network: Builds the network; its initial weights depend on the seed alone.
        loss: ``loss(logits, target)``.
        training: Features and classes.
        validation: Features and classes; its loss is computed on all of it at once.
        settings: Optimiser, batches, stopping.
        seed: Of weights, batches, dropout.
        device: Where to train.
        watch: Called after each epoch with the network in evaluation mode; its scores are kept.
    """
    X, y = (tensor.to(device) for tensor in training)
    held = tuple(tensor.to(device) for tensor in validation)
    with torch.random.fork_rng(devices=[device] if device != "cpu" else []):
        torch.manual_seed(seed)
        network = with_quick_dropout(make_network()).to(device)
        loss = loss.to(device)
        fit = Fit(network)
        optimiser = new_optimiser(network.parameters(), settings)
        stopping = Stopping(loss, settings)
        best = copy.deepcopy(network.state_dict())
        while not stopping.finished and fit.epochs < settings.max_epochs:
            temperature = stopping.temperature
            _epoch(network, loss, optimiser, X, y, settings)
            network.eval()
            value = float(_loss_of(network, loss, held[0], held[1]))
            fit.epochs += 1
            if value < fit.validation_loss:
                fit.validation_loss, fit.best_epoch, fit.temperature = value, fit.epochs, temperature
                best = {name: tensor.clone() for name, tensor in network.state_dict().items()}
            if watch is not None:
                fit.history.append(watch(network))
            stopping.step(value)
        network.load_state_dict(best)
    network.eval()
    return fit


class Stopping:
    """When to stop, and which temperature comes next."""

    def __init__(self, loss: nn.Module, settings: Settings) -> None:
        self.patience, self.min_delta = settings.patience, settings.min_delta
        self.best, self.waited = math.inf, 0
        self.annealer: TemperatureAnnealer | None = None
        if settings.factor is not None:
            self.annealer = TemperatureAnnealer(
                loss,  # type: ignore[arg-type]
                factor=settings.factor,
                patience=settings.patience,
                min_delta=settings.min_delta,
                max_fruitless=settings.fruitless,
            )

    @property
    def finished(self) -> bool:
        return self.waited >= self.patience if self.annealer is None else self.annealer.finished

    @property
    def temperature(self) -> float:
        return math.nan if self.annealer is None else self.annealer.temperature

    def step(self, value: float) -> None:
        """Count an epoch."""
        if self.annealer is not None:
            self.annealer.step(value)
        elif value < self.best - self.min_delta:
            self.best, self.waited = value, 0
        else:
            self.waited += 1


def outputs(network: nn.Module, X: Tensor, device: str = "cpu") -> Tensor:
    """Logits of all rows, (n,) for a single output; the network is put in evaluation mode."""
    network.eval()
    rows = max(1, LARGEST_BLOCK // max(1, X[0].numel()))
    with torch.no_grad():
        made = torch.cat([network(piece.to(device)) for piece in X.split(rows)])
    return made.cpu()


def _loss_of(network: nn.Module, loss: nn.Module, X: Tensor, y: Tensor) -> Tensor:
    with torch.no_grad():
        return loss(outputs(network, X, str(X.device)).to(X.device), y)


def _epoch(
    network: nn.Module, loss: nn.Module, optimiser: torch.optim.Optimizer, X: Tensor, y: Tensor, settings: Settings
) -> None:
    network.train()
    order = torch.randperm(len(y), device=y.device)
    # Shuffled once per epoch, so that each batch is a slice: indexing costs more than such a network.
    batches = zip(X[order].split(settings.batch_size), y[order].split(settings.batch_size), strict=True)
    for features, target in batches:
        if len(target) < 2:  # batch normalisation needs two rows, and one row has no metric to speak of
            continue
        logits = network(augmented(features) if settings.augment else features)
        value = loss(logits, target)
        if value.requires_grad:
            value.backward()
            optimiser.step()
            for parameter in network.parameters():  # what zero_grad does, without its bookkeeping
                parameter.grad = None


def augmented(images: Tensor, padding: int | None = None) -> Tensor:
    """Random crops of the padded images (by an eighth: 4 of 32 pixels), half of them flipped; (n, C, H, W)."""
    n, channels, height, width = images.shape
    padding = height // 8 if padding is None else padding
    device = images.device
    padded = F.pad(images, [padding] * 4)
    down, right = torch.randint(0, 2 * padding + 1, (2, n), device=device)
    rows = (down[:, None] + torch.arange(height, device=device))[:, None, :, None]
    columns = right[:, None] + torch.arange(width, device=device)
    flipped = torch.rand(n, device=device) < 0.5
    columns = torch.where(flipped[:, None], columns.flip(1), columns)[:, None, None, :]
    sample = torch.arange(n, device=device)[:, None, None, None]
    return padded[sample, torch.arange(channels, device=device)[None, :, None, None], rows, columns]


class QuickDropout(nn.Module):
    """``nn.Dropout`` from random bytes: the same distribution, a tenth of its time, which is most of a small step."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p, self.dropped = p, round(256 * p)

    def forward(self, x: Tensor) -> Tensor:
        """Leave out each number with probability p and scale up the others."""
        if not self.training:
            return x
        bits = torch.empty((x.numel() + 7) // 8, dtype=torch.int64, device=x.device).random_(-(2**63), None)
        kept = bits.view(torch.uint8)[: x.numel()].view(x.shape) >= self.dropped
        return x * kept.to(x.dtype).mul_(1 / (1 - self.p))


def with_quick_dropout(network: nn.Module) -> nn.Module:
    """Replace each ``nn.Dropout`` whose probability is a whole number of 256ths."""
    for name, module in network.named_children():
        if isinstance(module, nn.Dropout) and 0 < module.p < 1 and (256 * module.p).is_integer():
            setattr(network, name, QuickDropout(module.p))
        else:
            with_quick_dropout(module)
    return network


def new_optimiser(parameters: Iterable[Tensor], settings: Settings) -> torch.optim.Optimizer:
    options: dict[str, Any] = {"lr": settings.learning_rate}
    if settings.weight_decay is not None:
        options["weight_decay"] = settings.weight_decay
    kinds: dict[str, Callable[..., torch.optim.Optimizer]] = {
        "adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD,
    }  # fmt: skip
    if settings.optimiser not in kinds:
        raise ValueError(f"optimiser: expected one of {', '.join(kinds)}, got {settings.optimiser!r}.")
    if settings.optimiser == "sgd":
        options["momentum"] = settings.momentum
    return kinds[settings.optimiser](parameters, fused=True, **options)
