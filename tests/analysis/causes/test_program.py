"""The program of a run is recognized from names that its frameworks alone write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from postrun.analysis.causes.program import base_framework, program
from postrun.ingest.store import Store

MakeStore = Callable[..., Store]
Rows = list[dict[str, Any]]


def host(kind: str, *names: str) -> Rows:
    return [{"kind": kind, "name": name, "start_ns": number, "duration_ns": 1} for number, name in enumerate(names)]


def ranges(*names: str, side: str = "host") -> Rows:
    return [{"side": side, "name": name, "start_ns": number, "duration_ns": 1} for number, name in enumerate(names)]


def kernels(*names: str) -> Rows:
    return [{"kind": "kernel", "name": name, "start_ns": number, "duration_ns": 1} for number, name in enumerate(names)]


FORWARD = ["aten::addmm"] * 10 + ["aten::native_layer_norm"]
BACKWARD = "autograd::engine::evaluate_function: AddmmBackward0"
CASES: dict[str, tuple[dict[str, Rows], str, tuple[str, ...]]] = {
    "nothing": ({}, "unknown", ()),
    "vLLM": ({"annotation": ranges("execute_context_1(888)_generation_0(0)")}, "inference", ("vLLM", "PyTorch")),
    "older vLLM": ({"annotation": ranges("execute_new_1_cached_3")}, "inference", ("vLLM", "PyTorch")),
    "vLLM's code": ({"host_event": host("python", "vllm/v1/worker/gpu_worker.py(620): execute_model")}, "inference", ("vLLM", "PyTorch")),
    "vLLM with graphs": (
        {
            "annotation": ranges("execute_context_0(0)_generation_4(4)", "## Call CompiledFxGraph fabc ##"),
            "host_event": [*host("launch", "cudaGraphLaunch"), *host("operator", "aten::copy_")],
        },
        "inference",
        ("vLLM", "torch.compile", "CUDA graphs", "PyTorch"),
    ),
    "SGLang": ({"annotation": ranges("step[EXTEND bs=15 toks=15360]")}, "inference", ("SGLang", "PyTorch")),
    "SGLang, projected": ({"annotation": ranges("step[DECODE bs=4]", side="device")}, "inference", ("SGLang", "PyTorch")),
    "TensorRT-LLM": (
        {"annotation": ranges("[Executor] _forward_step 7: 2 ctx reqs, 30 gen reqs")},
        "inference",
        ("TensorRT-LLM", "PyTorch"),
    ),
    "another engine": ({"annotation": ranges("prefill[bs=2 tok=16384]")}, "inference", ()),
    "diffusers": (
        {"host_event": [*host("python", "diffusers/pipelines/flux/pipeline_flux.py(900): __call__"), *host("operator", *FORWARD)]},
        "inference",
        ("diffusers", "PyTorch eager"),
    ),
    "a forward pass": ({"host_event": host("operator", *FORWARD)}, "inference", ("PyTorch eager",)),
    "too few operators": ({"host_event": host("operator", *FORWARD[1:])}, "unknown", ("PyTorch eager",)),
    "products alone": ({"host_event": host("operator", *["aten::mm"] * 50)}, "unknown", ("PyTorch eager",)),
    "attention alone": (
        {"host_event": host("operator", "aten::scaled_dot_product_attention"), "device_event": kernels("flash_fwd_kernel")},
        "unknown",
        ("PyTorch eager",),
    ),
    "a training": ({"host_event": host("operator", *FORWARD, BACKWARD)}, "training", ("PyTorch eager",)),
    "an optimizer": ({"annotation": ranges("Optimizer.step#AdamW.step")}, "training", ("PyTorch",)),
    "kernels of a training": ({"device_event": kernels("flash_bwd_kernel")}, "training", ()),
    "modes": (
        {"step": [{"node": 0, "process": 0, "index": 0, "phase": "TRAIN", "host_start_ns": 0, "host_duration_ns": 1, "device_events": 0}]},
        "training",
        (),
    ),
    "a training that serves": (
        {"annotation": ranges("execute_context_0(0)_generation_4(4)"), "host_event": host("operator", BACKWARD)},
        "training",
        ("vLLM", "PyTorch eager"),
    ),
    "a wrapped forward pass": (
        {"annotation": ranges("FullyShardedDataParallel._pre_forward"), "host_event": host("operator", *FORWARD)},
        "unknown",
        ("FSDP", "PyTorch eager"),
    ),
    "FSDP2": (
        {"annotation": ranges("FSDP::pre_forward (layers.3)"), "host_event": host("operator", BACKWARD)},
        "training",
        ("FSDP", "PyTorch eager"),
    ),
    "DDP": ({"annotation": ranges("DistributedDataParallel.forward")}, "unknown", ("DDP", "PyTorch")),
    "TorchRec": (
        {"annotation": ranges("## wait_for_batch ##", "## backward ##"), "host_event": host("operator", "aten::mm")},
        "training",
        ("TorchRec", "PyTorch eager"),
    ),
    "Lightning": (
        {"annotation": ranges("[pl][profile][Strategy]DDPStrategy.training_step", "Optimizer.step#Adam.step")},
        "training",
        ("Lightning", "PyTorch"),
    ),
    "Megatron": (
        {"host_event": [*host("python", "/opt/megatron/core/pipeline_parallel/schedules.py(40): x"), *host("operator", BACKWARD)]},
        "training",
        ("Megatron", "PyTorch eager"),
    ),
    "Megatron's groups": (
        {"collective": [{"node": 0, "process": 0, "start_ns": 0, "duration_ns": 1, "group_description": "TENSOR_MODEL_PARALLEL_GROUP"}]},
        "unknown",
        ("Megatron", "PyTorch"),
    ),
    "groups of a device mesh": (
        {"collective": [{"node": 0, "process": 0, "start_ns": 0, "duration_ns": 1, "group_description": "mesh_dp"}]},
        "unknown",
        (),
    ),
    "DeepSpeed": ({"annotation": ranges("DeepSpeedEngine.forward", "backward")}, "training", ("DeepSpeed", "PyTorch")),
    "Trainer": (
        {"host_event": [*host("python", "transformers/trainer.py(3700): training_step"), *host("operator", BACKWARD)]},
        "training",
        ("Hugging Face Trainer", "Hugging Face transformers", "PyTorch eager"),
    ),
    "compiled": (
        {"annotation": ranges("Torch-Compiled Region: 0/0"), "host_event": host("operator", "CompiledFunctionBackward")},
        "training",
        ("torch.compile", "PyTorch"),
    ),
    "TensorFlow": ({"annotation": ranges("dataset::GetNext")}, "unknown", ("TensorFlow",)),
    "JAX": ({"host_event": host("operator", "PjitFunction(train_step)")}, "unknown", ("JAX",)),
    "JAX with TensorFlow's input pipeline": (
        {"annotation": ranges("dataset::GetNext"), "host_event": host("operator", "PjitFunction(train_step)")},
        "unknown",
        ("JAX",),
    ),
    "compiled functions of JAX": ({"annotation": ranges("jit_train_step(7)")}, "unknown", ("JAX",)),
    "JAX's code": ({"host_event": host("python", "$pjit.py:330 cache_miss")}, "unknown", ("JAX",)),
    "PyTorch and TensorFlow": ({"annotation": ranges("dataset::GetNext"), "host_event": host("operator", "aten::mm")}, "unknown", ()),
    "vLLM's operators": ({"host_event": host("operator", "vllm::unified_attention")}, "inference", ("vLLM", "PyTorch")),
    "vLLM's model runner": ({"annotation": ranges("gpu_model_runner: forward")}, "inference", ("vLLM", "PyTorch")),
    "SGLang's operators": ({"host_event": host("operator", "sgl_kernel::rmsnorm")}, "inference", ("SGLang", "PyTorch")),
    "SGLang's code": (
        {"host_event": host("python", "/opt/sglang/srt/managers/scheduler.py(900): run")},
        "inference",
        ("SGLang", "PyTorch"),
    ),
    "TensorRT-LLM's operators": ({"host_event": host("operator", "trtllm::allreduce")}, "inference", ("TensorRT-LLM", "PyTorch")),
    "TensorRT-LLM's code": (
        {"host_event": host("python", "tensorrt_llm/_torch/pyexecutor/py_executor.py(9): f")},
        "inference",
        ("TensorRT-LLM", "PyTorch"),
    ),
    "Lightning's code": (
        {"host_event": [*host("python", "/x/lightning/pytorch/loops/fit_loop.py(9): run"), *host("operator", BACKWARD)]},
        "training",
        ("Lightning", "PyTorch eager"),
    ),
    "DeepSpeed's code": (
        {"host_event": [*host("python", "deepspeed/runtime/engine.py(9): step"), *host("operator", BACKWARD)]},
        "training",
        ("DeepSpeed", "PyTorch eager"),
    ),
    "TorchRec's code": (
        {"host_event": [*host("python", "torchrec/distributed/train_pipeline.py(9): progress"), *host("operator", BACKWARD)]},
        "training",
        ("TorchRec", "PyTorch eager"),
    ),
    "models of transformers": (
        {"host_event": [*host("python", "transformers/models/llama/modeling_llama.py(9): forward"), *host("operator", *FORWARD)]},
        "inference",
        ("Hugging Face transformers", "PyTorch eager"),
    ),
    "kernels of TorchInductor": ({"device_event": kernels("triton_poi_fused_add_0")}, "unknown", ("torch.compile", "PyTorch")),
    "kernels of PyTorch": ({"device_event": kernels("void at::native::elementwise_kernel<4>")}, "unknown", ("PyTorch",)),
    "kernels of an optimizer": ({"device_event": kernels("multi_tensor_apply_kernel<FusedAdamMathFunctor>")}, "training", ()),
    "a backward operator": ({"host_event": host("operator", "aten::native_layer_norm_backward")}, "training", ("PyTorch eager",)),
    "settings of data loaders": (
        {"annotation": [{**ranges("loader")[0], "arguments": '{"num_workers": 4}'}]},
        "unknown",
        ("PyTorch",),
    ),
    "similar names": (
        {
            "annotation": ranges("my step[EXTEND bs=1]", "execute_context", "execute_model", "denoise", "backwards"),
            "host_event": host("python", "src/vllm_utils.py(3): f", "sentence_transformers/trainer.py(3): f"),
            "device_event": kernels("void vllm::rms_norm_kernel<float>"),
        },
        "unknown",
        (),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_program_of_a_run(make_store: MakeStore, case: str) -> None:
    tables, kind, frameworks = CASES[case]
    known = program(make_store(**tables))
    assert (known.kind, known.frameworks) == (kind, frameworks)


def test_each_fact_is_a_sentence(make_store: MakeStore) -> None:
    known = program(make_store(annotation=ranges(*["execute_context_1(888)_generation_0(0)"] * 3, "execute_context_0(0)_generation_1(1)")))
    assert known.evidence == (
        "No operator of a backward pass or of an optimizer.",
        "4 ranges as vLLM writes them, such as `execute_context_1(888)_generation_0(0)`.",
    )


def test_a_range_on_host_and_device_counts_once(make_store: MakeStore) -> None:
    rows = [*ranges("step[DECODE bs=4]"), *ranges("step[DECODE bs=4]", side="device")]
    assert program(make_store(annotation=rows)).evidence[-1] == "1 range as SGLang writes them, such as `step[DECODE bs=4]`."


def test_the_base_of_a_program(make_store: MakeStore) -> None:
    assert base_framework(program(make_store(host_event=host("operator", *FORWARD)))) == "PyTorch"
    assert base_framework(program(make_store(annotation=ranges("step[DECODE bs=4]")))) == "PyTorch"
    assert base_framework(program(make_store())) is None
