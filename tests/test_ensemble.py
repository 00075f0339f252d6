"""Weights and rule of a portfolio: against plain loops, and no row has a say in its own decision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_iris, make_classification
from sklearn.model_selection import RepeatedStratifiedKFold

from metricfit import MetricClassifier, metrics
from metricfit.decisions import best_threshold
from metricfit.ensemble import LEAST, HeldOut, choose_ensemble, decided_by_others, log_loss_weights, mean_of


def made(seed: int, *, models: int = 3, rows: int = 40, classes: int = 3, labels: bool = False) -> HeldOut:
    random = np.random.default_rng(seed)
    codes = random.integers(0, 2, (rows, classes)) if labels else random.permutation(np.arange(rows) % classes)
    proba = {}
    for k in range(models):
        logits = random.normal(size=(rows, classes))
        if labels:
            proba[f"m{k}"] = 1 / (1 + np.exp(-(logits + k * (2 * codes - 1))))
        else:
            logits[np.arange(rows), codes] += k
            shares = np.exp(logits)
            proba[f"m{k}"] = shares / shares.sum(axis=1, keepdims=True)
    return HeldOut(
        np.arange(rows), np.arange(rows) % 4, codes, random.uniform(0.5, 2, rows), tuple(range(classes)), proba
    )


def plain_loss(held: HeldOut, weights: dict[str, float]) -> float:
    total = 0.0
    for i in range(len(held.rows)):
        mean = sum(w * held.proba[n][i] for n, w in weights.items())
        if held.codes.ndim == 2:
            values = [p if c else 1 - p for p, c in zip(mean, held.codes[i], strict=True)]
        else:
            values = [mean[held.codes[i]]]
        total -= held.weight[i] * sum(np.log(max(v, LEAST)) for v in values)
    return total


def plain_greedy(held: HeldOut, steps: int) -> dict[str, float]:
    taken = dict.fromkeys(held.proba, 0)
    best, best_loss = None, np.inf
    for step in range(1, steps + 1):
        losses = {}
        for name in taken:
            tried = {n: (c + (n == name)) / step for n, c in taken.items()}
            losses[name] = plain_loss(held, tried)
        chosen = min(losses, key=lambda n: losses[n])
        taken[chosen] += 1
        if losses[chosen] < best_loss:
            best, best_loss = {n: c / step for n, c in taken.items()}, losses[chosen]
    return best


def test_a_row_that_several_folds_held_out_counts_once_with_its_mean_probabilities() -> None:
    X, y = load_iris(return_X_y=True)
    cv = RepeatedStratifiedKFold(n_splits=3, n_repeats=2, random_state=0)
    clf = MetricClassifier("f1", models=["forest"], cv=cv, baseline=False, verbose=False, random_state=0).fit(X, y)
    held, (model,) = clf.held_out_, clf.models_.values()
    assert held is not None
    plain = {row: [] for row in range(len(y))}
    for (_, rows), proba in zip(cv.split(X, y), model.held_out, strict=True):
        for row, said in zip(rows, proba, strict=True):
            plain[row].append(said)
    assert sorted(held.rows) == list(range(len(y)))
    assert all(len(said) == 2 for said in plain.values())
    np.testing.assert_allclose(held.proba, [np.mean(plain[row], axis=0) for row in held.rows], atol=1e-7)
    first = [{*rows.tolist()} for _, rows in cv.split(X, y)][:3]
    assert all(row in first[fold] for row, fold in zip(held.rows.tolist(), held.fold, strict=True))
    assert clf.validation_report_["rows"].tolist() == [150]


@pytest.mark.parametrize("labels", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_greedy_selection_equals_a_plain_loop(seed: int, labels: bool) -> None:
    held = made(seed, labels=labels)
    found, expected = log_loss_weights(held, 8), plain_greedy(held, 8)
    assert found == pytest.approx(expected)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.booleans())
def test_the_mean_is_at_least_as_good_as_the_best_model(seed: int, labels: bool) -> None:
    held = made(seed, labels=labels)
    weights = log_loss_weights(held)
    assert sum(weights.values()) == pytest.approx(1)
    singles = [plain_loss(held, {name: 1.0}) for name in held.proba]
    assert plain_loss(held, weights) <= min(singles) + 1e-9


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(["f1:average=macro", "mcc"]))
def test_a_folds_decisions_do_not_depend_on_its_labels(seed: int, metric: str) -> None:
    held, judge = made(seed, classes=2), metrics.get(metric)

    def choose(rows: HeldOut) -> object:
        return choose_ensemble(rows, judge)

    codes = held.codes.copy()
    here = held.fold == 1
    codes[here] = 1 - codes[here]
    other = HeldOut(held.rows, held.fold, codes, held.weight, held.labels, held.proba)
    for one, two in zip(decided_by_others(held, choose), decided_by_others(other, choose), strict=True):
        np.testing.assert_array_equal(one[here], two[here])


def test_a_single_model_has_all_the_weight_and_arg_max_can_be_asked_for() -> None:
    held = made(0)
    chosen = choose_ensemble(held.of("m1"), metrics.get("mcc"), tuned=False)
    assert chosen.weights == {"m1": 1.0}
    assert chosen.rule.kind == "argmax"
    np.testing.assert_array_equal(mean_of(held.proba, chosen.weights), held.proba["m1"])


def test_a_class_that_no_row_shows_is_not_tuned_for() -> None:
    held = made(0)
    assert choose_ensemble(held.take(held.codes != 2), metrics.get("mcc")).rule.kind == "argmax"


def test_a_confidence_is_that_of_the_rule_that_ships() -> None:
    X, y = make_classification(1500, weights=[0.7], flip_y=0.1, random_state=0)
    spec = "precision[1] subject to recall[1] >= 0.7"
    how: dict[str, Any] = {"models": ["forest"], "baseline": False, "verbose": False, "random_state": 0}
    clf = MetricClassifier(spec, confidence=0.95, **how).fit(X, y)
    held = clf.held_out_
    assert held is not None
    found = best_threshold(held.truth, held.proba[:, 1].astype(float), spec, confidence=0.95, belief=1.0)
    assert clf.decision_rule_.parameter == pytest.approx(found.threshold, abs=1e-6)
    assert found.threshold < best_threshold(held.truth, held.proba[:, 1], spec, belief=1.0).threshold
    with pytest.raises(ValueError, match="confidence: has no effect without a constraint"):
        MetricClassifier("f1", confidence=0.95, **how).fit(X, y)
