// Interaction with the score plot: legend, selection, search, mouse, touch, keyboard.

const MOST_LISTED = 1000;

function swatch(c) {
  const svg = draw("svg", { viewBox: "-9 -9 18 18", width: 18, height: 18, "aria-hidden": "true" });
  const shape = SHAPES[plot.look.shape[c]], fill = colourOf(c);
  const points = { triangle: "0,-5.5 5.4,4.2 -5.4,4.2", square: "-4.6,-4.6 4.6,-4.6 4.6,4.6 -4.6,4.6", diamond: "0,-6.4 6.4,0 0,6.4 -6.4,0" };
  svg.append(shape === "circle" ? draw("circle", { r: 5.2, fill }) : draw("polygon", { points: points[shape], fill }));
  return svg;
}

// Legend entries: [style, name, number of samples].
function legendEntries(column) {
  const entries = column.kinds.slice(0, LOOKS).map((name, i) => [i + 1, name, column.counts[i + 1]]);
  const others = column.counts.slice(LOOKS + 1).reduce((sum, c) => sum + c, 0);
  if (others) entries.push([LOOKS + 1, `${column.kinds.length - LOOKS} others`, others]);
  if (column.counts[0]) entries.push([0, "missing", column.counts[0]]);
  return entries;
}

function showLegend() {
  const column = plot.columns[plot.colour], legend = $("legend");
  $("legend-box").hidden = !column;
  $("legend-tools").hidden = !(column && column.kinds);
  if (!column) return legend.replaceChildren();
  $("legend-title").textContent = column.name;
  if (!column.kinds) {
    const ramp = make("div", { class: "ramp" }), stops = RAMP.map((_, i) => `rgb(${rampColour(i / (RAMP.length - 1), isDark())})`);
    ramp.style.background = `linear-gradient(to right, ${stops.join(", ")})`;
    const ends = [column.low, column.high].map((v) => make("span", { text: axisText(column, v, column.high - column.low) }));
    return legend.replaceChildren(ramp, make("div", { class: "ramp-ends" }, ...ends));
  }
  legend.replaceChildren(...legendEntries(column).map(([c, name, samples]) => {
    const button = make("button", { type: "button", class: "legend-entry", "aria-pressed": String(plot.look.seen[c] === 1), "data-look": c, title: "Show or hide; Shift shows these alone" });
    button.append(swatch(c), make("span", { text: name }), make("small", { text: count(samples) }));
    button.addEventListener("click", (event) => {
      if (event.shiftKey) plot.look.seen.fill(0)[c] = 1;
      else plot.look.seen[c] ^= 1;
      filterChanged();
    });
    return button;
  }));
}

function filterChanged() {
  let shownNow = 0;
  for (let i = 0; i < points.n; i++) shownNow += plot.look.seen[plot.cls[i]];
  for (const entry of $("legend").children) entry.setAttribute("aria-pressed", String(plot.look.seen[entry.dataset.look] === 1));
  $("live").textContent = `${count(shownNow)} of ${count(points.n)} samples are shown`;
  if (plot.now >= 0 && !isSeen(plot.now)) pointAt(-1);
  refresh();
}

function select(indices, add) {
  if (!add) plot.selected.fill(0);
  for (const i of indices) plot.selected[i] = 1;
  selectionChanged();
}

function selectedIds(most = Infinity) {
  // In the order of the file.
  const ids = [];
  for (let i = 0; i < points.n && ids.length < most; i++) if (plot.selected[plot.inverse[i]]) ids.push(plot.ids[i]);
  return ids;
}

function selectionChanged() {
  plot.nSelected = plot.selected.reduce((sum, one) => sum + one, 0);
  const n = plot.nSelected, list = $("selection");
  $("selection-note").textContent = n
    ? `${count(n)} of ${count(points.n)} samples${n > MOST_LISTED ? `, of which the first ${count(MOST_LISTED)} are listed` : ""}`
    : "No samples are selected.";
  list.hidden = !n;
  list.replaceChildren(...selectedIds(MOST_LISTED).map((text) => make("li", { text })));
  list.scrollTop = 0;
  for (const id of ["copy-selection", "save-selection", "clear-selection"]) $(id).disabled = !n;
  const column = plot.columns[plot.colour], kinds = $("selection-kinds");
  kinds.textContent = "";
  if (n && column && column.kinds) {
    const counts = new Map();
    for (let i = 0; i < points.n; i++) {
      if (!plot.selected[i]) continue;
      const v = column.values[plot.order[i]];
      counts.set(v, (counts.get(v) || 0) + 1);
    }
    const most = [...counts].sort((a, b) => b[1] - a[1]).slice(0, 8);
    kinds.textContent = most.map(([v, c]) => `${v === 0 ? "missing" : column.kinds[v - 1]} ${count(c)}`).join(", ") + (counts.size > 8 ? ", ..." : "");
  }
  refresh();
}

function insideLasso(path) {
  // Paint the polygon, and look up the pixel of each sample.
  const mask = make("canvas", { width: plot.width, height: plot.height }), context = mask.getContext("2d", { willReadFrequently: true });
  context.beginPath();
  for (const [x, y] of path) context.lineTo(x, y);
  context.fill("evenodd");
  const pixels = context.getImageData(0, 0, plot.width, plot.height).data, s = scales(), found = [];
  for (let i = 0; i < points.n; i++) {
    const x = Math.floor(s.ax * plot.ux[i] + s.bx), y = Math.floor(s.ay * plot.uy[i] + s.by);
    if (x >= MARGIN.left && y >= 0 && x < plot.width && y < plot.height - MARGIN.bottom && pixels[(y * plot.width + x) * 4 + 3] > 127 && isSeen(i)) found.push(i);
  }
  return found;
}

function setMode(mode) {
  plot.mode = mode;
  $("plot").dataset.mode = mode;
  for (const button of document.querySelectorAll("[data-mode]")) {
    if (button.tagName === "BUTTON") button.setAttribute("aria-pressed", String(button.dataset.mode === mode));
  }
}

function listenToPointer(box) {
  let drag = null, hover = 0;
  const at = (event) => { const r = box.getBoundingClientRect(); return [event.clientX - r.left - box.clientLeft, event.clientY - r.top - box.clientTop]; };
  box.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    drag = { start: at(event), path: [at(event)], view: plot.view, moved: false, add: event.shiftKey };
    if (plot.mode !== "look") box.setPointerCapture(event.pointerId);
  });
  box.addEventListener("pointermove", (event) => {
    const [x, y] = at(event);
    if (drag && plot.mode !== "look") {
      drag.moved ||= Math.hypot(x - drag.start[0], y - drag.start[1]) > 4;
      if (!drag.moved) return;
      pointAt(-1);
      if (plot.mode === "pan") {
        const s = scales(), dx = (x - drag.start[0]) / s.ax, dy = (y - drag.start[1]) / s.ay, v = drag.view;
        plot.view = { x0: v.x0 - dx, x1: v.x1 - dx, y0: v.y0 - dy, y1: v.y1 - dy };
        return refresh(true);
      }
      drag.path.push([x, y]);
      $("overlay").querySelector(".lasso")?.remove();
      $("overlay").append(draw("polygon", { class: "lasso", points: drag.path.map((p) => p.map((v) => v.toFixed(1)).join()).join(" ") }));
      return;
    }
    cancelAnimationFrame(hover);
    hover = requestAnimationFrame(() => pointAt(nearest(x, y, 14)));
  });
  const finished = (event) => {
    if (!drag) return;
    const { moved, path, add } = drag, [x, y] = at(event);
    drag = null;
    $("overlay").querySelector(".lasso")?.remove();
    if (moved) { if (plot.mode === "lasso") select(insideLasso(path), add); return; }
    const i = nearest(x, y, 14);
    pointAt(i);
    if (i < 0) { if (!add) select([], false); return; }
    if (add && plot.selected[i]) { plot.selected[i] = 0; selectionChanged(); } else select([i], add);
  };
  box.addEventListener("pointerup", finished);
  box.addEventListener("pointercancel", () => { drag = null; $("overlay").querySelector(".lasso")?.remove(); });
  box.addEventListener("pointerleave", () => { cancelAnimationFrame(hover); if (!drag) pointAt(-1); });
  // Without a modifier key, the wheel scrolls the page.
  box.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(Math.exp(-event.deltaY * (Math.abs(event.deltaY) > 40 ? 0.002 : 0.01)), ...at(event));
  }, { passive: false });
}

function step(direction) {
  // The nearest sample in this direction.
  const [dx, dy] = direction, from = plot.now >= 0 ? place(plot.now) : [plot.width / 2, plot.height / 2];
  if (plot.now < 0) return pointAt(nearest(...from, Infinity), true);
  const s = scales();
  let best = Infinity, found = -1;
  for (let i = 0; i < points.n; i++) {
    const x = s.ax * plot.ux[i] + s.bx - from[0], y = s.ay * plot.uy[i] + s.by - from[1];
    const along = x * dx + y * dy, aside = Math.abs(x * dy) + Math.abs(y * dx);
    if (along > 0.01 && aside <= along && along + 2 * aside < best && i !== plot.now && isSeen(i)) { best = along + 2 * aside; found = i; }
  }
  if (found >= 0) pointAt(found, true);
}

function listenToKeys(box) {
  const arrows = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  box.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (arrows[event.key]) step(arrows[event.key]);
    else if ((event.key === "Enter" || event.key === " ") && plot.now >= 0) {
      if (event.shiftKey && plot.selected[plot.now]) { plot.selected[plot.now] = 0; selectionChanged(); } else select([plot.now], event.shiftKey);
    } else if (event.key === "Escape") { pointAt(-1); select([], false); }
    else if (event.key === "+" || event.key === "=") zoom(1.4, ...(plot.now >= 0 ? place(plot.now) : []));
    else if (event.key === "-") zoom(1 / 1.4);
    else if (event.key === "0") resetView();
    else return;
    event.preventDefault();
  });
  box.addEventListener("blur", () => pointAt(-1));
}

let lower = null;
function find(text) {
  const wanted = text.trim().toLowerCase();
  plot.matches = [];
  if (wanted) {
    lower ??= plot.ids.map((id) => id.toLowerCase());
    for (let i = 0; i < lower.length; i++) if (lower[i].includes(wanted)) plot.matches.push(plot.inverse[i]);
  }
  const n = plot.matches.length;
  $("search-note").textContent = !wanted ? "" : n ? `${count(n)} matches${n > 300 ? ", the first 300 are marked" : ""}; Enter selects` : "No match";
  drawOverlay();
}

function showThumbs() {
  const k = points.components.length, box = $("thumbs"), pairs = [];
  for (let i = 0; i + 1 < k && pairs.length < 6; i += 2) pairs.push([i, i + 1]);
  box.hidden = pairs.length < 2;
  if (box.hidden) return;
  const limit = Math.min(points.n, 20000);
  box.replaceChildren(...pairs.map(([x, y]) => {
    const canvas = make("canvas", { width: 240, height: 180, "aria-hidden": "true" });
    const set = { ...plot, ux: unit(plot.axes[x], limit), uy: unit(plot.axes[y], limit), nSelected: 0 };
    const where = { ax: 212, bx: 14, ay: -156, by: 168, left: 0, right: 240, top: 0, bottom: 180 };
    paint(canvas, background($("plot")), set, where, limit, Math.max(0.7, radius(points.n) * 0.42), 2, { x: [], y: [] });
    const button = make("button", { type: "button", "data-x": x, "data-y": y, "aria-pressed": String(plot.x === x && plot.y === y) }, canvas, `${plot.axes[x].name} \u00b7 ${plot.axes[y].name}`);
    button.addEventListener("click", () => setAxes(x, y));
    return button;
  }));
}

function savePicture() {
  const scale = 2, column = plot.columns[plot.colour], entries = column && column.kinds ? legendEntries(column).filter(([c]) => plot.look.seen[c]) : [];
  const canvas = make("canvas"), context = canvas.getContext("2d"), source = $("canvas"), s = scales();
  const rows = Math.floor((plot.height - 2 * MARGIN.top) / 20), columns = Math.ceil(entries.length / rows);
  canvas.width = (plot.width + columns * 140) * scale;
  canvas.height = plot.height * scale;
  context.fillStyle = `rgb(${background($("plot"))})`;
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(source, 0, 0, plot.width * scale, plot.height * scale);
  context.scale(scale, scale);
  const family = getComputedStyle(document.body).fontFamily, ink = getComputedStyle(document.body).color;
  context.fillStyle = ink;
  for (const t of axisTexts(s, axisMarks(s))) {
    context.save();
    context.font = `${t.kind === "axis-name" ? 12.5 : 11.5}px ${family}`;
    context.textAlign = t.kind === "end" ? "right" : "center";
    context.translate(t.x, t.y);
    if (t.turned) context.rotate(-Math.PI / 2);
    context.fillText(t.text, 0, 0);
    context.restore();
  }
  context.font = `12px ${family}`;
  entries.forEach(([c, name], i) => {
    const x = plot.width + 10 + Math.floor(i / rows) * 140, y = MARGIN.top + 12 + (i % rows) * 20;
    const size = 30, middle = 15, tile = new ImageData(size, size), pixels = new Uint32Array(tile.data.buffer);
    const [red, green, blue] = background($("plot")), { r, g, b, shape } = plot.look;
    pixels.fill((255 << 24) | (blue << 16) | (green << 8) | red);
    stamp(pixels, cachedMasks(4.6 * scale, 1, size).shapes[shape[c]][0], middle * size + middle, r[c] | (b[c] << 16), g[c] << 8);
    context.putImageData(tile, x * scale - middle, y * scale - middle);
    context.fillText(name.length > 16 ? `${name.slice(0, 15)}\u2026` : name, x + 12, y + 4);
  });
  canvas.toBlob((blob) => save(blob, `scores-${plot.axes[plot.x].name}-${plot.axes[plot.y].name}.png`.replaceAll(" ", "-")));
}

async function startScores() {
  await readPoints();
  const box = $("plot");
  for (const id of ["axis-x", "axis-y"]) $(id).append(...plot.axes.map((axis, i) => make("option", { value: i, text: axis.label })));
  $("colour").append(make("option", { value: -1, text: "one colour" }), ...plot.columns.map((c, i) => make("option", { value: i, text: c.name })));
  const first = plot.columns.findIndex((c) => c.name === points.colour);
  $("colour").value = first;
  setColour(first);
  const one = points.components.length === 1;
  setAxes(one ? plot.axes.length - 1 : 0, one ? 0 : 1);
  showThumbs();
  $("axis-x").addEventListener("change", (event) => setAxes(Number(event.target.value), plot.y));
  $("axis-y").addEventListener("change", (event) => setAxes(plot.x, Number(event.target.value)));
  $("colour").addEventListener("change", (event) => { setColour(Number(event.target.value)); showThumbs(); selectionChanged(); });
  $("ellipses-control").hidden = !plot.deviations;
  $("ellipses").addEventListener("change", () => drawOverlay());
  for (const button of document.querySelectorAll("button[data-mode]")) button.addEventListener("click", () => setMode(button.dataset.mode));
  setMode(matchMedia("(pointer: coarse)").matches ? "look" : "lasso");
  $("zoom-in").addEventListener("click", () => zoom(1.5));
  $("zoom-out").addEventListener("click", () => zoom(1 / 1.5));
  $("zoom-reset").addEventListener("click", resetView);
  $("save-picture").addEventListener("click", savePicture);
  for (const [id, value] of [["legend-all", 1], ["legend-none", 0]]) $(id).addEventListener("click", () => { plot.look.seen.fill(value); filterChanged(); });
  $("copy-selection").addEventListener("click", (event) => copy(selectedIds().join("\n"), event.target));
  $("save-selection").addEventListener("click", () => save(new Blob([selectedIds().join("\n"), "\n"], { type: "text/plain" }), "selection.txt"));
  $("clear-selection").addEventListener("click", () => select([], false));
  let typing = 0;
  $("search").addEventListener("input", (event) => { clearTimeout(typing); typing = setTimeout(() => find(event.target.value), 120); });
  $("search").addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    clearTimeout(typing);
    find(event.target.value);
    if (plot.matches.length) select(plot.matches, event.shiftKey);
  });
  listenToPointer(box);
  listenToKeys(box);
  redrawn.push(() => { paintLooks(); showLegend(); cancelAnimationFrame(waiting); drawPlot(); showThumbs(); });
  new ResizeObserver(() => { if (beforePrint === null && box.clientWidth !== plot.width) drawPlot(); }).observe(box);
  drawPlot();
  box.dataset.ready = "";
}
