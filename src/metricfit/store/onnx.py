"""A classifier as one ONNX graph: preprocessing, the ensemble, the decision rule."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricfit.classifier import MetricClassifier
from metricfit.data import TablePreprocessor
from metricfit.data.columns import as_dates, as_keys, as_numbers
from metricfit.data.encoders import STANDARD_LIMIT, CategoryEncoder, DateEncoder, NumberEncoder, calendar_parts
from metricfit.data.tables import Table
from metricfit.decisions import DecisionRule
from metricfit.store.graph import Graph
from metricfit.training.networks import MemberLinear, MemberMLP

__all__ = ["onnx_inputs", "to_onnx"]

_JUST_OVER_HALF = float(np.nextafter(0.5, 1))
_DAYS_TO_MARCH_OF_YEAR_0 = 730_425.0
_SATURDAY = 5.0
"""2000-01-01, day 0 of the features, was one; Monday is 0."""


def to_onnx(classifier: MetricClassifier, path: str | os.PathLike[str]) -> dict[str, str]:
    """Write a classifier as ONNX.

    Every column that is used is an input (rows, 1): numbers and truth values as double, NaN for a gap; categories as
    text, the empty text for a gap; dates as days since 2000-01-01, double. Outputs are ``label`` (rows,), or 0/1 (rows,
    labels) for several labels, and ``probabilities`` (rows, classes or labels) with the decision rule folded in.
    :func:`onnx_inputs` makes the inputs of a frame.

    Args:
        classifier: Fitted, with a built-in network.
        path: The file.

    Returns:
        The inputs: name and type.
    """
    network = classifier.network_
    if not isinstance(network, MemberMLP):
        raise ValueError(
            "network: only the built-in networks 'mlp' and 'linear' can be exported; export your own by torch."
        )
    graph = Graph()
    features = _features(graph, classifier)
    several = classifier.task_ == "multilabel"
    proba = _ensemble(graph, network, features, several)
    folded = _decision(graph, classifier.decision_rule_, proba)
    width = len(classifier.classes_)
    graph.output("probabilities", folded, "double", ["rows", width])
    if several:
        chosen = graph.node("Cast", graph.node("Greater", folded, graph.constant(0.5)), to="int64")
        graph.output("label", chosen, "int64", ["rows", width])
    else:
        _label(graph, classifier.classes_, folded)
    graph.save(Path(path))
    return graph.inputs


def _label(graph: Graph, classes: NDArray[Any], folded: str) -> None:
    """The output with the class of the highest probability."""
    best = graph.node("ArgMax", folded, axis=1, keepdims=0)
    kind = "text" if classes.dtype.kind in "UO" else {"b": "bool", "f": "double"}.get(classes.dtype.kind, "int64")
    names = np.array([str(c) for c in classes], dtype=object) if kind == "text" else classes
    if kind == "int64":
        names = names.astype(np.int64)
    graph.output("label", graph.node("Gather", graph.constant(names), best, axis=0), kind, ["rows"])


def onnx_inputs(classifier: MetricClassifier, X: Any) -> dict[str, NDArray[Any]]:
    """What to give to an ONNX session for the rows of a table.

    Args:
        classifier: The classifier that was exported.
        X: Rows as for ``predict``.
    """
    preprocessor = classifier.preprocessor_
    if preprocessor is None:
        return {"X": np.asarray(X, dtype=np.float32)}
    table = Table(X)
    names = list(getattr(preprocessor, "feature_names_in_", []))
    positions = table.positions(names) if names else list(range(table.columns))
    found: dict[str, NDArray[Any]] = {}
    for column, position in zip(preprocessor.columns_, positions, strict=True):
        if not column.encoder.suffixes:
            continue
        values = table.column(position)
        if isinstance(column.encoder, CategoryEncoder):
            codes, keys = as_keys(values, column.name)
            found[column.name] = np.append(keys, "")[codes].astype(object)[:, None]
        elif isinstance(column.encoder, DateEncoder):
            found[column.name] = calendar_parts(as_dates(values, column.name, column.format))["days"][:, None]
        else:
            numbers = as_numbers(values, column.name, column.format)
            found[column.name] = np.asarray(numbers, dtype=np.float64)[:, None]
    return found


def _features(graph: Graph, classifier: MetricClassifier) -> str:
    preprocessor: Any = classifier.preprocessor_
    if preprocessor is None:
        return graph.input("X", "float", classifier.n_features_in_)
    if not isinstance(preprocessor, TablePreprocessor):
        raise ValueError(
            f"preprocess: only the built-in preprocessing can be exported, got {type(preprocessor).__name__}; export "
            "it by skl2onnx, and the model with preprocess=None."
        )
    parts: list[str] = []
    for column in preprocessor.columns_:
        encoder = column.encoder
        if not encoder.suffixes:
            continue
        if isinstance(encoder, CategoryEncoder):
            parts.append(_category(graph, graph.input(column.name, "text"), encoder))
        elif isinstance(encoder, DateEncoder):
            parts += _date(graph, graph.input(column.name, "double"), encoder)
        else:
            parts += _number(graph, graph.input(column.name, "double"), encoder)
    if not parts:
        raise ValueError("no column of the model has a feature; there is nothing to export.")
    return graph.node("Concat", *parts, axis=1)


def _category(graph: Graph, text: str, encoder: CategoryEncoder) -> str:
    """The features of a level are rows of a table: one per level, then unknown ones, then gaps."""
    levels = encoder.levels.tolist()
    size = len(levels)
    rows = np.empty((size + 2, len(encoder.suffixes)), dtype=np.float32)
    # "\0" cannot be a level: no text file holds it.
    codes = np.append(np.arange(size + 1), -1)
    encoder.write(codes, np.array([*levels, "\0"], dtype=object), rows)
    position = graph.node(
        "LabelEncoder", text, domain="ai.onnx.ml", keys_strings=[*levels, ""],
        values_int64s=[*range(size), size + 1], default_int64=size,
    )  # fmt: skip
    flat = graph.node("Squeeze", position, graph.constant(np.array([1])))
    return graph.node("Gather", graph.constant(rows), flat, axis=0)


def _number(graph: Graph, x: str, encoder: NumberEncoder) -> list[str]:
    """The features of :class:`NumberEncoder`, in its order."""
    gap = graph.node("IsNaN", x)
    x = graph.node("Where", gap, graph.constant(encoder.fill), x)
    parts = []
    if encoder.scale > 0 and not (encoder.mode == "quantile" and len(encoder.knots)):
        scaled = graph.node("Sub", graph.node("Div", x, graph.constant(encoder.scale)),
                            graph.constant(encoder.centre / encoder.scale))  # fmt: skip
        parts.append(graph.clip(scaled, -STANDARD_LIMIT, STANDARD_LIMIT))
    if len(encoder.knots):
        parts.append(_interpolate(graph, x, encoder.knots, encoder.scores))
    parts = [graph.as_float(part) for part in parts]
    if len(encoder.levels):
        same = graph.node("Equal", x, graph.constant(encoder.levels[None, :]))
        present = graph.node("Not", gap)
        parts.append(graph.as_float(graph.node("And", same, present)))
    if encoder.indicator:
        parts.append(graph.as_float(gap))
    return parts


def _interpolate(graph: Graph, x: str, knots: NDArray[np.float64], scores: NDArray[np.float64]) -> str:
    """``numpy.interp``: between the knots by slopes, beyond them the ends."""
    if len(knots) == 1:
        return graph.node("Add", graph.node("Mul", x, graph.constant(0.0)), graph.constant(float(scores[0])))
    x = graph.clip(x, float(knots[0]), float(knots[-1]))
    # The last knot at or below x: how many of the inner knots are.
    at_or_below = graph.node("GreaterOrEqual", x, graph.constant(knots[None, 1:-1]))
    count = graph.node(
        "ReduceSum", graph.node("Cast", at_or_below, to="int64"), graph.constant(np.array([1])), keepdims=1
    )
    slopes = np.diff(scores) / np.diff(knots)
    start, height, slope = (
        graph.node("Gather", graph.constant(values), count, axis=0) for values in (knots[:-1], scores[:-1], slopes)
    )
    return graph.node("Add", graph.node("Mul", slope, graph.node("Sub", x, start)), height)


def _date(graph: Graph, days: str, encoder: DateEncoder) -> list[str]:
    values = _calendar(graph, days)
    parts = [part for name, number in encoder.parts.items() for part in _number(graph, values[name], number)]
    if encoder.indicator:
        parts.append(graph.as_float(graph.node("IsNaN", days)))
    return parts


def _calendar(graph: Graph, days: str) -> dict[str, str]:
    """Year, month, day, weekday and hour of days since 2000-01-01, by counting years from March."""
    floor = graph.floor_divide
    whole = graph.node("Floor", days)
    # Half a microsecond more, so that an hour that was rounded down is not the hour before.
    rest = graph.linear(graph.node("Sub", days, whole), 24.0, 24 * 5e-7 / 86_400)
    since_march = graph.linear(whole, 1.0, _DAYS_TO_MARCH_OF_YEAR_0)
    era = floor(since_march, 146_097.0)
    day_of_era = graph.node("Sub", since_march, graph.linear(era, 146_097.0))
    leap = graph.node("Sub", graph.node("Add", graph.node("Sub", day_of_era, floor(day_of_era, 1460.0)),
                                        floor(day_of_era, 36_524.0)), floor(day_of_era, 146_096.0))  # fmt: skip
    year_of_era = floor(leap, 365.0)
    before = graph.node("Sub", graph.node("Add", graph.linear(year_of_era, 365.0), floor(year_of_era, 4.0)),
                        floor(year_of_era, 100.0))  # fmt: skip
    day_of_year = graph.node("Sub", day_of_era, before)
    month_from_march = floor(graph.linear(day_of_year, 5.0, 2.0), 153.0)
    start_of_month = floor(graph.linear(month_from_march, 153.0, 2.0), 5.0)
    late = graph.node("GreaterOrEqual", month_from_march, graph.constant(10.0))
    month = graph.node(
        "Where", late, graph.linear(month_from_march, 1.0, -9.0), graph.linear(month_from_march, 1.0, 3.0)
    )
    year = graph.node(
        "Add", graph.node("Add", year_of_era, graph.linear(era, 400.0)), graph.node("Cast", late, to="double")
    )
    shifted = graph.linear(whole, 1.0, _SATURDAY)
    weekday = graph.node("Sub", shifted, graph.linear(floor(shifted, 7.0), 7.0))
    return {
        "days": days,
        "year": year,
        "month": month,
        "day": graph.linear(graph.node("Sub", day_of_year, start_of_month), 1.0, 1.0),
        "weekday": weekday,
        "hour": graph.node("Floor", rest),
    }


def _ensemble(graph: Graph, network: MemberMLP, features: str, several: bool) -> str:
    """Mean probabilities of the members, (rows, classes), or of ``several`` labels (rows, labels); double."""
    x = graph.node("Unsqueeze", features, graph.constant(np.array([0])))
    layers = [layer for layer in network.layers if isinstance(layer, MemberLinear)]
    for i, layer in enumerate(layers):
        weight, bias = (graph.constant(t.detach().cpu().numpy()) for t in (layer.weight, layer.bias))
        x = graph.node("Add", graph.node("MatMul", x, weight), bias)
        if i < len(layers) - 1:
            x = graph.node("Relu", x)
    proba = graph.node("Sigmoid", x) if several else graph.node("Softmax", x, axis=-1)
    mean = graph.node("ReduceMean", graph.node("Cast", proba, to="double"), axes=[0], keepdims=0)
    return mean if several else graph.normalised(mean)


def _decision(graph: Graph, rule: DecisionRule, proba: str) -> str:
    """Probabilities whose arg max is the rule's decision, as ``DecisionRule.fold`` gives them."""
    if rule.kind == "argmax":
        return proba
    if rule.kind == "offsets":
        offsets = np.asarray(rule.parameter)
        return graph.normalised(graph.node("Mul", proba, graph.constant(np.exp(offsets - offsets.max()))))
    if rule.kind == "costs":
        costs = np.asarray(rule.parameter)
        saved = costs.max(axis=1, keepdims=True) - costs
        return graph.normalised(graph.node("MatMul", proba, graph.constant(saved)))
    if rule.kind == "thresholds":
        return _moved_to_half(graph, proba, np.asarray(rule.parameter, dtype=np.float64))
    positive = graph.node("Gather", proba, graph.constant(np.array([1])), axis=1)
    folded = _moved_to_half(graph, positive, np.array([rule.parameter], dtype=np.float64))
    return graph.node("Concat", graph.linear(folded, -1.0, 1.0), folded, axis=1)


def _moved_to_half(graph: Graph, proba: str, threshold: NDArray[np.float64]) -> str:
    """Odds rescaled so that each column's threshold becomes one half."""
    bounded = np.clip(threshold, 1e-12, 1 - 1e-12)
    decided = graph.node("GreaterOrEqual", proba, graph.constant(threshold))
    up = graph.node("Mul", proba, graph.constant(1 - bounded))
    down = graph.node("Mul", graph.linear(proba, -1.0, 1.0), graph.constant(bounded))
    moved = graph.node("Div", up, graph.node("Add", up, down))
    above = graph.node("Max", moved, graph.constant(_JUST_OVER_HALF))
    return graph.node("Where", decided, above, graph.node("Min", moved, graph.constant(0.5)))
