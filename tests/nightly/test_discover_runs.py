"""The runs below a prefix are found among other files: generated trees whose runs are known."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from postrun.ingest.object_store.objects import ObjectInfo
from postrun.nightly.discover import found_runs, to_look_at
from postrun.nightly.model import FoundRun

HOUR = 3600 * 10**9
NOW = 1_795_243_200 * 10**9
OLD, FRESH = NOW - 24 * HOUR, NOW - 60 * 10**9


def objects(*paths: str, modified_ns: int = OLD) -> list[ObjectInfo]:
    return [ObjectInfo(path, 100, f'"{i}"', modified_ns) for i, path in enumerate(paths)]


def find(listing: list[ObjectInfo], **options: object) -> dict[str, FoundRun]:
    ordered = sorted(listing, key=lambda one: one.path.encode())
    runs = list(found_runs(iter(ordered), **{"now_ns": NOW, "settle_ns": HOUR, **options}))  # type: ignore[arg-type]
    assert len({run.id for run in runs}) == len(runs)
    return {run.id: run for run in runs}


def ids(*paths: str) -> dict[str, str]:
    return {run.id: run.kind for run in find(objects(*paths)).values()}


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["a/trace.json", "a/other.pt.trace.json.gz"], {"a": "traces"}),
        (["trace.json"], {".": "traces"}),
        (["dcgm/dcgm.h1.csv", "job-1/trace.json"], {"dcgm": "traces", "job-1": "traces"}),
        (["logs/node-1/nvidia-smi.csv", "logs/node-2/nvidia-smi.csv"], {"logs": "traces"}),
        (["logs/nvidia-smi.csv", "trace.json"], {".": "traces"}),
        (["gpu/dcgm.csv", "smi/nvidia-smi.csv"], {".": "traces"}),
        (["nvidia-smi.csv", "dcgm/dcgm.csv"], {".": "traces"}),
        (["gpu/nvidia-smi.csv", "gpu/trace.json"], {".": "traces", "gpu": "traces"}),
        (["a/report1.sqlite.gz", "b/nsys/rank0.sqlite.zst"], {"a": "traces", "b": "traces"}),
        (["a/nvidia-smi.node7.csv", "a/logs/dcgm.csv.gz", "a/rank0/trace.json"], {"a": "traces"}),
        (["a/h.1.2.prt", "a/smi.csv", "b/smith.csv", "c/logs/nvidia-smi.log"], {"a": "recording", "c": "traces"}),
        (["a/rank0/trace.json", "a/rank_1/trace.json", "a/rank-2-of-4/trace.json.zst", "a/Rank 3/trace.json"], {"a": "traces"}),
        (["a/node0/rank0/t.trace.json", "a/node1/rank1/t.trace.json"], {"a": "traces"}),
        (["a/algo-1/trace.json", "a/ip-10-0-0-7/trace.json", "a/ip-10-0-0-8.ec2.internal/trace.json"], {"a": "traces"}),
        (["a/gpu-box/gpu-box_411.1772531534073146912.pt.trace.json", "a/x.y/x.y_9.1772531534073.pt.trace.json.gz"], {"a": "traces"}),
        (["a/kineto/rank0.json.gz", "a/job.json"], {"a": "traces"}),
        (["a/rank-0.json.gz", "a/rank-1.json.gz"], {"a": "traces"}),
        (["a/trace.json", "a/b/trace.json", "a/b/c/trace.json"], {"a": "traces", "a/b": "traces", "a/b/c": "traces"}),
        (["a/b/trace.json", "a-b/trace.json", "a/trace.json"], {"a": "traces", "a/b": "traces", "a-b": "traces"}),
        (["rank0/trace.json", "rank1/trace.json"], {".": "traces"}),
        (["j/profiler-output/system/incremental/1772531220.algo-1.json", "j/job.json", "j/kineto/r.pt.trace.json"], {"j": "hosted"}),
        (["profiler-output/framework/pevents/2026030309/1772_0-algo-1_pythontimeline.json"], {".": "hosted"}),
        (["j/system/incremental/1772531220.algo-1.json", "j/framework/pytorch/detailed_profiling/x/y.json"], {"j": "hosted"}),
        (["j/1591160699.algo-1.json"], {"j": "hosted"}),
        (["j/framework/pytorch/cprofile/7-h/train-9-stepstart-1.0_train-9-stepend-2.0/python_stats"], {"j": "hosted"}),
        (["j/framework/pytorch/pyinstrument/7-h/train-9-stepstart-1.0_train-9-stepend-2.0/python_stats.html"], {}),
        (["j/framework/pytorch/cprofile/7-h/train-9-stepstart-1.0_train-9-stepend-2.0/main.prof"], {"j": "hosted"}),
        (["j/framework/pytorch/pyinstrument/7-h/train-9-stepstart-1.0_train-9-stepend-2.0/s.pyisession"], {"j": "hosted"}),
        (["j/cprofile/7-h/train-9-stepstart-1.0_train-*-stepend-2.5/python_stats", "j/trace.json"], {"j": "traces"}),
        (["j/cProfile/1591.5_1592_7-h_-1/python_stats", "j/pyinstrument/python_stats.json", "j/a.pstats"], {"j": "traces"}),
        (["j/rank0/main.prof", "j/rank1/main.prof", "k/s.pyisession", "l/x.pstat"], {"j": "traces", "k": "traces", "l": "traces"}),
        (["site-packages/a.prof", "checkpoints/python_stats", "j/postrun.json"], {}),
        (["j/system/incremental/2026030309/1772531220.algo-1.json.gz"], {"j": "hosted"}),
        (["j/framework/pevents/2026030309/1772_0-algo-1_pythontimeline.json.gz"], {"j": "hosted"}),
        (["j/nsys/report1.sqlite", "j/trace.json", "k/rank0/nsight-systems/a.sqlite"], {"j": "traces", "k": "traces"}),
        (["j/logs/node-3/nvidia-smi.csv", "j/logs/node-4/nvidia-smi.csv", "j/rank0/trace.json"], {"j": "traces"}),
        (["j/nvidia-smi-dmon.h1.csv.2.gz", "k/gpu/dcgmi-dmon.h1.tsv", "l/gpu_util.csv", "m/dmon.txt"], dict.fromkeys("jklm", "traces")),
        (["j/horovod_timeline", "k/hvd-timeline.txt", "l/horovod.yaml", "m/gpus_used.md"], {"j": "traces", "k": "traces"}),
        (["system/training_job_end.ts", "framework/training_job_end.ts"], {}),
        (["r/host.12.1772531220-1.prt", "r/host.12.1772531220-2.prt", "r/host.13.17725.prt", "r/.postrun-run/job"], {"r": "recording"}),
        (["r/host/host.12.1772531220.prt", "r/rank1/other.prt", "r/rank1/p.pt.trace.json"], {"r": "recording"}),
        (["a/report1.sqlite", "a/report1.nsys-rep", "b/rank0/nsys.sqlite", "b/rank1/nsys.sqlite"], {"a": "traces", "b": "traces"}),
        (["s/a.duckdb", "s/b.duckdb"], {"s/a.duckdb": "store", "s/b.duckdb": "store"}),
        (["s/run.duckdb", "s/trace.json"], {"s": "traces"}),
        (["s/run.duckdb", "s/job.json"], {"s/run.duckdb": "store"}),
        (["s/run.duckdb", "s/train-gpu.log"], {"s/run.duckdb": "store"}),
        (["t/a.duckdb", "t/b.duckdb", "t/gpu.csv", "t/x.prof"], {"t/a.duckdb": "store", "t/b.duckdb": "store"}),
        (["s/run.duckdb", "s/nvidia-smi.csv", "s/python_stats", "s/horovod_timeline"], {"s/run.duckdb": "store"}),
        (["s/run.duckdb", "s/h.1.2.prt", "s/gpu.csv"], {"s": "recording"}),
        (["a/torch_trace/dedicated_log_torch_trace_rank_0_x.log", "b/dedicated_log_torch_trace_x.log.gz"], {"a": "traces", "b": "traces"}),
        (["job.json", "README.md", "x/config.json", "x/model.safetensors"], {}),
        (["a/.hidden/trace.json", ".cache/trace.json", "a/.trace.json", "a//trace.json", "a/"], {}),
        (["a/checkpoints/trace.json", "a/checkpoint-500/trainer.json", "a/b/profiler-reports/LowGPUUtilization.json"], {}),
        (["a/plugins/profile/2026_01_01/host.trace.json.gz", "a/plugins/profile/2026_01_02/host.trace.json.gz"], {"a": "traces"}),
        (["a/plugins/profile/2026_01_01/host.xplane.pb", "a/plugins/profile/2026_01_01/x.json"], {}),
        (["ckpt/plugins/profile/2026_01_01/host.trace.json.gz"], {}),
        (["j/framework/tensorflow/detailed_profiling/2020080513/5/plugins/profile/d/h.trace.json.gz"], {"j": "hosted"}),
        (["j/framework/tensorflow/detailed_profiling/2020080513/5/1-h_1_2.metadata"], {}),
        (["index.json", "index.claim.json", "index.parquet", "runs/a/done.json", "runs/a/claim.json", "runs/a/0/report.json"], {}),
    ],
)  # fmt: skip
def test_layouts(paths: list[str], expected: dict[str, str]) -> None:
    assert ids(*paths) == expected


@pytest.mark.parametrize(
    "paths",
    [
        ["j/profiler-output/system/incremental/1772531220.algo-1.json", "j/nvidia-smi.algo-1.log", "j/worker.json"],
        [f"j/cprofile/7-h/train-9-stepstart-1.0_train-9-stepend-2.0/{name}" for name in ("python_stats", "postrun.json")],
        ["j/h.1.2.prt", "j/logs/gpu.csv", "j/rank0/main.prof", "j/rank0/profile.json"],
        [
            "j/rank0/main.trace.json",
            "j/rank0/main.prof",
            "j/nsys/a.sqlite",
            "j/nvidia-smi.titan.log",
            "j/torch_trace/dedicated_log_torch_trace_x.log",
            "j/plugins/profile/d/h.trace.json.gz",
        ],
    ],
)
def test_what_postrun_report_reads_of_a_run_is_in_it(paths: list[str]) -> None:
    actual = find(objects(*paths)).values()
    assert {run.id: sorted(one.path for one in (*run.objects, *run.perhaps)) for run in actual} == {"j": sorted(paths)}


def test_what_postrun_writes_below_the_source_is_not_looked_into() -> None:
    listing = objects("a/trace.json", "reports/runs/a/x/trace.json", "reports-old/trace.json")
    assert set(find(listing, exclude=("reports",))) == {"a", "reports-old"}


@pytest.mark.parametrize(
    ("fresh", "old", "complete"),
    [
        (["j/system/incremental/1772531220.algo-1.json"], [], False),
        (["j/system/incremental/1772531220.algo-1.json", "j/system/training_job_end.ts"], [], True),
        (["j/framework/training_job_end.ts"], ["j/system/incremental/1772531220.algo-1.json"], True),
        (["j/trace.json"], ["j/trace0.json"], False),
        ([], ["j/trace.json", "j/trace0.json"], True),
        (["j/h.1.2.prt", "j/.postrun-run/job"], [], False),
        (["j/h.1.2.prt", "j/.postrun-run/job", "j/.postrun-run/job.ended"], [], True),
        (["j/h.1.2.prt", "j/.postrun-run/rank-0", "j/.postrun-run/rank-0.ended", "j/.postrun-run/rank-1"], [], False),
        (["j/h.1.2.prt", "j/.postrun-run/rank-0", "j/.postrun-run/rank-0.1", "j/.postrun-run/rank-0.1.ended"], [], True),
        (["j/.postrun-run/rank-0"], ["j/h.1.2.prt"], True),
        (["j/s.duckdb"], [], False),
    ],
)  # fmt: skip
def test_a_run_is_complete_by_its_end_marker_or_by_age(fresh: list[str], old: list[str], complete: bool) -> None:
    (run,) = find(objects(*fresh, modified_ns=FRESH) + objects(*old)).values()
    assert run.complete is complete


def test_a_recorder_that_has_not_ended_is_known() -> None:
    files = ["a/h.1.2.prt", "a/.postrun-run/job", "b/h.1.2.prt", "b/.postrun-run/job", "b/.postrun-run/job.ended", "c/h.1.2.prt"]
    files += ["d/h.1.2.prt", "d/nvidia-smi.csv", "d/.postrun-run/rank-0"]
    assert {name: run.recording for name, run in find(objects(*files)).items()} == {"a": True, "b": False, "c": False, "d": True}


def test_without_a_time_to_settle_the_clock_of_the_store_may_be_ahead() -> None:
    listing = objects("j/trace.json", modified_ns=FRESH)
    assert [run.complete for run in found_runs(listing, now_ns=FRESH - 10**9, settle_ns=0)] == [True]
    assert [run.complete for run in found_runs(listing, now_ns=FRESH - 10**9, settle_ns=1)] == [False]


def test_the_fingerprint_changes_with_path_size_and_etag_alone() -> None:
    first = ObjectInfo("a/trace.json", 5, '"x"', OLD)
    versions = [
        [first],
        [ObjectInfo("a/trace2.json", 5, '"x"', OLD)],
        [ObjectInfo("a/trace.json", 6, '"x"', OLD)],
        [ObjectInfo("a/trace.json", 5, '"y"', OLD)],
        [ObjectInfo("a/trace.json", 5, None, OLD)],
        [first, ObjectInfo("a/trace2.json", 5, '"x"', OLD)],
    ]
    prints = {find(version)["a"].fingerprint for version in versions}
    assert len(prints) == len(versions)
    assert all(len(text) == 64 and not set(text) - set("0123456789abcdef") for text in prints)
    touched = find([ObjectInfo("a/trace.json", 5, '"x"', OLD + 5), *objects("a/model.pt", "b/trace.json")])["a"]
    assert touched.fingerprint == find([first])["a"].fingerprint
    assert touched.fingerprint == hashlib.sha256(b'a/trace.json\x005\x00"x"\n').hexdigest()


def test_json_of_any_name_is_looked_at_largest_first() -> None:
    sizes = {"a/x.json": 5, "a/y.json.gz": 50, "a/z.json": 7, "a/w.json": 1}
    listing = [ObjectInfo(path, size, "e", OLD) for path, size in sizes.items()]
    assert [one.path for one in to_look_at(find(listing)["a"])] == ["a/y.json.gz", "a/z.json", "a/x.json"]
    assert to_look_at(find([*listing, *objects("a/trace.json")])["a"]) == ()
    # A small profile is not hidden by large files of another kind.
    more = [ObjectInfo("a/main.prof", 2, "e", OLD), ObjectInfo("a/gpu.log.gz", 1, "e", OLD)]
    assert [one.path for one in to_look_at(find([*listing, *more])["a"])][3:] == ["a/main.prof", "a/gpu.log.gz"]


def test_a_hundred_thousand_objects_are_let_go_as_their_runs_end() -> None:
    taken = 0

    def listing() -> Iterator[ObjectInfo]:
        nonlocal taken
        yield ObjectInfo("0.trace.json", 1, "e", OLD)
        for job in range(2_000):
            for part in range(40):
                taken += 1
                yield ObjectInfo(f"job-{job:05d}/rank{part:02d}/trace.json", 1, "e", OLD)
            for part in range(10):
                taken += 1
                yield ObjectInfo(f"job-{job:05d}/unrelated-{part:02d}.bin", 1, "e", OLD)

    total = 0
    for run in found_runs(listing(), now_ns=NOW, settle_ns=0):
        if run.id == ".":
            assert taken == 100_000
            continue
        total += 1
        assert len(run.objects) == 40
        assert taken <= total * 50 + 1  # handed over when the first object of the next folder was seen
    assert total == 2_000


# ------------------------------------------------------------------------------ random trees


@dataclass
class Laid:
    """A tree, and the runs that were laid out in it: id -> (kind, paths)."""

    paths: set[str] = field(default_factory=set)
    runs: dict[str, tuple[str, set[str]]] = field(default_factory=dict)


END, TIMELINE = "system/training_job_end.ts", "framework/pevents/2026030309/1_2_model_timeline.json"
NAMES = ("a", "a-b", "a.b", "exp", "exp2", "job-7", "März", "日", "x y", "run=3", "z~")
RANK = ("rank0", "rank_1", "worker-12", "node3", "algo-2", "ip-10-1-2-3", "kineto", "traces")
NOISE = (
    "README.md",
    "model.safetensors",
    "config.json",
    "report.json",
    "x.parquet",
    "events.out.tfevents.1",
    ".hidden.trace.json",
    "a.prt.tmp",
)


def join(*parts: str) -> str:
    return "/".join(part for part in parts if part)


@st.composite
def trees(draw: st.DrawFn) -> Laid:
    laid = Laid()
    folders = draw(st.lists(st.lists(st.sampled_from(NAMES), max_size=4).map("/".join), unique=True, max_size=12))
    for folder in folders:
        kind = draw(st.sampled_from(["traces", "ranks", "hosted", "bare", "recording", "stores", "noise"]))
        paths: set[str] = set()
        if kind == "traces":
            paths = {join(folder, f"{name}.pt.trace.json.gz") for name in draw(st.sets(st.sampled_from("abc"), min_size=1))}
        elif kind == "ranks":
            below = st.lists(st.sampled_from(RANK), min_size=1, max_size=3).map("/".join)
            paths = {join(folder, rank, "trace.json") for rank in draw(st.sets(below, min_size=1, max_size=4))}
        elif kind in ("hosted", "bare"):
            base = join(folder, "profiler-output" if kind == "hosted" else "")
            minutes = range(1772531220, 1772531220 + 60 * draw(st.integers(1, 3)), 60)
            paths = {join(base, "system/incremental/2026030309", f"{minute}.algo-1.json") for minute in minutes}
            paths |= {join(base, name) for name in draw(st.sets(st.sampled_from([END, TIMELINE])))}
        elif kind == "recording":
            paths = {join(folder, f"host.{pid}.17725312200000-{pid}.prt") for pid in draw(st.sets(st.integers(1, 4), min_size=1))}
        elif kind == "stores":
            for name in draw(st.sets(st.sampled_from("abc"), min_size=1)):
                store = join(folder, f"{name}.duckdb")
                laid.paths.add(store)
                laid.runs[store] = ("store", {store})
        if paths:
            named = {"ranks": "traces", "bare": "hosted"}.get(kind, kind)
            laid.runs[folder or "."] = (named, paths)
        laid.paths |= paths | {join(folder, name) for name in draw(st.sets(st.sampled_from(NOISE), max_size=3))}
    return laid


@settings(max_examples=examples(150), deadline=None)
@given(trees())
def test_exactly_the_runs_that_were_laid_out_are_found(laid: Laid) -> None:
    actual = find(objects(*sorted(laid.paths)))
    assert {run.id: (run.kind, {one.path for one in run.objects}) for run in actual.values()} == laid.runs
    for run in actual.values():
        assert [one.path for one in run.objects] == sorted((one.path for one in run.objects), key=str.encode)


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=30), unique=True, max_size=30))
def test_any_names_go_through(paths: list[str]) -> None:
    for run in find(objects(*paths)).values():
        assert run.id
        assert run.objects
