// The selected event, and the tabs below the drawing.
function addSelection(app) {
  const { data, view, state } = app;
  const { heard, tabs, panels, tablist } = app.parts;
  function behold(event) {
    const { row } = data.tracks[data.track[event]];
    if (row) app.sight({ y: row.y + data.lane[event] * LANE, h: LANE + 2 * PAD });
  }
  // The tab Current selection is shown, unless what was clicked is in another tab (stay).
  function select(event, stay = false) {
    state.selected = event;
    if (event >= 0) {
      app.reveal(data.track[event]);
      state.current = data.track[event];
      behold(event);
      if (state.tab && !stay) tab(0);
    }
    details();
    touch(event);
    app.ask();
  }
  // The kernel or step of the event is highlighted in the report, and the one that is chosen there in the drawing.
  function touch(event) {
    const name = event < 0 ? null : data.names[data.name[event]], step = /\bstep (\d+)$/.exec(name?.name ?? "");
    if (!name) brush.clear();
    else if (name.meaning === "step" && step) brush.set("step", step[1]);
    else if (["computation", "communication", "memory"].includes(name.meaning)) brush.set("kernel", name.name);
  }
  brush.hear(() => {
    const chosen = { kernel: (one) => one.name === brush.key, step: (one) => one.meaning === "step" && one.name.endsWith(`step ${brush.key}`) }[brush.kind];
    state.brushed = chosen ? data.names.map(chosen) : null;
    state.below = chosen ? counts(data, state.brushed) : null;
    app.ask();
  });
  function path(id) {
    const words = [];
    for (let one = data.tracks[id]; one; one = data.tracks[one.parent]) words.unshift(clean(one.label));
    return words.join(" › ");
  }
  const waited = (pair) => {
    const latency = data.start[pair[1]] - data.start[pair[0]] - data.duration[pair[0]];
    return latency < 0 ? `began ${spell(-latency)} before the call ended` : spell(latency);
  };
  function details() {
    const event = state.selected;
    if (event < 0) {
      panels[0].replaceChildren(element("p", {}, "Nothing selected. Click an event, or focus a track and press Enter."));
      panels[1].replaceChildren(element("p", {}, "Select a kernel or a launch call to see what it belongs to."));
      tabs[1].textContent = "Connections";
      heard.textContent = "";
      return;
    }
    const name = data.names[data.name[event]], pair = app.pairOf(event), track = data.tracks[data.track[event]];
    const word = { step: "Step", annotation: "Annotation", launch: "Call", sync: "Synchronization", host: "Operation", merged: "Events" }[name.meaning]
      ?? (name.meaning === "memory" ? "Operation" : "Kernel");
    const rows = [[word, element("bdi", { class: "tl-name" }, `${clean(name.name, 2000)}${name.name.length > 2000 ? ` (${grouped(name.name.length)} characters)` : ""}`)],
      ["Kind", WORDS[name.meaning] ?? name.meaning], ["Where", path(data.track[event])], ["Start", `${exact(data.start[event])} after the start`], ["Duration", spell(data.duration[event])]];
    if (track.detail && track.kind === "thread") rows.push(["Thread", track.detail.replace("thread ", "")]);
    const around = data.step[event];
    if (around >= 0) rows.push(["Step", button(`${data.names[data.name[around]].short}, ${spell(data.duration[around])}`, () => app.center(around), { class: "tl-link", title: "Center it" })]);
    for (const [key, held] of data.pairs(event)) {
      if (key !== "bytes") { rows.push([key[0].toUpperCase() + key.slice(1), held]); continue; }
      if (data.duration[event] > 0) rows.push(["Bandwidth", `${digits(Number(held) / data.duration[event])}\u00a0GB/s`]);
    }
    if (data.correlation[event] > 0) rows.push(["Correlation", String(data.correlation[event])]);
    const queue = pair && pair[1] === event ? waiting_behind(event) : "";
    if (queue) rows.push(["Queue", queue]);
    if (pair) {
      const launch = pair[0] === event, other = launch ? pair[1] : pair[0];
      rows.push([launch ? "Started" : "Launched by", button(data.names[data.name[other]].short, () => app.follow(pair, other), { class: "tl-link tl-other", title: `Show both ends: ${clean(path(data.track[other]))}` })]);
      rows.push(["Latency", `${waited(pair)} from the end of the call to the start of the run`]);
    } else if (track.kind === "stream" && name.meaning !== "sync" && name.meaning !== "merged") rows.push(["Launched by", "no launch call of it is in the trace"]);
    panels[0].replaceChildren(element("dl", {}, ...rows.map(([key, held]) => element("div", {}, element("dt", {}, key), element("dd", {}, held)))));
    heard.textContent = `Selected: ${name.short}, ${spell(data.duration[event])}, ${clean(path(data.track[event]))}`;
    const pairs = [];
    if (pair) {
      if (pair[0] === event) for (let j = 0; j < data.count && pairs.length < 50; j += 1) { if (data.partner[j] === event && j !== event) pairs.push([event, j]); }
      if (!pairs.some((one) => one[1] === pair[1])) pairs.unshift(pair);
    }
    tabs[1].textContent = pairs.length ? `Connections (${pairs.length})` : "Connections";
    const side = (two, one) => button(`${data.names[data.name[one]].short}, ${spell(data.duration[one])}`, () => app.follow(two, one, true), { class: "tl-link", title: `Show both ends: ${path(data.track[one])}` });
    panels[1].replaceChildren(pairs.length
      ? element("table", {}, element("thead", {}, element("tr", {}, ...["Launch", "Run", "Latency"].map((word) => element("th", { scope: "col" }, word)))),
        element("tbody", {}, ...pairs.map((one) => element("tr", {}, element("td", {}, side(one, one[0])), element("td", {}, side(one, one[1])), element("td", {}, waited(one))))))
      : element("p", {}, "Nothing is linked to this event."));
  }
  // Runs of the same stream whose call had ended when this one began, and that began later.
  function waiting_behind(event) {
    const part = data.tracks[data.track[event]].parts[data.lane[event]], now = data.start[event];
    let count = 0, more = false;
    for (let j = data.place[event] + 1; j < part.high; j += 1) {
      const next = data.order[j], call = data.partner[next];
      if (data.names[data.name[next]].meaning === "merged" || count >= 9999) { more = true; break; }
      if (call < 0) continue;
      if (data.start[call] > now) break;
      if (data.start[call] + data.duration[call] <= now) count += 1;
    }
    return `${more ? "at least " : ""}${count === 0 && !more ? "nothing" : grouped(count)} waiting on the stream when it began`;
  }
  // What is in view, by name: the same facts as in the picture, for whom the picture is of no use.
  function list() {
    clearTimeout(state.listing);
    const sums = new Map();
    let events = 0;
    for (const { one } of state.rows) {
      for (const part of one.parts) {
        for (let i = bound(data.E, part.low, part.high, view.from, true); i < part.high && data.S[i] < view.to; i += 1) {
          const event = data.order[i], key = data.name[event];
          const time = Math.min(data.E[i], view.to) - Math.max(data.S[i], view.from), held = sums.get(key);
          events += 1;
          if (!held) sums.set(key, { key, count: 1, time, longest: event });
          else { held.count += 1; held.time += time; if (data.duration[event] > data.duration[held.longest]) held.longest = event; }
        }
      }
    }
    const rows = [...sums.values()].sort((a, b) => b.time - a.time || a.key - b.key), most = rows.slice(0, 20);
    panels[2].replaceChildren(most.length
      ? element("table", {},
        element("caption", {}, `${grouped(events)} event${events === 1 ? "" : "s"} of ${grouped(rows.length)} name${rows.length === 1 ? "" : "s"} in the tracks that are unfolded, ${spell(view.to - view.from)} in view${rows.length > 20 ? "; the 20 names with most time" : ""}`),
        element("thead", {}, element("tr", {}, ...["Name", "Kind", "Events", "Time in view", "Longest"].map((text) => element("th", { scope: "col" }, text)))),
        element("tbody", {}, ...most.map((row) => {
          const name = data.names[row.key];
          return element("tr", {}, element("th", { scope: "row" }, element("bdi", {}, name.short)), element("td", {}, WORDS[name.meaning] ?? name.meaning), element("td", { class: "tl-number" }, grouped(row.count)),
            element("td", { class: "tl-number" }, spell(row.time)), element("td", { class: "tl-number" }, button(spell(data.duration[row.longest]), () => app.center(row.longest, true), { class: "tl-link", title: "Center it" })));
        })))
      : element("p", {}, "No event of the tracks that are unfolded is in view."));
  }
  function tab(place) {
    tabs.forEach((one, number) => {
      one.setAttribute("aria-selected", String(number === place));
      one.tabIndex = number === place ? 0 : -1;
      panels[number].hidden = number !== place;
    });
    state.tab = place;
    if (place === 2) list();
  }
  tablist.addEventListener("keydown", (event) => {
    if (!["ArrowLeft", "ArrowRight"].includes(event.key)) return;
    const place = (tabs.indexOf(document.activeElement) + (event.key === "ArrowRight" ? 1 : tabs.length - 1)) % tabs.length;
    tab(place);
    tabs[place].focus();
    event.preventDefault();
    event.stopPropagation();
  });
  Object.assign(app, { behold, select, details, list, tab });
}
