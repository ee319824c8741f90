/** Every GPU as a cell, grouped by model. Returns a function that draws it for the width there is. */
function gpuMap(figure, cluster, cells) {
  const canvas = figure.querySelector("canvas");
  const readout = make("div", { class: "readout", hidden: "" });
  figure.append(readout);
  const milli = Array.from(atob(cells.gpus), (letter) => cells.levels[letter.charCodeAt(0)]);
  const groups = groupByModel(cluster, milli);
  let placed = [];
  const draw = () => { placed = drawMap(canvas, groups); };
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    const found = cellAt(placed, event.clientX - box.left, event.clientY - box.top);
    readout.hidden = !found;
    if (!found) return;
    readout.replaceChildren(
      make("p", {}, make("span", {}, found.node)),
      make("p", {}, make("span", {}, `${found.model} GPU ${found.gpu}`), make("b", {}, `${rounded(found.milli, 0)} of 1,000 milli`)));
    const x = event.clientX - figure.getBoundingClientRect().left;
    readout.style.left = x < box.width / 2 ? `${x + 14}px` : "auto";
    readout.style.right = x < box.width / 2 ? "auto" : `${box.width - x + 14}px`;
    readout.style.top = `${event.clientY - figure.getBoundingClientRect().top + 14}px`;
  });
  canvas.addEventListener("pointerleave", () => { readout.hidden = true; });
  draw();
  return draw;
}

/** Models with the most GPUs first; inside one, nodes as they came. */
function groupByModel(cluster, milli) {
  const groups = cluster.models.map((model) => ({ model, cells: [] }));
  let at = 0;
  cluster.names.forEach((node, index) => {
    const group = groups[cluster.model_of[index]];
    for (let gpu = 0; gpu < cluster.gpus_of[index]; gpu++) {
      group.cells.push({ node, gpu, model: group.model || "GPU", milli: milli[at++], last: gpu + 1 === cluster.gpus_of[index] });
    }
  });
  return groups.filter((group) => group.cells.length).sort((one, other) => other.cells.length - one.cells.length);
}

/** Cells shrink until the map is not much higher than wide. */
function pitchFor(count, width) {
  for (const pitch of [18, 14, 12, 10, 8, 7, 6, 5, 4]) {
    if (Math.ceil(count / Math.floor(width / pitch)) * pitch <= width * 1.05) return pitch;
  }
  return 3;
}

function drawMap(canvas, groups) {
  const width = Math.max(200, Math.floor(canvas.clientWidth || 480));
  const pitch = pitchFor(groups.reduce((sum, group) => sum + group.cells.length, 0), width);
  const columns = Math.floor(width / pitch);
  const title = 20, between = 10;
  const height = groups.reduce((sum, group) => sum + title + Math.ceil(group.cells.length / columns) * pitch + between, 0) - between;
  const density = window.devicePixelRatio || 1;
  canvas.width = width * density;
  canvas.height = height * density;
  canvas.style.height = `${height}px`;
  const ink = canvas.getContext("2d");
  ink.scale(density, density);
  const colours = mapColours();
  const placed = [];
  let top = 0;
  for (const group of groups) {
    ink.fillStyle = colours.soft;
    ink.font = "12px system-ui, sans-serif";
    ink.fillText(`${group.model || "GPU"} × ${rounded(group.cells.length, 0)}`, 0, top + 13, width);
    top += title;
    group.cells.forEach((cell, at) => {
      const x = (at % columns) * pitch, y = top + Math.floor(at / columns) * pitch;
      ink.fillStyle = colours.of(cell.milli);
      ink.fillRect(x, y, pitch - 1, pitch - 1);
    });
    const rows = Math.ceil(group.cells.length / columns);
    placed.push({ top, bottom: top + rows * pitch, pitch, columns, cells: group.cells });
    top += rows * pitch + between;
  }
  return placed;
}

function cellAt(placed, x, y) {
  const group = placed.find((one) => y >= one.top && y < one.bottom);
  const column = group ? Math.floor(x / group.pitch) : -1;
  if (!group || column < 0 || column >= group.columns) return undefined;
  return group.cells[Math.floor((y - group.top) / group.pitch) * group.columns + column];
}

function mapColours() {
  const style = getComputedStyle(document.documentElement);
  const value = (name) => style.getPropertyValue(name).trim();
  const part = (name) => [1, 3, 5].map((at) => parseInt(value(name).slice(at, at + 2), 16));
  const low = part("--part-low"), high = part("--part-high");
  const ramp = Array.from({ length: 11 }, (_, at) => `rgb(${low.map((from, c) => Math.round(from + ((high[c] - from) * at) / 10)).join(",")})`);
  const [empty, full] = [value("--empty"), value("--full")];
  return { soft: value("--soft"), of: (milli) => (milli <= 0 ? empty : milli >= 1000 ? full : ramp[Math.round(milli / 100)]) };
}
