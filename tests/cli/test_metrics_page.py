"""``metricfit metrics NAME`` shows kept pages, without torch. To renew them: python -m tests.cli.test_metrics_page."""

import json
import os
import subprocess
import sys
from importlib.resources import files

import pytest

from metricfit import metrics
from metricfit.metrics.registry import NAMES

KEPT = files("metricfit.cli") / "metrics.json"


def pages():
    names = sorted(name for name in NAMES if metrics.metric_class(name).__module__.startswith("metricfit."))
    lines = [f"{json.dumps(name)}: {json.dumps(metrics.describe(name), ensure_ascii=False)}" for name in names]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def test_the_kept_pages_are_those_of_the_registry():
    metrics.available()
    assert KEPT.read_text(encoding="utf-8") == pages(), "renew them: python -m tests.cli.test_metrics_page"


@pytest.mark.parametrize("words", ["metrics f2", "advise --classes 2 --batch 1024 --positives 50"])
def test_cheap_commands_take_half_a_second_and_import_no_torch(words):
    script = (
        f"import sys; sys.argv = ['metricfit', *{words.split()}]\n"
        "from metricfit.cli.entry import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print([m for m in ('torch', 'sklearn', 'pandas', 'scipy') if m in sys.modules])"
    )
    before = os.times()
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    after = os.times()
    assert result.stdout.strip().splitlines()[-1] == "[]"
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    print(f"{words}: {spent:.2f} s of CPU")
    assert spent < 1.0, "half a second on a machine that does nothing else"


if __name__ == "__main__":
    metrics.available()
    KEPT.write_text(pages(), encoding="utf-8")
