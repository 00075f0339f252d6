"""Exact confusion matrices from label and score arrays, for evaluation."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from metricfit.confusion import ConfusionMatrix

__all__ = ["class_labels", "confusion_from_labels", "encode_labels", "sweep_scores"]

_CONVENTIONAL_PAIRS: tuple[tuple[Any, Any], ...] = ((0, 1), (-1, 1))


def confusion_from_labels(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    labels: Sequence[Hashable] | None = None,
    sample_weight: ArrayLike | None = None,
) -> ConfusionMatrix:
    """The exact confusion matrix of predicted labels; (n,) labels or (n, L) 0/1 indicators.

    Classes are those that occur in either array, in sorted order, unless ``labels`` gives them. Two classes
    make a binary matrix; a lone 0, 1 or -1 is completed to its usual pair.

    >>> confusion_from_labels(["cat", "dog", "dog"], ["cat", "dog", "cat"]).matrix
    tensor([[1., 0.],
            [1., 1.]], dtype=torch.float64)
    """
    true, pred = as_label_array(y_true, "y_true"), as_label_array(y_pred, "y_pred")
    if true.shape != pred.shape:
        raise ValueError(f"y_pred: expected the shape of y_true, {true.shape}, got {pred.shape}.")
    weight = _weights(sample_weight, len(true))
    if true.ndim == 2:
        return _indicator_confusion(true, pred, weight, labels)
    classes = class_labels(true, pred, labels=labels)
    rows, columns = encode_labels(true, classes, "y_true"), encode_labels(pred, classes, "y_pred")
    size = len(classes)
    matrix = np.bincount(rows * size + columns, weights=weight, minlength=size * size).astype(np.float64)
    task = "binary" if size == 2 else "multiclass"
    return ConfusionMatrix(torch.from_numpy(matrix.reshape(size, size)), task, classes)  # type: ignore[arg-type]


def sweep_scores(
    y_true: ArrayLike,
    score: ArrayLike,
    *,
    labels: Sequence[Hashable] | None = None,
    sample_weight: ArrayLike | None = None,
) -> ConfusionMatrix:
    """The confusion matrices at *every* distinct cut-off of the scores, from high to low.

    Binary: scores (n,) of the second class. Multiclass or multi-label: scores (n, classes), one class against the
    rest each; the matrices are then of a multi-label task, shape (cut-offs, classes, 2, 2), where classes with
    fewer distinct scores repeat their last matrix.
    """
    true = as_label_array(y_true, "y_true")
    scores = np.asarray(score, dtype=np.float64)
    if not np.isfinite(scores).all():
        raise ValueError("y_pred: scores must be finite, got NaN or infinity.")
    if len(scores) != len(true):
        raise ValueError(f"y_pred: expected {len(true)} scores, one a sample of y_true, got {len(scores)}.")
    weight = _weights(sample_weight, len(true))
    if scores.ndim == 1:
        classes = class_labels(true, labels=labels)
        if len(classes) != 2:
            raise ValueError(
                f"y_pred: scores of shape {scores.shape} need a binary y_true, got {len(classes)} classes; give one "
                "column of scores a class."
            )
        positive = encode_labels(true, classes, "y_true") == 1
        return ConfusionMatrix(torch.from_numpy(_sweep(positive, scores, weight)), "binary", classes)
    if true.ndim == 2:
        indicator, names = true.astype(bool), tuple(labels) if labels is not None else None
    else:
        names = class_labels(true, labels=labels)
        indicator = encode_labels(true, names, "y_true")[:, None] == np.arange(len(names))
    if indicator.shape != scores.shape:
        raise ValueError(f"y_pred: expected scores of shape {indicator.shape}, got {scores.shape}.")
    sweeps = [_sweep(indicator[:, k], scores[:, k], weight) for k in range(scores.shape[1])]
    longest = max(len(s) for s in sweeps)
    padded = [np.concatenate([s, np.repeat(s[-1:], longest - len(s), axis=0)]) for s in sweeps]
    return ConfusionMatrix(torch.from_numpy(np.stack(padded, axis=1)), "multilabel", names)


def _sweep(positive: NDArray[np.bool_], score: NDArray[Any], weight: NDArray[Any] | None) -> NDArray[np.float64]:
    order = np.argsort(score, kind="stable")[::-1]
    w = np.ones(len(score)) if weight is None else weight[order]
    hit = positive[order]
    last_of_tie = np.append(np.flatnonzero(np.diff(score[order])), len(score) - 1)
    tp = np.append(0.0, np.cumsum(w * hit)[last_of_tie])
    fp = np.append(0.0, np.cumsum(w * ~hit)[last_of_tie])
    return np.stack([fp[-1] - fp, fp, tp[-1] - tp, tp], axis=-1).reshape(-1, 2, 2)


def _indicator_confusion(
    true: NDArray[Any], pred: NDArray[Any], weight: NDArray[Any] | None, labels: Sequence[Hashable] | None
) -> ConfusionMatrix:
    for name, values in (("y_true", true), ("y_pred", pred)):
        if not np.isin(values, (0, 1)).all():
            raise ValueError(f"{name}: a multi-label array of shape {values.shape} must hold 0 and 1 only.")
    y, p = true.astype(bool), pred.astype(bool)
    w = np.ones(len(y)) if weight is None else weight
    cells = [(~y & ~p), (~y & p), (y & ~p), (y & p)]
    matrix = np.stack([w @ cell.astype(np.float64) for cell in cells], axis=-1).reshape(-1, 2, 2)
    return ConfusionMatrix(torch.from_numpy(matrix), "multilabel", tuple(labels) if labels is not None else None)


def as_label_array(values: ArrayLike, name: str) -> NDArray[Any]:
    """Labels as an array of one or two dimensions, with a clear error for what is not."""
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu().numpy()
    array = np.asarray(values)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim not in (1, 2):
        raise ValueError(f"{name}: expected labels of shape (n,) or (n, labels), got {array.shape}.")
    if len(array) == 0:
        raise ValueError(f"{name}: expected at least one sample, got none.")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError(f"{name}: expected labels, got NaN or infinity.")
    if array.dtype.kind == "O" and any(v is None or v != v for v in array.ravel()):
        raise ValueError(f"{name}: expected labels, got a missing value.")
    return array


def class_labels(*arrays: NDArray[Any], labels: Sequence[Hashable] | None = None) -> tuple[Any, ...]:
    """The classes that occur (or those given), plain Python values in sorted order."""
    if labels is not None:
        classes = tuple(labels)
        if len(set(classes)) != len(classes) or not classes:
            raise ValueError(f"labels: expected distinct class labels, got {list(classes)}.")
        return classes
    try:
        found = np.unique(np.concatenate([np.unique(a) for a in arrays]))
    except TypeError as error:
        raise TypeError("y_true and y_pred: labels of mixed types (numbers and text) cannot be compared.") from error
    if len({a.dtype.kind in "US" for a in arrays}) > 1:
        raise TypeError("y_true and y_pred: one holds text, the other numbers; convert one of them.")
    classes = tuple(found.tolist())
    for pair in _CONVENTIONAL_PAIRS:
        if len(classes) == 1 and classes[0] in pair:
            kind: Any = type(classes[0])
            return (kind(pair[0]), kind(pair[1]))
    return classes


def encode_labels(values: NDArray[Any], classes: tuple[Any, ...], name: str) -> NDArray[np.intp]:
    """Positions of labels among the classes."""
    known = np.asarray(classes)
    if known.dtype.kind == "U" and values.dtype.kind not in "UO":
        known = np.asarray(classes, dtype=object)
    order = np.argsort(known, kind="stable")
    places = np.searchsorted(known[order], values)
    places = order[np.minimum(places, len(known) - 1)]
    wrong = known[places] != values
    if np.any(wrong):
        example = values[wrong][0]
        raise ValueError(f"{name}: label {example!r} is not among the classes {list(classes)[:20]}.")
    return np.asarray(places, dtype=np.intp)


def _weights(sample_weight: ArrayLike | None, n: int) -> NDArray[np.float64] | None:
    if sample_weight is None:
        return None
    weight = np.asarray(sample_weight, dtype=np.float64)
    if weight.shape != (n,):
        raise ValueError(f"sample_weight: expected shape ({n},), got {weight.shape}.")
    if not np.isfinite(weight).all() or (weight < 0).any():
        raise ValueError("sample_weight: expected finite weights >= 0.")
    if not weight.sum() > 0:
        raise ValueError("sample_weight: all weights are zero.")
    return weight
