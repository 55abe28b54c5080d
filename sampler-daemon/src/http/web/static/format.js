// Numbers as the command line shows them: three digits that matter, ± the larger distance to an end of the interval.

function scaled(value, base, units) {
  let unit = 0;
  const limit = base > 1000 ? base - 0.5 : 999.5;
  while (value >= limit && unit + 1 < units.length) {
    value /= base;
    unit += 1;
  }
  const digits = unit === 0 ? 0 : value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return value.toFixed(digits) + units[unit];
}

export const bytes = (n) => (n === null || !isFinite(n) ? "∞" : scaled(n, 1024, [" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"]));
export const count = (n) => (n === null || !isFinite(n) ? "∞" : scaled(n, 1000, ["", "k", "M", "G", "T", "P"]));
export const grouped = (n) => Math.round(n).toLocaleString("en-US");
export const of = (measure) => (measure === "objects" ? count : bytes);
export const time = (ns) => scaled(ns, 1000, [" ns", " µs", " ms", " s"]);

export function duration(ns) {
  const s = ns / 1e9;
  if (s < 1) return `${Math.floor(s * 1000)} ms`;
  if (s < 60) return `${Math.min(s, 59.9).toFixed(1)} s`;
  const whole = Math.floor(s), two = (n) => String(n).padStart(2, "0");
  if (s < 3600) return `${Math.floor(whole / 60)} m ${two(whole % 60)} s`;
  if (s < 86400) return `${Math.floor(whole / 3600)} h ${two(Math.floor((whole % 3600) / 60))} m`;
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

export const clock = (unixNs) => new Date(unixNs / 1e6).toLocaleTimeString([], { hourCycle: "h23" });

const hasEnd = (high) => high !== null && isFinite(high);

// No window, or too few, contain an allocation: nothing is known.
export const isUnmet = ({ value, high }) => value <= 0 && !hasEnd(high);

// `572 MiB … 642 MiB`, nothing where only a lower end is known.
export const range = ({ low, high }, human) => (hasEnd(high) ? `${human(low)} … ${human(high)}` : "");

// `±12%` of a number with its interval, `±14×` from ten times the number on.
export function around({ value, low, high }) {
  if (!hasEnd(high)) return "(no interval)";
  if (value <= 0) return "";
  const times = Math.max(high - value, value - low) / value;
  if (times < 0.0095) return `±${(100 * times).toFixed(1)}%`;
  if (times < 9.995) return `±${(100 * times).toFixed(0)}%`;
  if (times < 999.5) return `±${times.toFixed(0)}×`;
  return times < 99.5e3 ? `±${(times / 1e3).toFixed(0)}k×` : ">99k×";
}

// `607 MiB ±6% (572 MiB … 642 MiB)`
export function interval(number, measure) {
  const human = of(measure);
  return [human(number.value), error(number, human)].filter(Boolean).join(" ");
}

// The same without the number.
export function error(number, human) {
  const ends = range(number, human);
  return [around(number), ends && `(${ends})`].filter(Boolean).join(" ");
}

export function share(part, whole) {
  if (!(whole > 0)) return "0%";
  const percent = (100 * part) / whole;
  return percent >= 99.95 ? "100%" : `${percent.toFixed(1)}%`;
}

export const plural = (n, noun) => `${grouped(n)} ${noun}${n === 1 ? "" : "s"}`;

export function signed(value, human) {
  const size = value === null || !isFinite(value) ? "∞" : human(Math.abs(value));
  return value < 0 ? `−${size}` : value > 0 ? `+${size}` : size;
}
