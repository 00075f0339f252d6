"""Train and evaluate on tables that do not fit into memory: a buffer, validation rows and a sample are all it holds."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted, validate_data

from metricfit.choices import Choice
from metricfit.confusion import ConfusionMatrix
from metricfit.data import TablePreprocessor
from metricfit.data.preprocessing import column_choices
from metricfit.data.shards import OPEN_PIECES, ROWS_AT_ONCE, Shards, share_of_rows
from metricfit.inputs import Task
from metricfit.metrics import resolve
from metricfit.models import NetworkModel
from metricfit.processes import agreed, is_first_process, join_processes
from metricfit.training import loop
from metricfit.training.rows import BatchOrder, Folds, Split, Table, TrainingData

if TYPE_CHECKING:
    from metricfit.classifier import MetricClassifier

__all__ = ["confusion_of_shards", "fit_shards"]

Source = str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Shards


def fit_shards(
    classifier: MetricClassifier,
    source: Source,
    target: str,
    *,
    columns: Sequence[str] | None = None,
    passes: float = 1.0,
    buffer_rows: int = 2**18,
    validation_rows: int = 50_000,
    sample_rows: int = 100_000,
) -> MetricClassifier:
    """Fit a classifier on Parquet or CSV files of any size.

    One pass counts the classes, one takes a random sample (the preprocessing is learned from it) and random
    validation rows, then ``passes`` train. Pieces of the table come in random order, several at a time, into a buffer;
    each full buffer is shuffled and cut into stratified batches, and after it the network is validated if it is time.
    So an "epoch" of ``history_`` is one buffer. The recipe's ``max_epochs``, ``min_updates`` and ``max_updates`` have
    no effect, and neither have ``cv``, ``n_members``, ``baseline``, ``class_weight`` and ``checkpoint_dir``.

    Under ``torchrun`` every process reads all rows and trains on its part of each batch.

    Args:
        classifier: Its metric, recipe, network and seed are used; fitted in place, and returned.
        source: A folder, a file or files, as for :class:`metricfit.data.shards.Shards`.
        target: The column with the labels, two classes or more.
        columns: Columns to learn from; all others by default.
        passes: How often the table is read for training; also a part of it.
        buffer_rows: Rows in the shuffling buffer.
        validation_rows: Rows held out, at most (and at most a fifth).
        sample_rows: Rows that the preprocessing is learned from, at most.
    """
    names = ("buffer_rows", "validation_rows", "sample_rows", "passes")
    for name, value in zip(names, (buffer_rows, validation_rows, sample_rows, passes), strict=True):
        if not value > 0:
            raise ValueError(f"{name}: expected a number > 0, got {value}.")
    if classifier.models not in ("auto", "network"):
        raise ValueError(f"models: only networks are trained from shards, got {classifier.models!r}; use 'network'.")
    seed = int(agreed(torch.tensor(loop.draw_seed(classifier.random_state)[0]), join_processes()))
    classifier._forget()
    stream = _Stream(source, target, columns, seed)
    classifier.metric_, meant = resolve(classifier.metric, stream.labels, stream.task)
    classifier.recipe_ = recipe = classifier._read_recipe()
    classifier.classes_, classifier.task_, classifier.seed_ = stream.classes, stream.task, seed
    held = stream.draw(validation_rows, sample_rows)
    validate_data(classifier, held[stream.columns], skip_check_array=True)
    classifier.preprocessor_ = stream.preprocessor
    rows = min(buffer_rows, stream.rows - len(held))
    how = f"{stream.rows:,} rows were streamed through a buffer of {rows:,}; {len(held):,} random rows validated"
    classifier.choices_ = [*([Choice("metric", meant)] if meant else []), Choice("rows", how)]
    classifier.choices_ += column_choices(stream.preprocessor)
    buffers = stream.buffers(rows)
    dense, codes, weight = (part.numpy() for part in _joined(stream.tensors(held), next(buffers)))
    split = Split(np.arange(len(held), len(held) + rows), np.arange(len(held)))
    counts = torch.tensor(list(stream.counts.values()), dtype=torch.float64)
    known = ([split], classifier.metric_, stream.task, stream.labels, seed, (counts / counts.sum()).float())
    folds = Folds(Table.of_numbers(dense), codes, weight, weight, *known)
    device = loop.as_device(classifier.device)
    trainer = _StreamTrainer(folds, recipe, device=device)
    trainer.take(buffers, max(1, round(passes * (stream.rows - len(held)) / rows)), len(held))
    model = NetworkModel("network", recipe, device=device, callbacks=loop.callback_list(classifier.callbacks))
    with loop.progress_bar(classifier.verbose and is_first_process(), f"{recipe.name} ({classifier.metric_})") as bar:
        model.held_out = model.train(trainer, bar, stream.task)
    classifier._keep(folds, [model], ["network"])
    return classifier


def confusion_of_shards(
    classifier: MetricClassifier, source: Source, target: str, *, rows_at_once: int = 2**16
) -> ConfusionMatrix:
    """The confusion matrix of a fitted classifier's predictions on all rows, whatever their number.

    ``metric.compute`` of it is exact: counts add up.

    Args:
        classifier: Fitted, for one target column.
        source: As for :func:`fit_shards`.
        target: The column with the labels.
        rows_at_once: Rows that are predicted together, at most.
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
        predicted = torch.from_numpy(classifier.predict_proba(chunk.rows.drop(columns=target)).argmax(axis=1))
        matrix += ConfusionMatrix.from_codes(true, predicted, len(classes), task=task, labels=labels)
    return matrix


class _Stream:
    """The rows of a table as training takes them, apart from those held out."""

    def __init__(self, source: Source, target: str, columns: Sequence[str] | None, seed: int) -> None:
        self.shards = source if isinstance(source, Shards) else Shards(source)
        self.target, self.seed, self.held_out = target, seed, 0.0
        _check_columns(self.shards, [target, *(columns or ())])
        self.columns = [c for c in (columns or self.shards.columns) if c != target]
        self.counts = self.shards.values(target)
        if len(self.counts) < 2:
            raise ValueError(f"{target}: holds one class only, {list(self.counts)}; a classifier needs two or more.")
        self.rows, self.classes = sum(self.counts.values()), np.array(list(self.counts))
        self.labels = tuple(self.classes.tolist())
        self.task: Task = "binary" if len(self.labels) == 2 else "multiclass"
        self.preprocessor = TablePreprocessor(random_state=seed)

    def draw(self, validation_rows: int, sample_rows: int) -> pd.DataFrame:
        """Validation rows; in the same pass a sample of the others, from which the preprocessing is learned."""
        self.held_out = min(0.2, validation_rows / self.rows)
        share = min(1.0, sample_rows / self.rows)
        held, sampled = list[pd.DataFrame](), list[pd.DataFrame]()
        for chunk in self.shards.chunks(columns=[*self.columns, self.target], target=self.target):
            out = share_of_rows(chunk, self.held_out, self.seed)
            held.append(chunk.rows[out])
            sampled.append(chunk.rows[share_of_rows(chunk, share, self.seed + 1) & ~out])
        rows, sample = pd.concat(held, ignore_index=True), pd.concat(sampled, ignore_index=True)
        if absent := set(self.counts) - set(rows[self.target].unique()):
            rare = min(absent, key=lambda label: self.counts[label])
            told = f"none of {len(rows):,} random rows is of class {rare!r}, {self.counts[rare]:,} in all"
            raise ValueError(f"validation_rows: {told}; take more, or join rare classes.")
        # Rates of classes in a category, learned from rows that are trained on afterwards, say too much about them
        # unless they are a small part.
        small_part = self.rows >= 10 * len(sample)
        self.preprocessor.fit(sample[self.columns], sample[self.target] if small_part else None)
        return rows

    def frames(self, buffer: int) -> Iterator[pd.DataFrame]:
        """Training rows in random order of pieces, again and again, for buffers of so many rows."""
        random = np.random.default_rng(self.seed)
        few = min(ROWS_AT_ONCE, max(1, buffer // (4 * OPEN_PIECES)))  # so that every buffer meets all open pieces
        how: dict[str, Any] = {"target": self.target, "open_pieces": OPEN_PIECES, "rows": few}
        while True:
            order = random.permutation(len(self.shards.pieces)).tolist()
            for chunk in self.shards.chunks(columns=[*self.columns, self.target], order=order, **how):
                kept = chunk.rows[~share_of_rows(chunk, self.held_out, self.seed)]
                if len(kept):
                    yield kept

    def buffers(self, rows: int) -> Iterator[TrainingData]:
        """Buffers of exactly so many training rows, without end."""
        waiting, number = list[TrainingData](), 0
        for frame in self.frames(rows):
            waiting.append(self.tensors(frame))
            number += len(frame)
            while number >= rows:
                whole = _joined(*waiting)
                yield TrainingData(*(part[:rows] for part in whole))
                waiting = [TrainingData(*(part[rows:].clone() for part in whole))]
                del whole
                number -= rows

    def tensors(self, frame: pd.DataFrame) -> TrainingData:
        """Rows as training takes them."""
        codes = torch.from_numpy(_codes(frame[self.target], self.classes, self.target))
        features = torch.from_numpy(self.preprocessor.transform(frame[self.columns]))
        return TrainingData(features, codes, torch.ones(len(codes)))


class _StreamTrainer(loop.Trainer):
    """A trainer whose training rows are replaced by the next buffer before every epoch."""

    def take(self, buffers: Iterator[TrainingData], epochs: int, first: int) -> None:
        """Train on so many buffers, which come after the first rows."""
        self.buffers, self.epochs, self.first = buffers, epochs, first
        steps = self.batches.steps
        # The recipe's horizon is meant for small tables, of which three epochs are a small part of training.
        self.average_over(min(self.recipe.averaging * steps, epochs * steps / 10))

    def epoch(self) -> loop.EpochRecord:
        if self.history:
            for rows, new in zip(self.data, next(self.buffers), strict=True):
                rows[self.first :] = new.to(self.device)
        every = np.arange(self.first, len(self.data.target))
        stratum = self.data.target.cpu().numpy() if self.recipe.stratified else None
        self.batches = BatchOrder([every], self.recipe.batch_size, stratum=stratum)
        return super().epoch()


def _joined(*parts: TrainingData) -> TrainingData:
    return TrainingData(*map(torch.cat, zip(*parts, strict=True)))


def _codes(values: pd.Series[Any], classes: NDArray[Any], name: str) -> NDArray[np.int64]:
    codes: NDArray[np.int64] = pd.Index(classes).get_indexer(pd.Index(values)).astype(np.int64)
    if (codes < 0).any():
        raise ValueError(f"{name}: {values[codes < 0].iloc[0]!r} is not one of the classes {classes.tolist()[:20]}.")
    return codes


def _check_columns(shards: Shards, names: Sequence[str]) -> None:
    if missing := [name for name in names if name not in shards.columns]:
        raise ValueError(f"target, columns: no column {missing[0]!r}; the table has {shards.columns[:20]}.")
