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
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import metricfit
from metricfit.cli import command as cli

if TYPE_CHECKING:
    from metricfit import MetricClassifier, Recipe
    from metricfit.data import LabelledTable, Roles
    from metricfit.metrics import Metric

_SETTINGS = "train.toml"
_NOT_KEPT = ("config", "resume", "overwrite", "json", "quiet", "debug", "study", "study_name", "trials")
_QUICK = ("boosting", "extra_trees")


class Train(cli.Training):
    """Train a classifier on the metric it is judged by.

    Reads a table, finds out what its columns hold, trains, measures on held-out rows beside cross-entropy plain and
    tuned, and writes a model folder with a report. Everything that was decided without asking is reported on standard
    error with its reason.

    An option shown with COL… takes one name or several: --ignore id name, --ignore id,name, or the option again.

    Example: metricfit train churn.csv --target churn --metric "f1[yes]" --out model
    """

    data: str = cli.argument(
        "DATA",
        "A CSV, JSON Lines, Parquet or Excel file; - for standard input. A folder, a pattern or an address, such as "
        "'s3://bucket/*.parquet', is read piece by piece and may be larger than memory.",
    )
    metric: str = cli.option(
        "What the model is judged by: a name, 'f1\\[yes]', an expression, also 'precision\\[yes] subject to "
        "recall\\[yes] >= 0.9'; see 'metricfit metrics'.", "M", default=cli.REQUIRED,
    )  # fmt: skip
    out: Path = cli.an_out("The model folder to write.", "DIR", default=cli.REQUIRED)
    validation: str | None = cli.option("Measure on this file's rows.", "FILE", cli.SPLITS)
    time: str | None = cli.option("Hold out the latest fifth; validate on spans of time.", "COL", cli.SPLITS)
    folds: int | None = cli.option("Members of the ensemble.", "N", cli.SPLITS, shown="by size", min=2)
    confidence: float | None = cli.option("Keep constraints on new rows with this probability.", "P", cli.SPLITS)
    baseline: bool = cli.switch("--baseline/--no-baseline", "Compare with cross-entropy.", cli.SPLITS, True)
    task: str = cli.option("auto, binary, multiclass or multilabel.", "TASK", cli.COLUMNS, "auto")
    recipe: str = cli.option("btg, multiclass_fbeta, east, log_loss, …; east:patience=5.", "NAME", cli.RUN, "default")
    models: str = cli.option("auto, or names: network,boosting:max_features=0.5.", "NAMES", cli.RUN, "auto")
    quick: bool = cli.switch("--quick", "A first answer: trees alone, not compared with cross-entropy.", cli.RUN)
    time_limit: str | None = cli.option("Stop training after 90s, 15m or 2h and keep the best so far.", "TIME", cli.RUN)
    resume: bool = cli.switch("--resume", "Go on with a run that was stopped.", cli.RUN)
    overwrite: bool = cli.to_overwrite()

    def run(self) -> None:
        settings = cli.to_toml({n: getattr(self, n) for n in cli.options_of(type(self)) if n not in _NOT_KEPT})
        metricfit.distributed.join_processes()  # where torchrun started several
        first = metricfit.distributed.is_first_process()
        if not first:
            self.json, self.quiet = False, True
        spec, limit = cli.checked_metric(self.metric), cli.seconds(self.time_limit)
        from sklearn.base import clone

        names, recipe = self.asked_for()
        baseline = self.baseline and not self.quick
        cli.check_free(self.out, self.overwrite)
        if first:
            self.held.enter_context(metricfit.files.locked(self.out))  # until the command ends
        checkpoint = self.out.absolute().parent / f"{self.out.name}.checkpoint"
        going_on = self._goes_on(checkpoint, settings)

        streamed = self._streamed(spec)
        given: Any = streamed or self.tables(spec)
        table, held, roles = given
        judged = self.judged_by(spec, table)
        groups, folds = (None, self.folds) if streamed else table.fold_groups(self.folds)
        choices = self.show_choices(table.choices)
        expected, shape = "", (table.rows, len(table.columns)) if streamed else table.X.shape
        if names == "auto" and baseline and math.prod(shape) <= 200_000:  # fitted to tables of 2,000 to 50,000 cells
            seconds = 12 + 2.2e-4 * math.prod(shape) * (1 + len(table.classes) / 15)
            expected = f" Expect about {seconds:.0f} s of CPU time."
        self.note(f"Training on {shape[0]:,} rows and {shape[1]} columns for {judged}.{expected}")

        apart = baseline and held is not None  # measured on other rows, cross-entropy is a run of its own
        classifier = metricfit.MetricClassifier(
            judged,
            models=names,
            recipe=recipe,
            cv=folds or "auto",
            baseline=baseline and held is None,
            confidence=self.confidence,
            time_limit=limit and limit / (1 + apart),
            checkpoint_dir=checkpoint,
            verbose=not self.quiet,
            random_state=self.seed,
        )
        usual = None
        metricfit.distributed.wait_for_all()  # until every process has seen that no other run is in the way
        with _stoppable(checkpoint, first), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            warnings.simplefilter("always", RuntimeWarning)
            # The choices name these columns.
            warnings.simplefilter("ignore", metricfit.data.preprocessing.UnusedColumnsWarning)
            if not going_on and first:
                shutil.rmtree(checkpoint, ignore_errors=True)
                with metricfit.files.written_whole(checkpoint / _SETTINGS) as file:
                    file.write_text(settings, encoding="utf-8")
            try:
                if streamed:
                    from metricfit.training.streaming import fit_shards

                    fit_shards(classifier, table, table.target, passes=self.max_epochs or 1)
                else:
                    classifier.fit(*(rows := (table.X, table.target, table.weight, groups, table.columns)))
                if apart:
                    self.note("Training the same network with cross-entropy, for comparison.")
                    length: dict[str, Any] = {n: getattr(recipe, n) for n in ("max_epochs", "min_updates")}
                    usual = clone(classifier).set_params(
                        models="network", recipe=metricfit.Recipe("log_loss", rule="tuned", **length), confidence=None,
                        checkpoint_dir=checkpoint / "cross-entropy",
                    ).fit(*rows)  # fmt: skip
            except ValueError as error:  # options were checked before; what is left is about the rows
                raise metricfit.data.BadDataError(str(error)) from error
        for text in dict.fromkeys(str(warning.message) for warning in caught):
            self.warn(text)
        choices += self.show_choices([*classifier.choices_, _kinds(classifier)])
        if held is not None:
            which = "the latest by " + self.time if self.time else "a random fifth"
            source = f"rows that are {which}; nothing was trained on them"
            source = source if self.validation is None else f"rows of {Path(self.validation).name}"
            classifier.held_out_ = cli.scored(classifier, held, source=source, baseline=usual)
        if not first:
            return
        verdict = self._judge(classifier, anew=held is not None)
        formats = {name: asdict(how) for name, how in table.formats.items()}
        notes: dict[str, Any] = {
            "choices": choices,
            "target": roles.target if len(roles.target) > 1 else roles.target[0],
            "input": {"formats": formats, "missing": self.missing or []},
            "data": {"rows": shape[0]},
        }
        if (scores := classifier.held_out_) is not None:
            X = (held or table).X if scores.rows is None else table.X.iloc[scores.rows]
            decided = scores.judged(tuple(classifier.classes_.tolist()))
            notes["findings"] = metricfit.assess.columns.findings(classifier.metric_, decided, X)
        notes |= (more := self.noted(classifier, held))
        kept = {_SETTINGS: settings.encode()}
        metricfit.save(classifier, self.out, overwrite=self.overwrite, notes=notes, files=kept)
        shutil.rmtree(checkpoint, ignore_errors=True)
        self._show(classifier, verdict, choices, more)

    def asked_for(self) -> tuple[Any, Recipe]:
        """The models, and the recipe of the networks, that the options name."""
        names: Any = re.split(r",(?!\s*\w+\s*=)", self.models)  # a comma before a parameter parts no models
        names = names if len(names) > 1 else self.models
        shorter: dict[str, Any] = {} if self.max_epochs is None else {"max_epochs": self.max_epochs, "min_updates": 0}
        with cli.wrong_use():
            recipe = metricfit.Recipe.of(self.recipe).with_parts(shorter)
            recipe.complete()
            metricfit.models.names_of(names)
        return list(_QUICK) if self.quick and self.models == "auto" else names, recipe

    def noted(self, classifier: MetricClassifier, held: LabelledTable | None) -> dict[str, Any]:
        """What a command built on this one adds to the model's notes and to the result."""
        return {}

    def _goes_on(self, path: Path, settings: str) -> bool:
        """Whether there is a stopped run to go on with; an error if it is another one, or in the way."""
        self.resume |= int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)) > 0  # torchrun starts it anew after a death
        free = self.overwrite or self.resume or not path.exists()
        cli.expect(free, f"--out: {path} holds a stopped run; --resume goes on with it, --overwrite starts anew.")
        if not self.resume or not (path / _SETTINGS).exists():
            if self.resume:
                self.note("There is no stopped run to resume; starting from the beginning.")
            return False
        before, now = tomllib.loads((path / _SETTINGS).read_text(encoding="utf-8")), tomllib.loads(settings)
        for key in sorted((before.keys() | now.keys()) - {"time_limit"}):
            other = f"another --{key.replace('_', '-')} ({before.get(key)!r}, now {now.get(key)!r})"
            told = f"--resume: the run in {path} was started with {other}; use the same options, or --overwrite."
            cli.expect(before.get(key) == now.get(key), told)
        self.note(f"Going on with the run in {path}.")
        return True

    def _streamed(self, spec: Metric) -> Any:
        """As :meth:`tables`, the rows of a folder, a pattern or an address, read piece by piece; None for a file."""
        if self.data == "-" or Path(self.data).is_file():
            return None
        from metricfit.training.streaming import ShardedRows

        why = "on files that are read piece by piece"
        self.refuse(why, "validation", "time", "use", "missing", "max_rows", "separator", "encoding")
        shards = metricfit.data.Shards(self.data)
        roles = self.roles(first := shards.pieces[0][0], spec)
        roles.check(first)
        one = len(roles.target) == 1 and self.task != "multilabel"
        cli.expect(one, f"--target: {why} one column of classes can be predicted, got {', '.join(roles.target)}.")
        shards.formats |= dict.fromkeys(roles.categorical, metricfit.data.columns.NAMED_CATEGORY)
        columns = [name for name in shards.columns if name not in roles.ignore]
        rows = ShardedRows(shards, roles.target[0], columns=columns, weight=self.weight, groups=self.group)
        return rows, None, roles

    def tables(self, spec: Metric) -> tuple[LabelledTable, LabelledTable | None, Roles]:
        """The rows to train on, the rows to measure on if the options set some apart, and which column is what."""
        file = self.open(self.data)
        roles = self.roles(file, spec, self.time)
        table = self.labelled(file, roles, task=self.task)
        if self.validation is not None:
            self.refuse("with --validation; give one of them", "time")
            held = metricfit.data.read_labelled_like(self.open(self.validation), roles, table.formats, table.classes)
            table.choices += held.choices
            return table, held, roles
        return (table, None, roles) if self.time is None else (*table.split_latest(), roles)

    def _judge(self, classifier: MetricClassifier, *, anew: bool) -> str:
        """The verdict on the held-out rows; ``anew`` where they are not the fit's own, so its report is neither."""
        metric, held_out = classifier.metric_, classifier.held_out_
        if held_out is None:
            return ""
        model, verdicts = metricfit.assess.assess_held_out(metric, held_out, classifier.classes_.tolist())
        if anew:
            found = {**{v.rival.name: v.rival for v in verdicts}, "trained on the metric": model}
            classifier.validation_report_ = metricfit.assess.verdicts.validation_report(metric, found)
        warned = metricfit.assess.verdicts.cautions(model, verdicts, "--models {}")
        for text in warned:
            self.warn(text)
        said = "" if held_out.baseline is None else verdicts[-1].sentence("--models {}")
        return "" if said in warned else said

    def _show(self, classifier: MetricClassifier, verdict: str, choices: list[str], more: dict[str, Any]) -> None:
        report = classifier.validation_report_.dropna(subset=["value"]).drop(columns="gain")
        rows: list[Any] = report.to_dict(orient="records")
        count = max((row["rows"] for row in rows), default=0)
        if rows:
            cells = [[r["model"], r["value"], (r["low"], r["high"]), r["note"]] for r in rows]
            heads = ["model", "value", "95 % interval", ""]
            self.table(f"{classifier.metric_} on {count:,} held-out rows", heads, cells)
            if verdict:
                self.line(verdict)
        else:
            self.line("Nothing was held out, so there is no measured value: too few rows.")
        page = self.out / "report.html"
        self.line(f"Model:  {self.out}\nReport: {page}")
        self.result({
            "metric": str(classifier.metric_), "classes": classifier.classes_.tolist(), "held_out_rows": count,
            "held_out": rows, "choices": choices, "model": str(self.out), "report": str(page), **more,
        })  # fmt: skip


@contextmanager
def _stoppable(checkpoint: Path, first: bool) -> Iterator[None]:
    """Ctrl-C ends the run at once and says how to go on; the first process cleans up."""
    try:
        with cli.stoppable():
            yield
    except BaseException as error:
        empty = not any(checkpoint.rglob("*.pt"))
        if empty and first:
            shutil.rmtree(checkpoint, ignore_errors=True)
        if not isinstance(error, cli.Interrupted):
            raise
        if empty:
            raise cli.Interrupted("Stopped before the first epoch was done; nothing was written.") from None
        again = shlex.join([*(a for a in sys.argv[1:] if a not in ("--resume", "--overwrite")), "--resume"])
        kept = f"Stopped. What was trained so far is kept in {checkpoint}; go on with"
        raise cli.Interrupted(f"{kept}\n  metricfit {again}") from None


def _kinds(classifier: MetricClassifier) -> metricfit.choices.Choice:
    """How many columns were taken as what."""
    preprocessor: Any = classifier.preprocessor_
    counts = Counter(column.format.kind for column in preprocessor.columns_ if not column.dropped)
    shown = ", ".join(f"{count} as {kind}" for kind, count in counts.items())
    text = f"columns taken by what they hold: {shown}; the report lists each"
    return metricfit.choices.Choice("columns", text, ("categorical",))
