"""Small data, a small network and other things that the tests of all integrations use."""

from __future__ import annotations

import torch
from torch import Tensor, nn

FEATURES, CLASSES = 4, 3


def blobs(n: int = 96, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Three overlapping clouds of points; the last is rare."""
    random = torch.Generator().manual_seed(seed)
    y = torch.multinomial(torch.tensor([0.6, 0.3, 0.1]), n, replacement=True, generator=random)
    y[:CLASSES] = torch.arange(CLASSES)
    centres = torch.randn(CLASSES, FEATURES, generator=random)
    return centres[y] + torch.randn(n, FEATURES, generator=random), y


def network(seed: int = 0) -> nn.Sequential:
    """A multi-layer perceptron with given starting weights; the global seed stays."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(FEATURES, 8), nn.ReLU(), nn.Linear(8, CLASSES))


class Model(nn.Module):
    """What the Hugging Face Trainer needs of a model, no more."""

    def __init__(self) -> None:
        super().__init__()
        self.network = network()

    def forward(self, features: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        """The logits."""
        return {"logits": self.network(features)}
