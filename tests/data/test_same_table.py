"""The same table from a file and from frames gives the same types, features and model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

from metricfit import MetricClassifier
from metricfit.data import Roles, TablePreprocessor, open_table, read_labelled
from metricfit.training.recipes import Recipe

ROWS = 120


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with gaps of every spelling, decimal commas, dates, truth values, an identifier and text."""
    random = np.random.default_rng(0)
    gaps = ["?", "NA", "", "n/a", "None", "NULL", "#N/A"]

    def holes(values: list[str], share: float = 0.15) -> list[str]:
        return [str(random.choice(gaps)) if random.random() < share else value for value in values]

    number = random.normal(size=ROWS).round(2)
    days = pd.date_range("2024-01-01", periods=ROWS, freq="31h")
    table = pd.DataFrame(
        {
            "customer_id": 1000 + random.permutation(ROWS),
            "number": holes([f"{value:.2f}" for value in number]),
            "comma": holes([f"{value:.1f}".replace(".", ",") for value in random.normal(5, 2, ROWS)]),
            "whole": random.integers(0, 6, ROWS),
            "paid": random.choice(["yes", "no"], ROWS),
            "flag": random.choice(["True", "False"], ROWS),
            "maybe": holes([str(value) for value in random.random(ROWS) < 0.5]),
            "day": holes(list(days.strftime("%Y-%m-%d"))),
            "german": holes(list(days.strftime("%d.%m.%Y"))),
            "city": holes([str(city) for city in random.choice(["Rome", "Oslo", "Bern"], ROWS)]),
            "mostly": [str(value) for value in number[:-1] * 3] + ["unknown"],
            "note": [f"note {i}" for i in range(ROWS)],
            "empty": "?",
            "target": np.where(number + random.normal(0, 0.3, ROWS) > 0.2, "yes", "no"),
        }
    )
    table.to_csv(tmp_path / "table.csv", index=False, sep=";")
    return tmp_path / "table.csv"


def tables(path: Path) -> dict[str, object]:
    typed = pd.read_csv(path, sep=";")
    text = pd.read_csv(path, sep=";", dtype=str, keep_default_na=False)
    return {
        "the reader": open_table(path).read().frame(),
        "the command line": read_labelled(open_table(path), Roles(["target"])).X,
        "pandas": typed,
        "pandas, text": pd.read_csv(path, sep=";", dtype=str),
        "pandas, text with its gaps": text,
        "pandas, objects": text.astype(object),
        "polars, text": pl.read_csv(path, separator=";", infer_schema=False),
    }


def without_target(table: object) -> object:
    if isinstance(table, pl.DataFrame):
        return table.drop("target")
    return table.drop(columns="target", errors="ignore")  # type: ignore[attr-defined]


def test_every_way_gives_the_same_types_and_features(path: Path) -> None:
    y = (pd.read_csv(path, sep=";")["target"] == "yes").to_numpy()
    found = {}
    for way, table in tables(path).items():
        preprocessor = TablePreprocessor(random_state=0)
        features = preprocessor.fit_transform(without_target(table), y)
        kinds = {c.name: c.format.kind for c in preprocessor.columns_ if not c.dropped}
        found[way] = (kinds, preprocessor.get_feature_names_out().tolist(), features)
    kinds, names, features = found["the reader"]
    assert kinds == {
        "number": "number", "comma": "number", "whole": "number", "paid": "category", "flag": "flag", "maybe": "flag",
        "day": "date", "german": "date", "city": "category", "mostly": "number",
    }  # fmt: skip
    for way, (other_kinds, other_names, other) in found.items():
        assert other_kinds == kinds, way
        assert other_names == names, way
        np.testing.assert_array_equal(other, features, err_msg=way)


@pytest.mark.filterwarnings("ignore:X. column 'note' not used")
def test_the_same_table_from_a_file_and_from_frames_gives_the_same_model(path: Path) -> None:
    y = pd.read_csv(path, sep=";")["target"].to_numpy()
    found = {}
    for way, table in tables(path).items():
        model = MetricClassifier(
            "f1[yes]", recipe=Recipe(max_epochs=2, min_updates=0), cv=2, baseline=False, verbose=False, random_state=0
        )
        X = without_target(table)
        found[way] = model.fit(X, y).predict_proba(X)
    for way, proba in found.items():
        np.testing.assert_array_equal(proba, found["the reader"], err_msg=way)
