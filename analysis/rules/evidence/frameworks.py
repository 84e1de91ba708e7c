"""Advice in the words of each program: one table per advice, from the frameworks of a run to its settings.

The names of settings are those of the documentation of each framework; docs/programs.md lists them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ....ingest.store.store import Store
from ...causes.program import (
    BASES,
    DEEPSPEED,
    DIFFUSERS,
    GENERATE,
    GRAPHS,
    HF_TRAINER,
    INFERENCE,
    JAX,
    LIGHTNING,
    MEGATRON,
    PYTORCH,
    SGLANG,
    TENSORFLOW,
    TENSORRT_LLM,
    TORCH_COMPILE,
    TRANSFORMERS,
    VLLM,
    base_framework,
    program,
)
from ...report.causes import Program

FRAMEWORKS: Final = BASES


def framework_of(store: Store) -> str | None:
    """Return PYTORCH, TENSORFLOW or JAX; None if unknown or ambiguous."""
    return base_framework(program(store))


@dataclass(frozen=True, slots=True)
class Words:
    """The same advice in the words of each framework. ``neutral``: for a run of an unknown one, unless it is PyTorch's words and
    TensorFlow's. ``programs``: words for a run that has all of the frameworks named (and is of the kind named); the first that fits
    counts, before those of PyTorch, TensorFlow and JAX."""

    pytorch: str
    tensorflow: str
    jax: str
    neutral: str | None = None
    programs: tuple[tuple[tuple[str, ...], str], ...] = ()

    def of(self, known: Program | str | None) -> str:
        """Return the words for a run of this program, or of this framework."""
        framework = known
        if isinstance(known, Program):
            framework = base_framework(known)
            names = {known.kind, framework, *known.frameworks}
            for needed, words in self.programs:
                if names.issuperset(needed):
                    return words
        by_framework = {PYTORCH: self.pytorch, TENSORFLOW: self.tensorflow, JAX: self.jax}
        neutral = self.neutral or f"{self.pytorch} ({PYTORCH}) or {self.tensorflow} ({TENSORFLOW})"
        return by_framework.get(str(framework), neutral)

    @property
    def texts(self) -> tuple[str, ...]:
        """All words."""
        return (*(self.of(framework) for framework in (*FRAMEWORKS, None)), *(words for _, words in self.programs))


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
    programs=(
        (
            (HF_TRAINER,),
            "`TrainingArguments(dataloader_num_workers=4, dataloader_prefetch_factor=4, dataloader_persistent_workers=True)` (more workers"
            " while the wait shrinks)",
        ),
        ((MEGATRON,), "`--num-workers 4` (more while the wait shrinks)"),
    ),
)
FURTHER_AHEAD: Final = Words(
    f"a larger `prefetch_factor`{MORE_WORKERS}",
    "`prefetch(tf.data.AUTOTUNE)` at the end of the `tf.data` pipeline",
    "more batches put on the device ahead of time",
    f"a larger `prefetch_factor`{MORE_WORKERS}; in TensorFlow `prefetch(tf.data.AUTOTUNE)`",
    programs=(
        ((HF_TRAINER,), "a larger `dataloader_prefetch_factor`, more `dataloader_num_workers` where cores are free"),
        ((MEGATRON,), "more `--num-workers` where cores are free"),
    ),
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
    programs=(((HF_TRAINER,), "`dataloader_num_workers={number}`"), ((MEGATRON,), "`--num-workers {number}`")),
)
BATCH_SIZE: Final = Words(
    "`batch_size`",
    "`batch_size` (of `dataset.batch` or `model.fit`)",
    "the batch size",
    "`batch_size`",
    programs=(
        ((VLLM,), "`--max-num-seqs`"),
        ((SGLANG,), "`--max-running-requests`"),
        ((TENSORRT_LLM,), "`max_batch_size`"),
        ((HF_TRAINER,), "`per_device_train_batch_size`"),
        ((DEEPSPEED,), "`train_micro_batch_size_per_gpu`"),
        ((MEGATRON,), "`--micro-batch-size`"),
    ),
)

# -- copies and waits ------------------------------------------------------------------------------------------------------

PINNED_BATCHES: Final = Words(
    "Load batches with `DataLoader(..., pin_memory=True)` and copy them with `batch.to(device, non_blocking=True)`",
    'Copy batches ahead with `dataset.apply(tf.data.experimental.prefetch_to_device("/GPU:0"))` as the last transformation',
    "Copy batches ahead with `jax.device_put` of the next one before this one is done",
    "Load batches with `DataLoader(..., pin_memory=True)` and copy them with `batch.to(device, non_blocking=True)` (PyTorch), or copy them"
    " ahead with `tf.data.experimental.prefetch_to_device` (TensorFlow)",
    programs=(
        (
            (HF_TRAINER,),
            'Set `TrainingArguments(dataloader_pin_memory=True, accelerator_config={"non_blocking": True})`, so that batches are copied'
            " from pinned memory",
        ),
        ((LIGHTNING,), "Load batches with `DataLoader(..., pin_memory=True)`; Lightning then copies them without blocking"),
        (
            (INFERENCE, PYTORCH),
            "Put inputs in pinned memory (`tensor.pin_memory()`) and copy them with `tensor.to(device, non_blocking=True)`",
        ),
    ),
)
PINNED_RESULTS: Final = Words(
    "Keep the results on the device and copy them now and then, into a buffer made with `torch.empty(..., pin_memory=True)` and with"
    " `copy_(..., non_blocking=True)`",
    "Keep the results on the device and read them (`.numpy()`, `float(tensor)`, printed tensors) once every 100 steps",
    "Keep the results on the device and read them once every 100 steps, with `copy_to_host_async()` some steps before",
    "Keep the results on the device and copy them now and then: in PyTorch into a buffer made with `torch.empty(..., pin_memory=True)` and"
    " with `copy_(..., non_blocking=True)`, in TensorFlow with `.numpy()` once every 100 steps",
    programs=(
        (
            (INFERENCE, PYTORCH),
            "Copy results into a buffer made with `torch.empty(..., pin_memory=True)` and with `copy_(..., non_blocking=True)`, and read"
            " them after the next iteration is launched",
        ),
    ),
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
    programs=(((MEGATRON,), "`--async-save` with `--ckpt-format torch_dist`"),),
)

SCHEDULING: Final = Words(
    "Prepare the next iteration on the host while the devices compute this one",
    "Prepare the next iteration on the host while the devices compute this one",
    "Prepare the next iteration on the host while the devices compute this one",
    "Prepare the next iteration on the host while the devices compute this one (the framework's asynchronous scheduling)",
    programs=(
        ((VLLM,), "Schedule the next iteration while the devices compute this one (`--async-scheduling`)"),
        ((SGLANG,), "Schedule the next batch while the devices compute this one (start SGLang without `--disable-overlap-schedule`)"),
        ((TENSORRT_LLM,), "Schedule the next iteration while the devices compute this one (`disable_overlap_scheduler: false`)"),
    ),
)
FEWER_COMPILATIONS: Final = Words(
    'Keep compilation out of the steps: `TORCH_LOGS="recompiles"` lists why code is compiled again; mark sizes that change with'
    " `torch._dynamo.mark_dynamic` or pad them to a few sizes",
    "Keep compilation out of the steps: pad inputs to a few shapes",
    "Keep compilation out of the steps: pad inputs to a few shapes",
    "Keep compilation out of the steps: pad inputs to a few shapes, and let the framework's log list why code is compiled again",
)

# -- kernels ---------------------------------------------------------------------------------------------------------------

FEWER_LAUNCHES: Final = Words(
    'with `torch.compile(mode="reduce-overhead")`, `torch.cuda.CUDAGraph` or a larger batch',
    "with `tf.function(jit_compile=True)`, `model.compile(steps_per_execution=10)` or a larger batch",
    "with the whole step under one `jax.jit`, several steps in `jax.lax.scan` or a larger batch",
    'with `torch.compile(mode="reduce-overhead")` or `torch.cuda.CUDAGraph` (PyTorch), `tf.function(jit_compile=True)` (TensorFlow) or a'
    " larger batch",
    programs=(
        (
            (VLLM, GRAPHS),
            "with graphs for the eager iterations as well (`cudagraph_capture_sizes` in `--compilation-config` up to the largest batch) or"
            " larger batches (`--max-num-seqs`, `--max-num-batched-tokens`)",
        ),
        (
            (VLLM,),
            "with CUDA graphs (start vLLM without `--enforce-eager`) or larger batches (`--max-num-seqs`, `--max-num-batched-tokens` with"
            " `--enable-chunked-prefill`)",
        ),
        (
            (SGLANG, GRAPHS),
            "with graphs for the eager iterations as well (`--cuda-graph-max-bs` up to the largest batch) or larger"
            " batches (`--max-running-requests`, `--chunked-prefill-size`)",
        ),
        (
            (SGLANG,),
            "with CUDA graphs (start SGLang without `--disable-cuda-graph`, `--cuda-graph-max-bs` up to the largest batch) or larger"
            " batches (`--max-running-requests`, `--chunked-prefill-size`)",
        ),
        (
            (TENSORRT_LLM,),
            "with CUDA graphs up to the largest batch (`cuda_graph_config` with `max_batch_size` and `enable_padding: true`) or larger"
            " batches (`max_batch_size`, `max_num_tokens`)",
        ),
        ((MEGATRON, GRAPHS), "with more of the layer in CUDA graphs (`--cuda-graph-modules`) or a larger `--micro-batch-size`"),
        ((GRAPHS, PYTORCH), "with more of the work inside the CUDA graphs that are in use, or a larger batch"),
        (
            (TORCH_COMPILE, PYTORCH),
            'with `mode="reduce-overhead"` in the `torch.compile(...)` that is in use, without graph breaks'
            ' (`TORCH_LOGS="graph_breaks,recompiles"` lists them), or a larger batch',
        ),
        (
            (DIFFUSERS,),
            'with `pipeline.transformer = torch.compile(pipeline.transformer, mode="reduce-overhead", fullgraph=True)` (`pipeline.unet` in'
            " older pipelines) or more images per call (`num_images_per_prompt`)",
        ),
        (
            (HF_TRAINER,),
            'with `TrainingArguments(torch_compile=True, torch_compile_mode="reduce-overhead")` or a larger `per_device_train_batch_size`',
        ),
        ((MEGATRON,), "with CUDA graphs (`--cuda-graph-impl local`) or a larger `--micro-batch-size`"),
        ((DEEPSPEED,), "with `engine.compile()` or a larger `train_micro_batch_size_per_gpu`"),
        ((LIGHTNING,), 'with `torch.compile(model, mode="reduce-overhead")` before `trainer.fit(model)`, or a larger batch'),
        (
            (INFERENCE, GENERATE),
            'with `generate(..., cache_implementation="static")` and `model.forward = torch.compile(model.forward, mode="reduce-overhead")`'
            " or a larger batch",
        ),
        (
            (INFERENCE, TRANSFORMERS),
            'with `model.forward = torch.compile(model.forward, mode="reduce-overhead")` or a larger batch',
        ),
    ),
)
TF32: Final = Words(
    'Allow TF32 with `torch.set_float32_matmul_precision("high")` and `torch.backends.cudnn.allow_tf32 = True`, or run forward and'
    ' loss under `torch.autocast("cuda", dtype=torch.bfloat16)`',
    "Allow TF32 with `tf.config.experimental.enable_tensor_float_32_execution(True)`, or train under"
    ' `tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")`',
    'Allow TF32 with `jax.config.update("jax_default_matmul_precision", "tensorfloat32")`, or compute in `jnp.bfloat16`',
    'Allow TF32 (PyTorch: `torch.set_float32_matmul_precision("high")` and `torch.backends.cudnn.allow_tf32 = True`; TensorFlow:'
    " `tf.config.experimental.enable_tensor_float_32_execution(True)`), or train in BF16 (PyTorch: forward and loss under"
    ' `torch.autocast("cuda", dtype=torch.bfloat16)`; TensorFlow: `tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")`)',
    programs=(
        ((VLLM,), "Serve the model with `--dtype bfloat16`"),
        ((SGLANG,), "Serve the model with `--dtype bfloat16`"),
        ((TENSORRT_LLM,), 'Load the model with `LLM(..., dtype="bfloat16")`'),
        ((DIFFUSERS,), "Load the pipeline with `from_pretrained(..., torch_dtype=torch.bfloat16)`"),
        ((HF_TRAINER,), "Set `TrainingArguments(tf32=True)`, or `bf16=True`"),
        (
            (LIGHTNING,),
            'Allow TF32 with `torch.set_float32_matmul_precision("high")`, or train with `Trainer(precision="bf16-mixed")`',
        ),
        ((DEEPSPEED,), 'Set `"bf16": {"enabled": true}` in the DeepSpeed configuration'),
        ((MEGATRON,), "Train with `--bf16`"),
        (
            (INFERENCE, PYTORCH),
            'Allow TF32 with `torch.set_float32_matmul_precision("high")` and `torch.backends.cudnn.allow_tf32 = True`, or convert the'
            " model with `model.to(torch.bfloat16)`",
        ),
    ),
)
BF16: Final = Words(
    'Run forward and loss under `torch.autocast("cuda", dtype=torch.bfloat16)`',
    'Train under `tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")`',
    "Compute in `jnp.bfloat16` and keep the parameters in `jnp.float32`",
    'Run forward and loss under `torch.autocast("cuda", dtype=torch.bfloat16)` (PyTorch) or train under'
    ' `tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")` (TensorFlow)',
    programs=(
        ((VLLM,), "Serve the model with `--dtype bfloat16`"),
        ((SGLANG,), "Serve the model with `--dtype bfloat16`"),
        ((TENSORRT_LLM,), 'Load the model with `LLM(..., dtype="bfloat16")`'),
        ((DIFFUSERS,), "Load the pipeline with `from_pretrained(..., torch_dtype=torch.bfloat16)`"),
        ((HF_TRAINER,), "Set `TrainingArguments(bf16=True)`"),
        ((LIGHTNING,), 'Train with `Trainer(precision="bf16-mixed")`'),
        ((DEEPSPEED,), 'Set `"bf16": {"enabled": true}` in the DeepSpeed configuration'),
        ((MEGATRON,), "Train with `--bf16`"),
        ((INFERENCE, PYTORCH), "Convert the model with `model.to(torch.bfloat16)`"),
    ),
)
FP16: Final = Words(
    'Run forward and loss under `torch.autocast("cuda", dtype=torch.float16)` with `torch.amp.GradScaler("cuda")`',
    'Train under `tf.keras.mixed_precision.set_global_policy("mixed_float16")`, in a loop of your own with'
    " `tf.keras.mixed_precision.LossScaleOptimizer`",
    "Compute in `jnp.float16` with a scaled loss and keep the parameters in `jnp.float32`",
    'Run forward and loss under `torch.autocast("cuda", dtype=torch.float16)` with `torch.amp.GradScaler("cuda")` (PyTorch) or train under'
    ' `tf.keras.mixed_precision.set_global_policy("mixed_float16")` (TensorFlow)',
    programs=(
        ((VLLM,), "Serve the model with `--dtype float16`"),
        ((SGLANG,), "Serve the model with `--dtype float16`"),
        ((TENSORRT_LLM,), 'Load the model with `LLM(..., dtype="float16")`'),
        ((DIFFUSERS,), "Load the pipeline with `from_pretrained(..., torch_dtype=torch.float16)`"),
        ((HF_TRAINER,), "Set `TrainingArguments(fp16=True)`"),
        ((LIGHTNING,), 'Train with `Trainer(precision="16-mixed")`'),
        ((DEEPSPEED,), 'Set `"fp16": {"enabled": true}` in the DeepSpeed configuration'),
        ((MEGATRON,), "Train with `--fp16`"),
        ((INFERENCE, PYTORCH), "Convert the model with `model.half()`"),
    ),
)
FP8: Final = Words(
    " FP8 would need Transformer Engine or torchao.",
    "",
    " FP8 would need Transformer Engine.",
    " FP8 would need Transformer Engine or torchao.",
    programs=(((INFERENCE, VLLM), " FP8 would need `--quantization fp8`."), ((INFERENCE, SGLANG), " FP8 would need `--quantization fp8`.")),
)

# -- processes and memory --------------------------------------------------------------------------------------------------

EVERY_GPU: Final = Words(
    "`torchrun --nproc-per-node={gpus}`",
    "`tf.distribute.MirroredStrategy()`",
    '`jax.make_mesh(({gpus},), ("batch",))`',
    "`torchrun --nproc-per-node={gpus}`, in TensorFlow `tf.distribute.MirroredStrategy()`",
    programs=(
        ((VLLM,), "`--tensor-parallel-size {gpus}`"),
        ((SGLANG,), "`--tp-size {gpus}`"),
        ((TENSORRT_LLM,), "`tensor_parallel_size={gpus}`"),
    ),
)
EQUAL_BATCHES: Final = Words(
    "`DistributedSampler(drop_last=True)`",
    "`dataset.batch(..., drop_remainder=True)`",
    "`grain.ShardOptions(..., drop_remainder=True)`",
    "`DistributedSampler(drop_last=True)`, in TensorFlow `dataset.batch(..., drop_remainder=True)`",
    programs=(((INFERENCE,), "requests of similar length"),),
)
EQUAL_SHARES: Final = Words(
    "`DistributedSampler` with one process per GPU",
    "`strategy.experimental_distribute_dataset`",
    "batches divided by `jax.sharding.NamedSharding`",
    "`DistributedSampler` with one process per GPU, in TensorFlow `strategy.experimental_distribute_dataset`",
    programs=(((INFERENCE,), "requests distributed over the replicas by their load"),),
)
NUMBERS_ONLY: Final = Words(
    "Keep numbers instead of tensors between steps (`loss.item()` or `loss.detach()`) and evaluate under `torch.no_grad()`",
    "Keep numbers instead of tensors between steps (`float(loss)`) and evaluate outside of `tf.GradientTape`",
    "Keep numbers instead of arrays between steps (`float(loss)`) and donate the arguments of the step (`donate_argnums`)",
    "Keep numbers instead of tensors between steps (`loss.item()` or `loss.detach()`, in TensorFlow `float(loss)`) and evaluate without"
    " gradients (`torch.no_grad()`, outside of `tf.GradientTape`)",
    programs=(
        (
            (INFERENCE, PYTORCH),
            "Run the model under `torch.inference_mode()` and drop outputs and caches (`past_key_values`) before the next request",
        ),
    ),
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
    programs=(
        ((VLLM,), "(`llm.start_profile()` after some requests)"),
        ((SGLANG,), "(`/start_profile` after some requests)"),
    ),
)
TRACE_SOME: Final = Words(
    "Trace some steps with PyTorch's profiler (`with_stack=True`)",
    "Trace some steps with TensorFlow's profiler (`ProfilerOptions(python_tracer_level=1)`)",
    "Trace some steps with `jax.profiler.trace`",
    "Trace some steps with the framework's profiler (PyTorch: `with_stack=True`)",
    programs=(
        ((VLLM,), "Trace some iterations with vLLM's profiler (`torch_profiler_with_stack` in `--profiler-config`)"),
        ((SGLANG,), "Trace some iterations with SGLang's profiler (`/start_profile` with `with_stack`)"),
    ),
)
TRACE_AGAIN: Final = Words(
    "Record once more with `with_stack=True`",
    "Record once more with `tf.profiler.experimental.ProfilerOptions(python_tracer_level=1)`",
    "Record once more with `python_tracer_level = 1` in `jax.profiler.ProfileOptions`",
    programs=(
        ((VLLM,), "Record once more with vLLM's profiler (`torch_profiler_with_stack` in `--profiler-config`)"),
        ((SGLANG,), "Record once more with SGLang's profiler (`/start_profile` with `with_stack`)"),
    ),
)
WITH_STACKS: Final = Words(
    "(torch.profiler, `with_stack=True`)",
    "(`tf.profiler.experimental.ProfilerOptions(python_tracer_level=1)`)",
    "(`python_tracer_level = 1` in `jax.profiler.ProfileOptions`)",
    "(PyTorch: torch.profiler, `with_stack=True`; TensorFlow: `ProfilerOptions(python_tracer_level=1)`)",
)
