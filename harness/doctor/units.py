"""Numbers as the lines say them, each with its unit."""

from __future__ import annotations


def us(ns: float) -> str:
    """Return nanoseconds as microseconds: ``12.3 us``."""
    return f"{ns / 1e3:.1f} us"


def signed_us(ns: float) -> str:
    """Return a difference in microseconds with its sign: ``+0.9 us``."""
    return f"{ns / 1e3:+.1f} us"


def mib(num_bytes: float) -> str:
    """Return bytes as ``22 MiB``."""
    return f"{num_bytes / 2**20:.3g} MiB"


def tb_per_s(bytes_per_s: float) -> str:
    """Return a rate as ``4.31 TB/s``."""
    return f"{bytes_per_s / 1e12:.2f} TB/s"
