"""Compiles device code for the CPU with sm90_emulator.h, and runs the sm_90a kernel."""

import ctypes
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from cake_kernels.grouped_gemm.sm90.config import SOURCE, Kernel
from cake_kernels.grouped_gemm.sm90.launch import Problem, Workspace
from cake_kernels.grouped_gemm.sm90.tensor_maps import BYTES, Layout, TensorMap, maps

HERE = Path(__file__).parent
GPP = ("g++", "-std=c++20", "-fPIC")
CHECKED = ("-Wall", "-Werror", "-fsanitize=undefined", "-fno-sanitize-recover=undefined")
ENTRY = """
extern "C" const char* emulate(const TensorMap* maps, const Problem* p, const u32* order, u32 clusters, u32 seed,
                               bool lazy) {
    const auto kernel = [=] { SYMBOL(maps[0], maps[1], maps[2], *p); };
    return emulator::run(kernel, order, clusters, kClusterSize, seed, lazy);
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


def compiled(source: str, macros: Mapping[str, object], options: Sequence[str] = ()) -> ctypes.CDLL:
    """Compile ``source`` for the CPU, where it finds the device's headers and the emulator's, and load it."""
    with TemporaryDirectory(prefix="sm90_emulation_") as name:
        folder = Path(name)
        (folder / "source.cpp").write_text('#include "sm90_emulator.h"\n' + source)
        (folder / "emulator.o").write_bytes(_emulator())
        for header in SOURCE.parent.glob("*.cuh"):
            (folder / header.name).write_text(header.read_text())
        (folder / "ptx").mkdir()
        for stand_in in (SOURCE.parent / "ptx").iterdir():
            (folder / "ptx" / stand_in.name).write_text('#include "sm90_emulator.h"\n')
        defines = [f"-D{name}={value}" for name, value in macros.items()]
        command = [*GPP, "-O1", "-shared", "-Wno-unknown-pragmas", f"-I{HERE}", *options, *defines]
        subprocess.run([*command, "source.cpp", "emulator.o", "-o", "library.so"], cwd=folder, check=True)
        return ctypes.CDLL(str(folder / "library.so"))


@cache
def _emulator() -> bytes:
    """Return the object file of what is the same for all device code."""
    with TemporaryDirectory(prefix="sm90_emulation_") as folder:
        built = Path(folder) / "emulator.o"
        subprocess.run([*GPP, "-O3", "-c", HERE / "sm90_emulator.cpp", "-o", built], check=True)
        return built.read_bytes()


@cache
def _library(kernel: Kernel, edit: Edit | None) -> ctypes.CDLL:
    text = SOURCE.read_text()
    # The array is a macro of the emulator: each CTA has its own.
    for old, new in (
        ("extern __shared__ __align__(1024) unsigned char shared_memory[];", ""),
        *([edit] if edit else []),
    ):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    loaded = compiled(text + ENTRY, kernel.defines)
    loaded.emulate.restype = ctypes.c_char_p
    addresses, numbers = [ctypes.c_void_p] * 3, [ctypes.c_uint32] * 2
    loaded.emulate.argtypes = (*addresses, *numbers, ctypes.c_bool)
    return loaded
