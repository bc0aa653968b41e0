// The explorer: what is asked for, the rule that is best for it, and its numbers.

const byId = (id) => document.getElementById(id);
const all = (selector) => [...document.querySelectorAll(selector)];

class Explorer {
  constructor(data) {
    this.data = data;
    // A risk is a share of wrong answers, or a mean loss in units of its own.
    if (!data.zeroOne) Object.assign(CONTROLS.risk, { scale: "cost", percent: false });
    this.book = new RuleBook(data.rules);
    this.plots = new Plots(this.book, data);
    this.first = Asked.start(data);
    this.history = new History(this.first);
    this.pinned = null;
    this.controls = new Controls(this.first, data, (state, settled) => this.ask(state, settled));
    this.listen();
    this.plots.draw();
    this.readAddress();
    new Pointing(this.plots, this);
    this.watchWidth();
  }

  get asked() { return this.current ?? this.history.state; }
  get mode() { return this.asked.mode; }
  get prior() { return this.asked.values.prior?.value ?? 0; }

  listen() {
    byId("reset").addEventListener("click", () => this.ask(this.first, true));
    byId("undo").addEventListener("click", () => this.ask(this.history.undo()));
    byId("redo").addEventListener("click", () => this.ask(this.history.redo()));
    byId("pin").addEventListener("click", () => this.pin());
    for (const button of all("button[data-copy]")) button.addEventListener("click", () => copyText(button, byId(button.dataset.copy).textContent));
    byId("copy-link").addEventListener("click", (event) => copyText(event.target, location.href));
    byId("save-rule").addEventListener("click", () => download("rule.json", "application/json", this.ruleFile()));
    for (const button of all("button[data-csv]")) {
      button.addEventListener("click", () => download(`${button.dataset.csv}.csv`, "text/csv", csvOf(button.parentElement.querySelector("table"))));
    }
    byId("dialect")?.addEventListener("change", () => this.fillCopies(this.shown));
    for (const [k, id] of ["nearest-0", "nearest-1"].entries()) byId(id).addEventListener("click", () => this.ask(this.nearest[k][1], true));
    addEventListener("hashchange", () => { if (location.hash !== this.address) this.readAddress(); });
  }

  // Ask for something: as a step of a drag, or settled, so that undo comes back to it.
  ask(state, settled = false) {
    this.current = state;
    clearTimeout(this.settling);
    const settle = () => { this.history.push(this.current); this.writeAddress(); this.showHistory(); };
    if (settled) settle(); else this.settling = setTimeout(settle, 350);
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.update(); });
  }

  readAddress() {
    const pinned = Asked.fromHash(location.hash, this.first, "pin.");
    if (pinned) this.pinned = { asked: pinned, rule: this.choose(pinned) };
    this.ask(Asked.fromHash(location.hash, this.first) ?? this.first, true);
    this.history.states = [this.current];
    this.history.at = 0;
    this.showHistory();
  }

  writeAddress() {
    const { asked } = this;
    const pinned = this.pinned ? this.pinned.asked.toHash("pin.") : "";
    const text = [asked.isStart ? "" : asked.toHash(), pinned].filter(Boolean).join("&");
    this.address = text ? `#${text}` : "";
    history.replaceState(null, "", this.address || location.pathname + location.search);
  }

  showHistory() {
    byId("undo").disabled = !this.history.canUndo;
    byId("redo").disabled = !this.history.canRedo;
  }

  choose(asked) {
    if (asked.isStart && !this.data.unmet) return this.book.start;
    return this.book.best(lowered(asked.mode, asked.values, this.book));
  }

  update() {
    const shown = this.choose(this.asked);
    this.shown = shown;
    this.controls.show(this.asked);
    byId("explorer").dataset.rule = shown;
    byId("result").classList.toggle("infeasible", shown < 0);
    byId("shown-rule").replaceChildren();
    if (shown < 0) byId("shown-rule").textContent = "no rule meets these bounds";
    else fillParts(byId("shown-rule"), ["accept when ", ...this.parts(shown)]);
    byId("kind").textContent = this.kind(shown);
    byId("sentence").textContent = this.sentence(shown);
    this.showNearest(shown);
    this.fillTable(shown);
    this.fillCopies(shown);
    this.plots.show(shown, {
      prior: this.prior,
      maxFpr: this.maxFpr(shown),
      pinned: this.pinned ? this.pinned.rule : -1,
      bounds: this.mode === "tprfpr" && this.data.hasOod ? [this.asked.values.tpr.value, this.asked.values.fpr.value] : null,
    });
    // Screen readers hear the outcome once the slider rests, not every step of the way.
    clearTimeout(this.speaking);
    this.speaking = setTimeout(() => { byId("status").textContent = this.sentence(shown); }, 250);
  }

  parts(i) { return ruleParts(this.book.direction(i), this.book.threshold(i), this.data.scores, this.book.digits[i]); }

  maxFpr(shown) {
    if (!this.data.hasOod) return 1;
    if (ASKED[this.mode].includes("fpr")) return this.asked.values.fpr.value;
    return shown < 0 ? 1 : this.book.tuned.boundedFpr(shown, this.book.worst);
  }

  kind(shown) {
    if (this.asked.isStart && shown >= 0) return `The rule that this page is about. ${this.data.about}`;
    if (shown < 0) return "Relax a bound, or add a second score.";
    if (this.data.complete) {
      const of = this.data.exact ? "Exact optimum" : "Best on the grid of angles";
      return `${of} for ${askedText(this.mode, this.asked.values, this.book.worst)}${this.data.widest ? ": the rule that demur tune returns." : ", by its counts: demur tune puts its boundary into the widest gap."}`;
    }
    const least = this.data.bracketed ? this.leastRisk() : null;
    const size = this.book.size.toLocaleString("en");
    const bracket = least === null ? "" : least >= 0 && this.book.order(least, shown) === 0
      ? " No rule has less risk." : ` No rule has less risk than ${this.riskText(this.book.tuned.risk(least))}.`;
    return `Best of the ${size} rules in this page.${bracket} The command below finds the exact optimum.`;
  }

  // The best rule at the whole per cents around the bounds: a bound on what any rule can do.
  leastRisk() {
    if (this.mode !== "tprfpr") return null;
    const { tpr, fpr } = this.asked.values;
    const down = new Decimal((tpr.digits * 100n) / tpr.unit, 2);
    const up = fpr && new Decimal(ceilDivide(fpr.digits * 100n, fpr.unit), 2);
    return this.book.best(lowered("tprfpr", { tpr: down, fpr: up }, this.book));
  }

  sentence(i) {
    if (i < 0) return this.unable();
    const { tuned, worst } = this.book;
    if (tuned.id[i] === 0) return "Rejecting every input is cheapest.";
    const ood = this.data.hasOod ? ` and ${amount(tuned.ood[i] * tuned.unit.ood)} of ${amount(tuned.oodTotal * tuned.unit.ood)} OOD` : "";
    const most = worst && this.data.hasOod ? `; FPR of the worst set ${percent(tuned.boundedFpr(i, true), 2)}` : "";
    return `Accepts ${amount(tuned.id[i] * tuned.unit.id)} of ${amount(tuned.totals.id * tuned.unit.id)} ID${ood} tuning rows, selective risk ${this.riskText(tuned.risk(i))}${most}.`;
  }

  // What is possible instead, as `demur tune` would say; the nearest bounds that can be met.
  unable() {
    const said = this.nearestBounds().map(([text]) => text);
    return `No rule${this.data.complete ? "" : " in this page"} meets ${askedText(this.mode, this.asked.values, this.book.worst)}: ${said.join("; ")}.`;
  }

  // Each bound by itself, moved to the best that the other one leaves.
  nearestBounds() {
    const { tuned: t, worst } = this.book;
    const shares = {
      tpr: ["the largest TPR is", (i) => -t.tpr(i), (i) => floorShare(t.id[i], t.totals.id)],
      recall: ["the largest recall is", (i) => -t.tpr(i), (i) => floorShare(t.id[i], t.totals.id)],
      precision: ["the largest precision is", (i) => -t.precision(i, this.prior, worst), (i) => rounded(t.precision(i, this.prior, worst), false)],
      fpr: ["the least FPR is", (i) => t.boundedFpr(i, worst), (i) => rounded(t.boundedFpr(i, worst), true)],
      risk: ["the least selective risk is", (i) => t.risk(i), (i) => rounded(t.risk(i), true)],
    };
    const names = ASKED[this.mode].filter((name) => shares[name] && this.asked.values[name]);
    return [...names].sort((a) => (a === "tpr" || a === "recall" ? -1 : 0)).map((name) => this.suggestion(name, ...shares[name])).filter(Boolean);
  }

  suggestion(name, text, worse, decimal) {
    const { book, mode, asked } = this;
    const only = (value) => lowered(mode, { ...asked.values, [name]: value }, book);
    const free = { ...only({ risk: ZERO, fpr: ONE }[name] ?? ZERO), ...(name === "risk" ? { risk: null } : {}) };
    let best = -1;
    for (let i = 0; i < book.choices; i++) if (book.meets(i, free) && (best < 0 || worse(i) < worse(best))) best = i;
    if (best < 0) return null;
    const value = decimal(best);
    const what = mode === "risk" || name === "tpr" || name === "recall" ? "with the other bound" : "at this share of ID";
    const met = book.best(only(value)) >= 0;
    return [`${what} ${text} ${valueText(name, value)}`, met ? asked.with({ values: { [name]: value } }) : null, name];
  }

  showNearest(i) {
    this.nearest = i < 0 ? this.nearestBounds().filter(([, asked]) => asked) : [];
    const signs = { tpr: "TPR ≥", recall: "recall ≥", fpr: "FPR ≤", precision: "precision ≥", risk: "selective risk ≤" };
    for (const [k, id] of ["nearest-0", "nearest-1"].entries()) {
      const button = byId(id);
      button.hidden = !this.nearest[k];
      if (!this.nearest[k]) continue;
      const [, asked, name] = this.nearest[k];
      button.textContent = `Ask for ${signs[name]} ${valueText(name, asked.values[name])}`;
    }
  }

  riskText(risk) { return this.data.zeroOne ? percent(risk, 2) : Number.isFinite(risk) ? risk.toPrecision(4) : "undefined"; }

  pin() {
    this.pinned = this.pinned ? null : { asked: this.asked, rule: this.shown };
    this.writeAddress();
    this.update();
  }

  fillTable(i) {
    const { book, pinned } = this;
    byId("pin").textContent = pinned ? "Unpin" : "Pin this rule";
    for (const cell of all(".pinned-column")) cell.hidden = !pinned;
    byId("pinned-rule").hidden = !pinned;
    if (pinned) fillParts(byId("pinned-rule"), ["Pinned: ", ...(pinned.rule < 0 ? ["no rule"] : this.parts(pinned.rule))]);
    for (const [counts, column] of [[book.tuned, "tuned"], [book.held, "held"]]) {
      if (!counts) continue;
      for (const [name, [value, text]] of Object.entries(this.numbers(counts, i))) this.fill(`${name}-${column}`, value, text);
      if (!pinned) continue;
      for (const [name, [value, text]] of Object.entries(this.numbers(counts, pinned.rule))) this.fill(`${name}-${column}-pinned`, value, text);
    }
    byId("row-cost").hidden = this.mode !== "cost";
    const at = byId("prior-shown");
    if (at) at.textContent = `${this.asked.values.prior.shifted(2)}\u00a0%`;
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
    const { unit } = counts;
    const cost = of(() => (this.mode === "cost" ? counts.cost(i, this.numbersAsked()) : NaN));
    const found = {
      tpr: share(of(() => counts.tpr(i))),
      fpr: share(of(() => counts.fpr(i))),
      worst: share(of(() => counts.boundedFpr(i, true))),
      risk: rate(risk, this.riskText(risk)),
      precision: share(of(() => counts.precision(i, this.prior, this.book.worst))),
      cost: rate(cost, Number.isFinite(cost) ? cost.toPrecision(5) : "–"),
      "accepted-id": whole(of(() => counts.id[i] * unit.id)),
      "rejected-id": whole(of(() => (counts.totals.id - counts.id[i]) * unit.id)),
      "accepted-ood": whole(of(() => counts.ood[i] * unit.ood)),
      "rejected-ood": whole(of(() => (counts.oodTotal - counts.ood[i]) * unit.ood)),
      "accepted-loss": whole(of(() => counts.loss[i] * unit.loss)),
    };
    counts.sets.forEach((_, s) => { found[`set${s}`] = share(of(() => counts.setFpr(i, s))); });
    return found;
  }

  numbersAsked() {
    const found = { accept_ood: 0, reject_ood: 0, prior: 0 };
    for (const [name, value] of Object.entries(this.asked.values)) found[name] = value.value;
    return found;
  }

  fillCopies(i) {
    const [options, model] = (this.asked.isStart && this.data.asked) || modelTexts(this.mode, this.asked.values);
    const sure = this.asked.isStart ? this.data.guarantee : null;
    const promised = sure === null ? "" : ` --guarantee ${sure}`;
    byId("copy-command").textContent = this.data.command ? `${this.data.command} ${options}${promised}` : "";
    const learned = Boolean(this.data.learned);
    const sample = !learned ? "sample" : sure === null ? "learned.sample" : "learned.transform(other_rows)";
    byId("copy-tune").textContent = sure === null
      ? `dm.tune(${sample}, ${model}${this.data.arguments}).rule`
      : `dm.guarantees.tune_certified(${sample}, ${model}, confidence=${sure}${this.data.arguments}).rule`;
    for (const row of all("[data-needs-rule]")) row.hidden = i < 0;
    byId("save-rule").disabled = i < 0;
    byId("pin").disabled = i < 0 && !this.pinned;
    if (i < 0) return;
    const [direction, threshold] = [this.book.direction(i), this.book.threshold(i)];
    const code = ruleCode(direction, threshold, this.data.named ? this.data.scores : null, this.data.confidence);
    byId("copy-rule").textContent = learned ? `learned.rule(${code})` : code;
    if (this.data.sql) byId("copy-sql").textContent = sqlText(this.data.sql[byId("dialect").value], direction, threshold);
  }

  ruleFile() {
    const i = this.shown;
    const t = this.book.tuned;
    const point = { tpr: t.tpr(i), selective_risk: t.risk(i) };
    if (this.data.hasOod) point.fpr = t.fpr(i);
    if (!Number.isFinite(point.selective_risk)) delete point.selective_risk;
    const asked = this.asked.isStart ? null : this.modelData();
    return ruleFile(this.data, this.book.direction(i), this.book.threshold(i), asked, point);
  }

  // The model as rule files name it.
  modelData() {
    const { mode } = this;
    const found = { name: MODELS[mode] };
    for (const key of ASKED[mode]) if (this.asked.values[key]) found[CONTROLS[key].argument] = this.asked.values[key].value;
    if (mode === "tprfpr" || mode === "risk") found.max_fpr ??= 1;
    if (mode === "cost") return { accept_ood: 1, reject_ood: 0, ood_prior: 0, ...found };
    return found;
  }

  watchWidth() {
    let width = 0;
    const watch = new ResizeObserver(() => {
      const now = byId("explorer").clientWidth;
      if (now === width) return;
      width = now;
      this.plots.draw();
      this.update();
    });
    watch.observe(byId("explorer"));
  }
}

// The largest decimal with six places that is at most part / whole.
function floorShare(part, whole) { return new Decimal((BigInt(part) * 10n ** 6n) / BigInt(whole), 6); }

// A decimal with six places on the safe side of a float.
function rounded(value, up) {
  const scaled = value * 1e6;
  return new Decimal(BigInt(up ? Math.ceil(scaled - 1e-7) : Math.floor(scaled + 1e-7)), 6);
}

function readData() {
  const data = JSON.parse(byId("data").textContent);
  const { rows } = data;
  rows.points = rows.points.map(unpack);
  for (const key of ["density", "histogram"]) {
    if (rows[key]) for (const kind of Object.keys(rows[key])) rows[key][kind] = rows[key][kind].map(unpack);
  }
  return data;
}

document.documentElement.classList.add("scripted");
new Explorer(readData());
