"""The wheel: one for all versions of CPython, with the engine, built without NumPy."""

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from demur._kernels.engines import engine_name

ROOT = Path(__file__).parents[2]


def test_the_wheel_keeps_to_the_stable_abi(tmp_path):
    if engine_name() != "compiled":
        pytest.skip("no compiler")
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    done = subprocess.run(
        [*command, "-w", tmp_path, ROOT], capture_output=True, text=True, cwd=tmp_path
    )
    # What setuptools leaves beside the source would be in the next wheel.
    shutil.rmtree(ROOT / "build", ignore_errors=True)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    assert re.fullmatch(r"demur-[\d.]+-cp311-abi3-\w+\.whl", wheel.name)
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
    engines = [name for name in names if "/_engine." in name and not name.endswith(".pyi")]
    assert len(engines) == 1 and ".abi3." in engines[0]
    page = {f"demur/report/templates/{name}" for name in ("page.html", "scripts/explorer.js")}
    assert {"demur/py.typed", *page} <= set(names)


def test_numpy_is_not_needed_to_build():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert [need for need in project["build-system"]["requires"] if "numpy" in need] == []


def test_badges_are_true():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    said = {}
    for name in re.findall(r"docs/_static/badge-(\w+)\.svg", readme):
        badge = (ROOT / "docs" / "_static" / f"badge-{name}.svg").read_text(encoding="utf-8")
        said[name] = re.findall(r"<text[^>]*>([^<]*)</text>", badge)[1]
    assert said == {
        "python": project["project"]["requires-python"].removeprefix(">=") + "+",
        "wheel": "abi3",
        "types": "mypy strict" if project["tool"]["mypy"]["strict"] else None,
        "license": project["project"]["license"],
    }


def test_versions_agree():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    version = project["project"]["version"]
    assert f"version: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"## [{version}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
