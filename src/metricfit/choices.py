"""What was decided without asking: typed, so that code acts on the topic and only people read the sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Choice", "Topic"]

Topic = Literal["metric", "folds", "columns", "unused", "baseline", "rows", "rule", "target", "file", "models"]


@dataclass(frozen=True)
class Choice:
    """Something that was decided without asking: a sentence, and the names of the arguments that change it."""

    topic: Topic
    text: str
    arguments: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.text
