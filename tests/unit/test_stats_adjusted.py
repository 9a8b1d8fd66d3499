import math

import pytest

from harness.stats import StatisticsError, benjamini_hochberg, holm

# The fifteen p-values of Benjamini and Hochberg 1995, 3.2: FDR 0.05 rejects four, Bonferroni three.
THROMBOLYSIS = (
    *(0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344),
    *(0.0459, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0000),
)


def test_false_discovery_control_rejects_what_its_authors_did() -> None:
    q = benjamini_hochberg(THROMBOLYSIS)

    assert sum(value <= 0.05 for value in q) == 4
    assert q[:4] == pytest.approx((0.0015, 0.0030, 0.0095, 0.035625))


def test_holm_rejects_three_of_them() -> None:
    adjusted = holm(THROMBOLYSIS)

    assert sum(value <= 0.05 for value in adjusted) == 3
    assert adjusted[:3] == pytest.approx((15 * 0.0001, 14 * 0.0004, 13 * 0.0019))


def test_adjusted_values_stand_in_the_order_of_the_p_values() -> None:
    assert benjamini_hochberg([0.5, 0.01]) == (0.5, 0.02)
    assert holm([0.5, 0.01]) == (0.5, 0.02)


def test_a_lower_p_never_has_a_higher_q() -> None:
    assert benjamini_hochberg([0.03, 0.04]) == (0.04, 0.04)
    assert holm([0.03, 0.04]) == (0.06, 0.06)


def test_no_p_value_gives_no_q() -> None:
    assert benjamini_hochberg([]) == holm([]) == ()


@pytest.mark.parametrize("bad", [0.0, -0.1, 1.1, math.nan, math.inf])
@pytest.mark.parametrize("adjust", [benjamini_hochberg, holm])
def test_what_is_no_p_value_is_refused(adjust: object, bad: float) -> None:
    with pytest.raises(StatisticsError, match=r"p_values\[1\] must be above 0 and at most 1, got"):
        adjust([0.5, bad])  # type: ignore[operator]


def test_one_row_of_a_hundred_cannot_pass_with_six_against_six() -> None:
    # The smallest two-sided p of 6 v 6 is 2/924; alone among 100 rows its q is 100 times that.
    q = benjamini_hochberg([2 / 924, *[1.0] * 99])

    assert q[0] == pytest.approx(0.2164502)
