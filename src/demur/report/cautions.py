"""What a reader must know before relying on the numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from demur.core.models import TprFprModel
from demur.core.program import exact
from demur.core.sample import Sample
from demur.report.apart import apart
from demur.report.explorer import Explorer
from demur.report.summary import Bound, Seen, is_weighted, is_zero_one
from demur.report.wording import ONLY_THESE_OOD, amount, number
from demur.tuning.result import Tuning

# Below these, a rate is little more than an anecdote.
_FEW_OOD = 100
_FEW_EVENTS = 10


@dataclass(frozen=True, slots=True)
class Caution:
    """Something to beware of."""

    level: Literal["warning", "note"]
    text: str


def cautions(
    sample: Sample,
    tuning: Tuning,
    tuned: Seen,
    *,
    held_out: Seen | None,
    bounds: list[Bound],
    explorer: Explorer,
    confidence: float,
    max_loss_known: bool,
) -> list[Caution]:
    """Return warnings, then notes."""
    texts = [
        *_few_rows(sample, tuning, tuned if held_out is None else held_out),
        *_edge(tuning, explorer),
        *_on_the_bound(tuned, bounds),
        *_missed(held_out, bounds),
        *([] if held_out is None else apart(tuned, held_out, confidence)),
        *_search(tuning),
        *_unused_score(tuning),
    ]
    if held_out is None:
        texts.append(
            "There are no held-out rows. The numbers were seen on the rows the rule was chosen "
            "on, so they are optimistic: expect worse on new inputs."
        )
    found = [Caution("warning", text) for text in texts]
    unproven = [] if held_out is None else [b for b, ok in held_out.certified.items() if not ok]
    if unproven:
        found.append(
            Caution(
                "note",
                f"Seen is not proven: the held-out rows do not certify {' and '.join(unproven)} "
                f"with {confidence:g} confidence. For bounds that must hold use demur tune "
                "--guarantee, or demur.guarantees.",
            )
        )
    if sample.n_ood:
        found.append(Caution("note", ONLY_THESE_OOD))
    if is_weighted(sample):
        found.append(Caution("note", "Rows carry weights, so there are no exact intervals."))
    elif not is_zero_one(sample) and not max_loss_known:
        found.append(
            Caution(
                "note",
                "The loss is not 0/1 and its largest possible value was not declared "
                "(max_loss), so selective risk has no interval.",
            )
        )
    return found


def _few_rows(sample: Sample, tuning: Tuning, seen: Seen) -> list[str]:
    texts = []
    if sample.n_ood == 0:
        texts.append("There are no OOD rows: nothing is known about foreign inputs.")
        return texts
    allowed = math.inf
    if isinstance(tuning.model, TprFprModel):
        allowed = float(exact("max_fpr", tuning.model.max_fpr)) * sample.n_ood
    if sample.n_ood < _FEW_OOD:
        texts.append(f"Few OOD rows: {sample.n_ood} to tune on. The FPR is known only roughly.")
    elif allowed < _FEW_EVENTS:
        texts.append(
            f"Few OOD rows for so small a bound: {sample.n_ood} to tune on, of which the bound "
            f"lets {allowed:.3g} pass. One row more or less changes the rule."
        )
    if is_zero_one(sample) and seen.point.accepted_id > 0 and not is_weighted(sample):
        wrong = seen.point.accepted_loss
        if wrong < _FEW_EVENTS:
            texts.append(
                f"The selective risk rests on {amount(wrong)} wrong accepted "
                f"{'row' if wrong == 1 else 'rows'}: its digits mean little, its interval more."
            )
    return texts


def _edge(tuning: Tuning, explorer: Explorer) -> list[str]:
    """Warn when a slightly stricter bound cannot be met."""
    if not isinstance(tuning.model, TprFprModel):
        return []
    row = math.ceil(100 * exact("min_tpr", tuning.model.min_tpr))
    column = math.floor(100 * exact("max_fpr", tuning.model.max_fpr))
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


def _on_the_bound(tuned: Seen, bounds: list[Bound]) -> list[str]:
    one_row = 1 / max(tuned.ood_total, 1)
    tight = [
        b for b in bounds if not b.at_least and 0 <= b.limit - tuned.rates[b.rate].value < one_row
    ]
    return [
        f"On the tuning rows the rule uses up the bound {b.text}. On new inputs of the same kind "
        "it will exceed it about every other time; ask for less if it must hold."
        for b in tight
    ]


def _missed(held_out: Seen | None, bounds: list[Bound]) -> list[str]:
    if held_out is None:
        return []
    texts = []
    for bound in bounds:
        seen = held_out.rates.get(bound.rate)
        if seen is not None and not math.isnan(seen.value) and not bound.met(seen.value):
            texts.append(f"On held-out rows {bound.text} is missed: it is {number(seen.value)}.")
    return texts


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
