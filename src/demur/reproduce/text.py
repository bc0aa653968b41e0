"""Table 2 and the held-out study as text."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from demur.guarantees import Interval
from demur.reproduce.networks import NETWORKS
from demur.reproduce.table2_setups import MIN_TPR, PAIRS, TITLES, Printed

if TYPE_CHECKING:
    from demur.reproduce.heldout import Heldout, MethodSplits
    from demur.reproduce.table2 import MethodResult, OodSetResult, Table2

_TABLE_HEADER = (
    f"{'method':<8}  {'selective risk [95 %]':<27}{'paper':>8}{'diff':>9}  {'at paper FPR':>12}  "
    f"{'AUROC [95 %]':<20}{'paper':>6}{'diff':>8}  {'OSCR/accepted [95 %]':<20}{'paper':>6}"
    f"{'diff':>8}  {'OSCR/all ID [95 %]':<20}"
)
_CLAIM = "On the data it was tuned on, a double score is never above its parts in selective risk"
_STUDY_HEADER = (
    f"{'method':<17}{'tuned risk':>11}{'held-out risk':>15}{'TPR':>8}{'kept':>6}{'FPR':>8}"
    f"{'kept':>6}{'unable':>8}"
)
_AGAINST = f"{'double':<9}{'minus':<17}{'mean':>10}  {'95 % interval':<22}{'better':>7}{'worse':>7}"
_STUDY_NOTES = """\
tuned risk: on the half tuned on; held-out risk, TPR, FPR: on the other half; means over splits.
kept: share of splits in which the other half met the bound; a rule tuned to the edge of a bound
keeps it in about half of them. `demur.guarantees.tune_certified` gives rules that keep it.
best single: the single score with the smallest risk on the tuning half. SIRC and the plug-in
score are fitted on the tuning half, their thresholds tuned under the same bounds; the weight of
the plug-in score is the best of five on the tuning half.
Differences are of held-out risks on the same splits; the interval allows for splits sharing rows.
The two halves differ in nothing but chance: against other OOD data all of this can be worse."""


def render_table2(table: Table2) -> str:
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
    return "\n\n".join([title, *blocks, "\n".join(_table_notes(table))])


def _block(table: Table2, name: str, block: OodSetResult) -> str:
    setup = table.scores.setup
    head = (
        f"OOD: {name}, {block.n_ood:,} images; TPR >= {MIN_TPR}, FPR <= {block.target:.4f} "
        f"(paper: {setup.targets[name]:.2f})"
    )
    rows = [
        _table_line(TITLES[method], row, setup.printed[name][method])
        for method, row in block.rows.items()
    ]
    return "\n".join([head, _TABLE_HEADER, *rows])


def _table_line(title: str, row: MethodResult, printed: Printed) -> str:
    auroc, accepted, every = row.areas
    spans = row.area_intervals
    risk = (
        f"{_number(row.selective_risk, 5):<8}{_span(row.selective_risk_interval, 5):<19}"
        f"{printed.selective_risk:>8.5f}"
        f"{_minus(row.selective_risk, printed.selective_risk, 5)}"
    )
    return (
        f"{title:<8}  {risk:<44}  {_number(row.selective_risk_at_printed, 5):>12}  "
        f"{auroc:.4f} {_span(spans[0], 3):<13}{printed.auroc:>6.3f}"
        f"{_minus(auroc, printed.auroc, 4)}  "
        f"{accepted:.4f} {_span(spans[1], 3):<13}{printed.oscr:>6.3f}"
        f"{_minus(accepted, printed.oscr, 4)}  "
        f"{every:.4f} {_span(spans[2], 3)}"
    ).rstrip()


def _number(value: float, digits: int) -> str:
    return "unable" if math.isnan(value) else f"{value:.{digits}f}"


def _minus(ours: float, printed: float, digits: int) -> str:
    return f"{'-' if math.isnan(ours) else f'{ours - printed:+.{digits}f}':>{digits + 4}}"


def _span(interval: Interval, digits: int) -> str:
    if math.isnan(interval.low):
        return ""
    low, high = (f"{end:.{digits}f}".lstrip("0") for end in (interval.low, interval.high))
    return f"[{low},{high}]"


def _table_notes(table: Table2) -> list[str]:
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


def render_heldout(study: Heldout) -> str:
    """Return the tables with their notes."""
    scores = study.scores
    title = (
        f"Held-out study, ID: {scores.setup.id}, {NETWORKS[scores.network].title}, "
        f"{scores.bank} bank: {study.splits} random halvings, TPR >= {MIN_TPR}"
    )
    blocks = []
    for ood, rows in study.outcomes.items():
        bound = rows["msp"].mean("FPR bound")
        lines = [f"OOD: {ood}, FPR <= {bound:.4f} on average", _STUDY_HEADER]
        lines += [_study_line(_title(name), outcome) for name, outcome in rows.items()]
        lines += ["", _AGAINST, *_differences(study, ood)]
        blocks.append("\n".join(lines))
    return "\n\n".join([title, *blocks, _verdict(study), _STUDY_NOTES])


def _study_line(title: str, outcome: MethodSplits) -> str:
    if outcome.unable == len(outcome.values):
        return f"{title:<17}{'unable':>11}"
    tpr_kept, fpr_kept = outcome.kept()
    return (
        f"{title:<17}{outcome.mean('tuned risk'):>11.5f}{outcome.mean('held-out risk'):>15.5f}"
        f"{outcome.mean('TPR'):>8.3f}{tpr_kept:>6.0%}{outcome.mean('FPR'):>8.4f}{fpr_kept:>6.0%}"
        f"{outcome.unable:>8}"
    )


def _differences(study: Heldout, ood: str) -> list[str]:
    from demur.reproduce.heldout import rivals

    lines = []
    for pair in PAIRS:
        for other in rivals(pair):
            found = study.difference(ood, pair, other)
            if math.isnan(found.mean):
                lines.append(f"{TITLES[pair]:<9}{_title(other):<17}{'unable':>10}")
                continue
            span = f"[{found.low:+.5f}, {found.high:+.5f}]"
            lines.append(
                f"{TITLES[pair]:<9}{_title(other):<17}{found.mean:>+10.5f}  {span:<22}"
                f"{found.wins:>7.0%}{found.losses:>7.0%}"
            )
    return lines


def _verdict(study: Heldout) -> str:
    from demur.reproduce.heldout import rivals

    lower = higher = clear = count = 0
    for ood in study.outcomes:
        for pair in PAIRS:
            for other in rivals(pair):
                found = study.difference(ood, pair, other)
                count += not math.isnan(found.mean)
                lower += found.mean < 0
                higher += found.mean > 0
                clear += found.low > 0 or found.high < 0
    return (
        f"Of {count} comparisons the double score has the lower held-out risk in {lower}, the "
        f"higher in {higher}; in {clear} the interval excludes zero."
    )


def _title(name: str) -> str:
    if name in TITLES:
        return TITLES[name]
    kind, _, pair = name.partition(" ")
    return f"{'SIRC' if kind == 'sirc' else kind} {TITLES.get(pair, pair)}"
