"""cuDNN and quack replaced by stand-ins that compute, from the views that arms pass, what the libraries document."""

import sys
import time
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from itertools import pairwise
from types import ModuleType, SimpleNamespace

import pytest
import torch

from harness import arms
from harness.arms import cudnn as cudnn_arm
from harness.arms import quack as quack_arm
from harness.arms._fastest import fastest
from harness.operands import make_operands

CPU = torch.device("cpu")
CASES = [("fwd", "bf16"), ("dX", "bf16"), ("dW", "bf16"), ("dW", "fp32")]


def expected(case, operands):
    return arms.load("reference").prepare(case, operands).launch()


def quack_gemm(A, B, out, *, cu_seqlens_m=None, cu_seqlens_k=None, config):
    """Row-ragged: A (total_M, K), B (L, K, N); reduction-ragged: A (M, total_K) m-major, B (total_K, N) n-major."""
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


class CompilePending(BaseException):
    """As quack's: no Exception."""


CONFIGS = [
    SimpleNamespace(tile_m=m, tile_n=n, cluster_m=2, cluster_n=1, pingpong=pingpong, swap_ab=swap, device_capacity=9)
    for m, n, pingpong, swap in [(256, 128, False, False), (128, 192, True, False), (128, 256, False, True)]
]


class FakeQuack:
    """Configurations compiled at the second call, the first at the third; 128x192 runs not; one is of another GPU."""

    def __init__(self, monkeypatch):
        self.calls, self.offered, self.refused = [], [], (128, 192)
        other = SimpleNamespace(**{**vars(CONFIGS[0]), "device_capacity": 10})
        interface, cache = ModuleType("quack.gemm_interface"), ModuleType("quack.cache")
        interface.gemm_tuned = SimpleNamespace(
            fn=self.gemm, configs=[SimpleNamespace(kwargs={"config": config}) for config in [*CONFIGS, other]]
        )
        interface.prune_invalid_gemm_configs = self.prune
        cache.CompilePending, cache.pool_scope = CompilePending, nullcontext
        for module in (ModuleType("quack"), interface, cache):
            monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setattr(quack_arm, "fastest", self.fastest)

    @staticmethod
    def prune(configs, named):
        assert named["A"].ndim == 2
        return [each for each in configs if each.kwargs["config"].device_capacity == 9]

    def gemm(self, A, B, out, *, config, **ragged):
        self.calls.append(config)
        if self.calls.count(config) < (3 if config is CONFIGS[0] else 2):
            raise CompilePending
        if self.refused in ((config.tile_m, config.tile_n), "all"):
            raise RuntimeError("too much shared memory")
        return quack_gemm(A, B, out, config=config, **ragged)

    def fastest(self, configs, run, device):
        self.offered.append(configs)
        return configs[-1]


@pytest.fixture
def fake_quack(monkeypatch):
    return FakeQuack(monkeypatch)


@pytest.mark.parametrize(("op", "out_dtype"), CASES)
def test_quack_gets_prefix_offsets_and_views_in_its_layout(op, out_dtype, new_case, fake_quack):
    case = new_case(op, (3, 0, 5), out_dtype=out_dtype)
    operands = make_operands(case, seed=0, device=CPU)

    arm = quack_arm.ARM.prepare(case, operands)

    arm.out.fill_(float("nan"))
    assert arm.launch() is arm.out
    assert torch.equal(arm.out, expected(case, operands))


def test_quack_chooses_among_the_configurations_that_run_here_and_notes_which(new_case, fake_quack):
    case = new_case("fwd")

    arm = quack_arm.ARM.prepare(case, make_operands(case, seed=0, device=CPU))

    assert fake_quack.offered == [[CONFIGS[0], CONFIGS[2]]]
    assert arm.note == "128x256 c2x1 cooperative swapped, of 3, 1 declined"
    calls = len(fake_quack.calls)
    arm.launch()
    assert fake_quack.calls[calls:] == [CONFIGS[2]]


def test_quack_without_a_configuration_raises_with_quacks_own_error(new_case, fake_quack):
    fake_quack.refused = "all"
    case = new_case("fwd")

    with pytest.raises(RuntimeError, match="none of quack's 3 configurations runs: too much shared memory"):
        quack_arm.ARM.prepare(case, make_operands(case, seed=0, device=CPU))


@pytest.mark.parametrize(
    ("raised", "error", "words"),
    [
        (BrokenProcessPool("a child died"), BrokenProcessPool, "a child died"),
        (CompilePending("kernel k"), TimeoutError, "workers finished none of 1 configurations in -1 s; one: kernel k"),
    ],
    ids=["dead", "hanging"],
)
def test_what_ails_quacks_workers_declines_no_configuration(raised, error, words, fake_quack, monkeypatch):
    monkeypatch.setattr(quack_arm, "STALLED_S", -1)

    def run(config):
        if config != "compiled before":
            raise raised

    with pytest.raises(error, match=words):
        quack_arm._usable(["compiled before", "not yet"], run)


class Event:
    """A clock that only the candidates move: each takes the next of its times."""

    now_ms = 0.0

    def __init__(self, *, enable_timing):
        assert enable_timing

    def record(self):
        self.at_ms = Event.now_ms

    def synchronize(self):
        pass

    def elapsed_time(self, end):
        return end.at_ms - self.at_ms


def test_the_fastest_is_chosen_by_what_events_around_a_call_say_after_a_rest(monkeypatch):
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(L2_cache_size=1024))
    did = []
    monkeypatch.setattr(time, "sleep", did.append)
    times_ms = {"a": [5.0, 6.0, *[4.5] * 5], "b": [99.0, 5.5, *[4.0] * 5], "c": [99.0, 7.0]}

    def run(candidate):
        did.append(candidate)
        Event.now_ms += times_ms[candidate].pop(0)

    assert fastest(["a", "b", "c"], run, CPU) == "b"
    assert did == [*[0.0, "a"] * 2, *[0.0, "b"] * 2, *[0.0, "c"] * 2, *[0.005, "a", 0.0055, "b"] * 5]


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

    def last(plans, run, device):
        offered.append(plans)
        return plans[-1]

    monkeypatch.setattr(cudnn_arm, "fastest", last)
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
