"""What all lazy engines count by the same expressions of narwhals: overviews and tallies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from demur.core.rule import Rule
from demur.core.source import MEMORY, Measure, Overview, Rows, Tally
from demur.errors import InvalidInputError
from demur.sources import expressions as ex
from demur.sources.groups import tallies_of
from demur.sources.looking import grouped, overview_of
from demur.sources.roles import Roles
from demur.sources.standard import Missing, Standard, Table

if TYPE_CHECKING:
    import narwhals.stable.v2 as nw


class LazySource(ABC):
    """Rows of a lazy frame; how cells are counted is left to subclasses."""

    def __init__(
        self,
        frame: Any,
        roles: Roles,
        *,
        missing: Missing = "error",
        memory: int = MEMORY,
    ) -> None:
        import narwhals.stable.v2 as nw

        self._native, self._memory = frame, memory
        self._frame = nw.from_native(frame).lazy()
        self._standard = Standard.of(self._frame, roles, missing)
        self._scores = self._standard.scores

    @property
    def score_names(self) -> tuple[str, ...]:
        """Names of the score columns."""
        return self._standard.roles.scores

    @property
    def memory(self) -> int:
        """Bytes that a search may use here."""
        return self._memory

    @abstractmethod
    def _collect(self, frame: nw.LazyFrame[Any]) -> Table:
        """Bring a small result here, as columns."""

    @abstractmethod
    def _thinned(self, share: float, seed: int) -> Any:
        """Return the native frame with about this share of its rows."""

    @cached_property
    def _overview(self) -> Overview:
        rows = self._standard.rows(self._frame, labels=True)
        groups = grouped(rows, self._standard.roles)
        return overview_of(self._standard.roles, self._collect(groups))

    def overview(self) -> Overview:
        """Look at all rows once; refuse rows that cannot be used."""
        return self._overview

    def sample(self, rows: int, *, seed: int) -> Rows:
        """Return about so many rows."""
        import narwhals.stable.v2 as nw

        share = rows / max(self._overview.rows, 1)
        thinned = self._native if share >= 1 else self._thinned(share, seed)
        drawn = self._standard.rows(nw.from_native(thinned).lazy(), self._overview.sets)
        return self._standard.fetched(self._collect(drawn))

    def tally(self, rule: Rule, measure: Measure, *, by: str | None = None) -> Mapping[Any, Tally]:
        """Return what `rule` accepts, for each value of the column `by`."""
        import narwhals.stable.v2 as nw

        if len(rule.direction) != len(self._scores):
            raise InvalidInputError(
                f"the rule takes {len(rule.direction)} scores, the source has {len(self._scores)}"
            )
        masses = self._masses(measure)
        rows = self._standard.rows(self._frame, measure.sets, by=by)
        value = ex.combined(rule.direction, self._scores)
        within = value <= rule.threshold if rule.tau else value < rule.threshold
        accept = (within & ex.finite(self._scores)).cast(nw.Int64)
        rows = rows.with_columns(accept=accept).with_columns(**masses)
        keys = ["by", "accept", "side"] if by is not None else ["accept", "side"]
        sums = [nw.col(name).sum().cast(nw.Int64) for name in masses]
        return tallies_of(self._collect(rows.group_by(*keys).agg(*sums)), measure)

    def _masses(self, measure: Measure) -> dict[str, ex.Expr]:
        return ex.masses(measure, weighted=self._standard.roles.weight is not None)
