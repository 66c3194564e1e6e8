"""Fixtures and settings of all tests."""

import os

# use_deterministic_algorithms requires this for matrix products on CUDA
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import pytest
import torch
from hypothesis import Phase, settings
from support.rnn_pairs import KINDS, LAYERS
from torch import Tensor

from cwrnn.kernels.cpu import loader

settings.register_profile("cwrnn", deadline=None, derandomize=True, print_blob=True)
# a mutant needs one failing example only, not the smallest one
settings.register_profile("mutants", settings.get_profile("cwrnn"), phases=[Phase.generate])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "cwrnn"))

TOLERANCES = {torch.float64: 1e-10, torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 2e-2}


@pytest.fixture(autouse=True)
def strict():
    """Start each test from the same seed, on one thread, with NaN in uninitialised memory."""
    threads = torch.get_num_threads()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    # cuDNN must not replace float32 by TF32, except where a test allows it
    torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cudnn.allow_tf32 = True
    torch.use_deterministic_algorithms(False)
    torch.set_num_threads(threads)


@pytest.fixture
def undrawn(monkeypatch):
    """Save all figures as empty pictures: drawing takes most of the time of a page."""

    def save(figure, file, **options):
        file.write(b'<svg viewBox="0 0 1 1"></svg>')

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", save)


@pytest.fixture(scope="session")
def close():
    """A function that compares tensors with the tolerance of their dtype."""

    def check(actual: Tensor, expected: Tensor, msg: str | None = None) -> None:
        tolerance = TOLERANCES[actual.dtype]
        torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance, msg=msg)

    return check


@pytest.fixture(params=loader.executable_isas())
def isa(request):
    """Run the test with each instruction set that the CPU kernels can use on this machine."""
    usual = loader.current_isa()
    loader.use_isa(request.param)
    yield request.param
    loader.use_isa(usual)


@pytest.fixture(params=LAYERS)
def make(request):
    """Run the test with the layers of torch, and with ours of one module."""
    return LAYERS[request.param]


@pytest.fixture(params=KINDS)
def kind(request):
    """Run the test for RNN, LSTM and GRU."""
    return request.param


@pytest.fixture(scope="session")
def sequence_store(tmp_path_factory):
    """A store of networks of all three methods that generate a sequence."""
    from support.inspected_networks import HOSTILE, make_sequence_store

    return make_sequence_store(tmp_path_factory.mktemp("sequences"), HOSTILE, methods=["srn", "lstm", "cw"])


@pytest.fixture(scope="session")
def word_store(tmp_path_factory):
    """A store of networks that tell four words apart."""
    from support.inspected_networks import make_word_store

    return make_word_store(tmp_path_factory.mktemp("words"), methods=["srn", "cw"], sizes=[600, 700])


@pytest.fixture(scope="session")
def inspected(sequence_store):
    """The measurements of the best network of the store of sequences."""
    from cwrnn.experiments.inspect.loading import load_network
    from cwrnn.experiments.inspect.measuring import measure_network

    return measure_network(load_network(sequence_store))


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    """A folder with four recordings of each of three words."""
    from support.made_recognisers import write_recordings

    return write_recordings(tmp_path_factory.mktemp("recordings"))


@pytest.fixture(scope="module")
def trained(recordings):
    """A recogniser that was trained on the recordings, and how its training went."""
    from support.made_recognisers import train_on_recordings

    return train_on_recordings(recordings)


@pytest.fixture(scope="module")
def recogniser(trained):
    return trained.recogniser


@pytest.fixture
def model(recogniser, tmp_path):
    """The file of the trained recogniser."""
    path = tmp_path / "model.safetensors"
    recogniser.save(path)
    return path
