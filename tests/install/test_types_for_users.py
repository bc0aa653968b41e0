"""`py.typed` serves: what users write passes mypy strict, and results are not Any."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Lists, dicts and booleans go in; what comes out has a type.
USER_CODE = """
from typing import assert_type

import numpy as np

import demur as dm

plain = dm.Sample([0.1, 0.2], [0, 1], {"svhn": [0.5, 0.6], "dtd": [0.7]}, id_weight=[1, 2])
pairs = dm.Sample(
    [[0.1, 0.2], [0.3, 0.4]], [False, True], {"svhn": np.zeros((3, 2))}, score_names=["a", "b"]
)
columns = {"a": [0.1, 0.3], "b": [0.2, 0.4]}
named = dm.Sample(columns, [0, 1], {"svhn": {"a": [0.5], "b": [0.6]}})
assert_type(dm.tune(named, dm.TprFprModel(0.5, 0.5)), dm.Tuning)
tuned = dm.tune(dm.prepare(pairs), dm.TprFprModel(0.5, 0.5))
assert_type(tuned, dm.Tuning)
assert_type(dm.prepare(pairs), dm.Prepared)
assert_type(tuned.rule.accept([[0.1, 0.2]]).dtype, np.dtype[np.bool_])
assert_type(dm.evaluate(tuned.rule, pairs).tpr, float)
assert_type(dm.guarantees.certify(tuned.rule, pairs).tpr.low, float)
# An area says what it may lack, and passes wherever a float is asked.
assert_type(dm.metrics.auroc(plain), dm.metrics.CurveArea)
area: float = dm.metrics.auroc(plain)
areas: list[float] = [dm.metrics.auroc(plain), dm.metrics.aupr(plain), dm.metrics.oscr(plain)]
assert_type(dm.metrics.auroc(pairs).upper, float)
assert_type(dm.metrics.auroc(plain) + 0.1, float)
assert_type(dm.frontier(pairs), dm.Frontier)
source: dm.ScoreSource = dm.open_source("scores.parquet", ["a", "b"], loss="wrong")
assert_type(dm.evaluate(tuned.rule, source), dm.OperatingPoint)
model = dm.RejectionModel("tpr", [dm.Bound("selective_risk", at_most=0.01)])
assert_type(model.bound("tpr"), dm.Bound | None)
assert_type(dm.__version__, str)
print(dm.adapters.sklearn.SelectiveClassifier, dm.adapters.torch.SelectiveModule)
"""


def strict(code, folder):
    api = pytest.importorskip("mypy.api")
    file = folder / "user_code.py"
    file.write_text(code)
    printed, errors, status = api.run(
        ["--strict", "--config-file", "", "--cache-dir", str(folder.parent / "cache"), str(file)]
    )
    # Packages without types of their own are not the user's concern here.
    wrong = [line for line in printed.splitlines() if line.startswith(str(file))]
    assert not wrong and not errors, "\n".join([*wrong, errors])
    return status


def test_what_users_write_is_typed(tmp_path):
    strict(USER_CODE, tmp_path)


def test_the_readme_passes(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert blocks
    strict("\n".join(blocks), tmp_path)
