"""Classifies events of a PyTorch profiler trace by category and name.

There is one table of categories, in new and old spelling, and one set of patterns for names. Both are applied to distinct texts only.
"""

from __future__ import annotations

import re
from typing import Final

import polars as pl

from ..store.schema import ENUM_VALUES

# Where an event goes: to `device_event` or `host_event` as one of their kinds (in their order, so that the numbers behind the words
# are those of the kinds), to `annotation` on the host or on the device side, or nowhere.
ANNOTATION: Final = "annotation"
DEVICE_ANNOTATION: Final = "device_annotation"
SKIPPED: Final = "skipped"
DEVICE_KINDS: Final = ENUM_VALUES["DEVICE_KIND"]
HOST_KINDS: Final = ENUM_VALUES["HOST_KIND"]
DEVICE_SYNC: Final = "device_sync"
ROUTE: Final = pl.Enum(
    [DEVICE_SYNC if kind == "sync" else kind for kind in DEVICE_KINDS] + [*HOST_KINDS, ANNOTATION, DEVICE_ANNOTATION, SKIPPED]
)

# First match decides; categories are compared without regard to case. Sources: category names that Kineto writes today and wrote
# until 2021 ("Kernel", "Memcpy", "Runtime", "Operator"), for CUDA, HIP, XPU, MTIA, HPU and private back ends, whose forks of Kineto
# put their own word in front ("mlu_memcpy", "gcu_sync").
_CATEGORIES: Final[tuple[tuple[str, str], ...]] = (
    (r"(concurrent_)?kernel|mtia_ccp_events|hpu_op", "kernel"),
    (r"([a-z0-9]+_)?memcpy", "memcpy"),
    (r"([a-z0-9]+_)?memset", "memset"),
    (r"[a-z0-9]+_sync", DEVICE_SYNC),
    (r"(\w+_)?(runtime|driver)", "call"),
    (r"cpu_op|operator", "operator"),
    (r"python_function", "python"),
    (r"overhead", "overhead"),
    (r"(cpu_)?user_annotation", ANNOTATION),
    (r"[a-z0-9]+_user_annotation", DEVICE_ANNOTATION),
)

# Calls that put work on a device queue: kernels, copies, memsets, graphs; by CUDA runtime and driver, HIP, oneAPI (Level Zero, UR, PI),
# MTIA, and Gaudi (SynapseAI; PyTorch's bridge calls it Launch).
LAUNCH_CALL: Final = (
    r"^(cuda|cu|hip)(Ext|Hcc)?(Module)?(Launch|GraphLaunch)"
    r"|^(cuda|cu|hip)Mem(cpy|set)"
    r"|^zeCommandList(Immediate)?Append(Launch|Memory)"
    r"|^(ur|pi|pi_?ext)_?Enqueue(Kernel|Mem|USM)"
    r"|^runFunction - job_prep_and_submit_for_execution"
    r"|^(syn)?Launch(Ext|With\w+)?$|^synMem(Copy|set)Async"
)
_HOST_FUNCTION: Final = r"^(cuda|cu|hip)LaunchHostFunc"
# Calls that block the host until the device is done.
SYNC_CALL: Final = r"(?i)synchronize|^(urEventWait|urQueueFinish|piEventsWait|piQueueFinish)"
# Transfers of a DMA engine, which MTIA and Gaudi record among their other device events.
_DMA: Final = r"^(dma_request|Dma[A-Z])"
LOADER: Final = r"^(enumerate\()?(\w+\.)*DataLoader\b|^_?(Single|Multi)Process(ing)?DataLoader(Iter)?\b"
STEP: Final = r"(?i)^(ProfilerStep#\d+|step[_ -]?\d+)$"

_COPY_WORDS: Final = {
    "htod": "HtoD", "dtoh": "DtoH", "dtod": "DtoD", "ptop": "PtoP", "htoh": "HtoH",
    "hosttodevice": "HtoD", "devicetohost": "DtoH", "devicetodevice": "DtoD", "peertopeer": "PtoP", "hosttohost": "HtoH",
    "host_to_device": "HtoD", "device_to_host": "DtoH", "device_to_device": "DtoD", "host_to_host": "HtoH",
    "m2d": "HtoD", "d2m": "DtoH", "d2d": "DtoD", "m2m": "HtoH", "h2d": "HtoD", "d2h": "DtoH", "h2h": "HtoH", "p2p": "PtoP",
}  # fmt: skip
_COPY: Final = rf"(?i)(?:^|[^a-z0-9]|Copy|copy)({'|'.join(sorted(_COPY_WORDS, key=len, reverse=True))})(?:[^a-z0-9]|$)"


def route_of(category: str | None) -> str:
    """Return the route of complete events of this category (a value of ``ROUTE``)."""
    for pattern, route in _CATEGORIES:
        if category is not None and re.fullmatch(pattern, category, re.IGNORECASE | re.ASCII):
            return route
    return SKIPPED


def features(texts: pl.Series) -> pl.DataFrame:
    """Return the features of texts as names of events, one row per text.

    Columns: ``call`` (launch, sync or call: if it is the name of a runtime call), ``loader`` (a data-loader wait), ``step`` (an
    annotation whatever its category), ``dma`` (a transfer, although recorded as a kernel), ``copy_kind`` (HtoD, DtoH, DtoD, PtoP, HtoH
    or null), ``pageable`` (True, False or null if unknown), ``value`` (the number at its end, or null).
    """
    text = pl.col("text")
    call = (
        pl.when(text.str.contains(LAUNCH_CALL) & ~text.str.contains(_HOST_FUNCTION))
        .then(pl.lit("launch"))
        .when(text.str.contains(SYNC_CALL))
        .then(pl.lit("sync"))
        .otherwise(pl.lit("call"))
    )
    copy = text.str.extract(_COPY, 1).str.to_lowercase()
    return texts.alias("text").to_frame().select(
        call=call.cast(ROUTE),
        loader=text.str.contains(LOADER),
        step=text.str.contains(STEP),
        dma=text.str.contains(_DMA),
        copy_kind=copy.replace_strict(_COPY_WORDS, default=None, return_dtype=pl.String),
        pageable=pl.when(text.str.contains("(?i)pageable"))
        .then(pl.lit(True))
        .when(text.str.contains("(?i)pinned"))
        .then(pl.lit(False)),
        value=text.str.extract(r"(\d{1,18})$", 1).cast(pl.Int64, strict=False),
    )  # fmt: skip
