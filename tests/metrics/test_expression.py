import string

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from metricfit import metrics
from metricfit.confusion import ConfusionMatrix
from metricfit.metrics import F1, FBeta, Precision, Recall, ThresholdMean

MATRIX = torch.tensor([[5.0, 1.0], [2.0, 3.0]], dtype=torch.float64)
CM = ConfusionMatrix(MATRIX)


@pytest.mark.parametrize(
    ("spec", "metric"),
    [
        ("f1", F1()),
        ("mcc", metrics.MCC()),
        ("f1_macro", F1("macro")),
        ("matthews_corrcoef", metrics.MCC()),
        ("fbeta:beta=2,average=macro", FBeta("macro", beta=2)),
        ("fbeta : beta = 2 , average = macro", FBeta("macro", beta=2)),
        ("fbeta:beta=[1,1,5]", FBeta(beta=[1, 1, 5])),
        ("fbeta:beta=.5", FBeta(beta=0.5)),
        ("fbeta:beta=1e-1", FBeta(beta=0.1)),
        ("f1:average=1", F1(1)),
        ("f1:zero_division=1", F1(zero_division=1)),
        ("recall[fraud]", Recall(label="fraud")),
        ("recall[1]", Recall(1)),
        ("recall[ 1 ]", Recall(1)),
        ("recall[-1]", Recall(label=-1)),
        ("recall['1']", Recall(label="1")),
        ('recall["fraud"]', Recall(label="fraud")),
        ("recall[01]", Recall(label="01")),
        ("recall[a b]", Recall(label="a b")),
        ("recall[don't]", Recall(label="don't")),
        (r"recall['a]\'b\\']", Recall(label="a]'b\\")),
        ("fbeta:beta=2[fraud]", FBeta(label="fraud", beta=2)),
        ("fbeta[fraud]:beta=2", FBeta(label="fraud", beta=2)),
        ("f1:label=fraud", F1(label="fraud")),
        ("f1:label='a b'", F1(label="a b")),
        ("cost:matrix=[[0,1],[5,0]]", metrics.ExpectedCost(matrix=[[0, 1], [5, 0]])),
        ("cost:matrix=[[-2,1],[5,0.5]]", metrics.ExpectedCost(matrix=[[-2, 1], [5, 0.5]])),
        ("kappa:weights=quadratic", metrics.CohenKappa(weights="quadratic")),
        ("auroc:grid=19", metrics.AUROC(grid=19)),
        ("threshold_mean:metric=mcc", ThresholdMean("mcc")),
        ("threshold_mean:metric='f1:average=macro',grid=3", ThresholdMean(F1("macro"), grid=3)),
        ("0.7*recall[1] + 0.3*precision[1]", 0.7 * Recall(1) + 0.3 * Precision(1)),
        ("0.7 * recall[1]+0.3*precision[1]", 0.7 * Recall(1) + 0.3 * Precision(1)),
        ("\n 0.7*recall[1]\n + 0.3*precision[1]\t", 0.7 * Recall(1) + 0.3 * Precision(1)),
        ("(recall + precision) / 2", (Recall() + Precision()) / 2),
        ("-fpr", -metrics.FalsePositiveRate()),
        ("--recall", -1 * (-Recall())),
        ("1 - fpr", 1 - metrics.FalsePositiveRate()),
        ("2*(1 + 3)*recall", 8 * Recall()),
        ("precision[1] subject to recall[1] >= 0.9", Precision(1).subject_to(Recall(1) >= 0.9)),
        ("precision[1] subject  to recall[1]>=.9", Precision(1).subject_to(Recall(1) >= 0.9)),
        (
            "0.5*f1 + 0.5*mcc subject to recall[1] >= 0.9 and fpr[1] <= 0.05",
            (0.5 * F1() + 0.5 * metrics.MCC()).subject_to(Recall(1) >= 0.9, metrics.FalsePositiveRate(1) <= 0.05),
        ),
        ("f1 subject to mcc >= -0.5", F1().subject_to(metrics.MCC() >= -0.5)),
    ],
)
def test_specs(spec, metric):
    assert metrics.get(spec) == metric
    assert metrics.get(str(metric)) == metric


values = {"recall[1]": 0.6, "precision[1]": 0.75, "f1[1]": 2 / 3}
numbers = st.sampled_from(["0.5", "2", "3.25", ".75", "1e-1", "4."])
names = st.sampled_from(sorted(values))
expressions = st.recursive(
    names | numbers,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", " + ", "*", " * "]), inner).map("".join),
        inner.map(lambda text: f"({text})"),
        st.tuples(inner, st.sampled_from([" / ", "/", " - "]), numbers).map("".join),
    ),
    max_leaves=12,
)


@given(expressions)
def test_arithmetic_has_the_precedence_of_python(text):
    """Only sums, products and quotients by numbers: such expressions never pull in two directions."""
    plain = text
    for name, value in values.items():
        plain = plain.replace(name, repr(value))
    expected = eval(plain, {"__builtins__": {}})  # of numbers that this test wrote
    if not any(name in text for name in values):
        with pytest.raises(ValueError, match="is a number, not a metric"):
            metrics.get(text)
        return
    metric = metrics.get(text)
    assert metric(CM).item() == pytest.approx(expected, rel=1e-12)
    assert metrics.get(str(metric)) == metric


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 - fpr[1] - 0.5", 1 - 1 / 6 - 0.5),
        ("recall[1] - fpr[1] - fpr[1]", 0.6 - 1 / 6 - 1 / 6),
        ("recall[1] - (fpr[1] - 0.1)", 0.6 - (1 / 6 - 0.1)),
        ("8*recall[1]/2/2", 8 * 0.6 / 2 / 2),
        ("8*recall[1]/(2/2)", 8 * 0.6 / (2 / 2)),
        ("2 + 3*recall[1]", 2 + 3 * 0.6),
        ("-recall[1]*2", -0.6 * 2),
        ("2*-recall[1]", -0.6 * 2),
        ("1 - -recall[1]", 1.6),
        ("2*precision[1]*recall[1]/(precision[1] + recall[1])", 2 / 3),
    ],
)
def test_order_of_operations(text, expected):
    assert metrics.get(text)(CM).item() == pytest.approx(expected, rel=1e-12)


BAD = [
    ("", "empty string"),
    ("   ", "empty string"),
    ("f1(", "calls 'f1'"),
    ("f1()", "calls 'f1'; expressions hold names"),
    ("print('x')", "calls 'print'"),
    ("__import__('os').system('true')", "calls '__import__'"),
    ("open('/etc/passwd')", "calls 'open'"),
    ("exec", "unknown name 'exec'"),
    ("__class__", "unknown name '__class__'"),
    ("f1.__class__", "position 2: expected an operator or the end, got '.'"),
    ("import os", "unknown name 'import'"),
    ("lambda: 0", "expected a parameter name"),
    ("f1; f1", "got ';'"),
    ("f1 if True else mcc", "expected an operator or the end, got 'if'"),
    ("[f1]", r"expected a metric, a number or '\('"),
    ("{f1}", "got '{'"),
    ("f1 ** 2", "got '*'"),
    ("f1 % 2", "got '%'"),
    ("f1 f1", "expected an operator or the end, got 'f1'"),
    ("f1 +", "got the end"),
    ("* f1", r"got '\*'"),
    ("(f1", r"expected '\)', got the end"),
    ("f1)", r"got '\)'"),
    ("()", r"got '\)'"),
    ("0.5", "is a number, not a metric"),
    ("1/0", "divides by zero"),
    ("f1 / 0", "best value"),
    ("1e999*f1", "finite numbers, got inf"),
    ("recall[]", "a class label between the brackets"),
    ("recall[1", "one class label in brackets"),
    ("recall[1][2]", "one class label in brackets|an operator"),
    ("recall[a[b]]", "one class label in brackets"),
    ("recall[a\nb]", "one class label in brackets"),
    ("f1:", "a parameter name"),
    ("f1:average", "expected '=' after 'average'"),
    ("f1:average=", "a value, got the end"),
    ("f1:average=macro,", "a parameter name"),
    ("f1:average==macro", "a value, got '='"),
    ("fbeta:beta=[1,2", r"expected '\]', got the end"),
    ("fbeta:beta=[]", "a value"),
    ("fbeta:beta=--1", "a number, got '-'"),
    ("f1 subject", "'to' after 'subject'"),
    ("f1 subject to", "got the end"),
    ("f1 subject to recall", "'>=' or '<='"),
    ("f1 subject to recall > 0.5", "got '>'"),
    ("f1 subject to recall == 0.5", "got '='"),
    ("f1 subject to recall >= precision", "expected a number, got 'precision'"),
    ("f1 subject to recall >= 0.5 and", "got the end"),
    ("f1 subject to recall >= 0.5 or f1 >= 0.5", "got 'or'"),
    ("f1 subject to recall >= 1.5", "cannot be met"),
    ("f1 subject to recall >= 1e999", "finite number"),
    ("f1 subject to 0.5 >= 0.4 subject to f1 >= 0.1", "got 'subject'"),
    ("(f1 subject to recall >= 0.5)", r"expected '\)', got 'subject'"),
    ("subject to recall >= 0.5", "unknown name 'subject'"),
    ("recall >= 0.5", "got '>='"),
    ("recall + fpr", "adds up a metric to be maximised and one to be minimised"),
    ("precision - recall", "adds up"),
    ("f1_samples", "averages over samples"),
    ("f1[1] + recal[1]", "unknown name 'recal'; did you mean 'recall'"),
    ("f¹", "unknown name"),
    ("𝐟𝟏", "unknown name"),
    ("f1\x00", r"got '\\x00'"),
    ("f1 # comment", "got '#'"),
    ("f1 \\ mcc", "got"),
    ("f1" + " + f1" * 600, "characters, at most 2000|more than 200 parts"),
    ("f1" + "+f1" * 300, "more than 200 parts"),
    ("(" * 60 + "f1" + ")" * 60, "nested deeper than 50"),
    ("-" * 60 + "f1", "nested deeper than 50"),
    ("fbeta:beta=" + "[" * 900, "nested deeper than 50"),
    ("auroc:grid=" + "9" * 500, "grid: "),
    ("f1[" + "9" * 1900 + "]x", "got 'x'"),
    ("x" * 5000, "5000 characters, at most 2000"),
]


@pytest.mark.parametrize(("spec", "message"), BAD, ids=[spec[:30] for spec, _ in BAD])
def test_bad_specs_get_one_clear_line(spec, message):
    with pytest.raises(ValueError, match=message) as raised:
        metrics.get(spec)
    assert "\n" not in str(raised.value)
    assert raised.value.__cause__ is None


def test_unknown_classes_are_named_when_the_matrix_is_known():
    cm = ConfusionMatrix(MATRIX, labels=("ok", "fraud"))
    assert metrics.get("recall[fraud] + 0*recall['ok']")(cm).item() == pytest.approx(0.6)
    for label in ("frad", "Fraud", "2"):
        with pytest.raises(ValueError, match="no such class; the classes are ok, fraud"):
            metrics.get(f"0.5*recall[fraud] + 0.5*recall[{label}]")(cm)


words = st.sampled_from(
    [
        *metrics.available(), "f1_macro", "subject", "to", "and", "average", "macro", "beta", "label", "grid", "metric",
        "nan", "inf", ">=", "<=", "==", "+", "-", "*", "/", "(", ")", "[", "]", ":", ",", "=", "'", '"', "\\", "0.5",
        "1", "2.", "1e5", "1e999", "[1]", "[a]", "[[0,1],[5,0]]", " ", "\n", "__class__", "lambda", ".", "é", "\x00",
    ]
)  # fmt: skip
garbage = st.one_of(
    st.lists(words, max_size=14).map("".join),
    st.lists(words, max_size=14).map(" ".join),
    st.text(max_size=60),
    st.text(string.printable, max_size=60),
    st.text("f1()[]'\":=,+-*/ .0e>", max_size=60),
)


def parses_or_is_refused(text):
    try:
        metric = metrics.get(text)
    except (ValueError, TypeError) as error:
        assert str(error)  # noqa: PT017
        assert "\n" not in str(error)  # noqa: PT017
        return
    assert metrics.get(str(metric)) == metric or "nan" in text
    assert metric.range[0] <= metric.range[1]


@settings(max_examples=400)
@given(garbage)
@example("fbeta:beta=nan")
@example("f1:zero_division=nan")
@example("auroc:grid=nan")
def test_any_text_is_read_or_refused(text):
    parses_or_is_refused(text)


@pytest.mark.slow
@settings(max_examples=20_000)
@given(garbage)
def test_a_great_deal_of_text_is_read_or_refused(text):
    parses_or_is_refused(text)
