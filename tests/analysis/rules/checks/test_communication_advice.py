"""Advice on exposed collectives follows what the trace shows, in runs of a few hand-made events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from judging import rules_of
from postrun.analysis import Options
from postrun.analysis.causes.exposed import exposed_calls, exposed_rows
from postrun.analysis.report import Finding, RuleResult
from postrun.analysis.rules.engine.selection import select
from postrun.ingest import ingest
from postrun.ingest.store import Store

MakeStore = Callable[..., Store]
US = 1000
MS = 1_000_000
NAMES = {
    "gemm": ("gemm", "FP32", "GEMM"),
    "AllReduce": ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "unknown", "communication"),
    "AllGather": ("ncclDevKernel_AllGather_RING_LL", "unknown", "communication"),
    "ReduceScatter": ("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL", "unknown", "communication"),
    "SendRecv": ("ncclDevKernel_SendRecv", "unknown", "communication"),
    "Broadcast": ("ncclDevKernel_Broadcast_RING_LL", "unknown", "communication"),
}
ACCUMULATE = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
C10D = "c10d::allreduce_"
DDP = "DistributedDataParallel.forward"


class Job:
    """Rows of a run: computation and collectives of ranks, with launches and the host ranges around them."""

    def __init__(self) -> None:
        self.tables: dict[str, list[dict[str, Any]]] = {"device_event": [], "host_event": [], "annotation": [], "collective": []}
        self.processes: dict[int, dict[str, Any]] = {}
        self.number = 0

    def gemm(self, start: int, end: int, rank: int = 0, launched: int | None = None) -> None:
        self.run(start, end, "gemm", rank, launched=launched, stream=7)

    def call(
        self,
        start: int,
        end: int,
        name: str = "AllReduce",
        rank: int = 0,
        *,
        around: Sequence[str] = (),
        launched: int | None = None,
        stream: int = 20,
        tid: int = 2,
        record: dict[str, Any] | None = None,
    ) -> None:
        """Add a collective; ``around``: operators, or ranges if they begin with "@"."""
        self.run(start, end, name, rank, launched=launched, stream=stream, tid=tid)
        if record is not None:
            row = {"element_type": "Float", "in_elements": 1000, "out_elements": 1000, "group_name": "g", **record}
            self.tables["collective"].append(
                {"node": 0, "process": rank, "on_device": True, "start_ns": start, "duration_ns": end - start, "correlation": self.number}
                | row
            )
        for text in around if launched is not None else ():
            table, kind = ("annotation", {"side": "host"}) if text.startswith("@") else ("host_event", {"kind": "operator"})
            self.tables[table].append(
                {"process": rank, "tid": tid, "name": text.removeprefix("@"), "start_ns": launched - 5, "duration_ns": 20, **kind}
            )

    def run(self, start: int, end: int, name: str, rank: int, *, launched: int | None, stream: int, tid: int = 1) -> None:
        self.number += 1
        self.processes[rank] = {"id": rank, "node": 0, "pid": 100 + rank, "rank": rank}
        self.tables["device_event"].append(
            {
                "kind": "kernel", "name": name, "process": rank, "device": rank, "stream": stream, "start_ns": start,
                "duration_ns": end - start, "correlation": self.number,
            }
        )  # fmt: skip
        if launched is not None:
            self.tables["host_event"].append(
                {
                    "kind": "launch", "name": "cudaLaunchKernel", "process": rank, "tid": tid, "start_ns": launched, "duration_ns": 5,
                    "correlation": self.number,
                }
            )  # fmt: skip

    def range(self, name: str, start: int, end: int, rank: int = 0, tid: int = 1) -> None:
        self.tables["annotation"].append(
            {"side": "host", "process": rank, "tid": tid, "name": name, "start_ns": start, "duration_ns": end - start}
        )

    def operator(self, name: str, start: int = 0) -> None:
        self.tables["host_event"].append({"kind": "operator", "tid": 1, "name": name, "start_ns": start, "duration_ns": 5})

    def store(self, make_store: MakeStore) -> Store:
        filled = {table: rows for table, rows in self.tables.items() if rows}
        return make_store(names=NAMES, processes=list(self.processes.values()), **filled)


def judged(store: Store) -> tuple[RuleResult, Finding]:
    selection = select(["ExposedCommunication"], settings={"ExposedCommunication_threshold": 1})
    report = rules_of(store, Options(generated_at_ns=0, selection=selection))
    assert report.findings, report.rules
    return report.rules[0], report.findings[0]


def advice_of(store: Store) -> str:
    finding = judged(store)[1]
    return f"{finding.title}: {finding.recommendation}"


def exposed(
    make_store: MakeStore,
    name: str,
    length: int,
    around: Sequence[str],
    *,
    ddp: bool = False,
    hidden: int = 0,
    ready: bool = True,
    **call: Any,
) -> str:
    """Return the advice for one collective after 10 ms of computation.

    ``hidden``: how long the computation covers it; ``ready``: the computation after it was launched before its end."""
    job = Job()
    job.gemm(0, 10 * MS, launched=10)
    start = 10 * MS - hidden
    job.call(start, start + length, name, around=around, launched=call.pop("launched", 1 * MS), **call)
    end = start + length
    job.gemm(end + 5 * US, end + 10 * US, launched=2 * MS if ready else end + 1 * US)
    if ddp:
        job.range(DDP, 0, 100)
    return advice_of(job.store(make_store))


def test_ddp_is_advised_in_its_own_words(make_store: MakeStore) -> None:
    text = exposed(make_store, "AllReduce", 1 * MS, [ACCUMULATE, C10D], ddp=True)
    assert "launched by DDP in the backward pass" in text
    assert "bucket_cap_mb=10" in text
    assert "async_op" not in text
    assert "gradient_as_bucket_view" not in text  # no copies out of buckets in the trace
    assert "find_unused_parameters" not in text
    assert "bucket_cap_mb=100" in exposed(make_store, "AllReduce", 150 * US, [ACCUMULATE], ddp=True)
    assert "smaller buckets" in exposed(make_store, "AllReduce", 3 * MS, [ACCUMULATE], ddp=True)
    much = exposed(make_store, "AllReduce", 8 * MS, [ACCUMULATE], ddp=True)
    assert "bf16_compress_hook)`, or less often with gradient accumulation under `model.no_sync()`" in much
    overlapped = exposed(make_store, "AllReduce", 1 * MS, [ACCUMULATE], ddp=True, hidden=MS // 2)
    assert "overlaps backward already" in overlapped
    assert "and computation hides 50% of this time" in overlapped


def test_settings_of_ddp_follow_its_operators(make_store: MakeStore) -> None:
    job = Job()
    job.gemm(0, 10 * MS, launched=10)
    job.call(10 * MS, 11 * MS, around=[ACCUMULATE], launched=MS)
    job.range(DDP, 0, 100)
    job.operator("torch.distributed.ddp.reducer::copy_bucket_to_grad")
    job.operator("torch.distributed.ddp.reducer::search_unused_parameters")
    text = advice_of(job.store(make_store))
    assert "gradient_as_bucket_view=True" in text
    assert "without `find_unused_parameters`" in text


def test_gradients_in_bf16_are_not_compressed_again(make_store: MakeStore) -> None:
    record = {"operation": "allreduce", "element_type": "BFloat16"}
    text = exposed(make_store, "AllReduce", 8 * MS, [ACCUMULATE], ddp=True, record=record)
    assert "bf16" not in text
    assert "no_sync" in text


def test_without_ddp_no_setting_of_ddp_is_named(make_store: MakeStore) -> None:
    for around in ([ACCUMULATE, C10D], [C10D], ["AddmmBackward0"]):
        text = exposed(make_store, "AllReduce", 1 * MS, around)
        assert "bucket" not in text
        assert "no_sync" not in text
    assert "launched by gradient hooks in the backward pass" in exposed(make_store, "AllReduce", 1 * MS, [ACCUMULATE, C10D])


def test_buffers_of_ddp(make_store: MakeStore) -> None:
    text = exposed(make_store, "Broadcast", 1 * MS, [f"@{DDP}"])
    assert "broadcast_buffers=False" in text
    assert "bucket" not in text


def test_a_call_in_the_model_is_not_one_of_ddp(make_store: MakeStore) -> None:
    text = exposed(make_store, "AllReduce", 1 * MS, [f"@{DDP}", C10D])
    assert "launched by `torch.distributed` calls in the forward pass" in text
    assert "bucket" not in text


def test_async_op_is_for_calls_that_computation_waits_for(make_store: MakeStore) -> None:
    text = exposed(make_store, "AllGather", 1 * MS, ["c10d::_allgather_base_", "@Optimizer.step#Shampoo.step"])
    assert "all_gather_into_tensor(..., async_op=True)" in text
    assert "in the optimizer step" in text
    assert "prefetch" not in text
    assert "FullyShardedDataParallel" not in text
    # Half of it overlaps: it is asynchronous already. Computation that is launched after its end does not wait for it.
    assert "async_op" not in exposed(make_store, "AllReduce", 1 * MS, [C10D], hidden=MS // 2)
    assert "async_op" not in exposed(make_store, "AllReduce", 1 * MS, [C10D], ready=False)


def test_fsdp_is_advised_in_its_own_words(make_store: MakeStore) -> None:
    late = {"launched": 10 * MS - 20 * US}  # it begins 15 µs after its launch
    text = exposed(make_store, "AllGather", 1 * MS, ["@FSDP::pre_forward (layers.3)", "c10d::_allgather_base_"], **late)
    assert "set_modules_to_forward_prefetch" in text
    assert "launched by FSDP (`fully_shard`) in the forward pass" in text
    assert "forward_prefetch=True" in exposed(make_store, "AllGather", 1 * MS, ["@FullyShardedDataParallel._pre_forward"], **late)
    queued = exposed(make_store, "AllGather", 1 * MS, ["@FSDP::pre_forward (layers.3)"])
    assert "an all-gather begins only when the computation before it has ended" in queued  # although it was launched before
    scatter = exposed(make_store, "ReduceScatter", 1 * MS, ["@FSDP::post_backward_reduce (layers.3)"])
    assert "in the backward pass" in scatter
    assert "set_requires_gradient_sync(False)" in scatter
    # BACKWARD_PRE is the default of the older FSDP.
    older = exposed(make_store, "AllGather", 1 * MS, ["@FullyShardedDataParallel._pre_backward_hook"], **late)
    assert "prefetch" not in older
    assert "ShardingStrategy.SHARD_GRAD_OP" in older


@pytest.mark.parametrize(
    ("name", "operation", "group", "advice"),
    [
        ("ReduceScatter", "reduce_scatter", "DATA_PARALLEL_GROUP", "`--overlap-grad-reduce`"),
        ("AllGather", "allgather", "DATA_PARALLEL_GROUP", "`--overlap-param-gather`"),
        ("AllReduce", "allreduce", "TENSOR_MODEL_PARALLEL_GROUP", "`--sequence-parallel` and `--tp-comm-overlap`"),
        ("SendRecv", "send", "PIPELINE_MODEL_PARALLEL_GROUP", "more micro-batches"),
    ],
)
def test_megatron_by_its_groups(make_store: MakeStore, name: str, operation: str, group: str, advice: str) -> None:
    record = {"operation": operation, "group_description": group, "group_size": 8, "group_ranks": str(list(range(8)))}
    text = exposed(make_store, name, 1 * MS, (), record=record)
    assert advice in text
    assert f"in {group} over 8 ranks" in text
    for setting in ("async_op", "bucket_cap_mb", "forward_prefetch", "batch_isend_irecv"):
        assert setting not in text


TO_ALL = {"operation": "all_to_all"}


def of_group(operation: str, description: str) -> dict[str, Any]:
    return {"operation": operation, "group_description": description, "group_size": 8, "group_ranks": str(list(range(8)))}


@pytest.mark.parametrize(
    ("name", "around", "call", "launcher", "advice"),
    [
        ("AllReduce", "@DeepSpeedEngine.allreduce_gradients", {}, "launched by DeepSpeed", '`zero_optimization`'),
        ("AllReduce", "@DeepSpeedEngine.allreduce_gradients", {"hidden": MS // 2}, "launched by DeepSpeed", "`reduce_bucket_size`"),
        ("AllReduce", "vllm::all_reduce", {}, "launched by vLLM", "(`--tensor-parallel-size`)"),
        ("AllReduce", "sgl_kernel::all_reduce", {}, "launched by SGLang", "(`--tp-size`)"),
        ("SendRecv", "All2All_Pooled_Req", {"record": TO_ALL}, "launched by TorchRec", "(`TrainPipelineSparseDist` of TorchRec)"),
        ("SendRecv", "@## sparse_data_dist 3 ##", {"record": TO_ALL}, "launched by TorchRec", "the next batch is already exchanged ahead"),
        (
            "AllGather", "@FSDP::pre_backward (layers.3)", {"launched": 10 * MS - 20 * US},
            "launched by FSDP (`fully_shard`) in the backward pass", "`module.set_modules_to_backward_prefetch(...)`",
        ),
        (
            "AllGather", "@FSDP::pre_forward (layers.3)", {"hidden": MS // 2},
            "launched by FSDP (`fully_shard`) in the forward pass", "`fully_shard(..., reshard_after_forward=False)`",
        ),
        (
            "SendRecv", "aten::mm", {"record": of_group("all_to_all", "EXPERT_MODEL_PARALLEL_GROUP")},
            "launched by Megatron", "`--overlap-moe-expert-parallel-comm`",
        ),
        (
            "ReduceScatter", "aten::mm", {"record": of_group("reduce_scatter", "DATA_PARALLEL_GROUP"), "hidden": MS // 2},
            "launched by Megatron", "`--grad-reduce-in-bf16`",
        ),
        ("AllReduce", C10D, {"record": of_group("allreduce", "mesh_tp")}, "launched by `torch.distributed` calls", "(`SequenceParallel`)"),
        ("SendRecv", "c10d::send", {"record": {"operation": "send"}}, "launched by `torch.distributed` calls", "`batch_isend_irecv`"),
        ("SendRecv", "aten::mm", {"record": {"operation": "send"}}, "launched by calls outside", "Look at the ranks at the other end"),
    ],
)  # fmt: skip
def test_settings_are_those_of_the_launcher(
    make_store: MakeStore, name: str, around: str, call: dict[str, Any], launcher: str, advice: str
) -> None:
    text = exposed(make_store, name, 1 * MS, [around], **call)
    assert launcher in text
    assert advice in text
    assert "bucket_cap_mb" not in text


def test_a_graph_launches_its_collectives(make_store: MakeStore) -> None:
    job = Job()
    job.gemm(0, 10 * MS, launched=10)
    job.call(10 * MS, 11 * MS, around=[ACCUMULATE, C10D], launched=MS)
    for row in job.tables["host_event"]:
        row["name"] = "cudaGraphLaunch" if row["kind"] == "launch" else row["name"]
    job.range(DDP, 0, 100)
    text = advice_of(job.store(make_store))
    assert "launched by a CUDA graph" in text
    assert "bucket_cap_mb" not in text


def test_a_long_description_of_a_group_is_cut(make_store: MakeStore) -> None:
    text = exposed(make_store, "AllReduce", 1 * MS, [C10D], record={"operation": "allreduce", "group_description": "x" * 10_000})
    assert f" in {'x' * 60} on stream 20" in text


def test_the_record_names_the_operation_and_not_the_kernel(make_store: MakeStore) -> None:
    text = exposed(make_store, "SendRecv", 1 * MS, ["c10d::alltoall_base_"], record={"operation": "all_to_all"})
    assert text.startswith("Overlap all-to-all with computation")
    assert "1 all-to-all of 3.91 KiB on stream 20, launched by `torch.distributed` calls, make up 100%" in text
    assert "all_to_all_single(..., async_op=True)" in text


def test_without_launches_the_report_says_what_is_missing(make_store: MakeStore) -> None:
    text = exposed(make_store, "AllReduce", 1 * MS, (), launched=None, ddp=True)
    assert "The trace does not contain the launch calls that start them" in text
    text += exposed(make_store, "AllReduce", 1 * MS, ())
    assert "The trace does not contain the operators that start them" in text
    for word in ("bucket", "async_op", "prefetch", "nccl"):
        assert word not in text
    assert "launched by calls outside of `torch.distributed`" in exposed(make_store, "AllReduce", 1 * MS, ["aten::mm"])


GROUP = {"operation": "allreduce", "group_size": 3, "group_ranks": "[0, 1, 2]"}


def waiting(late: int, *, record: dict[str, Any] = GROUP, around: Sequence[str] = (ACCUMULATE, C10D), name: str = "AllReduce") -> Job:
    """Return three ranks in collectives of 1 ms; ``late`` arrives after 0.96 ms."""
    job = Job()
    for rank in range(3):
        job.range(DDP, 0, 100, rank)
        for at in (0, 10 * MS):
            start = at + (960 * US if rank == late else 0) + 5 * MS
            job.gemm(at + 1 * MS, start, rank, launched=at + 10)
            job.call(start, at + 6 * MS, name, rank, around=around, launched=at + 100, record=record)
    return job


def test_the_late_rank_is_named_and_not_the_bytes(make_store: MakeStore) -> None:
    store = waiting(2).store(make_store)
    _, finding = judged(store)
    assert finding.title == "Find out why rank 2 arrives late"
    assert finding.recommendation is not None
    assert finding.recommendation.startswith("Compare rank 2, host-0 GPU 2 with the ranks that wait for it: ")
    # Of ranks 0 and 1, which are above the threshold, 4 x 0.96 ms of 4 x 1 ms.
    assert "Waiting for ranks that arrive later is 96% of the exposed time, and 100% of it is for rank 2" in finding.recommendation
    for word in ("bytes", "bf16", "bucket", "async_op"):
        assert word not in finding.recommendation
    assert finding.saving_ns == 4 * 960 * US
    (row,) = exposed_rows(store, exposed_calls(store))
    assert (row.count, row.exposed_ns, row.waiting_ns, row.transfer_ns) == (6, 4080 * US, 3840 * US, 240 * US)
    assert (row.operation, row.launcher, row.part, row.stream, row.last_rank, row.bytes) == ("all-reduce", "DDP", "backward", 20, 2, 4000)


def test_ranks_that_are_late_in_turn_are_not_accused(make_store: MakeStore) -> None:
    job = Job()
    for rank in range(3):
        for turn in range(6):
            start = turn * 10 * MS + 5 * MS + (900 * US if turn % 3 == rank else 0)
            job.gemm(turn * 10 * MS, start, rank, launched=turn * 10 * MS)
            job.call(start, turn * 10 * MS + 6 * MS, rank=rank, around=[C10D], launched=turn * 10 * MS + 50, record=GROUP)
    text = advice_of(job.store(make_store))
    assert "no rank is late all the time" in text
    assert "for different ranks in turn" in text
    assert "rank 0" not in text


def test_each_group_has_its_own_late_rank(make_store: MakeStore) -> None:
    job = Job()
    for rank in range(4):
        record = {**GROUP, "group_size": 2, "group_name": str(rank // 2), "group_ranks": str([rank // 2 * 2, rank // 2 * 2 + 1])}
        for turn in range(3):
            start = turn * 10 * MS + 5 * MS + (900 * US if rank % 2 else 0)
            job.gemm(turn * 10 * MS, start, rank, launched=turn * 10 * MS)
            job.call(start, turn * 10 * MS + 6 * MS, rank=rank, around=[C10D], launched=turn * 10 * MS + 50, record=record)
    text = advice_of(job.store(make_store))
    assert text.startswith("Find out why the same ranks arrive late: Compare ranks 1 and 3 with the ranks of their groups")


def test_stages_of_a_pipeline_wait_for_each_other_by_design(make_store: MakeStore) -> None:
    record = {**GROUP, "operation": "recv", "group_description": "PIPELINE_MODEL_PARALLEL_GROUP"}
    text = advice_of(waiting(2, record=record, around=(), name="SendRecv").store(make_store))
    assert "interleaved schedule" in text
    assert "rank 2" not in text


def test_one_rank_alone_whose_equal_calls_differ(make_store: MakeStore) -> None:
    job = Job()
    for number, length in enumerate((1, 1, 9, 9)):
        at = number * 20 * MS
        job.gemm(at, at + 5 * MS, launched=at)
        job.call(
            at + 5 * MS,
            at + (5 + length) * MS,
            "SendRecv",
            around=["All2All_Pooled_Req"],
            launched=at + 50,
            record={"operation": "all_to_all"},
        )
    text = advice_of(job.store(make_store))
    assert text.startswith("Load the traces of all ranks: ")
    assert "80% of the exposed time is beyond the shortest of them" in text  # 16 of 20 ms
    assert "QCommsConfig" not in text


REAL = {
    "diff_pair/a100_rank3_of_8.json.gz": ("Load the traces of all ranks", "launched by TorchRec in the forward pass"),
    "diff_pair/v100_rank1_of_2.json.gz": ("Reduce exposed all-to-all time", "QCommsConfig"),
    "quirks/nccl_data.json.gz": ("Overlap all-reduce with backward", "gradient_as_bucket_view=True"),
    # The exposed all-to-alls take 322 ms in all, the all-gathers 211 ms.
    "sampled_2_ranks": ("Reduce exposed all-to-all time", "launched by TorchRec in the forward pass"),
}


@pytest.mark.parametrize("name", REAL)
def test_advice_on_real_traces(shared_data: Path, name: str) -> None:
    trace = shared_data / "kineto" / name
    if not trace.exists():
        pytest.skip(f"no such trace: {trace}")
    with ingest([trace]) as store:
        _, finding = judged(store)
    assert (finding.title, REAL[name][1] in str(finding.recommendation)) == (REAL[name][0], True)
    for word in ("FullyShardedDataParallel", "TrainPipelineSparseDist", "static_graph"):
        assert word not in str(finding.recommendation)
