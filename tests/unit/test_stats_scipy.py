"""The exact tests against scipy, where scipy is exact: no ties, no zeros."""

import random

import pytest
from scipy import stats as scipy_stats

from harness.stats import benjamini_hochberg, mann_whitney_u, sign_test, signed_rank

ALTERNATIVES = pytest.mark.parametrize("alternative", ["two-sided", "less", "greater"])


@ALTERNATIVES
@pytest.mark.parametrize(("n_x", "n_y"), [(1, 1), (3, 3), (6, 6), (6, 9), (12, 12), (32, 32)])
def test_mann_whitney_agrees_without_ties(n_x: int, n_y: int, alternative: str) -> None:
    draw = random.Random(n_x)
    values = draw.sample(range(10_000), n_x + n_y)
    x, y = values[:n_x], values[n_x:]

    found = mann_whitney_u(x, y, alternative)  # type: ignore[arg-type]

    scipy_found = scipy_stats.mannwhitneyu(x, y, alternative=alternative, method="exact")
    assert found.u == scipy_found.statistic
    assert found.p_value == pytest.approx(scipy_found.pvalue, rel=1e-12)


@ALTERNATIVES
@pytest.mark.parametrize("n", [1, 5, 6, 12, 32])
def test_the_signed_rank_agrees_without_ties_and_zeros(n: int, alternative: str) -> None:
    draw = random.Random(n)
    values = [size * draw.choice((-1, 1)) for size in draw.sample(range(1, 1000), n)]

    found = signed_rank(values, alternative)  # type: ignore[arg-type]

    expected = scipy_stats.wilcoxon(values, alternative=alternative, method="exact").pvalue
    assert found.p_value == pytest.approx(expected, rel=1e-12)


@ALTERNATIVES
@pytest.mark.parametrize(("positive", "n"), [(0, 1), (3, 6), (6, 6), (20, 32)])
def test_the_sign_test_agrees_with_the_binomial_test(positive: int, n: int, alternative: str) -> None:
    found = sign_test([1] * positive + [-1] * (n - positive), alternative)  # type: ignore[arg-type]

    expected = scipy_stats.binomtest(positive, n, alternative=alternative).pvalue
    assert found.p_value == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("m", [1, 2, 10, 400])
def test_false_discovery_control_agrees(m: int) -> None:
    draw = random.Random(m)
    p_values = [draw.choice((0.01, 0.5, 1.0, draw.random())) for _ in range(m)]

    assert benjamini_hochberg(p_values) == pytest.approx(scipy_stats.false_discovery_control(p_values), rel=1e-12)
