"""What holds for every test, and what tests of torch's global state share."""

import gc

import pytest
import torch
from hypothesis import settings

# A test asserts values, and a slow machine is no fault of the code.
settings.register_profile("values", deadline=None)
settings.load_profile("values")


def pytest_collection_finish() -> None:
    """Keep the garbage collector from looking again and again through what lives to the end: modules and all tests."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def torchs_switch():
    """Return ``torch.use_deterministic_algorithms``, and turn it off again."""
    yield torch.use_deterministic_algorithms
    torch.use_deterministic_algorithms(False)
