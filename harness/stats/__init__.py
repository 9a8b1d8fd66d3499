"""Pure statistics: numbers in, numbers out; no files, no devices, no runs.

docs/statistics.md has each formula with its source, and says which test a command takes.
"""

from harness.stats.adjusted import benjamini_hochberg, holm
from harness.stats.errors import StatisticsError
from harness.stats.geomean import geomean
from harness.stats.geomean_interval import geomean_interval
from harness.stats.hodges_lehmann import hodges_lehmann_ratio
from harness.stats.interval import Interval
from harness.stats.mann_whitney import MannWhitney, mann_whitney_u
from harness.stats.median import median
from harness.stats.median_interval import median_interval
from harness.stats.minimum_effect import MinimumEffect, minimum_effect
from harness.stats.null_distribution import Alternative
from harness.stats.paired_rows import PairedTest, paired_tests
from harness.stats.percentile import percentile
from harness.stats.ratio import ratios
from harness.stats.rows_geomean import RowFailure, RowsGeomean, geomean_over_rows
from harness.stats.sign import SignTest, sign_test
from harness.stats.signed_rank import SignedRank, signed_rank
from harness.stats.spread import spread

__all__ = [
    "Alternative",
    "Interval",
    "MannWhitney",
    "MinimumEffect",
    "PairedTest",
    "RowFailure",
    "RowsGeomean",
    "SignTest",
    "SignedRank",
    "StatisticsError",
    "benjamini_hochberg",
    "geomean",
    "geomean_interval",
    "geomean_over_rows",
    "hodges_lehmann_ratio",
    "holm",
    "mann_whitney_u",
    "median",
    "median_interval",
    "minimum_effect",
    "paired_tests",
    "percentile",
    "ratios",
    "sign_test",
    "signed_rank",
    "spread",
]
