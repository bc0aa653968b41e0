"""`Report`: what a tuned rule does, for the people who have to rely on it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from demur._files import write_atomically
from demur.core.models import RejectionModel
from demur.core.program import Number
from demur.core.rule import Rule
from demur.core.sample import Sample
from demur.core.wording import decision
from demur.errors import InfeasibleError
from demur.guarantees.certified_tuning import CertifiedTuning
from demur.guarantees.intervals import Prior
from demur.guarantees.prior import PriorEstimate
from demur.guarantees.resampling.bootstrap import Bootstrap
from demur.guarantees.resampling.cross import CrossTuning
from demur.report.cautions import Caution, cautions
from demur.report.comparison import MethodComparison, Methods, compare
from demur.report.explorer import Explorer, explore
from demur.report.page_data import Doubtful, Ids, Scatter, doubtful_rows, scatter
from demur.report.promises import PromiseEvidence, Promises, promises
from demur.report.summary import Case, Seen, StatedBound, is_zero_one, see, stated_bounds
from demur.tuning.directions import Directions
from demur.tuning.result import Certificate, Exact, Grid, Tuning

TITLE = "When to answer"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Report:
    """A tuned rule, its operating point, and everything needed to judge and to change it.

    Made by `Report.of`; rendered by `to_html`, `to_text` and `to_dict`.
    """

    title: str
    rule: Rule
    model: RejectionModel
    certificate: Certificate
    decision: str
    """The outcome in one sentence."""
    evidence: str
    """On which rows it was seen."""
    tuned: Seen
    held_out: Seen | None
    confidence: float
    bounds: tuple[StatedBound, ...]
    cautions: tuple[Caution, ...]
    promises: Promises
    """What may be said, from what was seen to what can be promised."""
    explorer: Explorer
    scatter: Scatter
    comparison: MethodComparison | None
    doubtful: Doubtful | None
    ood_sets: tuple[str, ...]
    zero_one: bool
    """Whether every loss is 0 or 1."""
    command: str
    """Command line that repeats the tuning but for the bounds."""
    arguments: str
    """Arguments of `demur.tune` behind the model, as Python code."""

    @classmethod
    def of(
        cls,
        sample: Sample,
        tuning: Tuning,
        *,
        held_out: Sample | None = None,
        methods: Methods | None = None,
        ids: Ids | None = None,
        title: str = TITLE,
        confidence: float = 0.95,
        max_loss: Number | None = None,
        directions: Directions = "nonneg",
        search: Exact | Grid | None = None,
        command: str | None = None,
        cross: CrossTuning | None = None,
        bootstrap: Bootstrap | None = None,
        guaranteed: CertifiedTuning | InfeasibleError | None = None,
        prior_range: Prior | None = None,
        prior_estimate: PriorEstimate | None = None,
    ) -> Report:
        """Collect what is known about a tuned rule.

        Parameters
        ----------
        sample, tuning
            The sample that was tuned on, and what `tune` returned.
        held_out
            Rows the rule was not tuned on: the source of honest numbers and intervals.
        methods
            Methods to compare: by name a sample (of one or two scores), or a pair of samples
            to tune on and held out.
        ids
            Identifiers of the ID rows and of the OOD rows of `sample`, to list the rows nearest
            to the boundary.
        confidence
            Of all intervals.
        max_loss
            The largest possible loss, where it is not 0/1; without it selective risk has no
            interval.
        directions, search
            As in the call of `tune`; they also hold for the explorer and the comparison.
        command
            Command line to show, up to the bounds, such as
            ``"demur tune scores.csv --scores msp,knn --loss wrong --ood set"``.
        cross, bootstrap, guaranteed
            What `demur.guarantees.cross_tune`, `bootstrap` and `tune_certified` said of the same
            rows and model; of the last also the `InfeasibleError` that it raised.
        prior_range
            Share of OOD inputs in use, or a (low, high) pair: precision and cost are stated over
            all of it. A model with a prior needs none.
        prior_estimate
            What `demur.guarantees.estimate_prior` said of this rule and inputs in use.

        Examples
        --------
        >>> from demur import TprFprModel, tune
        >>> sample = Sample([0.1, 0.2, 0.3, 0.9], [0, 0, 1, 1], ood_scores=[0.25, 0.8])
        >>> report = Report.of(sample, tune(sample, TprFprModel(0.5, 0.5)))
        >>> report.to_dict()["tuned"]["rates"]["TPR"]["value"]
        0.5
        >>> "<!doctype html>" in report.to_html()
        True
        """
        case = Case(sample, tuning, held_out, directions, search, confidence, max_loss)
        evidence = PromiseEvidence(cross, bootstrap, guaranteed, prior_range, prior_estimate)
        return cls.on(case, evidence, methods=methods, ids=ids, title=title, command=command)

    @classmethod
    def on(
        cls,
        case: Case,
        evidence: PromiseEvidence | None = None,
        *,
        methods: Methods | None = None,
        ids: Ids | None = None,
        title: str = TITLE,
        command: str | None = None,
    ) -> Report:
        """Collect what is known about a case: the one way in which reports are made.

        `evidence` is what was found out by tuning again, for what can be promised; the options
        are those of `of`.
        """
        tuned = see(case, case.sample)
        fresh = None if case.held_out is None else see(case, case.held_out)
        bounds, explorer = stated_bounds(case), explore(case)
        return cls(
            title=title,
            rule=case.rule,
            model=case.model,
            certificate=case.tuning.certificate,
            decision=_decision(case.judged, fresh or tuned),
            evidence=_evidence(case),
            tuned=tuned,
            held_out=fresh,
            confidence=case.confidence,
            bounds=bounds,
            cautions=tuple(cautions(case, tuned, fresh, bounds=bounds, explorer=explorer)),
            promises=promises(case, evidence or PromiseEvidence(), fresh),
            explorer=explorer,
            scatter=scatter(case.sample),
            comparison=compare(methods, case) if methods else None,
            doubtful=None if ids is None else doubtful_rows(case.rule, case.sample, ids),
            ood_sets=tuple(case.sample.ood_sets),
            zero_one=is_zero_one(case.sample),
            command=case.command_line(command),
            arguments=case.python_arguments(),
        )

    @property
    def judged(self) -> Seen:
        """What was seen on the rows that count: the held-out ones where there are any."""
        return self.tuned if self.held_out is None else self.held_out

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return the report as one self-contained page, and write it to `path` if given.

        Needs the package jinja2, which the extra `report` brings.
        """
        from demur.report.html import render

        page = render(self)
        if path is not None:
            # Names may hold lone surrogates, which no file can.
            write_atomically(path, page.encode("utf-8", "replace"))
        return page

    def to_text(self) -> str:
        """Return the report as plain text, without what is interactive."""
        from demur.report.plain import report_text

        return report_text(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data that JSON can hold; what is undefined is None."""
        from demur.report.plain import report_data

        return report_data(self)

    def __repr__(self) -> str:
        return f"Report({self.title!r}, {self.decision!r})"


def _decision(sample: Sample, seen: Seen) -> str:
    return decision(
        seen.point,
        zero_one=is_zero_one(sample),
        risk_of_all=float(np.average(sample.id_loss, weights=sample.id_weight)),
    )


def _evidence(case: Case) -> str:
    rows, judged = "held-out rows", case.judged
    if case.held_out is None:
        rows = "the rows that the rule was tuned on, so optimistic"
    return f"Seen on {rows}: {judged.n_id:,} ID and {judged.n_ood:,} OOD."
