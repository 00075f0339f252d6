"""The Hugging Face Trainer: a metric loss as ``compute_loss_func``, and a callback that cools its temperature."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from metricfit.annealing import Mode
from metricfit.distributed import group_of, sum_over_processes
from metricfit.integrations import Schedule, library, losses_of

TrainerCallback: Any = library("transformers", "metricfit[huggingface]").TrainerCallback

__all__ = ["TemperatureAnnealing", "compute_loss_func"]

STATE = "metricfit.TemperatureAnnealing"
"""Where the schedule is kept in ``trainer_state.json``, among the states of callbacks."""


class compute_loss_func:  # noqa: N801 - read as the Trainer's argument of that name
    """A metric loss as the Trainer's ``compute_loss_func``.

    With gradient accumulation, each micro-batch's loss is multiplied by its share of the labels of the update: the
    gradient is the weighted mean over the micro-batches. The metric of one large batch is not the mean over small ones;
    give the loss a ``memory`` where micro-batches are too small for the metric. While the model is evaluated (no
    gradient is recorded) the loss is in evaluation mode: its memory is left alone, and processes do not wait.

    Args:
        loss: A :class:`metricfit.MetricLoss` or another loss of ``(logits, labels)``.
        class_dim: The dimension of the logits that holds the classes: the last for sequences, tokens and images
            (N, …, C), 1 for segmentation (N, C, H, W).

    Example:
        ``Trainer(model, args, compute_loss_func=compute_loss_func(MetricLoss("f1")), …)``; see
        ``examples/with_huggingface.py``.
    """

    def __init__(self, loss: nn.Module, *, class_dim: int = -1) -> None:
        if not isinstance(loss, nn.Module):
            raise TypeError(f"loss: expected a loss module such as MetricLoss('f1'), got {type(loss).__name__}.")
        self.loss, self.class_dim = loss, class_dim

    def __call__(self, outputs: Any, labels: Tensor | None, num_items_in_batch: Tensor | int | None = None) -> Tensor:
        """The loss of what a model returned for a micro-batch, times its share of the optimiser step's labels."""
        if labels is None:
            raise ValueError("labels: the batch has none; name the column 'labels', or set args.label_names.")
        logits = outputs.get("logits") if isinstance(outputs, dict) else getattr(outputs, "logits", outputs)
        if isinstance(logits, tuple | list):
            logits = next((one for one in logits if isinstance(one, Tensor)), None)
        if not isinstance(logits, Tensor):
            raise TypeError(f"outputs: the model returned no logits but {type(outputs).__name__}; use a classifier.")
        if getattr(self.loss, "task", "multiclass") != "binary":
            logits = logits.movedim(self.class_dim, 1) if logits.ndim > 1 else logits
        elif logits.ndim == labels.ndim + 1 and logits.shape[-1] == 1:
            logits = logits.squeeze(-1)
        training = logits.requires_grad
        value: Tensor = self.loss.to(logits.device).train(training)(logits, labels)
        return value if num_items_in_batch is None else value * self._share(labels, num_items_in_batch, training)

    def _share(self, labels: Tensor, num_items_in_batch: Tensor | int, training: bool) -> Tensor:
        own = labels.ne(-100).sum().double()  # as the Trainer counts them
        # Under DataParallel the same number comes once per device.
        step = torch.as_tensor(num_items_in_batch, device=own.device).double().flatten()[0]
        # The loss of several processes is one loss of all their samples, so its share is that of all their labels.
        # This holds whether the Trainer counted the labels of one process, or those of all and multiplies the loss by
        # the number of processes afterwards.
        group = group_of(getattr(self.loss, "sync", False), training)
        own, step = sum_over_processes([own, step], group)
        return torch.where(step > 0, own / step, torch.zeros_like(own)).float()


class TemperatureAnnealing(TrainerCallback):  # type: ignore[misc]
    """Cool the temperature of a metric loss that the Trainer trains with.

    The schedule, the temperature and the loss's memory are kept in ``trainer_state.json`` of each checkpoint; a run
    that starts with ``resume_from_checkpoint`` goes on from there without further options.

    Args:
        loss: The loss, or what :class:`compute_loss_func` made of it.
        monitor: The evaluation metric that ``mode="plateau"`` watches, ``"eval_loss"`` by default.
        mode: ``"plateau"`` cools when the evaluation loss has stopped falling, and counts evaluations; ``"epoch"``
            cools every ``every`` epochs.
        stop: Whether to end training once further cooling is pointless (``mode="plateau"``).
        options: Of :class:`metricfit.TemperatureAnnealer`: ``factor``, ``patience``, ``min_delta`` and so on.

    Example:
        ``Trainer(…, callbacks=[TemperatureAnnealing(loss, patience=3)])``; see ``examples/with_huggingface.py``.
    """

    def __init__(
        self, loss: nn.Module | compute_loss_func, monitor: str | None = None, *, mode: Mode = "plateau",
        stop: bool = True, **options: Any,
    ) -> None:  # fmt: skip
        self.schedule = Schedule(mode, monitor, "eval_loss", stop, options)
        self.module: nn.Module = loss.loss if isinstance(loss, compute_loss_func) else loss
        self.schedule.attach(losses_of(self.module))
        self.annealer = self.schedule.annealer
        self._first, self._training = self._state(), False

    def _state(self) -> dict[str, Any]:
        tensors = {name: value.tolist() for name, value in self.module.state_dict().items()}
        return {"schedule": self.annealer.state_dict(), "loss": tensors}

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Go on from a checkpoint, or start afresh."""
        self._training = True
        saved = state.stateful_callbacks.get(STATE) if state.global_step else self._first
        if saved is not None:
            self.annealer.load_state_dict(dict(saved["schedule"]))
            tensors = {name: torch.tensor(values) for name, values in saved["loss"].items()}
            self.module.load_state_dict(tensors, strict=False)
            state.stateful_callbacks[STATE] = self._state()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Evaluations after this one are no part of the schedule."""
        self._training = False

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Have the state ready if a checkpoint is due."""
        if control.should_save:
            state.stateful_callbacks[STATE] = self._state()

    on_epoch_end = on_step_end

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Cool by the clock."""
        self.schedule.reach(int((state.epoch or 0) + 1e-6))

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **_: Any) -> None:
        """Give the evaluation loss to the schedule."""
        if self._training:
            missing = f"the evaluation did not give {self.schedule.monitor!r} but {{}}; name one of these."
            control.should_training_stop |= self.schedule.observe(metrics or {}, missing)
            state.stateful_callbacks[STATE] = self._state()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Add the temperature to what is logged, and to the history, which has its copy of the logs already."""
        if logs is not None and self._training:
            logs["temperature"] = self.annealer.temperature
            if state.log_history:
                state.log_history[-1]["temperature"] = self.annealer.temperature
