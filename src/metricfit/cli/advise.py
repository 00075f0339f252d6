"""``metricfit advise``."""

from __future__ import annotations

from dataclasses import dataclass

from metricfit.cli.command import REQUIRED, Command, UsageError, option


@dataclass(kw_only=True)
class Advise(Command):
    """Say whether a batch is large enough to train on a metric.

    The confusion matrix of a batch is an estimate. A bound (sqrt(log(2 d² / δ) / (2 n)) for d classes and n rows) says
    how far each of its cells, as a share of the rows, may be from the truth; a rare class must stand out from that.

    Example: metricfit advise --classes 2 --batch 1024 --positives 50
    """

    classes: int = option("Number of classes.", "D", default=REQUIRED, min=2)
    batch: int = option("Rows in a batch.", "N", default=REQUIRED, min=1)
    positives: float = option("Rows of the rarest class, e.g. 20, or their share, e.g. 0.02.", "P", default=REQUIRED)
    confidence: float = option("Probability that the bound holds.", "Q", default=0.95, min=0.5, max=0.999999)

    def run(self) -> None:
        from metricfit.theory import batch_size_for, deviation_bound

        batch, classes = self.batch, self.classes
        share = self._share()
        bound = deviation_bound(batch, classes, confidence=self.confidence)
        enough = batch_size_for(share / 2, classes, confidence=self.confidence)
        expected, none = batch * share, (1 - share) ** batch
        if batch >= enough:
            advice = "Large enough: the bound is at most half of the rarest class's share."
        elif bound < share:
            advice = (
                f"Borderline: the bound is below the rarest class's share, but not by half. From {enough:,} rows on it "
                "is; until then train with stratified batches and a memory across batches, as the default recipe does."
            )
        else:
            advice = (
                f"Too small to rely on: the bound exceeds the rarest class's share. {enough:,} rows would do. With "
                "fewer, keep stratified batches, a memory across batches (memory=0.9) and added cross-entropy, as the "
                "default recipe does."
            )
        self.line(
            f"With {batch:,} rows and {classes} classes, every cell of the confusion matrix is within ±{bound:.2%} of "
            f"the rows of its true share, with probability {self.confidence:.0%}.\n"
            f"The rarest class makes up {share:.2%}: about {expected:.1f} rows of a batch; {none:.1%} of the batches "
            f"have none.\n{advice}"
        )
        self.result({
            "bound": bound, "share_of_positives": share, "expected_positives": expected,
            "batches_without_positives": none, "batch_that_is_enough": enough, "large_enough": batch >= enough,
        })  # fmt: skip

    def _share(self) -> float:
        """The share of the rarest class: as given below 1, else a whole number of the batch's rows."""
        given, most = self.positives, 1 / self.classes
        if not 0 < given < 1 and not (given >= 1 and given.is_integer()):
            what = "a share above 0 and below 1, or a whole number of rows of the batch"
            raise UsageError(f"--positives: expected {what}, got {given:g}.")
        share = given if given < 1 else given / self.batch
        if share > most:
            rows = f"{self.batch // self.classes:,} of {self.batch:,} rows, a share of {most:.3g}"
            raise UsageError(f"--positives: the rarest of {self.classes} classes has at most {rows}; got {given:g}.")
        return share
