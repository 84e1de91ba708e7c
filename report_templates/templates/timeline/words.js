// Times of the timeline in words, names from a trace, and elements.
// A time of a minute or more in its parts, without those that are zero, and with so many decimals of the second.
function clock(ns, decimals) {
  const least = 10 ** (9 - decimals), sign = ns < 0 ? "−" : "";
  let rest = Math.round(Math.abs(ns) / least) * least;
  const written = [];
  for (const [unit, size] of [["d", 86400e9], ["h", 3600e9], ["min", 60e9]]) {
    const whole = Math.floor(rest / size);
    rest -= whole * size;
    if (whole) written.push(`${grouped(whole)}\u00a0${unit}`);
  }
  if (rest || !written.length) written.push(`${(rest / 1e9).toFixed(decimals)}\u00a0s`);
  return sign + written.join("\u00a0");
}
const exact = (ns) => {
  if (ns >= 60e9) return clock(ns, 9).replace(/\.?0+(?=\u00a0s$)/, "");
  const [unit, size] = ns >= 1e9 ? ["s", 1e9] : ns >= 1e6 ? ["ms", 1e6] : ["µs", 1e3];
  return `${(ns / size).toFixed(Math.round(Math.log10(size))).replace(/\.?0+$/, "")}\u00a0${unit}`;
};
// The distance of the ticks of a ruler, and how their times are written: absolute, with as many decimals as distinguish them; in one unit
// before a minute has passed, else in minutes and seconds.
const PACES = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 21600, 43200, 86400].map((seconds) => seconds * 1e9);
function scale(from, to, width) {
  const [unit, one] = to >= 1e9 ? ["s", 1e9] : to >= 1e6 ? ["ms", 1e6] : to >= 1e3 ? ["µs", 1e3] : ["ns", 1];
  let room = 110, pace, write;
  for (const last of [false, true]) {
    const least = (to - from) / Math.max(2, width / room), power = 10 ** Math.floor(Math.log10(least));
    pace = PACES.find((value) => least > 0.5e9 && value >= least) ?? Math.max(1, [1, 2, 5, 10].map((k) => k * power).find((value) => value >= least));
    const decimals = Math.max(0, Math.round(Math.log10(one)) - Math.floor(Math.log10(pace) + 1e-9));
    write = to >= 60e9 ? (ns) => clock(ns, decimals) : (ns) => `${(ns / one).toFixed(decimals).replace(/^-?\d+/, grouped).replace("-", "−")}\u00a0${unit}`;
    if (!last) room = Math.max(room, 7 * write(to).length + 14);
  }
  return { pace, write };
}
// Of a name from a trace: on one line, and not longer than can be read.
const clean = (text, most = 160) => {
  const plain = text.replace(/\s+/g, " ");
  return plain.length <= most ? plain : `${plain.slice(0, most - 1)}…`;
};
const element = (name, attributes = {}, ...inside) => {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...inside);
  return made;
};
const button = (text, act, attributes = {}) => {
  const made = element("button", { type: "button", ...attributes }, text);
  made.addEventListener("click", act);
  return made;
};
