"""torchmetrics: metrics that torchmetrics does not have, in its own collections.

python examples/with_torchmetrics.py     (pip install 'metricfit[torchmetrics]')
"""

from __future__ import annotations

import torch
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy

from metricfit.integrations.torchmetrics import ConfusionMetric


def main() -> None:
    """Update batch by batch; the values are those of all samples together."""
    random = torch.Generator().manual_seed(0)
    y = torch.multinomial(torch.tensor([0.7, 0.2, 0.1]), 1000, replacement=True, generator=random)
    logits = torch.randn(1000, 3, generator=random) + 1.5 * torch.nn.functional.one_hot(y, 3)
    collection = MetricCollection(
        {
            "accuracy": MulticlassAccuracy(3, average="micro"),  # one of torchmetrics' own
            "gmean": ConfusionMetric("gmean", num_classes=3),
            "mixed": ConfusionMetric("0.7*recall[2] + 0.3*precision[2]", num_classes=3),
            "goal": ConfusionMetric("precision[2] subject to recall[2] >= 0.6", num_classes=3),
        }
    )
    for part in torch.arange(1000).split(128):
        collection.update(logits[part], y[part])
    for name, value in collection.compute().items():
        print(f"{name}: {value.item():.4f}")


if __name__ == "__main__":
    main()
