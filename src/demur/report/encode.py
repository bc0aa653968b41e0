"""The data of the page as JSON that is inert inside HTML, with arrays packed as base64."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import numpy.typing as npt

from demur.report.wording import strict

# Inside a script element only "<" could end or comment it; the others cost little.
_INERT = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


def page_json(data: dict[str, Any]) -> str:
    """Return JSON for a script element of type application/json."""
    text = json.dumps(strict(data), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character, escape in _INERT.items():
        text = text.replace(character, escape)
    return text


def packed(array: npt.ArrayLike, *, single: bool = False) -> dict[str, str]:
    """Return an array as base64: whole numbers in 32 bits where they fit, else floats.

    `single` rounds floats to 32 bits, enough to draw.
    """
    values = np.asarray(array).ravel()
    with np.errstate(invalid="ignore"):
        whole = bool(np.isfinite(values).all() and (values == np.floor(values)).all())
    if whole and (len(values) == 0 or -(2**31) <= values.min() <= values.max() < 2**31):
        kind, stored = "i4", values.astype("<i4")
    elif single:
        kind, stored = "f4", values.astype("<f4")
    else:
        kind, stored = "f8", values.astype("<f8")
    return {"type": kind, "data": base64.b64encode(stored.tobytes()).decode("ascii")}
