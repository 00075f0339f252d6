"""Held-out scores as a Parquet file: plain columns of numbers, read without running anything."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from metricfit.assess.scores import HeldOutScores

__all__ = ["SCORES", "scores_from", "scores_to_bytes"]

SCORES = "scores.parquet"
_MOST_NUMBERS = 12_000_000
"""Probabilities kept at most, about 50 MB; beyond it a stratified sample of the rows is kept."""
_KEY = b"metricfit.scores"


def scores_to_bytes(scores: HeldOutScores) -> bytes:
    """The file. Probabilities are float32; of two classes only the second's are kept."""
    columns = scores.proba.shape[1] * (1 if scores.baseline is None else 2)
    most = max(1, _MOST_NUMBERS // columns)
    if len(scores) > most:
        scores = scores.sample(most)
    binary = scores.truth.ndim == 1 and scores.proba.shape[1] == 2
    parts: dict[str, NDArray[Any]] = {}
    for name in ("truth", "decided", "baseline_tuned"):
        part = getattr(scores, name)
        if part is not None:
            parts |= _columns(name, part.astype(np.int32))
    for name in ("proba", "baseline"):
        part = getattr(scores, name)
        if part is not None:
            parts |= _columns(name, part[:, 1:] if binary else part)
    if scores.weight is not None:
        parts["weight"] = scores.weight
    about = {"source": scores.source, "total": scores.total, "cross_fitted": scores.cross_fitted, "binary": binary,
             "labels": scores.truth.ndim == 2}  # fmt: skip
    table = pa.table({name: pa.array(np.ascontiguousarray(values)) for name, values in parts.items()})
    buffer = io.BytesIO()
    pq.write_table(table.replace_schema_metadata({_KEY: json.dumps(about).encode()}), buffer, compression="zstd")
    return buffer.getvalue()


def scores_from(content: bytes) -> HeldOutScores:
    """Read :func:`scores_to_bytes` back; whatever does not fit together is a ValueError."""
    table = pq.read_table(pa.BufferReader(content))
    about = json.loads((table.schema.metadata or {})[_KEY])
    names = table.column_names
    labels, binary = bool(about["labels"]), bool(about["binary"])

    def matrix(name: str, dtype: Any) -> Any:
        found = [n for n in names if n == name or (n.startswith(f"{name}_") and n[len(name) + 1 :].isdigit())]
        if not found:
            return None
        read = [np.asarray(table.column(n).to_numpy(), dtype=dtype) for n in found]
        return read[0] if found == [name] else np.stack(read, axis=1)

    def probabilities(name: str) -> Any:
        found = matrix(name, np.float32)
        return np.concatenate([1 - found, found], axis=1) if binary and found is not None else found

    truth = matrix("truth", np.int64)
    if truth is None or (truth.ndim == 2) != labels:
        raise ValueError("the scores hold no truth")
    weight = np.asarray(table.column("weight").to_numpy(), dtype=np.float64) if "weight" in names else None
    return HeldOutScores(
        truth, probabilities("proba"), matrix("decided", np.int64), probabilities("baseline"),
        matrix("baseline_tuned", np.int64), weight, str(about["source"]), about["total"], bool(about["cross_fitted"]),
    )  # fmt: skip


def _columns(name: str, values: NDArray[Any]) -> dict[str, NDArray[Any]]:
    if values.ndim == 1:
        return {name: values}
    return {f"{name}_{k}": values[:, k] for k in range(values.shape[1])}
