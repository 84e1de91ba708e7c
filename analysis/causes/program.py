"""The program of a run: run store -> training or inference, its frameworks, and a sentence for each fact that shows them.

A framework is recognized by names that it alone writes: of its ranges, operators, Python frames, calls and kernels. A name that several
programs write (an attention kernel, a kernel of vLLM that SGLang also calls) is not a sign. docs/programs.md lists the signs.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import polars as pl

from ...ingest.store.store import Store
from ..report.causes import Program
from ..toolkit import wording
from ..toolkit.contents import formats, stated
from ..toolkit.shared import shared

TRAINING: Final = "training"
INFERENCE: Final = "inference"
UNKNOWN: Final = "unknown"

VLLM: Final = "vLLM"
SGLANG: Final = "SGLang"
TENSORRT_LLM: Final = "TensorRT-LLM"
DIFFUSERS: Final = "diffusers"
HF_TRAINER: Final = "Hugging Face Trainer"
TRANSFORMERS: Final = "Hugging Face transformers"
GENERATE: Final = "Hugging Face generate"
LIGHTNING: Final = "Lightning"
MEGATRON: Final = "Megatron"
DEEPSPEED: Final = "DeepSpeed"
TORCHREC: Final = "TorchRec"
FSDP: Final = "FSDP"
DDP: Final = "DDP"
TORCH_COMPILE: Final = "torch.compile"
GRAPHS: Final = "CUDA graphs"
EAGER: Final = "PyTorch eager"
PYTORCH: Final = "PyTorch"
TENSORFLOW: Final = "TensorFlow"
JAX: Final = "JAX"
ENGINES: Final = (VLLM, SGLANG, TENSORRT_LLM)
BASES: Final = (PYTORCH, TENSORFLOW, JAX)

# Where a name is from -> (noun, plural); the sources that :data:`_COUNTS` tells apart.
_NOUNS: Final = {
    "range": ("range", "ranges"),
    "operator": ("operator", "operators"),
    "frame": ("Python frame", "Python frames"),
    "call": ("call", "calls"),
    "kernel": ("kernel", "kernels"),
    "group": ("collective", "collectives"),
}
_ALL: Final = tuple(_NOUNS)
_CODE: Final = ("range", "operator")  # old traces list ranges as operators
_BACKWARD: Final = "backward"
_OPTIMIZER: Final = "optimizer"
_ENGINE: Final = "engine"
_MATRIX: Final = "matrix"
_LAYER: Final = "layer"
_FORWARD_OPERATORS: Final = 10  # products and convolutions without a backward that show a forward pass; fewer may be a measurement of one


class _Sign(NamedTuple):
    """Names that show one thing. ``sources``: where such a name counts. ``pattern``: for RE2 and Rust."""

    shows: str
    sources: tuple[str, ...]
    pattern: str
    meaning: str


class _Fact(NamedTuple):
    """Occurrences of the names of a sign in one source, and a sentence about them."""

    total: int
    source: str
    sentence: str


_Facts = dict[str, list[_Fact]]
# From the outermost framework to the innermost; the report lists them in this order.
_SIGNS: Final = (
    _Sign(VLLM, _CODE, r"^execute_(context_\d+\(\d+\)_generation_\d+\(\d+\)|new_\d+_cached_\d+)", "as vLLM writes them"),
    _Sign(VLLM, _CODE, r"^gpu_model_runner: |^vllm::(unified_attention|unified_mla_attention|moe_forward)", "of vLLM's model runner"),
    _Sign(VLLM, ("frame",), r"(^|/)vllm/(v1|engine|worker|model_executor|entrypoints)/", "of vLLM's code"),
    _Sign(SGLANG, _CODE, r"^step\[[A-Z_]+ bs=\d+", "as SGLang writes them"),
    _Sign(SGLANG, _CODE, r"^(sglang|sgl_kernel)::", "of SGLang"),
    _Sign(SGLANG, ("frame",), r"(^|/)sglang/srt/", "of SGLang's code"),
    _Sign(TENSORRT_LLM, _CODE, r"^\[Executor\] _forward_step|^trtllm::", "as TensorRT-LLM writes them"),
    _Sign(TENSORRT_LLM, ("frame",), r"(^|/)tensorrt_llm/", "of TensorRT-LLM's code"),
    _Sign(DIFFUSERS, ("frame",), r"(^|/)diffusers/(pipelines|models|schedulers)/", "of diffusers' code"),
    _Sign(HF_TRAINER, ("frame",), r"(^|/)transformers/trainer\.py", "of the Trainer of Hugging Face transformers"),
    _Sign(
        TRANSFORMERS,
        ("frame",),
        r"(^|/)transformers/(models/\w+/modeling_\w+|generation/utils|trainer)\.py",
        "of Hugging Face transformers",
    ),
    _Sign(GENERATE, ("frame",), r"(^|/)transformers/generation/utils\.py", "of generate of Hugging Face transformers"),
    _Sign(LIGHTNING, _CODE, r"^\[pl\]\[(profile|module)\]", "as Lightning's profiler writes them"),
    _Sign(LIGHTNING, ("frame",), r"(^|/)(lightning/pytorch|lightning/fabric|pytorch_lightning)/", "of Lightning's code"),
    _Sign(MEGATRON, ("group",), r"^((TENSOR|PIPELINE|EXPERT)_MODEL_PARALLEL_GROUP|DATA_PARALLEL_GROUP_WITH_CP)", "of Megatron's groups"),
    _Sign(MEGATRON, ("frame",), r"(^|/)megatron/(core|training|legacy)/", "of Megatron's code"),
    _Sign(
        DEEPSPEED,
        _CODE,
        r"^(DeepSpeedEngine|DeepSpeedZeroOptimizer(_Stage3)?|PartitionedParameterCoordinator|PipelineEngine)\.",
        "as DeepSpeed writes them",
    ),
    _Sign(DEEPSPEED, ("frame",), r"(^|/)deepspeed/(runtime|ops|comm)/", "of DeepSpeed's code"),
    _Sign(
        TORCHREC, _CODE, r"^## (all2all_data:|(start_|wait_)?sparse_data_dist|wait_for_batch ##)", "of TorchRec's pipeline and exchanges"
    ),
    _Sign(TORCHREC, ("frame",), r"(^|/)torchrec/(distributed|modules|sparse)/", "of TorchRec's code"),
    _Sign(FSDP, _CODE, r"^FSDP::|^FullyShardedDataParallel[.:]|^fsdp::", "as FSDP writes them"),
    _Sign(
        DDP,
        _CODE,
        r"^DistributedDataParallel\.forward|^torch(::distributed::reducer|\.distributed\.ddp\.reducer)::",
        "as DistributedDataParallel writes them",
    ),
    _Sign(TORCH_COMPILE, _CODE, r"^(Torch-Compiled Region|## Call CompiledFxGraph|CompiledFunction)", "of torch.compile"),
    _Sign(TORCH_COMPILE, ("kernel",), r"^triton_(poi|per|red|tem)_fused_", "that TorchInductor generated"),
    _Sign(GRAPHS, ("call",), r"^(cu|cuda|hip)GraphLaunch", "that replay graphs"),
    _Sign(PYTORCH, _ALL, r"^(aten|torch|c10d)::|^autograd::engine::|^Optimizer\.(step|zero_grad)#|^enumerate\(DataLoader\)", "of PyTorch"),
    _Sign(PYTORCH, _ALL, r"^(void )?at::native::", "of PyTorch"),
    _Sign(
        TENSORFLOW,
        _ALL,
        r"^(void )?tensorflow::|^(Eager(Local|Kernel)?Execute|TFE_Py_|ExecutorState::|TensorHandle::)|^aws_marker-"
        r"|^(FunctionRun|dataset::GetNext)$",
        "of TensorFlow",
    ),
    _Sign(JAX, _ALL, r"^PjitFunction\(|^jit_\w+\(|^\$pjit\.py:", "of JAX"),
    # -- the kind ----------------------------------------------------------------------------------------------------------
    _Sign(_BACKWARD, _CODE, r"^autograd::engine::evaluate_function|^\w+Backward\d*$|^gradient_tape/", "of the backward pass"),
    _Sign(_BACKWARD, _CODE, r"^aten::\w+_backward$|^(## )?[Bb]ackward( ##)?$", "of the backward pass"),
    _Sign(_BACKWARD, ("kernel",), r"(?i)_backward|backward_|_bwd_|bwd_kernel|bnbwd", "of the backward pass"),
    _Sign(_OPTIMIZER, _CODE, r"^Optimizer\.(step|zero_grad)#", "of an optimizer"),
    _Sign(_OPTIMIZER, ("kernel",), r"FusedAdam|AdamFunctor|AdamMathFunctor|LAMBStage", "of an optimizer"),
    _Sign(
        _ENGINE,
        _CODE,
        r"^execute_(context_\d+\(\d+\)_generation_\d+\(\d+\)|new_\d+_cached_\d+|diffusion_)|^step\[[A-Z_]+ bs=\d+"
        r"|^\[Executor\] _forward_step|^(prefill|decode)\[bs=\d+",
        "of an inference engine",
    ),
    _Sign(_MATRIX, ("operator",), r"^aten::(mm|addmm|bmm|baddbmm|convolution)$", "of a forward pass"),
    _Sign(
        _LAYER,
        ("operator",),
        r"^aten::(_?softmax|native_layer_norm|batch_norm|group_norm|rms_norm|relu_?|gelu|silu_?|sigmoid|scaled_dot_product_attention)$",
        "of a forward pass",
    ),
)
_OF_KIND: Final = (_BACKWARD, _OPTIMIZER, _ENGINE, _MATRIX, _LAYER)
_LISTED: Final = tuple(name for name in dict.fromkeys(sign.shows for sign in _SIGNS) if name not in (*BASES, *_OF_KIND))
_ON_PYTORCH: Final = set(_LISTED) - {TRANSFORMERS, GENERATE, GRAPHS}  # models of transformers and graphs are also those of other frameworks
_EVERY: Final = "|".join(f"({sign.pattern})" for sign in _SIGNS)
# Occurrences of each name by its source; ranges that a profiler projected onto a stream count only if the host has none.
_COUNTS: Final = """
    WITH sign AS (SELECT id, text, coalesce(short, text) AS label FROM name WHERE regexp_matches(text, ?))
    SELECT source, text, label, sum(count)::BIGINT AS count FROM (
        SELECT 'range' AS source, name, greatest(count(*) FILTER (side = 'host'), count(*) FILTER (side = 'device')) AS count
        FROM annotation WHERE name IN (SELECT id FROM sign) GROUP BY name
        UNION ALL
        SELECT CASE kind WHEN 'operator' THEN 'operator' WHEN 'python' THEN 'frame' WHEN 'loader' THEN 'range' ELSE 'call' END, name,
            count(*)
        FROM host_event WHERE name IN (SELECT id FROM sign) GROUP BY kind, name
        UNION ALL
        SELECT 'kernel', name, count(*) FROM device_event WHERE kind = 'kernel' AND name IN (SELECT id FROM sign) GROUP BY name
    ) JOIN sign ON sign.id = name GROUP BY source, text, label
    UNION ALL
    SELECT 'group', group_description, group_description, count(*) FROM collective WHERE group_description IS NOT NULL
    GROUP BY group_description ORDER BY count DESC, text
"""
_TRAIN_STEPS: Final = "SELECT count(*) FROM step WHERE upper(phase) = 'TRAIN'"
_LOADER_SETTINGS: Final = "SELECT EXISTS (FROM annotation WHERE arguments->>'num_workers' IS NOT NULL)"
# Words for the base frameworks in the job's information or from a reader.
_CALLED: Final = {"torch": PYTORCH, "lightning": PYTORCH, "tensorflow": TENSORFLOW, "keras": TENSORFLOW, "jax": JAX, "flax": JAX}
_TRACES: Final = {"PyTorch profiler trace": PYTORCH, "TensorFlow trace": TENSORFLOW}
_SHOWN_CHARACTERS: Final = 60  # of a name in a sentence


@shared
def program(store: Store) -> Program:
    """Recognize the program of a run."""
    facts = _facts_of(store)
    kind, evidence = _kind(store, facts)
    base, base_evidence = _base(store, facts)
    frameworks = [name for name in _LISTED if name in facts]
    evidence += [fact.sentence for name in frameworks for fact in facts[name]]
    if (
        base == PYTORCH
        and any(fact.source == "operator" for fact in facts.get(PYTORCH, []))
        and not {TORCH_COMPILE, GRAPHS} & set(frameworks)
    ):
        base_evidence.append("No compiled region and no graph launch: PyTorch runs its operators one by one.")
        base = EAGER
    if base is not None:
        frameworks.append(base)
    return Program(kind, tuple(frameworks), tuple(dict.fromkeys(evidence + base_evidence)))


def _facts_of(store: Store) -> _Facts:
    """Return what the names show: occurrences and a sentence, by sign and source."""
    facts: _Facts = {}
    counts = store.frame(_COUNTS, [_EVERY]) if store.has_rows("name", "collective") else pl.DataFrame()
    if counts.is_empty():
        return facts
    matches = counts.select(
        "source",
        "label",
        "count",
        *(
            (pl.col("source").is_in(sign.sources) & pl.col("text").str.contains(sign.pattern)).alias(str(number))
            for number, sign in enumerate(_SIGNS)
        ),
    )
    rows = matches.rows()  # most frequent first
    for number, sign in enumerate(_SIGNS, 3):
        totals: dict[str, tuple[int, str]] = {}
        for row in rows:
            if row[number]:
                total, example = totals.get(row[0], (0, row[1]))
                totals[row[0]] = total + row[2], example
        for source, (total, example) in totals.items():
            facts.setdefault(sign.shows, []).append(_Fact(total, source, _sentence(total, source, example, sign.meaning)))
    return facts


def program_words(known: Program | None, *, base: bool = True) -> str:
    """Word a program: "inference with vLLM and CUDA graphs"; empty if unknown.

    ``base``: also name PyTorch, TensorFlow or JAX."""
    if known is None:
        return ""
    names = [name for name in known.frameworks if base or name not in (*BASES, EAGER)]
    listed = ", ".join(names[:-1]) + f" and {names[-1]}" if len(names) > 1 else "".join(names)
    return " with ".join(part for part in ("" if known.kind == UNKNOWN else known.kind, listed) if part)


def serves(known: Program) -> bool:
    """Return whether an engine serves requests.

    It reads the results of each iteration."""
    return known.kind == INFERENCE and any(name in ENGINES for name in known.frameworks)


def base_framework(known: Program) -> str | None:
    """Return PYTORCH, TENSORFLOW or JAX; None if unknown or ambiguous."""
    if not known.frameworks:
        return None
    innermost = PYTORCH if known.frameworks[-1] == EAGER else known.frameworks[-1]
    return innermost if innermost in BASES else None


def _kind(store: Store, facts: _Facts) -> tuple[str, list[str]]:
    """Return the kind and its evidence."""
    training = [fact.sentence for sign in (_BACKWARD, _OPTIMIZER) for fact in facts.get(sign, [])]
    steps = int(store.frame(_TRAIN_STEPS).item()) if store.has_rows("step") else 0
    if steps:
        training.append(f"{wording.plural(steps, 'step')} in the mode TRAIN.")
    if training:
        return TRAINING, training
    known = any(name in facts for name in ENGINES)  # its own facts follow
    if known or _ENGINE in facts:
        engine = [] if known else [fact.sentence for fact in facts[_ENGINE]]
        return INFERENCE, [*engine, "No operator of a backward pass or of an optimizer."]
    wrapped = [name for name in (HF_TRAINER, LIGHTNING, MEGATRON, DEEPSPEED, TORCHREC, FSDP, DDP) if name in facts]
    products = sum(fact.total for fact in facts.get(_MATRIX, []))
    if products >= _FORWARD_OPERATORS and _LAYER in facts and not wrapped:
        sentences = [fact.sentence for sign in (_MATRIX, _LAYER) for fact in facts[sign]]
        return INFERENCE, [*sentences, "No operator of a backward pass or of an optimizer."]
    return UNKNOWN, []


def _base(store: Store, facts: _Facts) -> tuple[str | None, list[str]]:
    """Return the framework of the operators and its evidence; None if ambiguous."""
    recorded = stated(store, "framework") or ""
    called = {framework for word, framework in _CALLED.items() if word in recorded.lower()}
    if len(called) == 1:
        return called.pop(), [f"The run names its framework: {_cut(recorded)}."]
    evidence: dict[str, list[str]] = {name: [facts[name][0].sentence] for name in BASES if name in facts}
    for form in sorted(formats(store) & _TRACES.keys(), key=str):
        evidence.setdefault(_TRACES[str(form)], []).append(f"A file is a {form}.")
    # The hosted profiler records these settings of PyTorch's data loaders alone.
    if PYTORCH not in evidence and store.has_rows("annotation") and store.frame(_LOADER_SETTINGS).item():
        evidence[PYTORCH] = ["The trace has settings of PyTorch's data loaders."]
    if JAX in evidence:
        evidence.pop(TENSORFLOW, None)  # JAX uses TensorFlow's profiler and input pipelines
    if not evidence and facts.keys() & _ON_PYTORCH:
        evidence[PYTORCH] = []
    if len(evidence) != 1:
        return None, []
    return evidence.popitem()


def _sentence(total: int, source: str, example: str, meaning: str) -> str:
    """Word a fact: 12 ranges as SGLang writes them, such as `step[DECODE bs=4]`."""
    return f"{wording.plural(total, *_NOUNS[source])} {meaning}, such as `{_cut(example)}`."


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"
