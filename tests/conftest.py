"""What holds for every test."""

from hypothesis import settings

# A test asserts values, and a slow machine is no fault of the code.
settings.register_profile("values", deadline=None)
settings.load_profile("values")
