"""The comparison losses against torch, plain formulas and plain loops."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from metricfit import ConfusionMatrix, MetricLoss, losses, metrics

RNG = np.random.default_rng(0)
BINARY = torch.tensor(RNG.normal(size=14), requires_grad=True)
LABEL = torch.tensor([1, 0, 0, 1, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0])
MANY = torch.tensor(RNG.normal(size=(12, 3)), requires_grad=True)
CLASS = torch.tensor([0, 1, 2] * 4)
WEIGHT = torch.tensor(RNG.uniform(0.2, 2.0, size=14))

BINARY_LOSSES = [
    losses.MAELoss(task="binary"),
    losses.DiceLoss(task="binary"),
    losses.DiceLoss(task="binary", squared=True),
    losses.FocalLoss(task="binary"),
    losses.FocalLoss(task="binary", gamma=0.5),
    losses.WMWLoss(margin=0.7, power=3),
    losses.SoftFBetaLoss(2.0, task="binary"),
    losses.AnyLoss("gmean", sharpness=5.0),
    losses.SOLLoss("mcc", delta=0.3),
    losses.SOLLoss(delta=None),
    losses.SurrogateFBetaLoss(2.0),
    losses.SurrogateFBetaLoss(q=0.7, positive_share=0.3),
    losses.SurrogateFBetaLoss(class_balanced=False),
    MetricLoss("auroc:grid=7", task="binary"),
    MetricLoss("auprc:grid=7", task="binary"),
]
MULTICLASS_LOSSES = [
    losses.MAELoss(),
    losses.DiceLoss(),
    losses.FocalLoss(),
    losses.SoftFBetaLoss((1.0, 2.0, 0.5)),
    losses.MultiSOLLoss(thresholds=4),
]


def name(loss):
    return type(loss).__name__


@pytest.mark.parametrize("loss", BINARY_LOSSES, ids=name)
def test_gradcheck_binary(loss):
    assert torch.autograd.gradcheck(lambda x: loss.double()(x, LABEL, WEIGHT), (BINARY,))


@pytest.mark.parametrize("loss", MULTICLASS_LOSSES, ids=name)
def test_gradcheck_multiclass(loss):
    assert torch.autograd.gradcheck(lambda x: loss.double()(x, CLASS), (MANY,))


@pytest.mark.parametrize("loss", BINARY_LOSSES, ids=name)
def test_ignored_nan_positions_change_nothing_and_all_ignored_is_zero(loss):
    loss = loss.double()
    logits = torch.cat([BINARY.detach(), torch.tensor([torch.nan])]).requires_grad_()
    target = torch.cat([LABEL, torch.tensor([-100])])
    value = loss(logits, target)
    (gradient,) = torch.autograd.grad(value, logits)
    torch.testing.assert_close(value, loss(BINARY, LABEL))
    assert gradient.isfinite().all()
    assert gradient[-1] == 0
    nothing = loss(logits, torch.full_like(target, -100))
    (gradient,) = torch.autograd.grad(nothing, logits)
    assert nothing.item() == 0
    assert (gradient == 0).all()


@pytest.mark.parametrize("loss", BINARY_LOSSES, ids=name)
def test_finite_at_extreme_logits_and_with_one_class_only(loss):
    for target in (torch.tensor([0, 1, 0, 1]), torch.zeros(4).long(), torch.ones(4).long()):
        logits = torch.tensor([1e4, 1e4, -1e4, -1e4], requires_grad=True)
        value = loss.float()(logits, target)
        (gradient,) = torch.autograd.grad(value, logits)
        assert value.isfinite()
        assert gradient.isfinite().all()


def test_mae_is_eq_14():
    p = MANY.detach().softmax(1)
    expected = np.mean([2 - 2 * p[i, CLASS[i]].item() for i in range(12)])
    assert losses.MAELoss()(MANY, CLASS).item() == pytest.approx(expected)


def test_focal_with_gamma_zero_is_cross_entropy_and_else_its_formula():
    weight = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    plain = losses.FocalLoss(gamma=0.0, weight=weight)(MANY, CLASS)
    torch.testing.assert_close(plain, F.cross_entropy(MANY, CLASS, weight=weight))
    truth = MANY.detach().softmax(1).gather(1, CLASS[:, None]).squeeze()
    expected = ((1 - truth) ** 2 * -truth.log()).mean()
    torch.testing.assert_close(losses.FocalLoss(gamma=2.0)(MANY.detach(), CLASS), expected)


def test_dice_is_its_formula_and_the_soft_f1():
    p, y = BINARY.detach().sigmoid(), LABEL.double()
    expected = 1 - 2 * (p * y).sum() / (p.sum() + y.sum())
    torch.testing.assert_close(losses.DiceLoss(task="binary")(BINARY.detach(), LABEL), expected)
    torch.testing.assert_close(losses.SoftFBetaLoss(task="binary")(BINARY.detach(), LABEL), expected)
    squared = 1 - 2 * (p * y).sum() / ((p**2).sum() + (y**2).sum())
    torch.testing.assert_close(losses.DiceLoss(task="binary", squared=True)(BINARY.detach(), LABEL), squared)


@given(seed=st.integers(0, 10**6), n=st.integers(2, 30), margin=st.floats(0.05, 1.0), power=st.integers(2, 4))
def test_wmw_equals_the_loop_over_pairs(seed, n, margin, power):
    rng = np.random.default_rng(seed)
    logits, y, w = rng.normal(size=n).round(1), rng.integers(0, 2, n), rng.uniform(0.1, 2, n)
    f = 1 / (1 + np.exp(-logits))
    pairs = [(i, j) for i in range(n) for j in range(n) if y[i] == 1 and y[j] == 0]
    total = sum(w[i] * w[j] * max(0, margin - (f[i] - f[j])) ** power for i, j in pairs)
    expected = total / sum(w[i] * w[j] for i, j in pairs) if pairs else 0.0
    loss = losses.WMWLoss(margin=margin, power=power)
    assert loss(torch.tensor(logits), torch.tensor(y), torch.tensor(w)).item() == pytest.approx(expected, abs=1e-12)


def eq_20(f, y, beta, p):
    return -math.log(f) if y else math.log(beta**2 * p / (1 - p) + f)


def eq_25(f, y, beta, p, q):
    return (1 - f**q) / q if y else ((beta**2 * p / (1 - p) + f) ** q - 1) / q


def slope_of(f, y, beta, p, q):
    """The derivative of eq. 20 or 25 with respect to the logit, whose sigmoid f is."""
    reached = beta**2 * p / (1 - p) + f
    by_f = (-1 / f if y else 1 / reached) if q is None else (-(f ** (q - 1)) if y else reached ** (q - 1))
    return by_f * f * (1 - f)


@pytest.mark.parametrize("q", [None, 0.3, 1.0])
@pytest.mark.parametrize("balanced", [True, False])
@pytest.mark.parametrize("share", [None, 0.1, 0.6])
def test_surrogate_fbeta_is_a_loop_over_eq_20_25_and_2(q, balanced, share):
    """The training set's p in the odds and in w_y = n / n_y, in value and gradient; by default the batch's."""
    beta, n = 2.0, len(LABEL)
    p = 4 / 14 if share is None else share
    value, gradient = 0.0, []
    for f, y in zip(BINARY.detach().sigmoid().tolist(), LABEL.tolist(), strict=True):
        weight = (1 / p if y else 1 / (1 - p)) if balanced else 1.0
        value += weight * (eq_20(f, y, beta, p) if q is None else eq_25(f, y, beta, p, q)) / n
        gradient.append(weight * slope_of(f, y, beta, p, q) / n)
    given = None if share is None else torch.tensor(share, dtype=torch.float64)
    found = losses.SurrogateFBetaLoss(beta, q=q, class_balanced=balanced, positive_share=given)(BINARY, LABEL)
    assert found.item() == pytest.approx(value, rel=1e-12)
    assert torch.autograd.grad(found, BINARY)[0].tolist() == pytest.approx(gradient, rel=1e-9, abs=1e-15)


def test_the_balanced_surrogate_is_the_sum_of_both_classes_means():
    """The third line of eq. 21: with the p of the very samples, each class counts by its mean."""
    f = BINARY.detach().sigmoid()
    means = [
        np.mean([eq_20(a, y, 1.0, 4 / 14) for a, b in zip(f.tolist(), LABEL, strict=True) if b == y]) for y in (0, 1)
    ]
    assert losses.SurrogateFBetaLoss()(BINARY, LABEL).item() == pytest.approx(sum(means))


def test_batches_of_the_surrogate_average_to_the_training_set_with_its_share():
    """With the training set's p the loss is a mean over samples, so equal batches have the mean of the whole."""
    halves = [[0, 3, 7, 1, 2, 4, 5], [10, 6, 8, 9, 11, 12, 13]]  # with three positives, and with one

    def mean_of_halves(loss):
        return sum(loss(BINARY[half], LABEL[half]) for half in halves) / 2

    loss = losses.SurrogateFBetaLoss(2.0, positive_share=torch.tensor(4 / 14, dtype=torch.float64))
    torch.testing.assert_close(mean_of_halves(loss), loss(BINARY, LABEL))
    assert (mean_of_halves(losses.SurrogateFBetaLoss(2.0)) - loss(BINARY, LABEL)).abs() > 0.01


@pytest.mark.parametrize("beta", [0.5, 1.0, 3.0])
def test_soft_fbeta_is_a_loop_over_eq_7_and_24(beta):
    f, y, n = BINARY.detach().sigmoid().tolist(), LABEL.tolist(), len(LABEL)
    p = sum(y) / n
    q0 = sum(1 - a for a, b in zip(f, y, strict=True) if b) / sum(y)
    q1 = sum(a for a, b in zip(f, y, strict=True) if not b) / (n - sum(y))
    below = p * (beta**2 + 1 - q0 - q1) + q1
    found = losses.SoftFBetaLoss(beta, task="binary").double()(BINARY, LABEL)
    assert found.item() == pytest.approx(1 - (1 + beta**2) * p * (1 - q0) / below, rel=1e-12)
    by_q0 = (1 + beta**2) * p * (below - p * (1 - q0)) / below**2
    by_q1 = (1 + beta**2) * p * (1 - q0) * (1 - p) / below**2
    slopes = [(-by_q0 / sum(y) if b else by_q1 / (n - sum(y))) * a * (1 - a) for a, b in zip(f, y, strict=True)]
    assert torch.autograd.grad(found, BINARY)[0].tolist() == pytest.approx(slopes, rel=1e-9)


def proportions(theta, x, y):
    """The smoothed proportions of eq. 7 of a linear classifier, and their gradients with respect to its parameters."""
    f = (x @ theta).sigmoid()
    q0, q1 = (1 - f)[y == 1].mean(), f[y == 0].mean()
    return (q0, torch.autograd.grad(q0, theta, retain_graph=True)[0]), (q1, torch.autograd.grad(q1, theta)[0])


@pytest.mark.parametrize("beta", [0.5, 2.0])
def test_gradient_conditions_of_the_surrogate_cross_entropy_and_mae(beta):
    """Where all positives, and all negatives, look alike, Jensen's approximation is exact, and so are the conditions.

    The gradients of the balanced losses are then q0' / (1 - q0) + q1' / (β² p / (1 - p) + q1) (eq. 22; that of log Fβ
    vanishes at the same points, eq. 12), q0' / (1 - q0) + q1' / (1 - q1) (eq. 17) and 2 q0' + 2 q1' (eq. 19).
    """
    generator = torch.Generator().manual_seed(0)
    y = torch.tensor([1] * 3 + [0] * 9)
    alike = torch.randn(2, 4, generator=generator, dtype=torch.float64)
    x, p = alike[y], 0.25
    theta = torch.randn(4, generator=generator, dtype=torch.float64, requires_grad=True)
    (q0, by_q0), (q1, by_q1) = proportions(theta, x, y)
    odds = beta**2 * p / (1 - p)

    def gradient(loss):
        return torch.autograd.grad(loss, theta)[0]

    logits = x @ theta
    surrogate = losses.SurrogateFBetaLoss(beta, positive_share=p)(logits, y)
    torch.testing.assert_close(gradient(surrogate), by_q0 / (1 - q0) + by_q1 / (odds + q1))
    below = p * (beta**2 + 1 - q0 - q1) + q1  # z of eq. 11 without its factor 1 - q0
    log_score = -by_q0 * (beta**2 * p - p * q1 + q1) + by_q1 * (p - p * q0 - 1 + q0)
    log_score = log_score / ((1 - q0) * below)
    soft = 1 - losses.SoftFBetaLoss(beta, task="binary").double()(x @ theta, y)
    torch.testing.assert_close(gradient(soft.log()), log_score)  # eq. 11
    ratio = log_score / -(by_q0 / (1 - q0) + by_q1 / (odds + q1))
    torch.testing.assert_close(ratio, ratio[0].expand(4))  # the same critical points, hence eq. 12 and 22
    balanced = torch.tensor([1 / (1 - p), 1 / p], dtype=torch.float64)
    mae = losses.MAELoss(task="binary", weight=balanced)(x @ theta, y)  # divided by the sum of the weights, 2 n
    torch.testing.assert_close(2 * gradient(mae), 2 * by_q0 + 2 * by_q1)
    plain = losses.FocalLoss(gamma=0.0, task="binary", weight=balanced)(x @ theta, y)  # cross-entropy
    torch.testing.assert_close(2 * gradient(plain), by_q0 / (1 - q0) + by_q1 / (1 - q1))


def test_surrogate_fbeta_tends_to_eq_20_and_to_mae():
    limit = losses.SurrogateFBetaLoss()(BINARY, LABEL).item()
    assert losses.SurrogateFBetaLoss(q=1e-7)(BINARY, LABEL).item() == pytest.approx(limit, abs=1e-5)
    robust = losses.SurrogateFBetaLoss(q=1.0, positive_share=0.5, class_balanced=False)
    mae = losses.MAELoss(task="binary")(BINARY, LABEL)
    # y (1 - f) + (1 - y) (1 + f - 1) is half the MAE.
    assert robust(BINARY, LABEL).item() == pytest.approx(mae.item() / 2)


def test_surrogate_fbeta_of_labels_is_the_mean_of_its_labels():
    logits = torch.stack([BINARY.detach(), -BINARY.detach()], dim=1)
    target = torch.stack([LABEL, 1 - LABEL], dim=1)
    both = losses.SurrogateFBetaLoss(task="multilabel")(logits, target)
    each = [losses.SurrogateFBetaLoss()(logits[:, k], target[:, k]) for k in range(2)]
    torch.testing.assert_close(both, sum(each) / 2)


def test_anyloss_amplifies_probabilities():
    h = 1 / (1 + torch.exp(-73 * (BINARY.detach().sigmoid() - 0.5)))
    y = LABEL.double()
    expected = 1 - 2 * (h * y).sum() / (h.sum() + y.sum())
    torch.testing.assert_close(losses.AnyLoss("f1").double()(BINARY.detach(), LABEL), expected)


@pytest.mark.parametrize("delta", [0.4, None])
@pytest.mark.parametrize("metric", ["f1", "mcc", "accuracy"])
def test_sol_is_the_metric_of_counts_averaged_over_a_density_of_thresholds(metric, delta):
    """Quadrature over thresholds: exact counts at each, weighted by the density of the threshold."""
    p, y = BINARY.detach().sigmoid().numpy(), LABEL.numpy()
    taus = (np.arange(200_000) + 0.5) / 200_000
    density = np.ones_like(taus)
    if delta is not None:
        inside = np.abs(taus - 0.5) < delta
        density = np.where(inside, (1 + np.cos(np.pi * (taus - 0.5) / delta)) / (2 * delta), 0.0)
    yes = np.array([(density * (taus < one)).mean() for one in p])
    matrix = [[((1 - yes) * (y == c)).sum(), (yes * (y == c)).sum()] for c in (0, 1)]
    expected = 1 - metrics.get(metric)(ConfusionMatrix(torch.tensor(matrix), "binary")).item()
    found = losses.SOLLoss(metric, delta=delta).double()(BINARY, LABEL).item()
    assert found == pytest.approx(expected, abs=1e-4)


def test_multisol_is_a_loop_over_thresholds_samples_and_classes():
    taus = torch.tensor(RNG.dirichlet([1, 1, 1], size=5))
    p, n, lam = MANY.detach().softmax(1).tolist(), len(CLASS), 7.0
    chance = [[0.0] * 3 for _ in range(n)]
    for tau in taus.tolist():
        for i in range(n):
            for j in range(3):
                gaps = [p[i][j] - p[i][k] - (tau[j] - tau[k]) for k in range(3) if k != j]
                chance[i][j] += math.prod(1 / (1 + math.exp(-lam * gap)) for gap in gaps) / len(taus)
    recalls = [np.mean([chance[i][j] for i in range(n) if CLASS[i] == j]) for j in range(3)]
    hits = [sum(chance[i][j] for i in range(n) if CLASS[i] == j) for j in range(3)]
    precisions = [hits[j] / sum(chance[i][j] for i in range(n)) for j in range(3)]
    scores = [2 * a * b / (a + b) for a, b in zip(recalls, precisions, strict=True)]
    found = losses.MultiSOLLoss("f1", thresholds=taus, sharpness=lam)(MANY, CLASS)
    assert found.item() == pytest.approx(1 - np.mean(scores))


BAD = [
    (lambda: losses.SOLLoss(delta=0.0), "delta"),
    (lambda: losses.SOLLoss(task="multiclass"), "task: .*MultiSOLLoss"),
    (lambda: losses.MultiSOLLoss(task="binary"), "task: expected 'multiclass' for MultiSOLLoss"),
    (lambda: losses.FocalLoss(gamma=-1.0), "gamma"),
    (lambda: losses.WMWLoss(margin=0.0), "margin"),
    (lambda: losses.WMWLoss(power=1), "power"),
    (lambda: losses.WMWLoss(task="multiclass"), "task"),
    (lambda: losses.SurrogateFBetaLoss(0.0), "beta"),
    (lambda: losses.SurrogateFBetaLoss(q=2.0), "q: expected"),
    (lambda: losses.SurrogateFBetaLoss(positive_share=1.0), "positive_share"),
    (lambda: losses.SurrogateFBetaLoss(positive_share=[0.1, 0.2]), "positive_share: expected one number"),
    (
        lambda: losses.SurrogateFBetaLoss(positive_share=[0.1, 0.2], task="multilabel")(
            torch.zeros(2, 3), torch.ones(2, 3)
        ),
        "positive_share: .*3 labels, got 2",
    ),
    (lambda: losses.SurrogateFBetaLoss(task="multiclass"), "task"),
    (lambda: losses.AnyLoss(task="multiclass"), "step: the amplifier"),
    (lambda: losses.MAELoss(task="ranking"), "task: expected"),
]


@pytest.mark.parametrize("case", range(len(BAD)))
def test_bad_options_get_one_clear_message(case):
    call, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        call()


def test_losses_train_a_linear_classifier():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(300, 2, generator=generator)
    y = (x[:, 0] + 0.3 * torch.randn(300, generator=generator) > 1.0).long()
    for loss in [*BINARY_LOSSES, MetricLoss("mcc", task="binary")]:
        layer = torch.nn.Linear(2, 1)
        with torch.no_grad():
            layer.weight.fill_(0.1)
            layer.bias.zero_()
        optimiser = torch.optim.Adam(layer.parameters(), lr=0.1)
        first = None
        for _ in range(60):
            optimiser.zero_grad()
            value = loss.float()(layer(x).squeeze(1), y)
            value.backward()
            optimiser.step()
            first = value.item() if first is None else first
        assert value.item() < first, name(loss)
        assert layer.weight[0, 0] > 2 * layer.weight[0, 1].abs(), name(loss)
