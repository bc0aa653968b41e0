"""Rows under standard names: s0, s1, side, loss, and where asked for weight, label, by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from demur.core.columns import check_names
from demur.core.source import Rows
from demur.errors import InvalidInputError
from demur.sources import expressions as ex
from demur.sources.roles import Roles

Table = Mapping[str, npt.NDArray[Any]]
Missing = Literal["error", "drop"]

Frame: TypeAlias = Any
"""A narwhals frame, lazy or not."""


@dataclass(frozen=True, slots=True)
class Standard:
    """How the rows of a frame are put under standard names."""

    roles: Roles
    schema: Mapping[str, Any]
    missing: Missing

    @classmethod
    def of(cls, frame: Any, roles: Roles, missing: Missing) -> Standard:
        """Return how for a narwhals frame, if its columns will do."""
        if missing not in ("error", "drop"):
            raise InvalidInputError(f'missing must be "error" or "drop", got {missing!r}')
        schema = dict(frame.collect_schema())
        check_names(list(schema), roles.used(), "the frame")
        for argument, name in roles.numeric():
            if not ex.is_flag(schema[name]):
                raise InvalidInputError(
                    f"{argument}: column {name!r} holds {schema[name]}, not numbers"
                )
        return cls(roles, schema, missing)

    @property
    def scores(self) -> tuple[str, ...]:
        """Standard names of the scores."""
        return tuple(f"s{i}" for i in range(len(self.roles.scores)))

    def rows(
        self,
        frame: Frame,
        sets: Sequence[str] = (),
        *,
        labels: bool = False,
        by: str | None = None,
    ) -> Frame:
        """Return the rows; "side" tells `sets` apart, "label" is the name of the OOD set."""
        import narwhals.stable.v2 as nw

        roles, schema = self.roles, self.schema
        columns = {
            standard: ex.score(name, roles)
            for standard, name in zip(self.scores, roles.scores, strict=True)
        }
        # OOD rows have loss 0, whatever the column says.
        outside = ex.is_ood(roles, schema)
        columns["loss"] = nw.when(outside).then(nw.lit(0.0)).otherwise(ex.loss(roles, schema))
        if roles.weight is not None:
            columns["weight"] = ex.number(roles.weight, schema)
        needed = list(columns)
        columns["side"] = ex.side(roles, schema, sets)
        if labels:
            columns["label"] = ex.label(roles, schema)
        if by is not None:
            check_names(list(schema), [("by", by)], "the frame")
            columns["by"] = nw.col(by)
        rows = frame.select(**columns)
        if self.missing == "drop":
            for name in needed:
                rows = rows.filter(~ex.missing(nw.col(name)))
        return rows

    def fetched(self, table: Table) -> Rows:
        """Return rows that an engine handed over."""
        return Rows(
            # Adding zero turns -0.0 into 0.0.
            np.column_stack([table[name] for name in self.scores]) + 0.0,
            table["side"].astype(np.int64),
            table["loss"].astype(np.float64),
            table["weight"].astype(np.float64) if self.roles.weight is not None else None,
        )
