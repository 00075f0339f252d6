"""Model folders as someone who knows the format could write them: sealed with right checksums, wrong within."""

from __future__ import annotations

import copy
import io
import json
import os
import random
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from metricfit.store import folder as format_

Description = dict[str, Any]
Contents = dict[str, bytes]


def read(path: Path) -> tuple[Description, Contents]:
    """The description and the other files, unchecked."""
    contents = {file.name: file.read_bytes() for file in path.iterdir()}
    return json.loads(contents.pop("model.json")), contents


def seal(path: Path, description: Description, contents: Contents, **listed: Any) -> None:
    """Write a folder whose checksums are right; ``listed`` replaces the list of files."""
    path.mkdir(parents=True, exist_ok=True)
    files = {n: {"bytes": len(c), "sha256": format_._sha(c)} for n, c in contents.items() if n not in format_._FREE}
    description = {**description, "files": files, **listed}
    description["checksum"] = format_._checksum(description)
    for name, content in contents.items():
        (path / name).write_bytes(content)
    (path / "model.json").write_text(json.dumps(description))


def zip_of(members: dict[str, bytes], *, claimed: dict[str, int] | None = None) -> bytes:
    """A deflated archive; ``claimed`` are sizes that it says its members have, with checksums that go with the lie."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    raw = bytearray(packed.getvalue())
    for name, size in (claimed or {}).items():
        crc = zlib.crc32(members[name][:size])
        for signature, at in ((b"PK\x03\x04", 14), (b"PK\x01\x02", 16)):
            start = -1
            while (start := raw.find(signature, start + 1)) >= 0:
                length = struct.unpack_from("<H", raw, start + (26 if at == 14 else 28))[0]
                begin = start + (30 if at == 14 else 46)
                if raw[begin : begin + length] == name.encode():
                    struct.pack_into("<I", raw, start + at, crc)
                    struct.pack_into("<I", raw, start + at + 8, size)
    return bytes(raw)


def skops_list(nodes: list[dict[str, Any]], **members: bytes) -> bytes:
    """A skops file of a list of nodes."""
    schema = {"__class__": "list", "__module__": "builtins", "__loader__": "ListNode", "__id__": 1, "content": nodes,
              "protocol": 2, "_skops_version": "0.16.0"}  # fmt: skip
    return zip_of({**{name.replace("_npy", ".npy"): c for name, c in members.items()},
                   "schema.json": json.dumps(schema).encode()})  # fmt: skip


def array_node(file: str, number: int) -> dict[str, Any]:
    """A node of an array in a file of the archive."""
    return {"__class__": "ndarray", "__module__": "numpy", "__loader__": "NdArrayNode", "type": "numpy", "file": file,
            "__id__": number}  # fmt: skip


def npy(shape: tuple[int, ...], data: bytes = b"", descr: str = "<f8") -> bytes:
    """An .npy file that claims a shape."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
    return file.getvalue() + data


def networks_of(description: Description) -> dict[str, Any]:
    """What the description says of the networks."""
    return next(model for model in description["models"] if model["kind"] == "networks")


def _fifo(path: Path, description: Description, contents: Contents) -> None:
    seal(path, description, contents)
    (path / "history.json").unlink()
    os.mkfifo(path / "history.json")


def _link(target: str) -> Callable[[Path, Description, Contents], None]:
    def made(path: Path, description: Description, contents: Contents) -> None:
        seal(path, description, contents)
        (path / "history.json").unlink()
        (path / "history.json").symlink_to(target)

    return made


def _directory(path: Path, description: Description, contents: Contents) -> None:
    seal(path, description, contents)
    (path / "history.json").unlink()
    (path / "history.json").mkdir()


def _fifo_for_description(path: Path, description: Description, contents: Contents) -> None:
    path.mkdir()
    os.mkfifo(path / "model.json")


def _listed(files: Any) -> Callable[[Path, Description, Contents], None]:
    return lambda path, description, contents: seal(path, description, contents, files=files)


def _with(**changes: Any) -> Callable[[Path, Description, Contents], None]:
    def made(path: Path, description: Description, contents: Contents) -> None:
        seal(path, {**description, **changes}, contents)

    return made


def _networks(**changes: Any) -> Callable[[Path, Description, Contents], None]:
    def made(path: Path, description: Description, contents: Contents) -> None:
        description = copy.deepcopy(description)
        networks_of(description).update(changes)
        seal(path, description, contents)

    return made


def _file(name: str, content: Callable[[], bytes]) -> Callable[[Path, Description, Contents], None]:
    return lambda path, description, contents: seal(path, description, {**contents, name: content()})


def _raw_description(change: Callable[[str], str]) -> Callable[[Path, Description, Contents], None]:
    def made(path: Path, description: Description, contents: Contents) -> None:
        seal(path, description, contents)
        (path / "model.json").write_text(change((path / "model.json").read_text()))

    return made


def _not_finite(value: float) -> Callable[[Path, Description, Contents], None]:
    def made(path: Path, description: Description, contents: Contents) -> None:
        import safetensors.numpy

        weights = safetensors.numpy.load(contents["network.safetensors"])
        first = next(iter(weights))
        weights[first] = np.full_like(weights[first], value)
        seal(path, description, {**contents, "network.safetensors": safetensors.numpy.save(weights)})

    return made


def _empty_weights(path: Path, description: Description, contents: Contents) -> None:
    """Shapes of 10⁹ networks without inputs: no byte of weights, gigabytes of biases."""
    import safetensors.numpy

    description = copy.deepcopy(description)
    networks_of(description).update(members=10**9, inputs=0, hidden_sizes=[])
    outputs = networks_of(description)["outputs"]
    weights = {"layers.0.weight": np.empty((10**9, 0, outputs), np.float32)}
    seal(path, description, {**contents, "network.safetensors": safetensors.numpy.save(weights)})


def _circle(path: Path, description: Description, contents: Contents) -> None:
    """A forest whose trees go round in circles: a prediction would never end."""
    from metricfit.models.estimators import TRUSTED
    from metricfit.objects import from_bytes, to_bytes

    fits = from_bytes(contents["forest.skops"], TRUSTED, "forest")
    for fitted in fits:
        for forest in fitted:
            for each in forest.estimators_:
                state = each.tree_.__getstate__()
                state["nodes"]["left_child"][state["nodes"]["left_child"] >= 0] = 0
                state["nodes"]["right_child"][state["nodes"]["right_child"] >= 0] = 0
                each.tree_.__setstate__(state)
    seal(path, description, {**contents, "forest.skops": to_bytes(fits, TRUSTED, "forest")})


def _repeated(path: Path, description: Description, contents: Contents) -> None:
    """Every model a thousand times."""
    seal(path, {**description, "models": description["models"] * 1000}, contents)


BIG, CURRENT = 10**10, f'"version": {format_.VERSION}'
LISTED = {"bytes": 1, "sha256": "0" * 64}
HOSTILE: dict[str, Callable[[Path, Description, Contents], None]] = {
    "a device": _listed({"/dev/zero": LISTED}),
    "a file elsewhere": _listed({"../../../../../../etc/passwd": LISTED}),
    "a path": _listed({"a/b": LISTED}),
    "a hidden file": _listed({".bashrc": LISTED}),
    "a file named NUL": _listed({"a\0b": LISTED}),
    "a file named by half a character": _listed({"\ud800": LISTED}),
    "a file of negative size": _listed({"history.json": {"bytes": -1, "sha256": "0" * 64}}),
    "a file of a size in words": _listed({"history.json": {"bytes": "many", "sha256": "0" * 64}}),
    "a list of files": _listed(["history.json"]),
    "no files": _listed(None),
    "files without sizes": _listed({"history.json": "0" * 64}),
    "a pipe": _fifo,
    "a pipe for a description": _fifo_for_description,
    "a link to a device": _link("/dev/zero"),
    "a link to itself": _link("history.json"),
    "a folder in place of a file": _directory,
    "a description too large": _raw_description(lambda text: text + " " * 2**26),
    "a number of 5,000 digits": _raw_description(lambda text: text.replace(CURRENT, f'"version": {"9" * 5000}')),
    "nested too deep": _raw_description(lambda text: "[" * 100_000),
    "NaN in the description": _raw_description(lambda text: text.replace(CURRENT, '"version": NaN')),
    "a negative version": _with(version=-1),
    "a version that is a truth value": _with(version=True),
    "100,000 networks": _networks(members=100_000),
    "huge networks": _networks(hidden_sizes=[16_000, 16_000]),
    "a million layers": _networks(hidden_sizes=[1] * 1_000_000),
    "networks without inputs": _empty_weights,
    "weights that are NaN": _not_finite(float("nan")),
    "weights that are infinite": _not_finite(float("inf")),
    "classes of 200 million characters": _with(classes={"values": ["no", "yes"], "dtype": "<U200000000"}),
    "nested classes": _with(classes={"values": [["no"], ["yes"]], "dtype": "object"}),
    "classes of dates": _with(classes={"values": ["no", "yes"], "dtype": "M8[s]"}),
    "256 MB in a zip": _file("preprocessing.skops", lambda: zip_of({"schema.json": b"[" + b" " * 2**28})),
    "a zip that lies about its size": _file(
        "preprocessing.skops", lambda: zip_of({"schema.json": b" " * 2**29}, claimed={"schema.json": 1000})
    ),
    "one array a hundred thousand times": _file(
        "preprocessing.skops",
        lambda: skops_list(
            [array_node("1.npy", k + 2) for k in range(100_000)],
            **{"1_npy": npy((2**17,), bytes(2**20))},  # type: ignore[arg-type]
        ),
    ),
    "an array that claims 80 GB": _file(
        "preprocessing.skops", lambda: skops_list([array_node("1.npy", 2)], **{"1_npy": npy((BIG,))})
    ),
    "a forest in circles": _circle,
    "each model a thousand times": _repeated,
    "scores of another table": _file("scores.safetensors", lambda: b"\x02\0\0\0\0\0\0\0{}"),
    "a header of scores that claims a gigabyte": _file("scores.safetensors", lambda: struct.pack("<Q", 2**30)),
}
"""Folders that must be refused, each in 10 s and in memory in proportion to its size."""


def mutated(random_: random.Random, description: Description, contents: Contents) -> tuple[Description, Contents]:
    """A folder with a few changes, each of which keeps to the structure of what it changes."""
    description, contents = copy.deepcopy(description), dict(contents)
    for _ in range(random_.choice((1, 1, 1, 2, 3))):
        name = random_.choice(["model.json"] * 4 + [n for n in contents if n not in format_._FREE])
        if name == "model.json":
            _mutate_json(random_, description)
        elif name.endswith(".json"):
            value = json.loads(contents[name])
            _mutate_json(random_, value)
            contents[name] = json.dumps(value).encode()
        elif name.endswith(".skops"):
            contents[name] = _mutate_skops(random_, contents[name])
        elif name.endswith(".safetensors"):
            contents[name] = _mutate_safetensors(random_, contents[name])
        else:
            contents[name] = _mutate_bytes(random_, contents[name])
    return description, contents


STRANGE: list[Any] = [
    None, True, -1, 0, 1, 2, 3.5, 10**6, 10**9, 10**18, 2**63, -(2**70), 1e308, 1e-320, "", "x", "é" * 500, "\ud800",
    "\0", "../x", [], {}, [[]], [0] * 1000, {"a": 1}, "f1", "<U9999999", "O", "number", "threshold",
    "f1[no] + " * 300 + "f1", "(" * 500, "roc_auc:thresholds=100000000", "annealed:temperature=1e-300",
    "fbeta:beta=1e308", "network", "estimators", "networks", "dense", "given",
]  # fmt: skip


def _places(value: Any, found: list[tuple[Any, Any]] | None = None) -> list[tuple[Any, Any]]:
    """Every container and key below a value."""
    found = [] if found is None else found
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in pairs:
        found.append((value, key))
        _places(part, found)
    return found


def _mutate_json(random_: random.Random, value: Any) -> None:
    places = _places(value)
    if not places:
        return
    place, key = random_.choice(places)
    how = random_.random()
    if how < 0.5:
        place[key] = copy.deepcopy(random_.choice(STRANGE))
    elif how < 0.65 and isinstance(place[key], int | float) and not isinstance(place[key], bool):
        place[key] = place[key] * random_.choice((-1, 0, 2, 10, 1000)) + random_.choice((-1, 0, 1))
    elif how < 0.8:
        other, at = random_.choice(places)
        place[key] = copy.deepcopy(other[at])
    elif how < 0.9 and isinstance(place[key], list):
        place[key] = place[key] * random_.choice((0, 2, 100)) if len(place[key]) < 1000 else place[key][:1]
    else:
        del place[key]


def _mutate_bytes(random_: random.Random, content: bytes) -> bytes:
    raw = bytearray(content)
    for _ in range(random_.choice((1, 1, 2, 8))):
        at = random_.randrange(len(raw) or 1)
        how = random_.random()
        if how < 0.6 and raw:
            raw[at] ^= 1 << random_.randrange(8)
        elif how < 0.8:
            raw[at:at] = bytes(random_.choices((0, 255, 34, 91, 123), k=random_.choice((1, 4, 1000))))
        else:
            del raw[at : at + random_.choice((1, 4, 1000))]
    return bytes(raw)


def _mutate_skops(random_: random.Random, content: bytes) -> bytes:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
            json.loads(members["schema.json"])
    except Exception:  # changed before
        return _mutate_bytes(random_, content)
    if random_.random() < 0.15:
        return _mutate_bytes(random_, content)
    name = random_.choice(["schema.json", *members])
    if name == "schema.json":
        schema = json.loads(members[name])
        if random_.random() < 0.3:
            loaders = ["ObjectNode", "ReduceNode", "TreeNode", "FunctionNode", "TypeNode", "MethodNode", "PartialNode"]
            nodes = [place for place, key in _places(schema) if key == "__loader__"]
            random_.choice(nodes)["__loader__"] = random_.choice([*loaders, "JsonNode", "NdArrayNode", "SetNode"])
        else:
            _mutate_json(random_, schema)
        members[name] = json.dumps(schema).encode()
    else:
        members[name] = _mutate_bytes(random_, members[name])
    return zip_of(members)


def _mutate_safetensors(random_: random.Random, content: bytes) -> bytes:
    try:
        (size,) = struct.unpack("<Q", content[:8])
        header, data = json.loads(content[8 : 8 + size]), content[8 + size :]
    except Exception:  # changed before
        return _mutate_bytes(random_, content)
    if random_.random() < 0.6:
        _mutate_json(random_, header)
        text = json.dumps(header).encode()
        length = len(text) if random_.random() < 0.9 else random_.choice((0, 2**20, 2**62))
        return struct.pack("<Q", length) + text + data
    return content[: 8 + size] + _mutate_bytes(random_, data)
