"""Our numbers beside the paper's: the arithmetic and the Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pandas as pd

from benchmarks.papers.config import Config, Experiment, Method
from benchmarks.papers.published import Cell, Question, method_of, metric_of, of_table, question

__all__ = ["Line", "Mean", "difference", "lines", "markdown", "shown_size"]

THEIR_TRIALS = 10
"""All of the papers repeat their experiments ten times."""


@dataclass(frozen=True)
class Mean:
    """Mean, standard deviation and number of trials; ``unit`` is the last printed digit of a rounded mean."""

    mean: float
    std: float
    trials: int
    unit: float = 0.0

    @property
    def variance(self) -> float:
        """Of the mean: that of the trials, and that of the rounding; NaN for a single trial."""
        if self.trials < 2:
            return math.nan
        spread = 0.0 if math.isnan(self.std) else self.std**2 / self.trials
        return spread + self.unit**2 / 12

    def __str__(self) -> str:
        digits = 3 if not self.unit else max(0, round(-math.log10(self.unit)))
        text = f"{self.mean:.{digits}f}"
        return text if math.isnan(self.std) else f"{text} ± {self.std:.{digits}f}"


@dataclass(frozen=True)
class Difference:
    """Ours minus theirs, and its standard error."""

    value: float
    error: float

    @property
    def notable(self) -> bool:
        """Whether it is larger than two standard errors; a single trial cannot tell."""
        return abs(self.value) > 2 * self.error

    def __str__(self) -> str:
        text = f"{self.value:+.3f}"
        return f"**{text}**" if self.notable else text


@dataclass(frozen=True)
class Line:
    """A line of a table: one method and metric on one data set.

    Attributes:
        experiment: The training.
        metric: As the paper calls it.
        of_class: The class, where one is named.
        theirs: The printed number, if there is one.
        ours: Evaluated as the paper does.
        others: By rule, the same metric of the same networks.
    """

    experiment: Experiment
    metric: str
    of_class: str
    theirs: Mean | None
    ours: Mean | None
    others: dict[str, Mean]

    @property
    def title(self) -> str:
        name = f"{self.metric} {self.of_class}".strip()
        return {"auroc": "AUROC of labels", "scores": "AUROC"}.get(name, name.replace("_", " "))

    @property
    def difference(self) -> Difference | None:
        """Without a standard error at another size than the paper's, where it says nothing about the method."""
        if self.theirs is None or self.ours is None:
            return None
        found = difference(self.ours, self.theirs)
        return found if self.experiment.size == "full" else replace(found, error=math.nan)


def difference(ours: Mean, theirs: Mean) -> Difference:
    """Ours minus theirs, with the standard error of both means and of the rounding in print."""
    return Difference(ours.mean - theirs.mean, math.sqrt(ours.variance + theirs.variance))


def printed(cell: Cell) -> Mean:
    """A printed number."""
    unit = 10.0 ** -len(cell.mean.partition(".")[2])
    return Mean(float(cell.mean), float(cell.std) if cell.std else math.nan, THEIR_TRIALS, unit)


def shown_size(rows: pd.DataFrame, dataset: str) -> str:
    """Full size if there is any of it, otherwise what there is."""
    sizes = set(rows.loc[rows["dataset"] == dataset, "size"])
    return next((size for size in ("full", "reduced", "toy") if size in sizes), "full")


def lines(config: Config, rows: pd.DataFrame) -> Iterator[Line]:
    """All lines of a table in its order, data set by data set."""
    theirs: dict[tuple[str, Method, str, str, str], Mean] = {}
    for cell in of_table(config):
        key = (cell.dataset, method_of(cell, config), cell.batch_size, metric_of(cell), cell.of_class)
        theirs[key] = printed(cell)
    summary = _summary(rows)
    for dataset in config.datasets:
        classes = sorted({key[4] for key in theirs if key[4]})
        for experiment in config.experiments(shown_size(rows, dataset)):
            if experiment.dataset != dataset:
                continue
            method = Method(experiment.method, experiment.approximation)
            for metric in config.metrics:
                for of_class in classes if metric in ("precision", "recall") and classes else [""]:
                    batch = experiment.batch if config.batches else ""
                    paper = theirs.get((dataset, method, batch, metric, of_class))
                    asked = question(config, experiment.method, metric, dataset, of_class)
                    yield from _lines(experiment, metric, asked, paper, summary)


def _lines(
    experiment: Experiment, metric: str, asked: Question, paper: Mean | None, summary: dict[tuple[object, ...], Mean]
) -> Iterator[Line]:
    def found(rule: str, name: str = asked.metric, of_class: str = asked.of_class) -> Mean | None:
        return summary.get((experiment, rule, name, of_class))

    rules = ["mean_tau_raw", "decision", "tuned"]
    for key in summary:
        if key[0] == experiment and str(key[1]).startswith("tuned_for_") and key[2:] == (asked.metric, asked.of_class):
            rules.append(str(key[1]))
    others = {rule: mean for rule in rules if rule != asked.rule and (mean := found(rule)) is not None}
    line = Line(experiment, metric, asked.of_class, paper, found(asked.rule), others)
    yield line
    if metric == "auroc" and (true := found("scores", "auroc")) is not None:
        yield replace(line, metric="scores", theirs=None, ours=true, others={})


def _summary(rows: pd.DataFrame) -> dict[tuple[object, ...], Mean]:
    """Means over trials by experiment, rule, metric and class."""
    key = ["dataset", "method", "approximation", "protocol", "batch", "encoding", "size"]
    made: dict[tuple[object, ...], Mean] = {}
    if rows.empty:
        return made
    grouped = rows.groupby([*key, "rule", "metric", "class"], sort=False)["value"].agg(["mean", "std", "count"])
    for index, mean, std, count in grouped.itertuples():
        made[(Experiment(*index[:7]), *index[7:])] = Mean(float(mean), float(std), int(count))
    return made


COLUMNS = {
    "mean_tau_raw": "thresholds on raw output",
    "decision": "at the decision rule",
    "tuned": "tuned rule",
}


def markdown(config: Config, rows: pd.DataFrame) -> str:
    """The table as Markdown, one part a data set, encoding and protocol."""
    all_lines = list(lines(config, rows))
    shown = [line for line in all_lines if line.ours is not None]
    text = [f"# {config.name}: {config.title}", "", _explained(config, shown), ""]
    groups: dict[tuple[str, str, str, str], list[Line]] = {}
    for line in all_lines:
        e = line.experiment
        groups.setdefault((e.dataset, e.encoding, e.protocol if len(config.protocols) > 1 else "", e.size), []).append(
            line
        )
    for (dataset, encoding, protocol, size), here in groups.items():
        about = ", ".join(part for part in (f"{encoding} codes" if encoding else "", protocol) if part)
        label = "" if size == "full" else f" — **{size} size, not the paper's**"
        text += [f"## {dataset}{f' ({about})' if about else ''}{label}", "", *_part(config, here), ""]
    for dataset, reason in config.not_run.items():
        text += [f"## {dataset}", "", f"Not run: {reason}.", ""]
    text += [f"- {note}" for note in config.notes]
    return "\n".join(text).rstrip() + "\n"


def _explained(config: Config, shown: list[Line]) -> str:
    how = "the mean over thresholds 0.1, …, 0.9" if config.rule == "mean_tau" else "arg max (or one half)"
    words = [f"Mean ± standard deviation over trials; evaluated by {how}, as in the paper."]
    if any(line.difference is not None for line in shown):
        words.append("The difference is bold where it is larger than two standard errors (at full size).")
    return " ".join(words)


def _part(config: Config, here: list[Line]) -> list[str]:
    if all(line.ours is None for line in here):
        return ["Not run yet."]
    columns = [rule for rule in COLUMNS if any(rule in line.others for line in here)]
    preferred = {"Frog" if "+frog" in m.name else "Dog" for m in config.methods if m.name.startswith("fbeta_")}
    columns += sorted({
        rule
        for line in here
        for rule in line.others
        if rule.startswith("tuned_for_") and rule.rpartition("_")[2] in preferred
    })  # fmt: skip
    paper = any(line.theirs is not None for line in here)
    head = ["loss", "metric", *(["paper"] if paper else []), "ours", *(["difference"] if paper else [])]
    head += [COLUMNS.get(rule, rule.replace("_", " ")) for rule in columns] + ["trials"]
    out = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for line in here:
        method = str(Method(line.experiment.method, line.experiment.approximation))
        method += f", batch {line.experiment.batch}" if config.batches else ""
        row = [method, line.title]
        row += [str(line.theirs or "")] if paper else []
        row += [str(line.ours or "not run")]
        row += [str(line.difference or "")] if paper else []
        row += [str(line.others.get(rule, "")) for rule in columns]
        out.append(f"| {' | '.join([*row, str(line.ours.trials if line.ours else 0)])} |")
    return out
