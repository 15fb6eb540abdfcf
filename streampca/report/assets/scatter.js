// The score plot: axes, colours, drawing, hover, zoom.

const MARGIN = { left: 60, right: 16, top: 14, bottom: 46 };
const STEPS = 65534, YEAR = 365.2425 * DAY;
// Minutes between ticks of an axis that spans a few days or less.
const MINUTES = [1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440];
// Radius of 95% of a normal distribution in the plane, in standard deviations.
const ELLIPSE = Math.sqrt(-2 * Math.log(0.05)), MOST_ELLIPSES = 300;
// Samples are numbered in drawing order, so that arrays are read sequentially; order[i] is the position of sample i in the
// file. Ids and columns are in the order of the file.
const plot = {
  ids: [], scores: null, columns: [], axes: [], x: 0, y: 1, colour: -1, ux: null, uy: null, cls: null, look: null,
  order: null, inverse: null, selected: null, nSelected: 0, matches: [], now: -1, view: null, width: 0, height: 0, deviations: null,
  mode: "lasso", milliseconds: 0,
};

async function readPoints() {
  const n = points.n;
  plot.order = shuffled(n);
  plot.inverse = new Uint32Array(n);
  plot.order.forEach((i, j) => { plot.inverse[i] = j; });
  plot.selected = new Uint8Array(n);
  plot.scores = new Uint16Array(bytesOf("data-scores").buffer);
  if (points.deviation) plot.deviations = bytesOf("data-deviations");
  plot.columns = await Promise.all(points.columns.map(async (about) => {
    const raw = await unzipped(about.id);
    const values = about.form === "u8" ? new Uint8Array(raw) : about.form === "u16" ? new Uint16Array(raw) : new Float64Array(raw);
    return { ...about, values };
  }));
  plot.ids = (await unzippedText("data-ids")).split("\n");
  plot.axes = points.components.map((c, i) => ({
    ...c, component: i, quantised: true, values: plot.scores.subarray(i * n, (i + 1) * n),
    label: facts.share[i] === undefined ? c.name : `${c.name} (${(100 * facts.share[i]).toFixed(facts.share[i] < 0.1 ? 2 : 1)}%)`,
  }));
  for (const c of plot.columns) {
    if (!c.kinds) plot.axes.push({ ...c, component: -1, quantised: c.form === "u16", label: c.name });
  }
  plot.axes.push({ name: "order of samples", label: "order of samples", component: -1, low: 1, high: Math.max(n, 2), values: null });
}

// The values of an axis, from 0 to 1; NaN where missing.
function unit(axis, limit = points.n) {
  const u = new Float32Array(limit), { values, low, high } = axis, { order } = plot, span = high - low || 1;
  if (!values) for (let i = 0; i < limit; i++) u[i] = order[i] / (points.n - 1 || 1);
  else if (!(high > low)) for (let i = 0; i < limit; i++) u[i] = Number.isNaN(values[order[i]]) || (axis.quantised && values[order[i]] > STEPS) ? NaN : 0.5;
  else if (axis.quantised) for (let i = 0; i < limit; i++) u[i] = values[order[i]] > STEPS ? NaN : values[order[i]] / STEPS;
  else for (let i = 0; i < limit; i++) u[i] = (values[order[i]] - low) / span;
  return u;
}

const valueAt = (axis, u) => axis.low + u * (axis.high - axis.low);
const axisText = (axis, value, span) => (axis.time ? day(value, span) : shown(value, span));

function setAxes(x, y) {
  plot.x = x;
  plot.y = y;
  plot.ux = unit(plot.axes[x]);
  plot.uy = unit(plot.axes[y]);
  $("axis-x").value = x;
  $("axis-y").value = y;
  resetView();
  for (const thumb of $("thumbs").children) {
    thumb.setAttribute("aria-pressed", String(Number(thumb.dataset.x) === x && Number(thumb.dataset.y) === y));
  }
  $("plot").setAttribute("aria-label", `Score plot, ${plot.axes[x].label} across, ${plot.axes[y].label} up`);
}

function resetView() {
  plot.view = { x0: -0.04, x1: 1.04, y0: -0.05, y1: 1.05 };
  plot.now = -1;
  refresh();
}

function setColour(index) {
  const n = points.n, column = plot.columns[index], { order } = plot;
  plot.colour = index;
  const cls = new Uint8Array(n);
  if (!column) cls.fill(1);
  else if (column.kinds) for (let i = 0; i < n; i++) cls[i] = Math.min(column.values[order[i]], LOOKS + 1);
  else {
    const quantised = column.form === "u16", span = column.high - column.low;
    for (let i = 0; i < n; i++) {
      const v = column.values[order[i]];
      cls[i] = quantised ? (v > STEPS ? 0 : 1 + Math.floor((v / STEPS) * 254)) : Number.isNaN(v) ? 0 : 1 + Math.floor(((v - column.low) / span) * 254);
    }
  }
  plot.cls = cls;
  plot.look = { r: new Uint8Array(256), g: new Uint8Array(256), b: new Uint8Array(256), shape: new Uint8Array(256), seen: new Uint8Array(256).fill(1) };
  paintLooks();
  showLegend();
  refresh();
}

function paintLooks() {
  const dark = isDark(), { look } = plot, column = plot.columns[plot.colour], grey = greyOf(dark);
  for (let c = 0; c < 256; c++) {
    let rgb = grey;
    if (!column) rgb = hex(COLOURS[0][dark ? 1 : 0]);
    else if (c > 0 && !column.kinds) rgb = rampColour((c - 1) / 254, dark);
    else if (c > 0 && c <= LOOKS) {
      // Each cycle through the colours has another shape and a lighter or darker shade.
      const round = Math.floor((c - 1) / COLOURS.length), [to, share] = SHADES[round];
      rgb = hex(COLOURS[(c - 1) % COLOURS.length][dark ? 1 : 0]).map((v) => Math.round(v + (to - v) * share));
      look.shape[c] = round;
    }
    [look.r[c], look.g[c], look.b[c]] = rgb;
  }
}

const colourOf = (c) => `rgb(${plot.look.r[c]}, ${plot.look.g[c]}, ${plot.look.b[c]})`;
// Smaller for more samples and on small screens.
const radius = (n) => Math.max(0.85, Math.min(4, 4.6 - 0.9 * Math.log10(Math.max(n, 5) / 5)) * Math.min(1, 0.55 + plot.width / 1400));
const idOf = (i) => plot.ids[plot.order[i]];
const isSeen = (i) => plot.look.seen[plot.cls[i]] === 1;

// Position of a sample in CSS pixels of the plot.
function scales() {
  const { view, width, height } = plot, w = width - MARGIN.left - MARGIN.right, h = height - MARGIN.top - MARGIN.bottom;
  const ax = w / (view.x1 - view.x0), ay = -h / (view.y1 - view.y0);
  return { ax, bx: MARGIN.left - ax * view.x0, ay, by: MARGIN.top + h - ay * view.y0, w, h };
}

function place(i) {
  const s = scales();
  return [s.ax * plot.ux[i] + s.bx, s.ay * plot.uy[i] + s.by];
}

let waiting = 0, settled = 0;
function refresh(moving = false) {
  clearTimeout(settled);
  // While the view moves, only a subset of many samples is drawn.
  const limit = moving ? Math.min(points.n, 120000) : points.n;
  if (moving && limit < points.n) settled = setTimeout(() => refresh(), 140);
  cancelAnimationFrame(waiting);
  waiting = requestAnimationFrame(() => drawPlot(limit));
}

const maskCache = new Map();
function cachedMasks(r, alpha, width) {
  const key = `${r.toFixed(2)} ${alpha} ${width}`;
  if (maskCache.size > 40) maskCache.clear();
  if (!maskCache.has(key)) maskCache.set(key, masksOf(r, alpha, width));
  return maskCache.get(key);
}

function background(element) {
  return getComputedStyle(element).backgroundColor.match(/[\d.]+/g).slice(0, 3).map(Number);
}

function paint(canvas, back, set, where, limit, r, scale, grid) {
  const context = canvas.getContext("2d"), image = context.createImageData(canvas.width, canvas.height);
  const pixels = new Uint32Array(image.data.buffer);
  const packed = ([red, green, blue]) => (255 << 24) | (blue << 16) | (green << 8) | red;
  pixels.fill(packed(back));
  const fine = packed(back.map((v) => (v > 127 ? v - 17 : v + 15)));
  for (const x of grid.x) for (let y = Math.round(where.top); y < where.bottom; y++) pixels[y * image.width + Math.round(x)] = fine;
  for (const y of grid.y) pixels.fill(fine, Math.round(y) * image.width + Math.round(where.left), Math.round(y) * image.width + Math.round(where.right));
  const masks = (size, alpha) => cachedMasks(size * scale, alpha, image.width);
  const halo = limit <= 4000 ? masks(r + 0.9, 0.85) : null;
  const alpha = limit <= 4000 ? 0.92 : limit <= 50000 ? 0.75 : 0.6;
  const stampAll = (...more) => rasterise(pixels, image.width, image.height, set, where, limit, ...more);
  if (set.nSelected) {
    stampAll(masks(r, 0.16), null, back, set.selected, 0);
    stampAll(masks(r * 1.15, Math.max(alpha, 0.8)), halo, back, set.selected, 1);
  } else stampAll(masks(r, alpha), halo, back, null, 1);
  context.putImageData(image, 0, 0);
}

function drawPlot(limit = points.n) {
  const box = $("plot"), canvas = $("canvas"), width = box.clientWidth;
  if (!width || !plot.ux || !plot.cls) return;
  const began = performance.now();
  if (beforePrint === null || !plot.width) {
    plot.width = width;
    plot.height = Math.round(Math.max(320, Math.min(620, width * 0.72)));
  }
  const scale = Math.min(devicePixelRatio || 1, 3) * (beforePrint === null ? 1 : 2);
  canvas.width = Math.round(plot.width * scale);
  canvas.height = Math.round(plot.height * scale);
  const s = scales(), marks = axisMarks(s);
  const where = {
    ax: s.ax * scale, bx: s.bx * scale, ay: s.ay * scale, by: s.by * scale, left: MARGIN.left * scale,
    right: (MARGIN.left + s.w) * scale, top: MARGIN.top * scale, bottom: (MARGIN.top + s.h) * scale,
  };
  const grid = { x: marks.x.map((m) => m.at * scale), y: marks.y.map((m) => m.at * scale) };
  paint(canvas, background(box), plot, where, limit, radius(points.n), scale, grid);
  drawOverlay(s, marks);
  plot.milliseconds = performance.now() - began;
}

function axisMarks(s) {
  const marksOf = (axis, low, high, wanted, toPixel) => {
    const a = valueAt(axis, low), b = valueAt(axis, high);
    if (axis.time && b - a < 4 * DAY) {
      // Midnight is labelled with the date, other ticks with the time.
      const step = 60000 * (MINUTES.find((m) => m * 60000 * Math.min(wanted, 6) >= b - a) ?? 1440), found = [];
      for (let v = Math.ceil(a / step) * step; v <= b; v += step) found.push(v);
      return found.map((v) => ({ at: toPixel((v - axis.low) / (axis.high - axis.low)), text: v % DAY ? day(v, DAY).slice(11) : day(v) }));
    }
    if (axis.time) {
      const years = b - a > 4 * YEAR;
      // Years start in January, days at midnight.
      const found = years
        ? ticks(1970 + a / YEAR, 1970 + b / YEAR, wanted).at.map((y) => Date.UTC(Math.round(y), 0, 1))
        : ticks(a / DAY, b / DAY, Math.min(wanted, 6)).at.map((d) => Math.round(d) * DAY);
      return [...new Set(found)].filter((v) => v >= a && v <= b)
        .map((v) => ({ at: toPixel((v - axis.low) / (axis.high - axis.low)), text: years ? day(v).slice(0, 4) : day(v) }));
    }
    const { at, step } = ticks(a, b, wanted), span = axis.high - axis.low;
    return at.map((v) => ({ at: toPixel(span ? (v - axis.low) / span : 0.5), text: tickText(v, step) }));
  };
  const { view } = plot;
  return {
    x: marksOf(plot.axes[plot.x], view.x0, view.x1, Math.max(4, s.w / 90), (u) => s.ax * u + s.bx),
    y: marksOf(plot.axes[plot.y], view.y0, view.y1, Math.max(4, s.h / 70), (u) => s.ay * u + s.by),
  };
}

// All axis texts, for the page and for the saved picture.
function axisTexts(s, marks) {
  const base = MARGIN.top + s.h, texts = [];
  for (const m of marks.x) texts.push({ text: m.text, x: m.at, y: base + 17, kind: "middle" });
  for (const m of marks.y) texts.push({ text: m.text, x: MARGIN.left - 8, y: m.at + 4, kind: "end" });
  texts.push({ text: plot.axes[plot.x].label, x: MARGIN.left + s.w / 2, y: base + 37, kind: "axis-name" });
  texts.push({ text: plot.axes[plot.y].label, x: 15, y: MARGIN.top + s.h / 2, kind: "axis-name", turned: true });
  return texts;
}

function drawOverlay(s = scales(), marks = axisMarks(s)) {
  const svg = $("overlay"), parts = [];
  svg.setAttribute("viewBox", `0 0 ${plot.width} ${plot.height}`);
  for (const t of axisTexts(s, marks)) {
    const attributes = { class: t.kind };
    if (t.turned) attributes.transform = `translate(${t.x} ${t.y}) rotate(-90)`;
    else Object.assign(attributes, { x: t.x.toFixed(1), y: t.y.toFixed(1) });
    parts.push(draw("text", attributes, t.text));
  }
  const clip = draw("clipPath", { id: "inner" });
  clip.append(draw("rect", { x: MARGIN.left, y: MARGIN.top, width: s.w, height: s.h }));
  const inner = draw("g", { "clip-path": "url(#inner)" });
  const near = ([x, y]) => x > MARGIN.left - 9 && x < MARGIN.left + s.w + 9 && y > MARGIN.top - 9 && y < MARGIN.top + s.h + 9;
  const r = radius(points.n) + 3;
  if ($("ellipses").checked) for (const i of leastCertain()) inner.append(ellipse(i, s, "ellipse", colourOf(plot.cls[i])));
  for (const i of plot.matches.slice(0, 300)) {
    const at = place(i);
    if (isSeen(i) && near(at)) inner.append(draw("circle", { class: "match", cx: at[0].toFixed(1), cy: at[1].toFixed(1), r }));
  }
  if (plot.now >= 0) {
    const [x, y] = place(plot.now);
    const own = ellipse(plot.now, s, "ellipse now", null);
    if (own) inner.append(own);
    inner.append(draw("circle", { class: "ring", cx: x.toFixed(1), cy: y.toFixed(1), r }));
  }
  svg.replaceChildren(clip, ...parts, inner);
}

function deviation(i, axis) {
  const { least, ratio } = points.deviation;
  return least * ratio ** plot.deviations[plot.axes[axis].component * points.n + plot.order[i]];
}

const bothComponents = () => plot.deviations && plot.axes[plot.x].component >= 0 && plot.axes[plot.y].component >= 0;

function ellipse(i, s, kind, stroke) {
  if (!bothComponents()) return null;
  const across = plot.axes[plot.x], up = plot.axes[plot.y], [cx, cy] = place(i);
  const attributes = {
    class: kind, cx: cx.toFixed(1), cy: cy.toFixed(1),
    rx: ((ELLIPSE * deviation(i, plot.x) * s.ax) / (across.high - across.low || 1)).toFixed(1),
    ry: ((-ELLIPSE * deviation(i, plot.y) * s.ay) / (up.high - up.low || 1)).toFixed(1),
  };
  if (stroke) attributes.style = `stroke: ${stroke}`;
  return draw("ellipse", attributes);
}

const certainty = { key: "", list: [] };
// Samples whose deviations are well above the median, the least certain first.
function leastCertain() {
  if (!bothComponents()) return [];
  const key = `${plot.x} ${plot.y} ${plot.colour} ${plot.look.seen.join("")}`;
  if (certainty.key === key) return certainty.list;
  const n = points.n, parts = [plot.x, plot.y].map((axis) => {
    const from = plot.axes[axis].component * n, codes = plot.deviations.subarray(from, from + n);
    const counts = new Uint32Array(256);
    for (const code of codes) counts[code]++;
    let half = 0, middle = 0;
    while ((half += counts[middle]) * 2 < n) middle++;
    return { codes, middle };
  });
  const [a, b] = parts.map(({ middle }) => Float64Array.from({ length: 256 }, (_, c) => points.deviation.ratio ** (2 * (c - middle))));
  const found = [];
  for (let i = 0; i < n; i++) {
    const from = plot.order[i], size = (a[parts[0].codes[from]] + b[parts[1].codes[from]]) / 2;
    if (size > 1.5 ** 2 && isSeen(i)) found.push([size, i]);
  }
  found.sort((a, b) => b[0] - a[0] || a[1] - b[1]);
  certainty.key = key;
  certainty.list = found.slice(0, MOST_ELLIPSES).map(([, i]) => i);
  const many = found.length > MOST_ELLIPSES ? `the ${MOST_ELLIPSES} least certain of ${count(found.length)}` : count(found.length);
  $("ellipse-note").textContent = found.length
    ? `Ellipses contain 95% of the posterior of ${many} samples whose scores are much less certain than most.`
    : "No scores are much less certain than the others; hover over a sample to see its ellipse.";
  return certainty.list;
}

function nearest(x, y, within) {
  const s = scales(), { ux, uy, cls } = plot, seen = plot.look.seen;
  let best = within * within, found = -1;
  for (let i = 0; i < ux.length; i++) {
    const dx = s.ax * ux[i] + s.bx - x, dy = s.ay * uy[i] + s.by - y, d = dx * dx + dy * dy;
    if (d < best && seen[cls[i]]) { best = d; found = i; }
  }
  return found;
}

function columnText(column, i) {
  const v = column.values[plot.order[i]];
  if (column.kinds) return v === 0 ? "missing" : column.kinds[v - 1];
  const value = column.form !== "u16" ? v : v > STEPS ? NaN : valueAt(column, v / STEPS);
  return axisText(column, value, column.high - column.low);
}

function pointAt(i, aloud = false) {
  if (i === plot.now && !aloud) return;
  plot.now = i;
  drawOverlay();
  const tip = $("tip");
  tip.hidden = i < 0;
  if (i < 0) return;
  const rows = [];
  for (const [index, u] of [[plot.x, plot.ux], [plot.y, plot.uy]]) {
    const axis = plot.axes[index], text = axisText(axis, valueAt(axis, u[i]), axis.high - axis.low);
    rows.push([axis.name, bothComponents() ? `${text} \u00b1 ${shown(deviation(i, index), axis.high - axis.low)}` : text]);
  }
  const columns = plot.columns.filter((_, c) => c === plot.colour || plot.columns.length <= 8).slice(0, 8);
  for (const column of columns) rows.push([column.name, columnText(column, i)]);
  tip.replaceChildren(make("b", { text: idOf(i) }), ...rows.map(([name, text]) => make("span", {}, name, make("i", { text }))));
  const [x, y] = place(i), w = tip.offsetWidth, h = tip.offsetHeight;
  const left = x + 14 + w < plot.width - 6 ? x + 14 : Math.max(6, x - 14 - w);
  tip.style.transform = `translate(${Math.round(left)}px, ${Math.round(Math.min(Math.max(6, y - h / 2), plot.height - h - 6))}px)`;
  if (aloud) $("live").textContent = `${idOf(i)}: ${rows.map(([name, text]) => `${name} ${text}`).join(", ")}`;
}

function zoom(factor, x = plot.width / 2, y = plot.height / 2) {
  const s = scales(), u = (x - s.bx) / s.ax, v = (y - s.by) / s.ay, { view } = plot;
  const span = (view.x1 - view.x0) / factor;
  if (span > 4 || span < 1e-4) return;
  plot.view = {
    x0: u - (u - view.x0) / factor, x1: u + (view.x1 - u) / factor,
    y0: v - (v - view.y0) / factor, y1: v + (view.y1 - v) / factor,
  };
  refresh(true);
}
