"""Calibration: each map against an independent fit, and the choice by out-of-fold log-loss."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, logit, softmax
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import log_loss
from sklearn.naive_bayes import GaussianNB

from metricfit import MetricClassifier
from metricfit.decisions import Calibration, TunedRuleClassifier, calibrate


def sample(n=4000, seed=0, distort=lambda p: p):
    rng = np.random.default_rng(seed)
    p = rng.beta(1, 3, n)
    return (rng.random(n) < p).astype(int), distort(p), p


def three(n=3000, seed=0):
    rng = np.random.default_rng(seed)
    true = softmax(rng.normal(size=(n, 3)) * 1.5 + [1, 0, -1], axis=1)
    return (true.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1), softmax(3 * np.log(true), axis=1), true


def test_beta_is_the_minimum_of_its_penalised_log_loss():
    y, p, _ = sample(500, distort=np.sqrt)
    weight = np.random.default_rng(1).random(500) + 0.5
    scaled = weight * 500 / weight.sum()

    def loss(t):
        q = expit(t[0] * np.log(p) - t[1] * np.log1p(-p) + t[2] - t[3])
        fit = -(scaled * np.log(np.where(y == 1, q, 1 - q))).sum()
        return fit + 0.05 * ((t - [1, 1, 0, 0]) ** 2).sum()

    t = minimize(loss, [1.0, 1, 0, 0], options={"gtol": 1e-6}).x
    expected = expit(t[0] * np.log(p) - t[1] * np.log1p(-p) + t[2] - t[3])
    found = calibrate(y, p, method="beta", sample_weight=weight).apply(p)
    np.testing.assert_allclose(found, expected, atol=2e-3)  # p is clipped at a two-thousandth


def test_isotonic_is_scikit_learns():
    y, p, _ = sample(500)
    expected = IsotonicRegression(y_min=0.001, y_max=0.999, out_of_bounds="clip").fit(p, y).predict(p)
    np.testing.assert_allclose(calibrate(y, p, method="isotonic").apply(p), expected, atol=1e-9)


@pytest.mark.parametrize(
    ("distort", "methods"),
    [
        (lambda p: p, {"none", "temperature", "beta"}),
        (lambda p: expit(3 * logit(p) + 1), {"temperature", "beta"}),
        (lambda p: p**3, {"beta", "temperature"}),
        (lambda p: np.where(p < 0.3, p / 10, 0.5 + p / 10), {"isotonic"}),
    ],
)
def test_the_choice_fits_the_distortion_and_restores_the_truth(distort, methods):
    y, raw, true = sample(6000, distort=distort)
    found = calibrate(y, raw)
    assert found.method in methods
    assert found.log_loss[found.method] == min(found.log_loss.values())
    assert np.abs(found.apply(raw) - true).mean() < 0.025
    y_new, raw_new, _ = sample(6000, seed=1, distort=distort)
    assert log_loss(y_new, found.apply(raw_new)) <= log_loss(y_new, raw_new) + 0.002


def test_the_log_loss_is_out_of_fold():
    y, _, _ = sample(60)
    noise = np.random.default_rng(0).random(60)
    found = calibrate(y, noise)
    inside = log_loss(y, calibrate(y, noise, method="isotonic").apply(noise))
    assert found.log_loss["isotonic"] > inside + 0.02
    assert found.method != "isotonic"


@pytest.mark.parametrize("method", ["auto", "temperature", "beta", "isotonic"])
def test_several_classes_sum_to_one_and_come_closer(method):
    y, raw, true = three()
    found = calibrate(y, raw, method=method).apply(raw)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    assert np.abs(found - true).mean() < 0.4 * np.abs(raw - true).mean()


def test_labels_are_calibrated_one_by_one():
    pairs = [sample(3000, seed, lambda p: expit(2 * logit(p))) for seed in range(2)]
    y, raw, true = (np.stack([pair[i] for pair in pairs], axis=1) for i in range(3))
    for method in ("temperature", "beta", "isotonic"):
        found = calibrate(y, raw, method=method)
        assert found.several
        assert np.abs(found.apply(raw) - true).mean() < 0.03
        one = calibrate(y[:, 0], raw[:, 0], method=method).apply(raw[:, 0])
        np.testing.assert_allclose(found.apply(raw)[:, 0], one, atol=0.01)


def test_zeros_ones_and_rows_beyond_the_seen_stay_finite():
    y, p, _ = sample(300)
    p = np.where(p < 0.1, 0.0, np.where(p > 0.6, 1.0, p))
    for method in ("temperature", "beta", "isotonic"):
        q = calibrate(y, p, method=method).apply([0.0, 1.0, 0.5])
        assert ((q > 0) & (q < 1)).all()
        assert q[0] < q[2] < q[1]


def test_two_columns_and_one_are_the_same():
    y, p, _ = sample(300)
    for method in ("temperature", "beta", "isotonic"):
        found = calibrate(y, p, method=method)
        both = found.apply(np.stack([1 - p, p], axis=1))
        np.testing.assert_allclose(both[:, 1], found.apply(p))
        np.testing.assert_allclose(both.sum(axis=1), 1)


def test_weights_count_as_repetitions():
    y, p, _ = sample(200)
    times = np.random.default_rng(0).integers(1, 4, 200)
    for method in ("temperature", "beta", "isotonic"):
        weighted = calibrate(y, p, method=method, sample_weight=times).apply(p)
        repeated = calibrate(np.repeat(y, times), np.repeat(p, times), method=method).apply(p)
        np.testing.assert_allclose(weighted, repeated, atol=0.02)


def test_naive_bayes_and_forests_through_the_tuned_classifier():
    X, y = make_classification(4000, n_features=20, n_informative=4, n_redundant=12, weights=[0.8], random_state=0)
    for estimator in (GaussianNB(), RandomForestClassifier(30, min_samples_leaf=3, random_state=0)):
        model = TunedRuleClassifier(estimator, metric="f1").fit(X[:2000], y[:2000])
        raw, own = model.predict_proba(X[2000:], raw=True), model.predict_calibrated_proba(X[2000:])
        assert log_loss(y[2000:], own) < log_loss(y[2000:], raw)
        assert isinstance(model.calibration_, Calibration)
        model.fit(X[2000:], y[2000:])
        assert "calibration_" not in vars(model)


@pytest.mark.filterwarnings("ignore")
def test_metric_classifier_calibrates_on_its_held_out_rows():
    X, y = make_classification(600, weights=[0.8], random_state=0)
    model = MetricClassifier("f1", models=["forest"], random_state=0).fit(X[:400], y[:400])
    held = model.held_out_
    expected = calibrate(held.truth, held.proba).apply(model.predict_proba(X[400:], raw=True))
    np.testing.assert_allclose(model.predict_calibrated_proba(X[400:]), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"method": "platt"}, "method: expected one of none, temperature, beta, isotonic or auto"),
        ({"proba": [0.1, 1.4, 0.3, 0.2]}, "proba: expected probabilities"),
        ({"y_true": [1, 1, 1, 1]}, "only the class 1 occurs"),
        ({"sample_weight": [1, 2]}, "sample_weight: expected shape"),
    ],
)
def test_bad_input_gets_one_clear_message(change, message):
    given = {"y_true": [0, 1, 0, 1], "proba": [0.1, 0.4, 0.3, 0.9]} | change
    with pytest.raises(ValueError, match=message):
        calibrate(given.pop("y_true"), given.pop("proba"), **given)
