"""Whatever is typed into the page, it shows what `tune` returns: counts, formula, file and link.

`DEMUR_PAGE_CASES=300 pytest tests/e2e/test_report_exact.py` is the long campaign.
"""

import os
import re

import numpy as np
import pytest
from browser import Watched, chromium
from firefox import FirefoxPage, firefox
from reports import make_sample

import demur as dm
from demur.report import Report

CASES = int(os.environ.get("DEMUR_PAGE_CASES", "36"))
KINDS = ("pair", "one", "worst", "weights", "grid", "confidence", "real", "heavy", "one worst")


@pytest.fixture(scope="module")
def browser():
    with chromium() as found:
        yield found


def sample_of(kind):
    sample = make_sample(7, 160, 90)
    rng = np.random.default_rng(7)
    if kind.startswith("one"):
        return sample.score(1)
    if kind == "heavy":
        return dm.Sample(
            sample.id_scores,
            sample.id_loss,
            sample.ood_scores,
            id_weight=rng.gamma(2, size=160),
            ood_weight=rng.integers(1, 4, 90),
        )
    if kind == "weights":
        # Unweighted ID rows beside fractional OOD weights once lost the fractions.
        return dm.Sample(
            sample.id_scores,
            rng.random(160).round(2),
            sample.ood_scores,
            ood_weight=rng.random(90) * 0.009,
            score_names=("a", "b"),
        )
    if kind == "confidence":
        return dm.Sample(
            sample.id_scores * [1, -1],
            sample.id_loss,
            sample.ood_scores * [1, -1],
            score_names=("doubt", "sure"),
            confidence=("sure",),
        )
    return sample


def options_of(kind):
    if kind.endswith("worst"):
        return {"ood": "worst"}
    if kind == "grid":
        return {"search": dm.Grid(12), "directions": "nonneg"}
    return {"directions": "real"} if kind == "real" else {}


def share(rng, least=0.0, most=1.0):
    """Return a decimal with up to four places."""
    return round(float(rng.uniform(least, most)), int(rng.integers(0, 5)))


def asked(rng, kind):
    """Return a mode, what is typed, and the model that stands for it."""
    modes = ["tprfpr", "pr", "risk", *(["cost"] if not kind.endswith("worst") else [])]
    mode = modes[rng.integers(len(modes))]
    prior = min(share(rng, 0, 0.9) ** int(rng.integers(1, 3)), 0.9)
    prior = round(prior, 4)
    if mode == "tprfpr":
        tpr, fpr = share(rng), round(share(rng) ** 2, 4)
        return mode, {"tpr": tpr, "fpr": fpr}, dm.TprFprModel(tpr, fpr)
    if mode == "risk":
        risk, fpr = round(share(rng) ** 2 / 2, 4), round(share(rng) ** 2, 4)
        return mode, {"risk": risk, "fpr": fpr}, dm.RiskFprModel(risk, fpr)
    if mode == "pr":
        precision, recall = share(rng, 0.4, 1), share(rng)
        typed = {"precision": precision, "recall": recall, "prior": prior}
        return mode, typed, dm.PrecisionRecallModel(precision, recall, prior)
    low, high = sorted([share(rng, 0, 3), share(rng, 0, 30)])
    cost = share(rng)
    typed = {"reject_id": cost, "accept_ood": high, "reject_ood": low, "prior": prior}
    return mode, typed, dm.CostModel(cost, high, low, prior)


def formula_counts(text, sample):
    """Count the rows that the shown inequality accepts, read as it is written."""
    names = sample.score_names or ("score",)
    text = text.removeprefix("accept when ").replace("\u2212", "-")
    if text == "never":
        return 0, 0
    left, sense, right = re.fullmatch(r"(.*) ([≤≥]) (\S+)", text).groups()
    weights = dict.fromkeys(names, 0.0)
    for sign, factor, name in re.findall(r"([+-]?)\s*(?:([\d.e-]+) \u00d7 )?([a-z]+)", left):
        weights[name] = (-1 if sign == "-" else 1) * float(factor or 1)
    direction = np.array([weights[name] for name in names])
    limit = float(right)
    accepted = []
    for scores in (sample.id_scores, sample.ood_scores):
        values = scores @ direction
        accepted.append(int((values <= limit if sense == "≤" else values >= limit).sum()))
    return tuple(accepted)


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_is_tune(browser, tmp_path, kind):
    check(kind, tmp_path, -(-CASES // len(KINDS)), lambda path: Watched(browser, path))


@pytest.fixture(scope="module")
def other_browser(tmp_path_factory):
    folder = tmp_path_factory.mktemp("firefox")
    with firefox(folder) as found:
        yield lambda path: FirefoxPage(found, path, folder / "saved")


@pytest.mark.parametrize("kind", KINDS if CASES >= 300 else ("weights",))
def test_the_page_is_tune_in_firefox(other_browser, tmp_path, kind):
    check(kind, tmp_path, -(-CASES // len(KINDS)), other_browser)


def check(kind, tmp_path, cases, opened):
    """Compare what a page shows with what `tune` returns, for random bounds."""
    sample, options = sample_of(kind), options_of(kind)
    start = dm.TprFprModel(0.3, 0.2)
    tuning = dm.tune(sample, start, **options)
    directions = options.get("directions", "nonneg")
    path = tmp_path / "r.html"
    report = Report.of(sample, tuning, directions=directions, search=options.get("search"))
    assert report.explorer.complete and report.explorer.widest
    report.to_html(path)
    watched = opened(path)
    rng = np.random.default_rng(KINDS.index(kind))
    met = 0
    for number in range(cases):
        mode, typed, model = asked(rng, kind)
        watched.set(mode, **typed)
        numbers = watched.numbers()
        code = re.match(r"dm\.tune\(sample, (dm\.\w+\(.*?\))", numbers["copy-tune"]).group(1)
        assert eval(code, {"dm": dm}) == model
        try:
            tuned = dm.tune(sample, model, **options)
        except dm.InfeasibleError:
            assert numbers["shown-rule"] == "no rule meets these bounds", typed
            continue
        met += 1
        point = tuned.point
        assert float(numbers["tpr-tuned"]) == pytest.approx(point.tpr, abs=1e-12), typed
        assert float(numbers["fpr-tuned"]) == pytest.approx(point.fpr, abs=1e-12), typed
        assert float(numbers["accepted-ood-tuned"]) == pytest.approx(point.accepted_ood)
        assert float(numbers["risk-tuned"]) == pytest.approx(point.selective_risk, nan_ok=True)
        if mode == "cost":
            assert float(numbers["cost-tuned"]) == pytest.approx(point.expected_cost, abs=1e-12)
        text = watched.rule_file()
        assert dm.Rule.from_json(text) == tuned.rule, typed
        assert eval(numbers["copy-rule"], {"dm": dm}) == tuned.rule
        if tuned.rule.score_names:
            assert numbers["copy-sql"] == tuned.rule.to_sql()
        if sample.ood_weight is None:
            counts = formula_counts(numbers["shown-rule"], sample)
            assert counts == (point.accepted_id, point.accepted_ood), numbers["shown-rule"]
        if number % 3 == 0:
            check_link(watched, numbers)
    watched.close()
    assert met >= 2


def check_link(watched, numbers):
    """The address restores what is shown."""
    watched.reopen()
    again = watched.numbers()
    assert {k: again[k] for k in ("shown-rule", "copy-tune", "sentence")} == {
        k: numbers[k] for k in ("shown-rule", "copy-tune", "sentence")
    }
