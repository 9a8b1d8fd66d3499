import pytest
import torch
from functorch.compile import aot_function, nop
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._python_dispatch import TorchDispatchMode

from cake_kernels import grouped_mm
from cake_kernels.errors import ArgumentError, NoProgramError
from tests.unit.cake_kernels.test_dispatch_mode import Watching
from tests.unit.cake_kernels.test_grouped_mm import BF16, Inputs, ops

OPS = torch.ops.cake_kernels


def gradients(function, p):
    x, w = p.leaves()
    y = function(x, w, p.offs)
    y.backward(p.g)
    return y.detach(), x.grad, w.grad


def same(one, other):
    return all(torch.equal(a.nan_to_num(9.0), b.nan_to_num(9.0)) for a, b in zip(one, other, strict=True))


def test_below_a_mode_each_product_is_one_operator_with_the_same_bits(calls):
    p = Inputs()
    expected = gradients(grouped_mm, p)
    calls.clear()

    with Watching() as watching:
        got = gradients(grouped_mm, p)

    ours = [operator for operator in watching.seen if operator.namespace == "cake_kernels"]
    assert ours == [OPS.grouped_mm.default, OPS.grouped_mm_dgrad.default, OPS.grouped_mm_wgrad.default]
    assert ops(calls) == ["fwd", "dgrad", "wgrad"]
    assert same(got, expected)


def test_below_a_mode_each_product_may_occupy_num_sms(calls):
    with Watching():
        gradients(lambda *given: grouped_mm(*given, num_sms=37), Inputs())

    assert [(call.form.op, call.form.num_sms) for call in calls] == [("fwd", 37), ("dgrad", 37), ("wgrad", 37)]


@pytest.mark.parametrize(
    "change",
    [torch.Tensor.relu_, lambda y: y.mul_(2), lambda y: y[2:].mul_(3), lambda y: y.t()[1].zero_()],
    ids=["relu_", "mul_", "a view's mul_", "a column's zero_"],
)
def test_below_a_mode_a_result_may_be_changed_in_place(change):
    p = Inputs()

    def then_changed(x, w, offs):
        y = grouped_mm(x, w, offs)
        change(y)
        return y

    expected = gradients(then_changed, p)
    with Watching():
        got = gradients(then_changed, p)

    assert same(got, expected)


def test_below_a_mode_a_result_counts_its_versions_and_is_new():
    p = Inputs()
    x, w = p.leaves()

    with Watching():
        y = grouped_mm(x, w, p.offs)
        held = y.detach()
        y.add_(1)

    assert (held._version, y._version) == (1, 1)
    assert y._base is None
    assert y.is_contiguous()


class Allocating(TorchDispatchMode):
    """Holds the storage of each result, by its address."""

    def __init__(self):
        super().__init__()
        self.storages = {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        self.storages[result.data_ptr()] = result.untyped_storage()
        return result


def test_below_a_mode_one_element_is_allocated_beside_the_result():
    p = Inputs()
    x, w = p.leaves()

    with Allocating() as allocating:
        y = grouped_mm(x, w, p.offs)

    assert sorted(storage.nbytes() for storage in allocating.storages.values()) == [BF16.itemsize, y.nbytes]


def test_below_a_mode_hooks_of_a_result_are_called_and_its_gradient_may_be_retained():
    p = Inputs()
    x, w = p.leaves()
    seen = []

    with Watching():
        y = grouped_mm(x, w, p.offs)
        y.register_hook(seen.append)
        y.retain_grad()
        y.backward(p.g)

    assert same(seen, [p.g])
    assert same([y.grad], [p.g])
    assert same([x.grad, w.grad], gradients(grouped_mm, p)[1:])


def test_below_a_mode_the_same_is_saved_once():
    p = Inputs()
    x, w = p.leaves()
    packed = []

    with Watching(), torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t.data_ptr()) or t, lambda t: t):
        grouped_mm(x, w, p.offs)

    assert packed == [x.data_ptr(), w.data_ptr(), p.offs.data_ptr()]


@pytest.mark.parametrize("without", [torch.no_grad, torch.inference_mode])
def test_below_a_mode_and_without_grad_no_gradient_is_promised(without):
    p = Inputs()
    x, w = p.leaves()

    with Watching(), without():
        y = grouped_mm(x, w, p.offs)

    assert not y.requires_grad
    assert y.is_inference() == (without is torch.inference_mode)
    assert same([y], gradients(grouped_mm, p)[:1])


def test_below_a_mode_two_uses_in_one_graph_add_their_gradients():
    p = Inputs()

    def twice(x, w, offs):
        return grouped_mm(x, w, offs) + grouped_mm(x, w, offs)

    expected = gradients(twice, p)
    with Watching():
        assert same(gradients(twice, p), expected)


def test_below_a_mode_a_retained_graph_gives_the_same_gradients_again_without_a_forward(calls):
    p = Inputs()
    leaves = p.leaves()

    with Watching():
        y = grouped_mm(*leaves, p.offs)
        first = torch.autograd.grad(y, leaves, p.g, retain_graph=True)
        second = torch.autograd.grad(y, leaves, p.g)

    assert same(first, second)
    assert ops(calls) == ["fwd", "dgrad", "wgrad", "dgrad", "wgrad"]


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_below_a_mode_anomaly_detection_finds_nothing():
    p = Inputs(M=9)  # no row is nobody's, and so none is NaN
    expected = gradients(grouped_mm, p)

    with Watching(), torch.autograd.detect_anomaly():
        assert same(gradients(grouped_mm, p), expected)


def test_below_a_mode_a_second_derivative_is_an_error():
    p = Inputs(M=9)
    x, w = p.leaves()

    with Watching():
        (first,) = torch.autograd.grad(grouped_mm(x, w, p.offs).square().sum(), x, create_graph=True)
        with pytest.raises(NoProgramError, match="must not be differentiated again"):
            first.sum().backward()


def test_below_a_mode_a_broken_argument_is_refused_before_an_operator_is_called():
    p = Inputs()

    with Watching() as watching, pytest.raises(ArgumentError, match=r"w must have shape \[E, N, K\], got \[\]"):
        grouped_mm(p.x, torch.tensor(1.0, dtype=BF16), p.offs)

    assert OPS.grouped_mm.default not in watching.seen


def test_the_form_of_a_step_is_known_without_values():
    p = Inputs()
    real = (*p.leaves(), p.offs)

    with FakeTensorMode() as fake:
        x, w, offs = map(fake.from_tensor, real)
        y = grouped_mm(x, w, offs)
        y.backward(torch.empty_like(y))

    assert (y.shape, y.stride(), y.dtype) == ((p.M, p.N), (p.N, 1), BF16)
    assert (x.grad.shape, w.grad.shape) == (p.x.shape, p.w.shape)


@pytest.mark.parametrize("tracing_mode", ["real", "symbolic"])
def test_a_traced_step_is_our_three_operators_and_gives_the_same_bits(tracing_mode):
    p = Inputs()

    def step(x, w, offs, g):
        y = grouped_mm(x, w, offs)
        return y.detach(), *torch.autograd.grad(y, (x, w), g)

    traced = make_fx(step, tracing_mode=tracing_mode)(*p.leaves(), p.offs, p.g)

    called = [node.target for node in traced.graph.nodes if node.op == "call_function"]
    assert [target for target in called if getattr(target, "namespace", "") == "cake_kernels"] == [
        OPS.grouped_mm.default,
        OPS.grouped_mm_dgrad.default,
        OPS.grouped_mm_wgrad.default,
    ]
    assert same(traced(p.x, p.w, p.offs, p.g), gradients(grouped_mm, p))


@pytest.mark.parametrize("rows", ["of a mask", "of a number"])
def test_the_number_of_rows_may_be_a_symbol_without_a_value(rows):
    p = Inputs()
    env = ShapeEnv(allow_dynamic_output_shape_ops=True, allow_scalar_outputs=True)

    real = (*p.leaves(), p.offs)
    with FakeTensorMode(shape_env=env) as fake:
        x, w, offs = map(fake.from_tensor, real)
        mask = torch.empty(p.M, dtype=torch.bool)
        chosen = x[mask] if rows == "of a mask" else torch.empty(mask.sum().item(), p.K, dtype=BF16)
        y = grouped_mm(chosen, w, offs)
        y.backward(torch.empty_like(y))

    assert not isinstance(y.shape[0], int)
    assert y.shape == (chosen.shape[0], p.N)
    assert w.grad.shape == p.w.shape


def test_traced_ahead_of_time_it_gives_the_same_bits():
    p = Inputs()

    assert same(gradients(aot_function(grouped_mm, nop), p), gradients(grouped_mm, p))
