"""The command `demur`: its subcommands, imported when asked for, its exit codes and complaints.

Commands are a file each in `commands`, or share one where they belong together. Here are those
about demur itself: `demur info` and `demur completion`.
"""

from __future__ import annotations

import difflib
import io
import json
import os
import signal
import sys
import threading
import time
import warnings
from importlib import import_module
from typing import Any

import click

from demur._files import remove_unfinished
from demur.errors import DemurError, InfeasibleError, LikelyMistakeWarning, ScoreUnitsWarning

WRONG_INPUT = 2
UNMET = 3
"""No rule meets the bounds, or bounds asked of a rule are not met."""
ALARM = 4
"""A watch gives alarm, or inputs in use are unlike the rows that a rule is judged by."""

# What shells give for a program that ends because its output is not read.
_PIPE_CLOSED = 128 + 13

# Seconds that a command has to end by itself.
_PATIENCE = 0.4

# A terminal that is closed sends SIGHUP; Windows has none.
_ENDING = [getattr(signal, n) for n in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, n)]

COMMANDS = {
    "apply": "Add a column that tells the rows a saved rule accepts.",
    "certify": "State what can be promised of a saved rule, from fresh rows.",
    "compare": "Compare scores and pairs of scores in a table.",
    "completion": "Print a completion script for the shell.",
    "demo": "Train, tune and report on a small built-in example.",
    "estimate": "Estimate what tuned rules do on new inputs.",
    "evaluate": "Show what a saved rule does on new rows.",
    "info": "Show versions and the engine in use.",
    "plan": "Show how many rows it takes to certify bounds.",
    "prior": "Estimate the share of OOD inputs in use.",
    "report": "Tune a rule and write a page about it.",
    "reproduce": "Repeat the experiments of the paper.",
    "retune": "Tune for other bounds or another prior from saved counts.",
    "tune": "Find the best accept/reject rule.",
    "watch": "Follow a saved rule in use, and give alarm.",
}
"""Command names and their one-line help."""

# Commands that are not called `command` in a module of their own name.
_ELSEWHERE = {
    "completion": ("demur.cli", "_completion"),
    "demo": ("demur.cli.commands.reproduce", "demo_command"),
    "estimate": ("demur.cli.commands.evaluate", "estimate_command"),
    "info": ("demur.cli", "_info"),
    "retune": ("demur.cli.commands.tune", "retune_command"),
}

# Commands with large matrices to multiply.
_MULTIPLYING = ("demo", "reproduce")


class _LazyGroup(click.Group):
    """Keeps start-up fast: listing commands imports none of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, name = _ELSEWHERE.get(cmd_name, (f"demur.cli.commands.{cmd_name}", "command"))
        if cmd_name not in _MULTIPLYING:
            # Two copies of OpenBLAS would start threads that spin before they sleep: a quarter of
            # the processor time of a short command.
            os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        command: click.Command = getattr(import_module(module), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        close = difflib.get_close_matches(args[0], COMMANDS, n=1)
        if args[0] not in COMMANDS and close and not ctx.resilient_parsing:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {close[0]!r}?")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # Who reads the output has seen enough, as with | head; click would exit with 1.
            _discard_output()
            raise SystemExit(_PIPE_CLOSED) from None
        except KeyboardInterrupt:
            # click would say more than the one line.
            raise _Stopped(signal.SIGINT) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="demur")
def app() -> None:
    """Decide when a classifier should not answer.

    demur finds the accept/reject rule with the smallest error on what it accepts, under bounds
    you state on accepted in-distribution and out-of-distribution inputs.

    Exit codes: 0 done, 2 wrong input, 3 the bounds cannot be met, or a rule does not meet them,
    4 a watch gives alarm, or inputs in use are unlike the rows that the rule is judged by.
    """


def main() -> None:
    """Run the command line; errors of demur are printed without a traceback."""
    color = False if os.environ.get("NO_COLOR") else None
    ending = _Ending(color)
    _check_output(color)
    _show_warnings(color)
    try:
        app(prog_name="demur", color=color)
    except BaseException as error:
        # Whatever a library makes of a signal, it is the signal that ends the command.
        if ending.received is not None or isinstance(error, _Stopped):
            ending.end()
        _fail(error, color)
        raise
    finally:
        ending.close()


def _fail(error: BaseException, color: bool | None) -> None:
    """Print an error that is no fault of demur's, and end with its exit code."""
    if isinstance(error, DemurError):
        _complain(error, color)
        sys.exit(UNMET if isinstance(error, InfeasibleError) else WRONG_INPUT)
    if isinstance(error, MemoryError):
        _complain(MemoryError("there is not enough memory for this"), color)
        sys.exit(WRONG_INPUT)
    if isinstance(error, OSError):
        _complain(error, color)
        _discard_output()
        sys.exit(WRONG_INPUT)


def _check_output(color: bool | None) -> None:
    """Refuse a closed standard output; have what a terminal cannot show written another way."""
    if sys.stdout is None:
        _complain(OSError("standard output is closed: give it a place, such as > /dev/null"), color)
        sys.exit(WRONG_INPUT)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _discard_output() -> None:
    # Python would try once more to write what is left for a full or closed standard output.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Stopped(SystemExit):
    """A signal asks the command to end, with the exit code that shells give such an end."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.code: int = 128 + number
        self.signal = signal.Signals(number)

    def __str__(self) -> str:
        return f"stopped by {self.signal.name}"


class _Ending:
    """Ends the command when a signal asks for it: with one line, within a second, nothing left.

    An exception lets files half written be removed on the way out, and ends a search in C. A pass
    of another library may not hear of it for seconds: then a thread, which is told of signals
    wherever the main one is, ends the process.
    """

    def __init__(self, color: bool | None) -> None:
        self._color, self._ending = color, threading.Lock()
        self.received: _Stopped | None = None
        self._told, self._tell = os.pipe()
        os.set_blocking(self._tell, False)
        signal.set_wakeup_fd(self._tell, warn_on_full_buffer=False)
        for asked in _ENDING:
            # A command under nohup outlives its terminal.
            if asked.name != "SIGHUP" or signal.getsignal(asked) is not signal.SIG_IGN:
                signal.signal(asked, self._stop)
        threading.Thread(target=self._wait, daemon=True).start()

    def _stop(self, number: int, frame: object) -> None:
        self.received = _Stopped(number)
        raise self.received

    def _wait(self) -> None:
        number = 0
        while number not in _ENDING:
            told = os.read(self._told, 1)
            if not told:
                os.close(self._told)
                return
            number = told[0]
        self.received = self.received or _Stopped(number)
        time.sleep(_PATIENCE)
        self.end()

    def close(self) -> None:
        """Listen no more."""
        signal.set_wakeup_fd(-1)
        os.close(self._tell)

    def end(self) -> None:
        """Say what ends the command, remove what is half done, and end it.

        Libraries in the middle of their work would have much to say at an orderly end.
        """
        stopped = self.received or _Stopped(signal.SIGINT)
        with self._ending:
            if sys.stderr.isatty():
                # In the place of what a progress line says, whose thread is not waited for.
                click.echo("\r\x1b[K", nl=False, err=True, color=True)
            _complain(stopped, self._color)
            remove_unfinished()
            os._exit(stopped.code)


def _complain(error: BaseException, color: bool | None) -> None:
    click.echo(f"{click.style('demur:', fg='red')} {error}", err=True, color=color)


def _show_warnings(color: bool | None) -> None:
    """Print demur's own warnings without the place in the source."""
    show = warnings.showwarning

    def warn(message: Any, category: type[Warning], *args: Any, **options: Any) -> None:
        if issubclass(category, (ScoreUnitsWarning, LikelyMistakeWarning)):
            words = f"{click.style('demur: warning:', fg='yellow')} {message}"
            click.echo(words, err=True, color=color)
        else:
            show(message, category, *args, **options)

    warnings.showwarning = warn


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")
@click.option(
    "--bug-report", is_flag=True, help="Print a bug report to fill in, with the versions in it."
)
def _info(as_json: bool, bug_report: bool) -> None:
    """Show versions and the engine in use."""
    import demur

    if bug_report:
        listed = "\n".join(f"{name}: {value}" for name, value in demur.versions().items())
        click.echo(_BUG_REPORT.format(versions=listed))
    elif as_json:
        click.echo(json.dumps(demur.versions()))
    else:
        demur.show_versions()


_BUG_REPORT = """\
### What I did
<!-- The command line or a few lines of Python, and rows to try it on; made-up ones will do. -->

### What I expected

### What happened instead
<!-- All that was printed, warnings included. If a number is wrong: which, and how you know. -->

### Versions
```text
{versions}
```"""


SHELLS = ["bash", "zsh", "fish"]


_COMPLETION_EXAMPLES = """\b
Examples:
  bash: demur completion bash >> ~/.bashrc
  zsh:  demur completion zsh >> ~/.zshrc
  fish: demur completion fish > ~/.config/fish/completions/demur.fish
"""


@click.command(epilog=_COMPLETION_EXAMPLES)
@click.argument("shell", type=click.Choice(SHELLS))
def _completion(shell: str) -> None:
    """Print a script that lets the shell complete commands, options and column names."""
    from click.shell_completion import get_completion_class

    complete = get_completion_class(shell)
    if complete is None:
        raise click.UsageError(f"this version of click does not complete for {shell}")
    click.echo(complete(app, {}, "demur", "_DEMUR_COMPLETE").source())
