from functools import partial
from shutil import which

import pytest
import torch
import torch._dynamo.testing

from cake_kernels import grouped_mm
from cake_kernels.errors import ArgumentError
from tests.unit.cake_kernels.test_grouped_mm import (
    BF16,
    FP32,
    Inputs,
    assert_near,
    int32,
    ops,
    row_padded,
)

OPS = torch.ops.cake_kernels


@pytest.fixture(autouse=True)
def no_test_sees_what_another_has_compiled():
    torch.compiler.reset()


def arguments(name, make=torch.clone):
    p = Inputs()
    x, w, g = make(p.x.nan_to_num()), make(p.w), make(p.g.nan_to_num())
    return {
        "grouped_mm": (x, w, p.offs, True, "auto", BF16, 37),
        "grouped_mm_dgrad": (g, w, p.offs, True, "auto", 37),
        "grouped_mm_wgrad": (g, x, p.offs, True, "auto", FP32, None),
    }[name]


@pytest.mark.parametrize("make", [torch.clone, row_padded])
@pytest.mark.parametrize("name", ["grouped_mm", "grouped_mm_dgrad", "grouped_mm_wgrad"])
def test_the_operators_pass_torchs_own_checks(name, make):
    torch.library.opcheck(getattr(OPS, name).default, arguments(name, make))


def test_the_operator_with_gradients_passes_torchs_own_checks():
    x, w, *others = arguments("grouped_mm")

    torch.library.opcheck(OPS.grouped_mm.default, (x.requires_grad_(), w.requires_grad_(), *others))


@pytest.mark.parametrize("name", ["grouped_mm", "grouped_mm_dgrad", "grouped_mm_wgrad"])
def test_the_form_of_a_result_is_known_without_values_and_is_the_real_one(name):
    given = arguments(name, row_padded)

    real = getattr(OPS, name)(*given)
    form = getattr(OPS, name)(*(a.to("meta") if isinstance(a, torch.Tensor) else a for a in given))

    assert (form.shape, form.stride(), form.dtype) == (real.shape, real.stride(), real.dtype)


def of_a_view(x, w, offs):
    return grouped_mm(x, w.transpose(-2, -1), offs)


def gradients(function, p, *, by=None):
    x, w = p.leaves()
    y = function(x, w, p.offs)
    y.backward(p.g) if by is None else by(y).backward()
    return y.detach(), x.grad, w.grad


INDUCTOR = pytest.param(
    "inductor",
    marks=(
        pytest.mark.skipif(not which("g++"), reason="torch's inductor compiles for a CPU with g++, not found here"),
        pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # torch's own, of what it imports
    ),
)
BACKENDS = ["aot_eager", INDUCTOR]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("function", [grouped_mm, of_a_view])
def test_compiled_it_is_one_graph_for_any_number_of_rows_with_the_same_bits(calls, function, backend):
    graphs = torch._dynamo.testing.CompileCounterWithBackend(backend)
    compiled = torch.compile(function, backend=graphs, fullgraph=True, dynamic=True)

    for M in (10, 13, 31):
        p = Inputs(M=M)
        expected = gradients(function, p)
        calls.clear()
        got = gradients(compiled, p)

        assert ops(calls) == ["fwd", "dgrad", "wgrad"]
        assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))
    assert graphs.frame_count == 1


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("p", [Inputs(ends=(0, 0), M=0), Inputs(ends=(), M=6)], ids=["no rows", "no experts"])
def test_compiled_without_rows_or_experts_it_gives_zeros_or_nothing(p, backend):
    got = gradients(torch.compile(grouped_mm, backend=backend, fullgraph=True), p)

    assert [t.shape for t in got] == [p.g.shape, p.x.shape, p.w.shape]
    assert not any(t.any() for t in got)


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_the_forward_and_both_gradients_may_occupy_num_sms(calls, dynamic):
    compiled = torch.compile(grouped_mm, backend="aot_eager", fullgraph=True, dynamic=dynamic)

    for num_sms in (37, 100, None):
        gradients(partial(compiled, num_sms=num_sms), Inputs())

    assert [call.form.num_sms for call in calls] == [37] * 3 + [100] * 3 + [None] * 3


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_num_sms_is_refused_when_the_code_runs(dynamic):
    p = Inputs()
    compiled = torch.compile(grouped_mm, backend="aot_eager", fullgraph=True, dynamic=dynamic)

    with pytest.raises(ArgumentError, match=r"num_sms must be an int of at least 2, .* got 1"):
        compiled(p.x, p.w, p.offs, num_sms=1)


def scalar():
    return torch.tensor(1.0, dtype=BF16)


BROKEN = {
    "x a scalar": lambda x, w, offs: (scalar(), w, offs),
    "x a batch": lambda x, w, offs: (x[None], w, offs),
    "x fp32": lambda x, w, offs: (x.float(), w, offs),
    "x transposed": lambda x, w, offs: (x.t().contiguous().t(), w, offs),
    "w a scalar": lambda x, w, offs: (x, scalar(), offs),
    "w of one expert": lambda x, w, offs: (x, w[0], offs),
    "w a batch": lambda x, w, offs: (x, w[None], offs),
    "w other K": lambda x, w, offs: (x, w[..., :9], offs),
    "w without rows": lambda x, w, offs: (x, w[:, :0], offs),
    "offs a prefix": lambda x, w, offs: (x, w, int32(0, 4, 4, 9)),
    "offs a batch": lambda x, w, offs: (x, w, offs[None]),
    "offs int64": lambda x, w, offs: (x, w, offs.long()),
}


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", BROKEN)
def test_compiled_operands_that_break_a_rule_are_refused_by_the_error_of_eager_code(name, dynamic, requires_grad):
    p = Inputs()
    x, w, offs = BROKEN[name](p.x, p.w, p.offs)
    given = x.detach().requires_grad_(requires_grad), w.detach().requires_grad_(requires_grad), offs
    compiled = torch.compile(grouped_mm, backend="aot_eager", fullgraph=True, dynamic=dynamic)

    with pytest.raises(ArgumentError) as eager:
        grouped_mm(*given)
    with pytest.raises(ArgumentError) as caught:
        compiled(*given)

    assert str(caught.value) == str(eager.value)


def test_compiled_operands_may_be_right_again_after_a_call_that_was_refused():
    p = Inputs()
    expected = gradients(grouped_mm, p)
    compiled = torch.compile(grouped_mm, backend="aot_eager", fullgraph=True, dynamic=True)

    with pytest.raises(ArgumentError, match=r"w.shape\[2\] must be K = 16, the columns of x, got 9"):
        compiled(p.leaves()[0], p.w[..., :9].clone().requires_grad_(), p.offs)

    assert all(torch.equal(a, b) for a, b in zip(gradients(compiled, p), expected, strict=True))


@pytest.mark.parametrize("name", ["x", "w", "offs"])
def test_an_operand_on_meta_is_refused_and_never_a_result_that_nobody_wrote(name):
    p = Inputs()
    given = {"x": p.x, "w": p.w, "offs": p.offs}
    given[name] = given[name].to("meta")

    with pytest.raises(ArgumentError, match=r"must be on the device of x, (cpu|meta), got (cpu|meta)"):
        OPS.grouped_mm(*given.values(), True, "auto", BF16, None)
    with pytest.raises(Exception, match=r"must be on the device of x, (cpu|meta), got (cpu|meta)"):
        torch.compile(grouped_mm, backend="aot_eager", fullgraph=True)(*given.values())


@pytest.mark.parametrize("value", [None, 1])
def test_compiled_deterministic_is_a_bool_too(value):
    p = Inputs()
    compiled = torch.compile(lambda *given: grouped_mm(*given, deterministic=value), backend="aot_eager")

    with pytest.raises(ArgumentError, match=f"deterministic must be a bool, got {value!r}"):
        compiled(p.x, p.w, p.offs)


@pytest.mark.parametrize("make", [torch.clone, row_padded])
def test_compiled_nothing_is_asked_of_the_number_of_rows(make):
    graphs = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(grouped_mm, backend=graphs, fullgraph=True, dynamic=False)

    for M in (10, 13, 2048):
        p = Inputs(M=M)
        x, w = make(p.x).detach().requires_grad_(), p.leaves()[1]
        torch._dynamo.mark_dynamic(x, 0)  # an error where a trace asks which number it is
        compiled(x, w, p.offs).backward(p.g)
        assert torch.equal(w.grad, gradients(grouped_mm, p)[2])

    assert graphs.frame_count == 1


SELECTIONS = {
    "rows": lambda p, x, w: (x[torch.arange(p.M) % 2 == 0], w, p.offs),
    "rows of wider ones": lambda p, x, w: (x[torch.arange(p.M) % 2 == 0][:, :8], w[..., :8], p.offs),
    "experts": lambda p, x, w: (x, w[torch.arange(3) != 1], p.offs[torch.arange(3) != 1]),
}


@pytest.mark.parametrize("name", SELECTIONS)
def test_compiled_sizes_may_be_symbols_without_a_value(name):
    p = Inputs()

    def function(x, w, _offs):
        return grouped_mm(*SELECTIONS[name](p, x, w))

    results = []
    for run in (function, torch.compile(function, backend="aot_eager", fullgraph=True)):
        x, w = p.leaves()
        with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
            y = run(x, w, p.offs)
        y.sum().backward()
        results.append((y.detach(), x.grad, w.grad))

    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_compiled_it_takes_an_expanded_gradient():
    p = Inputs(M=9)
    compiled = torch.compile(grouped_mm, backend="aot_eager", fullgraph=True)

    y, dx, dw = gradients(compiled, p, by=torch.sum)

    y64, dx64, dw64 = p.fp64(torch.ones_like(p.g))
    for value, expected in ((y, y64), (dx, dx64), (dw, dw64)):
        assert_near(value, expected)


def test_compiled_under_autocast_gradients_have_the_leaves_types():
    p = Inputs()
    x, w = p.x.float().requires_grad_(), p.w.clone().requires_grad_()

    with torch.autocast("cpu", dtype=BF16):
        y = torch.compile(grouped_mm, backend="aot_eager", fullgraph=True)(x, w, p.offs)
    y.backward(p.g)

    assert (y.dtype, x.grad.dtype, w.grad.dtype) == (BF16, FP32, BF16)
    assert_near(w.grad, p.fp64()[2])


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")  # torch's own, on first use
@pytest.mark.parametrize("of", ["x", "w"])
def test_compiled_forward_mode_is_refused_rather_than_a_tangent_dropped(of):
    p = Inputs()
    given = {"x": p.x, "w": p.w, "offs": p.offs}

    def tangent(values):
        return torch.func.jvp(lambda values: grouped_mm(**{**given, of: values}), (values,), (values,))

    with pytest.raises(Exception, match="x and w must have no tangents"):
        torch.compile(tangent, backend="aot_eager", fullgraph=True)(given[of])


@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")  # torch's own
def test_compiled_under_vmap_each_slice_is_a_launch_of_its_own_with_the_same_bits(calls):
    p = Inputs()
    _, dx, dw = gradients(grouped_mm, p)
    x, w = p.x.expand(2, -1, -1).clone().requires_grad_(), p.leaves()[1]
    calls.clear()

    def sliced(x, w, offs):
        return torch.vmap(lambda one: grouped_mm(one, w, offs))(x)

    y = torch.compile(sliced, backend="aot_eager", fullgraph=True)(x, w, p.offs)
    y.backward(torch.stack([p.g, torch.zeros_like(p.g)]))

    assert sorted(ops(calls)) == ["dgrad", "dgrad", "fwd", "fwd", "wgrad", "wgrad"]
    assert torch.equal(x.grad[0], dx)
    assert not x.grad[1].any()
    assert torch.equal(w.grad, dw)


def test_compiled_an_fp32_weight_gradient_is_refused_rather_than_rounded():
    p = Inputs()
    x, w = p.leaves()
    w.grad_dtype = FP32
    compiled = torch.compile(
        lambda x, w, offs: grouped_mm(x, w, offs, weight_grad_dtype=FP32), backend="aot_eager", fullgraph=True
    )

    with pytest.raises(Exception, match="weight_grad_dtype must be None in compiled code"):
        compiled(x, w, p.offs)
