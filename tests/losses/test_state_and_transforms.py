"""Compilation, function transforms, autocast, state dicts, memory: what a training stack does with a loss."""

import copy
import shutil

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

from metricfit import MetricLoss, losses
from metricfit.confusion import ConfusionMatrix

SPECS = ["f1", "mcc", "kappa:weights=linear", "gmean", "0.7*recall[1] + 0.3*precision[1]", "auroc:grid=9",
         "precision[1] subject to recall[1] >= 0.9"]  # fmt: skip


def batch(n=12, classes=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, classes, generator=generator, requires_grad=True)
    target = torch.arange(n) % classes
    return logits, target


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("spec", SPECS)
def test_compiles_in_one_graph_without_recompiling_as_it_cools(spec):
    counter = CompileCounterWithBackend("aot_eager")
    loss = MetricLoss(spec)
    compiled = torch.compile(loss, fullgraph=True, backend=counter)
    logits, target = batch()
    for temperature in (0.2, 0.1, 0.05):
        loss.set_temperature(temperature)
        torch.testing.assert_close(compiled(logits, target), loss(logits, target))
        (fast,) = torch.autograd.grad(compiled(logits, target), logits)
        (plain,) = torch.autograd.grad(loss(logits, target), logits)
        torch.testing.assert_close(fast, plain)
    assert counter.frame_count == 1


def test_compiles_with_all_options_together():
    counter = CompileCounterWithBackend("aot_eager")
    options = {"cross_entropy": 0.5, "balance": "sqrt", "weight": torch.tensor([1.0, 2.0, 3.0])}
    loss = MetricLoss("f1", **options)
    compiled = torch.compile(loss, fullgraph=True, backend=counter)
    logits, target = batch()
    target[0] = -100
    weight = torch.rand(len(target))
    torch.testing.assert_close(compiled(logits, target, weight), loss(logits, target, weight))
    assert counter.frame_count == 1


def test_compiles_with_memory():
    loss = MetricLoss("f1", memory=0.9)
    twin = copy.deepcopy(loss)
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    for seed in range(4):
        logits, target = batch(seed=seed)
        torch.testing.assert_close(compiled(logits, target), twin(logits, target))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="the inductor backend needs a C++ compiler")
@pytest.mark.filterwarnings("ignore:`torch._prims_common.check` is deprecated:FutureWarning")
def test_compiles_with_the_default_backend():
    loss = MetricLoss("mcc")
    compiled = torch.compile(loss, fullgraph=True)
    logits, target = batch()
    torch.testing.assert_close(compiled(logits, target), loss(logits, target))
    (fast,) = torch.autograd.grad(compiled(logits, target), logits)
    (plain,) = torch.autograd.grad(loss(logits, target), logits)
    torch.testing.assert_close(fast, plain, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("spec", SPECS)
def test_vmap_and_grad_equal_a_loop(spec):
    loss = MetricLoss(spec)
    pairs = [batch(seed=seed) for seed in range(3)]
    logits = torch.stack([x.detach() for x, _ in pairs])
    target = torch.stack([t for _, t in pairs])
    mapped = torch.func.vmap(torch.func.grad(lambda x, t: loss(x, t)))(logits, target)
    for i, (x, t) in enumerate(pairs):
        (gradient,) = torch.autograd.grad(loss(x, t), x)
        torch.testing.assert_close(mapped[i], gradient)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_inputs_are_counted_in_single_precision(dtype):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(4, 5, 64, 64, generator=generator).to(dtype).requires_grad_()
    target = torch.randint(0, 5, (4, 64, 64), generator=generator)
    loss = MetricLoss("f1")
    value = loss(logits, target)
    value.backward()
    assert value.dtype == torch.float32
    assert logits.grad.dtype == dtype
    assert logits.grad.isfinite().all()
    torch.testing.assert_close(value, loss(logits.detach().float(), target))


def test_autocast_bf16_changes_nothing_inside():
    logits, target = batch()
    layer = torch.nn.Linear(3, 3)
    loss = MetricLoss("mcc", cross_entropy=0.5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = layer(logits)
        value = loss(output, target)
    assert output.dtype == torch.bfloat16
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, loss(output.float(), target))
    value.backward()
    assert layer.weight.grad.isfinite().all()


def test_state_dict_round_trips_temperature_and_memory():
    loss = MetricLoss("f1", memory=0.9)
    loss.set_temperature(0.07)
    for seed in range(3):
        loss(*batch(seed=seed))
    state = copy.deepcopy(loss.state_dict())
    other = MetricLoss("f1", memory=0.9)
    other.load_state_dict(state)
    torch.testing.assert_close(other(*batch(seed=9)), loss(*batch(seed=9)), rtol=0, atol=0)
    assert other.temperature.item() == pytest.approx(0.07)
    torch.testing.assert_close(dict(other.state_dict()), dict(loss.state_dict()))


def test_double_converts_the_whole_loss():
    loss = MetricLoss("f1", weight=torch.ones(3), memory=0.5).double()
    logits, target = batch()
    assert loss(logits.double(), target).dtype == torch.float64


def test_gradients_scale_with_the_loss():
    logits, target = batch()
    loss = MetricLoss("f1", cross_entropy=0.3)
    (once,) = torch.autograd.grad(loss(logits, target), logits)
    (many,) = torch.autograd.grad(1000 * loss(logits, target), logits)
    torch.testing.assert_close(many, 1000 * once)


def test_memory_is_the_moving_average_and_keeps_the_size_of_the_gradient():
    decay = 0.8
    remembering = MetricLoss("f1", memory=decay).double()
    plain = MetricLoss("f1").double()
    average = None
    for seed in range(4):
        logits, target = batch(seed=seed)
        logits = logits.detach().double().requires_grad_()
        value = remembering(logits, target)
        current = plain.confusion(logits, target).matrix / len(target)
        now = current.detach()
        average = now if average is None else decay * average + (1 - decay) * now
        metric = remembering.metric
        expected = 1 - metric(ConfusionMatrix(average, absent="skip"))
        torch.testing.assert_close(value, expected)
        # The gradient is the one of the metric at the average, passed to this batch at full weight.
        leaf = average.clone().requires_grad_()
        (slope,) = torch.autograd.grad(1 - metric(ConfusionMatrix(leaf, absent="skip")), leaf)
        (wanted,) = torch.autograd.grad((current * slope).sum(), logits, retain_graph=True)
        (gradient,) = torch.autograd.grad(value, logits)
        torch.testing.assert_close(gradient, wanted)


@pytest.mark.parametrize("spec", ["f1", "kappa"])
def test_memory_of_a_loss_in_half_precision_is_kept_in_single(spec):
    half, single = (MetricLoss(spec, memory=0.9).to(dtype) for dtype in (torch.bfloat16, torch.float32))
    half.temperature = single.temperature
    for seed in range(20):
        logits, target = batch(seed=seed)
        half(logits.detach().float(), target)
        single(logits.detach().float(), target)
    assert half.memories[0].matrix.dtype == torch.float32
    torch.testing.assert_close(half.memories[0].matrix, single.memories[0].matrix)


def test_memory_rests_in_evaluation_and_can_be_reset():
    loss = MetricLoss("f1", memory=0.9)
    loss(*batch(seed=0))
    before = copy.deepcopy(loss.state_dict())
    loss.eval()
    torch.testing.assert_close(loss(*batch(seed=1)), MetricLoss("f1")(*batch(seed=1)))
    torch.testing.assert_close(dict(loss.state_dict()), dict(before))
    loss.train()
    loss.memories[0].reset()
    torch.testing.assert_close(loss(*batch(seed=2)), MetricLoss("f1")(*batch(seed=2)))


def test_memory_gives_a_batch_without_positives_a_sensible_score():
    logits, target = batch(classes=2)
    loss = MetricLoss("f1", task="binary", memory=0.9)
    loss(logits[:, 1], target)
    negatives = torch.zeros(len(target), dtype=torch.long)
    assert 0 < loss(logits[:, 1], negatives).item() < 1


def test_memory_refuses_another_number_of_classes():
    loss = MetricLoss("f1", memory=0.9)
    loss(*batch(classes=3))
    with pytest.raises(ValueError, match="memory: remembers a matrix of shape"):
        loss(*batch(classes=4))


def test_a_batch_where_all_is_ignored_leaves_the_memory_alone():
    loss = MetricLoss("f1", memory=0.9)
    loss(*batch())
    before = loss.memories[0].matrix.clone()
    logits, target = batch(seed=1)
    loss(logits, torch.full_like(target, -100))
    torch.testing.assert_close(loss.memories[0].matrix, before, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["MAELoss", "DiceLoss", "FocalLoss"])
def test_comparison_losses_compile(name):
    loss = getattr(losses, name)()
    logits, target = batch()
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(logits, target), loss(logits, target))
