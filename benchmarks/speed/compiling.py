"""How long the first loss and the first fit wait for the compiler, and later processes for numba's cache.

``python benchmarks/speed/compiling.py`` writes ``compiling.csv``: each case twice, in a process of its own and with a
cache folder that is empty the first time. A fit's own training is part of both of its numbers.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
CASES = ("1024x10", "65536x10", "1024x300", "fit")


def one(case: str) -> None:
    """Processor time of a first loss or fit; printed for the parent."""
    import numpy as np
    import torch

    from metricfit import MetricClassifier, MetricLoss, Recipe

    torch.set_num_threads(1)
    started = time.process_time()
    if case == "fit":
        X = np.random.default_rng(0).normal(size=(4000, 10)).astype(np.float32)
        recipe = Recipe(max_epochs=60, batch_size=64)
        MetricClassifier("f1", recipe=recipe, baseline=False, cv=None, verbose=False).fit(X, X[:, 0] > 1)
    else:
        n, d = (int(part) for part in case.split("x"))
        MetricLoss("f1")(torch.zeros(n, d, requires_grad=True), torch.arange(n) % d).backward()
    print(json.dumps(round(time.process_time() - started, 1)))


def main() -> None:
    from loss import machine

    rows = []
    for case in CASES:
        with tempfile.TemporaryDirectory() as cache:
            command = [sys.executable, "-W", "ignore", __file__, case]
            environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
            for cached in (False, True):
                out = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
                rows.append({"case": case, "cached": cached, "seconds": json.loads(out), **machine(), "threads": 1})
                print(case, cached, rows[-1]["seconds"], flush=True)
    with (HERE / "compiling.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    one(sys.argv[1]) if len(sys.argv) > 1 else main()
