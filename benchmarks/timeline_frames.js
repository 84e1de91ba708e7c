// Times of the timeline in a page: see timeline_frames.py. Prints JSON.
const [, , modules, chromium, file, scale] = process.argv;
const puppeteer = require(`${modules}/puppeteer-core`);

async function measure() {
  const home = document.getElementById("timeline-view"), { data, view, state, go, zoom, pan } = home.timeline;
  const next = () => new Promise((done) => requestAnimationFrame(done));
  // From the request to the next frame but one, so that everything that the first one caused is in it.
  async function frames(moves) {
    const drawn = [], whole = [];
    for (const move of moves) {
      const began = await next();
      move();
      const after = await next(), end = await next();
      drawn.push(state.frame);
      whole.push(Math.max(after - began, end - after));
    }
    const sorted = (times) => times.sort((a, b) => a - b);
    return { draw: sorted(drawn), frame: sorted(whole) };
  }
  const still = { jump: true };
  for (const one of data.tracks) if (one.children.length) state.open.add(one.id);
  home.timeline.rebuild();
  go(0, data.span, still);
  await next();
  const middle = state.width / 2, times = (count, move) => Array.from({ length: count }, () => move);
  const zoomed = await frames([...times(40, () => zoom(1 / 1.3, middle, true)), ...times(40, () => zoom(1.3, middle, true))]);
  const moved = { draw: [], frame: [] };
  for (const share of [1, 4, 30, 300, 3000]) {
    go(data.span / 3, data.span / 3 + data.span / share, still);
    const found = await frames([...times(10, () => pan(0.07, true)), ...times(10, () => pan(-0.07, true))]);
    moved.draw.push(...found.draw);
    moved.frame.push(...found.frame);
  }
  for (const list of Object.values(moved)) list.sort((a, b) => a - b);
  const began = performance.now();
  home.timeline.find("allreduce");
  const searched = performance.now() - began;
  return { events: data.count, tracks: state.rows.length, took: home.timeline.took, zoomed, moved, searched };
}

(async () => {
  const browser = await puppeteer.launch({ executablePath: chromium, headless: true, args: ["--no-sandbox", "--disable-gpu"] });
  const page = await browser.newPage();
  await page.setViewport({ width: 1600, height: 1000, deviceScaleFactor: Number(scale) });
  await page.goto(`file://${file}`);
  await page.waitForFunction(() => document.getElementById("timeline-view").dataset.ready, { timeout: 120000 });
  await page.evaluate(() => document.getElementById("timeline-view").scrollIntoView());
  await page.tracing.start({ categories: ["devtools.timeline", "disabled-by-default-devtools.timeline"] });
  const found = await page.evaluate(measure);
  // Of the thread that draws: the processor time of each task, whatever else the machine did meanwhile.
  const trace = JSON.parse(Buffer.from(await page.tracing.stop()).toString()).traceEvents;
  const drawing = trace.filter((one) => one.name === "FireAnimationFrame");
  const thread = drawing.length ? drawing[0].tid : -1, process = drawing.length ? drawing[0].pid : -1;
  const times = (name) => trace.filter((one) => one.name === name && one.tid === thread && one.pid === process && one.tdur !== undefined)
    .map((one) => one.tdur / 1000).sort((a, b) => a - b);
  found.processor = { callback: times("FireAnimationFrame"), task: times("RunTask") };
  console.log(JSON.stringify(found));
  await browser.close();
})().catch((error) => { console.error(error); process.exit(1); });
