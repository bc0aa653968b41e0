"""The page in a real browser: what it shows is what Python computes."""

import math
import shlex
import subprocess
import sys

import numpy as np
import pytest
from browser import Watched, chromium
from commands import ENVIRONMENT
from reports import HOSTILE, make_sample

import demur as dm
from demur.report import Report

SETTINGS = 24
MODEL = dm.TprFprModel(0.7, 0.2)
SAMPLE, FRESH = make_sample(0), make_sample(1, 260, 140)


@pytest.fixture(scope="module")
def browser():
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def report_path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    write_csv(SAMPLE, folder / "tune me.csv")
    path = folder / "report.html"
    Report.of(
        SAMPLE,
        dm.tune(SAMPLE, MODEL),
        held_out=FRESH,
        methods={"msp": (SAMPLE.score(0), FRESH.score(0)), "both": (SAMPLE, FRESH)},
        ids=(range(SAMPLE.n_id), range(SAMPLE.n_ood)),
        command="demur tune 'tune me.csv' --scores msp,knn --loss loss --ood set",
    ).to_html(path)
    return path


@pytest.fixture
def watched(browser, report_path):
    page = Watched(browser, report_path)
    yield page
    page.close()


def write_csv(sample, path):
    lines = ["msp,knn,loss,set"]
    for (a, b), loss in zip(sample.id_scores.tolist(), sample.id_loss.tolist(), strict=True):
        lines.append(f"{a!r},{b!r},{loss},id")
    for name, rows in sample.ood_sets.items():
        lines += [f"{a!r},{b!r},0,{name}" for a, b in sample.ood_scores[rows].tolist()]
    path.write_text("\n".join(lines) + "\n")


def shown_rule(numbers):
    """Return the rule that the page offers as Python code."""
    return eval(numbers["copy-rule"], {"dm": dm})


def asked_model(numbers):
    """Return the model in the line of Python that tunes anew."""
    code = numbers["copy-tune"]
    assert code.startswith("dm.tune(sample, ") and code.endswith(").rule")
    return eval(code.removeprefix("dm.tune(sample, ").removesuffix(").rule"), {"dm": dm})


def check_numbers(numbers, rule, model, *, also=()):
    """Compare every number shown with `evaluate` of the shown rule, on both samples."""
    for sample, column in ((SAMPLE, "tuned"), (FRESH, "held")):
        point = dm.evaluate(rule, sample, model=model)
        expected = {
            "tpr": point.tpr,
            "fpr": point.fpr,
            "risk": point.selective_risk,
            "accepted-id": point.accepted_id,
            "rejected-id": sample.n_id - point.accepted_id,
            "accepted-ood": point.accepted_ood,
            "rejected-ood": sample.n_ood - point.accepted_ood,
            "accepted-loss": point.accepted_loss,
            "set0": point.fpr_by_set["svhn"],
            "set1": point.fpr_by_set["noise"],
        }
        expected |= {name: getattr(point, attribute) for name, attribute in also}
        shown = {name: float(numbers[f"{name}-{column}"]) for name in expected}
        assert shown == pytest.approx(expected, rel=1e-13, nan_ok=True)


def test_tpr_and_fpr_equal_tune(watched):
    rng = np.random.default_rng(0)
    unable = 0
    for _ in range(2 * SETTINGS):
        tpr, fpr = int(rng.integers(0, 101)), int(100 * rng.random() ** 2)
        watched.set("tprfpr", tpr=tpr, fpr=fpr)
        numbers = watched.numbers()
        model = dm.TprFprModel(tpr / 100, fpr / 100)
        assert asked_model(numbers) == model
        try:
            point = dm.tune(SAMPLE, model).point
        except dm.InfeasibleError as error:
            unable += 1
            assert numbers["shown-rule"] == "no rule meets these bounds"
            assert f"largest TPR is {100 * error.attainable['max_tpr']:.1f}" in numbers["sentence"]
            continue
        assert float(numbers["tpr-tuned"]) == point.tpr
        assert float(numbers["fpr-tuned"]) == point.fpr
        assert float(numbers["risk-tuned"]) == point.selective_risk
        check_numbers(numbers, shown_rule(numbers), model)
    assert 2 <= unable <= 2 * SETTINGS - 20


def test_precision_and_recall_are_near_the_optimum(watched):
    rng = np.random.default_rng(1)
    feasible = 0
    for _ in range(2 * SETTINGS):
        precision, prior = int(rng.integers(500, 1001)), int(rng.integers(0, 600))
        recall = int(rng.integers(0, 101))
        watched.set("pr", precision=precision, recall=recall, prior=prior)
        numbers = watched.numbers()
        model = dm.PrecisionRecallModel(precision / 1000, recall / 100, prior / 1000)
        assert asked_model(numbers) == model
        try:
            optimum = dm.tune(SAMPLE, model).point.selective_risk
        except dm.InfeasibleError:
            assert numbers["shown-rule"] == "no rule meets these bounds"
            continue
        feasible += 1
        rule = shown_rule(numbers)
        point = dm.evaluate(rule, SAMPLE, model=model)
        assert point.precision >= model.min_precision and point.tpr >= model.min_recall
        assert point.selective_risk <= 1.02 * optimum
        check_numbers(numbers, rule, model, also=[("precision", "precision")])
    assert feasible >= 20


def test_costs_are_near_the_optimum(watched):
    rng = np.random.default_rng(2)
    for _ in range(SETTINGS):
        reject_id, prior = int(rng.integers(0, 101)), int(rng.integers(0, 900))
        low, high = sorted(int(c) for c in rng.integers(0, 1001, 2))
        places = {"rejectId": reject_id, "acceptOod": high, "rejectOod": low, "costPrior": prior}
        watched.set("cost", **places)
        numbers = watched.numbers()
        model = dm.CostModel(reject_id / 100, high / 100, low / 100, prior / 1000)
        assert asked_model(numbers) == model
        optimum = dm.tune(SAMPLE, model).point.expected_cost
        assert float(numbers["cost-tuned"]) <= 1.02 * optimum + 1e-12
        check_numbers(numbers, shown_rule(numbers), model, also=[("cost", "expected_cost")])


def test_the_copied_command_finds_the_shown_counts(watched, report_path):
    for mode, places in (
        ("tprfpr", {"tpr": 70, "fpr": 20}),
        ("pr", {"precision": 900, "recall": 60, "prior": 250}),
        ("cost", {"rejectId": 30, "acceptOod": 150, "rejectOod": 10, "costPrior": 250}),
    ):
        watched.set(mode, **places)
        numbers = watched.numbers()
        words = shlex.split(numbers["copy-command"])
        assert words[:3] == ["demur", "tune", "tune me.csv"]
        done = subprocess.run(
            [sys.executable, "-m", *words],
            cwd=report_path.parent,
            capture_output=True,
            text=True,
            env=ENVIRONMENT,
        )
        assert done.returncode == 0, done.stderr
        assert f"{int(numbers['accepted-id-tuned'])} of 300" in done.stdout
        assert f"{int(numbers['accepted-ood-tuned'])} of 150" in done.stdout


def test_it_starts_with_the_tuned_rule_and_returns_to_it(watched):
    tuned = dm.tune(SAMPLE, MODEL).rule
    assert shown_rule(watched.numbers()) == tuned
    watched.set("cost", rejectId=90)
    assert shown_rule(watched.numbers()) != tuned
    watched.page.get_by_role("button", name="Back to the tuned rule").click()
    assert shown_rule(watched.numbers()) == tuned
    assert watched.page.get_by_role("radio", name="TPR, FPR").is_checked()


def test_sliders_move_by_keyboard_and_speak(watched):
    page = watched.page
    slider = page.get_by_label("Accept at least this share of ID (min TPR)")
    slider.focus()
    before = watched.numbers()["copy-command"]
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
    assert slider.input_value() == "67"
    page.wait_for_function(
        "text => document.querySelector('#copy-command').textContent.includes(text)", arg="0.67"
    )
    assert slider.get_attribute("aria-valuetext") == "67\u00a0%"
    numbers = watched.numbers()
    assert "--min-tpr 0.67" in numbers["copy-command"] != before
    # The live region speaks once the slider rests.
    page.wait_for_function(
        "text => document.querySelector('#status').textContent === text", arg=numbers["sentence"]
    )
    point = dm.tune(SAMPLE, dm.TprFprModel(0.67, 0.2)).point
    assert f"Accepts {point.accepted_id:.0f} of 300 ID" in numbers["sentence"]
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.name") == "fpr"
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"


def test_a_click_on_the_surface_sets_both_bounds(watched):
    edge = watched.page.locator("#plot-surface .edge")
    edge.scroll_into_view_if_needed()
    box = edge.bounding_box()
    watched.page.mouse.click(box["x"] + 0.35 * box["width"], box["y"] + 0.4 * box["height"])
    watched.page.wait_for_timeout(50)
    assert watched.page.locator("#in-fpr").input_value() == "35"
    assert watched.page.locator("#in-tpr").input_value() == "60"
    point = dm.tune(SAMPLE, dm.TprFprModel(0.6, 0.35)).point
    assert float(watched.numbers()["risk-tuned"]) == point.selective_risk


def test_an_ood_cost_pushes_the_other(watched):
    watched.set("cost", acceptOod=200, rejectOod=100)
    slider = watched.page.get_by_label("Cost of rejecting an OOD input")
    slider.focus()
    slider.fill("300")
    assert watched.page.locator("#in-acceptOod").input_value() == "300"


def test_markers_sit_at_the_operating_point(watched):
    watched.set("tprfpr", tpr=60, fpr=30)
    point = dm.tune(SAMPLE, dm.TprFprModel(0.6, 0.3)).point
    fresh = dm.evaluate(shown_rule(watched.numbers()), FRESH)
    places = {
        "roc": [(point.fpr, point.tpr), (fresh.fpr, fresh.tpr)],
        "surface": [(point.fpr, point.tpr)],
    }
    for name, expected in places.items():
        edge = watched.page.locator(f"#plot-{name} .edge").bounding_box()
        for (x, y), kind in zip(expected, ("tuned", "held"), strict=False):
            box = watched.page.locator(f"#plot-{name} .marker.{kind}").bounding_box()
            left, top = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
            assert left == pytest.approx(edge["x"] + x * edge["width"], abs=1.5)
            assert top == pytest.approx(edge["y"] + (1 - y) * edge["height"], abs=1.5)


def test_copy_buttons_fill_the_clipboard(browser, report_path):
    watched = Watched(browser, report_path, permissions=["clipboard-read", "clipboard-write"])
    buttons = watched.page.get_by_role("button", name="Copy")
    for number, source in enumerate(("copy-command", "copy-tune", "copy-rule")):
        buttons.nth(number).click()
        watched.page.get_by_text("Copied to the clipboard.").wait_for(state="attached")
        assert watched.page.evaluate("navigator.clipboard.readText()") == watched.numbers()[source]
        watched.page.wait_for_function("() => !document.querySelector('#copied').textContent")
    watched.close()


def test_hostile_names_stay_inert(browser, tmp_path):
    sample = make_sample(names=(HOSTILE, "b" + HOSTILE), sets=(HOSTILE, "x" + HOSTILE))
    report = Report.of(
        sample,
        dm.tune(sample, MODEL),
        held_out=sample,
        methods={HOSTILE: sample, "y" + HOSTILE: sample.score(0)},
        ids=([HOSTILE] * 300, [HOSTILE] * 150),
        title=HOSTILE,
        command=f"demur tune {HOSTILE}",
    )
    report.to_html(tmp_path / "hostile.html")
    watched = Watched(browser, tmp_path / "hostile.html")
    watched.set("cost", rejectId=20)
    watched.set("pr", recall=50)
    assert watched.page.evaluate("window.pwned === undefined")
    assert watched.page.title() == HOSTILE
    assert watched.page.locator("img").count() == 0
    numbers = watched.numbers()
    assert HOSTILE in numbers["shown-rule"] and HOSTILE in numbers["copy-command"]
    rule = shown_rule(numbers)
    assert rule.score_names == (HOSTILE, "b" + HOSTILE)
    watched.close()


@pytest.mark.parametrize("kind", ["one", "many", "no ood", "worst", "loss"])
def test_other_samples(browser, tmp_path, kind):
    sample, model, ood = make_sample(3), dm.TprFprModel(0.5, 0.4), "pooled"
    if kind == "one":
        sample = sample.score(1)
    elif kind == "many":
        sample = make_sample(3, 4000, 1500)
    elif kind == "no ood":
        sample, model = dm.Sample(sample.id_scores, sample.id_loss), dm.TprFprModel(0.5)
    elif kind == "worst":
        ood = "worst"
    else:
        loss = np.random.default_rng(0).random(300) * 7
        sample = dm.Sample(sample.id_scores, loss, sample.ood_scores)
    search = dm.Grid(12) if kind == "many" else None
    tuning = dm.tune(sample, model, ood=ood, search=search, directions="nonneg")
    Report.of(sample, tuning, search=search).to_html(tmp_path / "r.html")
    watched = Watched(browser, tmp_path / "r.html")
    for tpr, fpr in ((50, 40), (60, 70), (20, 30)):
        places = {"tpr": tpr} if kind == "no ood" else {"tpr": tpr, "fpr": fpr}
        watched.set("tprfpr", **places)
        asked = dm.TprFprModel(tpr / 100, 1 if kind == "no ood" else fpr / 100)
        point = dm.tune(sample, asked, ood=ood, search=search, directions="nonneg").point
        numbers = watched.numbers()
        assert float(numbers["tpr-tuned"]) == point.tpr
        assert float(numbers["risk-tuned"]) == point.selective_risk
    watched.set("cost", rejectId=40)
    assert math.isfinite(float(watched.numbers()["cost-tuned"]))
    watched.close()


@pytest.mark.parametrize("width", [1400, 768, 400, 320])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_fits_the_screen_with_readable_contrast(browser, report_path, width, scheme):
    watched = Watched(
        browser, report_path, viewport={"width": width, "height": 900}, color_scheme=scheme
    )
    overflow = watched.page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert overflow <= 0
    worst = watched.page.evaluate(CONTRAST)
    assert worst["ratio"] >= 4.5, worst
    watched.close()


def test_prints_light_and_without_controls(browser, report_path):
    watched = Watched(browser, report_path, color_scheme="dark")
    watched.page.emulate_media(media="print", color_scheme="dark")
    ground = watched.page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert ground == "rgb(255, 255, 255)"
    assert not watched.page.locator("#in-tpr").is_visible()
    assert watched.page.get_by_text("Its operating point").is_visible()
    assert len(watched.page.pdf()) > 20_000
    watched.close()


# The least contrast of any text with the colour behind it.
CONTRAST = """() => {
    const parse = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
    const luminance = (rgb) => {
        const [r, g, b] = rgb.map((v) => v / 255).map(
            (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const ground = (node) => {
        for (let n = node; n; n = n.parentElement) {
            const c = parse(getComputedStyle(n).backgroundColor);
            if (c.length === 3 || c[3] === 1) return c.slice(0, 3);
        }
        return [255, 255, 255];
    };
    let worst = { ratio: 99 };
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const node = walker.currentNode.parentElement;
        if (!walker.currentNode.textContent.trim() || !node.getClientRects().length) continue;
        if (["SCRIPT", "STYLE", "NOSCRIPT"].includes(node.tagName)) continue;
        const style = getComputedStyle(node);
        const ink = parse(node.closest("svg") ? style.fill : style.color).slice(0, 3);
        const [a, b] = [luminance(ink), luminance(ground(node))].sort((x, y) => y - x);
        const ratio = (a + 0.05) / (b + 0.05);
        const text = walker.currentNode.textContent;
        if (ratio < worst.ratio) worst = { ratio, text: text.slice(0, 40) };
    }
    return worst;
}"""
