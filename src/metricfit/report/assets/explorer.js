// The operating-point explorer: one state, drawn anew after every change.

const MANY_AXES = 8, MANY_CLASSES = 12, COST_GRID = 6;

const digits = (value, places = 4) =>
  value === null || value === undefined || Number.isNaN(value) ? "–" : value.toFixed(places).replace("-", "\u2212");
const counted = (value) => (Number.isInteger(value) ? value : Number(value.toPrecision(6))).toLocaleString("en");

class Explorer {
  constructor(data) {
    this.data = data;
    this.model = data.task === "multiclass" ? new OffsetModel(data) : new ThresholdModel(data);
    this.values = data.start.slice();
    this.model.current = this.values;
    this.axis = data.task === "binary" ? 0 : data.axis !== null ? data.axis : data.labels.length > 2 ? this.firstSupported() : 0;
    this.positive = data.task === "binary" ? data.positive : 1;
    this.held = false;
    const size = data.task === "multilabel" ? 2 : data.labels.length;
    this.costs = Array.from({ length: size }, (_, i) => Array.from({ length: size }, (_, j) => (i === j ? 0 : 1)));
    this.startMatrix = this.model.matrix(this.values);
    this.part = (name) => document.getElementById(`x-${name}`);
    this.buildAxisChoice();
    this.buildSliders();
    this.buildCosts();
    this.buildMetrics();
    this.wire();
    this.update();
  }

  firstSupported() { return Math.max(0, this.data.axes.findIndex((axis) => axis.positives > 0)); }
  nameOf(k) { return this.data.task === "binary" ? this.data.labels[this.positive] : this.data.labels[k]; }
  shownAxes() { return this.values.length <= MANY_AXES ? this.values.map((_, k) => k) : [this.axis]; }
  metricTree() { return this.data.metric.tree; }
  // An area has no value at one decision: its chart shows the balanced accuracy instead.
  curveOf() {
    const tree = this.metricTree();
    if (tree.kind !== "fixed") return { name: this.data.metric.name, tree, greater: this.data.metric.greater };
    return { name: "balanced accuracy", tree: this.data.metrics.find((m) => m.spec.startsWith("balanced_accuracy")).tree, greater: true };
  }

  buildAxisChoice() {
    const select = this.part("axis");
    if (!select) return;
    select.replaceChildren(...this.data.labels.map((label, k) => html("option", { value: k }, label)));
    select.value = String(this.axis);
    select.addEventListener("change", () => this.choose(Number(select.value)));
  }

  choose(k) {
    this.axis = k;
    if (this.part("axis")) this.part("axis").value = String(k);
    if (this.values.length > MANY_AXES) this.buildSliders();
    if (this.data.labels.length > COST_GRID || this.data.task !== "multiclass") this.buildCosts();
    this.update();
  }

  buildSliders() {
    const what = this.model.offsets ? "Offset of" : "Threshold for";
    this.part("sliders").replaceChildren(...this.shownAxes().map((k) => {
      const row = html("div", { class: "slider-row" });
      const label = html("label", { for: `x-slider-${k}` }, `${what} `);
      label.append(html("b", {}, this.nameOf(k)));
      const slider = html("input", { type: "range", id: `x-slider-${k}`, "data-axis": k });
      const box = html("input", { type: "number", step: "any", id: `x-number-${k}`, "data-axis": k, "aria-label": `${what} ${this.nameOf(k)}, as a number` });
      slider.addEventListener("input", () => this.set(k, this.model.fromSlider(k, Number(slider.value))));
      slider.addEventListener("focus", () => { if (this.axis !== k) this.choose(k); });
      box.addEventListener("change", () => { if (box.value !== "" && Number.isFinite(Number(box.value))) this.set(k, Number(box.value)); else this.update(); });
      row.append(label, slider, box);
      return row;
    }));
  }

  buildCosts() {
    const place = this.part("costs"), labels = this.data.labels, axis = this.axis;
    const input = (id, text, get, set) => {
      const row = html("div", { class: "field" });
      row.append(html("label", { for: id }, text));
      const box = html("input", { type: "number", min: 0, step: "any", id, value: get() });
      box.addEventListener("input", () => { const v = Number(box.value); if (box.value !== "" && Number.isFinite(v)) { set(v); this.update(); } });
      row.append(box);
      return row;
    };
    if (this.data.task !== "multiclass") {
      const name = this.nameOf(axis), yes = this.positive, no = 1 - yes;
      place.replaceChildren(
        input("x-cost-fp", `A false alarm (called ${name}, is not) costs`, () => this.costs[no][yes], (v) => { this.costs[no][yes] = v; }),
        input("x-cost-fn", `A miss (is ${name}, not found) costs`, () => this.costs[yes][no], (v) => { this.costs[yes][no] = v; }));
    } else if (labels.length <= COST_GRID) {
      const table = html("table", { class: "cost-grid" });
      const head = html("tr");
      head.append(html("th", { scope: "col" }, "true \\ called"), ...labels.map((l) => html("th", { scope: "col" }, l)));
      table.append(head, ...labels.map((label, i) => {
        const row = html("tr");
        row.append(html("th", { scope: "row" }, label), ...labels.map((other, j) => {
          const cell = html("td");
          if (i === j) { cell.textContent = "0"; return cell; }
          const box = html("input", { type: "number", min: 0, step: "any", id: `x-cost-${i}-${j}`, value: this.costs[i][j], "aria-label": `Cost of calling ${label} ${other}` });
          box.addEventListener("input", () => { const v = Number(box.value); if (box.value !== "" && Number.isFinite(v)) { this.costs[i][j] = v; this.update(); } });
          cell.append(box);
          return cell;
        }));
        return row;
      }));
      place.replaceChildren(table);
    } else {
      const other = axis ? 0 : 1;
      place.replaceChildren(input("x-cost-miss", `Missing a row of ${labels[axis]} costs`, () => this.costs[axis][other],
        (v) => this.costs[axis].forEach((_, j) => { if (j !== axis) this.costs[axis][j] = v; })));
    }
  }

  buildMetrics() {
    const own = { spec: this.data.metric.spec, name: this.data.metric.name, tree: this.metricTree(), greater: this.data.metric.greater, own: true, about: "What this model was trained for." };
    this.listed = [own, ...this.data.metrics.filter((m) => m.spec !== own.spec)];
    this.part("metrics").replaceChildren(...this.listed.map((m) => {
      const row = html("tr", { "data-spec": m.spec, class: m.own ? "own" : "" });
      const name = html("th", { scope: "row", title: `${m.spec}: ${m.about}` }, m.name);
      row.append(name, html("td", { class: "number now" }), html("td", { class: "number start" }), html("td", { class: "number change" }));
      return row;
    }));
  }

  wire() {
    const on = (name, event, action) => { const node = this.part(name); if (node) node.addEventListener(event, action); };
    on("start", "click", () => { this.held = false; this.part("hold").checked = false; this.values = this.data.start.slice(); this.update(); });
    on("best", "click", () => this.jump((cm) => {
      const { tree, greater } = this.curveOf(), value = valueOf(tree, cm, this.costs);
      return meetsLimits(tree, cm, this.costs) ? (greater ? value : -value) : -Infinity;
    }));
    on("cheapest", "click", () => this.jump((cm) => -valueOf({ kind: "cost" }, cm, this.costs)));
    on("hold", "change", () => { this.held = this.part("hold").checked; this.update(this.held); });
    on("recall", "input", () => { if (this.held) this.update(true); });
    on("copy-cli", "click", () => this.copy(`metricfit tune MODEL ${this.model.option(this.values)}`));
    on("copy-json", "click", () => this.copy(JSON.stringify(this.model.rule(this.values))));
  }

  // Along the chosen slider to where a quality is best; of equals the nearest.
  jump(quality) {
    const now = this.values[this.axis];
    let best = null;
    for (const [value, cm] of this.curve()) {
      const q = quality(cm), far = Math.abs(value - now);
      if (best === null || q > best.q || (q === best.q && far < best.far)) best = { q, far, value };
    }
    if (best && best.q > -Infinity) this.set(this.axis, Number(best.value.toPrecision(12)));
  }

  set(k, value) {
    this.values[k] = this.model.snap(k, value);
    if (this.axis !== k) this.choose(k); else this.update();
  }

  // The curve along the chosen slider does not change while only that slider moves.
  curve() {
    const others = this.values.filter((_, k) => k !== this.axis).join();
    if (!this.known || this.known.others !== others || this.known.axis !== this.axis) {
      this.known = { others, axis: this.axis, points: this.model.curve(this.axis, this.values) };
    }
    return this.known.points;
  }

  holdRecall(go) {
    const said = this.part("held");
    said.textContent = "";
    if (!this.held) return;
    const wanted = Number(this.part("recall").value);
    if (!(wanted >= 0 && wanted <= 1)) { said.textContent = "Give a recall between 0 and 1."; return; }
    this.model.current = this.values;
    const limit = this.model.atRecall(this.axis, wanted);
    if (limit === null) { said.textContent = `No decision reaches this recall of ${this.nameOf(this.axis)} on these rows.`; return; }
    if (go || !this.model.holds(this.axis, this.values[this.axis], limit)) {
      this.values[this.axis] = limit;
      said.textContent = `Held at ${limit}: ${this.model.offsets ? "the lowest offset" : "the highest threshold"} with recall of ${this.nameOf(this.axis)} ≥ ${wanted}.`;
    }
  }

  update(go = false) {
    this.holdRecall(go);
    const cm = this.model.matrix(this.values), unsure = this.model.unsure;
    this.showSliders();
    this.showMatrix(cm);
    this.showMetrics(cm);
    this.showRule();
    this.part("unsure").textContent = unsure ? `With offsets this large ${unsure.toLocaleString("en")} rows may be decided otherwise: only their ${this.model.width} most probable classes are in this page.` : "";
    clearTimeout(this.later);
    this.later = setTimeout(() => this.announce(cm), 350);
    if (!this.waiting) {
      this.waiting = true;
      requestAnimationFrame(() => { this.waiting = false; this.showCharts(); });
    }
  }

  showSliders() {
    for (const k of this.shownAxes()) {
      const slider = this.part(`slider-${k}`), box = this.part(`number-${k}`), at = this.model.slider(k, this.values[k]);
      for (const key of ["min", "max", "step"]) slider.setAttribute(key, at[key]);
      slider.value = at.value;
      const shown = String(Number(this.values[k].toPrecision(6)));
      if (document.activeElement !== box || Number(box.value) !== this.values[k]) box.value = shown;
      slider.setAttribute("aria-valuetext", shown);
      slider.closest(".slider-row").classList.toggle("chosen", k === this.axis && this.values.length > 1);
    }
    const moved = this.values.length > MANY_AXES ? this.values.map((v, k) => [v, k]).filter(([v, k]) => v !== this.data.start[k]) : [];
    this.part("moved").textContent = moved.length ? "Moved: " + moved.map(([v, k]) => `${this.nameOf(k)} ${digits(v, 2)}`).join(", ") : "";
  }

  showMatrix(cm) {
    const small = this.data.task === "multilabel" || cm.size > MANY_CLASSES;
    const names = small ? [`not ${this.nameOf(this.axis)}`, this.nameOf(this.axis)] : this.data.labels;
    const cells = small ? this.model.ofAxis(this.axis, cm) : cm.cells, size = names.length;
    this.part("matrix").classList.toggle("many", size > 5);
    const head = html("tr");
    head.append(html("th", { scope: "col", class: "corner" }, "true \\ called"), ...names.map((n) => html("th", { scope: "col" }, n)));
    const body = names.map((name, i) => {
      const total = sum(Array.from({ length: size }, (_, j) => cells[i * size + j]));
      const row = html("tr");
      row.append(html("th", { scope: "row" }, name), ...names.map((_, j) => {
        const count = cells[i * size + j], share = total > 0 ? count / total : 0;
        const cell = html("td", { class: `cell heat-${Math.min(9, Math.floor(share * 10))}${i === j ? " right" : ""}`, "data-cell": `${i},${j}`, "data-value": count });
        cell.append(html("span", { class: "count" }, counted(count)), html("span", { class: "share" }, total > 0 ? `${(100 * share).toFixed(1)} %` : "–"));
        return cell;
      }));
      return row;
    });
    this.part("matrix").replaceChildren(head, ...body);
  }

  showMetrics(cm) {
    const rows = this.part("metrics").rows;
    this.listed.forEach((m, i) => {
      const now = valueOf(m.tree, cm, this.costs), start = valueOf(m.tree, this.startMatrix, this.costs);
      const [value, before, change] = rows[i].querySelectorAll("td");
      value.textContent = digits(now);
      value.setAttribute("data-value", now === null ? "" : now);
      before.textContent = digits(start);
      const gain = (now - start) * (m.greater ? 1 : -1);
      change.textContent = m.tree.kind === "fixed" ? "fixed" : !(Math.abs(gain) >= 5e-5) ? "=" : `${gain > 0 ? "▲" : "▼"} ${digits(Math.abs(now - start))}`;
      change.className = `number change ${gain >= 5e-5 ? "up" : gain <= -5e-5 ? "down" : ""}`;
    });
    const limits = this.part("limits"), tree = this.metricTree();
    limits.textContent = tree.kind !== "limited" ? "" : tree.limits.map((limit) => {
      const value = valueOf(limit.metric, cm, this.costs);
      const met = limit.operator === ">=" ? value >= limit.bound : value <= limit.bound;
      return `${limit.text}: ${digits(value)}, ${met ? "met" : "not met"}`;
    }).join("; ");
  }

  showRule() {
    this.part("rule").textContent = `metricfit tune MODEL ${this.model.option(this.values)}`;
    this.part("json").textContent = JSON.stringify(this.model.rule(this.values));
  }

  announce(cm) {
    const c = this.model.ofAxis(this.axis, cm), name = this.nameOf(this.axis);
    const recall = divide(c[3], c[2] + c[3], NaN), precision = divide(c[3], c[1] + c[3], NaN);
    const value = valueOf(this.metricTree(), cm, this.costs), cost = valueOf({ kind: "cost" }, cm, this.costs);
    const where = `${this.model.offsets ? "Offset of" : "Threshold for"} ${name} ${Number(this.values[this.axis].toPrecision(4))}`;
    this.part("answer").textContent = `${where}: ${this.data.metric.name} ${digits(value, 3)}; precision of ${name} ${digits(precision, 3)}, recall ${digits(recall, 3)}; expected cost ${digits(cost, 3)} per row.`;
  }

  showCharts() {
    const k = this.axis, name = this.nameOf(k), axis = this.model.axes[k], now = this.values[k];
    const x = { label: this.model.offsets ? `offset of ${name}` : `threshold for ${name}`, range: this.model.offsets ? [-4, 4] : [0, 1] };
    const points = this.curve(), cm = this.model.matrix(this.values), here = [{ x: now, style: "now", name: "now" }];
    const what = this.curveOf();
    const metric = points.map(([v, m]) => [v, valueOf(what.tree, m, this.costs)]);
    const at = valueOf(what.tree, cm, this.costs);
    drawChart(document.getElementById("c-metric"), {
      label: `${what.name} over the ${x.label}; now ${digits(at, 3)} at ${digits(now, 3)}.`, x, y: { label: what.name },
      series: [{ name: what.name, style: "s1", points: metric }], lines: here, marks: [{ x: now, y: at, label: digits(at, 3) }],
    });
    const cost = points.map(([v, m]) => [v, valueOf({ kind: "cost" }, m, this.costs)]);
    const paid = valueOf({ kind: "cost" }, cm, this.costs), least = cost.reduce((a, b) => (b[1] < a[1] ? b : a), cost[0]);
    drawChart(document.getElementById("c-cost"), {
      label: `Expected cost per row over the ${x.label}; now ${digits(paid, 3)}, least ${digits(least[1], 3)} at ${digits(least[0], 3)}.`, x, y: { label: "expected cost per row" },
      series: [{ name: "expected cost", style: "s2", points: cost }], lines: here,
      marks: [{ x: least[0], y: least[1], shape: "ring", name: "least" }, { x: now, y: paid, label: digits(paid, 3) }],
    });
    const c = this.model.ofAxis(k, cm);
    const recall = divide(c[3], c[2] + c[3], NaN), precision = divide(c[3], c[1] + c[3], NaN), alarms = divide(c[1], c[0] + c[1], NaN);
    drawCurves(axis, name, { recall, precision, alarms });
  }

  async copy(text) {
    const said = this.part("copied");
    try { await navigator.clipboard.writeText(text); said.textContent = "Copied."; } catch {
      const box = html("textarea"); box.value = text; document.body.append(box); box.select();
      said.textContent = document.execCommand("copy") ? "Copied." : "Copy it from the text below.";
      box.remove();
    }
  }
}

function drawCurves(axis, name, point) {
  const unit = [0, 1], share = axis.positives / (axis.positives + axis.negatives);
  const pr = [], roc = [];
  axis.cuts.forEach((_, i) => {
    const tp = axis.tp[i], fp = axis.fp[i];
    if (tp + fp > 0 && axis.positives > 0) pr.push([tp / axis.positives, tp / (tp + fp)]);
    if (axis.positives > 0 && axis.negatives > 0) roc.push([fp / axis.negatives, tp / axis.positives]);
  });
  const mark = (x, y) => (Number.isNaN(x) || Number.isNaN(y) ? [] : [{ x, y, name: "operating point" }]);
  const area = (v) => (v === null ? "not defined, the class does not occur" : digits(v, 3));
  drawChart(document.getElementById("c-pr"), {
    label: `Precision over recall of ${name}; area ${area(axis.auprc)}; operating point at recall ${digits(point.recall, 3)} and precision ${digits(point.precision, 3)}.`,
    x: { label: `recall of ${name}`, range: unit }, y: { label: "precision", range: unit }, readout: false,
    series: [{ name: `area ${area(axis.auprc)}`, style: "s1", points: pr.reverse() }, { name: "by chance", style: "s3", points: [[0, share], [1, share]] }],
    marks: mark(point.recall, point.precision),
  });
  drawChart(document.getElementById("c-roc"), {
    label: `ROC curve of ${name}; area ${area(axis.auroc)}; operating point at false positive rate ${digits(point.alarms, 3)} and recall ${digits(point.recall, 3)}.`,
    x: { label: "false positive rate", range: unit }, y: { label: `recall of ${name}`, range: unit }, readout: false,
    series: [{ name: `area ${area(axis.auroc)}`, style: "s1", points: roc.reverse() }, { name: "by chance", style: "s3", points: [[0, 0], [1, 1]] }],
    marks: mark(point.alarms, point.recall),
  });
}
