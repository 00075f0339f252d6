"""Metrics by name: ``@metric`` makes and registers one from a function, ``get`` finds it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, fields, make_dataclass
from importlib import import_module
from typing import Any, TypeVar, cast

from metricfit.inputs import Task
from metricfit.metrics.base import ClassMetric, Metric, MetricLike, spell
from metricfit.metrics.formula import FormulaMetric, trace

M = TypeVar("M")
Aliases = Sequence[str] | Mapping[str, dict[str, Any]]

NAMES: dict[str, tuple[Any, dict[str, Any]]] = {}
"""Every name and alias: the class behind it, and the parameters that an alias sets."""


def _load_all() -> None:
    """Register the metrics of scores too; most losses do without them."""
    import_module("metricfit.metrics.ranking")


def metric(
    *, reference: str, range: tuple[float, float] | Callable[[Any], tuple[float, float]] = (0.0, 1.0),
    greater_is_better: bool = True, name: str | None = None, title: str | Callable[[Any], str] | None = None,
    aliases: Aliases = (), check: Callable[[Any], None] | None = None,
) -> Callable[[Callable[..., Any]], type[FormulaMetric]]:  # fmt: skip
    """Make a metric of a function of the counts, and register it.

    The function is given :class:`metricfit.metrics.Symbols`: ``c.tp``, ``c.fp``, ``c.fn``, ``c.tn`` and ``c.n`` of a
    class against the rest. With ``c.sum(…)`` or ``c.mean(…)`` over classes it is a formula of the whole matrix; the
    value of one class is then taken of the class and the rest. Other arguments become parameters of the metric.
    In its place comes a class, named like the function: :class:`metricfit.metrics.FormulaMetric`.

    Args:
        reference: Where the metric comes from.
        range: Smallest and largest value, or a function of the metric that gives them.
        greater_is_better: The direction.
        name: The name in specs; the function's unless given. The function's name is then an alias.
        title: The name in reports, or a function of the metric that gives it.
        aliases: Other names; a mapping gives the parameters that they set.
        check: Called with the new metric; raises an error if its parameters do not fit.

    >>> @metric(reference="Tversky 1977")
    ... def tversky(c, misses=0.5, alarms=0.5):
    ...     '''Hits over hits, weighted misses and weighted false alarms.'''
    ...     return c.tp / (c.tp + misses * c.fn + alarms * c.fp)
    >>> print(get("tversky:misses=0.7[1]"), tversky.formula, sep="; ")
    tversky:misses=0.7[1]; TP / (TP + misses·FN + alarms·FP)
    >>> unregister("tversky")
    """

    def made(function: Callable[..., Any]) -> type[FormulaMetric]:
        parameters = {p.name: p.default for p in list(inspect.signature(function).parameters.values())[1:]}
        if inspect.Parameter.empty in parameters.values():
            raise TypeError(f"{function.__name__}: give each parameter a default.")
        program = trace(function, tuple(parameters))
        own, short = function.__name__, len(function.__name__) <= 3
        namespace = {
            "__doc__": function.__doc__ or "", "__module__": function.__module__,
            "__qualname__": function.__qualname__,  # where pickle finds it
            "range": property(range) if callable(range) else range, "greater_is_better": greater_is_better,
            "title": property(title) if callable(title) else title or (own.upper() if short else own.replace("_", " ")),
            "reference": reference, "name": name or own, "program": program, "whole": program.whole,
            "check_parameters": check,
        }  # fmt: skip
        cls = make_dataclass(
            own.upper() if short else "".join(word.capitalize() for word in own.split("_")),
            [(key, Any, field(default=default, kw_only=True)) for key, default in parameters.items()],
            bases=(FormulaMetric,), namespace=namespace, frozen=True, repr=False,
        )  # fmt: skip
        return register({} if name in (None, own) else {own: {}}, aliases)(cls)

    return made


def register(*aliases: Aliases) -> Callable[[M], M]:
    """Make a metric class known by its ``name`` and by aliases: names, or mappings of names to parameters."""

    def done(cls: M) -> M:
        if not cls.__module__.startswith("metricfit.metrics."):
            _load_all()
        given: dict[str, dict[str, Any]] = {cls.name: {}}  # type: ignore[attr-defined]
        for some in aliases:
            given |= some if isinstance(some, Mapping) else {alias: {} for alias in some}
        for new in given:
            if new in NAMES:
                raise ValueError(f"{new!r}: there is a metric of this name already; see metrics.unregister.")
        NAMES.update({new: (cls, parameters) for new, parameters in given.items()})
        return cls

    return done


def unregister(name: str) -> None:
    """Forget a metric with all its names; of an alias only this name."""
    cls = metric_class(name)
    if name not in NAMES:
        raise ValueError(f"metric: {name!r} is an average of {cls.name!r}, which can be unregistered.")
    for known in [known for known, (of, _) in NAMES.items() if of is cls and name in (known, cls.name)]:
        del NAMES[known]


def available() -> list[str]:
    """The names of all metrics, sorted; aliases are not listed."""
    _load_all()
    return sorted({cls.name for cls, _ in NAMES.values()})


def get(spec: MetricLike) -> Metric:
    """A metric from its name, spec, expression or function; a metric is returned as it is.

    >>> get("f1_macro")
    F1(average='macro', label=None, zero_division=0.0)
    >>> print(get("fbeta:beta=2,average=macro"), get("recall[fraud]"), sep="; ")
    fbeta:beta=2,average=macro; recall[fraud]
    """
    if isinstance(spec, Metric):
        return spec
    if isinstance(spec, str):
        if spec in NAMES:
            return build(spec, {})
        from metricfit.metrics.expression import parse

        return parse(spec)
    if isinstance(spec, type):
        name = spec.__name__
        raise TypeError(f"metric: expected a metric or a function, got the class {name}; write {name}().")
    if callable(spec):
        from metricfit.metrics.algebra import CallableMetric

        return CallableMetric(spec)
    wanted = "a name, an expression, a Metric or a function of the confusion matrix"
    raise TypeError(f"metric: expected {wanted}, got {type(spec).__name__}.")


def resolve(spec: MetricLike, labels: tuple[Any, ...], task: Task) -> tuple[Metric, str]:
    """The metric with its class or average written out, and a sentence if there was something to choose.

    >>> metric, why = resolve("f1", ("no", "yes"), "binary")
    >>> print(metric, why, sep="; ")
    f1[yes]; f1 was taken of class 'yes', the second in sorted order; write f1[no] for the other
    """
    found = get(spec)
    chosen = found.resolve(labels, task)
    chosen.check(labels, task)
    if str(chosen) == str(found):
        return found, ""
    if task == "binary":
        other = f"; write {found}[{labels[0]}] for the other" if isinstance(found, ClassMetric) else ""
        return chosen, f"{found} was taken of class {labels[1]!r}, the second in sorted order{other}"
    return chosen, f"{found} was taken as the macro average over the {len(labels)} classes: {chosen}"


def metric_class(name: str) -> Any:
    """The class behind a name or alias: that of ``"matthews"`` is MCC."""
    return _resolve(name)[0]


def _resolve(name: str) -> tuple[Any, dict[str, Any]]:
    if name not in NAMES:
        _load_all()
    if name in NAMES:
        return NAMES[name]
    if name.endswith("_samples"):
        raise ValueError(f"metric: {name!r} averages over samples; it is no function of a confusion matrix.")
    # scikit-learn's names of averages, for every metric that is an average unless told otherwise.
    classes = {cls for cls, _ in NAMES.values() if issubclass(cls, FormulaMetric) and not cls.whole}
    averages = {f"{cls.name}_{a}": (cls, {"average": a}) for cls in classes for a in ("macro", "micro", "weighted")}
    if name in averages:
        return averages[name]
    from metricfit.choices import close_to

    every = f"the names are {', '.join(available())}."
    raise ValueError(f"metric: unknown name {name!r}; {close_to(name.lower(), [*NAMES, *averages], every)}")


def build(name: str, parameters: dict[str, Any]) -> Metric:
    """A metric from its name or alias and its parameters."""
    cls, defaults = _resolve(name)
    allowed = [f.name for f in fields(cls)]
    for key in parameters:
        if key not in allowed:
            raise ValueError(f"metric: {name!r} has no parameter {key!r}; it takes {', '.join(allowed)}.")
        if key in defaults:
            raise ValueError(f"metric: {name!r} already sets {key}={defaults[key]}; write {cls.name!r} instead.")
    return cast("Metric", cls(**defaults, **parameters))


def describe(name: str) -> dict[str, Any]:
    """What there is to know of a metric, by name or alias: formula, range, parameters, reference.

    >>> describe("f2")["parameters"]["beta"], describe("f2")["formula"]
    ('2', '(1 + β²)·TP / ((1 + β²)·TP + β²·FN + FP)')
    """
    cls, metric = metric_class(name), get(name)
    return {
        "name": name,
        "canonical": cls.name,
        "summary": " ".join((cls.__doc__ or "").split("\n\n")[0].split()).rstrip("."),
        "formula": cls.formula,
        "range": list(metric.range),
        "greater_is_better": metric.greater_is_better is not False,
        "parameters": {f.name: spell(getattr(metric, f.name)) for f in fields(cls)},
        "aliases": sorted(alias for alias, (of, _) in NAMES.items() if of is cls and alias != cls.name),
        "reference": cls.reference,
    }
