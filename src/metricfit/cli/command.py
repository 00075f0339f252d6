"""A command: a dataclass whose fields are its options, what it writes where, and the errors it ends with."""

from __future__ import annotations

import inspect
import math
import signal
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from metricfit.choices import Choice

REQUIRED = MISSING
_WIDTH_OF_A_PIPE = 140
_OPTIONS = {"folds": ("folds", "group", "time"), "unused": ("categorical", "ignore")}  # of a choice's topic


def option(help: str, metavar: str, panel: str | None = None, default: Any = None, shown: str = "", **more: Any) -> Any:
    """A field that is an option with a value; ``shown`` is what the help shows for a default of None."""
    names, show = more.pop("names", ()), shown or default not in (None, REQUIRED)
    info = typer.Option(*names, metavar=metavar, help=help, show_default=show, rich_help_panel=panel, **more)
    return field(default=default, metadata={"typer": info})


def switch(names: str, help: str, panel: str | None = None, default: bool = False) -> Any:
    """A field that is an option without a value."""
    return field(default=default, metadata={"typer": typer.Option(*names.split(), help=help, rich_help_panel=panel)})


def argument(metavar: str, help: str, default: Any = REQUIRED, *, shown: str = "") -> Any:
    """A field that is a word without an option's name; ``shown`` is what the help shows for a default of None."""
    check = _existing if metavar in ("DATA", "MODEL") else None
    info = typer.Argument(metavar=metavar, help=help, show_default=shown or False, callback=check)
    return field(default=default, metadata={"typer": info})


def options_of(command: Any) -> dict[str, Field[Any]]:
    """The fields of a command that are options, its own before those of its bases."""
    known, kinds = {field.name: field for field in fields(command)}, inspect.getmro(command)
    return {name: known[name] for kind in kinds for name in vars(kind).get("__annotations__", ()) if name in known}


def _existing(value: Any) -> Any:
    """Fail at once, before anything heavy is imported, if a file or folder is not there."""
    open_ended = isinstance(value, str) and ("://" in value or any(sign in value for sign in "*?["))
    if value is not None and str(value) != "-" and not open_ended and not Path(value).exists():
        raise UsageError(f"{value}: no such {'model folder' if isinstance(value, Path) else 'file'}.")
    return value


@dataclass(kw_only=True)
class Command(ABC):
    """What all commands have: where they write. Results go to standard output, everything else to standard error."""

    json: bool = switch("--json", "Write the result as JSON to standard output.", "Output")
    quiet: bool = switch("--quiet -q", "Write only the result and errors.", "Output")
    debug: bool = switch("--debug", "Show the traceback of an error.", "Output")

    def __post_init__(self) -> None:
        from rich.console import Console

        width = None if sys.stdout.isatty() else _WIDTH_OF_A_PIPE
        # Column names and metrics hold brackets: they are text, never markup.
        self.console = Console(markup=False, highlight=False, emoji=False, width=width, soft_wrap=width is not None)
        self.log = Console(stderr=True, markup=False, highlight=False, emoji=False, soft_wrap=True)
        self.held = ExitStack()  # closed when the command ends

    @abstractmethod
    def run(self) -> None:
        """Do what the command is for."""

    def refuse(self, why: str, *options: str) -> None:
        """Raise a usage error if one of these options was given, which has no effect here."""
        for name in options:
            if getattr(self, name) not in (None, False):
                raise UsageError(f"{'DATA' if name == 'data' else '--' + name.replace('_', '-')}: has no effect {why}.")

    def note(self, text: str) -> None:
        """Write progress or an explanation, unless quiet."""
        if not self.quiet:
            self.log.print(text)

    def warn(self, text: str) -> None:
        """Write something the user should know even when quiet."""
        self.log.print(f"Warning: {text}")

    def show_choices(self, choices: Iterable[Choice]) -> list[str]:
        """Write what was decided without asking, each with the options that change it; returns the lines."""
        lines = []
        for choice in choices:
            names = choice.arguments or _OPTIONS.get(choice.topic, ())
            options = ", ".join(f"--{name.replace('_', '-')}" for name in names)
            lines.append(f"{choice} ({options})" if options else str(choice))
        if lines:
            self.note("\n  • ".join(["Chosen without asking (the option in brackets changes it):", *lines]))
        return lines

    def line(self, text: str) -> None:
        """Write one line of the result."""
        if not self.json:
            self.console.print(text)

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
        self.console.print(table, soft_wrap=False)

    def result(self, content: Any) -> None:
        """Write the result as one JSON document, if that was asked for."""
        if self.json:
            from metricfit.files import to_json

            sys.stdout.write(to_json(content) + "\n")


def number(value: float | None) -> str:
    """Four digits, of money two, or a dash."""
    return "–" if value is None or math.isnan(value) else f"{value:,.2f}" if abs(value) >= 1000 else f"{value:.4f}"


def interval(low: float | None, high: float | None) -> str:
    """An interval, or a dash."""
    return "–" if low is None or math.isnan(low) else f"{number(low)} to {number(high)}"


class CommandError(Exception):
    """A failure that is reported in one message; the program then ends with the exit code."""

    exit_code = 1


class UsageError(CommandError):
    """The call asks for something that does not exist, or combines options that exclude each other."""

    exit_code = 2


class Interrupted(BaseException):
    """Ctrl-C. Not a KeyboardInterrupt, which the training loop turns into an early end."""


@contextmanager
def stoppable() -> Iterator[Callable[[], None]]:
    """Ctrl-C raises :class:`Interrupted` at once; the function does so again, as NumPy and Cython may lose it."""
    pressed: list[bool] = []

    def stop(*_: Any) -> None:
        pressed.append(True)
        raise Interrupted

    def check() -> None:
        if pressed:
            raise Interrupted

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield check
    except Exception:
        check()
        raise
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def wrong_use() -> Iterator[None]:
    """Report a library function's complaint about an argument as one about the option of that name."""
    try:
        yield
    except (ValueError, TypeError, FileExistsError, FileNotFoundError) as error:
        raise UsageError(f"--{error}") from None
