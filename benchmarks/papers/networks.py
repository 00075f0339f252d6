"""The papers' networks in plain torch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

__all__ = ["NAMES", "build", "n_parameters"]

TINY_DARKNET = "16 M 32 M 16 128 16 128 M 32 256 32 256 M 64 512 64 512 128"
DARKNET_19 = "32 M 64 M 128 64 128 M 256 128 256 M 512 256 512 256 512 M 1024 512 1024 512 1024"
"""Channels of the convolutions; M is max pooling. A convolution to fewer channels has size 1 x 1, the others 3 x 3."""


def build(
    name: str, in_shape: tuple[int, ...], n_outputs: int, *, dropout: float = 0.0, width: float = 1.0
) -> nn.Module:
    """A network with initial weights from torch's default generator.

    Args:
        name: ``"linear"``; layers of units such as ``"32-16"`` (btg) or ``"512-256-128"`` (east); ``"tiny-darknet"``,
            ``"darknet-19"``, ``"resnet-18"``, ``"resnet-34"`` for images.
        in_shape: Shape of a sample: (features,) or (channels, height, width).
        n_outputs: Logits a sample. With one, the network gives shape (n,), otherwise (n, n_outputs).
        dropout: After each hidden layer, and before the last layer of the networks for images.
        width: Less than 1 narrows all layers.

    >>> build("32-16", (22,), 1)(torch.zeros(5, 22)).shape
    torch.Size([5])
    """
    if name in _IMAGE_NETWORKS:
        if len(in_shape) != 3:
            raise ValueError(f"in_shape: {name} takes images (channels, height, width), got {in_shape}.")
        layers = _IMAGE_NETWORKS[name](in_shape[0], n_outputs, dropout, width)
    elif name == "linear" or all(part.isdigit() for part in name.split("-")):
        units = [] if name == "linear" else [int(part) for part in name.split("-")]
        layers = _fully_connected(in_shape, [_narrow(u, width) for u in units], n_outputs, dropout)
    else:
        known = ", ".join(["linear", "32-16", *_IMAGE_NETWORKS])
        raise ValueError(f"name: expected one of {known} (any numbers of units), got {name!r}.")
    return nn.Sequential(*layers, nn.Flatten(0)) if n_outputs == 1 else nn.Sequential(*layers)


def n_parameters(network: nn.Module) -> int:
    """Number of trainable parameters.

    >>> n_parameters(build("32-16", (22,), 1))  # 22·32 + 32 + 32·16 + 16 + 16 + 1
    1281
    """
    return sum(p.numel() for p in network.parameters() if p.requires_grad)


def _narrow(channels: int, width: float) -> int:
    return max(1, round(channels * width))


def _fully_connected(in_shape: tuple[int, ...], units: list[int], n_outputs: int, dropout: float) -> list[nn.Module]:
    inputs = torch.Size(in_shape).numel()
    layers: list[nn.Module] = [nn.Flatten()] if len(in_shape) > 1 else []
    for size in units:
        layers += [nn.Linear(inputs, size), nn.ReLU(), nn.Dropout(dropout)]
        inputs = size
    return [*layers, nn.Linear(inputs, n_outputs)]


def _darknet(plan: str, channels: int, n_outputs: int, dropout: float, width: float) -> list[nn.Module]:
    """Redmon's networks: convolutions with batch normalisation and leaky ReLU; the last has size 1 and is averaged."""
    layers: list[nn.Module] = []
    previous = 0
    for step in plan.split():
        if step == "M":
            layers.append(nn.MaxPool2d(2))
            continue
        wide = int(step)
        size = 1 if wide < previous else 3
        out = _narrow(wide, width)
        layers += [
            nn.Conv2d(channels, out, size, padding=size // 2, bias=False),
            nn.BatchNorm2d(out),
            nn.LeakyReLU(0.1),
        ]
        channels, previous = out, wide
    layers += [nn.Dropout(dropout), nn.Conv2d(channels, n_outputs, 1)]
    return [*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()]


def _resnet(blocks: tuple[int, ...], channels: int, n_outputs: int, dropout: float, width: float) -> list[nn.Module]:
    """He et al. 2016 with the stem for small images: a 3 x 3 convolution with stride 1 and no pooling."""
    # Grey images are repeated into three channels, as surrogate-fbeta does.
    layers: list[nn.Module] = [_Repeat(3)] if channels == 1 else []
    inputs, wide = max(channels, 3), _narrow(64, width)
    layers += [nn.Conv2d(inputs, wide, 3, padding=1, bias=False), nn.BatchNorm2d(wide), nn.ReLU()]
    inputs = wide
    for stage, count in enumerate(blocks):
        wide = _narrow(64 * 2**stage, width)
        for block in range(count):
            layers.append(_Block(inputs, wide, stride=2 if stage and block == 0 else 1))
            inputs = wide
    return [*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(dropout), nn.Linear(inputs, n_outputs)]


class _Repeat(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = channels

    def forward(self, images: Tensor) -> Tensor:
        return images.expand(-1, self.channels, -1, -1)


class _Block(nn.Module):
    """Two 3 x 3 convolutions and what they are added to."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        same = stride == 1 and inputs == outputs
        self.shortcut = (
            nn.Identity()
            if same
            else nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        )

    def forward(self, images: Tensor) -> Tensor:
        return torch.relu(self.residual(images) + self.shortcut(images))


_IMAGE_NETWORKS: dict[str, Callable[[int, int, float, float], list[nn.Module]]] = {
    "tiny-darknet": partial(_darknet, TINY_DARKNET),
    "darknet-19": partial(_darknet, DARKNET_19),
    "resnet-18": partial(_resnet, (2, 2, 2, 2)),
    "resnet-34": partial(_resnet, (3, 4, 6, 3)),
}
NAMES = ("linear", "32-16", "512-256-128", *_IMAGE_NETWORKS)
"""The networks that the papers use."""
