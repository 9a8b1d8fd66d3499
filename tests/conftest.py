"""What holds for every test, and what tests of torch's global state share."""

import pytest
import torch
from hypothesis import settings

# A test asserts values, and a slow machine is no fault of the code.
settings.register_profile("values", deadline=None)
settings.load_profile("values")


@pytest.fixture
def torchs_switch():
    """Return ``torch.use_deterministic_algorithms``, and turn it off again."""
    yield torch.use_deterministic_algorithms
    torch.use_deterministic_algorithms(False)
