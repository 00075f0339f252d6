"""The page's own formulas against Python's, on matrices with every kind of hole."""

import numpy as np
import pytest
import torch

from metricfit import metrics
from metricfit.confusion import ConfusionMatrix
from metricfit.report.explorer import formulas, in_words, tree
from tests.report.helper import binary_scores, page_of

AVERAGES = ("macro", "micro", "weighted")
RANKING = ("auroc", "auprc", "precision_at", "recall_at", "threshold_mean")


def specs(labels):
    for name in metrics.available():
        if name in RANKING or name == "cost":
            continue
        yield name
        yield f"{name}[{labels[1]}]"
        yield from (f"{name}:average={average}" for average in AVERAGES)
        yield f"{name}:average=macro,zero_division=1"
        yield f"{name}:average=macro,zero_division=nan"
    yield "fbeta:beta=2,average=macro"
    yield "0.7*recall[b] + 0.3*precision[b]"
    yield "2*precision[a]*recall[a]/(precision[a] + recall[a])"
    yield "1 - fpr[b]"


def whole_only(labels):
    yield "kappa:weights=linear"
    yield "kappa:weights=quadratic"
    costs = [[float(abs(i - j)) for j in range(len(labels))] for i in range(len(labels))]
    yield f"cost:matrix={costs}".replace(" ", "")
    yield f"fbeta:beta={list(range(1, len(labels) + 1))},average=macro".replace(" ", "")


def counts_of(task, size, random):
    shape = (size, 2, 2) if task == "multilabel" else (size, size)
    for empty in (0.0, 0.5, 0.9):
        yield random.integers(0, 50, shape) * (random.random(shape) >= empty) * 1.0
    some = random.random(shape) * 10
    (some[:, 1] if task == "multilabel" else some)[0] = 0  # a class that does not occur
    yield some
    yield np.zeros(shape)


@pytest.mark.parametrize(("task", "size"), [("binary", 2), ("multiclass", 3), ("multiclass", 5), ("multilabel", 3)])
def test_every_formula_equals_pythons(show, task, size):
    page = show(page_of(("no", "yes"), "f1", binary_scores(60)))
    labels = tuple("abcde"[:size])
    wanted = list(specs(labels)) + ([] if task == "multilabel" else list(whole_only(labels)))
    nodes, expected, matrices = [], [], list(counts_of(task, size, np.random.default_rng(0)))
    for spec in wanted:
        metric = metrics.get(spec)
        nodes.append(tree(metric, labels, lambda m: 0.0))
        for counts in matrices:
            cm = ConfusionMatrix(torch.from_numpy(counts), task, labels)
            expected.append(float(metric.compute(cm)))
    found = page.evaluate(
        "([nodes, cms]) => nodes.flatMap(n => cms.map(cm => { const v = metricfitReport.valueOf(n, cm); "
        "return Number.isNaN(v) ? 'nan' : v; }))",
        [nodes, [{"task": task, "size": size, "cells": c.ravel().tolist()} for c in matrices]],
    )
    names = [(spec, i) for spec in wanted for i in range(len(matrices))]
    assert len(names) == len(found) > 400
    for name, value, right in zip(names, found, expected, strict=True):
        assert (float("nan") if value == "nan" else value) == pytest.approx(right, rel=1e-9, abs=1e-12, nan_ok=True), (
            name
        )


def test_every_metric_of_the_registry_is_listed():
    from metricfit.report.explorer import every_metric

    for labels, task in ((("a", "b"), "binary"), (("a", "b", "c"), "multiclass"), (("a", "b"), "multilabel")):
        listed = every_metric(labels, task, lambda m: 0.5)
        names = {m["spec"].partition(":")[0].partition("[")[0] for m in listed}
        assert names >= set(metrics.available()) - {"threshold_mean"}
        assert all(m["name"] and m["about"] for m in listed)


def test_the_formula_of_the_page_is_the_metrics_own():
    line = next(line for line in formulas().splitlines() if '"recall"' in line)
    assert line == '  "recall": { whole: false, value: (c, p) => divide(c.tp, c.tp + c.fn) },'
    node = tree(metrics.get("0.5*recall[b]"), ("a", "b"), lambda m: 0.0)
    assert (node["operator"], node["right"]["index"]) == ("*", 1)


def test_names_in_words():
    labels = ("no", "yes")
    assert in_words(metrics.get("fbeta:beta=2[yes]")) == "F2 of yes"
    assert in_words(metrics.get("f1:average=macro")) == "macro F1"
    assert in_words(metrics.resolve("f1", labels, "binary")[0]) == "F1 of yes"
    assert in_words(metrics.get("mcc")) == "MCC"
    assert in_words(metrics.get("quadratic_kappa")) == "quadratic kappa"
    assert in_words(metrics.get("precision[1] subject to recall[1] >= 0.9")) == "precision of 1"
    assert in_words(metrics.get("0.5*recall[1]")) == "0.5*recall[1]"
