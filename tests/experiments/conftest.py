"""Fixtures of the tests of the experiments."""

import pytest
from support import small_sweeps


@pytest.fixture
def waves():
    """Two short data sets."""
    return [small_sweeps.wave("one"), small_sweeps.wave("two", phase=1.0)]
