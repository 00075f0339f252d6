"""Reading tables: every kind of file, and the file, line and column of what is wrong."""

import bz2
import gzip
import lzma
import zipfile

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metricfit.data import BadArgumentError, BadDataError, ColumnFormat, open_table


def read_table(path, columns=None, **how):
    return open_table(path, **how).read(columns).frame()


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


def test_another_encoding_far_behind_the_first_bytes_is_named(tmp_path):
    path = tmp_path / "late.csv"
    path.write_bytes(b"a,b\n" + b"x,1\n" * 100_000 + "gro\u00df,2\n".encode("cp1252"))
    with pytest.raises(BadDataError, match=r"late\.csv: damaged, or not utf-8 text .*encoding='cp1252'"):
        read_table(path)
    assert len(read_table(path, encoding="cp1252")) == 100_001


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


def test_infinity_is_named_by_file_line_and_column(tmp_path):
    with pytest.raises(BadDataError, match=r"table\.csv, line 3, column 'a': expected a finite number, got 'inf'"):
        read_table(written(tmp_path, "a,b\n1,2\ninf,3\n"))
    pd.DataFrame({"a": [1.0, -np.inf]}).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(BadDataError, match=r"a\.parquet, row 2, column 'a': expected a finite number, got -inf"):
        read_table(tmp_path / "a.parquet")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "empty"),
        ("a,a\n1,2\n", "'a' twice"),
        ("a,b\n", "no rows"),
        ("a,b", "no rows"),
        ("a,b\n\n\n", "no rows"),
        ("\x00\x01\x02\x03" * 9, "neither text"),
    ],
)
def test_files_without_a_table(tmp_path, content, message):
    path = written(tmp_path, content)
    with pytest.raises(BadDataError, match=message):
        read_table(path)


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_a_header_longer_than_the_first_look_is_read_whole(tmp_path, ends):
    names = [f"measurement {k}" for k in range(30_000)]
    line = ";".join(["1,5"] * 30_000)
    path = written(tmp_path, ends.join([";".join(names), line, line, ""]))
    file = open_table(path)
    assert file.columns == names
    assert (file.separator, file.rows) == (";", 2)
    assert read_table(path, columns=names[-1:])[names[-1]].tolist() == [1.5, 1.5]


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


def test_a_random_part_keeps_order_and_lines_and_is_drawn_evenly(tmp_path):
    path = written(tmp_path, "n\n" + "\n".join(map(str, range(200_000))) + "\n")
    file = open_table(path)
    rows = file.read(["n"], max_rows=1000, seed=3)
    numbers = [int(v) for v in rows.column("n").to_pylist()]
    assert numbers == rows.records.tolist() == sorted(numbers)
    assert len(numbers) == 1000
    assert 90_000 < np.mean(numbers) < 110_000


@pytest.fixture
def frame():
    day = pd.to_datetime(["2024-01-01", "2024-02-01", None])
    return pd.DataFrame({"n": [1.5, 2, None], "t": ["a", "ä", "c"], "d": day, "b": [True, False, True]})


@pytest.mark.parametrize("packing", ["csv", "gz", "xz", "bz2", "zip", "jsonl", "jsonl.xz", "xlsx"])
def test_every_kind_and_packing_gives_the_same_table(tmp_path, frame, packing):
    path, text = tmp_path / "table", frame.to_csv(index=False).encode()
    if packing == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("folder/inner.csv", text)
    elif packing == "xlsx":
        pytest.importorskip("openpyxl")
        frame.to_excel(path.with_suffix(".xlsx"), index=False)
        path.with_suffix(".xlsx").rename(path)
    elif packing.startswith("jsonl"):
        frame.to_json(path, orient="records", lines=True, date_format="iso")
        if packing == "jsonl.xz":
            path.write_bytes(lzma.compress(path.read_bytes()))
    else:
        pack = {"gz": gzip.compress, "xz": lzma.compress, "bz2": bz2.compress, "csv": bytes}[packing]
        path.write_bytes(pack(text))
    read = read_table(path)
    assert read.dtypes.astype(str).tolist() == ["float64", "category", "datetime64[us]", "bool"]
    pd.testing.assert_frame_equal(read.astype({"t": object}), frame.astype({"t": object}), check_dtype=False)


def test_excel_without_its_package_names_the_extra(tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "a.xlsx", "w") as archive:
        archive.writestr("xl/workbook.xml", "<workbook/>")
        archive.writestr("xl/other.xml", "")
    monkeypatch.setitem(__import__("sys").modules, "openpyxl", None)
    with pytest.raises(BadDataError, match=r"a\.xlsx: Excel files need openpyxl; .*metricfit\[excel\]"):
        open_table(tmp_path / "a.xlsx")


def test_archives_and_json_that_are_no_table_are_refused_in_one_sentence(tmp_path):
    with zipfile.ZipFile(tmp_path / "two.zip", "w") as archive:
        archive.writestr("a.csv", "a\n1\n")
        archive.writestr("b.csv", "a\n1\n")
    with pytest.raises(BadDataError, match=r"two\.zip: a zip archive of 2 files, expected one"):
        open_table(tmp_path / "two.zip")
    for text, message in (('[{"a": 1}]', "one array; write one object per line"), ('{"a":1}\n{"a":', "damaged file")):
        with pytest.raises(BadDataError, match=message) as error:
            open_table(written(tmp_path, text, "t.json"))
        assert "\n" not in str(error.value)


def test_nested_and_binary_columns_are_refused_by_name_when_they_are_used(tmp_path):
    pairs = pa.array([[("a", 1)], [("b", 2)]], pa.map_(pa.string(), pa.int64()))
    columns = {"list": [[1], [2]], "struct": [{"a": 1}, {"a": 2}], "map": pairs, "bytes": [b"\xff", b"a"]}
    table = pa.table({"x": [1, 2], "text": [b"ab", b"cd"], **columns})
    pq.write_table(table, tmp_path / "t.parquet")
    assert read_table(tmp_path / "t.parquet", columns=["x", "text"])["text"].tolist() == ["ab", "cd"]
    for name in columns:
        message = rf"t\.parquet, column '{name}': expected one number, text or date .*; ignore the column"
        with pytest.raises(BadDataError, match=message):
            read_table(tmp_path / "t.parquet", columns=["x", name])


@pytest.mark.parametrize("damage", [4, 12, -4, -9, "footer"])
def test_a_broken_parquet_file_is_refused_in_one_sentence(tmp_path, damage):
    pd.DataFrame({"n": np.arange(100.0)}).to_parquet(tmp_path / "t.parquet")
    content = bytearray((tmp_path / "t.parquet").read_bytes())
    if damage == "footer":
        content[-30:-10] = b"\xff" * 20
    (tmp_path / "t.parquet").write_bytes(content if damage == "footer" else content[:damage])
    with pytest.raises(BadDataError, match=r"t\.parquet: damaged Parquet file") as error:
        open_table(tmp_path / "t.parquet")
    assert len(str(error.value)) < 400


def test_long_headers_and_values_are_never_echoed_whole(tmp_path):
    with pytest.raises(BadDataError, match=r"line 1: a column name of 300,000 characters") as error:
        open_table(written(tmp_path, "x" * 300_000 + ",b\n1,2\n"))
    assert len(str(error.value)) < 300
    rows = open_table(written(tmp_path, "a,b\n1," + "y" * 300_000 + "\n")).read()
    with pytest.raises(BadDataError, match=r"line 2, column 'b': expected a number, got 'yyy") as error:
        rows.frame({"b": ColumnFormat("number")})
    assert len(str(error.value)) < 300


def test_a_gzip_file_with_a_broken_block_and_an_infinite_label_are_errors_of_the_data(tmp_path):
    from metricfit.data import Roles, read_labelled

    content = bytearray(gzip.compress("\n".join(["a,b", *(f"{k},{k * k}" for k in range(200))]).encode()))
    content[12:40] = b"\xff" * 28
    (tmp_path / "a.csv.gz").write_bytes(content)
    with pytest.raises(BadDataError, match=r"a\.csv\.gz: damaged file"):
        open_table(str(tmp_path / "a.csv.gz"))
    path = written(tmp_path, "target,x\n1,2\n1e999,3\n2,4\n")
    with pytest.raises(BadDataError, match="'target' holds infinity"):
        read_labelled(open_table(path), Roles(["target"]))
