"""The timeline in a browser: keys, selection, arrows, search, both themes, every width, and 300 000 events."""

# ruff: noqa: E501  (steps of a reader read better than one value per line)

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
from made_timeline import MS, hostile, large, queued, small
from postrun.analysis.report import Report
from postrun.analysis.report.first_page import Dip, JobStrip
from postrun.report_templates.output.render import render

DRIVER = r"""
const [, , modules, chromium, axePath] = process.argv;
const puppeteer = require(modules + "/puppeteer-core");
const axe = require("fs").readFileSync(axePath, "utf8");
(async () => {
  const browser = await puppeteer.launch({ executablePath: chromium, headless: true, args: ["--no-sandbox", "--disable-gpu"] });
  for await (const line of require("readline").createInterface({ input: process.stdin })) {
    const { file, scheme, width, steps, before, script } = JSON.parse(line);
    const own = await browser.createBrowserContext(), page = await own.newPage();
    const errors = [];
    page.on("pageerror", (error) => errors.push(error.message));
    page.on("console", (line) => { if (line.type() === "error") errors.push(line.text()); });
    page.on("request", (request) => { if (!/^(file|data):/.test(request.url())) errors.push(request.url()); });
    await page.setViewport({ width, height: 900, deviceScaleFactor: 2 });
    await page.setJavaScriptEnabled(script !== false);
    await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }, { name: "prefers-reduced-motion", value: "reduce" }]);
    if (before) await page.evaluateOnNewDocument(before);
    await page.goto("file://" + file);
    if (script !== false) await page.waitForFunction(() => document.getElementById("timeline-view").dataset.ready, { timeout: 60000 });
    const values = [];
    for (const step of steps) {
      if (step.focus) await page.focus(step.focus);
      if (step.key) await page.keyboard.press(step.key);
      if (step.text) await page.keyboard.type(step.text);
      if (step.click) await page.click(step.click);
      if (step.event !== undefined) {
        const [x, y] = await page.evaluate((event) => {
          const home = document.getElementById("timeline-view"), canvas = home.querySelector("canvas");
          canvas.scrollIntoView({ block: "center" });
          const box = canvas.getBoundingClientRect(), at = home.timeline.spot(event);
          return [box.left + (at.left + at.right) / 2, box.top + at.y];
        }, step.event);
        await page.mouse.click(x, y);
      }
      if (step.drag) {
        const [selector, by] = step.drag;
        await page.$eval(selector, (one) => one.scrollIntoView({ block: "center" }));
        const box = await (await page.$(selector)).boundingBox();
        await page.mouse.move(box.x + box.width / 2, box.y + 60);
        await page.mouse.down();
        await page.mouse.move(box.x + box.width / 2 + by, box.y + 60, { steps: 4 });
        await page.mouse.up();
      }
      if (step.touch) {
        const client = await page.createCDPSession(), box = await (await page.$("#timeline-view canvas")).boundingBox();
        const points = (fingers) => fingers.map(([x, y], id) => ({ x: box.x + x * box.width, y: box.y + y, id }));
        await client.send("Input.dispatchTouchEvent", { type: "touchStart", touchPoints: points(step.touch[0]) });
        for (const fingers of step.touch.slice(1)) await client.send("Input.dispatchTouchEvent", { type: "touchMove", touchPoints: points(fingers) });
        await client.send("Input.dispatchTouchEvent", { type: "touchEnd", touchPoints: [] });
      }
      if (step.wheel) await page.mouse.wheel({ deltaY: step.wheel });
      if (step.axe) {
        await page.evaluate(axe);
        const result = await page.evaluate(() => axe.run("#timeline"));
        values.push(result.violations.map((v) => v.id + ": " + v.nodes.slice(0, 3).map((n) => n.html.slice(0, 160)).join(" | ")));
      }
      if (step.run) {
        await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
        values.push(await page.evaluate(step.run));
      }
    }
    const overflow = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    console.log(JSON.stringify({ errors, values, overflow }));
    await own.close();
  }
  await browser.close();
})().catch((error) => { console.error(error); process.exit(1); });
"""

HOME = "document.getElementById('timeline-view')"
WHERE = f"(() => {{ const {{ view, state }} = {HOME}.timeline; return [view.from, view.to, state.selected]; }})()"
SELECTION = f"{HOME}.querySelector('#tl-panel-0').innerText"
FRAMES = f"""(() => {{
  const {{ view, data, state, draw }} = {HOME}.timeline, times = [];
  for (let k = 0; k < 40; k += 1) {{
    view.from = data.span * (1 - 2 ** (-k / 4)) / 2;
    view.to = data.span - view.from;
    draw();
    times.push(state.frame);
  }}
  times.sort((a, b) => a - b);
  return [data.count, times[20], times[37]];
}})()"""


@pytest.fixture(scope="module")
def files(small_reports: dict[str, Report], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Write pages with these timelines and little else, which saves time."""
    folder, report = tmp_path_factory.mktemp("timeline"), small_reports["cpu"]
    pages = {"small": small(), "queued": queued(), "hostile": hostile(), "large": large()}
    files = {name: str(render(report, folder / name, ("html",), timeline=timeline)["html"]) for name, timeline in pages.items()}
    start = small().origin_ns
    dips = (Dip(start + 10 * MS, start + 20 * MS, 19.0, 95.0, ("StepOutlier",)),)
    strip = JobStrip(start, start + 30 * MS, dips=dips, window_start_ns=start + MS, window_end_ns=start + 5 * MS)
    marked = dataclasses.replace(report, job_strip=strip)
    return files | {"marked": str(render(marked, folder / "marked", ("html",), timeline=small())["html"])}


@pytest.fixture(scope="module")
def browse(node_modules: Path, files: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One browser for all; each call has a page, and storage, of its own."""
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

        def browse(*steps: dict[str, Any], which: str = "small", scheme: str = "light", width: int = 1000, **more: Any) -> dict[str, Any]:
            job = {"file": files[which], "scheme": scheme, "width": width, "steps": steps, **more}
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
            assert line, Path(errors.name).read_text()
            answer = json.loads(line)
            assert answer["errors"] == []
            assert answer["overflow"] <= 0
            return dict(answer)

        yield browse
        process.stdin.close()
        assert process.wait(60) == 0, Path(errors.name).read_text()


@pytest.mark.parametrize(("scheme", "width"), [("light", 1000), ("dark", 1600), ("dark", 400), ("light", 400)])
def test_axe_finds_nothing_with_and_without_a_selection(browse: Any, scheme: str, width: int) -> None:
    answer = browse({"axe": True}, {"run": f"{HOME}.timeline.select(2)"}, {"click": "#tl-tab-1"}, {"axe": True}, scheme=scheme, width=width)
    assert answer["values"][0] == []
    assert answer["values"][-1] == []


def test_it_opens_at_the_slowest_step_and_the_buttons_lead_to_the_others(browse: Any) -> None:
    button = "#timeline-view .tl-group button:nth-child({})"
    script = f"{HOME}.querySelector('.tl-view').textContent"
    first, words, second, third, pressed = browse(
        {"run": WHERE},
        {"run": script},
        {"click": button.format(2), "run": WHERE},
        {"click": button.format(3), "run": WHERE},
        {"run": f"[...{HOME}.querySelectorAll('[aria-pressed]')].map((one) => one.getAttribute('aria-pressed'))"},
    )["values"]
    assert first[0] < 10 * MS < 30 * MS < first[1] < 31 * MS
    assert words == "Shown: step 2 of rank 0, 20.0 ms: the slowest"
    assert second[0] < 0.2 * MS
    assert 10 * MS < second[1] < 10.5 * MS
    assert third[0] <= 0
    assert third[1] >= 30 * MS
    assert pressed == ["false", "false", "true"]


def test_a_click_selects_and_tells_launch_configuration_and_latency(browse: Any) -> None:
    """Event 2 is the kernel: launched from 1 to 1.02 ms, running from 1.5 ms."""
    text, where, arrow, end_text, table = browse(
        {"key": "Escape", "click": "#timeline-view .tl-group button:nth-child(3)"},
        {"event": 2, "run": SELECTION},
        {"run": WHERE},
        {"run": f"{HOME}.timeline.state.arrow"},
        {"click": "#tl-panel-0 .tl-other", "run": WHERE},
        {"click": "#tl-tab-1", "run": f"{HOME}.querySelector('#tl-panel-1 tbody').innerText"},
    )["values"]
    plain_text = text.replace("\u00a0", " ")
    assert where[2] == 2
    for part in (
        "void gemm<128, 64>(float*)",
        "16 x 4 x 1",
        "128 x 1 x 1",
        "4.00 ms",
        "480 µs",
        "GPU-0 device › stream 7",
        "cudaLaunchKernel",
    ):
        assert part in plain_text
    assert arrow is True
    assert end_text[2] == 6  # the other side is selected
    # Both ends are in view: 0.5 ms from launch to run, and three times as much of the run, with 8% of these 2 ms around them.
    assert end_text[:2] == pytest.approx([0.84 * MS, 3.16 * MS])
    assert "gemm" in table
    assert "480" in table


def test_following_an_arrow_keeps_both_of_its_ends_in_view(browse: Any) -> None:
    """Enter and the links of the table of connections, which stays open, move along."""
    ends = f"""(() => {{
      const {{ state, view, data, spot }} = {HOME}.timeline, scroller = {HOME}.querySelector(".tl-scroll");
      const inside = (event) => {{ const at = spot(event); return at.y > 26 && at.y < state.height && at.left >= 0 && at.left <= state.width; }};
      return [state.selected, inside(3), inside(8), data.start[3] - view.from > 0.05 * (view.to - view.from), state.tab];
    }})()"""
    answer = browse(
        {"run": f"{HOME}.timeline.select(3)"},
        {"focus": "#timeline-view canvas", "key": "f"},
        {"key": "Enter", "run": ends},
        {"key": "f"},
        {"key": "Enter", "run": ends},
        {"click": "#tl-tab-1"},
        {"key": "f"},
        {"click": "#tl-panel-1 tbody td:nth-child(1) .tl-link", "run": ends},
        {"click": "#tl-panel-1 tbody td:nth-child(2) .tl-link", "run": ends},
    )["values"][1:]
    assert answer == [[8, True, True, True, 0], [3, True, True, True, 0], [8, True, True, True, 1], [3, True, True, True, 1]]


DIP = "dip to 19%, 10.0 ms to 20.0 ms: StepOutlier"


@pytest.mark.parametrize("width", [1000, 400])
def test_the_marks_of_the_run_are_below_the_ruler(browse: Any, width: int) -> None:
    """A dip of 10 to 20 ms, a field behind the events; a window of 1 to 5 ms."""
    record = f"""(() => {{
      const {{ draw, x, head }} = {HOME}.timeline, pen = CanvasRenderingContext2D.prototype, own = [pen.fillText, pen.fillRect], names = [], fields = [];
      pen.fillText = function (text, at, y) {{ if (y > 26 && y < head) names.push(text); return own[0].call(this, text, at, y); }};
      pen.fillRect = function (...box) {{ if (box[0] === x(10e6) && box[2] === x(20e6) - x(10e6)) fields.push(box[1]); return own[1].apply(this, box); }};
      draw();
      [pen.fillText, pen.fillRect] = own;
      return [names, fields];
    }})()"""
    full_view = {"click": "#timeline-view .tl-group button:nth-child(3)"}
    (drawn,) = browse(full_view, {"run": record}, which="marked", width=width)["values"]
    assert drawn == [["dip", "profile window"] if width > 400 else ["dip"], [42, 26]]
    (plain,) = browse(
        full_view, {"run": f"[{HOME}.timeline.head, {HOME}.querySelector('.tl-help').innerText.includes('mark')]"}, width=width
    )["values"]
    assert plain == [26, False]


def test_a_mark_shows_its_words_and_leads_to_its_time(browse: Any) -> None:
    """Pointed at, clicked, and three times with the key m: the dip is also third."""
    status = f"[{HOME}.querySelector('.tl-view').textContent, {HOME}.timeline.view.from, {HOME}.timeline.view.to]"
    point = f"""(() => {{
      const {{ timeline }} = {HOME}, canvas = {HOME}.querySelector("canvas"), box = canvas.getBoundingClientRect();
      const send = (type, ms) => canvas.dispatchEvent(new PointerEvent(type, {{ clientX: box.left + timeline.x(ms * 1e6), clientY: box.top + 34, bubbles: true }}));
      const tip = () => {HOME}.querySelector(".tl-tip"), words = [15, 3, 28].map((ms) => {{ send("pointermove", ms); return tip().hidden ? "" : tip().textContent; }});
      send("pointerdown", 15);
      send("pointerup", 15);
      return words;
    }})()"""
    full_view = {"click": "#timeline-view .tl-group button:nth-child(3)"}
    words, clicked, *keys = browse(
        full_view, {"run": point}, {"run": status}, {"focus": "#timeline-view canvas"}, *[{"key": "m", "run": status}] * 3, which="marked"
    )["values"]
    assert [word.replace("\u00a0", " ") for word in words] == [DIP, "profile window, 4.00 ms", ""]
    views = [[text.replace("\u00a0", " "), *view] for text, *view in (clicked, *keys)]
    dip = [f"Shown: {DIP}", pytest.approx(9.5 * MS), pytest.approx(20.5 * MS)]
    assert views == [dip, dip, ["Shown: profile window, 4.00 ms", pytest.approx(0.8 * MS), pytest.approx(5.2 * MS)], dip]


def test_axe_finds_nothing_with_marks(browse: Any) -> None:
    assert browse({"axe": True}, which="marked")["values"] == [[]]


def test_no_tooltip_stays_when_what_it_names_has_moved(browse: Any) -> None:
    """The tooltip disappears with the view: by key, button, folding, or scrolling."""
    tip = f"[{HOME}.querySelector('.tl-tip').hidden, {HOME}.timeline.state.hover]"
    full_view = {"click": "#timeline-view .tl-group button:nth-child(3)"}
    for act in (
        {"key": "w"},
        {"key": "Enter"},
        {"run": f"{HOME}.querySelector('.tl-group button').click()"},
        {"run": f"{HOME}.timeline.rebuild()"},
    ):
        tooltip, *_, gone = browse(full_view, {"event": 2, "run": tip}, act, {"run": tip})["values"]
        assert tooltip == [False, 2]
        assert gone == [True, -1]


def test_a_click_on_an_event_shows_the_current_selection(browse: Any) -> None:
    tab = f"[{HOME}.timeline.state.tab, {HOME}.querySelector('#tl-panel-0').hidden, {HOME}.querySelector('#tl-tab-0').getAttribute('aria-selected')]"
    full_view = {"click": "#timeline-view .tl-group button:nth-child(3)"}
    answer = browse(
        full_view, {"click": "#tl-tab-2", "run": tab}, {"event": 2, "run": tab}, {"click": "#tl-tab-1", "run": tab}, {"event": 3, "run": tab},
        {"run": SELECTION}, {"click": "#tl-tab-2"}, {"click": "#tl-panel-2 tbody tr:nth-child(2) .tl-link", "run": tab},
    )["values"]  # fmt: skip
    assert answer[0] == answer[-1] == [2, True, "false"]  # a link of the table leaves it open
    assert answer[1] == answer[3] == [0, False, "true"]
    assert answer[2] == [1, True, "false"]
    assert "gemm" in answer[4]


def test_the_scale_of_a_curve_stands_at_its_upper_edge(browse: Any) -> None:
    """The curve of utilization begins at 86% in the slowest step, 50% in the run."""
    record = """(() => { const own = CanvasRenderingContext2D.prototype.fillText; window.written = [];
      CanvasRenderingContext2D.prototype.fillText = function (text, x, y) { window.written.push([text, y]); return own.call(this, text, x, y); }; })()"""
    look = f"(() => {{ const row = {HOME}.timeline.data.tracks[1].row; return window.written.filter(([text]) => text === '100%').map(([, y]) => (y - row.y) / row.h); }})()"
    first, full_text = browse(
        {"run": look}, {"run": "window.written = []"}, {"click": "#timeline-view .tl-group button:nth-child(3)", "run": look}, before=record
    )["values"][::2]
    assert first
    assert full_text
    assert all(0.3 < place < 0.5 for place in (*first, *full_text))  # the lower edge of the letters, in the upper half of the row


def test_keys_zoom_move_fit_and_walk(browse: Any) -> None:
    focus = {"focus": "#timeline-view canvas", "run": WHERE}
    at, zoomed, moved, out, picked, fitted, run, back, cleared = browse(
        focus,
        {"key": "w", "run": WHERE},
        {"key": "d", "run": WHERE},
        {"key": "s", "run": WHERE},
        {"key": "Enter", "run": WHERE},
        {"key": "f", "run": WHERE},
        {"run": f"{HOME}.timeline.select(3)"},
        {"key": "Enter", "run": WHERE},
        {"key": "Escape", "run": WHERE},
    )["values"]
    assert abs((at[1] - at[0]) / (zoomed[1] - zoomed[0]) - 1.6) < 0.01
    assert abs((moved[0] - zoomed[0]) / (zoomed[1] - zoomed[0]) - 0.25) < 0.01
    assert abs((out[1] - out[0]) - (at[1] - at[0])) < 1
    assert picked[2] >= 0
    assert fitted[1] - fitted[0] != out[1] - out[0]
    assert run is None
    assert back[2] == 8  # from the run to its launch
    assert cleared[2] == -1


def test_the_tree_is_walked_folded_and_left_for_events_by_keyboard(browse: Any) -> None:
    focused = "document.activeElement.dataset.track + ' ' + document.activeElement.getAttribute('aria-expanded')"
    first, second, folded, rows, unfolded, last, event = browse(
        {"focus": "#timeline-view [role=treeitem][tabindex='0']", "run": focused},
        {"key": "ArrowDown"},
        {"key": "ArrowDown", "run": focused},
        {"key": "ArrowLeft", "run": focused},
        {"run": f"{HOME}.timeline.state.rows.length"},
        {"key": "ArrowRight", "run": focused},
        {"key": "End", "run": focused},
        {"key": "Enter", "run": WHERE},
    )["values"]
    assert first == "0 true"
    assert second == "2 true"
    assert folded == "2 false"
    assert rows == 3
    assert unfolded == "2 true"
    assert last == "9 null"
    assert event[2] == 7  # the first operator of thread 1 within the slowest step


def test_search_counts_and_goes_from_match_to_match(browse: Any) -> None:
    counted = f"{HOME}.querySelector('.tl-count').textContent"
    pause = {"run": "new Promise((done) => setTimeout(done, 250))"}
    answer = browse(
        {"focus": "#timeline-view canvas", "key": "/"}, {"text": "GEMM"}, pause, {"run": counted}, {"key": "Enter", "run": counted}, {"run": WHERE},
        {"key": "Enter", "run": counted}, {"run": WHERE}, {"key": "Escape", "run": counted}, {"key": "/"}, {"text": "zzz"}, pause, {"run": counted},
    )["values"]  # fmt: skip
    assert answer[1] == "2 matches"
    assert answer[2] == "2 of 2"  # the one that begins within the step in view
    assert answer[3][2] == 3
    assert answer[4] == "1 of 2"
    assert answer[5][2] == 2
    assert answer[6] == ""
    assert answer[8] == "no match"


def test_the_wheel_zooms_only_once_the_timeline_has_the_focus(browse: Any) -> None:
    before, _, untouched, zoomed = browse(
        {"event": 1, "run": WHERE},
        {"run": "document.activeElement.blur()"},
        {"wheel": 100, "run": WHERE},
        {"event": 1},
        {"wheel": -100, "run": WHERE},
    )["values"]
    assert untouched[:2] == before[:2]
    assert zoomed[1] - zoomed[0] < before[1] - before[0]


def test_question_mark_and_button_show_the_shortcuts(browse: Any) -> None:
    script = f"{HOME}.querySelector('dialog').open"
    assert browse({"focus": "#timeline-view canvas", "key": "?", "run": script}, {"key": "Escape", "run": script}, {"click": ".tl-keys", "run": script})["values"] == [
        True, False, True,
    ]  # fmt: skip


def test_without_decompression_or_script_the_strips_are_there(browse: Any) -> None:
    look = f"""[{HOME}.innerText, document.getElementById("timeline-strips").open,
          [...document.querySelectorAll("#timeline-strips svg")].filter((one) => one.checkVisibility()).length]"""
    (text, opened, drawings) = browse({"run": look}, before="delete window.DecompressionStream")["values"][0]
    assert "cannot unpack the interactive timeline" in text
    assert (opened, drawings) == (True, 3)


def test_the_panel_tells_correlation_step_bandwidth_and_queue(browse: Any) -> None:
    """16 MiB in 3 ms are 5.59 GB/s; two launches wait behind the first kernel."""
    select = "{}.timeline.select({})"
    kernel, copy = ({"run": f"({select.format(HOME, event)}, {SELECTION})"} for event in (2, 4))
    received, sent = (text.replace("\u00a0", " ") for text in browse(kernel, copy)["values"])
    assert "Correlation\n41" in received
    assert "Step\nstep, 10.0 ms" in received
    assert "nothing waiting on the stream" in received
    assert "16.0 MiB" in sent
    assert "5.59 GB/s" in sent
    assert "Correlation\n77" in sent
    assert "no launch call" in sent
    first, heard, last, launch, step = browse(
        *({"run": f"({select.format(HOME, event)}, {SELECTION})"} if event != "heard" else {"run": f"{HOME}.querySelector('.tl-heard').textContent"}
          for event in (1, "heard", 3, 5)),
        {"click": "#tl-panel-0 .tl-link", "run": WHERE}, which="queued",
    )["values"]  # fmt: skip
    assert "2 waiting on the stream" in first
    assert heard.startswith("Selected: gemm, 1.00")
    assert "nothing waiting on the stream" in last
    assert "Correlation\n2" in launch
    assert step[2] == 0  # the first link is the step


def test_what_was_not_recorded_does_not_look_idle(browse: Any) -> None:
    """The row has one color in idle times, and several in hatched ones (8 to 30 ms)."""
    seen = f"""((from, to) => {{
      const {{ data, view, state, draw, go }} = {HOME}.timeline;
      go(0, data.span, {{ jump: true }});
      draw();
      const canvas = {HOME}.querySelector("canvas"), row = data.tracks[6].row, ratio = canvas.width / state.width;
      const x = (time) => Math.round((time - view.from) / (view.to - view.from) * canvas.width), top = {HOME}.querySelector(".tl-scroll").scrollTop;
      const part = canvas.getContext("2d").getImageData(x(from), (row.y - top + row.h / 2) * ratio, x(to) - x(from), 1).data;
      const found = new Set();
      for (let i = 0; i < part.length; i += 4) found.add(part.slice(i, i + 3).join());
      return found.size;
    }})"""
    gap, idle, gaps, legend = browse(
        {"run": f"{seen}({20 * MS}, {29 * MS})"}, {"run": f"{seen}({2 * MS}, {3.5 * MS})"},
        {"run": f"{HOME}.timeline.data.tracks.map((one) => one.gaps.length)"}, {"run": f"{HOME}.querySelector('.tl-legend').textContent"},
        which="queued",
    )["values"]  # fmt: skip
    assert gap > 3
    assert idle == 1
    assert gaps == [0, 0, 0, 1, 0, 1, 1, 1, 1, 1]  # of the process, its devices, streams and threads; not of steps and samples
    assert "not recorded" in legend


def test_names_fit_their_column_which_can_be_dragged(browse: Any) -> None:
    cut = f"[...{HOME}.querySelectorAll('.tl-label bdi')].filter((one) => one.scrollWidth > one.clientWidth + 1).map((one) => one.textContent)"
    width = f"[{HOME}.timeline.state.label, Number({HOME}.querySelector('.tl-edge').getAttribute('aria-valuenow'))]"
    none, first, dragged, keyed, again = browse(
        {"run": cut},
        {"run": width},
        {"drag": [".tl-edge", 80], "run": width},
        {"focus": ".tl-edge", "key": "ArrowLeft", "run": width},
        {"run": cut},
    )["values"]
    assert none == again == []
    assert first[0] == first[1]
    assert 78 <= dragged[0] - first[0] <= 84
    assert dragged[0] - keyed[0] == 10
    process = f"(() => {{ const one = {HOME}.querySelector('.tl-process'); return [one.textContent, one.title]; }})()"
    (text, title), some = browse({"drag": [".tl-edge", -60], "run": process}, {"run": cut}, width=400)["values"]
    assert text == "▾PID-7"
    assert title == "HOST-0 PID-7"
    assert all("…" not in one for one in some)


@pytest.mark.parametrize("width", [400, 1000])
def test_the_row_that_tab_leads_to_is_in_sight(browse: Any, width: int) -> None:
    """This includes rows under the times, which stay above all rows."""
    where = f"""(() => {{
      const one = document.activeElement, box = one.getBoundingClientRect(), all = {HOME}.querySelector(".tl-scroll");
      const there = document.elementFromPoint(box.left + 5, (box.top + box.bottom) / 2);
      return [one.getAttribute("role"), all.scrollTop, one.contains(there)];
    }})()"""
    down = {"run": f"(() => {{ const all = {HOME}.querySelector('.tl-scroll'); all.scrollTop = 20; return all.scrollTop; }})()"}
    little = "Object.defineProperty(window, 'innerHeight', { value: 100 });"
    steps = [down, {"focus": "#timeline canvas"}, *[{"key": "Tab", "run": where}] * 3]
    scrolled, *places = browse(*steps, which="large", width=width, before=little)["values"]
    assert scrolled > 0
    assert ["treeitem", 0, True] in places


def test_one_finger_moves_two_zoom(browse: Any) -> None:
    start, moved, pinched = browse(
        {"event": 2, "run": WHERE},
        {"touch": [[[0.6, 150]], [[0.5, 150]], [[0.4, 151]], [[0.3, 152]]], "run": WHERE},
        {"touch": [[[0.45, 150], [0.55, 150]], [[0.4, 150], [0.6, 150]], [[0.35, 150], [0.65, 150]]], "run": WHERE},
    )["values"]
    wide = start[1] - start[0]
    assert abs((moved[1] - moved[0]) / wide - 1) < 0.01
    assert 0.15 < (moved[0] - start[0]) / wide < 0.35 or moved[1] > 30 * MS
    assert 0.25 < (pinched[1] - pinched[0]) / wide < 0.5  # three times as far apart
    middle = (moved[0] + moved[1]) / 2
    assert abs((pinched[0] + pinched[1]) / 2 - middle) < 0.05 * wide


def test_every_control_is_reached_by_tab_and_shows_the_focus(browse: Any) -> None:
    where = """(() => { const one = document.activeElement, style = getComputedStyle(one), rect = one.getBoundingClientRect();
      return [one.getAttribute("aria-label") || one.id || one.dataset.track || one.textContent, style.outlineStyle !== "none" || style.boxShadow !== "none" || one.matches(".tl-edge"), rect.width > 0]; })()"""
    seen = browse({"focus": "#timeline-view button", "run": where}, *({"key": "Tab", "run": where} for _ in range(11)))["values"]
    names = [one[0] for one in seen]
    assert names[:3] == ["Slowest step", "Typical step", "Whole run"]
    assert names[3:7] == ["Zoom out", "Zoom in", "Fit", "Search events by name"]
    assert names[7] == "Keyboard shortcuts"
    assert names[8].startswith("Events over time")
    assert names[9] == "0"  # the first track
    assert names[10] == "Width of the names"
    assert names[11] == "tl-tab-0"
    assert all(one[1] and one[2] for one in seen[1:])


def test_what_is_in_view_is_a_table(browse: Any) -> None:
    """The step of 20 ms contains itself, the kernel, its operator, and its launch."""
    table = f"[...{HOME}.querySelectorAll('#tl-panel-2 tr')].map((row) => row.innerText.replace(/\u00a0/g, ' '))"
    rows, caption, events = browse(
        {"click": "#tl-tab-2", "run": table},
        {"run": f"{HOME}.querySelector('caption').textContent"},
        {"click": "#tl-panel-2 tbody tr:nth-child(2) .tl-link", "run": WHERE},
    )["values"]
    assert rows[0].split("\t") == ["Name", "Kind", "Events", "Time in view", "Longest"]
    assert rows[2].split("\t") == ["gemm", "computation", "1", "4.00 ms", "4.00 ms"]
    assert "5 events of 4 names" in caption  # both steps: the margin shows the end of the first
    assert events[2] == 3


def test_names_from_a_trace_do_no_harm(browse: Any) -> None:
    looks = f"""[window.pwned ?? 0, document.querySelectorAll("#timeline img, #timeline svg[onload]").length, {HOME}.querySelector(".tl-tip").offsetHeight,
      /[\u202a-\u202e\u2066-\u2069]/.test({HOME}.querySelector(".tl-tools").parentElement.querySelector(".tl-view").textContent + [...{HOME}.querySelectorAll(".tl-label bdi")].map((one) => one.textContent).join("")),
      {HOME}.querySelector(".tl-details").offsetHeight]"""
    select = {"run": f"[...{HOME}.timeline.data.start].forEach((_, event) => {HOME}.timeline.select(event))"}
    for width in (1000, 400):
        *_, (pwned, added, tip, turned, panel) = browse(
            select, {"click": "#tl-tab-1"}, {"click": "#tl-tab-2"}, {"run": f"{HOME}.timeline.select(2)"}, {"click": "#tl-tab-0"}, {"event": 2, "run": looks},
            which="hostile", width=width,
        )["values"]  # fmt: skip
        assert (pwned, added, turned) == (0, 0, False)
        assert tip < 120
        assert panel < 420


def test_print_shows_the_strips(browse: Any) -> None:
    state = 'document.getElementById("timeline-strips").open'
    assert browse({"run": state}, {"run": f"(dispatchEvent(new Event('beforeprint')), {state})"}, {"run": f"(dispatchEvent(new Event('afterprint')), {state})"})["values"] == [
        False, True, False,
    ]  # fmt: skip


def test_three_hundred_thousand_events(browse: Any) -> None:
    """The time of a frame is printed without a limit: it depends on the machine."""
    answer = browse(
        {"run": FRAMES}, {"run": f"{HOME}.timeline.find('allreduce'), {HOME}.timeline.state.found.length"}, which="large", width=1600
    )
    events, median, high = answer["values"][0]
    print(f"{events} events: frame {median:.1f} ms (median), {high:.1f} ms (p95)")
    assert events == 300_400 - 300_400 % 8
    assert answer["values"][1] == sum(large().events.name == 2)
