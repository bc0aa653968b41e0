"""The command line: one file per command, from arguments to public calls to standard output."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from typing import Any


def main() -> None:
    """Run the command line; errors of demur are printed without a traceback."""
    import click

    from demur.cli.app import app
    from demur.errors import DemurError, InfeasibleError, ScoreUnitsWarning

    # So that a file half written is removed on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    color = False if os.environ.get("NO_COLOR") else None

    def complain(error: Exception) -> None:
        click.echo(f"{click.style('demur:', fg='red')} {error}", err=True, color=color)

    show = warnings.showwarning

    def warn(message: Any, category: type[Warning], *args: Any, **options: Any) -> None:
        if issubclass(category, ScoreUnitsWarning):
            words = f"{click.style('demur: warning:', fg='yellow')} {message}"
            click.echo(words, err=True, color=color)
        else:
            show(message, category, *args, **options)

    warnings.showwarning = warn
    try:
        app(prog_name="demur", color=color)
    except DemurError as error:
        complain(error)
        sys.exit(3 if isinstance(error, InfeasibleError) else 2)
    except OSError as error:
        complain(error)
        # Python would try once more to write what is left for a full standard output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(2)
