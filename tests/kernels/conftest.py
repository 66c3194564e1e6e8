"""Fixtures of the tests of the kernels."""

import pytest

from cwrnn.kernels.cpu import loader, sequence, stepping


@pytest.fixture
def calls(monkeypatch):
    """The calls of the library: the name of the function and the words of its structure."""
    seen = []

    def spy(name, dtype, words):
        seen.append((name, list(words)))
        return loader.invoke(name, dtype, words)

    monkeypatch.setattr(sequence, "invoke", spy)
    monkeypatch.setattr(stepping, "invoke", spy)
    return seen
