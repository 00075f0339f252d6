import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sk

from metricfit import metrics
from metricfit.decisions import InfeasibleError, best_label_thresholds, best_rule, best_threshold

RANKING = {"auroc", "auprc", "precision_at", "recall_at", "threshold_mean"}
DECIDING = [name for name in metrics.available() if name not in RANKING]


def data(n=200, seed=0, classes=(0, 1), digits=2):
    rng = np.random.default_rng(seed)
    positive = rng.random(n) < 0.3
    score = (rng.normal(size=n) + 1.5 * positive).round(digits)
    return np.asarray(classes)[positive.astype(int)], score


def by_hand(y, score, metric, weight=None):
    """The best value over all distinct cut-offs, one prediction after the other."""
    cuts = [*np.unique(score), np.inf]
    values = [metric.score(y, np.where(score >= cut, 1, 0), weight) for cut in cuts]
    return max(values) if metric.greater_is_better else min(values)


@pytest.mark.parametrize("name", DECIDING)
@pytest.mark.parametrize("weighted", [False, True])
def test_every_metric_of_the_registry_reaches_the_best_of_all_cutoffs(name, weighted):
    y, score = data()
    weight = np.random.default_rng(1).random(len(y)) if weighted else None
    metric = metrics.get(name)
    best = best_threshold(y, score, name, sample_weight=weight)
    assert best.value == pytest.approx(by_hand(y, score, metric, weight), abs=1e-12)
    assert best.value == pytest.approx(metric.score(y, (score >= best.threshold).astype(int), weight), abs=1e-12)


@pytest.mark.parametrize(
    "metric",
    [
        "0.7*recall[1] + 0.3*precision[1]",
        "f1_macro",
        "cost:matrix=[[0,1],[7,0]]",
        "fbeta:beta=2",
        lambda cm: cm.tp[1] / (cm.tp[1] + cm.fp[1] + 3 * cm.fn[1]),
        lambda cm: cm.tp[1] / max(cm.tp[1] + cm.fp[1], 5),  # cannot be mapped over a batch
    ],
)
def test_expressions_and_functions_reach_the_best_of_all_cutoffs(metric):
    y, score = data()
    best = best_threshold(y, score, metric)
    assert best.value == pytest.approx(by_hand(y, score, metrics.get(metric)), abs=1e-12)


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 6)), min_size=4, max_size=25),
    st.sampled_from(["f1", "mcc", "balanced_accuracy", "jaccard", "kappa", "predicted_share"]),
)
@settings(max_examples=80, deadline=None)
def test_no_cutoff_is_better(rows, name):
    y, score = np.array([r[0] for r in rows], int), np.array([r[1] for r in rows], float)
    if len(set(y)) < 2 or len(set(score)) < 2:
        return
    best = best_threshold(y, score, name)
    assert best.value == pytest.approx(by_hand(y, score, metrics.get(name)), abs=1e-12)


def test_f1_equals_the_best_point_of_sklearns_curve():
    y, score = data(5000, digits=9)
    precision, recall, _ = sk.precision_recall_curve(y, score)
    expected = np.nanmax(2 * precision * recall / np.maximum(precision + recall, 1e-300))
    best = best_threshold(y, score, "f1")
    assert best.value == pytest.approx(expected, abs=1e-12)
    assert sk.f1_score(y, score >= best.threshold) == pytest.approx(best.value, abs=1e-12)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int64])
def test_other_dtypes_of_scores(dtype):
    y, score = data(400, digits=3)
    score = (score * 50).astype(dtype)
    best = best_threshold(y, score, "mcc")
    assert sk.matthews_corrcoef(y, score >= best.threshold) == pytest.approx(best.value, abs=1e-12)


def test_tensors_lists_and_text_labels():
    y, score = data(classes=("ham", "spam"))
    best = best_threshold(y.tolist(), torch.from_numpy(score), "f1[spam]")
    assert best.value == pytest.approx(sk.f1_score(y == "spam", score >= best.threshold))
    assert set(best.rule.apply(score)) == {"ham", "spam"}
    turned = best_threshold(y, -score, "f1", labels=["spam", "ham"])
    assert turned.value == pytest.approx(sk.f1_score(y == "ham", -score >= turned.threshold))
    assert turned.rule.classes == ("spam", "ham")


CONSTRAINTS = [
    ("precision[1]", ["recall[1] >= 0.9"]),
    ("recall[1]", ["precision[1] >= 0.6", "predicted_share[1] <= 0.3"]),
    ("f1", ["specificity[1] >= 0.9"]),
    ("accuracy", ["recall[0] >= 0.8", "recall[1] >= 0.6", "precision[0] >= 0.8"]),
]


@pytest.mark.parametrize(("objective", "constraints"), CONSTRAINTS)
def test_constraints_hold_and_no_feasible_cutoff_is_better(objective, constraints):
    y, score = data()
    best = best_threshold(y, score, objective, subject_to=constraints)
    one_spec = best_threshold(y, score, f"{objective} subject to {' and '.join(constraints)}")
    assert (one_spec.threshold, one_spec.value) == (best.threshold, best.value)
    wanted = [metrics.get(f"accuracy subject to {c}").constraints[0] for c in constraints]

    def holds(predicted):
        return all(float(c.violation(torch.tensor(c.metric.score(y, predicted)))) == 0 for c in wanted)

    assert holds((score >= best.threshold).astype(int))
    feasible = [p for cut in [*np.unique(score), np.inf] if holds(p := (score >= cut).astype(int))]
    assert best.value == pytest.approx(max(metrics.get(objective).score(y, p) for p in feasible))
    assert [c.value for c in best.constraints] == pytest.approx(
        [c.metric.score(y, (score >= best.threshold).astype(int)) for c in wanted]
    )


def test_constraint_objects_work_as_well():
    y, score = data()
    spec = best_threshold(y, score, "precision[1] subject to recall[1] >= 0.9")
    built = best_threshold(y, score, metrics.Precision(1).subject_to(metrics.Recall(1) >= 0.9))
    assert built.threshold == spec.threshold
    assert best_threshold(y, score, "precision[1]", subject_to=metrics.Recall(1) >= 0.9).threshold == spec.threshold


def test_infeasible_constraints_say_the_best_reachable_value():
    y, score = [0, 1, 0, 1, 1], [0.9, 0.8, 0.5, 0.4, 0.3]
    with pytest.raises(InfeasibleError, match=r"precision\[1\] >= 0.9: the best reachable value is 0\.6") as caught:
        best_threshold(y, score, "recall[1] subject to precision[1] >= 0.9")
    assert caught.value.reachable == {"precision[1] >= 0.9": pytest.approx(0.6)}
    with pytest.raises(InfeasibleError, match=r"precision.*beside the others is 0\.6; recall.*on its own is 1"):
        best_threshold(y, score, "f1", subject_to=["precision[1] >= 0.61", "recall[1] >= 0.9"])


BAD = [
    ({"y_true": [1, 1, 1]}, "only the class 1 occurs"),
    ({"y_true": ["a", "a", "a"]}, "only the class 'a' occurs"),
    ({"score": [0.5, 0.5, 0.5]}, "all scores are 0.5"),
    ({"score": [0.5, np.nan, 0.2]}, "score: expected finite numbers, got NaN"),
    ({"score": ["a", "b", "c"]}, "score: expected numbers"),
    ({"score": [0.1, 0.2]}, "score: expected 3 rows"),
    ({"score": [[0.1, 0.9]] * 3}, r"score: expected shape \(n,\)"),
    ({"y_true": [0, 1, 2]}, "expected two classes, got 3"),
    ({"labels": [0, 5]}, "label .*1.* is not among the classes"),
    ({"sample_weight": [0, 0, 0]}, "all weights are zero"),
    ({"sample_weight": [1, 0, 1]}, "only the class 0 occurs"),
    ({"sample_weight": [1, -1, 1]}, "finite weights >= 0"),
    ({"metric": "auroc"}, "metric of the scores"),
    ({"metric": "f1:average=none"}, "a search needs one"),
    ({"metric": 3}, "metric: expected a name"),
    (
        {"subject_to": ["recall[1] >= 0.9", "recall[1] <= 0.5"]},
        r"no cut-off meets recall\[1\] >= 0\.9 and recall\[1\] <= 0\.5.*best reachable value",
    ),
    ({"subject_to": ["recall[1] >= 1.5"]}, "cannot be met"),
    ({"subject_to": [0.9]}, "subject_to: expected constraints"),
    ({"confidence": 0.9}, "confidence: has no effect without a constraint"),
    ({"confidence": 1.5, "subject_to": "recall >= 0.5"}, "confidence: expected a number between 0 and 1"),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_bad_input_gets_one_clear_message(change, message):
    given = {"y_true": [0, 1, 0], "score": [0.1, 0.8, 0.3], "metric": "f1"} | change
    with pytest.raises((ValueError, TypeError), match=message):
        best_threshold(given.pop("y_true"), given.pop("score"), given.pop("metric"), **given)


def test_a_metric_that_is_nan_everywhere_is_refused():
    with pytest.raises(ValueError, match=r"undefined \(NaN\) at every cut-off"):
        best_threshold([0, 1], [0.1, 0.9], lambda cm: cm.tp[1] * torch.nan)


def test_undefined_cutoffs_are_left_out():
    best = best_threshold([0, 1, 0], [0.1, 0.8, 0.3], "precision:zero_division=nan")
    assert (best.value, best.confusion.predicted[1].item()) == (1.0, 1.0)


@pytest.mark.slow
def test_ten_million_scores_take_seconds_and_bounded_memory():
    import resource
    import time

    rng = np.random.default_rng(0)
    y = (rng.random(10_000_000) < 0.05).astype(np.int8)
    score = rng.normal(size=len(y)) + 2 * y
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    best = best_threshold(y, score, "f1")
    assert time.perf_counter() - began < 60
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e6 < 1.2  # gigabytes: about 60 bytes each
    assert best.value == pytest.approx(sk.f1_score(y, score >= best.threshold), abs=1e-12)


SCORES = [0.125, 0.25, 0.375, 0.4375, 0.625, 0.875]  # exact in every floating-point type


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_tensors_of_any_precision_and_with_a_gradient_are_scores(dtype):
    y, score = [0, 0, 1, 0, 1, 1], torch.tensor(SCORES, dtype=dtype, requires_grad=True)
    expected = best_threshold(y, SCORES, "f1")
    assert best_threshold(y, score, "f1").value == expected.value
    assert best_rule(y, score, "f1").rule.parameter == expected.threshold
    assert expected.rule.apply(score).tolist() == expected.rule.apply(SCORES).tolist()
    columns, indicator = torch.stack([score, 1 - score], dim=1), torch.tensor([y, y]).T.to(dtype)
    assert best_label_thresholds(indicator, columns, "f1").thresholds[0] == expected.threshold


def test_frames_of_nullable_columns_are_scores():
    y = pd.DataFrame({"a": [0, 0, 1, 0, 1, 1], "b": [1, 1, 0, 0, 1, 0]})
    score = pd.DataFrame({"a": SCORES, "b": SCORES[::-1]})
    expected = best_label_thresholds(y, score, "f1").thresholds
    assert (best_label_thresholds(y.astype("Int64"), score.astype("Float64"), "f1").thresholds == expected).all()
    with pytest.raises(TypeError, match="score: expected numbers, got object"):
        best_label_thresholds(y, score.astype(str).astype(object), "f1")


def test_one_label_is_a_rule_for_labels():
    y = np.array([[0], [0], [1], [0], [1], [1]])
    rule = best_rule(y, np.array(SCORES)[:, None], "f1").rule
    assert rule.kind == "thresholds"
    assert rule.parameter == (best_threshold(y[:, 0], SCORES, "f1").threshold,)
