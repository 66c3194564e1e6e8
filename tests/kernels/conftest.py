"""Fixtures of the tests of the kernels."""

import os

import pytest
from support import emulated_gpu

from cwrnn.kernels.cpu import loader, sequence, stepping


@pytest.fixture(autouse=True, scope="session")
def checks():
    """Check what emulated programs do, in all tests, if the environment wants it: `make sanitize` does."""
    if os.environ.get("CWRNN_CHECK_PROGRAMS") != "1":
        yield
        return
    with emulated_gpu.checking():
        yield


@pytest.fixture
def calls(monkeypatch):
    """The calls of the library: the name of the function and the fields of its structure."""
    seen = []

    def spy(name, dtype, fields):
        seen.append((name, list(fields)))
        return loader.invoke(name, dtype, fields)

    monkeypatch.setattr(sequence, "invoke", spy)
    monkeypatch.setattr(stepping, "invoke", spy)
    return seen
