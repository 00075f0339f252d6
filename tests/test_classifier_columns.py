"""Money, groups and capacity in ``MetricClassifier``: chosen for the portfolio, kept, saved, loaded, reported."""

import numpy as np
import pandas as pd
import pytest

import metricfit
from metricfit import MetricClassifier, metrics
from metricfit.comparison import Comparison
from metricfit.decisions import TunedRuleClassifier
from metricfit.training.rows import Folds, Table

MONEY = "money:tp=amount-5,fp=-5,fn=-amount"
QUICK = {"models": "boosting", "cv": 2, "baseline": False, "random_state": 0, "verbose": False}


def table(n=400, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.random(n) < 0.25
    region = rng.choice(["north", "south"], n, p=[0.7, 0.3])
    a = rng.normal(size=n) + 2 * y - 0.8 * y * (region == "south")
    hours = pd.to_timedelta(rng.integers(0, 24, n), unit="h")
    day = pd.Timestamp("2026-01-01") + pd.to_timedelta(np.arange(n) // 50, unit="D") + hours
    X = pd.DataFrame({"a": a, "amount": rng.lognormal(3, 1, n), "region": region, "day": day})
    return X, np.where(y, "yes", "no")


def test_money_is_trained_decided_scored_saved_and_reported(tmp_path):
    X, y = table()
    clf = MetricClassifier(MONEY, **QUICK).fit(X, y)
    assert str(clf.metric_) == "money[yes]:tp=amount - 5,fp=-5,fn=-amount"
    assert clf.score(X, y) == pytest.approx(metrics.get(clf.metric_).score(y, clf.predict(X), columns=X))
    assert clf.validation_report_["value"].iloc[-1] > 100
    metricfit.save(clf, tmp_path / "m")
    back = metricfit.load(tmp_path / "m")
    assert (back.predict(X) == clf.predict(X)).all()
    assert back.held_out_.columns["amount"] == pytest.approx(clf.held_out_.columns["amount"])
    assert "per 1,000 rows." in (tmp_path / "m" / "report.html").read_text(encoding="utf-8")
    assert "money" in clf.explain()


def test_columns_that_are_no_features_are_given_beside_the_table():
    X, y = table()
    clf = MetricClassifier(MONEY, **QUICK).fit(X[["a"]], y, columns=X)
    assert clf.n_features_in_ == 1
    assert clf.score(X[["a"]], y, columns=X) == pytest.approx(
        metrics.get(clf.metric_).score(y, clf.predict(X), columns=X)
    )
    with pytest.raises(ValueError, match="the metric needs 'amount', got 'a'"):
        MetricClassifier(MONEY, **QUICK).fit(X[["a"]], y)


def test_a_network_is_trained_on_what_pays_weighted_by_what_it_pays():
    codes, amount = np.array([0, 1, 1, 0]), np.array([9.0, 100.0, 1.0, 3.0])
    metric = metrics.get(MONEY + " subject to recall[1] >= 0.5 in r and predicted_count[1] <= 3")
    ones, numbers = np.ones(4, dtype=np.float32), Table.of_numbers(np.zeros((4, 1), dtype=np.float32))
    columns = {"amount": amount, "r": np.array(list("abab"))}
    folds = Folds(numbers, codes, ones, ones, [], metric, "binary", (0, 1), 0, columns=columns)
    trained, plain = folds.of_counts(plain=False), folds.of_counts(plain=True)
    assert trained.codes.tolist() == [0, 1, 0, 0]  # a call about an amount of 1 does not pay
    assert trained.weight.tolist() == pytest.approx(np.array([5, 195, 3, 5]) / 52)
    assert str(trained.metric) == str(plain.metric) == "accuracy subject to recall[1] >= 0.5"
    assert plain.codes is codes
    assert plain.weight is ones


def test_a_constraint_holds_in_every_region():
    X, y = table(800)
    spec = "f1[yes] subject to recall[yes] >= 0.8 in region"
    clf = MetricClassifier(spec, **QUICK).fit(X, y)
    note = clf.validation_report_["note"].iloc[-1]
    assert note.startswith("with recall[yes] in region 0.")
    held = clf.held_out_
    assert set(held.columns) == {"region"}
    decided = clf.decision_rule_.decide(held.proba)
    recalls = [decided[(held.columns["region"] == r) & (held.truth == 1)].mean() for r in ("north", "south")]
    assert min(recalls) >= 0.75
    assert clf.score(X, y) > 0.5 or clf.score(X, y) == -np.inf


def test_no_day_has_more_alerts_than_can_be_looked_at():
    X, y = table(800)
    clf = MetricClassifier("recall[yes] subject to predicted_count[yes] <= 10 per day", **QUICK).fit(X, y)
    held = clf.held_out_
    days = np.asarray(held.columns["day"]).astype("datetime64[D]")
    counts = [clf.decision_rule_.decide(held.proba)[days == d].sum() for d in np.unique(days)]
    assert 6 <= max(counts) <= 10
    note = float(clf.validation_report_["note"].iloc[-1].split()[-1])
    assert 6 <= note <= 14


@pytest.mark.parametrize("cv", [2, None])
def test_a_count_without_days_is_one_of_the_whole_table(cv):
    X, y = table(600)
    spec = "recall[yes] subject to predicted_count[yes] <= 90"
    clf = MetricClassifier(spec, **QUICK | {"cv": cv}).fit(X, y)
    note = float(clf.validation_report_["note"].iloc[-1].split()[-1])
    assert 60 <= note <= 120


@pytest.mark.parametrize(
    ("change", "spec", "message"),
    [
        ({"region": "north"}, "f1 subject to spread(recall) <= 0.1 in zone", "the metric needs 'zone'"),
        ({"amount": -1.0}, "money:tp=amount,fp=-1", "a positive decision never pays"),
        ({"region": "one"}, "recall subject to predicted_share <= 0.01 and recall >= 0.9", "no cut-off meets"),
    ],
)
def test_bad_input_is_named_before_anything_is_trained(change, spec, message, monkeypatch):
    from metricfit import classifier

    monkeypatch.setattr(classifier, "fit_models", lambda *_, **__: pytest.fail("it was trained"))
    X, y = table()
    with pytest.raises(ValueError, match=message):
        MetricClassifier(spec + " in region" * ("share" in spec), **QUICK).fit(X.assign(**change), y)


def test_a_group_that_lacks_positives_is_named_before_training(monkeypatch):
    from metricfit import classifier

    monkeypatch.setattr(classifier, "fit_models", lambda *_, **__: pytest.fail("it was trained"))
    X, y = table()
    X.loc[(y == "no").nonzero()[0][:9], "region"] = "west"
    with pytest.raises(ValueError, match=r"no value in the group 'west', which lacks one of the classes"):
        MetricClassifier("f1 subject to recall >= 0.5 in region", **QUICK).fit(X, y)


def test_methods_are_compared_by_money():
    X, y = table(300)
    board = Comparison(X[["a"]], y, MONEY, methods=["boosting-tuned"], splits=1, columns=X).run()
    assert board[0]["mean"] > 0
    noted = Comparison(X, y, "f1 subject to recall[yes] >= 0.7 in region", methods=["boosting-tuned"], splits=1)
    noted.run()
    assert "recall[yes] in region " in noted.results[0]["note"]


def test_the_tuned_classifier_finds_the_columns_in_its_table():
    from sklearn.linear_model import LogisticRegression

    X, y = table()
    model = TunedRuleClassifier(LogisticRegression(), metric=MONEY).fit(X[["a", "amount"]], y)
    beside = TunedRuleClassifier(LogisticRegression(), metric=MONEY).fit(X[["a", "amount"]].to_numpy(), y, columns=X)
    assert model.value_ == pytest.approx(beside.value_)
    limited = TunedRuleClassifier(LogisticRegression(), subject_to="predicted_count[yes] <= 8 per day")
    assert limited.fit(X[["a"]], y, columns=X).search_.constraints[0].value <= 8
