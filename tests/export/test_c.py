"""The C program of every network computes what Python does."""

import pytest

from cwrnn import ClockworkRNN
from cwrnn.experiments.errors import ArgumentError
from cwrnn.export import to_c
from cwrnn.network import Network


def test_two_files_are_written_and_described(tmp_path):
    result = to_c(Network(ClockworkRNN(13, 102, schedule=6), 25), tmp_path / "out", name="word_model")
    assert [path.name for path in result.files] == ["word_model.h", "word_model.c"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["word_model.c", "word_model.h"]
    assert (result.inputs, result.outputs) == (13, 25)
    # as many as Schedule.operations counts, but never 7,395 at once
    assert (round(result.mean_multiply_adds), result.worst_multiply_adds) == (1519, 3060)
    assert result.state_bytes <= 2500


@pytest.mark.parametrize("name", ["", "2nd", "a-b", "_net", "int", "class", "é", "stdint", "aux", "a" * 41, None])
def test_names_that_c_cannot_use_are_refused(tmp_path, name):
    with pytest.raises(ArgumentError, match="name: expected"):
        to_c(ClockworkRNN(1, 4), tmp_path / "out", name=name)
    assert not (tmp_path / "out").exists()
