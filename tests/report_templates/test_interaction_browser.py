"""The report and its timeline in a browser: links to spans, what is highlighted everywhere, and the values of figures."""

# ruff: noqa: E501  (steps of a reader read better than one value per line)

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import statistics
import subprocess
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
from made_timeline import MS, two_ranks
from postrun.analysis.report import Report
from postrun.analysis.report.steps import RankSteps, StepBar, StepBreakdown
from postrun.report_templates.output.render import render

DRIVER = r"""
const [, , modules, chromium, axePath] = process.argv;
const puppeteer = require(modules + "/puppeteer-core");
const axe = require("fs").readFileSync(axePath, "utf8");
(async () => {
  const browser = await puppeteer.launch({ executablePath: chromium, headless: true, args: ["--no-sandbox", "--disable-gpu"] });
  for await (const line of require("readline").createInterface({ input: process.stdin })) {
    const { url, scheme, steps, script, before } = JSON.parse(line);
    const own = await browser.createBrowserContext(), page = await own.newPage();
    const errors = [], values = [];
    page.on("pageerror", (error) => errors.push(error.message));
    page.on("console", (line) => { if (line.type() === "error") errors.push(line.text()); });
    page.on("request", (request) => { if (!/^(file|data):/.test(request.url())) errors.push(request.url()); });
    await page.setViewport({ width: 1280, height: 900 });
    await page.setJavaScriptEnabled(script !== false);
    await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }, { name: "prefers-reduced-motion", value: "reduce" }]);
    try {
    if (before) await page.evaluateOnNewDocument(before);
    await page.goto(url);
    if (script !== false) await page.waitForFunction(() => document.getElementById("timeline-view").dataset.ready, { timeout: 60000 });
    for (const step of steps) {
      if (step.hash !== undefined) await page.evaluate((hash) => { location.hash = hash; }, step.hash);
      if (step.back) await page.goBack();
      if (step.click) await page.click(step.click);
      if (step.focus) await page.$eval(step.focus, (one) => one.focus());
      if (step.key) await page.keyboard.press(step.key);
      if (step.hover) {
        await page.$eval(step.hover, (one) => one.scrollIntoView({ block: "center" }));
        await new Promise((done) => setTimeout(done, 100)); // the event of scrolling comes later
        await page.hover(step.hover);
      }
      if (step.axe) {
        await page.evaluate(axe);
        const result = await page.evaluate(() => axe.run(document));
        values.push(result.violations.map((v) => v.id + ": " + v.nodes.slice(0, 3).map((n) => n.html.slice(0, 160)).join(" | ")));
      }
      if (step.wait) await new Promise((done) => setTimeout(done, step.wait));
      if (step.until) await page.waitForFunction(step.until, { timeout: 60000 });
      if (step.run) {
        if (script !== false) await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
        values.push(await page.evaluate(step.run));
      }
    }
    } catch (error) { errors.push(error.message); }
    console.log(JSON.stringify({ errors, values }));
    await own.close();
  }
  await browser.close();
})().catch((error) => { console.error(error); process.exit(1); });
"""

VIEW = "[document.getElementById('timeline-view').timeline.view].map((view) => [view.from, view.to])[0]"
SPAN = 1122 * 1000 * MS
RANK_CELL = "#time-breakdown-table tbody tr:last-child th"
OPEN = {"run": "document.querySelectorAll('details').forEach((one) => { one.open = true; })"}
LIT = """(() => {
  const lit = [...document.querySelectorAll(".brushed")], of = (selector) => lit.filter((one) => one.matches(selector));
  return {
    keys: [...new Set(lit.map((one) => one.dataset.rank ?? one.dataset.step ?? one.title))],
    cells: of("th, td").length, marks: of("svg *").length, current: document.querySelectorAll("[aria-current]").length,
    tracks: [...document.querySelectorAll(".tl-brushed")].map((one) => one.textContent.replace("▾", "")),
    names: (document.getElementById("timeline-view").timeline.state.brushed ?? []).flatMap((lit, name) => (lit ? [name] : [])),
  };
})()"""
NOTHING = {"keys": [], "cells": 0, "marks": 0, "current": 0, "tracks": [], "names": []}
TIP = "[document.querySelector('.tip').hidden, document.querySelector('.tip').textContent]"


@pytest.fixture(scope="module")
def file(rich: Report, tmp_path_factory: pytest.TempPathFactory) -> Path:
    bars = tuple(
        StepBar(number, number, 1, 2 * time * MS, time * MS, time * MS // 2, 0, time * MS // 2, time * MS // 5)
        for number, time in ((7, 10), (8, 15), (9, 80))
    )
    steps = StepBreakdown(steps=3, mean=bars, ranks=(RankSteps("node-0", 0, 1, 0, bars),))
    rich = dataclasses.replace(rich, step_breakdown=steps)
    timeline = two_ranks(rich.run.started_at_ns or 0, SPAN, rich.kernels[1].name)
    return render(rich, tmp_path_factory.mktemp("interaction"), ("html",), timeline=timeline)["html"]


@pytest.fixture(scope="module")
def browse(node_modules: Path, file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One browser for all; each call has a page, and returns values of its steps."""
    node, chromium = shutil.which("node"), shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chrome")
    if node is None or chromium is None:
        pytest.skip("no node or no chromium (apt-get install nodejs chromium)")
    driver = tmp_path_factory.mktemp("driver") / "driver.cjs"
    driver.write_text(DRIVER)
    command = [node, driver, node_modules, chromium, node_modules / "axe-core" / "axe.min.js"]
    with (
        (driver.parent / "errors").open("w+") as errors,
        subprocess.Popen(command, stdin=PIPE, stdout=PIPE, stderr=errors, text=True) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None

        def browse(*steps: dict[str, Any], fragment: str = "", scheme: str = "light", **more: Any) -> list[Any]:
            process.stdin.write(json.dumps({"url": f"file://{file}{fragment}", "scheme": scheme, "steps": steps, **more}) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
            assert line, Path(errors.name).read_text()
            answer = json.loads(line)
            assert answer["errors"] == []
            return list(answer["values"])

        yield browse
        process.stdin.close()
        assert process.wait(60) == 0, Path(errors.name).read_text()


def test_a_page_opens_at_the_span_and_rank_of_its_address(browse: Any) -> None:
    seen = """(() => { const box = document.getElementById("timeline-view").getBoundingClientRect();
      return [box.top >= -1 && box.top < innerHeight / 2, document.activeElement.tagName]; })()"""
    view, where, lit = browse({"run": VIEW}, {"run": seen, "wait": 100}, {"run": LIT}, fragment="#t=1200.5-61200.25&rank=7")
    assert view == [1200.5 * MS, 61200.25 * MS]
    assert where == [True, "CANVAS"]
    assert lit["tracks"] == ["HOST-0 PID-1007 rank 7"]
    assert lit["keys"] == ["7"]


def test_an_address_leads_to_its_span_and_back(browse: Any) -> None:
    first, second, elsewhere, back = browse(
        {"hash": "t=0-1000", "run": VIEW, "wait": 100},
        {"hash": "t=2000-3000", "run": VIEW, "wait": 100},
        {"hash": "kernels", "run": VIEW, "wait": 100},
        {"back": True, "run": VIEW, "wait": 100},
    )
    assert first == [0, 1000 * MS]
    assert second == elsewhere == back == [2000 * MS, 3000 * MS]
    first, second, back = browse(
        {"hash": "t=0-1000", "run": VIEW, "wait": 100},
        {"hash": "t=2000-3000", "run": VIEW, "wait": 100},
        {"back": True, "run": VIEW, "wait": 100},
    )
    assert (first, second, back) == ([0, 1000 * MS], [2000 * MS, 3000 * MS], [0, 1000 * MS])


@pytest.mark.parametrize(
    "fragments",
    [
        ["#t=5-1", "#t=-1-5", "#t=1e3-2e3", "#t=1-", "#t=1-2&rank=x", "#t=1-2&rank=5&rank=6", "#t=1-2&x=1", "#%", "#&", "#t", "#rank="],
        ["#t=1.1234567-2", f"#t={10**12}-{10**12 + 1}", "#t=99999999-999999999", "#t=NaN-Infinity", "#T=1-2", "#t=1-2#t=1-2", "#t=１-２"],
    ],
)
def test_an_address_without_a_span_changes_nothing(browse: Any, fragments: list[str]) -> None:
    before, *after = browse({"run": VIEW}, *({"hash": fragment, "run": VIEW, "wait": 30} for fragment in fragments))
    assert after == [before] * len(fragments)
    assert browse({"run": VIEW}, fragment=fragments[0]) == [before]


def test_an_unknown_rank_leaves_the_span(browse: Any) -> None:
    assert browse({"run": VIEW}, {"run": LIT}, fragment="#t=0-1000&rank=99") == [[0, 1000 * MS], NOTHING]


def test_a_rank_alone_keeps_the_time(browse: Any) -> None:
    before, after, lit = browse({"run": VIEW}, {"hash": "rank=7", "run": VIEW, "wait": 100}, {"run": LIT})
    assert before == after
    assert lit["tracks"] == ["HOST-0 PID-1007 rank 7"]


@pytest.mark.parametrize(
    ("fragment", "labels"),
    [
        (
            "#t=304868-305410",
            [
                "5\u00a0min\u00a04.9\u00a0s",
                "5\u00a0min\u00a05.0\u00a0s",
                "5\u00a0min\u00a05.1\u00a0s",
                "5\u00a0min\u00a05.2\u00a0s",
                "5\u00a0min\u00a05.3\u00a0s",
            ],
        ),
        ("#t=59999-60000.5", ["59.9990\u00a0s", "59.9995\u00a0s", "1\u00a0min"]),
        (
            "#t=299999.9-300000.4",
            [
                "4\u00a0min\u00a059.9999\u00a0s",
                "5\u00a0min",
                "5\u00a0min\u00a00.0001\u00a0s",
                "5\u00a0min\u00a00.0002\u00a0s",
                "5\u00a0min\u00a00.0003\u00a0s",
            ],
        ),
        ("#t=1000-1000.005", ["1.000000\u00a0s", "1.000001\u00a0s", "1.000002\u00a0s", "1.000003\u00a0s", "1.000004\u00a0s"]),
        ("#t=0-0.5", ["0\u00a0µs", "100\u00a0µs", "200\u00a0µs", "300\u00a0µs", "400\u00a0µs"]),
        ("#t=0-1122000", ["0\u00a0s", "5\u00a0min", "10\u00a0min", "15\u00a0min"]),
    ],
)
def test_the_ruler_has_absolute_times(browse: Any, fragment: str, labels: list[str]) -> None:
    """With the decimals that distinguish neighbors; from a minute in parts."""
    record = """(() => {
      const written = [], pen = CanvasRenderingContext2D.prototype, own = pen.fillText;
      pen.fillText = function (text, x, y) { if (y === 16) written.push(text); return own.call(this, text, x, y); };
      document.getElementById("timeline-view").timeline.draw();
      pen.fillText = own;
      return written;
    })()"""
    assert browse({"wait": 100, "run": record}, fragment=fragment) == [labels]


def test_the_start_of_an_event_is_exact_in_the_words_of_the_ruler(browse: Any) -> None:
    """The step begins at 45% of 1,122 s."""
    select = "document.getElementById('timeline-view').timeline.select(0)"
    start = "document.querySelector('#tl-panel-0').innerText.replaceAll('\\u00a0', ' ')"
    (text,) = browse({"run": select}, {"wait": 50, "run": start})[1:]
    assert "8 min 24.9 s after the start" in text


def test_findings_lead_to_where_they_show(browse: Any, rich: Report) -> None:
    """Of the rule: its slow step; without script: the strips of the timeline."""
    outlier = next(rule for rule in rich.rules if rule.rule == "StepOutlier").details.slowest[0]  # type: ignore[union-attr]
    start = (outlier.start_ns - (rich.run.started_at_ns or 0)) / MS
    view, href = browse({"click": "#rule-StepOutlier a.show", "run": VIEW, "wait": 100}, {"run": "location.hash"})
    assert view == pytest.approx([start * MS, start * MS + outlier.duration_ns], abs=1)
    assert href == f"#t={start:g}-{start + outlier.duration_ns / MS:g}&rank={outlier.rank}"
    every = "[...document.querySelectorAll('a[data-at]')].map((one) => [one.getAttribute('href'), one.dataset.at])"
    (with_script,), (without,) = browse({"run": every}), browse({"run": every}, script=False)
    assert len(with_script) == len(without) > 0
    assert all(href == f"#{at}" for href, at in with_script)
    assert all(href == "#timeline" for href, _ in without)
    every = (
        "[...document.querySelectorAll('[data-at]')].map((one) => [(one.querySelector('a') ?? one).getAttribute('href'), one.dataset.at])"
    )
    (cells,) = browse({"run": every})
    assert len(cells) > 10
    assert all(href == f"#{at}" and re.fullmatch(r"t=\d+(\.\d+)?-\d+(\.\d+)?(&rank=\d+)?", at) for href, at in cells)


def test_a_link_works_again_after_the_reader_moved_away(browse: Any) -> None:
    link = "#rule-StepOutlier a.show"
    first, moved, again = browse(
        {"click": link, "run": VIEW, "wait": 100}, {"key": "a", "run": VIEW}, {"click": link, "run": VIEW, "wait": 100}
    )
    assert first == again != moved


@pytest.mark.parametrize("fragment", ["", "#kernels", "#t=0-5000"])
def test_back_from_a_link_shows_what_was_shown_before_it(browse: Any, fragment: str) -> None:
    """The shown time, the button of the view, and the place of the link."""
    link = "#rule-StepOutlier a.show"
    state = f"[{VIEW}, document.querySelector('[aria-pressed]').getAttribute('aria-pressed'), Math.round(scrollY)]"
    seen = f"seen = JSON.stringify({VIEW})"
    changed = f"seen !== JSON.stringify({VIEW})"
    _, _, before, there, back, _, forward = browse(
        {"run": f"document.querySelector('{link}').scrollIntoView()"},
        {"run": "document.getElementById('timeline-view').timeline.zoom(0.5)" if fragment else "0"},
        {"wait": 50, "run": f"{seen}, {state}"},
        {"click": link, "until": changed, "run": f"{seen}, {state}"},
        {"back": True, "until": changed, "run": f"{seen}, {state}"},
        {"run": "history.forward()"},
        {"until": changed, "run": state},
        fragment=fragment,
    )
    assert before[0] != there[0]
    assert back[:2] == before[:2]
    assert back[2] == pytest.approx(before[2], abs=2)
    assert forward[0] == there[0]


def test_the_view_becomes_the_address(browse: Any) -> None:
    zoom = "document.getElementById('timeline-view').timeline.zoom(0.5)"
    untouched, early, view, late = browse(
        {"run": "location.hash", "wait": 600},
        {"run": f"{zoom}, location.hash"},
        {"run": VIEW, "until": "location.hash"},
        {"run": "location.hash"},
    )
    assert untouched == early == ""
    assert browse({"run": VIEW}, fragment=late)[0] == pytest.approx(view, abs=1)


def test_a_chosen_rank_is_highlighted_everywhere(browse: Any) -> None:
    """A click on the cell of a rank, a second click, and Escape."""
    click = "document.querySelector('#time-breakdown-devices [data-rank=\"7\"]').dispatchEvent(new MouseEvent('click', { bubbles: true }))"
    chosen, again, _, mark, cleared = browse(
        OPEN, {"click": RANK_CELL, "run": LIT}, {"click": RANK_CELL, "run": LIT}, {"run": click}, {"run": LIT}, {"key": "Escape", "run": LIT},
    )[1:]  # fmt: skip
    assert chosen["keys"] == ["7"]
    assert chosen["cells"] > 3
    assert chosen["current"] == chosen["cells"]
    assert chosen["marks"] > 0
    assert chosen["tracks"] == ["HOST-0 PID-1007 rank 7"]
    assert again == cleared == NOTHING
    assert mark == chosen


def test_what_cells_and_marks_are_about(browse: Any) -> None:
    """The beginning of the text, or a number below the heading Rank or Step."""
    texts = {
        "rank 3 · node-0 GPU 3": "rank 3", "* rank 12 · node-0 GPU 3": "rank 12", "rank 7 TRAIN": "rank 7", "step 926, cProfile": "step 926",
        "rank 5, computation: 93.1 ms": "rank 5", "7 ranks alike": "", "rank 0–3": "", "rank 0, 2 and 5": "", "rank 3x": "", "rank ٣": "", "4": "",
    }  # fmt: skip
    before = f"""document.addEventListener("DOMContentLoaded", () => {{
      const rows = {json.dumps([[text, "4", "12", name] for text, name in zip(texts, "abcdefghijkl", strict=False)])}, home = document.createElement("div");
      home.innerHTML = "<table id='made'><caption>made</caption><thead><tr><th>Process</th><th>Rank</th><th>Steps</th><th>Kernel</th></tr></thead><tbody></tbody></table>";
      document.querySelector("main").append(home);
      for (const row of rows) {{
        const line = home.querySelector("tbody").insertRow();
        for (const text of row) line.insertCell().textContent = text;
      }}
    }});"""
    names = """[...document.querySelectorAll("#made tbody tr")].map((row) => [...row.cells].map((cell) => {
      const { rank, step, kernel } = cell.dataset;
      return [rank && `rank ${rank}`, step && `step ${step}`, kernel && `kernel ${kernel}`].filter(Boolean).join();
    }))"""
    (rows,) = browse({"run": names}, before=before)
    assert [row[0] for row in rows] == list(texts.values())
    assert [row[1:] for row in rows[:2]] == [["rank 4", "", "kernel a"], ["rank 4", "", "kernel b"]]


def test_a_rank_is_chosen_by_keyboard(browse: Any) -> None:
    """A table is one stop of the tab key; its arrows move, Enter chooses."""
    stops = "[...document.querySelectorAll('#time-breakdown-table [tabindex=\"0\"]:is(th, td)')].length"
    focused = "document.activeElement.dataset.rank"
    count, first, down, chosen = browse(
        OPEN, {"run": stops}, {"focus": "#time-breakdown-table th[tabindex='0']", "run": focused}, {"key": "ArrowDown", "run": focused},
        {"key": "Enter", "run": LIT},
    )[1:]  # fmt: skip
    assert count == 1
    assert first != down
    assert chosen["keys"] == [down]


def test_a_kernel_of_the_timeline_is_found_in_the_tables_and_back(browse: Any, rich: Report) -> None:
    kernel = rich.kernels[1].name
    timeline = "document.getElementById('timeline-view').timeline"
    row = f"[...document.querySelectorAll('#kernels-table [data-kernel]')].find((one) => (one.title || one.textContent) === {json.dumps(kernel)})"
    picked, step, cleared, clicked = browse(
        OPEN, {"run": f"({timeline}.select(1), {LIT})"}, {"run": f"({timeline}.select(0), {LIT})"}, {"key": "Escape", "run": LIT},
        {"run": f"({row}.click(), {LIT})"},
    )[1:]  # fmt: skip
    assert picked["keys"] == [kernel]
    assert picked["cells"] >= 1
    assert picked["names"] == clicked["names"] == [1]
    assert step["keys"] == ["211"]
    assert step["names"] == [0]
    assert cleared == NOTHING


def test_a_mark_shows_the_value_of_the_report(browse: Any, rich: Report) -> None:
    """The first bar is the computation of rank 0; the title is empty meanwhile."""
    mark = "#time-breakdown-devices rect[data-rank='0']"
    device = next(row for row in rich.time_breakdown if row.rank == 0)
    title = f"document.querySelector(\"{mark}\").querySelector('title').textContent"
    before, hovered, silent, gone, kept = browse(
        OPEN, {"run": title}, {"hover": mark, "run": TIP}, {"run": title}, {"hover": "h1", "run": TIP}, {"run": title}
    )[1:]
    assert hovered == [False, before]
    assert before.startswith("rank 0 ·")
    assert before.replace("\u00a0", " ").endswith(f", computation: {100 * device.computation_ns / device.span_ns:.1f}%")
    assert silent == ""
    assert gone[0] is True
    assert kept == before


def test_the_arrows_move_between_the_values_of_a_figure(browse: Any) -> None:
    titles = "[...document.querySelectorAll('#time-breakdown-devices title')].slice(0, 2).map((one) => one.textContent)"
    figure = "#time-breakdown-devices svg"
    wanted, first, second, lit, gone = browse(
        OPEN, {"run": titles}, {"focus": figure, "wait": 200}, {"key": "ArrowRight", "run": TIP}, {"key": "ArrowRight", "run": TIP}, {"key": "Enter", "run": LIT},
        {"key": "Escape", "run": TIP},
    )[1:]  # fmt: skip
    assert first == [False, wanted[0]]
    assert second == [False, wanted[1]]
    assert lit["keys"] == [re.match(r"rank (\d+)", wanted[1])[1]]  # type: ignore[index]
    assert gone[0] is True


def test_a_curve_shows_its_value_at_the_pointer(browse: Any, rich: Report) -> None:
    """The median step 100, from end to end, to the tenth of a pixel of the curve."""
    point = """(() => {
      const curve = document.querySelector("#steps-over-index [data-axes]"), svg = curve.ownerSVGElement;
      svg.scrollIntoView({ block: "center" });
      const [left, perX] = curve.dataset.axes.split(" ").map(Number), x = (100 - left) / perX;
      let length = 0;
      while (curve.getPointAtLength(length).x < x) length += 0.05;
      const at = new DOMPoint(x, curve.getPointAtLength(length).y).matrixTransform(svg.getScreenCTM());
      svg.dispatchEvent(new PointerEvent("pointermove", { clientX: at.x, clientY: at.y, bubbles: true }));
      return document.querySelector(".tip").textContent;
    })()"""
    words = browse(OPEN, {"wait": 200, "run": point})[-1]
    ends = {(row.rank, row.index): row.start_ns + row.duration_ns for row in rich.steps.steps}
    expected = statistics.median(ends[rank, 100] - ends[rank, 99] for rank in range(8))
    match = re.fullmatch(r"TRAIN: ([\d.]+)\u00a0ms at step\u00a0100", words)
    assert match is not None
    assert float(match[1]) == pytest.approx(expected / MS, abs=1.0)


def test_a_histogram_shows_the_count_of_the_bar_at_the_pointer(browse: Any, rich: Report) -> None:
    """The highest bar of the latencies: 40 bins of equal ratio from 10**2.5 ns."""
    point = """(() => {
      const mark = document.querySelector("#launches-latency [data-bins]"), svg = mark.ownerSVGElement;
      svg.scrollIntoView({ block: "center" });
      const bars = [...mark.getAttribute("d").matchAll(/V([\\d.]+)H([\\d.]+)/g)].map((bar) => bar.slice(1).map(Number));
      const highest = bars.reduce((best, bar) => (bar[0] < best[0] ? bar : best));
      const at = new DOMPoint(highest[1] - 1, highest[0] + 1).matrixTransform(svg.getScreenCTM());
      svg.dispatchEvent(new PointerEvent("pointermove", { clientX: at.x, clientY: at.y, bubbles: true }));
      return document.querySelector(".tip").textContent;
    })()"""
    words = browse(OPEN, {"wait": 200, "run": point})[-1]
    histogram = rich.launches.histogram
    assert histogram is not None
    highest = histogram.counts.index(max(histogram.counts))
    match = re.fullmatch(r"[\d,]+ in all: ([\d,]+) at ([\d.]+) to ([\d.]+)\u00a0(\w+)", words)
    assert match is not None
    assert int(match[1].replace(",", "")) == histogram.counts[highest]
    unit = {"ms": 1e6, "µs": 1e3}[match[4]]
    assert [float(match[2]) * unit, float(match[3]) * unit] == pytest.approx(histogram.edges[highest : highest + 2], rel=0.15)


# Moves the pointer to places of a mark, as shares of its width and height, and returns the texts of the tooltip.
POINT = """(() => {{
  const mark = document.querySelector("{mark}"), svg = mark.ownerSVGElement;
  svg.scrollIntoView({{ block: "center" }});
  const box = mark.getBoundingClientRect();
  return {places}.map(([x, y]) => {{
    svg.dispatchEvent(new PointerEvent("pointermove", {{ clientX: box.left + x * box.width, clientY: box.top + y * box.height, bubbles: true }}));
    return document.querySelector(".tip").textContent.replaceAll("\\u00a0", " ");
  }});
}})()"""
KEYED = "document.querySelector('.tip').textContent.replaceAll('\\u00a0', ' ')"


def test_a_heat_map_shows_the_share_at_the_pointer_and_the_rows_with_the_keys(browse: Any, rich: Report) -> None:
    """The first and the last column of GPU 3, and column 40, which has no sample."""
    (heat,) = (heat for heat in rich.system_usage.heat if heat.node == "node-0" and heat.metric == "gpu")
    row = heat.values[3]
    places = [[0.5 / len(row), 0.9], [(len(row) - 0.5) / len(row), 0.9], [40.5 / len(row), 0.9]]
    *_, texts, first = browse(
        OPEN,
        {"wait": 200, "run": POINT.format(mark="#system-usage-gpu-heat image", places=places)},
        {"focus": "#system-usage-gpu-heat svg", "key": "Escape"},
        {"key": "ArrowRight", "run": KEYED},
    )
    step = (heat.time_ns[1] - heat.time_ns[0]) / 1e9
    ends = [f"{row[0] or 0:.0f}% at {step / 2:.2f} s", f"{row[-1] or 0:.0f}% at 17 min 56 s", "no sample at 6 min 5 s"]
    assert texts == [f"node-0: GPU 3, {end}" for end in ends]
    known = [value for value in heat.values[0] if value is not None]
    assert first == f"node-0: GPU 0, {min(known):.0f}% to {max(known):.0f}%, mean {statistics.fmean(known):.0f}%"


def test_a_matrix_shows_the_pair_at_the_pointer(browse: Any, rich: Report) -> None:
    details = next(rule.details for rule in rich.rules if rule.rule == "LoadBalancing")
    count, values = len(details.devices), details.matrix  # type: ignore[union-attr]
    places = [[2.5 / count, 0.5 / count], [0.5 / count, 1.5 / count]]
    texts = browse(OPEN, {"wait": 200, "run": POINT.format(mark="#rule-LoadBalancing-matrix [data-matrix]", places=places)})[-1]
    assert [text.rpartition(", ")[2] for text in texts] == [f"{values[0][2]:.2f}", f"{values[1][0]:.2f}"]
    assert re.fullmatch(r"distance: .*GPU 0 and .*GPU 2, [\d.]+", texts[0])


def test_a_strip_shows_the_kind_and_time_of_events(browse: Any) -> None:
    """Rank 0 computes from 45% to 55% of 18 min 42 s."""
    strip = "#timeline-whole [data-strip] ~ [data-strip]"
    texts, *keys = browse(
        {"run": "document.getElementById('timeline-strips').open = true"},
        {"wait": 200, "run": POINT.format(mark=strip, places=[[0.5, 0.5], [0.1, 0.5]])},
        {"focus": "#timeline-whole svg", "key": "Escape"},
        *[{"key": "ArrowRight", "run": KEYED}] * 2,
    )[1:]
    assert texts == ["GPU-0: computation, 8 min 25 s to 10 min 17 s", "GPU-0: no event at 1 min 52 s"]
    assert keys == ["Steps: step, 8 min 25 s to 10 min 17 s", "GPU-0: computation, 8 min 25 s to 10 min 17 s"]


def test_bars_of_steps_show_their_parts(browse: Any) -> None:
    """Those of a rank, whose second step takes 30 ms, on hover and with the keys."""
    *_, texts, key = browse(
        OPEN,
        {"wait": 200, "run": POINT.format(mark="#step-breakdown-rank-0 [data-bars]", places=[[0.5, 0.5], [0.9, 0.1]])},
        {"focus": "#step-breakdown-rank-0 svg", "key": "Escape"},
        {"key": "ArrowRight", "run": KEYED},
    )
    assert texts[0] == "Step 8: computation 15.0 ms, exposed communication 7.5 ms, idle 7.5 ms, hidden communication 3.0 ms"
    assert texts[1] == "Step 9 (bar cut): computation 30.0 ms, hidden communication 16.0 ms"
    assert key.startswith("Step 7: computation 10.0 ms, exposed communication 5.0 ms")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_in_what_is_highlighted(browse: Any, scheme: str) -> None:
    figure = "#time-breakdown-devices svg"
    *_, violations = browse(
        OPEN, {"click": RANK_CELL}, {"focus": figure, "key": "ArrowRight"}, {"axe": True}, fragment="#t=0-1000&rank=7", scheme=scheme
    )
    assert violations == []


def test_a_sorted_table_keeps_its_stop_in_sight(browse: Any) -> None:
    """Of 340 kernels 15 are shown: after sorting, others."""
    stop = """(() => { const all = [...document.querySelectorAll("#kernels-table :is(th, td)[tabindex='0']")];
      return [all.length, all.every((one) => !one.parentElement.hidden)]; })()"""
    sort = "[...document.querySelectorAll('#kernels-table thead button')].find((one) => one.textContent === 'Mean').click()"
    first, _, second, _, third = browse({"run": stop}, {"run": sort}, {"run": stop}, {"run": sort}, {"run": stop})
    assert first == second == third == [1, True]
