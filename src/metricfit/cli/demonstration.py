"""The run behind ``metricfit demo``: a table with every kind of column, trained and predicted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from metricfit.cli.errors import UsageError
from metricfit.cli.fitting import run as train
from metricfit.cli.output import Output

__all__ = ["customers", "run"]

_ROWS = 1500


def run(out: Path, *, seed: int, overwrite: bool, as_json: bool, quiet: bool) -> None:
    """Make the table and train on it."""
    output = Output(as_json, quiet)
    table, model = out / "customers.csv", out / "model"
    if (table.exists() or model.exists()) and not overwrite:
        raise UsageError(f"--out: {out} holds an earlier demo; --overwrite replaces it.")
    out.mkdir(parents=True, exist_ok=True)
    customers(_ROWS, seed).to_csv(table, index=False)
    output.note(f"{_ROWS:,} made-up customers, of whom about one in eight leaves: {table}")
    output.note(f"$ metricfit train {table} --target churn --metric f1[yes] --max-epochs 40 --out {model}")
    options: dict[str, Any] = dict.fromkeys(
        ("validation", "group", "time", "folds", "weight", "positive", "max_time", "max_rows", "separator", "encoding")
    )
    options |= {"ignore": [], "use": [], "categorical": [], "missing": [], "task": "auto", "recipe": "default"}
    options |= {"data": str(table), "target": ["churn"], "metric": "f1[yes]", "out": str(model), "baseline": True}
    options |= {"max_epochs": 40, "seed": seed}
    train(options, resume=False, overwrite=overwrite, as_json=as_json, quiet=quiet)
    output.note(f"Next: metricfit predict {model} {table} --keep customer_id")


def customers(rows: int, seed: int) -> pd.DataFrame:
    """Customers of a telephone company: numbers, categories, dates, gaps and an identifier."""
    rng = np.random.default_rng(seed)
    months = rng.integers(1, 73, rows)
    charge = np.round(rng.gamma(4.0, 15.0, rows) + 15, 2)
    contract = rng.choice(["monthly", "one year", "two years"], rows, p=[0.55, 0.25, 0.2])
    calls = rng.poisson(1.2, rows)
    joined = pd.Timestamp("2024-06-30") - pd.to_timedelta(months * 30, unit="D")
    risk = -4.2 + 1.5 * (contract == "monthly") + 0.55 * calls - 0.02 * months + 0.012 * (charge - 75)
    risk += 1.2 * ((charge > 100) & (calls >= 3))
    leaves = rng.random(rows) < 1 / (1 + np.exp(-2.2 * (risk + 1.8)))
    return pd.DataFrame(
        {
            "customer_id": np.arange(10_000, 10_000 + rows),
            "contract": contract,
            "monthly_charge": np.where(rng.random(rows) < 0.03, np.nan, charge),
            "support_calls": calls,
            "joined": joined.strftime("%Y-%m-%d"),
            "region": rng.choice(["north", "south", "east", "west", ""], rows, p=[0.3, 0.3, 0.2, 0.15, 0.05]),
            "paperless": rng.random(rows) < 0.6,
            "churn": np.where(leaves, "yes", "no"),
        }
    )
