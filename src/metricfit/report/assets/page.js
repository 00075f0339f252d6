// Everything that is drawn once, sortable tables, and the start of the explorer.

function drawScores(axis, name) {
  const points = axis.calibration.points;
  drawChart(document.getElementById("c-calibration"), {
    label: `Calibration of ${name}: predicted probability against the share that is ${name}; mean gap ${digits(axis.calibration.error, 3)}.`,
    x: { label: `predicted probability of ${name}`, range: [0, 1] }, y: { label: `share that is ${name}`, range: [0, 1] }, readout: false,
    series: [
      { name: `mean gap ${digits(axis.calibration.error, 3)}`, style: "s1", kind: "whiskers", points: points.map((p) => [p[0], p[1], p[2], p[3]]) },
      { name: "perfectly calibrated", style: "s3", points: [[0, 0], [1, 1]] },
    ],
  });
  drawHistogram("c-histogram", axis.histogram, name);
  const all = axis.positives + axis.negatives, part = axis.positives / all, called = { label: "share of rows called", range: [0, 1] };
  const gain = axis.cuts.map((_, i) => [(axis.tp[i] + axis.fp[i]) / all, axis.tp[i] / axis.positives]).filter(([x, y]) => x > 0 && y === y);
  gain.sort((a, b) => a[0] - b[0]);
  const lift = gain.map(([x, y]) => [x, y / x]), top = Math.max(...lift.map((p) => p[1]), 1);
  const tenth = gain.findLast(([x]) => x <= 0.1), found = tenth ? digits(tenth[1], 3) : "–", times = tenth ? digits(tenth[1] / tenth[0], 1) : "–";
  drawChart(document.getElementById("c-gain"), {
    label: `Share of ${name} found over the share of rows called; the first tenth of the rows finds ${found}.`, x: called, y: { label: `share of ${name} found`, range: [0, 1] },
    series: [{ name: `first tenth: ${found}`, style: "s1", points: [[0, 0], ...gain] }, { name: "perfect", style: "s2", points: [[0, 0], [part, 1], [1, 1]] }, { name: "by chance", style: "s3", points: [[0, 0], [1, 1]] }],
  });
  drawChart(document.getElementById("c-lift"), {
    label: `Lift of ${name} over the share of rows called; ${times} in the first tenth.`, x: called, y: { label: "lift", range: [0, top * 1.08] },
    series: [{ name: `first tenth: ${times}`, style: "s1", points: lift }, { name: "by chance", style: "s3", points: [[0, 1], [1, 1]] }],
  });
}

function drawHistogram(id, histogram, name) {
  const bins = histogram.positive.length, wide = 1 / bins;
  const total = (values) => sum(values) || 1;
  const bars = (values, offset) => values.map((v, i) => [i * wide + offset * wide, v / total(values), wide / 2]);
  const known = sum(histogram.positive) > 0;
  const series = known
    ? [{ name: `is ${name}`, style: "s2", kind: "bars", points: bars(histogram.positive, 0) }, { name: `is not ${name}`, style: "s1", kind: "bars", points: bars(histogram.negative, 0.5) }]
    : [{ name: "all rows", style: "s1", kind: "bars", points: histogram.negative.map((v, i) => [i * wide, v / total(histogram.negative), wide]) }];
  const top = Math.max(...series.flatMap((s) => s.points.map((p) => p[1])));
  drawChart(document.getElementById(id), {
    label: `Histogram of the predicted probability of ${name}${known ? `, for rows that are and are not ${name}` : ""}.`,
    x: { label: `predicted probability of ${name}`, range: [0, 1] }, y: { label: "share of its rows", range: [0, top * 1.08 || 1] },
    readout: false, series,
  });
}

function drawTraining(training, metric) {
  const along = (name) => training.epoch.map((e, i) => [e, training[name][i]]).filter((p) => p[1] !== null);
  const x = { label: "epoch", range: [Math.min(0, training.epoch[0] - 1), training.epoch.at(-1)] };
  const cooled = training.coolings.map((e) => ({ x: e, style: "cool", name: "cooling" }));
  const kept = training.kept.map((e) => ({ x: e, style: "kept", name: "weights kept" }));
  drawChart(document.getElementById("c-loss"), {
    label: `Training loss over ${training.epoch.length} epochs.`, x, y: { label: "training loss" },
    series: [{ name: "training loss", style: "s1", points: along("loss") }], lines: [...cooled, ...kept],
  });
  drawChart(document.getElementById("c-validation"), {
    label: `The exact and the soft ${metric} on validation rows over the epochs.`, x, y: { label: metric },
    series: [
      { name: "exact metric", style: "s1", points: along("hard_metric") },
      { name: `surrogate (T = ${training.selection_temperature})`, style: "s2", points: along("soft_metric") },
    ], lines: [...cooled, ...kept],
  });
  const heat = along("temperature").flatMap((p, i, all) => (i ? [[p[0], all[i - 1][1]], p] : [p])), most = Math.max(...heat.map((p) => p[1]), 0);
  drawChart(document.getElementById("c-temperature"), {
    label: `Temperature over the epochs; ${training.coolings.length} coolings.`, x, y: { label: "temperature T", range: [0, most * 1.15 || 1] },
    series: [{ name: "temperature", style: "s2", points: heat }], lines: cooled,
  });
  const points = training.alignment.points, r = training.alignment.correlation;
  const third = Math.ceil(points.length / 3);
  const part = (from, to) => points.slice(from, to);
  const range = extent(points.flat(), [0, 1]);
  drawChart(document.getElementById("c-alignment"), {
    label: `Surrogate against the exact ${metric}, one point per epoch; correlation ${digits(r, 3)}.`,
    x: { label: `surrogate ${metric}`, range }, y: { label: `exact ${metric}`, range }, readout: false,
    series: [
      { name: "first third", style: "s3", kind: "points", points: part(0, third) },
      { name: "second", style: "s2 hollow", kind: "points", points: part(third, 2 * third) },
      { name: "last third", style: "s1", kind: "points", points: part(2 * third) },
      { name: "equal", style: "s3", points: [[range[0], range[0]], [range[1], range[1]]] },
    ],
  });
  const steps = Object.entries(training.steps).reverse();
  if (!steps.length) return;
  drawChart(document.getElementById("c-step"), {
    label: `The ${training.step} step as the loss saw it at the end of training.`,
    x: { label: "probability (threshold ½)", range: [0, 1] }, y: { label: "counts as positive", range: [0, 1] },
    series: [
      ...steps.map(([name, points], i) => ({ name, style: `s${i + 1}`, points })),
      { name: "exact step", style: "s3", points: [[0, 0], [0.5, 0], [0.5, 1], [1, 1]] },
    ],
  });
}

// The trials of a search in their order, and the metric over each parameter of each model.
function drawSearch(search, metric, greater) {
  const models = [...new Set(search.trials.map((t) => t.model))].sort();
  const style = (model) => ["s1", "s2", "s3"][models.indexOf(model) % 3];
  const known = search.trials.map((t, i) => ({ ...t, at: i + 1 })).filter((t) => t.value !== null);
  const points = (model, state) => known.filter((t) => t.model === model && t.state === state).map((t) => [t.at, t.value]);
  let best = null;
  const line = known.filter((t) => t.state === "complete").map((t) => [t.at, (best = best === null ? t.value : greater ? Math.max(best, t.value) : Math.min(best, t.value))]);
  drawChart(document.getElementById("c-search"), {
    label: `${metric} of ${search.trials.length} trials in their order.`, x: { label: "trial" }, y: { label: metric },
    series: [
      ...models.flatMap((m) => [{ name: m, style: style(m), kind: "points", points: points(m, "complete") }, { style: `${style(m)} hollow`, kind: "points", points: points(m, "pruned") }]),
      { name: "best so far", style: "s3", points: line },
    ],
  });
  const box = document.getElementById("search-slices");
  if (!box.closest("details").open && !printing) return;
  box.replaceChildren();
  for (const model of models) {
    const rows = known.filter((t) => t.model === model && t.state === "complete");
    for (const name of [...new Set(rows.flatMap((t) => Object.keys(t.params)))].sort()) {
      const tried = rows.filter((t) => name in t.params), values = tried.map((t) => t.params[name]);
      const words = values.some((v) => typeof v !== "number") ? [...new Set(values)].sort() : null;
      const wide = !words && Math.min(...values) > 0 && Math.max(...values) / Math.min(...values) > 20;
      const place = (v) => (words ? words.indexOf(v) + 1 : wide ? Math.log10(v) : v);
      const short_ = name.split(".").at(-1);
      const figure = html("figure", { class: "card chart" });
      figure.append(html("figcaption", {}, `${model}: ${short_}`), html("div", { class: "plot" }));
      box.append(figure);
      const axis = words ? words.map((w, i) => `${i + 1}: ${w}`).join(", ") : wide ? `log10 of ${short_}` : short_;
      drawChart(figure, {
        label: `${metric} of ${model} over ${short_}.`, x: { label: axis }, y: { label: metric }, readout: false,
        series: [{ style: style(model), kind: "points", points: tried.map((t) => [place(t.params[name]), t.value]) }],
      });
    }
  }
}

function makeSortable(table) {
  const keyOf = (cell) => { const v = cell.getAttribute("data-value"); return v === null ? cell.textContent : v === "" ? -Infinity : Number(v); };
  table.querySelectorAll("thead th").forEach((head, column) => {
    const button = head.querySelector("button");
    if (!button) return;
    button.addEventListener("click", () => {
      const rising = head.getAttribute("aria-sort") === "descending";
      table.querySelectorAll("thead th").forEach((h) => h.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", rising ? "ascending" : "descending");
      const rows = [...table.tBodies[0].rows].map((row) => [keyOf(row.cells[column]), row]);
      const order = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));
      rows.sort((a, b) => (rising ? 1 : -1) * order(a[0], b[0]));
      table.tBodies[0].append(...rows.map(([, row]) => row));
    });
  });
}

function makeFilter(box, table) {
  box.addEventListener("input", () => {
    const wanted = box.value.toLowerCase();
    let shown = 0;
    for (const row of table.tBodies[0].rows) { row.hidden = !row.cells[0].textContent.toLowerCase().includes(wanted); shown += row.hidden ? 0 : 1; }
    document.getElementById("class-count").textContent = `${shown} shown`;
  });
}

function start() {
  const data = JSON.parse(document.getElementById("report-data").textContent);
  const draws = [];
  if (data.explorer) {
    const explorer = new Explorer(data.explorer);
    draws.push(() => explorer.showCharts());
    const choice = document.getElementById("score-axis");
    const shown = () => (choice ? Number(choice.value) : 0);
    if (choice) {
      choice.replaceChildren(...data.explorer.labels.map((label, k) => html("option", { value: k }, label)));
      choice.value = String(explorer.axis);
      choice.addEventListener("change", () => drawScores(data.explorer.axes[shown()], explorer.nameOf(shown())));
    }
    draws.push(() => drawScores(data.explorer.axes[shown()], explorer.nameOf(shown())));
    window.metricfitReport = { explorer, valueOf };
  }
  if (data.histograms) data.histograms.forEach((h, i) => draws.push(() => drawHistogram(`c-unlabelled-${i}`, h.histogram, h.label)));
  if (data.search) draws.push(() => drawSearch(data.search, data.metric, data.search.greater_is_better));
  if (data.training) draws.push(() => drawTraining(data.training, data.metric));
  const drawAll = () => draws.forEach((draw) => draw());
  drawAll();
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; drawAll(); } });
  addEventListener("beforeprint", () => {
    document.querySelectorAll(".part, #data details").forEach((d) => { d.open = true; });
    printing = true;
    drawAll();
  });
  addEventListener("afterprint", () => { printing = false; drawAll(); });
  document.querySelectorAll(".part").forEach((part) => part.addEventListener("toggle", drawAll));
  // A link to a part opens it.
  const opened = () => { const part = location.hash && document.querySelector(`${location.hash} > .part`); if (part) part.open = true; };
  addEventListener("hashchange", opened);
  opened();
  document.querySelectorAll("table.sortable").forEach(makeSortable);
  const box = document.getElementById("class-filter");
  if (box) makeFilter(box, document.getElementById("class-table"));
}

start();
