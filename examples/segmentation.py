"""Segmentation: masks (N, C, H, W), macro Jaccard, positions to ignore; against cross-entropy and Dice.

Generated pictures of noise with discs (a tenth of the pixels), bars (3 %) and dots (a half percent) on a background.
Pixels on the edge of a shape are marked 255 and count neither in training nor in the score, as in many real sets.
The same small network is trained with each loss; the score is macro Jaccard over all pixels of new pictures.

    python examples/segmentation.py --seeds 3
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable

import torch
from torch import Tensor, nn

from metricfit import MetricLoss, metrics
from metricfit.confusion import hard_confusion_matrix
from metricfit.losses import DiceLoss

SIZE, CLASSES, IGNORED = 24, 4, 255
SHADES = torch.tensor([0.0, 1.2, 0.9, 1.6])
LOSSES: dict[str, Callable[[], nn.Module]] = {
    "cross-entropy": lambda: nn.CrossEntropyLoss(ignore_index=IGNORED),
    "Dice": lambda: DiceLoss(ignore_index=IGNORED),
    "Jaccard": lambda: MetricLoss("jaccard:average=macro", ignore_index=IGNORED),
    "Jaccard + 0.5 cross-entropy": lambda: MetricLoss(
        "jaccard:average=macro", ignore_index=IGNORED, cross_entropy=0.5, memory=0.9
    ),
}


def pictures(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """Pictures (n, 1, H, W) and masks (n, H, W)."""
    random = torch.Generator().manual_seed(seed)
    rows, columns = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    masks = torch.zeros(n, SIZE, SIZE, dtype=torch.long)
    for mask in masks:
        place = torch.randint(4, SIZE - 4, (3, 2), generator=random)
        radius = 3 + 3 * torch.rand(1, generator=random)
        mask[(rows - place[0, 0]) ** 2 + (columns - place[0, 1]) ** 2 < radius**2] = 1
        mask[((rows - place[1, 0]).abs() <= 1) & ((columns - place[1, 1]).abs() <= 4)] = 2
        mask[((rows - place[2, 0]).abs() <= 1) & ((columns - place[2, 1]).abs() <= 1)] = 3
    images = SHADES[masks][:, None] + 0.6 * torch.randn(n, 1, SIZE, SIZE, generator=random)
    edge = torch.zeros_like(masks, dtype=torch.bool)
    edge[:, 1:] |= masks[:, 1:] != masks[:, :-1]
    edge[:, :, 1:] |= masks[:, :, 1:] != masks[:, :, :-1]
    return images, masks.masked_fill(edge, IGNORED)


def network(seed: int) -> nn.Sequential:
    """Three small convolutions that see a wider and wider neighbourhood."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
            nn.Conv2d(8, 8, 3, padding=2, dilation=2, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
            nn.Conv2d(8, 8, 3, padding=4, dilation=4, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
            nn.Conv2d(8, CLASSES, 1),
        )  # fmt: skip


def train(loss: nn.Module, images: Tensor, masks: Tensor, seed: int, steps: int) -> nn.Sequential:
    """The usual loop; it knows nothing of the loss."""
    model = network(seed)
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.02)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    order = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        batch = torch.randint(len(images), (8,), generator=order)
        optimiser.zero_grad()
        loss(model(images[batch]), masks[batch]).backward()
        optimiser.step()
        schedule.step()
    return model.eval()


def jaccard_of_classes(model: nn.Sequential, images: Tensor, masks: Tensor) -> list[float]:
    """The exact Jaccard index of each class on new pictures, without the ignored pixels."""
    with torch.no_grad():
        cm = hard_confusion_matrix(model(images), masks, ignore_index=IGNORED)
    values: list[float] = metrics.get("jaccard:average=none").compute(cm).tolist()
    return values


def main() -> None:
    """Train with every loss on every seed, and print the scores with their spread."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, list[list[float]]] = {name: [] for name in LOSSES}
    for seed in range(options.seeds):
        images, masks = pictures(160, seed=2 * seed)
        new = pictures(80, seed=2 * seed + 1)
        for name, make in LOSSES.items():
            model = train(make(), images, masks, seed, options.steps)
            found[name].append(jaccard_of_classes(model, *new))
    print(f"Jaccard × 100 on new pictures, mean of {options.seeds} seeds (macro: ± standard deviation)")
    print(f"{'loss':30}{'macro':>14}{'ground':>9}{'disc':>9}{'bar':>9}{'dot':>9}")
    for name, runs in found.items():
        macro = [100 * statistics.mean(run) for run in runs]
        spread = statistics.stdev(macro) if len(macro) > 1 else float("nan")
        classes = [100 * statistics.mean(column) for column in zip(*runs, strict=True)]
        print(f"{name:30}{statistics.mean(macro):8.1f} ± {spread:3.1f}" + "".join(f"{value:9.1f}" for value in classes))


if __name__ == "__main__":
    main()
