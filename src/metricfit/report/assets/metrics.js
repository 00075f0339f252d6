// Metrics of a confusion matrix. Their FORMULAS are generated from metricfit.metrics; 0/0 in them is NaN.
// A matrix is {task, size, cells}: cells[i * size + j] for true i and predicted j, or per label [tn, fp, fn, tp].

const TINY = Number.MIN_VALUE * 2 ** 52;
const divide = (a, b, zero = NaN) => (Math.abs(b) <= TINY ? zero : a / b);
const sum = (values) => { let total = 0; for (const v of values) total += v; return total; };

function countsOf(cm) {
  const found = [];
  const { size, cells } = cm;
  if (cm.task === "multilabel") {
    for (let k = 0; k < size; k++) {
      found.push({ tn: cells[4 * k], fp: cells[4 * k + 1], fn: cells[4 * k + 2], tp: cells[4 * k + 3] });
    }
    return found;
  }
  const rows = new Float64Array(size), columns = new Float64Array(size);
  for (let i = 0; i < size; i++) for (let j = 0; j < size; j++) if (i !== j) {
    rows[i] += cells[i * size + j];
    columns[j] += cells[i * size + j];
  }
  let total = 0;
  for (let k = 0; k < size; k++) total += cells[k * size + k] + rows[k];
  for (let k = 0; k < size; k++) {
    const tp = cells[k * size + k];
    const tn = size === 2 ? cells[(1 - k) * 3] : Math.max(0, total - tp - rows[k] - columns[k]);
    found.push({ tp, fp: columns[k], fn: rows[k], tn });
  }
  return found;
}

const root = (value) => (value <= TINY ? 0 : Math.sqrt(value));

// What the generated formulas call. A formula of the whole matrix is given m: its counts by class, its cells and their sum.
const matrixOf = (size, cells, classes) => ({ size, cells, classes, n: sum(cells) });
const total = (m, term) => sum(m.classes.map(term));
const defined = (m, term) => m.classes.map(term).filter((v) => !Number.isNaN(v));

function mean(m, term) {
  const values = defined(m, term);
  return divide(sum(values), values.length);
}

function geometricMean(m, term) {
  const values = defined(m, term);
  if (values.some((v) => v <= TINY)) return 0;
  return Math.exp(divide(sum(values.map(Math.log)), values.length));
}

// The sum of w[i][j] times a quantity of the cell; w is a matrix, or names a power of the distance |i - j|.
function weighted(m, weights, quantity) {
  const power = { none: (d) => (d ? 1 : 0), linear: (d) => d, quadratic: (d) => d * d }[weights];
  let found = 0;
  for (let i = 0; i < m.size; i++) for (let j = 0; j < m.size; j++) {
    found += (power ? power(Math.abs(i - j)) : weights[i][j]) * quantity(i, j);
  }
  return found;
}

const observed = (m, weights) => weighted(m, weights, (i, j) => m.cells[i * m.size + j]);

function expected(m, weights) {
  const t = m.classes.map((c) => c.tp + c.fn), p = m.classes.map((c) => c.tp + c.fp);
  return weighted(m, weights, (i, j) => t[i] * p[j]);
}

function average(values, counts, node) {
  let known = values.map((_, k) => k);
  if (Number.isNaN(node.zero)) known = known.filter((k) => !Number.isNaN(values[k]));
  const support = (k) => counts[k].tp + counts[k].fn;
  const bySupport = node.average === "weighted" && sum(known.map(support)) > 0;
  const weights = known.map((k) => (bySupport ? support(k) : 1));
  return divide(sum(known.map((k, i) => values[k] * weights[i])), sum(weights), node.zero);
}

// The value of one class; a formula of the whole matrix is taken of the class and the rest.
function ofCounts(node, c, k) {
  const { whole, value } = FORMULAS[node.name], parameters = {};
  for (const [key, given] of Object.entries(node.parameters)) {
    parameters[key] = Array.isArray(given) && !Array.isArray(given[0]) ? given[k] : given;
  }
  if (!whole) return orZero(value(c, parameters), node);
  const cells = [c.tn, c.fp, c.fn, c.tp];
  return orZero(value(matrixOf(2, cells, countsOf({ size: 2, cells })), parameters), node);
}

const orZero = (value, node) => (Number.isNaN(value) ? node.zero : value);

function ofClassMetric(given, cm) {
  const node = given.zero === "nan" ? { ...given, zero: NaN } : given;
  const formula = FORMULAS[node.name], counts = countsOf(cm);
  if (node.index !== null && node.index !== undefined) return ofCounts(node, counts[node.index], node.index);
  let kind = node.average;
  if (kind === "auto") {
    if (cm.task !== "multilabel" && formula.whole) {
      return orZero(formula.value(matrixOf(cm.size, cm.cells, counts), node.parameters), node);
    }
    if (cm.task === "binary") return ofCounts(node, counts[1], 1);
    kind = "macro";
  }
  if (kind === "micro") {
    const all = { tp: 0, fp: 0, fn: 0, tn: 0 };
    for (const c of counts) for (const key in all) all[key] += c[key];
    return ofCounts(node, all, 0);
  }
  return average(counts.map((c, k) => ofCounts(node, c, k)), counts, { ...node, average: kind });
}

// The value of a metric's tree (see formula.py); null where it has none.
function valueOf(node, cm, costs) {
  switch (node.kind) {
    case "number": case "fixed": return node.value;
    case "cost": return ofClassMetric({ name: "cost", average: "auto", index: null, zero: 0, parameters: { matrix: costs } }, cm);
    case "limited": return valueOf(node.objective, cm, costs);
    case "class": return ofClassMetric(node, cm);
    case "join": {
      const left = valueOf(node.left, cm, costs), right = valueOf(node.right, cm, costs);
      if (left === null || right === null) return null;
      switch (node.operator) {
        case "+": return left + right;
        case "-": return left - right;
        case "*": return left * right;
        default: return divide(left, right, 0);
      }
    }
    default: return null;
  }
}

// Whether every constraint of a tree holds.
function meetsLimits(node, cm, costs) {
  if (node.kind !== "limited") return true;
  return node.limits.every((limit) => {
    const value = valueOf(limit.metric, cm, costs);
    return limit.operator === ">=" ? value >= limit.bound : value <= limit.bound;
  });
}
