"""A metric as the objective of LightGBM and XGBoost; their traps, each pinned by a test."""

from __future__ import annotations

import copy
import pickle
import warnings
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris, make_classification
from sklearn.metrics import f1_score, matthews_corrcoef

from metricfit import MetricLoss
from metricfit.integrations.boosting import eval_metric, objective, probabilities

lightgbm, xgboost = (import_module(n) if find_spec(n) else None for n in ("lightgbm", "xgboost"))  # type: Any, Any
RANDOM = np.random.default_rng(0)
X, Y = make_classification(600, weights=[0.85], n_informative=4, class_sep=0.8, flip_y=0.05, random_state=0)
FLOWERS, KIND = load_iris(return_X_y=True)
WEIGHT = RANDOM.uniform(0.2, 3.0, len(Y))


def data(y: Any, weight: Any = ()) -> Any:
    """What a library's training function hands over beside the scores."""
    return SimpleNamespace(get_label=lambda: np.asarray(y, dtype=np.float32), get_weight=lambda: np.asarray(weight))


@pytest.mark.parametrize("classes", [2, 3])
def test_the_gradient_is_that_of_the_loss_by_finite_differences(classes: int) -> None:
    y = RANDOM.integers(0, classes, 12)
    raw = RANDOM.normal(size=12 if classes == 2 else (12, 3))
    prior = np.array([0.7, 0.3] if classes == 2 else [0.2, 0.3, 0.5])
    weight = RANDOM.uniform(0.5, 2, 12)
    gradient, hessian = objective("mcc", cross_entropy=0.5, prior=prior)(y, raw, weight)
    loss = MetricLoss("mcc", cross_entropy=0.5, task="binary" if classes == 2 else "multiclass")
    shift = np.log(prior[1] / prior[0]) if classes == 2 else np.log(prior)

    def value(scores: Any) -> float:
        target = torch.from_numpy(y).double() if classes == 2 else torch.from_numpy(y)
        return float(loss(torch.from_numpy(scores + shift), target, torch.from_numpy(weight))) * weight.sum()

    expected = np.zeros_like(raw)
    for place in np.ndindex(raw.shape):
        step = np.zeros_like(raw)
        step[place] = 1e-5
        expected[place] = (value(raw + step) - value(raw - step)) / 2e-5
    np.testing.assert_allclose(gradient, expected, atol=1e-6)
    assert gradient.shape == hessian.shape == raw.shape


def test_a_weight_counts_as_often_as_its_row_is_repeated() -> None:
    y, raw, times = np.array([0, 1, 0, 1]), np.array([0.3, -0.2, 1.0, 0.4]), np.array([1, 3, 2, 1])
    goal = objective("f1")
    weighted, repeated = goal(y, raw, times), goal(np.repeat(y, times), np.repeat(raw, times))
    first = np.concatenate([[0], np.cumsum(times)[:-1]])
    for one, many in zip(weighted, repeated, strict=True):
        np.testing.assert_allclose(one, many[first] * times, atol=1e-12)


@pytest.mark.parametrize("scores", [np.zeros(600), np.full(600, 800.0), np.full(600, -800.0), (2 * Y - 1) * 60.0])
def test_hessians_are_positive_and_gradients_finite_however_sure_the_scores_are(scores: Any) -> None:
    gradient, hessian = objective("mcc")(Y, scores)
    assert np.isfinite(gradient).all()
    assert (hessian > 0).all()


def test_functions_and_estimators_give_the_same() -> None:
    raw, goal, measure = RANDOM.normal(size=(150, 3)), objective("f1"), eval_metric("f1")
    for given in (np.asfortranarray(raw), raw):
        for one, other in zip(goal(given, data(KIND)), goal(KIND, given, None), strict=True):
            np.testing.assert_array_equal(one, other)
    assert measure(raw, data(KIND)) == measure(KIND, raw)
    weight = RANDOM.uniform(0, 2, 150)
    np.testing.assert_allclose(goal(raw, data(KIND, weight))[0], goal(KIND, raw, weight)[0], rtol=1e-6)


def test_values_are_those_of_scikit_learn_and_each_library_gets_its_direction() -> None:
    raw = RANDOM.normal(size=600)
    expected = f1_score(Y, raw > 0, sample_weight=WEIGHT)
    assert eval_metric("f1")(Y, raw, WEIGHT) == ("f1", pytest.approx(expected), True)
    assert eval_metric("f1", library="xgboost")(Y, raw, sample_weight=WEIGHT) == pytest.approx(1 - expected)
    name, value = eval_metric("f1", library="xgboost")(raw, data(Y, WEIGHT))
    assert value == pytest.approx(1 - expected)
    assert name == eval_metric("f1", library="xgboost").__name__
    sure = 1 / (1 + np.exp(-raw))
    assert eval_metric("f1", from_probabilities=True)(Y, sure, WEIGHT)[1] == pytest.approx(expected)
    prior = np.array([0.8, 0.2])
    moved = matthews_corrcoef(Y, raw + np.log(0.25) > 0)
    assert eval_metric("mcc", prior=prior)(Y, raw)[1] == pytest.approx(moved)
    assert eval_metric("fpr[1]", library="xgboost")(Y, raw) == pytest.approx((raw > 0)[Y == 0].mean())
    assert 0.4 < eval_metric("auroc")(Y, raw)[1] < 0.6


def test_the_prior_is_where_scores_of_zero_are() -> None:
    prior = np.array([0.5, 0.3, 0.2])
    np.testing.assert_allclose(probabilities(np.zeros((2, 3)), prior), np.stack([prior, prior]))
    np.testing.assert_allclose(probabilities([0.0, 1.0])[:, 1], [0.5, 1 / (1 + np.exp(-1))])


def test_what_searches_and_processes_do_with_it() -> None:
    goal = objective("mcc", prior=[0.9, 0.1])
    for other in (copy.deepcopy(goal), pickle.loads(pickle.dumps(goal))):
        np.testing.assert_array_equal(other(Y, np.zeros(600))[0], goal(Y, np.zeros(600))[0])


def test_wrong_use_is_refused() -> None:
    for prior in ([0.5, 0.6], [1.0], [1.0, 0.0], [[0.5, 0.5]]):
        with pytest.raises(ValueError, match="prior: expected the share of each class"):
            objective("f1", prior=prior)
    with pytest.raises(ValueError, match="prior: expected 3 shares"):
        objective("f1", prior=[0.5, 0.5])(KIND, np.zeros((150, 3)))
    with pytest.raises(ValueError, match="library: expected"):
        eval_metric("f1", library="catboost")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="prior: expected None"):
        eval_metric("f1", prior=[0.5, 0.5], from_probabilities=True)
    with pytest.raises(ValueError, match="balance"):
        objective("f1", balance="wrong")


@pytest.mark.skipif(lightgbm is None, reason="lightgbm is not installed: make test-slow installs it")
class TestLightGBM:
    small: ClassVar = {"n_estimators": 40, "num_leaves": 8, "verbose": -1, "n_jobs": 1}

    def fitted(self, goal: Any, y: Any = Y, **options: Any) -> Any:
        return lightgbm.LGBMClassifier(**self.small, objective=goal).fit(X, y, **options)

    def raw(self, model: Any, rows: Any = X) -> Any:
        return model.predict(rows, raw_score=True)

    def test_it_learns_and_stops_on_the_metric(self) -> None:
        prior = np.bincount(Y) / len(Y)
        goal, measure = objective("f1", prior=prior), eval_metric("f1", prior=prior)
        model = lightgbm.LGBMClassifier(**self.small | {"n_estimators": 200}, objective=goal, metric="none")
        stop = lightgbm.early_stopping(10, verbose=False)
        model.fit(X[::2], Y[::2], eval_X=X[1::2], eval_y=Y[1::2], eval_metric=measure, callbacks=[stop])
        found = f1_score(Y[1::2], probabilities(self.raw(model, X[1::2]), prior).argmax(axis=1))
        assert found > 0.6
        assert model.best_score_["valid_0"]["f1"] == pytest.approx(found)
        assert model.best_iteration_ < 200

    def test_three_classes_by_estimator_and_by_function(self) -> None:
        prior = np.array([1, 1, 1]) / 3
        goal = objective("mcc", prior=prior)
        model = lightgbm.LGBMClassifier(**self.small, objective=goal).fit(FLOWERS, KIND)
        given = {"objective": goal, "num_class": 3, "verbose": -1, "num_leaves": 8, "num_threads": 1, "metric": "none"}
        booster = lightgbm.train(given, lightgbm.Dataset(FLOWERS, KIND), 40)
        for raw in (self.raw(model, FLOWERS), booster.predict(FLOWERS)):
            assert matthews_corrcoef(KIND, probabilities(raw, prior).argmax(axis=1)) > 0.95

    def test_trap_its_own_predict_proba_returns_raw_scores(self) -> None:
        model = self.fitted(objective("f1"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            np.testing.assert_array_equal(model.predict_proba(X), self.raw(model))
        proba = probabilities(self.raw(model))
        np.testing.assert_allclose(proba.sum(axis=1), 1)
        assert proba.min() >= 0

    def test_trap_a_start_of_its_own_is_not_in_the_predictions(self) -> None:
        start = np.full(len(Y), -3.0)
        model = self.fitted(objective("f1"), init_score=start)
        training = self.fitted(objective("f1", prior=1 / (1 + np.exp([-3.0, 3.0]))))
        np.testing.assert_allclose(self.raw(model), self.raw(training))  # the same trees, both without the start
        share = probabilities(self.raw(training), 1 / (1 + np.exp([-3.0, 3.0])))[:, 1].mean()
        assert abs(share - Y.mean()) < abs(probabilities(self.raw(model))[:, 1].mean() - Y.mean())

    def test_trap_hessians_of_zero_split_nothing(self) -> None:
        def flat(y: Any, score: Any) -> Any:
            return objective("f1")(y, score)[0], np.zeros(len(y))

        assert np.ptp(self.raw(self.fitted(flat))) == 0
        assert np.ptp(self.raw(self.fitted(objective("f1")))) > 0

    def test_trap_weights_are_ignored_by_functions_of_two_arguments(self) -> None:
        goal = objective("f1")
        plain, weighted = self.fitted(goal), self.fitted(goal, sample_weight=WEIGHT)
        two = self.fitted(lambda y, score: goal(y, score), sample_weight=WEIGHT)
        np.testing.assert_array_equal(self.raw(two), self.raw(plain))
        assert not np.allclose(self.raw(weighted), self.raw(plain))
        doubled = self.fitted(goal, sample_weight=np.ones(len(Y)))
        np.testing.assert_allclose(self.raw(doubled), self.raw(plain))


@pytest.mark.skipif(xgboost is None, reason="xgboost is not installed: make test-slow installs it")
class TestXGBoost:
    small: ClassVar = {"n_estimators": 40, "max_depth": 3, "n_jobs": 1}

    def fitted(self, goal: Any, features: Any = X, y: Any = Y, **options: Any) -> Any:
        return xgboost.XGBClassifier(**self.small, objective=goal).fit(features, y, **options)

    def test_its_own_predict_proba_is_right_without_a_prior(self) -> None:
        for features, y in ((X, Y), (FLOWERS, KIND)):
            model = self.fitted(objective("mcc"), features, y)
            raw = model.predict(features, output_margin=True)
            np.testing.assert_allclose(model.predict_proba(features), probabilities(raw), atol=1e-5)
            assert matthews_corrcoef(y, model.predict(features)) > 0.6

    def test_it_stops_on_the_metric(self) -> None:
        prior = np.bincount(Y) / len(Y)
        goal, measure = objective("f1", prior=prior), eval_metric("f1", library="xgboost", prior=prior)
        given = {**self.small, "n_estimators": 200, "early_stopping_rounds": 10}
        model = xgboost.XGBClassifier(**given, objective=goal, eval_metric=measure, disable_default_eval_metric=1)
        model.fit(X[::2], Y[::2], eval_set=[(X[1::2], Y[1::2])], verbose=False)
        raw = model.predict(X[1::2], output_margin=True)
        found = f1_score(Y[1::2], probabilities(raw, prior).argmax(axis=1))
        assert found > 0.6
        assert model.best_score == pytest.approx(1 - found)

    def test_by_function_with_weights(self) -> None:
        matrix = xgboost.DMatrix(X, Y, weight=WEIGHT)
        given = {"disable_default_eval_metric": 1, "nthread": 1, "max_depth": 3, "base_score": 0.5}
        measure = eval_metric("f1:average=macro", library="xgboost")
        seen: dict[str, Any] = {}
        booster = xgboost.train(
            given, matrix, 20, obj=objective("f1"), custom_metric=measure, evals=[(matrix, "train")],
            evals_result=seen, verbose_eval=False,
        )  # fmt: skip
        raw = booster.predict(matrix, output_margin=True)
        last, expected = (
            seen["train"][measure.__name__][-1],
            f1_score(Y, raw > 0, average="macro", sample_weight=WEIGHT),
        )
        assert last == pytest.approx(1 - expected, abs=1e-6)  # it keeps the six digits that it prints

    def test_weights_are_counted(self) -> None:
        goal = objective("f1")
        plain = self.fitted(goal).predict(X, output_margin=True)
        assert not np.allclose(self.fitted(goal, sample_weight=WEIGHT).predict(X, output_margin=True), plain)
        # Weights of one change the bins of its histograms, hence not equal.
        even = self.fitted(goal, sample_weight=np.ones(len(Y))).predict(X, output_margin=True)
        assert ((even > 0) == (plain > 0)).mean() > 0.97
