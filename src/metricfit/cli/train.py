"""``metricfit train``."""

from __future__ import annotations

import shlex
import shutil
import signal
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from metricfit.cli import options as opt
from metricfit.cli.output import Interrupted, Output, UsageError, in_words, interval, number, wrong_use

if TYPE_CHECKING:
    from metricfit.choices import Choice
    from metricfit.classifier import MetricClassifier
    from metricfit.data import LabelledTable, Roles

__all__ = ["command"]

_SWITCHES = ("resume", "overwrite", "config", "json", "quiet", "debug")
_FREE_TO_CHANGE = {"time_limit"}
_SETTINGS = "train.toml"


def command(
    data: opt.Data,
    target: opt.Target,
    metric: Annotated[
        str,
        opt.option(
            "What the model is judged by: a name, 'f1\\[yes]', an expression, also 'precision\\[yes] subject to "
            "recall\\[yes] >= 0.9'; see 'metricfit metrics'.",
            "M",
        ),
    ],
    out: Annotated[Path, opt.option("The model folder to write.", "DIR")],
    validation: Annotated[str | None, opt.option("Measure on this file's rows.", "FILE", opt.SPLITS)] = None,
    group: opt.Group = None,
    time: Annotated[
        str | None,
        opt.option("Hold out the latest fifth of the rows, and validate on spans of time.", "COL", opt.SPLITS),
    ] = None,
    folds: Annotated[int | None, opt.option("Members of the ensemble.", "N", opt.SPLITS, "by size", min=2)] = None,
    baseline: Annotated[
        bool, typer.Option(help="Train the same network with cross-entropy for comparison.", rich_help_panel=opt.SPLITS)
    ] = True,
    weight: opt.Weight = None,
    ignore: opt.Ignore = None,
    use: opt.Use = None,
    categorical: opt.Categorical = None,
    missing: opt.Missing = None,
    positive: opt.Positive = None,
    task: Annotated[str, opt.option("auto, binary, multiclass or multilabel.", "TASK", opt.COLUMNS, True)] = "auto",
    recipe: Annotated[
        str, opt.option("default, east, log_loss, surrogate_fbeta or anyloss.", "NAME", opt.RUN, True)
    ] = "default",
    step: Annotated[
        str | None,
        opt.option("Approximation of the step function, such as linear:delta=0.1 or sigmoid:k=10.", "STEP", opt.RUN,
                   "by recipe"),
    ] = None,
    models: Annotated[
        str,
        opt.option("auto for the portfolio, network for the networks alone, or names such as network,boosting.",
                   "NAMES", opt.RUN, True),
    ] = "auto",
    time_limit: Annotated[
        str | None, opt.option("Stop training after 90s, 15m or 2h and keep the best so far.", "TIME", opt.RUN)
    ] = None,
    max_rows: opt.MaxRows = None,
    max_epochs: opt.MaxEpochs = None,
    seed: opt.Seed = 0,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a run that was stopped.", rich_help_panel=opt.RUN)
    ] = False,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Replace the model folder, or a stopped run.", rich_help_panel=opt.RUN),
    ] = False,
    config: opt.Config = None,
    separator: opt.Separator = None,
    encoding: opt.Encoding = None,
    json: opt.Json = False,
    quiet: opt.Quiet = False,
    debug: opt.Debug = False,
) -> None:  # fmt: skip
    """Train a classifier on the metric it is judged by.

    Reads a table, finds out what its columns hold, trains, measures on held-out rows beside cross-entropy plain and
    tuned, and writes a model folder with a report. Everything that was decided without asking is reported on standard
    error with its reason.

    An option shown with COL… takes one name or several: --ignore id name, --ignore id,name, or the option again.

    Example: metricfit train churn.csv --target churn --metric "f1[yes]" --out model
    """
    options = {n: str(v) if isinstance(v, Path) else v for n, v in locals().items() if n not in _SWITCHES}
    _train(options, resume=resume, overwrite=overwrite, as_json=json, quiet=quiet)


def _train(options: dict[str, Any], *, resume: bool, overwrite: bool, as_json: bool, quiet: bool) -> None:
    """Train with the options; together, where torchrun started several processes."""
    output = Output(as_json, quiet)
    from metricfit.assess import scores_of
    from metricfit.classifier import MetricClassifier
    from metricfit.data import BadDataError, describe_table
    from metricfit.models import names_of
    from metricfit.processes import is_first_process, join_processes, wait_for_all
    from metricfit.training.recipes import Recipe

    join_processes()
    first = is_first_process()
    if not first:
        output.as_json, output.quiet = False, True
    out = Path(options["out"])
    spec, limit = opt.checked_metric(options["metric"]), opt.seconds(options["time_limit"])
    shorter = {} if options["max_epochs"] is None else {"max_epochs": options["max_epochs"], "min_updates": 0}
    recipe = Recipe(options["recipe"], step=options["step"], **shorter)
    models = options["models"].split(",") if "," in options["models"] else options["models"]
    with wrong_use():
        recipe.complete()
        names_of(models)
    opt.check_free(out, overwrite)
    checkpoint = out.absolute().parent / f"{out.name}.checkpoint"
    going_on = _check_checkpoint(checkpoint, options, resume=resume, overwrite=overwrite, output=output)

    table, held, roles = _tables(options, output)
    metric = opt.explicit_metric(spec, table, options["positive"])
    groups, folds = table.fold_groups(options["folds"])
    choices = in_words(table.choices)
    output.choices(choices)
    output.note(f"Training on {len(table.y):,} rows and {table.X.shape[1]} columns for {metric}.")

    compared = options["baseline"]
    # Measured on other rows, cross-entropy is a run of its own.
    share = None if limit is None else limit / (2 if compared and held is not None else 1)
    common: dict[str, Any] = {"cv": folds or "auto", "verbose": not output.quiet, "random_state": options["seed"]}
    classifier = MetricClassifier(
        metric, models=models, recipe=recipe, baseline=compared and held is None, checkpoint_dir=checkpoint,
        time_limit=share, **common,
    )  # fmt: skip
    usual = None
    wait_for_all()  # until every process has seen that no other run is in the way
    if not going_on and first:
        _start_checkpoint(checkpoint, options)
    with _stoppable(checkpoint, first), _shown_warnings(output):
        try:
            classifier.fit(table.X, table.target, table.weight, groups)
            if held is not None and compared:
                output.note("Training the same network with cross-entropy, for comparison.")
                usual = MetricClassifier(
                    metric, models="network", recipe=Recipe("log_loss", rule="tuned", **shorter), baseline=False,
                    checkpoint_dir=checkpoint / "cross-entropy", time_limit=share, **common,
                ).fit(table.X, table.target, table.weight, groups)  # fmt: skip
        except ValueError as error:  # options were checked before; what is left is about the rows
            raise BadDataError(str(error)) from error
    decided = in_words([*classifier.choices_, _kinds(classifier)])
    output.choices(decided)
    if held is not None:
        source = _source(options)
        classifier.held_out_ = scores_of(classifier, held.X, held.y, held.weight, source=source, baseline=usual)
    rows, verdict = _measured(classifier, measured=held is not None)
    from metricfit import save

    count = max((row["rows"] for row in rows), default=0)
    notes: dict[str, Any] = {
        "choices": [*choices, *decided],
        "target": roles.target if table.labels else roles.target[0],
        "input": {"formats": {name: asdict(how) for name, how in table.formats.items()}, "missing": roles.missing},
        "held_out": [] if held is None else rows,
        "held_out_rows": count,
        "data": describe_table(table.X),
    }
    if not first:
        return
    save(classifier, out, overwrite=overwrite, notes=notes, files={_SETTINGS: opt.to_toml(options).encode()})
    shutil.rmtree(checkpoint, ignore_errors=True)
    metric_text, page = str(classifier.metric_), out / "report.html"
    if rows:
        noted = any(row["note"] for row in rows)
        cells = [[r["model"], number(r["value"]), interval(r["low"], r["high"]), r["note"]] for r in rows]
        heads = ["model", "value", "95 % interval", ""]
        wide = len(heads) if noted else len(heads) - 1
        output.table(f"{metric_text} on {count:,} held-out rows", heads[:wide], [cell[:wide] for cell in cells])
        if verdict:
            output.line(verdict)
    else:
        output.line("Nothing was held out, so there is no measured value: too few rows.")
    output.line(f"Model:  {out}")
    output.line(f"Report: {page}")
    output.result({
        "metric": metric_text, "classes": classifier.classes_.tolist(), "held_out_rows": count, "held_out": rows,
        "choices": notes["choices"], "model": str(out), "report": str(page),
    })  # fmt: skip


def _tables(options: dict[str, Any], output: Output) -> tuple[LabelledTable, LabelledTable | None, Roles]:
    """The rows to train on, the rows to measure on if the options set some apart, and which column is what."""
    from metricfit.data import open_table, read_labelled, read_labelled_like

    reading = {"separator": options["separator"], "encoding": options["encoding"]}
    file = open_table(options["data"], **reading)
    roles = opt.roles_of(options, file)
    table = read_labelled(
        file, roles, max_rows=options["max_rows"], seed=options["seed"], task=options["task"], note=output.note
    )
    if options["validation"] is not None:
        if table.time is not None:
            raise UsageError("--time: has no effect with --validation; give one of them.")
        held = read_labelled_like(open_table(options["validation"], **reading), roles, table.formats, table.classes)
        table.choices += held.choices
        return table, held, roles
    return (table, None, roles) if table.time is None else (*table.split_latest(), roles)


def _source(options: dict[str, Any]) -> str:
    if options["validation"] is not None:
        return f"rows of {Path(options['validation']).name}"
    return f"rows that are the latest by {options['time']}; nothing was trained on them"


def _check_checkpoint(path: Path, options: dict[str, Any], *, resume: bool, overwrite: bool, output: Output) -> bool:
    """Whether there is a stopped run to go on with; an error if it is another one, or in the way."""
    import tomllib

    settings = path / _SETTINGS
    if settings.exists() and resume:
        before = tomllib.loads(settings.read_text(encoding="utf-8"))
        now = tomllib.loads(opt.to_toml(options))
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
    (path / _SETTINGS).write_text(opt.to_toml(options), encoding="utf-8")


@contextmanager
def _stoppable(checkpoint: Path, first: bool) -> Iterator[None]:
    """Ctrl-C ends the run at once and says how to go on; the first process cleans up."""

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
def _shown_warnings(output: Output) -> Iterator[None]:
    from metricfit.data.preprocessing import UnusedColumnsWarning

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        warnings.simplefilter("always", RuntimeWarning)
        warnings.simplefilter("ignore", UnusedColumnsWarning)  # the choices name these columns
        yield
    for text in dict.fromkeys(str(w.message) for w in caught):
        output.warn(text)


def _kinds(classifier: MetricClassifier) -> Choice:
    """How many columns were taken as what."""
    from metricfit.choices import Choice

    preprocessor: Any = classifier.preprocessor_
    counts = Counter(column.kind for column in preprocessor.columns_ if not column.dropped)
    shown = ", ".join(f"{count} as {kind}" for kind, count in counts.items())
    return Choice("columns", f"columns taken by what they hold: {shown}; the report lists each", ("categorical",))


def _measured(classifier: MetricClassifier, *, measured: bool) -> tuple[list[dict[str, Any]], str]:
    """What each model reaches on held-out rows, as rows of a table, and the verdict."""
    from metricfit.assess import assess_held_out

    scores, report = classifier.held_out_, classifier.validation_report_
    if scores is None:
        return [], ""
    model, verdicts = assess_held_out(classifier.metric_, scores, classifier.classes_.tolist())
    verdict = verdicts[-1].sentence("--recipe log_loss, and 'metricfit tune'") if verdicts else ""
    if not measured:
        shown = report.dropna(subset=["value"])[["model", "value", "low", "high", "rows", "note"]]
        return [{str(name): v for name, v in row.items()} for row in shown.to_dict(orient="records")], verdict
    assessed = [*(v.rival for v in verdicts), replace(model, name="trained on the metric")]
    rows = [{"model": a.name, **asdict(a.estimate), "rows": a.rows, "note": a.note} for a in assessed]
    return rows, verdict
