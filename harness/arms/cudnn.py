"""cuDNN's ``moe_grouped_matmul`` through its front end: the fastest of the plans that it offers for the case."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from harness.arms import Operands, Prepared, new_output
from harness.arms._fastest import fastest
from harness.arms._libraries import missing
from harness.arms._ops import pair, without_autograd
from harness.model.case import Case
from harness.model.machine import Machine
from harness.model.run import ArmInfo

DISTRIBUTION = "nvidia-cudnn-frontend"
AT_LEAST = "1.32"
FORWARD_BACKEND = 91800
WGRAD_BACKEND = 92200

# Tried on an H200 with cuDNN 9.19.0 and front end 1.32.0: "no valid engine configs" for W as dX reads it.
ROW_MAJOR_W = (
    "dX reads W row-major, for which no plan was found (tried with cuDNN 9.19.0); it would need a transposed copy of W"
)

_TOKEN, _WEIGHT, _STARTS, _OUT = 1, 2, 3, 4


class Cudnn:
    """The forward node, with w read as it lies.

    Its offsets are starts, not ends: a caller that uses cuDNN has those, so they are made once and not timed.
    """

    info = ArmInfo(
        name="cudnn",
        key="d",
        is_cake=False,
        note="moe_grouped_matmul, the fastest of its plans; start offsets made once, output and workspace preallocated",
    )

    def why_not(self, case: Case, machine: Machine) -> str | None:
        """Ask for CUDA, the front end and a recent cuDNN; refuse dX and dW."""
        if reason := without_autograd(case):
            return reason
        if machine.device != "cuda":
            return "cuDNN runs on CUDA only"
        if reason := missing(DISTRIBUTION, AT_LEAST):
            return reason
        backend = _backend(machine)
        if case.op == "dW":
            if backend < WGRAD_BACKEND:
                return f"the weight gradient needs cuDNN >= {_dotted(WGRAD_BACKEND)}, found {_dotted(backend)}"
            return f"the weight gradient of cuDNN >= {_dotted(WGRAD_BACKEND)} is not part of this arm"
        if backend < FORWARD_BACKEND:
            return f"moe_grouped_matmul needs cuDNN >= {_dotted(FORWARD_BACKEND)}, found {_dotted(backend)}"
        if case.op == "dX":
            return ROW_MAJOR_W
        if case.shape.M == 0:
            return "moe_grouped_matmul needs at least one row, got M = 0"
        return None

    def prepare(self, case: Case, operands: Operands) -> Prepared:
        """Build every plan, time each, keep the fastest."""
        import cudnn

        a, b = pair(case, operands)
        out = new_output(case, operands.offs.device)
        tensors = {
            _TOKEN: a.unsqueeze(0),
            _WEIGHT: b.transpose(1, 2),
            _STARTS: _starts(operands.offs),
            _OUT: out.unsqueeze(0),
        }
        handle = _handle(out.device)
        graph = _graph(cudnn, tensors, handle)
        plans = _build_plans(cudnn, graph)
        workspace_bytes = max(graph.get_workspace_size_plan_at_index(plan) for plan in plans)
        workspace = torch.empty(max(1, workspace_bytes), dtype=torch.uint8, device=out.device)

        def run(plan: int) -> None:
            cudnn.set_stream(handle=handle, stream=torch.cuda.current_stream(out.device).cuda_stream)
            graph.execute_plan_at_index(tensors, workspace, index=plan, handle=handle)

        best = fastest(plans, run, out.device)

        def launch() -> torch.Tensor:
            run(best)
            return out

        count = graph.get_execution_plan_count()
        declined = f", {count - len(plans)} declined" if len(plans) < count else ""
        return Prepared(launch=launch, out=out, note=f"plan {best + 1} of {count}{declined}")


def _backend(machine: Machine) -> int:
    found = machine.versions.get("cudnn", "")
    return int(found) if found.isdigit() else 0


def _dotted(backend: int) -> str:
    """91900 -> 9.19.0, the way in which cuDNN 9 counts."""
    return f"{backend // 10000}.{backend // 100 % 100}.{backend % 100}" if backend else "none"


def _starts(offs: torch.Tensor) -> torch.Tensor:
    """Return int32 starts [E, 1, 1]; for one expert, where cuDNN wants its end too, both [2, 1, 1]."""
    ends = offs if offs.numel() == 1 else offs[:-1]
    return torch.cat([offs.new_zeros(1), ends]).view(-1, 1, 1)


@cache
def _handle(device: torch.device) -> Any:
    import cudnn

    with torch.cuda.device(device):
        return cudnn.create_handle()


def _graph(cudnn: Any, tensors: dict[int, torch.Tensor], handle: Any) -> Any:
    """Return the planned graph: BF16 in and out, FP32 accumulation."""
    bf16, fp32, int32 = cudnn.data_type.BFLOAT16, cudnn.data_type.FLOAT, cudnn.data_type.INT32
    graph = cudnn.pygraph(intermediate_data_type=bf16, compute_data_type=fp32, handle=handle)

    def declare(name: str, uid: int, data_type: Any) -> Any:
        tensor = tensors[uid]
        return graph.tensor(
            name=name, dim=list(tensor.shape), stride=list(tensor.stride()), data_type=data_type, uid=uid
        )

    result = graph.moe_grouped_matmul(
        token=declare("token", _TOKEN, bf16),
        weight=declare("weight", _WEIGHT, bf16),
        first_token_offset=declare("first_token_offset", _STARTS, int32),
        token_index=None,
        token_ks=None,
        mode=cudnn.moe_grouped_matmul_mode.NONE,
        compute_data_type=fp32,
        top_k=1,
        name="moe",
    )
    out = tensors[_OUT]
    result.set_output(True).set_data_type(bf16)
    result.set_uid(_OUT).set_dim(list(out.shape)).set_stride(list(out.stride()))
    graph.validate()
    graph.build_operation_graph()
    graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
    graph.check_support()
    return graph


def _build_plans(cudnn: Any, graph: Any) -> list[int]:
    """Build every plan; a plan that declines here is no plan for this case. At least one is left, or cuDNN's error."""
    built: list[int] = []
    declined: Exception | None = None
    for plan in range(graph.get_execution_plan_count()):
        try:
            graph.build_plan_at_index(plan)
        except (cudnn.cudnnGraphNotSupportedError, NotImplementedError) as error:
            declined = error
            continue
        built.append(plan)
    if not built:
        raise RuntimeError(
            f"none of cuDNN's {graph.get_execution_plan_count()} plans can be built: {declined}"
        ) from declined
    return built


ARM = Cudnn()
