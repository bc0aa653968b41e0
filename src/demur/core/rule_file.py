"""`rule.json`: how a rule and its card are written, and what is refused when they are read."""

from __future__ import annotations

import json
import math
from typing import Any

from demur.core.card import Card
from demur.core.rule import Rule
from demur.errors import InvalidInputError

FORMAT = "demur.rule"
VERSION = 2

LARGEST = 2**20
"""No rule file has more bytes than this; what has is something else."""


def rule_text(rule: Rule) -> str:
    """Return a rule as strict JSON."""
    data = {
        "format": FORMAT,
        "version": VERSION,
        "direction": list(rule.direction),
        # JSON has no infinities.
        "threshold": "-inf" if rule.threshold == -math.inf else rule.threshold,
        "tau": rule.tau,
        "score_names": None if rule.score_names is None else list(rule.score_names),
        "confidence": list(rule.confidence),
    }
    if rule.card is not None:
        data["card"] = rule.card.to_data()
    return json.dumps(data, indent=2, allow_nan=False)


def read_rule(text: str) -> Rule:
    """Read a rule of version 1 or 2."""
    if not isinstance(text, str):
        raise InvalidInputError(f"the rule must be JSON text, got {type(text).__name__}")
    if len(text) > LARGEST:
        raise InvalidInputError(f"the rule is larger than {LARGEST} bytes: this is no rule file")
    try:
        data = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"the rule is not valid JSON: {error}") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise InvalidInputError(f'the JSON is not a rule: "format" must be "{FORMAT}"')
    version = data.get("version")
    if isinstance(version, bool) or version not in range(1, VERSION + 1):
        raise InvalidInputError(
            f"the rule has version {version!r}, this demur reads versions 1 to {VERSION}; "
            "use the demur that wrote it, or a newer one"
        )
    try:
        return Rule(
            direction=tuple(_number("direction", item) for item in data["direction"]),
            threshold=-math.inf
            if data["threshold"] == "-inf"
            else _number("threshold", data["threshold"]),
            tau=_number("tau", data["tau"]),
            score_names=_names(data.get("score_names")),
            confidence=_names(data.get("confidence")) or (),
            card=None if data.get("card") is None else Card.from_data(data["card"]),
        )
    except InvalidInputError:
        raise
    except KeyError as missing:
        raise InvalidInputError(f"the rule has no entry {missing}") from None
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InvalidInputError(f"the rule has an entry of the wrong kind: {error}") from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number of JSON")


def _number(name: str, item: Any) -> float:
    if isinstance(item, bool) or not isinstance(item, (int, float)):
        raise TypeError(f"{name} {item!r} is not a number")
    return float(item)


def _names(item: Any) -> tuple[str, ...] | None:
    if item is None:
        return None
    if not isinstance(item, list) or not all(isinstance(name, str) for name in item):
        raise TypeError(f"{item!r} is not a list of names")
    return tuple(item)
