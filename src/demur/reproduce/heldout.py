"""The study the paper lacks: tune on one half of the data, look at the other, many times."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from demur._arrays import FloatArray, IntArray
from demur.core.models import Bound, RejectionModel, TprFprModel
from demur.core.rates import evaluate
from demur.core.sample import Sample
from demur.detectors import PlugIn, Sirc
from demur.errors import InfeasibleError, InvalidInputError
from demur.learn import fit
from demur.reproduce.image_sets import Notify
from demur.reproduce.networks import NETWORKS
from demur.reproduce.table2 import fpr_target
from demur.reproduce.table2_scores import MIN_TPR, MORE, PAIRS, SINGLES, TITLES, Scores
from demur.tuning.tune import tune

BEST = "best single"
MEASURES = ("tuned risk", "held-out risk", "TPR", "FPR", "FPR bound")
_CONFIDENCE_TAIL = 0.975
PLUG_IN_COSTS = (0.001, 0.01, 0.1, 0.5, 0.9)
"""Costs of accepting an OOD input, of which the plug-in rule takes the best on the tuning half."""


LEARNED = "learned "
"""Before the method by which all six scores are made the two that decide."""
SMOOTHED = " ~"
"""After it, where the rule is tuned on losses smoothed by the learned risk."""
SLACK, TIGHT, LEAST = "slack", "tight", "least FPR"
TIGHTNESS = Fraction(102, 100)
"""The tight bound, in terms of the least FPR that a double score needs for the TPR."""
_TPR = Bound("tpr", at_least=MIN_TPR)


class _Halves(NamedTuple):
    tuning: Sample
    test: Sample


@dataclass(frozen=True, slots=True)
class MethodSplits:
    """One method on one OOD set: what each split gave, NaN where it was unable."""

    values: FloatArray
    """Shape (splits, 5), columns as in `MEASURES`."""

    def mean(self, measure: str) -> float:
        """Return the mean over the splits that were able."""
        column = self.values[:, MEASURES.index(measure)]
        known = column[~np.isnan(column)]
        return float(known.mean()) if len(known) else math.nan

    @property
    def unable(self) -> int:
        """Number of splits in which no rule met the bounds on the tuning half."""
        return int(np.isnan(self.values[:, 0]).sum())

    def kept(self) -> tuple[float, float]:
        """Return the share of splits in which the held-out half met the bounds on TPR and FPR."""
        known = self.values[~np.isnan(self.values[:, 0])]
        return float(np.mean(known[:, 2] >= MIN_TPR)), float(np.mean(known[:, 3] <= known[:, 4]))


class RiskDifference(NamedTuple):
    """Held-out risk of a double score minus that of another method, split by split."""

    mean: float
    low: float
    high: float
    wins: float
    """Share of splits in which the double score has the smaller risk."""
    losses: float


@dataclass(frozen=True, slots=True)
class Heldout:
    """Outcomes by OOD set and method."""

    scores: Scores
    outcomes: Mapping[str, Mapping[str, MethodSplits]]
    splits: int
    other_bounds: Mapping[str, Mapping[str, Mapping[str, MethodSplits]]]
    """Where scores were learned: outcomes at the tight bound, and with the least FPR."""

    def difference(
        self, ood: str, pair: str, other: str, *, bound: str = SLACK, measure: str = "held-out risk"
    ) -> RiskDifference:
        """Compare a double score with another method on the same splits."""
        found = (self.outcomes if bound == SLACK else self.other_bounds[bound])[ood]
        column = MEASURES.index(measure)
        first, second = (found[name].values[:, column] for name in (pair, other))
        gap = first - second
        gap = gap[~np.isnan(gap)]
        if len(gap) < 2:
            return RiskDifference(*[math.nan] * 5)
        # Splits share rows: with halves, the variance of the mean does not fall below that of
        # one split (Nadeau and Bengio's correction).
        error = math.sqrt((1 / len(gap) + 1) * gap.var(ddof=1)) * _t_quantile(len(gap) - 1)
        mean = float(gap.mean())
        wins, losses = float(np.mean(gap < 0)), float(np.mean(gap > 0))
        return RiskDifference(mean, mean - error, mean + error, wins, losses)

    def as_dict(self) -> dict[str, Any]:
        """Return plain data, NaN (unable) as None."""
        return {
            "id": self.scores.setup.id,
            "network": self.scores.network,
            "bank": self.scores.bank,
            "splits": self.splits,
            "ood": {
                ood: {
                    "methods": {name: _means(outcome) for name, outcome in rows.items()},
                    "differences": {
                        pair: {
                            other: {
                                key: _plain(value)
                                for key, value in self.difference(ood, pair, other)
                                ._asdict()
                                .items()
                            }
                            for other in rivals(pair)
                        }
                        for pair in PAIRS
                    },
                }
                for ood, rows in self.outcomes.items()
            },
            "other_bounds": {
                bound: {
                    ood: {name: _means(outcome) for name, outcome in rows.items()}
                    for ood, rows in found.items()
                }
                for bound, found in self.other_bounds.items()
            },
        }

    def __str__(self) -> str:
        return render_heldout(self)


def rivals(pair: str) -> tuple[str, ...]:
    """Return what a double score is compared with."""
    risk, ood = PAIRS[pair]
    return (BEST, risk, ood, f"sirc {pair}", f"plug-in {pair}")


def heldout(
    scores: Scores,
    *,
    splits: int = 100,
    seed: int = 0,
    learn: tuple[str, ...] = (),
    only: tuple[str, ...] = (),
    notify: Notify | None = None,
) -> Heldout:
    """Tune every method on a random half of ID and OOD images and evaluate it on the other.

    The FPR bound is, as in Table 2, the largest FPR any single score needs for TPR 0.8, on the
    tuning half. "best single" is the single score with the smallest risk on the tuning half.

    Parameters
    ----------
    scores
        From `demur.reproduce.table2_scores.compute_scores`.
    learn
        Methods of `demur.learn.fit` by which all six scores are made two, on the tuning half; with
        any, every method is also tuned for a tight bound and for the least FPR.
    only
        OOD sets to look at; all by default.
    """
    found: dict[str, dict[str, dict[str, list[list[float]]]]] = {}
    unknown = [name for name in only or () if name not in scores.setup.ood]
    if unknown:
        raise InvalidInputError(
            f"no OOD set is called {unknown[0]!r}; there are {', '.join(scores.setup.ood)}"
        )
    for ood in only or scores.setup.ood:
        for i, rng in enumerate(np.random.default_rng(seed).spawn(splits)):
            for bound, by_method in _one_split(scores, ood, rng, learn).items():
                for method, values in by_method.items():
                    place = found.setdefault(bound, {}).setdefault(ood, {})
                    place.setdefault(method, []).append(values)
            if notify is not None:
                notify(f"held-out {ood}", i + 1, splits)
    outcomes = {
        bound: {
            ood: {method: MethodSplits(np.array(values)) for method, values in rows.items()}
            for ood, rows in sets.items()
        }
        for bound, sets in found.items()
    }
    return Heldout(scores, outcomes.pop(SLACK), splits, outcomes)


def _one_split(
    scores: Scores, ood: str, rng: np.random.Generator, learn: tuple[str, ...]
) -> dict[str, dict[str, list[float]]]:
    """Return what each method gives, by kind of bound."""
    whole = scores.sample("msp", ood)
    own, foreign = _half(whole.n_id, rng), _half(whole.n_ood, rng)
    halves = {name: _halves(scores.sample(name, ood), own, foreign) for name in TITLES}
    target, _ = fpr_target({name: halves[name].tuning for name in SINGLES})
    slack = TprFprModel(MIN_TPR, target)
    found = {name: _tuned(both, slack) for name, both in halves.items()}
    for pair in PAIRS:
        found[f"sirc {pair}"] = _tuned(_sirc(halves[pair]), slack)
        tried = [_tuned(_plug_in(halves[pair], cost), slack) for cost in PLUG_IN_COSTS]
        found[f"plug-in {pair}"] = _best(tried)
    if not learn:
        return {SLACK: {**found, BEST: _best([found[name] for name in SINGLES])}}
    made: dict[str, _Halves | None] = {}
    for name, method, sample in _to_learn_from(scores, ood, learn):
        made |= _learned(_halves(sample, own, foreign), method, slack, name)
    found |= {name: _tuned(both, slack) for name, both in made.items()}
    every_method = {**halves, **made}
    fewest = RejectionModel("fpr", [_TPR])
    least = {name: _tuned(both, fewest) for name, both in every_method.items()}
    bound = min(least[pair][4] for pair in PAIRS)
    tight = TprFprModel(MIN_TPR, min(Fraction(bound) * TIGHTNESS, Fraction(1)))
    narrow = {name: _tuned(both, tight) for name, both in every_method.items()}
    return {
        kind: {**rows, BEST: _best([rows[name] for name in SINGLES])}
        for kind, rows in ((SLACK, found), (TIGHT, narrow), (LEAST, least))
    }


def _to_learn_from(
    scores: Scores, ood: str, learn: tuple[str, ...]
) -> Iterator[tuple[str, str, Sample]]:
    """Yield a name, a method, and the six scores, or with those beyond Table 2 where there are."""
    sides = (scores.id_scores, scores.ood_scores[ood])
    more = [name for name in MORE if name in scores.id_scores]
    chosen: list[list[str]] = [[], more] if more else [[]]
    for added in chosen:
        names = (*SINGLES, *added)
        own, foreign = (np.column_stack([side[name] for name in names]) for side in sides)
        sample = Sample(own, scores.id_loss, foreign, score_names=names)
        for method in learn:
            yield LEARNED + method + (f" +{len(added)}" if added else ""), method, sample


def _learned(
    both: _Halves, method: str, model: RejectionModel, name: str
) -> dict[str, _Halves | None]:
    """Return doubts of both halves, out of fold where they are tuned; None of too few rows.

    Also those to be tuned on smoothed losses.
    """
    smooth = name + SMOOTHED
    try:
        learned = fit(both.tuning, method, model=model)  # type: ignore[arg-type]
    except InvalidInputError:
        return {name: None, smooth: None}
    test = learned.sample_of(both.test)
    return {name: _Halves(learned.sample, test), smooth: _Halves(learned.smoothed(), test)}


def _best(found: list[list[float]]) -> list[float]:
    """Return the outcome with the smallest risk on the tuning half."""
    return min(found, key=lambda values: (math.isnan(values[0]), values[0]))


def _half(n: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    order = rng.permutation(n)
    return order[: n // 2], order[n // 2 :]


def _halves(
    sample: Sample, own: tuple[IntArray, IntArray], foreign: tuple[IntArray, IntArray]
) -> _Halves:
    parts = [sample.subset(i, o) for i, o in zip(own, foreign, strict=True)]
    return _Halves(*parts)


def _sirc(both: _Halves) -> _Halves:
    return _combined(both, Sirc().fit(both.tuning.id_scores[:, 1]).score)


def _plug_in(both: _Halves, cost: float) -> _Halves:
    rule = PlugIn(reject_id=0.0, accept_ood=cost)
    fitted = rule.fit(both.tuning.id_scores[:, 1], both.tuning.ood_scores[:, 1])
    return _combined(both, fitted.score)


def _combined(both: _Halves, score: Callable[..., FloatArray]) -> _Halves:
    """Return the halves with one score made of their two."""
    return _Halves(
        *(Sample(score(*s.id_scores.T), s.id_loss, score(*s.ood_scores.T)) for s in both)
    )


def _tuned(both: _Halves | None, model: RejectionModel) -> list[float]:
    """Return the measures of a rule tuned on one half; without a bound its own FPR is the bound."""
    try:
        if both is None:
            return [math.nan] * len(MEASURES)
        tuned = tune(both.tuning, model)
    except InfeasibleError:
        return [math.nan] * len(MEASURES)
    seen = evaluate(tuned.rule, both.test)
    risks = [tuned.point.selective_risk, seen.selective_risk]
    bound = model.bound("fpr")
    target = tuned.point.fpr if bound is None else float(bound.share)
    return [*risks, seen.tpr, seen.fpr, target]


def _means(outcome: MethodSplits) -> dict[str, float | None]:
    tpr_kept, fpr_kept = outcome.kept() if outcome.unable < len(outcome.values) else (math.nan,) * 2
    means = {measure: _plain(outcome.mean(measure)) for measure in MEASURES}
    return {
        **means,
        "TPR bound kept": _plain(tpr_kept),
        "FPR bound kept": _plain(fpr_kept),
        "unable": float(outcome.unable),
    }


def _plain(value: float) -> float | None:
    return None if math.isnan(value) else value


def _t_quantile(freedom: int) -> float:
    from scipy.stats import t

    return float(t.ppf(_CONFIDENCE_TAIL, freedom))


_STUDY_HEADER = (
    f"{'method':<20}{'tuned risk':>11}{'held-out risk':>15}{'TPR':>8}{'kept':>6}{'FPR':>8}"
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
_LEARNED_NOTES = """
learned: risk and OOD-to-ID ratio learned from all six scores on the tuning half, and the rule tuned
on their out-of-fold values there; +7: from seven more scores of the same activations, too (energy,
entropy, GEN, margin, Mahalanobis, relative Mahalanobis, KNN with k = 5); ~: tuned on losses halfway
between those seen and the learned risk, which is what "tuned" then shows. tight: 1.02 times the
least FPR that KNN+MSP or VIM+MSP needs for the TPR on the tuning half. least FPR: how far the
feasible region reaches. Means are over the splits in which a method was able, differences over
those in which both were."""


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
        blocks += ["\n".join(lines), *_other_bounds(study, ood)]
    notes = _STUDY_NOTES + (_LEARNED_NOTES if study.other_bounds else "")
    return "\n\n".join([title, *blocks, _verdict(study), notes])


def _other_bounds(study: Heldout, ood: str) -> list[str]:
    """Return the tables of tight bounds and of the least FPR, and how learned scores compare."""
    if not study.other_bounds:
        return []
    narrow, least = study.other_bounds[TIGHT][ood], study.other_bounds[LEAST][ood]
    bound = narrow["msp"].mean("FPR bound")
    if math.isnan(bound):
        bound = max(one.mean("FPR bound") for one in narrow.values() if one.unable < study.splits)
    lines = [f"OOD: {ood}, tight: FPR <= {bound:.4f} on average", _STUDY_HEADER]
    lines += [_study_line(_title(name), outcome) for name, outcome in narrow.items()]
    rows = [f"OOD: {ood}, the least FPR at TPR >= {MIN_TPR}: tuned, and held out"]
    for name, outcome in least.items():
        tuned, held = outcome.mean("FPR bound"), outcome.mean("FPR")
        rows.append(f"{_title(name):<20}{tuned:>11.4f}{held:>15.4f}{outcome.mean('TPR'):>8.3f}")
    learned = [name for name in narrow if name.startswith(LEARNED)]
    against = [f"{'learned':<20}{'minus':<13}{'what':<28}{'mean':>10}  95 % interval"]
    for name in learned:
        for other in (*PAIRS, BEST):
            for kind, measure in (
                (SLACK, "held-out risk"),
                (SLACK, "FPR"),
                (TIGHT, "held-out risk"),
                (TIGHT, "FPR"),
                (LEAST, "FPR"),
            ):
                found = study.difference(ood, name, other, bound=kind, measure=measure)
                what = f"{measure}, {kind}"
                against.append(
                    f"{_title(name):<20}{_title(other):<13}{what:<28}{found.mean:>+10.5f}  "
                    f"[{found.low:+.5f}, {found.high:+.5f}]"
                )
    return ["\n".join(part) for part in (lines, rows, against)]


def _study_line(title: str, outcome: MethodSplits) -> str:
    if outcome.unable == len(outcome.values):
        return f"{title:<20}{'unable':>11}"
    tpr_kept, fpr_kept = outcome.kept()
    return (
        f"{title:<20}{outcome.mean('tuned risk'):>11.5f}{outcome.mean('held-out risk'):>15.5f}"
        f"{outcome.mean('TPR'):>8.3f}{tpr_kept:>6.0%}{outcome.mean('FPR'):>8.4f}{fpr_kept:>6.0%}"
        f"{outcome.unable:>8}"
    )


def _differences(study: Heldout, ood: str) -> list[str]:
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
    if name in TITLES or name.startswith(LEARNED):
        return TITLES.get(name, name)
    kind, _, pair = name.partition(" ")
    return f"{'SIRC' if kind == 'sirc' else kind} {TITLES.get(pair, pair)}"
