"""Functions of Python profiles by steps and phases, and call trees computed on paper."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from postrun.analysis.python_profile import windows as python_windows
from postrun.analysis.python_profile.flame_graph import DEEPEST, Node, estimated
from postrun.analysis.python_profile.names import kind_of, short_names
from postrun.analysis.python_profile.profile import MOST_STEP_GROUPS, STEP_ROWS, python_profile
from postrun.analysis.report import FlameFrame
from postrun.ingest.store import Store

Maker = Callable[..., Store]
Rows = list[dict[str, Any]]


def window(number: int, start: str, end: str, **more: Any) -> dict[str, Any]:
    """``start``, ``end``: mode-step-phase, as in the names of folders."""
    (start_mode, start_step, start_phase), (end_mode, end_step, end_phase) = start.split("-"), end.split("-")
    return {
        "id": number, "node": 0, "process": 0, "profiler": "cprofile", "timer": "total_time", "start_mode": start_mode,
        "end_mode": end_mode,
        "start_step": None if start_step == "*" else int(start_step), "end_step": None if end_step == "*" else int(end_step),
        "start_phase": start_phase, "end_phase": end_phase, "start_ns": 1000 * number, "duration_ns": 500, "functions": 2, "calls": 3,
        "total_s": 1.0, **more,
    }  # fmt: skip


def function(number: int, id: int, text: str, own_times: float, total: float, calls: int | None = 1, **more: Any) -> dict[str, Any]:
    file, _, rest = text.partition(":")
    known = {"file": file, "line": int(rest.partition("(")[0])} if rest else {}
    return {
        "node": 0, "process": 0, "window": number, "id": id, "timer": "total_time", "function": text, "calls": calls,
        "primitive_calls": calls, "total_s": own_times, "cumulative_s": total, **known, **more,
    }  # fmt: skip


def call(number: int, caller: int, callee: int, total: float) -> dict[str, Any]:
    return {"window": number, "caller": caller, "callee": callee, "calls": 1, "primitive_calls": 1, "total_s": 0.0, "cumulative_s": total}


def test_without_a_profile_the_text_names_how_to_record_one(make_store: Maker) -> None:
    absent = python_profile(make_store()).absent
    assert absent is not None
    assert "PythonProfilingConfig" in absent
    assert "postrun record" in absent


@pytest.mark.parametrize(
    ("recorded", "expected"),
    [
        ("nothing: the last step that began was 20", "no Python profile is in this run: the last step that began was 20."),
        ("not complete: [Errno 28] No space left", "in this run: [Errno 28] No space left."),
        ("steps 9 to 11", "(steps 9 to 11 recorded)"),
        (None, "does not say why"),
    ],
)
def test_a_profile_that_was_asked_for_and_is_not_there_is_told_with_the_reason(
    make_store: Maker, recorded: str | None, expected: str
) -> None:
    metadata = {"profiling.python": "steps 100 to 104", **({"profiling.python.recorded": recorded} if recorded else {})}
    absent = python_profile(make_store(run=[{"metadata": json.dumps(metadata)}])).absent
    assert absent is not None
    assert absent.startswith("Python functions were to be recorded (steps 100 to 104), but ")
    assert expected in absent
    assert "To record one" not in absent


def test_a_profile_that_is_not_given_is_told_with_the_folder_that_it_was_written_to(make_store: Maker) -> None:
    recorded = "steps 100 to 101: steps 102 to 104 were not reached; the last step that began was 101"
    metadata = {"profiling.python": "steps 100 to 104", "profiling.python.recorded": recorded}
    for index, folder in (({}, "the folder of the recording"), ({"profiling.place": "/data/x"}, "/data/x")):
        absent = python_profile(make_store(run=[{"metadata": json.dumps(metadata | index)}])).absent
        assert absent is not None
        assert absent.endswith(f" It is below `framework/pytorch` in {folder} (steps 100 to 101 recorded).")


def test_the_time_of_profilers_is_told(make_store: Maker) -> None:
    # torch.profiler was on in step 9 only; of its 2 s own time 0.5 s were in its functions, 0.25 s in postrun's.
    torch = "/e/site-packages/torch/autograd/profiler.py"
    rows = [
        (0, f"{torch}:936(__enter__)", 0.25), (0, "{built-in method torch._ops.profiler.}", 0.25), (0, "{postrun's own recording}", 0.25),
        (0, "/app/a.py:1(f)", 1.25), (1, f"{torch}:936(__enter__)", 0.5), (1, "/app/a.py:1(f)", 1.5),
    ]  # fmt: skip
    store = make_store(
        python_window=[window(i, f"train-{9 + i}-stepstart", f"train-{9 + i}-stepend", total_s=2.0) for i in range(2)],
        python_profile=[function(w, i, text, own, own, first_step=9 + w, last_step=9 + w) for i, (w, text, own) in enumerate(rows)],
        host_event=[{"kind": "operator", "name": "aten::mm", "start_ns": 100, "duration_ns": 5}],
    )
    result = python_profile(store)
    assert {row.short: row.kind for row in result.rows} == {
        "torch/autograd/profiler.py:936(__enter__)": "profiler",
        "{built-in method torch._ops.profiler.(unnamed)}": "profiler",
        "{postrun's own recording}": "profiler",
        "a.py:1(f)": "own code",
    }
    (traced,) = (note for note in result.notes if "torch.profiler" in note)
    assert "traced operators in step 9 at the same time: 500 ms (25.0%)" in traced
    (ours,) = (note for note in result.notes if "postrun" in note)
    assert "250 ms" in ours


def test_names_of_bindings_are_readable() -> None:
    record = "pybind11_detail_function_record_v1_system_libstdcpp_gxx_abi_1xxx_use_cxx11_abi_1."
    names = [record, record + "_is_tracing", "{built-in method torch._ops.profiler.}", "{built-in method time.sleep}", "..."]
    shorts = short_names((name, None) for name in names)
    assert [shorts[name] for name in names[:4]] == [
        "pybind11.(unnamed)", "pybind11._is_tracing", "{built-in method torch._ops.profiler.(unnamed)}", "{built-in method time.sleep}",
    ]  # fmt: skip


def test_functions_by_steps_are_added_up_over_processes_and_windows(make_store: Maker) -> None:
    store = make_store(
        python_window=[
            window(0, "train-9-stepstart", "train-9-forwardpassend"),
            window(1, "train-9-forwardpassend", "train-10-stepstart"),
            window(2, "train-9-stepstart", "train-9-forwardpassend", process=1),
            window(3, "prestepzero-*-start", "train-0-stepstart", timer="cpu_time", duration_ns=None),
        ],
        python_profile=[
            function(0, 0, "/app/a.py:1(f)", 1.0, 2.0, 2, first_step=9, last_step=9),
            function(0, 1, "/app/a.py:9(g)", 0.5, 0.5, 4, first_step=9, last_step=9),
            function(1, 0, "/app/a.py:9(g)", 1.25, 1.5, 1, first_step=9, last_step=9),
            function(2, 0, "/app/a.py:1(f)", 0.5, 1.0, 1, first_step=9, last_step=9, process=1),
            function(3, 0, "/app/a.py:5(load)", 3.0, 3.0),
        ],
    )
    result = python_profile(store)  # modes and phases of the job are the same groups as the steps
    rows = [
        (row.label, row.timer, row.short, row.calls, row.total_s, row.cumulative_s, row.first_step, row.last_step) for row in result.rows
    ]
    assert rows == [
        ("step 9", "total_time", "a.py:9(g)", 5, 1.75, 2.0, 9, 9),
        ("step 9", "total_time", "a.py:1(f)", 3, 1.5, 3.0, 9, 9),
        ("before the first step", "cpu_time", "a.py:5(load)", 1, 3.0, 3.0, None, None),
    ]
    groups = {(one.by, one.label): one for one in result.groups}
    step = groups["steps", "step 9"]
    assert (step.windows, step.processes, step.wall_ns, step.total_s, step.calls, step.functions) == (3, 2, 1500, 3.0, 9, 2)
    assert groups["steps", "before the first step"].wall_ns is None
    expected = {key: [(row.short, row.total_s) for row in one.rows] for key, one in groups.items() if key[0] != "steps"}
    f, g = "a.py:1(f)", "a.py:9(g)"
    assert expected == {
        ("training phase", "from the step's start to forward's end"): [(f, 1.5), (g, 0.5)],
        ("training phase", "from forward's end to the next step"): [(g, 1.25)],
        ("training phase", "before the first step"): [("a.py:5(load)", 3.0)],
    }
    assert any("added up over 2 processes" in note for note in result.notes)


@pytest.mark.parametrize(
    ("start", "end", "words"),
    [
        ("train-9-stepstart", "train-9-stepend", "the whole step"),
        ("train-9-stepstart", "train-9-forwardpassend", "from the step's start to forward's end"),
        ("train-9-forwardpassend", "train-9-stepend", "from forward's end to the step's end"),
        ("train-9-stepend", "eval-0-stepstart", "between steps"),
        ("train-9-stepend", "eval-0-forwardpassend", "from the step's end to forward's end"),
        ("train-9-forwardpassend", "posthookclose-*-end", "from forward's end to the end"),
        ("train-9-warmup", "train-9-stepend", "from warmup to the step's end"),
    ],
)
def test_phases_of_a_step_have_plain_names(make_store: Maker, start: str, end: str, words: str) -> None:
    (profile_window,) = python_windows.windows(make_store(python_window=[window(0, start, end)]))
    assert python_windows.label(profile_window, "training phase") == words


def test_phases_of_the_job(make_store: Maker) -> None:
    loop = [("train-1-stepstart", "train-1-stepend"), ("train-2-stepstart", "train-2-stepend")]
    places = [("prestepzero-*-start", "train-0-stepstart"), *loop, ("posthookclose-*-start", "posthookclose-*-end")]
    store = make_store(
        python_window=[window(i, *place) for i, place in enumerate(places)],
        python_profile=[function(i, 0, "/a.py:1(f)", 1.0 + i, 1.0 + i, first_step=i, last_step=i) for i in range(4)],
    )
    result = {one.label: sum(row.total_s for row in one.rows) for one in python_profile(store).groups if one.by == "job phase"}
    assert result == {"initialization": 1.0, "training loop": 5.0, "finalization": 4.0}


def test_many_steps_are_told_together_and_functions_are_capped(make_store: Maker) -> None:
    count = MOST_STEP_GROUPS + 1
    store = make_store(
        python_window=[window(i, f"train-{i}-stepstart", f"train-{i}-stepend", timer=None) for i in range(count)],
        python_profile=[
            function(i, j, f"/a.py:{j}(f{j})", 1.0 + j, 1.0, first_step=i, last_step=i) for i in range(count) for j in range(STEP_ROWS + 5)
        ],
    )
    result = python_profile(store)
    (group,) = (one for one in result.groups if one.by == "steps")
    assert (group.label, group.windows, group.functions, len(result.rows)) == ("train", count, STEP_ROWS + 5, STEP_ROWS)
    assert (result.rows[0].short, result.rows[0].first_step, result.rows[0].last_step) == (
        f"a.py:{STEP_ROWS + 4}(f{STEP_ROWS + 4})",
        0,
        count - 1,
    )
    assert any("not stated" in note for note in result.notes)
    assert any(f"more than {MOST_STEP_GROUPS}" in note for note in result.notes)


def test_hostile_counts_do_not_overflow(make_store: Maker) -> None:
    store = make_store(
        python_window=[window(i, "train-1-stepstart", "train-1-stepend") for i in range(3)],
        python_profile=[function(i, 0, "f", 1e9, 1e9, 10**12) for i in range(3)],
    )
    row = python_profile(store).rows[0]
    assert (row.calls, row.total_s) == (3 * 10**12, 3e9)


# -- windows ------------------------------------------------------------------------------------------------------------


# -- call trees ---------------------------------------------------------------------------------------------------------


def drawn(nodes: list[Node]) -> list[tuple[str, float, float, Any]]:
    return [(node.function, round(node.total_s, 9), round(node.own_s, 9), drawn(node.children)) for node in nodes]


def tree(own_times: dict[str, float], total: dict[str, float], calls: dict[tuple[str, str], float]) -> list[tuple[str, float, float, Any]]:
    called: dict[str, float] = {}
    for (caller, callee), seconds in calls.items():
        if caller != callee:
            called[callee] = called.get(callee, 0.0) + seconds
    return drawn(estimated(own_times, total, calls, called))


def test_time_of_a_function_is_divided_over_its_callers() -> None:
    # main (10 s) calls a (6 s) and b (3 s), both call c: 4 s from a, 1 s from b; c calls d, 2 of its 5 s.
    own_times = {"main": 1.0, "a": 2.0, "b": 2.0, "c": 3.0, "d": 2.0}
    total = {"main": 10.0, "a": 6.0, "b": 3.0, "c": 5.0, "d": 2.0}
    calls = {("main", "a"): 6.0, ("main", "b"): 3.0, ("a", "c"): 4.0, ("b", "c"): 1.0, ("c", "d"): 2.0}
    assert tree(own_times, total, calls) == [
        ("main", 10.0, 1.0, [
            ("a", 6.0, 2.0, [("c", 4.0, 2.4, [("d", 1.6, 1.6, [])])]),
            ("b", 3.0, 2.0, [("c", 1.0, 0.6, [("d", 0.4, 0.4, [])])]),
        ]),
    ]  # fmt: skip


def test_the_tree_is_as_long_as_all_own_times() -> None:
    # Functions that were running when the profile began have no caller: those too short for a frame of their own are its roots.
    result = tree({"f": 9.97, "g": 0.02, "h": 0.01}, {"f": 9.97, "g": 0.02, "h": 0.01}, {})
    assert result == [("f", 9.97, 9.97, []), ("(other)", 0.03, 0.03, [])]


def test_a_function_that_calls_itself_is_one_frame() -> None:
    assert tree({"f": 2.0, "g": 1.0}, {"f": 3.0, "g": 1.0}, {("f", "f"): 2.0, ("f", "g"): 1.0}) == [("f", 3.0, 2.0, [("g", 1.0, 1.0, [])])]


def test_functions_that_call_each_other_are_opened_where_they_can_be() -> None:
    # A wrapper calls model (8 s), which calls the wrapper again (7 s), which calls layer (6 s): never model and layer at once.
    own_times = {"main": 0.0, "wrapper": 1.5, "model": 0.5, "layer": 6.0}
    total = {"main": 8.0, "wrapper": 8.0, "model": 7.25, "layer": 6.0}
    calls = {("main", "wrapper"): 8.0, ("wrapper", "model"): 7.25, ("model", "wrapper"): 6.75, ("wrapper", "layer"): 6.0}
    (main,) = tree(own_times, total, calls)
    (wrapper,) = main[3]
    model = next(one for one in wrapper[3] if one[0] == "model")
    (again,) = model[3]
    layer = next(one for one in again[3] if one[0] == "layer")
    assert (wrapper[:2], model[0], again[0]) == (("wrapper", 8.0), "model", "wrapper")
    # Own time of the wrapper, 1.5 s of 8 + 6.75 s within it, is divided over both of its frames.
    assert wrapper[2] == pytest.approx(1.5 * 8 / 14.75, abs=1e-6)
    assert model[1] == pytest.approx(8 - wrapper[2], rel=0.03)
    assert layer[1] == pytest.approx(6.0, rel=0.1)


def test_modules_within_modules_are_opened() -> None:
    # As in PyTorch, every module is called through the same two functions: net (10 s) calls block (9 s), which calls linear (8 s).
    own_times = {"call": 0.5, "impl": 0.5, "net": 0.5, "block": 0.5, "linear": 8.0}
    total = {"call": 10.0, "impl": 9.8, "net": 9.6, "block": 8.9, "linear": 8.0}
    calls = {
        ("call", "impl"): 9.8,
        ("impl", "net"): 9.6,
        ("impl", "block"): 8.9,
        ("impl", "linear"): 8.0,
        ("net", "call"): 9.1,
        ("block", "call"): 8.4,
    }
    way, nodes = [], tree(own_times, total, calls)
    while nodes:
        way.append(nodes[0][0])
        nodes = nodes[0][3]
    assert way == ["call", "impl", "net", "call", "impl", "block", "call", "impl", "linear"]


def test_a_circle_without_an_entry_begins_where_most_time_is() -> None:
    """The profile was begun within f: what calls it is in no file."""
    result = tree({"f": 1.0, "g": 1.0}, {"f": 2.0, "g": 1.5}, {("f", "g"): 1.5, ("g", "f"): 1.0})
    assert result[0][:2] == ("f", 2.0)


def test_small_frames_are_folded() -> None:
    own_times = {"main": 1.0, **{f"f{i}": 0.004 for i in range(250)}}
    total = {"main": 2.0, **{f"f{i}": 0.004 for i in range(250)}}
    (main,) = tree(own_times, total, {("main", f"f{i}"): 0.004 for i in range(250)})
    assert main[3] == [("(other)", 1.0, 1.0, [])]


def test_deep_chains_end() -> None:
    names = [f"f{i}" for i in range(3000)]
    result = tree(dict.fromkeys(names, 0.0) | {names[-1]: 1.0}, dict.fromkeys(names, 1.0), dict.fromkeys(itertools.pairwise(names), 1.0))
    depth, nodes = 0, result
    while nodes:
        depth, nodes = depth + 1, nodes[0][3]
    assert depth == DEEPEST + 1  # and what is folded


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.tuples(st.floats(0, 1e3), st.floats(0, 1e3)), min_size=1),
    st.dictionaries(st.tuples(st.sampled_from("abcdef"), st.sampled_from("abcdef")), st.floats(0, 1e3)),
)
def test_no_frame_is_longer_than_what_called_it(times: dict[str, tuple[float, float]], edges: dict[tuple[str, str], float]) -> None:
    own_times = {name: min(pair) for name, pair in times.items()}
    total = {name: max(pair) for name, pair in times.items()}
    calls = {pair: seconds for pair, seconds in edges.items() if pair[0] in own_times and pair[1] in own_times}

    def check(node: tuple[str, float, float, Any], depth: int) -> None:
        assert 0 <= node[2] <= node[1] + 1e-6
        assert sum(one[1] for one in node[3]) + node[2] <= node[1] * (1 + 1e-6) + 1e-6
        assert depth <= DEEPEST
        for child in node[3]:
            check(child, depth + 1)

    for root in tree(own_times, total, calls):
        check(root, 0)


def test_a_tree_in_the_report(make_store: Maker) -> None:
    store = make_store(
        python_window=[window(0, "train-1-stepstart", "train-1-stepend", total_s=4.0)],
        python_profile=[
            function(0, 0, "/app/x/train.py:1(main)", 1.0, 4.0), function(0, 1, "/v/site-packages/torch/nn/m.py:5(forward)", 2.0, 3.0),
            function(0, 2, "{built-in method torch.conv2d}", 1.0, 1.0), function(0, 3, "/app/x/train.py:9(tiny)", 0.0, 0.0),
        ],
        python_call=[call(0, 0, 1, 3.0), call(0, 1, 2, 1.0), call(0, 0, 3, 0.0)],
    )  # fmt: skip
    (flame,) = python_profile(store).flames
    assert (flame.label, flame.exact, flame.total_s, flame.folded, flame.deepest) == ("training loop", False, 4.0, 1, 2)
    assert flame.frames == (
        FlameFrame("train.py:1(main)", "/app/x/train.py:1(main)", "own code", 0, 0.0, 4.0, 1.0),
        FlameFrame("torch/nn/m.py:5(forward)", "/v/site-packages/torch/nn/m.py:5(forward)", "library", 1, 0.0, 3.0, 2.0),
        FlameFrame("{built-in method torch.conv2d}", "{built-in method torch.conv2d}", "built-in", 2, 0.0, 1.0, 1.0),
    )


def test_trees_of_samples_are_added_up(make_store: Maker) -> None:
    # Two windows: main 2 s (work 1.5 s) and main 1 s (work 0.5 s, io 0.25 s); io is 8.3% of all.
    sampled = {"profiler": "pyinstrument", "calls": None}
    frames = [
        {"window": 0, "id": 0, "parent": None, "function": 0, "total_s": 0.5, "cumulative_s": 2.0},
        {"window": 0, "id": 1, "parent": 0, "function": 1, "total_s": 1.5, "cumulative_s": 1.5},
        {"window": 1, "id": 0, "parent": None, "function": 0, "total_s": 0.25, "cumulative_s": 1.0},
        {"window": 1, "id": 1, "parent": 0, "function": 2, "total_s": 0.25, "cumulative_s": 0.25},
        {"window": 1, "id": 2, "parent": 0, "function": 1, "total_s": 0.5, "cumulative_s": 0.5},
    ]
    names = ["/a.py:1(main)", "/a.py:2(work)", "/a.py:3(io)"]
    functions: Rows = [
        function(i, j, text, own, total, None)
        for i, times in enumerate([[(0.5, 2.0), (1.5, 1.5), (0.0, 0.0)], [(0.25, 1.0), (0.5, 0.5), (0.25, 0.25)]])
        for j, (text, (own, total)) in enumerate(zip(names, times, strict=True))
    ]
    windows = [window(i, f"train-{i}-stepstart", f"train-{i}-stepend", **sampled) for i in range(2)]
    result = python_profile(make_store(python_window=windows, python_profile=functions, python_frame=frames))
    (flame,) = result.flames
    assert flame.exact
    assert [(one.short, one.depth, one.start_s, one.total_s, one.own_s) for one in flame.frames] == [
        ("a.py:1(main)", 0, 0.0, 3.0, 0.75),
        ("a.py:2(work)", 1, 0.0, 2.0, 2.0),
        ("a.py:3(io)", 1, 2.0, 0.25, 0.25),
    ]
    assert result.rows[0].calls is None


# -- names --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        ("/home/me/train.py", "own code"),
        ("train.py", "own code"),
        ("/usr/local/lib/python3.7/site-packages/tensorflow/python/x.py", "library"),
        ("/usr/lib/python3/dist-packages/numpy/x.py", "library"),
        ("C:\\env\\Lib\\site-packages\\torch\\x.py", "library"),
        ("/usr/lib/python3.11/json/decoder.py", "standard library"),
        ("/usr/local/lib/python3.13t/threading.py", "standard library"),
        ("C:\\Python311\\Lib\\json\\decoder.py", "standard library"),
        ("<frozen importlib._bootstrap>", "standard library"),
        ("<string>", "standard library"),
        ("<__array_function__ internals>", "library"),
        ("<stdin>", "own code"),
        ("<ipython-input-1-abc>", "own code"),
        (None, "built-in"),
    ],
)
def test_whose_code_it_is(file: str | None, kind: str) -> None:
    assert kind_of(file) == kind


def test_paths_are_as_short_as_tells_them_apart() -> None:
    files = {
        "/home/me/a/train.py:1(f)": "/home/me/a/train.py", "/home/me/b/train.py:1(f)": "/home/me/b/train.py",
        "/home/me/a/net.py:2(g)": "/home/me/a/net.py", "/e/lib/python3.11/json/decoder.py:3(h)": "/e/lib/python3.11/json/decoder.py",
        "/e/lib/python3.11/site-packages/torch/x.py:4(k)": "/e/lib/python3.11/site-packages/torch/x.py",
        "/other/site-packages/torch/x.py:4(k)": "/other/site-packages/torch/x.py", "{built-in method len}": None,
    }  # fmt: skip
    assert list(short_names(files.items()).values()) == [
        "a/train.py:1(f)", "b/train.py:1(f)", "net.py:2(g)", "json/decoder.py:3(h)", "/e/lib/python3.11/site-packages/torch/x.py:4(k)",
        "/other/site-packages/torch/x.py:4(k)", "{built-in method len}",
    ]  # fmt: skip


@given(st.lists(st.tuples(st.text("ab/.\\<>", max_size=8), st.integers(0, 2)), unique=True, max_size=12))
def test_no_two_functions_read_the_same(given_files: list[tuple[str, int]]) -> None:
    functions = {f"{file}:{line}(f)": file for file, line in given_files}
    shorts = short_names(functions.items())
    assert len(set(shorts.values())) == len(functions)
