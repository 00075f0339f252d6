"""Verdicts on the papers' claims."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest

from benchmarks.papers.results import RESULTS, read
from benchmarks.papers.verdicts import CLAIMS, Found, compared, verdict, verdicts

ROOT = Path(__file__).parents[3]


def test_the_page_has_the_table_of_the_committed_rows() -> None:
    page = (ROOT / "docs" / "papers.md").read_text()
    assert verdicts(RESULTS) in page
    assert verdicts(RESULTS) in (RESULTS / "verdicts.md").read_text()


def test_a_paired_difference_equals_a_plain_loop() -> None:
    claim = next(claim for claim in CLAIMS if claim.says.startswith("F1 as a loss does about as well"))
    rows = read("scores", RESULTS)
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
def test_every_claim_finds_its_rows(claim) -> None:
    found = compared(read("scores", RESULTS), claim.ours, claim.other, claim)
    assert [each.dataset for each in found] == list(claim.datasets)


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
