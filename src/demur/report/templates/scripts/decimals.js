// Exact decimals, and the scales of the sliders. A bound of 0.07 is 7/100 here as it is for tune.

class Decimal {
  // digits / 10 ** places
  constructor(digits, places) {
    while (places > 0 && digits % 10n === 0n) { digits /= 10n; places--; }
    this.digits = digits;
    this.places = places;
  }

  // null for what is no number: "0.5", ".5", "1e-4" and "5e-1" are.
  static parse(text) {
    const found = /^\s*(\d*)(?:[.,](\d*))?(?:e([+-]?\d{1,3}))?\s*$/i.exec(text);
    if (!found || !(found[1] || found[2])) return null;
    const [, whole, part = "", power = "0"] = found;
    return new Decimal(BigInt(whole + part || "0"), part.length).shifted(Number(power));
  }

  // Times a power of ten.
  shifted(power) {
    const places = this.places - power;
    return places >= 0 ? new Decimal(this.digits, places) : new Decimal(this.digits * 10n ** BigInt(-places), 0);
  }

  get unit() { return 10n ** BigInt(this.places); }
  get fraction() { return [this.digits, this.unit]; }
  get value() { return Number(this.toString()); }

  compare(other) {
    const [left, right] = [this.digits * other.unit, other.digits * this.unit];
    return left < right ? -1 : left > right ? 1 : 0;
  }

  toString() {
    if (this.places === 0) return String(this.digits);
    const text = String(this.digits).padStart(this.places + 1, "0");
    return `${text.slice(0, -this.places)}.${text.slice(-this.places)}`;
  }
}

const ONE = new Decimal(1n, 0);
const ZERO = new Decimal(0n, 0);

// Shares in steps that get finer towards 0: of 0.01 % up to 0.1 %, of 0.05 % up to 1 %, and so on.
function fineShares() {
  const found = [];
  for (const [from, to, step] of [[0, 10, 1], [10, 100, 5], [100, 1000, 25], [1000, 10001, 100]]) {
    for (let k = from; k < to; k += step) found.push(new Decimal(BigInt(k), 4));
  }
  return found;
}

const SHARES = fineShares();
const SCALES = {
  small: () => SHARES,
  large: () => SHARES.map((s) => new Decimal(10n ** 4n - (s.digits * 10n ** 4n) / s.unit, 4)).reverse(),
  prior: () => SHARES.slice(0, -1),
  // Two digits over six decades.
  cost: (largest) => {
    const top = Math.ceil(Math.log10(largest));
    const found = [ZERO];
    for (let power = top - 4; power < top + 3; power++) {
      for (let k = 10; k < 100; k += k < 30 ? 1 : 5) found.push(new Decimal(BigInt(k), 1).shifted(power));
    }
    return found;
  },
};

// What can be asked for: where it stands in links, commands and Python, and its scale.
const CONTROLS = {
  tpr: { scale: "large", percent: true, option: "--min-tpr", argument: "min_tpr" },
  fpr: { scale: "small", percent: true, option: "--max-fpr", argument: "max_fpr" },
  precision: { scale: "large", percent: true, option: "--min-precision", argument: "min_precision" },
  recall: { scale: "large", percent: true, option: "--min-recall", argument: "min_recall" },
  risk: { scale: "small", percent: true, option: "--max-risk", argument: "max_selective_risk" },
  reject_id: { scale: "cost", option: "--cost-reject-id", argument: "reject_id" },
  accept_ood: { scale: "cost", option: "--cost-accept-ood", argument: "accept_ood" },
  reject_ood: { scale: "cost", option: "--cost-reject-ood", argument: "reject_ood" },
  prior: { scale: "prior", percent: true, option: "--prior", argument: "ood_prior" },
};
const ASKED = {
  tprfpr: ["tpr", "fpr"],
  risk: ["risk", "fpr"],
  pr: ["precision", "recall", "prior"],
  cost: ["reject_id", "accept_ood", "reject_ood", "prior"],
};
const MODELS = { tprfpr: "TprFprModel", risk: "RiskFprModel", pr: "PrecisionRecallModel", cost: "CostModel" };
