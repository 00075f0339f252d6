"""Rows of results for the tests."""

from __future__ import annotations

import pandas as pd

from benchmarks.papers.config import Experiment
from benchmarks.papers.results import COLUMNS, KEY

EXPERIMENT = Experiment("mammography", "f1", "linear", "btg-tabular", "1024", "", "full")


def row(**changes: object) -> pd.DataFrame:
    usual: dict[str, object] = dict.fromkeys(COLUMNS["scores"], "")
    usual |= {name: getattr(EXPERIMENT, name) for name in KEY}
    usual |= {"trial": 0, "rule": "mean_tau", "metric": "f1", "value": 0.6}
    return pd.DataFrame([usual | changes])
