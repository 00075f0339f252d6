"""ConfusionMetric: the metric of all batches and processes together."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from sklearn.metrics import f1_score, jaccard_score, matthews_corrcoef, roc_auc_score

from metricfit.integrations.torchmetrics import ConfusionMetric
from tests.integrations.metric_ranks import SPECS, samples

torchmetrics = pytest.importorskip("torchmetrics", reason="torchmetrics is not installed")


def in_batches(metric: ConfusionMetric, *tensors: torch.Tensor, size: int = 7) -> float:
    for part in torch.arange(len(tensors[0])).split(size):
        metric.update(*(tensor[part] for tensor in tensors))
    return metric.compute().item()


@pytest.mark.parametrize("size", [1, 7, 50])
def test_multiclass_equals_scikit_learn_whatever_the_batches(size: int) -> None:
    logits, y = samples()
    predicted = logits.argmax(1)
    assert in_batches(ConfusionMetric("mcc", 3), logits, y, size=size) == pytest.approx(matthews_corrcoef(y, predicted))
    macro = ConfusionMetric("f1", 3, average="macro")
    assert in_batches(macro, logits, y, size=size) == pytest.approx(f1_score(y, predicted, average="macro"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("threshold", [0.1, 0.3, 0.7])
def test_a_score_equal_to_the_threshold_is_positive(threshold: float, dtype: torch.dtype) -> None:
    recall = ConfusionMetric("recall", task="binary", threshold=threshold, from_probabilities=True)
    recall.update(torch.tensor([threshold], dtype=dtype), torch.tensor([1]))
    assert recall.compute() == 1


def test_binary_and_multilabel_equal_scikit_learn() -> None:
    logits, y = samples()
    decided = logits.sigmoid() >= 0.4
    binary = ConfusionMetric("f1", task="binary", threshold=0.4)
    assert in_batches(binary, logits[:, 0], (y == 0).long()) == pytest.approx(f1_score(y == 0, decided[:, 0]))
    truth = torch.stack([y == 0, y > 0, y == 2], dim=1).long()
    jaccard = ConfusionMetric("jaccard:average=macro", 3, task="multilabel", threshold=0.4)
    assert in_batches(jaccard, logits, truth) == pytest.approx(jaccard_score(truth, decided, average="macro"))


def test_masks_weights_and_ignored_positions() -> None:
    random = torch.Generator().manual_seed(0)
    logits = torch.randn(6, 3, 4, 5, generator=random)
    y = torch.randint(0, 3, (6, 4, 5), generator=random)
    weight = torch.rand(6, 4, 5, generator=random)
    y[:, 0] = 255
    metric = ConfusionMetric("f1", 3, average="macro", ignore_index=255)
    kept = y != 255
    expected = f1_score(y[kept], logits.argmax(1)[kept], average="macro", sample_weight=weight[kept])
    assert in_batches(metric, logits, y, weight, size=4) == pytest.approx(expected)


def test_a_ranking_metric_is_the_area_over_its_grid() -> None:
    logits, y = samples()
    truth = (y == 0).long()
    # Probabilities on a grid of hundredths are cut apart by thresholds between them: then the area is exact.
    p = (logits[:, 0].sigmoid() * 50).round() / 50
    metric = ConfusionMetric("auroc:grid=99", task="binary", from_probabilities=True)
    assert in_batches(metric, p, truth) == pytest.approx(roc_auc_score(truth, p), abs=1e-9)


def test_an_area_of_the_multiclass_task() -> None:
    logits, y = samples()
    expected = roc_auc_score(y, logits.softmax(1), multi_class="ovr")
    assert in_batches(ConfusionMetric("auroc:average=macro", 3), logits, y) == pytest.approx(expected, abs=0.01)


def test_two_processes_equal_one_with_all_samples(tmp_path: Path) -> None:
    script = Path(__file__).parent / "metric_ranks.py"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(script), str(rank), "2", str(tmp_path / "store"), str(tmp_path / f"{rank}.json")],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    outputs = [rank.communicate(timeout=120)[0] for rank in ranks]
    assert not any(rank.returncode for rank in ranks), "\n".join(outputs)
    found = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    for spec in SPECS:
        expected = in_batches(ConfusionMetric(spec, 3), *samples())
        assert [rank[spec] for rank in found] == pytest.approx([expected, expected], abs=1e-12), spec


def test_it_is_a_good_torchmetrics_citizen() -> None:
    logits, y = samples()
    both = torchmetrics.MetricCollection({"mcc": ConfusionMetric("mcc", 3), "f1": ConfusionMetric("f1", 3)})
    batch = both(logits[:25], y[:25])  # forward: the value of this batch alone
    assert batch["mcc"].item() == pytest.approx(matthews_corrcoef(y[:25], logits[:25].argmax(1)))
    both.update(logits[25:], y[25:])
    assert both.compute()["mcc"].item() == pytest.approx(matthews_corrcoef(y, logits.argmax(1)))
    copy = pickle.loads(pickle.dumps(both["f1"]))
    assert copy.compute() == both["f1"].compute()
    both.reset()
    assert not both["mcc"].counts_0.any()
    assert ConfusionMetric("mcc", 3).higher_is_better is True
    assert ConfusionMetric("fpr", 3).higher_is_better is False
    assert "mcc" in repr(ConfusionMetric("mcc", 3))


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("f1",), {}, "num_classes: a multiclass task needs the number of classes, got None"),
        (("f1", 3), {"task": "binary"}, "num_classes: a binary task has 2, got 3"),
        (("f1 + mcc", 3), {"average": "macro"}, r"average: has no effect on f1 \+ mcc"),
        (("f1[1]", 3), {"average": "macro"}, r"average: f1\[1\] has one already"),
        (("f1", 3), {"task": "multi"}, "task: expected"),
    ],
)
def test_errors_of_the_constructor(arguments: tuple[object, ...], options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ConfusionMetric(*arguments, **options)


def test_a_batch_of_other_classes_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"num_classes=4 makes counts of shape \(4, 4\), this batch has \(3, 3\)"):
        ConfusionMetric("mcc", 4).update(*samples())
