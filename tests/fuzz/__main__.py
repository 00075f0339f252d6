"""The campaign: ``python -m tests.fuzz --minutes 60``; one case again: ``python -m tests.fuzz --replay folders:17``."""

from __future__ import annotations

import argparse
import csv
import signal
import sys
import time
import traceback
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tests.fuzz import kills
from tests.fuzz.cases import AREAS, PREPARED, SEVERAL
from tests.fuzz.trial import outcomes

FAILURES = Path("build/fuzz-failures.txt")
FIGURES, PAGE = Path("tests/fuzz/figures.csv"), Path("docs/reliability.md")
MARKS = "<!-- figures -->", "<!-- end of figures -->"
MOST_SECONDS = 120
"""A case that takes longer hangs."""


IN_BATCHES = {"folders": 40, "tables": 40}
"""Areas whose cases need a process of their own; so many of them share one, unless it dies."""
ROWS = ("area", "cases", "failures", "seconds")


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
    parser.add_argument("--figures", action="store_true", help=f"add the figures to {FIGURES} and {PAGE}")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.replay:
        area, _, seed = options.replay.partition(":")
        print(problem := outcome(area, int(seed)) or "passed")
        return int(problem != "passed")
    first = options.seed if options.seed is not None else time.time_ns() // 1000 % 10**12
    print(f"{options.minutes:g} minutes, seeds from {first}", flush=True)
    counts, failures = Counter[str](), Counter[str]()
    spent, seeds = dict.fromkeys(options.only, 0.0), dict.fromkeys(options.only, first)
    for area in options.only:
        PREPARED.get(area, int)()
    began = written = time.monotonic()
    while time.monotonic() < began + 60 * options.minutes:
        area = min(spent, key=lambda name: spent[name])  # equal time for each
        started, most = time.monotonic(), IN_BATCHES.get(area, 1)
        tried = range(seeds[area], seeds[area] + most)
        before = kills.kills
        found = [outcome(area, tried[0])] if most == 1 else outcomes(partial(outcome, area), tried, 2 * MOST_SECONDS)
        seeds[area] += len(found)
        spent[area] += time.monotonic() - started
        counts[area] += kills.kills - before if area == "kills" else SEVERAL.get(area, 1) * len(found)
        for seed, problem in zip(tried, found, strict=False):
            if problem:
                failures[area] += 1
                print(f"FAILED {area}:{seed}  {problem.strip().splitlines()[-1][:200]}")
                print(f"  again: python -m tests.fuzz --replay {area}:{seed}", flush=True)
                FAILURES.parent.mkdir(exist_ok=True)
                with FAILURES.open("a") as file:
                    file.write(f"{area}:{seed}\n")
        if options.figures and time.monotonic() > written + 60:
            written = time.monotonic()
            keep(first, {area: (counts[area], failures[area], spent[area]) for area in spent})
    found_in_all = {area: (counts[area], failures[area], spent[area]) for area in spent}
    if options.figures:
        keep(first, found_in_all)
    print("\n" + table(found_in_all))
    return int(failures.total() > 0)


def table(found: dict[str, tuple[int, int, float]]) -> str:
    """Cases, failures and seconds of each area, in Markdown."""
    lines = [f"| {' | '.join(ROWS)} |", "|---|---|---|---|"]
    return "\n".join([*lines, *(f"| {area} | {n:,} | {bad:,} | {s:,.0f} |" for area, (n, bad, s) in found.items())])


def keep(first: int, found: dict[str, tuple[int, int, float]]) -> None:
    """Put the figures of a run in the place of what it had before, and their sums over all runs on the page."""
    rows = list(csv.reader(FIGURES.open())) if FIGURES.exists() else []
    rows = [row for row in rows[1:] if row[0] != str(first)]
    rows += [[str(first), area, str(n), str(bad), f"{s:.0f}"] for area, (n, bad, s) in found.items() if n]
    with FIGURES.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([["first seed", *ROWS], *rows])
    sums = {
        area: tuple(sum(float(row[k]) for row in rows if row[1] == area) for k in (2, 3, 4))
        for area in AREAS
        if any(row[1] == area for row in rows)
    }
    text, (begin, end) = PAGE.read_text(), MARKS
    before, after = text.split(begin)[0], text.split(end)[1]
    told = table({area: (int(n), int(bad), s) for area, (n, bad, s) in sums.items()})
    PAGE.write_text(f"{before}{begin}\n{told}\n{end}{after}")


if __name__ == "__main__":
    sys.exit(main())
