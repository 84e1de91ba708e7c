"""Tests of real files of the hosted profiler: counts and times are those of its own reader."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import polars as pl
import pytest
from postrun.ingest.discover import format_of
from postrun.ingest.hosted.system_metrics import read_system_metrics_many, recognizes_system_metrics
from postrun.ingest.hosted.timelines import read_pevents, recognizes_pevents
from postrun.ingest.store import Store
from postrun.ingest.store.format_names import TIMELINE
from postrun.ingest.store.registry import ReadResult, Registry


@pytest.fixture(scope="module")
def smdebug(shared_data: Path) -> Path:
    folder = shared_data / "smdebug"
    if not folder.is_dir():
        pytest.skip(f"no files of the hosted profiler: {folder} is no folder")
    return folder


def metrics(*paths: Path) -> tuple[pl.DataFrame, list[ReadResult], Store]:
    for path in paths:
        assert recognizes_system_metrics(path.read_bytes()[:4096], path.as_posix())
    store = Store.create(None)
    results = read_system_metrics_many(store, [(path, index) for index, path in enumerate(paths)], Registry(store))
    return store.frame("SELECT * FROM sample"), results, store


def timelines(*paths: Path) -> tuple[pl.DataFrame, Store]:
    """Annotations of the files with ``text``, the name, and ``end_ns``."""
    store = Store.create(None)
    registry = Registry(store)
    for index, path in enumerate(sorted(paths)):
        assert recognizes_pevents(path.read_bytes()[:4096], path.as_posix())
        read_pevents(store, path, index, registry)
    return store.frame("SELECT a.*, n.text, start_ns + duration_ns AS end_ns FROM annotation a JOIN name n ON n.id = a.name"), store


def pevents(folder: Path) -> list[Path]:
    return sorted((folder / "framework" / "pevents").rglob("*.json"))


def within(frame: pl.DataFrame, first_us: int, last_us: int) -> int:
    """Events that overlap the closed range."""
    return frame.filter((pl.col("end_ns") >= first_us * 1000) & (pl.col("start_ns") <= last_us * 1000)).height


def test_metrics_of_one_file(smdebug: Path) -> None:
    samples, [result], store = metrics(smdebug / "1591160699.algo-1.json")
    assert result == ReadResult(14, 1_591_160_699_457_089_400, 1_591_170_699_457_080_000)
    assert samples.filter(pl.col("metric").str.starts_with("cpu")).height == 4
    assert samples.filter(pl.col("time_ns") <= 1_591_167_699_957_200_000).height == 11
    assert samples.filter(pl.col("time_ns") >= 1_591_169_699_457_900_000).height == 2
    assert store.frame("SELECT hostname, cores, gpus FROM node").rows() == [("algo-1", 2, 2)]


def test_metrics_of_a_cut_file(smdebug: Path) -> None:
    samples, [result], store = metrics(smdebug / "1591160699.algo-1.json.corrupt")
    assert (samples.height, result.events) == (13, 13)
    assert store.frame("SELECT code, count FROM ingest_note").rows() == [("corrupt_line", 1)]


def test_metrics_of_a_folder(smdebug: Path) -> None:
    samples, results, _ = metrics(*sorted((smdebug / "test_traces" / "system").rglob("*.json")))
    assert [result.events for result in results] == [14, 32, 32]
    assert samples.filter(pl.col("metric").str.starts_with("cpu")).height == 68
    assert samples.filter(pl.col("time_ns") <= 1_591_167_699_000_000_000).height == 10
    assert samples.filter(pl.col("time_ns") >= 1_591_748_165_000_000_000).height == 32


def test_model_timeline(smdebug: Path) -> None:
    events, store = timelines(smdebug / "1589314018481947000_1234-testhost_model_timeline.json")
    assert events.height == 49
    assert events["phase"].unique().to_list() == ["DataIterator"]
    assert within(events, 0, 1_589_314_018_470_000) == 39
    assert (events["start_ns"].min(), events["end_ns"].max()) == (1_589_314_018_458_743_000, 1_589_314_018_481_947_000)
    assert store.frame("SELECT hostname, pid, label FROM process JOIN node ON node.id = node").rows() == [
        ("testhost", 1234, "1234-testhost")
    ]


def test_step_events_of_a_rotated_timeline(smdebug: Path) -> None:
    events, _ = timelines(*pevents(smdebug / "test_traces"))
    assert within(events, 1_589_930_980_000_000, 1_589_930_995_000_000) == 4
    assert sorted(events["value"]) == [1, 2, 3, 4]
    assert events["duration_ns"].unique().to_list() == [1_000_000_000]


def test_phases_declared_anew_in_the_middle(smdebug: Path) -> None:
    events, store = timelines(*pevents(smdebug / "model_timeline_traces"))
    assert dict(events.group_by("phase").len().rows()) == {"DataIterator": 100, "NcclManager": 9}
    assert dict(events.group_by("text").len().rows())["kAllReduce"] == 9
    assert within(events, 1_590_461_127_873_222, 1_590_461_139_949_971) == 54
    assert store.frame("SELECT label FROM process").rows() == [("0001",)]


def test_horovod_timeline(smdebug: Path) -> None:
    events, store = timelines(*pevents(smdebug / "horovod_timeline_traces"))
    assert events.height == 19
    assert within(events, 1_593_673_051_473_000, 1_593_673_051_473_228) == 12
    assert within(events, 1_593_673_051_472_800, 1_593_673_051_473_100) == 15
    assert (events["start_ns"].min(), events["end_ns"].max()) == (1_592_860_696_000_713_000, 1_593_673_051_473_228_000)
    counts = dict(store.frame("SELECT code, sum(count)::BIGINT FROM ingest_note GROUP BY code").rows())
    assert counts == {"unclosed_begin": 4, "stray_end": 2, "not_shown": 2, "no_events": 1, "absurd_duration": 19}


def test_raw_horovod_timeline_counts_from_zero(smdebug: Path) -> None:
    store = Store.create(None)
    path = smdebug / "horovod_timeline_small.json"
    known = format_of(path)
    assert known is not None
    assert known.name == TIMELINE
    expected = json.loads(path.read_text())
    assert Counter(one["ph"] for one in expected) == {"M": 30, "X": 19, "B": 4, "E": 2, "i": 2}
    result = read_pevents(store, path, 0, Registry(store))
    # the two nameless ends close the begins of pids 1 and 2; the complete events are marks of ranks that were ready
    assert all((one["dur"], one["name"].isdecimal()) == (0, True) for one in expected if one["ph"] == "X")
    assert result == ReadResult(2, 77_575_718_041_000, 77_576_058_948_000, relative=True)
    counts = dict(store.frame("SELECT code, count FROM ingest_note").rows())
    assert counts == {"relative_times": 1, "unclosed_begin": 2, "not_shown": 2, "rank_ready": 19}
    tensors = {one["pid"]: one["args"]["name"] for one in expected if one.get("name") == "process_name"}
    assert set(store.frame("SELECT phase FROM annotation")["phase"]) == {tensors[1], tensors[2]}


def test_two_timelines_of_one_process(smdebug: Path) -> None:
    events, store = timelines(*pevents(smdebug / "merge_traces"))
    assert events.height == 702
    assert dict(events.group_by("phase").len().rows()) == {"Step:ModeKeys.TRAIN": 30, "Step:ModeKeys.EVAL": 10, "DataIterator": 662}
    assert store.frame("SELECT pid, rank, label FROM process").rows() == [(905, None, "905-b88ab1bb8259")]

    window = events.filter((pl.col("end_ns") >= 1_594_662_618_874_598_000) & (pl.col("start_ns") <= 1_594_662_623_418_701_000))
    assert window.filter(pl.col("phase") != "DataIterator").height == 15
    assert window.filter(pl.col("phase") == "DataIterator").height == 216

    train = events.filter(pl.col("phase") == "Step:ModeKeys.TRAIN")
    two = train.filter(pl.col("value").is_in([2, 3]))
    assert two.height == 2
    # steps 2 and 3: from the start of step 2 to the microsecond before step 4
    first, after = train.filter(pl.col("value").is_in([2, 4])).sort("value")["start_ns"] // 1000
    interval = (first, after - 1)
    assert interval == (1_594_662_617_507_447, 1_594_662_617_676_640)
    during = events.filter(pl.col("phase") == "DataIterator")
    assert within(during, *interval) == 20


def test_step_durations_of_the_merged_timelines(smdebug: Path) -> None:
    events, _ = timelines(*pevents(smdebug / "merge_traces"))
    seconds = events.filter(pl.col("phase") == "Step:ModeKeys.TRAIN")["duration_ns"] / 1e9
    mean, deviation = seconds.mean(), seconds.std(ddof=0)
    assert isinstance(mean, float)
    assert isinstance(deviation, float)
    assert mean == pytest.approx(0.3821861, abs=5e-8)
    assert deviation == pytest.approx(1.60413650, abs=5e-9)
    expected = {1.0: 9.020725, 0.99: 6.42998448, 0.95: 0.08598545, 0.5: 0.0842345, 0.0: 0.083633}
    for share, value in expected.items():
        assert seconds.quantile(share, interpolation="linear") == pytest.approx(value, abs=5e-9)
    assert (seconds > mean + 3 * deviation).sum() == 1
