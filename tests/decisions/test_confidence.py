import numpy as np
import pytest
import torch
from scipy.stats import binom, binomtest

from metricfit import metrics
from metricfit.confusion import ConfusionMatrix
from metricfit.decisions import InfeasibleError, best_label_thresholds, best_offsets, best_threshold
from metricfit.decisions.confidence import lower_bound, promised
from tests.decisions.gaussians import TwoGaussians

WORLD = TwoGaussians(gap=2.5, prevalence=0.4)
SIMULATIONS, FULL = 200, 4000


@pytest.mark.parametrize(("successes", "trials"), [(0, 10), (7, 10), (10, 10), (95, 100), (480, 500)])
def test_the_bound_is_clopper_and_pearsons(successes, trials):
    expected = binomtest(successes, trials, alternative="greater").proportion_ci(0.95, method="exact").low
    assert lower_bound(successes, trials, 0.05) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("spec", ["recall", "specificity", "precision", "npv", "fpr", "fnr", "predicted_share"])
@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize("operator", [">=", "<="])
def test_a_fixed_rules_promise_is_the_exact_interval_of_the_metrics_own_share(spec, label, operator):
    cm = ConfusionMatrix(torch.tensor([[80.0, 20.0], [7.0, 43.0]], dtype=torch.float64), "binary")
    constraint = metrics.get(f"accuracy subject to {spec}[{label}] {operator} 0.5").constraints[0]
    value = float(constraint.metric.compute(cm))
    trials = _trials(spec, label)
    side = {">=": ("greater", "low"), "<=": ("less", "high")}[operator]
    interval = binomtest(round(value * trials), trials, alternative=side[0]).proportion_ci(0.9, method="exact")
    bound, passed = promised(constraint, cm, 0.1)
    assert bound == pytest.approx(getattr(interval, side[1]), abs=1e-10)
    assert passed == (bound >= 0.5 if operator == ">=" else bound <= 0.5)


def _trials(spec, label):
    own, other = {1: (50, 100), 0: (100, 50)}[label]
    called, left = {1: (63, 87), 0: (87, 63)}[label]
    return {
        "recall": own, "fnr": own, "specificity": other, "fpr": other, "precision": called, "npv": left,
        "predicted_share": 150,
    }[spec]  # fmt: skip


def violations(metric, constraint, simulations, *, n=300, world=WORLD, seed=0):
    """In how many simulations the chosen cut-off breaks the constraint in the population; and in how many it exists."""
    rng = np.random.default_rng(seed)
    limit = metrics.get(f"accuracy subject to {constraint}").constraints
    thresholds = []
    for _ in range(simulations):
        try:
            found = best_threshold(*world.sample(n, rng), metric, subject_to=constraint.split(" and "), confidence=0.95)
        except InfeasibleError:
            continue
        thresholds.append(found.threshold)
    matrices = world.matrices(np.array(thresholds))
    broken = [c.violation(c.metric.compute(matrices)) > 0 for c in limit]
    return int(torch.stack(broken).any(dim=0).sum()), len(thresholds)


PROMISES = [
    ("precision[1]", "recall[1] >= 0.9"),
    ("recall[1]", "specificity[1] >= 0.9"),
    ("recall[1]", "precision[1] >= 0.85"),
    ("specificity[1]", "npv[1] >= 0.9"),
    ("f1", "recall[1] >= 0.7 and precision[1] >= 0.7"),
    ("recall[1]", "predicted_share[1] <= 0.4"),
]


@pytest.mark.parametrize(("metric", "constraint"), PROMISES)
def test_promises_are_kept_for_the_chosen_cutoff(metric, constraint):
    broken, made = violations(metric, constraint, SIMULATIONS)
    assert made > SIMULATIONS / 2
    # At most 5 % in the long run; so many or fewer in 99.99 % of such simulations.
    assert broken <= binom.ppf(0.9999, SIMULATIONS, 0.05)


def test_without_confidence_the_same_constraint_is_broken_about_half_the_time():
    rng = np.random.default_rng(0)
    found = [
        best_threshold(*WORLD.sample(300, rng), "precision[1] subject to recall[1] >= 0.9").threshold
        for _ in range(SIMULATIONS)
    ]
    assert (WORLD.value("recall[1]", np.array(found)) < 0.9).mean() > 0.35


@pytest.mark.slow
@pytest.mark.parametrize(("metric", "constraint"), PROMISES)
@pytest.mark.parametrize("n", [120, 1000])
def test_promises_are_kept_in_full(metric, constraint, n):
    broken, _ = violations(metric, constraint, FULL, n=n, seed=1)
    assert broken <= binom.ppf(0.9999, FULL, 0.05)


@pytest.mark.slow
def test_the_recall_promise_is_not_wasteful():
    broken, made = violations("precision[1]", "recall[1] >= 0.9", FULL, n=1000, seed=2)
    assert made == FULL
    assert broken >= 0.025 * FULL  # discreteness costs some of the 5 %, not most of it


class Wavy(TwoGaussians):
    """Scores that are not monotone in the chance of being positive: the highest ones are all negative."""

    def sample(self, n, rng):
        y, score = super().sample(n, rng)
        return np.where(score > 3.5, 0, y), score.round(1)


@pytest.mark.slow
def test_the_precision_promise_needs_no_monotone_scores():
    world = Wavy(gap=2.5, prevalence=0.4)
    y, score = world.sample(2_000_000, np.random.default_rng(9))
    rng = np.random.default_rng(3)
    broken = made = 0
    for _ in range(2000):
        try:
            found = best_threshold(*world.sample(1000, rng), "recall subject to precision >= 0.65", confidence=0.95)
        except InfeasibleError:
            continue
        made += 1
        broken += y[score >= found.threshold].mean() < 0.65
    assert made > 500
    assert broken <= binom.ppf(0.9999, 2000, 0.05)


def three_classes(n, rng):
    centres = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0]])
    y = rng.choice(3, size=n, p=[0.5, 0.3, 0.2])
    x = centres[y] + rng.normal(size=(n, 2))
    likelihood = np.exp(-((x[:, None] - centres) ** 2).sum(axis=-1) / 2) * [0.5, 0.3, 0.2]
    return y, likelihood / likelihood.sum(axis=1, keepdims=True)


def offset_violations(simulations, seed=0):
    rng = np.random.default_rng(seed)
    y_all, p_all = three_classes(100_000, np.random.default_rng(99))
    broken = made = 0
    for _ in range(simulations):
        y, p = three_classes(400, rng)
        spec = "accuracy subject to recall[2] >= 0.7 and precision[1] >= 0.6"
        try:
            best = best_offsets(y, p, spec, confidence=0.9, restarts=0)
        except InfeasibleError:
            continue
        made += 1
        predicted = best.rule.apply(p_all)
        broken += (predicted[y_all == 2] == 2).mean() < 0.7 or (y_all[predicted == 1] == 1).mean() < 0.6
    return broken, made


def test_promises_of_class_offsets_are_kept():
    broken, made = offset_violations(12)
    assert made > 6
    assert broken <= binom.ppf(0.9999, 12, 0.1)


@pytest.mark.slow
def test_promises_of_class_offsets_are_kept_in_full():
    broken, made = offset_violations(200, seed=1)
    assert made > 100
    assert broken <= binom.ppf(0.9999, 200, 0.1)


def test_label_thresholds_keep_promises_on_the_testing_half():
    rng = np.random.default_rng(0)
    y = rng.random((800, 2)) < 0.4
    best = best_label_thresholds(
        y,
        rng.normal(size=y.shape) + 2.5 * y,
        "precision subject to recall[0] >= 0.8 and recall[1] >= 0.7",
        confidence=0.9,
    )
    assert [c.promised >= c.constraint.bound for c in best.constraints] == [True, True]
    assert all(c.value > c.promised for c in best.constraints)


def test_the_result_says_what_is_promised():
    best = best_threshold(
        *WORLD.sample(500, np.random.default_rng(0)), "precision[1] subject to recall[1] >= 0.9", confidence=0.95
    )
    (recall,) = best.constraints
    positives = best.confusion.support[1].item()
    assert recall.promised == pytest.approx(lower_bound(round(recall.value * positives), positives, 0.05))
    assert 0.9 <= recall.promised < recall.value
    assert best.confidence == 0.95


def test_infeasible_promises_say_what_can_be_promised_and_how_many_samples_it_takes():
    y, score = [0, 1] * 10, np.arange(20.0)
    with pytest.raises(InfeasibleError, match=r"at least 0\.741.*10 samples to judge by; 29 are the fewest") as caught:
        best_threshold(y, score, "precision[1] subject to recall[1] >= 0.9", confidence=0.95)
    assert caught.value.reachable["recall[1] >= 0.9"] == pytest.approx(0.05 ** (1 / 10))
    with pytest.raises(InfeasibleError, match="too few samples"):
        best_threshold(y, score, "recall[1] subject to precision[1] >= 0.99", confidence=0.95)
    with pytest.raises(InfeasibleError, match=r"at most 0\.058.*299 are the fewest"):
        best_threshold(y * 5, np.tile(score, 5), "recall[1] subject to fpr[1] <= 0.01", confidence=0.95)
    with pytest.raises(InfeasibleError, match="beside the others"):
        best_threshold(
            y * 5, np.tile(score, 5), "f1", subject_to=["recall[1] >= 0.8", "specificity[1] >= 0.8"], confidence=0.95
        )
    with pytest.raises(InfeasibleError, match="the best that can be promised is at least"):
        best_offsets(
            *three_classes(60, np.random.default_rng(0)), "accuracy subject to recall[2] >= 0.9", confidence=0.99
        )


@pytest.mark.parametrize("constraint", ["f1 >= 0.5", "mcc >= 0.1", "recall:average=macro >= 0.5"])
def test_promises_are_made_for_shares_of_one_class_only(constraint):
    y, score = WORLD.sample(200, np.random.default_rng(0))
    with pytest.raises(ValueError, match="confidence: a promise"):
        best_threshold(y, score, "accuracy", subject_to=constraint, confidence=0.9)


def test_promises_need_unweighted_samples():
    y, score = WORLD.sample(200, np.random.default_rng(0))
    with pytest.raises(ValueError, match="unweighted"):
        best_threshold(y, score, "f1 subject to recall >= 0.5", confidence=0.9, sample_weight=np.ones(200))
