"""What keeps the package a place where things are found."""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import demur
from demur._kernels.engines import engine_name

PACKAGE = Path(demur.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
TEMPLATES = [file for file in (PACKAGE / "report" / "templates").rglob("*") if file.is_file()]


def test_the_package_is_of_a_size_to_be_known():
    assert len(FILES) <= 175
    rooms = Counter(file.parent for file in FILES if file.name != "__init__.py")
    rooms += Counter(file.parent for file in TEMPLATES)
    assert max(rooms.values()) <= 15


def test_no_class_name_twice():
    names = Counter()
    for file in FILES:
        names.update(set(re.findall(r"^class _*(\w+)", file.read_text(encoding="utf-8"), re.M)))
    assert [name for name, files in names.items() if files > 1] == []


def test_what_a_model_means_is_told_by_its_objective_and_bounds():
    models = r"(isinstance|issubclass)\([^()]*\b(\w*Model|ExpectedCost)\b"
    for file in FILES:
        if file.relative_to(PACKAGE).as_posix() != "core/models.py":
            assert not re.search(models, file.read_text(encoding="utf-8")), file


BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.skipif(not BENCHMARKS.is_dir(), reason="needs the repository")
@pytest.mark.skipif(engine_name() != "compiled", reason="files of the default engine are counted")
def test_a_call_runs_through_few_files():
    count = "import benchmarks.files_visited as f, pathlib, tempfile\n"
    count += "place = pathlib.Path(tempfile.mkdtemp())\n"
    count += "print(len(f.visits(f.tune_two_scores).files))\n"
    count += "print(len(f.visits(lambda: f.tune_with_report(place)).files))\n"
    run = [sys.executable, "-c", count]
    done = subprocess.run(run, cwd=BENCHMARKS.parent, capture_output=True, text=True, check=True)
    tune, with_page = map(int, done.stdout.split())
    assert tune <= 12
    assert with_page <= 40
