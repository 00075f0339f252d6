"""Does btg's lookup table save time? The linear step computed, and read from tables of 8 bits and of hundredths.

``python -m benchmarks.papers.checks.btg_lookup`` times the step of n probabilities at the threshold 1/2, forwards and
with its gradient, and writes btg_lookup.csv beside itself: the median and the fastest of 200 calls, in microseconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from benchmarks.papers.lookup import Tabulated
from metricfit.steps import Linear

FILE = Path(__file__).with_suffix(".csv")
SIZES = (1024, 65_536)
CALLS = 200


def eight_bits(step: Linear) -> Callable[[Tensor], Tensor]:
    """The step at τ = 1/2 from a table of 256 values, indexed by the probability cut off after 8 bits."""
    p = (torch.arange(256) / 256).requires_grad_()
    values = step(p, 0.5)
    slopes = torch.autograd.grad(values.sum(), p)[0]
    values = values.detach()

    def read(p: Tensor) -> Tensor:
        index = (p.detach() * 256).long().clamp_(0, 255)
        return values[index] + slopes[index] * (p - p.detach())

    return read


def times(step: Callable[[Tensor], Tensor], p: Tensor, gradient: bool) -> list[float]:
    found = []
    for _ in range(CALLS):
        start = time.perf_counter()
        if gradient:
            step(p).sum().backward()
            p.grad = None
        else:
            with torch.no_grad():
                step(p)
        found.append(1e6 * (time.perf_counter() - start))
    return found


def table(rows: pd.DataFrame) -> str:
    """The fastest calls as Markdown."""
    lines = ["| microseconds, fastest call | computed | table of hundredths | table of 8 bits |", "|---|---|---|---|"]
    for (n, what), part in rows.groupby(["n", "what"], sort=False):
        cells = part.set_index("step")["fastest"]
        shown = [f"{cells[name]:.0f}" for name in ("computed", "hundredths", "8 bits")]
        lines.append(f"| {n:,} probabilities, {what} | {' | '.join(shown)} |")
    return "\n".join(lines)


def main() -> None:
    torch.set_num_threads(1)
    linear = Linear(0.1)
    rounded, cut = Tabulated(linear), eight_bits(linear)
    steps: dict[str, Callable[[Tensor], Tensor]] = {
        "computed": lambda p: linear(p, 0.5), "hundredths": lambda p: rounded(p, 0.5), "8 bits": cut,
    }  # fmt: skip
    p = torch.linspace(0, 1, 20_001)
    rows = []
    for name, step in steps.items():
        error = float((step(p) - linear(p, 0.5)).abs().max())
        for n in SIZES:
            random = torch.rand(n, generator=torch.Generator().manual_seed(0)).requires_grad_()
            for what in ("value", "value and gradient"):
                found = times(step, random, what != "value")
                rows.append(
                    {"step": name, "n": n, "what": what, "median": round(float(np.median(found)), 1),
                     "fastest": round(min(found), 1), "largest error": round(error, 4)}
                )  # fmt: skip
    frame = pd.DataFrame(rows)
    frame.to_csv(FILE, index=False)
    print(frame.to_string(index=False))
    print(table(frame))


if __name__ == "__main__":
    main()
