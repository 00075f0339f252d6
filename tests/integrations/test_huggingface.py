"""compute_loss_func and TemperatureAnnealing with the real Trainer and with Accelerate."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from metricfit import MetricLoss, TemperatureAnnealer
from tests.integrations.helper import CLASSES, Model, blobs, network

transformers = pytest.importorskip("transformers", reason="transformers is not installed: make test-slow installs it")
accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed: make test-slow installs it")

from metricfit.integrations.huggingface import STATE, TemperatureAnnealing, compute_loss_func  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:.*pin_memory")


class Rows(Dataset[dict[str, Tensor]]):
    def __init__(self, n: int = 96) -> None:
        self.x, self.y = blobs(n)

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"features": self.x[index], "labels": self.y[index]}


def trainer(folder: Path, loss: nn.Module, *callbacks: Any, model: nn.Module | None = None, **options: Any) -> Any:
    settings = {
        "per_device_train_batch_size": 32,
        "per_device_eval_batch_size": 96,
        "learning_rate": 0.05,
        "lr_scheduler_type": "constant",
        "num_train_epochs": 4,
        "eval_strategy": "epoch",
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": True,
        "disable_tqdm": True,
        "remove_unused_columns": False,
        "label_names": ["labels"],
        "max_grad_norm": 0.0,
        "seed": 3,
    }
    return transformers.Trainer(
        Model() if model is None else model,
        transformers.TrainingArguments(str(folder), **{**settings, **options}),
        train_dataset=Rows(),
        eval_dataset=Rows(),
        compute_loss_func=compute_loss_func(loss),
        callbacks=list(callbacks),
    )


def history(one: Any, name: str) -> list[float]:
    return [entry[name] for entry in one.state.log_history if name in entry]


def test_it_trains_on_the_metric_and_evaluates_without_touching_the_memory(tmp_path: Path) -> None:
    loss = MetricLoss("f1", average="macro", memory=0.9)
    one = trainer(tmp_path, loss, num_train_epochs=15)
    one.train()
    remembered = loss.memories[0].matrix.clone()
    value = one.evaluate()["eval_loss"]
    assert torch.equal(loss.memories[0].matrix, remembered)
    x, y = blobs()
    expected = MetricLoss("f1", average="macro").eval()(one.model.network(x), y).item()
    assert value == pytest.approx(expected, abs=1e-6)
    assert value < history(one, "eval_loss")[0] - 0.05


@pytest.mark.parametrize("sizes", [(8, 8, 8, 8), (8, 8, 4)], ids=["equal", "unequal"])
def test_accumulated_gradient_is_the_weighted_mean_over_micro_batches(sizes: tuple[int, ...], tmp_path: Path) -> None:
    loss = MetricLoss("f1", average="macro")
    x, y = blobs(sum(sizes))
    micro = list(zip(x.split(8), y.split(8), strict=True))
    one = trainer(
        tmp_path,
        loss,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=len(sizes),
        max_steps=1,
        learning_rate=0.5,
        optim="sgd",
        eval_strategy="no",
    )
    one.train_dataset = Rows(sum(sizes))
    one._get_train_sampler = lambda *_: torch.utils.data.SequentialSampler(one.train_dataset)
    start = network()
    weighted = sum(len(b) / sum(sizes) * loss(start(a), b) for a, b in micro)
    weighted.backward()
    one.train()
    for before, after in zip(start.parameters(), one.model.network.parameters(), strict=True):
        torch.testing.assert_close(after, before - 0.5 * before.grad, rtol=0, atol=1e-6)


def test_share_counts_labels_that_are_not_ignored() -> None:
    loss = MetricLoss("f1")
    function = compute_loss_func(loss)
    logits = torch.randn(2, 5, CLASSES, generator=torch.Generator().manual_seed(0), requires_grad=True)
    labels = torch.tensor([[0, 1, 2, -100, -100], [1, 1, 0, 2, -100]])
    plain = loss(logits.movedim(-1, 1), labels)
    assert torch.equal(function(SimpleNamespace(logits=logits), labels), plain)
    torch.testing.assert_close(function((logits,), labels, num_items_in_batch=torch.tensor(28)), plain * 7 / 28)
    assert function({"logits": logits}, torch.full_like(labels, -100), num_items_in_batch=0) == 0


def test_two_processes_accumulate_as_one_with_all_samples(tmp_path: Path) -> None:
    script = Path(__file__).parent / "loss_ranks.py"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(script), str(rank), str(tmp_path / "store"), str(tmp_path / f"{rank}.json")],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    outputs = [rank.communicate(timeout=180)[0] for rank in ranks]
    assert not any(rank.returncode for rank in ranks), "\n".join(outputs)
    for rank in range(2):
        found = json.loads((tmp_path / f"{rank}.json").read_text())
        assert max(found.values()) < 1e-12, found


def test_shapes_of_tasks() -> None:
    random = torch.Generator().manual_seed(0)
    binary = compute_loss_func(MetricLoss("f1", task="binary"))
    logits, labels = torch.randn(6, 1, generator=random), torch.tensor([0, 1, 1, 0, 1, 0])
    assert binary({"logits": logits}, labels) == MetricLoss("f1", task="binary")(logits[:, 0], labels)
    several = compute_loss_func(MetricLoss("f1", task="multilabel"))
    logits, labels = torch.randn(6, 3, generator=random), torch.randint(0, 2, (6, 3), generator=random).float()
    assert several({"logits": logits}, labels) == MetricLoss("f1", task="multilabel")(logits, labels)
    masks = compute_loss_func(MetricLoss("jaccard"), class_dim=1)
    logits, labels = torch.randn(2, 3, 4, 4, generator=random), torch.randint(0, 3, (2, 4, 4), generator=random)
    assert masks({"logits": logits}, labels) == MetricLoss("jaccard").eval()(logits, labels)


def test_plateau_cools_as_the_annealer_does(tmp_path: Path) -> None:
    loss = MetricLoss("f1")
    callback = TemperatureAnnealing(compute_loss_func(loss), factor=0.5, patience=1, min_delta=0.05, stop=False)
    one = trainer(tmp_path, loss, callback, num_train_epochs=8)
    one.train()
    annealer = TemperatureAnnealer(MetricLoss("f1"), factor=0.5, patience=1, min_delta=0.05)
    for value in history(one, "eval_loss"):
        annealer.step(value)
    one.evaluate()  # after training, no part of the schedule
    assert annealer.coolings > 0
    assert callback.annealer.state_dict() == annealer.state_dict()
    assert loss.temperature.item() == pytest.approx(annealer.temperature)


def test_epoch_mode_cools_by_the_clock_and_starts_afresh(tmp_path: Path) -> None:
    loss = MetricLoss("f1")
    callback = TemperatureAnnealing(loss, mode="epoch", factor=0.5, every=2)
    one = trainer(tmp_path, loss, callback, num_train_epochs=5, logging_strategy="epoch")
    for _ in range(2):
        one.train()
        assert loss.temperature.item() == pytest.approx(0.05)
    logged = [entry["temperature"] for entry in one.state.log_history if "loss" in entry]
    assert logged == pytest.approx([0.2, 0.2, 0.1, 0.1, 0.05])


def test_training_ends_when_cooling_is_pointless(tmp_path: Path) -> None:
    loss = MetricLoss("f1")
    one = trainer(
        tmp_path, loss, TemperatureAnnealing(loss, patience=1, max_fruitless=1, min_delta=1.0), num_train_epochs=50
    )
    one.train()
    assert one.state.epoch < 10


@pytest.mark.parametrize("restore", [False, True])
@pytest.mark.parametrize("mode", ["plateau", "epoch"])
def test_a_resumed_run_ends_with_the_same_weights(mode: str, restore: bool, tmp_path: Path) -> None:
    def run(folder: str, epochs: int, checkpoint: Path | None = None) -> tuple[Any, MetricLoss]:
        loss = MetricLoss("f1", memory=0.5)
        options = {"patience": 1, "min_delta": 0.05, "stop": False} if mode == "plateau" else {}
        callback = TemperatureAnnealing(loss, mode=mode, factor=0.7, **options)
        one = trainer(
            tmp_path / folder,
            loss,
            callback,
            num_train_epochs=epochs,
            save_strategy="epoch",
            restore_callback_states_from_checkpoint=restore,
        )
        one.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
        return one, loss

    whole, whole_loss = run("whole", 6)
    run("first", 3)
    checkpoint = tmp_path / "first" / "checkpoint-9"
    saved = json.loads((checkpoint / "trainer_state.json").read_text())["stateful_callbacks"][STATE]
    assert saved["schedule"]["steps"] == (3 if mode == "plateau" else 2)  # by the clock: when the next epoch begins
    second, loss = run("first", 6, checkpoint)
    assert whole_loss.temperature.item() < 0.2
    assert torch.equal(loss.temperature, whole_loss.temperature)
    assert torch.equal(loss.memories[0].matrix, whole_loss.memories[0].matrix)
    for a, b in zip(whole.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_accelerate_accumulates_and_saves_the_annealer(tmp_path: Path) -> None:
    """No adapter is needed: the mean over micro-batches is Accelerate's, and the annealer has a state_dict."""
    x, y = blobs(32)
    loss = MetricLoss("f1")
    annealer = TemperatureAnnealer(loss, mode="epoch", factor=0.5)
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = network()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.5)
    model, optimiser = accelerator.prepare(model, optimiser)
    accelerator.register_for_checkpointing(annealer, loss)
    start = network()
    (sum(loss(start(a), b) for a, b in zip(x.split(16), y.split(16), strict=True)) / 2).backward()
    for a, b in zip(x.split(16), y.split(16), strict=True):
        with accelerator.accumulate(model):
            accelerator.backward(loss(model(a), b))
            optimiser.step()
            optimiser.zero_grad()
    for before, after in zip(start.parameters(), accelerator.unwrap_model(model).parameters(), strict=True):
        torch.testing.assert_close(after, before - 0.5 * before.grad, rtol=0, atol=1e-6)
    annealer.step()
    accelerator.save_state(str(tmp_path / "state"))
    annealer.step()
    assert loss.temperature.item() == pytest.approx(0.05)
    accelerator.load_state(str(tmp_path / "state"))
    assert loss.temperature.item() == pytest.approx(0.1)
    assert annealer.steps == 1


def test_errors(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="loss: expected a loss module such as MetricLoss"):
        compute_loss_func("f1")
    function = compute_loss_func(MetricLoss("f1"))
    with pytest.raises(ValueError, match="labels: the batch has none"):
        function({"logits": torch.zeros(2, 3)}, None)
    with pytest.raises(TypeError, match="outputs: the model returned no logits"):
        function({"scores": torch.zeros(2, 3)}, torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="every: has no effect with mode='plateau'"):
        TemperatureAnnealing(MetricLoss("f1"), every=2)
    with pytest.raises(ValueError, match="holds no loss with a temperature"):
        TemperatureAnnealing(nn.CrossEntropyLoss())
    loss = MetricLoss("f1")
    with pytest.raises(ValueError, match="monitor: the evaluation did not give 'eval_f2'"):
        trainer(tmp_path, loss, TemperatureAnnealing(loss, "eval_f2"), num_train_epochs=1).train()
