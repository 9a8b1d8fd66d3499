"""What tests of torch's global state share, and of what grouped_mm launches."""

import pytest
import torch

from cake_kernels.facade import autograd


@pytest.fixture
def torchs_switch():
    """Return ``torch.use_deterministic_algorithms``, and turn it off again."""
    yield torch.use_deterministic_algorithms
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def calls(monkeypatch):
    """Each call that was launched, in order."""
    seen, compute = [], autograd.compute

    def counting(*calls, **options):
        seen.extend(call for call, _ in calls)
        compute(*calls, **options)

    monkeypatch.setattr(autograd, "compute", counting)
    return seen
