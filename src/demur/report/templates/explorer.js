// Sliders, the numbers of the shown rule, and what to copy.

const byId = (id) => document.getElementById(id);

class Explorer {
  constructor(data) {
    this.data = data;
    this.book = new RuleBook(data.rules);
    this.plots = new Plots(this.book, data);
    this.sliders = Object.fromEntries([...document.querySelectorAll("#controls input[type=range]")].map((s) => [s.name, s]));
    this.modes = [...document.querySelectorAll("#controls input[name=mode]")];
    this.reset();
    byId("controls").addEventListener("input", (event) => this.changed(event.target));
    byId("controls").addEventListener("submit", (event) => event.preventDefault());
    byId("reset").addEventListener("click", () => { this.reset(); this.update(); });
    for (const button of document.querySelectorAll("button[data-copy]")) button.addEventListener("click", () => copy(button));
    this.listenToSurface();
    this.watchWidth();
  }

  get mode() { return this.modes.find((m) => m.checked).value; }

  reset() {
    for (const [name, value] of Object.entries(this.data.start)) if (this.sliders[name]) this.sliders[name].value = value;
    for (const mode of this.modes) mode.checked = mode.value === this.data.mode;
  }

  changed(input) {
    // Accepting an OOD input cannot be cheaper than rejecting it: one slider pushes the other.
    const { acceptOod, rejectOod } = this.sliders;
    if (acceptOod && Number(acceptOod.value) < Number(rejectOod.value)) {
      if (input === acceptOod) rejectOod.value = acceptOod.value;
      else acceptOod.value = rejectOod.value;
    }
    // There is one prior, shown beside both models that use it.
    if (input === this.sliders.prior && this.sliders.costPrior) this.sliders.costPrior.value = input.value;
    if (input === this.sliders.costPrior && this.sliders.prior) this.sliders.prior.value = input.value;
    if (!this.waiting) {
      this.waiting = true;
      requestAnimationFrame(() => { this.waiting = false; this.update(); });
    }
  }

  // Where a slider stands, in its whole steps.
  value(name) { return this.sliders[name] ? Number(this.sliders[name].value) : 0; }

  // What the sliders of the chosen model stand for.
  values() {
    const cost = (name) => Number(tidy(this.value(name) * this.data.costUnit));
    return {
      tprfpr: () => ({ tpr: this.value("tpr") / 100, fpr: this.value("fpr") / 100 }),
      pr: () => ({ precision: this.value("precision") / 1000, recall: this.value("recall") / 100, prior: this.prior }),
      cost: () => ({ rejectId: cost("rejectId"), acceptOod: cost("acceptOod"), rejectOod: cost("rejectOod"), prior: this.prior }),
    }[this.mode]();
  }

  get prior() { return this.value(this.mode === "cost" ? "costPrior" : "prior") / 1000; }

  choose() {
    if (this.mode === "tprfpr") return this.book.atLevels(this.value("tpr"), this.data.hasOod ? this.value("fpr") : 100);
    if (this.mode === "pr") return this.book.atPrecision(this.value("recall"), this.value("precision"), this.value("prior"));
    return this.book.atCosts(this.values());
  }

  update() {
    const shown = this.choose();
    for (const group of document.querySelectorAll(".sliders")) group.hidden = group.dataset.mode !== this.mode;
    for (const slider of Object.values(this.sliders)) this.label(slider);
    byId("explorer").dataset.rule = shown;
    byId("kind").textContent = shown < 0 ? "Relax a bound, or add a second score." : this.kind();
    this.fillTable(shown);
    this.fillCopies(shown);
    byId("shown-rule").textContent = shown < 0 ? "no rule meets these bounds" : `accept when ${this.inWords(shown)}`;
    byId("result").classList.toggle("infeasible", shown < 0);
    this.plots.show(shown, {
      prior: this.prior,
      maxFpr: this.maxFpr(shown),
      bounds: this.mode === "tprfpr" && this.data.hasOod ? [this.value("tpr") / 100, this.value("fpr") / 100] : null,
    });
    byId("sentence").textContent = this.sentence(shown);
    // Screen readers hear the outcome once the slider rests, not every step of the way.
    clearTimeout(this.speaking);
    this.speaking = setTimeout(() => { byId("status").textContent = this.sentence(shown); }, 250);
  }

  inWords(i) { return ruleText(this.book.direction(i), this.book.threshold(i), this.data.scores); }

  maxFpr(shown) {
    if (!this.data.hasOod) return 1;
    if (this.mode === "tprfpr") return this.value("fpr") / 100;
    return shown < 0 ? 1 : this.book.tuned.boundedFpr(shown, this.book.worst);
  }

  label(slider) {
    const value = Number(slider.value);
    const shares = { tpr: 100, fpr: 100, recall: 100, precision: 1000, prior: 1000, costPrior: 1000 };
    const digits = shares[slider.name] === 1000 ? 1 : 0;
    const text = slider.name in shares ? percent(value / shares[slider.name], digits) : tidy(value * this.data.costUnit);
    byId(`out-${slider.name}`).textContent = text;
    slider.setAttribute("aria-valuetext", text);
  }

  kind() {
    if (this.mode === "tprfpr") {
      return this.data.exact
        ? "Exact optimum for these bounds: demur tune finds a rule with these very counts."
        : "Best on the grid of angles for these bounds.";
    }
    return `Best of the ${this.book.size.toLocaleString("en")} rules embedded in this page, by their exact counts. The command below finds the exact optimum.`;
  }

  sentence(i) {
    if (i < 0) return this.unable();
    const { tuned } = this.book;
    if (tuned.id[i] === 0) return "Rejecting every input is cheapest.";
    const ood = this.data.hasOod ? ` and ${amount(tuned.ood[i])} of ${amount(tuned.oodTotal)} OOD rows` : "";
    return `Accepts ${amount(tuned.id[i])} of ${amount(tuned.totals.id)} ID${ood}, selective risk ${this.riskText(tuned.risk(i))}.`;
  }

  // What is possible instead, as `demur tune` would say.
  unable() {
    const { book } = this;
    if (this.mode === "tprfpr") {
      const most = book.mostTpr((i) => !(book.tuned.boundedFpr(i, book.worst) > this.value("fpr") / 100 + 1e-12));
      let least = 0;
      while (least <= 100 && book.atLevels(this.value("tpr"), least) < 0) least++;
      const other = least > 100 ? "no rule has such a TPR" : `at this TPR the FPR must be at least about ${least} %`;
      return `No rule meets these bounds: at this FPR the largest TPR is ${percent(most)}; ${other}.`;
    }
    const most = book.mostTpr((i) => book.meetsPrecision(i, this.value("precision"), this.value("prior")));
    return `No embedded rule meets these bounds: at this precision the largest recall is ${percent(most)}.`;
  }

  riskText(risk) { return this.data.zeroOne ? percent(risk, 2) : Number.isFinite(risk) ? risk.toPrecision(4) : "undefined"; }

  fillTable(i) {
    for (const [counts, column] of [[this.book.tuned, "tuned"], [this.book.held, "held"]]) {
      if (counts) for (const [name, [value, text]] of Object.entries(this.numbers(counts, i))) this.fill(`${name}-${column}`, value, text);
    }
    byId("row-precision").hidden = this.mode !== "pr";
    byId("row-cost").hidden = this.mode !== "cost";
  }

  fill(id, value, text) {
    const cell = byId(id);
    if (!cell) return;
    cell.textContent = text;
    cell.dataset.value = value;
  }

  numbers(counts, i) {
    const rate = (value, text) => [value, Number.isFinite(value) ? text : "–"];
    const none = i < 0;
    const of = (value) => (none ? NaN : value());
    const share = (value) => rate(value, percent(value, 2));
    const whole = (value) => rate(value, Number.isFinite(value) ? amount(value) : "–");
    const risk = of(() => counts.risk(i));
    const cost = of(() => (this.mode === "cost" ? counts.cost(i, this.values()) : NaN));
    const found = {
      tpr: share(of(() => counts.tpr(i))),
      fpr: share(of(() => counts.fpr(i))),
      risk: rate(risk, this.riskText(risk)),
      precision: share(of(() => counts.precision(i, this.prior))),
      cost: rate(cost, Number.isFinite(cost) ? cost.toPrecision(5) : "–"),
      "accepted-id": whole(of(() => counts.id[i])),
      "rejected-id": whole(of(() => counts.totals.id - counts.id[i])),
      "accepted-ood": whole(of(() => counts.ood[i])),
      "rejected-ood": whole(of(() => counts.oodTotal - counts.ood[i])),
      "accepted-loss": whole(of(() => counts.loss[i])),
    };
    counts.sets.forEach((_, s) => { found[`set${s}`] = share(of(() => counts.setFpr(i, s))); });
    return found;
  }

  fillCopies(i) {
    const [options, model] = modelTexts(this.mode, this.values(), this.data.hasOod);
    byId("copy-command").textContent = `${this.data.command} ${options}`;
    byId("copy-tune").textContent = `dm.tune(sample, ${model}${this.data.arguments}).rule`;
    byId("copy-rule").textContent = i < 0 ? "" : ruleCode(
      this.book.direction(i), this.book.threshold(i), this.data.named ? this.data.scores : null);
    for (const row of document.querySelectorAll("[data-needs-rule]")) row.hidden = i < 0;
  }

  // A mouse may pick both bounds at once; a finger that scrolls the page must not.
  listenToSurface() {
    const svg = byId("plot-surface");
    if (!svg) return;
    const pick = (event) => {
      const chart = this.plots.charts.surface;
      const rect = svg.getBoundingClientRect();
      const scale = svg.viewBox.baseVal.width / rect.width;
      const share = (at, from, size) => Math.round(100 * Math.min(1, Math.max(0, (at * scale - from) / size)));
      this.sliders.fpr.value = share(event.clientX - rect.left, chart.box.x, chart.box.width);
      this.sliders.tpr.value = 100 - share(event.clientY - rect.top, chart.box.y, chart.box.height);
      for (const mode of this.modes) mode.checked = mode.value === "tprfpr";
      this.changed(this.sliders.tpr);
    };
    svg.addEventListener("click", pick);
    svg.addEventListener("pointermove", (event) => {
      if (event.buttons === 1 && event.pointerType !== "touch") pick(event);
    });
  }

  watchWidth() {
    let width = 0;
    const watch = new ResizeObserver(() => {
      const now = byId("plots").clientWidth;
      if (now === width) return;
      width = now;
      this.plots.draw();
      this.update();
    });
    watch.observe(byId("plots"));
  }
}

async function copy(button) {
  const source = byId(button.dataset.copy);
  try {
    await navigator.clipboard.writeText(source.textContent);
  } catch {
    const range = document.createRange();
    range.selectNodeContents(source);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    document.execCommand("copy");
  }
  button.textContent = "Copied";
  byId("copied").textContent = "Copied to the clipboard.";
  setTimeout(() => { button.textContent = "Copy"; byId("copied").textContent = ""; }, 1500);
}

function readData() {
  const data = JSON.parse(byId("data").textContent);
  const { scatter } = data;
  scatter.points = scatter.points.map(unpack);
  scatter.density = scatter.density.map(unpack);
  return data;
}

new Explorer(readData());
