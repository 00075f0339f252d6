"""Files of predictions."""

from __future__ import annotations

import shutil

import pandas as pd
import pytest

from metricfit.cli.command import UsageError
from metricfit.cli.predict import _writer
from tests.cli.helper import customers


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


def many(folder, kinds=("a.csv", "b.csv", "c.parquet")):
    folder.mkdir()
    for seed, name in enumerate(kinds):
        frame = pd.DataFrame(customers(rows=40 + 10 * seed, seed=seed)).assign(id=range(40 + 10 * seed))
        frame.to_parquet(folder / name) if name.endswith("parquet") else frame.to_csv(folder / name, index=False)
    return folder


def read(path):
    return pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)


def same_as_one_by_one(program, model, given, out, tmp_path):
    for file in sorted(given.iterdir()):
        alone = tmp_path / f"alone-{file.name}"
        program("predict", model, file, "--keep", "id", "--out", alone, "--overwrite")
        pd.testing.assert_frame_equal(read(out / file.name), read(alone))


def test_many_files_become_one_each_and_go_on_where_they_stopped(program, model, tmp_path):
    given, out = many(tmp_path / "in"), tmp_path / "out"
    broken = given / "b.csv"
    whole = broken.read_text()
    broken.write_text("age,plan\nold,basic\n")
    call = ("predict", model, f"{given}/*", "--keep", "id", "--out", out)
    program(*call, code=3)
    assert "b.csv" in program.err
    assert "2 files are predicted and kept; correct the rest and run this again" in program.err
    times = {name: (out / name).stat().st_mtime_ns for name in ("a.csv", "c.parquet")}
    broken.write_text(whole)
    program(*call)
    assert "2 of 3 files are there already" in program.err
    assert times == {name: (out / name).stat().st_mtime_ns for name in times}
    same_as_one_by_one(program, model, given, out, tmp_path)
    program(*call, "--raw", code=2)
    assert "holds predictions of another model, or with other options" in program.err
    program("predict", model, given, "--keep", "id", "--out", out, "--overwrite", "--workers", 2)
    same_as_one_by_one(program, model, given, out, tmp_path)


def test_what_many_files_need_is_said_first(program, model, tmp_path):
    given = many(tmp_path / "in", ("a.csv",))
    program("predict", model, given, code=2)
    assert "--out: name a folder for the results" in program.err
    program("predict", model, given, "--out", tmp_path / "out", "--engine", "dusk", code=2)
    assert "no 'dusk'; for several files, --engine is one of local, ray, spark" in program.err
    program("predict", model, given / "a.csv", "--engine", "ray", code=2)
    assert "--engine: has no effect for one file" in program.err
    program("predict", model, f"{given}/*.xlsx", "--out", tmp_path / "out", code=2)
    assert "no table there" in program.err
    (given / "sub").mkdir()
    pd.DataFrame(customers(20)).to_csv(given / "sub" / "a.csv", index=False)
    program("predict", model, given, "--out", tmp_path / "out", code=2)
    assert "two files would become" in program.err
    assert not list(tmp_path.glob("out/*.tmp"))
    program("predict", model, "nowhere://rows/*.parquet", "--out", tmp_path / "out", code=3)
    assert "nowhere://rows/*.parquet: cannot be reached" in program.err


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["ray", "spark"])
def test_engines_write_the_rows_of_one_process(program, model, tmp_path, engine):
    library = pytest.importorskip({"spark": "pyspark"}.get(engine, engine), reason=f"{engine} is not installed")
    if engine == "spark" and shutil.which("java") is None:
        pytest.skip("Spark needs Java, and there is none: apt-get install default-jre-headless")
    given, out = many(tmp_path / "in"), tmp_path / "out"
    program("predict", model, given, "--keep", "id", "--out", out, "--engine", engine, "--workers", 2)
    if engine == "ray":
        library.shutdown()  # which the end of the command does otherwise
    same_as_one_by_one(program, model, given, out, tmp_path)
