"""``metricfit search``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import metricfit
from metricfit.cli import command as cli
from metricfit.cli.train import Train


class Search(Train):
    """Search for the parameters of the models, train the best of each together, and measure them on rows apart.

    Give the same command on as many machines as you like, and again to go on: all work on one study. The rows apart are
    those of --validation, the latest by --time, or a random fifth; neither trials nor training see them. The model's
    train.toml holds what was found: 'metricfit train --config MODEL/train.toml --out OTHER' trains on all rows.

    Example: metricfit search churn.csv --target churn --metric mcc --study study.log --trials 100
    """

    study: str = cli.option("A journal file, or the URL of a database.", "STUDY", default=cli.REQUIRED)
    study_name: str = cli.option("Which study of the store.", "NAME", default="metricfit")
    trials: int = cli.option("Finished trials, by all processes together.", "N", default=100, min=1)
    out: Path = cli.an_out("The model folder to write.", "DIR", shown="STUDY.model")
    time_limit: str | None = cli.option("Begin no trial after 90s, 15m or 2h.", "TIME", cli.RUN)

    def run(self) -> None:
        spec, limit, (names, recipe) = cli.checked_metric(self.metric), cli.seconds(self.time_limit), self.asked_for()
        place = self.study_name if "://" in self.study else Path(self.study).stem
        self.out = self.out or Path(f"{place}.model")
        cli.check_free(self.out, self.overwrite)
        table, held, roles = super().tables(spec)
        if held is None:
            table, held = table.split_at_random(self.seed)
        self.ready = table, held, roles
        asked = replace(table, choices=[])  # they are shown when the model is trained
        judged, (groups, folds) = self.judged_by(spec, asked), asked.fold_groups(self.folds)
        self.found = metricfit.search.Search(
            table.X, table.target, judged, study=self.study, name=self.study_name, models=names, recipe=recipe,
            cv=folds or "auto", sample_weight=table.weight, groups=groups, columns=table.columns,
            random_state=self.seed,
        )  # fmt: skip
        with cli.stoppable(f"the finished trials are in {self.study}") as check:
            self.found.run(self.trials, time_limit=limit, progress=lambda rows: self._tell(rows, check))
        best, models, found = self.found.best()
        if not best:
            reasons = sorted({row["error"] for row in self.found.history()})
            raise cli.CommandError(f"no trial could be fitted: {'; '.join(reasons) or 'the time was over'}.")
        if self.out.exists() and not self.overwrite:
            return self.note(f"Another process has written {self.out}.")
        self.models, self.recipe, self.time_limit = ",".join(models), found.spec(), None
        super().run()

    def tables(self, spec: metricfit.metrics.Metric) -> tuple[Any, Any, Any]:
        return self.ready

    def _tell(self, rows: list[dict[str, Any]], check: Callable[[], None]) -> None:
        last, best = rows[-1], self.found.best()[0].get(rows[-1]["model"])
        told = cli.number(last["value"]) if last["state"] == "complete" else last["error"] or "pruned"
        sofar = f"; {last['model']}'s best so far {cli.number(best['value'])}" if best else ""
        self.note(f"[{len(rows)}/{self.trials}] {last['spec']}: {told}{sofar}")
        check()

    def noted(self, classifier: metricfit.MetricClassifier, held: Any) -> dict[str, Any]:
        if held is None:  # there are always rows apart
            return {}
        gain = self.found.gain(classifier, held.X, held.y, held.weight, held.columns)
        cells = [[name, row["spec"], row["value"]] for name, row in self.found.best()[0].items()]
        self.table("Best trials: the most of many, so too high", ["model", "parameters", "value"], cells, left=2)
        between = cli.shown((gain["low"], gain["high"]))
        self.line(f"On the rows apart the search gained {gain['gain']:+.4f} over the usual parameters ({between}).")
        found = {"trials": self.found.history(), "importances": self.found.importances(), **gain}
        return {"search": {**found, "greater_is_better": self.found.metric.greater_is_better}}
