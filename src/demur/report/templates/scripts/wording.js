// Numbers, rules and models as text.

// Never a bare 0 or 100 for what is neither.
function percent(value, digits = 1) {
  if (!Number.isFinite(value)) return "undefined";
  let shown = (100 * value).toFixed(digits);
  for (let more = digits + 1; more <= 7 && ((value > 0 && Number(shown) === 0) || (value < 1 && Number(shown) === 100)); more++) {
    shown = (100 * value).toFixed(more);
  }
  return `${shown}\u00a0%`;
}

function amount(value) {
  return value.toLocaleString("en", { maximumFractionDigits: Number.isInteger(value) ? 0 : 2 });
}

const MINUS = "−";
const minus = (text) => text.replace("-", MINUS);

// A number with so many significant digits, without trailing zeros, as Python's "g" writes it.
function significant(value, digits) {
  const text = Number(value.toPrecision(digits));
  return minus(String(Object.is(text, -0) ? 0 : text));
}

// The rule as an inequality, in parts: texts, and names as [name]. A single confidence is told to
// be at least something.
function ruleParts(direction, threshold, names, digits) {
  if (threshold === -Infinity) return ["never"];
  const used = direction.filter((weight) => weight !== 0);
  const turned = used.length === 1 && used[0] < 0;
  const sign = turned ? -1 : 1;
  const parts = [];
  direction.forEach((given, k) => {
    const weight = sign * given;
    if (weight === 0) return;
    const mark = weight < 0 ? MINUS : "+";
    if (parts.length) parts.push(` ${mark} `); else if (weight < 0) parts.push(MINUS);
    if (Math.abs(weight) !== 1) parts.push(`${significant(Math.abs(weight), digits)} × `);
    parts.push([names[k]]);
  });
  parts.push(` ${turned ? "≥" : "≤"} ${significant(sign * threshold, digits)}`);
  return parts;
}

// Put parts into an element; each name by itself, so that none turns the text around it.
function fillParts(element, parts) {
  element.replaceChildren(...parts.map((part) => {
    if (typeof part === "string") return document.createTextNode(part);
    const name = document.createElement("bdi");
    name.textContent = part[0];
    return name;
  }));
}

// The very same rule in Python; numbers of JavaScript read back as the same floats there.
function ruleCode(direction, threshold, names, confidence) {
  const tuple = (items) => `(${items.join(", ")}${items.length === 1 ? "," : ""})`;
  const limit = threshold === -Infinity ? 'float("-inf")' : pythonFloat(threshold);
  const text = (list) => tuple(list.map((name) => JSON.stringify(name)));
  const named = names ? `, score_names=${text(names)}` : "";
  const sure = confidence.length ? `, confidence=${text(confidence)}` : "";
  return `dm.Rule(direction=${tuple(direction.map(pythonFloat))}, threshold=${limit}${named}${sure})`;
}

function pythonFloat(value) {
  const text = String(value);
  return /[.e]/.test(text) ? text : `${text}.0`;
}

// A model from its decimals, as options of the command and as Python.
function modelTexts(mode, values) {
  const used = ASKED[mode].filter((key) => values[key]);
  return [
    used.map((key) => `${CONTROLS[key].option} ${values[key]}`).join(" "),
    `dm.${MODELS[mode]}(${used.map((key) => `${CONTROLS[key].argument}=${values[key]}`).join(", ")})`,
  ];
}

function valueText(name, value) { return CONTROLS[name].percent ? `${value.shifted(2)}\u00a0%` : String(value); }

// What was asked for, in words.
function askedText(mode, values, worst) {
  const share = (key) => valueText(key, values[key]);
  const whose = worst ? " of every set" : "";
  const fpr = values.fpr ? `, FPR ≤ ${share("fpr")}${whose}` : "";
  if (mode === "tprfpr") return `TPR ≥ ${share("tpr")}${fpr}`;
  if (mode === "risk") return `the most TPR with selective risk ≤ ${share("risk")}${fpr}`;
  if (mode === "pr") return `precision ≥ ${share("precision")}${whose}, recall ≥ ${share("recall")} at prior ${share("prior")}`;
  const ood = values.accept_ood ? `, accepting OOD ${values.accept_ood}, rejecting OOD ${values.reject_ood}, prior ${share("prior")}` : "";
  return `least cost: rejecting ID ${values.reject_id}${ood}`;
}

// A predicate that is TRUE for rows to accept; `template` has our own marks for the numbers.
function sqlText(template, direction, threshold) {
  if (threshold === -Infinity) return "FALSE";
  const pattern = direction.map((weight) => (weight === 0 ? "0" : "1")).join("");
  const number = (value) => {
    for (let digits = 1; digits < 18; digits++) {
      const text = value.toExponential(digits);
      if (Number(text) === value) return text.replace(/e([+-])(\d)$/, "e$10$2");
    }
    return String(value);
  };
  return direction.reduce(
    (text, weight, k) => text.replaceAll(template.weights[k], number(weight)),
    template.texts[pattern].replaceAll(template.threshold, number(threshold)));
}
