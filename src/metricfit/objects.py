"""Objects as skops files, which hold no code: only types from a fixed list are written and read."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from typing import Any

import skops.io

__all__ = ["from_bytes", "to_bytes"]


def _untrusted(content: bytes, trusted: Sequence[str]) -> list[str]:
    return sorted(set(skops.io.get_untrusted_types(data=content)) - set(trusted))


def to_bytes(value: Any, trusted: Sequence[str], name: str) -> bytes:
    """The file of an object; a ValueError that starts with ``name`` where loading it would have to trust code.

    Args:
        value: The object.
        trusted: The types that it may hold, beside scikit-learn's and NumPy's own that skops trusts.
        name: What to call it in the error.
    """
    content: bytes = skops.io.dumps(value, compression=zipfile.ZIP_DEFLATED, compresslevel=1)
    if untrusted := _untrusted(content, trusted):
        raise ValueError(
            f"{name} holds {', '.join(untrusted)} and cannot be saved, because loading it would have to trust code; "
            "use scikit-learn's own estimators and transformers."
        )
    return content


def from_bytes(content: bytes, trusted: Sequence[str], name: str) -> Any:
    """The object again; a ValueError where the file holds a type that is not allowed."""
    if untrusted := _untrusted(content, trusted):
        raise ValueError(f"{name} holds the type {untrusted[0]}, which is not allowed in a model; nothing was run")
    return skops.io.loads(content, trusted=list(trusted))
