// Numbers and durations in words, as text/formats.py writes them.
const grouped = (value) => String(value).replace(/\B(?=(\d{3})+$)/g, ",");
const digits = (value) => (value === 0 ? "0" : value >= 100 ? String(Math.round(value)) : value.toPrecision(3));
function spell(ns) {
  const size = Math.abs(ns), sign = ns < 0 ? "−" : "";
  if (size < 999.5) return `${sign}${Math.round(size)}\u00a0ns`;
  if (size < 999.5e3) return `${sign}${digits(size / 1e3)}\u00a0µs`;
  if (size < 999.5e6) return `${sign}${digits(size / 1e6)}\u00a0ms`;
  if (size < 60e9) return `${sign}${digits(size / 1e9)}\u00a0s`;
  const parts = (total, base, unit, smaller) => `${sign}${grouped(Math.floor(total / base))}\u00a0${unit}${total % base ? `\u00a0${total % base}\u00a0${smaller}` : ""}`;
  const seconds = Math.round(size / 1e9), minutes = Math.round(seconds / 60);
  if (seconds < 3600) return parts(seconds, 60, "min", "s");
  if (minutes < 48 * 60) return parts(minutes, 60, "h", "min");
  return parts(Math.round(seconds / 3600), 24, "d", "h");
}
