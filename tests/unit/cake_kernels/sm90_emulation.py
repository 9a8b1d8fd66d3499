"""Compiles the device code of the sm_90a kernel for the CPU with sm90_emulator.h, and runs it."""

import ctypes
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import torch

from cake_kernels.grouped_gemm.sm90.config import SOURCE, Kernel
from cake_kernels.grouped_gemm.sm90.launch import Problem, Workspace
from cake_kernels.grouped_gemm.sm90.tensor_maps import BYTES, Layout, TensorMap, maps

HERE = Path(__file__).parent
ENTRY = """
extern "C" const char* emulate(const TensorMap* maps, const Problem* p, const u32* order, u32 clusters, u32 seed,
                               bool lazy) {
    static std::string error;
    emulator::random_number.seed(seed);
    emulator::lazy = lazy;
    emulator::kernel = [=] { SYMBOL(maps[0], maps[1], maps[2], *p); };
    try {
        emulator::run_launch(order, clusters, kClusterSize);
        return nullptr;
    } catch (const std::exception& e) {
        error = e.what();
        return error.c_str();
    }
}
"""

Edit = tuple[str, str]


class _Map(ctypes.Structure):
    _fields_ = (
        ("base", ctypes.c_void_p),
        ("rank", ctypes.c_int64),
        ("dims", ctypes.c_int64 * 5),
        ("strides", ctypes.c_int64 * 5),
        ("box", ctypes.c_int64 * 5),
    )

    @classmethod
    def of(cls, numbers: TensorMap, tensor: torch.Tensor) -> "_Map":
        five = ctypes.c_int64 * 5
        strides = (BYTES[numbers.dtype], *numbers.strides_bytes)
        return cls(tensor.data_ptr(), len(numbers.dims), five(*numbers.dims), five(*strides), five(*numbers.box))


def emulate(
    kernel: Kernel,
    a: torch.Tensor,
    b: torch.Tensor,
    offs: Sequence[int],
    out: torch.Tensor,
    *,
    clusters: int = 2,
    order: Sequence[int] | None = None,
    slots: float = torch.nan,
    workspace: Workspace | None = None,
    seed: int = 0,
    lazy: bool = True,
    edit: Edit | None = None,
) -> None:
    """Run ``kernel`` on tensors of the CPU, its clusters one after the other.

    Parameters
    ----------
    order
        Of the clusters; None: ascending.
    slots
        What a new workspace holds before, where that does not matter.
    workspace
        None: a new one, if the kernel needs one.
    edit
        Replaces a piece of the source.

    Raises
    ------
    RuntimeError
        The device code breaks a rule of an instruction, or never ends.
    """
    M = a.shape[0]
    N, K = (a.shape[1], b.shape[1]) if kernel.op == "wgrad" else b.shape[1:]
    layouts = [Layout.of(tuple(t.shape), t.stride()) for t in (a, b, out)]
    numbers = maps(kernel, a=layouts[0], b=layouts[1], out=layouts[2])
    array = (_Map * 3)(_Map.of(numbers.rows, a), _Map.of(numbers.cols, b), _Map.of(numbers.out, out))
    ends = torch.tensor(offs, dtype=torch.int32)
    pace = torch.zeros(2, dtype=torch.int32)
    tiles = kernel.config.max_tiles(kernel.op, M=M, N=N, K=K, E=len(offs))
    if workspace is None:
        workspace = Workspace.of(kernel.config, clusters=clusters, tiles=tiles, device=out.device)
        if kernel.config.tail == "slots":
            workspace.slots.fill_(slots)
    problem = Problem(
        offs=ends.data_ptr(),
        out=out.data_ptr(),
        out_row_stride=layouts[2].row_stride,
        out_expert_stride=layouts[2].stack_stride,
        pace=pace.data_ptr(),
        slots=workspace and workspace.slots.data_ptr(),
        tickets=workspace and workspace.tickets.data_ptr(),
        num_experts=len(offs),
        M=M,
        N=N,
        K=K,
    )
    in_order = (ctypes.c_uint32 * clusters)(*(range(clusters) if order is None else order))
    error = _library(kernel, edit).emulate(array, ctypes.byref(problem), in_order, clusters, seed, lazy)
    if error is not None:
        raise RuntimeError(error.decode())
    if workspace and workspace.tickets.any():
        raise RuntimeError(f"tickets must be zeros after a launch, got {workspace.tickets.unique().tolist()}")
    if kernel.config.tail == "atomics" and workspace.slots.any():
        raise RuntimeError(f"sums must be zeros after a launch, {int(workspace.slots.count_nonzero())} are not")
    if pace.any():
        raise RuntimeError(f"pace must be zeros after a launch, got {pace.tolist()}")


@cache
def _library(kernel: Kernel, edit: Edit | None) -> ctypes.CDLL:
    folder = Path(mkdtemp(prefix="sm90_emulation_"))
    text = SOURCE.read_text()
    # The array is a macro of the emulator: each CTA has its own.
    for old, new in (
        ("extern __shared__ __align__(1024) unsigned char shared_memory[];", ""),
        *([edit] if edit else []),
    ):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (folder / "kernel.cpp").write_text(text + ENTRY)
    for header in ("tile_walk.cuh", "tail_plan.cuh"):
        (folder / header).write_text((SOURCE.parent / header).read_text())
    (folder / "ptx").mkdir()
    for stand_in in (SOURCE.parent / "ptx").iterdir():
        (folder / "ptx" / stand_in.name).write_text('#include "sm90_emulator.h"\n')
    library = folder / "kernel.so"
    macros = [f"-D{name}={value}" for name, value in kernel.defines.items()]
    options = ["-O1", "-std=c++20", "-shared", "-fPIC", "-Wno-unknown-pragmas", f"-I{HERE}"]
    subprocess.run(["g++", *options, *macros, folder / "kernel.cpp", "-o", library], check=True)
    loaded = ctypes.CDLL(str(library))
    loaded.emulate.restype = ctypes.c_char_p
    addresses, numbers = [ctypes.c_void_p] * 3, [ctypes.c_uint32] * 2
    loaded.emulate.argtypes = (*addresses, *numbers, ctypes.c_bool)
    return loaded
