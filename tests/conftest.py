"""Settings that every test shares, and the browser."""

import os
import shutil

import pytest
import torch
from hypothesis import settings

# Derandomised, so that the same commit always runs the same examples; no deadline, since a busy machine is no bug.
settings.register_profile("quick", max_examples=40, deadline=None, derandomize=True, database=None)
settings.register_profile("thorough", max_examples=1000, deadline=None, derandomize=True, database=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

# The tensors are small: threads only get in each other's way, above all under several pytest workers.
torch.set_num_threads(1)


def _chromium():
    for name in ("chromium", "chromium-browser", "google-chrome", "chrome"):
        if found := shutil.which(name):
            return found
    return None


@pytest.fixture(scope="session")
def browser():
    """One headless browser: a second one in the same process is refused while this one is open."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed; pip install -e '.[dev]'")
    path = _chromium()
    if path is None:
        pytest.skip("no Chromium on this machine, so pages are not tested in a browser; apt-get install chromium")
    with api.sync_playwright() as play:
        # Chromium refuses its sandbox to root, as in a container.
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        opened = play.chromium.launch(executable_path=path, args=[*options, "--disable-dev-shm-usage"])
        yield opened
        opened.close()
