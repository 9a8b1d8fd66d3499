"""The ranks of a round: wait for all, and tell each other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Protocol, TypeVar

import torch.distributed as dist

T = TypeVar("T")


class Peers(Protocol):
    """What a rank asks of the group."""

    def barrier(self) -> None:
        """Return when every rank is here."""

    def gather(self, mine: T) -> list[T]:
        """Return what each rank gave, in their order."""


class Alone:
    """One rank is all."""

    def barrier(self) -> None:
        """Nobody to wait for."""

    def gather(self, mine: T) -> list[T]:
        """Return what it gave."""
        return [mine]


class Gloo:
    """The ranks of torchrun, over sockets of the host: no GPU has a part in it."""

    def barrier(self) -> None:
        """Wait for all."""
        dist.barrier()

    def gather(self, mine: T) -> list[T]:
        """Exchange by pickle."""
        everyone: list[T | None] = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, mine)
        return [one for one in everyone if one is not None]


@contextmanager
def open_peers(rank: int, ranks: int, *, limit_s: float) -> Iterator[Peers]:
    """Join the other ranks at the address that torchrun gave, for as long as the block lasts."""
    if ranks == 1:
        yield Alone()
        return
    dist.init_process_group("gloo", rank=rank, world_size=ranks, timeout=timedelta(seconds=limit_s))
    yield Gloo()
    dist.destroy_process_group()
