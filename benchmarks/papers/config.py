"""The declarative files: one per table or figure, and one for each protocol that several of them share."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["CONFIGS", "Config", "Experiment", "Method", "Protocol", "names", "protocol", "read"]

CONFIGS = Path(__file__).parent / "configs"
SIZES = ("full", "reduced", "toy")


@dataclass(frozen=True)
class Protocol:
    """How networks are trained and judged in one paper, for one kind of data.

    Attributes:
        name: The file's name.
        network: A name that ``networks.build`` knows.
        outputs: ``"single"`` (one sigmoid output) or ``"softmax"``.
        fractions: Shares of training, validation and test rows.
        scale: As for ``data.split``.
        split: ``"trial"`` draws a new split each trial, ``"fixed"`` always takes the first.
        optimiser: ``"adam"``, ``"adamw"`` or ``"sgd"``.
        learning_rate: Its learning rate, where no grid chooses it.
        batch_size: Rows a step, where neither a table nor a grid chooses it.
        dropout: Share of units left out, where no grid chooses it.
        momentum: Of SGD.
        weight_decay: Of the optimiser; ``None`` is its default.
        patience: Epochs without a lower validation loss that end the training (or a temperature).
        max_epochs: Training ends here at the latest.
        annealing: Whether the losses that have a temperature are annealed.
        temperature: T₀, or the fixed T without annealing.
        factor: r of T_k = T₀ r^k, where no grid chooses it.
        fruitless: Drops of the temperature without a lower validation loss that end the annealing.
        delta: Of the linear step with a fixed threshold.
        k: Of the sigmoid step.
        augment: Random crops and flips of the training images.
        history: Write down scores after every epoch.
        balanced: Losses of samples are weighted by inverse class frequency, except those of a method ``…+plain``.
        trials: Number of repetitions.
        rows: Take only so many rows of the data; ``None`` is all of them.
        side: Images are averaged down to so many pixels; ``None`` leaves them as they are.
        width: Factor of the number of channels or units.
        tuned: Metrics a decision rule is tuned for on the validation part.
        classes: Classes whose precision and recall are noted one by one.
        grids: By name, the values to search: ``batch_size``, ``learning_rate``, ``dropout``, ``factor``.
        wider_batches: By data set and method, batch sizes that the grid tries in addition.
        overrides: By method, what it changes of all this.
        shorter_patience: By data set, fewer epochs of patience.
        min_delta: By data set, by how much a validation loss has to fall to count as lower; 0 for the others.
        sizes: What ``reduced`` and ``toy`` change.
        size: Which of the sizes this is.
    """

    name: str
    network: str
    outputs: str
    fractions: tuple[float, ...]
    optimiser: str
    learning_rate: float
    batch_size: int
    patience: int
    max_epochs: int
    scale: bool | str = True
    split: str = "trial"
    dropout: float = 0.0
    momentum: float = 0.0
    weight_decay: float | None = None
    annealing: bool = False
    temperature: float = 0.2
    factor: float = 0.9
    fruitless: int = 3
    delta: float = 0.1
    k: float = 10.0
    augment: bool = False
    history: bool = False
    balanced: bool = False
    trials: int = 10
    rows: int | None = None
    side: int | None = None
    width: float = 1.0
    tuned: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    grids: Mapping[str, Mapping[str, tuple[Any, ...]]] = field(default_factory=dict)
    wider_batches: Mapping[str, Mapping[str, tuple[int, ...]]] = field(default_factory=dict)
    overrides: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    shorter_patience: Mapping[str, int] = field(default_factory=dict)
    min_delta: Mapping[str, float] = field(default_factory=dict)
    sizes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    size: str = "full"

    def at(self, size: str) -> Protocol:
        """The protocol at ``"full"``, ``"reduced"`` or ``"toy"`` size."""
        if size == "full":
            return self
        if size not in self.sizes:
            there = ", ".join(["full", *self.sizes])
            raise ValueError(f"size: protocol {self.name} has no section [{size}]; there are: {there}.")
        return replace(self, size=size, **self.sizes[size])

    def of_method(self, method: str) -> Protocol:
        """With what a method insists on; at toy size that does not count."""
        return self if self.size == "toy" else replace(self, **self.overrides.get(method, {}))

    def of_dataset(self, dataset: str) -> Protocol:
        """With the patience that a data set gets."""
        return replace(self, patience=self.shorter_patience.get(dataset, self.patience))


@dataclass(frozen=True)
class Method:
    """A loss or a rival as a table lists it: ``f1``, ``bce+weighted``, ``surrogate_fbeta@2``."""

    name: str
    approximation: str = ""

    def __str__(self) -> str:
        return f"{self.name}/{self.approximation}" if self.approximation else self.name


@dataclass(frozen=True)
class Experiment:
    """One training, whichever tables show it; with the number of the trial it is one fit."""

    dataset: str
    method: str
    approximation: str
    protocol: str
    batch: str
    encoding: str
    size: str

    @property
    def title(self) -> str:
        parts = [self.dataset, str(Method(self.method, self.approximation))]
        parts += [self.protocol] if self.size == "full" else [f"{self.protocol} ({self.size})"]
        parts += [f"batch {self.batch}"] if self.batch not in ("", "grid") else []
        return " ".join([*parts, self.encoding]).strip()


@dataclass(frozen=True)
class Config:
    """One table or figure of a paper.

    Attributes:
        name: ``btg-table1`` and so on.
        title: What it shows.
        paper: Name of the paper in ``published.csv``.
        table: Its number there; empty where the paper printed no numbers.
        kind: ``"table"``, ``"curves"``, ``"scatter"`` or ``"analytic"``.
        protocols: The protocols; more than one where a table compares networks.
        dataset_protocols: By data set, another protocol than these.
        datasets: Data sets in the order of the paper.
        methods: Losses and rivals in the order of the paper.
        metrics: What is evaluated.
        rule: How the paper turned scores into decisions: ``"mean_tau"`` or ``"decision"``.
        batches: Batch sizes compared; empty for the protocol's.
        encodings: By data set, the encodings of its categories.
        trials: Fewer trials than the protocol's at full size, by data set, encoding and method: ``"creditcard"``,
            ``"adult onehot"``, ``"creditcard adversarial_f1"``; the fewest that fit count.
        not_run: By data set, why it is not run.
        notes: What a reader should know, shown under the table.
    """

    name: str
    title: str
    paper: str
    protocols: tuple[str, ...]
    datasets: tuple[str, ...]
    methods: tuple[Method, ...]
    metrics: tuple[str, ...]
    table: str = ""
    kind: str = "table"
    rule: str = "decision"
    batches: tuple[int, ...] = ()
    dataset_protocols: Mapping[str, str] = field(default_factory=dict)
    encodings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    trials: Mapping[str, int] = field(default_factory=dict)
    not_run: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def experiments(self, size: str = "full") -> Iterator[Experiment]:
        """Every training that the table needs at a size that its protocol has, data set by data set."""
        for dataset in self.datasets:
            if dataset in self.not_run:
                continue
            for encoding in self.encodings.get(dataset, ("",)):
                for name in self.protocols_of(dataset):
                    if size not in ("full", *protocol(name).sizes):
                        continue
                    fallback = "grid" if protocol(name).grids else str(protocol(name).batch_size)
                    for batch in [str(b) for b in self.batches] or [fallback]:
                        for method in self.methods:
                            yield Experiment(dataset, method.name, method.approximation, name, batch, encoding, size)

    def trials_of(self, experiment: Experiment) -> int:
        """How often an experiment of this table is repeated."""
        trials = protocol(experiment.protocol).at(experiment.size).trials
        if experiment.size != "full":
            return trials
        about = {experiment.dataset, experiment.encoding, experiment.method}
        return min([trials, *(fewer for key, fewer in self.trials.items() if about.issuperset(key.split()))])

    def protocols_of(self, dataset: str) -> tuple[str, ...]:
        """The protocols of a data set."""
        return (self.dataset_protocols[dataset],) if dataset in self.dataset_protocols else self.protocols

    def all_protocols(self) -> set[str]:
        """The protocols of all data sets."""
        return {*self.protocols, *self.dataset_protocols.values()}


def names() -> list[str]:
    """All tables and figures, by paper and number."""

    def order(name: str) -> tuple[str, int]:
        digits = "".join(c for c in name.rsplit("-", 1)[-1] if c.isdigit())
        return name.rstrip("0123456789"), int(digits or 0)

    return sorted((path.stem for path in CONFIGS.glob("*.toml")), key=order)


@cache
def read(name: str) -> Config:
    """The config of one table or figure."""
    if name not in names():
        close = difflib.get_close_matches(name, names(), n=1)
        hint = f"did you mean {close[0]}?" if close else f"there are: {', '.join(names())}."
        raise ValueError(f"name: there is no table or figure {name!r}; {hint}")
    path = CONFIGS / f"{name}.toml"
    found = _parsed(path)
    for key in ("protocol", "method"):
        if key in found:
            found[f"{key}s"] = [found.pop(key)]
    found["methods"] = [_method(path, entry) for entry in found.get("methods", [])]
    config: Config = _filled(Config, {"name": name} | found, path)
    for one in config.all_protocols():
        protocol(one)
    return config


@cache
def protocol(name: str) -> Protocol:
    """A protocol at full size; ``.at(size)`` gives the others."""
    path = CONFIGS / "protocols" / f"{name}.toml"
    if not path.exists():
        there = ", ".join(sorted(p.stem for p in path.parent.glob("*.toml")))
        raise ValueError(f"protocol: there is no {name!r}; there are: {there}.")
    found = _parsed(path)
    sizes = {size: found.pop(size) for size in SIZES[1:] if size in found}
    known = {f.name for f in fields(Protocol)}
    for size, changes in sizes.items():
        for key in changes:
            if key not in known:
                raise ValueError(f"{path.name}, [{size}]: unknown key {key!r}{_hint(key, known)}")
    frozen = {size: {key: _frozen(value) for key, value in changes.items()} for size, changes in sizes.items()}
    made: Protocol = _filled(Protocol, {"name": name} | found, path)
    return replace(made, sizes=frozen)


def _method(path: Path, entry: object) -> Method:
    """``"f1/linear"`` or ``"bce"``."""
    if not isinstance(entry, str) or not entry:
        raise ValueError(f"{path.name}, methods: expected names such as 'f1/linear' or 'bce', got {entry!r}.")
    name, _, approximation = entry.partition("/")
    return Method(name, approximation)


def _parsed(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path.name}: not valid TOML: {error}") from error


def _filled(kind: type[Any], found: Mapping[str, Any], path: Path) -> Any:
    known = {f.name: f for f in fields(kind)}
    for key in found:
        if key not in known:
            raise ValueError(f"{path.name}: unknown key {key!r}{_hint(key, known)}")
    try:
        return kind(**{key: _frozen(value) for key, value in found.items()})
    except TypeError as error:
        missing = str(error).split(":")[-1].strip()
        raise ValueError(f"{path.name}: these keys are missing: {missing}.") from error


def _hint(key: str, known: Any) -> str:
    close = difflib.get_close_matches(key, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else f"; known: {', '.join(known)}."


def _frozen(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_frozen(v) for v in value)
    if isinstance(value, dict):
        return {key: _frozen(v) for key, v in value.items()}
    return value
