"""Every kernel on small ragged cases under compute-sanitizer: ``python -m tests.gpu.sanitizer [memcheck ...]``.

On all SMs, where the tails of wgrad are split, and on two, where a CTA computes tile after tile.

The tool comes with the CUDA toolkit and does not run on every machine. Exit codes: 0 all tools ran and are clean, 1 one
of them is not, 2 compute-sanitizer is not here. ``--inside`` runs the kernels without it, and checks their results.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from itertools import accumulate

import torch

from cake_kernels.grouped_gemm import reference
from cake_kernels.grouped_gemm.sm90.config import Kernel, kernels, whole_slabs
from cake_kernels.grouped_gemm.sm90.launch import prepare
from cake_kernels.grouped_gemm.sm90.plan import plan
from cake_kernels.grouped_gemm.sm90.walk import walk
from cake_kernels.registry import Op, OutDtype, Variant

TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
SECONDS = 400
CLEAN = re.compile(r"SUMMARY: 0 (errors|hazards)")
FOUND = 9  # exit code of compute-sanitizer where it finds something

SIZES = (65, 0, 1, 2000)
NOBODY = 70
FEW_SMS = 2
SHAPES = ((320, 448), (392, 264))  # (N, K): whole slabs, and not
PROGRAMS: tuple[tuple[Op, OutDtype, Variant], ...] = (
    ("fwd", "bf16", "det"),
    ("dgrad", "bf16", "det"),
    ("wgrad", "bf16", "det"),
    ("wgrad", "fp32", "det"),
    ("wgrad", "bf16", "nondet"),
    ("wgrad", "fp32", "nondet"),
)


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tools", nargs="*", help=f"of {', '.join(TOOLS)}; by default the first two")
    parser.add_argument("--inside", action="store_true", help="run the kernels, and no tool")
    options = parser.parse_args()
    if options.inside:
        return run_every_kernel()
    if unknown := set(options.tools) - set(TOOLS):
        parser.error(f"tools must be of {', '.join(TOOLS)}, got {', '.join(sorted(unknown))}")
    sanitizer = shutil.which("compute-sanitizer", path=f"{os.environ.get('PATH', '')}:/usr/local/cuda/bin")
    if sanitizer is None:
        print(
            "compute-sanitizer is neither on the PATH nor in /usr/local/cuda/bin: nothing was checked", file=sys.stderr
        )
        return 2
    clean = [is_clean(sanitizer, tool) for tool in options.tools or TOOLS[:2]]
    return 0 if all(clean) else 1


def is_clean(sanitizer: str, tool: str) -> bool:
    """Run the kernels under one tool, and print what it says."""
    # Two lookups of the launcher end in an error by design (docs/jit.md).
    options = ("--report-api-errors", "no", "--print-limit", "10")
    command = [sanitizer, "--tool", tool, "--error-exitcode", str(FOUND), *options]
    # Each tensor is an allocation of its own, so that its bounds are known to the tool.
    environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    try:
        done = subprocess.run(
            [*command, sys.executable, "-m", "tests.gpu.sanitizer", "--inside"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as expired:
        said = expired.output or b""
        print(said.decode(errors="replace") if isinstance(said, bytes) else said)
        print(f"{tool}: not clean, it did not end in {SECONDS} s")
        return False
    clean = done.returncode == 0 and CLEAN.search(done.stdout) is not None
    print(done.stdout)
    print(f"{tool}: {'clean' if clean else f'not clean, exit code {done.returncode}'}", flush=True)
    return clean


def run_every_kernel() -> int:
    """Run each kernel that a program may launch on one case, and compare with the reference on the host."""
    wrong = 0
    for kernel in (kernel for program in PROGRAMS for kernel in kernels(*program)):
        N, K = next(shape for shape in SHAPES if whole_slabs(kernel.op, N=shape[0], K=shape[1]) == kernel.whole_slabs)
        splits = split_tiles(kernel, N, K) if kernel.config.splits else 0
        for num_sms in (None, FEW_SMS):
            error = relative_error(kernel, N, K, num_sms)
            # A case that no longer splits a tail would show nothing about it.
            good = error <= 3e-3 and (splits > 0) == kernel.config.splits
            wrong += not good
            said = f"relative error {error:.2e} on {num_sms or 'all'} SMs" + f", {splits} tiles split" * (not num_sms)
            print(f"{kernel.name}: {'right' if good else 'WRONG'}, {said}", flush=True)
    return int(wrong > 0)


def split_tiles(kernel: Kernel, N: int, K: int) -> int:
    """Return how many tiles of the case a kernel of wgrad splits on all SMs of this device."""
    config = kernel.config
    rows, columns = config.tile_rows * config.cluster_rows, config.tile_cols * config.cluster_cols
    sizes = {"M": sum(SIZES) + NOBODY, "N": N, "K": K}
    offs = tuple(accumulate(SIZES))
    made = walk("wgrad", offs, **sizes, cluster_rows=rows, cluster_columns=columns, band=config.band)
    clusters = torch.cuda.get_device_properties(0).multi_processor_count // config.cluster_size
    return len(plan(made, clusters, split=config.splits).tickets)


def relative_error(kernel: Kernel, N: int, K: int, num_sms: int | None) -> float:
    """Return ‖out - reference‖ / ‖reference‖; operands are made on the host, so that hardly a kernel of torch runs."""
    generator = torch.Generator().manual_seed(0)
    E, M = len(SIZES), sum(SIZES) + NOBODY
    x, g, w, old = (torch.randn(size, generator=generator) for size in ((M, K), (M, N), (E, N, K), (E, N, K)))
    a, b = (t.bfloat16() for t in {"fwd": (x, w), "dgrad": (g, w), "wgrad": (g, x)}[kernel.op])
    offs = torch.tensor(SIZES).cumsum(0).int()
    dtype = torch.float32 if kernel.out_dtype == "fp32" else torch.bfloat16
    if kernel.op == "wgrad":
        expected = old.to(dtype)
    else:
        expected = torch.full((M, N if kernel.op == "fwd" else K), torch.nan, dtype=dtype)
    out = expected.cuda()

    on_device = a.cuda(), b.cuda(), offs.cuda()  # a launch keeps none of them alive
    launch = prepare(kernel.op, *on_device, out, accumulate=kernel.accumulate, num_sms=num_sms, config=kernel.config)
    launch(torch.cuda.current_stream().cuda_stream)
    torch.cuda.synchronize()

    if kernel.op == "fwd":
        reference.forward(a, b, offs, out=expected)
    elif kernel.op == "dgrad":
        reference.dgrad(a, b, offs, out=expected)
    else:
        reference.wgrad(a, b, offs, out=expected, out_dtype=dtype, accumulate=kernel.accumulate)
    return float((out.cpu().double() - expected.double()).norm() / expected.double().norm())


if __name__ == "__main__":
    raise SystemExit(main())
