"""Tests for CSV files with DCGM's fields and timed tables of `dcgmi dmon` -> samples."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from postrun.errors import InputError
from postrun.ingest.gpu_logs.dcgm import times_of
from postrun.ingest.load import ingest
from postrun.ingest.store import Store
from postrun.ingest.store.format_names import DCGM
from postrun.ingest.store.metrics import METRICS

START_NS = 1_714_979_289_000_000_000
AT = "2024-05-06T07:08:09Z"
LATER = "2024-05-06T07:08:10Z"


def log(folder: Path, *lines: str, name: str = "dcgm.csv") -> Store:
    path = folder / name
    path.write_text("\n".join(lines) + "\n")
    return ingest([path])


def values(store: Store) -> list[tuple[str, str, int, int, float]]:
    query = "SELECT hostname, metric, unit, (time_ns - ?) // 1000000000, value FROM sample JOIN node ON node.id = node ORDER BY ALL"
    return store.frame(query, [START_NS]).rows()


def notes(store: Store) -> dict[str, int]:
    return dict(store.frame("SELECT code, sum(count)::BIGINT FROM ingest_note GROUP BY code").rows())


def test_a_column_per_field(tmp_path: Path) -> None:
    header = (
        "timestamp,gpu,UUID,Hostname,modelName,DCGM_FI_DEV_GPU_UTIL,DCGM_FI_DEV_FB_USED,DCGM_FI_DEV_POWER_USAGE,DCGM_FI_PROF_SM_ACTIVE,"
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE,DCGM_FI_DEV_GPU_TEMP"
    )
    rows = [
        f"{AT},0,GPU-00000000-1111-2222-3333-444444444444,n1,NVIDIA H100,98,1000,431.5,0.75,0.25,44",
        f"{LATER},0,GPU-00000000-1111-2222-3333-444444444444,n1,NVIDIA H100,,1000,N/A,2147483632,0.5,44",
        f"{AT},0,GPU-00000009-1111-2222-3333-444444444444,n2,NVIDIA H100,12,2000,80,1.0000000001,0,44",
    ]
    with log(tmp_path, header, *rows) as store:
        mib = 2.0**20
        assert values(store) == [
            ("n1", "gpu_memory_used_bytes", 0, 0, 1000 * mib), ("n1", "gpu_memory_used_bytes", 0, 1, 1000 * mib),
            ("n1", "gpu_power", 0, 0, 431.5),
            ("n1", "gpu_sm_active", 0, 0, 75.0),
            ("n1", "gpu_tensor_active", 0, 0, 25.0), ("n1", "gpu_tensor_active", 0, 1, 50.0),
            ("n1", "gpu_utilization", 0, 0, 98.0),
            ("n2", "gpu_memory_used_bytes", 0, 0, 2000 * mib),
            ("n2", "gpu_power", 0, 0, 80.0),
            ("n2", "gpu_tensor_active", 0, 0, 0.0),
            ("n2", "gpu_utilization", 0, 0, 12.0),
        ]  # fmt: skip
        assert notes(store) == {"no_value": 3, "no_number": 1, "column_not_read": 1}
        assert {metric for _, metric, *_ in values(store)} <= set(METRICS)
        assert store.frame("SELECT format FROM source").to_series().to_list() == [DCGM]


@pytest.mark.parametrize(
    ("line", "host"),
    [(f'{LATER}, 0, "n,1", 6', "n,1"), (f'{LATER},0,"n1,6', "n1"), (f'"{LATER},0,n1,6', "n1"), (f'{LATER},0,n"a,b"c,6', "na,bc")],
)
def test_quotes_are_read_wherever_they_are(line: str, host: str, tmp_path: Path) -> None:
    with log(tmp_path, "timestamp,gpu,Hostname,DCGM_FI_DEV_GPU_UTIL", f"{AT},0,n1,5", line) as store:
        assert values(store) == sorted([("n1", "gpu_utilization", 0, 0, 5.0), (host, "gpu_utilization", 0, 1, 6.0)])


def test_what_is_used_and_free_makes_the_total(tmp_path: Path) -> None:
    """Write lines of DCGM's exporter; one GPU also has reserved memory."""
    header = "timestamp,gpu,Hostname,DCGM_FI_DEV_FB_USED,DCGM_FI_DEV_FB_FREE,DCGM_FI_DEV_FB_RESERVED"
    rows = [f"{AT},0,n1,20480,61440,", f"{LATER},0,n1,61440,20480,", f"{AT},1,n1,20480,60416,1024", f"{LATER},2,n1,1024,,"]
    with log(tmp_path, header, *rows) as store:
        gib = 2.0**30
        assert values(store) == [
            ("n1", "gpu_memory_total_bytes", 0, 0, 80 * gib), ("n1", "gpu_memory_total_bytes", 1, 0, 80 * gib),
            ("n1", "gpu_memory_used_bytes", 0, 0, 20 * gib), ("n1", "gpu_memory_used_bytes", 0, 1, 60 * gib),
            ("n1", "gpu_memory_used_bytes", 1, 0, 20 * gib), ("n1", "gpu_memory_used_bytes", 2, 1, 1 * gib),
            ("n1", "gpu_memory_used_percent", 0, 0, 25.0), ("n1", "gpu_memory_used_percent", 0, 1, 75.0),
            ("n1", "gpu_memory_used_percent", 1, 0, 25.0),
        ]  # fmt: skip
        assert store.frame('SELECT memory_bytes FROM device ORDER BY "index"').to_series().to_list()[:2] == [80 * 2**30] * 2


def test_several_lines_of_one_time_make_one_total(tmp_path: Path) -> None:
    """A line of GPU 0 is repeated; GPU 1 has two samples in one second."""
    header = "timestamp,gpu,Hostname,DCGM_FI_DEV_FB_USED,DCGM_FI_DEV_FB_FREE"
    rows = [f"{AT},0,n1,20480,61440", f"{AT},0,n1,20480,61440", f"{AT},1,n1,20480,61440", f"{AT},1,n1,61440,20480"]
    with log(tmp_path, header, *rows) as store:
        actual = {(metric, unit, value) for _, metric, unit, _, value in values(store) if not metric.endswith("used_bytes")}
        assert actual == {
            ("gpu_memory_total_bytes", 0, 80 * 2.0**30), ("gpu_memory_total_bytes", 1, 80 * 2.0**30),
            ("gpu_memory_used_percent", 0, 25.0), ("gpu_memory_used_percent", 1, 25.0), ("gpu_memory_used_percent", 1, 75.0),
        }  # fmt: skip
        assert store.frame("SELECT memory_bytes FROM device").to_series().to_list() == [80 * 2**30] * 2


@pytest.mark.parametrize(
    "hosts",
    [
        ("10.0.0.5:9400", "10.0.0.6:9400", "10.0.0.7:9400"), ("10.0.0.5", "10.0.0.6", "10.0.0.7"),
        ("node1.a.example.com", "node1.b.example.com", "node2.a.example.com"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("files", [1, 3])
def test_machines_whose_names_begin_alike_are_several(tmp_path: Path, hosts: tuple[str, ...], files: int) -> None:
    rows = [f"{AT},0,{host},{10 * number}" for number, host in enumerate(hosts)]
    for file in range(files):
        part = rows if files == 1 else rows[file : file + 1]
        (tmp_path / f"dcgm{file}.csv").write_text("\n".join(["timestamp,gpu,Hostname,DCGM_FI_DEV_GPU_UTIL", *part]) + "\n")
    with ingest([tmp_path]) as store:
        assert [(host, value) for host, _, _, _, value in values(store)] == [
            (host.removesuffix(":9400"), 10.0 * number) for number, host in enumerate(hosts)
        ]


@pytest.mark.parametrize(("name", "machines"), [("gpus_10.0.0.5.csv", 1), ("gpus_10.csv", 2), ("gpus_7.csv", 2)])
def test_a_file_is_not_of_an_address_that_begins_with_its_number(tmp_path: Path, name: str, machines: int) -> None:
    """Of two machines the log without a name is of the one that its file names."""
    named = [f"{AT},0,10.0.0.5,7", f"{AT},0,11.0.0.5,9"]
    (tmp_path / "a.csv").write_text("\n".join(["timestamp,gpu,Hostname,DCGM_FI_DEV_GPU_UTIL", *named]) + "\n")
    (tmp_path / name).write_text(f"timestamp,gpu,DCGM_FI_DEV_POWER_USAGE\n{LATER},0,90\n")
    with ingest([tmp_path]) as store:
        assert len({host for host, *_ in values(store)} - {"11.0.0.5"}) == machines


def test_a_name_with_and_without_its_domain_is_one_machine(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"timestamp,gpu,Hostname,DCGM_FI_DEV_GPU_UTIL\n{AT},0,node1.a.example.com,7\n")
    (tmp_path / "b.csv").write_text(f"timestamp,gpu,Hostname,DCGM_FI_DEV_GPU_UTIL\n{LATER},0,node1,9\n")
    with ingest([tmp_path]) as store:
        assert len({host for host, *_ in values(store)}) == 1


def test_a_line_per_value(tmp_path: Path) -> None:
    header = '"timestamp","metric","value","gpu","Hostname","pod"'
    rows = [
        '1714979289,DCGM_FI_DEV_GPU_UTIL,98,0,"n1","a, b"',
        "1714979290,DCGM_FI_DEV_GPU_UTIL,7,0,n1,a",
        "1714979289,DCGM_FI_PROF_DRAM_ACTIVE,0.125,0,n1,a",
        "1714979289,DCGM_FI_DEV_GPU_TEMP,40,0,n1,a",
        '"1714979289","DCGM_FI_DEV_GPU_UTIL","50","1","n1",""',
    ]
    with log(tmp_path, header, *rows) as store:
        assert values(store) == [
            ("n1", "gpu_dram_active", 0, 0, 12.5), ("n1", "gpu_utilization", 0, 0, 98.0), ("n1", "gpu_utilization", 0, 1, 7.0),
            ("n1", "gpu_utilization", 1, 0, 50.0),
        ]  # fmt: skip
        assert notes(store) == {"unknown_metric": 1}


def test_what_prometheus_exports_names_hosts_with_ports_and_devices(tmp_path: Path) -> None:
    with log(tmp_path, "time,instance,device,DCGM_FI_DEV_GPU_UTIL", f"{AT},n1:9400,nvidia3,98", f"{LATER},n1:9400,nvidia3,7") as store:
        assert values(store) == [("n1", "gpu_utilization", 3, 0, 98.0), ("n1", "gpu_utilization", 3, 1, 7.0)]


def test_parts_of_gpus_are_left_out(tmp_path: Path) -> None:
    rows = [f"{AT},0,,98,n1", f"{AT},0,7,50,n1"]
    with log(tmp_path, "timestamp,gpu,GPU_I_ID,DCGM_FI_DEV_GPU_UTIL,Hostname", *rows) as store:
        assert values(store) == [("n1", "gpu_utilization", 0, 0, 98.0)]
        assert notes(store) == {"part_of_gpu": 1}


def test_dmon_with_a_time_before_each_line(tmp_path: Path) -> None:
    at, later = "2024-05-06T09:08:09+0200", "2024-05-06T09:08:10+0200"
    lines = [
        f"{at} #Entity   GPUTL   MCUTL   SMACT   XYZAB",
        f"{at} ID",
        f"{at} GPU 0     98      40      0.500   1",
        f"{at} GPU 1     N/A     41      0.250   1",
        f"{later} GPU 0     97      40",
        f"{later} #Entity   GPUTL   MCUTL",
        f"{later} GPU 1     96      40",
    ]
    with log(tmp_path, *lines, name="dcgm.n5.log") as store:
        assert [row for row in values(store) if row[1] != "gpu_memory_controller"] == [
            ("n5", "gpu_sm_active", 0, 0, 50.0), ("n5", "gpu_sm_active", 1, 0, 25.0),
            ("n5", "gpu_utilization", 0, 0, 98.0), ("n5", "gpu_utilization", 1, 1, 96.0),
        ]  # fmt: skip
        assert notes(store) == {"no_value": 1, "wrong_length": 1, "column_not_read": 1, "machine_joined": 1}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["#Entity   GPUTL   MCUTL", "ID", "GPU 0     98      40"], "no times"),
        (['DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-1",Hostname="n1"} 98'], "Prometheus"),
        (['"Time","DCGM_FI_DEV_GPU_UTIL{gpu=""0""}"', '"2024-05-06 07:08:09","98"'], "columns"),
    ],
)
def test_a_log_that_says_too_little_is_refused_with_the_next_step(tmp_path: Path, lines: list[str], message: str) -> None:
    with pytest.raises(InputError) as refused:
        log(tmp_path, *lines)
    assert message in str(refused.value)
    assert "DCGM_FI_DEV_GPU_UTIL" in str(refused.value) or "dcgmi dmon -e" in str(refused.value)


@given(
    st.datetimes(datetime(2002, 1, 1), datetime(2199, 1, 1)),
    st.sampled_from(["s", "ms", "us", "ns", "Z", "+05:30", "-0700", "", " UTC"]),
)
def test_times_of_every_form(time: datetime, form: str) -> None:
    micros = (time.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // (datetime.resolution)
    factor = {"s": 10**6, "ms": 1000}.get(form, 1)
    micros -= micros % factor
    text = {
        "s": f"{micros // 10**6}", "ms": f"{micros // 1000}", "us": f"{micros}", "ns": f"{micros * 1000}",
    }.get(form) or f"{time:%Y-%m-%dT%H:%M:%S.%f}{form}"  # fmt: skip
    times, zoned = times_of(pl.Series([text]))
    away = {"+05:30": 330, "-0700": -420}.get(form, 0) * 60_000_000
    assert times.to_list() == [micros - away]
    assert zoned.to_list() == [form != ""]


def test_what_is_no_time() -> None:
    times, _ = times_of(pl.Series(["", "yesterday", "99999999999999999999", "1", "2024-05-06", "1999-01-01 00:00:00", "12:00:01", "-5"]))
    assert times.to_list() == [None] * 8


def test_a_zone_that_is_none_makes_no_time() -> None:
    noon = 1_714_996_800_000_000  # 2024-05-06T12:00:00Z
    times = [f"2024-05-06T12:00:00{zone}" for zone in ("+14:00", "-12:00", "+05:45", "+14:15", "-12:15", "+05:37", "+0060", "+99:99")]
    actual, _ = times_of(pl.Series(times))
    assert actual.to_list() == [noon - 14 * 3600 * 10**6, noon + 12 * 3600 * 10**6, noon - 345 * 60 * 10**6, *[None] * 5]


@settings(max_examples=examples(15))
@given(st.lists(st.text(alphabet='0123456789,.-N/A "GPU\t', max_size=60), max_size=20))
def test_any_lines_below_a_header_are_no_traceback(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    folder = tmp_path_factory.mktemp("dcgm")
    with log(folder, "timestamp,gpu,DCGM_FI_DEV_GPU_UTIL,Hostname", f"{AT},0,98,n1", *lines) as store:
        assert ("n1", "gpu_utilization", 0, 0, 98.0) in values(store)
