// What can be taken away: the rule, texts, tables and pictures.

function download(name, type, content) {
  const blob = content instanceof Blob ? content : new Blob([content], { type });
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// The file that demur tune -o writes: the rule, a card that says where it comes from, and what
// makes its scores if they are learned.
function ruleFile(data, direction, threshold, model, point) {
  const rule = {
    format: data.file.format, version: data.file.version,
    direction, threshold: threshold === -Infinity ? "-inf" : threshold, tau: 1,
    score_names: data.named ? data.scores : null, confidence: data.confidence,
  };
  const created = `${new Date().toISOString().slice(0, 19)}Z`;
  if (data.card) rule.card = { ...data.card, created, model: model ?? data.card.model, points: { tuned: point } };
  return `${JSON.stringify(data.learned ? { ...data.learned, rule } : rule, null, 2)}\n`;
}

function csvOf(table) {
  const quoted = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const rows = [...table.rows].filter((row) => !row.hidden);
  return rows.map((row) => [...row.cells].filter((cell) => !cell.hidden).map((cell) => quoted(
    cell.dataset.value ?? [...cell.childNodes].map(textOf).join("").trim().replace(/\s+/g, " "))).join(",")).join("\r\n") + "\r\n";
}

// A value and its interval stand in elements of their own.
function textOf(node) {
  const apart = node.classList?.contains("interval");
  return node.classList?.contains("hidden") ? "" : `${apart ? " " : ""}${node.textContent}`;
}

const DRAWN = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "stroke-linecap", "stroke-linejoin", "font-size", "font-family", "font-weight", "opacity"];

// A picture that stands by itself: colours as they are computed here, on the ground of the page.
function standalone(svg) {
  const copy = svg.cloneNode(true);
  const [ours, theirs] = [svg, copy].map((root) => [root, ...root.querySelectorAll("*")]);
  ours.forEach((node, k) => {
    const style = getComputedStyle(node);
    for (const name of DRAWN) theirs[k].setAttribute(name, style.getPropertyValue(name));
    theirs[k].removeAttribute("class");
    theirs[k].removeAttribute("tabindex");
  });
  const hatch = document.querySelector("svg.patterns defs").cloneNode(true);
  const [from, to] = [document.querySelector("svg.patterns defs"), hatch].map((root) => [...root.querySelectorAll("*")]);
  from.forEach((node, k) => {
    for (const name of DRAWN) to[k].setAttribute(name, getComputedStyle(node).getPropertyValue(name));
    to[k].removeAttribute("class");
  });
  const { width, height } = svg.viewBox.baseVal;
  const ground = document.createElementNS(SVG, "rect");
  for (const [key, value] of Object.entries({ width, height, fill: getComputedStyle(document.documentElement).getPropertyValue("--card").trim() })) ground.setAttribute(key, value);
  copy.prepend(hatch, ground);
  copy.setAttribute("xmlns", SVG);
  copy.setAttribute("width", width);
  copy.setAttribute("height", height);
  return { text: new XMLSerializer().serializeToString(copy), width, height };
}

async function downloadPicture(svg, name, kind) {
  const { text, width, height } = standalone(svg);
  if (kind === "svg") { download(`${name}.svg`, "image/svg+xml", text); return; }
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [3 * width, 3 * height];
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  const blob = await new Promise((done) => { canvas.toBlob(done, "image/png"); });
  download(`${name}.png`, "image/png", blob);
}

async function copyText(button, text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  const label = button.textContent;
  button.textContent = "Copied";
  byId("copied").textContent = "Copied to the clipboard.";
  setTimeout(() => { button.textContent = label; byId("copied").textContent = ""; }, 1500);
}
