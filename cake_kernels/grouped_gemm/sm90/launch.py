"""From checked tensors to a launch: chooses and loads the kernel, encodes the tensor maps, sizes the grid.

Nothing here reads a tensor's values or waits for the device. A launch allocates nothing and may be captured in a CUDA
graph. A tile's bits depend on its rows, its expert and the configuration alone, so neither on the number of CTAs nor on
what else runs. Where the tail is split (:attr:`.Config.splits`) the bits of split tiles depend on ``offs`` and on the
number of CTAs too; with ``slots`` they are still bitwise repeatable, with ``atomics`` they may differ from run to run.
"""

from __future__ import annotations

import ctypes
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, lru_cache

import torch

from ... import jit
from ...device import current_stream, facts, made_current
from ...driver import Kernel as LoadedKernel
from ...errors import ArgumentError, DriverError
from ...registry import Launch, Op, OutDtype, Route, Variant
from .config import CONSUMERS, THREADS, Config, Kernel, chooser, whole_slabs
from .plan import MAX_K_BLOCKS, max_slots
from .tensor_maps import MAP_BYTES, Encoder, Layout, maps

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


_Kind = tuple[str, int, int, int | None]
"""What decides which workspace will do: the configuration, clusters, the most sums that they leave, the device."""

_Key = tuple[_Kind, int]

_FREE: dict[_Key, Workspace] = {}
"""Workspaces whose launch is gone, one for each kind and stream: the next call there need not zero one anew."""

_MOST_FREE = 16
"""So many free workspaces are dropped before another one is allocated; each is up to 52 MB of device memory."""


class _Bound:
    """A launch with its arguments, which it releases once it is gone.

    Attributes
    ----------
    workspace
        None if nothing is split.
    """

    __slots__ = ("_arguments", "workspace")

    def __init__(self, arguments: _Arguments) -> None:
        self._arguments, self.workspace = arguments, arguments.workspace

    def __call__(self, stream: int) -> None:
        self._arguments.launch(stream)

    def __del__(self) -> None:
        self._arguments.release()


@dataclass(slots=True, eq=False)
class _Arguments:
    """What a kernel is launched with; ``launch`` reads them anew each time, and the driver copies them then.

    Attributes
    ----------
    free
        Where they lie while no launch holds them.
    route
        That they were last written for.
    addresses, rows
        That the maps were last encoded for; 0 is no address.
    workspace
        Of the launch that holds them; None if it splits nothing.
    key
        Under which a later call finds the workspace; None: never.
    """

    maps: tuple[ctypes.Array[ctypes.c_char], ...]
    problem: Problem
    launch: Launch
    free: list[_Arguments]
    route: _Route | None = None
    addresses: tuple[int, int, int] = (0, 0, 0)
    rows: tuple[int, int, int] = (0, 0, 0)
    workspace: Workspace | None = None
    key: _Key | None = None

    def release(self, workspaces: dict[_Key, Workspace] = _FREE) -> None:  # bound here: globals may go before a launch
        """Leave them, and their workspace, to the next call."""
        if self.workspace is not None and self.key is not None:
            workspaces[self.key] = self.workspace
        self.workspace = self.key = None
        self.free.append(self)


@dataclass(slots=True, kw_only=True, eq=False)  # frozen, it would take a call with other rows longer
class _Route:
    """What the calls of one form and number of rows have in common: the kernel, and all of its arguments but addresses.

    Attributes
    ----------
    any_rows
        What does not depend on the rows.
    M
        Rows of X.
    clusters
        Of a launch.
    tiles
        The most that ``offs`` can lead to.
    rows
        Of each matrix of the first operand, the second and the output.
    splits
        The kind of workspace that each launch needs; None: tiles are not split, and it needs none.
    free
        Arguments for so many clusters that no launch holds.
    """

    any_rows: _AnyRows
    family: _Family
    M: int
    clusters: int
    tiles: int
    rows: tuple[int, int, int]
    splits: _Kind | None
    free: list[_Arguments]

    def of_rows(self, M: int) -> _Route:
        """Return the route of calls that differ from these by the number of rows alone, both at least 2."""
        return self.any_rows.route(M)

    def bind(self, a: int, b: int, offs: int, out: int) -> _Bound:
        """Return a launch over the memory at these addresses, which keeps alive its own workspace alone."""
        return _Bound(self._written(a, b, offs, out, None))

    def launch(self, a: int, b: int, offs: int, out: int, stream: int) -> None:
        """Do what :meth:`bind` returns, once."""
        arguments = self._written(a, b, offs, out, stream)
        arguments.launch(stream)
        arguments.release()

    def _written(self, a: int, b: int, offs: int, out: int, stream: int | None) -> _Arguments:
        """Return arguments over this memory, to be released after launches on ``stream``; None: which is not known.

        What fails half way is dropped: only what is whole lies free for the next call.
        """
        try:
            arguments = self.free.pop()
        except IndexError:
            arguments = self._arguments()
        addresses = (a, b, out)
        if arguments.route is not self:
            self._write_constants(arguments)
            self._write_maps(arguments, addresses)
        elif arguments.addresses != addresses:
            self._write_maps(arguments, addresses)
        problem = arguments.problem
        problem.offs, problem.out = offs, out
        if self.splits is not None:
            self._give_workspace(arguments, self.splits, stream)
        return arguments

    def _write_constants(self, arguments: _Arguments) -> None:
        """Write all but addresses; maps of another family are of no address then."""
        form, stored, problem = self.any_rows, self.family.out, arguments.problem
        problem.num_experts, problem.M, problem.N, problem.K = form.E, self.M, form.N, form.K
        problem.out_row_stride = stored.row_stride
        problem.out_expert_stride = stored.stack_stride if form.op == "wgrad" else self.M * stored.row_stride
        if arguments.route is None or arguments.route.family is not self.family:
            arguments.addresses = (0, 0, 0)
        arguments.route = self

    def _write_maps(self, arguments: _Arguments, addresses: tuple[int, int, int]) -> None:
        """Write the maps of other addresses or rows than before; that of a weight stays from call to call."""
        encoders, rows, held, held_rows = self.family.encoders, self.rows, arguments.addresses, arguments.rows
        for i in range(3):
            if addresses[i] != held[i] or rows[i] != held_rows[i]:
                arguments.maps[i].raw = encoders[i](addresses[i], rows[i])
        arguments.addresses, arguments.rows = addresses, rows

    def _arguments(self) -> _Arguments:
        maps = tuple((ctypes.c_char * MAP_BYTES)() for _ in self.family.encoders)
        resident, cluster_size = self.family.resident, self.family.config.cluster_size
        problem = Problem(pace=resident.pace_of(self.clusters))
        launch = resident.kernel.bind(
            *maps,
            problem,
            grid=(self.clusters * cluster_size, 1, 1),
            block=(THREADS, 1, 1),
            cluster=(cluster_size, 1, 1),
        )
        return _Arguments(maps, problem, launch, self.free)

    def _give_workspace(self, arguments: _Arguments, kind: _Kind, stream: int | None) -> None:
        """Give the workspace that a call on ``stream`` has left, or a new one; None: the current stream.

        What a CUDA graph captures keeps its own, since replays go on when the launch is gone.
        """
        config, device = self.family.config, self.family.device
        workspace = None
        if device.type != "cuda" or not _is_captured(device.index):
            if stream is None:
                stream = current_stream(device.index) if device.type == "cuda" else 0
            key = kind, stream
            workspace, arguments.key = _FREE.pop(key, None), key
            if workspace is None and len(_FREE) >= _MOST_FREE:
                _FREE.clear()
        if workspace is None:
            workspace = Workspace.of(config, clusters=self.clusters, tiles=self.tiles, device=device)
        arguments.workspace = workspace
        if workspace is not None:
            arguments.problem.slots = workspace.slots.data_ptr()
            arguments.problem.tickets = workspace.tickets.data_ptr()


def _is_captured(device: int) -> bool:
    """Return whether a CUDA graph captures the current stream of a device."""
    with made_current(device):
        return torch.cuda.is_current_stream_capturing()


_Form = tuple[tuple[int, ...], tuple[int, ...]]
"""Shape and strides."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _AnyRows:
    """What the calls have in common that differ by their rows and by addresses.

    Attributes
    ----------
    a, b, out
        With two rows, which stand for any number of them, or with the one number that there may be.
    num_sms
        As :func:`prepare` takes it.
    config_of
        The configuration, by M.
    families
        By configuration.
    """

    op: Op
    N: int
    K: int
    E: int
    a: _Form
    b: _Form
    out: _Form
    out_dtype: torch.dtype
    accumulate: bool
    num_sms: int | None
    device: torch.device
    config_of: Callable[[int], Config]
    families: dict[Config, _Family] = field(default_factory=dict)

    def route(self, M: int) -> _Route:
        """Return the route of the calls of ``M`` rows; the errors are those of :func:`prepare`."""
        op, N, K, E, config = self.op, self.N, self.K, self.E, self.config_of(M)
        if config.tail != "plain" and (blocks := config.max_k_blocks(op, M=M, N=N, K=K, E=E)) > MAX_K_BLOCKS:
            raise ArgumentError(
                f"k-blocks of all tiles must be at most {MAX_K_BLOCKS} with {config.name}, so that int32 counts them,"
                f" got up to {blocks}; take tail='plain' or compute fewer rows a call"
            )
        family = self.families.get(config)
        if family is None:
            family = self.families[config] = _family(
                op, self.a, self.b, self.out, self.out_dtype, self.accumulate, config, self.device
            )
        tiles = config.max_tiles(op, M=M, N=N, K=K, E=E)
        clusters = family.resident.clusters
        if self.num_sms is not None:
            clusters = min(clusters, self.num_sms // config.cluster_size)
        if not config.splits:  # else the tail may be split over more clusters than there are tiles
            clusters = min(clusters, tiles)
        return _Route(
            any_rows=self,
            family=family,
            M=M,
            clusters=clusters,
            tiles=tiles,
            rows=(M, M, N) if op == "wgrad" else (M, N, M),
            splits=(family.name, clusters, min(tiles, clusters), self.device.index) if config.splits else None,
            free=family.resident.free[clusters],
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Family:
    """What those of :class:`_AnyRows` have in common that have one configuration.

    Attributes
    ----------
    name
        Of the configuration.
    device
        Of the tensors.
    encoders
        Of the maps of the first operand, the second and the output.
    out
        The layout of the output, with any number of rows.
    """

    resident: _Resident
    config: Config
    name: str
    device: torch.device
    encoders: tuple[Encoder, Encoder, Encoder]
    out: Layout


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
    free
        Of each number of clusters, the arguments that no launch holds.
    """

    kernel: LoadedKernel
    clusters: int
    pace: torch.Tensor
    free: defaultdict[int, list[_Arguments]] = field(default_factory=lambda: defaultdict(list))

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
    found = route(op, a, b, offs, out, accumulate=accumulate, num_sms=num_sms, variant=variant, config=config)
    return found.bind(a.data_ptr(), b.data_ptr(), offs.data_ptr(), out.data_ptr())


def route(
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
) -> Route:
    """Choose and load the kernel of a form of calls; the arguments and the errors are those of :func:`prepare`."""
    M, E = a.shape[0], offs.shape[0]
    N, K = (a.shape[1], b.shape[1]) if op == "wgrad" else b.shape[1:]
    few = min(M, 2)  # two rows stand for any number of them; the stride of one row means nothing
    any_rows = _AnyRows(
        op=op,
        N=N,
        K=K,
        E=E,
        a=((few, a.shape[1]), a.stride()),
        b=((few, K) if op == "wgrad" else (E, N, K), b.stride()),
        out=((E, N, K) if op == "wgrad" else (few, out.shape[1]), out.stride()),
        out_dtype=out.dtype,
        accumulate=accumulate,
        num_sms=num_sms,
        device=a.device,
        config_of=(
            chooser(op, N=N, K=K, E=E, variant=variant, sms=facts(a.device.index).sms)
            if config is None
            else lambda _M: config
        ),
    )
    return any_rows.route(M)


@lru_cache(maxsize=1024)
def _family(
    op: Op,
    a: _Form,
    b: _Form,
    out: _Form,
    dtype: torch.dtype,
    accumulate: bool,
    config: Config,
    device: torch.device,
) -> _Family:
    """Load a kernel and make the encoders of its maps."""
    N, K = (a[0][1], b[0][1]) if op == "wgrad" else b[0][1:]
    kernel = Kernel(
        op=op,
        out_dtype=_OUT_DTYPES[dtype],
        accumulate=accumulate,
        whole_slabs=whole_slabs(op, N=N, K=K),
        config=config,
    )
    resident = _resident(kernel, device.index)
    stored = Layout.of(*out)
    numbers = maps(kernel, a=Layout.of(*a), b=Layout.of(*b), out=stored)
    return _Family(
        resident=resident,
        config=config,
        name=config.name,
        device=device,
        encoders=(
            Encoder(numbers.rows, f"the first operand of {op}", device=device.index),
            Encoder(numbers.cols, f"the second operand of {op}", device=device.index),
            Encoder(numbers.out, f"the output of {op}", device=device.index),
        ),
        out=stored,
    )


@cache
def _resident(kernel: Kernel, device: int) -> _Resident:
    if _is_captured(device):
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
