"""One cut-off per group: against all combinations of cut-offs."""

import itertools

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from metricfit import MetricClassifier, metrics
from metricfit.decisions import InfeasibleError, TunedRuleClassifier, best_group_thresholds, best_threshold


def rows(seed, n=24):
    rng = np.random.default_rng(seed)
    sex = np.where(rng.random(n) < 0.5, "f", "m")
    y = (rng.random(n) < np.where(sex == "f", 0.3, 0.5)).astype(int)
    sex[:4], y[:4] = ["f", "f", "m", "m"], [0, 1, 0, 1]
    return y, (rng.normal(size=n) + y + 0.7 * (sex == "m")).round(1), sex


def combinations(y, score, sex):
    parts = {g: [*np.unique(score[sex == g]), np.inf] for g in ("f", "m")}
    for limits in itertools.product(*parts.values()):
        called = score >= np.where(sex == "f", *limits)
        yield called, {g: called[(sex == g) & (y == 1)].mean() for g in parts}


@pytest.mark.parametrize(
    ("metric", "limit", "holds"),
    [
        ("accuracy", "", lambda recalls: True),
        ("f1", "", lambda recalls: True),
        ("accuracy", "recall[1] >= 0.8 in sex", lambda recalls: min(recalls.values()) >= 0.8),
        ("f1", "spread(recall[1]) <= 0.1 in sex", lambda recalls: abs(recalls["f"] - recalls["m"]) <= 0.1 + 1e-12),
        ("mcc", "spread(recall[1]) <= 0.02 in sex", lambda recalls: abs(recalls["f"] - recalls["m"]) <= 0.02 + 1e-12),
    ],
)
def test_nearly_always_the_best_of_all_combinations(metric, limit, holds):
    gaps, judge = [], metrics.get(metric)
    for seed in range(4):
        y, score, sex = rows(seed)
        found = best_group_thresholds(y, score, metric, by="sex", columns={"sex": sex}, subject_to=limit or ())
        decided = found.apply(score, {"sex": sex})
        assert judge.score(y, decided) == pytest.approx(found.value)
        assert holds({g: decided[(sex == g) & (y == 1)].mean() for g in ("f", "m")})
        every = [called for called, recalls in combinations(y, score, sex) if holds(recalls)]
        gaps.append(max(judge.score(y, called.astype(int)) for called in every) - found.value)
    assert min(gaps) > -1e-9
    assert np.mean(np.array(gaps) < 1e-9) >= 0.9
    assert max(gaps) < 0.03


def test_never_worse_than_one_cut_off_for_all():
    y, score, sex = rows(1, 400)
    spec, columns = "f1 subject to spread(recall[1]) <= 0.1 in sex", {"sex": sex}
    assert best_group_thresholds(y, score, spec, by="sex", columns=columns).value >= best_threshold(
        y, score, spec, columns=columns
    ).value  # fmt: skip


def test_labels_may_be_text():
    y, score, sex = rows(2, 80)
    found = best_group_thresholds(np.where(y == 1, "yes", "no"), score, "accuracy", by="sex", columns={"sex": sex})
    alone = [best_threshold(y[sex == g], score[sex == g], "accuracy").value * (sex == g).mean() for g in ("f", "m")]
    assert found.value == pytest.approx(sum(alone))
    assert set(found.apply(score, {"sex": sex})) == {"yes", "no"}


def test_what_cannot_be_is_said():
    y, score, sex = rows(3)
    columns = {"sex": sex, "zone": sex}
    limits = ["recall[1] >= 1 in sex", "predicted_share[1] <= 0.2"]
    with pytest.raises(InfeasibleError, match=r"recall\[1\] >= 1 in sex: the best reachable value beside the others"):
        best_group_thresholds(y, score, "f1", by="sex", columns=columns, subject_to=limits)
    with pytest.raises(ValueError, match="cut-offs by 'sex' see its groups alone"):
        best_group_thresholds(y, score, "f1 subject to recall >= 0.1 in zone", by="sex", columns=columns)
    found = best_group_thresholds(y, score, "f1", by="sex", columns=columns)
    with pytest.raises(ValueError, match="no cut-off for 'x'; the groups are"):
        found.apply([0.1], {"sex": ["x"]})
    lacking = {"sex": ["x", "x", "y", "y", "y"]}
    with pytest.raises(ValueError, match=r"columns\['sex'\]: recall has no value in the group 'x', which lacks one"):
        best_group_thresholds(
            [0, 0, 1, 1, 0], np.arange(5.0), "f1 subject to recall >= 0.5 in sex", by="sex", columns=lacking
        )


def test_the_tuned_classifier_has_a_cut_off_for_each_group():
    rng = np.random.default_rng(0)
    y, score, sex = rows(4, 400)
    table = pd.DataFrame({"score": score, "noise": rng.normal(size=400)})
    base, spec = LogisticRegression(), "accuracy subject to spread(recall[1]) <= 0.1 in sex"
    model = TunedRuleClassifier(base, spec, by="sex").fit(table, y, columns={"sex": sex})
    assert set(model.rule_.thresholds) == {"f", "m"}
    decided = model.predict(table, columns={"sex": sex})
    np.testing.assert_array_equal(decided, model.predict_proba(table, columns={"sex": sex}).argmax(axis=1))
    p = model.predict_proba(table, raw=True)[:, 1]
    np.testing.assert_array_equal(decided, p >= np.where(sex == "f", *[model.rule_.thresholds[g] for g in "fm"]))
    one = TunedRuleClassifier(base, spec).fit(table, y, columns={"sex": sex})
    assert model.value_ >= one.value_
    with pytest.raises(ValueError, match="columns: the metric needs 'sex'"):
        model.predict(table)
    with pytest.raises(ValueError, match="by: cut-offs of groups are for two classes"):
        TunedRuleClassifier(base, spec, by="sex", confidence=0.9).fit(table, y, columns={"sex": sex})


def test_a_fitted_metric_classifier_gets_a_cut_off_for_each_group_on_rows_apart():
    y, score, sex = rows(4, 400)
    table = pd.DataFrame({"score": score, "sex": sex})
    base = MetricClassifier("f1", models=["forest"], cv=2, baseline=False, verbose=False, random_state=0)
    base.fit(table[:200], y[:200])
    spec = "accuracy subject to spread(recall[1]) <= 0.1 in sex"
    model = TunedRuleClassifier(base, spec, by="sex", cv="prefit").fit(table[200:], y[200:])
    recalls = [model.predict(part)[seen == 1].mean() for part, seen in ((table[200:][m], y[200:][m]) for m in
               (sex[200:] == "f", sex[200:] == "m"))]  # fmt: skip
    assert abs(recalls[0] - recalls[1]) <= 0.1 + 1e-12
