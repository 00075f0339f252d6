"""Every Python block of the README and the docs runs and prints what the docs say; commands and links are right."""

import contextlib
import io
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SETTING = """
import numpy as np
random = np.random.default_rng(0)
X = random.normal(size=(80, 3))
y = (X[:, 0] + random.normal(size=80) > 0.5).astype(int)
y_valid, score = y, X[:, 0]
"""


OPTIONAL = {"search": ("optuna",), "huggingface": ("transformers", "accelerate")}


def missing(block):
    """The libraries that a block's first line, ``# pip install 'metricfit[extra]'``, asks for and that are not here."""
    named = re.match(r"# pip install (?:'metricfit\[([\w-]+)\]'|([\w-]+))\n", block)
    name = named and (named.group(1) or named.group(2))
    return [library for library in OPTIONAL.get(name, (name,)) if not find_spec(library)] if named else []


def blocks(page, language="python"):
    return [block for block, _ in blocks_with_output(page, language)]


def blocks_with_output(page, language="python"):
    """The blocks of a language, each with the ``text`` block that follows it at once, or None."""
    fence = rf"^```{language}\n(.*?)^```$(?:\n\n^```text\n(.*?)^```$)?"
    found = re.finditer(fence, page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return [match.groups() for match in found]


NUMBER = r"(?<![\w.])-?\d+(?:\.\d+)?"


def check_output(printed, shown):
    """The same words; numbers that come out a little differently on another machine are the same too."""
    assert re.sub(NUMBER, "#", printed).split() == re.sub(NUMBER, "#", shown).split(), f"{printed}\nis not\n{shown}"
    numbers = [[float(number) for number in re.findall(NUMBER, text)] for text in (printed, shown)]
    assert numbers[0] == pytest.approx(numbers[1], rel=0.05, abs=0.03)


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)], ids=lambda p: p.relative_to(ROOT).as_posix())
def test_code_blocks_run_in_order(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__docs__"}
    if page.name == "README.md":
        exec(compile(SETTING, "setting", "exec"), namespace)
    absent = set()
    for block, shown in blocks_with_output(page):
        absent.update(missing(block))
        if not missing(block):
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(compile(block, page.name, "exec"), namespace)
            if shown is not None:
                check_output(printed.getvalue(), shown)
    if absent:
        pytest.skip(f"ran all blocks but those that need {', '.join(sorted(absent))}: make test-slow installs them")


def test_wrong_output_is_noticed():
    check_output("F1 0.50 of 10 rows", "F1  0.51 of 10 rows\n")
    for shown in ("F1 0.60 of 10 rows", "F1 0.50 of 10 lines", "F2 0.50 of 10 rows"):
        with pytest.raises(AssertionError):
            check_output("F1 0.50 of 10 rows", shown)


COMMANDS = sorted({line for page in PAGES for block in blocks(page, "sh") for line in block.splitlines() if line})


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_have_these_options(line, tmp_path, monkeypatch):
    import typer

    from metricfit.cli.entry import app

    words = shlex.split(line, comments=True)
    if "metricfit" not in words:
        pytest.fail(f"{line!r} is not one of our commands: mark its block as text")
    name, *arguments = words[words.index("metricfit") + 1 :]
    program = typer.main.get_command(app)
    if name.startswith("-"):
        assert any(name in option.opts for option in program.params)
        return
    command = program.commands[name]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "train.toml").write_text(
        'data = "churn.csv"\ntarget = ["churn"]\nmetric = "f1"\n', encoding="utf-8"
    )
    for word in ("churn.csv", *arguments):  # files and folders must be there
        if not word.startswith(("-", "/")) and not (tmp_path / word).exists():
            (tmp_path / word).mkdir(parents=True)
    command.make_context(name, arguments)  # an unknown option, a missing argument or a bad value raises


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_relative_links_and_images_exist(page):
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_number_of_metrics_named_in_the_readme():
    from metricfit import metrics

    count = re.search(r"all (\d+) names", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert int(count.group(1)) == len(metrics.available())


@pytest.mark.slow
def test_commands_of_the_tour_run(tmp_path):
    page = ROOT / "docs" / "tour.md"
    namespace = {"__name__": "__docs__"}
    exec(compile(blocks(page)[0], page.name, "exec"), namespace)
    answer = ["leaves" if leaves else "stays" for leaves in namespace["leaves"]]
    table = namespace["table"].assign(answer=answer)
    table[:800].to_csv(tmp_path / "customers.csv", index=False)
    table[800:900].drop(columns="answer").to_csv(tmp_path / "new.csv", index=False)
    for line in blocks(page, "sh")[0].splitlines():
        subprocess.run([sys.executable, "-m", *shlex.split(line)], cwd=tmp_path, check=True)
    assert len((tmp_path / "predictions.csv").read_text(encoding="utf-8").splitlines()) == 101
