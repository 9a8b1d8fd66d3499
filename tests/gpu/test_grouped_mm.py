"""grouped_mm on a GPU: values and gradients, what is launched, torch.compile, and whole steps in a CUDA graph."""

import math
import warnings
from functools import partial

import pytest
import torch
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from cake_kernels import grouped_gemm, grouped_mm
from cake_kernels.errors import NoProgramError
from cake_kernels.facade import FallbackWarning, autograd, backend, torch_grouped_mm
from cake_kernels.grouped_gemm.call import dgrad_call, forward_call, wgrad_call
from cake_kernels.moe import MoEExperts
from tests.gpu.ragged import BF16, DEVICE, FP32, Ragged, cuda_only, ragged, same_bits
from tests.gpu.test_grouped_gemm_launch import STEPS, E, K, M, N, captured, step, waiting_is_an_error

pytestmark = pytest.mark.gpu

SIZES = {
    "uneven": (1, 7, 44, 127, 129, 333),
    "an empty one at each end": (0, 128, 130, 65, 0),
    "all empty": (0, 0, 0),
    "one": (300,),
    "one row": (1,),
    "128 groups": (3, 0) * 64,
}
every_size = pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)


def leaves(p: Ragged) -> tuple[torch.Tensor, torch.Tensor]:
    return p.x.detach().requires_grad_(), p.w.detach().requires_grad_()


def assert_all_right(p: Ragged, y: torch.Tensor, dx: torch.Tensor, dw: torch.Tensor) -> None:
    p.assert_right("fwd", y.detach())
    p.assert_right("dgrad", dx)
    p.assert_right("wgrad", dw)


@pytest.fixture
def launched(monkeypatch):
    """The op of each launch, in order."""
    seen, compute = [], autograd.compute

    def counting(*calls, **options):
        seen.extend(call.form.op for call, _ in calls)
        compute(*calls, **options)

    monkeypatch.setattr(autograd, "compute", counting)
    return seen


@every_size
@pytest.mark.parametrize("nobody", [0, 77])
def test_values_and_gradients_are_right_and_rows_of_nobody_are_never_read(launched, sizes, nobody):
    p = ragged(sizes, N=264, K=136, nobody=nobody)
    x, w = leaves(p)

    y = grouped_mm(x, w, p.offs)
    y.backward(p.g)

    assert_all_right(p, y, x.grad, w.grad)
    assert launched == ["fwd", "dgrad", "wgrad"]


@pytest.mark.parametrize("experts", [1, 128])
def test_three_steps_with_garbage_behind_the_last_row_stay_right(experts):
    for seed in range(3):
        p = ragged((5, *[3] * (experts - 1)), N=64, K=72, nobody=100, seed=seed)
        x, w = leaves(p)

        y = grouped_mm(x, w, p.offs)
        y.backward(p.g)

        assert_all_right(p, y, x.grad, w.grad)


def test_the_view_that_torchs_own_takes_gives_the_same_bits():
    p = ragged(SIZES["uneven"], N=264, K=136)
    x, w = leaves(p)

    y = grouped_mm(x, w.transpose(-2, -1), p.offs)
    y.backward(p.g)

    assert same_bits(y.detach(), grouped_gemm.forward(p.x, p.w, p.offs))
    assert same_bits(w.grad, grouped_gemm.wgrad(p.g, p.x, p.offs))


@pytest.mark.parametrize("layout", ["expanded", "transposed", "unaligned"])
def test_a_gradient_of_any_layout_is_taken(layout):
    p = ragged(SIZES["uneven"], N=264, K=136)
    x, w = leaves(p)
    g = {
        "expanded": lambda: p.g[:1].expand(p.M, p.N),
        "transposed": lambda: p.g.t().contiguous().t(),
        "unaligned": lambda: torch.cat([p.g.new_zeros(1), p.g.flatten()])[1:].view(p.M, p.N),
    }[layout]()

    grouped_mm(x, w, p.offs).backward(g)

    assert same_bits(x.grad, grouped_gemm.dgrad(g.clone(memory_format=torch.contiguous_format), p.w, p.offs))
    assert same_bits(w.grad, grouped_gemm.wgrad(g.clone(memory_format=torch.contiguous_format), p.x, p.offs))


@pytest.mark.parametrize("w_dtype", [BF16, FP32])
def test_under_autocast_y_is_bf16_and_gradients_have_the_leaves_types(w_dtype):
    # pytorch/pytorch#174763.
    p = ragged(SIZES["uneven"], N=264, K=136)
    x, w = p.x.float().requires_grad_(), p.w.to(w_dtype).contiguous().requires_grad_()

    with torch.autocast(DEVICE.type, dtype=BF16):
        y = grouped_mm(x, w, p.offs)
    y.backward(p.g)

    assert (y.dtype, x.grad.dtype, w.grad.dtype) == (BF16, FP32, w_dtype)
    assert_all_right(p, y, x.grad.to(BF16), w.grad.to(BF16))


def test_an_fp32_weight_gradient_is_delivered_unrounded():
    p = ragged(SIZES["uneven"], N=264, K=136)
    x, w = leaves(p)
    w.grad_dtype = FP32

    grouped_mm(x, w, p.offs, weight_grad_dtype=FP32).backward(p.g)

    p.assert_right("wgrad", w.grad)
    assert w.grad.dtype == FP32


@pytest.mark.parametrize("sizes", [(0, 2), (6, 0)], ids=["no rows", "no experts"])
def test_without_rows_or_experts_gradients_are_zeros_or_empty(sizes):
    rows, experts = sizes
    x = torch.ones(rows, 16, dtype=BF16, device=DEVICE, requires_grad=True)
    w = torch.ones(experts, 24, 16, dtype=BF16, device=DEVICE, requires_grad=True)
    offs = torch.zeros(experts, dtype=torch.int32, device=DEVICE)

    y = grouped_mm(x, w, offs)
    y.sum().backward()

    assert (y.shape, x.grad.shape, w.grad.shape) == ((rows, 24), x.shape, w.shape)
    assert not any(t.any() for t in (y, x.grad, w.grad))


def test_a_checkpoint_that_ends_in_it_launches_the_forward_once(launched):
    # pytorch/pytorch#102600 and #81448: the last product of a checkpoint was computed twice.
    p = ragged(SIZES["uneven"], N=264, K=136)
    x, w = leaves(p)

    y = checkpoint(lambda x, w: grouped_mm(x.neg().neg(), w, p.offs), x, w, use_reentrant=False)
    y.backward(p.g)

    assert launched == ["fwd", "dgrad", "wgrad"]
    assert_all_right(p, y, x.grad, w.grad)


@pytest.mark.parametrize(
    ("policy", "again"),
    [
        (CheckpointPolicy.MUST_SAVE, []),
        (CheckpointPolicy.PREFER_SAVE, []),
        (CheckpointPolicy.MUST_RECOMPUTE, ["fwd"]),
        (CheckpointPolicy.PREFER_RECOMPUTE, ["fwd"]),
    ],
)
@pytest.mark.parametrize("ends_in_it", [True, False])
def test_a_selective_policy_decides_what_is_launched_again_where_the_result_is_needed(
    launched, policy, again, ends_in_it
):
    p = ragged(SIZES["uneven"], N=264, K=136)
    x, w = leaves(p)
    operator = getattr(torch.ops, grouped_gemm.ops.NAMESPACE).grouped_mm.default

    def region(x, w):
        y = grouped_mm(x.neg().neg(), w, p.offs)
        return y if ends_in_it else y * torch.ones_like(y)  # after it something is saved

    def decide(_, op, *__, **___):
        return policy if op == operator else CheckpointPolicy.PREFER_RECOMPUTE

    contexts = partial(create_selective_checkpoint_contexts, decide)
    y = checkpoint(region, x, w, use_reentrant=False, context_fn=contexts)
    y.backward(p.g)

    assert launched == ["fwd", *([] if ends_in_it else again), "dgrad", "wgrad"]
    assert_all_right(p, y, x.grad, w.grad)


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=cuda_only)])
@pytest.mark.filterwarnings("ignore")  # inductor's own, of the machine
def test_compiled_it_is_right_for_any_number_of_rows(backend):
    compiled = torch.compile(grouped_mm, backend=backend, fullgraph=True, dynamic=True)

    for nobody in (0, 13, 500):
        p = ragged(SIZES["uneven"], N=264, K=136, nobody=nobody)
        x, w = leaves(p)
        y = compiled(x, w, p.offs)
        y.backward(p.g)

        assert_all_right(p, y, x.grad, w.grad)


def test_a_layer_in_a_checkpoint_gives_the_bits_of_the_layer():
    torch.manual_seed(0)
    layer, p = MoEExperts(6, 136, 72, device=DEVICE), ragged(SIZES["uneven"], N=136, K=136, nobody=9)
    grads = []

    for run in (layer, partial(checkpoint, layer, use_reentrant=False)):
        x = p.x.detach().requires_grad_()
        run(x, p.offs).backward(p.g)
        grads.append([x.grad, *(parameter.grad.clone() for parameter in layer.parameters())])
        layer.zero_grad()

    assert all(same_bits(a, b) for a, b in zip(*grads, strict=True))
    assert all(grad.isfinite().all() for grad in grads[0])


@cuda_only
def test_a_whole_step_is_captured_once_and_replayed_for_other_sizes_and_values():
    held = step(STEPS[0])
    x, w = leaves(held)
    results = []

    def whole_step() -> None:
        y = grouped_mm(x, w, held.offs)
        results[:] = y.detach(), *torch.autograd.grad(y, (x, w), held.g)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        whole_step()
    torch.cuda.current_stream().wait_stream(side)
    graph = captured(whole_step)

    for seed, values in enumerate(STEPS):
        new = Ragged(offs_values=values, M=M, N=N, K=K, seed=seed)
        with torch.no_grad():
            for old, fresh in ((x, new.x), (w, new.w), (held.g, new.g), (held.offs, new.offs)):
                old.copy_(fresh)
            for result in results:
                result.fill_(math.nan)
        graph.replay()

        assert new.E == E
        assert_all_right(new, *results)


@cuda_only
def test_neither_a_forward_nor_a_backward_waits_for_the_device():
    p = step(STEPS[0])
    x, w = leaves(p)
    grouped_mm(x, w, p.offs).backward(p.g)
    x.grad = w.grad = None
    torch.cuda.synchronize()

    with waiting_is_an_error():
        y = grouped_mm(x, w, p.offs)
        y.backward(p.g)

    assert_all_right(p, y, x.grad, w.grad)


def test_a_program_that_is_asked_for_gives_the_bits_of_auto_and_nothing_stands_in():
    if DEVICE.type != "cuda":
        pytest.skip("a CPU has no program")
    p = ragged(SIZES["uneven"], N=264, K=136)

    assert same_bits(grouped_mm(p.x, p.w, p.offs), grouped_mm(p.x, p.w, p.offs, backend="sm90"))


@cuda_only
def test_what_no_program_of_the_variant_can_do_is_an_error_and_nothing_stands_in():
    p = ragged(SIZES["uneven"], N=260, K=136)

    with pytest.raises(NoProgramError, match="fwd_nondet_sm90a needs N a multiple of 8, got 260"):
        grouped_mm(p.x, p.w, p.offs, deterministic=False)


@cuda_only
def test_what_no_program_can_do_the_reference_does_and_that_is_said_once_a_reason():
    p = ragged(SIZES["uneven"], N=260, K=136, nobody=77)
    x, w = leaves(p)
    backend._say.cache_clear()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            y = grouped_mm(x, w, p.offs)
            gradients = torch.autograd.grad(y, (x, w), p.g)

    assert [warning.category for warning in caught] == [FallbackWarning] * 3
    assert all("needs N a multiple of 8, got 260" in str(warning.message) for warning in caught)
    assert_all_right(p, y, *gradients)


@pytest.mark.parametrize("name", ["grouped_mm", "grouped_mm_dgrad", "grouped_mm_wgrad"])
def test_the_operators_pass_torchs_own_checks_on_the_device(name):
    p = ragged(SIZES["an empty one at each end"], N=264, K=136)
    operands = {
        "grouped_mm": (*leaves(p), p.offs, True, "auto", BF16, None),
        "grouped_mm_dgrad": (p.g, p.w, p.offs, True, "auto", None),
        "grouped_mm_wgrad": (p.g, p.x, p.offs, True, "auto", FP32, None),
    }[name]

    torch.library.opcheck(getattr(torch.ops.cake_kernels, name).default, operands)


@every_size
@pytest.mark.parametrize("op", ["fwd", "dgrad", "wgrad"])
def test_torchs_own_keeps_our_contract(op, sizes):
    p = ragged(sizes, N=264, K=136, nobody=77)
    call = {
        "fwd": lambda: forward_call(p.x, p.w, p.offs, None, None),
        "dgrad": lambda: dgrad_call(p.g, p.w, p.offs, None, None),
        "wgrad": lambda: wgrad_call(p.g, p.x, p.offs, None, None, out_dtype=BF16, accumulate=False),
    }[op]()
    out = call.output().fill_(math.nan)

    torch_grouped_mm.run(call, out)

    p.assert_right(op, out)


def test_the_reference_that_is_asked_for_is_right():
    p = ragged(SIZES["uneven"], N=264, K=136, nobody=77)
    x, w = leaves(p)

    y = grouped_mm(x, w, p.offs, backend="reference")
    y.backward(p.g)

    assert_all_right(p, y, x.grad, w.grad)
