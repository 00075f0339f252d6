"""What can be wrong with a table, or with what is asked of it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["BadArgumentError", "BadDataError", "BadValueError", "close_to"]


class BadDataError(ValueError):
    """The data cannot be used; the message names the file, and the line and column where there is one."""


class BadArgumentError(ValueError):
    """An argument asks for something that the table does not have; ``problem`` says what to do."""

    def __init__(self, argument: str, problem: str) -> None:
        super().__init__(f"{argument}: {problem}")
        self.argument, self.problem = argument, problem


class BadValueError(ValueError):
    """A value, and its row, that a column cannot hold."""

    def __init__(self, row: int, value: str, expected: str) -> None:
        super().__init__(f"expected {expected}, got {value!r}")
        self.row, self.value = row, value


def close_to(name: str, known: Iterable[str]) -> str:
    """The known names that resemble one, or the first of them, for the end of a message.

    >>> close_to("chrun", ["churn", "age"])
    "did you mean 'churn'?"
    """
    names = list(known)
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if close:
        return "did you mean " + " or ".join(repr(match) for match in close) + "?"
    shown = ", ".join(repr(n) for n in names[:20])
    return f"there are {shown}{' and more' if len(names) > 20 else ''}."
