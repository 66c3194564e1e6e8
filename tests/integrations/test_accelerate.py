"""Accelerate prepares, trains, saves and restores a network."""

import pytest
import torch
from support.delayed_input import make_examples, make_network, mean_squared_error
from torch.utils.data import DataLoader, TensorDataset

accelerate = pytest.importorskip("accelerate", reason="install the extra: pip install 'cwrnn[integrations]'")

pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(autouse=True)
def forget_the_last_accelerator():
    """Accelerate keeps the settings of the first accelerator of a process."""
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)


@pytest.mark.parametrize("precision", ["no", "bf16"])
def test_a_fit_lowers_the_error_and_a_saved_state_restores_it(tmp_path, precision):
    accelerator = accelerate.Accelerator(cpu=True, mixed_precision=precision)
    network = make_network()
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    loader = DataLoader(TensorDataset(*make_examples(64)), batch_size=16)
    network, optimizer, loader = accelerator.prepare(network, optimizer, loader)
    test = make_examples(32)
    before = mean_squared_error(network, test).item()
    for _ in range(10):
        for batch in loader:
            optimizer.zero_grad()
            accelerator.backward(mean_squared_error(network, batch))
            accelerator.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
    after = mean_squared_error(network, test).item()
    assert after < 0.9 * before

    accelerator.save_state(tmp_path)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
    accelerator.load_state(tmp_path)
    assert mean_squared_error(network, test).item() == after


def test_a_model_saved_by_accelerate_loads_into_a_new_network(tmp_path):
    accelerator = accelerate.Accelerator(cpu=True)
    network = accelerator.prepare(make_network())
    accelerator.save_model(network, tmp_path)
    fresh = make_network()
    accelerate.load_checkpoint_in_model(fresh, str(tmp_path))
    x, _ = make_examples(5)
    torch.testing.assert_close(fresh(x), network(x), rtol=0, atol=0)


def test_a_network_that_was_made_without_memory_is_filled_from_a_model_file(tmp_path):
    network = make_network()
    accelerate.Accelerator(cpu=True).save_model(network, tmp_path)
    with accelerate.init_empty_weights():
        empty = make_network()
    # with a device map, Accelerate sets parameters and buffers one by one, and does not know extra state
    filled = empty.to_empty(device="cpu")
    accelerate.load_checkpoint_in_model(filled, str(tmp_path))
    x, _ = make_examples(5)
    torch.testing.assert_close(filled(x), network(x), rtol=0, atol=0)
