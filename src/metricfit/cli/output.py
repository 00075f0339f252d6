"""What a command writes: results to standard output, everything else to standard error; and its own errors."""

from __future__ import annotations

import math
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from json import dumps
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from metricfit.choices import Choice

__all__ = [
    "CommandError",
    "Interrupted",
    "Output",
    "UsageError",
    "in_words",
    "interval",
    "number",
    "stoppable",
    "wrong_use",
]

_WIDTH_OF_A_PIPE = 140
_OPTIONS = {"folds": ("folds", "group", "time"), "unused": ("categorical", "ignore")}
"""The options that change what a classifier chose, by topic."""


@dataclass
class Output:
    """Where a command writes; its fields are options of every command."""

    json: Annotated[
        bool, typer.Option("--json", help="Write the result as JSON to standard output.", rich_help_panel="Output")
    ] = False
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Write only the result and errors.", rich_help_panel="Output")
    ] = False
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error.", rich_help_panel="Output")
    ] = False

    def __post_init__(self) -> None:
        from rich.console import Console

        width = None if sys.stdout.isatty() else _WIDTH_OF_A_PIPE
        # Column names and metrics hold brackets: they are text, never markup.
        self.out = Console(markup=False, highlight=False, emoji=False, width=width, soft_wrap=width is not None)
        self.log = Console(stderr=True, markup=False, highlight=False, emoji=False, soft_wrap=True)
        self.held = ExitStack()  # closed when the command ends

    def note(self, text: str) -> None:
        """Write progress or an explanation, unless quiet."""
        if not self.quiet:
            self.log.print(text)

    def warn(self, text: str) -> None:
        """Write something the user should know even when quiet."""
        self.log.print(f"Warning: {text}")

    def choices(self, choices: Iterable[Choice]) -> list[str]:
        """Write what was decided without asking; returns the lines."""
        lines = in_words(choices)
        if lines:
            self.note("Chosen without asking (the option in brackets changes it):")
        for line in lines:
            self.note(f"  • {line}")
        return lines

    def line(self, text: str) -> None:
        """Write one line of the result."""
        if not self.json:
            self.out.print(text)

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], *, left: int = 1) -> None:
        """Write a table of the result; the first ``left`` columns are text."""
        if self.json:
            return
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table(title=Text(title), box=box.SIMPLE_HEAD, title_justify="left", show_edge=False, pad_edge=False)
        for i, column in enumerate(columns):
            table.add_column(Text(column), justify="left" if i < left else "right", overflow="fold")
        for row in rows:
            table.add_row(*(Text(str(cell)) for cell in row))
        self.out.print(table, soft_wrap=False)

    def result(self, content: Any) -> None:
        """Write the result as one JSON document, if that was asked for."""
        if self.json:
            sys.stdout.write(dumps(_plain(content), ensure_ascii=False, allow_nan=False) + "\n")


def in_words(choices: Iterable[Choice]) -> list[str]:
    """What was decided without asking, each with the options that change it.

    >>> from metricfit.choices import Choice
    >>> in_words([Choice("rows", "500 rows drawn at random", ("max_rows",))])
    ['500 rows drawn at random (--max-rows)']
    """
    found = []
    for choice in choices:
        names = choice.arguments or _OPTIONS.get(choice.topic, ())
        options = ", ".join(f"--{name.replace('_', '-')}" for name in names)
        found.append(f"{choice} ({options})" if options else str(choice))
    return found


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


class CommandError(Exception):
    """A failure that is reported in one message; the program then ends with the exit code."""

    exit_code = 1


class UsageError(CommandError):
    """The call asks for something that does not exist, or combines options that exclude each other."""

    exit_code = 2


class Interrupted(BaseException):
    """Ctrl-C. Not a KeyboardInterrupt, which the training loop turns into an early end."""


@contextmanager
def stoppable() -> Iterator[None]:
    """Ctrl-C raises :class:`Interrupted` at once."""

    def stop(*_: Any) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def wrong_use() -> Iterator[None]:
    """Report a library function's complaint about an argument as one about the option of that name."""
    try:
        yield
    except (ValueError, TypeError, FileExistsError, FileNotFoundError) as error:
        raise UsageError(f"--{error}") from None
