"""The first pass over lazy rows: totals and ranges, and what is wrong with the rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from demur.core.columns import OOD_NEEDS_NO_LOSS
from demur.core.sample import POOLED_NAME
from demur.core.source import Overview, Sum
from demur.errors import InvalidInputError
from demur.sources import expressions as ex
from demur.sources.roles import Roles
from demur.sources.standard import Frame, Table

if TYPE_CHECKING:
    from demur.sources.expressions import Expr

_MOST_SETS = 1000


def grouped(rows: Frame, roles: Roles) -> Frame:
    """Return counts, sums and extremes of standard rows with labels, for each label."""
    import narwhals.stable.v2 as nw

    aggregates = [getattr(nw.col(name), how)() for name, how in _kinds(roles).items()]
    groups = rows.with_columns(**_columns(roles)).group_by("label").agg(*aggregates)
    # A column that names a set for every row would bring all of them here.
    return groups.head(_MOST_SETS + 5)


def regrouped(tables: Sequence[Table], roles: Roles) -> Table:
    """Return the groups of all rows, given those of disjoint parts."""
    joined = {
        name: np.concatenate([table[name] for table in tables])
        for name in ("label", *_kinds(roles))
    }
    labels = list(dict.fromkeys(joined["label"].tolist()))
    place = np.array([labels.index(label) for label in joined["label"].tolist()], np.int64)
    table: dict[str, npt.NDArray[Any]] = {"label": np.array(labels, object)}
    for name, how in _kinds(roles).items():
        values = joined[name]
        by = {"sum": np.add, "min": np.fmin, "max": np.fmax}[how]
        start = np.zeros(len(labels), values.dtype)
        if how != "sum":
            values, start = values.astype(np.float64), np.full(len(labels), np.nan)
        by.at(start, place, values)
        table[name] = start
    return table


def overview_of(roles: Roles, table: Table) -> Overview:
    """Return the overview that is in groups by label; refuse rows that cannot be used."""
    _refuse(roles, table)
    return _overview(roles, table)


def _kinds(roles: Roles) -> dict[str, str]:
    """Return the names of the columns and how they are aggregated."""
    kinds = {"rows": "sum", "other_loss": "sum", "lost_total": "sum", "lost_part": "sum"}
    for i in range(len(roles.scores)):
        kinds |= {f"s{i}_missing": "sum", f"s{i}_illegal": "sum"}
        kinds |= {f"s{i}_low": "min", f"s{i}_high": "max"}
    for name in ["loss"] + ["weight"] * (roles.weight is not None):
        kinds |= {f"{name}_missing": "sum", f"{name}_illegal": "sum"}
    if roles.weight is not None:
        kinds |= {"weight_total": "sum", "weight_part": "sum"}
    return kinds


def _columns(roles: Roles) -> dict[str, Expr]:
    """Return what there is to aggregate of each row."""
    import narwhals.stable.v2 as nw

    loss = lost = nw.col("loss")
    scores = [f"s{i}" for i in range(len(roles.scores))]
    columns = {"rows": ex.whole(1), "other_loss": _count((loss != 0.0) & (loss != 1.0))}
    for name in scores:
        value = nw.col(name)
        columns[f"{name}_missing"] = _count(ex.missing(value))
        columns[f"{name}_illegal"] = _count(value == float("-inf"))
        inside = nw.when(ex.finite(scores)).then(value)
        columns[f"{name}_low"], columns[f"{name}_high"] = inside, inside
    amounts = {"loss": loss}
    if roles.weight is not None:
        amounts["weight"] = weight = nw.col("weight")
        lost = weight * loss
        columns["weight_total"], columns["weight_part"] = weight, _part(weight)
    columns["lost_total"], columns["lost_part"] = lost, _part(lost)
    for name, value in amounts.items():
        columns[f"{name}_missing"] = _count(ex.missing(value))
        columns[f"{name}_illegal"] = _count((value < 0.0) | (value == float("inf")))
    return columns


def _part(value: Expr) -> Expr:
    """Return 1 where a number is not whole."""
    return _count(value != value.floor())


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
            hint = OOD_NEEDS_NO_LOSS if argument == "loss" and roles.ood is None else ""
            raise InvalidInputError(
                f"{argument}: column {name!r} is missing or NaN in {missing} rows; "
                f'give missing="drop" to leave them out{hint}'
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
