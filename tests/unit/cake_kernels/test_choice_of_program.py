"""Which program a CUDA call reaches, and with what.

Fake tensors carry a CUDA device's name without the device or values. Where addresses and strides matter, a CPU tensor
says that it is on a CUDA device.
"""

from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from cake_kernels import grouped_gemm, registry
from cake_kernels.device import DeviceFacts
from cake_kernels.errors import ArgumentError, NondeterministicError, NoProgramError
from cake_kernels.grouped_gemm import call as call_module
from cake_kernels.grouped_gemm import prepared as prepared_module
from cake_kernels.registry import Problem, Program

BF16 = torch.bfloat16
STREAM = 77
REFERENCE = "the executable contract, slow and on any device, is cake_kernels.grouped_gemm.reference"


class OnCuda(torch.Tensor):
    """A CPU tensor that says it is on another device; its address and strides are real."""

    @property
    def device(self):
        return torch.device("cuda", 1)


def on_cuda(*size, dtype=BF16, begin=0):
    """Zeros that begin ``begin`` elements into a buffer that is aligned."""
    buffer = torch.zeros(begin + torch.Size(size).numel(), dtype=dtype)
    return buffer[begin:].view(size).as_subclass(OnCuda)


class Recorder:
    """A machine of one kind of GPU; its programs compute nothing and say what they are asked and given."""

    def __init__(self):
        self.current_device, self.problems, self.routed, self.bound, self.launched = 0, [], [], [], []
        self.derived = []

    def program(self, op, *, out_dtype="bf16", variant="det", refusal=None):
        def refuse(problem):
            self.problems.append(problem)
            return refusal

        def route(a, b, offs, out, *, accumulate, num_sms):
            given = SimpleNamespace(a=a, b=b, offs=offs, out=out, accumulate=accumulate, num_sms=num_sms)
            given.device = self.current_device
            self.routed.append(given)
            return route_of_rows(a.shape[0])

        def route_of_rows(rows):
            def of_rows(others):
                self.derived.append((rows, others))
                return route_of_rows(others)

            return SimpleNamespace(bind=bind, launch=lambda *given: bind(*given[:4])(*given[4:]), of_rows=of_rows)

        def bind(*addresses):
            self.bound.append(addresses)
            return self.launched.append

        return Program(
            stem=f"{op}_{variant}",
            op=op,
            variant=variant,
            arch="sm_90a",
            out_dtype=out_dtype,
            refuse=refuse,
            route=route,
            builds=tuple,
        )

    @contextmanager
    def guard(self, device):
        before, self.current_device = self.current_device, device
        yield
        self.current_device = before


@pytest.fixture
def gpu(monkeypatch):
    facts = DeviceFacts(name="fake", arch="sm_90a", sms=132, l2_bytes=1, smem_bytes=1)
    recorder = Recorder()
    monkeypatch.setattr(call_module, "facts", lambda index: facts)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: STREAM + device, raising=False)
    monkeypatch.setattr(torch.cuda, "device", recorder.guard)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: recorder.current_device)
    prepared_module._programs.cache_clear()
    yield recorder
    prepared_module._programs.cache_clear()


def has(monkeypatch, *programs):
    monkeypatch.setattr(registry, "programs", lambda: programs)


@pytest.fixture
def known(monkeypatch):
    """Forms of tensors that say they are on a CUDA device are kept, none but these."""
    monkeypatch.setattr(call_module, "_PLAIN", {OnCuda})
    monkeypatch.setattr(call_module, "_FORMS", {})


def fake_operands():
    return {
        "x": torch.empty(6, 8, dtype=BF16, device="cuda:0"),
        "g": torch.empty(6, 16, dtype=BF16, device="cuda:0"),
        "w": torch.empty(2, 16, 8, dtype=BF16, device="cuda:0"),
        "offs": torch.empty(2, dtype=torch.int32, device="cuda:0"),
    }


@pytest.mark.parametrize(
    ("function", "operands", "options", "asked"),
    [
        ("forward", "xw", {}, "fwd (det, bf16 out)"),
        ("dgrad", "gw", {"deterministic": False}, "dgrad (nondet, bf16 out)"),
        ("wgrad", "gx", {"out_dtype": torch.float32}, "wgrad (det, fp32 out)"),
        ("prepare_forward", "xw", {}, "fwd (det, bf16 out)"),
    ],
)
def test_on_cuda_without_a_program_the_call_is_an_error_not_the_reference(
    gpu, monkeypatch, function, operands, options, asked
):
    has(monkeypatch)
    with FakeTensorMode():
        given = fake_operands()
    a, b = (given[name] for name in operands)

    with pytest.raises(NoProgramError) as caught:
        getattr(grouped_gemm, function)(a, b, given["offs"], **options)

    assert str(caught.value) == f"no program for {asked} on sm_90a: this version of cake_kernels has none; {REFERENCE}"


@pytest.mark.parametrize("rows", [0, 6])
def test_what_a_program_refuses_is_an_error_with_its_reason_whatever_the_rows(gpu, monkeypatch, rows):
    has(monkeypatch, gpu.program("fwd", refusal="needs N a multiple of 8, got 15"))

    with pytest.raises(NoProgramError) as caught:
        grouped_gemm.forward(on_cuda(rows, 9), on_cuda(2, 15, 9), on_cuda(2, dtype=torch.int32))

    assert str(caught.value) == (
        f"no program for fwd (det, bf16 out) on sm_90a: fwd_det needs N a multiple of 8, got 15; {REFERENCE}"
    )


def test_a_new_output_is_on_the_device_of_the_operands_and_contiguous():
    with FakeTensorMode():
        given = fake_operands()
        g, x, offs = given["g"], given["x"], given["offs"]
        out = call_module.wgrad_call(g, x, offs, None, None, out_dtype=torch.float32, accumulate=False).output()

    assert (out.dtype, tuple(out.shape), out.device.type) == (torch.float32, (2, 16, 8), "cuda")
    assert out.is_contiguous()


def test_the_program_gets_the_checked_tensors_on_their_device_and_launches_on_its_stream(gpu, monkeypatch):
    has(monkeypatch, gpu.program("wgrad"))
    g, x, offs, out = on_cuda(6, 16), on_cuda(6, 8), on_cuda(2, dtype=torch.int32), on_cuda(2, 16, 8)

    returned = grouped_gemm.wgrad(g, x, offs, out=out, accumulate=True)

    (given,) = gpu.routed
    assert returned is out
    assert [id(t) for t in (given.a, given.b, given.offs, given.out)] == [id(t) for t in (g, x, offs, out)]
    assert gpu.bound == [tuple(t.data_ptr() for t in (g, x, offs, out))]
    assert (given.accumulate, given.device, gpu.current_device) == (True, 1, 0)
    assert gpu.launched == [STREAM + 1]
    assert gpu.problems == [Problem(op="wgrad", out_dtype="bf16", arch="sm_90a", M=6, N=16, K=8, E=2, accumulate=True)]


@pytest.mark.parametrize("current", [0, 1], ids=["another device is current", "the tensors' device is current"])
@pytest.mark.parametrize("prefix", ["", "prepare_"])
def test_the_program_is_told_the_most_sms_and_they_are_no_part_of_its_choice(gpu, monkeypatch, prefix, current):
    has(monkeypatch, gpu.program("fwd"), gpu.program("dgrad"), gpu.program("wgrad"))
    gpu.current_device = current
    x, g, w, offs = on_cuda(6, 8), on_cuda(6, 16), on_cuda(2, 16, 8), on_cuda(2, dtype=torch.int32)

    for num_sms in (37, 2, None):
        for name, a, b, out in (("forward", x, w, g), ("dgrad", g, w, x), ("wgrad", g, x, w)):
            function = getattr(grouped_gemm, prefix + name)
            function(a, b, offs, out=torch.empty_like(out), num_sms=num_sms)

    assert [given.num_sms for given in gpu.routed] == [37] * 3 + [2] * 3 + [None] * 3
    assert gpu.problems[:3] == gpu.problems[3:6] == gpu.problems[6:]


def test_the_program_reads_indptr_in_place_from_its_second_element(gpu, monkeypatch):
    has(monkeypatch, gpu.program("fwd"))
    indptr = on_cuda(3, dtype=torch.int32)

    grouped_gemm.forward(on_cuda(6, 8), on_cuda(2, 16, 8), indptr=indptr, out=on_cuda(6, 16))

    assert gpu.routed[0].offs.shape == (2,)
    assert gpu.routed[0].offs.data_ptr() == indptr.data_ptr() + 4


def test_a_prepared_call_asks_no_more_and_launches_on_the_stream_of_the_moment(gpu, monkeypatch):
    has(monkeypatch, gpu.program("fwd"))
    x, w, offs = on_cuda(6, 8), on_cuda(2, 16, 8), on_cuda(2, dtype=torch.int32)
    call = grouped_gemm.prepare_forward(x, w, offs, out=on_cuda(6, 16))
    before = len(gpu.problems), len(gpu.routed), len(gpu.bound)

    call.launch()
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 5)
    call.launch()

    assert gpu.launched == [STREAM + 1, 5]
    assert (len(gpu.problems), len(gpu.routed), len(gpu.bound)) == before == (1, 1, 1)


def test_calls_of_one_form_have_one_route_and_each_is_bound_to_its_own_memory(gpu, monkeypatch, known):
    has(monkeypatch, gpu.program("fwd"), gpu.program("fwd", variant="nondet"))
    w, offs = on_cuda(2, 16, 8), on_cuda(2, dtype=torch.int32)
    calls = [(on_cuda(6, 8), on_cuda(6, 16)) for _ in range(3)]

    for x, out in calls:
        grouped_gemm.forward(x, w, offs, out=out)

    assert len(gpu.routed) == 1
    assert gpu.bound == [tuple(t.data_ptr() for t in (x, w, offs, out)) for x, out in calls]
    for out, options in ((wide(6, 16, pad=8), {}), (on_cuda(6, 16), {"deterministic": False})):
        grouped_gemm.forward(x, w, offs, out=out, **options)
        grouped_gemm.forward(x, w, offs, out=out, **options)
    assert [given.out.stride() for given in gpu.routed] == [(16, 1), (24, 1), (16, 1)]
    assert len(gpu.bound) == 7


def forward(rows, **options):
    """A forward of so many rows, K 8, N 16 and two experts."""
    out = options.pop("out", None)
    out = on_cuda(rows, 16) if out is None else out
    return grouped_gemm.forward(on_cuda(rows, 8), on_cuda(2, 16, 8), on_cuda(2, dtype=torch.int32), out=out, **options)


def test_calls_with_other_rows_have_a_route_that_is_derived_once(gpu, monkeypatch, known):
    has(monkeypatch, gpu.program("fwd"), gpu.program("fwd", variant="nondet"))

    for rows in (6, 7, 5, 7, 6):
        forward(rows)
    assert (len(gpu.routed), gpu.derived) == (1, [(6, 7), (6, 5)])
    assert [problem.M for problem in gpu.problems] == [6, 7, 5]

    forward(7, deterministic=False)
    forward(7, out=wide(7, 16, pad=8))
    forward(7, num_sms=2)
    assert (len(gpu.routed), len(gpu.derived)) == (4, 2)
    assert len(gpu.launched) == 8


def test_only_so_many_programs_and_routes_of_a_form_are_kept(gpu, monkeypatch, known):
    has(monkeypatch, gpu.program("fwd"))
    monkeypatch.setattr(prepared_module, "_MOST_KNOWN", 3)

    for rows in range(6, 13):
        forward(rows)
        forward(rows, out=wide(rows, 16, pad=8 * rows))

        (form,) = call_module._FORMS.values()
        assert max(map(len, (form.programs, form.routes, form.first_routes))) <= 3
    assert {key[0] for key in (*form.programs, *form.routes)} <= {10, 11, 12}


@pytest.mark.parametrize("rows", [0, 1])
def test_no_route_is_derived_for_one_row_or_none_whose_strides_mean_nothing(gpu, monkeypatch, known, rows):
    has(monkeypatch, gpu.program("fwd"))

    for M in (6, rows, 7):
        forward(M)

    assert ([given.a.shape[0] for given in gpu.routed], gpu.derived) == ([6, 1][: 1 + rows], [(6, 7)])


def test_a_program_may_refuse_other_rows_than_those_that_it_has_done(gpu, monkeypatch, known):
    few = replace(gpu.program("fwd"), stem="fwd_few", refuse=lambda problem: "has too few" if problem.M > 6 else None)
    many = replace(gpu.program("fwd"), stem="fwd_many", refuse=lambda problem: "has no end" if problem.M > 8 else None)
    has(monkeypatch, few, many)

    for rows in (6, 7, 5, 8):
        forward(rows)
    assert ([given.a.shape[0] for given in gpu.routed], gpu.derived) == ([6, 7], [(6, 5), (7, 8)])

    with pytest.raises(NoProgramError, match="fwd_few has too few; fwd_many has no end"):
        forward(9)


def test_a_prepared_call_holds_what_it_reads_even_where_the_program_gets_a_view(gpu, monkeypatch):
    has(monkeypatch, gpu.program("fwd"))
    x, w, offs = on_cuda(1, 8), on_cuda(1, 16, 8), on_cuda(1, dtype=torch.int32)

    call = grouped_gemm.prepare_forward(x, w, offs, out=on_cuda(1, 16))

    assert [id(tensor) for tensor in call.inputs] == [id(x), id(w), id(offs)]


def test_autograd_sees_that_a_launch_changes_the_output(gpu, monkeypatch):
    has(monkeypatch, gpu.program("fwd"))
    out = on_cuda(6, 16)

    grouped_gemm.forward(on_cuda(6, 8), on_cuda(2, 16, 8), on_cuda(2, dtype=torch.int32), out=out)

    assert out._version == 1


@pytest.mark.parametrize("sizes", [(0, 2), (6, 0)], ids=["no rows", "no experts"])
@pytest.mark.parametrize("function", ["forward", "dgrad", "wgrad"])
def test_without_rows_or_experts_zeros_are_written_and_no_program_is_bound(gpu, monkeypatch, function, sizes):
    has(monkeypatch, gpu.program("fwd"), gpu.program("dgrad"), gpu.program("wgrad"))
    M, E = sizes
    x, g, w, offs = on_cuda(M, 8), on_cuda(M, 16), on_cuda(E, 16, 8), on_cuda(E, dtype=torch.int32)
    a, b, form = {"forward": (x, w, g), "dgrad": (g, w, x), "wgrad": (g, x, w)}[function]
    out = torch.full_like(form, 7)

    getattr(grouped_gemm, function)(a, b, offs, out=out)

    assert not out.any()
    assert (gpu.routed, gpu.launched) == ([], [])


def test_without_rows_an_accumulating_call_writes_nothing(gpu, monkeypatch):
    has(monkeypatch, gpu.program("wgrad"))
    out = torch.full_like(on_cuda(2, 16, 8), 7)

    grouped_gemm.wgrad(on_cuda(0, 16), on_cuda(0, 8), on_cuda(2, dtype=torch.int32), out=out, accumulate=True)

    assert (out == 7).all()
    assert (gpu.routed, gpu.launched) == ([], [])


BEGIN = (
    "must begin at a multiple of 16 bytes on CUDA, got an address {} bytes past one;"
    " a new tensor begins at one, a view into another may not"
)
STRIDES = (
    "must have outer strides that are multiples of 16 bytes on CUDA, {} elements of {}, got strides {} for shape {}"
)


def wide(*size, dtype=BF16, pad=4):
    return on_cuda(*size[:-1], size[-1] + pad, dtype=dtype)[..., : size[-1]]


UNALIGNED = {
    "x address": ("x", lambda: on_cuda(6, 8, begin=1), BEGIN.format(2)),
    "w address": ("w", lambda: on_cuda(2, 16, 8, begin=4), BEGIN.format(8)),
    "g address": ("g", lambda: on_cuda(6, 16, begin=7), BEGIN.format(14)),
    "out address": ("out", lambda: on_cuda(6, 16, begin=1), BEGIN.format(2)),
    "x stride": ("x", lambda: wide(6, 8), STRIDES.format(8, BF16, (12, 1), [6, 8])),
    "w stride": ("w", lambda: wide(2, 16, 8), STRIDES.format(8, BF16, (192, 12, 1), [2, 16, 8])),
    "w expert stride": (
        "w",
        lambda: on_cuda(2, 16 * 8 + 4)[:, :128].unflatten(1, (16, 8)),
        STRIDES.format(8, BF16, (132, 8, 1), [2, 16, 8]),
    ),
    "dw stride": (
        "dw",
        lambda: wide(2, 16, 8, dtype=torch.float32, pad=2),
        STRIDES.format(4, torch.float32, (160, 10, 1), [2, 16, 8]),
    ),
}


def call_with(**changes):
    given = {"x": on_cuda(6, 8), "w": on_cuda(2, 16, 8), "g": on_cuda(6, 16), "out": None, "dw": None, **changes}
    offs = on_cuda(2, dtype=torch.int32)
    if {"g", "dw"} & set(changes):
        return grouped_gemm.wgrad(given["g"], given["x"], offs, out_dtype=torch.float32, out=given["dw"])
    return grouped_gemm.forward(given["x"], given["w"], offs, out=given["out"])


@pytest.mark.parametrize("name", UNALIGNED)
def test_what_no_program_can_address_is_refused_with_name_rule_and_value(gpu, monkeypatch, name):
    has(monkeypatch, gpu.program("fwd"), gpu.program("wgrad", out_dtype="fp32"))
    argument, make, rule = UNALIGNED[name]

    with pytest.raises(ArgumentError) as caught:
        call_with(**{argument: make()})

    assert str(caught.value).startswith(f"{'out' if argument == 'dw' else argument} {rule}")
    assert (gpu.routed, gpu.launched) == ([], [])


def test_row_padding_of_whole_16_bytes_is_served_as_it_is(gpu, monkeypatch):
    has(monkeypatch, gpu.program("fwd"), gpu.program("wgrad", out_dtype="fp32"))

    call_with(x=wide(6, 8, pad=8), w=wide(2, 16, 8, pad=8), out=wide(6, 16, pad=16))
    call_with(x=on_cuda(6, 8, begin=8), g=on_cuda(6, 16), dw=wide(2, 16, 8, dtype=torch.float32, pad=4))

    assert [given.a.stride() for given in gpu.routed] == [(16, 1), (16, 1)]
    assert [given.out.stride() for given in gpu.routed] == [(32, 1), (192, 12, 1)]


def test_one_row_or_expert_has_no_stride_and_a_program_gets_the_packed_one(gpu, monkeypatch):
    has(monkeypatch, gpu.program("fwd"))
    x, w = on_cuda(1, 8).as_strided((1, 8), (1, 1)), wide(1, 16, 8, pad=8).as_strided((1, 16, 8), (3, 16, 1))
    out = on_cuda(1, 16).as_strided((1, 16), (5, 1))

    returned = grouped_gemm.forward(x, w, on_cuda(1, dtype=torch.int32), out=out)

    (given,) = gpu.routed
    assert [t.stride() for t in (given.a, given.b, given.out)] == [(8, 1), (256, 16, 1), (16, 1)]
    assert [t.data_ptr() for t in (given.a, given.b, given.out)] == [t.data_ptr() for t in (x, w, out)]
    assert returned is out


@pytest.mark.parametrize(("rows", "experts"), [(1, 2), (6, 1)])
def test_one_row_beside_many_experts_and_one_expert_of_many_rows_are_packed_too(gpu, monkeypatch, rows, experts):
    has(monkeypatch, gpu.program("fwd"))
    x, w, out = on_cuda(rows, 8), on_cuda(experts, 16, 8), on_cuda(rows, 16)
    x, w, out = (t.as_strided(t.shape, (3, *t.stride()[1:])) if t.shape[0] == 1 else t for t in (x, w, out))

    grouped_gemm.forward(x, w, on_cuda(experts, dtype=torch.int32), out=out)

    (given,) = gpu.routed
    assert [t.stride(0) for t in (given.a, given.b, given.out)] == [8, 128, 16]


def test_on_a_cpu_any_address_and_stride_will_do():
    x = torch.zeros(6 * 9 + 1, dtype=BF16)[1:].view(6, 9)[:, :7]
    w, offs = torch.zeros(2, 5, 7, dtype=BF16), torch.tensor([2, 6], dtype=torch.int32)

    assert grouped_gemm.forward(x, w, offs).shape == (6, 5)


@pytest.mark.parametrize("warn_only", [False, True])
def test_wgrad_of_a_free_order_heeds_torchs_switch(gpu, monkeypatch, torchs_switch, warn_only):
    has(monkeypatch, *(gpu.program(op, variant="nondet") for op in ("fwd", "dgrad", "wgrad")))
    x, g, w, offs = on_cuda(6, 8), on_cuda(6, 16), on_cuda(2, 16, 8), on_cuda(2, dtype=torch.int32)
    y, dx, dw = on_cuda(6, 16), on_cuda(6, 8), on_cuda(2, 16, 8)
    grouped_gemm.wgrad(g, x, offs, out=dw, deterministic=False)

    torchs_switch(True, warn_only=warn_only)
    message = (
        r"^wgrad\(deterministic=False\) must not run under torch.use_deterministic_algorithms\(True\), since the order"
    )
    expectation = (
        pytest.warns(UserWarning, match=message) if warn_only else pytest.raises(NondeterministicError, match=message)
    )
    with expectation:
        grouped_gemm.wgrad(g, x, offs, out=dw, deterministic=False)
    grouped_gemm.forward(x, w, offs, out=y, deterministic=False)
    grouped_gemm.dgrad(g, w, offs, out=dx, deterministic=False)

    assert len(gpu.launched) == (4 if warn_only else 3)
