import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metricfit import metrics
from metricfit.decisions import InfeasibleError, best_offsets
from metricfit.decisions import coordinates as offsets
from metricfit.decisions.problem import class_samples, goal_of

SPECS = [
    "f1_macro",
    "mcc",
    "balanced_accuracy",
    "kappa:weights=quadratic",
    "gmean",
    "accuracy",
    "cost:matrix=[[0,1,4],[1,0,1],[9,1,0]]",
]


def data(n=150, classes=3, seed=0, sharp=1.5):
    rng = np.random.default_rng(seed)
    share = np.arange(classes, 0, -1.0) ** 2
    y = rng.choice(classes, size=n, p=share / share.sum())
    logits = rng.normal(size=(n, classes)) + sharp * np.eye(classes)[y] + np.log(share)
    p = np.exp(logits)
    return y, p / p.sum(axis=1, keepdims=True)


def by_hand(y, p, metric, label_count):
    """The best over offsets at all pairs of margins: with three classes two free offsets decide everything."""
    logs = np.log(p)
    steps = [np.sort((logs[:, [0]] - logs[:, 1:])[:, k]) for k in (0, 1)]
    grids = [np.concatenate([[s[0] - 1], (s[1:] + s[:-1]) / 2, [s[-1] + 1]]) for s in steps]
    best = -np.inf
    for a, b in itertools.product(*grids):
        predicted = (logs + np.array([0.0, a, b])).argmax(axis=1)
        value = metric.score(y, predicted, labels=range(label_count))
        best = max(best, value if metric.greater_is_better else -value)
    return best if metric.greater_is_better else -best


@pytest.mark.parametrize("spec", SPECS)
def test_the_value_is_that_of_the_rule_and_no_worse_than_argmax(spec):
    y, p = data()
    metric = metrics.get(spec)
    for strength in (0.0, 1.0):
        best = best_offsets(y, p, spec, regularisation=strength)
        assert best.value == pytest.approx(metric.score(y, best.rule.apply(p)), abs=1e-12)
        assert best.argmax_value == pytest.approx(metric.score(y, p.argmax(axis=1), labels=range(3)), abs=1e-12)
        assert metric.distance(best.value) <= metric.distance(best.argmax_value)


@pytest.mark.parametrize("spec", ["f1_macro", "mcc", "balanced_accuracy"])
def test_coordinate_ascent_comes_close_to_an_exhaustive_search(spec):
    # 28 samples, so that all 27 × 27 pairs of offsets (and some between) can be tried.
    for seed in range(3):
        y, p = data(28, seed=seed, sharp=1.0)
        found = best_offsets(y, p, spec, labels=range(3), regularisation=0.0, restarts=8).value
        assert found >= by_hand(y, p, metrics.get(spec), 3) - 0.02


@pytest.mark.parametrize("belief", [0.0, 0.5])
def test_one_class_sweep_is_exact(belief):
    y, p = data(40)
    problem = offsets._Problem.of(class_samples(y, p), goal_of("f1_macro"), 0.0, belief)
    start = np.array([0.3, -0.2, 0.5])
    for k in range(3):
        moved = start.copy()
        moved[k], key = offsets._sweep_class(problem, start, k)
        assert problem.key(moved) == pytest.approx(key)
        tried = []
        for value in np.linspace(-8, 8, 401):
            other = start.copy()
            other[k] = value
            tried.append(problem.key(other))
        assert problem.key(moved) >= max(tried)


def test_small_chunks_do_not_change_the_answer(monkeypatch):
    y, p = data(40)
    whole = best_offsets(y, p, "f1_macro", restarts=0).offsets
    for rows in (1, 7):
        monkeypatch.setattr(offsets, "_CELLS", 9 * rows)
        np.testing.assert_array_equal(best_offsets(y, p, "f1_macro", restarts=0).offsets, whole)


@given(st.integers(0, 10_000), st.integers(2, 5), st.sampled_from(["f1_macro", "mcc", "balanced_accuracy", "accuracy"]))
@settings(max_examples=30, deadline=None)
def test_never_below_argmax_with_ties_and_zeros(seed, classes, spec):
    rng = np.random.default_rng(seed)
    p = rng.integers(0, 4, size=(25, classes)).astype(float)
    p[p.sum(axis=1) == 0] = 1
    p /= p.sum(axis=1, keepdims=True)
    y = rng.integers(0, classes, size=25)
    if len(set(y)) < 2:
        return
    best = best_offsets(y, p, spec, labels=range(classes), restarts=1)
    assert best.value >= best.argmax_value
    assert best.value == pytest.approx(metrics.get(spec).score(y, best.rule.apply(p), labels=range(classes)))


def test_weights_count_as_repetitions():
    y, p = data(60)
    times = np.random.default_rng(1).integers(1, 4, 60)
    weighted = best_offsets(y, p, "f1_macro", sample_weight=times, regularisation=0)
    repeated = best_offsets(np.repeat(y, times), np.repeat(p, times, axis=0), "f1_macro", regularisation=0)
    assert weighted.value == pytest.approx(repeated.value)


def test_text_labels_and_constraints_on_a_class():
    y, p = data(400)
    names = np.array(["common", "rare", "rarest"])
    best = best_offsets(names[y], p, "accuracy subject to recall[rarest] >= 0.8 and predicted_share[rare] <= 0.3")
    predicted = best.rule.apply(p)
    assert (predicted[y == 2] == "rarest").mean() >= 0.8
    assert (predicted == "rare").mean() <= 0.3
    assert [c.value for c in best.constraints] == pytest.approx(
        [(predicted[y == 2] == "rarest").mean(), (predicted == "rare").mean()]
    )


def test_infeasible_constraints_say_the_best_reachable_value():
    y, p = data(100, sharp=0.5)
    with pytest.raises(
        InfeasibleError, match=r"no set of class offsets meets.*best reachable value beside the others is"
    ) as caught:
        best_offsets(y, p, "accuracy", subject_to=["precision[2] >= 0.97", "recall[2] >= 0.9"])
    assert 0 < caught.value.reachable["precision[2] >= 0.97"] < 0.97


def test_regularisation_pulls_towards_argmax():
    y, p = data(60)
    free, held, fixed = (best_offsets(y, p, "f1_macro", regularisation=r) for r in (0.0, 5.0, 1000.0))
    assert free.value >= held.value >= fixed.value == fixed.argmax_value
    assert 0 < np.abs(held.offsets).sum() < np.abs(free.offsets).sum()
    assert not fixed.offsets.any()


def test_two_classes_agree_with_the_threshold_search():
    from metricfit.decisions import best_threshold

    y, p = data(200, classes=2)
    assert best_offsets(y, p, "f1", regularisation=0).value == pytest.approx(best_threshold(y, p[:, 1], "f1").value)


BAD = [
    ({"y_true": [1, 1, 1]}, "expected one column for each|only the class"),
    ({"y_true": [1, 1, 1], "labels": [0, 1, 2]}, "only the class 1 occurs"),
    ({"proba": [[0.2, 0.3, 0.5]] * 3}, "all rows are the same"),
    ({"proba": [[0.2, np.nan, 0.5]] * 3}, "got NaN"),
    ({"proba": [[2.0, 3.0, -1.0]] * 3}, "take the softmax first"),
    ({"proba": [[0.0, 0.0, 0.0], [1, 0, 0], [0, 1, 0]]}, "all zero"),
    ({"proba": [[0.2, 0.8]] * 3}, "expected one column for each of the 3 classes"),
    ({"labels": [0, 1, 5]}, "is not among the classes"),
    ({"sample_weight": [0, 0, 0]}, "all weights are zero"),
    ({"regularisation": -1}, "regularisation: expected a number >= 0"),
    ({"proba": [0.1, 0.2, 0.3]}, r"expected shape \(n, classes\)"),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_bad_input_gets_one_clear_message(change, message):
    given = {"y_true": [0, 1, 2], "proba": [[0.6, 0.3, 0.1], [0.3, 0.4, 0.3], [0.2, 0.3, 0.5]]} | change
    with pytest.raises(ValueError, match=message):
        best_offsets(given.pop("y_true"), given.pop("proba"), "f1", **given)


@pytest.mark.parametrize("belief", [0.0, 0.7])
@pytest.mark.parametrize(
    "spec",
    [
        "f1_macro",
        "f1:average=micro",
        "f1:average=weighted",
        "precision[1]",
        "recall_macro subject to precision[2] >= 0.5",
        "mcc",
    ],
)
def test_many_classes_counted_one_against_the_rest_have_the_keys_and_sweeps_of_the_whole_matrix(
    spec, belief, monkeypatch
):
    y, p = data(classes=4)
    weight = np.random.default_rng(1).uniform(0.5, 2, len(y))
    problem = offsets._Problem.of(class_samples(y, p, weight, labels=range(4)), goal_of(spec), 0.25, belief)
    rng, found = np.random.default_rng(2), {}
    points = rng.normal(size=(6, 4))
    for most in (16, 2):
        monkeypatch.setattr(offsets, "_MATRIX_UP_TO", most)
        assert problem.apart is (most == 2 and spec != "mcc")
        found[most] = [
            [*problem.key(point), *offsets._sweep_class(problem, point, k, few)[1]]
            for point in points
            for k in range(4)
            for few in (None, 8)
        ]
    np.testing.assert_allclose(found[2], found[16], atol=1e-12)
