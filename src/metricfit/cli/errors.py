"""What can go wrong, and the exit code it gets: 1 a failure, 2 a wrong call, 3 bad data."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["BadDataError", "CommandError", "Interrupted", "UsageError", "close_to"]


class CommandError(Exception):
    """A failure that the user is told in one message."""

    exit_code = 1


class UsageError(CommandError):
    """The call asks for something that does not exist or does not go together."""

    exit_code = 2


class BadDataError(CommandError):
    """The data cannot be used; the message names the file, and the line and column where there is one."""

    exit_code = 3


class Interrupted(BaseException):
    """Ctrl-C. Not a KeyboardInterrupt, which the training loop turns into an early end."""


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
