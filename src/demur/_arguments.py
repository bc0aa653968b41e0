"""What public functions check about their arguments before anything else.

Arrays are checked in `_arrays`; this is about everything else: a sample and not an array, a rule
and not a tuning, a number and not text.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from numbers import Integral, Real
from typing import Any, ParamSpec, TypeVar

import numpy as np

from demur.errors import InvalidInputError

P = ParamSpec("P")
R = TypeVar("R")
Kinds = type | tuple[type, ...]

NUMBER: Kinds = Real
WHOLE: Kinds = Integral

_NAMES: dict[type, str] = {Real: "a number", Integral: "a whole number"}
_HINTS = {
    "Rule": "a tuning has its rule in tuning.rule",
    "Sample": "make one with Sample(id_scores, id_loss, ood_scores) or Sample.from_frame",
    "Activations": "make one with Activations(logits=..., features=...)",
}


def takes(**kinds: Kinds) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Refuse arguments of another kind than these; None is taken where it is the default."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        parameters = list(signature(function).parameters.values())
        names = [p.name for p in parameters]
        optional = {p.name for p in parameters if p.default is None}

        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            given = dict(zip(names, args, strict=False)) | kwargs
            for name, kind in kinds.items():
                if name in given and not (given[name] is None and name in optional):
                    check_kind(name, given[name], kind)
            return function(*args, **kwargs)

        return checked

    return decorate


def check_kind(name: str, value: Any, kinds: Kinds) -> None:
    """Refuse a value of another kind."""
    if isinstance(value, kinds) and not (isinstance(value, bool) and kinds in (NUMBER, WHOLE)):
        return
    every = kinds if isinstance(kinds, tuple) else (kinds,)
    wanted = " or ".join(_NAMES.get(kind, f"a {kind.__name__}") for kind in every)
    hint = next((f": {_HINTS[k.__name__]}" for k in every if k.__name__ in _HINTS), "")
    shown = repr(value) if isinstance(value, str) else type(value).__name__
    raise InvalidInputError(f"{name} must be {wanted}, got {shown}{hint}")


def seeded(rng: Any) -> np.random.Generator:
    """Return the generator that a seed stands for."""
    try:
        return np.random.default_rng(rng)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"rng must be a whole number >= 0, a numpy Generator or None, got {rng!r}: {error}"
        ) from None
