"""What several processes have to tell each other in a step, and what that costs on a cluster: a simulation.

    python benchmarks/speed/communication.py            # writes communication.csv and the plot
    python benchmarks/speed/communication.py measure    # times the real message of 2 local processes over gloo

A step of P processes: each computes on its own rows, then one all-reduce of the statistics (the loss waits for it),
then one of the gradients. An all-reduce of B bytes takes the better of a ring, 2(P-1) latencies and 2(P-1)/P · B over
the bandwidth, and a tree, 2·log2(P) latencies and 2·log2(P) · B over the bandwidth. Nothing is overlapped, which makes
the numbers too high rather than too low.
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
IMAGES = HERE.parents[1] / "docs" / "images"

ROWS = 10**10
BANDWIDTH = 12.5e9  # bytes per second: 100 Gbit
LATENCY = 15e-6  # seconds a message
SPEED = 5e13  # floating-point operations a second and process, reached, not peak
NUMBER = 8  # bytes: statistics travel in float64
GRADIENT = 4


@dataclass(frozen=True)
class Scenario:
    """A model and its classes.

    Attributes:
        name: What it is called.
        classes: d.
        parameters: Of the network.
        batch: Rows of one process.
        statistics: Numbers in the message of the loss.
    """

    name: str
    classes: int
    parameters: int
    batch: int
    statistics: int


def matrix(classes: int) -> int:
    """Total weight, d × d counts, and the sums of cross-entropy and of weights of each class."""
    return 1 + classes**2 + 2 * classes


def each_class(classes: int) -> int:
    """The same with four counts of each class in place of the matrix, as averages over classes need them."""
    return 1 + 4 * classes + 2 * classes


SCENARIOS = [
    Scenario("fraud, 2 classes", 2, 10**5, 8192, matrix(2)),
    Scenario("images, 1,000 classes", 1000, 25 * 10**6, 512, matrix(1000)),
    Scenario("10,000 classes, matrix", 10**4, 10**8, 512, matrix(10**4)),
    Scenario("100,000 classes, matrix", 10**5, 3 * 10**8, 512, matrix(10**5)),
    Scenario("100,000 classes, counts of each", 10**5, 3 * 10**8, 512, each_class(10**5)),
]


def all_reduce_seconds(size: float, processes: int) -> float:
    if processes == 1:
        return 0.0
    ring = 2 * (processes - 1) * LATENCY + 2 * (processes - 1) / processes * size / BANDWIDTH
    depth = 2 * math.ceil(math.log2(processes))
    return min(ring, depth * LATENCY + depth * size / BANDWIDTH)


def step_seconds(scenario: Scenario, processes: int) -> tuple[float, float, float]:
    """Arithmetic, statistics and gradients of one step."""
    operations = 6 * scenario.parameters * scenario.batch  # two for the forward, four for the backward pass
    loss = 60 * scenario.classes * scenario.batch  # softmax, step, gradient: about 60 operations a score
    return (
        (operations + loss) / SPEED,
        all_reduce_seconds(NUMBER * scenario.statistics, processes),
        all_reduce_seconds(GRADIENT * scenario.parameters, processes),
    )


def simulate() -> list[dict[str, object]]:
    rows = []
    for scenario in SCENARIOS:
        for processes in (1, 2, 8, 64, 512, 1024):
            arithmetic, statistic, gradients = step_seconds(scenario, processes)
            step = arithmetic + statistic + gradients
            steps = ROWS / (processes * scenario.batch)
            rows.append({
                "scenario": scenario.name, "classes": scenario.classes, "parameters": scenario.parameters,
                "rows_a_process": scenario.batch, "processes": processes,
                "statistics_bytes": NUMBER * scenario.statistics, "gradient_bytes": GRADIENT * scenario.parameters,
                "arithmetic_ms": f"{arithmetic * 1e3:.4g}", "statistics_ms": f"{statistic * 1e3:.4g}",
                "gradients_ms": f"{gradients * 1e3:.4g}", "share_of_statistics": f"{statistic / step:.4f}",
                "efficiency": f"{arithmetic / step:.3f}", "hours_for_all_rows": f"{steps * step / 3600:.4g}",
            })  # fmt: skip
    return rows


def plot(rows: list[dict[str, object]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (share, hours) = plt.subplots(1, 2, figsize=(10, 4))
    for scenario in SCENARIOS:
        mine = [row for row in rows if row["scenario"] == scenario.name]
        processes = [int(str(row["processes"])) for row in mine]
        spent = [float(str(row["hours_for_all_rows"])) for row in mine]
        hours.loglog(processes, spent, marker=".", label=scenario.name)
        several = [row for row in mine if row["processes"] != 1]
        shares = [100 * float(str(row["share_of_statistics"])) for row in several]
        share.semilogx(processes[1:], shares, marker=".")
    share.set_ylabel("% of a step spent on the statistics")
    share.set_ylim(0, 100)
    hours.legend(fontsize=7)
    hours.set_ylabel("hours for one pass over 10¹⁰ rows")
    for axes in (share, hours):
        axes.set_xlabel("processes")
        axes.grid(alpha=0.3)
    figure.suptitle(
        "Simulation: 100 Gbit network, 15 µs a message, 50 TFLOP/s a process, nothing overlapped", fontsize=9
    )
    figure.tight_layout()
    figure.savefig(IMAGES / "scale-communication.png", dpi=120)


def write(name: str, rows: list[dict[str, object]]) -> None:
    with (HERE / name).open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def one_process(rank: int, store: str) -> None:
    import torch
    from torch import distributed

    from metricfit.distributed import sum_over_processes

    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    group = distributed.group.WORLD
    for classes in (2, 10, 100, 1000):
        counts = torch.rand(classes, classes)
        times = []
        for _ in range(60):
            distributed.barrier()
            started = time.perf_counter()
            sum_over_processes([counts], group)
            times.append(time.perf_counter() - started)
        if rank == 0:
            low, middle, high = (1e6 * q for q in statistics.quantiles(times[10:], n=4))
            print(f"{classes} classes, {8 * classes**2:,} bytes: {middle:.0f} µs ({low:.0f} to {high:.0f})", flush=True)
    distributed.destroy_process_group()


def measure() -> None:
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
        commands = [[sys.executable, __file__, "one", "--rank", str(r), "--store", f"{folder}/store"] for r in (0, 1)]
        running = [subprocess.Popen(command, env=environment) for command in commands]
        codes = [process.wait() for process in running]
        if any(codes):
            raise SystemExit("a process failed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=["simulate", "measure", "one"], default="simulate")
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--store", default="")
    arguments = parser.parse_args()
    if arguments.what == "measure":
        measure()
    elif arguments.what == "one":
        one_process(arguments.rank, arguments.store)
    else:
        rows = simulate()
        write("communication.csv", rows)
        plot(rows)


if __name__ == "__main__":
    main()
