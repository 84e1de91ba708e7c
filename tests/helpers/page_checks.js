// What is wrong with how a page looks? One line of JSON: for every page its views, for every view its faults as sentences.
// node page_checks.js NODE_MODULES CHROMIUM JOBS, where JOBS is JSON: [{file, views: [{width, scheme, axe, tabs}]}]
"use strict";
const [, , modules, chromium, jobs] = process.argv;
const puppeteer = require(modules + "/puppeteer-core");
const axe = require("fs").readFileSync(modules + "/axe-core/axe.min.js", "utf8");

// Runs in the page.
function look() {
  const found = [];
  const seen = (box) => box.width > 0 && box.height > 0;
  const where = (element) => {
    const home = element.closest("figure[id], .table[id], section[id], header, nav, footer");
    return `${home ? home.id || home.tagName.toLowerCase() : "page"}: ${element.tagName.toLowerCase()} "${element.textContent.trim().slice(0, 50)}"`;
  };
  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth) {
    const guilty = [...document.body.querySelectorAll("*")].filter((e) => e.getBoundingClientRect().right > root.clientWidth + 1 && !scrolled(e));
    found.push(`the page is ${root.scrollWidth - root.clientWidth} px wider than the window: ${guilty.slice(0, 2).map(where).join("; ")}`);
  }
  function scrolled(element, axis = "overflowX") {
    for (let e = element; e && e !== document.body; e = e.parentElement) if (["auto", "scroll"].includes(getComputedStyle(e)[axis])) return e;
    return null;
  }

  const range = document.createRange();
  for (const element of document.body.querySelectorAll("*:not(svg *):not(script):not(.quiet):not(.skip):not(.tl-heard)")) {
    const own = element.getBoundingClientRect();
    if (!seen(own)) continue;
    const style = getComputedStyle(element);
    const cuts = (value) => value === "hidden" || value === "clip";
    if (cuts(style.overflowX) && element.scrollWidth > element.clientWidth + 1 && element.textContent.trim() && !element.closest("[title]")) {
      found.push(`cut at the right: ${where(element)}`);
    }
    // What stands in a box that scrolls is drawn anew as it scrolls.
    if (cuts(style.overflowY) && !scrolled(element, "overflowY") && element.scrollHeight > element.clientHeight + 1 && element.textContent.trim() && !element.closest("[title]")) {
      found.push(`cut at the bottom: ${where(element)}`);
    }
    if (/^(TD|TH|LI|P|DT|DD|CAPTION|H1|H2|H3|FIGCAPTION|BUTTON|SUMMARY)$/.test(element.tagName) && style.overflowX === "visible") {
      range.selectNodeContents(element);
      const inner = range.getBoundingClientRect();
      if (inner.right > own.right + 1.5 || inner.left < own.left - 1.5) found.push(`stands out of its box by ${Math.round(Math.max(inner.right - own.right, own.left - inner.left))} px: ${where(element)}`);
    }
  }

  for (const svg of document.querySelectorAll("main svg")) {
    const frame = svg.getBoundingClientRect();
    if (!seen(frame)) continue;
    const marks = [...svg.querySelectorAll("rect, path, circle, polyline, polygon, use, image")].filter((mark) => !mark.closest("defs, clipPath"));
    const drawn = marks.filter((mark) => { const box = mark.getBoundingClientRect(); return box.width > 0.2 || box.height > 0.2; });
    if (drawn.length < 1) found.push(`an empty figure: ${where(svg)}`);
    const scale = svg.viewBox.baseVal && svg.viewBox.baseVal.width ? frame.width / svg.viewBox.baseVal.width : 1;
    const texts = [];
    for (const text of svg.querySelectorAll("text")) {
      const box = text.getBoundingClientRect();
      if (!seen(box)) continue;
      const rendered = parseFloat(getComputedStyle(text).fontSize) * scale;
      if (rendered < 6.5) found.push(`text of ${rendered.toFixed(1)} px: ${where(text)}`);
      if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 2 || box.bottom > frame.bottom + 2) {
        found.push(`outside its figure: ${where(text)}`);
      }
      // Letters fill the middle of the box of a line.
      const flat = box.width >= box.height;
      const trim = 0.18 * (flat ? box.height : box.width);
      texts.push({ text, left: box.left + (flat ? 0 : trim), right: box.right - (flat ? 0 : trim), top: box.top + (flat ? trim : 0), bottom: box.bottom - (flat ? trim : 0) });
    }
    texts.sort((a, b) => a.left - b.left);
    texts.forEach((one, i) => {
      for (let j = i + 1; j < texts.length && texts[j].left < one.right - 1; j += 1) {
        const other = texts[j];
        if (Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top) > 1) {
          found.push(`"${one.text.textContent.slice(0, 40)}" and "${other.text.textContent.slice(0, 40)}" overlap: ${where(svg).slice(0, 60)}`);
        }
      }
    });
  }

  const named = new Map();
  for (const element of document.querySelectorAll("[id]")) named.set(element.id, (named.get(element.id) ?? 0) + 1);
  for (const [id, count] of named) if (count > 1) found.push(`the id ${id} is there ${count} times`);
  for (const link of document.querySelectorAll('a[href^="#"]')) {
    const inTimeline = named.has("timeline") && /^#(t=[\d.]+-[\d.]+(&rank=\d+)?|rank=\d+)$/.test(link.getAttribute("href"));
    if (!inTimeline && !named.has(decodeURIComponent(link.getAttribute("href").slice(1)))) found.push(`leads nowhere: ${link.getAttribute("href")} in ${where(link)}`);
  }
  for (const name of ["aria-labelledby", "aria-describedby", "aria-controls"]) {
    for (const element of document.querySelectorAll(`[${name}]`)) {
      for (const id of element.getAttribute(name).split(/\s+/)) if (!named.has(id)) found.push(`${name} names no element: ${id}`);
    }
  }
  for (const element of document.querySelectorAll("svg *")) {
    for (const attribute of element.attributes) {
      const id = /^(?:url\()?#([^)]+)\)?$/.exec(attribute.value)?.[1];
      if (id && /href|clip-path|fill|stroke|mask|filter/.test(attribute.name) && !/^[0-9a-f]{3,8}$/i.test(id) && !named.has(id)) found.push(`${attribute.name} names no element: ${id}`);
    }
  }
  for (const image of document.querySelectorAll("img")) if (!image.getAttribute("alt")) found.push(`no alternative text: ${where(image)}`);
  for (const svg of document.querySelectorAll("svg")) {
    if (svg.getAttribute("aria-hidden") !== "true" && !svg.getAttribute("aria-label")) found.push(`no alternative text: ${where(svg)}`);
  }
  return found;
}

// Runs in the page after each press of the tabulator.
function focused() {
  const now = document.activeElement;
  if (!now || now === document.body || now.dataset.passed) return null;
  const before = document.querySelector("[data-last]");
  const faults = [];
  const text = `${now.tagName.toLowerCase()} "${(now.textContent || now.getAttribute("aria-label") || "").trim().slice(0, 40)}"`;
  if (before && !(before.compareDocumentPosition(now) & Node.DOCUMENT_POSITION_FOLLOWING)) faults.push(`comes out of order with the tabulator: ${text}`);
  const box = now.getBoundingClientRect();
  if (!(box.width > 0 && box.height > 0 && box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth)) faults.push(`has the focus but is not in view: ${text}`);
  const style = getComputedStyle(now);
  if (style.outlineStyle === "none" && style.boxShadow === "none") faults.push(`has the focus but does not show it: ${text}`);
  if (!before && !now.matches(".skip")) faults.push(`the first stop of the tabulator is no link past the contents: ${text}`);
  if (before) delete before.dataset.last;
  now.dataset.last = now.dataset.passed = "1";
  return faults;
}

(async () => {
  const browser = await puppeteer.launch({ executablePath: chromium, headless: true, args: ["--no-sandbox", "--disable-gpu", "--force-color-profile=srgb"] });
  const answers = [];
  for (const { file, views } of JSON.parse(jobs)) {
    const page = await browser.newPage();
    const errors = [];
    page.on("pageerror", (error) => errors.push(`script error: ${error.message}`));
    page.on("console", (line) => { if (line.type() === "error") errors.push(`console: ${line.text()}`); });
    page.on("request", (request) => { if (!/^(file|data|blob):/.test(request.url())) errors.push(`is fetched: ${request.url()}`); });
    const of = [];
    for (const { width, scheme, axe: withAxe, tabs } of views) {
      await page.setViewport({ width, height: 900 });
      await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }, { name: "prefers-reduced-motion", value: "reduce" }]);
      if (page.url() === "about:blank") await page.goto("file://" + file);
      await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
      const faults = await page.evaluate(look);
      if (withAxe) {
        await page.evaluate(axe);
        const result = await page.evaluate(() => axe.run(document, { resultTypes: ["violations"] }));
        faults.push(...result.violations.map((v) => `axe ${v.id}: ${v.nodes.slice(0, 3).map((n) => n.html.slice(0, 160)).join(" | ")}`));
      }
      if (tabs) {
        await page.evaluate(() => { document.activeElement?.blur?.(); scrollTo(0, 0); });
        for (let stop = 0; stop < 2000; stop += 1) {
          await page.keyboard.press("Tab");
          const told = await page.evaluate(focused);
          if (!told) break;
          faults.push(...told);
        }
      }
      of.push([...faults, ...errors.splice(0)]);
    }
    answers.push(of);
    await page.close();
  }
  await browser.close();
  console.log(JSON.stringify(answers));
})().catch((error) => { console.error(error); process.exit(1); });
