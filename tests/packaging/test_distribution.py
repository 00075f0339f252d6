"""The wheel and the sdist build, hold what they should, and work in a clean environment."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import metricfit

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "metricfit"


def run(*command: object, **options: object) -> str:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_python_m_metricfit() -> None:
    assert run(sys.executable, "-m", "metricfit", "--version").split() == ["metricfit", metricfit.__version__]


def source_files() -> set[str]:
    """What the package consists of; compiled and hidden files are no part of it."""
    files = (path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(PACKAGE.parent).as_posix() for path in files}


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT)
    (wheel,) = folder.glob("*.whl")
    (sdist,) = folder.glob("*.tar.gz")
    return wheel, sdist


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_nothing_else(distributions: tuple[Path, Path]) -> None:
    names = set(zipfile.ZipFile(distributions[0]).namelist())
    assert {name for name in names if ".dist-info/" not in name} == source_files()
    assert "metricfit/py.typed" in names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


@pytest.mark.slow
def test_the_sdist_holds_the_source_and_its_tests(distributions: tuple[Path, Path]) -> None:
    with tarfile.open(distributions[1]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"src/{name}" for name in source_files()} <= names
    wanted = {"README.md", "LICENSE", "CHANGELOG.md", "SECURITY.md", "constraints.txt", "tests/test_package.py"}
    assert wanted <= names
    assert not [name for name in names if "__pycache__" in name or name.startswith((".venv", "demo-report"))]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [0, 1], ids=["wheel", "sdist"])
def test_it_installs_and_works_in_a_clean_environment(
    distributions: tuple[Path, Path], kind: int, tmp_path: Path
) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"
    run(python, "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", distributions[kind], timeout=1500)
    installed = run(python, "-m", "pip", "list")
    assert "nvidia" not in installed, "the constraints let a GPU stack in"
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "METRICFIT"))}
    output = run(python, Path(__file__).parent / "use_installed.py", cwd=tmp_path, env=environment)
    assert output.count("ok: ") == 7
