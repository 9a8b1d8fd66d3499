import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cake_kernels.errors import ArgumentError
from cake_kernels.offsets import MAX_ROWS, check_offs, ends_of, ends_within, offs_from_sizes, sizes_of

CPU = torch.device("cpu")


def test_ends_are_cumulative_and_keep_empty_groups():
    assert ends_of([0, 3, 0, 5, 0]) == (0, 3, 3, 8, 8)


def test_sizes_invert_ends():
    assert sizes_of((0, 3, 3, 8, 8)) == (0, 3, 0, 5, 0)


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=40))
def test_ends_and_sizes_are_inverses_for_any_sizes(sizes):
    assert sizes_of(ends_of(sizes)) == tuple(sizes)


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=12), st.integers(0, 40))
def test_ends_as_read_are_monotone_and_within_the_rows(ends, rows):
    read = ends_within(ends, rows)

    assert list(read) == sorted(read)
    assert read[0] >= 0
    assert read[-1] <= rows


def test_monotone_ends_within_the_rows_are_read_as_they_are():
    assert ends_within((0, 3, 3, 8), 8) == (0, 3, 3, 8)


@pytest.mark.parametrize(
    ("ends", "rows", "read"),
    [
        ((5, 2, 8), 8, (5, 5, 8)),
        ((-3, 4, 99), 6, (0, 4, 6)),
        ((99, 1, 2), 6, (6, 6, 6)),
        ((-1, -2), 6, (0, 0)),
    ],
)
def test_broken_ends_are_read_as_their_running_maximum_within_the_rows(ends, rows, read):
    assert ends_within(ends, rows) == read


def test_offs_from_sizes_are_int32_cumulative_ends():
    offs = offs_from_sizes(torch.tensor([2, 0, 5]))

    assert offs.dtype == torch.int32
    assert offs.tolist() == [2, 2, 7]


def test_offs_from_sizes_pass_their_own_check():
    check_offs(offs_from_sizes(torch.tensor([2, 0, 5])), device=CPU, experts=3)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ([], "group_sizes must have at least one group, got none"),
        ([3, -2], "group_sizes[1] must be >= 0, got -2"),
        (
            [MAX_ROWS, 1],
            "group_sizes must sum to at most 2147483647, the most that int32 offs can name, got 2147483648",
        ),
    ],
)
def test_impossible_sizes_are_refused_with_rule_and_value(sizes, message):
    with pytest.raises(ArgumentError) as caught:
        ends_of(sizes)

    assert str(caught.value) == message


def test_falling_ends_have_no_sizes():
    with pytest.raises(ArgumentError) as caught:
        sizes_of((4, 9, 7))

    assert str(caught.value) == "offs[2] must be >= 9, the end before it, got 7"


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        (torch.tensor([1.0]), "group_sizes must be of an integer type, got torch.float32"),
        (torch.tensor([True]), "group_sizes must be of an integer type, got torch.bool"),
        (torch.tensor([[1]]), "group_sizes must have shape [E] with E >= 1, got [1, 1]"),
        (torch.tensor([], dtype=torch.int64), "group_sizes must have shape [E] with E >= 1, got [0]"),
    ],
)
def test_size_tensors_of_another_form_are_refused(sizes, message):
    with pytest.raises(ArgumentError) as caught:
        offs_from_sizes(sizes)

    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("offs", "message"),
    [
        ([3], "offs must be a torch.Tensor, got list; see cake_kernels.offsets for how to make one"),
        (torch.tensor([3, 3]), "offs must be torch.int32, got torch.int64; convert it with offs.to(torch.int32)"),
        (torch.zeros(2, 1, dtype=torch.int32), "offs must have shape [E] with E >= 1, got [2, 1]"),
        (
            torch.zeros(3, dtype=torch.int32),
            "offs must have one cumulative end for each of the E = 2 experts of w, got 3;"
            " a prefix that starts with 0 is passed without its first element",
        ),
        (
            torch.zeros(4, dtype=torch.int32)[::2],
            "offs must be contiguous, got stride (2,); pass offs.contiguous()",
        ),
        (
            torch.zeros(2, dtype=torch.int32, device="meta"),
            "offs must be on the device of the other tensors, cpu, got meta",
        ),
    ],
)
def test_offs_of_another_form_are_refused_with_rule_and_value(offs, message):
    with pytest.raises(ArgumentError) as caught:
        check_offs(offs, device=CPU, experts=2)

    assert str(caught.value) == message
