import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
import torch

import cake_kernels
from cake_kernels import errors, grouped_gemm
from cake_kernels.grouped_gemm import ops

BF16 = torch.bfloat16
OPS = torch.ops.cake_kernels


def randn(*size):
    return torch.randn(size, dtype=BF16)


def row_padded(*size):
    return randn(*size[:-1], size[-1] + 8)[..., : size[-1]]


OFFS = torch.tensor([3, 3, 5], dtype=torch.int32)
SIZES = {"x": (6, 16), "g": (6, 24), "w": (3, 24, 16)}
FUNCTIONS = {
    "forward": ("xw", {}),
    "dgrad": ("gw", {"deterministic": False}),
    "wgrad": ("gx", {"out_dtype": torch.float32, "num_sms": 37}),
}


def operands(name, make=randn):
    names, options = FUNCTIONS[name]
    return *(make(*SIZES[n]) for n in names), OFFS, options


def overload(name):
    return getattr(OPS, name).default


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("make", [randn, row_padded])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functional_operators_pass_torchs_own_checks(name, make, requires_grad):
    a, b, offs, options = operands(name, make)

    torch.library.opcheck(overload(name), (a.requires_grad_(requires_grad), b, offs), options)


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_out_operators_pass_torchs_own_checks(name, requires_grad):
    a, b, offs, options = operands(name)
    out = row_padded(*getattr(grouped_gemm, name)(a, b, offs).shape)

    torch.library.opcheck(
        overload(f"{name}_out"),
        (a.requires_grad_(requires_grad), b, offs, out),
        {"accumulate": True, "num_sms": 37}
        if name == "wgrad"
        else {"deterministic": options.get("deterministic", True), "num_sms": None},
    )


OPTIONS = "bool deterministic=True, SymInt? num_sms=None"


@pytest.mark.parametrize(
    ("name", "schema"),
    [
        ("forward", f"(Tensor x, Tensor w, Tensor offs, *, {OPTIONS}) -> Tensor"),
        ("dgrad", f"(Tensor g, Tensor w, Tensor offs, *, {OPTIONS}) -> Tensor"),
        ("wgrad", f"(Tensor g, Tensor x, Tensor offs, *, ScalarType out_dtype=15, {OPTIONS}) -> Tensor"),
        ("forward_out", f"(Tensor x, Tensor w, Tensor offs, Tensor(a3!) out, *, {OPTIONS}) -> ()"),
        ("dgrad_out", f"(Tensor g, Tensor w, Tensor offs, Tensor(a3!) out, *, {OPTIONS}) -> ()"),
        ("wgrad_out", f"(Tensor g, Tensor x, Tensor offs, Tensor(a3!) out, *, bool accumulate=False, {OPTIONS}) -> ()"),
    ],
)
def test_what_an_operator_takes(name, schema):
    assert str(overload(name)._schema) == f"cake_kernels::{name}{schema}"


@pytest.mark.parametrize("suffix", ["", "_out"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_operator_hands_num_sms_on(monkeypatch, name, suffix):
    a, b, offs, _ = operands(name)
    out = (getattr(grouped_gemm, name)(a, b, offs),) if suffix else ()
    seen, prepare = [], ops.prepare
    monkeypatch.setattr(ops, "prepare", lambda call, **rest: seen.append(call.form.num_sms) or prepare(call, **rest))

    for num_sms in (2, 37, None):
        getattr(OPS, name + suffix)(a, b, offs, *out, num_sms=num_sms)

    assert seen == [2, 37, None]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_operator_returns_what_the_function_returns(name):
    a, b, offs, options = operands(name)

    result = getattr(OPS, name)(a, b, offs, **options)

    assert torch.equal(result, getattr(grouped_gemm, name)(a, b, offs, **options))
    assert not result.requires_grad


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_out_operator_writes_out_in_its_type_and_returns_nothing(name):
    a, b, offs, options = operands(name)
    expected = getattr(grouped_gemm, name)(a, b, offs, **options)
    out = torch.full_like(expected, torch.nan)
    before = out._version

    assert getattr(OPS, f"{name}_out")(a, b, offs, out) is None

    assert torch.equal(out, expected)
    assert out._version > before


def test_wgrad_out_adds_when_it_accumulates():
    g, x, offs, options = operands("wgrad")
    once = grouped_gemm.wgrad(g, x, offs, **options)
    out = once.clone()

    OPS.wgrad_out(g, x, offs, out, accumulate=True)

    assert torch.equal(out, once + once)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_form_of_a_result_is_known_without_values_and_is_the_real_one(name):
    a, b, offs, options = operands(name, row_padded)

    real = getattr(OPS, name)(a, b, offs, **options)
    form = getattr(OPS, name)(a.to("meta"), b.to("meta"), offs.to("meta"), **options)

    assert (form.shape, form.stride(), form.dtype) == (real.shape, real.stride(), real.dtype)
    assert form.device.type == "meta"


def test_no_gradient_flows_and_none_is_promised():
    x, w, offs, _ = operands("forward")

    y = OPS.forward(x.requires_grad_(), w.requires_grad_(), offs)

    assert not y.requires_grad
    assert y.grad_fn is None


def test_an_operator_is_one_node_of_a_compiled_graph_for_any_number_of_rows():
    seen = []

    def backend(graph, _):
        seen.append([str(node.target) for node in graph.graph.nodes if node.op == "call_function"])
        return graph

    compiled = torch.compile(lambda x, w, offs: OPS.forward(x, w, offs), backend=backend, fullgraph=True, dynamic=True)
    w = randn(*SIZES["w"])

    for rows in (6, 9):
        x = randn(rows, 16)
        assert torch.equal(compiled(x, w, OFFS), grouped_gemm.forward(x, w, OFFS))
    assert seen == [["cake_kernels.forward"]]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_traced_operator_has_a_form_for_any_operands_and_refuses_them_when_it_runs(name):
    (a, _, offs, options), scalar = operands(name), torch.tensor(1.0, dtype=BF16)
    compiled = torch.compile(lambda *given: getattr(OPS, name)(*given, **options), backend="aot_eager", fullgraph=True)

    for given in ((a, scalar), (scalar, a)):
        with pytest.raises(errors.ArgumentError, match=r"must have shape \["):
            compiled(*given, offs)


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_operand_on_meta_is_refused_and_never_a_result_that_nobody_wrote(name, place):
    *given, options = operands(name)
    given[place] = given[place].to("meta")

    with pytest.raises(errors.ArgumentError, match=r"must be on the device of [xg], (cpu|meta), got (cpu|meta)"):
        getattr(OPS, name)(*given, **options)


@pytest.fixture(scope="module", params=["cake_kernels_again", "cake_kernels-r1"])
def again(request):
    """The package, imported under another name beside itself."""
    name, before = request.param, set(sys.modules)
    path = Path(cake_kernels.__file__)
    spec = spec_from_file_location(name, path, submodule_search_locations=[str(path.parent)])
    package = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(package)
    yield package
    for new in set(sys.modules) - before:
        if new == name or new.startswith(f"{name}."):
            del sys.modules[new]


def test_two_imports_under_two_names_have_an_operator_each(again):
    x, w, offs, _ = operands("forward")

    theirs = again.grouped_gemm.ops.NAMESPACE

    assert ops.NAMESPACE == "cake_kernels"
    assert theirs == again.__name__.replace("-", "_")
    assert torch.equal(getattr(torch.ops, theirs).forward(x, w, offs), OPS.forward(x, w, offs))
    assert torch.equal(again.grouped_gemm.forward(x, w, offs), grouped_gemm.forward(x, w, offs))


def test_two_imports_each_run_their_own_code(again):
    x, w, offs, _ = operands("forward")
    namespace = getattr(torch.ops, again.grouped_gemm.ops.NAMESPACE)
    their_error = sys.modules[f"{again.__name__}.errors"].ArgumentError

    with pytest.raises(errors.ArgumentError):
        OPS.forward(x.float(), w, offs)
    with pytest.raises(their_error):
        namespace.forward(x.float(), w, offs)
    assert their_error is not errors.ArgumentError
