"""What the page rests on: the rules it chooses from, rounded formulas, verdicts, who is best."""

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from reports import make_sample

import demur as dm
from demur.core.points import Points
from demur.report import Report
from demur.report.choices import all_best, unbeaten
from demur.report.comparison import compare
from demur.report.explorer import explore
from demur.report.page_data import decimal_text
from demur.report.summary import Case
from demur.tuning.operating_points import operating_points
from demur.tuning.prepared import prepare


def beaten_by_a_loop(columns):
    """Return which columns (ID, loss, OOD...) no other beats, looking at all pairs of them."""

    def beats(a, b):
        better = a[0] >= b[0] and a[1] * b[0] <= b[1] * a[0]
        return better and all(x <= y for x, y in zip(a[2:], b[2:], strict=True)) and a != b

    different = set(columns)
    return {a for a in different if not any(beats(b, a) for b in different)}


@pytest.mark.parametrize("sets", [0, 1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_unbeaten_is_that_of_a_plain_loop(sets, seed):
    rng = np.random.default_rng(seed)
    masses = rng.integers(0, [[8], [5], [6], [4]][: 2 + sets], (2 + sets, 120))
    masses[0] += 1
    kept = unbeaten(masses)
    columns = [tuple(column) for column in masses.T.tolist()]
    assert {columns[k] for k in kept} == beaten_by_a_loop(columns)
    assert len(kept) == len({columns[k] for k in kept})


@pytest.mark.parametrize("kind", ["pair", "worst", "weights"])
def test_all_best_rules_are_found_and_are_those_of_tune(kind):
    sample = make_sample(3, 40, 21)
    ood = "worst" if kind == "worst" else "pooled"
    if kind == "weights":
        rng = np.random.default_rng(0)
        sample = dm.Sample(
            sample.id_scores, rng.random(40), sample.ood_scores, id_weight=rng.random(40)
        )
    case = Case(sample, dm.tune(sample, dm.TprFprModel(0.5, 0.5), ood=ood))
    points = Points.of(sample, ood)
    columns = [
        (int(a), int(b), *map(int, c))
        for batch in operating_points(points, "nonneg", None)
        for a, b, *c in np.vstack([batch.id, batch.loss, batch.ood]).T.tolist()
        if a > 0
    ]
    found = all_best(case, prepare(sample, ood=ood))
    assert len(found.lines) == len(beaten_by_a_loop(columns)) and found.widest
    for *direction, threshold in found.lines[:: max(1, len(found.lines) // 12)].tolist():
        rule = dm.Rule(tuple(direction), threshold, score_names=sample.score_names)
        accepted = dm.evaluate(rule, sample)
        if kind == "weights":
            continue
        rates = [accepted.fpr] if ood == "pooled" else accepted.fpr_by_set.values()
        tpr, fpr = (Fraction(rate).limit_denominator(99) for rate in (accepted.tpr, max(rates)))
        tuned = dm.tune(sample, dm.TprFprModel(tpr, fpr), ood=ood)
        assert tuned.point.selective_risk <= accepted.selective_risk
        if ood == "pooled":
            assert tuned.rule == rule


def test_a_rounded_formula_accepts_the_same_rows():
    rng = np.random.default_rng(0)
    # Scores a hair apart and of very different sizes, where four digits decide otherwise.
    id_scores = np.column_stack([1 + 1e-6 * rng.random(60), 1e5 * rng.random(60)])
    ood_scores = np.column_stack([1 + 2e-6 * rng.random(40), 1e5 * (0.2 + rng.random(40))])
    sample = dm.Sample(id_scores, rng.random(60) < 0.2, ood_scores)
    fresh = dm.Sample(id_scores[:30] * 1.0000001, np.zeros(30), ood_scores[:20])
    case = Case(sample, dm.tune(sample, dm.TprFprModel(0.5, 0.5)), fresh)
    explorer = explore(case)
    for line, digits in zip(explorer.lines.tolist(), explorer.digits.tolist(), strict=True):
        rounded = [float(f"{value:.{digits}g}") for value in line]
        for rows in (sample, fresh):
            for scores in (rows.id_scores, rows.ood_scores):
                exact = [a * line[0] + b * line[1] <= line[2] for a, b in scores.tolist()]
                shown = [a * rounded[0] + b * rounded[1] <= rounded[2] for a, b in scores.tolist()]
                assert exact == shown
    assert explorer.digits.min() >= 3 and explorer.digits.max() > 5


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.1, "0.1"), (1e-7, "0.0000001"), (20, "20"), (100.0, "100"), (0.0005, "0.0005"), (0, "0")],
)
def test_bounds_are_the_decimals_they_were_given_as(value, text):
    assert decimal_text(value) == text


def judged(n_id, n_ood, fpr, *, held=True):
    scores = np.linspace(0, 1, n_id)
    sample = dm.Sample(scores, np.zeros(n_id), np.linspace(0.95, 2, n_ood))
    fresh = dm.Sample(scores, np.zeros(n_id), np.linspace(1 - 2 * fpr, 2, n_ood))
    tuning = dm.tune(sample, dm.TprFprModel(0.5, 0.2))
    return Report.of(sample, tuning, held_out=fresh if held else None)


def test_three_states():
    proven, seen = judged(2000, 1000, 0.01), judged(30, 12, 0.01)
    assert proven.verdict.state == "proven"
    assert "2,000 ID and 1,000 OOD held-out rows" in proven.verdict.text
    assert seen.verdict.state == "seen" and "30 ID and 12 OOD" in seen.verdict.text
    missed = judged(2000, 1000, 0.9)
    assert missed.verdict.state == "missed" and "FPR ≤ 0.2 is missed" in missed.verdict.text
    flattering = judged(2000, 1000, 0.01, held=False)
    assert flattering.verdict.state == "seen" and "tuned on" in flattering.verdict.text
    page = seen.to_html()
    assert 'class="verdict seen"' in page and 'class="verdict proven"' not in page
    assert '<span class="state seen">FPR ≤ 0.2: seen</span>' in page


def test_few_rows_are_told_as_counts():
    few = dm.Sample([0.1, 0.2, 0.3, 0.9], [0, 0, 1, 1], ood_scores=[0.25, 0.8])
    report = Report.of(few, dm.tune(few, dm.TprFprModel(0.5, 0.5)))
    assert "answers 2 of 4 familiar inputs" in report.decision
    assert "0 of 2 foreign inputs" in report.decision


def test_copies_of_one_method_have_no_best():
    sample, fresh = make_sample(0), make_sample(1)
    rng = np.random.default_rng(0)

    def jittered(rows):
        noise = [1 + 1e-3 * rng.standard_normal(len(s)) for s in (rows.id_scores, rows.ood_scores)]
        return dm.Sample(
            rows.id_scores[:, 1] * noise[0], rows.id_loss, rows.ood_scores[:, 1] * noise[1]
        )

    methods = {f"copy {k}": (jittered(sample), jittered(fresh)) for k in range(6)}
    case = Case(sample, dm.tune(sample, dm.TprFprModel(0.5, 0.5)), fresh)
    (block,) = compare(methods, case).blocks
    assert block.standing.best == {}
    assert len({round(row["AUROC"], 6) for row in block.values.values()}) > 1
    # A method that is worlds apart is best, and its interval says so.
    far = dm.Sample(np.zeros(300), sample.id_loss, np.ones(150))
    (block,) = compare(methods | {"far": (far, far)}, case).blocks
    assert block.standing.best["AUROC"] == "far"
    for name, metric in product(block.values, ("AUROC", "FPR, held out")):
        ends, value = block.standing.intervals[name][metric], block.values[name][metric]
        assert ends.low <= value <= ends.high


def test_a_method_that_misses_its_bounds_is_never_best():
    sample = make_sample(0)
    loss = np.zeros(300)
    loss[::3] = 1
    good = dm.Sample(sample.id_scores[:, 1], loss * 0, sample.ood_scores[:, 1])
    wrong = dm.Sample(sample.id_scores[:, 1], loss, sample.ood_scores[:, 1])
    # The first never errs, but lets all foreign inputs of the held-out rows pass.
    leaky = dm.Sample(sample.id_scores[:, 1], loss * 0, np.full(150, -9.0))
    methods = {"leaky": (good, leaky), "plain": (wrong, wrong)}
    case = Case(sample, dm.tune(sample, dm.TprFprModel(0.5, 0.5)), make_sample(1))
    (block,) = compare(methods, case).blocks
    assert block.standing.missed["leaky"] == ("FPR, held out",)
    assert "selective risk, held out" not in block.standing.best
    assert not math.isnan(block.values["leaky"]["selective risk, held out"])
