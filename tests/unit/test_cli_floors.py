"""``cake-bench run --floors``: what is measured, stored, gone on with, and what the report makes of it."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from harness import arms as arm_files
from harness import devices, runfile
from harness.cli import main
from harness.model.machine import Machine
from harness.protocols import rates as rate_protocol
from tests.bench import FakeArm, QuietDevice, machine

SHAPE = "E=3,M=8,N=16,K=8,dist=balanced"
RunCli = Callable[..., int]

# fwd of SHAPE: x 8 x 8, w 3 x 16 x 8, y 8 x 16 in BF16; 2 M N K.
BYTES, FLOPS = 2 * (64 + 384 + 128), 2048
DENSE_SIZE, MM_NS = 128, 3906250
READ_BYTES, MM_FLOPS = 4 << 20, 2 * DENSE_SIZE**3


@pytest.fixture(autouse=True)
def a_small_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU without BF16 instructions takes seconds for one of the size that is measured."""
    monkeypatch.setitem(rate_protocol.WORK, "cpu", replace(rate_protocol.WORK["cpu"], dense_size=DENSE_SIZE))


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunCli:
    """``cake-bench`` in an empty folder with three arms and a device of 1 MiB cache; times come from a script.

    A read of 4 MiB takes 4 ms, a product of 4.2 MFLOP 3.9 ms: the row's bytes take 1099 ns, its FLOPs 1907 ns.
    """
    known = {name: FakeArm(name) for name in ("torch_grouped_mm", "cublas_loop", "mine")}
    monkeypatch.setattr(arm_files, "load", known.__getitem__)
    monkeypatch.setattr(arm_files, "names", lambda: tuple(known))
    on(monkeypatch, machine())
    script = {"mine": [5000], "cublas_loop": [6000], "torch_grouped_mm": [9000]}
    script |= {"plain_read": [4 * 10**6], "dense_mm": [MM_NS]}
    (tmp_path / "script.json").write_text(json.dumps(script))
    monkeypatch.chdir(tmp_path)
    return lambda *words: main([*words])


def on(monkeypatch: pytest.MonkeyPatch, here: Machine) -> None:
    monkeypatch.setattr(devices, "open_device", lambda name, settings: QuietDevice(facts=here))


def run(*words: str) -> list[str]:
    named = () if "--resume" in words else ("--run-id", "r")
    return [
        "run", "--device", "cpu", "--timer", "scripted:script.json", "--revision", "v1", "--op", "fwd",
        "--arm", "mine,torch_grouped_mm,cublas_loop", "--shape", SHAPE, *named, *words,
    ]  # fmt: skip


def test_the_rates_are_measured_before_the_rows_said_and_stored(
    cli: RunCli, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli(*run("--floors")) == 0

    assert capsys.readouterr().err.startswith("plain read 0.00105 TB/s, dense product 0.00107 TFLOP/s\n1/1 fwd ")
    (rates,) = runfile.load(Path("reports/r.json")).rates
    assert rates.machine == 0
    assert (rates.plain_read.amount, rates.plain_read.samples.span_ns) == (READ_BYTES, (4 * 10**6,) * 8)
    assert (rates.dense_mm.amount, rates.dense_mm.samples.span_ns) == (MM_FLOPS, (MM_NS,) * 8)


def test_the_report_has_each_rows_floor_in_every_format(cli: RunCli, capsys: pytest.CaptureFixture[str]) -> None:
    cli(*run("--floors"))
    floor_ns = 1e9 * FLOPS / (1e9 * MM_FLOPS / MM_NS)
    capsys.readouterr()

    assert cli("report", "--new", "mine", "--format", "json", "reports/r.json") == 0
    page = json.loads(capsys.readouterr().out)
    floor = page["rows"][0]["floor"]
    assert floor == {
        "ns": floor_ns,
        "binds": "FLOPs",
        "bytes_ns": 1e9 * BYTES / (1e9 * READ_BYTES / 4e6),
        "flops_ns": floor_ns,
        "new": 5000 / floor_ns,
        "sota": 6000 / floor_ns,
        "closed": pytest.approx((6000 - 5000) / (6000 - floor_ns)),
        "new_is_below": False,
        "sota_is_below": False,
    }
    (standing,) = page["floors"]
    assert (standing["op"], standing["rows"], standing["n"]) == ("fwd", 1, 1)
    assert standing["new"] == pytest.approx(floor["new"])
    assert standing["closed"] == pytest.approx(floor["closed"])
    (rates,) = page["machines"][0]["rates"]
    assert (rates["run"], rates["dense_mm"]["per_s"]) == ("r", 1e9 * MM_FLOPS / MM_NS)

    assert cli("report", "--new", "mine", "--format", "csv", "-o", "r.csv", "reports/r.json") == 0
    table = pd.read_csv("r.csv").set_index("arm")
    assert set(table["floor_binds"]) == {"FLOPs"}
    assert table["over_floor"].to_dict() == pytest.approx(
        {"mine": 5000 / floor_ns, "torch_grouped_mm": 9000 / floor_ns, "cublas_loop": 6000 / floor_ns}
    )
    assert set(table["below_floor"]) == {False}

    assert cli("report", "--new", "mine", "reports/r.json") == 0
    page = capsys.readouterr().out
    assert "| fwd | 1 of 1 row | 2.621 | 3.146 | 24.43 % | 0, 0 |\n" in page
    assert "| 1.907 | FLOPs | 2.621 | 24.43 % |\n" in page


def test_without_the_option_nothing_is_measured_beforehand_and_nothing_stored(
    cli: RunCli, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli(*run()) == 0

    assert capsys.readouterr().err.startswith("1/1 fwd ")
    assert runfile.load(Path("reports/r.json")).rates == ()
    assert '"rates"' not in Path("reports/r.json").read_text()


def interrupted(cli: RunCli, *words: str) -> list[str]:
    """Measure the first of two rows; return the command that goes on."""
    two = ["--shape", "E=2,M=6,N=16,K=8,dist=balanced", *words]
    assert cli(*run(*two, "--time-limit", "0.000001s")) == 0
    return run(*two, "--resume", "reports/r.json")


def test_a_resumed_run_keeps_the_rates_of_its_machine(cli: RunCli) -> None:
    again = interrupted(cli, "--floors")
    first = runfile.load(Path("reports/r.json"))
    script = json.loads(Path("script.json").read_text())
    Path("script.json").write_text(json.dumps({**script, "plain_read": [5 * 10**6]}))

    assert cli(*again) == 0

    whole = runfile.load(Path("reports/r.json"))
    assert len(whole.rows) == 2
    assert whole.rates == first.rates


def test_a_run_resumed_on_another_machine_measures_its_own_rates(
    cli: RunCli, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    again = interrupted(cli, "--floors")
    script = json.loads(Path("script.json").read_text())
    Path("script.json").write_text(json.dumps({**script, "dense_mm": [MM_NS // 2]}))
    on(monkeypatch, replace(machine(), board="0" * 12))

    assert cli(*again) == 0

    whole = runfile.load(Path("reports/r.json"))
    assert [rates.machine for rates in whole.rates] == [0, 1]
    assert [row.machine for row in whole.rows] == [0, 1]
    assert [rates.dense_mm.per_s for rates in whole.rates] == [1e9 * MM_FLOPS / MM_NS, 2e9 * MM_FLOPS / MM_NS]


@pytest.mark.parametrize(("began", "goes_on", "how"), [((), ("--floors",), "without"), (("--floors",), (), "with")])
def test_a_run_goes_on_only_with_floors_as_it_began(
    cli: RunCli, capsys: pytest.CaptureFixture[str], began: tuple[str, ...], goes_on: tuple[str, ...], how: str
) -> None:
    again = [word for word in interrupted(cli, *began) if word != "--floors"]

    assert cli(*again, *goes_on) == 2
    assert f"--resume: run r began {how} --floors; go on likewise" in capsys.readouterr().err


def test_a_rate_that_cannot_be_measured_ends_the_run_before_its_rows(
    cli: RunCli, capsys: pytest.CaptureFixture[str]
) -> None:
    script = json.loads(Path("script.json").read_text())
    Path("script.json").write_text(json.dumps({**script, "dense_mm": [0]}))

    assert cli(*run("--floors")) == 2
    assert "cake-bench: Error: --floors: dense_mm has no time: 9 groups discarded" in capsys.readouterr().err
    assert not Path("reports").exists()


def test_a_script_without_the_rates_says_what_it_lacks(cli: RunCli, capsys: pytest.CaptureFixture[str]) -> None:
    Path("script.json").write_text('{"mine": [5000], "torch_grouped_mm": [9000], "cublas_loop": [6000]}')

    assert cli(*run("--floors")) == 2
    assert "the script has no arm 'plain_read'; it has mine" in capsys.readouterr().err


def test_one_call_for_a_profiler_has_no_floor(cli: RunCli, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli(*run("--floors", "--profile")) == 2
    assert "--floors does not apply to --profile; leave it out" in capsys.readouterr().err


def test_on_a_cpu_a_real_run_has_floors_from_its_own_rates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shapes = ["--shape", "E=4,M=260,N=208,K=136,dist=one_empty", "--op", "fwd,dX,dW"]
    arms = ["--arm", "torch_grouped_mm,cublas_loop"]

    assert main(["run", "--device", "cpu", "--floors", "--run-id", "real", *shapes, *arms]) == 0

    made = runfile.load(Path("reports/real.json"))
    (rates,) = made.rates
    assert rates.plain_read.amount == -(-4 * made.machines[0].cache_bytes // 16) * 16
    assert [len(rate.samples) for rate in (rates.plain_read, rates.dense_mm)] == [8, 8]
    capsys.readouterr()
    assert main(["report", "--format", "json", "reports/real.json"]) == 0
    page = json.loads(capsys.readouterr().out)
    live, m, n, k = 3, 260, 208, 136
    x, w, y = 2 * m * k, 2 * live * n * k, 2 * m * n
    of_bytes = {"fwd": x + w + y, "dX": y + w + x, "dW": x + y + 2 * 4 * n * k}
    for row in page["rows"]:
        floor, spans = row["floor"], {name: arm["span_ns"] for name, arm in row["arms"].items()}
        by_bytes = 1e9 * of_bytes[row["op"]] / rates.plain_read.per_s
        by_flops = 1e9 * 2 * m * n * k / rates.dense_mm.per_s
        assert floor["ns"] == pytest.approx(max(by_bytes, by_flops))
        assert floor["new"] == pytest.approx(spans["torch_grouped_mm"] / floor["ns"])
        assert floor["sota"] == pytest.approx(spans["cublas_loop"] / floor["ns"])
    assert [(standing["op"], standing["n"]) for standing in page["floors"]] == [("fwd", 1), ("dX", 1), ("dW", 1)]
    assert main(["report", "reports/real.json"]) == 0
    assert "## Measured floor\n" in capsys.readouterr().out
