"""Models that were never trained, with scores made up for the page, and what Python says about the same scores."""

import math
import time
from types import SimpleNamespace

import numpy as np
import pandas as pd
import torch

from metricfit import metrics
from metricfit.assess import HeldOutScores
from metricfit.confusion import ConfusionMatrix
from metricfit.decisions import DecisionRule
from metricfit.ensemble import LEADERBOARD_COLUMNS
from metricfit.report import render
from metricfit.training.recipes import Recipe


def leaderboard():
    rows = [("forest", 0.8, 0.7, 0.9, 0.6, 1.5, 0.02), ("portfolio", 0.7, 0.6, 0.8, 1.0, 2.0, 0.03),
            ("network", math.nan, math.nan, math.nan, 0.4, 0.5, 0.01)]  # fmt: skip
    return pd.DataFrame(rows, columns=list(LEADERBOARD_COLUMNS))


def history(epochs=12, *, cooling=True):
    temperature = [0.2 * 0.9 ** (e // 4) if cooling else 0.2 for e in range(epochs)]
    soft = [0.3 + 0.4 * e / epochs for e in range(epochs)]
    return pd.DataFrame(
        {
            "epoch": range(1, epochs + 1),
            "loss": [1 - 0.5 * e / epochs for e in range(epochs)],
            # Between checkpoints nothing is validated.
            "soft_metric": [s if e % 2 else np.nan for e, s in enumerate(soft)],
            "hard_metric": [s + 0.02 * (-1) ** (e // 2) if e % 2 else np.nan for e, s in enumerate(soft)],
            "log_loss": [0.5] * epochs,
            "temperature": temperature,
            "learning_rate": [0.005] * epochs,
            "active": [5] * epochs,
            "seconds": [0.1] * epochs,
        }
    )


def model(labels, metric, rule=None, scores=None, *, task=None, columns=("age", "plan")):
    """As much of a classifier and its description as a page needs."""
    task = task or ("binary" if len(labels) == 2 else "multiclass")
    labels = tuple(labels)
    if rule is None:
        rule = DecisionRule.at_thresholds([0.5] * len(labels), labels) if task == "multilabel" else DecisionRule.argmax(
            labels)  # fmt: skip
    recipe = Recipe("east").complete()
    classifier = SimpleNamespace(
        classes_=np.array(labels, dtype=object if len({type(v) for v in labels}) > 1 else None),
        metric_=metrics.resolve(metric, labels, task)[0],
        task_=task,
        decision_rule_=rule,
        recipe_=recipe,
        history_=history(),
        leaderboard_=leaderboard(),
        best_epochs_=[7, 9],
        preprocessor_=None,
        held_out_=scores,
        explain=lambda: "Metric: …",
    )
    import json

    description = {
        "metric": str(classifier.metric_),
        "task": task,
        "decision_rule": json.loads(rule.to_json()),
        "columns": {
            "count": len(columns),
            "kinds": [{"name": c, "kind": "number", "reason": "numbers", "dropped": ""} for c in columns],
        },
        "fitted": {"seed": 0, "fit_seconds": 1.5, "choices": [["rows", "a choice"]]},
        "notes": {"target": "churn"},
        "validation_report": [
            {
                "model": "trained on the metric",
                "value": 0.5,
                "low": 0.3,
                "high": 0.7,
                "gain": 0.0,
                "rows": 9,
                "note": "",
            }
        ],
        "models": [{"name": "network", "weight": 1.0}],
        "libraries": {"metricfit": "0.1.0", "torch": "2"},
    }
    return classifier, description


def binary_scores(rows=400, *, seed=0, weighted=False, baseline=True, strength=2.0, share=0.3):
    random = np.random.default_rng(seed)
    truth = (random.random(rows) < share).astype(np.int64)
    p = 1 / (1 + np.exp(-(strength * (truth - 0.6) + random.normal(size=rows))))
    p = np.stack([1 - p, p], axis=1).astype(np.float32)
    other = np.clip(p[:, 1] + random.normal(0, 0.1, rows), 0.001, 0.999)
    other = np.stack([1 - other, other], axis=1).astype(np.float32)
    return HeldOutScores(
        truth,
        p,
        p.argmax(axis=1),
        other if baseline else None,
        (other[:, 1] >= 0.4).astype(np.int64) if baseline else None,
        random.integers(1, 5, rows) / 4 if weighted else None,
        source="made-up rows",
    )


def class_scores(classes=3, rows=600, *, seed=0, weighted=False, baseline=True):
    random = np.random.default_rng(seed)
    truth = random.choice(classes, rows, p=np.arange(1, classes + 1) / np.arange(1, classes + 1).sum())
    logits = random.normal(size=(rows, classes)) + 1.5 * np.eye(classes)[truth]
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    p = p.astype(np.float32)
    return HeldOutScores(
        truth.astype(np.int64),
        p,
        p.argmax(axis=1),
        p if baseline else None,
        p.argmax(axis=1) if baseline else None,
        random.integers(1, 5, rows) / 4 if weighted else None,
        source="made-up rows",
    )


def label_scores(labels=3, rows=300, *, seed=0):
    random = np.random.default_rng(seed)
    truth = (random.random((rows, labels)) < np.linspace(0.2, 0.6, labels)).astype(np.int64)
    p = (1 / (1 + np.exp(-(2 * truth - 1 + random.normal(size=truth.shape))))).astype(np.float32)
    return HeldOutScores(truth, p, (p >= 0.5).astype(np.int64), source="made-up rows")


def page_of(labels, metric, scores, rule=None, *, task=None, **options):
    classifier, description = model(labels, metric, rule, scores, task=task)
    return render(classifier, description, **options)


def confusion(scores, rule, labels, task):
    """The matrix of a rule by plain counting."""
    decided = rule.decide(scores.proba.astype(np.float64))
    weight = np.ones(len(scores)) if scores.weight is None else scores.weight
    if task == "multilabel":
        counts = np.zeros((len(labels), 2, 2))
        for t, d, w in zip(scores.truth, decided, weight, strict=True):
            for k in range(len(labels)):
                counts[k, t[k], d[k]] += w
    else:
        counts = np.zeros((len(labels), len(labels)))
        for t, d, w in zip(scores.truth, decided, weight, strict=True):
            counts[t, d] += w
    return counts


def value_of(spec, counts, labels, task):
    """A metric's value by Python, from its spec as the page shows it."""
    metric = metrics.get(spec)
    return float(metric.compute(ConfusionMatrix(torch.from_numpy(counts), task, tuple(labels))))


def wait_until(page, condition, arg=None, *, seconds=10.0):
    """Ask the page again and again until the condition holds.

    Playwright's own ``wait_for_function`` evaluates the string inside the page whenever it is not true at once, which
    the report's content security policy forbids; a single ``evaluate`` goes through the debugger and is allowed.
    """
    end = time.monotonic() + seconds
    while not page.evaluate(condition, arg):
        if time.monotonic() > end:
            raise AssertionError(f"still false after {seconds:g} s: {condition}")
        page.wait_for_timeout(20)
