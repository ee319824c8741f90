const WHOLE = "whole run";
const CHARTS = {
  inflation: {
    allocated: { label: "GPU capacity placed by arrived demand", unit: "%" },
    fragmented: { label: "GPU capacity fragmented by arrived demand", unit: "%" },
  },
  time: {
    allocated: { label: "GPU capacity in use over time", unit: "%" },
    waiting: { label: "Jobs waiting over time", unit: "jobs" },
    fairness: { label: "Fairness between tenants over time", unit: "%" },
  },
};

function chartSpec(results, chapter, key) {
  const { label, unit } = CHARTS[chapter.mode][key];
  const ink = (name) => ({ name, colour: results.colours[name][0], dash: results.colours[name][1] });
  const lines = (curves) => Object.keys(curves.policies).map((name) => ({ ...ink(name), ...curves.policies[name] }));
  const found = chapter.curves[key];
  const several = chapter.seeds.length > 1;
  const views = [{
    name: WHOLE, x: found.x, from: found.x[0], unit, floor: true, lines: lines(found),
    band: several ? "line: mean of the seeds · band: lowest to highest seed" : "",
  }];
  if (chapter.mode === "inflation" && key === "allocated" && chapter.policies.length > 1) {
    const gained = chapter.curves.gained;
    const from = found.parting;
    views.unshift({ ...views[0], name: "where they differ", from, floor: false });
    views.push({
      name: `difference to ${chapter.baseline}`, x: gained.x, from, unit: "points", floor: true, lines: lines(gained),
      band: several ? "percentage points · band: 95 % interval of the mean" : "percentage points",
    });
  }
  if (key === "fragmented") {
    views[0].name = "of all GPU capacity";
    views.push({ ...views[0], name: "of what is idle", lines: lines(chapter.curves.fragmented_of_idle) });
  }
  const byTime = chapter.mode === "time";
  return {
    label, views, names: chapter.policies.map((name) => ({ ...ink(name), title: legendTitle(chapter, name) })),
    xTitle: byTime ? "hours since the trace began" : "arrived demand, % of all GPU capacity",
    xText: byTime ? hourText : (x) => `${rounded(x, 0)} % arrived`,
  };
}

function legendTitle(chapter, name) {
  return name === chapter.baseline && chapter.policies.length > 1 ? `${name} (baseline)` : name;
}

function chooseChapter(chosen) {
  for (const tab of document.querySelectorAll("[data-tab]")) tab.setAttribute("aria-selected", tab.dataset.tab === String(chosen));
  document.querySelectorAll(".chapter").forEach((chapter, at) => { chapter.hidden = at !== chosen; });
}

function download(text) {
  const address = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  make("a", { href: address, download: "dovetail-results.json" }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

function start() {
  document.documentElement.classList.add("js");
  const text = document.getElementById("results").textContent;
  const results = JSON.parse(text);
  const drawings = [];
  for (const frame of document.querySelectorAll("[data-chart]")) {
    const chapter = results.chapters[frame.dataset.chapter];
    if (chapter.curves[frame.dataset.chart].x.length > 1) drawings.push(lineChart(frame, chartSpec(results, chapter, frame.dataset.chart)));
    else frame.replaceChildren("Too few points for a curve.");
  }
  for (const figure of document.querySelectorAll("[data-map]")) {
    const chapter = results.chapters[figure.dataset.chapter];
    drawings.push(gpuMap(figure, results.clusters[chapter.cluster], chapter.maps[figure.dataset.map]));
  }
  const redraw = () => drawings.forEach((draw) => draw());
  for (const tab of document.querySelectorAll("[data-tab]")) {
    tab.addEventListener("click", () => { chooseChapter(Number(tab.dataset.tab)); redraw(); });
  }
  chooseChapter(0);
  document.getElementById("download").addEventListener("click", () => download(text));
  let width = innerWidth, pending = 0;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    cancelAnimationFrame(pending);
    pending = requestAnimationFrame(redraw);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  document.documentElement.dataset.ready = `charts:${document.querySelectorAll("[data-chart] .curve[d]").length} maps:${document.querySelectorAll("[data-map] canvas[style]").length}`;
}
start();
