// What is asked for: kept in the address, and in a history that can be taken back.

// mode, values (decimals by name), the modes that the page offers, and whether it is what the page is about, as it was at the start.
class Asked {
  constructor(mode, values, modes, isStart = false) { Object.assign(this, { mode, values, modes, isStart }); }

  static start(data) {
    const values = {};
    for (const [name, text] of Object.entries(data.start)) values[name] = Decimal.parse(text);
    return new Asked(data.mode, values, data.modes, true);
  }

  with(changes) { return new Asked(changes.mode ?? this.mode, { ...this.values, ...changes.values }, this.modes); }

  // The part of an address behind "#": "tpr=0.8&fpr=0.005".
  toHash(prefix = "") {
    const names = [...ASKED[this.mode].filter((name) => this.values[name])];
    if (this.values.prior && !names.includes("prior")) names.push("prior");
    return names.map((name) => `${prefix}${name}=${this.values[name]}`).join("&");
  }

  // What an address asks for; what it does not name stays as in `base`. Null if it names nothing.
  static fromHash(hash, base, prefix = "") {
    const found = new URLSearchParams(hash.replace(/^#/, ""));
    const values = {};
    for (const name of Object.keys(base.values)) {
      const text = found.get(prefix + name);
      const value = text === null ? null : Decimal.parse(text);
      if (value && allowed(name, value)) values[name] = value;
    }
    if (!Object.keys(values).length) return null;
    // The mode that most of the names belong to; of equals, the one at hand.
    const named = (mode) => 2 * ASKED[mode].filter((name) => name !== "prior" && values[name]).length;
    const fit = (mode) => named(mode) + (mode === base.mode ? 1 : 0);
    const mode = base.modes.reduce((best, other) => (fit(other) > fit(best) ? other : best));
    return base.with({ mode, values });
  }

  get key() { return `${this.isStart}|${this.mode}|${this.toHash()}`; }
}

function allowed(name, value) {
  if (!CONTROLS[name].percent) return true;
  const order = value.compare(ONE);
  return name === "prior" ? order < 0 : order <= 0;
}

class History {
  constructor(first) { this.states = [first]; this.at = 0; }
  get state() { return this.states[this.at]; }
  get canUndo() { return this.at > 0; }
  get canRedo() { return this.at + 1 < this.states.length; }

  push(state) {
    if (state.key === this.state.key) return;
    this.states = [...this.states.slice(0, this.at + 1), state].slice(-200);
    this.at = this.states.length - 1;
  }

  undo() { if (this.canUndo) this.at--; return this.state; }
  redo() { if (this.canRedo) this.at++; return this.state; }
}
