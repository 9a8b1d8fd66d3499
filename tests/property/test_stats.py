from hypothesis import given
from hypothesis import strategies as st

from harness.stats.geomean import geomean
from harness.stats.median import median
from harness.stats.percentile import percentile
from harness.stats.ratio import ratios
from harness.stats.spread import spread

SPANS = st.lists(st.integers(1, 10**12), min_size=1, max_size=20)
RATIOS = st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=50)
PAIRS = st.lists(st.tuples(st.integers(1, 10**9), st.integers(1, 10**9)), min_size=1, max_size=20)


@given(SPANS, st.randoms(use_true_random=False))
def test_median_does_not_depend_on_order(spans: list[int], random: object) -> None:
    shuffled = list(spans)
    random.shuffle(shuffled)  # type: ignore[attr-defined]

    assert median(shuffled) == median(spans)


@given(SPANS)
def test_twice_the_median_of_integers_is_an_integer(spans: list[int]) -> None:
    assert (2 * median(spans)).is_integer()
    assert min(spans) <= median(spans) <= max(spans)


@given(RATIOS)
def test_geomean_lies_between_the_least_and_the_largest(values: list[float]) -> None:
    assert min(values) <= geomean(values) <= max(values)


@given(RATIOS)
def test_geomean_of_reciprocals_is_the_reciprocal(values: list[float]) -> None:
    product = geomean(values) * geomean([1 / value for value in values])

    assert abs(product - 1) < 1e-9


@given(PAIRS)
def test_swapping_baseline_and_new_gives_reciprocal_group_ratios(pairs: list[tuple[int, int]]) -> None:
    old, new = [a for a, _ in pairs], [b for _, b in pairs]

    for there, back in zip(ratios(old, new), ratios(new, old), strict=True):
        assert abs(there * back - 1) < 1e-12


@given(SPANS, st.integers(0, 99))
def test_percentile_is_a_value_that_occurs(spans: list[int], percent: int) -> None:
    assert percentile(spans, percent) in spans


@given(SPANS)
def test_spread_is_unknown_or_not_negative(spans: list[int]) -> None:
    value = spread(spans)

    assert (value is None) == (len(spans) < 2)
    assert value is None or value >= 0
