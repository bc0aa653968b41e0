"""Paired differences between methods on the same rows, for `demur compare`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from demur.cli.resampling import ResamplingOptions, counted
from demur.cli.tables import Block, Cell, render
from demur.cli.texts import model_text
from demur.core.models import RejectionModel
from demur.core.paper_models import CostModel
from demur.core.sample import Sample
from demur.errors import InfeasibleError
from demur.guarantees.delong import AurocComparison, compare_auroc
from demur.guarantees.intervals import Interval
from demur.guarantees.resampling.paired import Comparison, compare
from demur.report.plain_data import measure_data
from demur.tuning.result import Grid

_NO_WIDTH = (
    "An interval without width does not mean that the difference is known exactly: the rows at "
    "hand show no variation, as when a score separates them all (AUROC 1)."
)
Samples = Mapping[tuple[str, ...], Sample]


@dataclass(frozen=True, slots=True)
class Difference:
    """The first method minus another in one quantity."""

    first: tuple[str, ...]
    second: tuple[str, ...]
    quantity: str
    value: float
    interval: Interval
    how: str
    details: Mapping[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self) | {"interval": asdict(self.interval), "details": dict(self.details)}


def differences(
    samples: Samples,
    models: Sequence[RejectionModel],
    *,
    resampling: ResamplingOptions,
    search: Grid | None,
    seed: int,
) -> list[Difference]:
    """Compare every method with the first, each tuned anew in every replicate."""
    (first, sample), *others = samples.items()
    found = []
    for second, other in others:
        for model in models:
            label = f"{' + '.join(first)} against {' + '.join(second)}"
            with counted(label, resampling.replicates, unit="replicates") as done:
                try:
                    compared = compare(
                        sample,
                        other,
                        model,
                        replicates=resampling.replicates,
                        confidence=float(resampling.level),
                        directions="nonneg",
                        search=search,
                        rng=seed,
                        workers=resampling.threads,
                        progress=done,
                    )
                except InfeasibleError:
                    found.append(_unable(first, second, model))
                else:
                    found.append(_tuned(first, second, model, compared))
        if _can_delong(sample) and _can_delong(other):
            area = compare_auroc(sample, other, confidence=float(resampling.level))
            found.append(_area(first, second, area))
    return found


def _can_delong(sample: Sample) -> bool:
    plain = sample.id_weight is None and sample.ood_weight is None
    return sample.n_scores == 1 and plain and min(sample.n_id, sample.n_ood) >= 2


def _quantity(model: RejectionModel) -> str:
    if isinstance(model, CostModel):
        return "expected cost"
    return f"selective risk at {model_text(model)}"


def _unable(first: tuple[str, ...], second: tuple[str, ...], model: RejectionModel) -> Difference:
    nothing = Interval(math.nan, math.nan)
    return Difference(first, second, _quantity(model), math.nan, nothing, "unable", {})


def _tuned(
    first: tuple[str, ...], second: tuple[str, ...], model: RejectionModel, found: Comparison
) -> Difference:
    name = "expected_cost" if isinstance(model, CostModel) else "selective_risk"
    measure = found.differences[name]
    details = {
        "replicates": found.replicates,
        "unable": found.unable,
        "measures": {n: measure_data(m) for n, m in found.differences.items()},
    }
    how = f"{found.replicates:,} replicates"
    return Difference(
        first, second, _quantity(model), measure.estimate, measure.interval, how, details
    )


def _area(first: tuple[str, ...], second: tuple[str, ...], found: AurocComparison) -> Difference:
    details = {"standard_error": found.standard_error, "p_value": found.p_value}
    how = f"DeLong, p = {found.p_value:.2g}"
    return Difference(first, second, "AUROC", found.difference, found.interval, how, details)


def difference_table(kind: str, found: Sequence[Difference], level: float) -> str:
    """Return the differences in one of the formats of `demur compare`."""
    rows = []
    for one in found:
        digits = 4 if one.quantity == "AUROC" else 5
        texts = ["unable", ""]
        if not math.isnan(one.value):
            ends = (one.interval.low, one.interval.high)
            texts = [f"{one.value:+.{digits}f}", " to ".join(f"{e:+.{digits}f}" for e in ends)]
        # An interval on one side of zero decides.
        sure = one.interval.low > 0 or one.interval.high < 0
        methods = f"{' + '.join(one.first)} minus {' + '.join(one.second)}"
        cells = [Cell(methods), Cell(one.quantity), Cell(texts[0], best=sure)]
        rows.append([*cells, Cell(texts[1]), Cell(one.how)])
    header = ["difference on the same rows", "of", "estimate", f"{100 * level:g} % interval", "by"]
    table = render(kind, header, [Block("", rows)])
    if all(one.interval.low != one.interval.high for one in found):
        return table
    return f"{table}\n% {_NO_WIDTH}" if kind == "latex" else f"{table}\n\n{_NO_WIDTH}"
