"""`demur info`."""

from __future__ import annotations

import json

import click

from demur.versions import show_versions, versions


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")
def command(as_json: bool) -> None:
    """Show versions and the engine in use."""
    if as_json:
        click.echo(json.dumps(versions()))
    else:
        show_versions()
