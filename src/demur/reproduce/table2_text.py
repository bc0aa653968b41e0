"""Table 2 as text: ours, the paper's value, and the difference."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from demur.guarantees import Interval
from demur.reproduce.networks import NETWORKS
from demur.reproduce.table2_setups import MIN_TPR, TITLES, Printed

if TYPE_CHECKING:
    from demur.reproduce.table2 import Block, Row, Table2

_HEADER = (
    f"{'method':<8}  {'selective risk [95 %]':<27}{'paper':>8}{'diff':>9}  {'at paper FPR':>12}  "
    f"{'AUROC [95 %]':<20}{'paper':>6}{'diff':>8}  {'OSCR/accepted [95 %]':<20}{'paper':>6}"
    f"{'diff':>8}  {'OSCR/all ID [95 %]':<20}"
)
_CLAIM = "On the data it was tuned on, a double score is never above its parts in selective risk"


def render(table: Table2) -> str:
    """Return the table with its notes."""
    scores = table.scores
    network = NETWORKS[scores.network]
    trained = scores.trained_epochs
    title = (
        f"Table 2, ID: {scores.setup.id}, {len(scores.id_loss):,} test images; "
        + (f"LeNet trained here for {trained} epochs" if trained else network.title)
        + f", accuracy {scores.accuracy:.2%} on all test images "
        f"(published {network.accuracy:.2%})"
    )
    blocks = [_block(table, name, block) for name, block in table.blocks.items()]
    return "\n\n".join([title, *blocks, "\n".join(_notes(table))])


def _block(table: Table2, name: str, block: Block) -> str:
    setup = table.scores.setup
    head = (
        f"OOD: {name}, {block.n_ood:,} images; TPR >= {MIN_TPR}, FPR <= {block.target:.4f} "
        f"(paper: {setup.targets[name]:.2f})"
    )
    rows = [
        _line(TITLES[method], row, setup.printed[name][method])
        for method, row in block.rows.items()
    ]
    return "\n".join([head, _HEADER, *rows])


def _line(title: str, row: Row, printed: Printed) -> str:
    auroc, accepted, every = row.areas
    spans = row.area_intervals
    risk = (
        f"{_number(row.selective_risk, 5):<8}{_span(row.selective_risk_interval, 5):<19}"
        f"{printed.selective_risk:>8.5f}"
        f"{_difference(row.selective_risk, printed.selective_risk, 5)}"
    )
    return (
        f"{title:<8}  {risk:<44}  {_number(row.selective_risk_at_printed, 5):>12}  "
        f"{auroc:.4f} {_span(spans[0], 3):<13}{printed.auroc:>6.3f}"
        f"{_difference(auroc, printed.auroc, 4)}  "
        f"{accepted:.4f} {_span(spans[1], 3):<13}{printed.oscr:>6.3f}"
        f"{_difference(accepted, printed.oscr, 4)}  "
        f"{every:.4f} {_span(spans[2], 3)}"
    ).rstrip()


def _number(value: float, digits: int) -> str:
    return "unable" if math.isnan(value) else f"{value:.{digits}f}"


def _difference(ours: float, printed: float, digits: int) -> str:
    return f"{'-' if math.isnan(ours) else f'{ours - printed:+.{digits}f}':>{digits + 4}}"


def _span(interval: Interval, digits: int) -> str:
    if math.isnan(interval.low):
        return ""
    low, high = (f"{end:.{digits}f}".lstrip("0") for end in (interval.low, interval.high))
    return f"[{low},{high}]"


def _notes(table: Table2) -> list[str]:
    from demur.reproduce.table2 import ANGLES

    scores = table.scores
    claims = [held for block in table.blocks.values() for held in block.claim().values()]
    lines = [
        f"{_CLAIM}: it holds in {sum(claims)} of {len(claims)} cases. "
        "`demur reproduce heldout` shows what happens on other data.",
        "The FPR bound is the largest FPR that any single score needs for TPR 0.8 (the paper's "
        "rule). The paper prints its bounds to two digits: at those, the method that sets the "
        "bound can be unable.",
    ]
    if scores.setup.id == "cifar10":
        lines.append(
            "The network is not the paper's: its ResNet-18 weights are not public, so the "
            "values, and the order of the methods, need not be the paper's."
        )
    if scores.bank == "augmented":
        lines.append(
            "KNN and ViM learn from mirrored and randomly cut training images, as OpenOOD v1.0 "
            "does; --bank plain, the sound choice, takes them as they are."
        )
    else:
        lines.append(
            "KNN and ViM learn from the training images as they are; the paper's values follow "
            "from augmented ones (--bank augmented), as OpenOOD v1.0 has them."
        )
    how = "chosen on validation images" if scores.odin_searched else "its defaults"
    lines.append(f"ODIN: T = {scores.odin.temperature:g}, eps = {scores.odin.eps:g}, {how}.")
    if scores.whole_sets:
        lines.append(f"No list of test images, so all are used: {', '.join(scores.whole_sets)}.")
    lines.append(
        f"Areas of double scores: best of {ANGLES} directions at each FPR, tuned on the data shown "
        f"(optimistic). Intervals: {table.replicates} resamples, double scores tuned anew in each."
    )
    unable = max(row.unable_share for block in table.blocks.values() for row in block.rows.values())
    if unable > 0:
        lines.append(
            f"Resamples in which a method cannot meet the bounds (up to {unable:.0%}: the method "
            "that sets the bound) are left out of its interval."
        )
    return lines
