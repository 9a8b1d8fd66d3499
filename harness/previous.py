"""Another revision of ``cake_kernels`` beside this one: found, unpacked, and imported under a name of its own.

It comes from a folder that holds ``cake_kernels/``, as ``git archive REV cake_kernels`` unpacks to one, or from git.
What it cannot do is the reason of its arms in a row; what cannot be found or imported at all is a usage error.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

from harness.errors import FOREIGN, UsageError, first_line
from harness.kernels import PACKAGE, Kernels, read_sources
from harness.revision import revision

NAME = f"{PACKAGE}_previous"
"""The name under which it is imported."""

_PARTS = ("registry", "grouped_gemm")
"""What its arms use; a revision may lack them."""

_GIT_SECONDS = 60


@contextmanager
def opened(given: str, *, top: Path) -> Iterator[Kernels]:
    """Import the revision ``given``: a folder, else what git knows in the tree ``top``.

    One from git is unpacked into a temporary folder. At the end that is removed, and the revision's modules are
    forgotten; torch keeps its operators, so that a process can open one revision that has some.

    Raises
    ------
    UsageError
        The folder holds no ``cake_kernels``, git does not know the revision or is not there, or it fails to import.
    """
    if not given.strip():
        raise UsageError("--previous must name a folder or a revision, got an empty text; is a variable unset?")
    with ExitStack() as stack:
        tree = Path(given).resolve()
        if tree.is_dir():
            known = revision(None, top=tree)
        else:
            commit = _commit(given, top)
            tree = Path(stack.enter_context(TemporaryDirectory(prefix="cake-previous-"))).resolve()
            _unpack(commit, top, tree)
            known = f"{commit} (git)"
        stack.callback(_forget)
        yield _imported(tree / PACKAGE, known, given)


def _commit(given: str, top: Path) -> str:
    if Path(_git(top, "rev-parse", "--show-toplevel").stdout.decode().strip()) != top.resolve():
        raise UsageError(
            f"--previous must be a folder that holds {PACKAGE}/, or a revision where cake-bench runs from its git tree,"
            f" got {given!r}, which is no folder, and {top} is no git tree; unpack one there with make previous"
            " REV=COMMIT, and name its folder"
        )
    done = _git(top, "rev-parse", "--verify", "--quiet", "--short=12", f"{given}^{{commit}}")
    if done.returncode:
        raise UsageError(
            f"--previous must be a folder that holds {PACKAGE}/, or a revision that git knows, got {given!r}, which is"
            " neither; git log names the commits, git fetch brings those of others"
        )
    return done.stdout.decode().strip()


def _unpack(commit: str, top: Path, folder: Path) -> None:
    done = _git(top, "archive", "--format=zip", commit, PACKAGE)
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()
        raise UsageError(
            f"--previous: revision {commit} must hold {PACKAGE}/, git archive says: {said}; name a later one"
        )
    with zipfile.ZipFile(BytesIO(done.stdout)) as archive:
        archive.extractall(folder)


def _git(top: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(["git", "-C", str(top), *words], capture_output=True, timeout=_GIT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(
            f"--previous: git must run to find a revision: {error}; or name a folder that holds {PACKAGE}/"
        ) from error


def _imported(folder: Path, known: str, given: str) -> Kernels:
    start = folder / "__init__.py"
    if not start.is_file():
        raise UsageError(
            f"--previous: {given} must hold {PACKAGE}/__init__.py, and does not; make previous REV=COMMIT makes such a"
            " folder"
        )
    spec = spec_from_file_location(NAME, start, submodule_search_locations=[str(folder)])
    if spec is None or spec.loader is None:
        raise UsageError(f"--previous: {start} cannot be loaded as a package")
    try:
        sources = read_sources(folder)
        _refuse_absolute_imports(sources)
        sys.modules[NAME] = module = module_from_spec(spec)
        spec.loader.exec_module(module)
        kernels = Kernels(package=NAME, revision=known, folder=folder, sources=sources)
        for part in _PARTS:
            if find_spec(f"{NAME}.{part}"):
                kernels.module(part)
    except FOREIGN as error:
        raise UsageError(
            f"--previous: {PACKAGE} of {given} ({known}) fails to import: {type(error).__name__}: {first_line(error)};"
            " choose another revision"
        ) from error
    return kernels


def _refuse_absolute_imports(sources: Mapping[str, bytes]) -> None:
    """Raise ImportError where a file imports the package by its own name: it would get this revision's modules."""
    for path, data in sources.items():
        for node in ast.walk(ast.parse(data, path)) if path.endswith(".py") else ():
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            if any(name.partition(".")[0] == PACKAGE for name in names):
                raise ImportError(f"{path} imports {PACKAGE} by that name, which here is the current revision")


def _forget() -> None:
    for name in [name for name in sys.modules if name == NAME or name.startswith(f"{NAME}.")]:
        del sys.modules[name]
