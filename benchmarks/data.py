"""Benchmark sets by name: from a local folder, from scikit-learn, or from OpenML."""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.catalogue import BUNDLED, KEEL_FOLDER, SOURCES, Source

__all__ = ["Dataset", "available", "load"]

_VARIABLE = "METRICFIT_DATA"


@dataclass(frozen=True, eq=False)
class Dataset:
    """One benchmark set.

    Attributes:
        name: The name it was loaded by.
        X: Features: a frame, or an array for images and with ``as_frame=False``.
        y: Class labels, in the order of the rows of ``X``.
        description: Where it came from and what to know about it.
        train_rows: The official split: the first ``train_rows`` rows are for training, the rest for testing;
            0 where there is no official split.
    """

    name: str
    X: Any
    y: Any
    description: str
    train_rows: int = 0

    @property
    def classes(self) -> list[Any]:
        """The class labels in sorted order, as plain Python values."""
        return list(np.unique(np.asarray(self.y)).tolist())

    @property
    def n_classes(self) -> int:
        """Number of distinct class labels."""
        return len(self.classes)

    @property
    def split(self) -> tuple[NDArray[np.intp], NDArray[np.intp]] | None:
        """Row indices of the official training and test parts, or None."""
        if not self.train_rows:
            return None
        rows = np.arange(len(self.y))
        return rows[: self.train_rows], rows[self.train_rows :]


def load(name: str, *, as_frame: bool = True) -> Dataset:
    """Load a benchmark set by its name.

    It is looked for in the folder that the environment variable ``METRICFIT_DATA`` names, then among the sets that
    come with scikit-learn, then on OpenML (kept in scikit-learn's cache, see :func:`sklearn.datasets.get_data_home`).
    OpenML's copies may name columns and classes differently; the description says where the data came from.

    Args:
        name: One of :func:`available`, e.g. ``"adult"`` or ``"keel/glass1"``.
        as_frame: Whether ``X`` and ``y`` are pandas objects; images are always arrays.

    Example:
        >>> iris = load("iris")
        >>> iris.X.shape, iris.n_classes
        ((150, 4), 3)
    """
    folder = _folder()
    if name in BUNDLED:
        dataset = _from_sklearn(name)
    elif (source := _source(name)) is None:
        raise _unknown(name)
    elif folder is not None and all((folder / file).is_file() for file in source.files):
        dataset = _from_folder(name, source, folder)
    else:
        dataset = _from_openml(name, source, folder)
    if as_frame:
        return dataset
    return replace(dataset, X=np.asarray(dataset.X), y=np.asarray(dataset.y))


def available(*, offline: bool = False) -> list[str]:
    """Names that :func:`load` knows, sorted; the KEEL sets only where ``METRICFIT_DATA`` has them.

    Args:
        offline: Only those that need no download.

    Example:
        >>> "iris" in available(offline=True)
        True
    """
    folder = _folder()
    names = set(BUNDLED)
    for name, source in SOURCES.items():
        here = folder is not None and all((folder / file).is_file() for file in source.files)
        if here or (source.openml is not None and not offline):
            names.add(name)
    if folder is not None:
        names.update(f"keel/{path.name.removesuffix('.csv.gz')}" for path in (folder / KEEL_FOLDER).glob("*.csv.gz"))
    return sorted(names)


def _folder() -> Path | None:
    value = os.environ.get(_VARIABLE)
    if not value:
        return None
    folder = Path(value).expanduser()
    if not folder.is_dir():
        raise FileNotFoundError(f"{_VARIABLE}: expected a folder of benchmark sets, got {value!r}, which is none.")
    return folder


def _source(name: str) -> Source | None:
    if name.startswith("keel/") and name.count("/") == 1:
        file = name.removeprefix("keel/")
        return Source(files=(f"{KEEL_FOLDER}/{file}.csv.gz",), note="KEEL's binary version; 1 = its positive class.")
    return SOURCES.get(name)


def _unknown(name: str) -> ValueError:
    names = sorted({*BUNDLED, *SOURCES, *available()})
    matches = difflib.get_close_matches(name, names, n=3)
    hint = f"did you mean {' or '.join(repr(m) for m in matches)}?" if matches else f"known: {', '.join(names)}."
    return ValueError(f"name: there is no benchmark set {name!r}; {hint}")


def _from_sklearn(name: str) -> Dataset:
    from sklearn import datasets

    bunch = getattr(datasets, f"load_{name}")(as_frame=True)
    names = ", ".join(f"{i} = {label}" for i, label in enumerate(bunch.target_names))
    return Dataset(name, bunch.data, bunch.target, f"Comes with scikit-learn. Classes: {names}.")


def _from_folder(name: str, source: Source, folder: Path) -> Dataset:
    description = f"From {_VARIABLE}. {source.note}".strip()
    if source.image_shape:
        parts = [np.load(folder / file) for file in source.files]
        images, labels = (np.concatenate([part[key] for part in parts]) for key in ("x", "y"))
        return Dataset(name, images, labels.astype(np.int64), description, source.train_rows)
    tables = [_read_table(folder / file, gaps=not source.text) for file in source.files]
    table = pd.concat(tables, ignore_index=True) if len(tables) > 1 else tables[0]
    y = table[source.target]
    if y.dtype.kind in "iu":
        y = y.astype(np.int64)
    if source.invert:
        y = 1 - y
    return Dataset(name, table.drop(columns=[source.target, *source.drop]), y, description, source.train_rows)


def _read_table(path: Path, *, gaps: bool) -> pd.DataFrame:
    if path.suffix == ".parquet":
        return pd.read_parquet(path)
    # Only "?" marks a gap in these files: words like "None" or "NA" are categories.
    return pd.read_csv(path, keep_default_na=False, na_values=["?", "<null>"] if gaps else None)


def _from_openml(name: str, source: Source, folder: Path | None) -> Dataset:
    place = f"{_VARIABLE} is not set" if folder is None else f"the folder in {_VARIABLE} lacks {source.files[0]}"
    advice = f"set {_VARIABLE} to a folder that has {', '.join(source.files)}"
    if source.openml is None:
        matches = difflib.get_close_matches(name, [n for n in available() if n != name], n=3)
        hint = f" Did you mean {' or '.join(repr(m) for m in matches)}?" if name.startswith("keel/") and matches else ""
        raise FileNotFoundError(f"name: {name!r} cannot be downloaded and {place}; {advice}.{hint}")
    from sklearn.datasets import fetch_openml

    try:
        bunch = fetch_openml(data_id=source.openml, as_frame=True, parser="auto")
    except Exception as error:  # urllib, HTTP, checksum and cache errors share no narrower type
        raise ConnectionError(
            f"name: {place}, and fetching {name!r} (OpenML data set {source.openml}) failed: {error}; {advice}."
        ) from error
    if len(bunch.data) != source.openml_rows:
        raise ValueError(
            f"name: OpenML data set {source.openml} has {len(bunch.data)} rows where {name!r} has "
            f"{source.openml_rows}: another version; {advice}."
        )
    y = _openml_labels(bunch.target, source)
    description = f"OpenML data set {source.openml}, its names of columns and classes. {source.note}".strip()
    if source.image_shape:
        return Dataset(name, _openml_images(bunch.data, source), y.to_numpy(), description, _openml_split(source))
    return Dataset(name, bunch.data, y, description, _openml_split(source))


def _openml_split(source: Source) -> int:
    # OpenML keeps Fashion-MNIST's train-then-test order; of the others that is not certain.
    return source.train_rows if source.openml == SOURCES["fashion_mnist"].openml else 0


def _openml_images(table: pd.DataFrame, source: Source) -> NDArray[np.uint8]:
    pixels = table.to_numpy(dtype=np.uint8)
    if len(source.image_shape) == 2:
        return pixels.reshape(-1, *source.image_shape)
    height, width, channels = source.image_shape
    return np.ascontiguousarray(pixels.reshape(-1, channels, height, width).transpose(0, 2, 3, 1))


def _openml_labels(target: Any, source: Source) -> pd.Series[Any]:
    labels = pd.Series(np.asarray(target, dtype=object)).astype(str).str.strip().rename("target")
    if source.openml_labels:
        return labels.map(dict(source.openml_labels))
    numbers = pd.to_numeric(labels, errors="coerce")
    return numbers.astype(np.int64) if numbers.notna().all() else labels
