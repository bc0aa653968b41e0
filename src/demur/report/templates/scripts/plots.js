// The frontier and the curves: what the rules of the page can do.

const SHADES = 8;
const SURFACE = 100;

class Plots {
  constructor(book, data) {
    this.book = book;
    this.data = data;
    this.roc = data.hasOod ? book.rocStairs() : [];
    this.charts = {};
    const share = (label, options = {}) => ({ range: [0, 1], percent: true, label, ...options });
    const whose = book.worst ? " of the worst set" : "";
    const risk = data.zeroOne ? "selective risk, %" : "selective risk";
    const options = {
      surface: { x: share(`max FPR${book.worst ? " of every set" : ""}, %`, { kind: data.fine ? "fine" : "linear" }), y: share("min TPR, %"), top: 34 },
      roc: { x: share(`FPR${whose}, %`), y: share("TPR, %") },
      pr: { x: share("recall (TPR), %"), y: share(`precision${whose}, %`) },
      risk: { x: share("coverage (TPR), %"), y: { range: [0, this.topRisk()], percent: data.zeroOne, label: risk } },
    };
    for (const [name, given] of Object.entries(options)) {
      const svg = byId(`plot-${name}`);
      if (svg) this.charts[name] = new Chart(svg, given);
    }
    if (byId("plot-plane")) this.plane = new Plane(byId("plot-plane"), book, data);
    if (this.plane) this.charts.plane = this.plane.chart;
    this.hits = {};
  }

  topRisk() {
    const t = this.book.tuned;
    let most = 0;
    for (let i = 0; i < this.book.choices; i++) if (t.id[i] > 0) most = Math.max(most, t.risk(i));
    return 1.08 * (most || 0.01);
  }

  draw() { for (const name of Object.keys(this.charts)) this.drawOne(name); }

  // Frame and what does not depend on the shown rule.
  drawOne(name) {
    this.charts[name].frame();
    if (name === "surface") this.drawSurface();
    if (name === "roc") this.drawRoc();
    if (name === "plane") this.plane.draw();
  }

  // Rules for all pairs of levels that can be told apart on the screen.
  drawSurface() {
    const chart = this.charts.surface;
    const places = Array.from({ length: SURFACE + 1 }, (_, k) => k / SURFACE);
    this.levels = [places.map((p) => chart.y.value(p)), places.map((p) => chart.x.value(p))];
    this.cells = this.book.surface(...this.levels);
    const risks = Float64Array.from(this.cells, (i) => (i < 0 ? NaN : this.book.tuned.risk(i)));
    const able = [...new Set(risks)].filter((r) => !Number.isNaN(r)).sort((a, b) => a - b);
    // Equally many of the different risks a shade, so that all shades are used.
    this.cuts = Array.from({ length: SHADES + 1 }, (_, k) => able[Math.min(able.length - 1, Math.floor((k * able.length) / SHADES))]);
    const shade = (r) => { let k = able.length > 1 ? SHADES - 1 : 0; while (k > 0 && r < this.cuts[k]) k--; return k; };
    const bins = Int8Array.from(risks, (r) => (Number.isNaN(r) ? -1 : shade(r)));
    const paths = Array.from({ length: SHADES }, () => "");
    let unable = "";
    const { x, y, width, height } = chart.box;
    const edge = (k) => Math.min(1, Math.max(0, (k - 0.5) / SURFACE));
    const size = SURFACE + 1;
    for (let row = 0; row < size; row++) {
      const [y1, y2] = [y + height * (1 - edge(row + 1)), y + height * (1 - edge(row))];
      for (let from = 0, to; from < size; from = to) {
        const bin = bins[row * size + from];
        for (to = from + 1; to < size && bins[row * size + to] === bin; to++);
        const [x1, x2] = [x + width * edge(from), x + width * edge(to)];
        // A hair of overlap hides the seams between cells.
        const cell = `M${x1.toFixed(2)} ${(y1 - 0.2).toFixed(2)}H${(x2 + 0.2).toFixed(2)}V${y2.toFixed(2)}H${x1.toFixed(2)}z`;
        if (bin < 0) unable += cell; else paths[bin] += cell;
      }
    }
    paths.forEach((d, k) => d && shape(chart.still, "path", { class: `shade s${k}`, d }));
    if (unable) shape(chart.still, "path", { class: "unable", d: unable, fill: "url(#hatch)" });
    shape(chart.still, "path", { class: "reach", d: this.reach(bins, edge) });
    if (able.length) this.drawLegend(chart);
  }

  // The border of what can be had.
  reach(bins, edge) {
    const { x, y, width, height } = this.charts.surface.box;
    const size = SURFACE + 1;
    let path = "";
    for (let column = 0; column < size; column++) {
      let top = -1;
      for (let row = 0; row < size; row++) if (bins[row * size + column] >= 0) top = row;
      const at = y + height * (1 - (top < 0 ? 0 : edge(top + 1)));
      path += `${path ? "L" : "M"}${(x + width * edge(column)).toFixed(1)} ${at.toFixed(1)}H${(x + width * edge(column + 1)).toFixed(1)}`;
    }
    return path;
  }

  drawLegend(chart) {
    const width = Math.min(22, (chart.box.width - 110) / SHADES);
    const from = chart.box.x + chart.box.width - SHADES * width - 46;
    const value = (r) => (this.data.zeroOne ? `${Number((100 * r).toPrecision(2))}\u00a0%` : String(Number(r.toPrecision(2))));
    const group = shape(chart.axes, "g", {});
    shape(group, "title", {}, `Shades hold equally many different risks; they part at ${this.cuts.map(value).join(", ")}.`);
    shape(group, "text", { x: from - 6, y: 18, "text-anchor": "end" }, value(this.cuts[0]));
    for (let k = 0; k < SHADES; k++) shape(group, "rect", { class: `shade s${k}`, x: from + k * width, y: 8, width, height: 12 });
    shape(group, "rect", { class: "scale-edge", x: from, y: 8, width: SHADES * width, height: 12 });
    shape(group, "text", { x: from + SHADES * width + 6, y: 18 }, value(this.cuts[SHADES]));
  }

  drawRoc() {
    const { tuned, held, worst } = this.book;
    const chart = this.charts.roc;
    const points = (c) => this.roc.map((i) => [c.boundedFpr(i, worst), c.tpr(i)]);
    shape(chart.still, "path", { class: "chance", d: chart.polyline([[0, 0], [1, 1]]) });
    if (held) shape(chart.still, "path", { class: "curve held", d: chart.polyline([[0, 0], ...points(held)]) });
    const stairs = [[0, 0], ...points(tuned)];
    shape(chart.still, "path", { class: "curve", d: chart.steps([...stairs, [1, stairs[stairs.length - 1][1]]], true) });
    this.hits.roc = this.roc.map((i, k) => [stairs[k + 1], i]);
  }

  // Show rule number i (-1: none) beside a pinned one, for a prior and under a bound on the FPR.
  show(i, view) {
    this.shown = [i, view];
    for (const chart of Object.values(this.charts)) { chart.moving.replaceChildren(); chart.over.replaceChildren(); }
    this.showBounds(view);
    this.showPrecision(view.prior);
    this.showRisk(view.maxFpr);
    this.plane?.show(i, view.pinned);
    const { tuned, held } = this.book;
    if (view.pinned >= 0) this.mark(tuned, view.pinned, "pinned", view.prior);
    if (i < 0) return;
    this.mark(tuned, i, "tuned", view.prior);
    if (held) this.mark(held, i, "held", view.prior);
  }

  again(name) { this.drawOne(name); this.show(...this.shown); }

  mark(counts, i, kind, prior) {
    const fpr = counts.oodTotal ? counts.boundedFpr(i, this.book.worst) : 1;
    const place = { roc: [fpr, counts.tpr(i)], pr: [counts.tpr(i), counts.precision(i, prior, this.book.worst)], risk: [counts.tpr(i), counts.risk(i)] };
    place.surface = [fpr, counts.tpr(i)];
    for (const [name, at] of Object.entries(place)) this.charts[name]?.marker(...at, kind);
  }

  showBounds({ bounds }) {
    const chart = this.charts.surface;
    if (!chart || !bounds) return;
    const { x, y, width, height } = chart.box;
    const [bx, by] = [chart.sx(bounds[1]), chart.sy(bounds[0])];
    shape(chart.moving, "path", { class: "crosshair", d: `M${bx} ${y}v${height}M${x} ${by}h${width}` });
    shape(chart.over, "rect", { class: "handle", x: bx - 7, y: by - 7, width: 14, height: 14, rx: 2 });
  }

  showPrecision(prior) {
    const chart = this.charts.pr;
    if (!chart) return;
    const { tuned, held, worst } = this.book;
    const stairs = this.book.precisionStairs(this.roc, prior);
    const points = (c) => stairs.map((i) => [c.tpr(i), c.precision(i, prior, worst)]).reverse();
    const line = points(tuned);
    this.hits.pr = line.map((at, k) => [at, stairs[stairs.length - 1 - k]]);
    let lowest = 0.999;
    for (const [, p] of [...line, ...(held ? points(held) : [])]) if (p < lowest) lowest = p;
    const floor = Math.max(0, Math.floor(20 * (lowest - 0.02)) / 20);
    if (chart.y.range[0] !== floor) {
      const wasWhole = chart.y.isWhole;
      chart.y.range = [floor, 1];
      if (wasWhole) { chart.y.reset(); chart.frame(); }
    }
    if (held) shape(chart.moving, "path", { class: "curve held", d: chart.polyline(points(held).filter(([, p]) => Number.isFinite(p))) });
    if (line.length) shape(chart.moving, "path", { class: "curve", d: chart.steps([[0, line[0][1]], ...line], false) });
  }

  showRisk(maxFpr) {
    const chart = this.charts.risk;
    const stairs = this.book.riskStairs(maxFpr);
    const points = (c) => stairs.map((i) => [c.tpr(i), c.risk(i)]).reverse();
    const { tuned, held } = this.book;
    if (held) shape(chart.moving, "path", { class: "curve held", d: chart.polyline(points(held).filter(([, r]) => Number.isFinite(r))) });
    const line = points(tuned);
    this.hits.risk = line.map((at, k) => [at, stairs[stairs.length - 1 - k]]);
    if (!line.length) return;
    shape(chart.moving, "path", { class: "curve", d: chart.steps([[0, line[0][1]], ...line], false) });
    const from = chart.sx(line[line.length - 1][0]);
    const { x, y, width, height } = chart.box;
    if (from < x + width) shape(chart.moving, "rect", { class: "unable", x: from, y, width: x + width - from, height, fill: "url(#hatch)" });
  }

  // What is under a pointer: a text, and the number of a rule if there is one.
  at(name, event) {
    const chart = this.charts[name];
    const [px, py] = chart.shares(event);
    if (px < 0 || px > 1 || py < 0 || py > 1) return null;
    if (name === "plane") return this.plane.at(px, py);
    if (name === "surface") {
      const row = Math.round(py * SURFACE);
      const column = Math.round(px * SURFACE);
      const i = this.cells[row * (SURFACE + 1) + column];
      const asked = `TPR ≥ ${percent(this.levels[0][row], 2)}, FPR ≤ ${percent(this.levels[1][column], 2)}`;
      return { text: `${asked}: ${i < 0 ? "no rule" : `selective risk ${this.riskText(i)}`}` };
    }
    let [best, least] = [null, 0.08];
    (this.hits[name] ?? []).forEach((hit, k) => {
      const apart = Math.hypot(chart.x.place(hit[0][0]) - px, chart.y.place(hit[0][1]) - py);
      if (apart < least) [best, least] = [k, apart];
    });
    return best === null ? null : this.hit(name, best);
  }

  hit(name, k) {
    const [at, i] = this.hits[name][k];
    const t = this.book.tuned;
    const parts = [`TPR ${percent(t.tpr(i), 2)}`, this.data.hasOod ? `FPR ${percent(t.boundedFpr(i, this.book.worst), 2)}` : "", `selective risk ${this.riskText(i)}`];
    if (name === "pr") parts.push(`precision ${percent(at[1], 2)}`);
    return { text: `${parts.filter(Boolean).join(", ")} (tuning rows)`, at, index: k };
  }

  riskText(i) {
    const risk = this.book.tuned.risk(i);
    return this.data.zeroOne ? percent(risk, 2) : risk.toPrecision(4);
  }
}
