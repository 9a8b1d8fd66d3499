"""The examples of docs/statistics.md, and its table of what a test can reach."""

import doctest
import re
from pathlib import Path

import pytest

from harness.stats import mann_whitney_u, sign_test, signed_rank

PAGE = (Path(__file__).parents[2] / "docs" / "statistics.md").read_text()
REACH = [
    (int(n), float(unpaired), float(paired))
    for n, unpaired, paired in re.findall(r"^\| (\d+) \| ([\d.e-]+) \| ([\d.e-]+) \|$", PAGE.split("```")[0], re.M)
]


def test_the_examples_of_the_page_give_what_it_says() -> None:
    examples = "\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
    test = doctest.DocTestParser().get_doctest(examples, {}, "statistics.md", "docs/statistics.md", 0)

    result = doctest.DocTestRunner().run(test)

    assert result.attempted > 30
    assert result.failed == 0


@pytest.mark.parametrize(("n", "unpaired", "paired"), REACH)
def test_the_page_says_what_the_tests_can_reach(n: int, unpaired: float, paired: float) -> None:
    low, high = list(range(1, n + 1)), list(range(n + 1, 2 * n + 1))

    assert mann_whitney_u(low, high).min_p_value == pytest.approx(unpaired, rel=1e-3)
    assert sign_test(low).min_p_value == signed_rank(low).min_p_value == pytest.approx(paired, rel=1e-3)


def test_the_page_says_it_for_three_to_32() -> None:
    assert [n for n, *_ in REACH] == [3, 4, 5, 6, 8, 12, 16, 32]
