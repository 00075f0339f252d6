"""One load in a process of its own, with limits on memory and time: what came of it."""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SECONDS = 10.0
"""No folder may take longer to be refused."""
BASE, MULTIPLE = 256 * 2**20, 100
"""No folder may take more than 256 MB and 100 times its size."""


@dataclass(frozen=True)
class Outcome:
    """What came of a trial.

    Attributes:
        kind: ``"accepted"``, ``"refused"`` (by a ModelFolderError), ``"raised"`` (another error) or ``"died"``.
        text: The message.
        seconds: How long it took.
        grown: By how many bytes the process grew.
    """

    kind: str
    text: str
    seconds: float
    grown: int

    def problem(self, size: int) -> str:
        """What is wrong about it for a folder of that size; empty if nothing is."""
        if self.kind in ("raised", "died"):
            return f"{self.kind}: {self.text}"
        if self.seconds > SECONDS:
            return f"took {self.seconds:.1f} s"
        most = BASE + MULTIPLE * size
        return f"took {self.grown / 2**20:,.0f} MB, {most / 2**20:,.0f} allowed" if self.grown > most else ""


def _memory(field: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


in_batch = False
"""Whether this process is a fork already, which tries one case after another."""


def _measured(work: Callable[[], tuple[str, str]], limit: int) -> dict[str, Any]:
    resource.setrlimit(resource.RLIMIT_AS, (_memory("VmSize") + limit, resource.RLIM_INFINITY))
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts here
    before, started = _memory("VmRSS"), time.perf_counter()
    kind, text = work()
    return {"kind": kind, "text": text[:2000], "seconds": time.perf_counter() - started,
            "grown": _memory("VmHWM") - before}  # fmt: skip


def in_child(work: Callable[[], tuple[str, str]], *, limit: int, seconds: float = 2 * SECONDS) -> Outcome:
    """Run ``work`` in a fork of this process, which may grow by ``limit`` bytes; it gives a kind and a text."""
    if in_batch:
        return Outcome(**_measured(work, limit))
    receive, send = os.pipe()
    child = os.fork()
    if not child:
        os.close(receive)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(int(seconds) + 1)
        os.write(send, json.dumps(_measured(work, limit)).encode())
        os._exit(0)
    os.close(send)
    started = time.perf_counter()
    with open(receive, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    if not answer:
        return Outcome("died", f"signal {os.waitstatus_to_exitcode(status)}", time.perf_counter() - started, 0)
    return Outcome(**json.loads(answer))


def load_trial(path: Path, use: Callable[[Any], None] | None = None) -> tuple[Outcome, str]:
    """Load a model folder, and use the classifier if there is one; the outcome and what is wrong about it.

    An error in use is no failure: a crafted model may say what it likes, but must not take the process down.
    """
    from metricfit.store import ModelFolderError, open_model

    def work() -> tuple[str, str]:
        try:
            model = open_model(path)
        except ModelFolderError as error:
            return "refused", str(error)
        except BaseException as error:  # what a user would see
            return "raised", f"{type(error).__name__}: {error}"
        try:
            if use is not None:
                use(model.classifier)
        except MemoryError as error:
            return "raised", f"MemoryError in use: {error}"
        except Exception:
            return "accepted", "and its use raises"
        return "accepted", ""

    size = sum(file.lstat().st_size for file in path.iterdir()) if path.is_dir() else 0
    outcome = in_child(work, limit=BASE + MULTIPLE * size + 2**30)
    return outcome, outcome.problem(size)


def outcomes(case: Callable[[int], str], seeds: Sequence[int], seconds: float) -> list[str]:
    """What is wrong with each of several cases, tried in one fork; where it dies, that case is tried alone."""
    receive, send = os.pipe()
    child = os.fork()
    if not child:
        global in_batch
        in_batch = True
        for seed in seeds:
            faulthandler.dump_traceback_later(seconds, exit=True)  # also where no Python code is run
            os.write(send, f"{json.dumps(case(seed))}\n".encode())
        os._exit(0)
    os.close(send)
    with open(receive) as pipe:
        found = [json.loads(line) for line in pipe]
    os.waitpid(child, 0)
    if len(found) < len(seeds):
        found.append(case(seeds[len(found)]) or "the process died, but not with this case alone")
    return found
