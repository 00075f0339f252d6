"""Displays draw what they say, on axes given or their own, and keep what they drew."""

import subprocess
import sys

import matplotlib
import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer, make_classification
from sklearn.linear_model import LogisticRegression

from metricfit import plots
from metricfit.decisions import best_threshold
from metricfit.steps import Annealed
from metricfit.training.objective import Validation
from tests.helper import make_classifier
from tests.report.helper import history

matplotlib.use("Agg")
import matplotlib.pyplot as plt


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def fitted():
    X, y = load_breast_cancer(return_X_y=True)
    options = {"cv": 2, "baseline": False, "min_updates": 40, "max_epochs": 1, "verbose": False, "random_state": 0}
    return make_classifier("mcc", recipe="east", **options).fit(X[::2], y[::2]), X[1::2], y[1::2]


def test_threshold_curve_has_the_metrics_values_and_its_best():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 200)
    score = y * 0.4 + rng.random(200)
    display = plots.ThresholdCurveDisplay.from_predictions(y, score, metric="mcc", name="mine", color="red")
    best = best_threshold(y, score, "mcc")
    assert display.best_threshold == best.threshold
    assert display.values.max() == pytest.approx(best.value)
    assert display.line_.get_color() == "red"
    x, height = display.line_.get_data()
    assert len(x) == len(height) == 201
    assert display.ax_.get_ylabel() == "mcc"
    assert display.ax_.get_legend().get_texts()[0].get_text() == "mine"
    assert display.figure_ is display.ax_.figure


def test_threshold_curve_of_estimators_and_given_axes(fitted):
    classifier, X, y = fitted
    _, ax = plt.subplots()
    display = plots.ThresholdCurveDisplay.from_estimator(classifier, X, y, ax=ax)
    assert display.ax_ is ax
    assert display.metric_name == "mcc"
    other = plots.ThresholdCurveDisplay.from_estimator(
        LogisticRegression(max_iter=50, solver="liblinear").fit(X, y), X, y, ax=ax, metric="f1"
    )
    assert other.ax_ is ax
    assert other.estimator_name == "LogisticRegression"
    with pytest.raises(ValueError, match="two classes, this one has 3"):
        plots.ThresholdCurveDisplay.from_estimator(
            LogisticRegression(solver="newton-cg").fit(X[:60, :2], np.arange(60) % 3), X, y
        )


def test_the_class_that_the_metric_names_is_the_positive_one():
    X, y = load_breast_cancer(return_X_y=True)
    model = LogisticRegression(max_iter=50, solver="liblinear").fit(X, y)
    display = plots.ThresholdCurveDisplay.from_estimator(model, X, y, metric="recall[0]")
    assert display.values[0] == pytest.approx(1.0), "at the lowest threshold all rows are called 0"
    best = best_threshold(1 - y, model.predict_proba(X)[:, 0], "f1")
    named = plots.ThresholdCurveDisplay.from_estimator(model, X, y, metric="f1[0]")
    assert named.best_value == pytest.approx(best.value)


def test_constraint_marks_the_best_threshold_that_meets_it():
    y, score = [0, 0, 1, 0, 1, 1], [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    display = plots.ThresholdCurveDisplay.from_predictions(y, score, metric="precision[1] subject to recall[1] >= 0.9")
    assert display.metric_name == "precision[1]"
    assert 0.2 < display.best_threshold <= 0.3


def test_alignment_of_a_fit_and_of_values(fitted):
    classifier, _, _ = fitted
    display = plots.AlignmentDisplay.from_estimator(classifier)
    known = classifier.history_.dropna(subset=["validation_loss", "hard_metric"])
    np.testing.assert_array_equal(display.scatter_.get_offsets()[:, 0], known["validation_loss"])
    np.testing.assert_array_equal(display.scatter_.get_offsets()[:, 1], known["hard_metric"])
    mine = plots.AlignmentDisplay([0.1, np.nan, 0.3, 0.5], [0.2, 0.3, 0.1, 0.6], metric_name="F1")
    assert mine.correlation == pytest.approx(np.corrcoef([0.1, 0.3, 0.5], [0.2, 0.1, 0.6])[0, 1])
    assert np.isnan(plots.AlignmentDisplay([0.5], [0.5]).correlation)
    with pytest.raises(ValueError, match="exact: expected one value for each"):
        plots.AlignmentDisplay([0.1], [0.1, 0.2])
    with pytest.raises(ValueError, match="estimator: expected a fitted MetricClassifier"):
        plots.AlignmentDisplay.from_estimator(make_classifier())


@pytest.mark.parametrize(
    ("recipe", "label"),
    [("log_loss", "Cross-entropy"), ("surrogate_fbeta", "Surrogate F-beta loss"), ("east", "1 - soft f1[1]")],
)
def test_alignment_draws_the_loss_that_was_trained(recipe, label):
    """At each epoch the loss of the objective itself, at its own temperature, on the validation rows."""
    X, y = make_classification(200, 5, weights=[0.8], random_state=0)
    seen = []
    score = Validation.score

    def noted(self, network, objective, active):
        with torch.no_grad():
            logits = network.eval()(self.data.features[self._index])
            target, weight = self.data.target[self._index], self._weights.sum(dim=0)
            objective.eval()
            seen.append(objective(logits, target, weight).mean().item())
            objective.train()
        return score(self, network, objective, active)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Validation, "score", noted)
        options = {"cv": 2, "baseline": False, "max_epochs": 4, "verbose": False, "random_state": 0}
        classifier = make_classifier("f1", recipe=recipe, **options).fit(X, y)
    display = plots.AlignmentDisplay.from_estimator(classifier)
    assert display.ax_.get_xlabel() == label
    assert len(display.surrogate) > 2
    np.testing.assert_allclose(display.surrogate, seen, rtol=1e-4)


def test_annealing_marks_every_cooling(fitted):
    display = plots.AnnealingDisplay(history(12), metric_name="F1").plot()
    assert display.coolings == [5, 9]
    np.testing.assert_array_equal(display.line_.get_ydata(), history(12)["temperature"])
    assert len(display.ax_.lines) == 1 + 2
    assert display.metric_ax_.get_ylabel() == "F1"
    assert plots.AnnealingDisplay.from_estimator(fitted[0]).ax_.get_xlabel() == "Epoch"
    with pytest.raises(ValueError, match=r"history: .* lacks hard_metric, temperature"):
        plots.AnnealingDisplay(history()[["epoch"]])


def test_step_is_the_losss_own(fitted):

    display = plots.StepDisplay(Annealed(0.05), tau=0.3).plot()
    p, heights = display.line_.get_data()
    expected = Annealed(0.05)(torch.from_numpy(np.asarray(p)), torch.tensor(0.3, dtype=torch.float64))
    np.testing.assert_allclose(heights, expected.numpy())
    last = plots.StepDisplay.from_estimator(fitted[0])
    assert f"temperature={fitted[0].history_['temperature'].iloc[-1]:.3g}" in last.line_.get_label()


def test_importing_metricfit_does_not_import_matplotlib():
    script = "import sys, metricfit; metricfit.plots; print('matplotlib.pyplot' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"
