import pytest
import torch

from cake_kernels import grouped_gemm
from cake_kernels.errors import ArgumentError, CakeError

BF16 = torch.bfloat16


def bf16(*size):
    return torch.zeros(size, dtype=BF16)


def int32(*values):
    return torch.tensor(values, dtype=torch.int32)


X, W, G, OFFS = bf16(6, 8), bf16(2, 16, 8), bf16(6, 16), int32(2, 6)
UNIT_STRIDE = "must have unit stride along its last dimension and rows that do not overlap, got strides"

BROKEN = {
    "x no tensor": (lambda: grouped_gemm.forward([1], W, OFFS), "x must be a torch.Tensor, got list"),
    "x 3-D": (lambda: grouped_gemm.forward(bf16(1, 6, 8), W, OFFS), "x must have shape [M, K], got [1, 6, 8]"),
    "x fp32": (
        lambda: grouped_gemm.forward(X.float(), W, OFFS),
        "x must be torch.bfloat16, got torch.float32; nothing is cast here",
    ),
    "x transposed": (
        lambda: grouped_gemm.forward(bf16(8, 6).t(), W, OFFS),
        f"x {UNIT_STRIDE} (1, 6) for shape [6, 8]; pass x.contiguous()",
    ),
    "x expanded": (
        lambda: grouped_gemm.forward(bf16(1, 8).expand(6, 8), W, OFFS),
        f"x {UNIT_STRIDE} (0, 1) for shape [6, 8]; pass x.contiguous()",
    ),
    "w transposed": (
        lambda: grouped_gemm.forward(X, bf16(2, 8, 16).transpose(1, 2), OFFS),
        f"w {UNIT_STRIDE} (128, 1, 16) for shape [2, 16, 8]; pass w.contiguous()",
    ),
    "w expanded over experts": (
        lambda: grouped_gemm.forward(X, bf16(1, 16, 8).expand(2, 16, 8), OFFS),
        f"w {UNIT_STRIDE} (0, 8, 1) for shape [2, 16, 8]; pass w.contiguous()",
    ),
    "w 2-D": (lambda: grouped_gemm.forward(X, bf16(16, 8), OFFS), "w must have shape [E, N, K], got [16, 8]"),
    "w other K": (
        lambda: grouped_gemm.forward(X, bf16(2, 16, 9), OFFS),
        "w.shape[2] must be K = 8, the columns of x, got 9",
    ),
    "w other device": (
        lambda: grouped_gemm.forward(X, W.to("meta"), OFFS),
        "w must be on the device of x, cpu, got meta",
    ),
    "all on meta": (
        lambda: grouped_gemm.forward(X.to("meta"), W.to("meta"), OFFS.to("meta")),
        "x must be on a CPU or a CUDA device, got meta",
    ),
    "x sparse": (
        lambda: grouped_gemm.forward(X.to_sparse(), W, OFFS),
        "x must have the layout torch.strided, got torch.sparse_coo; pass x.to_dense()",
    ),
    "no experts but ends": (
        lambda: grouped_gemm.forward(X, bf16(0, 16, 8), OFFS),
        "offs must have one cumulative end for each of the E = 0 experts of w, got 2;"
        " a prefix that starts with 0 is passed as indptr, or without that 0",
    ),
    "N 0": (lambda: grouped_gemm.forward(X, bf16(2, 0, 8), OFFS), "N must be >= 1, got 0"),
    "K 0": (lambda: grouped_gemm.forward(bf16(6, 0), bf16(2, 16, 0), OFFS), "K must be >= 1, got 0"),
    "offs int64": (
        lambda: grouped_gemm.forward(X, W, OFFS.long()),
        "offs must be torch.int32, got torch.int64; convert it with offs.to(torch.int32)",
    ),
    "offs a prefix": (
        lambda: grouped_gemm.forward(X, W, int32(0, 2, 6)),
        "offs must have one cumulative end for each of the E = 2 experts of w, got 3;"
        " a prefix that starts with 0 is passed as indptr, or without that 0",
    ),
    "indptr without its 0": (
        lambda: grouped_gemm.dgrad(G, W, indptr=OFFS),
        "indptr must have a 0 and then one cumulative end for each of the E = 2 experts of w, 3 in all, got 2;"
        " ends without that 0 are passed as offs",
    ),
    "neither offs nor indptr": (
        lambda: grouped_gemm.forward(X, W),
        "exactly one of offs, int32 [E], and indptr, int32 [E + 1], must be given, got neither;"
        " see cake_kernels.offsets for how to make one",
    ),
    "offs and indptr": (
        lambda: grouped_gemm.wgrad(G, X, OFFS, indptr=int32(0, 2, 6)),
        "exactly one of offs, int32 [E], and indptr, int32 [E + 1], must be given, got both;"
        " see cake_kernels.offsets for how to make one",
    ),
    "out shape": (
        lambda: grouped_gemm.forward(X, W, OFFS, out=bf16(6, 15)),
        "out must have shape [M, N] = [6, 16], got [6, 15]",
    ),
    "out dtype": (
        lambda: grouped_gemm.forward(X, W, OFFS, out=torch.zeros(6, 16)),
        "out must be torch.bfloat16, got torch.float32; nothing is cast here",
    ),
    "out strides": (
        lambda: grouped_gemm.forward(X, W, OFFS, out=bf16(16, 6).t()),
        f"out {UNIT_STRIDE} (1, 6) for shape [6, 16]; pass out.contiguous()",
    ),
    "out expanded": (
        lambda: grouped_gemm.forward(X, W, OFFS, out=bf16(1, 16).expand(6, 16)),
        f"out {UNIT_STRIDE} (0, 1) for shape [6, 16]; pass out.contiguous()",
    ),
    "out device": (
        lambda: grouped_gemm.forward(X, W, OFFS, out=bf16(6, 16).to("meta")),
        "out must be on the device of x, cpu, got meta",
    ),
    "g other N": (
        lambda: grouped_gemm.dgrad(bf16(6, 15), W, OFFS),
        "w.shape[1] must be N = 15, the columns of g, got 16",
    ),
    "dgrad out shape": (
        lambda: grouped_gemm.dgrad(G, W, OFFS, out=bf16(6, 16)),
        "out must have shape [M, K] = [6, 8], got [6, 16]",
    ),
    "x other M": (
        lambda: grouped_gemm.wgrad(G, bf16(5, 8), OFFS),
        "x.shape[0] must be M = 6, the rows of g, got 5",
    ),
    "out_dtype fp16": (
        lambda: grouped_gemm.wgrad(G, X, OFFS, out_dtype=torch.float16),
        "out_dtype must be torch.bfloat16 or torch.float32, got torch.float16",
    ),
    "prepared x fp32": (
        lambda: grouped_gemm.prepare_forward(X.float(), W, OFFS),
        "x must be torch.bfloat16, got torch.float32; nothing is cast here",
    ),
    "prepared g other N": (
        lambda: grouped_gemm.prepare_dgrad(bf16(6, 15), W, OFFS),
        "w.shape[1] must be N = 15, the columns of g, got 16",
    ),
    "prepared out_dtype fp16": (
        lambda: grouped_gemm.prepare_wgrad(G, X, OFFS, out_dtype=torch.float16),
        "out_dtype must be torch.bfloat16 or torch.float32, got torch.float16",
    ),
    "operator x fp32": (
        lambda: torch.ops.cake_kernels.forward(X.float(), W, OFFS),
        "x must be torch.bfloat16, got torch.float32; nothing is cast here",
    ),
    "accumulate into nothing": (
        lambda: grouped_gemm.wgrad(G, X, OFFS, accumulate=True),
        "accumulate=True must come with out=, the tensor that the gradient is added to, got out=None",
    ),
    "wgrad out dtype": (
        lambda: grouped_gemm.wgrad(G, X, OFFS, out_dtype=torch.float32, out=bf16(2, 16, 8)),
        "out must be torch.float32, got torch.bfloat16; nothing is cast here",
    ),
    "wgrad out expanded over experts": (
        lambda: grouped_gemm.wgrad(G, X, OFFS, out=bf16(1, 16, 8).expand(2, 16, 8)),
        f"out {UNIT_STRIDE} (0, 8, 1) for shape [2, 16, 8]; pass out.contiguous()",
    ),
    "wgrad out shape": (
        lambda: grouped_gemm.wgrad(G, X, OFFS, out=bf16(3, 16, 8)),
        "out must have shape [E, N, K] = [2, 16, 8], got [3, 16, 8]",
    ),
}

NUM_SMS = "num_sms must be an int of at least 2, for a cluster of two CTAs, or None for all SMs, got"
OPS = torch.ops.cake_kernels

BROKEN |= {
    "num_sms 1": (lambda: grouped_gemm.forward(X, W, OFFS, num_sms=1), f"{NUM_SMS} 1"),
    "num_sms 0": (lambda: grouped_gemm.dgrad(G, W, OFFS, num_sms=0), f"{NUM_SMS} 0"),
    "num_sms -3": (lambda: grouped_gemm.wgrad(G, X, OFFS, num_sms=-3), f"{NUM_SMS} -3"),
    "num_sms a bool": (lambda: grouped_gemm.forward(X, W, OFFS, num_sms=True), f"{NUM_SMS} True"),
    "num_sms a float": (lambda: grouped_gemm.dgrad(G, W, OFFS, num_sms=8.0), f"{NUM_SMS} 8.0"),
    "num_sms a word": (lambda: grouped_gemm.wgrad(G, X, OFFS, num_sms="all"), f"{NUM_SMS} 'all'"),
    "prepared forward, num_sms 1": (lambda: grouped_gemm.prepare_forward(X, W, OFFS, num_sms=1), f"{NUM_SMS} 1"),
    "prepared dgrad, num_sms 1": (lambda: grouped_gemm.prepare_dgrad(G, W, OFFS, num_sms=1), f"{NUM_SMS} 1"),
    "prepared wgrad, num_sms 1": (lambda: grouped_gemm.prepare_wgrad(G, X, OFFS, num_sms=1), f"{NUM_SMS} 1"),
    "operator forward, num_sms 1": (lambda: OPS.forward(X, W, OFFS, num_sms=1), f"{NUM_SMS} 1"),
    "operator dgrad, num_sms a bool": (lambda: OPS.dgrad(G, W, OFFS, num_sms=True), f"{NUM_SMS} 1"),
    "operator wgrad, num_sms 0": (lambda: OPS.wgrad(G, X, OFFS, num_sms=0), f"{NUM_SMS} 0"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_argument_is_refused_with_name_rule_and_value(name):
    call, message = BROKEN[name]

    with pytest.raises(ArgumentError) as caught:
        call()

    assert str(caught.value) == message


@pytest.mark.parametrize("name", ["x", "w"])
def test_an_output_in_an_inputs_memory_is_refused(name):
    buffer = bf16(2 * 16 * 16 + 6 * 16)
    x, w = buffer[:96].view(6, 16), buffer[96:].view(2, 16, 16)
    out = (x if name == "x" else w.view(-1)[:96]).view(6, 16)

    with pytest.raises(ArgumentError) as caught:
        grouped_gemm.forward(x, w, OFFS, out=out)

    assert str(caught.value) == (
        f"out must not share memory with {name}, which is read while out is written; pass another tensor"
    )


def test_an_output_in_the_memory_of_the_ends_is_refused():
    buffer = torch.zeros(2 * 16 * 8 + 3, dtype=torch.int32)
    out = buffer[:-3].view(torch.float32).view(2, 16, 8)

    with pytest.raises(ArgumentError) as caught:
        grouped_gemm.wgrad(G, X, indptr=buffer[-5:-2], out_dtype=torch.float32, out=out)
    behind_out = grouped_gemm.wgrad(G, X, indptr=buffer[-3:], out_dtype=torch.float32, out=out)

    assert str(caught.value) == (
        "out must not share memory with offs (or indptr), which is read while out is written; pass another tensor"
    )
    assert behind_out is out


def test_neighbouring_parts_of_one_buffer_are_apart():
    buffer = bf16(2 * 16 * 16 + 2 * 6 * 16)
    x, out, w = buffer[:96].view(6, 16), buffer[96:192].view(6, 16), buffer[192:].view(2, 16, 16)

    assert grouped_gemm.forward(x, w, OFFS, out=out) is out


def test_nothing_is_written_when_an_argument_is_refused():
    out = torch.full((6, 16), 3.0).to(BF16)

    with pytest.raises(ArgumentError):
        grouped_gemm.forward(X, W, OFFS.long(), out=out)

    assert (out == 3).all()


def test_an_argument_error_is_also_a_value_error_and_a_cake_error():
    assert issubclass(ArgumentError, ValueError)
    assert issubclass(ArgumentError, CakeError)
