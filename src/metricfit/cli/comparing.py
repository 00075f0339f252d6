"""The run behind ``metricfit compare``: splits × methods, each result kept as soon as it is there."""

from __future__ import annotations

import hashlib
import json
import math
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from metricfit.assess import leaderboard
from metricfit.cli.backends import joblib_backend, run_all
from metricfit.cli.errors import CommandError, UsageError
from metricfit.cli.metric_option import checked_metric, explicit_metric
from metricfit.cli.options import roles_of
from metricfit.cli.output import Output, interval, number
from metricfit.cli.rivals import METHODS, Part, available_methods
from metricfit.data import LabelledTable, open_table, read_labelled
from metricfit.data.errors import close_to
from metricfit.metrics import Constrained, Metric
from metricfit.training.splits import split_rows

__all__ = ["run"]


def run(
    options: dict[str, Any],
    *,
    methods: list[str],
    jobs: int,
    backend: str | None,
    out: Path | None,
    overwrite: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Compare with the options of the command."""
    output = Output(as_json, quiet)
    spec = checked_metric(options["metric"])
    names = _methods(methods)
    file = open_table(options["data"], separator=options["separator"], encoding=options["encoding"])
    roles = roles_of(options, file.columns)
    table = read_labelled(file, roles, max_rows=options["max_rows"], seed=options["seed"], note=output.note)
    metric = explicit_metric(spec, table, options["positive"])
    output.choices(table.choices)
    stem = "stdin" if options["data"] == "-" else Path(options["data"]).name.split(".")[0]
    path = out or Path(f"{stem}.compare.jsonl")
    identity = _identity(table, metric, options)
    kept = _kept(path, identity, overwrite)
    wanted = [(split, name) for split in range(options["splits"]) for name in names]
    todo = [unit for unit in wanted if unit not in {(r["split"], r["method"]) for r in kept}]
    if kept:
        output.note(f"{len(wanted) - len(todo)} of {len(wanted)} results are in {path} already.")
    started = time.monotonic()
    try:
        with path.open("a", encoding="utf-8") as log:
            for i, row in enumerate(_results(todo, table, metric, options, jobs, backend), start=1):
                kept.append(row)
                log.write(json.dumps({**row, "run": identity}) + "\n")
                log.flush()
                output.note(
                    f"[{i}/{len(todo)}, {time.monotonic() - started:.0f} s] split {row['split'] + 1}, {row['method']}: "
                    + (number(row["value"]) if not row["error"] else f"failed: {row['error']}")
                )
    except KeyboardInterrupt:
        raise CommandError(f"stopped; what was computed is in {path}. The same command goes on from there.") from None
    shown = [r for r in kept if r["method"] in names and r["split"] < options["splits"]]
    board = leaderboard(shown, names, bool(metric.greater_is_better))
    _show(output, board, metric, table, options["splits"], path)


def _methods(given: list[str]) -> list[str]:
    names = [part.strip() for text in given for part in text.split(",") if part.strip()]
    installed = available_methods()
    for name in names:
        if name not in METHODS:
            raise UsageError(f"--methods: no method {name!r}; {close_to(name, METHODS)}")
        if name not in installed:
            raise UsageError(
                f"--methods: {name!r} needs the package {METHODS[name][0]}: pip install 'metricfit[boost]'."
            )
    return list(dict.fromkeys(names)) or installed


def _identity(table: LabelledTable, metric: Metric, options: dict[str, Any]) -> str:
    digest = hashlib.sha256(pd.util.hash_pandas_object(table.X, index=False).to_numpy().tobytes())
    for array in (table.y.astype(str), table.weight, table.groups):
        digest.update(b"none" if array is None else np.ascontiguousarray(array).tobytes())
    settings = [str(metric), options["seed"], options["max_epochs"], list(table.X.columns), table.labels]
    digest.update(json.dumps(settings).encode())
    return digest.hexdigest()[:16]


def _kept(path: Path, identity: str, overwrite: bool) -> list[dict[str, Any]]:
    if not path.exists() or overwrite:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("", encoding="utf-8")
        return []
    kept, whole = [], []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue  # the line that a kill cut off
        if not isinstance(row, dict) or row.get("run") != identity:
            raise UsageError(
                f"--out: {path} holds results of another comparison (other data, metric, seed or columns); choose "
                "another file, or --overwrite it."
            )
        whole.append(line)
        kept.append(row)
    path.write_text("".join(line + "\n" for line in whole), encoding="utf-8")
    return [row for row in kept if not row["error"]]


def _results(
    todo: list[tuple[int, str]],
    table: LabelledTable,
    metric: Metric,
    options: dict[str, Any],
    jobs: int,
    backend: str | None,
) -> Iterator[dict[str, Any]]:
    calls = [(table, metric, split, name, options["seed"], options["max_epochs"]) for split, name in todo]
    with joblib_backend(backend):
        yield from run_all(_one, calls, jobs)


def _one(
    table: LabelledTable, metric: Metric, split: int, method: str, seed: int, max_epochs: int | None
) -> dict[str, Any]:
    """Fit one method on one split and score it."""
    codes = table.y if table.labels else np.unique(table.y, return_inverse=True)[1]
    random = np.random.default_rng([seed, split])
    (rows,) = split_rows(codes, None, members=1, groups=table.groups, random=random)
    train, test = rows.train, rows.validation

    def some(values: Any, where: Any) -> Any:
        return None if values is None else values[where]

    part = Part(
        table.X.iloc[train], table.y[train], some(table.weight, train), some(table.groups, train), table.X.iloc[test],
        table.classes, metric, seed + split, max_epochs,
    )  # fmt: skip
    started = time.perf_counter()
    row = {"split": split, "method": method, "value": math.nan, "seconds": 0.0, "error": "", "note": ""}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            decided = METHODS[method][1](part)
    except Exception as error:
        return {**row, "value": None, "error": f"{type(error).__name__}: {error}"}
    row["seconds"] = time.perf_counter() - started
    objective = metric.objective if isinstance(metric, Constrained) else metric
    ranks = objective.judges_scores
    score = (decided.proba[:, 1] if table.task == "binary" else decided.proba) if ranks else decided.labels
    weight, labels = some(table.weight, test), tuple(table.classes.tolist())
    row["value"] = float(objective.score(table.y[test], score, weight, labels=labels))
    if isinstance(metric, Constrained):
        met = [f"{c.metric} {c.metric.score(table.y[test], decided.labels, weight, labels=labels):.4f}"
               for c in metric.constraints]  # fmt: skip
        row["note"] = ", ".join(met)
    return row


def _show(
    output: Output, board: list[dict[str, Any]], metric: Metric, table: LabelledTable, splits: int, path: Path
) -> None:
    if not board:
        raise CommandError(f"no method could be fitted; the reasons are in {path}.")
    reference = next((row["method"] for row in board if row["difference"] == 0 and row["difference_low"] == 0), "")
    columns = [
        "method",
        str(metric),
        "95 % interval",
        f"difference to {reference or 'the first'}",
        "95 % interval",
        "seconds",
    ]
    least, most = metric.objective.range if isinstance(metric, Constrained) else metric.range
    cells = [
        [r["method"], number(r["mean"]), interval(max(r["low"], least), min(r["high"], most)),
         f"{r['difference']:+.4f}", interval(r["difference_low"], r["difference_high"]), f"{r['seconds']:.1f}"]
        for r in board
    ]  # fmt: skip
    output.table(f"{len(table.y):,} rows, {splits} random splits, best first", columns, cells)
    best = board[0]
    if best["method"] == reference:
        output.line(f"{reference} came first.")
    else:
        sure = best["difference_low"] > 0 or best["difference_high"] < 0
        doubt = "" if sure else "; the difference is within the noise"
        output.line(
            f"{best['method']} came first, {abs(best['difference']):.4f} ahead of {reference or 'the rest'}{doubt}."
        )
    output.line(f"Results: {path}")
    output.result(
        {"metric": str(metric), "rows": len(table.y), "splits": splits, "leaderboard": board, "results": str(path)}
    )
