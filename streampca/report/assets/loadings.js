// Loadings: select a component, label the point under the pointer. Then: start.

async function startLoadings() {
  const { labels, picks } = JSON.parse(await unzippedText("data-loadings"));
  const chooser = $("loading-component"), note = $("loading-note");
  const parts = document.querySelectorAll("#loadings [data-component]");
  const show = () => {
    note.textContent = "\u00a0";
    for (const part of parts) part.hidden = part.dataset.component !== chooser.value;
  };
  chooser.addEventListener("change", show);
  for (const svg of document.querySelectorAll("#loading-plots svg")) {
    const [which, values] = picks[Number(svg.closest("[data-component]").dataset.component)];
    listenToLoadings(svg, (i) => { note.textContent = `${labels[which[i]]}  ${signed(values[i])}`; });
  }
  show();
  $("loading-plots").dataset.ready = "";
}

const signed = (value) => `${value < 0 ? "\u2212" : "+"}${Math.abs(value).toFixed(2)}`;

function listenToLoadings(svg, show) {
  // Points and lines are drawn in the order of the values.
  const line = svg.querySelector(".line"), shapes = line ? [line] : [...svg.querySelectorAll(".points")];
  const text = shapes.map((shape) => shape.getAttribute("points") ?? shape.getAttribute("d")).join(" ");
  const places = [...text.matchAll(/([\d.]+)[ ,]([\d.]+)/g)].map(([, x, y]) => [Number(x), Number(y)]);
  if (!places.length) return;
  const dot = draw("circle", { r: 4, class: "now", visibility: "hidden" }), { width } = svg.viewBox.baseVal;
  svg.append(dot);
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect(), scale = width / box.width;
    const px = (event.clientX - box.left) * scale, py = (event.clientY - box.top) * scale;
    let best = line ? Infinity : (14 * scale) ** 2, near = -1;
    places.forEach(([x, y], i) => {
      const d = (x - px) ** 2 + (line ? 0 : (y - py) ** 2);
      if (d < best) { best = d; near = i; }
    });
    dot.setAttribute("visibility", near < 0 ? "hidden" : "visible");
    if (near < 0) return;
    dot.setAttribute("cx", places[near][0]);
    dot.setAttribute("cy", places[near][1]);
    show(near);
  });
}

themeChanged();
// For tests and scripts: when the page is ready, and where a sample is drawn.
globalThis.report = { plot, place: (i) => place(plot.inverse[i]), ready: Promise.all([points ? startScores() : null, $("loading-plots") ? startLoadings() : null]) };
