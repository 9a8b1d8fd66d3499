"""Small runs for the tests of reports and pages, built from spans in nanoseconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from harness.model.case import Case
from harness.model.machine import Machine
from harness.model.run import (
    ArmInfo,
    ArmOutcome,
    Check,
    Discarded,
    GroupState,
    Rate,
    Rates,
    Row,
    Run,
    SuiteCount,
    row_key,
)
from harness.model.sample import Samples
from harness.model.shape import Shape

H200 = Machine(
    device="cuda",
    product="NVIDIA H200",
    arch="sm_90a",
    units=132,
    cache_bytes=50 * 2**20,
    memory_bytes=140 * 2**30,
    peak_flops=1.1e15,
    peak_bytes_per_s=5.2e12,
    peak_source="vendor's data sheet, rounded up",
    board="0123456789ab",
    versions={"torch": "2.13.0", "cuda": "13.0", "driver": "580.159.03", "cudnn": "9.14.0"},
    settings={"power limit": "700 W", "ECC": "on"},
)

ARMS = {
    "cake_nondet": ArmInfo(name="cake_nondet", key="", is_cake=True, note="non-deterministic variant"),
    "cake_det": ArmInfo(name="cake_det", key="", is_cake=True, note="deterministic variant"),
    "previous_nondet": ArmInfo(
        name="previous_nondet", key="", is_cake=True, note="cake_kernels of revision 0a1b2c3 (git)"
    ),
    "previous_det": ArmInfo(name="previous_det", key="", is_cake=True, note="cake_kernels of revision 0a1b2c3 (git)"),
    "torch_grouped_mm": ArmInfo(name="torch_grouped_mm", key="t", is_cake=False, note="torch._grouped_mm"),
    "cublas_loop": ArmInfo(name="cublas_loop", key="c", is_cake=False, note="group sizes known on the host"),
    "cudnn": ArmInfo(name="cudnn", key="d", is_cake=False, note="fastest of its plans"),
    "quack": ArmInfo(name="quack", key="q", is_cake=False, note=""),
    "cublas_loop_autograd": ArmInfo(name="cublas_loop_autograd", key="a", is_cake=False, note="under autograd"),
    "cublas_loop_graph": ArmInfo(name="cublas_loop_graph", key="g", is_cake=False, note="captured in a CUDA graph"),
}

ARMS |= {
    f"{name} again": replace(ARMS[name], name=f"{name} again", key="", note=f"A/A: {name} once more", twin_of=name)
    for name in ("cake_nondet", "torch_grouped_mm")
}

HEADINGS = {
    "cupti": "CUPTI GPU time of one call, cold L2, eager",
    "cuda_event": "CUDA events around one call, cold L2, eager",
    "cpu": "wall clock (perf_counter_ns) of one call, caches flushed",
    "scripted": "scripted durations: no measurement",
}


def case(
    name: str = "gate_up E4 M112576 bal",
    *,
    op: str = "dW",
    row_class: str = "owner",
    sizes: Sequence[int] = (28144,) * 4,
    N: int = 2048,
    K: int = 2048,
    out_dtype: str = "bf16",
    suite: str = "moe-training",
) -> Case:
    shape = Shape(
        name=name, row_class=row_class, N=N, K=K, group_sizes=tuple(sizes), distribution="balanced", source="a test"
    )
    return Case(suite=suite, op=op, shape=shape, out_dtype=out_dtype)


def samples(
    spans: Mapping[str, Sequence[int]],
    *,
    busy: Mapping[str, Sequence[int]] | None = None,
    clock: Mapping[str, Sequence[int]] | None = None,
    joules: Mapping[str, Sequence[float]] | None = None,
    calls: int = 1,
) -> Samples:
    """Arm -> its span in each group; the order within a group is that of the mapping."""
    order = [
        (group, position, arm)
        for group in range(max((len(s) for s in spans.values()), default=0))
        for position, arm in enumerate(spans)
    ]
    return Samples(
        group=tuple(group for group, _, _ in order),
        position=tuple(position for _, position, _ in order),
        arm=tuple(arm for _, _, arm in order),
        span_ns=tuple(spans[arm][group] for group, _, arm in order),
        busy_ns=tuple(busy[arm][group] if busy else None for group, _, arm in order),
        clock_mhz=tuple(clock[arm][group] if clock else None for group, _, arm in order),
        joules=tuple(joules[arm][group] if joules else None for group, _, arm in order),
        calls=(calls,) * len(order),
    )


def row(
    of: Case,
    spans: Mapping[str, Sequence[int]],
    *,
    busy: Mapping[str, Sequence[int]] | None = None,
    clock: Mapping[str, Sequence[int]] | None = None,
    joules: Mapping[str, Sequence[float]] | None = None,
    calls: int = 1,
    unsupported: Mapping[str, str] | None = None,
    failed: Mapping[str, str] | None = None,
    notes: Mapping[str, str] | None = None,
    regime: str = "boost",
    machine: int = 0,
    discarded: Sequence[Discarded] = (),
    states: Sequence[GroupState] = (),
    records: Mapping[str, int | None] | None = None,
    kernels: Mapping[str, tuple[tuple[str, ...], ...]] | None = None,
) -> Row:
    passed = Check(rel_l2=0.0017, rel_l2_limit=0.004, worst=0.52)
    arms = {arm: ArmOutcome(status="measured", note=(notes or {}).get(arm, ""), check=passed) for arm in spans}
    arms |= {arm: ArmOutcome(status="unsupported", reason=reason) for arm, reason in (unsupported or {}).items()}
    arms |= {arm: ArmOutcome(status="failed", reason=reason) for arm, reason in (failed or {}).items()}
    return Row(
        case=of,
        machine=machine,
        regime=regime,
        n_groups=max((len(s) for s in spans.values()), default=0),
        arms=arms,
        samples=samples(spans, busy=busy, clock=clock, joules=joules, calls=calls),
        discarded=tuple(discarded),
        states=tuple(states),
        records=dict(records or {}),
        kernels=dict(kernels or {}),
    )


def skipped(of: Case, reason: str, *, regime: str = "boost") -> Row:
    return Row(case=of, machine=0, regime=regime, n_groups=0, arms={}, skipped=reason)


def rates(*, read_ns: Sequence[int], mm_ns: Sequence[int], machine: int = 0, clock_mhz: int = 1935) -> Rates:
    """Rates from the spans of a read of 2,000 MiB and of a product of 8192 x 8192 x 8192."""

    def rate(name: str, amount: int, spans: Sequence[int]) -> Rate:
        return Rate(amount=amount, samples=samples({name: spans}, clock={name: [clock_mhz] * len(spans)}, calls=3))

    return Rates(
        machine=machine,
        plain_read=rate("plain_read", 2000 * 2**20, read_ns),
        dense_mm=rate("dense_mm", 2 * 8192**3, mm_ns),
    )


def run(
    *rows: Row,
    arms: Sequence[str] = ("cake_nondet", "torch_grouped_mm", "cublas_loop"),
    run_id: str = "20260101-120000-h200",
    timer: str = "cuda_event",
    revision: str = "1a2b3c4 (git)",
    machines: Sequence[Machine] = (H200,),
    counts: Sequence[SuiteCount] = (SuiteCount(suite="moe-training", op="dW", row_class="owner", count=22),),
    planned: Sequence[str] | None = None,
    method_version: int = 1,
    seed: int = 0,
) -> Run:
    named = dict.fromkeys((*arms, *(arm for r in rows for arm in r.arms)))
    return Run(
        method_version=method_version,
        run_id=run_id,
        started="2026-01-01T12:00:00Z",
        revision=revision,
        timer=timer,
        heading=HEADINGS[timer],
        protocol="paired_groups",
        regimes=tuple(dict.fromkeys(r.regime for r in rows)) or ("boost",),
        groups=6,
        seed=seed,
        arms=tuple(ARMS[arm] for arm in named),
        machines=tuple(machines),
        planned=tuple(row_key(r.regime, r.case) for r in rows) if planned is None else tuple(planned),
        suite_counts=tuple(counts),
        rows=tuple(rows),
    )
