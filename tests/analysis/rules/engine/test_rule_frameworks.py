"""The framework of a run follows from its records, and advice is in its words alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from judging import rules_of
from postrun.analysis import Options
from postrun.analysis.causes.program import program
from postrun.analysis.rules.engine.selection import select
from postrun.analysis.rules.evidence import frameworks
from postrun.analysis.rules.evidence.frameworks import JAX, PYTORCH, TENSORFLOW, Words, framework_of
from postrun.ingest.store import Store
from sample_rules import CORE, FOOTPRINT, GPU, IOWAIT, SECOND, Sample, line, sampled
from sample_rules import judged as judged_by_samples
from slow_params import slow_except

MakeStore = Callable[..., Store]
Rows = list[dict[str, Any]]
START = 1_700_000_040 * SECOND


def named(*names: str) -> Rows:
    return [{"kind": "operator", "name": name, "start_ns": 0, "duration_ns": 5} for name in names]


def source(form: str) -> Rows:
    return [{"id": 0, "path": "trace", "format": form}]


SETTINGS = {
    "side": "host",
    "phase": "DataLoaderIterInitialize",
    "start_ns": 0,
    "duration_ns": 1,
    "arguments": json.dumps({"num_workers": 2}),
}

BATCH = [{"side": "host", "name": "dataset::GetNext", "phase": "DataIterator", "start_ns": 0, "duration_ns": 1}]


@pytest.mark.parametrize(
    ("tables", "framework"),
    [
        ({}, None),
        ({"run": [{"framework": "PyTorch 2.7"}]}, PYTORCH),
        ({"run": [{"framework": "pytorch-lightning"}]}, PYTORCH),
        ({"run": [{"framework": "tensorflow"}], "host_event": named("aten::mm")}, TENSORFLOW),  # the run's own record comes first
        ({"run": [{"framework": "Keras 3"}]}, TENSORFLOW),
        ({"run": [{"framework": "MXNet"}]}, None),
        ({"run": [{"framework": "jax or tensorflow"}], "host_event": named("aten::mm")}, PYTORCH),
        ({"source": source("PyTorch profiler trace")}, PYTORCH),
        ({"host_event": named("MatMul", "aten::mm")}, PYTORCH),
        ({"device_event": [{"kind": "kernel", "name": "void at::native::add<float>", "start_ns": 0, "duration_ns": 1}]}, PYTORCH),
        ({"annotation": [SETTINGS]}, PYTORCH),
        ({"source": source("TensorFlow trace"), "host_event": named("dense/MatMul:MatMul")}, TENSORFLOW),
        ({"device_event": [{"kind": "kernel", "name": "void tensorflow::Bias<float>", "start_ns": 0, "duration_ns": 1}]}, TENSORFLOW),
        ({"annotation": [{"side": "host", "name": "aws_marker-ForwardPass/1", "start_ns": 0, "duration_ns": 1}]}, TENSORFLOW),
        ({"source": source("TensorFlow trace"), "host_event": named("PjitFunction(train_step)")}, JAX),
        ({"host_event": named("PjitFunction(train_step)"), "annotation": BATCH}, JAX),
        ({"annotation": BATCH}, TENSORFLOW),
        ({"host_event": named("aten::mm", "EagerExecute: MatMul")}, None),  # both
        ({"source": source("PyTorch profiler trace"), "host_event": named("my tensorflow:: notes", "reorder aten::mm")}, PYTORCH),
    ],
)
def test_the_framework_of_a_run(make_store: MakeStore, tables: dict[str, Rows], framework: str | None) -> None:
    assert framework_of(make_store(**tables)) == framework


def kernel(start: int, end: int, name: str = "k", **more: Any) -> dict[str, Any]:
    return {"kind": "kernel", "name": name, "start_ns": start, "duration_ns": end - start, **more}


def host(kind: str, start: int, end: int, name: str = "f", **more: Any) -> dict[str, Any]:
    return {"kind": kind, "name": name, "start_ns": start, "duration_ns": end - start, **more}


def waited(kind: str, name: str = "f", until: int = 1090) -> dict[str, Rows]:
    """A device that is idle from 100 to 1100, and the host's activity meanwhile."""
    return {
        "device_event": [kernel(0, 100), kernel(1100, 1200, correlation=1)],
        "host_event": [host(kind, 100, until, name), host("launch", 1090, 1094, "cudaLaunchKernel", correlation=1)],
    }


COPY = {"kind": "memcpy", "name": "Memcpy", "start_ns": 0, "duration_ns": 50, "pageable": True, "bytes": 10}
A100 = {"node": 0, "index": 0, "name": "NVIDIA A100-SXM4-80GB", "vendor": "NVIDIA", "compute_capability": "8.0"}
STEPS = [
    {"node": 0, "process": 0, "index": i, "host_start_ns": 1000 * i, "host_duration_ns": 500 if i == 7 else 100, "device_events": 0}
    for i in range(40)
]


def outlier(kind: str) -> dict[str, Rows]:
    """40 steps of 100 and one of 500, in which 400 went to something else."""
    return {"step": STEPS, "host_event": [host(kind, 7050, 7450)]}


def loads(phase: str) -> Rows:
    return [
        {"name": "GetNext", "side": "host", "start_ns": at * SECOND, "duration_ns": SECOND // 2, "phase": phase, "complete": True}
        for at in range(12)
    ]


# Rule, its settings, the run, and a word of each framework that the advice must have.
TRACED: dict[str, tuple[str, dict[str, float], dict[str, Any], tuple[str, str, str]]] = {
    "loading": ("HostBound", {}, waited("loader"), ("DataLoader(num_workers=4", "tf.data.AUTOTUNE", "grain")),
    "waits": ("HostBound", {}, waited("sync"), ("torch.cuda.synchronize()", "`.numpy()`", "block_until_ready")),
    "launches": ("HostBound", {}, waited("operator"), ("torch.compile", "tf.function(jit_compile=True)", "jax.jit")),
    "first use": ("HostBound", {}, waited("call"), ("torch.profiler.schedule", "tf.profiler.experimental", "jax.profiler.start_trace")),
    "overhead": ("HostBound", {}, waited("overhead", "Resource"), ("record_shapes", "host_tracer_level=1", "jax.profiler.ProfileOptions")),
    "Python": ("HostBound", {}, waited("operator", until=101), ("with_stack=True", "python_tracer_level=1", "jax.profiler")),
    "untraced Python": ("HostBound", {}, waited("call", until=101), ("with_stack=True", "python_tracer_level=1", "jax.profiler.trace")),
    "copies to": (
        "PageableCopies", {}, {"device_event": [{**COPY, "copy_kind": "HtoD"}, kernel(50, 99)]},
        ("pin_memory=True", "prefetch_to_device", "jax.device_put"),
    ),
    "copies from": (
        "PageableCopies", {}, {"device_event": [{**COPY, "copy_kind": "DtoH"}, kernel(50, 99)]},
        ("torch.empty", "`.numpy()`", "copy_to_host_async"),
    ),
    "short kernels": (
        "ShortKernels", {}, {"device_event": [kernel(at * 10_000, at * 10_000 + 2_000) for at in range(20)]},
        ("torch.compile", "model.compile(jit_compile=True)", "jax.jit"),
    ),
    "TF32": (
        "LowPrecision", {}, {"device": [A100], "names": {"k": ("k", "FP32", "GEMM")}, "device_event": [kernel(0, 9)]},
        ("set_float32_matmul_precision", "enable_tensor_float_32_execution", "jax_default_matmul_precision"),
    ),
    "FP16": (
        "LowPrecision", {},
        {
            "device": [{**A100, "name": "Tesla V100-SXM2-32GB", "compute_capability": "7.0"}],
            "names": {"k": ("k", "FP32", "GEMM")}, "device_event": [kernel(0, 9)],
        },
        ("torch.autocast", 'set_global_policy("mixed_float16")', "jnp.float16"),
    ),
    "synchronized": (
        "SyncBound", {}, waited("sync", "cudaStreamSynchronize"), ("`.item()`, `.cpu()`", "`.numpy()`", "np.asarray"),
    ),
    "synchronized device": (
        "SyncBound", {}, waited("sync", "cudaDeviceSynchronize"), ("torch.cuda.synchronize()", "sync_devices()", "block_until_ready()"),
    ),
    "slow loading": ("StepOutlier", {"n_outliers": 0.5}, outlier("loader"), ("prefetch_factor", "tf.data", "batches put on the device")),
    "slow wait": ("StepOutlier", {"n_outliers": 0.5}, outlier("sync"), ("torch.cuda.synchronize()", "`.numpy()`", "np.asarray")),
    "slow for no reason": ("StepOutlier", {"n_outliers": 0.5}, outlier("call"), ("with_stack", "python_tracer_level=1", "ProfileOptions")),
    "exposed": (
        "ExposedCommunication", {},
        {
            "names": {"k": ("k", "FP32", "GEMM"), "ncclAllReduce": ("ncclAllReduce", "unknown", "communication")},
            "device_event": [kernel(0, 50), kernel(50, 100, "ncclAllReduce", stream=8)],
        },
        ("on a stream of its own", "CommunicationOptions", "latency_hiding_scheduler"),
    ),
    "initialization": (
        "MaxInitializationTime", {},
        {
            "step": [{**STEPS[0], "host_start_ns": START + 3000 * SECOND}],
            "sample": [
                {"node": 0, "metric": CORE, "unit": 0, "time_ns": START + at * SECOND, "value": 1.0} for at in range(0, 6000, 500)
            ],
        },
        ("TORCHINDUCTOR_CACHE_DIR", "tf_xla_persistent_cache_directory", "JAX_COMPILATION_CACHE_DIR"),
    ),
    "loaders": (
        "Dataloader", {}, {"nodes": [{"id": 0, "hostname": "m", "cores": 4}], "annotation": loads("DataIterator"), "step": STEPS[:1]},
        ("num_workers=4", "num_parallel_calls=4", "worker_count=4"),
    ),
}  # fmt: skip


def machine(metric: str, core: float, gpu: float) -> list[Sample]:
    """Of 1500 snapshots of a GPU and a core nearly all are bottlenecks."""
    return line(0, GPU, 0, [gpu] * 1490 + [90.0] * 10, start=START) + line(0, metric, 0, [core] * 1490 + [0.0] * 10, start=START)


SAMPLED: dict[str, tuple[str, list[Sample], tuple[str, str, str]]] = {
    "cores": ("CPUBottleneck", machine(CORE, 95.0, 5.0), ("`num_workers=4` and `pin_memory=True`", "tf.data.AUTOTUNE", "grain")),
    "I/O": ("IOBottleneck", machine(IOWAIT, 95.0, 5.0), ("`prefetch_factor=4`", "interleave(", "grain")),
    "batch": (
        "BatchSize",
        [*line(0, GPU, 0, [30.0] * 900, start=START), *line(0, FOOTPRINT, 0, [40.0] * 900, start=START),
         *line(0, CORE, 0, [20.0] * 900, start=START)],
        ("Double `batch_size`", "dataset.batch", "the batch size"),
    ),
    "unused": (
        "LowGPUUtilization",
        line(0, GPU, 0, [0.0] * 1200, start=START) + line(0, GPU, 1, [95.0] * 1200, start=START),
        ("torchrun --nproc-per-node=4", "MirroredStrategy", "jax.make_mesh"),
    ),
    "balance": (
        "LoadBalancing",
        line(0, GPU, 0, [0.0] * 1200, start=START) + line(0, GPU, 1, [95.0] * 1200, start=START),
        ("torchrun --nproc-per-node=2", "MirroredStrategy", "jax.make_mesh"),
    ),
    "shares": (
        "LoadBalancing",
        line(0, GPU, 0, [10.0] * 1200, start=START) + line(0, GPU, 1, [95.0] * 1200, start=START),
        ("`DistributedSampler`", "experimental_distribute_dataset", "NamedSharding"),
    ),
    "memory once": (
        "GPUMemoryIncrease", line(0, FOOTPRINT, 0, [10.0] * 1200 + [80.0] * 1200, start=START),
        ("torch.cuda.memory", "get_memory_info", "device_memory_profile"),
    ),
    "memory": (
        "GPUMemoryIncrease", line(0, FOOTPRINT, 0, ([10.0] * 1200 + [80.0] * 1200) * 2, start=START),
        ("loss.item()", "float(loss)", "donate_argnums"),
    ),
    "fluctuating": (
        "LowGPUUtilization", line(0, GPU, 0, [0.0 if number % 9 == 0 else 95.0 for number in range(1200)], start=START),
        ("`num_workers` where cores are free", "tf.data", "batches put on the device"),
    ),
}  # fmt: skip

FRAMEWORKS = slow_except((PYTORCH, JAX), (PYTORCH, TENSORFLOW, JAX, None))
_ALIEN = {
    PYTORCH: ("tf.", "jax", "grain", "numpy"),
    TENSORFLOW: ("torch", "DataLoader", "num_workers", "pin_memory", "non_blocking", ".item()", "with_stack", "jax", "grain", "jnp"),
    JAX: ("torch", "num_workers", "pin_memory", "non_blocking", "with_stack", "tf.", "keras"),
}


def check(text: str | None, framework: str | None, words: tuple[str, str, str]) -> None:
    assert text is not None
    expected = dict(zip((PYTORCH, TENSORFLOW, JAX), words, strict=True))
    if framework is None:
        assert words[0] in text
        return
    assert expected[framework] in text
    assert not [word for word in _ALIEN[framework] if word in text]


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("case", TRACED)
def test_advice_of_rules_over_traces(make_store: MakeStore, case: str, framework: str | None) -> None:
    rule, settings, tables, words = TRACED[case]
    store = make_store(**tables, run=[{"framework": framework}])
    chosen = select([rule], settings={f"{rule}_{name}": value for name, value in settings.items()})
    (result,) = rules_of(store, Options(selection=chosen)).rules
    assert result.verdict == "IssuesFound", result.reason
    check(result.recommendation, framework, words)


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("case", SAMPLED)
def test_advice_of_rules_over_samples(case: str, framework: str | None) -> None:
    rule, samples, words = SAMPLED[case]
    with sampled(samples, run=[{"framework": framework}]) as store:
        outcome = judged_by_samples(store, rule, loading_percent=30.0)
    assert outcome.verdict == "IssuesFound", outcome.reason
    check(outcome.recommendation, framework, words)


def test_neutral_words_have_those_of_both() -> None:
    """In a run of unknown framework, advice has the words of PyTorch and TensorFlow."""
    words_by_name = {name: value for name, value in vars(frameworks).items() if isinstance(value, Words)}
    assert len(words_by_name) > 20
    assert Words("a", "b", "c").of(None) == "a (PyTorch) or b (TensorFlow)"
    assert Words("a", "b", "c", "d").of("MXNet") == "d"
    for name, words in words_by_name.items():
        if words.tensorflow and name != "BATCH_SIZE":
            neutral = words.of(None)
            assert "TensorFlow" in neutral or "framework's" in neutral, name


@pytest.mark.parametrize(
    ("frames", "static"),
    [
        (["transformers/models/vit/modeling_vit.py(592): forward"], False),
        (["transformers/models/llama/modeling_llama.py(420): forward", "transformers/generation/utils.py(3204): _sample"], True),
    ],
)
def test_a_static_cache_is_advised_where_generate_runs(make_store: MakeStore, frames: list[str], static: bool) -> None:
    events = named(*["aten::addmm"] * 10, "aten::gelu") + [{"kind": "python", "name": f, "start_ns": 0, "duration_ns": 5} for f in frames]
    known = program(make_store(host_event=events))
    assert known.kind == "inference"
    assert ("cache_implementation" in frameworks.FEWER_LAUNCHES.of(known)) == static
