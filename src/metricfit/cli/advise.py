"""``metricfit advise``."""

from __future__ import annotations

import metricfit
from metricfit.cli import command as cli


class Advise(cli.Command):
    """Say whether a batch is large enough to train on a metric.

    The confusion matrix of a batch is an estimate. A bound (sqrt(log(2 d² / δ) / (2 n)) for d classes and n rows) says
    how far each of its cells, as a share of the rows, may be from the truth; a rare class must stand out from that.

    Example: metricfit advise --classes 2 --batch 1024 --positives 50
    """

    classes: int = cli.option("Number of classes.", "D", default=cli.REQUIRED, min=2)
    batch: int = cli.option("Rows in a batch.", "N", default=cli.REQUIRED, min=1)
    positives: float = cli.option(
        "Rows of the rarest class, as 20, or their share, as 0.02.", "P", default=cli.REQUIRED
    )
    confidence: float = cli.option("Probability that the bound holds.", "Q", default=0.95, min=0.5, max=0.999999)

    def run(self) -> None:
        batch, classes, share = self.batch, self.classes, self.positives
        counted = share >= 1
        share /= batch if counted else 1
        most = f"at most {1 / classes:.3g} or {batch // classes:,} for {classes} classes"
        told = f"--positives: expected a share or a whole number of the batch's rows, {most}"
        possible = 0 < share <= 1 / classes and not (counted and self.positives % 1)
        cli.expect(possible, f"{told}; got {self.positives:g}.")
        bound = metricfit.theory.deviation_bound(batch, classes, confidence=self.confidence)
        enough = metricfit.theory.batch_size_for(share / 2, classes, confidence=self.confidence)
        expected, none = batch * share, (1 - share) ** batch
        if batch >= enough:
            advice = "Large enough: the bound is at most half of the rarest class's share."
        else:
            size = "Borderline: the bound is below" if bound < share else "Too small to rely on: the bound exceeds"
            advice = (
                f"{size} the rarest class's share. From {enough:,} rows on it is at most half of it. Until then train "
                "with stratified batches, a memory across batches (memory=0.9) and added cross-entropy, as the default "
                "recipe does."
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
