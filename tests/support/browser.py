"""A headless Chromium for tests, or the reason why there is none."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from decimal import Decimal

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SWITCHES = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@contextmanager
def chromium():
    """Yield a browser; skip where none can be had."""
    api = pytest.importorskip(
        "playwright.sync_api", reason="the browser tests need the package playwright"
    )
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip("the browser tests need Chromium (apt-get install chromium)")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=SWITCHES)
        yield browser
        browser.close()


# The page answers in the next frame: what is read before that is what was shown before.
DRAWN = """async () => {
    const frame = () => new Promise((done) => requestAnimationFrame(done));
    await frame();
    await frame();
}"""
SET = """async ([mode, values]) => {
    const radio = document.querySelector(`input[value=${mode}]`);
    if (!radio.checked) {
        radio.checked = true;
        radio.dispatchEvent(new Event("change", { bubbles: true }));
    }
    const frame = () => new Promise((done) => requestAnimationFrame(done));
    await frame();
    await frame();
    for (const [name, [share, plain]] of Object.entries(values)) {
        const box = document.querySelector(`#box-${name}`);
        box.value = box.nextElementSibling?.textContent === "%" ? share : plain;
        box.dispatchEvent(new Event("input", { bubbles: true }));
        box.dispatchEvent(new Event("change", { bubbles: true }));
    }
    await frame();
    await frame();
}"""
NUMBERS = """() => Object.fromEntries([...document.querySelectorAll(
    ".numbers td[id], #copy-command, #copy-tune, #copy-rule, #copy-sql, #sentence,"
    + "#shown-rule, #kind"
)].map((node) => [node.id, node.dataset.value ?? node.textContent]))"""


def typed(value):
    """Return what is typed for a value: in a box of per cent, and in another one."""
    number = Decimal(str(value))
    return [f"{100 * number:f}", f"{number:f}"]


class Watched:
    """A page that remembers what it asked for and what went wrong."""

    def __init__(self, browser, path, **options):
        self.context = browser.new_context(
            **({"viewport": {"width": 1400, "height": 900}} | options)
        )
        self.page = self.context.new_page()
        self.requests, self.errors = [], []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda message: self.errors.append(message.text))
        self.page.on("dialog", lambda dialog: self.errors.append(dialog.message))
        self.address = path.as_uri()
        self.page.goto(self.address)
        self.page.wait_for_selector("#explorer[data-rule]")

    def set(self, mode, **values):
        """Choose a model and type its bounds as shares or costs, then wait for the page."""
        shown = {name: typed(value) for name, value in values.items()}
        self.page.evaluate(SET, [mode, shown])

    def rule_file(self):
        """Return the text of the rule that the page lets one download."""
        with self.page.expect_download() as found:
            self.page.evaluate("document.querySelector('#save-rule').click()")
        return found.value.path().read_text()

    def drawn(self):
        """Wait until the page shows what it was last asked for."""
        self.page.evaluate(DRAWN)

    def numbers(self):
        """Return the values behind the table of the shown rule, and the texts to copy."""
        self.drawn()
        return self.page.evaluate(NUMBERS)

    def reopen(self):
        """Open the address that the page has now as if for the first time."""
        address = self.page.evaluate("location.href")
        self.page.goto("about:blank")
        self.page.goto(address)
        self.page.wait_for_selector("#explorer[data-rule]")

    def close(self):
        """Close the page; nothing may have gone wrong or been asked from elsewhere."""
        self.context.close()
        assert self.errors == []
        asked = [url for url in self.requests if not url.startswith(("data:", "blob:"))]
        assert {url.partition("#")[0] for url in asked} == {self.address}
