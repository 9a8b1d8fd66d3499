"""Launches without a GPU: what is refused before the driver is asked, and what the driver is given."""

import ctypes
import sys
from enum import IntEnum
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cake_kernels import driver as driver_module
from cake_kernels.driver import Kernel
from cake_kernels.errors import ArgumentError, DriverError, ToolchainMissingError

CONTEXT, OTHER_CONTEXT = 7, 8


class Result(IntEnum):
    SUCCESS = 0
    LAUNCH_FAILED = 719


class FakeDriver:
    """Records launches; reads each argument through its pointer, as the driver does."""

    CUlaunchAttributeID = SimpleNamespace(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION="cluster")

    def __init__(self, sizes: tuple[int, ...] = (), result: Result = Result.SUCCESS) -> None:
        self.sizes = sizes
        self.result = result
        self.current = [CONTEXT]
        self.launches: list[SimpleNamespace] = []

    CUlaunchConfig = SimpleNamespace

    @staticmethod
    def CUlaunchAttribute() -> SimpleNamespace:
        return SimpleNamespace(value=SimpleNamespace(clusterDim=SimpleNamespace()))

    def cuCtxGetCurrent(self) -> tuple[Result, int]:
        return Result.SUCCESS, self.current[-1]

    def cuCtxPushCurrent(self, context: int) -> tuple[Result]:
        self.current.append(context)
        return (Result.SUCCESS,)

    def cuCtxPopCurrent(self) -> tuple[Result, int]:
        return Result.SUCCESS, self.current.pop()

    def cuLaunchKernelEx(self, config: Any, function: str, parameters: int, extra: int) -> tuple[Result]:
        pointers = (ctypes.c_void_p * len(self.sizes)).from_address(parameters)
        values = [ctypes.string_at(p, size) for p, size in zip(pointers, self.sizes, strict=True)]
        self.launches.append(
            SimpleNamespace(config=config, values=values, context=self.current[-1], stream=config.hStream)
        )
        return (self.result,)

    def cuGetErrorName(self, status: Result) -> tuple[Result, bytes]:
        return Result.SUCCESS, b"CUDA_ERROR_LAUNCH_FAILED"

    def cuGetErrorString(self, status: Result) -> tuple[Result, bytes]:
        return Result.SUCCESS, b"unspecified launch failure"


def kernel_of(driver: FakeDriver, smem_bytes: int = 0) -> Kernel:
    return Kernel(driver, CONTEXT, "function", name="spin", smem_bytes=smem_bytes, parameter_bytes=driver.sizes)


ONE = {"grid": (1, 1, 1), "block": (1, 1, 1)}


def test_scalars_pointers_and_structures_arrive_by_value() -> None:
    driver = FakeDriver(sizes=(4, 8, 4, 128, 2))
    tensor_map = bytes(range(128))

    kernel_of(driver).bind(
        ctypes.c_int32(-2), ctypes.c_void_p(0x1234), np.float32(1.5), tensor_map, np.uint16(9), **ONE
    )(0)

    assert driver.launches[0].values == [
        (-2).to_bytes(4, "little", signed=True),
        (0x1234).to_bytes(8, "little"),
        np.float32(1.5).tobytes(),
        tensor_map,
        b"\x09\x00",
    ]


def test_a_ctypes_argument_is_read_again_by_every_launch() -> None:
    driver = FakeDriver(sizes=(8,))
    ns = ctypes.c_int64(5)
    launch = kernel_of(driver).bind(ns, **ONE)

    launch(0)
    ns.value = 6
    launch(0)

    assert [int.from_bytes(made.values[0], "little") for made in driver.launches] == [5, 6]


def test_grid_block_cluster_and_shared_memory_reach_the_driver() -> None:
    driver = FakeDriver()

    kernel_of(driver, smem_bytes=65536).bind(grid=(4, 6, 1), block=(128, 2, 1), cluster=(2, 3, 1))(11)

    config = driver.launches[0].config
    assert (config.gridDimX, config.gridDimY, config.gridDimZ) == (4, 6, 1)
    assert (config.blockDimX, config.blockDimY, config.blockDimZ) == (128, 2, 1)
    assert (config.sharedMemBytes, config.hStream, config.numAttrs) == (65536, 11, 1)
    assert config.attrs[0].id == "cluster"
    assert vars(config.attrs[0].value.clusterDim) == {"x": 2, "y": 3, "z": 1}


def test_a_launch_runs_in_the_kernels_context_and_leaves_the_callers() -> None:
    driver = FakeDriver()
    driver.current = [OTHER_CONTEXT]

    kernel_of(driver).bind(**ONE)(0)

    assert driver.launches[0].context == CONTEXT
    assert driver.current == [OTHER_CONTEXT]


def test_a_python_int_has_no_width() -> None:
    with pytest.raises(ArgumentError) as caught:
        kernel_of(FakeDriver(sizes=(8,))).bind(5, **ONE)

    assert str(caught.value) == (
        "argument 0 of spin must be a ctypes or numpy scalar, a ctypes structure or bytes, got 5 (int);"
        " write e.g. ctypes.c_int32(...)"
    )


@pytest.mark.parametrize("arguments", [(), (ctypes.c_int32(5),), (ctypes.c_int64(5), ctypes.c_int64(5))])
def test_arguments_that_the_kernel_does_not_have_are_refused(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(ArgumentError, match=r"arguments of spin must have \(8,\) bytes, got"):
        kernel_of(FakeDriver(sizes=(8,))).bind(*arguments, **ONE)


@pytest.mark.parametrize(
    ("grid", "cluster", "message"),
    [
        ((3, 1, 1), (2, 1, 1), r"cluster of spin must divide its grid \(3, 1, 1\), got \(2, 1, 1\)"),
        ((4, 1, 1), (0, 1, 1), r"cluster of spin must divide its grid \(4, 1, 1\), got \(0, 1, 1\)"),
        ((16, 1, 1), (16, 1, 1), r"cluster of spin must have at most 8 blocks, got \(16, 1, 1\): 16"),
    ],
)
def test_a_cluster_that_cannot_be_is_refused(grid: Any, cluster: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        kernel_of(FakeDriver()).bind(grid=grid, block=(1, 1, 1), cluster=cluster)


def test_what_the_driver_refuses_is_named() -> None:
    launch = kernel_of(FakeDriver(result=Result.LAUNCH_FAILED)).bind(**ONE)

    with pytest.raises(DriverError) as caught:
        launch(0)

    assert str(caught.value) == (
        "launch of spin: the CUDA driver says CUDA_ERROR_LAUNCH_FAILED, unspecified launch failure"
    )


def test_a_machine_without_a_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(flags: int) -> None:
        raise RuntimeError("Failed to dlopen libcuda.so.1")

    bindings = ModuleType("cuda.bindings.driver")
    bindings.cuInit = fail  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", bindings)

    with pytest.raises(DriverError, match=r"there is no CUDA driver here: Failed to dlopen libcuda.so.1"):
        driver_module._driver.__wrapped__()


def test_bindings_that_are_not_installed_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)

    with pytest.raises(ToolchainMissingError, match="cuda-bindings is not installed"):
        driver_module._driver.__wrapped__()
