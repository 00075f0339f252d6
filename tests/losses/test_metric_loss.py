"""MetricLoss: values and gradients against plain loops and finite differences, options, states, bad input."""

import inspect
import subprocess
import sys

import numpy as np
import pytest
import sklearn.metrics as sk
import torch
from hypothesis import given
from hypothesis import strategies as st

from metricfit import MetricLoss, metrics
from metricfit import confusion as counting
from metricfit.losses import metric_loss
from metricfit.steps import Amplifier, Annealed, Identity, Linear, Sigmoid
from tests import helper

MULTICLASS_SPECS = [name for name in metrics.available() if name not in ("cost",)] + [
    "cost:matrix=[[0,1,2],[1,0,1],[5,1,0]]",
    "fbeta:beta=[1,1,5]",
    "f1_micro",
    "f1_weighted",
    "kappa:weights=quadratic",
    "recall[1]",
    "mcc[2]",
    "0.7*recall[1] + 0.3*precision[1]",
    "2*precision*recall / (precision + recall)",
    "0.5*auroc:grid=9 + 0.5*f1",
    "precision[1] subject to recall[1] >= 0.9",
]
STEPS = [Annealed(), Annealed(0.05), Linear(0.15), Sigmoid(7.0), Identity()]


def batch(shape=(9, 3), *, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(shape, generator=generator, dtype=dtype)
    target = torch.randint(0, shape[1], (shape[0], *shape[2:]), generator=generator)
    target.view(-1)[: shape[1]] = torch.arange(shape[1])
    return logits.requires_grad_(), target


def macro_f1(matrix):
    size = range(len(matrix))
    scores = []
    for k in size:
        tp = matrix[k][k]
        fp = sum(matrix[i][k] for i in size if i != k)
        fn = sum(matrix[k][j] for j in size if j != k)
        scores.append(2 * tp / (2 * tp + fp + fn))
    return sum(scores) / len(scores)


def matthews(matrix):
    size = range(len(matrix))
    n = sum(map(sum, matrix))
    correct = sum(matrix[k][k] for k in size)
    true = [sum(row) for row in matrix]
    predicted = [sum(matrix[i][k] for i in size) for k in size]
    top = correct * n - sum(t * p for t, p in zip(true, predicted, strict=True))
    return top / ((n**2 - sum(p**2 for p in predicted)) * (n**2 - sum(t**2 for t in true))) ** 0.5


@pytest.mark.parametrize("step", STEPS, ids=str)
@pytest.mark.parametrize(("spec", "formula"), [("f1", macro_f1), ("mcc", matthews)])
def test_value_and_gradient_equal_a_plain_loop(spec, formula, step):
    logits, target = batch((7, 3))
    plain = helper.plain_step(step.name, next(iter(vars(step).values()), None))

    def reference(values):
        return 1 - formula(helper.soft_multiclass(values, target.numpy(), plain))

    loss = MetricLoss(spec, step=step).double()
    value = loss(logits, target)
    value.backward()
    numbers = logits.detach().numpy()
    # T is stored in float32: 0.05 is off by 1.5e-8 relative, hence the tolerance.
    assert value.item() == pytest.approx(reference(numbers), abs=1e-7)
    gradient = np.zeros_like(numbers)
    for place in np.ndindex(numbers.shape):
        shifted = []
        for sign in (1, -1):
            moved = numbers.copy()
            moved[place] += sign * 1e-6
            shifted.append(reference(moved))
        gradient[place] = (shifted[0] - shifted[1]) / 2e-6
    np.testing.assert_allclose(logits.grad.numpy(), gradient, atol=2e-7)


@pytest.mark.parametrize("spec", MULTICLASS_SPECS)
@pytest.mark.parametrize("temperature", [0.2, 0.4])
def test_gradcheck_multiclass(spec, temperature):
    logits, target = batch()
    loss = MetricLoss(spec, temperature=temperature).double()
    assert torch.autograd.gradcheck(lambda x: loss(x, target), (logits,))


@pytest.mark.parametrize("task", ["binary", "multilabel"])
@pytest.mark.parametrize("spec", [s for s in metrics.available() if s != "cost"] + ["cost", "f1_micro"])
def test_gradcheck_binary_and_multilabel(spec, task):
    generator = torch.Generator().manual_seed(3)
    shape = (8,) if task == "binary" else (8, 3)
    logits = torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True)
    target = torch.randint(0, 2, shape, generator=generator)
    target[:2] = torch.tensor([0, 1]).reshape(-1, *([1] * (len(shape) - 1)))
    loss = MetricLoss(spec, task=task).double()
    assert torch.autograd.gradcheck(lambda x: loss(x, target), (logits,))


@pytest.mark.parametrize("step", [*STEPS, Amplifier(11.0)], ids=str)
def test_gradcheck_of_every_step_and_of_mixing(step):
    generator = torch.Generator().manual_seed(5)
    logits = torch.randn(8, generator=generator, dtype=torch.float64, requires_grad=True)
    target = torch.tensor([0, 1] * 4)
    loss = MetricLoss("f1", task="binary", step=step, cross_entropy=0.5, balance="sqrt").double()
    assert torch.autograd.gradcheck(lambda x: loss(x, target), (logits,))


def test_double_backward_works():
    logits, target = batch()
    loss = MetricLoss("f1", step="sigmoid").double()
    assert torch.autograd.gradgradcheck(lambda x: loss(x, target), (logits,))


@pytest.mark.filterwarnings("ignore:A single label was found:UserWarning")
@pytest.mark.filterwarnings("ignore:.*have only one label in common")
@given(seed=st.integers(0, 10**6), classes=st.integers(2, 6), n=st.integers(1, 40))
def test_at_low_temperature_the_loss_is_scikit_learns_metric(seed, classes, n):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, classes)) * 3
    y = rng.integers(0, classes, size=n)
    predicted = logits.argmax(axis=1)
    labels = np.arange(classes)
    expected = {
        "accuracy": sk.accuracy_score(y, predicted),
        "f1_micro": sk.f1_score(y, predicted, average="micro"),
        "f1_weighted": sk.f1_score(y, predicted, average="weighted", labels=labels, zero_division=0),
        "f1_macro": sk.f1_score(y, predicted, average="macro", labels=labels, zero_division=0),
        "jaccard_macro": sk.jaccard_score(y, predicted, average="macro", labels=labels, zero_division=0),
        "mcc": sk.matthews_corrcoef(y, predicted),
        "kappa:weights=linear": sk.cohen_kappa_score(
            y, predicted, weights="linear", labels=labels, replace_undefined_by=0.0
        ),
    }
    x, t = torch.tensor(logits), torch.tensor(y)
    for spec, value in expected.items():
        # Where one class is never predicted, MCC approaches its limit 0 like the square root of T.
        loss = MetricLoss(spec, temperature=1e-14, absent="count").double()
        assert 1 - loss(x, t).item() == pytest.approx(value, abs=1e-6), spec


def test_macro_average_skips_absent_classes_unless_told_to_count_them():
    logits = torch.tensor([[9.0, 0.0, 0.0], [0.0, 9.0, 0.0]])
    target = torch.tensor([0, 1])
    assert MetricLoss("f1", temperature=1e-4)(logits, target).item() == pytest.approx(0, abs=1e-3)
    counted = MetricLoss("f1", temperature=1e-4, absent="count")(logits, target)
    assert counted.item() == pytest.approx(1 / 3, abs=1e-3)


def test_bare_f1_is_macro_for_multiclass_and_the_positive_class_for_binary():
    scores = torch.tensor([2.0, -2.0, 1.0, -0.5])
    target = torch.tensor([1, 0, 0, 1])
    two = torch.stack([torch.zeros(4), scores], dim=1)
    predicted = (scores > 0).long()
    low = {"temperature": 1e-6}
    binary = 1 - MetricLoss("f1", task="binary", **low)(scores, target).item()
    multiclass = 1 - MetricLoss("f1", **low)(two, target).item()
    assert binary == pytest.approx(sk.f1_score(target, predicted), abs=1e-5)
    assert multiclass == pytest.approx(sk.f1_score(target, predicted, average="macro"), abs=1e-5)


def test_loss_is_distance_from_the_perfect_value_in_the_metrics_direction():
    logits, target = batch()
    for spec in MULTICLASS_SPECS:
        metric = metrics.get(spec)
        if isinstance(metric, metrics.Constrained):
            continue
        loss = MetricLoss(spec, absent="count").double()(logits, target).item()
        value = MetricLoss(spec, absent="count").double().diagnose(logits, target).soft_value
        sign = 1 if metric.greater_is_better else -1
        assert loss == pytest.approx(sign * (metric.perfect - value)), spec


def test_perfect_confident_predictions_have_no_loss():
    target = torch.tensor([0, 1, 2, 1])
    logits = torch.nn.functional.one_hot(target, 3) * 200.0
    for spec in MULTICLASS_SPECS:
        if spec not in ("predicted_share", "predicted_count", "recall_at"):  # whose best is out of reach
            assert MetricLoss(spec)(logits, target).item() == pytest.approx(0, abs=2e-2), spec


def test_callable_metric_of_the_design_document():
    logits, target = batch((6, 2))
    loss = MetricLoss(lambda cm: cm.tp[1] / (cm.tp[1] + cm.fp[1] + 3 * cm.fn[1])).double()
    c = loss.confusion(logits, target).matrix.tolist()
    expected = 1 - c[1][1] / (c[1][1] + c[0][1] + 3 * c[1][0])
    assert loss(logits, target).item() == pytest.approx(expected)
    assert torch.autograd.gradcheck(lambda x: loss(x, target), (logits,))


def test_penalty_of_a_constraint_is_added_only_where_it_is_missed():
    logits, target = batch()
    free = MetricLoss("precision[1]").double()(logits, target)
    met = MetricLoss("precision[1] subject to recall[1] >= 0.01").double()(logits, target)
    missed = MetricLoss("precision[1] subject to recall[1] >= 0.99").double()(logits, target)
    recall = 1 - MetricLoss("recall[1]").double()(logits, target)
    assert met.item() == pytest.approx(free.item())
    assert missed.item() == pytest.approx(free.item() + 10 * (0.99 - recall.item()))


def test_everything_at_once_equals_a_loop():
    generator = torch.Generator().manual_seed(11)
    logits = torch.randn(3, 4, 2, 3, generator=generator, dtype=torch.float64)
    target = torch.randint(0, 4, (3, 2, 3), generator=generator)
    target[0, 0, 0] = target[2, 1, 2] = -100
    sample_weight = torch.rand(3, 2, 3, generator=generator, dtype=torch.float64)
    weight = torch.tensor([1.0, 2.0, 0.5, 3.0], dtype=torch.float64)
    expected = helper.soft_multiclass(
        logits.numpy(), target.numpy(), helper.plain_step("annealed", 0.2),
        weight=weight.tolist(), sample_weight=sample_weight.numpy(),
    )  # fmt: skip
    loss = MetricLoss("f1", weight=weight).double()
    value = loss(logits, target, sample_weight=sample_weight)
    assert value.item() == pytest.approx(1 - macro_f1(expected), abs=1e-7)


@given(seed=st.integers(0, 10**6), scale=st.sampled_from([1e-12, 1e-3, 1.0, 1e3, 1e12]))
def test_value_does_not_change_with_the_scale_of_weights_or_the_order_of_samples(seed, scale):
    generator = torch.Generator().manual_seed(seed)
    logits, target = batch((20, 4), seed=seed)
    weight = torch.rand(20, generator=generator, dtype=torch.float64) + 0.1
    order = torch.randperm(20, generator=generator)
    for spec in ("f1", "mcc", "kappa", "gmean"):
        loss = MetricLoss(spec).double()
        value = loss(logits, target, weight).item()
        assert loss(logits[order], target[order], weight[order]).item() == pytest.approx(value, abs=1e-12)
        assert loss(logits, target, weight * scale).item() == pytest.approx(value, abs=1e-12)


def test_integer_weights_equal_repeated_samples():
    logits, target = batch((6, 3))
    repeats = torch.tensor([1, 2, 3, 1, 0, 2])
    loss = MetricLoss("mcc").double()
    weighted = loss(logits, target, repeats.double())
    repeated = loss(logits.repeat_interleave(repeats, 0), target.repeat_interleave(repeats))
    assert weighted.item() == pytest.approx(repeated.item())


def test_counting_in_blocks_changes_neither_value_nor_gradient(monkeypatch):
    for spec, task in (("f1", "multiclass"), ("auroc:grid=9", "multiclass"), ("mcc", "multilabel")):
        logits, target = batch((50, 3), seed=2)
        target = target if task == "multiclass" else (logits.detach() > 0.3).long()
        loss = MetricLoss(spec, task=task).double()
        values = []
        for whole, block in ((2**25, 2**22), (1, 20)):
            monkeypatch.setattr(counting, "WHOLE_ELEMENTS", whole)
            monkeypatch.setattr(counting, "BLOCK_ELEMENTS", block)
            (gradient,) = torch.autograd.grad(loss(logits, target), logits)
            values.append((loss(logits.detach(), target), gradient))
        torch.testing.assert_close(values[0], values[1], rtol=1e-12, atol=1e-14)


def test_large_batches_of_many_classes_stay_within_two_gigabytes():
    script = """
import resource, torch
from metricfit import MetricLoss
n, d = 65_536, 1_000
logits, target = torch.randn(n, d, requires_grad=True), torch.randint(0, d, (n,))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
MetricLoss("f1")(logits, target).backward()
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024**2)
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert float(result.stdout) < 2


def test_extreme_logits_give_finite_values_and_gradients():
    for classes in (2, 1000):
        logits = torch.zeros(3, classes)
        logits[0, 0], logits[1, 1], logits[2, 0] = 1e4, -1e4, 1e4
        logits.requires_grad_()
        for spec in ("f1", "mcc", "kappa", "gmean", "auroc"):
            value = MetricLoss(spec)(logits, torch.tensor([0, 1, 1]))
            (gradient,) = torch.autograd.grad(value, logits)
            assert value.isfinite()
            assert gradient.isfinite().all()


def test_a_single_sample_and_a_single_class_are_finite():
    logits = torch.randn(1, 3, requires_grad=True)
    for spec in MULTICLASS_SPECS:
        value = MetricLoss(spec)(logits, torch.tensor([2]))
        (gradient,) = torch.autograd.grad(value, logits)
        assert value.isfinite(), spec
        assert gradient.isfinite().all(), spec


def test_signature_that_outside_checks_rely_on():
    parameters = inspect.signature(MetricLoss.__init__).parameters
    defaults = {name: parameters[name].default for name in ("task", "temperature", "weight", "ignore_index")}
    assert defaults == {"task": "multiclass", "temperature": 0.2, "weight": None, "ignore_index": -100}
    assert all(p.kind is p.KEYWORD_ONLY for name, p in parameters.items() if name not in ("self", "metric"))


def test_functional_twin_is_the_same():
    logits, target = batch()
    assert metric_loss(logits, target, "mcc", temperature=0.1).item() == pytest.approx(
        MetricLoss("mcc", temperature=0.1).double()(logits, target).item(), abs=1e-7
    )
    temperature = torch.tensor(0.1, dtype=torch.float64)
    assert metric_loss(logits, target, "mcc", temperature=temperature).item() == pytest.approx(
        MetricLoss("mcc", temperature=0.1).double()(logits, target).item(), abs=1e-7
    )
    with pytest.raises(ValueError, match="temperature: has no effect"):
        metric_loss(logits, target, "mcc", step="identity", temperature=temperature)
    with pytest.raises(TypeError, match="memory: a function keeps none"):
        metric_loss(logits, target, "mcc", memory=0.9)


def test_functional_form_builds_no_module_per_call(monkeypatch):
    logits, target = batch()
    weight = torch.rand(logits.shape[1])
    options = {"cross_entropy": 0.5, "balance": "sqrt", "prior": torch.ones(logits.shape[1])}
    first = metric_loss(logits, target, "f1", weight=weight, **options)
    monkeypatch.setattr(MetricLoss, "__init__", lambda *_, **__: pytest.fail("a module was built"))
    options["prior"] = options["prior"].clone()
    assert metric_loss(logits, target, "f1", weight=weight, temperature=0.2, **options) == first
    assert metric_loss(logits, target, "f1", weight=2 * weight + 0.1, temperature=0.1, **options) != first


def test_the_highest_temperature_is_allowed_in_every_type_of_number():
    logits, target = batch()
    expected = MetricLoss("mcc", temperature=0.4)(logits, target).item()
    assert MetricLoss("mcc", temperature=np.float64(0.4))(logits, target).item() == expected
    assert metric_loss(logits, target, "mcc", temperature=torch.tensor(0.4)).item() == expected
    assert MetricLoss("mcc", temperature=np.float32(0.25)).temperature.item() == 0.25


def test_ranking_losses_tend_to_the_area_at_many_thresholds():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 400)
    scores = rng.normal(size=400) + y
    x, t = torch.tensor(scores), torch.tensor(y)
    auroc = 1 - MetricLoss("auroc:grid=2000", task="binary", temperature=1e-6).double()(x, t).item()
    auprc = 1 - MetricLoss("auprc:grid=2000", task="binary", temperature=1e-6).double()(x, t).item()
    assert auroc == pytest.approx(sk.roc_auc_score(y, scores), abs=2e-3)
    assert auprc == pytest.approx(sk.average_precision_score(y, scores), abs=2e-3)


def weighted(prior, **options):
    return MetricLoss("f1", cross_entropy=0.5, balance="sqrt", prior=prior, **options)


def warm(temperature):
    return metric_loss(torch.zeros(2, 2), torch.tensor([0, 1]), "f1", temperature=temperature)


BAD = [
    (lambda: MetricLoss("f1")(torch.zeros(3), torch.zeros(3, dtype=torch.long)), ValueError, r"input: .*\(N, C"),
    (
        lambda: MetricLoss("f1")(torch.zeros(3, 2), torch.zeros(4, dtype=torch.long)),
        ValueError,
        "target: .*class indices",
    ),
    (lambda: MetricLoss("f1")(torch.zeros(3, 2), torch.zeros(3)), TypeError, "target: expected integer class indices"),
    (lambda: MetricLoss("f1")(torch.zeros(3, 2), torch.zeros(3, 2).long()), TypeError, "target: one value per class"),
    (lambda: MetricLoss("f1")(torch.zeros(3, 2).long(), torch.zeros(3).long()), TypeError, "input: expected floating"),
    (lambda: MetricLoss("f1")([[0.0, 1.0]], torch.zeros(1).long()), TypeError, "input: expected a torch.Tensor"),
    (lambda: MetricLoss("f1")(torch.zeros(3, 2), torch.tensor([0, 1, 2])), ValueError, "target: .*from 0 to 1.*got 2"),
    (lambda: MetricLoss("f1")(torch.zeros(3, 2), torch.tensor([0, 1, -1])), ValueError, "target: .*got -1"),
    (lambda: MetricLoss("f1")(torch.zeros(0, 2), torch.zeros(0).long()), ValueError, "input: the batch is empty"),
    (
        lambda: MetricLoss("f1")(torch.full((3, 2), torch.nan), torch.zeros(3).long()),
        ValueError,
        "input: NaN logits in 3",
    ),
    (lambda: MetricLoss("f1", temperature=0.0), ValueError, "temperature: expected 0 < T"),
    (lambda: MetricLoss("f1", temperature=-1.0), ValueError, "temperature"),
    (lambda: MetricLoss("f1", temperature=0.5), ValueError, "temperature"),
    (lambda: MetricLoss("f1").set_temperature(0), ValueError, "temperature"),
    (
        lambda: MetricLoss("f1", step="sigmoid").set_temperature(0.1),
        ValueError,
        "temperature: step='sigmoid:k=10' has none",
    ),
    (lambda: MetricLoss("f1", step="sigmoid", temperature=0.1), ValueError, "temperature: has no effect"),
    (lambda: MetricLoss("f1", step="linear:delta=0.7"), ValueError, "delta: expected"),
    (lambda: MetricLoss("f1", step="sigmoid:k=-1"), ValueError, "k: expected"),
    (lambda: MetricLoss("f1", step="softmax"), ValueError, "step: unknown name 'softmax'"),
    (lambda: MetricLoss("f1", step="annealed:temperature=0.1", temperature=0.3), ValueError, "temperature: .*already"),
    (lambda: MetricLoss("f1", members=0), ValueError, "members: expected a whole number >= 1"),
    (lambda: MetricLoss("f1", members=2, temperature=[0.1, 0.2, 0.3]), ValueError, "one per member, 2 in all"),
    (
        lambda: MetricLoss("f1", members=2)(torch.zeros(3, 4, 2), torch.zeros(3, 4).long()),
        ValueError,
        r"input: .*\(2, N, C, …\) for 2 members, got \(3, 4, 2\)",
    ),
    (lambda: MetricLoss("f1", step=3), TypeError, "step: expected"),
    (lambda: MetricLoss("f1", step="amplifier"), ValueError, "step: the amplifier"),
    (lambda: MetricLoss("f1", threshold=0.3), ValueError, "threshold: has no effect"),
    (lambda: MetricLoss("f1", task="binary", threshold=1.0), ValueError, "threshold: expected"),
    (lambda: MetricLoss("f1", task="binary", threshold=[[0.5]]), ValueError, "threshold: expected"),
    (lambda: MetricLoss("auroc", task="binary", threshold=0.3), ValueError, "threshold: has no effect with auroc"),
    (lambda: MetricLoss("f1", task="binary", threshold=[0.3, 0.4]), ValueError, "threshold: expected .*got 2"),
    (
        lambda: MetricLoss("f1", task="multilabel", threshold=[0.3, 0.4])(torch.zeros(2, 3), torch.ones(2, 3)),
        ValueError,
        "threshold: expected one number or 3, one per label",
    ),
    (lambda: weighted(torch.ones(5))(torch.zeros(2, 3), torch.tensor([0, 1])), ValueError, "prior: expected 3"),
    (lambda: weighted(torch.ones(1))(torch.zeros(2, 3), torch.tensor([0, 1])), ValueError, "prior: expected 3"),
    (
        lambda: weighted(torch.ones(1))(torch.zeros(2, 3), torch.tensor([0, 1]), torch.ones(2)),
        ValueError,
        "prior: expected 3",
    ),
    (lambda: weighted(torch.tensor([0.1]), task="binary"), ValueError, "prior: expected 2"),
    (lambda: weighted(torch.tensor([9.0, 0.1]), task="multilabel"), ValueError, "prior: .*positive share"),
    (
        lambda: MetricLoss("f1", labels=["a", "b"])(torch.zeros(2, 3), torch.tensor([0, 1])),
        ValueError,
        "labels: expected 3",
    ),
    (lambda: MetricLoss("f1", ignore_index=None), TypeError, "ignore_index: expected a whole number, got None"),
    (lambda: MetricLoss("f1", temperature="hot"), TypeError, "temperature: expected a number, got str"),
    (lambda: warm(torch.tensor(0.5)), ValueError, "temperature: expected 0 < T <= 0.4, got 0.5"),
    (lambda: warm(torch.tensor(-1.0)), ValueError, "temperature: expected 0 < T"),
    (lambda: warm(torch.tensor([0.1, 0.2])), ValueError, r"temperature: .*one .*number, got .*\(2,\)"),
    (lambda: warm(torch.tensor(1)), ValueError, "temperature: .*int64"),
    (lambda: MetricLoss("fbeta:beta=-1"), ValueError, "beta: expected"),
    (lambda: MetricLoss("f1", average="makro"), ValueError, "average: expected"),
    (lambda: MetricLoss("f1_macro", average="micro"), ValueError, "average: .*already"),
    (lambda: MetricLoss("f1 + mcc", average="micro"), ValueError, "average: has no effect"),
    (lambda: MetricLoss("f1", average="none"), ValueError, "average: 'none'"),
    (lambda: MetricLoss("f1", task="regression"), ValueError, "task: expected"),
    (lambda: MetricLoss("f1", absent="drop"), ValueError, "absent: expected"),
    (lambda: MetricLoss("f1", memory=1.0), ValueError, "memory: expected"),
    (lambda: MetricLoss("f1", cross_entropy=-1.0), ValueError, "cross_entropy: expected"),
    (lambda: MetricLoss("f1", balance="sqrt"), ValueError, "balance: has no effect"),
    (lambda: MetricLoss("f1", cross_entropy=1.0, balance="log"), ValueError, "balance: expected"),
    (lambda: MetricLoss("f1", cross_entropy=1.0, prior=torch.ones(2)), ValueError, "prior: has no effect"),
    (lambda: MetricLoss("f1", weight=torch.tensor([-1.0, 1.0])), ValueError, "weight: expected"),
    (lambda: MetricLoss(3.0), TypeError, "metric: expected"),
    (lambda: MetricLoss("recall[fraud]")(torch.zeros(2, 2), torch.tensor([0, 1])), ValueError, "class 'fraud'"),
    (lambda: MetricLoss("recall[7]")(torch.zeros(2, 2), torch.tensor([0, 1])), ValueError, "class 7"),
    (lambda: MetricLoss("f1 + open('x')"), ValueError, "calls 'open'"),
    (lambda: MetricLoss("f1.__class__"), ValueError, "metric: in"),
    (lambda: MetricLoss(lambda cm: 0.5)(torch.zeros(2, 2), torch.tensor([0, 1])), TypeError, "scalar tensor"),
    (lambda: MetricLoss(lambda cm: cm.tp)(torch.zeros(2, 2), torch.tensor([0, 1])), ValueError, "scalar tensor"),
    (
        lambda: MetricLoss("f1", from_probabilities=True)(torch.full((2, 2), 3.0), torch.tensor([0, 1])),
        ValueError,
        "input: expected probabilities",
    ),
    (
        lambda: MetricLoss("f1", from_probabilities=True)(torch.full((2, 2), 0.3), torch.tensor([0, 1])),
        ValueError,
        "must sum to 1",
    ),
]


@pytest.mark.parametrize("case", range(len(BAD)))
def test_bad_input_gets_one_clear_message(case):
    call, kind, message = BAD[case]
    with pytest.raises(kind, match=message) as raised:
        call()
    assert "\n" not in str(raised.value)


def test_nan_propagates_when_validation_is_off():
    logits = torch.full((3, 2), torch.nan)
    assert MetricLoss("f1", validate=False)(logits, torch.tensor([0, 1, 0])).isnan()


def test_labels_name_classes_in_expressions():
    logits, target = batch((6, 2))
    named = MetricLoss("recall[fraud]", labels=["ok", "fraud"]).double()(logits, target)
    indexed = MetricLoss("recall[1]").double()(logits, target)
    assert named.item() == indexed.item()
