// Where the reader looks: the shown time, moved and zoomed.
function addViews(app) {
  const { data, view, state } = app;
  const { buttons, said } = app.parts;
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  let moving = 0;
  // kept: the address stays as it is. words: of what is shown.
  function go(from, to, { jump = false, key = "", kept = false, words = "" } = {}) {
    const least = 100, most = data.span * 1.02;
    let width = Math.max(least, Math.min(most, to - from));
    let begin = from + (to - from - width) / 2;
    begin = Math.max(-0.01 * data.span, Math.min(begin, 1.01 * data.span - width));
    const goal = [begin, begin + width], origin = [view.from, view.to];
    app.quiet();
    if (state.key !== key || key) {
      state.key = key;
      data.views.forEach((one, place) => buttons[place].setAttribute("aria-pressed", String(one.key === key)));
    }
    cancelAnimationFrame(moving);
    const put = (share) => {
      view.from = origin[0] + (goal[0] - origin[0]) * share;
      view.to = origin[1] + (goal[1] - origin[1]) * share;
    };
    tell(goal, words);
    if (!kept) app.note();
    if (state.tab === 2) { clearTimeout(state.listing); state.listing = setTimeout(app.list, 250); }
    if (jump || calm.matches) { put(1); app.ask(); return; }
    const began = performance.now();
    const frame = (now) => {
      const share = Math.min(1, Math.max(0, (now - began) / 160));
      put(1 - (1 - share) ** 3);
      app.quiet();
      app.draw();
      if (share < 1) moving = requestAnimationFrame(frame);
    };
    moving = requestAnimationFrame(frame);
  }
  function tell(goal, words) {
    const known = data.views.find((one) => one.key === state.key), text = words || (known && clean(known.label, 400));
    said.textContent = text ? `Shown: ${text}` : `Shown: ${spell(goal[1] - goal[0])}, from ${exact(Math.round(Math.max(0, goal[0]) / 1000) * 1000)} after the start`;
  }
  function look(one, opening = false) {
    const edge = (one.to - one.from) * 0.015;
    if (one.track >= 0) {
      reveal(one.track);
      const row = data.tracks[one.track].row;
      if (row) app.sight(row);
    }
    go(one.from - edge, one.to + edge, { key: one.key, jump: opening, kept: opening });
  }
  function mark(one) {
    const edge = Math.max((one.to - one.from) * 0.05, 1000);
    go(one.from - edge, one.to + edge, { words: one.words });
  }
  function zoom(factor, at = state.width / 2, jump = false) {
    const pivot = app.time(at);
    go(pivot - (pivot - view.from) * factor, pivot + (view.to - pivot) * factor, { jump });
  }
  function pan(share, jump = false) {
    const by = (view.to - view.from) * share;
    const width = view.to - view.from, begin = Math.max(-0.01 * data.span, Math.min(view.from + by, 1.01 * data.span - width));
    go(begin, begin + width, { jump });
  }
  function fit() {
    if (state.selected < 0) { go(0, data.span, { key: "whole" }); return; }
    const begin = data.start[state.selected], wide = Math.max(data.duration[state.selected], 50);
    go(begin - wide, begin + 2 * wide);
  }
  function reveal(id) {
    let changed = false;
    for (let one = data.tracks[data.tracks[id].parent]; one; one = data.tracks[one.parent]) {
      if (!state.open.has(one.id)) { state.open.add(one.id); changed = true; }
    }
    if (changed) app.rebuild();
  }
  function center(event, stay = false) {
    app.select(event, stay);
    const width = view.to - view.from, middle = data.start[event] + data.duration[event] / 2;
    const wide = Math.max(Math.min(width, Math.max(data.duration[event], 50) * 60), data.duration[event] * 1.2);
    go(middle - wide / 2, middle + wide / 2);
  }

  // To the other side of a connection: both ends of its arrow are in view; of a long run only as much as leaves the launch wide enough.
  function follow([launch, run], event, stay = false) {
    app.select(event, stay);
    const called = data.start[launch] + data.duration[launch], reach = Math.max(data.start[run], called, data.start[launch] + 50) - data.start[launch];
    const begin = Math.min(data.start[launch], data.start[run]), end = Math.max(called, data.start[run] + Math.min(data.duration[run], 3 * reach)), edge = 0.08 * (end - begin);
    for (const one of [event === launch ? run : launch, event]) app.behold(one);
    go(begin - edge, end + edge);
  }
  Object.assign(app, { go, look, mark, zoom, pan, fit, reveal, center, follow });
}
