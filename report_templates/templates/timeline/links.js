// The address of a view: #t=1200.5-1250&rank=3, in ms since the start of the timeline. Links of the report lead there, and the view is written to it.
const TIMES = /^t=(\d{1,12}(?:\.\d{1,6})?)-(\d{1,12}(?:\.\d{1,6})?)$/, RANK = /^rank=(\d{1,9})$/;

// { from, to, rank } of a fragment, or null if it is none of a view.
function placeOf(fragment, span) {
  const words = fragment.replace(/^#/, "").split("&"), times = TIMES.exec(words[0]), rank = RANK.exec(words.at(-1))?.[1];
  if (words.length !== Boolean(times) + Boolean(rank)) return null;
  if (!times) return { rank };
  const [from, to] = [times[1], times[2]].map((ms) => Math.round(Number(ms) * 1e6));
  return to < from || from >= span ? null : { from, to: Math.min(to, span), rank };
}

function fragmentOf(from, to, rank) {
  const [begin, end] = [from, to].map((ns) => String(Math.max(0, Math.round(ns)) / 1e6));
  return `#t=${begin}-${end}${rank ? `&rank=${rank}` : ""}`;
}

function addLinks(app) {
  const { data, view, state } = app;
  const { home, canvas } = app.parts;
  let waiting = 0;
  const process = (rank) => data.tracks.find((one) => one.kind === "process" && one.narrow === `rank ${rank}`);

  // Shows the place of the address; an address without one is left to the browser.
  function openAddress() {
    const place = placeOf(location.hash, data.span);
    if (!place) return;
    for (let part = home; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
    const track = place.rank ? process(place.rank) : null;
    if (track) {
      brush.set("rank", place.rank);
      app.reveal(track.id);
      if (!state.open.has(track.id)) { state.open.add(track.id); app.rebuild(); }
    }
    if (place.from !== undefined) {
      const edge = place.to > place.from ? 0 : Math.max(1000, data.span / 2000); // a moment has no width of its own
      app.go(place.from - edge, place.to + edge, { kept: true });
    }
    home.scrollIntoView();
    if (track) app.top(track.row);
    canvas.focus({ preventScroll: true });
  }
  // The view becomes the address when it has come to rest.
  function note() {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      try { history.replaceState(null, "", fragmentOf(view.from, view.to, brush.kind === "rank" ? brush.key : "")); } catch { /* the browser may forbid it */ }
    }, 400);
  }
  function keep() {
    try { history.replaceState({ view: [view.from, view.to], key: state.key, top: scrollY }, ""); } catch { /* the browser may forbid it */ }
  }
  document.querySelectorAll("[data-at]").forEach((one) => {
    const link = one.tagName === "A" ? one : element("a", {}, ...one.childNodes);
    if (link !== one) one.append(link);
    link.href = `#${one.dataset.at}`;
    link.addEventListener("click", () => {
      clearTimeout(waiting);
      // The browser does not act on the address that it has.
      if (location.hash === link.hash) openAddress(); else keep();
    });
  });
  // Back from a link: what was shown before it, and the place of the link.
  addEventListener("hashchange", () => {
    clearTimeout(waiting);
    const before = history.state;
    if (!before?.view) { openAddress(); return; }
    app.go(...before.view, { key: before.key, kept: true });
    scrollTo(scrollX, before.top);
  });
  Object.assign(app, { openAddress, note });
}
