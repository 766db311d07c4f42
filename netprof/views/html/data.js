"use strict";
// The page's data, unpacked: base64 of deflated little-endian arrays (see netprof/views/html/pack.py).
const Data = {
  types: { u1: Uint8Array, u2: Uint16Array, i4: Int32Array, f8: Float64Array },

  async unpack(packed) {
    const text = atob(packed.data);
    const bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    const array = new Data.types[packed.type](await new Response(stream).arrayBuffer());
    if (!packed.delta) return array;
    const sums = new Float64Array(array.length);
    let sum = 0;
    for (let i = 0; i < array.length; i++) sums[i] = sum += array[i];
    return sums;
  },

  // Replace every packed array below `node` by its numbers.
  async unpackAll(node) {
    if (node === null || typeof node !== "object") return node;
    if (typeof node.data === "string" && node.type in Data.types) {
      return "unit" in node ? { unit: node.unit, values: await Data.unpack(node) } : Data.unpack(node);
    }
    await Promise.all(Object.keys(node).map(async (key) => { node[key] = await Data.unpackAll(node[key]); }));
    return node;
  },
};

// A set of disjoint intervals, ascending, that can say how much of any stretch it covers.
class Spans {
  constructor(begin, end) {
    this.begin = begin;
    this.end = end;
    this.before = new Float64Array(begin.length + 1);
    for (let i = 0; i < begin.length; i++) this.before[i + 1] = this.before[i] + end[i] - begin[i];
  }
  get length() { return this.begin.length; }
  coveredUntil(us) {
    const i = Spans.lastAtOrBefore(this.begin, us);
    return i < 0 ? 0 : this.before[i] + Math.min(us, this.end[i]) - this.begin[i];
  }
  // Index of the interval that holds `us`, or -1.
  at(us) {
    const i = Spans.lastAtOrBefore(this.begin, us);
    return i >= 0 && us < this.end[i] ? i : -1;
  }
  // Indices [from, to) of the intervals that touch a stretch.
  touching(from, to) {
    let low = Math.max(0, Spans.lastAtOrBefore(this.begin, from));
    if (low < this.length && this.end[low] <= from) low++;
    return [low, Spans.lastAtOrBefore(this.begin, to) + 1];
  }
  static lastAtOrBefore(sorted, value) {
    let low = 0, high = sorted.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (sorted[middle] <= value) low = middle + 1; else high = middle;
    }
    return low - 1;
  }
}

// One direction of a link at every zoom: level k holds the mean and the peak of 4^k cells, so no peak is ever lost.
class Pyramid {
  constructor(lane) {
    this.first = lane.first_us;
    this.unit = lane.mean.unit;
    const peak = lane.peak;
    // Both are on the same scale: cells wider than a bin carry their largest bin apart.
    this.levels = [{ width: lane.cell_us, mean: lane.mean.values, peak: peak ? peak.values : lane.mean.values }];
    while (this.levels[this.levels.length - 1].mean.length > 64) this.levels.push(this.coarser());
  }
  coarser() {
    const below = this.levels[this.levels.length - 1];
    const count = Math.ceil(below.mean.length / 4);
    const mean = new Float32Array(count), peak = new below.peak.constructor(count);
    for (let i = 0; i < count; i++) {
      const to = Math.min(4 * i + 4, below.mean.length);
      let sum = 0, top = 0;
      for (let j = 4 * i; j < to; j++) { sum += below.mean[j]; if (below.peak[j] > top) top = below.peak[j]; }
      mean[i] = sum / 4;
      peak[i] = top;
    }
    return { width: below.width * 4, mean, peak };
  }
  // Mean and peak in bit/s over a stretch, from the coarsest level whose cells are no wider than `pixel`.
  over(from, to, pixel) {
    let k = 0;
    while (k + 1 < this.levels.length && this.levels[k + 1].width <= pixel) k++;
    const { width, mean, peak } = this.levels[k];
    let low = Math.floor((from - this.first) / width), high = Math.ceil((to - this.first) / width);
    if (high <= 0 || low >= mean.length) return [0, 0];
    let sum = 0, top = 0;
    const begin = Math.max(low, 0), end = Math.min(high, mean.length);
    for (let i = begin; i < end; i++) {
      const left = this.first + i * width;
      sum += mean[i] * (Math.min(to, left + width) - Math.max(from, left));
      if (peak[i] > top) top = peak[i];
    }
    return [sum / (to - from) * this.unit, top * this.unit];
  }
  get cell() { return this.levels[0].width; }
}
