"""State dicts of a layer: the clocks that are kept with the weights, and the entries that a layer can load.

A layer's state_dict has an entry `_extra_state`, a small float32 tensor of integers that describes its modules. Loading
compares it with the layer, because weights of equal shape compute something else with other clocks. State dicts of
earlier versions have no such entry and load without the comparison.

Why the entry is extra state, and a tensor:

* A buffer would be sent to all processes by DDP at every call, averaged with the weights, and left without values by
  `to_empty`. Extra state is computed when the state_dict is made, and has no memory that anything could overwrite.
* The metadata of a state_dict are lost in safetensors files, in distributed checkpoints, and in copies of the dict.
* Text cannot be stored in a safetensors file; a tensor can.
* The mean of several state dicts, and moving averages in place, need floating-point numbers. Not every
  device has float64.
"""

import warnings
from collections.abc import Iterable, MutableMapping
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn import Parameter

from .cells import CELLS
from .schedule import Schedule

TORCH_NAMES = {"tanh": "a torch.nn.RNN", "relu": "a torch.nn.RNN", "lstm": "a torch.nn.LSTM", "gru": "a torch.nn.GRU"}
"""The layers of torch that compute the same as ours with one module of period 1, by the names of the cells."""

EXTRA_STATE = "_extra_state"
"""The name that torch gives to the extra state of a module in a state_dict."""


def pack_integers(rows: Iterable[Iterable[int]]) -> Tensor:
    """A tensor of float32 with these rows, as extra state for a state_dict."""
    # the device is explicit, so that `with torch.device("meta")` does not take the values away
    return torch.tensor([list(row) for row in rows], dtype=torch.float32, device="cpu")


def equals_stored(own: Tensor, stored: Any) -> bool:
    """Whether extra state from a state_dict equals `own`.

    The entries of a state_dict may all have been averaged or cast: numbers are equal if they differ by a 16384th at
    most, or by the rounding of a coarser dtype. A tensor without values, on the meta device or a fake one, is equal if
    its shape is.
    """
    if not is_real_matrix(stored) or stored.shape != own.shape:
        return False
    if stored.is_meta or isinstance(stored, FakeTensor):
        return True
    # the rounding of many steps adds up
    rounding = 4 * torch.finfo(stored.dtype).eps if stored.is_floating_point() else 0.0
    return torch.allclose(_whole(stored).double(), own.double(), rtol=max(rounding, 2**-14), atol=0)


def describe_stored_schedule(stored: Any) -> str:
    """The text form of the schedule in a state_dict, or "unreadable" and the value if it is none."""
    if is_real_matrix(stored) and len(stored) == 2 and not stored.is_meta:
        periods, sizes = _whole(stored).double().round().long().tolist()
        try:
            return Schedule(tuple(periods), tuple(sizes)).spec
        except ValueError:
            pass
    return f"unreadable: {stored!r}"


def is_real_matrix(value: Any) -> bool:
    """Whether `value` is a dense tensor of two dimensions with real numbers in it."""
    return (
        isinstance(value, Tensor) and value.dim() == 2 and value.layout is torch.strided and not value.dtype.is_complex
    )


def _whole(value: Tensor) -> Tensor:
    """`value` on the CPU, and complete where every process holds a part of it."""
    return getattr(value, "full_tensor", lambda: value)().detach().cpu()


@torch.no_grad()
def prepare_entries(
    state_dict: MutableMapping[str, Any],
    prefix: str,
    schedule: Schedule,
    suffixes: Iterable[str],
    has_bias: bool,
    cell: str,
) -> str | None:
    """Makes the entries of one layer in `state_dict` fit the layer, or returns the reason why they cannot be loaded.

    The stored schedule is compared and removed. The two biases of a layer of torch become one. Weights from fast
    modules to slow ones become zeros, in a copy: the tensors of the caller are never written to.

    Args:
        state_dict: the entries of all layers; those of this layer are replaced in place
        prefix: the beginning of the names of this layer's entries
        schedule: the schedule of the layer
        suffixes: the ends of its parameters' names, such as "_l0"
        has_bias: whether it has biases
        cell: the name of its cell
    """
    name = prefix + EXTRA_STATE
    has_schedule = name in state_dict
    if has_schedule:
        stored = state_dict.pop(name)
        if not equals_stored(pack_integers((schedule.periods, schedule.sizes)), stored):
            return (
                f'schedule mismatch for "{name}": the weights were saved with the schedule '
                f"{describe_stored_schedule(stored)}, but this layer has the schedule {schedule.spec}. "
                f"To load weights into a layer with other clocks, remove this entry from the state_dict."
            )
    dropped = False
    for suffix in suffixes:
        if not _join_biases(state_dict, prefix, suffix, schedule, has_bias, cell):
            name = TORCH_NAMES[cell]
            return (
                f'schedule mismatch for "{prefix}bias_ih{suffix}": the weights are those of {name}, '
                f"a layer with one module of period 1, but this layer has the schedule {schedule.spec}."
            )
        # torch.nn.utils.prune keeps the weight under the second name
        for weight in (f"{prefix}weight_hh{suffix}", f"{prefix}weight_hh{suffix}_orig"):
            if isinstance(state_dict.get(weight), Tensor):
                cleared = copy_without_forbidden(state_dict[weight], schedule, CELLS[cell].gates)
                dropped |= cleared is not state_dict[weight]
                state_dict[weight] = cleared
    if dropped and not has_schedule:
        warnings.warn(
            f"the state_dict names no schedule, and has weights from fast modules to slow ones, "
            f"which a layer with the schedule {schedule.spec} does not have: they are loaded as zeros",
            stacklevel=2,
        )
    return None


def join_biases(cell: str, bias_ih: Tensor, bias_hh: Tensor) -> Tensor:
    """The one bias of our layer from the two biases of torch's, gate after gate.

    Only their sum matters, except for the gate n of a GRU, whose second bias is inside the reset product.
    """
    if cell != "gru":
        return bias_ih + bias_hh
    N = bias_ih.shape[0] // 3
    return torch.cat((bias_ih[: 2 * N] + bias_hh[: 2 * N], bias_ih[2 * N :], bias_hh[2 * N :]))


def split_bias(cell: str, bias: Tensor) -> tuple[Tensor, Tensor]:
    """The two biases of torch's layer from the one bias of ours: the second is zero, except for the gate n of a GRU."""
    if cell != "gru":
        return bias, torch.zeros_like(bias)
    N = bias.shape[0] // 4
    return bias[: 3 * N], torch.cat((torch.zeros_like(bias[: 2 * N]), bias[3 * N :]))


def _join_biases(
    state_dict: MutableMapping[str, Any], prefix: str, suffix: str, schedule: Schedule, has_bias: bool, cell: str
) -> bool:
    """Replaces the two biases of a torch layer by one; False if the layer's schedule is not that of torch's."""
    names = f"{prefix}bias_ih{suffix}", f"{prefix}bias_hh{suffix}"
    biases = [state_dict[name] for name in names if isinstance(state_dict.get(name), Tensor)]
    if len(biases) < 2 or f"{prefix}bias{suffix}" in state_dict:
        return True
    if schedule.periods != (1,):
        return False
    # biases that do not fit stay, and torch reports unexpected keys
    if has_bias and biases[0].shape == biases[1].shape:
        state_dict[f"{prefix}bias{suffix}"] = join_biases(cell, *biases)
        for name in names:
            del state_dict[name]
    return True


def copy_without_forbidden(weight: Tensor, schedule: Schedule, gates: int) -> Tensor:
    """`weight` (gates N, N) with zeros from fast modules to slow ones: a copy, or `weight` itself if they are zero.

    A weight of another shape, or without values, is returned as it is.
    """
    if weight.shape != (gates * schedule.hidden_size, schedule.hidden_size) or weight.is_meta:
        return weight
    local, forbidden = _local_part(weight, schedule, gates)
    # a fake tensor, or a tensor of another subclass, may have no values to look at
    if type(local) not in (Tensor, Parameter) or not local[forbidden].any():
        return weight
    copy = weight.detach().clone()
    clear_forbidden(copy, schedule, gates)
    return copy


@torch.no_grad()
def clear_forbidden(weight: Tensor, schedule: Schedule, gates: int) -> None:
    """Sets the weights from fast modules to slow ones in `weight` (gates N, N) to zero, in place."""
    local, forbidden = _local_part(weight, schedule, gates)
    local.masked_fill_(forbidden, 0)


def _local_part(weight: Tensor, schedule: Schedule, gates: int) -> tuple[Tensor, Tensor]:
    """The part of `weight` (gates N, N) that this process holds, and the mask of its forbidden weights."""
    forbidden = torch.from_numpy(~schedule.mask()).to(weight.device).repeat(gates, 1)
    if type(weight) in (Tensor, Parameter):
        return weight, forbidden
    # imported here, because it takes long and most weights are ordinary tensors
    from torch.distributed.tensor import DTensor, Replicate

    if not isinstance(weight, DTensor):
        return weight, forbidden
    # every process has the whole mask, and takes its part without communication
    mesh = weight.device_mesh
    whole = DTensor.from_local(forbidden, mesh, [Replicate()] * mesh.ndim, run_check=False)
    return weight.to_local(), whole.redistribute(placements=weight.placements).to_local()
