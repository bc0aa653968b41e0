// Boxes to type in, sliders beside them, and the plots as things to point at.

class Controls {
  constructor(first, data, ask) {
    this.ask = ask;
    this.modes = all("#controls input[name=mode]");
    this.scales = {};
    for (const name of Object.keys(first.values)) {
      if (!byId(`box-${name}`)) continue;
      this.scales[name] = SCALES[CONTROLS[name].scale](data.largestCost);
      byId(`in-${name}`).max = this.scales[name].length - 1;
      byId(`in-${name}`).addEventListener("input", (event) => this.change(name, this.scales[name][event.target.value]));
      const box = byId(`box-${name}`);
      box.addEventListener("input", () => this.type(name, box.value));
      box.addEventListener("change", () => { if (this.type(name, box.value)) this.ask(this.state, true); });
      box.addEventListener("blur", () => { this.complain(name, ""); this.show(this.state); });
    }
    for (const radio of this.modes) radio.addEventListener("change", () => this.ask(this.state.with({ mode: radio.value }), true));
    byId("controls").addEventListener("submit", (event) => event.preventDefault());
  }

  // What is typed, in per cent where a share is meant; false if it is no such number.
  type(name, text) {
    const { percent: isShare } = CONTROLS[name];
    const given = Decimal.parse(text.replace("%", ""));
    const value = given && isShare ? given.shifted(-2) : given;
    const valid = value !== null && allowed(name, value);
    this.complain(name, valid ? "" : isShare ? `a number of per cent from 0 to ${name === "prior" ? "below 100" : "100"}` : "a number from 0 up");
    if (valid) this.change(name, value);
    return valid;
  }

  complain(name, text) {
    byId(`box-${name}`).toggleAttribute("aria-invalid", Boolean(text));
    if (text) byId(`box-${name}`).setAttribute("aria-invalid", "true");
    byId(`wrong-${name}`).textContent = text ? `Type ${text}.` : "";
  }

  change(name, value) {
    const values = { [name]: value };
    // Accepting an OOD input cannot be cheaper than rejecting it: one pushes the other.
    const { accept_ood: accept, reject_ood: reject } = { ...this.state.values, ...values };
    if (accept && accept.compare(reject) < 0) {
      if (name === "accept_ood") values.reject_ood = value; else values.accept_ood = value;
    }
    // Recall is another name of the TPR.
    if (name === "tpr") values.recall = value;
    if (name === "recall") values.tpr = value;
    this.ask(this.state.with({ values }));
    this.state = this.state.with({ values });
  }

  show(state) {
    this.state = state;
    for (const radio of this.modes) radio.checked = radio.value === state.mode;
    for (const group of all(".sliders")) group.hidden = !group.dataset.modes.split(" ").includes(state.mode);
    for (const [name, scale] of Object.entries(this.scales)) {
      const value = state.values[name];
      const shown = CONTROLS[name].percent ? value.shifted(2) : value;
      const box = byId(`box-${name}`);
      if (document.activeElement !== box) box.value = String(shown);
      const slider = byId(`in-${name}`);
      slider.value = nearestPlace(scale, value);
      slider.setAttribute("aria-valuetext", CONTROLS[name].percent ? `${shown}\u00a0%` : String(shown));
    }
  }
}

function nearestPlace(scale, value) {
  let best = 0;
  scale.forEach((level, k) => { if (Math.abs(level.value - value.value) < Math.abs(scale[best].value - value.value)) best = k; });
  return best;
}

// Tooltips, zoom, choosing bounds in the frontier, and the tools of each plot: pointer and keyboard.
class Pointing {
  constructor(plots, explorer) {
    Object.assign(this, { plots, explorer, place: {} });
    for (const name of Object.keys(plots.charts)) this.listen(name);
    const scale = byId("plane-scale");
    if (scale) {
      scale.value = plots.plane.kind;
      const tellBeyond = () => { if (byId("beyond")) byId("beyond").hidden = scale.value !== "linear"; };
      tellBeyond();
      scale.addEventListener("change", () => { plots.plane.setScale(scale.value); plots.again("plane"); tellBeyond(); });
    }
    const fine = byId("surface-scale");
    if (fine) {
      fine.value = plots.charts.surface.x.kind;
      fine.addEventListener("change", () => {
        plots.charts.surface.x.kind = fine.value;
        plots.charts.surface.x.reset();
        plots.again("surface");
      });
    }
  }

  listen(name) {
    const { svg } = this.plots.charts[name];
    svg.addEventListener("pointermove", (event) => this.move(name, event));
    svg.addEventListener("pointerleave", () => this.tell(null));
    svg.addEventListener("pointerdown", (event) => this.press(name, event));
    svg.addEventListener("dblclick", () => this.zoom(name, 0));
    svg.addEventListener("keydown", (event) => this.key(name, event));
    for (const button of all(`[data-plot="${name}"]`)) button.addEventListener("click", () => this.tool(name, button.dataset.tool));
  }

  tool(name, tool) {
    if (tool === "svg" || tool === "png") downloadPicture(this.plots.charts[name].svg, `demur-${name}`, tool);
    else this.zoom(name, { in: 1, out: -1, all: 0 }[tool]);
  }

  // In by a half, out, or (0) back to everything.
  zoom(name, sense) {
    const chart = this.plots.charts[name];
    for (const axis of [chart.x, chart.y]) {
      if (sense === 0) axis.reset(); else axis.zoom(...(sense > 0 ? [0.25, 0.75] : [-0.5, 1.5]));
      const whole = axis.range.map((v) => axis.even(v));
      axis.view = [Math.max(whole[0], axis.view[0]), Math.min(whole[1], axis.view[1])];
    }
    this.plots.again(name);
  }

  press(name, event) {
    const chart = this.plots.charts[name];
    const from = chart.shares(event);
    if (event.button !== 0 || event.pointerType === "touch" || from.some((s) => s < 0 || s > 1)) {
      if (name === "surface" && event.pointerType === "touch") this.pick(from);
      return;
    }
    event.preventDefault();
    chart.svg.focus({ preventScroll: true });
    chart.svg.setPointerCapture(event.pointerId);
    if (name === "surface") this.pick(from); else this.from = from;
    const drag = (moved) => { if (name === "surface") this.pick(chart.shares(moved)); else this.frame(chart, chart.shares(moved)); };
    const drop = (last) => {
      chart.svg.removeEventListener("pointermove", drag);
      if (name !== "surface") this.close(name, chart.shares(last));
    };
    chart.svg.addEventListener("pointermove", drag);
    chart.svg.addEventListener("pointerup", drop, { once: true });
  }

  // Both bounds at once, in whole tenths of a per cent or finer.
  pick(shares) {
    const { x, y } = this.plots.charts.surface;
    if (shares.some((s) => s < -0.05 || s > 1.05)) return;
    const share = (axis, place) => {
      const value = Math.min(1, Math.max(0, axis.value(Math.min(1, Math.max(0, place)))));
      const digits = axis.kind === "fine" && value < 0.01 ? 4 : axis.kind === "fine" && value < 0.1 ? 3 : 2;
      return Decimal.parse(value.toFixed(digits));
    };
    const [fpr, tpr] = [share(x, shares[0]), share(y, shares[1])];
    this.explorer.ask(this.explorer.asked.with({ mode: "tprfpr", values: { tpr, fpr, recall: tpr } }));
  }

  frame(chart, to) {
    if (!this.from) return;
    this.box?.remove();
    const { x, y, width, height } = chart.box;
    const [a, b] = [this.from, to];
    this.box = shape(chart.over, "rect", {
      class: "lasso", x: x + width * Math.min(a[0], b[0]), y: y + height * (1 - Math.max(a[1], b[1])),
      width: width * Math.abs(a[0] - b[0]), height: height * Math.abs(a[1] - b[1]),
    });
  }

  close(name, to) {
    this.box?.remove();
    const [a, from] = [to, this.from];
    this.from = null;
    if (!from || Math.abs(a[0] - from[0]) < 0.03 || Math.abs(a[1] - from[1]) < 0.03) return;
    const chart = this.plots.charts[name];
    const inside = (p) => Math.min(1, Math.max(0, p));
    chart.x.zoom(inside(Math.min(a[0], from[0])), inside(Math.max(a[0], from[0])));
    chart.y.zoom(inside(Math.min(a[1], from[1])), inside(Math.max(a[1], from[1])));
    this.plots.again(name);
  }

  move(name, event) { if (!this.from) this.tell(this.plots.at(name, event), event.clientX, event.clientY); }

  key(name, event) {
    const step = { ArrowRight: 1, ArrowDown: -1, ArrowLeft: -1, ArrowUp: 1 }[event.key];
    const sense = { "+": 1, "=": 1, "-": -1, 0: 0 }[event.key];
    if (event.key === "Escape") { this.tell(null); return; }
    if (sense !== undefined && name !== "surface") { this.zoom(name, sense); event.preventDefault(); return; }
    if (step === undefined) return;
    event.preventDefault();
    if (name === "surface") { this.nudge(event.key.endsWith("Up") || event.key.endsWith("Down") ? "tpr" : "fpr", step); return; }
    const hits = this.plots.hits[name];
    let found = name === "plane" ? this.plots.plane.nearest(step) : null;
    if (hits?.length) {
      this.place[name] = Math.min(hits.length - 1, Math.max(0, (this.place[name] ?? -1) + step));
      found = this.plots.hit(name, this.place[name]);
    }
    if (!found) return;
    const { svg } = this.plots.charts[name];
    const rect = svg.getBoundingClientRect();
    const scale = rect.width / svg.viewBox.baseVal.width;
    const at = this.plots.charts[name];
    this.tell(found, rect.left + scale * at.sx(found.at[0]), rect.top + scale * at.sy(found.at[1]));
    byId("status").textContent = found.text;
  }

  nudge(name, step) {
    const { scales } = this.explorer.controls;
    const value = this.explorer.asked.values[name];
    const at = nearestPlace(scales[name], value) + step;
    const level = scales[name][Math.min(scales[name].length - 1, Math.max(0, at))];
    const values = name === "tpr" ? { tpr: level, recall: level } : { fpr: level };
    this.explorer.ask(this.explorer.asked.with({ mode: "tprfpr", values }));
  }

  tell(found, x, y) {
    const tip = byId("tip");
    tip.hidden = !found;
    if (!found) return;
    tip.textContent = found.text;
    const room = document.documentElement.clientWidth;
    tip.style.left = `${Math.max(4, Math.min(x + 12, room - tip.offsetWidth - 8))}px`;
    tip.style.top = `${y + 16 + tip.offsetHeight > innerHeight ? y - tip.offsetHeight - 12 : y + 16}px`;
  }
}
