"""``cake-bench doctor``: whether this machine measures what it says it measures."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import click

from harness import devices
from harness.doctor import pages
from harness.doctor.checks import cpu_checks, gpu_checks, gpu_only
from harness.doctor.finding import Examined, Status, examine, left_out
from harness.doctor.hardware import CudaHardware
from harness.doctor.pages import Diagnosis
from harness.errors import ExitCode, UsageError

CHECK_FAILED = 1

NO_GPU = "not here: torch sees no CUDA device"
NOT_ASKED = "not made: --device cpu"


@click.command()
@click.option("--device", type=click.Choice(["cuda", "cpu"]), help="What to check. Default: cuda where torch sees one.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="A line a check, or data with every reading.",
)
@click.option(
    "--output", "-o", type=click.Path(path_type=Path, dir_okay=False), help="Write to a file instead of stdout."
)
@click.option("--allow-busy", is_flag=True, help="Do not fail because another process computes on the GPU.")
def command(device: str | None, form: str, output: Path | None, allow_busy: bool) -> int:
    """Check that this machine measures what it says: timers, cold caches, clocks, the A/A floor, baselines.

    Takes about a minute on a GPU. A note is worth knowing and no fault.

    \b
    Examples:
      cake-bench doctor
      cake-bench doctor --format json --output doctor.json

    \b
    Exit codes:
      0    all checks hold
      1    a check fails
      2    usage, or an internal error
      130  Ctrl-C
    """
    name = device or devices.names()[0]
    if name not in devices.names():
        raise UsageError(f"--device {name} cannot be used: torch sees no CUDA device; here: cpu")
    if output is not None and not output.parent.is_dir():
        # Said before the minute that the checks take, not after it.
        raise UsageError(f"{output} cannot be written: there is no folder {output.parent}")
    started = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    diagnosis = Diagnosis(started=started, device=name, examined=tuple(_examined(name, allow_busy=allow_busy)))
    page = pages.text(diagnosis) if form == "text" else pages.as_json(diagnosis)
    if output is None:
        click.echo(page, nl=False)
    else:
        _write(output, page)
    return CHECK_FAILED if diagnosis.verdict is Status.FAIL else ExitCode.OK


def _examined(device: str, *, allow_busy: bool) -> Iterator[Examined]:
    gpu = gpu_checks(CudaHardware(), allow_busy=allow_busy)
    if device == "cuda":
        checks = gpu
    else:
        checks = cpu_checks()
        reason = NOT_ASKED if "cuda" in devices.names() else NO_GPU
        yield from (left_out(check, reason) for check in gpu_only(gpu, checks))
    for index, check in enumerate(checks, start=1):
        click.echo(f"{index}/{len(checks)} {check.name}", err=True)
        yield examine(check)


def _write(path: Path, page: str) -> None:
    try:
        path.write_text(page, encoding="utf-8", newline="\n")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
