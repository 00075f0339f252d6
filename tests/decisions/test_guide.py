import contextlib
import io
import re
import runpy
from pathlib import Path

import pytest
from scipy.stats import binom

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guides" / "recall.md"


def test_the_guides_code_runs_and_prints_what_it_shows():
    blocks = re.findall(r"```(python|text)\n(.*?)```", GUIDE.read_text(), flags=re.DOTALL)
    names: dict[str, object] = {}
    printed = ""
    shown = 0
    for kind, text in blocks:
        if kind == "text":
            assert printed == text
            shown += 1
            continue
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(text, str(GUIDE), "exec"), names)
        printed = out.getvalue()
    assert shown >= 8


def test_the_guides_pictures_exist():
    for image in re.findall(r"!\[.*?\]\((.*?)\)", GUIDE.read_text()):
        assert (GUIDE.parent / image).is_file()


def test_the_guides_table_of_sample_sizes():
    rows = re.findall(r"^\| ([\d,]+) \| (\d+) \(", GUIDE.read_text(), flags=re.MULTILINE)
    assert len(rows) == 5
    for ill, found in rows:
        n = int(ill.replace(",", ""))
        assert int(found) == binom.isf(0.05, n, 0.9) + 1


def test_the_example_runs(capsys):
    runpy.run_path(str(ROOT / "examples" / "decision_rules.py"), run_name="__main__")
    assert "offsets" in capsys.readouterr().out


@pytest.mark.slow
def test_the_figures_can_be_drawn_again(tmp_path):
    module = runpy.run_path(str(ROOT / "docs" / "figures" / "recall.py"))
    module["draw_promise"].__globals__["IMAGES"] = tmp_path
    module["draw_promise"](repetitions=50)
    module["draw_sweep"]()
    assert {p.name for p in tmp_path.iterdir()} == {"recall_sweep.png", "recall_promise.png"}
