"""MetricClassifier: scikit-learn's conventions, every kind of target and table, bad input, reports."""

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_breast_cancer, load_iris, make_classification, make_multilabel_classification
from sklearn.exceptions import NotFittedError
from sklearn.metrics import f1_score, matthews_corrcoef, roc_auc_score
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import check_estimator
from torch import nn

from metricfit import MetricClassifier, metrics
from tests.helper import make_classifier

QUICK = {"min_updates": 40, "max_epochs": 4, "hidden_sizes": (16,), "baseline": False, "random_state": 0}

EXPECTED_FAILURES = dict.fromkeys(
    ("check_sample_weight_equivalence_on_dense_data", "check_sample_weight_equivalence_on_sparse_data"),
    "batches are drawn by rows, so weights and repeated rows are equal on average, not draw by draw",
)


@pytest.fixture(scope="module")
def binary():
    X, y = load_breast_cancer(return_X_y=True)
    return X, np.array(["malignant", "benign"])[y]


@pytest.fixture(scope="module")
def fitted(binary):
    return make_classifier(**QUICK | {"baseline": True}).fit(*binary)


@pytest.mark.slow
def test_check_estimator_passes_but_for_the_explained_failures():
    quick = make_classifier(min_updates=60, max_epochs=3, baseline=False)
    results = check_estimator(quick, expected_failed_checks=EXPECTED_FAILURES, on_skip=None)
    failed = {result["check_name"] for result in results if result["status"] == "xfail"}
    assert failed == set(EXPECTED_FAILURES)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:no decision rule can be tuned")  # weights that leave one class are a check
def test_check_estimator_passes_with_default_parameters_but_for_the_explained_failures():
    undone = "class weights weigh rows in training; the rule of a portfolio is tuned for the metric without them"
    expected = EXPECTED_FAILURES | {"check_class_weight_classifiers": undone}
    default = MetricClassifier(verbose=False)  # six minutes of processor time and more
    results = check_estimator(default, expected_failed_checks=expected, on_skip=None)
    assert {result["check_name"] for result in results if result["status"] == "xfail"} == set(expected)


@pytest.mark.parametrize(
    "check",
    [
        estimator_checks.check_no_attributes_set_in_init,
        estimator_checks.check_parameters_default_constructible,
        estimator_checks.check_do_not_raise_errors_in_init_or_set_params,
        estimator_checks.check_estimators_pickle,
        estimator_checks.check_classifiers_one_label,
        estimator_checks.check_supervised_y_2d,
        estimator_checks.check_n_features_in,
        estimator_checks.check_fit2d_predict1d,
        estimator_checks.check_sample_weights_not_an_array,
        estimator_checks.check_estimators_unfitted,
        estimator_checks.check_requires_y_none,
    ],
)
def test_scikit_learns_checks_pass(check):
    check("MetricClassifier", make_classifier(cv=None, min_updates=5, max_epochs=1, hidden_sizes=(8,), baseline=False))


def test_binary_with_text_labels(binary, fitted):
    X, y = binary
    assert fitted.classes_.tolist() == ["benign", "malignant"]
    proba, predicted = fitted.predict_proba(X), fitted.predict(X)
    assert proba.shape == (len(X), 2)
    assert np.allclose(proba.sum(axis=1), 1)
    assert np.array_equal(predicted, fitted.classes_[proba.argmax(axis=1)])
    assert fitted.score(X, y) == pytest.approx(f1_score(y, predicted, pos_label="malignant"))
    assert fitted.score(X, y) > 0.9


def test_what_was_taken_is_said(fitted):
    assert str(fitted.metric_) == "f1[malignant]"
    text = fitted.explain()
    assert "taken of class 'malignant', the second in sorted order; write f1[benign] for the other" in text
    assert "5-fold ensemble" in text
    assert "5 members" in text
    assert "cross-entropy, tuned rule: 0.9" in text


def test_the_validation_report_shows_what_helped(fitted, binary):
    report = fitted.validation_report_.set_index("model")
    assert list(report.index) == ["cross-entropy, arg max", "cross-entropy, tuned rule", "trained on the metric"]
    assert report["value"].between(0.8, 1).all()
    assert report["gain"].iloc[0] == 0
    assert report.loc["trained on the metric", "gain"] == pytest.approx(
        report["value"].iloc[2] - report["value"].iloc[0]
    )
    assert (report["rows"] == len(binary[0])).all()


def test_an_ensemble_on_one_split_is_measured(binary):
    report = make_classifier(**QUICK | {"cv": None, "members": 3}).fit(*binary).validation_report_
    assert report["model"].tolist() == ["trained on the metric"]
    assert report["value"].between(0.8, 1).all()


@pytest.mark.parametrize("metric", ["f1", "mcc", "balanced_accuracy", "f1[2]", "auroc"])
def test_multiclass_scores_equal_scikit_learns(metric):
    X, y = load_iris(return_X_y=True)
    classifier = make_classifier(metric, **QUICK | {"min_updates": 120}).fit(X, y)
    predicted, proba = classifier.predict(X), classifier.predict_proba(X)
    expected = {
        "f1": lambda: f1_score(y, predicted, average="macro"),
        "mcc": lambda: matthews_corrcoef(y, predicted),
        "balanced_accuracy": lambda: np.mean([(predicted[y == k] == k).mean() for k in range(3)]),
        "f1[2]": lambda: f1_score(y, predicted, average=None)[2],
        "auroc": lambda: roc_auc_score(y, proba, multi_class="ovr"),
    }[metric]()  # fmt: skip
    assert classifier.score(X, y) == pytest.approx(expected)
    assert classifier.score(X, y) > 0.8
    if metric == "f1":
        assert str(classifier.metric_) == "f1:average=macro"
        assert "macro average over the 3 classes" in classifier.explain()


def test_a_cost_is_negated_for_scikit_learn():
    X, y = load_iris(return_X_y=True)
    classifier = make_classifier("cost:matrix=[[0,1,1],[5,0,1],[1,1,0]]", **QUICK).fit(X, y)
    assert classifier.score(X, y) == -classifier.metric_.score(y, classifier.predict(X))
    assert classifier.score(X, y) > -0.5


def test_a_function_of_the_matrix_is_a_metric():
    X, y = load_iris(return_X_y=True)
    classifier = make_classifier(lambda cm: cm.tp.sum() / cm.matrix.sum(), **QUICK).fit(X, y)
    assert classifier.score(X, y) == pytest.approx((classifier.predict(X) == y).mean())


@pytest.mark.parametrize("recipe", ["default", "surrogate_fbeta"])
def test_multilabel(recipe):
    X, y = make_multilabel_classification(400, n_features=10, n_classes=4, random_state=0)
    frame = pd.DataFrame(y, columns=list("abcd"))
    classifier = make_classifier("f1", recipe=recipe, **QUICK | {"min_updates": 200}).fit(X, frame)
    predicted = classifier.predict(X)
    assert predicted.shape == y.shape
    assert np.array_equal(predicted, classifier.predict_proba(X) > 0.5)
    assert classifier.classes_.tolist() == list("abcd")
    assert classifier.score(X, frame) == pytest.approx(f1_score(y, predicted, average="macro"))
    assert classifier.score(X, frame) > 0.6
    named = make_classifier("recall[c]", rule="tuned", **QUICK).fit(X, frame)
    assert named.decision_rule_.kind == "thresholds"
    assert np.array_equal(named.predict(X), named.decision_rule_.apply(named.predict_proba(X, raw=True)))


@pytest.fixture(scope="module")
def labelled():
    X, Y = make_multilabel_classification(200, n_classes=3, n_labels=1, random_state=0)
    frame = pd.DataFrame(Y, columns=["a", "b", "c"])
    return X, frame, make_classifier(**QUICK | {"cv": None}).fit(X, frame)


@pytest.mark.parametrize(
    "convert",
    [
        lambda frame: frame.astype("Int64"),
        lambda frame: frame.astype("boolean"),
        lambda frame: frame.astype(bool).astype(object),
        lambda frame: frame.assign(b=frame["b"].astype("boolean")),
        lambda frame: frame[["c", "a", "b"]],
        lambda frame: sparse.csr_matrix(frame.to_numpy()),
        lambda frame: pd.DataFrame(frame.to_numpy()),
    ],
)
def test_indicators_of_every_kind_are_fitted_and_scored_alike(labelled, convert):
    X, frame, classifier = labelled
    expected = classifier.score(X, frame)
    assert expected == pytest.approx(f1_score(frame, classifier.predict(X), average="macro"))
    assert classifier.score(X, convert(frame)) == expected
    again = make_classifier(**QUICK | {"cv": None}).fit(X, convert(frame))
    assert again.task_ == "multilabel"
    assert again.score(X, convert(frame)) == again.score(X, frame)


def test_indicators_that_do_not_fit_are_told_by_score(labelled):
    X, frame, classifier = labelled
    with pytest.raises(ValueError, match=r"y: expected the columns \['a', 'b', 'c'\], as at fit, .* 'd' is not among"):
        classifier.score(X, frame.rename(columns={"c": "d"}))
    for wrong in (frame["a"], frame[["a", "b"]]):
        with pytest.raises(ValueError, match=r"y: expected 0/1 indicators of shape \(n, 3\)"):
            classifier.score(X, wrong)


def test_a_mixed_table_with_gaps_goes_in_and_anything_comes_back():
    random = np.random.default_rng(0)
    n = 300
    X = pd.DataFrame(
        {
            "number": np.where(random.random(n) < 0.1, np.nan, random.standard_normal(n)),
            "city": random.choice(["Rome", "Oslo", None], n),
            "flag": random.random(n) < 0.5,
            "day": pd.Timestamp("2020-01-01") + pd.to_timedelta(random.integers(0, 999, n), unit="D"),
            "empty": np.nan,
        }
    )
    y = (X["number"].fillna(1) > 0.5) & X["flag"]
    classifier = make_classifier("f1", **QUICK | {"min_updates": 200}).fit(X, y)
    assert classifier.classes_.tolist() == [False, True]
    assert classifier.feature_names_in_.tolist() == list(X.columns)
    assert classifier.n_features_in_ == 5
    assert classifier.score(X, y) > 0.7
    new = X.head(7).assign(city="Bonn", number=np.nan, empty=np.nan)
    assert np.isfinite(classifier.predict_proba(new)).all()
    import polars

    assert np.allclose(classifier.predict_proba(polars.from_pandas(new)), classifier.predict_proba(new))


def test_sparse_input_equals_dense(binary):
    X, y = binary
    X = np.where(np.abs(X - X.mean(axis=0)) > X.std(axis=0), X, 0.0)
    dense, thin = make_classifier(**QUICK).fit(X, y), make_classifier(**QUICK).fit(sparse.csr_matrix(X), y)
    assert np.allclose(dense.predict_proba(X), thin.predict_proba(sparse.csc_matrix(X)))


def test_pipelines_searches_and_calibration(binary):
    X, y = binary
    search = GridSearchCV(make_classifier(**QUICK), {"recipe__temperature": [0.1, 0.2]}, cv=2).fit(X, y)
    assert search.best_score_ > 0.85
    pipeline = make_pipeline(StandardScaler().set_output(transform="pandas"), make_classifier(**QUICK))
    assert cross_val_score(pipeline, X, y, cv=2).mean() > 0.85
    calibrated = CalibratedClassifierCV(make_classifier(**QUICK), cv=2).fit(X, y)
    assert calibrated.predict_proba(X).shape == (len(X), 2)


def test_clones_pickles_and_seeds(binary, fitted):
    X, y = binary
    copied = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(copied.predict_proba(X), fitted.predict_proba(X))
    assert not hasattr(clone(fitted), "network_")
    first, second, other = (
        make_classifier(**QUICK | {"random_state": seed, "cv": None}).fit(X, y).predict_proba(X)
        for seed in (3, np.random.RandomState(1), np.random.default_rng(1))
    )
    assert np.array_equal(first, make_classifier(**QUICK | {"random_state": 3, "cv": None}).fit(X, y).predict_proba(X))
    assert not np.array_equal(first, second)
    assert not np.array_equal(second, other)
    again = make_classifier(**QUICK | {"random_state": np.random.RandomState(1), "cv": None}).fit(X, y)
    assert np.array_equal(second, again.predict_proba(X))


def test_class_weights_are_left_out_of_the_report_and_its_baseline(binary):
    X, y = binary
    steps = QUICK | {"min_updates": 100}
    weighted = make_classifier("f1", **steps | {"class_weight": {"benign": 1, "malignant": 50}, "baseline": True})
    plain = make_classifier("f1", **steps | {"baseline": True}).fit(X, y).validation_report_.set_index("model")
    report = weighted.fit(X, y).validation_report_.set_index("model")
    assert report.loc["cross-entropy, arg max", "value"] == plain.loc["cross-entropy, arg max", "value"]
    usual = make_classifier("f1", recipe="log_loss", class_weight="balanced", **steps | {"baseline": True})
    assert list(usual.fit(X, y).validation_report_["model"])[:3] == [
        "cross-entropy, arg max", "cross-entropy, tuned rule", "trained by log_loss"
    ]  # fmt: skip
    assert "class-weighted (class_weight) cross-entropy" in usual.explain()


def test_a_failed_fit_leaves_no_half_of_a_model(binary):
    X, y = binary
    classifier = make_classifier(**QUICK).fit(X, y)
    for refuse in (lambda: classifier.set_params(metric="f1[cat]").fit(X, y), lambda: classifier.predict(X)):
        with pytest.raises((ValueError, NotFittedError)):
            refuse()
    assert not hasattr(classifier, "classes_")
    with pytest.raises(NotFittedError):
        classifier.explain()


def test_a_fitted_model_holds_little_more_than_its_weights(binary):
    classifier = make_classifier(**QUICK | {"hidden_sizes": (64, 64), "dropout": 0.25}).fit(*binary)
    weights = sum(p.numel() * p.element_size() for p in classifier.network_.parameters())
    assert len(pickle.dumps(classifier.network_)) < 1.3 * weights


def test_where_no_rule_can_be_tuned_arg_max_serves(binary):
    X, y = binary
    constant, own = np.ones((len(y), 2)), QUICK | {"cv": None, "baseline": True, "preprocess": None}
    with pytest.warns(UserWarning, match="no decision rule can be tuned, arg max is used: score: all scores are"):
        classifier = make_classifier("f1", **own).fit(constant, y)
    assert len(set(classifier.predict(constant))) == 1
    weight = (y == "benign") | (np.arange(len(y)) == np.flatnonzero(y == "malignant")[0])
    with pytest.warns(UserWarning, match="no decision rule can be tuned"):
        make_classifier("f1", rule="tuned", **QUICK).fit(X, y, sample_weight=weight)
    with pytest.raises(ValueError, match=r"rule: auroc.* judges scores, so there is no decision to tune"):
        make_classifier("auroc", rule="tuned", **QUICK).fit(X, y)
    with pytest.warns(UserWarning, match="too few rows to hold any out, so arg max is used"):
        few = make_classifier("precision subject to recall >= 0.9", **QUICK).fit(X[15:23], y[15:23])
    assert "too few rows to hold any out, so the last weights were kept" in few.explain()


def test_constraints_that_cannot_be_met_are_one_message(binary):
    impossible = "precision subject to recall >= 0.999 and specificity >= 0.999"
    with pytest.warns(UserWarning, match="no decision rule meets") as told:
        MetricClassifier(impossible, models=["forest"], baseline=False, verbose=False, random_state=0).fit(*binary)
    assert len(told) == 1
    assert "the best reachable value" in str(told[0].message)


def test_the_surrogate_follows_the_class_that_the_metric_names():
    random = np.random.default_rng(0)
    y = np.where(random.random(600) < 0.2, "b", "a")
    X = random.normal(size=(600, 4)) + 1.5 * (y == "b")[:, None] * np.eye(4)[0]
    options = QUICK | {"min_updates": 200, "max_epochs": 40}
    share = {
        name: (
            make_classifier(f"fbeta:beta=5[{name}]", recipe="surrogate_fbeta", **options).fit(X, y).predict(X) == name
        )
        for name in "ab"
    }
    assert share["a"].mean() > 0.9
    assert share["b"].mean() > 0.4
    with pytest.raises(ValueError, match="'surrogate_fbeta' has one beta for all classes"):
        make_classifier(metrics.FBeta(beta=(1.0, 2.0), average="macro"), recipe="surrogate_fbeta", **options).fit(X, y)


def test_read_only_arrays_are_left_alone(binary):
    X = StandardScaler().fit_transform(binary[0]).astype(np.float32)
    X.flags.writeable = False
    classifier = make_classifier(preprocess=None, **QUICK).fit(X, binary[1])
    assert len(classifier.predict(X)) == len(X)


def test_weights_change_what_is_learned(binary):
    X, y = binary
    sick = y == "malignant"
    plain = make_classifier("accuracy", **QUICK).fit(X, y)
    for weighted in (
        make_classifier("accuracy", class_weight={"malignant": 1e4, "benign": 1e-4}, **QUICK).fit(X, y),
        make_classifier("accuracy", **QUICK).fit(X, y, sample_weight=np.where(sick, 1e4, 1e-4)),
    ):
        assert (weighted.predict(X) == "malignant").mean() > (plain.predict(X) == "malignant").mean()
        assert (weighted.predict(X)[sick] == "malignant").all()
    balanced = make_classifier(class_weight="balanced", **QUICK).fit(X, y)
    assert balanced.recipe_.balance == "none"
    assert balanced.score(X, y) > 0.9


def test_groups_splitters_and_hold_outs(binary):
    X, y = binary
    groups = np.arange(len(X)) // 3
    assert make_classifier(**QUICK).fit(X, y, groups=groups).score(X, y) > 0.9
    three = make_classifier(**QUICK | {"cv": KFold(3)}).fit(X, y)
    assert three.network_.members == 3
    assert "3 splits, as given" in three.explain()
    one = make_classifier(**QUICK | {"cv": None}).fit(X, y)
    assert one.network_.members == 1
    assert "One stratified hold-out of 20 %, as asked for" in one.explain()


def test_masks_split_the_rows(binary):
    X, y = binary
    held = np.arange(len(X)) % 5 == 0
    masks = make_classifier(**QUICK | {"cv": [(~held, held)]}).fit(X, y)
    assert np.array_equal(np.sort(masks.held_out_.rows), np.flatnonzero(held))


def test_few_groups_are_enough_and_wrong_ones_are_told(binary):
    X, y = binary
    groups = np.arange(len(X)) % 3
    three = make_classifier(**QUICK).fit(X, y, groups=groups)
    assert three.network_.members == 3
    assert "3-fold ensemble: there are no more than 3 groups" in three.explain()
    one = make_classifier(**QUICK | {"cv": None}).fit(X, y, groups=groups)
    assert "One hold-out of one of the 3 groups, as asked for" in one.explain()
    rows = [0, 1, 2, 19, 20, 21]
    for cv in ("auto", [([0, 1, 3, 4], [2, 5])]):
        with pytest.raises(ValueError, match="groups: expected one group per row"):
            make_classifier(**QUICK | {"cv": cv}).fit(X[rows], y[rows], groups=[1, 2])


def test_at_most_fifteen_parameters_the_rest_is_the_recipes():
    assert len(MetricClassifier().get_params(deep=False)) <= 15


def test_numbers_of_numpy_are_parameters(binary, tmp_path):
    X, y = binary
    grid = {"recipe__batch_size": np.array([64, 128]), "recipe__learning_rate": np.array([0.01])}
    search = GridSearchCV(make_classifier(**QUICK | {"cv": None}), grid, cv=2, error_score="raise").fit(X, y)
    assert search.best_score_ > 0.8
    options = QUICK | {"cv": None, "checkpoint_dir": tmp_path, "members": np.int64(1), "random_state": np.int64(0)}
    numpy = make_classifier(batch_size=np.int64(64), stratified=np.True_, **options).fit(X, y)
    plain = make_classifier(batch_size=64, stratified=True, **options).fit(X, y)
    assert np.array_equal(numpy.predict_proba(X), plain.predict_proba(X))


@pytest.mark.parametrize(("baseline", "trained"), [(np.True_, True), (1, True), (np.False_, False), (0, False)])
def test_a_baseline_is_trained_for_every_kind_of_true(binary, baseline, trained):
    classifier = make_classifier(**QUICK | {"baseline": baseline, "cv": None}).fit(*binary)
    assert ("cross-entropy, arg max" in classifier.validation_report_["model"].tolist()) is trained


def test_one_callback_needs_no_list(binary):
    seen = []
    make_classifier(**QUICK | {"cv": None, "callbacks": lambda event: seen.append(event.record.epoch)}).fit(*binary)
    assert seen[:2] == [1, 2]
    with pytest.raises(TypeError, match="callbacks: expected functions"):
        make_classifier(**QUICK | {"callbacks": 3}).fit(*binary)


def test_recipes_and_overrides_reach_the_training(binary):
    X, y = binary
    east = make_classifier(recipe="east", **QUICK | {"max_epochs": 3, "patience": 1}).fit(X, y)
    assert (east.recipe_.cross_entropy, east.recipe_.annealing, east.recipe_.patience) == (0.0, "plateau", 1)
    tuned = make_classifier(recipe="log_loss", rule="tuned", **QUICK | {"baseline": "auto"}).fit(X, y)
    assert tuned.decision_rule_.kind == "threshold"
    assert tuned.validation_report_["model"].iloc[0] == "cross-entropy, tuned rule"
    raw = tuned.predict_proba(X, raw=True)[:, 1]
    assert np.array_equal(tuned.predict(X) == "malignant", raw >= tuned.decision_rule_.parameter)
    any_loss = make_classifier(recipe="anyloss", network="linear", **QUICK).fit(X, y)
    assert "a linear model" in any_loss.explain()
    own = make_classifier(network=lambda i, o: nn.Linear(i, o), **QUICK).fit(X, y)
    assert own.score(X, y) > 0.8
    assert "The network is your own" in own.explain()


def test_a_constraint_about_holds_on_held_out_rows():
    X, y = make_classification(3000, weights=[0.9], flip_y=0.05, class_sep=0.7, random_state=0)
    spec = "precision[1] subject to recall[1] >= 0.8"
    classifier = make_classifier(spec, **QUICK | {"min_updates": 150}).fit(X, y)
    assert classifier.decision_rule_.kind == "threshold"
    note = classifier.validation_report_["note"].iloc[0]
    assert note.startswith("with recall[1] 0.")
    assert float(note.rsplit(" ", 1)[1]) > 0.74
    assert metrics.get("recall[1]").score(y, classifier.predict(X)) > 0.74


def test_checkpoints_resume_and_refuse_another_run(binary, tmp_path):
    X, y = binary
    options = QUICK | {"checkpoint_dir": tmp_path, "random_state": None, "cv": None}
    first = make_classifier(**options).fit(X, y)
    again = make_classifier(**options).fit(X, y)
    assert np.array_equal(first.predict_proba(X), again.predict_proba(X))
    with pytest.raises(ValueError, match="checkpoint of another run, with other settings"):
        make_classifier("mcc", **options).fit(X, y)
    with pytest.raises(ValueError, match="checkpoint of another run, with other data"):
        make_classifier(**options).fit(X[:-5], y[:-5])


def test_ctrl_c_gives_a_working_classifier(binary):
    X, y = binary

    def interrupt(event):
        if event.record.epoch == 2:
            raise KeyboardInterrupt

    with pytest.warns(RuntimeWarning, match="best weights so far are kept"):
        classifier = make_classifier(**QUICK | {"callbacks": [interrupt], "baseline": True}).fit(X, y)
    assert len(classifier.history_) == 1 or classifier.history_["epoch"].max() == 2
    assert classifier.predict(X).shape == y.shape


def test_history_has_a_row_an_epoch(fitted):
    columns = {"epoch", "loss", "soft_metric", "hard_metric", "temperature", "learning_rate", "seconds"}
    assert columns <= set(fitted.history_.columns)
    assert fitted.history_["epoch"].tolist() == list(range(1, len(fitted.history_) + 1))


def _labels(y, names):
    return pd.DataFrame(np.eye(3, dtype=int)[y.astype(int)], columns=names)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda X, y: (X, np.zeros(len(X))), ValueError, "y: holds one class only"),
        (lambda X, y: (X, np.where(np.arange(len(X)) == 3, np.nan, y)), ValueError, "y: Input y contains NaN"),
        (lambda X, y: (X, np.where(np.arange(len(X)) == 3, None, y)), ValueError, "y: Input y contains NaN"),
        (lambda X, y: (X[:-1], y), ValueError, "inconsistent numbers of samples"),
        (lambda X, y: (np.where(X[0, 0] == X, np.inf, X), y), ValueError, "infinit|Infinit"),
        (lambda X, y: (X[:0], y[:0]), ValueError, "0 sample"),
        (lambda X, y: (X[:, 0], y), ValueError, "Reshape your data"),
        (lambda X, y: (X, X), ValueError, "y: expected labels of shape"),
        (lambda X, y: (X, X[:, 0]), ValueError, "Unknown label type"),
        (
            lambda X, y: (X, np.eye(3)[y.astype(int)] * 2),
            ValueError,
            r"y: expected labels .* with the values \[0.0, 2.0",
        ),
        (lambda X, y: (X, _labels(y, ["a", "b", "a"])), ValueError, "y: expected columns of different names, got 'a'"),
        (lambda X, y: (X, _labels(y, [("a", 1), ("b", 1), ("c", 1)])), ValueError, "y: expected columns named by text"),
        (
            lambda X, y: (X, np.array([1, "a"] * (len(X) // 2), dtype=object)),
            TypeError,
            "y: holds both text",
        ),
    ],
)
def test_bad_input_is_told(change, error, message):
    X, y = load_iris(return_X_y=True)
    with pytest.raises(error, match=message):
        make_classifier(**QUICK).fit(*change(X, y.astype(float)))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"metric": "f1[seven]"}, "class 'seven': no such class; the classes are 0, 1, 2"),
        ({"metric": "f1:average=none"}, "metric: .* gives one value per class"),
        ({"metric": "f2x"}, "metric: unknown name 'f2x'"),
        ({"recipe": "eats"}, "recipe: unknown name 'eats'; did you mean 'east'"),
        ({"members": 0}, "members: expected a number >= 1"),
        ({"baseline": "yes"}, "baseline: expected True, False or 'auto'"),
        ({"preprocess": "no"}, "preprocess: expected 'auto'"),
        ({"random_state": -1}, "random_state: expected None, a seed"),
        ({"random_state": 2**40}, r"random_state: expected None, a seed from 0 to 2\*\*32 - 1"),
        ({"class_weight": {0: 1, 1: -2, 2: 1}}, "class_weight: expected finite weights >= 0, got -2 for class 1"),
        ({"class_weight": {0: np.inf, 1: 2, 2: 1}}, "class_weight: expected finite weights >= 0, got inf"),
        ({"class_weight": {0: 1, 1: "a", 2: 1}}, "class_weight: expected finite weights >= 0, got 'a'"),
        ({"class_weight": "balanced", "balance": "sqrt"}, "class_weight: takes the place of the recipe's balance"),
        ({"recipe": "surrogate_fbeta"}, "more than two classes"),
    ],
)
def test_bad_parameters_are_told(parameters, message):
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match=message):
        make_classifier(**QUICK | parameters).fit(X, y)


def test_weights_must_make_sense():
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match="Sample weights must contain at least one non-zero"):
        make_classifier(**QUICK).fit(X, y, sample_weight=np.zeros(len(X)))
    with pytest.raises(ValueError, match="class_weight: has no meaning for a multi-label target"):
        make_classifier(class_weight="balanced", **QUICK).fit(X, np.eye(3, dtype=int)[y])


def test_odd_but_usable_data_work():
    X, y = load_iris(return_X_y=True)
    lonely = y.copy()
    lonely[0] = 7
    assert 7 in make_classifier(**QUICK).fit(X, lonely).classes_
    constant = np.hstack([X, np.ones((len(X), 2))])
    assert make_classifier(**QUICK).fit(constant, y).score(constant, y) > 0.8
    many = pd.DataFrame({"id": [f"level {i}" for i in range(len(X))], "x": X[:, 2]})
    with pytest.warns(UserWarning, match="X: column 'id' not used: an identifier or free text"):
        told = make_classifier(**QUICK).fit(many, y)
    assert told.score(many, y) > 0.5
    assert "Column 'id' not used: an identifier or free text" in told.explain()
    few = make_classifier(**QUICK).fit(X[[0, 1, 60, 61]], y[[0, 1, 60, 61]])
    assert few.predict(X).shape == y.shape
    assert "Nothing held out: 4 rows are too few" in few.explain()
    assert few.validation_report_.empty


def test_plain_arrays_and_own_transformers():
    X, y = load_iris(return_X_y=True)
    scaled = StandardScaler().fit_transform(X)
    plain = make_classifier(preprocess=None, **QUICK).fit(scaled, y)
    own = make_classifier(preprocess=StandardScaler(), **QUICK).fit(X, y)
    assert np.allclose(plain.predict_proba(scaled), own.predict_proba(X), atol=1e-5)
    with pytest.raises(ValueError, match="NaN"):
        make_classifier(preprocess=None, **QUICK).fit(np.where(X > 7, np.nan, X), y)


def test_numbers_written_as_text_are_learned_from():
    X, y = load_breast_cancer(return_X_y=True)
    X = X[:, :4] + np.arange(len(X))[:, None] * 1e-9
    numbers = make_classifier(**QUICK | {"cv": None}).fit(X, y)
    text = make_classifier(**QUICK | {"cv": None}).fit(X.astype(str), y)
    assert np.allclose(text.predict_proba(X.astype(str)), numbers.predict_proba(X), atol=1e-5)
    assert "Columns 'x0', 'x1', 'x2', 'x3' written as text were read as numbers." in text.explain()


def test_a_table_without_a_usable_column_is_told():
    X = pd.DataFrame({"id": [f"row {i}" for i in range(60)], "same": 1.0})
    with pytest.warns(UserWarning, match=r"X: no column can be used, .*'id' not used: .*'same' not used: constant"):
        classifier = make_classifier(**QUICK | {"cv": None}).fit(X, np.arange(60) % 2)
    assert len(np.unique(classifier.predict_proba(X)[:, 1])) == 1


@pytest.mark.parametrize("own", [FunctionTransformer(), make_pipeline(FunctionTransformer()), StandardScaler()])
def test_columns_for_own_transformers_are_checked(binary, own):
    X, y = binary
    frame = pd.DataFrame(X[:, :4], columns=list("abcd"))
    classifier = make_classifier(preprocess=own, **QUICK | {"cv": None}).fit(frame, y)
    assert classifier.predict(frame).shape == y.shape
    with pytest.raises(ValueError, match="Feature names must be in the same order"):
        classifier.predict(frame[list("dcba")])
    with pytest.raises(ValueError, match="Feature names seen at fit time, yet now missing"):
        classifier.predict(frame[list("abc")])


def test_own_column_transformers_match_frames_by_name(binary):
    X, y = binary
    frame = pd.DataFrame(X[:, :4], columns=list("abcd"))
    for own in (scale := make_column_transformer((StandardScaler(), ["a", "c"])), make_pipeline(scale)):
        classifier = make_classifier(preprocess=own, **QUICK | {"cv": None}).fit(frame, y)
        turned = frame[list("dcba")].assign(extra=1.0)
        assert np.array_equal(classifier.predict_proba(turned), classifier.predict_proba(frame))
        with pytest.raises(ValueError, match="'c'"):
            classifier.predict(frame.drop(columns="c"))


def test_a_transformer_that_changes_its_width_is_told(binary):
    X, y = binary
    widths = iter([4, 3])
    own = FunctionTransformer(lambda X: X[:, : next(widths)])
    classifier = make_classifier(preprocess=own, **QUICK | {"cv": None}).fit(StandardScaler().fit_transform(X), y)
    with pytest.raises(ValueError, match="preprocess: expected 4 features, as in fit, got 3"):
        classifier.predict(X)


def test_large_data_get_a_hold_out_and_no_baseline(monkeypatch):
    monkeypatch.setattr("metricfit.training.rows.PLENTY_OF_ROWS", 100)
    monkeypatch.setattr("metricfit.training.rows.FEW_OF_A_CLASS", 10)
    monkeypatch.setattr("metricfit.classifier.BASELINE_ROWS", 100)
    X, y = load_iris(return_X_y=True)
    classifier = make_classifier(**QUICK | {"baseline": "auto"}).fit(X, y)
    assert classifier.network_.members == 1
    text = classifier.explain()
    assert "One stratified hold-out of 20 %: 150 rows are plenty" in text
    assert "No cross-entropy baseline was trained" in text
    assert torch.is_grad_enabled()


def test_frames_are_matched_by_name_and_a_missing_column_is_told(binary):
    X, y = binary
    frame = pd.DataFrame(X[:, :4], columns=list("abcd"))
    classifier = make_classifier(**QUICK | {"cv": None}).fit(frame, y)
    turned = frame[list("dcba")].assign(extra=1.0)
    assert np.array_equal(classifier.predict_proba(turned), classifier.predict_proba(frame))
    with pytest.raises(ValueError, match="'c'"):
        classifier.predict(frame.drop(columns="c"))


def test_a_wrong_number_of_columns_is_told(fitted, binary):
    with pytest.raises(ValueError, match="X has 3 features, but MetricClassifier is expecting 30"):
        fitted.predict(binary[0][:, :3])


def test_a_column_of_a_hundred_thousand_categories_helps_and_unseen_ones_are_welcome():
    random = np.random.default_rng(0)
    codes = np.concatenate([np.arange(100_000), random.integers(0, 100_000, 100_000)])
    often = random.random(100_000) < 0.3
    y = (random.random(len(codes)) < np.where(often[codes], 0.9, 0.05)).astype(int)
    X = pd.DataFrame({"customer": np.char.add("number ", codes.astype(str)), "noise": random.normal(size=len(codes))})
    train, test = slice(0, 190_000), slice(190_000, None)
    options = QUICK | {"cv": None, "max_epochs": 1}
    with_it = make_classifier("f1", **options).fit(X[train], y[train])
    without = make_classifier("f1", **options).fit(X[train].drop(columns="customer"), y[train])
    assert with_it.score(X[test], y[test]) > without.score(X[test].drop(columns="customer"), y[test]) + 0.1
    assert with_it.n_network_inputs_ < 50
    new = pd.DataFrame({"customer": ["never seen"], "noise": [0.0]})
    assert with_it.predict(new).shape == (1,)
