import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from harness import runfile
from harness.errors import RunFileError
from harness.model.run import (
    ArmInfo,
    ArmOutcome,
    Check,
    Discarded,
    GroupState,
    Previous,
    Rate,
    Rates,
    Row,
    Run,
    Sitting,
    SuiteCount,
    row_key,
)
from harness.model.sample import Samples
from tests.bench import machine, small_case

REPORTS = Path(__file__).parents[2] / "reports" / "h200"
COMMITTED = sorted(path for path in REPORTS.glob("*/*.json") if path.parent.name not in ("doctor", "rounds"))


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


def edited(of: Run | None = None, **changes: object) -> str:
    """Return the file of ``of``, by default a small run, with values at dotted paths replaced."""
    fields = json.loads(runfile.dumps(of or small_run()))
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


def with_previous() -> Run:
    run = small_run()
    beside = Previous(revision="0ld (git)", sources_sha256="0a" * 32, controls=(run.planned[0],))
    return replace(run, sources_sha256="1b" * 32, previous=beside)


def test_what_measured_another_revision_reads_back_equal() -> None:
    text = runfile.dumps(with_previous())

    assert runfile.loads(text, "x.json") == with_previous()
    assert json.loads(text)["previous"] == {
        "revision": "0ld (git)",
        "sources_sha256": "0a" * 32,
        "controls": ["boost/test/fwd tiny"],
    }


def rate(name: str, *, amount: int, span_ns: int, n: int = 8) -> Rate:
    return Rate(
        amount=amount,
        samples=Samples(
            group=tuple(range(n)),
            position=(0,) * n,
            arm=(name,) * n,
            span_ns=(*[span_ns] * (n - 1), span_ns + 1),
            busy_ns=(None,) * n,
            clock_mhz=(None,) * n,
            joules=(None,) * n,
            calls=(3,) * n,
        ),
    )


def with_rates() -> Run:
    """10^9 bytes in 1 s; 2 x 10^9 FLOPs in 4 ms, where the peak allows 2 ms."""
    read = rate("plain_read", amount=10**9, span_ns=10**9)
    mm = rate("dense_mm", amount=2 * 10**9, span_ns=4 * 10**6)
    return replace(with_previous(), rates=(Rates(machine=0, plain_read=read, dense_mm=mm),))


def test_measured_rates_read_back_equal_and_are_amounts_over_the_median_span() -> None:
    text = runfile.dumps(with_rates())

    assert runfile.loads(text, "x.json") == with_rates()
    assert runfile.dumps(runfile.loads(text, "x.json")) == text
    (rates,) = with_rates().rates
    assert (rates.plain_read.per_s, rates.dense_mm.per_s) == (1e9, 5e11)
    assert with_rates().rates_of(0) == rates
    assert with_rates().rates_of(1) is None


def test_a_rate_of_fewer_than_seven_samples_is_none() -> None:
    rate("plain_read", amount=1, span_ns=10, n=7)
    with pytest.raises(RunFileError, match="a rate must have at least 7 samples, got 6"):
        rate("plain_read", amount=1, span_ns=10, n=6)
    with pytest.raises(RunFileError, match="amount of a rate must be >= 1, got 0"):
        rate("plain_read", amount=0, span_ns=10)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rates__0__machine": 1}, r"rates: machine must be in 0..0, got 1"),
        ({"rates": [0, 0]}, r"a machine of rates stands twice: \['0'\]"),
        ({"rates__0__plain_read__amount": 0}, "amount of a rate must be >= 1, got 0"),
        (
            {"rates__0__dense_mm__samples__span_ns__3": 0},
            r"samples\[3\] of dense_mm: span_ns must be at least 1, got 0",
        ),
        (
            {"rates__0__dense_mm__amount": 4 * 10**9 + 10**4},
            r"rates of machine 0: dense_mm: samples.span_ns\[0\] must be >= 4000010, the least time that its amount"
            " needs at this machine's peak; got 4000000",
        ),
        (
            {"rates__0__plain_read__samples__arm": ["dense_mm"] * 8},
            r"rates of machine 0: plain_read: arm must be one of the run's \['plain_read'\], got 'dense_mm'",
        ),
        ({"rates__0__speed": 1}, r"rates\[0\] has the unknown key 'speed'"),
        ({"rates": []}, "the file has the unknown key 'rates'"),
    ],
)
def test_rates_that_no_machine_can_have_are_refused(changes: dict[str, object], message: str) -> None:
    if changes.get("rates") == [0, 0]:
        changes = {"rates": 2 * json.loads(runfile.dumps(with_rates()))["rates"]}
    with pytest.raises(RunFileError, match=message):
        runfile.loads(edited(with_rates(), **changes), "x.json")


def test_rows_of_a_machine_without_rates_are_refused_where_another_has_them() -> None:
    run = with_rates()
    two = replace(run, machines=(*run.machines, machine(peak_flops=1e12, product="Another")))
    with pytest.raises(RunFileError, match="machine 1 must have rates, as others of the run do, got none"):
        replace(two, rows=(run.rows[0], replace(run.rows[1], machine=1)))


def with_sittings(*rows: int) -> Run:
    sittings = tuple(Sitting(started="2026-01-02T03:04:05Z", elapsed_ns=10**9, rows=count) for count in rows)
    return replace(with_rates(), sittings=sittings)


def test_sittings_read_back_equal_and_the_first_rows_of_an_older_file_may_have_none() -> None:
    for run in (with_sittings(1, 1), with_sittings(1)):
        assert runfile.loads(runfile.dumps(run), "x.json") == run


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sittings__0__rows": 2}, "sittings must have at most the 2 rows of the run, got 3"),
        ({"sittings__0__rows": 0}, "rows of a sitting must be >= 1, got 0"),
        ({"sittings__1__elapsed_ns": 0}, "elapsed_ns of a sitting must be >= 1, got 0"),
        ({"sittings": []}, "the file has the unknown key 'sittings'"),
    ],
)
def test_sittings_that_cannot_have_been_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(RunFileError, match=message):
        runfile.loads(edited(with_sittings(1, 1), **changes), "x.json")


def test_a_part_of_a_run_has_no_sittings() -> None:
    assert with_sittings(1, 1).only(["fwd *"]).sittings == ()


def test_optional_keys_stand_only_where_there_is_something_to_say() -> None:
    assert not set(runfile.OPTIONAL) & json.loads(runfile.dumps(small_run())).keys()
    assert set(runfile.OPTIONAL) < json.loads(runfile.dumps(with_sittings(1, 1))).keys()


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.stem)
def test_every_committed_run_file_loads_and_writes_the_same_bytes(path: Path) -> None:
    assert runfile.dumps(runfile.load(path)) == path.read_text()


def test_each_row_is_one_line(tmp_path: Path) -> None:
    lines = runfile.dumps(small_run()).splitlines()

    assert sum(line.startswith('{"case":') for line in lines) == 2


@pytest.mark.parametrize("value", [0, -1])
def test_a_zero_or_negative_duration_cannot_be_loaded(value: int) -> None:
    with pytest.raises(RunFileError, match=rf"x.json: samples\[1\] of a: span_ns must be at least 1, got {value}"):
        runfile.loads(edited(rows__0__samples__span_ns__1=value), "x.json")


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_not_a_number_and_infinity_cannot_be_loaded(constant: str) -> None:
    # dotnet/BenchmarkDotNet#1242 and ray-project/ray#9103: NaN and infinity in results.
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
        (
            {"rows__0__samples__group__1": 0},
            r"samples\[1\]: \(group, position\) must come after \(0, 0\), got \(0, 0\)",
        ),
        ({"rows__0__samples__group__1": 2}, r"a must have one sample a group of 2, got \[0, 2\]"),
        ({"rows__0__samples__position__1": 1}, "position must be below the 1 arms tried, got 1"),
        ({"rows__0__samples__busy_ns__1": 900}, "a must have busy_ns in all of its samples or in none"),
        ({"rows__0__samples__clock_mhz__1": -5}, r"samples\[1\] of a: clock_mhz must be at least 1, got -5"),
        ({"rows__0__samples__span_ns__1": 2**63}, r"samples\[1\] of a: span_ns must be below 2\*\*63"),
        ({"rows__0__arms__a__reason": "wrong"}, "an arm has a reason exactly when it has no time"),
        ({"rows__0__arms__a__check": None}, "a measured arm must have a check that it passed, got None"),
        ({"rows__0__arms__a__check__rel_l2": 0.003}, "a measured arm must have a check that it passed, got Check"),
        ({"rows__0__arms__a__check__worst": 1.1}, "a measured arm must have a check that it passed, got Check"),
        ({"rows__0__skipped": "too big"}, "a skipped row must have no samples, got 2 and 'too big'"),
        ({"rows__0__regime": "sustained"}, r"regime must be one of the run's \['boost'\], got 'sustained'"),
        ({"rows__0__discarded__0__arm": "z"}, r"discarded must be one of the run's \['a', 'b'\], got 'z'"),
        ({"rows__0__discarded__0__span_ns": {"z": 1}}, r"discarded must be one of the run's \['a', 'b'\], got 'z'"),
        ({"rows__0__kernels": {"a": [["gemm"]]}}, "kernels must be written as 'name x count', got 'gemm'"),
        ({"rows__0__kernels": {"z": [["gemm x 1"]]}}, r"kernels must be one of the run's \['a', 'b'\], got 'z'"),
        ({"arms__0__name": "z"}, r"row 'fwd tiny': arms must be one of the run's \['b', 'z'\], got 'a'"),
        ({"arms__0__name": "b"}, r"a arm stands twice: \['b'\]"),
        ({"arms__0__twin_of": "z"}, r"twin_of must be one of the run's \['a', 'b'\], got 'z'"),
        ({"planned": ["boost/test/dX tiny"]}, r"planned row must be one of the run's \['boost/test/dX tiny'\]"),
        ({"planned__0": "boost/test/dX tiny"}, r"a planned row stands twice: \['boost/test/dX tiny'\]"),
        ({"suite_counts__0__count": 0}, "suite_counts of 'test', fwd: count must be >= 1, got 0"),
        ({"groups": 0}, "run r1: groups must be >= 1, got 0"),
        ({"run_id": "../../r1"}, r"run_id must be 1 to 100 letters, digits, .* got '../../r1'"),
        ({"sources_sha256": "1B" * 32}, f"sources_sha256 must be 64 hex digits, got '{'1B' * 32}'"),
        ({"sources_sha256": ""}, "the file has the unknown key 'sources_sha256'"),
        ({"previous": None}, "the file has the unknown key 'previous'"),
        ({"previous": {"revision": "r", "controls": []}}, "previous.sources_sha256: Field required"),
        (
            {"previous": {"revision": "r", "sources_sha256": "", "controls": []}},
            "previous.sources_sha256 must be 64 hex digits, got ''",
        ),
        (
            {"previous": {"revision": "r", "sources_sha256": "0" * 64, "controls": ["z"]}},
            r"previous.controls must be one of the run's \['boost/test/dX tiny', 'boost/test/fwd tiny'\], got 'z'",
        ),
        ({"machines__0__peak_flops": -1.0}, "peak_flops of machine 'Test CPU' must be a finite number >= 1, got -1.0"),
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
    [
        ("", "is no run file"),
        ("[]", "must be an object with schema_version"),
        ("{}", "schema_version"),
        (
            '{"schema_version": 1, "schema_version": 1}',
            "x.json: the key 'schema_version' must stand once in an object, got 2",
        ),
        ("[" * 100_000, "is no run file: brackets are nested too deeply"),
        ('{"schema_version": ' + "9" * 5000 + "}", "is no run file: Exceeds the limit"),
    ],
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


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"note": 5}, "run r1 cannot be written: .*Expected `str`"),
        ({"note": "file \udcff"}, "run r1 cannot be written: .*surrogates not allowed"),
        ({"is_cake": "yes"}, "run r1 cannot be written: .*Expected `bool`"),
    ],
)
def test_what_could_not_be_loaded_again_is_not_written(
    tmp_path: Path, changed: dict[str, object], message: str
) -> None:
    path = tmp_path / "r1.json"
    runfile.save(small_run(), path)
    before = path.read_bytes()
    run = small_run()
    odd = replace(run, arms=(replace(run.arms[0], **changed), run.arms[1]))  # type: ignore[arg-type]

    with pytest.raises(RunFileError, match=message):
        runfile.save(odd, path)

    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["r1.json"]


def test_a_failed_save_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)

    with pytest.raises(RunFileError, match="r1.json cannot be written: No space left on device"):
        runfile.save(small_run(), tmp_path / "r1.json")
    assert os.listdir(tmp_path) == []


def test_a_hundred_rows_of_eight_arms_and_eight_groups_stay_under_one_mebibyte() -> None:
    names = tuple(f"cublas_loop_{i}" for i in range(8))
    places = [(group, position) for group in range(8) for position in range(8)]
    check = Check(rel_l2=0.0016543210987654321, rel_l2_limit=0.0022637, worst=0.51234567890123)
    samples = Samples(
        group=tuple(group for group, _ in places),
        position=tuple(position for _, position in places),
        arm=tuple(names[(group + position) % 8] for group, position in places),
        span_ns=(12_345_678,) * 64,
        busy_ns=(12_345_678,) * 64,
        clock_mhz=(1980,) * 64,
        joules=(4.256,) * 64,
        calls=(100,) * 64,
    )
    state = GroupState(clock_mhz=1440, power_w=692.512, temperature_c=63, throttle=("power cap",))
    rows = tuple(
        Row(
            case=small_case(name=f"gate_up E32 M131072 random {i}", sizes=(4096,) * 32),
            machine=0,
            regime=regime,
            n_groups=8,
            arms={name: ArmOutcome(status="measured", check=check) for name in names},
            samples=samples,
            states=(state,) * 8,
        )
        for i in range(50)
        for regime in ("boost", "sustained")
    )
    run = replace(
        small_run(),
        regimes=("boost", "sustained"),
        arms=tuple(ArmInfo(name=name, key="", is_cake=False, note="") for name in names),
        planned=tuple(row_key(row.regime, row.case) for row in rows),
        rows=rows,
    )

    assert len(runfile.dumps(run).encode()) < 1 << 20
