"""What to ask a source for: bins and strips, from a sample, and sizes, from the memory there is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from demur.core.bins import Bins, axis_for
from demur.core.columns import combine
from demur.core.models import RejectionModel
from demur.core.program import Program
from demur.core.sample import Sample
from demur.core.source import Measure, Overview, Rows, Strip
from demur.errors import DemurError
from demur.tuning.operating_points import Line
from demur.tuning.prepared import Prepared, prepare
from demur.tuning.result import Direction, DirectionSet, Exact, relaxed_programs
from demur.tuning.tune import search_directions, search_exact

# Bytes that a fetched row takes in the last search, and a cell of the histogram in the first.
_ROW_BYTES = 200
_CELL_BYTES = 400
_STEPS = 256


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """Sizes of a streamed search."""

    sample: int
    """Rows to draw."""
    bins: int
    """Bins of each score."""
    fetched: int
    """Rows to fetch at most."""
    few: int = 0
    """Rows that it is not worth to avoid fetching, for a single box."""
    boxes: int = 20_000
    """Boxes to look at, after which all that is left counts as open."""
    plenty: int | None = None
    """Rows to fetch above which a closer look comes first; None to fetch as many as allowed."""
    thin: int = 1024
    """Bins of each of the two values in a closer look."""
    rough: int | None = None
    """Rows to fetch above which what is attainable instead of infeasible bounds is told as the
    best that was counted; None to search for it whatever that takes."""

    @classmethod
    def of(cls, rows: int, scores: int, memory: int) -> StreamPlan:
        """Return sizes that fit into so many bytes."""
        cells = min(rows / 4, memory / (4 * _CELL_BYTES))
        bins = 2 ** round(math.log2(max(cells, 64)) / scores)
        fetched = max(1000, 2 * memory // (5 * _ROW_BYTES))
        return cls(
            sample=200_000,
            bins=min(bins, 2048 if scores == 2 else 1 << 16),
            fetched=fetched,
            few=fetched // 1000,
            # A closer look is one more pass over all rows; few are as soon fetched.
            plenty=min(fetched, max(fetched // 8, rows // 80)),
            thin=min(bins, 1024),
            rough=min(fetched, max(fetched // 8, rows // 20)),
        )


def bins_for(rows: Rows, bins: int) -> Bins:
    """Return bins in which the rows of a sample spread evenly."""
    finite = rows.scores[np.isfinite(rows.scores).all(axis=1)] + 0.0
    return Bins(tuple(axis_for(column, bins) for column in finite.T))


def as_sample(rows: Rows, overview: Overview) -> Sample | None:
    """Return drawn rows, which are doubts, as a sample; None if they have no ID mass."""
    is_id, groups = rows.group < 0, np.array(overview.groups)
    if not is_id.any() or (rows.weight is not None and not rows.weight[is_id].any()):
        return None
    sets = {name: np.flatnonzero(rows.group == k) for k, name in enumerate(overview.sets)}
    weight = rows.weight
    return Sample(
        id_scores=rows.scores[is_id],
        id_loss=rows.loss[is_id],
        ood_scores={name: rows.scores[rows_] for name, rows_ in sets.items()},
        id_weight=None if weight is None else weight[is_id],
        ood_weight=None if weight is None else {name: weight[r] for name, r in sets.items()},
        id_group=groups[-1 - rows.group[is_id]] if len(groups) else None,
    )


@dataclass(frozen=True, slots=True)
class Guess:
    """What the optimum on a sample suggests."""

    strips: tuple[Strip, ...]
    price: float
    """Where the loss of a row begins to outweigh its ID mass, in masses; see `Measure`."""


def guess(
    sample: Sample | None,
    model: RejectionModel,
    allowed: DirectionSet,
    measure: Measure,
    ood: str,
    directions: Sequence[Direction] | None = None,
) -> Guess:
    """Tune on the sample, and on its two halves for other directions; of `directions` if given."""
    strips: list[Strip] = []
    risk: float | None = None
    parts = [] if sample is None or sample.n_scores == 1 else [sample, *_halves(sample)]
    for part in parts:
        prepared = prepare(part, ood="worst" if ood == "worst" else "pooled")

        def best(program: Program, rows: Prepared = prepared) -> Line | None:
            if directions is None:
                return search_exact(rows, program, allowed, Exact(budget=20_000))[0]
            return search_directions(rows, program, directions)

        try:
            line = best(model.program(prepared.points.totals))
        except DemurError:
            # A part may lack what the model needs.
            continue
        lines = [line]
        if line is None and part is sample:
            # If no rule meets the bounds, what is attainable instead will be asked for.
            lines = [best(one) for one in relaxed_programs(model, prepared.points.totals)]
        for found in lines:
            if found is not None and found.threshold != -math.inf:
                weights = found.direction[0], found.direction[1]
                strips.append(_strip(prepared, weights, found.threshold))
        if risk is None and line is not None and line.threshold != -math.inf:
            totals = prepared.points.totals
            risk = totals.loss_sum(line.loss) / totals.id_weight(line.id)
    return Guess(tuple(strips), _price(model, risk, measure))


def _price(model: RejectionModel, risk: float | None, measure: Measure) -> float:
    """Return the price, in masses; `risk` is what the model may reach."""
    if measure.plain:
        return 1.0
    unit = 2.0 ** (measure.loss_exponent - measure.id_exponent)
    bound = model.bound("selective_risk")
    if bound is not None and model.objective != "selective_risk":
        # What the bound welcomes is what matters.
        return float(bound.value) * unit
    if model.cost is not None:
        return float(model.cost.reject_id) * unit
    # A little above the risk to expect; above zero, so that rows without loss are cheap.
    return unit if risk is None else max(1.05 * risk, 1e-300) * unit


def _halves(sample: Sample) -> list[Sample]:
    """Return every other row, and the rest."""
    if sample.n_id < 1000:
        return []
    return [_every_other(sample, start) for start in (0, 1)]


def _every_other(sample: Sample, start: int) -> Sample:
    rows, sets, weight = slice(start, None, 2), sample.ood_sets.items(), sample.ood_weight
    return Sample(
        id_scores=sample.id_scores[rows],
        id_loss=sample.id_loss[rows],
        ood_scores={name: sample.ood_scores[place][rows] for name, place in sets},
        id_weight=None if sample.id_weight is None else sample.id_weight[rows],
        ood_weight=None if weight is None else {name: weight[place][rows] for name, place in sets},
        id_group=None if sample.id_group is None else sample.id_group[rows],
    )


def _strip(prepared: Prepared, direction: Direction, threshold: float) -> Strip:
    """Return the thresholds around one, as far as chance may have put it off."""
    value = np.sort(combine(direction, prepared.points.scores))
    rank = int(np.searchsorted(value, threshold, side="right"))
    reach = 8 + 4 * math.isqrt(len(value))
    low, high = value[np.clip([rank - reach, rank + reach], 0, len(value) - 1)].tolist()
    return Strip(direction, low, high, _STEPS)
