"""Advice on exposed collectives: launcher, part of the step, waiting and overlap in the trace -> title and recommendation.

A setting is named only if the trace shows the library that has it, and no sign that it is in use.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ...causes import launchers
from ...causes.exposed import Lead
from ...toolkit.wording import duration, numbered, plural, significant, size, whole_percent

_SHORT_NS: Final = 200_000  # collectives shorter than this on average are bound by their latency and not by their bytes
_LONG_NS: Final = 2_000_000  # all-reduces longer than this on average: the gradients come in few, large pieces
_IN_USE_PERCENT: Final = 10.0  # collectives that computation covers this much overlap already
_MOST: Final = 50.0  # percent
_NAME_LETTERS: Final = 60  # of the description of a group, which the program chooses
_FRAME_LETTERS: Final = 120
_NARROW: Final = ("half", "float16", "bfloat16", "char", "byte", "float8", "int8")  # element types of at most two bytes

_ONE_TO_ONE: Final = ("send", "receive", "send/receive")
_PARTS: Final = {"forward": "in the forward pass", "backward": "in the backward pass", "optimizer": "in the optimizer step"}
_BY: Final = {
    launchers.FSDP2: "FSDP (`fully_shard`)",
    launchers.FSDP: "FSDP (`FullyShardedDataParallel`)",
    launchers.HOOKS: "gradient hooks",
    launchers.EXPLICIT: "`torch.distributed` calls",
    launchers.NCCL: "calls outside of `torch.distributed`",
    launchers.GRAPH: "a CUDA graph",
}


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts of the run beyond those of the calls. ``late``: rank and place of the processes in :attr:`Lead.late`.

    ``too_much``: there is more communication than backward computation could hide. ``per_step``: calls per step and process, None if
    unknown. ``bucket_copies``, ``unused_search``: DDP copies gradients out of its buckets, and searches for unused parameters.
    ``sparse_pipeline``: a pipeline of TorchRec exchanges the features of the next batch ahead. ``free_ns``: computation without
    communication. ``other_words``: the advice for a framework other than PyTorch. ``bus``: bus bandwidth of the calls in GB/s,
    None if the size or some ranks are unknown, or the bandwidth of their link is known; ``nodes``: nodes of their group. ``on``: " on"
    and the devices of the calls, if they are not all devices."""

    late: tuple[tuple[int | None, str], ...] = ()
    too_much: bool = False
    per_step: float | None = None
    bucket_copies: bool = False
    unused_search: bool = False
    sparse_pipeline: bool = False
    free_ns: int = 0
    other_words: str | None = None
    bus: float | None = None
    nodes: int = 1
    on: str = ""


def advise(lead: Lead, facts: Facts) -> tuple[str, str]:
    """Return the imperative that heads the finding, and the recommendation."""
    title, change = _change(lead, facts)
    return title, " ".join([f"{change}.", *_evidence(lead, facts)])


def _evidence(lead: Lead, facts: Facts) -> list[str]:
    """Write what the trace shows: the calls, who waits, and what could run meanwhile."""
    sizes = ""
    if lead.smallest is not None and lead.largest is not None:
        sizes = f" of {size(lead.largest)}" if lead.smallest == lead.largest else f" of {size(lead.smallest)} to {size(lead.largest)}"
    group = f" in {lead.group[:_NAME_LETTERS]}" if lead.group else ""
    ranks = f" over {lead.group_size} ranks" if lead.group_size else ""
    streams = f" on {'stream' if len(lead.streams) == 1 else 'streams'} {', '.join(map(str, lead.streams[:3]))}" if lead.streams else ""
    by = f", launched by {_BY.get(lead.launcher, lead.launcher)}" if lead.launcher else ""
    part = _PARTS.get(lead.part or "", "")
    if part:
        by = f"{by} {part}" if by else f", launched {part}"
    sentences = [
        f"{plural(lead.count, operation(lead), _plural(lead))}{sizes}{group}{ranks}{streams}{by}{',' if by else ''} make up"
        f" {whole_percent(100 * lead.exposed_ns / lead.of_ns)} of the exposed communication{facts.on}, summed over all calls. A call takes"
        f" {duration(lead.mean_ns)} on average, and computation hides {whole_percent(lead.hidden_percent)} of this time."
    ]
    sentences += _waiting(lead, facts)
    if not lead.waits and facts.free_ns and lead.operation not in _ONE_TO_ONE:
        sentences.append(f"Computation without communication takes {duration(facts.free_ns)} and could hide it.")
    if lead.frame:
        sentences.append(f"`{lead.frame[:_FRAME_LETTERS]}` launches them.")
    if facts.bus is not None and facts.nodes > 1 and not lead.waits:
        sentences.append(
            f"The transfers reach {significant(facts.bus)} GB/s of bus bandwidth between {facts.nodes} nodes. The run does not record the"
            " bandwidth of the network: compare with `all_reduce_perf` of nccl-tests."
        )
    if missing := _missing(lead):
        sentences.append(missing)
    return sentences


def _waiting(lead: Lead, facts: Facts) -> list[str]:
    waited = whole_percent(100 * lead.waiting_ns / lead.exposed_ns)
    caused = whole_percent(100 * lead.caused_ns / lead.waiting_ns) if lead.waiting_ns else ""
    cause = f", and {caused} of it is for {_names(facts)}" if facts.late else ", for different ranks in turn"
    if lead.operation in _ONE_TO_ONE:  # stages of a pipeline wait for each other by design
        cause = ""
    if lead.waits:
        return [f"Waiting for ranks that arrive later is {waited} of the exposed time{cause}."]
    if 100 * lead.waiting_ns >= _IN_USE_PERCENT * lead.exposed_ns:
        return [f"Waiting for ranks that arrive later is {waited} of the exposed time{cause}; the rest is transfer."]
    if lead.known_ns:
        return [f"Transfer is {whole_percent(100 - 100 * lead.waiting_ns / lead.exposed_ns)} of the exposed time."]
    if lead.operation in _ONE_TO_ONE:
        return []
    if lead.varies:
        return [
            f"Calls of equal size differ: {whole_percent(100 * lead.excess_ns / lead.exposed_ns)} of the exposed time is beyond the"
            " shortest of them, which suggests that some ranks arrive late."
        ]
    return ["The traces of the other ranks would show how much of this is waiting."]


def _missing(lead: Lead) -> str | None:
    if lead.launcher:
        return None
    what = "the operators" if lead.launched else "the launch calls"
    return f"The trace does not contain {what} that start them: profile with `activities=[CPU, CUDA]` to see which code does."


def operation(lead: Lead) -> str:
    return "send-and-receive kernel" if lead.operation == "send/receive" else lead.operation


def _plural(lead: Lead) -> str:
    return {"all-to-all": "all-to-all exchanges"}.get(lead.operation, f"{operation(lead)}s")


def _change(lead: Lead, facts: Facts) -> tuple[str, str]:
    overlap = f"Overlap {_short(lead)} with {'backward' if lead.part == 'backward' else 'computation'}"
    if lead.operation in _ONE_TO_ONE and not facts.other_words:
        return _send_receive(lead)
    if lead.waits:
        return _late(lead, facts)
    if facts.other_words:
        return overlap, facts.other_words
    if lead.varies:
        return "Load the traces of all ranks", (
            "Load the traces of the other ranks as well, and look for the rank that arrives last, before you change the exchange"
        )
    by_launcher = {
        launchers.DDP: _ddp, launchers.FSDP: _fsdp, launchers.FSDP2: _fsdp, launchers.DEEPSPEED: _deepspeed, launchers.MEGATRON: _megatron,
        launchers.TORCHREC: _torchrec, launchers.VLLM: _inference, launchers.SGLANG: _inference, launchers.EXPLICIT: _explicit,
    }  # fmt: skip
    specific = by_launcher.get(lead.launcher or "")
    advice = specific(lead, facts) if specific else None
    return advice or (overlap, _neutral(lead))


def _names(facts: Facts) -> str:
    """Name the late ranks: the place of one, the numbers of several."""
    if len(facts.late) == 1:
        return facts.late[0][1]
    if any(rank is None for rank, _ in facts.late):
        return f"{len(facts.late)} processes"
    return f"ranks {numbered([rank for rank, _ in facts.late if rank is not None])}"


def _late(lead: Lead, facts: Facts) -> tuple[str, str]:
    if not facts.late or 100 * lead.caused_ns < _MOST * lead.waiting_ns:
        return "Find out why ranks arrive at different times", (
            "Compare the work of the ranks from step to step, such as the lengths of sequences, since no rank is late all the time"
        )
    rank = facts.late[0][0]
    if len(facts.late) > 1:
        return "Find out why the same ranks arrive late", f"Compare {_names(facts)} with the ranks of their groups that wait for them"
    return f"Find out why {'one process' if rank is None else f'rank {rank}'} arrives late", (
        f"Compare {_names(facts)} with the ranks that wait for it: its work per step, its host and its GPU clock"
    )


def _short(lead: Lead) -> str:
    return "send and receive" if lead.operation == "send/receive" else lead.operation


def _neutral(lead: Lead) -> str:
    if lead.hidden_percent >= _IN_USE_PERCENT:
        return f"Start the {_short(lead)} earlier, or wait for it later, so that more of it runs during computation"
    return f"Start the {_short(lead)} on a stream of its own before computation that does not need its result"


def _send_receive(lead: Lead) -> tuple[str, str]:
    title = "Overlap send and receive with computation"
    if _about(lead, "pipe", "pp"):
        setting = " (`--num-layers-per-virtual-pipeline-stage`)" if lead.launcher == launchers.MEGATRON else ""
        return "Shorten the pipeline's bubbles", (
            f"Give the pipeline more micro-batches or an interleaved schedule{setting}, because a stage waits in a receive until the stage"
            " that sends is done"
        )
    if lead.launcher == launchers.EXPLICIT:
        return title, "Launch sends and receives together with `batch_isend_irecv`, and wait for them only where their data is needed"
    return "Find out what sends and receives wait for", (
        "Look at the ranks at the other end of these transfers, because a receive lasts until the other rank has sent"
    )


def _about(lead: Lead, *words: str) -> bool:
    """Return whether the description of the group contains one of the words."""
    text = (lead.group or "").lower()
    parts = text.replace(":", "_").replace("-", "_").split("_")
    return any(word in parts or (len(word) > 2 and word in text) for word in words)


def _narrow(lead: Lead) -> bool:
    """Return whether elements are known to have at most two bytes already."""
    return bool(lead.element_types) and all(any(word in kind.lower() for word in _NARROW) for kind in lead.element_types)


def _ddp(lead: Lead, facts: Facts) -> tuple[str, str] | None:
    if lead.operation == "broadcast":
        return "Broadcast buffers less often", (
            "Switch the broadcast of buffers off with `DistributedDataParallel(..., broadcast_buffers=False)` if the ranks need not share"
            " the running statistics of normalization layers"
        )
    if lead.operation != "all-reduce":
        return None
    view = ", gradient_as_bucket_view=True" if facts.bucket_copies else ""
    unused = ", and without `find_unused_parameters`, whose search is in the trace" if facts.unused_search else ""
    if lead.mean_ns < _SHORT_NS and (facts.per_step is None or facts.per_step > 2):
        return "Reduce gradients in larger buckets", (
            f"Reduce gradients in larger pieces with `DistributedDataParallel(..., bucket_cap_mb=100{view})` (default 25), because such a"
            " short reduction is mostly latency"
        )
    if facts.too_much:
        fewer = "" if _narrow(lead) else "Reduce fewer bytes with `model.register_comm_hook(None, bf16_compress_hook)`, or less often"
        return "Reduce fewer bytes per step", (
            f"{fewer or 'Reduce gradients less often'} with gradient accumulation under `model.no_sync()`, because backward is too short to"
            " hide this much communication"
        )
    if lead.mean_ns > _LONG_NS and lead.hidden_percent < _MOST:
        return "Overlap all-reduce with backward", (
            "Let the reduction begin earlier in the backward pass with smaller buckets,"
            f" `DistributedDataParallel(..., bucket_cap_mb=10{view})` (default 25){unused}"
        )
    if lead.hidden_percent >= _IN_USE_PERCENT:
        return "Shorten the last all-reduce of backward", (
            f"Compare `DistributedDataParallel(..., bucket_cap_mb=10{view})` with the default of 25{unused}: the reduction overlaps"
            " backward already, and no computation is left to cover the exposed rest"
        )
    return "Overlap all-reduce with backward", (
        f"Let each bucket start during backward: compare `DistributedDataParallel(..., bucket_cap_mb=10{view})` with the default of"
        f" 25{unused}"
    )


def _fsdp(lead: Lead, _: Facts) -> tuple[str, str] | None:
    new = lead.launcher == launchers.FSDP2
    late = lead.at_once_percent > _MOST
    if lead.operation == "all-gather" and lead.part == "forward" and late:
        how = "`module.set_modules_to_forward_prefetch(...)`" if new else "`FullyShardedDataParallel(..., forward_prefetch=True)`"
        return "Prefetch the all-gather of the next layer", (
            f"Gather the parameters of the next layer earlier with {how}, since an all-gather begins {_begins(lead)}"
        )
    if lead.operation == "all-gather" and lead.part is None and late and lead.queued_percent > _MOST:
        how = "`module.set_modules_to_forward_prefetch(...)` and `module.set_modules_to_backward_prefetch(...)`"
        if not new:
            how = "`FullyShardedDataParallel(..., forward_prefetch=True, backward_prefetch=BackwardPrefetch.BACKWARD_PRE)`"
        return "Prefetch the all-gather of the next layer", (
            f"Gather the parameters of the next layer earlier with {how}, since an all-gather begins {_begins(lead)}"
        )
    if lead.operation == "all-gather" and lead.part == "backward" and late and new:
        return "Prefetch the all-gather of the next layer", (
            "Gather the parameters of the next layer earlier with `module.set_modules_to_backward_prefetch(...)`, since an all-gather"
            f" begins {_begins(lead)}"
        )
    if lead.operation == "all-gather":
        keep = "`fully_shard(..., reshard_after_forward=False)`" if new else "`ShardingStrategy.SHARD_GRAD_OP`"
        return "Gather fewer bytes per step", (
            f"Keep the parameters after the forward pass with {keep} if they fit in memory, or shard within a node"
            f" ({_hybrid(new=new)}) if the group spans several"
        )
    if lead.operation == "reduce-scatter":
        less = "`model.set_requires_gradient_sync(False)`" if new else "`model.no_sync()`"
        return "Reduce fewer bytes per step", (
            f"Reduce gradients less often with gradient accumulation ({less}), or shard within a node ({_hybrid(new=new)}) if the group"
            " spans several"
        )
    return None


def _begins(lead: Lead) -> str:
    behind = 2 * lead.queued_percent > lead.at_once_percent
    return "only when the computation before it has ended" if behind else "as soon as the host launches it"


def _hybrid(*, new: bool) -> str:
    return "a two-dimensional `mesh`" if new else "`ShardingStrategy.HYBRID_SHARD`"


def _deepspeed(lead: Lead, _: Facts) -> tuple[str, str] | None:
    if lead.hidden_percent < _IN_USE_PERCENT:
        return (
            f"Overlap {_short(lead)} with computation",
            'Set `"overlap_comm": true` in `zero_optimization` of the DeepSpeed configuration',
        )
    return f"Overlap more of the {_short(lead)}", (
        "Compare `reduce_bucket_size` and, for stage 3, `stage3_prefetch_bucket_size` of the DeepSpeed configuration, which decide when an"
        " exchange begins"
    )


def _megatron(lead: Lead, _: Facts) -> tuple[str, str] | None:
    title = f"Overlap {_short(lead)} with computation"
    if _about(lead, "tensor", "tp"):
        first = "`--sequence-parallel` and " if lead.operation == "all-reduce" else ""
        return title, f"Divide the {lead.operation} of tensor parallelism into parts that overlap with {first}`--tp-comm-overlap`"
    if _about(lead, "expert", "ep") and lead.operation == "all-to-all":
        return title, "Overlap the exchange of tokens with `--overlap-moe-expert-parallel-comm`"
    if not _about(lead, "data", "dp"):
        return None
    if lead.hidden_percent < _IN_USE_PERCENT:
        setting = "--overlap-param-gather" if lead.operation == "all-gather" else "--overlap-grad-reduce"
        return title, f"Start the {lead.operation} during computation with `{setting}`"
    if lead.operation != "all-gather" and not _narrow(lead):
        return "Reduce fewer bytes per step", "Reduce gradients in BF16 with `--grad-reduce-in-bf16` if the training stays stable"
    return None


def _torchrec(lead: Lead, facts: Facts) -> tuple[str, str] | None:
    if lead.operation != "all-to-all":
        return None
    if facts.sparse_pipeline:
        fewer = "" if _narrow(lead) or lead.part is None else "Exchange fewer bytes (`QCommsConfig` of TorchRec with BF16), divide"
        return "Reduce exposed all-to-all time", (
            f"{fewer or 'Divide'} the embedding tables more evenly over the ranks, and wait for an exchange only where its result is"
            " needed; the next batch is already exchanged ahead"
        )
    return "Overlap the all-to-all exchange with computation", (
        "Exchange the sparse features of the next batch during this one's dense layers (`TrainPipelineSparseDist` of TorchRec)"
    )


def _inference(lead: Lead, _: Facts) -> tuple[str, str] | None:
    setting = "--tensor-parallel-size" if lead.launcher == launchers.VLLM else "--tp-size"
    return f"Shorten the {_short(lead)} of tensor parallelism", (
        f"Use fewer GPUs per replica (`{setting}`) if the model fits, and more replicas instead"
    )


def _explicit(lead: Lead, _: Facts) -> tuple[str, str] | None:
    title = f"Overlap {_short(lead)} with computation"
    if lead.operation == "all-reduce" and _about(lead, "tensor", "tp"):
        return (
            title,
            "Add sequence parallelism (`SequenceParallel`), which divides the all-reduce of tensor parallelism into parts that overlap",
        )
    if lead.hidden_percent < _IN_USE_PERCENT and lead.held_up_percent > _MOST:
        call = {"all-to-all": "all_to_all_single", "all-gather": "all_gather_into_tensor", "reduce-scatter": "reduce_scatter_tensor"}
        name = call.get(lead.operation, lead.operation.replace("-", "_"))
        return title, (
            f"Start the {lead.operation} with `{name}(..., async_op=True)` and wait for it only where its result is needed; the computation"
            " after it is launched already and waits"
        )
    return None
