// The embedded rules and their counts. Nothing here touches the page.

function unpack(packed) {
  const bytes = Uint8Array.from(atob(packed.data), (c) => c.charCodeAt(0));
  const kinds = { u1: Uint8Array, i4: Int32Array, f4: Float32Array, f8: Float64Array };
  return new kinds[packed.type](bytes.buffer);
}

// What every rule accepts of one sample, in whole units of mass, and what one unit weighs.
class Counted {
  constructor(raw) {
    this.id = unpack(raw.id);
    this.loss = unpack(raw.loss);
    this.sets = raw.sets.map(unpack);
    this.totals = raw.totals;
    // Sums of masses are whole numbers below 2 ** 53, which 64-bit floats hold and 32 bits do not.
    this.ood = Float64Array.from(this.id, (_, i) => this.sets.reduce((sum, set) => sum + set[i], 0));
    this.oodTotal = this.totals.sets.reduce((a, b) => a + b, 0);
    this.unit = { id: 2 ** -raw.exponents.id, ood: 2 ** -raw.exponents.ood, loss: 2 ** -raw.exponents.loss };
    this.exponents = raw.exponents;
    this.rounding = raw.rounding;
  }

  tpr(i) { return this.id[i] / this.totals.id; }
  fpr(i) { return this.ood[i] / this.oodTotal; }
  risk(i) { return (this.loss[i] * this.unit.loss) / (this.id[i] * this.unit.id); }
  setFpr(i, s) { return this.sets[s][i] / this.totals.sets[s]; }

  // The FPR that a bound is about: of all OOD rows together, or the largest of a set.
  boundedFpr(i, worst) {
    if (!worst) return this.fpr(i);
    let most = 0;
    for (let s = 0; s < this.sets.length; s++) if (this.totals.sets[s]) most = Math.max(most, this.setFpr(i, s));
    return most;
  }

  precision(i, prior, worst = false) {
    const id = (1 - prior) * this.tpr(i);
    return prior === 0 ? (id > 0 ? 1 : NaN) : id / (id + prior * this.boundedFpr(i, worst));
  }

  cost(i, c) {
    const id = (this.loss[i] * this.unit.loss) / (this.totals.id * this.unit.id) + c.reject_id * (1 - this.tpr(i));
    if (c.prior === 0) return id;
    return (1 - c.prior) * id + c.prior * (c.accept_ood * this.fpr(i) + c.reject_ood * (1 - this.fpr(i)));
  }
}

class RuleBook {
  constructor(raw) {
    this.columns = raw.lines.map(unpack);
    this.size = this.columns[0].length;
    this.tuned = new Counted(raw.tuned);
    this.held = raw.held && new Counted(raw.held);
    this.digits = unpack(raw.digits);
    this.start = raw.start;
    this.worst = raw.worst;
    // OOD masses that a bound is about, each with its total.
    const { tuned } = this;
    this.groups = this.worst
      ? tuned.sets.map((set, s) => [set, tuned.totals.sets[s]])
      : [[tuned.ood, tuned.oodTotal]];
    // The rule that the page is about need not be best for anything, and then is not to be chosen.
    this.choices = raw.optimum ? this.size : this.size - 1;
  }

  direction(i) { return this.columns.slice(0, -1).map((column) => column[i]); }
  threshold(i) { return this.columns[this.columns.length - 1][i]; }

  // The best rule under a program, -1 if none meets its bounds.
  best(program) {
    if (program.costs) return this.leastCost(program.costs);
    const order = program.most ? (i, j) => this.orderByMost(i, j) : (i, j) => this.order(i, j);
    let best = -1;
    for (let i = 0; i < this.choices; i++) {
      if (this.meets(i, program) && (best < 0 || order(i, best) < 0)) best = i;
    }
    return best;
  }

  meets(i, program) {
    if (this.tuned.id[i] < program.minId) return false;
    if (program.risk && !atMost(this.tuned.loss[i], this.tuned.id[i], program.risk)) return false;
    return this.groups.every(([ood], s) => ood[i] <= program.maxOod[s]
      && (!program.ratio || atMost(ood[i], this.tuned.id[i], program.ratio[s])));
  }

  // Least selective risk, then largest TPR, then least FPR.
  order(i, j) {
    const t = this.tuned;
    return compareProducts(t.loss[i], t.id[j], t.loss[j], t.id[i]) || t.id[j] - t.id[i] || t.ood[i] - t.ood[j];
  }

  // Largest TPR, then least FPR, then least loss.
  orderByMost(i, j) {
    const t = this.tuned;
    return t.id[j] - t.id[i] || t.ood[i] - t.ood[j] || t.loss[i] - t.loss[j];
  }

  // Costs in floats, and exactly among those that floats cannot tell apart.
  leastCost([loss, id, ood]) {
    const t = this.tuned;
    const near = [Number(loss), Number(id), Number(ood)];
    const value = (i) => near[0] * t.loss[i] + near[1] * t.id[i] + near[2] * t.ood[i];
    const exact = (i) => loss * BigInt(t.loss[i]) + id * BigInt(t.id[i]) + ood * BigInt(t.ood[i]);
    let least = Infinity;
    let size = 0;
    for (let i = 0; i < this.choices; i++) {
      least = Math.min(least, value(i));
      size = Math.max(size, Math.abs(near[0] * t.loss[i]) + Math.abs(near[1] * t.id[i]) + Math.abs(near[2] * t.ood[i]));
    }
    let best = -1;
    for (let i = 0; i < this.choices; i++) {
      if (value(i) > least + 1e-12 * size) continue;
      const order = best < 0 ? -1 : Number(exact(i) - exact(best)) || t.id[best] - t.id[i] || t.ood[i] - t.ood[best];
      if (order < 0) best = i;
    }
    return best;
  }

  // Largest TPR for every bound on the FPR: rules by rising FPR.
  rocStairs() {
    const t = this.tuned;
    const fpr = (i) => t.boundedFpr(i, this.worst);
    const fprs = Float64Array.from(t.id, (_, i) => fpr(i));
    const order = Uint32Array.from(t.id.keys()).sort((a, b) => fprs[a] - fprs[b] || t.id[b] - t.id[a]);
    let most = 0;
    return [...order.filter((i) => t.id[i] > most && (most = t.id[i]))];
  }

  // Largest precision for every bound on the recall: rules by falling recall.
  precisionStairs(roc, prior) {
    let best = -1;
    return [...roc].reverse().filter((i) => {
      const precision = this.tuned.precision(i, prior, this.worst);
      if (precision <= best) return false;
      best = precision;
      return true;
    });
  }

  // Least selective risk for every bound on the coverage, with at most this FPR: by falling TPR.
  riskStairs(maxFpr) {
    const t = this.tuned;
    if (!this.byCoverage) {
      this.risks = Float64Array.from(t.id, (_, i) => t.risk(i));
      this.fprs = Float64Array.from(t.id, (_, i) => this.oodFpr(i));
      this.byCoverage = Uint32Array.from(t.id.keys()).filter((i) => t.id[i] > 0)
        .sort((a, b) => t.id[b] - t.id[a] || this.risks[a] - this.risks[b]);
    }
    const found = [];
    let least = Infinity;
    for (const i of this.byCoverage) {
      if (this.risks[i] < least && this.fprs[i] <= maxFpr + 1e-12) { found.push(i); least = this.risks[i]; }
    }
    return found;
  }

  // The best rule for bounds at these levels: a row per TPR, a column per FPR, both rising.
  surface(tprs, fprs) {
    const t = this.tuned;
    const cells = new Int32Array(tprs.length * fprs.length).fill(-1);
    // How many of the rising levels are below a value.
    const place = (levels, value) => {
      let [low, high] = [0, levels.length];
      while (low < high) { const k = (low + high) >> 1; if (levels[k] < value) low = k + 1; else high = k; }
      return low;
    };
    const put = (cell, i) => { if (cells[cell] < 0 || this.order(i, cells[cell]) < 0) cells[cell] = i; };
    for (let i = 0; i < this.choices; i++) {
      if (t.id[i] === 0) continue;
      const row = place(tprs, t.tpr(i) * (1 + 1e-12) + 1e-15) - 1;
      const column = place(fprs, this.oodFpr(i) * (1 - 1e-12));
      if (row >= 0 && column < fprs.length) put(row * fprs.length + column, i);
    }
    for (let row = tprs.length - 1; row >= 0; row--) {
      for (let column = 0; column < fprs.length; column++) {
        const cell = row * fprs.length + column;
        if (column > 0 && cells[cell - 1] >= 0) put(cell, cells[cell - 1]);
        if (row + 1 < tprs.length && cells[cell + fprs.length] >= 0) put(cell, cells[cell + fprs.length]);
      }
    }
    return cells;
  }

  oodFpr(i) { return this.tuned.oodTotal ? this.tuned.boundedFpr(i, this.worst) : 0; }
}

// Compare a * b with c * d, exactly: all are whole numbers.
function compareProducts(a, b, c, d) {
  const [left, right] = [a * b, c * d];
  if (Math.max(left, right) < 2 ** 53) return left - right;
  if (Math.abs(left - right) > 1e-12 * Math.max(left, right)) return left - right;
  const exact = BigInt(a) * BigInt(b) - BigInt(c) * BigInt(d);
  return exact < 0n ? -1 : exact > 0n ? 1 : 0;
}

// Whether part / whole is at most a fraction [n, d] of big whole numbers.
function atMost(part, whole, [n, d, quotient]) {
  const near = part / whole;
  if (Math.abs(near - quotient) > 1e-12 * quotient) return near < quotient;
  return BigInt(part) * d <= BigInt(whole) * n;
}
