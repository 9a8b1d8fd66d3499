"""Facts of a CUDA device, read once per device."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """What a program needs to know of a device.

    Attributes
    ----------
    name
        ``NVIDIA H200``.
    arch
        What a program is compiled for: ``sm_90a``.
    sms
        Streaming multiprocessors.
    l2_bytes
        Size of the L2 cache.
    smem_bytes
        Most shared memory that one block can ask for.
    """

    name: str
    arch: str
    sms: int
    l2_bytes: int
    smem_bytes: int


def arch_of(major: int, minor: int) -> str:
    """Return the target of a compute capability, from 9.0 on the architecture-specific one: ``sm_90a``."""
    return f"sm_{major}{minor}" + ("a" if major >= 9 else "")


@cache
def facts(index: int) -> DeviceFacts:
    """Return the facts of CUDA device ``index``; initialises CUDA on the first call."""
    props: Any = torch.cuda.get_device_properties(index)
    return DeviceFacts(
        name=props.name,
        arch=arch_of(props.major, props.minor),
        sms=props.multi_processor_count,
        l2_bytes=props.L2_cache_size,
        smem_bytes=props.shared_memory_per_block_optin,
    )


def current_stream(index: int) -> int:
    """Return the ``cuda_stream`` of ``torch.cuda.current_stream(index)``, without the object, which costs more."""
    # Not public, but what torch's compiler writes into the code that it makes; torch has no other call for the number.
    handle: int = torch._C._cuda_getCurrentRawStream(index)
    return handle


def made_current(index: int) -> AbstractContextManager[object]:
    """Return a context in which CUDA device ``index`` is the current one; where it is, that costs next to nothing."""
    return _AS_IT_IS if torch.cuda.current_device() == index else torch.cuda.device(index)


_AS_IT_IS = nullcontext()
