"""The run behind ``metricfit train``: read, train, measure, save."""

from __future__ import annotations

import shlex
import shutil
import signal
import sys
import time
import tomllib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from metricfit import save
from metricfit.assess import Assessment, Verdict, assess_held_out, scores_of
from metricfit.classifier import MetricClassifier
from metricfit.cli.config import to_toml
from metricfit.cli.errors import CommandError, Interrupted, UsageError
from metricfit.cli.metric_option import checked_metric, explicit_metric
from metricfit.cli.options import roles_of, seconds
from metricfit.cli.output import Output, interval, number, with_options
from metricfit.data import BadDataError, LabelledTable, Roles, open_table, read_labelled, read_labelled_like
from metricfit.data.columns import formats_to_json
from metricfit.data.preprocessing import unused_in_words
from metricfit.distributed import is_first_process, join_processes, wait_for_all
from metricfit.report.about import describe_table
from metricfit.store import check_replaceable
from metricfit.training.history import EpochEnd
from metricfit.training.recipes import Recipe

__all__ = ["run"]

_FREE_TO_CHANGE = {"max_time"}


def run(options: dict[str, Any], *, resume: bool, overwrite: bool, as_json: bool, quiet: bool) -> None:
    """Train with the options of the command; together, where torchrun started several processes."""
    join_processes()
    first = is_first_process()
    output = Output(as_json and first, quiet or not first)
    out = Path(options["out"])
    spec = checked_metric(options["metric"])
    limit = seconds(options["max_time"])
    _check_choice("--task", options["task"], ("auto", "binary", "multiclass", "multilabel"))
    try:
        recipe = Recipe(options["recipe"]).complete()
    except ValueError as error:
        raise UsageError(f"--{error}") from None
    try:
        check_replaceable(out, overwrite=overwrite)
    except FileExistsError as error:
        raise UsageError(f"--out: {str(error).removeprefix('folder: ')} (--overwrite replaces a model.)") from None
    checkpoint = out.absolute().parent / f"{out.name}.checkpoint"
    going_on = _check_checkpoint(checkpoint, options, resume=resume, overwrite=overwrite, output=output)

    file = open_table(options["data"], separator=options["separator"], encoding=options["encoding"])
    roles = roles_of(options, file.columns)
    table = read_labelled(
        file, roles, max_rows=options["max_rows"], seed=options["seed"], task=options["task"], note=output.note
    )
    metric = explicit_metric(spec, table, options["positive"])
    table, held = _held_out(table, roles, options)
    groups, given = table.fold_groups(options["folds"])
    folds = given or "auto"
    chosen = [with_options(choice) for choice in table.choices]
    output.choices(chosen)
    output.note(f"Training on {len(table.y):,} rows and {table.X.shape[1]} columns for {metric}.")

    common = {"cv": folds, "verbose": not output.quiet, "random_state": options["seed"]}
    shorter = {} if options["max_epochs"] is None else {"max_epochs": options["max_epochs"], "min_updates": 0}
    compare = options["baseline"]
    share = None if limit is None else limit / (2 if compare else 1)
    classifier = MetricClassifier(
        metric, recipe=Recipe(recipe.name, **shorter), baseline=compare and held is None, checkpoint_dir=checkpoint,
        callbacks=[TimeLimit(share)], **common,
    )  # fmt: skip
    usual = None
    wait_for_all()  # until every process has seen that no other run is in the way
    if not going_on and first:
        _start_checkpoint(checkpoint, options)
    with _stoppable(checkpoint, first), _told_warnings(output):
        _fit(classifier, table, groups)
        if held is not None and compare:
            output.note("Training the same network with cross-entropy, for comparison.")
            usual = MetricClassifier(
                metric, recipe=Recipe("log_loss", rule="tuned", **shorter), baseline=False,
                checkpoint_dir=checkpoint / "cross-entropy", callbacks=[TimeLimit(share)], **common,
            )  # fmt: skip
            _fit(usual, table, groups)
    told = [
        f"{choice} (--folds, --group, --time)" if choice.topic == "folds" else str(choice)
        for choice in classifier.choices_
        if choice.topic != "unused"
    ]
    told += _dropped(classifier)
    output.choices(told)
    if held is not None:
        classifier.held_out_ = scores_of(
            classifier, held.X, held.y, held.weight, source=_source(options), baseline=usual
        )
    verdicts: tuple[Verdict, ...] = ()
    model = None
    if classifier.held_out_ is not None:
        model, verdicts = assess_held_out(classifier.metric_, classifier.held_out_, classifier.classes_.tolist())
    rows = _rows(classifier, verdicts, None if held is None else model)
    count = int(max((r["rows"] for r in rows), default=0))
    notes: dict[str, Any] = {
        "choices": [*chosen, *told],
        "target": roles.target if table.labels else roles.target[0],
        "input": {"formats": formats_to_json(table.formats), "missing": roles.missing},
        "held_out": [] if held is None else rows,
        "held_out_rows": count,
        "data": describe_table(table.X),
    }
    if not first:
        return
    save(classifier, out, overwrite=overwrite, notes=notes, files={"train.toml": to_toml(options).encode()})
    shutil.rmtree(checkpoint, ignore_errors=True)
    _show(output, classifier, rows, count, out, notes["choices"], verdicts)


def _source(options: dict[str, Any]) -> str:
    if options["validation"] is not None:
        return f"rows of {Path(options['validation']).name}"
    return f"rows that are the latest by {options['time']}; nothing was trained on them"


def _held_out(
    table: LabelledTable, roles: Roles, options: dict[str, Any]
) -> tuple[LabelledTable, LabelledTable | None]:
    """The rows to train on and those to measure on, if the options set some apart."""
    if options["validation"] is not None:
        if table.time is not None:
            raise UsageError("--time: has no effect with --validation; give one of them.")
        file = open_table(options["validation"], separator=options["separator"], encoding=options["encoding"])
        held = read_labelled_like(file, roles, table.formats, table.classes)
        table.choices += held.choices
        return table, held
    return (table, None) if table.time is None else table.split_latest()


class TimeLimit:
    """A callback that ends a run after some seconds; counted anew for each run."""

    def __init__(self, limit: float | None) -> None:
        self.limit = limit
        self.started: dict[str, float] = {}

    def __call__(self, event: EpochEnd) -> bool:
        """Whether the time is over."""
        now = time.monotonic()
        started = self.started.setdefault(event.run, now - event.record.seconds)
        return self.limit is not None and now - started >= self.limit


def _check_choice(option: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise UsageError(f"{option}: expected {', '.join(allowed[:-1])} or {allowed[-1]}, got {value!r}.")


def _check_checkpoint(path: Path, options: dict[str, Any], *, resume: bool, overwrite: bool, output: Output) -> bool:
    """Whether there is a stopped run to go on with; an error if it is another one, or in the way."""
    settings = path / "train.toml"
    if settings.exists() and resume:
        before = tomllib.loads(settings.read_text(encoding="utf-8"))
        now = tomllib.loads(to_toml(options))
        differs = [k for k in sorted(before.keys() | now.keys()) if before.get(k) != now.get(k)]
        if wrong := [k for k in differs if k not in _FREE_TO_CHANGE]:
            key = wrong[0]
            raise UsageError(
                f"--resume: the run in {path} was started with another --{key.replace('_', '-')} "
                f"({before.get(key)!r}, now {now.get(key)!r}); use the same options, or --overwrite to start anew."
            )
        output.note(f"Going on with the run in {path}.")
        return True
    if path.exists() and not overwrite and not resume:
        raise UsageError(
            f"--out: {path} holds a run that was stopped; --resume goes on with it, --overwrite starts anew."
        )
    if resume:
        output.note("There is no stopped run to resume; starting from the beginning.")
    return False


def _start_checkpoint(path: Path, options: dict[str, Any]) -> None:
    if path.exists():
        shutil.rmtree(path)
    path.mkdir(parents=True)
    (path / "train.toml").write_text(to_toml(options), encoding="utf-8")


def _fit(classifier: MetricClassifier, table: LabelledTable, groups: NDArray[Any] | None) -> None:
    try:
        classifier.fit(table.X, table.target, table.weight, groups)
    except ValueError as error:
        text = str(error)
        if text.startswith(("X: ", "y: ", "sample_weight: ")):
            raise BadDataError(text.removeprefix("X: ")) from error
        raise CommandError(text) from error


@contextmanager
def _stoppable(checkpoint: Path, first: bool) -> Iterator[None]:
    """Ctrl-C ends the run at once, with the way to go on; the first process cleans up."""

    def stop(*_: Any) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    except BaseException as error:
        empty = not any(checkpoint.rglob("*.pt"))
        if empty and first:
            shutil.rmtree(checkpoint, ignore_errors=True)
        if not isinstance(error, Interrupted):
            raise
        if empty:
            raise Interrupted("Stopped before the first epoch was done; nothing was written.") from None
        arguments = [a for a in sys.argv[1:] if a not in ("--resume", "--overwrite")]
        raise Interrupted(
            f"Stopped. What was trained so far is kept in {checkpoint}; go on with\n  metricfit "
            f"{shlex.join([*arguments, '--resume'])}"
        ) from None
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _told_warnings(output: Output) -> Iterator[None]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        warnings.simplefilter("always", RuntimeWarning)
        # The choices tell of these columns.
        warnings.filterwarnings("ignore", r"(?s)X: columns? .* not used", UserWarning)
        yield
    for text in dict.fromkeys(str(w.message) for w in caught):
        output.warn(text)


def _dropped(classifier: MetricClassifier) -> list[str]:
    preprocessor: Any = classifier.preprocessor_
    kinds = [c for c in preprocessor.describe() if not c.dropped]
    counts = {kind: sum(c.kind == kind for c in kinds) for kind in ("number", "flag", "category", "date")}
    shown = ", ".join(f"{n} as {kind}" for kind, n in counts.items() if n)
    told = [f"columns taken by what they hold: {shown} (--categorical); the report lists each"]
    return told + [f"{unused} (--categorical, --ignore)" for unused in unused_in_words(preprocessor)]


def _rows(
    classifier: MetricClassifier, verdicts: tuple[Verdict, ...], model: Assessment | None
) -> list[dict[str, Any]]:
    """What was measured: on the rows kept aside (``model``), or else by the folds."""
    if model is None:
        report = classifier.validation_report_.drop(columns="gain").to_dict(orient="records")
        return [{str(k): v for k, v in row.items()} for row in report if row["value"] == row["value"]]
    found = [*(verdict.rival for verdict in verdicts), replace(model, name="trained on the metric")]
    return [{"model": a.name, **vars(a.estimate), "rows": a.rows, "note": a.note} for a in found]


def _show(
    output: Output,
    classifier: MetricClassifier,
    rows: list[dict[str, Any]],
    count: int,
    out: Path,
    choices: list[str],
    verdicts: tuple[Verdict, ...],
) -> None:
    metric = str(classifier.metric_)
    if rows:
        noted = any(row["note"] for row in rows)
        cells = [[r["model"], number(r["value"]), interval(r["low"], r["high"]), *([r["note"]] if noted else [])]
                 for r in rows]  # fmt: skip
        heads = ["model", "value", "95 % interval", *([""] if noted else [])]
        output.table(f"{metric} on {count:,} held-out rows", heads, cells)
        if verdicts:
            output.line(str(verdicts[-1]))
    else:
        output.line("Nothing was held out, so there is no measured value: too few rows.")
    output.line(f"Model:  {out}")
    output.line(f"Report: {out / 'report.html'}")
    output.result(
        {
            "metric": metric,
            "classes": classifier.classes_.tolist(),
            "held_out_rows": count,
            "held_out": rows,
            "choices": choices,
            "model": str(out),
            "report": str(out / "report.html"),
        }
    )
