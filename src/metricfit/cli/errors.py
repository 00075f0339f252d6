"""What can go wrong, and the exit code it gets: 1 a failure, 2 a wrong call, 3 bad data."""

from __future__ import annotations

__all__ = ["CommandError", "Interrupted", "UsageError"]


class CommandError(Exception):
    """A failure that the user is told in one message."""

    exit_code = 1


class UsageError(CommandError):
    """The call asks for something that does not exist or does not go together."""

    exit_code = 2


class Interrupted(BaseException):
    """Ctrl-C. Not a KeyboardInterrupt, which the training loop turns into an early end."""
