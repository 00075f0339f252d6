"""Fit a classifier, alone or started by torchrun: python fitting.py OUT [how]."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import make_classification

from metricfit import MetricClassifier
from metricfit.training import Recipe
from metricfit.training.streaming import ShardedRows, fit_shards

QUICK = Recipe(max_epochs=3, min_updates=30, hidden_sizes=(16,))
CASES = {
    "binary": {"metric": "f1", "cv": 2},
    "three classes": {"metric": "mcc", "cv": None},
    "constraint": {"metric": "precision[1] subject to recall[1] >= 0.8", "cv": None},
    "surrogate": {"metric": "f1", "cv": None, "recipe": QUICK.with_parts({"name": "surrogate_fbeta"})},
    "auroc": {"metric": "auroc", "cv": None},
    "fewer rows than processes in a batch": {
        "metric": "f1",
        "cv": None,
        "recipe": QUICK.with_parts({"batch_size": 1, "min_updates": 20}),
    },
}
COMMON = {"models": "network", "recipe": QUICK, "baseline": False, "random_state": 0}


def data(classes: int) -> tuple[np.ndarray, np.ndarray]:
    return make_classification(
        301 if classes == 2 else 300, 8, n_informative=6, n_redundant=0, n_classes=classes, random_state=0
    )


def main(out: Path, how: str) -> None:
    rank = int(os.environ.get("RANK", 0))
    found = {}
    if how == "dying":

        def die(event: object) -> None:
            if rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)

        MetricClassifier("f1", callbacks=[die], **COMMON).fit(*data(2))
    for name, options in CASES.items():
        X, y = data(3 if name == "three classes" else 2)
        if name.startswith("fewer"):
            X, y = X[:21], y[:21]
        folder = None if name != "binary" else out.parent / f"checkpoints-{os.environ.get('WORLD_SIZE', 1)}"
        fitted = MetricClassifier(**{**COMMON, **options}, checkpoint_dir=folder).fit(X, y)
        found[name] = fitted.predict_proba(X).tolist()
    X, y = data(2)
    frame = pd.DataFrame(X, columns=[f"x{i}" for i in range(8)]).assign(y=y, w=1.0 + (np.arange(len(y)) % 3))
    table = out.parent / f"rows-{os.environ.get('WORLD_SIZE', 1)}-{rank}.parquet"
    for name, groups in (("streamed", 30), ("streamed from one piece", 301)):  # which one of the processes reads
        frame.to_parquet(table, index=False, row_group_size=groups)
        how = {"passes": 3, "buffer_rows": 100, "validation_rows": 60, "sample_rows": 90}
        options = {**COMMON, "cv": 2 if groups == 30 else None}
        fitted = fit_shards(MetricClassifier("f1", **options), ShardedRows(table, "y", weight="w"), "y", **how)
        found[name] = fitted.predict_proba(frame.drop(columns="y")).tolist()
        found[f"{name}: losses"] = fitted.history_["loss"].tolist()
    unseeded = MetricClassifier("f1", **{**COMMON, "random_state": None}).fit(X, y)
    found["seed"] = unseeded.seed_
    out.with_name(f"{out.name}-{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "")
