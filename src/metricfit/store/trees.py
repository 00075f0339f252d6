"""Fitted trees of scikit-learn as plain arrays: checked when a model is loaded, translated when it is exported."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier

Nodes = dict[str, NDArray[Any]]
"""Arrays with one entry per node: feature, threshold, left, right, gap_left, leaf."""

KNOWN = (RandomForestClassifier, ExtraTreesClassifier, HistGradientBoostingClassifier)
_FIELDS = ("feature", "threshold", "left", "right", "gap_left")
_FOREST = ("feature", "threshold", "left_child", "right_child", "missing_go_to_left")
_BOOSTING = ("feature_idx", "num_threshold", "left", "right", "missing_go_to_left")


def trees_of(estimator: Any) -> list[tuple[Any, Nodes]]:
    """Every tree of a fitted forest or boosting model, and its nodes."""
    if isinstance(estimator, HistGradientBoostingClassifier):
        trees = [predictor for step in estimator._predictors for predictor in step]
        leaves = [tree.nodes["is_leaf"] != 0 for tree in trees]
        names, nodes = _BOOSTING, [tree.nodes for tree in trees]
    else:
        trees = [each.tree_ for each in estimator.estimators_]
        names, nodes = _FOREST, [tree.__getstate__()["nodes"] for tree in trees]
        leaves = [each["left_child"] == -1 for each in nodes]
    arrays = [{name: each[field].copy() for name, field in zip(_FIELDS, names, strict=True)} for each in nodes]
    return [(tree, each | {"leaf": leaf}) for tree, each, leaf in zip(trees, arrays, leaves, strict=True)]


def check_fit(estimator: Any, classes: int) -> None:
    """Refuse what a file may hold but no fit gives; an estimator may be the only class that a fold has seen."""
    if not isinstance(estimator, KNOWN):
        if not (0 <= estimator < classes if isinstance(estimator, int) else hasattr(estimator, "predict_proba")):
            raise ValueError("an estimator that gives no probabilities of these classes")
        return
    for _, nodes in trees_of(estimator):
        at = np.flatnonzero(~nodes["leaf"])
        children = np.stack([nodes[side][at].astype(np.int64) for side in ("left", "right")])
        if (children <= at).any() or (children >= len(nodes["leaf"])).any():
            raise ValueError("a tree whose branches lead nowhere, or in circles")
        feature = nodes["feature"][at].astype(np.int64)
        if (feature < 0).any() or (feature >= estimator.n_features_in_).any():
            raise ValueError("a tree that splits a column which is not there")
