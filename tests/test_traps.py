"""How comparable libraries fail; each test pins one line of that list ("wrong numbers", then "NaN, inf, dtype")."""

import warnings

import pytest
import sklearn.metrics as sk
import torch
from hypothesis import given
from hypothesis import strategies as st

from metricfit import ConfusionMatrix, MetricLoss, losses, metrics
from metricfit.confusion import soft_confusion_matrix
from metricfit.steps import Annealed, get


@given(
    seed=st.integers(0, 10**6),
    tau=st.floats(0.01, 0.99),
    step=st.sampled_from(["annealed", "linear", "sigmoid"]),
    task=st.sampled_from(["binary", "multilabel", "multiclass"]),
    temperature=st.floats(1e-6, 0.4),
)
def test_cells_sum_to_the_weights_for_every_threshold_temperature_and_step(seed, tau, step, task, temperature):
    generator = torch.Generator().manual_seed(seed)
    shape = {"binary": (17,), "multilabel": (17, 3), "multiclass": (17, 3)}[task]
    logits = torch.randn(shape, generator=generator, dtype=torch.float64) * 3
    weight = torch.rand(17, generator=generator, dtype=torch.float64)
    target = torch.randint(0, 2, shape if task == "multilabel" else (17,), generator=generator)
    options = {} if task == "multiclass" else {"threshold": tau}
    function = Annealed(temperature) if step == "annealed" else get(step)
    cm = soft_confusion_matrix(logits, target, task=task, step=function, sample_weight=weight, **options)
    sums = cm.matrix.sum(dim=(-1, -2))
    torch.testing.assert_close(sums, weight.sum().expand_as(sums))


def test_a_near_perfect_three_class_prediction_has_a_small_loss():
    target = torch.tensor([0, 1, 2, 0, 1, 2])
    logits = torch.nn.functional.one_hot(target, 3) * 12.0
    assert MetricLoss("f1")(logits, target).item() < 0.01


def test_an_argument_without_effect_is_an_error():
    for options in ({"threshold": 0.3}, {"step": "linear", "temperature": 0.1}, {"prior": torch.ones(3)}):
        with pytest.raises(ValueError, match="has no effect"):
            MetricLoss("f1", **options)


def test_an_unknown_name_lists_close_matches():
    with pytest.raises(ValueError, match="did you mean 'balanced_accuracy'"):
        MetricLoss("balanced_acuracy")


def test_a_batch_is_scored_by_its_own_size():
    logits, target = torch.randn(8, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1] * 4)
    loss = losses.AnyLoss("accuracy")
    torch.testing.assert_close(loss(logits, target), loss(logits.repeat(5), target.repeat(5)))


@pytest.mark.parametrize(
    "loss",
    [MetricLoss("f1"), MetricLoss("mcc", cross_entropy=1.0), losses.DiceLoss(), losses.FocalLoss(), losses.MAELoss()],
    ids=lambda loss: type(loss).__name__,
)
def test_backward_respects_the_incoming_gradient(loss):
    logits = torch.randn(9, 3, generator=torch.Generator().manual_seed(0), requires_grad=True)
    target = torch.arange(9) % 3
    (once,) = torch.autograd.grad(loss(logits, target), logits)
    (scaled,) = torch.autograd.grad(loss(logits, target), logits, grad_outputs=torch.tensor(1000.0))
    torch.testing.assert_close(scaled, 1000 * once)


def test_all_wrong_scores_zero_whatever_is_absent():
    # Two of three classes are absent: counting them as perfect would score 2/3, as one does 0.33.
    logits = torch.tensor([[0.0, 50.0, 0.0]] * 4)
    for spec in ("f1", "jaccard", "recall"):
        for absent in ("skip", "count"):
            value = 1 - MetricLoss(spec, absent=absent, temperature=1e-6)(logits, torch.zeros(4).long()).item()
            assert value == pytest.approx(0, abs=1e-5)


def test_logits_are_never_taken_for_probabilities():
    # These logits lie in [0, 1]: a library that guesses would skip the sigmoid.
    logits, target = torch.tensor([0.2, 0.9]), torch.tensor([0, 1])
    as_logits = MetricLoss("accuracy", task="binary")(logits, target)
    as_probabilities = MetricLoss("accuracy", task="binary", from_probabilities=True)(logits, target)
    torch.testing.assert_close(as_logits, MetricLoss("accuracy", task="binary")(logits + 0.0, target))
    assert as_logits.item() > 0.3 > as_probabilities.item()


@pytest.mark.parametrize("name", metrics.available())
def test_every_metric_states_range_and_direction(name):
    metric = metrics.get(name)
    low, high = metric.range
    assert low < high
    assert metric.greater_is_better in (True, False)
    assert metric.perfect in (low, high)


def test_mcc_is_that_of_scikit_learn_on_degenerate_batches_with_a_finite_gradient():
    for target, sign in (([0, 0, 0], 1), ([1, 1, 1], 1), ([0, 1, 0], 1), ([0, 0, 0], -1)):
        scores = torch.tensor([-30.0, -30.0, -30.0]) * sign
        logits = torch.stack([torch.zeros(3), scores], dim=1).requires_grad_()
        t = torch.tensor(target)
        for loss, x in ((MetricLoss("mcc"), logits), (MetricLoss("mcc", task="binary"), logits[:, 1])):
            value = loss(x, t)
            (gradient,) = torch.autograd.grad(value, logits)
            predicted = (scores > 0).long()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # scikit-learn warns of a single label
                expected = sk.matthews_corrcoef(target, predicted)
            assert 1 - value.item() == pytest.approx(expected, abs=1e-3)
            assert gradient.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("spec", ["f1", "mcc", "jaccard", "kappa"])
def test_half_precision_images_give_no_nan(dtype, spec):
    generator = torch.Generator().manual_seed(0)
    logits = (torch.randn(1, 2, 512, 512, generator=generator) * 8).to(dtype).requires_grad_()
    target = torch.randint(0, 2, (1, 512, 512), generator=generator)
    value = MetricLoss(spec)(logits, target)
    (gradient,) = torch.autograd.grad(value, logits)
    assert value.isfinite()
    assert gradient.isfinite().all()


@pytest.mark.parametrize("name", [n for n in metrics.available() if not metrics.get(n).judges_scores])
def test_zero_over_zero_has_a_finite_gradient(name):
    matrix = torch.zeros(2, 2, dtype=torch.float64, requires_grad=True)
    for zero_division in (0.0, 1.0):
        metric = metrics.get(f"{name}:zero_division={zero_division}")
        value = metric(ConfusionMatrix(matrix, task="binary"))
        (gradient,) = torch.autograd.grad(value, matrix)
        assert value.isfinite()
        assert gradient.isfinite().all()


@pytest.mark.parametrize("task", ["binary", "multilabel", "multiclass"])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_a_nan_at_an_ignored_position_does_not_poison(task, bad):
    generator = torch.Generator().manual_seed(0)
    shape = {"binary": (6,), "multilabel": (6, 2), "multiclass": (6, 3)}[task]
    target = torch.randint(0, 2, shape if task != "multiclass" else (6,), generator=generator)
    clean = torch.randn(shape, generator=generator)
    dirty = clean.clone()
    dirty[0] = bad
    target[0] = -100
    dirty.requires_grad_()
    loss = MetricLoss("f1", task=task, cross_entropy=0.5)
    value = loss(dirty, target)
    (gradient,) = torch.autograd.grad(value, dirty)
    torch.testing.assert_close(value, loss(clean, target))
    assert gradient.isfinite().all()
    assert (gradient[0] == 0).all()


@pytest.mark.parametrize("task", ["binary", "multilabel", "multiclass"])
@pytest.mark.parametrize("spec", ["f1", "mcc", "auroc", "gmean", "fpr", "kappa"])
def test_a_batch_where_everything_is_ignored_is_a_zero_with_zero_gradient(task, spec):
    shape = {"binary": (6,), "multilabel": (6, 2), "multiclass": (6, 3)}[task]
    logits = torch.randn(shape, requires_grad=True)
    target = torch.full(shape if task != "multiclass" else (6,), -100)
    value = MetricLoss(spec, task=task, cross_entropy=0.5)(logits, target)
    assert value.ndim == 0
    assert value.item() == 0
    value.backward()
    assert (logits.grad == 0).all()


def test_vanishing_gradients_are_reported():
    logits = torch.tensor([-2.2, 2.2, 0.0, 0.1])  # p = 0.1 and 0.9: the amplifier's slope there is 1.5e-11
    report = losses.AnyLoss("f1").diagnose(logits, torch.tensor([1, 0, 1, 0]))
    assert report.share_without_gradient == 0.5
    assert report.gap != 0
