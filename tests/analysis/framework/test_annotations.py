"""Annotated ranges, grouped by name without its number, compared with a plain recount."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from postrun.analysis.framework.annotations import DRAWN, REMAINDER, annotation_groups
from postrun.analysis.options import Options
from postrun.analysis.toolkit.names import base_name
from postrun.errors import UsageError
from postrun.ingest import ingest
from postrun.ingest.store import Store


def ranges(*rows: tuple[str, int], **more: Any) -> list[dict[str, Any]]:
    return [{"name": name, "side": "host", "start_ns": 0, "duration_ns": duration, **more} for name, duration in rows]


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("ProfilerStep#12", "ProfilerStep"), ("step_3", "step"), ("step 3", "step"), ("epoch 1, batch 22", "epoch 1, batch"),
        ("layer7", "layer"), ("7", "7"), ("#7", "#7"), ("forward", "forward"), ("", ""), ("a.1", "a"),
        ("nccl:all_reduce", "nccl:all_reduce"),
        ("2d conv", "2d conv"),
    ],
)  # fmt: skip
def test_base_name(name: str, base: str) -> None:
    assert pl.DataFrame({"text": [name]}).select(base_name(pl.col("text"))).item() == base


def test_groups_by_base_name_side_and_phase(make_store: Callable[..., Store]) -> None:
    rows = [
        *ranges(("step_1", 10), ("step_2", 30)), *ranges(("step_3", 20), process=1), *ranges(("step_1", 5), side="device"),
        *ranges(("step_9", 7), phase="Forward"), *ranges(("open", 1000), complete=False), *ranges(("forward", 60), complete=True),
    ]  # fmt: skip
    result = annotation_groups(make_store(annotation=rows))
    figures = [(g.name, g.side, g.phase, g.processes, g.total_ns, g.quantiles.count, g.quantiles.p50) for g in result.groups]
    assert figures == [
        ("forward", "host", None, 1, 60, 1, 60), ("step", "host", None, 2, 60, 3, 20), ("step", "host", "Forward", 1, 7, 1, 7),
        ("step", "device", None, 1, 5, 1, 5),
    ]  # fmt: skip
    assert all(sum(group.histogram.counts) == group.quantiles.count for group in result.groups)
    assert result.histograms == ("forward", "step")


def test_groups_have_the_formats_of_their_files(make_store: Callable[..., Store]) -> None:
    formats = ("one", "two", "one")
    store = make_store(source=[{"id": id, "path": str(id), "format": format} for id, format in enumerate(formats)])
    [forward] = store.name_ids(["Forward"])
    for source, (duration, phase) in enumerate(((9, None), (5, "TRAIN"), (4, None))):
        row = {"node": 0, "process": 0, "tid": 1, "side": "host", "name": forward, "start_ns": 0, "duration_ns": duration, "phase": phase}
        store.append("annotation", pl.DataFrame([row]), source=source)
    store.settle_views()
    groups = [(group.name, group.phase, group.total_ns, group.formats) for group in annotation_groups(store).groups]
    assert groups == [("Forward", None, 13, ("one",)), ("Forward", "TRAIN", 5, ("two",))]


def test_names_chosen_for_histograms(make_store: Callable[..., Store]) -> None:
    store = make_store(annotation=ranges(*((f"name {chr(97 + i)}", 100 - i) for i in range(10))))
    assert annotation_groups(store, Options(histograms=("name j", "name a"))).histograms == ("name j", "name a")
    assert len(annotation_groups(store).histograms) == DRAWN
    with pytest.raises(UsageError, match="--histogram step: no annotated range has this name; there are 'name a'"):
        annotation_groups(store, Options(histograms=("step",)))
    for chosen, drawn in ((("step", "name j"), ("name j",)), (("step",), annotation_groups(store).histograms)):
        assert annotation_groups(store, Options(histograms=chosen, histograms_if_present=True)).histograms == drawn
    assert annotation_groups(make_store(), Options(histograms=("step",), histograms_if_present=True)).histograms == ()


def test_without_annotations(make_store: Callable[..., Store]) -> None:
    result = annotation_groups(make_store())
    assert (result.groups, result.histograms) == ((), ())
    assert "record_function" in (result.absent or "")
    with pytest.raises(UsageError, match="there are none"):
        annotation_groups(make_store(), Options(histograms=("x",)))


def test_too_many_names_become_one_group_and_nothing_is_lost(make_store: Callable[..., Store], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(annotation_groups.__globals__, "MOST_GROUPS", 3)
    result = annotation_groups(make_store(annotation=ranges(*((f"n{chr(97 + i)}", 10 * (i + 1)) for i in range(6)))))
    assert [(g.name, g.total_ns, g.quantiles.count) for g in result.groups] == [
        ("nf", 60, 1), ("ne", 50, 1), ("nd", 40, 1), (REMAINDER, 60, 3),
    ]  # fmt: skip


def test_totals_of_a_real_trace(shared_data: Path) -> None:
    store = ingest([shared_data / "kineto" / "diff_pair" / "a100_rank3_of_8.json.gz"])
    expected: dict[tuple[str, str], list[int]] = defaultdict(list)
    for text, side, duration in store.frame("SELECT n.text, side, duration_ns FROM annotation a JOIN name n ON n.id = a.name").iter_rows():
        expected[re.sub(r"[\s#_:.\-]*\d+$", "", text), side].append(duration)
    result = {(g.name, g.side): g for g in annotation_groups(store).groups}
    assert result.keys() == expected.keys()
    for key, durations in expected.items():
        assert (result[key].total_ns, result[key].quantiles.count, result[key].quantiles.max) == (
            sum(durations),
            len(durations),
            max(durations),
        )
