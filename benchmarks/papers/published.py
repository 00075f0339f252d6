"""What the papers printed, and which of our experiments answers each number."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.papers.config import Config, Experiment, Method, names, read

__all__ = ["PUBLISHED", "Cell", "Question", "Target", "cells", "of_table", "reason_not_run", "target"]

PUBLISHED = Path(__file__).parent / "published.csv"


@dataclass(frozen=True)
class Cell:
    """One printed number; ``mean`` and ``std`` are the printed strings, an empty ``std`` was not printed."""

    paper: str
    table: str
    dataset: str
    method: str
    approximation: str
    batch_size: str
    evaluated_on: str
    of_class: str
    mean: str
    std: str

    @property
    def config(self) -> str:
        return f"{self.paper}-table{self.table}"


@dataclass(frozen=True)
class Question:
    """How a number comes about from the scores of a fit: decision rule, metric and class."""

    rule: str
    metric: str
    of_class: str = ""


@dataclass(frozen=True)
class Target:
    """The experiments that answer a printed number (one for each encoding), and how."""

    experiments: tuple[Experiment, ...]
    question: Question


def cells(path: Path = PUBLISHED) -> list[Cell]:
    """All printed numbers."""
    with path.open(newline="") as file:
        return [
            Cell(**{("of_class" if k == "class" else k): v for k, v in row.items()}) for row in csv.DictReader(file)
        ]


def of_table(config: Config) -> Iterator[Cell]:
    """The printed numbers of one table, in its order."""
    return (cell for cell in cells() if cell.paper == config.paper and cell.table == config.table)


def method_of(cell: Cell, config: Config) -> Method:
    """The method as the config names it: where a paper does not say which step it took, the config does."""
    exact = Method(cell.method, cell.approximation)
    if exact in config.methods:
        return exact
    alike = [method for method in config.methods if method.name == cell.method]
    if len(alike) != 1 or cell.approximation:
        raise ValueError(f"{cell.config}: {exact} of published.csv is not among the methods of the config.")
    return alike[0]


def metric_of(cell: Cell) -> str:
    """The metric that a number is a value of, where the paper's caption names another one."""
    # In EAST's Table 3 the rows of F1* and accuracy* repeat the positive class's F1 of its Table 1.
    repeated = cell.config == "east-table3" and cell.evaluated_on == "macro_f1" and cell.method in ("f1", "accuracy")
    return "f1" if repeated else cell.evaluated_on


def question(config: Config, method: str, metric: str, dataset: str, of_class: str = "") -> Question:
    """How a table's number is computed from ours."""
    rule = config.rule
    if method.startswith("svmperf"):
        rule = "decision"  # it gives no probabilities that a threshold could meet
    if metric == "auroc":
        # The mean over thresholds of the AUROC of labels is the mean balanced accuracy.
        return Question(rule, "balanced_accuracy")
    several = dataset in ("cifar10", "caltech256")
    if metric == "f1" and several:
        return Question(rule, "macro_f1")
    return Question(rule, metric, of_class)


def reason_not_run(cell: Cell) -> str:
    """Why a number is not computed; empty if it is."""
    if cell.config not in names():
        return ""
    return read(cell.config).not_run.get(cell.dataset, "")


def target(cell: Cell, size: str = "full") -> Target:
    """What answers a printed number.

    >>> first = cells()[0]
    >>> target(first).question
    Question(rule='mean_tau', metric='f1', of_class='')
    >>> [experiment.title for experiment in target(first).experiments]
    ['cocktail_party f1/linear btg-tabular batch 1024']
    """
    config = read(cell.config)
    method = method_of(cell, config)
    found = tuple(
        experiment
        for experiment in config.experiments(size)
        if experiment.dataset == cell.dataset
        and Method(experiment.method, experiment.approximation) == method
        and cell.batch_size in ("", experiment.batch)
    )
    if not found:
        raise ValueError(f"{cell.config}: no experiment answers {cell}.")
    return Target(found, question(config, cell.method, metric_of(cell), cell.dataset, cell.of_class))
