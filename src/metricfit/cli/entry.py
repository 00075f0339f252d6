"""The program ``metricfit``: its commands, how their words are read, and what becomes of errors."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

import metricfit
from metricfit.cli.command import Command, CommandError, Interrupted, options_of


class _Plain:
    """A command or program whose help shows no type where a switch takes no value."""

    def get_params(self, ctx: Any) -> list[Any]:
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for parameter in parameters:
            if getattr(parameter, "is_flag", False) and parameter.metavar is None:
                parameter.metavar = ""
        return parameters


class _Program(_Plain, TyperGroup):
    pass


class _Parser(_Plain, TyperCommand):
    """A command for which ``--ignore a b c`` is ``--ignore a --ignore b --ignore c``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, spread(args, self.get_params(ctx)))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        # A required argument stands without braces.
        return [piece.strip("{}") for piece in super().collect_usage_pieces(ctx)]


def spread(arguments: Sequence[str], parameters: Sequence[Any]) -> list[str]:
    """Repeat an option that may be repeated before each of the values that follow it.

    A value belongs to the option only when the command has all its arguments already, so ``predict --keep id
    model new.csv`` still has two of them.
    """
    options = {name: p for p in parameters if p.param_type_name == "option" for name in (*p.opts, *p.secondary_opts)}
    wanted = sum(p.param_type_name == "argument" for p in parameters)
    found: list[str] = []
    seen, repeated = 0, ""
    words = iter(arguments)
    for word in words:
        if word == "--":
            return [*found, word, *words]
        if word.startswith("-") and word != "-":
            name, joined, _ = word.partition("=")
            option = options.get(name)
            found.append(word)
            repeated = ""
            if option is not None and not option.is_flag:
                repeated = name if option.multiple else ""
                found += [] if joined else [value for value in [next(words, None)] if value is not None]
        elif repeated and seen >= wanted:
            found += [repeated, word]
        else:
            found.append(word)
            seen, repeated = seen + 1, ""
    return found


app = typer.Typer(
    name="metricfit",
    cls=_Program,
    help="Train the classifier on the metric you report.\n\nFrom a table, a target and a metric to a model, its "
    "predictions and an honest comparison. Start with 'metricfit demo', or 'metricfit train --help'.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"metricfit {metricfit.__version__}")
        raise typer.Exit


@app.callback()
def _program(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def _as_function(command: type[Command]) -> Callable[..., None]:
    """What typer makes a command of: a function with an option for each field, its own before those of its bases."""
    hints, given = get_type_hints(command), inspect.signature(command).parameters
    parameters = [
        given[name].replace(annotation=Annotated[hints[name], field.metadata["typer"]])
        for name, field in options_of(command).items()
    ]

    def call(**given: Any) -> None:
        made = command(**given)
        with made.held:
            made.run()

    vars(call)["__signature__"] = inspect.Signature(parameters)
    return call


def _help_of(command: Any) -> str:
    """The docstring with its lines joined into paragraphs; brackets are text, not markup."""
    paragraphs = inspect.cleandoc(command.__doc__).split("\n\n")
    return "\n\n".join(" ".join(p.split()) for p in paragraphs).replace("[", "\\[")


for _name in (
    "train", "search", "compare", "predict", "evaluate", "importance", "segments", "report", "tune", "monitor",
    "export", "metrics", "advise", "demo",
):  # fmt: skip
    _command: type[Command] = getattr(import_module(f"metricfit.cli.{_name}"), _name.capitalize())
    app.command(_name, cls=_Parser, help=_help_of(_command))(_as_function(_command))


def main() -> None:
    """Run the program; an error becomes one message on standard error and an exit code."""
    try:
        app(prog_name="metricfit")
    except (Interrupted, KeyboardInterrupt) as stopped:
        sys.stderr.write(f"{str(stopped) or 'Stopped.'}\n")
        raise SystemExit(1) from None
    except BrokenPipeError:
        # Whoever read the output has enough; nothing more can be written, at exit neither.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
    except Exception as error:
        if "--debug" in sys.argv:
            raise
        code, message = _explained(error)
        sys.stderr.write(f"Error: {message}\n")
        raise SystemExit(code) from None


def _explained(error: Exception) -> tuple[int, str]:
    """The exit code and message of an error."""
    if isinstance(error, CommandError):
        return error.exit_code, str(error)
    if isinstance(error, metricfit.files.BusyError):
        return 2, f"--out: {error}; wait until it is done, or choose another folder."
    if isinstance(error, metricfit.data.BadArgumentError):
        option = "" if error.argument in ("path", "source") else f"--{error.argument.replace('_', '-')}: "
        return 2, f"{option}{error.problem}"
    if isinstance(error, OSError) and error.strerror:
        return 1, f"{f'{error.filename}: ' if error.filename else ''}{error.strerror}."
    if isinstance(error, metricfit.data.NotEnoughMemoryError):
        return 1, f"{error} The option is --max-rows {error.max_rows}."
    if isinstance(error, MemoryError):
        return 1, "there is not enough memory; train on a part of the rows with --max-rows."
    if isinstance(error, ValueError | TypeError | ImportError):
        return 3 if isinstance(error, metricfit.data.BadDataError) else 1, str(error)
    return 1, f"{type(error).__name__}: {error}\nThis should not happen; run again with --debug and report it."
