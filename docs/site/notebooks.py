"""Notebooks of the tour and the guides, written from their pages: python docs/site/notebooks.py.

A page's Python blocks become code cells, the text blocks after them their printed output, everything between Markdown
cells. So nothing is written twice; tests/test_notebooks.py compares both and runs the notebooks. Once mkdocs.yml names
the repository (repo_url), each notebook opens with a badge that opens it in Colab, and a cell that installs metricfit.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "guides"
BLOCK = re.compile(r"^```python\n(.*?)^```$(?:\n\n^```text\n(.*?)^```$)?", flags=re.MULTILINE | re.DOTALL)


def pages() -> list[Path]:
    """The tour, and the guides that have Python in them."""
    found = [ROOT / "docs" / "tour.md", *sorted((ROOT / "docs" / "guides").glob("*.md"))]
    return [page for page in found if BLOCK.search(page.read_text(encoding="utf-8"))]


def _lines(text: str) -> list[str]:
    return text.strip("\n").splitlines(keepends=True)


def _markdown(text: str, page: Path) -> list[dict[str, Any]]:
    """Links are made to lead from the notebook's folder to where they led from the page."""

    def linked(match: re.Match[str]) -> str:
        place, mark, part = match.group(1).partition("#")
        target = (page.parent / place).resolve() if place else page
        return f"]({os.path.relpath(target, FOLDER)}{mark}{part})"

    text = re.sub(r"\]\((?!https?:)([^)]+)\)", linked, text)
    # A cell cannot fold the cells after it.
    text = re.sub(r"^<details><summary>(.*)</summary>$", r"**\1**", text, flags=re.MULTILINE)
    text = re.sub(r"^</details>\n*", "", text, flags=re.MULTILINE)
    return [{"cell_type": "markdown", "metadata": {}, "source": _lines(text)}] if text.strip() else []


def _code(source: str, shown: str | None = None) -> dict[str, Any]:
    outputs = [{"name": "stdout", "output_type": "stream", "text": _lines(shown)}] if shown else []
    return {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": outputs, "source": _lines(source)}


def opening(path: Path, repository: str) -> list[dict[str, Any]]:
    """The badge, and the cell that installs metricfit where it is opened."""
    place = f"{repository.replace('//github.com', '//colab.research.google.com/github')}/blob/main"
    badge = f"[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]({place}/{path})"
    return [*_markdown(badge, ROOT), _code(f"%pip install -q 'metricfit @ git+{repository}'")]


def notebook(page: Path) -> str:
    """The page as a notebook."""
    text, end = page.read_text(encoding="utf-8"), 0
    named = re.search(r"^repo_url: *(\S+)", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), flags=re.MULTILINE)
    path = (FOLDER / f"{page.stem}.ipynb").relative_to(ROOT)
    cells = opening(path, named[1]) if named else []
    for match in BLOCK.finditer(text):
        cells += [*_markdown(text[end : match.start()], page), _code(*match.groups())]
        end = match.end()
    cells += _markdown(text[end:], page)
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    content = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(content, ensure_ascii=False, indent=1, sort_keys=True) + "\n"


def main() -> None:
    """Write all of them, and remove those whose page is gone."""
    FOLDER.mkdir(exist_ok=True)
    written = {f"{page.stem}.ipynb": notebook(page) for page in pages()}
    for path in FOLDER.glob("*.ipynb"):
        if path.name not in written:
            path.unlink()
    for name, content in written.items():
        (FOLDER / name).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()
