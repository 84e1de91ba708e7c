"""Modules and lines of planted programs: each kernel has a known line, so that every figure follows on paper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from judging import rules_of
from postrun.analysis.efficiency.call_sites import CallSites
from postrun.analysis.efficiency.modules import CodeTimes, code_times
from postrun.analysis.efficiency.operator_work import operator_work
from postrun.analysis.options import Options
from postrun.analysis.report.modules import ModuleCoverage
from postrun.analysis.rules.engine.selection import select
from postrun.analysis.rules.evidence.run_data import RunData
from postrun.ingest.store import Store

MakeStore = Callable[..., Store]
Row = dict[str, Any]


class Program:
    """Host events and kernels of a program. Work launched at a time runs long after it, for a given duration."""

    def __init__(self) -> None:
        self.host: list[Row] = []
        self.device: list[Row] = []
        self.ranges: list[Row] = []

    def event(self, kind: str, name: str, start: int, end: int, **fields: Any) -> None:
        self.host.append({"kind": kind, "name": name, "start_ns": start, "duration_ns": end - start, **fields})

    def python(self, name: str, start: int, end: int, **fields: Any) -> None:
        self.event("python", name, start, end, **fields)

    def operator(self, name: str, start: int, end: int, **fields: Any) -> None:
        self.event("operator", name, start, end, **fields)

    def range(self, name: str, start: int, end: int, **fields: Any) -> None:
        self.ranges.append({"name": name, "side": "host", "start_ns": start, "duration_ns": end - start, "complete": True, **fields})

    def launch(self, at: int, duration: int, *, kernel: str = "k", **fields: Any) -> None:
        number = len(self.device) + 1
        self.event("launch", "cudaLaunchKernel", at, at + 1, correlation=number, **fields)
        work = {"kind": "kernel", "name": kernel, "start_ns": 10_000 + at, "duration_ns": duration, "correlation": number}
        self.device.append(work | {name: fields[name] for name in ("process",) if name in fields})

    def store(self, make_store: MakeStore, **tables: Any) -> Store:
        return make_store(host_event=self.host, device_event=self.device, annotation=self.ranges, **tables)


def times(store: Store) -> CodeTimes:
    sites = CallSites(store)
    with store.unchanged():
        result = code_times(operator_work(store, sites=sites.of if sites.known else None).work, sites)
    total = store.frame("SELECT coalesce(sum(duration_ns), 0)::BIGINT FROM device_run").item()
    for rows in (sum(row.self_device_ns for row in result.modules), sum(row.device_ns for row in result.lines)):
        assert rows in (0, total)
    return result


def modules(result: CodeTimes) -> dict[str, tuple[int, int, int]]:
    return {row.path: (row.device_ns, row.self_device_ns, row.backward_ns) for row in result.modules}


def lines(result: CodeTimes) -> dict[str, tuple[int, int]]:
    return {row.line: (row.device_ns, row.backward_ns) for row in result.lines}


def training(tid: int = 1, backward_tid: int = 9, thread: int = 1, at: int = 0, scale: int = 1) -> Program:
    """Return a step of two layers and an optimizer; the backward pass has a thread."""
    p = Program()
    forward, backward = {"tid": tid}, {"tid": backward_tid}
    p.python("train.py(10): step", at, at + 900, **forward)
    p.python("nn.Module: Model_0", at + 100, at + 400, **forward)
    p.python("torch/nn/modules/module.py(1553): _call_impl", at + 101, at + 399, **forward)
    p.python("model.py(5): forward", at + 110, at + 390, **forward)
    p.python("nn.Module: Linear_0", at + 120, at + 200, **forward)
    p.python("torch/nn/modules/linear.py(114): forward", at + 125, at + 195, **forward)
    p.operator("aten::linear", at + 130, at + 190, sequence=7, **forward)
    p.operator("aten::addmm", at + 140, at + 180, sequence=7, **forward)
    p.launch(at + 150, 1000 * scale, **forward)
    p.python("nn.Module: Linear_1", at + 220, at + 300, **forward)
    p.operator("aten::addmm", at + 240, at + 280, sequence=8, **forward)
    p.launch(at + 250, 2000 * scale, **forward)
    p.python("loss.py(3): loss", at + 320, at + 340, **forward)
    p.launch(at + 330, 10 * scale, **forward)  # a launch without an operator
    for number, start, duration in ((8, at + 500, 300), (7, at + 600, 500)):
        p.operator(
            "autograd::engine::evaluate_function: AddmmBackward0", start, start + 80, sequence=number, forward_thread=thread, **backward
        )
        p.operator("AddmmBackward0", start + 5, start + 75, sequence=number, forward_thread=thread, **backward)
        p.operator("aten::mm", start + 10, start + 60, **backward)
        p.launch(start + 20, duration * scale, **backward)
    p.python("torch/optim/sgd.py(80): step", at + 800, at + 880, **forward)
    p.operator("aten::_foreach_add_", at + 810, at + 870, **forward)
    p.launch(at + 820, 70 * scale, **forward)
    return p


def test_forward_and_backward_of_nested_modules(make_store: MakeStore) -> None:
    p = training()
    p.event("sync", "cudaStreamSynchronize", 335, 337)
    p.event("loader", "enumerate(DataLoader)", 20, 60)
    result = times(p.store(make_store))
    assert modules(result) == {
        "Model_0": (3810, 10, 800),
        "Model_0/Linear_1": (2300, 2300, 300),
        "Model_0/Linear_0": (1500, 1500, 500),
        "": (70, 70, 0),
    }
    assert lines(result) == {"model.py:5": (3800, 800), "train.py:10": (70, 0), "loss.py:3": (10, 0)}
    model, _, linear, outside = result.modules
    assert (model.calls, model.host_ns, model.launches, model.waits_ns) == (1, 300, 5, 2)
    assert (linear.calls, linear.host_ns, linear.launches, linear.waits_ns) == (1, 80, 2, 0)
    assert (outside.calls, outside.launches, outside.waits_ns) == (0, 1, 40)
    assert [(row.line, row.function, row.module, row.host_ns, row.launches, row.waits_ns) for row in result.lines] == [
        ("model.py:5", "forward", None, 280, 4, 0), ("train.py:10", "step", None, 900, 1, 40), ("loss.py:3", "loss", "Model_0", 20, 1, 2)
    ]  # fmt: skip
    assert result.coverage == ModuleCoverage(100 * 3810 / 3880, 100, "module calls", None, 100)


def test_two_threads_with_the_same_sequence_numbers(make_store: MakeStore) -> None:
    """The second thread runs its forward pass during the backward pass of the first."""
    first, second = training(), training(tid=2, backward_tid=10, thread=2, at=450, scale=100)
    for program in (first, second):
        for event in program.host:
            if event["tid"] == 2:
                event["name"] = event["name"].replace("Model_0", "Model_1").replace("model.py", "other.py")
    first.host += [event | {"correlation": event["correlation"] + 50} if event["kind"] == "launch" else event for event in second.host]
    first.device += [event | {"correlation": event["correlation"] + 50} for event in second.device]
    result = times(first.store(make_store))
    assert modules(result)["Model_0"] == (3810, 10, 800)
    assert modules(result)["Model_1"] == (381_000, 1000, 80_000)
    assert lines(result) == {
        "other.py:5": (380_000, 80_000), "train.py:10": (7_070, 0), "model.py:5": (3800, 800), "loss.py:3": (1010, 0)
    }  # fmt: skip


def test_threads_that_nothing_tells_apart_leave_their_backward_pass_unknown(make_store: MakeStore) -> None:
    first, second = training(), training(tid=2, thread=2)
    second.host = [event | {"tid": 2} for event in second.host if event["tid"] == 2 and event["kind"] != "launch"]
    first.host += second.host
    result = times(first.store(make_store))
    assert modules(result)["Model_0"] == (3010, 10, 0)
    assert modules(result)[""] == (870, 870, 800)


def test_repeated_forward_pass_gets_the_path_of_the_first(make_store: MakeStore) -> None:
    p = training()
    node = 700
    p.operator("autograd::engine::evaluate_function: CheckpointFunctionBackward", node, node + 90, sequence=8, forward_thread=1, tid=9)
    p.python("nn.Module: Linear_1", node + 10, node + 80, tid=9)
    p.operator("aten::addmm", node + 20, node + 60, sequence=3, tid=9)
    p.launch(node + 30, 4, tid=9)
    result = times(p.store(make_store))
    assert modules(result)["Model_0/Linear_1"] == (2304, 2304, 304)
    assert {row.path: row.calls for row in result.modules} == {"Model_0": 1, "Model_0/Linear_0": 1, "Model_0/Linear_1": 2, "": 0}


def test_a_look_at_moments_keeps_the_paths_of_repeated_forward_passes(make_store: MakeStore) -> None:
    """The repeated module does not get a second root."""
    p = training()
    p.operator("autograd::engine::evaluate_function: CheckpointFunctionBackward", 700, 790, sequence=8, forward_thread=1, tid=9)
    p.python("nn.Module: Linear_1", 710, 780, tid=9)
    p.launch(730, 4, tid=9)
    store = p.store(make_store)
    sites = CallSites(store)
    owned = operator_work(store, sites=sites.of)
    process = store.frame("SELECT min(process) FROM host_event").item()
    moment = pl.DataFrame(
        {"process": [process], "tid": [9], "start": [740]}, schema={"process": pl.Int32, "tid": pl.Int64, "start": pl.Int64}
    )
    assert sites.at(moment)["module"].to_list() == ["Model_0/Linear_1"]
    assert [row.path for row in code_times(owned.work, sites).modules] == ["Model_0", "Model_0/Linear_1", "Model_0/Linear_0", ""]


def test_a_backward_pass_on_the_thread_of_the_forward_pass(make_store: MakeStore) -> None:
    """Frames around `backward()` are open during its nodes, and do not count for them."""
    assert modules(times(training(backward_tid=1).store(make_store))) == modules(times(training().store(make_store)))


def test_without_user_frames_the_innermost_frame_of_a_library(make_store: MakeStore) -> None:
    p = Program()
    p.python("threading.py(1032): _bootstrap", 0, 100)
    p.python("transformers/trainer.py(9): train", 10, 90)
    p.python("transformers/models/vit/modeling_vit.py(206): forward", 20, 80)
    p.python("torch/nn/functional.py(1401): dropout", 30, 70)
    p.python("<built-in function linear>", 35, 65)
    p.launch(40, 5)
    p.launch(95, 6)
    result = times(p.store(make_store))
    assert lines(result) == {"transformers/models/vit/modeling_vit.py:206": (5, 0), "": (6, 0)}
    assert result.modules == ()
    assert result.coverage.lines_percent == pytest.approx(100 * 5 / 11)
    assert result.coverage.known_percent is None
    assert result.coverage.absent


def test_named_ranges_without_calls_of_modules(make_store: MakeStore) -> None:
    p = Program()
    p.range("ProfilerStep#3", 0, 1000, value=3)
    p.range("## forward ##", 0, 400)
    p.range("FSDP::pre_forward (layers.0)", 10, 20)
    p.range("FSDP::post_forward (layers.0)", 90, 100)
    p.range("## forward:over_arch ##", 200, 300)
    p.range("nccl:all_reduce", 210, 220)
    p.range("{'Module': 'model.layers.0.mlp', 'Inputs': []}", 250, 290)
    p.range("Torch-Compiled Region: 0/0", 500, 600)
    p.range("## Call CompiledFxGraph fabc ##", 510, 590)
    for at, duration in ((50, 1), (150, 2), (215, 4), (260, 8), (550, 16)):
        p.launch(at, duration)
    result = times(p.store(make_store))
    assert modules(result) == {
        "Torch-Compiled Region: 0": (16, 0, 0),
        "Torch-Compiled Region: 0/0": (16, 0, 0),
        "Torch-Compiled Region: 0/0/Call CompiledFxGraph fabc": (16, 16, 0),
        "forward:over_arch": (12, 4, 0),
        "forward:over_arch/model.layers.0.mlp": (8, 8, 0),
        "layers.0": (1, 1, 0),
        "": (2, 2, 0),
    }
    assert (result.coverage.source, result.lines) == ("named ranges", ())
    assert result.coverage.attributed_percent is None  # ranges without operators need not be around all work


def test_stacks_of_operators(make_store: MakeStore) -> None:
    stack = "/a/lib/python3.7/site-packages/torch/nn/functional.py(9): linear;model.py(8): forward;train.py(46): <module>"
    p = Program()
    p.operator("aten::linear", 0, 100, signature=1, sequence=4)
    p.operator("aten::addmm", 10, 90, signature=2, sequence=4)
    p.launch(20, 5)
    p.operator("autograd::engine::evaluate_function: AddmmBackward0", 200, 300, sequence=4, forward_thread=1, tid=2)
    p.launch(250, 7, tid=2)
    signatures = [
        {"id": 1, "call_stack": stack, "module_hierarchy": "top(Net)::forward.layer1(Linear)::forward"},
        {"id": 2, "call_stack": None, "module_hierarchy": None},
    ]
    result = times(p.store(make_store, signature=signatures))
    assert modules(result) == {"top(Net)": (12, 0, 7), "top(Net)/layer1(Linear)": (12, 12, 7)}
    assert lines(result) == {"model.py:8": (12, 7)}
    assert result.coverage.source == "module hierarchies of operators"


def test_waits_and_moments_have_the_lines_of_stacks(make_store: MakeStore) -> None:
    """The loader and the operator in it have stacks; there are no Python frames."""
    p = Program()
    p.event("loader", "enumerate(DataLoader)#__next__", 0, 500, signature=1)
    p.operator("aten::stack", 100, 200, signature=2)
    p.operator("aten::linear", 600, 700, signature=3)
    p.launch(650, 5)
    stacks = {
        1: "/a/site-packages/torch/utils/data/dataloader.py(518): __next__;train.py(42): <module>",
        2: "/a/site-packages/torch/utils/data/collate.py(50): collate;data.py(7): collate;train.py(42): <module>",
        3: "model.py(8): forward;train.py(46): <module>",
    }
    signatures = [{"id": number, "call_stack": stack} for number, stack in stacks.items()]
    store = p.store(make_store, signature=signatures)
    waits = {row.line: row.waits_ns for row in times(store).lines}
    assert waits == {"train.py:42": 500, "model.py:8": 0}
    process, tid = store.frame("SELECT process, tid FROM host_event LIMIT 1").row(0)
    moments = pl.DataFrame({"process": [process] * 4, "tid": [tid] * 4, "start": [50, 150, 550, 620]})
    moments = moments.cast({"process": pl.Int32, "tid": pl.Int64, "start": pl.Int64})
    assert CallSites(store).at(moments)["line"].to_list() == ["train.py:42", "data.py:7", "", "model.py:8"]


def test_nothing_that_names_modules(make_store: MakeStore) -> None:
    p = Program()
    p.operator("aten::mm", 0, 10)
    p.launch(5, 3)
    result = times(p.store(make_store))
    assert (result.modules, result.lines, result.coverage.known_percent) == ((), (), None)
    assert times(make_store()).coverage.absent


def test_a_hundred_thousand_modules_within_each_other(make_store: MakeStore) -> None:
    depth = 100_000
    p = Program()
    p.host = [{"kind": "python", "name": f"nn.Module: M_{i % 50}", "start_ns": i, "duration_ns": 3 * depth - 2 * i} for i in range(depth)]
    p.host += [{"kind": "python", "name": f"f.py({i % 50}): f", "start_ns": i, "duration_ns": 3 * depth - 2 * i} for i in range(depth)]
    p.launch(depth + 1, 3)
    result = times(p.store(make_store))
    assert max(row.path.count("/") for row in result.modules) == 63
    assert [(row.path.count("/"), row.self_device_ns) for row in result.modules if row.self_device_ns] == [(63, 3)]
    assert result.lines[0].line == "f.py:49"
    assert result.lines[0].host_ns == 3 * depth - 2 * 49


def test_ranks_share_the_paths_of_modules(make_store: MakeStore) -> None:
    p, second = training(), training()
    p.host += [event | {"process": 1} for event in second.host]
    p.device += [event | {"process": 1, "duration_ns": 2 * event["duration_ns"]} for event in second.device]
    processes = [{"id": 0, "node": 0, "pid": 1, "rank": 0}, {"id": 1, "node": 0, "pid": 2, "rank": 1}]
    result = times(p.store(make_store, processes=processes))
    assert modules(result)["Model_0"] == (3 * 3810, 30, 3 * 800)
    assert result.modules[0].calls == 2


def test_a_replayed_graph_gets_the_sites_of_the_eager_kernels(make_store: MakeStore) -> None:
    """A graph replays a layer that also runs one by one, twice.

    In a second graph two of three kernels are of either layer."""
    p = Program()
    for step in (0, 1000):
        for layer in (0, 1):
            at = step + 100 * layer
            p.python(f"nn.Module: Layer_{layer}", at, at + 90)
            p.launch(at + 10, 5, kernel="norm")
            p.launch(at + 20, 5, kernel=f"gemm{layer}")
    p.launch(1500, 3, kernel="loss")
    for replay, kernels in ((3000, ("norm", "gemm0", "norm", "gemm1")), (4000, ("gemm1", "loss")), (5000, ("norm", "other"))):
        number = replay
        p.event("launch", "cudaGraphLaunch", replay, replay + 10, correlation=number)
        for i, kernel in enumerate(kernels):
            start = 20_000 + replay + 10 * i
            p.device.append({"kind": "kernel", "name": kernel, "start_ns": start, "duration_ns": 7, "correlation": number})
    result = times(p.store(make_store))
    # gemm1 and loss follow each other once, loss is outside of modules; norm and other never do.
    assert modules(result) == {"Layer_0": (34, 34, 0), "Layer_1": (41, 41, 0), "": (3 + 7 + 14, 24, 0)}


def test_findings_and_gaps_name_the_code(make_store: MakeStore) -> None:
    """The host prepares a batch in a module for most of the time, then it launches."""
    p = Program()
    p.python("train.py(10): step", 0, 9_000)
    p.python("nn.Module: Model_0", 1_000, 8_900)
    p.python("model.py(5): prepare", 1_500, 8_000)
    p.launch(100, 10)
    p.launch(8_500, 10)
    for work, start in zip(p.device, (200, 8_600), strict=True):
        work["start_ns"] = start
    # The device is idle from 210 to 8600, and waits for the launch until 8501: for 6500 of it in model.py:5.
    run = RunData(p.store(make_store), Options())
    (gap,) = run.longest_gaps
    assert (gap.start_ns, gap.module, gap.source_line) == (210, "Model_0", "model.py:5")
    (result,) = rules_of(run.store, Options(selection=select(["HostBound"]))).findings
    assert (result.module, result.source_line) == ("Model_0", "model.py:5")
    assert " Most of it is in `Model_0` (`model.py:5`)." in result.text


def test_a_replayed_graph_gets_the_sites_of_its_capture(make_store: MakeStore) -> None:
    """The capture launches three kernels, which only run as a graph.

    A capture of another length does not count."""
    p = Program()
    p.event("call", "cudaStreamBeginCapture", 0, 1, correlation=900)
    for layer, launches in ((0, 1), (1, 2)):
        p.python(f"nn.Module: Layer_{layer}", 100 * layer + 10, 100 * layer + 90)
        for i in range(launches):
            p.event("launch", "cudaLaunchKernel", 100 * layer + 20 + i, 100 * layer + 21 + i, correlation=901 + 10 * layer + i)
    p.event("call", "cudaStreamEndCapture", 300, 301, correlation=950)
    p.event("launch", "cudaLaunchKernel", 310, 311, correlation=951)
    for replay, kernels in ((3000, 3), (4000, 3), (5000, 2)):
        p.event("launch", "cudaGraphLaunch", replay, replay + 10, correlation=replay)
        for i in range(kernels):
            work = {"kind": "kernel", "name": f"k{i}", "start_ns": 20_000 + replay + 10 * i, "duration_ns": 7, "correlation": replay}
            p.device.append(work)
    result = times(p.store(make_store))
    assert modules(result) == {"Layer_0": (14, 14, 0), "Layer_1": (28, 28, 0), "": (14, 14, 0)}
