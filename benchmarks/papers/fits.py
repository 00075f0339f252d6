"""One experiment: load, split, train, evaluate."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.papers import data, losses, networks
from benchmarks.papers.config import Experiment, Protocol, protocol
from benchmarks.papers.evaluation import THRESHOLDS, Score, Scores, evaluate
from benchmarks.papers.training import Fit, Settings, outputs, train
from metricfit import metrics

__all__ = ["Choice", "Made", "fit", "protocol_of", "search_fit"]

NO_SIGMOID = ("adversarial_f1", "bce", "dice", "wmw_auroc")
"""Networks to which btg's code gives no sigmoid, so that its thresholds meet raw outputs."""

RIVALS = ("svmperf_error", "svmperf_f1", "svmperf_roc", "rf", "ccs")
"""What is not a network."""

PREFERENCES = {"fbeta_precision": 0.25, "fbeta_recall": 5.0}
"""East's names of the β of one class; it is 1 for the others."""


@dataclass(frozen=True)
class Choice:
    """What a grid search chooses; ``grid`` is its name, or empty where there is none."""

    learning_rate: float
    batch_size: int
    dropout: float
    factor: float
    grid: str = ""


@dataclass(frozen=True)
class Made:
    """What comes of one trial: numbers, and for figures those of every epoch."""

    scores: list[Score]
    curve: list[dict[str, float]]
    train_rows: int


def protocol_of(experiment: Experiment) -> Protocol:
    """The experiment's protocol at its size, with what its data set and its method insist on."""
    how = protocol(experiment.protocol).at(experiment.size).of_dataset(experiment.dataset)
    how = how.of_method(base(experiment.method))
    if experiment.size == "toy" and base(experiment.method) in (*RIVALS, *how.overrides):
        how = replace(how, trials=1)  # these are slow
    return how


def base(method: str) -> str:
    """A method without what was done to the data, the β or the class: ``f1+weighted`` is ``f1``."""
    return method.split("+")[0].split("@")[0]


def fit(experiment: Experiment, trial: int, choice: Choice) -> Made:
    """Train and evaluate a trial of an experiment."""
    start = time.perf_counter()
    if base(experiment.method) in RIVALS:
        made = _rival(experiment, trial)
    else:
        one, built, trained = _network(experiment, trial, choice)
        start = time.perf_counter() - trained  # which may have been for the grid search
        made = _judged(experiment, trial, one, built)
    made.scores.append(Score("fit", "seconds", "", round(time.perf_counter() - start, 2)))
    return made


def search_fit(experiment: Experiment, choice: Choice) -> Fit:
    """One fit of a grid search, on the split of trial 0."""
    return _network(experiment, 0, choice)[0]


@lru_cache(maxsize=2)
def _problem(dataset: str, encoding: str, rows: int | None, side: int | None) -> data.Problem:
    return data.load(dataset, encoding=encoding or "integer", rows=rows, side=side)


def _split(problem: data.Problem, rows: int | None, fractions: tuple[float, ...], scale: Any, seed: int) -> data.Parts:
    # Of very few rows every part must still have every class.
    small = rows is not None and rows <= 1000
    return data.split(problem, fractions, seed=seed, scale=scale, stratified=small)


# All methods of a trial come before those of the next; one split of CIFAR-10 takes 700 MB.
_parts_of_table, _parts_of_images = lru_cache(maxsize=2)(_split), lru_cache(maxsize=1)(_split)


def parts_of(experiment: Experiment, trial: int) -> data.Parts:
    """The parts of a trial, oversampled if that belongs to the method."""
    how = protocol_of(experiment)
    seed = trial if how.split == "trial" else 0
    problem = problem_of(experiment)
    kept = _parts_of_images if problem.X.ndim == 4 else _parts_of_table
    parts = kept(problem, how.rows, how.fractions, how.scale, seed)
    if "+oversampled" in experiment.method:
        parts = replace(parts, train=data.oversampled(parts.train, seed))
    return parts


def problem_of(experiment: Experiment) -> data.Problem:
    how = protocol_of(experiment)
    return _problem(experiment.dataset, experiment.encoding, how.rows, how.side)


def loss_of(experiment: Experiment) -> losses.Built:
    """The loss of a method with its options."""
    how, problem = protocol_of(experiment), problem_of(experiment)
    name, _, beta = experiment.method.split("+")[0].partition("@")
    options: dict[str, Any] = {}
    if name.startswith("fbeta_"):
        of_class = "frog" if "+frog" in experiment.method else "dog"
        weight = PREFERENCES.get(name) or float(name.removeprefix("fbeta_"))
        options["beta_of_class"] = {[c.lower() for c in problem.classes].index(of_class): weight}
    if beta == "sweep":
        options["thresholds"] = THRESHOLDS
    elif beta:
        options["beta"] = float(beta)
    prior = problem.prior
    return losses.build(
        name,
        approximation="annealed" if how.annealing else experiment.approximation or "linear",
        n_classes=len(problem.classes),
        prior=float(prior[1]) if len(prior) == 2 else prior,
        single_output=how.outputs == "single",
        temperature=how.temperature,
        delta=how.delta,
        k=how.k,
        weighted="+weighted" in experiment.method,
        balanced=how.balanced and "+plain" not in experiment.method,
        **options,
    )


# The grid is searched on the split and with the seed of trial 0: what it chose among its last points is there already.
@lru_cache(maxsize=3)
def _network(experiment: Experiment, trial: int, choice: Choice) -> tuple[Fit, losses.Built, float]:
    """The trained network, its loss, and the seconds that it took."""
    start = time.perf_counter()
    how, built, parts = protocol_of(experiment), loss_of(experiment), parts_of(experiment, trial)
    shape = tuple(parts.train[0].shape[1:])
    make = partial(networks.build, how.network, shape, built.n_outputs, dropout=choice.dropout, width=how.width)
    settings = Settings(
        how.optimiser,
        choice.learning_rate,
        built.batch_size or choice.batch_size,
        how.patience,
        how.max_epochs,
        how.momentum,
        how.weight_decay,
        choice.factor if how.annealing and built.annealed else None,
        how.fruitless,
        how.augment,
        how.min_delta.get(experiment.dataset, 0.0),
    )
    device = "cuda" if torch.cuda.is_available() else "cpu"
    watch = partial(_watched, built=built, parts=parts, device=device) if how.history else None
    fit = train(make, built.loss, parts.train, parts.validation, settings, seed=trial, device=device, watch=watch)
    return fit, built, time.perf_counter() - start


def _watched(network: nn.Module, *, built: losses.Built, parts: data.Parts, device: str) -> dict[str, float]:
    """What surrogate-fbeta draws after each epoch."""
    found: dict[str, float] = {}
    for name, (X, y) in (("train", parts.train), ("validation", parts.validation), ("test", parts.test)):
        logits = outputs(network, X, device)
        p = Scores(logits.numpy(), y.numpy()).probabilities[:, 1] >= 0.5
        tp, fp, fn = (p & (y.numpy() == 1)).sum(), (p & (y.numpy() == 0)).sum(), (~p & (y.numpy() == 1)).sum()
        for beta in (0.5, 1.0, 2.0, 3.0):
            bottom = (1 + beta**2) * tp + beta**2 * fn + fp
            found[f"{name}_f{beta:g}"] = float((1 + beta**2) * tp / bottom) if bottom else 0.0
        found[f"{name}_accuracy"] = float((p == (y.numpy() == 1)).mean())
        if name == "train":
            with torch.no_grad():
                found["train_loss"] = float(built.loss(logits.to(device), y.to(device)))
    return found


def _judged(experiment: Experiment, trial: int, one: Fit, built: losses.Built) -> Made:
    how, parts, problem = protocol_of(experiment), parts_of(experiment, trial), problem_of(experiment)
    device = str(next(one.network.parameters()).device)
    middle = 0.5 if built.raw and built.n_outputs == 1 else 0.0
    test, validation = (
        Scores(outputs(one.network, X, device).numpy(), y.numpy(), middle) for X, y in (parts.test, parts.validation)
    )
    classes = {c.lower(): k for k, c in enumerate(problem.classes)}
    preferred = {
        f"{name}_{of_class}": _preference(classes[of_class.lower()], beta, len(classes))
        for name, beta in PREFERENCES.items()
        for of_class in how.classes
    }
    scores = evaluate(
        test,
        validation,
        problem.classes,
        tuned=how.tuned,
        single=how.classes,
        objectives=preferred,
        thresholds=how.outputs == "single",
        raw_thresholds=base(experiment.method) in NO_SIGMOID and not middle,
    )
    scores.append(Score("fit", "validation_loss", "", one.validation_loss))
    scores.append(Score("fit", "epochs", "", one.epochs))
    scores.append(Score("fit", "best_epoch", "", one.best_epoch))
    if not math.isnan(one.temperature):
        scores.append(Score("fit", "temperature", "", round(one.temperature, 6)))
    return Made(scores, one.history, len(parts.train[1]))


def _preference(of_class: int, beta: float, n_classes: int) -> metrics.Metric:
    """Macro Fβ in which one class has a β of its own."""
    return metrics.FBeta(beta=[beta if k == of_class else 1.0 for k in range(n_classes)], average="macro")


def _rival(experiment: Experiment, trial: int) -> Made:
    from benchmarks.papers import rivals

    how, parts, problem = protocol_of(experiment), parts_of(experiment, trial), problem_of(experiment)
    cuts = {"max_cuts": 10} if experiment.size == "toy" else {}
    predict = rivals.fit(base(experiment.method), parts, seed=trial, **cuts)
    test, validation = (Scores(_margin(np.asarray(predict(X))), y.numpy()) for X, y in (parts.test, parts.validation))
    scores = evaluate(test, validation, problem.classes, tuned=how.tuned, single=how.classes)
    return Made(scores, [], len(parts.train[1]))


def _margin(scores: np.ndarray) -> np.ndarray:
    """Of two columns the difference, positive where the second class wins; of probabilities their logarithms."""
    if (scores >= 0).all() and np.allclose(scores.sum(axis=1), 1, atol=1e-4):
        scores = np.log(np.clip(scores, 1e-12, None))
    return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores
