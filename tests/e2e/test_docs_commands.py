"""The commands on the page about numbers to quote, run one after the other as they stand."""

import json
import re
import shlex
from pathlib import Path

from commands import run

PAGE = Path(__file__).parents[2] / "docs" / "which-number-to-quote.md"


def test_every_command_of_the_page_runs(tmp_path):
    blocks = re.findall(r"```console\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    lines = [line.removeprefix("$ ") for block in blocks for line in block.splitlines()]
    assert len(lines) >= 11
    printed = {}
    for line in lines:
        words = shlex.split(line.replace("1000", "100"))
        assert words[0] == "demur"
        done = run(tmp_path, *words[1:])
        assert done.returncode == 0, (line, done.stderr)
        printed[words[1], "--guarantee" in words] = done.stdout
    # The numbers in the text.
    assert "0.00500" in printed["tune", False]
    assert "0.00985" in printed["estimate", False]
    guarantee = printed["tune", True]
    assert "tpr >= 0.75 and fpr <= 0.25, and the selective risk is at most 0.02834" in guarantee
    assert (tmp_path / "report.html").exists()
    json.loads((tmp_path / "new-rule.json").read_text())
