// Small SVG charts in real pixels: axes, steps, markers.

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
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw * 0.999);
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) found.push(k * step);
  return found;
}

function short(value, step) {
  const digits = Math.max(0, Math.min(6, -Math.floor(Math.log10(step) + 1e-9)));
  return value.toFixed(digits).replace("-", "−");
}

class Chart {
  // options: x and y are [low, high]; percent turns shares into per cent on the axis.
  constructor(svg, options) {
    this.svg = svg;
    this.options = options;
    this.edge = { left: 46, right: 12, top: options.top || 10, bottom: 38 };
  }

  // Draw the axes for the width at hand and return whether that has changed anything.
  frame() {
    const width = Math.max(200, Math.round(this.svg.parentElement.clientWidth));
    const height = Math.round(Math.min(width * this.options.ratio, 380));
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.replaceChildren();
    const { left, right, top, bottom } = this.edge;
    this.box = { x: left, y: top, width: width - left - right, height: height - top - bottom };
    this.axes = shape(this.svg, "g", { class: "axes" });
    this.still = shape(this.svg, "g");
    this.moving = shape(this.svg, "g");
    this.drawAxes();
  }

  sx(value) {
    const [low, high] = this.options.x;
    return this.box.x + (this.box.width * (value - low)) / (high - low);
  }

  sy(value) {
    const [low, high] = this.options.y;
    return this.box.y + this.box.height * (1 - (value - low) / (high - low));
  }

  drawAxes() {
    const { x, y, width, height } = this.box;
    const g = this.axes;
    g.replaceChildren();
    const scale = this.options.percent ? 100 : 1;
    const [xs, ys] = [this.options.x, this.options.y].map((range, axis) => {
      const room = axis === 0 ? width / 56 : height / 42;
      return ticks(range[0] * scale, range[1] * scale, Math.max(2, Math.floor(room)));
    });
    for (const value of xs) {
      const at = this.sx(value / scale);
      shape(g, "line", { class: "grid", x1: at, x2: at, y1: y, y2: y + height });
      shape(g, "text", { x: at, y: y + height + 15, "text-anchor": "middle" }, short(value, xs[1] - xs[0]));
    }
    for (const value of ys) {
      const at = this.sy(value / scale);
      shape(g, "line", { class: "grid", x1: x, x2: x + width, y1: at, y2: at });
      shape(g, "text", { x: x - 6, y: at + 4, "text-anchor": "end" }, short(value, ys[1] - ys[0]));
    }
    shape(g, "rect", { class: "edge", x, y, width, height });
    shape(g, "text", { class: "label", x: x + width / 2, y: y + height + 32, "text-anchor": "middle" }, this.options.xLabel);
    const turned = `translate(12 ${y + height / 2}) rotate(-90)`;
    shape(g, "text", { class: "label", transform: turned, "text-anchor": "middle" }, this.options.yLabel);
  }

  // A staircase through points by rising x; `hold` keeps y of the point to the left, else right.
  steps(points, hold) {
    let path = "";
    points.forEach(([x, y], k) => {
      const [px, py] = [this.sx(x).toFixed(2), this.sy(y).toFixed(2)];
      if (k === 0) path += `M${px} ${py}`;
      else path += hold ? `H${px}V${py}` : `V${py}H${px}`;
    });
    return path;
  }

  polyline(points) {
    return points.map(([x, y], k) => `${k ? "L" : "M"}${this.sx(x).toFixed(2)} ${this.sy(y).toFixed(2)}`).join("");
  }

  marker(parent, x, y, kind) {
    if (!Number.isFinite(x) || !Number.isFinite(y)) return;
    const inside = (value, [low, high]) => Math.min(high, Math.max(low, value));
    shape(parent, "circle", {
      class: `marker ${kind}`,
      cx: this.sx(inside(x, this.options.x)),
      cy: this.sy(inside(y, this.options.y)),
      r: 5.5,
    });
  }
}
