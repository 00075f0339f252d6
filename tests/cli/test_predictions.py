"""Files of predictions."""

from __future__ import annotations

import pandas as pd
import pytest

from metricfit.cli.command import UsageError
from metricfit.cli.predict import _writer


def test_a_name_that_promises_another_kind_of_file_is_refused(tmp_path):
    for name in ("x.xlsx", "x.json", "x.tsv"):
        with (
            pytest.raises(UsageError, match=r"--out: expected a \.csv, \.csv\.gz, \.parquet or \.jsonl file"),
            _writer(tmp_path / name, lines=False, escape=False),
        ):
            pass
        assert not (tmp_path / name).exists()


def test_formulas_are_escaped_on_demand_and_numbers_are_not(tmp_path):
    cells = ['=HYPERLINK("x")', "+1-2", "@a", "-5", "-1,5", "plain", "a=b"]
    frame = pd.DataFrame({"=kept": cells, "p": -0.5})
    for escape in (False, True):
        with _writer(tmp_path / "p.csv", lines=False, escape=escape) as write:
            write(frame)
        read = pd.read_csv(tmp_path / "p.csv", dtype=str)
        expected = [f"'{cell}" if escape and i < 3 else cell for i, cell in enumerate(cells)]
        assert read.iloc[:, 0].tolist() == expected
        assert read.columns.tolist() == ["'=kept" if escape else "=kept", "p"]
        assert set(read["p"]) == {"-0.5"}
