"""Any scikit-learn classifier with the best decision rule, chosen out of fold."""

from __future__ import annotations

import warnings
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold, StratifiedKFold, check_cv
from sklearn.utils import _safe_indexing, get_tags, indexable
from sklearn.utils.metaestimators import available_if
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import _check_sample_weight, _num_samples, check_is_fitted, has_fit_parameter

from metricfit.decisions.calibration import Calibration, calibrate
from metricfit.decisions.coordinates import best_group_thresholds
from metricfit.decisions.problem import Array, Constraints, goal_of
from metricfit.decisions.rules import DecisionRule, GroupThresholds
from metricfit.decisions.threshold import best_rule
from metricfit.inputs import expect
from metricfit.labels import read_target, rows_columns
from metricfit.metrics import MetricLike, resolve


def _gives_probabilities(self: TunedRuleClassifier) -> bool:
    return hasattr(getattr(self, "estimator_", self._base()), "predict_proba")


class TunedRuleClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier whose decision rule is the best one for a metric.

    The estimator's probabilities for samples that it was not fitted on (by cross-validation) choose the rule: a
    threshold for two classes, class offsets for more, one threshold per label for multi-label targets. The estimator is
    then fitted on everything. ``predict_proba`` has the rule folded in, so that its arg max is ``predict``;
    with ``raw=True`` it gives the estimator's own; ``predict_calibrated_proba`` gives calibrated ones.

    Args:
        estimator: Any classifier with ``predict_proba`` or ``decision_function``; logistic regression by default.
        metric: A name, an expression, a spec with ``subject to``, a metric or a function of the confusion matrix.
        subject_to: Constraints, such as ``"recall[1] >= 0.9"``.
        cv: Folds, a splitter, or ``"prefit"``: the estimator is fitted already, on other data than ``fit`` is given.
        confidence: If given, the constraints hold on new data with this probability. With cross-validation this
            is a statement about the folds' models; for one about the very model, use ``cv="prefit"``.
        n_jobs: Folds fitted at the same time.
        random_state: Seed of the folds' shuffling.
        by: A column with groups that get a cut-off of their own, see :func:`best_group_thresholds`: of two classes, and
            unlawful in places where the groups are of people. ``predict`` then needs the column, in ``X`` or apart.
        belief: The share of every label that calibrated probabilities replace, see :func:`best_threshold`: all of it by
            default, as a rule tuned on few labels over-fits. With ``gain``, which differs by row, labels alone count.

    After ``fit``, ``estimator_`` is the fitted estimator, ``rule_`` the decision rule, ``value_`` its metric on the
    out-of-fold probabilities it was chosen on, and ``search_`` the search's whole result, a :class:`BestRule`.

    >>> from sklearn.datasets import make_classification
    >>> X, y = make_classification(500, weights=[0.9], random_state=0)
    >>> model = TunedRuleClassifier(LogisticRegression(), metric="f1").fit(X, y)
    >>> model.rule_.kind, bool((model.predict(X) == model.predict_proba(X).argmax(axis=1)).all())
    ('threshold', True)
    """

    def __init__(
        self, estimator: Any = None, metric: MetricLike = "f1", *, subject_to: Constraints = (), cv: Any = None,
        confidence: float | None = None, n_jobs: int | None = None, random_state: int | None = 0, belief: float = 1.0,
        by: str | None = None,
    ) -> None:  # fmt: skip
        self.estimator = estimator
        self.metric = metric
        self.subject_to = subject_to
        self.cv = cv
        self.confidence = confidence
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.belief = belief
        self.by = by

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, columns: Any = None) -> TunedRuleClassifier:
        """Choose the rule on out-of-fold probabilities, then fit the estimator on everything.

        ``X`` may have any form that the estimator takes; ``y`` are labels (n,) or a 0/1 array (n, labels). Weights are
        for the estimator and the rule. ``columns`` are those that metric and constraints name and ``X`` has not.
        """
        # Where this fit fails, the rule of an earlier one must not decide for the new estimator.
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None.")
        if not _num_samples(X):
            raise ValueError("X: expected at least two samples, got none.")
        target, base, prefit = read_target(y, _num_samples(X)), self._base(), self.cv == "prefit"
        self._labelwise = target.task == "multilabel"
        fitted = getattr(base, "classes_", None) if prefit and not self._labelwise else None
        self.classes_ = target.classes if fitted is None else np.asarray(fitted)
        (X,), y = indexable(X), target.truth
        weight = None if sample_weight is None else _check_sample_weight(sample_weight, X)
        if weight is not None and not prefit and not has_fit_parameter(base, "sample_weight"):
            raise ValueError(f"sample_weight: {type(base).__name__}.fit takes none; leave them out.")
        if prefit:
            check_is_fitted(base)
            self.estimator_ = base
            rows, proba = np.arange(len(y)), self._probabilities(base, X)
        else:
            rows, proba = self._out_of_fold(base, X, y, weight)
            self.estimator_ = _fitted(base, X, y, weight)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.estimator_, name):
                setattr(self, name, getattr(self.estimator_, name))
        self._held_out = y[rows], proba, None if weight is None else weight[rows]
        goal = goal_of(self.metric, self.subject_to, rows=True, doubt=True, groups=True)
        self._by = [name for name in [self.by or goal.by] if name is not None]
        names = [*goal.metric.columns, *(c.within for c in goal.constraints if c.within), *self._by]
        found = rows_columns(names, X, columns, len(y))
        own: dict[str, Any] = {"columns": {name: values[rows] for name, values in found.items()}} if found else {}
        own |= {"subject_to": self.subject_to, "sample_weight": self._held_out[2]}
        own["labels"] = None if self._labelwise else self.classes_.tolist()
        if self._by:
            if len(self.classes_) != 2 or self._labelwise or self.confidence is not None:
                raise ValueError("by: cut-offs of groups are for two classes, without a confidence; leave it out.")
            search: Any = best_group_thresholds(y[rows], proba[:, 1], self.metric, by=self._by[0], **own)
        else:
            own |= {"confidence": self.confidence, "belief": 0.0 if goal.metric.needs_rows else self.belief}
            search = best_rule(y[rows], proba, self.metric, **own)
        self.search_, self.value_ = search, search.value
        self.rule_: DecisionRule | GroupThresholds = getattr(search, "rule", search)
        self.decision_rule_, self.task_ = self.rule_, target.task  # what assess.monitor and scores_of look at
        self.metric_ = resolve(goal.whole, tuple(self.classes_.tolist()), target.task)[0]
        return self

    def predict(self, X: Any, *, columns: Any = None) -> NDArray[Any]:
        """The rule's decisions: labels (n,), None for rows that are left to a person; or 0/1 (n, labels).

        ``columns`` has the groups of ``by`` where ``X`` has not.
        """
        check_is_fitted(self, "rule_")
        return self.rule_.apply(*self._seen_by_rule(self._probabilities(self.estimator_, X), X, columns))

    @available_if(_gives_probabilities)  # type: ignore[untyped-decorator, unused-ignore]
    def predict_proba(self, X: Any, *, raw: bool = False, columns: Any = None) -> Array:
        """Probabilities with the rule folded in: ``predict`` is their arg max (above one half, for labels).

        ``raw`` ones are the estimator's own, (n, classes) or (n, labels); ``columns`` as in :meth:`predict`.
        """
        check_is_fitted(self, "rule_")
        proba = self._probabilities(self.estimator_, X)
        return proba if raw else self.rule_.fold(*self._seen_by_rule(proba, X, columns))

    def _seen_by_rule(self, proba: Array, X: Any, columns: Any) -> tuple[Any, ...]:
        return (proba[:, 1], rows_columns(self._by, X, columns, len(proba))) if self._by else (proba,)

    @available_if(_gives_probabilities)  # type: ignore[untyped-decorator, unused-ignore]
    def predict_log_proba(self, X: Any) -> Array:
        """The logarithm of ``predict_proba``."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.predict_proba(X)))

    @available_if(_gives_probabilities)  # type: ignore[untyped-decorator, unused-ignore]
    def predict_calibrated_proba(self, X: Any) -> Array:
        """Probabilities that can be trusted: the estimator's, calibrated on its out-of-fold ones (``calibration_``)."""
        return self.calibration_.apply(self.predict_proba(X, raw=True))

    @cached_property
    def calibration_(self) -> Calibration:
        """The calibration of the estimator's probabilities, made when it is first asked for."""
        check_is_fitted(self, "rule_")
        y, proba, weight = self._held_out
        return calibrate(y, proba, sample_weight=weight, labels=None if self._labelwise else self.classes_.tolist())

    def __sklearn_tags__(self) -> Any:
        """The wrapped estimator's tags, as a classifier."""
        tags = super().__sklearn_tags__()
        inner = get_tags(self._base())
        tags.input_tags = inner.input_tags
        tags.classifier_tags.multi_label = inner.classifier_tags is not None and inner.classifier_tags.multi_label
        return tags

    def _base(self) -> Any:
        return LogisticRegression() if self.estimator is None else self.estimator

    def _out_of_fold(self, base: Any, X: Any, y: NDArray[Any], weight: Any) -> tuple[NDArray[np.intp], Array]:
        def held_out(train: NDArray[np.intp], test: NDArray[np.intp]) -> Array:
            part = None if weight is None else weight[train]
            model = _fitted(base, _safe_indexing(X, train), y[train], part)
            return self._probabilities(model, _safe_indexing(X, test))

        number = 5 if self.cv is None else self.cv
        if isinstance(number, (int, np.integer)) and not isinstance(number, bool):
            expect(number >= 2, "cv", "at least 2 folds, a splitter or 'prefit'", number)
            smallest = len(y) if self._labelwise else int(np.unique(y, return_counts=True)[1].min())
            kind = KFold if self._labelwise else StratifiedKFold
            splitter = kind(int(max(2, min(number, smallest))), shuffle=True, random_state=self.random_state)
        else:
            splitter = check_cv(number, y, classifier=True)
        with warnings.catch_warnings():
            # A class with a single sample is in one fold only; its probability is then taken as 0.
            warnings.filterwarnings("ignore", message="The least populated class", category=UserWarning)
            folds = list(splitter.split(np.zeros(len(y)), y))
        parts = Parallel(n_jobs=self.n_jobs)(delayed(held_out)(train, test) for train, test in folds)
        return np.concatenate([test for _, test in folds]), np.concatenate(parts)

    def _probabilities(self, model: Any, X: Any) -> Array:
        """The model's probabilities with a column for each of ``classes_``, or one per label."""
        if hasattr(model, "predict_proba"):
            raw = model.predict_proba(X)
        elif hasattr(model, "decision_function"):
            margin = np.asarray(model.decision_function(X), dtype=np.float64)
            if margin.ndim == 2 and not self._labelwise:
                raw = softmax(margin, axis=1)
            elif self._labelwise or len(self.classes_) == 2:
                # A margin of 0 becomes one half, and the scale is kept: a sigmoid is 1 from a margin of 37 on, and the
                # cut-offs among such scores would be lost.
                raw = margin + 0.5
            else:  # a fold without all but two of several classes
                raw = expit(margin)
            raw = raw if raw.ndim == 2 else np.stack([1 - raw, raw], axis=1)
        else:
            raise TypeError(f"estimator: {type(model).__name__} has neither predict_proba nor decision_function.")
        if self._labelwise and isinstance(raw, list):  # (n, 2) for each label; one that never occurs has none for 1
            parts = zip(raw, model.classes_, strict=True)
            return np.stack([part[:, np.asarray(c) == 1].sum(axis=1) for part, c in parts], axis=1)
        if self._labelwise:
            return np.asarray(raw, dtype=np.float64)
        full = np.zeros((len(raw), len(self.classes_)))
        full[:, np.searchsorted(self.classes_, model.classes_)] = raw  # a fold may lack a class
        return full


def _fitted(base: Any, X: Any, y: NDArray[Any], weight: Array | None) -> Any:
    model = clone(base)
    return model.fit(X, y) if weight is None else model.fit(X, y, sample_weight=weight)
