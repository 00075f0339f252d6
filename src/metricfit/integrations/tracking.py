"""TensorBoard, MLflow and W&B as plain callbacks: ``MetricClassifier(callbacks=[TensorBoard("runs/one")])``.

Each writes the numbers of an epoch as ``<run>/<name>``, the run being ``metric`` or ``baseline``, and imports its
library with the first epoch. Where several processes train together, the first one writes.
"""

from __future__ import annotations

import math
import os
from importlib import import_module
from typing import Any

from metricfit.processes import is_first_process
from metricfit.training.loop import EpochEnd

__all__ = ["MLflow", "TensorBoard", "WandB"]


class _Tracker:
    """Writes an epoch's numbers by :meth:`_write`; an epoch without a validation has no metric."""

    prefix: str

    def __call__(self, event: EpochEnd) -> None:
        """Write an epoch."""
        if is_first_process():
            record = event.record._asdict()
            epoch, run = record.pop("epoch"), f"{self.prefix}{event.run}"
            self._write({f"{run}/{name}": v for name, v in record.items() if not math.isnan(v)}, epoch, run)

    def _write(self, numbers: dict[str, float], epoch: int, run: str) -> None:
        raise NotImplementedError


def _library(name: str, package: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise ImportError(f"tracking needs {package}; install it with: pip install {package}") from error


class TensorBoard(_Tracker):
    """Write to a TensorBoard log folder.

    Args:
        log_dir: The folder; a run of training each.
        prefix: In front of every name.

    Example:
        ``MetricClassifier("f1", callbacks=[TensorBoard("runs/one")])``, then ``tensorboard --logdir runs``.
    """

    def __init__(self, log_dir: str | os.PathLike[str], *, prefix: str = "") -> None:
        self.log_dir, self.prefix = log_dir, prefix
        self._writer: Any = None

    def _write(self, numbers: dict[str, float], epoch: int, run: str) -> None:
        if self._writer is None:
            self._writer = _library("torch.utils.tensorboard", "tensorboard").SummaryWriter(os.fspath(self.log_dir))
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, epoch)
        self._writer.flush()

    def close(self) -> None:
        """Close the file; what was written is there without it, too."""
        if self._writer is not None:
            self._writer.close()
        self._writer = None

    def __getstate__(self) -> dict[str, Any]:
        # scikit-learn copies an estimator's parameters; a copy opens a file of its own.
        return {**vars(self), "_writer": None}


class MLflow(_Tracker):
    """Write to the active MLflow run; MLflow starts one if there is none.

    Args:
        prefix: In front of every name.
        run_id: The run to write to, where it is not the active one.
    """

    def __init__(self, *, prefix: str = "", run_id: str | None = None) -> None:
        self.prefix, self.run_id = prefix, run_id

    def _write(self, numbers: dict[str, float], epoch: int, run: str) -> None:
        options = {} if self.run_id is None else {"run_id": self.run_id}
        _library("mlflow", "mlflow").log_metrics(numbers, step=epoch, **options)


class WandB(_Tracker):
    """Write to the active Weights & Biases run; ``wandb.init`` comes first.

    Steps of W&B only go up, while each training counts its epochs from 1: the epoch is written as a number of its
    own, ``<run>/epoch``, and named as the axis of the others.

    Args:
        prefix: In front of every name.
    """

    def __init__(self, *, prefix: str = "") -> None:
        self.prefix = prefix
        self._defined: set[str] = set()

    def _write(self, numbers: dict[str, float], epoch: int, run: str) -> None:
        active, axis = _library("wandb", "wandb").run, f"{run}/epoch"
        if active is None:
            raise RuntimeError("WandB: there is no active run; call wandb.init(project=…) before training.")
        if axis not in self._defined:
            active.define_metric(axis)
            active.define_metric(f"{run}/*", step_metric=axis)
            self._defined.add(axis)
        active.log({axis: epoch, **numbers})
