"""Commands whose repeated options also take several values in a row, and whose help shows no type for a switch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from typer.core import TyperCommand, TyperGroup

__all__ = ["Command", "Group", "spread"]


class Command(TyperCommand):
    """A command for which ``--ignore a b c`` is ``--ignore a --ignore b --ignore c``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse, with values that follow one another given an option each."""
        return super().parse_args(ctx, spread(args, self.get_params(ctx)))

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters, as they are shown."""
        return _shown(super().get_params(ctx))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The pieces of the usage line; a required argument stands without braces."""
        return [piece.strip("{}") for piece in super().collect_usage_pieces(ctx)]


class Group(TyperGroup):
    """The program itself."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters, as they are shown."""
        return _shown(super().get_params(ctx))


def spread(arguments: Sequence[str], parameters: Sequence[Any]) -> list[str]:
    """Repeat an option that may be repeated before each of the values that follow it.

    A value counts as one of the option's only when the command has all its arguments already, so ``predict --keep id
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


def _shown(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        # A switch takes no value; its type in the help would say that it does.
        if getattr(parameter, "is_flag", False) and parameter.metavar is None:
            parameter.metavar = ""
    return parameters
