"""The rows nearest to the boundary: those a person should look at first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from demur import _arrays
from demur.core.rule import Rule
from demur.core.sample import POOLED_NAME, Sample
from demur.errors import InvalidInputError

SHOWN = 10

Ids = tuple[Any, Any]
"""Identifiers of the ID rows and of the OOD rows, in the order of the sample."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the sample."""

    id: str
    kind: str
    """``"ID"``, or the name of the OOD set."""
    loss: float | None
    scores: tuple[float, ...]
    margin: float
    """Threshold minus combined score: positive for accepted rows."""


@dataclass(frozen=True, slots=True)
class Doubtful:
    """Rows on either side of the boundary, nearest first."""

    accepted: tuple[Row, ...]
    """The most doubtful of the accepted rows."""
    rejected: tuple[Row, ...]
    """The most trusted of the rejected rows."""


def doubtful_rows(rule: Rule, sample: Sample, ids: Ids) -> Doubtful:
    """Return the accepted rows with the largest doubt and the rejected ones with the smallest."""
    if not isinstance(ids, tuple) or len(ids) != 2:
        raise InvalidInputError("ids must be a pair: those of the ID rows and of the OOD rows")
    names = [*_texts("ids[0]", ids[0], sample.n_id), *_texts("ids[1]", ids[1], sample.n_ood)]
    scores = np.concatenate([sample.id_scores, sample.ood_scores])
    kinds = ["ID"] * sample.n_id
    for name, rows in sample.ood_sets.items():
        kinds += ["OOD" if name == POOLED_NAME else name] * (rows.stop - rows.start)
    doubt = rule.combine(scores)
    accepted = rule.accept(scores)
    # Rows with an infinite score are rejected whatever the rule: nothing to look at.
    order = [int(i) for i in np.argsort(doubt, kind="stable") if np.isfinite(doubt[i])]

    def row(i: int) -> Row:
        loss = float(sample.id_loss[i]) if i < sample.n_id else None
        margin = float(rule.threshold - doubt[i])
        return Row(names[i], kinds[i], loss, tuple(scores[i].tolist()), margin)

    return Doubtful(
        accepted=tuple(row(i) for i in reversed(order) if accepted[i])[:SHOWN],
        rejected=tuple(row(i) for i in order if not accepted[i])[:SHOWN],
    )


def _texts(name: str, values: Any, length: int) -> list[str]:
    array = _arrays.labels(name, np.asarray(values, dtype=object), length=length)
    return [str(value) for value in array]
