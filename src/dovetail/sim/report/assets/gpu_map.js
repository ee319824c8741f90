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
function pitchFor(groups, width) {
  for (const pitch of [18, 14, 12, 10, 8, 7, 6, 5, 4]) {
    if (layOut(groups, width, pitch).height <= width * 1.15 + 30 * groups.length) return pitch;
  }
  return 3;
}

/** Where every node and GPU goes: the GPUs of a node in a frame, nodes side by side; a node wider than the map is broken. */
function layOut(groups, width, pitch) {
  const edge = pitch >= 8 ? 2 : 1, apart = pitch >= 8 ? 3 : 1, title = 20, between = 10;
  const most = Math.max(1, Math.floor((width - 2 * edge + 1) / pitch));
  const placed = [];
  let top = 0;
  for (const group of groups) {
    const frames = [];
    let x = 0, y = top + title;
    const step = pitch - 1 + 2 * edge + apart;
    for (const node of nodesOf(group.cells)) {
      for (let from = 0; from < node.length; from += most) {
        const cells = node.slice(from, from + most), across = cells.length * pitch - 1 + 2 * edge;
        if (x > 0 && x + across > width) { x = 0; y += step; }
        frames.push({ x, y, width: across, height: pitch - 1 + 2 * edge, edge, pitch, cells });
        x += across + apart;
      }
    }
    placed.push({ model: group.model, count: group.cells.length, top, frames });
    top = y + step - apart + between;
  }
  return { placed, height: Math.max(0, top - between) };
}

function nodesOf(cells) {
  const nodes = [[]];
  for (const cell of cells) {
    nodes[nodes.length - 1].push(cell);
    if (cell.last) nodes.push([]);
  }
  return nodes.filter((node) => node.length);
}

function drawMap(canvas, groups) {
  const width = Math.max(200, Math.floor(canvas.clientWidth || 480));
  const { placed, height } = layOut(groups, width, pitchFor(groups, width));
  const density = window.devicePixelRatio || 1;
  canvas.width = width * density;
  canvas.height = height * density;
  canvas.style.height = `${height}px`;
  const ink = canvas.getContext("2d");
  ink.scale(density, density);
  const colours = mapColours();
  for (const group of placed) {
    ink.fillStyle = colours.soft;
    ink.font = "12px system-ui, sans-serif";
    ink.fillText(`${group.model || "GPU"} × ${rounded(group.count, 0)}`, 0, group.top + 13, width);
    for (const frame of group.frames) {
      ink.fillStyle = colours.border;
      ink.fillRect(frame.x, frame.y, frame.width, frame.height);
      frame.cells.forEach((cell, at) => {
        ink.fillStyle = colours.of(cell.milli);
        ink.fillRect(frame.x + frame.edge + at * frame.pitch, frame.y + frame.edge, frame.pitch - 1, frame.pitch - 1);
      });
    }
  }
  const frames = placed.flatMap((group) => group.frames);
  canvas.dataset.frames = frames.length;
  return frames;
}

function cellAt(frames, x, y) {
  const frame = frames.find((one) => x >= one.x && x < one.x + one.width && y >= one.y && y < one.y + one.height);
  const column = frame ? Math.floor((x - frame.x - frame.edge) / frame.pitch) : -1;
  return frame ? frame.cells[Math.min(Math.max(column, 0), frame.cells.length - 1)] : undefined;
}

function mapColours() {
  const style = getComputedStyle(document.documentElement);
  const value = (name) => style.getPropertyValue(name).trim();
  const part = (name) => [1, 3, 5].map((at) => parseInt(value(name).slice(at, at + 2), 16));
  const low = part("--part-low"), high = part("--part-high");
  const ramp = Array.from({ length: 11 }, (_, at) => `rgb(${low.map((from, c) => Math.round(from + ((high[c] - from) * at) / 10)).join(",")})`);
  const [empty, full] = [value("--empty"), value("--full")];
  return { soft: value("--soft"), border: value("--node"), of: (milli) => (milli <= 0 ? empty : milli >= 1000 ? full : ramp[Math.round(milli / 100)]) };
}
