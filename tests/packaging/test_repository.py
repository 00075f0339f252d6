"""The release workflow and the issue templates are well formed, and name files and extras that exist."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GITHUB = ROOT / ".github"
yaml = pytest.importorskip("yaml", reason="PyYAML is not installed: make test-slow installs it")


def read(path: Path) -> dict:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def test_publishing_waits_for_tests_and_clean_installations_and_holds_no_secret() -> None:
    text = (GITHUB / "workflows" / "release.yml").read_text(encoding="utf-8")
    jobs = yaml.safe_load(text)["jobs"]
    assert set(jobs["publish"]["needs"]) == {"test", "check"}
    assert jobs["check"]["needs"] == "build"
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert "secrets." not in text
    for script in re.findall(r"source/(\S+\.py)", text):
        assert (ROOT / script).is_file(), script


@pytest.mark.parametrize("path", sorted(GITHUB.glob("ISSUE_TEMPLATE/*.yml")), ids=lambda path: path.stem)
def test_issue_templates_have_what_a_form_needs(path: Path) -> None:
    form = read(path)
    if path.stem == "config":
        assert set(form) == {"blank_issues_enabled"}
        return
    assert {"name", "description", "body"} <= set(form)
    fields = [part for part in form["body"] if part["type"] != "markdown"]
    assert len({part["id"] for part in fields}) == len(fields)
    assert all(part["attributes"]["label"] for part in fields)


def test_the_extras_of_the_integrations_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert {"lightning", "huggingface", "skorch", "torchmetrics", "docs"} <= set(extras)
