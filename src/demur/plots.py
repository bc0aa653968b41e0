"""Pictures of results, drawn by matplotlib: what the `plot` methods of results call.

Each function draws on the axes given, or on new ones, and returns the axes. Nothing global is
changed: style sheets and sizes stay those of the caller. Colours are told apart by the
colour-blind and in grey, and never carry a meaning alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from demur._arrays import BoolArray, FloatArray, IntArray
from demur.core.models import Bound, RejectionModel
from demur.core.rates import OperatingPoint
from demur.core.rule import BoxRule, Rule
from demur.core.sample import Sample
from demur.core.wording import bound_sign, formula, score_titles, value_at
from demur.errors import InvalidInputError, MissingExtraError

__all__ = ["score_plane"]

Axes = Any
"""A `matplotlib.axes.Axes`."""

_BLUE, _ORANGE, _GREEN, _GREY = "#0072b2", "#d55e00", "#117755", "#767676"
_TITLES = {
    "tpr": "TPR",
    "fpr": "FPR",
    "selective_risk": "selective risk",
    "precision": "precision",
    "expected_cost": "expected cost",
}
# Rows of a kind that a picture shows, and shades of a frontier.
_SHOWN, _SHADES = 2000, 10


def new_axes(ax: Axes | None, width: float = 4.8, height: float = 3.6) -> Axes:
    """Return the axes given, or those of a new figure."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise MissingExtraError("matplotlib", "report") from None
    return plt.subplots(figsize=(width, height), layout="constrained")[1]


def curve(
    x: FloatArray,
    y: FloatArray,
    names: tuple[str, str],
    *,
    between: str,
    ax: Axes | None = None,
    label: str | None = None,
    color: str | None = None,
) -> Axes:
    """Draw a curve as it is to be read between its points.

    `between` is ``"linear"``, ``"previous"`` or ``"next"`` (stairs), or ``"none"``: points only.
    """
    ax = new_axes(ax)
    if between == "previous" and names[0] == "FPR" and len(x) and x[-1] < 1:
        # Whoever may accept more OOD keeps what is reached.
        x, y = np.append(x, 1.0), np.append(y, y[-1])
    style: dict[str, Any] = {"label": label, "color": color, "linewidth": 1.6}
    if between == "none":
        ax.plot(x, y, marker=".", linestyle="none", **style)
    else:
        stairs = {"linear": "default", "previous": "steps-post", "next": "steps-pre"}
        ax.plot(x, y, drawstyle=stairs[between], **style)
    ax.set_xlabel(names[0])
    ax.set_ylabel(names[1])
    ax.set_xlim(0, 1)
    # Risks have a scale of their own; rates reach up to 1.
    if np.nanmax(y, initial=0) > 0.5:
        ax.set_ylim(0, 1.02)
    else:
        ax.set_ylim(bottom=0)
    if label is not None:
        ax.legend(frameon=False)
    return ax


def frontier(
    min_tpr: FloatArray, max_fpr: FloatArray, risk: FloatArray, *, ax: Axes | None = None
) -> Axes:
    """Draw the best selective risk over both bounds, in shades that each cover as many cells."""
    ax = new_axes(ax, 5.2, 3.8)
    from matplotlib.colors import BoundaryNorm

    known = risk[~np.isnan(risk)]
    ax.set_xlabel("FPR at most")
    ax.set_ylabel("TPR at least")
    ax.set_facecolor("#eeeeee")
    if min(len(min_tpr), len(max_fpr)) > 1:
        ax.set_xlim(max_fpr[0], max_fpr[-1])
        ax.set_ylim(min_tpr[0], min_tpr[-1])
    if len(known) == 0:
        ax.text(0.5, 0.5, "no rule meets any of these bounds", transform=ax.transAxes, ha="center")
        return ax
    edges = np.unique(np.quantile(known, np.linspace(0, 1, _SHADES + 1)))
    if len(edges) < 2:
        edges = np.array([edges[0], edges[0] + max(abs(edges[0]), 1.0) * 1e-3])
    mesh = ax.pcolormesh(
        max_fpr,
        min_tpr,
        risk,
        norm=BoundaryNorm(edges, 256),
        cmap="cividis",
        shading="nearest",
        rasterized=True,
    )
    bar = ax.figure.colorbar(mesh, ax=ax, label="best selective risk", spacing="uniform")
    bar.set_ticks(edges, labels=[f"{edge:.3g}" for edge in edges])
    if np.isnan(risk).any():
        ax.text(0.03, 0.95, "grey: no rule", transform=ax.transAxes, va="top", fontsize="small")
    return ax


def rates(point: OperatingPoint, model: RejectionModel, *, ax: Axes | None = None) -> Axes:
    """Draw the rates of a rule, and the bounds it was asked to keep."""
    bounds = [bound for bound in model.bounds if not bound.is_trivial]
    names = [name for name in _TITLES if _known(getattr(point, name))]
    rows = [_RateRow(_TITLES[name], getattr(point, name), None, "") for name in names]
    for bound in bounds:
        shown = _RateRow(
            bound_sign(model, bound), value_at(point, bound), float(bound.value), _side(bound)
        )
        if bound.quantity in names and bound.ood_set is None and bound.group is None:
            rows[names.index(bound.quantity)] = shown
        else:
            rows.append(shown)
    ax = new_axes(ax, 5.2, 0.8 + 0.45 * len(rows))
    for place, row in enumerate(rows):
        ax.plot(row.value, place, "o", color=_BLUE, markersize=7, zorder=3)
        ax.annotate(
            f"{row.value:.4g}", (row.value, place), (0, 7), textcoords="offset points", ha="center"
        )
        if row.bound is not None:
            ends = (row.bound, 1.0) if row.side == "from" else (0.0, row.bound)
            ax.hlines(place, *ends, color=_GREEN, linewidth=6, alpha=0.35)
            ax.plot(row.bound, place, "|", color=_GREEN, markersize=16, markeredgewidth=2)
    _listed(ax, [row.title for row in rows])
    ax.set_xlim(-0.02, max([1.02, *(row.value * 1.05 for row in rows)]))
    ax.set_xlabel("on the rows tuned on (green: what was asked for)")
    return ax


class _RateRow(NamedTuple):
    title: str
    value: float
    bound: float | None
    side: str


def _side(bound: Bound) -> str:
    return "from" if bound.is_lower else "to"


def _known(value: float | None) -> bool:
    return value is not None and not math.isnan(value)


def score_plane(rule: Rule, sample: Sample, *, ax: Axes | None = None) -> Axes:
    """Draw the rows of a sample and the half-plane, half-line or box that a rule accepts.

    Examples
    --------
    >>> import demur as dm
    >>> scores = [[1, 3], [2, 1], [3, 2]]
    >>> sample = dm.Sample(scores, [0, 0, 1], [[3, 3]], score_names=("msp", "knn"))
    >>> ax = score_plane(dm.tune(sample, dm.TprFprModel(0.5, 0.5)).rule, sample)
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('msp', 'knn')
    """
    matched = rule.on(sample.columns)
    width = len(matched.direction)
    if width > 2:
        raise InvalidInputError(f"a picture shows one or two scores, not {width}")
    ax = new_axes(ax)
    kinds = _kinds(sample)
    if width == 1:
        _histograms(ax, kinds)
        ax.axvline(_boundary(matched), color="black", linewidth=1.4)
    else:
        for kind in kinds:
            ax.scatter(
                *kind.scores[_some(len(kind.scores))].T,
                s=14,
                marker=kind.mark,
                **({"color": kind.color} if kind.mark == "+" else _hollow(kind.color)),
                linewidths=0.8,
                alpha=0.65,
                label=kind.title,
            )
        _half_plane(ax, matched)
        ax.set_ylabel(score_titles(matched)[1])
    ax.set_xlabel(score_titles(matched)[0])
    ax.set_title(f"accept when {formula(matched)}", fontsize="small", wrap=True)
    _legend_below(ax)
    return ax


class _Kind(NamedTuple):
    """Rows that are drawn alike."""

    title: str
    scores: FloatArray
    mark: str
    color: str


def _kinds(sample: Sample) -> list[_Kind]:
    wrong: BoolArray = sample.id_loss > 0
    every = [
        _Kind("ID, no loss", sample.id_scores[~wrong], "o", _BLUE),
        _Kind("ID, with loss", sample.id_scores[wrong], "+", "black"),
        _Kind("OOD", sample.ood_scores, "^", _ORANGE),
    ]
    return [
        kind._replace(
            title=_title(kind.title, kind.scores),
            scores=kind.scores[np.isfinite(kind.scores).all(axis=1)],
        )
        for kind in every
        if len(kind.scores)
    ]


def _hollow(color: str) -> dict[str, str]:
    # Rows behind others stay visible.
    return {"facecolors": "none", "edgecolors": color}


def _title(title: str, scores: FloatArray) -> str:
    shown = f", {_SHOWN:,} shown" if len(scores) > _SHOWN and scores.shape[1] == 2 else ""
    return f"{title} ({len(scores):,}{shown})"


def _some(rows: int) -> IntArray:
    return np.linspace(0, rows - 1, min(rows, _SHOWN)).astype(np.int64)


def _histograms(ax: Axes, kinds: Sequence[_Kind]) -> None:
    every = np.concatenate([kind.scores[:, 0] for kind in kinds])
    edges = np.histogram_bin_edges(every, bins=40)
    for kind, line in zip(kinds, ("-", ":", "--"), strict=False):
        share, _ = np.histogram(kind.scores[:, 0], edges)
        ax.stairs(
            share / max(1, len(kind.scores)),
            edges,
            color=kind.color,
            linestyle=line,
            linewidth=1.6,
            label=kind.title,
        )
    ax.set_ylabel("share of each group")


def _boundary(rule: Rule) -> float:
    """Return the score at which a rule of one score starts to reject."""
    return rule.limits[0] if isinstance(rule, BoxRule) else rule.threshold / rule.direction[0]


def _half_plane(ax: Axes, rule: Rule) -> None:
    """Shade what is accepted, within the limits that the rows have set."""
    left, right = ax.get_xlim()
    low, high = ax.get_ylim()
    x, y = np.meshgrid(np.linspace(left, right, 201), np.linspace(low, high, 201))
    value = rule.weigh(np.column_stack([x.ravel(), y.ravel()])).reshape(x.shape) - rule.threshold
    ax.contourf(x, y, value, levels=[-math.inf, 0], colors=[_GREEN], alpha=0.12)
    ax.contour(x, y, value, levels=[0], colors="black", linewidths=1.4)
    ax.set_xlim(left, right)
    ax.set_ylim(low, high)


def folds(
    tuned: Sequence[OperatingPoint | None],
    held_out: Sequence[OperatingPoint | None],
    together: OperatingPoint | None,
    *,
    ax: Axes | None = None,
) -> Axes:
    """Draw every rate of every fold, on the rows tuned on and on those left out."""
    ax = new_axes(ax, 5.2, 3.0)
    names = [
        name
        for name in _TITLES
        if any(point is not None and _known(getattr(point, name)) for point in held_out)
    ]
    for points, shift, mark, title in (
        (tuned, -0.16, "o", "each fold, tuned on the others"),
        (held_out, 0.16, "D", "each fold, left out"),
    ):
        values = [(k, getattr(p, name)) for p in points if p for k, name in enumerate(names)]
        places = np.array(values, float).reshape(-1, 2)
        ax.plot(
            places[:, 1],
            places[:, 0] + shift,
            mark,
            color=_BLUE if mark == "o" else _ORANGE,
            markerfacecolor="none",
            linestyle="none",
            label=title,
        )
    if together is not None:
        all_rows = [getattr(together, name) for name in names]
        ax.plot(
            all_rows,
            np.arange(len(names)) + 0.16,
            "|",
            color="black",
            markersize=18,
            markeredgewidth=2,
            linestyle="none",
            label="all rows, each left out once",
        )
    _listed(ax, [_TITLES[name] for name in names])
    _legend_below(ax)
    return ax


def intervals(
    named: Mapping[str, tuple[float, float, float]], what: str, *, zero: bool, ax: Axes | None
) -> Axes:
    """Draw values with their intervals, one below the other; `zero` marks no difference.

    Ends that are NaN are not known, and a value that is NaN is none that a rule attains.
    """
    ax = new_axes(ax, 5.2, 0.8 + 0.45 * len(named))
    for place, (low, value, high) in enumerate(named.values()):
        ax.hlines(place, low, high, color=_BLUE, linewidth=2)
        ax.plot(value, place, "o", color=_BLUE, markersize=6)
        shown = "unable" if math.isnan(value) else f"{value:.4f}"
        ax.annotate(
            shown if math.isnan(low) else f"{shown} [{low:.4f}, {high:.4f}]",
            (1.02, place),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize="small",
        )
    if zero:
        ax.axvline(0, color=_GREY, linewidth=1, linestyle="--")
    _listed(ax, [_TITLES.get(name, name) for name in named])
    ax.set_xlabel(what)
    return ax


def _legend_below(ax: Axes) -> None:
    # Below the data, which may be anywhere within the axes.
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), frameon=False, fontsize="small")


def _listed(ax: Axes, titles: Sequence[str]) -> None:
    ax.set_yticks(range(len(titles)), titles)
    ax.set_ylim(len(titles) - 0.4, -0.6)
    ax.grid(axis="x", linewidth=0.5, alpha=0.4)
    ax.locator_params(axis="x", nbins=4)
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)
    ax.tick_params(axis="y", length=0)


def __dir__() -> list[str]:
    return __all__
