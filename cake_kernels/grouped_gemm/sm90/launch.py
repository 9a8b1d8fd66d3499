"""From checked tensors to a launch: chooses and loads the kernel, encodes the tensor maps, sizes the grid.

Nothing here reads a tensor's values or waits for the device. A launch allocates nothing and may be captured in a CUDA
graph. A tile's bits depend on its rows, its expert and the configuration alone, so neither on the number of CTAs nor on
what else runs. Where the tail is split (:attr:`.Config.splits`) the bits of split tiles depend on ``offs`` and on the
number of CTAs too; with ``slots`` they are still bitwise repeatable, with ``atomics`` they may differ from run to run.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, lru_cache

import torch

from ... import jit
from ...device import facts
from ...driver import Kernel as LoadedKernel
from ...errors import ArgumentError, DriverError
from ...registry import Launch, Op, OutDtype, Variant
from .config import CONSUMERS, THREADS, Config, Kernel, choose, whole_slabs
from .plan import MAX_K_BLOCKS, max_slots
from .tensor_maps import MAP_BYTES, Layout, encoder, maps

_OUT_DTYPES: dict[torch.dtype, OutDtype] = {torch.bfloat16: "bf16", torch.float32: "fp32"}


class Problem(ctypes.Structure):
    """The struct of this name in the device code."""

    _fields_ = (
        ("offs", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("out_row_stride", ctypes.c_int64),
        ("out_expert_stride", ctypes.c_int64),
        ("pace", ctypes.c_void_p),
        ("slots", ctypes.c_void_p),
        ("tickets", ctypes.c_void_p),
        ("num_experts", ctypes.c_int32),
        ("M", ctypes.c_int32),
        ("N", ctypes.c_int32),
        ("K", ctypes.c_int32),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """Where the clusters of one launch leave the partial sums of split tiles. Two launches at once must not share it.

    Attributes
    ----------
    slots
        fp32 [slots, cluster_size, consumers, elements of a consumer]. With ``slots`` a partial sum each, and what they
        hold before a launch does not matter. With ``atomics`` the sum of a split tile each: zeros before a launch, and
        again after it.
    tickets
        int32 [slots, cluster_size, consumers]; zeros before a launch, and again after it.
    """

    slots: torch.Tensor
    tickets: torch.Tensor

    @classmethod
    def of(cls, config: Config, *, clusters: int, tiles: int, device: torch.device) -> Workspace | None:
        """Allocate what a launch of ``clusters`` clusters and at most ``tiles`` tiles needs; None if it splits nothing.

        Zeroed on the current stream.
        """
        if not config.splits:
            return None
        adds = config.tail == "atomics"
        # A sum for each tile of the tail, of which there are fewer than clusters.
        slots = min(tiles, clusters - 1) if adds else max_slots(clusters, tiles)
        parts = slots, config.cluster_size, CONSUMERS
        sums = (torch.zeros if adds else torch.empty)(
            *parts, config.tile_m * config.tile_n // CONSUMERS, dtype=torch.float32, device=device
        )
        return cls(slots=sums, tickets=torch.zeros(parts, dtype=torch.int32, device=device))


_Key = tuple[str, int, int, int | None, int]

_FREE: dict[_Key, Workspace] = {}
"""Workspaces whose launch is gone, one for each kind and stream: the next call there need not zero one anew."""

_MOST_FREE = 16
"""So many free workspaces are dropped before another one is allocated; each is up to 52 MB of device memory."""


class _Bound:
    """A launch with its arguments. Once it is gone, these and its workspace are free for the next call.

    Attributes
    ----------
    workspace
        None if nothing is split.
    """

    __slots__ = ("_arguments", "_key", "_route", "workspace")

    def __init__(self, route: _Route, arguments: _Arguments, workspace: Workspace | None, key: _Key | None) -> None:
        self._route, self._arguments, self.workspace, self._key = route, arguments, workspace, key

    def __call__(self, stream: int) -> None:
        self._arguments.launch(stream)

    def __del__(self, free: dict[_Key, Workspace] = _FREE) -> None:  # bound here: globals may go before the last launch
        self._route.free.append(self._arguments)
        if self._key is not None and self.workspace is not None:
            free[self._key] = self.workspace


@dataclass(frozen=True, slots=True, eq=False)
class _Arguments:
    """What a kernel is launched with; ``launch`` reads them anew each time, and the driver copies them then."""

    maps: tuple[ctypes.Array[ctypes.c_char], ...]
    problem: Problem
    launch: Launch


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Route:
    """What the calls of one form have in common: the kernel, and all of its arguments but addresses.

    Attributes
    ----------
    encoders
        Of the maps of the first operand, the second and the output: from an address.
    tiles
        The most that ``offs`` can lead to.
    free
        Arguments that no launch holds.
    """

    kernel: LoadedKernel
    config: Config
    name: str
    device: torch.device
    clusters: int
    tiles: int
    encoders: tuple[Callable[[int], bytes], ...]
    constants: dict[str, int]
    free: list[_Arguments] = field(default_factory=list)

    def bind(self, a: int, b: int, out: int, offs: int) -> _Bound:
        """Return a launch over the memory at these addresses."""
        workspace, key = self._workspace()
        try:
            arguments = self.free.pop()
        except IndexError:
            arguments = self._arguments()
        for buffer, encode, address in zip(arguments.maps, self.encoders, (a, b, out), strict=True):
            buffer.raw = encode(address)
        problem = arguments.problem
        problem.out, problem.offs = out, offs
        if workspace is not None:
            problem.slots, problem.tickets = workspace.slots.data_ptr(), workspace.tickets.data_ptr()
        return _Bound(self, arguments, workspace, key)

    def _arguments(self) -> _Arguments:
        maps = tuple((ctypes.c_char * MAP_BYTES)() for _ in self.encoders)
        problem = Problem(**self.constants)
        launch = self.kernel.bind(
            *maps,
            problem,
            grid=(self.clusters * self.config.cluster_size, 1, 1),
            block=(THREADS, 1, 1),
            cluster=(self.config.cluster_size, 1, 1),
        )
        return _Arguments(maps, problem, launch)

    def _workspace(self) -> tuple[Workspace | None, _Key | None]:
        """Return a workspace, and the key under which a later call on the current stream finds it again; None: never.

        What a CUDA graph captures keeps its own, since replays go on when the bound launch is gone.
        """
        if not self.config.splits:
            return None, None
        key = None
        if self.device.type != "cuda" or not torch.cuda.is_current_stream_capturing():
            stream = torch.cuda.current_stream(self.device).cuda_stream if self.device.type == "cuda" else 0
            key = self.name, self.clusters, min(self.tiles, self.clusters), self.device.index, stream
            workspace = _FREE.pop(key, None)
            if workspace is not None:
                return workspace, key
            if len(_FREE) >= _MOST_FREE:
                _FREE.clear()
        return Workspace.of(self.config, clusters=self.clusters, tiles=self.tiles, device=self.device), key


@dataclass(frozen=True, slots=True)
class _Resident:
    """A loaded kernel.

    Attributes
    ----------
    clusters
        How many of them the device can run at once.
    pace
        int32 [clusters + 1, 2]: row C tells how far the clusters of a launch of C are; zeros between launches. Launches
        that run at once may share a row, which then misleads their waits; a row for each C, so that they leave zeros.
    """

    kernel: LoadedKernel
    clusters: int
    pace: torch.Tensor

    def pace_of(self, clusters: int) -> int:
        """Return the address of a row of ``pace``."""
        return self.pace.data_ptr() + clusters * self.pace.stride(0) * self.pace.element_size()


def prepare(
    op: Op,
    a: torch.Tensor,
    b: torch.Tensor,
    offs: torch.Tensor,
    out: torch.Tensor,
    *,
    accumulate: bool,
    num_sms: int | None = None,
    variant: Variant = "det",
    config: Config | None = None,
) -> Launch:
    """Bind a kernel to its tensors; what that returns writes ``out``.

    With a configuration that splits the tail, this takes the workspace that an earlier call on the current stream has
    left, or allocates one and zeroes there what must be zeros; a launch must come after that. With ``atomics`` these
    are all of less than C cluster tiles of fp32 for C clusters (26 MB for 132 of 256 x 192); with ``slots`` there are
    less than 2 C, of which the tickets are zeroed. The launches of one prepared call share its workspace and must run
    one after the other, on one stream or ordered by events; the results of two at once are undefined, and so is all
    that comes after. So are those after a launch that was cut off. What is returned keeps the workspace to itself; on
    another stream than the current one, or in a graph captured later, it must outlive what it has enqueued.

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
    num_sms
        Most CTAs of a launch, which occupy an SM each; at least 2. ``None``, and more than there are: one for each SM.
        The configuration does not depend on it.
    variant
        Of the configuration that is chosen.
    config
        ``None`` takes :func:`.config.choose`'s. Results of two configurations may differ in their last bits.

    Raises
    ------
    ArgumentError
        The configuration cannot load the operands of ``op``, or it places the tail by plan and the problem has more
        k-blocks than a plan counts.
    CompileError, ToolchainMissingError
        The kernel is not compiled yet and cannot be.
    DriverError
        The driver refuses something, or the kernel is not loaded yet and a CUDA graph is being captured.
    """
    route = _route(
        op,
        (a.shape, a.stride()),
        (b.shape, b.stride()),
        (out.shape, out.stride()),
        out.dtype,
        offs.shape[0],
        accumulate,
        num_sms,
        variant,
        config,
        a.device,
    )
    return route.bind(a.data_ptr(), b.data_ptr(), out.data_ptr(), offs.data_ptr())


_Form = tuple[torch.Size, tuple[int, ...]]
"""Shape and strides."""


@lru_cache(maxsize=1024)
def _route(
    op: Op,
    a: _Form,
    b: _Form,
    out: _Form,
    dtype: torch.dtype,
    E: int,
    accumulate: bool,
    num_sms: int | None,
    variant: Variant,
    config: Config | None,
    device: torch.device,
) -> _Route:
    """Choose and load the kernel of a form of calls; the arguments are those of :func:`prepare`, without addresses."""
    M = a[0][0]
    N, K = (a[0][1], b[0][1]) if op == "wgrad" else b[0][1:]
    kernel = Kernel(
        op=op,
        out_dtype=_OUT_DTYPES[dtype],
        accumulate=accumulate,
        whole_slabs=whole_slabs(op, N=N, K=K),
        config=config or choose(op, M=M, N=N, K=K, E=E, variant=variant, sms=facts(device.index).sms),
    )
    config = kernel.config
    sizes = {"M": M, "N": N, "K": K, "E": E}
    if config.tail != "plain" and config.max_k_blocks(op, **sizes) > MAX_K_BLOCKS:
        raise ArgumentError(
            f"k-blocks of all tiles must be at most {MAX_K_BLOCKS} with {config.name}, so that int32 counts them,"
            f" got up to {config.max_k_blocks(op, **sizes)}; take tail='plain' or compute fewer rows a call"
        )
    resident = _resident(kernel, device.index)
    layouts = [Layout.of(*form) for form in (a, b, out)]
    numbers = maps(kernel, a=layouts[0], b=layouts[1], out=layouts[2])
    tiles = config.max_tiles(op, **sizes)
    clusters = resident.clusters
    if num_sms is not None:
        clusters = min(clusters, num_sms // config.cluster_size)
    if not config.splits:  # else the tail may be split over more clusters than there are tiles
        clusters = min(clusters, tiles)
    return _Route(
        kernel=resident.kernel,
        config=config,
        name=config.name,
        device=device,
        clusters=clusters,
        tiles=tiles,
        encoders=(
            encoder(numbers.rows, f"the first operand of {op}"),
            encoder(numbers.cols, f"the second operand of {op}"),
            encoder(numbers.out, f"the output of {op}"),
        ),
        constants={
            "out_row_stride": layouts[2].row_stride,
            "out_expert_stride": layouts[2].stack_stride,
            "pace": resident.pace_of(clusters),
            "num_experts": E,
            "M": M,
            "N": N,
            "K": K,
        },
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
    clusters = _resident_clusters(loaded, kernel.config, device)
    pace = torch.zeros(clusters + 1, 2, dtype=torch.int32, device=torch.device("cuda", device))
    torch.cuda.current_stream(device).synchronize()  # zeros for a launch on any stream
    return _Resident(loaded, clusters, pace)


def _resident_clusters(kernel: LoadedKernel, config: Config, device: int) -> int:
    if config.cluster_size == 1:
        clusters = facts(device).sms
    else:
        clusters = kernel.max_active_clusters(cluster=(config.cluster_size, 1, 1), block=(THREADS, 1, 1))
    if clusters < 1:
        raise DriverError(f"device {device} must run at least one cluster of {kernel.name} at once, it can run none")
    return min(clusters, config.max_clusters)
