"""A trained recogniser and the recordings behind it, made once for each file of tests."""

import pytest
from support.made_recognisers import load_recordings, train_on_recordings, write_recordings


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_recordings(tmp_path_factory.mktemp("recordings"))


@pytest.fixture(scope="module")
def corpus(folder):
    return load_recordings(folder)


@pytest.fixture(scope="module")
def trained(folder):
    return train_on_recordings(folder)


@pytest.fixture(scope="module")
def recogniser(trained):
    return trained.recogniser


@pytest.fixture
def model(recogniser, tmp_path):
    path = tmp_path / "model.safetensors"
    recogniser.save(path)
    return path
