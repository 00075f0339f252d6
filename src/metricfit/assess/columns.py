"""What decisions have to do with the columns: importance, partial dependence, segments, and the worst errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from metricfit.assess.intervals import Decided, cell_table, difference, estimate
from metricfit.assess.scores import HeldOutScores, scores_of
from metricfit.confusion import ConfusionMatrix
from metricfit.decisions.problem import computed
from metricfit.metrics import Metric, MetricLike, resolve

__all__ = ["partial_dependence", "permutation_importance", "segments", "segments_of", "worst_errors"]

FEWEST_ROWS = 30
"""A segment has at least so many rows, and for two classes a sixth of them of each class."""
PERMUTATIONS = 500
_PARTS = 4  # of a column of numbers, equally large
_MOST_ROWS = 20_000  # that the permutations need
_MOST_COLUMNS = 100  # that a report looks at without being asked
_SHOWN = 10
_DRAWN = 3  # columns whose partial dependence is drawn
_ROWS_TO_SHUFFLE = 1_000


def permutation_importance(
    classifier: Any, X: pd.DataFrame, y: ArrayLike, *, metric: MetricLike | None = None,
    sample_weight: ArrayLike | None = None, repeats: int = 5, random_state: int = 0,
) -> pd.DataFrame:  # fmt: skip
    """How much each column of a table is worth to a fitted classifier, in the metric itself.

    The values of a column are shuffled among the rows, everything else stays, and the drop of the metric is measured.
    Columns that tell the same can stand in for each other: each of them then looks less important than both are.

    ``X`` are rows that the classifier was not trained on, ``y`` their labels; the metric is the classifier's own if it
    is not given. Drops and ends of intervals are means over the ``repeats``. The frame has one row per column, the most
    important first: column, drop, low and high (95 % interval, paired row by row).

    >>> from sklearn.datasets import load_iris
    >>> from metricfit import MetricClassifier
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> clf = MetricClassifier("f1", models="boosting", cv=2, random_state=0).fit(X[::2], y[::2])
    >>> permutation_importance(clf, X[1::2], y[1::2], repeats=2)["column"].iloc[0].startswith("petal")
    True
    """
    if repeats < 1:
        raise ValueError(f"repeats: expected at least 1, got {repeats}.")
    scores, labels = scores_of(classifier, X, y, sample_weight), tuple(classifier.classes_.tolist())
    judged = classifier.metric_ if metric is None else resolve(metric, labels, classifier.task_)[0]
    ours = scores.judged(labels)
    random = np.random.default_rng(random_state)
    orders = [random.permutation(len(X)) for _ in range(repeats)]
    rows = []
    for column in X.columns:
        drops = []
        for order in orders:
            shuffled = X.copy()
            shuffled[column] = X[column].iloc[order].set_axis(X.index)
            drops.append(difference(judged, ours, scores_of(classifier, shuffled, y, sample_weight).judged(labels)))
        rows.append((str(column), *np.mean([(d.value, d.low, d.high) for d in drops], axis=0).tolist()))
    frame = pd.DataFrame(rows, columns=["column", "drop", "low", "high"])
    return frame.sort_values("drop", ascending=False, kind="stable", ignore_index=True)


def partial_dependence(classifier: Any, X: pd.DataFrame, column: str, *, values: int = 10) -> pd.DataFrame:
    """How often each class is decided when a column is set to one value in all rows, value by value.

    Unlike scikit-learn's function of this name it shows decisions, not probabilities. Numbers and dates take up to
    ``values`` quantiles, others their most frequent values. The frame has a column ``value`` and one per class. Rows
    that no real row is like are among those judged, where columns depend on each other.

    >>> from sklearn.datasets import load_iris
    >>> from metricfit import MetricClassifier
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> clf = MetricClassifier("f1", models="boosting", cv=2, random_state=0).fit(X, y)
    >>> partial_dependence(clf, X, "petal length (cm)", values=3).shape
    (3, 4)
    """
    if column not in X.columns:
        raise ValueError(f"column: expected one of {', '.join(map(str, X.columns))}, got {column!r}.")
    known = X[column].dropna()
    if _in_parts(known) and known.nunique() > values:
        places = np.linspace(0.05, 0.95, values)
        grid = known.quantile(places, interpolation="nearest").drop_duplicates().tolist()
    else:
        grid = sorted(known.value_counts().index[:values], key=lambda value: (str(type(value)), value))
    rows, labels = [], classifier.classes_.tolist()
    for value in grid:
        changed = X.copy()
        changed[column] = pd.Series([value] * len(X), index=X.index, dtype=X[column].dtype)
        decided = classifier.decision_rule_.decide(classifier.predict_raw_proba(changed))
        each = decided if decided.ndim == 2 else decided[:, None] == np.arange(len(labels))
        rows.append((value, *each.mean(axis=0).tolist()))
    return pd.DataFrame(rows, columns=["value", *labels])


def segments(
    classifier: Any, X: pd.DataFrame, y: ArrayLike, *, metric: MetricLike | None = None,
    sample_weight: ArrayLike | None = None, fewest: int = FEWEST_ROWS, random_state: int = 0,
) -> pd.DataFrame:  # fmt: skip
    """Where a fitted classifier is worse: the metric of rows that share a value of a column, beside all other rows.

    Numbers and dates are divided into four parts of equal size. ``p`` is the probability that, with decisions that
    have nothing to do with the columns, *any* of the segments looked at would stand out as much: rows are permuted
    among segments, and the largest deviation of each permutation counts (Westfall and Young, 1993).

    A segment may differ because its rows are harder, or because a class is rarer there; both are shown alike.

    ``X`` are rows that the classifier was not trained on, ``y`` their labels; ``fewest`` rows make a segment. The frame
    has one row per segment, the least probable first: column, value, rows, metric, low, high, rest (of all other
    rows), p and worse: whether p is below 0.05 and the segment is the worse side.

    >>> from sklearn.datasets import load_iris
    >>> from metricfit import MetricClassifier
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> clf = MetricClassifier("accuracy", models="boosting", cv=2, random_state=0).fit(X[::2], y[::2])
    >>> segments(clf, X[1::2], y[1::2], fewest=15)["column"].nunique()
    4
    """
    labels = tuple(classifier.classes_.tolist())
    judged = classifier.metric_ if metric is None else resolve(metric, labels, classifier.task_)[0]
    rows = scores_of(classifier, X, y, sample_weight).judged(labels)
    return segments_of(judged, rows, X, fewest=fewest, random_state=random_state)


def segments_of(
    metric: Metric, rows: Decided, X: pd.DataFrame, *, fewest: int = FEWEST_ROWS, random_state: int = 0
) -> pd.DataFrame:
    """The same of decisions about the rows of a table."""
    judged = getattr(metric, "objective", metric)
    if judged.judges_scores:
        raise ValueError(f"metric: {judged} judges the order of scores; give one of decisions, such as f1.")
    random = np.random.default_rng(random_state)
    if len(X) > _MOST_ROWS:
        some = random.choice(len(X), _MOST_ROWS, replace=False)
        X, rows = X.iloc[some], rows.take(some)
    names, members = _segments(X, rows, fewest)
    columns = ["column", "value", "rows", "metric", "low", "high", "rest", "p", "worse"]
    if not names:
        return pd.DataFrame(columns=columns)
    cells, shape = cell_table(rows), rows.confusion.matrix.shape
    total = np.asarray(cells.sum(axis=0))

    def values(table: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        inside = np.asarray((members @ table).todense())
        return tuple(
            computed(judged, ConfusionMatrix(torch.from_numpy(c.reshape(-1, *shape)), rows.task, rows.labels)).numpy()
            for c in (inside, total - inside)
        )  # type: ignore[return-value]

    (inside, rest), sign = values(cells), 1 if judged.greater_is_better else -1
    drawn = np.stack([np.subtract(*values(cells[random.permutation(len(X))])) for _ in range(PERMUTATIONS)])
    spread = np.maximum(drawn.std(axis=0), 1e-12)
    extreme = np.abs((drawn - drawn.mean(axis=0)) / spread).max(axis=1)
    far = sign * (inside - rest - drawn.mean(axis=0)) / spread
    p = (1 + (extreme[:, None] >= np.abs(far) - 1e-9).sum(axis=0)) / (1 + PERMUTATIONS)
    found = []
    for k in np.lexsort((far, p)):
        of = estimate(judged, rows.take(members[[k]].indices))
        worse = bool(p[k] < 0.05 and far[k] < 0)
        found.append((*names[k], members[[k]].nnz, of.value, of.low, of.high, rest[k], p[k], worse))
    return pd.DataFrame(found, columns=columns)


def worst_errors(rows: Decided, X: pd.DataFrame, *, most: int = 5) -> pd.DataFrame:
    """The wrong decisions whose truth was thought least probable, with their rows.

    The frame has the index of ``X``: the true class, the decided one, the probability of the truth before the decision
    rule, and the row's columns. Of several labels the least probable one counts: its name, with "not" where it is 0.
    """
    if rows.proba is None:
        raise ValueError("rows: expected decisions with probabilities, got none.")
    names, place = np.array([str(label) for label in rows.labels], dtype=object), np.arange(len(rows.truth))
    if rows.truth.ndim == 2:
        of_truth = np.where(rows.truth == rows.decided, np.inf, np.abs(1 - rows.truth - rows.proba))
        label = of_truth.argmin(axis=1)
        p, pairs = of_truth[place, label], []
        for codes in (rows.truth, rows.decided):
            pairs.append(np.where(codes[place, label] == 1, "", "not ") + names[label])
        true, decided = pairs
    else:
        p = np.where(rows.truth == rows.decided, np.inf, rows.proba[place, rows.truth])
        true, decided = names[rows.truth], names[rows.decided]
    order = np.argsort(p, kind="stable")[: min(most, int(np.isfinite(p).sum()))]
    found = pd.DataFrame({"true": true[order], "decided": decided[order], "probability": p[order]}, X.index[order])
    return pd.concat([found, X.iloc[order].rename(columns={n: f"{n} (column)" for n in found if n in X})], axis=1)


def findings(metric: Metric, scores: HeldOutScores, labels: tuple[Any, ...], X: pd.DataFrame) -> dict[str, Any]:
    """What a report shows of held-out rows, as JSON has it: segments, and the worst errors without their columns."""
    rows = scores.judged(labels)
    errors = worst_errors(rows, X[[]], most=_SHOWN).reset_index(names="row").assign(row=lambda frame: frame["row"] + 1)
    found: dict[str, Any] = {"errors": errors.to_dict(orient="records"), "segments": [], "importance": []}
    if X.shape[1] <= _MOST_COLUMNS and not getattr(metric, "objective", metric).judges_scores:
        parts = segments_of(metric, rows, X)
        found |= {"looked_at": len(parts), "worse": int(parts["worse"].sum())}
        found["segments"] = parts.head(_SHOWN).astype(object).where(parts.notna(), None).to_dict(orient="records")
    return found


def dependence(classifier: Any, X: pd.DataFrame, y: Any, *, sample_weight: Any = None) -> dict[str, Any]:
    """The importance of the columns, and the partial dependence of the most important ones, as a report shows them."""
    some = np.sort(np.random.default_rng(0).permutation(len(X))[:_ROWS_TO_SHUFFLE])
    X, y, weight = X.iloc[some], y[some], None if sample_weight is None else sample_weight[some]
    found = permutation_importance(classifier, X, y, sample_weight=weight, repeats=2).head(_SHOWN)
    top: list[Any] = [column for row in found["column"][:_DRAWN] for column in X if str(column) == row]
    curves = {str(column): partial_dependence(classifier, X, column) for column in top}
    return {
        "importance": found.to_dict(orient="records"),
        "dependence": {name: curve.astype({"value": str}).to_dict(orient="split") for name, curve in curves.items()},
    }


def _in_parts(known: Any) -> bool:
    """Whether the values of a column are numbers or dates, too many to be looked at one by one."""
    return known.dtype.kind in "iufM" and known.nunique() > 2 * _PARTS


def _segments(X: pd.DataFrame, rows: Decided, fewest: int) -> tuple[list[tuple[str, str]], sparse.csr_array]:
    """Names (column, value) of the segments that are large enough, on both sides; and their rows: (segments, rows)."""
    names: list[tuple[str, str]] = []
    kept: list[Any] = []
    several = rows.task == "binary"
    for column in X.columns:
        values = X[column]
        known = values.dropna()
        parts = pd.qcut(values, _PARTS, duplicates="drop") if _in_parts(known) else values
        texts = parts.astype(str).where(values.notna(), "missing")
        if isinstance(parts.dtype, pd.CategoricalDtype) and _in_parts(known):
            spans = {str(cut): _span(known[(known > cut.left) & (known <= cut.right)]) for cut in parts.cat.categories}
            texts = texts.map(lambda text, spans=spans: spans.get(text, text))
        for text, count in texts.value_counts().items():
            inside = (texts == text).to_numpy()
            if not fewest <= count <= len(X) - fewest:
                continue
            sides = [np.bincount(rows.truth[side], minlength=2) for side in (inside, ~inside)] if several else []
            if all(6 * side.min() >= fewest for side in sides):
                names.append((str(column), str(text)))
                kept.append(inside)
    return names, sparse.csr_array(np.array(kept, dtype=np.float64)) if kept else sparse.csr_array((0, len(X)))


def _span(values: Any) -> str:
    ends = [values.min(), values.max()]
    dates = values.dtype.kind == "M"
    return " to ".join(str(end.date()) if dates else f"{end:,.6g}" for end in ends)
