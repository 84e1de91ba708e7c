// The values of a figure on hover, and with the arrow keys once it has the focus. The text is the title of the mark; a curve adds where it is.
(() => {
  const NEAR = 14; // pixels from a curve
  const titled = (one) => one.querySelector(":scope > title");
  let tip = null, mark = null, text = "";

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
  // The value with as many decimals as a tenth of a pixel distinguishes.
  const rounded = (value, pixel) => value.toFixed(Math.max(0, Math.min(9, Math.ceil(-Math.log10(Math.abs(pixel) / 10) - 1e-9))));
  function reading(curve, x, y) {
    const [left, perX, top, perY, ...form] = curve.dataset.axes.split(" ");
    const across = form[0] === "{}" ? rounded(Number(left) + x * perX, perX * 10) : String(Math.round(Number(left) + x * perX));
    return `: ${rounded(Number(top) + y * perY, perY)} at ${form.join("\u00a0").replace("{}", across)}`;
  }
  // The count of the bar at x, and the ends of its bin. Bars follow each other in the path; a bin without a count has none.
  function bin(mark, x) {
    const [low, high, spacing, unit, ...counts] = mark.dataset.bins.split(" "), bins = counts.length;
    const bars = [...mark.getAttribute("d").matchAll(/V[\d.]+H([\d.]+)/g)].map((bar) => Number(bar[1])), filled = counts.flatMap((count, i) => (count === "0" ? [] : [i]));
    const place = bars.findIndex((right) => x <= right), i = filled[place < 0 ? bars.length - 1 : place];
    const edge = (k) => (spacing === "log" ? low * (high / low) ** (k / bins) : Number(low) + (high - low) * k / bins), wide = edge(i + 1) - edge(i);
    return `: ${Number(counts[i]).toLocaleString("en-US")} at ${rounded(edge(i), wide * 10)} to ${rounded(edge(i + 1), wide * 10)}\u00a0${unit}`;
  }
  const inFigure = (svg, clientX, clientY) => new DOMPoint(clientX, clientY).matrixTransform(svg.getScreenCTM().inverse());
  function nearest(svg, clientX, clientY) {
    const { x, y } = inFigure(svg, clientX, clientY);
    let best = null, least = NEAR;
    for (const curve of svg.querySelectorAll("[data-axes]")) {
      const height = heightAt(curve.points ??= pointsOf(curve), x);
      if (height !== null && Math.abs(height - y) < least) { least = Math.abs(height - y); best = [curve, x, height]; }
    }
    return best;
  }

  function point(svg, event) {
    // The number of a bar lies above the bar.
    const one = document.elementsFromPoint(event.clientX, event.clientY).find((other) => titled(other) && !other.dataset.axes);
    if (one) { show(one, event.clientX, event.clientY, one.dataset.bins ? bin(one, inFigure(svg, event.clientX, event.clientY).x) : ""); return; }
    const found = nearest(svg, event.clientX, event.clientY);
    if (found) show(found[0], event.clientX, event.clientY, reading(...found)); else hide();
  }
  function move(svg, by) {
    const marks = [...svg.querySelectorAll("title")].map((one) => one.parentElement), at = marks.indexOf(mark);
    const next = marks[at < 0 ? (by > 0 ? 0 : marks.length - 1) : Math.max(0, Math.min(marks.length - 1, at + by))];
    const box = next.getBoundingClientRect();
    show(next, box.left + box.width / 2, box.bottom - 12, next.dataset.axes ? reading(next, ...pointsOf(next).at(-1)) : next.dataset.bins ? bin(next, 0) : "");
  }

  document.addEventListener("DOMContentLoaded", () => {
    const figures = [...document.querySelectorAll("main svg")].filter((svg) => svg.querySelector("title"));
    if (!figures.length) return;
    tip = document.createElement("div");
    tip.className = "tip";
    tip.hidden = true;
    tip.setAttribute("role", "status");
    document.body.append(tip);
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
