"""TablePreprocessor on every kind of table, column and mishap."""

from __future__ import annotations

import pickle
import subprocess
import sys
import textwrap
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import pandas as hpd
from scipy import sparse
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from metricfit.data import TablePreprocessor
from metricfit.data.encoders import pack

ROWS = 240


def make_frame(seed: int = 0) -> pd.DataFrame:
    """A frame with every kind of column."""
    random = np.random.default_rng(seed)
    gap = random.random(ROWS) < 0.2
    days = pd.date_range("2020-01-01", periods=ROWS, freq="31h")
    return pd.DataFrame(
        {
            "number": random.normal(size=ROWS).astype(np.float32),
            "gappy": np.where(gap, np.nan, random.normal(size=ROWS)),
            "code": random.integers(0, 5, ROWS),
            "truth": random.random(ROWS) < 0.5,
            "nullable": pd.Series(random.integers(0, 1000, ROWS), dtype="Int64").mask(gap),
            "maybe": pd.Series(random.random(ROWS) < 0.5, dtype="boolean").mask(gap),
            "text": pd.Series(random.choice(["a", "b", "c"], ROWS)).mask(gap),
            "category": pd.Categorical(random.choice(["x", "y", "z"], ROWS), categories=["x", "y", "z", "never"]),
            "many": [f"m{i}" for i in random.integers(0, 50, ROWS)],
            "date": days,
            "zoned": days.tz_localize("Europe/Rome", nonexistent="shift_forward"),
            "written": days.strftime("%Y-%m-%d"),
            "duration": pd.to_timedelta(random.integers(0, 500, ROWS), unit="h"),
            "identifier": [f"row {i}" for i in range(ROWS)],
            "constant": 3,
            "empty": np.nan,
        }
    )


def target(seed: int = 0, classes: int = 3) -> np.ndarray:
    return np.random.default_rng(seed + 1).integers(0, classes, ROWS)


def columns_of(preprocessor: TablePreprocessor, features: np.ndarray, name: str) -> np.ndarray:
    names = preprocessor.get_feature_names_out().tolist()
    summary = next(c for c in preprocessor.columns_ if c.name == name)
    return features[:, [names.index(f) for f in summary.features]]


@pytest.fixture(scope="module")
def fitted() -> TablePreprocessor:
    return TablePreprocessor(random_state=0).fit(make_frame(), target())


@parametrize_with_checks([TablePreprocessor()])
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def test_output_is_a_contiguous_finite_float32_matrix(fitted: TablePreprocessor) -> None:
    features = fitted.transform(make_frame())
    assert features.dtype == np.float32
    assert features.flags.c_contiguous
    assert features.shape == (ROWS, len(fitted.get_feature_names_out()))
    assert np.isfinite(features).all()
    assert len(set(fitted.get_feature_names_out())) == features.shape[1]


def test_describe_says_what_became_of_each_column(fitted: TablePreprocessor) -> None:
    found = {c.name: c for c in fitted.columns_}
    kinds = {name: c.format.kind for name, c in found.items()}
    assert list(kinds) == list(make_frame().columns)
    assert {n for n, kind in kinds.items() if kind == "category"} == {"text", "category", "many", "identifier"}
    assert {n for n, kind in kinds.items() if kind == "date"} == {"date", "zoned", "written"}
    dropped = {n: c.dropped for n, c in found.items() if c.dropped}
    assert dropped.keys() == {"identifier", "constant", "empty"}
    assert (dropped["constant"], dropped["empty"]) == ("constant", "no value at all")
    assert found["gappy"].gaps == int(make_frame()["gappy"].isna().sum())
    assert found["gappy"].features == ("gappy", "gappy__quantile", "gappy__missing")
    assert found["truth"].features == ("truth",)
    assert found["many"].levels == 50
    assert found["many"].features[-4:] == ("many__frequency", "many__target=0", "many__target=1", "many__target=2")
    assert sum((c.features for c in fitted.columns_), ()) == tuple(fitted.get_feature_names_out())


def test_columns_of_frames_are_matched_by_name(fitted: TablePreprocessor) -> None:
    frame = make_frame(1)
    shuffled = frame[frame.columns[::-1]].assign(unknown=1.0)
    np.testing.assert_array_equal(fitted.transform(shuffled), fitted.transform(frame))
    with pytest.raises(ValueError, match=r"missing: 'number', 'date'"):
        fitted.transform(frame.drop(columns=["date", "number"]))


def test_polars_frames_give_the_same_features(fitted: TablePreprocessor) -> None:
    frame = make_frame(1)
    np.testing.assert_allclose(fitted.transform(pl.from_pandas(frame)), fitted.transform(frame), atol=1e-5)
    from_polars = TablePreprocessor(random_state=0).fit(pl.from_pandas(make_frame()), target())
    assert from_polars.get_feature_names_out().tolist() == fitted.get_feature_names_out().tolist()
    with pytest.raises(TypeError, match="collect"):
        fitted.transform(pl.from_pandas(frame).lazy())


def test_arrow_backed_columns_give_the_same_features(fitted: TablePreprocessor) -> None:
    frame = make_frame(1)
    plain = ["number", "gappy", "code", "truth", "nullable", "maybe", "text", "many", "date", "written", "duration"]
    arrow = frame.assign(**{n: frame[n].convert_dtypes(dtype_backend="pyarrow") for n in plain})
    np.testing.assert_allclose(fitted.transform(arrow), fitted.transform(frame), atol=1e-5)


@pytest.mark.parametrize("make", [sparse.csr_matrix, sparse.csc_array, sparse.coo_array])
def test_sparse_matrices_give_the_features_of_dense_ones(make: Any) -> None:
    dense = np.random.default_rng(0).poisson(0.3, size=(100, 7)).astype(float)
    expected = TablePreprocessor().fit_transform(dense)
    np.testing.assert_array_equal(TablePreprocessor().fit_transform(make(dense)), expected)


def test_repeated_entries_of_a_sparse_matrix_add_up() -> None:
    matrix = sparse.csc_matrix((np.array([1.0, 2.0, 5.0]), np.array([0, 0, 2]), np.array([0, 3])), shape=(4, 1))
    np.testing.assert_array_equal(
        TablePreprocessor().fit_transform(matrix), TablePreprocessor().fit_transform(matrix.toarray())
    )


def test_lists_and_object_arrays_keep_the_types_of_their_columns() -> None:
    rows = [[1.5, "a", True], [2.5, "b", None], [None, "a", False], [9.0, "b", True]]
    for table in (rows, np.array(rows, dtype=object), pd.DataFrame(rows).to_numpy()):
        preprocessor = TablePreprocessor(numeric="standard").fit(table)
        names = ["x0", "x0__missing", "x1=b", "x2", "x2__missing"]
        assert preprocessor.get_feature_names_out().tolist() == names


@pytest.mark.parametrize("nothing", [None, np.nan, pd.NA, pd.NaT])
@pytest.mark.parametrize("dtype", [None, object])
def test_rows_of_nothing_but_gaps_work(fitted: TablePreprocessor, nothing: Any, dtype: Any) -> None:
    frame = pd.DataFrame({name: pd.Series([nothing] * 2, dtype=dtype) for name in make_frame().columns})
    features = fitted.transform(frame)
    assert np.isfinite(features).all()
    names = fitted.get_feature_names_out()
    indicators = [n.endswith("__missing") for n in names]
    assert (features[:, indicators] == 1).all()
    assert (features[:, ["=" in n for n in names]] == 0).all()


def test_a_gap_first_seen_at_predict_time_takes_the_median(fitted: TablePreprocessor) -> None:
    frame = make_frame()
    median = float(np.median(frame["number"]))
    with_gap = fitted.transform(frame.head(1).assign(number=np.nan))
    filled = fitted.transform(frame.head(1).assign(number=median))
    np.testing.assert_allclose(with_gap, filled, atol=1e-6)


def test_unseen_categories_count_as_rare(fitted: TablePreprocessor) -> None:
    features = fitted.transform(make_frame().head(1).assign(text="new", many="new", category="new"))
    names = fitted.get_feature_names_out().tolist()
    assert features[0, names.index("many__rare")] == 1
    assert not columns_of(fitted, features, "text").any()
    assert not columns_of(fitted, features, "category").any()
    assert not any(features[0, names.index(f"many__target={c}")] for c in range(3))


@pytest.mark.parametrize("bad", [np.inf, -np.inf])
def test_infinities_are_errors_that_name_the_column(fitted: TablePreprocessor, bad: float) -> None:
    frame = make_frame()
    frame.loc[3, "gappy"] = bad
    with pytest.raises(ValueError, match=r"column 'gappy' contains infinity"):
        fitted.transform(frame)
    with pytest.raises(ValueError, match=r"column 'gappy' contains infinity"):
        TablePreprocessor().fit(frame)
    with pytest.raises(ValueError, match=r"column 'x1' contains infinity"):
        TablePreprocessor().fit([[1.0, bad], [2.0, 3.0]])


def test_numbers_written_as_text_give_the_features_of_numbers() -> None:
    X = np.random.default_rng(0).normal(size=(200, 3))
    X[::3, 1] = np.nan
    expected = TablePreprocessor().fit(X)
    for text in (X.astype(str), X.astype(str).astype(object), X.astype(str).tolist(), pd.DataFrame(X).astype(str)):
        preprocessor = TablePreprocessor()
        features = preprocessor.fit_transform(text)
        np.testing.assert_allclose(features, expected.transform(X), atol=1e-6)
        assert {c.format.kind for c in preprocessor.columns_} == {"number"}
        assert preprocessor.columns_[0].format.reason.startswith("text in which every value is a number")
        gaps = np.array([["n/a", "?", "soon"]], dtype=object)
        np.testing.assert_array_equal(preprocessor.transform(gaps), preprocessor.transform([[None] * 3]))
        np.testing.assert_allclose(preprocessor.transform(X), features, atol=1e-6)


def test_codes_and_named_categories_stay_categories_and_few_numbers_get_indicators() -> None:
    frame = pd.DataFrame(
        {
            "few": [str(i % 7) for i in range(100)],
            "code": [f"{i:05d}" for i in range(100)],
            "named": [str(i) for i in range(100)],
            "declared": pd.Categorical([str(i) for i in range(100)]),
        }
    )
    found = TablePreprocessor(categorical_features=["named"]).fit(frame).columns_
    assert [c.format.kind for c in found] == ["number", "category", "category", "category"]
    assert [bool(c.dropped) for c in found] == [False, True, True, True]
    assert "few=6" in found[0].features


def test_a_table_that_says_nothing_gives_one_constant_feature() -> None:
    preprocessor = TablePreprocessor().fit(np.ones((3, 2)))
    np.testing.assert_array_equal(preprocessor.transform(np.full((2, 2), 7.0)), [[0], [0]])
    assert preprocessor.get_feature_names_out().tolist() == ["constant"]


def test_integer_codes_can_be_named_as_categories() -> None:
    codes = np.tile(np.arange(20), 5)[:, None] * np.array([[1, 3]])
    frame = pd.DataFrame(codes, columns=["a", "b"])
    for given_ in (["b"], [1], [-1], [False, True], np.array([False, True])):
        kinds = [c.format.kind for c in TablePreprocessor(categorical_features=given_).fit(frame).columns_]
        assert kinds == ["number", "category"]
    fitted_ints = TablePreprocessor(categorical_features=["b"]).fit(frame)
    as_floats = frame.astype(float)
    np.testing.assert_array_equal(fitted_ints.transform(as_floats), fitted_ints.transform(frame))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"numeric": "ranks"}, r"numeric: expected one of .*, got 'ranks'"),
        ({"max_one_hot": 1}, r"max_one_hot: expected a whole number >= 2, got 1"),
        ({"min_frequency": 0}, r"min_frequency: .*>= 1, got 0"),
        ({"integer_levels": -1}, r"integer_levels: .*>= 0, got -1"),
        ({"categorical_features": ["txet"]}, r"no column 'txet'; did you mean 'text'"),
        ({"categorical_features": [99]}, r"16 columns, got position 99"),
        ({"categorical_features": [True]}, r"one entry per column, 16, got 1"),
    ],
)
def test_wrong_parameters_are_named(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TablePreprocessor(**parameters).fit(make_frame())


def test_wrong_tables_are_named() -> None:
    with pytest.raises(ValueError, match="'a' twice"):
        TablePreprocessor().fit(pd.DataFrame([[1, 2]], columns=["a", "a"]))
    with pytest.raises(ValueError, match="0 sample"):
        TablePreprocessor().fit(pd.DataFrame({"a": []}))
    with pytest.raises(ValueError, match="Complex data not supported"):
        TablePreprocessor().fit(pd.DataFrame({"a": [1j]}))
    with pytest.raises(ValueError, match="y: expected one label per row of X, 2, got 3"):
        TablePreprocessor().fit([[1.0], [2.0]], [0, 1, 1])


def test_training_rows_get_cross_fitted_target_rates() -> None:
    # A category that says nothing: rates from the row's own label would give the labels away.
    random = np.random.default_rng(0)
    X = pd.DataFrame({"noise": [f"n{i}" for i in random.integers(0, 1000, 4000)]})
    y = random.integers(0, 2, 4000)
    preprocessor = TablePreprocessor(random_state=0)
    trained = preprocessor.fit_transform(X, y)
    rate = preprocessor.get_feature_names_out().tolist().index("noise__target=1")
    leak = np.corrcoef(preprocessor.transform(X)[:, rate], y)[0, 1]
    honest = np.corrcoef(trained[:, rate], y)[0, 1]
    assert leak > 0.3
    assert abs(honest) < 0.1


def test_target_rates_follow_the_ten_most_frequent_classes_and_labels() -> None:
    X = make_frame()[["many"]]
    y = np.minimum(np.arange(ROWS), 30)
    names = TablePreprocessor().fit(X, y).get_feature_names_out()
    assert sum("__target=" in n for n in names) == 10
    assert "many__target=30" in names
    labels = np.random.default_rng(0).random((ROWS, 3)) < 0.4
    names = TablePreprocessor().fit(X, labels).get_feature_names_out()
    assert [n for n in names if "__target=" in n] == [f"many__target={i}" for i in range(3)]
    assert not any("__target=" in n for n in TablePreprocessor().fit(X).get_feature_names_out())


def test_same_seed_same_features() -> None:
    one, two = (TablePreprocessor(random_state=3).fit_transform(make_frame(), target()) for _ in range(2))
    np.testing.assert_array_equal(one, two)


def test_without_target_rates_fit_transform_is_fit_then_transform() -> None:
    preprocessor = TablePreprocessor(target_encoding=False)
    together = preprocessor.fit_transform(make_frame(), target())
    np.testing.assert_array_equal(together, clone(preprocessor).fit(make_frame()).transform(make_frame()))


def test_a_copy_through_pickle_transforms_alike(fitted: TablePreprocessor) -> None:
    frame = make_frame(2)
    copy = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(copy.transform(frame), fitted.transform(frame))
    assert pack(copy.columns_)["columns"] == pack(fitted.columns_)["columns"]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_set_output_gives_named_frames(library: str) -> None:
    preprocessor = TablePreprocessor().set_output(transform=library)
    out = preprocessor.fit_transform(make_frame(), target())
    assert list(out.columns) == preprocessor.get_feature_names_out().tolist()


def test_it_works_in_a_pipeline_on_raw_frames() -> None:
    frame = make_frame()
    y = (frame["number"] + frame["truth"] > 0.5).to_numpy()
    model = make_pipeline(TablePreprocessor(), LogisticRegression(max_iter=1000)).fit(frame, y)
    assert model.score(frame, y) > 0.9


def test_a_hundred_thousand_categories_stay_few_features() -> None:
    values = np.random.default_rng(0).permutation(np.repeat(np.arange(100_000), 2)).astype(str)
    preprocessor = TablePreprocessor(random_state=0)
    features = preprocessor.fit_transform(pd.DataFrame({"zip": "z" + pd.Series(values)}), np.arange(200_000) % 2)
    assert features.shape == (200_000, 32 + 2)  # indicators, rare and the rate; the frequency is constant
    assert np.isfinite(features).all()
    assert preprocessor.columns_[0].levels == 100_000


numbers = st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_infinity=False)
scalars = st.none() | numbers | st.text(max_size=3) | st.timedeltas() | st.dates()


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(
    hpd.data_frames(
        [hpd.column(name, elements=scalars, dtype=object) for name in "abc"], index=hpd.range_indexes(min_size=1)
    ),
    hpd.data_frames(
        [hpd.column("n", dtype=float, elements=st.floats(allow_infinity=False))], index=hpd.range_indexes(min_size=1)
    ),
)
def test_any_finite_content_gives_finite_features(objects: pd.DataFrame, floats: pd.DataFrame) -> None:
    for frame in (objects, floats):
        preprocessor = TablePreprocessor()
        features = preprocessor.fit_transform(frame, np.arange(len(frame)) % 2)
        assert np.isfinite(features).all()
        assert features.shape == (len(frame), len(preprocessor.get_feature_names_out()))


@pytest.mark.slow
def test_memory_stays_within_three_times_the_data() -> None:
    # In a process of its own, because a peak cannot be reset.
    script = textwrap.dedent(
        """
        import resource, sys
        import numpy as np
        from metricfit.data import TablePreprocessor

        TablePreprocessor().fit_transform(np.random.default_rng(0).random((100, 2)), np.arange(100) % 2)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        X = np.random.default_rng(0).standard_normal((1_000_000, 50), dtype=np.float32)
        y = np.arange(len(X)) % 2
        features = TablePreprocessor(random_state=0).fit_transform(X, y)
        assert features.shape == (1_000_000, 100)
        print(1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / X.nbytes)
        """
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 3.2  # 1 for X, 2 for the features


def test_trees_take_numbers_as_they_are_and_categories_as_codes(fitted: TablePreprocessor) -> None:
    frame = make_frame()
    features, categories = fitted.tree_features(frame), fitted.tree_categories_
    assert features.dtype == np.float32
    used = [c for c in fitted.columns_ if c.features]
    parts = {"date": 5, "zoned": 5, "written": 5}
    assert features.shape[1] == len(categories) == sum(parts.get(c.name, 1) for c in used) - 1  # written: no hour
    assert categories.sum() == 3
    np.testing.assert_array_equal(features[:, 0], frame["number"])
    np.testing.assert_array_equal(features[:, 1], frame["gappy"].astype(np.float32))
    np.testing.assert_array_equal(features[:, 3], frame["truth"])
    text = features[:, np.flatnonzero(categories)[0]]
    assert np.isnan(text).tolist() == frame["text"].isna().tolist()
    by_frequency = frame["text"].value_counts().index.tolist()
    assert [by_frequency[int(code)] for code in text[~np.isnan(text)]] == frame["text"].dropna().tolist()
    again = TablePreprocessor(random_state=7).fit(frame, target())
    np.testing.assert_array_equal(again.tree_features(frame), features)
    np.testing.assert_array_equal(fitted.tree_features(pl.from_pandas(frame))[:, categories], features[:, categories])


@pytest.mark.parametrize("levels", [2, 30, 254, 255, 700])
def test_categories_of_trees_are_few_enough_for_histograms(levels: int) -> None:
    column = np.repeat([f"c{i:03d}" for i in range(levels)], 3)
    X = pd.DataFrame({"kind": column, "size": np.arange(len(column)) / 7})
    y = (np.arange(len(column)) // 3) % 2
    preprocessor = TablePreprocessor().fit(X)
    codes = preprocessor.tree_features(X)[:, 0]
    assert len(np.unique(codes)) == min(levels, 254)
    model = HistGradientBoostingClassifier(categorical_features=preprocessor.tree_categories_, max_iter=5)
    model.fit(preprocessor.tree_features(X), y)
    new = preprocessor.tree_features(pd.DataFrame({"kind": ["new", None], "size": [1.0, None]}))
    assert np.isnan(new[1]).all()
    assert np.isnan(new[0, 0]) if levels < 254 else new[0, 0] == 253
    assert model.predict(new).shape == (2,)


def test_rare_categories_share_a_code_of_trees_with_unknown_ones() -> None:
    X = pd.DataFrame({"kind": ["a"] * 5 + ["b"] * 4 + ["c", "d", None], "note": [None, *(f"n{i}" for i in range(11))]})
    preprocessor = TablePreprocessor().fit(X)
    kind, note = preprocessor.tree_features(X).T
    np.testing.assert_array_equal(kind, [0] * 5 + [1] * 4 + [2, 2, np.nan])
    np.testing.assert_array_equal(note, [np.nan] + [0] * 11)  # free text: there or not
    new = preprocessor.tree_features(pd.DataFrame({"kind": ["z", "b", None], "note": ["n0", "n99", None]}))
    np.testing.assert_array_equal(new, [[2, 0], [1, 0], [np.nan, np.nan]])


def test_huge_numbers_and_infinity_of_trees() -> None:
    X = np.array([[1e300], [-1e300], [1.0], [np.nan]])
    preprocessor = TablePreprocessor().fit(X)
    assert np.isfinite(preprocessor.tree_features(X)[:3]).all()
    with pytest.raises(ValueError, match="column 'x0' contains infinity"):
        preprocessor.tree_features([[np.inf]])


def test_columns_are_read_as_they_were_typed(fitted: TablePreprocessor) -> None:
    frame = make_frame()
    rows, used = fitted.read(frame.astype({"code": str}))
    typed = {column.name: values for column, values in used}
    assert rows == len(frame)
    assert set(typed) == set(frame) - {"identifier", "constant", "empty"}
    for name in ("number", "gappy", "code", "truth"):
        np.testing.assert_array_equal(typed[name], frame[name])
    assert typed["written"].dtype.kind == "M"
    codes, keys = typed["text"]
    assert np.append(keys, None)[codes].tolist() == [None if pd.isna(v) else v for v in frame["text"]]


def test_a_wide_table_is_packed_once_per_distinct_array_and_comes_back() -> None:
    X = np.random.default_rng(0).normal(size=(500, 300))
    preprocessor = TablePreprocessor(random_state=0).fit(X)
    packed = pack(preprocessor.columns_)
    # 500 knots for each column; the normal scores of ranks without ties are the same for all of them.
    assert sum(array.size for array in packed["numbers"].values()) == 500 * 300 + 500
    copy = pickle.loads(pickle.dumps(preprocessor))
    np.testing.assert_array_equal(copy.transform(X), preprocessor.transform(X))
