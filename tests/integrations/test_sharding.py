"""FSDP2 shards a network over two processes, and torch.distributed.checkpoint saves and restores it.

Run as a script, this file is one of the two processes.
"""

import sys
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from support.delayed_input import make_examples, make_network, mean_squared_error
from support.python_processes import run_two_ranks
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

pytestmark = pytest.mark.integrations

SCHEDULE = "1:8,2:4,8:4"


def train(network, batch):
    """Train for three steps. Return the last error."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.01, weight_decay=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        error = mean_squared_error(network, batch)
        error.backward()
        optimizer.step()
    return error.item()


def make_sharded():
    torch.manual_seed(0)
    network = make_network(SCHEDULE)
    fully_shard(network.layer)
    # the readout asks the layer for its ticks: FSDP gathers the weights around these methods only
    register_fsdp_forward_method(network.layer, "ticks")
    fully_shard(network)
    return network


def train_shards(folder, rank):
    """Train on half of the batch, save, and load into a fresh network. The results go to a file."""
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2, timeout=timedelta(seconds=60)
    )
    x, target = make_examples(8)
    network = make_sharded()
    train(network, (x.chunk(2)[rank], target.chunk(2)[rank]))
    dcp.save({"network": network.state_dict()}, checkpoint_id=folder / "checkpoint")

    restored = make_sharded()
    sharded = {"network": restored.state_dict()}
    dcp.load(sharded, checkpoint_id=folder / "checkpoint")
    restored.load_state_dict(sharded["network"])
    full = get_model_state_dict(network, options=StateDictOptions(full_state_dict=True))
    outputs = {"trained": network(x).detach(), "restored": restored(x).detach()}
    if rank == 0:
        torch.save({"outputs": outputs, "state": full}, folder / "result.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def sharded(tmp_path_factory):
    """The folder in which two processes have trained, and what they found."""
    folder = tmp_path_factory.mktemp("sharding")
    run_two_ranks(__file__, folder)
    return folder, torch.load(folder / "result.pt", weights_only=True)


def test_shards_train_like_the_whole_network(close, sharded):
    _, result = sharded
    torch.manual_seed(0)
    network = make_network(SCHEDULE)
    train(network, make_examples(8))
    for name, parameter in network.named_parameters():
        close(result["state"][name], parameter.detach())


def test_a_checkpoint_restores_a_sharded_network(sharded):
    _, result = sharded
    torch.testing.assert_close(result["outputs"]["restored"], result["outputs"]["trained"], rtol=0, atol=0)


def test_the_gathered_state_loads_into_a_network_without_shards(sharded):
    _, result = sharded
    network = make_network(SCHEDULE)
    network.load_state_dict(result["state"])
    x, _ = make_examples(8)
    torch.testing.assert_close(network(x).detach(), result["outputs"]["trained"])


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled, unavailable or uninitialized:UserWarning")
def test_a_checkpoint_of_shards_loads_into_a_network_without_shards(sharded):
    folder, result = sharded
    network = make_network(SCHEDULE)
    values = {"network": network.state_dict()}
    dcp.load(values, checkpoint_id=folder / "checkpoint", no_dist=True)
    network.load_state_dict(values["network"])
    x, _ = make_examples(8)
    torch.testing.assert_close(network(x).detach(), result["outputs"]["trained"])


if __name__ == "__main__":
    train_shards(Path(sys.argv[1]), int(sys.argv[2]))
