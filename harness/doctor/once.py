"""Something that is opened or read at its first use, once: several checks share it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Once(Generic[T]):
    """Calls ``make`` at the first use. A failure is kept and raised again: CUPTI must not be opened a second time."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: list[T] = []
        self._failed: Exception | None = None

    def __call__(self) -> T:
        """Return what ``make`` returned, or raise what it raised."""
        if self._failed is not None:
            raise self._failed
        if not self._made:
            try:
                self._made.append(self._make())
            except Exception as error:
                self._failed = error
                raise
        return self._made[0]
