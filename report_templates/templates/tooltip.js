// The values of a figure on hover, and with the arrow keys once it has the focus. The text is the title of the mark, and what READERS add.
(() => {
  const NEAR = 14; // pixels from a curve
  const SIZES = { ns: 1, "µs": 1e3, ms: 1e6, s: 1e9, min: 60e9, h: 3600e9, d: 86400e9 };
  const titled = (one) => one.querySelector(":scope > title");
  let tip = null, mark = null, text = "", place = 0; // place: of the value that the keys have reached

  function hide() {
    if (!mark) return;
    titled(mark).textContent = text;
    mark.classList.remove("pointed");
    mark = null;
    tip.hidden = true;
  }
  // The browser's own tooltip stays away while ours is shown: the title is empty for so long.
  function show(one, x, y, words) {
    if (one !== mark) {
      hide();
      mark = one;
      text = titled(one).textContent;
      titled(one).textContent = "";
      one.classList.add("pointed");
    }
    tip.textContent = text + words;
    tip.hidden = false;
    tip.style.left = `${Math.max(4, Math.min(x + 12, innerWidth - tip.offsetWidth - 4))}px`;
    tip.style.top = `${y + 18 + tip.offsetHeight > innerHeight ? y - tip.offsetHeight - 8 : y + 18}px`;
  }

  // The value with as many decimals as a tenth of a pixel distinguishes.
  const rounded = (value, pixel) => value.toFixed(Math.max(0, Math.min(9, Math.ceil(-Math.log10(Math.abs(pixel) / 10) - 1e-9)))).replace(/^-(?=[0.]+$)/, "");
  const united = (number, unit) => (unit === "%" ? `${number}%` : unit ? `${number}\u00a0${unit}` : number);
  // A time as a text has it: in parts from a minute on, and where the axis has minutes or more.
  const inParts = (value, unit) => Math.max(SIZES[unit], value * SIZES[unit]) >= 60e9;
  function time(value, unit, pixel) {
    if (!inParts(value, unit)) return united(rounded(value, pixel), unit);
    const ns = Math.round(value / pixel * 10) * pixel / 10 * SIZES[unit];
    return ns ? spell(ns) : "0\u00a0s";
  }
  const interval = (start, end, unit, pixel) => `${inParts(end, unit) ? time(start, unit, pixel) : rounded(start, pixel)} to ${time(end, unit, pixel)}`;

  // The points of a curve, in units of its figure.
  function pointsOf(curve) {
    const numbers = curve.getAttribute("d").match(/-?[\d.]+/g).map(Number);
    return Array.from({ length: numbers.length / 2 }, (_, i) => [numbers[2 * i], numbers[2 * i + 1]]);
  }
  function heightAt(points, x) {
    const after = points.findIndex(([at]) => at >= x);
    if (after < 0 || (after === 0 && points[0][0] > x)) return null;
    const [x1, y1] = points[after], [x0, y0] = points[Math.max(0, after - 1)];
    return x1 > x0 ? y0 + (y1 - y0) * (x - x0) / (x1 - x0) : y1;
  }
  function reading(curve, x, y) {
    const [left, perX, top, perY, ...form] = curve.dataset.axes.split(" "), value = Number(left) + x * perX;
    const across = form[0] === "{}" ? time(value, form[1], perX * 10) : form.join("\u00a0").replace("{}", String(Math.round(value)));
    return `: ${united(rounded(Number(top) + y * perY, perY), curve.dataset.unit ?? "")} at ${across}`;
  }

  // Bars follow each other in the path; a bin without a count has none.
  function barsOf(path) {
    const [low, high, spacing, unit, ...counts] = path.dataset.bins.split(" "), bins = counts.length;
    const rights = [...path.getAttribute("d").matchAll(/V[\d.]+H([\d.]+)/g)].map((bar) => Number(bar[1]));
    const edge = (k) => (spacing === "log" ? low * (high / low) ** (k / bins) : Number(low) + (high - low) * k / bins);
    const filled = counts.flatMap((count, i) => (count === "0" ? [] : [i]));
    const size = (count) => (unit === "%" ? `${count}%` : grouped(Math.round(count)));
    return filled.map((i, at) => [rights[at], `: ${size(counts[i])} at ${interval(edge(i), edge(i + 1), unit, (edge(i + 1) - edge(i)) * 10)}`]);
  }

  // The fields of a heat map: a byte each, in percent; above 100 without a sample (figures/pixels.py).
  async function unpackFields(image) {
    const bytes = Uint8Array.from(atob(image.getAttribute("href").split(",")[1]), (letter) => letter.charCodeAt(0)), view = new DataView(bytes.buffer);
    const wide = view.getUint32(16), rows = [];
    let at = 8, size = 0;
    for (; String.fromCharCode(...bytes.subarray(at + 4, at + 8)) !== "IDAT"; at += 12 + size) size = view.getUint32(at);
    const packed = new Blob([bytes.subarray(at + 8, at + 8 + view.getUint32(at))]).stream().pipeThrough(new DecompressionStream("deflate"));
    const lines = new Uint8Array(await new Response(packed).arrayBuffer());
    for (let start = 1; start < lines.length; start += wide + 1) rows.push(lines.subarray(start, start + wide));
    image.fields = rows;
  }
  function field(image, x, y) {
    const [start, end, unit, noun, ...ids] = image.dataset.heat.split(" "), [left, top, wide, tall] = ["x", "y", "width", "height"].map((name) => Number(image.getAttribute(name)));
    const row = Math.min(ids.length - 1, Math.max(0, Math.floor((y - top) / tall * ids.length))), values = image.fields?.[row];
    if (!values) return "";
    const column = Math.min(values.length - 1, Math.max(0, Math.floor((x - left) / wide * values.length))), value = values[column];
    const each = (end - start) / values.length, at = time(Number(start) + each * (column + 0.5), unit, each);
    return `: ${noun} ${ids[row]}, ${value > 100 ? "no sample" : `${value}%`} at ${at}`;
  }
  function rowsOfFields(image) {
    const [, , , noun, ...ids] = image.dataset.heat.split(" ");
    return (image.fields ?? []).map((row, number) => {
      const known = [...row].filter((value) => value <= 100), [low, high] = [Math.min(...known), Math.max(...known)];
      return `: ${noun} ${ids[number]}, ${known.length ? `${low}% to ${high}%, mean ${Math.round(known.reduce((sum, value) => sum + value, 0) / known.length)}%` : "no sample"}`;
    });
  }

  // A matrix has three digits per pair; the names of its rows are texts, if there is room for them.
  function pairs(box) {
    const digits = box.dataset.matrix.match(/.{3}/g), count = Math.sqrt(digits.length), names = {};
    for (const one of box.ownerSVGElement.querySelectorAll("text")) {
      const [, number, name] = /^(\d+): (.*)$/.exec(one.textContent) ?? [];
      if (number) names[number - 1] = name;
    }
    const name = (i) => names[i] ?? String(i + 1), value = (row, column) => digits[row * count + column];
    const words = (row, column) => `: ${name(row)} and ${name(column)}, ${value(row, column) === "---" ? "unknown" : (value(row, column) / 100).toFixed(2)}`;
    return { count, value, words };
  }
  function pair(box, x, y) {
    const { count, words } = pairs(box), [left, top, side] = ["x", "y", "width"].map((name) => Number(box.getAttribute(name)));
    const [column, row] = [x - left, y - top].map((at) => Math.min(count - 1, Math.max(0, Math.floor(at / side * count))));
    return words(row, column);
  }
  function furthest(box) {
    const { count, value, words } = pairs(box), all = Array.from({ length: count }, (_, i) => i);
    return all.map((row) => words(row, all.filter((other) => other !== row).sort((a, b) => (Number(value(row, b)) || 0) - (Number(value(row, a)) || 0))[0] ?? row));
  }

  // The strips of the timeline: the kinds of events follow their strip, each as one path of boxes.
  // An event of more than 5 pixels is drawn without its last 0.8, unlike columns of 1.5 pixels, which several events share (figures/gantt.py).
  const boxesOf = (path) => (path.boxes ??= [...path.getAttribute("d").matchAll(/M([\d.]+) ([\d.]+)h([\d.]+)v([\d.]+)/g)].map((box) => {
    const [left, top, wide, tall] = box.slice(1).map(Number);
    return [left, top, wide + (wide > 4.2 && wide % 1.5 ? 0.8 : 0), tall];
  }));
  function during(strip, from, to) {
    const [first, per, unit] = strip.dataset.strip.split(" ");
    return interval(Number(first) + from * per, Number(first) + to * per, unit, per);
  }
  function moment(strip, x) {
    const [first, per, unit] = strip.dataset.strip.split(" ");
    return time(Number(first) + x * per, unit, per);
  }
  function event(strip, x, y, under) {
    const kind = under.find((one) => one.dataset.kind);
    if (kind?.tagName === "rect") return `: ${kind.dataset.kind}`;
    const box = kind && boxesOf(kind).find(([left, top, wide, tall]) => x >= left && x <= left + wide && y >= top && y <= top + tall);
    return box ? `: ${kind.dataset.kind}, ${kind.hasAttribute("fill-opacity") ? "partly covers " : ""}${during(strip, box[0], box[0] + box[2])}` : `: no event at ${moment(strip, x)}`;
  }
  function kindsOf(strip) {
    const kinds = new Map();
    for (let one = strip.nextElementSibling; one?.dataset.kind; one = one.nextElementSibling) {
      if (one.tagName !== "path") continue;
      const boxes = boxesOf(one), [from, to] = kinds.get(one.dataset.kind) ?? [Infinity, 0];
      kinds.set(one.dataset.kind, [Math.min(from, boxes[0][0]), Math.max(to, ...boxes.map(([left, , wide]) => left + wide))]);
    }
    return [[...kinds].map(([kind, ends], i) => `${i ? "; " : ": "}${kind}, ${during(strip, ...ends)}`).join("") || ": no events"];
  }

  // The steps of a figure of bars: the field behind the bars has their labels, and each part of all of them is one path of boxes.
  function stepsOf(field) {
    const [scale, ...labels] = field.dataset.bars.split("|"), [unit, per, left, slot] = scale.split(" "), steps = labels.map((label) => [label]);
    for (const path of field.ownerSVGElement.querySelectorAll("[data-part]")) {
      for (const [at, , wide, tall] of boxesOf(path)) steps[Math.floor((at + wide / 2 - left) / slot)]?.push(`${path.dataset.part} ${time(tall * per, unit, per * 10)}`);
    }
    return steps.map(([label, ...parts]) => ` ${label}: ${parts.join(", ") || "no time"}`);
  }
  function stepAt(field, x) {
    const [, , left, slot] = field.dataset.bars.split("|")[0].split(" "), steps = stepsOf(field);
    return steps[Math.max(0, Math.min(steps.length - 1, Math.floor((x - left) / slot)))];
  }

  // What a mark with such an attribute adds to its title at a point, and the values that the keys lead through.
  const READERS = {
    axes: [reading, (curve) => [reading(curve, ...pointsOf(curve).at(-1))]],
    bins: [(path, x) => { const bars = barsOf(path); return (bars.find(([right]) => x <= right) ?? bars.at(-1))[1]; }, (path) => barsOf(path).map(([, words]) => words)],
    bars: [stepAt, stepsOf], heat: [field, rowsOfFields], matrix: [pair, furthest], strip: [event, kindsOf],
  };
  const readerOf = (one) => READERS[Object.keys(READERS).find((name) => one.dataset[name])] ?? [() => "", () => [""]];

  function nearest(svg, x, y) {
    let best = null, least = NEAR;
    for (const curve of svg.querySelectorAll("[data-axes]")) {
      const height = heightAt(curve.points ??= pointsOf(curve), x);
      if (height !== null && Math.abs(height - y) < least) { least = Math.abs(height - y); best = [curve, x, height]; }
    }
    return best;
  }
  function point(svg, event) {
    // The number of a bar lies above the bar.
    const under = document.elementsFromPoint(event.clientX, event.clientY).filter((one) => svg.contains(one)), one = under.find((other) => titled(other) && !other.dataset.axes);
    const { x, y } = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    if (one) { show(one, event.clientX, event.clientY, readerOf(one)[0](one, x, y, under)); return; }
    const found = nearest(svg, x, y);
    if (found) show(found[0], event.clientX, event.clientY, reading(...found)); else hide();
  }
  function move(svg, by) {
    const marks = [...svg.querySelectorAll("title")].map((one) => one.parentElement), at = marks.indexOf(mark), values = mark ? readerOf(mark)[1](mark) : [];
    let next = mark;
    if (at >= 0 && place + by >= 0 && place + by < values.length) place += by;
    else {
      next = marks[at < 0 ? (by > 0 ? 0 : marks.length - 1) : Math.max(0, Math.min(marks.length - 1, at + by))];
      if (next !== mark) place = by > 0 ? 0 : readerOf(next)[1](next).length - 1;
    }
    const box = next.getBoundingClientRect();
    show(next, box.left + box.width / 2, box.bottom - 12, readerOf(next)[1](next)[place] ?? "");
  }

  document.addEventListener("DOMContentLoaded", () => {
    const figures = [...document.querySelectorAll("main svg")].filter((svg) => svg.querySelector("title"));
    if (!figures.length) return;
    tip = document.createElement("div");
    tip.className = "tip";
    tip.hidden = true;
    tip.setAttribute("role", "status");
    document.body.append(tip);
    if (typeof DecompressionStream !== "undefined") document.querySelectorAll("[data-heat]").forEach(unpackFields);
    for (const svg of figures) {
      svg.setAttribute("tabindex", "0");
      svg.addEventListener("pointermove", (event) => point(svg, event));
      svg.addEventListener("pointerleave", hide);
      svg.addEventListener("blur", hide);
      svg.addEventListener("keydown", (event) => {
        const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
        if (by) move(svg, by);
        else if (event.key === "Escape") { hide(); return; }
        else if ((event.key === "Enter" || event.key === " ") && mark && brush.kindOf(mark)) brush.toggle(mark);
        else return;
        event.preventDefault();
      });
    }
    addEventListener("scroll", hide, { passive: true });
  });
})();
