// What is asked for in whole numbers, as tune lowers a model: bounds on masses, costs of masses.

// `values` are decimals by name; `tuned` the counts of the tuning rows, `groups` as in RuleBook.
function lowered(mode, values, book) {
  if (mode === "cost") return { costs: costs(values, book) };
  const t = book.tuned;
  const least = { tprfpr: values.tpr, pr: values.recall, risk: ZERO }[mode];
  const [n, d] = least.fraction;
  const asked = ceilDivide(n * BigInt(t.totals.id), d) - BigInt(t.rounding.id);
  const program = { minId: Math.max(1, Number(asked)), maxOod: book.groups.map(([, total]) => total) };
  if (mode === "risk") Object.assign(program, { risk: riskRatio(values.risk, t), most: true });
  if (mode === "pr") {
    program.ratio = ratios(values, book);
  } else if (values.fpr) {
    const [n2, d2] = values.fpr.fraction;
    program.maxOod = book.groups.map(([, total]) => Math.min(
      total, Number((n2 * BigInt(total)) / d2 + BigInt(t.rounding.ood))));
  }
  return program;
}

function ceilDivide(n, d) { return (n + d - 1n) / d; }

// Precision bounds the quotient of accepted OOD and ID mass; null where it bounds nothing.
function ratios({ precision, prior }, book) {
  if (precision.digits === 0n || prior.digits === 0n) return null;
  const t = book.tuned;
  const slack = BigInt(4 * Math.max(t.rounding.id, t.rounding.ood));
  const power = 2n ** 52n;
  return book.groups.map(([, total]) => {
    const n = (prior.unit - prior.digits) * (precision.unit - precision.digits) * BigInt(total) * (power + slack);
    const d = prior.digits * precision.digits * BigInt(t.totals.id) * power;
    return [n, d, Number((n * 2n ** 80n) / d) / 2 ** 80];
  });
}

// A bound on the risk bounds the quotient of accepted loss and ID mass; what rounding moved is forgiven.
function riskRatio(risk, t) {
  const up = t.exponents.loss - t.exponents.id;
  let [n, d] = [risk.digits << BigInt(Math.max(0, up)), risk.unit << BigInt(Math.max(0, -up))];
  if (t.rounding.loss && n > 0n) {
    const [loss, id] = [BigInt(t.totals.loss), BigInt(t.totals.id)];
    const slack = 4n * BigInt(t.rounding.loss);
    const power = 2n ** 52n;
    const larger = n * id >= loss * d;
    [n, d] = larger ? [n * (power + slack), d * power] : [n * id * power + d * loss * slack, d * id * power];
  }
  return [n, d, Number((n * 2n ** 80n) / d) / 2 ** 80];
}

const COEFFICIENT_LIMIT = 2n ** 62n - 1n;

// Costs of a unit of loss, ID and OOD mass in whole numbers, rounded only where 62 bits are too few.
function costs({ reject_id: rejectId, accept_ood: acceptOod, reject_ood: rejectOod, prior = ZERO }, book) {
  const t = book.tuned;
  const id = BigInt(t.totals.id);
  const kept = prior.unit - prior.digits;
  const exponent = t.exponents.id - t.exponents.loss;
  const step = acceptOod && prior.digits > 0n
    ? [acceptOod.digits * rejectOod.unit - rejectOod.digits * acceptOod.unit, acceptOod.unit * rejectOod.unit] : [0n, 1n];
  const found = [
    exponent >= 0 ? [kept << BigInt(exponent), prior.unit * id] : [kept, (prior.unit * id) << BigInt(-exponent)],
    [-kept * rejectId.digits, prior.unit * rejectId.unit * id],
    t.oodTotal ? [prior.digits * step[0], prior.unit * step[1] * BigInt(t.oodTotal)] : [0n, 1n],
  ];
  const common = found.reduce((product, [, d]) => lcm(product, d), 1n);
  const whole = found.map(([n, d]) => n * (common / d));
  const divisor = whole.reduce((a, b) => gcd(a, b), 0n) || 1n;
  const small = whole.map((n) => n / divisor);
  const largest = small.reduce((a, b) => (a > abs(b) ? a : abs(b)), 0n);
  if (largest <= COEFFICIENT_LIMIT) return small;
  return small.map((n) => roundDivide(n * COEFFICIENT_LIMIT, largest));
}

function abs(n) { return n < 0n ? -n : n; }

function gcd(a, b) {
  [a, b] = [abs(a), abs(b)];
  while (b) [a, b] = [b, a % b];
  return a;
}

function lcm(a, b) { return (a / gcd(a, b)) * b; }

// To the nearest whole number, halves to the even one.
function roundDivide(n, d) {
  const sign = n < 0n ? -1n : 1n;
  const size = abs(n);
  const twice = 2n * (size % d);
  let whole = size / d;
  if (twice > d || (twice === d && whole % 2n === 1n)) whole += 1n;
  return sign * whole;
}
