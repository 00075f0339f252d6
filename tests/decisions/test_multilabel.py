import itertools

import numpy as np
import pytest
from sklearn.metrics import f1_score

from metricfit import metrics
from metricfit.decisions import InfeasibleError, best_label_thresholds, best_threshold


def data(n=120, labels=3, seed=0, digits=2):
    rng = np.random.default_rng(seed)
    y = (rng.random((n, labels)) < np.linspace(0.2, 0.5, labels)).astype(int)
    return y, (rng.random((n, labels)) + 0.4 * y).round(digits) / 1.4


def test_macro_is_each_labels_own_best():
    y, score = data()
    joint = best_label_thresholds(y, score, "f1_macro")
    own = [best_threshold(y[:, k], score[:, k], "f1").value for k in range(3)]
    assert joint.value == pytest.approx(np.mean(own))
    assert f1_score(y, joint.rule.apply(score), average="macro") == pytest.approx(joint.value)


@pytest.mark.parametrize("spec", ["f1_micro", "jaccard_micro", "mcc:average=micro", "f1_weighted"])
def test_joint_search_reaches_the_exhaustive_optimum(spec):
    for seed in range(4):
        y, score = data(25, 2, seed, digits=1)
        found = best_label_thresholds(y, score, spec, restarts=6)
        metric = metrics.get(spec)
        assert metric.score(y, found.rule.apply(score)) == pytest.approx(found.value)
        cuts = [[*np.unique(score[:, k]), 2.0] for k in range(2)]
        every = [metric.score(y, (score >= pair).astype(int)) for pair in itertools.product(*cuts)]
        assert found.value == pytest.approx(max(every))


def test_joint_constraints_hold():
    y, score = data(300)
    best = best_label_thresholds(
        y, score, "f1_micro", subject_to=["recall[0] >= 0.9", "precision[2] >= 0.6"], labels=[0, 1, 2]
    )
    decided = best.rule.apply(score)
    assert decided[y[:, 0] == 1, 0].mean() >= 0.9
    assert y[decided[:, 2] == 1, 2].mean() >= 0.6
    assert [c.value for c in best.constraints] == pytest.approx(
        [decided[y[:, 0] == 1, 0].mean(), y[decided[:, 2] == 1, 2].mean()]
    )


def test_infeasible_joint_constraints_say_what_was_found():
    y, score = data()
    with pytest.raises(InfeasibleError, match=r"no set of cut-offs meets.*best reachable value beside the others is"):
        best_label_thresholds(y, score, "f1", subject_to=["recall[0] >= 0.99", "precision[0] >= 0.99"])


def test_labels_without_positives_keep_the_default():
    y, score = data()
    y[:, 1] = 0
    assert best_label_thresholds(y, score, "f1").thresholds[1] == 0.5


def test_weights_count_as_repetitions():
    y, score = data(60)
    times = np.random.default_rng(1).integers(0, 3, 60)
    weighted = best_label_thresholds(y, score, "f1_micro", sample_weight=times)
    repeated = best_label_thresholds(np.repeat(y, times, axis=0), np.repeat(score, times, axis=0), "f1_micro")
    assert weighted.value == pytest.approx(repeated.value)


BAD = [
    ({"y_true": [0, 1, 1]}, r"one shape \(n, labels\)"),
    ({"y_true": [[0, 1], [0, 2], [1, 0]]}, "must hold 0 and 1 only"),
    ({"y_true": [[0, 0]] * 3}, "every entry is 0"),
    ({"score": [[0.5, 0.5]] * 3}, "scores are constant"),
    ({"score": [[0.5, np.nan]] * 3}, "got NaN"),
    ({"labels": ["a"]}, "labels: expected 2 of them"),
    ({"sample_weight": [0, 0, 0]}, "all weights are zero"),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_bad_input_gets_one_clear_message(change, message):
    given = {"y_true": [[0, 1], [0, 1], [1, 0]], "score": [[0.1, 0.8], [0.3, 0.2], [0.6, 0.4]]} | change
    with pytest.raises(ValueError, match=message):
        best_label_thresholds(given.pop("y_true"), given.pop("score"), "f1", **given)
