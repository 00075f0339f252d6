"""The models of a portfolio: each fold is what scikit-learn would fit, and a saved model is the same model."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import expit, logit
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.datasets import load_iris, make_classification, make_multilabel_classification
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from metricfit import metrics
from metricfit.choices import Range, spec_of
from metricfit.models import EstimatorModel, Folds, Table, estimators, fit_models, names_of
from metricfit.models.estimators import BOOSTING_LIBRARIES, PATIENCE, SPACES
from metricfit.models.portfolio import pooled
from metricfit.training.checkpoint import CheckpointFile
from metricfit.training.recipes import Recipe
from metricfit.training.rows import Split, split_rows

NO_LIMIT = math.inf


@pytest.mark.parametrize("name", ["boosting", "forest", "extra_trees"])
def test_a_model_that_was_read_is_written_with_the_same_bytes_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a run that was resumed ends with the files of one that was not; no stray memory in them."""
    monkeypatch.setattr(estimators, "TREES", 4)
    X, y = make_classification(90, random_state=0)
    folds = folds_of(X, y, 2)
    fitted = [EstimatorModel(name) for _ in range(2)]
    for model in fitted:
        model.fit(folds, NO_LIMIT, quiet)
    written = fitted[0].to_bytes()
    again = EstimatorModel.restored(name, fitted[0].described(), written, "binary", Recipe())
    assert again.to_bytes() == written == fitted[1].to_bytes()


def test_what_a_checkpoint_holds_is_not_written_anew_and_another_run_in_its_place_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(estimators, "TREES", 4)
    X, y = make_classification(90, random_state=0)
    folds = folds_of(X, y, 2)
    model = EstimatorModel("forest", checkpoint=CheckpointFile(tmp_path, "forest", {"data": "these"}))
    model.fit(folds, NO_LIMIT, quiet)
    plain = EstimatorModel("forest")
    plain.fit(folds, NO_LIMIT, quiet)
    written = plain.to_bytes()
    with monkeypatch.context() as within:
        within.setattr(estimators.objects, "to_bytes", lambda *_: pytest.fail("written twice"))
        assert model.to_bytes() == written
    for identity in ("others", "these"):
        later = CheckpointFile(tmp_path, "forest", {"data": identity})
        later.save({"fits": torch.zeros(3, dtype=torch.uint8), "seconds": 0.0}, last=True)
        assert model.to_bytes() == written
    later.path.unlink()
    assert model.to_bytes() == written


def quiet(done: int, total: int, value: str) -> None:
    """A progress bar that shows nothing."""


def folds_of(X: Any, y: Any, folds: int | None = 3, weight: Any = None, task: str = "binary") -> Folds:
    X = np.asarray(X, dtype=np.float32)
    codes = np.asarray(y, dtype=np.int64)
    weight = np.ones(len(X), dtype=np.float32) if weight is None else np.asarray(weight, dtype=np.float32)
    labels = tuple(range(codes.shape[1] if codes.ndim == 2 else int(codes.max()) + 1))
    splits = split_rows(codes, folds, groups=None, random=np.random.default_rng(0))
    table = Table(X, X, np.zeros(X.shape[1], dtype=bool), X)
    return Folds(table, codes, weight, weight, splits, metrics.get("f1:average=macro"), task, labels, 7)


def seed_of(k: int) -> int:
    return int(np.random.SeedSequence([7, k]).generate_state(1)[0] >> 1)


def by_hand(name: str, rows: int, seed: int) -> Any:
    leaf = max(2, rows // 10_000)
    if name == "forest":
        return RandomForestClassifier(100, min_samples_leaf=leaf, random_state=seed)
    if name == "extra_trees":
        return ExtraTreesClassifier(100, min_samples_leaf=leaf, random_state=seed)
    return HistGradientBoostingClassifier(
        max_iter=500, early_stopping=True, n_iter_no_change=PATIENCE, min_samples_leaf=max(2, min(20, rows // 50)),
        l2_regularization=1.0, random_state=seed,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["forest", "extra_trees", "boosting"])
def test_each_fold_is_what_scikit_learn_fits_on_it(name: str) -> None:
    X, y = load_iris(return_X_y=True)
    folds = folds_of(X, y, task="multiclass", weight=np.linspace(0.5, 1.5, len(y)))
    model = EstimatorModel(name)
    held_out = model.fit(folds, NO_LIMIT, quiet)
    each = []
    for k, split in enumerate(folds.splits):
        own = by_hand(name, len(split.train), seed_of(k))
        extra: dict[str, Any] = {"sample_weight": folds.weight[split.train].astype(float)}
        if name == "boosting":
            rows = split.validation
            extra |= {"X_val": folds.table.trees[rows], "y_val": y[rows]}
            extra |= {"sample_weight_val": folds.weight[rows].astype(float)}
        own.fit(folds.table.trees[split.train], y[split.train], **extra)
        np.testing.assert_array_equal(held_out[k], own.predict_proba(folds.table.trees[split.validation]))
        each.append(own.predict_proba(folds.table.trees))
    np.testing.assert_allclose(model.each_fold(folds.table), each, rtol=0, atol=1e-12)
    for i, row in enumerate(model.predict(folds.table)):  # by a loop; 0 counts as 1e-5
        logs = [np.mean([np.log(fold[i, c] or 1e-5) for fold in each]) for c in range(3)]
        parts = [np.exp(log) * any(fold[i, c] for fold in each) for c, log in enumerate(logs)]
        np.testing.assert_allclose(row, np.array(parts) / sum(parts), rtol=0, atol=1e-12)


def test_boostings_penalty_lowers_the_log_loss_where_a_class_is_rare() -> None:
    random = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [880, 110, 10])
    folds = folds_of(random.normal(size=(1000, 4)) + y[:, None] * [1.0, 0.5, 0.0, 0.0], y, task="multiclass")
    losses = []
    for parameters in ({}, {"l2_regularization": 0.0}):
        held_out = EstimatorModel("boosting", parameters).fit(folds, NO_LIMIT, quiet)
        told = [p[np.arange(len(p)), y[split.validation]] for p, split in zip(held_out, folds.splits, strict=True)]
        losses.append(-np.log(np.concatenate(told)).mean())
    assert losses[0] < 0.95 * losses[1]


@pytest.mark.parametrize("name", ["forest", "boosting"])
def test_a_class_that_a_fold_has_not_seen_has_no_probability_there(name: str) -> None:
    X, y = make_classification(60, 4, n_informative=3, n_redundant=0, n_classes=3, random_state=0)
    folds = folds_of(X, y, task="multiclass")
    rows = np.arange(60)
    splits = [Split(rows[y != 2], rows[y == 2]), Split(rows[::2], rows[1::2])]
    folds = Folds(**{**vars(folds), "splits": splits})
    first, second = EstimatorModel(name).fit(folds, NO_LIMIT, quiet)
    assert (first[:, 2] == 0).all()
    assert (second[:, 2] > 0).any()
    np.testing.assert_allclose(first.sum(axis=1), 1)


@pytest.mark.parametrize("name", BOOSTING_LIBRARIES)
def test_boosting_libraries_take_categories_gaps_weights_and_absent_classes_and_are_saved(name: str) -> None:
    pytest.importorskip(name)
    random = np.random.default_rng(0)
    X = np.stack([random.integers(0, 4, 400), random.normal(size=400)], axis=1).astype(np.float32)
    y = np.where(X[:, 0] == 2, 2, (X[:, 1] > 0).astype(int))
    X[::7, 0], X[::9, 1] = np.nan, np.nan
    folds = folds_of(X, y, task="multiclass", weight=random.uniform(0.5, 2, 400))
    table = Table(folds.table.dense, X, np.array([True, False]), X)
    rows = np.arange(400)
    splits = [*folds.splits, Split(rows[y != 1], rows[y == 1]), Split(rows[::2], rows[:0])]
    folds = Folds(**{**vars(folds), "table": table, "splits": splits})
    model = EstimatorModel(name)
    held_out = model.fit(folds, NO_LIMIT, quiet)
    decided = np.concatenate(held_out[:3]).argmax(axis=1)
    assert (decided == y[np.concatenate([split.validation for split in splits[:3]])]).mean() > 0.8
    assert (held_out[3][:, 1] == 0).all()
    assert model.predict(table).shape == (400, 3)
    content = model.to_bytes()
    assert b"pickle" not in content
    back = EstimatorModel.restored(name, model.described(), content, "multiclass", Recipe())
    np.testing.assert_array_equal(back.predict(table), model.predict(table))
    labels = np.stack([y == 0, y == 2, np.zeros(400)], axis=1).astype(np.int64)
    several = folds_of(X, labels, task="multilabel")
    found = np.concatenate(EstimatorModel(name).fit(several, NO_LIMIT, quiet))
    assert ((found > 0.5) == labels[np.concatenate([split.validation for split in several.splits])]).mean() > 0.8


@pytest.mark.parametrize("name", ["boosting", *BOOSTING_LIBRARIES])
def test_categories_of_few_rows_are_told_apart(name: str) -> None:
    if name in BOOSTING_LIBRARIES:
        pytest.importorskip(name)
    X = np.repeat(np.arange(6), 40)[:, None].astype(np.float32)
    y = np.isin(X[:, 0], [1, 3, 4]).astype(int)
    folds = folds_of(X, y)
    folds = Folds(**{**vars(folds), "table": Table(folds.table.dense, X, np.array([True]), X)})
    held_out = np.concatenate(EstimatorModel(name).fit(folds, NO_LIMIT, quiet))
    assert (held_out.argmax(axis=1) == y[np.concatenate([s.validation for s in folds.splits])]).all()


@pytest.mark.parametrize("name", ["forest", "boosting"])
def test_several_labels(name: str) -> None:
    X, Y = make_multilabel_classification(400, n_classes=3, random_state=0)
    folds = folds_of(X, Y, task="multilabel")
    model = EstimatorModel(name)
    found = np.concatenate(model.fit(folds, NO_LIMIT, quiet))
    truth = Y[np.concatenate([s.validation for s in folds.splits])]
    assert found.shape == (400, 3)
    assert ((found > 0.5) == truth).mean() > 0.7
    back = EstimatorModel.restored(name, model.described(), model.to_bytes(), "multilabel", Recipe())
    np.testing.assert_array_equal(back.predict(folds.table), model.predict(folds.table))


@pytest.mark.parametrize("name", ["forest", "extra_trees", "boosting"])
def test_a_saved_model_predicts_the_same_bits(name: str) -> None:
    X, y = make_classification(80, 5, random_state=0)
    X[:10, 0] = np.nan
    X[:, 1] = np.abs(X[:, 1]).round()
    folds = folds_of(X, y)
    categories = np.arange(5) == 1
    folds = Folds(**{**vars(folds), "table": Table(folds.table.dense, folds.table.trees, categories, X)})
    model = EstimatorModel(name)
    model.fit(folds, NO_LIMIT, quiet)
    back = EstimatorModel.restored(name, model.described(), model.to_bytes(), "binary", Recipe())
    np.testing.assert_array_equal(back.predict(folds.table), model.predict(folds.table))


def test_a_file_with_another_type_is_refused() -> None:
    import skops.io

    content = skops.io.dumps([[Recipe()]])
    with pytest.raises(ValueError, match=r"holds the type metricfit\.training\.recipes\.Recipe, which is not allowed"):
        EstimatorModel.restored("forest", {"form": "trees", "outputs": 2}, content, "binary", Recipe())


def test_a_fit_of_an_unknown_library_is_refused() -> None:
    import skops.io

    content = skops.io.dumps([[{"library": "os", "model": b"", "classes": np.arange(2)}]])
    with pytest.raises(ValueError, match="a fit of the library 'os'"):
        EstimatorModel.restored("lightgbm_2", {"form": "trees", "outputs": 2}, content, "binary", Recipe())


def test_a_pipeline_gets_the_table_as_it_was_given() -> None:
    X = pd.DataFrame({"age": np.arange(60.0), "plan": ["a", "b", "c"] * 20})
    y = (X["plan"] == "a").to_numpy().astype(int)
    folds = folds_of(np.zeros((60, 1)), y)
    folds = Folds(**{**vars(folds), "table": Table(folds.table.dense, folds.table.trees, np.zeros(1, bool), X)})
    chosen = make_column_transformer((OneHotEncoder(), make_column_selector(dtype_include=[object, "str"])))
    model = EstimatorModel("pipeline", make_pipeline(chosen, LogisticRegression()))
    held_out = np.concatenate(model.fit(folds, NO_LIMIT, quiet))
    truth = y[np.concatenate([s.validation for s in folds.splits])]
    assert (held_out.argmax(axis=1) == truth).all()


def test_weights_need_a_model_that_takes_them() -> None:
    from sklearn.neighbors import KNeighborsClassifier

    X, y = make_classification(60, 4, random_state=0)
    model = EstimatorModel("knn", KNeighborsClassifier())
    model.fit(folds_of(X, y), NO_LIMIT, quiet)
    with pytest.raises(ValueError, match="models: knn takes no sample_weight; leave it out"):
        model.fit(folds_of(X, y, weight=np.linspace(0.5, 1.5, 60)), NO_LIMIT, quiet)


def test_names() -> None:
    assert [name for name, _ in names_of("auto")] == ["boosting", "extra_trees", "forest", "network_ce", "network"]
    more = ["boosting", "extra_trees", "forest", "catboost", "network_ce", "network"]
    assert [name for name, _ in names_of(["auto", "catboost"])] == more
    assert [name for name, _ in names_of(["network", GaussianNB(), GaussianNB()])] == [
        "gaussiannb", "gaussiannb_2", "network"
    ]  # fmt: skip
    for wrong, told in (
        ("tree", "expected 'auto', one or several of network, network_ce, forest"),
        (["forest", "forest"], "'forest' is given twice"),
        (["auto", "forest"], "'forest' is given twice"),
        ([], "at least one model"),
    ):
        with pytest.raises(ValueError, match=told):
            names_of(wrong)
    with pytest.raises(TypeError, match="which has no fit"):
        EstimatorModel("mine", object())


def test_without_time_the_first_model_is_still_fitted() -> None:
    X, y = make_classification(60, 4, random_state=0)
    models = [EstimatorModel("boosting"), EstimatorModel("forest")]
    fitted = fit_models(models, folds_of(X, y), 0.0, show=False)
    assert [model.name for model in fitted] == ["boosting"]


def test_ctrl_c_keeps_the_models_before(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = make_classification(60, 4, random_state=0)
    models = [EstimatorModel("boosting"), EstimatorModel("forest")]

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(models[1], "fit", interrupted)
    with pytest.warns(RuntimeWarning, match="interrupted while forest was fitted; the 1 models before it are kept"):
        fitted = fit_models(models, folds_of(X, y), None, show=False)
    assert [model.name for model in fitted] == ["boosting"]
    with pytest.raises(KeyboardInterrupt):
        fit_models(models[1:], folds_of(X, y), None, show=False)


def test_folds_of_labels_are_pooled_by_their_log_odds() -> None:
    each = np.random.default_rng(0).random((5, 20, 3))
    expected = expit(logit(each).mean(axis=0))
    np.testing.assert_allclose(pooled(each, several=True), expected, atol=1e-12)
    two = np.stack([1 - each[..., 0], each[..., 0]], axis=-1)
    np.testing.assert_allclose(pooled(two, several=False)[:, 1], expected[:, 0], atol=1e-12)
    np.testing.assert_array_equal(pooled(np.array([[[0.0, 1.0]], [[0.0, 1.0]]]), several=True), [[0, 1]])


def test_parameters_of_a_built_in_model_reach_it_and_make_another_model() -> None:
    X, y = make_classification(200, 4, random_state=0)
    plain, given = (EstimatorModel("boosting", chosen) for chosen in ({}, {"max_leaf_nodes": 3, "learning_rate": 0.3}))
    for model in (plain, given):
        model.fit(folds_of(X, y), NO_LIMIT, quiet)
    for (fitted,) in given.fits:
        assert (fitted.max_leaf_nodes, fitted.learning_rate) == (3, 0.3)
        assert all(tree.get_n_leaf_nodes() <= 3 for trees in fitted._predictors for tree in trees)
    assert plain.fits[0][0].max_leaf_nodes == 31


@pytest.mark.parametrize("name", SPACES)
def test_every_parameter_that_may_be_searched_is_one_of_the_model(name: str) -> None:
    if name in BOOSTING_LIBRARIES:
        pytest.importorskip(name)
    middle = {part: values.low for part, values in SPACES[name].items() if isinstance(values, Range)}
    X, y = make_classification(120, 4, random_state=0)
    ((_, parameters),) = names_of(spec_of(name, middle))
    assert parameters == pytest.approx(middle)
    fitted = EstimatorModel(name, parameters)
    fitted.fit(folds_of(X, y), NO_LIMIT, quiet)
    assert fitted.fits


def test_parameters_that_a_model_does_not_have() -> None:
    with pytest.raises(ValueError, match="models: 'forest' has no parameter 'depth'; it takes max_features, min_sam"):
        names_of(["forest:depth=3"])
    with pytest.raises(ValueError, match="'network' has no parameter 'dropout'; it takes none, networks are trained"):
        names_of("network:dropout=0.3")
    with pytest.raises(ValueError, match=r"forest: expected parameters as in 'name:key=value,key=value', got 'x' in"):
        names_of("forest:x")
