// The elements of the timeline's page.
function madeParts(home, app) {
  const { data } = app;
  const said = element("p", { class: "tl-view", role: "status" });
  const heard = element("p", { class: "tl-heard", role: "status" });
  const buttons = data.views.map((one) => {
    const word = { slowest: "Slowest step", typical: "Typical step", devices: "Devices recorded", whole: "Whole run" }[one.key] ?? one.key;
    return button(word, () => app.look(one), { title: one.label, "aria-pressed": "false" });
  });
  const search = element("input", { type: "search", placeholder: "Search events", "aria-label": "Search events by name" });
  const matches = element("span", { class: "tl-count", role: "status" });
  const previous = button("‹", () => app.step(-1), { "aria-label": "Previous match", title: "Previous match" });
  const next = button("›", () => app.step(1), { "aria-label": "Next match", title: "Next match" });
  const help = shortcuts(data);
  const tools = element("div", { class: "tl-tools", role: "group", "aria-label": "Views and search" },
    element("span", { class: "tl-group" }, ...buttons),
    element("span", { class: "tl-group" }, button("−", () => app.zoom(1.6), { "aria-label": "Zoom out", title: "Zoom out (s)" }),
      button("+", () => app.zoom(1 / 1.6), { "aria-label": "Zoom in", title: "Zoom in (w)" }),
      button("Fit", () => app.fit(), { title: "Fit the selection (f)" })),
    element("span", { class: "tl-group" }, search, previous, next, matches),
    button("Keyboard shortcuts", () => help.showModal(), { class: "tl-keys", title: "Keyboard shortcuts (?)" }));
  const canvas = element("canvas", { tabindex: "0", role: "application", "aria-roledescription": "timeline", "aria-label": "Events over time",
    "aria-describedby": "tl-usage" });
  const usage = element("p", { class: "tl-heard", id: "tl-usage" }, "w and s zoom, a and d pan, Enter selects, ? shows all keys.");
  const tree = element("div", { role: "tree", class: "tl-tree", "aria-label": "Tracks" });
  const spacer = element("div", { class: "tl-spacer" });
  const divider = element("div", { class: "tl-edge", role: "separator", tabindex: "0", "aria-orientation": "vertical", "aria-label": "Width of the names",
    "aria-valuemin": "60", title: "Drag to make the names wider; double click: as wide as they need" });
  const stage = element("div", { class: "tl-stage" }, canvas, tree, divider);
  const scroller = element("div", { class: "tl-scroll" }, stage, spacer);
  const tip = element("div", { class: "tl-tip", hidden: "" });
  const tabs = ["Current selection", "Connections", "In view"].map((word, place) => {
    const id = `tl-tab-${place}`;
    return button(word, () => app.tab(place), { role: "tab", id, "aria-controls": `tl-panel-${place}` });
  });
  const panels = tabs.map((one, place) => element("div", { role: "tabpanel", id: `tl-panel-${place}`, "aria-labelledby": one.id, tabindex: "0" }));
  const tablist = element("div", { role: "tablist", "aria-label": "Details" }, ...tabs);
  home.append(tools, said, heard, usage, element("div", { class: "tl-box" }, scroller, tip), colorKey(data),
    element("div", { class: "tl-details" }, tablist, ...panels), help);
  home.hidden = false;
  const pen = canvas.getContext("2d", { alpha: false });
  return { home, said, heard, buttons, search, matches, previous, next, help, canvas, tree, spacer, divider, stage, scroller, tip, tabs, panels, tablist, pen };
}

function shortcuts(data) {
  const help = element("dialog", { class: "tl-help", "aria-label": "Keyboard shortcuts" });
  const keys = [["w, s or + −", "zoom in, zoom out"], ["a, d or ← →", "pan left, right"], ["↑ ↓", "scroll the tracks; in the tree, move between tracks"],
    ["f", "fit the selection, or the whole run without one"], [", and .", "previous and next event on the same track"],
    ["Enter", "on a track: select its first event in view; on an event: go to the other side of its connection"],
    ["← → on a track", "fold and unfold it"], ["/", "search"], ["n, p", "next, previous match"], ...(data.marks.length ? [["m", "next mark: dips, the profile window, slow steps"]] : []), ["Esc", "clear the selection"], ["1, 2, …", "switch view"],
    ["?", "this list"], ["drag", "pan; on the ruler: zoom into the range; on the edge of the names: make them wider"],
    ["wheel", "zoom, after a click on the timeline, or with Ctrl"], ["two fingers", "pinch: zoom"]];
  help.append(element("h3", {}, "Keyboard shortcuts"),
    element("dl", {}, ...keys.map(([key, what]) => element("div", {}, element("dt", {}, key), element("dd", {}, what)))), button("Close", () => help.close()));
  return help;
}

function colorKey(data) {
  const legend = element("p", { class: "tl-legend", "aria-hidden": "true" });
  for (const [meaning, word] of [["computation", "computation"], ["communication", "communication"], ["memory", "memory operation"], ["sync", "synchronization"],
    ["launch", "launch call"], ["host", "host operation"], ["step", "step"], ["annotation", "annotation, merged"]]) {
    if (data.names.some((one) => one.meaning === meaning)) {
      const swatch = element("span", { class: `tl-swatch tl-mark-${meaning}` });
      swatch.style.backgroundColor = `var(--${COLORS[meaning]})`;
      legend.append(element("span", {}, swatch, word));
    }
  }
  if (data.gaps) legend.append(element("span", {}, element("span", { class: "tl-swatch tl-mark-gap" }), "not recorded"));
  return legend;
}
