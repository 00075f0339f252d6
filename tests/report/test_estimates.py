"""Intervals and paired differences against a plain bootstrap of the rows."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import f1_score, matthews_corrcoef, roc_auc_score

from metricfit import metrics
from metricfit.assess.intervals import Rival, confusion_of, estimate
from metricfit.assess.scores import HeldOutScores
from metricfit.report.about import describe_table
from metricfit.report.answer import answer
from metricfit.report.curves import calibration, one_class
from metricfit.report.explorer import explorer
from metricfit.report.tables import class_table, confused_pairs, matrices
from metricfit.report.training import alignment, coolings
from tests.report.helper import binary_scores, class_scores, history, label_scores, model


def plain_f1(truth, decided, weight):
    w = np.ones(len(truth)) if weight is None else weight
    return 2 * w[(truth == 1) & (decided == 1)].sum() / (w[truth == 1].sum() + w[decided == 1].sum())


def plain_bootstrap(score, truth, first, second, weight, draws=1500):
    random = np.random.default_rng(7)
    found = []
    for _ in range(draws):
        i = random.integers(len(truth), size=len(truth))
        w = None if weight is None else weight[i]
        found.append([score(truth[i], first[i], w), score(truth[i], second[i], w)])
    values = np.array(found)
    return np.quantile(values[:, 0], [0.025, 0.975]), np.quantile(values[:, 0] - values[:, 1], [0.025, 0.975])


@pytest.mark.parametrize("weighted", [False, True])
def test_interval_and_paired_gain_equal_a_plain_bootstrap(weighted):
    scores = binary_scores(400, weighted=weighted)
    rivals = [Rival("a", scores.decided, scores.proba), Rival("b", scores.baseline_tuned, scores.baseline)]
    ours, theirs = estimate(metrics.get("f1"), scores.truth, rivals, (0, 1), "binary", scores.weight)
    assert ours.estimate.value == pytest.approx(f1_score(scores.truth, scores.decided, sample_weight=scores.weight))
    interval, gain = plain_bootstrap(
        plain_f1,
        scores.truth,
        scores.decided,
        scores.baseline_tuned,
        scores.weight,
    )
    np.testing.assert_allclose([ours.estimate.low, ours.estimate.high], interval, atol=0.012)
    np.testing.assert_allclose([theirs.gain.low, theirs.gain.high], gain, atol=0.012)
    assert ours.gain is None


def test_several_classes_labels_and_metrics_of_scores():
    scores = class_scores(3)
    rivals = [Rival("a", scores.decided, scores.proba)]
    (found,) = estimate(metrics.get("mcc"), scores.truth, rivals, ("a", "b", "c"), "multiclass")
    assert found.estimate.value == pytest.approx(matthews_corrcoef(scores.truth, scores.decided))
    assert found.estimate.low < found.estimate.value < found.estimate.high
    labels = label_scores(3)
    (found,) = estimate(
        metrics.get("f1:average=macro"),
        labels.truth,
        [Rival("a", labels.decided, labels.proba)],
        (0, 1, 2),
        "multilabel",
    )
    assert found.estimate.value == pytest.approx(f1_score(labels.truth, labels.decided, average="macro"))
    assert found.estimate.low < found.estimate.value < found.estimate.high
    two = binary_scores(300)
    (found,) = estimate(metrics.get("auroc"), two.truth, [Rival("a", two.decided, two.proba)], (0, 1), "binary")
    assert found.estimate.value == pytest.approx(roc_auc_score(two.truth, two.proba[:, 1]))
    assert found.estimate.low < found.estimate.value < found.estimate.high


def test_the_direction_of_a_gain_is_that_of_the_metric():
    truth = np.array([0, 1] * 50)
    rivals = [Rival("right", truth, truth), Rival("wrong", 1 - truth, truth)]
    _, wrong = estimate(metrics.get("fpr[1]"), truth, rivals, (0, 1), "binary")
    assert wrong.gain.value == 1.0


def test_a_rival_that_misses_a_constraint_is_not_called_better():
    truth = np.repeat([1, 0], [200, 800])
    random = np.random.default_rng(0).random(1000)
    ours = (random < np.where(truth == 1, 0.95, 0.2)).astype(np.int64)  # recall 0.95
    theirs = (random < np.where(truth == 1, 0.5, 0.01)).astype(np.int64)  # more precise, recall 0.5
    proba = np.full((1000, 2), 0.5, dtype=np.float32)
    metric = metrics.get("precision[1] subject to recall[1] >= 0.9")
    scores = HeldOutScores(truth, proba, ours, proba, theirs)
    top = answer(metric, scores, (0, 1), "binary")
    assert top["sentence"].endswith("; cross-entropy with a tuned rule does not meet recall[1] >= 0.9 there.")
    assert top["warning"] == ""
    swapped = answer(metric, replace(scores, decided=theirs, baseline_tuned=ours), (0, 1), "binary")
    assert swapped["warning"] == "On these rows the model does not meet recall[1] >= 0.9."


def test_constraints_are_told_with_their_values():
    scores = binary_scores(400)
    metric = metrics.get("precision[1] subject to recall[1] >= 0.99")
    (found,) = estimate(metric, scores.truth, [Rival("a", scores.decided, scores.proba)], (0, 1), "binary")
    ((text, value, met),) = found.constraints
    assert (text, met) == ("recall[1] >= 0.99", False)
    matrix = confusion_of(scores.truth, scores.decided, 2, None)
    assert value == pytest.approx(matrix[1, 1] / matrix[1].sum())


@pytest.mark.parametrize("points", [50, 5000])
@pytest.mark.parametrize("weighted", [False, True])
def test_counts_at_every_cut_off_are_exact(points, weighted):
    scores = binary_scores(700, weighted=weighted)
    p, positive = scores.proba[:, 1].astype(float), scores.truth == 1
    weight = np.ones(700) if scores.weight is None else scores.weight
    found = one_class(p, positive, scores.weight, points=points, marks=[0.123])
    assert 0.123 in found["cuts"]
    assert found["cuts"] == sorted(found["cuts"])
    for cut, tp, fp in zip(found["cuts"], found["tp"], found["fp"], strict=True):
        assert tp == pytest.approx(weight[(p >= cut) & positive].sum())
        assert fp == pytest.approx(weight[(p >= cut) & ~positive].sum())
    assert (found["scores"] is not None) is (points == 5000)
    if points == 5000:
        assert len({(t, f) for t, f in zip(found["tp"], found["fp"], strict=True)}) == len(np.unique(p)) + 1
    assert found["auroc"] == pytest.approx(roc_auc_score(positive, p, sample_weight=scores.weight))
    assert sum(found["histogram"]["positive"]) == pytest.approx(weight[positive].sum())


def test_cut_offs_are_as_short_as_they_can_be():
    scores, positive = np.array([0.1, 0.42, 0.424, 0.9]), np.array([False, True, False, True])
    cuts = one_class(scores, positive, None, points=9, marks=[])["cuts"]
    assert cuts[1:4] == [0.26, 0.422, 0.66]


def test_calibration_of_honest_probabilities_is_straight():
    random = np.random.default_rng(0)
    p = random.random(20_000)
    found = calibration(p, random.random(20_000) < p, None)
    assert found["error"] < 0.02
    assert all(low <= share <= high for _, share, low, high, _ in found["points"])


def test_areas_of_many_classes_equal_the_metrics_own():
    scores = class_scores(4, weighted=True)
    labels = ("a", "b", "c", "d")
    classifier, _ = model(labels, "f1", scores=scores)
    content = explorer(scores, labels, "multiclass", classifier.metric_, classifier.decision_rule_)
    truth = np.array(labels, dtype=object)[scores.truth]
    shown = {m["spec"]: m["tree"]["value"] for m in content["metrics"] if m["tree"]["kind"] == "fixed"}
    assert len(shown) >= 2
    for spec, value in shown.items():
        assert value == pytest.approx(metrics.get(spec).score(truth, scores.proba, scores.weight, labels=labels))


def test_values_with_a_percent_sign_stay_as_they_are():
    table = pd.DataFrame({"rebate": ["10%", "10%", "5%", "5%"]})
    assert describe_table(table)["columns"]["rebate"]["values"] == "2 distinct; 10% 50 %, 5% 50 %"


def test_tables_count_what_there_is():
    scores = class_scores(15, 900)
    labels = tuple(f"c{k}" for k in range(15))
    *_, after = matrices(scores, labels)
    assert len(after["labels"]) == 13
    assert sum(c["count"] for row in after["rows"] for c in row["cells"]) == 900
    rows = class_table(scores, labels)
    assert [r["support"] for r in rows] == np.bincount(scores.truth, minlength=15).tolist()
    f1 = f1_score(scores.truth, scores.decided, average=None, labels=range(15))
    np.testing.assert_allclose([r["f1"] for r in rows], f1)
    pairs = confused_pairs(scores, labels)
    first = pairs[0]
    i, j = labels.index(first["true"]), labels.index(first["predicted"])
    assert first["count"] == ((scores.truth == i) & (scores.decided == j)).sum()


def test_epochs_that_were_not_validated_are_no_points():
    frame = history(12)
    assert len(alignment(frame)["points"]) == 6
    assert coolings(frame) == [5, 9]
    assert alignment(frame.iloc[:2])["correlation"] is None
