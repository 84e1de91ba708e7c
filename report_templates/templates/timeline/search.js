// The search by name.
function addSearch(app) {
  const { data, view, state } = app;
  const { search, matches, previous, next, canvas } = app.parts;
  function seek() {
    const text = search.value.trim().toLowerCase();
    state.query = text;
    state.found = [];
    state.hits = null;
    if (text) {
      state.hits = data.names.map((one) => one.name.toLowerCase().includes(text) || one.short.toLowerCase().includes(text));
      state.prefix = counts(data, state.hits);
      const found = new Int32Array(state.prefix[data.count]);
      for (let j = 0, at = 0; j < data.count; j += 1) if (state.hits[data.name[j]]) found[at++] = j;
      state.found = found.sort((a, b) => data.start[a] - data.start[b] || a - b);
    }
    counted();
    app.ask();
  }
  function counted() {
    const at = state.selected < 0 ? -1 : state.found.indexOf(state.selected);
    matches.textContent = !state.query ? "" : !state.found.length ? "no match" : at >= 0 ? `${grouped(at + 1)} of ${grouped(state.found.length)}` : `${grouped(state.found.length)} match${state.found.length === 1 ? "" : "es"}`;
    previous.disabled = next.disabled = !state.found.length;
  }
  function step(by) {
    const found = state.found;
    if (!found.length) return;
    let at = state.selected < 0 ? -1 : found.indexOf(state.selected);
    if (at < 0) {
      const middle = state.selected < 0 ? view.from : data.start[state.selected];
      let low = 0, high = found.length;
      while (low < high) { const k = (low + high) >> 1; if (data.start[found[k]] < middle) low = k + 1; else high = k; }
      at = by > 0 ? low - 1 : low;
    }
    app.center(found[(at + by + found.length) % found.length]);
    counted();
  }
  let typing = 0;
  search.addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(seek, 120); });
  search.addEventListener("keydown", (event) => {
    if (event.key === "Enter") { clearTimeout(typing); if (search.value.trim().toLowerCase() !== state.query) seek(); step(event.shiftKey ? -1 : 1); event.preventDefault(); }
    if (event.key === "Escape") { search.value = ""; seek(); canvas.focus({ preventScroll: true }); }
    event.stopPropagation();
  });
  Object.assign(app, { seek, counted, step });
}
