"""Class labels of evaluation data: read arrays of labels and scores, encode them, name what is wrong with them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from metricfit.inputs import Task

__all__ = [
    "as_label_array",
    "checked_weights",
    "class_labels",
    "codes_of_labels",
    "encode_labels",
    "sweep_of_scores",
]

_CONVENTIONAL_PAIRS: tuple[tuple[Any, Any], ...] = ((0, 1), (-1, 1))


def codes_of_labels(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    labels: Sequence[Hashable] | None,
    sample_weight: ArrayLike | None,
) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.float64] | None, tuple[Any, ...] | None, Task]:
    """Codes of true and predicted labels (or 0/1 indicators), weights, class names and task."""
    true, pred = as_label_array(y_true, "y_true"), as_label_array(y_pred, "y_pred")
    if true.shape != pred.shape:
        raise ValueError(f"y_pred: expected the shape of y_true, {true.shape}, got {pred.shape}.")
    weight = checked_weights(sample_weight, len(true))
    if true.ndim == 2:
        _check_indicator(true, "y_true")
        _check_indicator(pred, "y_pred")
        return true.astype(np.int64), pred.astype(np.int64), weight, _given_labels(labels), "multilabel"
    names = class_labels(true, pred, labels=labels)
    task: Task = "binary" if len(names) == 2 else "multiclass"
    return encode_labels(true, names, "y_true"), encode_labels(pred, names, "y_pred"), weight, names, task


def sweep_of_scores(
    y_true: ArrayLike,
    score: ArrayLike,
    thresholds: Sequence[float] | None,
    labels: Sequence[Hashable] | None,
    sample_weight: ArrayLike | None,
) -> tuple[NDArray[np.float64], Task, tuple[Any, ...] | None]:
    """Counts at every cut-off; see :meth:`metricfit.ConfusionMatrix.from_scores`."""
    true = as_label_array(y_true, "y_true")
    scores = _as_scores(score)
    if len(scores) != len(true):
        raise ValueError(f"y_pred: expected {len(true)} scores, one per sample of y_true, got {len(scores)}.")
    weight = checked_weights(sample_weight, len(true))
    names: tuple[Any, ...] | None
    if true.ndim == 2:
        _check_indicator(true, "y_true")
        indicator, names = true.astype(bool), _given_labels(labels)
    else:
        names = class_labels(true, labels=labels)
        encoded = encode_labels(true, names, "y_true")
        if len(names) == 2 and scores.shape in ((len(true),), (len(true), 2)):
            column = scores if scores.ndim == 1 else scores[:, 1]
            return _sweep(encoded == 1, column, weight, thresholds), "binary", names
        indicator = encoded[:, None] == np.arange(len(names))
    if indicator.shape != scores.shape:
        raise ValueError(
            f"y_pred: expected scores of shape {indicator.shape}, one column for each of {indicator.shape[1]} classes, "
            f"got {scores.shape}; name classes that do not occur with labels=[…]."
        )
    sweeps = [_sweep(indicator[:, k], scores[:, k], weight, thresholds) for k in range(scores.shape[1])]
    longest = max(len(s) for s in sweeps)
    padded = [np.concatenate([s, np.repeat(s[-1:], longest - len(s), axis=0)]) for s in sweeps]
    return np.stack(padded, axis=1), "multilabel", names


def _sweep(
    positive: NDArray[np.bool_],
    score: NDArray[Any],
    weight: NDArray[Any] | None,
    thresholds: Sequence[float] | None,
) -> NDArray[np.float64]:
    order = np.argsort(score, kind="stable")[::-1]
    falling = score[order]
    w = np.ones(len(score)) if weight is None else weight[order]
    hit = positive[order]
    if thresholds is None:
        chosen = np.concatenate([[0], np.flatnonzero(np.diff(falling)) + 1, [len(score)]])
    else:  # compared in the scores' dtype, so that a float32 score of 0.7 reaches a threshold of 0.7
        chosen = len(score) - np.searchsorted(falling[::-1], np.asarray(thresholds, dtype=score.dtype), side="left")
    tp = np.append(0.0, np.cumsum(w * hit))[chosen]
    fp = np.append(0.0, np.cumsum(w * ~hit))[chosen]
    fn = np.append(np.cumsum((w * hit)[::-1])[::-1], 0.0)[chosen]
    tn = np.append(np.cumsum((w * ~hit)[::-1])[::-1], 0.0)[chosen]
    return np.stack([tn, fp, fn, tp], axis=-1).reshape(-1, 2, 2)


def _as_scores(score: ArrayLike) -> NDArray[Any]:
    if isinstance(score, torch.Tensor):
        score = score.detach().cpu()
        score = (score if score.dtype in (torch.float32, torch.float64) else score.double()).numpy()
    try:
        scores = np.asarray(score)
        scores = scores if scores.dtype in (np.float32, np.float64) else scores.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"y_pred: expected scores, numbers of shape (n,) or (n, classes): {error}.") from None
    if scores.ndim not in (1, 2):
        raise ValueError(f"y_pred: expected scores of shape (n,) or (n, classes), got {scores.shape}.")
    if not np.isfinite(scores).all():
        raise ValueError("y_pred: scores must be finite, got NaN or infinity.")
    return scores


def _check_indicator(values: NDArray[Any], name: str) -> None:
    if not np.isin(values, (0, 1)).all():
        raise ValueError(f"{name}: a multi-label array of shape {values.shape} must hold 0 and 1 only.")


def _given_labels(labels: Sequence[Hashable] | None) -> tuple[Any, ...] | None:
    """The labels as plain Python values."""
    return None if labels is None else tuple(v.item() if isinstance(v, np.generic) else v for v in labels)


def as_label_array(values: ArrayLike, name: str) -> NDArray[Any]:
    """Labels as an array of one or two dimensions, with a clear error for what is not."""
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        values = (values.float() if values.dtype == torch.bfloat16 else values).numpy()
    try:
        array = np.asarray(values)
    except ValueError:
        raise ValueError(f"{name}: expected labels of shape (n,) or (n, labels), got rows of unequal length.") from None
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim not in (1, 2):
        raise ValueError(f"{name}: expected labels of shape (n,) or (n, labels), got {array.shape}.")
    if len(array) == 0:
        raise ValueError(f"{name}: expected at least one sample, got none.")
    if array.dtype.kind == "O" or (array.dtype.kind == "U" and not isinstance(values, np.ndarray)):
        array = _plain_array(np.asarray(values, dtype=object).reshape(array.shape), name)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError(f"{name}: expected labels, got NaN or infinity.")
    return array


def _plain_array(values: NDArray[np.object_], name: str) -> NDArray[Any]:
    """An array of Python objects as one of text or of numbers; a list of both would silently become text."""
    flat = values.ravel().tolist()
    # pandas.NA is neither equal nor unequal to itself
    if any(v is None or type(v).__name__ in ("NAType", "NaTType") or v != v for v in flat):
        raise ValueError(f"{name}: expected labels, got a missing value.")
    text = [isinstance(v, str) for v in flat]
    if any(text) and not all(text):
        raise TypeError(f"{name}: holds both text and numbers; make all labels one or the other.")
    return np.array(flat).reshape(values.shape)


def class_labels(*arrays: NDArray[Any], labels: Sequence[Hashable] | None = None) -> tuple[Any, ...]:
    """The classes that occur (or those given), plain Python values in sorted order."""
    if labels is not None:
        classes = _given_labels(labels) or ()
        if len(set(classes)) != len(classes) or not classes:
            raise ValueError(f"labels: expected distinct class labels, got {list(classes)}.")
        return classes
    if len({a.dtype.kind in "US" for a in arrays}) > 1:
        raise TypeError("y_true and y_pred: one holds text, the other numbers; convert one of them.")
    found = np.unique(np.concatenate([np.unique(a) for a in arrays]))
    classes = tuple(found.tolist())
    for pair in _CONVENTIONAL_PAIRS:
        if len(classes) == 1 and classes[0] in pair:
            kind: Any = type(classes[0])
            return (kind(pair[0]), kind(pair[1]))
    return classes


def encode_labels(values: NDArray[Any], classes: tuple[Any, ...], name: str) -> NDArray[np.intp]:
    """Positions of labels among the classes."""
    known = np.asarray(classes)
    if (known.dtype.kind in "US") != (values.dtype.kind in "US"):
        kinds = ("text", "numbers") if known.dtype.kind in "US" else ("numbers", "text")
        raise TypeError(f"{name}: the classes {list(classes)[:20]} are {kinds[0]}, the labels are {kinds[1]}.")
    order = np.argsort(known, kind="stable")
    places = order[np.minimum(np.searchsorted(known[order], values), len(known) - 1)]
    wrong = known[places] != values
    if np.any(wrong):
        example = values[wrong][0].item()
        raise ValueError(f"{name}: label {example!r} is not among the classes {list(classes)[:20]}.")
    return np.asarray(places, dtype=np.intp)


def checked_weights(sample_weight: ArrayLike | None, n: int, *, all_zero: bool = False) -> NDArray[np.float64] | None:
    """Sample weights as an array of finite numbers >= 0 that are not all zero, unless they are a part that may be."""
    if sample_weight is None:
        return None
    try:
        weight = np.asarray(sample_weight, dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError("sample_weight: expected numbers, one per sample.") from None
    if weight.shape != (n,):
        raise ValueError(f"sample_weight: expected shape ({n},), got {weight.shape}.")
    if not np.isfinite(weight).all() or (weight < 0).any():
        raise ValueError("sample_weight: expected finite weights >= 0.")
    if not all_zero and not weight.any():
        raise ValueError("sample_weight: all weights are zero.")
    return weight
