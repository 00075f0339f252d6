"""``metricfit metrics``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metricfit.cli.command import Command, UsageError, argument


@dataclass(kw_only=True)
class Metrics(Command):
    """List the metrics, or show one: formula, range, parameters, reference.

    A spec is a name, a name with parameters (fbeta:beta=2,average=macro), the metric of a class (f1[yes]), an
    expression of these (0.7*recall[yes] + 0.3*precision[yes]), or one with constraints (precision[yes] subject to
    recall[yes] >= 0.9).
    """

    name: str | None = argument("NAME", "A metric's name or alias.", None)

    def run(self) -> None:
        # The pages of all names, which metrics.describe made: to show one needs no torch.
        shown = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8")).get(self.name)
        if shown is None:
            from metricfit import metrics

            if self.name is None:
                found = [metrics.describe(name) for name in metrics.available()]
                rows = [[m["name"], m["summary"], *_range(m)] for m in found]
                self.table(f"{len(found)} metrics", ["name", "what it is", "range", "better"], rows, left=2)
                self.result(found)
                return
            try:
                shown = metrics.describe(self.name)
            except ValueError as error:
                raise UsageError(str(error)) from None
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
