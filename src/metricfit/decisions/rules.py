"""Decision rules: from scores or probabilities to labels; and the result of a search for the best one."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metricfit.confusion import ConfusionMatrix
from metricfit.decisions.problem import Array, Goal, check_probabilities, values_of
from metricfit.inputs import expect
from metricfit.labels import group_names, score_array
from metricfit.metrics import Constraint, ExpectedCost, get
from metricfit.metrics.algebra import named_class

_FORMAT = "metricfit.decision_rule"
_KINDS = ("argmax", "threshold", "offsets", "costs", "thresholds")  # each but arg max names its parameter
_JUST_OVER_HALF = float(np.nextafter(0.5, 1))

Classes = Sequence[Hashable]


@dataclass(frozen=True)
class DecisionRule:
    """How scores become decisions. Make one with ``argmax``, ``at_threshold``, ``from_offsets`` and so on.

    ``kind`` is "argmax", "threshold" (positive if score >= threshold), "offsets" (arg max of log p + offset), "costs"
    (least expected cost) or "thresholds" (one per label); ``parameter`` has its numbers. ``classes`` are those of the
    columns, in order; ``metric`` says what the rule was chosen for. Rows in which no class reaches ``least`` once the
    rule is folded in are left to a person: the decision is None.

    >>> rule = DecisionRule.from_offsets([0.0, 1.0], ["ham", "spam"])
    >>> rule.apply([[0.9, 0.1], [0.6, 0.4]])
    array(['ham', 'spam'], dtype='<U4')
    >>> rule.fold([[0.9, 0.1], [0.6, 0.4]]).round(2)
    array([[0.77, 0.23],
           [0.36, 0.64]])
    """

    kind: str
    classes: tuple[Any, ...]
    parameter: Any = None
    metric: str | None = None
    least: float = 0.0

    def __post_init__(self) -> None:
        expect(self.kind in _KINDS, "kind", f"one of {', '.join(_KINDS)}", self.kind)
        classes = tuple(c.item() if isinstance(c, np.generic) else c for c in self.classes)
        if not all(isinstance(c, str | int) or (isinstance(c, float) and math.isfinite(c)) for c in classes):
            raise TypeError(f"classes: expected text or numbers, got {list(classes)}.")
        distinct = len(set(classes)) == len(classes) >= (1 if self.kind == "thresholds" else 2)
        expect(distinct, "classes", "at least two distinct classes", list(classes))
        if self.kind == "threshold" and len(classes) != 2:
            raise ValueError(f"classes: a threshold decides between two classes, got {list(classes)}.")
        object.__setattr__(self, "classes", classes)
        object.__setattr__(self, "parameter", _checked_parameter(self.kind, self.parameter, len(classes)))
        if self.metric is not None and not isinstance(self.metric, str):
            raise TypeError(f"metric: expected a spec or None, got {type(self.metric).__name__}.")
        valid = isinstance(self.least, float | int) and 0 <= self.least <= (self.kind != "thresholds")
        expect(valid, "least", "a probability, and classes rather than labels", self.least)

    @classmethod
    def argmax(cls, classes: Classes) -> DecisionRule:
        """The class with the highest probability."""
        return cls("argmax", tuple(classes))

    @classmethod
    def at_threshold(cls, threshold: float, classes: Classes = (0, 1), *, metric: str | None = None) -> DecisionRule:
        """The second class if its score is at least ``threshold``."""
        return cls("threshold", tuple(classes), threshold, metric)

    @classmethod
    def from_offsets(cls, offsets: Sequence[float], classes: Classes, *, metric: str | None = None) -> DecisionRule:
        """Arg max of log-probability plus offset; +0.69 makes a class count as if twice as probable."""
        return cls("offsets", tuple(classes), offsets, metric)

    @classmethod
    def from_costs(cls, costs: ArrayLike, classes: Classes, *, metric: str | None = None) -> DecisionRule:
        """The class with the least expected cost; ``costs[i][j]`` is paid for predicting j when i is true."""
        return cls("costs", tuple(classes), costs, metric)

    @classmethod
    def at_thresholds(
        cls, thresholds: Sequence[float], classes: Classes | None = None, *, metric: str | None = None
    ) -> DecisionRule:
        """Multi-label: label k if its score is at least ``thresholds[k]``."""
        names = range(len(thresholds)) if classes is None else classes
        return cls("thresholds", tuple(names), thresholds, metric)

    def apply(self, score: ArrayLike) -> NDArray[Any]:
        """Decide: labels (n,), None for rows that are left to a person; a 0/1 array (n, labels) for thresholds.

        The scores are probabilities (n, classes); for a threshold also any scores of the second class, (n,); for
        thresholds scores (n, labels).
        """
        codes = self.decide(self._columns(score, any_scale=True))
        if self.kind == "thresholds":
            return codes
        of_one_type = len({type(c) for c in self.classes}) == 1
        return self.named(codes, np.array(self.classes, dtype=None if of_one_type else object))

    def named(self, codes: NDArray[np.int64], classes: NDArray[Any]) -> NDArray[Any]:
        """The classes of decisions (n,), None for rows that are left to a person."""
        found = np.asarray(classes[codes])
        if self.least:
            found = found.astype(object)
            found[codes < 0] = None
        return found

    def decide(self, scores: NDArray[Any]) -> NDArray[np.int64]:
        """The positions of the chosen classes (n,), or 0/1 (n, labels), for scores that were checked already.

        Of rows that are left to a person the position is -1.
        """
        if self.least:
            codes = replace(self, least=0.0).decide(scores)
            return np.where(self._fold(scores).max(axis=1) < self.least, -1, codes)
        if self.kind == "threshold" and scores.ndim == 2:
            scores = scores[:, 1]
        if self.kind in ("threshold", "thresholds"):
            return np.asarray(scores >= np.asarray(self.parameter, dtype=scores.dtype), dtype=np.int64)
        return np.asarray(self._fold(scores).argmax(axis=1), dtype=np.int64)

    def fold(self, proba: ArrayLike) -> Array:
        """Probabilities (n, classes) or (n, labels) whose arg max (above one half, for labels) is this rule's decision.

        Offsets are added to the log-probabilities and the rows normalised again; a threshold moves to one half. The
        order of samples within a column of two classes stays as it was; their probabilities may be given as (n,).
        """
        return self._fold(self._columns(proba, any_scale=False))

    def in_words(self, how: str = "") -> str:
        """What the rule does, as the end of a sentence; ``how`` it was chosen is added where it was."""
        if self.least:
            decided = replace(self, least=0.0).in_words(how).rstrip(".")
            return f"{decided}; a row in which no class reaches {self.least:.4g} after that is left to a person."
        chosen = f", {how}" if how else ""
        if self.kind == "argmax":
            return "the class with the highest probability; nothing was tuned afterwards."
        if self.kind == "threshold":
            with suppress(ValueError):  # a metric of one's own cannot be read again
                if self.metric and named_class(get(self.metric), self.classes) == 0:
                    first = f"class {self.classes[0]!r} if its raw probability is above"
                    return f"{first} {1 - self.parameter:.4g}{chosen}."
            return f"class {self.classes[1]!r} if its raw probability is at least {self.parameter:.4g}{chosen}."
        if self.kind == "costs":
            return f"the least expected cost{chosen}."
        pairs = [f"{name} {value:.3g}" for name, value in zip(self.classes, self.parameter, strict=True)]
        shown = ", ".join(pairs[:20]) + (", …" if len(pairs) > 20 else "")
        if self.kind == "thresholds":
            return f"each label if its probability reaches its threshold: {shown}."
        return f"the highest log-probability after adding{chosen}: {shown}."

    def to_json(self) -> str:
        """The rule as JSON text."""
        content = {"format": _FORMAT, "version": 1, "kind": self.kind, "classes": list(self.classes)}
        more = {self.kind: self.parameter, "metric": self.metric, "least": self.least or None}
        return json.dumps(content | {key: value for key, value in more.items() if value is not None}, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> DecisionRule:
        """Read a rule back. The text is data: it is checked field by field and nothing in it is run."""
        try:
            content = json.loads(text)
        except (json.JSONDecodeError, TypeError, RecursionError) as error:
            raise ValueError(f"rule: expected JSON text, got something else ({error}).") from None
        if not isinstance(content, dict) or content.get("format") != _FORMAT:
            raise ValueError(f"rule: expected a JSON object with format {_FORMAT!r}.")
        expect(content.get("version") == 1, "rule", "version 1", content.get("version"), "upgrade metricfit")
        kind, classes = content.get("kind"), content.get("classes")
        if not isinstance(kind, str) or kind not in _KINDS or not isinstance(classes, list):
            raise ValueError(f"rule: expected a known kind and a list of classes, got {kind!r} and {classes!r}.")
        known = {"format", "version", "kind", "classes", "metric", "least", *({kind} - {"argmax"})}
        if unknown := set(content) - known:
            raise ValueError(f"rule: unknown fields {sorted(unknown)} in a rule of kind {kind!r}.")
        return cls(kind, tuple(classes), content.get(kind), content.get("metric"), content.get("least", 0.0))

    def _columns(self, score: ArrayLike, *, any_scale: bool) -> NDArray[Any]:
        scores, size = score_array(score, "score"), len(self.classes)
        any_scale = any_scale and not self.least
        if self.kind == "threshold" and any_scale and (scores.ndim == 1 or scores.shape[1:] == (2,)):
            return scores
        if size == 2 and self.kind != "thresholds" and scores.ndim == 1:
            scores = np.stack([1 - scores, scores], axis=1)
        wanted = f"shape (n, {size}), a column for each of {self.classes[:20]}"
        expect(scores.ndim == 2 and scores.shape[1] == size, "score", wanted, scores.shape)
        if self.kind != "thresholds":
            check_probabilities(scores, "score")
        elif not any_scale and ((scores < 0).any() or (scores > 1).any()):
            raise ValueError("score: folding needs probabilities in [0, 1]; apply works with any scores.")
        return scores

    def _fold(self, proba: NDArray[Any]) -> Array:
        if self.kind == "thresholds":
            return move_to_half(proba, np.asarray(self.parameter))
        if self.kind == "threshold":
            positive = move_to_half(proba[:, 1], np.asarray(self.parameter))
            return np.stack([1 - positive, positive], axis=1)
        p = proba.astype(np.float64)
        if self.kind == "offsets":
            offsets = np.asarray(self.parameter)
            p = p * np.exp(offsets - offsets.max())
        elif self.kind == "costs":
            # What a decision saves against the worst one for each true class: for 0/1 costs this is p itself.
            costs = np.asarray(self.parameter)
            p = p @ (costs.max(axis=1, keepdims=True) - costs)
        total = p.sum(axis=1, keepdims=True)
        return np.where(total > 0, p, 1.0) / np.where(total > 0, total, float(p.shape[1]))


def move_to_half(p: NDArray[Any], threshold: Array) -> Array:
    """Rescale the odds so that ``threshold`` becomes one half: above it exactly where ``p >= threshold``."""
    decided = p >= threshold.astype(p.dtype)
    wide = p.astype(np.float64)
    t = np.clip(threshold, 1e-12, 1 - 1e-12)
    up, down = wide * (1 - t), (1 - wide) * t
    moved = up / (up + down)
    return np.where(decided, np.maximum(moved, _JUST_OVER_HALF), np.minimum(moved, 0.5))


@dataclass(frozen=True)
class GroupThresholds:
    """Cut-offs by group: positive if ``score >= thresholds[group]``; ``value`` is the metric's where they come from.

    ``shared`` is the cut-off that calls as many rows of all groups together; a :class:`metricfit.MetricClassifier`
    takes it for groups that it has not seen.
    """

    column: str
    classes: tuple[Any, ...]
    thresholds: dict[Any, float]
    value: float
    shared: float = 0.5

    def apply(self, score: ArrayLike, columns: Mapping[str, ArrayLike]) -> NDArray[Any]:
        """Decide (n,); a group without a cut-off is an error."""
        scores = np.asarray(score)
        reached = scores >= self._limits(columns, len(scores)).astype(scores.dtype)
        return DecisionRule.at_threshold(0.5, self.classes).apply(reached.astype(np.float64))

    def fold(self, proba: ArrayLike, columns: Mapping[str, ArrayLike]) -> NDArray[np.float64]:
        """Probabilities (n, 2) whose arg max is the decision, from those of the second class (n,)."""
        p = np.asarray(proba)
        positive = move_to_half(p, self._limits(columns, len(p)))
        return np.stack([1 - positive, positive], axis=1)

    def moved(self, proba: NDArray[Any], columns: Mapping[str, ArrayLike], *, back: bool = False) -> Array:
        """Probabilities (n, 2) whose odds are scaled in each group, so that ``shared`` is its cut-off; or ``back``.

        So one cut-off decides about rows of all groups, wherever their probabilities go.
        """
        # Gaps turn a column of whole numbers into one of floats, and beside gaps numbers are text.
        known = {_as_number(name): limit for name, limit in self.thresholds.items()} | self.thresholds
        names = group_names(columns, self.column, len(proba)).tolist()
        limits = np.array([known.get(name, known.get(_as_number(name), self.shared)) for name in names])
        start, end = (limits, np.full(len(proba), self.shared))[:: -1 if back else 1]
        half, to = move_to_half(proba[:, 1], start), np.clip(end, 1e-12, 1 - 1e-12)
        positive = half * to / (half * to + (1 - half) * (1 - to))
        positive = np.where(half > 0.5, np.maximum(positive, end), np.minimum(positive, np.nextafter(end, -1)))
        return np.stack([1 - positive, positive], axis=1)

    def in_words(self) -> str:
        """The cut-offs, as the middle of a sentence."""
        shown = [f"{name} {limit:.4g}" for name, limit in self.thresholds.items()]
        more = ", …" if len(shown) > 20 else ""
        return f"by {self.column}: {', '.join(shown[:20])}{more}; rows of other groups {self.shared:.4g}"

    def _limits(self, columns: Mapping[str, ArrayLike], rows: int) -> NDArray[np.float64]:
        names = group_names(columns, self.column, rows).tolist()
        if unknown := [name for name in names if name not in self.thresholds]:
            known = f"the groups are {[*self.thresholds]}"
            raise ValueError(f"columns[{self.column!r}]: no cut-off for {unknown[0]!r}; {known}.")
        return np.array([self.thresholds[name] for name in names])


def _as_number(name: Any) -> Any:
    with suppress(ValueError):
        return float(name)
    return name


@dataclass(frozen=True)
class ConstraintValue:
    """What the chosen rule reaches of a constraint, and what can be promised for new data at the confidence wanted."""

    constraint: Constraint
    value: float  # of a constraint in groups that of the worst group, or the spread between them
    promised: float | None = None
    groups: dict[Any, float] | None = None


@dataclass(frozen=True)
class BestRule:
    """The best rule that a search found, and what it reaches on the data it was chosen on.

    ``value`` and ``confusion`` are the metric and the confusion matrix with the rule, ``confidence`` is that of the
    promises, ``argmax_value`` the metric of plain arg max where the search was for class offsets, ``cutoffs`` how many
    distinct cut-offs were compared where it was for one. ``again`` repeats the search for :meth:`for_prevalence`. Of a
    rule that leaves rows to a person, ``curve`` (k, 2) has the share of the rows that is decided and their metric at
    every bound; value and matrix are those of the decided rows.
    """

    rule: DecisionRule
    value: float
    confusion: ConfusionMatrix
    constraints: tuple[ConstraintValue, ...] = ()
    confidence: float | None = None
    argmax_value: float | None = None
    cutoffs: int | None = None
    again: Callable[..., BestRule] | None = field(default=None, repr=False, compare=False)
    curve: Array | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(
        cls, rule: DecisionRule, goal: Goal, cm: ConfusionMatrix, promises: Sequence[float | None] = (),
        groups: Mapping[str, tuple[list[Any], ConfusionMatrix]] | None = None, **more: Any,
    ) -> BestRule:  # fmt: skip
        """The result for a rule with this confusion matrix; ``promises``: one per constraint.

        ``groups`` have for each column the names of its groups and their matrices, (groups, 1, …).
        """
        values = []
        for c, promise in zip(goal.constraints, promises or (None,) * len(goal.constraints), strict=True):
            names, each = (groups or {}).get(c.within or "", ((), None))
            of_groups = None if each is None else values_of(c.strict, each)
            value = values_of(c.metric, cm) if of_groups is None else c.of_groups(of_groups)
            by_name = None if of_groups is None else dict(zip(names, of_groups[:, 0].tolist(), strict=True))
            values.append(ConstraintValue(c, float(value), promise, by_name))
        return cls(rule, float(values_of(goal.metric, cm)), cm, tuple(values), **more)

    def for_prevalence(self, prevalence: float | ArrayLike | Mapping[Any, float]) -> BestRule:
        """The best rule where the classes have other shares than here, and each class looks as it does here.

        The samples of each class are weighed to the new shares, and the same search is done again. Value, confusion
        matrix and constraints of the result are those at the new shares. With a confidence, constraints on recall,
        specificity, fpr and fnr are promised as before: they do not depend on the shares.

        ``prevalence`` is the new share of the second class; or one share per class, in order or by label. It can be
        estimated from rows without labels: :func:`metricfit.assess.estimate_prevalence`.

        >>> from metricfit.decisions import best_threshold
        >>> best = best_threshold([0, 0, 1, 0, 1, 1], [0.1, 0.2, 0.35, 0.4, 0.6, 0.9], "f1")
        >>> best.threshold, best.for_prevalence(0.05).threshold
        (0.275, 0.5)
        """
        if self.again is None:
            raise ValueError("for_prevalence: is for rules of classes that a search has found.")
        return self.again(prevalence=prevalence)

    @property
    def metric(self) -> str | None:
        """The spec that was searched for."""
        return self.rule.metric

    @property
    def threshold(self) -> float:
        """The cut-off of two classes: positive if ``score >= threshold``."""
        return float(self._parameter("threshold"))

    @property
    def thresholds(self) -> Array:
        """One cut-off per label."""
        return np.asarray(self._parameter("thresholds"))

    @property
    def offsets(self) -> Array:
        """One offset per class, added to the log-probabilities before arg max."""
        return np.asarray(self._parameter("offsets"))

    def _parameter(self, kind: str) -> Any:
        if self.rule.kind != kind:
            raise AttributeError(f"a rule of kind {self.rule.kind!r} has no {kind}; see rule.parameter.")
        return self.rule.parameter

    def __str__(self) -> str:
        kind, numbers = self.rule.kind, self.rule.parameter
        shown = f"the least expected {kind}"
        if kind == "threshold":
            shown = f"positive from a score of {numbers:.4g} on"
        elif kind in ("offsets", "thresholds"):
            name, form = ("offsets", "+.3g") if kind == "offsets" else ("cut-offs", ".4g")
            pairs = zip(self.rule.classes, numbers, strict=True)
            shown = f"{name}: " + ", ".join(f"{c} {number:{form}}" for c, number in pairs)
        lines = [shown, f"{(self.metric or 'metric').split(' subject to ')[0]} = {self.value:.4g}"]
        for c in self.constraints:
            asked = c.constraint
            lines.append(f"{asked.what} = {c.value:.4g} (asked for {asked.operator} {asked.bound:g})")
            if c.promised is not None and self.confidence is not None:
                word = "at least" if asked.operator == ">=" else "at most"
                lines[-1] += f", on new data {word} {c.promised:.4g} with {100 * self.confidence:g} % confidence"
            if c.groups is not None:
                lines[-1] += f" in {asked.within}: " + ", ".join(f"{g} {value:.4g}" for g, value in c.groups.items())
        return "\n".join(lines)


def argmax_rule(y: NDArray[Any], classes: Classes) -> DecisionRule:
    """Arg max; one half for every label of a multi-label target ``y``."""
    if np.ndim(y) == 2:
        return DecisionRule.at_thresholds([0.5] * len(classes), classes)
    return DecisionRule.argmax(classes)


def bayes_rule(costs: ArrayLike, classes: Classes | None = None) -> DecisionRule:
    """The rule with the least expected cost for probabilities that can be trusted; nothing is tuned.

    ``costs[i][j]`` is paid for predicting class j when i is true; classes are 0, 1, … if not given. With two classes it
    is a threshold: missing a fraud costs 9 times a false alarm, so alarm from 10 % on.

    >>> bayes_rule([[0, 1], [9, 0]]).parameter
    0.1
    """
    matrix = np.asarray(costs, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or len(matrix) < 2:
        raise ValueError(f"costs: expected a square matrix, one row per true class, got shape {matrix.shape}.")
    if not np.isfinite(matrix).all():
        raise ValueError("costs: expected finite numbers.")
    names = tuple(range(len(matrix))) if classes is None else tuple(classes)
    spec = str(ExpectedCost(matrix=matrix.tolist()))
    if len(matrix) == 2:
        alarm, miss = float(matrix[0, 1] - matrix[0, 0]), float(matrix[1, 0] - matrix[1, 1])
        if alarm > 0 and miss > 0:
            return DecisionRule.at_threshold(alarm / (alarm + miss), names, metric=spec)
    return DecisionRule.from_costs(matrix.tolist(), names, metric=spec)


def _checked_parameter(kind: str, parameter: Any, size: int) -> Any:
    if kind == "argmax":
        if parameter is not None:
            raise ValueError(f"parameter: arg max has none, got {parameter!r}.")
        return None
    shape: tuple[int, ...] = {"threshold": (), "offsets": (size,), "costs": (size, size), "thresholds": (size,)}[kind]
    try:
        array = np.asarray(parameter)
    except ValueError:
        array = np.empty(0, dtype=object)
    valid = array.dtype.kind in "iuf" and array.shape == shape and np.isfinite(array).all()
    expect(valid, kind, f"finite numbers of shape {shape}", parameter)
    values = array.astype(np.float64).tolist()
    return values if kind == "threshold" else tuple(tuple(v) if isinstance(v, list) else v for v in values)
