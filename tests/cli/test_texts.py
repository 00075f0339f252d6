"""What the command line makes of words and numbers."""

import math
import tomllib

from metricfit.cli.command import columns_of, number, shown, to_toml
from metricfit.cli.evaluate import _count


def test_numbers_have_four_digits_and_gaps_are_dashes():
    assert [number(value) for value in (0.5, math.nan, None)] == ["0.5000", "–", "–"]
    assert shown((0.1, 0.2)) == "0.1000 to 0.2000"
    assert shown((math.nan, math.nan)) == shown((None, None)) == "–"


def test_rows_are_counted_to_the_last_one_and_weights_to_six_digits():
    assert [_count(value) for value in (7.0, 1_234_567.0, 1234.56789)] == ["7", "1,234,567", "1,234.57"]


def test_a_text_that_is_no_column_is_divided_at_its_commas():
    assert columns_of(["a,b", "c, d"], ["a", "b", "c, d"]) == ["a", "b", "c, d"]


def test_options_as_toml_come_back_and_those_not_given_are_left_out():
    given = {"data": 'a "b".csv\x7f', "seed": 0, "quick": True, "time": None, "use": [], "ignore": ["id", "é"]}
    kept = {name: given[name] for name in ("data", "seed", "quick", "ignore")}
    assert tomllib.loads(to_toml(given)) == kept
    assert to_toml({"data": "a b.csv", "ignore": ["id"]}) == 'data = "a b.csv"\nignore = ["id"]\n'
