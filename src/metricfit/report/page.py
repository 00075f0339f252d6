"""The page itself: template, styles and script in one file that loads nothing."""

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

__all__ = ["page", "to_script_json"]

_SCRIPTS = ("metrics.js", "charts.js", "models.js", "explorer.js", "page.js")


def page(content: dict[str, Any], data: dict[str, Any]) -> str:
    """Render.

    Args:
        content: What the template shows; every text is escaped.
        data: What the script works on; plain values.
    """
    script, style = _script(), _asset("report.css")
    return (
        _environment()
        .get_template("report.html")
        .render(
            **content,
            style=style,
            script=script,
            # Only this very script and style may run: text that got into the page as markup could do nothing.
            script_hash=_hash(script),
            style_hash=_hash(style),
            data=to_script_json(data),
        )
    )


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
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("metricfit.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"num": _num, "signed": _signed, "count": _count, "percent": _percent, "plain": _plain}
    return environment


@cache
def _asset(name: str) -> str:
    return (files("metricfit.report") / "assets" / name).read_text(encoding="utf-8")


def _script() -> str:
    return '"use strict";(() => {\n' + "\n".join([formulas(), *map(_asset, _SCRIPTS)]) + "\n})();"


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _missing(value: float | None) -> bool:
    return value is None or not math.isfinite(value)


def _num(value: float | None, places: int) -> str:
    return "–" if value is None or _missing(value) else f"{value:.{places}f}".replace("-", "\u2212")


def _signed(value: float | None) -> str:
    return "–" if value is None or _missing(value) else f"{value:+.3f}".replace("-", "\u2212")


def _count(value: float) -> str:
    return f"{int(value):,}" if float(value).is_integer() else f"{value:,.6g}"


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _plain(value: float | None) -> str:
    return "" if value is None or _missing(value) else repr(float(value))
