"""TensorBoard, MLflow and W&B are plain callbacks of MetricClassifier.

python examples/with_tracking.py [folder]      (pip install tensorboard), then: tensorboard --logdir folder
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from sklearn.datasets import load_breast_cancer

from metricfit import MetricClassifier, Recipe
from metricfit.integrations.tracking import TensorBoard
from metricfit.training import EpochEnd


def say(event: EpochEnd) -> None:
    """Any function of an epoch is a callback, too."""
    if event.record.epoch == 1:
        print(f"{event.run}: up to {event.epochs} epochs")


def main() -> None:
    """Train with both callbacks and list what was written."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else temporary)
        X, y = load_breast_cancer(return_X_y=True)
        tracker = TensorBoard(folder)  # or MLflow(), or WandB() after wandb.init()
        recipe = Recipe(min_updates=60, max_epochs=5)
        MetricClassifier("mcc", recipe=recipe, cv=None, callbacks=[tracker, say], random_state=0).fit(X, y)
        print("event files:", len(list(folder.glob("events.out.tfevents.*"))))


if __name__ == "__main__":
    main()
