"""The papers' images."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import load as load_benchmark

__all__ = ["Images", "load_images"]

CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
FASHION = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
CALTECH_SIDE = 128
"""East does not say to which size it brings the images of Caltech-256."""


class Images(NamedTuple):
    """uint8 images (n, C, H, W), their classes, the names of those, and the number of official training rows (or 0)."""

    X: NDArray[np.uint8]
    y: NDArray[np.int64]
    classes: list[str]
    train_rows: int


def load_images(name: str) -> Images:
    """CIFAR-10, Fashion-MNIST or Caltech-256.

    The files are packed tightly: what takes half a minute to unpack is kept in the system's temporary folder.
    """
    if name == "caltech256":
        return _caltech256()
    classes = {"cifar10": CIFAR10, "fashion_mnist": FASHION}[name]
    X, y, train_rows = _unpacked(name)
    return Images(X, y, list(classes), train_rows)


def _unpacked(name: str) -> tuple[NDArray[np.uint8], NDArray[np.int64], int]:
    source = hashlib.sha256(os.environ.get("METRICFIT_DATA", "OpenML").encode()).hexdigest()[:12]
    folder = Path(tempfile.gettempdir(), f"metricfit-papers-{os.getuid() if hasattr(os, 'getuid') else 0}")
    file = folder / f"{name}-{source}.npz"
    if file.exists():
        with np.load(file) as kept:
            return kept["X"], kept["y"], int(kept["train_rows"])
    dataset = load_benchmark(name)
    X: NDArray[Any] = np.asarray(dataset.X)
    # 28 x 28 images get the frame that the random crop to 32 x 32 gives them; grey ones stay one channel.
    X = np.moveaxis(X, -1, 1) if X.ndim == 4 else np.pad(X, ((0, 0), (2, 2), (2, 2)))[:, None]
    X, y = np.ascontiguousarray(X), np.asarray(dataset.y).astype(np.int64)
    folder.mkdir(mode=0o700, exist_ok=True)
    # Written under another name first: a killed run or one beside this must not leave half a file.
    half = folder / f"{file.stem}.{os.getpid()}.npz"
    np.savez(half, X=X, y=y, train_rows=dataset.train_rows)
    half.replace(file)
    return X, y, dataset.train_rows


def _caltech256() -> Images:
    place = os.environ.get("METRICFIT_DATA")
    folders = sorted(Path(place, "caltech256").glob("[0-9][0-9][0-9].*")) if place else []
    if not folders:
        raise FileNotFoundError(
            "caltech256: not to be had from OpenML; unpack 256_ObjectCategories.tar (Caltech's data archive, record "
            "nyy15-4j048) so that the folder in METRICFIT_DATA has caltech256/001.ak47 … caltech256/257.clutter."
        )
    from PIL import Image

    images, labels = [], []
    for label, folder in enumerate(folders):
        for file in sorted(folder.glob("*.jpg")):
            with Image.open(file) as image:
                images.append(np.asarray(image.convert("RGB").resize((CALTECH_SIDE, CALTECH_SIDE))))
            labels.append(label)
    X = np.ascontiguousarray(np.moveaxis(np.stack(images), -1, 1))
    return Images(X, np.array(labels), [folder.name[4:] for folder in folders], 0)
