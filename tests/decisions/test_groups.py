"""Constraints in every group, between groups and per day, against a loop over all cut-offs."""

import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from metricfit import MetricLoss, metrics
from metricfit.decisions import (
    InfeasibleError,
    TunedRuleClassifier,
    best_label_thresholds,
    best_offsets,
    best_rule,
    best_threshold,
)

F1 = metrics.get("f1")


def rows(seed=0, n=120, groups=3, digits=1):
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < 0.4).astype(int)
    region = rng.integers(0, groups, n)
    y[: 2 * groups], region[: 2 * groups] = np.tile([0, 1], groups), np.repeat(np.arange(groups), 2)
    score = (rng.normal(size=n) + 1.5 * y + 0.5 * region).round(digits)
    return y, score, np.array(["north", "south", "west", "east"])[region]


def recalls(y, called, region):
    return {g: called[(region == g) & (y == 1)].mean() for g in np.unique(region)}


def cutoffs(score):
    return [*np.unique(score), np.inf]


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), n=st.integers(12, 80), bound=st.sampled_from([0.3, 0.6, 0.8, 1.0]))
def test_a_constraint_holds_in_every_group_and_nothing_better_does(seed, n, bound):
    y, score, region = rows(seed, n)
    best = best_threshold(y, score, f"f1 subject to recall >= {bound} in region", columns={"region": region})
    good = [t for t in cutoffs(score) if min(recalls(y, score >= t, region).values()) >= bound]
    assert best.value == pytest.approx(max(F1.score(y, (score >= t).astype(int)) for t in good))
    found = best.constraints[0]
    expected = recalls(y, score >= best.threshold, region)
    assert found.groups == pytest.approx(expected)
    assert found.value == pytest.approx(min(expected.values()))


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), n=st.integers(20, 80), bound=st.sampled_from([0.1, 0.3, 0.6]))
def test_the_spread_between_groups_is_kept(seed, n, bound):
    y, score, region = rows(seed, n)

    def spread(t):
        values = recalls(y, score >= t, region).values()
        return max(values) - min(values)

    best = best_threshold(y, score, f"f1 subject to spread(recall) <= {bound} in region", columns={"region": region})
    good = [t for t in cutoffs(score) if spread(t) <= bound + 1e-12]
    assert best.value == pytest.approx(max(F1.score(y, (score >= t).astype(int)) for t in good))
    assert best.constraints[0].value == pytest.approx(spread(best.threshold))


def test_capacity_of_all_rows_and_per_day():
    y, score, _ = rows(1, 400, digits=2)
    day = np.repeat(np.arange(8), 50)
    best = best_threshold(y, score, "recall subject to predicted_count[1] <= 60")
    assert (score >= best.threshold).sum() <= 60
    good = [t for t in cutoffs(score) if (score >= t).sum() <= 60]
    assert best.value == pytest.approx(max(y[score >= t].sum() for t in good) / y.sum())
    daily = best_threshold(y, score, "recall subject to predicted_count[1] <= 12 per day", columns={"day": day})
    counts = np.bincount(day, score >= daily.threshold)
    assert counts.max() <= 12
    good = [t for t in cutoffs(score) if np.bincount(day, score >= t).max() <= 12]
    assert daily.value == pytest.approx(max(y[score >= t].sum() for t in good) / y.sum())
    assert daily.constraints[0].groups == dict(enumerate(counts))


def test_groups_and_overall_constraints_money_and_prevalence_together():
    y, score, region = rows(2, 300)
    frame = pd.DataFrame({"region": region, "sex": np.tile(["f", "m"], 150)})
    spec = ["recall[1] >= 0.7 in region", "spread(recall[1]) <= 0.2 in sex", "predicted_share[1] <= 0.75"]
    best = best_threshold(y, score, gain=(2, -1, 0, 0), subject_to=spec, columns=frame)
    called = score >= best.threshold
    assert min(recalls(y, called, region).values()) >= 0.7
    assert called.mean() <= 0.75
    every = []
    for t in cutoffs(score):
        called = score >= t
        by_sex = recalls(y, called, frame["sex"].to_numpy()).values()
        if (
            min(recalls(y, called, region).values()) >= 0.7
            and max(by_sex) - min(by_sex) <= 0.2
            and called.mean() <= 0.75
        ):
            every.append(2 * (called & (y == 1)).sum() - (called & (y == 0)).sum())
    assert best.value == max(every)
    moved = best.for_prevalence(0.2)
    assert min(recalls(y, score >= moved.threshold, region).values()) >= 0.7


def test_undefined_groups_are_left_out_and_groups_that_lack_a_class_are_named():
    y, score, region = rows(3, 100)
    best = best_threshold(y, score, "recall subject to precision >= 0.5 in region", columns={"region": region})
    for group in np.unique(region):
        called = (score >= best.threshold) & (region == group)
        assert not called.any() or y[called].mean() >= 0.5
    lacking = y * (region != "west")
    with pytest.raises(ValueError, match=r"recall has no value in the group 'west', which lacks one of the classes"):
        best_threshold(lacking, score, "f1 subject to recall >= 0.5 in region", columns={"region": region})
    best_threshold(lacking, score, "f1 subject to predicted_share[1] <= 0.9 in region", columns={"region": region})


def test_infeasible_constraints_say_what_the_worst_group_can_reach():
    y, score, region = rows(4, 100)
    spec = ["recall >= 0.9 in region", "precision >= 0.95"]
    with pytest.raises(InfeasibleError, match=r"recall >= 0\.9 in region: the best reachable value") as error:
        best_threshold(y, score, "f1", subject_to=spec, columns={"region": region})
    good = [t for t in np.unique(score) if y[score >= t].mean() >= 0.95]
    expected = max(min(recalls(y, score >= t, region).values()) for t in good)
    assert error.value.reachable["recall >= 0.9 in region"] == pytest.approx(expected)


def test_promises_hold_in_every_group_with_the_correction_for_their_number():
    rng = np.random.default_rng(0)
    broken = 0
    for _ in range(150):
        y, score, region = rows(int(rng.integers(10**9)), 600, digits=9)
        best = best_threshold(
            y, score, "precision subject to recall >= 0.7 in region", columns={"region": region}, confidence=0.9
        )
        assert best.constraints[0].promised >= 0.7
        from scipy.stats import norm

        shift = {"north": 0.0, "south": 0.5, "west": 1.0}
        true = {g: norm.sf(best.threshold - 1.5 - shift[g]) for g in np.unique(region)}
        broken += min(true.values()) < 0.7
    assert broken <= 24  # 15 expected at most; more come about once in a hundred
    with pytest.raises(ValueError, match="cannot be promised in groups"):
        best_threshold(y, score, "recall subject to precision >= 0.5 in r", columns={"r": region}, confidence=0.9)
    with pytest.raises(InfeasibleError, match=r"recall >= 0\.99 in r \(\w+\): the best that can be promised"):
        best_threshold(y, score, "precision subject to recall >= 0.99 in r", columns={"r": region}, confidence=0.9)


def test_the_tuned_classifier_takes_columns():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(600, 3))
    y = (X[:, 0] + rng.normal(size=600) > 0.5).astype(int)
    sex = np.where(X[:, 1] > 0, "f", "m")
    spec = "precision[1] subject to recall[1] >= 0.8 in sex"
    model = TunedRuleClassifier(LogisticRegression(), metric=spec).fit(X, y, columns={"sex": sex})
    assert set(model.search_.constraints[0].groups) == {"f", "m"}
    assert model.search_.constraints[0].value >= 0.8
    assert "recall[1] = " in str(model.search_)
    assert " in sex: f " in str(model.search_)


def test_the_grammar_reads_and_prints_groups():
    for spec in (
        "f1[yes] subject to recall[yes] >= 0.8 in region",
        "f1[yes] subject to spread(recall[yes]) <= 0.05 in sex",
        "recall[fraud] subject to predicted_count[fraud] <= 200 in 'day of week' and precision[fraud] >= 0.1",
    ):
        assert str(metrics.get(spec)) == spec
        assert metrics.get(str(metrics.get(spec))) == metrics.get(spec)
    assert metrics.get("f1 subject to predicted_count[1] <= 9 per day").constraints[0].within == "day"
    made = metrics.F1(1).subject_to((metrics.Recall(1) >= 0.8).in_groups("region"))
    assert made == metrics.get("f1[1] subject to recall[1] >= 0.8 in region")
    for wrong in (
        "f1 subject to spread(recall) <= 0.1",
        "f1 subject to recall >= 0.8 in",
        "f1 subject to spread recall <= 1",
    ):
        with pytest.raises(ValueError, match="expected"):
            metrics.get(wrong)


def test_what_cannot_see_groups_says_so():
    y, score, region = rows(6, 60)
    spec = "f1[1] subject to recall[1] >= 0.8 in region"
    with pytest.raises(ValueError, match=r"columns: the metric needs 'region', none were given; give columns="):
        best_threshold(y, score, spec)
    with pytest.raises(ValueError, match=r"needs 'region', got 'sex'"):
        best_threshold(y, score, spec, columns={"sex": region})
    with pytest.raises(ValueError, match=r"columns\['region'\]: expected shape \(60,\), got \(59,\)"):
        best_threshold(y, score, spec, columns={"region": region[1:]})
    three = np.eye(3)[np.arange(60) % 3] * 0.5 + 1 / 6
    for search, target in (
        (best_offsets, np.arange(60) % 3),
        (best_label_thresholds, np.eye(3, dtype=int)[np.arange(60) % 3]),
    ):
        with pytest.raises(ValueError, match="looks at columns of the rows"):
            search(target, three, spec)
    with pytest.raises(ValueError, match="looks at columns of the rows"):
        best_rule(np.arange(60) % 3, three, spec, columns=None)
    import torch

    with pytest.raises(ValueError, match="a batch shows no groups"):
        MetricLoss(spec)(torch.randn(6, 2), torch.tensor([0, 1, 0, 1, 0, 1]))


def test_many_days_take_bounded_memory_and_time():
    rng = np.random.default_rng(7)
    n = 100_000
    y = (rng.random(n) < 0.02).astype(int)
    score, day = rng.random(n) + 0.4 * y, np.arange(n) // 1000
    best = best_threshold(y, score, "recall subject to predicted_count[1] <= 30 per day", columns={"day": day})
    assert np.bincount(day, score >= best.threshold).max() == 30
    assert all(isinstance(group, int) for group in itertools.islice(best.constraints[0].groups, 3))
