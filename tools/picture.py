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

SHOWN = {"width": 1000, "height": 640}


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
        taken = page.screenshot()
        browser.close()
    # Few colours, few bytes: it is in the repository.
    picture = Image.open(io.BytesIO(taken)).convert("P", palette=Image.Palette.ADAPTIVE, colors=64)
    picture.save(sys.argv[1], optimize=True)


if __name__ == "__main__":
    main()
