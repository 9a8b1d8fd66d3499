"""Cases of suites and of ad-hoc shapes, filters, and the integers of every suite.

``python -m tests.unit.test_cases`` writes the golden files anew; a change there changes what figures mean.
"""

from __future__ import annotations

import csv
import hashlib
import json
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

from harness import distributions, paths, plugins, shapes
from harness.cases import adhoc, cases, select, suite_counts, suites
from harness.errors import ShapesError, UnknownName, UsageError
from harness.model.case import Case
from harness.model.run import SuiteCount
from harness.shapes import Shapes

TESTS = Path(__file__).parents[1]
GOLDEN_SIZES = TESTS / "golden" / "moe_training_group_sizes.json"
GOLDEN_DIGESTS = TESTS / "golden" / "suites_group_sizes_sha256.json"


@pytest.fixture(scope="module")
def published() -> Shapes:
    return shapes.load(paths.data("shapes.yaml"))


@pytest.fixture(scope="module")
def training(published: Shapes) -> tuple[Case, ...]:
    return cases(published, "moe-training")


def sizes_of(all_shapes: Shapes, suite: str) -> dict[str, list[int]]:
    return {row.shape.name: list(row.shape.group_sizes) for row in all_shapes.suite(suite).rows}


def sizes_text(all_shapes: Shapes, suite: str) -> str:
    lines = (f"  {json.dumps(name)}: {json.dumps(sizes)}" for name, sizes in sizes_of(all_shapes, suite).items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def digests_text(all_shapes: Shapes) -> str:
    names = suites(all_shapes)
    digests = {name: hashlib.sha256(sizes_text(all_shapes, name).encode()).hexdigest() for name in names}
    return json.dumps(digests, indent=2) + "\n"


# Suites


def test_the_published_rows_stand_in_the_published_order(training: tuple[Case, ...]) -> None:
    with (TESTS / "data" / "shapes" / "published_rows.csv").open(newline="") as file:
        rows = [(row["op"], row["name"]) for row in csv.DictReader(file)]

    assert len(rows) == 100
    assert [(case.op, case.name) for case in training if case.op not in ("fwd", "dX")] == rows


def test_fwd_and_dx_have_the_same_32_shapes_as_ckpt(training: tuple[Case, ...]) -> None:
    by_op = {op: [case.name for case in training if case.op == op] for op in ("fwd", "dX", "ckpt")}

    assert by_op["fwd"] == by_op["dX"] == by_op["ckpt"]
    assert len(by_op["fwd"]) == 32


def test_suite_counts_are_the_published_ones(published: Shapes) -> None:
    def count(op: str, owner: int, unsorted: int) -> tuple[SuiteCount, ...]:
        counts = {"owner": owner, "unsorted": unsorted}
        return tuple(SuiteCount(suite="moe-training", op=op, row_class=c, count=n) for c, n in counts.items())

    assert suite_counts(published, "moe-training") == (
        *count("fwd", 18, 14),
        *count("dX", 18, 14),
        *count("dW", 22, 14),
        *count("ckpt", 18, 14),
        *count("ckpt ES", 18, 14),
    )


def test_published_shapes_have_the_published_sizes(training: tuple[Case, ...]) -> None:
    for case in training:
        projection, E, M = case.name.split()[:3]
        assert (f"E{case.shape.E}", f"M{case.shape.M}") == (E, M)
        N, K = {"gate_up": (4096, 6144), "down": (6144, 2048)}[projection]
        assert (case.shape.N, case.shape.K) == (N, K)


def test_rows_of_every_suite_are_unique(published: Shapes) -> None:
    for suite in suites(published):
        counts = Counter(case.case_id for case in cases(published, suite))
        assert set(counts.values()) == {1}


def test_the_number_of_rows_of_each_suite(published: Shapes) -> None:
    assert {suite: len(cases(published, suite)) for suite in suites(published)} == {
        "smoke": 13,
        "moe-training": 164,
        "moe-small-experts": 54,
        "moe-heldout": 288,
        "moe-models": 150,
        "moe-decode": 36,
    }


def test_an_unknown_suite_is_answered_with_the_known_ones(published: Shapes) -> None:
    with pytest.raises(UnknownName, match="suite 'moe' is not known; known: smoke, moe-training, moe-small-experts"):
        cases(published, "moe")


def test_the_integers_of_published_shapes_are_the_golden_ones(published: Shapes) -> None:
    assert sizes_text(published, "moe-training") == GOLDEN_SIZES.read_text()


def test_the_integers_of_every_suite_have_the_golden_digest(published: Shapes) -> None:
    assert digests_text(published) == GOLDEN_DIGESTS.read_text()


# Ad-hoc shapes

SHAPE = "E=8,M=65536,N=4096,K=7168"


@pytest.mark.parametrize(
    ("rest", "suffix", "words"),
    [
        ("dist=lognormal:0.35", "lognormal:0.35", "lognormal(cv=0.35, seed=0, empty=0)"),
        ("dist=lognormal:0.35,seed=3", "lognormal:0.35 seed3", "lognormal(cv=0.35, seed=3, empty=0)"),
        ("dist=lognormal,cv=.350,seed=0", "lognormal:0.35", "lognormal(cv=0.35, seed=0, empty=0)"),
        ("dist=lognormal:0.35,empty=1", "lognormal:0.35 empty1", "lognormal(cv=0.35, seed=0, empty=1)"),
        (
            "dist=lognormal:0.35,seed=3,asc",
            "lognormal:0.35 asc seed3",
            "lognormal(cv=0.35, seed=3, empty=0), ascending",
        ),
        ("dist=balanced", "balanced", "balanced"),
        ("dist=skew,asc=true", "skew asc", "skew, ascending"),
        ("dist=skew,ascending", "skew asc", "skew, ascending"),
        ("dist=skew,ascending=false", "skew", "skew"),
        ("dist=one_empty", "one_empty", "one_empty"),
        ("dist=zipf:1.2", "zipf:1.2", "zipf(s=1.2)"),
        ("dist=zipf:1", "zipf:1", "zipf(s=1.0)"),
        ("dist=uniform:16384,seed=3", "uniform:16384 seed3", "uniform(high=16384, low=1, seed=3)"),
        ("dist=one_hot:3", "one_hot:3", "one_hot(expert=3)"),
        ("dist=one_hot", "one_hot:0", "one_hot(expert=0)"),
        (" dist = zipf:1 ", "zipf:1", "zipf(s=1.0)"),
    ],
)
def test_an_adhoc_shape_is_named_by_what_it_is(rest: str, suffix: str, words: str) -> None:
    case = adhoc(f"{SHAPE},{rest}")[0]

    assert case.name == f"E8 M65536 N4096 K7168 {suffix}"
    assert case.shape.distribution == words
    assert (case.suite, case.shape.row_class) == ("adhoc", "adhoc")
    assert (case.shape.E, case.shape.M, case.shape.N, case.shape.K) == (8, 65536, 4096, 7168)


def test_an_adhoc_shape_runs_the_three_gemms_or_those_asked_for() -> None:
    assert [case.op for case in adhoc(f"{SHAPE},dist=skew")] == ["fwd", "dX", "dW"]
    assert [case.op for case in adhoc(f"{SHAPE},dist=skew", ops=("ckpt ES", "fwd"))] == ["fwd", "ckpt ES"]


def test_an_fp32_output_is_for_dw() -> None:
    (case,) = adhoc(f"{SHAPE},dist=skew,out=fp32")

    assert (case.op, case.out_dtype, case.name) == ("dW", "fp32", "E8 M65536 N4096 K7168 skew fp32")
    with pytest.raises(ShapesError, match=r"out_dtype fp32 of .* needs op dW, got 'fwd'"):
        adhoc(f"{SHAPE},dist=skew,out=fp32", ops=("fwd", "dW"))


def test_an_adhoc_shape_may_have_a_name() -> None:
    assert adhoc(f"{SHAPE},dist=skew,name=my layer")[0].name == "my layer"


def test_an_adhoc_shape_may_have_no_rows() -> None:
    assert adhoc("E=2,M=0,N=1,K=1,dist=balanced")[0].shape.group_sizes == (0, 0)


def test_an_adhoc_trace_leaves_its_folder_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "routing.csv").write_text("5,0,2")
    digest = hashlib.sha256(b"5,0,2").hexdigest()[:12]
    monkeypatch.chdir(tmp_path)

    for path in ("routing.csv", tmp_path / "routing.csv"):
        shape = adhoc(f"N=16,K=8,dist=trace:{path}")[0].shape
        assert shape.group_sizes == (5, 0, 2)
        assert shape.name == "E3 M7 N16 K8 trace:routing.csv"
        assert shape.distribution == f"trace(file=routing.csv, sha256={digest})"
        assert str(tmp_path) not in repr(shape)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "each part must be KEY=VALUE, got ''"),
        ("E=8,", "each part must be KEY=VALUE, got ''"),
        ("E", "each part must be KEY=VALUE, got 'E'"),
        ("E=", "each part must be KEY=VALUE, got 'E='"),
        ("E=8,E=9", "E must stand once, got '8' and '9'"),
        ("asc,ascending=false", "ascending must stand once, got 'true' and 'false'"),
        ("E=8,M=8,K=8,dist=skew", "N is missing"),
        ("E=8,M=8,N=8,dist=skew", "K is missing"),
        ("E=8,M=8,N=8,K=8", "dist is missing"),
        ("M=8,N=8,K=8,dist=skew", "E is missing; only a trace says it itself, skew does not"),
        ("E=0,M=8,N=8,K=8,dist=skew", "E must be an integer >= 1, got '0'"),
        ("E=8,M=-1,N=8,K=8,dist=skew", "M must be an integer >= 0, got '-1'"),
        ("E=8,M=64K,N=8,K=8,dist=skew", "M must be an integer >= 0, got '64K'"),
        ("E=8,M=8,N=8.0,K=8,dist=skew", "N must be an integer >= 1, got '8.0'"),
        ("E=8,M=8,N=8,K=true,dist=skew", "K must be an integer >= 1, got 'true'"),
        (f"{SHAPE},dist=skewed", "distribution 'skewed' is not known; known: balanced, lognormal, one_empty"),
        (f"{SHAPE},dist=skew:1", "dist=skew takes no value after a colon, got '1'"),
        (
            f"{SHAPE},dist=skew,seed=1",
            "unknown key 'seed'; known with dist=skew: E, M, N, K, dist, ascending, out, name",
        ),
        (f"{SHAPE},dist=zipf", "dist=zipf: s is missing"),
        (f"{SHAPE},dist=zipf:", "dist=zipf: s must be a number, got ''"),
        (f"{SHAPE},dist=zipf:steep", "dist=zipf: s must be a number, got 'steep'"),
        (f"{SHAPE},dist=zipf:-1", "dist=zipf: s must be >= 0.0, got -1.0"),
        (f"{SHAPE},dist=zipf:1e999", "dist=zipf: s must be a finite number, got inf"),
        (f"{SHAPE},dist=zipf:1,s=2", "s must stand once, got '1' in dist and '2'"),
        (f"{SHAPE},dist=lognormal:0.35,seed=1.5", "dist=lognormal: seed must be an integer, got '1.5'"),
        (f"{SHAPE},dist=lognormal:0.35,seed=-1", "dist=lognormal: seed must be >= 0, got -1"),
        (f"{SHAPE},dist=uniform:64", "M must be in 8..512 with 1 to 64 rows for each of E = 8, got 65536"),
        (f"{SHAPE},dist=one_hot:8", "expert must be < E = 8, got 8"),
        (f"{SHAPE},dist=skew,asc=yes", "ascending must be true or false, got 'yes'"),
        (f"{SHAPE},dist=skew,out=fp16", "out must be bf16 or fp32, got 'fp16'"),
        (f"{SHAPE},dist=trace:gone.csv", "path 'gone.csv' cannot be read: No such file or directory"),
        (f"{SHAPE},dist=trace:", "dist=trace: path must be text that is not empty, got ''"),
    ],
)
def test_a_broken_adhoc_shape_says_why_and_shows_an_example(text: str, message: str) -> None:
    example = "; example: E=8,M=65536,N=4096,K=7168,dist=lognormal:0.35"

    with pytest.raises(ShapesError, match=re.escape(f"shape {text!r}: {message}")) as raised:
        adhoc(text)

    assert str(raised.value).endswith(example)


def test_an_unknown_operation_of_an_adhoc_shape_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UnknownName, match="op 'dw' is not known; known: fwd, dX, dW, ckpt, ckpt ES"):
        adhoc(f"{SHAPE},dist=skew", ops=("dw",))


# Filters


def test_no_filter_lets_all_pass(training: tuple[Case, ...]) -> None:
    assert select(training) == training


def test_a_glob_matches_the_name_or_the_case_id(training: tuple[Case, ...]) -> None:
    assert [case.case_id for case in select(training, case_globs=["gate_up E4 M112576 bal fp32"])] == [
        "dW gate_up E4 M112576 bal fp32"
    ]
    assert [case.op for case in select(training, case_globs=["ckpt ES down E8 *"])] == ["ckpt ES", "ckpt ES"]


def test_several_globs_add_up_and_operations_cut_down(training: tuple[Case, ...]) -> None:
    chosen = select(training, case_globs=["down E8*bal", "down E16*bal"], ops=["fwd", "dX"])

    assert [case.case_id for case in chosen] == [
        "fwd down E8 M131072 bal",
        "fwd down E16 M131072 bal",
        "dX down E8 M131072 bal",
        "dX down E16 M131072 bal",
    ]


@pytest.mark.parametrize(
    ("globs", "ops", "message"),
    [
        (["gate_up E4 M112576 balanced"], [], "matches none of 164 rows; close: 'gate_up E4 M112576 bal'"),
        (["*E4*", "*e8*"], [], r"case '\*e8\*' matches none of 164 rows; close: '"),
        (["*fp32"], ["fwd"], r"case '\*fp32' matches no row of the chosen operations, only of: dW"),
    ],
)
def test_a_glob_that_matches_nothing_is_refused(
    training: tuple[Case, ...], globs: list[str], ops: list[str], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        select(training, case_globs=globs, ops=ops)


def test_an_operation_that_matches_nothing_is_refused(published: Shapes) -> None:
    with pytest.raises(UsageError, match="op 'ckpt' matches no row; the operations there are: fwd, dX, dW"):
        select(cases(published, "smoke"), ops=["ckpt"])
    with pytest.raises(UnknownName, match="op 'DW' is not known; known: fwd, dX, dW, ckpt, ckpt ES"):
        select(cases(published, "smoke"), ops=["DW"])


def test_a_row_that_stands_twice_is_refused() -> None:
    twice = adhoc(f"{SHAPE},dist=skew") * 2

    with pytest.raises(UsageError, match=r"must stand once, got 2; tell ad-hoc shapes apart with name="):
        select(twice)


# The guide


def guide_block(language: str) -> str:
    text = (TESTS.parent / "docs" / "shapes.md").read_text(encoding="utf-8")
    (block,) = re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
    return str(block)


def test_the_guides_distribution_works_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "geometric.py").write_text(guide_block("python"), encoding="utf-8")
    monkeypatch.setattr(distributions, "__path__", [*distributions.__path__, str(tmp_path)])
    monkeypatch.setattr(plugins, "names", lambda folder: ("geometric",))

    try:
        shape = adhoc("E=4,M=15,N=8,K=8,dist=geometric:0.5")[0].shape
    finally:
        sys.modules.pop("harness.distributions.geometric", None)

    assert shape.group_sizes == (8, 4, 2, 1)
    assert shape.name == "E4 M15 N8 K8 geometric:0.5"


def test_the_guides_suite_works_as_it_stands(tmp_path: Path) -> None:
    (tmp_path / "shapes.yaml").write_text(guide_block("yaml"), encoding="utf-8")
    (tmp_path / "layer12.csv").write_text("3,1")

    names = [row.shape.name for row in shapes.load(tmp_path / "shapes.yaml").suite("mine").rows]

    assert names[:6] == [
        "gate_up E4 M32768 bal",
        "gate_up E8 M32768 bal",
        "gate_up E8 M65536 drawn s1",
        "gate_up E8 M65536 drawn s2",
        "gate_up E8 M65536 drawn s3",
        "gate_up E2 M4 layer12",
    ]


def test_the_guide_counts_the_cases_of_every_suite(published: Shapes) -> None:
    text = (TESTS.parent / "docs" / "shapes.md").read_text(encoding="utf-8")

    for suite in suites(published):
        assert f"| `{suite}` | {len(cases(published, suite))} |" in text


def test_the_guide_lists_every_distribution_with_its_parameters() -> None:
    text = (TESTS.parent / "docs" / "shapes.md").read_text(encoding="utf-8")

    for name in plugins.names("distributions"):
        fields = distributions.load(name).model_fields
        parameters = ", ".join(
            f"`{key}`" if field.is_required() else f"`{key}` = {field.default}" for key, field in fields.items()
        )
        assert f"| `{name}` | {parameters + ' ' if parameters else ''}|" in text


if __name__ == "__main__":
    current = shapes.load(paths.data("shapes.yaml"))
    GOLDEN_SIZES.write_text(sizes_text(current, "moe-training"))
    GOLDEN_DIGESTS.write_text(digests_text(current))


@pytest.mark.parametrize("name", ["a\tb", "a\nb", "a\u202eb", "a\u200bb"])
def test_a_name_that_cannot_be_seen_is_refused(name: str) -> None:
    with pytest.raises(ShapesError, match="name must be one that can be seen, without control characters, got 'a"):
        adhoc(f"{SHAPE},dist=skew,name={name}")
