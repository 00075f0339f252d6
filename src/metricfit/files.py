"""Files that appear whole or not at all, and JSON that every program reads."""

from __future__ import annotations

import errno
import json
import math
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # Windows: two runs are not kept apart
    fcntl = None  # type: ignore[assignment]


class BusyError(OSError):
    """Another process is writing to the same place."""


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other processes from writing to a path, by a :class:`BusyError` there; the lock ends with the process."""
    place = path.absolute().parent / f".{path.name}.lock"
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.open("a+b", buffering=0) as file:  # without a buffer, which a full disk would fail again at the end
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_held = not os.path.samestat(os.fstat(file.fileno()), place.stat())  # its holder has just removed it
        except OSError as error:  # a file system without locks does not keep two runs apart
            is_held = isinstance(error, BlockingIOError | FileNotFoundError)
        if is_held:
            file.seek(0)
            raise BusyError(f"process {file.read().decode().strip() or '?'} is writing to {path}")
        try:
            with names_the_file(place):
                file.truncate(0)
                file.write(f"{os.getpid()}".encode())
            yield
        finally:
            place.unlink(missing_ok=True)


@contextmanager
def written_whole(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A file to write to, which takes its place, below parents that are made, only when all is written."""
    place = Path(path).absolute()
    place.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{place.name}.", suffix=".tmp", dir=place.parent)
    os.close(handle)
    try:
        with names_the_file(place):
            yield Path(name)
            os.chmod(name, 0o644)
            os.replace(name, place)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


@contextmanager
def names_the_file(place: Path) -> Iterator[None]:
    """An error of the disk, full or over a limit, names the file that could not be written."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS):
            raise OSError(error.errno, error.strerror, str(place)) from error
        raise


def write_synced(path: Path, content: bytes | memoryview) -> None:
    """Write a file and wait until it is on the disk."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def to_json(content: Any) -> str:
    """JSON of values that may be NumPy's; numbers that are not finite, which JSON does not have, become null."""
    return json.dumps(_plain(content), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
