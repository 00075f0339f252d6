"""``MetricClassifier``: training on the metric behind scikit-learn's interface."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted, validate_data

from metricfit.assess import HeldOutScores
from metricfit.assess.verdicts import held_out, validation_report
from metricfit.choices import Choice
from metricfit.data import TablePreprocessor
from metricfit.data.arguments import (
    as_dense,
    as_device,
    check_two_dimensions,
    combined_weights,
    draw_seed,
    matches_names,
    row_count,
)
from metricfit.data.preprocessing import columns_in_words, warn_of_unused
from metricfit.data.targets import Target, read_target, read_truth
from metricfit.decisions.rules import DecisionRule, argmax_rule
from metricfit.decisions.threshold import tuned_rule
from metricfit.distributed import agreed, group_of, is_first_process, join_processes
from metricfit.metrics import Constrained, MetricLike, resolve
from metricfit.training.checkpoint import CheckpointFile, in_full, read_checkpoint, run_identity
from metricfit.training.evaluation import mean_probabilities
from metricfit.training.explanation import explain
from metricfit.training.history import Callback, callback_list, progress_bar
from metricfit.training.loop import Problem, TrainingResult, train
from metricfit.training.recipes import Recipe
from metricfit.training.rows import Split, TrainingData, choose_cv, given_splits, group_codes, split_rows

__all__ = ["MetricClassifier"]

BASELINE_ROWS = 20_000
"""Up to this many rows the cross-entropy baseline of the validation report is trained without asking."""

_BASELINE_DIFFERS = {
    "name", "objective", "cross_entropy", "balance", "warm_start_epochs", "annealing", "memory", "selection", "rule"
}  # fmt: skip
"""Parts of the recipe that the cross-entropy baseline does not share."""


class MetricClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A neural network trained on the metric it is judged by.

    Tables go in as they are: numbers, categories, truth values, dates, gaps (see
    :class:`metricfit.data.TablePreprocessor`). By default five networks are trained as one, each on four fifths of
    the rows and stopped on the rest; probabilities are their mean and the decision is its arg max.

    How a network is trained is the recipe's matter: ``recipe=Recipe("east", patience=5)``. In searches its parts are
    parameters, such as ``recipe__learning_rate``.

    Args:
        metric: A name, spec, expression, :class:`metricfit.metrics.Metric` or function of the confusion matrix, also
            with constraints: ``"precision[1] subject to recall[1] >= 0.9"``. A bare ``f1``, ``precision``, … is the
            positive class's (the second in sorted order) for two classes and the macro average for more;
            ``metric_`` and :meth:`explain` say which was taken.
        recipe: ``"default"``, ``"east"``, ``"log_loss"``, ``"surrogate_fbeta"``, ``"anyloss"``, or a
            :class:`metricfit.training.Recipe`.
        cv: Folds of the ensemble; ``None`` for one stratified hold-out of 20 %; ``"auto"`` decides by size; or a
            scikit-learn splitter or a list of (training rows, validation rows), one per member.
        n_members: Networks that share a split, started from different weights.
        baseline: Whether to train the same network with cross-entropy for ``validation_report_``, for twice the time;
            ``"auto"`` does so up to 20,000 rows.
        class_weight: ``None``, ``"balanced"`` or ``{class: weight}``; takes the place of the recipe's ``balance``. As
            in scikit-learn a weight of the rows: of the loss, metric included, and of ``history_``. The validation
            report, its baseline and ``score`` go without it.
        preprocess: ``"auto"``, or a transformer to a dense array, or ``None`` for X that is one already.
        device: ``"auto"`` (a GPU if there is one) or a torch device.
        checkpoint_dir: Where to save the state of training. The same fit started again goes on from there and ends
            with exactly the same model, wherever it was stopped.
        callbacks: A function of :class:`metricfit.training.EpochEnd`, or several, called after each epoch; true ends
            training.
        verbose: Show progress on stderr, if that is a terminal.
        random_state: Seed; global seeds are neither read nor changed.

    Attributes:
        classes_: Class labels; label numbers for a multi-label target.
        task_: ``"binary"``, ``"multiclass"`` or ``"multilabel"``.
        seed_: The seed that was used; drawn, if ``random_state`` gave none.
        metric_: The metric with its class or average written out.
        recipe_: The recipe with all its parts filled in.
        network_: The trained ensemble.
        preprocessor_: The fitted preprocessor, or None.
        decision_rule_: The rule that is folded into ``predict_proba``.
        history_: One row per epoch.
        validation_report_: The metric on held-out rows: cross-entropy at arg max and with a tuned rule, trained on
            the metric, ensemble; with standard errors and gains.
        held_out_: The probabilities, decisions and truth behind that report, or None; saved with the model.
        choices_: What was decided without asking: :class:`metricfit.choices.Choice` objects, each with a topic and,
            as its text, a sentence.
        n_features_in_: Number of columns.
        feature_names_in_: Their names, if they were text.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> recipe = Recipe(min_updates=100, max_epochs=1)
        >>> clf = MetricClassifier("f1", recipe=recipe, cv=None, random_state=0).fit(X, y)
        >>> print(clf.metric_)
        f1:average=macro
        >>> clf.score(X, y) > 0.9
        True
    """

    def __init__(
        self,
        metric: MetricLike = "f1",
        *,
        recipe: str | Recipe = "default",
        cv: Any = "auto",
        n_members: int = 1,
        baseline: bool | str = "auto",
        class_weight: dict[Any, float] | str | None = None,
        preprocess: Any = "auto",
        device: str | torch.device = "auto",
        checkpoint_dir: str | os.PathLike[str] | None = None,
        callbacks: Callback | Sequence[Callback] = (),
        verbose: bool = True,
        random_state: int | np.random.RandomState | np.random.Generator | None = None,
    ) -> None:
        self.metric = metric
        self.recipe = recipe
        self.cv = cv
        self.n_members = n_members
        self.baseline = baseline
        self.class_weight = class_weight
        self.preprocess = preprocess
        self.device = device
        self.checkpoint_dir = checkpoint_dir
        self.callbacks = callbacks
        self.verbose = verbose
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None, groups: ArrayLike | None = None) -> Self:
        """Train.

        Args:
            X: A table (n, columns): array, sparse matrix, pandas or polars frame; NaN is a gap.
            y: Labels (n,), or 0/1 indicators (n, labels).
            sample_weight: Weights (n,), for training and for the metric.
            groups: Rows of one group are never split between training and validation (n,).

        Started by ``torchrun --nproc-per-node N``, or with ``torch.distributed`` initialised, N processes train one
        model together: all of them call ``fit`` with the same data, each takes a part of every batch, and all end
        with the model that one process would have trained. Only the first one writes checkpoints and shows progress.
        """
        join_processes()
        self._forget()
        recipe = self._read_recipe()
        validate_data(self, X, y, skip_check_array=True)
        rows = row_count(X)
        target = read_target(y, rows)
        weight, evaluation_weight = combined_weights(target, np.empty((rows, 0)), sample_weight, self.class_weight)
        self.metric_, meant = resolve(self.metric, target.labels, target.task)
        if recipe.rule == "tuned" and self.metric_.judges_scores:
            raise ValueError(
                f"rule: {self.metric_} judges scores, so there is no decision to tune for it; use rule='argmax'."
            )
        seed, fixed = draw_seed(self.random_state)
        if not fixed:
            seed = int(agreed(torch.tensor(self._seed_of_checkpoint(seed)), group_of("auto", training=True)))
        features = self._fit_features(X, target, seed)
        splits, why = self._split(target, groups, seed)
        tensors = (torch.from_numpy(a) for a in (features, target.codes, weight))
        problem = Problem(TrainingData(*tensors), splits, self.metric_, target.task, target.labels)
        self.classes_, self.recipe_, self.task_, self.seed_ = target.classes, recipe, target.task, seed
        self.choices_ = [Choice("metric", meant)] if meant else []
        self.choices_ += [Choice("folds", why), *columns_in_words(self.preprocessor_)]
        run = self._identity(recipe, fixed, problem)
        result = self._train(problem, recipe, "metric", run)
        unweighted = replace(problem, data=replace(problem.data, weight=torch.from_numpy(evaluation_weight)))
        baseline = self._train_baseline(unweighted, result, run)
        self._keep(target, problem, result, baseline, evaluation_weight.astype(np.float64))
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities (n, classes), or (n, labels), with the rule folded in: ``predict`` is their arg max."""
        proba = self.predict_raw_proba(X)
        return proba if self.decision_rule_.kind == "argmax" else self.decision_rule_.fold(proba)

    def predict_raw_proba(self, X: Any) -> NDArray[np.float64]:
        """The ensemble's mean probabilities, before any decision rule."""
        check_is_fitted(self, "network_")
        features = self._features(X)
        return mean_probabilities(self.network_, features, self.task_, next(self.network_.parameters()).device)

    def predict(self, X: Any) -> NDArray[Any]:
        """Labels (n,), or 0/1 indicators (n, labels)."""
        proba = self.predict_proba(X)
        if self.task_ == "multilabel":
            return (proba > 0.5).astype(np.int64)
        return np.asarray(self.classes_[proba.argmax(axis=1)])

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """The metric of the predictions; its negative if less is better, as scikit-learn's scorers have it."""
        check_is_fitted(self, "network_")
        ranking = self.metric_.judges_scores
        if ranking:
            proba = self.predict_raw_proba(X)
            predicted = proba[:, 1] if self.task_ == "binary" else proba
        else:
            predicted = self.predict(X)
        truth = read_truth(y, self.task_, self.classes_)
        value = float(self.metric_.score(truth, predicted, sample_weight, labels=self._labels_in(truth, predicted)))
        return value if self.metric_.greater_is_better else -value

    def explain(self) -> str:
        """What was trained, what was decided without asking, and what it bought, in words."""
        check_is_fitted(self, "network_")
        return explain(self)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments; ``deep`` adds the parts of the recipe, as ``recipe__learning_rate``."""
        params: dict[str, Any] = super().get_params(deep=deep)
        if deep and isinstance(self.recipe, str | Recipe):
            params |= {f"recipe__{part}": value for part, value in Recipe.of(self.recipe).parts().items()}
        return params

    def set_params(self, **params: Any) -> Self:
        """Change arguments, and with ``recipe__learning_rate`` and the like parts of the recipe."""
        parts = {name: value for name, value in params.items() if name.startswith("recipe__")}
        super().set_params(**{name: value for name, value in params.items() if name not in parts})
        if parts:
            given = {name.removeprefix("recipe__"): value for name, value in parts.items()}
            self.recipe = Recipe.of(self.recipe).with_parts(given)
        return self

    def _forget(self) -> None:
        """Drop what an earlier fit left: where this one fails, there is no model, not half of each."""
        for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]:
            delattr(self, name)

    def _labels_in(self, truth: NDArray[Any], predicted: NDArray[Any]) -> tuple[Any, ...]:
        """The classes that count: for several classes those that occur, as in scikit-learn, and those named."""
        known = self.classes_.tolist()
        if self.task_ != "multiclass" or predicted.ndim == 2:
            return tuple(known)
        seen = set(np.unique(truth).tolist()) | set(np.unique(predicted).tolist())
        occurring = tuple(label for label in known if label in seen) + tuple(sorted(seen - set(known)))
        try:
            self.metric_.check(occurring, "multiclass")
        except ValueError:
            return tuple(known)
        return occurring if len(occurring) > 2 else tuple(known)

    def _read_recipe(self) -> Recipe:
        recipe = Recipe.of(self.recipe)
        if self.class_weight is not None:
            if recipe.balance is not None:
                raise ValueError("class_weight: takes the place of the recipe's balance; give one of them.")
            recipe = recipe.with_parts({"balance": "none"})
        if not isinstance(self.n_members, int | np.integer) or isinstance(self.n_members, bool) or self.n_members < 1:
            raise ValueError(f"n_members: expected a whole number >= 1, got {self.n_members!r}.")
        if self.baseline not in (True, False, "auto"):
            raise ValueError(f"baseline: expected True, False or 'auto', got {self.baseline!r}.")
        callback_list(self.callbacks)
        return recipe.complete()

    def _split(self, target: Target, groups: ArrayLike | None, seed: int) -> tuple[list[Split], str]:
        rows = len(target.codes)
        found = None if groups is None else int(group_codes(groups, rows).max()) + 1
        given = given_splits(self.cv, target.codes, groups)
        if given is not None:
            return [split for split in given for _ in range(self.n_members)], f"{len(given)} splits, as given"
        folds, why = choose_cv(self.cv, rows, target.smallest_class, found)
        random = np.random.default_rng(seed)
        return split_rows(target.codes, folds, members=self.n_members, groups=groups, random=random), why

    def _fit_features(self, X: Any, target: Target, seed: int) -> NDArray[np.float32]:
        if self.preprocess is None:
            self.preprocessor_ = None
            return as_dense(X, self.__class__.__name__)
        if isinstance(self.preprocess, str):
            if self.preprocess != "auto":
                raise ValueError(f"preprocess: expected 'auto', a transformer or None, got {self.preprocess!r}.")
            self.preprocessor_ = TablePreprocessor(random_state=seed)
        else:
            self.preprocessor_ = clone(self.preprocess)
        features = self.preprocessor_.fit_transform(X, target.truth)
        warn_of_unused(self.preprocessor_, stacklevel=3)
        return as_dense(features, self.__class__.__name__)

    def _features(self, X: Any) -> NDArray[np.float32]:
        check_two_dimensions(X)
        if not hasattr(X, "columns") or not matches_names(self.preprocessor_):
            validate_data(self, X, reset=False, skip_check_array=True)
        made = X if self.preprocessor_ is None else self.preprocessor_.transform(X)
        features = as_dense(made, self.__class__.__name__)
        if features.shape[1] != self.n_network_inputs_:
            raise ValueError(
                f"preprocess: expected {self.n_network_inputs_} features, as in fit, got {features.shape[1]}; give X "
                "the columns that it had in fit, or take a transformer whose output keeps its width."
            )
        return features

    def _train(self, problem: Problem, recipe: Recipe, run: str, identity: dict[str, str]) -> TrainingResult:
        checkpoint = None if self.checkpoint_dir is None else CheckpointFile(self.checkpoint_dir, run, identity)
        with progress_bar(self.verbose and is_first_process(), f"{recipe.name} ({self.metric_})") as bar:
            return train(
                problem,
                recipe,
                seed=self.seed_,
                device=as_device(self.device),
                checkpoint=checkpoint,
                callbacks=[bar, *callback_list(self.callbacks)],
                run=run,
            )

    def _train_baseline(
        self, problem: Problem, result: TrainingResult, identity: dict[str, str]
    ) -> TrainingResult | None:
        recipe = self.recipe_
        auto = isinstance(self.baseline, str)
        wanted = len(problem.data.target) <= BASELINE_ROWS if auto else bool(self.baseline)
        has_validation = any(len(split.validation) for split in problem.splits)
        if not wanted or self._is_plain_cross_entropy() or result.interrupted or not has_validation:
            if auto and not wanted:
                self.choices_.append(
                    Choice(
                        "baseline",
                        f"no cross-entropy baseline was trained: there are more than {BASELINE_ROWS:,} rows; "
                        "baseline=True trains one for the validation report",
                    )
                )
            return None
        shared = {part: value for part, value in recipe.parts().items() if part not in _BASELINE_DIFFERS}
        baseline = self._train(problem, Recipe("log_loss", **shared).complete(), "baseline", identity)
        if baseline.interrupted:
            self.choices_.append(
                Choice(
                    "baseline",
                    f"training of the cross-entropy baseline was interrupted after {len(baseline.history.records)} "
                    "epochs, so the comparison with it is not fair",
                )
            )
        return baseline

    def _is_plain_cross_entropy(self) -> bool:
        recipe = self.recipe_
        return recipe.objective == "log_loss" and recipe.balance == "none" and self.class_weight is None

    def _keep(
        self,
        target: Target,
        problem: Problem,
        result: TrainingResult,
        baseline: TrainingResult | None,
        weight: NDArray[np.float64],
    ) -> None:
        self.network_, self.history_ = result.network, result.history.frame()
        self.best_epochs_ = result.best_epoch
        self.n_network_inputs_ = int(problem.data.features.shape[1])
        self.fit_seconds_ = result.seconds + (baseline.seconds if baseline else 0.0)
        truth, labels, splits = target.truth, target.labels, problem.splits
        self.decision_rule_: DecisionRule = argmax_rule(truth, labels)
        rows = [split.validation for split in splits]
        held = held_out(rows, result.validation, self.n_members)
        usual = held_out(rows, baseline.validation, self.n_members) if baseline else None
        tunes = self.recipe_.rule == "tuned" or isinstance(self.metric_, Constrained)
        if isinstance(self.metric_, Constrained) and held is None:
            told = "X: too few rows to hold any out, so arg max is used, and no rule was tuned for the constraints."
            warnings.warn(told, UserWarning, stacklevel=3)
        if tunes and held is not None:
            proba = held.single if held.ensemble is None else held.ensemble
            self.decision_rule_ = tuned_rule(truth[held.rows], proba, self.metric_, labels, weight[held.rows])
        if self._is_plain_cross_entropy():
            name = "cross-entropy, tuned rule" if tunes else "cross-entropy, arg max"
        else:
            name = "trained on the metric" if self.recipe_.objective == "metric" else f"trained by {self.recipe_.name}"
        report: tuple[pd.DataFrame, HeldOutScores | None] = validation_report(
            self.metric_, target.codes, target.classes, weight, trained=held, baseline=usual, trained_on=name,
            tuned=tunes, ensemble_note="every row trained some of its members, so only new data can measure it"
            if len(splits) > 1 else "",
        )  # fmt: skip
        self.validation_report_, self.held_out_ = report

    def _identity(self, recipe: Recipe, fixed: bool, problem: Problem) -> dict[str, str]:
        if self.checkpoint_dir is None:
            return {}
        settings = {
            "metric": [str(self.metric_), in_full(self.metric)],
            "recipe": recipe.parts(),
            "seed": self.seed_ if fixed else None,
            "labels": list(map(str, problem.labels)),
        }
        folds = [part for split in problem.splits for part in (split.train, split.validation)]
        tensors = (problem.data.features, problem.data.target, problem.data.weight)
        return run_identity(settings, [*(tensor.numpy() for tensor in tensors), *folds])

    def _seed_of_checkpoint(self, seed: int) -> int:
        """An unseeded run that was stopped goes on with the seed it was started with."""
        if self.checkpoint_dir is None:
            return seed
        content = read_checkpoint(Path(self.checkpoint_dir) / "metric.pt")
        return seed if content is None else int(content["state"]["seed"])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        tags.input_tags.allow_nan = self.preprocess is not None
        tags.input_tags.sparse = True
        tags.input_tags.string = self.preprocess is not None
        tags.input_tags.categorical = self.preprocess is not None
        tags.non_deterministic = False
        return tags
