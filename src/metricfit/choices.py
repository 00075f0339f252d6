"""What was decided without asking, typed; what may be chosen; names with parameters; hints for unknown names."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

Topic = Literal["metric", "folds", "columns", "unused", "baseline", "rows", "rule", "target", "file", "models"]


@dataclass(frozen=True)
class Choice:
    """Something that was decided without asking: a sentence, and the names of the arguments that change it."""

    topic: Topic
    text: str
    arguments: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.text


class Range(NamedTuple):
    """Numbers from low to high that a search may try, whole if both are, by default on a logarithmic scale."""

    low: float
    high: float
    log: bool = True


Space = dict[str, Range | tuple[Any, ...]]
"""Of each parameter that a search may change its range, or the values to choose from."""


def parts_of(spec: str) -> tuple[str, dict[str, Any]]:
    """The name and the parameters of a spec; a value is a number, whole numbers as in 64-32, true, false or a text.

    >>> parts_of("default:learning_rate=0.05,hidden_sizes=64-32")
    ('default', {'learning_rate': 0.05, 'hidden_sizes': (64, 32)})
    """
    name, colon, rest = spec.partition(":")
    pairs = [pair.partition("=") for pair in rest.split(",")] if colon else []
    if wrong := ["".join(pair) for pair in pairs if not all(pair)]:
        raise ValueError(f"{name}: expected parameters as in 'name:key=value,key=value', got {wrong[0]!r} in {spec!r}.")
    return name.strip(), {key.strip(): _value(text.strip()) for key, _, text in pairs}


def _value(text: str) -> Any:
    if re.fullmatch(r"\d+(-\d+)*-?", text) and "-" in text:
        return tuple(int(number) for number in text.split("-") if number)
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def spec_of(name: str, parts: Mapping[str, Any]) -> str:
    """The spec of a name and its parameters, numbers to four digits; :func:`parts_of` reads it.

    >>> spec_of("default", {"learning_rate": 0.0123456, "hidden_sizes": (64, 32)})
    'default:learning_rate=0.01235,hidden_sizes=64-32'
    """
    pairs = ",".join(f"{key}={_text(value)}" for key, value in parts.items())
    return f"{name}:{pairs}" if pairs else name


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return "-".join(map(str, value)) + "-" * (len(value) == 1)
    return f"{value:.4g}" if isinstance(value, float) else value if isinstance(value, str) else json.dumps(value)


def suggested(trial: Any, space: Space, prefix: str = "") -> dict[str, Any]:
    """A value of each parameter, as an Optuna trial suggests it; the trial's names have a prefix."""
    found: dict[str, Any] = {}
    for name, values in space.items():
        if isinstance(values, Range):
            suggest = trial.suggest_int if isinstance(values.low, int) else trial.suggest_float
            found[name] = suggest(prefix + name, values.low, values.high, log=values.log)
        else:
            found[name] = _value(trial.suggest_categorical(prefix + name, [_text(value) for value in values]))
    return found


def close_to(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """The known names that resemble one, or (``otherwise``) the first of them, for the end of a message."""
    names = list(known)
    if close := difflib.get_close_matches(name, names, n=3, cutoff=0.5):
        return f"did you mean {' or '.join(map(repr, close))}?"
    return otherwise or f"there are {', '.join(map(repr, names[:20]))}{' and more' if len(names) > 20 else ''}."
