"""Tables, curves and the explorer against plain counts of the rows."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import f1_score, roc_auc_score

from metricfit import metrics
from metricfit.data import TablePreprocessor
from metricfit.report.explorer import calibration, explorer, one_class
from metricfit.report.page import alignment, class_table, confused_pairs, coolings, matrices
from tests.report.helper import binary_scores, class_scores, history, model


@pytest.mark.parametrize("points", [50, 5000])
@pytest.mark.parametrize("weighted", [False, True])
def test_counts_at_every_cut_off_are_exact(points, weighted):
    scores = binary_scores(700, weighted=weighted)
    p, positive = scores.proba[:, 1].astype(float), scores.truth == 1
    weight = np.ones(700) if scores.weight is None else scores.weight
    found = one_class(p, positive, scores.weight, points=points, marks=[0.123])
    assert 0.123 in found["cuts"]
    assert found["cuts"] == sorted(found["cuts"])
    for cut, tp, fp in zip(found["cuts"], found["tp"], found["fp"], strict=True):
        assert tp == pytest.approx(weight[(p >= cut) & positive].sum())
        assert fp == pytest.approx(weight[(p >= cut) & ~positive].sum())
    assert (found["scores"] is not None) is (points == 5000)
    if points == 5000:
        assert len({(t, f) for t, f in zip(found["tp"], found["fp"], strict=True)}) == len(np.unique(p)) + 1
    assert found["auroc"] == pytest.approx(roc_auc_score(positive, p, sample_weight=scores.weight))
    assert sum(found["histogram"]["positive"]) == pytest.approx(weight[positive].sum())


def test_cut_offs_are_as_short_as_they_can_be():
    scores, positive = np.array([0.1, 0.42, 0.424, 0.9]), np.array([False, True, False, True])
    cuts = one_class(scores, positive, None, points=9, marks=[])["cuts"]
    assert cuts[1:4] == [0.26, 0.422, 0.66]


def test_calibration_of_honest_probabilities_is_straight():
    random = np.random.default_rng(0)
    p = random.random(20_000)
    found = calibration(p, random.random(20_000) < p, None)
    assert found["error"] < 0.02
    assert all(low <= share <= high for _, share, low, high, _ in found["points"])


def test_areas_of_many_classes_equal_the_metrics_own():
    scores = class_scores(4, weighted=True)
    labels = ("a", "b", "c", "d")
    classifier, _ = model(labels, "f1", scores=scores)
    content = explorer(scores, labels, "multiclass", classifier.metric_, classifier.decision_rule_)
    truth = np.array(labels, dtype=object)[scores.truth]
    shown = {m["spec"]: m["tree"]["value"] for m in content["metrics"] if m["tree"]["kind"] == "fixed"}
    assert len(shown) >= 2
    for spec, value in shown.items():
        assert value == pytest.approx(metrics.get(spec).score(truth, scores.proba, scores.weight, labels=labels))


def test_columns_say_what_they_held():
    table = pd.DataFrame({
        "rebate": ["10%", "10%", "10%", "5%"] * 5, "rows": [0.5, 2, 3, 40] * 5, "flag": [True, False, False, False] * 5,
        "day": pd.date_range("2024-01-30", periods=20), "gap": np.nan, "same": 1,
    })  # fmt: skip
    found = {column.name: column.values for column in TablePreprocessor().fit(table).columns_}
    assert found == {
        "rebate": "2 distinct; most often 10%, 5%", "rows": "0.5 to 40, median 2.5", "flag": "mean 0.25",
        "day": "2024-01-30 to 2024-02-18", "gap": "", "same": "",
    }  # fmt: skip


def test_tables_count_what_there_is():
    scores = class_scores(15, 900)
    labels = tuple(f"c{k}" for k in range(15))
    *_, after = matrices(scores, labels)
    assert len(after["labels"]) == 13
    assert sum(count for row in after["cells"] for count, _ in row) == 900
    rows = class_table(scores, labels)
    assert [r["support"] for r in rows] == np.bincount(scores.truth, minlength=15).tolist()
    f1 = f1_score(scores.truth, scores.decided, average=None, labels=range(15))
    np.testing.assert_allclose([r["f1"] for r in rows], f1)
    pairs = confused_pairs(scores, labels)
    first = pairs[0]
    i, j = labels.index(first["true"]), labels.index(first["predicted"])
    assert first["count"] == ((scores.truth == i) & (scores.decided == j)).sum()


def test_epochs_that_were_not_validated_are_no_points():
    frame = history(12)
    assert len(alignment(frame)["points"]) == 6
    assert coolings(frame) == [5, 9]
    assert np.isnan(alignment(frame.iloc[:2])["correlation"])
