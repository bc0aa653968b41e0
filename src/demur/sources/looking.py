"""The first pass over lazy rows: totals and ranges, and what is wrong with the rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from demur.core.sample import POOLED_NAME
from demur.core.source import Overview, Sum
from demur.errors import InvalidInputError
from demur.sources import expressions as ex
from demur.sources.roles import Roles

if TYPE_CHECKING:
    import narwhals.stable.v2 as nw

    from demur.sources.expressions import Expr

Table = Mapping[str, npt.NDArray[Any]]

_MOST_SETS = 1000


def look(
    roles: Roles, rows: nw.LazyFrame[Any], collect: Callable[[nw.LazyFrame[Any]], Table]
) -> Overview:
    """Return the overview of rows that carry the columns s0, s1, label, side, loss, weight."""
    import narwhals.stable.v2 as nw

    columns, kinds = _columns(roles)
    aggregates = [getattr(nw.col(name), how)().alias(name) for name, how in kinds.items()]
    groups = rows.with_columns(**columns).group_by("label").agg(*aggregates)
    table = collect(groups.head(_MOST_SETS + 5))
    _refuse(roles, table)
    return _overview(roles, table)


def _columns(roles: Roles) -> tuple[dict[str, Expr], dict[str, str]]:
    """Return what to compute of each row, and how to aggregate it."""
    import narwhals.stable.v2 as nw

    scores = [f"s{i}" for i in range(len(roles.scores))]
    columns = {"rows": ex.whole(1)}
    kinds = {"rows": "sum"}
    every = ex.finite(scores)
    for name in scores:
        value = nw.col(name)
        columns[f"{name}_missing"] = _count(ex.missing(value))
        columns[f"{name}_illegal"] = _count(value == float("-inf"))
        inside = nw.when(every).then(value)
        columns[f"{name}_low"], columns[f"{name}_high"] = inside, inside
        kinds |= {f"{name}_missing": "sum", f"{name}_illegal": "sum"}
        kinds |= {f"{name}_low": "min", f"{name}_high": "max"}
    amounts = {"loss": nw.col("loss")}
    lost = nw.col("loss")
    if roles.weight is not None:
        amounts["weight"] = nw.col("weight")
        lost = nw.col("weight") * lost
    for name, value in amounts.items():
        columns[f"{name}_missing"] = _count(ex.missing(value))
        columns[f"{name}_illegal"] = _count((value < 0.0) | (value == float("inf")))
        kinds |= {f"{name}_missing": "sum", f"{name}_illegal": "sum"}
    columns["other_loss"] = _count((nw.col("loss") != 0.0) & (nw.col("loss") != 1.0))
    for name, value in {
        "lost": lost,
        **{k: v for k, v in amounts.items() if k == "weight"},
    }.items():
        columns[f"{name}_total"], columns[f"{name}_part"] = value, _count(value != value.floor())
        kinds |= {f"{name}_total": "sum", f"{name}_part": "sum"}
    return columns, kinds | {"other_loss": "sum"}


def _count(flag: Expr) -> Expr:
    """Return 1 where something is the case."""
    import narwhals.stable.v2 as nw

    return flag.fill_null(False).cast(nw.Int64)


def _refuse(roles: Roles, table: Table) -> None:
    """Refuse rows that cannot be used, with the column, what is wrong and how many there are."""
    labels = table["label"].tolist()
    if not labels or not table["rows"].sum():
        raise InvalidInputError("the source has no rows")
    amount = dict(zip(labels, table["rows"].tolist(), strict=True))
    for bad, what in ((ex.NO_FLAG, "a missing flag"), (ex.BAD_FLAG, "a flag that is not 0 or 1")):
        if bad in amount:
            raise InvalidInputError(f"ood: column {roles.ood!r} has {what} in {amount[bad]} rows")
    if len(labels) > _MOST_SETS:
        raise InvalidInputError(
            f"ood: column {roles.ood!r} names more than {_MOST_SETS} OOD sets; "
            "give a flag, or a column with few names"
        )
    lost = roles.loss if roles.loss is not None else f"{roles.label}, {roles.prediction}"
    named = [(f"s{i}", "scores", name) for i, name in enumerate(roles.scores)]
    named += [("loss", "loss", lost)]
    named += [("weight", "weight", roles.weight)] if roles.weight is not None else []
    for key, argument, name in named:
        missing, illegal = (int(table[f"{key}_{kind}"].sum()) for kind in ("missing", "illegal"))
        if missing:
            raise InvalidInputError(
                f"{argument}: column {name!r} is missing or NaN in {missing} rows; "
                'give missing="drop" to leave them out'
            )
        if illegal:
            what = "-inf" if argument == "scores" else "negative or infinite"
            raise InvalidInputError(f"{argument}: column {name!r} is {what} in {illegal} rows")
    if "id" not in amount:
        raise InvalidInputError(
            f"ood: column {roles.ood!r} marks every row as OOD: no ID row is left"
        )


def _overview(roles: Roles, table: Table) -> Overview:
    labels = table["label"].tolist()
    is_id = np.array([label == "id" for label in labels])
    sets = tuple(sorted(label for label in labels if label != "id")) or (POOLED_NAME,)
    amount = dict(zip(labels, table["rows"].tolist(), strict=True))
    k = len(roles.scores)
    extremes = [
        [by(np.append(table[f"s{i}_{end}"].astype(float), start)) for i in range(k)]
        for end, by, start in (("low", np.nanmin, np.inf), ("high", np.nanmax, -np.inf))
    ]

    def total(name: str, kept: npt.NDArray[np.bool_]) -> Sum:
        if f"{name}_total" not in table:
            return Sum(float(table["rows"][kept].sum()), True)
        added = float(table[f"{name}_total"][kept].sum())
        if not np.isfinite(added):
            role = "loss" if name == "lost" else name
            raise InvalidInputError(f"{role} adds up to more than a float can hold")
        return Sum(added, not table[f"{name}_part"][kept].any())

    weights = total("weight", is_id)
    if weights.total == 0:
        raise InvalidInputError(f"weight: column {roles.weight!r} is zero on every ID row")
    return Overview(
        amount["id"],
        tuple(amount.get(name, 0) for name in sets),
        sets,
        weights,
        total("weight", ~is_id),
        total("lost", is_id),
        np.array(extremes[0]),
        np.array(extremes[1]),
        roles.weight is None and not table["other_loss"][is_id].any(),
    )
