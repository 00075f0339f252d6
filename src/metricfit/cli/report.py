"""``metricfit report``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metricfit.cli import options as opt
from metricfit.cli.command import UsageError, argument, option

if TYPE_CHECKING:
    from metricfit.store import SavedModel


@dataclass(kw_only=True)
class Report(opt.Labels):
    """Write the report of a model: one HTML page with the measured metric, an explorer of decision rules, and curves.

    Without DATA it is drawn from the rows that were held out in training. With DATA it shows those rows: without
    labels, only what the model says about them.

    Example: metricfit report model march.csv --out march.html
    """

    model: Path = opt.a_model()
    data: str | None = argument(
        "DATA", "Rows that the model was not trained on: CSV, CSV.gz or Parquet; - for standard input.", None,
        shown="the rows held out in training",
    )  # fmt: skip
    out: Path | None = option("Write the page here.", "FILE", shown="MODEL/report.html")

    def run(self) -> None:
        from metricfit.files import written_whole
        from metricfit.report import render
        from metricfit.report.page import NO_SCORES
        from metricfit.store import open_model

        place = self.out or self.model / "report.html"
        if place.is_dir():
            raise UsageError(f"--out: {place} is a folder; name the file to write.")
        options = ("separator", "encoding", "target", "weight")
        if self.data is None and (without := [name for name in options if getattr(self, name) is not None]):
            raise UsageError(f"--{without[0]}: has no effect without DATA.")
        loaded = open_model(self.model)
        shown: dict[str, Any] = {"scores": loaded.classifier.held_out_}
        if self.data is not None:
            shown = self._shown(loaded, self.data)
        elif shown["scores"] is None:
            self.warn(NO_SCORES.replace("MODEL", str(self.model)))
        settings = loaded.files.get("train.toml", b"").decode()
        page = render(loaded.classifier, loaded.description, settings=settings or None, **shown)
        with written_whole(place) as path:
            path.write_text(page, encoding="utf-8")
        self.line(f"Report: {place}")
        rows = len(shown.get("scores") or ())
        self.result({"report": str(place), "rows": rows, "notes": shown.get("notices", [])})

    def _shown(self, loaded: SavedModel, data: str) -> dict[str, Any]:
        """What the page shows of a file: scores, or only predictions where the labels are not known."""
        from metricfit.assess import scores_of
        from metricfit.report import Unlabelled

        file, name = self.open(data), Path(data).name if data != "-" else "standard input"
        source, classifier = f"rows of {name}", loaded.classifier
        missing = [] if self.target else [column for column in loaded.target if column not in file.columns]
        if not missing:
            table = self.rows(loaded, file)
            notice = (
                f"These are the rows of {name}. The cross-entropy baseline is not kept with the model, so there is "
                "nothing to compare with here; the report of the held-out rows (without DATA) has the comparison."
            )
            scores = scores_of(classifier, table.X, table.y, table.weight, source=source)
            return {"scores": scores, "notices": [notice]}
        if self.weight is not None:
            raise UsageError("--weight: has no effect on rows without labels.")
        notice = (
            f"{name} has no column {', '.join(map(repr, missing))}, so the true labels are not known: matrices, "
            "curves and the explorer are left out, and the page shows only what the model says about these rows."
        )
        self.warn(notice)
        proba = loaded.probabilities(file)
        return {"unlabelled": Unlabelled(proba, classifier.decision_rule_.decide(proba), source), "notices": [notice]}
