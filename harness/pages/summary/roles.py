"""Which arm is new, which baselines make SOTA and best known, and which columns a report has."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from harness.errors import UnknownName, UsageError
from harness.model.report import BEST_KNOWN, SOTA, ArmFigure
from harness.model.run import ArmInfo

SOTA_ARMS = ("torch_grouped_mm", "cublas_loop", "cudnn")
"""t, c and d; of two equally fast ones the earlier is SOTA."""

REFERENCE = "reference"
"""The executable contract: written to be right, so it is nobody's baseline."""

DEFAULT_NEW = ("cake_nondet", "cake_det")


def choose_new(arms: tuple[ArmInfo, ...], timed: Collection[str], new: str | None) -> ArmInfo:
    """Return the arm called ``new``; by default the first of ours that has a time, else the first arm that has one."""
    by_name = {arm.name: arm for arm in arms}
    if new is not None:
        if new not in by_name:
            raise UnknownName("arm", new, tuple(by_name))
        return by_name[new]
    ours = (by_name[name] for name in DEFAULT_NEW if name in by_name and name in timed)
    return next(ours, next((arm for arm in arms if arm.name in timed), arms[0]))


def choose_columns(
    arms: tuple[ArmInfo, ...], timed: Collection[str], new: ArmInfo, against: Sequence[str]
) -> tuple[str, ...]:
    """Return SOTA, best known where it can differ from SOTA, and the arms asked for, each once."""
    known = tuple(arm.name for arm in arms)
    for name in against:
        if name not in known:
            raise UnknownName("arm", name, known)
        if name == new.name:
            raise UsageError(f"against must name another arm than new, got {name!r} for both; choose another --new")
    can_differ = any(_is_baseline(arm, new) and arm.name in timed and arm.name not in SOTA_ARMS for arm in arms)
    return tuple(dict.fromkeys((SOTA, *((BEST_KNOWN,) if can_differ else ()), *against)))


def sota(figures: Iterable[ArmFigure], new: ArmInfo) -> str | None:
    """Return the fastest of t, c and d in the row, never the new arm."""
    return _fastest(figure for figure in figures if figure.arm in SOTA_ARMS and figure.arm != new.name)


def best_known(figures: Iterable[ArmFigure], arms: tuple[ArmInfo, ...], new: ArmInfo) -> str | None:
    """Return the fastest of all arms in the row that are not ours, never the new arm."""
    baselines = {arm.name for arm in arms if _is_baseline(arm, new)}
    return _fastest(figure for figure in figures if figure.arm in baselines)


def _is_baseline(arm: ArmInfo, new: ArmInfo) -> bool:
    return not arm.is_cake and arm.name not in (new.name, REFERENCE)


def _fastest(figures: Iterable[ArmFigure]) -> str | None:
    """Return the arm with the least median latency; ties go to t, c, d in that order, then by name."""
    timed = [(figure.span_ns, _tie(figure.arm), figure.arm) for figure in figures if figure.span_ns is not None]
    return min(timed)[2] if timed else None


def _tie(arm: str) -> int:
    return SOTA_ARMS.index(arm) if arm in SOTA_ARMS else len(SOTA_ARMS)
