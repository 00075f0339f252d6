"""``metricfit metrics``."""

from __future__ import annotations

from typing import Annotated, Any

from metricfit.cli import options as opt
from metricfit.cli.output import Output, UsageError


def command(
    output: Output, name: Annotated[str | None, opt.argument("NAME", "A metric's name or alias.")] = None
) -> None:
    """List the metrics, or show one: formula, range, parameters, reference.

    A spec is a name, a name with parameters (fbeta:beta=2,average=macro), the metric of a class (f1[yes]), an
    expression of these (0.7*recall[yes] + 0.3*precision[yes]), or one with constraints (precision[yes] subject to
    recall[yes] >= 0.9).
    """
    from metricfit import metrics

    if name is None:
        found = [metrics.describe(n) for n in metrics.available()]
        rows = [[m["name"], m["summary"], _range(m), "higher" if m["greater_is_better"] else "lower"] for m in found]
        output.table(f"{len(found)} metrics", ["name", "what it is", "range", "better"], rows, left=2)
        output.result(found)
        return
    try:
        shown = metrics.describe(name)
    except ValueError as error:
        raise UsageError(str(error)) from None
    output.line(f"{shown['name']}: {shown['summary']}")
    output.line(f"  formula    {shown['formula']}")
    output.line(f"  range      {_range(shown)}, {'higher' if shown['greater_is_better'] else 'lower'} is better")
    if shown["parameters"]:
        output.line(f"  parameters {', '.join(f'{k}={v}' for k, v in shown['parameters'].items())}")
    if shown["aliases"]:
        output.line(f"  also       {', '.join(shown['aliases'])}")
    output.line(f"  reference  {shown['reference'] or '–'}")
    output.result(shown)


def _range(metric: dict[str, Any]) -> str:
    low, high = metric["range"]
    return f"{low:g} to {high:g}".replace("inf", "∞")
