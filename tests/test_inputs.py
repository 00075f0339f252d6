import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from metricfit.inputs import accumulation_dtype, check_task, flatten_inputs, safe_divide

LOGITS = torch.tensor([[1.0, 0.0, -1.0], [0.5, 2.0, 0.0], [0.0, 0.0, 3.0], [1.0, -1.0, 0.0]])
INDICES = torch.tensor([0, 1, 2, 1])
BINARY = torch.tensor([0.3, -2.0, 1.0, 4.0])
MULTILABEL = torch.tensor([[0.3, -2.0], [1.0, 4.0], [0.0, 0.1]])


def flatten(input=LOGITS, target=INDICES, task="multiclass", **options):
    return flatten_inputs(input, target, task=task, **options)


@pytest.mark.parametrize(
    ("shape", "task", "rows"),
    [
        ((4, 3), "multiclass", (4, 3)),
        ((4, 3, 2), "multiclass", (8, 3)),
        ((4, 3, 2, 5), "multiclass", (40, 3)),
        ((4,), "binary", (4, 1)),
        ((4, 3, 2), "binary", (24, 1)),
        ((4, 3), "multilabel", (4, 3)),
        ((4, 3, 2, 5), "multilabel", (40, 3)),
    ],
)
def test_positions_become_rows_in_order(shape, task, rows):
    input = torch.arange(math.prod(shape), dtype=torch.float32).reshape(shape)
    target = torch.zeros(shape[:1] + shape[2:], dtype=torch.long) if task == "multiclass" else torch.zeros(shape)
    samples = flatten(input, target, task)
    assert samples.scores.shape == rows
    expected = input.reshape(-1, 1) if task == "binary" else input.movedim(1, -1).reshape(rows)
    assert torch.equal(samples.scores, expected)
    assert len(samples.target) == len(samples.weight) == rows[0]


@pytest.mark.parametrize("members", [None, 2])
@pytest.mark.parametrize(("task", "input_channel", "target_channel"), [
    ("binary", True, False), ("binary", False, True), ("binary", True, True), ("multiclass", False, True),
])  # fmt: skip
def test_a_channel_of_one_is_dropped_where_the_shapes_allow_one_reading(task, input_channel, target_channel, members):
    lead = () if members is None else (members,)
    dimension = len(lead) + 1
    input, target = torch.randn(*lead, 3, 4, 5), torch.randint(0, 2, (*lead, 3, 4, 5))
    if task == "multiclass":
        input = torch.stack([input, -input], dim=dimension)
    plain = flatten(input, target, task, members=members)
    input = input.unsqueeze(dimension) if input_channel else input
    target = target.unsqueeze(dimension) if target_channel else target
    found = flatten(input, target, task, members=members)
    for name in ("scores", "target", "weight"):
        assert torch.equal(getattr(found, name), getattr(plain, name))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("task", ["multiclass", "binary", "multilabel"])
def test_everything_is_float32_or_better(dtype, task):
    input, target = {
        "multiclass": (LOGITS, LOGITS.softmax(-1).to(dtype)),
        "binary": (BINARY, torch.tensor([0, 1, 1, 0])),
        "multilabel": (MULTILABEL, torch.tensor([[True, False], [False, False], [True, True]])),
    }[task]
    samples = flatten(input.to(dtype), target, task, sample_weight=torch.ones(len(input), dtype=torch.float16))
    expected = torch.float64 if dtype == torch.float64 else torch.float32
    assert {samples.scores.dtype, samples.target.dtype, samples.weight.dtype} == {expected}


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64])
def test_any_integer_dtype_serves_as_an_index(dtype):
    assert flatten(target=INDICES.to(dtype)).target.tolist() == INDICES.tolist()


@pytest.mark.parametrize("validate", [True, False])
@pytest.mark.parametrize("probabilities", [True, False])
def test_ignored_multiclass_rows_are_blanked(validate, probabilities):
    input = LOGITS.clone()
    input[1] = math.nan
    target = torch.eye(3)[INDICES] if probabilities else INDICES.clone()
    target[1] = -100
    weight = torch.tensor([1.0, math.nan, 2.0, 3.0])
    samples = flatten(input, target, sample_weight=weight, weight=torch.tensor([1.0, 2.0, 3.0]), validate=validate)
    assert samples.scores[1].tolist() == [0.0, 0.0, 0.0]
    mass = samples.weight[:, None] * samples.target if probabilities else samples.weight
    assert mass.reshape(4, -1).sum(-1).tolist() == [1.0, 0.0, 6.0, 6.0]


@pytest.mark.parametrize("validate", [True, False])
def test_ignored_label_decisions_are_blanked_one_by_one(validate):
    input = MULTILABEL.clone()
    input[1, 0] = math.nan
    target = torch.tensor([[1, 0], [-1, 1], [0, 0]])
    samples = flatten(input, target, "multilabel", ignore_index=-1, validate=validate)
    assert samples.weight.tolist() == [[1.0, 1.0], [0.0, 1.0], [1.0, 1.0]]
    assert samples.scores[1].tolist() == [0.0, 4.0]
    assert samples.target.tolist() == [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]


def test_a_class_can_be_ignored():
    samples = flatten(ignore_index=1)
    assert samples.weight.tolist() == [1.0, 0.0, 1.0, 0.0]


@pytest.mark.parametrize("shape", [(2,), (2, 5, 4)])
def test_sample_weight_is_one_a_sample_or_one_a_position(shape):
    weight = torch.rand(shape)
    samples = flatten(torch.randn(2, 3, 5, 4), torch.zeros(2, 5, 4, dtype=torch.long), sample_weight=weight)
    expected = weight.reshape(shape + (1,) * (3 - len(shape))).expand(2, 5, 4).reshape(-1)
    assert torch.equal(samples.weight, expected)


def test_a_multilabel_task_takes_a_weight_for_each_decision():
    weight = torch.rand(2, 3, 4)
    input = torch.randn(2, 3, 4)
    samples = flatten(input, torch.zeros(2, 3, 4), "multilabel", sample_weight=weight)
    assert torch.equal(samples.weight, weight.movedim(1, -1).reshape(-1, 3))


def test_binary_class_weights_split_a_soft_target():
    """A share y of positive counts weight[1] y, the rest weight[0] (1 - y): as two classes would."""
    target = torch.tensor([0.0, 0.25, 1.0, 0.5])
    samples = flatten(BINARY, target, "binary", weight=torch.tensor([2.0, 6.0]))
    positive = (samples.weight * samples.target).flatten()
    negative = (samples.weight * (1 - samples.target)).flatten()
    assert positive.tolist() == [0.0, 1.5, 6.0, 3.0]
    assert negative.tolist() == [2.0, 1.5, 0.0, 1.0]


def test_a_class_weight_of_zero_removes_the_class():
    samples = flatten(BINARY, torch.tensor([0, 1, 1, 0]), "binary", weight=torch.tensor([0.0, 1.0]))
    assert samples.weight.flatten().tolist() == [0.0, 1.0, 1.0, 0.0]
    assert samples.target.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_probabilities_may_be_rounded_to_their_dtype(dtype):
    p = torch.randn(50, 10, generator=torch.Generator().manual_seed(0)).softmax(-1).to(dtype)
    flatten(p, p, from_probabilities=True)


def test_minus_infinity_rules_a_class_out():
    input = LOGITS.clone()
    input[:, 2] = -math.inf
    assert flatten(input).scores.softmax(-1)[:, 2].tolist() == [0.0] * 4


def test_nan_propagates_without_validation():
    samples = flatten(LOGITS * math.nan, validate=False)
    assert samples.scores.isnan().all()


def test_no_check_branches_on_values_inside_a_transform():
    def total(logits):
        return flatten(logits).scores.softmax(-1)[:, 0].sum()

    gradient = torch.func.grad(total)(LOGITS)
    assert gradient.isfinite().all()


NAN = LOGITS.clone()
NAN[2, 1] = math.nan
INFINITE = LOGITS.clone()
INFINITE[0, 0] = math.inf

BAD = {
    "input is a list": (TypeError, "input: .*torch.Tensor.*list", {"input": [[1.0, 2.0]]}),
    "target is a list": (TypeError, "target: .*torch.Tensor.*list", {"target": [0, 1, 2, 1]}),
    "integer logits": (TypeError, "input: .*floating-point.*int64", {"input": LOGITS.long()}),
    "no ignored index": (TypeError, "ignore_index: expected a whole number, got None", {"ignore_index": None}),
    "no class dimension": (ValueError, r"input: .*\(N, C, …\).*\(4,\)", {"input": BINARY}),
    "one logit per sample": (ValueError, r"input: .*got \(4,\); .*task='binary'", {"input": BINARY}),
    "one logit per mask": (ValueError, "input: .*task='binary'", {"input": torch.zeros(2, 1, 3, 3)}),
    "one class": (ValueError, "input: .*at least 2 classes.*task='binary'", {"input": LOGITS[:, :1]}),
    "empty batch": (ValueError, r"input: the batch is empty.*\(0, 3\)", {"input": LOGITS[:0], "target": INDICES[:0]}),
    "scalar": (ValueError, "input: ", {"input": torch.tensor(1.0), "target": torch.tensor(1.0), "task": "binary"}),
    "target too short": (ValueError, r"target: .*\(4,\).*got \(3,\)", {"target": INDICES[:3]}),
    "float indices": (TypeError, r"target: .*integer.*float32.*\.long\(\)", {"target": INDICES.float()}),
    "boolean indices": (TypeError, "target: .*integer.*bool", {"target": INDICES.bool()}),
    "integer one-hot": (
        TypeError, r"target: .*floating-point class probabilities.*\.argmax\(1\)",
        {"target": torch.eye(3).long()[INDICES]},
    ),
    "label too large": (ValueError, "target: .*from 0 to 2.*got 3", {"target": torch.tensor([0, 1, 3, 1])}),
    "negative label": (ValueError, "target: .*from 0 to 2.*got -1", {"target": torch.tensor([0, 1, -1, 1])}),
    "rows do not sum to one": (
        ValueError, "target: .*sum to 1.*0.8", {"target": torch.tensor([[0.4, 0.4, 0.0]]).expand(4, 3)},
    ),
    "an all-zero row": (ValueError, "target: .*sum to 1.*sum of 0", {"target": torch.zeros(4, 3)}),
    "negative probability": (
        ValueError, r"target: .*\[0, 1\].*-0.5", {"target": torch.tensor([[-0.5, 1.5, 0.0]]).expand(4, 3)},
    ),
    "NaN target": (ValueError, "target: got NaN", {"target": torch.full((4, 3), math.nan)}),
    "NaN logits": (ValueError, "input: NaN logits in 1 of 4.*validate=False", {"input": NAN}),
    "infinite logits": (ValueError, "input: infinite logits in 1 of 4", {"input": INFINITE}),
    "all classes ruled out": (ValueError, "input: infinite", {"input": torch.full((4, 3), -math.inf)}),
    "NaN probabilities": (ValueError, "input: NaN probabilities", {"input": NAN, "from_probabilities": True}),
    "logits as probabilities": (ValueError, r"input: .*\[0, 1\].*-1", {"from_probabilities": True}),
    "unnormalised": (ValueError, "input: .*sum to 1", {"input": LOGITS.sigmoid(), "from_probabilities": True}),
    "binary target shape": (
        ValueError, r"target: .*shape of input, \(4,\).*\(4, 2\)",
        {"input": BINARY, "target": INDICES[:, None].expand(4, 2), "task": "binary"},
    ),
    "binary task, two logits": (
        ValueError, r"target: .*shape of input, \(4, 3\), got \(4,\).*task='multiclass'", {"task": "binary"},
    ),
    "labels without a task": (
        TypeError, "target: .*task='multilabel'", {"input": MULTILABEL, "target": (MULTILABEL > 0).long()},
    ),
    "float labels without a task": (
        ValueError, "target: .*sum to 1.*task='multilabel'", {"target": torch.ones(4, 3)},
    ),
    "binary label 2": (
        ValueError, r"target: .*\[0, 1\].*got 2", {"input": BINARY, "target": INDICES, "task": "binary"},
    ),
    "binary NaN target": (
        ValueError, "target: got NaN", {"input": BINARY, "target": BINARY * math.nan, "task": "binary"},
    ),
    "binary NaN logit": (
        ValueError, "input: NaN logits in 4 of 4", {"input": BINARY * math.nan, "target": BINARY > 0, "task": "binary"},
    ),
    "multilabel target shape": (
        ValueError, "target: a multilabel task", {"input": MULTILABEL, "target": INDICES[:3], "task": "multilabel"},
    ),
    "sample_weight list": (TypeError, "sample_weight: .*list", {"sample_weight": [1.0] * 4}),
    "multilabel sample_weight list": (
        TypeError, "sample_weight: .*list",
        {"input": MULTILABEL, "target": MULTILABEL > 0, "task": "multilabel", "sample_weight": [1.0] * 3},
    ),
    "sample_weight shape": (ValueError, r"sample_weight: .*\(4,\).*\(5,\)", {"sample_weight": torch.ones(5)}),
    "negative sample_weight": (
        ValueError, "sample_weight: .*>= 0", {"sample_weight": torch.tensor([1.0, -1.0, 1.0, 1.0])},
    ),
    "infinite sample_weight": (ValueError, "sample_weight: .*finite", {"sample_weight": torch.full((4,), math.inf)}),
    "weight list": (TypeError, "weight: .*3 weights.*list", {"weight": [1.0, 1.0, 1.0]}),
    "weight shape": (ValueError, r"weight: .*\(3,\).*one per class.*\(2,\)", {"weight": torch.ones(2)}),
    "negative weight": (ValueError, "^weight: .*>= 0", {"weight": torch.tensor([1.0, -1.0, 1.0])}),
    "infinite weight": (ValueError, "^weight: .*finite", {"weight": torch.tensor([1.0, math.inf, 1.0])}),
    "binary weight shape": (
        ValueError, r"weight: .*\(2,\), negative then positive",
        {"input": BINARY, "target": BINARY > 0, "task": "binary", "weight": torch.ones(3)},
    ),
    "label weight shape": (
        ValueError, r"weight: .*\(2,\), one per label",
        {"input": MULTILABEL, "target": MULTILABEL > 0, "task": "multilabel", "weight": torch.ones(3)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", sorted(BAD))
def test_bad_input_is_named(case):
    error, message, arguments = BAD[case]
    with pytest.raises(error, match=message) as raised:
        flatten(**arguments)
    assert "\n" not in str(raised.value)


def test_unknown_task_is_named():
    with pytest.raises(ValueError, match=r"task: expected 'multiclass'.*'regression'"):
        check_task("regression")


finite = st.floats(-1e6, 1e6, allow_nan=False)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
        (torch.int64, torch.float32),
    ],
)
def test_counts_are_summed_in_float32_or_better(dtype, expected):
    assert accumulation_dtype(dtype) == expected


@given(finite, finite, st.sampled_from([0.0, 1.0, -3.5]))
def test_safe_divide_is_division_where_that_is_defined(numerator, denominator, undefined):
    a, b = torch.tensor(numerator, dtype=torch.float64), torch.tensor(denominator, dtype=torch.float64)
    value = safe_divide(a, b, undefined).item()
    if abs(denominator) <= torch.finfo(torch.float64).tiny:
        assert value == undefined
    else:
        assert value == numerator / denominator


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("undefined", [0.0, 1.0, math.nan])
@pytest.mark.parametrize("numerator", [0.0, 1.0])
def test_gradient_of_division_by_zero_is_zero(dtype, undefined, numerator):
    a = torch.tensor([numerator, 1.0], dtype=dtype, requires_grad=True)
    b = torch.tensor([0.0, 4.0], dtype=dtype, requires_grad=True)
    value = safe_divide(a, b, undefined)
    assert value[0].item() == undefined or math.isnan(undefined)
    value.sum().backward()
    assert a.grad.tolist() == [0.0, 0.25]
    assert b.grad.tolist() == [0.0, -0.0625]


def test_safe_divide_gradcheck_away_from_zero():
    a = torch.tensor([0.3, -2.0, 5.0], dtype=torch.float64, requires_grad=True)
    b = torch.tensor([0.5, 1.5, -3.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(safe_divide, (a, b))
    assert torch.autograd.gradgradcheck(safe_divide, (a, b))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_safe_divide_keeps_tiny_denominators(dtype):
    tiny = torch.tensor(1e-30, dtype=dtype, requires_grad=True)
    value = safe_divide(tiny, tiny + tiny)
    value.backward()
    assert value.item() == 0.5
    assert tiny.grad.isfinite()


def test_nan_stays_nan():
    nan, one = torch.tensor(math.nan), torch.tensor(1.0)
    assert safe_divide(nan, one).isnan()
    assert safe_divide(one, nan).isnan()
