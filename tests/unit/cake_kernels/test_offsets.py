import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cake_kernels.errors import ArgumentError
from cake_kernels.offsets import MAX_ROWS, check_offs, ends_of, ends_within, given_ends, offs_from_sizes, sizes_of

CPU = torch.device("cpu")


def test_ends_are_cumulative_and_keep_empty_groups():
    assert ends_of([0, 3, 0, 5, 0]) == (0, 3, 3, 8, 8)


def test_sizes_invert_ends():
    assert sizes_of((0, 3, 3, 8, 8)) == (0, 3, 0, 5, 0)


def test_no_group_has_no_ends_and_no_sizes():
    assert ends_of([]) == sizes_of(()) == ends_within((), 8) == ()
    assert offs_from_sizes(torch.zeros(0, dtype=torch.int64)).tolist() == []


@given(st.lists(st.integers(0, 1000), max_size=40))
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
        (torch.tensor([[1]]), "group_sizes must have shape [E], got [1, 1]"),
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
        (torch.zeros(2, 1, dtype=torch.int32), "offs must have shape [E], got [2, 1]"),
        (
            torch.zeros(3, dtype=torch.int32),
            "offs must have one cumulative end for each of the E = 2 experts of w, got 3;"
            " a prefix that starts with 0 is passed as indptr, or without that 0",
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


def test_offs_are_taken_as_they_are_and_indptr_without_its_first_element_in_the_same_memory():
    offs, indptr = torch.tensor([2, 5], dtype=torch.int32), torch.tensor([0, 2, 5], dtype=torch.int32)

    from_indptr = given_ends(None, indptr, device=CPU, experts=2)

    assert given_ends(offs, None, device=CPU, experts=2) is offs
    assert from_indptr.tolist() == [2, 5]
    assert from_indptr.data_ptr() == indptr.data_ptr() + 4


@pytest.mark.parametrize(
    ("offs", "indptr", "got"),
    [(None, None, "neither"), (torch.zeros(2, dtype=torch.int32), torch.zeros(3, dtype=torch.int32), "both")],
)
def test_exactly_one_of_offs_and_indptr_is_given(offs, indptr, got):
    with pytest.raises(ArgumentError) as caught:
        given_ends(offs, indptr, device=CPU)

    assert str(caught.value) == (
        f"exactly one of offs, int32 [E], and indptr, int32 [E + 1], must be given, got {got};"
        " see cake_kernels.offsets for how to make one"
    )


@pytest.mark.parametrize(
    ("indptr", "message"),
    [
        ([0, 3], "indptr must be a torch.Tensor, got list; see cake_kernels.offsets for how to make one"),
        (torch.tensor([0, 3]), "indptr must be torch.int32, got torch.int64; convert it with indptr.to(torch.int32)"),
        (torch.zeros(3, 1, dtype=torch.int32), "indptr must have shape [E + 1], got [3, 1]"),
        (
            torch.zeros(0, dtype=torch.int32),
            "indptr must have shape [E + 1], at least the 0 that it begins with, got [0]",
        ),
        (
            torch.zeros(2, dtype=torch.int32),
            "indptr must have a 0 and then one cumulative end for each of the E = 2 experts of w, 3 in all, got 2;"
            " ends without that 0 are passed as offs",
        ),
        (
            torch.zeros(6, dtype=torch.int32)[::2],
            "indptr must be contiguous, got stride (2,); pass indptr.contiguous()",
        ),
        (
            torch.zeros(3, dtype=torch.int32, device="meta"),
            "indptr must be on the device of the other tensors, cpu, got meta",
        ),
    ],
)
def test_indptr_of_another_form_is_refused_with_rule_and_value(indptr, message):
    with pytest.raises(ArgumentError) as caught:
        given_ends(None, indptr, device=CPU, experts=2)

    assert str(caught.value) == message
