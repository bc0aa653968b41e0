"""The page as people use it: undo, pins, links, files, pictures, tooltips, keys, paper, phones."""

import io
import json
import re
import zlib
from pathlib import Path

import numpy as np
import pytest
from browser import Watched, chromium
from reports import make_sample

import demur as dm
from demur.report import Report

MODEL = dm.TprFprModel(0.7, 0.2)
SAMPLE, FRESH = make_sample(0), make_sample(1, 260, 140)


@pytest.fixture(scope="module")
def browser():
    with chromium() as found:
        yield found


def report_of(sample=SAMPLE, held_out=FRESH, model=MODEL, **options):
    tuned = dm.tune(sample, model)
    return Report.of(sample, tuned, held_out=held_out, **options)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    found = tmp_path_factory.mktemp("page") / "report.html"
    report_of(
        methods={"msp": (SAMPLE.score(0), FRESH.score(0)), "both": (SAMPLE, FRESH)},
        ids=([f"image {i}" for i in range(300)], [f"odd {i}" for i in range(150)]),
        command="demur tune x.csv",
    ).to_html(found)
    return found


@pytest.fixture
def watched(browser, path):
    page = Watched(browser, path)
    yield page
    page.close()


def rule_shown(watched):
    return eval(watched.numbers()["copy-rule"], {"dm": dm})


def test_undo_and_redo(watched):
    first = rule_shown(watched)
    watched.set("tprfpr", tpr=0.5)
    second = rule_shown(watched)
    watched.set("pr", precision=0.95)
    assert first != second
    for button, expected in (("Undo", None), ("Undo", second), ("Undo", first), ("Redo", second)):
        watched.page.get_by_role("button", name=button).click()
        watched.drawn()
        if expected is not None:
            assert rule_shown(watched) == expected
    assert watched.page.locator("#box-tpr").input_value() == "50"


def test_a_pinned_rule_stands_beside_another_and_in_the_link(watched, path):
    pinned = watched.numbers()
    watched.page.get_by_role("button", name="Pin this rule").click()
    watched.set("tprfpr", tpr=0.5, fpr=0.05)
    cells = watched.page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll(".pinned-column[id]")].map(
            (cell) => [cell.id, cell.dataset.value]))"""
    )
    for column in ("tuned", "held"):
        assert cells[f"tpr-{column}-pinned"] == pinned[f"tpr-{column}"]
    assert float(cells["tpr-tuned-pinned"]) != float(watched.numbers()["tpr-tuned"])
    assert watched.page.locator("#plot-plane .boundary.pinned").get_attribute("d")
    address = watched.page.evaluate("location.href")
    assert re.search(r"#tpr=0.5&fpr=0.05&prior=[\d.]+&pin.tpr=0.7&pin.fpr=0.2", address)
    shown = watched.numbers()["shown-rule"]
    watched.page.goto("about:blank")
    watched.page.goto(address)
    watched.page.wait_for_selector("#explorer[data-rule]")
    assert watched.numbers()["shown-rule"] == shown
    assert watched.page.locator("#pinned-rule").is_visible()


@pytest.mark.parametrize(
    ("hash_", "model"),
    [
        ("#tpr=.6&fpr=.0501", dm.TprFprModel(0.6, 0.0501)),
        ("#precision=.9&recall=.5&prior=.25", dm.PrecisionRecallModel(0.9, 0.5, 0.25)),
        ("#reject_id=.2&accept_ood=3&reject_ood=0&prior=.1", dm.CostModel(0.2, 3, 0, 0.1)),
        ("#tpr=nonsense&fpr=7", None),
    ],
)
def test_links_that_people_write(browser, path, hash_, model):
    watched = Watched(browser, path)
    watched.page.evaluate(
        """hash => new Promise((done) => {
            addEventListener("hashchange", done, { once: true });
            location.hash = hash;
        })""",
        hash_,
    )
    assert rule_shown(watched) == dm.tune(SAMPLE, model or MODEL).rule
    watched.close()


def saved(watched, action):
    with watched.page.expect_download() as found:
        action()
    return found.value.suggested_filename, found.value.path().read_bytes()


def test_pictures_can_be_taken_away(watched):
    page = watched.page
    for plot in ("surface", "plane", "roc", "pr", "risk"):
        for kind in ("svg", "png"):
            button = f"[data-plot={plot}][data-tool={kind}]"
            name, content = saved(
                watched, lambda b=button: page.eval_on_selector(b, "b => b.click()")
            )
            assert name == f"demur-{plot}.{kind}"
            if kind == "svg":
                text = content.decode()
                assert text.startswith("<svg") and "class=" not in text and "var(" not in text
                assert len(text) > 2000
            else:
                assert content.startswith(b"\x89PNG") and colours(content) > 20


def test_tables_can_be_taken_away(watched):
    # In a page of its own: a browser allows ten files without a press of a real button.
    page = watched.page
    name, content = saved(watched, lambda: page.locator("[data-csv=shown-rule]").click())
    rows = [line.split(",") for line in content.decode().split("\r\n")]
    assert name == "shown-rule.csv" and rows[0][:3] == ["", "tuning rows", "held-out rows"]
    assert float(rows[1][1]) == float(watched.numbers()["tpr-tuned"])
    names = page.eval_on_selector_all("[data-csv]", "all => all.map((b) => b.dataset.csv)")
    assert {"methods", "rows", "operating-point"} <= set(names)


def colours(png):
    """Count different bytes in the first rows of the picture: it is not blank."""
    data = b"".join(
        png[m.end() : m.end() + int.from_bytes(png[m.start() - 4 : m.start()], "big")]
        for m in re.finditer(b"IDAT", png)
    )
    return len(set(zlib.decompressobj().decompress(data, 4_000_000)))


def test_the_rule_file_has_a_card_that_demur_reads(watched):
    watched.set("tprfpr", tpr=0.61, fpr=0.05)
    rule = dm.Rule.from_json(watched.rule_file())
    assert rule.card.model == dm.TprFprModel(0.61, 0.05)
    assert rule.card.fingerprint.overlap(SAMPLE).same
    assert rule.card.points["tuned"]["tpr"] == dm.evaluate(rule, SAMPLE).tpr


def test_tooltips_name_rows_and_values(watched):
    page = watched.page
    page.locator("#plot-plane").scroll_into_view_if_needed()
    place = page.evaluate(
        """() => {
            const svg = document.querySelector("#plot-plane");
            const path = svg.querySelector(".points.g2").getAttribute("d");
            const [, x, y] = /M([\\d.]+) ([\\d.]+)/.exec(path).map(Number);
            const rect = svg.getBoundingClientRect();
            const scale = rect.width / svg.viewBox.baseVal.width;
            return [rect.left + x * scale, rect.top + y * scale];
        }"""
    )
    page.mouse.move(*place)
    text = page.locator("#tip").text_content()
    found = re.match(
        r"(image|odd) (\d+) \((ID, correct|ID, wrong|OOD)\): msp (\S+), knn (\S+); ", text
    )
    scores = (SAMPLE.id_scores if found[1] == "image" else SAMPLE.ood_scores)[int(found[2])]
    shown = [float(found[k].replace("\u2212", "-")) for k in (4, 5)]
    np.testing.assert_allclose(shown, scores, rtol=1e-4, atol=1e-12)
    accepted = rule_shown(watched).accept(scores[None])[0]
    assert text.endswith("accepted" if accepted else "rejected")


def test_plots_zoom_by_pointer_and_keys(watched):
    page = watched.page

    def ticks():
        return page.locator("#plot-roc .axes text").all_text_contents()

    before = ticks()
    plot = page.locator("#plot-roc")
    plot.focus()
    page.keyboard.press("+")
    assert ticks() != before
    page.keyboard.press("0")
    assert ticks() == before
    plot.scroll_into_view_if_needed()
    box = page.locator("#plot-roc .edge").bounding_box()
    at = [(box["x"] + s * box["width"], box["y"] + s * box["height"]) for s in (0.1, 0.5)]
    page.mouse.move(*at[0])
    page.mouse.down()
    page.mouse.move(*at[1])
    page.mouse.up()
    assert ticks() != before
    assert page.evaluate("getSelection().toString()") == ""
    page.mouse.dblclick(*at[1])
    assert ticks() == before


def test_the_keyboard_does_everything(watched):
    page = watched.page
    page.locator("#plot-surface").focus()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowLeft")
    watched.drawn()
    assert page.locator("#box-tpr").input_value() == "71"
    assert page.locator("#box-fpr").input_value() == "19"
    page.locator("#plot-plane").focus()
    page.keyboard.press("ArrowRight")
    assert re.match(r"(image|odd) \d+ \(", page.locator("#tip").text_content())
    page.locator("#plot-roc").focus()
    page.keyboard.press("ArrowRight")
    assert "TPR" in page.locator("#tip").text_content()
    # Everything that can be clicked can be reached.
    unreachable = page.evaluate(
        """() => [...document.querySelectorAll("button, select, input, summary, a")].filter(
            (node) => node.tabIndex < 0).length"""
    )
    assert unreachable == 0
    page.locator(".tools summary").first.focus()
    page.keyboard.press("Enter")
    assert page.locator("#surface-scale").is_visible()


def test_bounds_out_of_reach_lead_to_the_nearest(watched):
    watched.set("tprfpr", tpr=0.9, fpr=0.01)
    with pytest.raises(dm.InfeasibleError) as error:
        dm.tune(SAMPLE, dm.TprFprModel(0.9, 0.01))
    least = error.value.attainable["min_fpr"]
    watched.page.locator("#nearest-1").click()
    point = dm.evaluate(rule_shown(watched), SAMPLE)
    assert point.fpr == least and point.tpr >= 0.9


@pytest.mark.parametrize("kind", ["pair", "one", "unmet", "no ood", "many"])
def test_it_serves_without_a_script(browser, tmp_path, kind):
    options = {}
    if kind == "unmet":
        with pytest.raises(dm.InfeasibleError) as error:
            dm.tune(SAMPLE, dm.TprFprModel(0.99, 0.001))
        options = {"unmet": error.value}
    sample, fresh, model = SAMPLE, FRESH, MODEL
    if kind == "one":
        sample, fresh = SAMPLE.score(1), FRESH.score(1)
    if kind == "no ood":
        sample, fresh, model = (
            dm.Sample(SAMPLE.id_scores, SAMPLE.id_loss),
            None,
            dm.TprFprModel(0.7),
        )
    if kind == "many":
        sample, fresh = make_sample(0, 5000, 2000).score(1), None
    report_of(sample, fresh, model, **options).to_html(tmp_path / "r.html")
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((tmp_path / "r.html").as_uri())
    drawn = {"plane": ".boundary", "risk": ".curve"}
    if kind != "no ood":
        drawn |= {"roc": ".curve", "pr": ".curve", "surface": ".shade"}
    for plot, mark in drawn.items():
        assert page.locator(f"#plot-{plot} {mark}").first.get_attribute("d"), plot
        assert page.locator(f"#plot-{plot} text").count() >= 8
    assert not page.locator("#controls").is_visible()
    expected = "Out of reach" if kind == "unmet" else "Seen, not proven"
    if kind == "unmet":
        assert expected in page.locator(".verdict").text_content()
    context.close()


def test_names_keep_their_place(browser, tmp_path):
    names = ("ציון-ודאות", "knn-50")
    long = "n" * 300
    sample = make_sample(0, names=names, sets=("ערבית", long))
    report = report_of(sample, make_sample(1, names=names, sets=("ערבית", long)), title=long)
    report.to_html(tmp_path / "r.html")
    watched = Watched(browser, tmp_path / "r.html")
    assert watched.page.evaluate("document.documentElement.scrollWidth") <= 1400
    parts = watched.page.locator("#shown-rule bdi").all_text_contents()
    assert parts == list(names)
    # Weight, name, weight, name, threshold: from left to right, whatever the names.
    places = watched.page.evaluate(
        """() => {
            const range = document.createRange();
            const nodes = [...document.querySelector(".formula").childNodes];
            return nodes.filter((node) => node.textContent.trim()).map((node) => {
                range.selectNodeContents(node);
                return range.getBoundingClientRect().left;
            });
        }"""
    )
    assert places == sorted(places) and len(places) >= 5
    watched.close()
    narrow = Watched(browser, tmp_path / "r.html", viewport={"width": 390, "height": 800})
    assert narrow.page.evaluate("document.documentElement.scrollWidth") <= 390
    narrow.close()


def test_on_a_phone_slider_and_frontier_share_a_screen(browser, path):
    watched = Watched(browser, path, viewport={"width": 390, "height": 844}, has_touch=True)
    top, bottom = watched.page.evaluate(
        """() => [document.querySelector("#in-tpr").getBoundingClientRect().top,
                  document.querySelector("#plot-surface").getBoundingClientRect().bottom]"""
    )
    assert bottom - top <= 844
    cells = watched.page.evaluate(
        """() => [...document.querySelectorAll("#rows td")].slice(0, 4).map(
            (cell) => cell.getBoundingClientRect().right)"""
    )
    assert all(right <= 390 for right in cells)
    watched.close()


def test_the_explorer_is_near_the_top_and_the_page_says_what_it_is(watched):
    top = watched.page.evaluate("document.querySelector('#explorer').getBoundingClientRect().top")
    assert top <= 1.5 * 900
    head = watched.page.locator("header").text_content()
    assert re.search(r"\d{4}-\d\d-\d\d", head) and re.search(r"[0-9a-f]{16}", head)
    links = watched.page.locator("nav a").evaluate_all("all => all.map((a) => a.hash)")
    assert links[0] == "#decision"
    assert all(watched.page.locator(link).count() == 1 for link in links)


def test_paper(browser, path):
    watched = Watched(browser, path)
    pages = len(re.findall(rb"/Type\s*/Page\b", watched.page.pdf(format="A4")))
    watched.close()
    assert pages <= 6


def test_a_step_of_a_slider_takes_less_than_a_frame_or_two(watched):
    times = watched.page.evaluate(
        """async () => {
            const slider = document.querySelector("#in-tpr");
            const times = [];
            for (let k = 0; k < 25; k++) {
                slider.value = 40 + k;
                const start = performance.now();
                slider.dispatchEvent(new Event("input", { bubbles: true }));
                await new Promise(requestAnimationFrame);
                times.push(performance.now() - start);
            }
            return times.sort((a, b) => a - b);
        }"""
    )
    # On a busy machine single steps wait for their turn.
    assert times[len(times) // 4] < 30


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_marks_stand_out(browser, path, scheme):
    watched = Watched(browser, path, color_scheme=scheme)
    watched.page.get_by_role("button", name="Pin this rule").click()
    ratios = watched.page.evaluate(MARKS)
    watched.close()
    assert len(ratios) >= 8
    assert min(ratios.values()) >= 3, ratios


def axe_source():
    """Return axe-core as an installed package brings it; it is no part of this project."""
    package = pytest.importorskip(
        "axe_playwright_python", reason="the checks by axe-core need axe-playwright-python"
    )
    return (Path(package.__file__).parent / "axe.min.js").read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [1400, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(browser, path, width, scheme):
    source = axe_source()
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True
    )
    page = context.new_page()
    page.goto(path.as_uri())
    page.wait_for_selector("#explorer[data-rule]")
    page.evaluate(source)
    result = page.evaluate("axe.run()")
    found = [(v["id"], v["nodes"][0]["html"][:200]) for v in result["violations"]]
    context.close()
    assert found == [], json.dumps(found, indent=1)


def test_size_of_a_page_with_many_rows(tmp_path):
    sample = make_sample(0, 40_000, 20_000).score(1)
    text = report_of(sample, make_sample(1, 20_000, 9_000).score(1)).to_html()
    assert len(text) < 2_000_000
    assert io.StringIO(text).readline().startswith("<!doctype html>")


# Contrast of every kind of mark with the ground it is drawn on.
MARKS = """() => {
    const parse = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
    const luminance = (rgb) => {
        const [r, g, b] = rgb.map((v) => v / 255).map(
            (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const ground = parse(getComputedStyle(document.querySelector("#explorer")).backgroundColor);
    const found = {};
    const marks = ".curve, .points, .contour, .histogram, .marker, .boundary, .crosshair, .handle,"
        + ".chance, .reach, .dot, .limit, .end";
    for (const node of document.querySelectorAll(marks)) {
        const style = getComputedStyle(node);
        const stroked = style.stroke !== "none" && !(node.matches(".marker.tuned"));
        const opacity = Number(stroked ? style.strokeOpacity : style.fillOpacity);
        const ink = parse(stroked ? style.stroke : style.fill).slice(0, 3)
            .map((v, k) => opacity * v + (1 - opacity) * ground[k]);
        const [a, b] = [luminance(ink), luminance(ground)].sort((x, y) => y - x);
        found[node.getAttribute("class")] = (a + 0.05) / (b + 0.05);
    }
    return found;
}"""
