"""What a reader must know before relying on the numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from demur.core.models import RejectionModel
from demur.core.sample import Sample
from demur.core.wording import ONLY_THESE_OOD, amount, number
from demur.guarantees.intervals import miss, sidak
from demur.report.explorer import Explorer
from demur.report.summary import Case, Rate, Seen, StatedBound, is_weighted, is_zero_one
from demur.tuning.result import Tuning

# Below these, a rate is little more than an anecdote.
_FEW_OOD = 100
_FEW_EVENTS = 10
_COMPARED = ("TPR", "FPR", "selective risk")


@dataclass(frozen=True, slots=True)
class Caution:
    """Something to beware of."""

    level: Literal["warning", "note"]
    text: str


def cautions(
    case: Case,
    tuned: Seen,
    held_out: Seen | None,
    *,
    bounds: Sequence[StatedBound],
    explorer: Explorer,
) -> list[Caution]:
    """Return warnings, then notes."""
    warnings = [
        *_few_rows(case, tuned if held_out is None else held_out),
        *_edge(case.model, explorer),
        *_on_the_bound(tuned, bounds),
        *_missed(held_out, bounds),
        *_apart(tuned, held_out, case.confidence),
        *_search(case.tuning),
        *_unused_score(case.tuning),
        *_optimistic(held_out),
    ]
    notes = [*_unproven(held_out, case.confidence), *_limits(case)]
    return [
        *(Caution("warning", text) for text in warnings),
        *(Caution("note", text) for text in notes),
    ]


def _optimistic(held_out: Seen | None) -> list[str]:
    if held_out is not None:
        return []
    return [
        "There are no held-out rows. The numbers were seen on the rows the rule was chosen "
        "on, so they are optimistic: expect worse on new inputs."
    ]


def _unproven(held_out: Seen | None, confidence: float) -> list[str]:
    unproven = [] if held_out is None else [b for b, ok in held_out.certified.items() if not ok]
    if not unproven:
        return []
    return [
        f"Seen is not proven: the held-out rows do not certify {' and '.join(unproven)} "
        f"with {confidence:g} confidence. For bounds that must hold use demur tune "
        "--guarantee, or demur.guarantees."
    ]


def _limits(case: Case) -> list[str]:
    """Say what the rows cannot tell."""
    texts = [ONLY_THESE_OOD] if case.sample.n_ood else []
    if is_weighted(case.sample):
        texts.append("Rows carry weights, so there are no exact intervals.")
    elif not case.knows_loss(case.sample):
        texts.append(
            "The loss is not 0/1 and its largest possible value was not declared "
            "(max_loss), so selective risk has no interval."
        )
    return texts


def _few_rows(case: Case, judged: Seen) -> list[str]:
    if case.sample.n_ood == 0:
        return ["There are no OOD rows: nothing is known about foreign inputs."]
    return [*_few_ood(case), *_few_errors(case.sample, judged)]


def _few_ood(case: Case) -> list[str]:
    count, bound = case.sample.n_ood, case.model.bound("fpr")
    allowed = math.inf if bound is None else float(bound.share) * count
    if count < _FEW_OOD:
        return [f"Few OOD rows: {count} to tune on. The FPR is known only roughly."]
    if allowed >= _FEW_EVENTS:
        return []
    return [
        f"Few OOD rows for so small a bound: {count} to tune on, of which the bound "
        f"lets {allowed:.3g} pass. One row more or less changes the rule."
    ]


def _few_errors(sample: Sample, judged: Seen) -> list[str]:
    wrong = judged.point.accepted_loss
    counted = is_zero_one(sample) and judged.point.accepted_id > 0 and not is_weighted(sample)
    if not counted or wrong >= _FEW_EVENTS:
        return []
    return [
        f"The selective risk rests on {amount(wrong)} wrong accepted "
        f"{'row' if wrong == 1 else 'rows'}: its digits mean little, its interval more."
    ]


def _edge(model: RejectionModel, explorer: Explorer) -> list[str]:
    """Warn when a slightly stricter bound cannot be met; the cells know those on TPR and FPR."""
    quantities = {bound.quantity for bound in model.bounds}
    if not quantities or quantities - {"tpr", "fpr"}:
        return []
    tpr, fpr = model.bound("tpr"), model.bound("fpr")
    row = 0 if tpr is None else math.ceil(100 * tpr.share)
    column = 100 if fpr is None else math.floor(100 * fpr.share)
    able = explorer.cells >= 0
    stricter = []
    if row < 100 and not able[row + 1, column]:
        stricter.append(f"TPR ≥ {(row + 1) / 100:g}")
    if column > 0 and not able[row, column - 1]:
        stricter.append(f"FPR ≤ {(column - 1) / 100:g}")
    if not stricter:
        return []
    return [
        f"The bounds are at the edge of what these scores can do: {' or '.join(stricter)} "
        "could not be met."
    ]


def _on_the_bound(tuned: Seen, bounds: Sequence[StatedBound]) -> list[str]:
    one_row = 1 / max(tuned.ood_total, 1)
    tight = [
        b
        for b in bounds
        if not b.bound.is_lower and 0 <= b.limit - tuned.rates[b.rate].value < one_row
    ]
    return [
        f"On the tuning rows the rule uses up the bound {b.text}. On new inputs of the same kind "
        "it will exceed it about every other time; ask for less if it must hold."
        for b in tight
    ]


def _missed(held_out: Seen | None, bounds: Sequence[StatedBound]) -> list[str]:
    if held_out is None:
        return []
    texts = []
    for bound in bounds:
        seen = held_out.rates.get(bound.rate)
        if seen is not None and not math.isnan(seen.value) and not bound.bound.met_by(seen.value):
            texts.append(f"On held-out rows {bound.text} is missed: it is {number(seen.value)}.")
    return texts


def _apart(tuned: Seen, held_out: Seen | None, confidence: float) -> list[str]:
    """Tell rates of tuning and held-out rows that differ by more than chance.

    Both samples are random: shares are compared by Fisher's exact test, means of graded losses
    by whether their intervals meet. Of a rule not chosen on either sample, rows of one kind
    would be told apart with chance at most 1 - `confidence`.
    """
    if held_out is None:
        return []
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


def _search(tuning: Tuning) -> list[str]:
    status = tuning.certificate.status
    if status == "grid":
        return ["Only a grid of angles was searched: a better rule may exist."]
    if status in ("gap", "budget"):
        return ["The search was stopped early: a better rule may exist."]
    return []


def _unused_score(tuning: Tuning) -> list[str]:
    direction = tuning.rule.direction
    if len(direction) == 2 and 0 in direction and tuning.rule.threshold > -math.inf:
        which = "second" if direction[1] == 0 else "first"
        return [f"The rule does not use the {which} score: the other one alone does as well."]
    return []
