"""The ``cublas_loop`` captured in a CUDA graph: the same kernels without the host's time between them."""

from __future__ import annotations

import torch

from harness.arms import Operands, Output, Prepared
from harness.arms._ops import without_autograd
from harness.arms.cublas_loop import loop
from harness.model.case import Case
from harness.model.machine import Machine
from harness.model.run import ArmInfo

WARM_UP_CALLS = 3


class CublasLoopGraph:
    """Replays the loop; the group sizes are baked into the graph."""

    info = ArmInfo(
        name="cublas_loop_graph",
        key="g",
        is_cake=False,
        note="cublas_loop captured in a CUDA graph; group sizes baked in at capture",
    )

    def why_not(self, case: Case, machine: Machine) -> str | None:
        """Ask for CUDA, and for something to capture."""
        if reason := without_autograd(case):
            return reason
        if machine.device != "cuda":
            return "CUDA graphs need a CUDA device"
        if case.shape.M == 0 and case.op != "dW":
            return "a graph of no kernels cannot be captured, got M = 0"
        return None

    def prepare(self, case: Case, operands: Operands) -> Prepared:
        """Warm up on a side stream, as torch asks before a capture (cuBLAS makes its workspace there), then capture."""
        eager = loop(case, operands)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP_CALLS):
                eager.launch()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = eager.launch()

        def launch() -> Output:
            graph.replay()
            return out

        return Prepared(launch=launch, out=eager.out)


ARM = CublasLoopGraph()
