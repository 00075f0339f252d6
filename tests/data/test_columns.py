"""What columns hold, from files and frames, and their values."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metricfit.data import FittedColumn
from metricfit.data.columns import GAPS, BadValueError, ColumnFormat, find_format, identifier_reason, read_column, typed


def strings(*values):
    return pa.chunked_array([list(values)])


def fitted(kind, name="x"):
    return FittedColumn(name, ColumnFormat(kind))


def as_dates(values):
    return fitted("date").read(values)


@pytest.mark.parametrize(
    ("values", "kind", "style", "read"),
    [
        (["1", " 2 ", "-3e2"], "number", "", [1, 2, -300]),
        (["1,5", "2", ""], "number", "decimal_comma", [1.5, 2, np.nan]),
        (["True", "false", "?"], "flag", "", [True, False, None]),
        (["31.12.2024", "1.2.2023"], "date", "%d.%m.%Y", ["2024-12-31", "2023-02-01"]),
        (["12/31/2024", "02/01/2023"], "date", "%m/%d/%Y", ["2024-12-31", "2023-02-01"]),
        (["01234", "99999"], "category", "code", ["01234", "99999"]),
        (["a", "1"], "category", "", ["a", "1"]),
    ],
)
def test_formats_of_columns(values, kind, style, read):
    how = find_format(strings(*values))
    assert (how.kind, how.style) == (kind, style)
    found = pd.Series(typed(read_column(strings(*values), how), how))
    if kind == "date":
        found = found.dt.strftime("%Y-%m-%d")
    if kind == "category":
        found = found.astype(object)
    pd.testing.assert_series_equal(found, pd.Series(read), check_dtype=False, check_names=False)


def test_commas_between_thousands_in_a_comma_separated_file():
    how = find_format(strings("1,234", "12,345.5", "7"))
    assert read_column(strings("1,234", "12,345.5", "7"), how).tolist() == [1234, 12345.5, 7]


def test_a_few_words_among_many_numbers_are_gaps_and_told():
    values = strings(*map(str, range(100)), "unknown")
    how = find_format(values)
    assert how.style == "lenient"
    assert "'unknown'" in how.reason
    assert np.isnan(read_column(values, how, strict=False)[-1])


def test_infinity_among_numbers_written_as_text_is_an_error_not_a_category():
    values = pd.Series(["1", "inf"])
    how = find_format(values)
    assert how.kind == "number"
    with pytest.raises(ValueError, match="column 'x' contains infinity"):
        FittedColumn("x", how).read(values)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_any_numbers_come_back_exactly(numbers):
    values = strings(*map(repr, numbers))
    how = find_format(values)
    assert how.kind == "number"
    assert read_column(values, how).tolist() == numbers


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (pd.Series(["a", None]), "category"),
        (pd.Series(["1", "2"]), "number"),
        (pd.Series([1, 2.5, None], dtype=object), "number"),
        (pd.Series([True, None], dtype=object), "flag"),
        (pd.Series(["2024-01-31", "2024-02-01T10:00:00Z"]), "date"),
        (pd.Series(["2024-01-31", "2024-02-31"]), "category"),
        (pd.Series(["2024-01-31", "soon"]), "category"),
        (pd.Series([None, None], dtype=object), "empty"),
        (pd.Series([1, "a"], dtype=object), "category"),
        (pd.Series(pd.Categorical([1, 2])), "category"),
        (pd.Series(pd.period_range("2020-01", periods=2, freq="M")), "date"),
        (pd.Series(["2024-01-31"]).astype("datetime64[s]").astype("date32[pyarrow]"), "date"),
    ],
)
def test_kinds_of_columns(values: pd.Series, kind: str) -> None:
    assert find_format(values).kind == kind


def test_whole_numbers_have_one_key_whatever_their_type() -> None:
    for values in (np.array([1, 2]), np.array([1.0, 2.0]), pd.Series(["1", "2"]), pd.Series(pd.Categorical([1, 2]))):
        codes, keys = fitted("category").read(values)
        assert keys[codes].tolist() == ["1", "2"]
    codes, keys = fitted("category").read(pd.Series([1, "1", 1.0, None], dtype=object))
    assert (codes.tolist(), keys.tolist()) == ([0, 0, 0, -1], ["1"])


def test_values_that_are_no_categories_are_refused_by_name() -> None:
    with pytest.raises(TypeError, match="column 'tags'"):
        fitted("category", "tags").read(pd.Series([["a"], ["b"]]))


def test_wrong_content_is_refused_by_name_and_example() -> None:
    with pytest.raises(ValueError, match=r"column 'age' held numbers in fit, now holds 'old'"):
        fitted("number", "age").read(pd.Series([1, "old"], dtype=object))
    with pytest.raises(ValueError, match=r"column 'age' held numbers in fit, now holds Timestamp"):
        fitted("number", "age").read(pd.Series(pd.to_datetime(["2020-01-01"])))
    with pytest.raises(ValueError, match=r"column 'day' held dates in fit, now holds 1.5"):
        fitted("date", "day").read(np.array([1.5]))


def test_dates_are_read_as_wall_clock_time() -> None:
    expected = np.datetime64("2024-07-01T09:30", "us")
    zoned = pd.Series(pd.to_datetime(["2024-07-01T09:30"])).dt.tz_localize("Europe/Rome")
    for values in (zoned, zoned.dt.tz_localize(None), pd.Series(["2024-07-01 09:30"]), zoned.astype(object)):
        assert as_dates(values).tolist() == [expected.item()]
    assert np.isnat(as_dates(pd.Series(["soon", None]))).all()


def test_the_wall_clock_time_of_a_row_does_not_depend_on_the_zones_of_others() -> None:
    written = ["2024-01-01T00:00:00+01:00", "2024-01-01T06:30:00.25-0530", "2024-01-01 23:00Z", "2024-01-01", None]
    expected = np.array(
        ["2024-01-01T00:00", "2024-01-01T06:30:00.25", "2024-01-01T23:00", "2024-01-01", "NaT"], dtype="datetime64[us]"
    )
    objects = [None if text is None else pd.Timestamp(text) for text in written]
    for values in (pd.Series(written), pd.Series(objects, dtype=object)):
        np.testing.assert_array_equal(as_dates(values), expected)
        for i in range(len(values)):
            np.testing.assert_array_equal(as_dates(values[i : i + 1]), expected[i : i + 1])
    how = find_format(pd.Series(written))
    assert (how.kind, how.style, how.reason) == ("date", "", "text in which every value is an ISO date")


@pytest.mark.parametrize("dtype", ["date32[pyarrow]", "date64[pyarrow]", "timestamp[us][pyarrow]"])
def test_dates_of_arrow_are_read(dtype: str) -> None:
    plain = pd.Series(pd.to_datetime(["2024-07-01", None, "1999-12-31"]))
    np.testing.assert_array_equal(as_dates(plain.astype(dtype)), plain.to_numpy().astype("datetime64[us]"))


@pytest.mark.parametrize(
    ("keys", "numbers"),
    [
        (["1", " 2.5 ", "-3e2"], [1.0, 2.5, -300.0]),
        (["1", "nan", "", "None", "<NA>"], [1.0, np.nan, np.nan, np.nan, np.nan]),
        (["1", "two"], None),
        (["1", "007"], None),
        (["1", "0.5", "0"], [1.0, 0.5, 0.0]),
        (["+1", "-2"], [1.0, -2.0]),
        ([*map(str, range(2000)), "x"], [*range(2000), np.nan]),
    ],
)
def test_numbers_are_read_from_text_only_if_all_of_it_is(keys: list[str], numbers: list[float] | None) -> None:
    values = pd.Series(keys)
    how = find_format(values)
    if numbers is None:
        assert how.kind == "category"
    else:
        np.testing.assert_array_equal(FittedColumn("x", how).read(values), numbers)
        np.testing.assert_array_equal(read_column(values, how, strict=how.style != "lenient"), numbers)


def test_gaps_are_those_of_pandas_and_the_question_mark() -> None:
    text = "a,b\n" + "".join(f"{gap},1\n" for gap in GAPS if gap not in ("?", ""))
    assert pd.read_csv(io.StringIO(text))["a"].isna().all()
    assert {"", "?"} <= set(GAPS)


@pytest.mark.parametrize(
    ("values", "style"),
    [
        (["1,234", "999", "12,345"], "thousands"),
        (["0,125", "1,234"], "decimal_comma"),
        (["1,234", "5678"], "decimal_comma"),
        (["1,5", "2,25"], "decimal_comma"),
        (["1.234,50", "7", "0,5"], "points"),
        (["1.234.567", "12"], "points"),
        (["35.000", "12"], "point"),
        (["35.000", "12.5"], ""),
    ],
)
def test_what_a_comma_means_follows_from_the_values_alone(values: list[str], style: str) -> None:
    assert find_format(pd.Series(values)).style == style
    assert find_format(strings(*values)).style == style


def test_points_between_thousands_are_read_or_explained() -> None:
    values = strings("1.234,50", "-2.000", "0,5")
    assert read_column(values, find_format(values)).tolist() == [1234.5, -2000, 0.5]
    values = strings("35.000", "12")
    how = find_format(values)
    assert how.reason == "35.000 is read as the number 35; remove the points if they separate thousands"
    assert read_column(values, how).tolist() == [35, 12]


def test_a_malformed_number_is_not_read_as_a_larger_one() -> None:
    with pytest.raises(BadValueError, match="a number, got '12,5'"):
        read_column(strings("1,234", "12,5"), ColumnFormat("number", "thousands"))


def test_identifiers_are_whole_numbers_that_count_or_name_the_rows() -> None:
    shuffled = np.random.default_rng(0).permutation(100)
    assert identifier_reason(np.arange(7, 107), "anything") == "it counts the rows"
    assert identifier_reason(shuffled, "customer_id").startswith("its name")
    assert identifier_reason(shuffled.astype(float), "customer_id", written=True)
    for values, name in (
        (shuffled, "amount"),
        (shuffled.astype(float), "id"),
        (shuffled // 2, "id"),
        (shuffled[:9], "id"),
    ):
        assert identifier_reason(values, name) == ""
