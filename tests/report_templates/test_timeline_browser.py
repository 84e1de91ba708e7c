"""Does the timeline work in a browser: keys, selection, arrows, search, both themes, every width, 300 000 events?"""

# ruff: noqa: E501  (steps of a reader read better than one value per line)

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from made_timeline import MS, large, small
from postrun.analysis.report import Report
from postrun.report_templates import render

DRIVER = r"""
const [, , modules, chromium, axePath, job] = process.argv;
const puppeteer = require(modules + "/puppeteer-core");
const axe = require("fs").readFileSync(axePath, "utf8");
(async () => {
  const browser = await puppeteer.launch({ executablePath: chromium, headless: true, args: ["--no-sandbox", "--disable-gpu"] });
  const found = [];
  for (const { file, scheme, width, steps, before, script } of JSON.parse(job)) {
    const page = await browser.newPage();
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
    found.push({ errors, values, overflow });
    await page.close();
  }
  await browser.close();
  console.log(JSON.stringify(found));
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
def files(rich: Report, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("timeline")
    return {
        "small": str(render(rich, folder / "small", ("html",), timeline=small())["html"]),
        "large": str(render(rich, folder / "large", ("html",), timeline=large())["html"]),
    }


@pytest.fixture(scope="module")
def browse(node_modules: Path, files: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Any:
    node, chromium = shutil.which("node"), shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chrome")
    if node is None or chromium is None:
        pytest.skip("no node or no chromium (apt-get install nodejs chromium)")
    driver = tmp_path_factory.mktemp("driver") / "driver.cjs"
    driver.write_text(DRIVER)

    def browse(*steps: dict[str, Any], which: str = "small", scheme: str = "light", width: int = 1000, **more: Any) -> dict[str, Any]:
        job = [{"file": files[which], "scheme": scheme, "width": width, "steps": steps, **more}]
        command = [node, str(driver), str(node_modules), chromium, str(node_modules / "axe-core" / "axe.min.js"), json.dumps(job)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=180)
        assert done.returncode == 0, done.stderr
        (answer,) = json.loads(done.stdout)
        assert answer["errors"] == []
        assert answer["overflow"] <= 0
        return dict(answer)

    return browse


@pytest.mark.parametrize(("scheme", "width"), [("light", 1000), ("dark", 1600), ("dark", 400), ("light", 400)])
def test_axe_finds_nothing_with_and_without_a_selection(browse: Any, scheme: str, width: int) -> None:
    answer = browse({"axe": True}, {"run": f"{HOME}.timeline.select(2)"}, {"click": "#tl-tab-1"}, {"axe": True}, scheme=scheme, width=width)
    assert answer["values"][0] == []
    assert answer["values"][-1] == []


def test_it_opens_at_the_slowest_step_and_the_buttons_lead_to_the_others(browse: Any) -> None:
    button = "#timeline-view .tl-group button:nth-child({})"
    said = f"{HOME}.querySelector('.tl-view').textContent"
    first, words, second, third, pressed = browse(
        {"run": WHERE},
        {"run": said},
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
    """Event 2 is the kernel; launched from 1 ms to 1.02 ms, it runs from 1.5 ms: 480 µs later."""
    text, where, arrow, other, table = browse(
        {"key": "Escape", "click": "#timeline-view .tl-group button:nth-child(3)"},
        {"event": 2, "run": SELECTION},
        {"run": WHERE},
        {"run": f"{HOME}.timeline.state.arrow"},
        {"click": "#tl-panel-0 .tl-link", "run": WHERE},
        {"click": "#tl-tab-1", "run": f"{HOME}.querySelector('#tl-panel-1 tbody').innerText"},
    )["values"]
    told = text.replace("\u00a0", " ")
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
        assert part in told
    assert arrow is True
    assert other[2] == 6  # the other side is selected, in the middle
    assert abs((other[0] + other[1]) / 2 - 1.01 * MS) < 0.2 * MS
    assert "gemm" in table
    assert "480" in table


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
    shown = f"{HOME}.querySelector('dialog').open"
    assert browse({"focus": "#timeline-view canvas", "key": "?", "run": shown}, {"key": "Escape", "run": shown}, {"click": ".tl-keys", "run": shown})["values"] == [
        True, False, True,
    ]  # fmt: skip


def test_without_decompression_or_script_the_strips_are_there(browse: Any) -> None:
    look = (
        f"""[{HOME}.innerText, document.getElementById("timeline-strips").open, document.querySelectorAll("#timeline-strips svg").length]"""
    )
    (text, opened, drawings) = browse({"run": look}, before="delete window.DecompressionStream")["values"][0]
    assert "cannot unpack the interactive timeline" in text
    assert (opened, drawings) == (True, 3)


def test_three_hundred_thousand_events(browse: Any) -> None:
    """The time of a frame is printed, not judged: it is that of the machine."""
    answer = browse(
        {"run": FRAMES}, {"run": f"{HOME}.timeline.find('allreduce'), {HOME}.timeline.state.found.length"}, which="large", width=1600
    )
    events, median, high = answer["values"][0]
    print(f"{events} events: frame {median:.1f} ms (median), {high:.1f} ms (p95)")
    assert events == 300_400 - 300_400 % 8
    assert answer["values"][1] == sum(large().events.name == 2)
