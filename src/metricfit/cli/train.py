"""``metricfit train``."""

from __future__ import annotations

import shlex
import shutil
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from metricfit.cli import options as opt
from metricfit.cli.output import Interrupted, Output, UsageError, interval, number, stoppable, wrong_use

if TYPE_CHECKING:
    from metricfit.choices import Choice
    from metricfit.classifier import MetricClassifier
    from metricfit.data import LabelledTable, Roles

_SETTINGS = "train.toml"
_NOT_KEPT = ("training", "config", "resume", "overwrite", "output")
_FREE_TO_CHANGE = ("time_limit",)
_QUICK = ("boosting", "extra_trees")


def command(
    data: opt.Data,
    metric: Annotated[
        str,
        opt.option(
            "What the model is judged by: a name, 'f1\\[yes]', an expression, also 'precision\\[yes] subject to "
            "recall\\[yes] >= 0.9'; see 'metricfit metrics'.",
            "M",
        ),
    ],
    out: Annotated[Path, opt.option("The model folder to write.", "DIR")],
    training: opt.Training,
    output: Output,
    validation: Annotated[str | None, opt.option("Measure on this file's rows.", "FILE", opt.SPLITS)] = None,
    time: Annotated[
        str | None,
        opt.option("Hold out the latest fifth of the rows, and validate on spans of time.", "COL", opt.SPLITS),
    ] = None,
    folds: Annotated[int | None, opt.option("Members of the ensemble.", "N", opt.SPLITS, "by size", min=2)] = None,
    baseline: Annotated[
        bool, typer.Option(help="Train the same network with cross-entropy for comparison.", rich_help_panel=opt.SPLITS)
    ] = True,
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
    quick: Annotated[
        bool, opt.switch("--quick", "A first answer: trees alone, not compared with cross-entropy.", opt.RUN)
    ] = False,
    time_limit: Annotated[
        str | None, opt.option("Stop training after 90s, 15m or 2h and keep the best so far.", "TIME", opt.RUN)
    ] = None,
    resume: Annotated[bool, opt.switch("--resume", "Go on with a run that was stopped.", opt.RUN)] = False,
    overwrite: opt.Overwrite = False,
) -> None:  # fmt: skip
    """Train a classifier on the metric it is judged by.

    Reads a table, finds out what its columns hold, trains, measures on held-out rows beside cross-entropy plain and
    tuned, and writes a model folder with a report. Everything that was decided without asking is reported on standard
    error with its reason.

    An option shown with COL… takes one name or several: --ignore id name, --ignore id,name, or the option again.

    Example: metricfit train churn.csv --target churn --metric "f1[yes]" --out model
    """
    options = {"data": data, **vars(training), **locals()}
    options = {name: value for name, value in options.items() if name not in _NOT_KEPT}
    from metricfit.processes import is_first_process, join_processes, wait_for_all

    join_processes()  # where torchrun started several
    first = is_first_process()
    if not first:
        output.json, output.quiet = False, True
    spec, limit = opt.checked_metric(metric), opt.seconds(time_limit)
    from metricfit import save
    from metricfit.assess import scores_of
    from metricfit.classifier import MetricClassifier
    from metricfit.data import BadDataError, describe_table
    from metricfit.models import names_of
    from metricfit.training.recipes import Recipe

    bound = training.max_epochs
    shorter: dict[str, Any] = {} if bound is None else {"max_epochs": bound, "min_updates": 0}
    given: dict[str, Any] = shorter if step is None else {**shorter, "step": step}
    baseline = baseline and not quick
    how, names = Recipe(recipe, **given), models.split(",") if "," in models else models
    if quick and models == "auto":
        names = list(_QUICK)
    with wrong_use():
        how.complete()
        names_of(names)
    opt.check_free(out, overwrite)
    if first:
        opt.hold(out, output)
    checkpoint = out.absolute().parent / f"{out.name}.checkpoint"
    going_on = _check_checkpoint(checkpoint, options, resume=resume, overwrite=overwrite, output=output)

    table, held, roles = _tables(data, validation, time, task, training, output)
    judged = training.metric(spec, table)
    groups, folds = table.fold_groups(folds)
    choices = output.choices(table.choices)
    time_taken = _expected(table) if names == "auto" and baseline else ""
    output.note(f"Training on {len(table.y):,} rows and {table.X.shape[1]} columns for {judged}.{time_taken}")

    # Measured on other rows, cross-entropy is a run of its own.
    share = None if limit is None else limit / (2 if baseline and held is not None else 1)
    common: dict[str, Any] = {
        "cv": folds or "auto", "verbose": not output.quiet, "random_state": training.seed, "time_limit": share,
    }  # fmt: skip
    classifier = MetricClassifier(
        judged, models=names, recipe=how, baseline=baseline and held is None, checkpoint_dir=checkpoint, **common
    )
    usual = None
    wait_for_all()  # until every process has seen that no other run is in the way
    if not going_on and first:
        shutil.rmtree(checkpoint, ignore_errors=True)
        checkpoint.mkdir(parents=True)
        (checkpoint / _SETTINGS).write_text(opt.to_toml(options), encoding="utf-8")
    with _stoppable(checkpoint, first), _shown_warnings(output):
        try:
            classifier.fit(table.X, table.target, table.weight, groups)
            if held is not None and baseline:
                output.note("Training the same network with cross-entropy, for comparison.")
                usual = MetricClassifier(
                    judged, models="network", recipe=Recipe("log_loss", rule="tuned", **shorter), baseline=False,
                    checkpoint_dir=checkpoint / "cross-entropy", **common,
                ).fit(table.X, table.target, table.weight, groups)  # fmt: skip
        except ValueError as error:  # options were checked before; what is left is about the rows
            raise BadDataError(str(error)) from error
    choices += output.choices([*classifier.choices_, _kinds(classifier)])
    if held is not None:
        source = f"rows that are the latest by {time}; nothing was trained on them"
        source = source if validation is None else f"rows of {Path(validation).name}"
        classifier.held_out_ = scores_of(classifier, held.X, held.y, held.weight, source=source, baseline=usual)
    if not first:
        return
    verdict = _judge(classifier, output, anew=held is not None)
    report = classifier.validation_report_.dropna(subset=["value"]).drop(columns="gain")
    rows: list[Any] = report.to_dict(orient="records")
    count = max((row["rows"] for row in rows), default=0)
    notes: dict[str, Any] = {
        "choices": choices,
        "target": roles.target if table.labels else roles.target[0],
        "input": {"formats": {name: asdict(form) for name, form in table.formats.items()}, "missing": roles.missing},
        "data": describe_table(table.X),
    }
    save(classifier, out, overwrite=overwrite, notes=notes, files={_SETTINGS: opt.to_toml(options).encode()})
    shutil.rmtree(checkpoint, ignore_errors=True)
    if rows:
        cells = [[r["model"], number(r["value"]), interval(r["low"], r["high"]), r["note"]] for r in rows]
        wide = 4 if any(row["note"] for row in rows) else 3
        heads = ["model", "value", "95 % interval", ""][:wide]
        output.table(f"{classifier.metric_} on {count:,} held-out rows", heads, [cell[:wide] for cell in cells])
        if verdict:
            output.line(verdict)
    else:
        output.line("Nothing was held out, so there is no measured value: too few rows.")
    page = out / "report.html"
    output.line(f"Model:  {out}\nReport: {page}")
    output.result({
        "metric": str(classifier.metric_), "classes": classifier.classes_.tolist(), "held_out_rows": count,
        "held_out": rows, "choices": choices, "model": str(out), "report": str(page),
    })  # fmt: skip


def _expected(table: LabelledTable) -> str:
    """A rough guess of the time, fitted to tables of 2,000 to 50,000 cells; nothing for much larger ones."""
    if table.X.size > 200_000:
        return ""
    return f" Expect about {12 + 2.2e-4 * table.X.size * (1 + len(table.classes) / 15):.0f} s of CPU time."


def _tables(
    data: str, validation: str | None, time: str | None, task: str, training: opt.Training, output: Output
) -> tuple[LabelledTable, LabelledTable | None, Roles]:
    """The rows to train on, the rows to measure on if the options set some apart, and which column is what."""
    from metricfit.data import read_labelled, read_labelled_like

    file = training.open(data)
    roles = training.roles(file, time)
    table = read_labelled(file, roles, max_rows=training.max_rows, seed=training.seed, task=task, note=output.note)
    if validation is not None:
        if time is not None:
            raise UsageError("--time: has no effect with --validation; give one of them.")
        held = read_labelled_like(training.open(validation), roles, table.formats, table.classes)
        table.choices += held.choices
        return table, held, roles
    return (table, None, roles) if time is None else (*table.split_latest(), roles)


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


@contextmanager
def _stoppable(checkpoint: Path, first: bool) -> Iterator[None]:
    """Ctrl-C ends the run at once and says how to go on; the first process cleans up."""
    try:
        with stoppable():
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
    counts = Counter(column.format.kind for column in preprocessor.columns_ if not column.dropped)
    shown = ", ".join(f"{count} as {kind}" for kind, count in counts.items())
    return Choice("columns", f"columns taken by what they hold: {shown}; the report lists each", ("categorical",))


def _judge(classifier: MetricClassifier, output: Output, *, anew: bool) -> str:
    """The verdict on the held-out rows; ``anew`` where they are other rows than the fit's own, so its report is too."""
    from metricfit.assess import assess_held_out
    from metricfit.assess.verdicts import cautions, validation_report

    if classifier.held_out_ is None:
        return ""
    metric = classifier.metric_
    model, verdicts = assess_held_out(metric, classifier.held_out_, classifier.classes_.tolist())
    if anew:
        found = {**{v.rival.name: v.rival for v in verdicts}, "trained on the metric": model}
        classifier.validation_report_ = validation_report(metric, found)
    warned = cautions(model, verdicts, "--models {}")
    said = "" if classifier.held_out_.baseline is None else verdicts[-1].sentence("--models {}")
    for text in warned:
        output.warn(text)
    return "" if said in warned else said
