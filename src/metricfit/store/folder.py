"""The folder itself: written in one step, read back only if every file is what was written."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from metricfit.files import names_the_file, write_synced
from metricfit.inputs import expect

FORMAT, OLDEST, VERSION = "metricfit.model", 5, 6
DESCRIPTION = "model.json"
TIMES = "times.json"
_FREE = ("README.md", "report.html", TIMES)
"""Files without a checksum. A model with an edited card is the same model, and no two runs take equally long."""
_CHANGED = "changed since it was written; get the original folder."
_LARGEST_JSON = 64 * 2**20
_NAME = re.compile(r"\w[\w.-]{0,99}")


class ModelFolderError(ValueError):
    """A folder that is no model folder, or not the one that was written."""


def check_replaceable(path: Path, *, overwrite: bool) -> None:
    """Refuse to write where something is, unless it is a model (or nothing) and may be overwritten."""
    if not os.path.lexists(path) or (path.is_dir() and not any(path.iterdir())):
        return
    if not path.is_dir():
        raise FileExistsError(f"folder: {path} is a file; choose another name for the model folder.")
    if not (path / DESCRIPTION).exists():
        raise FileExistsError(f"folder: {path} holds other files than a model; choose another folder.")
    if not overwrite:
        raise FileExistsError(f"folder: {path} holds a model; overwrite it on purpose, or choose another folder.")


def write_folder(path: Path, contents: dict[str, bytes]) -> None:
    """Write all files, with their checksums in ``model.json``, and put the folder in its place in one step."""
    path = path.absolute()
    for name in contents:
        expect(_NAME.fullmatch(name), "files", "plain names of letters, digits, '.', '-' and '_'", name)
    path.parent.mkdir(parents=True, exist_ok=True)
    description = {"format": FORMAT, "version": VERSION, **json.loads(contents[DESCRIPTION])}
    listed = {name: content for name, content in sorted(contents.items()) if name not in (*_FREE, DESCRIPTION)}
    description["files"] = {name: {"bytes": len(c), "sha256": _sha(c)} for name, c in listed.items()}
    description["checksum"] = _checksum(description)
    text = json.dumps(description, indent=2, ensure_ascii=False, allow_nan=False)
    contents = {**contents, DESCRIPTION: text.encode()}
    temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent))
    try:
        for name, content in contents.items():
            with names_the_file(path / name):
                write_synced(temporary / name, content)
        temporary.chmod(0o755)
        _put_in_place(temporary, path)
    finally:
        # Holds the old folder after an exchange, the unfinished one after an error.
        shutil.rmtree(temporary, ignore_errors=True)


@contextlib.contextmanager
def refused(path: Path) -> Iterator[None]:
    """Whatever a crafted file makes a reader trip over becomes one clear error."""
    try:
        yield
    except ModelFolderError:
        raise
    except Exception as error:
        reason = f"{error}" or type(error).__name__
        text = reason if len(reason) <= 300 else f"{reason[:300]} …"
        raise ModelFolderError(f"{path}: the files of this model do not fit together ({text}).") from error


def read_folder(path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The checked description, and the bytes of the files it names; call it within :func:`refused`."""
    file = path / DESCRIPTION
    if not path.is_dir():
        raise ModelFolderError(f"{path}: no such model folder.")
    content = _read(file)
    if content is None:
        raise ModelFolderError(f"{path}: not a model folder, it has no {DESCRIPTION}.")
    description = _parsed(file, content)
    contents = {}
    for name, listed in description["files"].items():
        if not _NAME.fullmatch(name) or name in (*_FREE, DESCRIPTION):
            raise ModelFolderError(f"{file}: lists a file named {name[:100]!r}, which is not allowed.")
        content = _read(path / name, listed["bytes"])
        if content is None:
            raise ModelFolderError(f"{path}: {name} is missing; get the complete folder.")
        if _sha(content) != listed["sha256"]:
            raise ModelFolderError(f"{path / name}: {_CHANGED}")
        contents[name] = content
    times = _read(path / TIMES)
    return description, contents if times is None else contents | {TIMES: times}


def _parsed(file: Path, content: bytes) -> dict[str, Any]:
    """The description, if it is one of this format and unchanged."""
    try:
        description: Any = json.loads(content.decode())
    except (ValueError, RecursionError):
        raise ModelFolderError(f"{file}: damaged, it is not valid JSON; get the original folder.") from None
    version = description.get("version") if isinstance(description, dict) else None
    if type(version) is not int or version < 1 or description["format"] != FORMAT:
        raise ModelFolderError(f"{file}: not the description of a metricfit model.")
    if not OLDEST <= version <= VERSION:
        advice = "train the model again" if version < VERSION else "upgrade metricfit"
        read = f"this metricfit reads {OLDEST} to {VERSION}; {advice}"
        raise ModelFolderError(f"{file}: written in format version {version}, {read}.")
    if description.get("checksum") != _checksum(description):
        raise ModelFolderError(f"{file}: {_CHANGED}")
    return dict(description)


def _read(file: Path, size: int | None = None) -> bytes | None:
    """A regular file of ``size`` bytes, or at most as large as a description may be; None if there is none."""
    try:
        status = os.lstat(file)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        raise ModelFolderError(f"{file}: not a regular file; get the original folder.")
    if status.st_size > _LARGEST_JSON if size is None else status.st_size != size:
        raise ModelFolderError(f"{file}: damaged or changed, it has {status.st_size:,} bytes; get the original folder.")
    # Without following a link or waiting for a pipe that took the file's place in the meantime.
    with open(os.open(file, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)), "rb") as opened:
        return opened.read(status.st_size)


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _checksum(description: dict[str, Any]) -> str:
    rest = {key: value for key, value in description.items() if key != "checksum"}
    return _sha(json.dumps(rest, sort_keys=True, allow_nan=False).encode())


def _put_in_place(new: Path, path: Path) -> None:
    try:
        os.rename(new, path)  # works where there is nothing, or an empty folder
        return
    except OSError:
        if not path.is_dir():
            raise
    if _exchange(new, path):
        return
    # Without an exchange in one step, the gap between two renames is as short as it can be.
    aside = new.with_suffix(".old")
    try:
        os.rename(path, aside)
        os.rename(new, path)
    except BaseException:  # Ctrl-C too
        if not path.exists():
            os.rename(aside, path)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _exchange(first: Path, second: Path) -> bool:
    """Swap two folders in one step, where the system can; whether it did."""
    one, other, here, swap = os.fsencode(first), os.fsencode(second), -100, 2
    with contextlib.suppress(OSError, AttributeError):
        system = ctypes.CDLL(None, use_errno=True)
        if sys.platform == "darwin":
            return bool(system.renamex_np(one, other, swap) == 0)
        return sys.platform == "linux" and bool(system.renameat2(here, one, here, other, swap) == 0)
    return False
