"""The parts of training by themselves: recipes, networks, splits, batches, optimiser, stopping."""

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from metricfit import metrics
from metricfit.training import networks
from metricfit.training.loop import Stopping, callback_list, learning_rate_at
from metricfit.training.networks import (
    BestMembers,
    MemberDropout,
    MemberLinear,
    MemberMLP,
    WeightAverage,
    clip_gradients,
    make_optimiser,
)
from metricfit.training.objective import MemberObjective
from metricfit.training.recipes import RECIPES, Recipe
from metricfit.training.rows import BatchOrder, choose_cv, given_splits, group_codes, split_rows, strata


def build_network(network, *, members, in_features, out_features, hidden_sizes, dropout, seed):
    recipe = Recipe(network=network, hidden_sizes=hidden_sizes, dropout=dropout).complete()
    return networks.build_network(recipe, members, in_features, out_features, seed=seed)


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_know_their_name_and_can_be_overridden(name):
    assert Recipe(name).complete().name == name
    assert Recipe(name, learning_rate=0.123).complete().learning_rate == 0.123
    complete = Recipe(name, learning_rate=None).complete()
    assert complete.parts().items() >= RECIPES[name].items()
    assert complete.complete() == complete
    assert None not in complete.parts().values()


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("objective", "metrik", "objective: expected one of 'metric', 'log_loss', 'surrogate_fbeta', got 'metrik'"),
        ("batch_size", 0, "batch_size: expected a number >= 1, got 0"),
        ("batch_size", 2.5, "batch_size: expected a whole number, got 2.5"),
        ("dropout", 1.0, r"dropout: expected a number in \[0, 1\), got 1.0"),
        ("memory", -0.1, "memory: expected a number in"),
        ("cooling", 1.0, "cooling: expected a factor strictly between 0 and 1"),
        ("learning_rate", 0.0, "learning_rate: expected a number > 0"),
        ("learning_rate", "a", "learning_rate: expected a number, got 'a'"),
        ("learning_rate", math.inf, "learning_rate: expected a number, got inf"),
        ("dropout", "a", "dropout: expected a number, got 'a'"),
        ("batch_size", True, "batch_size: expected a number >= 1, got True"),
        ("batch_size", np.float64(2.5), "batch_size: expected a whole number"),
        ("stratified", "no", "stratified: expected True or False, got 'no'"),
        ("hidden_sizes", (8, 0), "hidden_sizes: expected widths >= 1"),
        ("hidden_sizes", (16.7,), r"hidden_sizes: expected widths >= 1, whole numbers, got \(16.7,\)"),
        ("hidden_sizes", 16, r"hidden_sizes: expected a sequence of widths, such as \(128, 64\), got 16"),
        ("hidden_sizes", "16", "hidden_sizes: expected a sequence of widths"),
        ("temperature", 0.5, "temperature: expected 0 < T <= 0.4"),
        ("annealing", "plateau", "patience: annealing='plateau' needs a patience"),
        ("step", "stairs", "step: unknown name 'stairs'"),
    ],
)
def test_a_wrong_part_of_a_recipe_is_named(part, value, message):
    with pytest.raises(ValueError, match=message):
        Recipe("default", **{part: value}).complete()


@pytest.mark.parametrize("spec", ["default", "btg:step=sigmoid:k=10,patience=5,stratified=true,hidden_sizes=64-"])
def test_a_recipe_as_a_text_is_the_same_recipe(spec):
    assert Recipe.of(spec).spec() == spec
    assert Recipe.of(Recipe.of(spec).spec()).complete() == Recipe.of(spec).complete()
    assert Recipe("default", hidden_sizes=(64, 32), step="annealed:temperature=0.1").complete() == (
        Recipe.of("default:hidden_sizes=64-32,step=annealed:temperature=0.1").complete()
    )
    with pytest.raises(ValueError, match="has no part 'patients'"):
        Recipe.of("east:patients=5")


def test_what_a_search_may_change_is_what_the_recipe_leaves_open():
    assert {"learning_rate", "cross_entropy"} <= Recipe().space().keys()
    assert "learning_rate" not in Recipe(learning_rate=0.01).space()
    assert "cross_entropy" not in Recipe("log_loss").space()


def test_numbers_of_numpy_become_plain_ones():
    numpy = Recipe(
        batch_size=np.int64(64), patience=np.int32(3), learning_rate=np.float64(0.25), dropout=np.float32(0.5),
        temperature=np.float64(0.1), stratified=np.False_, hidden_sizes=np.array([8, 4]), schedule=np.str_("constant"),
    ).complete()  # fmt: skip
    plain = Recipe(
        batch_size=64, patience=3, learning_rate=0.25, dropout=0.5, temperature=0.1, stratified=False,
        hidden_sizes=(8, 4), schedule="constant",
    ).complete()  # fmt: skip
    assert json.dumps(numpy.parts()) == json.dumps(plain.parts())
    assert {type(value) for value in numpy.parts().values()} == {str, int, float, bool, tuple}


def test_annealing_without_a_temperature_is_refused():
    with pytest.raises(ValueError, match="annealing: has no effect with objective='log_loss'"):
        Recipe("log_loss", annealing="epoch").complete()
    with pytest.raises(ValueError, match="cross_entropy: its weight is 0"):
        Recipe("log_loss", cross_entropy=0.0).complete()
    with pytest.raises(ValueError, match="no part 'learning_rat'"):
        Recipe().with_parts({"learning_rat": 1.0})
    with pytest.raises(TypeError, match="recipe: expected a name or a Recipe"):
        Recipe.of(3)


@pytest.mark.parametrize(("steps", "epochs"), [(1, 600), (15, 40), (16, 40), (500, 40), (2000, 10), (50_000, 1)])
def test_epochs_respect_the_bounds_on_steps(steps, epochs):
    assert Recipe().complete().epochs(steps) == epochs


def test_member_linear_is_a_linear_layer_for_each_member():
    layer = MemberLinear(3, 5, 2, generator=torch.Generator().manual_seed(0))
    x = torch.randn(3, 7, 5)
    for k in range(3):
        expected = nn.functional.linear(x[k], layer.weight[k].T, layer.bias[k, 0])
        torch.testing.assert_close(layer(x)[k], expected)


def test_members_do_not_see_each_other():
    network = MemberMLP(3, 4, 2, (8,), generator=torch.Generator().manual_seed(0))
    x = torch.randn(3, 6, 4)
    changed = x.clone()
    changed[1] += 1
    assert torch.equal(network(x)[[0, 2]], network(changed)[[0, 2]])
    network(x)[1].sum().backward()
    for parameter in network.parameters():
        assert not parameter.grad[[0, 2]].any()


@pytest.mark.parametrize("rate", [0.1, 0.25, 0.5])
def test_dropout_drops_the_right_share_and_keeps_the_mean(rate):
    layer = MemberDropout(rate)
    layer.generator = torch.Generator().manual_seed(0)
    out = layer(torch.ones(5, 400, 51))
    share = (out == 0).float().mean()
    assert abs(share - rate) < 5 * math.sqrt(rate * (1 - rate) / out.numel())
    assert out.unique().tolist() == pytest.approx([0.0, 1 / (1 - rate)])
    assert torch.equal(layer.eval()(torch.ones(3)), torch.ones(3))


def test_networks_by_name_module_and_factory():
    options = {"members": 2, "in_features": 3, "out_features": 2, "hidden_sizes": (4,), "dropout": 0.0, "seed": 1}
    assert len(build_network("linear", **options).layers) == 1
    module = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    stacked = build_network(module, **options)
    assert stacked(torch.zeros(5, 3)).shape == (2, 5, 2)
    first, second = (dict(n.named_parameters())["0.weight"] for n in stacked.networks)
    assert not torch.equal(first, second)
    assert not torch.equal(first, module[0].weight)
    again = build_network(nn.Linear, **options)
    torch.testing.assert_close(again(torch.ones(5, 3)), build_network(nn.Linear, **options)(torch.ones(5, 3)))
    assert build_network(lambda: nn.Linear(3, 2), **options).members == 2
    assert build_network(lambda *sizes: nn.Linear(*sizes), **options).members == 2


def test_lazy_layers_are_started_for_each_member_from_the_seed():
    options = {"members": 3, "in_features": 3, "out_features": 2, "hidden_sizes": (4,), "dropout": 0.0, "seed": 1}
    module = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(2))
    stacked = build_network(module, **options)
    outputs = stacked(torch.ones(5, 3))
    assert outputs.shape == (3, 5, 2)
    torch.testing.assert_close(build_network(module, **options)(torch.ones(5, 3)), outputs)
    first, second = (dict(n.named_parameters())["0.weight"] for n in stacked.networks[:2])
    assert not torch.equal(first, second)
    normed = build_network(lambda i, o: nn.Sequential(nn.LazyBatchNorm1d(), nn.LazyLinear(o)), **options)
    assert normed(torch.ones(5, 3)).shape == (3, 5, 2)


@pytest.mark.parametrize(
    ("network", "error", "message"),
    [
        ("mpl", ValueError, "network: expected 'mlp', 'linear', a module or a factory"),
        (3, TypeError, "network: expected a name, a module or a factory, got int"),
        (lambda a, b: "x", TypeError, "the factory must return a torch.nn.Module, got str"),
        (lambda n: nn.Linear(n, 2), TypeError, r"factory\(in_features, out_features\), or without .* parameters \(n\)"),
        (lambda *, n: nn.Linear(n, 2), TypeError, r"expected a factory to be called as factory\(in_features"),
        (nn.LazyBatchNorm1d(), ValueError, "a module that can be copied for each member; give a factory"),
        (nn.Linear(7, 2), ValueError, r"fails on a batch of shape \(2, 3\)"),
        (nn.Linear(3, 5), ValueError, r"expected logits of shape \(n, 2\), got \(2, 5\)"),
    ],
)
def test_a_network_that_cannot_work_is_refused(network, error, message):
    with pytest.raises(error, match=message):
        build_network(network, members=1, in_features=3, out_features=2, hidden_sizes=(4,), dropout=0.0, seed=0)


def test_building_networks_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    for network in ("mlp", nn.Linear):
        build_network(network, members=2, in_features=3, out_features=2, hidden_sizes=(4,), dropout=0.1, seed=0)
    assert torch.equal(before, torch.get_rng_state())


@given(st.integers(10, 300), st.integers(2, 5), st.integers(2, 6), st.integers(0, 99))
def test_folds_partition_the_rows_and_balance_every_class(n, classes, folds, seed):
    random = np.random.default_rng(seed)
    y = random.integers(0, classes, n)
    splits = split_rows(y, folds, groups=None, random=random)
    together = np.concatenate([s.validation for s in splits])
    assert np.array_equal(np.sort(together), np.arange(n))
    for k in range(classes):
        sizes = [(y[s.validation] == k).sum() for s in splits]
        assert max(sizes) - min(sizes) <= 1
    for s in splits:
        assert not set(s.train) & set(s.validation)
        assert len(s.train) + len(s.validation) == n


def test_a_hold_out_leaves_a_row_of_each_class_to_train_on():
    y = np.array([0] * 40 + [1] * 2 + [2])
    for seed in range(20):
        (split,) = split_rows(y, None, groups=None, random=np.random.default_rng(seed))
        assert set(y[split.train]) == {0, 1, 2}
        assert 6 <= len(split.validation) <= 9


def test_groups_are_never_split():
    random = np.random.default_rng(0)
    groups = random.integers(0, 30, 400)
    y = (random.random(400) < 0.1).astype(int)
    for folds in (5, None):
        for split in split_rows(y, folds, groups=groups, random=random):
            assert not set(groups[split.train]) & set(groups[split.validation])
    with pytest.raises(ValueError, match="groups: 5 folds need at least as many groups, got 2"):
        split_rows(y, 5, groups=y, random=random)
    with pytest.raises(ValueError, match="groups: expected one group per row"):
        split_rows(y, 5, groups=[1, 2], random=random)


@pytest.mark.parametrize("found", [2, 3, 4])
def test_few_groups_make_few_folds_and_that_is_said(found):
    groups = np.array(["a", "b", "c", "d"])[np.arange(60) % found]
    y = np.arange(60) // 7 % 2
    folds, why = choose_cv("auto", 60, 25, found)
    assert (folds, why.split(":")[0]) == (found, f"{found}-fold ensemble")
    assert f"no more than {found} groups" in why
    assert choose_cv(None, 60, 25, found) == (None, f"one hold-out of one of the {found} groups, as asked for")
    (split,) = split_rows(y, None, groups=groups, random=np.random.default_rng(0))
    assert len(set(groups[split.validation])) == 1
    assert len(set(groups[split.train])) == found - 1


def test_groups_that_cannot_be_held_out_are_told():
    assert choose_cv("auto", 60, 25, 7) == choose_cv("auto", 60, 25)
    with pytest.raises(ValueError, match="groups: 5 folds need at least as many groups, got 3; lower cv"):
        choose_cv(5, 60, 25, 3)
    for cv in ("auto", None):
        with pytest.raises(ValueError, match=r"groups: expected at least 2 groups, .*, got 1; leave groups out"):
            choose_cv(cv, 60, 25, 1)
    for missing in ([1.0, np.nan, 2.0], ["a", None, "b"], [1, None, "b"]):
        with pytest.raises(ValueError, match=r"groups: expected a group for every row, got 1 of 3 without one"):
            group_codes(missing, 3)
    with pytest.raises(ValueError, match=r"groups: expected one group per row, shape \(3,\), got \(2,\)"):
        group_codes([1, 2], 3)


def test_given_splits_are_masks_or_row_numbers():
    y, mask = np.arange(6) % 2, np.array([True, True, False, True, False, False])
    for train, validation in [
        (mask, ~mask),
        (mask.tolist(), (~mask).astype(object)),
        ([0, 1, 3], [2, -2, -1]),
        (np.array([0, 1, 3], dtype=np.uint8), range(2, 6, 1)[::2]),
    ]:
        (split,) = given_splits([(train, validation)], y, None)
        assert split.train.tolist() == [0, 1, 3]
        assert set(split.validation) <= {2, 4, 5}
        assert len(split.validation) >= 2
    (split,) = given_splits([(np.arange(6), [])], y, None)
    assert not len(split.validation)


@pytest.mark.parametrize(
    ("cv", "message"),
    [
        ([0, 1, 2], r"cv: expected pairs \(training rows, validation rows\), got 0 for one"),
        ([([0.0, 1.0], [2])], "cv: expected training rows as whole numbers or as a mask of 6 rows, got .* float64"),
        ([([0, 1], [[2, 3]])], r"cv: expected validation rows as whole numbers .* shape \(1, 2\)"),
        ([([True, False], [2])], "cv: expected training rows as whole numbers or as a mask of 6 rows"),
        ([([0, 1], [2, 6])], "cv: expected validation rows from -6 to 5, got 6"),
        ([([-7, 1], [2])], "cv: expected training rows from -6 to 5, got -7"),
        ([([0, 1, 5], [2, -1])], "cv: expected validation rows that are held out, got 1 that are training rows"),
    ],
)
def test_a_split_that_cannot_be_meant_is_told(cv, message):
    with pytest.raises(ValueError, match=message):
        given_splits(cv, np.arange(6) % 2, None)


def test_callbacks_are_one_or_several():
    assert callback_list(print) == callback_list([print]) == [print]
    assert callback_list(None) == []
    for wrong in (3, [3], "ab"):
        with pytest.raises(TypeError, match="callbacks: expected functions of an EpochEnd"):
            callback_list(wrong)


def test_cv_is_chosen_by_size_and_said():
    assert choose_cv("auto", 100_000, 5000)[0] == 5
    assert choose_cv("auto", 100_001, 5000) == (None, "one stratified hold-out of 20 %: 100,001 rows are plenty")
    folds, why = choose_cv("auto", 200_000, 400)
    assert folds == 5
    assert "rarest class has 400 rows" in why
    assert choose_cv(None, 50, 5)[0] is None
    assert choose_cv("auto", 6, 2)[0] == 0
    for wrong in ("five", 1, True, 2.5):
        with pytest.raises(ValueError, match="cv: expected 'auto'"):
            choose_cv(wrong, 100, 5)
    with pytest.raises(ValueError, match="cv: 10 folds need at least 20 rows, got 12"):
        choose_cv(10, 12, 3)
    with pytest.raises(ValueError, match="cv: expected at least one split"):
        given_splits([], np.zeros(3), None)


def test_strata_of_labels_are_the_rarest_label_of_a_row():
    y = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 0], [1, 1, 1]])
    assert strata(y).tolist() == [1, 2, 0, 3]


@given(st.integers(1, 200), st.integers(1, 64), st.integers(1, 4), st.booleans(), st.integers(0, 99))
def test_an_epoch_visits_every_row_in_batches_of_one_size(n, batch_size, classes, stratified, seed):
    random = np.random.default_rng(seed)
    stratum = random.integers(0, classes, n + 5)
    rows = [np.sort(random.permutation(n + 5)[:n]), np.sort(random.permutation(n + 5)[: max(1, n - 3)])]
    order = BatchOrder(rows, batch_size, stratum=stratum if stratified else None)
    batches = list(order.epoch(torch.Generator().manual_seed(seed)))
    assert len(batches) == order.steps == math.ceil(n / batch_size)
    assert {tuple(b.shape) for b in batches} == {(2, order.batch_size)}
    assert order.batch_size <= batch_size
    visited = torch.cat(batches, dim=1)
    for k, r in enumerate(rows):
        assert set(visited[k].tolist()) == set(r.tolist())
        assert np.bincount(visited[k], minlength=n + 5)[r].max() <= math.ceil(visited.shape[1] / len(r))


def test_stratified_batches_hold_every_class_in_its_share():
    y = np.array([0] * 900 + [1] * 100)
    order = BatchOrder([np.arange(1000)], 100, stratum=y)
    for seed in range(5):
        shares = [y[b[0].numpy()].sum() for b in order.epoch(torch.Generator().manual_seed(seed))]
        assert min(shares) >= 9
        assert max(shares) <= 11


def test_two_epochs_differ_and_the_same_seed_repeats():
    order = BatchOrder([np.arange(50)], 10, stratum=np.arange(50) % 3)
    first, other, again = (torch.cat(list(order.epoch(torch.Generator().manual_seed(s))), dim=1) for s in (0, 1, 0))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_learning_rate_rises_then_falls_to_zero():
    recipe = Recipe(learning_rate=1.0, warm_up_updates=10).complete()
    rates = [learning_rate_at(s, 100, recipe) for s in range(101)]
    assert rates[:10] == pytest.approx([0.1 * (s + 1) for s in range(10)])
    assert rates[10] == 1.0
    assert rates[55] == pytest.approx(0.5)
    assert rates[100] == pytest.approx(0.0)
    assert learning_rate_at(99, 100, Recipe(learning_rate=0.3, schedule="constant").complete()) == 0.3


def test_weight_decay_is_not_on_biases():
    for network in ("mlp", lambda: nn.Linear(3, 2)):
        built = build_network(network, members=2, in_features=3, out_features=2, hidden_sizes=(4,), dropout=0.0, seed=0)
        decayed, plain = make_optimiser(built, Recipe(weight_decay=0.5).complete()).param_groups
        weights = [p for name, p in built.named_parameters() if name.endswith("weight")]
        assert (decayed["weight_decay"], plain["weight_decay"]) == (0.5, 0.0)
        assert [id(p) for p in decayed["params"]] == [id(p) for p in weights]
    with pytest.raises(ValueError, match="network: it has no parameters"):
        make_optimiser(nn.Identity(), Recipe().complete())


@pytest.mark.parametrize("network", ["mlp", nn.Linear])
def test_gradients_are_clipped_member_by_member(network):
    built = build_network(network, members=2, in_features=3, out_features=2, hidden_sizes=(4,), dropout=0.0, seed=0)
    scale = torch.tensor([100.0, 1e-3])[:, None, None]
    (built(torch.ones(2, 5, 3)) * scale).sum().backward()
    before = _norms(built)
    clip_gradients(built.named_parameters(), 2, 1.0)
    assert _norms(built) == pytest.approx([1.0, before[1]], rel=1e-4)


def _norms(network):
    named = list(network.named_parameters())
    return [
        math.sqrt(
            sum(
                float((p.grad if name.startswith(f"networks.{k}") else p.grad[k]).square().sum())
                for name, p in named
                if not name.startswith("networks") or name.startswith(f"networks.{k}")
            )
        )
        for k in range(2)
    ]


def test_the_weight_average_is_an_exponential_one():
    network = nn.Module()
    network.register_buffer("w", torch.zeros(2))
    network.register_buffer("count", torch.zeros((), dtype=torch.long))
    live = dict(network.named_buffers())
    average = WeightAverage(network, horizon=4)
    expected = 0.0
    for step in range(200):
        live["w"].fill_(float(step))
        live["count"].fill_(step)
        average.update(step)
        decay = min(0.75, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * step
    assert average.averaged["w"].tolist() == pytest.approx([expected] * 2, rel=1e-5)
    assert average.averaged["count"] == 199
    with average.lent():
        assert network.w.tolist() == pytest.approx([expected] * 2, rel=1e-5)
    assert network.w.tolist() == [199.0] * 2
    plain = WeightAverage(network, horizon=0)
    plain.update(0)
    assert plain.averaged["w"] is network.w


def test_each_member_keeps_its_best_weights_and_of_equals_the_latest():
    best = BestMembers(2, {"layer.w": torch.zeros(2, 3), "networks.1.w": torch.zeros(3)})
    everyone = torch.ones(2, dtype=torch.bool)

    def offer(value, keys, active=everyone):
        state = {"layer.w": torch.full((2, 3), value), "networks.1.w": torch.full((3,), value)}
        best.update(torch.tensor(keys), int(value), state, active)

    offer(1.0, [0.5, 0.5])
    offer(2.0, [0.6, 0.4])
    offer(3.0, [0.6, float("nan")])
    offer(4.0, [0.9, 0.9], torch.tensor([False, False]))
    assert best.epoch.tolist() == [3, 1]
    assert best.state["layer.w"][:, 0].tolist() == [3.0, 1.0]
    assert best.state["networks.1.w"][0] == 1.0


def _objective(recipe, members=2):
    prior = torch.tensor([0.5, 0.5])
    return MemberObjective(recipe, metrics.get("f1"), "binary", members, prior=prior, labels=(0, 1))


def test_members_cool_and_finish_each_by_itself():
    recipe = Recipe("east", patience=2, max_fruitless=2, cooling=0.5).complete()
    objective = _objective(recipe)
    stopping = Stopping(recipe, objective)
    for epoch in range(9):
        loss = torch.tensor([0.5 - 0.01 * epoch, 0.5])
        stopping.validated(loss, -loss)
    assert stopping.active.tolist() == [True, False]
    assert objective.temperature.flatten().tolist() == pytest.approx([0.2, 0.05])


def test_patience_stops_a_member_without_improvement_and_nan_stops_at_once():
    recipe = Recipe("default", patience=3).complete()
    stopping = Stopping(recipe, _objective(recipe, members=3))
    for epoch in range(4):
        loss = torch.tensor([0.5 - 0.01 * epoch, 0.5, math.nan])
        stopping.validated(loss, -loss)
    assert stopping.active.tolist() == [True, False, False]


@pytest.mark.parametrize("recipe", ["default", "east"])
def test_an_improvement_no_larger_than_min_delta_does_not_keep_a_member_going(recipe):
    recipe = Recipe(recipe, patience=3, max_fruitless=1, min_delta=0.01).complete()
    stopping = Stopping(recipe, _objective(recipe))
    for epoch in range(8):
        loss = torch.tensor([0.5 - 0.02 * epoch, 0.5 - 0.002 * epoch])
        stopping.validated(loss, -loss)
    assert stopping.active.tolist() == [True, False]


def test_step_annealing_cools_every_epoch():
    recipe = Recipe("default", annealing="epoch", cooling=0.5).complete()
    objective = _objective(recipe)
    stopping = Stopping(recipe, objective)
    stopping.epoch_ended()
    stopping.epoch_ended()
    assert objective.temperature.flatten().tolist() == pytest.approx([0.05, 0.05])
