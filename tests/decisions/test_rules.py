import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metricfit import metrics
from metricfit.decisions import DecisionRule, bayes_rule, best_rule

THREE = ("a", "b", "c")


def proba(n=200, classes=3, seed=0):
    return np.random.default_rng(seed).dirichlet(np.ones(classes), size=n)


RULES = [
    DecisionRule.argmax(THREE),
    DecisionRule.from_offsets([0.0, 0.7, -1.5], THREE, metric="f1"),
    DecisionRule.from_costs([[0, 1, 2], [5, 0, 1], [9, 3, 0]], THREE),
    DecisionRule.at_threshold(0.37, ["no", "yes"], metric="f1[yes] subject to recall[yes] >= 0.9"),
    DecisionRule.at_thresholds([0.2, 0.5, 0.9], THREE),
]


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.kind)
def test_json_gives_the_same_rule_back(rule):
    again = DecisionRule.from_json(rule.to_json())
    assert again == rule
    p = proba(classes=len(rule.classes))
    np.testing.assert_array_equal(again.apply(p), rule.apply(p))


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.kind)
def test_folded_probabilities_decide_as_the_rule_does(rule):
    p = proba(classes=len(rule.classes))
    folded = rule.fold(p)
    if rule.kind == "thresholds":
        np.testing.assert_array_equal(folded > 0.5, rule.apply(p))
    else:
        np.testing.assert_allclose(folded.sum(axis=1), 1)
        np.testing.assert_array_equal(np.array(rule.classes)[folded.argmax(axis=1)], rule.apply(p))
    assert (folded >= 0).all()
    assert (folded <= 1).all()


@given(st.floats(0, 1), st.lists(st.floats(0, 1), min_size=1, max_size=20))
@settings(max_examples=200, deadline=None)
def test_a_folded_threshold_is_exact_at_and_beside_the_threshold(threshold, values):
    p = np.array([threshold, np.nextafter(threshold, 0), min(np.nextafter(threshold, 1), 1.0), *values])
    rule = DecisionRule.at_threshold(threshold)
    folded = rule.fold(p)
    np.testing.assert_array_equal(folded.argmax(axis=1), p >= threshold)
    order = np.argsort(p, kind="stable")
    assert (np.diff(folded[order, 1]) >= -1e-15).all()


@pytest.mark.parametrize(
    ("metric", "said"),
    [
        ("f1[leaves]", "class 'leaves' if its raw probability is above 0.1335, tuned."),
        ("f1[leaves] subject to recall[leaves]>=.9", "class 'leaves' if its raw probability is above 0.1335, tuned."),
        ("f1[stays]", "class 'stays' if its raw probability is at least 0.8665, tuned."),
        ("<lambda>", "class 'stays' if its raw probability is at least 0.8665, tuned."),
        (None, "class 'stays' if its raw probability is at least 0.8665, tuned."),
    ],
)  # fmt: skip
def test_a_threshold_in_words_is_of_the_class_that_the_metric_names(metric, said):
    assert DecisionRule.at_threshold(0.8665, ["leaves", "stays"], metric=metric).in_words("tuned") == said


def test_offsets_are_added_to_log_probabilities():
    p = proba()
    rule = DecisionRule.from_offsets([0.0, 0.7, -1.5], THREE)
    expected = np.log(p) + np.array([0.0, 0.7, -1.5])
    np.testing.assert_array_equal(rule.apply(p), np.array(THREE)[expected.argmax(axis=1)])
    np.testing.assert_allclose(rule.fold(p), np.exp(expected) / np.exp(expected).sum(axis=1, keepdims=True))


def test_costs_choose_the_least_expected_cost():
    costs = np.array([[0, 1, 2], [5, 0, 1], [9, 3, 0.5]])
    p = proba()
    np.testing.assert_array_equal(bayes_rule(costs).apply(p), (p @ costs).argmin(axis=1))
    np.testing.assert_allclose(bayes_rule(1 - np.eye(3)).fold(p), p)


@pytest.mark.parametrize("costs", [[[0, 1], [9, 0]], [[-1, 3], [2, 0.5]], [[0, 1], [1, 2]]])
def test_the_bayes_rule_of_two_classes(costs):
    p = proba(classes=2)
    rule = bayes_rule(costs, ["ok", "fraud"])
    expected = np.array(["ok", "fraud"])[(p @ np.array(costs)).argmin(axis=1)]
    np.testing.assert_array_equal(rule.apply(p), expected)
    assert metrics.get(rule.metric).matrix == tuple(tuple(float(v) for v in row) for row in costs)


def test_best_rule_takes_the_bayes_rule_when_tuning_does_not_beat_it():
    rng = np.random.default_rng(0)
    p = proba(3000, seed=1)
    y = (p.cumsum(axis=1) > rng.random((3000, 1))).argmax(axis=1)  # labels drawn from the probabilities themselves
    metric = metrics.ExpectedCost(matrix=[[0, 1, 2], [5, 0, 1], [9, 3, 0]])
    best = best_rule(y, p, metric)
    bayes = metric.score(y, bayes_rule(metric.matrix).apply(p))
    assert best.value <= bayes
    assert best.value == pytest.approx(metric.score(y, best.rule.apply(p)))
    assert (
        best_rule(y, p, metrics.ExpectedCost(matrix=(1 - np.eye(3)).tolist())).value <= (y != p.argmax(axis=1)).mean()
    )


def test_best_rule_for_labels_and_for_two_classes():
    y = np.array([[1, 0], [1, 1], [0, 0], [0, 1]])
    assert best_rule(y, [[0.9, 0.1], [0.3, 0.3], [0.2, 0.2], [0.1, 0.4]], "f1").rule.kind == "thresholds"
    assert best_rule([0, 1, 1], [0.1, 0.4, 0.5], "f1").rule.parameter == 0.25


def test_numpy_labels_and_scores_of_any_scale():
    rule = DecisionRule.at_threshold(np.float32(1.5), np.array([3, 8]))
    assert rule.apply([1.0, 1.5, 40.0]).tolist() == [3, 8, 8]
    assert json.loads(rule.to_json())["classes"] == [3, 8]
    with pytest.raises(ValueError, match="expected probabilities"):
        rule.fold([1.0, 2.0])


GOOD = json.loads(RULES[1].to_json())
WRONG = [
    ("not json", "expected JSON text"),
    ("[]", "expected a JSON object"),
    (json.dumps(GOOD | {"format": "pickle"}), "expected a JSON object with format"),
    (json.dumps(GOOD | {"version": 2}), "expected version 1"),
    (json.dumps(GOOD | {"kind": "__import__('os')"}), "expected a known kind"),
    (json.dumps(GOOD | {"kind": ["offsets"]}), "expected a known kind"),
    (json.dumps(GOOD | {"code": "print(1)"}), "unknown fields"),
    (json.dumps(GOOD | {"offsets": [0.0, 1.0]}), "offsets: expected finite numbers of shape"),
    (json.dumps(GOOD | {"offsets": ["0", "1", "2"]}), "offsets: expected finite numbers"),
    (json.dumps(GOOD | {"offsets": [[0.0], [1.0, 2.0], 3.0]}), "offsets: expected finite numbers"),
    (json.dumps(GOOD | {"offsets": [0.0, float("nan"), 1.0]}), "offsets: expected finite numbers"),
    (json.dumps(GOOD | {"classes": "abc"}), "list of classes"),
    (json.dumps(GOOD | {"classes": ["a", "a", "b"]}), "distinct"),
    (json.dumps({k: v for k, v in GOOD.items() if k != "offsets"}), "offsets: expected finite numbers"),
]


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_json_is_checked_field_by_field(text, message):
    with pytest.raises(ValueError, match=message):
        DecisionRule.from_json(text)


def test_json_with_a_metric_that_is_no_text_or_with_odd_classes():
    with pytest.raises(TypeError, match="metric: expected a spec"):
        DecisionRule.from_json(json.dumps(GOOD | {"metric": 3}))
    with pytest.raises(TypeError, match="classes: expected text or numbers"):
        DecisionRule.from_json(json.dumps(GOOD | {"classes": [["a"], "b", "c"]}))


MADE_WRONG = [
    (lambda: DecisionRule("median", (0, 1)), "kind: expected one of"),
    (lambda: DecisionRule("argmax", (0, 1), 3), "arg max has none"),
    (lambda: DecisionRule.at_threshold(0.5, (0, 1, 2)), "between two classes"),
    (lambda: DecisionRule.at_threshold(float("inf")), "threshold: expected finite numbers"),
    (lambda: bayes_rule([[0, 1, 2]]), "costs: expected a square matrix"),
    (lambda: bayes_rule([[0, np.nan], [1, 0]]), "costs: expected finite"),
    (lambda: RULES[0].apply([[0.1, 0.9]]), r"expected shape \(n, 3\)"),
    (lambda: RULES[0].apply([[0.1, np.nan, 0.2]]), "got NaN"),
    (lambda: RULES[0].apply([[3.0, 1.0, -2.0]]), "take the softmax first"),
    (lambda: RULES[4].fold([[3.0, 1.0, -2.0]]), "folding needs probabilities"),
]


@pytest.mark.parametrize(("make", "message"), MADE_WRONG)
def test_wrong_rules_and_wrong_scores_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
