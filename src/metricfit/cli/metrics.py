"""``metricfit metrics``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import metricfit
from metricfit.cli import command as cli


class Metrics(cli.Command):
    """List the metrics, or show one: formula, range, parameters, reference.

    A spec is a name, a name with parameters (fbeta:beta=2,average=macro), the metric of a class (f1[yes]), an
    expression of these (0.7*recall[yes] + 0.3*precision[yes]), or one with constraints (precision[yes] subject to
    recall[yes] >= 0.9).
    """

    name: str | None = cli.argument("NAME", "A metric's name or alias.", None)

    def run(self) -> None:
        # The pages of all names and aliases, which metrics.describe made: to show them needs no torch.
        pages = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
        if "metricfit.metrics" in sys.modules:  # then a program may have registered metrics of its own
            own = metricfit.metrics.available()
            pages |= {name: metricfit.metrics.describe(name) for name in own if name not in pages}
        if self.name is None:
            found = [page for name, page in sorted(pages.items()) if name == page["canonical"]]
            rows = [[m["name"], m["summary"], *_range(m)] for m in found]
            self.table(f"{len(found)} metrics", ["name", "what it is", "range", "better"], rows, left=2)
            return self.result(found)
        if (shown := pages.get(self.name)) is None:
            try:
                shown = metricfit.metrics.describe(self.name)
            except ValueError as error:
                raise cli.UsageError(str(error)) from None
        about = {
            "formula": shown["formula"],
            "range": "{}, {} is better".format(*_range(shown)),
            "parameters": ", ".join(f"{k}={v}" for k, v in shown["parameters"].items()),
            "also": ", ".join(shown["aliases"]),
            "reference": shown["reference"] or "–",
        }
        lines = [f"  {name:<10} {text}" for name, text in about.items() if text]
        self.line("\n".join([f"{shown['name']}: {shown['summary']}", *lines]))
        self.result(shown)


def _range(metric: dict[str, Any]) -> tuple[str, str]:
    low, high = metric["range"]
    return f"{low:g} to {high:g}".replace("inf", "∞"), "higher" if metric["greater_is_better"] else "lower"
