"""Which revision of the tree is measured: named by the caller, else a stamp file, else git, else *unknown*."""

from __future__ import annotations

import subprocess
from pathlib import Path

STAMP = "REVISION"
"""A file of this name at the top of an exported tree holds its revision."""

UNKNOWN = "unknown"

MEASURED = ("harness", "cake_kernels", "shapes.yaml")
"""What a run is made of; a change elsewhere changes no number."""


def revision(named: str | None, *, top: Path) -> str:
    """Return the revision of the tree at ``top`` with where it comes from: ``1a2b3c4d5e6f (git)``.

    A tree with uncommitted changes says so; where nothing tells, the answer is ``unknown``, never a guess.
    """
    if named:
        return named
    stamp = top / STAMP
    if stamp.is_file() and (text := stamp.read_text(encoding="utf-8").strip()):
        return f"{text} (stamp)"
    commit = _git(top, "rev-parse", "--short=12", "HEAD")
    if not commit or _git(top, "rev-parse", "--show-toplevel") != str(top.resolve()):
        return UNKNOWN
    # New files count where they can be imported or read by a run: an arm is one such file.
    changed = _git(top, "status", "--porcelain", "--", *MEASURED)
    return f"{commit} (git{', with uncommitted changes' if changed else ''})"


def _git(top: Path, *words: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(top), *words], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""  # no git here: the revision is unknown, and the heading says so
    return done.stdout.strip() if done.returncode == 0 else ""
