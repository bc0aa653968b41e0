"""The command line: one file per command, from arguments to public calls to standard output."""

from demur.cli.app import main

__all__ = ["main"]
