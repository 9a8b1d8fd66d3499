"""From checked tensors to a launch: chooses and loads the kernel, encodes the tensor maps, sizes the grid.

Nothing here reads a tensor's values or waits for the device. A launch allocates nothing and may be captured in a CUDA
graph. Every result is bitwise repeatable: a tile's bits depend on its rows, its expert and the configuration alone, so
neither on the number of SMs nor on what else runs.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache

import torch

from ... import jit
from ...device import facts
from ...driver import Kernel as LoadedKernel
from ...driver import Launch
from ...errors import DriverError
from ...registry import Op, OutDtype
from .config import THREADS, Config, Kernel, choose, whole_slabs
from .tensor_maps import Layout, encode, maps

_OUT_DTYPES: dict[torch.dtype, OutDtype] = {torch.bfloat16: "bf16", torch.float32: "fp32"}


class Problem(ctypes.Structure):
    """The struct of this name in the device code."""

    _fields_ = (
        ("offs", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("out_row_stride", ctypes.c_int64),
        ("out_expert_stride", ctypes.c_int64),
        ("pace", ctypes.c_void_p),
        ("num_experts", ctypes.c_int32),
        ("M", ctypes.c_int32),
        ("N", ctypes.c_int32),
        ("K", ctypes.c_int32),
    )

    @classmethod
    def of(
        cls, offs: torch.Tensor, out: torch.Tensor, layout: Layout, pace: torch.Tensor, *, M: int, N: int, K: int
    ) -> Problem:
        """Return what the kernel is told beside its maps; ``layout`` is that of ``out``."""
        strides = layout.row_stride, layout.stack_stride
        return cls(offs.data_ptr(), out.data_ptr(), *strides, pace.data_ptr(), offs.numel(), M, N, K)


@dataclass(frozen=True, slots=True)
class _Resident:
    """A loaded kernel.

    Attributes
    ----------
    clusters
        How many of them the device can run at once.
    pace
        int32 [2]: how far the clusters of a launch are; zeros between launches.
    """

    kernel: LoadedKernel
    clusters: int
    pace: torch.Tensor


def prepare(
    op: Op,
    a: torch.Tensor,
    b: torch.Tensor,
    offs: torch.Tensor,
    out: torch.Tensor,
    *,
    accumulate: bool,
    config: Config | None = None,
) -> Launch:
    """Bind a kernel to its tensors; what that returns writes ``out``.

    Parameters
    ----------
    op
        What is computed.
    a, b
        bf16, read: x [M, K] and w [E, N, K] (fwd), g [M, N] and w (dgrad), g and x (wgrad). Already checked: on one
        CUDA device, unit stride along the last dimension, base addresses and other strides multiples of 16 bytes, no
        extent 0.
    offs
        int32 [E], cumulative ends, read on the device at each launch.
    out
        bf16 [M, N], bf16 [M, K], or bf16 or fp32 [E, N, K]; written whole. The same rules as for ``a``.
    accumulate
        wgrad: add to what ``out`` holds, in FP32 with one rounding.
    config
        ``None`` takes :func:`.config.choose`'s. Results of two configurations may differ in their last bits.

    Raises
    ------
    ArgumentError
        The configuration cannot load the operands of ``op``.
    CompileError, ToolchainMissingError
        The kernel is not compiled yet and cannot be.
    DriverError
        The driver refuses something, or the kernel is not loaded yet and a CUDA graph is being captured.
    """
    E, M = offs.numel(), a.shape[0]
    N, K = (a.shape[1], b.shape[1]) if op == "wgrad" else b.shape[1:]
    kernel = Kernel(
        op=op,
        out_dtype=_OUT_DTYPES[out.dtype],
        accumulate=accumulate,
        whole_slabs=whole_slabs(op, N=N, K=K),
        config=config or choose(op, M=M, N=N, K=K, E=E),
    )
    config = kernel.config
    resident = _resident(kernel, a.device.index)
    layouts = [Layout.of(tuple(t.shape), t.stride()) for t in (a, b, out)]
    numbers = maps(kernel, a=layouts[0], b=layouts[1], out=layouts[2])
    clusters = min(resident.clusters, config.max_tiles(op, M=M, N=N, K=K, E=E))
    return resident.kernel.bind(
        encode(numbers.rows, a.data_ptr(), f"the first operand of {op}"),
        encode(numbers.cols, b.data_ptr(), f"the second operand of {op}"),
        encode(numbers.out, out.data_ptr(), f"the output of {op}"),
        Problem.of(offs, out, layouts[2], resident.pace, M=M, N=N, K=K),
        grid=(clusters * config.cluster_size, 1, 1),
        block=(THREADS, 1, 1),
        cluster=(config.cluster_size, 1, 1),
    )


@cache
def _resident(kernel: Kernel, device: int) -> _Resident:
    if torch.cuda.is_current_stream_capturing():
        raise DriverError(
            f"{kernel.name} must be loaded before a CUDA graph is captured, since loading is no part of a graph;"
            " make the same call once before the capture"
        )
    build = kernel.build
    cubin = jit.compile(build.source, arch=facts(device).arch, defines=build.defines)
    loaded = jit.load(cubin, device=device).kernel(build.symbol, smem_bytes=build.smem_bytes)
    pace = torch.zeros(2, dtype=torch.int32, device=torch.device("cuda", device))
    torch.cuda.current_stream(device).synchronize()  # zeros for a launch on any stream
    return _Resident(loaded, _resident_clusters(loaded, kernel.config.cluster_size, device), pace)


def _resident_clusters(kernel: LoadedKernel, cluster_size: int, device: int) -> int:
    if cluster_size == 1:
        return facts(device).sms
    clusters = kernel.max_active_clusters(cluster=(cluster_size, 1, 1), block=(THREADS, 1, 1))
    if clusters < 1:
        raise DriverError(f"device {device} must run at least one cluster of {kernel.name} at once, it can run none")
    return clusters
