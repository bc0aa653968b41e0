// The embedded rules and the choice among them. Nothing here touches the page.

function unpack(packed) {
  const bytes = Uint8Array.from(atob(packed.data), (c) => c.charCodeAt(0));
  const kinds = { i4: Int32Array, f4: Float32Array, f8: Float64Array };
  return new kinds[packed.type](bytes.buffer);
}

// Accepted weights of every rule on one sample, and the totals they are shares of.
class Counted {
  constructor(raw) {
    this.id = unpack(raw.id);
    this.loss = unpack(raw.loss);
    this.sets = raw.sets.map(unpack);
    this.totals = raw.totals;
    this.ood = this.id.map((_, i) => this.sets.reduce((sum, set) => sum + set[i], 0));
    this.oodTotal = this.totals.sets.reduce((a, b) => a + b, 0);
  }

  tpr(i) { return this.id[i] / this.totals.id; }
  fpr(i) { return this.ood[i] / this.oodTotal; }
  risk(i) { return this.loss[i] / this.id[i]; }
  setFpr(i, s) { return this.sets[s][i] / this.totals.sets[s]; }

  // The FPR that a bound is about: of all OOD rows, or the largest of a set.
  boundedFpr(i, worst) {
    if (!worst) return this.fpr(i);
    return Math.max(...this.sets.map((_, s) => (this.totals.sets[s] ? this.setFpr(i, s) : 0)));
  }

  precision(i, prior, worst = false) {
    const id = (1 - prior) * this.tpr(i);
    return prior === 0 ? (id > 0 ? 1 : NaN) : id / (id + prior * this.boundedFpr(i, worst));
  }

  cost(i, c) {
    const id = this.loss[i] / this.totals.id + c.rejectId * (1 - this.tpr(i));
    if (c.prior === 0) return id;
    return (1 - c.prior) * id + c.prior * (c.acceptOod * this.fpr(i) + c.rejectOod * (1 - this.fpr(i)));
  }
}

class RuleBook {
  constructor(raw) {
    this.columns = raw.lines.map(unpack);
    this.size = this.columns[0].length;
    this.tuned = new Counted(raw.tuned);
    this.held = raw.held && new Counted(raw.held);
    this.cells = unpack(raw.cells);
    this.start = raw.start;
    this.worst = raw.worst;
    this.whole = raw.whole;
  }

  direction(i) { return this.columns.slice(0, -1).map((column) => column[i]); }
  threshold(i) { return this.columns[this.columns.length - 1][i]; }

  // The frontier: the best rule for bounds in per cent, -1 if none meets them.
  atLevels(tpr, fpr) { return this.cells[tpr * 101 + fpr]; }

  // Least selective risk, then largest TPR, then least FPR, among the rules that `meets` keeps.
  leastRisk(meets) {
    const t = this.tuned;
    let best = -1;
    for (let i = 0; i < this.size; i++) {
      if (t.id[i] === 0 || !meets(i)) continue;
      if (best < 0) { best = i; continue; }
      const order = t.risk(i) - t.risk(best) || t.id[best] - t.id[i] || t.ood[i] - t.ood[best];
      if (order < 0) best = i;
    }
    return best;
  }

  // Recall in per cent, precision and prior in thousandths.
  atPrecision(recall, precision, prior) {
    return this.leastRisk((i) => this.meetsRecall(i, recall) && this.meetsPrecision(i, precision, prior));
  }

  meetsRecall(i, recall) {
    // Weights were rounded when they were summed; whole counts were not.
    const slack = this.whole ? 1 : 1 - 1e-12;
    return this.tuned.id[i] * 100 >= recall * this.tuned.totals.id * slack;
  }

  meetsPrecision(i, precision, prior) {
    const t = this.tuned;
    const groups = this.worst ? t.sets.map((set, s) => [set[i], t.totals.sets[s]]) : [[t.ood[i], t.oodTotal]];
    return groups.every(([ood, total]) => this.quotientMet(
      [1000 - prior, 1000 - precision, t.id[i], total], [prior, precision, ood, t.totals.id]));
  }

  // Whether one product is at least another; in whole numbers where floats cannot tell.
  quotientMet(larger, smaller) {
    const product = (factors) => factors.reduce((a, b) => a * b, 1);
    const [left, right] = [product(larger), product(smaller)];
    if (Math.abs(left - right) > 1e-9 * right) return left > right;
    if (!this.whole) return true;
    return product2(larger) >= product2(smaller);
  }

  atCosts(costs) {
    const t = this.tuned;
    let best = 0;
    for (let i = 1; i < this.size; i++) {
      const order = t.cost(i, costs) - t.cost(best, costs) || t.id[best] - t.id[i] || t.ood[i] - t.ood[best];
      if (order < 0) best = i;
    }
    return best;
  }

  // Largest TPR for every bound on the FPR: rules by rising FPR.
  rocStairs() {
    const t = this.tuned;
    const fpr = (i) => t.boundedFpr(i, this.worst);
    const order = [...this.tuned.id.keys()].sort((a, b) => fpr(a) - fpr(b) || t.id[b] - t.id[a]);
    let most = 0;
    return order.filter((i) => t.id[i] > most && (most = t.id[i]));
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
    const within = [...t.id.keys()].filter(
      (i) => t.id[i] > 0 && !(t.boundedFpr(i, this.worst) > maxFpr + 1e-12));
    within.sort((a, b) => t.id[b] - t.id[a] || t.risk(a) - t.risk(b));
    let least = Infinity;
    return within.filter((i) => t.risk(i) < least && ((least = t.risk(i)), true));
  }

  // What could be had instead, when no rule meets the bounds.
  mostTpr(meets) {
    let most = NaN;
    for (let i = 0; i < this.size; i++) {
      if (this.tuned.id[i] > 0 && meets(i) && !(this.tuned.tpr(i) <= most)) most = this.tuned.tpr(i);
    }
    return most;
  }
}

function product2(factors) {
  return factors.reduce((a, b) => a * BigInt(b), 1n);
}
