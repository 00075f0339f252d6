"""TensorBoard, MLflow and W&B as plain callbacks: ``MetricClassifier(callbacks=[TensorBoard("runs/one")])``.

Each writes the numbers of an epoch as ``<run>/<name>``, the run being ``metric`` or ``baseline``, and imports its
library with the first epoch. Where several processes train together, the first one writes.
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

from metricfit.distributed import is_first_process
from metricfit.integrations import library
from metricfit.training.loop import EpochEnd

__all__ = ["MLflow", "TensorBoard", "WandB"]


class _Tracker(ABC):
    """Writes an epoch's numbers by :meth:`_write`; an epoch without a validation has no metric."""

    def __call__(self, event: EpochEnd) -> None:
        if is_first_process():
            record = event.record._asdict()
            epoch = record.pop("epoch")
            numbers = {f"{event.run}/{name}": value for name, value in record.items() if not math.isnan(value)}
            self._write(numbers, epoch, event.run)

    @abstractmethod
    def _write(self, numbers: dict[str, float], epoch: int, run: str) -> None: ...


@dataclass(eq=False)
class TensorBoard(_Tracker):
    """Write to a TensorBoard log folder, one for each run of training.

    Example:
        ``MetricClassifier("f1", callbacks=[TensorBoard("runs/one")])``, then ``tensorboard --logdir runs``.
    """

    log_dir: str | os.PathLike[str]
    _writer: Any = field(default=None, init=False, repr=False)

    def _write(self, numbers: dict[str, float], epoch: int, run: str) -> None:
        if self._writer is None:
            self._writer = library("torch.utils.tensorboard", "tensorboard").SummaryWriter(os.fspath(self.log_dir))
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, epoch)
        self._writer.flush()

    def __getstate__(self) -> dict[str, Any]:
        # scikit-learn copies an estimator's parameters; a copy opens a file of its own.
        return {**vars(self), "_writer": None}


@dataclass(eq=False)
class MLflow(_Tracker):
    """Write to the active MLflow run; MLflow starts one if there is none."""

    def _write(self, numbers: dict[str, float], epoch: int, run: str) -> None:
        library("mlflow", "mlflow").log_metrics(numbers, step=epoch)


@dataclass(eq=False)
class WandB(_Tracker):
    """Write to the active Weights & Biases run; ``wandb.init`` comes first.

    Steps of W&B only go up, while each training counts its epochs from 1: the epoch is written as a number of its
    own, ``<run>/epoch``, and named as the axis of the others.
    """

    _defined: set[str] = field(default_factory=set, init=False, repr=False)

    def _write(self, numbers: dict[str, float], epoch: int, run: str) -> None:
        active, axis = library("wandb", "wandb").run, f"{run}/epoch"
        if active is None:
            raise RuntimeError("WandB: there is no active run; call wandb.init(project=…) before training.")
        if axis not in self._defined:
            active.define_metric(axis)
            active.define_metric(f"{run}/*", step_metric=axis)
            self._defined.add(axis)
        active.log({axis: epoch, **numbers})
