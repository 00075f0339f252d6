"""The search over chunks finds what the search over all scores at once finds."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import confusion_matrix, multilabel_confusion_matrix, roc_auc_score

from metricfit import ConfusionMatrix, metrics
from metricfit.decisions import (
    DecisionRule,
    InfeasibleError,
    best_label_thresholds,
    best_threshold,
    best_threshold_of_chunks,
    confusion_of_chunks,
)
from metricfit.decisions.problem import UntunableError

METRICS = ["f1", "mcc", "accuracy", "balanced_accuracy", "fbeta:beta=2", "kappa", "jaccard", "g_mean"]


def in_chunks(*columns, size=700):
    return lambda: [tuple(c[i : i + size] for c in columns) for i in range(0, len(columns[0]), size)]


def scores(seed: int, n: int, dtype: str, decimals: int | None) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    y = (random.random(n) < 0.15).astype(int)
    y[:2] = 0, 1
    score = random.normal(y * 1.2, 1.0)
    if seed % 2:
        score = 1 / (1 + np.exp(-3 * score))
    if decimals is not None:
        score = score.round(decimals)
    return y, score.astype(dtype)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    n=st.integers(10, 4000),
    dtype=st.sampled_from(["float32", "float64"]),
    decimals=st.sampled_from([None, 0, 1, 3]),
    metric=st.sampled_from(METRICS),
    weighted=st.booleans(),
)
def test_equals_the_search_in_memory(seed, n, dtype, decimals, metric, weighted) -> None:
    y, score = scores(seed, n, dtype, decimals)
    if score.min() == score.max():
        return
    # Weights that add up exactly in any order.
    weight = np.random.default_rng(seed).integers(1, 4, n) / 2 if weighted else None
    expected = best_threshold(y, score, metric, sample_weight=weight)
    columns = (y, score) if weight is None else (y, score, weight)
    found = best_threshold_of_chunks(in_chunks(*columns), metric)
    assert found.value == expected.value
    assert found.threshold == expected.threshold
    assert (found.confusion.matrix == expected.confusion.matrix).all()


@pytest.mark.parametrize("spec", ["precision subject to recall >= 0.7", "recall subject to predicted_share[1] <= 0.1"])
def test_constraints(spec: str) -> None:
    y, score = scores(3, 5000, "float32", None)
    expected, found = best_threshold(y, score, spec), best_threshold_of_chunks(in_chunks(y, score), spec)
    assert (found.threshold, found.value) == (expected.threshold, expected.value)
    assert found.constraints == expected.constraints
    with pytest.raises(InfeasibleError, match="no cut-off meets"):
        best_threshold_of_chunks(in_chunks(y, score), "recall subject to precision >= 0.999 and recall >= 0.999")
    with pytest.raises(ValueError, match=r"undefined \(NaN\) at every cut-off"):
        best_threshold_of_chunks(in_chunks(y, score), lambda cm: cm.tp[1] * np.nan)


def test_close_scores_and_both_zeros() -> None:
    score = np.array([0.0, -0.0, 1e-300, -1e-300, 1.0, np.nextafter(1.0, 2.0), -5.0, 1e300])
    y = np.array([1, 0, 1, 0, 0, 1, 0, 1])
    expected = best_threshold(y, score, "f1")
    found = best_threshold_of_chunks(in_chunks(y, score, size=3), "f1")
    assert (found.threshold, found.value) == (expected.threshold, expected.value)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_nobody_and_everybody_as_the_best(dtype: str) -> None:
    y, score = np.array([0, 0, 0, 1, 0]), np.array([0.9, 0.8, 0.7, 0.1, 0.5], dtype)
    for spec, called in [("accuracy", 0), ("recall", 5)]:
        expected, found = best_threshold(y, score, spec), best_threshold_of_chunks(in_chunks(y, score, size=2), spec)
        assert (found.threshold, found.value) == (expected.threshold, expected.value)
        assert found.rule.apply(score).sum() == called


def test_equal_cut_offs_go_to_the_highest_as_in_memory() -> None:
    # 0.5965 and 0.5955 share their first 16 bits, so the cut-off between them is only found in the second pass.
    y, score = np.array([1, 0, 1, 0, 1, 0]), np.array([0.5965, 0.5955, 0.39, 0.37, 0.19, 0.09], np.float32)
    assert best_threshold_of_chunks(in_chunks(y, score), "accuracy").threshold == pytest.approx(0.596)
    assert best_threshold(y, score, "accuracy").threshold == pytest.approx(0.596)


def test_half_precision_decides_as_in_memory() -> None:
    score = np.arange(2048, 2148).astype(np.float16)[::-1].copy()  # from 2048 on, only even numbers are left
    y = (np.random.default_rng(0).random(100) < np.linspace(0.9, 0.1, 100)).astype(int)
    expected, found = best_threshold(y, score, "f1"), best_threshold_of_chunks(in_chunks(y, score, size=30), "f1")
    assert (found.rule.apply(score) == expected.rule.apply(score)).all()
    assert found.threshold == expected.threshold


def test_chunks_without_rows_or_weight_change_nothing() -> None:
    y, score = scores(4, 300, "float32", 2)
    weight = np.random.default_rng(0).integers(1, 3, 300).astype(float)
    weight[100:200] = 0
    rule = DecisionRule.at_threshold(0.4)
    ends = [0, 100, 100, 200, 300]

    def chunks():
        return [(y[a:b], score[a:b], weight[a:b]) for a, b in pairwise(ends)]

    assert (
        best_threshold_of_chunks(chunks, "f1").threshold
        == best_threshold(y, score, "f1", sample_weight=weight).threshold
    )
    assert (
        confusion_of_chunks(chunks, rule).matrix == confusion_of_chunks(lambda: [(y, score, weight)], rule).matrix
    ).all()
    for call in (lambda c: best_threshold_of_chunks(c, "f1"), lambda c: confusion_of_chunks(c, rule)):
        with pytest.raises(ValueError, match="all weights are zero"):
            call(lambda: [(y, score, 0 * weight)])
        with pytest.raises(ValueError, match="no chunk came with rows"):
            call(lambda: [(y[:0], score[:0])])


def test_what_no_cut_off_can_be_tuned_on_is_refused_as_in_memory() -> None:
    y, score = np.array([0, 1, 0]), np.array([0.1, 0.2, 0.3])
    for labels, values in [(0 * y, score), (0 * y + 1, score), (y, 0 * score)]:
        with pytest.raises(UntunableError) as in_memory:
            best_threshold(labels, values, "f1")
        with pytest.raises(UntunableError) as streamed:
            best_threshold_of_chunks(lambda labels=labels, values=values: [(labels, values)], "f1")
        assert str(streamed.value) == str(in_memory.value)


@pytest.mark.parametrize("dtype", ["object", "string", "category"])
def test_text_labels_of_pandas(dtype: str) -> None:
    y, score = pd.Series(["no", "yes", "no", "yes"], dtype=dtype), np.array([0.1, 0.9, 0.3, 0.2])
    assert best_threshold_of_chunks(lambda: [(y, score)], "f1", labels=("no", "yes")).value == pytest.approx(0.8)


def test_text_labels_and_errors() -> None:
    y, score = np.array(["no", "yes", "no", "yes"]), np.array([0.1, 0.9, 0.3, 0.2])
    assert best_threshold_of_chunks(in_chunks(y, score), "f1", labels=("no", "yes")).value == pytest.approx(0.8)
    with pytest.raises(TypeError, match="a function that gives the chunks anew"):
        best_threshold_of_chunks([(y, score)], "f1")
    with pytest.raises(ValueError, match="no chunk came"):
        best_threshold_of_chunks(lambda: [], "f1")
    with pytest.raises(TypeError, match="the first chunk was float32"):
        best_threshold_of_chunks(lambda: [(y, score.astype("float32")), (y, score)], "f1", labels=("no", "yes"))


def test_memory_does_not_grow_with_the_samples() -> None:
    import tracemalloc

    def peak(number: int) -> int:
        def chunks():
            for seed in range(number):
                yield scores(2 * seed, 20_000, "float32", None)

        tracemalloc.start()
        best_threshold_of_chunks(chunks, "mcc")
        top = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return top

    assert peak(60) < 1.2 * peak(20)


def test_the_area_of_matrices_that_were_added_up_over_chunks() -> None:
    y, score = scores(4, 4000, "float32", None)
    thresholds = np.unique(np.quantile(score[:500], np.linspace(0, 1, 200)))
    parts = [
        ConfusionMatrix.from_scores(*chunk, thresholds=thresholds, labels=(0, 1)) for chunk in in_chunks(y, score)()
    ]
    found = metrics.get("auroc").compute(sum(parts[1:], parts[0]))
    assert float(found) == pytest.approx(roc_auc_score(y, score), abs=1e-3)


def test_errors_of_decisions() -> None:
    y, score = np.array([0, 1, 1]), np.array([0.1, 0.2, 0.3])
    with pytest.raises(ValueError, match="labels: expected two classes"):
        best_threshold_of_chunks(in_chunks(y, score), "f1", labels=(0, 1, 2))
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
