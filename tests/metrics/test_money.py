"""Money in the grammar, as a score, as a loss and with its interval: against plain loops over the rows."""

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from metricfit import MetricLoss, metrics
from metricfit.assess import Decided, estimate
from metricfit.assess.intervals import difference, reached
from metricfit.decisions import best_label_thresholds, best_offsets, best_threshold

SPEC = "money:tp=amount-5,fp=-5,fn=-amount"


def rows(seed=0, n=40):
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < 0.4).astype(int)
    y[:2] = 0, 1
    return y, (rng.normal(size=n) + y).round(1), rng.lognormal(2, 1, n)


def earned(y, called, amount, weight):
    total = 0.0
    for truth, decided, a, w in zip(y, called, amount, weight, strict=True):
        total += w * ((a - 5 if decided else -a) if truth else (-5 if decided else 0))
    return total


AMONG_REGIONS = " subject to recall[1] >= 0.8 in region"


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (SPEC, "money:tp=amount - 5,fp=-5,fn=-amount"),
        ("money[fraud]: tp = 0.5*(amount+fee)/2 - 1, tn=2", "money[fraud]:tp=0.5*(amount + fee) / 2 - 1,tn=2"),
        ("money:fn=-'net amount'[yes]", "money[yes]:fn=-'net amount'"),
        (SPEC + AMONG_REGIONS, "money:tp=amount - 5,fp=-5,fn=-amount" + AMONG_REGIONS),
    ],
)
def test_the_grammar_reads_and_prints_money(written, read):
    found = metrics.get(written)
    assert str(found) == read
    assert metrics.get(read) == found
    assert hash(metrics.get(read)) == hash(found)


def test_the_columns_are_those_of_money_and_groups():
    found = metrics.get("money:tp=amount*rate,fn=-amount subject to recall[1] >= 0.8 in region")
    assert found.columns == ("amount", "rate", "region")
    assert metrics.get("f1 subject to recall >= 0.1").columns == ()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("money", "say what an outcome is worth"),
        ("money:hit=3", "money has no outcome 'hit'; it takes tp, fp, fn, tn"),
        ("money:tp=amount[", "one class label in brackets"),
        ("money:tp=(amount", r"expected '\)', got the end"),
        ("0.5*(money:tp=2)", "stands alone"),
        ("f1 subject to money:tp=amount >= 3", "is what to earn, not a constraint"),
    ],
)
def test_what_is_no_money_gets_one_message(spec, message):
    with pytest.raises(ValueError, match=message):
        metrics.get(spec)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), weighted=st.booleans())
def test_the_score_is_a_loop_over_the_rows(seed, weighted):
    y, score, amount = rows(seed)
    called = (score > 0.5).astype(int)
    weight = np.random.default_rng(seed).random(len(y)) + 0.1 if weighted else np.ones(len(y))
    money = metrics.get(SPEC)
    value = money.score(y, called, weight if weighted else None, columns={"amount": amount})
    assert value == pytest.approx(earned(y, called, amount, weight))
    names, decided = np.array(["b", "a"])[y], np.array(["b", "a"])[called]
    first = metrics.get(f"money[a]:{SPEC[6:]}").score(names, decided, weight, columns=pd.DataFrame({"amount": amount}))
    assert first == pytest.approx(earned(y, called, amount, weight))


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_the_best_cut_off_of_the_spec_is_that_of_the_gain(seed):
    y, score, amount = rows(seed)
    best = best_threshold(y, score, SPEC, columns={"amount": amount})
    every = [earned(y, score >= t, amount, np.ones(len(y))) for t in [*np.unique(score), np.inf]]
    assert best.value == pytest.approx(max(every))
    assert best.threshold == best_threshold(y, score, gain=(amount - 5, -5, -amount, 0)).threshold
    assert best.metric == "money:tp=amount - 5,fp=-5,fn=-amount"
    turned = best_threshold(1 - y, -score, f"money[0]:{SPEC[6:]}", columns={"amount": amount})
    assert turned.value == pytest.approx(max(every))


def test_the_loss_is_the_share_of_the_money_at_stake():
    y, score, amount = rows(3)
    logits = torch.tensor(score, dtype=torch.float64, requires_grad=True)
    target = torch.tensor(y)
    columns = {"amount": torch.tensor(amount)}
    loss = MetricLoss(SPEC, task="binary").double()
    value = loss(logits, target, columns=columns)
    # The soft sum, row by row: membership of the positive decision times what it earns.
    called = MetricLoss("precision", task="binary").double()
    soft = torch.stack([called.confusion(logits[i : i + 1], target[i : i + 1]).predicted[1] for i in range(len(y))])
    a, positive = columns["amount"], target == 1
    yes, no = torch.where(positive, a - 5, -5.0), torch.where(positive, -a, 0.0)
    lost = torch.maximum(yes, no) - soft * yes - (1 - soft) * no
    expected = lost.sum() / (yes - no).abs().sum()
    assert torch.allclose(value, expected)
    gradients = [torch.autograd.grad(v, logits, retain_graph=True)[0] for v in (value, expected)]
    assert torch.allclose(*gradients)
    two = torch.stack([torch.zeros_like(logits), logits], dim=1)
    assert torch.allclose(MetricLoss(SPEC).double()(two, target, columns=columns), value, atol=0.1)
    sure = 50.0 * (yes > no).double() - 25
    assert loss(sure, target, columns=columns) < 1e-6


def test_the_loss_says_what_it_needs():
    logits, target = torch.randn(6), torch.tensor([0, 1, 0, 1, 0, 1])
    with pytest.raises(ValueError, match="the metric needs 'amount', none were given"):
        MetricLoss(SPEC, task="binary")(logits, target)
    with pytest.raises(ValueError, match="two classes, 0 and 1 of shape"):
        MetricLoss(SPEC, task="binary")(logits, target + 0.5, columns={"amount": np.ones(6)})
    with pytest.raises(ValueError, match="money is for two classes; train on the metric alone"):
        MetricLoss(SPEC, task="multilabel")
    with pytest.raises(ValueError, match="a batch shows no groups"):
        MetricLoss("f1[1] subject to recall[1] >= 0.8 in region")


def test_the_interval_covers_the_expected_total():
    rng = np.random.default_rng(0)
    money, covered = metrics.get(SPEC), 0
    for _ in range(200):
        truth, decided = (rng.random(300) < 0.3).astype(int), (rng.random(300) < 0.5).astype(int)
        found = estimate(money, Decided(truth, decided, (0, 1), columns={"amount": rng.lognormal(2, 0.7, 300)}))
        mean = 300 * (0.3 * (0.5 * (np.exp(2.245) - 5) - 0.5 * np.exp(2.245)) - 0.7 * 0.5 * 5)
        assert found.low < found.value < found.high
        covered += found.low <= mean <= found.high
    assert covered >= 180  # 190 expected
    columns = {"amount": np.ones(300) * 20}
    ours, theirs = Decided(truth, truth, (0, 1), columns=columns), Decided(truth, 1 - truth, (0, 1), columns=columns)
    assert difference(money, ours, theirs).value == pytest.approx(35 * truth.sum() + 5 * (1 - truth).sum())


def test_a_constraint_in_groups_has_the_worst_groups_interval():
    truth, decided = np.repeat([0, 1, 0, 1], 50), np.repeat([0, 1, 0, 0], 50)
    decided[150:190] = 1
    columns = {"region": np.repeat(["north", "south"], 100)}
    constrained = metrics.get("f1[1] subject to recall[1] >= 0.9 in region and spread(recall[1]) <= 0.1 in region")
    worst, spread = (reached(c, Decided(truth, decided, (0, 1), columns=columns)) for c in constrained.constraints)
    assert worst.value == 0.8
    assert worst.low < 0.72 < 0.88 < worst.high
    assert spread.value == pytest.approx(0.2)
    assert spread.low > 0.05


def test_several_classes_have_a_cost_matrix_instead():
    with pytest.raises(ValueError, match=r"is for two classes, got 3; cost:matrix="):
        metrics.resolve(SPEC, ("a", "b", "c"), "multiclass")
    proba = np.eye(3)[np.arange(9) % 3] * 0.7 + 0.1
    for search, target in (
        (best_offsets, np.arange(9) % 3),
        (best_label_thresholds, np.eye(3, dtype=int)[np.arange(9) % 3]),
    ):
        with pytest.raises(ValueError, match="looks at columns of the rows, which is for two classes"):
            search(target, proba, SPEC)


@pytest.mark.parametrize(
    ("columns", "error", "message"),
    [
        (None, ValueError, "needs 'amount', none were given; give columns={'amount': values}"),
        ({"price": [1, 2, 3]}, ValueError, "needs 'amount', got 'price'"),
        ({"amount": [1, 2]}, ValueError, r"columns\['amount'\]: expected shape \(3,\), got \(2,\)"),
        ({"amount": [1, np.nan, 3]}, ValueError, r"columns\['amount'\]: expected finite numbers"),
        ({"amount": ["a", "b", "c"]}, TypeError, r"columns\['amount'\]: expected numbers"),
        ({"amount": [-1, -2, -3]}, ValueError, "a positive decision never pays"),
    ],
)
def test_bad_columns_get_one_message(columns, error, message):
    with pytest.raises(error, match=message):
        best_threshold([0, 1, 1], [0.1, 0.4, 0.5], "money:tp=amount,fp=-1", columns=columns)
