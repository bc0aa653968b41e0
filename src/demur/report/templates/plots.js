// The five plots of the explorer.

const SHADES = 8;

class Plots {
  constructor(book, data) {
    this.book = book;
    this.data = data;
    this.roc = data.hasOod ? book.rocStairs() : [];
    this.charts = {};
    this.risks = Float64Array.from(book.cells, (i) => (i < 0 ? NaN : book.tuned.risk(i)));
    const able = this.risks.filter((r) => !Number.isNaN(r));
    this.riskRange = able.length ? [Math.min(...able), Math.max(...able)] : [0, 1];
    const options = {
      surface: { x: [0, 1], y: [0, 1], percent: true, xLabel: "max FPR, %", yLabel: "min TPR, %", ratio: 0.95, top: 34 },
      plane: this.planeOptions(),
      roc: { x: [0, 1], y: [0, 1], percent: true, xLabel: "FPR, %", yLabel: "TPR, %", ratio: 0.98 },
      pr: { x: [0, 1], y: [0, 1], percent: true, xLabel: "recall (TPR), %", yLabel: "precision, %", ratio: 0.98 },
      risk: { x: [0, 1], y: [0, this.topRisk()], percent: data.zeroOne, xLabel: "coverage (TPR), %", yLabel: data.zeroOne ? "selective risk, %" : "selective risk", ratio: 0.98 },
    };
    for (const [name, given] of Object.entries(options)) {
      const svg = document.querySelector(`#plot-${name}`);
      if (svg) this.charts[name] = new Chart(svg, given);
    }
    // Coverage is a share whatever the loss is measured in.
    if (!data.zeroOne && this.charts.risk) this.charts.risk.options.xLabel = "coverage (TPR)";
  }

  planeOptions() {
    const { low, high } = this.data.scatter;
    const pad = low.map((l, k) => 0.03 * (high[k] - l));
    const range = low.map((l, k) => [l - pad[k], high[k] + pad[k]]);
    const [first, second] = this.data.scores;
    if (range.length === 2) return { x: range[0], y: range[1], xLabel: first, yLabel: second, ratio: 0.95 };
    return { x: range[0], y: [0, 1.08], xLabel: first, yLabel: "share of group", ratio: 0.95 };
  }

  topRisk() {
    const t = this.book.tuned;
    const all = [...t.id.keys()].filter((i) => t.id[i] > 0).map((i) => t.risk(i));
    return 1.08 * Math.max(...all, 1e-9);
  }

  draw() {
    for (const chart of Object.values(this.charts)) chart.frame();
    if (this.charts.surface) this.drawSurface();
    this.drawGroups();
    if (this.charts.roc) this.drawRoc();
  }

  drawSurface() {
    const chart = this.charts.surface;
    const [low, high] = this.riskRange;
    const shade = (r) => (high > low ? Math.min(SHADES - 1, Math.floor((SHADES * (r - low)) / (high - low))) : 0);
    const paths = Array.from({ length: SHADES }, () => "");
    let unable = "";
    const edge = (k) => Math.min(1, Math.max(0, (k - 0.5) / 100));
    for (let row = 0; row <= 100; row++) {
      const [y1, y2] = [chart.sy(edge(row + 1)), chart.sy(edge(row))];
      for (let from = 0, to; from <= 100; from = to) {
        const bin = (k) => { const r = this.risks[row * 101 + k]; return Number.isNaN(r) ? -1 : shade(r); };
        for (to = from + 1; to <= 100 && bin(to) === bin(from); to++);
        const [x1, x2] = [chart.sx(edge(from)), chart.sx(edge(to))];
        // A hair of overlap hides the seams between cells.
        const cell = `M${x1.toFixed(2)} ${(y1 - 0.15).toFixed(2)}H${(x2 + 0.15).toFixed(2)}V${y2.toFixed(2)}H${x1.toFixed(2)}z`;
        if (bin(from) < 0) unable += cell; else paths[bin(from)] += cell;
      }
    }
    paths.forEach((d, k) => d && shape(chart.still, "path", { class: `shade s${k}`, d }));
    if (unable) shape(chart.still, "path", { class: "unable", d: unable, fill: "url(#hatch)" });
    this.drawLegend(chart, low, high);
  }

  drawLegend(chart, low, high) {
    const width = 14;
    const from = chart.box.x + chart.box.width - SHADES * width - 44;
    const value = (r) => (this.data.zeroOne ? `${(100 * r).toFixed(1)} %` : r.toPrecision(3));
    shape(chart.still, "text", { x: from - 6, y: 18, "text-anchor": "end" }, value(low));
    for (let k = 0; k < SHADES; k++) shape(chart.still, "rect", { class: `shade s${k}`, x: from + k * width, y: 8, width, height: 12 });
    shape(chart.still, "text", { x: from + SHADES * width + 6, y: 18 }, value(high));
  }

  drawGroups() {
    const chart = this.charts.plane;
    const { points, density } = this.data.scatter;
    this.region = shape(chart.still, "path", { class: "accepted" });
    const clip = { "clip-path": "url(#plane-clip)" };
    const box = shape(shape(chart.svg, "clipPath", { id: "plane-clip" }), "rect", {});
    for (const [key, value] of Object.entries(chart.box)) box.setAttribute(key, value);
    if (points.length) points.forEach((group, g) => this.drawPoints(chart, group, g));
    else if (this.data.scores.length === 2) density.forEach((group, g) => this.drawDensity(chart, group, g));
    else this.drawHistograms(chart, density);
    this.boundary = shape(chart.still, "path", { class: "boundary", ...clip });
  }

  // One path a group: thousands of marks cost no more than a line.
  drawPoints(chart, group, g) {
    let d = "";
    for (let k = 0; k < group.length; k += 2) {
      const [x, y] = [chart.sx(group[k]).toFixed(1), chart.sy(group[k + 1]).toFixed(1)];
      d += [`M${x} ${y}h0`, `M${x} ${y}m-2.6-2.6l5.2 5.2m0-5.2l-5.2 5.2`, `M${x} ${y}m0-2.9l2.7 4.8h-5.4z`][g];
    }
    shape(chart.still, "path", { class: `points g${g}`, d });
  }

  drawDensity(chart, group, g) {
    const grid = Math.round(Math.sqrt(group.length));
    const { low, high } = this.data.scatter;
    const most = Math.max(...group, 1);
    const size = [chart.box.width, chart.box.height].map((s) => (s / 1.06) / grid);
    const levels = ["", "", "", ""];
    group.forEach((count, k) => {
      if (!count) return;
      const x = chart.sx(low[0] + ((k % grid) * (high[0] - low[0])) / grid);
      const y = chart.sy(low[1] + ((Math.floor(k / grid) + 1) * (high[1] - low[1])) / grid);
      const level = Math.min(3, Math.floor(4 * Math.sqrt(count / most)));
      levels[level] += `M${x.toFixed(1)} ${y.toFixed(1)}h${size[0].toFixed(1)}v${size[1].toFixed(1)}h-${size[0].toFixed(1)}z`;
    });
    levels.forEach((d, k) => d && shape(chart.still, "path", { class: `density g${g} d${k}`, d }));
  }

  drawHistograms(chart, groups) {
    const { low, high } = this.data.scatter;
    groups.forEach((group, g) => {
      const most = Math.max(...group, 1);
      const step = (high[0] - low[0]) / group.length;
      const outline = [[low[0], 0]];
      group.forEach((count, k) => outline.push([low[0] + k * step, count / most], [low[0] + (k + 1) * step, count / most]));
      outline.push([high[0], 0]);
      shape(chart.still, "path", { class: `histogram g${g}`, d: chart.polyline(outline) });
    });
  }

  drawRoc() {
    const { tuned, held, worst } = this.book;
    const chart = this.charts.roc;
    const points = (c) => this.roc.map((i) => [c.boundedFpr(i, worst), c.tpr(i)]);
    shape(chart.still, "path", { class: "chance", d: chart.polyline([[0, 0], [1, 1]]) });
    if (held) shape(chart.still, "path", { class: "curve held", d: chart.polyline([[0, 0], ...points(held)]) });
    const stairs = [[0, 0], ...points(tuned)];
    shape(chart.still, "path", { class: "curve", d: chart.steps([...stairs, [1, stairs[stairs.length - 1][1]]], true) });
  }

  // Show rule number i (-1: none), for a prior and under a bound on the FPR.
  show(i, view) {
    const { tuned, held, worst } = this.book;
    for (const chart of Object.values(this.charts)) chart.moving.replaceChildren();
    this.showBounds(view);
    this.showPrecision(view.prior);
    this.showRisk(view.maxFpr);
    this.showRegion(i);
    if (i < 0) return;
    for (const [counts, kind] of [[held, "held"], [tuned, "tuned"]]) {
      if (!counts) continue;
      const fpr = counts.boundedFpr(i, worst);
      const place = { roc: [fpr, counts.tpr(i)], pr: [counts.tpr(i), counts.precision(i, view.prior, worst)], risk: [counts.tpr(i), counts.risk(i)] };
      if (kind === "tuned") place.surface = [this.data.hasOod ? fpr : 1, counts.tpr(i)];
      for (const [name, at] of Object.entries(place)) {
        const chart = this.charts[name];
        if (chart) chart.marker(chart.moving, ...at, kind);
      }
    }
  }

  showBounds({ bounds }) {
    const chart = this.charts.surface;
    if (!chart || !bounds) return;
    const { x, y, width, height } = chart.box;
    const [bx, by] = [chart.sx(bounds[1]), chart.sy(bounds[0])];
    shape(chart.moving, "path", { class: "crosshair", d: `M${bx} ${y}v${height}M${x} ${by}h${width}` });
    shape(chart.moving, "rect", { class: "handle", x: bx - 6, y: by - 6, width: 12, height: 12, rx: 2 });
  }

  showPrecision(prior) {
    const chart = this.charts.pr;
    if (!chart) return;
    const { tuned, held, worst } = this.book;
    const stairs = this.book.precisionStairs(this.roc, prior);
    const points = (c) => stairs.map((i) => [c.tpr(i), c.precision(i, prior, worst)]).reverse();
    const values = [tuned, held].filter(Boolean).flatMap((c) => points(c).map(([, p]) => p)).filter(Number.isFinite);
    const lowest = Math.min(...values, 0.999);
    const floor = Math.max(0, Math.floor(20 * (lowest - 0.02)) / 20);
    if (chart.options.y[0] !== floor) {
      chart.options.y = [floor, 1];
      chart.drawAxes();
    }
    if (held) shape(chart.moving, "path", { class: "curve held", d: chart.polyline(points(held).filter(([, p]) => Number.isFinite(p))) });
    const line = points(tuned);
    if (line.length) shape(chart.moving, "path", { class: "curve", d: chart.steps([[0, line[0][1]], ...line], false) });
  }

  showRisk(maxFpr) {
    const chart = this.charts.risk;
    const stairs = this.book.riskStairs(maxFpr);
    const points = (c) => stairs.map((i) => [c.tpr(i), c.risk(i)]).reverse();
    const { tuned, held } = this.book;
    const clip = ([, r]) => Number.isFinite(r) && r <= chart.options.y[1];
    if (held) shape(chart.moving, "path", { class: "curve held", d: chart.polyline(points(held).filter(clip)) });
    const line = points(tuned);
    if (line.length) shape(chart.moving, "path", { class: "curve", d: chart.steps([[0, line[0][1]], ...line], false) });
    if (line.length && line[line.length - 1][0] < 1) {
      const from = chart.sx(line[line.length - 1][0]);
      const { x, y, width, height } = chart.box;
      shape(chart.moving, "rect", { class: "unable", x: from, y, width: x + width - from, height, fill: "url(#hatch)" });
    }
  }

  // The half-plane that the rule accepts, cut to the view, and its boundary.
  showRegion(i) {
    const chart = this.charts.plane;
    this.region.setAttribute("d", "");
    this.boundary.setAttribute("d", "");
    if (i < 0) return;
    const [x1, x2] = chart.options.x;
    const [y1, y2] = chart.options.y;
    const [a, b] = [...this.book.direction(i), 0];
    const threshold = this.book.threshold(i);
    const excess = ([x, y]) => a * x + b * y - threshold;
    const corners = [[x1, y1], [x2, y1], [x2, y2], [x1, y2]];
    const inside = [];
    const crossing = [];
    corners.forEach((corner, k) => {
      const next = corners[(k + 1) % 4];
      const [e, f] = [excess(corner), excess(next)];
      if (e <= 0) inside.push(corner);
      if (e <= 0 !== f <= 0 && Number.isFinite(e)) {
        const at = corner.map((c, d) => c + ((next[d] - c) * e) / (e - f));
        inside.push(at);
        crossing.push(at);
      }
    });
    if (inside.length) this.region.setAttribute("d", `${chart.polyline(inside)}z`);
    if (crossing.length) this.boundary.setAttribute("d", chart.polyline(crossing));
  }
}
