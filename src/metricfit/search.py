"""Search for the parameters of the recipe and of each model by Optuna: one store, as many processes as one likes.

Each model has a study of its own in the store, so that TPE learns from trials with the same parameters. The first trial
is the model as usual. Where a process ends amid a trial, it gives no more signs of life, and another tries again.
"""

from __future__ import annotations

import math
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from metricfit.assess import assess, scores_of
from metricfit.assess.verdicts import verdict
from metricfit.choices import parts_of, spec_of, suggested
from metricfit.classifier import MetricClassifier
from metricfit.data.preprocessing import UnusedColumnsWarning
from metricfit.data.reader import BadArgumentError
from metricfit.labels import read_target, row_count
from metricfit.metrics import MetricLike, resolve
from metricfit.models import names_of
from metricfit.models.estimators import SPACES
from metricfit.training.checkpoint import fingerprint
from metricfit.training.loop import EpochEnd
from metricfit.training.recipes import Recipe

SIGN, LOST = 10.0, 60.0  # seconds between a trial's signs of life, and without one until it counts as lost
LOOKS = 20  # at the soft metric of networks in training


def suggest_recipe(trial: Any, recipe: str | Recipe = "default") -> Recipe:
    """A recipe whose open parts are what an Optuna trial suggests; works in studies of your own."""
    known = Recipe.of(recipe)
    return known.with_parts(parts_of(spec_of("", suggested(trial, known.space())))[1])


def suggest_model(trial: Any, name: str) -> str:
    """A built-in model such as ``"boosting"``, for ``models=``, with parameters that an Optuna trial suggests."""
    return spec_of(name, suggested(trial, SPACES[name], f"{name}."))


class Search:
    """The trials of a study. Whoever opens the same study on the same rows works on the same trials.

    Args:
        X, y, metric, sample_weight, groups, columns: As for :class:`metricfit.MetricClassifier`.
        study, name: A journal file, or the URL of a database (``"postgresql://host/name"``); a name in it.
        models: Those that are built in and have no parameters are searched, others are taken as they are.
        recipe: What networks start from; parts that it gives are not searched.
        cv, random_state: Folds of a trial, and the seed; the same for all.
    """

    def __init__(
        self, X: Any, y: Any, metric: MetricLike = "f1", *, study: str | Path | None = None, name: str = "metricfit",
        models: Any = "auto", recipe: str | Recipe = "default", cv: Any = "auto",
        sample_weight: ArrayLike | None = None, groups: ArrayLike | None = None,
        columns: Mapping[str, ArrayLike] | None = None, random_state: int = 0,
    ) -> None:  # fmt: skip
        target = read_target(y, row_count(X))
        self.metric = resolve(metric, target.labels, target.task)[0]
        self.rows = X, y, sample_weight, groups, columns
        self.models, self.recipe = names_of(models), Recipe.of(recipe)
        self.given, self.cv, self.seed = models, cv, random_state
        open_ = [model for model, given in self.models if given == {}]
        if "network" in open_:  # both kinds of networks are trained by one recipe
            open_ = [model for model in open_ if model != "network_ce"]
        if not open_:
            raise BadArgumentError("models", "expected at least one built-in model without parameters to search.")
        hashed = pd.util.hash_pandas_object(pd.DataFrame(X), index=False).to_numpy()
        rest = [
            None if part is None else np.asarray(part).astype(str)
            for part in (y, sample_weight, groups, *(columns or {}).values())
        ]
        settings = np.array([*open_, self.recipe.spec(), str(cv), str(random_state)])
        made_of = {"metric": str(self.metric), "rows and settings": fingerprint(hashed, *rest, settings)}
        self.studies = _open(study, name, open_, "maximize" if self.metric.greater_is_better else "minimize", made_of)
        self._signs: dict[tuple[str, int], tuple[int, float]] = {}

    def run(
        self, trials: int = 100, *, time_limit: float | None = None,
        progress: Callable[[list[dict[str, Any]]], None] | None = None,
    ) -> None:  # fmt: skip
        """Work until the study has so many trials, by all processes together, or begin none after so many seconds.

        Each model gets an equal share. ``progress`` is called after each trial, with the :meth:`history`.
        """
        until = math.inf if time_limit is None else time.monotonic() + time_limit
        shares = {model: len(range(k, trials, len(self.studies))) for k, model in enumerate(self.studies)}
        while time.monotonic() < until:
            left = {model: shares[model] - len(_trials(study)) for model, study in self.studies.items()}
            model = max(left, key=left.__getitem__)
            if left[model] > 0:
                self._try(model, shares[model])
                if progress is not None:
                    progress(self.history())
            elif any(_trials(study, "RUNNING") for study in self.studies.values()):
                time.sleep(min(1.0, SIGN))
            else:
                return
            self._retry_lost()

    def history(self) -> list[dict[str, Any]]:
        """The finished trials in the order of their ends: model, number, state, value, seconds, params, spec, error."""
        found = []
        for model, study in self.studies.items():
            for t in _trials(study, "COMPLETE", "PRUNED"):
                row = {"model": model, "number": t.number, "state": t.state.name.lower(), "value": t.value}
                row |= {"seconds": t.duration.total_seconds(), "params": t.params}
                found.append((t.datetime_complete, row | {key: t.user_attrs.get(key, "") for key in ("spec", "error")}))
        return [row for _, row in sorted(found, key=lambda pair: pair[0])]

    def importances(self) -> dict[str, dict[str, float]]:
        """Of each model how much each parameter mattered, in Optuna's judgement, as shares."""
        from optuna.importance import get_param_importances

        found: dict[str, dict[str, float]] = {}
        for model, study in self.studies.items():
            with suppress(ValueError, RuntimeError), warnings.catch_warnings(action="ignore"):  # too few trials
                found[model] = {name: float(share) for name, share in get_param_importances(study).items()}
        return found

    def best(self) -> tuple[dict[str, dict[str, Any]], list[Any], Recipe]:
        """The best trial of each model, all models with these parameters, and the recipe."""
        sign, found = 1 if self.metric.greater_is_better else -1, dict[str, dict[str, Any]]()
        for row in sorted(self.history(), key=lambda row: sign * (row["value"] or 0.0)):
            if row["state"] == "complete":
                found[row["model"]] = row
        specs = {model: row["spec"] for model, row in found.items() if model in SPACES}
        models = [specs.get(n, spec_of(n, given) if isinstance(given, dict) else given) for n, given in self.models]
        trained = [Recipe.of(row["spec"]) for model, row in found.items() if model not in SPACES]
        return found, models, trained[0] if trained else self.recipe

    def fit(self, *, usual: bool = False) -> MetricClassifier:
        """The portfolio with the best parameters, or the ``usual`` ones, fitted on all rows of the search."""
        models, recipe = (self.given, self.recipe) if usual else self.best()[1:]
        how: dict[str, Any] = {"cv": self.cv, "verbose": False, "random_state": self.seed}
        return MetricClassifier(self.metric, models=models, recipe=recipe, **how).fit(*self.rows)

    def gain(
        self, classifier: MetricClassifier, X: Any, y: Any, weight: ArrayLike | None = None,
        columns: Mapping[str, NDArray[Any]] | None = None,
    ) -> dict[str, float]:  # fmt: skip
        """What a classifier reaches on rows that no trial saw, the usual parameters, and the gain with its interval."""
        names = tuple(classifier.classes_.tolist())
        with warnings.catch_warnings(action="ignore", category=UnusedColumnsWarning):  # classifier's fit said so
            models = classifier, self.fit(usual=True)
        rows = [scores_of(model, X, y, weight, columns=columns).judged(names) for model in models]
        found = verdict(self.metric, *((assess("", self.metric, decided), decided) for decided in rows))
        values = {"value": found.model.estimate.value, "usual": found.rival.estimate.value}
        return values | {"gain": found.gain.value, "low": found.gain.low, "high": found.gain.high}

    def _try(self, model: str, share: int) -> None:
        """One more trial, unless another process had the last place."""
        import optuna

        study, states, value, done = self.studies[model], optuna.trial.TrialState, None, threading.Event()
        trial = study.ask()
        if sum(other.number < trial.number for other in _trials(study)) >= share:
            study.tell(trial, state=states.FAIL)
            return
        # Seeded by its number: processes draw different values, and one process the same ones again.
        seeds = np.random.SeedSequence([self.seed, list(self.studies).index(model), trial.number])
        how: dict[str, Any] = {"n_startup_trials": 5, "multivariate": False, "constant_liar": True}
        study.sampler = optuna.samplers.TPESampler(seed=int(seeds.generate_state(1)[0]), **how)
        threading.Thread(target=_give_signs_of_life, args=(trial, done), daemon=True).start()
        try:
            value = self._value(trial, model)
        except Exception as error:
            if not isinstance(error, optuna.TrialPruned):
                trial.set_user_attr("error", f"{type(error).__name__}: {error}")
        finally:
            done.set()
        with suppress(ValueError, optuna.exceptions.UpdateFinishedTrialError):  # silent for too long: it is another's
            study.tell(trial, value, states.PRUNED if value is None else states.COMPLETE)

    def _value(self, trial: Any, model: str) -> float:
        """The metric of the model with parameters that the trial suggests, on rows that it was not fitted on."""
        from optuna import TrialPruned

        chosen, recipe, looks = model, self.recipe, {0}
        if trial.number and not trial.user_attrs.get("usual"):
            chosen = suggest_model(trial, model) if model in SPACES else model
            recipe = recipe if model in SPACES else suggest_recipe(trial, recipe)
        trial.set_user_attr("spec", chosen if model in SPACES else recipe.spec())

        def look(event: EpochEnd) -> None:
            step, value = LOOKS * event.record.epoch // event.epochs, event.record.soft_metric
            if step not in looks and math.isfinite(value):
                looks.add(step)
                trial.report(value, step)
                if trial.should_prune():
                    raise TrialPruned

        how: dict[str, Any] = {"cv": self.cv, "baseline": False, "verbose": False, "random_state": self.seed}
        classifier = MetricClassifier(self.metric, models=[chosen], recipe=recipe, callbacks=look, **how)
        with warnings.catch_warnings(action="ignore"):
            value = float(classifier.fit(*self.rows).leaderboard_["value"].iloc[0])
        if math.isnan(value):
            raise ValueError("the metric has no value on the held-out rows; bring more rows")
        return value

    def _retry_lost(self) -> None:
        """Queue the parameters of trials again whose process has ended, unless another process does so."""
        import optuna

        now = time.monotonic()
        for study, trial in [(one, trial) for one in self.studies.values() for trial in _trials(one, "RUNNING")]:
            key, signs = (study.study_name, trial.number), trial.user_attrs.get("signs", 0)
            if self._signs.setdefault(key, (signs, now))[0] != signs:
                self._signs[key] = signs, now
            elif now - self._signs[key][1] > LOST:
                with suppress(ValueError, optuna.exceptions.UpdateFinishedTrialError):
                    study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
                    usual = not trial.number or trial.user_attrs.get("usual", False)
                    study.enqueue_trial(trial.params, {"usual": usual})


def _trials(study: Any, *states: str) -> list[Any]:
    """The trials in some states, or all that have a place: finished or running."""
    wanted = states or ("COMPLETE", "PRUNED", "RUNNING")
    return [trial for trial in study.get_trials(deepcopy=False) if trial.state.name in wanted]


def _give_signs_of_life(trial: Any, done: threading.Event) -> None:
    signs = 0
    while not done.wait(SIGN):
        signs += 1
        with suppress(Exception):  # a store that is away for a moment
            trial.set_user_attr("signs", signs)


def _open(
    study: str | Path | None, name: str, models: list[str], direction: str, made_of: dict[str, str]
) -> dict[str, Any]:
    """A study of each model, in memory, a journal file or a database; made if it is not there, else of the same."""
    try:
        import optuna
        from optuna.storages import journal

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        storage: Any = optuna.storages.InMemoryStorage() if study is None else str(study)
        if study is not None and "://" not in storage:
            place = str(Path(storage).absolute())  # the lock beside it is a link to this path
            storage = optuna.storages.JournalStorage(journal.JournalFileBackend(place))
        pruner = optuna.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=LOOKS // 4)
        how: dict[str, Any] = {"storage": storage, "direction": direction, "pruner": pruner, "load_if_exists": True}
        found = {model: optuna.create_study(study_name=f"{name}/{model}", **how) for model in models}
        for one in found.values():
            differs = [key for key, value in made_of.items() if one.user_attrs.get(key, value) != value]
            for key, value in () if differs else made_of.items():
                one.set_user_attr(key, value)
    except ModuleNotFoundError as error:
        extra = "metricfit[search]" if error.name == "optuna" else str(error.name)
        raise ImportError(f"study: needs the package {error.name}: pip install '{extra}'.") from None
    except Exception as error:  # each database has errors of its own
        got = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
        expected = "expected a journal file of Optuna or the URL of a database that answers"
        raise BadArgumentError("study", f"{study}: {expected}, got {got}.") from None
    if differs:
        other = f"{study} holds a study of other {differs[0]} ({one.user_attrs['metric']})"
        raise BadArgumentError("study", f"{other}; choose another study or name.")
    return found
