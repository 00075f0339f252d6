"""Step two: combinations and rules from the cached scores, and what they are worth on the test rows.

python -m benchmarks.portfolio.evaluating            # adds what is missing to results.csv
python -m benchmarks.portfolio.evaluating --report   # prints paired differences
"""

from __future__ import annotations

import argparse
import csv
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from benchmarks.portfolio.combining import COMBINATIONS
from benchmarks.portfolio.deciding import beliefs, decide, score
from benchmarks.portfolio.fitting import CACHE, load_unit

METRICS = ("f1", "mcc", "balanced_accuracy")
RESULTS = Path(__file__).parent / "results.csv"
FIELDS = ("table", "split", "metric", "members", "combination", "rule", "held_out", "test")

BASE = ("network", "network_ce", "forest_1_100", "extra_trees_1_100", "boosting")
"""``network`` is the one trained on the metric at hand."""

SETS: dict[str, tuple[str, ...]] = {
    "base": BASE,
    "with_logistic": (*BASE, "logistic"),
    "no_metric_network": BASE[1:],
    "no_ce_network": (BASE[0], *BASE[2:]),
    "no_networks": BASE[2:],
    "no_forest": tuple(m for m in BASE if not m.startswith("forest")),
    "no_extra_trees": tuple(m for m in BASE if not m.startswith("extra")),
    "no_boosting": BASE[:-1],
    "300_trees": ("network", "network_ce", "forest_1_300", "extra_trees_1_300", "boosting"),
    "leaf_2": ("network", "network_ce", "forest_2_100", "extra_trees_2_100", "boosting"),
    "leaf_3": ("network", "network_ce", "forest_3_100", "extra_trees_3_100", "boosting"),
    "onehot": ("network", "network_ce", "forest_1_100_onehot", "extra_trees_1_100_onehot", "boosting"),
    "half_features": (
        "network",
        "network_ce",
        "forest_1_100_max_features0.5",
        "extra_trees_1_100_max_features0.5",
        "boosting",
    ),
    "cheap_networks": ("network_200", "network_ce_200", *BASE[2:]),
    "cheap_network": ("network_200", *BASE[2:]),
    "three_networks": ("network_200x3", "network_ce_200x3", *BASE[2:]),
    "three_ce_networks": ("network_ce_200x3", *BASE[2:]),
    "three_metric_networks": ("network_200x3", *BASE[2:]),
    "ple_ce": ("network", "network_ce_ple", *BASE[2:]),
    "ple_both": ("network_ple", "network_ce_ple", *BASE[2:]),
    "ple_metric": ("network_ple", "network_ce", *BASE[2:]),
    "boosting_last": (*BASE[:-1], "boosting_last"),
    "boosting_inner": (*BASE[:-1], "boosting_inner"),
    "boosting_leaf5": (*BASE[:-1], "boosting_leaf5"),
    "boosting_slow": (*BASE[:-1], "boosting_slow"),
    "cheap_ce": ("network", "network_ce_200", *BASE[2:]),
    "cheap_ce_only": ("network_ce_200", *BASE[2:]),
    "cheapest_ce_only": ("network_ce_100", *BASE[2:]),
    "cheap_linear": ("network_ce_200", *BASE[2:], "logistic"),
    "repeated": tuple(f"{member}*" for member in BASE),
    "cheap_repeated": tuple(f"{member}*" for member in ("network_ce_200", *BASE[2:])),
}
SINGLES = (
    *BASE, "logistic", "boosting_inner", "boosting_slow", "boosting_leaf5", "forest_2_100", "extra_trees_2_100",
    "forest_3_100", "extra_trees_3_100", "forest_1_300", "extra_trees_1_300", "network_ce_200", "network_ce_100",
    "boosting_last", "network_200", "network_200x3", "network_ce_200x3",
    "network_ce_ple", "network_ple", "logistic_weak", "forest_1_100_onehot",
    "extra_trees_1_100_onehot", "forest_1_100_max_features0.5", "extra_trees_1_100_max_features0.5",
)  # fmt: skip
SOME = ("uniform", "greedy", "shrunk", "calibrated_mean", "calibrated_shrunk")
"""Combinations over which sets of members and rules are compared."""
RULES = ("argmax", "tuned", "half:0.25", "half:0.5", "half:0.75", "half:1.0")
FEW_RULES = ("tuned", "half:0.5")


def wanted() -> Iterator[tuple[str, tuple[str, ...], str, str]]:
    """Name of the set, members, combination, rule."""
    for name in COMBINATIONS:
        for rule in RULES if name in SOME else (*FEW_RULES, "half:1.0"):
            yield "base", SETS["base"], name, rule
    for label, name in itertools.product(list(SETS)[1:], SOME):
        yield label, SETS[label], name, "half:0.5"
    for member, rule in itertools.product(SINGLES, ("argmax", *FEW_RULES)):
        yield f"single:{member}", (member,), "uniform", rule


def parts_of(member: str) -> list[str]:
    """A star stands for three repeats of the folds.

    >>> parts_of("boosting*")
    ['boosting', 'boosting@1', 'boosting@2']
    """
    return [member[:-1] + tail for tail in ("", "@1", "@2")] if member.endswith("*") else [member]


def evaluate(unit: dict[str, Any], todo: list[tuple[str, tuple[str, ...], str, str]], metric: str) -> Iterator[Any]:
    """The metric of each setting: as tuned, on its own out-of-fold rows, and on the test rows."""
    known, y, y_test = unit["members"], unit["y"], unit["y_test"]
    classes = next(iter(known.values()))[0].shape[1]
    names = {member: f"{member}_{metric}" for member in ("network", "network_200", "network_200x3", "network_ple")}
    pairs: dict[Any, Any] = {}
    believed: dict[Any, Any] = {}
    for label, members, combination, rule in todo:
        found = [names.get(member.rstrip("*"), member.rstrip("*")) + "*" * member.endswith("*") for member in members]
        if any(part not in known for member in found for part in parts_of(member)):
            continue
        key = (tuple(found), combination)
        if key not in pairs:
            held_out, test = (
                np.array([np.mean([known[part][which] for part in parts_of(member)], axis=0) for member in found])
                for which in (0, 1)
            )
            pairs[key] = COMBINATIONS[combination](held_out, y, test, metric)
            believed[key] = beliefs(pairs[key][0], y)
        held_out, test = pairs[key]
        both = decide(rule, metric, held_out, y, np.concatenate([held_out, test]), believed[key])
        inside, outside = both[: len(y)], both[len(y) :]
        yield label, combination, rule, score(metric, y, inside, classes), score(metric, y_test, outside, classes)


def existing(file: Path) -> set[tuple[str, ...]]:
    if not file.exists():
        return set()
    with file.open() as stream:
        return {tuple(row[field] for field in FIELDS[:6]) for row in csv.DictReader(stream)}


def run(cache: Path, file: Path) -> None:
    """Add what is missing."""
    there = existing(file)
    everything = list(wanted())
    fresh = not file.exists()
    with file.open("a", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        if fresh:
            writer.writerow(FIELDS)
        for folder in sorted(cache.glob("*/*")):
            table, split = folder.parent.name, folder.name
            unit = None
            for metric in METRICS:
                todo = [w for w in everything if (table, split, metric, w[0], w[2], w[3]) not in there]
                if not todo:
                    continue
                unit = unit or load_unit(cache, table, int(split))
                if "y" not in unit:
                    break
                for label, combination, rule, inside, outside in evaluate(unit, todo, metric):
                    writer.writerow(
                        [table, split, metric, label, combination, rule, f"{100 * inside:.3f}", f"{100 * outside:.3f}"]
                    )
            stream.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--results", type=Path, default=RESULTS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    with threadpool_limits(1):
        run(args.cache, args.results)


if __name__ == "__main__":
    main()
