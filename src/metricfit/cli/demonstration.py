"""The run behind ``metricfit demo``: scikit-learn's digits as a table with rare classes, trained on macro F1."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from metricfit.cli.errors import UsageError
from metricfit.cli.fitting import run as train
from metricfit.cli.output import Output

__all__ = ["rare_digits", "run"]

_MAX_EPOCHS: int | None = None


def run(out: Path, *, seed: int, overwrite: bool, as_json: bool, quiet: bool) -> None:
    """Write the table and train on it."""
    output = Output(as_json, quiet)
    table, model = out / "digits.csv", out / "model"
    if (table.exists() or model.exists()) and not overwrite:
        raise UsageError(f"--out: {out} holds an earlier demo; --overwrite replaces it.")
    out.mkdir(parents=True, exist_ok=True)
    digits = rare_digits()
    digits.to_csv(table, index=False)
    counts = digits["digit"].value_counts()
    output.note(
        f"{len(digits)} of scikit-learn's handwritten digits, from {counts[0]} zeros to {counts[9]} nines: {table}\n"
        "Macro F1 counts a rare digit as much as a common one; cross-entropy does not.\n"
        f"$ metricfit train {table} --target digit --metric f1_macro --out {model}\n"
        f"Afterwards try: metricfit predict {model} {table} --keep digit"
    )
    options: dict[str, Any] = dict.fromkeys(
        ("validation", "group", "time", "folds", "weight", "positive", "max_time", "max_rows", "separator", "encoding")
    )
    options |= {"ignore": [], "use": [], "categorical": [], "missing": [], "task": "auto", "recipe": "default"}
    options |= {"data": str(table), "target": ["digit"], "metric": "f1_macro", "out": str(model), "baseline": True}
    options |= {"max_epochs": _MAX_EPOCHS, "seed": seed}
    # So small a network gains nothing by threads, and on a busy machine they wait for each other.
    with threadpool_limits(1):
        train(options, resume=False, overwrite=overwrite, as_json=as_json, quiet=quiet)


def rare_digits() -> pd.DataFrame:
    """Scikit-learn's digits, a column a pixel, of which digit k keeps about 0.7^k."""
    from sklearn.datasets import load_digits

    frame = load_digits(as_frame=True).frame.rename(columns={"target": "digit"}).astype(int)
    digit = frame["digit"].to_numpy()
    random = np.random.default_rng(0)
    kept = [random.permutation(np.flatnonzero(digit == k))[: int(170 * 0.7**k) + 6] for k in range(10)]
    return pd.DataFrame(frame.iloc[np.sort(np.concatenate(kept))])
