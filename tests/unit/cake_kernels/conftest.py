"""What tests share of what grouped_mm launches."""

import pytest

from cake_kernels.facade import autograd


@pytest.fixture
def calls(monkeypatch):
    """Each call that was launched, in order."""
    seen, compute = [], autograd.compute

    def counting(*calls, **options):
        seen.extend(call for call, _ in calls)
        compute(*calls, **options)

    monkeypatch.setattr(autograd, "compute", counting)
    return seen
