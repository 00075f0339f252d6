"""The page and the model card: templates, styles and script; the page is one file that loads nothing."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from metricfit.report.formula import formulas

__all__ = ["measured_rows", "model_card", "page", "to_script_json"]

_SCRIPTS = ("metrics.js", "charts.js", "models.js", "explorer.js", "page.js")


def page(content: dict[str, Any], data: dict[str, Any]) -> str:
    """Render the page.

    Args:
        content: What the template shows; every text is escaped.
        data: What the script works on; plain values.
    """
    scripts = "\n".join([formulas(), *map(_asset, _SCRIPTS)])
    # Only this very script and style may run: text that got into the page as markup could do nothing.
    trusted = {"script": f'"use strict";(() => {{\n{scripts}\n}})();', "style": _asset("report.css")}
    hashes = {f"{name}_hash": _hash(text) for name, text in trusted.items()}
    template = _environment(html=True).get_template("report.html")
    return template.render(**content, **trusted, **hashes, data=to_script_json(data))


def model_card(description: dict[str, Any]) -> str:
    """The model card as Markdown, from a description, see :func:`metricfit.store.description_of`."""
    classes = [str(value) for value in description["classes"]["values"]]
    template = _environment(html=False).get_template("card.md")
    return template.render({**description, "classes": classes, "rows": measured_rows(description)})


def measured_rows(description: dict[str, Any]) -> list[dict[str, Any]]:
    """What was measured when the model was trained: model, value, low and high; only rows that have a value."""
    rows = description["notes"].get("held_out") or description["validation_report"]
    return [row for row in rows if row["value"] is not None]


def to_script_json(data: Any) -> str:
    r"""JSON that stays inside its script element, whatever texts it holds.

    >>> print(to_script_json({"name": "</script><!--"}))
    {"name":"\u003c/script\u003e\u003c!--"}
    """
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


@cache
def _environment(*, html: bool) -> Environment:
    # The card is no HTML; every text in it goes through the filter "text" or "code".
    environment = Environment(
        loader=PackageLoader("metricfit.report"), autoescape=html, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    shown = (_num, _signed, _count, _percent, _plain, _text, _code)
    environment.filters |= {function.__name__[1:]: function for function in shown}
    return environment


@cache
def _asset(name: str) -> str:
    return (files("metricfit.report") / "assets" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _plain(value: float | None, form: str = "", missing: str = "") -> str:
    return missing if value is None or not math.isfinite(value) else format(float(value), form)


def _num(value: float | None, places: int) -> str:
    return _plain(value, f".{places}f", "–").replace("-", "\u2212")


def _signed(value: float | None) -> str:
    return _plain(value, "+.3f", "–").replace("-", "\u2212")


def _count(value: float) -> str:
    return f"{int(value):,}" if float(value).is_integer() else f"{value:,.6g}"


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _text(value: Any) -> str:
    r"""Text that Markdown shows as it is: no HTML, no end of a table's cell, no formatting.

    >>> print(_text("a|b <b> >= *c*"))
    a\|b &lt;b> >= \*c\*
    """
    line = " ".join(str(value).split()).replace("&", "&amp;").replace("<", "&lt;")
    for mark in "\\`*_|[]":
        line = line.replace(mark, f"\\{mark}")
    return line


def _code(value: Any) -> str:
    """A code span, where the text has nothing that could end it or be taken for HTML."""
    line = " ".join(str(value).split())
    return _text(line) if any(mark in line for mark in "`<|&") else f"`{line}`"
