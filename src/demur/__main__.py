"""Lets ``python -m demur`` stand for the command ``demur``."""

from demur.cli import main

main()
