"""The figure of a call tree: every frame at its position, with labels that fit; and the text of its section."""

from __future__ import annotations

import dataclasses
import itertools
import re
import xml.etree.ElementTree as ET
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from page_fonts import text_width
from postrun.analysis.report import FlameFrame, FlameGraph, ProfileGroup, ProfileRow, PythonProfile, Report, Step
from postrun.report_templates.blocks import Texts
from postrun.report_templates.figures import svg
from postrun.report_templates.figures.flame_graph import Bar, fitting, flame_graph
from postrun.report_templates.figures.palette import themed
from postrun.report_templates.figures.stacked_bars import Part
from postrun.report_templates.output.pages import page
from postrun.report_templates.output.section_list import context
from postrun.report_templates.sections.python_profile import python_profile

MAIN, STEP, CONV = "/app/train.py:1(main)", "/app/train.py:9(train_step)", "{built-in method torch._C._nn.conv2d}"
FRAMES = (
    FlameFrame("train.py:1(main)", MAIN, "own code", 0, 0.0, 4.0, 0.5),
    FlameFrame("train.py:9(train_step)", STEP, "own code", 1, 0.0, 3.0, 1.0),
    FlameFrame(CONV, CONV, "built-in", 2, 0.0, 2.0, 2.0),
    FlameFrame("torch/nn/m.py:5(<lambda>)", "/e/site-packages/torch/nn/m.py:5(<lambda>)", "library", 1, 3.0, 0.25, 0.25),
    FlameFrame("(other)", "(other)", "other", 1, 3.25, 0.25, 0.25),
)
FLAME = FlameGraph("training loop", "cprofile", "cpu_time", False, 1, 1, 4.0, FRAMES, 7, 2)


def row(function: str, own_s: float, **more: Any) -> ProfileRow:
    known = {"short": function.removeprefix("/app/"), "kind": "own code", "profiler": "cprofile", "label": "step 9", **more}
    return ProfileRow(function, "cpu_time", 9, 9, known.pop("calls", 5), own_s, own_s + 1, **known)


PROFILE = PythonProfile(
    (row(MAIN, 2.0), row(STEP, 1.0, calls=9, primitive_calls=3), row(CONV, 0.5, calls=None, kind="built-in")), None,
    groups=(
        ProfileGroup("steps", "step 9", "cprofile", "cpu_time", 2, 1, 5 * 10**9, 4.0, 14, 12),
        ProfileGroup("job phase", "training loop", "cprofile", "cpu_time", 2, 1, 5 * 10**9, 4.0, 14, 12, (row(MAIN, 2.0),)),
    ),
    flames=(FLAME,), notes=("A note.",),
)  # fmt: skip


def rects(text: str) -> list[tuple[float, float, float, str]]:
    elements = []
    for element in ET.fromstring(text).iter():
        title = element.find("{*}title")
        if element.tag.endswith("rect") and title is not None:
            elements.append((*(float(element.attrib[key]) for key in ("x", "y", "width")), title.text or ""))
    return elements


@pytest.fixture
def report(rich: Report) -> Report:
    return dataclasses.replace(rich, python_profile=PROFILE)


def bar(depth: int, start: float, total: float, *names: str) -> Bar:
    return Bar(depth, start, total, names, names[0], "computation")


def test_frames_are_as_wide_as_their_time_and_below_their_callers() -> None:
    text = flame_graph([bar(0, 0, 4, "main"), bar(1, 0, 3, "a"), bar(1, 3, 0.5, "b")], [Part("own code", "computation")], 4.0)
    boxes = {title: (x, y, width) for x, y, width, title in rects(text)}
    assert boxes["main"][0] == 0
    assert boxes["main"][2] == pytest.approx(svg.WIDE, abs=1)
    assert (boxes["a"][0], boxes["b"][0]) == (0, pytest.approx(svg.WIDE * 3 / 4, abs=0.01))
    assert boxes["b"][2] == pytest.approx(svg.WIDE / 8, abs=1)
    assert boxes["main"][1] < boxes["a"][1] == boxes["b"][1]


@given(st.text(max_size=60), st.text(min_size=1, max_size=60), st.floats(0, 800))
def test_labels_fit_or_are_left_out(long: str, short: str, room: float) -> None:
    result = fitting([long, short], room)
    assert svg.width_of(result, 9.5) <= room + 1e-6 or not result
    assert not result or result in (long, short) or (result.endswith("…") and short.startswith(result[:-1]))


@given(
    st.lists(
        st.tuples(st.sampled_from([FRAMES[0].short, CONV, "torch/nn/m.py:5(<lambda>)", "NEGOTIATE_ALLREDUCE"]), st.floats(0.005, 1)),
        max_size=8,
    )
)
def test_labels_end_within_their_frames(frames: list[tuple[str, float]]) -> None:
    """As wide as the font itself has them."""
    total = sum(length for _, length in frames)
    starts = itertools.accumulate((length for _, length in frames), initial=0.0)
    text = flame_graph([bar(0, start, length, name) for start, (name, length) in zip(starts, frames, strict=False)], [], total)
    ends = {x: x + width for x, _, width, _ in rects(text)}
    labels = [one for one in ET.fromstring(text).iter() if one.tag.endswith("text") and one.attrib["y"] != "11"]
    for label in labels:
        x = float(label.attrib["x"])
        assert x + text_width(label.text or "", 9.5, code=True) <= ends[round(x - 4, 2)]


def test_nothing_is_drawn_of_an_empty_tree_but_its_axis() -> None:
    assert rects(flame_graph([], [], 0.0)) == []


@given(
    st.lists(st.tuples(st.integers(0, 39), st.floats(0, 1), st.floats(0, 1), st.text(max_size=30)), max_size=30),
    st.sampled_from([svg.WIDE, svg.SMALL]),
)
def test_no_frame_leaves_the_figure(frames: list[tuple[int, float, float, str]], width: float) -> None:
    kinds = [Part(name, "computation") for name in ("own code", "a library with a long name", "others, together")]
    text = flame_graph([bar(depth, start, total, name) for depth, start, total, name in frames], kinds, 1.0, figure_width=width)
    root = ET.fromstring(text)
    height = float(root.attrib["height"])
    for element in root.iter():
        if element.tag.endswith("rect"):
            assert 0 <= float(element.attrib["x"]) <= width
            assert float(element.attrib["x"]) + float(element.attrib["width"]) <= width + 0.5
            assert float(element.attrib["y"]) + float(element.attrib["height"]) <= height + 0.01


def test_the_section_shows_the_tree_with_full_names(report: Report) -> None:
    section = python_profile(report)
    figure = section.figures["flame-0"]
    titles = [title for *_, title in rects(figure.svg)]
    assert len(titles) == len(FRAMES)
    assert titles[1].startswith(f"{STEP}: 3.00")
    assert titles[3].startswith("/e/site-packages/torch/nn/m.py:5(<lambda>)")
    assert re.search(r"own code.*library.*built-in.*others, together", figure.svg)
    assert figure.alt.startswith("Call tree of training loop, CPU time, 4.00")
    assert "5\u00a0frames on 3\u00a0levels" in figure.alt
    assert "The frame with the most self time: {built-in method torch._C._nn.conv2d} 50.0" in figure.alt
    assert "estimate" in figure.caption
    assert "7\u00a0functions are in no frame" in figure.caption
    assert "var(--operator)" in themed(figure.svg)
    levels = [cells[0].text for cells in section.tables["frames-0"].rows]
    assert levels == ["1", "2", "3", "2", "2"]
    assert section.tables["frames-0"].pdf_rows == 0


def test_a_tree_of_the_profiler_itself_is_no_estimate(rich: Report) -> None:
    exact = dataclasses.replace(FLAME, exact=True, profiler="pyinstrument")
    section = python_profile(dataclasses.replace(rich, python_profile=dataclasses.replace(PROFILE, flames=(exact,))))
    assert "The tree is that of the profiler." in section.figures["flame-0"].caption
    assert "Pyinstrument" in section.figures["flame-0"].caption


def test_tables_of_functions_and_phases(report: Report) -> None:
    section = python_profile(report)
    assert "train.py:1(main)" in section.lead
    assert "50.0" in section.lead
    functions = section.tables["table"]
    head = [column.label for column in functions.columns]
    calls = [cells[head.index("Calls")].text for cells in functions.rows]
    assert calls == ["5", "9/3", "—"]
    assert functions.rows[0][0].title == MAIN
    assert functions.caption == "Functions by own time: CPU time (cProfile)"
    assert functions.note == "9\u00a0functions with less own time are not listed."
    assert [cells[0].text for cells in section.tables["job-phase"].rows] == ["training loop"]
    windows = section.tables["windows"]
    assert [cell.text for cell in windows.rows[0]][:3] == ["step 9", "CPU time", "cProfile"]
    assert [block.texts for block in section.blocks if isinstance(block, Texts)] == [["<bdi>A note.</bdi>"]]


def by_timers() -> PythonProfile:
    """Profile f with three timers, a step each, in two phases; g with Pyinstrument."""
    timers = (("cpu_time", 3.0), ("total_time", 2.0), ("off_cpu_time", 1.0))
    rows, groups, flames = [], [], []
    for step, (timer, own_s) in enumerate(timers, 9):
        rows.append(dataclasses.replace(row("/app/a.py:1(f)", own_s), timer=timer, label=f"step {step}"))
        groups.append(ProfileGroup("steps", f"step {step}", "cprofile", timer, 1, 1, 10**9, 4.0, 7, 1))
        for phase, part in (("from the step's start to forward's end", 0.25), ("from forward's end to the step's end", 0.75)):
            profile_row = dataclasses.replace(row("/app/a.py:1(f)", own_s * part), timer=timer, label=phase)
            groups.append(ProfileGroup("training phase", phase, "cprofile", timer, 1, 1, 10**9, 2.0, 7, 1, (profile_row,) * 5))
        flames.append(dataclasses.replace(FLAME, timer=timer))
    rows.append(dataclasses.replace(row("/app/a.py:9(g)", 9.0, calls=None), timer=None, profiler="pyinstrument", label="step 12"))
    groups.append(ProfileGroup("steps", "step 12", "pyinstrument", None, 1, 1, 10**9, 9.0, None, 1))
    flames.append(dataclasses.replace(FLAME, label="initialization", timer="total_time"))
    return PythonProfile(tuple(rows), None, tuple(groups), tuple(flames))


def test_each_timer_has_tables_of_its_own(rich: Report) -> None:
    section = python_profile(dataclasses.replace(rich, python_profile=by_timers()))
    assert "2.00\u00a0s (step 10, total time), 50.0% of that profile" in section.lead
    names = ("table", "table-1", "table-2", "table-3")
    assert [section.tables[name].caption.partition(": ")[2] for name in names] == [
        "total time (cProfile)", "CPU time (cProfile)", "off-CPU time (cProfile)", "Pyinstrument",
    ]  # fmt: skip
    heads = [[column.label for column in section.tables[name].columns] for name in names]
    own_times = [
        [cells[head.index("Own time")].text for cells in section.tables[name].rows] for name, head in zip(names, heads, strict=True)
    ]
    assert own_times == [["2.00\u00a0s"], ["3.00\u00a0s"], ["1.00\u00a0s"], ["9.00\u00a0s"]]
    assert ["Calls" in head for head in heads] == [True, True, True, False]  # samples count no calls
    phases = section.tables["training-phase-1"]
    assert phases.caption == "By phase of a step, functions with the most self time: CPU time (cProfile)"
    assert [cells[4].text for cells in phases.rows] == ["750\u00a0ms"] * 5 + ["2.25\u00a0s"] * 5
    assert "training-phase-3" not in section.tables
    assert [figure.caption.partition(":")[0] for figure in section.figures.values()] == [
        "Training loop, total time (cProfile)", "Training loop, CPU time (cProfile)", "Training loop, off-CPU time (cProfile)",
        "Initialization, total time (cProfile)",
    ]  # fmt: skip


def test_the_pdf_has_some_functions_of_every_phase(rich: Report) -> None:
    report = dataclasses.replace(rich, python_profile=by_timers())
    section = python_profile(report)
    short_table = section.tables["training-phase-1-of-each"]
    phases = [cells[0].text for cells in short_table.rows]
    assert phases == ["from the step's start to forward's end"] * 3 + ["from forward's end to the step's end"] * 3
    content = context(report, lambda *_: None)
    html, pdf = page(content, "html"), page(content, "pdf")
    assert 'id="python-profile-training-phase-1"' in html
    assert "-of-each" not in html
    assert 'id="python-profile-training-phase-1-of-each"' in pdf
    assert 'id="python-profile-training-phase-1"' not in pdf
    assert "More functions of each are in report.html" in pdf
    assert len(re.findall(r'id="python-profile-flame-\d"', html)) == 4
    assert len(re.findall(r'id="python-profile-flame-\d"', pdf)) == 3  # the training loop's, by all timers


def test_a_phase_that_is_all_of_a_phase_of_the_job_is_told_once(rich: Report) -> None:
    again = tuple(
        dataclasses.replace(group, by=by, label=label, rows=(dataclasses.replace(row(MAIN, 2.0), label=label),))
        for group in PROFILE.groups[1:]
        for by, label in (("job phase", "training loop"), ("training phase", "the whole step"))
    )
    profile = dataclasses.replace(PROFILE, groups=(PROFILE.groups[0], *again))
    section = python_profile(dataclasses.replace(rich, python_profile=profile))
    assert "job-phase" in section.tables
    assert "training-phase" not in section.tables


def test_what_a_profiler_spent_is_not_what_the_lead_names(rich: Report) -> None:
    recording = row("{postrun's own recording}", 3.0, kind="profiler")
    changed = dataclasses.replace(PROFILE, rows=(recording, *PROFILE.rows))
    section = python_profile(dataclasses.replace(rich, python_profile=changed))
    assert "train.py:1(main)" in section.lead
    assert section.tables["table"].rows[0][0].text == "{postrun's own recording}"


@pytest.mark.parametrize(("index", "processes", "expected"), [(9, 1, True), (10, 1, False), (9, 2, False)])
def test_the_longest_step_is_named_where_it_was_profiled(rich: Report, index: int, processes: int, expected: bool) -> None:
    spread = rich.steps.groups[0]
    steps = [Step("a", 0, 1, None, number, 0, took, False, took) for number, took in ((index, 12_000_000), (3, 5_000_000))]
    groups = tuple(dataclasses.replace(spread, node="a", rank=i, pid=i, slowest=tuple(steps)) for i in range(processes))
    report = dataclasses.replace(rich, python_profile=PROFILE, steps=dataclasses.replace(rich.steps, steps=tuple(steps), groups=groups))
    lead = python_profile(report).lead
    assert ("The longest step, 9 (12.0\u00a0ms with the profile), was profiled." in lead) is expected
    assert ("The longest step, 10 (12.0\u00a0ms), was not profiled." in lead) is (index == 10)
    again = dataclasses.replace(report.steps, steps=(*report.steps.steps, steps[0]))
    assert "was profiled" not in python_profile(dataclasses.replace(report, steps=again)).lead


def test_a_report_of_before_has_rows_alone(rich: Report) -> None:
    old = PythonProfile((ProfileRow("train.py:1(f)", "total_time", 5, 9, 300, 12.5, 25.0),), None)
    section = python_profile(dataclasses.replace(rich, python_profile=old))
    texts = [cell.text for cell in section.tables["table"].rows[0]]
    assert texts[0] == "train.py:1(f)"
    assert "5 to 9" in texts
    assert "—" not in texts


def test_without_a_profile_the_section_is_one_sentence(rich: Report) -> None:
    empty = python_profile(dataclasses.replace(rich, python_profile=PythonProfile((), "No Python profile: use `postrun record`.")))
    assert empty.empty
    assert "<code>postrun record</code>" in empty.lead
