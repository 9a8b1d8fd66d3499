"""The file of rounds: what it holds, what it refuses, how large it is. Here are the builders of other tests too."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.errors import RunFileError
from harness.model.case import Case
from harness.rounds import file
from harness.rounds.model import (
    MODES,
    ROLES,
    Mode,
    Plan,
    RankReport,
    Role,
    Round,
    RoundsRun,
    Side,
    Timing,
)
from harness.rounds.orders import first_roles
from tests.bench import machine, small_case

SCHEMA = Path(__file__).parents[2] / "docs" / "rounds.schema.json"
SpanNs = Callable[[int, int, Mode, Role, int, int], int]
"""(round, case, mode, role, rank, iteration) -> ns"""


def plan_of(
    *,
    cases: tuple[Case, ...] = (small_case(),),
    modes: tuple[Mode, ...] = MODES,
    rounds: int = 4,
    iterations: int = 3,
    ranks: int = 2,
    isolate: str = "process",
    order: str = "halves",
    arms: tuple[str, str] = ("cublas_loop", "torch_grouped_mm"),
    limit_s: float = 60.0,
) -> Plan:
    return Plan(
        baseline=Side(arm=arms[0], own_python=False),
        new=Side(arm=arms[1], own_python=False),
        cases=cases,
        modes=modes,
        rounds=rounds,
        iterations=iterations,
        ranks=ranks,
        order=order,  # type: ignore[arg-type]
        isolate=isolate,  # type: ignore[arg-type]
        device="cpu",
        timer="scripted",
        seed=0,
        round_limit_ns=round(limit_s * 1e9),
    )


def round_of(plan: Plan, index: int, span_ns: SpanNs) -> Round:
    reports = []
    for rank in range(plan.ranks):
        timings = tuple(
            Timing(
                case=case,
                mode=mode,
                role=role,
                status="measured",
                reason="",
                span_ns=tuple(span_ns(index, case, mode, role, rank, i) for i in range(plan.iterations)),
            )
            for case in range(len(plan.cases))
            for mode in plan.modes
            for role in ROLES
        )
        reports.append(RankReport(rank=rank, machine=0, timings=timings))
    first = first_roles(plan.rounds, plan.order, seed=plan.seed)[index]
    return Round(index=index, first=first, failure="", failed_ranks=(), reports=tuple(reports))


def run_of(plan: Plan, rounds: tuple[Round, ...]) -> RoundsRun:
    return RoundsRun(
        schema_version=1,
        method_version=1,
        run_id="r1",
        started="2026-01-02T03:04:05Z",
        revision="1a2b3c4 (git)",
        sources_sha256="0a" * 32,
        plan=plan,
        machines=(machine(),),
        rounds=rounds,
    )


def small_run() -> RoundsRun:
    plan = plan_of()
    return run_of(plan, tuple(round_of(plan, index, lambda r, c, m, o, k, i: 1000 + r + i) for index in range(4)))


def test_a_file_reads_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "r1.json"

    file.save(small_run(), path)

    assert file.load(path) == small_run()
    assert file.dumps(file.load(path)) == path.read_text()
    assert [p.name for p in path.parent.iterdir()] == ["r1.json"]


def test_32_rounds_of_2_cells_on_16_ranks_are_below_1_mib() -> None:
    plan = plan_of(rounds=32, ranks=16, iterations=40)
    run = run_of(plan, tuple(round_of(plan, i, lambda *_: 1_234_567) for i in range(32)))

    assert sum(len(t.span_ns) for r in run.rounds for report in r.reports for t in report.timings) == 32 * 16 * 4 * 40
    assert len(file.dumps(run)) < 2**20


def test_a_reader_keeps_the_file_that_it_opened_whole(tmp_path: Path) -> None:
    path = tmp_path / "r1.json"
    run = small_run()
    file.save(run.model_copy(update={"rounds": run.rounds[:1]}), path)
    before = path.read_text()

    with path.open() as reader:
        file.save(run, path)

        assert reader.read() == before
    assert file.load(path) == run


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "r1.json"
    file.save(small_run(), path)
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunFileError, match="cannot be written: No space left on device; choose another folder"):
        file.save(small_run(), path)

    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["r1.json"]


Fields = dict  # of a file


def _spans(fields: Fields) -> list[int]:
    spans: list[int] = fields["rounds"][0]["reports"][0]["timings"][0]["span_ns"]
    return spans


REFUSED: dict[str, tuple[Callable[[Fields], object], str]] = {
    "another schema": (lambda f: f.update(schema_version=2), "has schema_version 2; this version reads 1"),
    "another method": (lambda f: f.update(method_version=9), "method_version"),
    "unknown key": (lambda f: f.update(extra=1), "extra"),
    "unknown key of a round": (lambda f: f["rounds"][0].update(extra=1), "rounds[0].extra"),
    "unknown key of a case": (lambda f: f["plan"]["cases"][0].update(extra=1), "plan"),
    "unknown key of a machine": (lambda f: f["machines"][0].update(extra=1), "machines"),
    "missing key": (lambda f: f["plan"].pop("seed"), "plan.seed is missing"),
    "missing key with a default": (lambda f: f["machines"][0].pop("board"), "machines"),
    "text for a number": (lambda f: f["plan"].update(seed="0"), "plan.seed must be an integer, got '0'"),
    "a fraction": (lambda f: _spans(f).__setitem__(0, 1.5), "span_ns[0]"),
    "no time at all": (lambda f: _spans(f).__setitem__(0, 0), "span_ns[0] must be >= 1, got 0"),
    "an odd number of rounds": (lambda f: f["plan"].update(rounds=5), "plan.rounds"),
    "an iteration too few": (lambda f: _spans(f).pop(), "rank 0 reported 2 iterations of baseline of 'fwd tiny'"),
    "a rank too few": (lambda f: f["rounds"][1]["reports"].pop(), "rounds[1]: rank 1 reported 0 cases where 1"),
    "a machine that is not there": (lambda f: f["rounds"][0]["reports"][0].update(machine=1), "below 1"),
    "a round beyond the plan": (lambda f: f["rounds"][0].update(index=4), "index must be below 4, got 4"),
    "a result twice": (lambda f: f["rounds"][0].update(index=1), "a round must have one result"),
    "reports and a failure": (lambda f: f["rounds"][0].update(failure="x"), "either reports or a failure"),
    "times and a reason": (
        lambda f: f["rounds"][0]["reports"][0]["timings"][0].update(reason="x"),
        "either times or the reason",
    ),
    "a case twice": (lambda f: f["plan"]["cases"].append(f["plan"]["cases"][0]), "must stand once in a plan"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_no_run_can_have_produced_is_refused(what: str) -> None:
    fields = json.loads(file.dumps(small_run()))
    change, message = REFUSED[what]
    change(fields)

    with pytest.raises(RunFileError) as caught:
        file.loads(json.dumps(fields), "r1.json")

    assert str(caught.value).startswith("r1.json")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is no file of rounds"),
        ("[1]", "must be an object with schema_version and plan"),
        ('{"schema_version": 1, "rows": []}', "must be an object with schema_version and plan"),
        ('{"schema_version": 1, "schema_version": 1}', "must stand once in an object, got 2"),
        ('{"schema_version": NaN}', "holds NaN, which is no result"),
    ],
)
def test_what_is_no_file_of_rounds_is_refused(text: str, message: str) -> None:
    with pytest.raises(RunFileError, match=message):
        file.loads(text, "r1.json")


def test_what_would_not_load_is_not_written(tmp_path: Path) -> None:
    run = small_run()
    twice = run.model_copy(update={"rounds": (run.rounds[0], run.rounds[0])})

    with pytest.raises(RunFileError, match="one result"):
        file.save(twice, tmp_path / "r1.json")

    assert list(tmp_path.iterdir()) == []


def test_the_committed_schema_is_that_of_the_models() -> None:
    text = json.dumps(file.json_schema(), indent=2) + "\n"
    if os.environ.get("GOLDEN_WRITE"):
        SCHEMA.write_text(text)

    assert SCHEMA.read_text() == text


COMMITTED = sorted((Path(__file__).parents[2] / "reports" / "h200" / "rounds").glob("*.json"))


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.stem)
def test_every_committed_file_of_rounds_loads_and_writes_the_same_bytes(path: Path) -> None:
    assert file.dumps(file.load(path)) == path.read_text()
