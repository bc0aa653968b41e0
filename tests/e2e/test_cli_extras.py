"""Without pyarrow (and any data-frame library) NPZ files still go all the way."""

import json
import subprocess
import sys

from commands import ENVIRONMENT, make_table, write_table

import demur as dm

BLOCKED = ("pyarrow", "pandas", "polars", "narwhals", "scipy")
MAIN = f"""
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {BLOCKED}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name.split(".")[0])
sys.meta_path.insert(0, Blocker())
from demur.cli import main
main()
"""


def run_without_extras(folder, *arguments):
    return subprocess.run(
        [sys.executable, "-c", MAIN, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
    )


def test_numpy_is_enough_for_npz(tmp_path):
    table = make_table()
    write_table(table, tmp_path / "s.npz")
    columns = ["--loss", "is_wrong", "--ood", "set"]
    bounds = ["--min-tpr", ".8", "--max-fpr", ".1"]
    done = run_without_extras(
        tmp_path, "tune", "s.npz", "--scores", "msp,knn", *columns, *bounds, "-o", "r.json"
    )
    assert done.returncode == 0, done.stderr
    done = run_without_extras(tmp_path, "evaluate", "r.json", "s.npz", *columns, "--json")
    sample = dm.Sample.from_frame(table, ["msp", "knn"], loss="is_wrong", ood="set")
    expected = dm.tune(sample, dm.TprFprModel(0.8, 0.1)).point
    assert json.loads(done.stdout)["point"]["selective_risk"] == expected.selective_risk
    done = run_without_extras(tmp_path, "apply", "r.json", "s.npz", "-o", "o.npz", "--json")
    accepted = expected.accepted_id + expected.accepted_ood
    assert json.loads(done.stdout)["accepted"] == accepted


def test_the_missing_extra_is_named(tmp_path):
    (tmp_path / "s.csv").write_text("s,loss\n1,0\n")
    done = run_without_extras(
        tmp_path, "tune", "s.csv", "--scores", "s", "--loss", "loss", "--min-tpr", ".5"
    )
    assert done.returncode == 2
    assert "pip install 'demur[files]'" in done.stderr
