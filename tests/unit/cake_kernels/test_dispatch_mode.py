from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from cake_kernels.facade import dispatch_mode


class Watching(TorchDispatchMode):
    """Notes each operator, and what is known of the modes beside this one while it is at work."""

    def __init__(self):
        super().__init__()
        self.seen, self.beside = [], []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.seen.append(function)
        self.beside.append(dispatch_mode.is_active())
        return function(*args, **(kwargs or {}))


def test_a_mode_is_active_from_where_it_is_entered_to_where_it_is_left():
    before = dispatch_mode.is_active()
    with Watching():
        within = dispatch_mode.is_active()

    assert (before, within, dispatch_mode.is_active()) == (False, True, False)


def test_a_mode_does_not_see_that_it_is_asked_for():
    with Watching() as watching:
        dispatch_mode.is_active()

    assert watching.seen == []


def test_a_mode_at_work_is_not_active_and_those_around_it_are():
    with Watching() as outer, Watching() as inner:
        torch.ones(1)

    assert (inner.beside, outer.beside) == ([True], [False])


def test_a_mode_of_another_thread_is_not_active_here():
    with Watching(), ThreadPoolExecutor(1) as other:
        assert other.submit(dispatch_mode.is_active).result() is False


def test_the_modes_of_torch_count():
    with FakeTensorMode():
        assert dispatch_mode.is_active()


@pytest.mark.parametrize("transform", [torch.func.grad, torch.vmap])
def test_a_transform_of_torch_func_is_no_mode(transform):
    answers = []

    def function(x):
        answers.append(dispatch_mode.is_active())
        return x.sum()

    transform(function)(torch.ones(2) if transform is torch.func.grad else torch.ones(2, 2))

    assert answers == [False]
