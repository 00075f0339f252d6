"""``metricfit tune``."""

from __future__ import annotations

from dataclasses import replace
from json import loads
from pathlib import Path
from typing import TYPE_CHECKING, Any

import metricfit
from metricfit.cli import command as cli

if TYPE_CHECKING:
    from metricfit.assess import HeldOutScores
    from metricfit.decisions import DecisionRule
    from metricfit.store import SavedModel


class Tune(cli.Labels):
    """Choose a new decision rule for another metric or constraint, without training again.

    Use rows that the model was not trained on. The network stays as it is; only the step from probabilities to
    labels changes.

    With --prevalence the rule is chosen anew on the rows held out in training, for other shares of the classes: known
    ones, or those among the rows of DATA, which need no labels then.

    With --threshold or --rule the model gets a rule that was chosen elsewhere, such as in the report's explorer.

    Example: metricfit tune model holdout.csv --metric "precision[yes] subject to recall[yes] >= 0.9"
    """

    model: Path = cli.a_model()
    data: str | None = cli.argument("DATA", "Labelled rows, as CSV, CSV.gz or Parquet; - for standard input.", None)
    metric: str | None = cli.option("What to decide for, e.g. 'precision\\[yes] subject to recall\\[yes] >= 0.9'.", "M")
    prevalence: str | None = cli.option("Share of the positive class where the model is used: 0.01, or auto.", "P")
    threshold: float | None = cli.option("Take this threshold of the second class instead, without DATA.", "P")
    rule: str | None = cli.option("Take this rule instead, without DATA: JSON text, or a file with it.", "JSON")
    out: Path | None = cli.an_out("Write the changed model here.", "DIR", shown="MODEL itself")
    confidence: float | None = cli.option("Meet constraints on new data with this probability.", "P", min=0.0, max=1.0)
    overwrite: bool = cli.to_overwrite()

    def run(self) -> None:
        if self.out is not None:
            cli.check_free(self.out, self.overwrite)
        valid = self.threshold is None or 0 <= self.threshold <= 1
        cli.expect(valid, f"--threshold: expected a probability from 0 to 1, got {self.threshold}.")
        given = self.rule is not None or self.threshold is not None
        if given:
            self.refuse("with a rule that is given", "data", "metric", "confidence", "target", "weight", "prevalence")
        elif self.prevalence is not None:
            self.refuse("with --prevalence", "target", "weight")
        else:
            named = self.data is not None and self.metric is not None
            cli.expect(named, "give DATA and --metric to choose a rule, or the rule by --threshold or --rule.")
        asked = None if self.metric is None else cli.checked_metric(self.metric)
        loaded = metricfit.store.open_model(self.model)
        if given:
            how = metricfit.choices.Choice("rule", "the decision rule was given by hand")
            loaded.change_rule(self._given(loaded), how)
        result = {} if given else self._choose(loaded, asked)
        chosen = loaded.classifier.decision_rule_
        anew, more = self.out is None or self.overwrite, {"notes": loaded.notes, "files": loaded.files}
        folder = metricfit.save(loaded.classifier, self.out or self.model, overwrite=anew, **more)
        self.line(f"Rule:  {chosen.in_words()}\nModel: {folder}")
        self.result({**result, "rule": loads(chosen.to_json()), "model": str(folder)})

    def _choose(self, loaded: SavedModel, asked: Any) -> dict[str, Any]:
        """Choose the rule on the rows, and show what it changes there."""
        import numpy as np

        classifier = loaded.classifier
        labels = tuple(classifier.classes_.tolist())
        metric: Any = cli.resolved(asked, classifier)
        if getattr(metric, "by", None) is not None:
            cli.expect(asked is None, "--metric: thresholds by groups are chosen in training; give one for all here.")
            metric = metric.with_thresholds_by(None)  # groups stay moved to it
        cli.expect(not metric.judges_scores, f"--metric: {metric} judges the order of scores; no rule changes it.")
        options: dict[str, Any] = {"labels": labels, "confidence": self.confidence, "belief": 1.0}
        if self.prevalence is not None:
            held, shares = self._shares(loaded, metric, labels)
            y, proba = np.array(labels)[held.truth], held.proba.astype(np.float64)
            options["sample_weight"] = held.weight
            options["prevalence"] = shares
            moved = metricfit.decisions.problem.Samples(held.truth, proba, held.weight, labels).at_prevalence(shares)
            before = replace(held.with_rule(classifier.decision_rule_), weight=moved.weight)
            moved_to = ", ".join(f"{label} {share:.4g}" for label, share in zip(labels, shares, strict=True))
            where = f"{len(y):,} rows held out in training, with the shares {moved_to}"
        else:
            table = self.rows(loaded, self.data or "-", [asked])
            before, y, options["sample_weight"] = cli.scored(classifier, table), table.y, table.weight
            proba = classifier.predict_proba(table.X, raw=True)
            where = f"{len(y):,} rows"
        if metric.needs_rows:
            options |= {"columns": before.columns, "belief": 0.0}  # with money, labels alone count
        best = metricfit.decisions.best_rule(y, proba, metric, **options)
        choice = metricfit.choices.Choice("rule", f"the decision rule was tuned for {metric} on {where}")
        loaded.change_rule(best.rule, choice, metric=metric)
        judged = [scores.judged(labels) for scores in (before, before.with_rule(best.rule))]
        was, now = (metricfit.assess.assess("", metric, rows) for rows in judged)
        shown = [(str(getattr(metric, "objective", metric)), was.estimate, now.estimate)]
        shown += [(c.metric, c.estimate, d.estimate) for c, d in zip(was.constraints, now.constraints, strict=True)]
        cells = [[name, was.value, now.value, (now.low, now.high)] for name, was, now in shown]
        self.table(f"On the {where} it was chosen on", ["metric", "before", "after", "95 % interval"], cells)
        rows = [{"metric": name, "before": was.value, "after": now.value} for name, was, now in shown]
        return {"metric": str(metric), "rows": rows}

    def _shares(self, loaded: SavedModel, metric: Any, labels: tuple[Any, ...]) -> tuple[HeldOutScores, list[float]]:
        """The rows held out in training, and the shares of the classes: given, or estimated from DATA."""
        from metricfit.metrics.algebra import named_class

        held = loaded.classifier.held_out_
        if held is None or held.truth.ndim == 2:
            raise cli.UsageError("--prevalence: needs classes, not labels, and rows that were held out in training.")
        if self.prevalence == "auto":
            cli.expect(self.data is not None, "--prevalence auto: give DATA, rows from where the model is used.")
            new = loaded.classifier.predict_as_held_out(loaded.features(self.open(self.data or "-")))
            found = metricfit.assess.estimate_prevalence(new, held.truth, held.proba, labels=range(len(labels)))
            cells = [[str(labels[k]), share.value, (share.low, share.high)] for k, share in found.items()]
            self.table(f"Shares of the classes in {self.data}, estimated", ["class", "share", "95 % interval"], cells)
            least = [max(share.value, 1e-4) for share in found.values()]
            return held, [share / sum(least) for share in least]
        try:
            share = float(self.prevalence or "")
        except ValueError:
            share = -1.0
        expected = f"auto, or of two classes a share as 0.01, got {self.prevalence}"
        cli.expect(0 < share < 1 and len(labels) == 2, f"--prevalence: expected {expected}.")
        return held, [share, 1 - share] if named_class(metric, labels) == 0 else [1 - share, share]

    def _given(self, loaded: SavedModel) -> DecisionRule:
        """The rule of --threshold or --rule, checked against the model."""
        classes, task, text = tuple(loaded.classifier.classes_.tolist()), loaded.classifier.task_, self.rule
        if text is None:
            cli.expect(task == "binary", f"--threshold: decides between two classes, not {len(classes)}. Use --rule.")
            return metricfit.decisions.DecisionRule.at_threshold(self.threshold or 0.0, classes)
        cli.expect(self.threshold is None, "--threshold: is a rule already; give --rule or --threshold.")
        if not text.lstrip().startswith("{") and Path(text).is_file():
            text = Path(text).read_text(encoding="utf-8")
        with cli.wrong_use():
            found = metricfit.decisions.DecisionRule.from_json(text)
        theirs, ours = list(found.classes)[:5], list(classes)[:5]
        cli.expect(found.classes == classes, f"--rule: its classes are {theirs}, the model's {ours}.")
        fits = (found.kind == "thresholds") is (task == "multilabel")
        cli.expect(fits, f"--rule: a rule of kind {found.kind!r} does not fit this model.")
        return found
