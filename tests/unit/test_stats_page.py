"""The examples of docs/statistics.md, and its table of what a test can reach.

``GOLDEN_WRITE=1`` writes what its commands print again.
"""

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness.stats import mann_whitney_u, sign_test, signed_rank

TOP = Path(__file__).parents[2]
PATH = TOP / "docs" / "statistics.md"
PAGE = PATH.read_text()
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


def printed(command: str) -> str:
    """Return a command of the page with what it prints from the top of the tree, where ``python`` is this one."""
    variables = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", command], cwd=TOP, env=variables, capture_output=True, text=True, check=False)
    return f"$ {command}\n{done.stdout}{done.stderr}"


def test_the_commands_of_the_page_print_what_it_says() -> None:
    shown = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    found = ["".join(map(printed, re.findall(r"^\$ (.*)$", block, re.M))) for block in shown]
    if os.environ.get("GOLDEN_WRITE"):
        page = PAGE
        for block, anew in zip(shown, found, strict=True):
            page = page.replace(f"```console\n{block}```", f"```console\n{anew}```")
        PATH.write_text(page)
        return

    assert "".join(shown).count("\n$ cake-bench ") >= 4
    assert found == shown
