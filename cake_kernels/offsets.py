"""Group sizes <-> offs. The only place that fixes their form and checks it.

``offs`` is int32 [E], cumulative ends: expert e owns rows ``offs[e - 1]:offs[e]``, the first from row 0. This is what
``torch._grouped_mm`` takes. ``indptr`` is int32 [E + 1], a prefix: 0, then the ends; programs read ``indptr[1:]``.
Where a caller's ends are not monotone or leave the rows that there are, every program reads them as
:func:`ends_within` does. There may be no group at all: E = 0.
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
        A size is negative, or the sum does not fit int32.
    """
    for expert, size in enumerate(group_sizes):
        if size < 0:
            raise ArgumentError(f"group_sizes[{expert}] must be >= 0, got {size}")
    ends = tuple(accumulate(group_sizes))
    if ends and ends[-1] > MAX_ROWS:
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
    if group_sizes.ndim != 1:
        raise ArgumentError(f"group_sizes must have shape [E], got {list(group_sizes.shape)}")
    return group_sizes.cumsum(0, dtype=torch.int32)


def given_ends(
    offs: torch.Tensor | None, indptr: torch.Tensor | None, *, device: torch.device, experts: int | None = None
) -> torch.Tensor:
    """Return the cumulative ends of a call that got either ``offs`` or ``indptr``. Values are not read.

    Parameters
    ----------
    offs
        int32 [E], contiguous, on ``device``; or None.
    indptr
        int32 [E + 1], contiguous, on ``device``; or None. Its first element stands for 0 and is never read.
    experts
        E, where something else than the ends says it.

    Returns
    -------
    torch.Tensor
        int32 [E]: ``offs`` itself, or ``indptr[1:]``, a view.

    Raises
    ------
    ArgumentError
        Not exactly one of the two is given, or it breaks a rule.
    """
    if offs is not None and indptr is None:
        check_offs(offs, device=device, experts=experts)
        return offs
    if offs is not None or indptr is None:
        raise ArgumentError(
            "exactly one of offs, int32 [E], and indptr, int32 [E + 1], must be given, got"
            f" {'neither' if offs is None else 'both'}; see cake_kernels.offsets for how to make one"
        )
    _check_form("indptr", indptr, "[E + 1]", device)
    if not indptr.numel():
        raise ArgumentError("indptr must have shape [E + 1], at least the 0 that it begins with, got [0]")
    if experts is not None and indptr.numel() != experts + 1:
        raise ArgumentError(
            f"indptr must have a 0 and then one cumulative end for each of the E = {experts} experts of w,"
            f" {experts + 1} in all, got {indptr.numel()}; ends without that 0 are passed as offs"
        )
    return indptr[1:]


def check_offs(offs: torch.Tensor, *, device: torch.device, experts: int | None = None) -> None:
    """Refuse ``offs`` that are not int32 [E], contiguous, on ``device``. Values are not read.

    Raises
    ------
    ArgumentError
        A rule is broken.
    """
    _check_form("offs", offs, "[E]", device)
    if experts is not None and offs.numel() != experts:
        raise ArgumentError(
            f"offs must have one cumulative end for each of the E = {experts} experts of w, got {offs.numel()};"
            " a prefix that starts with 0 is passed as indptr, or without that 0"
        )


def _check_form(name: str, ends: torch.Tensor, form: str, device: torch.device) -> None:
    if not isinstance(ends, torch.Tensor):
        raise ArgumentError(
            f"{name} must be a torch.Tensor, got {type(ends).__name__}; see cake_kernels.offsets for how to make one"
        )
    if ends.dtype != torch.int32:
        raise ArgumentError(f"{name} must be torch.int32, got {ends.dtype}; convert it with {name}.to(torch.int32)")
    if ends.ndim != 1:
        raise ArgumentError(f"{name} must have shape {form}, got {list(ends.shape)}")
    if not ends.is_contiguous():
        raise ArgumentError(f"{name} must be contiguous, got stride {ends.stride()}; pass {name}.contiguous()")
    if ends.device != device:
        raise ArgumentError(f"{name} must be on the device of the other tensors, {device}, got {ends.device}")
