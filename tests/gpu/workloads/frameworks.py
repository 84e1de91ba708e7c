"""A few kernels of another framework, in a program that does not import postrun: frameworks.py cupy|triton|jax|numba; exit code 9."""

from __future__ import annotations

import json
import sys
import time

LAUNCHES = 50
ATTACH_S = 1.0  # until the recorder has attached


def use_cupy() -> None:
    import cupy

    array = cupy.zeros(1024)
    time.sleep(ATTACH_S)
    for _ in range(LAUNCHES):
        array += 1
    cupy.cuda.Device().synchronize()


def use_triton() -> None:
    import torch
    import triton
    import triton.language as tl

    @triton.jit
    def add(pointer, size: tl.constexpr):  # type: ignore[no-untyped-def]
        places = tl.program_id(0) * size + tl.arange(0, size)
        tl.store(pointer + places, tl.load(pointer + places) + 1)

    tensor = torch.zeros(1024, device="cuda")
    time.sleep(ATTACH_S)
    for _ in range(LAUNCHES):
        add[(4,)](tensor, 256)
    torch.cuda.synchronize()


def use_jax() -> None:
    import jax
    import jax.numpy as jnp

    step = jax.jit(lambda array: array * 2 + 1)
    array = step(jnp.zeros(1024)).block_until_ready()
    time.sleep(ATTACH_S)
    for _ in range(LAUNCHES):
        array = step(array)
    array.block_until_ready()


def use_numba() -> None:
    import numpy
    from numba import cuda

    @cuda.jit
    def add(array):  # type: ignore[no-untyped-def]
        location = cuda.grid(1)
        if location < array.size:
            array[location] += 1

    array = cuda.to_device(numpy.zeros(1024))
    time.sleep(ATTACH_S)
    for _ in range(LAUNCHES):
        add[4, 256](array)
    cuda.synchronize()


if __name__ == "__main__":
    {"cupy": use_cupy, "triton": use_triton, "jax": use_jax, "numba": use_numba}[sys.argv[1]]()
    print(json.dumps({"launches": LAUNCHES}), flush=True)
    sys.exit(9)
