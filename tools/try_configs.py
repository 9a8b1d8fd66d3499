"""Bring-up of the sm_90a kernel on a GPU: which configurations are right, and how fast they are.

::

    python tools/try_configs.py check                                  # every kernel of every program
    python tools/try_configs.py check 256x128_c1x2_s4_b8               # this configuration in every operation
    python tools/try_configs.py check 256x192_c1x2_s3_b8_whole 256x192_c1x2_s3_b4_swap_slots     # the tail by plan
    python tools/try_configs.py time fwd:gate_up:4:256x192_c1x2_s3_b8 fwd:gate_up:4:256x192_c1x2_s3_b4_swap
    python tools/try_configs.py time dgrad:down:32                     # without a configuration: the one that is chosen
    python tools/try_configs.py time dgrad:down:32r                    # groups of random sizes

``check`` compares with the FP64 product of the BF16 inputs on ragged groups, with outputs that hold NaN before and are
surrounded by guards. ``time`` is a first look by CUDA events, in blocks (S, sustained) and with idle gaps (B, boost):
TFLOP/s and the ratio to a loop of ``torch.mm`` and to ``torch._grouped_mm``; what counts is `cake-bench`.

Work is done in a child process. A check that hangs or breaks the device costs one child: the next one goes on after it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from queue import Empty, Queue
from statistics import median
from threading import Thread
from typing import IO

sys.path.insert(0, str(Path(__file__).parents[1]))

CHECK_SECONDS = 30
TIME_SECONDS = 90
START_SECONDS = 60  # importing torch and making a context, on a machine just started

SIZES = (300, 0, 17, 4483, 64, 192, 0)
NOBODY = 100  # rows past the last end
# (N, K): on the grid of slabs, off every grid, less than a tile, reductions long enough for their tails to be split
SHAPES = ((768, 640), (1032, 328), (72, 8), (384, 4096), (4096, 384))
GUARD = 8
LIMITS = {"bf16": 3e-3, "fp32": 1e-5}

PROJECTIONS = {"gate_up": (4096, 6144), "down": (6144, 2048)}
ROWS = {4: 112576, 8: 131072, 16: 131072, 32: 131072}
FLUSH_BYTES = 256 << 20
BLOCK_SECONDS = 0.35
ROUNDS = 3
BOOST_CALLS = 15


# ---- the parent: hands out work and watches ------------------------------------------------------------------------


def main() -> int:
    """Run the command; 0 if everything was right."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("check", "time"))
    parser.add_argument("what", nargs="*")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    tasks = check_tasks(options.what) if options.command == "check" else time_tasks(options.what)
    if options.child is not None:
        run = run_check if options.command == "check" else run_time
        for task in tasks[options.child :]:
            print(run(task), flush=True)
        return 0
    return watch(options.command, options.what, tasks, CHECK_SECONDS if options.command == "check" else TIME_SECONDS)


def watch(command: str, what: Sequence[str], tasks: Sequence[str], seconds: float) -> int:
    """Print what each task gives, a line from the child; a child that is silent for ``seconds`` or dies is replaced."""
    done, failed = 0, 0
    while done < len(tasks):
        child = subprocess.Popen(
            [sys.executable, __file__, command, *what, "--child", str(done)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        lines: Queue[str] = Queue()
        Thread(target=read, args=(child.stdout, lines), daemon=True).start()
        allowed, alive = seconds + START_SECONDS, True
        while alive and done < len(tasks):
            try:
                line = lines.get(timeout=allowed)
            except Empty:
                line, alive = f"{tasks[done]}: FAIL no answer in {allowed} s", False
            if not line:
                alive = False
                errors = child.communicate()[1].strip().splitlines()
                line = f"{tasks[done]}: FAIL {' | '.join(errors[-2:])[:300]}"
            print(line.replace(" | ", "\n    "), flush=True)
            failed += "FAIL" in line
            done, allowed = done + 1, seconds
        child.kill()
        child.wait()
    print(f"{len(tasks) - failed} of {len(tasks)} good")
    return int(failed > 0)


def read(pipe: IO[str], lines: Queue[str]) -> None:
    """Put each line of ``pipe``, and an empty one at its end."""
    for line in pipe:
        lines.put(line.rstrip())
    lines.put("")


# ---- check ---------------------------------------------------------------------------------------------------------


def check_tasks(names: Sequence[str]) -> list[str]:
    """Return op:out dtype:accumulate:configuration for each kernel; of the programs' if none is named."""
    from cake_kernels.errors import ArgumentError
    from cake_kernels.grouped_gemm.sm90.config import CONFIGS, Kernel

    tasks = []
    for config in [config_of(name) for name in names] or CONFIGS:
        for op, out_dtype, accumulate in (
            ("fwd", "bf16", 0),
            ("dgrad", "bf16", 0),
            ("wgrad", "bf16", 0),
            ("wgrad", "fp32", 0),
            ("wgrad", "bf16", 1),
            ("wgrad", "fp32", 1),
        ):
            try:
                Kernel(op=op, out_dtype=out_dtype, accumulate=bool(accumulate), whole_slabs=True, config=config)  # type: ignore[arg-type]
            except ArgumentError:
                continue
            tasks.append(f"{op}:{out_dtype}:{accumulate}:{config.name}")
    return tasks


def config_of(name: str):
    """Return the configuration of a name."""
    from cake_kernels.grouped_gemm.sm90.config import Config

    return Config.named(name)


def run_check(task: str) -> str:
    """Return a line: the largest relative error over the shapes, or what is wrong."""
    import torch

    op, out_dtype, accumulate, name = task.split(":")
    worst, wrong = 0.0, []
    for N, K in SHAPES:
        for nan_expert in (None, 3):
            error, faults = check_shape(
                op,
                getattr(torch, {"bf16": "bfloat16", "fp32": "float32"}[out_dtype]),
                accumulate == "1",
                config_of(name),
                N,
                K,
                nan_expert,
            )
            worst = max(worst, error)
            if not error <= LIMITS[out_dtype]:
                faults.append(f"rel-L2 {error:.2e}")
            if faults:
                wrong.append(f"N{N} K{K}{' nan' if nan_expert else ''}: {', '.join(faults)}")
    return f"{task}: " + (f"FAIL {'; '.join(wrong)}" if wrong else f"ok, rel-L2 {worst:.2e}")


def check_shape(op, dtype, accumulate, config, N, K, nan_expert):
    """Return (relative error, other faults). With ``nan_expert`` its first row is NaN, which must reach nobody else."""
    import torch

    from cake_kernels.grouped_gemm.sm90.launch import prepare

    torch.manual_seed(0)
    E, ends = len(SIZES), torch.tensor(SIZES).cumsum(0)
    used, M = int(ends[-1]), int(ends[-1]) + NOBODY
    offs = ends.to("cuda", torch.int32)
    x, g = (padded(torch.randn(M, size, device="cuda").bfloat16()) for size in (K, N))
    w = (torch.randn(E, N, K, device="cuda") * 0.05).bfloat16()
    spoilt = int(ends[nan_expert - 1]) if nan_expert else 0
    for t in (x, g):
        t[used:] = torch.nan
        if nan_expert:
            t[spoilt] = torch.nan
    a, b = {"fwd": (x, w), "dgrad": (g, w), "wgrad": (g, x)}[op]
    shape = {"fwd": (M, N), "dgrad": (M, K), "wgrad": (E, N, K)}[op]
    whole = torch.full((*shape[:-2], shape[-2] + GUARD, shape[-1] + GUARD), torch.nan, dtype=dtype, device="cuda")
    out = whole[..., : shape[-2], : shape[-1]]
    old = torch.randn(shape, device="cuda").to(dtype) if accumulate else torch.zeros(shape, dtype=dtype, device="cuda")

    runs = []
    launch = prepare(op, a, b, offs, out, accumulate=accumulate, config=config)
    for _ in range(3):
        out.copy_(old) if accumulate else out.fill_(torch.nan)
        launch(torch.cuda.current_stream().cuda_stream)
        runs.append(out.clone())
    torch.cuda.synchronize()

    expected = old.double()
    for e, (begin, end) in enumerate(pairwise((0, *ends.tolist()))):
        rows = slice(begin, end)
        if op == "wgrad":
            expected[e] += g[rows].double().t() @ x[rows].double()
        else:
            expected[rows] = a[rows].double() @ (w[e].double().t() if op == "fwd" else w[e].double())
    faults = []
    if config.tail != "atomics" and any(not torch.equal(bits(run), bits(runs[0])) for run in runs):
        faults.append("differs from run to run")
    if whole.isnan().sum() - out.isnan().sum() != whole.numel() - out.numel():
        faults.append("a guard is written")
    got = runs[0].double()
    if nan_expert:
        place = slice(nan_expert, nan_expert + 1) if op == "wgrad" else slice(spoilt, spoilt + 1)
        if not got[place].isnan().all():
            faults.append("NaN is lost")
        got[place] = expected[place] = 0
    if op != "wgrad" and got[used:].any():
        faults.append("rows of nobody are not zero")
    if op == "wgrad" and not torch.equal(bits(runs[0][1]), bits(old[1])):
        faults.append("an empty group is not left as it should be")
    bad = got.isnan()
    if bad.any():
        faults.append(f"{int(bad.sum())} NaN of {bad.numel()}, the first at {bad.nonzero()[0].tolist()}")
    return float((got - expected).norm() / expected.norm()), faults


def bits(tensor):
    """Return the tensor as integers, in which NaN equals itself."""
    import torch

    return tensor.contiguous().view({2: torch.int16, 4: torch.int32}[tensor.element_size()])


def padded(tensor):
    """Return the same values with padding of NaN after each row."""
    import torch

    whole = torch.full((tensor.shape[0], tensor.shape[1] + GUARD), torch.nan, dtype=tensor.dtype, device="cuda")
    whole[:, : tensor.shape[1]] = tensor
    return whole[:, : tensor.shape[1]]


# ---- time ----------------------------------------------------------------------------------------------------------


def time_tasks(what: Sequence[str]) -> list[str]:
    """Return op:projection:E:configuration,configuration..., a task for each op, projection and E."""
    tasks: dict[str, list[str]] = {}
    for item in what:
        op, projection, experts, *configs = item.split(":")
        tasks.setdefault(f"{op}:{projection}:{experts}", []).extend(configs)
    return [f"{key}:{','.join(configs)}" for key, configs in tasks.items()]


def run_time(task: str) -> str:
    """Return a table in one line, its rows separated by `` | ``."""
    import torch

    from cake_kernels.grouped_gemm.sm90.config import choose
    from cake_kernels.grouped_gemm.sm90.launch import prepare

    op, projection, experts, names = task.split(":")
    E, (N, K) = int(experts.removesuffix("r")), PROJECTIONS[projection]
    M = ROWS[E]
    ends = group_ends(M, E, ragged=experts.endswith("r"))
    offs = torch.tensor(ends, dtype=torch.int32, device="cuda")
    x = torch.randn(M, K, device="cuda", dtype=torch.bfloat16)
    g = torch.randn(M, N, device="cuda", dtype=torch.bfloat16)
    w = torch.randn(E, N, K, device="cuda", dtype=torch.bfloat16) * 0.02
    a, b = {"fwd": (x, w), "dgrad": (g, w), "wgrad": (g, x)}[op]
    out = torch.empty({"fwd": (M, N), "dgrad": (M, K), "wgrad": (E, N, K)}[op], device="cuda", dtype=torch.bfloat16)
    groups = list(pairwise((0, *ends)))

    def loop() -> None:
        for e, (begin, end) in enumerate(groups):
            if op == "wgrad":
                torch.mm(g[begin:end].t(), x[begin:end], out=out[e])
            else:
                torch.mm(a[begin:end], w[e].t() if op == "fwd" else w[e], out=out[begin:end])

    def grouped() -> None:
        left, right = {"fwd": (x, w.transpose(-2, -1)), "dgrad": (g, w), "wgrad": (g.t(), x)}[op]
        torch._grouped_mm(left, right, offs=offs)

    arms: dict[str, Callable[[], object]] = {"loop": loop, "torch": grouped}
    for name in names.split(",") if names else [choose(op, M=M, N=N, K=K, E=E).name]:  # type: ignore[arg-type]
        launch = prepare(op, a, b, offs, out, accumulate=False, config=config_of(name))  # type: ignore[arg-type]
        arms[name] = lambda launch=launch: launch(torch.cuda.current_stream().cuda_stream)
    sustained, boost = time_arms(arms)
    flops = 2 * M * N * K
    cells = [
        f"{name} S {flops / s / 1e9:.0f} ({sustained['loop'] / s:.3f} {sustained['torch'] / s:.3f})"
        f" B {flops / t / 1e9:.0f} ({boost['loop'] / t:.3f} {boost['torch'] / t:.3f})"
        for (name, s), t in zip(sustained.items(), boost.values(), strict=True)
    ]
    return f"{op}:{projection}:{experts}  TFLOP/s (against loop, against torch) | " + " | ".join(cells)


def group_ends(M: int, E: int, *, ragged: bool) -> list[int]:
    """Return the cumulative ends of equal groups, or of lognormal ones with a coefficient of variation of about 0.5."""
    import torch

    weights = torch.randn(E, generator=torch.Generator().manual_seed(0), dtype=torch.float64).mul(0.47).exp()
    shares = (weights if ragged else torch.ones(E, dtype=torch.float64)).cumsum(0)
    return (shares / shares[-1] * M).round().long().tolist()


def time_arms(arms: dict[str, Callable[[], object]]) -> tuple[dict[str, float], dict[str, float]]:
    """Return each arm's milliseconds, sustained and boost: median of the rounds' medians, and of the calls."""
    import torch

    flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")

    def timed(call: Callable[[], object]) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        flush.zero_()
        begin.record()
        call()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end)

    for call in arms.values():
        timed(call)
    blocks: dict[str, list[float]] = {name: [] for name in arms}
    for turn in range(ROUNDS):
        for name, call in list(arms.items())[:: -1 if turn % 2 else 1]:
            samples, stop = [], time.perf_counter() + BLOCK_SECONDS
            while time.perf_counter() < stop:
                samples.append(timed(call))
            blocks[name].append(median(samples[len(samples) // 3 :]))
    time.sleep(1)
    calls: dict[str, list[float]] = {name: [] for name in arms}
    for turn in range(BOOST_CALLS):
        for name, call in list(arms.items())[:: -1 if turn % 2 else 1]:
            time.sleep(1.2e-3 * median(blocks[name]))
            calls[name].append(timed(call))
    return {n: median(v) for n, v in blocks.items()}, {n: median(v) for n, v in calls.items()}


if __name__ == "__main__":
    raise SystemExit(main())
