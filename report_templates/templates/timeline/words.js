// Times of the timeline in words, names from a trace, and elements.
const exact = (ns) => {
  const [unit, size] = ns >= 1e9 ? ["s", 1e9] : ns >= 1e6 ? ["ms", 1e6] : ["µs", 1e3];
  return `${(ns / size).toFixed(Math.round(Math.log10(size))).replace(/\.?0+$/, "")}\u00a0${unit}`;
};
// The distance of the ticks of a ruler, and how their times are written: absolute, in one unit, with as many decimals as tell them apart.
function scale(from, to, width) {
  const [unit, one] = to >= 1e9 ? ["s", 1e9] : to >= 1e6 ? ["ms", 1e6] : to >= 1e3 ? ["µs", 1e3] : ["ns", 1];
  let room = 110, pace, write;
  for (const last of [false, true]) {
    const least = (to - from) / Math.max(2, width / room), power = 10 ** Math.floor(Math.log10(least));
    pace = Math.max(1, [1, 2, 5, 10].map((k) => k * power).find((value) => value >= least));
    const decimals = Math.max(0, Math.round(Math.log10(one)) - Math.floor(Math.log10(pace) + 1e-9));
    write = (ns) => `${(ns / one).toFixed(decimals).replace(/^-?\d+/, grouped).replace("-", "−")}\u00a0${unit}`;
    if (!last) room = Math.max(room, 7 * write(to).length + 14);
  }
  return { pace, write };
}
// Of a name from a trace: without what turns the direction of text or breaks lines, and not longer than can be read.
const clean = (text, most = 160) => {
  const plain = text.replace(/[\u200e\u200f\u061c\u202a-\u202e\u2066-\u2069]/g, "").replace(/\s+/g, " ");
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
