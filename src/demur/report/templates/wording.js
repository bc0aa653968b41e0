// Numbers, rules and models as text.

function percent(value, digits = 1) {
  return Number.isFinite(value) ? `${(100 * value).toFixed(digits)}\u00a0%` : "undefined";
}

function amount(value) {
  return value.toLocaleString("en", { maximumFractionDigits: Number.isInteger(value) ? 0 : 2 });
}

// A decimal without the noise of binary fractions.
function tidy(value) { return String(Number(value.toPrecision(12))); }

// The rule as an inequality in rounded numbers.
function ruleText(direction, threshold, names) {
  if (threshold === -Infinity) return "never";
  const signed = (value, digits) => String(Number(value.toPrecision(digits))).replace("-", "−");
  let text = "";
  direction.forEach((weight, k) => {
    if (weight === 0) return;
    const sign = weight < 0 ? "−" : text ? "+" : "";
    const factor = Math.abs(weight) === 1 ? "" : `${signed(Math.abs(weight), 4)} × `;
    text += text ? ` ${sign} ${factor}${names[k]}` : `${sign}${factor}${names[k]}`;
  });
  return `${text} ≤ ${signed(threshold, 5)}`;
}

// The very same rule in Python; numbers of JavaScript read back as the same floats there.
function ruleCode(direction, threshold, names) {
  const tuple = (items) => `(${items.join(", ")}${items.length === 1 ? "," : ""})`;
  const limit = threshold === -Infinity ? 'float("-inf")' : String(threshold);
  const named = names ? `, score_names=${tuple(names.map((name) => JSON.stringify(name)))}` : "";
  return `dm.Rule(direction=${tuple(direction.map(String))}, threshold=${limit}${named})`;
}

// A model from its values, as options of the command and as Python.
function modelTexts(mode, values, hasOod) {
  const options = {
    tprfpr: { name: "TprFprModel", tpr: ["--min-tpr", "min_tpr"], fpr: ["--max-fpr", "max_fpr"] },
    pr: {
      name: "PrecisionRecallModel",
      precision: ["--min-precision", "min_precision"],
      recall: ["--min-recall", "min_recall"],
      prior: ["--prior", "ood_prior"],
    },
    cost: {
      name: "CostModel",
      rejectId: ["--cost-reject-id", "reject_id"],
      acceptOod: ["--cost-accept-ood", "accept_ood"],
      rejectOod: ["--cost-reject-ood", "reject_ood"],
      prior: ["--prior", "ood_prior"],
    },
  };
  const { name, ...parts } = options[mode];
  const used = Object.entries(parts).filter(([key]) => hasOod || key === "tpr" || key === "rejectId");
  return [
    used.map(([key, [option]]) => `${option} ${tidy(values[key])}`).join(" "),
    `dm.${name}(${used.map(([key, [, argument]]) => `${argument}=${tidy(values[key])}`).join(", ")})`,
  ];
}
