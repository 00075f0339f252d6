"""Checkpoints: written atomically, refused by any other run, read without running code."""

from __future__ import annotations

import hashlib
import io
import os
import re
import time
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import joblib
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._pytree import tree_map

from metricfit.files import write_synced, written_whole
from metricfit.metrics import CallableMetric

_FORMAT, _VERSION = "metricfit.checkpoint", 3


def fingerprint(*arrays: NDArray[Any] | None) -> str:
    """A hash of arrays: their shapes, types and values."""
    return str(joblib.hash([None if array is None else np.ascontiguousarray(array) for array in arrays], "sha1"))


def in_full(value: Any) -> str:
    """What a setting is, as a text that two settings share only if they do the same.

    Functions are told by their code and what they close over: two lambdas have one name.
    """
    if isinstance(value, CallableMetric):
        value = value.function
    if isinstance(value, partial):
        return f"partial{in_full((value.func, *value.args, *sorted(value.keywords.items())))}"
    if isinstance(value, tuple):
        return f"({', '.join(map(in_full, value))})"
    if isinstance(value, FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        bound = [*(value.__defaults__ or ()), *sorted((value.__kwdefaults__ or {}).items()), *cells]
        told = [_code_in_full(value.__code__), *map(in_full, bound)]
        return f"{value.__qualname__} {hashlib.sha256(';'.join(told).encode()).hexdigest()}"
    # An address in memory says nothing, and differs from run to run.
    return re.sub(r" at 0x[0-9a-f]+", "", str(value))


def _code_in_full(code: CodeType) -> str:
    constants = [_code_in_full(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names} {constants}"


class Resumable:
    """What has its state in tensors, or dictionaries of them, that a checkpoint keeps."""

    kept: tuple[str, ...]

    def state_dict(self) -> dict[str, Any]:
        """The tensors that are kept."""
        return {name: tree_map(Tensor.detach, getattr(self, name)) for name in self.kept}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put the kept numbers into the tensors that are there."""
        for name in self.kept:
            tree_map(Tensor.copy_, getattr(self, name), state[name])


class CheckpointFile:
    """One training run's file in a checkpoint directory, which is made.

    ``identity`` is what makes the run this run: another one's file is refused. Between two writes there are ``every``
    seconds, and 20 times what a write takes; the last one is always written.
    """

    def __init__(
        self, directory: str | os.PathLike[str], name: str, identity: dict[str, str], *, every: float = 1.0
    ) -> None:
        self.path = Path(directory) / f"{name}.pt"
        self.identity, self.every, self._written = identity, every, -float("inf")

    def load(self) -> dict[str, Any] | None:
        """The content of the last complete write, or None; an error if it is of another run."""
        if (content := read_checkpoint(self.path)) is None:
            return None
        if differs := [part for part, value in self.identity.items() if content["identity"].get(part) != value]:
            other = f"{self.path} is a checkpoint of another run, with other {' and '.join(differs)}"
            instead = "choose an empty directory, or delete that file to start anew"
            raise ValueError(f"checkpoint_dir: {other}; {instead}.")
        return dict(content["state"])

    def save(self, state: dict[str, Any], *, last: bool = False) -> None:
        """Write, unless a write was only just made."""
        started = time.monotonic()
        if not last and started - self._written < self.every:
            return
        content = {"format": _FORMAT, "version": _VERSION, "identity": self.identity, "state": state}
        # Into memory first: torch tells a full disk as a broken archive, a plain write as what it is.
        buffer = io.BytesIO()
        torch.save(content, buffer)
        with written_whole(self.path) as temporary:
            write_synced(temporary, buffer.getbuffer())
        self._written = time.monotonic()
        if self.every:  # networks of a wide table are large
            self.every = max(self.every, 20 * (self._written - started))


def read_checkpoint(path: Path) -> dict[str, Any] | None:
    """A checkpoint's content, tensors and plain values only; None if there is no file."""
    if not path.exists():
        return None
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # the reader of a file that is none may stumble over anything
        raise ValueError(f"checkpoint_dir: {path} is not a checkpoint that can be read; delete it.") from error
    if not isinstance(content, dict) or content.get("format") != _FORMAT or content.get("version") != _VERSION:
        raise ValueError(f"checkpoint_dir: {path} is not a checkpoint of this version of metricfit; delete it.")
    return content
