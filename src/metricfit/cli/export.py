"""``metricfit export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from metricfit.cli import options as opt
from metricfit.cli.output import Output, UsageError


def command(
    model: opt.Model,
    output: Output,
    format: Annotated[str, typer.Option(metavar="FORMAT", help="The only one so far.")] = "onnx",
    out: Annotated[
        Path | None, opt.option("The file to write.", "FILE", default="model.onnx in MODEL's parent")
    ] = None,
    overwrite: opt.Overwrite = False,
) -> None:
    """Write a model for use without Python: preprocessing, network and decision rule as one ONNX graph.

    Each column is an input of its own, of shape (rows, 1): numbers as double with NaN for gaps, categories as text
    with the empty text for gaps, dates as days since 2000-01-01. Outputs are the label and the probabilities.

    Example: metricfit export model --format onnx --out model.onnx
    """
    if format != "onnx":
        raise UsageError(f"--format: expected onnx, got {format!r}.")
    target = out or model.absolute().parent / f"{model.absolute().name}.onnx"
    if target.exists() and not overwrite:
        raise UsageError(f"--out: {target} exists; --overwrite replaces it.")
    from metricfit.store import load
    from metricfit.store.onnx import to_onnx

    inputs = to_onnx(load(model), target)
    output.table(f"ONNX model: {target}", ["input", "type"], list(inputs.items()), left=2)
    output.result({"file": str(target), "inputs": inputs})
