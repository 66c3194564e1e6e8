"""The corpus of the recordings that a recogniser is trained on."""

import pytest
from support.made_recognisers import load_recordings


@pytest.fixture(scope="module")
def corpus(recordings):
    return load_recordings(recordings)
