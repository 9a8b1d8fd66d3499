"""The model of what is read from DRAM, against what Nsight Compute counted on an H200."""

import csv
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from cake_kernels.grouped_gemm.sm90.config import SMS
from harness import cases, shapes
from harness.paths import data
from tools.dram_reads import dram_reads, main
from tools.makespan import configured

COUNTED = Path(__file__).parents[2] / "reports" / "h200"
ALL = {case.case_id: case for case in cases.cases(shapes.load(data("shapes.yaml")), "moe-training")}
LIMITS = {"fwd": 0.002, "dX": 0.003, "dW": 0.02}


def lines(name):
    return list(csv.reader((COUNTED / name).read_text().splitlines()))


@pytest.mark.parametrize("band", [8, 12, 16, 22])
def test_the_model_reads_what_was_counted_whatever_the_band(band):
    case = ALL["fwd gate_up E4 M112576 bal"]
    counted = next(int(line[2]) for line in lines("l2/ncu.csv") if line[1] == f"b{band}_swap_l16")

    assert dram_reads(case, replace(configured(case, SMS), band=band), SMS) == pytest.approx(counted, rel=LIMITS["fwd"])


@pytest.mark.parametrize("op", LIMITS)
def test_the_model_reads_what_was_counted_of_each_operation(op):
    case = ALL[f"{op} gate_up E4 M112576 bal"]
    counted = next(int(line[3]) for line in lines("programs/ncu.csv") if line[:2] == [op, "cake_det"])

    assert dram_reads(case, configured(case, SMS), SMS) == pytest.approx(counted, rel=LIMITS[op])


def test_the_table_has_a_column_for_each_band(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["dram_reads", "--suite", "moe-decode", "--op", "dW", "--band", "4"])

    main()

    table = capsys.readouterr().out.splitlines()[2:]
    assert table[0] == "| op | row | configuration | GB | b4 |"
    assert len(table) == 2 + 12
    assert {line.count("|") for line in table} == {6}


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--band", "0"], "--band must be at least 1, got 0"), (["--suite", "none"], "none"), (["--sms", "1"], "got 1")],
)
def test_what_cannot_be_is_refused(words, said, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["dram_reads", *words])

    with pytest.raises(SystemExit) as ended:
        main()

    assert ended.value.code == 2
    assert said in capsys.readouterr().err
