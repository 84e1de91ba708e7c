"""Tests for results of cProfile and Pyinstrument, also damaged and hostile ones."""

from __future__ import annotations

import contextlib
import cProfile
import json
import marshal
import math
import pstats
import random
import struct
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from postrun.errors import InputError
from postrun.ingest import ingest
from postrun.ingest.python_profiles.cprofile_process import Stats, StatsError, read_stats
from postrun.ingest.python_profiles.pyinstrument_tree import MOST_BYTES, TreeError, read_tree
from postrun.ingest.python_profiles.window import rank_of, timer_of, window_of

MEMORY = 1 << 30
LEAF, CALLER = ("/app/train.py", 7, "leaf"), ("/app/train.py", 3, "caller")
BUILT_IN = ("~", 0, "<built-in method builtins.len>")
# As cProfile keeps it: primitive calls, calls, own time, cumulative time, and by caller calls, primitive calls, own, cumulative.
STATS: dict[Any, Any] = {
    CALLER: (1, 1, 0.25, 1.0, {}),
    LEAF: (2, 5, 0.5, 0.75, {CALLER: (2, 2, 0.5, 0.75), LEAF: (3, 0, 0.125, 0.25)}),
    BUILT_IN: (10, 10, 0.25, 0.25, {LEAF: (10, 10, 0.25, 0.25)}),
}
STEP = "train-9-stepstart-1783656600000001.5_train-9-stepend-1783656601000001"


def read(data: bytes) -> Stats:
    return read_stats(data, wall_seconds=60, memory=MEMORY)


def put(folder: Path, content: bytes, name: str = "python_stats", **facts: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_bytes(content)
    if facts:
        (folder / "postrun.json").write_text(json.dumps(facts))
    return path


def test_windows_functions_and_calls_are_what_the_folder_and_the_dump_say(tmp_path: Path) -> None:
    put(tmp_path / "framework/pytorch/cprofile/1234-node-a" / STEP, marshal.dumps(STATS), timer="off_cpu_time", profiler="cprofile")
    (tmp_path / "framework/pytorch/cprofile/1234-node-a" / STEP / "python_stats.html").write_text("<html>")
    with ingest([tmp_path]) as store:
        (window,) = store.frame("FROM python_window").to_dicts()
        functions = {row["function"]: row for row in store.frame("FROM python_profile").to_dicts()}
        calls = store.frame("""
            SELECT a.function AS caller, b.function AS callee, c.calls, c.primitive_calls, c.total_s, c.cumulative_s FROM python_call AS c
            JOIN python_profile AS a ON a.id = c.caller JOIN python_profile AS b ON b.id = c.callee ORDER BY ALL
        """).rows()
        process = store.frame("SELECT n.hostname, p.pid FROM process AS p JOIN node AS n ON n.id = p.node").row(0)
        notes = store.frame("FROM ingest_note").to_dicts()
        run = store.frame("SELECT started_ns, ended_ns FROM run").row(0)
    assert process == ("node-a", 1234)
    expected = {
        "profiler": "cprofile", "timer": "off_cpu_time", "start_mode": "train", "start_step": 9, "start_phase": "stepstart",
        "end_mode": "train", "end_step": 9, "end_phase": "stepend", "start_ns": 1783656600000001500, "duration_ns": 999999500,
        "functions": 3, "calls": 16, "total_s": 1.0,
    }  # fmt: skip
    assert {key: window[key] for key in expected} == expected
    leaf = functions["/app/train.py:7(leaf)"]
    assert (leaf["calls"], leaf["primitive_calls"], leaf["total_s"], leaf["cumulative_s"]) == (5, 2, 0.5, 0.75)
    assert (leaf["file"], leaf["line"], leaf["first_step"], leaf["last_step"]) == ("/app/train.py", 7, 9, 9)
    built_in = functions["{built-in method builtins.len}"]
    assert (built_in["file"], built_in["line"], built_in["calls"]) == (None, None, 10)
    caller, inner = "/app/train.py:3(caller)", "/app/train.py:7(leaf)"
    assert calls == [
        (caller, inner, 2, 2, 0.5, 0.75),
        (inner, inner, 3, 0, 0.125, 0.25),
        (inner, "{built-in method builtins.len}", 10, 10, 0.25, 0.25),
    ]
    assert run == (1783656600000001500, 1783656601000001000)
    assert notes == []


@pytest.mark.parametrize(
    ("folder", "steps", "modes", "times"),
    [
        ("prestepzero-*-start-1000_train-0-stepstart-2000", (None, None), ("prestepzero", "train"), (10**6, 2 * 10**6)),
        ("train-9-stepstart-1000_train-10-stepstart-2000", (9, 9), ("train", "train"), (10**6, 2 * 10**6)),
        ("train-9-forwardpassend-1000.25_train-11-stepend-2000", (9, 11), ("train", "train"), (1000250, 2 * 10**6)),
        ("train-4-stepend-1_eval-0-stepstart-2", (4, 0), ("train", "eval"), (1000, 2000)),
        ("posthookclose-*-start-1_posthookclose-*-end-2", (None, None), ("posthookclose", "posthookclose"), (1000, 2000)),
        ("1596585374963238.0_1596585376008161.0_151-algo-1_2", (2, 2), (None, None), (1596585374963238000, 1596585376008161000)),
        ("1596585363775342.0_1596585373504789.0_151-algo-1_-1", (None, None), ("prestepzero",) * 2, (1596585363775342000, 1596585373504789000)),  # noqa: E501
        ("something", (None, None), (None, None), (None, None)),
        ("train-99999999999999999999-stepstart-1_train-9-stepend-2", (None, None), (None, None), (None, None)),
    ],
)  # fmt: skip
def test_names_of_folders(folder: str, steps: tuple[int, int], modes: tuple[str, str], times: tuple[int, int]) -> None:
    window = window_of(Path("/x/cprofile/12-h_1") / folder / "python_stats")
    assert (window.steps, (window.start_mode, window.end_mode), (window.start_ns, window.end_ns)) == (steps, modes, times)
    if "algo" in folder:
        assert (window.host, window.number, window.label) == ("algo-1", 151, "algo-1-151")
    elif window.start_mode:
        assert (window.host, window.number) == ("h-1", 12)


def test_machine_and_process_are_those_of_the_timelines(tmp_path: Path) -> None:
    """Horovod's file names have a rank; the timeline of the process has its pid."""
    events = [
        {"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros": 1783656600000000}},
        {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "Step:ModeKeys.TRAIN"}},
        {"name": "Step", "pid": 1, "ph": "X", "ts": 5, "dur": 7, "args": {"pid": 905, "step_num": "9"}},
    ]
    pevents = tmp_path / "framework/pevents/2026071004"
    put(pevents, json.dumps(events).encode(), "1783656600000012_3-algo-2_pythontimeline.json")
    put(tmp_path / "framework/pytorch/cprofile/3-algo-2" / STEP, marshal.dumps(STATS))
    with ingest([tmp_path]) as store:
        assert store.frame("SELECT pid, rank FROM process").rows() == [(905, 3)]
        assert store.frame("SELECT DISTINCT process FROM python_profile").rows() == store.frame("SELECT DISTINCT process FROM step").rows()


@pytest.mark.parametrize("content", ['{"timer": "cpu_time"}', '{"timer": 3}', "[1]", "{", "[" * 5000, '{"timer": "wall"}', ""])
def test_the_timer_beside_a_profile(tmp_path: Path, content: str) -> None:
    (tmp_path / "postrun.json").write_text(content)
    assert timer_of(tmp_path / "python_stats") == ("cpu_time" if content == '{"timer": "cpu_time"}' else None)


@pytest.mark.parametrize(("rank", "expected"), [(3, 3), (True, None), (-1, None), (2**40, None), ("3", None), (None, None)])
def test_the_rank_beside_a_profile(tmp_path: Path, rank: object, expected: int | None) -> None:
    (tmp_path / "postrun.json").write_text(json.dumps({"rank": rank, "timer": ["cpu_time"]}))
    assert (rank_of(tmp_path / "python_stats"), timer_of(tmp_path / "python_stats")) == (expected, None)


def test_a_dump_of_this_interpreter_is_what_pstats_makes_of_it(tmp_path: Path) -> None:
    def fibonacci(n: int) -> int:
        return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

    profile = cProfile.Profile()
    profile.runcall(lambda: [fibonacci(8), sorted(range(100), key=lambda x: -x), json.loads("[1, 2]")])
    path = tmp_path / "mine.prof"
    profile.dump_stats(path)
    expected: dict[Any, Any] = pstats.Stats(str(path)).stats  # type: ignore[attr-defined]
    with ingest([path]) as store:
        rows = store.frame("SELECT function, primitive_calls, calls, total_s, cumulative_s FROM python_profile").rows()
        edges = store.frame("SELECT count(*) AS n, sum(calls)::BIGINT AS calls, sum(cumulative_s) AS s FROM python_call").row(0)
    assert sorted(rows) == sorted((pstats.func_std_string(key), *entry[:4]) for key, entry in expected.items())  # type: ignore[attr-defined]
    callers = [one for entry in expected.values() for one in entry[4].values()]
    assert edges[:2] == (len(callers), sum(one[0] for one in callers))
    assert edges[2] == pytest.approx(sum(one[3] for one in callers))


def test_cut_at_every_fiftieth_of_the_file() -> None:
    complete = marshal.dumps(
        {("/app/a.py", i, f"f{i}"): (1, 1, 0.1, 0.2, {("/app/a.py", i - 1, "g"): (1, 1, 0.1, 0.1)}) for i in range(1, 200)}
    )
    for part in range(50):
        with pytest.raises(StatsError, match=r"breaks off|damaged"):
            read(complete[: len(complete) * part // 50])
    assert read(complete).functions.height == 199


BOMBS = {
    "a list of 2 billion entries": b"[\xff\xff\xff\x7f",
    "a tuple of 2 billion entries": b"(\xff\xff\xff\x7f",
    "a negative length": b"[\xff\xff\xff\xff",
    "a text of 2 GiB": b"s\xff\xff\xff\x7fabc",
    "deep nesting": b"(\1\0\0\0" * 100_000,
    "nested dictionaries": b"{" * 100_000,
    "many lists within lists": b"[\x00\x00\x00\x04" * 40,
    "a reference to nothing": b"r\x05\0\0\0",
    "a reference to itself": b"\xa8\x01\0\0\0r\0\0\0\0",
    "a number of a million digits": b"{\x29\x03\x7a\x01a\x69\x01\0\0\0\x7a\x01b\x29\x05"
    + b"l\x00\x00\x04\x00"
    + b"\xff\x7f" * (1 << 18)
    + b"0",
    "a code object": marshal.dumps(compile("1 / 0", "x", "exec")),
    "bytes": b"\0" * 1000,
    "text": b"no profile at all",
    "pickle": b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00}\x94.",
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_bombs_are_told_and_the_next_file_is_read(bomb: bytes) -> None:
    with pytest.raises(StatsError, match=r"damaged|hostile|breaks off"):
        read(bomb)
    assert read(marshal.dumps(STATS)).functions.height == 3


WRONG = {
    "a key of two": {("a", 1): STATS[LEAF]},
    "a key of another kind": {5: STATS[LEAF]},
    "a line below zero": {("a", -1, "f"): STATS[LEAF]},
    "a line that is a bool": {("a", True, "f"): STATS[LEAF]},
    "four values": {LEAF: (1, 1, 0.1, 0.1)},
    "texts": {LEAF: ("1", 1, 0.1, 0.1, {})},
    "calls below zero": {LEAF: (-1, 1, 0.1, 0.1, {})},
    "no number": {LEAF: (1, 1, math.nan, 0.1, {})},
    "infinity": {LEAF: (1, 1, 0.1, math.inf, {})},
    "too many calls": {LEAF: (1, 10**30, 0.1, 0.1, {})},
    "too long": {LEAF: (1, 1, 0.1, 1e300, {})},
    "complex": {LEAF: (1, 1, 0.1j, 0.1, {})},
}


@pytest.mark.parametrize("entry", WRONG.values(), ids=WRONG)
def test_entries_that_no_profiler_writes_are_left_out_and_told(entry: dict[Any, Any]) -> None:
    with pytest.raises(StatsError, match="entries are not those of a profile"):
        read(marshal.dumps(entry))
    actual = read(marshal.dumps({CALLER: STATS[CALLER], **entry}))
    assert (actual.functions["name"].to_list(), actual.odd) == (["caller"], 1)


def test_callers_that_no_profiler_writes() -> None:
    callers = {CALLER: (1, 1, 0.1, 0.1), ("x", 1, "unknown"): (1, 1, 0.1, 0.1), 3: (1, 1, 0.1, 0.1), LEAF: (1, "1", 0.1, 0.1), BUILT_IN: 7}
    stats = {**STATS, LEAF: (1, 1, -0.5, 0.5, callers), ("b", 1, "c"): (1, 1, 0.0, 0.0, [1])}
    actual = read(marshal.dumps(stats))
    assert (actual.functions.height, actual.odd, actual.negative) == (4, 4, 1)
    assert actual.functions.filter(name="leaf")["total_s"].to_list() == [0.0]
    # The module profile keeps the number of calls alone.
    ids = {name: i for i, name in enumerate(actual.functions["name"])}
    row = actual.calls.filter(caller=ids[BUILT_IN[2]], callee=ids["leaf"]).row(0, named=True)
    assert (row["calls"], row["cumulative_s"]) == (7, 0.0)


def test_an_empty_profile_is_one() -> None:
    assert read(marshal.dumps({})).functions.is_empty()


def test_texts_are_bounded_and_storable() -> None:
    actual = read(marshal.dumps({("a\ud800\0b", 1, "x" * 10_000): STATS[CALLER]}))
    assert actual.functions["file"].to_list() == ["a\\ud800\ufffdb"]
    assert actual.functions["name"].str.len_chars().to_list() == [4096]


@settings(max_examples=examples(150), deadline=None)
@given(st.one_of(st.binary(max_size=200), st.binary(min_size=1, max_size=60).map(lambda tail: b"{" + tail)))
def test_random_bytes(data: bytes) -> None:
    with contextlib.suppress(StatsError):
        assert isinstance(read(data), Stats)


@pytest.mark.slow
def test_a_sound_file_with_changed_bytes() -> None:
    complete = bytearray(marshal.dumps(STATS))
    chance = random.Random(5)
    for _ in range(150):
        changed = bytearray(complete)
        for _ in range(chance.randint(1, 4)):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        try:
            actual = read(bytes(changed))
        except StatsError:
            continue
        assert actual.functions["total_s"].is_between(0, 1e9).all()


# -- processes that do not do what they should --------------------------------------------------------------------------

REPLIES = {
    "abort": ("import os\nos.abort()", "SIGABRT"),
    "segmentation fault": ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
    "exit": ("import sys\nsys.exit(7)", "exit code 7"),
    "slow": ("import time\ntime.sleep(60)", "more than 0.5 s"),
    "never reads": ("import time\nimport sys\nsys.stdout.buffer.write(b'x')\nsys.stdout.flush()\ntime.sleep(60)", "more than 0.5 s"),
    "flood": ("import sys\nwhile True: sys.stdout.buffer.write(b'\\x7f' * 65536)", "no sound answer"),
    "nothing": ("pass", "no sound answer"),
    "unknown kind": ("import sys\nsys.stdout.buffer.write(b'\\2')", "no sound answer"),
}


@pytest.mark.parametrize(("body", "message"), REPLIES.values(), ids=REPLIES)
def test_a_process_that_breaks_down_is_told(tmp_path: Path, body: str, message: str) -> None:
    child = tmp_path / "child.py"
    child.write_text(body)
    with pytest.raises(StatsError, match=message):
        read_stats(marshal.dumps(STATS) + bytes(200_000), child=child, wall_seconds=0.5 if "0.5" in message else 30)


def answer(
    functions: int = 1, calls: int = 1, *, own_time: float = 0.5, caller: int = 0, text: bytes = b"f\0n", line: int = 3, cut: int = 0
) -> bytes:
    head = struct.pack("=7q", functions, calls, 0, 0, 0, 0, len(text))
    body = struct.pack("=3q2d", line, 1, 1, own_time, 1.0) + struct.pack("=4q2d", caller, 0, 1, 1, 0.5, 0.5)
    complete = b"\1" + head + body + text
    return complete[: len(complete) - cut]


@pytest.mark.parametrize(
    "reply",
    [
        answer(cut=1), answer(functions=2), answer(calls=5), answer(functions=-1), answer(functions=1 << 60), answer(own_time=math.nan),
        answer(own_time=-1.0), answer(own_time=math.inf), answer(caller=1), answer(caller=-1), answer(text=b"f\xff\0n"), answer(text=b"f"),
        answer(text=b"f\0n\0m"), answer(line=-2), b"\1", b"\1" + bytes(8),
    ],
)  # fmt: skip
def test_answers_that_are_not_sound_are_not_believed(tmp_path: Path, reply: bytes) -> None:
    child = tmp_path / "child.py"
    child.write_text(f"import sys\nsys.stdin.buffer.read()\nsys.stdout.buffer.write({reply!r})")
    with pytest.raises(StatsError, match="no sound answer"):
        read_stats(b"x", child=child, wall_seconds=30)


def test_a_sound_answer_is_believed(tmp_path: Path) -> None:
    child = tmp_path / "child.py"
    child.write_text(f"import sys\nsys.stdout.buffer.write({answer()!r})")
    assert read_stats(b"x", child=child, wall_seconds=30).functions.row(0, named=True)["total_s"] == 0.5


def test_damaged_files_are_notes_and_the_others_are_read(tmp_path: Path) -> None:
    put(tmp_path / "a" / STEP, marshal.dumps(STATS)[:-3])
    put(tmp_path / "b" / STEP, b"")
    put(tmp_path / "c" / STEP, b"\xa9\x02", "python_stats.json")
    put(tmp_path / "d" / STEP, marshal.dumps(STATS))
    with ingest([tmp_path]) as store:
        assert store.frame("SELECT count(*) AS n FROM python_window").item() == 1
        notes = store.frame("SELECT severity, code FROM ingest_note").rows()
    assert notes == [("error", "not_readable")] * 3


def test_a_page_alone_is_nothing_usable(tmp_path: Path) -> None:
    put(tmp_path / STEP, b"<html>", "python_stats.html")
    with pytest.raises(InputError, match="nothing usable"):
        ingest([tmp_path])


# -- Pyinstrument -------------------------------------------------------------------------------------------------------


def frame(name: str, time: float, *children: Any, **more: Any) -> dict[str, Any]:
    return {"function": name, "file_path": "/app/t.py", "line_no": 3, "time": time, "children": list(children), **more}


def session(root: Any, **more: Any) -> bytes:
    return json.dumps({"start_time": 1783656600.5, "duration": 2.0, "sample_count": 9, "root_frame": root, **more}).encode()


ROOT = frame("main", 2.0, frame("work", 1.5, frame("work", 1.0, frame("[self]", 0.5)), frame("[self]", 0.25)), frame("io", 0.25))


def test_a_tree_of_pyinstrument(tmp_path: Path) -> None:
    put(tmp_path / "pyinstrument/7-h" / STEP, session(ROOT), "python_stats.json")
    with ingest([tmp_path]) as store:
        frames = store.frame("""
            SELECT f.id, f.parent, p.function, f.total_s, f.cumulative_s
            FROM python_frame AS f JOIN python_profile AS p ON p.id = f.function ORDER BY f.id
        """).rows()
        functions = store.frame("SELECT function, calls, total_s, cumulative_s FROM python_profile ORDER BY id").rows()
        (window,) = store.frame("SELECT profiler, timer, start_ns, duration_ns, calls, total_s FROM python_window").rows()
    main, work, io = (f"/app/t.py:3({name})" for name in ("main", "work", "io"))
    assert frames == [(0, None, main, 0.25, 2.0), (1, 0, work, 0.5, 1.5), (2, 1, work, 1.0, 1.0), (3, 0, io, 0.25, 0.25)]
    # Of recursive calls the outermost one alone counts as cumulative.
    assert functions == [(main, None, 0.25, 2.0), (work, None, 1.5, 1.5), (io, None, 0.25, 0.25)]
    assert window == ("pyinstrument", "total_time", 1783656600000001500, 999999500, None, 2.0)


def test_a_tree_without_a_folder_has_its_own_times(tmp_path: Path) -> None:
    with ingest([put(tmp_path, session(ROOT), "any.json")]) as store:
        assert store.frame("SELECT start_ns, duration_ns FROM python_window").row(0) == (1783656600500000000, 2_000_000_000)


def test_older_members_and_sessions(tmp_path: Path) -> None:
    old = {"function": "f", "file": "/app/o.py", "line": 4, "time": 1.0, "children": [{"function": "<built-in>", "time": 0.5}]}
    tree = read_tree(session(old))
    assert (tree.functions, tree.own_times, tree.total) == ([("/app/o.py", 4, "f"), (None, None, "<built-in>")], [0.5, 0.5], [1.0, 0.5])
    f, g = "f\0/app/o.py\x004\1l9", "g\0/app/o.py\x008\1l10\1cThing"
    records = [[[f], 0.25], [[f, g], 0.5], [["h\0/app/o.py\x001"], 0.125], [[f, "[self]\0\x000"], 0.25], [[f, g], "x"], 7]
    tree = read_tree(json.dumps({"start_time": 1, "duration": 2, "frame_records": records}).encode())
    assert tree.functions == [("/app/o.py", 4, "f"), ("/app/o.py", 8, "g"), ("/app/o.py", 1, "h")]
    assert (tree.parents, tree.own_times, tree.total, tree.odd) == ([-1, 0, -1], [0.5, 0.5, 0.125], [1.0, 0.5, 0.125], 2)


def test_what_the_installed_pyinstrument_writes(tmp_path: Path) -> None:
    pyinstrument = pytest.importorskip("pyinstrument", reason="Pyinstrument is not installed")
    renderers = pytest.importorskip("pyinstrument.renderers")

    def spin(rounds: int) -> int:
        return sum(i * i for i in range(rounds))

    profiler = pyinstrument.Profiler(interval=0.0005)
    with profiler:
        for _ in range(20):
            spin(20_000)
    tree = read_tree(profiler.output(renderers.JSONRenderer(show_all=True)).encode())
    assert any(name == "spin" for _, _, name in tree.functions)
    assert math.fsum(tree.own_times) == pytest.approx(tree.total[0], rel=0.02)
    assert tree.duration_s == pytest.approx(profiler.last_session.duration, abs=1e-5)
    profiler.last_session.save(tmp_path / "x.pyisession")
    again = read_tree((tmp_path / "x.pyisession").read_bytes())
    assert math.fsum(again.own_times) == pytest.approx(math.fsum(tree.own_times), rel=0.02)
    with ingest([tmp_path / "x.pyisession"]) as store:
        assert store.frame("SELECT functions > 0 AS some FROM python_window").item()


HOSTILE = {
    "cut": session(ROOT)[:-20],
    "empty": b"",
    "a list": b"[]",
    "another object": b'{"a": 1}',
    "frames of another kind": session([1, 2]),
    "records of another kind": b'{"frame_records": {"a": 1}}',
    "deep": b'{"root_frame": ' + b'{"children": [' * 50_000,
    "no number": session(frame("a", 1.0)).replace(b"1.0", b"NaN", 1),
    "binary": bytes(range(256)),
    "too big": b" " * (MOST_BYTES + 1),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_damaged_and_hostile_trees(data: bytes) -> None:
    with pytest.raises(TreeError):
        read_tree(data)


def test_odd_frames_are_left_out_and_told() -> None:
    odd = [frame("b", -1.0), {"function": 5, "time": 0.5}, 7, frame("c", 10**400), {"function": "e", "time": "x"}]
    tree = read_tree(session(frame("a", 1.0, *odd, frame("d", 3.0))))
    assert ([name for _, _, name in tree.functions], tree.odd, tree.own_times) == (["a", "d"], 5, [0.0, 3.0])
    assert read_tree(session(None)).functions == []


@settings(max_examples=examples(60), deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(st.sampled_from(["function", "time", "children", "file_path", "line_no", "start_time"]), inner, max_size=5)
        ),
        max_leaves=20,
    )
)
def test_any_json_is_a_tree_or_an_error(root: Any) -> None:
    for data in (json.dumps({"root_frame": root}), json.dumps({"frame_records": root})):
        try:
            tree = read_tree(data.encode("utf-8", "surrogatepass"))
        except TreeError:
            continue
        assert all(0 <= value <= 1e9 for value in (*tree.own_times, *tree.total))
        assert all(parent < i for i, parent in enumerate(tree.parents))


def test_rows_of_two_processes_and_timers(tmp_path: Path) -> None:
    for pid in (1, 2):
        put(tmp_path / f"cprofile/{pid}-h" / STEP, marshal.dumps(STATS), timer="cpu_time")
    with ingest([tmp_path]) as store:
        actual = store.frame("SELECT process, timer, count(*) AS n FROM python_profile GROUP BY ALL ORDER BY ALL")
    assert actual.select("timer", "n").rows() == [("cpu_time", 3)] * 2
    assert actual["process"].n_unique() == 2
    assert actual.schema["timer"] == pl.String
