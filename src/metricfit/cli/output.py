"""Results to standard output, everything else to standard error."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from metricfit.choices import Choice

__all__ = ["Output", "interval", "number", "with_options"]

_WIDTH_OF_A_PIPE = 140


class Output:
    """Where a command writes.

    Args:
        as_json: Whether the result is one JSON document instead of tables.
        quiet: Whether to say nothing but the result and errors.
    """

    def __init__(self, as_json: bool = False, quiet: bool = False) -> None:
        self.as_json, self.quiet = as_json, quiet
        width = None if sys.stdout.isatty() else _WIDTH_OF_A_PIPE
        # Column names and metrics hold brackets: they are text, never markup.
        self.out = Console(markup=False, highlight=False, emoji=False, width=width, soft_wrap=width is not None)
        self.log = Console(stderr=True, markup=False, highlight=False, emoji=False, soft_wrap=True)

    def note(self, text: str) -> None:
        """Progress or an explanation, unless quiet."""
        if not self.quiet:
            self.log.print(text)

    def warn(self, text: str) -> None:
        """Something the user should know even when quiet."""
        self.log.print(f"Warning: {text}")

    def choices(self, lines: Sequence[str | Choice]) -> None:
        """What was decided without asking."""
        if lines:
            self.note("Chosen without asking (the option in brackets changes it):")
        for line in lines:
            self.note(f"  • {with_options(line) if isinstance(line, Choice) else line}")

    def line(self, text: str) -> None:
        """One line of the result."""
        if not self.as_json:
            self.out.print(text)

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], *, left: int = 1) -> None:
        """A table of the result; the first ``left`` columns are text."""
        if self.as_json:
            return
        table = Table(title=Text(title), box=box.SIMPLE_HEAD, title_justify="left", show_edge=False, pad_edge=False)
        for i, column in enumerate(columns):
            table.add_column(Text(column), justify="left" if i < left else "right", overflow="fold")
        for row in rows:
            table.add_row(*(Text(str(cell)) for cell in row))
        self.out.print(table, soft_wrap=False)

    def result(self, content: Any) -> None:
        """The result as JSON, if that was asked for."""
        if self.as_json:
            sys.stdout.write(json.dumps(_plain(content), ensure_ascii=False, allow_nan=False) + "\n")


def with_options(choice: Choice) -> str:
    """A choice with the options that change it.

    >>> with_options(Choice("rows", "10 rows drawn at random", ("max_rows",)))
    '10 rows drawn at random (--max-rows)'
    """
    options = ", ".join(f"--{name.replace('_', '-')}" for name in choice.arguments)
    return f"{choice} ({options})" if options else str(choice)


def number(value: float | None) -> str:
    """Four digits, or a dash.

    >>> number(0.5), number(float("nan"))
    ('0.5000', '–')
    """
    return "–" if value is None or math.isnan(value) else f"{value:.4f}"


def interval(low: float | None, high: float | None) -> str:
    """An interval, or a dash.

    >>> interval(0.1, 0.2)
    '0.1000 to 0.2000'
    """
    return "–" if low is None or math.isnan(low) else f"{number(low)} to {number(high)}"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
