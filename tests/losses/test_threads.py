"""Losses in concurrent threads equal the serial ones, bit for bit."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import torch

from metricfit import MetricLoss
from metricfit.losses import DiceLoss

THREADS = 3
LOSSES = {
    "closed form": lambda: MetricLoss("f1"),
    "matrix": lambda: MetricLoss("mcc", cross_entropy=0.5, balance="sqrt"),
    "memory": lambda: MetricLoss("kappa", memory=0.9),
    "expression": lambda: MetricLoss("0.5*recall[1] + 0.5*precision[1]"),
    "constraint": lambda: MetricLoss("precision[1] subject to recall[1] >= 0.9"),
    "sweep": lambda: MetricLoss("auroc:grid=9"),
    "samples": DiceLoss,
}


def batches(seed, rows, number):
    random = torch.Generator().manual_seed(seed)
    shape = (rows, 3)
    return [(torch.randn(shape, generator=random), torch.randint(3, (rows,), generator=random)) for _ in range(number)]


def results(loss, given):
    found = []
    for logits, target in given:
        leaf = logits.clone().requires_grad_()
        value = loss(leaf, target)
        value.backward()
        found += [value.detach(), leaf.grad]
    return found


def concurrently(works):
    """Each work in a thread of its own; they start at the same moment."""
    start = Barrier(len(works))

    def run(work):
        start.wait()
        return work()

    with ThreadPoolExecutor(len(works)) as pool:
        return list(pool.map(run, works))


@pytest.fixture(autouse=True)
def two_threads():
    """Each loss may take two threads of torch's and of the compiled loops' own."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def assert_same(found, expected):
    for some, others in zip(found, expected, strict=True):
        assert all(map(torch.equal, some, others))


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize(("rows", "number"), [(7, 6), (22_000, 1)])  # one call, and parts dealt out to threads
def test_each_thread_with_a_loss_of_its_own(name, rows, number):
    given = [batches(seed, rows, number) for seed in range(THREADS)]
    expected = [results(LOSSES[name](), each) for each in given]
    assert_same(concurrently([lambda each=each: results(LOSSES[name](), each) for each in given]), expected)


@pytest.mark.parametrize("name", ["closed form", "matrix", "expression", "sweep", "samples"])
def test_threads_that_share_a_loss_without_memory(name):
    loss, given = LOSSES[name](), [batches(seed, 7, 6) for seed in range(THREADS)]
    expected = [results(loss, each) for each in given]
    assert_same(concurrently([lambda each=each: results(loss, each) for each in given]), expected)
