// What the explorer moves: thresholds with exact counts, or class offsets applied to rows of probabilities.

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

function ruleJson(data, kind, name, value) {
  return { format: "metricfit.decision_rule", version: 1, kind, classes: data.classes, [name]: value };
}

// One score: the counts at each of its cut-offs. A threshold that is typed is exact where all scores are here, else it
// goes to the nearest cut-off.
class ThresholdAxis {
  constructor(axis) {
    Object.assign(this, axis);
    if (this.scores) this.reaches = this.cuts.map((cut) => this.reach(cut));
  }

  // How many distinct scores are called positive.
  reach(threshold) {
    const called = (score) => (this.strict ? score > threshold : score >= threshold);
    let low = 0, high = this.scores.length;
    while (low < high) { const mid = (low + high) >> 1; if (called(this.scores[mid])) high = mid; else low = mid + 1; }
    return this.scores.length - low;
  }

  place(threshold) {
    let low = 0, high = this.cuts.length - 1;
    while (low < high) { const mid = (low + high) >> 1; if (this.cuts[mid] >= threshold) high = mid; else low = mid + 1; }
    if (this.scores) {
      const reach = this.reach(threshold);
      while (low > 0 && this.reaches[low] < reach) low--;
      while (low < this.cuts.length - 1 && this.reaches[low] > reach) low++;
      return low;
    }
    return low > 0 && threshold - this.cuts[low - 1] < this.cuts[low] - threshold ? low - 1 : low;
  }

  snap(threshold) { return this.scores ? threshold : this.cuts[this.place(threshold)]; }

  cells(threshold) { return this.cellsAt(this.place(threshold)); }

  cellsAt(i) {
    const tp = this.tp[i], fp = this.fp[i];
    return [this.negatives - fp, fp, this.positives - tp, tp];
  }

  // The highest cut-off that still reaches the recall: the fewest alarms.
  atRecall(recall) {
    if (!(this.positives > 0)) return null;
    for (let i = this.cuts.length - 1; i >= 0; i--) if (this.tp[i] / this.positives >= recall) return this.cuts[i];
    return null;
  }
}

class ThresholdModel {
  constructor(data) {
    this.data = data;
    this.axes = data.axes.map((axis) => new ThresholdAxis(axis));
    this.offsets = false;
    this.size = data.task === "binary" ? 2 : data.labels.length;
    this.unsure = 0;
  }

  matrix(values) {
    if (this.data.task === "binary") return this.ofTwo(this.axes[0].cells(values[0]));
    return { task: "multilabel", size: this.size, cells: this.axes.flatMap((axis, k) => axis.cells(values[k])) };
  }

  // An axis counts [tn, fp, fn, tp] of the positive class, which may be the first of the two: then the matrix is the reverse.
  turned(cells) { return this.data.positive ? cells : [...cells].reverse(); }
  ofTwo(cells) { return { task: "binary", size: 2, cells: this.turned(cells) }; }

  // The decision about one label alone, for its own little matrix.
  ofAxis(k, cm) { return this.data.task === "binary" ? this.turned(cm.cells) : cm.cells.slice(4 * k, 4 * k + 4); }

  curve(k, values) {
    const axis = this.axes[k], fixed = this.matrix(values);
    return axis.cuts.map((cut, i) => {
      if (this.data.task === "binary") return [cut, this.ofTwo(axis.cellsAt(i))];
      const cells = fixed.cells.slice();
      axis.cellsAt(i).forEach((count, c) => { cells[4 * k + c] = count; });
      return [cut, { task: "multilabel", size: this.size, cells }];
    });
  }

  snap(k, value) { return this.axes[k].snap(value); }
  atRecall(k, recall) { return this.axes[k].atRecall(recall); }
  holds(k, value, limit) { return value <= limit; }
  slider(k, value) { return { min: 0, max: this.axes[k].cuts.length - 1, step: 1, value: this.axes[k].place(value) }; }
  fromSlider(k, position) { return this.axes[k].cuts[position]; }

  // A rule's threshold is that of the second class.
  threshold(values) { return this.data.positive ? values[0] : Number((1 - values[0]).toPrecision(15)); }

  rule(values) {
    const binary = this.data.task === "binary";
    return binary ? ruleJson(this.data, "threshold", "threshold", this.threshold(values)) : ruleJson(this.data, "thresholds", "thresholds", values);
  }

  option(values) {
    return this.data.task === "binary" ? `--threshold ${this.threshold(values)}` : `--rule ${quoted(JSON.stringify(this.rule(values)))}`;
  }
}

function decoded(text, Type) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  return new Type(bytes.buffer);
}

// Several classes: the class with the highest probability times exp(offset), row by row.
class OffsetModel {
  constructor(data) {
    const sample = data.sample;
    this.data = data;
    this.size = data.labels.length;
    this.offsets = true;
    this.axes = data.axes;
    this.width = sample.width;
    this.p = decoded(sample.p, Float32Array);
    this.truth = decoded(sample.truth, Uint16Array);
    this.weight = sample.weight ? decoded(sample.weight, Float64Array) : null;
    this.index = sample.index ? decoded(sample.index, Uint16Array) : null;
    this.unsure = 0;
  }

  factors(values) {
    const highest = Math.max(...values);
    return Float64Array.from(values, (v) => Math.exp(v - highest));
  }

  matrix(values) {
    const { size, width, p, truth, weight, index } = this;
    const factor = this.factors(values), cells = new Float64Array(size * size);
    this.unsure = 0;
    for (let row = 0, at = 0; row < truth.length; row++, at += width) {
      let best = -1, chosen = 0, least = Infinity;
      for (let j = 0; j < width; j++) {
        const k = index ? index[at + j] : j, value = p[at + j] * factor[k];
        if (value > best) { best = value; chosen = k; }
        if (p[at + j] < least) least = p[at + j];
      }
      // A class that is not among a row's highest could still win if its offset is large enough.
      if (index && least > best && least * this.mostElsewhere(at, factor) > best) this.unsure++;
      cells[truth[row] * size + chosen] += weight ? weight[row] : 1;
    }
    return { task: "multiclass", size, cells };
  }

  // The largest factor of a class that is not in the row's list.
  mostElsewhere(at, factor) {
    if (this.ordered !== factor) {
      this.ordered = factor;
      this.order = Array.from(factor.keys()).sort((a, b) => factor[b] - factor[a]);
    }
    const listed = this.index.subarray(at, at + this.width);
    const other = this.order.find((k) => !listed.includes(k));
    return other === undefined ? 0 : factor[other];
  }

  ofAxis(k, cm) {
    const c = countsOf(cm)[k];
    return [c.tn, c.fp, c.fn, c.tp];
  }

  curve(k, values) {
    const points = this.size > 50 ? 41 : 81, moved = values.slice();
    return Array.from({ length: points }, (_, i) => {
      moved[k] = -4 + (8 * i) / (points - 1);
      return [moved[k], this.matrix(moved)];
    });
  }

  snap(k, value) { return Math.max(-20, Math.min(20, value)); }

  // The least offset, to a hundredth, that reaches the recall of a class.
  atRecall(k, recall) {
    const values = this.current.slice();
    const reaches = (offset) => {
      values[k] = offset;
      const c = countsOf(this.matrix(values))[k];
      return c.tp + c.fn > 0 && c.tp / (c.tp + c.fn) >= recall;
    };
    let low = -2000, high = 2000;
    if (!reaches(high / 100)) return null;
    while (low < high) { const mid = Math.floor((low + high) / 2); if (reaches(mid / 100)) high = mid; else low = mid + 1; }
    return high / 100;
  }

  holds(k, value, limit) { return value >= limit; }
  slider(k, value) { return { min: -5, max: 5, step: 0.01, value: Math.max(-5, Math.min(5, value)) }; }
  fromSlider(k, position) { return position; }
  rule(values) { return ruleJson(this.data, "offsets", "offsets", values); }
  option(values) { return `--rule ${quoted(JSON.stringify(this.rule(values)))}`; }
}
