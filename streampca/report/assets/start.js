"use strict";
// Shared by all parts: elements, arrays stored in the page, number formats, theme, clipboard.
// Text from data is only set through textContent.

const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const facts = JSON.parse($("facts").textContent);
const points = facts.points;

function make(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "text") node.textContent = value;
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

function draw(tag, attributes = {}, text = null) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== null) node.textContent = text;
  return node;
}

function bytesOf(id) {
  const element = $(id), text = element.textContent;
  // The text is large and not needed again.
  element.remove();
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const raw = atob(text), bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

async function unzipped(id) {
  const stream = new Blob([bytesOf(id)]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

const unzippedText = async (id) => new TextDecoder().decode(await unzipped(id));

const count = (value) => value.toLocaleString("en-US");

function shown(value, span) {
  // As many decimals as the range needs.
  if (!Number.isFinite(value)) return "missing";
  const size = Math.max(Math.abs(span), 1e-300);
  if (size >= 1e6 || size < 1e-4) return value.toExponential(3).replace(/^-/, "\u2212");
  const text = value.toFixed(Math.min(8, Math.max(0, 4 - Math.ceil(Math.log10(size)))));
  return text.replace("-", Number(text) === 0 ? "" : "\u2212");
}

const DAY = 86400000;

// A date, with the time of day if the range is a few days or less.
function day(ms, span = Infinity) {
  if (!Number.isFinite(ms)) return "missing";
  const text = new Date(ms).toISOString().replace("T", " ");
  return text.slice(0, span > 4 * DAY ? 10 : span > DAY / 144 ? 16 : 19);
}

function ticks(low, high, wanted) {
  const raw = (high - low) / wanted;
  if (!(raw > 0)) return { at: [low], step: 1 };
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw * 0.999);
  const at = [];
  for (let i = Math.ceil(low / step - 1e-9); i <= high / step + 1e-9; i++) at.push(i * step);
  return { at, step };
}

function tickText(value, step) {
  if (Math.abs(value) < step * 1e-6) return "0";
  if (step >= 1e6 || step < 1e-5) return value.toExponential(1).replace("e+", "e").replace("-", "\u2212");
  const text = value.toFixed(Math.max(0, -Math.floor(Math.log10(step) + 1e-9)));
  return text.replace("-", "\u2212");
}

// Theme: that of the system, unless the button was used.
const root = document.documentElement;
const redrawn = [];
const darkSystem = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : darkSystem.matches);

function themeChanged() {
  const dark = isDark();
  $("theme").textContent = dark ? "Light" : "Dark";
  $("theme").setAttribute("aria-pressed", String(dark));
  for (const again of redrawn) again();
}

try {
  const kept = localStorage.getItem("streampca-theme");
  if (kept === "dark" || kept === "light") root.dataset.theme = kept;
} catch { /* Pages opened from disk may have no storage. */ }
$("theme").addEventListener("click", () => {
  root.dataset.theme = isDark() ? "light" : "dark";
  try { localStorage.setItem("streampca-theme", root.dataset.theme); } catch { /* as above */ }
  themeChanged();
});
darkSystem.addEventListener("change", themeChanged);

// Print on white, then restore the theme.
let beforePrint = null;
function forPrint(begins) {
  if (begins && beforePrint === null) {
    beforePrint = root.dataset.theme ?? "";
    root.dataset.theme = "light";
    for (const details of document.querySelectorAll("details")) details.open = true;
  } else if (!begins && beforePrint !== null) {
    if (beforePrint) root.dataset.theme = beforePrint;
    else delete root.dataset.theme;
    beforePrint = null;
  } else return;
  themeChanged();
}
addEventListener("beforeprint", () => forPrint(true));
addEventListener("afterprint", () => forPrint(false));
matchMedia("print").addEventListener("change", (event) => forPrint(event.matches));

async function copy(text, button) {
  let done = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Pages opened from disk may not use the clipboard API, but may copy a selection.
    const area = make("textarea", { class: "hidden-text" });
    area.value = text;
    document.body.append(area);
    area.select();
    done = document.execCommand("copy");
    area.remove();
    button.focus();
  }
  const before = button.textContent;
  button.textContent = done ? "Copied" : "Not copied";
  setTimeout(() => { button.textContent = before; }, 1200);
}

for (const button of document.querySelectorAll("[data-copy]")) {
  button.addEventListener("click", () => copy($(button.dataset.copy).innerText.trim(), button));
}

function save(blob, name) {
  const link = make("a", { download: name });
  link.href = URL.createObjectURL(blob);
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
