"""``python -m benchmarks.papers run``, ``table`` and ``list``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.papers.config import names, read
from benchmarks.papers.results import RESULTS
from benchmarks.running import positive, seconds

ROOT = Path(__file__).parents[2]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        return int(options.command(options))
    except ValueError as error:
        parser.error(str(error))


def _run(options: argparse.Namespace) -> int:
    from benchmarks.papers.runner import Plan, run

    plan = Plan(
        [read(name) for name in options.names or names()],
        options.size,
        options.datasets,
        options.methods,
        options.trials,
        options.grid,
        options.encodings,
    )
    failed = run(plan, options.results, workers=options.jobs, budget=options.budget)
    if failed:
        print(f"{failed} jobs failed; the same command tries them again", file=sys.stderr)
    return min(failed, 1)


def _table(options: argparse.Namespace) -> int:
    from benchmarks.papers.report import write_all, write_one
    from benchmarks.papers.verdicts import write_page

    if options.all:
        for path in write_all(options.results, options.out or options.results, options.images):
            print(path)
        if options.results == RESULTS:
            write_page(ROOT / "docs" / "papers.md", options.results)
        return 0
    if not options.names:
        raise ValueError("names: say which table, or --all; python -m benchmarks.papers list shows them.")
    for name in options.names:
        print(write_one(name, options.results, options.out, options.images))
    return 0


def _list(options: argparse.Namespace) -> int:
    from benchmarks.papers.report import overview

    print(overview(options.results))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.papers", description=__doc__)
    commands = parser.add_subparsers(required=True)
    run = commands.add_parser("run", help="compute what is missing and append it to the results")
    run.add_argument("names", nargs="*", help="tables and figures, as list shows them; all by default")
    run.add_argument("--datasets", nargs="+", default=[], help="only these data sets, in this order")
    run.add_argument("--methods", nargs="+", default=[], help="only these, e.g. f1/linear bce")
    run.add_argument("--encodings", nargs="+", default=[], choices=["integer", "onehot"], help="of adult's categories")
    run.add_argument("--trials", type=positive, help="number of trials instead of the file's")
    run.add_argument("--jobs", type=positive, default=1, help="fits at the same time, one thread each (1)")
    run.add_argument("--budget", type=seconds, help="start nothing after this time: 90s, 30m, 2h")
    run.add_argument("--grid", default="full", help="which grid to search: full, small (full)")
    size = run.add_mutually_exclusive_group()
    size.add_argument("--size", default="full", choices=["full", "reduced", "toy"])
    size.add_argument("--reduced", dest="size", action="store_const", const="reduced", help="same as --size reduced")
    run.set_defaults(command=_run)
    table = commands.add_parser("table", help="our numbers beside the paper's, as Markdown and PNG")
    table.add_argument("names", nargs="*")
    table.add_argument("--all", action="store_true", help="rewrite all of them")
    table.add_argument("--out", type=Path, help="folder of the Markdown files (--all: the results)")
    table.add_argument("--images", type=Path, default=ROOT / "docs" / "images", help="folder of the PNG files")
    table.set_defaults(command=_table)
    shown = commands.add_parser("list", help="all tables and figures, and how much of each is there")
    shown.set_defaults(command=_list)
    for command in (run, table, shown):
        command.add_argument("--results", type=Path, default=RESULTS, help="folder of the CSV files")
    return parser


if __name__ == "__main__":
    sys.exit(main())
