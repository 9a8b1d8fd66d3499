"""What a run measures with: device, timer, driver, regimes, A/A pair; defaults by device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from harness import devices, timers
from harness.arms import Arm
from harness.errors import UnknownName, UsageError
from harness.machine import open_nvml
from harness.model.run import ArmInfo
from harness.monitor import Nvml
from harness.protocols.paired_groups import Session
from harness.protocols.regimes import Regime, regime

DEFAULT_TIMER = {"cpu": "cpu", "cuda": "cupti"}
DEFAULT_REGIMES = {"cpu": "boost", "cuda": "boost,sustained"}
TWIN = "{} again"
NO_TWIN = "off"


def open_session(device: str | None, timer: str | None, *, groups: int, allow_busy: bool) -> tuple[Session, str]:
    """Return a session on ``device`` and the timer's specification, each the device's default where None.

    Raises
    ------
    UsageError
        There is no such device or timer here, or another process computes on the GPU.
    """
    name = device or devices.names()[0]
    monitor = open_nvml() if name == "cuda" and "cuda" in devices.names() else None
    # Before this process has a context of its own: some drivers report it under another process id.
    foreign = foreign_processes(monitor, allow_busy=allow_busy) if monitor else {}
    where = devices.open_device(name, foreign)
    spec = timer or DEFAULT_TIMER[name]
    opened = timers.open_timer(spec, where)
    return Session(timer=opened, device=where, groups=groups, monitor=monitor), spec


def foreign_processes(monitor: Nvml, *, allow_busy: bool) -> dict[str, str]:
    """Return what the run file and every table say of other processes on the GPU; raise unless they are allowed."""
    foreign = monitor.foreign_processes()
    if foreign and not allow_busy:
        said = ", ".join(map(str, foreign))
        raise UsageError(f"another process computes on the GPU (pid {said}); wait for it, or say --allow-busy")
    return {"other processes on the GPU": str(len(foreign))} if foreign else {}


def select_regimes(names: str | None, device: str) -> tuple[Regime, ...]:
    """Return the regimes of a comma-separated list, or the device's default."""
    asked = [name.strip() for name in (names or DEFAULT_REGIMES[device]).split(",")]
    return tuple(regime(name) for name in dict.fromkeys(asked))


def select_twin(asked: str | None, arms: Sequence[Arm], device: str) -> dict[str, str]:
    """Return the arm that runs twice with its second name; by default the first arm on a GPU, none on a CPU."""
    if asked is None:
        asked = arms[0].info.name if device == "cuda" else NO_TWIN
    if asked == NO_TWIN:
        return {}
    names = tuple(arm.info.name for arm in arms)
    if asked not in names:
        raise UnknownName("arm of --aa", asked, (*names, NO_TWIN))
    return {asked: TWIN.format(asked)}


def arm_infos(arms: Sequence[Arm], twins: dict[str, str]) -> tuple[ArmInfo, ...]:
    """Return the arms as a run file names them, each twin after its arm."""
    infos: list[ArmInfo] = []
    for arm in arms:
        infos.append(arm.info)
        if again := twins.get(arm.info.name):
            note = f"A/A: {arm.info.name} once more, the same prepared call"
            infos.append(replace(arm.info, name=again, key="", note=note, twin_of=arm.info.name))
    return tuple(infos)
