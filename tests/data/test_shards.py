"""Reading tables piece by piece."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from metricfit.data import BadArgumentError, Roles, TablePreprocessor, open_table, read_labelled
from metricfit.data.shards import Shards, deal, random_numbers


@pytest.fixture
def table(tmp_path: Path) -> pd.DataFrame:
    frame = pd.DataFrame({"number": np.arange(50_000), "y": np.where(np.arange(50_000) % 10, "no", "yes")})
    for part in range(4):
        rows = frame[part * 12_500 : (part + 1) * 12_500]
        rows.to_parquet(tmp_path / f"{part}.parquet", row_group_size=5000, index=False)
        rows.to_csv(tmp_path / f"{part}.csv", index=False)
    return frame


def files(folder: Path, kind: str) -> list[Path]:
    return sorted(folder.glob(f"*.{kind}"))


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_every_row_comes_once_in_order(tmp_path: Path, table: pd.DataFrame, kind: str) -> None:
    shards = Shards(files(tmp_path, kind))
    assert len(shards.pieces) == (12 if kind == "parquet" else 4)
    pd.testing.assert_frame_equal(
        pd.concat([chunk.rows for chunk in shards.chunks()], ignore_index=True),
        table,
        check_dtype=False,
        check_column_type=False,
    )
    assert shards.values("y") == {"no": 45_000, "yes": 5_000}


def test_pieces_are_read_in_the_order_given(tmp_path: Path, table: pd.DataFrame) -> None:
    shards = Shards(files(tmp_path, "parquet"))
    few = shards.chunks(columns=["number"], order=[5, 2], rows=2000)
    assert [(chunk.piece, chunk.start) for chunk in few] == [(5, 0), (5, 2000), (2, 0), (2, 2000)]
    numbers = [c.rows["number"] for c in shards.chunks(columns=["number"], order=[11, 3])]
    assert pd.concat(numbers).tolist() == [*range(47_500, 50_000), *range(12_500, 17_500)]


def test_a_random_share_of_rows_is_the_same_in_any_order(tmp_path: Path, table: pd.DataFrame) -> None:
    shards = Shards(files(tmp_path, "parquet"))

    def chosen(**how) -> Counter:
        taken: Counter = Counter()
        for chunk in shards.chunks(**how):
            taken.update(chunk.rows["number"][random_numbers(chunk, 7) < 0.1].tolist())
        return taken

    first = chosen()
    assert first == chosen(order=list(range(12))[::-1], rows=999)
    assert max(first.values()) == 1
    assert len(first) == pytest.approx(5000, abs=300)
    # Neither a run of rows nor a class is preferred.
    assert np.corrcoef(np.isin(np.arange(50_000), list(first)), table["y"] == "yes")[0, 1] == pytest.approx(0, abs=0.02)


def test_errors(tmp_path: Path, table: pd.DataFrame) -> None:
    with pytest.raises(BadArgumentError, match=r"nothing\.parquet: no such file"):
        Shards(tmp_path / "nothing.parquet")
    with pytest.raises(ValueError, match="files of one kind"):
        Shards(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"no \.parquet, \.pq or \.csv file in"):
        Shards(tmp_path / "empty")
    pd.DataFrame({"y": [1.0, None]}).to_parquet(tmp_path / "gaps.parquet")
    with pytest.raises(ValueError, match="column 'y': 1 rows have no value"):
        Shards(tmp_path / "gaps.parquet").values("y")


def test_csv_files_are_typed_as_the_reader_types_them(tmp_path: Path) -> None:
    (tmp_path / "0.csv").write_text("size;on;code;y\n1,5;31.12.2024;007;yes\n?;01.02.2025;012;no\n")
    (tmp_path / "1.csv").write_text("size;on;code;y\n2;03.02.2025;100;no\n")
    frame = pd.concat([chunk.rows for chunk in Shards(tmp_path).chunks()], ignore_index=True)
    assert frame["size"].tolist() == pytest.approx([1.5, np.nan, 2.0], nan_ok=True)
    assert frame["on"].dt.month.tolist() == [12, 2, 2]
    assert frame["code"].tolist() == ["007", "012", "100"]
    (tmp_path / "1.csv").write_text("size;on;code;y\n2;03.02.2025;100;no\nmuch;03.02.2025;100;no\n")
    shards = Shards(tmp_path)
    shards.formats["size"] = Shards(tmp_path / "0.csv").formats["size"]  # as if the word came after the first rows
    with pytest.raises(ValueError, match=r"1\.csv, line 3, column 'size': expected a number, got 'much'"):
        list(shards.chunks())
    (tmp_path / "1.csv").write_text("size;y\n2;no\n")
    with pytest.raises(ValueError, match=r"1\.csv has no column 'on'"):
        Shards(tmp_path)


def test_names_of_classes_that_look_like_gaps_are_classes(tmp_path: Path) -> None:
    (tmp_path / "0.csv").write_text("x,y\n1,NA\n2,None\nNA,yes\n")
    (tmp_path / "1.csv").write_text("x,y\n3,None\n4,NA\n")
    assert Shards(tmp_path).values("y") == {"NA": 2, "None": 2, "yes": 1}
    whole = read_labelled(open_table(tmp_path / "0.csv"), Roles(["y"]))
    chunk = next(Shards(tmp_path / "0.csv").chunks(target="y"))
    assert chunk.rows["y"].tolist() == whole.y.tolist() == ["NA", "None", "yes"]
    np.testing.assert_array_equal(chunk.rows["x"], whole.X["x"])
    (tmp_path / "1.csv").write_text("x,y\n3,\n4,NA\n")
    with pytest.raises(ValueError, match="column 'y': 1 rows have no value"):
        Shards(tmp_path).values("y")
    (tmp_path / "labels.csv").write_text("x,y\n1,0\n2,1\n")
    numbers = Shards(tmp_path / "labels.csv")
    assert numbers.values("y") == {0: 1, 1: 1}
    (tmp_path / "labels.csv").write_text("x,y\n1,0\n2,one\n")
    with pytest.raises(ValueError, match=r"labels\.csv, line 3, column 'y': expected a number, got 'one'"):
        numbers.values("y")


def test_the_same_table_in_any_kind_of_file_is_typed_alike(tmp_path: Path) -> None:
    text = pd.DataFrame(
        {
            "size": ["1.5", "?", "2.25", "4"],
            "on": ["31.12.2024", "01.02.2025", "", "03.04.2025"],
            "paid": ["true", "FALSE", "NA", "true"],
            "code": ["007", "012", "100", "012"],
            "y": ["0", "1", "1", "0"],
        }
    )
    text.to_parquet(tmp_path / "text.parquet", row_group_size=3, index=False)
    text.to_csv(tmp_path / "text.csv", index=False)
    whole = read_labelled(open_table(tmp_path / "text.csv"), Roles(["y"]))
    for name in ("text.csv", "text.parquet"):
        shards = Shards(tmp_path / name)
        found = pd.concat([chunk.rows for chunk in shards.chunks(target="y")], ignore_index=True)
        for column in whole.X:
            expected = whole.X[column]
            assert [None if pd.isna(v) else v for v in found[column]] == [None if pd.isna(v) else v for v in expected]
        assert found["y"].tolist() == whole.y.tolist() == [0, 1, 1, 0]
        features = TablePreprocessor().fit(found.drop(columns="y"))
        expected = TablePreprocessor().fit(whole.X)
        assert features.get_feature_names_out().tolist() == expected.get_feature_names_out().tolist()
        np.testing.assert_array_equal(features.transform(found), expected.transform(whole.X))


def test_lanes_are_of_about_equal_numbers_of_rows() -> None:
    assert deal([5, 1, 4, 3, 1], 8) == [[0], [2], [3], [1, 4]]
    assert deal([7, 7], 8) == [[0], [1]]
    assert deal([90, 3], 8) == [[0, 1]]
    assert deal([1] * 20, 8) == [[k, k + 8, k + 16][: 3 if k < 4 else 2] for k in range(8)]
