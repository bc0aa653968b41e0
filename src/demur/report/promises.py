"""The panel "What you can promise": statements side by side, and the share of OOD inputs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from demur.core.models import RejectionModel
from demur.core.program import Number
from demur.core.rule import Rule
from demur.core.sample import Sample
from demur.errors import InfeasibleError, InvalidInputError
from demur.guarantees.certified_rule import certify
from demur.guarantees.certified_tuning import CertifiedTuning
from demur.guarantees.intervals import Interval
from demur.guarantees.prior import Prior, PriorEstimate, prior_range
from demur.guarantees.resampling.bootstrap import Bootstrap
from demur.guarantees.resampling.cross import CrossTuning
from demur.report.evidence import prior_data
from demur.report.statements import (
    Statement,
    certified,
    cross_validated,
    guaranteed,
    resampled,
    seen_held_out,
    seen_when_tuned,
)
from demur.report.summary import Seen, is_weighted, is_zero_one, without_loss
from demur.report.wording import PERCENT_SIGN, outwards, percent
from demur.tuning.result import Tuning

_HOW = {
    "cross": "cross-validation (--folds 5, cross=)",
    "bootstrap": "bootstrap intervals (--replicates 1000, bootstrap=)",
    "held_out": "held-out rows (--holdout .3, held_out=)",
    "guaranteed": "a rule with a guarantee (--guarantee .95, guaranteed=)",
}


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was computed about the rule beyond looking at it."""

    cross: CrossTuning | None = None
    bootstrap: Bootstrap | None = None
    guaranteed: CertifiedTuning | InfeasibleError | None = None
    prior_range: Prior | None = None
    prior_estimate: PriorEstimate | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Promises:
    """What may be said, the weakest statement first."""

    statements: tuple[Statement, ...]
    priors: Interval | None
    """Shares of OOD inputs over which precision and cost are stated."""
    prior: PriorEstimate | None
    missing: tuple[str, ...]
    """What was not asked for, and how to ask."""

    @property
    def columns(self) -> list[str]:
        """Names of the rates that some statement has."""
        order = ("TPR", "FPR", "selective risk", "precision", "expected cost")
        return [name for name in order if any(name in s.rates for s in self.statements)]

    def column_title(self, name: str) -> str:
        """Return the name of a rate, with the prior it depends on."""
        if name not in ("precision", "expected cost") or self.priors is None:
            return name
        low, high = self.priors.low, self.priors.high
        return f"{name} at prior {low:g}" + ("" if low == high else f" to {high:g}")

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "statements": [statement.as_dict() for statement in self.statements],
            "ood_prior": None if self.priors is None else asdict(self.priors),
            "prior_estimate": None if self.prior is None else prior_data(self.prior),
            "missing": list(self.missing),
        }


def promises(
    tuning: Tuning,
    evidence: Evidence,
    *,
    held_out: tuple[Seen, Sample] | None,
    confidence: float,
    max_loss: Number | None,
) -> Promises:
    """Put together what may be said of a tuned rule."""
    model = tuning.model
    _check(tuning, evidence)
    priors = prior_range(model, evidence.prior_range)
    found = [seen_when_tuned(tuning.point, model, priors)]
    if evidence.cross is not None:
        found.append(cross_validated(evidence.cross, priors))
    if evidence.bootstrap is not None:
        found.append(resampled(evidence.bootstrap))
    if held_out is not None:
        found.append(seen_held_out(held_out[0], model, priors))
        proven = _proven(tuning.rule, held_out[1], model, priors, confidence, max_loss)
        found += [] if proven is None else [proven]
    if evidence.guaranteed is not None:
        found.append(guaranteed(evidence.guaranteed))
    keys = [statement.key for statement in found]
    missing = tuple(text for key, text in _HOW.items() if key not in keys)
    return Promises(tuple(found), priors, evidence.prior_estimate, missing)


def prior_text(found: PriorEstimate) -> str:
    """Return what unlabelled inputs say about the share of OOD among them."""
    seen = f"Of the unlabelled inputs in use the rule accepted {percent(found.accepted_share)}."
    if not found.consistent:
        return (
            f"{seen} No share of OOD inputs explains that: the inputs are unlike the rows here, "
            "so nothing in this report is sure to hold for them."
        )
    low, high = outwards(100 * found.interval.low, 100 * found.interval.high, 1)
    return (
        f"{seen} Given its TPR and FPR, between {low}{PERCENT_SIGN} and "
        f"{high}{PERCENT_SIGN} of them are OOD ({100 * found.confidence:g} % "
        f"confidence; best guess {percent(found.estimate)})."
    )


def _proven(
    rule: Rule,
    rows: Sample,
    model: RejectionModel,
    priors: Interval | None,
    confidence: float,
    max_loss: Number | None,
) -> Statement | None:
    """Return what held-out rows prove; None for weighted rows and random rules."""
    if is_weighted(rows) or rule.tau != 1:
        return None
    knows_loss = is_zero_one(rows) or max_loss is not None
    promise = certify(
        rule,
        rows if knows_loss else without_loss(rows),
        confidence=confidence,
        model=model,
        ood_prior=None if priors is None else (priors.low, priors.high),
        max_loss=max_loss,
    )
    return certified(promise, knows_loss=knows_loss)


def _check(tuning: Tuning, evidence: Evidence) -> None:
    """Refuse results about another model or other rows: they would be shown as this rule's."""
    for name in ("cross", "bootstrap"):
        result = getattr(evidence, name)
        if result is not None and (result.tuned.model, result.tuned.totals) != (
            tuning.model,
            tuning.totals,
        ):
            raise InvalidInputError(f"{name} is about another model or other rows than tuning")
    promised = evidence.guaranteed
    if promised is not None and promised.model != tuning.model:
        raise InvalidInputError("guaranteed is about another model than tuning")
