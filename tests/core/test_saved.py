"""Loading restores a saved network exactly, and refuses every other file with the reason."""

import functools
import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import torch

from cwrnn import ClockworkGRU, ClockworkLSTM, ClockworkRNN, tensor_files
from cwrnn.experiments.networks.build import build_network
from cwrnn.network import Network
from cwrnn.saved import ModelError, SavedNetwork
from cwrnn.schedule import Schedule

CLOCKS = Schedule((1, 3, 4), (3, 1, 2))


def network(method="cw", inputs=3, outputs=4, softmax=True):
    return build_network(method, 6, inputs, outputs, softmax=softmax, schedule=CLOCKS.spec, seed=1).float()


def example():
    return SavedNetwork("words", "cw", network(), {"mean": np.array([0.1, -1e-300])}, {"words": ["oui", "né"]})


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "model.safetensors"
    example().save(path)
    return path


def parts(path):
    """The metadata of a file, and its tensors."""
    with safetensors.safe_open(path, "numpy") as file:
        names = list(file.keys())
        return json.loads(file.metadata()["cwrnn"]), {name: file.get_tensor(name) for name in names}


def write(path, metadata, arrays):
    """Writes metadata and tensors with the right checksum; values that are ... are left out."""
    metadata = {name: value for name, value in metadata.items() if value is not ... and name != "sha256"}
    text = json.dumps(metadata | {"sha256": tensor_files.compute_digest(metadata, arrays)})
    path.write_bytes(safetensors.numpy.save(arrays, {"cwrnn": text}))


def refused(path, *words):
    with pytest.raises(ModelError) as caught:
        SavedNetwork.load(path)
    text = str(caught.value)
    assert text.startswith(f"{path}: ")
    assert "\n" not in text
    for word in words:
        assert word in text


def test_loading_restores_the_saved_network(path, close):
    before, after = example(), SavedNetwork.load(path)
    assert (after.kind, after.method, after.inputs, after.outputs) == ("words", "cw", 3, 4)
    assert after.schedule == Schedule((1, 3, 4), (3, 1, 2))
    assert after.about == {"words": ["oui", "né"]}
    assert list(after.tensors) == ["mean"]
    np.testing.assert_array_equal(after.tensors["mean"], [0.1, -1e-300])
    assert after.tensors["mean"].dtype == np.float64
    for (name, one), (other_name, other) in zip(
        before.network.named_parameters(), after.network.named_parameters(), strict=True
    ):
        assert name == other_name
        assert torch.equal(one, other)
    x = torch.randn(20, 2, 3)
    close(after.network(x), before.network(x))
    assert after.network(x).exp().sum(-1).allclose(torch.ones(20, 2))


def test_the_same_network_gives_the_same_bytes(path, tmp_path):
    SavedNetwork.load(path).save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == path.read_bytes()


def test_a_network_without_input_is_restored(tmp_path):
    path = tmp_path / "srn.safetensors"
    SavedNetwork("generation", "srn", network("srn", 0, 1, softmax=False)).save(path)
    after = SavedNetwork.load(path)
    assert (after.kind, after.method, after.inputs, after.outputs) == ("generation", "srn", 0, 1)
    assert after.schedule.spec == "1:6"
    assert not after.network.softmax
    assert after.about == {}
    assert after.network(torch.zeros(5, 1, 0)).shape == (5, 1, 1)


def test_safetensors_reads_the_file(path):
    metadata, arrays = parts(path)
    assert len(metadata.pop("sha256")) == 64
    assert metadata == {
        "version": 1,
        "kind": "words",
        "method": "cw",
        "schedule": "1:3,3:1,4:2",
        "inputs": 3,
        "outputs": 4,
        "softmax": True,
        "about": {"words": ["oui", "né"]},
    }
    assert {name: (str(array.dtype), array.shape) for name, array in arrays.items()} == {
        "layer.weight_ih_l0": ("float32", (6, 3)),
        "layer.weight_hh_l0": ("float32", (6, 6)),
        "layer.bias_l0": ("float32", (6,)),
        "readout.weight": ("float32", (4, 6)),
        "readout.bias": ("float32", (4,)),
        "mean": ("float64", (2,)),
    }


def test_only_clockwork_layers_can_be_saved():
    with pytest.raises(TypeError, match="only a ClockworkRNN, a ClockworkLSTM or a ClockworkGRU .* saved, got a GRU"):
        SavedNetwork("words", "gru", Network(torch.nn.GRU(3, 2), 4))
    with pytest.raises(ValueError, match=r"there is no 'cw-gru' with the cell 'tanh' and the schedule 1:3,3:1,4:2"):
        SavedNetwork("words", "cw-gru", network())
    with pytest.raises(ValueError, match=r"there is no 'srn' with the cell 'tanh' and the schedule 1:3,3:1,4:2"):
        SavedNetwork("words", "srn", network())


@pytest.mark.parametrize("option", [{"num_layers": 2}, {"bidirectional": True}, {"bias": False}])
@pytest.mark.parametrize("layer", [ClockworkRNN, ClockworkLSTM, ClockworkGRU])
def test_a_layer_that_a_file_cannot_hold_is_refused(layer, option):
    network = Network(layer(3, 8, schedule=[1, 2], **option), 2)
    with pytest.raises(ValueError, match=f"only a layer with {next(iter(option))}="):
        SavedNetwork("words", "cw", network)


@pytest.mark.parametrize(
    ("method", "layer"),
    [
        ("cw", ClockworkRNN(3, 6, nonlinearity="relu", schedule=CLOCKS)),
        ("cw-lstm", ClockworkLSTM(3, 6, schedule=CLOCKS)),
        ("cw-lstm", ClockworkLSTM(3, 6, schedule=CLOCKS, peepholes=True)),
        ("lstm", ClockworkLSTM(3, 6, schedule=1)),
        ("cw-gru", ClockworkGRU(3, 6, schedule=CLOCKS)),
        ("gru", ClockworkGRU(0, 6, schedule=1)),
    ],
    ids=str,
)
def test_loading_restores_every_layer(tmp_path, method, layer):
    path, x = tmp_path / "model.safetensors", torch.randn(20, 2, layer.input_size)
    before = Network(layer, 4, softmax=True)
    SavedNetwork("words", method, before).save(path)
    metadata, _ = parts(path)
    assert (metadata["cell"], metadata.get("peepholes", False)) == (layer.cell, layer.peepholes)
    after = SavedNetwork.load(path)
    assert repr(after.network) == repr(before)
    assert torch.equal(after.network(x), before(x))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cell": "tanh"}, "there is no 'cw-lstm' with the cell 'tanh'"),
        ({"cell": "often"}, "there is no 'cw-lstm' with the cell 'often'"),
        ({"cell": 1}, "cell must be of type str, got 1"),
        ({"peepholes": 1}, "peepholes must be of type bool, got 1"),
        ({"peepholes": ...}, "'layer.weight_ch_l0'"),
        ({"method": "cw-gru", "cell": "gru"}, "the cell 'gru' has no peepholes"),
        ({"method": "cw-gru", "cell": "gru", "peepholes": False}, "'layer.weight_ih_l0' must be float32 (18, 3)"),
        ({"schedule": "1:2,3:2,4:2"}, "its weights do not fit the schedule 1:2,3:2,4:2"),
    ],
)
def test_wrong_metadata_of_an_lstm_are_refused(tmp_path, changes, message):
    path = tmp_path / "model.safetensors"
    SavedNetwork("words", "cw-lstm", Network(ClockworkLSTM(3, 6, schedule=CLOCKS, peepholes=True), 4)).save(path)
    metadata, arrays = parts(path)
    if changes == {"peepholes": ...}:
        # without peepholes the tensor is an extra one, which must be float64
        arrays["layer.weight_ch_l0"] = np.full(18, np.nan)
    write(path, metadata | changes, arrays)
    refused(path, message)


def test_a_shortened_or_longer_file_is_refused(path):
    data = path.read_bytes()
    # every seventh length, and every length near the end, where the tensors are
    for end in [*range(0, len(data) - 40, 7), *range(len(data) - 40, len(data))]:
        path.write_bytes(data[:end])
        refused(path)
    path.write_bytes(data + b"\0")
    refused(path, "damaged")


def test_a_changed_bit_is_refused(path):
    """The spaces that pad the header are the only exception: they carry no meaning."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    end = 8 + len(data[8 : 8 + length].rstrip())
    assert data[end - 1 : end] == b"}"
    random = np.random.default_rng(0)
    for place in [*range(end), *range(8 + length, len(data))]:
        changed = bytearray(data)
        changed[place] ^= 1 << int(random.integers(8))
        path.write_bytes(changed)
        refused(path)


def test_files_of_other_formats_are_refused(path, tmp_path, monkeypatch):
    refused(tmp_path / "nowhere", "cannot be read: No such file or directory")
    refused(tmp_path, "cannot be read: Is a directory")
    for content in (b"RIFF....WAVEfmt ", b"{}", bytes(8), bytes(1000), b"\xff" * 100, "ä".encode() * 50):
        path.write_bytes(content)
        refused(path, "this is not a safetensors file")
    path.write_bytes(b"")
    refused(path, "empty")
    path.write_bytes((2).to_bytes(8, "little") + b"{}")
    refused(path, "a safetensors file, but not one that cwrnn saved")
    path.write_bytes((20).to_bytes(8, "little") + b'{"__metadata__":   1}')
    refused(path, "not JSON")
    path.write_bytes((10**5).to_bytes(8, "little") + b'{"a":' * (10**5 // 5))
    refused(path, "not JSON")
    safetensors.numpy.save_file({"weight": np.ones(3)}, path)
    refused(path, "a safetensors file, but not one that cwrnn saved")
    safetensors.numpy.save_file({"weight": np.ones(3)}, path, {"format": "pt"})
    refused(path, "a safetensors file, but not one that cwrnn saved")


class Bomb:
    exploded = False

    @staticmethod
    def explode():
        Bomb.exploded = True

    def __reduce__(self):
        return Bomb.explode, ()


def test_loading_executes_nothing(path):
    path.write_bytes(pickle.dumps(Bomb()))
    refused(path, "this is not a safetensors file")
    torch.save({"weight": torch.ones(3), "bomb": Bomb()}, path)
    refused(path, "this is not a safetensors file")
    assert not Bomb.exploded
    pickle.loads(pickle.dumps(Bomb()))
    assert Bomb.exploded


def test_an_edited_file_is_refused(path):
    metadata, arrays = parts(path)
    for changed in (metadata | {"about": {"words": ["oui", "no"]}}, metadata | {"sha256": ["0"]}, {"version": 1}):
        safetensors.numpy.save_file(arrays, path, {"cwrnn": json.dumps(changed)})
        refused(path, "damaged: its contents do not match its checksum")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 2}, "saved in version 2 of the format; this cwrnn reads version 1"),
        ({"version": ...}, "saved in version None of the format"),
        ({"about": ["words"]}, "about must be of type dict"),
        ({"schedule": "1:3,3:1,4:3"}, "'layer.weight_ih_l0' must be float32 (7, 3), got float32 (6, 3)"),
        ({"schedule": "1:1000000000000"}, "must be float32 (1000000000000, 3)"),
        ({"schedule": "1:2,3:2,4:2"}, "its weights do not fit the schedule 1:2,3:2,4:2"),
        ({"schedule": "often"}, "a schedule is written period:size,period:size,..., got 'often'"),
        ({"schedule": "0:6"}, "periods must be positive"),
        ({"schedule": 6}, "schedule must be of type str, got 6"),
        ({"inputs": 13}, "'layer.weight_ih_l0' must be float32 (6, 13)"),
        ({"inputs": -3}, "expected inputs >= 0"),
        ({"outputs": 25}, "'readout.weight' must be float32 (25, 6)"),
        ({"outputs": True}, "outputs must be of type int, got True"),
        ({"softmax": 1}, "softmax must be of type bool, got 1"),
        ({"softmax": ...}, "softmax must be of type bool, got None"),
        ({"method": "lstm"}, "there is no 'lstm' with the cell 'tanh' and the schedule"),
        ({"method": "srn"}, "there is no 'srn' with the cell 'tanh' and the schedule 1:3,3:1,4:2"),
        ({"kind": None}, "kind must be of type str"),
        ({"layers": 2}, "its metadata has unknown keys: ['layers']"),
    ],
)
def test_wrong_metadata_are_refused(path, changes, message):
    metadata, arrays = parts(path)
    write(path, metadata | changes, arrays)
    refused(path, message)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("readout.bias", None, "the tensor 'readout.bias' is missing"),
        ("readout.bias", np.zeros(5, np.float32), "'readout.bias' must be float32 (4,), got float32 (5,)"),
        ("readout.bias", np.zeros((4, 1), np.float32), "got float32 (4, 1)"),
        ("readout.bias", np.zeros(4), "got float64 (4,)"),
        ("readout.bias", np.zeros(4, np.float16), "the tensor 'readout.bias' is F16, expected one of F32, F64"),
        ("layer.weight_hh_l0", np.full((6, 6), np.nan, np.float32), "values that are not finite"),
        ("mean", np.array([0, np.inf]), "the tensor 'mean' has values that are not finite"),
        ("layer.weight_hh_l0", np.ones((6, 6), np.float32), "its weights do not fit the schedule"),
    ],
)
def test_wrong_tensors_are_refused(path, name, value, message):
    metadata, arrays = parts(path)
    arrays = {key: array for key, array in arrays.items() if key != name}
    if value is not None:
        arrays[name] = value
    write(path, metadata, arrays)
    refused(path, message)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"version": NaN}', '{"version": 1e999}', '{"a":' * 10**5])
def test_metadata_that_are_not_json_are_refused(path, text):
    safetensors.numpy.save_file(parts(path)[1], path, {"cwrnn": text})
    refused(path, "damaged: its metadata is not")


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ({"error": float("nan")}, "JSON"),
        ({"word": "\ud800"}, "surrogate"),
        ({"lifter": 10**400}, "does not fit into 64 bits"),
        (functools.reduce(lambda inner, _: {"a": inner}, range(40), {}), "nested deeper than 32 levels"),
    ],
)
def test_metadata_that_could_not_be_loaded_are_not_saved(tmp_path, about, message):
    with pytest.raises(ValueError, match=message):
        SavedNetwork("words", "cw", network(), about=about).save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"version": 1, "about": {"words": ["\\ud800"]}}', "half of a surrogate pair"),
        ('{"version": 1, "about": {"\\udfff": 1}}', "half of a surrogate pair"),
        (f'{{"version": 1, "lifter": 1{"0" * 400}}}', "does not fit into 64 bits"),
        (f'{{"version": 1, "lifter": {"9" * 10**6}}}', "does not fit into 64 bits"),
        ('{"version": 1, "version": 1}', "a key occurs twice"),
        ('{"version": 1, "about": ' + "[" * 500 + "]" * 500 + "}", "nested deeper than 32 levels"),
        ('{"version": 1, "about": ' + '{"a":' * 900 + "1" + "}" * 900 + "}", "nested deeper than 32 levels"),
    ],
)
def test_json_that_cannot_be_used_is_refused(path, text, message):
    safetensors.numpy.save_file(parts(path)[1], path, {"cwrnn": text})
    refused(path, "damaged: its metadata is not JSON", message)


def write_header(path, name, **changes):
    """Changes the entry of one tensor in the header of a file."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    header[name] = header.get(name, {}) | changes
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"shape": [0, 2**62], "data_offsets": [0, 0]}, "a shape that no file can have: [0, 4611686018427387904]"),
        ({"shape": [0, 2**31, 2**31], "data_offsets": [0, 0]}, "a shape that no file can have"),
        ({"shape": [2**62, 4], "data_offsets": [0, 0]}, "a shape that no file can have"),
        ({"shape": [1] * 65}, "has 65 dimensions, expected at most 8"),
        ({"shape": [0] * 100_000}, "has 100000 dimensions, expected at most 8"),
        ({"shape": [-4]}, "a shape or offsets that are not numbers"),
        ({"shape": [True]}, "a shape or offsets that are not numbers"),
        ({"shape": [4.0]}, "a shape or offsets that are not numbers"),
        ({"shape": "4"}, "a shape or offsets that are not numbers"),
        ({"data_offsets": [0, 2**60]}, "the offsets of the tensor 'new' do not fit its shape"),
        ({"data_offsets": [4, 0]}, "the offsets of the tensor 'new' do not fit its shape"),
        ({"data_offsets": []}, "the offsets of the tensor 'new' do not fit its shape"),
        ({"shape": [1], "data_offsets": [0, 4]}, "does not begin where the one before it ends"),
        ({"shape": [1], "data_offsets": [10**6, 10**6 + 4]}, "does not begin where the one before it ends"),
        ({"dtype": ["F32"]}, "expected one of F32, F64"),
        ({"dtype": "F" * 5000}, "expected one of F32, F64"),
        ({"color": "red"}, "must have a dtype, a shape and data_offsets"),
    ],
)
def test_a_header_that_makes_no_sense_is_refused(path, entry, message):
    write_header(path, "new", **{"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} | entry)
    refused(path, message)


def test_names_in_a_file_are_escaped(path):
    write_header(path, "\x1b[31m\n" + "a" * 1000, dtype="F16", shape=[0], data_offsets=[0, 0])
    refused(path, "the tensor '\\x1b[31m\\naaa", "... is F16")


def test_files_that_never_end_are_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "pipe", "cannot be read: it is not a regular file")
    refused(Path("/dev/zero"), "cannot be read: it is not a regular file")
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(2**40)
    refused(tmp_path / "sparse", "cannot be read: it has 1099511627776 bytes, but may have 4294967296 at most")


def test_names_that_no_file_can_have_are_refused(tmp_path):
    refused(tmp_path / ("a" * 5000), "cannot be read: File name too long")
    with pytest.raises(ModelError, match="cannot be read: the name has a NUL byte"):
        SavedNetwork.load(tmp_path / "a\0b")


@pytest.mark.parametrize("when", ["fsync", "replace"])
def test_an_interrupted_save_leaves_the_old_file(path, monkeypatch, when):
    before = path.read_bytes()

    def stop(*arguments):
        # a killed process would leave this file
        assert path.read_bytes() == before
        raise KeyboardInterrupt

    monkeypatch.setattr(os, when, stop)
    with pytest.raises(KeyboardInterrupt):
        SavedNetwork("generation", "srn", network("srn")).save(path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]
