import ctypes
import gc
import struct
import weakref
from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import pytest
import torch

from cake_kernels import registry
from cake_kernels.errors import ArgumentError, DriverError
from cake_kernels.grouped_gemm.call import MIN_SMS
from cake_kernels.grouped_gemm.sm90 import launch
from cake_kernels.grouped_gemm.sm90.config import NARROW, Kernel, kernels

from .sm90_configs import NARROW_PAIR, STRAIGHT_PAIR

M, N, K, E = 1000, 512, 320, 5


class FakeKernel:
    """Remembers what it was bound to."""

    bound = 0

    def bind(self, *arguments, grid, block, cluster):
        self.bound += 1
        self.problem = arguments[3]
        self.maps = arguments[:3]
        self.shape = (grid, block, cluster)
        return the_launch

    @property
    def mapped(self):
        """The addresses in the maps."""
        return [address for address, _ in map(unpacked, self.maps)]


def unpacked(encoded):
    """The address and the rows of a map."""
    return struct.unpack("<QQ112x", encoded)


def the_launch(stream):
    """Do nothing, and leave a note."""
    LAUNCHED.append(stream)


LAUNCHED = []
PACE = torch.zeros(67, 2, dtype=torch.int32)


@pytest.fixture
def loaded(monkeypatch):
    """The kernels that were asked for, with 66 clusters resident; a map is its address and its rows."""
    asked = []

    def resident(kernel, device):
        asked.append(SimpleNamespace(kernel=kernel, device=device, fake=FakeKernel()))
        return launch._Resident(asked[-1].fake, 66, PACE)

    def encoder(numbers, what, *, device):
        return lambda address, rows: struct.pack("<QQ112x", address, rows)

    monkeypatch.setattr(launch, "_resident", resident)
    monkeypatch.setattr(launch, "Encoder", encoder)
    monkeypatch.setattr(launch, "facts", lambda index: SimpleNamespace(sms=132))
    launch._family.cache_clear()
    launch._FREE.clear()
    yield asked
    launch._family.cache_clear()
    launch._FREE.clear()


def operands(op):
    x, g, w = (torch.empty(shape, dtype=torch.bfloat16) for shape in ((M, K), (M, N), (E, N, K)))
    return {"fwd": (x, w, g.clone()), "dgrad": (g, w, x.clone()), "wgrad": (g, x, w.clone())}[op]


OFFS = torch.tensor([10, 20, 30, 40, 990], dtype=torch.int32)


@pytest.mark.parametrize("op", ["fwd", "dgrad", "wgrad"])
def test_the_kernel_is_told_sizes_addresses_and_strides(loaded, op):
    a, b, out = operands(op)

    made = launch.prepare(op, a, b, OFFS, out, accumulate=False)

    assert loaded[0].device is None  # operands of a CPU
    p = loaded[0].fake.problem
    if op == "wgrad":
        assert (p.slots, p.tickets) == (made.workspace.slots.data_ptr(), made.workspace.tickets.data_ptr())
    else:
        assert made.workspace is None
        assert (p.slots, p.tickets) == (None, None)
    assert (p.M, p.N, p.K, p.num_experts) == (M, N, K, E)
    assert (p.offs, p.out) == (OFFS.data_ptr(), out.data_ptr())
    assert (p.out_row_stride, p.out_expert_stride) == (out.stride(-2), out.stride(0) if op == "wgrad" else out.numel())
    assert loaded[0].fake.mapped == [t.data_ptr() for t in (a, b, out)]
    made(7)
    assert LAUNCHED[-1] == 7


@pytest.mark.parametrize("op", ["fwd", "wgrad"])
def test_the_next_call_of_a_form_takes_over_the_arguments_of_one_that_is_gone_and_of_no_other(loaded, op):
    (a, b, out), (a2, b2, out2) = operands(op), operands(op)
    offs = OFFS.clone()

    launch.prepare(op, a, b, OFFS, out, accumulate=False)
    alive = launch.prepare(op, a2, b2, offs, out2, accumulate=False)

    fake = loaded[0].fake
    assert (len(loaded), fake.bound) == (1, 1)
    assert fake.mapped == [t.data_ptr() for t in (a2, b2, out2)]
    assert (fake.problem.offs, fake.problem.out) == (offs.data_ptr(), out2.data_ptr())
    launch.prepare(op, a, b, OFFS, out, accumulate=False)
    assert fake.bound == 2
    assert alive._arguments.problem.out == out2.data_ptr()


def test_calls_that_differ_by_their_rows_share_arguments_which_are_written_for_each(loaded):
    x, w, y = operands("fwd")

    for rows, clusters in ((1000, 18), (7, 12), (1000, 18), (990, 18), (7, 12)):
        out = y[:rows]  # at one address
        made = launch.prepare("fwd", x[:rows], w, OFFS, out, accumulate=False, config=NARROW_PAIR)

        p = made._arguments.problem
        assert list(map(unpacked, made._arguments.maps)) == [
            (x.data_ptr(), rows),
            (w.data_ptr(), N),
            (out.data_ptr(), rows),
        ]
        assert (p.M, p.N, p.K, p.out, p.out_expert_stride) == (rows, N, K, out.data_ptr(), out.numel())
        assert p.pace == PACE[clusters].data_ptr()
        del made

    assert (len(loaded), loaded[0].fake.bound) == (1, 2)  # of 12 clusters and of 18


def addresses(*tensors):
    return [tensor.data_ptr() for tensor in tensors]


@pytest.mark.parametrize("op", ["fwd", "wgrad"])
def test_a_launch_of_once_is_on_its_stream_with_its_addresses_and_leaves_its_arguments_to_the_next(loaded, op):
    (a, b, out), (a2, b2, out2) = operands(op), operands(op)
    offs = OFFS.clone()
    route = launch.route(op, a, b, OFFS, out, accumulate=False)

    route.launch(*addresses(a, b, OFFS, out), 8)
    route.launch(*addresses(a2, b2, offs, out2), 9)

    fake = loaded[0].fake
    assert LAUNCHED[-2:] == [8, 9]
    assert fake.bound == 1
    assert fake.mapped == addresses(a2, b2, out2)
    assert (fake.problem.offs, fake.problem.out) == (offs.data_ptr(), out2.data_ptr())


def test_launches_of_once_share_the_workspace_of_their_stream_and_of_no_other(loaded):
    a, b, out = operands("wgrad")
    route = launch.route("wgrad", a, b, OFFS, out, accumulate=False)
    bound = route.bind(*addresses(a, b, OFFS, out))

    def slots(stream):
        route.launch(*addresses(a, b, OFFS, out), stream)
        return loaded[0].fake.problem.slots

    given = [slots(stream) for stream in (8, 9, 8, 9)]

    assert given[:2] == given[2:]
    assert len({*given, bound.workspace.slots.data_ptr()}) == 3


@pytest.fixture
def encoded(loaded, monkeypatch):
    """The addresses and the rows that maps were encoded for, in order."""
    asked = []
    monkeypatch.setattr(
        launch,
        "Encoder",
        lambda numbers, what, *, device: lambda *given: asked.append(given) or struct.pack("<QQ112x", *given),
    )
    return asked


def test_only_maps_of_other_memory_or_other_rows_are_written(loaded, encoded):
    (x, w, y), (x2, _, y2) = operands("fwd"), operands("fwd")
    route = launch.route("fwd", x, w, OFFS, y, accumulate=False, config=NARROW_PAIR)
    routes = {M: route, 990: route.of_rows(990)}

    def written(x, y, rows=M):
        encoded.clear()
        routes[rows].launch(*addresses(x, w, OFFS, y), 0)
        return encoded[:]

    assert written(x, y) == [(x.data_ptr(), M), (w.data_ptr(), N), (y.data_ptr(), M)]
    assert written(x, y) == []
    assert written(x2, y2) == [(x2.data_ptr(), M), (y2.data_ptr(), M)]
    assert written(x, y2) == [(x.data_ptr(), M)]
    assert written(x, y2, rows=990) == [(x.data_ptr(), 990), (y2.data_ptr(), 990)]
    assert written(x, y) == [(x.data_ptr(), M), (y.data_ptr(), M)]
    assert loaded[0].fake.bound == 1


def test_calls_of_one_kernel_share_arguments_which_are_written_for_each(loaded, encoded, monkeypatch):
    monkeypatch.setattr(launch, "_resident", cache(launch._resident))

    def route(M, N, K, E, pad):
        x, w, y = (torch.empty(size, dtype=torch.bfloat16) for size in ((M, K), (E, N, K), (M, N + pad)))
        y, offs = y[:, :N], torch.zeros(E, dtype=torch.int32)
        return launch.route("fwd", x, w, offs, y, accumulate=False, num_sms=2, config=NARROW_PAIR)

    forms = ((M, N, K, E, 0), (M, N, K, E, 8), (M, N, K, 2, 0), (M, 1024, K, E, 0), (M, N, 64, E, 0), (8, N, K, E, 0))
    routes = {form: route(*form) for form in forms}

    for form in (*forms, *reversed(forms)):
        rows, n, k, experts, pad = form
        encoded.clear()
        routes[form].launch(16, 32, 48, 64, 0)

        p = loaded[0].fake.problem
        assert (p.num_experts, p.M, p.N, p.K) == (experts, rows, n, k)
        assert (p.out_row_stride, p.out_expert_stride) == (n + pad, rows * (n + pad))
        assert list(map(unpacked, loaded[0].fake.maps)) == [(16, rows), (32, n), (64, rows)]
    assert (len(loaded), loaded[0].fake.bound) == (1, 1)


@pytest.mark.parametrize("fails", ["map", "launch"])
def test_arguments_of_a_call_that_failed_are_given_to_no_other(loaded, encoded, monkeypatch, fails):
    x, w, y = operands("fwd")
    route = launch.route("fwd", x, w, OFFS, y, accumulate=False, config=NARROW_PAIR)
    (x2, _, y2), good = operands("fwd"), struct.pack

    def refuse(*given):
        raise DriverError("refused")

    route.launch(*addresses(x, w, OFFS, y), 0)
    with monkeypatch.context() as broken:
        if fails == "map":
            broken.setattr(
                struct, "pack", lambda form, at, rows: refuse() if at == y2.data_ptr() else good(form, at, rows)
            )
        else:
            (arguments,) = route.free
            broken.setattr(arguments, "launch", refuse)
        with pytest.raises(DriverError, match="refused"):
            route.launch(*addresses(x2, w, OFFS, y2), 0)
    assert route.free == []

    route.launch(*addresses(x2, w, OFFS, y2), 0)
    assert loaded[0].fake.bound == 2
    assert loaded[0].fake.mapped == addresses(x2, w, y2)


def test_calls_of_one_kernel_and_other_strides_share_arguments_but_no_map(loaded, encoded, monkeypatch):
    monkeypatch.setattr(launch, "_resident", cache(launch._resident))
    x, w, y = operands("fwd")
    wide = torch.empty(M, 2 * K, dtype=torch.bfloat16)[:, :K]
    packed, padded = (launch.route("fwd", a, w, OFFS, y, accumulate=False, config=NARROW_PAIR) for a in (x, wide))
    whole = [(x.data_ptr(), M), (w.data_ptr(), N), (y.data_ptr(), M)]

    for route in (packed, padded, packed):
        encoded.clear()
        route.launch(*addresses(x, w, OFFS, y), 0)

        assert encoded == whole
    assert (len(loaded), loaded[0].fake.bound) == (1, 1)


@pytest.mark.parametrize("op", ["fwd", "dgrad", "wgrad"])
@pytest.mark.parametrize("num_sms", [None, 20])
def test_the_route_of_other_rows_is_the_one_that_their_tensors_would_have_had(loaded, op, num_sms):
    of_many = dict(zip("abo", operands(op), strict=True))

    def cut(rows):
        return [t[:rows] if t.ndim == 2 else t for t in of_many.values()]

    def routed(rows):
        a, b, out = cut(rows)
        return launch.route(op, a, b, OFFS, out, accumulate=False, num_sms=num_sms)

    def bound(route, rows):
        a, b, out = cut(rows)
        made = route.bind(*addresses(a, b, OFFS, out))
        p = made._arguments.problem
        numbers = [getattr(p, name) for name, _ in p._fields_ if name not in ("slots", "tickets")]
        return list(map(unpacked, made._arguments.maps)), numbers, loaded[-1].fake.shape

    first = routed(M)
    for rows in (2, 97, 300, 500, 999):
        found, made = first.of_rows(rows), routed(rows)

        assert bound(found, rows) == bound(made, rows)
        assert found.family is made.family


def test_what_other_rows_have_no_part_in_is_settled_once(loaded, monkeypatch):
    made, chooser = [], launch.chooser
    monkeypatch.setattr(launch, "chooser", lambda op, **sizes: made.append(sizes) or chooser(op, **sizes))
    x, w, y = operands("fwd")
    route = launch.route("fwd", x, w, OFFS, y, accumulate=False)
    settled = launch._family.cache_info()

    configs = {route.of_rows(rows).family.config for rows in range(2, M)}

    assert made == [{"N": N, "K": K, "E": E, "variant": "det", "sms": 132}]
    assert len(loaded) == len(configs) == launch._family.cache_info().misses > 1
    assert launch._family.cache_info().hits == settled.hits


@pytest.mark.parametrize("op", ["fwd", "dgrad", "wgrad"])
def test_the_strides_of_one_row_are_no_strides_of_more(loaded, op):
    a, b, out = operands(op)
    one = [t[:1].as_strided((1, t.shape[1]), (2 * t.shape[1], 1)) if t.ndim == 2 else t for t in (a, b, out)]
    wide = [torch.empty(M, 2 * t.shape[1], dtype=t.dtype)[:, : t.shape[1]] if t.ndim == 2 else t for t in (a, b, out)]

    launch.prepare(op, one[0], one[1], OFFS, one[2], accumulate=False, config=STRAIGHT_PAIR)
    launch.prepare(op, wide[0], wide[1], OFFS, wide[2], accumulate=False, config=STRAIGHT_PAIR)

    assert len(loaded) == 2
    assert loaded[1].fake.problem.out_row_stride == wide[2].stride(-2)


def test_another_shape_stride_or_type_is_another_family_and_other_rows_are_not(loaded):
    a, b, out = operands("wgrad")
    wider = torch.empty(M, K + 8, dtype=torch.bfloat16)[:, :K]

    launch.prepare("wgrad", a, b, OFFS, out, accumulate=False)
    launch.prepare("wgrad", a, wider, OFFS, out, accumulate=False)
    launch.prepare("wgrad", a, b, OFFS, out.float(), accumulate=False)
    launch.prepare("wgrad", a, b, OFFS, out, accumulate=False, variant="nondet")
    launch.prepare("wgrad", a[:900], b[:900], OFFS, out, accumulate=False)

    assert len(loaded) == launch._family.cache_info().misses == 4


def test_the_struct_is_laid_out_as_the_device_has_it():
    offsets = {name: getattr(launch.Problem, name).offset for name, _ in launch.Problem._fields_}

    assert list(offsets.values()) == [0, 8, 16, 24, 32, 40, 48, 56, 60, 64, 68]
    assert ctypes.sizeof(launch.Problem) == 72


@pytest.mark.parametrize(
    ("op", "config", "clusters"),
    [
        ("fwd", NARROW_PAIR, 18),  # at most 3 + 5 + 1 rows of 256 by 2 columns of 256
        ("wgrad", NARROW_PAIR, 20),  # 5 experts of 2 x 2
        ("wgrad", STRAIGHT_PAIR, 10),  # 5 experts of 2 x 1
    ],
)
def test_no_more_clusters_are_launched_than_there_can_be_tiles(loaded, op, config, clusters):
    a, b, out = operands(op)

    launch.prepare(op, a, b, OFFS, out, accumulate=False, config=config)

    assert loaded[0].kernel.config == config
    assert loaded[0].fake.shape == ((2 * clusters, 1, 1), (384, 1, 1), (2, 1, 1))
    assert loaded[0].fake.problem.pace == PACE[clusters].data_ptr()


def test_no_more_clusters_are_launched_than_are_resident(loaded):
    x = torch.empty(1, 8, dtype=torch.bfloat16).expand(40_000, 8)
    w, out = torch.empty(1, 512, 8, dtype=torch.bfloat16), torch.empty(40_000, 512, dtype=torch.bfloat16)

    launch.prepare("fwd", x, w, OFFS[:1], out, accumulate=False, config=NARROW_PAIR)

    assert loaded[0].fake.shape[0] == (132, 1, 1)


@pytest.mark.parametrize(
    ("config", "num_sms", "ctas"),
    [
        *((NARROW_PAIR, *one) for one in ((2, 2), (3, 2), (37, 36), (100, 100), (132, 132), (1000, 132), (None, 132))),
        *((NARROW, *one) for one in ((2, 2), (3, 3), (37, 37), (66, 66), (67, 66), (None, 66))),
    ],
)
def test_a_launch_has_at_most_num_sms_ctas_in_whole_clusters(loaded, config, num_sms, ctas):
    x = torch.empty(1, 8, dtype=torch.bfloat16).expand(40_000, 8)
    w, out = torch.empty(1, 512, 8, dtype=torch.bfloat16), torch.empty(40_000, 512, dtype=torch.bfloat16)

    launch.prepare("fwd", x, w, OFFS[:1], out, accumulate=False, num_sms=num_sms, config=config)

    fake = loaded[0].fake
    assert fake.shape == ((ctas, 1, 1), (384, 1, 1), (config.cluster_size, 1, 1))
    assert fake.problem.pace == PACE[ctas // config.cluster_size].data_ptr()


@pytest.mark.parametrize(("num_sms", "ctas"), [(20, 20), (100, 36)])
def test_num_sms_launches_no_more_clusters_than_there_can_be_tiles(loaded, num_sms, ctas):
    a, b, out = operands("fwd")

    launch.prepare("fwd", a, b, OFFS, out, accumulate=False, num_sms=num_sms, config=NARROW_PAIR)

    assert loaded[0].fake.shape[0] == (ctas, 1, 1)


@pytest.mark.parametrize("op", ["fwd", "dgrad", "wgrad"])
def test_every_num_sms_has_the_same_kernel(loaded, op):
    a, b, out = operands(op)

    for num_sms in (None, 2, 20, 1000, 2, None):
        launch.prepare(op, a, b, OFFS, out, accumulate=False, num_sms=num_sms)

    assert len(loaded) == 1


@pytest.mark.parametrize(("num_sms", "sums"), [(2, 0), (4, 2), (20, 18), (40, 29), (None, 75)])
def test_the_workspace_is_sized_by_the_clusters_that_num_sms_leaves(loaded, num_sms, sums):
    a, b, out = operands("wgrad")
    config = replace(STRAIGHT_PAIR, tail="slots")

    made = launch.prepare("wgrad", a, b, OFFS, out, accumulate=False, num_sms=num_sms, config=config)

    # C clusters and ten tiles: min(10, C - 1) + C - 1 partial sums.
    assert made.workspace.slots.shape == (sums, 2, 2, 128 * 192)
    assert made.workspace.tickets.shape == (sums, 2, 2)


def test_a_call_takes_no_workspace_that_was_left_by_another_number_of_clusters(loaded):
    a, b, out = operands("wgrad")
    config = replace(STRAIGHT_PAIR, tail="slots")

    def workspace(num_sms):
        return launch.prepare("wgrad", a, b, OFFS, out, accumulate=False, num_sms=num_sms, config=config).workspace

    whole, part = workspace(None), workspace(20)

    assert part is not whole
    assert workspace(None) is whole
    assert workspace(1000) is whole
    assert workspace(20) is workspace(21) is part


def test_a_call_takes_no_workspace_that_was_left_by_one_of_fewer_tiles(loaded):
    a, b, out = operands("wgrad")
    config = replace(STRAIGHT_PAIR, tail="slots")

    few, many = (
        launch.prepare("wgrad", a[:, :n], b, OFFS, out[:, :n].clone(), accumulate=False, config=config).workspace
        for n in (N // 2, N)
    )

    assert len(few.slots) < len(many.slots)


def test_so_many_workspaces_lie_free_and_no_more_and_those_in_use_are_none_of_them(loaded):
    a, b, out = operands("wgrad")
    config = replace(STRAIGHT_PAIR, tail="slots")

    def prepared(num_sms):
        return launch.prepare("wgrad", a, b, OFFS, out, accumulate=False, num_sms=num_sms, config=config)

    alive = prepared(100)
    kept = alive.workspace
    free = []
    for num_sms in range(4, 72, 2):
        prepared(num_sms)
        free.append(len(launch._FREE))

    assert max(free) == launch._MOST_FREE
    assert alive.workspace is kept
    last = prepared(70).workspace
    assert prepared(70).workspace is last


@pytest.mark.parametrize(("tail", "clusters"), [("plain", 10), ("whole", 10), ("slots", 66), ("atomics", 66)])
def test_a_tail_may_be_split_over_more_clusters_than_there_are_tiles(loaded, tail, clusters):
    a, b, out = operands("wgrad")

    launch.prepare("wgrad", a, b, OFFS, out, accumulate=False, config=replace(STRAIGHT_PAIR, tail=tail))

    assert loaded[0].fake.shape[0] == (2 * clusters, 1, 1)


def test_a_launch_that_may_split_has_a_workspace_as_long_as_it_lives(loaded):
    a, b, out = operands("wgrad")
    made = launch.prepare("wgrad", a, b, OFFS, out, accumulate=False, config=replace(STRAIGHT_PAIR, tail="slots"))
    workspace, p = made.workspace, loaded[0].fake.problem

    made(7)

    assert LAUNCHED[-1] == 7
    # Ten tiles and 66 clusters: 10 + 65 partial sums of two CTAs' two consumers.
    assert (workspace.slots.shape, workspace.slots.dtype) == ((75, 2, 2, 128 * 192), torch.float32)
    assert (workspace.tickets.shape, workspace.tickets.dtype) == ((75, 2, 2), torch.int32)
    assert not workspace.tickets.any()
    assert (p.slots, p.tickets) == (workspace.slots.data_ptr(), workspace.tickets.data_ptr())
    slots = weakref.ref(workspace.slots)
    del workspace
    gc.collect()
    assert slots() is not None


def test_a_call_takes_the_workspace_that_the_last_one_has_left_and_none_that_is_in_use(loaded):
    a, b, out = operands("wgrad")

    def prepared(tail="slots"):
        return launch.prepare("wgrad", a, b, OFFS, out, accumulate=False, config=replace(STRAIGHT_PAIR, tail=tail))

    one, other = prepared(), prepared()
    first, second = one.workspace, other.workspace
    assert first.slots.data_ptr() != second.slots.data_ptr()

    del one
    gc.collect()

    assert prepared("atomics").workspace is not first
    again = prepared()
    assert again.workspace is first
    third = prepared().workspace
    assert third is not first
    assert third is not second


@pytest.mark.parametrize(("clusters", "sums"), [(66, 10), (10, 9), (1, 0)])
def test_a_launch_that_may_add_has_a_zeroed_sum_for_each_tile_of_its_tail(clusters, sums):
    config = replace(STRAIGHT_PAIR, tail="atomics")

    workspace = launch.Workspace.of(config, clusters=clusters, tiles=10, device=torch.device("cpu"))

    assert (workspace.slots.shape, workspace.slots.dtype) == ((sums, 2, 2, 128 * 192), torch.float32)
    assert (workspace.tickets.shape, workspace.tickets.dtype) == ((sums, 2, 2), torch.int32)
    assert not workspace.slots.any()
    assert not workspace.tickets.any()


@pytest.mark.parametrize("tail", ["slots", "atomics"])
def test_every_prepared_call_has_its_own_workspace(loaded, tail):
    a, b, out = operands("wgrad")
    config = replace(STRAIGHT_PAIR, tail=tail)

    one, other = (launch.prepare("wgrad", a, b, OFFS, out, accumulate=False, config=config) for _ in range(2))

    assert one.workspace.tickets.data_ptr() != other.workspace.tickets.data_ptr()
    assert one.workspace.slots.data_ptr() != other.workspace.slots.data_ptr()


@pytest.mark.parametrize("tail", ["whole", "slots", "atomics"])
def test_more_k_blocks_than_a_plan_counts_are_refused(loaded, tail):
    rows = 2**30
    g, x = (torch.empty(1, 1, dtype=torch.bfloat16).expand(rows, size) for size in (512, 16384))
    out = torch.empty(1, dtype=torch.bfloat16).expand(1, 512, 16384)

    with pytest.raises(ArgumentError) as caught:
        launch.prepare("wgrad", g, x, OFFS[:1], out, accumulate=False, config=replace(STRAIGHT_PAIR, tail=tail))

    assert str(caught.value) == (
        f"k-blocks of all tiles must be at most 1073741824 with 256x192_c1x2_s3_b8_l16_{tail}, so that int32 counts"
        " them, got up to 1442840662; take tail='plain' or compute fewer rows a call"
    )


def test_more_k_blocks_than_a_plan_counts_are_refused_of_other_rows_too(loaded):
    g, x, w = operands("wgrad")
    route = launch.route("wgrad", g, x, OFFS, w, accumulate=False)

    with pytest.raises(ArgumentError, match="k-blocks of all tiles must be at most 1073741824 .*, got up to"):
        route.of_rows(2**33)
    assert len(loaded) == 1


def test_accumulation_and_the_output_type_are_parts_of_the_kernel(loaded):
    a, b, out = operands("wgrad")

    launch.prepare("wgrad", a, b, OFFS, out.float(), accumulate=True)

    assert (loaded[0].kernel.out_dtype, loaded[0].kernel.accumulate) == ("fp32", True)


def test_a_kernel_is_not_loaded_while_a_graph_is_captured(monkeypatch):
    monkeypatch.setattr(launch, "_is_captured", lambda device: device == 1)
    kernel = Kernel(op="fwd", out_dtype="bf16", accumulate=False, whole_slabs=True, config=NARROW_PAIR)

    with pytest.raises(DriverError) as caught:
        launch._resident(kernel, 1)

    assert str(caught.value) == (
        "fwd_det_sm90a_128x256_c2x1_s3_b8_l16 must be loaded before a CUDA graph is captured, since loading is no part"
        " of a graph; make the same call once before the capture"
    )


@pytest.mark.parametrize("program", registry.programs(), ids=lambda program: program.stem)
def test_each_program_lists_the_kernels_of_its_stem_or_of_the_deterministic_one(program):
    builds = program.builds()
    symbol = program.stem if program.op == "wgrad" else program.stem.replace("nondet", "det")

    assert builds
    assert {build.symbol for build in builds} == {symbol}
    assert all(build.source.is_file() and build.name.startswith(symbol) for build in builds)


@pytest.mark.parametrize("program", registry.programs(), ids=lambda program: program.stem)
def test_each_program_launches_a_kernel_that_it_lists(loaded, program):
    a, b, out = operands(program.op)
    out = out.float() if program.out_dtype == "fp32" else out

    program.route(a, b, OFFS, out, accumulate=program.op == "wgrad", num_sms=None)

    assert loaded[0].kernel.build in program.builds()


@pytest.mark.parametrize("program", registry.programs(), ids=lambda program: program.stem)
def test_the_fewest_sms_that_a_call_may_be_given_run_a_cluster_of_each_kernel(loaded, program):
    a, b, out = operands(program.op)
    out = out.float() if program.out_dtype == "fp32" else out

    program.route(a, b, OFFS, out, accumulate=False, num_sms=MIN_SMS).bind(16, 32, 48, 64)

    assert loaded[0].fake.shape[0] == (MIN_SMS, 1, 1)
    assert max(kernel.config.cluster_size for kernel in kernels(program.op, program.out_dtype, program.variant)) <= 2
