"""``metricfit advise``."""

from __future__ import annotations

from typing import Annotated

from metricfit.cli import options as opt
from metricfit.cli.output import Output, UsageError


def command(
    classes: Annotated[int, opt.option("Number of classes.", "D", min=2)],
    batch: Annotated[int, opt.option("Rows in a batch.", "N", min=1)],
    positives: Annotated[
        float, opt.option("Rows of the rarest class in a batch, e.g. 20, or their share below 1, e.g. 0.02.", "P")
    ],
    output: Output,
    confidence: Annotated[
        float, opt.option("Probability that the bound holds.", "Q", default=True, min=0.5, max=0.999999)
    ] = 0.95,
) -> None:
    """Say whether a batch is large enough to train on a metric.

    The confusion matrix of a batch is an estimate. A bound (sqrt(log(2 d² / δ) / (2 n)) for d classes and n rows) says
    how far each of its cells, as a share of the rows, may be from the truth; a rare class must stand out from that.

    Example: metricfit advise --classes 2 --batch 1024 --positives 50
    """
    from metricfit.theory import batch_size_for, deviation_bound

    share = _share(positives, batch)
    if share > 1 / classes:
        raise UsageError(
            f"--positives: the rarest of {classes} classes has at most {batch // classes:,} of {batch:,} rows, a share "
            f"of {1 / classes:.3g}; got {positives:g}."
        )
    bound = deviation_bound(batch, classes, confidence=confidence)
    enough = batch_size_for(share / 2, classes, confidence=confidence)
    expected, none = batch * share, (1 - share) ** batch
    if batch >= enough:
        advice = "Large enough: the bound is at most half of the rarest class's share."
    elif bound < share:
        advice = (
            f"Borderline: the bound is below the rarest class's share, but not by half. From {enough:,} rows on it is; "
            "until then train with stratified batches and a memory across batches, as the default recipe does."
        )
    else:
        advice = (
            f"Too small to rely on: the bound exceeds the rarest class's share. {enough:,} rows would do. With fewer, "
            "keep stratified batches, a memory across batches (memory=0.9) and added cross-entropy, as the default "
            "recipe does."
        )
    output.line(
        f"With {batch:,} rows and {classes} classes, every cell of the confusion matrix is within ±{bound:.2%} of the "
        f"rows of its true share, with probability {confidence:.0%}.\n"
        f"The rarest class makes up {share:.2%}: about {expected:.1f} rows of a batch; {none:.1%} of the batches "
        f"have none.\n{advice}"
    )
    output.result({
        "bound": bound, "share_of_positives": share, "expected_positives": expected, "batches_without_positives": none,
        "batch_that_is_enough": enough, "large_enough": batch >= enough,
    })  # fmt: skip


def _share(positives: float, batch: int) -> float:
    """The share of the rarest class: as given below 1, else a whole number of the batch's rows.

    >>> _share(0.25, 64), _share(16.0, 64)
    (0.25, 0.25)
    """
    if 0 < positives < 1:
        return positives
    if positives >= 1 and positives.is_integer():
        return positives / batch
    raise UsageError(
        f"--positives: expected a share above 0 and below 1, or a whole number of rows of the batch, got {positives:g}."
    )
