"""Table 1 of the paper, against values derived independently and against the printed ones."""

import json
import math
import subprocess
import sys

import pytest

import demur as dm
from demur.reproduce.synthetic import PRINTED, table1

CORRECTED, AS_PRINTED = "OOD mean 2 (corrected)", "OOD mean 3 (as the text says)"
# Numerical integration by another program, OOD mean 2; NaN = unable, None = not derived.
KNOWN = {
    "A": (0.1585, 0.1585, 0.8782, 0.9620, 0.8198, 0.7188),
    "B": (0.1418, 0.1418, 0.8649, 0.9543, 0.8267, 0.7112),
    "C": (math.nan, math.nan, 0.7576, 0.9139, 0.8619, 0.6446),
    "D": (0.1259, 0.1242, 0.8782, 0.9620, 0.8619, None),
}
FIELDS = ("risk_at_tpr_fpr", "risk_at_precision_recall", "auroc", "aupr", "oscr_accepted")


@pytest.fixture(scope="module")
def table():
    return table1(n=1000, seed=1)


@pytest.mark.parametrize("method", KNOWN)
def test_population_values(table, method):
    ours = table.values[CORRECTED]["population"][method]
    for field, known in zip((*FIELDS, "oscr_all"), KNOWN[method], strict=True):
        if known is not None:
            assert getattr(ours, field) == pytest.approx(known, abs=2e-4, nan_ok=True), field


@pytest.mark.parametrize("method", ["A", "B", "C"])
def test_single_score_rows_fit_the_printed_table_with_mean_2_only(table, method):
    printed = PRINTED[method]
    ours = table.values[CORRECTED]["population"][method]
    for field in FIELDS:
        # Two printed decimals, and a sample of unknown size behind them.
        assert getattr(ours, field) == pytest.approx(
            getattr(printed, field), abs=0.007, nan_ok=True
        )
    other = table.values[AS_PRINTED]["population"][method]
    assert (
        max(abs(getattr(other, f) - getattr(printed, f)) for f in ("auroc", "oscr_accepted")) > 0.03
    )


def test_the_exact_double_score_beats_the_printed_one(table):
    ours, printed = table.values[CORRECTED]["population"]["D"], PRINTED["D"]
    assert ours.risk_at_tpr_fpr < printed.risk_at_tpr_fpr - 0.005
    assert ours.risk_at_precision_recall < printed.risk_at_precision_recall - 0.003
    assert table.optimal_degrees == pytest.approx((2.49, 1.58), abs=0.05)


def test_sample_rows_are_what_the_public_functions_give(table):
    sample = dm.population.CORRECTED.sample(1000, 1)
    ours = table.values[CORRECTED]["sample n=1000, seed 1"]
    tuned = dm.tune(sample, dm.TprFprModel(0.7, 0.2))
    assert ours["D"].risk_at_tpr_fpr == tuned.point.selective_risk
    assert ours["A"].auroc == dm.metrics.auroc(sample.score(1))
    assert math.isnan(ours["C"].risk_at_tpr_fpr)
    assert ours["D"].auroc >= max(ours[m].auroc for m in "ABC")


def test_printed_output(table):
    text = str(table)
    assert text.count("unable") == 12
    assert "method C has AUROC 0.37" in text
    assert "2.5 degrees" in text
    plain = json.loads(json.dumps(table.as_dict(), allow_nan=False))
    assert plain["printed"]["C"]["risk_at_tpr_fpr"] is None


def test_commands(tmp_path):
    def run(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "demur", "reproduce", *arguments],
            capture_output=True,
            text=True,
        )

    done = run("table1", "--n", "300", "--seed", "2", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ours"][CORRECTED]["sample n=300, seed 2"]["A"]["auroc"] > 0.8
    done = run("figures", "-o", str(tmp_path / "out"), "--n", "300")
    assert done.returncode == 0, done.stderr
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    stems = ["precision-recall", "risk-coverage", "roc"]
    assert names == sorted(f"{stem}.{kind}" for stem in stems for kind in ("png", "svg"))
    assert (tmp_path / "out" / "roc.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "out" / "roc.svg").read_text()
    (tmp_path / "file").write_text("")
    done = run("figures", "-o", str(tmp_path / "file"), "--n", "300")
    assert done.returncode == 2
    done = run("table1", "--n", "-5")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
