"""The notebooks of the papers and of the guides run and print what they show; a guide's is written from its page."""

from __future__ import annotations

import contextlib
import io
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from docs.site import notebooks
from tests.test_docs import check_output, missing

FOLDER = Path(__file__).parents[1] / "examples" / "papers"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def code_cells(path: Path) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]


def printed_in(cell: dict[str, Any]) -> str:
    return "".join("".join(one["text"]) for one in cell["outputs"] if one["output_type"] == "stream")


def test_the_readme_lists_every_notebook() -> None:
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert len(NOTEBOOKS) == 5
    assert all(f"({path.name})" in text for path in NOTEBOOKS)


@each_notebook
def test_a_notebook_is_small_was_run_in_order_and_ends_in_a_figure(path: Path) -> None:
    cells = code_cells(path)
    assert path.stat().st_size < 100_000
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert any("image/png" in one.get("data", {}) for one in cells[-1]["outputs"])
    assert any(printed_in(cell) for cell in cells)


@pytest.mark.slow
@each_notebook
def test_a_notebook_prints_what_it_shows_in_less_than_two_minutes(path: Path) -> None:
    import matplotlib.pyplot as plt

    namespace: dict[str, Any] = {"__name__": "__notebook__"}
    start = time.process_time()
    for cell in code_cells(path):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile("".join(cell["source"]), path.name, "exec"), namespace)
        check_output(printed.getvalue(), printed_in(cell))
    plt.close("all")
    assert time.process_time() - start < 120


def test_each_notebook_of_a_guide_is_written_from_its_page() -> None:
    written = {f"{page.stem}.ipynb": notebooks.notebook(page) for page in notebooks.pages()}
    assert "tour.ipynb" in written
    assert {path.name: path.read_text(encoding="utf-8") for path in notebooks.FOLDER.glob("*.ipynb")} == written, (
        "run python docs/site/notebooks.py"
    )
    text = (notebooks.FOLDER / "README.md").read_text(encoding="utf-8")
    assert all(f"({name})" in text for name in written)


def test_links_lead_from_the_notebook_to_where_they_led() -> None:
    for path in notebooks.FOLDER.glob("*.ipynb"):
        for target in re.findall(r"\]\((?!https?:|#)([^)#\\]+)", path.read_text(encoding="utf-8")):
            assert (notebooks.FOLDER / target).exists(), f"{path.name}: {target}"


def test_with_a_repository_it_opens_in_colab() -> None:
    badge, install = notebooks.opening(Path("examples/guides/tour.ipynb"), "https://github.com/someone/metricfit")
    place = "https://colab.research.google.com/github/someone/metricfit/blob/main/examples/guides/tour.ipynb"
    assert place in "".join(badge["source"])
    assert install["source"] == ["%pip install -q 'metricfit @ git+https://github.com/someone/metricfit'"]


@pytest.mark.slow
@pytest.mark.parametrize("page", notebooks.pages(), ids=lambda page: page.stem)
def test_a_notebook_of_a_guide_runs_and_prints_what_it_shows(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "__notebook__"}
    for cell in code_cells(notebooks.FOLDER / f"{page.stem}.ipynb"):
        source = "".join(cell["source"])
        if source.startswith("%") or missing(source):
            continue
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(source, page.name, "exec"), namespace)
        if shown := printed_in(cell):
            check_output(printed.getvalue(), shown)
