"""The interval and the paired difference, against a plain bootstrap of the rows and against exact intervals."""

import numpy as np
import pytest
from scipy.stats import beta
from sklearn.metrics import f1_score, matthews_corrcoef, roc_auc_score

from metricfit import metrics
from metricfit.assess import Decided, difference, estimate, estimate_classes, over_splits
from tests.report.helper import binary_scores, class_scores, label_scores


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


def ends(found):
    return [found.low, found.high]


@pytest.mark.parametrize("weighted", [False, True])
def test_interval_and_paired_gain_equal_a_plain_bootstrap(weighted):
    scores = binary_scores(400, weighted=weighted)
    ours = Decided(scores.truth, scores.decided, (0, 1), scores.proba, scores.weight)
    theirs = Decided(scores.truth, scores.baseline_tuned, (0, 1), scores.baseline, scores.weight)
    found = estimate(metrics.get("f1"), ours)
    assert found.value == pytest.approx(f1_score(scores.truth, scores.decided, sample_weight=scores.weight))
    interval, gain = plain_bootstrap(plain_f1, scores.truth, scores.decided, scores.baseline_tuned, scores.weight)
    np.testing.assert_allclose(ends(found), interval, atol=0.012)
    np.testing.assert_allclose(ends(difference(metrics.get("f1"), ours, theirs)), gain, atol=0.012)


def test_a_share_has_jeffreys_interval():
    truth, decided = np.repeat([1, 0, 0, 1], [17, 3, 300, 6]), np.repeat([1, 1, 0, 0], [17, 3, 300, 6])
    found = estimate(metrics.get("precision[1]"), Decided(truth, decided, (0, 1)))
    np.testing.assert_allclose(ends(found), beta.ppf([0.025, 0.975], 17.5, 3.5), atol=0.01)
    perfect = estimate(metrics.get("recall[1]"), Decided(truth, truth, (0, 1)))
    assert (perfect.value, perfect.high) == (1.0, 1.0)
    assert perfect.low == pytest.approx(beta.ppf(0.025, 23.5, 0.5), abs=0.01), "a perfect sample proves no perfection"


def test_several_classes_labels_and_metrics_of_scores():
    scores = class_scores(3)
    rows = Decided(scores.truth, scores.decided, ("a", "b", "c"), scores.proba)
    found = estimate(metrics.get("mcc"), rows)
    assert found.value == pytest.approx(matthews_corrcoef(scores.truth, scores.decided))
    assert found.low < found.value < found.high
    each = estimate_classes(metrics.get("f1:average=none"), rows)
    assert [e.value for e in each] == pytest.approx(f1_score(scores.truth, scores.decided, average=None))
    labels = label_scores(3)
    found = estimate(metrics.get("f1:average=macro"), Decided(labels.truth, labels.decided, (0, 1, 2)))
    assert found.value == pytest.approx(f1_score(labels.truth, labels.decided, average="macro"))
    assert found.low < found.value < found.high
    two = binary_scores(300)
    found = estimate(metrics.get("auroc"), Decided(two.truth, two.decided, (0, 1), two.proba))
    assert found.value == pytest.approx(roc_auc_score(two.truth, two.proba[:, 1]))
    assert found.low < found.value < found.high


def test_one_label_of_several_has_the_interval_of_a_binary_target():
    labels = label_scores(3)
    for k, found in enumerate(
        estimate_classes(metrics.get("f1:average=none"), Decided(labels.truth, labels.decided, (0, 1, 2)))
    ):
        alone = estimate(metrics.get("f1"), Decided(labels.truth[:, k], labels.decided[:, k], (0, 1)))
        np.testing.assert_allclose(ends(found), ends(alone), atol=0.012)


def test_an_interval_depends_on_nothing_but_its_own_decisions():
    scores = binary_scores(400)
    order = np.random.default_rng(0).permutation(400)
    rows = Decided(scores.truth, scores.decided, (0, 1))
    assert estimate(metrics.get("mcc"), rows) == estimate(
        metrics.get("mcc"), Decided(scores.truth[order], scores.decided[order], (0, 1), weight=np.ones(400))
    )


def test_the_direction_of_a_gain_is_that_of_the_metric():
    truth = np.array([0, 1] * 50)
    right, wrong = Decided(truth, truth, (0, 1)), Decided(truth, 1 - truth, (0, 1))
    assert difference(metrics.get("fpr[1]"), right, wrong).value == 1.0


def test_a_function_that_asks_for_a_value_has_an_interval():
    rows = binary_scores(300)
    metric = metrics.get(lambda cm: cm.tp[1] if cm.tp[1] > 0 else cm.fp[1])
    found = estimate(metric, Decided(rows.truth, rows.decided, (0, 1)))
    assert found.low < found.value < found.high


def test_one_split_has_no_interval():
    assert np.isnan(over_splits([0.5], 0.2).low)
