"""Each rule of group sizes, on values worked out by hand."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from harness import distributions, plugins
from harness.distributions import Distribution, draw, largest_remainder, load
from harness.errors import PluginError, ShapesError, UnknownName


def sizes(name: str, E: int | None, M: int | None, *, ascending: bool = False, **parameters: object) -> tuple[int, ...]:
    return draw(load(name).model_validate(parameters), E=E, M=M, ascending=ascending).group_sizes


def test_there_are_these_distributions() -> None:
    known = ("balanced", "lognormal", "one_empty", "one_hot", "skew", "trace", "uniform", "zipf")

    assert plugins.names("distributions") == known
    with pytest.raises(UnknownName, match="distribution 'skewed' is not known; known: balanced, lognormal"):
        load("skewed")


@pytest.mark.parametrize(
    ("weights", "M", "expected"),
    [
        ([1, 1, 1], 4, (2, 1, 1)),  # a tie goes to the first
        ([1, 1, 1], 5, (2, 2, 1)),
        ([1, 2, 1], 5, (1, 3, 1)),  # remainders 1/4, 1/2, 1/4: the largest wins over the first
        ([0, 1], 7, (0, 7)),
        ([0.5, 0.25, 0.25], 3, (1, 1, 1)),
        ([3], 0, (0,)),
    ],
)
def test_largest_remainder(weights: list[float], M: int, expected: tuple[int, ...]) -> None:
    assert largest_remainder(weights, M) == expected


def test_largest_remainder_is_exact_where_a_float_is_not() -> None:
    M = 10**30 + 1

    assert largest_remainder([1, 1], M) == (M // 2 + 1, M // 2)
    assert sum(largest_remainder([0.1, 0.2, 0.7], M)) == M


def test_balanced_gives_the_remainder_to_the_first() -> None:
    assert sizes("balanced", 4, 10) == (3, 3, 2, 2)


def test_skew_weighs_by_one_over_the_rank() -> None:
    # 100 * (12, 6, 4, 3) / 25
    assert sizes("skew", 4, 100) == (48, 24, 16, 12)


def test_one_empty_leaves_the_last_without_rows() -> None:
    assert sizes("one_empty", 4, 10) == (4, 3, 3, 0)


def test_one_hot_gives_all_rows_to_one_expert() -> None:
    assert sizes("one_hot", 3, 7) == (7, 0, 0)
    assert sizes("one_hot", 3, 7, expert=2) == (0, 0, 7)


def test_zipf_of_one_is_skew_and_of_zero_is_balanced() -> None:
    assert sizes("zipf", 7, 112576, s=1.0) == sizes("skew", 7, 112576)
    assert sizes("zipf", 7, 112576, s=0) == sizes("balanced", 7, 112576)


def test_zipf_weighs_by_a_power_of_the_rank() -> None:
    # Exact shares with s = 2 are in proportion to 36, 9, 4.
    assert sizes("zipf", 3, 49, s=2) == (36, 9, 4)
    # Shares with s = 1/2: 1, 0.7071, 0.5774 of 2.2845; 437.7, 309.5, 252.7.
    assert sizes("zipf", 3, 1000, s=0.5) == (438, 309, 253)


def test_lognormal_is_drawn_as_the_definition_says() -> None:
    sigma = np.sqrt(np.log(1 + 0.35**2))
    drawn = np.random.Generator(np.random.PCG64(3)).lognormal(0.0, sigma, 8)
    shares = 65536 * drawn / drawn.sum()

    result = sizes("lognormal", 8, 65536, cv=0.35, seed=3)

    assert all(abs(size - share) < 1 for size, share in zip(result, shares, strict=True))
    assert result != tuple(sorted(result))


def test_lognormal_seeds_differ() -> None:
    assert sizes("lognormal", 8, 65536, cv=0.35, seed=1) != sizes("lognormal", 8, 65536, cv=0.35, seed=2)


def test_lognormal_leaves_the_last_empty_ones_out_of_the_draw() -> None:
    assert sizes("lognormal", 5, 1000, cv=0.35, empty=2) == (*sizes("lognormal", 3, 1000, cv=0.35), 0, 0)


def test_lognormal_without_variation_is_balanced() -> None:
    assert sizes("lognormal", 7, 100, cv=0) == sizes("balanced", 7, 100)


def test_uniform_is_drawn_as_the_definition_says_where_the_draw_has_m_rows() -> None:
    drawn = np.random.Generator(np.random.PCG64(3)).integers(1, 65, 500)

    assert sizes("uniform", 500, int(drawn.sum()), high=64, seed=3) == tuple(drawn)
    assert (drawn.min(), drawn.max()) == (1, 64)


def test_uniform_gives_and_takes_rows_by_the_room_up_or_down() -> None:
    drawn = tuple(np.random.Generator(np.random.PCG64(0)).integers(1, 65, 4))

    assert drawn == (55, 41, 33, 18)  # 147; room up 9, 23, 31, 46, of 109, room down 54, 40, 32, 17, of 143
    assert sizes("uniform", 4, 200, high=64) == (60, 52, 48, 40)  # + 53 x 9 / 109 = 4.38, 11.18, 15.07, 22.37
    assert sizes("uniform", 4, 40, high=64) == (15, 11, 9, 5)  # - 107 x 54 / 143 = 40.41, 29.93, 23.94, 12.72


def test_uniform_keeps_its_bounds_and_refuses_rows_that_have_no_room() -> None:
    assert sizes("uniform", 3, 15, high=5, low=2) == (5, 5, 5)
    assert sizes("uniform", 3, 6, high=5, low=2) == (2, 2, 2)
    assert sizes("uniform", 3, 0, high=5, low=0) == (0, 0, 0)
    for M in (5, 16):
        with pytest.raises(ShapesError, match=rf"M must be in 6..15 with 2 to 5 rows for each of E = 3, got {M}$"):
            sizes("uniform", 3, M, high=5, low=2)
    with pytest.raises(ShapesError, match="low must be <= high = 5, got 6"):
        sizes("uniform", 3, 15, high=5, low=6)


def test_ascending_reverses() -> None:
    assert sizes("one_empty", 4, 10, ascending=True) == (0, 3, 3, 4)


@pytest.mark.parametrize("name", ["balanced", "skew", "one_hot"])
def test_no_rows_one_expert_and_fewer_rows_than_experts(name: str) -> None:
    assert sizes(name, 3, 0) == (0, 0, 0)
    assert sizes(name, 1, 5) == (5,)
    assert sum(sizes(name, 8, 3)) == 3


def test_one_empty_of_one_expert_has_room_for_no_row() -> None:
    assert sizes("one_empty", 1, 0) == (0,)
    with pytest.raises(ShapesError, match=r"E must be >= 2 with one_empty, .* M = 5 rows; got 1"):
        sizes("one_empty", 1, 5)


def test_lognormal_of_empty_experts_only_has_room_for_no_row() -> None:
    assert sizes("lognormal", 2, 0, cv=0.35, empty=2) == (0, 0)
    with pytest.raises(ShapesError, match=r"empty must be < E = 2, .* M = 5 rows; got 2"):
        sizes("lognormal", 2, 5, cv=0.35, empty=2)
    with pytest.raises(ShapesError, match=r"empty must be < E = 2, .* got 3"):
        sizes("lognormal", 2, 0, cv=0.35, empty=3)


def test_one_hot_needs_an_expert_that_is_there() -> None:
    with pytest.raises(ShapesError, match="expert must be < E = 2, got 2"):
        sizes("one_hot", 2, 5, expert=2)


@pytest.mark.parametrize(
    ("E", "M", "message"),
    [
        (None, 5, "E is missing; only a trace says it itself, balanced does not"),
        (2, None, "M is missing"),
        (0, 5, "E must be in 1..65536, got 0"),
        (2, -1, "M must be in 0..2147483647, got -1"),
        (2**40, 1, "E must be in 1..65536, got 1099511627776"),
        (2, 2**31, "M must be in 0..2147483647, got 2147483648"),
    ],
)
def test_dims_are_checked(E: int | None, M: int | None, message: str) -> None:
    with pytest.raises(ShapesError, match=message):
        sizes("balanced", E, M)


def test_words_reproduce_the_sizes() -> None:
    rule = load("lognormal").model_validate({"cv": 0.35, "seed": 7})

    assert draw(rule, E=4, M=100).words == "lognormal(cv=0.35, seed=7, empty=0)"
    assert draw(load("skew")(), E=4, M=100, ascending=True).words == "skew, ascending"


def test_a_rule_that_breaks_its_promise_is_refused() -> None:
    class Wrong(Distribution):
        def group_sizes(self, *, E: int, M: int) -> tuple[int, ...]:
            return (M + 1,) * E

    with pytest.raises(PluginError, match="must give 2 integers >= 0 with the sum 5, got 2 with the sum 12"):
        draw(Wrong(), E=2, M=5)


def test_a_module_without_sizes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "load", lambda folder, name: distributions)

    with pytest.raises(PluginError, match=r"distribution 'x' must have a class Sizes\(Distribution\), got None"):
        load("x")


# Traces


@pytest.fixture
def routing(tmp_path: Path) -> Path:
    path = tmp_path / "routing.csv"
    path.write_text("5,0,2\n")
    return path


def test_a_trace_says_e_and_m_itself(routing: Path) -> None:
    drawn = draw(load("trace").model_validate({"path": str(routing)}), E=None, M=None)

    assert drawn.group_sizes == (5, 0, 2)


def test_a_trace_shows_its_name_and_a_hash_but_no_folder(routing: Path) -> None:
    rule = load("trace").model_validate({"path": str(routing)})
    digest = hashlib.sha256(b"5,0,2").hexdigest()[:12]

    assert rule.words() == f"trace(file=routing.csv, sha256={digest})"
    assert rule.short() == "trace:routing.csv"


def test_a_trace_lies_beside_the_file_that_names_it(routing: Path) -> None:
    rule = load("trace").model_validate({"path": "routing.csv"}).beside(routing.parent)

    assert rule.dims() == (3, 7)


@pytest.mark.parametrize("text", ["5\n0\n2\n", "5, 0, 2", "\ufeff5,0,2\r\n", "5\r\n\r\n0\r\n2"])
def test_a_csv_is_one_row_or_one_column(tmp_path: Path, text: str) -> None:
    path = tmp_path / "column.csv"
    path.write_bytes(text.encode())

    assert sizes("trace", 3, 7, path=str(path)) == (5, 0, 2)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8])
def test_an_npy_is_read_alike(tmp_path: Path, dtype: type) -> None:
    path = tmp_path / "routing.npy"
    np.save(path, np.array([5, 0, 2], dtype))

    assert sizes("trace", 3, 7, path=str(path)) == (5, 0, 2)


@pytest.mark.parametrize(
    ("E", "M", "message"),
    [
        (4, 7, "E must be 3 as in trace:routing.csv, or left out; got 4"),
        (3, 8, "M must be 7 as in trace:routing.csv, or left out; got 8"),
        (0, None, "E must be 3 as in trace:routing.csv, or left out; got 0"),
    ],
)
def test_dims_that_differ_from_the_trace_are_refused(routing: Path, E: int, M: int, message: str) -> None:
    with pytest.raises(ShapesError, match=message):
        sizes("trace", E, M, path=str(routing))


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.txt", b"1", r"path must end in .npy or .csv, got '.*a.txt'"),
        ("a.csv", b"", r"a.csv must hold the size of at least one expert, got none"),
        ("a.csv", b"1,2\n3,4\n", r"a.csv must be one row or one column of sizes, got 2 rows"),
        ("a.csv", b"expert,rows", r"a.csv must hold integers only, without a heading; got 'expert'"),
        ("a.csv", b"1,2.5", r"a.csv must hold integers only, without a heading; got '2.5'"),
        ("a.csv", b"1,", r"a.csv must hold integers only, without a heading; got ''"),
        ("a.csv", b"4,-1", r"a.csv: the size of expert 1 must be >= 0, got -1"),
        ("a.csv", b"\xff", r"a.csv must be UTF-8 text"),
        ("a.npy", b"not numpy", r"a.npy must be a .npy file of integers: "),
        ("a.npy", b"", r"a.npy must be a .npy file of integers: "),
    ],
)
def test_a_broken_trace_says_why(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(data)

    with pytest.raises(ShapesError, match=message):
        sizes("trace", None, None, path=str(tmp_path / name))


@pytest.mark.parametrize(
    ("array", "got"),
    [
        (np.array([1.0, 2.0]), r"float64 \[2\]"),
        (np.array([[1, 2]]), r"int64 \[1, 2\]"),
        (np.array([True]), r"bool \[1\]"),
    ],
)
def test_an_npy_must_hold_one_dimension_of_integers(tmp_path: Path, array: np.ndarray, got: str) -> None:
    np.save(tmp_path / "a.npy", array)

    with pytest.raises(ShapesError, match=f"a.npy must have one dimension of integers, one per expert; got {got}"):
        sizes("trace", None, None, path=str(tmp_path / "a.npy"))


def test_a_missing_trace_says_so(tmp_path: Path) -> None:
    with pytest.raises(ShapesError, match=r"path '.*gone.csv' cannot be read: No such file or directory"):
        sizes("trace", None, None, path=str(tmp_path / "gone.csv"))


@pytest.mark.parametrize(
    "header",
    [
        b"{'descr': '<i8', 'fortran_order': False, 'shape': (1000000000000,), }",
        b"{'descr': '<i8', 'fortran_order': False, 'shape': (1000000000000000000,), }",
        b"{'descr': '<i8', 'fortran_order': False, 'shape': (1000000000000000000000000000000,), }",
        b"{'descr': '<i8', 'fortran_order': False, 'shape': (True,), }",
        b"{'descr': '<i8', 'fortran_order': False, 'shape': (3",
        b"((((((",
        b"\xff\xfe",
        b"",
    ],
)
def test_an_npy_whose_header_is_garbage_or_claims_too_much_is_refused(tmp_path: Path, header: bytes) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.arange(3))
    good = path.read_bytes()
    path.write_bytes(good[:10] + header.ljust(118)[:118] + good[128:])

    with pytest.raises(ShapesError, match=r"a.npy must be a .npy file of integers: "):
        sizes("trace", None, None, path=str(path))


def test_an_npy_of_more_sizes_than_a_shape_can_have_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(65537, np.int8))

    with pytest.raises(ShapesError, match=r"a.npy must hold at most 65536 sizes, one per expert; got 65537"):
        sizes("trace", None, None, path=str(tmp_path / "a.npy"))


def test_a_pickle_in_an_npy_is_not_run(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([Fraction(1)], object), allow_pickle=True)

    with pytest.raises(ShapesError, match=r"a.npy must be a .npy file of integers: Object arrays cannot be loaded"):
        sizes("trace", None, None, path=str(tmp_path / "a.npy"))


def test_shapes_and_cases_need_no_torch() -> None:
    code = (
        "import sys; from harness import cases, distributions, plugins;"
        "[distributions.load(name) for name in plugins.names('distributions')];"
        "print('torch' in sys.modules)"
    )
    top = Path(__file__).parents[2]

    out = subprocess.run([sys.executable, "-c", code], cwd=top, capture_output=True, text=True, check=True)

    assert out.stdout.strip() == "False"
