"""What tests share of what grouped_mm launches, and of the kernels' machine code."""

import pytest

from cake_kernels import build
from cake_kernels.checks import ARCH
from cake_kernels.facade import autograd
from cake_kernels.nvdisasm import Nvdisasm


@pytest.fixture
def calls(monkeypatch):
    """Each call that was launched, in order."""
    seen, compute = [], autograd.compute

    def counting(*calls, **options):
        seen.extend(call for call, _ in calls)
        compute(*calls, **options)

    monkeypatch.setattr(autograd, "compute", counting)
    return seen


@pytest.fixture(scope="session")
def checked(tmp_path_factory):
    """Return kernels compiled and their machine code looked at, each once for all tests: both take seconds."""
    out, known = tmp_path_factory.mktemp("cubins"), []

    def all_of(builds):
        missing = [one for one in builds if one not in [each.built.build for each in known]]
        known.extend(build.check_all(build.compile_all(missing, arch=ARCH, out=out), Nvdisasm()))
        return [each for one in builds for each in known if each.built.build == one]

    return all_of
