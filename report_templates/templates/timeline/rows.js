// The rows: which tracks are shown, how high and wide, and the tree of their names.
function addRows(app) {
  const { data, view, state } = app;
  const { home, scroller, stage, spacer, divider, tree, canvas, pen } = app.parts;
  function rebuild() {
    app.quiet();
    state.rows = [];
    let y = app.head;
    const walk = (one) => {
      const open = state.open.has(one.id);
      const h = one.line ? LINE : one.lanes ? Math.max(HEAD, one.lanes * LANE + 2 * PAD) : HEAD;
      one.row = { one, y, h, open };
      state.rows.push(one.row);
      y += h;
      for (const child of one.children) if (open) walk(child); else hide(child);
    };
    const hide = (one) => { one.row = null; one.children.forEach(hide); };
    data.tracks.filter((one) => one.parent < 0).forEach(walk);
    state.total = y;
    size();
  }
  function size() {
    const room = Math.max(220, Math.min(640, innerHeight * 0.72));
    state.height = Math.min(state.total + 1, room);
    const wide = scroller.clientWidth || home.clientWidth;
    const most = Math.max(90, Math.round(wide * (wide < 600 ? 0.42 : 0.6)));
    state.label = Math.max(60, Math.min(most, state.chosen || Math.min(needed(), wide < 600 ? 138 : 330)));
    state.width = Math.max(60, wide - state.label);
    divider.style.left = `${state.label - 4}px`;
    divider.setAttribute("aria-valuemax", String(most));
    divider.setAttribute("aria-valuenow", String(state.label));
    scroller.style.height = `${state.height}px`;
    spacer.style.height = `${Math.max(0, state.total - state.height)}px`;
    stage.style.height = `${state.height}px`;
    tree.style.width = `${state.label}px`;
    const ratio = devicePixelRatio || 1;
    canvas.style.left = `${state.label}px`;
    canvas.style.width = `${state.width}px`;
    canvas.style.height = `${state.height}px`;
    canvas.width = Math.round(state.width * ratio);
    canvas.height = Math.round(state.height * ratio);
    app.ask();
  }
  // How wide the names of all rows are, in pixels.
  const indent = (one) => 4 + one.depth * Math.min(11, Math.max(5, (scroller.clientWidth || 800) / 60));
  const bold = (one) => one.kind === "node" || one.kind === "process";
  function wide(text, strong) {
    pen.font = `${strong ? "bold " : ""}12px ${FAMILIES}`;
    const found = pen.measureText(text).width;
    pen.font = FONT;
    return found;
  }
  const around = 25;
  function needed() {
    let most = 100;
    for (const { one } of state.rows) most = Math.max(most, indent(one) + around + (one.wide ??= wide(clean(one.label), bold(one))));
    return Math.ceil(most);
  }
  function widen(width) { state.chosen = Math.max(60, Math.round(width)); size(); app.draw(); }
  divider.addEventListener("pointerdown", (event) => { divider.setPointerCapture(event.pointerId); event.preventDefault(); divider.focus({ preventScroll: true }); });
  divider.addEventListener("pointermove", (event) => { if (divider.hasPointerCapture(event.pointerId)) widen(event.clientX - stage.getBoundingClientRect().left); });
  divider.addEventListener("dblclick", () => { state.chosen = 0; size(); });
  divider.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -10, ArrowRight: 10 }[event.key];
    if (by) { widen(state.label + by); event.preventDefault(); event.stopPropagation(); }
  });
  function fold(one, open) {
    if (!one.children.length) return;
    if (open) state.open.add(one.id); else state.open.delete(one.id);
    rebuild();
  }
  // ---- The tree: only the rows in sight are in the page, and the one that has the focus
  const items = new Map();
  const corner = element("div", { class: "tl-corner", "aria-hidden": "true" }, "Track");
  corner.style.height = `${app.head - 1}px`;
  tree.append(corner);
  function labels(shown, top) {
    const wanted = new Set(shown);
    const focused = state.rows.find((row) => row.one.id === state.current) ?? state.rows[0];
    if (focused) { wanted.add(focused); state.current = focused.one.id; }
    for (const [id, made] of items) if (!wanted.has(data.tracks[id].row)) { made.remove(); items.delete(id); }
    for (const row of state.rows) {
      if (!wanted.has(row)) continue;
      const one = row.one;
      let made = items.get(one.id);
      if (!made) {
        made = element("div", { role: "treeitem", "aria-level": String(one.depth + 1), "data-track": String(one.id), class: `tl-label tl-${one.kind}` },
          element("span", { class: "tl-fold", "aria-hidden": "true" }), element("bdi", {}));
        made.title = clean(one.detail && one.detail !== one.label ? `${one.label}: ${one.detail}` : one.label, 400);
        const after = [...tree.querySelectorAll("[role=treeitem]")].find((other) => Number(other.dataset.track) > one.id);
        tree.insertBefore(made, after ?? null);
        items.set(one.id, made);
      }
      if (one.children.length) made.setAttribute("aria-expanded", String(row.open));
      made.style.paddingLeft = `${indent(one)}px`;
      // The whole name, else the shorter one; what is still too long loses its end.
      const room = state.label - indent(one) - around;
      const text = one.narrow && (one.wide ??= wide(clean(one.label), bold(one))) > room + 4 ? one.narrow : one.label;
      made.lastChild.textContent = clean(text);
      made.firstChild.textContent = one.children.length ? (row.open ? "▾" : "▸") : "";
      made.classList.toggle("tl-brushed", brush.kind === "rank" && one.kind === "process" && one.narrow === `rank ${brush.key}`);
      made.tabIndex = one.id === state.current ? 0 : -1;
      made.setAttribute("aria-selected", String(state.selected >= 0 && data.track[state.selected] === one.id));
      made.style.top = `${row.y - top}px`;
      made.style.height = `${row.h}px`;
    }
  }
  function walkTo(row) {
    if (!row) return;
    state.current = row.one.id;
    sight(row);
    app.draw();
    items.get(row.one.id)?.focus({ preventScroll: true });
  }
  function sight(row) {
    const top = scroller.scrollTop;
    if (row.y - app.head < top) scroller.scrollTop = row.y - app.head;
    else if (row.y + row.h > top + state.height) scroller.scrollTop = row.y + row.h - state.height;
  }
  function top(row) { scroller.scrollTop = row.y - app.head; }
  tree.addEventListener("click", (event) => {
    const item = event.target.closest("[role=treeitem]");
    if (!item) return;
    const one = data.tracks[Number(item.dataset.track)];
    state.current = one.id;
    fold(one, !state.open.has(one.id));
    app.draw();
    items.get(one.id)?.focus({ preventScroll: true });
  });
  tree.addEventListener("focusin", (event) => {
    const item = event.target.closest("[role=treeitem]");
    if (!item) return;
    state.current = Number(item.dataset.track);
    if (item.matches(":focus-visible")) { sight(data.tracks[state.current].row); app.draw(); } // with Tab, to one that was scrolled away
  });
  tree.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const at = state.rows.findIndex((row) => row.one.id === state.current), row = state.rows[at];
    if (!row) return;
    const one = row.one, open = state.open.has(one.id);
    const acts = {
      ArrowDown: () => walkTo(state.rows[at + 1]), ArrowUp: () => walkTo(state.rows[at - 1]), Home: () => walkTo(state.rows[0]), End: () => walkTo(state.rows.at(-1)),
      ArrowRight: () => { if (one.children.length && !open) { fold(one, true); walkTo(one.row); } else if (open) walkTo(state.rows[at + 1]); },
      ArrowLeft: () => { if (open && one.children.length) { fold(one, false); walkTo(one.row); } else if (one.parent >= 0) walkTo(data.tracks[one.parent].row); },
      Enter: () => {
        const event = firstIn(one);
        if (event >= 0) { app.select(event); canvas.focus({ preventScroll: true }); } else { fold(one, !open); walkTo(one.row); }
      },
      " ": () => { fold(one, !open); walkTo(one.row); },
    };
    if (acts[event.key]) { acts[event.key](); event.preventDefault(); event.stopPropagation(); }
  });
  function firstIn(one) {
    for (const part of one.parts) {
      const i = bound(data.E, part.low, part.high, view.from, true);
      if (i < part.high && data.S[i] < view.to) return data.order[i];
    }
    return -1;
  }
  Object.assign(app, { rebuild, size, labels, sight, top, firstIn });
}
