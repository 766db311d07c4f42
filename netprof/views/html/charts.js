"use strict";
// The charts. Each function describes one from the data for plot.js; all are drawn again when the theme changes.
const Charts = {
  dashes: ["solid", "dash", "dot", "dashdot"],
  symbols: ["circle", "diamond", "square", "triangle-up", "cross", "x", "star", "hexagon"],

  layout(extra) {
    const axis = { title: {} };
    const { xaxis, yaxis, ...rest } = extra;
    const merged = { margin: { l: 56, r: 16, t: 12, b: 40 }, xaxis: Charts.axis(axis, xaxis), yaxis: Charts.axis(axis, yaxis), ...rest };
    for (const key of Object.keys(rest)) if (/^[xy]axis\d/.test(key)) merged[key] = Charts.axis(axis, rest[key]);
    return merged;
  },
  axis(common, own) { return { ...common, ...own, title: { ...common.title, ...own?.title } }; },
  draw(id, traces, layout) {
    const element = document.getElementById(id);
    if (element === null) return null;
    if (layout.height) element.style.height = layout.height + "px";
    return Plot.react(element, traces, Charts.layout(layout));
  },
  // A unit that suits the largest of the values, and its factor.
  unit(values, units) {
    const most = values.reduce((top, value) => (value > top ? value : top), 0);
    return units.find(([size]) => most >= size) || units[units.length - 1];
  },
  times: [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]],
  rates: [[1e9, "Gbit/s"], [1e6, "Mbit/s"], [1e3, "kbit/s"]],
  sizes: [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]],
  rankColours() {
    return ["rank0", "rank1", "rank2", "rank3", "rank4", "rank5"].map((name) => Style.colours[name]);
  },
  pattern(kind) {
    const shapes = { plain: "", rising: "/", falling: "\\", dots: "." };
    return { shape: shapes[Style.textures[kind]], fgcolor: Style.colours.hatch, fgopacity: 1, size: 7, solidity: 0.35, fillmode: "overlay" };
  },

  anatomy(data, names) {
    const c = Style.colours, [unit, unitName] = Charts.unit([data.ends.end.median], Charts.times);
    const traces = [], rows = [...(data.launched ? [] : ["phases"]), ...data.buckets.map(Charts.bucketRow)];
    if (!data.launched) Charts.anatomyPhases(traces, data, names, unit, unitName);
    Charts.anatomyBuckets(traces, data, unit, unitName);
    const gantt = 40 + Math.max(46, Math.min(rows.length * 26, 420)), shapes = [], notes = [];
    for (const name of data.launched ? [] : ["backward", "wait", "done"]) {
      const x = data.ends[name].median / unit;
      shapes.push({ type: "line", xref: "x", yref: "paper", x0: x, x1: x, y0: 0, y1: 1, line: { color: c.dim, width: 1, dash: "dot" }, layer: "below" });
    }
    const link = data.profile ? 190 : 0, idle = data.profile && Object.keys(data.profile.idle).length ? 84 : 0, gap = 34;
    const total = gantt + (link ? link + gap : 0) + (idle ? idle + gap : 0);
    const domain = (top, height) => [1 - (top + height) / total, 1 - top / total];
    const layout = {
      height: total + 86, barmode: "overlay", showlegend: true, shapes, bargap: 0.22, margin: { l: 128, r: 16, t: 14, b: 44 },
      legend: { orientation: "h", y: 1, yanchor: "bottom", x: 0, itemclick: false, itemdoubleclick: false },
      xaxis: { domain: [0, 1], title: { text: `${unitName} after the iteration's begin` }, anchor: idle ? "y3" : link ? "y2" : "y", range: [0, Math.max(data.ends.end.p90, data.ends.end.median) / unit * 1.01], showspikes: true, spikemode: "across", spikethickness: 1, spikecolor: c.dim, spikedash: "solid" },
      yaxis: { domain: domain(0, gantt), categoryorder: "array", categoryarray: [...rows].reverse(), fixedrange: true, showgrid: false },
      annotations: notes,
    };
    if (link) Charts.anatomyLink(traces, layout, data, unit, domain(gantt + gap, link), notes);
    if (idle) Charts.anatomyIdle(traces, layout, data, names, unit, domain(gantt + gap + link + gap, idle));
    return Charts.draw("anatomy-plot", traces, layout);
  },
  bucketRow(bucket, k) { return `bucket ${k + 1} · ${bucket.bytes === null ? "size unknown" : Numbers.size(bucket.bytes)}`; },
  bar(kind, name, legend, unit, unitName) {
    return {
      type: "bar", orientation: "h", name, y: [], base: [], x: [], customdata: [], showlegend: legend, legendgroup: kind,
      marker: { color: Style.colours[kind], pattern: Charts.pattern(kind), line: { width: 0 } },
      hovertemplate: `%{customdata}<extra>${name}</extra>`,
    };
  },
  put(trace, row, from, to, unit, text) {
    trace.y.push(row); trace.base.push(from / unit); trace.x.push((to - from) / unit); trace.customdata.push(text);
  },
  whiskers(points, unit) {
    return {
      type: "scatter", mode: "markers", showlegend: false, hoverinfo: "skip", y: points.map(([row]) => row), x: points.map(([, s]) => s.median / unit),
      marker: { size: 0.1, color: Style.colours.ink },
      error_x: { type: "data", symmetric: false, array: points.map(([, s]) => (s.p90 - s.median) / unit), arrayminus: points.map(([, s]) => (s.median - s.p10) / unit), color: Style.colours.ink, thickness: 1.2, width: 4 },
    };
  },
  anatomyPhases(traces, data, names, unit, unitName) {
    const ends = [["forward", null, "backward"], ["backward", "backward", "wait"], ["exposed_communication", "wait", "done"], ["rest", "done", "end"]];
    for (const [phase, begin, end] of ends) {
      const trace = Charts.bar(phase, names.phases[phase], true, unit, unitName), from = begin ? data.ends[begin].median : 0, to = data.ends[end].median;
      if (!(phase in names.phases)) continue;
      Charts.put(trace, "phases", from, to, unit, `${Numbers.duration(to - from)}, to ${Numbers.duration(to)}<br>p10 ${Numbers.duration(data.ends[end].p10)}, p90 ${Numbers.duration(data.ends[end].p90)}`);
      traces.push(trace);
    }
    traces.push(Charts.whiskers(["backward", "wait", "done", "end"].map((name) => ["phases", data.ends[name]]), unit));
  },
  anatomyBuckets(traces, data, unit, unitName) {
    const ready = Charts.bar("ready", "gradients ready, not launched", true, unit, unitName);
    const queued = Charts.bar("queued", "launched, waiting", true, unit, unitName);
    const wire = Charts.bar("wire", "in its collective", true, unit, unitName);
    const unpack = Charts.bar("unpack", "arrived, not unpacked", true, unit, unitName);
    const points = [], launches = [];
    data.buckets.forEach((bucket, k) => {
      const row = Charts.bucketRow(bucket, k);
      const begin = bucket.begin || bucket.launch;
      const put = (trace, from, to) => Charts.put(trace, row, from, Math.max(from, to), unit, `${row}<br>${Numbers.duration(Math.max(0, to - from))}, from ${Numbers.duration(from)} to ${Numbers.duration(to)}`);
      if (bucket.ready) put(ready, bucket.ready.median, bucket.launch.median);
      put(queued, bucket.launch.median, bucket.begin ? begin.median : bucket.unpacked.median);
      if (bucket.begin) {
        put(wire, begin.median, bucket.end.median);
        put(unpack, bucket.end.median, bucket.unpacked.median);
      }
      points.push([row, bucket.end]);
      launches.push([row, bucket.launch]);
    });
    for (const trace of [ready, queued, wire, unpack]) if (trace.x.some((x) => x > 0)) traces.push(trace);
    if (!points.length) return;
    traces.push(Charts.whiskers(points, unit), Charts.whiskers(launches, unit));
    traces.push({
      type: "scatter", mode: "markers", name: "launch", y: launches.map(([row]) => row), x: launches.map(([, s]) => s.median / unit),
      marker: { symbol: "line-ns", size: 15, line: { width: 2.5, color: Style.colours.ink } }, hovertemplate: `launched at %{x:.3~f} ${unitName}<extra></extra>`,
    });
  },
  anatomyLink(traces, layout, data, unit, domain, notes) {
    const c = Style.colours, p = data.profile, x = p.edges_s.slice(0, -1).map((s) => s / unit);
    const known = data.rate_bps, [scale, scaleName] = known ? [known / 100, "% of line rate"] : Charts.unit(p.tx_bps[2].concat(p.rx_bps[2]), Charts.rates);
    for (const [key, sign, name] of [["tx", 1, "sent"], ["rx", -1, "received"]]) {
      const [low, middle, high] = p[key + "_bps"].map((row) => row.map((bps) => sign * bps / scale));
      const common = { x, xaxis: "x", yaxis: "y2", type: "scatter", mode: "lines" };
      const line = { shape: "hv", width: 0, color: c[key] };
      traces.push({ ...common, y: low, line, hoverinfo: "skip", showlegend: false });
      traces.push({ ...common, y: high, line, fill: "tonexty", fillcolor: c[key] + "40", hoverinfo: "skip", showlegend: false });
      traces.push({ ...common, y: middle, name, line: { ...line, width: 1.6, dash: sign > 0 ? "solid" : "dot" }, fill: "none", showlegend: true,
        customdata: p[key + "_bps"][1].map((bps) => Numbers.rate(bps)), hovertemplate: `%{customdata}<extra>${name}</extra>` });
    }
    layout.yaxis2 = { domain, fixedrange: true, title: { text: scaleName }, tickvals: known ? [-100, -50, 0, 50, 100] : undefined, ticktext: known ? ["100", "50", "0", "50", "100"] : undefined, range: known ? [-112, 112] : undefined };
    notes.push({ text: data.link, xref: "paper", yref: "paper", x: 0, y: domain[1], yanchor: "bottom", xanchor: "left", showarrow: false, font: { size: 12, color: c.dim } });
    if (known) for (const at of [-100, 100]) layout.shapes.push({ type: "line", xref: "paper", yref: "y2", x0: 0, x1: 1, y0: at, y1: at, line: { color: c.rate, width: 1, dash: "dash" } });
  },
  anatomyIdle(traces, layout, data, names, unit, domain) {
    const p = data.profile, width = p.edges_s.slice(1).map((edge, i) => (edge - p.edges_s[i]) / unit);
    const before = new Array(width.length).fill(0);
    for (const [cause, share] of Object.entries(p.idle)) {
      if (!share.some((part) => part > 0)) continue;
      traces.push({
        type: "bar", name: "idle: " + names.causes[cause], x: p.edges_s.slice(0, -1).map((s, i) => s / unit + width[i] / 2), width, base: [...before],
        y: share.map((part) => part * 100), xaxis: "x", yaxis: "y3", marker: { color: Style.colours[cause], pattern: Charts.pattern(cause), line: { width: 0 } },
        hovertemplate: `%{y:.0f} % of the iterations are idle here<extra>${names.causes[cause]}</extra>`,
      });
      share.forEach((part, i) => { before[i] += part * 100; });
    }
    layout.yaxis3 = { domain, fixedrange: true, range: [0, 100], title: { text: "idle, %" }, tickvals: [0, 50, 100] };
  },

  overRun(data, tracks) {
    const colours = Charts.rankColours(), all = data.flatMap((rank) => rank.duration_s), [unit, name] = Charts.unit(all, Charts.times), traces = [];
    data.forEach((rank, i) => {
      const few = data.length <= 4;
      for (const [key, label, symbol] of [["duration_s", "iteration", "circle"], ["exposed_s", "exposed", "triangle-down-open"]]) {
        if (key === "exposed_s" && (!few || rank[key].every((s) => s === null))) continue;
        traces.push({
          type: "scatter", mode: "markers", name: data.length > 1 ? `${rank.label}: ${label}` : label, x: rank.begin_us.map((us) => us / 1e6), y: rank[key].map((s) => (s === null ? null : s / unit)),
          customdata: rank.number.map((n, k) => [n, rank.begin_us[k], rank.duration_s[k] * 1e6]),
          marker: { color: colours[i % colours.length], symbol: key === "duration_s" ? Charts.symbols[i % Charts.symbols.length] : symbol, size: 6, opacity: 0.8 },
          hovertemplate: `iteration %{customdata[0]}: %{y:.2f} ${name}<extra>${rank.label}, ${label}</extra>`,
        });
      }
    });
    Charts.draw("run-plot", traces, { height: 420, xaxis: { title: { text: "s after the recording's begin" } }, yaxis: { title: { text: name }, rangemode: "tozero" } });
    const element = document.getElementById("run-plot");
    if (element) element.picked = (trace, i) => Main.jump(tracks, trace.customdata[i][1], trace.customdata[i][2]);
  },
  // Each iteration's waiting, stacked by cause; who was late is said where one points.
  waiting(data, names, tracks) {
    const totals = data.number.map((_, k) => Object.values(data.waits_s).reduce((sum, waits) => sum + waits[k], 0));
    const [unit, name] = Charts.unit(totals, Charts.times);
    const text = data.number.map((number, k) => `iteration ${number}, ${Numbers.duration(data.duration_s[k])}: waits ${Numbers.duration(totals[k])}` + (data.late_rank[k] === null || !data.waits_s.late_rank ? "" : `<br>late: rank ${data.late_rank[k]}`));
    const traces = Object.entries(data.waits_s).map(([cause, waits]) => ({
      type: "bar", name: names[cause], x: data.number, y: waits.map((s) => s / unit), customdata: waits.map((s, k) => [Numbers.duration(s), text[k], data.begin_us[k], data.duration_s[k] * 1e6]),
      marker: { color: Style.colours[cause], line: { width: 0 }, pattern: data.number.length <= 60 ? Charts.pattern(cause) : undefined },
      hovertemplate: `${names[cause]}: %{customdata[0]}<br>%{customdata[1]}<extra></extra>`,
    }));
    Charts.draw("waiting-plot", traces, { height: 300, barmode: "stack", legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, traceorder: "normal" }, bargap: data.number.length <= 200 ? 0.12 : 0, xaxis: { title: { text: "iteration" } }, yaxis: { title: { text: name }, rangemode: "tozero" } });
    const element = document.getElementById("waiting-plot");
    if (element) element.picked = (trace, i) => Main.jump(tracks, trace.customdata[i][2], trace.customdata[i][3]);
  },
  distributions(data, labels) {
    const colours = Charts.rankColours(), traces = [], metrics = ["iteration", "exposed", "bus"].filter((metric) => metric in data);
    const names = { iteration: "iteration", exposed: "exposed communication", bus: "bus bandwidth" }, gap = 0.17, high = (1 - gap * (metrics.length - 1)) / metrics.length;
    const layout = { height: 420, barmode: "group", bargap: 0.08, margin: { l: 44, r: 16, t: 12, b: 40 } };
    metrics.forEach((metric, row) => {
      const { edges, counts } = data[metric], [unit, unitName] = Charts.unit(edges, metric === "bus" ? Charts.rates : Charts.times);
      const id = row ? String(row + 1) : "", top = 1 - row * (high + gap), show = metric === "bus" ? Numbers.rate : Numbers.duration;
      layout["xaxis" + id] = { anchor: "y" + id, title: { text: `${names[metric]}, ${unitName}`, standoff: 4 } };
      layout["yaxis" + id] = { anchor: "x" + id, domain: [top - high, top], nticks: 4, rangemode: "tozero" };
      counts.forEach((own, i) => traces.push({
        type: "bar", name: labels[i], legendgroup: labels[i], showlegend: row === 0 && labels.length > 1, xaxis: "x" + id, yaxis: "y" + id, y: own,
        x: own.map((_, k) => (edges[k] + edges[k + 1]) / 2 / unit), width: own.map((_, k) => 0.92 * (edges[k + 1] - edges[k]) / unit), customdata: own.map((_, k) => `${show(edges[k])} to ${show(edges[k + 1])}`),
        marker: { color: colours[i % colours.length], pattern: { shape: ["", "/", "\\", "."][i % 4], fgcolor: Style.colours.hatch, size: 6, fillmode: "overlay", fgopacity: 1 } },
        hovertemplate: `%{y} iterations of %{customdata}<extra>${labels[i]}</extra>`,
      }));
    });
    Charts.draw("spread-plot", traces, layout);
  },
  bandwidth(data) {
    const colours = Charts.rankColours(), c = Style.colours;
    const [unit, name] = Charts.unit([data.rate_bps || 0, ...data.ranks.flatMap((r) => r.p90_bps)], Charts.rates);
    const traces = [], shapes = [], annotations = [];
    data.ranks.forEach((rank, i) => {
      traces.push({
        type: "scatter", mode: "markers", name: rank.label, x: rank.bytes, y: rank.median_bps.map((b) => b / unit), customdata: rank.bytes.map((bytes, k) => [Numbers.size(bytes), rank.count[k]]),
        error_y: { type: "data", symmetric: false, array: rank.p90_bps.map((b, k) => (b - rank.median_bps[k]) / unit), arrayminus: rank.p10_bps.map((b, k) => (rank.median_bps[k] - b) / unit), color: colours[i % colours.length], thickness: 1.3, width: 5 },
        marker: { color: colours[i % colours.length], symbol: Charts.symbols[i % Charts.symbols.length], size: 10 },
        hovertemplate: `%{customdata[0]}: median %{y:.3f} ${name}, %{customdata[1]} all-reduces<extra>${rank.label}</extra>`,
      });
    });
    const level = (bps, text, dash, side) => {
      shapes.push({ type: "line", xref: "paper", x0: 0, x1: 1, y0: bps / unit, y1: bps / unit, line: { color: c.rate, width: 1.4, dash } });
      annotations.push({ xref: "paper", x: side, xanchor: side ? "right" : "left", y: bps / unit, yanchor: "bottom", text, showarrow: false, font: { color: c.ink, size: 12 } });
    };
    if (data.rate_bps) level(data.rate_bps, `line rate ${Numbers.rate(data.rate_bps)}`, "dash", 1);
    if (data.aggregate_bps !== null) level(data.aggregate_bps, `all together ${Numbers.rate(data.aggregate_bps)}`, "dot", 0);
    const sizes = data.ranks.flatMap((r) => r.bytes), low = Math.min(...sizes), high = Math.max(...sizes);
    Charts.draw("bandwidth-plot", traces, {
      height: 330, shapes, annotations, showlegend: data.ranks.length > 1, legend: { orientation: "h", y: 1.04, yanchor: "bottom", x: 0 },
      xaxis: { type: "log", title: { text: "size of the buffer" }, range: [Math.log10(low) - 0.5, Math.log10(high) + 0.5], ...Charts.sizeTicks(low / 3.2, high * 3.2) },
      yaxis: { title: { text: name }, rangemode: "tozero" },
    });
  },
  sizeTicks(low, high) {
    const tickvals = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) for (const m of [1, 3]) tickvals.push(m * 10 ** power);
    return { tickvals, ticktext: tickvals.map((v) => Numbers.size(v).replace(/\.0+ /, " ")) };
  },
  flows(data) {
    const [unit, name] = Charts.unit(data.flatMap((f) => [f.tx_bytes, f.rx_bytes]), Charts.sizes), traces = [];
    const rows = data.map((f, i) => `${i + 1}  ${f.label}`);
    for (const [key, label, kind, sign] of [["tx_bytes", "sent", "tx", 1], ["rx_bytes", "received", "rx", -1]]) {
      traces.push({
        type: "bar", orientation: "h", name: label, y: rows, x: data.map((f) => sign * f[key] / unit), customdata: data.map((f) => [Numbers.size(f[key]), f.device, Numbers.size(f.retransmitted_bytes)]),
        marker: { color: Style.colours[kind], pattern: kind === "rx" ? Charts.pattern("backward") : undefined }, hovertemplate: `%{customdata[0]} ${label} over %{customdata[1]}<br>%{customdata[2]} retransmitted<extra></extra>`,
      });
    }
    traces.push({ type: "bar", orientation: "h", name: "of it retransmitted", y: rows, x: data.map((f) => f.retransmitted_bytes / unit), marker: { color: Style.colours.exposed, pattern: Charts.pattern("exposed_communication") }, hoverinfo: "skip", showlegend: data.some((f) => f.retransmitted_bytes > 0) });
    Charts.draw("flows-plot", traces, {
      height: 110 + 26 * rows.length, barmode: "overlay", bargap: 0.3, margin: { l: 60, r: 16, t: 12, b: 40 },
      xaxis: { title: { text: `${name}, received to the left, sent to the right` } }, yaxis: { type: "category", autorange: "reversed", tickvals: rows, ticktext: rows, fixedrange: true, showgrid: false },
    });
  },
  whatif(data) {
    const c = Style.colours, colours = Charts.rankColours();
    const charts = [["scaling-plot", "scaling_factor", 1, "scaling factor", data.scaling_factor], ["whatif-time-plot", "iteration_s", ...Charts.unit([data.iteration_s || 1], Charts.times), data.iteration_s]];
    for (const [id, key, unit, title, measured] of charts) {
      const traces = [];
      for (const [series, dash, transport] of [[data.measured, null, "measured transport"], [data.ideal, "dot", "link fully used"]]) {
        series.forEach((curve, i) => traces.push({
          type: "scatter", mode: "lines", name: curve.compression === "1" ? "as it is" : `gradients ÷ ${curve.compression}`, legendgroup: `c${curve.compression}`, showlegend: dash === null || !data.measured.length,
          x: curve.bandwidth_bps.map((b) => b / 1e9), y: curve[key].map((v) => (v === null ? null : v / unit)), line: { color: colours[i % 4], width: dash ? 1.4 : 1 + 0.6 * (4 - i), dash: dash || "solid" },
          hovertemplate: `%{x:.3~g} Gbit/s: %{y:.3f}<extra>${transport}, ${curve.compression === "1" ? "uncompressed" : "÷ " + curve.compression}</extra>`,
        }));
      }
      for (const curve of key === "iteration_s" ? data.measured.filter((each) => each.compression === "1" && each.iteration_low_s.length) : []) {
        const x = curve.bandwidth_bps.map((b) => b / 1e9), edge = { type: "scatter", mode: "lines", x, line: { width: 0 }, hoverinfo: "skip", showlegend: false };
        traces.push({ ...edge, y: curve.iteration_low_s.map((v) => v / unit) }, { ...edge, y: curve.iteration_high_s.map((v) => v / unit), fill: "tonexty", fillcolor: colours[0] + "40" });
      }
      const shapes = [], annotations = [];
      if (data.rate_bps) {
        shapes.push({ type: "line", yref: "paper", y0: 0, y1: 1, x0: data.rate_bps / 1e9, x1: data.rate_bps / 1e9, line: { color: c.dim, width: 1, dash: "dash" } });
        if (measured !== null) traces.push({ type: "scatter", mode: "markers+text", name: "measured", text: ["measured"], textposition: "middle right", x: [data.rate_bps / 1e9], y: [measured / unit], marker: { symbol: "star", size: 15, color: c.ink, line: { color: c.paper, width: 1.5 } }, showlegend: false, hovertemplate: `measured: %{y:.3f}<extra></extra>` });
      }
      Charts.draw(id, traces, {
        height: 340, shapes, annotations, xaxis: { type: "log", title: { text: "link speed, Gbit/s" }, dtick: 1 },
        yaxis: key === "scaling_factor" ? { range: [0, 1.04], title: { text: title } } : { rangemode: "tozero", title: { text: title } },
      });
    }
  },
};
