"""Whether tuning and held-out rows differ by more than chance."""

from __future__ import annotations

import math

from demur.guarantees.intervals import miss, sidak
from demur.report.summary import Rate, Seen
from demur.report.wording import number

_COMPARED = ("TPR", "FPR", "selective risk")


def apart(tuned: Seen, held_out: Seen, confidence: float) -> list[str]:
    """Return the rates that differ, in words.

    Both samples are random: shares are compared by Fisher's exact test, means of graded losses
    by whether their intervals meet. Of a rule not chosen on either sample, rows of one kind
    would be told apart with chance at most 1 - `confidence`.
    """
    level = sidak(miss(confidence), len(_COMPARED))
    texts = []
    for name in _COMPARED:
        old, fresh = tuned.rates.get(name), held_out.rates.get(name)
        why = None if old is None or fresh is None else _why_apart(old, fresh, level)
        if why is not None and old is not None and fresh is not None:
            texts.append(
                f"Tuning and held-out rows are apart in {name}: {number(old.value)} against "
                f"{number(fresh.value)}, {why}. "
                "They may differ in kind, or the rule fits the tuning rows too closely."
            )
    return texts


def _why_apart(old: Rate, fresh: Rate, level: float) -> str | None:
    if math.isnan(old.value) or math.isnan(fresh.value) or old.value == fresh.value:
        return None
    if old.counts is not None and fresh.counts is not None:
        chance = _fisher(old.counts, fresh.counts)
        if chance >= level:
            return None
        return f"more than chance explains (Fisher's exact test, p = {chance:.1g})"
    if old.interval is None or fresh.interval is None:
        return None
    if max(old.interval.low, fresh.interval.low) <= min(old.interval.high, fresh.interval.high):
        return None
    return "and their intervals do not meet"


def _fisher(one: tuple[int, int], other: tuple[int, int]) -> float:
    from scipy.stats import fisher_exact

    table = [[hits, trials - hits] for hits, trials in (one, other)]
    return float(fisher_exact(table).pvalue)
