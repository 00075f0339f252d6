"""What decisions have to do with the columns: importance, partial dependence, segments, and the worst errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from metricfit.assess.intervals import Decided, Estimate, added, difference, estimate
from metricfit.assess.verdicts import scores_of
from metricfit.confusion import ConfusionMatrix
from metricfit.decisions.problem import computed
from metricfit.inputs import expect
from metricfit.labels import rows_columns
from metricfit.metrics import Metric, MetricLike, resolve

PERMUTATIONS = 500
_SHOWN = 10  # segments, in a report
_PARTS = 4  # of a column of numbers, equally large
_MOST_COLUMNS = 100  # that a report looks at without being asked


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
    expect(repeats >= 1, "repeats", "at least 1", repeats)
    labels = tuple(classifier.classes_.tolist())
    judged = classifier.metric_ if metric is None else resolve(metric, labels, classifier.task_)[0]
    columns = rows_columns(judged.columns, X, None, len(X))  # as they are: only what the model sees is shuffled
    ours = scores_of(classifier, X, y, sample_weight, columns=columns).judged(labels)
    random = np.random.default_rng(random_state)
    orders = [random.permutation(len(X)) for _ in range(repeats)]
    rows = []
    for column in X.columns:
        drops = []
        for order in orders:
            shuffled = X.copy()
            shuffled[column] = X[column].iloc[order].set_axis(X.index)
            other = scores_of(classifier, shuffled, y, sample_weight, columns=columns)
            drops.append(difference(judged, ours, other.judged(labels)))
        rows.append((str(column), *np.mean([(d.value, d.low, d.high) for d in drops], axis=0).tolist()))
    frame = pd.DataFrame(rows, columns=["column", "drop", "low", "high"])
    return frame.sort_values("drop", ascending=False, kind="stable", ignore_index=True)


def partial_dependence(classifier: Any, X: pd.DataFrame, column: str, *, values: int = 10) -> pd.DataFrame:
    """How often each class is decided when a column is set to one value in all rows, value by value.

    Numbers and dates take up to ``values`` quantiles, others their most frequent values. The frame has a column
    ``value`` and one per class. Where columns depend on each other, some of the rows judged are like no real row.

    Example: ``partial_dependence(classifier, X, "age").plot(x="value", y="yes")``
    """
    expect(column in X.columns, "column", f"one of {', '.join(map(str, X.columns))}", column)
    known, labels, rows = X[column].dropna(), classifier.classes_.tolist(), []
    grid: Any = known.value_counts().index[:values].sort_values()
    if _in_parts(known):
        grid = known.quantile(np.linspace(0.05, 0.95, values), interpolation="nearest").drop_duplicates()
    for value in grid:
        changed = X.assign(**{column: pd.Series([value] * len(X), index=X.index, dtype=X[column].dtype)})
        decided = classifier.decision_rule_.decide(classifier.predict_proba(changed, raw=True))
        each = decided if decided.ndim == 2 else decided[:, None] == np.arange(len(labels))
        rows.append((value, *each.mean(axis=0).tolist()))
    return pd.DataFrame(rows, columns=["value", *labels])


def segments(
    metric: Metric, rows: Decided, X: pd.DataFrame, *, fewest: int = 30, random_state: int = 0,
    intervals: int | None = None,
) -> pd.DataFrame:  # fmt: skip
    """Where decisions are worse: the metric of rows that share a value of a column of ``X``, beside all other rows.

    Numbers and dates are divided into four parts. ``p`` is the probability that *any* of the segments would stand out
    as much if columns had nothing to do with decisions: the largest deviation of each permutation of the rows counts
    (Westfall and Young, 1993). A segment may stand out because its rows are harder, or because a class is rarer there.

    A segment has ``fewest`` rows, and of two classes a sixth of that each. The frame has one row per segment, the least
    probable first; rest is the metric of all other rows, and worse says whether p < 0.05 and the segment is worse. The
    first ``intervals`` of them have a low and a high, which take time where classes are many; by default all have.

    >>> from metricfit import metrics
    >>> truth, plan = np.tile([0, 1], 100), np.repeat(["basic", "gold"], 100)
    >>> rows = Decided(truth, np.where(plan == "gold", 1 - truth, truth), ("no", "yes"))
    >>> found = segments(metrics.get("accuracy"), rows, pd.DataFrame({"plan": plan}))
    >>> found.loc[found["worse"], "value"].tolist()
    ['gold']
    """
    judged, random = getattr(metric, "objective", metric).of_counts, np.random.default_rng(random_state)
    if judged.judges_scores:
        raise ValueError(f"metric: {judged} judges the order of scores; give one of decisions, such as f1.")
    names, members = _segments(X, rows, fewest)
    columns = ["column", "value", "rows", "metric", "low", "high", "rest", "p", "worse"]
    if not names:
        return pd.DataFrame(columns=columns)
    weight = np.ones(len(X)) if rows.weight is None else rows.weight
    cells, shape = added(rows.truth, rows.decided, weight, len(rows.labels)), rows.confusion.matrix.shape

    sign = 1 if judged.greater_is_better else -1

    def gap(table: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Of each segment how much better it is than the rest, and the metric of the rest."""
        inside = (members @ table).toarray().reshape(-1, *shape)
        both = torch.from_numpy(np.stack([inside, np.asarray(table.sum(axis=0)).reshape(shape) - inside]))
        values = computed(judged, ConfusionMatrix(both, rows.task, rows.labels)).numpy()
        return (values[0] - values[1]) * sign, values[1]

    drawn = np.stack([gap(cells[random.permutation(len(X))])[0] for _ in range(PERMUTATIONS)])
    usual, spread, (found, rest) = drawn.mean(axis=0), np.maximum(drawn.std(axis=0), 1e-12), gap(cells)
    extreme, far = np.abs((drawn - usual) / spread).max(axis=1), (found - usual) / spread
    p = (1 + (extreme[:, None] >= np.abs(far) - 1e-9).sum(axis=0)) / (1 + PERMUTATIONS)
    table = []
    for place, k in enumerate(np.lexsort((far, p))):
        inside = members[[k]].indices
        of = Estimate(float(rest[k] + sign * found[k]))
        if intervals is None or place < intervals:
            of = estimate(judged, Decided(rows.truth[inside], rows.decided[inside], rows.labels, weight=weight[inside]))
        worse = bool(p[k] < 0.05 and far[k] < 0)
        table.append((*names[k], len(inside), of.value, of.low, of.high, float(rest[k]), float(p[k]), worse))
    return pd.DataFrame(table, columns=columns)


def worst_errors(rows: Decided, X: pd.DataFrame, *, most: int = 5) -> pd.DataFrame:
    """The wrong decisions whose truth was thought least probable, with their rows.

    The frame has the index of ``X``: the true class, the decided one, the probability of the truth before the decision
    rule, and the row's columns. Of several labels each row shows its worst one.
    """
    p: Any = rows.proba
    names, place = np.array([str(label) for label in rows.labels], dtype=object), np.arange(len(rows.truth))
    if rows.truth.ndim == 2:
        of_truth = np.where(rows.truth == rows.decided, np.inf, np.abs(1 - rows.truth - p))
        label = of_truth.argmin(axis=1)
        p, several = of_truth[place, label], np.stack(["not " + names, names])
        true, decided = (several[codes[place, label], label] for codes in (rows.truth, rows.decided))
    else:
        p = np.where((rows.truth == rows.decided) | (rows.decided < 0), np.inf, p[place, rows.truth])
        true, decided = names[rows.truth], names[rows.decided]
    order = np.argsort(p, kind="stable")[: min(most, int(np.isfinite(p).sum()))]
    found = pd.DataFrame({"true": true[order], "decided": decided[order], "probability": p[order]}, X.index[order])
    return pd.concat([found, X.iloc[order].rename(columns={n: f"{n} (column)" for n in found})], axis=1)


def findings(metric: Metric, rows: Decided, X: pd.DataFrame) -> dict[str, Any]:
    """What a report shows of held-out rows: segments, and the worst errors without their columns."""
    errors = worst_errors(rows, X[[]], most=10).reset_index(names="row").assign(row=lambda frame: frame["row"] + 1)
    found: dict[str, Any] = {"errors": errors.to_dict(orient="records"), "segments": [], "importance": []}
    if X.shape[1] <= _MOST_COLUMNS and not getattr(metric, "objective", metric).judges_scores:
        parts = segments(metric, rows, X, intervals=_SHOWN)
        found |= {"looked_at": len(parts), "worse": int(parts["worse"].sum())}
        found["segments"] = parts.head(_SHOWN).astype(object).where(parts.notna(), None).to_dict(orient="records")
    return found


def dependence(classifier: Any, X: pd.DataFrame, y: Any, sample_weight: Any = None) -> dict[str, Any]:
    """Importance, and the partial dependence of the most important columns, as a report shows them."""
    found = permutation_importance(classifier, X, y, sample_weight=sample_weight, repeats=2).head(10)
    curves = {n: partial_dependence(classifier, X, n).astype({"value": str}) for n in found["column"][:3]}
    tables = {name: curve.to_dict(orient="split") for name, curve in curves.items()}
    return {"importance": found.to_dict(orient="records"), "dependence": tables}


def _in_parts(known: Any) -> bool:
    """Whether the values of a column are numbers or dates, too many to be looked at one by one."""
    return known.dtype.kind in "iufM" and known.nunique() > 2 * _PARTS


def _segments(X: pd.DataFrame, rows: Decided, fewest: int) -> tuple[list[tuple[str, str]], sparse.csr_array]:
    """Names (column, value) of the segments that are large enough, on both sides; and their rows: (segments, rows)."""
    names, kept = list[tuple[str, str]](), [np.zeros((0, len(X)), dtype=np.bool_)]
    for column, values in X.items():
        texts = values.astype(str)
        if _in_parts(values.dropna()):
            parts = values.groupby(pd.qcut(values, _PARTS, labels=False, duplicates="drop"))
            low, high = parts.transform("min"), parts.transform("max")
            how = (lambda v: str(v.date())) if values.dtype.kind == "M" else "{:,.6g}".format
            texts = low.map(how) + " to " + high.map(how)
        texts = texts.where(values.notna(), "missing")
        for text, count in texts.value_counts().items():
            inside = (texts == text).to_numpy()
            sides = [np.bincount(rows.truth[side], minlength=2) for side in (inside, ~inside) if rows.task == "binary"]
            if fewest <= count <= len(X) - fewest and all(6 * side.min() >= fewest for side in sides):
                names.append((str(column), str(text)))
                kept.append(inside[None])
    return names, sparse.csr_array(np.concatenate(kept).astype(np.float64))
