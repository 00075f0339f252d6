"""Write small models in the current format: ``python -m tests.models_of_old``. Folders that are there stay."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from metricfit import MetricClassifier, Recipe, store
from metricfit.decisions import DecisionRule
from metricfit.store.folder import VERSION

HERE = Path(__file__).parent


def rows(number: int = 60) -> pd.DataFrame:
    """A table with a column of every kind, gaps included."""
    rng = np.random.default_rng(7)
    table = pd.DataFrame({"age": rng.normal(40, 10, number).round(2), "paid": rng.random(number) < 0.5})
    table["plan"] = rng.choice(["a", "b", "Zürich"], number)
    table["since"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 400, number), "D")
    table.loc[::9, ["age", "plan", "since"]] = None
    return table


def models() -> dict[str, Any]:
    """A classifier of every task and kind of model."""
    table = rows()
    age = table["age"].fillna(40)
    recipe = Recipe(hidden_sizes=(4,), min_updates=20, max_epochs=1)
    options: dict[str, Any] = {"recipe": recipe, "cv": 2, "baseline": False, "random_state": 0, "verbose": False}
    two = np.where(age + 10 * table["paid"] > 45, "yes", "no")
    three = np.array([3, 5, 9])[pd.qcut(age, 3).cat.codes]
    several = pd.DataFrame({"old": age > 45, "paid late": table["paid"]}).astype(int)
    made = {
        "two-classes": MetricClassifier("f1", models="network", **options).fit(table, two),
        "three-classes": MetricClassifier("mcc", models="forest", **options).fit(table, three),
        "labels": MetricClassifier("f1", models="network", **options).fit(table.drop(columns="paid"), several),
        "boosting": MetricClassifier("mcc", models="boosting", **options).fit(table, two),
        "groups": MetricClassifier(
            "mcc subject to recall[yes] >= 0.2 with thresholds by plan", models="boosting", **options
        ).fit(table, two),
    }
    made["two-classes"].decision_rule_ = DecisionRule.at_threshold(0.4, ["no", "yes"])
    made["labels"].decision_rule_ = DecisionRule.at_thresholds([0.3, 0.6], ["old", "paid late"])
    for fits in made["three-classes"].models_["forest"].fits:
        fits[0].estimators_ = fits[0].estimators_[:3]
    for fits in [*made["boosting"].models_["boosting"].fits, *made["groups"].models_["boosting"].fits]:
        fits[0]._predictors = fits[0]._predictors[:3]
    return made


def main() -> None:
    """Write the folders of this version, and what they say of the rows."""
    for name, classifier in models().items():
        path = HERE / str(VERSION) / name
        if path.exists():
            continue
        store.write_model(path, classifier, store.description_of(classifier), {})
        proba = classifier.predict_proba(rows())
        expected = {"labels": np.asarray(classifier.predict(rows())).tolist(), "probabilities": proba.tolist()}
        (path.parent / f"{name}.json").write_text(json.dumps(expected))
        print(path, sum(file.stat().st_size for file in path.iterdir()))


if __name__ == "__main__":
    main()
