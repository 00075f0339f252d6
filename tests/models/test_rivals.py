"""SVM-perf and convex calibrated surrogates against brute force and other solvers."""

from __future__ import annotations

import sys
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from metricfit.models import ConvexCalibratedSurrogate, SVMPerf
from metricfit.models.rivals import LOSSES, decode

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
        delta, weights = LOSSES[loss](scores, y)
        assert delta - weights @ scores == pytest.approx(np.max(deltas - margins), abs=1e-12)


@given(seeds)
@settings(max_examples=100, deadline=None)
def test_the_most_violated_order_is_that_of_all_pairs(seed: int) -> None:
    scores, y = scores_and_labels(seed, 12)
    pairs = scores[y][:, None] - scores[~y]
    delta, weights = LOSSES["roc"](scores, y)
    assert delta == pytest.approx((pairs < 1).mean())
    assert delta - weights @ scores == pytest.approx(np.maximum(0, 1 - pairs).mean(), abs=1e-12)


def blobs(n: int, seed: int = 0, positives: float = 0.3) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    y = (np.arange(n) < positives * n).astype(int)
    return random.normal(size=(n, 3)) + y[:, None] * [1.5, 0.5, 0.0], y


def test_with_the_error_rate_it_is_the_usual_support_vector_machine() -> None:
    X, y = blobs(120)
    machine = SVMPerf("error", C=60.0, epsilon=1e-7).fit(X, y)
    usual = LinearSVC(loss="hinge", C=60.0 / 120, tol=1e-9, max_iter=1_000_000).fit(X, y)
    assert machine.coef_ == pytest.approx(usual.coef_, abs=2e-3)
    assert machine.intercept_ == pytest.approx(usual.intercept_, abs=2e-3)


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
    machine = SVMPerf(loss, C=C, epsilon=1e-8).fit(X, y)
    assert machine.objective_ == pytest.approx(exact.fun, abs=1e-5)
    # The constant feature cancels out of pairs.
    compared = machine.coef_[0] if loss == "roc" else np.append(machine.coef_[0], machine.intercept_)
    assert compared == pytest.approx(exact.x[: len(compared)], abs=1e-3)


def test_each_loss_is_best_at_what_it_is_about_and_many_rows_are_quick() -> None:
    X, y = blobs(20_000, positives=0.05)
    machines = {loss: SVMPerf(loss, C=1000.0).fit(X, y) for loss in LOSSES}
    scores = {loss: f1_score(y, machine.predict(X)) for loss, machine in machines.items()}
    assert scores["f1"] > scores["error"]
    assert scores["f1"] > scores["roc"]
    assert all(machine.gap_ <= 1e-3 for machine in machines.values())


def test_svmperf_asks_for_two_classes_and_a_loss_it_has() -> None:
    with pytest.raises(ValueError, match="two classes, got 1"):
        SVMPerf().fit(np.zeros((3, 1)), np.zeros(3))
    with pytest.raises(ValueError, match="error, f1, roc"):
        SVMPerf("auc").fit(np.zeros((3, 1)), np.array([0, 1, 1]))


@pytest.mark.parametrize("machine", [SVMPerf(), ConvexCalibratedSurrogate()], ids=lambda m: type(m).__name__)
def test_they_are_scikit_learn_classifiers_of_any_labels(machine: Any) -> None:
    X, y = blobs(200)
    names = np.array(["no", "yes"])[y]
    fitted = make_pipeline(StandardScaler(), clone(machine)).fit(X, names)
    assert set(fitted.predict(X)) == {"no", "yes"}
    assert cross_val_score(machine, X, names, cv=3, scoring="balanced_accuracy").mean() > 0.65
    with pytest.raises(NotFittedError):
        clone(machine).predict(X)


def test_svmperf_without_its_solver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "clarabel", None)
    with pytest.raises(ImportError, match=r"metricfit\[papers\]"):
        SVMPerf().fit(*blobs(20))


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
    found = decode(joint[None], truth[:1])[0].astype(float)
    expected = np.array([truth @ f1_of_all(one, sets) for one in sets])
    assert truth @ f1_of_all(found, sets) == pytest.approx(expected.max(), abs=1e-9)


def test_ccs_estimates_each_label_with_each_number_of_labels() -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(400, 3))
    Y = (X @ random.normal(size=(3, 2)) + random.normal(size=(400, 2))) > 0
    model = ConvexCalibratedSurrogate().fit(X, Y)
    joint, empty = model.joint_probabilities(X)
    both = LogisticRegression(max_iter=1000).fit(X, Y.all(axis=1)).predict_proba(X)[:, 1]
    assert joint[:, 0, 1] == pytest.approx(both, abs=1e-6)
    assert joint[:, 1, 1] == pytest.approx(both, abs=1e-6)
    assert empty == pytest.approx(
        LogisticRegression(max_iter=1000).fit(X, ~Y.any(axis=1)).predict_proba(X)[:, 1], abs=1e-6
    )
    assert (model.predict(X) == Y).mean() > 0.7


def test_with_one_class_a_sample_ccs_is_one_versus_rest_regression() -> None:
    X, y = blobs(300)
    model, of_sets = ConvexCalibratedSurrogate().fit(X, y), ConvexCalibratedSurrogate().fit(X, np.eye(2)[y])
    regression = LogisticRegression(max_iter=1000).fit(X, y)
    assert model.predict_proba(X) == pytest.approx(regression.predict_proba(X), abs=1e-4)
    assert of_sets.predict_proba(X) == pytest.approx(model.predict_proba(X), abs=1e-12)
    sets = of_sets.predict(X)
    alone = sets.sum(axis=1) == 1
    assert alone.sum() > 200
    assert (sets[alone].argmax(axis=1) == model.predict(X)[alone]).all()
