"""What counts where two tracers have a process at the same time, and not the same GPUs of it?"""

from __future__ import annotations

import pytest
from made_tracers import BASE, MS, Made, work
from postrun.ingest.store import Store
from postrun.ingest.store.format_names import NSIGHT, TRACE

LATER = BASE + MS // 2


@pytest.mark.parametrize("order", [(NSIGHT, TRACE), (TRACE, NSIGHT)])
def test_a_gpu_that_only_one_of_them_has_is_kept_with_its_launches(order: tuple[str, str]) -> None:
    with Store.create(None) as store:
        made = Made(store)
        process = made.process("node7", 4242, rank=0)
        first, second = work(1), work(2, begin=LATER)
        for format in order:
            made.source(format, {process: first + second if format == NSIGHT else first})
        # The second half of the export ran on GPU 1.
        store.connection.execute("UPDATE device_event SET device = 1 WHERE correlation > 60")
        made.settle()
        found = store.frame("SELECT device, count(*), sum(duration_ns) FROM device_event GROUP BY ALL ORDER BY ALL").rows()
        assert found == [(0, 60, sum(duration for _, duration in first)), (1, 60, sum(duration for _, duration in second))]
        launches = store.frame("SELECT start_ns FROM host_event WHERE kind = 'launch' ORDER BY 1")["start_ns"].to_list()
        assert launches == sorted(start - 5000 for start, _ in first + second), "one for each kernel, none twice"
        (text,) = made.told("recorded_twice")[:1]
        assert "It has nothing of GPU 1: of that this file's counts." in text


def test_where_all_gpus_are_in_both_nothing_is_said_of_a_gpu() -> None:
    with Store.create(None) as store:
        made = Made(store)
        process = made.process("node7", 4242, rank=0)
        made.source(NSIGHT, {process: work(1)})
        made.source(TRACE, {process: work(1)})
        made.settle()
        assert made.count("device_event") == made.count("host_event", "kind = 'launch'") == 60
        assert not [text for text in made.told("recorded_twice") if "nothing of GPU" in text]


@pytest.mark.parametrize(
    ("same", "formats", "warned"), [(8, (NSIGHT, TRACE), True), (7, (NSIGHT, TRACE), False), (8, (TRACE, TRACE), False)]
)
def test_the_same_work_under_other_gpu_numbers_is_warned_about(same: int, formats: tuple[str, str], warned: bool) -> None:
    """As where each container calls its GPU 0. Ranks of one profiler may do the same at once."""
    with Store.create(None) as store:
        made = Made(store)
        made.source(formats[0], {made.process("node7", 4242): work(1, same)}, device=1)
        made.source(formats[1], {made.process("node7", 17, rank=1): work(1, same)}, device=0)
        made.settle()
        assert made.count("device_event") == 2 * same, "both count"
        told = made.told("other_gpu_numbers")
        assert len(told) == warned
        assert all("GPU 1 of file0 and GPU 0 of file1" in text for text in told)


@pytest.mark.parametrize(("other", "warned"), [(30, True), (31, False)])
def test_half_of_the_work_may_differ(other: int, warned: bool) -> None:
    with Store.create(None) as store:
        made = Made(store)
        first, second = work(1), work(2)
        made.source(NSIGHT, {made.process("node7", 4242): first}, device=1)
        made.source(TRACE, {made.process("node7", 17, rank=1): [first[0], *second[1 : 1 + other], *first[1 + other :]]}, device=0)
        made.settle()
        assert bool(made.told("other_gpu_numbers")) == warned
