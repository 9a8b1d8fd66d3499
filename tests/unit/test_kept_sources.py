"""The revision that a kept run names is the one whose kernels it measured: the hash of its sources is that commit's."""

import io
import re
import subprocess
import tarfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from harness import runfile
from harness.kernels import Kernels
from harness.rounds import file as rounds_file

TOP = Path(__file__).parents[2]
KEPT = TOP / "reports" / "h200"
COMMIT = re.compile(r"[0-9a-f]{7,40}")  # others name working trees
MISTYPED = {"59cdcf45d9ff": "59cdcf455f95"}


@cache
def hash_of(revision: str) -> str:
    """Return the hash of the kernels' sources in that commit."""
    packed = subprocess.run(["git", "archive", revision, "cake_kernels"], cwd=TOP, capture_output=True, check=True)
    sources: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as tar:
        for member in tar:
            if (file := tar.extractfile(member)) is not None:  # a folder has none
                sources[member.name.partition("/")[2]] = file.read()
    return Kernels(package="", revision=revision, folder=TOP, sources=dict(sorted(sources.items()))).sha256


def why_no_history() -> str:
    """Return why git cannot tell of every commit here, or an empty string."""
    if not (TOP / ".git").exists():
        return "this is no clone: there is no .git"
    command = ["git", "rev-parse", "--is-shallow-repository"]
    asked = subprocess.run(command, cwd=TOP, capture_output=True, check=False, text=True)
    if asked.returncode:
        return f"{' '.join(command)} failed: {asked.stderr.strip()}"
    return "this is a shallow clone, without older commits" if asked.stdout.strip() == "true" else ""


def kept() -> dict[str, tuple[str, str]]:
    """Run file, and which side of it -> revision and hash."""
    found: dict[str, tuple[str, str]] = {}
    for path in sorted(KEPT.rglob("*.json")):
        if path.parent.name == "doctor":
            continue
        run: Any = rounds_file.load(path) if path.parent.name == "rounds" else runfile.load(path)
        sides = {"": run, " previous": getattr(run, "previous", None)}
        for side, named in sides.items():
            if named is not None and named.sources_sha256:
                found[f"{path.relative_to(KEPT)}{side}"] = named.revision.split()[0], named.sources_sha256
    return {name: sides for name, sides in found.items() if COMMIT.fullmatch(sides[0])}


def test_a_kept_run_names_the_commit_whose_kernels_it_measured() -> None:
    if reason := why_no_history():
        pytest.skip(reason)
    named = kept()

    assert len(named) > 80
    for name, (revision, sha256) in named.items():
        assert hash_of(MISTYPED.get(revision, revision)) == sha256, name
