"""Training in two processes equals training in one, with the parameters replicated (DDP) or sharded (FSDP2).

Run as a script, this file is one of the two processes.
"""

import sys
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from support.python_processes import run_two_ranks
from support.rnn_pairs import LAYERS, I, join
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import distribute_tensor

from cwrnn import ClockworkGRU, ClockworkLSTM, ClockworkRNN

REPLICATED = {
    "RNN": LAYERS["RNN"],
    "ClockworkRNN": LAYERS["ClockworkRNN"],
    "modules": partial(ClockworkRNN, schedule=(1, 2, 4)),
    "LSTM": partial(ClockworkLSTM, schedule=(1, 2, 4), peepholes=True),
    "GRU": partial(ClockworkGRU, schedule=(1, 2, 4)),
}


def train(layer, parameters, x):
    """Train for three steps with weight decay. Return the first gradients, and the last parameters."""
    optimizer = torch.optim.AdamW(parameters.values(), lr=0.1, weight_decay=0.1)
    gradients = {}
    for _ in range(3):
        optimizer.zero_grad()
        output, hidden = layer(x)
        (output.square().mean() + join(hidden).sin().mean()).backward()
        gradients = gradients or {name: p.grad.clone() for name, p in parameters.items()}
        optimizer.step()
    return {"gradients": gradients, "parameters": {name: p.detach() for name, p in parameters.items()}}


def train_in_one_of_two_processes(folder, rank):
    """Train on half of the batch. The input and the weights come from a file; the results go to a file."""
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2, timeout=timedelta(seconds=60)
    )
    job = torch.load(folder / "job.pt", weights_only=True)
    x = job["input"].chunk(2, dim=1)[rank]
    results = {}
    for kind, state in job["states"].items():
        layer = REPLICATED[kind](I, 9, 2, dtype=torch.float64)
        # process 1 keeps its own initial values: DDP replaces them by those of process 0
        if rank == 0:
            layer.load_state_dict(state)
        distributed = nn.parallel.DistributedDataParallel(layer)
        results[kind] = train(distributed, dict(layer.named_parameters()), x)
    torch.save(results, folder / f"result{rank}.pt")
    torch.save(train_sharded(folder, x, job["states"]["modules"]), folder / f"sharded{rank}.pt")
    torch.save(train_sharded_lstm(x, job["states"]["LSTM"]), folder / f"lstm{rank}.pt")
    # neither process may leave while the other one still talks to it
    dist.barrier()
    dist.destroy_process_group()


def make_sharded(schedule, make=ClockworkRNN):
    """A layer whose parameters are spread over both processes, with random initial values."""
    with torch.device("meta"):
        layer = make(I, 9, 2, dtype=torch.float64, schedule=schedule)
    fully_shard(layer, mesh=dist.device_mesh.init_device_mesh("cpu", (2,)))
    layer.to_empty(device="cpu")
    layer.reset_parameters()
    return layer


def gather(parameters):
    return {name: value.full_tensor() for name, value in parameters.items()}


def train_from(layer, x, state):
    """Train a sharded layer from `state`; return whole tensors."""
    parameters = dict(layer.named_parameters())
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(distribute_tensor(state[name], parameter.device_mesh, parameter.placements))
    return {group: gather(tensors) for group, tensors in train(layer, parameters, x).items()}


def train_sharded_lstm(x, state):
    """Train a sharded LSTM from `state`, whose parts hold rows of different gates. Return whole tensors."""
    layer = make_sharded((1, 2, 4), partial(ClockworkLSTM, peepholes=True))
    drawn = gather(dict(layer.named_parameters()))
    return train_from(layer, x, state) | {"drawn": drawn}


def train_sharded(folder, x, state):
    """Train a sharded layer from `state`, and load state dicts into others. Return whole tensors."""
    layer = make_sharded((1, 2, 4))
    results = train_from(layer, x, state)

    dcp.save({"layer": layer.state_dict()}, checkpoint_id=folder / "checkpoint")
    loaded = make_sharded((1, 2, 4))
    target = {"layer": loaded.state_dict()}
    dcp.load(target, checkpoint_id=folder / "checkpoint")
    loaded.load_state_dict(target["layer"])

    # a state_dict without a schedule, with weights that a layer with several clocks does not have
    dense, cleared = make_sharded((1,)), make_sharded((1, 2, 4))
    with pytest.warns(UserWarning, match="they are loaded as zeros"):
        cleared.load_state_dict(dict(dense.named_parameters()), assign=True)

    with pytest.raises(RuntimeError, match="schedule 1:3,2:3,4:3, but this layer has the schedule 1:3,2:3,8:3"):
        make_sharded((1, 2, 8)).load_state_dict(layer.state_dict())

    layers = {"loaded": loaded, "dense": dense, "cleared": cleared, "drawn": make_sharded((1, 2, 4))}
    results |= {name: gather(dict(other.named_parameters())) for name, other in layers.items()}
    return results | {"output": layer(x)[0], "loaded output": loaded(x)[0]}


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory):
    """The results of one process with the whole batch, and of two with half of it each: replicated, and sharded."""
    folder = tmp_path_factory.mktemp("two_processes")
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(23, 6, I, dtype=torch.float64, generator=generator)
    layers = {kind: make(I, 9, 2, dtype=torch.float64) for kind, make in REPLICATED.items()}
    states = {kind: layer.state_dict() for kind, layer in layers.items()}
    torch.save({"input": x, "states": states}, folder / "job.pt")
    run_two_ranks(__file__, folder)
    halves = [torch.load(folder / f"result{rank}.pt", weights_only=True) for rank in (0, 1)]
    sharded = [torch.load(folder / f"sharded{rank}.pt", weights_only=True) for rank in (0, 1)]
    for rank in (0, 1):
        sharded[rank]["LSTM"] = torch.load(folder / f"lstm{rank}.pt", weights_only=True)
    whole = {kind: train(layer, dict(layer.named_parameters()), x) for kind, layer in layers.items()}
    return whole, halves, sharded


@pytest.mark.parametrize("kind", REPLICATED)
def test_two_processes_train_like_one(close, two_processes, kind):
    """The averaged gradients are those of the whole batch, and both processes end with the same parameters."""
    whole, halves, _ = two_processes
    for half in halves:
        for group, tensors in whole[kind].items():
            assert half[kind][group].keys() == tensors.keys()
            for name, expected in tensors.items():
                close(half[kind][group][name], expected, msg=lambda text, at=f"{group} {name}": f"{at}: {text}")


def test_distributed_training_keeps_forbidden_weights_at_zero(two_processes):
    _, halves, _ = two_processes
    for kind in ("modules", "LSTM", "GRU"):
        layer = REPLICATED[kind](I, 9)
        forbidden = torch.from_numpy(~layer.schedule.mask()).repeat(len(layer.weight_hh_l0) // 9, 1)
        for half in halves:
            for name in ("weight_hh_l0", "weight_hh_l1"):
                weight = half[kind]["parameters"][name]
                assert weight[forbidden].count_nonzero() == 0
                assert weight[~forbidden].count_nonzero() == (~forbidden).sum()


def test_sharded_parameters_train_like_whole_ones(close, two_processes):
    whole, _, sharded = two_processes
    for part in sharded:
        for kind, found in (("modules", part), ("LSTM", part["LSTM"])):
            for group, tensors in whole[kind].items():
                for name, expected in tensors.items():
                    close(found[group][name], expected, msg=lambda text, at=f"{group} {name}": f"{at}: {text}")


def test_a_distributed_checkpoint_restores_a_sharded_layer(two_processes):
    _, _, sharded = two_processes
    for part in sharded:
        assert torch.equal(part["loaded output"], part["output"])
        for name, value in part["parameters"].items():
            assert torch.equal(part["loaded"][name], value)


def test_sharded_layers_have_no_forbidden_weights(two_processes):
    _, _, sharded = two_processes
    forbidden = torch.from_numpy(~REPLICATED["modules"](I, 9).schedule.mask())
    for part in sharded:
        for name in ("weight_hh_l0", "weight_hh_l1"):
            for layer in ("drawn", "cleared"):
                assert part[layer][name][forbidden].count_nonzero() == 0
                assert part[layer][name][~forbidden].count_nonzero() == (~forbidden).sum()
            assert torch.equal(part["cleared"][name][~forbidden], part["dense"][name][~forbidden])
            # loading does not write into the tensors that it is given
            assert part["dense"][name].count_nonzero() == 81
            by_gate = part["LSTM"]["drawn"][name].view(4, 9, 9)
            assert by_gate[:, forbidden].count_nonzero() == 0
            assert by_gate[:, ~forbidden].count_nonzero() == 4 * (~forbidden).sum()


if __name__ == "__main__":
    train_in_one_of_two_processes(Path(sys.argv[1]), int(sys.argv[2]))
