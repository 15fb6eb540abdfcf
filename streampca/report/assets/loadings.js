// Loadings of one component: along the genome, along a coordinate, or as bars. Then: begin.

async function startLoadings() {
  const data = JSON.parse(await unzippedText("data-loadings")), box = $("loading-plot"), chooser = $("loading-component");
  const drawings = { genome: drawGenome, line: drawLine, bars: drawBars };
  const tip = make("div", { id: "loading-note", class: "quiet", "aria-live": "polite" });
  box.after(tip);
  const show = () => {
    const width = box.clientWidth;
    if (!width) return;
    const component = Number(chooser.value), [where, values] = data.picks[component];
    box.replaceChildren(drawings[data.form](data, where, values, width, (text) => { tip.textContent = text; }));
    for (const table of document.querySelectorAll(".top")) table.hidden = Number(table.dataset.component) !== component;
  };
  let drawnWidth = 0;
  chooser.addEventListener("change", () => { tip.textContent = "\u00a0"; show(); });
  new ResizeObserver(() => {
    if (beforePrint === null && box.clientWidth !== drawnWidth) { drawnWidth = box.clientWidth; show(); }
  }).observe(box);
  tip.textContent = "\u00a0";
  show();
  box.dataset.ready = "";
}

const signed = (value) => `${value < 0 ? "\u2212" : "+"}${Math.abs(value).toFixed(2)}`;

function frame(width, height, label) {
  return draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
}

function levels(svg, box, low, high, y) {
  const { at, step: size } = ticks(low, high, 4);
  for (const v of at) {
    svg.append(draw("line", { x1: box.left, x2: box.right, y1: y(v), y2: y(v), class: v === 0 ? "zero" : "grid" }));
    svg.append(draw("text", { x: box.left - 7, y: y(v) + 4, class: "end" }, tickText(v, size)));
  }
}

function drawGenome(data, where, values, width, say) {
  const height = 300, box = { left: 46, right: width - 12, top: 12, bottom: height - 40 };
  const top = Math.max(...values.map(Math.abs)) * 1.06 || 1;
  const x = (u) => box.left + u * (box.right - box.left), y = (v) => box.bottom - (v / top) * (box.bottom - box.top);
  const svg = frame(width, height, "Largest loadings along the genome");
  levels(svg, box, 0, top, y);
  let last = -Infinity;
  data.chromosomes.forEach(([name, from, to]) => {
    const middle = x((from + to) / 2), room = 8 + 7 * name.length;
    if (middle - last < room) return;
    last = middle;
    svg.append(draw("text", { x: middle.toFixed(1), y: box.bottom + 16, class: "middle" }, name));
  });
  svg.append(draw("text", { x: (box.left + box.right) / 2, y: height - 6, class: "axis-name" }, "chromosome"));
  svg.append(draw("text", { transform: `translate(12 ${(box.top + box.bottom) / 2}) rotate(-90)`, class: "axis-name" }, "|loading|"));
  const odd = (u) => data.chromosomes.findIndex(([, , to]) => u <= to + 1e-5) % 2 === 0;
  const places = where.map((w, i) => [x(data.x[w]), y(Math.abs(values[i]))]);
  const dots = places.map(([cx, cy], i) => draw("circle", { cx: cx.toFixed(1), cy: cy.toFixed(1), r: 2.1, class: odd(data.x[where[i]]) ? "odd" : "even" }));
  svg.append(...dots);
  let now = -1;
  svg.addEventListener("pointermove", (event) => {
    const r = svg.getBoundingClientRect(), px = ((event.clientX - r.left) * width) / r.width, py = ((event.clientY - r.top) * height) / r.height;
    let best = 14 * 14, found = -1;
    places.forEach(([cx, cy], i) => { const d = (cx - px) ** 2 + (cy - py) ** 2; if (d < best) { best = d; found = i; } });
    if (found === now) return;
    if (now >= 0) { dots[now].classList.remove("now"); dots[now].setAttribute("r", 2.1); }
    now = found;
    if (now < 0) return say("\u00a0");
    dots[now].classList.add("now");
    dots[now].setAttribute("r", 4);
    svg.append(dots[now]);
    say(`${data.labels[where[now]]}  ${signed(values[now])}`);
  });
  return svg;
}

function drawLine(data, where, values, width, say) {
  const height = 280, box = { left: 46, right: width - 12, top: 12, bottom: height - 40 };
  const low = Math.min(0, ...values) * 1.06, high = Math.max(0, ...values) * 1.06 || 1;
  const x = (u) => box.left + u * (box.right - box.left), y = (v) => box.bottom - ((v - low) / (high - low)) * (box.bottom - box.top);
  const svg = frame(width, height, "Loadings along the features");
  levels(svg, box, low, high, y);
  const [from, to] = data.span, marks = ticks(from, to, Math.max(2, width / 110));
  for (const v of marks.at) svg.append(draw("text", { x: x((v - from) / (to - from)).toFixed(1), y: box.bottom + 16, class: "middle" }, tickText(v, marks.step)));
  svg.append(draw("text", { x: (box.left + box.right) / 2, y: height - 6, class: "axis-name" }, data.axis));
  svg.append(draw("text", { transform: `translate(12 ${(box.top + box.bottom) / 2}) rotate(-90)`, class: "axis-name" }, "loading"));
  const order = where.map((_, i) => i).sort((a, b) => data.x[where[a]] - data.x[where[b]]);
  svg.append(draw("polyline", { class: "line", points: order.map((i) => `${x(data.x[where[i]]).toFixed(1)},${y(values[i]).toFixed(1)}`).join(" ") }));
  const dot = draw("circle", { r: 3.5, class: "now", visibility: "hidden" });
  svg.append(dot);
  svg.addEventListener("pointermove", (event) => {
    const r = svg.getBoundingClientRect(), px = ((event.clientX - r.left) * width) / r.width;
    const i = order.reduce((best, j) => (Math.abs(x(data.x[where[j]]) - px) < Math.abs(x(data.x[where[best]]) - px) ? j : best), order[0]);
    dot.setAttribute("cx", x(data.x[where[i]]));
    dot.setAttribute("cy", y(values[i]));
    dot.setAttribute("visibility", "visible");
    say(`${data.labels[where[i]]}  ${signed(values[i])}`);
  });
  return svg;
}

function drawBars(data, where, values, width) {
  // As they come if these are all, and few; else the largest first.
  let order = where.map((_, i) => i);
  if (order.length > 20 || !data.whole) order = order.sort((a, b) => Math.abs(values[b]) - Math.abs(values[a])).slice(0, 30);
  const row = 19, height = order.length * row + 42, room = Math.min(width * 0.36, 12 + 6.6 * Math.max(...order.map((i) => data.labels[where[i]].length)));
  const box = { left: 12 + room, right: width - 14, top: 10, bottom: height - 32 };
  const most = Math.max(...order.map((i) => Math.abs(values[i]))) * 1.05 || 1;
  const x = (v) => box.left + ((v + most) / (2 * most)) * (box.right - box.left);
  const svg = frame(width, height, "The largest loadings");
  const { at, step: size } = ticks(-most, most, 6);
  for (const v of at) {
    svg.append(draw("line", { x1: x(v), x2: x(v), y1: box.top, y2: box.bottom, class: v === 0 ? "zero" : "grid" }));
    svg.append(draw("text", { x: x(v), y: box.bottom + 18, class: "middle" }, tickText(v, size)));
  }
  order.forEach((i, line) => {
    const y = box.top + line * row, text = data.labels[where[i]], fits = Math.floor((room - 6) / 6.6);
    svg.append(draw("text", { x: box.left - 8, y: y + row / 2 + 4, class: "end label" }, text.length > fits ? `${text.slice(0, Math.max(3, fits - 1))}\u2026` : text));
    const bar = draw("rect", { x: Math.min(x(0), x(values[i])), y: y + 3, width: Math.abs(x(values[i]) - x(0)), height: row - 6, class: "bar" });
    bar.append(draw("title", {}, `${text}: ${signed(values[i])}`));
    svg.append(bar);
  });
  return svg;
}

themeChanged();
// For whoever looks at the page from outside: when it is ready, and where the sample of a place in the file is drawn.
globalThis.report = { plot, place: (i) => place(plot.inverse[i]), ready: Promise.all([points ? startScores() : null, $("loading-plot") ? startLoadings() : null]) };
