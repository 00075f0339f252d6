"""A fitted classifier in words."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from metricfit.assess import assess_held_out
from metricfit.metrics import F1, Constrained, FBeta
from metricfit.training.recipes import Recipe


def explain(classifier: Any) -> str:
    """What was trained, on what, what was decided without asking, and what it bought."""
    lines = [
        f"Metric: {classifier.metric_}.",
        *(f"  {choice.text[0].upper()}{choice.text[1:]}." for choice in classifier.choices_),
        f"Models: {_models_in_words(classifier)}",
        *(_networks_in_words(classifier.recipe_, classifier) if "network" in classifier.models_ else []),
        f"Decision: {classifier.decision_rule_.in_words('tuned out of fold')}",
        *_report_in_words(classifier),
    ]
    return "\n".join(line.rstrip() for line in lines)


def _models_in_words(classifier: Any) -> str:
    """Who decides, with which weight."""
    weights = sorted(classifier.weights_.items(), key=lambda pair: -pair[1])
    left_out = [n for n in classifier.leaderboard_["model"] if n not in classifier.weights_ and n != "portfolio"]
    if len(weights) == 1 and not left_out:
        return f"{weights[0][0]} alone."
    shares = ", ".join(f"{name} {weight:.0%}" for name, weight in weights)
    without = f"; without a say: {', '.join(left_out)}" if left_out else ""
    return f"the mean of {shares}, weighted by greedy selection on held-out log-loss{without}."


def _networks_in_words(recipe: Recipe, classifier: Any) -> list[str]:
    members = classifier.network_.members
    hidden = f"an MLP with hidden layers {'-'.join(map(str, recipe.hidden_sizes))} and dropout {recipe.dropout:g}"
    shape = {"mlp": hidden, "linear": "a linear model"}.get(str(recipe.network), "your own")
    inputs = f"{classifier.n_network_inputs_} inputs made from {classifier.n_features_in_} columns"
    chosen = {
        "soft": f"the soft metric at T = {recipe.selection_temperature:g}",
        "hard": "the exact metric",
        "log_loss": "log-loss",
        "objective": "the loss",
        "last": "nothing, the last weights were kept",
    }[recipe.selection]
    picked = f"weights picked by {chosen} on validation rows, from epoch {', '.join(map(str, classifier.best_epochs_))}"
    if classifier.held_out_ is None:
        picked = "too few rows to hold any out, so the last weights were kept"
    return [
        f"Networks: recipe {recipe.name}. {_loss_in_words(recipe, classifier)}",
        f"  The network is {shape}; {inputs}; {members} member{'s' if members > 1 else ''}.",
        f"  {len(classifier.history_)} epochs; {picked}.",
    ]


def _loss_in_words(recipe: Recipe, classifier: Any) -> str:
    weighting = {"none": "unweighted", "sqrt": "√-weighted", "full": "class-balanced"}[recipe.balance]
    if classifier.class_weight is not None:
        weighting = "class-weighted (class_weight)"
    if recipe.objective == "log_loss":
        return f"The loss is {weighting} cross-entropy; the metric only judges."
    if recipe.objective == "surrogate_fbeta":
        beta = classifier.metric_.beta if isinstance(classifier.metric_, FBeta) else 1
        told = "" if isinstance(classifier.metric_, FBeta | F1) else "; the metric only judges"
        return f"The loss is the surrogate F-beta loss with beta = {beta:g}{told}."
    text = "The loss is the metric's distance from perfect on the soft confusion matrix"
    if recipe.cross_entropy:
        text += f", plus {recipe.cross_entropy:g} times {weighting} cross-entropy"
    if isinstance(classifier.metric_, Constrained):
        text += ", plus a multiplier of each constraint, which grows while that is missed, times what is missing"
    elif recipe.memory:
        text += f", with a memory of {recipe.memory:g} across batches"
    if recipe.annealing != "none":
        text += f"; the temperature starts at {recipe.temperature:g} and is cooled by {recipe.cooling:g}"
    return text + "."


def _report_in_words(classifier: Any) -> list[str]:
    report: pd.DataFrame = classifier.validation_report_
    if not len(report):
        return ["Nothing was held out, so there is no measured value."]
    lines = [f"On {int(report['rows'].max())} held-out rows, with 95 % intervals:"]
    row: Any
    for row in report.itertuples():
        measured = f"{row.value:.4f} ({row.low:.4f} to {row.high:.4f}){', ' if row.note else ''}{row.note}"
        lines.append(f"  {row.model}: {f'not measured; {row.note}.' if math.isnan(row.value) else measured}")
    if classifier.held_out_ is not None and classifier.held_out_.holds(classifier.metric_):
        _, verdicts = assess_held_out(classifier.metric_, classifier.held_out_, classifier.classes_.tolist())
        lines += [str(verdict) for verdict in verdicts[-1:]]
    return lines
