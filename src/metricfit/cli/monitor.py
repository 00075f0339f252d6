"""``metricfit monitor``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import metricfit
from metricfit.cli import command as cli


class Monitor(cli.Reading):
    """See whether a model still works: compare new rows with those that were held out in training.

    Looks at scores, predicted shares, the share of each class and the metric, both estimated without labels, and the
    constraints; where labels have come in, also at the metric that was reached. Ends with exit code 4 at an alarm.

    Example: metricfit monitor model march.csv --labels churn --out march.html
    """

    model: Path = cli.a_model()
    data: str = cli.a_table()
    labels: list[str] | None = cli.option("The column of true labels, which may have gaps.", "COL…", shown="none")
    alarm: float = cli.option("How probable any alarm is if nothing has changed.", "P", default=0.05, min=0.0, max=1.0)
    out: Path | None = cli.an_out("Write a page here too.", "FILE")

    def run(self) -> None:
        loaded, file = metricfit.store.open_model(self.model), self.open(self.data)
        X, labelled = loaded.features(file), None
        if self.labels is not None:
            table = loaded.labelled_rows(file, target=cli.columns_of(self.labels, file.columns))
            labelled = metricfit.assess.scores_of(loaded.classifier, table.X, table.y)
        found = metricfit.assess.monitor(loaded.classifier, X, labelled, alarm=self.alarm)
        known = "" if labelled is None else f", {len(labelled):,} of them with labels"
        title = f"{len(X):,} rows of {self.data}{known}"
        heads = ["", "of", "in training", "95 % interval", "now", "95 % interval", "chance", ""]
        cells = [
            [each.kind, each.about, each.then.value, (each.then.low, each.then.high), each.now.value,
             (each.now.low, each.now.high), each.chance, "ALARM" if each.alarm else "missed" if each.missed else ""]
            for each in found
        ]  # fmt: skip
        self.table(title, heads, cells, left=2)
        if self.out is not None:
            with metricfit.files.written_whole(self.out) as path:
                shown = [[cli.shown(cell) for cell in row] for row in cells]
                path.write_text(metricfit.report.page.render_watched(title, heads, shown), encoding="utf-8")
            self.line(f"Page: {self.out}")
        alarms = [f"{each.kind} of {each.about}" for each in found if each.alarm]
        self.result({"rows": len(X), "alarm": bool(alarms), "found": [asdict(each) for each in found]})
        if alarms:
            self.note(f"Alarm: {', '.join(alarms)}.")
            raise SystemExit(4)
