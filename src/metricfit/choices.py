"""What was decided without asking: typed, so that code acts on the topic and only people read the sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Choice", "Topic"]

Topic = Literal["metric", "folds", "columns", "unused", "baseline", "rows", "rule", "target", "file", "models"]
"""What a choice is about."""


@dataclass(frozen=True)
class Choice:
    """Something that was decided without asking.

    Attributes:
        topic: What it is about: the ``"metric"``, the ``"folds"``, how ``"columns"`` were read, ``"unused"`` columns,
            the ``"baseline"``, the ``"rows"``, the decision ``"rule"``, the ``"target"``, the ``"file"`` or the
            ``"models"``.
        text: The sentence, without its capital and full stop.
        arguments: Names of the arguments that change it, as Python spells them.

    >>> print(Choice("folds", "5 splits, as given"))
    5 splits, as given
    """

    topic: Topic
    text: str
    arguments: tuple[str, ...] = ()

    def __str__(self) -> str:
        """The sentence."""
        return self.text
