import copy
import gc
import math
import pickle
import weakref

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cake_kernels import grouped_gemm
from cake_kernels.errors import ArgumentError
from cake_kernels.grouped_gemm import call as call_module

BF16 = torch.bfloat16
M, N, K, E = 12, 24, 16, 3


def randn(*size):
    return torch.randn(size, dtype=BF16)


def int32(*values):
    return torch.tensor(values, dtype=torch.int32)


CALLS = {
    "forward": ((M, K), (E, N, K), {}),
    "dgrad": ((M, N), (E, N, K), {}),
    "wgrad": ((M, N), (M, K), {}),
    "wgrad fp32": ((M, N), (M, K), {"out_dtype": torch.float32}),
}


def operands(name):
    """The functions that call and that prepare, two tensors, and the options."""
    a, b, options = CALLS[name]
    stem = name.split()[0]
    return getattr(grouped_gemm, stem), getattr(grouped_gemm, f"prepare_{stem}"), randn(*a), randn(*b), options


@pytest.mark.parametrize("name", CALLS)
def test_the_first_launch_writes_what_the_function_returns(name):
    function, prepare, a, b, options = operands(name)
    offs = int32(5, 5, 11)

    prepared = prepare(a, b, offs, **options)
    prepared.out.fill_(math.nan)

    assert prepared.launch() is prepared.out
    assert torch.equal(prepared.out, function(a, b, offs, **options))


@pytest.mark.parametrize("name", CALLS)
def test_an_output_of_the_callers_is_the_one_that_is_written(name):
    function, prepare, a, b, options = operands(name)
    out = torch.full_like(function(a, b, int32(5, 5, 11), **options), math.nan)

    prepared = prepare(a, b, int32(5, 5, 11), out=out, **options)

    assert prepared.out is out
    assert out.isnan().all()
    assert torch.equal(prepared.launch(), function(a, b, int32(5, 5, 11), **options))


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from(sorted(CALLS)),
    steps=st.lists(st.lists(st.integers(-2, M + 2), min_size=E, max_size=E), min_size=1, max_size=4),
    as_indptr=st.booleans(),
)
def test_every_launch_takes_the_values_of_its_moment(name, steps, as_indptr):
    function, prepare, a, b, options = operands(name)
    groups = torch.zeros(E + 1 if as_indptr else E, dtype=torch.int32)
    prepared = prepare(a, b, **{"indptr" if as_indptr else "offs": groups}, **options)

    for ends in steps:
        a.copy_(randn(*a.shape))
        b.copy_(randn(*b.shape))
        groups[-E:] = int32(*ends)
        prepared.launch()

        assert torch.equal(prepared.out, function(a, b, int32(*ends), **options))


def test_each_launch_of_an_accumulating_call_adds_once_more():
    g, x, offs = randn(M, N), randn(M, K), int32(5, 5, 11)
    once = grouped_gemm.wgrad(g, x, offs, out_dtype=torch.float32)
    out = torch.zeros_like(once)

    prepared = grouped_gemm.prepare_wgrad(g, x, offs, out_dtype=torch.float32, accumulate=True, out=out)
    prepared.launch()
    prepared.launch()

    assert torch.equal(out, once + once)


@pytest.mark.parametrize("name", CALLS)
def test_its_tensors_live_as_long_as_it_does(name):
    _, prepare, a, b, options = operands(name)
    indptr = int32(0, 5, 5, 11)

    prepared = prepare(a, b, indptr=indptr, **options)
    alive = [weakref.ref(tensor) for tensor in (a, b, prepared.out)]
    del a, b, indptr
    gc.collect()

    assert [ref() is None for ref in alive] == [False, False, False]
    assert prepared.inputs[2].tolist() == [5, 5, 11]

    del prepared
    gc.collect()
    assert [ref() is None for ref in alive] == [True, True, True]


@pytest.mark.parametrize("name", ["forward", "dgrad"])
def test_no_gradient_flows_through_a_launch(name):
    _, prepare, a, b, _ = operands(name)

    prepared = prepare(a.requires_grad_(), b.requires_grad_(), int32(5, 5, 11))

    assert not prepared.launch().requires_grad


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_it_is_bound_to_addresses_and_so_is_neither_copied_nor_pickled(duplicate):
    prepared = grouped_gemm.prepare_forward(randn(M, K), randn(E, N, K), int32(5, 5, 11))

    with pytest.raises(TypeError, match=r"a Prepared must not be copied or pickled, .*; prepare the call again with"):
        duplicate(prepared)


def test_what_was_checked_once_is_known_by_its_form(monkeypatch):
    checked = []
    real = call_module._check_operand
    monkeypatch.setattr(call_module, "_FORMS", {})
    monkeypatch.setattr(call_module, "_check_operand", lambda name, *rest: checked.append(name) or real(name, *rest))
    x, w = torch.zeros(6, 8, dtype=torch.bfloat16), torch.zeros(2, 16, 8, dtype=torch.bfloat16)
    offs = torch.tensor([2, 6], dtype=torch.int32)

    first, again = (call_module.forward_call(t, w, offs, None, None) for t in (x, x.clone()))

    assert again.form is first.form
    assert (first.a is x, again.a is x, again.b is w) == (True, False, True)
    assert checked == ["x", "w"]


@pytest.mark.parametrize(
    "changed",
    [
        {"x": torch.zeros(6, 16, dtype=torch.bfloat16)[:, :8]},
        {"indptr": True},
        {"x": torch.zeros(6, 8, dtype=torch.bfloat16).as_subclass(type("Other", (torch.Tensor,), {}))},
    ],
    ids=["strides", "indptr", "class"],
)
def test_another_stride_kind_of_ends_or_class_is_checked_anew(monkeypatch, changed):
    monkeypatch.setattr(call_module, "_FORMS", {})
    x, w = torch.zeros(6, 8, dtype=torch.bfloat16), torch.zeros(2, 16, 8, dtype=torch.bfloat16)
    offs = torch.tensor([2, 6], dtype=torch.int32)
    first = call_module.forward_call(x, w, offs, None, None)

    ends = (None, torch.tensor([0, 2, 6], dtype=torch.int32)) if "indptr" in changed else (offs, None)
    other = call_module.forward_call(changed.get("x", x), w, *ends, None)

    assert other.form is not first.form
    assert call_module.forward_call(x, w, offs, None, None).form is first.form


def test_each_num_sms_has_a_form_of_its_own(monkeypatch):
    monkeypatch.setattr(call_module, "_FORMS", {})
    x, g, w, offs = randn(M, K), randn(M, N), randn(E, N, K), int32(5, 5, 11)
    calls = {
        "fwd": lambda n: call_module.forward_call(x, w, offs, None, None, num_sms=n),
        "dgrad": lambda n: call_module.dgrad_call(g, w, offs, None, None, num_sms=n),
        "wgrad": lambda n: call_module.wgrad_call(g, x, offs, None, None, out_dtype=BF16, accumulate=False, num_sms=n),
    }

    for op, call in calls.items():
        forms = [call(n).form for n in (None, 2, 37, 37, 2, None)]

        assert [(form.op, form.num_sms) for form in forms] == [(op, n) for n in (None, 2, 37, 37, 2, None)]
        assert forms[:3] == forms[:2:-1]  # forms are equal where they are the same
    assert len(call_module._FORMS) == 9


def gradient_calls(g, x, w, offs, dtype=BF16, num_sms=None):
    return call_module.gradient_calls(g, x, w, offs, weight_grad_dtype=dtype, num_sms=num_sms)


@pytest.fixture
def no_pairs(monkeypatch):
    monkeypatch.setattr(call_module, "_PAIRS", {})


def test_both_gradients_are_the_calls_of_each_and_known_ones_are_looked_up_once(monkeypatch, no_pairs):
    x, g, w, offs = randn(M, K), randn(M, N), randn(E, N, K), int32(5, 5, 11)
    dgrad, wgrad = gradient_calls(g, x, w, offs, torch.float32, 37)
    assert dgrad.form is call_module.dgrad_call(g, w, offs, None, None, num_sms=37).form
    options = {"out_dtype": torch.float32, "accumulate": False, "num_sms": 37}
    assert wgrad.form is call_module.wgrad_call(g, x, offs, None, None, **options).form
    monkeypatch.delattr(call_module, "dgrad_call")
    monkeypatch.delattr(call_module, "wgrad_call")

    x, g, w, offs = x.clone(), g.clone(), w.clone(), offs.clone()
    again = gradient_calls(g, x, w, offs, torch.float32, 37)
    fewer = gradient_calls(g[:7], x[:7], w, offs, torch.float32, 37)

    assert [call.form for call in again] == [dgrad.form, wgrad.form]
    assert [(call.a is g, call.b is b, call.offs is offs) for call, b in zip(again, (w, x), strict=True)] == [
        (True, True, True)
    ] * 2
    assert [call.form for call in fewer] == [dgrad.form, wgrad.form]
    assert [(call.M, call.out_shape) for call in fewer] == [(7, (7, K)), (7, (E, N, K))]


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"w": randn(E, N, K).half()}, "w must be torch.bfloat16"),
        ({"w": randn(E, N, 2 * K)[..., ::2]}, "w must have unit stride"),
        ({"w": randn(E, N, K)[:, :-1]}, r"w\.shape\[1\] must be N"),
        ({"w": torch.zeros(E, N, K, dtype=BF16, device="meta")}, "w must be on the device of g"),
        ({"x": randn(M - 1, K)}, r"x\.shape\[0\] must be M"),
        ({"x": randn(M, 2 * K)[:, ::2]}, "x must have unit stride"),
        ({"offs": int32(5, 11)}, "offs must have one cumulative end for each"),
        ({"g": randn(M, 2 * N)[:, ::2]}, "g must have unit stride"),
        ({"num_sms": 37.0}, "num_sms must be an int"),
    ],
)
def test_known_gradients_do_not_let_a_wrong_argument_pass(no_pairs, changed, says):
    right = {"g": randn(M, N), "x": randn(M, K), "w": randn(E, N, K), "offs": int32(5, 5, 11), "num_sms": 37}
    gradient_calls(**right)

    with pytest.raises(ArgumentError, match=says):
        gradient_calls(**{**right, **changed})


@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_a_layout_that_has_no_strides_is_refused_by_its_rule():
    g, x, w, offs = randn(M, N), randn(M, K), randn(E, N, K).to_sparse_csr(), int32(5, 5, 11)

    for call in (lambda: gradient_calls(g, x, w, offs), lambda: call_module.forward_call(x, w, offs, None, None)):
        with pytest.raises(ArgumentError, match=r"w must have the layout torch.strided, got torch.sparse_csr"):
            call()


def test_gradients_of_another_stride_class_or_option_are_checked_anew(no_pairs):
    right = {"g": randn(M, N), "x": randn(M, K), "w": randn(E, N, K), "offs": int32(5, 5, 11)}
    known = [call.form for call in gradient_calls(**right)]
    wide = randn(E, N, K + 8)[..., :K]
    other = right["w"].as_subclass(type("Other", (torch.Tensor,), {}))

    assert gradient_calls(**{**right, "w": wide})[0].form not in known
    assert gradient_calls(**{**right, "w": other})[0].form not in known
    assert gradient_calls(**right, num_sms=2)[0].form not in known
    assert gradient_calls(**right, dtype=torch.float32)[1].form not in known
    assert [call.form for call in gradient_calls(**right)] == known


def test_only_so_many_pairs_of_gradients_are_kept(monkeypatch, no_pairs):
    monkeypatch.setattr(call_module, "_MOST_FORMS", 3)

    for columns in range(8, 15):
        gradient_calls(randn(6, 16), randn(6, columns), randn(2, 16, columns), int32(2, 6))

        assert len(call_module._PAIRS) == (columns - 8) % 3 + 1


@pytest.mark.parametrize("sizes", [(12, 3), (1, 1), (0, 3), (5, 0), (0, 0)])
def test_a_new_output_is_contiguous_whatever_its_size(sizes):
    rows, experts = sizes
    g, x, w, offs = randn(rows, N), randn(rows, K), randn(experts, N, K), torch.zeros(experts, dtype=torch.int32)

    for call in (call_module.forward_call(x, w, offs, None, None), *gradient_calls(g, x, w, offs)):
        assert call.output().stride() == torch.empty(call.out_shape).stride()


def test_a_known_form_does_not_let_a_wrong_argument_pass(monkeypatch):
    monkeypatch.setattr(call_module, "_FORMS", {})
    x, w = torch.zeros(6, 8, dtype=torch.bfloat16), torch.zeros(2, 16, 8, dtype=torch.bfloat16)
    offs = torch.tensor([2, 6], dtype=torch.int32)
    call_module.forward_call(x, w, offs, None, None)

    for arguments, says in (
        ((x.half(), w, offs, None, None), "x must be torch.bfloat16"),
        ((x, w, offs.long(), None, None), "offs must be torch.int32"),
        ((x, w, offs, offs, None), "exactly one of offs"),
        ((x, w, offs, None, torch.zeros(6, 15, dtype=torch.bfloat16)), "out must have shape"),
        ((x, w, offs, None, x), "out must"),
    ):
        with pytest.raises(ArgumentError, match=says):
            call_module.forward_call(*arguments)
    call_module.forward_call(x, w, offs, None, None, num_sms=2)
    with pytest.raises(ArgumentError, match=r"num_sms must be an int of at least 2, .* got 2\.0"):
        call_module.forward_call(x, w, offs, None, None, num_sms=2.0)


def test_only_so_many_forms_are_kept(monkeypatch):
    monkeypatch.setattr(call_module, "_FORMS", {})
    monkeypatch.setattr(call_module, "_MOST_FORMS", 3)
    offs = torch.tensor([2, 6], dtype=torch.int32)

    for columns in range(8, 15):
        w = randn(2, 16, columns)
        for rows in range(6, 12):
            call = call_module.forward_call(randn(rows, columns), w, offs, None, None)

            assert (call.M, call.form.K, call.out_shape) == (rows, columns, (rows, 16))

    (first,) = call_module._FORMS.values()
    assert first.K == 14


@pytest.mark.parametrize("name", CALLS)
def test_calls_that_differ_by_their_rows_are_checked_once(monkeypatch, name):
    _, prepare, a, b, options = operands(name)
    monkeypatch.setattr(call_module, "_FORMS", {})
    prepare(a, b, int32(5, 5, 11), **options)
    monkeypatch.delattr(call_module, "_check_operand")

    for rows in (5, 7, 5):
        other = b[:rows] if "wgrad" in name else b
        out = prepare(a[:rows].clone(), other, int32(2, 2, 4), **options).launch()

        assert out.shape == ((E, N, K) if "wgrad" in name else (rows, N if name == "forward" else K))
    assert len(call_module._FORMS) == 1


@pytest.mark.parametrize("rows", [0, 1])
def test_one_row_and_none_are_checked_anew_since_their_strides_mean_nothing(monkeypatch, rows):
    monkeypatch.setattr(call_module, "_FORMS", {})
    w, offs = randn(2, 16, 8), int32(0, rows)
    call_module.forward_call(randn(rows, 8).as_strided((rows, 8), (4, 1)), w, offs, None, None)

    with pytest.raises(ArgumentError, match="x must have unit stride along its last dimension and rows that do not"):
        call_module.forward_call(randn(6, 8).as_strided((6, 8), (4, 1)), w, offs, None, None)


def test_operands_of_wgrad_with_other_rows_than_each_other_are_refused_though_both_are_known(monkeypatch):
    monkeypatch.setattr(call_module, "_FORMS", {})
    g, x, offs = randn(M, N), randn(M, K), int32(5, 5, 11)
    grouped_gemm.wgrad(g, x, offs)

    with pytest.raises(ArgumentError, match=r"x\.shape\[0\] must be M = 12, the rows of g, got 11"):
        grouped_gemm.wgrad(g, x[:11], offs)


def test_more_rows_than_offs_can_name_are_refused_though_the_form_is_known(monkeypatch, no_pairs):
    monkeypatch.setattr(call_module, "_FORMS", {})
    monkeypatch.setattr(call_module, "MAX_ROWS", M)
    x, g, w, offs = randn(M + 1, K), randn(M + 1, N), randn(E, N, K), int32(5, 5, 11)
    calls = (
        lambda rows: call_module.forward_call(x[:rows], w, offs, None, None),
        lambda rows: call_module.dgrad_call(g[:rows], w, offs, None, None),
        lambda rows: grouped_gemm.wgrad(g[:rows], x[:rows], offs),
        lambda rows: gradient_calls(g[:rows], x[:rows], w, offs),
    )

    for call in calls:
        call(M)
        with pytest.raises(ArgumentError, match="M must be at most 12, the most that int32 offs can name, got 13"):
            call(M + 1)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("forward", {"deterministic": "no"}, "deterministic must be a bool, got 'no'"),
        ("dgrad", {"deterministic": None}, "deterministic must be a bool, got None"),
        ("wgrad", {"deterministic": 1}, "deterministic must be a bool, got 1"),
        ("wgrad", {"accumulate": "yes"}, "accumulate must be a bool, got 'yes'"),
        ("wgrad", {"out_dtype": []}, r"out_dtype must be torch.bfloat16 or torch.float32, got \[\]"),
        ("wgrad", {"out_dtype": torch.float16}, "out_dtype must be torch.bfloat16 or torch.float32, got torch.float16"),
    ],
)
def test_an_option_of_another_type_is_an_error_with_rule_and_value(name, options, message):
    function, prepare, a, b, _ = operands(name)

    for call in (function, prepare):
        with pytest.raises(ArgumentError, match=message):
            call(a, b, int32(5, 5, 11), **options)
