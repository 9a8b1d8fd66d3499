"""Published pages in many forms, made of unrounded ratios: each agrees, and no longer once a number is changed."""

import math
import random
import re
from dataclasses import dataclass
from statistics import median

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from harness.audit import audit
from harness.audit.finding import Grade

OPS = ("dW", "ckpt", "ckpt ES")
KINDS = {"bal": "owner", "skew": "owner", "1-empty": "owner", "skew asc": "unsorted", "random": "unsorted"}
SIZES = ("gate_up E4 M112576", "down E16 M131072")
GPUS = ("Rubin (sm_107a)", "B200 (sm_100a)")
BASELINES = ("deterministic Cake", "non-Cake SOTA", "previous non-deterministic Cake")


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How a page is written."""

    gpus: int
    baselines: int
    decimals: int
    unit: str
    times: str
    ends: str
    dash: str
    bold: str
    footnote: str
    tabs: bool
    heading_gpu: bool
    table_an_op: bool
    reverse: bool
    extra: bool
    outer_pipes: bool


FORMS = st.builds(
    Form,
    gpus=st.integers(1, 2),
    baselines=st.integers(1, 3),
    decimals=st.integers(2, 4),
    unit=st.sampled_from(["ms", "us", "µs"]),
    times=st.sampled_from(["", "x", "×", " ×"]),
    ends=st.sampled_from(["[]", "()"]),
    dash=st.sampled_from([", ", "-", "–", " – ", " to "]),
    bold=st.sampled_from(["", "**", "`", "_", "*"]),
    footnote=st.sampled_from(["", "[^1]", "†", "<sup>a</sup>"]),
    tabs=st.booleans(),
    heading_gpu=st.booleans(),
    table_an_op=st.booleans(),
    reverse=st.booleans(),
    extra=st.booleans(),
    outer_pipes=st.booleans(),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One row's unrounded numbers: each baseline's six group ratios, and new's latency in ms."""

    gpu: str
    op: str
    name: str
    new_ms: float
    groups: tuple[tuple[float, ...], ...]

    def middle(self, k: int) -> float:
        return median(self.groups[k])


def entries(form: Form, draw: random.Random) -> list[Entry]:
    return [
        Entry(
            gpu=gpu,
            op=op,
            name=f"{size} {kind}",
            new_ms=draw.uniform(0.2, 9),
            groups=tuple(tuple(math.exp(draw.gauss(0.004 * k, 0.02)) for _ in range(6)) for k in range(form.baselines)),
        )
        for gpu in GPUS[: form.gpus]
        for op in OPS
        for size in SIZES
        for kind in KINDS
    ]


def page(form: Form, rows: list[Entry]) -> str:
    blocks = [sentences(form, rows), means(form, rows)]
    for gpu in GPUS[: form.gpus]:
        blocks.append(f"### {gpu}\n\nSome Device ({gpu.split()[1][1:-1]}, 208 SMs), CUDA 13.4; median of paired groups")
        of_gpu = [row for row in rows if row.gpu == gpu]
        parts = [[row for row in of_gpu if row.op == op] for op in OPS] if form.table_an_op else [of_gpu]
        blocks += [row_table(form, part) for part in parts]
    return "\n\n".join(blocks) + "\n"


def sentences(form: Form, rows: list[Entry]) -> str:
    lines = []
    for gpu in GPUS[: form.gpus]:
        here = [row for row in rows if row.gpu == gpu]
        on = f" on {gpu.split()[0]}" if form.gpus > 1 else ""
        for k, baseline in enumerate(BASELINES[: form.baselines]):
            low = sorted(here, key=lambda row: row.middle(k))
            below = [row for row in here if float(digits(form, row.middle(k))) < 1]
            listed = [f"{row.op} {row.name} {digits(form, row.middle(k))}" for row in low[:3]]
            gains = [f"{row.op} {row.name} {digits(form, row.middle(k))}" for row in low[:-4:-1]]
            spreads = sorted((max(row.groups[k]) - min(row.groups[k])) / row.middle(k) for row in here)
            lines += [
                f"Speedup vs {baseline}{on}: {len(below)} of the {len(here)} rows are below 1.0;"
                f" the lowest are {listed[0]}, {listed[1]} and {listed[2]}.",
                f"The largest gains are {gains[0]}, {gains[1]} and {gains[2]}.",
                f"Spread{on}, (max - min) / median: median {100 * median(spreads):.2f} %,"
                f" p90 {100 * spreads[9 * len(spreads) // 10]:.2f} % vs {baseline}.",
            ]
    return "\n".join(lines)


def digits(form: Form, value: float) -> str:
    return f"{value:.{form.decimals}f}"


def means(form: Form, rows: list[Entry]) -> str:
    header = ["GPU", "operation", "rows", "count", *(f"vs {b}" for b in BASELINES[: form.baselines])]
    lines = []
    for gpu in GPUS[: form.gpus]:
        for op in OPS:
            for row_class in ("owner", "unsorted"):
                here = [r for r in rows if (r.gpu, r.op) == (gpu, op) and of_class(r) == row_class]
                lines.append(
                    [gpu, op, row_class, str(len(here)), *(mean(form, here, k) for k in range(form.baselines))]
                )
    return table(form, header, lines)


def of_class(row: Entry) -> str:
    return next(c for kind, c in sorted(KINDS.items(), key=lambda item: -len(item[0])) if row.name.endswith(kind))


def mean(form: Form, rows: list[Entry], k: int) -> str:
    values = [row.middle(k) for row in rows]
    value = math.exp(sum(map(math.log, values)) / len(values))
    ends = f"({digits(form, min(values))}{form.times}{'–' if form.dash == '–' else '-'}{digits(form, max(values))})"
    return f"{form.bold}{digits(form, value)}{form.times}{form.bold} {ends}{form.footnote}"


def row_table(form: Form, rows: list[Entry]) -> str:
    columns = {"workload / shape": [r.name for r in rows], "operation": [f"{form.bold}{r.op}{form.bold}" for r in rows]}
    if not form.heading_gpu:
        columns = {"GPU / architecture": [r.gpu.split()[1][1:-1] for r in rows]} | columns
    scale = 1 if form.unit == "ms" else 1000
    for k, baseline in enumerate(BASELINES[: form.baselines]):
        key = " t" if "SOTA" in baseline else ""
        columns[f"{baseline} latency ({form.unit})"] = [f"{r.new_ms * r.middle(k) * scale:.4f}{key}" for r in rows]
    columns[f"new Cake latency ({form.unit})"] = [f"{r.new_ms * scale:.4f}" for r in rows]
    for k, baseline in enumerate(BASELINES[: form.baselines]):
        columns[f"speedup vs {baseline}"] = [cell(form, r.groups[k]) for r in rows]
    if form.extra:
        columns["TFLOP/s"] = ["512.3" for _ in rows]
        columns["notes"] = ["–" for _ in rows]
    names = list(columns)[::-1] if form.reverse else list(columns)
    return table(form, names, [[columns[name][i] for name in names] for i in range(len(rows))])


def cell(form: Form, groups: tuple[float, ...]) -> str:
    low, high = (f"{digits(form, end)}{form.times}" for end in (min(groups), max(groups)))
    value = f"{form.bold}{digits(form, median(groups))}{form.times}{form.bold}"
    return f"{value}{form.footnote} {form.ends[0]}{low}{form.dash}{high}{form.ends[1]}"


def table(form: Form, header: list[str], lines: list[list[str]]) -> str:
    if form.tabs:
        plain = [[c.replace("**", "").replace("`", "").strip("_*") for c in line] for line in lines]
        return "\n".join("\t".join(line) for line in (header, *plain))
    whole = [header, ["---"] * len(header), *lines]
    if form.outer_pipes:
        return "\n".join(f"| {' | '.join(line)} |" for line in whole)
    return "\n".join(" | ".join(line) for line in whole)


@settings(max_examples=60)
@given(FORMS, st.integers(0, 10**6))
def test_a_page_of_true_numbers_agrees_in_every_form(form: Form, seed: int) -> None:
    rows = entries(form, random.Random(seed))

    found = audit(page(form, rows))

    assert found.graded(Grade.CONTRADICTS) == ()
    unread = [f.what.rpartition(": ")[2] for f in found.graded(Grade.UNCHECKED)]
    assert unread == ["TFLOP/s"] * form.extra
    kinds = [f.check for f in found.graded(Grade.AGREES)]
    classes = 6 * form.gpus
    assert found.rows == len(rows)
    assert kinds.count("geomean") == kinds.count("highest") == classes * form.baselines
    assert kinds.count("row in a list") == 6 * form.gpus * form.baselines
    assert kinds.count("spread, median") == form.gpus * form.baselines
    assert kinds.count("ratio and latencies") == len(rows) * form.baselines


@settings(max_examples=60)
@given(FORMS, st.integers(0, 10**6), st.data())
def test_a_wrong_number_is_found_in_every_form(form: Form, seed: int, data: st.DataObject) -> None:
    rows = entries(form, random.Random(seed))
    right = f"{page(form, rows)}\nCounts are of printed ratios.\n"
    head = right[: right.index("### ")]
    counts = list(
        re.finditer(r"\d+(?= of the )|(?<=of the )\d+|(?<=bal )\d+\.\d+|(?<=[–-])\d\.\d+|(?<=\()\d\.\d+", head)
    )
    number = data.draw(st.sampled_from(counts))
    decimals = len(number[0].partition(".")[2])
    steps = data.draw(st.sampled_from([-3, -1, 1, 3]))
    value = f"{abs(float(number[0]) + steps / 10**decimals):.{decimals}f}"
    assume(value != number[0])

    wrong = audit(head[: number.start()] + value + head[number.end() :] + right[len(head) :])

    assert wrong.contradicted
