"""The verdict on a rule: whether its bounds are proven, only seen to be met, or missed.

With the cautions: what a reader must know before relying on the numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from demur.core.models import ROUNDING, RejectionModel
from demur.core.program import Number
from demur.core.rule import Rule
from demur.core.sample import Sample
from demur.core.wording import ONLY_THESE_OOD, PERCENT_SIGN, amount, bound_sign, number
from demur.errors import InfeasibleError
from demur.guarantees.certified_tuning import CertifiedTuning
from demur.guarantees.intervals import miss, sidak
from demur.report.explorer import Explorer, bounded_fpr
from demur.report.summary import Case, Rate, Seen, StatedBound, is_weighted, is_zero_one
from demur.tuning.result import Directions, Exact, Grid, SearchCertificate, Shape, Tuning
from demur.tuning.tune import tune

State = Literal["proven", "seen", "missed", "unmet"]

_TITLES = {
    "proven": "Proven",
    "seen": "Seen, not proven",
    "missed": "Missed",
    "unmet": "Out of reach",
}


@dataclass(frozen=True, slots=True)
class Judgement:
    """What may be said of the bounds, and what that rests on."""

    state: State
    text: str

    @property
    def title(self) -> str:
        """The state in a word or three."""
        return _TITLES[self.state]


def bound_state(bound: StatedBound, seen: Seen, *, fresh: bool) -> State | None:
    """Return whether rows prove a bound, show it met, or show it missed; None if they cannot."""
    rate = seen.rates.get(bound.rate)
    if rate is None or math.isnan(rate.value):
        return None
    if not bound.bound.met_by(rate.value, within=ROUNDING):
        return "missed"
    return "proven" if fresh and seen.certified.get(bound.text) else "seen"


def verdict(
    case: Case,
    bounds: Sequence[StatedBound],
    tuned: Seen,
    held_out: Seen | None,
    guaranteed: CertifiedTuning | InfeasibleError | None = None,
) -> Judgement:
    """Return the verdict on the rule of a case."""
    if case.unmet is not None:
        return Judgement("unmet", _unmet_text(case.unmet))
    if isinstance(guaranteed, CertifiedTuning) and guaranteed.rule == case.rule:
        return _of_guarantee(guaranteed, case.whose)
    fresh, judged = held_out is not None, held_out or tuned
    rows = _rows_text(case)
    if not bounds:
        return Judgement("seen", f"No bounds were asked for. The numbers were seen on {rows}.")
    states = {bound.text: bound_state(bound, judged, fresh=fresh) for bound in bounds}
    for state in ("missed", "seen", "proven"):
        if state in states.values():
            text = _text(state, states, rows, case)
            return Judgement(state, f"{text[0].upper()}{text[1:]}")
    return Judgement("seen", f"The bounds cannot be judged on {rows}.")


def _text(state: str, states: dict[str, State | None], rows: str, case: Case) -> str:
    named = {kind: _together(states, kind) for kind in ("missed", "seen", "proven")}
    if state == "missed":
        also = "".join(f" {named[kind]} {kind}." for kind in ("seen", "proven") if named[kind])
        return f"{named['missed']} missed on {rows}.{also}"
    if state == "proven":
        sure = f"{100 * case.confidence:g}{PERCENT_SIGN}"
        return f"{named['proven']} proven with {sure} confidence, by {rows}."
    if case.held_out is None:
        return f"{named['seen']} met on {rows}. On new inputs that may be otherwise."
    also = f" {named['proven']} proven." if named["proven"] else ""
    return f"{named['seen']} met on {rows}, which are too few or too near to prove it.{also}"


def _together(states: dict[str, State | None], kind: str) -> str:
    texts = [text for text, found in states.items() if found == kind]
    return " and ".join(texts) + (" is" if len(texts) == 1 else " are") if texts else ""


def _rows_text(case: Case) -> str:
    n_id, n_ood = case.sizes(case.judged)
    rows = f"{n_id:,} ID" + (f" and {n_ood:,} OOD" if n_ood else "")
    if case.held_out is not None:
        return f"{rows} held-out rows"
    return f"the {rows} rows the rule was tuned on"


def _of_guarantee(found: CertifiedTuning, whose: str) -> Judgement:
    sizes = found.sizes
    bounds = found.model.asked
    asked = " and ".join(bound_sign(found.model, bound, whose) for bound in bounds)
    what = asked or f"An expected cost of at most {found.expected_cost:.5g}"
    holds = "hold" if len(bounds) > 1 else "holds"
    sure = f"{100 * found.confidence:g}{PERCENT_SIGN}"
    return Judgement(
        "proven",
        f"{what[0].upper()}{what[1:]} {holds} with {sure} confidence, by "
        f"{sizes.test_id:,} ID and {sizes.test_ood:,} OOD rows set aside to test the rule.",
    )


def _unmet_text(error: InfeasibleError) -> str:
    text = str(error)
    return f"{text[0].upper()}{text[1:]}. Shown below is the rule that comes nearest."


def nearest_tuning(
    sample: Sample,
    error: InfeasibleError,
    *,
    directions: Directions | None = None,
    search: Exact | Grid | None = None,
    ood: Literal["pooled", "worst"] | None = None,
    shape: Shape = "half-plane",
) -> Tuning | None:
    """Return the rule that comes nearest to bounds that none meets, None if there is none.

    It keeps all bounds but one, which is moved to the best that is attainable; the share of ID
    is kept first.
    """
    for model in _nearest_models(error):
        try:
            return tune(sample, model, directions=directions, search=search, ood=ood, shape=shape)
        except InfeasibleError:
            continue
    return None


def _nearest_models(error: InfeasibleError) -> list[RejectionModel]:
    model: RejectionModel = error.model
    bounds = sorted(model.bounds, key=lambda bound: bound.quantity == "tpr")
    found = []
    for bound in bounds:
        name = f"{'max' if bound.is_lower else 'min'}_{model.word(bound)}"
        value = error.attainable.get(name, math.nan)
        if not math.isnan(value):
            # A hair on the attainable side of what was rounded to a float.
            moved: Number = value - 1e-9 if bound.is_lower else value + 1e-9
            found.append(model.moved(bound, min(1.0, max(0.0, moved))))
    return found


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
        *_edge(case, explorer),
        *_on_the_bound(tuned, bounds),
        *_missed(held_out, bounds),
        *_apart(tuned, held_out, case.confidence),
        *_search(case.certificate),
        *_unused_score(case.searched),
        *_optimistic(held_out),
    ]
    notes = [*_unproven(held_out, case.confidence), *_limits(case)]
    return [
        *(Caution("warning", text) for text in warnings),
        *(Caution("note", text) for text in notes),
    ]


def resting(case: Case, explorer: Explorer) -> str:
    """Say which numbers are of all rows, where some were drawn; nothing where none were."""
    if case.whole is None:
        return ""
    parts = [case.whole.tuned, case.whole.held_out]
    total = sum(part.sizes.rows for part in parts if part is not None)
    samples = [sample for sample in (case.sample, case.held_out) if sample is not None]
    drawn = sum(sample.n_id + sample.n_ood for sample in samples)
    own = f"The rule is the best for all rows, and its rates are those of all {total:,}."
    if case.unmet is not None:
        own = f"That no rule meets the bounds is true of all {total:,} rows; the one shown is the "
        own += "nearest on drawn rows, and its rates are those of these."
    if explorer.binned is not None:
        own += f" Those of the other rules are {explorer.binned.text}."
    return (
        f"{own} The choice of other rules, marks and outlines in plots, methods compared and "
        f"whatever is tuned anew rest on {drawn:,} of these rows, drawn by a hash."
    )


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
    if case.sizes(case.sample)[1] == 0:
        return ["There are no OOD rows: nothing is known about foreign inputs."]
    return [*_few_ood(case), *_few_errors(case.sample, judged)]


def _few_ood(case: Case) -> list[str]:
    count, bound = case.sizes(case.sample)[1], case.model.bound("fpr")
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


def _edge(case: Case, explorer: Explorer) -> list[str]:
    """Warn when a slightly stricter bound on TPR or FPR cannot be met."""
    model = case.model
    quantities = {bound.quantity for bound in model.bounds}
    if case.unmet is not None or not explorer.complete:
        return []
    if not quantities or quantities - {"tpr", "fpr"}:
        return []
    tpr, fpr = model.bound("tpr"), model.bound("fpr")
    least = 0.0 if tpr is None else float(tpr.share)
    most = 1.0 if fpr is None or not explorer.has_ood else float(fpr.share)
    stricter = []
    if least <= 0.99 and not _attainable(explorer, least + 0.01, most):
        stricter.append(f"TPR ≥ {least + 0.01:g}")
    less = most - 0.01 if most >= 0.02 else most / 2
    if 0 < most < 1 and not _attainable(explorer, least, less):
        stricter.append(f"FPR ≤ {less:g}{case.whose}")
    if not stricter:
        return []
    return [
        f"The bounds are at the edge of what these scores can do: {' or '.join(stricter)} "
        "could not be met."
    ]


def _attainable(explorer: Explorer, tpr: float, fpr: float) -> bool:
    counts = explorer.tuned
    met = counts.id >= tpr * counts.totals.id * (1 - 1e-12)
    if explorer.has_ood:
        met &= bounded_fpr(counts, worst=explorer.worst) <= fpr * (1 + 1e-12)
    return bool(met.any())


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
        if seen is None or math.isnan(seen.value):
            continue
        if not bound.bound.met_by(seen.value, within=ROUNDING):
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


def _search(certificate: SearchCertificate) -> list[str]:
    status = certificate.status
    if status == "grid":
        return ["Only a grid of angles was searched: a better rule may exist."]
    if status in ("gap", "budget"):
        return ["The search was stopped early: a better rule may exist."]
    if status == "unresolved":
        return ["Better half-planes exist that are too thin for any float64 rule that was tried."]
    return []


def _unused_score(rule: Rule) -> list[str]:
    direction = rule.direction
    if len(direction) == 2 and 0 in direction and rule.threshold > -math.inf:
        which = "second" if direction[1] == 0 else "first"
        return [f"The rule does not use the {which} score: the other one alone does as well."]
    return []
