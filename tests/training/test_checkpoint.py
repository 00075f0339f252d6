"""What makes a run this run."""

from functools import partial

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import ShuffleSplit
from sklearn.naive_bayes import GaussianNB
from torch import nn

from metricfit import MetricClassifier, Recipe, metrics
from metricfit.training.checkpoint import in_full
from tests.helper import make_classifier

QUICK = {"min_updates": 20, "max_epochs": 2, "hidden_sizes": (8,), "baseline": False, "random_state": 0}


def scaled(factor):
    return lambda cm: factor * cm.tp[1]


def test_functions_are_told_by_what_they_do():
    assert in_full(scaled(1)) == in_full(scaled(1))
    assert in_full(scaled(1)) != in_full(scaled(2))
    assert in_full(lambda cm: cm.tp[1]) != in_full(lambda cm: cm.tp[0])
    assert in_full(lambda cm: cm.tp) != in_full(lambda cm: cm.fn)
    assert in_full(lambda cm, k=1: cm) != in_full(lambda cm, k=2: cm)
    assert in_full(lambda cm: (lambda: 1)()) != in_full(lambda cm: (lambda: 2)())
    assert in_full(partial(scaled, 1)) == in_full(partial(scaled, 1)) != in_full(partial(scaled, 2))
    assert in_full(metrics.CallableMetric(scaled(1))) == in_full(scaled(1))


def test_addresses_do_not_count():
    assert in_full(object()) == in_full(object())
    assert in_full(partial(scaled, object())) == in_full(partial(scaled, object()))


def one_layer(activation):
    return lambda inputs, outputs: nn.Sequential(nn.Linear(inputs, 4), activation(), nn.Linear(4, outputs))


@pytest.mark.parametrize(
    ("first", "other"),
    [
        ({"metric": lambda cm: cm.tp[0] / cm.support[0]}, {"metric": lambda cm: cm.tp[1] / cm.support[1]}),
        ({"network": one_layer(nn.ReLU)}, {"network": one_layer(nn.Tanh)}),
    ],
)
def test_another_function_is_another_run(first, other, tmp_path):
    X, y = load_breast_cancer(return_X_y=True)
    fit = partial(make_classifier, checkpoint_dir=tmp_path, **QUICK)
    proba = fit(**first).fit(X, y).predict_proba(X)
    assert np.array_equal(fit(**first).fit(X, y).predict_proba(X), proba)
    with pytest.raises(ValueError, match="a checkpoint of another run, with other settings"):
        fit(**other).fit(X, y)


def test_whatever_settings_fit_can_be_checkpointed(tmp_path):
    X, y = load_breast_cancer(return_X_y=True)
    for _ in range(2):
        splitter = ShuffleSplit(2, random_state=np.random.RandomState(0))
        options = QUICK | {"cv": splitter, "learning_rate": np.float32(0.01)}
        make_classifier("f1", checkpoint_dir=tmp_path, **options).fit(X, y)


def test_a_file_that_is_no_checkpoint_is_told(tmp_path):
    (tmp_path / "network.pt").write_text("hello")
    X, y = load_breast_cancer(return_X_y=True)
    with pytest.raises(ValueError, match="is not a checkpoint that can be read; delete it"):
        make_classifier("f1", checkpoint_dir=tmp_path, **QUICK).fit(X, y)


def test_a_run_that_ran_out_of_time_goes_on_to_the_same_model(tmp_path):
    X, y = load_breast_cancer(return_X_y=True)
    recipe = Recipe(min_updates=0, max_epochs=5)
    options = {"models": ["forest", "network"], "recipe": recipe, "baseline": False, "verbose": False}
    fit = partial(MetricClassifier, "mcc", random_state=0, **options)
    whole = fit().fit(X, y)
    short = fit(models="network", time_limit=0, checkpoint_dir=tmp_path).fit(X, y)
    assert len(short.history_) == 1
    resumed = fit(checkpoint_dir=tmp_path).fit(X, y)
    assert len(resumed.history_) == len(whole.history_) == 5
    assert np.array_equal(resumed.predict_proba(X), whole.predict_proba(X))


def test_another_classifier_of_the_users_is_another_run(tmp_path):
    X, y = load_breast_cancer(return_X_y=True)
    options = {"baseline": False, "checkpoint_dir": tmp_path, "random_state": 0, "verbose": False}
    for _ in range(2):
        MetricClassifier("mcc", models=[GaussianNB()], **options).fit(X, y)
    with pytest.raises(ValueError, match="a checkpoint of another run, with other estimator"):
        MetricClassifier("mcc", models=[GaussianNB(var_smoothing=0.1)], **options).fit(X, y)


def test_ctrl_c_keeps_what_is_there_says_so_and_goes_on_to_the_same_model(tmp_path):
    X, y = load_breast_cancer(return_X_y=True)
    models, recipe = ["forest", "network_ce", "network"], Recipe(min_updates=0, max_epochs=5)
    fit = partial(MetricClassifier, "mcc", models=models, recipe=recipe, random_state=0, verbose=False)

    def interrupt(event):
        if event.record.epoch == 3:
            raise KeyboardInterrupt

    with pytest.warns(RuntimeWarning, match="training was interrupted after 3 of up to 5 epochs"):
        stopped = fit(checkpoint_dir=tmp_path, callbacks=interrupt).fit(X, y)
    assert set(stopped.leaderboard_["model"]) == {"forest", "network_ce", "portfolio"}
    assert "Not fitted, because training was interrupted: network." in stopped.explain()
    resumed = fit(checkpoint_dir=tmp_path).fit(X, y)
    assert np.array_equal(resumed.predict_proba(X), fit().fit(X, y).predict_proba(X))
