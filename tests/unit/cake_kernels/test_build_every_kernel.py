"""The kernels of this version, each compiled and its machine code held against the rules."""

from collections.abc import Callable, Sequence

from cake_kernels import build, registry
from cake_kernels.checks import ARCH


def test_every_kernel_keeps_the_rules(checked: Callable[[Sequence[registry.Build]], list[build.Checked]]) -> None:
    programs = registry.programs()
    assert programs, "the registry has no program, so no kernel was compiled and none checked"

    every = checked(build.builds_for(ARCH, programs))

    assert {one.built.build.name: one.broken for one in every if one.broken} == {}
