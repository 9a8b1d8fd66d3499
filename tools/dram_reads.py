"""What a grouped GEMM reads from DRAM, by a model: no GPU, no time, bytes that follow from the tile walk.

::

    python -m tools.dram_reads                                  # the published shapes on 132 SMs
    python -m tools.dram_reads --op fwd --band 12 --band 16     # and what other bands would read

The model: clusters that begin their tiles together read each row and each column of tiles that a wave of them has once,
and leave nothing in the L2 for the next wave. On an H200 it is within 0.2 % of what Nsight Compute counts for fwd
gate_up E4 M112576 bal with bands of 8, 12, 16 and 22, 0.3 % for dX and 2 % for dW (reports/h200/l2/ncu.csv and
reports/h200/programs/ncu.csv). Tiles count whole. Rows with FP32 dW are left out: they read what the BF16 row does.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from cake_kernels.grouped_gemm.sm90.config import SMS, Config
from cake_kernels.grouped_gemm.sm90.walk import BLOCK_K
from harness import cases, shapes
from harness.errors import UnknownName
from harness.model.case import Case
from harness.paths import data
from tools.makespan import OPS, configured, number_of_sms, walked

BYTES_OF_BF16 = 2


def dram_reads(case: Case, config: Config, sms: int) -> int:
    """Return the bytes that ``case`` reads from DRAM with ``config``, by the model."""
    tiles = walked(case, config)
    clusters = sms // config.cluster_size
    elements = 0
    for first in range(0, tiles.num_tiles, clusters):
        wave = [tiles.tile(number) for number in range(first, min(first + clusters, tiles.num_tiles))]
        along = {(tile.group, tile.row): tile.k_blocks for tile in wave}
        across = {(tile.group, tile.column): tile.k_blocks for tile in wave}
        extents = tiles.cluster_rows * sum(along.values()) + tiles.cluster_columns * sum(across.values())
        elements += BLOCK_K * extents
    return BYTES_OF_BF16 * elements


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, prog="python -m tools.dram_reads"
    )
    parser.add_argument("--suite", default="moe-training", help="of shapes.yaml")
    parser.add_argument("--op", action="append", choices=tuple(OPS), help="only this one; may be repeated")
    parser.add_argument("--sms", type=number_of_sms, default=SMS, help="of the device")
    parser.add_argument("--band", type=int, action="append", default=[], help="another one; may be repeated")
    options = parser.parse_args()
    if any(band < 1 for band in options.band):
        parser.error(f"--band must be at least 1, got {min(options.band)}")
    try:
        every = cases.cases(shapes.load(data("shapes.yaml")), options.suite)
    except UnknownName as error:
        parser.error(str(error))
    print(f"{options.suite}, {options.sms} SMs: GB from DRAM by the model, as configured and with other bands\n")
    print("| " + " | ".join(["op", "row", "configuration", "GB", *(f"b{band}" for band in options.band)]) + " |")
    print("|---" * (4 + len(options.band)) + "|")
    for case in every:
        if case.op in (options.op or OPS) and case.out_dtype == "bf16":
            config = configured(case, options.sms)
            read = [
                dram_reads(case, each, options.sms)
                for each in (config, *(replace(config, band=b) for b in options.band))
            ]
            print(f"| {case.op} | {case.name} | {config.name} | " + " | ".join(f"{r / 1e9:.2f}" for r in read) + " |")


if __name__ == "__main__":
    main()
