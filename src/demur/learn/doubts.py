"""From k scores to the two that decide: the risk r of an input, and its OOD-to-ID ratio g.

The best rule depends on r = E[loss | scores, ID] and g = p(scores | OOD) / p(scores | ID) alone.
Both are learned here, and rules are tuned on what rows got from fits that had not seen them.
"""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from demur._arrays import BoolArray, FloatArray, check_kind, plain_array
from demur._files import check_version, read_text, strict_json, write_atomically
from demur.core.card import Card
from demur.core.columns import ScoreColumns, has_columns, listing, score_columns
from demur.core.fingerprint import share_of_tuning_rows, share_text
from demur.core.models import check_share
from demur.core.rule import BoxRule, Missing, Rule, check_missing
from demur.core.sample import Sample
from demur.core.sql import Dialect, Syntax, syntax_of
from demur.errors import InvalidInputError, LikelyMistakeWarning
from demur.learn.functions import ScoreFunction

RISK, RATIO = "conditional_risk", "likelihood_ratio"
FORMAT, RULE_FORMAT, VERSION = "demur.doubts", "demur.learned_rule", 1
_MEANINGS = {
    RISK: "is the loss to expect of an input if it is ID",
    RATIO: "is how many times likelier an input is among OOD than among ID inputs",
}
LARGEST = 2**24
"""No file of learned scores has more bytes than this."""


@dataclass(frozen=True, eq=False, repr=False)
class Learned:
    """Functions that make the doubts r and g of k scores.

    `transform` makes them of live scores, `sample` has those of the rows it was learned on, each
    from a fit without its fold: tune on these, and judge on other rows.

    Examples
    --------
    >>> import demur as dm
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> wrong = rng.random(300) < 0.2
    >>> scores = rng.normal(wrong[:, None], 1, (300, 3))
    >>> sample = dm.Sample(scores, wrong, rng.normal(2, 1, (150, 3)), score_names=("a", "b", "c"))
    >>> learned = dm.learn.fit(sample, method="logistic")
    >>> learned.sample.columns.names
    ('conditional_risk', 'likelihood_ratio')
    >>> learned.transform(sample).id_scores.shape
    (300, 2)
    """

    columns: ScoreColumns
    """The k scores."""
    functions: dict[str, ScoreFunction]
    """``"conditional_risk"``, and ``"likelihood_ratio"`` where there were OOD rows."""
    card: Card
    """How and of which rows it was learned."""
    out_of_fold: Sample | None = field(default=None)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the learned doubts."""
        return tuple(self.functions)

    @property
    def method(self) -> str:
        """``"logistic"``, ``"boosting"``, ``"mean"`` or ``"traffic"``."""
        return str(self.card.to_data().get("method"))

    @property
    def sample(self) -> Sample:
        """The out-of-fold doubts of the rows it was learned on."""
        if self.out_of_fold is None:
            raise InvalidInputError(
                "learned scores that were read from a file have no rows: call "
                "learned.transform(sample) of rows they were not learned on"
            )
        return self.out_of_fold

    def smoothed(self, share: float = 0.5) -> Sample:
        """Return `sample` with losses that lie between those seen and the learned risk.

        Where errors are few, a rule that is tuned on them also fits their chance. The learned risk
        of a row is what its loss is expected to be, and hangs on no single error: tune on these,
        and evaluate the rule on `sample`, since rates here are not those of the data.

        Parameters
        ----------
        share
            Of the learned risk, from 0 (the losses seen) to 1 (the learned risk alone).

        Examples
        --------
        >>> import demur as dm
        >>> rng = np.random.default_rng(0)
        >>> own, foreign = rng.normal(size=(400, 3)), rng.normal(1, 1, size=(200, 3))
        >>> wrong = rng.random(400) < 1 / (1 + np.exp(2 - own[:, 0]))
        >>> learned = dm.learn.fit(dm.Sample(own, wrong, foreign), "logistic")
        >>> rule = dm.tune(learned.smoothed(), dm.TprFprModel(0.7, 0.5)).rule
        >>> dm.evaluate(rule, learned.sample).tpr >= 0.7
        True
        """
        share = float(check_share("share", share))
        if RISK not in self.functions:
            raise InvalidInputError("no risk was learned, so that losses cannot be smoothed by it")
        seen = self.sample
        risk = seen.id_scores[:, self.names.index(RISK)]
        # A row that is always rejected has no risk to speak of.
        expected = np.where(np.isfinite(risk), risk, seen.id_loss)
        loss = (1 - share) * seen.id_loss + share * expected
        return with_doubts(seen, seen.id_scores, seen.ood_scores, self.names, loss)

    def transform(self, scores: Any, *, missing: Missing = "raise") -> Any:
        """Return the doubts of live rows, shape (n, 2); of a `Sample` the sample with these.

        Parameters
        ----------
        scores
            A data frame or a mapping of columns, read by name; an array of shape (n, k), read by
            position; or a `Sample`.
        missing
            What to do with a row that lacks a score: ``"raise"``, or ``"reject"`` it, which means
            doubts of +inf.
        """
        check_missing(missing)
        if isinstance(scores, Sample):
            if share := self.share_of_own_rows(scores):
                warnings.warn(
                    f"{share_text(share)} made the learned scores, so that these look too good on "
                    "them: take learned.sample, or other rows",
                    LikelyMistakeWarning,
                    stacklevel=2,
                )
            return self.sample_of(scores)
        needed = [True] * self.columns.count
        values = score_columns(scores, self.columns, needed=needed, refuse=missing == "raise")
        return self.doubts(values)

    def sample_of(self, rows: Sample) -> Sample:
        """Return a sample with the learned doubts in place of its scores."""
        own, foreign = (self.doubts(side) for side in self._matched(rows))
        return with_doubts(rows, own, foreign, self.names)

    def share_of_own_rows(self, rows: Sample) -> float:
        """Return which share of the rows these scores were learned on, as far as one can tell."""
        return share_of_tuning_rows(self.of_all_scores, rows)

    def rule(self, rule: Rule, *, fresh: Sample | None = None) -> LearnedRule:
        """Return a rule tuned on the learned doubts together with them, to be saved and used.

        Parameters
        ----------
        fresh
            Rows with the k scores, or already with the learned doubts, that neither the scores nor
            the rule was made of: what `demur.watch` compares live rows with. Without any, live rows
            are held against those the rule was tuned on; if these have out-of-fold doubts, which
            are those of other fits, drift is not tested.
        """
        check_kind("rule", rule, Rule)
        card = rule.card
        if fresh is not None:
            check_kind("fresh", fresh, Sample)
            doubts = fresh if fresh.columns.names == self.names else self.sample_of(fresh)
            rule = replace(rule, card=(card or Card({})).with_reference(doubts, rule))
        elif card is not None and self._tuned_out_of_fold(rule):
            rule = replace(rule, card=card.with_entries(reference=None))
        return LearnedRule(self, rule)

    def _tuned_out_of_fold(self, rule: Rule) -> bool:
        return self.out_of_fold is not None and share_of_tuning_rows(rule, self.out_of_fold) > 0

    @property
    def explanation(self) -> str:
        """What the learned doubts are, in words."""
        said = [f"{name} {_MEANINGS[name]}" for name in self.names]
        made = "both are" if len(said) == 2 else "it is"
        scores = self.columns.titles
        return f"{', '.join(said)}; {made} learned ({self.method}) from {', '.join(scores)}."

    def beside_rule(self) -> dict[str, Any]:
        """Return what a file of a `LearnedRule` holds beside the rule."""
        return {"format": RULE_FORMAT, "version": VERSION, "learned": self.to_data()}

    @property
    def of_all_scores(self) -> Rule:
        """A rule on the scores they are learned from, whose card knows the rows."""
        weights = (1.0,) * self.columns.count
        columns = self.columns
        return Rule(weights, 0.0, 1.0, columns.names, columns.confidence, self.card)

    def _matched(self, rows: Sample) -> tuple[FloatArray, FloatArray]:
        """Return the scores of ID and OOD rows in the order of the columns here."""
        own, given = self.columns, rows.columns
        if own.names is None or given.names is None:
            if own.count != given.count:
                raise InvalidInputError(
                    f"the scores were learned from {own.count} scores, the sample has {given.count}"
                )
            return rows.id_scores, rows.ood_scores
        lacking = [name for name in own.names if name not in given.names]
        if lacking:
            raise InvalidInputError(
                f"the scores were learned from {listing(own.names)}; the sample lacks "
                f"{lacking[0]!r}, it has {listing(given.names)}"
            )
        turned = [n for n in own.names if (n in own.confidence) != (n in given.confidence)]
        if turned:
            raise InvalidInputError(
                f"{turned[0]!r} is a confidence on one side and a doubt on the other: the scores "
                f"were learned with the confidences {listing(own.confidence)}"
            )
        order = [given.names.index(name) for name in own.names]
        return rows.id_scores[:, order], rows.ood_scores[:, order]

    def doubts(self, scores: FloatArray) -> FloatArray:
        """Return the doubts of checked scores, shape (n, k), in the order of the columns."""
        # Of infinite doubts the rule is always to reject; so are rows that lack a score.
        usable = np.asarray(np.isfinite(scores).all(axis=1))
        doubts = self.columns.as_doubts(np.where(usable[:, None], scores, 0.0))
        found = np.column_stack([function(doubts) for function in self.functions.values()])
        found[~usable] = np.inf
        return found

    def to_data(self) -> dict[str, Any]:
        """Return everything but the rows as data that JSON can hold."""
        columns = self.columns
        return {
            "format": FORMAT,
            "version": VERSION,
            "score_names": None if columns.names is None else list(columns.names),
            "confidence": list(columns.confidence),
            "count": columns.count,
            "functions": {name: one.to_data() for name, one in self.functions.items()},
            "card": self.card.saved_data(),
        }

    @classmethod
    def from_data(cls, data: Any) -> Learned:
        """Read what `to_data` returned."""
        check_format(data, FORMAT, VERSION)
        try:
            count, told = int(data["count"]), dict(data["functions"])
            columns = ScoreColumns.of(
                data["score_names"], confidence=data["confidence"], count=count
            )
            functions = {str(n): ScoreFunction.from_data(one) for n, one in told.items()}
            card = Card.from_data(data["card"])
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInputError(f"the learned scores are damaged: {error!r}") from None
        known = tuple(functions) in ((RISK,), (RATIO,), (RISK, RATIO))
        if not known or any(one.total.count != count for one in functions.values()):
            raise InvalidInputError(f"the learned scores {listing(list(functions))} are damaged")
        return cls(columns, functions, card)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write them to a JSON file, which needs neither pickle nor scikit-learn to be read."""
        write_atomically(path, as_json(self.to_data()))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Learned:
        """Read what `save` wrote; the rows they were learned on are not in the file."""
        return cls.from_data(parsed(read_text(path, "the learned scores", LARGEST)))

    def __repr__(self) -> str:
        names = self.columns.titles
        return f"Learned({list(self.names)} of {list(names)}, method={self.method!r})"


@dataclass(frozen=True, eq=False, repr=False)
class LearnedRule:
    """A rule on learned doubts together with what makes them of scores: one file, one decision.

    Examples
    --------
    >>> from demur import CostModel, Sample, learn, tune
    >>> rng = np.random.default_rng(0)
    >>> own, foreign = rng.normal(size=(300, 3)), rng.normal(2, 1, size=(100, 3))
    >>> sample = Sample(own, rng.random(300) < 0.3 / (1 + np.exp(-own[:, 0])), foreign)
    >>> learned = learn.fit(sample, method="logistic")
    >>> tuned = tune(learned.sample, CostModel(reject_id=0.5, ood_prior=0.2))
    >>> learned.rule(tuned.rule).accept([[0, 0, 0], [2, 2, 2]]).tolist()
    [True, False]
    """

    learned: Learned
    rule: Rule
    """On the learned doubts."""

    def __post_init__(self) -> None:
        if not isinstance(self.learned, Learned) or not isinstance(self.rule, Rule):
            raise InvalidInputError("a LearnedRule is made of Learned and of a Rule")
        if isinstance(self.rule, BoxRule):
            raise InvalidInputError('a LearnedRule weighs learned scores: tune without shape="box"')
        if self.rule.score_names != self.learned.names or self.rule.confidence:
            raise InvalidInputError(
                f"the rule is about {self.rule.score_names}, the learned scores are "
                f"{self.learned.names}: tune the rule on learned.sample"
            )

    @property
    def columns(self) -> ScoreColumns:
        """The k scores that it reads."""
        return self.learned.columns

    @property
    def score_names(self) -> tuple[str, ...] | None:
        """Names of the k scores."""
        return self.columns.names

    @property
    def card(self) -> Card | None:
        """The card of the rule, which tells how its scores were learned, too."""
        known = self.learned.card.to_data()
        told: dict[str, Any] = {"scores": list(self.score_names or ())}
        told |= {name: known[name] for name in ("method", "rows", "folds") if name in known}
        card = self.rule.card
        return None if card is None else card.with_entries(learned=told)

    def accept(self, scores: Any, *, missing: Missing = "raise") -> BoolArray:
        """Return True for the rows to accept, given their k scores as `Learned.transform` does."""
        return self.rule.accept(self.learned.transform(scores, missing=missing))

    def accept_one(self, scores: Any, *, missing: Missing = "raise") -> bool:
        """Return whether to accept one input, given its scores by name or in order."""
        rows = scores if has_columns(scores) else np.atleast_1d(plain_array("scores", scores))[None]
        accepted = self.accept(rows, missing=missing)
        if len(accepted) != 1:
            raise InvalidInputError(f"scores has {len(accepted)} rows: for several, call accept")
        return bool(accepted[0])

    def sql_steps(
        self, columns: Sequence[str], *, dialect: Dialect
    ) -> tuple[dict[str, str], dict[str, str], str]:
        """Return `to_sql` as columns to add, more of them made of these, and a predicate of all.

        For engines that would write out a query in another for each time that it is named.
        """
        read, added, decided = _sql_steps(self, columns, syntax_of(dialect))
        return read, added, f"COALESCE({decided}, FALSE)"

    def to_sql(self, columns: Sequence[str] | None = None, *, dialect: Dialect = "duckdb") -> str:
        """Return an SQL predicate that decides as `accept` with ``missing="reject"`` does.

        Parameters
        ----------
        columns
            Column names in the order of the k scores; those they were learned with by default.
        dialect
            As in `Rule.to_sql`.
        """
        names = self.score_names if columns is None else tuple(columns)
        if names is None or isinstance(columns, str) or len(names) != self.columns.count:
            raise InvalidInputError(
                f"to_sql needs {self.columns.count} column names, got {columns!r}"
            )
        if self.rule.tau not in (0.0, 1.0):
            raise InvalidInputError("a rule that is random on its boundary has no SQL predicate")
        return _predicate(self, names, syntax_of(dialect))

    def to_json(self) -> str:
        """Return rule and learned scores as one text of strict JSON."""
        card = self.card
        rule = json.loads(replace(self.rule, card=card).to_json())
        return as_json(self.learned.beside_rule() | {"rule": rule})

    @classmethod
    def from_json(cls, text: str) -> LearnedRule:
        """Read what `to_json` returned."""
        data = parsed(text)
        check_format(data, RULE_FORMAT, VERSION)
        learned, rule = Learned.from_data(data.get("learned")), json.dumps(data.get("rule"))
        return cls(learned, Rule.from_json(rule))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write both to one file; an interrupted write leaves the old file as it was."""
        write_atomically(path, self.to_json())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> LearnedRule:
        """Read what `save` wrote."""
        return cls.from_json(read_text(path, "the rule", LARGEST))

    def __repr__(self) -> str:
        return f"LearnedRule({self.learned!r}, {self.rule!r})"


def any_rule(text: str) -> Rule | LearnedRule:
    """Read a rule, with the learned scores it is about if it is about such."""
    data = parsed(text)
    if isinstance(data, dict) and data.get("format") == RULE_FORMAT:
        return LearnedRule.from_json(text)
    return Rule.from_json(text)


def _sql_steps(
    learned_rule: LearnedRule, names: Sequence[str], syntax: Syntax
) -> tuple[dict[str, str], dict[str, str], str]:
    """Return every score, then every sum of them, and at last what is TRUE of rows to accept."""
    learned, rule = learned_rule.learned, learned_rule.rule
    for name in names:
        if not name or not isinstance(name, str) or "\0" in name:
            raise InvalidInputError(f"columns: {name!r} is not the name of a column")
    if rule.threshold == -math.inf:
        return {}, {}, "FALSE"
    scores = [f"demur s{k + 1}" for k in range(len(names))]
    quoted = [syntax.quote(score) for score in scores]
    read = {
        score: f"{'-' if sign < 0 else ''}CAST({syntax.quote(name)} AS {syntax.kind})"
        for name, score, sign in zip(names, scores, learned.columns.signs, strict=True)
    }
    used = [k for k, weight in enumerate(rule.direction) if weight != 0]
    functions = list(learned.functions.values())
    sums = {k: f"demur z{k + 1}" for k in used}
    added = {"demur finite": " AND ".join(syntax.finite(score) for score in quoted)}
    added |= {sums[k]: functions[k].total.to_sql(quoted, syntax.double) for k in used}
    links = [functions[k].link.to_sql(syntax.quote(sums[k]), syntax.double) for k in used]
    weights = [syntax.double(rule.direction[k]) for k in used]
    terms = [f"{weight} * ({link})" for weight, link in zip(weights, links, strict=True)]
    compare = "<=" if rule.tau == 1 else "<"
    within = f"{' + '.join(terms)} {compare} {syntax.double(rule.threshold)}"
    return read, added, f"{syntax.quote('demur finite')} AND {within}"


def _predicate(learned_rule: LearnedRule, names: Sequence[str], syntax: Syntax) -> str:
    """Return SQL that names every score, every sum and every doubt once, one query in another."""
    read, added, decided = _sql_steps(learned_rule, names, syntax)
    if not read:
        return decided
    scores, sums = (
        ", ".join(f"{value} AS {syntax.quote(name)}" for name, value in step.items())
        for step in (read, added)
    )
    middle = f"SELECT {sums} FROM (SELECT {scores}) AS {syntax.quote('demur scores')}"
    return f"COALESCE((SELECT {decided} FROM ({middle}) AS {syntax.quote('demur sums')}), FALSE)"


def with_doubts(
    rows: Sample,
    own: FloatArray,
    foreign: FloatArray,
    names: tuple[str, ...],
    loss: FloatArray | None = None,
) -> Sample:
    """Return a sample with other scores for its ID and OOD rows, and other losses if given."""
    return Sample(
        own,
        rows.id_loss if loss is None else loss,
        {name: foreign[part] for name, part in rows.ood_sets.items()},
        id_weight=rows.id_weight,
        ood_weight=rows.ood_weight
        if rows.ood_weight is None
        else {name: rows.ood_weight[part] for name, part in rows.ood_sets.items()},
        score_names=names,
        id_group=rows.id_group,
    )


def as_json(data: dict[str, Any]) -> str:
    """Return data as strict JSON, refused where they are larger than any such file."""
    text = json.dumps(data, allow_nan=False) + "\n"
    if len(text) > LARGEST:
        raise InvalidInputError(
            f"the learned scores have {len(text):,} bytes, and no file of them more than "
            f"{LARGEST:,}: learn from fewer scores, or with method='logistic'"
        )
    return text


def parsed(text: str) -> Any:
    """Return the data of a JSON text."""
    if len(text) > LARGEST:
        raise InvalidInputError(f"the file is larger than {LARGEST:,} bytes: no learned scores")
    try:
        return strict_json(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"the learned scores are not valid JSON: {error}") from None


def check_format(data: Any, expected: str, newest: int) -> None:
    """Refuse data of another format, or of a later version of it."""
    if not isinstance(data, dict) or data.get("format") != expected:
        raise InvalidInputError(f'the JSON holds something else: "format" must be "{expected}"')
    check_version(data, "the file", newest)
