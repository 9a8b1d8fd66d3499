"""The tiles that ``choose`` gives, in clusters of two: CTAs that share an operand, one of which may have no output."""

from dataclasses import replace

from cake_kernels.grouped_gemm.sm90.config import NARROW, STRAIGHT, SWAPPED

STRAIGHT_PAIR = replace(STRAIGHT, cluster_n=2)
SWAPPED_PAIR = replace(SWAPPED, cluster_n=2, band=4)
NARROW_PAIR = replace(NARROW, cluster_m=2)
