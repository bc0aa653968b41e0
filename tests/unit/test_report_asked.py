"""What a page says was asked for: every model by its own words, options and sliders."""

import math
import shlex

import numpy as np
import pytest
from reports import make_sample

import demur as dm
from demur.core.wording import command_options
from demur.report import Report
from demur.report.page_data import (
    beside,
    controls,
    first_mode,
    modes,
    page_data,
    start,
    stated_mode,
)
from demur.report.summary import WORST_FPR

SAMPLE = make_sample(3, 200, 120)


def grouped():
    rng = np.random.default_rng(0)
    return dm.Sample(
        SAMPLE.id_scores,
        SAMPLE.id_loss,
        SAMPLE.ood_scores,
        score_names=("msp", "knn"),
        id_group=rng.choice(["rare", "usual"], 200),
    )


def report_on(model, sample=SAMPLE, **options):
    return Report.of(sample, dm.tune(sample, model, **options))


@pytest.mark.parametrize(
    ("model", "mode"),
    [
        (dm.TprFprModel(0.4, 0.2), "tprfpr"),
        (dm.TprFprModel(0.4), "tprfpr"),
        (dm.RiskFprModel(0.1, 0.3), "risk"),
        (dm.RiskFprModel(0.1), "risk"),
        (dm.PrecisionRecallModel(0.8, 0.4, 0.1), "pr"),
        (dm.CostModel(0.2, 2, 0.5, 0.1), "cost"),
        (dm.RejectionModel("fpr", [dm.Bound("tpr", at_least=0.4)]), None),
        (
            dm.RejectionModel(
                "selective_risk",
                [dm.Bound("tpr", at_least=0.4), dm.Bound("selective_risk", at_most=0.2)],
            ),
            None,
        ),
    ],
)
def test_a_page_starts_with_the_model(model, mode):
    report = report_on(model)
    assert stated_mode(model) == mode
    assert first_mode(report) == (mode or "tprfpr")
    assert first_mode(report) in modes(report)
    assert (beside(report) is None) == (mode is not None)
    data = page_data(report)
    if mode is None:
        # No slider says it, so what is copied is the model itself.
        assert eval(data["asked"][1], {"dm": dm}) == model
        assert report.asked in beside(report)
    else:
        assert data["asked"] is None


def test_a_bound_on_the_risk_starts_at_the_bound():
    assert start(report_on(dm.RiskFprModel(0.123, 0.045)))["risk"] == "0.123"
    # Elsewhere a little above the rule's own, so that the rule is found.
    report = report_on(dm.TprFprModel(0.4, 0.2))
    assert report.tuned.point.selective_risk <= float(start(report)["risk"])


def test_every_control_is_there_once():
    names = [
        one.name
        for group in controls(report_on(dm.TprFprModel(0.4, 0.2))).values()
        for one in group
    ]
    assert len(names) == len(set(names)) == 9
    graded = dm.Sample(SAMPLE.id_scores, SAMPLE.id_loss * 0.7, SAMPLE.ood_scores)
    found = {
        one.name: one.is_share
        for group in controls(report_on(dm.TprFprModel(0.4, 0.2), graded)).values()
        for one in group
    }
    # A mean loss has no per cent.
    assert not found["risk"] and found["tpr"]


def test_bounds_on_groups_are_copied_and_said():
    sample = grouped()
    model = dm.RejectionModel(
        "selective_risk",
        [
            dm.Bound("tpr", at_least=0.4),
            dm.Bound("fpr", at_most=0.3),
            dm.Bound("tpr", at_least=0.5, group="rare"),
        ],
    )
    report = report_on(model, sample)
    assert not report.is_choice
    options, code = page_data(report)["asked"]
    assert eval(code, {"dm": dm}) == model
    assert shlex.split(options) == [
        *("--min-tpr", "0.4", "--max-fpr", "0.3", "--bound", "tpr of rare >= 0.5"),
    ]
    assert "TPR ≥ 0.5 of rare" in beside(report)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (dm.TprFprModel(0.8, 0.1), ["--min-tpr", "0.8", "--max-fpr", "0.1"]),
        (dm.RiskFprModel(0.1, 0.2), ["--max-risk", "0.1", "--max-fpr", "0.2"]),
        (
            dm.RejectionModel(
                "selective_risk",
                [dm.Bound("tpr", at_least=0.8), dm.Bound("selective_risk", at_most=0.2)],
            ),
            ["--min-tpr", "0.8", "--bound", "selective_risk <= 0.2"],
        ),
        (
            dm.RejectionModel("selective_risk", [dm.Bound("fpr", at_most=0.2)]),
            ["--bound", "fpr <= 0.2"],
        ),
    ],
)
def test_options_state_the_model(model, words):
    assert command_options(model) == words


def test_the_worst_set_has_its_own_interval():
    """The interval of the worst set once stood beside the FPR of all sets together."""
    fresh = make_sample(4, 300, 200)
    tuning = dm.tune(SAMPLE, dm.TprFprModel(0.4, 0.3), ood="worst")
    report = Report.of(SAMPLE, tuning, held_out=fresh)
    rates, point = report.held_out.rates, report.held_out.point
    assert rates["FPR"].interval is None
    worst = max(point.fpr_by_set.values())
    assert rates[WORST_FPR].value == worst > point.fpr
    assert rates[WORST_FPR].interval.low <= worst <= rates[WORST_FPR].interval.high
    promises = report.promises
    assert promises.column_title("FPR") == "FPR of the worst set"
    said = {one.key: one.rates["FPR"] for one in promises.statements}
    assert said["held_out"].value == worst
    assert said["tuned"].value == max(report.tuned.point.fpr_by_set.values())
    assert "FPR of all OOD together" in report.to_text()


def test_a_comparison_is_a_frame_and_a_picture():
    pytest.importorskip("matplotlib").use("Agg")
    methods = {"knn": SAMPLE.score(1), "both": SAMPLE}
    report = Report.of(SAMPLE, dm.tune(SAMPLE, dm.TprFprModel(0.4, 0.3)), methods=methods)
    found = report.comparison
    frame = found.to_frame("polars")
    assert frame.columns == ["ood", "method", "metric", "value", "low", "high", "best"]
    asked = {"ood": "all OOD rows", "method": "knn", "metric": "AUROC"}
    row = frame.filter(**asked).row(0, named=True)
    assert row["value"] == pytest.approx(dm.metrics.auroc(SAMPLE.score(1)))
    assert row["low"] < row["value"] < row["high"]
    axes = found.plot()
    assert [label.get_text() for label in axes.get_yticklabels()] == ["knn", "both"]
    with pytest.raises(dm.InvalidInputError, match="AUROC"):
        found.plot(metric="colour")
    assert repr(found).startswith("MethodComparison(knn, both: ")


def test_results_are_short():
    sample = make_sample(1, 1500, 900)
    model = dm.TprFprModel(0.3, 0.3)
    promised = dm.guarantees.tune_certified(sample, model)
    assert repr(promised).startswith("CertifiedTuning(") and len(repr(promised)) < 200
    assert "fpr <= 0.3" in repr(promised)
    certified = dm.guarantees.certify(promised.rule, make_sample(2, 500, 300), model=model)
    assert len(repr(certified)) < 250 and f"{certified.tpr.low:.4g}" in repr(certified)
    assert not math.isnan(certified.tpr.low)
