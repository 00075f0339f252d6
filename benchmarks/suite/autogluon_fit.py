"""One fit of AutoGluon, run by the Python of its own environment: ``python autogluon_fit.py <folder>``.

The folder has ``train.parquet`` (with the column ``target``), ``test.parquet`` and ``request.json``; ``found.npz`` is
written into it. Nothing of this repository is imported.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from autogluon.tabular import TabularPredictor

NAMES = {"f1": ("f1", "f1_macro"), "mcc": ("mcc", "mcc"), "balanced_accuracy": ("balanced_accuracy",) * 2}
"""What AutoGluon calls a metric with two classes and with more."""


def main(folder: Path) -> None:
    request = json.loads((folder / "request.json").read_text())
    train, test = (pd.read_parquet(folder / f"{part}.parquet") for part in ("train", "test"))
    two = request["classes"] == 2
    predictor = TabularPredictor(
        "target", problem_type="binary" if two else "multiclass", eval_metric=NAMES[request["metric"]][not two],
        path=str(folder / "models"), verbosity=0,
    )  # fmt: skip
    predictor.fit(
        train, presets="good_quality", time_limit=request["seconds"], num_cpus=1, num_gpus=0, dynamic_stacking=False,
        ag_args_ensemble={"fold_fitting_strategy": "sequential_local"},
    )  # fmt: skip
    proba = predictor.predict_proba(test)[list(range(request["classes"]))].to_numpy(np.float64)
    decided = predictor.predict(test).to_numpy(np.intp)
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu = sum(each.ru_utime + each.ru_stime for each in spent)
    np.savez(folder / "found.npz", test=proba, decided=decided, cpu_seconds=cpu)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
