"use strict";
// Numbers as a person reads them, as in the console's report.
const Numbers = {
  digits(value) {
    const size = Math.abs(value);
    return size < 10 ? value.toFixed(2) : size < 1000 ? value.toFixed(1) : value.toFixed(0);
  },
  scaled(value, units, smallest) {
    for (const [unit, name] of units) {
      if (Math.abs(value) >= unit * 0.99995) return Numbers.digits(value / unit) + " " + name;
    }
    return value.toFixed(0) + " " + smallest;
  },
  duration(seconds) {
    if (seconds === null) return "unknown";
    return seconds === 0 ? "0 ms" : Numbers.scaled(seconds, [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]], "µs");
  },
  micros(us) { return Numbers.duration(us / 1e6); },
  size(bytes) {
    return bytes === null ? "unknown" : Numbers.scaled(bytes, [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]], "B");
  },
  rate(bps) {
    if (bps === null) return "unknown";
    return Numbers.scaled(bps, [[1e12, "Tbit/s"], [1e9, "Gbit/s"], [1e6, "Mbit/s"], [1e3, "kbit/s"]], "bit/s");
  },
  share(part) { return part === null ? "unknown" : (part * 100).toFixed(1) + " %"; },
  // A clock reading at a resolution that tells neighbouring ticks apart.
  clock(us, stepUs) {
    const decimals = Math.max(0, Math.min(6, Math.ceil(-Math.log10(stepUs / 1e6) - 1e-9)));
    return (us / 1e6).toFixed(decimals) + " s";
  },
};
