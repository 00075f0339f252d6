"""Objects as skops files, which hold no code: the same bytes for the same object, read within limits of size."""

from __future__ import annotations

import io
import json
import math
import zipfile
import zlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import skops.io
from skops.io._utils import SaveContext, get_state
from skops.io.exceptions import UntrustedTypesFoundException

_SCHEMA = "schema.json"
_TRIED = 2**18
_FREE, _MULTIPLE, _SCHEMA_MULTIPLE = 2**24, 50, 10
"""A file may unpack to 50 times its size and 16 MB, its schema to 10 times; beyond, it is written uncompressed."""


class _Named(zipfile.ZipFile):
    """skops looks for a name among all before it writes an array: in a list the trees of ten classes take long."""

    def namelist(self) -> Any:
        return self.NameToInfo.keys()


def to_bytes(value: Any, trusted: Sequence[str], name: str) -> bytes:
    """The file of an object; a ValueError that starts with ``name`` where loading it would have to trust code."""
    raw = _dumped(value)
    if untrusted := _untrusted(raw, trusted):
        why = "because loading it would have to trust code; use scikit-learn's own estimators and transformers"
        raise ValueError(f"{name} holds {', '.join(untrusted)} and cannot be saved, {why}.")
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        members = _numbered({member: _without_gaps(archive.read(member)) for member in archive.namelist()})
    del raw  # a forest of many rows takes hundreds of megabytes
    content = _packed(members, zipfile.ZIP_DEFLATED)
    try:
        _check(members, len(content))
    except ValueError:
        content = _packed(members, zipfile.ZIP_STORED)
        _check(members, len(content))
    return content


def from_bytes(content: bytes, trusted: Sequence[str], name: str) -> Any:
    """The object again; a ValueError where the file holds a type that is not allowed, or more than its size allows."""
    raw = _packed(_unpacked(content), zipfile.ZIP_STORED)
    try:
        return skops.io.loads(raw, trusted=list(trusted))
    except UntrustedTypesFoundException:
        found = f"{name} holds the type {_untrusted(raw, trusted)[0]:.200}"
        raise ValueError(f"{found}, which is not allowed in a model; nothing was run") from None


def _dumped(value: Any) -> bytes:
    """What ``skops.io.dumps`` writes, into a :class:`_Named` archive and without the schema's slow indentation."""
    buffer = io.BytesIO()
    with _Named(buffer, "w") as archive:
        context = SaveContext(zip_file=archive)
        state = get_state(value, context)
        context.clear_memo()
        state |= {"protocol": context.protocol, "_skops_version": skops.__version__}
        archive.writestr(_SCHEMA, json.dumps(state))
    return buffer.getvalue()


def _untrusted(content: bytes, trusted: Sequence[str]) -> list[str]:
    return sorted(set(skops.io.get_untrusted_types(data=content)) - set(trusted))


def _without_gaps(member: bytes) -> bytes:
    """A member; between the fields of a tree's nodes lies whatever was in memory, which is no part of them."""
    if b"'descr': [" not in member[:100]:
        return member
    array = np.load(io.BytesIO(member))
    clean = bytearray(array.nbytes)  # zeros_like leaves the gaps as they are
    for name in array.dtype.names:
        np.frombuffer(clean, array.dtype)[name] = array[name]
    return member[: len(member) - array.nbytes] + clean


def _numbered(members: dict[str, bytes]) -> dict[str, bytes]:
    """The members of a file with numbers in place of addresses in memory, by which skops names objects."""
    numbers: dict[str, int] = {}

    def renamed(name: str) -> str:
        stem, dot, ending = name.partition(".")
        return f"{numbers.setdefault(stem, len(numbers))}{dot}{ending}"

    def numbered(node: dict[str, Any]) -> dict[str, Any]:
        if "__id__" in node:
            # Whether two equal texts are one object depends on whether they were read from a file.
            is_value = node.get("__loader__") == "JsonNode"
            node["__id__"] = int(renamed(f"value {len(numbers)}" if is_value else str(node["__id__"])))
        if node.get("file") in members:
            node["file"] = renamed(node["file"])
        return node

    schema = json.dumps(json.loads(members.pop(_SCHEMA), object_hook=numbered)).encode()
    return {renamed(name): content for name, content in members.items()} | {_SCHEMA: schema}


def _packed(members: dict[str, bytes], compression: int) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", compression, compresslevel=1) as archive:
        for name, content in members.items():
            place = zipfile.ZipInfo(name)  # of 1980, not of now
            # A large member is tried on its first part: numbers with all their digits take long and hardly shrink.
            shrinks = len(content) <= _TRIED or len(zlib.compress(content[:_TRIED], 1)) < 0.8 * _TRIED
            place.compress_type = compression if shrinks else zipfile.ZIP_STORED
            archive.writestr(place, content)
    return packed.getvalue()


def _unpacked(content: bytes) -> dict[str, bytes]:
    """The members of a file that stay within the limits."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        infos = archive.infolist()
        total = sum(info.file_size for info in infos)
        usual = {info.compress_type for info in infos} <= {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
        usual = usual and all(info.filename.endswith((".json", ".npy", ".bin")) for info in infos)
        if not usual or total > _FREE + _MULTIPLE * len(content):
            raise ValueError(f"{len(content):,} bytes that unpack to {total:,}, or hold what no model has")
        members = {}
        for info in infos:
            with archive.open(info) as file:
                members[info.filename] = file.read(info.file_size)  # no more than that, whatever is packed
    _check(members, len(content))
    return members


def _check(members: dict[str, bytes], size: int) -> None:
    """Whether members, counted as often as the schema refers to them, are within the limits of a file of this size."""
    if len(members[_SCHEMA]) > _FREE + _SCHEMA_MULTIPLE * size:
        raise ValueError(f"{size:,} bytes with a schema of {len(members[_SCHEMA]):,}")
    named: Counter[str] = Counter()
    json.loads(members[_SCHEMA], object_hook=lambda node: named.update({str(node.get("file"))} & members.keys()))
    total = sum(len(content) * (1 + named[name]) for name, content in members.items())
    if total > _FREE + _MULTIPLE * size:
        raise ValueError(f"{size:,} bytes that unpack to {total:,}")
    for name, member in members.items():
        if name.endswith(".npy"):
            file, header = io.BytesIO(member), np.lib.format
            version = header.read_magic(file)
            read = header.read_array_header_1_0 if version == (1, 0) else header.read_array_header_2_0
            shape, _, dtype = read(file)
            if math.prod(shape) * dtype.itemsize > len(member):
                raise ValueError(f"an array that claims the shape {shape!s:.100}")
