"""Every call that touches the disk fails in turn, as SQLite tests it; then the old or the new content is there."""

import errno
import json
import os
import resource
import tempfile
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import pytest
import torch

from metricfit.comparison import Comparison
from metricfit.files import locked, written_whole
from metricfit.store import folder
from metricfit.training.checkpoint import CheckpointFile

ERRORS = {
    "full": OSError(errno.ENOSPC, "No space left on device"),
    "broken": OSError(errno.EIO, "Input/output error"),
    "memory": MemoryError(),
    "stopped": KeyboardInterrupt(),
}


class Faults:
    """Lets the call of a given number fail, in this process, among all that write, rename, sync or make files."""

    def __init__(self, failing, error):
        self.failing, self.error, self.calls = failing, error, 0

    def count(self):
        self.calls += 1
        if self.calls == self.failing:
            raise self.error

    def wrapped(self, function):
        def call(*args, **kwargs):
            self.count()
            return function(*args, **kwargs)

        return call

    def opened(self, function):
        faults = self

        def call(path, mode="r", *args, **kwargs):
            if "w" not in mode:
                return function(path, mode, *args, **kwargs)
            faults.count()
            file = function(path, mode, *args, **kwargs)
            write = file.write

            class Half:
                """Writes half before it fails."""

                def __getattr__(self, name):
                    return getattr(file, name)

                def __enter__(self):
                    return self

                def __exit__(self, *_):
                    file.close()

                def write(self, content):
                    try:
                        faults.count()
                    except BaseException:
                        write(bytes(content)[: len(content) // 2])
                        raise
                    return write(content)

            return Half()

        return call

    def __enter__(self):
        self.stack = ExitStack()
        for module, names in (
            (os, ("fsync", "rename", "replace", "chmod", "mkdir")),
            (tempfile, ("mkdtemp", "mkstemp")),
            (folder, ("_exchange",)),
        ):
            for name in names:
                self.stack.enter_context(mock.patch.object(module, name, self.wrapped(getattr(module, name))))
        self.stack.enter_context(mock.patch.object(Path, "open", self.opened(Path.open)))
        return self

    def __exit__(self, *_):
        self.stack.close()


def every_fault(error, act, check):
    """Call ``act`` with the first call failing, then the second, until none is left; the number of faults."""
    for failing in range(1, 1000):
        with suppress(type(ERRORS[error])), Faults(failing, ERRORS[error]) as faults:
            act()
        check()
        if faults.calls < failing:
            return failing - 1
    raise AssertionError("no end of faults")


def contents_of(number):
    files = {"history.json": json.dumps([number] * 100).encode(), "weights.bin": bytes([number]) * 5000}
    return {**files, "model.json": json.dumps({"number": number}).encode()}


@pytest.mark.parametrize("exchange", [True, False])
@pytest.mark.parametrize("error", ERRORS)
def test_a_model_folder_is_the_old_or_the_new_one_whatever_fails(tmp_path, monkeypatch, error, exchange):
    if not exchange:
        monkeypatch.setattr(folder, "_exchange", lambda first, second: False)
    path = tmp_path / "model"
    folder.write_folder(path, contents_of(1))

    def check():
        description, contents = folder.read_folder(path)
        number = description["number"]
        assert number in (1, 2)
        assert contents["weights.bin"] == bytes([number]) * 5000
        assert [file.name for file in tmp_path.iterdir()] == ["model"], "nothing is left behind"

    faults = every_fault(error, lambda: folder.write_folder(path, contents_of(2)), check)
    assert faults >= 12, "three files are opened, written and synced, a folder made and put in place"
    assert folder.read_folder(path)[0]["number"] == 2


@pytest.mark.parametrize("error", ERRORS)
def test_a_checkpoint_is_the_old_or_the_new_one_whatever_fails(tmp_path, error):
    checkpoint = CheckpointFile(tmp_path, "run", {"settings": "a"}, every=0.0)
    checkpoint.save({"epoch": 1, "weights": torch.ones(1000)})

    def check():
        state = CheckpointFile(tmp_path, "run", {"settings": "a"}).load()
        assert state["epoch"] in (1, 2)
        assert (state["weights"] == state["epoch"]).all()
        assert [file.name for file in tmp_path.iterdir()] == ["run.pt"]

    faults = every_fault(error, lambda: checkpoint.save({"epoch": 2, "weights": torch.full((1000,), 2.0)}), check)
    assert faults >= 5
    assert checkpoint.load()["epoch"] == 2


@pytest.mark.parametrize("error", ["full", "broken"])
def test_a_full_disk_names_the_file_that_could_not_be_written(tmp_path, error):
    def act():
        with written_whole(tmp_path / "page.html") as path:
            path.open("wb").write(b"x")

    with pytest.raises(OSError, match=r"page\.html"), Faults(3, ERRORS[error]):
        act()
    with pytest.raises(OSError, match=r"weights\.bin"), Faults(7, ERRORS[error]):
        folder.write_folder(tmp_path / "model", contents_of(1))
    assert list(tmp_path.iterdir()) == []


@contextmanager
def room_for(size):
    """No file may grow beyond so many bytes, as on a disk that is full."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_full_disk_names_the_lock_and_leaves_none(tmp_path):
    with room_for(0), pytest.raises(OSError, match=r"\.model\.lock"), locked(tmp_path / "model"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_names_the_results_of_a_comparison_and_keeps_the_finished_rows(tmp_path):
    path, X = tmp_path / "results.jsonl", pd.DataFrame(np.random.default_rng(0).normal(size=(60, 2)))
    options = {"methods": ["boosting"], "splits": 3, "out": path}
    kept = []
    with ExitStack() as full:

        def disk_fills(row):
            kept.append(row)
            full.enter_context(room_for(path.stat().st_size + 10))

        with pytest.raises(OSError, match=r"results\.jsonl"):
            Comparison(X, X[0] > 0, "f1", **options).run(progress=disk_fills)
    assert Comparison(X, X[0] > 0, "f1", **options).results == [{**kept[0], "run": mock.ANY}]
