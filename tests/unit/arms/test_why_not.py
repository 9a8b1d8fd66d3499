"""Coverage limits are printed, so their words are tested; why_not is asked here for machines that are not there."""

import importlib.metadata

import pytest

from cake_kernels import registry
from harness import arms
from harness.arms import _libraries

NOT_X86 = (
    "dgrad_det_sm90a computes dgrad; dgrad_nondet_sm90a is nondet; fwd_det_sm90a computes fwd;"
    " fwd_nondet_sm90a is nondet; wgrad_bf16_det_sm90a is compiled for sm_90a; wgrad_bf16_nondet_sm90a is nondet;"
    " wgrad_fp32_det_sm90a is compiled for sm_90a; wgrad_fp32_nondet_sm90a is nondet"
)
NO_AUTOGRAD = "has no autograd form, and a checkpointed training step goes through autograd"


@pytest.fixture
def installed(monkeypatch):
    """Return a function that says which distributions are installed, and no others."""

    def pretend(**versions):
        def version(distribution):
            try:
                return versions[distribution.replace("-", "_")]
            except KeyError:
                raise importlib.metadata.PackageNotFoundError(distribution) from None

        monkeypatch.setattr(_libraries, "version", version)

    pretend()
    return pretend


@pytest.mark.parametrize("op", ["ckpt", "ckpt ES"])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_an_arm_of_single_products_does_no_training_step(op, device, new_case, new_machine, installed):
    answers = {name: arms.load(name).why_not(new_case(op), new_machine(device)) for name in arms.names()}

    refusing = [name for name, reason in answers.items() if reason == NO_AUTOGRAD]
    assert refusing == ["cublas_loop", "cublas_loop_graph", "cudnn", "quack"]


@pytest.mark.parametrize("op", ["ckpt", "ckpt ES"])
def test_a_training_step_asks_for_what_its_three_products_ask(op, new_case, new_machine, installed):
    cpu, cuda = new_machine("cpu"), new_machine("cuda")

    on_cuda = ("cake_det", "cake_nondet", "torch_grouped_mm")
    assert [arms.load(name).why_not(new_case(op), cuda) for name in on_cuda] == [None] * 3
    assert [arms.load(name).why_not(new_case(op), cpu) for name in ("cublas_loop_autograd", "reference")] == [None] * 2
    assert arms.load("torch_grouped_mm").why_not(new_case(op, N=12), cpu) == (
        "torch._grouped_mm needs rows of whole 16 bytes: N must be a multiple of 8, got 12"
    )


def test_a_product_that_no_program_does_is_the_reason_against_the_step(new_case, new_machine, monkeypatch):
    fwd_and_dgrad = tuple(program for program in registry.programs() if program.op != "wgrad")
    monkeypatch.setattr(registry, "programs", lambda: fwd_and_dgrad)

    assert arms.load("cake_det").why_not(new_case("ckpt ES"), new_machine("cuda")) == (
        "no program for wgrad (det, bf16 out) on sm_90a: dgrad_det_sm90a computes dgrad; dgrad_nondet_sm90a is nondet;"
        " fwd_det_sm90a computes fwd; fwd_nondet_sm90a is nondet"
    )


@pytest.mark.parametrize(
    ("name", "device", "case", "reason"),
    [
        ("torch_grouped_mm", "cpu", {}, None),
        ("torch_grouped_mm", "cuda", {"op": "dW"}, None),
        (
            "torch_grouped_mm",
            "cuda",
            {"op": "dW", "out_dtype": "fp32"},
            "torch._grouped_mm cannot give FP32 dW from BF16 inputs",
        ),
        ("torch_grouped_mm", "cuda", {"sizes": (0, 0)}, "torch._grouped_mm needs at least one row, got M = 0"),
        ("torch_grouped_mm", "cuda", {"sizes": (1,) * 1023}, None),
        (
            "torch_grouped_mm",
            "cuda",
            {"sizes": (1,) * 1024},
            "torch._grouped_mm takes at most 1023 groups on CUDA, got E = 1024",
        ),
        ("torch_grouped_mm", "cpu", {"sizes": (1,) * 1024}, None),
        ("torch_grouped_mm", "cpu", {"N": 12}, None),
        (
            "torch_grouped_mm",
            "cpu",
            {"K": 20},
            "torch._grouped_mm needs rows of whole 16 bytes: K must be a multiple of 8, got 20",
        ),
        (
            "torch_grouped_mm",
            "cpu",
            {"N": 12, "op": "dX"},
            "torch._grouped_mm needs rows of whole 16 bytes: N must be a multiple of 8, got 12",
        ),
        (
            "torch_grouped_mm",
            "cpu",
            {"K": 20, "op": "dW"},
            "torch._grouped_mm needs rows of whole 16 bytes: K must be a multiple of 8, got 20",
        ),
        ("cublas_loop", "cpu", {"op": "dW"}, None),
        ("cublas_loop", "cuda", {"op": "dW", "out_dtype": "fp32"}, None),
        (
            "cublas_loop",
            "cpu",
            {"op": "dW", "out_dtype": "fp32"},
            "torch.mm gives FP32 from BF16 inputs on CUDA only",
        ),
        ("cublas_loop_graph", "cpu", {}, "CUDA graphs need a CUDA device"),
        ("cublas_loop_graph", "cuda", {}, None),
        ("cublas_loop_graph", "cuda", {"sizes": (0, 0)}, "a graph of no kernels cannot be captured, got M = 0"),
        ("cublas_loop_graph", "cuda", {"sizes": (0, 0), "op": "dW"}, None),
        ("cublas_loop_autograd", "cpu", {"op": "dX"}, None),
        (
            "cublas_loop_autograd",
            "cuda",
            {"op": "dW", "out_dtype": "fp32"},
            "autograd gives the gradient of a BF16 weight in BF16, not FP32",
        ),
        ("reference", "cpu", {"op": "dW", "out_dtype": "fp32"}, None),
        ("cake_det", "cuda", {}, None),
        ("cake_nondet", "cuda", {"op": "dX"}, None),
        ("cake_nondet", "cuda", {"op": "dW", "out_dtype": "fp32"}, None),
        (
            "cake_det",
            "cpu",
            {"op": "dW", "out_dtype": "fp32"},
            f"no program for wgrad (det, fp32 out) on x86_64: {NOT_X86}",
        ),
        ("cudnn", "cpu", {}, "cuDNN runs on CUDA only"),
        (
            "cudnn",
            "cuda",
            {},
            "nvidia-cudnn-frontend is not installed; pip install 'nvidia-cudnn-frontend>=1.32'",
        ),
        ("quack", "cpu", {}, "quack runs on CUDA only"),
        ("quack", "cuda", {}, "quack-kernels is not installed; pip install 'quack-kernels>=0.6.5'"),
    ],
)
def test_the_reason_names_what_is_missing(name, device, case, reason, new_case, new_machine, installed):
    assert arms.load(name).why_not(new_case(**case), new_machine(device)) == reason


@pytest.mark.parametrize(
    ("frontend", "backend", "case", "reason"),
    [
        ("1.32.0", "91900", {}, None),
        (
            "1.32.0",
            "91900",
            {"op": "dX"},
            "dX reads W row-major, for which no plan was found (tried with cuDNN 9.19.0); it would need a"
            " transposed copy of W",
        ),
        ("1.32.0", "91900", {"op": "dW"}, "the weight gradient needs cuDNN >= 9.22.0, found 9.19.0"),
        (
            "1.32.0",
            "92201",
            {"op": "dW"},
            "the weight gradient of cuDNN >= 9.22.0 is not part of this arm",
        ),
        ("1.14.1", "91900", {}, "needs nvidia-cudnn-frontend >= 1.32, found 1.14.1"),
        ("1.32.0", "91002", {}, "moe_grouped_matmul needs cuDNN >= 9.18.0, found 9.10.2"),
        ("1.32.0", "None", {}, "moe_grouped_matmul needs cuDNN >= 9.18.0, found none"),
        ("1.32.0", "91900", {"sizes": (0,)}, "moe_grouped_matmul needs at least one row, got M = 0"),
    ],
)
def test_cudnn_names_the_version_found_and_wanted(frontend, backend, case, reason, new_case, new_machine, installed):
    installed(nvidia_cudnn_frontend=frontend)

    assert arms.load("cudnn").why_not(new_case(**case), new_machine("cuda", cudnn=backend)) == reason


@pytest.mark.parametrize(
    ("version", "case", "reason"),
    [
        ("0.6.5", {"op": "dW", "out_dtype": "fp32"}, None),
        ("0.10.0", {}, None),
        ("0.6.4", {}, "needs quack-kernels >= 0.6.5, found 0.6.4"),
        ("0.6.5", {"sizes": (0, 0)}, "quack's kernels need at least one row, got M = 0"),
        ("0.6.5", {"N": 12}, "quack needs rows of whole 16 bytes: N must be a multiple of 8, got 12"),
    ],
)
def test_quack_names_the_version_found_and_wanted(version, case, reason, new_case, new_machine, installed):
    installed(quack_kernels=version)

    assert arms.load("quack").why_not(new_case(**case), new_machine("cuda")) == reason


def test_torchs_own_refusal_is_the_reason_given(new_case, new_machine):
    """Where torch_grouped_mm gives a reason for K, torch raises; where it gives none, torch runs."""
    import torch

    from harness.operands import make_operands

    arm, cpu = arms.load("torch_grouped_mm"), torch.device("cpu")
    for op in ("fwd", "dX", "dW"):
        for N, K in ((16, 24), (12, 24), (16, 20), (12, 20)):
            case = new_case(op, N=N, K=K)
            prepared = arm.prepare(case, make_operands(case, seed=0, device=cpu))
            if arm.why_not(case, new_machine()) is None:
                prepared.launch()
                continue
            with pytest.raises(RuntimeError, match="multiple of 16 bytes"):
                prepared.launch()
