"""Whatever our report says of a run, its audit agrees; a wrong count or geomean in it is found."""

from dataclasses import replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from harness.audit import audit
from harness.audit.finding import Grade
from harness.model.run import Run
from harness.pages.pr import render_page
from harness.pages.summary import summarise
from tests.property.test_pages import TEXT, hostile
from tests.unit.report_runs import H200, case, row, run, skipped

NEW, T, C, D, Q = "cake_nondet", "torch_grouped_mm", "cublas_loop", "cudnn", "quack"
OLD = "previous_nondet"
ARMS = (NEW, T, C, D, Q, OLD)
KINDS = {"bal": "owner", "skew": "owner", "skew asc": "unsorted", "random": "unsorted"}
NEAR = st.integers(3_990_000, 4_010_000)
FAR = st.integers(20_000, 800_000_000)


@st.composite
def runs(
    draw: st.DrawFn, *, regimes: tuple[str, ...] = ("sustained", "boost"), classes: tuple[str, ...] = ("",)
) -> Run:
    """Up to eight rows: near ties and wild times, arms missing, failed and host-bound, several regimes and classes."""
    spans_of = st.lists(draw(st.sampled_from([NEAR, FAR])), min_size=7, max_size=7)
    one_class = draw(st.sampled_from(classes))
    rows = []
    for index in range(draw(st.integers(1, 8))):
        kind = draw(st.sampled_from(list(KINDS)))
        op = draw(st.sampled_from(["fwd", "dX", "dW"]))
        of = case(
            f"gate_up E{index + 2} M64 {kind}",
            op=op,
            row_class=one_class or KINDS[kind],
            sizes=(index + 1, 3),
            out_dtype=draw(st.sampled_from(["bf16", "fp32"])) if op == "dW" else "bf16",
        )
        n = draw(st.sampled_from([1, 2, 5, 6, 7]))
        timed = [NEW, *draw(st.lists(st.sampled_from(ARMS[1:]), unique=True))]
        spans = {arm: draw(spans_of)[:n] for arm in timed}
        slow = draw(st.sampled_from([1.0, 1.0, 0.8]))
        busy = {arm: [int(span * (slow if arm == T else 1)) for span in group] for arm, group in spans.items()}
        absent = dict.fromkeys([arm for arm in ARMS if arm not in timed], "cannot")
        failed = dict.fromkeys(list(absent)[:1], "wrong")
        rows += [
            row(
                of,
                spans,
                busy=busy,
                unsupported={a: r for a, r in absent.items() if a not in failed},
                failed=failed,
                regime=regime,
            )
            for regime in draw(st.sampled_from([regimes, regimes[-1:]]))
        ]
    if draw(st.booleans()):
        rows.append(skipped(case("gate_up E99 M64 bal"), "too large"))
    return run(*rows, arms=ARMS)


COLUMNS = st.lists(
    st.sampled_from(["class", "n", "spread", "suite", "sizes", "tflops", "busy", "calls", "gap"]), unique=True
)


@settings(max_examples=60)
@given(runs(classes=("", "", "model", "unsorted")), COLUMNS, st.sampled_from([NEW, T]))
def test_the_audit_of_a_report_agrees(made: Run, columns: list[str], new: str) -> None:
    assume(any(new in each.samples.arm for each in made.rows))
    page = render_page(summarise([made], new=new, against=[C] if new != C else []), columns=columns)

    found = audit(page)

    assert found.graded(Grade.CONTRADICTS) == ()
    assert not found.unreadable
    assert found.rows == sum(not each.skipped for each in made.rows)


@settings(max_examples=30)
@given(st.lists(runs(regimes=("boost",)), min_size=2, max_size=3), st.sampled_from(["NVIDIA H200", "NVIDIA B200"]))
def test_the_audit_of_a_report_of_several_machines_agrees(several: list[Run], product: str) -> None:
    cards = [
        replace(
            made,
            run_id=f"run{i}",
            machines=(replace(H200, board=f"{i:012x}", product=product if i else "NVIDIA H200"),),
        )
        for i, made in enumerate(several)
    ]
    samples = [(each.case, each.samples) for made in cards for each in made.rows if each.samples.arm]
    assume(len(set(samples)) == len(samples))

    found = audit(render_page(summarise(cards, new=NEW)))

    assert found.graded(Grade.CONTRADICTS) == ()
    assert not found.unreadable


@settings(max_examples=100)
@given(TEXT.filter(lambda name: name not in ("other", "third")), TEXT, TEXT)
def test_no_text_from_outside_misleads_the_audit_of_a_report(name: str, reason: str, note: str) -> None:
    found = audit(render_page(summarise([hostile(name, reason, note)]), columns=["note", "sizes", "suite"]))

    assert found.graded(Grade.CONTRADICTS) == ()
    assert not found.unreadable
    assert found.rows == 2
