"""The page of a digest: self-contained, safe, and with tables that add up."""

from __future__ import annotations

import re
from typing import Any

import pytest
from conftest import HOSTILE
from postrun.nightly.digest import Digest, digest
from postrun.nightly.digest_page import digest_page
from postrun.nightly.gpu_hours import column
from postrun.nightly.history import Settings
from postrun.nightly.model import Row
from postrun.nightly.weeks import DAY_NS, week
from postrun.report_templates.text.look import Look
from test_index_page import Reading

HOUR = 3600 * 10**9
WEEK = week("2026-W48")


def job(run_id: str, hours: float, day: float, lost: dict[str, float], **more: Any) -> Row:
    duration, end = round(hours * HOUR), WEEK.since_ns + round(day * DAY_NS)
    parts = {column(cause): round(time * HOUR) for cause, time in lost.items()}
    plain: dict[str, Any] = {
        "state": "reported", "kind": "recording", "fingerprint": "f", "options": "o", "bytes": 1, "files": 1, "gpus": 8, "ranks": 8,
        "folder": f"runs/{run_id}/0123456789abcdef-0123456789ab", "written": ("report.html",), "name": run_id.partition("/")[0],
        "started_ns": end - duration, "duration_ns": duration, "allocated_ns": 8 * duration, "price_per_gpu_hour": 2.5, "currency": "USD",
        "allocated_productive_ns": 8 * duration - sum(parts.values()), **parts,
    }  # fmt: skip
    return Row(id=run_id, **plain | more)


def small() -> list[Row]:
    rows = [
        job(
            f"llama/{day:02}", 3.1 + day / 7, day - 20.5, {"data_wait": 1.7, "initialization": 0.4 + day / 90}, labels={"team": "red"},
            step_median_ns=10**8 if day < 23 else 13 * 10**7, sampled_ns=20 * HOUR, inactive_ns=round(day / 3 * HOUR),
        )
        for day in range(28)
    ]  # fmt: skip
    rows += [job(f"vit/{number}", 0.333, 2, {"checkpoint": 0.1}, labels={"team": f"blue {number}"}) for number in range(3)]
    rows += [job("none/1", 1, 2, {}, allocated_productive_ns=None), job("profile/1", 1, 2, {}, allocated_ns=None)]
    return [*rows, Row("bad", "failed", "traces", "f", "o", 1, 1, reason="cut off", reported_at_ns=WEEK.since_ns)]


def hostile() -> list[Row]:
    names = [name.replace("\x00", "").replace("\n", " ") for name in HOSTILE] + ["a b#c?d%2e&e=f", "javascript:alert(1)", "//evil.example"]
    return [
        job(
            name[:200], 2, number / 10, {"data_wait": 1}, name=name, gpu_name=name, labels={"family": name, "team": name},
            sampled_ns=HOUR, inactive_ns=HOUR, currency=name[:10] or "USD",
        )
        for number, name in enumerate(names)
    ]  # fmt: skip


def of(rows: list[Row], **more: Any) -> Digest:
    return digest(rows, WEEK, Settings(), WEEK.until_ns, **more)


@pytest.fixture(scope="module", params=["small", "hostile", "empty", "unmeasured"])
def any_page(request: pytest.FixtureRequest) -> str:
    rows = {"small": small, "hostile": hostile, "empty": list, "unmeasured": lambda: small()[-2:]}[request.param]()
    return digest_page(of(rows), "0.1.0")


def test_nothing_is_loaded_and_nothing_hostile_is_markup(any_page: str) -> None:
    for tag, attributes in Reading(any_page).elements:
        for key, value in attributes.items():
            assert not key.startswith("on"), (tag, key)
            assert key not in ("src", "xlink:href", "action", "data", "srcset"), (tag, key)
            if key == "href":
                assert value is not None
                assert value.startswith(("#", "runs/", "index.html", "digest.json")), value
    assert "alert(1)</script>" not in any_page
    assert not re.search(r"<(link|iframe|object|embed|base|form|img)\b", any_page)
    assert "default-src 'none'" in any_page
    assert re.findall(r"https?://[^\s\"'<]+", re.sub(r"https://evil[^\s\"'<]*", "", any_page)) == []


def test_there_is_no_script_and_links_lead_somewhere(any_page: str) -> None:
    assert re.findall(r"<script>(.*?)</script>", any_page, re.DOTALL) == [""]
    elements = Reading(any_page).elements
    ids = [attributes["id"] for _, attributes in elements if attributes.get("id")]
    assert len(ids) == len(set(ids))
    for _, attributes in elements:
        if (attributes.get("href") or "").startswith("#"):
            assert (attributes["href"] or "")[1:] in ids, attributes


def cells(page: str, section: str) -> list[list[str]]:
    table = page[page.index(f'id="{section}"') :].partition("</table>")[0]
    return [re.findall(r'<td class="n">([^<]*)</td>', row) for row in re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)]


def numbers(rows: list[list[str]], at: int) -> list[float]:
    return [float(row[at].replace(",", "")) for row in rows if row]


@pytest.mark.parametrize(("section", "at"), [("causes", (0, 2)), ("groups-table", (1, 7)), ("families-table", (1, 7))])
def test_the_numbers_of_each_table_add_up_to_its_last_row(section: str, at: tuple[int, int]) -> None:
    rows = cells(digest_page(of(small()), "0.1.0"), section)
    for column_number in at:
        *parts, total = numbers(rows, column_number)
        assert len(parts) > 2
        assert sum(parts) == pytest.approx(total, abs=1e-6)


def test_the_week_in_words() -> None:
    text = " ".join(Reading(digest_page(of(small()), "0.1.0")).text.split())
    assert "Week 48 of 2026 2026-11-23 to 2026-11-29 UTC" in text
    assert "11 jobs used" in text
    assert "The largest loss is data wait" in text
    assert "1 run without a report, 1 without GPU-hours" in text
    assert "Step time 30.0% slower since this run (100 ms → 130 ms; medians of 23 runs before and 5 runs since)" in text
    assert "no team" in text
    empty = " ".join(Reading(digest_page(of([]), "0.1.0")).text.split())
    assert "No job ended in this period." in empty
    assert "By family" not in empty


def test_links_are_those_that_stay() -> None:
    page = digest_page(of(small()), "0.1.0")
    assert 'href="runs/llama/27/latest/report.html"' in page
    page = digest_page(of(small(), base_url="https://reports.example.org/{path}?x=1"), "0.1.0")
    assert 'href="https://reports.example.org/runs/llama/27/latest/report.html?x=1"' in page


def test_the_look_is_that_of_the_index() -> None:
    page = digest_page(of(small()), "0.1.0", Look(theme="dark", title="GPU <week>"))
    assert '<html lang="en" data-theme="dark">' in page
    assert "GPU &lt;week&gt;" in page
    assert "<title>Week 48 of 2026: GPU &lt;week&gt;</title>" in page
