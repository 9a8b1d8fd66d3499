"""quack's varlen GEMM, the fastest of its configurations: rows ragged (varlen_m) for fwd and dX, else the reduction."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor
from typing import Any

import torch

from harness.arms import Operands, Prepared, new_output
from harness.arms._fastest import fastest
from harness.arms._libraries import missing
from harness.arms._ops import pair, without_autograd
from harness.model.case import Case
from harness.model.machine import Machine
from harness.model.run import ArmInfo

DISTRIBUTION = "quack-kernels"
AT_LEAST = "0.6.5"

POLL_S = 0.01
"""Between two looks at what quack's workers have compiled."""

STALLED_S = 600.0
"""Without one more configuration compiled, the workers are taken to hang; quack's tuner waits 300 s for each."""


class Quack:
    """``quack.gemm_interface.gemm_tuned.fn`` in the fastest configuration of those that quack's tuner would try.

    quack's own tuner times 250 calls of each and keeps the winner of a shape, whatever its groups. Here each row has
    its own, chosen as a plan of cuDNN's is.
    """

    info = ArmInfo(
        name="quack",
        key="q",
        is_cake=False,
        note="quack varlen GEMM, the fastest of its configurations; prefix offsets made once, output preallocated",
    )

    def why_not(self, case: Case, machine: Machine) -> str | None:
        """Ask for CUDA, the library, a row, and rows that TMA can address."""
        if reason := without_autograd(case):
            return reason
        if machine.device != "cuda":
            return "quack runs on CUDA only"
        if reason := missing(DISTRIBUTION, AT_LEAST):
            return reason
        if case.shape.M == 0:
            return "quack's kernels need at least one row, got M = 0"
        for name, value in (("N", case.shape.N), ("K", case.shape.K)):
            if value % 8:
                return f"quack needs rows of whole 16 bytes: {name} must be a multiple of 8, got {value}"
        return None

    def prepare(self, case: Case, operands: Operands) -> Prepared:
        """Make the prefix, allocate the output, compile and time quack's configurations, keep the fastest."""
        from quack.gemm_interface import gemm_tuned, prune_invalid_gemm_configs

        first, second = pair(case, operands)
        a = first.t() if case.op == "dW" else first
        b = second.mT if case.op == "fwd" else second
        out = new_output(case, operands.offs.device)
        prefix = torch.cat([operands.offs.new_zeros(1), operands.offs])
        ragged = {"cu_seqlens_k" if case.op == "dW" else "cu_seqlens_m": prefix}
        offered = [each.kwargs["config"] for each in prune_invalid_gemm_configs(gemm_tuned.configs, {"A": a, **ragged})]

        def run(config: Any) -> None:
            gemm_tuned.fn(a, b, out, config=config, **ragged)

        usable = _usable(offered, run)
        best = fastest(usable, run, out.device)

        def launch() -> torch.Tensor:
            run(best)
            return out

        declined = f", {len(offered) - len(usable)} declined" if len(usable) < len(offered) else ""
        return Prepared(launch=launch, out=out, note=f"{_named(best)}, of {len(offered)}{declined}")


def _usable(offered: Sequence[Any], run: Callable[[Any], None]) -> list[Any]:
    """Return the configurations that run here, as offered, compiled by quack's workers side by side; or the error."""
    from quack.cache import CompilePending, pool_scope

    usable: list[Any] = []
    declined: Exception | None = None
    waiting = deque(offered)
    since = time.monotonic()
    with pool_scope():
        while waiting:
            config = waiting.popleft()
            try:
                run(config)
            except CompilePending as pending:
                waiting.append(config)
                if time.monotonic() - since > STALLED_S:
                    text = f"quack's workers finished none of {len(waiting)} configurations in {STALLED_S:g} s"
                    raise TimeoutError(f"{text}; one: {pending}") from None
                time.sleep(POLL_S)
                continue
            except BrokenExecutor:  # a RuntimeError of the workers, not of the configuration
                raise
            except (RuntimeError, MemoryError) as error:  # what quack's tuner takes for "cannot run here"
                declined = error
            else:
                usable.append(config)
            since = time.monotonic()
    if not usable:
        raise RuntimeError(f"none of quack's {len(offered)} configurations runs: {declined}") from declined
    return [config for config in offered if config in usable]


def _named(config: Any) -> str:
    """Return tile, cluster and kind of a configuration: ``128x256 c2x1 cooperative``."""
    kind = "ping-pong" if config.pingpong else "cooperative"
    swapped = " swapped" if config.swap_ab else ""
    return f"{config.tile_m}x{config.tile_n} c{config.cluster_m}x{config.cluster_n} {kind}{swapped}"


ARM = Quack()
