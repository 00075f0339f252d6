"""Verdicts on the papers' claims."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.papers.results import RESULTS, read
from benchmarks.papers.verdicts import CLAIMS, FIGURES, Figure, Found, compared, followed, page_tables, verdict

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    return read("scores", RESULTS)


def test_the_page_has_the_tables_of_the_committed_rows() -> None:
    page = (ROOT / "docs" / "papers.md").read_text()
    for name, table in page_tables(RESULTS).items():
        assert f"<!-- table: {name} -->\n\n{table}\n\n<!-- end of table: {name} -->" in page
    assert page_tables(RESULTS)["verdicts"] in (RESULTS / "verdicts.md").read_text()


def test_a_paired_difference_equals_a_plain_loop(rows: pd.DataFrame) -> None:
    claim = next(claim for claim in CLAIMS if claim.says.startswith("F1 as a loss does about as well"))
    found = {each.dataset: each for each in compared(rows, claim.ours, claim.other, claim)}["adult"]
    table = pd.read_csv(RESULTS / "scores" / "east-tabular--adult.csv")
    by_trial: dict[int, dict[str, float]] = {}
    for row in table.to_dict("records"):
        if (row["rule"], row["metric"], row["encoding"]) == ("decision", "f1", "integer"):
            by_trial.setdefault(row["trial"], {})[row["method"]] = row["value"]
    differences = [values["f1"] - values["ce"] for values in by_trial.values()]
    mean = sum(differences) / len(differences)
    variance = sum((d - mean) ** 2 for d in differences) / (len(differences) - 1)
    assert found.trials == len(differences) == 10
    assert found.mean == pytest.approx(mean)
    assert found.error == pytest.approx(math.sqrt(variance / len(differences)))


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: f"{claim.paper}: {claim.says}")
def test_every_claim_finds_its_rows(claim, rows: pd.DataFrame) -> None:
    found = compared(rows, claim.ours, claim.other, claim)
    assert [each.dataset for each in found] == list(claim.datasets)


def curve(method: str, trial: int, losses: list[float], scores: list[float]) -> pd.DataFrame:
    rows = [("train_loss", e, v) for e, v in enumerate(losses, 1)] + [
        ("train_f2", e, v) for e, v in enumerate(scores, 1)
    ]
    frame = pd.DataFrame(rows, columns=["metric", "epoch", "value"])
    return frame.assign(dataset="cifar10_class0", method=method, trial=trial)


def test_a_loss_follows_its_score_as_far_as_they_correlate() -> None:
    curves = pd.concat([
        curve("soft_fbeta@2", 0, [3.0, 2.0, 1.0], [0.1, 0.2, 0.3]),
        curve("soft_fbeta@2", 1, [3.0, 2.0, 1.0], [0.3, 0.1, 0.5]),
        curve("soft_fbeta@2", 2, [3.0, 2.0, 1.0], [0.3, 0.3, 0.3]),
    ])  # fmt: skip
    found = followed(curves, "cifar10_class0", "soft_fbeta", "2")
    assert found.tolist() == pytest.approx([1, -np.corrcoef([3, 2, 1], [0.3, 0.1, 0.5])[0, 1], 0])


def test_a_claim_on_curves_takes_the_difference_over_repetitions() -> None:
    figure = Figure("says", lambda curves: [("a", pd.Series([0.1, 0.3])), ("not run", pd.Series([], dtype=float))])
    (found,) = figure.found(pd.DataFrame())
    assert (found.mean, found.error, found.trials) == pytest.approx((0.2, 0.1, 2))


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.says)
def test_every_claim_on_curves_finds_its_rows(figure: Figure) -> None:
    assert figure.found(read("curves", RESULTS))


def test_verdicts_follow_two_standard_errors() -> None:
    ahead, behind, open_ = Found("a", 0.05, 0.01, 10), Found("b", -0.05, 0.01, 10), Found("c", 0.01, 0.01, 10)
    single = Found("d", 0.5, math.nan, 1)
    assert verdict([ahead, open_], "ahead") == "confirmed"
    assert verdict([ahead, behind], "ahead") == "undecided"
    assert verdict([ahead, behind], "reliably ahead") == "contradicted"
    assert verdict([behind, open_], "ahead") == "contradicted"
    assert verdict([ahead, open_, open_], "ahead") == "undecided"
    assert verdict([single], "ahead") == "undecided"
    assert verdict([ahead], "far ahead") == "contradicted"
    assert verdict([ahead], "level") == "contradicted"
    assert verdict([Found("e", 0.001, 0.002, 5)], "level") == "confirmed"
    assert verdict([Found("e", -0.01, 0.004, 5)], "not behind") == "confirmed"
    assert verdict([behind], "not behind") == "contradicted"
