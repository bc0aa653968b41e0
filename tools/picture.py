"""Draw the picture of the README: the page of the demo, in a real browser.

python tools/picture.py docs/_static/report.png
"""

import io
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from demur.reproduce import demo

SHOWN = {"width": 1240, "height": 900}
KEPT = 550
"""Pixels of the part in which bounds are explored: the sliders, and two plots beside them."""


def main() -> None:
    """Write the picture."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as browsers:
        demo.write(demo.run(), Path(folder))
        browser = browsers.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        page = browser.new_page(viewport=SHOWN, color_scheme="light")
        page.goto(f"file://{folder}/report.html")
        page.wait_for_timeout(1000)
        taken = page.locator("#explorer").screenshot()
        browser.close()
    explorer = Image.open(io.BytesIO(taken)).convert("RGB")
    shown = explorer.crop((0, 0, explorer.width, KEPT))
    # Few colours, few bytes: it is in the repository.
    shown.convert("P", palette=Image.Palette.ADAPTIVE, colors=128).save(sys.argv[1], optimize=True)


if __name__ == "__main__":
    main()
