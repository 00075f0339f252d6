"""MetricLoss as skorch's criterion, and the callback that cools it."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score
from sklearn.model_selection import GridSearchCV
from torch import nn

from metricfit import MetricLoss, TemperatureAnnealer
from tests.integrations.helper import FEATURES, blobs, network

skorch = pytest.importorskip("skorch", reason="skorch is not installed: make test-slow installs it")

from skorch.callbacks import LoadInitState, TrainEndCheckpoint  # noqa: E402
from skorch.dataset import ValidSplit  # noqa: E402

from metricfit.integrations.skorch import TemperatureAnnealing, two_columns  # noqa: E402

X, Y = (tensor.numpy() for tensor in blobs(160))


def net(callback: Any = None, **options: Any) -> Any:
    settings: dict[str, Any] = {
        "criterion": MetricLoss,
        "criterion__metric": "f1",
        "criterion__memory": 0.5,
        "predict_nonlinearity": nn.Softmax(dim=-1),
        "optimizer": torch.optim.AdamW,
        "lr": 0.05,
        "max_epochs": 8,
        "iterator_train__shuffle": False,
        "train_split": ValidSplit(4, stratified=True),
        "verbose": 0,
        "callbacks": [] if callback is None else [("annealing", callback)],
    }
    return skorch.NeuralNetClassifier(network(), **{**settings, **options})


def test_it_learns_and_predicts_probabilities() -> None:
    fitted = net(max_epochs=30).fit(X, Y)
    p = fitted.predict_proba(X)
    assert np.allclose(p.sum(axis=1), 1)
    assert (p >= 0).all()
    assert f1_score(Y, fitted.predict(X), average="macro") > 0.7
    # The validation loss is the loss in evaluation mode: the memory belongs to training.
    assert len(fitted.history[:, "valid_loss"]) == 30


def test_binary_net() -> None:
    module = nn.Sequential(nn.Linear(FEATURES, 8), nn.ReLU(), nn.Linear(8, 1), nn.Flatten(0))
    fitted = skorch.NeuralNetBinaryClassifier(
        module,
        criterion=MetricLoss,
        criterion__metric="f1",
        criterion__task="binary",
        predict_nonlinearity=two_columns,
        optimizer=torch.optim.AdamW,
        lr=0.05,
        max_epochs=30,
        verbose=0,
    ).fit(X, (Y == 0).astype(np.float32))
    p = fitted.predict_proba(X)
    assert p.shape == (160, 2)
    assert np.allclose(p.sum(axis=1), 1)
    assert np.array_equal(fitted.predict(X), (p[:, 1] > 0.5).astype(int))
    assert f1_score(Y == 0, fitted.predict(X)) > 0.8


def test_plateau_cools_as_the_annealer_does() -> None:
    fitted = net(TemperatureAnnealing(factor=0.5, patience=1, min_delta=0.1, stop=False)).fit(X, Y)
    loss = MetricLoss("f1")
    annealer = TemperatureAnnealer(loss, factor=0.5, patience=1, min_delta=0.1)
    expected = []
    for value in fitted.history[:, "valid_loss"]:
        expected.append(annealer.temperature)
        annealer.step(value)
    assert fitted.history[:, "temperature"] == expected
    assert len(set(expected)) > 1
    assert fitted.criterion_.temperature.item() == pytest.approx(annealer.temperature)


def test_epoch_mode_cools_by_the_clock_and_fit_starts_afresh() -> None:
    fitted = net(TemperatureAnnealing(mode="epoch", factor=0.5, every=3)).fit(X, Y)
    expected = [0.2] * 3 + [0.1] * 3 + [0.05] * 2
    assert fitted.history[:, "temperature"] == pytest.approx(expected)
    assert fitted.fit(X, Y).history[:, "temperature"] == pytest.approx(expected)


def test_training_ends_when_cooling_is_pointless(capsys: pytest.CaptureFixture[str]) -> None:
    callback = TemperatureAnnealing(patience=1, max_fruitless=1, min_delta=1.0)
    fitted = net(callback, max_epochs=50, verbose=1).fit(X, Y)
    assert len(fitted.history) < 10
    assert "further cooling brings nothing" in capsys.readouterr().out


@pytest.mark.parametrize("how", ["partial_fit", "pickle", "checkpoint"])
@pytest.mark.parametrize("mode", ["plateau", "epoch"])
def test_a_net_that_goes_on_ends_as_one_that_never_stopped(mode: str, how: str, tmp_path: Path) -> None:
    def callback() -> TemperatureAnnealing:
        options = {"patience": 1, "min_delta": 0.1, "stop": False} if mode == "plateau" else {}
        return TemperatureAnnealing(mode=mode, factor=0.7, **options)

    whole = net(callback()).fit(X, Y)
    if how == "checkpoint":
        saving = TrainEndCheckpoint(dirname=tmp_path)
        net(max_epochs=4, callbacks=[("annealing", callback()), ("save", saving)]).fit(X, Y)
        # LoadInitState comes last on purpose: the order of callbacks must not matter.
        saving = TrainEndCheckpoint(dirname=tmp_path)
        parts = [("annealing", callback()), ("save", saving), ("load", LoadInitState(saving))]
        second = net(max_epochs=4, callbacks=parts).fit(X, Y)
    else:
        second = net(callback(), max_epochs=4).fit(X, Y)
        second = pickle.loads(pickle.dumps(second)) if how == "pickle" else second
        second.partial_fit(X, Y, epochs=4)
    assert len(set(whole.history[:, "temperature"])) > 1
    assert second.history[:, "temperature"] == whole.history[:, "temperature"]
    assert second.criterion_.temperature == whole.criterion_.temperature
    for a, b in zip(whole.module_.parameters(), second.module_.parameters(), strict=True):
        assert torch.equal(a, b)


def test_grid_search_over_the_metric_and_the_cooling() -> None:
    search = GridSearchCV(
        net(TemperatureAnnealing(mode="epoch"), max_epochs=2),
        {"criterion__metric": ["f1", "mcc"], "callbacks__annealing__mode": ["epoch", "plateau"]},
        scoring="f1_macro",
        cv=2,
    ).fit(X, Y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_errors() -> None:
    with pytest.raises(ValueError, match="mode: expected 'plateau' or 'epoch'"):
        net(TemperatureAnnealing(mode="batch")).fit(X, Y)
    with pytest.raises(ValueError, match="patience: has no effect with mode='epoch'"):
        net(TemperatureAnnealing(mode="epoch", patience=3)).fit(X, Y)
    with pytest.raises(ValueError, match="monitor: the history has no 'valid_loss'; leave train_split on"):
        net(TemperatureAnnealing(), train_split=None).fit(X, Y)
    with pytest.raises(ValueError, match="holds no loss with a temperature"):
        skorch.NeuralNetClassifier(
            network(), criterion=nn.CrossEntropyLoss, callbacks=[TemperatureAnnealing()], verbose=0
        ).fit(X, Y)
