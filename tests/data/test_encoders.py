"""Encoders of single columns against scikit-learn, plain loops and closed forms."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.preprocessing import QuantileTransformer, StandardScaler

from metricfit.data import ColumnFormat
from metricfit.data.encoders import (
    CategoryEncoder,
    FittedColumn,
    Folds,
    NumberEncoder,
    calendar_parts,
    normal_score_curve,
    target_scores,
)

finite = st.floats(-1e300, 1e300, allow_nan=False)


def test_levels_beyond_a_million_have_names_of_their_own() -> None:
    values = np.repeat([1_234_567.0, 1_234_568.0, 3.0], 200)
    encoder = NumberEncoder.fit(values, None, mode="standard", integer_levels=5)
    assert encoder.suffixes == ["", "=3", "=1234567", "=1234568"]


def written(encoder: Any, values: Any, folds: Folds | None = None) -> np.ndarray:
    column = FittedColumn("", ColumnFormat("number"), encoder=encoder)
    rows = len(values[0]) if isinstance(values, tuple) else len(values)
    out = np.empty((rows, len(column.features)), dtype=np.float32)
    column.write(values, out, folds)
    return out


def encode(values: np.ndarray, *, mode: str = "both", integer_levels: int = 0) -> np.ndarray:
    encoder = NumberEncoder.fit(values, None, mode=mode, integer_levels=integer_levels)  # type: ignore[arg-type]
    return written(encoder, values)


def test_standardised_numbers_equal_standard_scaler() -> None:
    values = np.random.default_rng(0).lognormal(size=50_000)  # more than one chunk of rows
    values[::7] = np.nan
    expected = np.clip(StandardScaler().fit_transform(values[:, None])[:, 0], -10, 10)
    there = ~np.isnan(values)
    np.testing.assert_allclose(encode(values, mode="standard")[there, 0], expected[there], rtol=1e-5, atol=1e-6)


def test_normal_scores_equal_quantile_transformer_inside_the_range() -> None:
    values = np.random.default_rng(0).gamma(2.0, size=5000)
    reference = QuantileTransformer(n_quantiles=1000, output_distribution="normal", subsample=None)
    expected = np.clip(reference.fit_transform(values[:, None])[:, 0], -3, 3)
    scores = encode(values, mode="quantile")[:, 0]
    middle = np.abs(expected) < 2  # towards the ends the two interpolate between knots in different spaces
    np.testing.assert_allclose(scores[middle], expected[middle], atol=2e-3)
    assert np.abs(scores).max() <= 3.0


@given(hnp.arrays(np.float64, st.integers(1, 60), elements=finite))
def test_normal_scores_keep_the_order(values: np.ndarray) -> None:
    x, score = normal_score_curve(values)
    order = np.argsort(values)
    mapped = np.interp(values[order], x, score)
    assert (np.diff(mapped) >= 0).all()
    assert (np.diff(x) > 0).all()


def test_a_value_that_most_rows_have_gets_its_middle_rank() -> None:
    values = np.concatenate([np.zeros(800), np.arange(1.0, 201.0)])
    x, score = normal_score_curve(values)
    assert x[0] == 0.0
    assert score[0] == pytest.approx(-0.253, abs=0.01)  # normal quantile of 0.4, half of the share 0.8


@given(hnp.arrays(np.float64, st.integers(1, 40), elements=finite | st.just(math.nan)))
def test_features_of_numbers_are_always_finite_and_bounded(values: np.ndarray) -> None:
    out = encode(values, integer_levels=16)
    assert np.isfinite(out).all()
    assert (np.abs(out) <= 10).all()


def test_gaps_take_the_median_and_an_indicator() -> None:
    values = np.array([1.0, 2.0, 10.0, np.nan])
    out = encode(values, mode="standard")
    assert out[3, 0] == out[1, 0]
    assert out[:, 1].tolist() == [0, 0, 0, 1]


def test_few_whole_numbers_get_an_indicator_each() -> None:
    values = np.tile([0.0, 1.0, 2.0, np.nan], 30)
    out = encode(values, mode="standard", integer_levels=3)
    np.testing.assert_array_equal(out[:4, 1:4], [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]])
    assert encode(values, mode="standard", integer_levels=2).shape[1] == 2
    assert encode(values + 0.5, mode="standard", integer_levels=3).shape[1] == 2


def test_far_off_and_huge_values_keep_their_spread() -> None:
    offset = encode(np.array([1e9, 1e9 + 1, 1e9 + 2]), mode="standard")[:, 0]
    np.testing.assert_allclose(offset, [-1.2247, 0, 1.2247], atol=1e-4)
    huge = encode(np.array([-1.7e308, 0.0, 1.7e308]), mode="standard")[:, 0]
    np.testing.assert_allclose(huge, [-1.2247, 0, 1.2247], atol=1e-4)


def test_quantiles_of_a_column_of_gaps_use_the_few_values() -> None:
    values = np.full(5000, np.nan)
    values[4000:4010] = np.arange(10.0)
    encoder = NumberEncoder.fit(values, np.arange(1000), mode="both", integer_levels=0)
    assert encoder.fill == 4.5
    assert encoder.knots[[0, -1]].tolist() == [0.0, 9.0]


def folds_for(y: np.ndarray, parts: int = 3) -> Folds:
    return Folds(y[:, None] == 1, ["1"], (np.arange(len(y)) % parts).astype(np.int8))


def test_target_scores_are_shrunk_log_odds() -> None:
    level, indicator = np.array([0, 0, 0, 0, 0, -1, -2]), np.array([1, 1, 1, 0, 0, 1, 1], dtype=bool)[:, None]
    scores = target_scores(level, 2, indicator, np.array([0.2]))
    rate = (3 + 10 * 0.2) / 15
    expected = math.log(rate / (1 - rate)) - math.log(0.2 / 0.8)
    np.testing.assert_allclose(scores, [[expected], [0.0], [0.0]], atol=1e-15)


@settings(max_examples=25)
@given(st.integers(0, 2**31 - 1))
def test_cross_fitted_scores_do_not_depend_on_the_rows_own_part(seed: int) -> None:
    random = np.random.default_rng(seed)
    codes, y = random.integers(0, 5, 60), random.integers(0, 2, 60)
    keys = np.array(list("abcde"), dtype=object)
    folds = folds_for(y)
    encoder = CategoryEncoder.fit((codes, keys), max_one_hot=2, min_frequency=1, frequency=True, folds=folds)
    out = written(encoder, (codes, keys), folds)
    where = encoder.suffixes.index("__target=1")
    prior = (y.sum() + 0.5) / 61
    for row in range(60):
        others = (folds.fold != folds.fold[row]) & (codes == codes[row])
        rate = (y[others].sum() + 10 * prior) / (others.sum() + 10)
        expected = (math.log(rate / (1 - rate)) - math.log(prior / (1 - prior))) / encoder.target_scale[0]
        if keys[codes[row]] not in encoder.levels:  # seen once: no more known than a new level
            expected = 0.0
        assert out[row, where] == pytest.approx(np.clip(expected, -10, 10), abs=1e-5)


def test_one_hot_features_of_categories() -> None:
    keys = np.array(["a", "b", "c", "d"], dtype=object)
    codes = np.array([1, 1, 1, 0, 0, 2, -1])
    encoder = CategoryEncoder.fit((codes, keys), max_one_hot=32, min_frequency=2, frequency=False, folds=None)
    assert FittedColumn("k", ColumnFormat("category"), encoder=encoder).features == (
        "k=b",
        "k=a",
        "k__rare",
        "k__missing",
    )
    out = written(encoder, (np.array([0, 1, 2, -1]), np.array(["a", "c", "never"], dtype=object)))
    np.testing.assert_array_equal(out, [[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 0], [0, 0, 0, 1]])


def test_two_levels_need_one_indicator() -> None:
    keys = np.array(["no", "yes"], dtype=object)
    encoder = CategoryEncoder.fit(
        (np.array([0, 0, 0, 1, 1]), keys), max_one_hot=32, min_frequency=1, frequency=False, folds=None
    )
    assert encoder.suffixes == ["=yes"]
    out = written(encoder, (np.array([0, 1, 2]), np.array(["no", "yes", "perhaps"], dtype=object)))
    assert out[:, 0].tolist() == [0, 1, 0]


def test_category_encoder_survives_a_copy_with_odd_levels() -> None:
    keys = np.array(["a", "ü\n", "\ud800", ""], dtype=object)
    codes = np.repeat(np.arange(4), [5, 4, 3, 2])
    encoder = CategoryEncoder.fit((codes, keys), max_one_hot=3, min_frequency=1, frequency=True, folds=None)
    copy = pickle.loads(pickle.dumps(encoder))
    assert copy.levels.tolist() == encoder.levels.tolist()
    assert copy.suffixes == encoder.suffixes


def test_calendar_parts_equal_python_dates() -> None:
    dates = pd.date_range("1999-12-30", periods=800, freq="31h")
    parts = calendar_parts(dates.to_numpy())
    for i, date in enumerate(dates.to_pydatetime()):
        found = [parts[name][i] for name in ("year", "month", "day", "weekday", "hour")]
        assert found == [date.year, date.month, date.day, date.weekday(), date.hour]
        assert parts["days"][i] == pytest.approx((date - pd.Timestamp(2000, 1, 1)).total_seconds() / 86400)
