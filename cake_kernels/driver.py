"""Cubin -> module -> kernel -> launch through the CUDA driver, in the context that torch uses. Imports no torch.

A launch allocates nothing, waits for nothing and can be captured in a CUDA graph. Nothing here touches the driver
before :func:`load_code` is called.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any, TypeAlias

from .errors import ArgumentError, DriverError, ToolchainMissingError

Dim3: TypeAlias = tuple[int, int, int]

MAX_CLUSTER = 8
"""Most blocks of a cluster that every device with clusters can run."""


class Module:
    """A cubin on one device; made by :func:`load_code`."""

    def __init__(self, driver: Any, context: Any, module: Any, *, what: str, device: int) -> None:
        self._driver = driver
        self._context = context
        self._module = module
        self._what = what
        self.device = device

    def kernel(self, name: str, *, smem_bytes: int = 0) -> Kernel:
        """Return the function ``name``, declared ``extern "C"``, ready to launch with that much dynamic shared memory.

        Raises
        ------
        ArgumentError
            The device has less shared memory for one block.
        DriverError
            There is no such function.
        """
        driver = self._driver
        with _current(driver, self._context):
            function = _value(
                driver, driver.cuModuleGetFunction(self._module, name.encode()), f"function {name} of {self._what}"
            )
            self._raise_smem_limit(function, name, smem_bytes)
            # Loaded here, since a graph's capture does not allow what loading may need.
            _value(driver, driver.cuFuncLoad(function), f"loading {name} of {self._what}")
            parameters = tuple(_parameter_bytes(driver, function))
        return Kernel(driver, self._context, function, name=name, smem_bytes=smem_bytes, parameter_bytes=parameters)

    def _raise_smem_limit(self, function: Any, name: str, smem_bytes: int) -> None:
        driver = self._driver
        in_function, of_device = driver.CUfunction_attribute, driver.CUdevice_attribute
        static = _value(
            driver, driver.cuFuncGetAttribute(in_function.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function), name
        )
        limit = _value(
            driver,
            driver.cuDeviceGetAttribute(
                of_device.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, driver.CUdevice(self.device)
            ),
            name,
        )
        if not 0 <= smem_bytes <= limit - static:
            raise ArgumentError(
                f"smem_bytes of {name} must be in 0..{limit - static}, what device {self.device} gives one block less"
                f" {static} static bytes, got {smem_bytes}"
            )
        _value(
            driver,
            driver.cuFuncSetAttribute(
                function, in_function.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, smem_bytes
            ),
            f"{smem_bytes} bytes of dynamic shared memory for {name}",
        )


class Kernel:
    """A function on one device; made by :meth:`Module.kernel`.

    Attributes
    ----------
    parameter_bytes
        Size of each parameter, as compiled.
    """

    def __init__(
        self, driver: Any, context: Any, function: Any, *, name: str, smem_bytes: int, parameter_bytes: tuple[int, ...]
    ) -> None:
        self._driver = driver
        self._context = context
        self._function = function
        self.name = name
        self.smem_bytes = smem_bytes
        self.parameter_bytes = parameter_bytes

    def bind(self, *arguments: object, grid: Dim3, block: Dim3, cluster: Dim3 = (1, 1, 1)) -> Launch:
        """Return this kernel with its arguments, to be launched any number of times.

        Parameters
        ----------
        arguments
            One object for each parameter whose bytes are the value: a ctypes scalar or structure, a numpy scalar, or
            ``bytes`` (a CUtensorMap's 128, for a ``__grid_constant__`` parameter). A Python int is refused: it has no
            width. What can be written (ctypes) is shared and read again by every launch; the rest is copied now.
            Memory behind a pointer is the caller's to keep.
        grid, block, cluster
            Blocks, threads of a block, blocks of a cluster.

        Raises
        ------
        ArgumentError
            Number or size of the arguments differ from the kernel's parameters, or the cluster does not divide the
            grid.
        """
        check_clusters(self.name, grid, cluster)
        values = [_bytes_of(self.name, index, argument) for index, argument in enumerate(arguments)]
        sizes = tuple(len(value) for value in values)
        if sizes != self.parameter_bytes:
            raise ArgumentError(f"arguments of {self.name} must have {self.parameter_bytes} bytes, got {sizes}")
        config = self._config(grid, block, cluster)
        return Launch(self._driver, self._context, self._function, config, values, name=self.name)

    def max_active_clusters(self, *, cluster: Dim3, block: Dim3) -> int:
        """Return how many clusters of this kernel the device can run at once, when nothing else runs on it.

        Raises
        ------
        DriverError
            The driver refuses such a cluster.
        """
        driver = self._driver
        config = self._config(cluster, block, cluster)
        with _current(driver, self._context):
            result = driver.cuOccupancyMaxActiveClusters(self._function, config)
        return int(_value(driver, result, f"clusters {cluster} of {self.name}"))

    def _config(self, grid: Dim3, block: Dim3, cluster: Dim3) -> Any:
        config = self._driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = grid
        config.blockDimX, config.blockDimY, config.blockDimZ = block
        config.sharedMemBytes = self.smem_bytes
        if cluster != (1, 1, 1):
            attribute = self._driver.CUlaunchAttribute()
            attribute.id = self._driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            attribute.value.clusterDim.x, attribute.value.clusterDim.y, attribute.value.clusterDim.z = cluster
            config.attrs = [attribute]
            config.numAttrs = 1
        return config


class Launch:
    """A kernel with its arguments; made by :meth:`Kernel.bind`. One thread at a time may use it."""

    def __init__(self, driver: Any, context: Any, function: Any, config: Any, values: list[Any], *, name: str) -> None:
        self._driver = driver
        self._context = context
        self._context_handle = int(context)
        self._function = function
        self._config = config
        self._values = values  # owns what the pointers point to
        self._pointers = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        self._pointers_address = ctypes.addressof(self._pointers)
        self._name = name
        self._stream: int | None = None

    def __call__(self, stream: int) -> None:
        """Enqueue it on ``stream``, a stream of the kernel's device: torch's ``Stream.cuda_stream``.

        Raises
        ------
        DriverError
            The driver refuses it, or an earlier kernel has failed and this is the first call to hear of it.
        """
        driver = self._driver
        if stream != self._stream:
            self._config.hStream = self._stream = stream
        # Stream 0 is the current context's: without this it would be another device's, or nobody's in a new thread.
        if int(driver.cuCtxGetCurrent()[1]) == self._context_handle:
            result = driver.cuLaunchKernelEx(self._config, self._function, self._pointers_address, 0)
        else:
            with _current(driver, self._context):
                result = driver.cuLaunchKernelEx(self._config, self._function, self._pointers_address, 0)
        if result[0] != 0:
            _value(driver, result, f"launch of {self._name}")


def load_code(code: bytes, *, what: str, device: int) -> Module:
    """Load a cubin on CUDA device ``device``; ``what`` names it in messages. It is never unloaded.

    Raises
    ------
    DriverError
        The driver refuses it, or there is none.
    ToolchainMissingError
        cuda-bindings is not installed.
    """
    driver = _driver()
    # The primary context: the one that torch and every other user of the runtime share.
    context = _value(driver, driver.cuDevicePrimaryCtxRetain(driver.CUdevice(device)), f"context of device {device}")
    with _current(driver, context):
        module = _value(driver, driver.cuModuleLoadData(code), f"loading {what} on device {device}")
    return Module(driver, context, module, what=what, device=device)


def check_clusters(name: str, grid: Dim3, cluster: Dim3) -> None:
    """Refuse a grid that clusters do not divide, and clusters of more than :data:`MAX_CLUSTER` blocks.

    Raises
    ------
    ArgumentError
        One of the two.
    """
    if any(c < 1 or g % c for g, c in zip(grid, cluster, strict=True)):
        raise ArgumentError(f"cluster of {name} must divide its grid {grid}, got {cluster}")
    blocks = cluster[0] * cluster[1] * cluster[2]
    if blocks > MAX_CLUSTER:
        raise ArgumentError(f"cluster of {name} must have at most {MAX_CLUSTER} blocks, got {cluster}: {blocks}")


def _bytes_of(kernel: str, index: int, argument: object) -> Any:
    """Return a ctypes array over the argument's own memory, or over a copy where that must not be written."""
    try:
        view = memoryview(argument)  # type: ignore[arg-type]
    except TypeError as error:
        raise ArgumentError(
            f"argument {index} of {kernel} must be a ctypes or numpy scalar, a ctypes structure or bytes,"
            f" got {argument!r} ({type(argument).__name__}); write e.g. ctypes.c_int32(...)"
        ) from error
    array = ctypes.c_char * view.nbytes
    return array.from_buffer_copy(view) if view.readonly else array.from_buffer(argument)  # type: ignore[arg-type]


def _parameter_bytes(driver: Any, function: Any) -> Iterator[int]:
    index = 0
    while True:
        status, _, size = driver.cuFuncGetParamInfo(function, index)
        if status != 0:  # there is no call that counts them: the first index past the end is an invalid value
            return
        yield size
        index += 1


@contextmanager
def _current(driver: Any, context: Any) -> Iterator[None]:
    _value(driver, driver.cuCtxPushCurrent(context), "making a context current")
    try:
        yield
    finally:
        driver.cuCtxPopCurrent()


@cache
def _driver() -> Any:
    try:
        driver: Any = import_module("cuda.bindings.driver")
    except ImportError as error:
        raise ToolchainMissingError(
            f"cuda-bindings is not installed ({error}); install the extra 'gpu': pip install 'cake-kernels[gpu]'"
        ) from error
    try:
        _value(driver, driver.cuInit(0), "initialising the CUDA driver")
    except RuntimeError as error:  # the bindings load the library on the first call
        raise DriverError(f"there is no CUDA driver here: {error}") from error
    return driver


def _value(driver: Any, result: tuple[Any, ...], what: str) -> Any:
    status, *values = result
    if status != 0:
        name = driver.cuGetErrorName(status)[1]
        text = driver.cuGetErrorString(status)[1]
        raise DriverError(f"{what}: the CUDA driver says {_text(name)}, {_text(text)}")
    return values[0] if values else None


def _text(raw: Any) -> str:
    return raw.decode() if isinstance(raw, bytes) else str(raw)
