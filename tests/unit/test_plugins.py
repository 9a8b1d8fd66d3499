import sys
from pathlib import Path

import pytest

from harness import arms, plugins
from harness.errors import PluginError, UnknownName


def test_names_are_stems_of_files_and_import_nothing() -> None:
    names = plugins.names("distributions")

    assert "balanced" in names
    assert not any(name.startswith("_") for name in names)


def test_an_unknown_plugin_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UnknownName, match="distribution 'even' is not known; known: balanced, "):
        plugins.load("distributions", "even")


def test_a_plugin_whose_import_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "harness.distributions.balanced", None)

    with pytest.raises(PluginError, match="distribution 'balanced' fails to import: ModuleNotFoundError"):
        plugins.load("distributions", "balanced")


def test_an_entry_point_that_nobody_registers_is_an_error() -> None:
    with pytest.raises(PluginError, match="entry point cake_bench.arms:nobody must have one owner, got 0: none"):
        plugins.load_external("cake_bench.arms", "nobody")


def test_an_entry_point_of_another_distribution_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "their_arms.py").write_text("ARM = 'their arm'\nBROKEN = 1 / 1\n")
    info = tmp_path / "their_arms-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-arms\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[cake_bench.arms]\ntheirs = their_arms:ARM\ngone = their_arms:NONE\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    assert plugins.external_names("cake_bench.arms") == ("gone", "theirs")
    assert plugins.load_external("cake_bench.arms", "theirs") == "their arm"
    with pytest.raises(PluginError, match=r"entry point cake_bench.arms:gone \(their_arms:NONE\) fails to import"):
        plugins.load_external("cake_bench.arms", "gone")


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("raise ImportError", "ImportError: no message"),
        ("raise SystemExit(0)", "SystemExit: 0"),
        ("raise ValueError('first\\nsecond')", "ValueError: first"),
    ],
)
def test_whatever_a_foreign_module_raises_at_import_is_named_with_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str, said: str
) -> None:
    register(tmp_path, monkeypatch, "odd_arms", "odd = odd_arms:ARM", statement)

    with pytest.raises(PluginError) as caught:
        plugins.load_external("cake_bench.arms", "odd")

    assert str(caught.value) == f"entry point cake_bench.arms:odd (odd_arms:ARM) fails to import: {said}"


def test_control_c_while_a_foreign_module_imports_stays_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register(tmp_path, monkeypatch, "slow_arms", "slow = slow_arms:ARM", "raise KeyboardInterrupt")

    with pytest.raises(KeyboardInterrupt):
        plugins.load_external("cake_bench.arms", "slow")


def test_an_arm_named_like_one_of_ours_names_both_owners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register(tmp_path, monkeypatch, "loud_arms", "cudnn = loud_arms:ARM", "ARM = 1")

    with pytest.raises(PluginError) as caught:
        arms.load("cudnn")

    assert "must have one owner, got harness/arms/cudnn.py and loud-arms; rename" in str(caught.value)
    assert arms.names().count("cudnn") == 1


def register(folder: Path, monkeypatch: pytest.MonkeyPatch, module: str, entry: str, source: str) -> None:
    """Install a distribution of one module with one entry point for an arm."""
    name = module.replace("_", "-")
    (folder / f"{module}.py").write_text(source)
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[cake_bench.arms]\n{entry}\n")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, module, raising=False)
