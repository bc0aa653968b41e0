"""Time the way of a newcomer: a wheel, an own table, a first rule, the report open.

    python tools/newcomer.py dist/demur-0.2.0-cp311-abi3-linux_x86_64.whl

Everything happens in a fresh environment and counts, the download of what demur needs included.
"""

import argparse
import csv
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIMIT = 120.0
TUNE = "--scores msp,knn --loss is_wrong --ood set --min-tpr .8 --max-fpr .2 --holdout .3"


def own_table(path: Path) -> None:
    """Write what a newcomer has: scores of a validation set and of foreign inputs."""
    chance = random.Random(0)
    with open(path, "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["msp", "knn", "is_wrong", "set"])
        for row in range(3000):
            foreign, wrong = row % 3 == 0, chance.random() < 0.1
            doubt = chance.gammavariate(1 + 2 * wrong, 1.0)
            loss = "" if foreign else int(wrong)
            kind = "foreign" if foreign else "id"
            table.writerow([doubt, chance.gauss(2.5 if foreign else 0.0, 1.0), loss, kind])


def opened(page: Path) -> None:
    """Wait until a browser shows the report, if one is here."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as browsers:
        browser = browsers.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        shown = browser.new_page()
        shown.goto(page.as_uri())
        shown.get_by_text("accept when").first.wait_for()
        browser.close()


def main() -> None:
    """Walk it and print the times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    wheel = parser.parse_args().wheel.resolve()
    times = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        own_table(folder / "scores.csv")
        python = folder / "new" / "bin" / "python"
        steps = {
            "environment": [sys.executable, "-m", "venv", folder / "new"],
            "install": [python, "-m", "pip", "install", "-q", f"{wheel}[report,files]"],
            "first rule and report": [
                *(python, "-m", "demur", "tune", "scores.csv", *TUNE.split()),
                *("-o", "rule.json", "--report", "report.html"),
            ],
        }
        for step, command in steps.items():
            start, before = time.perf_counter(), os.times()
            subprocess.run([str(word) for word in command], cwd=folder, check=True)
            after = os.times()
            spent = sum(after[2:4]) - sum(before[2:4])
            times[step] = (time.perf_counter() - start, spent)
        start = time.perf_counter()
        try:
            opened(folder / "report.html")
            times["report open"] = (time.perf_counter() - start, float("nan"))
        except ImportError:
            print("no browser to drive here: the report was written and not opened")
    for step, (wall, cpu) in times.items():
        print(f"{step:<24}{wall:8.1f} s{cpu:8.1f} s of CPU")
    total = sum(wall for wall, _ in times.values())
    print(f"{'in all':<24}{total:8.1f} s")
    raise SystemExit(total > LIMIT)


if __name__ == "__main__":
    main()
