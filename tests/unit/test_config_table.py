from dataclasses import replace

import pytest

from cake_kernels.grouped_gemm.sm90.config import FLAT, NARROW, STRAIGHT, SWAPPED
from harness import runfile
from harness.errors import RunFileError
from harness.model.run import ArmInfo
from tests.unit import report_runs as runs
from tools import config_table
from tools.config_table import compare, fit, joined, regrets, table

PAIR = replace(STRAIGHT, cluster_n=2)
NAMES = [config.name for config in (STRAIGHT, SWAPPED, NARROW, FLAT, PAIR)]
LONG = {"sizes": (28144,) * 4, "N": 4096, "K": 6144}  # in fwd SWAPPED is chosen
SHORT = {"sizes": (64,) * 4, "N": 4096, "K": 6144}  # in fwd FLAT is chosen


@pytest.fixture(autouse=True)
def arms(monkeypatch):
    for name in (f"cake_det@{name}" for name in NAMES):
        monkeypatch.setitem(runs.ARMS, name, ArmInfo(name=name, key="", is_cake=True, note="one configuration"))


def measured(spans, *, name="a row", op="fwd", regime="boost", **shape):
    """Configuration or arm -> its spans in the row's groups, in units of 10 us."""
    arms = {
        arm if isinstance(arm, str) else f"cake_det@{arm.name}": tuple(10_000 * span for span in spans[arm])
        for arm in spans
    }
    return runs.row(runs.case(name, op=op, **(shape or LONG)), arms, regime=regime)


def test_a_cell_is_the_fastest_time_over_the_columns_and_the_chosen_ones_is_bold():
    rows = compare(
        [
            runs.run(
                measured({STRAIGHT: (990, 1000, 1010), SWAPPED: (1250, 1250, 9000), "cublas_loop": (700, 700, 700)}),
                measured({STRAIGHT: (1000,), PAIR: (800,)}, name="another"),
            )
        ]
    )

    assert table(rows).splitlines() == [
        f"| row | N | K | rows a group | fastest | {STRAIGHT.name} | {SWAPPED.name} | {PAIR.name} |",
        "|---|---|---|---|---|---|---|---|",
        f"| a row | 4096 | 6144 | 28144 | {STRAIGHT.name} | 1.000 | **0.800** | – |",
        f"| another | 4096 | 6144 | 28144 | {PAIR.name} | 0.800 | **–** | 1.000 |",
    ]


def test_a_row_of_several_files_is_joined_through_what_they_share():
    slow_card = runs.run(measured({STRAIGHT: (2200,), NARROW: (1800,)}))
    fast_card = runs.run(measured({STRAIGHT: (1100,), SWAPPED: (1000,), PAIR: (1200,)}))

    (row,) = compare([slow_card, fast_card])

    expected = {STRAIGHT: 1100 / 900, SWAPPED: 1000 / 900, PAIR: 1200 / 900, NARROW: 1.0}
    assert row.times == pytest.approx({config.name: time for config, time in expected.items()})


def test_parts_that_share_nothing_are_refused():
    with pytest.raises(RunFileError, match="fwd x: run files that hold one row must share a configuration"):
        joined("fwd x", [{"a": 1.0, "c": 2.0}, {"b": 1.0}])


def test_regimes_and_operations_are_apart_and_rows_without_the_chosen_one_do_not_count():
    rows = compare(
        [
            runs.run(
                measured({STRAIGHT: (1000,), SWAPPED: (1100,)}, regime="sustained"),
                measured({STRAIGHT: (1000,), SWAPPED: (1210,)}, name="the worst"),
                measured({STRAIGHT: (1000,), SWAPPED: (1000,)}, name="none lost"),
                measured({STRAIGHT: (1000,), PAIR: (1100,)}, name="not chosen"),
                measured({FLAT: (1000,)}, name="dX", op="dX", **SHORT),
                measured({STRAIGHT: (1000,)}, name="not in dW", op="dW"),
            )
        ]
    )

    assert regrets(rows).splitlines()[2:] == [
        "| fwd | boost | 2 of 3 | 1.1000 | 1.210 | the worst |",
        "| fwd | sustained | 1 of 1 | 1.1000 | 1.100 | a row |",
        "| dX | boost | 1 of 1 | 1.0000 | 1.000 | dX |",
        "| dW | boost | 0 of 1 | – | – | – |",
    ]


def test_the_fit_finds_the_rates_under_which_least_is_lost_and_stays_close_to_those_in_use():
    # STRAIGHT has 1.032 times the work of SWAPPED with 4096 columns, and 1.001 times with 6144.
    rows = compare(
        [
            runs.run(
                measured({STRAIGHT: (1030,), SWAPPED: (1000,), NARROW: (1050,)}),
                measured({STRAIGHT: (1000,), SWAPPED: (1020,), NARROW: (1050,)}, name="wide", **LONG | {"N": 6144}),
                measured({FLAT: (1000,), NARROW: (900,), SWAPPED: (800,)}, name="no cost", **SHORT),
            )
        ]
    )

    found = fit(rows)

    assert found.rates == {STRAIGHT: 1.01, SWAPPED: 1.0, NARROW: 0.97}
    assert (found.rows, found.regret, found.used) == (2, 1.0, pytest.approx(1.02**0.5))


def test_without_two_candidates_there_is_no_fit():
    assert fit(compare([runs.run(measured({STRAIGHT: (1000,), PAIR: (900,)}))])) is None


def test_the_command_prints_the_tables_of_its_files(tmp_path, monkeypatch, capsys):
    runfile.save(runs.run(measured({STRAIGHT: (1000,), SWAPPED: (1000,)})), tmp_path / "run.json")
    monkeypatch.setattr("sys.argv", ["config_table", str(tmp_path / "run.json"), "--fit"])

    assert config_table.main() == 0

    printed = capsys.readouterr().out
    assert [line for line in printed.splitlines() if line.startswith("#")] == [
        "# Configurations of cake_det, and what choose loses",
        "## fwd, boost",
        "## What `choose` loses",
        "## Fit",
    ]
    assert "NVIDIA H200; CUDA events around one call, cold L2, eager; revision 1a2b3c4 (git); run 2026" in printed
    assert "| fwd, dX | 1 | 1.0000 | 1.0000 |" in printed


def test_what_is_no_run_file_is_said(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["config_table", str(tmp_path / "missing.json")])

    assert config_table.main() == 2

    assert "missing.json" in capsys.readouterr().err
