"""Each claim of each paper with a verdict: paired differences over trials, from the committed rows.

A claim is a comparison of two trainings in one metric on the same splits. On one data set it holds or fails where the
mean paired difference is two standard errors beyond the limit that the claim sets; one trial decides nothing. A claim
is *confirmed* if it holds on at least half of the sets and fails on none, *contradicted* if it fails on at least half
and holds on none (one that is said to hold reliably: if it fails on any), *undecided* otherwise.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import pandas as pd

from benchmarks.papers.checks import anyloss_counts, anyloss_protocol, btg_facts, btg_lookup, btg_search
from benchmarks.papers.results import read

__all__ = [
    "CLAIMS", "FIGURES", "Claim", "Figure", "Found", "Side", "compared", "followed", "page_tables", "verdict",
    "verdicts", "write_page",
]  # fmt: skip

MARGIN = 0.02
"""Differences of a metric that count as level."""

FAR = 0.1
"""A difference that deserves the word "far"."""

LINE = 0.9
"""A correlation that deserves the word "line"."""

LAST, FIRST = 5, 10
"""Epochs that are averaged: at the end of a curve, and at its start where speed counts."""

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

IMAGES = {"Fashion-MNIST": "fashion_mnist_class0", "CIFAR-10": "cifar10_class0"}
BETAS = ("0.5", "1", "2", "3")


def followed(curves: pd.DataFrame, dataset: str, loss: str, beta: str) -> pd.Series:
    """By repetition, minus the correlation of loss and score over the epochs; 0 where the score does not move."""
    here = curves[(curves["dataset"] == dataset) & (curves["method"] == f"{loss}@{beta}")]
    found = {}
    for trial, rows in here.groupby("trial"):
        wide = rows.pivot(index="epoch", columns="metric", values="value")
        moves = wide[f"train_f{beta}"].nunique() > 1
        found[trial] = -wide["train_loss"].corr(wide[f"train_f{beta}"]) if moves else 0.0
    return pd.Series(found, dtype=float)


def _averaged(curves: pd.DataFrame, dataset: str, method: str, metric: str, epochs: slice) -> pd.Series:
    """By repetition, the mean over some epochs."""
    chosen = (curves["dataset"] == dataset) & (curves["method"] == method) & (curves["metric"] == metric)
    wide = curves[chosen].pivot(index="epoch", columns="trial", values="value")
    return wide.iloc[epochs].mean()


@dataclass(frozen=True)
class Figure:
    """A sentence on the curves of surrogate Fβ: from their rows the differences, each with what it is of."""

    says: str
    differences: Callable[[pd.DataFrame], Iterable[tuple[str, pd.Series]]]
    kind: Kind = "ahead"
    note: str = ""
    tuned: bool = False
    """Whether cross-entropy with a tuned threshold is the rival of a user."""

    def found(self, curves: pd.DataFrame) -> list[Found]:
        """The differences over repetitions."""
        return [one for of, difference in self.differences(curves) if (one := _found(of, difference))]


def _closer(curves: pd.DataFrame) -> Iterator[tuple[str, pd.Series]]:
    for name, dataset in IMAGES.items():
        for beta in BETAS:
            ours, other = (followed(curves, dataset, loss, beta) for loss in ("surrogate_fbeta", "soft_fbeta"))
            yield f"{name}, β = {beta}:", ours - other


def _line(curves: pd.DataFrame) -> Iterator[tuple[str, pd.Series]]:
    for name, dataset in IMAGES.items():
        for beta in BETAS:
            yield f"{name}, β = {beta}:", followed(curves, dataset, "surrogate_fbeta", beta) - LINE


def _best(curves: pd.DataFrame) -> Iterator[tuple[str, pd.Series]]:
    last, metric, dataset = slice(-LAST, None), "validation_f1", IMAGES["CIFAR-10"]
    rivals = {"soft Fβ": "soft_fbeta@1", "MAE": "mae", "cross-entropy": "bce", "plain cross-entropy": "bce+plain"}
    ours = _averaged(curves, dataset, "surrogate_fbeta@1", metric, last)
    for name, rival in rivals.items():
        yield name, ours - _averaged(curves, dataset, rival, metric, last)


def _untrained(curves: pd.DataFrame) -> Iterator[tuple[str, pd.Series]]:
    for name, method in (("balanced", "bce"), ("plain", "bce+plain")):
        yield name, _averaged(curves, IMAGES["Fashion-MNIST"], method, "train_f1", slice(-LAST, None))


def _slow(curves: pd.DataFrame) -> Iterator[tuple[str, pd.Series]]:
    for name, dataset in IMAGES.items():
        one, three = (
            _averaged(curves, dataset, f"surrogate_fbeta@{beta}", "train_f1", slice(FIRST)) for beta in ("1", "3")
        )
        yield name, one - three


FIGURES = (
    Figure(
        "The surrogate Fβ loss follows the Fβ score more closely than the soft Fβ loss (Figures 3, 4, 6, 7)", _closer,
        note="difference of the correlations over epochs; eq. 24 as printed; reduced size",
    ),
    Figure(
        "The surrogate Fβ loss is on a line with the Fβ score at every β (Figures 3, 6)", _line, "reliably ahead",
        note=f"correlation less {LINE}; reduced size",
    ),
    Figure(
        "The surrogate Fβ loss has the best F1 on the validation part (Figure 5, CIFAR-10)", _best, "reliably ahead",
        note=f"β = 1, mean of the last {LAST} epochs; reduced size", tuned=True,
    ),
    Figure(
        "Cross-entropy does not train on Fashion-MNIST", _untrained, "level",
        note=f"F1 on the training part, mean of the last {LAST} epochs; reduced size",
    ),
    Figure(
        "Large β converge more slowly (β = 1 against 3)", _slow,
        note=f"F1 on the training part, mean of the first {FIRST} epochs; reduced size",
    ),
)  # fmt: skip
"""The claims of surrogate Fβ, which printed curves and no numbers."""


def compared(rows: pd.DataFrame, ours: Side, other: Side, claim: Claim) -> list[Found]:
    """The paired differences on the claim's data sets, where both were run."""
    found = []
    for dataset in claim.datasets:
        difference = ours.values(rows, dataset) - other.values(rows, dataset)
        found.append(_found(dataset, -difference if claim.seconds else difference))
    return [one for one in found if one]


def _found(of: str, difference: pd.Series) -> Found | None:
    difference = difference.dropna()
    if not len(difference):
        return None
    error = float(difference.std() / math.sqrt(len(difference))) if len(difference) > 1 else math.nan
    return Found(of, float(difference.mean()), error, len(difference))


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
    said: Counter[str] = Counter()
    against: Counter[bool | None] = Counter()
    for claim, found, tuned in _all(rows, read("curves", results)):
        trials = sorted({each.trials for each in found})
        counts = f"{trials[0]} to {trials[-1]}" if len(trials) > 1 else "".join(map(str, trials))
        shown = "; ".join(map(str, found)) + (f" ({claim.note})" if claim.note else "")
        word = verdict(found, claim.kind)
        said[word] += 1
        against.update(each.holds("ahead") for each in tuned)
        paper = claim.paper if isinstance(claim, Claim) else "Surrogate Fβ"
        cells = [paper, claim.says, f"**{word}**", shown, counts, "; ".join(map(str, tuned))]
        table.append(f"| {' | '.join(cells)} |")
    sentence = (
        f"Of {said.total()} claims {said['confirmed']} are confirmed, {said['contradicted']} contradicted and "
        f"{said['undecided']} undecided. Against cross-entropy **with a tuned threshold** the losses are ahead by more "
        f"than two standard errors in {against[True]} of {against.total()} comparisons and behind in {against[False]}."
    )
    return "\n".join([sentence, "", *table])


def _all(rows: pd.DataFrame, curves: pd.DataFrame) -> Iterator[tuple[Claim | Figure, list[Found], list[Found]]]:
    """Each claim, what was found, and what against cross-entropy with a tuned threshold."""
    for claim in CLAIMS:
        yield claim, compared(rows, claim.ours, claim.other, claim), _tuned(rows, claim)
    curves = curves[curves["size"] == "reduced"]
    for figure in FIGURES:
        tuned = []
        for name, protocol in (("Fashion-MNIST", "surrogate-fashion"), ("CIFAR-10", "surrogate-cifar")):
            ours = Side(protocol, "surrogate_fbeta@1", "decision", "f1").values(rows, IMAGES[name])
            other = Side(protocol, "bce+plain", "tuned", "f1").values(rows, IMAGES[name])
            tuned.append(_found(name, ours - other))
        yield figure, figure.found(curves), [one for one in tuned if one] if figure.tuned else []


def _tuned(rows: pd.DataFrame, claim: Claim) -> list[Found]:
    if claim.tuned is None:
        return []
    return compared(rows, replace(claim.ours, rule="decision"), claim.tuned, claim)


def page_tables(results: Path) -> dict[str, str]:
    """The tables of the page that are written from rows, by the name in their marks."""
    curves = read("curves", results)
    curves = curves[curves["size"] == "reduced"]
    return {
        "verdicts": verdicts(results),
        "correlations": _correlations(curves),
        "convergence": _convergence(curves),
        "btg search": btg_search.table(pd.read_csv(btg_search.FILE)),
        "btg lookup": btg_lookup.table(pd.read_csv(btg_lookup.FILE)),
        "btg facts": btg_facts.table(pd.read_csv(btg_facts.FILE)),
        "anyloss protocol": anyloss_protocol.summary(anyloss_protocol.complete()),
        "anyloss speed": anyloss_protocol.speed(anyloss_protocol.complete()),
        "anyloss counts": anyloss_counts.table(pd.read_csv(anyloss_counts.FILE), read("scores", results)),
    }


def _correlations(curves: pd.DataFrame) -> str:
    """Loss and score over the epochs: the mean of the repetitions (lowest to highest)."""
    lines = [f"| correlation, by β | {' | '.join(BETAS)} |", "|" + "---|" * (len(BETAS) + 1)]
    for name, dataset in IMAGES.items():
        for loss, called in (("surrogate_fbeta", "surrogate Fβ"), ("soft_fbeta", "soft Fβ")):
            found = [-followed(curves, dataset, loss, beta) for beta in BETAS]
            cells = [f"{r.mean():.2f} ({r.min():.2f} to {r.max():.2f})" if len(r) else "not run" for r in found]
            cells = [cell.replace("-", "\N{MINUS SIGN}") for cell in cells]
            counts = sorted({len(r) for r in found if len(r)}) or [0]
            of = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else str(counts[0])
            lines.append(f"| {called}, {name} (repetitions: {of}) | {' | '.join(cells)} |")
    return "\n".join(lines)


def _convergence(curves: pd.DataFrame) -> str:
    """F1 in the mean of the last epochs, and over repetitions (lowest to highest)."""
    methods = {
        "surrogate Fβ, β = 0.5": "surrogate_fbeta@0.5", "surrogate Fβ, β = 1": "surrogate_fbeta@1",
        "surrogate Fβ, β = 2": "surrogate_fbeta@2", "surrogate Fβ, β = 3": "surrogate_fbeta@3",
        "soft Fβ, β = 1": "soft_fbeta@1", "MAE, balanced": "mae", "cross-entropy, balanced": "bce",
        "cross-entropy, plain": "bce+plain",
    }  # fmt: skip
    lines = [f"| F1 on the validation part, last {LAST} epochs | {' | '.join(IMAGES)} |", "|---|---|---|"]
    for name, method in methods.items():
        cells = []
        for dataset in IMAGES.values():
            f1 = _averaged(curves, dataset, method, "validation_f1", slice(-LAST, None))
            cells.append(f"{f1.mean():.2f} ({f1.min():.2f} to {f1.max():.2f}; {len(f1)})" if len(f1) else "not run")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def write_page(page: Path, results: Path) -> None:
    """Renew the tables between their marks on a page."""
    text = page.read_text()
    for name, table in page_tables(results).items():
        begin, end = f"<!-- table: {name} -->\n", f"<!-- end of table: {name} -->"
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}\n{table}\n\n{end}{rest.partition(end)[2]}"
    page.write_text(text)
