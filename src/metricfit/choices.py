"""What was decided without asking, typed, so that only people read the sentence; and hints for unknown names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Topic = Literal["metric", "folds", "columns", "unused", "baseline", "rows", "rule", "target", "file", "models"]


@dataclass(frozen=True)
class Choice:
    """Something that was decided without asking: a sentence, and the names of the arguments that change it."""

    topic: Topic
    text: str
    arguments: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.text


def close_to(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """The known names that resemble one, or (``otherwise``) the first of them, for the end of a message."""
    names = list(known)
    if close := difflib.get_close_matches(name, names, n=3, cutoff=0.5):
        return f"did you mean {' or '.join(map(repr, close))}?"
    return otherwise or f"there are {', '.join(map(repr, names[:20]))}{' and more' if len(names) > 20 else ''}."
