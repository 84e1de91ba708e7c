"""The framework of a run, and advice in the words of each framework."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ....ingest.store.store import Store
from ...toolkit.contents import formats, stated
from ...toolkit.shared import shared

PYTORCH: Final = "PyTorch"
TENSORFLOW: Final = "TensorFlow"
JAX: Final = "JAX"
FRAMEWORKS: Final = (PYTORCH, TENSORFLOW, JAX)

# Words for them in the job's information or from a reader.
_CALLED: Final = {"torch": PYTORCH, "lightning": PYTORCH, "tensorflow": TENSORFLOW, "keras": TENSORFLOW, "jax": JAX, "flax": JAX}
# Names that a run of one framework alone has: of operators, ranges and kernels.
_NAMES: Final = {
    PYTORCH: r"^(aten|torch|c10d)::|^(void )?at::native::|^autograd::engine::|^Optimizer\.(step|zero_grad)#|^enumerate\(DataLoader\)",
    TENSORFLOW: r"^(void )?tensorflow::|^(Eager(Local|Kernel)?Execute|TFE_Py_|ExecutorState::|TensorHandle::)|^aws_marker-"
    r"|^(FunctionRun|dataset::GetNext)$",
    JAX: r"^PjitFunction\(|^jit_\w+\(|^\$pjit\.py:",
}
_TRACES: Final = {"PyTorch profiler trace": PYTORCH}
_LOADER_SETTINGS: Final = "SELECT EXISTS (FROM annotation WHERE arguments->>'num_workers' IS NOT NULL)"
_TENSORFLOW_TRACE: Final = "TensorFlow trace"


@shared
def framework_of(store: Store) -> str | None:
    """Return PYTORCH, TENSORFLOW or JAX; None if unknown or ambiguous."""
    recorded = stated(store, "framework") or ""
    frameworks = {framework for word, framework in _CALLED.items() if word in recorded.lower()}
    if len(frameworks) == 1:
        return frameworks.pop()
    read = formats(store)
    known = {framework for form, framework in _TRACES.items() if form in read}
    there = ", ".join("coalesce(bool_or(regexp_matches(text, ?)), FALSE)" for _ in _NAMES)
    named = store.frame(f"SELECT {there} FROM name", list(_NAMES.values())).row(0)
    known |= {framework for framework, seen in zip(_NAMES, named, strict=True) if seen}
    # The hosted profiler records these settings of PyTorch's data loaders alone.
    if (
        store.has_rows("annotation")
        and store.frame("SELECT EXISTS (FROM annotation WHERE arguments->>'num_workers' IS NOT NULL) AS found").item()
    ):
        known.add(PYTORCH)
    if _TENSORFLOW_TRACE in read:
        known.add(TENSORFLOW)
    if JAX in known:
        known.discard(TENSORFLOW)  # JAX uses TensorFlow's profiler and input pipelines
    return known.pop() if len(known) == 1 else None


@dataclass(frozen=True, slots=True)
class Words:
    """The same advice in the words of each framework. ``neutral``: for a run of an unknown one, unless it is PyTorch's words and
    TensorFlow's."""

    pytorch: str
    tensorflow: str
    jax: str
    neutral: str | None = None

    def of(self, framework: str | None) -> str:
        """Return the words for a run of this framework."""
        known = {PYTORCH: self.pytorch, TENSORFLOW: self.tensorflow, JAX: self.jax}
        return known.get(framework or "") or self.neutral or f"{self.pytorch} ({PYTORCH}) or {self.tensorflow} ({TENSORFLOW})"


MORE_WORKERS: Final = ", more `num_workers` where cores are free"
"""The part of an advice on loading that Dataloader replaces with a number if it evaluated the run."""

# -- loading ---------------------------------------------------------------------------------------------------------------

LOAD_AHEAD: Final = Words(
    "`DataLoader(num_workers=4, prefetch_factor=4, persistent_workers=True, pin_memory=True)` (more workers while the wait shrinks)",
    "`dataset.map(..., num_parallel_calls=tf.data.AUTOTUNE)` and `prefetch(tf.data.AUTOTUNE)` as the last transformation",
    "`grain.DataLoader(worker_count=4)` (more workers while the wait shrinks) and `jax.device_put` of the next batch before this one is"
    " done",
    "`DataLoader(num_workers=4, prefetch_factor=4, persistent_workers=True, pin_memory=True)` in PyTorch, and"
    " `map(..., num_parallel_calls=tf.data.AUTOTUNE)` and `prefetch(tf.data.AUTOTUNE)` in TensorFlow",
)
FURTHER_AHEAD: Final = Words(
    f"a larger `prefetch_factor`{MORE_WORKERS}",
    "`prefetch(tf.data.AUTOTUNE)` at the end of the `tf.data` pipeline",
    "more batches put on the device ahead of time",
    f"a larger `prefetch_factor`{MORE_WORKERS}; in TensorFlow `prefetch(tf.data.AUTOTUNE)`",
)
MANY_READERS: Final = Words(
    "{workers} and `prefetch_factor=4` in the DataLoader",
    "`interleave(..., num_parallel_calls=tf.data.AUTOTUNE)` and `prefetch(tf.data.AUTOTUNE)` in the `tf.data` pipeline",
    "a larger `worker_count` of `grain.DataLoader`",
)
BUSY_CORES: Final = Words(
    "{workers} and `pin_memory=True` in the DataLoader",
    "`num_parallel_calls=tf.data.AUTOTUNE` in the maps of the `tf.data` pipeline and `prefetch(tf.data.AUTOTUNE)` after them",
    "a `worker_count` of `grain.DataLoader` that leaves a core to the training",
)
LOADERS: Final = Words(
    "`num_workers={number}`",
    "`num_parallel_calls={number}` in the maps of the `tf.data` pipeline",
    "`worker_count={number}` of `grain.DataLoader`",
)
BATCH_SIZE: Final = Words("`batch_size`", "`batch_size` (of `dataset.batch` or `model.fit`)", "the batch size", "`batch_size`")

# -- copies and waits ------------------------------------------------------------------------------------------------------

PINNED_BATCHES: Final = Words(
    "Load batches with `DataLoader(..., pin_memory=True)` and copy them with `batch.to(device, non_blocking=True)`",
    'Copy batches ahead with `dataset.apply(tf.data.experimental.prefetch_to_device("/GPU:0"))` as the last transformation',
    "Copy batches ahead with `jax.device_put` of the next one before this one is done",
    "Load batches with `DataLoader(..., pin_memory=True)` and copy them with `batch.to(device, non_blocking=True)` (PyTorch), or copy them"
    " ahead with `tf.data.experimental.prefetch_to_device` (TensorFlow)",
)
PINNED_RESULTS: Final = Words(
    "Keep the results on the device and copy them now and then, into a buffer made with `torch.empty(..., pin_memory=True)` and with"
    " `copy_(..., non_blocking=True)`",
    "Keep the results on the device and read them (`.numpy()`, `float(tensor)`, printed tensors) once every 100 steps",
    "Keep the results on the device and read them once every 100 steps, with `copy_to_host_async()` some steps before",
    "Keep the results on the device and copy them now and then: in PyTorch into a buffer made with `torch.empty(..., pin_memory=True)` and"
    " with `copy_(..., non_blocking=True)`, in TensorFlow with `.numpy()` once every 100 steps",
)
PINNED: Final = Words(
    "(`pin_memory=True`, `non_blocking=True`)",
    "(`tf.data.experimental.prefetch_to_device` as the last transformation)",
    "(`jax.device_put` of the next batch before this one is done)",
    "(PyTorch: `pin_memory=True`, `non_blocking=True`; TensorFlow: `tf.data.experimental.prefetch_to_device`)",
)
WAITS: Final = Words(
    "`.item()`, `.cpu()` and `torch.cuda.synchronize()`",
    "`.numpy()`, `float(tensor)` and printed tensors",
    "`.item()`, `np.asarray(array)` and `block_until_ready()`",
)
READS: Final = Words(
    "`.item()`, `.cpu()` and prints of tensors",
    "`.numpy()`, `float(tensor)` and printed tensors",
    "`.item()`, `np.asarray(array)` and printed arrays",
)
WAITS_FOR_ALL: Final = Words("`torch.cuda.synchronize()`", "`tf.test.experimental.sync_devices()`", "`block_until_ready()`")
SAVE: Final = Words(
    "`torch.distributed.checkpoint.async_save`",
    "`tf.train.CheckpointOptions(enable_async=True)`",
    "`orbax.checkpoint.AsyncCheckpointer`",
    "`torch.distributed.checkpoint.async_save`, in TensorFlow `tf.train.CheckpointOptions(enable_async=True)`",
)

# -- kernels ---------------------------------------------------------------------------------------------------------------

FEWER_LAUNCHES: Final = Words(
    'with `torch.compile(mode="reduce-overhead")`, `torch.cuda.CUDAGraph` or a larger batch',
    "with `tf.function(jit_compile=True)`, `model.compile(steps_per_execution=10)` or a larger batch",
    "with the whole step under one `jax.jit`, several steps in `jax.lax.scan` or a larger batch",
    'with `torch.compile(mode="reduce-overhead")` or `torch.cuda.CUDAGraph` (PyTorch), `tf.function(jit_compile=True)` (TensorFlow) or a'
    " larger batch",
)
FUSED: Final = Words(
    'Fuse the short kernels with `torch.compile` or launch them together with `torch.compile(mode="reduce-overhead")` or'
    " `torch.cuda.CUDAGraph`",
    "Fuse the short kernels with XLA: `tf.function(jit_compile=True)`, in Keras `model.compile(jit_compile=True)`",
    "Fuse the short kernels: put the whole step under one `jax.jit`, and donate its arguments (`donate_argnums`)",
    'Fuse the short kernels with `torch.compile` or launch them together with `torch.compile(mode="reduce-overhead")` or'
    " `torch.cuda.CUDAGraph` (PyTorch), or fuse them with `tf.function(jit_compile=True)` (TensorFlow)",
)
FUSED_OPTIMIZER: Final = Words(", and give the optimizer `fused=True`", "", "", ", and give the optimizer `fused=True`")
TF32: Final = Words(
    'Allow TF32 with `torch.set_float32_matmul_precision("high")` and `torch.backends.cudnn.allow_tf32 = True`, or run forward and'
    ' loss under `torch.autocast("cuda", dtype=torch.bfloat16)`',
    "Allow TF32 with `tf.config.experimental.enable_tensor_float_32_execution(True)`, or train under"
    ' `tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")`',
    'Allow TF32 with `jax.config.update("jax_default_matmul_precision", "tensorfloat32")`, or compute in `jnp.bfloat16`',
    'Allow TF32 (PyTorch: `torch.set_float32_matmul_precision("high")` and `torch.backends.cudnn.allow_tf32 = True`; TensorFlow:'
    " `tf.config.experimental.enable_tensor_float_32_execution(True)`), or train in BF16 (PyTorch: forward and loss under"
    ' `torch.autocast("cuda", dtype=torch.bfloat16)`; TensorFlow: `tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")`)',
)
BF16: Final = Words(
    'Run forward and loss under `torch.autocast("cuda", dtype=torch.bfloat16)`',
    'Train under `tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")`',
    "Compute in `jnp.bfloat16` and keep the parameters in `jnp.float32`",
    'Run forward and loss under `torch.autocast("cuda", dtype=torch.bfloat16)` (PyTorch) or train under'
    ' `tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")` (TensorFlow)',
)
FP16: Final = Words(
    'Run forward and loss under `torch.autocast("cuda", dtype=torch.float16)` with `torch.amp.GradScaler("cuda")`',
    'Train under `tf.keras.mixed_precision.set_global_policy("mixed_float16")`, in a loop of your own with'
    " `tf.keras.mixed_precision.LossScaleOptimizer`",
    "Compute in `jnp.float16` with a scaled loss and keep the parameters in `jnp.float32`",
    'Run forward and loss under `torch.autocast("cuda", dtype=torch.float16)` with `torch.amp.GradScaler("cuda")` (PyTorch) or train under'
    ' `tf.keras.mixed_precision.set_global_policy("mixed_float16")` (TensorFlow)',
)
FP8: Final = Words(
    " FP8 would need Transformer Engine or torchao.",
    "",
    " FP8 would need Transformer Engine.",
    " FP8 would need Transformer Engine or torchao.",
)

# -- processes and memory --------------------------------------------------------------------------------------------------

EVERY_GPU: Final = Words(
    "`torchrun --nproc-per-node={gpus}`",
    "`tf.distribute.MirroredStrategy()`",
    '`jax.make_mesh(({gpus},), ("batch",))`',
    "`torchrun --nproc-per-node={gpus}`, in TensorFlow `tf.distribute.MirroredStrategy()`",
)
EQUAL_BATCHES: Final = Words(
    "`DistributedSampler(drop_last=True)`",
    "`dataset.batch(..., drop_remainder=True)`",
    "`grain.ShardOptions(..., drop_remainder=True)`",
    "`DistributedSampler(drop_last=True)`, in TensorFlow `dataset.batch(..., drop_remainder=True)`",
)
EQUAL_SHARES: Final = Words(
    "`DistributedSampler` with one process per GPU",
    "`strategy.experimental_distribute_dataset`",
    "batches divided by `jax.sharding.NamedSharding`",
    "`DistributedSampler` with one process per GPU, in TensorFlow `strategy.experimental_distribute_dataset`",
)
NUMBERS_ONLY: Final = Words(
    "Keep numbers instead of tensors between steps (`loss.item()` or `loss.detach()`) and evaluate under `torch.no_grad()`",
    "Keep numbers instead of tensors between steps (`float(loss)`) and evaluate outside of `tf.GradientTape`",
    "Keep numbers instead of arrays between steps (`float(loss)`) and donate the arguments of the step (`donate_argnums`)",
    "Keep numbers instead of tensors between steps (`loss.item()` or `loss.detach()`, in TensorFlow `float(loss)`) and evaluate without"
    " gradients (`torch.no_grad()`, outside of `tf.GradientTape`)",
)
ALLOCATIONS: Final = Words(
    "Switch `torch.cuda.memory._record_memory_history()` on",
    'Log `tf.config.experimental.get_memory_info("GPU:0")` in every step',
    "Save `jax.profiler.device_memory_profile()` before and after",
    "Switch `torch.cuda.memory._record_memory_history()` on (PyTorch) or log `tf.config.experimental.get_memory_info` (TensorFlow)",
)
COMPILED: Final = Words(
    "`TORCHINDUCTOR_CACHE_DIR` with torch.compile",
    "`TF_XLA_FLAGS=--tf_xla_persistent_cache_directory=DIR` with XLA",
    "`JAX_COMPILATION_CACHE_DIR`",
    "`TORCHINDUCTOR_CACHE_DIR` with torch.compile, in TensorFlow `TF_XLA_FLAGS=--tf_xla_persistent_cache_directory=DIR`",
)
OVERLAPPED: Final = {
    TENSORFLOW: "Let the reduction of some gradients begin while others are computed: in smaller packs"
    " (`tf.distribute.experimental.CommunicationOptions(bytes_per_pack=50 * 1024 * 1024)`), with Horovod a smaller"
    " `HOROVOD_FUSION_THRESHOLD`",
    JAX: "Let XLA overlap collectives with computation (`XLA_FLAGS=--xla_gpu_enable_latency_hiding_scheduler=true`)",
}
"""PyTorch's words depend on the kind of the collectives: exposed_communication.py."""

# -- profiling -------------------------------------------------------------------------------------------------------------

LESS_OVERHEAD: Final = Words(
    "without `with_stack` and `record_shapes`",
    "with `tf.profiler.experimental.ProfilerOptions(host_tracer_level=1, python_tracer_level=0)`",
    "with `python_tracer_level = 0` in `jax.profiler.ProfileOptions`",
)
WARMED_UP: Final = Words(
    "(`torch.profiler.schedule(wait=1, warmup=2, active=5)`)",
    "(`tf.keras.callbacks.TensorBoard(profile_batch=(10, 15))`, or `tf.profiler.experimental.start` after the first steps)",
    "(`jax.profiler.start_trace` after the first steps)",
    "(PyTorch: `torch.profiler.schedule(wait=1, warmup=2, active=5)`; TensorFlow: `tf.profiler.experimental.start` after the first steps)",
)
TRACE_SOME: Final = Words(
    "Trace some steps with PyTorch's profiler (`with_stack=True`)",
    "Trace some steps with TensorFlow's profiler (`ProfilerOptions(python_tracer_level=1)`)",
    "Trace some steps with `jax.profiler.trace`",
    "Trace some steps with the framework's profiler (PyTorch: `with_stack=True`)",
)
TRACE_AGAIN: Final = Words(
    "Record once more with `with_stack=True`",
    "Record once more with `tf.profiler.experimental.ProfilerOptions(python_tracer_level=1)`",
    "Record once more with `python_tracer_level = 1` in `jax.profiler.ProfileOptions`",
)
WITH_STACKS: Final = Words(
    "(torch.profiler, `with_stack=True`)",
    "(`tf.profiler.experimental.ProfilerOptions(python_tracer_level=1)`)",
    "(`python_tracer_level = 1` in `jax.profiler.ProfileOptions`)",
    "(PyTorch: torch.profiler, `with_stack=True`; TensorFlow: `ProfilerOptions(python_tracer_level=1)`)",
)
