"""Use an installed metricfit as a newcomer would: run by an environment that holds the package and nothing else.

Prints one line for each check; any failure ends the script with an error. It needs no test tools.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
from importlib import resources
from importlib.metadata import version
from pathlib import Path

FILES = (
    "py.typed",
    "report/assets/charts.js",
    "report/assets/page.js",
    "report/assets/report.css",
    "report/templates/report.html",
    "report/templates/card.md",
)


def run(*command: str) -> str:
    """The output of a command, which has to succeed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def expect(holds: bool, what: str) -> None:
    """Say what holds, or end."""
    if not holds:
        sys.exit(f"failed: {what}")
    print(f"ok: {what}")


def main() -> None:
    """Every check, in a folder of its own so that no source tree is found by chance."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        sys.path[:] = [entry for entry in sys.path if entry not in ("", str(Path(__file__).parent))]
        import metricfit

        home = Path(metricfit.__file__).parent
        expect("site-packages" in home.parts, f"imported from the environment, version {version('metricfit')}")
        expect(metricfit.__version__ == version("metricfit"), "the version is that of the metadata")
        missing = [name for name in FILES if not resources.files("metricfit").joinpath(name).is_file()]
        expect(not missing, f"package data is there{missing or ''}")

        command = str(Path(sysconfig.get_path("scripts")) / "metricfit")
        for how in ([command], [sys.executable, "-m", "metricfit"]):
            expect("train" in run(*how, "--help"), f"{' '.join(Path(part).name for part in how)} --help")

        rows = [f"{'yes' if i % 7 < 2 else 'no'},{i % 7},{i % 5}" for i in range(140)]
        Path("data.csv").write_text("\n".join(["target,a,b", *rows]) + "\n", encoding="utf-8")
        run(command, "train", "data.csv", "--target", "target", "--metric", "f1[yes]", "--out", "model")
        expect(Path("model/report.html").stat().st_size > 20_000, "train writes a model with its report")
        run(command, "predict", "model", "data.csv", "--out", "predictions.csv")
        table = Path("predictions.csv").read_text(encoding="utf-8").splitlines()
        expect(len(table) == 141, "predict writes a row for each row")


if __name__ == "__main__":
    main()
