"""Verdicts: which of two sets of decisions to prefer, under constraints too."""

import numpy as np
import pytest

from metricfit import metrics
from metricfit.assess import Assessment, Decided, Estimate, HeldOutScores, Verdict, assess, assess_held_out
from metricfit.assess.verdicts import cautions
from metricfit.decisions import best_threshold
from metricfit.report.page import answer
from tests.report.helper import binary_scores


def test_a_rival_that_misses_a_constraint_is_not_called_better():
    truth = np.repeat([1, 0], [200, 800])
    random = np.random.default_rng(0).random(1000)
    ours = (random < np.where(truth == 1, 0.95, 0.2)).astype(np.int64)  # recall 0.95
    theirs = (random < np.where(truth == 1, 0.5, 0.01)).astype(np.int64)  # more precise, recall 0.5
    noise = np.random.default_rng(1).normal(size=(2, 1000))
    score, worse = truth + noise[0], truth + 3 * noise[1]
    proba, poor = (np.stack([1 - s, s], axis=1).astype(np.float32) for s in (score, worse))
    metric = metrics.get("precision[1] subject to recall[1] >= 0.9")
    scores = HeldOutScores(truth, proba, ours, poor, theirs)
    top = answer(metric, scores, (0, 1))
    _, (_, last) = assess_held_out(metric, scores, (0, 1))
    assert (last.rival.missed, last.better, last.equal) == (("recall[1] >= 0.9",), "model", ("recall[1] >= 0.9",))
    held = [best_threshold(truth, p[:, 1], metric).value for p in (proba, poor)]
    assert last.gain.value == pytest.approx(held[0] - held[1])
    assert top["verdict"].endswith(", both held to recall[1] >= 0.9.")
    assert top["warnings"] == []
    swapped = HeldOutScores(truth, poor, theirs, proba, ours)
    missed, better = answer(metric, swapped, (0, 1))["warnings"]
    assert missed == "On these rows the model does not meet recall[1] >= 0.9."
    assert better.startswith("Cross-entropy with a tuned rule did better here, by ")


def test_a_rival_that_just_misses_a_constraint_is_compared_at_it():
    truth = np.repeat([1, 0], [100, 900])
    noise = np.random.default_rng(0).normal(size=1000)
    good, bad = (np.stack([1 - s, s], axis=1).astype(np.float32) for s in (truth * 4 + noise, truth + noise))
    metric = metrics.get("precision[1] subject to recall[1] >= 0.9")
    ours = (bad[:, 1] >= best_threshold(truth, bad[:, 1], metric).threshold).astype(np.int64)
    theirs = (good[:, 1] >= np.sort(good[:100, 1])[11]).astype(np.int64)  # recall 0.89: one row too few
    _, (_, found) = assess_held_out(metric, HeldOutScores(truth, bad, ours, good, theirs), (0, 1))
    assert found.rival.missed
    assert found.better == "rival"


def test_a_collapsed_fold_and_a_better_single_model_are_warned_of():
    truth = np.tile([0, 0, 0, 1], 100)
    proba = np.stack([1 - truth * 0.8, truth * 0.8], axis=1).astype(np.float32)
    fold = np.repeat(np.arange(4), 100)
    decided = np.where(fold == 2, 1, truth)
    scores = HeldOutScores(truth, proba, decided, single=proba, single_decided=truth, single_name="forest", fold=fold)
    model, verdicts = assess_held_out(metrics.get("f1[1]"), scores, (0, 1))
    assert model.collapsed == (3,)
    better, collapsed = cautions(model, verdicts)
    assert better.startswith("Forest alone did better here, by ")
    assert better.endswith("try models='forest'.")
    assert collapsed.startswith("In fold 3 every row got the same decision")


def test_constraints_are_reported_with_their_values_and_intervals():
    scores = binary_scores(400)
    metric = metrics.get("precision[1] subject to recall[1] >= 0.99")
    rows = Decided(scores.truth, scores.decided, (0, 1))
    found = assess("a", metric, rows)
    (recall,) = found.constraints
    assert (recall.constraint, recall.met) == ("recall[1] >= 0.99", False)
    matrix = rows.confusion.matrix.numpy()
    assert recall.estimate.value == pytest.approx(matrix[1, 1] / matrix[1].sum())
    assert recall.estimate.low < recall.estimate.value < recall.estimate.high
    assert found.note == f"with recall[1] {recall.estimate.value:.4f}"


@pytest.mark.parametrize(
    ("gain", "better", "words"),
    [
        (Estimate(0.03, 0.01, 0.05), "model", "gained 0.0300 over cross-entropy with a tuned rule"),
        (Estimate(-0.03, -0.05, -0.01), "rival", "Cross-entropy with a tuned rule did better here, by 0.0300"),
        (Estimate(0.01, -0.02, 0.04), "level", "within the noise"),
        (Estimate(np.nan), "unknown", "has no value"),
    ],
)
def test_the_paired_interval_decides(gain, better, words):
    model, rival = Assessment("this model", Estimate(0.5)), Assessment("cross-entropy, tuned rule", Estimate(0.5))
    verdict = Verdict(model, rival, gain)
    assert verdict.better == better
    assert words in str(verdict)
