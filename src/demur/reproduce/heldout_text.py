"""The held-out study as text."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from demur.reproduce.networks import NETWORKS
from demur.reproduce.table2_setups import MIN_TPR, PAIRS, TITLES

if TYPE_CHECKING:
    from demur.reproduce.heldout import Heldout, Outcome

_HEADER = (
    f"{'method':<17}{'tuned risk':>11}{'held-out risk':>15}{'TPR':>8}{'kept':>6}{'FPR':>8}"
    f"{'kept':>6}{'unable':>8}"
)
_AGAINST = f"{'double':<9}{'minus':<17}{'mean':>10}  {'95 % interval':<22}{'better':>7}{'worse':>7}"
_NOTES = """\
tuned risk: on the half tuned on; held-out risk, TPR, FPR: on the other half; means over splits.
kept: share of splits in which the other half met the bound; a rule tuned to the edge of a bound
keeps it in about half of them. `demur.guarantees.tune_certified` gives rules that keep it.
best single: the single score with the smallest risk on the tuning half. SIRC and the plug-in
score are fitted on the tuning half, their thresholds tuned under the same bounds; the weight of
the plug-in score is the best of five on the tuning half.
Differences are of held-out risks on the same splits; the interval allows for splits sharing rows.
The two halves differ in nothing but chance: against other OOD data all of this can be worse."""


def render(study: Heldout) -> str:
    """Return the tables with their notes."""
    scores = study.scores
    title = (
        f"Held-out study, ID: {scores.setup.id}, {NETWORKS[scores.network].title}, "
        f"{scores.bank} bank: {study.splits} random halvings, TPR >= {MIN_TPR}"
    )
    blocks = []
    for ood, rows in study.outcomes.items():
        bound = rows["msp"].mean("FPR bound")
        lines = [f"OOD: {ood}, FPR <= {bound:.4f} on average", _HEADER]
        lines += [_line(_title(name), outcome) for name, outcome in rows.items()]
        lines += ["", _AGAINST, *_differences(study, ood)]
        blocks.append("\n".join(lines))
    return "\n\n".join([title, *blocks, _verdict(study), _NOTES])


def _line(title: str, outcome: Outcome) -> str:
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
