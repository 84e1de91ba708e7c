"""The strips of the timeline, and a page with a timeline without scripts."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import re
from pathlib import Path

import numpy as np
import pytest
from made_timeline import MS, empty, large, queued, small
from postrun.analysis.report import Report
from postrun.analysis.timeline.model import NOTHING, Events, Name, Track
from postrun.report_templates.figures.gantt import KINDS, Row, gantt
from postrun.report_templates.figures.marks import Mark
from postrun.report_templates.figures.palette import MEANINGS
from postrun.report_templates.output.render import render
from postrun.report_templates.timeline.section import timeline

SHAPE = re.compile(r"M([\d.]+) ([\d.]+)h([\d.]+)v([\d.]+)")


def shapes(svg: str, meaning: str) -> list[tuple[float, ...]]:
    """Return left, top, width, and height of every part of that color."""
    paths = re.findall(rf'<path d="([^"]*)" fill="{MEANINGS[meaning]}"', svg)
    return [tuple(map(float, found)) for path in paths for found in SHAPE.findall(path)]


def test_the_views_become_three_strips_in_a_fixed_order() -> None:
    section = timeline(small())
    assert list(section.figures) == ["whole", "typical", "slowest"]
    assert "9" in section.lead
    assert section.figures["slowest"].caption.startswith("The slowest step: step 2 of rank 0, 20.0 ms. Time counts")
    assert ": the slowest" not in section.figures["slowest"].alt
    assert "GPU-0 stream 7" in section.figures["typical"].alt
    assert "GPU-0 stream 13" in section.figures["typical"].alt
    assert "stream 13" not in section.figures["slowest"].alt  # nothing runs there then


def test_an_event_stands_where_it_ran() -> None:
    """In the step of 10 ms the kernel takes 1.5 to 5.5 ms, the collective 6 to 9 ms."""
    svg = timeline(small()).figures["typical"].svg
    ticks = dict(re.findall(r'<text x="([\d.]+)" y="[\d.]+" text-anchor="\w+" fill="#57606a" font-size="10">(\d+) ms', svg))
    lines = sorted({float(x) for x in re.findall(r'<line x1="([\d.]+)"', svg)})
    assert set(ticks.values()) == {"0", "2", "4", "6", "8", "10"}
    left, pace = lines[0], (lines[-1] - lines[0]) / 10
    (kernel,) = (one for one in shapes(svg, "computation"))
    (collective,) = (one for one in shapes(svg, "communication"))
    assert abs(kernel[0] - (left + 1.5 * pace)) < 0.1
    assert abs(kernel[2] - 4 * pace) < 1
    assert abs(collective[0] - (left + 6 * pace)) < 0.1
    assert collective[1] > kernel[1]


def test_marks_are_above_the_strips_in_which_they_begin_or_end() -> None:
    """The typical step takes 0 to 10 ms, the slowest 10 to 30 ms."""
    marks = [
        Mark("dip", " to 19%", 8 * MS, 20 * MS),
        Mark("profile window", "", 1 * MS, 5 * MS, "window"),
        Mark("step 2", "", 10 * MS, 30 * MS, "slow"),
    ]
    svgs = {key: figure.svg for key, figure in timeline(small(), marks).figures.items()}
    names = {key: re.findall(r"<text [^>]*>(dip|profile window|step 2)<", svg) for key, svg in svgs.items()}
    assert names == {"whole": ["dip", "profile window", "step 2"], "typical": ["dip", "profile window"], "slowest": ["dip"]}
    x = {float(at) for at in re.findall(r'<line x1="([\d.]+)"', timeline(small()).figures["typical"].svg)}
    left, pace = min(x), (max(x) - min(x)) / 10
    dip, end = re.search(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)"[^>]*><title>dip to 19%', svgs["typical"]).groups()  # type: ignore[union-attr]
    assert float(dip) == pytest.approx(left + 8 * pace, abs=0.1)
    assert float(end) == pytest.approx(2 * pace, abs=0.1), "a mark is cut at the end of the strip"
    height = {key: float(re.search(r'height="([\d.]+)"', figure.svg)[1]) for key, figure in timeline(small()).figures.items()}  # type: ignore[index]
    assert float(re.search(r'height="([\d.]+)"', svgs["whole"])[1]) == height["whole"] + 21  # type: ignore[index]


def test_strips_for_a_narrow_screen_have_the_same_rows_and_all_kinds() -> None:
    """The kernel lasts 4 of the 10 ms, between the same ticks."""
    figure = timeline(small()).figures["typical"]
    words = {key: set(re.findall(r"<text [^>]*>([^<]*)</text>", svg)) for key, svg in (("large", figure.svg), ("small", figure.small))}
    named = {word for word in words["large"] if not word.endswith("ms")}
    assert named <= words["small"] | {"gemm"}
    x = [float(at) for at in re.findall(r'<line x1="([\d.]+)"', figure.small)]
    (kernel,) = shapes(figure.small, "computation")
    assert kernel[2] + 0.8 == pytest.approx(0.4 * (max(x) - min(x)), abs=0.1)
    assert 'width="340"' in figure.small


def test_short_events_share_columns_whose_opacity_is_what_they_cover() -> None:
    """Kernels of 5 µs every 10 µs cover half of each column: opacity 2 of 4."""
    start = np.arange(1000) * 10_000.0
    row = Row("a", start, start + 5_000, np.full(1000, KINDS.index("computation")))
    svg = gantt([row], 0, 10 * MS)
    opacities = set(re.findall(rf'fill="{MEANINGS["computation"]}" fill-opacity="([\d.]+)"', svg))
    assert opacities <= {"0.5", "0.75", "0.3"}
    assert sum(one[2] for one in shapes(svg, "computation")) > 0.98 * 600


def test_communication_beside_other_work_is_drawn_below_it() -> None:
    start = np.arange(1000) * 10_000.0
    kinds = np.where(np.arange(1000) % 2, KINDS.index("communication"), KINDS.index("computation"))
    svg = gantt([Row("a", start, start + 5_000, kinds)], 0, 10 * MS)
    assert min(one[1] for one in shapes(svg, "communication")[1:] or shapes(svg, "communication")) > min(
        one[1] for one in shapes(svg, "computation")
    )


def test_what_was_not_recorded_is_hatched_and_said() -> None:
    """The lines fill the strip from 8 to 30 ms, in the device's row only, with words."""
    figure = timeline(queued()).figures["whole"]
    assert "Hatched: nothing was recorded then" in figure.caption
    assert figure.svg.count(">not recorded<") == 1
    (strokes,) = re.findall(r'<path d="([^"]*)" stroke="#57606a"', figure.svg)
    across = [float(x) + end for x, wide in re.findall(r"M([\d.]+) [\d.]+l([\d.]+) ", strokes) for end in (0, float(wide))]
    (left, wide) = next(
        (float(x), float(w)) for x, w in re.findall(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)" height="16"', figure.svg)
    )
    assert abs(min(across) - (left + wide * 8 / 30)) < 7
    assert max(across) <= left + wide + 0.01
    assert "not recorded" not in timeline(small()).figures["whole"].svg


def test_many_devices_and_threads_are_capped_and_told() -> None:
    strip = timeline(large(4000, 40)).figures["whole"]
    assert "12 of 41 tracks are drawn" in strip.caption.replace("\u202f", " ")
    assert len(strip.svg) < 60_000


def test_names_of_events_of_several_lanes_do_not_stand_over_each_other() -> None:
    """Two events at the same time, then one alone, which is named again."""
    times = np.array([[0, 4 * MS], [1, 4 * MS + 1], [5 * MS, 9 * MS]], np.float64)
    kinds = np.full(3, KINDS.index("step"), np.int64)
    svg = gantt([Row("Steps", times[:, 0], times[:, 1], kinds, ("first", "second", "third"))], 0, 10 * MS)
    assert [name for name in ("first", "second", "third") if f">{name}<" in svg] == ["first", "third"]


def test_no_event_is_a_sentence() -> None:
    for data in (empty(), NOTHING):
        section = timeline(data)
        assert section.empty
        assert "record the run with --gpu" in section.lead


def test_samples_alone_are_told_as_such() -> None:
    alone = dataclasses.replace(small(), events=empty().events, events_total=0, views=())
    assert timeline(alone).lead == "No event, but 1\u00a0line of samples over 30.0\u00a0ms."


def test_the_strip_of_a_step_shows_what_is_annotated_in_it() -> None:
    """The first step has a range that fills it and contains two; the second does not."""
    data = small()
    tracks = (*data.tracks, Track(3, "annotations", "Annotations", 2))
    names = (*data.names, *(Name(word, word, "annotation") for word in ("whole", "forward", "backward", "half")))
    ranges = [(0, 10, 5, 0), (1, 4, 6, 1), (5, 5, 7, 1), (10, 10, 8, 0), (11, 4, 6, 1)]  # start, length, name, lane
    columns = [[len(data.tracks)] * 5, *([row[i] * MS for row in ranges] for i in (0, 1)), *([row[i] for row in ranges] for i in (2, 3))]
    columns += [[-1] * 5] * 4
    fields = [field.name for field in dataclasses.fields(data.events)]
    events = Events(
        *(
            np.append(getattr(data.events, field), more).astype(getattr(data.events, field).dtype)
            for field, more in zip(fields, columns, strict=True)
        )
    )
    drawn = timeline(dataclasses.replace(data, tracks=tracks, names=names, events=events)).figures
    assert {word: f">{word}<" in drawn["typical"].svg for word in ("whole", "forward", "backward")} == {
        "whole": False, "forward": True, "backward": True,
    }  # fmt: skip
    assert ">half<" in drawn["slowest"].svg
    assert ">forward<" not in drawn["slowest"].svg


def test_a_strip_says_once_what_it_is_of() -> None:
    captions = {key: figure.caption for key, figure in timeline(small()).figures.items()}
    assert captions["whole"].startswith("Whole run: 30.0 ms. ")
    assert captions["slowest"].startswith("The slowest step: step 2 of rank 0, 20.0")
    assert "the slowest" not in captions["slowest"]
    view = dataclasses.replace(small().views[0], label="step 2 of rank 0, 20.0 ms: the slowest, without profiled steps")
    (figure,) = timeline(dataclasses.replace(small(), views=(view,))).figures.values()
    assert figure.caption.startswith("The slowest step: step 2 of rank 0, 20.0 ms, without profiled steps. ")


def test_the_strips_are_named_as_they_are() -> None:
    data = small()
    strips = [
        timeline(dataclasses.replace(data, views=views)).facts["strips"] for views in (data.views, data.views[2:], data.views[1:], ())
    ]
    assert strips == [
        "Strips of the whole run, a typical step and the slowest step", "Strips of the whole run",
        "Strips of the whole run and a typical step", "",
    ]  # fmt: skip


def test_what_is_merged_is_said() -> None:
    assert "Of 2,000,000 events 300,000 are shown." in timeline(large(300, 2)).lead


def test_the_page_lets_exactly_its_script_run_and_has_the_data_once(rich: Report, tmp_path: Path) -> None:
    text = render(rich, tmp_path, ("html",), timeline=small())["html"].read_text(encoding="utf-8")
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.S)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in text
    assert "DecompressionStream" in script
    assert text.count('id="timeline-data"') == 1
    assert not re.search(r"https?://(?!www\.w3\.org)", script)


def test_without_a_timeline_the_page_has_neither_section_nor_script(rich: Report, tmp_path: Path) -> None:
    text = render(rich, tmp_path, ("html",))["html"].read_text(encoding="utf-8")
    assert "function addPainting(" not in text
    assert 'id="timeline"' not in text


def test_equal_input_gives_equal_bytes(rich: Report, tmp_path: Path) -> None:
    first = render(rich, tmp_path / "a", ("html",), timeline=small())["html"].read_bytes()
    assert first == render(rich, tmp_path / "b", ("html",), timeline=small())["html"].read_bytes()


def test_a_view_without_a_track_and_a_run_without_devices() -> None:
    data = small()
    host = dataclasses.replace(
        data, tracks=tuple(dataclasses.replace(one, kind="thread") if one.kind == "stream" else one for one in data.tracks)
    )
    assert "thread" in timeline(host).figures["whole"].alt or "stream" in timeline(host).figures["whole"].alt
