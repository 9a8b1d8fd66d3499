import shlex
from dataclasses import replace

import pytest

from cake_kernels.grouped_gemm.sm90 import config
from cake_kernels.grouped_gemm.sm90.config import FLAT, NARROW, RATES, STRAIGHT, SWAPPED
from harness import cases, paths, runfile, shapes
from harness.arms import load
from harness.cli import cake_bench
from harness.errors import RunFileError
from harness.model.run import ArmInfo
from tests.unit import report_runs as runs
from tools import config_table
from tools.config_table import chunk_costs, compare, fit, joined, pairs, regrets, table

PAIR = replace(STRAIGHT, cluster_n=2)
SPLIT = {config: replace(config, tail="slots") for config in (STRAIGHT, SWAPPED, NARROW, PAIR)}
NAMES = [config.name for config in (STRAIGHT, SWAPPED, NARROW, FLAT, PAIR, *SPLIT.values())]
LONG = {"sizes": (28144,) * 4, "N": 4096, "K": 6144}  # in fwd SWAPPED is chosen
SHORT = {"sizes": (64,) * 4, "N": 4096, "K": 6144}  # in fwd FLAT is chosen


@pytest.fixture(autouse=True)
def arms(monkeypatch):
    for name in (f"cake_det@{name}" for name in NAMES):
        monkeypatch.setitem(runs.ARMS, name, ArmInfo(name=name, key="", is_cake=True, note="one configuration"))


def measured(spans, *, name="a row", op="fwd", regime="boost", clock=None, **shape):
    """Configuration or arm -> its spans in the row's groups, in units of 10 us; and its clocks, in MHz."""
    names = {arm: arm if isinstance(arm, str) else f"cake_det@{arm.name}" for arm in spans}
    arms = {names[arm]: tuple(10_000 * span for span in spans[arm]) for arm in spans}
    clocks = {names[arm]: clock[arm] for arm in clock} if clock else None
    return runs.row(runs.case(name, op=op, **(shape or LONG)), arms, regime=regime, clock=clocks)


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


# One group of 220 k-blocks and 7104 x 1728 elements on 132 SMs. STRAIGHT has 252 tiles: of the last 120 each owner
# computes 200 k-blocks and leaves 20, ten of which go to each of the 12 other clusters. SWAPPED has 259, all whole.
UNEVEN = {"sizes": (14080,), "N": 7104, "K": 1728}


def paired(*, op="dW", name="a row", clocks=True, **shape):
    """STRAIGHT takes 520 k-blocks of 1536 cycles, 100 above its makespan of 420; SWAPPED 450 of 440: 10 above."""
    configs = {STRAIGHT: (39, 90, 38), SWAPPED: (45, 45, 45), NARROW: (40, 40, 40), PAIR: (40, 40, 40)}
    clock = dict.fromkeys(SPLIT.values(), (1536, 1536, 1536)) | {SPLIT[STRAIGHT]: (1000, 2048, 2100)}
    spans = {SPLIT[config]: times for config, times in configs.items()}
    return measured(spans, op=op, name=name, clock=clock if clocks else None, **(shape or UNEVEN))


def test_what_a_chunk_costs_is_what_two_of_one_tile_and_as_many_clusters_differ_by_beside_their_makespans():
    (pair,) = pairs([runs.run(paired())])

    assert (pair.more.config, pair.more.chunks, pair.more.makespan, pair.more.time) == (SPLIT[STRAIGHT], 10, 420, 520)
    assert (pair.fewer.config, pair.fewer.chunks, pair.fewer.makespan, pair.fewer.time) == (SPLIT[SWAPPED], 0, 440, 450)
    assert (pair.more.clusters, pair.fewer.clusters, pair.per_chunk) == (132, 132, 9.0)


def test_a_pair_is_one_row_of_dW_in_one_run_with_clocks():
    both = (SPLIT[STRAIGHT], SPLIT[SWAPPED])
    apart = [runs.run(measured({one: (40,)}, op="dW", clock={one: (1536,)}, **UNEVEN)) for one in both]
    fwd = paired(op="fwd", sizes=(7104,), N=1728, K=14080)  # the same tiles, none of which fwd splits

    assert pairs([runs.run(fwd, paired(name="no clock", clocks=False))]) == ()
    assert pairs(apart) == ()


@pytest.mark.parametrize(("least", "found"), [(10, 1), (11, 0)])
def test_a_pair_differs_by_so_many_chunks_or_more(least, found, monkeypatch):
    assert config_table.MORE_CHUNKS == 4
    monkeypatch.setattr(config_table, "MORE_CHUNKS", least)

    assert len(pairs([runs.run(paired())])) == found


def test_the_pairs_are_a_table_and_a_summary():
    found = pairs([runs.run(paired(), paired(name="another")), runs.run(paired())])

    lines = chunk_costs(found).splitlines()

    pair = f"132 | {SPLIT[STRAIGHT].name} | {SPLIT[SWAPPED].name} | 10, 0 | 420, 440 | 520.0, 450.0 | 9.00 |"
    assert lines[2:5] == [f"| a row | {pair}", f"| another | {pair}", f"| a row | {pair}"]
    assert lines[5:] == [
        "",
        "Pairs: 3, of 2 rows; k-blocks a chunk: 9.0 to 9.0, median 9.0; `CHUNK_K_BLOCKS` in use: 10.",
    ]


def test_the_committed_page_is_what_the_command_prints_and_the_docs_have_its_figures(monkeypatch, capsys):
    folder = paths.data(config_table.REPORTS)
    page = (folder / "configs.md").read_text()
    docs = paths.data("docs/grouped_gemm.md").read_text()

    assert printed(monkeypatch, capsys, "--fit", *map(str, sorted(folder.glob("*.json")))) == page.splitlines()

    assert "\nPairs: 11, of 7 rows; k-blocks a chunk: 6.4 to 10.6, median 8.6;" in page
    assert "what a chunk costs in the pairs of the table is 6.4 to 10.6, median 8.6;" in docs


def test_the_choice_is_the_same_from_8_8_to_11_3_k_blocks_a_chunk(monkeypatch):
    files = sorted(paths.data(config_table.REPORTS).glob("*.json"))
    keys = [row.key for row in compare([runfile.load(path) for path in files])]

    def chosen(chunk_k_blocks):
        monkeypatch.setattr(config, "CHUNK_K_BLOCKS", chunk_k_blocks)
        return [key.chosen for key in keys]

    in_use = [key.chosen for key in keys]
    assert [chosen(each) == in_use for each in (8.7, 8.8, 9, 10, 11, 11.3, 11.4)] == [False, *[True] * 5, False]
    assert "`choose` returns the same in these rows from 8.8 to 11.3" in paths.data("docs/grouped_gemm.md").read_text()


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


def printed(monkeypatch, capsys, *words):
    monkeypatch.setattr("sys.argv", ["config_table", *words])
    assert config_table.main() == 0
    return capsys.readouterr().out.splitlines()


def test_the_commands_measure_every_row_that_the_rates_rest_on_and_make_the_table(monkeypatch, capsys):
    C, S, N, F = (
        f"cake_det@{name}"
        for name in (
            "256x192_c1x1_s3_b8_l16",
            "256x192_c1x1_s3_b8_swap_l16",
            "128x256_c1x1_s3_b8_l16",
            "128x256_c1x2_s3_b8_l16",
        )
    )
    models, small = "--suite moe-models", "--suite moe-small-experts"
    random = "--suite moe-training --case '*E32 M131072 random'"
    even = "--suite moe-training --case '*E4 M112576 bal'"
    slots = f"{C}_slots,{S}_slots,{N}_slots"

    def line(rows, op, run_id, arms, regime="boost"):
        how = f"--regime {regime} --aa off --out reports/h200/configs --run-id {run_id}"
        return f"cake-bench run {rows} --op {op} {how} --arm {arms}"

    assert printed(monkeypatch, capsys, "--commands") == [
        line(models, "fwd", "moe-models-fwd", f"{C},{S},{N},{F}"),
        line(models, "dX", "moe-models-dX", f"{C},{S},{N},{F}"),
        line(models, "dW", "moe-models-dW", slots),
        line(small, "fwd", "moe-small-experts-fwd", f"{C},{S},{N},{F}"),
        line(small, "dX", "moe-small-experts-dX", f"{C},{S},{N},{F}"),
        line(small, "dW", "moe-small-experts-dW", slots),
        line(random, "fwd", "training-fwd", f"{C},{S},{N}"),
        line(random, "fwd", "sustained-random-fwd", f"{C},{S}", "sustained"),
        line(even, "fwd", "sustained-fwd", f"{C},{S}", "sustained"),
        line(random, "dX", "training-dX", f"{C},{S},{N}"),
        line(random, "dX", "sustained-random-dX", f"{C},{S}", "sustained"),
        line(even, "dX", "sustained-dX", f"{C},{S}", "sustained"),
        line(random, "dW", "training-dW", slots),
        "python -m tools.config_table --fit reports/h200/configs/*.json > reports/h200/configs/configs.md",
    ]


def test_cake_bench_takes_the_commands_and_has_their_rows_and_arms(monkeypatch, capsys):
    parent = cake_bench.make_context("cake-bench", ["run"])
    run = cake_bench.get_command(parent, "run")
    every, rows = shapes.load(paths.data("shapes.yaml")), []

    for line in printed(monkeypatch, capsys, "--commands")[:-1]:
        name, command, *words = shlex.split(line)
        assert (name, command) == ("cake-bench", "run")
        options = run.make_context("run", words, parent=parent).params
        (suite,) = options["suites"]
        rows.append(len(cases.select(cases.cases(every, suite), case_globs=options["globs"], ops=[options["ops"]])))
        for arm in options["arms"].split(","):
            assert load(arm).info.name == arm

    assert rows == [50, 50, 50, 18, 18, 18, *[2] * 7]


@pytest.mark.parametrize("words", [[], ["--fit"], ["--commands", "--fit"], ["--commands", "run.json"]])
def test_it_takes_either_run_files_or_the_wish_for_commands(words, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["config_table", *words])

    with pytest.raises(SystemExit, match="2"):
        config_table.main()

    assert "--commands" in capsys.readouterr().err


def test_the_page_has_the_constants_that_are_in_use():
    page = paths.data("docs/grouped_gemm.md").read_text()

    assert f"| `RATES` | NARROW {RATES['fwd'][NARROW]}, in wgrad {RATES['wgrad'][NARROW]} |" in page
    assert f"| | STRAIGHT {RATES['wgrad'][STRAIGHT]} |" in page
    assert f"| `WHOLE_WAVES`, `TAIL_WAVES` | {config.WHOLE_WAVES}, {config.TAIL_WAVES} |" in page
    assert f"| `CHUNK_K_BLOCKS` | {config.CHUNK_K_BLOCKS} |" in page
    assert f"| `FLAT_GROUP_ROWS` | {config.FLAT_GROUP_ROWS} |" in page
