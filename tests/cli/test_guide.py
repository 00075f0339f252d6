"""Every command of the guide exists, with every option that it is shown with."""

import re
import shlex
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "command-line.md"
BLOCKS = re.findall(r"^```sh\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
LINES = [line for block in BLOCKS for line in block.splitlines()]


@pytest.mark.parametrize("line", LINES)
def test_commands_and_options_of_the_guide_exist(program, line):
    name, *arguments = shlex.split(line)
    assert name == "metricfit"
    command = [] if arguments[0].startswith("--") else arguments[:1]
    text = program(*command, "--help")
    for option in arguments:
        if option.startswith("--"):
            assert re.search(rf"{option}\b", text), option
