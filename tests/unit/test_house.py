"""What keeps the package a place where things are found."""

import re
from collections import Counter
from pathlib import Path

import demur

PACKAGE = Path(demur.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))


def test_no_class_name_twice():
    names = Counter()
    for file in FILES:
        names.update(set(re.findall(r"^class _*(\w+)", file.read_text(encoding="utf-8"), re.M)))
    assert [name for name, files in names.items() if files > 1] == []


def test_what_a_model_means_is_told_by_its_objective_and_bounds():
    models = r"isinstance\([^()]*\b(RejectionModel|TprFprModel|CostModel|PrecisionRecallModel)"
    for file in FILES:
        if file.relative_to(PACKAGE).as_posix() != "core/models.py":
            assert not re.search(models, file.read_text(encoding="utf-8")), file
