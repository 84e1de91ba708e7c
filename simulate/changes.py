"""Changes between two runs of the simulated job, for a comparison to find.

Each field is one change; the others stay as they are. The random numbers that a step draws differ only if the change itself launches
more or less work.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from . import schedule
from .schedule import Work

_FP32_SLOWER: Final = 3.1  # Time of a matrix kernel in FP32, by that in BF16
_FP32_NAMES: Final = {
    "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN": "cutlass_80_simt_sgemm_256x128_8x4_tn_align1",
    "nvjet_tst_256x128_64x4_2x1_v_bz_coopA_NNT": "cutlass_80_simt_sgemm_256x128_8x4_nn_align1",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64": "cutlass_80_simt_sgemm_128x128_8x4_tn_align1",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_nt_n_tilesize128x128x64": "cutlass_80_simt_sgemm_128x128_8x4_nt_align1",
}
EXTRA_KERNEL: Final = "void dropout::fused_dropout_kernel_vec<float, 4>(float const*, float*, unsigned char*, float, long)"
VANISHING_KERNEL: Final = "GeluCUDAKernelImpl"


@dataclass(frozen=True, slots=True)
class Changes:
    """Differences of a run. ``slower_loading_ns``: added to the wait for each batch. ``slower_kernel``: part of a kernel's name, and
    the factor of its duration. ``fp32_matrix``: the BF16 matrix products run in FP32. ``extra_kernel``: a kernel in each forward layer that
    was not there. ``vanished_kernel``: the activation function of the forward layers is fused away. ``slow_link_rank``: the rank whose
    all-reduces end ``slow_link_ns`` later. ``pageable_copies``: batches are copied from pageable memory."""

    slower_loading_ns: int = 0
    slower_kernel: tuple[str, float] | None = None
    fp32_matrix: bool = False
    extra_kernel: bool = False
    vanished_kernel: bool = False
    slow_link_rank: int | None = None
    slow_link_ns: int = 6_000_000
    pageable_copies: bool = False

    def applied(self, works: Iterable[Work]) -> tuple[Work, ...]:
        """Return the ``works`` of a phase with the changes of this run."""
        changed = []
        for work in works:
            if self.vanished_kernel and work.phase == "Forward" and VANISHING_KERNEL in work.name:
                continue
            changed.append(self._changed(work))
            if self.extra_kernel and work.operator == "aten::linear":
                changed.append(
                    work._replace(operator="aten::dropout", name=EXTRA_KERNEL, duration=650_000, grid=270_336, block=128, registers=24)
                )
        return tuple(changed)

    def _changed(self, work: Work) -> Work:
        if self.slower_kernel is not None and self.slower_kernel[0] in work.name:
            work = work._replace(duration=int(work.duration * self.slower_kernel[1]))
        if self.fp32_matrix:
            for start, name in _FP32_NAMES.items():
                if work.name.startswith(start):
                    return work._replace(name=name, duration=int(work.duration * _FP32_SLOWER))
        return work

    def batch_copy(self, pageable: bool) -> Work:
        """Return the copy of a batch to the device; ``pageable``: as a planted problem."""
        return schedule.FEATURE_COPY_PAGEABLE if pageable or self.pageable_copies else schedule.FEATURE_COPY_PINNED


NAMED: Final = {
    "loading": Changes(slower_loading_ns=15_000_000),
    "kernel": Changes(slower_kernel=(VANISHING_KERNEL, 1.4)),
    "fp32": Changes(fp32_matrix=True),
    "added-kernel": Changes(extra_kernel=True),
    "vanished-kernel": Changes(vanished_kernel=True),
    "slow-link": Changes(slow_link_rank=5),
    "pageable": Changes(pageable_copies=True),
}
"""The changes of `postrun demo --change`, by name."""
