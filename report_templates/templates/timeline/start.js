// The beginning: unpacks the events of the page, and opens the timeline at the first view, or at the place of the address.
function start(home, data) {
  const app = { data, view: { from: 0, to: data.span }, head: RULER + (data.marks.length ? MARKS : 0) };
  app.state = { selected: -1, hover: -1, tab: 0, query: "", hits: null, found: [], prefix: null, current: 0, rows: [], open: new Set(), label: 200, chosen: 0,
    width: 600, height: 300, key: "" };
  app.parts = madeParts(home, app);
  for (const add of [addRows, addPainting, addViews, addSelection, addSearch, addInput, addLinks]) add(app);
  const { state } = app, { scroller } = app.parts;
  scroller.addEventListener("scroll", () => { app.quiet(); app.ask(); });
  addEventListener("resize", app.size);
  new ResizeObserver(() => { if (Math.abs((scroller.clientWidth || 0) - state.label - state.width) > ENOUGH) app.size(); }).observe(home);
  const repaint = () => { app.read(); app.ask(); };
  new MutationObserver(repaint).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  openTracks(app);
  app.read();
  app.tab(0);
  app.details();
  app.counted();
  app.rebuild();
  const first = data.views[0] ?? { key: "whole", label: "the whole run", from: 0, to: data.span, track: -1 };
  app.look(first, true);
  const held = first.track >= 0 ? processOf(data, first.track) : null;
  scroller.scrollTop = held?.row ? held.row.y - app.head : 0;
  app.find = (text) => { app.parts.search.value = text; app.seek(); };
  app.openAddress();
  home.timeline = app;
  home.dataset.ready = "yes";
}

// The process above a track, or the outermost track.
function processOf(data, id) {
  let one = data.tracks[id];
  while (one.kind !== "process" && one.parent >= 0) one = data.tracks[one.parent];
  return one;
}

// All tracks, or of many the nodes and the process of the first view.
function openTracks({ data, state }) {
  const many = data.tracks.reduce((sum, one) => sum + Math.max(1, one.lanes), 0) > 48;
  if (!many) {
    data.tracks.forEach((one) => { if (one.children.length) state.open.add(one.id); });
    return;
  }
  data.tracks.forEach((one) => { if (one.children.length && ["node", "gpus"].includes(one.kind) && one.parent < 2 && data.tracks.length < 4000) state.open.add(one.id); });
  let one = processOf(data, data.views.find((view) => view.track >= 0)?.track ?? 0);
  // Deep stacks of the host stay folded: they would hide what comes after.
  const deep = (track) => track.kind === "host" && track.children.reduce((sum, child) => sum + child.lanes, 0) > 12;
  const unfold = (track) => { if (track.children.length && !deep(track)) state.open.add(track.id); track.children.forEach(unfold); };
  unfold(one);
  for (; one; one = data.tracks[one.parent]) state.open.add(one.id);
}

document.addEventListener("DOMContentLoaded", async () => {
  const home = document.getElementById("timeline-view"), held = document.getElementById("timeline-data");
  if (!home || !held) return;
  const strips = document.getElementById("timeline-strips");
  const sorry = (text) => { home.hidden = false; home.replaceChildren(element("p", { class: "more" }, text)); home.dataset.ready = "no"; };
  if (typeof DecompressionStream === "undefined") {
    sorry("This browser cannot unpack the interactive timeline (it has no DecompressionStream); the strips below show the run.");
    return;
  }
  try {
    const began = performance.now(), data = model(await unpack(held.textContent)), decoded = performance.now();
    held.remove();
    await Promise.all(["", "bold "].map((weight) => document.fonts.load(weight + FONT))); // a canvas does not wait for the fonts of its page
    start(home, data);
    home.timeline.draw();
    home.timeline.took = [decoded - began, performance.now() - decoded];
    if (strips) {
      let was = false;
      strips.open = false;
      addEventListener("beforeprint", () => { was = strips.open; strips.open = true; });
      addEventListener("afterprint", () => { strips.open = was; });
    }
  } catch (error) {
    sorry(`The interactive timeline could not be shown (${error.message}); the strips below show the run.`);
  }
});
