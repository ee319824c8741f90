/**
 * Curves with bands: a button per policy shows and hides it, the pointer or the arrow keys read values off.
 * spec: { label, xTitle, xText, names: [{ name, colour, dash }], views }
 * view: { name, x, from, unit, floor, band, lines: [{ name, colour, dash, mean, low, high }] }
 * `from` is the first x to show, `floor` says that 0 is always in sight, `band` what the bands are.
 */
function lineChart(frame, spec) {
  const hidden = new Set();
  let view = spec.views[0];
  const plot = make("div");
  const readout = make("div", { class: "readout", hidden: "" });
  const draw = () => drawPlot(plot, readout, spec, view.lines.filter((line) => !hidden.has(line.name)), view);
  const legend = make("div", { class: "legend" }, ...spec.names.map((line) => legendButton(line, () => {
    hidden.has(line.name) ? hidden.delete(line.name) : hidden.add(line.name);
    draw();
    return !hidden.has(line.name);
  })));
  const views = make("div", { class: "views" });
  if (spec.views.length > 1) {
    for (const choice of spec.views) {
      const button = make("button", { type: "button", "aria-pressed": choice === view }, choice.name);
      button.addEventListener("click", () => {
        view = choice;
        for (const other of views.children) other.setAttribute("aria-pressed", other === button);
        draw();
      });
      views.append(button);
    }
  }
  frame.replaceChildren(make("div", { class: "controls" }, legend, views), plot, readout);
  draw();
  return draw;
}

function legendButton(line, toggle) {
  const stroke = make("line", { x1: 0, x2: 24, y1: 4, y2: 4, class: `curve p${line.colour}`, "stroke-dasharray": line.dash || null });
  const button = make("button", { type: "button", "aria-pressed": "true", title: line.name },
    make("svg", { viewBox: "0 0 24 8", "aria-hidden": "true" }, stroke), make("span", {}, line.title || line.name));
  button.addEventListener("click", () => button.setAttribute("aria-pressed", toggle()));
  return button;
}

function drawPlot(plot, readout, spec, lines, view) {
  const width = Math.max(280, plot.clientWidth || document.querySelector("main").clientWidth - 40);
  const height = Math.round(Math.min(400, Math.max(240, width * 0.42)));
  const edge = { left: 52, right: 12, top: 12, bottom: 46 };
  const first = Math.max(0, view.x.findIndex((x) => x >= view.from));
  const last = view.x.length - 1;
  const across = scale(view.x[first], view.x[last], edge.left, width - edge.right);
  const [bottom, top] = extent(lines, first, last, view);
  const up = scale(bottom, top, height - edge.bottom, edge.top);
  const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", tabindex: 0, "aria-label": spoken(spec, view) });
  drawAxes(svg, spec, view, { width, height, edge, across, up, bottom, top, from: view.x[first], to: view.x[last] });
  for (const line of lines) {
    const point = (values) => (at) => `${across(view.x[at]).toFixed(1)},${up(values[at]).toFixed(1)}`;
    const path = (values) => Array.from({ length: last - first + 1 }, (_, at) => point(values)(first + at));
    svg.append(make("path", { class: `band p${line.colour}`, d: `M${path(line.high).join("L")}L${path(line.low).reverse().join("L")}Z` }));
    svg.append(make("path", { class: `curve p${line.colour}`, d: `M${path(line.mean).join("L")}`, "stroke-dasharray": line.dash || null }));
  }
  plot.replaceChildren(svg);
  readValues(svg, readout, spec, view, lines, { first, last, across, up, width, height, edge });
}

/** From lowest to highest value in view, with a little air; from 0 in the view of everything. */
function extent(lines, first, last, view) {
  let low = Infinity, high = -Infinity;
  for (const line of lines) {
    for (let at = first; at <= last; at++) {
      low = Math.min(low, line.low[at]);
      high = Math.max(high, line.high[at]);
    }
  }
  if (low > high) return [0, 1];
  if (view.floor) [low, high] = [Math.min(0, low), Math.max(0, high)];
  const air = (high - low || 1) * 0.06;
  return [low === 0 ? 0 : low - air, view.unit === "%" ? Math.min(100, high + air) : high + air];
}

function drawAxes(svg, spec, view, at) {
  const rows = ticks(at.bottom, at.top, 5);
  for (const value of rows) {
    const y = at.up(value);
    svg.append(make("line", { class: value === 0 ? "axis" : "grid", x1: at.edge.left, x2: at.width - at.edge.right, y1: y, y2: y }));
    svg.append(make("text", { x: at.edge.left - 8, y: y + 4, "text-anchor": "end" }, (view.unit === "points" && value > 0 ? "+" : "") + tickText(value, rows) + (view.unit === "%" ? " %" : "")));
  }
  const columns = ticks(at.from, at.to, Math.max(3, Math.min(10, at.width / 90)));
  const floor = at.height - at.edge.bottom;
  for (const value of columns) {
    svg.append(make("line", { class: "axis", x1: at.across(value), x2: at.across(value), y1: floor, y2: floor + 5 }));
    svg.append(make("text", { x: at.across(value), y: floor + 20, "text-anchor": "middle" }, tickText(value, columns)));
  }
  svg.append(make("line", { class: "axis", x1: at.edge.left, x2: at.width - at.edge.right, y1: floor, y2: floor }));
  svg.append(make("text", { x: at.width - at.edge.right, y: at.height - 6, "text-anchor": "end" }, spec.xTitle));
  if (at.width > 660 && view.band) svg.append(make("text", { x: at.edge.left, y: at.height - 6 }, view.band));
}

/** The text for a reader who does not see the chart: where every curve ends. */
function spoken(spec, view) {
  const ends = view.lines.map((line) => `${line.name} ${valueText(line.mean[line.mean.length - 1], view)}`);
  return `${spec.label}. In the end: ${ends.join(", ")}`;
}

function valueText(value, view) {
  if (view.unit === "points") return `${value > 0 ? "+" : ""}${rounded(value, 2)} points`;
  return view.unit === "%" ? `${rounded(value, 1)} %` : rounded(value, value < 10 ? 1 : 0);
}

function readValues(svg, readout, spec, view, lines, at) {
  const cursor = make("g", { visibility: "hidden" });
  svg.append(cursor);
  let chosen = at.last;
  const hide = () => { cursor.setAttribute("visibility", "hidden"); readout.hidden = true; };
  const show = (index) => {
    chosen = Math.max(at.first, Math.min(at.last, index));
    const x = at.across(view.x[chosen]);
    const dots = lines.map((line) => make("circle", { class: `dot p${line.colour}`, r: 4, cx: x, cy: at.up(line.mean[chosen]) }));
    cursor.replaceChildren(make("line", { class: "cursor", x1: x, x2: x, y1: at.edge.top, y2: at.height - at.edge.bottom }), ...dots);
    cursor.setAttribute("visibility", "visible");
    const ranked = [...lines].sort((one, other) => other.mean[chosen] - one.mean[chosen]);
    readout.replaceChildren(make("p", {}, spec.xText(view.x[chosen])), ...ranked.map((line) => make("p", {},
      make("span", {}, make("i", { class: `swatch p${line.colour}` }), line.name), make("b", {}, valueText(line.mean[chosen], view)))));
    readout.hidden = false;
    const right = x > at.width / 2;
    readout.style.left = right ? "auto" : `${x + 16}px`;
    readout.style.right = right ? `${at.width - x + 16}px` : "auto";
    readout.style.top = `${svg.parentElement.offsetTop + at.edge.top + 6}px`;
  };
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * at.width;
    let nearest = at.first;
    for (let index = at.first; index <= at.last; index++) {
      if (Math.abs(at.across(view.x[index]) - x) < Math.abs(at.across(view.x[nearest]) - x)) nearest = index;
    }
    show(nearest);
  });
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("blur", hide);
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step) { show(chosen + step); event.preventDefault(); }
  });
}
