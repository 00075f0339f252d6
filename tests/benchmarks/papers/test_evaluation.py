"""Numbers of the tables against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, softmax
from sklearn.metrics import (
    accuracy_score,
    balanced_accuracy_score,
    f1_score,
    fbeta_score,
    matthews_corrcoef,
    precision_score,
    recall_score,
    roc_auc_score,
)

from benchmarks.papers.evaluation import THRESHOLDS, Scores, evaluate
from metricfit import metrics


@pytest.fixture
def binary() -> Scores:
    random = np.random.default_rng(0)
    y = (random.random(150) < 0.2).astype(np.int64)
    return Scores(random.normal(size=150) + 1.5 * y - 0.7, y)


def found(scores: Scores, **options: object) -> dict[tuple[str, str, str], float]:
    made = evaluate(scores, scores, options.pop("classes", ["rest", "fraud"]), **options)  # type: ignore[arg-type]
    return {(s.rule, s.metric, s.of_class): s.value for s in made}


REFERENCES = {
    "f1": lambda y, d: f1_score(y, d, zero_division=0),
    "f2": lambda y, d: fbeta_score(y, d, beta=2, zero_division=0),
    "f3": lambda y, d: fbeta_score(y, d, beta=3, zero_division=0),
    "accuracy": accuracy_score,
    "precision": lambda y, d: precision_score(y, d, zero_division=0),
    "recall": recall_score,
    "balanced_accuracy": balanced_accuracy_score,
}


@pytest.mark.parametrize("metric", REFERENCES)
def test_the_mean_over_thresholds_is_a_loop_over_scikit_learn(binary: Scores, metric: str) -> None:
    made = found(binary, thresholds=True, raw_thresholds=True)
    for rule, score in (("mean_tau", expit(binary.raw)), ("mean_tau_raw", binary.raw)):
        expected = np.mean([REFERENCES[metric](binary.y, score >= tau) for tau in THRESHOLDS])
        assert made[rule, metric, ""] == pytest.approx(expected, abs=1e-9)


def test_the_papers_auroc_is_the_mean_auroc_of_labels_and_ours_that_of_scores(binary: Scores) -> None:
    made = found(binary, thresholds=True)
    labels = np.mean([roc_auc_score(binary.y, expit(binary.raw) >= tau) for tau in THRESHOLDS])
    assert made["mean_tau", "balanced_accuracy", ""] == pytest.approx(labels)
    assert made["scores", "auroc", ""] == pytest.approx(roc_auc_score(binary.y, binary.raw))


def test_the_decision_is_at_one_half_or_at_the_middle_of_raw_outputs(binary: Scores) -> None:
    made = found(binary)
    assert made["decision", "f1", ""] == pytest.approx(f1_score(binary.y, binary.raw >= 0))
    assert made["decision", "mcc", ""] == pytest.approx(matthews_corrcoef(binary.y, binary.raw >= 0))
    assert made["decision", "macro_f1", ""] == pytest.approx(f1_score(binary.y, binary.raw >= 0, average="macro"))
    raw = found(Scores(binary.raw, binary.y, middle=0.5), thresholds=True)
    assert raw["decision", "f1", ""] == pytest.approx(f1_score(binary.y, binary.raw >= 0.5))
    expected = np.mean([f1_score(binary.y, binary.raw >= tau) for tau in THRESHOLDS])
    assert raw["mean_tau", "f1", ""] == pytest.approx(expected)


def test_the_tuned_rule_is_the_best_cut_of_the_validation_part(binary: Scores) -> None:
    made = found(binary, tuned=["f1", "accuracy"])
    for metric in ("f1", "accuracy"):
        best = max(REFERENCES[metric](binary.y, binary.raw >= cut) for cut in binary.raw)
        assert made["tuned", metric, ""] == pytest.approx(best)


def test_several_classes_by_arg_max_class_by_class_and_tuned() -> None:
    random = np.random.default_rng(1)
    y = random.choice(3, 500, p=[0.7, 0.2, 0.1])
    raw = random.normal(size=(500, 3)) + 1.2 * np.eye(3)[y]
    raw[:, 0] += 1
    classes = ["cat", "dog", "frog"]
    objective = metrics.FBeta(beta=[1, 5, 1], average="macro")
    made = found(
        Scores(raw, y), classes=classes, tuned=["macro_f1"], single=["Dog"], objectives={"recall_Dog": objective}
    )
    decided = softmax(raw, axis=1).argmax(axis=1)
    assert made["decision", "macro_f1", ""] == pytest.approx(f1_score(y, decided, average="macro"))
    assert made["decision", "mcc", ""] == pytest.approx(matthews_corrcoef(y, decided))
    assert made["decision", "precision", "Dog"] == pytest.approx(precision_score(y, decided, average=None)[1])
    assert made["decision", "recall", "Dog"] == pytest.approx(recall_score(y, decided, average=None)[1])
    assert made["tuned", "macro_f1", ""] >= made["decision", "macro_f1", ""]
    assert made["tuned_for_recall_Dog", "recall", "Dog"] > made["decision", "recall", "Dog"]
    assert ("tuned_for_recall_Dog", "mcc", "") not in made
