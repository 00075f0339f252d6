"""kill -9 at random moments of the commands: nothing that was there is lost, nothing half-written is left in its place.

Each kill is a fork of this process, in which everything is imported and compiled: it costs tenths of a second.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from metricfit.cli import entry
from metricfit.models import estimators
from metricfit.store import folder as format_
from metricfit.store import open_model
from metricfit.training.checkpoint import CheckpointFile

SECONDS = 600
"""A command that takes longer hangs."""
EVENTS = ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.chmod", "os.truncate", "shutil.rmtree")
"""What a command does to files; half of the kills happen at one of them."""
kills = 0
"""How many commands were killed so far in this process."""


def _train(name: str, models: str, seed: int) -> list[str]:
    words = "train table.csv --target y --metric f1 --folds 2 --max-epochs 3 --no-baseline --resume --overwrite"
    return [*words.split(), "--models", models, "--seed", str(seed), "--out", name]


def _compare(out: str) -> list[str]:
    words = "compare table.csv --target y --metric f1 --methods random-forest,network --splits 2 --max-epochs 2 --out"
    return [*words.split(), out]


COMMANDS: dict[str, tuple[list[str], str]] = {
    "train network": (_train("model", "network", 1), "model"),
    "train boosting": (_train("model", "boosting,network", 1), "model"),
    "predict csv": (["predict", "model", "table.csv", "--overwrite", "--out", "p.csv"], "p.csv"),
    "predict gz": (["predict", "model", "table.csv", "--overwrite", "--out", "p.csv.gz"], "p.csv.gz"),
    "predict parquet": (["predict", "model", "table.csv", "--overwrite", "--out", "p.parquet"], "p.parquet"),
    "export": (["export", "model", "--overwrite", "--out", "model.onnx"], "model.onnx"),
    "compare": (_compare("r.jsonl"), "r.jsonl"),
    "tune": (["tune", "model", "table.csv", "--metric", "recall"], "model"),
}
"""Commands, and what each of them writes."""


def run(place: Path, words: Sequence[str], *, event: int = 0, seconds: float = 0.0) -> tuple[int, int, float]:
    """Run a command in a fork, killed at an event or after some seconds, if they are given.

    The exit code (-9 if it was killed), the number of events and the seconds it took.
    """
    global kills
    receive, send = os.pipe()
    child = os.fork()
    if not child:
        _command(place, words, event, send)
    os.close(send)
    began = time.monotonic()
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        passed = time.monotonic() - began
        if done:
            break
        if passed > (seconds or SECONDS):
            os.kill(child, signal.SIGKILL)
        time.sleep(0.002)
    with open(receive, "rb") as pipe:
        answer = pipe.read()
    kills += (code := os.waitstatus_to_exitcode(status)) == -signal.SIGKILL
    return code, int(answer or 0), passed


def _command(place: Path, words: Sequence[str], event: int, send: int) -> None:
    count = 0

    def happened(name: str, _: object) -> None:
        nonlocal count
        if name in EVENTS:
            count += 1
            if count == event:
                os.kill(os.getpid(), signal.SIGKILL)

    code = 1
    try:
        os.chdir(place)
        log = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        sys.argv = ["metricfit", *words]
        sys.addaudithook(happened)
        entry.main()
        code = 0
    except SystemExit as stopped:
        code = int(stopped.code or 0)
    finally:
        os.write(send, str(count).encode())
        sys.stdout.flush()
        os._exit(code)


def state(path: Path) -> str:
    """What stands at a path: nothing, or its content as text, without what two runs do not share."""
    if not path.exists():
        return ""
    if path.is_dir():
        open_model(path)  # it loads
        return json.dumps(format_.read_folder(path)[0]["files"], sort_keys=True)
    if path.suffix == ".jsonl":
        rows = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
        return json.dumps(sorted((row["split"], row["method"], row["value"]) for row in rows))
    return format_._sha(path.read_bytes())


@cache
def finished() -> tuple[Path, dict[str, tuple[str, int, float]]]:
    """A folder with a table and an older model, and of each command what it leaves behind, its events and seconds."""
    CheckpointFile.__init__.__kwdefaults__["every"] = 0.0  # so that there is one after each epoch
    estimators.TREES = 3
    place = Path(tempfile.mkdtemp(prefix="metricfit-kills-"))
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.normal(40, 10, 60).round(1), "plan": rng.choice(["a", "b"], 60)})
    frame["y"] = np.where(frame["age"] + rng.normal(0, 5, 60) > 42, "yes", "no")
    frame.to_csv(place / "table.csv", index=False)
    _in_this_process(place, _train("model", "boosting,network", 0))  # imports and compiles
    _in_this_process(place, ["predict", "model", "table.csv", "--out", "warm.onnx.csv"])
    _in_this_process(place, ["export", "model", "--out", "warm.onnx"])
    found = {}
    for name, (words, output) in COMMANDS.items():
        times = []
        for _ in range(2):
            with tempfile.TemporaryDirectory() as parent:
                other = Path(shutil.copytree(place, Path(parent) / "place"))
                code, events, passed = run(other, words)
                if code:
                    raise RuntimeError(f"{name}: {(other / 'log').read_text()}")
                times.append(passed)
                found[name] = state(other / output), events, min(times)
    return place, found


def _in_this_process(place: Path, words: list[str]) -> None:
    before, sys.argv, out, err = Path.cwd(), ["metricfit", *words, "--quiet"], sys.stdout, sys.stderr
    os.chdir(place)
    try:
        with open(os.devnull, "w") as sys.stdout:
            entry.main()
    except SystemExit as stopped:
        if stopped.code:
            raise RuntimeError(f"{' '.join(words)} ends with {stopped.code}") from None
    finally:
        sys.stdout, sys.stderr = out, err
        os.chdir(before)


def kill(seed: int) -> str:
    """A command is killed up to four times, each time started again; then it ends as if nothing had happened."""
    random_ = random.Random(seed)
    place, known = finished()
    name = random_.choice(list(COMMANDS))
    (words, output), (wanted, events, seconds) = COMMANDS[name], known[name]
    with tempfile.TemporaryDirectory() as parent:
        work = Path(shutil.copytree(place, Path(parent) / "place"))
        if name.startswith("train") and random_.random() < 0.5:
            shutil.rmtree(work / "model")
        allowed = {state(work / output), wanted}
        kept = ""
        for _ in range(random_.randint(1, 4)):
            if random_.random() < 0.5:
                how = {"event": random_.randint(1, events)}
            else:
                how = {"seconds": random_.uniform(0.01, 1.1) * seconds}
            code, _, _ = run(work, words, **how)  # type: ignore[arg-type]
            if code not in (0, -signal.SIGKILL):
                return f"{name}, killed at {how}, started again: {_last(work)}"
            if problem := _checked(work / output, allowed, kept, name):
                return f"{name}, killed at {how}: {problem}"
            kept = (work / output).read_text() if output == "r.jsonl" and (work / output).exists() else ""
        code, _, passed = run(work, words)
        if code:
            return f"{name} after kills ends with {code} after {passed:.0f} s: {_last(work)}"
        if state(work / output) != wanted:
            return f"{name} after kills gives another result than without"
        return _checked(work / output, {wanted}, kept, name) or _left(work, output)


def _last(work: Path) -> str:
    return (work / "log").read_text().strip()[-300:]


def _checked(path: Path, allowed: set[str], kept: str, name: str) -> str:
    """What is wrong with what stands at a path after a kill."""
    if path.suffix == ".jsonl":  # grows line by line; a line that was whole stays as it was
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        gone = [line for line in kept.splitlines(keepends=True) if line.endswith("}\n") and line not in lines]
        return f"lost {gone}" if gone else ""
    try:
        return "" if state(path) in allowed else f"{name} left neither the old nor the new {path.name}"
    except Exception as error:
        return f"{path.name} does not load: {error}"


def _left(work: Path, output: str) -> str:
    """What may be left: hidden files of what was killed; no other name may have appeared."""
    usual = {"table.csv", "model", "log", "warm.onnx", "warm.onnx.csv", output}
    strange = [file.name for file in work.iterdir() if file.name not in usual and not file.name.startswith(".")]
    return f"left behind: {strange}" if strange else ""
