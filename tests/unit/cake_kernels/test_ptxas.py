"""What the compiler's log says of a kernel."""

import pytest

from cake_kernels.errors import CompileError
from cake_kernels.ptxas import Resources, read_log

LOG = """\
ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to a call
ptxas info    : (C7508) Some other words in a later version.
ptxas info    : (C7519) warpgroup.arrive is injected in around line 206 by compiler
ptxas info    : 24 bytes gmem
ptxas info    : Compiling entry function 'gemm' for 'sm_90a'
ptxas info    : Function properties for gemm
ptxas         .     48 bytes stack frame, 40 bytes spill stores, 32 bytes spill loads
ptxas info    : Used 168 registers, used 4 barriers, 48 bytes cumulative stack size, 1024 bytes smem
ptxas info    : Compile time = 30.101 ms
ptxas info    : Function properties for callee
ptxas         .     0 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads
ptxas info    : Compiling entry function 'plain' for 'sm_90a'
ptxas info    : Function properties for plain
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers"""

LOSSES = tuple(LOG.splitlines()[:2])


def test_a_kernels_figures_are_its_own_and_its_callees() -> None:
    assert read_log(LOG, symbol="gemm", origin="gemm.cu") == Resources(
        registers=168, spill_store_bytes=44, spill_load_bytes=40, static_smem_bytes=1024, losses=LOSSES
    )


def test_a_kernel_without_shared_memory_has_none() -> None:
    assert read_log(LOG, symbol="plain", origin="gemm.cu") == Resources(
        registers=8, spill_store_bytes=0, spill_load_bytes=0, static_smem_bytes=0, losses=LOSSES
    )


@pytest.mark.parametrize(("log", "seen"), [(LOG, "gemm, plain"), ("", "none")])
def test_a_source_without_the_kernel_is_an_error_with_those_it_has(log: str, seen: str) -> None:
    with pytest.raises(CompileError) as caught:
        read_log(log, symbol="absent", origin="gemm.cu")

    assert str(caught.value) == f"gemm.cu does not compile:\nit has no kernel 'absent'; ptxas saw {seen}"


@pytest.mark.parametrize("missing", ["Used 8 registers, used 0 barriers", "0 bytes spill stores, 0 bytes spill loads"])
def test_a_log_in_other_words_is_an_error(missing: str) -> None:
    head, entry, rest = LOG.rpartition("ptxas info    : Compiling entry")

    with pytest.raises(CompileError, match="ptxas must give the registers and spills of 'plain', it says:"):
        read_log(head + entry + rest.replace(missing, ""), symbol="plain", origin="gemm.cu")
