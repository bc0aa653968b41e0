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


def check_numbers(numbers, rule, model, prior, *, also=()):
    """Compare every number shown with `evaluate` of the shown rule, on both samples."""
    for sample, column in ((SAMPLE, "tuned"), (FRESH, "held")):
        point = dm.evaluate(rule, sample, model=model, ood_prior=prior)
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


def test_every_number_is_that_of_the_shown_rule(watched):
    rng = np.random.default_rng(0)
    for mode in ("tprfpr", "pr", "cost"):
        for _ in range(4):
            tpr, fpr, prior = (round(float(x), 3) for x in rng.random(3) * [1, 0.4, 0.6])
            watched.set("tprfpr", tpr=tpr, fpr=fpr, prior=prior)
            also = [("precision", "precision")]
            if mode == "tprfpr":
                model = dm.TprFprModel(tpr, fpr)
            elif mode == "pr":
                watched.set("pr", precision=0.8, recall=tpr)
                model = dm.PrecisionRecallModel(0.8, tpr, prior)
            else:
                watched.set("cost", reject_id=tpr, accept_ood=2, reject_ood=fpr)
                model = dm.CostModel(tpr, 2, fpr, prior)
                also.append(("cost", "expected_cost"))
            numbers = watched.numbers()
            assert asked_model(numbers) == model
            if numbers["shown-rule"] == "no rule meets these bounds":
                with pytest.raises(dm.InfeasibleError) as error:
                    dm.tune(SAMPLE, model)
                most = error.value.attainable["max_tpr" if mode == "tprfpr" else "max_recall"]
                text = f"{100 * math.floor(1e6 * most + 1e-6) / 1e6:.4f}".rstrip("0").rstrip(".")
                assert f"is {text}\u00a0%" in numbers["sentence"]
                continue
            rule = shown_rule(numbers)
            assert rule == dm.tune(SAMPLE, model).rule
            check_numbers(numbers, rule, model, prior, also=also)


def test_the_copied_command_finds_the_shown_counts(watched, report_path):
    for mode, places in (
        ("tprfpr", {"tpr": 0.6, "fpr": 0.0234}),
        ("pr", {"precision": 0.9, "recall": 0.6, "prior": 0.25}),
        ("cost", {"reject_id": 0.3, "accept_ood": 20, "reject_ood": 0.1, "prior": 0.0005}),
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
    watched.set("cost", reject_id=0.9)
    assert shown_rule(watched.numbers()) != tuned
    watched.page.get_by_role("button", name="Back to the rule of this page").click()
    assert shown_rule(watched.numbers()) == tuned
    assert watched.page.get_by_role("radio", name="TPR, FPR").is_checked()


def test_sliders_move_by_keyboard_and_speak(watched):
    page = watched.page
    slider = page.locator("#in-tpr")
    slider.focus()
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
    page.wait_for_function(
        "text => document.querySelector('#copy-command').textContent.includes(text)", arg="0.67"
    )
    assert slider.get_attribute("aria-valuetext") == "67\u00a0%"
    assert page.locator("#box-tpr").input_value() == "67"
    numbers = watched.numbers()
    # The live region speaks once the slider rests.
    page.wait_for_function(
        "text => document.querySelector('#status').textContent === text", arg=numbers["sentence"]
    )
    point = dm.tune(SAMPLE, dm.TprFprModel(0.67, 0.2)).point
    assert f"Accepts {point.accepted_id:.0f} of 300 ID" in numbers["sentence"]
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "box-fpr"
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"


def test_strict_bounds_start_where_they_were_asked_for(browser, tmp_path):
    model = dm.TprFprModel(0.3, 0.005)
    tuning = dm.tune(SAMPLE, model)
    Report.of(SAMPLE, tuning, command="demur tune x").to_html(tmp_path / "r.html")
    watched = Watched(browser, tmp_path / "r.html")
    numbers = watched.numbers()
    assert shown_rule(numbers) == tuning.rule
    assert numbers["copy-command"] == "demur tune x --min-tpr 0.3 --max-fpr 0.005"
    assert watched.page.locator("#box-fpr").input_value() == "0.5"
    # The scale is fine there: a step is a twentieth of a per cent.
    watched.page.locator("#in-fpr").press("ArrowRight")
    watched.drawn()
    assert watched.page.locator("#box-fpr").input_value() == "0.55"
    watched.page.get_by_role("button", name="Back to the rule of this page").click()
    assert shown_rule(watched.numbers()) == tuning.rule
    watched.close()


@pytest.mark.parametrize("model", [dm.CostModel(20, 30, 0.007, 0.0005)])
def test_costs_and_priors_start_as_given(browser, tmp_path, model):
    sample = dm.Sample(SAMPLE.id_scores, 40.0 * SAMPLE.id_loss, SAMPLE.ood_scores)
    Report.of(sample, dm.tune(sample, model)).to_html(tmp_path / "r.html")
    watched = Watched(browser, tmp_path / "r.html")
    assert asked_model(watched.numbers()) == model
    assert watched.page.locator("#box-prior").input_value() == "0.05"
    watched.close()


def test_what_is_no_number_is_refused(watched):
    before = watched.numbers()["copy-tune"]
    box = watched.page.locator("#box-tpr")
    box.fill("120")
    assert box.get_attribute("aria-invalid") == "true"
    assert "from 0 to 100" in watched.page.locator("#wrong-tpr").text_content()
    assert watched.numbers()["copy-tune"] == before
    box.fill("61.25 %")
    assert "min_tpr=0.6125" in watched.numbers()["copy-tune"]
    assert box.get_attribute("aria-invalid") is None


def test_a_click_on_the_surface_sets_both_bounds(watched):
    edge = watched.page.locator("#plot-surface .edge")
    edge.scroll_into_view_if_needed()
    box = edge.bounding_box()
    watched.page.mouse.click(box["x"] + 0.35 * box["width"], box["y"] + 0.4 * box["height"])
    watched.drawn()
    assert watched.page.locator("#box-fpr").input_value() == "35"
    assert watched.page.locator("#box-tpr").input_value() == "60"
    point = dm.tune(SAMPLE, dm.TprFprModel(0.6, 0.35)).point
    assert float(watched.numbers()["risk-tuned"]) == point.selective_risk


def test_an_ood_cost_pushes_the_other(watched):
    watched.set("cost", accept_ood=2, reject_ood=1)
    watched.set("cost", reject_ood=3)
    assert watched.page.locator("#box-accept_ood").input_value() == "3"


def test_markers_sit_at_the_operating_point(watched):
    watched.set("tprfpr", tpr=0.6, fpr=0.3)
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
    buttons = watched.page.get_by_role("button", name="Copy", exact=True)
    for number, source in enumerate(("copy-command", "copy-tune", "copy-rule", "copy-sql")):
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
    watched.set("cost", reject_id=0.2)
    watched.set("pr", recall=0.5)
    assert watched.page.evaluate("window.pwned === undefined")
    assert watched.page.title().startswith(f"{HOSTILE} · ")
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
    for tpr, fpr in ((0.5, 0.4), (0.6, 0.7), (0.2, 0.3)):
        places = {"tpr": tpr} if kind == "no ood" else {"tpr": tpr, "fpr": fpr}
        watched.set("tprfpr", **places)
        asked = dm.TprFprModel(tpr, 1 if kind == "no ood" else fpr)
        point = dm.tune(sample, asked, ood=ood, search=search, directions="nonneg").point
        numbers = watched.numbers()
        assert float(numbers["tpr-tuned"]) == point.tpr
        assert float(numbers["risk-tuned"]) == point.selective_risk
    if kind == "worst":
        assert watched.page.locator("input[value=cost]").count() == 0
        assert "of every OOD set" in watched.page.locator("#controls").text_content()
        watched.close()
        return
    watched.set("cost", reject_id=0.4)
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
