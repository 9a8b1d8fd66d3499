"""Which arm is new, which baselines make SOTA and best known, and which columns a report has."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from harness.errors import UnknownName, UsageError
from harness.model.figures import ArmFigure, ReportRow
from harness.model.report import BEST_KNOWN, PREVIOUS, PREVIOUS_OF, SOTA, SOTA_ARMS, STEP_BASELINE
from harness.model.run import ArmInfo

REFERENCE = "reference"
"""The executable contract: written to be right, so it is nobody's baseline."""

DEFAULT_NEW = ("cake_nondet", "cake_det")


def choose_new(arms: tuple[ArmInfo, ...], timed: Collection[str], new: str | None) -> ArmInfo:
    """Return the arm called ``new``; by default the first of ours that has a time, else the first arm that has one."""
    by_name = _comparable(arms)
    if new is not None:
        _refuse_wrong("new", new, arms)
        return by_name[new]
    ours = (by_name[name] for name in DEFAULT_NEW if name in by_name and name in timed)
    return next(ours, next((arm for arm in by_name.values() if arm.name in timed), next(iter(by_name.values()))))


def choose_columns(
    arms: tuple[ArmInfo, ...],
    timed: Collection[str],
    timed_in_steps: Collection[str],
    new: ArmInfo,
    against: Sequence[str],
) -> tuple[str, ...]:
    """Return SOTA, best known where it can differ from SOTA, the steps' own baseline, previous, and the arms asked for.

    Each where it has run, the steps' baseline where it has run in one; new is none of them.
    """
    for name in against:
        _refuse_wrong("against", name, arms)
        if name == new.name:
            raise UsageError(f"against must name another arm than new, got {name!r} for both; choose another --new")
    can_differ = any(_is_baseline(arm, new) and arm.name in timed and arm.name not in SOTA_ARMS for arm in arms)
    by_hand = STEP_BASELINE in timed_in_steps and new.name != STEP_BASELINE
    has_previous = PREVIOUS_OF.get(new.name) in timed
    roles = ((SOTA, True), (BEST_KNOWN, can_differ), (STEP_BASELINE, by_hand), (PREVIOUS, has_previous))
    return tuple(dict.fromkeys((*(role for role, has_run in roles if has_run), *against)))


def sota(figures: Iterable[ArmFigure], new: ArmInfo) -> str | None:
    """Return the fastest of t, c and d in the row, never the new arm."""
    return _fastest(figure for figure in figures if figure.arm in SOTA_ARMS and figure.arm != new.name)


def best_known(figures: Iterable[ArmFigure], arms: tuple[ArmInfo, ...], new: ArmInfo) -> str | None:
    """Return the fastest of all arms in the row that are not ours, never the new arm."""
    baselines = {arm.name for arm in arms if _is_baseline(arm, new)}
    return _fastest(figure for figure in figures if figure.arm in baselines)


def counts(row: ReportRow, against: str) -> bool:
    """Return whether the row's ratio to ``against`` may enter a geomean or a count."""
    of_previous = against == PREVIOUS or against in PREVIOUS_OF.values()
    return not row.host_bound and not (row.control and of_previous)


def _comparable(arms: tuple[ArmInfo, ...]) -> dict[str, ArmInfo]:
    """Return the arms that can have a role: a twin has none, it only shows the noise."""
    return {arm.name: arm for arm in arms if not arm.twin_of}


def _refuse_wrong(what: str, name: str, arms: tuple[ArmInfo, ...]) -> None:
    known = _comparable(arms)
    if name in known:
        return
    twin_of = next((arm.twin_of for arm in arms if arm.name == name), None)
    if twin_of is None:
        raise UnknownName("arm", name, tuple(known))
    raise UsageError(
        f"{what} must be an arm of its own, got {name!r}, the twin of {twin_of}; the report compares the two under A/A"
    )


def _is_baseline(arm: ArmInfo, new: ArmInfo) -> bool:
    return not arm.is_cake and not arm.twin_of and arm.name not in (new.name, REFERENCE)


def _fastest(figures: Iterable[ArmFigure]) -> str | None:
    """Return the arm with the least median latency; ties go to t, c, d in that order, then by name."""
    timed = [(figure.span_ns, _tie(figure.arm), figure.arm) for figure in figures if figure.span_ns is not None]
    return min(timed)[2] if timed else None


def _tie(arm: str) -> int:
    return SOTA_ARMS.index(arm) if arm in SOTA_ARMS else len(SOTA_ARMS)
