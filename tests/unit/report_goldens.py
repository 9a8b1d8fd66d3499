"""The stored runs of tests/golden/report, and their pages.

After a wanted change of a page: ``python -m tests.unit.report_goldens`` writes all anew; read the difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness import plugins, runfile
from harness.model.run import Discarded, Row, Run, SuiteCount
from harness.pages.summary import summarise
from tests.unit.report_runs import H200, case, row, run, skipped

FOLDER = Path(__file__).parents[1] / "golden" / "report"
FORMATS = {"pr": "md", "csv": "csv", "json": "json"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Golden:
    """A page's name, the stored runs that it is made of, and the extra columns of its Markdown."""

    name: str
    runs: tuple[str, ...]
    columns: tuple[str, ...] = ()

    def page(self, form: str, runs: Sequence[Run]) -> str:
        columns = self.columns if form == "pr" else ()
        page: str = plugins.load("pages", form).render_page(summarise(runs), columns=columns)
        return page


GOLDENS = (
    Golden(name="small", runs=("small",), columns=("tflops", "clock", "class", "check", "note", "sizes")),
    Golden(name="pool", runs=("card-a", "card-b")),
)


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
        thrown = (Discarded(group=2, arm=c, reason="span 0 ns"),) if kind == "1-empty" and not name else ()
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


def write_all() -> None:
    """Write every stored run and every page."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, made in (("small", small()), *cards()):
        runfile.save(made, stored(name))
    for golden in GOLDENS:
        for form, suffix in FORMATS.items():
            path = FOLDER / f"{golden.name}.{suffix}"
            path.write_text(golden.page(form, load(golden)), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    write_all()
