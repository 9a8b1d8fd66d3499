import math
import warnings
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cake_kernels import grouped_gemm, grouped_mm
from cake_kernels.errors import ArgumentError, NoProgramError
from cake_kernels.facade import FallbackWarning, NondeterministicError, backend, torch_grouped_mm
from cake_kernels.grouped_gemm import call as call_module
from cake_kernels.grouped_gemm.call import Call, dgrad_call, forward_call, wgrad_call
from tests.unit.cake_kernels.test_choice_of_program import OnCuda, gpu, has, on_cuda  # noqa: F401 - gpu is a fixture
from tests.unit.cake_kernels.test_grouped_mm import BF16, FP32, WORST_ROUNDING, Inputs, assert_near

REASON = "needs another GPU"
NO_FWD = f"no program for fwd (det, bf16 out) on sm_90a: fwd_det {REASON}"


def test_on_a_cpu_the_reference_is_the_program_and_nothing_is_said():
    p = Inputs()

    for name in ("auto", "reference"):
        assert torch.equal(grouped_mm(p.x, p.w, p.offs, backend=name), grouped_gemm.forward(p.x, p.w, p.offs))


def test_on_a_cpu_a_program_that_is_asked_for_is_an_error_with_each_ones_reason():
    p = Inputs()

    with pytest.raises(NoProgramError, match=r"no program for fwd \(det, bf16 out\) on cpu: .*fwd_det_sm90a is comp"):
        grouped_mm(p.x, p.w, p.offs, backend="sm90")


@pytest.mark.parametrize("backend_name", ["auto", "reference"])
@pytest.mark.parametrize("value", [None, "no", 1])
def test_deterministic_is_a_bool_on_a_cpu_too(backend_name, value):
    p = Inputs()

    with pytest.raises(ArgumentError, match=f"^deterministic must be a bool, got {value!r}$"):
        grouped_mm(p.x, p.w, p.offs, deterministic=value, backend=backend_name)


def new_output(call):
    # No view, unlike what on_cuda gives, since autograd forbids to write below one that it was handed.
    return torch.Tensor._make_subclass(OnCuda, torch.empty(call.out_shape, dtype=call.form.out_dtype))


def plain(tensor):
    return tensor.detach().as_subclass(torch.Tensor)


def on_cpu(call):
    return call._replace(a=plain(call.a), b=plain(call.b), offs=plain(call.offs))


@pytest.fixture
def machine(gpu, monkeypatch):  # noqa: F811
    """A machine whose GPU no program serves."""
    run = torch_grouped_mm.run
    monkeypatch.setattr(Call, "output", new_output)
    monkeypatch.setattr(torch_grouped_mm, "run", lambda call, out: run(on_cpu(call), plain(out)))
    has(monkeypatch, *(gpu.program(op, refusal=REASON) for op in ("fwd", "dgrad", "wgrad")))
    backend._say.cache_clear()
    yield gpu
    backend._say.cache_clear()


def leaves(N=24, K=16):
    p = Inputs(N=N, K=K)
    x, w, offs = on_cuda(10, K), on_cuda(3, N, K), on_cuda(3, dtype=torch.int32)
    x.copy_(p.x), w.copy_(p.w), offs.copy_(p.offs)
    return p, x.requires_grad_(), w.requires_grad_(), offs


def test_without_a_program_torchs_own_computes_and_that_is_said_once_per_reason(machine):
    p, x, w, offs = leaves()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            y = grouped_mm(x, w, offs)
            y.backward(p.g.as_subclass(OnCuda))

    assert [warning.category for warning in caught] == [FallbackWarning] * 3
    said = [str(warning.message) for warning in caught]
    assert said[0].startswith(NO_FWD)
    assert [text.rpartition("; ")[2] for text in said] == [
        f"instead {op} is computed by torch._grouped_mm" for op in ("fwd", "dgrad", "wgrad")
    ]
    y64, dx64, dw64 = p.fp64()
    assert_near(plain(y), y64)
    assert_near(plain(x.grad), 2 * dx64)
    assert_near(plain(w.grad), 2 * dw64)


def test_a_stand_in_takes_num_sms_and_computes_the_same(machine):
    p, x, w, offs = leaves()

    with pytest.warns(FallbackWarning):
        grouped_mm(x, w, offs, num_sms=2).backward(p.g.as_subclass(OnCuda))

    assert_near(plain(x.grad), p.fp64()[1])
    assert_near(plain(w.grad), p.fp64()[2])


@pytest.mark.parametrize(
    ("N", "options", "why"),
    [
        (23, {}, "torch._grouped_mm needs N a multiple of 8, got 23"),
        (24, {"weight_grad_dtype": FP32}, "torch._grouped_mm writes the type of its inputs, not torch.float32"),
    ],
)
def test_what_torchs_own_cannot_the_reference_computes_and_says_why(machine, N, options, why):
    p, x, w, offs = leaves(N=N)
    w.grad_dtype = options.get("weight_grad_dtype", BF16)

    with pytest.warns(FallbackWarning) as caught:
        grouped_mm(x, w, offs, **options).backward(p.g.as_subclass(OnCuda))

    assert str(caught[-1].message).endswith(f"instead wgrad is computed by the reference, since {why}")
    assert_near(plain(w.grad), p.fp64()[2])


def test_a_program_that_is_asked_for_is_an_error_with_each_ones_reason(machine):
    _, x, w, offs = leaves()

    with pytest.raises(NoProgramError) as caught:
        grouped_mm(x, w, offs, backend="sm90")

    assert str(caught.value).startswith(NO_FWD)


def test_the_reference_that_is_asked_for_asks_no_program(machine):
    p, x, w, offs = leaves()

    assert_near(plain(grouped_mm(x, w, offs, backend="reference")), p.fp64()[0])
    assert machine.problems == []


def test_a_step_asks_for_the_stream_once_a_direction_and_a_second_one_routes_nothing(machine, monkeypatch):
    monkeypatch.setattr(call_module, "_PLAIN", {OnCuda})
    monkeypatch.setattr(call_module, "_FORMS", {})
    monkeypatch.setattr(call_module, "_PAIRS", {})
    has(monkeypatch, *(machine.program(op) for op in ("fwd", "dgrad", "wgrad")))
    asked, stream_of = [], torch._C._cuda_getCurrentRawStream
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: asked.append(device) or stream_of(device))
    p, x, w, offs = leaves()

    for _ in range(2):
        y = grouped_mm(x, w, offs)
        dx, dw = torch.autograd.grad(y, (x, w), p.g.as_subclass(OnCuda))

        assert [addresses[3] for addresses in machine.bound[-3:]] == [t.data_ptr() for t in (y, dx, dw)]

    assert len(machine.routed) == 3
    assert len(machine.bound) == len(machine.launched) == 6
    assert asked == [1] * 4


def test_a_variant_that_no_program_has_is_an_error_and_never_another_variant(machine):
    _, x, w, offs = leaves()

    with pytest.raises(NoProgramError, match=r"no program for fwd \(nondet, bf16 out\) on sm_90a: fwd_det is det"):
        grouped_mm(x, w, offs, deterministic=False)


def test_what_no_program_could_address_is_refused_before_anything_stands_in(machine):
    _, x, _, offs = leaves()

    with pytest.raises(ArgumentError, match="w must begin at a multiple of 16 bytes on CUDA"):
        grouped_mm(x, on_cuda(3, 24, 16, begin=1), offs)


def test_what_no_program_could_address_reaches_none(machine, monkeypatch):
    has(monkeypatch, *(machine.program(op) for op in ("fwd", "dgrad", "wgrad")))
    _, x, w, offs = leaves()

    with pytest.raises(ArgumentError, match="w must begin at a multiple of 16 bytes on CUDA"):
        grouped_mm(x, on_cuda(3, 24, 16, begin=1), offs)
    grouped_mm(x, w, offs)

    assert len(machine.bound) == 1


@pytest.mark.parametrize("warn_only", [False, True])
def test_a_nondeterministic_dw_alone_heeds_torchs_switch(machine, monkeypatch, torchs_switch, warn_only):
    ops = "fwd", "dgrad", "wgrad"
    has(monkeypatch, *(machine.program(op, variant=variant) for op in ops for variant in ("det", "nondet")))
    p, x, w, offs = leaves()

    torchs_switch(True, warn_only=warn_only)
    y = grouped_mm(x, w, offs, deterministic=False)
    grouped_mm(x, w.detach(), offs, deterministic=False).backward(on_cuda(*p.g.shape))
    assert len(machine.launched) == 3
    expectation = (
        pytest.warns(UserWarning, match="order of a sum") if warn_only else pytest.raises(NondeterministicError)
    )
    with expectation as caught:
        y.backward(on_cuda(*p.g.shape))

    said = str(caught[0].message if warn_only else caught.value)
    assert said.startswith("wgrad(deterministic=False) must not run under torch.use_deterministic_algorithms(True)")
    assert issubclass(NondeterministicError, RuntimeError)
    assert len(machine.launched) == (5 if warn_only else 4)


@settings(max_examples=60)
@given(
    op=st.sampled_from(["fwd", "dgrad", "wgrad"]),
    ends=st.lists(st.integers(-3, 14), min_size=1, max_size=5),
    M=st.integers(1, 11),
)
def test_torchs_own_keeps_our_contract_for_any_ends(op, ends, M):
    p = Inputs(ends=tuple(ends), M=M)
    call = {
        "fwd": lambda: forward_call(p.x, p.w, p.offs, None, None),
        "dgrad": lambda: dgrad_call(p.g, p.w, p.offs, None, None),
        "wgrad": lambda: wgrad_call(p.g, p.x, p.offs, None, None, out_dtype=BF16, accumulate=False),
    }[op]()
    out = call.output().fill_(math.nan)

    torch_grouped_mm.run(call, out)

    assert torch_grouped_mm.why_not(call) is None
    expected = dict(zip(("fwd", "dgrad", "wgrad"), p.fp64(), strict=True))[op]
    assert_near(out, expected, WORST_ROUNDING)
    assert not out[expected == 0].any()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"E": 0}, "torch._grouped_mm takes 1 to 1023 groups, got E = 0"),
        ({"E": 1024}, "torch._grouped_mm takes 1 to 1023 groups, got E = 1024"),
        ({"M": 0}, "torch._grouped_mm needs at least one row, got M = 0"),
        ({"K": 12}, "torch._grouped_mm needs K a multiple of 8, got 12"),
    ],
)
def test_torchs_own_limits_are_said(change, why):
    p = Inputs()
    call = forward_call(p.x, p.w, p.offs, None, None)
    changed = call._replace(**change) if "M" in change else call._replace(form=replace(call.form, **change))

    assert torch_grouped_mm.why_not(changed) == why
