"""Columns that were not used, or not as they are written, in words."""

from __future__ import annotations

import warnings
from typing import Any

from metricfit.choices import Choice
from metricfit.data.preprocessing import IDENTIFIER, TablePreprocessor

__all__ = ["columns_in_words", "unused_in_words", "warn_of_unused"]


def columns_in_words(preprocessor: Any) -> list[Choice]:
    """What was decided about columns without asking; nothing for other preprocessors than the built-in one.

    >>> for choice in columns_in_words(TablePreprocessor().fit([["1.5", 0], ["2.5", 0], ["3.5", 0]])):
    ...     print(choice)
    column 'x0' written as text was read as numbers
    column 'x1' not used: constant
    """
    if not isinstance(preprocessor, TablePreprocessor):
        return []
    read = [c.name for c in preprocessor.columns_ if c.format.text and c.format.kind == "number"]
    told = [f"{_named(read)} written as text {'was' if len(read) == 1 else 'were'} read as numbers"] if read else []
    return [Choice("columns", text) for text in told] + [Choice("unused", t) for t in unused_in_words(preprocessor)]


def unused_in_words(preprocessor: Any) -> list[str]:
    """The columns that the built-in preprocessor dropped, a line a reason."""
    if not isinstance(preprocessor, TablePreprocessor):
        return []
    dropped = [c for c in preprocessor.describe() if c.dropped]
    reasons = dict.fromkeys(c.dropped for c in dropped)
    return [f"{_named([c.name for c in dropped if c.dropped == reason])} not used: {reason}" for reason in reasons]


def warn_of_unused(preprocessor: Any, *, stacklevel: int = 2) -> None:
    """Warn of text that was dropped, and of a table of which nothing is left.

    Args:
        preprocessor: Fitted; only the built-in one is looked at.
        stacklevel: As for :func:`warnings.warn`, seen from the caller.
    """
    if not isinstance(preprocessor, TablePreprocessor):
        return
    columns = preprocessor.describe()
    texts = [c.name for c in columns if c.dropped == IDENTIFIER]
    if not any(c.features for c in columns):
        message = (
            "X: no column can be used, so every row will get the same probabilities "
            f"({'; '.join(unused_in_words(preprocessor))}). Give columns that vary; turn text into numbers, dates or "
            "categories that repeat."
        )
    elif texts:
        message = (
            f"X: {_named(texts)} not used: {IDENTIFIER}. Leave out of X what says nothing; turn the rest into numbers, "
            "dates or categories that repeat."
        )
    else:
        return
    warnings.warn(message, UserWarning, stacklevel=stacklevel + 1)


def _named(names: list[str]) -> str:
    some = ", ".join(repr(name) for name in names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return f"column{'s' if len(names) > 1 else ''} {some}"
