"""What docs/papers.md quotes: its numbers in order, paragraph by paragraph."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "papers.md"
NUMBER = re.compile(r"(?<![\w.])[+−]?\d+\.\d+(?: ± \d+\.\d+)?(?!\w)")


def paragraphs() -> Iterator[tuple[str, str]]:
    """Section and paragraph: a block between blank lines, or one point of a list; not the tables written from rows."""
    text = PAGE.read_text(encoding="utf-8")
    text = re.sub(r"<!-- table: ([\w ]+) -->.*?<!-- end of table: \1 -->", "", text, flags=re.DOTALL)
    section = ""
    for block in re.split(r"\n\n+|\n(?=\* )", text):
        if block.startswith("## "):
            section = block.removeprefix("## ").split(" (")[0]
        elif NUMBER.search(block):
            yield section, re.sub(r"\]\([^)]*\)", "]", block)
