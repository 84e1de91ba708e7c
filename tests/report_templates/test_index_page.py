"""The page of all runs: safe, complete, and reproducible, with the findings, links, and drawings of the index."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

import pytest
from conftest import HOSTILE
from postrun.nightly import index as indexes
from postrun.nightly.history import Settings
from postrun.nightly.index_model import Index
from postrun.nightly.model import Row
from postrun.nightly.page import index_page
from postrun.nightly.page_head import headline
from postrun.nightly.prune import PRUNED
from postrun.report_templates.figures.trend import Dot, trend
from postrun.report_templates.text.logo import Logo
from postrun.report_templates.text.look import Look

DAY = 86_400 * 10**9
START = 1_795_243_200 * 10**9
GOLDEN = Path(__file__).parent / "golden" / "index.html"
VOID = {"meta", "img", "input", "br", "wbr"}
STEPS = (200, 202, 198, 201, 199, 240)


class Reading(HTMLParser):
    """Elements with their attributes and the text; every element must be closed in its place."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] not in ("script", "style"):
            self.text += data


def run(run_id: str, **more: Any) -> Row:
    plain: dict[str, Any] = {"state": "reported", "kind": "traces", "fingerprint": "f", "options": "o", "bytes": 1, "files": 1}
    if more.get("state", "reported") == "reported":
        plain |= {"folder": f"runs/{run_id}/0123456789abcdef-0123456789ab", "written": ("report.html", "report.json", "report.pdf")}
    return Row(id=run_id, **plain | more)


def made_of(rows: list[Row], at_ns: int = START + 5 * DAY + DAY // 4, **more: Any) -> Index:
    settings = Settings()
    rows = sorted(rows, key=lambda row: row.id)
    full, table_rows = indexes.with_history(indexes.plain_table(rows, [None] * len(rows), [None] * len(rows), settings), settings)
    index = indexes.index_of(rows, full, table_rows, settings, "s3://reports/all", at_ns)
    return dataclasses.replace(index, version="0.1.0", **more)


def small() -> list[Row]:
    """Make a family with a regression, a new issue, a failed run, and an active one."""
    rows = [
        run(
            f"gpt/{day}", name=f"gpt-{day}", status="completed", started_ns=START + day * DAY, duration_ns=DAY // 8, gpus=8, ranks=8,
            gpu_name="H100", step_median_ns=step * 10**6, gpu_busy_percent=60.0 - day,
            gpu_active_percent=99.0, gpu_active_derived=day != 4, exposed_communication_percent=9.0,
            gpu_memory_percent=71.0, reported_at_ns=START + day * DAY + DAY // 4,
            verdicts={
                "IOBottleneck": "IssuesFound" if day == 5 else "NoIssuesFound", "SyncBound": "Error", "LoadBalancing": "NotEvaluated",
            },
        )
        for day, step in enumerate(STEPS)
    ]  # fmt: skip
    rows.append(run("bad", state="failed", reason="trace.json: cut off", attempts=2, reported_at_ns=START + 5 * DAY))
    rows.append(run("gpt/now", state="running", reason="the job has not ended"))
    return rows


def hostile() -> list[Row]:
    names = [name.replace("\x00", "").replace("\n", " ") for name in HOSTILE] + ["a b#c?d%2e&e=f", "javascript:alert(1)", "//evil.example"]
    return [
        run(
            name[:200], name=name, gpu_name=name, gpus=1, status=name, headline=name, started_ns=START + number, labels={"family": name},
            verdicts={name: "IssuesFound", "IOBottleneck": name}, warnings=(name,), written=("report.html", name + ".pdf"),
        )
        for number, name in enumerate(names)
    ] + [run(f"bad{number}", state="failed", reason=name) for number, name in enumerate(names)]  # fmt: skip


@pytest.fixture(scope="module", params=["small", "hostile", "empty", "one"])
def any_page(request: pytest.FixtureRequest) -> str:
    rows = {"small": small, "hostile": hostile, "empty": list, "one": lambda: small()[:1]}[request.param]()
    return index_page(made_of(rows))


def test_nothing_is_loaded_and_nothing_hostile_is_markup(any_page: str) -> None:
    address = "https://bucket.example/prefix/index.html"
    for tag, attributes in Reading(any_page).elements:
        for key, value in attributes.items():
            assert key.startswith("xmlns") or not key.startswith("on"), (tag, key)
            assert key not in ("src", "xlink:href", "action", "data", "srcset"), (tag, key)
            if key == "href":
                assert value is not None
                assert urljoin(address, value).startswith("https://bucket.example/prefix/"), value
                assert value.startswith(("#", "runs/", "index.")), value
    assert "alert(1)</script>" not in any_page
    assert not re.search(r"<(link|iframe|object|embed|base|form|img)\b", any_page)
    assert re.findall(r"https?://[^\s\"'<]+", re.sub(r"https://evil[^\s\"'<]*", "", any_page)) == []


def test_only_its_own_script_may_run(any_page: str) -> None:
    (script,) = re.findall(r"<script>(.*?)</script>", any_page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in any_page
    assert "default-src 'none'" in any_page


def test_links_on_the_page_lead_somewhere_and_ids_are_unique(any_page: str) -> None:
    elements = Reading(any_page).elements
    ids = [attributes["id"] for _, attributes in elements if attributes.get("id")]
    assert len(ids) == len(set(ids))
    assert {str(attributes["href"])[1:] for _, attributes in elements if str(attributes.get("href")).startswith("#")} <= set(ids)


def test_every_link_to_a_report_leads_to_its_file_whatever_it_is_called() -> None:
    rows = hostile()
    links = {str(attributes["href"]) for tag, attributes in Reading(index_page(made_of(rows))).elements if tag == "a"}
    files = {f"runs/{row.id}/latest/{file}" for row in rows for file in row.written if row.folder}
    parts = [urlsplit(one) for one in links if one.startswith("runs/")]
    assert all(not (one.scheme or one.netloc or one.query or one.fragment) for one in parts)
    assert {unquote(one.path) for one in parts} == files


def test_labels_of_tiles_are_level_whether_they_are_links_or_not() -> None:
    """A link has a larger box to be touched."""
    page = index_page(made_of(small()))
    (link,) = re.findall(r"\.tiles a\.label \{ color: var\(--accent\); (.*?) \}", page)
    (every,) = re.findall(r"\.index \.tiles \.label \{ (.*?) \}", page)
    assert link == every


def test_findings_come_first_and_say_what_they_are() -> None:
    index = made_of(small())
    text = " ".join(re.sub(r"<[^>]*>", " ", index_page(index).partition("<body")[2]).split())
    wanted = [
        "Of 8 runs (3 in the last 36 hours), 1 regressed, 1 failed and 1 has new issues."
        " The worst is gpt/5: 20.0% slower per step (200 ms → 240 ms).",
        "▲ slower gpt/5", "240 ms from step to step, 20.0% more than the median of the 5 comparable runs before (200 ms)",
        "✕ failed bad", "trace.json: cut off", "✕ new issue gpt/5", "IOBottleneck: passed in the 3 comparable runs before",
        "Step time 240 ms 200 ms +20.0%", "GPU busy 55.0% 58.0% −3.0 pp", "✕ now an issue: IOBottleneck",
    ]  # fmt: skip
    text = text.replace("\u00a0", " ")
    places = [text.find(one) for one in wanted]
    assert -1 not in places, [one for one, at in zip(wanted, places, strict=True) if at < 0]
    assert places == sorted(places)


def sentence(rows: list[Row], *at_ns: int) -> str:
    """The headline of the page of these runs, written at that time."""
    return headline(made_of(rows, *at_ns)).replace("\u00a0", " ")


def test_a_family_shows_since_when_its_level_is_as_it_is() -> None:
    rows = [
        run(
            f"gpt/{day:02}", name=f"gpt-{day}", started_ns=START + day * DAY, duration_ns=DAY // 8, gpus=8, ranks=8, status="completed",
            step_median_ns=(200 if day < 8 else 225) * 10**6, gpu_busy_percent=60.0 if day < 12 else 45.0, cost_per_step=0.0125,
            price_per_gpu_hour=2.5, currency="<b>",
        )
        for day in range(24)
    ]  # fmt: skip
    page = index_page(made_of(rows))
    text = Reading(page).text
    assert "since gpt/08 (2026-11-29): 12.5% slower" in text
    assert "since gpt/12 (2026-12-03): 15 points less" in text
    assert text.count("since gpt") == 3  # and in the headline
    assert "0.0125 <b>" in text
    assert page.count('class="t-change"') == 1
    assert "change of the level" not in index_page(made_of(small()))
    head = "No regressions, failures or new issues in 24 runs (2 in the last 36 hours)."
    assert (
        sentence(rows, START + 23 * DAY + DAY // 4) == f"{head} 1 family stays at a worse level; gpt: step time 12.5% slower since gpt/08."
    )
    calm = [dataclasses.replace(row, id=f"a/{row.id}", name="a", step_median_ns=10**8, gpu_busy_percent=50.0) for row in rows]
    later = [dataclasses.replace(row, started_ns=(row.started_ns or 0) + DAY) for row in calm]
    assert [family.name for family in made_of([*rows, *later]).families] == ["gpt", "a"]  # although a is newer
    assert "1\u00a0change of the level marked" in page


def test_the_headline_names_the_worst_run() -> None:
    assert sentence([]) == "There are no runs yet."
    healthy = [row for row in small() if row.state == "reported" and row.id != "gpt/5"]
    assert sentence(healthy) == "No regressions, failures or new issues in 5 runs (1 in the last 36 hours)."
    assert sentence(healthy, START + 90 * DAY) == "No regressions, failures or new issues in 5 runs."  # no night since
    ahead = run("ahead", started_ns=START + 3650 * DAY, reported_at_ns=START + 5 * DAY)  # by the clock of its job
    assert sentence([*healthy, ahead]) == "No regressions, failures or new issues in 6 runs (2 in the last 36 hours)."
    failed = run("bad", state="failed", reason="/data/bad: trace.json is cut off. Make it again.")
    assert sentence([*healthy, failed]) == "Of 6 runs (1 in the last 36 hours), 1 failed. The newest failure is bad: trace.json is cut off."
    tonight = dataclasses.replace(failed, reported_at_ns=START + 5 * DAY)
    assert sentence([*healthy, tonight]).startswith("Of 6 runs (2 in the last 36 hours), 1 failed.")
    verdicts = [dict.fromkeys(("IOBottleneck", "SyncBound"), verdict) for verdict in ("NoIssuesFound", "IssuesFound")]
    issues = [run(f"bert/{day}", started_ns=START + day * DAY, verdicts=verdicts[day == 3]) for day in range(4)]
    assert sentence(issues) == "Of 4 runs, 1 has new issues. The first is bert/3: IOBottleneck, SyncBound."
    slower = [
        dataclasses.replace(row, id=f"llm/{row.id}", name=f"llm-{row.name}", step_median_ns=2 * row.step_median_ns) for row in small()[:6]
    ]
    slower[-1] = dataclasses.replace(slower[-1], step_median_ns=600 * 10**6)
    assert sentence([*small(), *slower]).endswith("The worst is llm/gpt/5: 50.0% slower per step (400 ms → 600 ms).")
    assert sentence([*small(), *slower]).startswith("Of 14 runs (5 in the last 36 hours), 2 regressed, 1 failed and 2 have new issues.")


def test_runs_without_a_comparable_run_are_in_one_table_those_with_issues_first() -> None:
    rows = [
        run(f"hub/{name}", name=name, started_ns=START, verdicts=dict.fromkeys(rules, "IssuesFound") | {"BatchSize": "NoIssuesFound"})
        for name, rules in (("bert", ()), ("qwen", ("IOBottleneck", "SyncBound", "CPUBottleneck", "StepOutlier", "OverallSystemUsage")))
    ]
    page = index_page(made_of([*small(), *rows]))
    table = page[page.index('id="alone"') : page.index('id="runs"')]
    assert re.findall(r'<td class="issues"><bdi>(.*?)</bdi>', table) == ["CPUBottleneck, IOBottleneck, StepOutlier and 1 more", "none"]
    assert re.findall(r"<bdi>(hub/.*?)</bdi>", table) == ["hub/qwen", "hub/bert"]
    assert "gpt/5" not in table
    assert "Runs without a comparable run" in table
    # Rules that only inform have no column.
    assert "OverallSystemUsage" not in re.findall(r'data-rule="([^"]*)"', page)
    assert 'id="alone"' not in index_page(made_of(small()[:6]))


def test_theme_title_and_logo_are_those_of_the_reports() -> None:
    look = Look(theme="dark", title="Company nights", logo=Logo("data:image/png;base64,AAAA", "Example Inc."))
    page = index_page(made_of(small()), look)
    assert '<html lang="en" data-theme="dark">' in page
    assert '<meta name="color-scheme" content="dark">' in page
    assert '<img class="logo" src="data:image/png;base64,AAAA" alt="Example Inc.">postrun · <bdi>Company nights</bdi>' in page
    assert "<title>s3://reports/all: Company nights</title>" in page
    assert '<html lang="en">' in index_page(made_of(small()))


def test_the_table_has_every_run_its_figures_and_its_verdicts() -> None:
    page = index_page(made_of(small()))
    table = page[page.index('id="runs-table"') :]
    head = re.findall(r'data-rule="([^"]*)"', table)
    assert head == ["IOBottleneck", "SyncBound"]  # no columns of rules that were not evaluated
    rows = re.findall(r'<tr data-state="(\w+)"( data-regressed)?>(.*?)</tr>', table)
    # The worst first: the regression, the failure, then the newest.
    assert [(state, bool(worse)) for state, worse, _ in rows[:3]] == [("reported", True), ("failed", False), ("running", False)]
    cells = re.findall(r"<td[^>]*>(.*?)</td>", rows[0][2])
    assert [re.sub(r"<[^>]*>", "", cell) for cell in cells[-2:]] == ["✕ issue", "! error"]
    steps = [int(one) for one in re.findall(r'data-sort="(\d{9})"', table)]
    assert steps == [step * 10**6 for step in reversed(STEPS)]


def test_a_removed_report_is_a_state_of_its_own() -> None:
    rows = [dataclasses.replace(row, folder=None, written=(), warnings=("cut off", PRUNED)) for row in small()[:1]]
    page = index_page(made_of(rows))
    (cell,) = re.findall(r'<td class="said">(.*?)</td>', page)
    assert cell == f'<span class="v-none" title="{PRUNED}">– removed</span><span class="note"><bdi>cut off</bdi></span>'
    assert '<tr data-state="removed">' in page


def test_a_slower_run_has_the_same_color_everywhere() -> None:
    page = index_page(made_of(small()))
    table = page[page.index('id="runs-table"') :]
    assert '<span class="v-issue">▲ slower</span>' in table
    assert '<span class="badge v-issue">▲ slower</span>' in page


def test_of_runs_with_one_start_the_last_of_the_comparison_is_the_newest() -> None:
    rows = [dataclasses.replace(row, id=f"gpt/{number}", started_ns=START) for number, row in enumerate(small()[:6])]
    alone = [run(f"hub/{name}", name=name, started_ns=START) for name in ("bert", "qwen")]
    failed = [run(f"bad{number}", state="failed", reason="cut off", reported_at_ns=START) for number in range(2)]
    index = made_of([*rows, *alone, *failed])
    assert [point.id for point in index.families[0].points] == [f"gpt/{number}" for number in range(6)]
    assert [row.id for row in index.rows if row.id.startswith("gpt")] == [f"gpt/{number}" for number in reversed(range(6))]
    assert [row.id for row in index.failed] == ["bad1", "bad0"]
    assert index.alone == ("hub/qwen", "hub/bert")


def test_what_was_derived_from_a_trace_is_not_taken_for_samples() -> None:
    page = index_page(made_of(small())).replace("\u00a0", " ")
    assert "99.0%" not in page  # the share of stretches with any kernel is near 100% for every GPU
    assert ">55.0%</td>" in page
    sampled = [dataclasses.replace(row, gpu_utilization_percent=43.5) for row in small()]
    assert ">43.5%</td>" in index_page(made_of(sampled))


def test_a_long_reason_is_short_in_its_row_and_whole_in_the_findings() -> None:
    reason = "/data/runs/team/bad: nothing usable found. Looked at:\n  /data/runs/team/bad/a.json: empty file\nWhat is read: this and that."
    page = index_page(made_of([run("team/bad", state="failed", reason=reason)]))
    (cell,) = re.findall(r'<td class="said">(.*?)</td>', page, re.DOTALL)
    assert re.sub(r"<[^>]*>", "", cell) == "✕ failednothing usable found."
    assert f'title="{reason}"' in cell
    assert reason in page.partition('id="runs"')[0]
    # Advice without a full stop, another place, or another run's name in it stay.
    page = index_page(made_of([run("a", state="failed", reason="it took a: b longer than 1 s")]))
    assert "it took a: b longer than 1 s</bdi>" in page.partition('id="runs"')[2]


def test_a_page_of_many_runs_says_what_it_leaves_out() -> None:
    rows = [run(f"job{i % 90}/{i:05}", name=f"job{i % 90}x", started_ns=START + i * DAY // 90) for i in range(500)]
    page = index_page(made_of(rows), most_runs=100, most_families=10)
    text = Reading(page).text
    assert "The 100 newest, worst first; all 500 are in index.parquet" in text
    assert "10 of 90 families" in text
    assert len(re.findall(r"<tr data-state", page)) == 100
    assert page.count("job49/00499") >= 1
    assert "job9/00009" not in page
    failed = [run(f"bad{i}", state="failed", reason="cut off") for i in range(40)]
    assert "15 more; all are in index.json" in re.sub(r"\s+", " ", Reading(index_page(made_of(failed))).text)


def test_times_out_of_any_calendar_do_not_hinder_the_page() -> None:
    rows = [run(f"gpt/{i}", started_ns=at, duration_ns=2**63 - 1, step_median_ns=1) for i, at in enumerate((-(2**63), 0, 2**63 - 1))]
    assert "gpt/1" in index_page(made_of(rows))


def test_the_page_is_the_one_that_was_looked_at() -> None:
    """The page is the golden one.

    After an intended change: POSTRUN_UPDATE_GOLDEN=1 python -m pytest tests/report_templates, then review the difference.
    """
    page = index_page(made_of(small()))
    body = re.sub(r"<(script|style)>.*?</\1>", "", page, flags=re.DOTALL)
    body = re.sub(r"sha256-[^']*", "sha256-", body)
    if os.environ.get("POSTRUN_UPDATE_GOLDEN"):
        GOLDEN.write_text(body, encoding="utf-8")
    assert body == GOLDEN.read_text(encoding="utf-8")


# -- drawings --------------------------------------------------------------------------------------------------------------


def test_a_change_is_marked_before_its_run() -> None:
    dots = [Dot(100, "plain")] * 4 + [Dot(120, "plain", changed=True)] + [Dot(120, "plain")] * 4
    (at,) = re.findall(r'class="t-change" d="M([\d.]+) ', trend(dots, str))
    places = [float(x) for x in re.findall(r'<circle class="t-dot" cx="([\d.]+)"', trend(dots, str))]
    assert places[3] < float(at) < places[4]


def test_a_trend_is_as_high_as_its_numbers_and_marks_by_shape() -> None:
    drawn = trend([Dot(100, "plain"), Dot(150, "other"), Dot(200, "regression"), Dot(150, "improvement"), Dot(100, "plain")], str)
    line = [tuple(map(float, one.split())) for one in re.findall(r'class="t-line" d="M([^"]*)"', drawn)[0].split("L")]
    (x0, y0), (x1, y1), (x2, y2), (x3, y3) = line
    assert (y0, x1 - x0, x2 - x1, x3 - x2) == (y3, pytest.approx(2 * (x2 - x1), abs=0.02), pytest.approx(x3 - x2, abs=0.02), x3 - x2)
    assert y1 < y2 < y0
    assert y2 - y1 == pytest.approx(y0 - y2)
    (worse,) = re.findall(r'class="t-worse" d="M[\d.]+ ([\d.]+)l6 11h-12z"', drawn)
    (better,) = re.findall(r'class="t-better" d="M[\d.]+ ([\d.]+)l6 -11h-12z"', drawn)
    assert (float(worse), float(better)) == (pytest.approx(y1 - 7), pytest.approx(y2 + 7))
    assert drawn.count('class="t-other"') == 1
    assert ">200</text>" in drawn.replace("200.0", "200")


@pytest.mark.parametrize("values", [[1.0, 1.0], [0.0, 0.0], [5.0], [1e-9, 1e12], [100.0, 101.0]])
def test_a_trend_stays_within_its_drawing(values: list[float]) -> None:
    drawn = trend([Dot(value, "plain") for value in values], str)
    assert all(0 <= float(y) <= 84 for y in re.findall(r'cy="([-\d.e+]+)"', drawn))
    # Noise of one percent is not drawn from the top to the bottom.
    if values == [100.0, 101.0]:
        low, high = (float(y) for y in re.findall(r'cy="([\d.]+)"', drawn))
        assert abs(low - high) < 8


@pytest.mark.parametrize(("values", "labels"), [([100.0, 101.0], 2), ([100.0, 100.04], 1), ([5.0, 5.0], 1), ([100.0, 180.0], 2)])
def test_the_numbers_beside_a_trend_do_not_stand_on_each_other(values: list[float], labels: int) -> None:
    drawn = trend([Dot(value, "plain") for value in values], "{:.1f}".format)
    places = [float(y) for y in re.findall(r'<text [^>]*y="([\d.]+)"', drawn)]
    assert len(places) == labels
    assert all(10 < place < 84 for place in places)
    assert labels == 1 or abs(places[0] - places[1]) >= 12


def test_the_page_needs_no_matplotlib() -> None:
    """Loading it takes longer than the page."""
    code = "import sys; import postrun.nightly.page; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-P", "-c", code], check=False).returncode == 0


def test_the_sampled_utilization_of_a_family_is_told_where_there_is_one() -> None:
    rows = [dataclasses.replace(row, gpu_utilization_percent=80.0 - row.step_median_ns / 10**7) for row in small() if row.step_median_ns]
    with_samples, without = (index_page(made_of(made)) for made in (rows, small()))
    newest, before = (80 - STEPS[-1] / 10, 80 - sorted(STEPS[:-1])[len(STEPS[:-1]) // 2] / 10)
    row = '<th scope="row">GPU utilization</th>'
    assert row not in without
    card = with_samples[with_samples.index(row) :][:400]
    assert f"{newest:.1f}%" in card
    assert f"{before:.1f}%" in card
