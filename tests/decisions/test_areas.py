"""Areas and decisions over chunks equal those of all scores at once."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, confusion_matrix, multilabel_confusion_matrix, roc_auc_score

from metricfit import metrics
from metricfit.decisions import (
    DecisionRule,
    area_of_chunks,
    best_label_thresholds,
    best_threshold_of_chunks,
    confusion_of_chunks,
)
from metricfit.decisions import streaming as module
from tests.decisions.test_streaming import in_chunks, scores

REFERENCE = {"auroc": roc_auc_score, "auprc": average_precision_score}


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    n=st.integers(10, 4000),
    dtype=st.sampled_from(["float32", "float64"]),
    decimals=st.sampled_from([None, 0, 1, 3]),
    metric=st.sampled_from(list(REFERENCE)),
    weighted=st.booleans(),
    tolerance=st.sampled_from([0.0, 1e-9, 1e-6, 1e-3, 0.1]),
)
def test_equals_scikit_learn(seed, n, dtype, decimals, metric, weighted, tolerance) -> None:
    y, score = scores(seed, n, dtype, decimals)
    weight = np.random.default_rng(seed).random(n) + 0.1 if weighted else None
    expected = REFERENCE[metric](y, score, sample_weight=weight)
    columns = (y, score) if weight is None else (y, score, weight)
    found = area_of_chunks(in_chunks(*columns), metric, tolerance=tolerance)
    rounding = 1e-12
    assert found.low - rounding <= expected <= found.high + rounding
    assert found.value == pytest.approx(expected, abs=tolerance + rounding)
    assert float(found) == (found.low + found.high) / 2
    if tolerance == 0:
        assert found.low == found.high


@pytest.mark.parametrize("metric", list(REFERENCE))
def test_many_bins_are_resolved_in_several_passes(metric, monkeypatch) -> None:
    monkeypatch.setattr(module, "CELLS", 2**10)
    y, score = scores(4, 4000, "float32", None)
    found = area_of_chunks(in_chunks(y, score), metric, tolerance=0.0)
    assert found.value == pytest.approx(REFERENCE[metric](y, score), abs=1e-12)
    assert found.passes > 3


@pytest.mark.parametrize("metric", list(REFERENCE))
def test_few_passes_and_bounded_memory(metric, monkeypatch) -> None:
    monkeypatch.setattr(module, "CELLS", 2**14)  # fewer than there are different scores

    def peak(number: int) -> int:
        def chunks():
            for seed in range(number):
                yield scores(2 * seed, 20_000, "float32", None)

        tracemalloc.start()
        found = area_of_chunks(chunks, metric, tolerance=1e-4)
        top = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert found.passes <= 4
        assert found.high - found.low <= 2e-4
        return top

    assert peak(40) < 1.1 * peak(10)


def test_close_scores_both_zeros_and_a_perfect_order() -> None:
    score = np.array([0.0, -0.0, 1e-300, -1e-300, 1.0, np.nextafter(1.0, 2.0), -5.0, 1e300])
    y = np.array([1, 0, 1, 0, 0, 1, 0, 1])
    for metric, reference in REFERENCE.items():
        found = area_of_chunks(in_chunks(y, score, size=3), metric, tolerance=0.0)
        assert found.value == pytest.approx(reference(y, score), abs=1e-12)
        assert area_of_chunks(in_chunks(np.sort(y), np.sort(score)), metric).value == 1
    # The usual tolerance does not tell them from the exact ones either: there are no other bins to spend it on.
    assert area_of_chunks(in_chunks(y, score)).value == pytest.approx(roc_auc_score(y, score), abs=1e-6)


def test_errors() -> None:
    y, score = np.array([0, 1, 1]), np.array([0.1, 0.2, 0.3])
    with pytest.raises(ValueError, match="metric: expected 'auroc' or 'auprc', got f1"):
        area_of_chunks(in_chunks(y, score), "f1")
    with pytest.raises(ValueError, match="tolerance: expected a number >= 0, got -1"):
        area_of_chunks(in_chunks(y, score), tolerance=-1)
    with pytest.raises(ValueError, match="y_true: only the class 1 occurs"):
        area_of_chunks(in_chunks(y[1:], score[1:]))
    with pytest.raises(ValueError, match="y_true: only the class 0 occurs"):
        area_of_chunks(in_chunks(y[:1], score[:1]))
    with pytest.raises(ValueError, match="labels: expected two classes"):
        area_of_chunks(in_chunks(y, score), labels=(0, 1, 2))
    with pytest.raises(TypeError, match="a function that gives the chunks anew"):
        confusion_of_chunks([(y, score)], DecisionRule.at_threshold(0.2))
    with pytest.raises(ValueError, match="no chunk came"):
        confusion_of_chunks(lambda: [], DecisionRule.at_threshold(0.2))


class TestDecisions:
    def test_offsets_weights_and_classes_that_a_chunk_lacks(self) -> None:
        random = np.random.default_rng(0)
        names = np.array(["a", "b", "c", "d"])
        proba = random.dirichlet(np.ones(4), 1000)
        y = names[np.sort(random.integers(0, 4, 1000))]
        weight = random.random(1000)
        rule = DecisionRule.from_offsets([0.0, 0.5, -0.3, 1.0], names.tolist())
        found = confusion_of_chunks(in_chunks(y, proba, weight, size=90), rule)
        expected = confusion_matrix(y, rule.apply(proba), labels=names, sample_weight=weight)
        assert found.labels == ("a", "b", "c", "d")
        assert np.allclose(found.matrix, expected, rtol=1e-12)

    def test_labels_one_by_one_are_the_best_of_a_macro_average(self) -> None:
        random = np.random.default_rng(1)
        y = (random.random((800, 3)) < [0.1, 0.3, 0.5]).astype(int)
        score = (y + random.normal(size=y.shape)).astype(np.float32)
        expected = best_label_thresholds(y, score, "f1")

        def of_label(k: int):
            return lambda: [(y[i : i + 90, k], score[i : i + 90, k]) for i in range(0, 800, 90)]

        thresholds = [best_threshold_of_chunks(of_label(k), "f1").threshold for k in range(3)]
        assert thresholds == expected.thresholds.tolist()
        rule = DecisionRule.at_thresholds(thresholds)
        found = confusion_of_chunks(in_chunks(y, score, size=90), rule)
        assert (found.matrix.numpy() == multilabel_confusion_matrix(y, rule.apply(score))).all()
        assert metrics.get("f1").compute(found).item() == expected.value
