"""`Report`: what a tuned rule does, for the people who have to rely on it; as text and as data."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from demur._files import write_atomically
from demur.core.card import now
from demur.core.fingerprint import Fingerprint
from demur.core.models import RejectionModel
from demur.core.program import Number
from demur.core.rule import BoxRule, Rule, rule_data
from demur.core.sample import Sample
from demur.core.wording import (
    amount,
    decision,
    number,
    outwards,
    range_text,
    rule_text,
    sentence,
    strict,
)
from demur.errors import InfeasibleError
from demur.guarantees.bootstrapping import Bootstrap
from demur.guarantees.certified_tuning import CertifiedTuning
from demur.guarantees.cross_tuning import CrossTuning
from demur.guarantees.intervals import Prior
from demur.guarantees.prior import PriorEstimate
from demur.guarantees.splits import repeats_ids
from demur.learn.doubts import Learned
from demur.report.choices import Doubtful, DrawnRows, Ids, doubtful_rows, drawn_rows
from demur.report.comparison import MethodComparison, Methods, compare
from demur.report.explorer import Counts, Explorer, explore
from demur.report.promises import PromiseEvidence, Promises, prior_text, promises
from demur.report.summary import (
    Case,
    Seen,
    StatedBound,
    WholeRows,
    is_weighted,
    is_zero_one,
    rate_title,
    see,
    stated_bounds,
)
from demur.report.verdict import Caution, Judgement, cautions, resting, verdict
from demur.tuning.result import Directions, Exact, Grid, SearchCertificate, Tuning

TITLE = "When to answer"


Stage = Callable[[str, float], object]
"""Is told the name of each stage and the share of the time that is about over."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Report:
    """A tuned rule, its operating point, and everything needed to judge and to change it.

    Made by `Report.of`; rendered by `to_html`, `to_text` and `to_dict`.

    Examples
    --------
    >>> import demur as dm
    >>> sample = dm.Sample(range(40), [0] * 38 + [1] * 2, range(30, 60))
    >>> report = dm.Report.of(sample, dm.tune(sample, dm.TprFprModel(0.7, 0.1)))
    >>> report.asked
    'least selective risk with TPR ≥ 0.7, FPR ≤ 0.1'
    """

    title: str
    rule: Rule
    model: RejectionModel
    certificate: SearchCertificate
    verdict: Judgement
    """Whether the bounds are proven, seen to be met, or missed."""
    asked: str
    """What was asked for, in words."""
    decision: str
    """The outcome in one sentence."""
    evidence: str
    """On which rows it was seen."""
    resting: str
    """Which numbers are of all rows, if some were drawn; else nothing."""
    tuned: Seen
    held_out: Seen | None
    confidence: float
    bounds: tuple[StatedBound, ...]
    cautions: tuple[Caution, ...]
    promises: Promises
    """What may be said, from what was seen to what can be promised."""
    explorer: Explorer
    rows: DrawnRows
    comparison: MethodComparison | None
    doubtful: Doubtful | None
    ood_sets: tuple[str, ...]
    zero_one: bool
    """Whether every loss is 0 or 1."""
    command: str
    """Command line that repeats the tuning but for the bounds."""
    arguments: str
    """Arguments of `demur.tune` behind the model, as Python code."""
    is_optimum: bool
    """Whether the rule is what `demur.tune` returns for the bounds asked for."""
    is_choice: bool
    """Whether it is the best of the rules with its counts, whatever groups and sets they keep."""
    guarantee: float | None
    """The confidence of its promise, if the rule was tuned with a guarantee."""
    unmet: InfeasibleError | None
    """What `demur.tune` said of bounds that no rule meets."""
    fingerprint: str
    """Of the tuning rows: the same for the same scores, whatever file they come from."""
    made: str
    """The day the report was made."""
    learned: Learned | None
    """What makes the scores that the rule is about, if they are learned."""

    @classmethod
    def of(
        cls,
        sample: Sample,
        tuning: Tuning,
        *,
        held_out: Sample | None = None,
        methods: Methods | None = None,
        ids: Ids | None = None,
        held_out_ids: Ids | None = None,
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
        rule: Rule | None = None,
        unmet: InfeasibleError | None = None,
        learned: Learned | None = None,
        whole: WholeRows | None = None,
        progress: Stage | None = None,
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
        held_out_ids
            What the ID rows and the OOD rows of `held_out` belong to, such as patients. Where rows
            share one, every id counts once in what is promised.
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
        rule
            The rule to report on, if it is another than that of `tuning`: one with a guarantee.
        unmet
            The `InfeasibleError` that `tune` raised for what was asked; then `tuning` is about
            bounds near them, and the report about what is attainable.
        learned
            What made the scores of `sample`, if they are learned: the page says what they are, and
            the rules that it saves have them in the same file.
        whole
            All rows, of which `sample` and `held_out` are some: then the rates of the rule, and
            those of all other rules, are of all of them.
        progress
            Called with the name of each stage and the share of the time that is about over.

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
        case = Case(
            *(sample, tuning, held_out, directions, search, confidence, max_loss),
            held_out_groups=held_out_ids,
            about=rule,
            unmet=unmet,
            whole=whole,
        )
        evidence = PromiseEvidence(cross, bootstrap, guaranteed, prior_range, prior_estimate)
        return cls.on(
            case,
            evidence,
            methods=methods,
            ids=ids,
            title=title,
            command=command,
            learned=learned,
            progress=progress,
        )

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
        learned: Learned | None = None,
        progress: Stage | None = None,
    ) -> Report:
        """Collect what is known about a case: the one way in which reports are made.

        `evidence` is what was found out by tuning again, for what can be promised; the options
        are those of `of`.
        """
        tell = progress or _tell_nobody
        tuned = see(case, case.sample)
        fresh = None if case.held_out is None else see(case, case.held_out)
        doubtful = None if ids is None else doubtful_rows(case.rule, case.sample, ids)
        tell("rules for all bounds", 0.05)
        bounds, explorer = stated_bounds(case), explore(case)
        tell("comparing methods", 0.6)
        shared = any(
            rows is not None and groups is not None and repeats_ids(rows, groups)
            for rows, groups in ((case.sample, ids), (case.held_out, case.held_out_groups))
        )
        comparison = compare(methods, case, independent=not shared) if methods else None
        tell("intervals and cautions", 0.9)
        evidence = evidence or PromiseEvidence()
        return cls(
            title=title,
            rule=case.rule,
            model=case.model,
            certificate=case.certificate,
            verdict=verdict(case, bounds, tuned, fresh, evidence.guaranteed),
            asked=sentence(case.model, case.whose),
            decision=_decision(case, fresh or tuned),
            evidence=_evidence(case),
            resting=resting(case, explorer),
            tuned=tuned,
            held_out=fresh,
            confidence=case.confidence,
            bounds=bounds,
            cautions=tuple(cautions(case, tuned, fresh, bounds=bounds, explorer=explorer)),
            promises=promises(case, evidence, fresh),
            explorer=explorer,
            rows=drawn_rows(case.sample, ids),
            comparison=comparison,
            doubtful=doubtful,
            ood_sets=case.ood_sets,
            zero_one=is_zero_one(case.sample),
            command=case.command_line(command),
            arguments=case.python_arguments(),
            is_optimum=case.is_optimum,
            is_choice=case.is_choice,
            guarantee=_guarantee(case, evidence),
            unmet=case.unmet,
            fingerprint=f"{Fingerprint.of(case.sample).total:016x}",
            made=now()[:10],
            learned=learned,
        )

    @property
    def is_box(self) -> bool:
        """Whether the rule limits each score by itself: then there are no others to explore."""
        return isinstance(self.rule, BoxRule)

    @property
    def about_scores(self) -> str:
        """What the scores of the rule are, where they are learned; else nothing."""
        return "" if self.learned is None else self.learned.explanation

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
        return report_text(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data that JSON can hold; what is undefined is None."""
        return report_data(self)

    def __repr__(self) -> str:
        return f"Report({self.title!r}, {self.decision!r})"

    def _repr_html_(self) -> str:
        """Return the page in a frame of its own, for notebooks: it and they share no styles."""
        from demur.report.html import in_frame

        return in_frame(self)


def _guarantee(case: Case, evidence: PromiseEvidence) -> float | None:
    found = evidence.guaranteed
    own = isinstance(found, CertifiedTuning) and found.rule == case.rule
    return found.confidence if own and isinstance(found, CertifiedTuning) else None


def _tell_nobody(stage: str, share: float) -> None:
    """Take the place of a progress bar."""


def _decision(case: Case, seen: Seen) -> str:
    sample, counts = case.judged, case.counted(case.judged)
    n_id, n_ood = case.sizes(sample)
    risk = float(np.average(sample.id_loss, weights=sample.id_weight))
    if counts is not None:
        unit = 2.0 ** (counts.measure.id_exponent - counts.measure.loss_exponent)
        risk = counts.whole.total_loss / counts.whole.total_id * unit
    return decision(
        seen.point,
        zero_one=is_zero_one(sample),
        risk_of_all=risk,
        id_rows=None if is_weighted(sample) else n_id,
        ood_rows=None if is_weighted(sample) else n_ood,
    )


def _evidence(case: Case) -> str:
    rows = "held-out rows"
    if case.held_out is None:
        rows = "the rows that the rule was tuned on, so optimistic"
    n_id, n_ood = case.sizes(case.judged)
    return f"Seen on {rows}: {n_id:,} ID and {n_ood:,} OOD."


_WIDTH = 98


def report_text(report: Report) -> str:
    """Return the decision, the numbers, the cautions and the comparison of a report."""
    digits = int(report.explorer.digits[report.explorer.start])
    parts = [
        report.title,
        _wrapped(f"{report.verdict.title}. {report.verdict.text}"),
        _wrapped(f"{report.decision} {report.evidence}"),
        _wrapped(report.resting),
        f"Accept when {rule_text(report.rule, digits)}\n({report.asked})",
        _wrapped(report.about_scores),
        _point(report),
        _promises(report.promises),
        "\n".join(_wrapped(f"{c.level.upper()}: {c.text}") for c in report.cautions),
    ]
    if report.comparison is not None:
        parts.append(_comparison(report.comparison))
    return "\n\n".join(part for part in parts if part) + "\n"


def _point(report: Report) -> str:
    columns = [("tuning rows", report.tuned)]
    if report.held_out is not None:
        columns.append(("held-out rows", report.held_out))
    rows = [["", *(title for title, _ in columns)]]
    for key in dict.fromkeys(key for _, seen in columns for key in seen.rates):
        cells = []
        for _, seen in columns:
            rate = seen.rates.get(key)
            text = "-" if rate is None else number(rate.value, 5)
            # Only fresh rows have intervals that can be relied on.
            if rate is not None and rate.interval is not None and seen is report.held_out:
                text += f" [{', '.join(outwards(rate.interval.low, rate.interval.high))}]"
            cells.append(text)
        rows.append([rate_title(key, worst=report.explorer.worst), *cells])
    found = [seen for _, seen in columns]
    id_counts = [(seen.point.accepted_id, seen.id_total) for seen in found]
    ood_counts = [(seen.point.accepted_ood, seen.ood_total) for seen in found]
    for title, counts in (("accepted ID", id_counts), ("accepted OOD", ood_counts)):
        rows.append([title, *(f"{amount(part)} of {amount(total)}" for part, total in counts)])
    return _aligned(rows)


def _promises(found: Promises) -> str:
    rows = [["What you can promise", *map(found.column_title, found.columns)]]
    for statement in found.statements:
        cells = [
            range_text(statement.rates[name], name) if name in statement.rates else "-"
            for name in found.columns
        ]
        rows.append([statement.title, *cells])
    sources = [
        _wrapped(f"{statement.title}: {statement.source}")
        for statement in found.statements
        if statement.key != "tuned"
    ]
    prior = [] if found.prior is None else [_wrapped(prior_text(found.prior))]
    return "\n".join([_aligned(rows), *sources, *prior])


def _comparison(found: MethodComparison) -> str:
    parts = []
    for block in found.blocks:
        rows = [["OOD: " + block.ood, *(metric.name for metric in found.metrics)]]
        for method, values in block.values.items():
            cells = []
            for metric in found.metrics:
                text = number(values[metric.name], metric.digits).replace("undefined", "unable")
                best = block.standing.best.get(metric.name) == method
                cells.append(text + ("*" if best else " "))
            rows.append([method, *cells])
        parts.append("\n".join([_aligned(rows), *block.disagreements]))
    return "\n\n".join(parts)


def _aligned(rows: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def _wrapped(text: str) -> str:
    return textwrap.fill(text, _WIDTH, subsequent_indent="  ")


def report_data(report: Report) -> dict[str, Any]:
    """Return a report as nested dicts, lists, numbers and texts."""
    from importlib.metadata import version

    digits = int(report.explorer.digits[report.explorer.start])
    data: dict[str, Any] = {
        "demur": version("demur"),
        "title": report.title,
        "verdict": {"state": report.verdict.state, "text": report.verdict.text},
        "decision": report.decision,
        "evidence": report.evidence,
        "rests_on": report.resting or None,
        "rule": rule_data(report.rule) | {"text": rule_text(report.rule, digits)},
        "scores": report.about_scores or None,
        "model": report.model.to_data(),
        "certificate": asdict(report.certificate),
        "confidence": report.confidence,
        "tuned": report.tuned.as_dict(),
        "held_out": None if report.held_out is None else report.held_out.as_dict(),
        "promises": report.promises.as_dict(),
        "bounds": [bound.text for bound in report.bounds],
        "cautions": [asdict(caution) for caution in report.cautions],
        "comparison": None if report.comparison is None else report.comparison.as_dict(),
        "doubtful": None if report.doubtful is None else asdict(report.doubtful),
        "command": report.command,
        "explorer": None if report.is_box else _explorer(report.explorer),
    }
    result: dict[str, Any] = strict(data)
    return result


def _explorer(explorer: Explorer) -> dict[str, Any]:
    return {
        "rules": explorer.lines.tolist(),
        "tuned": _counts(explorer.tuned),
        "held_out": None if explorer.held_out is None else _counts(explorer.held_out),
        "cells": explorer.cells.tolist(),
        "start": explorer.start,
        "complete": explorer.complete,
        "binned": None if explorer.binned is None else asdict(explorer.binned),
    }


def _counts(counts: Counts) -> dict[str, Any]:
    totals = counts.totals
    return {
        "accepted_id": [totals.id_weight(mass) for mass in counts.id.tolist()],
        "accepted_ood": [totals.ood_weight(mass) for mass in counts.ood.tolist()],
        "accepted_loss": [totals.loss_sum(mass) for mass in counts.loss.tolist()],
    }
