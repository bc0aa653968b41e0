"""The map in CONTRIBUTING.md: every concept is in the file it is said to be in."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| (?P<concept>[^|]+) \| `(?P<file>[^`]+)` \| (?P<names>[^|]+) \|$", re.M)
ROWS = [m.groupdict() for m in ROW.finditer((ROOT / "CONTRIBUTING.md").read_text())]


def test_the_map_has_thirty_concepts():
    assert len(ROWS) >= 30
    assert len({row["concept"] for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=[row["concept"] for row in ROWS])
def test_what_the_map_says_is_there(row):
    path = ROOT / row["file"]
    assert path.is_file()
    names = re.findall(r"`([^`]+)`", row["names"])
    assert names
    text = path.read_text()
    defined = _defined(ast.parse(text)) if path.suffix == ".py" else text
    for name in names:
        assert name in defined, f"{row['file']} has no {name}"


def _defined(tree):
    """Names defined in a module, and methods as Class.method."""
    names = set()
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{m.name}" for m in node.body if isinstance(m, ast.FunctionDef)}
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names
