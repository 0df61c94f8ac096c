"""Deterministic tests on two cores; `--device cuda` runs what can use a GPU on it."""

import os

import hypothesis
import pytest
import torch

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # JAX takes most of a GPU's memory for itself

hypothesis.settings.register_profile("default", deadline=None, max_examples=25, derandomize=True)
hypothesis.settings.load_profile("default")


def pytest_addoption(parser):
    parser.addoption("--device", default="cpu", help="where tests/device computes, such as cuda")


@pytest.fixture
def device(request):
    return torch.device(request.config.getoption("--device"))


@pytest.fixture(autouse=True)
def _one_thread_and_a_seed():
    torch.set_num_threads(1)  # pytest-xdist already fills the cores
    torch.manual_seed(0)
