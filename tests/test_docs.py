"""Every Python block of the README and the docs runs; every figure script and example exists where it is named."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SETTING = """
import torch
from metricfit import MetricLoss
network = torch.nn.Linear(4, 3)
optimiser = torch.optim.SGD(network.parameters(), lr=0.1)
batches = [(torch.randn(16, 4), torch.randint(0, 3, (16,))) for _ in range(3)]
"""


OPTIONAL = {"huggingface": ("transformers", "accelerate")}


def missing(block):
    """The libraries that a block's first line, ``# pip install 'metricfit[extra]'``, asks for and that are not here."""
    named = re.match(r"# pip install (?:'metricfit\[([\w-]+)\]'|([\w-]+))\n", block)
    name = named and (named.group(1) or named.group(2))
    return [library for library in OPTIONAL.get(name, (name,)) if not find_spec(library)] if named else []


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)], ids=lambda p: p.relative_to(ROOT).as_posix())
def test_code_blocks_run_in_order(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__docs__"}
    if page.name == "README.md":
        exec(compile(SETTING, "setting", "exec"), namespace)
    absent = set()
    for block in blocks(page):
        absent.update(missing(block))
        if not missing(block):
            exec(compile(block, page.name, "exec"), namespace)
    if absent:
        pytest.skip(f"ran all blocks but those that need {', '.join(sorted(absent))}: make test-slow installs them")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_relative_links_and_images_exist(page):
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_number_of_metrics_named_in_the_readme():
    from metricfit import metrics

    count = re.search(r"all (\d+) names", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert int(count.group(1)) == len(metrics.available())
