"""The documentation site builds without a warning, leaves out no public name, has no dead link, needs no network."""

import os
import subprocess
import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

import pytest

griffe = pytest.importorskip("griffe", reason="the documentation's tools are not installed; pip install -e '.[docs]'")
pytest.importorskip("material", reason="the documentation's tools are not installed; pip install -e '.[docs]'")

ROOT = Path(__file__).parents[1]
# Called by the library around them, which documents them.
HOOKS = {"forward", "extra_repr"}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return folder


class Page(HTMLParser):
    """Anchors, links, and whatever a browser would load by itself."""

    def __init__(self, text):
        super().__init__()
        self.anchors, self.links, self.loads = set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.anchors.update(found[name] for name in ("id", "name") if found.get(name))
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        elif tag == "link" and found.get("href"):
            rel = found.get("rel", "")
            (self.links if rel in ("prev", "next", "canonical") else self.loads).append(found["href"])
        elif found.get("src"):
            self.loads.append(found["src"])


@cache
def parsed(path):
    return Page(path.read_text(encoding="utf-8"))


def pages(site):
    return sorted(site.rglob("*.html"))


def test_no_dead_link_anchor_or_image(site):
    dead = []
    for page in pages(site):
        for target in [*parsed(page).links, *parsed(page).loads]:
            if page.name == "404.html" or urlsplit(target).scheme in ("http", "https", "mailto", "data"):
                continue
            path, anchor = urldefrag(target)
            goal = (page.parent / unquote(path)).resolve() if path else page
            if not goal.is_file() or (
                anchor and goal.suffix == ".html" and unquote(anchor) not in parsed(goal).anchors
            ):
                dead.append(f"{page.relative_to(site)}: {target}")
    assert not dead, "\n".join(dead)


def test_nothing_is_loaded_from_the_network(site):
    fetched = [
        f"{page.relative_to(site)}: {target}"
        for page in pages(site)
        for target in parsed(page).loads
        if urlsplit(target).scheme in ("http", "https") or target.startswith("//")
    ]
    assert not fetched, "\n".join(fetched)
    for sheet in site.rglob("*.css"):
        assert "url(http" not in sheet.read_text(encoding="utf-8"), sheet


def public_modules():
    """Every module that a user imports from, with the names it exports."""
    package = griffe.load("metricfit", search_paths=[str(ROOT / "src")], resolve_aliases=True, resolve_external=False)
    waiting = [package, *(package[name] for name in package.modules if not name.startswith("_") and name != "cli")]
    for module in waiting:
        if module.exports:
            yield module, sorted(str(name) for name in module.exports if not str(name).startswith("_"))
        else:  # a package of modules, such as integrations
            waiting.extend(module[name] for name in module.modules if not name.startswith("_"))


PUBLIC = [
    pytest.param(module, name, id=f"{module.path}.{name}")
    for module, names in public_modules()
    for name in names
    if not module[name].is_module
]


@pytest.mark.parametrize(("module", "name"), PUBLIC)
def test_public_name_has_a_docstring(module, name):
    thing = module[name]
    thing = thing.final_target if thing.is_alias else thing
    assert thing.has_docstring, f"{module.path}.{name} has no docstring"
    if thing.is_class:
        bare = [
            member.name
            for member in thing.members.values()
            if not member.is_alias
            and (member.is_function or "property" in member.labels)
            and not member.name.startswith("_")
            and member.name not in HOOKS
            and not member.has_docstring
            and not any(member.name in base.members for base in thing.mro())
        ]
        assert bare == [], f"no docstring: {module.path}.{name}.{', '.join(bare)}"


def test_reference_has_every_public_name(site):
    anchors = set().union(*(parsed(page).anchors for page in (site / "reference").glob("*.html")))
    public = {f"{module.path}.{name}": module[name] for module, names in public_modules() for name in names}
    # A name that can be imported from several places is shown at one of them.
    shown = {thing.canonical_path for path, thing in public.items() if path in anchors} | anchors
    missing = [path for path, thing in public.items() if not thing.is_module and thing.canonical_path not in shown]
    assert not missing, "not in docs/reference:\n" + "\n".join(missing)


def test_every_page_is_in_the_navigation(site):
    index = parsed(site / "index.html")
    listed = {urldefrag(link)[0] for link in index.links}
    for page in sorted((ROOT / "docs").rglob("*.md")):
        built = page.relative_to(ROOT / "docs").with_suffix(".html").as_posix()
        assert built in listed, f"{built} is not in the nav of mkdocs.yml"


def test_search_works_from_disk_without_network(site, browser):
    page = browser.new_page(viewport={"width": 1300, "height": 900})
    asked, errors = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto((site / "index.html").as_uri())
    page.locator("input.md-search__input").click()
    page.locator("input.md-search__input").press_sequentially("TemperatureAnnealer")
    page.locator("a.md-search-result__link").first.wait_for(timeout=30_000)
    assert "TemperatureAnnealer" in page.locator(".md-search-result__list").inner_text()
    page.close()
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
    assert errors == []
