"""The rows against themselves: ratio in its range, ratio and latencies, letter of the arm, rows printed twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction

from harness.audit.columns import baseline_of, is_slowdown, match, nearest, new_of
from harness.audit.conventions import Conventions
from harness.audit.finding import Finding, Grade, judged, unchecked
from harness.audit.labels import says_gpu
from harness.audit.printed import Interval, Ratio, least, shown
from harness.audit.published import Published, Row, Time

SOTA_KEYS = ("t", "c", "d")
BASELINE_KEYS = (*SOTA_KEYS, "g", "a", "q")
"""Letters of the arms: SOTA is chosen from the first three, best known from all."""

_NS = {"ns": 1, "us": 1000, "µs": 1000, "μs": 1000, "ms": 10**6, "s": 10**9}


def row_findings(page: Published, rules: Conventions) -> Iterator[Finding]:
    """Yield what holds and what does not within single rows."""
    yield from _twice(page)
    yield from _unpaired(page)
    yield from _without_letter(page)
    yield from _blank(page)
    yield from _of_another_gpu(page)
    apart: list[tuple[Fraction, Row, str]] = []
    for row in page.rows:
        for cell in row.unreadable:
            yield unchecked(
                check="row",
                line=row.line,
                what=f"row {row.number}: a cell that is neither ratio, latency nor count",
                printed=cell,
            )
        yield from _keys(row)
        for key, ratio in row.ratios.items():
            yield from _in_range(row, key, ratio)
            measured = _of_latencies(row, key)
            if measured is not None:
                apart.append((_distance(measured, ratio), row, key))
                yield from _latencies(row, key, ratio, measured, rules)
    yield from _apart(apart)


def _twice(page: Published) -> Iterator[Finding]:
    found: dict[tuple[str, ...], list[Row]] = {}
    for row in page.rows:
        found.setdefault(row.identity, []).append(row)
    for rows in found.values():
        yield judged(
            len(rows) == 1,
            check="row once",
            line=rows[0].line,
            what=rows[0].full_name,
            printed=f"{len(rows)} times",
            recomputed="once",
            rows=[row.number for row in rows],
        )


def _without_letter(page: Published) -> Iterator[Finding]:
    """Yield the columns in which some rows say by a letter which arm their time is of, and others do not."""
    columns: dict[str, list[tuple[Row, bool]]] = {}
    for row in page.rows:
        for time in row.times:
            columns.setdefault(time.column.arm, []).append((row, bool(time.latency.key)))
        for key in row.ratios:
            columns.setdefault(f"key of {key}", []).append((row, key in row.keys))
    for column, rows in columns.items():
        without = [row for row, has in rows if not has]
        if len(without) < len(rows) and without:
            what = f"{column}: {len(without)} of {len(rows)} rows do not say which arm it is"
            yield Finding(
                grade=Grade.UNCHECKED,
                check="key of the arm",
                line=without[0].line,
                what=what,
                rows=tuple(row.number for row in without),
            )


def _blank(page: Published) -> Iterator[Finding]:
    """Yield the baselines of which some rows' cells are empty: that a ratio is missing must be said."""
    for key in page.columns:
        rows = [row for row in page.rows if key in row.blank and key not in row.ratios]
        if rows:
            yield Finding(
                grade=Grade.UNCHECKED,
                check="row",
                line=rows[0].line,
                what=f"vs {key}: {len(rows)} cells are empty",
                rows=tuple(row.number for row in rows),
            )


def _of_another_gpu(page: Published) -> Iterator[Finding]:
    """Yield what cells call the GPU of their rows that is no name of the one that the headings give."""
    strange: dict[tuple[str, str], list[Row]] = {}
    for row in page.rows:
        if not says_gpu(row.gpu_cell, row.place.gpu):
            strange.setdefault((row.gpu_cell, row.place.gpu), []).append(row)
    for (cell, gpu), rows in strange.items():
        yield Finding(
            grade=Grade.UNCHECKED,
            check="row",
            line=rows[0].line,
            what=f"{len(rows)} rows are taken for {gpu}, as the heading says; their own column says otherwise",
            printed=cell,
            rows=tuple(row.number for row in rows),
        )


def _in_range(row: Row, key: str, ratio: Ratio) -> Iterator[Finding]:
    if ratio.low is None or ratio.high is None:
        return
    ordered = ratio.low.value <= ratio.value.value <= ratio.high.value or (
        ratio.low.low < ratio.value.high and ratio.value.low < ratio.high.high
    )
    yield judged(
        ordered and ratio.low.value <= ratio.high.value,
        check="ratio in its range",
        line=row.line,
        what=f"{row.full_name} vs {key}",
        printed=str(ratio),
        recomputed="lowest <= ratio <= highest",
        rows=[row.number],
    )


def _of_latencies(row: Row, key: str) -> Interval | None:
    """Return baseline / new of the row's latencies; None where the row does not have both."""
    new = _new(row, key)
    base = _baseline(row, key, new)
    if new is None or base is None or base is new:
        return None
    scale = Fraction(_unit(base), _unit(new))
    one, other = base.latency.value, new.latency.value
    return Interval(low=one.low * scale / other.high, high=one.high * scale / max(other.low, Fraction(1, 10**12)))


def _new(row: Row, key: str) -> Time | None:
    """Return the time of the new arm that a ratio is of: the only one, else the one that its header names."""
    news = [time for time in row.times if time.column.new]
    if not news or is_slowdown(key):
        return None
    arms = {time.column.arm for time in news}
    named = new_of(key)
    arm = news[0].column.arm if len(arms) == 1 else None if named is None else match(named, arms)
    return next((time for time in news if time.column.arm == arm), None)


def _unpaired(page: Published) -> Iterator[Finding]:
    """Yield the columns whose ratios are not held against latencies although new ones are there."""
    for key in page.columns:
        rows = [r for r in page.rows if key in r.ratios and any(t.column.new for t in r.times) and not _new(r, key)]
        if rows:
            why = "it is a slowdown" if is_slowdown(key) else "its header does not say which of the new arms it is of"
            yield unchecked(check="ratio and latencies", line=rows[0].line, what=f"{key}, {len(rows)} rows: {why}")


def _baseline(row: Row, key: str, new: Time | None) -> Time | None:
    """Return the time of the arm that a ratio is against: by the letter beside it, else by name."""
    letter = row.keys.get(key, "")
    for time in row.times:
        if letter and letter in (time.column.key, time.column.arm):
            return time
    if letter:
        return None
    arm = nearest(baseline_of(key), [t.column.arm for t in row.times], new.column.arm if new else "")
    return next((time for time in row.times if time.column.arm == arm), None)


def _unit(time: Time) -> int:
    return _NS[time.latency.unit or time.column.unit or "ms"]


def _latencies(row: Row, key: str, ratio: Ratio, measured: Interval, rules: Conventions) -> Iterator[Finding]:
    """Yield whether latency / latency lies in [min, max], where the medians of the same groups must."""
    if ratio.low is None or ratio.high is None:
        return
    inside = measured.high >= ratio.low.low and measured.low <= ratio.high.high
    finding = judged(
        inside,
        check="ratio and latencies",
        line=row.line,
        what=f"{row.full_name} vs {key}: baseline / new of the latencies lies in [min, max]",
        printed=str(ratio),
        recomputed=shown(measured),
        rows=[row.number],
    )
    if not inside and rules.pooled:
        yield Finding(
            grade=Grade.NOTE,
            check=finding.check,
            line=row.line,
            what=f"{finding.what}; of several machines or runs it may not",
            printed=finding.printed,
            recomputed=finding.recomputed,
            rows=finding.rows,
        )
        return
    yield finding


def _distance(measured: Interval, ratio: Ratio) -> Fraction:
    """Return how far, as a part of it, the ratio lies from that of the latencies, rounding allowed for."""
    gap = max(measured.low - ratio.value.high, ratio.value.low - measured.high, Fraction(0))
    return gap / ratio.value.value


def _apart(apart: list[tuple[Fraction, Row, str]]) -> Iterator[Finding]:
    """Yield one note: a median of paired ratios is not the ratio of the medians."""
    differ = [entry for entry in apart if entry[0] > 0]
    if not differ:
        return
    distance, row, key = max(differ, key=lambda entry: entry[0])
    yield Finding(
        grade=Grade.NOTE,
        check="ratio and latencies",
        line=row.line,
        what=f"{len(differ)} of {len(apart)} ratios are not the ratio of their latencies, as medians of paired ratios"
        f" need not be; furthest {100 * float(distance):.2f} %, {row.full_name} vs {key}",
        rows=(row.number,),
    )


def _keys(row: Row) -> Iterator[Finding]:
    """Yield whether each letter is one of those known, and whether SOTA's is the fastest that the row shows."""
    beside = [(time.column.arm, time.latency.key) for time in row.times if time.latency.key]
    for name, letter in (*beside, *row.keys.items()):
        any_arm = "best known" in name or "baseline" in name
        known = BASELINE_KEYS if any_arm else SOTA_KEYS
        arms = [time.column.arm for time in row.times] if any_arm else []
        yield judged(
            letter.lower() in (*known, *arms),
            check="key of the arm",
            line=row.line,
            what=f"{row.full_name}, {name}",
            printed=letter,
            recomputed=f"one of {', '.join(known)}",
            rows=[row.number],
        )
    letters = Counter(time.column.key for time in row.times)
    shown_arms = [t for t in row.times if t.column.key in SOTA_KEYS and letters[t.column.key] == 1 and not t.column.new]
    for key, letter in row.keys.items():
        chosen = next((time for time in shown_arms if time.column.key == letter), None)
        if chosen is None or not key.startswith(("sota", "fastest other of")):
            continue
        fastest = least([time.latency.value for time in shown_arms])
        yield judged(
            chosen.latency.value.low <= fastest.high,
            check="SOTA is the fastest",
            line=row.line,
            what=row.full_name,
            printed=f"{letter} {chosen.latency.value.text}",
            recomputed=f"{shown(fastest)} of {', '.join(t.column.key for t in shown_arms)}",
            rows=[row.number],
        )
