"""What commands take up where it is: saved rules, and rows that an engine counts.

The card of a saved rule gives columns and bounds, and knows the rows that made it. Rules on learned
scores are read here too, and refused where they are not taken.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from demur._arrays import BoolArray, FloatArray
from demur.cli.inputs import (
    DataOptions,
    EngineOptions,
    ScoreTable,
    check_confidence,
    check_losses,
    read_deployed,
    read_rows,
)
from demur.cli.output import Progress, caution, note
from demur.cli.tuning_options import ModelOptions
from demur.core.card import SeenRanges
from demur.core.columns import ScoreColumns
from demur.core.fingerprint import share_of_live_rows, share_of_tuning_rows, share_text
from demur.core.models import RejectionModel
from demur.core.rule import Rule
from demur.core.source import ScoreSource, Work
from demur.core.wording import bound_text, sentence
from demur.errors import InvalidInputError

if TYPE_CHECKING:
    from demur.learn import Learned, LearnedRule

# Live scores that are held against the ranges of the card, where they are not read.
_LOOKED_AT = 100_000
_LOSSES = ("loss", "correct", "label", "prediction")


@dataclass(frozen=True, slots=True)
class SavedRule:
    """A rule from a file, on the columns it is to read."""

    path: str
    rule: Rule
    names: tuple[str, ...]
    """Columns of the scores."""
    learned: Learned | None = None
    """What makes the doubts that the rule is about of these scores, if they are learned."""

    @classmethod
    def load(
        cls, path: str, scores: tuple[str, ...] = (), confidence: tuple[str, ...] = ()
    ) -> SavedRule:
        """Read a rule; `scores` are columns in place of those it names."""
        text = _rule_text(path)
        if is_learned_rule(text):
            return cls(path, *learned_rule_on(text, scores, confidence))
        return cls(path, *rule_on(Rule.from_json(text), scores, confidence))

    @property
    def whole(self) -> Rule | LearnedRule:
        """The rule, together with what makes its scores if they are learned."""
        return self.rule if self.learned is None else self.learned.rule(self.rule)

    @property
    def confidence(self) -> tuple[str, ...]:
        """Which of the columns are confidences."""
        return self.rule.confidence if self.learned is None else self.learned.columns.confidence

    def read(
        self, data: DataOptions, *, group: str | None = None, need_loss: bool = True
    ) -> ScoreTable:
        """Read the rows; their samples are about what the rule is about."""
        rows = read_rows(
            self.columns(data, need_loss=need_loss),
            [self.names],
            confidence=self.confidence,
            group=group,
            need_loss=need_loss,
            many=self.learned is not None,
        )
        return replace(rows, learned=self.learned)

    def accept(self, scores: FloatArray) -> BoolArray:
        """Decide on scores as they are in a file; a row that lacks one is rejected."""
        if self.learned is None:
            return self.rule.accept(scores, missing="reject")
        return self.rule.accept(self.learned.transform(scores, missing="reject"))

    def deployed(self, path: str) -> FloatArray:
        """Return the scores of inputs in use, which have no labels, as the rule is about them."""
        raw = read_deployed(path, self.names)
        ranges = self.ranges()
        ranges.add(raw)
        for text in ranges.warnings():
            caution(f"{path}: {text}")
        return raw if self.learned is None else np.asarray(self.learned.transform(raw))

    @contextmanager
    def in_use(
        self, engine: EngineOptions, path: str, progress: Progress
    ) -> Iterator[FloatArray | ScoreSource]:
        """Give inputs in use: as `deployed` does, or counted where they are if they are many."""
        data = DataOptions(path, None, None, None, None, "zero_one", None, None, (), None, None)
        if self.learned is not None or not engine.streams(data, folders=False):
            yield self.deployed(path)
            return
        columns = self.names, self.confidence
        with opened(engine, data, *columns, progress, about=4, need_loss=False) as live:
            ranges = self.ranges()
            ranges.add(live.columns.as_doubts(live.sample(_LOOKED_AT, seed=0).scores))
            for text in ranges.warnings():
                caution(f"{path}: {text}")
            yield live

    def columns(self, data: DataOptions, *, need_loss: bool = True) -> DataOptions:
        """Return the options with the columns that the card knows and they do not name."""
        roles = {} if self.rule.card is None or data.openood else self.rule.card.columns
        taken: dict[str, Any] = {}
        if need_loss and not data.names_losses:
            taken = {role: roles[role] for role in _LOSSES if role in roles}
        for role in ("ood", "weight", "group"):
            field = "id_group" if role == "group" else role
            if getattr(data, field) is None and role in roles:
                if _has_column(data.data, roles[role]):
                    taken[field] = roles[role]
                else:
                    note(f"DATA has no column {roles[role]!r}, which was --{role} in tuning")
        if taken:
            said = ", ".join(f"--{role.removeprefix('id_')} {name}" for role, name in taken.items())
            note(f"from the card of {self.path}: {said}")
        if "label" in taken and data.loss_function == "zero_one":
            taken["loss_function"] = self._loss_function
        return replace(data, **taken)

    def for_rows_of(self, *paths: str | None) -> SavedRule:
        """Return the rule without a score of weight 0, if a file lacks that column."""
        if self.learned is not None:
            return self
        needed = [k for k, used in enumerate(self.rule.needed) if used]
        spare = [name for k, name in enumerate(self.names) if k not in needed]
        if all(path is None or _has_column(path, name) for path in paths for name in spare):
            return self
        card, names = self.rule.card, tuple(self.names[k] for k in needed)
        if card is not None:
            # The marks of rows are of all their scores.
            kept = [sides for k, sides in enumerate(card.ranges.values()) if k in needed]
            ranges = dict(zip(names, kept, strict=False))
            card = card.with_entries(fingerprint=None, ranges=ranges)
        rule = replace(self.rule.of_columns(needed), card=card)
        return SavedRule(self.path, rule, names)

    @property
    def _loss_function(self) -> str:
        known = {} if self.rule.card is None else self.rule.card.to_data()
        return "absolute" if known.get("loss_function") == "absolute" else "zero_one"

    def model(self, options: ModelOptions, what: str) -> RejectionModel | None:
        """Return the model asked for: that of the options, or else that of the card."""
        asked = options.at_most_one(what)
        card = self.rule.card
        model = None if card is None else card.model
        if asked is None and card is not None and "model" in card.left_out:
            note(
                f"the card of {self.path} was too small for its model: bounds are those given here"
            )
        if asked is not None or card is None or model is None:
            return asked
        if options.prior is not None and model.ood_prior is not None:
            model = RejectionModel.from_data(model.to_data() | {"ood_prior": options.prior})
        if card.ood == "worst":
            model = model.of_every_set()
        bounds = [bound_text(model, bound) for bound in model.bounds if not bound.is_trivial]
        note(f"from the card of {self.path}: {' and '.join(bounds) or sentence(model)}")
        return model

    def share_of_tuning_rows(self, rows: ScoreTable) -> float:
        """Return which share of the rows made the rule, or the scores it is about."""
        raw = rows.raw_sample(self.names)
        if self.learned is not None:
            return self.learned.share_of_own_rows(raw)
        return share_of_tuning_rows(self.rule, raw)

    def share_of_live_rows(self, scores: FloatArray) -> float:
        """Return the same of rows in use, of which it is not known what they are."""
        made = self.rule if self.learned is None else self.learned.of_all_scores
        return share_of_live_rows(made, scores)

    def refuse_tuning_rows(self, rows: ScoreTable, *, allow: bool) -> float:
        """Refuse a promise that rests on rows that made the rule, unless it is allowed."""
        return refuse_share(self.share_of_tuning_rows(rows), allow=allow)

    def streams(self, engine: EngineOptions, data: DataOptions, *, folders: bool = True) -> bool:
        """Return whether the rows stay where they are, which learned scores do not allow."""
        there = engine.streams(data, folders=folders and self.learned is None)
        if there and self.learned is not None:
            raise click.UsageError(
                f"learned scores are computed in memory: {engine.into_memory(data.data)}; demur "
                "apply decides any number of rows"
            )
        return there

    def ranges(self) -> SeenRanges:
        """Return the ranges of the scores that the card knows, to hold live scores against."""
        card = self.rule.card if self.learned is None else self.learned.card
        known = {} if card is None else card.ranges
        # Columns may be called by other names here; their order is the rule's.
        return SeenRanges(self.names, list(known.values()))


def refuse_share(share: float, *, allow: bool) -> float:
    """Return the share of rows that made a rule; refuse it for a promise, unless allowed."""
    if share and not allow:
        raise InvalidInputError(
            f"{share_text(share)} made the rule, and a promise needs rows that did not: give "
            "fresh rows, or tune with --guarantee; --allow-tuning-rows goes on all the same"
        )
    return share


def _rule_text(path: str) -> str:
    from demur._files import read_text
    from demur.sources.files import STANDARD_INPUT, input_text

    # Learned scores take more than a rule does, which refuses what is too large for it.
    largest = 2**24
    return (
        input_text("the rule") if path == STANDARD_INPUT else read_text(path, "the rule", largest)
    )


def _has_column(path: str | None, name: str) -> bool:
    from demur.sources.files import find_partitions, hive_columns, is_partitioned
    from demur.sources.tables import table_columns

    if path is None:
        return False
    if is_partitioned(path) and name in hive_columns(find_partitions(path).files[0]):
        return True
    return name in table_columns(path)


def rule_on(
    rule: Rule, given: tuple[str, ...], confidence: tuple[str, ...] = ()
) -> tuple[Rule, tuple[str, ...]]:
    """Return a saved rule with the columns it reads: those given, or else those it names.

    `confidence` names those that are confidences, where the rule does not.
    """
    names = given or rule.score_names
    if names is None:
        raise InvalidInputError("the rule does not name its columns: name them with --scores")
    if len(names) != len(rule.direction):
        raise InvalidInputError(
            f"--scores: the rule takes {len(rule.direction)} columns, got {', '.join(names)}"
        )
    _refuse_crossed(names, rule.score_names)
    senses = dict(zip(rule.score_names or names, names, strict=True))
    check_confidence(confidence, set(names))
    for name, weight in zip(names, rule.direction, strict=True):
        if name in confidence and weight > 0:
            raise InvalidInputError(
                f"--confidence: the rule takes more of {name!r} for more doubt: is it that column?"
            )
    confidence = confidence or tuple(senses[name] for name in rule.confidence)
    return replace(rule, score_names=names, confidence=confidence), names


def _refuse_crossed(given: tuple[str, ...], own: tuple[str, ...] | None) -> None:
    """Refuse one of the rule's columns in the place of another, which would cross the weights."""
    for name, meant in zip(given, own or given, strict=True):
        if name != meant and own is not None and name in own:
            raise InvalidInputError(
                f"--scores {','.join(given)}: {name!r} would be read in place of {meant!r}, but "
                f"the rule weighs it by itself. The rule's order is {','.join(own)}; without "
                "--scores the columns are read by these names"
            )


@contextmanager
def opened(
    engine: EngineOptions,
    data: DataOptions,
    scores: tuple[str, ...] | None,
    confidence: tuple[str, ...],
    progress: Progress,
    *,
    about: int = 2,
    key: str | None = None,
    need_loss: bool = True,
) -> Iterator[ScoreSource]:
    """Open DATA as a source, which will be asked for about so many passes."""
    from demur.sources.open import open_source

    if need_loss or data.names_losses:
        check_losses(data)
    if data.data is None:
        raise click.UsageError("give a file DATA, or --openood score files")
    if not scores:
        raise click.UsageError("--scores is needed: the columns of the scores")
    if len(scores) > 2:
        raise click.UsageError(f"--scores {','.join(scores)}: a rule takes one or two scores")
    with dask_cluster(engine.engine), _named_by_options():
        source: Any = open_source(
            data.data,
            scores,
            loss=data.loss,
            correct=data.correct,
            label=data.label,
            prediction=data.prediction,
            loss_function=data.loss_function,  # type: ignore[arg-type]
            ood=data.ood or None,
            weight=data.weight or None,
            group=data.id_group or None,
            key=key,
            labelled=need_loss or data.names_losses,
            confidence=confidence,
            memory=engine.memory,
            progress=progress.at,
            engine="duckdb" if engine.engine in ("auto", "memory") else engine.engine,  # type: ignore[arg-type]
        )
        progress.passes_of(source.work, about)
        with source:
            yield source


@contextmanager
def _named_by_options() -> Iterator[None]:
    """Name the column of ids by the option that gives it, where a source calls it `key`."""
    try:
        yield
    except InvalidInputError as error:
        said = str(error)
        if not said.startswith("key:"):
            raise
        raise InvalidInputError(f"--id{said.removeprefix('key')}") from None


def work_data(source: ScoreSource | Work) -> dict[str, Any]:
    """Return, for --json, what an engine did to answer."""
    work = source if isinstance(source, Work) else getattr(source, "work", None)
    if work is None:
        return {}
    return {"work": {"engine": work.engine, "passes": work.passes, "rows_fetched": work.fetched}}


@contextmanager
def dask_cluster(engine: str) -> Iterator[Any]:
    """Connect to the Dask cluster that the environment names, if any, while rows are read."""
    address = os.environ.get("DASK_SCHEDULER_ADDRESS")
    if engine != "dask" or not address:
        yield None
        return
    from demur.sources.engines.dask import dask

    config = dask("dask").config
    scheduler = config.get("scheduler", None)
    try:
        client = dask("distributed").Client(address, timeout=20)
    except (OSError, ValueError) as error:
        # A client that finds no cluster has made itself the scheduler all the same.
        config.set(scheduler=scheduler)
        raise InvalidInputError(f"no Dask cluster at {address!r}: {error}") from None
    with client:
        yield client


if TYPE_CHECKING:
    from demur.learn import Learned


def is_learned_rule(text: str) -> bool:
    """Return whether a file holds learned scores beside the rule."""
    return '"demur.learned_rule"' in text[:200]


def learned_rule_on(
    text: str, scores: tuple[str, ...], confidence: tuple[str, ...]
) -> tuple[Rule, tuple[str, ...], Learned]:
    """Return a rule, the columns its learned scores are made of here, and what makes them."""
    from demur.learn import LearnedRule

    both = LearnedRule.from_json(text)
    columns = _learned_columns(both.columns, scores, confidence)
    return both.rule, columns.names or (), replace(both.learned, columns=columns)


def refuse_learned(learned: Learned | None, command: str) -> None:
    """Refuse a rule on learned scores where a command cannot make them."""
    if learned is not None:
        raise click.UsageError(
            f"demur {command} takes no learned scores. In Python, demur.learn.LearnedRule.load "
            "returns .learned, whose transform makes the columns that .rule is about"
        )


def _learned_columns(
    own: ScoreColumns, given: tuple[str, ...], confidence: tuple[str, ...]
) -> ScoreColumns:
    """Return the columns that learned scores are made of here: those given, or those they name."""
    names = given or own.names
    if names is None:
        raise InvalidInputError("the rule does not name its columns: name them with --scores")
    if len(names) != own.count:
        raise InvalidInputError(
            f"--scores: the rule takes {own.count} columns, got {', '.join(names)}"
        )
    _refuse_crossed(names, own.names)
    senses = dict(zip(own.names or names, names, strict=True))
    known = tuple(senses[name] for name in own.confidence)
    if confidence and set(confidence) != set(known):
        raise InvalidInputError(
            f"--confidence: the scores were learned with the confidences {list(known)}"
        )
    return ScoreColumns.of(names, confidence=known, count=own.count)
