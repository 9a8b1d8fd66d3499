"""The stored runs of tests/golden/report, and their pages.

After a wanted change of a page: ``python -m tests.unit.report_goldens`` writes all anew; read the difference.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness import plugins, runfile
from harness.model.case import Case
from harness.model.run import Discarded, GroupState, Previous, Row, Run, Sitting, SuiteCount
from harness.pages.summary import summarise
from tests.unit.report_runs import H200, case, rates, row, run, skipped

FOLDER = Path(__file__).parents[1] / "golden" / "report"
FORMATS = {"pr": "md", "csv": "csv", "json": "json"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Golden:
    """A page's name, the stored runs that it is made of, the extra columns of its Markdown, and what changed."""

    name: str
    runs: tuple[str, ...]
    columns: tuple[str, ...] = ()
    what: str = ""

    def page(self, form: str, runs: Sequence[Run]) -> str:
        columns = self.columns if form == "pr" else ()
        page: str = plugins.load("pages", form).render_page(summarise(runs), columns=columns, what=self.what)
        return page


GOLDENS = (
    Golden(name="small", runs=("small",), columns=("tflops", "clock", "class", "check", "note", "sizes")),
    Golden(name="pool", runs=("card-a", "card-b")),
    Golden(name="regimes", runs=("regimes",), columns=("aa", "cycles")),
    Golden(name="previous", runs=("previous",), what="Two more stages for dW"),
    Golden(name="floors", runs=("floors",)),
    Golden(name="noisy", runs=("noisy",), what="Smaller tiles for *short* experts"),
)


REGIME_ARMS = ("cake_nondet", "cake_nondet again", "torch_grouped_mm", "cublas_loop")


def stored(name: str) -> Path:
    return FOLDER / f"{name}.run.json"


def load(golden: Golden) -> list[Run]:
    return [runfile.load(stored(name)) for name in golden.runs]


def around(middle_ns: int, *, step: float = 0.002) -> tuple[int, ...]:
    """Six spans around ``middle_ns``, in no order."""
    return tuple(round(middle_ns * (1 + step * k)) for k in (0, 2, -1, 1, -2, 0.5))


def small() -> Run:
    """Three arms, one unsupported, one failed, one row skipped, one planned row missing, busy times and clocks."""
    new, t, c, d = "cake_nondet", "torch_grouped_mm", "cublas_loop", "cudnn"
    no_dw = {d: "has no weight-gradient form"}
    sizes = {"bal": (28144,) * 4, "skew": (54036, 27018, 18012, 13510), "1-empty": (37526, 37525, 37525, 0)}

    def timed(
        kind: str, spans: dict[str, int], *, name: str = "", out_dtype: str = "bf16", c_busy: float = 0.98
    ) -> Row:
        of = case(
            f"gate_up E4 M112576 {name or kind}",
            N=4096,
            K=6144,
            sizes=sizes[kind] if not name.endswith("asc") else sizes[kind][::-1],
            row_class="unsorted" if name.endswith("asc") else "owner",
            out_dtype=out_dtype,
        )
        groups = {arm: around(middle, step=0.004 if arm == new else -0.003) for arm, middle in spans.items()}
        busy = {arm: [int(s * (c_busy if arm == c else 1)) for s in group] for arm, group in groups.items()}
        clock = {arm: [1755 - 15 * len(arm) % 60] * 6 for arm in groups}
        failed = (
            {} if out_dtype == "bf16" else {t: "element [0, 17, 3] was not written; outputs were NaN before the call"}
        )
        notes = {new: "slack placement"} if kind == "skew" else {}
        thrown = (Discarded(attempt=0, group=2, arm=c, reason="span 0 ns"),) if kind == "1-empty" and not name else ()
        return row(of, groups, busy=busy, clock=clock, unsupported=no_dw, failed=failed, notes=notes, discarded=thrown)

    rows = (
        timed("bal", {new: 8_101_230, t: 8_612_402, c: 8_402_877}),
        timed("skew", {new: 8_391_145, t: 8_733_018, c: 8_204_310}),
        timed("1-empty", {new: 8_320_775, t: 8_560_001, c: 8_388_220}),
        timed("bal", {new: 8_399_001, c: 8_650_412}, out_dtype="fp32"),
        timed("skew", {new: 8_402_100, t: 8_790_444, c: 8_250_000}, name="skew asc"),
        timed("1-empty", {new: 8_330_010, t: 8_601_777, c: 9_810_400}, name="1-empty asc", c_busy=0.85),
        skipped(
            case("gate_up E32 M131072 bal", N=4096, K=6144, sizes=(4096,) * 32, out_dtype="fp32"),
            "needs 152.1 GiB of device memory, 139.8 GiB are free",
        ),
    )
    counts = [
        SuiteCount(suite="moe-training", op="dW", row_class=row_class, count=count)
        for row_class, count in (("owner", 22), ("unsorted", 14))
    ]
    made = run(*rows, arms=(new, t, c, d), run_id="20260102-101500-small", counts=counts)
    return replace(made, planned=(*made.planned, "boost/moe-training/dW down E4 M112576 bal"))


def cards() -> Iterator[tuple[str, Run]]:
    """Two cards of one model, the same rows; quack makes a best-known column."""
    new, t, q = "cake_nondet", "torch_grouped_mm", "quack"
    counts = [SuiteCount(suite="moe-training", op=op, row_class="owner", count=18) for op in ("fwd", "dX")]
    for name, board, slower in (("card-a", "aaaaaaaaaaaa", 1.0), ("card-b", "bbbbbbbbbbbb", 1.01)):
        rows = [
            row(
                case("down E8 M131072 bal", op=op, sizes=(16384,) * 8, N=6144, K=2048),
                {
                    arm: around(round(middle * slower), step=0.001 * len(arm) * (1 if slower == 1.0 else -1))
                    for arm, middle in spans.items()
                },
            )
            for op, spans in (
                ("fwd", {new: 4_510_000, t: 4_702_000, q: 4_480_000}),
                ("dX", {new: 4_620_000, t: 4_604_000, q: 4_750_000}),
            )
        ]
        machine = replace(H200, board=board)
        yield name, run(*rows, arms=(new, t, q), run_id=f"20260103-090000-{name}", machines=[machine], counts=counts)


def previous() -> Run:
    """Both variants beside those of another revision: dW is affected, one row of each operation is a control."""
    new, det, old, old_det, t = "cake_nondet", "cake_det", "previous_nondet", "previous_det", "torch_grouped_mm"

    def timed(of: Case, spans: dict[str, int]) -> Row:
        return row(of, {arm: around(middle, step=0.0001 * len(arm)) for arm, middle in spans.items()})

    def dw(kind: str, sizes: tuple[int, ...]) -> Case:
        return case(f"gate_up E4 M112576 {kind}", N=4096, K=6144, sizes=sizes)

    rows = (
        timed(
            case("down E4 M112576 bal", op="fwd", N=6144, K=2048),
            {new: 3_905_000, det: 3_951_000, old: 3_903_000, old_det: 3_949_500, t: 4_010_000},
        ),
        timed(
            dw("bal", (28144,) * 4),
            {new: 7_601_000, det: 7_720_000, old: 7_893_000, old_det: 8_004_000, t: 8_020_000},
        ),
        timed(
            dw("skew", (54036, 27018, 18012, 13510)),
            {new: 7_722_000, det: 7_900_000, old: 7_690_000, old_det: 8_101_000, t: 8_150_000},
        ),
        timed(
            case("down E4 M112576 bal", N=6144, K=2048),
            {new: 4_001_000, det: 4_052_000, old: 4_003_000, old_det: 4_050_000, t: 4_120_000},
        ),
    )
    made = run(*rows, arms=(new, det, old, old_det, t), run_id="20260106-110000-previous")
    controls = tuple(key for key in made.planned if "down E4" in key)
    beside = Previous(revision="0a1b2c3 (git)", sources_sha256="0a" * 32, controls=controls)
    return replace(made, sources_sha256="1b" * 32, previous=beside)


def floors() -> Run:
    """Measured floors: bound by FLOPs and by bytes, an arm below one, a host-bound row, and one without SOTA."""
    new, t, c, q = "cake_nondet", "torch_grouped_mm", "cublas_loop", "quack"
    gate_up = case("gate_up E4 M112576 bal", op="fwd", N=4096, K=6144)
    skew = case("gate_up E4 M112576 skew", op="fwd", N=4096, K=6144, sizes=(54036, 27018, 18012, 13510))
    small = case("small E64 M4096 random", op="fwd", row_class="unsorted", sizes=(60, 68) * 31 + (128, 0))
    smaller = case("small E64 M64 bal", op="fwd", sizes=(1,) * 64)

    def timed(of: Case, spans: dict[str, int], *, regime: str = "boost", c_busy: float = 1.0) -> Row:
        groups = {arm: around(middle, step=0.0003 * len(arm)) for arm, middle in spans.items()}
        busy = {arm: [int(s * (c_busy if arm == c else 1)) for s in group] for arm, group in groups.items()}
        absent = {arm: "has no data-gradient form" for arm in (t, c) if arm not in spans}
        return row(of, groups, busy=busy, regime=regime, unsupported=absent)

    rows = (
        timed(gate_up, {new: 7_350_000, t: 7_560_000, c: 7_410_000, q: 7_402_000}),
        timed(gate_up, {new: 8_100_000, t: 8_950_000, c: 8_180_000, q: 8_222_000}, regime="sustained"),
        timed(skew, {new: 7_480_000, t: 7_690_000, c: 7_420_000, q: 7_511_000}),
        timed(small, {new: 149_000, t: 171_000, c: 512_000, q: 160_500}, c_busy=0.86),
        timed(smaller, {new: 131_500, t: 140_200, c: 139_900, q: 150_100}),
        timed(replace(gate_up, op="dX"), {new: 7_360_000, q: 7_450_000}),
        timed(replace(gate_up, op="dW"), {new: 7_105_000, t: 7_590_000, c: 7_164_000, q: 7_602_000}),
        timed(replace(skew, op="dW"), {new: 7_420_000, t: 7_701_000, c: 7_522_000, q: 7_600_000}),
    )
    counts = [SuiteCount(suite="moe-training", op=op, row_class="owner", count=22) for op in ("fwd", "dX", "dW")]
    made = run(*rows, arms=(new, t, c, q), run_id="20260107-120000-floors", timer="cupti", counts=counts)
    measured = rates(read_ns=around(486_600, step=0.0004) * 2, mm_ns=around(1_391_800, step=0.001) * 2)
    return replace(made, rates=(measured,))


def noisy() -> Run:
    """A busy CPU: two suites, wild times, a baseline as new, an arm with a reason for each operation, no revision."""
    t, c, det = "torch_grouped_mm", "cublas_loop", "cake_det"
    draw = random.Random(1)

    def wild(middle_ns: int) -> list[int]:
        return [round(middle_ns * math.exp(draw.gauss(0, 0.7))) for _ in range(6)]

    def timed(name: str, op: str, program: str, sizes: tuple[int, ...], suite: str) -> Row:
        of = case(name, op=op, row_class=suite, sizes=sizes, N=208, K=136, suite=suite)
        none = f"no program for {program} (det, bf16 out) on x86_64: this version of cake_kernels has none"
        return row(of, {t: wild(410_000), c: wild(400_000)}, unsupported={det: none})

    rows = (
        timed("gate_up E5 M777 bal", "fwd", "fwd", (156, 156, 155, 155, 155), "smoke"),
        timed("gate_up E5 M777 bal", "dW", "wgrad", (156, 156, 155, 155, 155), "smoke"),
        timed("E4 M640 lognormal", "fwd", "fwd", (170, 130, 200, 140), "adhoc"),
    )
    cpu = replace(
        H200,
        device="cpu",
        product="Some CPU",
        arch="x86_64",
        units=2,
        board=None,
        peak_bytes_per_s=None,
        versions={"python": "3.11.7", "torch": "2.13.0"},
        settings={"threads": "2"},
    )
    counts = [SuiteCount(suite="smoke", op=op, row_class="smoke", count=n) for op, n in (("fwd", 4), ("dW", 5))]
    return run(
        *rows,
        arms=(det, t, c),
        run_id="20260105-070000-noisy",
        timer="cpu",
        revision="unknown",
        machines=[cpu],
        counts=counts,
    )


def regimes() -> Run:
    """Both regimes and a twin, with all that a tracer and a driver tell; a short row, a host-bound one, discards."""
    e4 = (28144,) * 4
    bal = case("gate_up E4 M112576 bal", op="fwd", N=4096, K=6144, sizes=e4)
    bal_dw = replace(bal, op="dW")
    skew_dw = case("down E4 M112576 skew", N=6144, K=2048, sizes=(54036, 27018, 18012, 13510))
    small = case("small E64 M16384 random", op="fwd", row_class="unsorted", sizes=(256,) * 64)
    new, again, t, c = REGIME_ARMS
    lost = Discarded(attempt=0, group=1, arm=c, reason="lost: its launch was traced, and no record came back")
    odd = Discarded(attempt=0, group=4, arm=t, reason="clock 1380 MHz, 1290 MHz in the other groups")
    hot = Discarded(attempt=0, group=5, arm="", reason="throttled: software thermal")
    too_short = "a call takes 0.21 ms; rows under 2 ms are measured in boost only"
    rows = (
        boost(bal, {new: 7_350_000, again: 7_352_000, t: 7_560_000, c: 7_410_000}),
        sustained(bal, {new: 8_100_000, again: 8_096_000, t: 8_950_000, c: 8_180_000}, discarded=[odd]),
        boost(bal_dw, {new: 7_420_000, again: 7_417_000, t: 7_590_000, c: 7_480_000}, discarded=[hot], hot=True),
        sustained(bal_dw, {new: 8_230_000, again: 8_236_000, t: 8_400_000, c: 8_190_000}),
        boost(skew_dw, {new: 3_820_000, again: 3_818_000, t: 3_901_000, c: 3_850_000}, c_clock=1932, discarded=[lost]),
        sustained(skew_dw, {new: 4_205_000, again: 4_208_000, t: 4_390_000, c: 4_260_000}),
        boost(small, {new: 205_000, again: 205_300, t: 214_000, c: 330_000}, c_busy=0.86),
        skipped(small, too_short, regime="sustained"),
    )
    counts = [
        SuiteCount(suite="moe-training", op=op, row_class=row_class, count=n)
        for op, row_class, n in (("fwd", "owner", 18), ("fwd", "unsorted", 14), ("dW", "owner", 22))
    ]
    made = run(*rows, arms=REGIME_ARMS, run_id="20260104-080000-regimes", timer="cupti", counts=counts)
    sitting = Sitting(started="2026-01-04T08:00:00Z", elapsed_ns=26_400_000_000, rows=len(rows))
    return replace(made, sittings=(sitting,))


def sustained(of: Case, spans: dict[str, int], *, discarded: Sequence[Discarded] = ()) -> Row:
    """Blocks of 28 calls that count, under the power cap, each arm at its own clock."""
    groups = around_each(spans)
    joules = {
        arm: [round(span * (760e-9 if arm == REGIME_ARMS[2] else 722e-9), 3) for span in groups[arm]] for arm in groups
    }
    state = GroupState(clock_mhz=1440, power_w=692.5, temperature_c=63, throttle=("power cap",))
    return traced(
        of,
        groups,
        regime="sustained",
        clocks=(1440, 1440, 1290, 1455),
        joules=joules,
        calls=28,
        states=[replace(state, power_w=688.0), *[state] * 5],
        discarded=discarded,
    )


def boost(
    of: Case,
    spans: dict[str, int],
    *,
    c_clock: int = 1960,
    c_busy: float = 0.996,
    hot: bool = False,
    discarded: Sequence[Discarded] = (),
) -> Row:
    """Single calls at the board's highest clock; ``hot``: its last group was accepted although held down."""
    state = GroupState(clock_mhz=1980, power_w=418.0, temperature_c=47, throttle=())
    last = replace(state, temperature_c=84, throttle=("software thermal",)) if hot else state
    return traced(
        of,
        around_each(spans),
        regime="boost",
        clocks=(1965, 1965, 1962, c_clock),
        c_busy=c_busy,
        states=[*[state] * 5, last],
        discarded=discarded,
    )


def around_each(spans: dict[str, int]) -> dict[str, tuple[int, ...]]:
    steps = dict(zip(REGIME_ARMS, (0.0012, -0.0007, 0.002, -0.0015), strict=True))
    return {arm: around(middle, step=steps[arm]) for arm, middle in spans.items()}


def traced(
    of: Case,
    groups: dict[str, tuple[int, ...]],
    *,
    regime: str,
    clocks: tuple[int, ...],
    states: Sequence[GroupState],
    discarded: Sequence[Discarded],
    c_busy: float = 0.996,
    joules: dict[str, list[float]] | None = None,
    calls: int = 1,
) -> Row:
    """A row with what CUPTI says of it: busy times, the ledger, and what each arm launches."""
    new, again, t, c = REGIME_ARMS
    shares = {new: 1.0, again: 1.0, t: 0.999, c: c_busy}
    loop = (f"gemm x {of.shape.E}", *((f"memset x {of.shape.E}",) if of.op == "dW" else ()))
    count = 4 * 6 * calls
    return row(
        of,
        groups,
        busy={arm: [int(span * shares[arm]) for span in group] for arm, group in groups.items()},
        clock={arm: [clock] * 6 for arm, clock in zip(REGIME_ARMS, clocks, strict=True)},
        joules=joules,
        calls=calls,
        regime=regime,
        states=states,
        records={
            "seen": 9 * count,
            "attributed": 6 * count,
            "reserved": 3 * count,
            "orphans": 0,
            "zero": 0,
            "inverted": 0,
            "outside": 0,
            "duplicates": 0,
            "lost": sum(d.arm == c for d in discarded),
            "dropped": 0,
        },
        kernels={new: (("gemm x 1",),), again: (("gemm x 1",),), t: (("gemm x 1", "prepare x 1"),), c: (loop,)},
        discarded=discarded,
    )


def built() -> Iterator[tuple[str, Run]]:
    """Every stored run, made anew."""
    yield from (
        ("small", small()),
        ("regimes", regimes()),
        ("noisy", noisy()),
        ("previous", previous()),
        ("floors", floors()),
    )
    yield from cards()


def write_all() -> None:
    """Write every stored run and every page."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, made in built():
        runfile.save(made, stored(name))
    for golden in GOLDENS:
        for form, suffix in FORMATS.items():
            path = FOLDER / f"{golden.name}.{suffix}"
            path.write_text(golden.page(form, load(golden)), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    write_all()
