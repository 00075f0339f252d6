"""Errors of the commands themselves: 1 a failure, 2 a wrong call. The library's errors get theirs in ``entry``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["CommandError", "Interrupted", "UsageError", "wrong_use"]


class CommandError(Exception):
    """A failure that is reported in one message; the program then ends with the exit code."""

    exit_code = 1


class UsageError(CommandError):
    """The call asks for something that does not exist, or combines options that exclude each other."""

    exit_code = 2


class Interrupted(BaseException):
    """Ctrl-C. Not a KeyboardInterrupt, which the training loop turns into an early end."""


@contextmanager
def wrong_use() -> Iterator[None]:
    """Report a library function's complaint about an argument as one about the option of that name."""
    try:
        yield
    except (ValueError, TypeError, FileExistsError, FileNotFoundError) as error:
        raise UsageError(f"--{error}") from None
