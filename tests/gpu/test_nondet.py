"""wgrad in the non-deterministic variant, whose last tiles are split: right run after run, whatever is beside it."""

import pytest
import torch

from cake_kernels import grouped_gemm, grouped_mm
from cake_kernels.errors import NondeterministicError
from cake_kernels.grouped_gemm.sm90.config import kernels, whole_slabs
from harness.probe import Spin
from tests.gpu.ragged import DEVICE, DTYPES, FP32, Guarded, Ragged, cuda_only, planned, ragged, same_bits
from tests.gpu.test_workspace import computed, every_dtype, prepared, small

pytestmark = pytest.mark.gpu

RUNS = 1000
RUNS_BESIDE_OTHERS = 50
SPINS = 8
SPIN_NS = 2_000_000


def several_waves() -> Ragged:
    """64 tiles an expert: on 132 SMs a full wave, and a tail of 60 tiles."""
    return ragged((3000, 3001, 2999), N=2048, K=1536)


@cuda_only
@pytest.mark.parametrize("problem", [small(), several_waves()], ids=["less than a wave", "several waves"])
def test_these_problems_are_split(problem):
    assert planned(problem, "nondet").placement == "split"


@pytest.mark.parametrize(
    "kernel",
    [kernel for dtype in DTYPES for kernel in kernels("wgrad", dtype, "nondet")],
    ids=lambda kernel: kernel.name,
)
def test_each_kernel_is_right(kernel):
    N, K = (768, 768) if kernel.whole_slabs else (1032, 328)
    assert whole_slabs("wgrad", N=N, K=K) == kernel.whole_slabs
    problem, dtype = small(N=N, K=K), DTYPES[kernel.out_dtype]
    out = problem.output("wgrad", dtype)
    old = Guarded.randn((problem.E, N, K), dtype, seed=11).inner if kernel.accumulate else None
    if old is not None:
        out.inner.copy_(old)

    problem.run("wgrad", out.inner, accumulate=kernel.accumulate, config=kernel.config)

    problem.assert_right("wgrad", out.inner, old=old)
    out.assert_intact()


@every_dtype
@pytest.mark.parametrize("problem", [small(), several_waves()], ids=["less than a wave", "several waves"])
def test_a_thousand_runs_are_right(problem, dtype):
    out = problem.output("wgrad", dtype)
    call = prepared(problem, out.inner, "nondet")

    for _ in range(RUNS if DEVICE.type == "cuda" else 2):
        out.inner.fill_(torch.nan)

        problem.assert_right("wgrad", call.launch())

    out.assert_intact()


@cuda_only
@every_dtype
def test_runs_beside_a_stream_that_holds_sms_are_right(dtype):
    problem = small()
    out = problem.output("wgrad", dtype)
    call = prepared(problem, out.inner, "nondet")
    # A thread that spins holds registers of its SM, so that no block of ours fits beside it.
    spin, streams = Spin(DEVICE), [torch.cuda.Stream() for _ in range(SPINS)]
    spin.launch(0)
    torch.cuda.synchronize()

    for turn in range(RUNS_BESIDE_OTHERS):
        for stream in streams[: 1 + turn % SPINS]:
            spin.launch(SPIN_NS, stream.cuda_stream)
        out.inner.fill_(torch.nan)
        call.launch()
        torch.cuda.synchronize()

        problem.assert_right("wgrad", out.inner)


@every_dtype
def test_each_launch_that_accumulates_adds_once(dtype):
    problem = small()
    out = Guarded.randn((problem.E, problem.N, problem.K), dtype, seed=9)
    call = prepared(problem, out.inner, "nondet", accumulate=True)

    for _ in range(3):
        old = out.inner.clone()
        call.launch()

        problem.assert_right("wgrad", out.inner, old=old)
        assert same_bits(out.inner[1], old[1])


@pytest.mark.parametrize("op", ["fwd", "dgrad"])
def test_forward_and_dgrad_have_the_bits_of_the_other_variant(op):
    problem = small()
    function = {"fwd": grouped_gemm.forward, "dgrad": grouped_gemm.dgrad}[op]
    a, b = problem.operands(op)

    one, other = (function(a, b, problem.offs, deterministic=variant) for variant in (True, False))

    assert same_bits(one, other)


def test_grouped_mm_gives_the_product_and_both_gradients():
    problem = small()
    x, w = problem.x.clone().requires_grad_(), problem.w.clone().requires_grad_()

    y = grouped_mm(x, w, problem.offs, deterministic=False)
    y.backward(problem.g)

    problem.assert_right("fwd", y.detach())
    problem.assert_right("dgrad", x.grad)
    problem.assert_right("wgrad", w.grad)


@cuda_only
def test_under_torchs_switch_wgrad_and_the_backward_of_grouped_mm_raise(torchs_switch):
    problem = small()
    out = problem.output("wgrad", FP32)
    x, w, g = problem.x.clone().requires_grad_(), problem.w.clone().requires_grad_(), problem.g

    torchs_switch(True)
    options = {"out_dtype": FP32, "out": out.inner, "deterministic": False}
    with pytest.raises(NondeterministicError, match=r"^wgrad\(deterministic=False\)"):
        grouped_gemm.wgrad(g, problem.x, problem.offs, **options)
    y = grouped_mm(x, w, problem.offs, deterministic=False)
    with pytest.raises(NondeterministicError, match=r"^wgrad\(deterministic=False\)"):
        y.backward(g)

    assert out.inner.isnan().all()
    assert (x.grad, w.grad) == (None, None)


@cuda_only
def test_under_torchs_switch_that_warns_only_both_warn_and_are_right(torchs_switch):
    problem = small()
    x, w, g = problem.x.clone().requires_grad_(), problem.w.clone().requires_grad_(), problem.g

    torchs_switch(True, warn_only=True)
    with pytest.warns(UserWarning, match=r"^wgrad\(deterministic=False\)"):
        dw = computed(problem, FP32, "nondet")
    y = grouped_mm(x, w, problem.offs, deterministic=False)
    with pytest.warns(UserWarning, match=r"^wgrad\(deterministic=False\)"):
        y.backward(g)
    torchs_switch(False)  # cuBLAS, which the check computes with, has an objection of its own

    problem.assert_right("wgrad", dw)
    problem.assert_right("fwd", y.detach())
    problem.assert_right("dgrad", x.grad)
    problem.assert_right("wgrad", w.grad)
