"""The program ``metricfit``: its commands, how their words are read, and what becomes of errors."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from metricfit.cli import advise, compare, demo, evaluate, export, importance, metrics, predict, report, train, tune
from metricfit.cli.output import CommandError, Interrupted

__all__ = ["app", "main", "spread"]


class Plain:
    """A command or program whose help shows no type where a switch takes no value."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters, as they are shown."""
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for parameter in parameters:
            if getattr(parameter, "is_flag", False) and parameter.metavar is None:
                parameter.metavar = ""
        return parameters


class Program(Plain, TyperGroup):
    """The program itself."""


class Command(Plain, TyperCommand):
    """A command for which ``--ignore a b c`` is ``--ignore a --ignore b --ignore c``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse, after giving each of several values in a row an option of its own."""
        return super().parse_args(ctx, spread(args, self.get_params(ctx)))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The pieces of the usage line; a required argument stands without braces."""
        return [piece.strip("{}") for piece in super().collect_usage_pieces(ctx)]


def spread(arguments: Sequence[str], parameters: Sequence[Any]) -> list[str]:
    """Repeat an option that may be repeated before each of the values that follow it.

    A value belongs to the option only when the command has all its arguments already, so ``predict --keep id
    model new.csv`` still has two of them; what would be one too many is a value.

    Args:
        arguments: The words of the command line.
        parameters: The command's arguments and options.
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
    cls=Program,
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


def _as_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with one option for each field of the dataclasses it takes."""
    hints, flat = get_type_hints(command, include_extras=True), []
    bundles: dict[str, Any] = {}
    for parameter in inspect.signature(command).parameters.values():
        parts = [parameter]
        if is_dataclass(kind := hints[parameter.name]):
            hints |= get_type_hints(kind, include_extras=True)
            bundles[parameter.name] = kind
            parts = list(inspect.signature(bundles[parameter.name]).parameters.values())
        flat += [p.replace(annotation=hints[p.name], kind=inspect.Parameter.KEYWORD_ONLY) for p in parts]

    def call(**given: Any) -> None:
        made = {n: kind(**{f.name: given.pop(f.name) for f in fields(kind)}) for n, kind in bundles.items()}
        with made["output"].held:
            command(**given, **made)

    vars(call)["__signature__"] = inspect.Signature(flat)
    return call


def _help_of(command: Any) -> str:
    """The docstring with its lines joined into paragraphs; brackets are text, not markup."""
    paragraphs = inspect.cleandoc(command.__doc__).split("\n\n")
    return "\n\n".join(" ".join(p.split()) for p in paragraphs).replace("[", "\\[")


for _module in (train, compare, predict, evaluate, importance, report, tune, export, metrics, advise, demo):
    _name = _module.__name__.rpartition(".")[2]
    app.command(_name, cls=Command, help=_help_of(_module.command))(_as_options(_module.command))


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
    from metricfit.data import BadArgumentError, BadDataError, NotEnoughMemoryError

    if isinstance(error, BadArgumentError):
        option = "" if error.argument == "path" else f"--{error.argument.replace('_', '-')}: "
        return 2, f"{option}{error.problem}"
    if isinstance(error, BadDataError):
        return 3, str(error)
    if isinstance(error, OSError) and error.strerror:
        return 1, f"{f'{error.filename}: ' if error.filename else ''}{error.strerror}."
    if isinstance(error, NotEnoughMemoryError):
        return 1, f"{error} The option is --max-rows {error.max_rows}."
    if isinstance(error, MemoryError):
        return 1, "there is not enough memory; train on a part of the rows with --max-rows."
    if isinstance(error, ValueError | TypeError | ImportError):
        return 1, str(error)
    return 1, f"{type(error).__name__}: {error}\nThis should not happen; run again with --debug and report it."
