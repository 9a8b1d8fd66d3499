"""Whatever stands in a cell: it is read with every digit, or not at all, and the audit ends with findings."""

import re

from hypothesis import given
from hypothesis import strategies as st

from harness.audit import audit
from harness.audit.printed import latency, only_range, ratio

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\t|\\"), max_size=20)
NEAR = st.lists(
    st.sampled_from(
        ["1.1", "0.9", "12", "1,1", "1e3", "[", "]", "(", ")", ", ", "-", " to ", "x", "²", "†", " ", "of", "busy", "t"]
    ),
    max_size=9,
).map("".join)
CELL = (
    TEXT | NEAR | st.sampled_from(["6²", "9" * 5000]) | st.from_regex(r"[0-9]{1,400}(\.[0-9]{1,400})?", fullmatch=True)
)


def digits(text: str) -> str:
    return "".join(char for char in text if char.isdecimal())


@given(CELL)
def test_a_cell_is_read_with_every_digit_or_not_at_all(cell: str) -> None:
    if found := ratio(cell):
        ends = [end.text for end in (found.low, found.high) if end]
        assert digits("".join([found.value.text, *ends, found.rest])) == digits(cell)
        assert digits(re.sub(r"\d+\s+of\s+\d+|busy\s+\d+(\.\d+)?", "", found.rest)) == ""
    if both := only_range(cell):
        assert digits("".join(end.text for end in both)) == digits(cell)
    if time := latency(cell):
        assert digits(time.value.text) == digits(cell)


@given(CELL, CELL, CELL, CELL)
def test_the_audit_ends_whatever_stands_in_cells_and_sentences(value: str, groups: str, mean: str, said: str) -> None:
    found = audit(
        "| row | op | new (ms) | vs torch | n |\n|---|---|---|---|---|\n"
        f"| a bal | fwd | {groups} | {value} | {groups} |\n\n"
        f"| op | count | vs torch |\n|---|---|---|\n| fwd | {groups} | {mean} |\n\n"
        f"{said} of the {groups} rows are below {value}\n"
    )

    assert found.rows == 1
