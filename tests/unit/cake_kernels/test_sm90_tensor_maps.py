import ctypes
import sys
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from cake_kernels.errors import DriverError
from cake_kernels.grouped_gemm.sm90.config import CONFIGS, STRAIGHT, SWAPPED, Kernel, kernels
from cake_kernels.grouped_gemm.sm90.tensor_maps import BYTES, Encoder, Layout, TensorMap, maps

from .sm90_configs import NARROW_PAIR, STRAIGHT_PAIR, SWAPPED_PAIR

M, N, K, E = 1000, 512, 320, 5
# Padded rows: 8 elements more than there are.
X = Layout.of((M, K), (K + 8, 1))
G = Layout.of((M, N), (N + 8, 1))
W = Layout.of((E, N, K), (N * (K + 8) + 16, K + 8, 1))
OPERANDS = {"fwd": (X, W, G), "dgrad": (G, W, X), "wgrad": (G, X, W)}


def maps_of(op, config, out_dtype="bf16", *, whole_slabs=True):
    kernel = Kernel(op=op, out_dtype=out_dtype, accumulate=False, whole_slabs=whole_slabs, config=config)
    a, b, out = OPERANDS[op]
    return maps(kernel, a=a, b=b, out=out)


def bf16(dims, strides, box):
    return TensorMap(dtype="bf16", dims=dims, strides_bytes=tuple(2 * s for s in strides), box=box)


def test_k_major_operands_are_one_box_of_rows():
    straight, swapped = maps_of("fwd", STRAIGHT), maps_of("fwd", SWAPPED)

    assert straight.rows == bf16((K, M, 1), (K + 8, M * (K + 8)), (64, 256, 1))
    assert straight.cols == bf16((K, N, E), (K + 8, N * (K + 8) + 16), (64, 192, 1))
    assert (swapped.rows.box, swapped.cols.box) == ((64, 192, 1), (64, 256, 1))


def test_the_operand_that_a_cluster_shares_is_halved():
    straight, swapped = maps_of("fwd", STRAIGHT_PAIR), maps_of("fwd", SWAPPED_PAIR)

    assert (straight.rows.box, straight.cols.box) == ((64, 128, 1), (64, 192, 1))
    assert (swapped.rows.box, swapped.cols.box) == ((64, 192, 1), (64, 128, 1))


def test_mn_major_operands_have_their_slabs_as_a_dimension_where_these_are_whole():
    whole, any_slab = maps_of("dgrad", NARROW_PAIR), maps_of("dgrad", NARROW_PAIR, whole_slabs=False)

    assert whole.cols == bf16((64, N, K // 64, E), (K + 8, 64, N * (K + 8) + 16), (64, 64, 2, 1))
    assert any_slab.cols == bf16((K, N, 1, E), (K + 8, 64, N * (K + 8) + 16), (64, 64, 1, 1))


def test_both_operands_of_wgrad_are_mn_major():
    straight = maps_of("wgrad", STRAIGHT_PAIR)

    assert straight.rows == bf16((64, M, N // 64, 1), (N + 8, 64, M * (N + 8)), (64, 64, 2, 1))
    assert straight.cols == bf16((64, M, K // 64, 1), (K + 8, 64, M * (K + 8)), (64, 64, 3, 1))


@pytest.mark.parametrize(
    ("config", "out_dtype", "box"),
    [
        (STRAIGHT, "bf16", (64, 64, 1)),
        (SWAPPED, "bf16", (64, 64, 1)),
        (STRAIGHT, "fp32", (32, 64, 1)),
        (SWAPPED, "fp32", (32, 32, 1)),
    ],
)
def test_the_output_is_stored_in_boxes_of_128_bytes_a_row(config, out_dtype, box):
    out = maps_of("wgrad", config, out_dtype).out

    assert out.dims == (K, N, E)
    assert out.strides_bytes == tuple(BYTES[out_dtype] * s for s in (K + 8, N * (K + 8) + 16))
    assert out.box == box


def test_the_stride_of_a_dimension_of_one_is_replaced():
    layout = Layout.of((1, 1, 64), (7, 5, 1))

    assert (layout.stack_stride, layout.row_stride) == (64, 64)


@pytest.mark.parametrize("op", ["fwd", "dgrad", "wgrad"])
@pytest.mark.parametrize("config", [*CONFIGS, STRAIGHT_PAIR, SWAPPED_PAIR, NARROW_PAIR], ids=lambda config: config.name)
def test_maps_keep_the_rules_of_the_driver(op, config):
    made = maps_of(op, config)

    for one in (made.rows, made.cols, made.out):
        assert all(1 <= extent <= 256 for extent in one.box)
        assert one.box[0] * BYTES[one.dtype] == 128  # the width of the swizzle
        assert all(stride % 16 == 0 and 0 < stride < 2**40 for stride in one.strides_bytes)
        assert all(1 <= dim <= 2**32 for dim in one.dims)
        assert len(one.dims) == len(one.box) == len(one.strides_bytes) + 1


@pytest.mark.parametrize("out_dtype", ["bf16", "fp32"])
def test_the_boxes_of_a_stage_have_the_bytes_that_its_barrier_expects(out_dtype):
    for op in ("fwd", "dgrad", "wgrad") if out_dtype == "bf16" else ("wgrad",):
        for kernel in kernels(op, out_dtype):
            a, b, out = OPERANDS[op]
            made, config = maps(kernel, a=a, b=b, out=out), kernel.config

            def tile_bytes(one, part, shares):
                elements = 1
                for extent in one.box:
                    elements *= extent
                boxes = part * 64 // elements
                return 2 * elements * boxes * shares

            rows = tile_bytes(made.rows, config.tile_rows // config.cluster_cols, config.cluster_cols)
            cols = tile_bytes(made.cols, config.tile_cols // config.cluster_rows, config.cluster_rows)

            assert rows + cols == (config.tile_m + config.tile_n) * 128


def fake_driver(encode):
    """The bindings, of which nothing but this function does anything."""
    anything = SimpleNamespace(__getattr__=None)
    return SimpleNamespace(
        cuTensorMapEncodeTiled=encode,
        cuuint32_t=int,
        cuuint64_t=int,
        **{
            name: SimpleNamespace(**dict.fromkeys(members, anything))
            for name, members in {
                "CUtensorMapDataType": ("CU_TENSOR_MAP_DATA_TYPE_BFLOAT16", "CU_TENSOR_MAP_DATA_TYPE_FLOAT32"),
                "CUtensorMapInterleave": ("CU_TENSOR_MAP_INTERLEAVE_NONE",),
                "CUtensorMapSwizzle": ("CU_TENSOR_MAP_SWIZZLE_128B",),
                "CUtensorMapL2promotion": ("CU_TENSOR_MAP_L2_PROMOTION_L2_256B",),
                "CUtensorMapFloatOOBfill": ("CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE",),
            }.items()
        },
    )


def test_a_map_that_the_driver_refuses_is_named(monkeypatch):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    refused = (SimpleNamespace(name="CUDA_ERROR_INVALID_VALUE"), None)
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", fake_driver(lambda *_: refused))

    with pytest.raises(
        DriverError, match=r"the tensor map of x is refused \(CUDA_ERROR_INVALID_VALUE\): .*, with 9 rows, at 0x10"
    ):
        Encoder(bf16((64, 8, 1), (64, 512), (64, 64, 1)), "x", device=1)(16, 9)


@pytest.mark.parametrize("op", ["fwd", "dgrad", "wgrad"])
@pytest.mark.parametrize("whole_slabs", [True, False])
def test_an_encoder_of_two_rows_encodes_what_the_map_of_any_number_of_rows_says(monkeypatch, op, whole_slabs):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    asked = []

    def encode(_dtype, rank, address, dims, strides, box, *_):
        asked.append((rank, address, tuple(dims), tuple(strides), tuple(box)))
        return 0, SimpleNamespace(getPtr=lambda: ctypes.addressof(memory))

    memory = (ctypes.c_char * 128)()
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", fake_driver(encode))
    kernel = Kernel(op=op, out_dtype="bf16", accumulate=False, whole_slabs=whole_slabs, config=STRAIGHT)

    def numbers(rows):
        """The maps of x [rows, 320], g or y [rows, 512], padded, and w [5, 512, 320]."""
        x, g = Layout.of((rows, 320), (328, 1)), Layout.of((rows, 512), (512, 1))
        w = Layout.of((5, 512, 320), (512 * 320, 320, 1))
        a, b, out = {"fwd": (x, w, g), "dgrad": (g, w, x), "wgrad": (g, x, w)}[op]
        made = maps(kernel, a=a, b=b, out=out)
        return made.rows, made.cols, made.out

    for of_two, expected in zip(numbers(2), numbers(1000), strict=True):
        rows = expected.dims[1]
        encode_rows = Encoder(of_two, "x", device=1)
        for _ in range(2):
            encode_rows(4096, rows)

        assert asked == [(len(expected.dims), 4096, expected.dims, expected.strides_bytes, expected.box)]
        encode_rows(4096, rows + 1)
        encode_rows(4112, rows)
        assert [(address, dims[1]) for _, address, dims, *_ in asked[1:]] == [(4096, rows + 1), (4112, rows)]
        asked.clear()


def test_a_map_is_encoded_while_the_device_of_its_memory_is_the_current_one(monkeypatch):
    current = [0]

    @contextmanager
    def guard(device):
        current.append(device)
        yield
        current.pop()

    def encode(*_):
        seen.append(current[-1])
        return 0, SimpleNamespace(getPtr=lambda: ctypes.addressof(memory))

    seen, memory = [], (ctypes.c_char * 128)()
    monkeypatch.setattr(torch.cuda, "current_device", lambda: current[-1])
    monkeypatch.setattr(torch.cuda, "device", guard)
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", fake_driver(encode))

    for device in (0, 1):
        Encoder(bf16((64, 8, 1), (64, 512), (64, 64, 1)), "x", device=device)(16, 8)

    assert seen == [0, 1]
