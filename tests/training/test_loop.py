"""The loop: it learns, members are independent, runs repeat, stop, and resume to exactly the same model."""

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from metricfit import metrics
from metricfit.training import RECIPES, CheckpointFile, Folds, Recipe, Table, Trainer
from metricfit.training.checkpoint import fingerprint
from metricfit.training.loop import EpochEnd, progress_bar
from metricfit.training.networks import each_probabilities
from metricfit.training.rows import split_rows

QUICK = {"hidden_sizes": (16,), "min_updates": 0, "max_epochs": 6, "batch_size": 64}


def train(problem, recipe, *, seed, checkpoint=None, callbacks=()):
    return Trainer(replace(problem, seed=seed), recipe).run(callbacks, checkpoint=checkpoint)


def problem(n=300, classes=2, members=2, metric="f1", seed=0, task=None):
    generator = np.random.default_rng(seed)
    x = generator.standard_normal((n, 4)).astype(np.float32)
    score = x[:, 0] + 0.5 * x[:, 1] ** 2 + 0.3 * generator.standard_normal(n)
    y = np.digitize(score, np.quantile(score, np.linspace(0, 1, classes + 1)[1:-1] ** 0.5)).astype(np.int64)
    splits = split_rows(y, members if members > 1 else None, groups=None, random=generator)
    task = task or ("binary" if classes == 2 else "multiclass")
    return folds_of(x, y, splits, metric, task)


def folds_of(x, y, splits, metric, task):
    weight = np.ones(len(y), dtype=np.float32)
    labels = tuple(range(y.max() + 1))
    return Folds(Table.of_numbers(x), y, weight, weight, splits, metrics.get(metric), task, labels, 0)


def weights(network):
    return {name: value.clone() for name, value in network.state_dict().items()}


def assert_same(left, right):
    assert left.keys() == right.keys()
    for name in left:
        assert torch.equal(left[name], right[name]), name


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_learns_and_repeats_without_touching_global_seeds(recipe):
    rate = 1.0 if recipe == "anyloss" else 1e-2  # gradient descent without momentum, through the slope of an amplifier
    made = Recipe(recipe, **QUICK | {"max_epochs": 40, "learning_rate": rate}).complete()
    state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    result = train(problem(), made, seed=1)
    assert torch.equal(state, torch.get_rng_state())
    assert np.array_equal(numpy_state, np.random.get_state()[1])  # noqa: NPY002
    frame = pd.DataFrame(result.history)
    assert frame["loss"].iloc[-1] < frame["loss"].iloc[0]
    assert frame["hard_metric"].iloc[-1] > 0.6
    assert_same(weights(result.network), weights(train(problem(), made, seed=1).network))
    other = weights(train(problem(), made, seed=2).network)
    assert not torch.equal(other["layers.0.weight"], weights(result.network)["layers.0.weight"])


def test_modules_with_buffers_and_dropout_train_and_repeat():
    def factory(inputs, outputs):
        return nn.Sequential(nn.Linear(inputs, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, outputs))

    recipe = Recipe("default", network=factory, gradient_clip=1.0, **QUICK | {"max_epochs": 40}).complete()
    state = torch.get_rng_state()
    first, second = (train(problem(), recipe, seed=3) for _ in range(2))
    assert torch.equal(state, torch.get_rng_state())
    assert_same(weights(first.network), weights(second.network))
    assert first.history[-1].hard_metric > 0.5


def test_warm_start_and_step_annealing_show_in_the_history():
    recipe = Recipe("default", warm_start_epochs=2, annealing="epoch", cooling=0.5, **QUICK).complete()
    frame = pd.DataFrame(train(problem(), recipe, seed=0).history)
    assert frame["temperature"].tolist() == pytest.approx([0.2 * 0.5**k for k in range(1, 7)])
    assert frame["epoch"].tolist() == list(range(1, 7))
    assert frame.notna().all().all()


def test_the_kept_weights_are_those_of_the_best_checkpoint():
    seen = []
    prob = problem(n=400)
    result = train(prob, Recipe("default", selection="hard", **QUICK).complete(), seed=0, callbacks=[seen.append])
    frame = pd.DataFrame(result.history)
    assert [e.record.epoch for e in seen] == frame["epoch"].tolist()
    assert all(1 <= epoch <= 6 for epoch in result.best_epoch)
    # The exact metric of the kept weights on each member's own validation rows is the best that it reached.
    values = []
    with torch.no_grad():
        for k, split in enumerate(prob.splits):
            features = torch.from_numpy(prob.table.dense[split.validation])
            predicted = result.network(features)[k].argmax(dim=1).numpy()
            values.append(prob.metric.score(prob.codes[split.validation], predicted))
    assert np.mean(values) >= frame["hard_metric"].max() - 1e-9


def test_early_stopping_ends_the_run():
    recipe = Recipe("default", patience=2, **QUICK | {"max_epochs": 200}).complete()
    frame = pd.DataFrame(train(problem(), recipe, seed=0).history)
    assert len(frame) < 200
    assert frame["active"].iloc[-1] == 0


def test_a_small_network_trains_on_one_thread():
    seen, before = set(), torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        train(problem(), Recipe(**QUICK).complete(), seed=0, callbacks=[lambda _: seen.add(torch.get_num_threads())])
        assert (seen, torch.get_num_threads()) == ({1}, 2)
    finally:
        torch.set_num_threads(before)


def test_a_callback_can_end_the_run():
    def stop(event: EpochEnd) -> bool:
        return event.record.epoch == 3

    assert len(train(problem(), Recipe("default", **QUICK).complete(), seed=0, callbacks=[stop]).history) == 3


@pytest.mark.parametrize("epoch", [1, 4])
def test_ctrl_c_keeps_the_best_weights_so_far(epoch):
    def interrupt(event: EpochEnd) -> None:
        if event.record.epoch == epoch:
            raise KeyboardInterrupt

    recipe = Recipe("default", checkpoints=2, **QUICK).complete()
    with pytest.warns(RuntimeWarning, match=f"interrupted after {epoch} of up to 6 epochs"):
        result = train(problem(), recipe, seed=0, callbacks=[interrupt])
    assert result.interrupted
    assert all(torch.isfinite(value).all() for value in weights(result.network).values())
    assert all(p.shape[1] == 2 for p in result.validation)
    assert np.allclose(result.validation[0].sum(axis=1), 1, atol=1e-5)


def test_divergence_is_told():
    with pytest.raises(ValueError, match="learning_rate: training diverged"):
        train(problem(), Recipe("log_loss", **QUICK | {"learning_rate": 1e30}).complete(), seed=0)


def test_held_out_probabilities_come_from_checkpoints_that_those_rows_did_not_pick():
    # With targets that are pure noise an honest estimate stays at chance, whatever was selected.
    generator = np.random.default_rng(0)
    n = 400
    x, y = generator.standard_normal((n, 5)).astype(np.float32), generator.integers(0, 2, n)
    prob = folds_of(x, y, splits := split_rows(y, 5, groups=None, random=generator), "accuracy", "binary")
    recipe = Recipe("default", selection="hard", **QUICK | {"max_epochs": 40, "averaging": 0.0}).complete()
    result = train(prob, recipe, seed=0)
    rows = np.concatenate([s.validation for s in splits])
    honest = (np.concatenate(result.validation).argmax(axis=1) == y[rows]).mean()
    flattered = max(record.hard_metric for record in result.history)
    assert abs(honest - 0.5) < 0.08
    assert flattered > 0.5


def test_predictions_in_blocks_equal_those_at_once(monkeypatch):
    result = train(problem(classes=3), Recipe("default", **QUICK).complete(), seed=0)
    x = np.random.default_rng(1).standard_normal((1000, 4)).astype(np.float32)
    whole = each_probabilities(result.network, x, "multiclass")
    monkeypatch.setattr("metricfit.training.networks.PIECE_CELLS", 1)
    assert np.allclose(each_probabilities(result.network, x, "multiclass"), whole, atol=1e-6)
    assert np.allclose(whole.sum(axis=2), 1)


def test_progress_is_a_bar_on_a_terminal_and_lines_elsewhere(capsys):
    from io import StringIO

    from rich.console import Console

    text = StringIO()
    with progress_bar(True, "f1", Console(file=text, force_terminal=True, width=100)) as bar:
        bar(3, 6, "0.700")
    assert "3/6" in text.getvalue()
    assert "0.700" in text.getvalue()
    with progress_bar(True, "f1") as bar:
        bar(3, 6, "0.700")
        bar(4, 6, "0.800")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "f1: 3 of 6, 0.700\n"), "a line every few seconds"
    with progress_bar(False, "f1") as bar:
        bar(3, 6, "0.700")
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


@pytest.mark.parametrize("recipe", ["default", "east"])
@pytest.mark.parametrize("metric", ["f1", "precision[1] subject to recall[1] >= 0.7"])
def test_a_resumed_run_ends_with_exactly_the_same_model(recipe, metric, tmp_path):
    made = Recipe(recipe, **QUICK | ({"patience": 1} if recipe == "east" else {})).complete()
    prob = problem(metric=metric)
    expected = train(prob, made, seed=5)

    class KilledError(Exception):
        pass

    def die(event: EpochEnd) -> None:
        raise KilledError

    checkpoint = CheckpointFile(tmp_path, "run", {"settings": "a", "data": "b"}, every=0.0)
    starts = 0
    while True:
        starts += 1
        dies = [lambda event, s=starts: die(event) if event.record.epoch == 2 * s else None]
        try:
            result = train(prob, made, seed=5, checkpoint=checkpoint, callbacks=dies)
            break
        except KilledError:
            continue
    assert starts > 1
    assert_same(weights(result.network), weights(expected.network))
    assert np.array_equal(np.concatenate(result.validation), np.concatenate(expected.validation))
    without_time = [pd.DataFrame(each.history).drop(columns="seconds") for each in (result, expected)]
    assert without_time[0].equals(without_time[1])


def test_a_checkpoint_of_another_run_or_a_broken_one_is_refused(tmp_path):
    mine = CheckpointFile(tmp_path, "run", {"settings": "a", "data": "b"})
    assert mine.load() is None
    mine.save({"x": torch.ones(2)})
    assert torch.equal(mine.load()["x"], torch.ones(2))
    with pytest.raises(ValueError, match=r"checkpoint_dir: .* of another run, with other data; choose an empty"):
        CheckpointFile(tmp_path, "run", {"settings": "a", "data": "c"}).load()
    mine.path.write_bytes(b"nonsense")
    with pytest.raises(ValueError, match="not a checkpoint that can be read"):
        mine.load()
    torch.save({"format": "other"}, mine.path)
    with pytest.raises(ValueError, match="not a checkpoint of this version"):
        mine.load()


def test_checkpoints_run_no_code(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "owned"),)

    torch.save({"format": "metricfit.checkpoint", "version": 1, "identity": {}, "state": Evil()}, tmp_path / "run.pt")
    with pytest.raises(ValueError, match="not a checkpoint that can be read"):
        CheckpointFile(tmp_path, "run", {}).load()
    assert not (tmp_path / "owned").exists()


def test_a_failed_write_leaves_the_last_checkpoint_whole(tmp_path, monkeypatch):
    file = CheckpointFile(tmp_path, "run", {}, every=0.0)
    file.save({"x": 1})

    def fail(content, stream):
        stream.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(torch, "save", fail)
    with pytest.raises(OSError, match="disk full"):
        file.save({"x": 2})
    assert file.load() == {"x": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["run.pt"]


def test_writes_are_spaced_but_the_last_is_made(tmp_path):
    file = CheckpointFile(tmp_path, "run", {}, every=1000.0)
    for x in (1, 2):
        file.save({"x": x})
    assert file.load() == {"x": 1}
    file.save({"x": 3}, last=True)
    assert file.load() == {"x": 3}


def test_a_fingerprint_sees_values_shapes_and_types():
    a = np.arange(6.0)
    different = [a, a.reshape(2, 3), a.astype(np.float32), a + 1, a[:0], None]
    assert len({fingerprint(x) for x in different}) == len(different)
    assert fingerprint(a, a) != fingerprint(a)


CHILD = """
import sys
import numpy as np, torch
torch.set_num_threads(1)
from metricfit.classifier import MetricClassifier
from metricfit.training import Recipe, checkpoint
if len(sys.argv) > 2:
    write = checkpoint.CheckpointFile.save
    checkpoint.CheckpointFile.save = lambda self, state, *, last=False: write(self, state, last=True)
random = np.random.default_rng(0)
X = random.standard_normal((600, 4))
y = (X[:, 0] + X[:, 1] ** 2 > 1.5).astype(int)
classifier = MetricClassifier(
    "f1", models="network", recipe=Recipe(max_epochs=30, min_updates=0, batch_size=64, hidden_sizes=(32,)), cv=3,
    random_state=0, checkpoint_dir=sys.argv[2] if len(sys.argv) > 2 else None,
).fit(X, y)
torch.save([classifier.network_.state_dict(), torch.from_numpy(classifier.predict_proba(X)),
            classifier.validation_report_["value"].tolist()], sys.argv[1])
"""


def _kill_and_restart(tmp_path, kills):
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, script, tmp_path / "plain.pt"], check=True, env=environment)
    command = [sys.executable, script, tmp_path / "resumed.pt", tmp_path / "checkpoints"]
    generator, died = random.Random(0), 0
    for _ in range(kills):
        child = subprocess.Popen(command, env=environment)
        file = tmp_path / "checkpoints" / "network.pt"
        before = file.stat().st_mtime_ns if file.exists() else 0
        while child.poll() is None and not (file.exists() and file.stat().st_mtime_ns > before):
            time.sleep(0.005)
        time.sleep(generator.random() * 0.3)
        child.send_signal(signal.SIGKILL)
        died += child.wait() == -signal.SIGKILL
    subprocess.run(command, check=True, env=environment)
    plain, resumed = (torch.load(tmp_path / name) for name in ("plain.pt", "resumed.pt"))
    assert died
    assert_same(plain[0], resumed[0])
    assert torch.equal(plain[1], resumed[1])
    assert plain[2][:3] == resumed[2][:3]


def test_a_run_killed_at_a_random_moment_ends_with_exactly_the_same_model(tmp_path):
    _kill_and_restart(tmp_path, kills=1)


@pytest.mark.slow
def test_a_run_killed_again_and_again_ends_with_exactly_the_same_model(tmp_path):
    _kill_and_restart(tmp_path, kills=8)
