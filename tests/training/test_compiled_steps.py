"""Compiled steps against those of the loop: the same weights, moments, averages, memory and losses up to rounding."""

import numpy as np
import pytest
import torch

from metricfit import metrics
from metricfit.training import Problem, get_recipe, train
from metricfit.training import compiled_steps as module
from metricfit.training.evaluation import TrainingData
from metricfit.training.loop import _Trainer
from metricfit.training.splits import split_rows


@pytest.fixture(autouse=True)
def _always_worthwhile(monkeypatch):
    monkeypatch.setattr(module, "WORTHWHILE_STEPS", 0)


def problem(classes=2, metric="f1", members=3, weights=True):
    random = np.random.default_rng(0)
    x = random.standard_normal((240, 7)).astype(np.float32)
    score = x[:, 0] + x[:, 1] * x[:, 2] + 0.5 * random.standard_normal(240)
    y = np.digitize(score, np.quantile(score, np.linspace(0, 1, classes + 1)[1:-1])).astype(np.int64)
    weight = random.random(240).astype(np.float32) if weights else np.ones(240, np.float32)
    data = TrainingData(torch.from_numpy(x), torch.from_numpy(y), torch.from_numpy(weight))
    splits = split_rows(y, members if members > 1 else None, members=1, groups=None, random=random)
    task = "binary" if classes == 2 else "multiclass"
    return Problem(data, splits, metrics.get(metric), task, tuple(range(classes)))


def trainer(prob, recipe="default", **overrides):
    made = get_recipe(recipe, **{"hidden_sizes": (16, 8), "batch_size": 50} | overrides)
    return _Trainer(prob, made, 0, None, torch.device("cpu"), False)


OPTIONS = [
    {},
    {"dropout": 0.0, "averaging": 0.0},
    {"gradient_clip": 0.05, "memory": 0.0},
    {"hidden_sizes": (), "cross_entropy": 0.0},
    {"hidden_sizes": (9,), "dropout": 0.4, "temperature": 0.4, "weight_decay": 0.0},
]


@pytest.mark.parametrize("classes", [2, 3, 10])
@pytest.mark.parametrize("metric", ["f1", "mcc", "balanced_accuracy", "fbeta[1]:beta=2", "jaccard:zero_division=1"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_an_epoch_equals_that_of_the_loop(classes, metric, options):
    assert_equal_epochs(problem(classes, metric), **options)


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("recipe", ["cross_entropy", "east"])
def test_other_recipes_and_a_warm_start(recipe, classes):
    assert_equal_epochs(problem(classes, "mcc"), recipe, hidden_sizes=(16, 8))
    if recipe == "east":
        assert_equal_epochs(problem(classes, "mcc"), recipe, hidden_sizes=(16, 8), warm_start_epochs=1)


def test_one_member_and_members_at_temperatures_of_their_own():
    assert_equal_epochs(problem(members=1))
    assert_equal_epochs(problem(classes=4), annealing="step", cooling=0.5)


def test_a_member_that_has_stopped_costs_nothing_and_the_others_train_as_ever(monkeypatch):
    compiled, plain = trainer(problem()), trainer(problem())
    plain.compiled = None
    calls, steps = [], compiled.compiled._mlp.train_steps
    monkeypatch.setattr(compiled.compiled._mlp, "train_steps", lambda k, *rest: (calls.append(k), steps(k, *rest)))
    for t in (compiled, plain):
        t.stopping.active[1] = False
    before = {name: value.detach().clone() for name, value in compiled.network.named_parameters()}
    records = [t.epoch() for t in (compiled, plain)]
    assert set(calls) == {0, 2}
    assert records[0].loss == pytest.approx(records[1].loss, rel=1e-5)
    reference = dict(plain.network.named_parameters())
    for name, value in compiled.network.named_parameters():
        assert torch.equal(value[1], before[name][1])
        torch.testing.assert_close(value[[0, 2]], reference[name][[0, 2]], rtol=1e-4, atol=2e-5)


def test_few_but_large_steps_are_compiled_where_members_stop_early(monkeypatch):
    monkeypatch.setattr(module, "WORTHWHILE_STEPS", 10**6)
    assert trainer(problem(), "east").compiled is None
    monkeypatch.setattr(module, "WORTHWHILE_PRODUCTS", 10**6)
    assert trainer(problem(), "east").compiled is not None
    assert trainer(problem(), "default").compiled is None


def assert_equal_epochs(prob, recipe="default", **overrides):
    compiled, plain = trainer(prob, recipe, **overrides), trainer(prob, recipe, **overrides)
    assert compiled.compiled is not None
    plain.compiled = None
    for t in (compiled, plain):
        for member in range(len(prob.splits)):
            t.objective.set_temperature(member, (0.2, 0.05, 0.4)[member])
    for _ in range(2):
        records = [t.epoch() for t in (compiled, plain)]
        assert records[0].loss == pytest.approx(records[1].loss, rel=1e-5)
        assert records[0].learning_rate == records[1].learning_rate
    states = [t.state_dict() for t in (compiled, plain)]
    for kind in ("live", "averaged", "objective"):
        for name, value in states[1][kind].items():
            torch.testing.assert_close(states[0][kind][name], value, rtol=1e-4, atol=2e-5)
    for key, moments in states[1]["optimiser"]["state"].items():
        for name, value in moments.items():
            torch.testing.assert_close(states[0]["optimiser"]["state"][key][name], value, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("memory", [0.0, 0.9])
def test_batches_without_weight_teach_nothing(classes, memory):
    prob = problem(classes)
    prob.data.weight[20:] = 0
    assert_equal_epochs(prob, memory=memory, batch_size=4)


def test_threads_change_no_bit():
    def run(threads):
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            one = trainer(problem())
            one.epoch()
            return one.state_dict()["live"]
        finally:
            torch.set_num_threads(before)

    alone, together = run(1), run(2)
    assert all(torch.equal(alone[name], together[name]) for name in alone)


@pytest.mark.parametrize("metric", ["kappa", "recall[1] subject to precision[1] >= 0.5", "mcc[1]"])
def test_other_metrics_are_left_to_the_loop(metric):
    assert trainer(problem(metric=metric)).compiled is None
    assert trainer(problem(metric=metric), "cross_entropy").compiled is not None


def test_short_runs_and_other_losses_are_left_to_the_loop(monkeypatch):
    assert trainer(problem(), "anyloss").compiled is None
    assert trainer(problem(), "surrogate_fbeta").compiled is None
    strided = problem()
    object.__setattr__(strided.data, "features", strided.data.features.mT.contiguous().mT)
    assert trainer(strided).compiled is None
    monkeypatch.setattr(module, "WORTHWHILE_STEPS", 601)
    assert trainer(problem(), max_epochs=1).compiled is None
    assert trainer(problem(), min_steps=601, max_epochs=1).compiled is not None


def test_large_products_are_left_to_several_threads(monkeypatch):
    monkeypatch.setattr(module, "LARGE_PRODUCTS", 100)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert trainer(problem(members=1)).compiled is None
    assert trainer(problem(members=2)).compiled is not None


def test_without_numba_the_loop_serves(monkeypatch):
    monkeypatch.setattr(module, "numba_is_here", lambda: False)
    assert trainer(problem()).compiled is None


def test_divergence_is_told():
    recipe = get_recipe("default", hidden_sizes=(8,), batch_size=50, max_epochs=3, min_steps=0, learning_rate=1e30)
    for classes in (2, 3):
        with pytest.raises(ValueError, match="learning_rate: training diverged"):
            train(problem(classes), recipe, seed=0)


def test_ctrl_c_within_an_epoch_keeps_the_best_weights_so_far(monkeypatch):
    from metricfit.fast import mlp

    monkeypatch.setattr(module, "STEPS_AT_ONCE", 2)
    calls, steps = [], mlp.train_steps

    def interrupted(*arguments):
        calls.append(arguments)
        if len(calls) == 11:
            raise KeyboardInterrupt
        steps(*arguments)

    monkeypatch.setattr(mlp, "train_steps", interrupted)
    recipe = get_recipe("default", hidden_sizes=(8,), batch_size=50, max_epochs=5, min_steps=0)
    with pytest.warns(RuntimeWarning, match="interrupted after 1 of up to 5 epochs"):
        result = train(problem(), recipe, seed=0)
    assert result.best_epoch == [1, 1, 1]
    assert all(torch.isfinite(p).all() for p in result.network.parameters())
