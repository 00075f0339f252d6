"""Each claim of each paper with a verdict: paired differences over trials, from the committed rows.

A claim is a comparison of two trainings in one metric on the same splits. On one data set it holds or fails where the
mean paired difference is two standard errors beyond the limit that the claim sets; one trial decides nothing. A claim
is *confirmed* if it holds on at least half of the sets and fails on none, *contradicted* if it fails on at least half
and holds on none (one that is said to hold reliably: if it fails on any), *undecided* otherwise.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import pandas as pd

from benchmarks.papers.results import read

__all__ = ["CLAIMS", "Claim", "Found", "Side", "compared", "verdict", "verdicts", "write_page"]

MARGIN = 0.02
"""Differences of a metric that count as level."""

FAR = 0.1
"""A difference that deserves the word "far"."""

Kind = Literal["ahead", "reliably ahead", "far ahead", "level", "not behind"]

FOUR = ("cocktail_party", "adult", "mammography", "creditcard")
NAMES = {
    "cocktail_party": "cocktail party", "creditcard": "credit card fraud", "cifar10": "CIFAR-10",
    "synthetic_5": "5 % positives", "synthetic_33": "33 %",
}  # fmt: skip


@dataclass(frozen=True)
class Side:
    """What is compared: a method of a protocol, decided by a rule, in one metric (of one class)."""

    protocol: str
    method: str
    rule: str
    metric: str
    of_class: str = ""
    batch: str = ""

    def values(self, rows: pd.DataFrame, dataset: str) -> pd.Series:
        """By trial. Of adult the integer codes count, which every method has."""
        name, _, approximation = self.method.partition("/")
        wanted = {
            "protocol": self.protocol, "dataset": dataset, "method": name, "approximation": approximation,
            "rule": self.rule, "metric": self.metric, "class": self.of_class,
        }  # fmt: skip
        if self.batch:
            wanted["batch"] = self.batch
        here = rows[rows["encoding"] != "onehot"]
        for column, value in wanted.items():
            here = here[here[column].astype(str) == value]
        return here.set_index("trial")["value"]


@dataclass(frozen=True)
class Claim:
    """A sentence of a paper as a comparison.

    Attributes:
        paper: The paper.
        says: The claim.
        ours: What the paper proposes.
        other: What it is compared with.
        kind: Where ``ours`` is said to be, seen from the other.
        tuned: What a user would compare with: cross-entropy with a tuned threshold; None where that says nothing.
        datasets: The data sets.
        seconds: Whether the numbers are seconds, of which less is better.
        note: What a reader must know.
    """

    paper: str
    says: str
    ours: Side
    other: Side
    kind: Kind = "ahead"
    tuned: Side | None = None
    datasets: tuple[str, ...] = FOUR
    seconds: bool = False
    note: str = ""


@dataclass(frozen=True)
class Found:
    """The paired difference on one data set: mean, standard error over trials, trials."""

    dataset: str
    mean: float
    error: float
    trials: int

    def __str__(self) -> str:
        size = 0 if abs(self.mean) >= 10 else 3
        spread = "one trial" if self.trials < 2 else f"± {self.error:.{size}f}"
        value = f"{self.mean:+.{size}f}".replace("-", "\N{MINUS SIGN}")
        return f"{NAMES.get(self.dataset, self.dataset)} {value} {spread}"

    def holds(self, kind: Kind) -> bool | None:
        """Whether the claim holds here; None where that is open."""
        if self.trials < 2:
            return None
        low, high = self.mean - 2 * self.error, self.mean + 2 * self.error
        if kind == "level":
            yes, no = max(-low, high) <= MARGIN, max(low, -high) > MARGIN
        elif kind == "not behind":
            yes, no = low >= -MARGIN, high < -MARGIN
        else:
            limit = FAR if kind == "far ahead" else 0.0
            yes, no = low > limit, high < limit
        return True if yes else False if no else None


def _btg(method: str, rule: str, metric: str, batch: str = "") -> Side:
    return Side("btg-tabular", method, rule, metric, batch=batch)


def _east(method: str, rule: str, metric: str) -> Side:
    return Side("east-tabular", method, rule, metric)


def _dog(method: str, metric: str, of_class: str = "Dog", protocol: str = "east-images") -> Side:
    return Side(protocol, method, "decision", metric, of_class)


def _claims() -> Iterator[Claim]:
    btg = "Bridging the gap"
    for metric, name in (("f1", "F1"), ("accuracy", "Accuracy")):
        yield Claim(
            btg, f"{name} as a loss beats cross-entropy in {name} (mean over nine thresholds)",
            _btg(f"{metric}/linear", "mean_tau", metric), _btg("bce", "mean_tau", metric),
            tuned=_btg("bce", "tuned", metric),
        )  # fmt: skip
    yield Claim(
        btg, "Linear and sigmoid step do about equally well (F1 as a loss)",
        _btg("f1/linear", "mean_tau", "f1"), _btg("f1/sigmoid", "mean_tau", "f1"), "level",
    )  # fmt: skip
    yield Claim(
        btg, "β moves the balance: recall with β = 3 above that with β = 1",
        _btg("f3/linear", "mean_tau", "recall"), _btg("f1/linear", "mean_tau", "recall"),
    )  # fmt: skip
    yield Claim(
        btg, "F1 as a loss is far ahead of Dice",
        _btg("f1/linear", "decision", "f1"), _btg("dice", "decision", "f1"), "far ahead",
        note="at one half; in print Dice is that of single samples",
    )  # fmt: skip
    yield Claim(
        btg, "F1 as a loss holds its F1 from batches of 128 to 4,096",
        _btg("f1/linear", "mean_tau", "f1", "4096"), _btg("f1/linear", "mean_tau", "f1", "128"), "level",
        datasets=("synthetic_5", "synthetic_33"),
    )  # fmt: skip
    yield Claim(
        btg, "F1 as a loss trains faster than the adversarial F1 (2.3 against 70 minutes in print)",
        _btg("f1/linear", "fit", "seconds"), _btg("adversarial_f1", "fit", "seconds"), seconds=True,
        note="seconds; the adversarial game is capped at 100 epochs with a patience of 10",
    )  # fmt: skip
    yield Claim(
        "Multi-class Fβ", "Without annealing, F1 as a loss is similar to cross-entropy or better in F1",
        Side("multiclass-fbeta-tabular", "f1/linear", "decision", "f1"),
        Side("multiclass-fbeta-tabular", "ce", "decision", "f1"), "not behind",
        tuned=Side("multiclass-fbeta-tabular", "ce", "tuned", "f1"),
    )  # fmt: skip
    for metric in ("precision", "recall"):
        strong, weak = f"fbeta_{metric}/linear", f"fbeta_{'recall' if metric == 'precision' else 'precision'}/linear"
        yield Claim(
            "Multi-class Fβ", f"A β for {metric} of Dog raises that {metric}",
            _dog(strong, metric, protocol="multiclass-fbeta-images"),
            _dog(weak, metric, protocol="multiclass-fbeta-images"), datasets=("cifar10",),
            note="β for precision against β for recall; reduced size",
        )  # fmt: skip
    for metric, name in (("f1", "F1"), ("accuracy", "Accuracy"), ("mcc", "MCC")):
        yield Claim(
            "EAST", f"{name} as a loss does about as well as cross-entropy in {name}, or better",
            _east(f"{metric}/linear", "decision", metric), _east("ce", "decision", metric), "not behind",
            tuned=_east("ce", "tuned", metric),
        )  # fmt: skip
    yield Claim(
        "EAST", "Annealing helps (against multi-class Fβ's F1 loss without it)",
        _east("f1/linear", "decision", "f1"), Side("multiclass-fbeta-tabular", "f1/linear", "decision", "f1"),
    )  # fmt: skip
    yield Claim(
        "EAST", "F1 as a loss is far ahead of Dice",
        _east("f1/linear", "decision", "f1"), _east("dice", "decision", "f1"), "far ahead",
    )  # fmt: skip
    yield Claim(
        "EAST", "A random forest reliably outperforms F1 as a loss on tables (macro F1)",
        _east("rf", "decision", "macro_f1"), _east("f1/linear", "decision", "macro_f1"), "reliably ahead",
        note="its table sets the forest's macro F1 beside the positive class's F1",
    )  # fmt: skip
    yield Claim(
        "EAST", "A β for recall of Dog leaves Frog's recall alone (Table 5)",
        _dog("fbeta_recall/linear", "recall", "Frog"), _dog("f1/linear", "recall", "Frog"), "level",
        datasets=("cifar10",), note="reduced size",
    )  # fmt: skip
    yield Claim(
        "EAST", "β = 2.5 for Dog has a higher recall of Dog than cross-entropy (Table 7)",
        _dog("fbeta_2.5/linear", "recall"), _dog("ce", "recall"), datasets=("cifar10",), note="reduced size",
    )  # fmt: skip
    for metric, name in (
        ("accuracy", "Accuracy"),
        ("f1", "F1"),
        ("balanced_accuracy", "Balanced accuracy"),
        ("gmean", "G-mean"),
    ):
        for rival, called in (("bce", "cross-entropy"), ("mse", "squared error")):
            yield Claim(
                "AnyLoss", f"{name} as a loss beats {called} in it (network)",
                Side("anyloss-mlp", f"anyloss_{metric}", "decision", metric),
                Side("anyloss-mlp", rival, "decision", metric),
                tuned=Side("anyloss-mlp", "bce", "tuned", metric) if rival == "bce" else None,
            )  # fmt: skip


CLAIMS: tuple[Claim, ...] = tuple(_claims())

OPEN = {
    "The surrogate Fβ loss follows the Fβ score more closely than the soft Fβ loss": (
        "one repetition at a reduced size, and the soft loss was class-weighted, which eq. 24 is not"
    ),
    "The surrogate Fβ loss has the best F1 on the validation part": (
        "one repetition at a reduced size, and the cross-entropy beside it was class-weighted"
    ),
}
"""Claims of surrogate Fβ that the rows cannot decide, and why."""


def compared(rows: pd.DataFrame, ours: Side, other: Side, claim: Claim) -> list[Found]:
    """The paired differences on the claim's data sets, where both were run."""
    found = []
    for dataset in claim.datasets:
        difference = (ours.values(rows, dataset) - other.values(rows, dataset)).dropna()
        if claim.seconds:
            difference = -difference
        if len(difference):
            error = float(difference.std() / math.sqrt(len(difference))) if len(difference) > 1 else math.nan
            found.append(Found(dataset, float(difference.mean()), error, len(difference)))
    return found


def verdict(found: Sequence[Found], kind: Kind) -> str:
    """*confirmed*, *contradicted* or *undecided* from the data sets."""
    holds = [each.holds(kind) for each in found]
    yes, no = holds.count(True), holds.count(False)
    if yes and not no and 2 * yes >= len(holds):
        return "confirmed"
    refuted = no > 0 if kind == "reliably ahead" else no > 0 and not yes and 2 * no >= len(holds)
    return "contradicted" if refuted else "undecided"


def verdicts(results: Path) -> str:
    """A sentence that counts, and the table of all claims, as Markdown."""
    rows = read("scores", results)
    head = ["paper", "claim", "verdict", "ours: paired difference ± standard error", "trials"]
    head.append("against cross-entropy with a tuned threshold")
    table = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    said: Counter[str] = Counter(undecided=len(OPEN))
    against: Counter[bool | None] = Counter()
    for claim in CLAIMS:
        found = compared(rows, claim.ours, claim.other, claim)
        tuned = _tuned(rows, claim)
        trials = sorted({each.trials for each in found})
        counts = f"{trials[0]} to {trials[-1]}" if len(trials) > 1 else "".join(map(str, trials))
        shown = "; ".join(map(str, found)) + (f" ({claim.note})" if claim.note else "")
        word = verdict(found, claim.kind)
        said[word] += 1
        against.update(each.holds("ahead") for each in tuned)
        cells = [claim.paper, claim.says, f"**{word}**", shown, counts, "; ".join(map(str, tuned))]
        table.append(f"| {' | '.join(cells)} |")
    table += [f"| Surrogate Fβ | {says} | **undecided** | {why} | 1 |  |" for says, why in OPEN.items()]
    sentence = (
        f"Of {said.total()} claims {said['confirmed']} are confirmed, {said['contradicted']} contradicted and "
        f"{said['undecided']} undecided. Against cross-entropy **with a tuned threshold** the losses are ahead by more "
        f"than two standard errors in {against[True]} of {against.total()} comparisons and behind in {against[False]}."
    )
    return "\n".join([sentence, "", *table])


def _tuned(rows: pd.DataFrame, claim: Claim) -> list[Found]:
    if claim.tuned is None:
        return []
    return compared(rows, replace(claim.ours, rule="decision"), claim.tuned, claim)


def write_page(page: Path, results: Path) -> None:
    """Renew the table between its marks on a page."""
    begin, end = "<!-- table: verdicts -->\n", "<!-- end of table: verdicts -->"
    before, _, rest = page.read_text().partition(begin)
    page.write_text(f"{before}{begin}\n{verdicts(results)}\n\n{end}{rest.partition(end)[2]}")
