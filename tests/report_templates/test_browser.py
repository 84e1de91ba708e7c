"""The HTML in a browser: accessible in both themes, sortable, filterable, within the window, and complete without script."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from postrun.analysis.report import Report
from postrun.report_templates.output.render import render

DRIVER = r"""
const [, , modules, chromium, axePath, file, job] = process.argv;
const puppeteer = require(modules + "/puppeteer-core");
const axe = require("fs").readFileSync(axePath, "utf8");
const wanted = JSON.parse(job);
(async () => {
  const browser = await puppeteer.launch({ executablePath: chromium, headless: true, args: ["--no-sandbox", "--disable-gpu"] });
  const found = [];
  for (const { scheme, width, script, forced, run } of wanted) {
    const page = await browser.newPage();
    const errors = [];
    page.on("pageerror", (error) => errors.push(error.message));
    page.on("console", (line) => { if (line.type() === "error") errors.push(line.text()); });
    page.on("request", (request) => { if (!/^(file|data):/.test(request.url())) errors.push(request.url()); });
    await page.setViewport({ width, height: 900 });
    await page.setJavaScriptEnabled(script !== false);
    // page.emulateMediaFeatures does not know forced colors.
    const features = [{ name: "prefers-color-scheme", value: scheme }, { name: "forced-colors", value: forced ? "active" : "none" }];
    await (await page.createCDPSession()).send("Emulation.setEmulatedMedia", { features });
    await page.goto("file://" + file);
    const answer = { errors };
    answer.overflow = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    if (run === "axe") {
      await page.evaluate(axe);
      const result = await page.evaluate(() => axe.run(document));
      answer.violations = result.violations.map((v) => v.id + ": " + v.nodes.slice(0, 3).map((n) => n.html.slice(0, 160)).join(" | "));
    } else if (run) {
      answer.value = await page.evaluate(run);
    }
    found.push(answer);
    await page.close();
  }
  await browser.close();
  console.log(JSON.stringify(found));
})().catch((error) => { console.error(error); process.exit(1); });
"""


@pytest.fixture(scope="session")
def file(rich: Report, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return render(rich, tmp_path_factory.mktemp("browser"), ("html",))["html"]


@pytest.fixture(scope="session")
def browse(node_modules: Path, file: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    node, chromium = shutil.which("node"), shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chrome")
    if node is None or chromium is None:
        pytest.skip("no node or no chromium (apt-get install nodejs chromium)")
    driver = tmp_path_factory.mktemp("driver") / "driver.cjs"
    driver.write_text(DRIVER)

    def browse(jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Run each job in a new page: scheme, width, script on or off, and its code."""
        command = [
            node,
            str(driver),
            str(node_modules),
            chromium,
            str(node_modules / "axe-core" / "axe.min.js"),
            str(file),
            json.dumps(jobs),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=180)
        assert done.returncode == 0, done.stderr
        results: list[dict[str, Any]] = json.loads(done.stdout)
        return results

    return browse


def test_axe_finds_nothing_in_either_theme_and_nothing_is_fetched(browse: Any) -> None:
    views = [{"scheme": scheme, "width": width, "run": "axe"} for scheme, width in (("light", 1280), ("dark", 1280), ("light", 400))]
    for view, answer in zip(views, browse(views), strict=True):
        assert answer["violations"] == [], view
        assert answer["errors"] == []
        assert answer["overflow"] <= 0


UNFOLD = """for (const part of document.querySelectorAll("details")) part.open = true;"""
KERNELS = "document.querySelector('#kernels-table table')"
SORT = f"""(() => {{
  const table = {KERNELS};
  table.closest("details").open = true;
  const head = [...table.tHead.rows[0].cells].find((cell) => cell.textContent === "Launches");
  const button = head.querySelector("button");
  const column = head.cellIndex;
  const read = () => [head.getAttribute("aria-sort"), [...table.tBodies[0].rows].map((row) => Number(row.cells[column].dataset.sort))];
  button.focus();
  const focused = document.activeElement === button;
  button.click();
  const first = read();
  button.click();
  return {{ focused, first, second: read() }};
}})()"""
FILTER = f"""(() => {{
  const table = {KERNELS};
  const shown = () => [...table.tBodies[0].rows].filter((row) => !row.hidden).length;
  const tools = table.parentElement.querySelector(".tools");
  const counts = [shown()];
  tools.querySelector("button").click();
  counts.push(shown());
  const input = tools.querySelector("input");
  input.value = "NCCL";
  input.dispatchEvent(new Event("input"));
  counts.push(shown());
  return {{ counts, status: tools.querySelector("[role=status]").textContent }};
}})()"""
THEME = """(() => {
  const color = () => getComputedStyle(document.body).backgroundColor;
  const button = [...document.querySelectorAll("nav button")].find((b) => b.textContent === "Light or dark");
  const before = color();
  button.click();
  return [before, color()];
})()"""
PLAIN = f"""(() => ({{
  rows: [...{KERNELS}.tBodies[0].rows].filter((row) => row.offsetParent !== null).length,
  buttons: document.querySelectorAll("button, input").length,
}}))()"""


def test_tables_sort_filter_and_unfold(browse: Any, rich: Report) -> None:
    sorted_, filtered, themed = (
        answer["value"] for answer in browse([{"scheme": "light", "width": 1280, "run": run} for run in (SORT, FILTER, THEME)])
    )
    counts = sorted((kernel.count for kernel in rich.kernels), reverse=True)
    assert sorted_["focused"]
    assert sorted_["first"] == ["descending", counts]
    assert sorted_["second"] == ["ascending", counts[::-1]]
    assert filtered["counts"] == [15, 340, 1]
    assert filtered["status"] == "1 of 340 rows match"
    assert themed == ["rgb(255, 255, 255)", "rgb(17, 21, 26)"]


def test_a_link_unfolds_the_section_that_it_leads_to(browse: Any) -> None:
    unfolded = """(async () => {
      const part = document.getElementById("kernels");
      const before = part.querySelector("details").open;
      location.hash = "kernels-table";
      await new Promise((resolve) => setTimeout(resolve, 100));
      return [before, part.querySelector("details").open];
    })()"""
    (answer,) = browse([{"scheme": "light", "width": 1280, "run": unfolded}])
    assert answer["value"] == [False, True]


def test_without_script_every_row_is_there_and_no_dead_button(browse: Any) -> None:
    (answer,) = browse([{"scheme": "light", "width": 1280, "script": False, "run": PLAIN}])
    assert answer["value"] == {"rows": 340, "buttons": 0}


@pytest.mark.parametrize("width", [1280, 400])
def test_no_figure_scrolls_and_one_of_its_drawings_is_shown(browse: Any, width: int) -> None:
    """A drawing that is too wide for 400 px has another one."""
    drawn = f"""(() => {{
      {UNFOLD}
      const of = (parts) => [...parts].filter((one) => one.checkVisibility());
      const scrolling = of(document.querySelectorAll(".drawing")).filter((one) => one.scrollWidth > one.clientWidth + 1);
      const figures = of(document.querySelectorAll("figure.plot"));
      const single = figures.every((one) => of(one.querySelectorAll("svg")).length === 1);
      const small = of(document.querySelectorAll("#annotations .small")).length > 0;
      return [scrolling.map((one) => one.closest("figure").id), figures.length > 20, single, small];
    }})()"""
    (answer,) = browse([{"scheme": "light", "width": width, "run": drawn}])
    assert answer["value"] == [[], True, True, width == 400]


def test_print_has_the_folds_of_the_screen_and_whole_words(browse: Any, file: Path, tmp_path: Path) -> None:
    """Few pages, cells that break between words, and no table of a closed fold."""
    printed = tmp_path / "print.pdf"
    chromium = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chrome")
    assert chromium is not None
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", f"--print-to-pdf={printed}", f"file://{file}"]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    text = subprocess.run(["pdftotext", "-layout", printed, "-"], check=True, capture_output=True, text=True, timeout=60).stdout
    assert text.count("\f") <= 20
    heading = next(line for line in text.splitlines() if line.split()[:4] == ["Device", "Span", "Busy", "Computation"])
    assert heading.split()[-1] == "Model"
    words = {word for line in text.splitlines() for word in line.split()}
    assert {"communication", "patience", "NVIDIA"} <= words
    assert "Recommendation" not in words  # a column that leaves no room for the finding
    assert "Kernels by total time" not in text


def test_the_contents_never_cover_the_footer(browse: Any) -> None:
    """At the end of the page, with contents that are higher than the window."""
    apart = """(async () => {
      scrollTo(0, document.documentElement.scrollHeight);
      await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
      const [nav, foot] = ["nav", "footer"].map((name) => document.querySelector(name).getBoundingClientRect());
      return [nav.right <= foot.left || nav.bottom <= foot.top, nav.bottom <= innerHeight, foot.bottom <= innerHeight + 1];
    })()"""
    for answer in browse([{"scheme": "light", "width": width, "run": apart} for width in (1280, 1920)]):
        assert answer["value"] == [True, True, True]


# Links within sentences are exempt in WCAG 2.5.8, and so are those whose neighbors are 24 px away: rows of a table.
SMALL = f"""(() => {{
  {UNFOLD}
  const targets = [...document.querySelectorAll("button, summary, input, select, [tabindex], [role=tab], nav a, .tiles a, .anchor")];
  const shown = targets.filter((one) => one.checkVisibility());
  const small = shown.filter((one) => {{
    const box = one.getBoundingClientRect();
    return Math.min(box.width, box.height) < 23.99;
  }});
  return {{ kinds: [...new Set(shown.map((one) => one.tagName))].sort(), small: small.map((one) => one.outerHTML.slice(0, 120)) }};
}})()"""


@pytest.mark.parametrize("width", [1280, 400])
def test_what_is_clicked_is_at_least_24_px_in_both_directions(browse: Any, width: int) -> None:
    (answer,) = browse([{"scheme": "light", "width": width, "run": SMALL}])
    assert {"A", "BUTTON", "INPUT", "SUMMARY"} <= set(answer["value"]["kinds"])
    assert answer["value"]["small"] == []


# Reads what is painted: computed styles, in which the system's colors are resolved.
FORCED = f"""(() => {{
  {UNFOLD}
  const probe = document.body.appendChild(document.createElement("span"));
  const system = (name) => {{ probe.style.color = name; return getComputedStyle(probe).color; }};
  const [canvas, ink] = ["Canvas", "CanvasText"].map(system);
  const drawing = document.querySelector("#time-breakdown-devices svg");
  const field = drawing.querySelector("rect[fill='var(--computation)']");
  const words = [...drawing.querySelectorAll("text[fill='var(--ink)'], text[fill='var(--muted)']")];
  const bar = document.querySelector("td.bar");
  probe.style.color = "";
  return {{
    field: getComputedStyle(field).fill,
    edge: getComputedStyle(field).stroke === ink,
    words: words.length > 0 && words.every((one) => getComputedStyle(one).fill === ink),
    paper: canvas !== ink && getComputedStyle(document.body).backgroundColor === canvas,
    tip: ["color", "backgroundColor"].every((name, at) => getComputedStyle(document.querySelector(".tip"))[name] === [ink, canvas][at]),
    bar: getComputedStyle(bar).backgroundImage.startsWith("linear-gradient(") && getComputedStyle(bar).color === ink,
  }};
}})()"""


@pytest.mark.parametrize(("scheme", "computation"), [("light", "rgb(0, 114, 178)"), ("dark", "rgb(59, 151, 211)")])
def test_forced_colors_keep_fields_with_an_outline_and_readable_text(browse: Any, scheme: str, computation: str) -> None:
    (answer,) = browse([{"scheme": scheme, "width": 1280, "forced": True, "run": FORCED}])
    assert answer["value"] == {"field": computation, "edge": True, "words": True, "paper": True, "tip": True, "bar": True}
