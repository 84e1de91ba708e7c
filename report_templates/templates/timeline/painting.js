// The drawing: events, samples, ruler, selection and arrow. Work per frame grows with pixels, not with events.
function addPainting(app) {
  const { data, view, state } = app;
  const { home, scroller, pen } = app.parts;
  let colors = {}, hatched = "", crossed = "", waiting = 0;
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
  function ask() { if (!waiting) waiting = requestAnimationFrame(() => { waiting = 0; draw(); }); }

  const x = (time) => (time - view.from) / (view.to - view.from) * state.width;
  const time = (at) => view.from + at / state.width * (view.to - view.from);

  function lane(part, y, h, meaningOf) {
    const { S, E, P, C } = part, span = view.to - view.from, scale = state.width / span, tick = span / state.width, talk = colors.communication[0];
    let i = bound(E, part.low, part.high, view.from, true);
    let from = 0, to = 0, shade = "", alpha = 0, lit = false;
    const flush = () => {
      if (to > from) {
        pen.globalAlpha = alpha;
        pen.fillStyle = shade;
        pen.fillRect(from, y, to - from, h);
        if (shade === talk) stripe(from, y, to - from, h);
        if (lit) underline(from, y, to - from, h);
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
          if (state.brushed?.[data.name[event]]) underline(a, y, b - a - gap, h);
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
      const color = colors[meaning][0], bright = Boolean(state.brushed && part.real && state.below[j] > state.below[i]);
      if (to === pixel && color === shade && level === alpha && bright === lit) to = pixel + 1;
      else { flush(); from = pixel; to = pixel + 1; shade = color; alpha = level; lit = bright; }
      i = j;
    }
    flush();
    pen.globalAlpha = 1;
  }
  // Distinct without color: communication has a dark edge above, memory operations one below, synchronization is hatched.
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
  // Below events of the chosen kernel or step.
  function underline(a, y, wide, h) {
    const alpha = pen.globalAlpha;
    pen.globalAlpha = 1;
    pen.fillStyle = colors.accent;
    pen.fillRect(a, y + h - 1, wide, 3);
    pen.globalAlpha = alpha;
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
    pen.fillStyle = colors.label(meaning);
    pen.fillText(text.length <= most ? text : `${text.slice(0, most - 1)}…`, at, y + 11.5);
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
    pen.textAlign = "right";
    pen.strokeText(text, state.width - 4, base);
    pen.fillText(text, state.width - 4, base);
    pen.textAlign = "left";
  }

  function ruler() {
    pen.fillStyle = colors.panel;
    pen.fillRect(0, 0, state.width, RULER - 1);
    pen.fillStyle = colors.grid;
    pen.fillRect(0, RULER - 1, state.width, 1);
    const { pace, write } = scale(view.from, view.to, state.width);
    for (let tick = Math.ceil(view.from / pace) * pace; tick < view.to; tick += pace) {
      const at = x(tick), text = write(tick);
      pen.fillStyle = colors.grid;
      pen.fillRect(Math.round(at), RULER - 8, 1, state.height);
      pen.fillStyle = colors.muted;
      if (at + 4 + 7 * text.length < state.width) pen.fillText(text, at + 4, 16);
    }
  }

  // The marks of the report's figures: a dip is a pale field, the profile window a bar or bracket, a slow step a triangle (figures/marks.py).
  function field(mark, from, to, alpha) {
    pen.globalAlpha = alpha;
    pen.fillStyle = colors.step[0];
    pen.fillRect(x(mark.from), from, Math.max(1, x(mark.to) - x(mark.from)), to - from);
    pen.globalAlpha = 1;
  }
  function marks() {
    const bottom = RULER + MARKS - 1, shown = data.marks.filter((one) => one.to >= view.from && one.from <= view.to);
    pen.fillStyle = colors.panel;
    pen.fillRect(0, RULER, state.width, MARKS);
    pen.fillStyle = colors.grid;
    pen.fillRect(0, bottom, state.width, 1);
    const taken = [];
    for (const one of shown) {
      const left = x(one.from), right = x(one.to), wide = right - left > 6;
      if (one.kind === "dip") field(one, RULER, bottom, 0.45);
      pen.fillStyle = colors.ink;
      if (one.kind === "slow") {
        pen.beginPath();
        pen.moveTo(left - 4, RULER + 4); pen.lineTo(left + 4, RULER + 4); pen.lineTo(left, RULER + 12);
        pen.fill();
      } else if (one.kind === "window" && !wide) pen.fillRect((left + right) / 2 - 1, RULER, Math.max(2, right - left), MARKS - 1);
      else if (one.kind === "window") {
        pen.fillRect(left, RULER, right - left, 2.5);
        for (const at of [left, right - 1]) pen.fillRect(at, RULER, 1, MARKS - 1);
      }
      taken.push(one.kind === "slow" ? [left - 4, left + 4] : one.kind === "window" && !wide ? [left, right] : [left, left]);
    }
    // Names within their marks, else to their right or left, without overlap.
    for (const one of shown) {
      if (!one.label) continue;
      const long = pen.measureText(one.label).width, half = one.kind === "slow" ? 4 : 0;
      const left = Math.max(0, x(one.from) - half), right = Math.min(half ? x(one.from) + half : x(one.to), state.width);
      const places = [...(right - left > long + 8 ? [left + 4] : []), right + 4, left - 4 - long];
      const at = places.find((at) => at >= 0 && at + long <= state.width && taken.every(([from, to]) => at > to + 2 || from > at + long + 2));
      if (at === undefined) continue;
      taken.push([at, at + long]);
      pen.fillStyle = colors.ink;
      pen.fillText(one.label, at, bottom - 3);
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
    const keep = (value) => Math.max(app.head + 2, Math.min(state.height - 3, value));
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
    const shown = state.rows.filter((row) => row.y + row.h > top + app.head && row.y < top + state.height);
    for (const row of shown) {
      if (row.one.line) continue;
      if (!row.one.lanes) { pen.fillStyle = colors.panel; pen.fillRect(0, row.y - top, state.width, row.h); }
    }
    for (const one of data.marks) if (one.kind === "dip") field(one, app.head, state.height, 0.25);
    ruler();
    if (data.marks.length) marks();
    const ofEvent = (i, event) => data.names[data.name[event]].meaning;
    const ofBusy = (part) => (i) => (2 * (part.C[i + 1] - part.C[i]) > part.P[i + 1] - part.P[i] ? "communication" : part.host ? "host" : "computation");
    pen.save();
    pen.beginPath();
    pen.rect(0, app.head, state.width, state.height - app.head);
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
    app.labels(shown, top);
  }
  Object.assign(app, { read, ask, x, time, draw, spot, pairOf });
}
