import warnings

import numpy as np
import pytest
from scipy.stats import ks_2samp

from metricfit import metrics
from metricfit.assess import UnstableThresholdWarning, cutoffs, threshold_uncertainty
from metricfit.decisions import InfeasibleError, best_threshold
from tests.decisions.gaussians import TwoGaussians

WORLD = TwoGaussians()


@pytest.mark.parametrize("weighted", [False, True])
def test_resamples_are_distributed_like_a_plain_loops(weighted):
    rng = np.random.default_rng(0)
    y, score = WORLD.sample(150, rng)
    weight = rng.random(150) + 0.5 if weighted else None
    found = threshold_uncertainty(y, score, "f1", sample_weight=weight, resamples=400)
    plain = []
    for _ in range(400):
        times = np.bincount(rng.integers(0, 150, 150), minlength=150)
        w = times if weight is None else times * weight
        plain.append(best_threshold(y, score, "f1", sample_weight=w).threshold)
    assert ks_2samp(found.thresholds, plain).pvalue > 1e-3
    best = best_threshold(y, score, "f1", sample_weight=weight)
    assert (found.threshold, found.value) == (best.threshold, pytest.approx(best.value))


def test_the_value_interval_is_the_plain_bootstraps_at_the_chosen_cutoff():
    rng = np.random.default_rng(1)
    y, score = WORLD.sample(300, rng)
    found = _quietly(y, score, "mcc", resamples=2000)
    decided = (score >= found.threshold).astype(int)
    metric = metrics.get("mcc")
    values = [metric.score(y[rows], decided[rows]) for rows in rng.integers(0, 300, (2000, 300))]
    np.testing.assert_allclose(found.value_interval, np.quantile(values, [0.025, 0.975]), atol=0.02)
    low, high = found.threshold_interval
    assert low <= found.threshold <= high


def test_the_correction_takes_off_about_the_optimism():
    rng = np.random.default_rng(2)
    raw, corrected, true = [], [], []
    for _ in range(30):
        found = _quietly(*WORLD.sample(120, rng), "f1", resamples=100)
        raw.append(found.value)
        corrected.append(found.corrected_value)
        true.append(float(WORLD.value("f1", found.threshold)))
    assert abs(np.mean(corrected) - np.mean(true)) < abs(np.mean(raw) - np.mean(true))


def _quietly(*args, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnstableThresholdWarning)
        return threshold_uncertainty(*args, **kwargs)


def test_many_scores_are_thinned_with_the_best_kept(monkeypatch):
    y, score = WORLD.sample(3000, np.random.default_rng(3))
    exact = best_threshold(y, score, "f1")
    monkeypatch.setattr(cutoffs, "_MOST_CUTS", 64)
    few = threshold_uncertainty(y, score, "f1", resamples=300)
    assert (few.threshold, few.value) == (exact.threshold, exact.value)
    monkeypatch.undo()
    many = threshold_uncertainty(y, score, "f1", resamples=300)
    np.testing.assert_allclose(few.threshold_interval, many.threshold_interval, atol=0.15)


def test_metrics_to_be_minimised_keep_their_sign():
    y, score = WORLD.sample(500, np.random.default_rng(4))
    found = threshold_uncertainty(y, score, "cost:matrix=[[0,1],[3,0]]", resamples=200)
    assert 0 < found.value_interval[0] < found.value < found.value_interval[1]
    assert found.corrected_value > found.value


def test_an_unstable_cutoff_warns():
    y, score = WORLD.sample(40, np.random.default_rng(5))
    with pytest.warns(UnstableThresholdWarning, match="more than doubles"):
        found = threshold_uncertainty(y, score, "precision", resamples=100)
    assert not found.stable


def test_resamples_that_miss_the_constraints_warn():
    y = np.array([1] * 5 + [0] * 40)
    score = np.arange(45.0)[::-1]
    score[2], score[6] = score[6], score[2]
    with pytest.warns(UnstableThresholdWarning, match="resamples have no cut-off that meets the constraints"):
        found = threshold_uncertainty(
            y, score, "recall", subject_to=["precision >= 0.8", "recall >= 0.7"], resamples=200
        )
    assert found.failed > 0
    assert len(found.thresholds) == 200 - found.failed


def test_bad_input_gets_one_clear_message():
    y, score = WORLD.sample(60, np.random.default_rng(6))
    with pytest.raises(ValueError, match="resamples: expected at least 20"):
        threshold_uncertainty(y, score, "f1", resamples=3)
    with pytest.raises(InfeasibleError, match="best reachable"):
        threshold_uncertainty(y, score, "f1", subject_to=["recall >= 0.999", "precision >= 0.999"])
