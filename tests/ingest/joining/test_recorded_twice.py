"""Tests for a process that two tracers recorded at the same time on different GPUs."""

from __future__ import annotations

import pytest
from made_tracers import BASE, MS, Made, work
from postrun.ingest.store import Store
from postrun.ingest.store.format_names import NSIGHT, TRACE

LATER = BASE + MS // 2


@pytest.mark.parametrize("order", [(NSIGHT, TRACE), (TRACE, NSIGHT)])
def test_a_gpu_that_only_one_of_them_has_is_kept_with_its_launches(order: tuple[str, str]) -> None:
    with Store.create(None) as store:
        builder = Made(store)
        process = builder.process("node7", 4242, rank=0)
        first, second = work(1), work(2, begin=LATER)
        for format in order:
            builder.source(format, {process: first + second if format == NSIGHT else first})
        # The second half of the export ran on GPU 1.
        store.connection.execute("UPDATE raw.device_event SET device = 1 WHERE correlation > 60")
        builder.settle()
        actual = store.frame("SELECT device, count(*), sum(duration_ns) FROM device_event GROUP BY ALL ORDER BY ALL").rows()
        assert actual == [(0, 60, sum(duration for _, duration in first)), (1, 60, sum(duration for _, duration in second))]
        launches = store.frame("SELECT start_ns FROM host_event WHERE kind = 'launch' ORDER BY 1")["start_ns"].to_list()
        assert launches == sorted(start - 5000 for start, _ in first + second), "one for each kernel, none twice"
        (text,) = builder.told("recorded_twice")[:1]
        assert "It has nothing of GPU 1: of that this file's counts." in text


def test_where_all_gpus_are_in_both_nothing_is_said_of_a_gpu() -> None:
    with Store.create(None) as store:
        builder = Made(store)
        process = builder.process("node7", 4242, rank=0)
        builder.source(NSIGHT, {process: work(1)})
        builder.source(TRACE, {process: work(1)})
        builder.settle()
        assert builder.count("device_event") == builder.count("host_event", "kind = 'launch'") == 60
        assert not [text for text in builder.told("recorded_twice") if "nothing of GPU" in text]


@pytest.mark.parametrize(
    ("same", "formats", "warned"), [(8, (NSIGHT, TRACE), True), (7, (NSIGHT, TRACE), False), (8, (TRACE, TRACE), False)]
)
def test_the_same_work_under_other_gpu_numbers_is_warned_about(same: int, formats: tuple[str, str], warned: bool) -> None:
    """Each container calls its GPU 0; ranks of one profiler may also do the same work."""
    with Store.create(None) as store:
        builder = Made(store)
        builder.source(formats[0], {builder.process("node7", 4242): work(1, same)}, device=1)
        builder.source(formats[1], {builder.process("node7", 17, rank=1): work(1, same)}, device=0)
        builder.settle()
        assert builder.count("device_event") == 2 * same, "both count"
        noted = builder.told("other_gpu_numbers")
        assert len(noted) == warned
        assert all("GPU 1 of file0 and GPU 0 of file1" in text for text in noted)


@pytest.mark.parametrize(("differing", "warned"), [(30, True), (31, False)])
def test_half_of_the_work_may_differ(differing: int, warned: bool) -> None:
    with Store.create(None) as store:
        builder = Made(store)
        first, second = work(1), work(2)
        builder.source(NSIGHT, {builder.process("node7", 4242): first}, device=1)
        builder.source(
            TRACE, {builder.process("node7", 17, rank=1): [first[0], *second[1 : 1 + differing], *first[1 + differing :]]}, device=0
        )
        builder.settle()
        assert bool(builder.told("other_gpu_numbers")) == warned
