"""SVM-perf, CCS and the papers' random forest against brute force and other solvers."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.svm import LinearSVC

from benchmarks.papers import data, rivals
from metricfit import MetricClassifier
from metricfit.models import ConvexCalibratedSurrogates, SVMPerf
from metricfit.models.linear import CUTS, most_expected_f1

seeds = st.integers(0, 2**32 - 1)


def all_labellings(n: int) -> np.ndarray:
    return np.array(list(product([0.0, 1.0], repeat=n)))


def f1_of_all(y: np.ndarray, others: np.ndarray) -> np.ndarray:
    """F1 of each row of ``others``; 1 where both are empty."""
    size = y.sum() + others.sum(axis=1)
    return np.where(size == 0, 1.0, 2 * others @ y / np.where(size == 0, 1, size))


def scores_and_labels(seed: int, most: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    y = np.zeros(random.integers(2, most + 1), dtype=bool)
    y[: random.integers(1, len(y))] = True
    return random.normal(size=len(y)) * random.choice([0.1, 1.0, 5.0]), random.permutation(y)


@given(seeds)
@settings(max_examples=100, deadline=None)
def test_the_most_violated_constraint_is_that_of_all_labellings(seed: int) -> None:
    scores, y = scores_and_labels(seed, 8)
    others = all_labellings(len(y))
    margins = (others != y) @ (np.where(y, 1, -1) * scores) / len(y)
    for loss, deltas in (("error", (others != y).mean(axis=1)), ("f1", 1 - f1_of_all(y, others))):
        cut = CUTS[loss](scores, y)
        assert cut.delta - cut.weights @ scores == pytest.approx(np.max(deltas - margins), abs=1e-12)


@given(seeds)
@settings(max_examples=100, deadline=None)
def test_the_most_violated_order_is_that_of_all_pairs(seed: int) -> None:
    scores, y = scores_and_labels(seed, 12)
    pairs = scores[y][:, None] - scores[~y]
    cut = CUTS["roc"](scores, y)
    assert cut.delta == pytest.approx((pairs < 1).mean())
    assert cut.delta - cut.weights @ scores == pytest.approx(np.maximum(0, 1 - pairs).mean(), abs=1e-12)


def blobs(n: int, seed: int = 0, positives: float = 0.3) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    y = (np.arange(n) < positives * n).astype(int)
    return random.normal(size=(n, 3)) + y[:, None] * [1.5, 0.5, 0.0], y


def test_with_the_error_rate_it_is_the_usual_support_vector_machine() -> None:
    X, y = blobs(120)
    machine = SVMPerf("error", C=60.0, tol=1e-7).fit(X, y)
    usual = LinearSVC(loss="hinge", C=60.0 / 120, tol=1e-9, max_iter=1_000_000).fit(X, y)
    assert machine.coef_ == pytest.approx(usual.coef_[0], abs=2e-3)
    assert machine.intercept_ == pytest.approx(usual.intercept_[0], abs=2e-3)


@pytest.mark.parametrize("loss", ["f1", "roc"])
def test_the_objective_is_that_of_a_program_with_all_constraints(loss: str) -> None:
    X, y = blobs(8, seed=1, positives=0.4)
    C = 5.0
    features = np.hstack([X, np.ones((8, 1))])
    if loss == "f1":
        others = all_labellings(8)
        normals = ((y - others) / 8) @ features
        deltas = 1 - f1_of_all(y, others)
    else:
        pairs = (features[y == 1][:, None] - features[y == 0]).reshape(-1, 4)
        chosen = all_labellings(len(pairs)) / len(pairs)
        normals, deltas = chosen @ pairs, chosen.sum(axis=1)

    def objective(x: np.ndarray) -> float:
        return float(x[:4] @ x[:4] / 2 + C * x[4])

    constraint = {"type": "ineq", "fun": lambda x: normals @ x[:4] - deltas + x[4]}
    exact = minimize(objective, np.append(np.zeros(4), 1.0), constraints=[constraint], method="SLSQP")
    machine = SVMPerf(loss, C=C, tol=1e-8).fit(X, y)
    assert machine.objective_ == pytest.approx(exact.fun, abs=1e-5)
    # The constant feature cancels out of pairs.
    compared = machine.coef_ if loss == "roc" else np.append(machine.coef_, machine.intercept_)
    assert compared == pytest.approx(exact.x[: len(compared)], abs=1e-3)


def test_each_loss_is_best_at_what_it_is_about_and_many_rows_are_quick() -> None:
    X, y = blobs(20_000, positives=0.05)
    machines = {loss: SVMPerf(loss, C=1000.0).fit(X, y) for loss in CUTS}
    scores = {loss: f1_score(y, machine.predict(X)) for loss, machine in machines.items()}
    assert scores["f1"] > scores["error"]
    assert scores["f1"] > scores["roc"]
    assert all(machine.gap_ <= 1e-3 for machine in machines.values())


def test_svmperf_says_what_it_is_for() -> None:
    with pytest.raises(ValueError, match="expected two classes, got 1 class"):
        SVMPerf().fit(np.zeros((3, 1)), np.zeros(3))
    with pytest.raises(ValueError, match="loss: expected one of error, f1, roc, got 'auc'"):
        SVMPerf("auc").fit(np.zeros((3, 1)), np.array([0, 1, 1]))


def test_both_take_labels_of_any_kind_and_ccs_joins_a_portfolio() -> None:
    X, y = blobs(150)
    named = np.array(["no", "yes"])[y]
    assert (SVMPerf("error").fit(X, named).predict(X) == named).mean() > 0.7
    assert (ConvexCalibratedSurrogates().fit(X, named).predict(X) == named).mean() > 0.7
    models = ["forest", ConvexCalibratedSurrogates()]
    fitted = MetricClassifier("f1", models=models, baseline=False, verbose=False, random_state=0).fit(X, named)
    assert set(fitted.leaderboard_["model"]) == {"forest", "convexcalibratedsurrogates", "portfolio"}


@given(seeds, st.integers(1, 4))
@settings(max_examples=50, deadline=None)
def test_decoding_finds_the_set_with_the_largest_expected_f1(seed: int, labels: int) -> None:
    random = np.random.default_rng(seed)
    sets = all_labellings(labels)
    truth = random.dirichlet(np.full(len(sets), 0.5))
    sizes = sets.sum(axis=1)
    joint = np.array(
        [[truth[(sets[:, j] == 1) & (sizes == k + 1)].sum() for k in range(labels)] for j in range(labels)]
    )
    found = most_expected_f1(joint[None], truth[:1])[0].astype(float)
    expected = np.array([truth @ f1_of_all(one, sets) for one in sets])
    assert truth @ f1_of_all(found, sets) == pytest.approx(expected.max(), abs=1e-9)


def test_ccs_estimates_each_label_with_each_number_of_labels() -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(400, 3))
    Y = (X @ random.normal(size=(3, 2)) + random.normal(size=(400, 2))) > 0
    model = ConvexCalibratedSurrogates().fit(X, Y.astype(int))
    joint, empty = model.joint_proba(X)
    both = LogisticRegression(max_iter=1000).fit(X, Y.all(axis=1)).predict_proba(X)[:, 1]
    assert joint[:, 0, 1] == pytest.approx(both, abs=1e-6)
    assert joint[:, 1, 1] == pytest.approx(both, abs=1e-6)
    assert empty == pytest.approx(
        LogisticRegression(max_iter=1000).fit(X, ~Y.any(axis=1)).predict_proba(X)[:, 1], abs=1e-6
    )
    assert (model.predict(X) == Y).mean() > 0.7


def test_with_one_class_a_sample_ccs_is_one_versus_rest_regression() -> None:
    X, y = blobs(300)
    model = ConvexCalibratedSurrogates().fit(X, y)
    regression = LogisticRegression(max_iter=1000).fit(X, y)
    assert model.predict_proba(X) == pytest.approx(regression.predict_proba(X), abs=1e-4)


@pytest.mark.parametrize("method", rivals.NAMES)
def test_rivals_tell_classes_apart_by_their_largest_score(method: str) -> None:
    parts = data.split(data.load("synthetic_33", rows=600), seed=0)
    scores = rivals.fit(method, parts, seed=0)(parts.test[0])
    assert scores.shape == (120, 2)
    assert (scores.argmax(axis=1) == parts.test[1].numpy()).mean() > 0.75
    if method.startswith("svmperf"):
        assert scores.sum(axis=1) == pytest.approx(np.zeros(120))


@pytest.mark.parametrize("method", ["rf", "ccs"])
def test_images_are_reduced_to_what_explains_four_fifths_of_the_training_part(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(0)
    y = np.arange(90) % 3
    X = np.clip(random.normal(60 + 60 * y[:, None, None, None], 20, (90, 3, 8, 8)), 0, 255).astype(np.uint8)
    parts = data.split(data.Problem("made up", X, y, ["a", "b", "c"]), seed=0)
    kept = []
    fitted = rivals.PCA.fit
    monkeypatch.setattr(rivals.PCA, "fit", lambda self, X: kept.append(fitted(self, X)) or self)
    scores = rivals.fit(method, parts, seed=0)(parts.test[0])
    assert (scores.argmax(axis=1) == parts.test[1].numpy()).all()
    share = np.cumsum(np.linalg.svd(parts.train[0].flatten(1) - parts.train[0].flatten(1).mean(0))[1] ** 2)
    assert kept[0].n_components_ == int(np.searchsorted(share / share[-1], 0.8)) + 1
