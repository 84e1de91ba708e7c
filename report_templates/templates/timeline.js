// The interactive timeline: unpacks the events of the page and draws them. Work per frame grows with pixels, not with events.
(() => {
  const LANE = 17, PAD = 3, LINE = 34, HEAD = 24, RULER = 26, NEAR = 5, ENOUGH = 1, FAMILIES = `"Inter", "DejaVu Sans", system-ui, sans-serif`, FONT = `11px ${FAMILIES}`;
  const COLORS = { computation: "computation", communication: "communication", memory: "memory", sync: "sync", launch: "host", host: "operator",
    annotation: "other", step: "idle", merged: "other" };
  const WORDS = { computation: "computation", communication: "communication", memory: "memory operation", sync: "synchronization", launch: "launch call",
    host: "host operation", annotation: "annotation", step: "step", merged: "several short events, merged" };
  const PLAIN = new Set(["step", "annotation", "merged"]);
  const ON_DARK = new Set(["computation", "communication", "loading", "other"]);

  // ---- Reading: see timeline/encode.py
  async function unpack(text) {
    const letters = atob(text.trim()), packed = new Uint8Array(letters.length);
    for (let i = 0; i < packed.length; i += 1) packed[i] = letters.charCodeAt(i);
    const bytes = new Uint8Array(await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer());
    const length = new DataView(bytes.buffer).getUint32(0, true);
    const head = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
    let at = 4 + length;
    const columns = {};
    for (const [name, planes, size] of head.columns) {
      const values = new Float64Array(size);
      let factor = 1;
      for (let plane = 0; plane < planes; plane += 1, factor *= 256) {
        for (let i = 0; i < size; i += 1) values[i] += bytes[at + i] * factor;
        at += size;
      }
      columns[name] = values;
    }
    return { head, columns };
  }
  const straight = (coded) => (coded % 2 ? -(coded + 1) / 2 : coded / 2);
  const floats = (bits) => new Float32Array(Uint32Array.from(bits).buffer);

  function model({ head, columns }) {
    const tracks = head.tracks.map(([parent, kind, label, lanes, detail, narrow], id) => ({ id, parent, kind, label, lanes, detail, narrow, children: [], parts: [], line: null, gaps: [] }));
    for (const one of tracks) {
      one.depth = one.parent < 0 ? 0 : tracks[one.parent].depth + 1;
      if (one.parent >= 0) tracks[one.parent].children.push(one);
    }
    const names = head.names.map(([name, short, meaning]) => ({ name, short: clean(short || name), meaning }));
    const count = columns.gap.length;
    const track = new Int32Array(count), start = new Float64Array(count), duration = columns.duration;
    const name = Int32Array.from(columns.name), lane = Int32Array.from(columns.lane);
    const S = new Float64Array(count), E = new Float64Array(count), P = new Float64Array(count + 1), C = new Float64Array(count + 1);
    const order = new Int32Array(count), place = new Int32Array(count);
    let i = 0, at = 0;
    for (const one of tracks) {
      const first = i, end = i + columns.events_of_track[one.id];
      let time = 0, most = one.lanes - 1;
      for (; i < end; i += 1) {
        time += straight(columns.gap[i]);
        track[i] = one.id;
        start[i] = time;
        if (lane[i] > most) most = lane[i];
      }
      one.lanes = end > first ? most + 1 : 0;
      const sizes = new Int32Array(one.lanes + 1);
      for (let j = first; j < end; j += 1) sizes[lane[j] + 1] += 1;
      for (let k = 0; k < one.lanes; k += 1) sizes[k + 1] += sizes[k];
      for (let k = 0; k < one.lanes; k += 1) one.parts.push({ S, E, P, C, low: at + sizes[k], high: at + sizes[k + 1], real: true });
      for (let j = first; j < end; j += 1) {
        const spot = at + sizes[lane[j]]++;
        order[spot] = j;
        place[j] = spot;
      }
      at += end - first;
    }
    for (let j = 0; j < count; j += 1) {
      const event = order[j];
      S[j] = start[event];
      E[j] = start[event] + duration[event];
      P[j + 1] = P[j] + duration[event];
      C[j + 1] = C[j] + (names[name[event]].meaning === "communication" ? duration[event] : 0);
    }
    const relative = (coded, made) => {
      for (let j = 0, before = 0; j < count; j += 1) made[j] = coded[j] ? (before += straight(coded[j] - 1)) : -1;
      return made;
    };
    const partner = relative(columns.partner, new Int32Array(count)), step = relative(columns.step, new Int32Array(count));
    const correlation = relative(columns.correlation, new Float64Array(count));
    for (let j = 0; j < count; j += 1) if (correlation[j] < 0 && partner[j] >= 0) correlation[j] = correlation[partner[j]];
    head.lines.forEach(([id, unit], number) => {
      const time = Float64Array.from(columns[`time${number}`], straight);
      for (let j = 1; j < time.length; j += 1) time[j] += time[j - 1];
      const [mean, low, high] = ["mean", "low", "high"].map((word) => floats(columns[word + number]));
      let top = unit === "percent" ? 100 : 0;
      if (!top) for (const value of high) top = Math.max(top, value);
      // Where samples are missing for much longer than they usually take, nothing is known: the line has a hole.
      const paces = Float64Array.from(time.subarray(1), (value, j) => value - time[j]).sort();
      tracks[id].line = { unit, time, mean, low, high, top: top || 1, most: unit && paces.length > 3 ? 5 * paces[paces.length >> 1] : Infinity };
    });
    // What was not recorded of a process holds for all that was recorded with its events; samples and steps can come from elsewhere.
    const spread = (one, gap) => { if (!one.line && !["steps", "annotations"].includes(one.kind)) one.gaps.push(gap); one.children.forEach((child) => spread(child, gap)); };
    for (const [id, from, to] of head.gaps) spread(tracks[id], [from, to]);
    const views = head.views.map(([key, label, from, to, on]) => ({ key, label, from, to, track: on }));
    const detail = Int32Array.from(columns.detail, (value) => value - 1);
    const pairs = (event) => (detail[event] < 0 ? [] : head.details[detail[event]].map((place) => head.pairs[place]));
    return { tracks, names, count, track, start, duration, name, lane, partner, step, correlation, order, place, S, E, P, C, views, pairs, span: Math.max(head.span, 1), gaps: head.gaps.length };
  }

  // The first place in [low, high) whose value is not below (or, with above, is above) the wanted one.
  function bound(values, low, high, wanted, above = false) {
    while (low < high) {
      const middle = (low + high) >> 1;
      if (above ? values[middle] <= wanted : values[middle] < wanted) low = middle + 1; else high = middle;
    }
    return low;
  }

  // ---- Words
  const digits = (value) => (value === 0 ? "0" : value >= 100 ? String(Math.round(value)) : value.toPrecision(3));
  function spell(ns) {
    const size = Math.abs(ns), sign = ns < 0 ? "−" : "";
    if (size < 999.5) return `${sign}${Math.round(size)}\u00a0ns`;
    if (size < 999.5e3) return `${sign}${digits(size / 1e3)}\u00a0µs`;
    if (size < 999.5e6) return `${sign}${digits(size / 1e6)}\u00a0ms`;
    if (size < 60e9) return `${sign}${digits(size / 1e9)}\u00a0s`;
    const parts = (total, base, unit, smaller) => `${sign}${grouped(Math.floor(total / base))}\u00a0${unit}${total % base ? `\u00a0${total % base}\u00a0${smaller}` : ""}`;
    const seconds = Math.round(size / 1e9), minutes = Math.round(seconds / 60);
    if (seconds < 3600) return parts(seconds, 60, "min", "s");
    if (minutes < 48 * 60) return parts(minutes, 60, "h", "min");
    return parts(Math.round(seconds / 3600), 24, "d", "h");
  }
  const exact = (ns) => {
    const [unit, size] = ns >= 1e9 ? ["s", 1e9] : ns >= 1e6 ? ["ms", 1e6] : ["µs", 1e3];
    return `${(ns / size).toFixed(Math.round(Math.log10(size))).replace(/\.?0+$/, "")}\u00a0${unit}`;
  };
  const grouped = (value) => String(value).replace(/\B(?=(\d{3})+$)/g, ",");
  // Of a name from a trace: without what turns the direction of text or breaks lines, and not longer than can be read.
  const clean = (text, most = 160) => {
    const plain = text.replace(/[\u200e\u200f\u061c\u202a-\u202e\u2066-\u2069]/g, "").replace(/\s+/g, " ");
    return plain.length <= most ? plain : `${plain.slice(0, most - 1)}…`;
  };
  const element = (name, attributes = {}, ...inside) => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...inside);
    return made;
  };
  const button = (text, act, attributes = {}) => {
    const made = element("button", { type: "button", ...attributes }, text);
    made.addEventListener("click", act);
    return made;
  };

  function start(home, data) {
    const calm = matchMedia("(prefers-reduced-motion: reduce)");
    const view = { from: 0, to: data.span };
    const state = { selected: -1, hover: -1, tab: 0, query: "", hits: null, found: [], prefix: null, current: 0, rows: [], open: new Set(), label: 200, chosen: 0, width: 600, height: 300, key: "" };
    let colors = {}, hatched = "", crossed = "";

    // ---- The parts of the page
    const said = element("p", { class: "tl-view", role: "status" });
    const heard = element("p", { class: "tl-heard", role: "status" });
    const buttons = data.views.map((one) => {
      const word = { slowest: "Slowest step", typical: "Typical step", devices: "Devices recorded", whole: "Whole run" }[one.key] ?? one.key;
      return button(word, () => look(one), { title: one.label, "aria-pressed": "false" });
    });
    const search = element("input", { type: "search", placeholder: "Search events", "aria-label": "Search events by name" });
    const matches = element("span", { class: "tl-count", role: "status" });
    const previous = button("‹", () => step(-1), { "aria-label": "Previous match", title: "Previous match" });
    const next = button("›", () => step(1), { "aria-label": "Next match", title: "Next match" });
    const help = element("dialog", { class: "tl-help", "aria-label": "Keyboard shortcuts" });
    const tools = element("div", { class: "tl-tools", role: "group", "aria-label": "Views and search" },
      element("span", { class: "tl-group" }, ...buttons),
      element("span", { class: "tl-group" }, button("−", () => zoom(1.6), { "aria-label": "Zoom out", title: "Zoom out (s)" }),
        button("+", () => zoom(1 / 1.6), { "aria-label": "Zoom in", title: "Zoom in (w)" }),
        button("Fit", fit, { title: "Fit the selection (f)" })),
      element("span", { class: "tl-group" }, search, previous, next, matches),
      button("Keyboard shortcuts", () => help.showModal(), { class: "tl-keys", title: "Keyboard shortcuts (?)" }));
    const canvas = element("canvas", { tabindex: "0", role: "application", "aria-roledescription": "timeline",
      "aria-label": "Events over time. w and s zoom, a and d move, Enter selects, ? shows all keys." });
    const tree = element("div", { role: "tree", class: "tl-tree", "aria-label": "Tracks" });
    const spacer = element("div", { class: "tl-spacer" });
    const divider = element("div", { class: "tl-edge", role: "separator", tabindex: "0", "aria-orientation": "vertical", "aria-label": "Width of the names",
      "aria-valuemin": "60", title: "Drag to make the names wider; double click: as wide as they need" });
    const stage = element("div", { class: "tl-stage" }, canvas, tree, divider);
    const scroller = element("div", { class: "tl-scroll" }, stage, spacer);
    const tip = element("div", { class: "tl-tip", hidden: "" });
    const tabs = ["Current Selection", "Connections", "In view"].map((word, place) => {
      const id = `tl-tab-${place}`;
      return button(word, () => tab(place), { role: "tab", id, "aria-controls": `tl-panel-${place}` });
    });
    const panels = tabs.map((one, place) => element("div", { role: "tabpanel", id: `tl-panel-${place}`, "aria-labelledby": one.id, tabindex: "0" }));
    const tablist = element("div", { role: "tablist", "aria-label": "Details" }, ...tabs);
    const legend = element("p", { class: "tl-legend", "aria-hidden": "true" });
    const keys = [["w, s or + −", "zoom in, zoom out"], ["a, d or ← →", "earlier, later"], ["↑ ↓", "scroll the tracks; within the tree, go from track to track"],
      ["f", "fit the selection, else the whole run"], [", and .", "event before and after on the same track"], ["Enter", "on a track: its first event in view; on an event: the other side of its connection"],
      ["← → on a track", "fold and unfold it"], ["/", "search"], ["n, p", "next, previous match"], ["Esc", "clear the selection"], ["1, 2, …", "the views of the buttons"], ["?", "this list"],
      ["drag", "move; on the ruler: zoom into the stretch; on the edge of the names: make them wider"], ["wheel", "zoom, once the timeline was clicked, or with Ctrl"], ["two fingers", "zoom"]];
    help.append(element("h3", {}, "Keyboard shortcuts"), element("dl", {}, ...keys.map(([key, what]) => element("div", {}, element("dt", {}, key), element("dd", {}, what)))),
      button("Close", () => help.close()));
    for (const [meaning, word] of [["computation", "computation"], ["communication", "communication"], ["memory", "memory operation"], ["sync", "synchronization"],
      ["launch", "launch call"], ["host", "host operation"], ["step", "step"], ["annotation", "annotation, merged"]]) {
      if (data.names.some((one) => one.meaning === meaning)) {
        const swatch = element("span", { class: `tl-swatch tl-mark-${meaning}` });
        swatch.style.backgroundColor = `var(--${COLORS[meaning]})`;
        legend.append(element("span", {}, swatch, word));
      }
    }
    if (data.gaps) legend.append(element("span", {}, element("span", { class: "tl-swatch tl-mark-gap" }), "not recorded"));
    home.append(tools, said, heard, element("div", { class: "tl-box" }, scroller, tip), legend, element("div", { class: "tl-details" }, tablist, ...panels), help);
    home.hidden = false;
    const pen = canvas.getContext("2d", { alpha: false });

    // ---- Rows
    function rebuild() {
      quiet();
      state.rows = [];
      let y = RULER;
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
      ask();
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
    function widen(width) { state.chosen = Math.max(60, Math.round(width)); size(); draw(); }
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
    // Busy time of the streams below a folded track, else of its threads; made once.
    function busy(one) {
      if (one.busy !== undefined) return one.busy;
      const found = { stream: [], thread: [] };
      const walk = (track) => { if (found[track.kind] && track.parts.length) found[track.kind].push(track.parts[0]); track.children.forEach(walk); };
      walk(one);
      const parts = found.stream.length ? found.stream : found.thread;
      const total = parts.reduce((sum, part) => sum + part.high - part.low, 0);
      if (!total) return (one.busy = null);
      // Each part is in order, so they are merged two by two.
      let lists = parts.map((part) => Int32Array.from({ length: part.high - part.low }, (_, j) => part.low + j));
      while (lists.length > 1) {
        const halved = [];
        for (let k = 0; k < lists.length; k += 2) {
          const a = lists[k], b = lists[k + 1];
          if (!b) { halved.push(a); continue; }
          const both = new Int32Array(a.length + b.length);
          for (let i = 0, j = 0, at = 0; at < both.length; at += 1) both[at] = j >= b.length || (i < a.length && data.S[a[i]] <= data.S[b[j]]) ? a[i++] : b[j++];
          halved.push(both);
        }
        lists = halved;
      }
      const [places] = lists;
      const S = [], E = [], P = [0], C = [0];
      for (const j of places) {
        const last = S.length - 1, talk = data.C[j + 1] - data.C[j];
        if (last >= 0 && data.S[j] <= E[last]) {
          const more = Math.max(0, data.E[j] - E[last]);
          E[last] += more;
          P[last + 1] += more;
          C[last + 1] += Math.min(talk, more);
        } else {
          S.push(data.S[j]); E.push(data.E[j]); P.push(P[last + 1] + data.E[j] - data.S[j]); C.push(C[last + 1] + talk);
        }
      }
      return (one.busy = { S, E, P, C, low: 0, high: S.length, real: false, host: !found.stream.length });
    }

    // ---- Drawing
    function read() {
      const style = getComputedStyle(home);
      const get = (name) => style.getPropertyValue(`--${name}`).trim();
      colors = { paper: get("paper"), ink: get("ink"), muted: get("muted"), grid: get("grid"), panel: get("panel"), accent: get("accent"),
        light: get("on-computation"), dark: get("on-idle") };
      const mix = (color, share) => {
        const parts = [1, 3, 5].map((i) => Math.round(parseInt(color.slice(i, i + 2), 16) * (1 - share)));
        return `rgb(${parts.join(",")})`;
      };
      for (const [meaning, name] of Object.entries(COLORS)) {
        const color = get(name);
        colors[meaning] = /^#[0-9a-f]{6}$/i.test(color) ? [0, 0.04, 0.08].map((share) => mix(color, share)) : [color, color, color];
      }
      colors.label = (meaning) => (meaning === "step" ? colors.dark : ON_DARK.has(meaning) ? colors.light : "#111418");
      hatched = pen.createPattern(hatching(colors.muted), "repeat");
      crossed = pen.createPattern(hatching(colors.ink), "repeat");
    }
    // A tile of diagonal lines.
    function hatching(color) {
      const tile = document.createElement("canvas"), side = 7;
      tile.width = tile.height = side;
      const own = tile.getContext("2d");
      own.strokeStyle = color;
      own.lineWidth = 1;
      for (const by of [-side, 0, side]) { own.beginPath(); own.moveTo(by - 1, side + 1); own.lineTo(by + side + 1, -1); own.stroke(); }
      return tile;
    }
    let waiting = 0;
    function ask() { if (!waiting) waiting = requestAnimationFrame(() => { waiting = 0; draw(); }); }

    const x = (time) => (time - view.from) / (view.to - view.from) * state.width;
    const time = (at) => view.from + at / state.width * (view.to - view.from);

    function lane(part, y, h, meaningOf) {
      const { S, E, P, C } = part, span = view.to - view.from, scale = state.width / span, tick = span / state.width, talk = colors.communication[0];
      let i = bound(E, part.low, part.high, view.from, true);
      let from = 0, to = 0, shade = "", alpha = 0;
      const flush = () => {
        if (to > from) {
          pen.globalAlpha = alpha;
          pen.fillStyle = shade;
          pen.fillRect(from, y, to - from, h);
          if (shade === talk) stripe(from, y, to - from, h);
        }
        from = to = 0;
      };
      while (i < part.high && S[i] < view.to) {
        const left = (S[i] - view.from) * scale, right = (E[i] - view.from) * scale;
        if (right - left >= 2) {
          flush();
          const a = Math.max(left, -2), b = Math.min(right, state.width + 2), event = part.real ? data.order[i] : -1;
          const meaning = meaningOf(i, event);
          pen.globalAlpha = state.hits && (!part.real || !state.hits[data.name[event]]) ? 0.25 : 1;
          pen.fillStyle = colors[meaning][part.real && !PLAIN.has(meaning) ? data.name[event] % 3 : 0];
          const gap = right - left > 4 ? 1 : 0;
          pen.fillRect(a, y, b - a - gap, h);
          mark(meaning, a, y, b - a - gap, h);
          if (part.real) {
            if (b - a > 26 && h >= 13) write(data.names[data.name[event]].short, Math.max(a, 0) + 4, y, Math.min(b, state.width) - Math.max(a, 0) - 8, meaning);
          }
          i += 1;
          continue;
        }
        // Everything that begins in this pixel becomes one column; how much of it is covered is its opacity.
        const pixel = Math.max(0, Math.floor(left)), edge = view.from + (pixel + 1) * tick;
        let j = bound(S, i + 1, part.high, edge);
        // An event of two pixels and more that begins here is drawn for itself.
        if (j > i + 1 && E[j - 1] - S[j - 1] >= 2 * tick) j -= 1;
        const covered = P[j] - P[i], share = Math.min(1, covered / tick);
        let meaning = meaningOf(i, part.real ? data.order[i] : -1);
        if (2 * (C[j] - C[i]) > covered && covered > 0) meaning = "communication";
        else if (meaning === "communication" && j - i > 1) meaning = meaningOf(j - 1, part.real ? data.order[j - 1] : -1);
        let level = Math.max(0.3, Math.ceil(share * 5) / 5);
        if (state.hits) level = part.real && state.prefix[j] > state.prefix[i] ? 1 : 0.2;
        const color = colors[meaning][0];
        if (to === pixel && color === shade && level === alpha) to = pixel + 1;
        else { flush(); from = pixel; to = pixel + 1; shade = color; alpha = level; }
        i = j;
      }
      flush();
      pen.globalAlpha = 1;
    }
    // Told apart without color, too: communication has a dark edge above, memory operations one below, synchronization is hatched.
    function mark(meaning, a, y, wide, h) {
      if (meaning === "communication") stripe(a, y, wide, h);
      else if (meaning === "memory") stripe(a, y + h - (h > 8 ? 2 : 1), wide, h);
      else if (meaning === "sync") {
        const alpha = pen.globalAlpha;
        pen.globalAlpha = alpha * 0.45;
        pen.fillStyle = crossed;
        pen.fillRect(a, y, wide, h);
        pen.globalAlpha = alpha;
      }
    }
    function blank(gaps, y, h) {
      for (const [from, to] of gaps) {
        const a = Math.max(0, x(from)), b = Math.min(state.width, x(to));
        if (b - a < 0.5) continue;
        pen.fillStyle = colors.panel;
        pen.fillRect(a, y, b - a, h);
        pen.globalAlpha = 0.4;
        pen.fillStyle = hatched;
        pen.fillRect(a, y, b - a, h);
        pen.globalAlpha = 1;
        const text = "not recorded", long = 74;
        if (b - a > long + 12) {
          const middle = (a + b) / 2;
          pen.fillStyle = colors.paper;
          pen.fillRect(middle - long / 2 - 3, y + h / 2 - 7, long + 6, 14);
          pen.fillStyle = colors.muted;
          pen.fillText(text, middle - long / 2, y + h / 2 + 4);
        }
      }
    }
    function stripe(a, y, wide, h) {
      pen.fillStyle = colors.ink;
      pen.fillRect(a, y, wide, h > 8 ? 2 : 1);
    }
    function write(text, at, y, room, meaning) {
      const most = Math.floor(room / 6.6);
      if (most < 3) return;
      const end = Math.floor((most - 1) / 3);
      pen.fillStyle = colors.label(meaning);
      pen.fillText(text.length <= most ? text : `${text.slice(0, most - 1 - end)}…${end ? text.slice(-end) : ""}`, at, y + 11.5);
    }

    function curve(line, y, h) {
      const { time: times, mean, low, high, top, most } = line;
      const scale = (value) => y + h - 2 - Math.max(0, Math.min(1, value / top)) * (h - 8);
      if (!times.length) return;
      let i = Math.max(0, bound(times, 0, times.length, view.from) - 1);
      const end = Math.min(times.length, bound(times, 0, times.length, view.to) + 1);
      const skip = Math.max(1, Math.floor((end - i) / (2 * state.width)));
      const band = new Path2D(), path = new Path2D(), area = new Path2D();
      while (i < end) {
        // From one hole to the next.
        const first = i;
        let last = i;
        path.moveTo(x(times[i]), scale(mean[i]));
        band.moveTo(x(times[i]), scale(high[i]));
        area.moveTo(x(times[i]), y + h - 2);
        for (; i < end && times[i] - times[last] <= most * skip; last = i, i += skip) {
          const at = x(times[i]);
          path.lineTo(at, scale(mean[i]));
          band.lineTo(at, scale(high[i]));
          area.lineTo(at, scale(mean[i]));
        }
        if (last === first) path.lineTo(x(times[first]) + 4, scale(mean[first]));
        area.lineTo(x(times[last]), y + h - 2);
        for (let j = last; j >= first; j -= skip) band.lineTo(x(times[j]), scale(low[j]));
      }
      pen.fillStyle = pen.strokeStyle = colors.host[0];
      pen.globalAlpha = 0.14;
      pen.fill(area);
      pen.globalAlpha = 0.3;
      pen.fill(band);
      pen.globalAlpha = 1;
      pen.lineWidth = 1.4;
      pen.stroke(path);
      const text = `${digits(top)}${line.unit === "percent" ? "%" : `\u00a0${clean(line.unit, 12)}`}`;
      // What the upper edge stands for, under a line at its height.
      const base = scale(top) + 10;
      pen.fillStyle = colors.muted;
      pen.globalAlpha = 0.4;
      pen.fillRect(0, Math.round(scale(top)), state.width, 1);
      pen.globalAlpha = 1;
      pen.lineJoin = "round";
      pen.lineWidth = 3;
      pen.strokeStyle = colors.paper;
      pen.fillStyle = colors.muted;
      pen.strokeText(text, 4, base);
      pen.fillText(text, 4, base);
    }

    function ruler() {
      pen.fillStyle = colors.panel;
      pen.fillRect(0, 0, state.width, RULER - 1);
      pen.fillStyle = colors.grid;
      pen.fillRect(0, RULER - 1, state.width, 1);
      const span = view.to - view.from, least = span / Math.max(2, state.width / 110);
      const power = 10 ** Math.floor(Math.log10(least));
      const pace = Math.max(1, [1, 2, 5, 10].map((k) => k * power).find((value) => value >= least));
      const whole = Math.floor(view.from / (pace * 10)) * pace * 10;
      const base = view.to > 3000 * pace ? whole : 0;
      state.base = base;
      const [unit, one] = pace >= 1e9 ? ["s", 1e9] : pace >= 1e6 ? ["ms", 1e6] : pace >= 1e3 ? ["µs", 1e3] : ["ns", 1];
      pen.fillStyle = colors.muted;
      for (let tick = Math.ceil(view.from / pace) * pace; tick < view.to; tick += pace) {
        const at = x(tick);
        pen.fillStyle = colors.grid;
        pen.fillRect(Math.round(at), RULER - 8, 1, state.height);
        pen.fillStyle = colors.muted;
        const text = `${base ? "+" : ""}${grouped(Math.round((tick - base) / one))} ${unit}`;
        if (at + 4 + 7 * text.length < state.width) pen.fillText(text, at + 4, 16);
      }
    }

    function spot(event) {
      let one = data.tracks[data.track[event]];
      const own = one.row;
      while (one && !one.row) one = data.tracks[one.parent];
      if (!one) return null;
      const y = one.row.y - scroller.scrollTop + (own ? PAD + data.lane[event] * LANE + LANE / 2 : one.row.h / 2);
      return { y, left: x(data.start[event]), right: x(data.start[event] + data.duration[event]) };
    }
    const isLaunch = (event) => data.partner[event] >= 0 && !["stream", "device"].includes(data.tracks[data.track[event]].kind);
    function pairOf(event) {
      const other = data.partner[event];
      if (other < 0) return null;
      return isLaunch(event) ? [event, other] : [other, event];
    }
    function arrow() {
      const pair = state.selected < 0 ? null : pairOf(state.selected);
      state.arrow = false;
      if (!pair) return;
      const a = spot(pair[0]), b = spot(pair[1]);
      if (!a || !b) return;
      const keep = (value) => Math.max(RULER + 2, Math.min(state.height - 3, value));
      const [x0, y0, x1, y1] = [a.right, keep(a.y), b.left, keep(b.y)];
      if (Math.max(x0, x1) < -50 || Math.min(x0, x1) > state.width + 50) return;
      state.arrow = true;
      const bend = Math.max(18, Math.min(120, Math.abs(x1 - x0) / 2)), up = Math.sign(y1 - y0) || 1;
      for (const [color, wide] of [[colors.paper, 5], [colors.accent, 2]]) {
        pen.strokeStyle = color;
        pen.lineWidth = wide;
        pen.beginPath();
        pen.moveTo(x0, y0);
        pen.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1 - 6, y1);
        pen.stroke();
      }
      pen.fillStyle = colors.accent;
      pen.beginPath();
      pen.moveTo(x1, y1); pen.lineTo(x1 - 8, y1 - 4.5); pen.lineTo(x1 - 8, y1 + 4.5);
      pen.fill();
      if (up) { pen.beginPath(); pen.arc(x0, y0, 3, 0, 7); pen.fill(); }
    }

    function draw() {
      const began = performance.now();
      const ratio = devicePixelRatio || 1, top = scroller.scrollTop;
      pen.setTransform(ratio, 0, 0, ratio, 0, 0);
      pen.font = FONT; // a canvas of another size forgets it
      pen.direction = "ltr";
      pen.fillStyle = colors.paper;
      pen.fillRect(0, 0, state.width, state.height);
      const shown = state.rows.filter((row) => row.y + row.h > top + RULER && row.y < top + state.height);
      for (const row of shown) {
        if (row.one.line) continue;
        if (!row.one.lanes) { pen.fillStyle = colors.panel; pen.fillRect(0, row.y - top, state.width, row.h); }
      }
      ruler();
      const ofEvent = (i, event) => data.names[data.name[event]].meaning;
      const ofBusy = (part) => (i) => (2 * (part.C[i + 1] - part.C[i]) > part.P[i + 1] - part.P[i] ? "communication" : part.host ? "host" : "computation");
      pen.save();
      pen.beginPath();
      pen.rect(0, RULER, state.width, state.height - RULER);
      pen.clip();
      for (const row of shown) {
        const y = row.y - top, one = row.one;
        pen.fillStyle = colors.grid;
        pen.fillRect(0, y + row.h - 1, state.width, 1);
        if (one.gaps.length && (one.lanes || !row.open)) blank(one.gaps, y + 1, row.h - 2);
        if (one.line) curve(one.line, y, row.h);
        one.parts.forEach((part, k) => lane(part, y + PAD + k * LANE, LANE - 2, ofEvent));
        if (!one.lanes && !one.line && !row.open && one.children.length) {
          const part = busy(one);
          if (part) lane(part, y + 5, HEAD - 11, ofBusy(part));
        }
      }
      for (const [event, wide] of [[state.hover, 1], [state.selected, 2.5]]) {
        if (event < 0 || !data.tracks[data.track[event]].row) continue;
        const at = spot(event), a = Math.max(-4, at.left), b = Math.min(state.width + 4, Math.max(at.right, at.left + 3));
        if (b < -3 || a > state.width + 3) continue;
        pen.strokeStyle = wide > 1 ? colors.paper : colors.ink;
        pen.lineWidth = wide + 2 * (wide > 1);
        pen.strokeRect(a, at.y - LANE / 2 + 0.5, b - a - 0.5, LANE - 2);
        if (wide > 1) { pen.strokeStyle = colors.ink; pen.lineWidth = wide; pen.strokeRect(a, at.y - LANE / 2 + 0.5, b - a - 0.5, LANE - 2); }
      }
      arrow();
      pen.restore();
      if (state.range) {
        pen.globalAlpha = 0.25;
        pen.fillStyle = colors.accent;
        pen.fillRect(Math.min(...state.range), 0, Math.abs(state.range[1] - state.range[0]), state.height);
        pen.globalAlpha = 1;
      }
      state.frame = performance.now() - began;
      labels(shown, top);
    }

    // ---- The tree: only the rows in sight are in the page, and the one that has the focus
    const items = new Map();
    const corner = element("div", { class: "tl-corner", "aria-hidden": "true" });
    tree.append(corner);
    function labels(shown, top) {
      corner.textContent = state.base ? exact(state.base) + " +" : "Track";
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
      draw();
      items.get(row.one.id)?.focus({ preventScroll: true });
    }
    function sight(row) {
      const top = scroller.scrollTop;
      if (row.y - RULER < top) scroller.scrollTop = row.y - RULER;
      else if (row.y + row.h > top + state.height) scroller.scrollTop = row.y + row.h - state.height;
    }
    tree.addEventListener("click", (event) => {
      const item = event.target.closest("[role=treeitem]");
      if (!item) return;
      const one = data.tracks[Number(item.dataset.track)];
      state.current = one.id;
      fold(one, !state.open.has(one.id));
      draw();
      items.get(one.id)?.focus({ preventScroll: true });
    });
    tree.addEventListener("focusin", (event) => {
      const item = event.target.closest("[role=treeitem]");
      if (!item) return;
      state.current = Number(item.dataset.track);
      if (item.matches(":focus-visible")) { sight(data.tracks[state.current].row); draw(); } // with Tab, to one that was scrolled away
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
          if (event >= 0) { select(event); canvas.focus({ preventScroll: true }); } else { fold(one, !open); walkTo(one.row); }
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

    // ---- Where we look
    let moving = 0;
    function go(from, to, { jump = false, key = "" } = {}) {
      const least = 100, most = data.span * 1.02;
      let width = Math.max(least, Math.min(most, to - from));
      let begin = from + (to - from - width) / 2;
      begin = Math.max(-0.01 * data.span, Math.min(begin, 1.01 * data.span - width));
      const goal = [begin, begin + width], origin = [view.from, view.to];
      quiet();
      if (state.key !== key || key) {
        state.key = key;
        data.views.forEach((one, place) => buttons[place].setAttribute("aria-pressed", String(one.key === key)));
      }
      cancelAnimationFrame(moving);
      const put = (share) => {
        view.from = origin[0] + (goal[0] - origin[0]) * share;
        view.to = origin[1] + (goal[1] - origin[1]) * share;
      };
      tell(goal);
      if (state.tab === 2) { clearTimeout(state.listing); state.listing = setTimeout(list, 250); }
      if (jump || calm.matches) { put(1); ask(); return; }
      const began = performance.now();
      const frame = (now) => {
        const share = Math.min(1, Math.max(0, (now - began) / 160));
        put(1 - (1 - share) ** 3);
        quiet();
        draw();
        if (share < 1) moving = requestAnimationFrame(frame);
      };
      moving = requestAnimationFrame(frame);
    }
    function tell(goal) {
      const known = data.views.find((one) => one.key === state.key);
      said.textContent = known ? `Shown: ${clean(known.label, 400)}` : `Shown: ${spell(goal[1] - goal[0])}, from ${exact(Math.round(Math.max(0, goal[0]) / 1000) * 1000)} after the start`;
    }
    function look(one) {
      const edge = (one.to - one.from) * 0.015;
      if (one.track >= 0) {
        reveal(one.track);
        const row = data.tracks[one.track].row;
        if (row) sight(row);
      }
      go(one.from - edge, one.to + edge, { key: one.key });
    }
    function zoom(factor, at = state.width / 2, jump = false) {
      const pivot = time(at);
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
      if (changed) rebuild();
    }
    function center(event, stay = false) {
      select(event, stay);
      const width = view.to - view.from, middle = data.start[event] + data.duration[event] / 2;
      const wide = Math.max(Math.min(width, Math.max(data.duration[event], 50) * 60), data.duration[event] * 1.2);
      go(middle - wide / 2, middle + wide / 2);
    }

    // To the other side of a connection: both ends of its arrow are in view; of a long run only as much as leaves the launch wide enough.
    function follow([launch, run], event, stay = false) {
      select(event, stay);
      const called = data.start[launch] + data.duration[launch], reach = Math.max(data.start[run], called, data.start[launch] + 50) - data.start[launch];
      const begin = Math.min(data.start[launch], data.start[run]), end = Math.max(called, data.start[run] + Math.min(data.duration[run], 3 * reach)), edge = 0.08 * (end - begin);
      for (const one of [event === launch ? run : launch, event]) behold(one);
      go(begin - edge, end + edge);
    }

    // ---- The selection
    function behold(event) {
      const { row } = data.tracks[data.track[event]];
      if (row) sight({ y: row.y + data.lane[event] * LANE, h: LANE + 2 * PAD });
    }
    // Current Selection is shown, unless what was clicked stands in another tab (stay).
    function select(event, stay = false) {
      state.selected = event;
      if (event >= 0) {
        reveal(data.track[event]);
        state.current = data.track[event];
        behold(event);
        if (state.tab && !stay) tab(0);
      }
      details();
      ask();
    }
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
        panels[0].replaceChildren(element("p", {}, "Nothing is selected. Click an event, or choose a track and press Enter."));
        panels[1].replaceChildren(element("p", {}, "Select a kernel or a launch call to see what it belongs to."));
        tabs[1].textContent = "Connections";
        heard.textContent = "";
        return;
      }
      const name = data.names[data.name[event]], pair = pairOf(event), track = data.tracks[data.track[event]];
      const word = { step: "Step", annotation: "Annotation", launch: "Call", sync: "Synchronization", host: "Operation", merged: "Events" }[name.meaning]
        ?? (name.meaning === "memory" ? "Operation" : "Kernel");
      const rows = [[word, element("bdi", { class: "tl-name" }, `${clean(name.name, 2000)}${name.name.length > 2000 ? ` (${grouped(name.name.length)} characters)` : ""}`)],
        ["Kind", WORDS[name.meaning] ?? name.meaning], ["Where", path(data.track[event])], ["Start", `${exact(data.start[event])} after the start`], ["Duration", spell(data.duration[event])]];
      if (track.detail && track.kind === "thread") rows.push(["Thread", track.detail.replace("thread ", "")]);
      const around = data.step[event];
      if (around >= 0) rows.push(["Step", button(`${data.names[data.name[around]].short}, ${spell(data.duration[around])}`, () => center(around), { class: "tl-link", title: "Center it" })]);
      for (const [key, held] of data.pairs(event)) {
        if (key !== "bytes") { rows.push([key[0].toUpperCase() + key.slice(1), held]); continue; }
        if (data.duration[event] > 0) rows.push(["Bandwidth", `${digits(Number(held) / data.duration[event])}\u00a0GB/s`]);
      }
      if (data.correlation[event] > 0) rows.push(["Correlation", String(data.correlation[event])]);
      const queue = pair && pair[1] === event ? waiting_behind(event) : "";
      if (queue) rows.push(["Queue", queue]);
      if (pair) {
        const launch = pair[0] === event, other = launch ? pair[1] : pair[0];
        rows.push([launch ? "Started" : "Launched by", button(data.names[data.name[other]].short, () => follow(pair, other), { class: "tl-link tl-other", title: `Show both ends: ${clean(path(data.track[other]))}` })]);
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
      const side = (two, one) => button(`${data.names[data.name[one]].short}, ${spell(data.duration[one])}`, () => follow(two, one, true), { class: "tl-link", title: `Show both ends: ${path(data.track[one])}` });
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
              element("td", { class: "tl-number" }, spell(row.time)), element("td", { class: "tl-number" }, button(spell(data.duration[row.longest]), () => center(row.longest, true), { class: "tl-link", title: "Center it" })));
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

    // ---- Search
    function seek() {
      const text = search.value.trim().toLowerCase();
      state.query = text;
      state.found = [];
      state.hits = null;
      if (text) {
        state.hits = data.names.map((one) => one.name.toLowerCase().includes(text) || one.short.toLowerCase().includes(text));
        state.prefix = new Int32Array(data.count + 1);
        for (let j = 0; j < data.count; j += 1) state.prefix[j + 1] = state.prefix[j] + (state.hits[data.name[data.order[j]]] ? 1 : 0);
        const found = new Int32Array(state.prefix[data.count]);
        for (let j = 0, at = 0; j < data.count; j += 1) if (state.hits[data.name[j]]) found[at++] = j;
        state.found = found.sort((a, b) => data.start[a] - data.start[b] || a - b);
      }
      counted();
      ask();
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
      center(found[(at + by + found.length) % found.length]);
      counted();
    }
    let typing = 0;
    search.addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(seek, 120); });
    search.addEventListener("keydown", (event) => {
      if (event.key === "Enter") { clearTimeout(typing); if (search.value.trim().toLowerCase() !== state.query) seek(); step(event.shiftKey ? -1 : 1); event.preventDefault(); }
      if (event.key === "Escape") { search.value = ""; seek(); canvas.focus({ preventScroll: true }); }
      event.stopPropagation();
    });

    // ---- Keys
    function beside(by) {
      if (state.selected < 0) { for (const row of state.rows) { const event = firstIn(row.one); if (event >= 0) { select(event); return; } } return; }
      const spot = data.place[state.selected], part = data.tracks[data.track[state.selected]].parts[data.lane[state.selected]];
      const other = spot + by;
      if (other < part.low || other >= part.high) return;
      const event = data.order[other];
      select(event);
      if (data.S[other] < view.from || data.E[other] > view.to) {
        const width = Math.max(view.to - view.from, data.duration[event] * 1.2), middle = data.start[event] + data.duration[event] / 2;
        go(middle - width / 2, middle + width / 2);
      }
    }
    const acts = {
      w: () => zoom(1 / 1.6, state.pointer), s: () => zoom(1.6, state.pointer), "+": () => zoom(1 / 1.6), "=": () => zoom(1 / 1.6), "-": () => zoom(1.6),
      a: () => pan(-0.25), d: () => pan(0.25), ArrowLeft: () => pan(-0.1), ArrowRight: () => pan(0.1),
      ArrowUp: () => { scroller.scrollTop -= 60; }, ArrowDown: () => { scroller.scrollTop += 60; },
      f: fit, ",": () => beside(-1), ".": () => beside(1), n: () => step(1), p: () => step(-1), "/": () => search.focus(), "?": () => help.showModal(),
      Escape: () => { select(-1); counted(); },
      Enter: () => { if (state.selected < 0) beside(1); else if (data.partner[state.selected] >= 0) follow(pairOf(state.selected), data.partner[state.selected]); },
    };
    home.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
      const within = event.target.closest("button, input, [role=tabpanel]");
      if (within && (["Enter", " ", "Escape"].includes(event.key) || event.key.startsWith("Arrow"))) return;
      const place = "123".indexOf(event.key);
      const act = acts[event.key.length === 1 ? event.key.toLowerCase() : event.key] ?? (place >= 0 && data.views[place] ? () => look(data.views[place]) : null);
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
      const wanted = time(at), near = NEAR * (view.to - view.from) / state.width;
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
      drag = { at, y, from: view.from, to: view.to, top: scroller.scrollTop, moved: false, ruler: y < RULER, touch: event.pointerType === "touch" };
      if (fingers.size === 2) { const [one, two] = [...fingers.values()]; drag.pinch = Math.abs(one[0] - two[0]); drag.pivot = time((one[0] + two[0]) / 2); drag.moved = true; }
    });
    canvas.addEventListener("pointermove", (event) => {
      const [at, y] = position(event);
      state.pointer = at;
      if (!drag) { hover(event, hit(at, y), at, y); return; }
      if (fingers.has(event.pointerId)) fingers.set(event.pointerId, [at, y]);
      if (fingers.size === 2 && drag.pinch !== undefined) {
        const [one, two] = [...fingers.values()], apart = Math.max(12, Math.abs(one[0] - two[0])), middle = (one[0] + two[0]) / 2;
        const width = (drag.to - drag.from) * Math.max(12, drag.pinch) / apart;
        go(drag.pivot - width * middle / state.width, drag.pivot + width * (1 - middle / state.width), { jump: true });
        return;
      }
      if (Math.abs(at - drag.at) + Math.abs(y - drag.y) > 4) drag.moved = true;
      if (!drag.moved) return;
      tip.hidden = true;
      if (drag.ruler) { state.range = [drag.at, at]; ask(); return; }
      const by = (drag.at - at) / state.width * (drag.to - drag.from), width = drag.to - drag.from;
      const begin = Math.max(-0.01 * data.span, Math.min(drag.from + by, 1.01 * data.span - width));
      go(begin, begin + width, { jump: true });
      if (!drag.touch) scroller.scrollTop = drag.top + drag.y - y;
    });
    const lift = (event) => {
      fingers.delete(event.pointerId);
      if (!drag || fingers.size) return;
      const [at, y] = position(event);
      if (event.type === "pointerup") {
        if (state.range && Math.abs(at - drag.at) > 3) go(...[time(drag.at), time(at)].sort((a, b) => a - b));
        else if (!drag.moved && !drag.ruler) { const event = hit(at, y); select(event); counted(); }
      }
      state.range = null;
      drag = null;
      ask();
    };
    canvas.addEventListener("pointerup", lift);
    canvas.addEventListener("pointercancel", lift);
    canvas.addEventListener("pointerleave", () => { state.pointer = undefined; hover(null, -1); });
    canvas.addEventListener("dblclick", () => { if (state.selected >= 0) fit(); });
    canvas.addEventListener("wheel", (event) => {
      const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY);
      if (sideways || event.shiftKey) { pan((sideways ? event.deltaX : event.deltaY) / state.width, true); event.preventDefault(); return; }
      if (!event.ctrlKey && !event.metaKey && document.activeElement !== canvas) return;
      const pixels = event.deltaY * (event.deltaMode === 1 ? 24 : 1);
      zoom(Math.exp(Math.max(-200, Math.min(200, pixels)) * 0.0022), position(event)[0], true);
      event.preventDefault();
    }, { passive: false });
    // What was below the pointer has moved away.
    function quiet() { tip.hidden = true; state.hover = -1; }
    function hover(event, found, at, y) {
      if (found !== state.hover) { state.hover = found; ask(); }
      tip.hidden = found < 0;
      if (found < 0) return;
      tip.textContent = `${data.names[data.name[found]].short}: ${spell(data.duration[found])}`;
      const left = state.label + at + 14;
      tip.style.left = `${Math.max(0, Math.min(left, state.label + state.width - tip.offsetWidth - 4))}px`;
      tip.style.top = `${Math.min(y + 18, state.height - tip.offsetHeight - 2)}px`;
    }

    // ---- The beginning
    scroller.addEventListener("scroll", () => { quiet(); ask(); });
    addEventListener("resize", size);
    new ResizeObserver(() => { if (Math.abs((scroller.clientWidth || 0) - state.label - state.width) > ENOUGH) size(); }).observe(home);
    const repaint = () => { read(); ask(); };
    new MutationObserver(repaint).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
    const many = data.tracks.reduce((sum, one) => sum + Math.max(1, one.lanes), 0) > 48;
    const opening = data.views.find((one) => one.track >= 0);
    if (!many) data.tracks.forEach((one) => { if (one.children.length) state.open.add(one.id); });
    else {
      data.tracks.forEach((one) => { if (one.children.length && ["node", "gpus"].includes(one.kind) && one.parent < 1 + 1 && data.tracks.length < 4000) state.open.add(one.id); });
      let one = data.tracks[opening ? opening.track : 0];
      while (one && one.kind !== "process" && one.parent >= 0) one = data.tracks[one.parent];
      // Deep stacks of the host stay folded: they would hide what comes after.
      const deep = (track) => track.kind === "host" && track.children.reduce((sum, child) => sum + child.lanes, 0) > 12;
      const unfold = (track) => { if (track.children.length && !deep(track)) state.open.add(track.id); track.children.forEach(unfold); };
      if (one) unfold(one);
      for (; one; one = data.tracks[one.parent]) state.open.add(one.id);
    }
    read();
    tab(0);
    details();
    counted();
    rebuild();
    const first = data.views[0] ?? { key: "whole", label: "the whole run", from: 0, to: data.span, track: -1 };
    const edge = (first.to - first.from) * 0.015;
    if (first.track >= 0) reveal(first.track);
    go(first.from - edge, first.to + edge, { key: first.key, jump: true });
    let held = data.tracks[Math.max(0, first.track)];
    while (held && held.kind !== "process" && held.parent >= 0) held = data.tracks[held.parent];
    scroller.scrollTop = first.track >= 0 && held?.row ? held.row.y - RULER : 0;
    home.timeline = { data, view, state, draw, rebuild, go, zoom, pan, select, spot, find: (text) => { search.value = text; seek(); } };
    home.dataset.ready = "yes";
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
      if (strips) strips.open = false;
      if (strips) {
        let was = false;
        addEventListener("beforeprint", () => { was = strips.open; strips.open = true; });
        addEventListener("afterprint", () => { strips.open = was; });
      }
    } catch (error) {
      sorry(`The interactive timeline could not be shown (${error.message}); the strips below show the run.`);
    }
  });
})();
