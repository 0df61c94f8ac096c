from threading import Event, Thread

import pytest
import torch
from torch import nn

import credibly as cr
from credibly.model.generators import CUDNN, FAST_PATH, FUSED_ATTENTION, Switch
from tests.reference import models


def is_on(switch):
    flags = {
        FAST_PATH: torch.backends.mha.get_fastpath_enabled,
        CUDNN: _cudnn,
        FUSED_ATTENTION: torch.backends.cuda.flash_sdp_enabled,
    }
    return flags[switch]()


def _cudnn():
    return torch.backends.cudnn.enabled


@pytest.mark.parametrize("switch", [FAST_PATH, CUDNN, FUSED_ATTENTION])
def test_the_last_to_leave_puts_it_back(switch):
    first, second = switch.off(), switch.off()
    assert is_on(switch)
    first.__enter__()
    second.__enter__()
    assert not is_on(switch)
    first.__exit__(None, None, None)
    assert not is_on(switch)  # the second is still inside
    second.__exit__(None, None, None)
    assert is_on(switch)


@pytest.mark.parametrize("switch", [FAST_PATH, CUDNN, FUSED_ATTENTION])
def test_what_was_off_stays_off_and_errors_put_it_back(switch):
    def fail():
        with switch.off():
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert is_on(switch)
    if switch is CUDNN:
        with torch.backends.cudnn.flags(enabled=False):
            with switch.off():
                assert not is_on(switch)
            assert not is_on(switch)


def test_who_was_refused_is_not_waited_for():
    flag = {"on": True, "frozen": True}

    def put(value):
        if flag["frozen"]:
            raise RuntimeError("frozen")
        flag["on"] = value

    switch = Switch(lambda: flag["on"], put)
    with pytest.raises(RuntimeError, match="frozen"):
        switch.off().__enter__()
    flag["frozen"] = False
    with switch.off():
        assert not flag["on"]
    assert flag["on"]


class Slow(nn.Module):
    """Waits, at its first call, until another has been called, so that two solves overlap."""

    def __init__(self, mine, other):
        super().__init__()
        self.inner, self.mine, self.other = models.smooth_network(), mine, other

    def forward(self, x):
        self.mine.set()
        self.other.wait(20)
        return self.inner(x)


def test_profiles_in_two_threads_leave_the_fast_path_as_found():
    x, one, two = models.inputs(2), Event(), Event()
    settings = {"gamma": 9.0, "solver": cr.solvers.LBFGS(steps=3)}
    threads = [
        Thread(target=cr.credibility, args=(cr.Classifier(net), x), kwargs=settings)
        for net in (Slow(one, two), Slow(two, one))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert is_on(FAST_PATH)


def test_attention_is_in_plain_operations_where_it_is_differentiated_twice():
    with FUSED_ATTENTION.off():
        assert torch.backends.cuda.math_sdp_enabled()
        assert not torch.backends.cuda.mem_efficient_sdp_enabled()
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
        with FUSED_ATTENTION.off():
            assert torch.backends.cuda.math_sdp_enabled()
        assert not torch.backends.cuda.math_sdp_enabled()
        assert torch.backends.cuda.flash_sdp_enabled()
