"""The TMA maps of one launch: in numbers, known without a GPU, and encoded by the driver.

A map is a view of a tensor's memory, innermost dimension first, and the box that one TMA instruction moves. Loads
outside it give zeros and stores outside it are dropped; each tensor's true extents are the map's, so that nothing
outside the tensor is touched and no box of one expert reaches into the next one.

========  ==========================================  ======================
operand   dimensions                                  box
========  ==========================================  ======================
K-major   reduction, rows, experts                    64 x rows of a part
MN-major  64, reduction, slabs of 64, experts         64 x 64 x slabs of a part
MN-major  columns, reduction, 1, experts              64 x 64
output    columns, rows, experts                      128 bytes x 32 or 64 rows
========  ==========================================  ======================

The second form of an MN-major operand is for extents that are no multiple of 64.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from importlib import import_module
from math import prod
from typing import Any

from ...device import made_current
from ...errors import DriverError
from ...registry import OutDtype
from .config import BLOCK_K, SLAB, Kernel

BYTES = {"bf16": 2, "fp32": 4}
MAP_BYTES = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorMap:
    """One map in numbers.

    Attributes
    ----------
    dims, box
        Elements, innermost first.
    strides_bytes
        Of every dimension but the innermost.
    """

    dtype: OutDtype
    dims: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Maps:
    """The maps of the operand along the output's rows, of the one along its columns, and of the output."""

    rows: TensorMap
    cols: TensorMap
    out: TensorMap


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A matrix, or a stack of them, with contiguous rows.

    Attributes
    ----------
    stack, rows, cols
        Matrices, and elements.
    stack_stride, row_stride
        Elements.
    """

    stack: int
    rows: int
    cols: int
    stack_stride: int
    row_stride: int

    @classmethod
    def of(cls, shape: tuple[int, ...], strides: tuple[int, ...]) -> Layout:
        """Return the layout of a tensor of two or three dimensions.

        The stride of a dimension of size 1 means nothing and may be any number; it is replaced by what steps over the
        inner ones.
        """
        rows, cols = shape[-2:]
        row_stride = strides[-2] if rows > 1 else cols
        stack = prod(shape[:-2])
        return cls(
            stack=stack,
            rows=rows,
            cols=cols,
            stack_stride=strides[0] if stack > 1 else rows * row_stride,
            row_stride=row_stride,
        )


def maps(kernel: Kernel, *, a: Layout, b: Layout, out: Layout) -> Maps:
    """Return the maps of a launch; ``a`` and ``b`` are x, w (fwd), g, w (dgrad), g, x (wgrad)."""
    config = kernel.config
    row_part, col_part = config.tile_rows // config.cluster_cols, config.tile_cols // config.cluster_rows
    return Maps(
        rows=_mn_major(a, row_part, kernel.whole_slabs) if kernel.op == "wgrad" else _k_major(a, row_part),
        cols=_k_major(b, col_part) if kernel.op == "fwd" else _mn_major(b, col_part, kernel.whole_slabs),
        out=_output(out, kernel),
    )


def _k_major(x: Layout, part: int) -> TensorMap:
    return _map("bf16", x, (x.cols, x.rows), (x.row_stride,), (BLOCK_K, part))


def _mn_major(x: Layout, part: int, whole_slabs: bool) -> TensorMap:
    if whole_slabs:
        dims, box = (SLAB, x.rows, x.cols // SLAB), (SLAB, BLOCK_K, part // SLAB)
    else:
        dims, box = (x.cols, x.rows, 1), (SLAB, BLOCK_K, 1)
    return _map("bf16", x, dims, (x.row_stride, SLAB), box)


def _output(x: Layout, kernel: Kernel) -> TensorMap:
    cols = 128 // BYTES[kernel.out_dtype]
    rows = 32 if kernel.out_dtype == "fp32" and kernel.config.swap else 64
    return _map(kernel.out_dtype, x, (x.cols, x.rows), (x.row_stride,), (cols, rows))


def _map(
    dtype: OutDtype, x: Layout, dims: tuple[int, ...], strides: tuple[int, ...], box: tuple[int, ...]
) -> TensorMap:
    """Return the map of a matrix by ``dims``, ``strides`` and ``box``, with the stack as a last dimension."""
    strides_bytes = tuple(stride * BYTES[dtype] for stride in (*strides, x.stack_stride))
    return TensorMap(dtype=dtype, dims=(*dims, x.stack), strides_bytes=strides_bytes, box=(*box, 1))


_Encoded = ctypes.c_char * MAP_BYTES

MOST_ENCODED = 64
"""Memories whose encoded maps are kept, of each encoder: an allocator comes back to the same ones."""


class Encoder:
    """The 128 bytes of a map over the memory at any address, of any number of rows, kept for the last memories.

    Parameters
    ----------
    numbers
        The map of at least two rows, which are its second dimension, or of the one number of rows that is asked for:
        the stride of a single row means nothing.
    what
        Names the map in an error.
    device
        Index of the memory's CUDA device.
    """

    __slots__ = ("_device", "_dims", "_driver", "_dtype", "_encoded", "_numbers", "_options", "_strides", "_what")

    def __init__(self, numbers: TensorMap, what: str, *, device: int) -> None:
        driver: Any = import_module("cuda.bindings.driver")
        types = driver.CUtensorMapDataType
        dtype = {"bf16": types.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, "fp32": types.CU_TENSOR_MAP_DATA_TYPE_FLOAT32}
        self._numbers, self._what, self._device, self._driver = numbers, what, device, driver
        self._encoded: dict[tuple[int, int], bytes] = {}
        self._dtype = dtype[numbers.dtype]
        self._dims = [driver.cuuint64_t(dim) for dim in numbers.dims]
        self._strides = [driver.cuuint64_t(stride) for stride in numbers.strides_bytes]
        self._options = (
            [driver.cuuint32_t(extent) for extent in numbers.box],
            [driver.cuuint32_t(1)] * len(numbers.dims),
            driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
            driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )

    def __call__(self, address: int, rows: int) -> bytes:
        """Return the map over ``rows`` rows, of each matrix of a stack, at ``address``.

        Raises
        ------
        DriverError
            The driver refuses it.
        """
        known = self._encoded.get((address, rows))
        if known is not None:
            return known
        driver, numbers = self._driver, self._numbers
        dims, strides = self._dims.copy(), self._strides.copy()
        dims[1] = driver.cuuint64_t(rows)
        if numbers.dims[-1] == 1:  # no stack: its stride steps over the one matrix
            strides[-1] = driver.cuuint64_t(rows * numbers.strides_bytes[0])
        with made_current(self._device):
            status, encoded = driver.cuTensorMapEncodeTiled(
                self._dtype, len(dims), address, dims, strides, *self._options
            )
        if status != 0:
            raise DriverError(
                f"the tensor map of {self._what} is refused ({status.name}): {numbers}, with {rows} rows, at"
                f" {address:#x}"
            )
        made: bytes = _Encoded.from_address(encoded.getPtr()).raw  # string_at would take twice as long
        if len(self._encoded) >= MOST_ENCODED:
            self._encoded.clear()
        self._encoded[address, rows] = made
        return made
