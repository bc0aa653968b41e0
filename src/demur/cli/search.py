"""Which rules compete, from the options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import click

from demur.cli.options import Command, gathered, option
from demur.tuning.directions import Directions
from demur.tuning.result import Grid


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """Which rules compete."""

    fpr_of: Literal["pooled", "worst"]
    directions: Directions | None
    grid: int | None

    @property
    def allowed(self) -> Directions:
        """The directions, as `tune` would choose them."""
        return self.directions or ("nonneg" if self.grid is None else "paper")

    @property
    def search(self) -> Grid | None:
        """The grid asked for; None for the exact search."""
        return None if self.grid is None else Grid(self.grid)


def search_options() -> Callable[[Command], Command]:
    """Return a decorator that adds the options of the search as `search`."""
    add = option("Search")
    return gathered(
        "search",
        SearchOptions,
        [
            add(
                "--fpr-of",
                type=click.Choice(["pooled", "worst"]),
                default="pooled",
                show_default=True,
                help="Bound the FPR of all OOD rows together, or of every OOD set.",
            ),
            add(
                "--directions",
                type=click.Choice(["nonneg", "real", "paper", "circle"]),
                help="Weights a pair may get; nonneg: more doubt never helps (default).",
            ),
            add("--grid", type=click.IntRange(1), help="Try this many angles, not all of them."),
        ],
    )
