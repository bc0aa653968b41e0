"""`demur completion`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = ["bash", "zsh", "fish"]


_EXAMPLES = """\b
Examples:
  bash: demur completion bash >> ~/.bashrc
  zsh:  demur completion zsh >> ~/.zshrc
  fish: demur completion fish > ~/.config/fish/completions/demur.fish
"""


@click.command(epilog=_EXAMPLES)
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> None:
    """Print a script that lets the shell complete commands, options and column names."""
    from demur.cli.app import app

    complete = get_completion_class(shell)
    if complete is None:
        raise click.UsageError(f"this version of click does not complete for {shell}")
    click.echo(complete(app, {}, "demur", "_DEMUR_COMPLETE").source())
