"""Small models whose operations PyTorch's FlopCounterMode counts and whose calls its profiler records.

Run by $POSTRUN_TORCH/bin/python with a folder, not by pytest. Writes a trace of each model there, and prints JSON: name of the model ->
``counted``: operator -> operations; ``calls``: operator -> calls that PyTorch counts. Attention of GPUs and FP8 run on the meta device,
which has sizes without memory.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode, flop_registry

ATEN = torch.ops.aten
MODELS: dict[str, Callable[[], Callable[[], object]]] = {}
"""Name -> builder of the model; what it returns is counted and profiled."""


def model(build: Callable[[], Callable[[], object]]) -> Callable[[], Callable[[], object]]:
    MODELS[build.__name__] = build
    return build


def trained(module: nn.Module, *inputs: torch.Tensor) -> Callable[[], object]:
    """Run forward and backward."""
    return lambda: module(*inputs).float().square().mean().backward()


def wanted(*sizes: int, **options: object) -> torch.Tensor:
    return torch.randn(*sizes, requires_grad=True, **options)  # type: ignore[call-overload]


@model
def perceptron() -> Callable[[], object]:
    return trained(nn.Sequential(nn.Linear(20, 48), nn.ReLU(), nn.Linear(48, 7)), torch.randn(13, 20))


@model
def linear_without_bias() -> Callable[[], object]:
    return trained(nn.Linear(24, 10, bias=False), wanted(3, 5, 24))


@model
def linear_in_bf16() -> Callable[[], object]:
    return trained(nn.Linear(24, 16).bfloat16(), torch.randn(3, 5, 24).bfloat16())


@model
def linear_in_fp64() -> Callable[[], object]:
    return trained(nn.Linear(24, 16).double(), torch.randn(9, 24).double())


@model
def broadcast_matmul() -> Callable[[], object]:
    a, b = wanted(2, 3, 7, 11), wanted(11, 5)
    c, d = wanted(4, 1, 6, 8), wanted(3, 8, 5)
    return lambda: (torch.matmul(a, b).sum() + torch.matmul(c, d).sum()).backward()


@model
def batched_products() -> Callable[[], object]:
    a, b, c = wanted(4, 7, 11), wanted(4, 11, 5), wanted(4, 7, 5)
    return lambda: (torch.bmm(a, b).sum() + torch.baddbmm(c, a, b, beta=0.5).sum()).backward()


@model
def added_products() -> Callable[[], object]:
    a, b, c = wanted(7, 11), wanted(11, 5), wanted(5)
    return lambda: (torch.addmm(c, a, b).sum() + torch.addmm(c, a, b, beta=0).sum()).backward()


@model
def einsum() -> Callable[[], object]:
    a, b = wanted(2, 5, 6, 3), wanted(6, 3, 9)
    return lambda: torch.einsum("bshd,hdo->bso", a, b).sum().backward()


@model
def tensordot() -> Callable[[], object]:
    a, b = wanted(3, 4, 5), wanted(4, 5, 6)
    return lambda: torch.tensordot(a, b, dims=2).sum().backward()


@model
def convolution_1d() -> Callable[[], object]:
    return trained(nn.Conv1d(6, 10, 5, stride=2, padding=1), wanted(3, 6, 29))


@model
def convolution_2d() -> Callable[[], object]:
    return trained(nn.Conv2d(6, 10, (3, 5), stride=(2, 1), padding=(1, 3), dilation=(2, 1)), wanted(3, 6, 19, 23))


@model
def convolution_3d() -> Callable[[], object]:
    return trained(nn.Conv3d(2, 4, 3, stride=2, padding=1, bias=False), wanted(2, 2, 7, 9, 8))


@model
def grouped_convolution() -> Callable[[], object]:
    return trained(nn.Conv2d(8, 12, 3, padding=1, groups=4), wanted(2, 8, 9, 9))


@model
def depthwise_convolution() -> Callable[[], object]:
    return trained(nn.Sequential(nn.Conv2d(8, 8, 3, groups=8), nn.Conv2d(8, 16, 1)), wanted(2, 8, 9, 9))


@model
def transposed_convolution() -> Callable[[], object]:
    return trained(nn.ConvTranspose2d(6, 4, 3, stride=2, padding=1, output_padding=1, dilation=2), wanted(3, 6, 7, 5))


@model
def grouped_transposed_convolution() -> Callable[[], object]:
    return trained(nn.ConvTranspose1d(6, 9, 4, stride=3, groups=3), wanted(3, 6, 7))


@model
def convolution_of_data() -> Callable[[], object]:
    return trained(nn.Conv2d(3, 5, 3), torch.randn(2, 3, 8, 8))  # no gradient of the input


@model
def frozen_convolution() -> Callable[[], object]:
    return trained(nn.Conv2d(3, 5, 3).requires_grad_(False), wanted(2, 3, 8, 8))


@model
def convolution_with_same_padding() -> Callable[[], object]:
    return trained(nn.Conv2d(3, 5, (4, 3), padding="same", dilation=(1, 2)), wanted(2, 3, 8, 8))


@model
def unbatched_convolution() -> Callable[[], object]:
    return trained(nn.Conv2d(3, 5, 3), wanted(3, 8, 8))


class Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels), nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels),
        )  # fmt: skip

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        return functional.relu(data + self.body(data))


@model
def residual_network() -> Callable[[], object]:
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))
    return trained(nn.Sequential(nn.Conv2d(3, 8, 7, stride=2, padding=3), nn.MaxPool2d(2), Residual(8), head), torch.randn(2, 3, 32, 32))


@model
def autoencoder() -> Callable[[], object]:
    down, up = nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.ConvTranspose2d(8, 1, 3, stride=2, padding=1, output_padding=1)
    return trained(nn.Sequential(down, nn.GELU(), up), torch.randn(2, 1, 16, 16))


@model
def vision_patches() -> Callable[[], object]:
    return trained(
        nn.Sequential(nn.Conv2d(3, 24, 8, stride=8), nn.Flatten(2), nn.LayerNorm(16), nn.Linear(16, 16)), torch.randn(2, 3, 32, 32)
    )


@model
def encoder_layer() -> Callable[[], object]:
    return trained(nn.TransformerEncoderLayer(16, 4, 32, dropout=0.1, batch_first=True), torch.randn(2, 9, 16))


@model
def decoder_layer() -> Callable[[], object]:
    return trained(nn.TransformerDecoderLayer(16, 4, 32, batch_first=True), torch.randn(2, 9, 16), torch.randn(2, 5, 16))


@model
def attention_with_weights() -> Callable[[], object]:
    attention, data = nn.MultiheadAttention(16, 2, batch_first=True), wanted(2, 9, 16)
    return lambda: attention(data, data, data, need_weights=True)[0].sum().backward()


@model
def attention_by_products() -> Callable[[], object]:
    query, key, value = (wanted(2, 4, 9, 8) for _ in range(3))

    def run() -> None:
        with sdpa_kernel(SDPBackend.MATH):
            functional.scaled_dot_product_attention(query, key, value, is_causal=True).sum().backward()

    return run


@model
def unfused_attention() -> Callable[[], object]:
    query, key, value = (wanted(2, 4, 9, 8) for _ in range(3))
    return lambda: (torch.softmax(query @ key.transpose(-1, -2) * 8**-0.5, dim=-1) @ value).sum().backward()


@model
def recurrent_cells() -> Callable[[], object]:
    cell, data = nn.LSTMCell(6, 10), torch.randn(4, 3, 6)

    def run() -> None:
        state = (torch.zeros(3, 10), torch.zeros(3, 10))
        for step in data:
            state = cell(step, state)
        state[0].sum().backward()

    return run


@model
def gated_recurrent_layer() -> Callable[[], object]:
    layer, data = nn.GRU(6, 10, num_layers=2, bidirectional=True), torch.randn(4, 3, 6)
    return lambda: layer(data)[0].sum().backward()


@model
def language_model() -> Callable[[], object]:
    table, layer, tokens = nn.Embedding(50, 12), nn.Linear(12, 12), torch.randint(50, (3, 7))
    return lambda: functional.cross_entropy((layer(table(tokens)) @ table.weight.T).flatten(0, 1), tokens.flatten()).backward()


@model
def recomputed_layers() -> Callable[[], object]:
    first, second, data = nn.Linear(12, 20), nn.Linear(20, 12), torch.randn(5, 12)

    # The last product is recorded again, but ends before it computes: its inputs are all that the backward wants.
    return lambda: checkpoint(lambda x: second(functional.gelu(first(x))), data, use_reentrant=False).sum().backward()


@model
def recomputed_block() -> Callable[[], object]:
    block, data = Block(), wanted(2, 13, 32)
    return lambda: checkpoint(block, data, use_reentrant=True).sum().backward()


class Block(nn.Module):
    """A decoder block: causal attention with grouped queries, and a gated feed-forward layer."""

    def __init__(self, width: int = 32, heads: int = 4, groups: int = 2) -> None:
        super().__init__()
        self.heads, self.groups, self.width = heads, groups, width // heads
        self.query, self.out = nn.Linear(width, width), nn.Linear(width, width, bias=False)
        self.key, self.value = nn.Linear(width, groups * self.width), nn.Linear(width, groups * self.width)
        self.up, self.gate, self.down = nn.Linear(width, 3 * width), nn.Linear(width, 3 * width), nn.Linear(3 * width, width)

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            layer(data).unflatten(-1, (count, self.width)).transpose(1, 2)
            for layer, count in ((self.query, self.heads), (self.key, self.groups), (self.value, self.groups))
        )
        values = functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        data = data + self.out(values.transpose(1, 2).flatten(2))
        return data + self.down(functional.silu(self.gate(data)) * self.up(data))


@model
def decoder_blocks() -> Callable[[], object]:
    return trained(nn.Sequential(Block(), Block(groups=1)), torch.randn(2, 13, 32))


@model
def decoder_block_by_products() -> Callable[[], object]:
    run = trained(Block(), torch.randn(1, 13, 32))

    def by_products() -> None:
        with sdpa_kernel(SDPBackend.MATH):
            run()

    return by_products


@model
def decoder_block_in_autocast() -> Callable[[], object]:
    block, data = Block(), torch.randn(2, 13, 32)

    def run() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = block(data).sum()
        loss.float().backward()

    return run


@model
def decoding_step() -> Callable[[], object]:
    block, data = Block(), torch.randn(4, 1, 32)

    def run() -> None:
        with torch.no_grad():
            block(data)

    return run


@model
def compiled_block() -> Callable[[], object]:
    return trained(torch.compile(Block(), backend="aot_eager"), torch.randn(2, 13, 32))


@model
def dilated_grouped_convolution_1d() -> Callable[[], object]:
    return trained(nn.Conv1d(12, 24, 5, stride=3, padding=2, dilation=2, groups=4), wanted(2, 12, 50))


@model
def grouped_convolution_3d() -> Callable[[], object]:
    return trained(nn.Conv3d(4, 8, (1, 3, 2), padding=1, groups=2), wanted(2, 4, 5, 6, 7))


@model
def grouped_transposed_convolution_3d() -> Callable[[], object]:
    return trained(nn.ConvTranspose3d(4, 6, (2, 3, 2), stride=2, groups=2, output_padding=1), wanted(2, 4, 3, 4, 5))


@model
def convolution_in_fp64() -> Callable[[], object]:
    layers = nn.Sequential(nn.Conv2d(4, 6, 3, dilation=2), nn.ConvTranspose2d(6, 4, 3, padding=1), nn.Conv2d(4, 4, 3, groups=4))
    return trained(layers.double(), wanted(2, 4, 12, 12).double())


@model
def circular_convolution() -> Callable[[], object]:
    return trained(nn.Conv2d(4, 6, 3, padding=1, padding_mode="circular"), wanted(2, 4, 9, 9))


@model
def recurrent_layer_with_projection() -> Callable[[], object]:
    layer, data = nn.LSTM(6, 10, bidirectional=True, proj_size=4), torch.randn(3, 5, 6)
    return lambda: layer(data)[0].sum().backward()


@model
def recurrent_layer_in_onednn() -> Callable[[], object]:
    layer, head, data = nn.LSTM(6, 10, num_layers=2, batch_first=True), nn.Linear(10, 4), torch.randn(3, 5, 6)
    return lambda: head(layer(data)[0]).sum().backward()


@model
def routed_experts() -> Callable[[], object]:
    layers, router, data = nn.ModuleList(nn.Linear(16, 16) for _ in range(4)), nn.Linear(16, 4, bias=False), wanted(20, 16)

    def run() -> None:
        weights, chosen = router(data).softmax(-1).topk(2)
        result = torch.zeros_like(data)
        for number, layer in enumerate(layers):
            rows, slots = torch.where(chosen % 3 == number)  # the last one has no tokens
            result = result.index_add(0, rows, layer(data[rows]) * weights[rows, slots, None])
        result.sum().backward()

    return run


@model
def more_einsums() -> Callable[[], object]:
    a, b, c = wanted(3, 4, 5), wanted(3, 5, 6), wanted(7, 5)
    products = ((a, b, "bij,bjk->bik"), (a, c, "bij,kj->bik"), (a, a, "bij,bij->b"), (c, c, "ij,kl->ijkl"))
    return lambda: sum(torch.einsum(form, left, right).sum() for left, right, form in products).backward()  # type: ignore[union-attr]


@model
def mapped_product() -> Callable[[], object]:
    a, b, weight = wanted(4, 5, 6), wanted(4, 6, 7), wanted(7, 6)
    shared = torch.vmap(lambda data: functional.linear(data, weight))
    return lambda: (torch.vmap(torch.mm)(a, b).sum() + shared(a).sum()).backward()


@model
def mapped_convolution() -> Callable[[], object]:
    data, weight = torch.randn(3, 2, 4, 8, 8), torch.randn(3, 6, 4, 3, 3)
    return lambda: torch.vmap(functional.conv2d)(data, weight)


@model
def gradients_of_examples() -> Callable[[], object]:
    layers, data = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2)), torch.randn(4, 6)

    def loss(weights: dict[str, torch.Tensor], example: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(layers, weights, (example[None],)).sum()

    return lambda: torch.vmap(torch.func.grad(loss), (None, 0))(dict(layers.named_parameters()), data)


@model
def forward_mode() -> Callable[[], object]:
    layer, data = nn.Linear(6, 5), torch.randn(4, 6)
    return lambda: torch.func.jvp(layer, (data,), (torch.ones_like(data),))


@model
def products_of_nothing() -> Callable[[], object]:
    a, b = wanted(3, 4, 0), wanted(3, 0, 5)
    layers, convolution = nn.Sequential(nn.Linear(16, 32), nn.Linear(32, 8)), nn.Conv2d(3, 4, 3)
    head, row = nn.Linear(16, 4), torch.randn(1, 16)
    inputs = wanted(0, 16), wanted(0, 3, 8, 8)
    return lambda: (torch.bmm(a, b).sum() + layers(inputs[0]).sum() + convolution(inputs[1]).sum() + head(row).sum()).backward()


@model
def product_of_a_vector() -> Callable[[], object]:
    return trained(nn.Linear(16, 32), wanted(16))


@model
def complex_products() -> Callable[[], object]:
    a, b = (torch.randn(*sizes, dtype=torch.complex64, requires_grad=True) for sizes in ((4, 5), (5, 6)))
    return lambda: (a @ b).abs().sum().backward()


@model
def integer_products() -> Callable[[], object]:
    a, b = torch.randint(9, (32, 64)), torch.randint(9, (64, 48))
    return lambda: (a @ b, torch.bmm(a[None], b[None]), torch._int_mm(a.to(torch.int8), b.to(torch.int8)))


@model
def products_in_place() -> Callable[[], object]:
    c, a, b, out = torch.randn(4, 6), torch.randn(4, 5), torch.randn(5, 6), torch.empty(4, 6)
    return lambda: (torch.mm(a, b, out=out), torch.addmm(c, a, b, out=out), torch.linalg.multi_dot([a, b, b.t(), b]))


@model
def mixer() -> Callable[[], object]:
    tokens, channels, data = nn.Linear(9, 9), nn.Linear(16, 16), torch.randn(2, 9, 16)
    return lambda: channels(tokens(data.transpose(1, 2)).transpose(1, 2)).sum().backward()


@model
def experts() -> Callable[[], object]:
    layers, data = nn.ModuleList(nn.Linear(12, 12) for _ in range(3)), torch.randn(10, 12)
    chosen = torch.arange(10) % 3
    return lambda: sum(layer(data[chosen == n]).sum() for n, layer in enumerate(layers)).backward()  # type: ignore[union-attr]


@model
def gated_feed_forward() -> Callable[[], object]:
    gate, up, down, data = nn.Linear(12, 32), nn.Linear(12, 32), nn.Linear(32, 12), torch.randn(2, 5, 12)
    return lambda: down(functional.silu(gate(data)) * up(data)).sum().backward()


def heads(batch: int, count: int, length: int, width: int) -> torch.Tensor:
    return torch.empty(batch, count, length, width, device="meta", dtype=torch.bfloat16)


@model
def flash_attention() -> Callable[[], object]:
    query, key, value = heads(2, 8, 33, 64), heads(2, 2, 47, 64), heads(2, 2, 47, 64)
    return lambda: ATEN._scaled_dot_product_flash_attention(query, key, value, 0.0, False, False, scale=0.125)


@model
def flash_attention_backward() -> Callable[[], object]:
    query, sums = heads(2, 8, 48, 64), torch.empty(2, 8, 48, device="meta")
    state = torch.empty(2, device="meta", dtype=torch.int64)

    def run() -> None:
        ATEN._scaled_dot_product_flash_attention_backward(
            query, query, query, query, query, sums, None, None, 48, 48, 0.0, True, state, state, scale=0.125
        )

    return run


@model
def efficient_attention() -> Callable[[], object]:
    query, key, value = heads(2, 8, 33, 64), heads(2, 8, 47, 64), heads(2, 8, 47, 32)
    return lambda: ATEN._scaled_dot_product_efficient_attention(query, key, value, None, True, 0.0, False)


@model
def efficient_attention_backward() -> Callable[[], object]:
    query, key, value, out = heads(2, 8, 33, 64), heads(2, 8, 47, 64), heads(2, 8, 47, 32), heads(2, 8, 33, 32)
    sums, state = torch.empty(2, 8, 64, device="meta"), torch.empty((), device="meta", dtype=torch.int64)
    mask = [True, True, True, False]

    def run() -> None:
        ATEN._scaled_dot_product_efficient_attention_backward(out, query, key, value, None, out, sums, state, state, 0.0, mask, True)

    return run


@model
def cudnn_attention() -> Callable[[], object]:
    query, key = heads(2, 8, 33, 64), heads(2, 8, 47, 64)
    return lambda: ATEN._scaled_dot_product_cudnn_attention(query, key, key, None, True, 0.0, True, False)


@model
def scaled_product() -> Callable[[], object]:
    a = torch.empty(32, 64, device="meta", dtype=torch.float8_e4m3fn)
    b = torch.empty(48, 64, device="meta", dtype=torch.float8_e4m3fn).t()
    scale = torch.empty((), device="meta")
    return lambda: ATEN._scaled_mm(a, b, scale, scale, None, None, torch.bfloat16)


def counted(run: Callable[[], object]) -> dict[str, int]:
    with FlopCounterMode(display=False) as counter:
        run()
    return {_name(operator): flop for operator, flop in counter.get_flop_counts().get("Global", {}).items()}


def _name(operator: object) -> str:
    return f"aten::{str(operator).split('.')[-1]}"


class Calls(TorchDispatchMode):
    """Counts calls of the operators that FlopCounterMode knows, where it counts them."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        operator = getattr(func, "_overloadpacket", func)
        if operator in flop_registry:
            self.calls[_name(operator)] += 1
        return func(*args, **(kwargs or {}))


def called(run: Callable[[], object]) -> dict[str, int]:
    with Calls() as calls:
        run()
    return calls.calls


def record(run: Callable[[], object], file: Path) -> None:
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        run()
    profiler.export_chrome_trace(str(file))


def main(folder: Path) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    results = {}
    for name, build in MODELS.items():
        results[name] = {"counted": counted(build()), "calls": called(build())}
        record(build(), folder / f"{name}.pt.trace.json")
    json.dump({"version": torch.__version__, "models": results}, sys.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
