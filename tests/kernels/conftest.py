"""Fixtures of the tests of the kernels."""

import pytest

from cwrnn.kernels.cpu import loader, sequence, stepping


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
