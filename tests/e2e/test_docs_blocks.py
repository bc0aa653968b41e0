"""Every code block of README and docs, run in order as it stands, page by page."""

import importlib.util
import itertools
import json
import os
import re
import shlex
import tomllib
import warnings
from pathlib import Path

import pytest
from commands import run_here
from pages import STAND_INS, prepared

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *ROOT.glob("docs/*/*.md")]
    if "_build" not in path.parts and "```" in path.read_text(encoding="utf-8")
)
BLOCK = re.compile(
    r"^(?:<!-- exit code (?P<code>\d+) -->\n)?```(?P<kind>\w+)\n(?P<text>.*?)^```",
    re.DOTALL | re.MULTILINE,
)
# What is not run: it installs, tests or measures demur itself, for minutes to hours, or fetches.
ELSEWHERE = ("python3 -m venv", "pip ", "pytest", "mypy", "lint-imports", "sphinx-build")
# What a page's data decide; a page that wants one of them says so in a comment.
CODES = {"evaluate": (0, 3), "certify": (0, 3), "watch": (0, 4)}
# Has a test of its own, with the numbers of the text.
APART = ("docs/which-number-to-quote.md",)


def commands_of(text):
    """Return the command lines of a block: all lines, or those after a prompt."""
    joined = text.replace("\\\n", " ")
    lines = [line for line in joined.splitlines() if line.strip()]
    if any(line.startswith("$ ") for line in lines):
        lines = [line[2:] for line in lines if line.startswith("$ ")]
    return lines


@pytest.mark.parametrize("page", [page for page in PAGES if page not in APART])
def test_blocks(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    values = prepared(page, tmp_path) | {"__name__": "page"}
    for number, block in enumerate(BLOCK.finditer((ROOT / page).read_text(encoding="utf-8"))):
        kind, text = block["kind"], block["text"]
        for named, stand_in in STAND_INS.items():
            text = text.replace(named, stand_in)
        if kind == "python":
            code = compile(text, f"{page}, block {number}", "exec")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                exec(code, values)
        elif kind in ("console", "sh"):
            for line in commands_of(text):
                run_line(line, tmp_path, block["code"])
        elif kind == "json":
            json.loads(text)
        elif kind == "toml":
            tomllib.loads(text)
            check_project_file(text, tmp_path)
        else:
            # The evaluator in C is a transcription that test_rule_file.py runs in Python.
            assert kind in ("c", "text", "yaml"), (page, kind)


def run_line(line, folder, code):
    words = shlex.split(line, comments=True)
    program = Path(words[0]).name
    if program == "demur" and "DATA" not in words:
        for option, path in itertools.pairwise(words):
            # Blocks of Python and of the shell tell the same story twice.
            if option == "-o" and (folder / path).is_file():
                (folder / path).unlink()
        done = run_here(folder, *expanded(words[1:], folder))
        wanted = (int(code),) if code else CODES.get(words[1], (0,))
        assert done.returncode in wanted, (line, done.returncode, done.stderr[-2000:])
    elif program in ("python", "python3") and words[1:2] == ["-m"] and words[2] != "venv":
        place = ROOT / words[2].replace(".", "/")
        here = place.is_dir() or place.with_suffix(".py").is_file()
        assert here or importlib.util.find_spec(words[2]), line
    elif "=" in words[0]:
        # A campaign: the files it names are there.
        assert all((ROOT / word).exists() for word in words if word.startswith("tests/"))
    else:
        known = line.startswith(ELSEWHERE) or program in ("demur", "pip", "python", "ruff", "bash")
        assert known or line.startswith((". ", "python -m venv")), line


def expanded(words, folder):
    """Return the words after the shell's patterns, which are within quotes elsewhere."""
    found = []
    for word in words:
        files = sorted(folder.glob(word)) if "*" in word and word.startswith("live/") else []
        found += [path.relative_to(folder).as_posix() for path in files] or [word]
    return found


def check_project_file(text, folder):
    """Run whole commands by the project file of the page."""
    (folder / "demur.toml").write_text(text)
    (folder / "rule.json").unlink(missing_ok=True)
    for command in ("tune", "evaluate"):
        done = run_here(folder, command)
        assert done.returncode in (0, 3), done.stderr
    os.unlink(folder / "demur.toml")
