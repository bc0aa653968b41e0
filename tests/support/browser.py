"""A headless Chromium for tests, or the reason why there is none."""

from __future__ import annotations

import shutil
from contextlib import contextmanager

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
        """Choose a model and move its sliders, then wait until the page has followed."""
        self.page.evaluate(
            """async ([mode, values]) => {
                const radio = document.querySelector(`input[value=${mode}]`);
                radio.checked = true;
                for (const [name, value] of Object.entries(values)) {
                    document.querySelector(`#in-${name}`).value = value;
                }
                radio.dispatchEvent(new Event("input", { bubbles: true }));
                const frame = () => new Promise(requestAnimationFrame);
                await frame();
                await frame();
            }""",
            [mode, values],
        )

    def numbers(self):
        """Return the values behind the table of the shown rule, and the texts to copy."""
        return self.page.evaluate(
            """() => Object.fromEntries([...document.querySelectorAll(
                ".numbers td[id], #copy-command, #copy-tune, #copy-rule, #sentence, #shown-rule"
            )].map((node) => [node.id, node.dataset.value ?? node.textContent]))"""
        )

    def close(self):
        """Close the page; nothing may have gone wrong or been asked from elsewhere."""
        self.context.close()
        assert self.errors == []
        assert [url for url in self.requests if not url.startswith("data:")] == [self.address]
