"""``metricfit report``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import metricfit
from metricfit.cli import command as cli


class Report(cli.Labels):
    """Write the report of a model: one HTML page with the measured metric, an explorer of decision rules, and curves.

    Without DATA it is drawn from the rows that were held out in training. With DATA it shows those rows: without
    labels, only what the model says about them.

    Example: metricfit report model march.csv --out march.html
    """

    model: Path = cli.a_model()
    data: str | None = cli.argument("DATA", "Other rows; - for standard input.", None, shown="held-out rows")
    out: Path | None = cli.an_out("Write the page here.", "FILE", shown="MODEL/report.html")
    importance: bool = cli.switch("--importance", "Show which columns the decisions depend on; needs DATA.")

    def run(self) -> None:
        place = self.out or self.model / "report.html"
        cli.expect(not place.is_dir(), f"--out: {place} is a folder; name the file to write.")
        if self.data is None:
            self.refuse("without DATA", "separator", "encoding", "target", "weight", "importance")
        loaded = metricfit.store.open_model(self.model)
        classifier, notices = loaded.classifier, list[str]()
        scores, unlabelled, found = classifier.held_out_, None, None
        if self.data is not None:
            file, name = self.open(self.data), Path(self.data).name if self.data != "-" else "standard input"
            missing = [] if self.target else [column for column in loaded.target if column not in file.columns]
            if missing:
                self.refuse("on rows without labels", "weight", "importance")
                notices.append(
                    f"{name} has no column {', '.join(map(repr, missing))}, so the true labels are not known: matrices "
                    "and curves are left out, and the page shows only what the model says about these rows."
                )
                self.warn(notices[-1])
                proba, scores = classifier.predict_proba(loaded.features(file), raw=True), None
                decided = classifier.decision_rule_.decide(proba)
                unlabelled = metricfit.report.Unlabelled(proba, decided, f"rows of {name}")
            else:
                table = self.rows(loaded, file)
                scores = cli.scored(classifier, table, source=f"rows of {name}")
                rows = scores.judged(tuple(classifier.classes_.tolist()))
                found = metricfit.assess.columns.findings(classifier.metric_, rows, table.X)
                if self.importance:
                    found |= metricfit.assess.columns.dependence(classifier, table.X, table.y, table.weight)
        elif scores is None:
            self.warn(metricfit.report.page.NO_SCORES.replace("MODEL", str(self.model)))
        settings = loaded.files.get("train.toml", b"").decode() or None
        given: dict[str, Any] = {"scores": scores, "unlabelled": unlabelled, "notices": notices, "findings": found}
        page = metricfit.report.render(classifier, loaded.description, settings=settings, **given)
        with metricfit.files.written_whole(place) as path:
            path.write_text(page, encoding="utf-8")
        self.line(f"Report: {place}")
        self.result({"report": str(place), "rows": 0 if scores is None else len(scores), "notes": notices})
