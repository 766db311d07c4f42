"use strict";
// What the tracks are made of: each lane draws itself over a stretch of time and can say what is at an instant.
const Style = {
  colours: {},
  read() {
    const style = getComputedStyle(document.documentElement);
    const names = ["ground", "paper", "ink", "dim", "line", "soft", "accent", "forward", "backward", "exposed_communication", "rest", "tx", "rx",
      "rate", "inferred", "no_gradient", "gradients_waiting", "nothing_outstanding", "after_last_byte", "idle", "ready", "queued",
      "wire", "unpack", "shade", "hatch", "late_rank", "link_full", "other_traffic", "loss", "transport", "host", "unseen",
      "rank0", "rank1", "rank2", "rank3", "rank4", "rank5"];
    for (const name of names) Style.colours[name] = style.getPropertyValue("--" + name).trim();
    Style.colours.exposed = Style.colours.exposed_communication;
    Style.font = getComputedStyle(document.body).fontFamily;
    Style.patterns = new Map();
  },
  // Each kind of span has a texture too, so that the page reads without colour.
  textures: {
    forward: "plain", backward: "rising", exposed_communication: "falling", rest: "dots",
    no_gradient: "plain", gradients_waiting: "falling", nothing_outstanding: "dots", after_last_byte: "rising",
    idle: "plain", inferred: "rising", queued: "rising", wire: "plain", unpack: "dots", ready: "plain",
    late_rank: "falling", link_full: "plain", other_traffic: "dots", loss: "rising", transport: "rising", host: "falling", unseen: "dots",
  },
  fill(context, kind) {
    const ratio = window.devicePixelRatio || 1;
    if (!Style.patterns.has(kind)) {
      const size = 8, tile = document.createElement("canvas");
      tile.width = tile.height = size * ratio;
      const c = tile.getContext("2d");
      c.scale(ratio, ratio);
      c.fillStyle = Style.colours[kind];
      c.fillRect(0, 0, size, size);
      c.strokeStyle = c.fillStyle = Style.colours.hatch;
      c.lineWidth = 1.6;
      const texture = Style.textures[kind];
      const up = texture === "rising";
      if (up || texture === "falling") {
        for (const shift of [-size, 0, size]) {
          c.beginPath();
          c.moveTo(shift - 2, up ? size + 2 : -2);
          c.lineTo(shift + size + 2, up ? -2 : size + 2);
          c.stroke();
        }
      } else if (texture === "dots") {
        c.beginPath(); c.arc(2, 2, 1.1, 0, 7); c.arc(6, 6, 1.1, 0, 7); c.fill();
      }
      const pattern = context.createPattern(tile, "repeat");
      pattern.setTransform(new DOMMatrix().scale(1 / ratio));
      Style.patterns.set(kind, pattern);
    }
    return Style.patterns.get(kind);
  },
};

// Where time lies on the canvas: `from`..`to` microseconds over pixels left..left+width.
class Scale {
  constructor(from, to, left, width) { Object.assign(this, { from, to, left, width }); }
  get pixel() { return (this.to - this.from) / this.width; }
  x(us) { return this.left + (us - this.from) / this.pixel; }
  us(x) { return this.from + (x - this.left) * this.pixel; }
}

class Lane {
  constructor(label, height) { this.label = label; this.height = height; }
}

// Utilization both ways: sent upwards, received downwards; the peak of every pixel behind its mean.
class LinkLane extends Lane {
  constructor(link) {
    super(link.label, 104);
    this.link = link;
    this.directions = [["tx", link.tx], ["rx", link.rx]].map(([kind, lane]) => [kind, lane && new Pyramid(lane)]);
    // A burst far above line rate (bins in which packets were seen late) must not flatten the rest: it is cut off, with
    // a mark where it is.
    this.top = link.rate_bps ? link.rate_bps * 1.25 : Math.max(link.peak_bps, 1) * 1.06;
  }
  draw(context, y, scale) {
    const middle = y + this.height / 2, unit = this.height / 2 / this.top, beyond = [];
    context.fillStyle = Style.colours.soft;
    context.fillRect(scale.left, y, scale.width, this.height);
    for (const [kind, pyramid] of this.directions) {
      if (pyramid === null) continue;
      const sign = kind === "tx" ? -1 : 1;
      for (const [alpha, which] of [[0.36, 1], [1, 0]]) {
        context.globalAlpha = alpha;
        context.fillStyle = Style.colours[kind];
        context.beginPath();
        for (let i = 0; i < scale.width; i++) {
          const begin = scale.from + i * scale.pixel;
          const bps = pyramid.over(begin, begin + scale.pixel, scale.pixel)[which];
          if (bps > this.top && which === 1) beyond.push([i, sign]);
          const height = Math.max(Math.min(bps, this.top) * unit, 0.6);
          if (bps > 0) context.rect(scale.left + i, sign < 0 ? middle - height : middle, 1, height);
        }
        context.fill();
      }
    }
    context.globalAlpha = 1;
    for (const [i, sign] of beyond) {
      context.fillStyle = sign < 0 ? Style.colours.tx : Style.colours.rx;
      context.fillRect(scale.left + i, sign < 0 ? y : y + this.height - 2, 1, 2);
    }
    context.fillStyle = Style.colours.dim;
    context.fillRect(scale.left, Math.round(middle) - 0.5, scale.width, 1);
    if (this.link.rate_bps) this.drawRate(context, middle, unit, scale);
    if (this.link.drops) this.drawDrops(context, middle, scale);
  }
  // Packets that the interface dropped: a cross between the two counter samples that tell of them.
  drawDrops(context, middle, scale) {
    const { begin, end } = this.link.drops;
    context.fillStyle = Style.colours.exposed;
    context.font = `700 13px ${Style.font}`;
    context.textAlign = "center";
    for (let i = 0; i < end.length; i++) {
      const x = scale.x((begin[i] + end[i]) / 2);
      if (x >= scale.left && x <= scale.left + scale.width) context.fillText("×", x, middle + 5);
    }
  }
  dropped(us, scale) {
    const { begin, end, packets } = this.link.drops, reach = 6 * scale.pixel;
    let sum = 0;
    for (let i = 0; i < end.length; i++) if (begin[i] - reach <= us && us <= end[i] + reach) sum += packets[i];
    return sum;
  }
  drawRate(context, middle, unit, scale) {
    context.strokeStyle = Style.colours.rate;
    context.globalAlpha = 0.55;
    context.setLineDash([5, 4]);
    context.lineWidth = 1;
    for (const sign of [-1, 1]) {
      const at = Math.round(middle + sign * this.link.rate_bps * unit) + 0.5;
      context.beginPath(); context.moveTo(scale.left, at); context.lineTo(scale.left + scale.width, at); context.stroke();
    }
    context.setLineDash([]);
    context.globalAlpha = 1;
  }
  drawLabel(context, y, right) {
    const middle = y + this.height / 2;
    Tracks.text(context, this.label, right, y + 13, Style.colours.ink, "600 12.5px");
    Tracks.text(context, "sent ▲", right, middle - 9, Style.colours.tx);
    Tracks.text(context, "received ▼", right, middle + 18, Style.colours.rx);
    const rate = this.link.rate_bps ? "┄ " + Numbers.rate(this.link.rate_bps) : "rate unknown";
    Tracks.text(context, rate, right, y + this.height - 5, Style.colours.dim, "11px");
  }
  describe(us, scale) {
    const pixel = Math.max(scale.pixel, this.cell);
    const begin = Math.floor((us - this.origin) / pixel) * pixel + this.origin;
    const lines = [this.label];
    for (const [kind, pyramid] of this.directions) {
      if (pyramid === null) continue;
      const [mean, peak] = pyramid.over(begin, begin + pixel, pixel);
      const share = this.link.rate_bps ? ` (${Numbers.share(mean / this.link.rate_bps)})` : "";
      const top = pixel > this.cell * 1.01 || pyramid.levels[0].mean !== pyramid.levels[0].peak ? `, peak ${Numbers.rate(peak)}` : "";
      lines.push(`${kind === "tx" ? "sent" : "received"} ${Numbers.rate(mean)}${share}${top}`);
    }
    lines.push(`over ${Numbers.micros(pixel)}`);
    const dropped = this.link.drops ? this.dropped(us, scale) : 0;
    if (dropped) lines.push(`the interface dropped ${dropped} packets around here`);
    return lines;
  }
  get first() { return this.directions.map(([, pyramid]) => pyramid).find((pyramid) => pyramid !== null); }
  get cell() { return this.first ? this.first.cell : 1000; }
  get origin() { return this.first ? this.first.first : 0; }
}

// Disjoint kinds of spans that share a lane; from afar each pixel shows their shares of its time, stacked.
class SpanLane extends Lane {
  constructor(label, height, kinds, names, captioned) {
    super(label, height);
    this.kinds = kinds;
    this.names = names;
    this.captioned = captioned;
  }
  draw(context, y, scale) {
    context.fillStyle = Style.colours.soft;
    context.fillRect(scale.left, y, scale.width, this.height);
    const ranges = this.kinds.map(([, spans]) => spans.touching(scale.from, scale.to));
    const most = Math.max(0, ...ranges.map(([low, high]) => high - low));
    this.exact = most <= scale.width / 5;
    this.kinds.forEach(([kind, spans], k) => {
      if (this.exact) this.drawEach(context, y, scale, kind, spans, ranges[k]);
    });
    if (!this.exact) this.drawShares(context, y, scale);
  }
  drawEach(context, y, scale, kind, spans, [low, high]) {
    for (let i = low; i < high; i++) {
      const left = Math.max(scale.left, scale.x(spans.begin[i]));
      const right = Math.min(scale.left + scale.width, scale.x(spans.end[i]));
      const width = Math.max(right - left, 0.5);
      context.fillStyle = Style.fill(context, kind);
      context.fillRect(left, y, width > 3 ? width - 0.75 : width, this.height);
      if (this.captioned && width > 46) this.caption(context, this.names[kind], left, y, width);
    }
  }
  caption(context, text, left, y, width) {
    context.font = `11.5px ${Style.font}`;
    let length = context.measureText(text).width;
    if (length > width - 12) { text = text.split(" ")[0]; length = context.measureText(text).width; }
    if (length > width - 12) return;
    context.fillStyle = Style.colours.paper;
    context.globalAlpha = 0.9;
    context.beginPath();
    context.roundRect(left + 4, y + this.height / 2 - 8, length + 8, 16, 3);
    context.fill();
    context.globalAlpha = 1;
    Tracks.text(context, text, left + 8, y + this.height / 2 + 4, Style.colours.ink, "11.5px", "left");
  }
  drawShares(context, y, scale) {
    const bottoms = new Float64Array(scale.width).fill(y + this.height);
    for (const [kind, spans] of this.kinds) {
      context.fillStyle = Style.fill(context, kind);
      context.beginPath();
      let before = spans.coveredUntil(scale.from);
      for (let i = 0; i < scale.width; i++) {
        const after = spans.coveredUntil(scale.from + (i + 1) * scale.pixel);
        const height = (after - before) / scale.pixel * this.height;
        before = after;
        if (height <= 0) continue;
        bottoms[i] -= height;
        context.rect(scale.left + i, bottoms[i], 1, height);
      }
      context.fill();
    }
  }
  drawLabel(context, y, right) {
    Tracks.text(context, this.label, right, y + this.height / 2 + 4, Style.colours.dim);
  }
  describe(us, scale) {
    if (!this.exact) return [this.label, ...this.shares(us, scale)];
    for (const [kind, spans] of this.kinds) {
      const i = spans.at(us);
      if (i >= 0) return [`${this.names[kind]}: ${Numbers.micros(spans.end[i] - spans.begin[i])}`, ...this.more(us)];
    }
    return null;
  }
  shares(us, scale) {
    const from = us - scale.pixel / 2, to = us + scale.pixel / 2;
    return this.kinds.map(([kind, spans]) => [kind, (spans.coveredUntil(to) - spans.coveredUntil(from)) / (to - from)])
      .filter(([, part]) => part > 0.0005).map(([kind, part]) => `${this.names[kind]} ${Numbers.share(part)}`);
  }
  more() { return []; }
}

// Iterations one after the other, each with a tick where it begins.
class IterationLane extends SpanLane {
  constructor(label, height, iterations, kinds, names, captioned) {
    super(label, height, kinds, names, captioned);
    this.iterations = iterations;
  }
  draw(context, y, scale) {
    super.draw(context, y, scale);
    const [low, high] = this.iterations.touching(scale.from, scale.to);
    if (high - low > scale.width / 8) return;
    context.fillStyle = Style.colours.ink;
    for (let i = low; i < high; i++) {
      const x = scale.x(this.iterations.begin[i]);
      if (x >= scale.left) context.fillRect(Math.round(x) - 0.5, y - 3, 1, this.height + 3);
    }
  }
  drawLabel(context, y, right) {
    Tracks.text(context, this.label, right, y + this.height / 2 + 4, Style.colours.ink);
  }
  more(us) {
    const i = this.iterations.at(us);
    if (i < 0) return [];
    const length = this.iterations.end[i] - this.iterations.begin[i];
    return [`iteration ${i + 1} of ${this.iterations.length}: ${Numbers.micros(length)}`];
  }
}

class PhaseLane extends IterationLane {
  constructor(rank, names) {
    const t = rank.iterations;
    super(rank.label + " · phases", 24, new Spans(t.begin_ns, t.end_ns), [
      ["forward", new Spans(t.begin_ns, t.backward_ns)], ["backward", new Spans(t.backward_ns, t.wait_ns)],
      ["exposed_communication", new Spans(t.wait_ns, t.done_ns)], ["rest", new Spans(t.done_ns, t.end_ns)],
    ].filter(([kind]) => kind in names), names, true);
  }
}

// Iterations whose phases are unknown.
class WholeLane extends IterationLane {
  constructor(label, name, spans) { super(label, 16, spans, [["inferred", spans]], { inferred: name }, false); }
}

// Bars that may overlap, each in its row; from afar the share of time in which there is any.
class BarLane extends Lane {
  constructor(label, begin, end, row, bytes, union) {
    const rows = Math.min(4, row.reduce((most, r) => Math.max(most, r + 1), 1));
    super(label, rows * 11 + 3);
    Object.assign(this, { begin, end, row, bytes, rows, union });
    this.reach = new Float64Array(end.length); // the latest end so far: where to start looking
    for (let i = 0; i < end.length; i++) this.reach[i] = Math.max(end[i], i ? this.reach[i - 1] : -Infinity);
  }
  range(from, to) {
    return [Spans.lastAtOrBefore(this.reach, from) + 1, Spans.lastAtOrBefore(this.begin, to) + 1];
  }
  draw(context, y, scale) {
    context.fillStyle = Style.colours.soft;
    context.fillRect(scale.left, y, scale.width, this.height);
    const [low, high] = this.range(scale.from, scale.to);
    this.exact = high - low <= scale.width / 3;
    if (!this.exact) return this.drawShares(context, y, scale);
    for (let i = low; i < high; i++) this.drawBar(context, this.top(y, i), scale, i);
  }
  top(y, i) { return y + 2 + (this.row[i] % this.rows) * 11; }
  drawBar(context, top, scale, i) { this.stretch(context, top, scale, "wire", this.begin[i], this.end[i]); }
  stretch(context, top, scale, kind, begin, end) {
    const left = Math.max(scale.left, scale.x(begin)), right = Math.min(scale.left + scale.width, scale.x(end));
    if (right < scale.left || left > scale.left + scale.width || end <= begin) return;
    context.fillStyle = Style.fill(context, kind);
    context.fillRect(left, top, Math.max(right - left, 1), 9);
  }
  drawShares(context, y, scale) {
    if (!this.union) return;
    context.fillStyle = Style.colours.wire;
    let before = this.union.coveredUntil(scale.from);
    for (let i = 0; i < scale.width; i++) {
      const after = this.union.coveredUntil(scale.from + (i + 1) * scale.pixel);
      const height = (after - before) / scale.pixel * this.height;
      before = after;
      context.fillRect(scale.left + i, y + this.height - height, 1, height);
    }
  }
  drawLabel(context, y, right) {
    Tracks.text(context, this.label, right, y + this.height / 2 + 4, Style.colours.dim);
  }
  find(us, offset) {
    const [low, high] = this.range(us, us), row = Math.floor((offset - 2) / 11);
    let found = -1;
    for (let i = low; i < high; i++) {
      if (this.begin[i] <= us && us < this.end[i] && (found < 0 || this.row[i] % this.rows === row)) found = i;
    }
    return found;
  }
  describe(us, scale, offset) {
    if (!this.exact) {
      if (!this.union) return null;
      const part = (this.union.coveredUntil(us + scale.pixel / 2) - this.union.coveredUntil(us - scale.pixel / 2)) / scale.pixel;
      return [this.label, `outstanding ${Numbers.share(part)} of ${Numbers.micros(scale.pixel)}`];
    }
    const i = this.find(us, offset);
    return i < 0 ? null : this.details(i);
  }
  details(i) {
    const size = this.bytes[i] < 0 ? "a collective of unknown kind" : `all-reduce of ${Numbers.size(this.bytes[i])}`;
    return [size, `took ${Numbers.micros(this.end[i] - this.begin[i])}`, `from ${Numbers.clock(this.begin[i], 1)}`];
  }
}

// Buckets: launched (a tick), waiting for the wire, on the wire, arrived and not yet unpacked.
class BucketLane extends BarLane {
  constructor(rank) {
    const b = rank.buckets;
    const last = b.unpacked_ns.map((us, i) => Math.max(us, b.end_ns[i]));
    const union = rank.outstanding && new Spans(rank.outstanding.begin, rank.outstanding.end);
    super("buckets", b.launch_ns, last, b.number, b.bytes, union);
    this.wireBegin = b.begin_ns;
    this.wireEnd = b.end_ns;
    this.known = b.known;
  }
  drawBar(context, top, scale, i) {
    if (this.known[i]) {
      this.stretch(context, top, scale, "queued", this.begin[i], this.wireBegin[i]);
      this.stretch(context, top, scale, "wire", this.wireBegin[i], this.wireEnd[i]);
      this.stretch(context, top, scale, "unpack", this.wireEnd[i], this.end[i]);
    } else this.stretch(context, top, scale, "queued", this.begin[i], this.end[i]);
    const x = scale.x(this.begin[i]);
    if (x < scale.left || x > scale.left + scale.width) return;
    context.fillStyle = Style.colours.ink;
    context.fillRect(Math.round(x) - 1, top - 1.5, 2, 12);
  }
  details(i) {
    const size = this.bytes[i] < 0 ? "size unknown" : Numbers.size(this.bytes[i]);
    const launched = [`bucket ${this.row[i] + 1}: ${size}`, `launched at ${Numbers.clock(this.begin[i], 1)}`];
    if (!this.known[i]) return [...launched, `unpacked ${Numbers.micros(this.end[i] - this.begin[i])} later`, "its collective is not seen"];
    return [...launched, `waited ${Numbers.micros(this.wireBegin[i] - this.begin[i])} for its collective`,
      `collective took ${Numbers.micros(this.wireEnd[i] - this.wireBegin[i])}`,
      `unpacked ${Numbers.micros(this.end[i] - this.wireEnd[i])} later`];
  }
}
