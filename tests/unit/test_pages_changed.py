"""The section "What changed": this revision beside the previous one, as it is pasted into a pull request."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from harness.audit import audit
from harness.audit.finding import Grade
from harness.model.run import Previous, Run, SuiteCount
from harness.pages.pr import render_page
from harness.pages.summary import summarise
from tests.unit.report_runs import case, row, run

NEW, OLD, T, A = "cake_nondet", "previous_nondet", "torch_grouped_mm", "cublas_loop_autograd"
MS = 1_000_000
GROUPS = (0.999, 1.001, 1.0, 1.0005, 0.9995, 1.0)

Rows = Mapping[tuple[str, str, str], float]
"""(operation, row class, name) -> previous / new."""


def compared(ratios: Rows, *, regimes: tuple[str, ...] = ("boost",), controls: tuple[str, ...] = ()) -> Run:
    """Six groups a row in which new takes 4 ms, and previous that times its ratio, all but equally often as long."""
    rows = [
        row(
            case(name, op=op, row_class=row_class),
            {NEW: [4 * MS] * 6, OLD: [round(4 * MS * ratio * g) for g in GROUPS], T: [5 * MS] * 6},
            regime=regime,
        )
        for regime in regimes
        for (op, row_class, name), ratio in ratios.items()
    ]
    counts = [
        SuiteCount(suite="moe-training", op=op, row_class=row_class, count=n)
        for op, row_class, n in (("dW", "owner", 22), ("dW", "unsorted", 14), ("ckpt ES", "owner", 18))
    ]
    made = run(*rows, counts=counts)
    keys = tuple(key for key in made.planned for name in controls if key.endswith(name))
    return replace(made, previous=Previous(revision="0a1b2c3 (git)", sources_sha256="0a" * 32, controls=keys))


def section(made: Run) -> str:
    page = render_page(summarise([made]))
    return page[page.index("## What changed") : page.index("## Arms")]


RATIOS: Rows = {
    ("dW", "owner", "gate_up E4 M112576 bal"): 1.02,
    ("dW", "owner", "gate_up E4 M112576 skew"): 0.99,
    ("dW", "unsorted", "gate_up E4 M112576 skew asc"): 1.0,
    ("ckpt ES", "owner", "down E4 M112576 bal"): 1.005,
}


def test_the_section_has_geomeans_then_gains_regressions_whole_ranges_and_the_spread() -> None:
    lines = section(compared(RATIOS)).splitlines()

    assert lines[0:6] == [
        "## What changed",
        "",
        "Revision 1a2b3c4 (git) beside 0a1b2c3 (git): cake_nondet and previous_nondet in the same paired groups.",
        "",
        "### previous / cake_nondet",
        "",
    ]
    assert lines[6] == (
        "- Geomeans (lowest-highest row): dW owner 1.005 (0.990-1.020), 2 of 22 rows; dW unsorted 1.000 (1.000-1.000),"
        " 1 of 14 rows; ckpt ES owner 1.005 (1.005-1.005), 1 of 18 rows."
    )
    assert lines[7].startswith(
        "- Largest gains: 2 of 4 rows are above 1.0 (chance 2), 2 wholly (chance 0.06): dW gate_up E4 M112576 bal 1.020"
        " [1.019, 1.021], ckpt ES down E4 M112576 bal 1.005 [1.004, 1.006]. Chance alone"
    )
    assert lines[8].startswith(
        "- Regressions, reported as is: 1 of 4 rows is below 1.0 (chance 2), 1 wholly (chance 0.06): dW gate_up E4"
        " M112576 skew 0.990 [0.989, 0.991]. Chance alone"
    )
    assert lines[9] == (
        "- 2 of 4 rows are above 1.0 over their whole [min, max] (chance 0.06): dW gate_up E4 M112576 bal, ckpt ES down"
        " E4 M112576 bal; 1 of 4 rows is below 1.0 over its whole [min, max] (chance 0.06): dW gate_up E4 M112576 skew."
    )
    assert lines[10:] == [
        "- Spread, (max - min) / median of a row's ratios: median 0.20 %, p90 0.20 % over 4 rows.",
        "",
    ]


def test_no_row_on_a_side_is_said_and_many_are_counted_by_operation() -> None:
    ratios = {("dW", "owner", f"r{i}"): 1.02 for i in range(4)} | {
        ("ckpt ES", "owner", f"r{i}"): 1.01 for i in range(2)
    }

    assert (
        "- 6 of 6 rows are above 1.0 over their whole [min, max] (chance 0.09): 6 rows (4 dW, 2 ckpt ES); none of 6"
        " rows is below 1.0 over its whole [min, max] (chance 0.09).\n"
    ) in section(compared(ratios))


def test_previous_stands_in_its_section_alone_before_the_geomean_table() -> None:
    page = render_page(summarise([compared(RATIOS)]))

    assert page.count("### previous / cake_nondet") == 1
    assert page.index("## What changed") < page.index("## Geomeans") < page.index("### SOTA / cake_nondet")


def test_after_what_changed_come_baselines_limits_operations_and_shapes_geomeans_and_rows() -> None:
    lines = (Path(__file__).parents[1] / "golden/report/previous.md").read_text().splitlines()

    parts = [line for line in lines if line.startswith(("## ", "Operations and shapes:"))]
    assert [part.partition(":")[0] for part in parts] == [
        "## What changed",
        "## Arms",
        "## Coverage limits",
        "Operations and shapes",
        "## Geomeans",
        "## Rows",
        "## Terms",
    ]


def test_each_regime_has_its_paragraph_sustained_first() -> None:
    text = section(compared(RATIOS, regimes=("boost", "sustained")))

    titles = [line for line in text.splitlines() if line.startswith("###")]
    assert titles == ["### previous / cake_nondet in sustained", "### previous / cake_nondet in boost"]
    assert text.count("- Geomeans (lowest-highest row): dW owner 1.005") == 2


def test_controls_are_no_part_of_what_changed() -> None:
    text = section(compared(RATIOS, controls=("M112576 skew",)))

    assert "dW owner 1.020 (1.020-1.020), 1 of 22 rows;" in text
    assert "none of 3 rows is below 1.0 over its whole [min, max]" in text


def test_a_revision_that_nobody_knows_is_said_to_be_unknown() -> None:
    made = replace(compared(RATIOS), previous=None, revision="unknown")

    assert "Revision *unknown* beside *unknown*: cake_nondet and previous_nondet" in section(made)


def test_where_nothing_of_another_revision_ran_there_is_no_section() -> None:
    assert "What changed" not in render_page(summarise([run(row(case(), {NEW: [4 * MS], T: [5 * MS]}))]))


def test_where_every_row_is_a_control_there_is_no_section() -> None:
    made = compared({("dW", "owner", "x"): 1.0}, controls=("x",))

    assert "What changed" not in render_page(summarise([made]))


def test_the_section_holds_against_its_own_rows_and_a_changed_number_does_not() -> None:
    page = render_page(summarise([compared(RATIOS, regimes=("boost", "sustained"))]))

    def checked(text: str) -> list[str]:
        return [finding.check for finding in audit(text).graded(Grade.CONTRADICTS)]

    assert checked(page) == []
    for old, new, check in (
        ("dW owner 1.005 (0.990-1.020), 2 of 22 rows;", "dW owner 1.006 (0.990-1.020), 2 of 22 rows;", "geomean said"),
        ("dW owner 1.005 (0.990-1.020), 2 of 22 rows;", "dW owner 1.005 (0.991-1.020), 2 of 22 rows;", "geomean said"),
        ("dW owner 1.005 (0.990-1.020), 2 of 22 rows;", "dW owner 1.005 (0.990-1.021), 2 of 22 rows;", "geomean said"),
        ("dW owner 1.005 (0.990-1.020), 2 of 22 rows;", "dW owner 1.005 (0.990-1.020), 3 of 22 rows;", "geomean said"),
        ("dW owner 1.005 (0.990-1.020), 2 of 22 rows;", "dW owner 1.005 (0.990-1.020), 2 of 23 rows;", "geomean said"),
        ("- 2 of 4 rows are above 1.0 over", "- 3 of 4 rows are above 1.0 over", "count of rows"),
        ("; 1 of 4 rows is below 1.0 over", "; 2 of 4 rows are below 1.0 over", "count of rows"),
    ):
        assert old in page
        assert checked(page.replace(old, new, 1)) == [check]


# Training steps in a report


def test_the_loop_under_autograd_has_its_own_column_where_it_ran_a_step() -> None:
    in_step = row(case("x", op="ckpt"), {NEW: [4 * MS], T: [5 * MS], A: [6 * MS]})
    in_dw = row(case("x"), {NEW: [4 * MS], T: [5 * MS], A: [6 * MS]})

    assert summarise([run(in_step)]).columns == ("sota", "best_known", A)
    assert summarise([run(in_dw, in_step)]).columns == ("sota", "best_known", A)
    assert summarise([run(in_dw)]).columns == ("sota", "best_known")
    assert A not in summarise([run(in_step)], new=A).columns
    page = render_page(summarise([run(in_step)]))
    assert "| SOTA / cake_nondet, ↑ new is faster | best known / cake_nondet ↑ | cublas_loop_autograd / cake" in page
    assert "| t | t | 1.250 [1.250, 1.250] | 1.250 [1.250, 1.250] | 1.500 [1.500, 1.500] |" in page


def test_launches_of_a_step_stand_apart_from_those_of_a_product() -> None:
    det = {"dW": ("wgrad x 1",), "ckpt": ("dgrad x 1", "fwd x 2", "wgrad x 1"), "ckpt ES": ("fwd x 1", "grad x 2")}
    rows = [row(case("x", op=op), {NEW: [4 * MS], T: [5 * MS]}, kernels={NEW: (found,)}) for op, found in det.items()]

    report = summarise([run(*rows, timer="cupti")])

    assert [(entry.op, entry.rows, entry.kernels.low, entry.kernels.high) for entry in report.launches] == [
        ("", 1, 1, 1),
        ("ckpt", 1, 4, 4),
        ("ckpt ES", 1, 3, 3),
    ]
    assert (
        "- One call launches: cake_nondet 1 kernel (`wgrad`); cake_nondet in ckpt 4 kernels (`dgrad`, `fwd` and 1"
        " more); cake_nondet in ckpt ES 3 kernels (`fwd`, `grad`).\n"
    ) in render_page(report)
