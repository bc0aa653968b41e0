"""What the report states: rates, intervals, warnings, ranks, rows."""

import json
import math
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from reports import accepted, make_sample

import demur as dm
from demur.core.wording import percent
from demur.report import Report

MODEL = dm.TprFprModel(0.7, 0.2)


def reported(sample=None, model=MODEL, *, ood="pooled", **options):
    sample = make_sample() if sample is None else sample
    return Report.of(sample, dm.tune(sample, model, ood=ood), **options)


def texts(report, level="warning"):
    return " ".join(caution.text for caution in report.cautions if caution.level == level)


def tail(successes, trials, rate):
    """Return the chance of so many successes or more."""
    return sum(
        math.comb(trials, k) * rate**k * (1 - rate) ** (trials - k)
        for k in range(successes, trials + 1)
    )


def test_rates_on_both_samples_against_a_plain_loop():
    sample, fresh = make_sample(0), make_sample(1, 260, 140)
    report = reported(sample, held_out=fresh)
    for seen, rows in ((report.tuned, sample), (report.held_out, fresh)):
        n_id, n_ood, loss = accepted(report.rule, rows)
        rates = {name: rate.value for name, rate in seen.rates.items()}
        assert rates["TPR"] == n_id / rows.n_id
        assert rates["FPR"] == n_ood / rows.n_ood
        assert rates["selective risk"] == loss / n_id
        assert seen.point.accepted_loss == loss
        only = dm.evaluate(report.rule, rows.for_ood("noise")).fpr
        assert rates["FPR of noise"] == only


def test_intervals_have_the_stated_tails():
    fresh = make_sample(1)
    report = reported(held_out=fresh, confidence=0.9)
    n_id, n_ood, loss = accepted(report.rule, fresh)
    # Three rates, both ends: each end fails with half of 1 - 0.9**(1/3).
    level = (1 - 0.9 ** (1 / 3)) / 2
    counts = {
        "TPR": (n_id, fresh.n_id),
        "FPR": (n_ood, fresh.n_ood),
        "selective risk": (int(loss), n_id),
    }
    for name, (hits, trials) in counts.items():
        interval = report.held_out.rates[name].interval
        assert tail(hits, trials, interval.low) == pytest.approx(level, rel=1e-6)
        assert 1 - tail(hits + 1, trials, interval.high) == pytest.approx(level, rel=1e-6)


def test_certificates_are_named_like_the_bounds():
    report = reported(held_out=make_sample(1, 900, 600), model=dm.TprFprModel(0.6, 0.3))
    promise = dm.guarantees.certify(
        report.rule, make_sample(1, 900, 600), model=dm.TprFprModel(0.6, 0.3)
    )
    assert list(report.held_out.certified.values()) == list(promise.met.values())
    assert list(report.held_out.certified) == ["TPR ≥ 0.6", "FPR ≤ 0.3 of all OOD sets together"]
    precise = reported(held_out=make_sample(1), model=dm.PrecisionRecallModel(0.8, 0.5, 0.3))
    assert set(precise.held_out.certified) == {
        "precision ≥ 0.8 of all OOD sets together",
        "recall ≥ 0.5",
    }


def test_the_decision_says_what_was_seen_on_held_out_rows():
    fresh = make_sample(1)
    report = reported(held_out=fresh)
    n_id, n_ood, loss = accepted(report.rule, fresh)
    assert f"answers {100 * n_id / fresh.n_id:.0f} of 100 familiar inputs" in report.decision
    assert f"{100 * loss / n_id:.1f}\u00a0% of these answers are wrong" in report.decision
    assert f"({100 * fresh.id_loss.mean():.1f}\u00a0% if it answered all)" in report.decision
    assert f"{100 * n_ood / fresh.n_ood:.0f} of 100 foreign inputs" in report.decision
    assert "held-out rows: 300 ID and 150 OOD" in report.evidence


def test_the_decision_without_ood_rows_and_with_another_loss():
    rng = np.random.default_rng(0)
    sample = dm.Sample(rng.random(80), rng.random(80) * 7)
    report = reported(sample, dm.TprFprModel(0.5))
    risk = report.tuned.rates["selective risk"].value
    assert f"the mean loss of these answers is {risk:.4g}" in report.decision
    assert "foreign" not in report.decision
    assert report.tuned.rates["selective risk"].interval is None
    assert "max_loss" in texts(report, "note") and "no OOD rows" in texts(report)
    bounded = reported(sample, dm.TprFprModel(0.5), max_loss=7)
    assert risk in bounded.tuned.rates["selective risk"].interval


def test_rejecting_everything_is_said_plainly():
    hopeless = dm.Sample([[1, 2], [2, 1]], [1, 1], ood_scores=[[0, 0]])
    report = reported(hopeless, dm.CostModel(0.5, 1, 0, 0.5))
    assert report.decision.startswith("Answer no input")
    assert math.isnan(report.tuned.rates["selective risk"].value)
    assert "undefined" in report.to_text() and "never" in report.to_html()


def test_warnings_appear_when_they_should():
    assert "no held-out rows" in texts(reported())
    assert "Few OOD rows: 60" in texts(reported(make_sample(0, 300, 60)))
    tight = reported(make_sample(0, 300, 150), dm.TprFprModel(0.2, 0.05))
    assert "150 to tune on, of which the bound lets 7.5 pass" in texts(tight)
    fresh = make_sample(1)
    assert "no held-out rows" not in texts(reported(held_out=fresh))
    for report in (reported(), reported(held_out=fresh)):
        assert "only for them" in texts(report, "note")


def test_bounds_at_the_edge_are_told():
    sample = make_sample(0)
    most = 0
    for percent_ in range(101):
        try:
            dm.tune(sample, dm.TprFprModel(percent_ / 100, 0.1))
        except dm.InfeasibleError:
            break
        most = percent_
    edge = f"TPR ≥ {(most + 1) / 100:g}"
    at_the_edge = reported(sample, dm.TprFprModel(most / 100, 0.1))
    assert f"{edge} or FPR ≤ 0.09 could not be met" in texts(at_the_edge) or (
        f"{edge} could not be met" in texts(at_the_edge)
    )
    assert "edge" not in texts(reported(sample, dm.TprFprModel((most - 9) / 100, 0.1)))


def test_a_bound_that_is_used_up_is_told():
    # ID and OOD rows take turns: ten of twenty OOD rows may pass, and do.
    sample = dm.Sample(np.arange(20), np.zeros(20), ood_scores=np.arange(20) + 0.5)
    assert "uses up the bound FPR ≤ 0.5" in texts(reported(sample, dm.TprFprModel(0.5, 0.5)))
    apart = dm.Sample(np.arange(20), np.zeros(20), ood_scores=np.arange(20) + 30)
    assert "uses up" not in texts(reported(apart, dm.TprFprModel(0.5, 0.5)))


def test_held_out_rows_that_differ_are_told():
    sample = make_sample(0)
    foreign = dm.Sample(sample.id_scores, sample.id_loss, sample.ood_scores - [0, 3])
    report = reported(sample, held_out=foreign)
    fpr = report.held_out.rates["FPR"].value
    missed = "FPR ≤ 0.2 of all OOD sets together"
    assert f"{missed} is missed: it is {fpr:.4f}" in texts(report)
    assert report.verdict.state == "missed" and f"{missed} is missed" in report.verdict.text
    assert "apart in FPR" in texts(report) and "apart in TPR" not in texts(report)


def fisher(one, other):
    """Sum the chances of all tables with these margins that are not likelier than the seen one."""
    (a, n), (b, m) = one, other
    chances = [
        Fraction(math.comb(n, k) * math.comb(m, a + b - k), math.comb(n + m, a + b))
        for k in range(max(0, a + b - m), min(n, a + b) + 1)
    ]
    seen = Fraction(math.comb(n, a) * math.comb(m, b), math.comb(n + m, a + b))
    return float(sum(chance for chance in chances if chance <= seen))


def test_one_row_more_on_held_out_rows_is_chance():
    # No error in tuning and one held out, all ID rows accepted in tuning and all but one held out.
    def rows(wrong, rejected):
        scores = np.r_[np.zeros(160 - rejected), np.full(rejected, 9.0)]
        return dm.Sample(scores, np.arange(160) < wrong, ood_scores=np.arange(160) / 16 + 1)

    report = reported(rows(0, 0), dm.TprFprModel(1, 0.2), held_out=rows(1, 1))
    assert report.tuned.rates["TPR"].value == 1 > report.held_out.rates["TPR"].value
    assert report.held_out.rates["selective risk"].value == 1 / 159
    assert "are apart" not in texts(report)
    # Each of the three rates is tested at 1 - 0.95 ** (1/3) = 0.01695.
    told = {}
    for wrong in range(12):
        told[wrong] = "apart in selective risk" in texts(
            reported(rows(0, 0), dm.TprFprModel(1, 0.2), held_out=rows(wrong, 0))
        )
        assert told[wrong] == (fisher((0, 160), (wrong, 160)) < 1 - 0.95 ** (1 / 3))
    assert not told[6] and told[7]


def test_graded_losses_are_apart_when_their_intervals_do_not_meet():
    rng = np.random.default_rng(0)
    scores, losses = np.zeros(300), rng.random(300) * 2

    def told(fresh, **options):
        rows = dm.Sample(scores, fresh, ood_scores=[1, 2])
        found = reported(
            dm.Sample(scores, losses, ood_scores=[1, 2]),
            dm.TprFprModel(0.5, 0.5),
            held_out=rows,
            **options,
        )
        old, new = (seen.rates["selective risk"].interval for seen in (found.tuned, found.held_out))
        meet = old is None or (old.low <= new.high and new.low <= old.high)
        assert ("apart in selective risk" in texts(found)) == (not meet)
        return not meet, new is not None and losses.mean() not in new

    assert told(losses[::-1] * 0.97, max_loss=2) == (False, False)
    # Outside the other's interval, but by less than both are uncertain.
    assert told(losses * 0.87, max_loss=2) == (False, True)
    assert told(losses * 0.5, max_loss=2) == (True, True)
    assert told(losses * 0.5) == (False, False)


def test_unused_score_and_grid_are_told():
    rng = np.random.default_rng(0)
    wrong = rng.random(200) < 0.2
    useful = rng.normal(2 * wrong, 0.3)
    sample = dm.Sample(np.column_stack([useful, np.zeros(200)]), wrong)
    assert "does not use the second score" in texts(reported(sample, dm.TprFprModel(0.6)))
    sample = make_sample()
    tuning = dm.tune(sample, MODEL, search=dm.Grid(8), directions="nonneg")
    assert "grid of angles" in texts(Report.of(sample, tuning, search=dm.Grid(8)))


def test_worst_set_is_what_the_bound_is_about():
    sample, fresh = make_sample(0, 400, 240), make_sample(1, 400, 240)
    report = reported(sample, dm.TprFprModel(0.5, 0.3), ood="worst", held_out=fresh)
    seen = dm.evaluate(report.rule, fresh)
    worst = report.held_out.rates["largest FPR of a set"].value
    assert worst == max(seen.fpr_by_set.values()) != seen.fpr
    assert list(report.held_out.certified) == ["TPR ≥ 0.5", "FPR ≤ 0.3 of every set"]
    assert report.command == "" and 'ood="worst"' in report.arguments
    assert "FPR ≤ 0.3 of every set" in report.asked and "of every set" in report.verdict.text


def test_weights_leave_no_intervals():
    sample = make_sample()
    weighted = dm.Sample(
        sample.id_scores, sample.id_loss, sample.ood_scores, id_weight=np.full(300, 0.5)
    )
    report = reported(weighted)
    assert all(rate.interval is None for rate in report.tuned.rates.values())
    assert "weights" in texts(report, "note")


def test_methods_are_ranked_by_each_metric():
    sample, fresh = make_sample(0), make_sample(1)
    methods = {
        "msp": (sample.score(0), fresh.score(0)),
        "knn": (sample.score(1), fresh.score(1)),
        "both": (sample, fresh),
    }
    found = reported(sample, methods=methods).comparison
    assert [block.ood for block in found.blocks] == ["all OOD rows", "svhn", "noise"]
    block = found.blocks[1]
    part = sample.score(1).for_ood("svhn")
    assert block.values["knn"]["AUROC"] == dm.metrics.auroc(part)
    assert block.values["knn"]["OSCR/all"] == dm.metrics.oscr(part, per="all")
    assert block.values["knn"]["FPR@TPR 0.95"] == dm.metrics.fpr_at_tpr(part, 0.95)
    tuned = dm.tune(sample.for_ood("svhn"), MODEL)
    held = dm.evaluate(tuned.rule, fresh.for_ood("svhn"))
    assert block.values["both"]["selective risk"] == tuned.point.selective_risk
    assert block.values["both"]["selective risk, held out"] == held.selective_risk
    assert block.values["both"]["FPR, held out"] == held.fpr
    for metric in found.metrics:
        if metric.better == "neither":
            continue
        for one, other in combinations(methods, 2):
            a, b = (block.values[name][metric.name] for name in (one, other))
            if round(a, metric.digits) == round(b, metric.digits) or math.isnan(a + b):
                continue
            first = a < b if metric.better == "lower" else a > b
            ranks = [block.ranks[name][metric.name] for name in (one, other)]
            assert (ranks[0] < ranks[1]) == first


def test_unable_has_no_rank_and_equals_share_one():
    sample = make_sample(0)
    methods = {"a": sample.score(1), "same": sample.score(1), "poor": sample.score(0)}
    block = reported(sample, methods=methods).comparison.blocks[0]
    with pytest.raises(dm.InfeasibleError):
        dm.tune(sample.score(0), MODEL)
    assert block.ranks["poor"]["selective risk"] is None
    assert [block.ranks[name]["AUROC"] for name in methods] == [1, 1, 3]


def test_disagreement_of_auroc_and_oscr_is_counted():
    # Score "far" finds OOD rows and no errors, score "risk" errors and no OOD rows.
    wrong = np.tile([0, 0, 0, 1], 10)
    risk, far = wrong + np.arange(40) / 100, np.arange(40) / 100
    ood_risk, ood_far = np.arange(40) / 100, 2 + np.arange(40) / 100
    sample = dm.Sample(
        np.column_stack([risk, far]), wrong, ood_scores=np.column_stack([ood_risk, ood_far])
    )
    methods = {"risk": sample.score(0), "far": sample.score(1)}
    block = reported(sample, dm.TprFprModel(0.5), methods=methods).comparison.blocks[0]
    expected = "AUROC and OSCR/accepted order 1 of 1 pairs of methods differently"
    assert [text for text in block.disagreements if expected in text] == [
        f"{expected}: AUROC puts far first, OSCR/accepted risk."
    ]


def test_rows_nearest_to_the_boundary():
    sample = make_sample()
    names = [f"i{k}" for k in range(300)], [f"o{k}" for k in range(150)]
    report = reported(sample, ids=names)
    rule = report.rule
    rows = []
    for k, scores in enumerate([*sample.id_scores.tolist(), *sample.ood_scores.tolist()]):
        doubt = sum(w * s for w, s in zip(rule.direction, scores, strict=True))
        kind = "ID" if k < 300 else ("svhn" if k < 375 else "noise")
        rows.append((doubt, [*names[0], *names[1]][k], kind))
    below = sorted((row for row in rows if row[0] <= rule.threshold), reverse=True)
    above = sorted(row for row in rows if row[0] > rule.threshold)
    for found, expected in ((report.doubtful.accepted, below), (report.doubtful.rejected, above)):
        assert [rule.threshold - row.margin for row in found] == pytest.approx(
            [doubt for doubt, *_ in expected[:10]], abs=1e-12
        )
        assert {(row.id, row.kind) for row in found} <= {(i, kind) for _, i, kind in expected[:14]}
    assert all(row.loss is None for row in report.doubtful.accepted if row.kind != "ID")


def test_plain_data_is_strict_json_and_complete():
    sample = make_sample()
    report = reported(sample, held_out=make_sample(1), methods={"a": sample, "b": sample.score(0)})
    data = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert dm.Rule.from_json(json.dumps(data["rule"])) == report.rule
    assert data["comparison"]["ood_sets"][0]["values"]["b"]["selective risk"] is None
    number = data["explorer"]["cells"][70][20]
    *direction, threshold = data["explorer"]["rules"][number]
    point = dm.tune(sample, MODEL).point
    assert dm.evaluate(dm.Rule(tuple(direction), threshold), sample) == point
    assert data["explorer"]["tuned"]["accepted_id"][number] == point.accepted_id


def test_text_has_the_decision_the_numbers_and_the_comparison():
    sample = make_sample()
    report = reported(sample, methods={"a": sample, "b": sample.score(0)})
    text = report.to_text()
    assert " ".join(text.split()).startswith(
        f"When to answer {report.verdict.title}. {report.verdict.text} {report.decision}".replace(
            "\u00a0", " "
        )
    )
    assert f"{report.tuned.rates['selective risk'].value:.5f}" in text
    assert "unable" in text and "WARNING: There are no held-out rows." in text


def test_wrong_input_is_refused():
    sample = make_sample()
    tuning = dm.tune(sample, MODEL)
    with pytest.raises(dm.InvalidInputError, match="not the one that was tuned on"):
        Report.of(make_sample(0, 299), tuning)
    with pytest.raises(dm.InvalidInputError, match="held_out has 1 scores"):
        Report.of(sample, tuning, held_out=sample.score(0))
    with pytest.raises(dm.InvalidInputError, match=r"ids\[0\] has 3 rows, expected 300"):
        Report.of(sample, tuning, ids=(["a", "b", "c"], list(range(150))))
    with pytest.raises(dm.InvalidInputError, match="ids must be a pair"):
        Report.of(sample, tuning, ids=list(range(450)))
    with pytest.raises(dm.InvalidInputError, match="methods"):
        Report.of(sample, tuning, methods={"a": 3})


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0.0"), (1, "100.0"), (0.0004, "below 0.1"), (0.9996, "above 99.9"), (0.0449, "4.5")],
)
def test_shares_are_not_rounded_to_nothing_or_everything(value, text):
    assert percent(value) == f"{text}\u00a0%"
