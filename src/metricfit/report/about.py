"""What the data looked like, and what is needed to train the same model again."""

from __future__ import annotations

import json
import shlex
import tomllib
from typing import Any

import numpy as np
import pandas as pd

from metricfit.assess.scores import HeldOutScores
from metricfit.data import TablePreprocessor
from metricfit.training.explanation import rule_in_words
from metricfit.training.recipes import Recipe

__all__ = ["columns_of", "describe_table", "reproduction", "shares"]

_MOST_COLUMNS = 500


def describe_table(table: pd.DataFrame) -> dict[str, Any]:
    """Rows, and of each column its gaps and a few words on its values; small enough to keep with the model.

    >>> describe_table(pd.DataFrame({"age": [20.0, 40.0, None], "plan": ["a", "b", "a"]}))["columns"]["plan"]
    {'gaps': 0, 'values': '2 distinct; a 67 %, b 33 %'}
    """
    columns = {
        str(name): {"gaps": int(table[name].isna().sum()), "values": _values(table[name])}
        for name in table.columns[:_MOST_COLUMNS]
    }
    return {"rows": len(table), "columns": columns}


def _values(column: pd.Series[Any]) -> str:
    known = column.dropna()
    if not len(known):
        return "nothing but gaps"
    if known.dtype.kind in "iuf":
        low, middle, high = np.quantile(known.to_numpy(dtype=np.float64), [0, 0.5, 1])
        return f"{low:.4g} to {high:.4g}, median {middle:.4g}"
    if known.dtype.kind == "M":
        return f"{known.min():%Y-%m-%d} to {known.max():%Y-%m-%d}"
    counts = known.astype(str).value_counts()
    top = ", ".join(f"{str(name)[:40]} {100 * count / len(known):.0f} %" for name, count in counts[:3].items())
    return f"{len(counts):,} distinct; {top}"


def columns_of(classifier: Any, description: dict[str, Any]) -> list[dict[str, Any]]:
    """Of each column what it was taken for and what it held."""
    noted = (description["notes"].get("data") or {}).get("columns", {})
    summaries = {}
    if isinstance(classifier.preprocessor_, TablePreprocessor):
        summaries = {c.name: c for c in classifier.preprocessor_.describe()}
    found = []
    for column in description["columns"]["kinds"] or []:
        name = column["name"]
        note, summary = noted.get(name, {}), summaries.get(name)
        values = note.get("values", "")
        if not values and summary is not None and summary.levels is not None:
            values = f"{summary.levels:,} distinct"
        gaps = note.get("gaps", None if summary is None else summary.gaps)
        found.append({**column, "values": values, "gaps": gaps})
    return found


def shares(scores: HeldOutScores, labels: tuple[Any, ...]) -> list[dict[str, Any]]:
    """Rows of each class and their share."""
    weight = np.ones(len(scores)) if scores.weight is None else scores.weight
    several = scores.truth.ndim == 2
    counts = weight @ scores.truth if several else np.bincount(scores.truth, weight, minlength=len(labels))
    total = weight.sum()
    return [
        {"label": str(label), "count": float(count), "share": float(count / total) if total else 0.0}
        for label, count in zip(labels, counts, strict=True)
    ]


def reproduction(classifier: Any, description: dict[str, Any], settings: str | None) -> dict[str, Any]:
    """Command, recipe, rule and versions."""
    return {
        "command": None if not settings else _command(settings),
        "python": _python(classifier, description),
        "recipe": _recipe(classifier.recipe_),
        "rule": json.dumps(description["decision_rule"], ensure_ascii=False),
        "rule_in_words": rule_in_words(classifier.decision_rule_),
        "seed": description["fitted"]["seed"],
        "seconds": description["fitted"]["fit_seconds"],
        "libraries": description["libraries"],
        "network": description["network"],
    }


def _command(settings: str) -> str:
    options = tomllib.loads(settings)
    data = str(options.pop("data", "DATA"))
    words = ["metricfit", "train", data]
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            words.append(option if value else f"--no-{option[2:]}")
        else:
            for one in value if isinstance(value, list) else [value]:
                words += [option, str(one)]
    return shlex.join(words)


def _python(classifier: Any, description: dict[str, Any]) -> str:
    parameters = {"recipe": classifier.recipe_.name, "random_state": description["fitted"]["seed"]}
    text = ", ".join(f"{name}={value!r}" for name, value in parameters.items())
    return f"MetricClassifier({description['metric']!r}, {text})"


def _recipe(recipe: Recipe) -> list[dict[str, Any]]:
    """Every part; whether it differs from the recipe of that name."""
    usual = Recipe(recipe.name).complete().parts()
    return [
        {"name": name, "value": json.dumps(value, default=str), "changed": value != usual.get(name)}
        for name, value in recipe.parts().items()
    ]
