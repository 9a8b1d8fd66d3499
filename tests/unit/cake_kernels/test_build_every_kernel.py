"""The kernels of this version, each compiled and its machine code held against the rules."""

from pathlib import Path

from cake_kernels import build, registry
from cake_kernels.checks import ARCH
from cake_kernels.nvdisasm import Nvdisasm


def test_every_kernel_keeps_the_rules(tmp_path: Path) -> None:
    programs = registry.programs()
    assert programs, "the registry has no program, so no kernel was compiled and none checked"

    checked = build.check_all(build.compile_all(build.builds_for(ARCH, programs), arch=ARCH, out=tmp_path), Nvdisasm())

    assert {one.built.build.name: one.broken for one in checked if one.broken} == {}
