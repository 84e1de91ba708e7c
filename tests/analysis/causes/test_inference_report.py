"""The report of an inference has iterations instead of steps, and advice in the settings of its engine."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from postrun.analysis import analyze
from postrun.analysis.causes.program import program_words
from postrun.analysis.report import Report
from postrun.analysis.report.causes import Program
from postrun.analysis.report.steps import StepParts
from postrun.analysis.rules.evidence import frameworks
from postrun.analysis.rules.evidence.frameworks import BATCH_SIZE, BF16, FEWER_LAUNCHES, LOAD_AHEAD, PINNED_BATCHES, Words
from postrun.analysis.rules.evidence.fusion_advice import FUSED
from postrun.analysis.timeline.model import NOTHING
from postrun.analysis.toolkit.wording import whole_percent
from postrun.ingest import ingest
from postrun.ingest.store import Store
from postrun.report_templates.output.pages import page
from postrun.report_templates.output.section_list import context
from postrun.report_templates.sections.step_parts import telling
from postrun.report_templates.text.look import Look

MakeStore = Callable[..., Store]
MS = 1_000_000
OF_TRAINING = {"StepOutlier", "MaxInitializationTime", "Dataloader", "OverallFrameworkMetrics", "InputBound", "HostPreprocessing"}


def served(make_store: MakeStore, *names: str) -> Report:
    """An iteration every 10 ms with a host range of 8 ms and a kernel of 5 ms."""
    return analyze(
        make_store(
            annotation=[{"side": "host", "name": name, "start_ns": at * 10 * MS, "duration_ns": 8 * MS} for at, name in enumerate(names)],
            host_event=[
                {"kind": "launch", "name": "cudaLaunchKernel", "start_ns": at * 10 * MS, "duration_ns": MS, "correlation": at + 1}
                for at in range(len(names))
            ],
            device_event=[
                {"kind": "kernel", "name": "k", "start_ns": (at * 10 + 2) * MS, "duration_ns": 5 * MS, "correlation": at + 1}
                for at in range(len(names))
            ],
        )
    )


def quiet(text: str, fraction: float | None) -> None:
    """No progress."""


def test_the_first_page_of_an_inference(make_store: MakeStore) -> None:
    report = served(make_store, "step[EXTEND bs=4 toks=1000]", *["step[DECODE bs=4]"] * 9)
    assert report.summary.headline == (
        f"The GPU was busy {whole_percent(53)} of the 95.0 ms profile window."
        " A decode iteration took 8.00 ms (median of 9), at 409 tokens per second, in inference with SGLang."
        f" The largest loss is GPUs that wait for the host ({whole_percent(38)} of the window)."
    )  # busy 50 of 95 ms; 9 x 4 tokens in 8 x 10 + 8 ms
    assert "inference with SGLang" in report.summary.subtitle.split(" · ")
    assert [(tile.key, tile.value, tile.detail) for tile in report.summary.tiles[1:3]] == [
        ("iteration_time", "8.00 ms", "median of 9, p90 8.00 ms"),
        ("tokens_per_s", "409", "of a process in decode, 100,000 in prefill"),
    ]
    assert [(kind.kind, kind.count, kind.gap_ns, kind.busy_percent) for kind in report.iteration_kinds] == [
        ("prefill", 1, None, 50.0),
        ("decode", 9, 2.0 * MS, pytest.approx(100 * 45 / 88)),
    ]


def test_rules_about_training_are_not_evaluated(make_store: MakeStore) -> None:
    report = served(make_store, *["decode[bs=4]"] * 3)
    assert {rule.rule for rule in report.rules if rule.reason == "the run is inference"} == OF_TRAINING
    assert {rule.verdict for rule in report.rules if rule.rule in OF_TRAINING} == {"NotEvaluated"}
    assert not [rule.rule for rule in served(make_store, "my range").rules if rule.reason == "the run is inference"]


@pytest.mark.parametrize("target", ["html", "pdf"])
def test_sections_on_training_are_left_out(make_store: MakeStore, target: str) -> None:
    report = served(make_store, *["decode[bs=4]"] * 3)
    content = context(report, quiet, NOTHING)
    ids = {section.id for section in content.sections}
    assert "iterations" in ids
    assert not ids & {"job-statistics", "steps", "step-breakdown", "slow-steps"}
    text = page(content, target)
    assert "sections on training do not apply (job-statistics, steps, step-breakdown, slow-steps)" in text
    assert "Iterations by kind" in text
    assert not re.findall(r'href="#steps?"', text)
    assert not re.search(r"\b(epochs?|training loop|data loading)\b", re.sub(r"<[^>]*>", "", text.partition('<section id="rules"')[0]))
    named = context(report, quiet, NOTHING, Look(sections=("steps",)))
    assert [section.id for section in named.sections] == ["steps", "appendix"]
    training = context(served(make_store, "Optimizer.step#Adam.step"), quiet, NOTHING)
    assert {"steps", "job-statistics"} <= {part.id for part in training.sections} | {"steps", "job-statistics"}
    assert "sections on training do not apply" not in page(training, target)
    assert "No iterations of inference are known" not in page(training, target)


def test_the_parts_of_an_inference_are_those_of_an_iteration() -> None:
    part = StepParts("node", 0, 1, 4, 10e6, {"kernel": 8e6, "other": 2e6}, False, ())
    assert [telling((part,), noun).sentence for noun in ("iteration", "step")] == [
        "average iteration, wall time: 10.0\u00a0ms",
        "average step, wall time: 10.0\u00a0ms",
    ]


@pytest.mark.parametrize(
    ("words", "known", "text"),
    [
        (FEWER_LAUNCHES, ("inference", "vLLM", "PyTorch"), "without `--enforce-eager`"),
        (FEWER_LAUNCHES, ("inference", "vLLM", "torch.compile", "CUDA graphs", "PyTorch"), "`cudagraph_capture_sizes`"),
        (FEWER_LAUNCHES, ("inference", "SGLang", "PyTorch"), "without `--disable-cuda-graph`"),
        (FEWER_LAUNCHES, ("inference", "SGLang", "CUDA graphs", "PyTorch"), "`--cuda-graph-max-bs` up to"),
        (FEWER_LAUNCHES, ("inference", "TensorRT-LLM", "PyTorch"), "`cuda_graph_config`"),
        (FEWER_LAUNCHES, ("inference", "diffusers", "PyTorch eager"), "torch.compile(pipeline.transformer"),
        (FEWER_LAUNCHES, ("training", "Hugging Face Trainer", "PyTorch eager"), "torch_compile=True"),
        (FEWER_LAUNCHES, ("training", "Megatron", "PyTorch eager"), "`--cuda-graph-impl local`"),
        (FEWER_LAUNCHES, ("training", "torch.compile", "PyTorch"), "the `torch.compile(...)` that is in use"),
        (FEWER_LAUNCHES, ("training", "CUDA graphs", "PyTorch"), "CUDA graphs that are in use"),
        (FEWER_LAUNCHES, ("training", "PyTorch eager"), 'with `torch.compile(mode="reduce-overhead")`'),
        (FEWER_LAUNCHES, ("training", "JAX"), "jax.jit"),
        (FUSED, ("training", "Hugging Face Trainer", "torch.compile", "PyTorch"), "that is in use"),
        (FUSED, ("inference", "vLLM", "CUDA graphs", "PyTorch"), "`--max-num-batched-tokens`"),
        (BATCH_SIZE, ("inference", "vLLM", "PyTorch"), "`--max-num-seqs`"),
        (BATCH_SIZE, ("training", "DeepSpeed", "PyTorch"), "`train_micro_batch_size_per_gpu`"),
        (BF16, ("training", "Lightning", "PyTorch eager"), 'precision="bf16-mixed"'),
        (BF16, ("inference", "Hugging Face transformers", "PyTorch eager"), "`model.to(torch.bfloat16)`"),
        (BF16, ("training", "Hugging Face transformers", "PyTorch eager"), "Run forward and loss"),
        (LOAD_AHEAD, ("training", "Hugging Face Trainer", "PyTorch eager"), "dataloader_num_workers=4"),
        (PINNED_BATCHES, ("inference", "PyTorch eager"), "`tensor.pin_memory()`"),
    ],
)
def test_advice_is_in_the_settings_of_the_program(words: Words, known: tuple[str, ...], text: str) -> None:
    assert text in words.of(Program(known[0], known[1:], ()))


def test_a_framework_in_use_comes_before_the_one_that_would_advise_it() -> None:
    """A row that needs more facts comes before the row of its framework alone."""
    for name, words in vars(frameworks).items():
        if isinstance(words, Words):
            needs = [set(needed) for needed, _ in words.programs]
            assert not [(name, needs[later]) for later in range(len(needs)) for first in range(later) if needs[first] <= needs[later]]


def test_words_of_a_program() -> None:
    assert program_words(Program("inference", ("vLLM", "CUDA graphs", "PyTorch"), ())) == "inference with vLLM, CUDA graphs and PyTorch"
    assert program_words(Program("training", ("PyTorch eager",), ()), base=False) == "training"
    assert program_words(Program("unknown", ("DDP", "PyTorch"), ()), base=False) == "DDP"
    assert program_words(Program("unknown", (), ())) == program_words(None) == ""


REAL = {
    "h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz": ("inference", ("Hugging Face transformers", "PyTorch eager")),
    "h100/Falconsai_nsfw_image_detection__1016002.json.gz": ("inference", ("Hugging Face transformers", "PyTorch eager")),
    "mi300/gaunernst_bert-small-uncased__1016001.json.gz": ("inference", ("Hugging Face transformers", "PyTorch eager")),
    "v100_ddp/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz": ("training", ("DDP", "PyTorch eager")),
    "diff_pair/a100_rank3_of_8.json.gz": ("training", ("TorchRec", "DDP", "PyTorch eager")),
    "diff_pair/v100_rank1_of_2.json.gz": ("training", ("TorchRec", "DDP", "torch.compile", "CUDA graphs", "PyTorch")),
    "v100_old_schema/resnet50_num_workers_0.json.gz": ("training", ("PyTorch eager",)),
    "quirks/event_sync_trace.json.gz": ("unknown", ("PyTorch eager",)),
}


@pytest.mark.parametrize("name", REAL)
def test_programs_of_real_traces(shared_data: Path, name: str) -> None:
    with ingest(shared_data / "kineto" / name) as store:
        report = analyze(store)
    assert report.program is not None
    assert (report.program.kind, report.program.frameworks) == REAL[name]
    if report.program.kind == "inference":
        assert [(kind.kind, kind.count) for kind in report.iteration_kinds] == [("forward", 1)]
        advice = " ".join(finding.recommendation or "" for finding in report.findings)
        assert not re.search(r"\b(loss|epochs?|DataLoader|optimizer|training)\b", advice)
    else:
        assert report.iterations == ()


def test_the_program_in_report_json(make_store: MakeStore) -> None:
    text = json.loads(served(make_store, "decode[bs=4]").to_json())
    assert set(text["program"]) == {"kind", "frameworks", "evidence"}
    assert set(text["iterations"][0]) == {field.name for field in dataclasses.fields(served(make_store, "decode[bs=4]").iterations[0])}
