"""Tables and figures as files, from the rows alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from benchmarks.papers.checks import anyloss_protocol
from benchmarks.papers.config import Config, names, protocol, read
from benchmarks.papers.figures import figure
from benchmarks.papers.plots import beside
from benchmarks.papers.published import of_table
from benchmarks.papers.results import KEY, done
from benchmarks.papers.results import read as read_rows
from benchmarks.papers.tables import lines, markdown
from benchmarks.papers.verdicts import verdicts

__all__ = ["overview", "write_all", "write_one"]


def write_one(name: str, results: Path, out: Path | None, images: Path | None) -> str:
    """One table or figure as Markdown, with its picture; returns the text.

    Args:
        name: Its name.
        results: Folder of the rows.
        out: Folder for ``<name>.md``; ``None`` for none.
        images: Folder for ``papers-<name>.png``; ``None`` for none.
    """
    config = read(name)
    image = None if images is None else images / f"papers-{name}.png"
    if config.kind == "table":
        rows = read_rows("scores", results, config.all_protocols())
        text = markdown(config, rows)
        shown = [line for line in lines(config, rows) if line.ours is not None]
        if image is not None and shown:
            beside(config, shown, image)
    else:
        text = figure(config, results, image)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / f"{name}.md").write_text(text)
    return text


def write_all(results: Path, out: Path, images: Path | None) -> Iterator[Path]:
    """All tables and figures, what was chosen by the grid searches, the overview and the verdicts."""
    for name in names():
        write_one(name, results, out, images)
        yield out / f"{name}.md"
    pages = {
        "grid": chosen_values(results),
        "overview": f"# How much is there\n\n{overview(results)}",
        "verdicts": f"# Every claim with a verdict\n\n{verdicts(results)}",
        "anyloss-protocol": f"# AnyLoss at its own protocol\n\n{anyloss_protocol.table(anyloss_protocol.complete())}",
    }
    for name, text in pages.items():
        (out / f"{name}.md").write_text(text + "\n")
        yield out / f"{name}.md"


def chosen_values(results: Path) -> str:
    """What each grid search chose, and of how many fits."""
    rows = read_rows("grid", results)
    text = ["# Chosen by grid search", "", "On the split of trial 0, by the lowest validation loss.", ""]
    if rows.empty:
        return "\n".join([*text, "Nothing was searched yet."])
    head = ["protocol", "data set", "loss", "grid", "fits", "learning rate", "batch", "dropout", "r", "validation loss"]
    text += [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for _, here in rows.groupby([*KEY, "grid"], sort=True):
        best = here.sort_values("validation_loss", kind="stable").iloc[0]
        annealed = protocol(best["protocol"]).annealing and best["approximation"]
        factor = f"{best['factor']:g}" if annealed else ""
        size = "" if best["size"] == "full" else f" ({best['size']})"
        cells = [
            best["protocol"] + size, " ".join([best["dataset"], best["encoding"]]).strip(), best["method"],
            best["grid"], str(len(here)), f"{best['learning_rate']:g}", str(int(best["batch_size"])),
            f"{best['dropout']:g}", factor, f"{best['validation_loss']:.4f}",
        ]  # fmt: skip
        text.append(f"| {' | '.join(cells)} |")
    return "\n".join(text)


def overview(results: Path) -> str:
    """All tables and figures with how much of each is there."""
    there = done(results)
    text = ["| name | shows | fits at full size | at reduced size | numbers answered |", "|---|---|---|---|---|"]
    everything = read_rows("scores", results)
    for name in names():
        config = read(name)
        cells = [_share(config, size, there) for size in ("full", "reduced")]
        text.append(f"| {name} | {config.title} | {' | '.join(cells)} | {_answered(config, everything)} |")
    return "\n".join(text)


def _share(config: Config, size: str, there: dict) -> str:
    wanted = made = 0
    for experiment in config.experiments(size):
        trials = config.trials_of(experiment)
        wanted += trials
        made += sum((experiment, trial) in there for trial in range(trials))
    return f"{made} of {wanted}" if wanted else ""


def _answered(config: Config, rows: pd.DataFrame) -> str:
    if config.kind != "table" or not config.table:
        return ""
    answered = [line for line in lines(config, rows) if line.theirs is not None and line.ours is not None]
    # A number counts once, whatever the encodings; those of data sets that were not to be had count as printed.
    found = {(e.dataset, e.method, e.approximation, e.batch, line.metric, line.of_class) for line in answered
             for e in [line.experiment]}  # fmt: skip
    return f"{len(found)} of {len(list(of_table(config)))}"
