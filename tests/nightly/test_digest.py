"""The digest's sums are those of a plain recomputation, add up exactly, and never count what was not recorded."""

from __future__ import annotations

import dataclasses
import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from call_nightly import nightly
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from postrun.analysis.run.goodput import PARTS
from postrun.ingest.object_store.open import open_objects
from postrun.nightly import digest_files, digest_text, done_markers, places
from postrun.nightly.digest import CAUSES, LOST, Digest, digest, job_of
from postrun.nightly.gpu_hours import column
from postrun.nightly.history import Settings
from postrun.nightly.metrics import with_limits
from postrun.nightly.model import Row
from postrun.nightly.weeks import DAY_NS, Period, week

HOUR = 3600 * 10**9
WEEK = week("2026-W48")
MONDAY = WEEK.since_ns


def job(run_id: str, hours: float = 10, gpus: int = 8, ends: float = 1, parts: dict[str, int] | None = None, **more: Any) -> Row:
    """Make a run that ends ``ends`` days after Monday.

    ``parts``: in GPU-hours; the rest is productive."""
    duration, end = round(hours * HOUR), MONDAY + round(ends * DAY_NS)
    allocated = gpus * duration
    times = {} if parts is None else {"productive": allocated - sum(parts.values()) * HOUR} | {k: v * HOUR for k, v in parts.items()}
    plain: dict[str, Any] = {
        "state": "reported", "kind": "recording", "fingerprint": "f", "options": "o", "bytes": 1, "files": 1, "status": "completed",
        "folder": f"runs/{run_id}/0123456789abcdef-0123456789ab", "written": ("report.html", "report.json"),
        "name": run_id.partition("/")[0], "started_ns": end - duration, "duration_ns": duration, "reported_at_ns": end + HOUR,
        "gpus": gpus, "ranks": gpus, "gpu_name": "H100", "allocated_ns": allocated, **{column(name): time for name, time in times.items()},
    }  # fmt: skip
    return Row(id=run_id, **plain | more)


def of(*rows: Row, period: Period = WEEK, **more: Any) -> Digest:
    return digest(rows, period, more.pop("settings", Settings()), WEEK.until_ns, **more)


# -- on paper --------------------------------------------------------------------------------------------------------------


def small() -> list[Row]:
    return [
        # 80 GPU-hours: 50 productive, 20 of data wait, 10 of initialization.
        job("llama/1", parts={"data_wait": 20, "initialization": 10}, labels={"team": "red"}, sampled_ns=80 * HOUR, inactive_ns=12 * HOUR),
        # 40 GPU-hours: 30 productive, 4 of evaluation, 6 not recorded; nothing sampled.
        job("vit/1", hours=5, parts={"evaluation": 4, "not_recorded": 6}, labels={"team": "blue"}),
        # 20 GPU-hours without steps, all of them without activity.
        job("idle/1", hours=20, gpus=1, labels={"team": " red "}, sampled_ns=20 * HOUR, inactive_ns=20 * HOUR),
        # Only a profile was recorded; no report; of other weeks.
        job("profile/1", allocated_ns=None, labels={"team": "red"}),
        job("bad/1", state="failed", reason="cut off"),
        job("llama/0", ends=-3, hours=20, parts={"data_wait": 60}, labels={"team": "red"}),
        job("llama/2", ends=7, parts={}),
    ]


def test_gpu_hours_by_cause_team_and_family() -> None:
    result = of(*small())
    total = result.total
    assert (total.jobs, result.unmeasured, result.failed) == (3, 1, 1)
    assert total.allocated_ns == 140 * HOUR
    assert {cause: time // HOUR for cause, time in total.causes.items() if time} == {
        "productive": 80, "data_wait": 20, "initialization": 10, "evaluation": 4, "not_recorded": 6, "unknown": 20,
    }  # fmt: skip
    assert (total.lost_ns, total.known_ns, total.sampled_ns, total.inactive_ns) == (30 * HOUR, 114 * HOUR, 100 * HOUR, 32 * HOUR)
    assert (total.visible["data_wait"], total.visible["evaluation"], total.visible["productive"]) == (80 * HOUR, 40 * HOUR, 120 * HOUR)
    assert [(group.name, group.jobs, group.allocated_ns // HOUR) for group in result.groups] == [("red", 2, 100), ("blue", 1, 40)]
    assert [(group.name, group.allocated_ns // HOUR) for group in result.families] == [("llama", 80), ("vit", 40), ("idle", 20)]
    assert (result.before.allocated_ns, result.before.productive_ns) == (160 * HOUR, 100 * HOUR)
    assert digest_text.headline(result).replace("\u00a0", " ") == (
        "3 jobs used 140 GPU-hours; 70.2% of the 114 GPU-hours with a known cause were productive."
        " The largest loss is data wait: 20.0 GPU-hours (17.5%; 100% of it in red)."
    )


def test_what_is_not_recorded_is_never_inactive() -> None:
    result = of(*small())
    assert digest_text.inactivity(result).replace("\u00a0", " ") == (
        "32.0 GPU-hours of 100 GPU-hours with samples had no activity. In 1 job no sample was above 0%."
        " 40.0 GPU-hours were not sampled and do not count as inactive."
    )
    assert [(one.row.id, *numbers) for one, *numbers in digest_text.most_inactive(result)] == [
        ("idle/1", "20.0", "20.0", "100%"), ("llama/1", "80.0", "12.0", "15.0%"),
    ]  # fmt: skip
    blue = next(row for row in digest_text.groups(result, result.groups, "") if row.name == "blue")
    assert blue.inactive == "not recorded"
    assert "not known" in digest_text.inactivity(of(job("vit/1", parts={})))


def test_a_job_belongs_to_the_week_in_which_it_ended() -> None:
    at = [job("a/1", ends=0), job("a/2", ends=7), job("a/3", ends=-1e-9), job("a/4", ends=3, started_ns=None, reported_at_ns=MONDAY + 5)]
    assert {one.row.id for one in of(*at).jobs} == {"a/1", "a/4"}
    # Over the end of a year: the last week of 2026 ends on January 3.
    late = job("a/1", ends=7 * 5 + 6.5)
    assert [one.row.id for one in of(late, period=week("2026-W53")).jobs] == ["a/1"]
    assert of(late, period=week("2027-W01")).jobs == ()
    assert of(late, period=week("2027-W01")).before.jobs == 1


def test_nothing_is_a_digest_too() -> None:
    assert digest_text.headline(of()) == "No job ended in this period."
    unknown = of(job("a/1", allocated_ns=None))
    assert digest_text.headline(unknown) == "1\u00a0job ended; the GPU-hours are not recorded."
    assert {tile.label: tile.value for tile in digest_text.tiles(unknown)} == {
        "GPU-hours": "—", "productive": "—", "lost": "—", "allocated, no activity": "—", "jobs": "1"
    }  # fmt: skip
    assert digest_text.headline(of(job("a/1"))) == "1\u00a0job used 80.0\u00a0GPU-hours; the recordings do not show the causes."
    assert digest_text.headline(of(job("a/1", parts={}))) == "1\u00a0job used 80.0\u00a0GPU-hours; 100% were productive."
    result = of(job("a/1", state="running", started_ns=MONDAY, duration_ns=DAY_NS))
    assert (result.total.jobs, result.unmeasured, result.failed) == (0, 0, 0)


def test_the_label_of_the_groups_is_chosen() -> None:
    rows = [job("a/1", labels={"team": "x", "cluster": "east"}), job("b/1", hours=9, labels={"cluster": " "}), job("c/1", hours=1)]
    assert [group.name for group in of(*rows, by="cluster").groups] == ["east", None]
    assert [row.name for row in digest_text.groups(of(*rows, by="cluster"), of(*rows, by="cluster").groups, "")] == [
        "east", "no cluster", "Total",
    ]  # fmt: skip


# -- cost ------------------------------------------------------------------------------------------------------------------


def test_numbers_are_rounded_to_the_nearest_if_these_add_up() -> None:
    times = [round(hours * HOUR) for hours in (0.0445, 0.2353, 0.0302)]
    assert digest_text.Numbers(2, 2).of_hours(times) == ["0.04", "0.24", "0.03"]


def test_notes_state_what_recordings_do_not_show() -> None:
    rows = [job("a/1", parts={"data_wait": 20}), job("b/1", hours=30, parts={})]  # 80 and 240 GPU-hours
    text = " ".join(digest_text.notes(of(*rows)))
    assert "The recordings show data wait in 25.0% and checkpoint in 0% of the GPU-hours." in text
    complete = " ".join(digest_text.notes(of(job("a/1", parts={"data_wait": 20, "checkpoint": 0}))))
    assert "The recordings show" not in complete


def test_a_note_states_that_the_period_is_not_over() -> None:
    result = of(job("a/1", parts={}))
    texts = [" ".join(digest_text.notes(dataclasses.replace(result, generated_at_ns=at))) for at in (WEEK.until_ns - 1, WEEK.until_ns)]
    assert ["not over" in text for text in texts] == [True, False]


def test_a_label_of_no_job_is_noted_with_those_of_the_jobs() -> None:
    row = job("a/1", parts={}, labels={"te`<b>[a](http://evil.example)": "x", "project": "y"})
    result = of(row, by="taem")
    text = " ".join(digest_text.notes(result))
    assert 'No job has the label "taem"; their labels are "project", "te\'<b>[a](http://evil.example)".' in text
    tokens = MarkdownIt().parse(digest_files.markdown(result))
    assert not [part for token in tokens for part in token.children or () if part.type in ("link_open", "html_inline")]
    assert "No job has the label" not in " ".join(digest_text.notes(of(row, by="project")))


def test_cost_needs_a_price() -> None:
    rows = [job("a/1", parts={"data_wait": 20}, price_per_gpu_hour=2.0, currency="USD"), job("b/1", hours=5, parts={})]
    total = of(*rows).total
    assert (total.currency, total.cost(), total.cost("data_wait"), total.priced_ns) == ("USD", 160.0, 40.0, 80 * HOUR)
    tile = next(tile for tile in digest_text.tiles(of(*rows)) if tile.key == "cost")
    assert (tile.value, tile.detail) == ("160.00\u00a0USD", "GPU-hours × price for 66.7% of GPU-hours")
    assert [row.cost for row in digest_text.groups(of(*rows), of(*rows).families, "")] == ["160.00", "—", "160.00"]
    assert [(cause.key, cause.cost) for cause in digest_text.causes(of(*rows))] == [("productive", "120.00"), ("data_wait", "40.00")]
    assert digest_text.notes(of(*rows))[-1:] == ["The costs are those of 80.0\u00a0GPU-hours; the other jobs have no price."]
    # A price of the digest is that of every job.
    assert of(*rows, price=(3.0, "EUR")).total.cost() == 360.0
    assert (of(job("a/1")).total.costs, of(job("a/1")).total.cost()) == ({}, None)


def test_the_markdown_has_costs_families_and_what_is_visible() -> None:
    """8 GPUs x 10 h at 2 USD: 160 USD; 3/4 of it is productive."""
    run = job("llama/1", parts={"data_wait": 20}, labels={"team": "a", "family": "llama"})
    text = digest_files.markdown(of(run, price=(2.0, "U`SD")))
    lines = [re.split(r"  +", line) for line in text.splitlines()]
    assert ["Cause", "GPU-hours", "Visible in", "Share", "Cost, U'SD"] in lines
    assert ["Data wait", "20.0", "100%", "25.0%", "40.00"] in lines
    assert ["Total", "80.0", "100%", "160.00"] in lines
    assert "- `llama/1`: 20.0 of 80.0 GPU-hours; Data wait, 100% of the loss" in text
    families = text[text.index("## GPU-hours by family") :].split("##")[1].splitlines()
    assert [re.split(r"  +", line) for line in families[3:6]] == [
        ["Name", "GPU-hours", "Productive", "Lost", "Cost, U'SD"],
        ["llama", "80.0", "75.0%", "25.0%", "160.00"],
        ["Total", "80.0", "75.0%", "25.0%", "160.00"],
    ]
    assert "Cost" not in digest_files.markdown(of(run))


def test_currencies_are_not_added_up() -> None:
    rows = [job("a/1", price_per_gpu_hour=2.0, currency="USD"), job("b/1", price_per_gpu_hour=1.0, currency="EUR")]
    result = of(*rows)
    assert (result.total.currency, result.total.cost()) == (None, None)
    assert {currency: sum(costs.values()) for currency, costs in result.total.costs.items()} == {"EUR": 80.0, "USD": 160.0}
    assert [tile.value for tile in digest_text.tiles(result) if tile.key == "cost"] == ["80.00\u00a0EUR", "160.00\u00a0USD"]
    assert any("several currencies" in note for note in digest_text.notes(result))


# -- recomputed ------------------------------------------------------------------------------------------------------------

TIMES = st.integers(0, 10**15)
JOBS = st.lists(
    st.fixed_dictionaries(
        {
            "team": st.sampled_from(["red", "blue", None, "  "]),
            "family": st.sampled_from(["a", "b"]),
            "day": st.floats(-7, 8),
            "state": st.sampled_from(["reported", "reported", "reported", "failed"]),
            "parts": st.one_of(st.none(), st.dictionaries(st.sampled_from(PARTS), TIMES, min_size=1)),
            "without": st.booleans(),
            "sampled": st.tuples(st.floats(0, 1), st.floats(0, 1)),
            "price": st.sampled_from([None, (2.0, "USD"), (2.5, "USD")]),
        }
    ),
    max_size=12,
)


@given(JOBS)
def test_the_sums_are_those_of_plain_python_and_add_up(given_jobs: list[dict[str, Any]]) -> None:
    rows, by_cause = [], defaultdict[str, int](int)
    teams, families, sampled_all, inactive_all, cost = defaultdict[str | None, int](int), defaultdict[str, int](int), 0, 0, 0.0
    for number, values in enumerate(given_jobs):
        parts = values["parts"] or {}
        allocated = sum(parts.values()) if parts else 8 * HOUR
        sampled = int(allocated * values["sampled"][0])
        inactive = int(sampled * values["sampled"][1])
        row = job(
            f"{values['family']}/{number}",
            ends=values["day"],
            labels={} if values["team"] is None else {"team": values["team"]},
            state=values["state"],
            allocated_ns=None if values["without"] else allocated,
            sampled_ns=sampled,
            inactive_ns=inactive,
            price_per_gpu_hour=values["price"] and values["price"][0],
            currency=values["price"] and values["price"][1],
        )
        rows.append(dataclasses.replace(row, **{column(name): time for name, time in parts.items()}))
        end = row.started_ns + row.duration_ns  # type: ignore[operator]
        if values["without"] or values["state"] == "failed" or not MONDAY <= end < MONDAY + 7 * DAY_NS or not allocated:
            continue
        for name, time in (parts or {"unknown": allocated}).items():
            by_cause[name] += time
        teams[(values["team"] or "").strip() or None] += allocated
        families[values["family"]] += allocated
        sampled_all, inactive_all = sampled_all + sampled, inactive_all + inactive
        cost += allocated / HOUR * values["price"][0] if values["price"] else 0.0
    result = of(*rows)
    total = result.total
    assert {cause: time for cause, time in total.causes.items() if time} == {cause: time for cause, time in by_cause.items() if time}
    assert sum(total.causes.values()) == total.allocated_ns == sum(teams.values())
    assert {group.name: group.allocated_ns for group in result.groups} == teams
    assert {group.name: group.allocated_ns for group in result.families} == families
    assert (total.sampled_ns, total.inactive_ns) == (sampled_all, inactive_all)
    assert (total.cost() or 0.0) == pytest.approx(cost)
    for groups in (result.groups, result.families):
        for cause in CAUSES:
            assert sum(group.causes[cause] for group in groups) == total.causes[cause]
        assert sum(group.lost_ns for group in groups) == sum(total.causes[cause] for cause in LOST)


@given(st.lists(st.integers(0, 10**18), min_size=1, max_size=20), st.integers(0, 2))
def test_the_numbers_of_a_column_add_up_to_the_rounded_sum(times: list[int], digits: int) -> None:
    texts = digest_text.Numbers(digits, 2).of_hours(times)
    added_up = sum(round(float(text.replace(",", "")) * 10**digits) for text in texts)
    (total,) = digest_text.Numbers(digits, 2).of_hours([sum(times)])
    assert added_up == round(float(total.replace(",", "")) * 10**digits)
    for text, time in zip(texts, times, strict=True):
        assert abs(float(text.replace(",", "")) - time / HOUR) <= 10**-digits + 1e-9 * time / HOUR


def test_the_last_row_has_the_groups_that_are_not_listed() -> None:
    result = of(
        *(job(f"a/{number:02}", hours=100 - number, labels={"team": f"team-{number:02}"}, parts={"tail": 1}) for number in range(40))
    )
    rows = digest_text.groups(result, result.groups, "teams")
    assert (len(rows), rows[0].name, rows[24].name, rows[25].name) == (26, "team-00", "16 more teams", "Total")
    hours = [float(row.hours.replace(",", "")) for row in rows]
    assert sum(hours[:-1]) == pytest.approx(hours[-1])
    assert sum(int(row.jobs) for row in rows[:-1]) == 40


# -- rows of others --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"allocated_ns": -1}, None),
        ({"allocated_ns": 0}, None),
        ({"allocated_ns": None}, None),
        ({"allocated_tail_ns": 1}, {"unknown": 80 * HOUR}),
        ({"allocated_tail_ns": -HOUR, "allocated_productive_ns": 81 * HOUR}, {"unknown": 80 * HOUR}),
        ({"allocated_productive_ns": None}, {"unknown": 80 * HOUR}),
    ],
)
def test_parts_that_do_not_add_up_are_unknown(changes: dict[str, Any], expected: dict[str, int] | None) -> None:
    result = job_of(dataclasses.replace(job("a/1", parts={}), **changes), "a")
    assert (result and result.causes) == expected


@pytest.mark.parametrize("times", [(1, 2), (-1, -1), (81 * HOUR, 0), (None, 1), (1, None)])
def test_impossible_activity_is_unknown(times: tuple[int | None, int | None]) -> None:
    result = job_of(job("a/1", sampled_ns=times[0], inactive_ns=times[1]), "a")
    assert result is not None
    assert (result.sampled_ns, result.inactive_ns) == (0, 0)


@pytest.mark.parametrize("value", [-(2**63), -1, 0, 2**63 - 1, 1e308])
def test_any_number_of_a_marker_is_borne(value: float) -> None:
    names = [name for name, field in Row.__dataclass_fields__.items() if field.type in ("int | None", "float | None")]
    for name in names:
        if isinstance(value, int) or "float" in str(Row.__dataclass_fields__[name].type):
            row = dataclasses.replace(job("a/1", parts={"tail": 1}, currency="USD"), **{name: value})
            for digits in (of(row), of(row, period=Period(0, 2**63 - 1))):
                digest_files.markdown(digits)
                json.dumps(digest_files.data(digits, "1"))


# -- what became worse -----------------------------------------------------------------------------------------------------


def trend(name: str, usual: float, after: float, since: int, **more: Any) -> list[Row]:
    """Make a run per day, the last on Sunday.

    ``since``: the day of the week, from 0, at which the step time changed."""
    return [
        job(f"{name}/{day:02}", hours=1, ends=day - 20.5, step_median_ns=round(1e6 * (after if day - 21 >= since else usual)), **more)
        for day in range(28)
    ]


def test_levels_that_changed_in_the_week_and_regressions_are_listed_once() -> None:
    """A changed level replaces the regressions; a single slow run is a regression."""
    single = trend("bert", 100, 100, 7)
    single[-2] = dataclasses.replace(single[-2], step_median_ns=140_000_000)
    single[-4] = dataclasses.replace(single[-4], step_median_ns=130_000_000)
    faster, before = trend("t5", 100, 80, 1), trend("vit", 100, 130, -4)
    result = of(*trend("llama", 100, 125, 2), *single, *faster, *before)
    assert [(change.family, change.id, change.change_percent) for change in result.changes] == [("llama", "llama/23", 25.0)]
    assert [(finding.family, finding.id, finding.change_percent) for finding in result.regressions] == [("bert", "bert/26", 40.0)]
    assert result.regressions[0].text.endswith("; 1 other run of the family also regressed")
    lines, rest = digest_text.worse(result)
    assert rest == 0
    assert lines[0] == (
        "llama/23", "llama",
        "Step time 25.0% slower since this run (100\u00a0ms → 125\u00a0ms; medians of 23\u00a0runs before and 5\u00a0runs since)",
    )  # fmt: skip
    assert lines[1][2].startswith("140\u00a0ms from step to step, 40.0% more than")
    assert of(*trend("llama", 100, 125, 2), settings=Settings(metrics=with_limits((), 30.0))).changes == ()
    # Seen a week later, the runs of that week do not count; and the change is not of that week.
    assert of(*trend("llama", 100, 125, 2), period=week("2026-W49")).changes == ()


def test_figures_of_one_run_are_one_line() -> None:
    rows = [dataclasses.replace(row, mfu_percent=40.0 if row.step_median_ns == 10**8 else 30.0) for row in trend("llama", 100, 125, 2)]
    ((run_id, _, text),) = digest_text.worse(of(*rows))[0]
    assert run_id == "llama/23"
    assert re.fullmatch(r"Step time 25\.0% slower since this run \(.*\); MFU 25\.0% less since this run \(.*\)", text)


# -- files and command -----------------------------------------------------------------------------------------------------


def filled(out: Path, *rows: Row) -> Path:
    objects = open_objects(out)
    for row in rows:
        objects.write(places.done(row.id), done_markers.marker(row))
    return out


def test_the_command_writes_three_files_of_the_week(tmp_path: Path) -> None:
    out = filled(tmp_path / "out", *small())
    result = nightly("digest", str(out), "--week", "2026-W48", "--generated-at", "2026-11-30T06:00")
    assert result.exit_code == 0, result.output
    first, address = result.stdout.splitlines()
    assert first.startswith("3 jobs used 140 GPU-hours; 70.2%")
    assert address == f"{out}/digest.html"
    data = json.loads((out / "digest.json").read_text())
    assert data["layout"] == "postrun.digest/1"
    assert data["period"] == {"week": "2026-W48", "since_ns": MONDAY, "until_ns": MONDAY + 7 * DAY_NS}
    assert data["total"]["allocated_ns"] == sum(data["total"]["causes_ns"].values()) == 140 * HOUR
    assert [group["name"] for group in data["groups"]] == ["red", "blue"]
    assert (data["without_gpu_hours"], data["without_report"], data["jobs_total"]) == (1, 1, 3)
    assert data["jobs"][0]["report"] == "runs/llama/1/latest/report.html"
    text = (out / "digest.md").read_text()
    assert text.startswith("# Week 48 of 2026 (2026-11-23 to 2026-11-29 UTC)\n")
    assert re.search(r"^Total +140\.0 +100%$", text, re.MULTILINE)
    again = nightly("digest", str(out), "--week", "2026-W48", "--generated-at", "2026-11-30T06:00", "--json")
    assert json.loads(again.stdout) == data


def test_the_digest_of_each_week_stays(tmp_path: Path) -> None:
    """Its links lead to the reports from the folder of the archive."""
    out = filled(tmp_path / "out", *small())
    for week_ in ("2026-W47", "2026-W48"):
        assert nightly("digest", str(out), "--week", week_).exit_code == 0
    assert nightly("digest", str(out), "--since", "2026-11-20", "--until", "2026-11-27").exit_code == 0
    names = sorted(path.name for path in (out / "digests").iterdir())
    assert names == [f"2026-W{number}.{kind}" for number in (47, 48) for kind in ("html", "json", "md")]
    data = json.loads((out / "digests" / "2026-W48.json").read_text())
    assert (data["period"]["week"], data["jobs"][0]["report"]) == ("2026-W48", "../runs/llama/1/latest/report.html")
    page = (out / "digests" / "2026-W48.html").read_text()
    assert 'href="../runs/llama/1/latest/report.html"' in page
    links = {link for link in re.findall(r'href="([^"#]+)"', page) if "runs/" not in link}
    assert links == {"2026-W48.json", "../index.html"}
    assert all((out / "digests" / link).exists() for link in links - {"../index.html"})


def test_the_default_is_the_week_before_the_time_of_the_call(tmp_path: Path) -> None:
    out = filled(tmp_path / "out", *small())
    for at, jobs in (("2026-11-30T00:00", 3), ("2026-11-29T23:00", 1), ("2026-12-07T00:00", 1), ("2027-01-04T06:00", 0)):
        assert nightly("digest", str(out), "--generated-at", at).exit_code == 0
        assert json.loads((out / "digest.json").read_text())["jobs_total"] == jobs
    assert "No job ended" in (out / "digest.html").read_text()
    assert nightly("digest", str(out), "--since", "2026-11-20", "--until", "2026-11-24", "--by", "cluster").exit_code == 0
    data = json.loads((out / "digest.json").read_text())
    assert (data["period"].get("week"), data["by"], data["groups"][0]["name"], data["jobs_total"]) == (None, "cluster", None, 1)


def test_prices_and_addresses_are_options(tmp_path: Path) -> None:
    out = filled(tmp_path / "out", *small())
    arguments = ("--price-per-gpu-hour", "2.50 USD", "--base-url", "https://reports.example.org/x", "--week", "2026-W48")
    result = nightly("digest", str(out), *arguments, "--json")
    data = json.loads(result.stdout)
    assert data["total"]["costs"] == {"USD": 350.0}
    assert data["jobs"][0]["report"] == "https://reports.example.org/x/runs/llama/1/latest/report.html"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--week", "48"], 2, "'48' is not a week; write it like 2026-W48"),
        (["--week", "2026-W48", "--since", "3d"], 2, "--week excludes --since and --until"),
        (["--since", "2026-11-20", "--until", "2026-11-20"], 2, "--until is not after --since"),
        (["--week", "2027-W02", "--generated-at", "2026-11-30"], 2, "the period 2027-01-11 to 2027-01-17 UTC is in the future"),
        (["--by", " "], 2, "--by names no label"),
        (["--regression", "speed=3"], 2, "names no figure"),
        (["--price-per-gpu-hour", "two"], 2, "is not a price"),
        ([], 4, "no run is reported there"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, arguments: list[str], code: int, message: str) -> None:
    (tmp_path / "out").mkdir()
    result = nightly("digest", str(tmp_path / "out"), *arguments)
    assert result.exit_code == code
    assert message in " ".join(result.stderr.split())
    assert list((tmp_path / "out").iterdir()) == []


def test_a_missing_place_is_named(tmp_path: Path) -> None:
    result = nightly("digest", str(tmp_path / "missing"))
    assert (result.exit_code, "no such folder" in result.stderr) == (4, True)


def test_markers_of_earlier_versions_have_unknown_gpu_hours(tmp_path: Path) -> None:
    out = filled(tmp_path / "out", *small())
    marker = out / places.done("llama/1")
    old = {
        name: value for name, value in json.loads(marker.read_text()).items() if not name.startswith(("allocated", "sampled", "inactive"))
    }
    marker.write_text(json.dumps(old))
    data = json.loads(nightly("digest", str(out), "--week", "2026-W48", "--json").stdout)
    assert (data["jobs_total"], data["without_gpu_hours"], data["total"]["allocated_ns"]) == (2, 2, 60 * HOUR)
    assert "the report is of an earlier version" in data["notes"][0]


def test_names_in_markdown_are_no_markup() -> None:
    name = "``` @all <b>x</b> [a](https://evil.example)\n# title"
    row = job("a/1", parts={"data_wait": 20}, labels={"team": name, "family": name})
    text = digest_files.markdown(of(row, *trend("llama", 100, 125, 2, labels={"family": name}), by="team"))
    tokens = MarkdownIt("commonmark").parse(text)
    inline = [child.type for token in tokens for child in token.children or ()]
    assert {"link_open", "html_inline", "image"}.isdisjoint(inline)
    titles = [tokens[number + 1].content for number, token in enumerate(tokens) if token.type == "heading_open"]
    assert titles[1:] == [
        "GPU-hours by cause", "GPU-hours by `team`", "Allocated, no activity", "Jobs that lost the most", "Became worse",
        "GPU-hours by family", "Notes",
    ]  # fmt: skip
    plain = "".join(child.content for token in tokens for child in token.children or () if child.type == "text")
    assert "@all" not in plain
