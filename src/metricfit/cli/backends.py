"""Any joblib backend for the fits of ``metricfit compare``: processes and threads here, Dask or Ray elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any

import joblib

from metricfit.cli.errors import CommandError, UsageError

__all__ = ["joblib_backend", "run_all"]


@contextmanager
def joblib_backend(name: str | None) -> Iterator[None]:
    """Let joblib run on a backend; without a name, on the one that is active.

    Dask's cluster is the one that ``DASK_SCHEDULER_ADDRESS`` names, or one on this machine; Ray's likewise.
    """
    with ExitStack() as stack:
        if name == "dask":
            stack.enter_context(_needed("distributed").Client())
        elif name == "ray":
            _needed("ray.util.joblib").register_ray()
        if name is not None:
            try:
                stack.enter_context(joblib.parallel_config(backend=name))
            except ValueError as error:
                raise UsageError(f"--backend: {error}") from None
        yield


def run_all(function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], jobs: int) -> Iterator[Any]:
    """Results in the order in which they are ready, as soon as they are, where the backend can hand them over so.

    Args:
        function: What to call.
        arguments: Its arguments, a tuple a call.
        jobs: Calls at the same time.
    """
    calls = [joblib.delayed(function)(*given) for given in arguments]
    backend = joblib.parallel.get_active_backend()[0]
    if getattr(backend, "supports_return_generator", False):
        yield from joblib.Parallel(n_jobs=jobs, return_as="generator_unordered", pre_dispatch="n_jobs")(calls)
        return
    size = max(1, joblib.effective_n_jobs(jobs))
    for start in range(0, len(calls), size):
        yield from joblib.Parallel(n_jobs=jobs)(calls[start : start + size])


def _needed(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        package = {"distributed": "distributed", "ray.util.joblib": "ray"}[module]
        raise CommandError(f"--backend needs the package {package}: pip install {package}.") from None
