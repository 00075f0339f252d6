"""``metricfit export``."""

from __future__ import annotations

from pathlib import Path

import metricfit
from metricfit.cli import command as cli


class Export(cli.Command):
    """Write a model for use without Python: preprocessing, network and decision rule as one ONNX graph.

    Each column is an input of its own, of shape (rows, 1): numbers as double with NaN for gaps, categories as text
    with the empty text for gaps, dates as days since 2000-01-01. Outputs are the label and the probabilities.

    Example: metricfit export model --format onnx --out model.onnx
    """

    model: Path = cli.a_model()
    format: str = cli.option("The only one so far.", "FORMAT", default="onnx")
    out: Path | None = cli.an_out("The file to write.", "FILE", shown="model.onnx in MODEL's parent")
    overwrite: bool = cli.to_overwrite()

    def run(self) -> None:
        cli.expect(self.format == "onnx", f"--format: expected onnx, got {self.format!r}.")
        target = self.out or self.model.absolute().parent / f"{self.model.absolute().name}.onnx"
        cli.expect(self.overwrite or not target.exists(), f"--out: {target} exists; --overwrite replaces it.")
        from metricfit.store.onnx import to_onnx

        inputs = to_onnx(metricfit.load(self.model), target)
        self.table(f"ONNX model: {target}", ["input", "type"], list(inputs.items()), left=2)
        self.result({"file": str(target), "inputs": inputs})
