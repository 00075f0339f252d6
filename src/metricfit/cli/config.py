"""Options from a TOML file, and the TOML file of the options used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

__all__ = ["from_file", "to_toml"]

_SWITCHES = ("config", "debug", "help")


def from_file(context: typer.Context, path: Path | None) -> Path | None:
    """Take defaults from a TOML file whose keys are the names of the options."""
    if path is None or context.resilient_parsing:
        return path
    import tomllib

    try:
        with path.open("rb") as file:
            found = tomllib.load(file)
    except OSError as error:
        raise typer.BadParameter(f"{path}: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{path}: not valid TOML: {error}.") from None
    known = [p.name for p in context.command.params if p.name and p.name not in _SWITCHES]
    values = {key.replace("-", "_"): value for key, value in found.items()}
    for key in values:
        if key not in known:
            from metricfit.data.errors import close_to

            raise typer.BadParameter(f"{path}: {key!r} is no option of this command; {close_to(key, known)}")
    several = {p.name for p in context.command.params if getattr(p, "multiple", False)}
    for key in several & values.keys():
        if isinstance(values[key], str):
            values[key] = [values[key]]
    context.default_map = {**(context.default_map or {}), **values}
    return path


def to_toml(options: dict[str, Any]) -> str:
    """Options as TOML; those that were not given are left out.

    >>> print(to_toml({"data": "a b.csv", "seed": 0, "time": None, "ignore": ["id"]}), end="")
    data = "a b.csv"
    seed = 0
    ignore = ["id"]
    """
    lines = [f"{key} = {_value(value)}" for key, value in options.items() if value is not None and value != []]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ", ".join(_value(v) for v in value) + "]"
    if isinstance(value, str):
        # JSON's escapes are TOML's; only DEL must be written out in TOML as well.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)
