"""The spec grammar: text to a metric, by a small parser of our own that runs nothing.

::

    spec       = sum [ "subject to" constraint { "and" constraint } ]
    constraint = sum ( ">=" | "<=" ) number
    sum        = product { ("+" | "-") product }
    product    = factor { ("*" | "/") factor }
    factor     = "-" factor | number | "(" sum ")" | metric
    metric     = name [ ":" key "=" value { "," key "=" value } ] [ "[" label "]" ]
    value      = number | word | "[" value { "," value } "]" | quoted text

Quoted text stands in '…' or "…", with a backslash before a quote; a label needs quotes only for brackets and quotes
in it, and where '1' is meant and not the number 1.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn, TypeVar

from metricfit.metrics.arithmetic import Constant, combine
from metricfit.metrics.base import Metric
from metricfit.metrics.constraints import Constraint

__all__ = ["parse"]

T = TypeVar("T")
Build = Callable[[str, dict[str, Any]], Metric]


class _Token(NamedTuple):
    kind: str
    text: str
    start: int


_QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_TOKENS = re.compile(
    rf"""(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
      | (?P<quoted>{_QUOTED})
      | (?P<word>[^\W\d]\w*)
      | (?P<compare>>=|<=)
      | (?P<symbol>[-+*/()\[\]:,=])
      | (?P<space>\s+)
      | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_LABEL = re.compile(rf"\[\s*(?:(?P<quoted>{_QUOTED})|(?P<bare>[^\[\]]*?))\s*\]", re.DOTALL)
_MAX_LENGTH = 2000
_MAX_DEPTH = 50
_MAX_PARTS = 200


def parse(text: str, build: Build) -> Metric:
    """Read a spec; ``build(name, parameters)`` makes the named metrics.

    >>> from metricfit import metrics
    >>> print(metrics.get("0.7*recall[1] + 0.3*precision[1]"))
    0.7*recall[1] + 0.3*precision[1]
    """
    if len(text) > _MAX_LENGTH:
        raise ValueError(f"metric: the expression has {len(text)} characters, at most {_MAX_LENGTH} are read.")
    return _Parser(text, build).spec()


class _Parser:
    def __init__(self, text: str, build: Build) -> None:
        self.text = text
        self.build = build
        self.position = 0
        self.depth = 0
        self.parts = 0

    def spec(self) -> Metric:
        if not self.text.strip():
            raise ValueError("metric: expected a name or an expression such as 'f1', got an empty string.")
        metric = self.sum()
        if self.take("word", "subject"):
            if not self.take("word", "to"):
                self.fail("'to' after 'subject'")
            constraints = [self.constraint()]
            while self.take("word", "and"):
                constraints.append(self.constraint())
            metric = metric.subject_to(*constraints)
        if self.peek().kind != "end":
            self.fail("an operator or the end")
        if isinstance(metric, Constant):
            raise ValueError(f"metric: {self.text!r} is a number, not a metric.")
        return metric

    def constraint(self) -> Constraint:
        metric = self.sum()
        token = self.peek()
        if not self.take("compare"):
            self.fail("'>=' or '<='")
        sign = -1.0 if self.take("symbol", "-") else 1.0
        bound = sign * self.number()
        return Constraint(metric, token.text, bound)

    def sum(self) -> Metric:
        result = self.product()
        while (operator := self.peek()).text in ("+", "-") and operator.kind == "symbol":
            self.advance(operator)
            right = self.product()
            result = combine(operator.text, result, right)
        return result

    def product(self) -> Metric:
        result = self.factor()
        while (operator := self.peek()).text in ("*", "/") and operator.kind == "symbol":
            self.advance(operator)
            right = self.factor()
            result = combine(operator.text, result, right)
        return result

    def factor(self) -> Metric:
        self.parts += 1
        if self.parts > _MAX_PARTS:
            raise ValueError(f"metric: the expression has more than {_MAX_PARTS} parts.")
        return self.nested(self._factor)

    def nested(self, read: Callable[[], T]) -> T:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise ValueError(f"metric: brackets and signs are nested deeper than {_MAX_DEPTH} levels.")
        try:
            return read()
        finally:
            self.depth -= 1

    def _factor(self) -> Metric:
        token = self.peek()
        if self.take("symbol", "-"):
            return -self.factor()
        if token.kind == "number":
            return Constant(self.number())
        if self.take("symbol", "("):
            inner = self.sum()
            if not self.take("symbol", ")"):
                self.fail("')'")
            return inner
        if token.kind == "word":
            self.advance(token)
            return self.metric(token.text)
        self.fail("a metric, a number or '('")

    def metric(self, name: str) -> Metric:
        if self.peek().text == "(":
            raise ValueError(
                f"metric: {self.text!r} calls {name!r}; expressions hold names, numbers and + - * / only. Pass a "
                "Python function instead."
            )
        parameters: dict[str, Any] = {}
        self.label(parameters)
        if self.take("symbol", ":"):
            self.parameter(parameters)
            while self.take("symbol", ","):
                self.parameter(parameters)
            self.label(parameters)
        return self.build(name, parameters)

    def label(self, parameters: dict[str, Any]) -> None:
        if self.peek().text != "[":
            return
        start = self.peek().start
        match = _LABEL.match(self.text, start)
        if not match or not match.group().isprintable() or "label" in parameters:
            self.fail("one class label in brackets, such as [fraud] or ['a name with ]']")
        self.position = match.end()
        if match["quoted"] is not None:
            parameters["label"] = _unquoted(match["quoted"])
        elif match["bare"] == "":
            self.fail("a class label between the brackets")
        else:
            bare = match["bare"]
            parameters["label"] = int(bare) if re.fullmatch(r"-?\d+", bare) and str(int(bare)) == bare else bare

    def parameter(self, parameters: dict[str, Any]) -> None:
        key = self.peek()
        if not self.take("word"):
            self.fail("a parameter name")
        if not self.take("symbol", "="):
            self.fail(f"'=' after {key.text!r}")
        if key.text in parameters:
            raise ValueError(f"metric: parameter {key.text!r} is given twice in {self.text!r}.")
        parameters[key.text] = self.value()

    def value(self) -> Any:
        return self.nested(self._value)

    def _value(self) -> Any:
        token = self.peek()
        if self.take("symbol", "["):
            values = [self.value()]
            while self.take("symbol", ","):
                values.append(self.value())
            if not self.take("symbol", "]"):
                self.fail("']'")
            return tuple(values)
        if self.take("symbol", "-"):
            return -self.number()
        if token.kind == "number":
            number = self.number()
            return int(token.text) if re.fullmatch(r"\d+", token.text) else number
        if self.take("quoted"):
            return _unquoted(token.text)
        if self.take("word"):
            return float("nan") if token.text == "nan" else token.text
        self.fail("a value")

    def number(self) -> float:
        token = self.peek()
        if not self.take("number"):
            self.fail("a number")
        return float(token.text)

    def peek(self) -> _Token:
        position = self.position
        while match := _TOKENS.match(self.text, position):
            if match.lastgroup != "space":
                return _Token(match.lastgroup or "other", match.group(), position)
            position = match.end()
        return _Token("end", "", position)

    def take(self, kind: str, text: str | None = None) -> bool:
        token = self.peek()
        if token.kind != kind or (text is not None and token.text != text):
            return False
        self.advance(token)
        return True

    def advance(self, token: _Token) -> None:
        self.position = token.start + len(token.text)

    def fail(self, expected: str) -> NoReturn:
        token = self.peek()
        got = f"{token.text!r}" if token.kind != "end" else "the end"
        raise ValueError(f"metric: in {self.text!r} at position {token.start}: expected {expected}, got {got}.")


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.DOTALL)
