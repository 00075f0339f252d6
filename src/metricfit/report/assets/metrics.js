// The metrics of a confusion matrix, formula by formula as in metricfit.metrics.
// A matrix is {task, size, cells}: cells[i * size + j] for true i and predicted j, or per label [tn, fp, fn, tp].

const TINY = Number.MIN_VALUE * 2 ** 52;
const divide = (a, b, zero = 0) => (Math.abs(b) <= TINY ? zero : a / b);
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

function meanOfSupported(pairs, zero) {
  const known = pairs.filter(([, support]) => support > 0);
  return divide(sum(known.map(([hits, support]) => hits / support)), known.length, zero);
}

function rootOfSupported(pairs, zero) {
  const known = pairs.filter(([, support]) => support !== 0);
  if (!known.length) return zero;
  const recalls = known.map(([hits, support]) => hits / support);
  if (recalls.some((r) => r <= TINY)) return 0;
  return Math.exp(sum(recalls.map(Math.log)) / recalls.length);
}

const covariance = (c) => c.tp * c.tn - c.fp * c.fn;
const kappa = (c, node) =>
  divide(2 * covariance(c), (c.tp + c.fn) * (c.fn + c.tn) + (c.tp + c.fp) * (c.fp + c.tn), node.zero);
const jaccard = (c, node) => divide(c.tp, c.tp + c.fp + c.fn, node.zero);
const informedness = (c, node) => divide(covariance(c), (c.tp + c.fn) * (c.fp + c.tn), node.zero);

function fbeta(c, node, k) {
  const beta = Array.isArray(node.beta) ? node.beta[k] : node.beta;
  const hits = (1 + beta * beta) * c.tp;
  return divide(hits, hits + beta * beta * c.fn + c.fp, node.zero);
}

const OF_CLASS = {
  accuracy: (c, n) => divide(c.tp + c.tn, c.tp + c.fp + c.fn + c.tn, n.zero),
  balanced_accuracy: (c, n) => meanOfSupported([[c.tp, c.tp + c.fn], [c.tn, c.tn + c.fp]], n.zero),
  precision: (c, n) => divide(c.tp, c.tp + c.fp, n.zero),
  recall: (c, n) => divide(c.tp, c.tp + c.fn, n.zero),
  specificity: (c, n) => divide(c.tn, c.tn + c.fp, n.zero),
  npv: (c, n) => divide(c.tn, c.tn + c.fn, n.zero),
  fpr: (c, n) => divide(c.fp, c.fp + c.tn, n.zero),
  fnr: (c, n) => divide(c.fn, c.fn + c.tp, n.zero),
  predicted_share: (c, n) => divide(c.tp + c.fp, c.tp + c.fp + c.fn + c.tn, n.zero),
  f1: (c, n) => divide(2 * c.tp, 2 * c.tp + c.fn + c.fp, n.zero),
  fbeta,
  jaccard,
  csi: jaccard,
  gmean: (c, n) => rootOfSupported([[c.tp, c.tp + c.fn], [c.tn, c.tn + c.fp]], n.zero),
  fowlkes_mallows: (c, n) => divide(c.tp, root(c.tp + c.fp) * root(c.tp + c.fn), n.zero),
  mcc: (c, n) => divide(
    covariance(c), root((c.tp + c.fp) * (c.tn + c.fn)) * root((c.tp + c.fn) * (c.tn + c.fp)), n.zero),
  kappa,
  hss: kappa,
  informedness,
  tss: informedness,
  markedness: (c, n) => divide(covariance(c), (c.tp + c.fp) * (c.fn + c.tn), n.zero),
  cost: (c, n) => costOf([c.tn, c.fp, c.fn, c.tp], n.matrix, n.zero),
};

// Forms of several classes that are no average of one class's values.
const OF_MATRIX = {
  accuracy: (cs, cm, n) => divide(sum(cs.map((c) => c.tp)), sum(cm.cells), n.zero),
  balanced_accuracy: (cs, cm, n) => meanOfSupported(cs.map((c) => [c.tp, c.tp + c.fn]), n.zero),
  gmean: (cs, cm, n) => rootOfSupported(cs.map((c) => [c.tp, c.tp + c.fn]), n.zero),
  mcc: (cs, cm, n) => divide(
    sum(cs.map(covariance)),
    root(sum(cs.map((c) => (c.tp + c.fp) * (c.tn + c.fn)))) * root(sum(cs.map((c) => (c.tp + c.fn) * (c.tn + c.fp)))),
    n.zero),
  hss: (cs, cm, n) => divide(sum(cs.map(covariance)), sum(cs.map((c) => (c.tp + c.fn) * (c.fn + c.tn))), n.zero),
  tss: (cs, cm, n) => divide(sum(cs.map(covariance)), sum(cs.map((c) => (c.tp + c.fn) * (c.fp + c.tn))), n.zero),
  kappa: (cs, cm, n) => {
    const weight = { none: (d) => (d ? 1 : 0), linear: (d) => d, quadratic: (d) => d * d }[n.weights || "none"];
    const total = sum(cm.cells) || 1;
    let chance = 0, seen = 0;
    for (let i = 0; i < cm.size; i++) for (let j = 0; j < cm.size; j++) {
      const w = weight(Math.abs(i - j));
      chance += w * ((cs[i].tp + cs[i].fn) / total) * ((cs[j].tp + cs[j].fp) / total);
      seen += w * (cm.cells[i * cm.size + j] / total);
    }
    return divide(chance - seen, chance, n.zero);
  },
  cost: (cs, cm, n) => costOf(cm.cells, n.matrix, n.zero),
};

function costOf(cells, matrix, zero = 0) {
  const flat = matrix.flat();
  let total = 0;
  for (let i = 0; i < flat.length; i++) total += flat[i] * cells[i];
  return divide(total, sum(cells), zero);
}

function average(values, counts, node) {
  let known = values.map((_, k) => k);
  if (Number.isNaN(node.zero)) known = known.filter((k) => !Number.isNaN(values[k]));
  const support = (k) => counts[k].tp + counts[k].fn;
  const bySupport = node.average === "weighted" && sum(known.map(support)) > 0;
  const weights = known.map((k) => (bySupport ? support(k) : 1));
  return divide(sum(known.map((k, i) => values[k] * weights[i])), sum(weights), node.zero);
}

function ofClassMetric(given, cm) {
  const node = given.zero === "nan" ? { ...given, zero: NaN } : given;
  const formula = OF_CLASS[node.name], counts = countsOf(cm);
  if (node.index !== null && node.index !== undefined) return formula(counts[node.index], node, node.index);
  let kind = node.average;
  if (kind === "auto") {
    if (cm.task !== "multilabel" && OF_MATRIX[node.name]) return OF_MATRIX[node.name](counts, cm, node);
    if (cm.task === "binary") return formula(counts[1], node, 1);
    kind = "macro";
  }
  if (kind === "micro") {
    const all = { tp: 0, fp: 0, fn: 0, tn: 0 };
    for (const c of counts) for (const key in all) all[key] += c[key];
    return formula(all, node, 0);
  }
  return average(counts.map((c, k) => formula(c, node, k)), counts, { ...node, average: kind });
}

// The value of a metric's tree (see formula.py); null where it has none.
function valueOf(node, cm, costs) {
  switch (node.kind) {
    case "number": case "fixed": return node.value;
    case "cost": return ofClassMetric({ name: "cost", average: "auto", index: null, zero: 0, matrix: costs }, cm);
    case "limited": return valueOf(node.objective, cm, costs);
    case "class": return ofClassMetric(node, cm);
    case "join": {
      const left = valueOf(node.left, cm, costs), right = valueOf(node.right, cm, costs);
      if (left === null || right === null) return null;
      switch (node.operator) {
        case "+": return left + right;
        case "-": return left - right;
        case "*": return left * right;
        default: return divide(left, right);
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
