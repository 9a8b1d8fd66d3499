"""The exceptions that a caller sees.

::

    CakeError
    ├── ArgumentError      (also a ValueError) an argument breaks a rule of the contract; nothing was written
    ├── NoProgramError     (also a ValueError) no program of this version can do the call; the message has the reasons
    ├── ProgramFileError   a program's file exists and fails to import, or holds no program of its name
    ├── CompileError       CUDA C++ is refused; the message has the source's path and the compiler's log
    ├── ToolchainMissingError   NVRTC or cuda-bindings is not installed
    └── DriverError        the CUDA driver refuses a call, or there is none
"""

from __future__ import annotations


class CakeError(Exception):
    """Base of every error that cake_kernels raises on purpose."""


class ArgumentError(CakeError, ValueError):
    """An argument breaks a rule; the message says its name, the rule, the value and the next step."""


class NoProgramError(CakeError, ValueError):
    """No program of this version can do the call, for its sizes, its dtypes or its device."""


class ProgramFileError(CakeError):
    """A program's file exists and fails to import, or holds no program of its name."""


class NondeterministicError(CakeError, RuntimeError):
    """A sum whose order may differ would run while torch is told to use deterministic algorithms."""


class CompileError(CakeError):
    """CUDA C++ is refused.

    Attributes
    ----------
    origin
        The source's path, or what its author called it.
    log
        What the compiler says.
    """

    def __init__(self, origin: str, log: str) -> None:
        super().__init__(f"{origin} does not compile:\n{log}")
        self.origin = origin
        self.log = log


class ToolchainMissingError(CakeError):
    """NVRTC or cuda-bindings is not installed; the message says what to install."""


class DriverError(CakeError):
    """The CUDA driver refuses a call, or there is none."""
