"""A classifier as one ONNX graph: preprocessing, every model of the portfolio, their mean, the decision rule."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from importlib import import_module
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier

from metricfit.classifier import MetricClassifier
from metricfit.data import FittedColumn, TablePreprocessor
from metricfit.data.encoders import STANDARD_LIMIT, CategoryEncoder, DateEncoder, NumberEncoder, calendar_parts
from metricfit.decisions import DecisionRule
from metricfit.files import written_whole
from metricfit.models import NetworkModel
from metricfit.models.estimators import SKLEARN, Nodes, trees_of
from metricfit.models.portfolio import LEAST
from metricfit.training.networks import MemberLinear, MemberMLP

_OPSETS, _IR_VERSION = {"": 17, "ai.onnx.ml": 2}, 8
_TYPES = {"float": 1, "int64": 7, "text": 8, "bool": 9, "double": 11, "date": 11}
"""The numbers of ONNX's TensorProto.DataType."""
_FLOAT_LIMIT = float(np.finfo(np.float32).max)
_JUST_OVER_HALF = float(np.nextafter(0.5, 1))
_DAYS_TO_MARCH_OF_YEAR_0 = 730_425.0
_ONNX_NODES = {"featureids": "feature", "values": "threshold", "truenodeids": "left", "falsenodeids": "right",
               "missing_value_tracks_true": "gap_left"}  # fmt: skip
_CODES = 256
"""Codes of a category in a tree, with the last for gaps."""


class _Graph:
    """A graph under construction, and the inputs so far: name and type."""

    def __init__(self) -> None:
        try:
            self.onnx: Any = import_module("onnx")
        except ImportError:
            raise ImportError("exporting needs onnx; install it with: pip install 'metricfit[onnx]'") from None
        self.inputs: dict[str, str] = {}
        self.parts: tuple[list[Any], ...] = ([], [], [], [])  # nodes, inputs, outputs, constants

    def input(self, name: str, kind: str, width: int = 1) -> _Value:
        self.inputs[name] = kind
        self.parts[1].append(self.onnx.helper.make_tensor_value_info(name, _TYPES[kind], ["rows", width]))
        return _Value(self, name)

    def output(self, name: str, value: _Value, kind: str, shape: list[Any]) -> None:
        self.parts[0].append(self.onnx.helper.make_node("Identity", [value.name], [name]))
        self.parts[2].append(self.onnx.helper.make_tensor_value_info(name, _TYPES[kind], shape))

    def node(self, operator: str, *inputs: Any, **attributes: Any) -> _Value:
        """The result of an operator on values, numbers (double) and arrays."""
        names = [one.name if isinstance(one, _Value) else self._constant(one) for one in inputs]
        # Inputs are named by columns: a name of ours must not be one of theirs.
        name = f"metricfit/{operator}_{len(self.parts[0])}"
        self.parts[0].append(self.onnx.helper.make_node(operator, names, [name], **attributes))
        return _Value(self, name)

    def save(self, path: str | os.PathLike[str], **about: str) -> None:
        """Check the graph and write it in one step, with texts about it."""
        helper, (nodes, *parts) = self.onnx.helper, self.parts
        graph = helper.make_graph(nodes, "metricfit", *parts)
        opsets = [helper.make_opsetid(*pair) for pair in _OPSETS.items()]
        model = helper.make_model(graph, opset_imports=opsets, producer_name="metricfit", ir_version=_IR_VERSION)
        helper.set_model_props(model, about)
        self.onnx.checker.check_model(model)
        with written_whole(path) as file:
            file.write_bytes(model.SerializeToString())

    def _constant(self, value: Any) -> str:
        name = f"metricfit/constant_{len(self.parts[3])}"
        self.parts[3].append(self.onnx.numpy_helper.from_array(np.asarray(value), name))
        return name


def _operator(name: str) -> Callable[[_Value, Any], _Value]:
    return lambda value, other: value.to(name, other)


class _Value:
    """A value of a graph; arithmetic on it adds nodes."""

    def __init__(self, graph: _Graph, name: str) -> None:
        self.graph, self.name = graph, name

    def to(self, operator: str, *others: Any, **attributes: Any) -> _Value:
        """The result of an operator whose first input this is."""
        return self.graph.node(operator, self, *others, **attributes)

    __add__, __sub__, __mul__ = _operator("Add"), _operator("Sub"), _operator("Mul")
    __truediv__, __ge__ = _operator("Div"), _operator("GreaterOrEqual")

    def __rsub__(self, other: float) -> _Value:
        return self.graph.node("Sub", other, self)

    def __floordiv__(self, other: float) -> _Value:
        return (self / other).to("Floor")

    def clip(self, low: float, high: float) -> _Value:
        return self.to("Max", low).to("Min", high)

    def cast(self, kind: str) -> _Value:
        return self.to("Cast", to=_TYPES[kind])

    def column(self, number: int) -> _Value:
        return self.to("Gather", np.array([number]), axis=1)

    def row_of(self, table: NDArray[Any]) -> _Value:
        """The rows of a table at these places."""
        return self.graph.node("Gather", table, self, axis=0)

    def beside(self, *others: _Value) -> _Value:
        return self.to("Concat", *others, axis=1)

    def sums(self, keepdims: int) -> _Value:
        return self.to("ReduceSum", np.array([1]), keepdims=keepdims)

    def normalised(self) -> _Value:
        return self / self.sums(keepdims=1)


def to_onnx(classifier: MetricClassifier, path: str | os.PathLike[str]) -> dict[str, str]:
    """Write a classifier as ONNX.

    Every column that is used is an input (rows, 1): numbers and truth values as double, NaN for a gap; categories as
    text, the empty text for a gap; dates as days since 2000-01-01, double. Outputs are ``label`` (rows,), or 0/1 (rows,
    labels) for several labels, and ``probabilities`` (rows, classes or labels) with the decision rule folded in.
    The metadata of the file hold ``inputs`` and ``decision_rule``, with the classes, as JSON. :func:`onnx_inputs` makes
    the inputs of a frame.

    Trees give the same probabilities as in Python to about 1e-14: splits are exact, and leaves are added up in double.
    Networks compute in float32, there and here, and agree to about 1e-6; a label may differ only where its
    probability is that close to the threshold.

    Args:
        classifier: Fitted, with the built-in networks, forests and boosting.
        path: The file.

    Returns:
        The inputs: name and type, "double", "text", "date", or "float" for an array without names.
    """
    if classifier.decision_rule_.least:
        raise ValueError("rule: leaves rows to a person, for which ONNX has no label; tune a rule without coverage.")
    if classifier.group_thresholds_ is not None:
        raise ValueError("rule: has a cut-off for each group, for which ONNX has no place; train with one for all.")
    graph, classes = _Graph(), classifier.classes_
    several = classifier.task_ == "multilabel"
    table = _features(graph, classifier)
    found = [_probabilities(m, table, several) * classifier.weights_[name] for name, m in classifier.models_.items()]
    folded = _decision(classifier.decision_rule_, graph.node("Sum", *found))
    graph.output("probabilities", folded, "double", ["rows", len(classes)])
    if several:
        graph.output("label", folded.to("Greater", 0.5).cast("int64"), "int64", ["rows", len(classes)])
    else:
        kinds = {"U": ("text", str), "O": ("text", str), "b": ("bool", bool), "f": ("double", np.float64)}
        kind, dtype = kinds.get(classes.dtype.kind, ("int64", np.int64))
        label = folded.to("ArgMax", axis=1, keepdims=0).row_of(classes.astype(dtype))
        graph.output("label", label, kind, ["rows"])
    graph.save(path, inputs=json.dumps(graph.inputs), decision_rule=classifier.decision_rule_.to_json())
    return graph.inputs


def onnx_inputs(classifier: MetricClassifier, X: Any) -> dict[str, NDArray[Any]]:
    """What to give to an ONNX session of an exported classifier for rows ``X`` as ``predict`` takes them."""
    preprocessor = classifier.preprocessor_
    if preprocessor is None:
        return {"X": np.asarray(X, dtype=np.float32)}
    found = {}
    for column, values in preprocessor.read(X)[1]:
        if isinstance(values, tuple):
            found[column.name] = np.append(values[1], "")[values[0]][:, None]
        else:
            days = calendar_parts(values)["days"] if column.format.kind == "date" else values
            found[column.name] = np.asarray(days, dtype=float)[:, None]
    return found


def _features(graph: _Graph, classifier: MetricClassifier) -> dict[str, _Value]:
    """The rows in the forms of :class:`metricfit.models.Table`: dense and for trees, (rows, features) in float."""
    preprocessor: Any = classifier.preprocessor_
    if preprocessor is None:
        return dict.fromkeys(("dense", "trees"), graph.input("X", "float", classifier.n_features_in_))
    if not isinstance(preprocessor, TablePreprocessor):
        raise ValueError(
            f"preprocess: only the built-in preprocessing can be exported, got {type(preprocessor).__name__}; export "
            "it by skl2onnx, and the model with preprocess=None."
        )
    dense: list[_Value] = []
    trees: list[_Value] = []
    for column in preprocessor.columns_:
        encoder = column.encoder
        if not column.features:
            continue
        x = graph.input(column.name, {CategoryEncoder: "text", DateEncoder: "date"}.get(type(encoder), "double"))
        if isinstance(encoder, CategoryEncoder):
            features, code = _category(x, column)
            dense.append(features)
            trees.append(code)
        elif isinstance(encoder, DateEncoder):
            values = _calendar(x)
            dense += [part for name, number in encoder.parts.items() for part in _number(values[name], number)]
            dense += [x.to("IsNaN").cast("float")] if encoder.indicator else []
            trees += [values[name].cast("float") for name in encoder.parts or ["days"]]
        else:
            dense += _number(x, encoder)
            trees.append(x.clip(-_FLOAT_LIMIT, _FLOAT_LIMIT).cast("float"))
    if not dense:
        raise ValueError("no column of the model has a feature; there is nothing to export.")
    return {"dense": dense[0].beside(*dense[1:]), "trees": trees[0].beside(*trees[1:])}


def _category(text: _Value, column: FittedColumn) -> tuple[_Value, _Value]:
    """The features of a level, and its code for trees, are rows of a table: levels, then unknown ones, then gaps."""
    levels, size = column.encoder.levels.tolist(), len(column.encoder.levels)
    rows = np.empty((size + 2, len(column.features)), dtype=np.float32)
    # "\0" cannot be a level: no text file holds it.
    each = np.append(np.arange(size + 1), -1), np.array([*levels, "\0"], dtype=object)
    column.write(each, rows)
    places = {"keys_strings": [*levels, ""], "values_int64s": [*range(size), size + 1], "default_int64": size}
    place = text.to("LabelEncoder", domain="ai.onnx.ml", **places).to("Squeeze", np.array([1]))
    return place.row_of(rows), place.row_of(np.stack(column.encoder.tree(each), axis=1).astype(np.float32))


def _number(x: _Value, encoder: NumberEncoder) -> list[_Value]:
    """The features of :class:`NumberEncoder`, in its order."""
    gap = x.to("IsNaN")
    x = gap.to("Where", encoder.fill, x)
    parts = []
    if encoder.standardised:
        scaled = x / encoder.scale - encoder.centre / encoder.scale
        parts.append(scaled.clip(-STANDARD_LIMIT, STANDARD_LIMIT))
    if len(knots := encoder.knots):  # numpy.interp: from each knot by its slope, beyond the ends as at the ends
        slopes, inside = np.append(np.diff(encoder.scores) / np.diff(knots), 0.0), x.clip(knots[0], knots[-1])
        place = (inside >= knots[None, 1:]).cast("int64").sums(keepdims=1)
        parts.append(place.row_of(slopes) * (inside - place.row_of(knots)) + place.row_of(encoder.scores))
    if len(encoder.levels):
        parts.append(x.to("Equal", encoder.levels[None, :]).to("And", gap.to("Not")))
    if encoder.indicator:
        parts.append(gap)
    return [part.cast("float") for part in parts]


def _calendar(days: _Value) -> dict[str, _Value]:
    """Year, month, day, weekday and hour of days since 2000-01-01, by counting years from March."""
    whole = days.to("Floor")
    since_march = whole + _DAYS_TO_MARCH_OF_YEAR_0
    era = since_march // 146_097.0
    day_of_era = since_march - era * 146_097.0
    leap = day_of_era - day_of_era // 1460.0 + day_of_era // 36_524.0 - day_of_era // 146_096.0
    year_of_era = leap // 365.0
    day_of_year = day_of_era - (year_of_era * 365.0 + year_of_era // 4.0 - year_of_era // 100.0)
    month_from_march = (day_of_year * 5.0 + 2.0) // 153.0
    start_of_month = (month_from_march * 153.0 + 2.0) // 5.0
    late = month_from_march >= 10.0
    shifted = whole + 5.0  # 2000-01-01 was a Saturday; Monday is 0
    return {
        "days": days,
        "year": year_of_era + era * 400.0 + late.cast("double"),
        "month": late.to("Where", month_from_march - 9.0, month_from_march + 3.0),
        "day": day_of_year - start_of_month + 1.0,
        "weekday": shifted - shifted // 7.0 * 7.0,
        # Half a microsecond more, so that an hour that was rounded down is not the hour before.
        "hour": ((days - whole) * 24.0 + 24 * 5e-7 / 86_400).to("Floor"),
    }


def _probabilities(model: Any, table: dict[str, _Value], several: bool) -> _Value:
    """A model's probabilities, (rows, classes), or of ``several`` labels (rows, labels); double."""
    if isinstance(model, NetworkModel):
        return _pooled(model, _networks(model, table["dense"]))
    wrong = next((each for fits in model.fits for each in fits if not isinstance(each, (*SKLEARN, int))), None)
    if wrong is not None:
        raise ValueError(
            f"models: {model.name} ({type(wrong).__name__}) cannot be exported, only the built-in networks and "
            "scikit-learn's forests and histogram boosting can; fit without it, for instance models=['boosting']."
        )
    x, folds = table[model.form], []
    for fits in model.fits:
        if several and len(fits) > 1:
            folds.append(x.graph.node("Concat", *(_of_estimator(each, x, 2).column(1) for each in fits), axis=1))
        else:
            folds.append(_of_estimator(fits[0], x, model.outputs))
    each = [fold.to("Unsqueeze", np.array([0])) for fold in folds]
    return _pooled(model, x.graph.node("Concat", *each, axis=0))


def _networks(model: NetworkModel, features: _Value) -> _Value:
    """Probabilities (folds, rows, classes or labels)."""
    network = model.result.network
    if not isinstance(network, MemberMLP):
        raise ValueError("network: only the built-in 'mlp' and 'linear' can be exported; export your own by torch.")
    x = features.to("Unsqueeze", np.array([0]))
    layers = [layer for layer in network.layers if isinstance(layer, MemberLinear)]
    for i, layer in enumerate(layers):
        weight, bias = (t.detach().cpu().numpy() for t in (layer.weight, layer.bias))
        x = x.to("MatMul", weight) + bias
        if i < len(layers) - 1:
            x = x.to("Relu")
    x = x.cast("double")
    proba = x.to("Sigmoid") if model.several else x.to("Softmax", axis=-1)
    shape = [network.members // model.recipe.members, model.recipe.members, -1, layers[-1].weight.shape[2]]
    grouped = proba.to("Reshape", np.array(shape))
    return grouped.to("ReduceMean", axes=[1], keepdims=0)


def _pooled(model: Any, each: _Value) -> _Value:
    """All folds together, as :func:`metricfit.models.portfolio.pooled` has it."""
    if model.several:
        last = np.array([3])
        each = (1.0 - each).to("Unsqueeze", last).to("Concat", each.to("Unsqueeze", last), axis=3)
    some = each.to("Greater", 0.0)
    found = some.to("Where", each, LEAST).to("Log").to("ReduceMean", axes=[0], keepdims=0).to("Exp")
    found = found * some.cast("double").to("ReduceMax", axes=[0], keepdims=0)
    found = found / found.to("ReduceSum", np.array([-1]), keepdims=1)
    return found.to("Gather", np.array(1), axis=2) if model.several else found


def _of_estimator(estimator: Any, x: _Value, outputs: int) -> _Value:
    """The probabilities of one fitted forest or boosting (rows, outputs); a number is the only class it has seen."""
    if isinstance(estimator, int):
        return x.column(0).to("IsNaN").cast("double") * 0.0 + np.eye(outputs)[[estimator]]
    if not isinstance(estimator, HistGradientBoostingClassifier):
        return _forest(estimator, x, outputs)
    raw: _Value = _boosting(estimator, x) + estimator._baseline_prediction.astype(np.float64)
    if len(estimator.classes_) > 2:
        proba = raw.to("Softmax", axis=1)
    else:
        second = raw.to("Sigmoid")
        proba = (1.0 - second).beside(second)
    return proba.to("MatMul", np.eye(outputs)[estimator.classes_])


def _forest(forest: Any, x: _Value, outputs: int) -> _Value:
    trees = []
    for tree, nodes in trees_of(forest):
        if forest.n_outputs_ > 1:
            labels = [tree.value[:, j, : len(known)] @ (known == 1) for j, known in enumerate(forest.classes_)]
            value = np.stack(labels, axis=1)
        else:
            value = tree.value[:, 0] @ np.eye(outputs)[forest.classes_]
        trees.append(nodes | {"value": value / len(forest.estimators_)})
    return _sum_of_trees(x, trees, outputs)


def _boosting(estimator: Any, x: _Value) -> _Value:
    """Raw scores (rows, 1 or classes) without the baseline."""
    width = estimator.n_features_in_
    category = np.zeros(width, dtype=bool) if estimator.is_categorical_ is None else estimator.is_categorical_
    order = np.append(np.flatnonzero(category), np.flatnonzero(~category))  # as the estimator has them
    # What the estimator makes of each code; the last one is a gap.
    codes = np.append(np.arange(_CODES - 1.0), np.nan)
    known = estimator._preprocess_X(np.where(category, codes[:, None], 0.0), reset=False)
    # ONNX has no split on a set of categories: each becomes a column that says whether the row goes right.
    trees, splits = [], []
    for predictor, tree in trees_of(estimator):
        nodes, feature = predictor.nodes, tree["feature"]
        tree |= {"feature": order[feature], "value": nodes["value"][:, None]}
        trees.append(tree)
        for at in np.flatnonzero(nodes["is_categorical"] & ~tree["leaf"]):
            code = known[:, feature[at]]
            whole = np.nan_to_num(code).astype(np.int64)
            bits = predictor.raw_left_cat_bitsets[nodes["bitset_idx"][at]]
            left = np.where(np.isnan(code), tree["gap_left"][at], bits[whole // 32] >> whole % 32 & 1)
            splits.append((int(tree["feature"][at]), tree, at, (left == 0).astype(np.float32)))
    parts = []
    for column, group in groupby(sorted(splits, key=itemgetter(0)), key=itemgetter(0)):
        _, of, places, goes_right = zip(*group, strict=True)
        for number, (tree, at) in enumerate(zip(of, places, strict=True)):
            tree["feature"][at], tree["threshold"][at] = width + number, 0.5
        width += len(places)
        code = x.column(column).to("Squeeze", np.array([1]))
        place = code.to("IsNaN").to("Where", np.float32(_CODES - 1), code).cast("int64")
        parts.append(place.row_of(np.stack(goes_right, axis=1)))
    return _sum_of_trees(x.beside(*parts), trees, estimator.n_trees_per_iteration_)


def _sum_of_trees(x: _Value, trees: list[Nodes], outputs: int) -> _Value:
    """The sum of the leaves that the rows come to, (rows, outputs), in double; their ``value`` may have one column."""
    # ONNX gives the places of the leaves only: it would add up their values in float.
    sizes = [len(tree["leaf"]) for tree in trees]
    joined = {name: np.concatenate([tree[name] for tree in trees]) for name in trees[0]}
    leaf, threshold = joined["leaf"], joined["threshold"].astype(np.float64)
    # A float is at most a double if it is at most the largest float below that: rounded down, no row changes its side.
    with np.errstate(over="ignore"):
        rounded = threshold.astype(np.float32)
    joined["threshold"] = np.where(rounded > threshold, np.nextafter(rounded, np.float32(-np.inf)), rounded)
    tree_ids = np.repeat(np.arange(len(trees)), sizes)
    node_ids = np.concatenate([np.arange(size) for size in sizes])
    attributes = {
        "nodes_treeids": tree_ids, "nodes_nodeids": node_ids, "nodes_modes": np.where(leaf, "LEAF", "BRANCH_LEQ"),
        **{f"nodes_{name}": np.where(leaf, 0, joined[field]) for name, field in _ONNX_NODES.items()},
        "target_treeids": tree_ids[leaf], "target_nodeids": node_ids[leaf], "target_ids": tree_ids[leaf],
        "target_weights": node_ids[leaf].astype(np.float32), "n_targets": np.array(len(trees)),
    }  # fmt: skip
    plain = {name: values.tolist() for name, values in attributes.items()}
    place = x.to("TreeEnsembleRegressor", domain="ai.onnx.ml", **plain)
    values = (place.cast("int64") + np.cumsum([0, *sizes[:-1]])).row_of(joined["value"])
    rounds = values.to("Reshape", np.array([-1, len(trees) * joined["value"].shape[1] // outputs, outputs]))
    return rounds.sums(keepdims=0)


def _decision(rule: DecisionRule, proba: _Value) -> _Value:
    """Probabilities whose arg max is the rule's decision, as ``DecisionRule.fold`` gives them."""
    if rule.kind == "argmax":
        return proba
    parameter: NDArray[np.float64] = np.asarray(rule.parameter, dtype=np.float64)
    if rule.kind == "offsets":
        return proba.to("Mul", np.exp(parameter - parameter.max())).normalised()
    if rule.kind == "costs":
        return proba.to("MatMul", parameter.max(axis=1, keepdims=True) - parameter).normalised()
    # The odds are rescaled so that each threshold becomes one half.
    p, bounded = proba if rule.kind == "thresholds" else proba.column(1), np.clip(parameter, 1e-12, 1 - 1e-12)
    up, down = p * (1 - bounded), (1.0 - p) * bounded
    moved = up / (up + down)
    folded = (p >= parameter).to("Where", moved.to("Max", _JUST_OVER_HALF), moved.to("Min", 0.5))
    return folded if rule.kind == "thresholds" else (1.0 - folded).beside(folded)
