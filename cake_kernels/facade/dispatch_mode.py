"""Whether torch must see a call as an operator: a dispatch mode watches it, or a tensor wraps another one.

A mode, such as that of selective checkpointing, watches what a thread calls. No public function of torch says so, but
the dispatcher acts on it: below a mode, and only there, a call goes to the key ``Python``, whose kernel for any
operator hands it to the mode. An operator of our own with a kernel of its own for that key is seen by no mode, and
tells by which of its kernels runs.
"""

from __future__ import annotations

import torch

from ..grouped_gemm.ops import NAMESPACE

_LIBRARY = torch.library.Library(NAMESPACE, "FRAGMENT")
_LIBRARY.define("is_below_a_dispatch_mode() -> bool")
_LIBRARY.impl("is_below_a_dispatch_mode", lambda: True, "Python")
_LIBRARY.impl("is_below_a_dispatch_mode", lambda: False, "CompositeExplicitAutograd")
_IS_BELOW_A_DISPATCH_MODE = getattr(torch.ops, NAMESPACE).is_below_a_dispatch_mode.default


def is_active() -> bool:
    """Return whether a dispatch mode would see the next operator that this thread calls; for code that runs eagerly."""
    active: bool = _IS_BELOW_A_DISPATCH_MODE()
    return active


def wraps(*tensors: torch.Tensor) -> bool:
    """Return whether one of them answers operators by itself, as DTensors and the results of functional collectives do.

    Its values lie elsewhere, or are not there yet; what an operator is given instead, ``__torch_dispatch__`` knows.
    """
    for tensor in tensors:  # noqa: SIM110 - a generator costs each call half a microsecond
        if type(tensor).__torch_dispatch__ is not _ANSWERS_NOTHING:
            return True
    return False


_ANSWERS_NOTHING = torch.Tensor.__torch_dispatch__
