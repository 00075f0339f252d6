"""The campaign: ``python -m tests.fuzz --minutes 60``; one case again: ``python -m tests.fuzz --replay folders:17``."""

from __future__ import annotations

import argparse
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import torch

from tests.fuzz.cases import AREAS

FAILURES = Path("build/fuzz-failures.txt")
MOST_SECONDS = 120
"""A case that takes longer hangs."""


def outcome(area: str, seed: int) -> str:
    """What is wrong with a case; an error that a case does not expect is a failure of it."""

    def too_long(*_: Any) -> None:
        raise TimeoutError(f"more than {MOST_SECONDS} s")

    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(MOST_SECONDS)
    try:
        return AREAS[area](seed)
    except Exception:
        return traceback.format_exc()
    finally:
        signal.alarm(0)


def main() -> int:
    """Run cases of all areas in turn until the time is over; the exit code is 1 if one fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0, help="how long")
    parser.add_argument("--seed", type=int, help="of the first case; by default another one in every run")
    parser.add_argument("--only", nargs="+", choices=AREAS, default=list(AREAS), help="these areas")
    parser.add_argument("--replay", metavar="AREA:SEED", help="one case, such as folders:17")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.replay:
        area, _, seed = options.replay.partition(":")
        print(problem := outcome(area, int(seed)) or "passed")
        return int(problem != "passed")
    start = options.seed if options.seed is not None else time.time_ns() // 1000 % 10**12
    print(f"{options.minutes:g} minutes, seeds from {start}")
    counts, failures = dict.fromkeys(options.only, 0), dict.fromkeys(options.only, 0)
    spent, end = dict.fromkeys(options.only, 0.0), time.monotonic() + 60 * options.minutes
    while time.monotonic() < end:
        area = min(spent, key=lambda name: spent[name])  # equal time for each
        seed, began = start + counts[area], time.monotonic()
        problem = outcome(area, seed)
        spent[area] += time.monotonic() - began
        counts[area] += 1
        if problem:
            failures[area] += 1
            print(f"FAILED {area}:{seed}  {problem.strip().splitlines()[-1][:200]}")
            print(f"  again: python -m tests.fuzz --replay {area}:{seed}", flush=True)
            FAILURES.parent.mkdir(exist_ok=True)
            with FAILURES.open("a") as file:
                file.write(f"{area}:{seed}\n")
    print("\n| area | cases | failures | seconds |\n|---|---|---|---|")
    for area in options.only:
        print(f"| {area} | {counts[area]:,} | {failures[area]:,} | {spent[area]:.0f} |")
    return int(any(failures.values()))


if __name__ == "__main__":
    sys.exit(main())
