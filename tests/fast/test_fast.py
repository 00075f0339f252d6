"""Fast paths against the plain formulas: values and gradients, option by option."""

import math
import os
import subprocess
import sys
from contextlib import nullcontext
from functools import partial
from itertools import pairwise
from unittest import mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from metricfit import MetricLoss, fast, metrics
from metricfit.confusion import ConfusionMatrix
from metricfit.fast import blocks, compiled_pass, parts_of
from metricfit.fast.blocks import Job, torch_pass
from metricfit.fast.closed_form import closed_form_of, loss_of_sums
from metricfit.losses.metric_loss import Batch
from metricfit.membership import dynamic_threshold
from metricfit.steps import Annealed, Linear, Sigmoid
from tests.helper import generator

CLOSED_FORMS = ["f1", "mcc", "precision", "recall", "jaccard", "csi", "fbeta:beta=2", "f1[1]", "recall:zero_division=1"]


def samples(n, classes, *, seed=0, scale=3.0, dtype=torch.float64):
    random = generator(seed)
    scores = (torch.randn(n, classes, generator=random, dtype=torch.float64) * scale).to(dtype)
    return scores, torch.randint(classes, (n,), generator=random), torch.rand(n, generator=random).to(dtype)


def reference(scores, target, weight, step):
    p = scores.softmax(-1)
    h = step(p, dynamic_threshold(p))
    membership = h / h.sum(dim=-1, keepdim=True)
    classes = scores.shape[1]
    return membership.new_zeros(classes, classes).index_add(0, target, membership * weight[:, None])


def counts_and_gradient(take, scores, target, weight, step, direction):
    job = Job(scores, target, weight, None, fast.five_points(step), -100, True, False, False)
    seen = []
    result = take(job, lambda counts: (seen.append(counts), direction[None]))
    assert result is not None
    return torch.as_tensor(seen[0])[0], result[1]


compiled_counts, torch_counts = partial(counts_and_gradient, compiled_pass), partial(counts_and_gradient, torch_pass)


def assert_equal(fast, scores, target, weight, step, tolerance=1e-10):
    classes = scores.shape[1]
    direction = torch.rand(classes, classes, generator=generator(5), dtype=torch.float64).to(scores.dtype)
    counts, gradient = fast(scores, target, weight, step, direction)
    counts = counts.to(scores.dtype)
    leaf = scores.clone().requires_grad_()
    expected = reference(leaf, target, weight, step)
    (expected_gradient,) = torch.autograd.grad(expected, leaf, direction)
    torch.testing.assert_close(counts, expected.detach(), rtol=tolerance, atol=tolerance)
    size = max(1.0, expected_gradient.abs().max().item())
    torch.testing.assert_close(gradient, expected_gradient, rtol=tolerance, atol=tolerance * size)


both = pytest.mark.parametrize("fast", [compiled_counts, torch_counts])


@pytest.mark.parametrize(("task", "classes"), [("binary", 2), ("multiclass", 2), ("multiclass", 5)])
@pytest.mark.parametrize("lowest", [-30.0, -80.0, -300.0])
def test_the_precision_of_a_class_that_is_hardly_predicted_is_that_of_the_plain_formulas(task, classes, lowest):
    """Its counts must not be lost in the rounding of the others, nor be taken for 0/0 in float64."""
    random = generator(3)
    target = torch.randint(classes, (40,), generator=random)
    scores = torch.randn(40, classes, generator=random, dtype=torch.float64)
    scores[:, 1] += lowest
    logits = scores[:, 1] - 0.0 if task == "binary" else scores

    def value_and_gradient(plain):
        leaf = logits.clone().requires_grad_()
        ways = mock.patch.object(fast, "metric_loss", return_value=None) if plain else nullcontext()
        with ways:
            loss = MetricLoss("precision[1]", task=task).double()(leaf, target)
        return loss.detach(), torch.autograd.grad(loss, leaf)[0]

    (value, gradient), (expected, slope) = value_and_gradient(False), value_and_gradient(True)
    assert 0.1 < expected < 0.9
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradient, slope, rtol=1e-9, atol=1e-9 * slope.abs().max().item())


class TestCounts:
    @both
    @pytest.mark.parametrize("classes", [2, 3, 10, 31, 64, 127, 128, 129, 160, 257])
    @pytest.mark.parametrize("n", [1, 33])
    def test_every_number_of_classes(self, fast, classes, n):
        assert_equal(fast, *samples(n, classes), Annealed())

    @both
    @pytest.mark.parametrize("step", [Annealed(), Linear(), Linear(0.3)])
    @pytest.mark.parametrize("classes", [4, 140])
    def test_every_step(self, fast, step, classes):
        assert_equal(fast, *samples(70, classes), step)

    @both
    @pytest.mark.parametrize("temperature", [0.4, 0.39, 0.2, 0.05, 1e-3, 1e-6])
    @pytest.mark.parametrize("classes", [2, 7, 130])
    def test_every_temperature(self, fast, temperature, classes):
        step = Annealed(temperature)
        assert_equal(fast, *samples(200, classes), step, tolerance=1e-9)

    @both
    @pytest.mark.parametrize("scale", [1e-3, 30.0, 300.0, 1e4])
    @pytest.mark.parametrize("classes", [2, 5, 150])
    def test_extreme_logits(self, fast, scale, classes):
        scores, target, weight = samples(64, classes, scale=scale)
        assert_equal(fast, scores, target, weight, Annealed())

    @both
    @pytest.mark.parametrize("classes", [2, 5, 150])
    def test_all_equal(self, fast, classes):
        scores, target, weight = samples(64, classes, scale=0.0)
        direction = torch.rand(classes, classes, generator=generator(5), dtype=torch.float64)
        counts, gradient = fast(scores, target, weight, Annealed(), direction)
        leaf = scores.requires_grad_()
        expected = reference(leaf, target, weight, Annealed())
        (slope,) = torch.autograd.grad(expected, leaf, direction)
        torch.testing.assert_close(counts, expected.detach(), rtol=1e-10, atol=1e-10)
        # The gradient through the threshold belongs to any two of them here, to all of them there.
        difference = gradient - slope
        torch.testing.assert_close(difference.sum(dim=1), torch.zeros(64, dtype=torch.float64), rtol=0, atol=1e-10)
        usual = difference.median(dim=1, keepdim=True).values
        assert ((difference - usual).abs() > 1e-10).sum(dim=1).max() <= 2

    @both
    @pytest.mark.parametrize("classes", [4, 150])
    def test_two_equal_largest(self, fast, classes):
        scores, target, weight = samples(40, classes)
        largest, places = scores.topk(2, dim=1)
        scores.scatter_(1, places, largest[:, :1].expand(-1, 2))
        assert_equal(fast, scores, target, weight, Annealed())
        assert_equal(fast, scores, target, weight, Annealed(1e-6))

    @both
    def test_classes_that_are_ruled_out(self, fast):
        scores, target, weight = samples(40, 5)
        scores[::2, 3] = -math.inf
        assert_equal(fast, scores, target, weight, Annealed())

    @both
    @pytest.mark.parametrize("classes", [2, 10, 21, 257, 1000])
    def test_float32_is_as_near_as_float32_can_be(self, fast, classes):
        scores, target, weight = samples(300, classes, dtype=torch.float32)
        direction = torch.rand(classes, classes, generator=generator(5))
        counts, gradient = fast(scores, target, weight, Annealed(), direction)
        leaf = scores.double().requires_grad_()
        exact = reference(leaf, target, weight.double(), Annealed())
        (exact_gradient,) = torch.autograd.grad(exact, leaf, direction.double())
        assert gradient.dtype == torch.float32
        torch.testing.assert_close(counts.double(), exact.detach(), rtol=5e-6, atol=1e-6)
        torch.testing.assert_close(gradient.double(), exact_gradient, rtol=1e-4, atol=2e-6)

    @both
    @given(
        n=st.integers(1, 50), classes=st.integers(2, 40), scale=st.sampled_from([0.1, 3.0, 50.0]),
        temperature=st.floats(0.01, 0.4), seed=st.integers(0, 10**6),
    )  # fmt: skip
    def test_random_batches(self, fast, n, classes, scale, temperature, seed):
        step = Annealed(temperature)
        assert_equal(fast, *samples(n, classes, seed=seed, scale=scale), step, tolerance=1e-8)

    @pytest.mark.parametrize("classes", [3, 130])
    def test_gradcheck(self, classes):
        scores, target, weight = samples(5, classes, scale=1.0)
        loss = MetricLoss("kappa", step=Linear(0.3))

        def function(leaf):
            return loss(leaf, target, weight)

        assert torch.autograd.gradcheck(function, scores.requires_grad_(), fast_mode=True)


class TestParts:
    def test_parts_cover_all_samples_once(self):
        for n, classes in ((1, 2), (1000, 2), (100_000, 10), (1_000_000, 3), (5000, 1000)):
            for members in (1, 5):
                for cells in (3, classes):
                    parts = parts_of(n, classes, members, cells)
                    assert parts[0, 0] == 0
                    assert parts[-1, 1] == n * members
                    assert all(a[1] == b[0] for a, b in pairwise(parts))
                    assert all(start // n == (stop - 1) // n == member for start, stop, member in parts)
                    assert len(parts) == members or len(parts) * cells <= n * members
                    assert len(parts) > members or n * classes < 2 * fast.PART_ELEMENTS or n < 2 * cells

    @pytest.mark.parametrize("classes", [5, 200])
    def test_several_threads_give_the_same_numbers_every_time(self, monkeypatch, classes):
        without_small_batches(monkeypatch)
        threads = torch.get_num_threads()
        scores, target, weight = samples(500, classes, dtype=torch.float32)
        direction = torch.rand(classes, classes, generator=generator(5))
        results = []
        try:
            for number in (1, 3, 3):
                torch.set_num_threads(number)
                results.append(compiled_counts(scores, target, weight, Annealed(), direction))
        finally:
            torch.set_num_threads(threads)
        for alone, once, again in zip(*results, strict=True):
            assert torch.equal(alone, once)
            assert torch.equal(once, again)

    @pytest.mark.parametrize("has_openmp", [True, False])
    def test_ranges_are_worked_on_once_and_errors_arrive(self, monkeypatch, has_openmp):
        if not has_openmp:
            monkeypatch.setattr(blocks, "_openmp", lambda: None)
        threads = torch.get_num_threads()
        try:
            torch.set_num_threads(3)
            with torch.inference_mode():
                found = blocks.run(lambda *at: (*at, torch.is_inference_mode_enabled()), 7, 10**6)
            with pytest.raises(ZeroDivisionError):
                blocks.run(lambda begin, end: begin / 0, 7, 10**6)
        finally:
            torch.set_num_threads(threads)
        assert found == [(0, 2, True), (2, 4, True), (4, 7, True)]

    def test_a_forked_child_does_not_wait_for_its_parents_threads(self):
        code = """
import os, torch
from metricfit import fast
torch.set_num_threads(2)
fast.run(lambda begin, end: 0, 4, 10**6)
pid = os.fork()
if pid == 0:
    os._exit(max(fast.run(lambda begin, end: end - 1, 4, 10**6)))
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
"""
        subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=120)


def without_small_batches(monkeypatch):
    monkeypatch.setattr(fast, "PART_ELEMENTS", 1)
    monkeypatch.setattr(blocks, "SERIAL_ELEMENTS", 0)
    monkeypatch.setattr(fast, "parts_of", parts_of.__wrapped__)


def plain_loss(loss, *batch):
    """The value and gradient of the loss along the reference path, in float64."""
    scores, target, *weight = batch
    leaf = scores.detach().double().requires_grad_()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fast, "metric_loss", lambda *_, **__: None)
        value = loss(leaf, target, *(weight or [None]))
        return value.detach(), torch.autograd.grad(value, leaf)[0]


def plainly(loss):
    """The loss along the plain formulas."""

    def call(*batch):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fast, "metric_loss", lambda *_, **__: None)
            return MetricLoss.forward(loss, *batch)

    return call


def fused_and_plain(loss, scores, target, sample_weight=None):
    leaf = scores.clone().requires_grad_()
    value = loss(leaf, target, sample_weight)
    assert "FastLoss" in str(value.grad_fn)
    (gradient,) = torch.autograd.grad(value, leaf)
    expected, expected_gradient = plain_loss(loss, scores, target, sample_weight)
    assert value.item() == pytest.approx(expected.item(), abs=2e-6)
    size = max(expected_gradient.abs().max().item(), 1e-12)
    torch.testing.assert_close(gradient.double(), expected_gradient, rtol=2e-4, atol=2e-5 * size)


def without_numba(monkeypatch):
    monkeypatch.setattr(fast, "compiled_loops", lambda: None)


@pytest.fixture(params=["one call", "parts", "torch", "torch in blocks"])
def way(request, monkeypatch):
    """The ways a batch can take: those of large batches are open to the small ones of the tests here."""
    if request.param == "parts":
        without_small_batches(monkeypatch)
    elif request.param != "one call":
        without_numba(monkeypatch)
    if request.param == "torch in blocks":
        monkeypatch.setattr(blocks, "BLOCK_ELEMENTS", 97)


class TestLoss:
    @pytest.mark.usefixtures("way")
    @pytest.mark.parametrize("spec", CLOSED_FORMS)
    @pytest.mark.parametrize("classes", [2, 6, 150])
    @pytest.mark.parametrize("absent", ["skip", "count"])
    def test_value_and_gradient(self, spec, classes, absent):
        scores, target, _ = samples(50, classes, dtype=torch.float32)
        fused_and_plain(MetricLoss(spec, absent=absent), scores, target)

    @pytest.mark.usefixtures("way")
    @pytest.mark.parametrize("spec", ["f1", "mcc"])
    @pytest.mark.parametrize("layout", ["rows", "classes first", "channels last", "strided"])
    @pytest.mark.parametrize("classes", [5, 130])
    def test_weights_ignored_positions_and_layouts_together(self, spec, layout, classes):
        random = generator(3)
        scores = torch.randn(4, classes, 6, 7, generator=random)
        target = torch.randint(classes, (4, 6, 7), generator=random)
        target[torch.rand(target.shape, generator=random) < 0.3] = -100
        weight, sample_weight = torch.rand(classes, generator=random), torch.rand(target.shape, generator=random)
        if layout == "rows":
            scores = scores.movedim(1, -1).reshape(-1, classes)
            target, sample_weight = target.reshape(-1), sample_weight.reshape(-1)
        elif layout == "channels last":
            scores = scores.contiguous(memory_format=torch.channels_last)
        elif layout == "strided":
            scores = scores.repeat_interleave(2, dim=3)[..., ::2]
        fused_and_plain(MetricLoss(spec, weight=weight), scores, target, sample_weight)
        fused_and_plain(MetricLoss(spec, weight=weight, temperature=0.05), scores, target, sample_weight)

    @pytest.mark.usefixtures("way")
    @pytest.mark.parametrize("classes", [3, 130])
    @pytest.mark.parametrize("ignored", [0, 2])
    def test_an_ignored_class_is_as_if_its_samples_were_not_there(self, ignored, classes):
        scores, target, weight = samples(200, classes, dtype=torch.float32)
        target = target % 3
        scores[target == ignored] = math.nan
        loss = MetricLoss("f1", ignore_index=ignored)
        fused_and_plain(loss, scores, target, weight)
        kept = target != ignored
        expected, _ = plain_loss(MetricLoss("f1"), scores[kept], target[kept], weight[kept])
        assert loss(scores, target, weight).item() == pytest.approx(expected.item(), abs=2e-6)

    @pytest.mark.usefixtures("way")
    @pytest.mark.parametrize("trailing", [(), (4, 5)])
    def test_weights_that_do_not_lie_side_by_side(self, trailing):
        random = generator(4)
        scores = torch.randn(7, 3, *trailing, generator=random)
        target = torch.randint(3, (7, *trailing), generator=random)
        one, table = torch.tensor([0.5]), torch.rand(7, *trailing, 2, generator=random)
        fused_and_plain(MetricLoss("f1"), scores, target, table[..., 0])
        fused_and_plain(MetricLoss("mcc"), scores, target, one.expand(7, *trailing))
        fused_and_plain(
            MetricLoss("f1", weight=torch.tensor([[1.0, 9.0], [5.0, 9.0], [2.0, 9.0]])[:, 0]), scores, target
        )
        fused_and_plain(MetricLoss("f1", weight=one.expand(3)), scores, target)

    @pytest.mark.usefixtures("way")
    @pytest.mark.parametrize("spec", ["f1", "mcc", "kappa"])
    def test_arguments_stay_as_they_were(self, spec):
        scores, target, sample_weight = samples(50, 6, dtype=torch.float32)
        kept = [value.clone() for value in (scores, target, sample_weight)]
        loss = MetricLoss(spec, weight=torch.rand(6, generator=generator(5)))
        loss(scores.requires_grad_(), target, sample_weight=sample_weight).backward()
        for value, copy in zip((scores.detach(), target, sample_weight), kept, strict=True):
            assert torch.equal(value, copy)

    def test_images_are_read_where_they_lie(self):
        scores = torch.randn(2, 3, 4, 5, generator=generator())
        for tensor in (scores, scores.contiguous(memory_format=torch.channels_last), scores[:, :, 0, 0].contiguous()):
            array = fast.samples_and_classes(tensor)
            assert array.__array_interface__["data"][0] == tensor.data_ptr()

    @pytest.mark.usefixtures("way")
    def test_bad_inputs_get_the_plain_paths_words(self):
        loss = MetricLoss("f1")
        scores, target, weight = samples(5, 3, dtype=torch.float32)
        with pytest.raises(ValueError, match="class indices from 0 to 2"):
            loss(scores, torch.full_like(target, 3))
        with pytest.raises(ValueError, match="input: NaN logits in 1 of 5 samples"):
            loss(
                scores.masked_fill(torch.eye(5, 3, dtype=torch.bool) & (torch.arange(5) == 1)[:, None], math.nan),
                target,
            )
        with pytest.raises(ValueError, match="input: infinite logits"):
            loss(scores.fill_(math.inf), target)
        with pytest.raises(ValueError, match="sample_weight: expected finite weights"):
            loss(torch.zeros(5, 3), target, -weight)

    @pytest.mark.usefixtures("way")
    def test_unchecked_nan_propagates_and_wild_labels_do_not_crash(self):
        loss = MetricLoss("f1", validate=False)
        scores, target, _ = samples(5, 3, dtype=torch.float32)
        scores[2, 1] = math.nan
        assert loss(scores, target).isnan()
        with pytest.raises((IndexError, RuntimeError)):
            loss(torch.zeros(5, 3), torch.full((5,), 10**9))

    @pytest.mark.usefixtures("way")
    def test_nan_at_ignored_positions_and_batches_of_them(self):
        loss = MetricLoss("mcc")
        for classes in (3, 140):
            scores, target, _ = samples(9, classes, dtype=torch.float32)
            target[4] = -100
            clean = scores.clone().requires_grad_()
            loss(clean, target).backward()
            dirty = scores.clone()
            dirty[4] = math.nan
            dirty.requires_grad_()
            value = loss(dirty, target)
            value.backward()
            assert torch.equal(clean.grad, dirty.grad)
            assert (dirty.grad[4] == 0).all()
            nothing = loss(dirty, torch.full((9,), -100))
            assert nothing.item() == 0
            assert (torch.autograd.grad(nothing, dirty)[0] == 0).all()

    @pytest.mark.parametrize("spec", ["f1", "mcc", "kappa"])
    def test_second_derivatives(self, spec):
        loss = MetricLoss(spec)
        scores, target, _ = samples(20, 4, dtype=torch.float32)
        results = []
        for way in (loss, plainly(loss)):
            leaf = scores.clone().double().requires_grad_() if way is not loss else scores.clone().requires_grad_()
            (gradient,) = torch.autograd.grad(way(leaf, target), leaf, create_graph=True)
            (second,) = torch.autograd.grad(gradient.square().sum(), leaf)
            results.append(second.double())
        torch.testing.assert_close(results[0], results[1], rtol=1e-3, atol=1e-6)

    @pytest.mark.usefixtures("way")
    def test_the_gradient_scales_and_a_graph_can_be_kept(self):
        loss = MetricLoss("f1")
        scores, target, _ = samples(20, 4, dtype=torch.float32)
        leaf = scores.requires_grad_()
        value = loss(leaf, target)
        (once,) = torch.autograd.grad(value, leaf, retain_graph=True)
        (scaled,) = torch.autograd.grad(1000 * value, leaf, retain_graph=True)
        (again,) = torch.autograd.grad(value, leaf)
        torch.testing.assert_close(scaled, 1000 * once)
        assert torch.equal(once, again)

    @pytest.mark.parametrize("spec", ["f1", "mcc", "accuracy", "kappa"])
    def test_without_numba_nothing_changes(self, monkeypatch, spec):
        loss = MetricLoss(spec)
        scores, target, _ = samples(30, 5, dtype=torch.float32)
        with_it = loss(scores, target)
        without_numba(monkeypatch)
        leaf = scores.clone().requires_grad_()
        value = loss(leaf, target)
        (gradient,) = torch.autograd.grad(value, leaf)
        assert value.item() == pytest.approx(with_it.item(), abs=1e-6)
        torch.testing.assert_close(gradient.double(), plain_loss(loss, scores, target)[1], rtol=1e-3, atol=1e-6)

    @pytest.mark.parametrize("classes", [2, 5, 70])
    def test_double_precision_is_exact(self, classes):
        loss = MetricLoss("mcc", step=Linear(0.2))  # a temperature would be a float32 number
        scores, target, weight = samples(60, classes)
        leaf = scores.clone().requires_grad_()
        value = loss(leaf, target, weight)
        assert "FastLoss" in str(value.grad_fn)
        (gradient,) = torch.autograd.grad(3 * value, leaf)
        expected, expected_gradient = plain_loss(loss, scores, target, weight)
        assert value.dtype == gradient.dtype == torch.float64
        assert value.item() == pytest.approx(expected.item(), abs=1e-12)
        torch.testing.assert_close(gradient, 3 * expected_gradient, rtol=1e-9, atol=1e-12)

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_half_precision_is_counted_in_single(self, dtype):
        loss = MetricLoss("f1")
        scores, target, _ = samples(60, 5, dtype=dtype)
        leaf = scores.clone().requires_grad_()
        value = loss(leaf, target)
        (gradient,) = torch.autograd.grad(value, leaf)
        assert value.dtype == torch.float32
        assert gradient.dtype == dtype
        assert value.item() == pytest.approx(loss(scores.float(), target).item(), abs=1e-6)
        torch.testing.assert_close(gradient.double(), plain_loss(loss, scores, target)[1], rtol=2e-2, atol=1e-4)

    def test_threads_of_the_torch_way_give_the_same_numbers_every_time(self, monkeypatch):
        without_numba(monkeypatch)
        monkeypatch.setattr(blocks, "BLOCK_ELEMENTS", 200)
        loss, threads = MetricLoss("f1"), torch.get_num_threads()
        scores, target, _ = samples(500, 5, dtype=torch.float32)
        results = []
        try:
            for number in (1, 3, 3):
                torch.set_num_threads(number)
                leaf = scores.clone().requires_grad_()
                value = loss(leaf, target)
                results.append((value.detach(), *torch.autograd.grad(value, leaf)))
        finally:
            torch.set_num_threads(threads)
        for alone, once, again in zip(*results, strict=True):
            assert torch.equal(once, again)
            torch.testing.assert_close(alone, once, rtol=1e-5, atol=1e-8)

    def test_a_changed_temperature_metric_or_weight_counts_at_once(self):
        loss = MetricLoss("f1")
        scores, target, _ = samples(30, 5, dtype=torch.float32)
        before = loss(scores, target).item()
        loss.set_temperature(0.05)
        fused_and_plain(loss, scores, target)
        loss.temperature = torch.tensor(0.2)
        assert loss(scores, target).item() == before
        loss.metric, loss.weight = metrics.get("mcc"), torch.arange(5.0)
        fused_and_plain(loss, scores, target)
        loss.temperature = torch.tensor(0.1, requires_grad=True)
        (of_temperature,) = torch.autograd.grad(loss(scores, target), loss.temperature)
        assert of_temperature.item() != 0

    def test_other_steps_take_the_plain_way(self):
        assert fast.five_points(Sigmoid()) is None
        assert fast.five_points(Annealed(torch.tensor(0.2, requires_grad=True))) is None

    def test_importing_the_package_does_not_import_numba(self):
        code = "import sys, metricfit; sys.exit('numba' in sys.modules)"
        subprocess.run([sys.executable, "-c", code], check=True, timeout=120)

    @pytest.mark.slow
    def test_a_cache_folder_that_cannot_be_written_is_no_obstacle(self, tmp_path):
        code = "import numba.core.caching as c; c.CacheImpl._locator_classes = []\nimport metricfit.fast.loops"
        subprocess.run([sys.executable, "-c", code], check=True, timeout=300, env={**os.environ, "HOME": str(tmp_path)})


def torch_loss(scores, target, weight, step, *, metric="mcc"):
    """Value and gradient of the loss in torch."""
    rows, weights = target.reshape(-1), weight.reshape(-1)
    job = Job(scores, rows, weights, None, fast.five_points(step), -100, True, True, True)
    form = closed_form_of(metrics.get(metric), "multiclass")
    (value,), gradient = torch_pass(job, lambda counts: loss_of_sums(form, counts, False, False))
    return value, gradient


def assert_torch_loss_equal(scores, target, weight, step, tolerance=1e-10, *, metric="mcc"):
    value, gradient = torch_loss(scores, target, weight, step, metric=metric)
    classes = scores.shape[1]
    leaf = scores.clone().requires_grad_()
    rows = leaf.movedim(1, -1).reshape(-1, classes)
    counts = reference(rows, target.reshape(-1), weight.reshape(-1), step)
    expected = metrics.get(metric).loss(lambda _: ConfusionMatrix(counts))
    (expected_gradient,) = torch.autograd.grad(expected, leaf)
    assert value == pytest.approx(expected.item(), abs=tolerance)
    size = max(1.0, expected_gradient.abs().max().item())
    torch.testing.assert_close(gradient, expected_gradient, rtol=tolerance, atol=tolerance * size)


class TestTorch:
    """The loss in torch, where all numbers are exact."""

    @pytest.mark.parametrize("classes", [2, 3, 10, 63, 64, 257])
    @pytest.mark.parametrize("metric", ["f1", "mcc"])
    def test_every_number_of_classes(self, classes, metric):
        assert_torch_loss_equal(*samples(33, classes), Annealed(), metric=metric)

    @pytest.mark.parametrize("temperature", [0.45, 0.4, 0.39, 0.3, 0.2, 0.05, 1e-3, 1e-6])
    @pytest.mark.parametrize("classes", [2, 7, 130])
    def test_every_temperature(self, temperature, classes):
        step = Annealed(torch.tensor(temperature, dtype=torch.float64))
        assert_torch_loss_equal(*samples(200, classes), step, tolerance=1e-9)

    @pytest.mark.parametrize("step", [Linear(), Linear(0.3), Linear(0.45)])
    def test_the_other_linear_step(self, step):
        assert_torch_loss_equal(*samples(50, 6), step)

    @pytest.mark.parametrize("classes", [3, 70, 260])
    def test_images(self, classes):
        random = generator()
        scores = torch.randn(3, classes, 4, 5, generator=random, dtype=torch.float64)
        target = torch.randint(classes, (3, 4, 5), generator=random)
        weight = torch.rand(3, 4, 5, generator=random, dtype=torch.float64)
        assert_torch_loss_equal(scores, target, weight, Annealed())
        assert_torch_loss_equal(scores.contiguous(memory_format=torch.channels_last), target, weight, Annealed())

    @pytest.mark.parametrize("scale", [1e-3, 30.0, 300.0, 1e4])
    @pytest.mark.parametrize("classes", [2, 5, 150])
    def test_extreme_logits(self, scale, classes):
        for temperature in (0.2, 0.4):
            step = Annealed(torch.tensor(temperature, dtype=torch.float64))
            assert_torch_loss_equal(*samples(64, classes, scale=scale), step)

    @pytest.mark.parametrize("classes", [2, 4, 60, 150])
    def test_two_equal_largest(self, classes):
        scores, target, weight = samples(40, classes)
        largest, places = scores.topk(2, dim=1)
        scores.scatter_(1, places, largest[:, :1].expand(-1, 2))
        assert_torch_loss_equal(scores, target, weight, Annealed())

    @pytest.mark.parametrize("classes", [3, 30, 150])
    def test_all_equal(self, classes):
        scores, target, weight = samples(40, classes, scale=0.0)
        _, gradient = torch_loss(scores, target, weight, Annealed())
        assert gradient.isfinite().all()

    @pytest.mark.parametrize("kept", [1, 2, 3])
    def test_classes_that_are_ruled_out(self, kept):
        scores, target, weight = samples(40, 5)
        scores[::2, kept:] = -math.inf
        target[::2] = target[::2] % kept
        step = Annealed(0.3)
        value, gradient = torch_loss(scores, target, weight, step)
        finite = scores.clamp_min(-1e4)
        expected, expected_gradient = torch_loss(finite, target, weight, step)
        assert value == pytest.approx(expected, abs=1e-12)
        torch.testing.assert_close(gradient, expected_gradient, rtol=1e-10, atol=1e-12)
        assert_torch_loss_equal(finite, target, weight, step)

    @given(
        n=st.integers(1, 50), classes=st.integers(2, 70), scale=st.sampled_from([0.1, 3.0, 50.0]),
        temperature=st.floats(0.01, 0.45), seed=st.integers(0, 10**6),
    )  # fmt: skip
    def test_random_batches(self, n, classes, scale, temperature, seed):
        step = Annealed(torch.tensor(temperature, dtype=torch.float64))
        scores, target, weight = samples(n, classes, seed=seed, scale=scale)
        assert_torch_loss_equal(scores, target, weight, step, tolerance=1e-8, metric="f1")

    def test_steps_at_the_bounds_of_their_width_take_the_plain_way(self, monkeypatch):
        without_numba(monkeypatch)
        scores, target, _ = samples(30, 5, dtype=torch.float32)
        leaf = scores.clone().requires_grad_()
        value = MetricLoss("f1", temperature=1e-9)(leaf, target)
        assert "FastLoss" not in str(value.grad_fn)


class TestMetricGradients:
    @pytest.mark.parametrize("spec", CLOSED_FORMS)
    @pytest.mark.parametrize("skip", [False, True])
    @pytest.mark.parametrize("kind", ["random", "absent", "one column", "diagonal", "empty"])
    @pytest.mark.parametrize("is_compiled", [False, True])
    def test_equal_autograd(self, spec, skip, kind, is_compiled):
        matrix = torch.rand(4, 4, generator=generator(), dtype=torch.float64) * 9
        if kind == "absent":
            matrix[2] = 0
        elif kind == "one column":
            matrix[:, 1:] = 0
        elif kind == "diagonal":
            matrix = matrix.diagonal().diag()
        elif kind == "empty":
            matrix = torch.zeros_like(matrix)
        metric = metrics.get(spec)
        form = closed_form_of(metric, "multiclass")
        sums = torch.stack([matrix.diagonal(), matrix.sum(1), matrix.sum(0)])[None].numpy()
        (value,), (vectors,) = loss_of_sums(form, sums, skip, is_compiled)
        leaf = matrix.clone().requires_grad_()
        cm = ConfusionMatrix(leaf, absent="skip" if skip else "count")
        expected = metric.loss(lambda _: cm)
        if kind == "empty":
            assert value == 0
            assert not vectors.any()
            return
        assert value == pytest.approx(expected.item(), abs=1e-12)
        (expected_gradient,) = torch.autograd.grad(expected, leaf)
        if kind == "one column" and spec == "mcc":
            return  # undefined: the loss is 1 whatever happens, its gradient 0 or that of a limit
        columns, diagonal = torch.from_numpy(vectors)
        # A constant added to a row of the gradient moves nothing: every sample's memberships sum to one.
        parts = columns + diagonal.diag()
        torch.testing.assert_close(
            parts - parts.mean(1, keepdim=True), expected_gradient - expected_gradient.mean(1, keepdim=True),
            rtol=1e-9, atol=1e-12,
        )  # fmt: skip

    def test_what_has_no_closed_form(self):
        for spec in ("kappa", "f1:average=micro", "f1:average=weighted", "f1:zero_division=nan", "mcc:average=macro"):
            assert closed_form_of(metrics.get(spec), "multiclass") is None
        assert closed_form_of(metrics.FBeta(beta=[1.0, 2.0]), "multiclass") is None


class TestOneLogit:
    """A logit z of a binary task is the two-class batch (0, z)."""

    @pytest.mark.parametrize("spec", [*CLOSED_FORMS, "f1:average=macro", "f1[0]", "kappa"])
    @pytest.mark.parametrize("step", [{}, {"temperature": 0.05}, {"step": "linear:delta=0.1"}], ids=str)
    def test_value_and_gradient(self, spec, step):
        scores, target, weight = samples(50, 2, dtype=torch.float32)
        for options in ({}, {"absent": "count"}, {"weight": torch.tensor([0.3, 2.0])}):
            loss = MetricLoss(spec, task="binary", **step, **options)
            fused_and_plain(loss, scores[:, 0], target)
            fused_and_plain(loss, scores[:, 0], target, weight)

    @pytest.mark.parametrize("spec", ["f1", "mcc", "precision", "recall"])
    @pytest.mark.parametrize("only", [0, 1])
    def test_batches_of_one_class(self, spec, only):
        loss = MetricLoss(spec, task="binary")
        scores, target = torch.randn(50, generator=generator()).requires_grad_(), torch.full((50,), only)
        value, (expected, gradient) = loss(scores, target), plain_loss(loss, scores, target)
        assert value.item() == pytest.approx(expected.item(), abs=2e-6)
        found = torch.autograd.grad(value, scores)[0].double()
        torch.testing.assert_close(found, gradient, rtol=2e-4, atol=1e-7)  # precision's is 0, that is rounding

    @pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.float32, torch.float64])
    def test_images_with_ignored_positions_and_targets_of_any_type(self, dtype):
        random = generator(4)
        scores = torch.randn(3, 5, 7, generator=random)
        target = torch.randint(2, scores.shape, generator=random)
        target[torch.rand(scores.shape, generator=random) < 0.3] = -100
        fused_and_plain(MetricLoss("f1", task="binary"), scores, target.to(dtype))
        fused_and_plain(MetricLoss("mcc", task="binary"), scores, target.clamp_min(0).bool())

    def test_bad_inputs_get_the_plain_paths_words(self):
        loss = MetricLoss("f1", task="binary")
        scores, target = torch.randn(5, generator=generator()), torch.tensor([0, 1, 1, 0, 1])
        for wrong, message in ((target + 1, "target"), (target[:4], "target"), (target * math.nan, "target")):
            with pytest.raises(ValueError, match=message):
                loss(scores, wrong)
        with pytest.raises(ValueError, match="input: NaN logits in 1 of 5"):
            loss(scores.masked_fill(torch.arange(5) == 2, math.nan), target)

    @pytest.mark.parametrize(
        ("options", "target"),
        [
            ({"metric": "f1", "threshold": 0.3}, 1.0),
            ({"metric": "f1", "step": "sigmoid"}, 1.0),
            ({"metric": "f1"}, 0.7),
        ],
    )
    def test_what_is_not_covered_goes_the_plain_way(self, options, target):
        scores = torch.randn(20, generator=generator()).requires_grad_()
        targets = target * (torch.arange(20) % 2)
        value = MetricLoss(options.pop("metric"), task="binary", **options)(scores, targets)
        assert "FastLoss" not in str(value.grad_fn)

    def test_second_derivatives(self):
        loss = MetricLoss("f1", task="binary")
        scores, target, _ = samples(20, 2, dtype=torch.float32)
        results = []
        for way in (loss, plainly(loss)):
            leaf = scores[:, 0].clone().requires_grad_()
            (gradient,) = torch.autograd.grad(way(leaf, target), leaf, create_graph=True)
            results.append(torch.autograd.grad(gradient.square().sum(), leaf)[0])
        torch.testing.assert_close(*results, rtol=1e-3, atol=1e-6)

    def test_the_gradient_scales_and_a_graph_can_be_kept(self):
        scores, target, _ = samples(20, 2, dtype=torch.float32)
        leaf = scores[:, 0].clone().requires_grad_()
        value = MetricLoss("mcc", task="binary")(leaf, target)
        (once,) = torch.autograd.grad(value, leaf, retain_graph=True)
        (scaled,) = torch.autograd.grad(1000 * value, leaf)
        torch.testing.assert_close(scaled, 1000 * once)

    def test_nan_at_ignored_positions_and_batches_of_them(self):
        loss = MetricLoss("f1", task="binary")
        scores, target = torch.randn(9, generator=generator()), torch.arange(9) % 2
        target[4] = -100
        dirty = scores.masked_fill(target == -100, math.nan).requires_grad_()
        clean = scores.clone().requires_grad_()
        gradients = [torch.autograd.grad(loss(leaf, target), leaf)[0] for leaf in (dirty, clean)]
        assert torch.equal(*gradients)
        assert gradients[0][4] == 0
        nothing = loss(dirty, torch.full((9,), -100))
        assert nothing.item() == 0
        assert (torch.autograd.grad(nothing, dirty)[0] == 0).all()


def together(loss, *batches):
    """Values and gradients of batches one after the other, and what is remembered at the end."""
    found = []
    for scores, *others in batches:
        leaf = scores.clone().requires_grad_()
        value = loss(leaf, *others)
        found.append((value.detach(), torch.autograd.grad(value, leaf)[0]))
    return found, None if loss.memories is None else loss.memories[0].matrix


def quickly(loss, *batches):
    """As :func:`together`; the metric's part of every batch must have taken the fast way."""
    metric_loss, ways = fast.metric_loss, []

    def watched(*arguments):
        value = metric_loss(*arguments)
        ways.append(value is not None and "FastLoss" in str(value.grad_fn))
        return value

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fast, "metric_loss", watched)
        found = together(loss, *batches)
    assert ways == [True] * len(batches)
    return found


MIXTURES = [
    {"cross_entropy": 0.5},
    {"cross_entropy": 0.5, "balance": "sqrt"},
    {"cross_entropy": 2.0, "balance": "full"},
    {"cross_entropy": 0.5, "balance": "sqrt", "prior": [0.7, 0.2, 0.1]},
    {"cross_entropy": 0.5, "balance": "sqrt", "weight": [0.5, 1.0, 4.0]},
    {"cross_entropy": 0.5, "weight": [0.5, 1.0, 4.0]},
    {"memory": 0.9},
    {"memory": 0.5, "weight": [0.5, 1.0, 4.0]},
    {"cross_entropy": 0.5, "balance": "sqrt", "memory": 0.9},
]


class TestMixtures:
    """Cross-entropy and a memory beside the fused metric."""

    @pytest.mark.parametrize("spec", ["f1", "mcc"])
    @pytest.mark.parametrize("options", MIXTURES, ids=str)
    @pytest.mark.parametrize("task", ["multiclass", "binary"])
    @pytest.mark.parametrize("training", [True, False])
    def test_values_gradients_and_memory(self, spec, options, task, training):
        classes = 3 if task == "multiclass" else 2
        tensors = {k: torch.tensor(v[:classes]) if isinstance(v, list) else v for k, v in options.items()}
        batches = []
        for seed in range(3):
            scores, target, _ = samples(40, classes, seed=seed, dtype=torch.float32)
            batches.append((scores if task == "multiclass" else scores[:, 0], target if seed else target * 0))
        quick, slow = (MetricLoss(spec, task=task, **tensors).train(training) for _ in range(2))
        slow.forward = plainly(slow)
        (found, remembered), (expected, reference) = quickly(quick, *batches), together(slow, *batches)
        for (value, gradient), (right, slope) in zip(found, expected, strict=True):
            torch.testing.assert_close(value, right, rtol=1e-5, atol=1e-6)
            torch.testing.assert_close(gradient, slope, rtol=1e-3, atol=1e-6)
        if reference is not None:
            assert remembered.dtype == reference.dtype
            torch.testing.assert_close(remembered, reference, rtol=1e-5, atol=1e-7)

    @pytest.mark.parametrize("options", MIXTURES, ids=str)
    def test_images_with_ignored_positions(self, options):
        tensors = {k: torch.tensor(v) if isinstance(v, list) else v for k, v in options.items()}
        random = generator(6)
        scores = torch.randn(2, 3, 5, 7, generator=random)
        target = torch.randint(3, (2, 5, 7), generator=random)
        target[torch.rand(target.shape, generator=random) < 0.3] = 255
        quick, slow = (MetricLoss("jaccard", ignore_index=255, **tensors) for _ in range(2))
        slow.forward = plainly(slow)
        dirty = scores.masked_fill((target == 255)[:, None], math.nan)
        batches = [(scores, target), (dirty, target), (scores, torch.full_like(target, 255)), (scores, target)]
        (found, _), (expected, _) = quickly(quick, *batches), together(slow, *batches)
        for (value, gradient), (right, slope) in zip(found, expected, strict=True):
            torch.testing.assert_close(value, right, rtol=1e-5, atol=1e-6)
            torch.testing.assert_close(gradient, slope, rtol=1e-3, atol=1e-6)

    def test_batches_without_weight_teach_nothing(self):
        loss = MetricLoss("f1", memory=0.9, cross_entropy=0.5)
        scores, target, _ = samples(20, 3, dtype=torch.float32)
        loss(scores, target)
        before = loss.memories[0].matrix.clone()
        assert loss(scores.requires_grad_(), torch.full_like(target, -100)).item() == 0
        assert torch.equal(loss.memories[0].matrix, before)

    def test_second_derivatives_leave_the_memory_alone(self):
        scores, target, _ = samples(20, 3, dtype=torch.float32)
        results = []
        for quick in (True, False):
            loss = MetricLoss("f1", memory=0.9, cross_entropy=0.5)
            if not quick:
                loss.forward = plainly(loss)
            loss(scores.flip(0), target)
            leaf = scores.clone().requires_grad_()
            (gradient,) = torch.autograd.grad(loss(leaf, target), leaf, create_graph=True)
            remembered = loss.memories[0].matrix.clone()
            results.append((torch.autograd.grad(gradient.square().sum(), leaf)[0], remembered))
            assert torch.equal(loss.memories[0].matrix, remembered)
        for quick, slow in zip(*results, strict=True):
            torch.testing.assert_close(quick, slow, rtol=1e-3, atol=1e-6)

    def test_a_memory_of_other_classes_is_refused(self):
        loss = MetricLoss("f1", memory=0.9)
        loss(torch.zeros(4, 3), torch.arange(4) % 3)
        with pytest.raises(
            ValueError, match=r"memory: remembers a matrix of shape \(3, 3\), got a batch of shape \(5, 5\)"
        ):
            loss(torch.zeros(4, 5), torch.arange(4) % 3)

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_half_precision_keeps_its_sums_in_single(self, dtype):
        loss = MetricLoss("f1", cross_entropy=0.5)
        scores, target, _ = samples(60, 5, dtype=dtype)
        assert loss(scores, target).dtype == torch.float32


class TestEveryMetric:
    """Whatever is registered, with its defaults."""

    @pytest.mark.usefixtures("way")
    @pytest.mark.parametrize("name", sorted(metrics.available()))
    @pytest.mark.parametrize("task", ["multiclass", "binary"])
    def test_value_and_gradient(self, name, task):
        try:
            loss = MetricLoss(name, task=task)
        except (TypeError, ValueError):
            pytest.skip("needs an argument, or is no loss")
        scores, target, weight = samples(60, 4 if task == "multiclass" else 2, dtype=torch.float32)
        scores = scores if task == "multiclass" else scores[:, 0]
        leaf, other = scores.clone().requires_grad_(), scores.double().requires_grad_()
        try:
            expected = plainly(loss)(other, target, weight.double())
        except (TypeError, ValueError) as error:
            with pytest.raises(type(error)):
                loss(leaf, target, weight)
            return
        value = loss(leaf, target, weight)
        assert value.item() == pytest.approx(expected.item(), abs=2e-5 * max(1.0, abs(expected.item())))
        if not expected.requires_grad:
            return
        (slope,) = torch.autograd.grad(expected, other)
        (gradient,) = torch.autograd.grad(value, leaf)
        size = max(slope.abs().max().item(), 1e-5)  # a constant's gradient is rounding
        torch.testing.assert_close(gradient.double(), slope, rtol=1e-3, atol=1e-4 * size)


class TestMembers:
    """Each member as if it were alone."""

    @staticmethod
    def call(scores, target, weight=None, members=True, temperatures=None, spec="f1", **options):
        loss = MetricLoss(spec, members=len(scores) if members else None, **options)
        temperature = torch.tensor(0.2 if temperatures is None else temperatures)
        return fast.metric_loss(Batch(loss, target, weight, temperature, None), scores)

    @pytest.mark.usefixtures("way")
    @pytest.mark.parametrize("spec", ["f1", "mcc", "kappa"])
    @pytest.mark.parametrize("shape", [(3, 40, 2), (3, 40, 5), (2, 9, 130), (3, 4, 5, 6, 7)])
    @pytest.mark.parametrize("task", ["multiclass", "binary"])
    def test_values_and_gradients(self, spec, shape, task):
        random = generator(8)
        scores = torch.randn(shape, generator=random)
        target = torch.randint(shape[2], (*shape[:2], *shape[3:]), generator=random)
        if task == "binary":
            scores, target = scores[:, :, 0].contiguous(), target % 2
        weight = torch.rand(target.shape, generator=random)
        target[torch.rand(target.shape, generator=random) < 0.2] = -100
        temperatures = [0.05, 0.2, 0.4][: shape[0]]
        leaf, direction = scores.clone().requires_grad_(), torch.arange(1.0, shape[0] + 1)
        losses = self.call(leaf, target, weight, temperatures=temperatures, spec=spec, task=task)
        assert losses.shape == (shape[0],)
        (gradient,) = torch.autograd.grad(losses, leaf, direction)
        for m, temperature in enumerate(temperatures):
            alone = scores[m].clone().requires_grad_()
            value = self.call(alone, target[m], weight[m], False, [temperature], spec, task=task)
            assert losses[m].item() == pytest.approx(value.item(), abs=1e-6)
            (expected,) = torch.autograd.grad(value, alone, direction[m])
            torch.testing.assert_close(gradient[m], expected, rtol=1e-4, atol=1e-6)

    @pytest.mark.usefixtures("way")
    def test_weights_of_rows_are_those_of_their_positions(self):
        random = generator(9)
        scores, target = torch.randn(6, 3, 4, generator=random), torch.randint(3, (6, 4), generator=random)
        weight = torch.rand(6, generator=random)
        value = self.call(scores, target, weight, False)
        assert value.item() == pytest.approx(
            self.call(scores, target, weight[:, None].expand(6, 4).contiguous(), False).item(), abs=1e-6
        )


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(
    ("spec", "logits", "target", "options"),
    [
        ("mcc", [[33.0750, -47.9976], [25.8780, -66.8780]], [1, 0], {"weight": torch.tensor([0.9739, 0.1404])}),
        (
            "precision",
            [[40.5858, -27.8878, 12.6491, -7.0526, -21.2940], [16.6707, 47.9705, -34.7751, 18.3912, -29.6129]],
            [-100, 2], {"temperature": 0.01},
        ),
    ],
)  # fmt: skip
def test_a_batch_that_nearly_all_goes_to_one_class_has_a_true_loss_and_a_finite_gradient(
    spec, logits, target, options, compiled, monkeypatch
):
    """Sums of rows and columns do not tell how little is left of the other classes; their slopes overflow."""
    if not compiled:
        monkeypatch.setattr(fast, "compiled_loops", lambda: None)
    input, labels = torch.tensor(logits), torch.tensor(target)
    leaf = input.clone().requires_grad_()
    value = MetricLoss(spec, **options)(leaf, labels)
    value.backward()
    with monkeypatch.context() as patch:
        patch.setattr(fast, "metric_loss", lambda *_: None)
        plain = MetricLoss(spec, **options).double()(input.double(), labels)
    assert value.item() == pytest.approx(plain.item(), abs=1e-5)
    assert leaf.grad.isfinite().all()
