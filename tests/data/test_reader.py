"""Reading tables: every kind of file, and the file, line and column of what is wrong."""

import gzip

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metricfit.data import BadArgumentError, BadDataError, ColumnFormat, open_table, read_table
from metricfit.data.columns import find_format, read_column
from metricfit.data.errors import BadValueError
from metricfit.data.targets import labels_of_column, matched_labels


def written(tmp_path, text, name="table.csv", encoding="utf-8"):
    path = tmp_path / name
    path.write_bytes(text.encode(encoding))
    return str(path)


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_separators_byte_order_marks_and_quoted_breaks(tmp_path, separator, mark):
    text = f'{mark}"a{separator}b"{separator}c\n"x\ny"{separator}1\nz{separator}?\n'
    file = open_table(written(tmp_path, text))
    assert file.columns == [f"a{separator}b", "c"]
    frame = read_table(file.path)
    assert frame.iloc[:, 0].tolist() == ["x\ny", "z"]
    np.testing.assert_array_equal(frame["c"], [1, np.nan])


def test_gzip_and_parquet_are_known_by_their_bytes_not_their_names(tmp_path):
    frame = pd.DataFrame({"n": [1.5, 2.5], "t": ["ä", "b"]})
    with gzip.open(tmp_path / "a.dat", "wt", encoding="utf-8") as file:
        frame.to_csv(file, index=False)
    frame.to_parquet(tmp_path / "b.dat")
    for name in ("a.dat", "b.dat"):
        read = read_table(tmp_path / name)
        assert read["n"].tolist() == [1.5, 2.5]
        assert read["t"].tolist() == ["ä", "b"]


@pytest.mark.parametrize("encoding", ["utf-8", "cp1252", "utf-16"])
def test_encodings_are_found_out(tmp_path, encoding):
    read = read_table(written(tmp_path, "größe,n\nklein,1\ngroß,2\n", encoding=encoding))
    assert read["größe"].tolist() == ["klein", "groß"]


def test_an_encoding_that_does_not_exist(tmp_path):
    with pytest.raises(BadArgumentError, match="encoding: 'utf-99' is no encoding"):
        open_table(written(tmp_path, "a\n1\n"), encoding="utf-99")


@pytest.mark.parametrize(
    ("bad", "line", "found"),
    [("1,2,3\n", 6, "3 fields"), ("1\n", 6, "1 field ")],
)
def test_a_row_of_another_length_is_named_by_its_line(tmp_path, bad, line, found):
    path = written(tmp_path, 'a,b\n1,"x\ny\nz"\n2,3\n' + bad + "4,5\n")
    file = open_table(path)
    with pytest.raises(BadDataError, match=rf"table\.csv, line {line}: expected 2 fields.*{found}"):
        file.read()


def test_a_bad_value_is_named_by_file_line_and_column(tmp_path):
    file = open_table(written(tmp_path, 'note,price\n"x\ny",1\nb,2\nc,abc\n'))
    rows = file.read()
    with pytest.raises(BadDataError, match=r"table\.csv, line 5, column 'price': expected a number, got 'abc'"):
        rows.frame({"price": ColumnFormat("number")})


@pytest.mark.parametrize(
    ("content", "message"),
    [("", "empty"), ("a,a\n1,2\n", "'a' twice"), ("a,b\n", "no rows"), ("\x00\x01\x02\x03" * 9, "neither text")],
)
def test_files_without_a_table(tmp_path, content, message):
    path = written(tmp_path, content)
    with pytest.raises(BadDataError, match=message):
        read_table(path)


def test_no_file_and_a_folder(tmp_path):
    with pytest.raises(BadArgumentError, match="no such file"):
        open_table(str(tmp_path / "nothing.csv"))
    with pytest.raises(BadArgumentError, match="folder"):
        open_table(str(tmp_path))


def test_damaged_gzip_and_parquet(tmp_path):
    frame = pd.DataFrame({"n": np.arange(20000.0)})
    frame.to_parquet(tmp_path / "b.parquet")
    frame.to_csv(tmp_path / "a.csv.gz", index=False)
    for name in ("a.csv.gz", "b.parquet"):
        path = tmp_path / name
        path.write_bytes(path.read_bytes()[:-200])
        with pytest.raises(BadDataError, match=r"damaged|cannot be read"):
            read_table(path)


def test_an_empty_header_name_gets_one(tmp_path):
    assert open_table(written(tmp_path, ",b\n1,2\n")).columns == ["column_1", "b"]


def strings(*values):
    return pa.chunked_array([list(values)])


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
    found = pd.Series(read_column(strings(*values), how))
    if kind == "date":
        found = found.dt.strftime("%Y-%m-%d")
    pd.testing.assert_series_equal(found, pd.Series(read), check_dtype=False, check_names=False)


def test_commas_between_thousands_in_a_comma_separated_file():
    how = find_format(strings("1,234", "12,345.5", "7"))
    assert read_column(strings("1,234", "12,345.5", "7"), how).tolist() == [1234, 12345.5, 7]


def test_a_few_words_among_many_numbers_are_gaps_and_told():
    values = strings(*map(str, range(100)), "unknown")
    how = find_format(values)
    assert how.style == "lenient"
    assert "'unknown'" in how.why
    assert np.isnan(read_column(values, how)[-1])


def test_infinity_is_a_bad_value():
    with pytest.raises(BadValueError, match="finite number, got 'inf'"):
        read_column(strings("1", "inf"), ColumnFormat("number"))


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_any_numbers_come_back_exactly(numbers):
    values = strings(*map(repr, numbers))
    how = find_format(values)
    assert how.kind == "number"
    assert read_column(values, how).tolist() == numbers


@pytest.mark.parametrize(
    ("texts", "labels"),
    [
        (["1", "0", "", "2.0"], [1, 0, None, 2]),
        (["TRUE", "False"], [True, False]),
        (["NA", "None", "?"], ["NA", "None", None]),
        (["007", "1"], ["007", "1"]),
    ],
)
def test_targets_keep_their_type(texts, labels):
    found = labels_of_column(strings(*texts))
    assert [None if pd.isna(v) else v for v in found] == labels


@pytest.mark.parametrize(
    ("classes", "texts", "labels"),
    [
        (np.array([0, 1]), ["1", "0.0", " 1"], [1, 0, 1]),
        (np.array([False, True]), ["TRUE", "false"], [True, False]),
        (np.array(["a b", "ü"]), ["ü", "a b"], ["ü", "a b"]),
    ],
)
def test_labels_are_matched_to_the_classes(tmp_path, classes, texts, labels):
    file = open_table(written(tmp_path, "y\n" + "\n".join(texts) + "\n"), separator=",")
    found, present = matched_labels(file.read(["y"]), "y", classes)
    assert found.tolist() == labels
    assert found.dtype == classes.dtype
    assert present.all()


def test_an_unknown_label_is_named_by_its_line(tmp_path):
    file = open_table(written(tmp_path, "y,z\na,1\n?,1\nc,1\n"))
    with pytest.raises(BadDataError, match=r"line 4, column 'y': expected one of the model's classes.*got 'c'"):
        matched_labels(file.read(["y"]), "y", np.array(["a", "b"]))


def test_a_random_part_keeps_order_and_lines_and_is_drawn_evenly(tmp_path):
    path = written(tmp_path, "n\n" + "\n".join(map(str, range(200_000))) + "\n")
    file = open_table(path)
    rows = file.read(["n"], max_rows=1000, seed=3)
    numbers = [int(v) for v in rows.column("n").to_pylist()]
    assert numbers == rows.records.tolist() == sorted(numbers)
    assert len(numbers) == 1000
    assert 90_000 < np.mean(numbers) < 110_000
