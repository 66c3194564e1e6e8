"""Loading restores a saved state exactly, and refuses every other file with the reason."""

import json
import pickle

import numpy as np
import pytest
import safetensors.numpy
import torch
from support.rnn_pairs import CLOCKWORK

from cwrnn import LSTMState, State, load_state, save_state, tensor_files
from cwrnn.network import Network
from cwrnn.saved import ModelError, SavedNetwork


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state.safetensors"


def write(path, arrays, **metadata):
    """Write a file with a right checksum."""
    metadata = {"version": 1, "state": "State", "dtype": "float32", "t": 3} | metadata
    metadata = {name: value for name, value in metadata.items() if value is not ...}
    text = json.dumps(metadata | {"sha256": tensor_files.compute_digest(metadata, arrays)})
    path.write_bytes(safetensors.numpy.save(arrays, {"cwrnn": text}))


def refuse(path, text):
    with pytest.raises(ModelError) as caught:
        load_state(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert text in str(caught.value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("t", [0, 7, 2**62, torch.tensor([4, 0, 2**62])])
def test_a_state_is_restored_exactly(path, dtype, t):
    h, c = torch.randn(2, 3, 5, dtype=torch.float64).to(dtype), torch.randn(5, 3, 2).to(dtype).transpose(0, 2)
    states = [State(h, t), LSTMState(h, c, t)]
    if isinstance(t, int):
        states += [State(h[:, 0], t), LSTMState(h[:, 0], c[:, 0], t), State(h[:, :0], t)]
    for state in states:
        save_state(path, state)
        loaded = load_state(str(path))
        assert type(loaded) is type(state)
        for one, other in zip(loaded, state, strict=True):
            assert type(one) is type(other)
            assert torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other
        assert loaded.h.dtype == dtype


def test_a_stream_goes_on_from_a_file(path, close, kind):
    layer, x = CLOCKWORK[kind](2, 9, 2, schedule=(1, 2, 5), dtype=torch.float64), torch.randn(9, 3, 2).double()
    with torch.no_grad():
        _, state = layer(x[:5], lengths=[2, 5, 3], return_state=True)
        _, state = layer.step(x[5], state)
        save_state(path, state)
        expected, _ = layer(x[6:], state)
        close(layer(x[6:], load_state(path))[0], expected)


def test_saving_twice_gives_the_same_bytes(path):
    state = State(torch.full((1, 2, 3), torch.nan), torch.tensor([1, 2]))
    save_state(path, state)
    first = path.read_bytes()
    save_state(path, load_state(path))
    assert path.read_bytes() == first


def test_every_change_is_noticed(path):
    save_state(path, LSTMState(torch.randn(1, 2, 3), torch.randn(1, 2, 3), torch.tensor([1, 2])))
    data = path.read_bytes()
    for place in range(0, len(data), 7):
        path.write_bytes(data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :])
        with pytest.raises(ModelError):
            load_state(path)
    for length in range(0, len(data), 11):
        path.write_bytes(data[:length])
        with pytest.raises(ModelError):
            load_state(path)


ONE = {"h": np.zeros((1, 2, 3), "<f4")}


@pytest.mark.parametrize(
    ("arrays", "metadata", "text"),
    [
        (ONE, {"state": "Network"}, "state must be one of State, LSTMState, got 'Network'"),
        (ONE, {"state": ["State"]}, "state must be one of State, LSTMState, got ['State']"),
        (ONE, {"state": "LSTMState"}, "expected the tensors h, c, got ['h']"),
        (ONE | {"c": ONE["h"]}, {}, "expected the tensors h, got ['c', 'h']"),
        (ONE, {"dtype": "int64"}, "dtype must be one of float32, float64, bfloat16, float16, got 'int64'"),
        (ONE, {"dtype": "float64"}, "the tensors of a state of float64 must be float64"),
        (ONE, {"t": ...}, "this is not the state of a stream"),
        (ONE, {"more": 1}, "this is not the state of a stream"),
        (ONE, {"t": -1}, "t must be from 0 to 2**63 - 1"),
        (ONE, {"t": True}, "t must be from 0 to 2**63 - 1"),
        (ONE, {"t": 1.5}, "t must be from 0 to 2**63 - 1"),
        (ONE, {"t": [1, "2"]}, "t must be from 0 to 2**63 - 1"),
        (ONE, {"t": [1, 2**63]}, "t must be from 0 to 2**63 - 1"),
        (ONE, {"t": [1, 2, 3]}, "t has 3 clocks for 2 sequences"),
        ({"h": np.zeros((2, 3), "<f4")}, {"t": [1]}, "t has 1 clocks for one sequence"),
        ({"h": np.zeros(3, "<f4")}, {}, "a state has tensors (num_layers, B, N) or (num_layers, N), got [(3,)]"),
        (ONE | {"c": np.zeros((1, 3, 3), "<f4")}, {"state": "LSTMState"}, "a state has tensors"),
        (ONE, {"version": 2}, "saved in version 2 of the format"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(path, arrays, metadata, text):
    write(path, arrays, **metadata)
    refuse(path, text)


def test_other_files_are_refused(path):
    refuse(path, "cannot be read: No such file or directory")
    path.write_bytes(pickle.dumps(State(torch.zeros(1, 3), 0)))
    refuse(path, "this is not a safetensors file")
    path.write_bytes(safetensors.numpy.save({"h": np.zeros((1, 2, 3), "<f4")}))
    refuse(path, "a safetensors file, but not one that cwrnn saved")
    SavedNetwork("generation", "cw", Network(CLOCKWORK["RNN"](0, 6), 1)).save(path)
    refuse(path, "this is not the state of a stream")
    save_state(path, State(torch.zeros(1, 3), 0))
    with pytest.raises(ModelError):
        SavedNetwork.load(path)


@pytest.mark.parametrize(
    ("state", "error", "message"),
    [
        (torch.zeros(1, 3), TypeError, "state should be a State or an LSTMState, got: Tensor"),
        (State([0.0], 1), TypeError, "the parts of state should be Tensors, got: list"),
        (State(torch.zeros(1, 3, dtype=torch.int64), 1), ValueError, "must have one of the dtypes"),
        (LSTMState(torch.zeros(1, 3), torch.zeros(1, 3).double(), 1), ValueError, "float32 and torch.float64"),
        (State(torch.zeros(3), 1), ValueError, "a state has tensors"),
        (State(torch.zeros(1, 3), -1), ValueError, "state.t must be zero or greater"),
        (State(torch.zeros(1, 2, 3), torch.tensor([1])), ValueError, "one clock per sequence"),
        (
            State(torch.zeros(1, 3), 2**64),
            ValueError,
            r"state.t must be at most 2\*\*63 - 1, .* got 18446744073709551616",
        ),
    ],
)
def test_what_is_no_state_is_not_saved(path, state, error, message):
    with pytest.raises(error, match=message):
        save_state(path, state)
    assert not path.exists()


def test_what_could_not_be_loaded_replaces_no_file(path, monkeypatch):
    save_state(path, State(torch.zeros(1, 3), 2**63 - 1))
    with pytest.raises(ValueError, match=r"state.t must be at most 2\*\*63 - 1, .* got 9223372036854775808"):
        save_state(path, State(torch.zeros(1, 3), 2**63))
    monkeypatch.setattr(tensor_files, "LONGEST_HEADER", 1000)
    with pytest.raises(ValueError, match="the header would have .* bytes, and at most 1,000 can be read again"):
        save_state(path, State(torch.zeros(1, 500, 1), torch.arange(500)))
    monkeypatch.setattr(tensor_files, "LARGEST_FILE", 3000)
    with pytest.raises(ValueError, match="the file would have .* bytes, and at most 3,000 can be read again"):
        save_state(path, State(torch.zeros(1, 1000), 1))
    assert load_state(path).t == 2**63 - 1
