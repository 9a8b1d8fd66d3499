import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import cake_kernels
from cake_kernels import cubin_cache, jit
from harness import previous
from harness.errors import UsageError
from harness.kernels import current
from tests import tiny_kernels

TOP = Path(__file__).parents[2]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A git tree whose only commit holds the tiny package; the files have changed since."""
    top = tiny_kernels.write(tmp_path / "tree")
    git(top, "init", "-q")
    git(top, "add", ".")
    git(top, "commit", "-qm", "first")
    tiny_kernels.write(top, {"launch.py": "GRID = 1\n"})
    return top


def git(top: Path, *words: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    return subprocess.run(["git", "-C", str(top), *identity, *words], check=True, capture_output=True, text=True).stdout


def test_a_revision_of_git_is_imported_under_its_own_name_and_its_folder_goes(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))

    with previous.opened("HEAD", top=tree) as kernels:
        grid = kernels.module("launch").GRID
        names = {name.partition(".")[0] for name in sys.modules if name.startswith("cake_kernels")}
        assert kernels.folder.is_relative_to(tmp_path / "temporary")

    assert kernels.package == "cake_kernels_previous"
    assert kernels.revision == f"{git(tree, 'rev-parse', '--short=12', 'HEAD').strip()} (git)"
    assert grid == 132
    assert names == {"cake_kernels", "cake_kernels_previous"}
    assert list((tmp_path / "temporary").iterdir()) == []
    assert [name for name in sys.modules if name.startswith("cake_kernels_previous")] == []


@pytest.mark.parametrize(("stamp", "revision"), [("1a2b3c\n", "1a2b3c (stamp)"), (None, "unknown")])
def test_a_folder_is_imported_where_it_lies_and_its_stamp_names_it(
    tmp_path: Path, stamp: str | None, revision: str
) -> None:
    folder = tiny_kernels.write(tmp_path)
    if stamp:
        (folder / "REVISION").write_text(stamp)

    with previous.opened(str(folder), top=TOP) as kernels:
        found = kernels.module("registry").__file__

    assert found == str(folder / "cake_kernels" / "registry.py")
    assert kernels.revision == revision
    assert kernels.sha256 == tiny_kernels.kernels(folder, "cake_kernels").sha256


def test_the_current_kernels_stay_what_they_were(tmp_path: Path) -> None:
    before = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "cake_kernels"}

    with previous.opened(str(tiny_kernels.write(tmp_path)), top=TOP):
        pass

    assert {name: sys.modules[name] for name in before} == before


def test_todays_kernels_load_beside_themselves_with_cubins_and_operators_of_their_own(tmp_path: Path) -> None:
    # Once in the whole suite: torch keeps the operators of a package, so that it cannot be loaded twice in one process.
    shutil.copytree(
        Path(cake_kernels.__path__[0]), tmp_path / "cake_kernels", ignore=shutil.ignore_patterns("__pycache__")
    )

    with previous.opened(str(tmp_path), top=TOP) as kernels:
        their_jit, package = kernels.module("jit"), kernels.package
        theirs, ours = (module._key(jit.Source(origin="a.cu", text=""), (), "nvrtc") for module in (their_jit, jit))
        folders = [cubin_cache.cache_folder({"HOME": "/home/a"}, module.PACKAGE) for module in (their_jit, jit)]
        their_gemm = kernels.module("grouped_gemm")

    assert theirs != ours
    assert folders == [Path("/home/a/.cache/cake_kernels_previous"), Path("/home/a/.cache/cake_kernels")]
    assert their_gemm.forward is not cake_kernels.grouped_gemm.forward
    assert their_gemm.forward.__module__ == f"{package}.grouped_gemm"
    assert kernels.sha256 == current("x").sha256


@pytest.mark.parametrize("part", ["registry.py", "grouped_gemm/__init__.py"])
def test_a_revision_may_lack_a_part(tmp_path: Path, part: str) -> None:
    folder = tmp_path / "cake_kernels"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    if part == "registry.py":
        (folder / part).write_text("")

    with previous.opened(str(tmp_path), top=TOP) as kernels, pytest.raises(ModuleNotFoundError):
        kernels.module("grouped_gemm")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"__init__.py": "import no_such_library"}, "ModuleNotFoundError: No module named 'no_such_library'"),
        ({"registry.py": "1 / 0"}, "ZeroDivisionError: division by zero"),
        ({"grouped_gemm/__init__.py": "raise SystemExit(3)"}, "SystemExit: 3"),
        ({"launch.py": "def"}, "SyntaxError: "),
        (
            {"launch.py": "def f():\n    from cake_kernels.registry import Problem"},
            "ImportError: launch.py imports cake_kernels by that name, which here is the current revision",
        ),
        ({"launch.py": "import torch, cake_kernels.registry"}, "ImportError: launch.py imports cake_kernels"),
    ],
)
def test_one_that_fails_to_import_is_a_usage_error_and_leaves_nothing(
    tmp_path: Path, changes: dict[str, str], message: str
) -> None:
    folder = tiny_kernels.write(tmp_path, changes)

    with pytest.raises(UsageError, match=re.escape(f"cake_kernels of {folder} (unknown) fails to import: {message}")):
        previous.opened(str(folder), top=TOP).__enter__()
    assert [name for name in sys.modules if name.startswith("cake_kernels_previous")] == []


def test_a_package_whose_name_only_begins_alike_may_be_imported(tmp_path: Path) -> None:
    folder = tiny_kernels.write(tmp_path, {"launch.py": "def f():\n    import cake_kernels_of_another"})

    with previous.opened(str(folder), top=TOP) as kernels:
        assert kernels.package == "cake_kernels_previous"


def test_a_folder_without_the_package_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=f"--previous: {tmp_path} must hold cake_kernels/__init__.py, and does not; make"
    ):
        previous.opened(str(tmp_path), top=TOP).__enter__()


@pytest.mark.parametrize("given", ["", " "])
def test_an_empty_name_is_no_folder_of_this_one(given: str) -> None:
    with pytest.raises(UsageError, match="--previous must name a folder or a revision, got an empty text"):
        previous.opened(given, top=TOP).__enter__()


@pytest.mark.parametrize("given", ["v9", "HEAD~1", "-x", "HEAD:cake_kernels"])
def test_a_revision_that_git_does_not_know_is_named(tree: Path, given: str) -> None:
    with pytest.raises(UsageError, match=f"or a revision that git knows, got '{re.escape(given)}', which is neither"):
        previous.opened(given, top=tree).__enter__()


def test_a_revision_without_the_package_is_named(tree: Path) -> None:
    git(tree, "rm", "-rqf", "cake_kernels")
    git(tree, "commit", "-qm", "gone")

    with pytest.raises(UsageError, match="must hold cake_kernels/, git archive says: .*pathspec 'cake_kernels'"):
        previous.opened("HEAD", top=tree).__enter__()


@pytest.mark.parametrize("inside", [True, False])
def test_without_a_git_tree_of_its_own_only_a_folder_can_be_named(tree: Path, tmp_path: Path, inside: bool) -> None:
    top = tree / "site-packages" if inside else tmp_path / "plain"
    top.mkdir()

    with pytest.raises(
        UsageError, match=r"got 'HEAD', which is no folder, and .* is no git tree; unpack one there with"
    ):
        previous.opened("HEAD", top=top).__enter__()


def test_without_git_the_message_says_so(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")

    with pytest.raises(UsageError, match=r"git must run to find a revision: .*'git'; or name a folder"):
        previous.opened("HEAD", top=tree).__enter__()


def test_make_previous_leaves_a_folder_that_can_be_named(tree: Path) -> None:
    shutil.copy(TOP / "Makefile", tree)
    subprocess.run(["make", "previous", "REV=HEAD"], cwd=tree, check=True, capture_output=True)
    # Again, after a file of it has gone from the revision.
    (tree / ".previous/HEAD/cake_kernels/stale.py").write_text("")
    subprocess.run(["make", "previous", "REV=HEAD"], cwd=tree, check=True, capture_output=True)

    with previous.opened(str(tree / ".previous/HEAD"), top=TOP) as kernels:
        pass

    assert kernels.revision == f"{git(tree, 'rev-parse', '--short=12', 'HEAD').strip()} (stamp)"
    assert sorted(kernels.sources) == sorted(tiny_kernels.FILES)


@pytest.mark.parametrize(
    ("given", "said"), [("", "REV must name one commit, got ''"), ("..", "got '..'"), ("v9", "fatal")]
)
def test_make_previous_refuses_what_is_no_commit(tree: Path, given: str, said: str) -> None:
    shutil.copy(TOP / "Makefile", tree)

    done = subprocess.run(["make", "previous", f"REV={given}"], cwd=tree, check=False, capture_output=True, text=True)

    assert done.returncode == 2
    assert said in done.stderr
    assert not (tree / ".previous").exists()
