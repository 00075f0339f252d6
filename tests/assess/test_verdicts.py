"""Verdicts: which of two sets of decisions to prefer, under constraints too."""

from dataclasses import replace

import numpy as np
import pytest

from metricfit import metrics
from metricfit.assess import Assessment, Decided, Estimate, HeldOutScores, Verdict, assess, assess_held_out
from metricfit.report.page import answer
from tests.report.helper import binary_scores


def test_a_rival_that_misses_a_constraint_is_not_called_better():
    truth = np.repeat([1, 0], [200, 800])
    random = np.random.default_rng(0).random(1000)
    ours = (random < np.where(truth == 1, 0.95, 0.2)).astype(np.int64)  # recall 0.95
    theirs = (random < np.where(truth == 1, 0.5, 0.01)).astype(np.int64)  # more precise, recall 0.5
    proba = np.full((1000, 2), 0.5, dtype=np.float32)
    metric = metrics.get("precision[1] subject to recall[1] >= 0.9")
    scores = HeldOutScores(truth, proba, ours, proba, theirs)
    top = answer(metric, scores, (0, 1))
    assert top["sentence"].endswith(". Cross-entropy with a tuned rule does not meet recall[1] >= 0.9 there.")
    assert top["warning"] == ""
    assert assess_held_out(metric, scores, (0, 1))[1][-1].better == "model"
    swapped = replace(scores, decided=theirs, baseline_tuned=ours)
    assert answer(metric, swapped, (0, 1))["warning"] == "On these rows the model does not meet recall[1] >= 0.9."
    assert assess_held_out(metric, swapped, (0, 1))[1][-1].better == "misses"


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
