"""Configurations of the sm_90a kernel: what one may be, and which one a problem gets. Plain integers, no device.

The device code is one template, ``cake_kernels/cuda/grouped_gemm_sm90.cu``, whose macros :meth:`Kernel.defines` gives.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, cast, get_args

from ...errors import ArgumentError
from ...registry import Build, Op, OutDtype, Problem, Variant
from ...sm90_program import stem
from .plan import FIXUP, MAX_CLUSTERS

SOURCE = Path(__file__).parents[2] / "cuda" / "grouped_gemm_sm90.cu"

CONSUMERS = 2
THREADS = 128 * (1 + CONSUMERS)
BLOCK_K = 64
SLAB = 64
MAX_EXPERTS = 1024
MAX_SMEM_BYTES = 232_448
STAGING_BYTES = 8192
"""Of one staging buffer; each of the two consumers has as many as :meth:`Config.staging` says."""

MAX_EXTENT = 2**31 - 1 - 1024
"""Largest M, N and K: a tile's last coordinate, up to two tiles past the end, must fit int32."""

LOOKS = 16
"""For each k-block of a tile: a look takes some 0.2 us, so that a wait may last about three times as long as a tile."""

Tail = Literal["plain", "whole", "slots", "atomics"]
"""What becomes of the tiles after the last full wave; see :class:`Config`."""

_NAME = rf"(\d+)x(\d+)_c(\d)x(\d)_s(\d)_b(\d+)(_swap)?(?:_l(\d+))?(?:_({'|'.join(get_args(Tail)[1:])}))?"
_OP_NUMBERS: dict[Op, int] = {"fwd": 0, "dgrad": 1, "wgrad": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Shape of tile and cluster, and schedule. A launch's bits depend on it; nothing else that is chosen changes them.

    Attributes
    ----------
    tile_m, tile_n
        Of a CTA, in the MMA's terms.
    cluster_m, cluster_n
        CTAs of a cluster along M and N of the MMA: two share the operand that their tiles have in common.
    stages
        Of the ring, each with ``BLOCK_K`` elements of the reduction.
    swap
        False: M of the MMA is the output's rows. True: its columns.
    band
        Cluster rows of a band of the tile walk.
    looks
        How often for each k-block of a tile a cluster looks, before it begins the tile, whether the others have asked
        for as many; 0: it does not wait. Only in full waves where the tail is placed by plan.
    tail
        ``plain``: the tiles after the last full wave are walked on as before. ``whole``: they are placed by
        :func:`.plan.plan` with ``split=False``; the bits are those of ``plain``. ``slots``: with ``split=True``, and a
        split tile's partial sums are added in ascending order. That is bitwise repeatable, but the bits of a split
        tile depend on ``offs`` and on the number of clusters too. ``atomics``: by the same plan, and a split tile's
        partial sums are added as they come: its bits may differ from run to run.

    Raises
    ------
    ArgumentError
        A value that the kernel does not have.
    """

    tile_m: int
    tile_n: int
    cluster_m: int
    cluster_n: int
    stages: int
    swap: bool
    band: int
    looks: int = 0
    tail: Tail = "plain"

    def __post_init__(self) -> None:
        rules = (
            ("(tile_m, tile_n)", (self.tile_m, self.tile_n), ((128, 256), (256, 192), (256, 128))),
            ("(cluster_m, cluster_n)", (self.cluster_m, self.cluster_n), ((2, 1), (1, 2), (1, 1))),
            ("stages", self.stages, (3, 4)),
            ("tail", self.tail, get_args(Tail)),
        )
        for name, value, known in rules:
            if value not in known:
                raise ArgumentError(f"{name} must be one of {known}, got {value}")
        for name, value, least in (("band", self.band, 1), ("looks", self.looks, 0)):
            if value < least:
                raise ArgumentError(f"{name} must be >= {least}, got {value}")
        if self.staging("wgrad") < 1:
            raise ArgumentError(
                f"{self.name} must leave room for the epilogue in {MAX_SMEM_BYTES} bytes; take 3 stages"
            )

    @classmethod
    def named(cls, name: str) -> Config:
        """Return the configuration whose :attr:`name` it is.

        Raises
        ------
        ArgumentError
            No configuration has that name, or the kernel has not its values.
        """
        found = re.fullmatch(_NAME, name)
        if found is None:
            raise ArgumentError(
                f"name of a configuration must look like 256x192_c1x2_s3_b8_swap_l16_slots, got {name!r}"
            )
        keys = ("tile_m", "tile_n", "cluster_m", "cluster_n", "stages", "band")
        made = cls(
            **dict(zip(keys, map(int, found.groups()[:6]), strict=True)),
            swap=found[7] is not None,
            looks=int(found[8] or 0),
            tail=cast(Tail, found[9] or "plain"),
        )
        if made.name != name:
            raise ArgumentError(f"name of this configuration must be written {made.name}, got {name!r}")
        return made

    @property
    def name(self) -> str:
        """``256x192_c1x2_s3_b8``; then ``_swap`` for exchanged roles, ``_l4`` for four looks a k-block, the tail."""
        tile = f"{self.tile_m}x{self.tile_n}_c{self.cluster_m}x{self.cluster_n}_s{self.stages}_b{self.band}"
        marks = ("_swap" * self.swap, f"_l{self.looks}" * (self.looks > 0), f"_{self.tail}" * (self.tail != "plain"))
        return tile + "".join(marks)

    @property
    def tile_rows(self) -> int:
        """Rows of the output in a CTA's tile."""
        return self.tile_n if self.swap else self.tile_m

    @property
    def tile_cols(self) -> int:
        """Columns of the output in a CTA's tile."""
        return self.tile_m if self.swap else self.tile_n

    @property
    def cluster_rows(self) -> int:
        """CTAs of a cluster that lie below each other in the output."""
        return self.cluster_n if self.swap else self.cluster_m

    @property
    def cluster_cols(self) -> int:
        """CTAs of a cluster that lie beside each other in the output."""
        return self.cluster_m if self.swap else self.cluster_n

    @property
    def cluster_size(self) -> int:
        """CTAs of a cluster."""
        return self.cluster_m * self.cluster_n

    def staging(self, op: Op) -> int:
        """Staging buffers of a consumer: where there is room one for each 64 elements along N of the MMA, else two.

        With as many a BF16 output is staged in one piece; FP32 takes two for each 64, and is staged part after part.
        """
        room = (MAX_SMEM_BYTES - self._smem_without_staging(op)) // (2 * STAGING_BYTES)
        return self.tile_n // 64 if room >= self.tile_n // 64 else min(2, room)

    def smem_bytes(self, op: Op) -> int:
        """Dynamic shared memory of a CTA: stages, staging, barriers, tables of the tile walk, the plan of the tail."""
        return self._smem_without_staging(op) + 2 * self.staging(op) * STAGING_BYTES

    def _smem_without_staging(self, op: Op) -> int:
        tiles = self.stages * (self.tile_m + self.tile_n) * BLOCK_K * 2
        tables = 3 if op == "wgrad" else 2  # wgrad's walk has an order of its experts
        plan = 0 if self.tail == "plain" else 8 + 4 * (12 * self.max_clusters + 10)  # its barrier, and TailPlan
        return tiles + 2 * self.stages * 8 + tables * (MAX_EXPERTS + 2) * 4 + plan

    @property
    def splits(self) -> bool:
        """Whether a launch may split tiles of the tail, and so needs a workspace."""
        return self.tail in ("slots", "atomics")

    @property
    def max_clusters(self) -> int:
        """Most clusters of a launch, for which the plan's tables have room; no GPU of sm_90a has more SMs."""
        return MAX_CLUSTERS // self.cluster_size

    def max_tiles(self, op: Op, *, M: int, N: int, K: int, E: int) -> int:
        """Return the most tiles of a cluster that ``offs`` can lead to."""
        rows, cols = self.tile_rows * self.cluster_rows, self.tile_cols * self.cluster_cols
        if op == "wgrad":
            return E * -(-N // rows) * -(-K // cols)
        return (M // rows + E + 1) * -(-(N if op == "fwd" else K) // cols)

    def max_k_blocks(self, op: Op, *, M: int, N: int, K: int, E: int) -> int:
        """Return the most k-blocks of all tiles that ``offs`` can lead to."""
        tiles = self.max_tiles(op, M=M, N=N, K=K, E=E)
        if op == "wgrad":
            return tiles // E * (M // BLOCK_K + E)
        return tiles * -(-(K if op == "fwd" else N) // BLOCK_K)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One compiled kernel: what it computes, and its configuration.

    Attributes
    ----------
    accumulate
        wgrad: whether it adds to what the output holds.
    whole_slabs
        Whether MN-major operands are loaded by one box of all their slabs, for contiguous extents that are multiples of
        ``SLAB``; else by a box a slab.

    Raises
    ------
    ArgumentError
        The configuration cannot load the operands of ``op``.
    """

    op: Op
    out_dtype: OutDtype
    accumulate: bool
    whole_slabs: bool
    config: Config

    def __post_init__(self) -> None:
        config = self.config
        parts = {
            "rows": (config.tile_rows // config.cluster_cols, self.op == "wgrad"),
            "columns": (config.tile_cols // config.cluster_rows, self.op != "fwd"),
        }
        for name, (part, mn_major) in parts.items():
            if mn_major and part % SLAB:
                raise ArgumentError(
                    f"{name} that a CTA loads in {self.op} must be a multiple of {SLAB}, got {part} with {config.name};"
                    " take another cluster"
                )

    @property
    def variant(self) -> Variant:
        """Whether its results are bitwise repeatable."""
        return "nondet" if self.config.tail == "atomics" else "det"

    @property
    def symbol(self) -> str:
        """The device symbol, which is the stem of the program that lists the kernel."""
        return stem(self.op, self.variant, self.out_dtype)

    @property
    def name(self) -> str:
        """The symbol, the configuration, and what else sets the kernel apart."""
        marks = ("_acc" if self.accumulate else "") + ("" if self.whole_slabs else "_anyslab")
        return f"{self.symbol}_{self.config.name}{marks}"

    @property
    def defines(self) -> dict[str, int]:
        """Macro -> value."""
        config = self.config
        return {
            "OP": _OP_NUMBERS[self.op],
            "SWAP": int(config.swap),
            "TILE_M": config.tile_m,
            "TILE_N": config.tile_n,
            "CLUSTER_M": config.cluster_m,
            "CLUSTER_N": config.cluster_n,
            "STAGES": config.stages,
            "STAGING": config.staging(self.op),
            "BAND": config.band,
            "LOOKS": config.looks,
            "TAIL": get_args(Tail).index(config.tail),
            "WHOLE_SLABS": int(self.whole_slabs),
            "OUT_FP32": int(self.out_dtype == "fp32"),
            "ACCUMULATE": int(self.accumulate),
            "MAX_EXPERTS": MAX_EXPERTS,
            "MAX_CLUSTERS": config.max_clusters,
        }

    @property
    def build(self) -> Build:
        """What the compiler needs."""
        return Build(
            name=self.name,
            source=SOURCE,
            defines=self.defines,
            symbol=self.symbol,
            smem_bytes=self.config.smem_bytes(self.op),
        )


STRAIGHT = Config(tile_m=256, tile_n=192, cluster_m=1, cluster_n=1, stages=3, swap=False, band=8, looks=LOOKS)
"""256 rows x 192 columns."""

SWAPPED = Config(tile_m=256, tile_n=192, cluster_m=1, cluster_n=1, stages=3, swap=True, band=8, looks=LOOKS)
"""192 rows x 256 columns."""

NARROW = Config(tile_m=128, tile_n=256, cluster_m=1, cluster_n=1, stages=3, swap=False, band=8, looks=LOOKS)
"""128 rows x 256 columns: where the others would leave too much empty, and for operands that are not whole slabs."""

FLAT = Config(tile_m=128, tile_n=256, cluster_m=1, cluster_n=2, stages=3, swap=False, band=8, looks=LOOKS)
"""128 rows x 512 columns a cluster: for groups of less than a tile."""

CONFIGS = (STRAIGHT, SWAPPED, NARROW, FLAT)
"""Every configuration that :func:`choose` may return, but for its tail."""

FLAT_GROUP_ROWS = 96
"""Below this many rows a group nearly every group is one row of tiles, whose two CTAs share its rows in FLAT."""

SMS = 132
"""Of an H100 SXM and of an H200."""

WHOLE_WAVES = 16
"""Below this many waves of tiles the last one counts as whole; above, the tiles are not known well enough for that."""

TAIL_WAVES = 0.5
"""What the last wave counts beyond the tiles in it, from ``WHOLE_WAVES`` on."""

CHUNK_K_BLOCKS = 10
"""What a chunk of a split tile costs its CTA beside its own k-blocks: sums are stored, and loaded to be added.

Measured with the tail ``slots``; ``atomics`` gets the same choice.
"""

_LOADS = {STRAIGHT: 1.0, SWAPPED: 1.0, NARROW: 0.97}
RATES: dict[Op, dict[Config, float]] = {
    "fwd": _LOADS,
    "dgrad": _LOADS,
    "wgrad": {STRAIGHT: 1.0, SWAPPED: 1.0, NARROW: 0.95},
}
"""How fast an SM computes its tiles, relative to SWAPPED; ``tools/config_table.py`` fits them."""


def choose(op: Op, *, M: int, N: int, K: int, E: int, variant: Variant = "det", sms: int = SMS) -> Config:
    """Return the configuration of a problem: of least :func:`cost`, but for the two exceptions below.

    It depends on the arguments alone; of equal costs the first of ``RATES`` wins. Operands that are not whole slabs
    get NARROW, and groups of less than ``FLAT_GROUP_ROWS`` rows on average FLAT, where the output of fwd or dgrad has
    more columns than a tile of it. NOTES.md has what this rests on.

    Parameters
    ----------
    M, N, K, E
        Sizes of the problem, at least 1; the average group has M / E rows.
    variant
        Decides the tail of wgrad.
    sms
        Streaming multiprocessors of the device, each of which runs one CTA.
    """
    return chooser(op, N=N, K=K, E=E, variant=variant, sms=sms)(M)


def chooser(op: Op, *, N: int, K: int, E: int, variant: Variant = "det", sms: int = SMS) -> Callable[[int], Config]:
    """Return :func:`choose` as a function of M alone: what M has no part in is computed here, once."""
    if not whole_slabs(op, N=N, K=K):
        narrow = _of_variant(NARROW, op, variant)
        return lambda _M: narrow
    is_wide = op != "wgrad" and (N if op == "fwd" else K) > FLAT.tile_cols
    flat_below = FLAT_GROUP_ROWS * E if is_wide else 0
    configs = [_of_variant(config, op, variant) for config in RATES[op]]
    costs = [_work(config, op, N=N, K=K, E=E, sms=sms, rate=rate) for config, rate in RATES[op].items()]

    def chosen(M: int) -> Config:
        if flat_below > M:
            return FLAT
        times = [cost(M) for cost in costs]
        return configs[times.index(min(times))]

    return chosen


def cost(config: Config, op: Op, *, M: int, N: int, K: int, E: int, sms: int = SMS) -> float:
    """Return the estimated time of a problem: the work over the rate of ``config``, one of ``RATES[op]``.

    Times of one problem compare by it, times of two problems do not: the length of the reduction, which is the same
    for all configurations, is not a factor of it. Sizes are at least 1, as in :func:`choose`.
    """
    return _work(config, op, N=N, K=K, E=E, sms=sms, rate=RATES[op][config])(M)


def work(config: Config, op: Op, *, M: int, N: int, K: int, E: int, sms: int = SMS) -> float:
    """Return how many elements of the output, empty ones of its tiles included, the busiest SM computes, by estimate.

    That is a CTA's tile for each wave of tiles, of which there is one at least. In fwd and dgrad a group leaves half a
    row of tiles empty on average, and the last wave counts as ``WHOLE_WAVES`` and ``TAIL_WAVES`` say. In wgrad the
    tiles are known but for those of empty groups, which take next to no time. How many tiles the last wave has depends
    on how many groups are empty: the mean of none and of one is taken. Sizes are at least 1, as in :func:`choose`.
    """
    return _work(config, op, N=N, K=K, E=E, sms=sms)(M)


def _work(config: Config, op: Op, *, N: int, K: int, E: int, sms: int, rate: float = 1.0) -> Callable[[int], float]:
    """Return :func:`work` over a rate, as a function of M."""
    clusters = sms // config.cluster_size
    elements = config.tile_rows * config.tile_cols
    if op == "wgrad":
        tiles = config.max_tiles(op, M=0, N=N, K=K, E=1)  # M is the reduction
        fewer = max(1, E - 1)

        def waves_of(M: int) -> float:
            waves = _waves_of_wgrad(tiles, E, M=M, clusters=clusters)
            return (waves + _waves_of_wgrad(tiles, fewer, M=M, clusters=clusters)) / 2
    else:
        rows, cols = config.tile_rows * config.cluster_rows, config.tile_cols * config.cluster_cols
        columns = -(-(N if op == "fwd" else K) // cols)

        def waves_of(M: int) -> float:
            waves = max(E, M / rows + E / 2) * columns / clusters
            return math.ceil(waves) if waves < WHOLE_WAVES else waves + TAIL_WAVES

    return lambda M: waves_of(M) * elements / rate


def _waves_of_wgrad(tiles: int, groups: int, *, M: int, clusters: int) -> float:
    """Return the waves of ``groups`` groups, each of as many rows and of ``tiles`` tiles; at least one.

    All clusters share the last one, as with ``slots``. Where that takes a split, the clusters without a tile of it
    compute what is left of the others' tiles, a chunk of each: the more tiles it has, the more chunks for fewer
    clusters. See docs/tail.md.
    """
    k_blocks = M / groups / BLOCK_K
    tail = groups * tiles % clusters
    splits = k_blocks * (1 - tail / clusters) > FIXUP
    chunks = -(-tail // (clusters - tail)) if splits else 0
    return max(1, groups * tiles / clusters + CHUNK_K_BLOCKS * chunks / k_blocks)


def _of_variant(config: Config, op: Op, variant: Variant) -> Config:
    """Return ``config`` as a variant has it; in fwd and dgrad a split would gain too little: see NOTES.md."""
    return replace(config, tail="slots" if variant == "det" else "atomics") if op == "wgrad" else config


def whole_slabs(op: Op, *, N: int, K: int) -> bool:
    """Return whether the contiguous extents of all MN-major operands are multiples of ``SLAB``."""
    return {"fwd": True, "dgrad": K % SLAB == 0, "wgrad": N % SLAB == 0 and K % SLAB == 0}[op]


def kernels(op: Op, out_dtype: OutDtype, variant: Variant = "det") -> tuple[Kernel, ...]:
    """Return every kernel that a program may launch."""
    configs = tuple(RATES[op]) if op == "wgrad" else CONFIGS
    loads = [(config, True) for config in configs] + ([] if op == "fwd" else [(NARROW, False)])
    return tuple(
        Kernel(
            op=op,
            out_dtype=out_dtype,
            accumulate=accumulate,
            whole_slabs=whole,
            config=_of_variant(config, op, variant),
        )
        for config, whole in loads
        for accumulate in ((False, True) if op == "wgrad" else (False,))
    )


def refuse(problem: Problem) -> str | None:
    """Return why no sm_90a kernel can do ``problem``, or None."""
    for name, value in (("N", problem.N), ("K", problem.K)):
        if value % 8:
            return f"needs {name} a multiple of 8, got {value}"
    if problem.E > MAX_EXPERTS:
        return f"needs at most {MAX_EXPERTS} experts, got {problem.E}"
    for name, value in (("M", problem.M), ("N", problem.N), ("K", problem.K)):
        if value > MAX_EXTENT:
            return f"needs {name} at most {MAX_EXTENT}, so that its tiles' coordinates fit int32, got {value}"
    if problem.accumulate and problem.op != "wgrad":
        return "accumulates in wgrad only"
    return None
