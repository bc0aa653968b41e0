"""The compiled engine in plain C11, as compilers without the extensions of GNU C build it."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEEDED = ["setup.py", "pyproject.toml", "README.md", "LICENSE", "src", "tests"]
TESTS = ["test_compiled", "test_row_passes", "test_metrics_engines", "test_boxes", "test_growing"]
# Slots of a module are functions as pointers to data, in every extension of CPython.
OF_CPYTHON = "ISO C forbids initialization between function pointer"


def test_what_compilers_differ_in_is_in_one_header():
    own = re.compile(
        r"__attribute__|__builtin_|__extension__|__int128|typeof|__asm|_MSC_VER|__GNUC__"
    )
    files = [file for kind in "ch" for file in (ROOT / "src/demur/_kernels/csrc").glob(f"*.{kind}")]
    assert len(files) > 30
    named = [file.name for file in files if re.search(own, file.read_text(encoding="utf-8"))]
    assert named == ["portability.h"]


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs GCC")
def test_plain_c_is_built_and_finds_the_same(tmp_path):
    left_out = shutil.ignore_patterns("*.so", "__pycache__", "data")
    for name in NEEDED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tmp_path / name, ignore=left_out)
        else:
            shutil.copy(ROOT / name, tmp_path / name)
    flags = "-DDEMUR_PORTABLE -pedantic -Wvla"
    built = _run(["setup.py", "build_ext", "--inplace"], tmp_path, CC="gcc", CFLAGS=flags)
    warned = [line for line in built.stderr.splitlines() if "warning:" in line]
    assert [line for line in warned if OF_CPYTHON not in line] == []
    assert list(tmp_path.glob("src/demur/_kernels/_engine*.so"))
    files = [f"tests/property/{name}.py" for name in TESTS]
    options = ["-q", "-p", "no:cacheprovider", "-k", "not numpy", *files]
    chosen = {"DEMUR_ENGINE": "compiled", "DEMUR_CASES": "100"}
    found = _run(["-m", "pytest", *options], tmp_path, PYTHONPATH=str(tmp_path / "src"), **chosen)
    assert "skipped" not in found.stdout, found.stdout


def _run(arguments, folder, **environment):
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done
