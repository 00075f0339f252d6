import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import make_classification, make_multilabel_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.metrics import f1_score, matthews_corrcoef, recall_score
from sklearn.model_selection import GridSearchCV, ShuffleSplit, cross_val_score
from sklearn.multioutput import MultiOutputClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from metricfit.decisions import DecisionRule, InfeasibleError, TunedRuleClassifier


# A tree takes several labels, so the checks of multi-label targets run too. scikit-learn itself skips two checks:
# array-API input unless SCIPY_ARRAY_API is set, and the decision_function that the wrapper does not have.
@parametrize_with_checks(
    [TunedRuleClassifier(DecisionTreeClassifier(random_state=0), metric="balanced_accuracy", cv=2)],
    expected_failed_checks=lambda _: {
        "check_classifiers_multilabel_output_format_predict_proba": "wants 0 < p < 1 strictly; a tree says 0 and 1"
    },
)
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast:RuntimeWarning")
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([TunedRuleClassifier()])
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast:RuntimeWarning")
def test_scikit_learns_own_checks_with_the_defaults(estimator, check):
    check(estimator)


def binary(n=600, seed=0):
    return make_classification(n, n_features=6, weights=[0.85], class_sep=0.7, random_state=seed)


def multiclass(n=600):
    return make_classification(
        n, n_features=8, n_informative=5, n_classes=3, weights=[0.75, 0.2], class_sep=0.7, random_state=0
    )


def test_binary_predict_is_argmax_of_predict_proba_and_beats_the_default():
    X, y = binary(2000)
    model = TunedRuleClassifier(GaussianNB(), metric="mcc").fit(X[:1000], y[:1000])
    np.testing.assert_array_equal(model.predict(X), model.predict_proba(X).argmax(axis=1))
    plain = GaussianNB().fit(X[:1000], y[:1000])
    np.testing.assert_allclose(model.predict_proba(X, raw=True), plain.predict_proba(X))
    assert matthews_corrcoef(y[1000:], model.predict(X[1000:])) > matthews_corrcoef(y[1000:], plain.predict(X[1000:]))
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), model.predict_proba(X))


def test_multiclass_text_labels_in_a_frame():
    X, y = multiclass()
    names = np.array(["low", "mid", "top"])[y]
    frame = pd.DataFrame(X, columns=[f"f{i}" for i in range(8)])
    model = TunedRuleClassifier(make_pipeline(StandardScaler(), LogisticRegression()), metric="f1_macro").fit(
        frame, names
    )
    predicted = model.predict(frame)
    assert model.rule_.kind == "offsets"
    assert model.classes_.tolist() == ["low", "mid", "top"]
    np.testing.assert_array_equal(predicted, model.classes_[model.predict_proba(frame).argmax(axis=1)])
    plain = model.classes_[model.predict_proba(frame, raw=True).argmax(axis=1)]
    assert f1_score(names, predicted, average="macro") > f1_score(names, plain, average="macro")
    assert model.n_features_in_ == 8
    assert model.feature_names_in_.tolist() == list(frame.columns)


@pytest.mark.parametrize(
    "estimator",
    [
        RandomForestClassifier(20, random_state=0),  # a list of (n, 2)
        KNeighborsClassifier(),
        MultiOutputClassifier(LogisticRegression()),
    ],
    ids=lambda e: type(e).__name__,
)
def test_multilabel(estimator):
    X, y = make_multilabel_classification(300, n_classes=4, random_state=0)
    model = TunedRuleClassifier(estimator, metric="f1_micro", cv=3).fit(X, y)
    assert model.rule_.kind == "thresholds"
    np.testing.assert_array_equal(model.predict(X), model.predict_proba(X) > 0.5)
    assert model.predict_proba(X, raw=True).shape == y.shape
    assert model.value_ >= f1_score(y, np.zeros_like(y), average="micro")


@pytest.mark.parametrize(("estimator", "maker"), [(LinearSVC(), binary), (RidgeClassifier(), multiclass)])
def test_estimators_with_a_decision_function_only(estimator, maker):
    X, y = maker()
    model = TunedRuleClassifier(estimator, metric="balanced_accuracy").fit(X, y)
    assert not hasattr(model, "predict_proba")
    plain = clone(estimator).fit(X, y).predict(X)
    assert recall_score(y, model.predict(X), average="macro") > recall_score(y, plain, average="macro")


class LargeMargins(ClassifierMixin, BaseEstimator):
    """The margin is the first feature, as large as an unscaled linear model's."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def decision_function(self, X):
        return np.asarray(X)[:, 0]


@pytest.mark.parametrize(("metric", "sign"), [("f1", 1), ("f1[0]", -1)])
def test_margins_that_a_sigmoid_would_take_for_equal(metric, sign):
    X = sign * np.array([[60.0], [90.0], [120.0], [400.0], [900.0]])
    y = np.array([0, 0, 1, 1, 1]) if sign > 0 else np.array([1, 1, 0, 0, 0])
    model = TunedRuleClassifier(LargeMargins().fit(X, y), metric=metric, cv="prefit").fit(X, y)
    assert model.value_ == 1
    np.testing.assert_array_equal(model.predict(X), y)


def test_margins_of_a_fold_that_lacks_a_class():
    X, y = multiclass()
    rows = np.flatnonzero(y != y.max())
    folds = [(rows[::2], np.arange(1, len(y), 2)), (np.arange(1, len(y), 2), np.arange(0, len(y), 2))]
    model = TunedRuleClassifier(LinearSVC(), metric="balanced_accuracy", cv=folds).fit(X, y)
    assert set(model.predict(X)) <= set(y)


def test_a_fit_that_fails_leaves_nothing_of_another_one():
    X, y = binary()
    model = TunedRuleClassifier(metric="f1").fit(X, y)
    model.set_params(metric="f1[1] subject to recall[1] >= 1 and precision[1] >= 1")
    with pytest.raises(InfeasibleError):
        model.fit(-X, y)
    with pytest.raises(NotFittedError):
        model.predict(X)
    with pytest.raises(ValueError, match="y: holds one class only, 0; a classifier needs at least two"):
        model.fit(X, 0 * y)


def test_constraints_and_a_promise_on_held_out_data():
    X, y = binary(3000)
    prefit = LogisticRegression().fit(X[:1000], y[:1000])
    model = TunedRuleClassifier(
        prefit, metric="precision[1] subject to recall[1] >= 0.8", cv="prefit", confidence=0.95
    ).fit(X[1000:2000], y[1000:2000])
    assert model.estimator_ is prefit
    assert model.search_.constraints[0].promised >= 0.8
    assert recall_score(y[2000:], model.predict(X[2000:])) >= 0.8


def test_sample_weight_reaches_estimator_and_rule():
    X, y = binary()
    weight = np.where(y == 1, 5.0, 1.0)
    weighted = TunedRuleClassifier(metric="accuracy").fit(X, y, sample_weight=weight)
    plain = TunedRuleClassifier(metric="accuracy").fit(X, y)
    assert not np.allclose(weighted.estimator_.coef_, plain.estimator_.coef_)
    assert weighted.predict(X).sum() > plain.predict(X).sum()
    with pytest.raises(ValueError, match=r"sample_weight: KNeighborsClassifier\.fit takes none"):
        TunedRuleClassifier(KNeighborsClassifier()).fit(X, y, sample_weight=weight)


def test_the_positive_class_is_the_one_that_the_metric_names():
    X, y = binary()
    names = np.where(y == 1, "b", "a")
    model = TunedRuleClassifier(metric="f1[a]").fit(X, names)
    np.testing.assert_array_equal(model.predict(X), model.classes_[model.predict_proba(X).argmax(axis=1)])
    assert model.value_ == pytest.approx(TunedRuleClassifier(metric="f1").fit(X, 1 - y).value_)


def test_clone_grid_search_and_cross_validation():
    X, y = binary()
    model = TunedRuleClassifier(LogisticRegression(), metric="f1", cv=3)
    assert clone(model).get_params()["estimator__C"] == 1.0
    search = GridSearchCV(model, {"estimator__C": [0.01, 1.0], "metric": ["f1", "mcc"]}, cv=2, scoring="roc_auc").fit(
        X, y
    )
    assert search.best_score_ > 0.7
    assert cross_val_score(model, X, y, cv=2).shape == (2,)


def test_a_splitter_that_leaves_samples_out():
    X, y = binary()
    model = TunedRuleClassifier(metric="f1", cv=ShuffleSplit(2, test_size=0.3, random_state=0)).fit(X, y)
    assert model.search_.confusion.total.item() == 2 * 180


def test_a_class_with_a_single_sample_is_survived():
    X, y = multiclass(200)
    y = np.where(y == 2, 1, y)
    y[0] = 2
    model = TunedRuleClassifier(GaussianNB(), metric="f1_macro").fit(X, y)
    assert model.predict_proba(X).shape == (200, 3)


def test_a_cost_matrix_gives_a_rule_that_costs_no_more_than_argmax():
    X, y = multiclass()
    costs = [[0, 1, 1], [1, 0, 1], [20, 20, 0]]
    model = TunedRuleClassifier(GaussianNB(), metric=f"cost:matrix={costs}").fit(X, y)
    assert model.rule_.kind in ("costs", "offsets")
    assert (model.predict(X) == 2).sum() > (model.predict_proba(X, raw=True).argmax(axis=1) == 2).sum()


def test_the_rule_survives_json():
    X, y = binary()
    model = TunedRuleClassifier().fit(X, y)
    again = DecisionRule.from_json(model.rule_.to_json())
    np.testing.assert_array_equal(again.apply(model.predict_proba(X, raw=True)), model.predict(X))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": np.zeros(600)}, "holds one class only"),
        ({"cv": 1}, "cv: expected at least 2 folds"),
        ({"y": np.arange(600.0) + 0.5}, "Unknown label type"),
        ({"metric": "f2_score"}, "unknown name"),
    ],
)
def test_bad_input_gets_one_clear_message(change, message):
    X, y = binary()
    y = change.pop("y", y)
    with pytest.raises(ValueError, match=message):
        TunedRuleClassifier(**change).fit(X, y)


def test_an_estimator_without_scores_is_refused():
    from sklearn.cluster import KMeans

    X, y = binary()
    with pytest.raises(TypeError, match="KMeans has neither predict_proba nor decision_function"):
        TunedRuleClassifier(KMeans(2)).fit(X, y)
