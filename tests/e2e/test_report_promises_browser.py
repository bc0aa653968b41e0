"""The panel of promises in a real browser, wide and narrow."""

import pytest
from browser import Watched, chromium
from reports import make_sample

import demur as dm
from demur import guarantees
from demur.report import Report

MODEL = dm.TprFprModel(0.6, 0.3)


@pytest.fixture(scope="module")
def browser():
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def page_path(tmp_path_factory):
    sample, fresh = make_sample(0, 400, 200), make_sample(1, 300, 160)
    path = tmp_path_factory.mktemp("promises") / "report.html"
    Report.of(
        sample,
        dm.tune(sample, MODEL),
        held_out=fresh,
        cross=guarantees.cross_tune(sample, MODEL),
        bootstrap=guarantees.bootstrap(sample, MODEL, replicates=20),
        guaranteed=guarantees.tune_certified(sample, MODEL),
        prior_range=(0.01, 0.1),
    ).to_html(path)
    return path


@pytest.mark.parametrize("width", [1400, 800, 375])
def test_every_statement_is_shown_without_scrolling_sideways(browser, page_path, width):
    watched = Watched(browser, page_path, viewport={"width": width, "height": 800})
    facts = watched.page.evaluate(
        """() => {
            const cells = [...document.querySelectorAll(".promises td[data-rate]")];
            return {
                statements: document.querySelectorAll(".promises tr[data-statement]").length,
                rates: cells.length,
                shown: cells.filter((cell) => {
                    const box = cell.getBoundingClientRect();
                    return box.width > 30 && box.height > 20 && box.left >= 0
                        && box.right <= document.documentElement.clientWidth;
                }).length,
                drawn: cells.filter((cell) => cell.querySelector("svg .dot, svg .span")).length,
                overflow: document.documentElement.scrollWidth
                    - document.documentElement.clientWidth,
                heads: getComputedStyle(document.querySelector(".promises thead")).display,
                label: getComputedStyle(cells[0], "::before").content,
            };
        }"""
    )
    watched.close()
    assert facts["statements"] == 6
    # Three rates each, and precision but for the bootstrap and the rule with a guarantee.
    assert facts["rates"] == facts["shown"] == facts["drawn"] == 6 * 3 + 4
    assert facts["overflow"] <= 0
    # Narrow cells carry their own label where the head of the table is hidden.
    assert (facts["heads"] == "none") == (facts["label"] == '"TPR"') == (width < 640)


def test_the_drawing_is_to_scale(browser, page_path):
    watched = Watched(browser, page_path)
    places = watched.page.evaluate(
        """() => [...document.querySelectorAll(".promises td[data-rate=TPR]")].map((cell) => [
            cell.querySelector("span").textContent,
            cell.querySelector(".dot")?.getAttribute("cx") ?? null,
            cell.querySelector(".limit").getAttribute("d"),
        ])"""
    )
    watched.close()
    seen = [(float(text), float(x)) for text, x, _ in places if x is not None]
    assert len(seen) == 4
    assert len({limit for *_, limit in places}) == 1
    at_limit = float(places[0][2].split()[0][1:])
    scale = {
        round((x - at_limit) / (value - 0.6), 0) for value, x in seen if abs(value - 0.6) > 0.01
    }
    assert max(scale) - min(scale) <= 0.02 * max(scale)
