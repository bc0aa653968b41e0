"""The plots of the page as they are drawn without a script: the rule the page is about."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from demur._arrays import FloatArray, IntArray
from demur.core.rule import BoxRule
from demur.core.wording import score_titles
from demur.report.explorer import Counts, bounded_fpr

if TYPE_CHECKING:
    from demur.report.report import Report

_SHADES = 8
_MOST_MARKS = 300
# Marks of the groups around a place, as in the script.
_MARKS = ("h0", "m-2.6-2.6l5.2 5.2m0-5.2l-5.2 5.2", "m0-2.9l2.7 4.8h-5.4z")

Points = Iterable[tuple[float, float]]


class Shape(NamedTuple):
    """An element of a drawing."""

    tag: str
    attributes: dict[str, Any]
    text: str = ""


class Drawing:
    """A plot with axes, in the classes of the page's style."""

    width, height = 360, 320

    def __init__(
        self, x: Sequence[float], y: Sequence[float], labels: tuple[str, str], *, top: float = 12.0
    ) -> None:
        self.shapes: list[Shape] = []
        self._x, self._y = (float(x[0]), float(x[1])), (float(y[0]), float(y[1]))
        self.left, self.top, self.across, self.down = 60.0, top, 280.0, 282.0 - top
        self._axes(labels)

    def add(self, tag: str, text: str = "", **attributes: Any) -> None:
        """Add an element; names of attributes are written with an underscore for a hyphen."""
        named = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()}
        self.shapes.append(Shape(tag, named, text))

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Return where a point is drawn."""
        (x1, x2), (y1, y2) = self._x, self._y
        right = self.left + self.across * (x - x1) / (x2 - x1)
        return round(right, 1), round(self.top + self.down * (1 - (y - y1) / (y2 - y1)), 1)

    def steps(self, points: Points, class_: str, *, hold: bool) -> None:
        """Draw a staircase; `hold` keeps y of the point to the left, else to the right."""
        path = ""
        for x, y in (self.place(*point) for point in points):
            step = f"H{x}V{y}" if hold else f"V{y}H{x}"
            path += step if path else f"M{x} {y}"
        self.add("path", class_=class_, d=path)

    def line(self, points: Points, class_: str) -> None:
        """Draw straight from point to point."""
        places = [self.place(*point) for point in points]
        self.add("path", class_=class_, d="M" + "L".join(f"{x} {y}" for x, y in places))

    def marker(self, x: float, y: float, kind: str) -> None:
        """Mark a point, where it lies inside."""
        if math.isfinite(x) and math.isfinite(y):
            cx, cy = self.place(x, y)
            self.add(
                "circle", class_=f"marker {kind}", cx=cx, cy=cy, r=8 if kind == "held" else 4.5
            )

    def _axes(self, labels: tuple[str, str]) -> None:
        bottom = self.top + self.down
        for value in ticks(*self._x, 5):
            x, _ = self.place(value, self._y[0])
            self.add("line", class_="grid", x1=x, x2=x, y1=self.top, y2=bottom)
            self.add("text", f"{value:.6g}", x=x, y=bottom + 15, text_anchor="middle")
        for value in ticks(*self._y, 6):
            _, y = self.place(self._x[0], value)
            self.add("line", class_="grid", x1=self.left, x2=self.left + self.across, y1=y, y2=y)
            self.add("text", f"{value:.6g}", x=self.left - 6, y=y + 4, text_anchor="end")
        size = {"width": self.across, "height": self.down}
        self.shapes.append(Shape("rect", {"class": "edge", "x": self.left, "y": self.top} | size))
        middle = {"class_": "label", "text_anchor": "middle"}
        x_label, y_label = (text if len(text) <= 40 else f"{text[:39]}…" for text in labels)
        self.add("text", x_label, x=self.left + self.across / 2, y=bottom + 32, **middle)
        turned = f"translate(12 {self.top + self.down / 2}) rotate(-90)"
        self.add("text", y_label, transform=turned, **middle)


def ticks(low: float, high: float, count: int) -> list[float]:
    """Return round numbers between two ends."""
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    # Adding zero turns -0.0 into 0.0.
    return [round(k * step, 12) + 0.0 for k in range(first, last + 1)]


def drawings(report: Report) -> dict[str, Drawing]:
    """Return the plots of a report by their keys."""
    if report.is_box:
        return {"plane": _plane(report)}
    found = {"plane": _plane(report), "risk": _risk(report)}
    if report.explorer.has_ood:
        found |= {"surface": _surface(report), "roc": _roc(report), "pr": _precision(report)}
    return found


def _seen(report: Report) -> list[tuple[str, Counts]]:
    explorer = report.explorer
    held = [] if explorer.held_out is None else [("held", explorer.held_out)]
    return [("tuned", explorer.tuned), *held]


def _tpr(counts: Counts) -> FloatArray:
    return np.asarray(counts.id / counts.totals.id)


def _fpr(report: Report, counts: Counts) -> FloatArray:
    return 100 * bounded_fpr(counts, worst=report.explorer.worst)


def _risks(report: Report, counts: Counts) -> FloatArray:
    with np.errstate(invalid="ignore"):
        risk = counts.loss / counts.id
    unit = 2.0 ** (counts.totals.id_exponent - counts.totals.loss_exponent)
    return np.asarray(risk * unit * (100 if report.zero_one else 1))


def _surface(report: Report) -> Drawing:
    drawing = Drawing((0, 100), (0, 100), ("max FPR, %", "min TPR, %"), top=34.0)
    cells, risks = report.explorer.cells, _risks(report, report.explorer.tuned)
    able = np.unique(risks[cells[cells >= 0]])
    cuts = able[[len(able) * k // _SHADES for k in range(1, _SHADES)]] if len(able) else able
    shades = np.where(cells < 0, -1, np.searchsorted(cuts, risks[cells], side="right"))
    paths = dict.fromkeys(range(-1, _SHADES), "")
    for row in range(100):
        for start, stop, shade in _runs(shades[row, :100]):
            (x1, y1), (x2, y2) = drawing.place(start, row + 1), drawing.place(stop, row)
            paths[shade] += f"M{x1} {y1}H{x2}V{y2}H{x1}z"
    for shade, path in paths.items():
        if path and shade < 0:
            drawing.add("path", class_="unable", d=path, fill="url(#hatch)")
        elif path:
            drawing.add("path", class_=f"shade s{shade}", d=path)
    if len(able):
        _legend(drawing, float(able[0]), float(able[-1]), " %" if report.zero_one else "")
    for kind, counts in _seen(report):
        at = report.explorer.start
        drawing.marker(_fpr(report, counts)[at], 100 * _tpr(counts)[at], kind)
    return drawing


def _legend(drawing: Drawing, least: float, most: float, unit: str) -> None:
    """Draw the shades above the plot, from the least risk to the most."""
    left, width = drawing.left + 60, 20
    drawing.add("text", f"{least:.2g}{unit}", x=left - 6, y=20, text_anchor="end")
    for shade in range(_SHADES):
        at = left + shade * width
        drawing.add("rect", class_=f"shade s{shade}", x=at, y=10, width=width, height=12)
    drawing.add("text", f"{most:.2g}{unit}", x=left + _SHADES * width + 6, y=20)


def _runs(values: IntArray) -> list[tuple[int, int, int]]:
    ends = np.flatnonzero(np.diff(values)) + 1
    starts = [0, *ends.tolist()]
    return [(a, b, int(values[a])) for a, b in zip(starts, [*starts[1:], len(values)], strict=True)]


def _roc(report: Report) -> Drawing:
    whose = " of the worst set" if report.explorer.worst else ""
    drawing = Drawing((0, 100), (0, 100), (f"FPR{whose}, %", "TPR, %"))
    drawing.line([(0, 0), (100, 100)], "chance")
    order = _roc_order(report)
    for kind, counts in reversed(_seen(report)):
        fpr, tpr = _fpr(report, counts), 100 * _tpr(counts)
        points = [(0.0, 0.0), *zip(fpr[order].tolist(), tpr[order].tolist(), strict=True)]
        if kind == "tuned":
            drawing.steps([*points, (100.0, points[-1][1])], "curve", hold=True)
        else:
            drawing.line(points, "curve held")
    for kind, counts in _seen(report):
        at = report.explorer.start
        drawing.marker(_fpr(report, counts)[at], 100 * _tpr(counts)[at], kind)
    return drawing


def _roc_order(report: Report) -> IntArray:
    """Return the rules with the largest TPR at each FPR, by rising FPR."""
    counts = report.explorer.tuned
    order = np.lexsort((-counts.id, _fpr(report, counts)))
    best = np.maximum.accumulate(np.append(0, counts.id[order]))
    return np.asarray(order[counts.id[order] > best[:-1]])


def _precision(report: Report) -> Drawing:
    from demur.report.page_data import start

    prior = float(start(report)["prior"])
    labels = (f"recall (TPR), %, at prior {prior:g}", "precision, %")
    order = _roc_order(report)[::-1]
    found = {}
    for kind, counts in _seen(report):
        id_ = (1 - prior) * _tpr(counts)
        with np.errstate(invalid="ignore"):
            found[kind] = 100 * id_ / (id_ + prior * _fpr(report, counts) / 100)
    tuned = found["tuned"][order]
    better = tuned > np.maximum.accumulate(np.append(-1.0, tuned))[:-1]
    order = order[better][::-1]
    low = np.nanmin(found["tuned"][order], initial=99.0)
    drawing = Drawing((0, 100), (max(0.0, 5 * math.floor((low - 2) / 5)), 100), labels)
    tpr = 100 * _tpr(report.explorer.tuned)
    points = list(zip(tpr[order].tolist(), found["tuned"][order].tolist(), strict=True))
    if points:
        drawing.steps([(0.0, points[0][1]), *points], "curve", hold=False)
    for kind, counts in _seen(report):
        at = report.explorer.start
        drawing.marker(100 * _tpr(counts)[at], found[kind][at], kind)
    return drawing


def _risk(report: Report) -> Drawing:
    counts, at = report.explorer.tuned, report.explorer.start
    risks, tpr = _risks(report, counts), 100 * _tpr(counts)
    most = (float(np.nanmax(risks, initial=0.0)) or 1.0) * 1.08
    unit = ", %" if report.zero_one else ""
    drawing = Drawing((0, 100), (0, most), ("coverage (TPR), %", f"selective risk{unit}"))
    within = counts.id > 0
    if report.explorer.has_ood and counts.id[at]:
        fpr = _fpr(report, counts)
        within &= fpr <= fpr[at] + 1e-9
    rows = np.flatnonzero(within)
    rows = rows[np.lexsort((risks[rows], -counts.id[rows]))]
    least = np.minimum.accumulate(np.append(np.inf, risks[rows]))
    rows = rows[risks[rows] < least[:-1]][::-1]
    points = list(zip(tpr[rows].tolist(), risks[rows].tolist(), strict=True))
    if points:
        drawing.steps([(0.0, points[0][1]), *points], "curve", hold=False)
    for kind, seen in _seen(report):
        value = float(_risks(report, seen)[at])
        if value <= most:
            drawing.marker(100 * _tpr(seen)[at], value, kind)
    return drawing


def _plane(report: Report) -> Drawing:
    rows, names = report.rows, score_titles(report.rule)
    if len(names) == 1:
        return _histogram(report)
    drawing = Drawing(rows.view[0].tolist(), rows.view[1].tolist(), (names[0], names[1]))
    for group, points in enumerate(rows.points):
        inside = ((points >= rows.view[:, 0]) & (points <= rows.view[:, 1])).all(axis=1)
        shown = points[inside]
        shown = shown[:: max(1, math.ceil(len(shown) / _MOST_MARKS))]
        places = [drawing.place(x, y) for x, y in shown.tolist()]
        path = "".join(f"M{x} {y}{_MARKS[group]}" for x, y in places)
        drawing.add("path", class_=f"points g{group}", d=path)
    if isinstance(report.rule, BoxRule):
        for side in _sides(report.rule, rows.view):
            drawing.line(side, "boundary")
        return drawing
    crossing = _crossing(report.rule.direction, report.rule.threshold, rows.view)
    if crossing:
        drawing.line(crossing, "boundary")
    return drawing


def _sides(rule: BoxRule, view: FloatArray) -> list[list[tuple[float, float]]]:
    """Return the sides of a box inside the view, up to the corner where they meet."""
    # Where a score is accepted, within the view.
    ends = []
    for sign, limit, (low, high) in zip(rule.direction, rule.limits, view.tolist(), strict=True):
        from_, to = (low, limit) if sign > 0 else (limit, high) if sign < 0 else (low, high)
        ends.append((max(from_, low), min(to, high)))
    (x1, x2), (y1, y2) = ends
    (left, right), (bottom, top) = view.tolist()
    if x1 > x2 or y1 > y2 or rule.threshold == -math.inf:
        return []
    sides = []
    if rule.direction[0] and left <= rule.limits[0] <= right:
        sides.append([(rule.limits[0], y1), (rule.limits[0], y2)])
    if rule.direction[1] and bottom <= rule.limits[1] <= top:
        sides.append([(x1, rule.limits[1]), (x2, rule.limits[1])])
    return sides


def _crossing(
    direction: tuple[float, ...], threshold: float, view: FloatArray
) -> list[tuple[float, float]]:
    """Return where the boundary enters and leaves the view."""
    (x1, x2), (y1, y2) = view.tolist()
    a, b = direction
    found = []
    if b:
        found += [(x, (threshold - a * x) / b) for x in (x1, x2)]
    if a:
        found += [((threshold - b * y) / a, y) for y in (y1, y2)]
    inside = [(x, y) for x, y in found if x1 <= x <= x2 and y1 <= y <= y2]
    return inside[:2] if len(inside) > 1 else []


def _histogram(report: Report) -> Drawing:
    rows = report.rows
    counts = (rows.histogram or {})["linear"]
    shares = [100 * group / max(1, size) for group, size in zip(counts, rows.sizes, strict=True)]
    most = max(float(group.max(initial=0)) for group in shares) * 1.08 or 1.0
    labels = (score_titles(report.rule)[0], "share of the group, %")
    drawing = Drawing(rows.view[0], (0, most), labels)
    low, high = rows.view[0].tolist()
    edges = np.linspace(low, high, len(counts[0]) + 1).tolist()
    for group, share in enumerate(shares):
        heights = share.tolist()
        outline = [(edges[0], 0.0)]
        for left, right, height in zip(edges[:-1], edges[1:], heights, strict=True):
            outline += [(left, height), (right, height)]
        drawing.line([*outline, (edges[-1], 0.0)], f"histogram g{group}")
    rule = report.rule
    at = rule.limits[0] if isinstance(rule, BoxRule) else rule.threshold / rule.direction[0]
    if rows.view[0, 0] <= at <= rows.view[0, 1]:
        drawing.line([(at, 0.0), (at, most)], "boundary")
    return drawing
