import subprocess
from pathlib import Path

from harness.revision import revision


def git(top: Path, *words: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    return subprocess.run(["git", "-C", str(top), *identity, *words], check=True, capture_output=True, text=True).stdout


def test_a_named_revision_wins(tmp_path: Path) -> None:
    (tmp_path / "REVISION").write_text("abc\n")

    assert revision("v1.2", top=tmp_path) == "v1.2"


def test_a_stamp_file_comes_before_git(tmp_path: Path) -> None:
    (tmp_path / "REVISION").write_text("abc\n")

    assert revision(None, top=tmp_path) == "abc (stamp)"


def test_git_tells_the_commit_and_whether_the_tree_differs_from_it(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "shapes.yaml").write_text("1")
    (tmp_path / "notes").write_text("1")
    git(tmp_path, "add", "shapes.yaml", "notes")
    git(tmp_path, "commit", "-qm", "first")
    commit = git(tmp_path, "rev-parse", "--short=12", "HEAD").strip()

    (tmp_path / "notes").write_text("2")
    clean = revision(None, top=tmp_path)
    (tmp_path / "shapes.yaml").write_text("2")
    changed = revision(None, top=tmp_path)

    assert clean == f"{commit} (git)"
    assert changed == f"{commit} (git, with uncommitted changes)"


def test_a_new_arm_that_git_does_not_know_is_a_change(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-qm", "first", "--allow-empty")
    (tmp_path / "harness").mkdir()
    (tmp_path / "harness" / "mine.py").write_text("")

    assert revision(None, top=tmp_path).endswith("(git, with uncommitted changes)")


def test_a_folder_inside_another_projects_tree_is_not_that_project(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "inner").mkdir()

    assert revision(None, top=tmp_path / "inner") == "unknown"


def test_without_any_of_them_it_is_unknown(tmp_path: Path) -> None:
    assert revision(None, top=tmp_path) == "unknown"
