"""The section on paired groups: in how many rows the exact tests of each group's ratio find something."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from harness.compare.comparison import Comparison
from harness.pages.compare.words import probability
from harness.pages.markdown.items import Item, bullets
from harness.pages.markdown.numbers import counted
from harness.stats import PairedTest


def paired_section(comparison: Comparison) -> Iterator[str]:
    """Yield the section; nothing where no row was tested."""
    tests = [row.paired for row in comparison.rows if row.paired]
    if tests:
        yield f"## Paired groups\n\n{bullets(Item(line=line) for line in _lines(tests, comparison.limits.q))}"


def _lines(tests: list[PairedTest], limit: float) -> Iterator[str]:
    rows = counted(len(tests), "row")
    yield (
        "BASE / HEAD within each group, exact, two-sided and without a floor: what is small and real shows here, and"
        " gives no verdict"
    )
    ranks = [test for test in tests if test.signed_rank_q <= limit]
    signs = [test for test in tests if test.sign_q <= limit]
    yield (
        f"q <= {limit:g} (Benjamini-Hochberg over the {rows} tested): by the signed rank {_sides(ranks)}; by the sign"
        f" test {_sides(signs)}"
    )
    groups = Counter(test.n for test in tests)
    reach = ", ".join(f"{least_p(n):.4g} with {counted(n, 'group')}" for n in sorted(groups))
    yield (
        f"smallest p in reach of either: {reach}; reached, all groups of a row on one side, by"
        f" {_sides([test for test in tests if test.at_its_smallest])}; chance gives"
        f" {sum(test.p_in_reach for test in tests):.2g}"
    )
    alone = min(1.0, len(tests) * least_p(max(groups)))
    yield f"smallest q in reach of a row that alone has it: {probability(alone)}"


def least_p(groups: int) -> float:
    """Return the smallest two-sided p of so many groups."""
    return min(1.0, 2.0 ** (1 - groups))


def _sides(tests: list[PairedTest]) -> str:
    """Return ``3 rows, 2 faster``: of HEAD, by the majority of groups."""
    faster = sum(2 * test.faster > test.n for test in tests)
    slower = sum(2 * test.faster < test.n for test in tests)
    return f"{counted(len(tests), 'row')} ({faster} faster, {slower} slower)"
