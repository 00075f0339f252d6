// Small SVG charts that take their colours from the style sheet. Text is set as text, never as markup.

// On paper two charts stand side by side, whatever the window's width.
let printing = false;

const SVG = "http://www.w3.org/2000/svg";

function svg(name, attributes = {}, text = null) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== null) node.textContent = text;
  return node;
}

function html(name, attributes = {}, text = null) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== null) node.textContent = text;
  return node;
}

function niceTicks(low, high, count) {
  const span = high - low;
  if (!(span > 0)) return [low];
  const rough = span / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => span / s <= count) || 10 * power;
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) ticks.push(i * step);
  return ticks;
}

function short(value) {
  if (value === null || Number.isNaN(value)) return "–";
  if (value !== 0 && (Math.abs(value) >= 1e5 || Math.abs(value) < 1e-3)) return value.toExponential(1);
  return String(Number(value.toPrecision(4)));
}

function extent(values, fallback) {
  let low = Infinity, high = -Infinity;
  for (const v of values) if (v !== null && Number.isFinite(v)) { low = Math.min(low, v); high = Math.max(high, v); }
  if (!(low <= high)) return fallback;
  const pad = (high - low || Math.abs(high) || 1) * 0.06;
  return [low - pad, high + pad];
}

// What of a name fits into so many pixels; all of it is in the chart's description.
function fitting(text, pixels) {
  const most = Math.floor(pixels / 6.8);
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
}

// At most so many points of a line: the first, the last, and those between that change it most evenly.
function thinned(points, most = 500) {
  if (points.length <= most) return points;
  const step = (points.length - 1) / (most - 1);
  return Array.from({ length: most }, (_, i) => points[Math.round(i * step)]);
}

// options: {label, x: {label, range}, y: {label, range}, series: [{name, style, points, kind}], marks, lines}
function drawChart(figure, options) {
  const plot = figure.querySelector(".plot");
  const width = printing ? 330 : Math.max(260, plot.clientWidth || 460), height = options.height || Math.min(300, Math.max(220, width * 0.6));
  const all = options.series.flatMap((s) => s.points);
  const xr = options.x.range || extent(all.map((p) => p[0]), [0, 1]);
  const yr = options.y.range || extent(all.map((p) => p[1]), [0, 1]);
  const longest = Math.max(...niceTicks(...yr, 5).map((t) => short(t).length));
  const box = { left: 28 + 7 * Math.max(3, longest), right: 14, top: 14, bottom: 42 };
  const inner = { width: width - box.left - box.right, height: height - box.top - box.bottom };
  const px = (x) => box.left + ((x - xr[0]) / (xr[1] - xr[0] || 1)) * inner.width;
  const py = (y) => box.top + inner.height - ((y - yr[0]) / (yr[1] - yr[0] || 1)) * inner.height;
  const clip = (v, r) => Math.min(Math.max(v, r[0]), r[1]);
  const node = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": options.label });

  for (const t of niceTicks(...xr, Math.max(4, inner.width / 80))) {
    node.append(svg("line", { class: "grid", x1: px(t), x2: px(t), y1: box.top, y2: box.top + inner.height }));
    node.append(svg("text", { class: "tick", x: px(t), y: height - 24, "text-anchor": "middle" }, short(t)));
  }
  for (const t of niceTicks(...yr, 5)) {
    node.append(svg("line", { class: "grid", x1: box.left, x2: box.left + inner.width, y1: py(t), y2: py(t) }));
    node.append(svg("text", { class: "tick", x: box.left - 7, y: py(t) + 4, "text-anchor": "end" }, short(t)));
  }
  node.append(svg("text", { class: "axis", x: box.left + inner.width / 2, y: height - 6, "text-anchor": "middle" }, fitting(options.x.label, inner.width + 2 * box.right)));
  const side = svg("text", { class: "axis", transform: `translate(13 ${box.top + inner.height / 2}) rotate(-90)`, "text-anchor": "middle" }, fitting(options.y.label, inner.height + 2 * box.top));
  node.append(side);

  for (const series of options.series) drawSeries(node, series, { px, py, clip, xr, yr, base: py(clip(0, yr)) });
  for (const line of options.lines || []) {
    if (line.x < xr[0] || line.x > xr[1]) continue;
    node.append(svg("line", { class: `guide ${line.style || ""}`, x1: px(line.x), x2: px(line.x), y1: box.top, y2: box.top + inner.height }));
    if (line.label) {
      const right = px(line.x) > box.left + inner.width * 0.7;
      node.append(svg("text", { class: "note", x: px(line.x) + (right ? -4 : 4), y: box.top + 10, "text-anchor": right ? "end" : "start" }, line.label));
    }
  }
  for (const mark of options.marks || []) drawMark(node, mark, px(clip(mark.x, xr)), py(clip(mark.y, yr)), width);
  plot.replaceChildren(node);
  drawLegend(figure, options);
  if (options.readout !== false) addReadout(figure, node, options, { px, py, box, inner, xr });
}

function drawSeries(node, series, at) {
  const points = series.points.filter((p) => p[0] !== null && p[1] !== null && Number.isFinite(p[1]));
  if (series.kind === "bars") {
    for (const [x, y, wide] of points) {
      const left = at.px(x), top = at.py(at.clip(y, at.yr));
      node.append(svg("rect", { class: `bar ${series.style}`, x: left, y: top, width: Math.max(1, at.px(x + wide) - left - 1), height: Math.max(0, at.base - top) }));
    }
    return;
  }
  if (series.kind === "points") {
    for (const [x, y, size] of points) {
      node.append(svg("circle", { class: `dot ${series.style}`, cx: at.px(x), cy: at.py(at.clip(y, at.yr)), r: size || 3.5 }));
    }
    return;
  }
  if (series.kind === "whiskers") {
    for (const [x, y, low, high] of points) {
      node.append(svg("line", { class: `whisker ${series.style}`, x1: at.px(x), x2: at.px(x), y1: at.py(low), y2: at.py(high) }));
      node.append(svg("circle", { class: `dot ${series.style}`, cx: at.px(x), cy: at.py(y), r: 3.5 }));
    }
  }
  const path = thinned(points).map((p, i) => `${i ? "L" : "M"}${at.px(p[0]).toFixed(1)} ${at.py(at.clip(p[1], at.yr)).toFixed(1)}`);
  node.append(svg("path", { class: `line ${series.style}`, d: path.join("") }));
}

function drawMark(node, mark, x, y, width) {
  if (mark.shape === "ring") node.append(svg("circle", { class: "mark ring", cx: x, cy: y, r: 6.5 }));
  else node.append(svg("path", { class: "mark", d: `M${x} ${y - 8}L${x + 8} ${y}L${x} ${y + 8}L${x - 8} ${y}Z` }));
  if (mark.label) {
    const right = x > width * 0.62;
    node.append(svg("text", { class: "note strong", x: x + (right ? -12 : 12), y: y < 30 ? y + 18 : y - 8, "text-anchor": right ? "end" : "start" }, mark.label));
  }
}

function drawLegend(figure, options) {
  let legend = figure.querySelector(".legend");
  if (!legend) { legend = html("div", { class: "legend" }); figure.querySelector(".plot").before(legend); }
  const items = options.series.filter((s) => s.name).map((s) => ({ name: s.name, style: s.style, kind: s.kind }));
  for (const mark of options.marks || []) if (mark.name) items.push({ name: mark.name, kind: mark.shape || "mark" });
  for (const line of options.lines || []) if (line.name && !items.some((i) => i.name === line.name)) items.push({ name: line.name, kind: "guide", style: line.style });
  legend.replaceChildren(...items.map((item) => {
    const entry = html("span", { class: "key" });
    const swatch = svg("svg", { viewBox: "0 0 26 12", width: 26, height: 12, "aria-hidden": "true" });
    if (item.kind === "bars") swatch.append(svg("rect", { class: `bar ${item.style}`, x: 5, y: 1, width: 14, height: 10 }));
    else if (item.kind === "points") swatch.append(svg("circle", { class: `dot ${item.style}`, cx: 13, cy: 6, r: 3.5 }));
    else if (item.kind === "mark") swatch.append(svg("path", { class: "mark", d: "M13 0L19 6L13 12L7 6Z" }));
    else if (item.kind === "ring") swatch.append(svg("circle", { class: "mark ring", cx: 13, cy: 6, r: 4.5 }));
    else if (item.kind === "guide") swatch.append(svg("line", { class: `guide ${item.style || ""}`, x1: 13, x2: 13, y1: 0, y2: 12 }));
    else swatch.append(svg("path", { class: `line ${item.style}`, d: "M0 6L26 6" }));
    entry.append(swatch, item.name);
    return entry;
  }));
}

// The values under the pointer, in words below the chart; the same numbers are in the tables for those without one.
function addReadout(figure, node, options, at) {
  let readout = figure.querySelector(".readout");
  if (!readout) { readout = html("div", { class: "readout", "aria-hidden": "true" }, "\u00a0"); figure.append(readout); }
  const lines = options.series.filter((s) => s.points.length && s.kind !== "points");
  if (!lines.length) return;
  const cross = svg("line", { class: "cross", y1: at.box.top, y2: at.box.top + at.inner.height, visibility: "hidden" });
  node.append(cross);
  node.addEventListener("pointermove", (event) => {
    const rect = node.getBoundingClientRect();
    const where = ((event.clientX - rect.left) / rect.width) * node.viewBox.baseVal.width;
    const x = at.xr[0] + ((where - at.box.left) / at.inner.width) * (at.xr[1] - at.xr[0]);
    const words = [];
    for (const series of lines) {
      let best = null;
      for (const p of series.points) if (p[1] !== null && (best === null || Math.abs(p[0] - x) < Math.abs(best[0] - x))) best = p;
      if (best) words.push(`${series.name || options.y.label} ${short(best[1])}`);
    }
    cross.setAttribute("visibility", "visible");
    cross.setAttribute("x1", at.px(x)); cross.setAttribute("x2", at.px(x));
    readout.textContent = `${options.x.label} ${short(x)}: ${words.join(", ")}`;
  });
  node.addEventListener("pointerleave", () => { cross.setAttribute("visibility", "hidden"); readout.textContent = "\u00a0"; });
}
