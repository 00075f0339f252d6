"""Train and evaluate on tables that do not fit into memory: a buffer, validation rows and a sample are all it holds.

The pieces of the table are dealt to lanes, the lanes to processes. A batch takes so many rows from every lane, so which
rows meet does not depend on who reads them: any number of processes trains the same model, up to rounding.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import json
import math
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, distributed

from metricfit.choices import Choice
from metricfit.confusion import ConfusionMatrix
from metricfit.data import BadDataError, TablePreprocessor
from metricfit.data.preprocessing import column_choices
from metricfit.data.shards import ROWS_AT_ONCE, Shards, deal, random_numbers
from metricfit.distributed import gathered, is_first_process, join_processes, share_of_batch
from metricfit.inputs import Task, expect
from metricfit.labels import Target, combined_weights
from metricfit.models import Folds, NetworkModel, Table, fit_models
from metricfit.models.estimators import PATIENCE, ROUNDS, EstimatorModel, LibraryFit
from metricfit.training import loop
from metricfit.training.rows import BatchOrder, Split, strata

if TYPE_CHECKING:
    from metricfit.classifier import MetricClassifier

__all__ = ["ShardedRows", "confusion_of_shards", "fit_shards"]

Source = str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Shards
"""What a table is read from."""

LANES = 8  # places of the table whose rows meet in a batch, or as many as there are processes
BINNED_BYTES = 2 << 30  # that boosting's table of bins takes at most; beyond it boosting sees some of the pieces


def fit_shards(
    classifier: MetricClassifier, source: Source | ShardedRows, target: str, *, columns: Sequence[str] | None = None,
    weight: str | None = None, groups: str | None = None, passes: float = 1.0, buffer_rows: int = 2**18,
    validation_rows: int = 50_000, sample_rows: int = 100_000,
) -> MetricClassifier:  # fmt: skip
    """Fit a classifier on Parquet or CSV files of any size.

    One pass counts the classes, one takes a stratified sample (the preprocessing is learned from it) and stratified
    validation rows, then ``passes`` train the networks. Eight places of the table are read at a time, in random order,
    into a buffer that is cut into stratified batches; after it the network is validated if it is time. So an "epoch"
    of ``history_`` is one buffer, and the recipe's ``patience`` counts buffers. ``max_epochs``, ``min_updates`` and
    ``max_updates`` of the recipe have no effect.

    The portfolio is fitted too: boosting by LightGBM on all rows, of which it holds the bins (without LightGBM on the
    sample), forests and classifiers of one's own on the sample. ``cv=5`` makes folds by a hash of a row's place, or of
    its group; by default one part is held out. With ``checkpoint_dir`` the same call goes on where it was stopped.

    Under ``torchrun`` every process reads its own pieces alone, and the model is that of one process. Boosting is
    fitted by the first one.

    Args:
        classifier: Fitted in place, and returned. It takes no ``preprocess`` but ``"auto"`` and no splitter as ``cv``.
        source: Files, as for :class:`metricfit.data.shards.Shards`, or :class:`ShardedRows`, which know the columns.
        target: The column with the labels, two classes or more.
        columns: Columns to learn from; all others by default.
        weight: The column with a weight for each row.
        groups: Rows with the same value of this column are never split between training and validation.
        passes: How often the table is read for training the networks; also a part of it.
        buffer_rows: Rows in the shuffling buffer, of all processes together.
        validation_rows: Rows held out, at most (and at most a fifth).
        sample_rows: Rows that the preprocessing and the forests are learned from, at most.
    """
    sizes = {"buffer_rows": buffer_rows, "validation_rows": validation_rows, "sample_rows": sample_rows}
    for name, value in {**sizes, "passes": passes}.items():
        expect(value > 0, name, "a number > 0", value)
    if not (isinstance(classifier.preprocess, str) and classifier.preprocess == "auto"):
        raise ValueError("preprocess: shards are prepared by the built-in preprocessor; use preprocess='auto'.")
    cv = 1 if classifier.cv is None or str(classifier.cv) == "auto" else classifier.cv
    whole = isinstance(cv, int | np.integer) and not isinstance(cv, bool) and (cv >= 2 or classifier.cv != cv)
    expect(whole, "cv", "'auto', None or a number of folds >= 2 for shards", cv)
    classifier._forget()
    rows = source
    if not isinstance(rows, ShardedRows):
        rows = ShardedRows(rows, target, columns=columns, weight=weight, groups=groups)
    names, fixed = classifier._begin(rows, rows.group)
    rows.seed, rows.folds, rows.passes = classifier.seed_, int(cv), passes
    if classifier.metric_.needs_rows:
        raise ValueError(
            f"metric: {classifier.metric_} looks at further columns of each row; fit it on a table in memory."
        )
    folds = rows.draw(classifier, validation_rows, sample_rows)
    rows.buffer_rows = min(buffer_rows, sum(rows.sizes))
    how = f"{rows.rows:,} rows were streamed through a buffer of {rows.buffer_rows:,}; {rows.held:,} of them validated"
    classifier.choices_ += [Choice("rows", how), *rows.choices, *column_choices(rows.preprocessor)]
    models = classifier._build(names, folds, fixed)
    binned = ("lightgbm", "boosting") if importlib.util.find_spec("lightgbm") else ()
    for place, model in enumerate(models):
        if (checkpoint := getattr(model, "checkpoint", None)) is not None:
            checkpoint.identity["table"] = json.dumps([passes, rows.buffer_rows, rows.sizes, rows.lanes])
        if isinstance(model, NetworkModel):
            model.trainer = functools.partial(_StreamTrainer, rows)
        elif model.name in binned:
            models[place] = _Boosting(model.name, None, 1, checkpoint, rows=rows)
    if sampled := [model.name for model in models if type(model) is EstimatorModel]:
        told = f"{', '.join(sampled)}: fitted on a stratified sample of {len(rows.X) - rows.held:,} rows"
        classifier.choices_.append(Choice("models", told))
    fitted = fit_models(models, folds, classifier.time_limit, show=classifier.verbose and is_first_process())
    for model in fitted:
        if isinstance(model, NetworkModel):
            model.trainer = loop.Trainer  # the model goes without its table
    classifier._keep(folds, models, fitted, dict(names))
    return classifier


def confusion_of_shards(
    classifier: MetricClassifier, source: Source, target: str, *, rows_at_once: int = 2**16
) -> ConfusionMatrix:
    """The confusion matrix of a fitted classifier's predictions on all rows, whatever their number.

    ``source`` is as for :func:`fit_shards`, ``target`` the one column with the labels; ``rows_at_once`` are predicted
    together, at most. ``metric.compute`` of the matrix is exact: counts add up.
    """
    check_is_fitted(classifier, "models_")
    shards, classes = source if isinstance(source, Shards) else Shards(source), classifier.classes_
    wanted = [*getattr(classifier, "feature_names_in_", [c for c in shards.columns if c != target]), target]
    _check_columns(shards, wanted)
    task: Task = "binary" if len(classes) == 2 else "multiclass"
    labels = tuple(classes.tolist())
    matrix = ConfusionMatrix(torch.zeros(len(classes), len(classes), dtype=torch.float64), task, labels)
    for chunk in shards.chunks(columns=wanted, target=target, rows=rows_at_once):
        true = torch.from_numpy(_codes(chunk.rows[target], classes, target))
        proba = classifier.predict_proba(chunk.rows.drop(columns=target), raw=True)
        predicted = torch.from_numpy(classifier.decision_rule_.decide(proba))
        kept = predicted >= 0  # the others are left to a person
        matrix += ConfusionMatrix.from_codes(true[kept], predicted[kept], len(classes), task=task, labels=labels)
    return matrix


class ShardedRows:
    """The rows of a table of any size and their classes, counted when it is made; each process reads its own part.

    Args:
        source, target, columns, weight, groups: As for :func:`fit_shards`.
    """

    # Of the present fit: for each class, below which number rows are held out; training rows of each piece.
    cuts: NDArray[np.float64]
    sizes: list[int]
    preprocessor: TablePreprocessor
    X: pd.DataFrame  # validation rows, then the sample
    seed = folds = buffer_rows = held = 0
    passes = 1.0

    def __init__(
        self, source: Source, target: str, *, columns: Sequence[str] | None = None, weight: str | None = None,
        groups: str | None = None,
    ) -> None:  # fmt: skip
        self.shards = source if isinstance(source, Shards) else Shards(source)
        self.target, self.weight, self.groups = target, weight, groups
        self.roles = [name for name in (target, weight, groups) if name is not None]
        _check_columns(self.shards, [*self.roles, *(columns or ())])
        self.columns = [c for c in (columns or self.shards.columns) if c not in self.roles]
        self.formats = {name: self.shards.formats[name] for name in self.columns}
        self.group = join_processes()
        self.lanes = deal(self.shards.sizes, max(LANES, len(gathered(None, self.group))))
        self.own = range(len(self.lanes))[share_of_batch(len(self.lanes), self.group)]
        self.order = [piece for lane in self.own for piece in self.lanes[lane]]  # what this process reads
        self.counts = self._sums()
        if len(self.counts) < 2:
            raise BadDataError(f"{target}: holds one class only, {list(self.counts)}; a classifier needs two or more.")
        self.mass = self.counts if weight is None else self._sums(weight)
        self.rows, self.classes = sum(self.counts.values()), np.array(list(self.counts))
        if not (total := sum(self.mass.values())) > 0:
            raise BadDataError(f"weight: all rows have weight zero in {weight!r}; give some rows a weight.")
        self.unit = total / self.rows  # weights have the mean 1
        self.labels = tuple(self.classes.tolist())
        self.task: Task = "binary" if len(self.labels) == 2 else "multiclass"
        empty = self.shards.empty
        told = f"{len(empty)} files without a row were left out: {', '.join(empty[:5])}"
        self.choices = [Choice("rows", told)] if empty else []

    def _sums(self, weight: str | None = None) -> dict[Any, Any]:
        found = Counter[Any]()
        for part in gathered(self.shards.values(self.target, weight=weight, order=self.order), self.group):
            found.update(part)
        return dict(sorted(found.items()))

    def _class_weights(self, given: Any) -> NDArray[np.float64]:
        """A factor for the weight of each class, so that weights have the mean 1."""
        mass = np.array(list(self.mass.values())) / self.unit
        found = 1 / np.array(list(self.counts.values()))
        if given != "balanced":
            target = Target(self.task, self.classes, np.arange(len(self.labels)))
            found = combined_weights(target, None, given)[0].astype(np.float64)
        return np.asarray(found * mass.sum() / (found @ mass))

    def draw(self, classifier: MetricClassifier, validation_rows: int, sample_rows: int) -> Folds:
        """Validation rows, and a sample of the others, from which the preprocessing is learned, in one pass."""
        self.factors = self._class_weights(classifier.class_weight)
        counts = np.array(list(self.counts.values()))
        shares = min(0.2, validation_rows / self.rows), min(1.0, sample_rows / self.rows)
        wanted = [np.ceil(share * counts) for share in shares]
        # So many candidates of each class hold the wanted number, but for a chance of some 1 in 10,000.
        near = [np.minimum(1.0, (w + 4 * np.sqrt(w) + 4) / counts) for w in wanted]
        by_group = self.groups is not None and self.folds == 1
        if by_group:
            near[0] = np.full(len(counts), shares[0])
        kept: list[list[pd.DataFrame]] = [[], []]
        sizes = np.zeros(len(self.shards.pieces), dtype=np.int64)
        for chunk, note in self._read(self.order):
            sizes[chunk.piece] += len(note)
            first = note["number"] if self.folds == 1 else random_numbers(chunk, self.seed + 1)
            second = random_numbers(chunk, self.seed + 2)
            out = np.asarray(first < near[0][note["code"]])
            for k, (drawn, taken) in enumerate(((first, out), (second, (second < near[1][note["code"]]) & ~out))):
                parts = chunk.rows[taken], note.assign(drawn=drawn, piece=chunk.piece)[taken]
                kept[k].append(pd.concat(parts, axis=1, keys=("row", "note")))
        found = list[pd.DataFrame]()
        for k, parts in enumerate(zip(*gathered(kept, self.group), strict=True)):
            table = pd.concat([one for part in parts for one in part], ignore_index=True)
            code, drawn, cuts = table["note"]["code"], table["note"]["drawn"], near[k].copy()
            for c, count in enumerate(wanted[k].astype(int)):
                if (code == c).sum() > count and not (by_group and k == 0):
                    cuts[c] = np.sort(drawn[code == c])[count]
            found.append(table[drawn < cuts[code]])
            self.cuts = cuts if k == 0 else self.cuts
        both: Any = pd.concat(found, ignore_index=True)
        note, rows, self.held, self.X = both["note"], both["row"], len(found[0]), both["row"][self.columns]
        sample = self.X[self.held :]
        own = np.arange(len(rows)) < self.held
        if absent := set(range(len(counts))) - set(note["code"][own]):
            rare = min(absent, key=lambda code: int(counts[code]))
            told = f"none of {self.held:,} random rows is of class {self.labels[rare]!r}, {counts[rare]:,} in all"
            raise ValueError(f"validation_rows: {told}; take more, or join rare classes.")
        sizes = np.sum(gathered(sizes, self.group), axis=0)
        if self.folds == 1:
            sizes -= np.bincount(note["piece"][own], minlength=len(sizes))
        self.sizes = sizes.tolist()
        validate_data(classifier, sample, skip_check_array=True)
        self.preprocessor = classifier.preprocessor_ = TablePreprocessor(random_state=self.seed)
        # Rates of classes in a category, learned from rows that are trained on afterwards, say too much about them
        # unless they are a small part.
        y = rows[self.target][~own] if self.rows >= 10 * len(sample) else None
        learned = self.preprocessor.fit_transform(sample, y)
        dense = np.concatenate([self.preprocessor.transform(self.X[own]), learned])
        fold, codes, plain = self._folds(note, own), note["code"].to_numpy(), note["weight"].to_numpy()
        splits = [Split(np.flatnonzero(fold != k), np.flatnonzero((fold == k) & own)) for k in range(self.folds)]
        known = splits, classifier.metric_, self.task, self.labels, self.seed
        weight = (plain * self.factors[codes]).astype(np.float32)
        return Folds(classifier._forms(self.X, dense), codes, weight, plain.astype(np.float32), *known)

    def _folds(self, note: pd.DataFrame, held: NDArray[np.bool_]) -> NDArray[np.int64]:
        """The fold that holds each row out; 1, which is none, for rows of the only one that it does not."""
        return np.asarray(~held if self.folds == 1 else note["number"] * self.folds).astype(np.int64)

    def _read(self, order: Sequence[int], columns: Sequence[str] | None = None) -> Iterator[tuple[Any, pd.DataFrame]]:
        """Chunks of pieces, with each row's class code, weight, and the random number that says its fold."""
        wanted = [*(self.columns if columns is None else columns), *self.roles]
        for chunk in self.shards.chunks(columns=wanted, target=self.target, order=order):
            codes = _codes(chunk.rows[self.target], self.classes, self.target)
            weight = 1.0 if self.weight is None else chunk.rows[self.weight].astype(float) / self.unit
            number = random_numbers(chunk, self.seed, self.groups)
            yield chunk, pd.DataFrame({"code": codes, "weight": weight, "number": number}, index=chunk.rows.index)

    def training_rows(self, order: Sequence[int], columns: Sequence[str] | None = None) -> Iterator[tuple[Any, ...]]:
        """Rows of pieces but for those that no network is trained on: columns, class codes, weights and folds."""
        for chunk, note in self._read(order, columns):
            held = (self.folds == 1) & (note["number"] < self.cuts[note["code"]]).to_numpy()
            parts = note["code"].to_numpy(), note["weight"].to_numpy(dtype=np.float32), self._folds(note, held)
            yield chunk.rows[~held], *(part[~held] for part in parts)

    def buffers(self, lane: int, rows: int, number: int) -> Iterator[list[Tensor]]:
        """Features, class codes, weights and folds of exactly so many rows of a lane, from one such buffer on."""
        skipped, waiting = rows * number, list[list[Tensor]]()
        for turn in itertools.count():
            for piece in np.random.default_rng([self.seed, lane, turn]).permutation(self.lanes[lane]).tolist():
                if skipped >= self.sizes[piece]:  # nothing of it is wanted, so nothing is read
                    skipped -= self.sizes[piece]
                    continue
                for frame, *rest in self.training_rows([piece]):
                    if skipped >= len(frame):
                        skipped -= len(frame)
                        continue
                    features = self.preprocessor.transform(frame[self.columns][skipped:])
                    waiting.append([torch.from_numpy(part) for part in (features, *(part[skipped:] for part in rest))])
                    skipped = 0
                    while sum(len(part[0]) for part in waiting) >= rows:
                        whole = list(map(torch.cat, zip(*waiting, strict=True)))
                        yield [part[:rows] for part in whole]
                        waiting = [[part[rows:].clone() for part in whole]]
                        del whole


class _StreamTrainer(loop.Trainer):
    """A trainer whose training rows are this process's lanes of a buffer, the next one before every epoch."""

    batches: _LaneOrder

    def __init__(self, rows: ShardedRows, folds: Folds, recipe: Any, *, device: Any, plain: bool = False) -> None:
        self.rows = rows
        many = 1 - 1 / rows.folds if rows.folds > 1 else 1.0  # of the rows, each member is trained on so many
        size = rows.buffer_rows * many
        steps = math.ceil(size / recipe.batch_size if recipe.batch_size >= 1 else 1 / recipe.batch_size)
        batch = math.ceil(size / steps)
        sizes = np.array([sum(rows.sizes[piece] for piece in lane) for lane in rows.lanes])
        ends = np.round(np.cumsum([0, *sizes]) / sizes.sum() * batch).astype(int)
        if (np.diff(ends)[sizes > 0] == 0).any():
            raise ValueError(f"batch_size: expected at least {2 * len(sizes)} rows, from each of {len(sizes)} places.")
        self.places, self.fills = list(itertools.pairwise(ends.tolist())), np.ceil(np.diff(ends) * steps / many)
        self.starts, end = dict[int, int](), rows.held
        for lane in rows.own:
            self.starts[lane], end = end, end + int(self.fills[lane])
        # After the held-out rows comes room for buffers, and a row without weight, for a member without rows of a lane.
        dense = np.zeros((end + 1, folds.table.dense.shape[1]), dtype=np.float32)
        codes, weight = np.zeros(end + 1, dtype=np.int64), np.zeros(end + 1, dtype=np.float32)
        dense[: rows.held], codes[: rows.held] = folds.table.dense[: rows.held], folds.codes[: rows.held]
        weight[: rows.held] = (folds.plain_weight if plain else folds.weight)[: rows.held]
        self.factors = torch.from_numpy(np.ones(len(rows.labels)) if plain else rows.factors).float()
        shares = torch.tensor(list(rows.mass.values())).float() * self.factors
        splits = [Split(np.arange(rows.held, end + 1), split.validation) for split in folds.splits]
        known = splits, folds.metric, folds.task, folds.labels, folds.seed, shares / shares.sum()
        own = Folds(Table.of_numbers(dense), codes, weight, weight, *known)
        super().__init__(own, recipe, device=device)
        self.epochs = max(1, round(rows.passes * sum(rows.sizes) / float(self.fills.sum())))
        self.batches = _LaneOrder(steps, batch, recipe.members * len(splits), end)
        self.readers: dict[int, Iterator[list[Tensor]]] = {}
        owned = [self.places[lane] for lane in rows.own]
        self.part = slice(owned[0][0], owned[-1][1]) if owned else slice(0, 0)
        # The recipe's horizon is meant for small tables, of which three epochs are a small part of training.
        self.average_over(min(recipe.averaging * steps, self.epochs * steps / 10))

    def epoch(self) -> loop.EpochRecord:
        rows, steps = self.rows, self.batches.steps
        for lane, start in self.starts.items():
            count, (first, last) = int(self.fills[lane]), self.places[lane]
            if not count:
                continue
            if lane not in self.readers:
                self.readers[lane] = rows.buffers(lane, count, len(self.history))
            features, target, weight, fold = next(self.readers[lane])
            for old, part in zip(self.data, (features, target, weight * self.factors[target]), strict=True):
                old[start : start + count] = part.to(self.device)
            chosen = [np.flatnonzero(fold != k) for k in range(rows.folds) for _ in range(self.recipe.members)]
            empty = [not len(found) for found in chosen]
            stratum = strata(target.numpy()) if self.recipe.stratified else None
            given = [found if len(found) else np.array([0]) for found in chosen]
            order = BatchOrder(given, last - first, stratum=stratum, steps=steps)
            self.batches.lanes[lane] = slice(first, last), start, order, torch.tensor(empty)
        return super().epoch()


class _LaneOrder(BatchOrder):
    """Batches to which every lane gives its part; of the parts of other processes nothing is known here."""

    def __init__(self, steps: int, batch_size: int, members: int, nothing: int) -> None:
        self.steps, self.batch_size, self.members, self.nothing = steps, batch_size, members, nothing
        self.lanes: dict[int, tuple[slice, int, BatchOrder, Tensor]] = {}

    def epoch(self, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Index tensors (members, batch_size), one per step."""
        found = torch.full((self.steps, self.members, self.batch_size), self.nothing)
        for lane, (place, start, order, empty) in self.lanes.items():
            seed = np.random.SeedSequence([generator.initial_seed(), lane]).generate_state(1, np.uint64)[0] >> 1
            index = torch.stack(order.epoch(torch.Generator().manual_seed(int(seed)))) + start
            found[:, :, place] = index.masked_fill(empty[:, None], self.nothing)
        return found.unbind()


class _Boosting(EstimatorModel):
    """LightGBM on the rows of a table, of which only the bins are held; the first process fits it for all."""

    def __init__(self, *given: Any, rows: ShardedRows) -> None:
        super().__init__(*given)
        self.table = rows

    def _fit_fold(self, folds: Folds, split: Split, k: int) -> list[Any]:
        content, group = b"", self.table.group
        if is_first_process():
            import lightgbm

            classes, held = len(folds.labels), split.validation
            how: dict[str, Any] = {"learning_rate": 0.05, "verbose": -1, "seed": folds.seed + k, "objective": "binary"}
            how |= {} if classes == 2 else {"objective": "multiclass", "num_class": classes}
            table, stop = self._binned(lightgbm, folds, k), lightgbm.early_stopping(PATIENCE, verbose=False)
            judged = (folds.table.trees[held], folds.codes[held], table, folds.weight[held])
            booster = lightgbm.train(how, table, 4 * ROUNDS, [lightgbm.Dataset(*judged)], callbacks=[stop])
            content = booster.model_to_string().encode()
        # The others wait as long as it takes.
        patient = None if group is None else distributed.new_group(timeout=timedelta(days=30))
        plain = {"library": "lightgbm", "model": gathered(content, patient)[0], "classes": np.arange(len(folds.labels))}
        return [LibraryFit.of_plain(plain)]

    def _binned(self, lightgbm: Any, folds: Folds, k: int) -> Any:
        """The table of bins, in which the rows of a fold have no weight."""
        rows, sizes = self.table, np.array(self.table.sizes)
        drawn = np.random.default_rng(rows.seed).permutation(np.flatnonzero(sizes))
        room = np.cumsum(sizes[drawn]) <= BINNED_BYTES / (folds.table.trees.shape[1] + 32)
        order = drawn[room | (np.arange(len(drawn)) == 0)].tolist()

        @functools.lru_cache(maxsize=1)
        def columns_of(piece: int) -> NDArray[np.float64]:
            frames = [frame[rows.columns] for frame, *_ in rows.training_rows([piece]) if len(frame)]
            return np.concatenate(list(map(rows.preprocessor.tree_features, frames))).astype(np.float64)

        class Piece(lightgbm.Sequence):  # type: ignore[misc]
            def __init__(self, number: int) -> None:
                self.number, self.batch_size = number, ROWS_AT_ONCE

            def __len__(self) -> int:
                return int(sizes[self.number])

            def __getitem__(self, index: Any) -> NDArray[np.float64]:
                return np.asarray(columns_of(self.number)[index])

        parts = zip(*(part for _, *part in rows.training_rows(order, ())), strict=True)
        codes, weight, fold = map(np.concatenate, parts)
        named: Any = np.flatnonzero(folds.table.categories).tolist() or "auto"
        weight = np.where(fold == k, 0, weight * rows.factors[codes])
        pieces = list(map(Piece, order))
        return lightgbm.Dataset(pieces, codes, None, weight, categorical_feature=named, params={"verbose": -1})


def _codes(values: pd.Series[Any], classes: NDArray[Any], name: str) -> NDArray[np.int64]:
    codes: NDArray[np.int64] = pd.Index(classes).get_indexer(pd.Index(values)).astype(np.int64)
    if (codes < 0).any():
        raise ValueError(f"{name}: {values[codes < 0].iloc[0]!r} is not one of the classes {classes.tolist()[:20]}.")
    return codes


def _check_columns(shards: Shards, names: Sequence[str]) -> None:
    if missing := [name for name in names if name not in shards.columns]:
        raise ValueError(f"target, columns: no column {missing[0]!r}; the table has {shards.columns[:20]}.")
