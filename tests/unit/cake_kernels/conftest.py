"""What tests of torch's global state share."""

import pytest
import torch


@pytest.fixture
def torchs_switch():
    """Return ``torch.use_deterministic_algorithms``, and turn it off again."""
    yield torch.use_deterministic_algorithms
    torch.use_deterministic_algorithms(False)
