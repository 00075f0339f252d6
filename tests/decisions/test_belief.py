"""Rules tuned on labels mixed with calibrated beliefs, against plain loops over the expected confusion matrix."""

import itertools
import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import log_softmax
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from metricfit import metrics
from metricfit.confusion import ConfusionMatrix
from metricfit.decisions import (
    InfeasibleError,
    TunedRuleClassifier,
    best_label_thresholds,
    best_offsets,
    best_rule,
    best_threshold,
    problem,
)
from metricfit.decisions.calibration import mixed_labels
from metricfit.decisions.threshold import tuned_rule


def two_classes(n, seed=0, share=0.3):
    rng = np.random.default_rng(seed)
    y = rng.random(n) < share
    y[:2] = False, True
    return y.astype(int), 1 / (1 + np.exp(-(rng.normal(size=n) + 2 * y - 1)))


def classes(n, size=3, seed=0, sharp=1.2):
    rng = np.random.default_rng(seed)
    share = np.arange(size, 0, -1.0) ** 2
    y = rng.choice(size, n, p=share / share.sum())
    y[:size] = np.arange(size)
    p = np.exp(rng.normal(size=(n, size)) + sharp * np.eye(size)[y] + np.log(share))
    return y, p / p.sum(axis=1, keepdims=True)


def expected_matrix(shares, predicted, weight):
    """Entry (i, j): the weight of class i among the samples called j."""
    matrix = np.zeros((shares.shape[1], shares.shape[1]))
    for share, called, w in zip(shares, predicted, weight, strict=True):
        matrix[:, called] += w * share
    return matrix


def value(metric, matrix, task):
    return float(metrics.get(metric).compute(ConfusionMatrix(torch.from_numpy(matrix), task)))


@given(
    st.integers(0, 10_000),
    st.sampled_from(["f1", "mcc", "balanced_accuracy", "precision"]),
    st.sampled_from([0.2, 0.5, 1.0]),
    st.booleans(),
)
@settings(max_examples=30, deadline=None)
def test_the_threshold_is_the_best_of_all_by_the_expected_matrix(seed, metric, belief, is_weighted):
    y, score = two_classes(25, seed)
    score = score.round(1)  # ties
    rng = np.random.default_rng(seed)
    weight = rng.random(25) + 0.1 if is_weighted else np.ones(25)
    if score.min() == score.max():
        return
    best = best_threshold(y, score, metric, belief=belief, sample_weight=weight if is_weighted else None)
    samples = problem.binary_samples(y, score, weight)
    positive = mixed_labels(samples, belief)
    shares = np.stack([1 - positive, positive], axis=1)
    tried = [
        value(metric, expected_matrix(shares, (score >= t).astype(int), weight), "binary")
        for t in [*np.unique(score), np.inf]
    ]
    reached = value(metric, expected_matrix(shares, (score >= best.threshold).astype(int), weight), "binary")
    assert reached == pytest.approx(np.nanmax(tried), abs=1e-12)
    assert best.value == pytest.approx(metrics.get(metric).score(y, best.rule.apply(score), sample_weight=weight))


@pytest.mark.parametrize("metric", ["f1_macro", "mcc", "balanced_accuracy"])
@pytest.mark.parametrize("seed", range(3))
def test_offsets_reach_what_a_fine_grid_reaches(metric, seed):
    y, p = classes(60, seed=seed)
    best = best_offsets(y, p, metric, belief=0.5, restarts=8)
    shares = mixed_labels(problem.class_samples(y, p), 0.5)

    def worth(offsets):
        predicted = (np.log(p) + offsets).argmax(axis=1)
        return value(metric, expected_matrix(shares, predicted, np.ones(60)), "multiclass")

    tried = [worth(np.array([0.0, a, b])) for a, b in itertools.product(np.linspace(-4, 4, 41), repeat=2)]
    assert worth(best.offsets) >= max(tried) - 1e-9
    assert worth(best.offsets) >= worth(np.zeros(3))
    assert best.value == pytest.approx(metrics.get(metric).score(y, best.rule.apply(p)))


def test_each_label_has_the_best_threshold_by_its_own_expected_matrix():
    rng = np.random.default_rng(0)
    y = (rng.random((40, 3)) < [0.2, 0.5, 0.7]).astype(int)
    score = (rng.normal(size=(40, 3)) + 1.5 * y).round(1)  # not probabilities: any scores will do
    best = best_label_thresholds(y, score, "f1_macro", belief=0.5)
    shares = mixed_labels(problem.label_samples(y, score), 0.5)
    for k in range(3):
        pair = np.stack([1 - shares[:, k], shares[:, k]], axis=1)

        def worth(t, pair=pair, k=k):
            return value("f1", expected_matrix(pair, (score[:, k] >= t).astype(int), np.ones(40)), "binary")

        assert worth(best.thresholds[k]) == pytest.approx(max(worth(t) for t in [*np.unique(score[:, k]), np.inf]))


def test_a_belief_of_zero_is_labels_alone():
    y, p = classes(200)
    np.testing.assert_array_equal(best_offsets(y, p, "mcc", belief=0.0).offsets, best_offsets(y, p, "mcc").offsets)
    y, score = two_classes(200)
    assert best_threshold(y, score, "f1", belief=0).threshold == best_threshold(y, score, "f1").threshold


def test_calibration_is_the_minimum_of_the_penalised_log_loss():
    y, p = classes(300)
    weight = np.random.default_rng(1).random(300)
    scaled, evidence = weight * 300 / weight.sum(), np.log(p.clip(min=0.5 / 300))

    def loss(parameters):
        log_q = log_softmax(parameters[0] * evidence + parameters[1:], axis=1)
        return -(scaled * log_q[np.arange(300), y]).sum() + 0.05 * ((parameters - [1, 0, 0, 0]) ** 2).sum()

    found = minimize(loss, [1.0, 0, 0, 0], method="BFGS", options={"gtol": 1e-6}).x
    expected = np.exp(log_softmax(found[0] * evidence + found[1:], axis=1))
    for scale in (1, 7):
        believed = mixed_labels(problem.class_samples(y, p, scale * weight), 1.0)
        np.testing.assert_allclose(believed, expected, atol=1e-4)


@pytest.mark.parametrize("score", [np.repeat([0.0, 1.0], 20), np.linspace(-1e9, 1e9, 40), np.full(40, 0.3)])
def test_certain_extreme_and_constant_scores_are_calibrated_to_finite_beliefs(score):
    target = np.repeat([False, True], 20)
    for hit in (target, np.ones(40, dtype=bool)):
        mixed = mixed_labels(problem.Samples(hit, score, None), 1.0)
        assert ((mixed > 0) & (mixed <= 1)).all()


def test_weights_count_as_repetitions_of_a_believed_label():
    y, score = two_classes(60)
    times = np.random.default_rng(1).integers(1, 4, 60)
    weighted = best_threshold(y, score, "f1", sample_weight=times, belief=0.5)
    repeated = best_threshold(np.repeat(y, times), np.repeat(score, times), "f1", belief=0.5)
    assert weighted.threshold == pytest.approx(repeated.threshold)


@pytest.mark.parametrize("confidence", [None, 0.9])
def test_constraints_hold_on_the_labels_alone(confidence):
    spec = "precision[1] subject to recall[1] >= 0.8"
    y, score = two_classes(400)
    best = best_threshold(y, score, spec, belief=0.5, confidence=confidence)
    assert best.constraints[0].value == pytest.approx(metrics.get("recall").score(y, best.rule.apply(score)))
    assert best.constraints[0].value >= 0.8
    y, p = classes(400)
    best = best_offsets(y, p, "accuracy subject to recall[2] >= 0.6", belief=0.5, confidence=confidence)
    assert best.constraints[0].value >= 0.6
    y = np.stack([y == 1, y == 2], axis=1).astype(int)
    best = best_label_thresholds(y, p[:, 1:], "precision[1] subject to recall[1] >= 0.6", belief=0.5)
    assert best.constraints[0].value >= 0.6
    with pytest.raises(InfeasibleError, match="best reachable value"):
        best_threshold(*two_classes(400), "recall", subject_to=["precision >= 0.99", "recall >= 0.99"], belief=0.5)


def test_few_positives_over_fit_less():
    rng = np.random.default_rng(0)
    y_new, score_new = two_classes(20_000, seed=1, share=0.1)
    gained = []
    for _ in range(60):
        y, score = two_classes(120, seed=int(rng.integers(10**9)), share=0.1)
        rules = [best_threshold(y, score, "f1", belief=belief).rule for belief in (0.5, 0.0)]
        with_belief, without = (metrics.get("f1").score(y_new, rule.apply(score_new)) for rule in rules)
        gained.append(with_belief - without)
    assert np.mean(gained) > 0.003


def test_every_way_in_passes_it_on():
    y, p = classes(150)
    held = best_offsets(y, p, "f1_macro", belief=0.5).rule
    assert best_rule(y, p, "f1_macro", belief=0.5).rule == held
    assert tuned_rule(y, p, metrics.get("f1_macro"), [0, 1, 2], None, belief=0.5) == held
    model = TunedRuleClassifier(LogisticRegression(), "f1_macro", cv="prefit", belief=0.5)
    model.set_params(estimator=LogisticRegression().fit(np.log(p), y)).fit(np.log(p), y)
    assert model.rule_ == best_rule(y, model.predict_proba(np.log(p), raw=True), "f1_macro", belief=0.5).rule
    assert clone(model).belief == 0.5


@pytest.mark.parametrize("belief", [-0.1, 1.5, True, "half", float("nan")])
def test_a_wrong_share_gets_one_clear_message(belief):
    y, p = classes(30)
    for call in (best_offsets, best_rule):
        with pytest.raises(ValueError, match=r"belief: expected a number from 0 .* to 1 .*, got"):
            call(y, p, "mcc", belief=belief)
    with pytest.raises(ValueError, match="belief: expected"):
        best_threshold(y > 0, p[:, 0], "f1", belief=belief)
    with pytest.raises(ValueError, match="belief: expected"):
        best_label_thresholds(np.eye(3)[y], p, "f1", belief=belief)


@pytest.mark.slow
def test_it_is_fast():
    y, score = two_classes(50_000)
    start = time.process_time()
    best_threshold(y, score, "f1", belief=0.5)
    assert time.process_time() - start < 0.5
    y, p = classes(20_000, 10)
    start = time.process_time()
    best_offsets(y, p, "mcc", belief=0.5)
    assert time.process_time() - start < 5
