"""Sizes past what 32 bits count: elements of a tensor, and rows of one sum."""

import pytest
import torch

from cake_kernels.grouped_gemm.sm90.config import kernels
from tests.gpu.ragged import BF16, DTYPES, FP32, OPS, Guarded, cuda_only, kernels_of_slabs, ragged

pytestmark = [pytest.mark.gpu, cuda_only]

every_op = pytest.mark.parametrize(("op", "dtype"), OPS, ids=["fwd", "dgrad", "wgrad-bf16", "wgrad-fp32"])


@pytest.fixture(autouse=True)
def free_memory():
    """Give back the blocks that one test leaves, since the next one needs them in one piece."""
    yield
    torch.cuda.empty_cache()


@pytest.mark.parametrize("kernel", kernels_of_slabs("wgrad"), ids=lambda kernel: kernel.name)
def test_a_sum_of_136064_rows_is_accumulated_in_fp32(kernel):
    # pytorch/torchtitan#2338.
    problem = ragged((0, 136_064, 0), N=640, K=768)

    problem.assert_right("wgrad", problem.computed("wgrad", DTYPES[kernel.out_dtype], config=kernel.config))


@pytest.mark.parametrize(
    "kernel", [kernel for kernel in kernels("wgrad", "fp32") if kernel.accumulate], ids=lambda kernel: kernel.name
)
def test_what_is_added_of_136064_rows_is_accumulated_in_fp32(kernel):
    problem = ragged((0, 136_064, 0), N=640 if kernel.whole_slabs else 648, K=768)
    out = Guarded.randn((problem.E, problem.N, problem.K), FP32, seed=7)
    old = out.inner.clone()

    problem.run("wgrad", out.inner, accumulate=True, config=kernel.config)

    problem.assert_right("wgrad", out.inner, old=old, experts=[1])
    assert torch.equal(out.inner[[0, 2]], old[[0, 2]])
    out.assert_intact()


# One of the ragged tensors has 2.2e9 elements: 2^31 are crossed in row 349,525, inside group 3 and inside a tile.
@pytest.mark.parametrize(("N", "K"), [(6144, 64), (64, 6144)])
@every_op
def test_rows_past_2_to_the_31_elements_are_right(op, dtype, N, K):
    # deepseek-ai/DeepGEMM#226, vllm-project/vllm#48398, linkedin/Liger-Kernel#1248, deepspeedai/DeepSpeed#8261.
    sizes = (1000, 348_000, 500, 100, 0, 9_001, 1_333)
    problem = ragged(sizes, N=N, K=K, nobody=66)

    problem.assert_right(op, problem.computed(op, dtype), experts=(0, 2, 3, 4, 5, 6))


# 2^31 elements are crossed inside expert 36.
@every_op
def test_experts_past_2_to_the_31_elements_are_right(op, dtype):
    problem = ragged([33 + expert % 3 for expert in range(64)], N=14336, K=4096, nobody=1)

    problem.assert_right(op, problem.computed(op, dtype), experts=(0, 35, 36, 37, 63))


@pytest.mark.parametrize("dtype", [BF16, FP32])
def test_accumulation_past_2_to_the_31_elements_is_right(dtype):
    problem = ragged([33 + expert % 3 for expert in range(64)], N=14336, K=4096)
    experts = [0, 36, 63]
    out = Guarded.canaries((64, 14336, 4096), dtype)
    out.inner.fill_(0.5)

    problem.run("wgrad", out.inner, accumulate=True)

    old = torch.full((1,), 0.5, dtype=dtype, device=out.inner.device).expand(64)[:, None, None]
    problem.assert_right("wgrad", out.inner, old=old, experts=experts)
    out.assert_intact()
