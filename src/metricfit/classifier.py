"""``MetricClassifier``: the best decisions for a metric, behind scikit-learn's interface."""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted, validate_data

from metricfit.assess.verdicts import PLAIN, TUNED, assess, scores_of
from metricfit.choices import Choice
from metricfit.data import TablePreprocessor
from metricfit.data.preprocessing import as_dense, column_choices, matches_names
from metricfit.decisions.calibration import Calibration
from metricfit.decisions.rules import DecisionRule, GroupThresholds
from metricfit.distributed import agreed, is_first_process, join_processes
from metricfit.ensemble import PORTFOLIO, check_columns, judge, mean_of
from metricfit.inputs import expect
from metricfit.labels import Target, combined_weights, read_target, read_truth, row_count, rows_columns
from metricfit.metrics import Constrained, MetricLike, resolve
from metricfit.models import EstimatorModel, Folds, Model, NetworkModel, Table, fit_models, names_of
from metricfit.training.checkpoint import CheckpointFile, fingerprint, in_full, read_checkpoint
from metricfit.training.explanation import explain
from metricfit.training.loop import Callback, EpochRecord, as_device, callback_list, draw_seed
from metricfit.training.recipes import Recipe
from metricfit.training.rows import Split, choose_cv, given_splits, group_codes, split_rows

if TYPE_CHECKING:
    from metricfit.scoring import Scorer

__all__ = ["MetricClassifier"]

BASELINE_ROWS = 20_000
"""Up to this many rows the cross-entropy baseline of the validation report is trained without asking."""

_BASELINE_DIFFERS = ("objective", "cross_entropy", "balance", "warm_start_epochs", "annealing", "memory", "selection")
"""Parts of the recipe that the cross-entropy baseline does not share, beside its name and rule."""


class MetricClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A portfolio of models, combined and decided for the metric it is judged by.

    Tables go in as they are: numbers, categories, truth values, dates, gaps (see
    :class:`metricfit.data.TablePreprocessor`). By default five kinds of models are fitted on five folds: networks
    trained on the metric, networks trained with cross-entropy, a random forest, extra trees and gradient boosting.
    Their weights are chosen on held-out log-loss, and the decision rule for their mean is tuned for the metric on
    held-out rows.

    How a network is trained is the recipe's matter: ``recipe=Recipe("east", patience=5)``. In searches its parts are
    parameters, such as ``recipe__learning_rate``.

    Args:
        metric: A name, spec, expression, :class:`metricfit.metrics.Metric` or function of the confusion matrix, also
            with constraints: ``"precision[1] subject to recall[1] >= 0.9"``. A bare ``f1``, ``precision``, … is the
            positive class's (the second in sorted order) for two classes and the macro average for more;
            ``metric_`` and :meth:`explain` say which was taken.
        models: ``"auto"`` for the portfolio; ``"network"`` for networks trained on the metric alone, decided by
            arg max; or a list of ``"auto"``, ``"network"``, ``"network_ce"``, ``"forest"``, ``"extra_trees"``,
            ``"boosting"``, ``"lightgbm"``, ``"xgboost"``, ``"catboost"``, also with parameters
            (``"boosting:learning_rate=0.05,max_leaf_nodes=15"``), and scikit-learn classifiers with
            ``predict_proba``. A pipeline gets the table as given, other classifiers get numbers without gaps.
        recipe: For the networks, a name (``"default"``, ``"log_loss"``, ``"east"`` and others), also with parts
            (``"east:patience=5,hidden_sizes=64-32"``), or a :class:`metricfit.training.Recipe`.
        cv: Folds; ``None`` for one stratified hold-out of 20 %; ``"auto"`` decides by size; or a scikit-learn
            splitter or a list of (training rows, validation rows).
        baseline: Whether to train networks with cross-entropy for ``validation_report_`` where they are not among the
            models; ``"auto"`` does so up to 20,000 rows.
        confidence: If given, constraints hold on new rows with this probability: the rule is chosen so on held-out
            rows, see :func:`metricfit.decisions.best_threshold`.
        class_weight: ``None``, ``"balanced"`` or ``{class: weight}``; takes the place of the recipe's ``balance``. As
            in scikit-learn a weight of the rows: of the loss, metric included, and of ``history_``. The validation
            report, its baseline and ``score`` go without it.
        preprocess: ``"auto"``, or a transformer to a dense array, or ``None`` for X that is one already.
        device: ``"auto"`` (a GPU if there is one) or a torch device, for the networks.
        time_limit: Seconds after which no further model is begun and networks stop with their best weights so far.
            The cheap models come first, and the first one is always fitted. ``None`` for no limit.
        n_jobs: Folds of a model that are fitted at the same time; ``None`` for as many as there are cores.
        checkpoint_dir: Where to save the state of training. The same fit started again goes on from there and ends
            with exactly the same model, wherever it was stopped.
        callbacks: A function of :class:`metricfit.training.EpochEnd`, or several, called after each epoch of the
            networks; true ends their training.
        verbose: Show progress on stderr: a bar on a terminal, else a line every few seconds.
        random_state: Seed; global seeds are neither read nor changed.

    Attributes:
        classes_, task_: Class labels, or label numbers; ``"binary"``, ``"multiclass"`` or ``"multilabel"``.
        seed_: The seed that was used; drawn, if ``random_state`` gave none.
        metric_, recipe_: The metric with its class or average written out; the recipe with all its parts filled in.
        models_, weights_: The fitted models that have a weight, by name, and their weights.
        leaderboard_: Every model and the portfolio, the best first: the metric on held-out rows with its interval,
            weight, seconds to fit and seconds to predict 1,000 rows. Each model is decided by a rule of its own.
        network_, preprocessor_: The trained networks, if they have a weight; the fitted preprocessor, or None.
        decision_rule_: The rule that is folded into ``predict_proba``.
        group_thresholds_: Where the metric says ``with thresholds by column``, the cut-offs of its groups; else None.
        history_: One row per epoch of the networks.
        validation_report_: The metric on held-out rows with its interval: cross-entropy at arg max and with a tuned
            rule, the best single model, the portfolio. Weights and rules are chosen on other folds than they decide.
        held_out_: The probabilities, decisions and truth behind that report, or None; saved with the model.
        choices_: What was decided without asking: :class:`metricfit.choices.Choice` objects, each with a topic and,
            as its text, a sentence.
        n_features_in_, feature_names_in_: Number of columns, and their names if they were text.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> clf = MetricClassifier("f1", models=["forest", "boosting"], random_state=0).fit(X, y)
        >>> print(clf.metric_)
        f1:average=macro
        >>> clf.score(X, y) > 0.9
        True
    """

    def __init__(
        self,
        metric: MetricLike = "f1",
        *,
        models: Any = "auto",
        recipe: str | Recipe = "default",
        cv: Any = "auto",
        baseline: bool | str = "auto",
        confidence: float | None = None,
        class_weight: dict[Any, float] | str | None = None,
        preprocess: Any = "auto",
        device: str | torch.device = "auto",
        time_limit: float | None = None,
        n_jobs: int | None = None,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        callbacks: Callback | Sequence[Callback] = (),
        verbose: bool = True,
        random_state: int | np.random.RandomState | np.random.Generator | None = None,
    ) -> None:
        self.metric = metric
        self.models = models
        self.recipe = recipe
        self.cv = cv
        self.baseline = baseline
        self.confidence = confidence
        self.class_weight = class_weight
        self.preprocess = preprocess
        self.device = device
        self.time_limit = time_limit
        self.n_jobs = n_jobs
        self.checkpoint_dir = checkpoint_dir
        self.callbacks = callbacks
        self.verbose = verbose
        self.random_state = random_state

    def fit(
        self, X: Any, y: Any, sample_weight: ArrayLike | None = None, groups: ArrayLike | None = None,
        columns: Mapping[str, ArrayLike] | None = None,
    ) -> Self:  # fmt: skip
        """Train.

        Args:
            X: A table (n, columns): array, sparse matrix, pandas or polars frame; NaN is a gap.
            y: Labels (n,), or 0/1 indicators (n, labels).
            sample_weight: Weights (n,), for training and for the metric.
            groups: Rows of one group are never split between training and validation (n,).
            columns: The columns that the metric names, for money or for constraints in groups, and X has not.

        Started by ``torchrun --nproc-per-node N``, or with ``torch.distributed`` initialised, N processes train one
        model together: all of them call ``fit`` with the same data, each takes a part of every batch, and all end
        with the model that one process would have trained. Only the first one writes checkpoints and shows progress.
        """
        group = join_processes()
        self._forget()
        validate_data(self, X, y, skip_check_array=True)
        target = read_target(y, row_count(X))
        weight, plain_weight = combined_weights(target, sample_weight, self.class_weight)
        names, fixed = self._begin(target, group)
        splits, why = self._split(target, groups)
        table = self._fit_table(X, target)
        known = rows_columns(self.metric_.columns, X, columns, len(table))
        if (by := getattr(self.metric_, "by", None)) is not None:
            if by not in getattr(X, "columns", ()):  # as one that is given beside it would be missing in predict
                raise ValueError(f"X: thresholds by {by!r} need it among the columns of X, where predict looks for it.")
            known |= rows_columns([by], X, None, len(table))
        folds = Folds(table, target.codes, weight, plain_weight, splits, self.metric_, target.task, target.labels,
                      self.seed_, columns=known)  # fmt: skip
        check_columns(folds)
        self.choices_ += [Choice("folds", why), *column_choices(self.preprocessor_)]
        models = self._build(names, folds, fixed)
        fitted = fit_models(models, folds, self.time_limit, show=self.verbose and is_first_process())
        self._keep(folds, models, fitted, dict(names))
        return self

    def predict_proba(self, X: Any, *, raw: bool = False) -> NDArray[np.float64]:
        """Probabilities (n, classes), or (n, labels), with the rule folded in: ``predict`` is their arg max.

        ``raw`` ones are the ensemble's mean, before any decision rule; where groups have cut-offs of their own, their
        odds are scaled, so that one cut-off decides about all of them.
        """
        check_is_fitted(self, "models_")
        table = self._table(X)
        proba = mean_of({name: model.predict(table) for name, model in self.models_.items()}, self.weights_)
        proba = self._by_group(proba, X)
        return proba if raw or self.decision_rule_.kind == "argmax" else self.decision_rule_.fold(proba)

    def predict_as_held_out(self, X: Any) -> NDArray[np.float64]:
        """Raw probabilities of new rows as ``held_out_`` has them: of each row by one fold's models, in turn."""
        check_is_fitted(self, "models_")
        if self.held_out_ is None or self.held_out_.fold is None:  # all models together were measured
            return self.predict_proba(X, raw=True)
        table = self._table(X)
        each = mean_of({name: model.each_fold(table) for name, model in self.models_.items()}, self.weights_)
        rows = np.arange(len(table))
        return self._by_group(np.asarray(each[rows % len(each), rows]), X)

    def _by_group(self, proba: NDArray[np.float64], X: Any, *, back: bool = False) -> NDArray[np.float64]:
        """Probabilities with the cut-offs of groups moved to that of all, or as they were (``back``)."""
        groups = self.group_thresholds_
        if groups is None or not len(proba):
            return proba
        return groups.moved(proba, rows_columns([groups.column], X, None, len(proba)), back=back)

    def predict_calibrated_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities that can be trusted: the raw ones, calibrated on ``held_out_``."""
        proba = self.predict_proba(X, raw=True)
        return self.calibration_.apply(self._by_group(proba, X, back=True))

    @cached_property
    def calibration_(self) -> Calibration:
        """What makes the mean probabilities fit the truth of held-out rows, made when it is first asked for."""
        held, groups = self.held_out_, self.group_thresholds_
        if held is None:
            raise ValueError("predict_calibrated_proba: needs held-out rows, and none were held out; bring more rows.")
        if groups is not None:
            held = replace(held, proba=groups.moved(held.proba, held.columns, back=True).astype(np.float32))
        return held.calibration

    def predict(self, X: Any) -> NDArray[Any]:
        """Labels (n,), or 0/1 indicators (n, labels).

        Where the metric has a constraint such as ``coverage >= 0.9``, rows that are left to a person get None.
        """
        proba = self.predict_proba(X, raw=True)
        codes = self.decision_rule_.decide(proba)
        return codes if self.task_ == "multilabel" else self.decision_rule_.named(codes, self.classes_)

    def scorer(self, *, keep: Sequence[str] = (), raw: bool = False) -> Scorer:
        """The classifier as a function of frames that can be pickled, for Ray Data, Spark and others."""
        from metricfit.scoring import Scorer

        return Scorer(self, keep=keep, raw=raw)

    def score(
        self, X: Any, y: Any, sample_weight: ArrayLike | None = None, columns: Mapping[str, ArrayLike] | None = None
    ) -> float:
        """The metric of the predictions; its negative if less is better, as scikit-learn's scorers have it.

        Where a constraint in groups is missed, minus infinity; ``columns`` as in :meth:`fit`.
        """
        check_is_fitted(self, "models_")
        truth = read_truth(y, self.task_, self.classes_)
        if self.metric_.needs_rows or self.decision_rule_.least:
            known = rows_columns(self.metric_.columns, X, columns, len(truth))
            rows = scores_of(self, X, y, sample_weight, columns=known).judged(tuple(self.classes_.tolist()))
            found = assess("", self.metric_, rows)
            value = found.estimate.value if not found.missed else -math.inf
        else:
            predicted = self.predict_proba(X, raw=True) if self.metric_.judges_scores else self.predict(X)
            if self.metric_.judges_scores and self.task_ == "binary":
                predicted = predicted[:, 1]
            value = float(self.metric_.score(truth, predicted, sample_weight, labels=self._labels_in(truth, predicted)))
        return value if self.metric_.greater_is_better else -value

    def explain(self) -> str:
        """What was trained, what was decided without asking, and what it bought, in words."""
        check_is_fitted(self, "models_")
        return explain(self)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments; ``deep`` adds the parts of the recipe, as ``recipe__learning_rate``."""
        params: dict[str, Any] = super().get_params(deep=deep)
        if deep and isinstance(self.recipe, str | Recipe):
            params |= {f"recipe__{part}": value for part, value in Recipe.of(self.recipe).parts().items()}
        return params

    def set_params(self, **params: Any) -> Self:
        """Change arguments, and with ``recipe__learning_rate`` and the like parts of the recipe."""
        own = {name: value for name, value in params.items() if not name.startswith("recipe__")}
        super().set_params(**own)
        if parts := {name.removeprefix("recipe__"): value for name, value in params.items() if name not in own}:
            self.recipe = Recipe.of(self.recipe).with_parts(parts)
        return self

    def _forget(self) -> None:
        """Drop what an earlier fit left: where this one fails, there is no model, not half of each."""
        for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]:
            delattr(self, name)

    def _begin(self, rows: Any, group: Any) -> tuple[list[tuple[str, Any]], bool]:
        """Settle what does not depend on the columns; the models by name, and whether the seed was given."""
        self.metric_, meant = resolve(self.metric, rows.labels, rows.task)
        seed, fixed = draw_seed(self.random_state)
        if not fixed:
            seed = int(agreed(torch.tensor(self._seed_of_checkpoint(seed)), group))
        self.classes_, self.task_, self.seed_ = rows.classes, rows.task, seed
        self.choices_ = [Choice("metric", meant)] if meant else []
        self.recipe_ = self._read_recipe()
        return names_of(self.models), fixed

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
        expect(self.baseline in (True, False, "auto"), "baseline", "True, False or 'auto'", self.baseline)
        callback_list(self.callbacks)
        if self.confidence is not None:
            from metricfit.decisions.confidence import check_confidence

            if getattr(self.metric_, "by", None) is not None:
                raise ValueError("confidence: thresholds by groups allow no promise; leave out one of them.")
            check_confidence(self.confidence, getattr(self.metric_, "constraints", ()), weighted=False)
        complete = recipe.complete()
        if complete.rule == "tuned" and self.metric_.judges_scores:
            why = f"{self.metric_} judges scores, so there is no decision to tune for it"
            raise ValueError(f"rule: {why}; use rule='argmax'.")
        return complete

    def _split(self, target: Target, groups: ArrayLike | None) -> tuple[list[Split], str]:
        rows = len(target.codes)
        found = None if groups is None else int(group_codes(groups, rows).max()) + 1
        if (given := given_splits(self.cv, target.codes, groups)) is not None:
            return given, f"{len(given)} splits, as given"
        folds, why = choose_cv(self.cv, rows, target.smallest_class, found)
        return split_rows(target.codes, folds, groups=groups, random=np.random.default_rng(self.seed_)), why

    def _fit_table(self, X: Any, target: Target) -> Table:
        if isinstance(self.preprocess, str) and self.preprocess != "auto":
            raise ValueError(f"preprocess: expected 'auto', a transformer or None, got {self.preprocess!r}.")
        given = TablePreprocessor(random_state=self.seed_) if isinstance(self.preprocess, str) else self.preprocess
        self.preprocessor_ = None if given is None else clone(given)
        dense = X if self.preprocessor_ is None else self.preprocessor_.fit_transform(X, target.truth)
        return self._forms(X, dense)

    def _table(self, X: Any) -> Table:
        row_count(X)
        if not hasattr(X, "columns") or not matches_names(self.preprocessor_):
            validate_data(self, X, reset=False, skip_check_array=True)
        made = self._forms(X, X if self.preprocessor_ is None else self.preprocessor_.transform(X))
        wanted, got = self.n_network_inputs_, made.dense.shape[1]
        instead = "give X the columns that it had in fit, or take a transformer whose output keeps its width"
        expect(got == wanted, "preprocess", f"{wanted} features, as in fit", got, instead)
        return made

    def _forms(self, X: Any, features: Any) -> Table:
        dense = as_dense(features, self.__class__.__name__)
        if hasattr(X, "tocsr"):
            X = X.tocsr()  # rows of a sparse matrix can be taken
        elif not hasattr(X, "shape"):
            X = np.asarray(X)
        if not isinstance(self.preprocessor_, TablePreprocessor):
            return Table(dense, dense, np.zeros(dense.shape[1], dtype=bool), X)
        return Table(dense, self.preprocessor_.tree_features(X), self.preprocessor_.tree_categories_, X)

    def _build(self, names: Sequence[tuple[str, Any]], folds: Folds, fixed: bool) -> list[Model]:
        """The models to fit: those of the portfolio, and cross-entropy to compare with."""
        other = {"name": "log_loss", **dict.fromkeys((*_BASELINE_DIFFERS, "rule"))}
        recipes = {"network": self.recipe_, "network_ce": self.recipe_.with_parts(other).complete()}
        if self._needs_baseline([name for name, _ in names], folds):
            names = [*names, ("network_ce", {})]
        identity = self._identity(folds, fixed)
        how: dict[str, Any] = {"device": as_device(self.device), "callbacks": callback_list(self.callbacks)}
        models: list[Model] = []
        for name, estimator in names:
            checkpoint = None
            if self.checkpoint_dir is not None:
                given = estimator if isinstance(estimator, dict) else getattr(estimator, "get_params", dict)()
                own = {"estimator": in_full(given)} if given else {}
                checkpoint = CheckpointFile(self.checkpoint_dir, name, identity | own)
            if name in recipes:
                plain = name == "network_ce"
                models.append(NetworkModel(name, recipes[name], checkpoint=checkpoint, plain=plain, **how))
            else:
                models.append(EstimatorModel(name, estimator, self.n_jobs, checkpoint))
        return models

    def _needs_baseline(self, names: Sequence[str], folds: Folds) -> bool:
        known = "network_ce" in names or ("network" in names and self._is_plain_cross_entropy())
        if known or not folds.held_out:
            return False
        if self.baseline != "auto" or len(folds.codes) <= BASELINE_ROWS:
            return bool(self.baseline)
        why = f"there are more than {BASELINE_ROWS:,} rows; baseline=True trains one for the validation report"
        self.choices_.append(Choice("baseline", f"no cross-entropy baseline was trained: {why}"))
        return False

    def _note_missing(self, models: Sequence[Model], fitted: Sequence[Model]) -> None:
        """Say which models were not fitted, or not to their end."""
        last = fitted[-1]
        if missing := [model.name for model in models[len(fitted) :]]:
            late = self.time_limit is not None and last.complete
            told = f"because {'the time was over' if late else 'training was interrupted'}: {', '.join(missing)}"
            self.choices_.append(Choice("models", f"not fitted, {told}", ("time_limit",) if late else ()))
        if last.name == "network_ce" and isinstance(last, NetworkModel) and not last.complete:
            after = f"interrupted after {len(last.result.history)} epochs, so the comparison with it is not fair"
            self.choices_.append(Choice("baseline", f"training of the cross-entropy baseline was {after}"))

    def _is_plain_cross_entropy(self) -> bool:
        return self.recipe_.objective == "log_loss" and self.recipe_.balance == "none" and self.class_weight is None

    def _keep(self, folds: Folds, begun: Sequence[Model], fitted: Sequence[Model], asked: Container[str]) -> None:
        """Choose weights and rule, and keep what was fitted of the models begun with what it reaches."""
        self._note_missing(begun, fitted)
        models, constrained = {model.name: model for model in fitted}, isinstance(self.metric_, Constrained)
        shipped = [name for name in models if name in asked]
        tuned = shipped != ["network"] or self.recipe_.rule == "tuned" or constrained
        self.n_network_inputs_ = folds.table.dense.shape[1]
        self.fit_seconds_ = sum(model.seconds for model in models.values())
        name = self._network_in_words(tuned) if shipped == ["network"] else PORTFOLIO
        found = judge(folds, fitted, shipped, tuned=tuned, name=name, confidence=self.confidence)
        if constrained and found.scores is None:
            told = "X: too few rows to hold any out, so arg max is used, and no rule was tuned for the constraints."
            warnings.warn(told, UserWarning, stacklevel=3)
        self.decision_rule_: DecisionRule = found.ensemble.rule
        self.group_thresholds_: GroupThresholds | None = found.ensemble.groups
        if self.group_thresholds_ is not None:
            self.choices_.append(
                Choice("rule", f"cut-offs {self.group_thresholds_.in_words()}, to which all are moved")
            )
        self.weights_ = {name: weight for name, weight in found.ensemble.weights.items() if weight}
        self.models_ = {name: models[name] for name in self.weights_}
        self.validation_report_, self.leaderboard_, self.held_out_ = found.report, found.leaderboard, found.scores
        trained = next((m.result for m in fitted if isinstance(m, NetworkModel) and m.name in shipped), None)
        self.history_ = pd.DataFrame(trained.history if trained else [], columns=EpochRecord._fields)
        self.best_epochs_ = trained.best_epoch if trained else []

    def _network_in_words(self, tuned: bool) -> str:
        if self._is_plain_cross_entropy():
            return TUNED if tuned else PLAIN
        return "trained on the metric" if self.recipe_.objective == "metric" else f"trained by {self.recipe_.name}"

    @property
    def network_(self) -> torch.nn.Module:
        """The trained networks of the model ``"network"``."""
        model = vars(self).get("models_", {}).get("network")
        if not isinstance(model, NetworkModel):
            raise AttributeError("network_: the classifier has no networks trained on the metric; see models_.")
        return model.result.network

    def _identity(self, folds: Folds, fixed: bool) -> dict[str, str]:
        """What a checkpoint is of: settings and data."""
        if self.checkpoint_dir is None:
            return {}
        metric, labels = [str(self.metric_), in_full(self.metric)], list(map(str, folds.labels))
        seed, recipe = self.seed_ if fixed else None, self.recipe_.parts()
        settings = {"metric": metric, "recipe": recipe, "seed": seed, "labels": labels}
        rows = [part for split in folds.splits for part in (split.train, split.validation)]
        data = fingerprint(folds.table.dense, folds.codes, folds.weight, *rows, *folds.columns.values())
        return {"settings": json.dumps(settings, sort_keys=True, default=in_full), "data": data}

    def _seed_of_checkpoint(self, seed: int) -> int:
        """An unseeded run that was stopped goes on with the seed it was started with."""
        for name, _ in names_of(self.models) if self.checkpoint_dir is not None else ():
            if (content := read_checkpoint(Path(self.checkpoint_dir or "") / f"{name}.pt")) is not None:
                return int(content["state"]["seed"])
        return seed

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = tags.input_tags.sparse = True
        for kind in ("allow_nan", "string", "categorical"):
            setattr(tags.input_tags, kind, self.preprocess is not None)
        return tags
