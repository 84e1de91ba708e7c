// The data of the page, see timeline/encode.py, as columns to draw from.
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
// How many of the first j places hold an event whose name is wanted.
function counts(data, wanted) {
  const sums = new Int32Array(data.count + 1);
  for (let j = 0; j < data.count; j += 1) sums[j + 1] = sums[j] + (wanted[data.name[data.order[j]]] ? 1 : 0);
  return sums;
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
  const marks = head.marks.map(([kind, label, words, from, to]) => ({ kind, label: clean(label), words: clean(words, 400), from, to }));
  const views = head.views.map(([key, label, from, to, on]) => ({ key, label, from, to, track: on }));
  const detail = Int32Array.from(columns.detail, (value) => value - 1);
  const pairs = (event) => (detail[event] < 0 ? [] : head.details[detail[event]].map((place) => head.pairs[place]));
  return { tracks, names, count, track, start, duration, name, lane, partner, step, correlation, order, place, S, E, P, C, views, marks, pairs, span: Math.max(head.span, 1), gaps: head.gaps.length };
}

// The first place in [low, high) whose value is not below (or, with above, is above) the wanted one.
function bound(values, low, high, wanted, above = false) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (above ? values[middle] <= wanted : values[middle] < wanted) low = middle + 1; else high = middle;
  }
  return low;
}
