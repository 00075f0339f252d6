"""``metricfit train``."""

from __future__ import annotations

import math
import os
import re
import shlex
import shutil
import sys
import tomllib
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from metricfit.cli import command
from metricfit.cli import options as opt
from metricfit.cli.command import REQUIRED, Interrupted, UsageError, interval, number, option, switch, wrong_use

if TYPE_CHECKING:
    from metricfit.choices import Choice
    from metricfit.classifier import MetricClassifier
    from metricfit.data import LabelledTable, Roles
    from metricfit.metrics import Metric

_SETTINGS = "train.toml"
_NOT_KEPT = ("config", "resume", "overwrite", "json", "quiet", "debug")
_QUICK = ("boosting", "extra_trees")


@dataclass(kw_only=True)
class Train(opt.Training):
    """Train a classifier on the metric it is judged by.

    Reads a table, finds out what its columns hold, trains, measures on held-out rows beside cross-entropy plain and
    tuned, and writes a model folder with a report. Everything that was decided without asking is reported on standard
    error with its reason.

    An option shown with COL… takes one name or several: --ignore id name, --ignore id,name, or the option again.

    Example: metricfit train churn.csv --target churn --metric "f1[yes]" --out model
    """

    data: str = command.argument(
        "DATA",
        "A CSV, JSON Lines, Parquet or Excel file; - for standard input. A folder, a pattern or an address, such as "
        "'s3://bucket/*.parquet', is read piece by piece and may be larger than memory.",
    )
    metric: str = option(
        "What the model is judged by: a name, 'f1\\[yes]', an expression, also 'precision\\[yes] subject to "
        "recall\\[yes] >= 0.9'; see 'metricfit metrics'.", "M", default=REQUIRED,
    )  # fmt: skip
    out: Path = opt.an_out("The model folder to write.", "DIR", default=REQUIRED)
    validation: str | None = option("Measure on this file's rows.", "FILE", opt.SPLITS)
    time: str | None = option("Hold out the latest fifth of the rows; validate on spans of time.", "COL", opt.SPLITS)
    folds: int | None = option("Members of the ensemble.", "N", opt.SPLITS, shown="by size", min=2)
    confidence: float | None = option("Keep constraints on new rows with this probability.", "P", opt.SPLITS)
    baseline: bool = switch("--baseline/--no-baseline", "Train with cross-entropy too, to compare.", opt.SPLITS, True)
    task: str = option("auto, binary, multiclass or multilabel.", "TASK", opt.COLUMNS, "auto")
    recipe: str = option("btg, multiclass_fbeta, east, log_loss, …; east:patience=5.", "NAME", opt.RUN, "default")
    step: str | None = option("The loss's step: linear:delta=0.1, sigmoid:k=10, …", "STEP", opt.RUN, shown="by recipe")
    models: str = option("auto, the portfolio; or names: network,boosting:max_features=0.5.", "NAMES", opt.RUN, "auto")
    quick: bool = switch("--quick", "A first answer: trees alone, not compared with cross-entropy.", opt.RUN)
    time_limit: str | None = option("Stop training after 90s, 15m or 2h and keep the best so far.", "TIME", opt.RUN)
    resume: bool = switch("--resume", "Go on with a run that was stopped.", opt.RUN)
    overwrite: bool = opt.to_overwrite()

    def run(self) -> None:
        from metricfit.processes import is_first_process, join_processes, wait_for_all

        settings = opt.to_toml({n: getattr(self, n) for n in command.options_of(type(self)) if n not in _NOT_KEPT})
        join_processes()  # where torchrun started several
        first = is_first_process()
        if not first:
            self.json, self.quiet = False, True
        spec, limit = opt.checked_metric(self.metric), opt.seconds(self.time_limit)
        from metricfit import save
        from metricfit.assess import scores_of
        from metricfit.assess.columns import findings
        from metricfit.classifier import MetricClassifier
        from metricfit.data import BadDataError, describe_table
        from metricfit.files import locked
        from metricfit.models import names_of
        from metricfit.training.recipes import Recipe

        shorter: dict[str, Any] = {} if self.max_epochs is None else {"max_epochs": self.max_epochs, "min_updates": 0}
        given: dict[str, Any] = shorter if self.step is None else {**shorter, "step": self.step}
        names: Any = re.split(r",(?!\s*\w+\s*=)", self.models)  # a comma before a parameter parts no models
        names = names if len(names) > 1 else self.models
        baseline = self.baseline and not self.quick
        if self.quick and self.models == "auto":
            names = list(_QUICK)
        with wrong_use():
            recipe = Recipe.of(self.recipe).with_parts(given)
            recipe.complete()
            names_of(names)
        opt.check_free(self.out, self.overwrite)
        if first:
            self.held.enter_context(locked(self.out))  # until the command ends
        checkpoint = self.out.absolute().parent / f"{self.out.name}.checkpoint"
        going_on = self._goes_on(checkpoint, settings)

        streamed = self._streamed()
        table, held, roles = cast(Any, (streamed, None, None)) if streamed else self._tables(spec)
        judged = self.judged_by(spec, table)
        groups, folds = (None, self.folds) if streamed else table.fold_groups(self.folds)
        choices = self.show_choices(table.choices)
        expected, shape = "", (streamed.rows, len(streamed.columns)) if streamed else table.X.shape
        if names == "auto" and baseline and math.prod(shape) <= 200_000:  # fitted to tables of 2,000 to 50,000 cells
            seconds = 12 + 2.2e-4 * math.prod(shape) * (1 + len(table.classes) / 15)
            expected = f" Expect about {seconds:.0f} s of CPU time."
        self.note(f"Training on {shape[0]:,} rows and {shape[1]} columns for {judged}.{expected}")

        # Measured on other rows, cross-entropy is a run of its own.
        share = None if limit is None else limit / (2 if baseline and held is not None else 1)
        common: dict[str, Any] = {
            "cv": folds or "auto", "verbose": not self.quiet, "random_state": self.seed, "time_limit": share,
        }  # fmt: skip
        classifier = MetricClassifier(
            judged,
            models=names,
            recipe=recipe,
            baseline=baseline and held is None,
            checkpoint_dir=checkpoint,
            confidence=self.confidence,
            **common,
        )
        usual = None
        wait_for_all()  # until every process has seen that no other run is in the way
        if not going_on and first:
            shutil.rmtree(checkpoint, ignore_errors=True)
            checkpoint.mkdir(parents=True)
            (checkpoint / _SETTINGS).write_text(settings, encoding="utf-8")
        with _stoppable(checkpoint, first), _shown_warnings(self.warn):
            try:
                if streamed:
                    from metricfit.training.streaming import fit_shards

                    fit_shards(classifier, streamed, streamed.target, passes=self.max_epochs or 1)
                else:
                    classifier.fit(table.X, table.target, table.weight, groups, table.columns)
                if held is not None and baseline:
                    self.note("Training the same network with cross-entropy, for comparison.")
                    usual = MetricClassifier(
                        judged, models="network", recipe=Recipe("log_loss", rule="tuned", **shorter), baseline=False,
                        checkpoint_dir=checkpoint / "cross-entropy", **common,
                    ).fit(table.X, table.target, table.weight, groups, table.columns)  # fmt: skip
            except ValueError as error:  # options were checked before; what is left is about the rows
                raise BadDataError(str(error)) from error
        choices += self.show_choices([*classifier.choices_, _kinds(classifier)])
        if held is not None:
            source = f"rows that are the latest by {self.time}; nothing was trained on them"
            source = source if self.validation is None else f"rows of {Path(self.validation).name}"
            rows = held.X, held.y, held.weight
            classifier.held_out_ = scores_of(classifier, *rows, source=source, baseline=usual, columns=held.columns)
        if not first:
            return
        verdict = self._judge(classifier, anew=held is not None)
        named = streamed.target if streamed else roles.target if table.labels else roles.target[0]
        formats = {name: asdict(how) for name, how in table.formats.items()}
        notes: dict[str, Any] = {
            "choices": choices,
            "target": named,
            "input": {"formats": formats, "missing": self.missing or []},
            "data": {**describe_table(table.X), "rows": shape[0]},
        }
        if (scores := classifier.held_out_) is not None:
            X = (held or table).X if scores.rows is None else table.X.iloc[scores.rows]
            notes["findings"] = findings(classifier.metric_, scores.judged(tuple(classifier.classes_.tolist())), X)
        save(classifier, self.out, overwrite=self.overwrite, notes=notes, files={_SETTINGS: settings.encode()})
        shutil.rmtree(checkpoint, ignore_errors=True)
        self._show(classifier, verdict, choices)

    def _goes_on(self, path: Path, settings: str) -> bool:
        """Whether there is a stopped run to go on with; an error if it is another one, or in the way."""
        self.resume |= int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)) > 0  # torchrun starts it anew after a death
        if path.exists() and not self.overwrite and not self.resume:
            raise UsageError(
                f"--out: {path} holds a run that was stopped; --resume goes on with it, --overwrite starts anew."
            )
        if not self.resume or not (path / _SETTINGS).exists():
            if self.resume:
                self.note("There is no stopped run to resume; starting from the beginning.")
            return False
        before, now = tomllib.loads((path / _SETTINGS).read_text(encoding="utf-8")), tomllib.loads(settings)
        for key in sorted((before.keys() | now.keys()) - {"time_limit"}):
            if before.get(key) != now.get(key):
                raise UsageError(
                    f"--resume: the run in {path} was started with another --{key.replace('_', '-')} "
                    f"({before.get(key)!r}, now {now.get(key)!r}); use the same options, or --overwrite to start anew."
                )
        self.note(f"Going on with the run in {path}.")
        return True

    def _streamed(self) -> Any:
        """The rows of a folder, a pattern or an address, read piece by piece; None for a file."""
        if self.data == "-" or Path(self.data).is_file():
            return None
        from metricfit.data import Shards
        from metricfit.data.columns import ColumnFormat
        from metricfit.training.streaming import ShardedRows

        why = "on files that are read piece by piece"
        self.refuse(why, "validation", "time", "use", "missing", "max_rows", "separator", "encoding")
        shards = Shards(self.data)
        target, ignored, codes = (
            opt.columns_of(g, shards.columns) for g in (self.target, self.ignore, self.categorical)
        )
        for role, given in (("target", target), ("ignore", ignored), ("categorical", codes)):
            shards.pieces[0][0].check_columns(given, role)
        if len(target) > 1 or self.task == "multilabel":
            raise UsageError(f"--target: {why} one column of classes can be predicted, got {', '.join(target)}.")
        shards.formats |= dict.fromkeys(codes, ColumnFormat("category", reason="named as a category"))
        columns = [name for name in shards.columns if name not in ignored]
        return ShardedRows(shards, target[0], columns=columns, weight=self.weight, groups=self.group)

    def _tables(self, spec: Metric) -> tuple[LabelledTable, LabelledTable | None, Roles]:
        """The rows to train on, the rows to measure on if the options set some apart, and which column is what."""
        from metricfit.data import read_labelled, read_labelled_like

        file = self.open(self.data)
        roles = self.roles(file, spec, self.time)
        table = read_labelled(file, roles, max_rows=self.max_rows, seed=self.seed, task=self.task, note=self.note)
        if self.validation is not None:
            self.refuse("with --validation; give one of them", "time")
            held = read_labelled_like(self.open(self.validation), roles, table.formats, table.classes)
            table.choices += held.choices
            return table, held, roles
        return (table, None, roles) if self.time is None else (*table.split_latest(), roles)

    def _judge(self, classifier: MetricClassifier, *, anew: bool) -> str:
        """The verdict on the held-out rows; ``anew`` where they are not the fit's own, so its report is neither."""
        from metricfit.assess import assess_held_out
        from metricfit.assess.verdicts import cautions, validation_report

        metric, held_out = classifier.metric_, classifier.held_out_
        if held_out is None:
            return ""
        model, verdicts = assess_held_out(metric, held_out, classifier.classes_.tolist())
        if anew:
            found = {**{v.rival.name: v.rival for v in verdicts}, "trained on the metric": model}
            classifier.validation_report_ = validation_report(metric, found)
        warned = cautions(model, verdicts, "--models {}")
        for text in warned:
            self.warn(text)
        said = "" if held_out.baseline is None else verdicts[-1].sentence("--models {}")
        return "" if said in warned else said

    def _show(self, classifier: MetricClassifier, verdict: str, choices: list[str]) -> None:
        report = classifier.validation_report_.dropna(subset=["value"]).drop(columns="gain")
        rows: list[Any] = report.to_dict(orient="records")
        count = max((row["rows"] for row in rows), default=0)
        if rows:
            cells = [[r["model"], number(r["value"]), interval(r["low"], r["high"]), r["note"]] for r in rows]
            wide = 4 if any(row["note"] for row in rows) else 3
            heads = ["model", "value", "95 % interval", ""][:wide]
            self.table(f"{classifier.metric_} on {count:,} held-out rows", heads, [cell[:wide] for cell in cells])
            if verdict:
                self.line(verdict)
        else:
            self.line("Nothing was held out, so there is no measured value: too few rows.")
        page = self.out / "report.html"
        self.line(f"Model:  {self.out}\nReport: {page}")
        self.result({
            "metric": str(classifier.metric_), "classes": classifier.classes_.tolist(), "held_out_rows": count,
            "held_out": rows, "choices": choices, "model": str(self.out), "report": str(page),
        })  # fmt: skip


@contextmanager
def _stoppable(checkpoint: Path, first: bool) -> Iterator[None]:
    """Ctrl-C ends the run at once and says how to go on; the first process cleans up."""
    try:
        with command.stoppable():
            yield
    except BaseException as error:
        empty = not any(checkpoint.rglob("*.pt"))
        if empty and first:
            shutil.rmtree(checkpoint, ignore_errors=True)
        if not isinstance(error, Interrupted):
            raise
        if empty:
            raise Interrupted("Stopped before the first epoch was done; nothing was written.") from None
        again = shlex.join([*(a for a in sys.argv[1:] if a not in ("--resume", "--overwrite")), "--resume"])
        kept = f"Stopped. What was trained so far is kept in {checkpoint}; go on with"
        raise Interrupted(f"{kept}\n  metricfit {again}") from None


@contextmanager
def _shown_warnings(warn: Callable[[str], None]) -> Iterator[None]:
    from metricfit.data.preprocessing import UnusedColumnsWarning

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        warnings.simplefilter("always", RuntimeWarning)
        warnings.simplefilter("ignore", UnusedColumnsWarning)  # the choices name these columns
        yield
    for text in dict.fromkeys(str(w.message) for w in caught):
        warn(text)


def _kinds(classifier: MetricClassifier) -> Choice:
    """How many columns were taken as what."""
    from metricfit.choices import Choice

    preprocessor: Any = classifier.preprocessor_
    counts = Counter(column.format.kind for column in preprocessor.columns_ if not column.dropped)
    shown = ", ".join(f"{count} as {kind}" for kind, count in counts.items())
    return Choice("columns", f"columns taken by what they hold: {shown}; the report lists each", ("categorical",))
