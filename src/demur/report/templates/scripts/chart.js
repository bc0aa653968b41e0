// Small SVG charts in real pixels: axes with scales and views, steps, markers.

const SVG = "http://www.w3.org/2000/svg";

function shape(parent, name, attributes, text) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes || {})) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  parent.appendChild(node);
  return node;
}

function ticks(low, high, count) {
  const raw = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= raw * 0.999);
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) found.push(k * step);
  return found;
}

function tickText(value, step) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  let digits = 0;
  while (digits < 7 && Math.abs(step * 10 ** digits - Math.round(step * 10 ** digits)) > 1e-6) digits++;
  if (size >= 1e5 || digits > 5) return minus(Number(value.toPrecision(3)).toExponential().replace("e+", "e"));
  return minus(value.toFixed(digits));
}

// A value on an uneven scale, in few characters.
function shortText(value) {
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e5)) return minus(value.toExponential(1).replace("e+", "e").replace(".0e", "e"));
  return significant(value, 3);
}

const textWidth = (text) => 6.4 * text.length;

// Ticks whose texts have room: every second one of even ones, else those that fit beside the last.
function apart(found, place, isEven) {
  const meet = ([a, s], [b, t]) => Math.abs(place(b) - place(a)) < (textWidth(s) + textWidth(t)) / 2 + 5;
  if (!isEven) return found.reduce((kept, tick) => (kept.length && meet(kept[kept.length - 1], tick) ? kept : [...kept, tick]), []);
  while (found.some((tick, k) => k > 0 && meet(found[k - 1], tick))) found = found.filter((_, k) => k % 2 === 0);
  return found;
}

// Text cut to a width in pixels; names can be of any length.
function fitted(text, width) {
  const most = Math.max(3, Math.floor(width / 6.4));
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
}

// From values to places in [0, 1]: evenly, finer near 0, or by rank; and a view that can be moved.
class Axis {
  constructor({ range, kind = "linear", percent = false, knots = null, label }) {
    Object.assign(this, { range, kind, percent, knots, label });
    this.reset();
  }

  reset() { this.view = this.range.map((v) => this.even(v)); }
  get isWhole() { return this.range.every((v, k) => Math.abs(this.even(v) - this.view[k]) < 1e-12); }

  even(value) {
    if (this.kind === "fine") return Math.asinh(value / 0.005);
    if (this.kind !== "rank") return value;
    return interpolated(value, this.knots, (k) => k / (this.knots.length - 1));
  }

  uneven(place) {
    if (this.kind === "fine") return 0.005 * Math.sinh(place);
    if (this.kind !== "rank") return place;
    const at = Math.min(this.knots.length - 1, Math.max(0, place * (this.knots.length - 1)));
    const k = Math.min(this.knots.length - 2, Math.floor(at));
    return this.knots[k] + (at - k) * (this.knots[k + 1] - this.knots[k]);
  }

  place(value) { return (this.even(value) - this.view[0]) / (this.view[1] - this.view[0]); }
  value(place) { return this.uneven(this.view[0] + place * (this.view[1] - this.view[0])); }
  get ends() { return [this.value(0), this.value(1)]; }

  zoom(low, high) {
    const [from, to] = this.view;
    this.view = [from + low * (to - from), from + high * (to - from)];
  }

  ticks(room) {
    const scale = this.percent ? 100 : 1;
    const [low, high] = this.ends.map((v) => v * scale);
    if (this.kind === "linear") {
      const found = ticks(low, high, room);
      const step = found.length > 1 ? found[1] - found[0] : (high - low) / room;
      return found.map((v) => [v / scale, tickText(v, step)]);
    }
    const values = this.kind === "fine"
      ? [0, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1]
      : Array.from({ length: room + 1 }, (_, k) => this.value(k / room));
    const found = [];
    for (const value of values) {
      const apart = found.length === 0 || this.place(value) - this.place(found[found.length - 1]) >= 0.7 / room;
      if (apart && this.place(value) >= -1e-9 && this.place(value) <= 1 + 1e-9) found.push(value);
    }
    return found.map((v) => [v, this.kind === "fine" ? String(Number((v * scale).toPrecision(3))) : shortText(v)]);
  }
}

function interpolated(value, knots, at) {
  let [low, high] = [0, knots.length - 1];
  if (!(value > knots[low])) return at(low);
  if (!(value < knots[high])) return at(high);
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (knots[middle] <= value) low = middle; else high = middle;
  }
  return at(low) + ((value - knots[low]) / (knots[high] - knots[low])) * (at(high) - at(low));
}

class Chart {
  constructor(svg, { x, y, ratio = 0.92, top = 10 }) {
    Object.assign(this, { svg, ratio, top, x: new Axis(x), y: new Axis(y) });
  }

  // Draw the axes for the width at hand.
  frame() {
    const width = Math.max(220, Math.round(this.svg.parentElement.clientWidth));
    const height = Math.round(Math.max(210, Math.min(width * this.ratio, 400)));
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.replaceChildren();
    const bottom = 38;
    this.yTicks = this.y.ticks(Math.max(3, Math.floor((height - this.top - bottom) / 34)));
    const left = 26 + 6.3 * Math.max(1, ...this.yTicks.map(([, text]) => text.length));
    this.box = { x: left, y: this.top, width: width - left - 20, height: height - this.top - bottom };
    const clip = shape(this.svg, "clipPath", { id: `${this.svg.id}-clip` });
    shape(clip, "rect", this.box);
    this.axes = shape(this.svg, "g", { class: "axes" });
    const inside = () => shape(this.svg, "g", { "clip-path": `url(#${this.svg.id}-clip)` });
    this.still = inside();
    this.moving = inside();
    this.over = shape(this.svg, "g");
    this.drawAxes();
  }

  sx(value) { return this.box.x + this.box.width * this.x.place(value); }
  sy(value) { return this.box.y + this.box.height * (1 - this.y.place(value)); }

  drawAxes() {
    const { x, y, width, height } = this.box;
    const g = this.axes;
    g.replaceChildren();
    const room = Math.max(4, Math.floor(width / 46));
    for (const [value, text] of apart(this.x.ticks(room), (v) => this.sx(v), this.x.kind === "linear")) {
      const at = this.sx(value);
      shape(g, "line", { class: "grid", x1: at, x2: at, y1: y, y2: y + height });
      shape(g, "text", { x: at, y: y + height + 15, "text-anchor": "middle" }, text);
    }
    for (const [value, text] of this.yTicks) {
      const at = this.sy(value);
      shape(g, "line", { class: "grid", x1: x, x2: x + width, y1: at, y2: at });
      shape(g, "text", { x: x - 6, y: at + 4, "text-anchor": "end" }, text);
    }
    shape(g, "rect", { class: "edge", x, y, width, height });
    const label = (axis, room, attributes) => {
      const node = shape(g, "text", { class: "label", "text-anchor": "middle", ...attributes }, fitted(axis.label, room));
      shape(node, "title", {}, axis.label);
    };
    label(this.x, width, { x: x + width / 2, y: y + height + 32 });
    label(this.y, height, { transform: `translate(12 ${y + height / 2}) rotate(-90)` });
  }

  // Places of a pointer in the box, as shares of its sides.
  shares(event) {
    const rect = this.svg.getBoundingClientRect();
    const scale = this.svg.viewBox.baseVal.width / rect.width;
    return [
      ((event.clientX - rect.left) * scale - this.box.x) / this.box.width,
      1 - ((event.clientY - rect.top) * scale - this.box.y) / this.box.height,
    ];
  }

  // Where points are drawn, those left out that would hardly move the pen.
  places(points) {
    const found = [];
    let [lastX, lastY] = [NaN, NaN];
    points.forEach(([x, y], k) => {
      const [px, py] = [this.sx(x), this.sy(y)];
      if (Math.abs(px - lastX) < 0.3 && Math.abs(py - lastY) < 0.3 && k < points.length - 1) return;
      found.push([px.toFixed(1), py.toFixed(1)]);
      [lastX, lastY] = [px, py];
    });
    return found;
  }

  // A staircase through points by rising x; `hold` keeps y of the point to the left, else right.
  steps(points, hold) {
    let path = "";
    for (const [x, y] of this.places(points)) {
      if (!path) path = `M${x} ${y}`;
      else path += hold ? `H${x}V${y}` : `V${y}H${x}`;
    }
    return path;
  }

  polyline(points) { return this.places(points).map(([x, y], k) => `${k ? "L" : "M"}${x} ${y}`).join(""); }

  // Tuned: a filled disc. Held out: a ring around it, so that both are seen. Pinned: a square.
  marker(x, y, kind) {
    if (!Number.isFinite(x) || !Number.isFinite(y)) return;
    const [cx, cy] = [this.sx(x), this.sy(y)];
    const { x: left, y: top, width, height } = this.box;
    if (cx < left - 1 || cx > left + width + 1 || cy < top - 1 || cy > top + height + 1) return;
    if (kind === "pinned") shape(this.over, "rect", { class: "marker pinned", x: cx - 4.5, y: cy - 4.5, width: 9, height: 9 });
    else shape(this.over, "circle", { class: `marker ${kind}`, cx, cy, r: kind === "held" ? 8 : 4.5 });
  }
}
