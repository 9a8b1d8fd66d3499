import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from harness import runfile
from harness.errors import RunFileError
from harness.model.run import ArmInfo, ArmOutcome, Check, Discarded, Row, Run, SuiteCount, row_key
from harness.model.sample import Samples
from tests.bench import machine, small_case


def small_run() -> Run:
    case = small_case()
    row = Row(
        case=case,
        machine=0,
        regime="boost",
        n_groups=2,
        arms={
            "a": ArmOutcome(
                status="measured", note="plan 1 of 2", check=Check(rel_l2=0.001, rel_l2_limit=0.002, worst=0.5)
            ),
            "b": ArmOutcome(status="unsupported", reason="needs a | GPU"),
        },
        samples=Samples(
            group=(0, 1),
            position=(0, 0),
            arm=("a", "a"),
            span_ns=(1000, 1010),
            busy_ns=(None, None),
            clock_mhz=(None, None),
            joules=(None, None),
            calls=(1, 1),
        ),
        discarded=(
            Discarded(attempt=0, group=1, arm="a", reason="span_ns must be at least 1, got 0", span_ns={"a": None}),
        ),
    )
    skipped = Row(case=small_case("dX"), machine=0, regime="boost", n_groups=0, arms={}, skipped="does not fit")
    return Run(
        run_id="r1",
        started="2026-01-02T03:04:05Z",
        revision="unknown",
        timer="cpu",
        heading="wall clock",
        protocol="paired_groups",
        regimes=("boost",),
        groups=2,
        seed=0,
        arms=(ArmInfo(name="a", key="t", is_cake=False, note=""), ArmInfo(name="b", key="", is_cake=True, note="ours")),
        machines=(machine(peak_flops=1e12),),
        planned=(row_key("boost", case), row_key("boost", skipped.case)),
        suite_counts=(SuiteCount(suite="test", op="fwd", row_class="smoke", count=4),),
        rows=(row, skipped),
    )


def edited(**changes: object) -> str:
    """Return the file of a small run with values at dotted paths replaced."""
    fields = json.loads(runfile.dumps(small_run()))
    for path, value in changes.items():
        *parents, last = path.split("__")
        place = fields
        for part in parents:
            place = place[int(part) if part.isdigit() else part]
        place[int(last) if last.isdigit() else last] = value
    return json.dumps(fields)


def test_what_is_written_reads_back_equal_and_writes_the_same_bytes(tmp_path: Path) -> None:
    path = tmp_path / "r1.json"

    runfile.save(small_run(), path)

    assert runfile.load(path) == small_run()
    assert runfile.dumps(runfile.load(path)) == path.read_text()


def test_each_row_is_one_line(tmp_path: Path) -> None:
    lines = runfile.dumps(small_run()).splitlines()

    assert sum(line.startswith('{"case":') for line in lines) == 2


@pytest.mark.parametrize("value", [0, -1])
def test_a_zero_or_negative_duration_cannot_be_loaded(value: int) -> None:
    with pytest.raises(
        RunFileError, match=rf"samples.span_ns\[1\] must be a positive integer of nanoseconds, got {value}"
    ):
        runfile.loads(edited(rows__0__samples__span_ns__1=value), "x.json")


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_not_a_number_and_infinity_cannot_be_loaded(constant: str) -> None:
    text = runfile.dumps(small_run()).replace("1010", constant)
    with pytest.raises(RunFileError, match=f"x.json holds {constant}, which is no result"):
        runfile.loads(text, "x.json")


def test_a_time_below_the_floor_of_its_row_cannot_be_loaded() -> None:
    # 2 * 8 * 16 * 8 = 2048 FLOP at 10^12 FLOP/s take 2.048 ns.
    with pytest.raises(RunFileError, match=r"samples.span_ns\[0\] must be >= 2, .* got 1"):
        runfile.loads(edited(rows__0__samples__span_ns__0=1), "x.json")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"extra": 1}, "the file has the unknown key 'extra'"),
        ({"rows__0__samples__colour": []}, r"rows\[0\].samples has the unknown key 'colour'"),
        ({"schema_version": 99}, "x.json has schema_version 99; this version reads 1"),
        ({"groups": "six"}, "groups: Input should be a valid integer, got six"),
        ({"rows__0__samples__span_ns__0": 10.5}, r"span_ns.0: .*, got 10.5"),
        ({"rows__0__machine": 3}, r"machine must be in 0..0, got 3"),
        ({"rows__0__samples__arm__0": "b"}, r"arms with samples \['a', 'b'\] must be the measured \['a'\]"),
        ({"rows__0__samples__group__1": 0}, r"a must have one sample a group of 2, got \[0, 0\]"),
        ({"rows__0__arms__a__reason": "wrong"}, "an arm has a reason exactly when it has no time"),
    ],
)
def test_what_no_run_can_have_produced_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(RunFileError, match=message):
        runfile.loads(edited(**changes), "x.json")


def test_a_missing_key_is_refused() -> None:
    fields = json.loads(runfile.dumps(small_run()))
    del fields["rows"][0]["discarded"]
    with pytest.raises(RunFileError, match=r"rows\[0\] lacks the key 'discarded'"):
        runfile.loads(json.dumps(fields), "x.json")


def test_a_row_that_stands_twice_is_refused() -> None:
    run = small_run()
    with pytest.raises(RunFileError, match="a row stands twice"):
        replace(run, rows=(run.rows[0], run.rows[0]))


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "is no run file"), ("[]", "must be an object with schema_version"), ("{}", "schema_version")],
)
def test_other_files_are_refused(text: str, message: str) -> None:
    with pytest.raises(RunFileError, match=message):
        runfile.loads(text, "x.json")


def test_a_missing_file_and_bytes_that_are_no_text_are_named(tmp_path: Path) -> None:
    with pytest.raises(RunFileError, match="none.json cannot be read: No such file or directory"):
        runfile.load(tmp_path / "none.json")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe")
    with pytest.raises(RunFileError, match="bytes.json is no run file: not UTF-8 at byte 0"):
        runfile.load(tmp_path / "bytes.json")


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFileError, match="cannot be written: .*; choose another folder with --out"):
        runfile.save(small_run(), tmp_path / "file" / "r1.json")


def test_the_committed_schema_is_that_of_the_code() -> None:
    path = Path(__file__).parents[2] / "docs" / "runfile.schema.json"
    if os.environ.get("GOLDEN_WRITE"):
        path.write_text(json.dumps(runfile.json_schema(), indent=1, sort_keys=True) + "\n")

    assert json.loads(path.read_text()) == runfile.json_schema()


def test_a_hundred_rows_of_three_arms_stay_under_one_mebibyte() -> None:
    row = small_run().rows[0]
    n = 18
    samples = Samples(
        group=tuple(range(n)),
        position=(0,) * n,
        arm=("a",) * n,
        span_ns=(123_456_789,) * n,
        busy_ns=(123_456_789,) * n,
        clock_mhz=(1980,) * n,
        joules=(4.25,) * n,
        calls=(100,) * n,
    )
    rows = tuple(
        replace(
            row,
            case=small_case(name=f"gate_up E32 M131072 random {i}", sizes=(4096,) * 32),
            n_groups=n,
            samples=samples,
        )
        for i in range(100)
    )
    run = replace(small_run(), rows=rows)

    assert len(runfile.dumps(run).encode()) < 1 << 20
