"""What only a terminal gets: colours and progress; and what a shell gets: completion."""

import os
import signal
import subprocess
import sys

import pytest
from commands import ENVIRONMENT, command, heard, make_table, run, write_table

pty = pytest.importorskip("pty")


def run_on_terminal(folder, arguments, **environment):
    """Run a program with a terminal as its output; returns all that appears on it."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        arguments, cwd=folder, stdout=theirs, stderr=theirs, env=ENVIRONMENT | environment
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:
            # Linux reports the end of a terminal as an error.
            break
        if not part:
            break
        shown += part
    os.close(ours)
    process.wait()
    return shown.decode()


def test_colours_on_a_terminal_only(tmp_path):
    write_table(make_table(), tmp_path / "s.npz")
    table = ["compare", "s.npz", "--scores", "msp", "--scores", "knn", "--loss", "is_wrong"]
    arguments = command(*table, "--ood", "is_ood")
    assert "\x1b[1m" in run_on_terminal(tmp_path, arguments)
    assert "\x1b" not in run_on_terminal(tmp_path, arguments, NO_COLOR="1")
    assert "\x1b" not in run(tmp_path, *table, "--ood", "is_ood").stdout
    shown = run_on_terminal(tmp_path, command("tune", "none.csv", "--min-tpr", ".5"))
    assert "\x1b[31mdemur:\x1b[0m there is no file" in shown


SLOW = """
import time
from demur.cli import output
output.PATIENCE, output._EVERY = {patience}, 0.05
with output.Progress("applying", 2000) as bar:
    bar.advance(500)
    time.sleep(0.4)
print("done")
"""


def test_progress_after_a_while_and_on_a_terminal_only(tmp_path):
    slow = [sys.executable, "-c", SLOW.format(patience=0.1)]
    shown = run_on_terminal(tmp_path, slow)
    assert "applying: 500 of 2,000 (25%) rows, 0 s" in shown
    # The line is wiped before anything else is printed.
    assert shown.split("\x1b[K")[-1].strip() == "done"
    quick = [sys.executable, "-c", SLOW.format(patience=2)]
    assert run_on_terminal(tmp_path, quick).strip() == "done"
    piped = subprocess.run(slow, capture_output=True, text=True, env=ENVIRONMENT)
    assert (piped.stdout, piped.stderr) == ("done\n", "")


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("demur t", ["tune"]),
        ("demur tune s.npz --scores k", ["knn", "knn_conf"]),
        ("demur tune s.npz --scores msp,k", ["msp,knn", "msp,knn_conf"]),
        ("demur tune s.npz --min-", ["--min-tpr", "--min-precision", "--min-recall"]),
    ],
)
def test_shell_completion(tmp_path, words, offered):
    write_table(make_table(), tmp_path / "s.npz")
    done = run(
        tmp_path,
        _DEMUR_COMPLETE="bash_complete",
        COMP_WORDS=words,
        COMP_CWORD=str(len(words.split()) - 1),
    )
    assert [line.split(",", 1)[1] for line in done.stdout.splitlines()] == offered


def test_completion_script_and_help(tmp_path):
    assert "_DEMUR_COMPLETE=zsh_complete" in run(tmp_path, "completion", "zsh").stdout
    text = run(tmp_path, "tune", "--help").stdout
    for part in ("Columns:", "Rejection model (one of four):", "Examples:", "--holdout"):
        assert part in text
    assert "\n    demur tune scores.parquet --scores msp,knn" in text


INTERRUPTED = """
import signal
import demur
from demur.cli import main

def interrupt():
    signal.raise_signal(signal.SIGINT)

demur.show_versions = interrupt
main()
"""


def test_ctrl_c_is_one_line_and_an_exit_code():
    code = [sys.executable, "-c", INTERRUPTED, "info"]
    with heard(signal.SIGINT):
        done = subprocess.run(code, capture_output=True, text=True, env=ENVIRONMENT)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "demur: stopped by SIGINT\n")
