"""Which program a CUDA call reaches. Fake tensors carry a CUDA device's name without the device."""

from types import SimpleNamespace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from cake_kernels import grouped_gemm, registry
from cake_kernels.device import DeviceFacts
from cake_kernels.errors import NoProgramError
from cake_kernels.grouped_gemm import call as call_module
from cake_kernels.registry import Problem, Program


@pytest.fixture
def fake_cuda(monkeypatch):
    facts = DeviceFacts(name="fake", arch="sm_90a", sms=132, l2_bytes=1, smem_bytes=1)
    monkeypatch.setattr(call_module, "facts", lambda index: facts)
    with FakeTensorMode():
        yield {
            "x": torch.empty(6, 8, dtype=torch.bfloat16, device="cuda:0"),
            "g": torch.empty(6, 16, dtype=torch.bfloat16, device="cuda:0"),
            "w": torch.empty(2, 16, 8, dtype=torch.bfloat16, device="cuda:0"),
            "offs": torch.empty(2, dtype=torch.int32, device="cuda:0"),
        }


@pytest.mark.parametrize(
    ("function", "operands", "options", "asked"),
    [
        ("forward", "xw", {}, "fwd (det, bf16 out)"),
        ("dgrad", "gw", {"deterministic": False}, "dgrad (nondet, bf16 out)"),
        ("wgrad", "gx", {"out_dtype": torch.float32}, "wgrad (det, fp32 out)"),
    ],
)
def test_on_cuda_without_a_program_the_call_is_an_error_not_the_reference(
    fake_cuda, function, operands, options, asked
):
    a, b = (fake_cuda[name] for name in operands)

    with pytest.raises(NoProgramError) as caught:
        getattr(grouped_gemm, function)(a, b, fake_cuda["offs"], **options)

    assert str(caught.value) == (
        f"no program for {asked} on sm_90a: this version of cake_kernels has none;"
        " the executable contract, slow and on any device, is cake_kernels.grouped_gemm.reference"
    )


def test_on_cuda_the_program_gets_the_checked_tensors_and_the_output(fake_cuda, monkeypatch):
    launched, problems = [], []

    def refuse(problem):
        problems.append(problem)

    def prepare(a, b, offs, out, *, accumulate):
        return lambda stream: launched.append((a, b, offs, out, accumulate, stream))

    program = Program(
        stem="p",
        op="wgrad",
        variant="det",
        arch="sm_90a",
        out_dtype="fp32",
        refuse=refuse,
        prepare=prepare,
        builds=tuple,
    )
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=77))
    monkeypatch.setattr(registry, "programs", lambda: (program,))
    g, x, offs = fake_cuda["g"], fake_cuda["x"], fake_cuda["offs"]

    out = grouped_gemm.wgrad(g, x, offs, out_dtype=torch.float32)

    assert [[id(t) for t in call[:4]] for call in launched] == [[id(g), id(x), id(offs), id(out)]]
    assert launched[0][4:] == (False, 77)
    assert (out.dtype, tuple(out.shape), out.device.type) == (torch.float32, (2, 16, 8), "cuda")
    assert problems == [Problem(op="wgrad", out_dtype="fp32", arch="sm_90a", M=6, N=16, K=8, E=2, accumulate=False)]
