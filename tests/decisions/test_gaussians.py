import numpy as np
import pytest

from metricfit.decisions import best_threshold
from tests.decisions.gaussians import TwoGaussians

WORLD = TwoGaussians()


def mean_regret(metric, n, repeats=12, seed=0):
    """How far the population's value at the cut-off found from n samples is from the Bayes-optimal one."""
    rng = np.random.default_rng(seed)
    found = [best_threshold(*WORLD.sample(n, rng), metric).threshold for _ in range(repeats)]
    return WORLD.best(metric) - WORLD.value(metric, np.array(found)).mean()


def test_balanced_accuracy_has_its_known_optimum_midway():
    assert WORLD.best("balanced_accuracy") == pytest.approx(float(WORLD.value("balanced_accuracy", 1.0)), abs=1e-9)


@pytest.mark.parametrize("metric", ["f1", "mcc", "balanced_accuracy", "kappa", "jaccard"])
def test_the_search_reaches_the_bayes_optimum_as_n_grows(metric):
    small, large = mean_regret(metric, 100), mean_regret(metric, 100_000)
    # The regret of an empirical maximiser falls as n^(-2/3): 100 times from 100 samples to 100,000.
    assert 0 <= large < small / 10
    assert large < 2.5 * 100_000 ** (-2 / 3)


def test_constrained_precision_reaches_its_optimum_as_n_grows():
    # Precision rises with the cut-off and recall falls: the optimum sits where recall is exactly 90 %.
    from scipy.stats import norm

    cut = WORLD.gap + norm.ppf(0.1)
    rng = np.random.default_rng(0)
    for n, tolerance in ((1000, 0.2), (200_000, 0.012)):
        best = best_threshold(*WORLD.sample(n, rng), "precision[1] subject to recall[1] >= 0.9")
        assert best.threshold == pytest.approx(cut, abs=tolerance)
        assert float(WORLD.value("recall[1]", best.threshold)) == pytest.approx(0.9, abs=tolerance)
        assert float(WORLD.value("precision[1]", best.threshold)) == pytest.approx(
            float(WORLD.value("precision[1]", cut)), abs=tolerance
        )
