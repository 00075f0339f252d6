"""A metric that is added here alone, in five lines, and everything that comes with it."""

import copy
import json
import pickle
import runpy
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import metricfit.report
from metricfit import MetricLoss, metrics
from metricfit.confusion import ConfusionMatrix
from metricfit.fast.closed_form import coefficients
from metricfit.report.explorer import formulas, in_words, tree
from tests.metrics import test_registry as common

MATRIX = torch.tensor([[5.0, 1.0, 2.0], [0.0, 4.0, 1.0], [3.0, 0.0, 7.0]], dtype=torch.float64)


@metrics.metric(reference="Tversky 1977", aliases={"tversky_index": {}, "strict_tversky": {"misses": 3.0}})
def tversky(c, misses=0.5):
    """Hits over hits, weighted misses and the other false alarms."""
    return c.tp / (c.tp + misses * c.fn + (1 - misses / 4) * c.fp)


@metrics.metric(range=(-1, 1), reference="test")
def double_skill(c):
    """Twice the correct decisions beyond one half, of the whole matrix."""
    return 2 * c.sum(c.tp) / c.n - 1


metrics.unregister("tversky")
metrics.unregister("double_skill")


@pytest.fixture(autouse=True)
def registered():
    """Known during these tests only."""
    metrics.register({"tversky_index": {}, "strict_tversky": {"misses": 3.0}})(tversky)
    metrics.register()(double_skill)
    yield
    metrics.unregister("tversky")
    metrics.unregister("double_skill")


def by_hand(matrix, k, misses=0.5):
    tp = matrix[k, k]
    below = tp + misses * (matrix[k].sum() - tp) + (1 - misses / 4) * (matrix[:, k].sum() - tp)
    return (tp / below).item()


NEW = ["tversky", "tversky[1]", "tversky:average=macro", "tversky:average=micro", "tversky:average=weighted",
       "tversky:misses=2,average=none", "tversky:misses=[1,2,3]", "strict_tversky", "double_skill",
       "double_skill:average=macro", "double_skill[1]"]  # fmt: skip


def test_score_and_loss():
    cm = ConfusionMatrix(MATRIX)
    expected = [by_hand(MATRIX, k) for k in range(3)]
    assert tversky("none")(cm).tolist() == pytest.approx(expected)
    assert tversky()(cm).item() == pytest.approx(sum(expected) / 3)
    assert tversky(1, misses=2)(cm).item() == pytest.approx(by_hand(MATRIX, 1, 2))
    assert metrics.get("double_skill")(cm).item() == pytest.approx(2 * 16 / 23 - 1)
    assert metrics.get("double_skill[1]")(cm).item() == pytest.approx(2 * 21 / 23 - 1)
    true, predicted = [0, 1, 1, 0, 1], [0, 1, 0, 1, 1]
    assert metrics.get("tversky").score(true, predicted) == pytest.approx(2 / (2 + 0.5 * 1 + 0.875 * 1))
    logits = torch.tensor([[9.0, 0.0], [0.0, 9.0], [9.0, 0.0]], requires_grad=True)
    for spec in ("tversky[1]", "double_skill"):
        loss = MetricLoss(spec, temperature=1e-3)(logits, torch.tensor([0, 1, 1]))
        hard = metrics.get(spec).score([0, 1, 1], [0, 1, 0])
        assert loss.item() == pytest.approx(1 - hard, abs=1e-5)
        loss.backward()
        assert logits.grad.isfinite().all()


def test_names_in_the_grammar():
    assert metrics.get("tversky_index:misses=2[yes]") == tversky(label="yes", misses=2)
    assert metrics.get("strict_tversky") == tversky(misses=3.0)
    assert metrics.get("tversky_macro") == tversky("macro")
    assert str(metrics.get("0.5*strict_tversky[1] + 0.5*recall[1]")) == "0.5*tversky:misses=3[1] + 0.5*recall[1]"
    assert "tversky" in metrics.available()
    with pytest.raises(ValueError, match=r"'tversky' has no parameter 'beta'; it takes .*zero_division, misses"):
        metrics.get("tversky:beta=2")
    with pytest.raises(ValueError, match="did you mean 'tversky'"):
        metrics.get("tverski")
    with pytest.raises(TypeError, match="misses: expected a number"):
        metrics.get("tversky:misses=many")


def test_the_command_line_shows_it():
    from metricfit.cli.entry import app

    listed = CliRunner().invoke(app, ["metrics", "--json"])
    assert "tversky" in [m["name"] for m in json.loads(listed.stdout)]
    shown = CliRunner().invoke(app, ["metrics", "strict_tversky"]).stdout
    assert "Hits over hits" in shown
    assert "TP / (TP + misses·FN + (1 - misses / 4)·FP)" in shown
    assert "misses=3" in shown
    assert "Tversky 1977" in shown


def test_the_page_of_the_documentation_has_it():
    page = runpy.run_path(str(Path(__file__).parents[2] / "docs/site/metric_list.py"))["reference_page"]()
    assert "### tversky" in page
    assert "`TP / (TP + misses·FN + (1 - misses / 4)·FP)`" in page
    assert "`strict_tversky`" in page


def test_its_formula():
    assert tversky.formula == "TP / (TP + misses·FN + (1 - misses / 4)·FP)"
    assert double_skill.formula == "2 Σₖ TPₖ / n - 1"
    assert in_words(metrics.get("tversky[yes]")) == "tversky of yes"
    assert in_words(double_skill("macro")) == "macro double skill"


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
@pytest.mark.parametrize("task", ["binary", "multiclass", "multilabel"])
def test_its_javascript(task):
    size = 2 if task == "binary" else 3
    labels = tuple("abc"[:size])
    shape = (size, 2, 2) if task == "multilabel" else (size, size)
    counts = torch.randint(0, 9, (4, *shape), generator=torch.Generator().manual_seed(0)).double()
    counts[0] = 0
    specs = [s for s in NEW if "none" not in s and not (size == 2 and "[1,2,3]" in s)]
    found = [metrics.get(spec) for spec in specs]
    nodes = [tree(replace(m, label="b") if m.label is not None else m, labels, lambda m: 0.0) for m in found]
    runtime = (Path(metricfit.report.__file__).parent / "assets" / "metrics.js").read_text()
    cms = [{"task": task, "size": size, "cells": c.flatten().tolist()} for c in counts]
    program = f"{formulas()}\n{runtime}\nconst nodes = {json.dumps(nodes)}, cms = {json.dumps(cms)};"
    program += "console.log(JSON.stringify(nodes.map((n) => cms.map((cm) => valueOf(n, cm)))));"
    done = subprocess.run(["node", "-e", program], capture_output=True, text=True, check=True)
    for spec, metric, values in zip(specs, found, json.loads(done.stdout), strict=True):
        expected = [metric(ConfusionMatrix(c, task)).item() for c in counts]
        assert values == pytest.approx(expected, rel=1e-12), spec


def test_its_derivative_for_the_fast_path():
    for metric, expected in (
        (tversky(misses=2), ((1.0, 0.0, 0.0, 0.0), (1.0, 0.5, 2.0, 0.0))),
        (tversky(misses=[1, 2]), None),
        (double_skill(), None),
    ):
        assert coefficients(metric.program, metric.parameters) == expected


@pytest.mark.parametrize("spec", NEW)
def test_what_holds_of_every_metric_holds_of_it(spec):
    metric = metrics.get(spec)
    for check in (
        common.test_spec_reads_back_as_the_same_metric, common.test_values_stay_in_the_range,
        common.test_a_perfect_prediction_has_the_perfect_value_and_loss_zero,
        common.test_more_mistakes_make_every_metric_worse, common.test_batches_equal_a_loop_over_matrices,
        common.test_gradcheck, common.test_order_of_samples_does_not_matter,
        common.test_half_precision_logits_give_a_float32_value_and_a_finite_gradient,
    ):  # fmt: skip
        check(metric)
    common.test_each_metric_documents_itself(metric.name)
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-12)):
        common.test_values_do_not_depend_on_the_scale_of_the_weights(metric, dtype, tolerance)
        common.test_value_and_gradient_are_finite_on_degenerate_matrices(metric, dtype)


def test_it_can_be_copied_and_pickled():
    metric = tversky(1, misses=2)
    assert pickle.loads(pickle.dumps(metric)) == copy.deepcopy(metric) == metric
    assert repr(metric) == "Tversky(average='auto', label=1, zero_division=0.0, misses=2.0)"


class TestMistakes:
    def test_an_alias_is_forgotten_alone_and_an_average_not_at_all(self):
        metrics.unregister("strict_tversky")
        assert metrics.get("tversky_index") == tversky()
        with pytest.raises(ValueError, match="unknown name 'strict_tversky'"):
            metrics.get("strict_tversky")
        with pytest.raises(ValueError, match="'tversky_macro' is an average of 'tversky'"):
            metrics.unregister("tversky_macro")
        assert "tversky" in metrics.available()

    def test_a_name_is_taken_once(self):
        metrics.unregister("tversky")
        with pytest.raises(ValueError, match="'recall': there is a metric of this name already"):
            metrics.register(["recall"])(tversky)
        assert "tversky" not in metrics.available()
        metrics.register()(tversky)
        with pytest.raises(ValueError, match="'tversky': there is a metric of this name already"):
            metrics.register()(tversky)

    @pytest.mark.parametrize(
        ("function", "error", "message"),
        [
            (lambda c: 0.5, TypeError, "expected a formula of the counts, got float"),
            (lambda c: c.tp if c.tp else c.fp, TypeError, "a formula cannot branch"),
            (lambda c: c.tp + "x", TypeError, "counts, parameters and numbers, got str"),
            (lambda c: c.sum(c.tp) / c.tp, ValueError, "put every count of a formula of the whole matrix under c.sum"),
            (lambda c, beta: beta * c.tp / c.n, TypeError, "give each parameter a default"),
        ],
    )
    def test_a_function_that_is_no_formula_is_refused(self, function, error, message):
        with pytest.raises(error, match=message):
            metrics.metric(reference="")(function)
