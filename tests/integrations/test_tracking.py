"""Trackers through the plain callback interface: with stand-ins, and with the real libraries if installed."""

from __future__ import annotations

import copy
import math
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris

from metricfit import MetricClassifier
from metricfit.integrations.tracking import MLflow, TensorBoard, WandB
from metricfit.training.loop import EpochEnd, EpochRecord
from tests.helper import make_classifier


def event(epoch: int, run: str = "network", metric: float = 0.5) -> EpochEnd:
    return EpochEnd(run, EpochRecord(epoch, 0.25, metric, metric, 0.75, 0.2, 0.01, 5, 0.5), 10)


class Journal(ModuleType):
    """Notes every call, in place of a library."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.run: Any = self

    def _note(self, name: str) -> Any:
        return lambda *args, **kwargs: self.calls.append((name, args, kwargs))

    def __getattr__(self, name: str) -> Any:
        if name in ("log_metrics", "log", "define_metric"):
            return self._note(name)
        raise AttributeError(name)


def test_mlflow_gets_the_numbers_of_each_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal("mlflow")
    monkeypatch.setitem(sys.modules, "mlflow", journal)
    callback = MLflow()
    assert callback(event(3)) is None, "a true result would end the training"
    name, (values,), options = journal.calls[0]
    assert (name, options) == ("log_metrics", {"step": 3})
    assert values["network/hard_metric"] == 0.5
    assert values["network/loss"] == 0.25
    assert not any("epoch" in key for key in values)
    callback(event(4, metric=math.nan))
    _, (values,), options = journal.calls[1]
    assert options == {"step": 4}
    assert "network/hard_metric" not in values, "an epoch without validation has no metric"


def test_wandb_counts_the_epochs_of_each_run_on_an_axis_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal("wandb")
    monkeypatch.setitem(sys.modules, "wandb", journal)
    callback = WandB()
    for number in (1, 2):
        callback(event(number))
    callback(event(1, run="network_ce"))
    defined = [
        (args[0], options.get("step_metric")) for name, args, options in journal.calls if name == "define_metric"
    ]
    assert defined == [
        ("network/epoch", None),
        ("network/*", "network/epoch"),
        ("network_ce/epoch", None),
        ("network_ce/*", "network_ce/epoch"),
    ]
    logged = [args[0] for name, args, _ in journal.calls if name == "log"]
    assert [row.get("network/epoch", row.get("network_ce/epoch")) for row in logged] == [1, 2, 1]
    journal.run = None
    with pytest.raises(RuntimeError, match=r"call wandb.init\(project=…\) before training"):
        callback(event(3))


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(ImportError, match="needs mlflow; install it with: pip install 'mlflow'"):
        MLflow()(event(1))


def test_nothing_is_imported_unless_used() -> None:
    script = (
        "import sys; from metricfit.integrations import tracking; "
        "tracking.TensorBoard('x'), tracking.MLflow(), tracking.WandB(); import metricfit.integrations; "
        "names = ('tensorboard', 'mlflow', 'wandb', 'lightning', 'pytorch_lightning', 'transformers', 'skorch', "
        "'torchmetrics'); print([name for name in names if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_other_processes_than_the_first_write_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal("wandb")
    monkeypatch.setitem(sys.modules, "wandb", journal)
    monkeypatch.setitem(sys.modules, "mlflow", journal)
    monkeypatch.setattr("metricfit.integrations.tracking.is_first_process", lambda: False)
    for callback in (MLflow(), WandB(), TensorBoard("/nowhere")):
        callback(event(1))
    assert not journal.calls


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_reads_what_a_classifier_wrote(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed: make test-slow installs it")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    X, y = load_iris(return_X_y=True)
    tracker = TensorBoard(tmp_path)
    classifier = make_classifier(
        "f1", cv=None, baseline=True, max_epochs=3, min_updates=1, callbacks=[tracker], random_state=0
    ).fit(X, y)
    read = EventAccumulator(str(tmp_path)).Reload()
    assert {"network/loss", "network/hard_metric", "network_ce/loss", "network/temperature"} <= set(
        read.Tags()["scalars"]
    )
    written = read.Scalars("network/loss")
    assert [one.step for one in written] == classifier.history_["epoch"].tolist()
    assert [one.value for one in written] == pytest.approx(classifier.history_["loss"].tolist(), rel=1e-6)
    # scikit-learn copies parameters, also while the file is open.
    tracker(event(4))
    assert copy.deepcopy(tracker)._writer is None
    assert clone(classifier).callbacks[0].log_dir == tmp_path


def trained_with(tracker: Any) -> MetricClassifier:
    X, y = load_iris(return_X_y=True)
    return make_classifier("f1", cv=None, max_epochs=3, min_updates=1, callbacks=[tracker], random_state=0).fit(X, y)


# Their libraries warn of their own future.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_mlflow_reads_what_a_classifier_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # a folder instead of a database
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed: make test-slow installs it")
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    with mlflow.start_run() as run:
        classifier = trained_with(MLflow())
    written = mlflow.MlflowClient().get_metric_history(run.info.run_id, "network/loss")
    assert [one.step for one in written] == classifier.history_["epoch"].tolist()
    assert [one.value for one in written] == pytest.approx(classifier.history_["loss"].tolist())


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_wandb_keeps_what_a_classifier_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb", reason="wandb is not installed: make test-slow installs it")
    monkeypatch.setenv("WANDB_SILENT", "true")
    run = wandb.init(mode="offline", dir=tmp_path, project="metricfit")
    classifier = trained_with(WandB())
    last = classifier.history_.iloc[-1]
    assert run.summary["network/epoch"] == last["epoch"]
    assert run.summary["network/loss"] == pytest.approx(last["loss"])
    run.finish()
