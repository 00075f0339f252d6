"""Files that appear whole or not at all."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["names_the_file", "write_synced", "written_whole"]


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
