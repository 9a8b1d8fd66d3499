"""The speed that the kept runs show: what a commit of slower ones would lower.

pytorch/pytorch#163425, NVIDIA/TransformerEngine#2151, deepseek-ai/DeepGEMM#107: slower than a loop of cuBLAS calls,
slow where groups are uneven, and figures that nobody could repeat. Nothing is timed here.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from harness.cli import cake_bench

KEPT = Path(__file__).parents[2] / "reports" / "h200"
SUSTAINED = ("programs/sustained-0.json", "programs/sustained-1.json")
PRESENT = ("programs/sustained-q-e8-e32.json", "programs/sustained-q-e4.json")
BEST = ("programs/best-fwd.json", "programs/best-dX.json", "programs/best-dW.json")
BOOST = ("moe-training/boost-fwd-dx.json", "moe-training/boost-dw.json")
# Least geomeans: SOTA / cake_det by regime, torch_grouped_mm / cake_det with four experts; by span and by busy time.
SOTA = {"sustained": {"fwd": 0.99, "dX": 0.98, "dW": 1.00}, "boost": {"fwd": 1.01, "dX": 1.00, "dW": 1.02}}
TORCH_E4 = {"fwd": 1.08, "dX": 1.08, "dW": 1.01}
ROWS = {("fwd", "owner"): 18, ("dX", "owner"): 18, ("dW", "owner"): 22, **{(op, "unsorted"): 14 for op in TORCH_E4}}
KINDS = ("bal", "skew", "skew asc", "1-empty", "1-empty asc", "random")


def report(runs: tuple[str, ...], *words: str) -> dict[str, Any]:
    command = ["report", "--format", "json", "--new", "cake_det", *words, *(str(KEPT / run) for run in runs)]
    printed: dict[str, Any] = json.loads(CliRunner().invoke(cake_bench, command, prog_name="cake-bench").stdout)
    return printed


def geomeans(printed: dict[str, Any], *, against: str, regime: str) -> dict[tuple[str, str, str], float]:
    """(operation, row class, metric) -> geomean."""
    return {
        (g["op"], g["row_class"], g["metric"]): g["value"]
        for g in printed["geomeans"]
        if g["against"] == against and g["regime"] == regime
    }


@pytest.mark.parametrize(
    ("runs", "regime"),
    [(BEST, "sustained"), (PRESENT, "sustained"), (SUSTAINED, "sustained"), (BEST, "boost"), (BOOST, "boost")],
    ids=["best-sustained", "46-sustained", "earlier-sustained", "best-boost", "boost"],
)
def test_the_published_shapes_keep_their_geomeans_against_the_better_of_torch_and_cublas(
    runs: tuple[str, ...], regime: str
) -> None:
    found = geomeans(report(runs), against="sota", regime=regime)

    assert set(found) == {
        (op, row_class, metric)
        for op in ("fwd", "dX", "dW")
        for row_class in ("owner", "unsorted")
        for metric in ("span", "busy")
    }
    assert {key: value for key, value in found.items() if value < SOTA[regime][key[0]]} == {}


@pytest.mark.parametrize(
    ("runs", "regime", "cards"),
    [(BEST, "sustained", 1), (SUSTAINED, "sustained", 2), (BEST, "boost", 1), (BOOST, "boost", 1)],
)
def test_every_published_row_is_among_them(runs: tuple[str, ...], regime: str, cards: int) -> None:
    printed = report(runs)

    for geomean in (g for g in printed["geomeans"] if g["against"] == "sota" and g["regime"] == regime):
        assert geomean["n"] == geomean["expected_n"] == ROWS[geomean["op"], geomean["row_class"]]
    rows = [row for row in printed["rows"] if row["regime"] == regime]
    assert {row["cards"] for row in rows} == {cards}
    assert len(rows) == sum(ROWS.values())


@pytest.mark.parametrize("regime", SOTA)
def test_the_published_shapes_are_ahead_of_tuned_quack_too(regime: str) -> None:
    found = geomeans(report(BEST, "--against", "quack"), against="best_known", regime=regime)

    assert {(op, metric) for op, _, metric in found} == {(op, m) for op in SOTA[regime] for m in ("span", "busy")}
    assert {key: value for key, value in found.items() if value < 1.0} == {}


def test_four_experts_keep_their_geomeans_against_torch() -> None:
    printed = report(SUSTAINED, "--case", "*E4*", "--against", "torch_grouped_mm")
    found = geomeans(printed, against="torch_grouped_mm", regime="sustained")

    assert {(op, metric) for op, _, metric in found} == {(op, metric) for op in TORCH_E4 for metric in ("span", "busy")}
    assert {key: value for key, value in found.items() if value < TORCH_E4[key[0]]} == {}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("runs", "regime"), [(SUSTAINED, "sustained"), (BEST, "sustained"), (BEST, "boost")])
def test_every_kind_of_groups_keeps_them(runs: tuple[str, ...], regime: str, kind: str) -> None:
    found = geomeans(report(runs, "--case", f"*[0-9] {kind}"), against="sota", regime=regime)

    assert {op for op, _, _ in found} == set(SOTA[regime])
    assert {key: value for key, value in found.items() if value < SOTA[regime][key[0]]} == {}
