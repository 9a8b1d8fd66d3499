"""shapes.yaml: what it holds, and that whatever is wrong in such a file is said with its line."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import located_yaml, paths, shapes
from harness.errors import ShapesError, UnknownName
from harness.shapes import Shapes, Suite

DATA = Path(__file__).parents[1] / "data" / "shapes"

VALID = """\
projections:
  p:
    source: here
    sizes: {gate_up: {N: 16, K: 8}, down: {N: 8, K: 24}}
kinds:
  bal:
    distribution: balanced
    source: here
  random:
    distribution: lognormal
    parameters:
      cv: 0.35
    source: here
suites:
  tiny:
    about: Two shapes.
    source: there
    projections: p
    ops: [dW, fwd]
    row_class: owner
    rows:
      - {E: [2, 3], M: [7], kinds: [bal]}
      - E: [2]
        M: [5]
        kinds: [random]
"""


def load(tmp_path: Path, text: str | bytes) -> Shapes:
    path = tmp_path / "shapes.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return shapes.load(path)


def published() -> Shapes:
    return shapes.load(paths.data("shapes.yaml"))


def names(suite: Suite) -> list[str]:
    return [row.shape.name for row in suite.rows]


def test_a_suite_is_the_product_of_its_rows_projection_by_projection(tmp_path: Path) -> None:
    suite = load(tmp_path, VALID).suite("tiny")

    assert names(suite) == [
        "gate_up E2 M7 bal",
        "gate_up E3 M7 bal",
        "gate_up E2 M5 random",
        "down E2 M7 bal",
        "down E3 M7 bal",
        "down E2 M5 random",
    ]
    assert suite.rows[4].shape.group_sizes == (3, 2, 2)
    assert (suite.rows[4].shape.N, suite.rows[4].shape.K) == (8, 24)


def test_a_shape_says_where_it_comes_from(tmp_path: Path) -> None:
    shape = load(tmp_path, VALID).suite("tiny").rows[2].shape

    assert shape.distribution == "lognormal(cv=0.35, seed=0, empty=0)"
    assert shape.source == "there; N, K: here"


def test_operations_stand_in_the_order_of_tables(tmp_path: Path) -> None:
    assert load(tmp_path, VALID).suite("tiny").rows[0].ops == ("fwd", "dW")


def test_a_row_overrides_its_suite(tmp_path: Path) -> None:
    extra = "        model: big\n        seeds: [1, 2]\n        ops: [dW]\n        out_dtype: fp32\n"
    extra += "        row_class: unsorted\n        source: elsewhere\n"

    rows = load(tmp_path, VALID + extra).suite("tiny").rows

    assert rows[3].shape.name == "big gate_up E2 M5 random s2"
    assert rows[3].shape.distribution == "lognormal(cv=0.35, seed=2, empty=0)"
    assert (rows[3].ops, rows[3].out_dtype, rows[3].shape.row_class) == (("dW",), "fp32", "unsorted")
    assert rows[3].shape.source == "elsewhere; N, K: here"


def test_anchors_and_aliases_are_read(tmp_path: Path) -> None:
    text = VALID.replace("M: [7]", "M: &rows [7]").replace("M: [5]", "M: *rows")

    assert names(load(tmp_path, text).suite("tiny"))[2] == "gate_up E2 M7 random"


def test_a_trace_is_found_beside_the_file_and_gives_e_and_m(tmp_path: Path) -> None:
    (tmp_path / "routing.csv").write_text("4,0,1")
    text = VALID.replace("distribution: balanced", "distribution: trace\n    parameters: {path: routing.csv}")

    suite = load(tmp_path, text.replace("{E: [2, 3], M: [7], kinds: [bal]}", "{kinds: [bal]}")).suite("tiny")

    assert suite.rows[0].shape.name == "gate_up E3 M5 bal"
    assert suite.rows[0].shape.group_sizes == (4, 0, 1)
    assert str(tmp_path) not in suite.rows[0].shape.distribution


def test_an_unknown_suite_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="suite 'small' is not known; known: tiny"):
        load(tmp_path, VALID).suite("small")


# What is wrong, and in which line. Each case replaces one piece of VALID.
WRONG = [
    # unknown keys
    ("kinds:\n", "kind:\n", 5, "unknown key 'kind'; known: projections, kinds, suites"),
    ("    about:", "    abuot:", 16, "unknown key 'abuot' in suites.tiny; known: about, source, projections, ops"),
    ("        M: [5]", "        m: [5]", 24, "unknown key 'm' in suites.tiny.rows[1]; known: model, E, M, kinds"),
    ("      cv: 0.35", "      CV: 0.35", 12, "unknown key 'CV' in kinds.random.parameters; known: cv, seed, empty"),
    ("N: 16", "n: 16", 4, "unknown key 'n' in projections.p.sizes.gate_up; known: N, K"),
    # missing keys
    ("    ops: [dW, fwd]\n", "", 21, "ops is missing, here or in the suite"),
    ("    row_class: owner\n", "", 21, "row_class is missing, here or in the suite"),
    ("    projections: p\n", "", 21, "projections is missing, here or in the suite"),
    ("    source: there\n", "", 15, "suites.tiny.source is missing"),
    ("        kinds: [random]\n", "", 23, "suites.tiny.rows[1].kinds is missing"),
    ("        M: [5]\n", "", 24, "kind 'random': M is missing; only a trace says it itself"),
    ("      cv: 0.35", "      seed: 0", 11, "kinds.random.parameters.cv is missing"),
    # wrong types and values
    ("        M: [5]", "        M: 5", 24, "suites.tiny.rows[1].M must be a list, got 5"),
    ("        M: [5]", "        M: [true]", 24, "suites.tiny.rows[1].M[0] must be an integer, got True"),
    ("        M: [5]", "        M: ['5']", 24, "suites.tiny.rows[1].M[0] must be an integer, got '5'"),
    ("        M: [5]", "        M: [5.0]", 24, "suites.tiny.rows[1].M[0] must be an integer, got 5.0"),
    (
        "        M: [5]",
        "        M:\n          - 5\n          - -5",
        26,
        "suites.tiny.rows[1].M[1] must be >= 0, got -5",
    ),
    ("        M: [5]", "        M: []", 24, "suites.tiny.rows[1].M must be a list of at least 1, got []"),
    ("      - E: [2]", "      - E: [0]", 23, "suites.tiny.rows[1].E[0] must be >= 1, got 0"),
    ("K: 8}", "K: 0}", 4, "projections.p.sizes.gate_up.K must be >= 1, got 0"),
    ("K: 8}", "K: true}", 4, "projections.p.sizes.gate_up.K must be an integer, got True"),
    ("      cv: 0.35", "      cv: -1", 12, "kinds.random.parameters.cv must be >= 0.0, got -1"),
    ("      cv: 0.35", "      cv: true", 12, "kinds.random.parameters.cv must be a number, got True"),
    ("      cv: 0.35", "      cv: .nan", 12, "kinds.random.parameters.cv must be a finite number, got nan"),
    ("    parameters:\n      cv: 0.35", "    parameters: 3", 11, "kinds.random.parameters must be a mapping, got 3"),
    ("    about: Two shapes.", "    about: 2", 16, "suites.tiny.about must be text, got 2"),
    ("    about: Two shapes.", "    about: ''", 16, "suites.tiny.about must be text that is not empty, got ''"),
    ("    ops: [dW, fwd]", "    ops: [dw]", 19, "suites.tiny.ops[0] must be 'fwd', 'dX', 'dW', 'ckpt' or 'ckpt ES'"),
    ("    ops: [dW, fwd]", "    ops: [dW, dW]", 19, "ops must name each operation once, got [dW, dW]"),
    ("    row_class: owner", "    row_class: ownr", 20, "suites.tiny.row_class must be 'owner', 'unsorted', 'model'"),
    ("        M: [5]", "        M: [5]\n        out_dtype: fp32", 25, "out_dtype fp32 needs ops [dW], got [dW, fwd]"),
    # what YAML 1.1 takes for something else than it looks
    (
        "        M: [5]",
        "        M: [010]",
        24,
        "'010' is another value to YAML 1.1 than it looks; write a number in plain",
    ),
    ("        M: [5]", "        M: [1:30]", 24, "'1:30' is another value to YAML 1.1 than it looks"),
    ("        M: [5]", "        M: [0x10]", 24, "'0x10' is another value to YAML 1.1 than it looks"),
    ("        M: [5]", "        M: [0b1]", 24, "'0b1' is another value to YAML 1.1 than it looks"),
    ("        M: [5]", "        M: [1_0]", 24, "'1_0' is another value to YAML 1.1 than it looks"),
    ("      cv: 0.35", "      cv: 1:30.5", 12, "'1:30.5' is another value to YAML 1.1 than it looks"),
    ("    about: Two shapes.", "    about: on", 16, "'on' is another value to YAML 1.1 than it looks"),
    ("    about: Two shapes.", "    on: Two", 16, "'on' is another value to YAML 1.1 than it looks"),
    # names that cannot be seen
    ("  tiny:", '  "ti\\u202Eny":', 15, "suites.ti\u202eny.[key] must be a name that can be seen"),
    (
        "  random:",
        '  random:\n    label: " "',
        10,
        "kinds.random.label must be a name that can be seen, without control",
    ),
    ("  random:", '  random:\n    label: "a\\tb"', 10, "kinds.random.label must be a name that can be seen"),
    (
        "        M: [5]",
        '        M: [5]\n        model: "a\\nb"',
        25,
        "suites.tiny.rows[1].model must be a name that can be",
    ),
    (
        "distribution: balanced",
        'distribution: trace\n    parameters: {path: "a\\0.csv"}',
        8,
        "kinds.bal.parameters.path must be a name that can be seen, without control characters, got 'a\\x00.csv'",
    ),
    # sizes that nothing can hold
    ("K: 8}", "K: 2147483648}", 4, "projections.p.sizes.gate_up.K must be <= 2147483647, got 2147483648"),
    ("        M: [5]", "        M: [2147483648]", 25, "kind 'random': M must be in 0..2147483647, got 2147483648"),
    ("      - E: [2]", "      - E: [65537]", 25, "kind 'random': E must be in 1..65536, got 65537"),
    # unknown names
    ("distribution: balanced", "distribution: even", 7, "distribution 'even' is not known; known: balanced, lognormal"),
    ("    projections: p", "    projections: q", 18, "projections 'q' is not known; known: p"),
    ("        M: [5]", "        M: [5]\n        projections: q", 25, "projections 'q' is not known; known: p"),
    ("        kinds: [random]", "        kinds: [rnd]", 25, "kind 'rnd' is not known; known: bal, random"),
    ("  tiny:", "  adhoc:", 15, "'adhoc' names ad-hoc shapes; call the suite otherwise"),
    # sizes that a rule does not have
    ("kinds: [bal]}", "kinds: [bal], seeds: [1]}", 22, "seeds needs a kind with a seed; 'bal' has none"),
    ("      cv: 0.35", "      cv: 0.35\n      empty: 2", 26, "kind 'random': empty must be < E = 2"),
    ("distribution: balanced", "distribution: trace\n    parameters: {path: gone.csv}", 23, "kind 'bal': path '"),
    # twice
    ("        M: [5]", "        M: [5]\n        M: [6]", 25, "the key 'M' stands twice; first in line 24"),
    (
        "E: [2, 3]",
        "E: [2, 2]",
        22,
        "the row 'fwd gate_up E2 M7 bal' stands twice in the suite 'tiny'; first in line 22",
    ),
    # not YAML
    ("    about: Two shapes.", "    about: [Two", 17, "not YAML: "),
    ("    about: Two shapes.", "\tabout: Two", 16, "not YAML: found character '\\t' that cannot start any token"),
    ("    about: Two shapes.", "    about: a\x07b", 16, "not YAML: the character '\\x07' is not allowed"),
    ("    about: Two shapes.", "    about: *none", 16, "not YAML: found undefined alias 'none'"),
    ("    about: Two shapes.", "    about: &a [*a]", 16, "an alias must not stand inside its own anchor"),
    ("    about: Two shapes.", "    about: !!int '2'", 16, "the tag 'tag:yaml.org,2002:int' is not allowed"),
    ("    about: Two shapes.", "    about: !!set {a}", 16, "the tag 'tag:yaml.org,2002:set' is not allowed"),
    ("    about: Two shapes.", "    about: !!python/name:os.system x", 16, "the tag 'tag:yaml.org,2002:python/name"),
    ("    about: Two shapes.", "    about: 2024-13-01", 16, "'2024-13-01' cannot be read: month must be in 1..12"),
    ("    about: Two shapes.", "    <<: {}", 16, "the merge key << is not allowed; anchors and aliases are"),
    ("    about: Two shapes.", "    2: Two", 16, "a key must be text, got 2; put it into quotes"),
    ("    about: Two shapes.", "    ? [a]\n    : b", 16, "a key must be text"),
]


@pytest.mark.parametrize(("old", "new", "line", "message"), WRONG, ids=[message[:60] for *_, message in WRONG])
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, old: str, new: str, line: int, message: str) -> None:
    assert VALID.count(old) == 1

    with pytest.raises(ShapesError, match=re.escape(f"shapes.yaml:{line}: {message}")):
        load(tmp_path, VALID.replace(old, new))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "shapes.yaml:1: the file must hold a mapping, got nothing"),
        (b"# only a comment\n", "shapes.yaml:1: the file must hold a mapping, got nothing"),
        (b"- a\n", "shapes.yaml:1: the top level must be a mapping, got ['a']"),
        (b"a: 1\nb: \xff\n", "shapes.yaml:2: the file must be UTF-8, got the byte 0xff"),
        (b"a: 1\n---\nb: 1\n", "shapes.yaml:2: not YAML: but found another document"),
        (b"[" * 5000, "shapes.yaml:1: not readable: brackets are nested too deeply"),
    ],
)
def test_a_file_that_holds_no_mapping_is_refused(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(ShapesError) as raised:
        load(tmp_path, data)

    assert str(raised.value) == message


def test_aliases_of_aliases_are_bounded(tmp_path: Path) -> None:
    doubled = [f"  l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 9)}]" for i in range(1, 12)]
    bomb = "\n".join(["a:", "  l0: &l0 [x, x]", *doubled, ""])

    with pytest.raises(ShapesError, match=r"the file holds more than 100000 values, aliases written out"):
        load(tmp_path, bomb)


def test_plain_decimals_are_read_as_they_are_written() -> None:
    text = b"{a: [0, 7, -5, +3], b: [0.35, 1., -2.5e+3], c: [true, false], d: ['010', \"1:30\", 1e3]}"

    assert located_yaml.load(text, "x.yaml").value == {
        "a": [0, 7, -5, 3],
        "b": [0.35, 1.0, -2500.0],
        "c": [True, False],
        "d": ["010", "1:30", "1e3"],
    }


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ShapesError) as caught:
        shapes.load(tmp_path / "none" / "mine.yaml")

    assert str(caught.value) == f"{tmp_path}/none/mine.yaml: the file cannot be read: No such file or directory"


def test_the_file_is_called_by_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("a: 1\n")

    with pytest.raises(ShapesError, match=r"^mine.yaml:1: unknown key 'a'; known: projections, kinds, suites$"):
        shapes.load(tmp_path / "mine.yaml")


def test_a_long_value_is_shortened(tmp_path: Path) -> None:
    with pytest.raises(ShapesError, match=r"must be a list, got 'x{56}\.\.\.$"):
        load(tmp_path, VALID.replace("M: [5]", f"M: {'x' * 100}"))


def refusal(data: bytes) -> str | None:
    try:
        located_yaml.load(data, "shapes.yaml")
    except ShapesError as error:
        return str(error)
    return None


@given(
    st.binary(max_size=40)
    | st.text(max_size=40).map(lambda text: text.encode("utf-8", "surrogatepass"))
    | st.text(st.sampled_from("ab:[]{}-?!&*#|>%@,'\"\n \t01.~<=\\é\x00"), max_size=40).map(str.encode)
)
def test_any_bytes_are_read_or_refused_with_a_line(data: bytes) -> None:
    text = refusal(data)

    assert text is None or re.match(r"shapes\.yaml:[1-9][0-9]*: .", text)


# What the file at the top of the checkout holds


def test_the_suites_are_these() -> None:
    suites = {suite.name: len(suite.rows) for suite in published().suites}

    assert suites == {
        "smoke": 7,
        "moe-training": 36,
        "moe-small-experts": 18,
        "moe-heldout": 96,
        "moe-models": 50,
        "moe-decode": 12,
    }


def test_smoke_is_tiny_and_meets_every_kind_an_empty_expert_and_fp32() -> None:
    rows = published().suite("smoke").rows
    suffixes = {row.shape.name.split(" ", 3)[3] for row in rows}

    assert suffixes == {"bal", "skew", "1-empty", "skew asc", "1-empty asc", "random"}
    assert {row.out_dtype for row in rows} == {"bf16", "fp32"}
    assert {op for row in rows if 0 in row.shape.group_sizes for op in row.ops} == {"fwd", "dX", "dW"}
    assert max(row.shape.M * row.shape.N * row.shape.K for row in rows) < 2**25
    assert all(size % 32 for row in rows for size in (row.shape.M, row.shape.N, row.shape.K))
    assert {row.shape.row_class for row in rows} == {"smoke"}


def test_small_experts_have_the_sizes_of_the_definition() -> None:
    shapes_ = [row.shape for row in published().suite("moe-small-experts").rows]
    expected = {(E, E * rows) for E in (16, 64, 256) for rows in (64, 256, 1024)}

    assert {(shape.E, shape.M) for shape in shapes_} == expected
    assert {(shape.name.split()[0], shape.N, shape.K) for shape in shapes_} == {
        ("gate_up", 2048, 2048),
        ("down", 2048, 1024),
    }


def test_heldout_is_the_full_product_with_other_seeds() -> None:
    suite = published().suite("moe-heldout")
    expected = {
        f"{projection} E{E} M{M} random s{seed}"
        for projection in ("gate_up", "down")
        for E in (6, 12, 24)
        for M in (98304, 120000)
        for seed in range(1, 9)
    }

    assert set(names(suite)) == expected
    assert len({row.shape.group_sizes for row in suite.rows}) == 48


def test_models_are_the_25_cases_with_one_empty_expert() -> None:
    shapes_ = [row.shape for row in published().suite("moe-models").rows]
    expected = []
    with (DATA / "model_cases.csv").open(newline="") as file:
        cases = list(csv.DictReader(file))
    for projection in ("gate_up", "down"):
        for case in cases:
            dims = (int(case[f"{projection}_N"]), int(case[f"{projection}_K"]))
            expected.append((f"{case['case']} {projection} E{case['E']} M{case['M']}", dims))

    assert len(cases) == 25
    assert [(shape.name, (shape.N, shape.K)) for shape in shapes_] == expected
    assert all(shape.group_sizes[-1] == 0 and min(shape.group_sizes[:-1]) > 0 for shape in shapes_)
    assert {shape.row_class for shape in shapes_} == {"model"}
    assert all(shape.distribution == "lognormal(cv=0.35, seed=0, empty=1)" for shape in shapes_)
    assert len({shape.source for shape in shapes_}) == 25


def test_decode_has_hundreds_of_groups_of_1_to_64_rows() -> None:
    rows = published().suite("moe-decode").rows
    models = {
        "dsv3-ep2": (128, (2048, 4096), {"gate_up": (4096, 7168), "down": (7168, 2048)}),
        "qwen35-35b-ep1": (256, (2048, 8192), {"gate_up": (1024, 2048), "down": (2048, 512)}),
        "qwen3next-ep1": (512, (5120, 17920), {"gate_up": (1024, 2048), "down": (2048, 512)}),
    }
    expected = {
        f"{model} {projection} E{E} M{M} 1-64": (E, M, N, K)
        for model, (E, every_M, dims) in models.items()
        for projection, (N, K) in dims.items()
        for M in every_M
    }
    sizes = {size for row in rows for size in row.shape.group_sizes}

    assert {row.shape.name: (row.shape.E, row.shape.M, row.shape.N, row.shape.K) for row in rows} == expected
    assert (min(sizes), max(sizes)) == (1, 64)
    assert all(len(set(row.shape.group_sizes)) > 10 for row in rows)
    assert {row.ops for row in rows} == {("fwd", "dX", "dW")}
