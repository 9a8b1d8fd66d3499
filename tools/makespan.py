"""What the plan of the tail leaves of the ideal, for every row of a suite: no GPU, no time, integers of k-blocks.

::

    python tools/makespan.py                                   # the published shapes on 132 SMs
    python tools/makespan.py --suite moe-heldout --sms 114
    python tools/makespan.py --op dW --summary

A row's makespan is the k-blocks until the last cluster is done, if all begin each full wave together, by the plain
walk, with the tail placed whole by plan, and where it may be split; what a split costs in time is not counted. The
ratio stands over the ideal, the k-blocks of all tiles over the clusters. The gain of a part of the tail is the
makespan of the plain walk over that with it. docs/tail.md explains the rule. Rows with FP32 dW are left out: their
tiles are those of the BF16 row.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from cake_kernels.grouped_gemm.sm90.config import SMS, Config, choose
from cake_kernels.grouped_gemm.sm90.plan import MAX_CLUSTERS, Plan, plan
from cake_kernels.grouped_gemm.sm90.walk import Walk, walk
from cake_kernels.registry import Op
from harness import cases, shapes
from harness.errors import UnknownName
from harness.model.case import Case
from harness.paths import data
from harness.stats.geomean import geomean

OPS: dict[str, Op] = {"fwd": "fwd", "dX": "dgrad", "dW": "wgrad"}
COLUMNS = ("plain walk", "whole", "may be split")
HEAD = f"| suite | op | rows of | rows | {' | '.join(COLUMNS)} | gain of whole | gain of split |"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One case: makespans in k-blocks, in the order of COLUMNS."""

    case: Case
    config: str
    plans: tuple[Plan, ...]
    makespans: tuple[int, ...]
    ideal: int

    @property
    def ratios(self) -> tuple[float, ...]:
        """Makespans over the ideal."""
        return tuple(makespan / self.ideal for makespan in self.makespans)

    def line(self) -> str:
        """Return the row of the table; a placement follows its makespan, with the tickets of a split."""
        first = self.plans[0]
        cells = [f"{self.makespans[0]} ({self.ratios[0]:.3f})"]
        for made, ratio in zip(self.plans, self.ratios[1:], strict=True):
            tickets = f" {len(made.tickets)}" if made.tickets else ""
            cells.append(f"{made.makespan} ({ratio:.3f}) {made.placement}{tickets}")
        facts = (self.case.op, self.case.name, self.config, first.walk.num_tiles, len(first.tail))
        return "| " + " | ".join(map(str, (*facts, *cells, self.ideal))) + " |"


def row(case: Case, sms: int) -> Row:
    """Return the makespans of ``case`` with the configuration that it gets, on as many clusters as fit ``sms`` SMs."""
    config = configured(case, sms)
    plans = tuple(planned(case, config, sms, split=split) for split in (False, True))
    first = plans[0]
    makespans = (plain_makespan(first.walk, first.clusters), *(made.makespan for made in plans))
    return Row(case=case, config=config.name, plans=plans, makespans=makespans, ideal=first.ideal)


def configured(case: Case, sms: int) -> Config:
    """Return the configuration that ``case`` gets on ``sms`` SMs."""
    shape = case.shape
    return choose(OPS[case.op], M=shape.M, N=shape.N, K=shape.K, E=shape.E, sms=sms)


def planned(case: Case, config: Config, sms: int, *, split: bool) -> Plan:
    """Return the plan of ``case`` with ``config``, on as many clusters as fit ``sms`` SMs."""
    return plan(walked(case, config), sms // config.cluster_size, split=split)


def walked(case: Case, config: Config) -> Walk:
    """Return the walk of ``case`` with ``config``."""
    shape = case.shape
    return walk(
        OPS[case.op],
        list(accumulate(shape.group_sizes)),
        M=shape.M,
        N=shape.N,
        K=shape.K,
        cluster_rows=config.tile_rows * config.cluster_rows,
        cluster_columns=config.tile_cols * config.cluster_cols,
        band=config.band,
    )


def plain_makespan(tiles: Walk, clusters: int) -> int:
    """Return the k-blocks of the plain walk: a wave, which all begin together, takes as long as its longest tile."""
    k_blocks = [group.k_blocks for group in tiles.groups for _ in range(group.rows * group.columns)]
    return sum(max(k_blocks[begin : begin + clusters]) for begin in range(0, len(k_blocks), clusters))


def summaries(rows: list[Row]) -> list[str]:
    """Return a line for each operation and row class: ratios to the ideal, and the gains over the plain walk."""
    parts: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for one in rows:
        parts[one.case.suite, one.case.op, one.case.shape.row_class].append(one)
    return ["| " + " | ".join((*part, str(len(of)), *_cells(of))) + " |" for part, of in parts.items()]


def _cells(rows: list[Row]) -> Iterator[str]:
    for ratios in zip(*(row.ratios for row in rows), strict=True):
        yield f"{geomean(ratios):.4f} ({max(ratios):.4f})"
    plain, *parts = zip(*(row.makespans for row in rows), strict=True)
    for makespans in parts:
        yield f"{100 * geomean([a / b for a, b in zip(plain, makespans, strict=True)]) - 100:.2f} %"


def number_of_sms(text: str) -> int:
    """Read an argument: one cluster of each configuration must fit, and no more than a plan has room for."""
    sms = int(text)
    if not 2 <= sms <= MAX_CLUSTERS:
        raise argparse.ArgumentTypeError(f"must be in 2..{MAX_CLUSTERS}, got {sms}")
    return sms


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--suite", default="moe-training", help="of shapes.yaml")
    parser.add_argument("--op", action="append", choices=tuple(OPS), help="only this one; may be repeated")
    parser.add_argument("--sms", type=number_of_sms, default=SMS, metavar=f"2..{MAX_CLUSTERS}", help="of the device")
    parser.add_argument("--summary", action="store_true", help="only the table of operations and row classes")
    options = parser.parse_args()
    ops = options.op or tuple(OPS)
    try:
        every = cases.cases(shapes.load(data("shapes.yaml")), options.suite)
    except UnknownName as error:
        parser.error(str(error))
    rows = [row(case, options.sms) for case in every if case.op in ops and case.out_dtype == "bf16"]
    if not options.summary:
        print(f"{options.suite}, {options.sms} SMs. Makespan in k-blocks (over the ideal), placement, tickets\n")
        print("| op | row | configuration | tiles | tail | " + " | ".join(COLUMNS) + " | ideal |")
        print("|---|---|---|---|---|" + "---|" * len(COLUMNS) + "---|")
        print("\n".join(row.line() for row in rows) + "\n")
    print("Makespan over the ideal: geomean (worst). Gain over the plain walk: geomean.\n")
    print(HEAD)
    print("|---" * HEAD.count(" | ") + "|---|")
    print("\n".join(summaries(rows)))


if __name__ == "__main__":
    main()
