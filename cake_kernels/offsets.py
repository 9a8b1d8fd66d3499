"""Group sizes <-> offs. The only place that fixes their form and checks it.

``offs`` is int32 [E], cumulative ends: expert e owns rows ``offs[e - 1]:offs[e]``, the first from row 0. This is what
``torch._grouped_mm`` takes. Where a caller's offs are not monotone or leave the rows that there are, every program
reads them as :func:`ends_within` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

import torch

from .errors import ArgumentError

MAX_ROWS = 2**31 - 1
"""Rows that an int32 end can name."""


def ends_of(group_sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the cumulative ends of sizes that are known on the host.

    Raises
    ------
    ArgumentError
        There is no group, a size is negative, or the sum does not fit int32.
    """
    if not group_sizes:
        raise ArgumentError("group_sizes must have at least one group, got none")
    for expert, size in enumerate(group_sizes):
        if size < 0:
            raise ArgumentError(f"group_sizes[{expert}] must be >= 0, got {size}")
    ends = tuple(accumulate(group_sizes))
    if ends[-1] > MAX_ROWS:
        raise ArgumentError(
            f"group_sizes must sum to at most {MAX_ROWS}, the most that int32 offs can name, got {ends[-1]}"
        )
    return ends


def sizes_of(ends: Sequence[int]) -> tuple[int, ...]:
    """Return the group sizes of cumulative ends that are known on the host; the inverse of :func:`ends_of`.

    Raises
    ------
    ArgumentError
        The ends are not monotone from 0.
    """
    sizes = tuple(end - start for start, end in pairwise((0, *ends)))
    for expert, size in enumerate(sizes):
        if size < 0:
            raise ArgumentError(
                f"offs[{expert}] must be >= {ends[expert] - size}, the end before it, got {ends[expert]}"
            )
    return sizes


def ends_within(ends: Sequence[int], rows: int) -> tuple[int, ...]:
    """Return ``ends`` as every program reads them: the running maximum, kept within 0 and ``rows``.

    A group whose end lies before its start is thereby empty, no row has two owners, and no row outside the tensor is
    touched.
    """
    return tuple(min(max(0, end), rows) for end in accumulate(ends, max))


def offs_from_sizes(group_sizes: torch.Tensor) -> torch.Tensor:
    """Return offs from sizes that lie on the device, without a copy to the host.

    Parameters
    ----------
    group_sizes
        Any integer type, [E], any device; each >= 0 and their sum within int32 (values are not read on the host, so
        this is the caller's promise).

    Returns
    -------
    torch.Tensor
        int32 [E], new, on the device of ``group_sizes``.
    """
    if group_sizes.dtype.is_floating_point or group_sizes.dtype in (torch.bool, torch.complex64, torch.complex128):
        raise ArgumentError(f"group_sizes must be of an integer type, got {group_sizes.dtype}")
    if group_sizes.ndim != 1 or group_sizes.numel() == 0:
        raise ArgumentError(f"group_sizes must have shape [E] with E >= 1, got {list(group_sizes.shape)}")
    return group_sizes.cumsum(0, dtype=torch.int32)


def check_offs(offs: torch.Tensor, *, device: torch.device, experts: int | None = None) -> None:
    """Refuse ``offs`` that are not int32 [E], contiguous, on ``device``. Values are not read.

    Raises
    ------
    ArgumentError
        A rule is broken.
    """
    if not isinstance(offs, torch.Tensor):
        raise ArgumentError(
            f"offs must be a torch.Tensor, got {type(offs).__name__}; see cake_kernels.offsets for how to make one"
        )
    if offs.dtype != torch.int32:
        raise ArgumentError(f"offs must be torch.int32, got {offs.dtype}; convert it with offs.to(torch.int32)")
    if offs.ndim != 1 or offs.numel() == 0:
        raise ArgumentError(f"offs must have shape [E] with E >= 1, got {list(offs.shape)}")
    if experts is not None and offs.numel() != experts:
        raise ArgumentError(
            f"offs must have one cumulative end for each of the E = {experts} experts of w, got {offs.numel()};"
            " a prefix that starts with 0 is passed without its first element"
        )
    if not offs.is_contiguous():
        raise ArgumentError(f"offs must be contiguous, got stride {offs.stride()}; pass offs.contiguous()")
    if offs.device != device:
        raise ArgumentError(f"offs must be on the device of the other tensors, {device}, got {offs.device}")
