"""Ragged problems for the tests of grouped GEMM: operands among canaries, and the FP64 product that a result must meet.

The tests run on a GPU. To try the tests themselves, the same bodies run on a CPU against the reference:
``CAKE_KERNELS_TEST_DEVICE=cpu python -m pytest -m gpu tests/gpu/test_grouped_gemm*.py``.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import accumulate, pairwise

import pytest
import torch

from cake_kernels import grouped_gemm, jit, registry
from cake_kernels.build import builds_for
from cake_kernels.device import facts
from cake_kernels.grouped_gemm.sm90.config import SMS, Config, Kernel, Variant, choose, kernels
from cake_kernels.grouped_gemm.sm90.launch import prepare
from cake_kernels.grouped_gemm.sm90.plan import Plan, plan
from cake_kernels.grouped_gemm.sm90.walk import walk
from cake_kernels.offsets import ends_within
from cake_kernels.registry import Op, OutDtype
from harness.correctness import accumulation_limit

DEVICE = torch.device(os.environ.get("CAKE_KERNELS_TEST_DEVICE", "cuda"))

cuda_only = pytest.mark.skipif(DEVICE.type != "cuda", reason="has no meaning for the reference on a CPU")

BF16, FP32 = torch.bfloat16, torch.float32
OPS = (("fwd", BF16), ("dgrad", BF16), ("wgrad", BF16), ("wgrad", FP32))
"""Every (op, output type)."""

DTYPES: dict[OutDtype, torch.dtype] = {"bf16": BF16, "fp32": FP32}

REL_L2 = {BF16: 3e-3, FP32: 1e-4}
"""Most of ‖out - ref‖ / ‖ref‖. BF16: one rounding, 2^-8 / √3 = 2.3e-3 where it hurts most. FP32: long sums."""

_UNIT = {BF16: 2**-8, FP32: 2**-24}
_INTEGER = {BF16: torch.int16, FP32: torch.int32}
_CANARY = {BF16: 0x7FC5, FP32: 0x7FC0_0005}  # NaN, with a payload that no arithmetic makes
_GUARD_BYTES = 16
_GUARD_ROWS = 8
_CHUNK_ROWS = 16384


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor's bits as integers, in which NaN equals itself and 0 is not -0."""
    return tensor.view(_INTEGER[tensor.dtype])


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(bits(one), bits(other))


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarded:
    """``inner`` lies inside of ``whole``: canaries before and after it, between its rows and between its matrices.

    An address or a stride of ``inner`` is a multiple of 16 bytes and of no larger power of two than need be.
    """

    whole: torch.Tensor
    inner: torch.Tensor

    @classmethod
    def canaries(cls, shape: Sequence[int], dtype: torch.dtype) -> Guarded:
        """Return a tensor whose elements are canaries too: NaN until somebody writes them."""
        columns = _GUARD_BYTES // dtype.itemsize
        guards = (*[1] * (len(shape) - 2), _GUARD_ROWS, columns)
        whole = torch.empty(
            [size + 2 * guard for size, guard in zip(shape, guards, strict=True)], dtype=dtype, device=DEVICE
        )
        bits(whole).fill_(_CANARY[dtype])
        inner = whole
        for dim, (size, guard) in enumerate(zip(shape, guards, strict=True)):
            inner = inner.narrow(dim, guard, size)
        return cls(whole=whole, inner=inner)

    @classmethod
    def randn(cls, shape: Sequence[int], dtype: torch.dtype, *, seed: int) -> Guarded:
        """Return standard normal numbers, the same for the same seed and device."""
        made = cls.canaries(shape, dtype)
        made.inner.normal_(generator=torch.Generator(DEVICE).manual_seed(seed))
        return made

    def assert_intact(self) -> None:
        """Every canary outside of ``inner`` is as it was."""
        outside = _canaries(self.whole) - _canaries(self.inner)
        assert outside == self.whole.numel() - self.inner.numel(), "memory outside of the tensor was written"


def _canaries(tensor: torch.Tensor) -> int:
    return int((bits(tensor) == _CANARY[tensor.dtype]).sum())


@dataclass(frozen=True, kw_only=True)
class Ragged:
    """X [M, K], G [M, N], W [E, N, K], standard normal and made on first use; rows of nobody are NaN in X and G.

    Attributes
    ----------
    offs_values
        What ``offs`` holds: any int32.
    """

    offs_values: tuple[int, ...]
    M: int
    N: int
    K: int
    seed: int = 0

    @property
    def E(self) -> int:
        return len(self.offs_values)

    @property
    def ends(self) -> tuple[int, ...]:
        return ends_within(self.offs_values, self.M)

    @property
    def groups(self) -> list[slice]:
        """Each expert's rows."""
        return [slice(*pair) for pair in pairwise((0, *self.ends))]

    @cached_property
    def offs(self) -> torch.Tensor:
        return torch.tensor(self.offs_values, dtype=torch.int32, device=DEVICE)

    @cached_property
    def x(self) -> torch.Tensor:
        return self._rows(self.K, stream=0)

    @cached_property
    def g(self) -> torch.Tensor:
        return self._rows(self.N, stream=1)

    @cached_property
    def w(self) -> torch.Tensor:
        return Guarded.randn((self.E, self.N, self.K), BF16, seed=3 * self.seed + 2).inner

    def _rows(self, columns: int, *, stream: int) -> torch.Tensor:
        made = Guarded.randn((self.M, columns), BF16, seed=3 * self.seed + stream).inner
        made[(0, *self.ends)[-1] :] = math.nan
        return made

    def operands(self, op: str) -> tuple[torch.Tensor, torch.Tensor]:
        """Return what the function of ``op`` takes before offs."""
        if op == "wgrad":
            return self.g, self.x
        return (self.x if op == "fwd" else self.g), self.w

    def output(self, op: str, dtype: torch.dtype = BF16) -> Guarded:
        """Return an output full of NaN."""
        shape = {"fwd": (self.M, self.N), "dgrad": (self.M, self.K), "wgrad": (self.E, self.N, self.K)}[op]
        return Guarded.canaries(shape, dtype)

    def run(
        self,
        op: str,
        out: torch.Tensor,
        *,
        accumulate: bool = False,
        num_sms: int | None = None,
        config: Config | None = None,
    ) -> torch.Tensor:
        """Compute into ``out`` by the public function, or with ``config`` by the launcher under it (a CPU has none)."""
        a, b = self.operands(op)
        if DEVICE.type == "cuda":
            compile_every_kernel()
        if config is not None and DEVICE.type == "cuda":
            options = {"accumulate": accumulate, "num_sms": num_sms, "config": config}
            launch = prepare(op, a, b, self.offs, out, **options)  # type: ignore[arg-type]
            launch(torch.cuda.current_stream().cuda_stream)
        elif op == "wgrad":
            grouped_gemm.wgrad(a, b, self.offs, out=out, out_dtype=out.dtype, accumulate=accumulate, num_sms=num_sms)
        else:
            {"fwd": grouped_gemm.forward, "dgrad": grouped_gemm.dgrad}[op](a, b, self.offs, out=out, num_sms=num_sms)
        return out

    def computed(
        self, op: str, dtype: torch.dtype = BF16, *, num_sms: int | None = None, config: Config | None = None
    ) -> torch.Tensor:
        """Compute into a fresh output full of NaN, and return it with its guards seen intact."""
        out = self.output(op, dtype)
        self.run(op, out.inner, num_sms=num_sms, config=config)
        out.assert_intact()
        return out.inner

    def assert_right(
        self,
        op: str,
        out: torch.Tensor,
        *,
        old: torch.Tensor | None = None,
        experts: Collection[int] | None = None,
    ) -> None:
        """Every element of ``out`` is near FP64's, and all of them together are; rows of nobody are zeros.

        ``old`` is what a call that accumulates found in ``out``. ``experts`` restricts the check to theirs.
        """
        error2 = norm2 = torch.zeros((), dtype=torch.float64, device=DEVICE)
        for part in self._products(op, experts):
            expected = part.product if old is None else part.product + old[part.index].double()
            error = out[part.index].double() - expected
            limit = expected.abs() * _UNIT[out.dtype] + _accumulation_slack(part.n)
            off = ~(error.abs() <= limit)  # NaN is off
            assert not off.any(), (
                f"{op}, {part.index}: {int(off.sum())} of {off.numel()} elements are off,"
                f" the first at {off.nonzero()[0].tolist()}: {out[part.index][off][0]}, expected {expected[off][0]}"
            )
            error2 = error2 + error.square().sum()
            norm2 = norm2 + expected.square().sum()
        assert float(error2) <= REL_L2[out.dtype] ** 2 * float(norm2)

    def _products(self, op: str, experts: Collection[int] | None) -> Iterator[_Part]:
        a, b = self.operands(op)
        for expert, rows in enumerate(self.groups):
            if experts is not None and expert not in experts:
                continue
            if op == "wgrad":
                product = torch.zeros(self.N, self.K, dtype=torch.float64, device=DEVICE)
                for chunk in _chunks(rows):
                    product.addmm_(a[chunk].double().t(), b[chunk].double())
                yield _Part(index=expert, product=product, n=rows.stop - rows.start)
                continue
            weight = b[expert].double().t() if op == "fwd" else b[expert].double()
            for chunk in _chunks(rows):
                yield _Part(index=chunk, product=a[chunk].double() @ weight, n=self.K if op == "fwd" else self.N)
        if op != "wgrad":
            for chunk in _chunks(slice((0, *self.ends)[-1], self.M)):
                rows = chunk.stop - chunk.start
                zeros = torch.zeros(rows, self.N if op == "fwd" else self.K, dtype=torch.float64, device=DEVICE)
                yield _Part(index=chunk, product=zeros, n=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """FP64 values, where they stand in the output, and how many products each sums."""

    index: slice | int
    product: torch.Tensor
    n: int


def ragged(sizes: Sequence[int], *, N: int, K: int, nobody: int = 0, seed: int = 0) -> Ragged:
    """Return a problem of groups of these sizes, followed by ``nobody`` rows of nobody."""
    return Ragged(offs_values=tuple(accumulate(sizes)), M=sum(sizes) + nobody, N=N, K=K, seed=seed)


def kernels_of_slabs(*ops: Op) -> list[Kernel]:
    """Return every kernel of ``ops``, all by default, that writes whole slabs and adds to nothing."""
    made = [kernel for op in ops or ("fwd", "dgrad", "wgrad") for dtype in DTYPES for kernel in kernels(op, dtype)]
    return [
        kernel
        for kernel in made
        if kernel.whole_slabs and not kernel.accumulate and (kernel.op == "wgrad" or kernel.out_dtype == "bf16")
    ]


def sm_count() -> int:
    """Return the number of SMs of this device; of a CPU, that of an H200."""
    return torch.cuda.get_device_properties(DEVICE).multi_processor_count if DEVICE.type == "cuda" else SMS


def planned(problem: Ragged, variant: Variant = "det", *, config: Config | None = None) -> Plan:
    """Return the plan of the wgrad that the program, or ``config``, launches for ``problem`` on this device."""
    sizes = {"M": problem.M, "N": problem.N, "K": problem.K}
    config = config or choose("wgrad", **sizes, E=problem.E, variant=variant, sms=sm_count())
    rows, columns = config.tile_rows * config.cluster_rows, config.tile_cols * config.cluster_cols
    made = walk("wgrad", problem.offs_values, **sizes, cluster_rows=rows, cluster_columns=columns, band=config.band)
    return plan(made, sm_count() // config.cluster_size, split=config.splits)


def _accumulation_slack(n: int) -> float:
    """Return what the sum of n products of standard normals may lose, at most: 8 deviations of it.

    Few products are taken as 64: a tensor core aligns them to the largest, which may be far above their deviation.
    """
    return 8 * accumulation_limit(n) * math.sqrt(max(n, 64)) if n else 0.0


def _chunks(rows: slice) -> Iterator[slice]:
    for start in range(rows.start, rows.stop, _CHUNK_ROWS):
        yield slice(start, min(start + _CHUNK_ROWS, rows.stop))


@cache
def compile_every_kernel() -> None:
    """Fill the cache of cubins on all cores, before the tests ask for one after the other."""
    arch = facts(torch.cuda.current_device()).arch
    builds = builds_for(arch, registry.programs())
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda build: jit.compile(build.source, arch=arch, defines=build.defines), builds))
