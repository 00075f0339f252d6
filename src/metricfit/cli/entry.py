"""The program: its commands, and what becomes of errors."""

from __future__ import annotations

import inspect
import os
import sys
from typing import Annotated, Any

import typer

from metricfit.cli import advise, compare, demo, evaluate, export, metrics, predict, report, train, tune
from metricfit.cli.parsing import Command, Group

__all__ = ["app", "main"]

app = typer.Typer(
    name="metricfit",
    cls=Group,
    help="Train the classifier on the metric you report.\n\nFrom a table, a target and a metric to a model, its "
    "predictions and an honest comparison. Start with 'metricfit demo', or 'metricfit train --help'.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
)


def _version(wanted: bool) -> None:
    if wanted:
        from metricfit import __version__

        typer.echo(f"metricfit {__version__}")
        raise typer.Exit


@app.callback()
def _program(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def _help_of(command: Any) -> str:
    """The docstring with its lines joined into paragraphs; brackets are text, not markup."""
    paragraphs = inspect.cleandoc(command.__doc__).split("\n\n")
    return "\n\n".join(" ".join(p.split()) for p in paragraphs).replace("[", "\\[")


for _name, _module in {
    "train": train,
    "compare": compare,
    "predict": predict,
    "evaluate": evaluate,
    "report": report,
    "tune": tune,
    "export": export,
    "metrics": metrics,
    "advise": advise,
    "demo": demo,
}.items():
    app.command(_name, cls=Command, help=_help_of(_module.command))(_module.command)


def main() -> None:
    """Run the program; an error becomes one message on standard error and an exit code."""
    from metricfit.cli.errors import Interrupted

    try:
        app(prog_name="metricfit")
    except Interrupted as stopped:
        _say(str(stopped) or "Stopped.")
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        _say("Stopped.")
        raise SystemExit(1) from None
    except BrokenPipeError:
        # Whoever read the output has enough; nothing more can be written, at exit neither.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
    except Exception as error:
        if "--debug" in sys.argv:
            raise
        raise SystemExit(_told(error)) from None


def _told(error: Exception) -> int:
    """Tell an error in words; its exit code."""
    from metricfit.cli.errors import CommandError
    from metricfit.data import BadArgumentError, BadDataError, NotEnoughMemoryError

    if isinstance(error, BadArgumentError):
        option = "" if error.argument == "path" else f"--{error.argument.replace('_', '-')}: "
        _say(f"Error: {option}{error.problem}")
        return 2
    if isinstance(error, BadDataError):
        _say(f"Error: {error}")
        return 3
    if isinstance(error, NotEnoughMemoryError):
        _say(f"Error: {error} The option is --max-rows {error.max_rows}.")
        return 1
    if isinstance(error, CommandError):
        _say(f"Error: {error}")
        return error.exit_code
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        _say(f"Error: {where}{error.strerror}.")
        return 1
    if isinstance(error, MemoryError):
        _say("Error: there is not enough memory; train on a part of the rows with --max-rows.")
        return 1
    if isinstance(error, ValueError | TypeError):
        _say(f"Error: {error}")
        return 1
    _say(f"Error: {type(error).__name__}: {error}\nThis should not happen; run again with --debug and report it.")
    return 1


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
