"use strict";
// Bars, lines and points as SVG: what the charts of the page need, and no more. Texts are set as text, never as markup.
const Plot = {
  NS: "http://www.w3.org/2000/svg",

  make(name, attributes, parent, text) {
    const element = document.createElementNS(Plot.NS, name);
    for (const [key, value] of Object.entries(attributes)) if (value !== undefined && value !== null) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    if (parent) parent.append(element);
    return element;
  },

  react(element, traces, layout) {
    Object.assign(element, { plotted: [traces, layout] });
    if (!element.isWatched) {
      element.isWatched = true;
      element.tabIndex = 0;
      new ResizeObserver(() => { if (element.clientWidth !== element.drawnWidth) Plot.draw(element); }).observe(element);
      Plot.listen(element);
    }
    Plot.draw(element);
    return element;
  },

  draw(element) {
    const [traces, layout] = element.plotted, width = element.clientWidth || 640;
    element.drawnWidth = width;
    element.replaceChildren();
    element.style.height = "auto";
    if (layout.showlegend !== false) Plot.legend(element, traces);
    const height = layout.height || 300, margin = { l: Math.min(layout.margin.l, width / 4), r: layout.margin.r, t: 8, b: layout.margin.b };
    const svg = Plot.make("svg", { width, height, viewBox: `0 0 ${width} ${height}` }, element);
    const box = { left: margin.l, top: margin.t, width: width - margin.l - margin.r, height: height - margin.t - margin.b };
    const axes = Plot.axes(traces, layout, box);
    element.marks = [];
    for (const shape of layout.shapes || []) Plot.shape(svg, shape, axes, box);
    for (const axis of Object.values(axes)) Plot.drawAxis(svg, axis, axes, box, layout);
    const stacks = new Map();
    const grouped = layout.barmode === "group" ? traces.filter((trace) => trace.type === "bar") : [];
    for (const trace of traces) {
      const x = axes[trace.xaxis || "x"], y = axes[trace.yaxis || "y"];
      if (trace.type === "bar") Plot.bars(svg, element, trace, x, y, layout, stacks, grouped);
      else Plot.scatter(svg, element, trace, x, y, traces);
    }
    for (const note of layout.annotations || []) Plot.note(svg, note, axes, box);
  },

  legend(element, traces) {
    const list = document.createElement("div"), seen = new Set();
    list.className = "legends";
    for (const trace of traces) {
      if (trace.showlegend === false || !trace.name || seen.has(trace.name)) continue;
      seen.add(trace.name);
      const entry = document.createElement("span"), colour = trace.marker?.color || trace.line?.color || "currentColor";
      let swatch = document.createElement("i");
      if (trace.mode === "markers" && trace.marker.symbol) { // series of one colour differ by their symbol
        swatch = Plot.make("svg", { width: 14, height: 12, class: "symbol" });
        Plot.symbol(swatch, trace.marker.symbol, [7, 6], 4, colour);
      } else swatch.style.background = colour;
      entry.append(swatch, trace.name);
      list.append(entry);
    }
    if (seen.size) element.append(list);
  },

  // Axes by name ("x", "y2"), each with the range of what is drawn on it, and where a value is.
  axes(traces, layout, box) {
    const axes = {};
    for (const key of Object.keys(layout)) {
      const match = /^([xy])axis(\d*)$/.exec(key);
      if (!match) continue;
      const across = match[1] === "x", given = layout[key], name = match[1] + match[2];
      const [low, high] = given.domain || [0, 1];
      const axis = { name, across, given, anchor: given.anchor || (across ? "y" : "x"), values: [], categories: null };
      axis.from = across ? box.left + low * box.width : box.top + (1 - low) * box.height;
      axis.to = across ? box.left + high * box.width : box.top + (1 - high) * box.height;
      axes[name] = axis;
    }
    for (const trace of traces) {
      const x = axes[trace.xaxis || "x"], y = axes[trace.yaxis || "y"], flat = trace.orientation === "h";
      Plot.see(x, trace.x, trace.type === "bar" && flat ? trace.base : null, trace.error_x, trace.type === "bar" && flat);
      Plot.see(y, trace.y, trace.type === "bar" && !flat ? trace.base : null, trace.error_y, trace.type === "bar" && !flat);
      if (trace.type === "bar") Plot.seeWidths(trace, flat ? y : x, flat ? trace.y : trace.x);
    }
    if (layout.barmode === "stack") Plot.seeStacks(traces, axes);
    for (const shape of layout.shapes || []) {
      if (axes[shape.yref] && Number.isFinite(shape.y0)) axes[shape.yref].values.push(shape.y0);
      if (!shape.yref && Number.isFinite(shape.y0)) axes.y.values.push(shape.y0);
    }
    for (const axis of Object.values(axes)) Plot.range(axis);
    return axes;
  },
  see(axis, values, base, error, fromZero) {
    if (fromZero) axis.values.push(0);
    (values || []).forEach((value, i) => {
      if (typeof value === "string") (axis.categories ||= new Map()).has(value) || axis.categories.set(value, axis.categories.size);
      else if (Number.isFinite(value)) axis.values.push(value + (base ? base[i] || 0 : 0), ...(error ? [value + error.array[i], value - error.arrayminus[i]] : []));
    });
  },
  // A bar reaches half of its width to both sides: an axis that ended at its middle would let it cover what is beside.
  seeWidths(trace, axis, places) {
    if (axis.categories) return;
    const step = Plot.apart(places);
    places.forEach((value, i) => { const half = (trace.width ? trace.width[i] : step) / 2; axis.values.push(value - half, value + half); });
  },
  apart(places) {
    const steps = [...new Set(places)].sort((a, b) => a - b);
    return steps.length > 1 ? Math.min(...steps.slice(1).map((v, i) => v - steps[i])) : 1;
  },
  seeStacks(traces, axes) {
    const sums = new Map();
    for (const trace of traces) {
      const axis = axes[trace.yaxis || "y"];
      trace.y.forEach((value, i) => { const key = axis.name + "|" + trace.x[i]; sums.set(key, (sums.get(key) || 0) + (value || 0)); });
    }
    for (const [key, sum] of sums) axes[key.split("|")[0]].values.push(sum);
  },
  // An outlier must not flatten the rest: the axis ends above the 98th percentile, and what is beyond is marked ▲.
  range(axis) {
    const { given } = axis, known = axis.values.filter(Number.isFinite).sort((a, b) => a - b);
    if (axis.categories) {
      const wanted = given.categoryarray || (given.autorange === "reversed" ? [...axis.categories.keys()].reverse() : [...axis.categories.keys()]);
      axis.categories = new Map(wanted.map((name, i) => [name, i]));
      Object.assign(axis, { low: -0.5, high: wanted.length - 0.5 });
    } else if (given.range) [axis.low, axis.high] = given.range;
    else {
      axis.low = known[0] ?? 0; axis.high = known[known.length - 1] ?? 1;
      if (!axis.across && known.length >= 20) {
        const usual = known[Math.floor(known.length * 0.98)];
        if (usual > 0 && axis.high > 3 * usual) { axis.high = usual * 1.25; axis.clipped = true; }
      }
      if (given.rangemode === "tozero" && axis.low > 0) axis.low = 0;
      if (given.type === "log") { axis.low = Math.log10(Math.max(axis.low, 1e-12)); axis.high = Math.log10(Math.max(axis.high, 1e-12)); }
      const room = (axis.high - axis.low || Math.abs(axis.high) || 1) * 0.05;
      if (!axis.clipped) axis.high += room;
      if (axis.low !== 0) axis.low -= room;
    }
    const log = given.type === "log";
    axis.at = (value) => {
      const number = axis.categories ? axis.categories.get(value) : log ? Math.log10(value) : value;
      return axis.from + (number - axis.low) / (axis.high - axis.low) * (axis.to - axis.from);
    };
    axis.step = Math.abs(axis.to - axis.from) / (axis.high - axis.low);
  },
  ticks(axis) {
    const { given } = axis;
    if (axis.categories) return [...axis.categories.keys()].map((name, i) => [name, given.ticktext && given.tickvals ? given.ticktext[given.tickvals.indexOf(name)] ?? name : name]);
    if (given.tickvals) return given.tickvals.map((value, i) => [value, String(given.ticktext ? given.ticktext[i] : value)]).filter(([value]) => { const n = given.type === "log" ? Math.log10(value) : value; return n >= axis.low && n <= axis.high; });
    const span = axis.high - axis.low, room = Math.abs(axis.to - axis.from), found = [];
    if (given.type === "log") {
      for (let power = Math.floor(axis.low); power <= Math.ceil(axis.high); power++) for (const m of room / span > 160 ? [1, 2, 5] : [1]) {
        const value = m * 10 ** power;
        if (Math.log10(value) >= axis.low && Math.log10(value) <= axis.high) found.push([value, String(Number(value.toPrecision(3)))]);
      }
      return found;
    }
    const rough = span / Math.max(2, room / (axis.across ? 90 : 46)), power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
    for (let value = Math.ceil(axis.low / step) * step; value <= axis.high + step * 1e-9; value += step) found.push([value, String(Number(value.toPrecision(6)))]);
    return found;
  },
  drawAxis(svg, axis, axes, box, layout) {
    const c = Style.colours, other = axes[axis.anchor] || Object.values(axes).find((each) => each.across !== axis.across), { given } = axis;
    const line = given.showgrid === false ? "none" : c.line;
    for (const [value, text] of Plot.ticks(axis)) {
      const at = axis.at(value);
      if (axis.across) {
        Plot.make("line", { x1: at, x2: at, y1: other.from, y2: other.to, stroke: line }, svg);
        Plot.make("text", { x: at, y: other.from + 16, "text-anchor": "middle", fill: c.dim, "font-size": 12 }, svg, text);
      } else {
        if (!axis.categories) Plot.make("line", { y1: at, y2: at, x1: box.left, x2: box.left + box.width, stroke: line }, svg);
        Plot.make("text", { x: box.left - 8, y: at + 4, "text-anchor": "end", fill: c.dim, "font-size": 12 }, svg, Plot.shortened(text, box.left / 6.6));
      }
    }
    if (given.title?.text && axis.across) Plot.make("text", { x: box.left + box.width, y: other.from + 33, "text-anchor": "end", fill: c.dim, "font-size": 12 }, svg, given.title.text);
    if (given.title?.text && !axis.across) Plot.make("text", { x: box.left + 4, y: axis.to + 10, fill: c.dim, "font-size": 12 }, svg, given.title.text + (axis.clipped ? " (▲: beyond)" : ""));
  },
  shortened(text, most) { return text.length > most ? text.slice(0, Math.max(1, most - 1)) + "…" : text; },

  bars(svg, element, trace, x, y, layout, stacks, grouped) {
    const flat = trace.orientation === "h", along = flat ? x : y, place = flat ? y : x, one = grouped.indexOf(trace), gap = layout.bargap ?? 0.15;
    const least = place.categories ? 1 : Plot.apart(flat ? trace.y : trace.x);
    const groups = grouped.filter((other) => (other.xaxis || "x") === (trace.xaxis || "x"));
    const amounts = flat ? trace.x : trace.y, places = flat ? trace.y : trace.x;
    const fill = Plot.fill(svg, trace.marker);
    amounts.forEach((amount, i) => {
      if (!Number.isFinite(amount)) return;
      const key = along.name + "|" + places[i], stacked = layout.barmode === "stack" && !trace.base;
      const begin = trace.base ? trace.base[i] : stacked ? stacks.get(key) || 0 : 0;
      if (stacked) stacks.set(key, begin + amount);
      let wide = (trace.width ? trace.width[i] : place.categories ? 1 - gap : least * (1 - gap)) * place.step, shift = 0;
      if (one >= 0) { wide /= groups.length; shift = (groups.indexOf(trace) - (groups.length - 1) / 2) * wide; }
      const at = place.at(places[i]) + shift, top = Math.min(begin + amount, along.high);
      const edges = [along.at(Math.max(Math.min(begin, along.high), along.low)), along.at(top)].sort((a, b) => a - b);
      if (edges[1] - edges[0] < 0.01 && amount) edges[1] = edges[0] + 0.5;
      const size = flat ? { x: edges[0], width: edges[1] - edges[0], y: at - wide / 2, height: wide } : { y: edges[0], height: edges[1] - edges[0], x: at - wide / 2, width: Math.max(wide, 0.6) };
      const mark = Plot.make("rect", { ...size, fill, class: "point" }, svg);
      Plot.tell(element, mark, trace, i);
      if (along.clipped && begin + amount > along.high && begin <= along.high) Plot.beyond(svg, at, along.at(along.high));
    });
  },
  beyond(svg, x, y) { Plot.make("text", { x, y: y + 9, "text-anchor": "middle", "font-size": 10, fill: Style.colours.ink, class: "beyond" }, svg, "▲"); },
  fill(svg, marker) {
    const shape = marker.pattern?.shape;
    if (!shape) return marker.color;
    const id = `p${(Plot.patterns = (Plot.patterns || 0) + 1)}`, pattern = Plot.make("pattern", { id, width: 7, height: 7, patternUnits: "userSpaceOnUse" }, svg);
    Plot.make("rect", { width: 7, height: 7, fill: marker.color }, pattern);
    const path = { "/": "M-1 8L8 -1", "\\": "M-1 -1L8 8" }[shape];
    if (path) Plot.make("path", { d: path, stroke: marker.pattern.fgcolor, "stroke-width": 1.6 }, pattern);
    else Plot.make("circle", { cx: 3.5, cy: 3.5, r: 1.1, fill: marker.pattern.fgcolor }, pattern);
    return `url(#${id})`;
  },

  scatter(svg, element, trace, x, y, traces) {
    const points = trace.x.map((value, i) => (trace.y[i] === null || trace.y[i] === undefined || value === null ? null : [x.at(value), y.at(y.clipped && trace.y[i] > y.high ? y.high : trace.y[i])]));
    if (trace.mode === "lines") return Plot.line(svg, element, trace, points, traces, x, y);
    points.forEach((point, i) => {
      if (point === null) return;
      Plot.error(svg, trace.error_x, x, trace.x[i], i, (at) => ({ x1: at, x2: at, y1: point[1] - 4, y2: point[1] + 4 }), (a, b) => ({ x1: a, x2: b, y1: point[1], y2: point[1] }));
      Plot.error(svg, trace.error_y, y, trace.y[i], i, (at) => ({ y1: at, y2: at, x1: point[0] - 3, x2: point[0] + 3 }), (a, b) => ({ y1: a, y2: b, x1: point[0], x2: point[0] }));
      const { size = 6, color, opacity, symbol = "circle" } = trace.marker;
      if (size < 1) return;
      if (y.clipped && trace.y[i] > y.high) Plot.beyond(svg, point[0], y.to);
      Plot.tell(element, Plot.symbol(svg, symbol, point, size / 2, color, opacity), trace, i);
    });
  },
  symbol(svg, symbol, [x, y], r, colour, opacity) {
    const shape = symbol.replace("-open", ""), open = symbol.endsWith("-open");
    const style = { class: "point", opacity, fill: open ? "none" : colour, stroke: colour };
    const paths = { diamond: `M${x} ${y - r}L${x + r} ${y}L${x} ${y + r}L${x - r} ${y}Z`, square: `M${x - r} ${y - r}h${2 * r}v${2 * r}h${-2 * r}Z`, "triangle-up": `M${x} ${y - r}L${x + r} ${y + r}H${x - r}Z`,
      "triangle-down": `M${x} ${y + r}L${x + r} ${y - r}H${x - r}Z`, "line-ns": `M${x} ${y - r}V${y + r}`, cross: `M${x - r} ${y}h${2 * r}M${x} ${y - r}v${2 * r}`, x: `M${x - r} ${y - r}l${2 * r} ${2 * r}M${x - r} ${y + r}l${2 * r} ${-2 * r}` };
    if (shape in paths) return Plot.make("path", { d: paths[shape], ...style, "stroke-width": shape === "line-ns" ? 2.5 : 1.4 }, svg);
    return Plot.make("circle", { cx: x, cy: y, r, ...style }, svg);
  },
  error(svg, error, axis, value, i, cap, bar) {
    if (!error) return;
    const style = { stroke: error.color, "stroke-width": error.thickness || 1.2, class: "whisker" };
    const from = axis.at(Math.max(value - error.arrayminus[i], axis.low)), to = axis.at(Math.min(value + error.array[i], axis.high));
    Plot.make("line", { ...bar(from, to), ...style }, svg);
    for (const at of [from, to]) Plot.make("line", { ...cap(at), ...style }, svg);
  },
  path(points, stepped) {
    let path = "", before = null;
    for (const point of points) {
      if (point !== null) path += before === null ? `M${point[0]} ${point[1]}` : stepped ? `H${point[0]}V${point[1]}` : `L${point[0]} ${point[1]}`;
      before = point;
    }
    return path;
  },
  line(svg, element, trace, points, traces, x, y) {
    const dash = { dash: "6 4", dot: "2 3", dashdot: "6 3 2 3" }[trace.line.dash];
    const path = Plot.path(points, trace.line.shape === "hv");
    if (trace.fill === "tonexty") {
      const lower = traces[traces.indexOf(trace) - 1];
      const under = lower.x.map((value, i) => (lower.y[i] === null ? null : [x.at(value), y.at(lower.y[i])])).filter((point) => point !== null).reverse();
      if (path && under.length) Plot.make("path", { d: path + under.map((p) => `L${p[0]} ${p[1]}`).join("") + "Z", fill: trace.fillcolor, stroke: "none" }, svg);
    }
    if (!trace.line.width || !path) return;
    Plot.make("path", { d: path, fill: "none", stroke: trace.line.color, "stroke-width": trace.line.width, "stroke-dasharray": dash, class: "js-line" }, svg);
    if (trace.hoverinfo === "skip" || !trace.hovertemplate) return;
    points.forEach((point, i) => { if (point !== null) Plot.tell(element, Plot.make("circle", { cx: point[0], cy: point[1], r: 5, fill: "transparent", class: "hover" }, svg), trace, i); });
  },
  shape(svg, shape, axes, box) {
    const x = axes[shape.xref], y = axes[shape.yref] || (shape.yref === undefined ? axes.y : null);
    const at = (axis, value, from, length, flip) => (axis ? axis.at(value) : from + (flip ? 1 - value : value) * length);
    Plot.make("line", { x1: at(x, shape.x0, box.left, box.width), x2: at(x, shape.x1, box.left, box.width), y1: at(y, shape.y0, box.top, box.height, true), y2: at(y, shape.y1, box.top, box.height, true), stroke: shape.line.color, "stroke-width": shape.line.width, "stroke-dasharray": { dash: "6 4", dot: "2 3" }[shape.line.dash] }, svg);
  },
  note(svg, note, axes, box) {
    const y = note.yref === "paper" ? box.top + (1 - note.y) * box.height : axes.y.at(note.y);
    const x = note.xref === "paper" ? box.left + note.x * box.width : axes.x.at(note.x);
    Plot.make("text", { x, y: y - 4, "text-anchor": note.xanchor === "right" ? "end" : "start", fill: note.font?.color, "font-size": note.font?.size }, svg, note.text);
  },

  // What a mark says: the trace's template, filled.
  words(trace, i) {
    const data = trace.customdata?.[i], value = { x: trace.x[i], y: trace.y[i] };
    const [text, extra] = (trace.hovertemplate || "").split("<extra>");
    const filled = text.replace(/%\{([^}:]+)(?::([^}]+))?\}/g, (_, path, format) => {
      const index = /^customdata\[(\d+)\]$/.exec(path), found = path === "customdata" ? data : index ? data[Number(index[1])] : value[path];
      if (!format || typeof found !== "number") return String(found);
      const digits = Number(/\.(\d+)/.exec(format)?.[1] ?? 3);
      return format.endsWith("g") ? String(Number(found.toPrecision(digits))) : found.toFixed(digits);
    });
    return [(extra || "").replace("</extra>", ""), filled].filter(Boolean).join("\n").replaceAll("<br>", "\n");
  },
  tell(element, mark, trace, i) {
    if (trace.hoverinfo === "skip") return;
    element.marks.push({ mark, trace, i });
    mark.told = { trace, i };
  },
  tip() {
    if (!Plot.box) { Plot.box = document.createElement("div"); Plot.box.className = "chart-tip"; Plot.box.hidden = true; Plot.box.setAttribute("role", "status"); document.body.append(Plot.box); }
    return Plot.box;
  },
  show(mark) {
    const tip = Plot.tip(), box = mark.getBoundingClientRect();
    tip.textContent = Plot.words(mark.told.trace, mark.told.i);
    tip.hidden = !tip.textContent;
    const left = Math.min(box.right + 10, document.documentElement.clientWidth - tip.offsetWidth - 8);
    tip.style.left = Math.max(4, left) + scrollX + "px";
    tip.style.top = box.top + scrollY - tip.offsetHeight - 6 + "px";
  },
  // A pointer, a finger and the arrow keys all go from mark to mark.
  listen(element) {
    element.addEventListener("pointerover", (event) => { if (event.target.told) Plot.show(event.target); });
    element.addEventListener("pointerleave", () => { Plot.tip().hidden = true; });
    element.addEventListener("click", (event) => {
      const told = event.target.told;
      if (!told) return;
      Plot.show(event.target);
      element.picked?.(told.trace, told.i);
    });
    element.addEventListener("keydown", (event) => {
      const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (by && element.marks.length) {
        event.preventDefault();
        element.at = ((element.at ?? -1) + by + element.marks.length) % element.marks.length;
        Plot.show(element.marks[element.at].mark);
      } else if (event.key === "Enter" && element.at >= 0) { const { trace, i } = element.marks[element.at]; element.picked?.(trace, i); }
      else if (event.key === "Escape") Plot.tip().hidden = true;
    });
  },
};
