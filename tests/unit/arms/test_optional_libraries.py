"""cuDNN and quack replaced by stand-ins that compute, from the views that arms pass, what the libraries document."""

import sys
from itertools import pairwise
from types import ModuleType, SimpleNamespace

import pytest
import torch

from harness import arms
from harness.arms import cudnn as cudnn_arm
from harness.operands import make_operands

CPU = torch.device("cpu")
CASES = [("fwd", "bf16"), ("dX", "bf16"), ("dW", "bf16"), ("dW", "fp32")]


def expected(case, operands):
    return arms.load("reference").prepare(case, operands).launch()


def quack_gemm(A, B, out=None, *, cu_seqlens_m=None, cu_seqlens_k=None, tuned):
    """Row-ragged: A (total_M, K), B (L, K, N); reduction-ragged: A (M, total_K) m-major, B (total_K, N) n-major."""
    assert tuned
    bounds = (cu_seqlens_k if cu_seqlens_m is None else cu_seqlens_m).tolist()
    assert bounds[0] == 0
    for i, rows in enumerate(slice(*pair) for pair in pairwise(bounds)):
        if cu_seqlens_m is not None:
            assert A.stride(-1) == 1
            out[rows] = A[rows].float() @ B[i].float()
        else:
            assert A.stride(-2) == 1
            assert B.stride(-1) == 1
            out[i] = A[:, rows].float() @ B[rows].float()
    return out


@pytest.mark.parametrize(("op", "out_dtype"), CASES)
def test_quack_gets_prefix_offsets_and_views_in_its_layout(op, out_dtype, new_case, monkeypatch):
    interface = ModuleType("quack.gemm_interface")
    interface.gemm = quack_gemm
    monkeypatch.setitem(sys.modules, "quack", ModuleType("quack"))
    monkeypatch.setitem(sys.modules, "quack.gemm_interface", interface)
    case = new_case(op, (3, 0, 5), out_dtype=out_dtype)
    operands = make_operands(case, seed=0, device=CPU)

    arm = arms.load("quack").prepare(case, operands)

    assert arm.launch() is arm.out
    assert torch.equal(arm.out, expected(case, operands))


class FakeTensor:
    """What a graph knows of a tensor; setters chain."""

    def __init__(self, uid=None, dim=None, stride=None):
        self.uid, self.dim, self.stride = uid, dim, stride

    def set_output(self, output):
        return self

    def set_data_type(self, data_type):
        return self

    def set_uid(self, uid):
        self.uid = uid
        return self

    def set_dim(self, dim):
        self.dim = dim
        return self

    def set_stride(self, stride):
        self.stride = stride
        return self


class NotSupported(Exception):
    pass


class FakeGraph:
    """Plans 0..3, of which 1 declines; computes from declared dims, strides and addresses as cuDNN does."""

    def __init__(self, **settings):
        self.settings = settings

    def tensor(self, *, name, dim, stride, data_type, uid):
        return FakeTensor(uid, dim, stride)

    def moe_grouped_matmul(self, *, token, weight, first_token_offset, **options):
        self.inputs = (token, weight, first_token_offset)
        self.result = FakeTensor()
        return self.result

    def validate(self):
        pass

    build_operation_graph = check_support = validate

    def create_execution_plans(self, modes):
        self.modes = modes

    def get_execution_plan_count(self):
        return 4

    def build_plan_at_index(self, plan):
        if plan == 1:
            raise NotSupported("plan 1")

    def get_workspace_size_plan_at_index(self, plan):
        return 100 * plan

    def execute_plan_at_index(self, pack, workspace, *, index, handle):
        assert workspace.numel() == 300
        views = [pack[t.uid].as_strided(t.dim, t.stride) for t in (*self.inputs, self.result)]
        token, weight, starts, out = views
        starts = starts.flatten().tolist()
        ends = [*starts[1:], token.shape[1]] if weight.shape[0] > 1 else starts[1:]
        for e, (start, end) in enumerate(zip(starts, ends, strict=False)):
            out[0, start:end] = token[0, start:end].float() @ weight[e].float()


@pytest.fixture
def fake_cudnn(monkeypatch):
    names = SimpleNamespace(BFLOAT16="bf16", FLOAT="fp32", INT32="int32", A="a", FALLBACK="fallback", NONE="none")
    module = ModuleType("cudnn")
    module.data_type = module.heur_mode = module.moe_grouped_matmul_mode = names
    module.pygraph, module.cudnnGraphNotSupportedError = FakeGraph, NotSupported
    module.set_stream = lambda *, handle, stream: None
    monkeypatch.setitem(sys.modules, "cudnn", module)
    monkeypatch.setattr(cudnn_arm, "_handle", lambda device: "handle")
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=0))
    offered = []

    def fastest(plans, run, device):
        offered.append(plans)
        return plans[-1]

    monkeypatch.setattr(cudnn_arm, "_fastest", fastest)
    return offered


@pytest.mark.parametrize("sizes", [(3, 0, 5), (0, 7), (6,)], ids=str)
def test_cudnn_gets_starts_and_w_where_it_lies(sizes, new_case, fake_cudnn):
    case = new_case("fwd", sizes)
    operands = make_operands(case, seed=0, device=CPU)

    arm = cudnn_arm.ARM.prepare(case, operands)

    assert arm.launch() is arm.out
    assert torch.equal(arm.out, expected(case, operands))


def test_cudnn_chooses_among_the_plans_that_can_be_built_and_notes_which(new_case, fake_cudnn):
    case = new_case("fwd")

    arm = cudnn_arm.ARM.prepare(case, make_operands(case, seed=0, device=CPU))

    assert fake_cudnn == [[0, 2, 3]]
    assert arm.note == "plan 4 of 4, 1 declined"


def test_cudnn_without_a_plan_raises_with_cudnns_own_error(new_case, fake_cudnn, monkeypatch):
    def decline(self, plan):
        raise NotSupported("no kernel image")

    monkeypatch.setattr(FakeGraph, "build_plan_at_index", decline)
    case = new_case("fwd")

    with pytest.raises(RuntimeError, match="none of cuDNN's 4 plans can be built: no kernel image"):
        cudnn_arm.ARM.prepare(case, make_operands(case, seed=0, device=CPU))
