// Keys, mouse and touch.
function addInput(app) {
  const { data, view, state } = app;
  const { home, canvas, scroller, help, search, tip } = app.parts;
  function beside(by) {
    if (state.selected < 0) { for (const row of state.rows) { const event = app.firstIn(row.one); if (event >= 0) { app.select(event); return; } } return; }
    const spot = data.place[state.selected], part = data.tracks[data.track[state.selected]].parts[data.lane[state.selected]];
    const other = spot + by;
    if (other < part.low || other >= part.high) return;
    const event = data.order[other];
    app.select(event);
    if (data.S[other] < view.from || data.E[other] > view.to) {
      const width = Math.max(view.to - view.from, data.duration[event] * 1.2), middle = data.start[event] + data.duration[event] / 2;
      app.go(middle - width / 2, middle + width / 2);
    }
  }
  // The marks one after the other, in the order of their importance.
  let at = -1;
  function nextMark() { if (data.marks.length) app.mark(data.marks[at = (at + 1) % data.marks.length]); }
  const acts = {
    w: () => app.zoom(1 / 1.6, state.pointer), s: () => app.zoom(1.6, state.pointer), "+": () => app.zoom(1 / 1.6), "=": () => app.zoom(1 / 1.6), "-": () => app.zoom(1.6),
    a: () => app.pan(-0.25), d: () => app.pan(0.25), ArrowLeft: () => app.pan(-0.1), ArrowRight: () => app.pan(0.1),
    ArrowUp: () => { scroller.scrollTop -= 60; }, ArrowDown: () => { scroller.scrollTop += 60; },
    f: app.fit, ",": () => beside(-1), ".": () => beside(1), n: () => app.step(1), p: () => app.step(-1), m: nextMark, "/": () => search.focus(), "?": () => help.showModal(),
    Escape: () => { app.select(-1); app.counted(); },
    Enter: () => { if (state.selected < 0) beside(1); else if (data.partner[state.selected] >= 0) app.follow(app.pairOf(state.selected), data.partner[state.selected]); },
  };
  home.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
    const within = event.target.closest("button, input, [role=tabpanel]");
    if (within && (["Enter", " ", "Escape"].includes(event.key) || event.key.startsWith("Arrow"))) return;
    const place = "123".indexOf(event.key);
    const act = acts[event.key.length === 1 ? event.key.toLowerCase() : event.key] ?? (place >= 0 && data.views[place] ? () => app.look(data.views[place]) : null);
    if (!act) return;
    act();
    event.preventDefault();
  });

  // ---- Mouse and touch
  function hit(at, y) {
    y += scroller.scrollTop;
    const row = state.rows.find((one) => y >= one.y && y < one.y + one.h);
    if (!row || !row.one.lanes) return -1;
    const part = row.one.parts[Math.max(0, Math.min(row.one.lanes - 1, Math.floor((y - row.y - PAD) / LANE)))];
    const wanted = app.time(at), near = NEAR * (view.to - view.from) / state.width;
    let best = -1, least = near;
    const i = bound(data.E, part.low, part.high, wanted);
    for (let j = Math.max(part.low, i - 1); j < Math.min(part.high, i + 2); j += 1) {
      const away = Math.max(0, data.S[j] - wanted, wanted - data.E[j]);
      if (away < least) { least = away; best = data.order[j]; }
    }
    return best;
  }
  const fingers = new Map();
  let drag = null;
  const position = (event) => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    const [at, y] = position(event);
    fingers.set(event.pointerId, [at, y]);
    try { canvas.setPointerCapture(event.pointerId); } catch { /* the pointer is gone already */ }
    drag = { at, y, from: view.from, to: view.to, top: scroller.scrollTop, moved: false, ruler: y < app.head, touch: event.pointerType === "touch" };
    if (fingers.size === 2) { const [one, two] = [...fingers.values()]; drag.pinch = Math.abs(one[0] - two[0]); drag.pivot = app.time((one[0] + two[0]) / 2); drag.moved = true; }
  });
  canvas.addEventListener("pointermove", (event) => {
    const [at, y] = position(event);
    state.pointer = at;
    if (!drag) { if (y < app.head) over(markAt(at, y), at, y); else hover(hit(at, y), at, y); return; }
    if (fingers.has(event.pointerId)) fingers.set(event.pointerId, [at, y]);
    if (fingers.size === 2 && drag.pinch !== undefined) {
      const [one, two] = [...fingers.values()], apart = Math.max(12, Math.abs(one[0] - two[0])), middle = (one[0] + two[0]) / 2;
      const width = (drag.to - drag.from) * Math.max(12, drag.pinch) / apart;
      app.go(drag.pivot - width * middle / state.width, drag.pivot + width * (1 - middle / state.width), { jump: true });
      return;
    }
    if (Math.abs(at - drag.at) + Math.abs(y - drag.y) > 4) drag.moved = true;
    if (!drag.moved) return;
    tip.hidden = true;
    if (drag.ruler) { state.range = [drag.at, at]; app.ask(); return; }
    const by = (drag.at - at) / state.width * (drag.to - drag.from), width = drag.to - drag.from;
    const begin = Math.max(-0.01 * data.span, Math.min(drag.from + by, 1.01 * data.span - width));
    app.go(begin, begin + width, { jump: true });
    if (!drag.touch) scroller.scrollTop = drag.top + drag.y - y;
  });
  const lift = (event) => {
    fingers.delete(event.pointerId);
    if (!drag || fingers.size) return;
    const [at, y] = position(event);
    if (event.type === "pointerup") {
      if (state.range && Math.abs(at - drag.at) > 3) app.go(...[app.time(drag.at), app.time(at)].sort((a, b) => a - b));
      else if (!drag.moved && drag.ruler) { const mark = markAt(at, y); if (mark) app.mark(mark); }
      else if (!drag.moved) { const event = hit(at, y); app.select(event); app.counted(); }
    }
    state.range = null;
    drag = null;
    app.ask();
  };
  canvas.addEventListener("pointerup", lift);
  canvas.addEventListener("pointercancel", lift);
  canvas.addEventListener("pointerleave", () => { state.pointer = undefined; hover(-1); });
  canvas.addEventListener("dblclick", () => { if (state.selected >= 0) app.fit(); });
  canvas.addEventListener("wheel", (event) => {
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY);
    if (sideways || event.shiftKey) { app.pan((sideways ? event.deltaX : event.deltaY) / state.width, true); event.preventDefault(); return; }
    if (!event.ctrlKey && !event.metaKey && document.activeElement !== canvas) return;
    const pixels = event.deltaY * (event.deltaMode === 1 ? 24 : 1);
    app.zoom(Math.exp(Math.max(-200, Math.min(200, pixels)) * 0.0022), position(event)[0], true);
    event.preventDefault();
  }, { passive: false });
  // What was below the pointer has moved away.
  function quiet() { tip.hidden = true; state.hover = -1; }
  function hover(found, at, y) {
    if (found !== state.hover) { state.hover = found; app.ask(); }
    explain(found < 0 ? "" : `${data.names[data.name[found]].short}: ${spell(data.duration[found])}`, at, y);
  }
  // The smallest mark there: slow steps are within dips.
  function markAt(at, y) {
    const near = data.marks.filter((one) => y >= RULER && app.x(one.from) - NEAR <= at && at <= Math.max(app.x(one.from), one.kind === "slow" ? 0 : app.x(one.to)) + NEAR);
    return near.sort((a, b) => a.to - a.from - b.to + b.from)[0];
  }
  function over(mark, at, y) {
    hover(-1);
    explain(mark ? mark.words : "", at, y);
  }
  function explain(text, at, y) {
    tip.hidden = !text;
    if (!text) return;
    tip.textContent = text;
    const left = state.label + at + 14;
    tip.style.left = `${Math.max(0, Math.min(left, state.label + state.width - tip.offsetWidth - 4))}px`;
    tip.style.top = `${Math.min(y + 18, state.height - tip.offsetHeight - 2)}px`;
  }
  Object.assign(app, { quiet });
}
