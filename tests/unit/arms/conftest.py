"""Builders of cases and machines for tests of arms."""

import pytest

from harness.model.case import Case
from harness.model.machine import Machine
from harness.model.shape import Shape


@pytest.fixture
def new_case():
    """Return a function that makes a case from the operation, the group sizes, N and K."""

    def make(op="fwd", sizes=(3, 0, 5), N=16, K=24, out_dtype="bf16"):
        shape = Shape(
            name="test", row_class="adhoc", N=N, K=K, group_sizes=sizes, distribution="given", source="a test"
        )
        return Case(suite="adhoc", op=op, shape=shape, out_dtype=out_dtype)

    return make


@pytest.fixture
def new_machine():
    """Return a function that makes a CPU or CUDA machine with the given library versions."""

    def make(device="cpu", **versions):
        return Machine(
            device=device,
            product="test",
            arch="sm_90a" if device == "cuda" else "x86_64",
            units=132,
            cache_bytes=1 << 20,
            memory_bytes=1 << 30,
            peak_flops=None,
            peak_bytes_per_s=None,
            peak_source="none",
            versions=versions,
        )

    return make
