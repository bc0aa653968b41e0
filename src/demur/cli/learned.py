"""Rules on learned scores at the command line: their files, and what does not take them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from demur.core.columns import ScoreColumns
from demur.core.rule import Rule
from demur.errors import InvalidInputError

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


def refuse_beside_learn(given: dict[str, Any]) -> None:
    """Refuse options that promise or draw something of rows that scores are learned on."""
    for name, value in given.items():
        if value is not None:
            raise click.UsageError(
                f"{name} does not go with --learn: the rows that scores are learned on promise "
                "nothing of them. Save the rule with -o, and let demur certify or demur evaluate "
                "judge it on fresh rows"
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
    senses = dict(zip(own.names or names, names, strict=True))
    known = tuple(senses[name] for name in own.confidence)
    if confidence and set(confidence) != set(known):
        raise InvalidInputError(
            f"--confidence: the scores were learned with the confidences {list(known)}"
        )
    return ScoreColumns.of(names, confidence=known, count=own.count)
