"""The spec grammar: text to a metric, by a small parser of our own that runs nothing.

::

    spec       = sum [ "subject to" constraint { "and" constraint } [ "with thresholds by" column ] ]
    constraint = ( sum | "coverage" | "spread" "(" sum ")" ) ( ">=" | "<=" ) number [ ( "in" | "per" ) column ]
    column     = word | quoted text
    sum        = product { ("+" | "-") product }
    product    = factor { ("*" | "/") factor }
    factor     = "-" factor | number | "(" sum ")" | metric
    metric     = name [ ":" key "=" value { "," key "=" value } ] [ "[" label "]" ]
               | "money" [ "[" label "]" ] ":" outcome "=" sum { "," outcome "=" sum }, of numbers and columns
    value      = number | word | "[" value { "," value } "]" | quoted text

Quoted text stands in '…' or "…", with a backslash before a quote; a label needs quotes only for brackets and quotes
in it, and where '1' is meant and not the number 1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, cast

from metricfit.metrics.algebra import Column, Constant, Constraint, Coverage, combine
from metricfit.metrics.base import Metric
from metricfit.metrics.money import OUTCOMES, Money
from metricfit.metrics.registry import build

_QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_TOKENS = re.compile(
    rf"""\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
      | (?P<quoted>{_QUOTED})
      | (?P<word>[^\W\d]\w*)
      | (?P<compare>>=|<=)
      | (?P<symbol>[-+*/()\[\]:,=])
      | (?P<other>.)
      | (?P<end>\Z))""",
    re.VERBOSE | re.DOTALL,
)
_LABEL = re.compile(rf"\s*\[\s*(?:(?P<quoted>{_QUOTED})|(?P<bare>[^\[\]]*?))\s*\]", re.DOTALL)
_MAX_LENGTH, _MAX_DEPTH, _MAX_PARTS = 2000, 50, 200


def parse(text: str, *, of_columns: bool = False) -> Metric:
    """The metric of a spec, or what an outcome is worth: an expression of numbers and columns."""
    if len(text) > _MAX_LENGTH:
        raise ValueError(f"metric: the expression has {len(text)} characters, at most {_MAX_LENGTH} are read.")
    return _Parser(text, of_columns=of_columns).spec()


class _Parser:
    def __init__(self, text: str, *, of_columns: bool) -> None:
        self.text, self.of_columns = text, of_columns
        self.position = self.depth = self.parts = 0

    def spec(self) -> Metric:
        if not self.text.strip():
            raise ValueError("metric: expected a name or an expression such as 'f1', got an empty string.")
        metric = self.sum()
        if self.take("word", "subject"):
            self.need("'to' after 'subject'", "word", "to")
            constraints = [self.constraint()]
            while self.take("word", "and"):
                constraints.append(self.constraint())
            metric = metric.subject_to(*constraints)
            if self.take("word", "with"):
                for word in ("thresholds", "by"):
                    self.need("'with thresholds by' and a column", "word", word)
                metric = metric.with_thresholds_by(self.column())
        if self.peek()["end"] is None:
            self.fail("an operator or the end")
        if isinstance(metric, Constant) and not self.of_columns:
            raise ValueError(f"metric: {self.text!r} is a number, not a metric.")
        return metric

    def constraint(self) -> Constraint:
        spread = bool(self.take("word", "spread") and self.need("'(' after 'spread'", "symbol", "("))
        metric = Coverage() if self.take("word", "coverage") else self.sum()
        if spread:
            self.need("')'", "symbol", ")")
        operator = self.need("'>=' or '<='", "compare")
        found = Constraint(metric, operator, self.number())
        if self.take("word", "in", "per"):
            return found.in_groups(self.column(), spread=spread)
        if spread:
            self.fail("'in' and a column after a spread, such as 'spread(recall[1]) <= 0.05 in sex'")
        return found

    def column(self) -> str:
        quoted = self.take("quoted")
        return _unquoted(quoted) if quoted else self.need("a column", "word")

    def sum(self) -> Metric:
        return self.joined("+-", lambda: self.joined("*/", self.factor))

    def joined(self, operators: str, part: Callable[[], Metric]) -> Metric:
        result = part()
        while operator := self.take("symbol", *operators):
            result = combine(operator, result, part())
        return result

    @contextmanager
    def nested(self) -> Iterator[None]:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise ValueError(f"metric: brackets and signs are nested deeper than {_MAX_DEPTH} levels.")
        yield
        self.depth -= 1

    def factor(self) -> Metric:
        self.parts += 1
        if self.parts > _MAX_PARTS:
            raise ValueError(f"metric: the expression has more than {_MAX_PARTS} parts.")
        with self.nested():
            if self.take("symbol", "-"):
                return combine("*", -1.0, self.factor())
            if number := self.take("number"):
                return Constant(float(number))
            if self.take("symbol", "("):
                inner = self.sum()
                self.need("')'", "symbol", ")")
                return inner
            if self.of_columns:
                quoted = self.take("quoted")
                return Column(_unquoted(quoted) if quoted else self.need("a column, a number or '('", "word"))
            return self.metric(self.need("a metric, a number or '('", "word"))

    def metric(self, name: str) -> Metric:
        if self.peek()["symbol"] == "(":
            allowed = "expressions hold names, numbers and + - * / only. Pass a Python function instead"
            raise ValueError(f"metric: {self.text!r} calls {name!r}; {allowed}.")
        parameters: dict[str, Any] = {}
        self.label(parameters)
        if self.take("symbol", ":"):
            self.of_columns = name == "money"
            self.parameter(parameters)
            while self.take("symbol", ","):
                self.parameter(parameters)
            self.of_columns = False
            self.label(parameters)
        return Money(**parameters) if name == "money" else build(name, parameters)

    def label(self, parameters: dict[str, Any]) -> None:
        if self.peek()["symbol"] != "[":
            return
        match = _LABEL.match(self.text, self.position)
        if not match or not match.group().strip().isprintable() or "label" in parameters:
            self.fail("one class label in brackets, such as [fraud] or ['a name with ]']")
        self.position = match.end()
        bare = match["bare"]
        if bare == "":
            self.fail("a class label between the brackets")
        number = bare and re.fullmatch(r"-?\d+", bare) and str(int(bare)) == bare
        parameters["label"] = _unquoted(match["quoted"]) if bare is None else int(bare) if number else bare

    def parameter(self, parameters: dict[str, Any]) -> None:
        key = self.need("a parameter name", "word")
        self.need(f"'=' after {key!r}", "symbol", "=")
        if key in parameters:
            raise ValueError(f"metric: parameter {key!r} is given twice in {self.text!r}.")
        if self.of_columns and key not in OUTCOMES:
            raise ValueError(f"metric: money has no outcome {key!r}; it takes {', '.join(OUTCOMES)}.")
        parameters[key] = self.sum() if self.of_columns else self.value()

    def value(self) -> Any:
        with self.nested():
            if self.take("symbol", "["):
                values = [self.value()]
                while self.take("symbol", ","):
                    values.append(self.value())
                self.need("']'", "symbol", "]")
                return tuple(values)
            if self.peek()["symbol"] == "-":
                return self.number()
            if number := self.take("number"):
                return int(number) if re.fullmatch(r"\d+", number) else float(number)
            if quoted := self.take("quoted"):
                return _unquoted(quoted)
            word = self.need("a value", "word")
            return float("nan") if word == "nan" else word

    def number(self) -> float:
        return float(self.take("symbol", "-") + self.need("a number", "number"))

    def peek(self) -> re.Match[str]:
        """The next token, as the group of its kind."""
        return cast("re.Match[str]", _TOKENS.match(self.text, self.position))  # any character matches, and the end

    def take(self, kind: str, *texts: str) -> str:
        """Go past the next token if it is of that kind and one of those texts; "" if it is not."""
        token = self.peek()
        if token[kind] is None or (texts and token[kind] not in texts):
            return ""
        self.position = token.end()
        return token[kind]

    def need(self, expected: str, kind: str, *texts: str) -> str:
        return self.take(kind, *texts) or self.fail(expected)

    def fail(self, expected: str) -> NoReturn:
        token, kind = self.peek(), str(self.peek().lastgroup)
        got = "the end" if kind == "end" else repr(token[kind])
        raise ValueError(f"metric: in {self.text!r} at position {token.start(kind)}: expected {expected}, got {got}.")


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.DOTALL)
