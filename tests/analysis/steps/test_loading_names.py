"""Names of annotated ranges that count as data loading."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import duckdb
import polars as pl
import pytest
from postrun.analysis import Options, analyze
from postrun.analysis.report import Report
from postrun.analysis.steps.loading_names import DATA_LOADING
from postrun.analysis.toolkit.wording import whole_percent
from postrun.ingest.derive.steps import derive_steps
from postrun.ingest.store import Store

MakeStore = Callable[..., Store]
MS = 10**6

LOADING = (
    """
data|Data Loading|data_loading|DataLoading|data-load|data load
load data|dataload|dataloader|Dataloader|data_loader|loader|load|loading
load_batch|LoadBatch
load batch|get_batch|next_batch|next batch|fetch|fetch_batch|fetch data|get data|input|inputs|input_pipeline|batch loading
get next batch|load_3|fetch #12|## data loading ##|wait for data|Wait_For_Data|wait_data|loading minibatch
read_batch|enumerate(DataLoader)#_Iter.__next__
""".replace("\n", "|")
    .strip("|")
    .split("|")
)
OTHERS = (
    """
load checkpoint|load_state_dict|upload|download|reload|loaded|payload
load_model|workload|data parallel|DistributedDataParallel.forward|metadata
database|get|next|read|batch|data_transfer|data copy|fetch weights|input embedding|output
preload|fetcher|data augmentation|get_loss|loading bar|WAIT_FOR_DATA|WAIT_FOR_OTHER_TENSOR_DATA
""".replace("\n", "|")
    .strip("|")
    .split("|")
)


@pytest.mark.parametrize(("names", "counted"), [(LOADING, True), (OTHERS, False)])
def test_both_engines_agree_on_every_name(names: list[str], counted: bool) -> None:
    assert pl.Series(names).str.contains(DATA_LOADING).to_list() == [counted] * len(names)
    rows = duckdb.execute("SELECT regexp_matches(n, ?) FROM unnest(?) AS t(n)", [DATA_LOADING, names]).fetchall()
    assert [row[0] for row in rows] == [counted] * len(names)


def test_the_names_that_the_documentation_shows_as_examples(project_root: Any) -> None:
    text = (project_root / "docs" / "definitions.md").read_text(encoding="utf-8").partition("## Names of data loading")[2]
    page = [*re.findall(r"`([A-Za-z][\w ]*)`", text), *re.search(r"\| one word \| (.*) \|", text)[1].split(", ")]  # type: ignore[index]
    assert len(page) > 10
    assert all(re.search(DATA_LOADING, name) for name in page)
    not_counted = re.search(r"Other names are not: (.*?)\.", text)[1].split(", ")  # type: ignore[index]
    assert not any(re.search(DATA_LOADING, name) for name in not_counted)


def ranged(name: str, start: int, end: int, **more: Any) -> dict[str, Any]:
    return {"name": name, "side": "host", "start_ns": start * MS, "duration_ns": (end - start) * MS, "complete": True, **more}


def reported(make_store: MakeStore, *rows: dict[str, Any]) -> Report:
    store = make_store(annotation=list(rows))
    derive_steps(store)
    return analyze(store, Options(generated_at_ns=0))


def test_the_names_in_the_steps_are_told_in_their_order(make_store: MakeStore) -> None:
    rows = [ranged("load data", 0, 50)]  # before the first step: of the setting up
    for i in range(20):
        at = 100 + 100 * i
        rows += [ranged("step", at, at + 100, value=i), ranged("load_1", at, at + 20), ranged("fetch", at + 30, at + 45)]
        rows += [ranged("work", at + 50, at + 90), ranged("load checkpoint", at + 90, at + 95)]
    report = reported(make_store, *rows)
    [part] = report.steps.parts
    assert part.mean_ns == {"data_loader": 35 * MS, "work": 40 * MS, "load checkpoint": 5 * MS, "other": 20 * MS}
    assert part.loading_names == ("load", "fetch")
    tile = next(tile for tile in report.summary.tiles if tile.key == "data_loading")
    assert (tile.value, tile.detail) == (whole_percent(35), "of the mean step, 35.0 ms")


def test_little_loading_is_still_told(make_store: MakeStore) -> None:
    rows = [ranged("step", 0, 1000, value=0), *(ranged(f"part {c}", 100 * i, 100 * i + 90) for i, c in enumerate("abcdefg"))]
    [part] = reported(make_store, *rows, ranged("input", 900, 905)).steps.parts
    assert part.mean_ns["data_loader"] == 5 * MS
    assert len(part.mean_ns) == 7


def test_steps_without_ranges_are_not_called_unprofiled(make_store: MakeStore) -> None:
    report = reported(make_store, *(ranged("step", 10 * i, 10 * i + 10, value=i) for i in range(30)))
    tile = next(tile for tile in report.summary.figures if tile.key == "data_loading")
    assert (tile.value, tile.detail) == ("—", "nothing annotated inside of the steps")
