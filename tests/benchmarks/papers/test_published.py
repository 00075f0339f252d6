"""Every printed number has an experiment, or a reason."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from benchmarks.papers.checks import anyloss_counts, btg_facts
from benchmarks.papers.config import Method, names, protocol, read
from benchmarks.papers.published import PUBLISHED, Cell, cells, metric_of, reason_not_run, target
from benchmarks.papers.tables import lines
from tests.benchmarks.papers.rows import row

SHARED = Path(__file__).parents[4] / "shared" / "published" / "published.csv"


def test_every_printed_number_is_answered_by_an_experiment_or_has_a_reason() -> None:
    reasons = {cell.dataset: reason for cell in cells() if (reason := reason_not_run(cell))}
    assert set(reasons) == {"caltech256"}
    answered = [target(cell) for cell in cells() if cell.dataset not in reasons]
    assert len(answered) + sum(cell.dataset in reasons for cell in cells()) == 668
    assert all(one.experiments for one in answered)


def test_every_printed_number_is_shown_in_its_table() -> None:
    wanted: dict[str, set[tuple[str, ...]]] = {}
    for cell in cells():
        if not reason_not_run(cell):
            key = (cell.dataset, cell.method, cell.batch_size, metric_of(cell), cell.of_class, cell.mean, cell.std)
            wanted.setdefault(cell.config, set()).add(key)
    for name, expected in wanted.items():
        config = read(name)
        shown = set()
        for line in lines(config, row().iloc[:0]):
            if line.theirs is not None:
                e = line.experiment
                mean, _, std = str(line.theirs).partition(" ± ")
                batch = e.batch if config.batches else ""
                shown.add((e.dataset, e.method, batch, line.metric, line.of_class, float(mean), float(std or "nan")))
        found = {(*key[:5], float(key[5])) for key in expected}
        assert found == {key[:6] for key in shown}, name


def test_the_questions_follow_the_notes() -> None:
    def asked(**changes: str) -> tuple[str, str]:
        usual = {"paper": "btg", "table": "1", "dataset": "adult", "method": "f1", "approximation": "linear"}
        usual |= {"batch_size": "", "evaluated_on": "f1", "of_class": "", "mean": "0.5", "std": "0.1"}
        found = target(Cell(**(usual | changes))).question
        return found.rule, found.metric

    assert asked() == ("mean_tau", "f1")
    assert asked(evaluated_on="auroc") == ("mean_tau", "balanced_accuracy")
    assert asked(table="7", method="svmperf_f1", approximation="") == ("decision", "f1")
    assert asked(paper="east", dataset="cifar10") == ("decision", "macro_f1")
    assert asked(paper="east") == ("decision", "f1")
    assert asked(paper="east", table="3", evaluated_on="macro_f1") == ("decision", "f1")
    forest = asked(paper="east", table="3", method="rf", approximation="", evaluated_on="macro_f1")
    assert forest == ("decision", "macro_f1")


def test_adult_is_answered_in_both_encodings() -> None:
    cell = next(cell for cell in cells() if cell.dataset == "adult")
    assert [e.encoding for e in target(cell).experiments] == ["integer", "onehot"]


@pytest.mark.skipif(not SHARED.exists(), reason="../shared/published is not beside this checkout")
def test_the_copies_of_the_published_numbers_are_the_originals() -> None:
    for copy in (PUBLISHED, btg_facts.PRINTED):
        assert copy.read_bytes() == (SHARED.parent / copy.name).read_bytes()


def test_anyloss_is_counted_as_by_hand(tmp_path: Path) -> None:
    head = ",Dataset,Delta,BCE,AccAim,F1Aim,F.5Aim,F2Aim,GAim,BAim\n"
    metrics = ("Acc", "F1", "F.5", "F2", "Gmean", "B_Acc")
    blocks = [head + "".join(f"{m},x,0.5,0.{bce},0.6,0.6,0.6,0.6,0.6,0.6\n" for m in metrics) for bce in (5, 6, 8)]
    (tmp_path / "slp.csv").write_text("\ufeff" + "".join(blocks), encoding="utf-8")
    found = {(row["metric"], row["rival"]): row for row in anyloss_counts.counts("slp", tmp_path / "slp.csv")}
    assert len(found) == 8
    assert [found["f1", "mse"][part] for part in ("sets", "wins", "ties", "losses")] == [3, 3, 0, 0]
    assert [found["f1", "bce"][part] for part in ("wins", "ties", "losses", "mean")] == [1, 1, 1, -0.0333]


@pytest.mark.skipif(not SHARED.exists(), reason="../shared/published is not beside this checkout")
def test_the_committed_counts_are_those_of_the_authors_results() -> None:
    files = {name: SHARED.parent / "anyloss" / f"{name}-102-datasets.csv" for name in anyloss_counts.NETWORKS}
    counted = pd.DataFrame([row for name, file in files.items() for row in anyloss_counts.counts(name, file)])
    pd.testing.assert_frame_equal(counted, pd.read_csv(anyloss_counts.FILE))


def test_there_is_a_config_for_each_table_and_figure_of_the_issue() -> None:
    wanted = {f"btg-table{i}" for i in (1, 2, 3, 4, 5, 6, 7, 9, 11, 12)} | {f"east-table{i}" for i in range(1, 8)}
    wanted |= {f"multiclass-fbeta-table{i}" for i in (1, 2)} | {f"surrogate-fbeta-fig{i}" for i in range(1, 8)}
    assert set(names()) == wanted | {"anyloss-tabular"}


def test_image_tables_have_a_reduced_size_and_all_a_toy_size() -> None:
    for name in names():
        for used in read(name).all_protocols():
            sizes = set(protocol(used).sizes)
            assert "toy" in sizes
            image = used.endswith("-images") or used.startswith("surrogate-")
            assert ("reduced" in sizes) == image, used


def test_tables_share_their_trainings() -> None:
    first, fourth = (set(read(name).experiments()) for name in ("btg-table1", "btg-table4"))
    shared = {Method(e.method, e.approximation) for e in first & fourth}
    assert shared == {Method("bce"), Method("wmw_auroc"), Method("adversarial_f1")}
    assert set(read("btg-table3").experiments()) & first
