"""``metricfit report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from metricfit.cli import options as opt
from metricfit.cli.output import Output, UsageError


def command(
    model: opt.Model,
    labels: opt.Labels,
    output: Output,
    data: Annotated[
        str | None,
        opt.argument("DATA", "Rows that the model was not trained on: CSV, CSV.gz or Parquet; - for standard input.",
                     "the rows held out in training"),
    ] = None,
    out: Annotated[Path | None, opt.option("Write the page here.", "FILE", default="MODEL/report.html")] = None,
) -> None:  # fmt: skip
    """Write the report of a model: one HTML page with the measured metric, an explorer of decision rules, and curves.

    Without DATA it is drawn from the rows that were held out in training. With DATA it shows those rows: without
    labels, only what the model says about them.

    Example: metricfit report model march.csv --out march.html
    """
    from metricfit.assess.scores import scores_of
    from metricfit.files import written_whole
    from metricfit.report import Unlabelled, render
    from metricfit.report.page import NO_SCORES
    from metricfit.store import open_model

    place = out or model / "report.html"
    if place.is_dir():
        raise UsageError(f"--out: {place} is a folder; name the file to write.")
    if data is None and (without := [name for name, value in vars(labels).items() if value is not None]):
        raise UsageError(f"--{without[0]}: has no effect without DATA.")
    loaded = open_model(model)
    classifier = loaded.classifier
    shown: dict[str, Any] = {}
    notices: list[str] = []
    kept = classifier.held_out_
    if data is not None:
        file = labels.open(data)
        name = Path(data).name if data != "-" else "standard input"
        missing = [] if labels.target else [column for column in loaded.target if column not in file.columns]
        if missing:
            if labels.weight is not None:
                raise UsageError("--weight: has no effect on rows without labels.")
            notices.append(
                f"{name} has no column {', '.join(map(repr, missing))}, so the true labels are not known: matrices, "
                "curves and the explorer are left out, and the page shows only what the model says about these rows."
            )
            output.warn(notices[-1])
            proba, kept = loaded.probabilities(file), None
            shown["unlabelled"] = Unlabelled(proba, classifier.decision_rule_.decide(proba), f"rows of {name}")
        else:
            table = labels.rows(loaded, file)
            output.choices(table.choices)
            notices.append(
                f"These are the rows of {name}. The cross-entropy baseline is not kept with the model, so there is "
                "nothing to compare with here; the report of the held-out rows (without DATA) has the comparison."
            )
            kept = scores_of(classifier, table.X, table.y, table.weight, source=f"rows of {name}")
            shown["scores"] = kept
    elif kept is None:
        output.warn(NO_SCORES.replace("MODEL", str(model)))
    settings = loaded.files.get("train.toml", b"").decode()
    page = render(classifier, loaded.description, settings=settings or None, notices=notices, **shown)
    with written_whole(place) as path:
        path.write_text(page, encoding="utf-8")
    output.line(f"Report: {place}")
    output.result({"report": str(place), "rows": 0 if kept is None else len(kept), "notes": notices})
