"use strict";
// The tracks: lanes over one axis of time, zoomable from the whole run to one bin.
class Tracks {
  static get GUTTER() { return innerWidth < 600 ? 84 : 148; }
  static AXIS = 26;
  static OVERVIEW = 40;
  static MOST_RANKS = 4;

  constructor(data, names) {
    this.data = data;
    this.plot = document.getElementById("tracks-plot");
    this.canvas = document.getElementById("tracks-canvas");
    this.cursor = document.getElementById("tracks-cursor");
    this.tip = document.getElementById("tip");
    this.names = names;
    this.all = false;
    this.begin = data.begin_us;
    this.end = this.begin + Math.max(data.length_us, data.bin_us);
    this.from = this.begin;
    this.to = this.end;
    this.links = data.links.map((link) => new LinkLane(link));
    this.collect();
    this.listen();
    new ResizeObserver(() => this.draw()).observe(this.plot);
  }

  // Lanes in order: each link with the ranks that send over it beneath, then ranks that send over none.
  collect() {
    const left = new Set(this.data.ranks);
    const groups = this.data.links.map((link, i) => {
      const ranks = this.data.ranks.filter((rank) => left.has(rank) && link.pids.includes(rank.pid));
      ranks.forEach((rank) => left.delete(rank));
      return { link, lane: this.links[i], ranks };
    });
    groups.push({ link: null, lane: null, ranks: [...left] });
    this.lanes = [];
    this.phases = [];
    this.addInferred(this.data.inferred);
    let shown = 0;
    this.hidden = 0;
    for (const { link, lane, ranks } of groups) {
      if (!this.all && shown >= Tracks.MOST_RANKS && ranks.length) { this.hidden += ranks.length; continue; }
      if (link !== null) {
        this.add(lane, 16);
        const idle = Object.entries(link.idle).filter(([, spans]) => spans.begin.length)
          .map(([cause, spans]) => [cause, new Spans(spans.begin, spans.end)]);
        if (idle.length) this.add(new SpanLane("idle, by cause", 13, idle, this.names.causes, false), 2);
      }
      for (const rank of ranks) {
        if (!this.all && shown >= Tracks.MOST_RANKS) { this.hidden++; continue; }
        shown++;
        this.addRank(rank);
      }
    }
  }
  addInferred(spans) {
    if (!spans || !spans.begin.length) return;
    const lane = new WholeLane("inferred iterations", "inferred iteration", new Spans(spans.begin, spans.end));
    this.phases.push(lane);
    this.add(lane, 9);
  }
  add(lane, space) { this.lanes.push({ lane, space }); }
  addRank(rank) {
    if (rank.iterations.begin_ns.length) {
      const lane = this.iterationsOf(rank);
      this.phases.push(lane);
      this.add(lane, 9);
    }
    const waits = Object.entries(rank.waits).map(([cause, spans]) => [cause, new Spans(spans.begin, spans.end)]);
    if (waits.length) this.add(new SpanLane("waits for", 15, waits, this.names.causes, true), 2);
    if (rank.buckets.launch_ns.length) this.add(new BucketLane(rank), 3);
    const c = rank.collectives;
    if (!c.begin.length) return;
    const union = rank.outstanding && new Spans(rank.outstanding.begin, rank.outstanding.end);
    this.add(new BarLane("collectives", c.begin, c.end, c.row, c.bytes, union), 3);
  }

  iterationsOf(rank) {
    if (!rank.launched) return new PhaseLane(rank, this.names.phases);
    return new WholeLane(rank.label + " · iterations", "iteration, as launched", new Spans(rank.iterations.begin_ns, rank.iterations.end_ns));
  }

  get scale() {
    const width = Math.max(50, Math.floor(this.plot.clientWidth - Tracks.GUTTER - 8));
    return new Scale(this.from, this.to, Tracks.GUTTER, width);
  }
  whole() { const s = this.scale; return new Scale(this.begin, this.end, s.left, s.width); }

  draw() {
    const height = Tracks.OVERVIEW + Tracks.AXIS + this.lanes.reduce((sum, { lane, space }) => sum + lane.height + space, 0) + 4;
    const context = this.fit(this.canvas, height);
    const scale = this.scale;
    this.drawOverview(context, this.whole());
    this.drawAxis(context, scale, height);
    let y = Tracks.OVERVIEW + Tracks.AXIS;
    for (const entry of this.lanes) {
      y += entry.space;
      entry.y = y;
      context.save();
      context.beginPath();
      context.rect(scale.left, y - 4, scale.width, entry.lane.height + 5);
      context.clip();
      entry.lane.draw(context, y, scale);
      context.restore();
      entry.lane.drawLabel(context, y, Tracks.GUTTER - 12);
      y += entry.lane.height;
    }
    this.fit(this.cursor, height);
    this.say(scale);
  }
  // What is printed: a browser lays a page out anew for paper, and leaves a canvas that was drawn meanwhile empty.
  still() {
    this.image ??= this.plot.appendChild(Object.assign(document.createElement("img"), { className: "still", alt: "" }));
    this.image.src = this.canvas.toDataURL();
  }
  fit(canvas, height) {
    const ratio = window.devicePixelRatio || 1, width = this.plot.clientWidth;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = height + "px";
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    return context;
  }
  static text(context, text, x, y, colour, font = "12.5px", align = "right") {
    context.font = `${font} ${Style.font}`;
    context.textAlign = align;
    context.fillStyle = colour;
    const room = align === "right" ? x : Infinity;
    while (text.length > 4 && context.measureText(text).width > room) text = text.slice(0, -2) + "…";
    context.fillText(text, x, y);
  }

  drawOverview(context, scale) {
    const height = Tracks.OVERVIEW - 8;
    context.fillStyle = Style.colours.soft;
    context.fillRect(scale.left, 0, scale.width, height);
    context.fillStyle = Style.colours.tx;
    const link = this.links.reduce((best, lane) => (best === null || lane.link.peak_bps > best.link.peak_bps ? lane : best), null);
    for (let i = 0; link !== null && i < scale.width; i++) {
      const begin = i * scale.pixel;
      const means = link.directions.map(([, pyramid]) => (pyramid ? pyramid.over(begin, begin + scale.pixel, scale.pixel)[0] : 0));
      const tall = Math.min(1, Math.max(...means) / link.top) * height;
      context.fillRect(scale.left + i, height - tall, 1, tall);
    }
    const from = scale.x(this.from), to = scale.x(this.to);
    context.fillStyle = Style.colours.paper;
    context.globalAlpha = 0.72;
    context.fillRect(scale.left, 0, from - scale.left, height);
    context.fillRect(to, 0, scale.left + scale.width - to, height);
    context.globalAlpha = 1;
    context.strokeStyle = Style.colours.ink;
    context.lineWidth = 1.5;
    context.strokeRect(Math.min(from, scale.left + scale.width - 3), 0.75, Math.max(to - from, 3), height - 1.5);
    Tracks.text(context, this.data.is_part ? "whole part" : "whole run", Tracks.GUTTER - 12, height / 2 + 4, Style.colours.dim);
  }
  drawAxis(context, scale, height) {
    const step = Tracks.step(scale.pixel * 110), y = Tracks.OVERVIEW + 13;
    for (let us = Math.ceil(scale.from / step) * step; us <= scale.to; us += step) {
      const x = scale.x(us);
      context.fillStyle = Style.colours.line;
      context.fillRect(Math.round(x), y + 5, 1, height - y - 5);
      const align = x > scale.left + scale.width - 40 ? "right" : x < scale.left + 30 ? "left" : "center";
      Tracks.text(context, Numbers.clock(us, step), x, y, Style.colours.dim, "11.5px", align);
    }
  }
  static step(rough) {
    const power = 10 ** Math.floor(Math.log10(rough));
    return [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
  }
  say(scale) {
    const cell = Math.max(scale.pixel, this.data.bin_us);
    document.getElementById("tracks-window").textContent =
      `${Numbers.clock(this.from, scale.pixel * 10)} – ${Numbers.clock(this.to, scale.pixel * 10)} · ${Numbers.micros(this.to - this.from)} · a pixel is ${Numbers.micros(scale.pixel)}`;
    Object.assign(this.plot.dataset, { from: this.from, to: this.to, length: this.end - this.begin, cell });
  }

  // Show a stretch, kept inside the run and no narrower than a bin.
  show(from, to) {
    const width = Math.min(this.end - this.begin, Math.max(to - from, this.data.bin_us));
    const middle = (from + to) / 2;
    this.from = Math.max(this.begin, Math.min(middle - width / 2, this.end - width));
    this.to = this.from + width;
    if (!this.pending) {
      this.pending = true;
      requestAnimationFrame(() => { this.pending = false; this.draw(); });
    }
  }
  zoom(factor, us = (this.from + this.to) / 2) { this.show(us - (us - this.from) * factor, us + (this.to - us) * factor); }
  move(part) { const by = (this.to - this.from) * part; this.show(this.from + by, this.to + by); }
  reveal(beginUs, lengthUs) { this.show(beginUs - lengthUs * 0.06, beginUs + lengthUs * 1.06); }
  iteration(offset) {
    if (!this.phases.length) return;
    const spans = this.phases[0].iterations;
    let i = Spans.lastAtOrBefore(spans.begin, (this.from + this.to) / 2) + offset;
    i = Math.max(0, Math.min(i, spans.length - 1));
    this.reveal(spans.begin[i], spans.end[i] - spans.begin[i]);
  }
  several(count) {
    if (!this.phases.length) return;
    const spans = this.phases[0].iterations;
    const low = Math.max(0, Math.min(Spans.lastAtOrBefore(spans.begin, (this.from + this.to) / 2) - (count >> 1), spans.length - count));
    this.show(spans.begin[low], spans.end[Math.min(low + count, spans.length) - 1]);
  }
  act(name) {
    ({
      whole: () => this.show(this.begin, this.end), ten: () => this.several(10), one: () => this.iteration(0),
      in: () => this.zoom(0.5), out: () => this.zoom(2), back: () => this.move(-0.4), on: () => this.move(0.4),
      previous: () => this.iteration(-1), next: () => this.iteration(1),
    })[name]();
  }

  listen() {
    document.getElementById("tracks-tools").addEventListener("click", (event) => {
      const act = event.target.closest("button")?.dataset.act;
      if (act) this.act(act);
    });
    const keys = { ArrowLeft: "back", ArrowRight: "on", "+": "in", "=": "in", "-": "out", 0: "whole", n: "next", p: "previous" };
    this.plot.addEventListener("keydown", (event) => {
      if (!(event.key in keys) || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      this.act(keys[event.key]);
    });
    this.plot.addEventListener("wheel", (event) => {
      const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY);
      if (!event.ctrlKey && !event.metaKey && !event.altKey && !sideways) return;
      event.preventDefault();
      if (sideways) return this.move(event.deltaX / 1000);
      this.zoom(Math.exp(event.deltaY / 300), this.scale.us(event.offsetX));
    }, { passive: false });
    this.plot.addEventListener("dblclick", () => this.zoom(4));
    this.plot.addEventListener("pointerdown", (event) => this.press(event));
    this.plot.addEventListener("pointermove", (event) => this.hover(event));
    this.plot.addEventListener("pointerleave", () => { this.clear(); });
  }
  place(event) {
    const box = this.plot.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }
  press(event) {
    if (event.button !== 0) return;
    const [x, y] = this.place(event);
    const overview = y < Tracks.OVERVIEW, pan = event.shiftKey;
    const start = overview ? this.whole() : this.scale;
    this.plot.focus({ preventScroll: true }); // keys go on working after a click
    if (x < start.left) return;
    this.drag = { x, scale: start, overview, pan, from: this.from, to: this.to };
    this.plot.setPointerCapture(event.pointerId);
    const release = (up) => {
      this.plot.removeEventListener("pointerup", release);
      this.plot.removeEventListener("pointercancel", release);
      const { scale } = this.drag, end = this.place(up)[0], wide = Math.abs(end - x) > 4;
      const moved = this.drag.pan;
      this.drag = null;
      this.clear();
      if (moved || up.type === "pointercancel") return;
      if (wide) this.show(scale.us(Math.max(scale.left, Math.min(x, end))), scale.us(Math.max(x, end)));
      else if (overview) { const half = (this.to - this.from) / 2, at = scale.us(end); this.show(at - half, at + half); }
    };
    this.plot.addEventListener("pointerup", release);
    this.plot.addEventListener("pointercancel", release);
  }
  clear() {
    this.tip.hidden = true;
    const context = this.cursor.getContext("2d");
    context.clearRect(0, 0, this.cursor.width, this.cursor.height);
    return context;
  }
  hover(event) {
    const [x, y] = this.place(event);
    if (this.drag?.pan) {
      const by = (this.drag.x - x) * this.drag.scale.pixel;
      return this.show(this.drag.from + by, this.drag.to + by);
    }
    const context = this.clear(), height = this.canvas.clientHeight;
    if (this.drag) {
      context.fillStyle = Style.colours.shade;
      const bottom = this.drag.overview ? Tracks.OVERVIEW - 8 : height;
      return context.fillRect(Math.min(x, this.drag.x), 0, Math.abs(x - this.drag.x), bottom);
    }
    const scale = this.scale;
    if (x < scale.left || x > scale.left + scale.width || y < Tracks.OVERVIEW) return;
    context.fillStyle = Style.colours.ink;
    context.globalAlpha = 0.5;
    context.fillRect(Math.round(x), Tracks.OVERVIEW, 1, height);
    context.globalAlpha = 1;
    this.explain(x, y, scale);
  }
  explain(x, y, scale) {
    const us = scale.us(x);
    const entry = this.lanes.find(({ lane, y: top }) => y >= top - 2 && y < top + lane.height + 3);
    const lines = entry ? entry.lane.describe(us, scale, y - entry.y) : null;
    this.tip.textContent = [`at ${Numbers.clock(us, Math.max(scale.pixel, 1))}`, ...(lines || [])].join("\n");
    this.tip.hidden = false;
    const left = x + 16 + this.tip.offsetWidth > this.plot.clientWidth ? x - 16 - this.tip.offsetWidth : x + 16;
    this.tip.style.left = Math.max(0, left) + "px";
    this.tip.style.top = Math.min(y + 14, this.canvas.clientHeight - 20) + "px";
  }

  legend() {
    const box = document.getElementById("tracks-legend");
    box.replaceChildren();
    const whole = this.data.ranks.some((rank) => rank.launched) ? [["inferred", "iteration, as launched"]] : [];
    const drawn = this.data.inferred ? [["inferred", "iteration, inferred"]] : [...Object.entries(this.names.phases), ...whole];
    const entries = [["tx", "sent"], ["rx", "received"], ...drawn];
    const causes = new Set(this.data.links.flatMap((link) => Object.keys(link.idle).filter((c) => link.idle[c].begin.length)));
    for (const cause of causes) entries.push([cause, "idle: " + this.names.causes[cause]]);
    for (const cause of new Set(this.data.ranks.flatMap((rank) => Object.keys(rank.waits)))) entries.push([cause, "waits: " + this.names.causes[cause]]);
    if (this.data.ranks.some((rank) => rank.buckets.launch_ns.length)) entries.push(["queued", "bucket launched, waiting"], ["unpack", "bucket arrived, not unpacked"]);
    if (this.data.ranks.some((rank) => rank.collectives.begin.length)) entries.push(["wire", "in its collective"]);
    for (const [kind, text] of entries) {
      const item = document.createElement("span"), swatch = document.createElement("canvas");
      swatch.width = 44; swatch.height = 24;
      const context = swatch.getContext("2d");
      context.scale(2, 2);
      context.fillStyle = Style.fill(context, kind);
      context.fillRect(0, 0, 22, 12);
      item.append(swatch, text);
      box.append(item);
    }
    if (this.hidden) this.offerAll(box);
  }
  offerAll(box) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = `show ${this.hidden} more ranks`;
    button.addEventListener("click", () => { this.all = true; this.collect(); this.draw(); this.legend(); });
    box.append(button);
  }
  // Say where the page shows less than the trace holds.
  note() {
    const notes = [];
    const wide = this.data.links.map((l) => (l.tx || l.rx)?.cell_us || 0).reduce((a, b) => Math.max(a, b), 0);
    if (wide > this.data.bin_us) notes.push(`The finest cell in this file is ${Numbers.micros(wide)} (the trace has ${Numbers.micros(this.data.bin_us)}), with its peak kept.`);
    const short = this.data.links.map((l) => l.idle_not_drawn_us).reduce((a, b) => Math.max(a, b), 0);
    if (short > 0) notes.push(`Idle times of up to ${Numbers.micros(short)} are too many to be drawn.`);
    for (const rank of this.data.ranks) {
      const { buckets, collectives } = rank.not_drawn;
      if (buckets + collectives) notes.push(`The last ${buckets} buckets and ${collectives} collectives of ${rank.label} are not drawn one by one.`);
    }
    document.getElementById("tracks-note").textContent = notes.join(" ");
  }
}
