"""The panel "What you can promise": numbers of `demur.guarantees`, and of plain loops."""

import json
import math

import numpy as np
import pytest
from reports import HOSTILE, accepted, make_sample
from scipy.stats import beta

import demur as dm
from demur import guarantees
from demur.core.wording import Range, range_text
from demur.report import Report
from demur.report.promises import prior_text

MODEL = dm.TprFprModel(0.6, 0.3)
SAMPLE, FRESH = make_sample(0, 400, 200), make_sample(1, 500, 260)


@pytest.fixture(scope="module")
def evidence():
    tuning = dm.tune(SAMPLE, MODEL)
    in_use = np.concatenate([FRESH.id_scores, FRESH.ood_scores[:60]])
    return {
        "cross": guarantees.cross_tune(SAMPLE, MODEL, folds=4),
        "bootstrap": guarantees.bootstrap(SAMPLE, MODEL, replicates=30),
        "guaranteed": guarantees.tune_certified(SAMPLE, MODEL),
        "prior_range": (0.02, 0.2),
        "prior_estimate": guarantees.estimate_prior(tuning.rule, in_use, validation=FRESH),
    }


@pytest.fixture(scope="module")
def report(evidence):
    return Report.of(SAMPLE, dm.tune(SAMPLE, MODEL), held_out=FRESH, **evidence)


def statement(report, key):
    return next(s for s in report.to_dict()["promises"]["statements"] if s["key"] == key)


def test_estimates_are_those_of_the_guarantees(report, evidence):
    keys = [s["key"] for s in report.to_dict()["promises"]["statements"]]
    assert keys == ["tuned", "cross", "bootstrap", "held_out", "certified", "guaranteed"]
    folds = evidence["cross"].held_out
    assert statement(report, "cross")["rates"]["selective risk"]["value"] == folds.selective_risk
    assert statement(report, "cross")["rates"]["TPR"]["value"] == folds.tpr
    assert len(statement(report, "cross")["details"]["folds"]) == 4
    risk = evidence["bootstrap"].measures["selective_risk"]
    shown = statement(report, "bootstrap")
    assert shown["rates"]["selective risk"] == {
        "value": risk.estimate,
        "low": risk.interval.low,
        "high": risk.interval.high,
    }
    assert shown["details"]["measures"]["fpr"]["optimism"] == (
        evidence["bootstrap"].measures["fpr"].optimism
    )
    assert f"{max(0, risk.optimism):.4f}" in shown["source"]


def test_promises_follow_from_counting_the_held_out_rows(report):
    n_id, n_ood, loss = accepted(report.rule, FRESH)
    level = 1 - 0.95 ** (1 / 3)
    tpr = beta.ppf(level, n_id, FRESH.n_id - n_id + 1)
    fpr = beta.ppf(1 - level, n_ood + 1, FRESH.n_ood - n_ood)
    risk = beta.ppf(1 - level, loss + 1, n_id - loss)
    rates = statement(report, "certified")["rates"]
    assert rates["TPR"] == {"value": None, "low": pytest.approx(tpr), "high": None}
    assert rates["FPR"]["high"] == pytest.approx(fpr)
    assert rates["selective risk"]["high"] == pytest.approx(risk)
    # The worst precision over the interval of priors, by trying many of them.
    priors = np.linspace(0.02, 0.2, 500)
    worst = ((1 - priors) * tpr / ((1 - priors) * tpr + priors * fpr)).min()
    assert rates["precision"] == {"value": None, "low": pytest.approx(worst), "high": None}
    seen = statement(report, "held_out")["rates"]["precision"]
    point = dm.evaluate(report.rule, FRESH)
    each = (1 - priors) * point.tpr / ((1 - priors) * point.tpr + priors * point.fpr)
    assert (seen["low"], seen["high"]) == (pytest.approx(each.min()), pytest.approx(each.max()))


def test_a_guarantee_states_the_bounds_and_the_rule(report, evidence):
    promised = evidence["guaranteed"]
    shown = statement(report, "guaranteed")
    assert shown["rates"]["TPR"]["low"] == 0.6
    assert shown["rates"]["FPR"]["high"] == 0.3
    assert shown["rates"]["selective risk"]["high"] == promised.selective_risk
    rule = dm.Rule.from_json(json.dumps(shown["details"]["rule"]))
    assert rule == promised.rule
    assert len(shown["details"]["candidates"]) == len(promised.candidates)


def test_too_few_rows_are_told_in_the_report():
    few = make_sample(0, 40, 20)
    tuning = dm.tune(few, MODEL)
    with pytest.raises(dm.InfeasibleError) as caught:
        guarantees.tune_certified(few, MODEL)
    report = Report.of(few, tuning, guaranteed=caught.value)
    assert statement(report, "guaranteed")["rates"] == {}
    assert statement(report, "guaranteed")["details"]["attainable"] == caught.value.attainable
    needed = f"{caught.value.attainable['needed_ood']:.0f} OOD rows are needed"
    assert needed in report.to_html() and needed.split()[-1] in report.to_text()


def test_the_prior_estimate_is_told(report, evidence):
    found = evidence["prior_estimate"]
    data = report.to_dict()["promises"]["prior_estimate"]
    assert (data["low"], data["high"]) == (found.interval.low, found.interval.high)
    assert f"best guess {100 * found.estimate:.1f}" in report.to_text()
    everything = guarantees.estimate_prior(report.rule, np.full((300, 2), -99.0), validation=FRESH)
    assert not everything.consistent
    text = Report.of(SAMPLE, dm.tune(SAMPLE, MODEL), prior_estimate=everything).to_text()
    assert "No share of OOD inputs explains that" in " ".join(text.split())


def test_the_interval_of_the_prior_is_rounded_outwards():
    def told(low, high):
        return prior_text(guarantees.PriorEstimate(0.1, guarantees.Interval(low, high), 0.7, 0.95))

    assert "between 5.1\u00a0% and 17.1\u00a0% of them" in told(0.0519, 0.1701)
    assert "between 0.0\u00a0% and 100.0\u00a0% of them" in told(0.0004, 0.9991)
    assert "between 5.2\u00a0% and 17.0\u00a0% of them" in told(0.052, 0.17)


def test_costs_over_a_range_of_priors():
    model = dm.CostModel(reject_id=0.3, accept_ood=1, reject_ood=0.1, ood_prior=0.1)
    tuning = dm.tune(SAMPLE, model)
    report = Report.of(SAMPLE, tuning, held_out=FRESH, prior_range=(0.05, 0.4))
    point = tuning.point
    priors = np.linspace(0.05, 0.4, 300)
    id_cost = point.tpr * point.selective_risk + 0.3 * (1 - point.tpr)
    costs = (1 - priors) * id_cost + priors * (point.fpr + 0.1 * (1 - point.fpr))
    seen = statement(report, "tuned")["rates"]["expected cost"]
    assert (seen["low"], seen["high"]) == (pytest.approx(costs.min()), pytest.approx(costs.max()))
    promised = guarantees.certify(report.rule, FRESH, model=model, ood_prior=(0.05, 0.4))
    high = statement(report, "certified")["rates"]["expected cost"]["high"]
    assert high == promised.expected_cost.high
    assert "expected cost at prior 0.05 to 0.4" in report.to_text()
    one = Report.of(SAMPLE, tuning)
    assert statement(one, "tuned")["rates"]["expected cost"]["value"] == pytest.approx(
        point.expected_cost
    )


def test_losses_without_a_declared_largest_promise_no_risk():
    rng = np.random.default_rng(0)
    graded = [
        dm.Sample(s.id_scores, s.id_loss * rng.random(s.n_id), s.ood_scores)
        for s in (SAMPLE, FRESH)
    ]
    tuning = dm.tune(graded[0], MODEL)
    rates = statement(Report.of(graded[0], tuning, held_out=graded[1]), "certified")["rates"]
    assert set(rates) == {"TPR", "FPR"}
    bounded = Report.of(graded[0], tuning, held_out=graded[1], max_loss=1)
    promised = guarantees.certify(tuning.rule, graded[1], max_loss=1)
    high = statement(bounded, "certified")["rates"]["selective risk"]["high"]
    assert high == promised.selective_risk.high


def test_results_about_something_else_are_refused(evidence):
    tuning = dm.tune(SAMPLE, dm.TprFprModel(0.5, 0.3))
    for name in ("cross", "bootstrap", "guaranteed"):
        with pytest.raises(dm.InvalidInputError, match=f"{name} is about another model"):
            Report.of(SAMPLE, tuning, **{name: evidence[name]})
    with pytest.raises(dm.InvalidInputError, match="other rows"):
        Report.of(FRESH, dm.tune(FRESH, MODEL), cross=evidence["cross"])


def test_what_is_missing_is_named_and_names_are_inert():
    sample = make_sample(0, 150, 150, names=(HOSTILE, "knn"))
    promised = guarantees.tune_certified(sample, dm.TprFprModel(0.5, 0.5))
    report = Report.of(sample, dm.tune(sample, dm.TprFprModel(0.5, 0.5)), guaranteed=promised)
    missing = report.to_dict()["promises"]["missing"]
    assert [text.split()[0] for text in missing] == ["cross-validation", "bootstrap", "held-out"]
    page = report.to_html()
    assert "What you can promise" in page and "&lt;/script&gt;" in page
    assert HOSTILE not in page


def test_promised_ends_are_never_rounded_in_our_favour():
    assert range_text(Range(low=0.77189), "TPR") == "≥ 0.7718"
    assert range_text(Range(high=0.100001), "FPR") == "≤ 0.1001"
    assert range_text(Range(high=0.07), "FPR") == "≤ 0.0700"
    assert range_text(Range(low=0.29), "TPR") == "≥ 0.2900"
    assert range_text(Range(high=0.012341), "selective risk") == "≤ 0.01235"
    assert range_text(Range(0.5, 0.41, 0.6), "TPR") == "0.5000 (0.410 \u2013 0.600)"
    assert range_text(Range(low=0.91, high=0.95), "precision") == "0.910 \u2013 0.950"
    assert range_text(Range(0.5, 0.4109, 0.6001), "TPR") == "0.5000 (0.410 \u2013 0.601)"
    assert range_text(Range(math.nan), "selective risk") == "undefined"
