"""Run the notebook of the site and store what its cells print and draw.

python tools/notebook.py docs/demo.ipynb
"""

import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def executed(path: Path) -> nbformat.NotebookNode:
    """Return a notebook after all its cells have run, in a folder that is gone afterwards."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        place = {"metadata": {"path": folder}}
        NotebookClient(notebook, timeout=600, kernel_name="python3", resources=place).execute()
    # Times and versions would differ at every run.
    notebook.metadata = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
    return notebook


def main() -> None:
    """Run it and write it back."""
    path = Path(sys.argv[1])
    path.write_text(nbformat.writes(executed(path)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
