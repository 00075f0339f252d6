"""The folder itself: written in one step, read back only if every file is what was written."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from metricfit.files import write_synced

__all__ = ["DESCRIPTION", "ModelFolderError", "check_replaceable", "describe", "read_folder", "write_folder"]

FORMAT, VERSION = "metricfit.model", 4
DESCRIPTION = "model.json"
_FREE_TO_EDIT = ("README.md", "report.html")
"""Files for people: a model whose card was edited is still the same model."""


class ModelFolderError(ValueError):
    """A folder that is no model folder, or not the one that was written."""


def check_replaceable(path: Path, *, overwrite: bool) -> None:
    """Refuse to write where something is, unless it is a model (or nothing) and may be overwritten."""
    if not path.exists() and not path.is_symlink():
        return
    if not path.is_dir():
        raise FileExistsError(f"folder: {path} is a file; choose another name for the model folder.")
    if not any(path.iterdir()):
        return
    if not (path / DESCRIPTION).exists():
        raise FileExistsError(f"folder: {path} holds other files than a model; choose another folder.")
    if not overwrite:
        raise FileExistsError(
            f"folder: {path} holds a model already; overwrite it on purpose, or choose another folder."
        )


def write_folder(path: Path, contents: dict[str, bytes]) -> None:
    """Write all files into a hidden folder beside ``path``, then put it in its place in one step.

    ``model.json`` gets the checksums of the others, and its own.
    """
    path = path.absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    description = {"format": FORMAT, "version": VERSION, **json.loads(contents[DESCRIPTION])}
    description["files"] = {n: _sha(c) for n, c in contents.items() if n not in (*_FREE_TO_EDIT, DESCRIPTION)}
    description["checksum"] = _checksum(description)
    text = json.dumps(description, indent=2, ensure_ascii=False, allow_nan=False)
    contents = {**contents, DESCRIPTION: text.encode()}
    temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent))
    try:
        for name, content in contents.items():
            write_synced(temporary / name, content)
        temporary.chmod(0o755)
        _put_in_place(temporary, path)
    finally:
        # Holds the old folder after an exchange, the unfinished one after an error.
        shutil.rmtree(temporary, ignore_errors=True)


def read_folder(path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The checked description, and the bytes of the files it names.

    Raises:
        ModelFolderError: With the one thing that is wrong.
    """
    file = path / DESCRIPTION
    if not path.is_dir():
        raise ModelFolderError(f"{path}: no such model folder.")
    if not file.is_file():
        raise ModelFolderError(f"{path}: not a model folder, it has no {DESCRIPTION}.")
    try:
        description = json.loads(file.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError):
        raise ModelFolderError(f"{file}: damaged, it is not valid JSON; get the original folder.") from None
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise ModelFolderError(f"{file}: not the description of a metricfit model.")
    version = description.get("version")
    if version != VERSION:
        older = isinstance(version, int) and version < VERSION
        advice = "train the model again" if older else "upgrade metricfit"
        raise ModelFolderError(
            f"{path}: written in format version {version!r}, this metricfit reads {VERSION}; {advice}."
        )
    if description.get("checksum") != _checksum(description):
        raise ModelFolderError(f"{file}: changed since it was written; get the original folder.")
    contents = {}
    for name, expected in description["files"].items():
        try:
            content = (path / name).read_bytes()
        except FileNotFoundError:
            raise ModelFolderError(f"{path}: {name} is missing; get the complete folder.") from None
        if _sha(content) != expected:
            raise ModelFolderError(f"{path / name}: damaged or changed since it was written; get the original folder.")
        contents[name] = content
    return description, contents


def describe(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the checked content of ``model.json``, without importing torch."""
    return read_folder(Path(folder))[0]


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _checksum(description: dict[str, Any]) -> str:
    rest = {key: value for key, value in description.items() if key != "checksum"}
    return _sha(json.dumps(rest, sort_keys=True, ensure_ascii=False).encode())


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
    os.rename(path, aside)
    try:
        os.rename(new, path)
    except OSError:
        os.rename(aside, path)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _exchange(first: Path, second: Path) -> bool:
    """Swap two folders in one step, where the system can; whether it did."""
    with contextlib.suppress(OSError, AttributeError):
        system = ctypes.CDLL(None, use_errno=True)
        names = os.fsencode(first), os.fsencode(second)
        if sys.platform == "linux":
            at_working_directory, exchange = -100, 2
            done = system.renameat2(at_working_directory, names[0], at_working_directory, names[1], exchange)
            return bool(done == 0)
        if sys.platform == "darwin":
            swap = 2
            return bool(system.renamex_np(*names, swap) == 0)
    return False
