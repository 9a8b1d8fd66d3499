import ctypes
from types import SimpleNamespace

import pytest
import torch

from cake_kernels import registry
from cake_kernels.errors import DriverError
from cake_kernels.grouped_gemm.sm90 import launch
from cake_kernels.grouped_gemm.sm90.config import NARROW, STRAIGHT, Kernel

M, N, K, E = 1000, 512, 320, 5


class FakeKernel:
    """Remembers what it was bound to."""

    def bind(self, *arguments, grid, block, cluster):
        self.problem = arguments[3]
        self.maps = arguments[:3]
        self.shape = (grid, block, cluster)
        return "the launch"


@pytest.fixture
def loaded(monkeypatch):
    """The kernels that were asked for, with 66 clusters resident; maps are not encoded."""
    asked = []

    def resident(kernel, device):
        asked.append(SimpleNamespace(kernel=kernel, device=device, fake=FakeKernel()))
        return launch._Resident(asked[-1].fake, 66, torch.zeros(2, dtype=torch.int32))

    monkeypatch.setattr(launch, "_resident", resident)
    monkeypatch.setattr(launch, "encode", lambda numbers, address, what: (what, address))
    return asked


def operands(op):
    x, g, w = (torch.empty(shape, dtype=torch.bfloat16) for shape in ((M, K), (M, N), (E, N, K)))
    return {"fwd": (x, w, g.clone()), "dgrad": (g, w, x.clone()), "wgrad": (g, x, w.clone())}[op]


OFFS = torch.tensor([10, 20, 30, 40, 990], dtype=torch.int32)


@pytest.mark.parametrize("op", ["fwd", "dgrad", "wgrad"])
def test_the_kernel_is_told_sizes_addresses_and_strides(loaded, op):
    a, b, out = operands(op)

    made = launch.prepare(op, a, b, OFFS, out, accumulate=False)

    p = loaded[0].fake.problem
    assert made == "the launch"
    assert (p.M, p.N, p.K, p.num_experts) == (M, N, K, E)
    assert (p.offs, p.out) == (OFFS.data_ptr(), out.data_ptr())
    assert (p.out_row_stride, p.out_expert_stride) == (out.stride(-2), out.stride(0) if op == "wgrad" else out.numel())
    assert [address for _, address in loaded[0].fake.maps] == [t.data_ptr() for t in (a, b, out)]


def test_the_struct_is_laid_out_as_the_device_has_it():
    offsets = {name: getattr(launch.Problem, name).offset for name, _ in launch.Problem._fields_}

    assert list(offsets.values()) == [0, 8, 16, 24, 32, 40, 44, 48, 52]
    assert ctypes.sizeof(launch.Problem) == 56


@pytest.mark.parametrize(
    ("op", "config", "clusters"),
    [
        ("fwd", NARROW, 18),  # at most 3 + 5 + 1 rows of 256 by 2 columns of 256
        ("wgrad", NARROW, 20),  # 5 experts of 2 x 2
        ("wgrad", STRAIGHT, 10),  # 5 experts of 2 x 1
    ],
)
def test_no_more_clusters_are_launched_than_there_can_be_tiles(loaded, op, config, clusters):
    a, b, out = operands(op)

    launch.prepare(op, a, b, OFFS, out, accumulate=False, config=config)

    assert loaded[0].kernel.config == config
    assert loaded[0].fake.shape == ((2 * clusters, 1, 1), (384, 1, 1), (2, 1, 1))


def test_no_more_clusters_are_launched_than_are_resident(loaded):
    x = torch.empty(1, 8, dtype=torch.bfloat16).expand(40_000, 8)
    w, out = torch.empty(1, 512, 8, dtype=torch.bfloat16), torch.empty(40_000, 512, dtype=torch.bfloat16)

    launch.prepare("fwd", x, w, OFFS[:1], out, accumulate=False, config=NARROW)

    assert loaded[0].fake.shape[0] == (132, 1, 1)


def test_accumulation_and_the_output_type_are_parts_of_the_kernel(loaded):
    a, b, out = operands("wgrad")

    launch.prepare("wgrad", a, b, OFFS, out.float(), accumulate=True)

    assert (loaded[0].kernel.out_dtype, loaded[0].kernel.accumulate) == ("fp32", True)


def test_a_kernel_is_not_loaded_while_a_graph_is_captured(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    kernel = Kernel(op="fwd", out_dtype="bf16", accumulate=False, whole_slabs=True, config=NARROW)

    with pytest.raises(DriverError) as caught:
        launch._resident(kernel, 0)

    assert str(caught.value) == (
        "fwd_det_sm90a_128x256_c2x1_s3_b8 must be loaded before a CUDA graph is captured, since loading is no part of a"
        " graph; make the same call once before the capture"
    )


def test_each_program_lists_the_kernels_of_its_stem():
    for program in registry.programs():
        builds = program.builds()

        assert builds
        assert {build.symbol for build in builds} == {program.stem}
        assert all(build.source.is_file() and build.name.startswith(program.stem) for build in builds)
