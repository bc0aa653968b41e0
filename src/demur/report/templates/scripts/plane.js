// The rows as points of the plane of the scores, or over the one score, and what the rule accepts.

const MARKS = [(x, y) => `M${x} ${y}h0`, (x, y) => `M${x} ${y}m-2.6-2.6l5.2 5.2m0-5.2l-5.2 5.2`, (x, y) => `M${x} ${y}m0-2.9l2.7 4.8h-5.4z`];
const LEVELS = [0.5, 0.9];

class Plane {
  constructor(svg, book, data) {
    Object.assign(this, { book, data, rows: data.rows });
    this.isPair = data.scores.length === 2;
    this.kind = data.rows.crowded ? "rank" : "linear";
    this.chart = new Chart(svg, this.options());
    this.order = [];
  }

  options() {
    const { view, knots } = this.rows;
    const axis = (k) => ({ kind: this.kind, knots: knots[k], range: this.kind === "rank" ? [knots[k][0], knots[k][knots[k].length - 1]] : view[k], label: this.data.scores[k] });
    const y = this.isPair ? axis(1) : { range: [0, 1], percent: true, label: "share of the group, %" };
    return { x: axis(0), y, ratio: 0.92 };
  }

  setScale(kind) {
    this.kind = kind;
    const { x, y } = this.options();
    this.chart.x = new Axis(x);
    this.chart.y = new Axis(y);
  }

  draw() {
    const { chart } = this;
    if (!this.isPair) this.binned();
    if (!this.isPair) chart.frame();
    this.region = shape(chart.still, "path", { class: "accepted" });
    if (this.isPair) {
      this.rows.points.forEach((group, g) => this.drawPoints(group, g));
      if (this.rows.density) this.rows.density[this.kind].forEach((group, g) => this.drawContours(group, g));
    } else {
      this.bins.forEach((shares, g) => this.drawHistogram(shares, g));
    }
    this.other = shape(chart.still, "path", { class: "boundary pinned" });
    this.boundary = shape(chart.still, "path", { class: "boundary" });
  }

  // One path a group: thousands of marks cost no more than a line.
  drawPoints(group, g) {
    let d = "";
    for (let k = 0; k < group.length; k += 2) d += MARKS[g](this.chart.sx(group[k]).toFixed(1), this.chart.sy(group[k + 1]).toFixed(1));
    shape(this.chart.still, "path", { class: `points g${g}`, d });
  }

  // Outlines of the regions that hold half and nine tenths of the rows of a group.
  drawContours(counts, g) {
    const size = Math.round(Math.sqrt(counts.length));
    const smooth = smoothed(counts, size, this.rows.sizes[g]);
    const sorted = Float64Array.from(smooth).sort().reverse();
    const total = sorted.reduce((a, b) => a + b, 0);
    if (!total) return;
    const { chart } = this;
    const [xs, ys] = [chart.x, chart.y].map((axis, k) => (p) => axis.place(this.fromUnit(p, k)));
    LEVELS.forEach((share, level) => {
      let [sum, at] = [0, 0];
      while (at < sorted.length - 1 && sum + sorted[at] < share * total) sum += sorted[at++];
      const { x, y, width, height } = chart.box;
      const d = contour(smooth, size, sorted[at]).map(([a, b, c, e]) =>
        `M${(x + width * xs(a / size)).toFixed(1)} ${(y + height * (1 - ys(b / size))).toFixed(1)}L${(x + width * xs(c / size)).toFixed(1)} ${(y + height * (1 - ys(e / size))).toFixed(1)}`).join("");
      shape(chart.still, "path", { class: `contour g${g} l${level}`, d });
    });
  }

  // The value at a share of the whole range that the density was counted over.
  fromUnit(place, k) {
    const { view, knots } = this.rows;
    if (this.kind === "linear") return view[k][0] + place * (view[k][1] - view[k][0]);
    const at = Math.min(knots[k].length - 1, Math.max(0, place * (knots[k].length - 1)));
    const low = Math.min(knots[k].length - 2, Math.floor(at));
    return knots[k][low] + (at - low) * (knots[k][low + 1] - knots[k][low]);
  }

  // Shares of each group per bin, all on one scale.
  binned() {
    const totals = this.rows.sizes;
    this.bins = this.rows.histogram[this.kind].map((counts, g) => Array.from(counts, (c) => (totals[g] ? c / totals[g] : 0)));
    const axis = this.chart.y;
    if (!axis.scaled) {
      axis.range = [0, 1.08 * Math.max(1e-9, ...this.bins.flat())];
      axis.reset();
      axis.scaled = true;
    }
  }

  drawHistogram(shares, g) {
    const at = (k) => this.fromUnit(k / shares.length, 0);
    const outline = [[at(0), 0]];
    shares.forEach((share, k) => outline.push([at(k), share], [at(k + 1), share]));
    outline.push([at(shares.length), 0]);
    shape(this.chart.still, "path", { class: `histogram g${g}`, d: this.chart.polyline(outline) });
  }

  // The half-plane that the rule accepts, cut to the view, and its boundary.
  show(i, pinned) {
    this.shown = i;
    this.order = [];
    this.region.setAttribute("d", i < 0 ? "" : this.accepted(i));
    this.boundary.setAttribute("d", i < 0 ? "" : this.line(i));
    this.other.setAttribute("d", pinned >= 0 ? this.line(pinned) : "");
  }

  // A point for each of many values of the score along which the boundary runs the flatter.
  path(i) {
    const { chart } = this;
    const [a, b = 0] = this.book.direction(i);
    const threshold = this.book.threshold(i);
    if (threshold === -Infinity) return [];
    const { x, y, width, height } = chart.box;
    if (b === 0) { const at = chart.sx(threshold / a); return [[at, y + height], [at, y]]; }
    const points = [];
    for (let k = 0; k <= 240; k++) {
      const along = chart.x.value(k / 240);
      points.push([x + (width * k) / 240, chart.sy((threshold - a * along) / b)]);
    }
    for (let k = 0; k <= 240 && a !== 0; k++) {
      const along = chart.y.value(k / 240);
      points.push([chart.sx((threshold - b * along) / a), y + height * (1 - k / 240)]);
    }
    const falling = a * b > 0;
    return points.sort((p, q) => p[0] - q[0] || (falling ? p[1] - q[1] : q[1] - p[1]));
  }

  line(i) { return this.path(i).map(([x, y], k) => `${k ? "L" : "M"}${cut(x)} ${cut(y)}`).join(""); }

  accepted(i) {
    const points = this.path(i);
    if (!points.length) return "";
    const [a, b = 0] = this.book.direction(i);
    const { x, y, width, height } = this.chart.box;
    const far = 5000;
    const [first, last] = [points[0], points[points.length - 1]];
    const text = points.map(([px, py]) => `${cut(px)} ${cut(py)}`).join("L");
    if (b === 0) {
      const side = a > 0 ? x - far : x + width + far;
      return `M${text}L${side} ${y}L${side} ${y + height}z`;
    }
    const below = b > 0 ? y + height + far : y - far;
    return `M${cut(first[0] - far)} ${cut(first[1])}L${text}L${cut(last[0] + far)} ${cut(last[1])}L${cut(last[0] + far)} ${below}L${cut(first[0] - far)} ${below}z`;
  }

  accepts(scores) {
    const direction = this.book.direction(this.shown);
    return direction.reduce((sum, w, k) => sum + w * scores[k], 0) <= this.book.threshold(this.shown);
  }

  // The row under the pointer, or the bin.
  at(px, py) {
    const { x, y, box } = this.chart;
    if (!this.isPair) return this.binAt(px);
    let [best, least] = [null, 14];
    this.rows.points.forEach((group, g) => {
      for (let k = 0; k < group.length; k += 2) {
        const apart = Math.hypot((x.place(group[k]) - px) * box.width, (y.place(group[k + 1]) - py) * box.height);
        if (apart < least) [best, least] = [[g, k / 2], apart];
      }
    });
    return best && this.row(...best);
  }

  binAt(px) {
    const value = this.chart.x.value(px);
    const count = this.bins[0].length;
    let k = 0;
    while (k < count - 1 && this.fromUnit((k + 1) / count, 0) <= value) k++;
    const shares = this.bins.map((bin, g) => `${this.rows.groups[g]} ${percent(bin[k], 2)}`);
    return { text: `${significant(this.fromUnit(k / count, 0), 4)} to ${significant(this.fromUnit((k + 1) / count, 0), 4)}: ${shares.join(", ")}` };
  }

  row(g, k) {
    const point = [...this.rows.points[g].slice(2 * k, 2 * k + 2)];
    const scores = this.data.scores.map((name, s) => `${name} ${significant(point[s], 5)}`).join(", ");
    const fate = this.shown < 0 ? "" : this.accepts(point) ? "; accepted" : "; rejected";
    return { text: `${this.rows.names[g][k]} (${this.rows.groups[g]}): ${scores}${fate}`, at: point };
  }

  // Rows by their distance from the boundary, for the keyboard.
  nearest(step) {
    if (!this.isPair || this.shown < 0) return null;
    if (!this.order.length) {
      const direction = this.book.direction(this.shown);
      const threshold = this.book.threshold(this.shown);
      this.rows.points.forEach((group, g) => {
        for (let k = 0; k < group.length / 2; k++) this.order.push([Math.abs(direction[0] * group[2 * k] + direction[1] * group[2 * k + 1] - threshold), g, k]);
      });
      this.order.sort((a, b) => a[0] - b[0]);
      this.place = -1;
    }
    this.place = Math.min(this.order.length - 1, Math.max(0, this.place + step));
    return this.order.length ? this.row(...this.order[this.place].slice(1)) : null;
  }
}

function cut(value) { return Math.max(-9999, Math.min(9999, value)).toFixed(1); }

// A running mean over three cells in both directions, the more often the fewer rows there are.
function smoothed(counts, size, rows) {
  let from = Float64Array.from(counts);
  const times = Math.min(24, Math.max(2, Math.round(10000 / Math.max(1, rows))));
  for (let pass = 0; pass < 2 * times; pass++) {
    const step = pass % 2 ? size : 1;
    const to = new Float64Array(from.length);
    for (let k = 0; k < from.length; k++) {
      const at = step === 1 ? k % size : Math.floor(k / size);
      const before = at > 0 ? from[k - step] : from[k];
      const after = at < size - 1 ? from[k + step] : from[k];
      to[k] = (before + 2 * from[k] + after) / 4;
    }
    from = to;
  }
  return from;
}

// Segments of the line where a grid of values, seen from cell centres, crosses a level.
function contour(values, size, level) {
  const segments = [];
  const value = (c, r) => (c < 0 || r < 0 || c >= size || r >= size ? 0 : values[r * size + c]);
  for (let r = -1; r < size; r++) {
    for (let c = -1; c < size; c++) {
      const corners = [[c, r], [c + 1, r], [c + 1, r + 1], [c, r + 1]];
      const heights = corners.map(([a, b]) => value(a, b) - level);
      const crossings = [];
      for (let k = 0; k < 4; k++) {
        const [p, q] = [heights[k], heights[(k + 1) % 4]];
        if (p > 0 === q > 0) continue;
        const share = p / (p - q);
        const [from, to] = [corners[k], corners[(k + 1) % 4]];
        crossings.push([from[0] + share * (to[0] - from[0]) + 0.5, from[1] + share * (to[1] - from[1]) + 0.5]);
      }
      for (let k = 0; k + 1 < crossings.length; k += 2) segments.push([...crossings[k], ...crossings[k + 1]]);
    }
  }
  return segments;
}
