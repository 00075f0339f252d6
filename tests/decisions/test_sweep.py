import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metricfit.decisions.problem import Samples, goal_of
from metricfit.decisions.threshold import Sweep, best_cut

FLOATS = {"float64": 64, "float32": 32, "float16": 16}


def sweep_of(positive, score, weight=None):
    return Sweep.of(Samples(np.asarray(positive, bool), np.asarray(score), weight, (0, 1)))


@st.composite
def scored(draw, dtype="float64"):
    width = FLOATS[dtype]
    n = draw(st.integers(2, 30))
    pool = draw(st.lists(st.floats(width=width, allow_nan=False, allow_infinity=False), min_size=2, max_size=12))
    with np.errstate(over="ignore"):
        near = [np.nextafter(np.array(v, dtype), np.array(np.inf, dtype))[()] for v in pool]
    values = np.array([*pool, *near], dtype)
    values = values[np.isfinite(values)]
    score = values[draw(st.lists(st.integers(0, len(values) - 1), min_size=n, max_size=n))]
    positive = np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    return positive, score


@pytest.mark.parametrize("dtype", FLOATS)
def test_every_threshold_reproduces_its_cutoff_even_between_adjacent_floats(dtype):
    @given(scored(dtype))
    @settings(max_examples=150, deadline=None)
    def check(data):
        positive, score = data
        sweep = sweep_of(positive, score)
        for index in range(len(sweep)):
            for low in (False, True):
                decided = score >= sweep.threshold(index, low=low)  # a Python float takes the array's dtype
                assert decided.sum() == (sweep.tp + sweep.fp)[index]
                assert (decided & positive).sum() == sweep.tp[index]
            assert sweep.index_of(sweep.threshold(index)) == index

    check()


def test_thresholds_lie_midway_between_scores():
    sweep = sweep_of([0, 1, 1], [1.0, 2.0, 4.0])
    assert [sweep.threshold(i) for i in (1, 2, 3)] == [3.0, 1.5, 1.0]
    assert sweep.threshold(0) > 4.0
    assert sweep.threshold(1, low=True) == np.nextafter(2.0, 3.0)


def test_counts_equal_a_plain_loop_with_ties_and_weights():
    rng = np.random.default_rng(0)
    score = rng.integers(0, 8, 60) / 7
    positive = rng.random(60) < 0.4
    weight = rng.random(60) * rng.integers(0, 2, 60)
    sweep = sweep_of(positive, score, weight)
    distinct = sorted(set(score), reverse=True)
    assert len(sweep) == len(distinct) + 1
    for index, value in enumerate(distinct, start=1):
        chosen = score >= value
        expected = [
            [weight[~chosen & ~positive].sum(), weight[chosen & ~positive].sum()],
            [weight[~chosen & positive].sum(), weight[chosen & positive].sum()],
        ]
        np.testing.assert_allclose(sweep.counts()[index], expected, atol=1e-12)


@pytest.mark.parametrize("spec", ["f1", "fpr", "precision subject to recall >= 0.8"])
def test_chunks_do_not_change_the_answer(spec):
    rng = np.random.default_rng(1)
    positive = rng.random(500) < 0.3
    sweep = sweep_of(positive, rng.normal(size=500).round(1) + positive)
    whole = best_cut(sweep, goal_of(spec))
    assert all(best_cut(sweep, goal_of(spec), chunk=size) == whole for size in (1, 7, 64))


def test_equal_values_go_to_the_cutoff_with_more_correct_decisions():
    sweep = sweep_of([1, 1, 1, 0, 1, 0], [6.0, 5.0, 4.0, 3.0, 2.0, 1.0])
    assert best_cut(sweep, goal_of("precision")).index == 3  # precision 1 at 1, 2 and 3 samples
    assert best_cut(sweep, goal_of("recall")).index == 5  # recall 1 at 5 and 6 samples
