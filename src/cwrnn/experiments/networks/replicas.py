"""Replicas: many networks of one shape that run at once, each on a sequence of its own.

Their parameters lie in one tensor, a row per network. With the CPU kernel a network gives the same bits alone as
among others, on any number of threads: everything that no kernel computes is computed element by element.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import functional_call, vmap

from ...kernels import replicas as replica_kernel
from ...kernels.cpu import loader
from ...kernels.cpu import readout as readout_kernel
from ...layer import AnyLayer, ClockworkLayer
from ...network import Network
from . import lstm
from .models.model_layer import ModelLayer


class Replicas:
    """Networks of one shape that run at once.

    >>> from .build import build_network
    >>> replicas = Replicas([build_network("cw", 12, seed=seed) for seed in range(3)])
    >>> replicas.outputs(torch.zeros(3, 20, 0)).shape
    torch.Size([3, 20, 1])
    """

    def __init__(self, networks: Sequence[Network]) -> None:
        self.shape = networks[0]
        rows = [torch.cat([parameter.detach().flatten() for parameter in network.parameters()]) for network in networks]
        self._set(torch.stack(rows))
        self._fixed = _stack_fixed_weights(networks)

    def _set(self, values: Tensor) -> None:
        self.values = values
        self.parameters: dict[str, Tensor] = {}
        start = 0
        for name, parameter in self.shape.named_parameters():
            part = values[:, start : start + parameter.numel()]
            # leaves that share the memory of the values
            self.parameters[name] = part.view(len(values), *parameter.shape).detach().requires_grad_()
            start += parameter.numel()

    def keep(self, rows: Tensor) -> None:
        """Goes on with the networks of these rows only."""
        self._set(self.values[rows])
        self._fixed = {name: value[rows] for name, value in self._fixed.items()}

    def weights(self, values: Tensor) -> dict[str, NDArray[np.float32]]:
        """The parameters of one network by their names; `values` is its row."""
        parameters = list(self.shape.named_parameters())
        parts = values.split([parameter.numel() for _, parameter in parameters])
        return {name: part.view(p.shape).numpy().copy() for (name, p), part in zip(parameters, parts, strict=True)}

    def states(self, input: Tensor) -> Tensor:
        """The hidden states (S, T, N) for the input (S, T, I)."""
        if isinstance(self.shape.layer, ModelLayer):
            return self._model_states(input[:, :, None])[:, :, 0]
        if self._is_lstm:
            return lstm.run(input, *_lstm_weights(self._own()))
        if loader.refuse(input.device, input.dtype) is None:
            layer, weights, options = self._kernel_arguments()
            return replica_kernel.run_replicas(input, *weights, layer.schedule, **options)

        def one(parameters: Mapping[str, Tensor], input: Tensor) -> Tensor:
            output: Tensor = functional_call(self.shape.layer, dict(parameters), (input,))[0]
            return output

        return vmap(one)(self._own(), input)

    def _model_states(self, input: Tensor) -> Tensor:
        """The states (S, T, B, N) of a model for the input (S, T, B, I)."""
        layer, own = self.shape.layer, self._own()
        assert isinstance(layer, ModelLayer)

        def one(parameters: Mapping[str, Tensor], input: Tensor) -> Tensor:
            states: Tensor = functional_call(layer, dict(parameters), (input,))
            return states

        if len(input) > 1:
            return vmap(one)(own, input)
        # one network needs no vmap
        return one({name: value[0] for name, value in own.items()}, input[0])[None]

    def final_states(self, input: Tensor, lengths: Tensor) -> Tensor:
        """The hidden states (S, B, N) at the ends of B sequences for each network: the input is (S, T, B, I).

        Args:
            input: (S, T, B, I)
            lengths: (S, B) int64: the steps of each sequence
        """
        if isinstance(self.shape.layer, ModelLayer):
            # (S, B, T, N): the state at the last step of each sequence
            states = self._model_states(input).transpose(1, 2)
            S, B = lengths.shape
            return states[torch.arange(S)[:, None], torch.arange(B), lengths - 1]
        if self._is_lstm:
            return self._final_lstm(input, lengths, self._own())
        if loader.refuse(input.device, input.dtype) is None:
            layer, weights, options = self._kernel_arguments()
            return replica_kernel.run_to_end(input, *weights, layer.schedule, lengths, **options)
        own = self._own()

        def end(s: int) -> Tensor:
            weights = {name: value[s] for name, value in own.items()}
            _, final = functional_call(self.shape.layer, weights, (input[s],), {"lengths": lengths[s]})
            # an LSTM's is h and c
            h: Tensor = final[0] if isinstance(final, tuple) else final
            return h[0]

        return torch.stack([end(s) for s in range(len(input))])

    @property
    def _is_lstm(self) -> bool:
        """Whether the networks are LSTMs without clocks, for which there is a kernel that joins small networks."""
        layer = self.shape.layer
        return isinstance(layer, ClockworkLayer) and (layer.cell, layer.schedule.periods) == ("lstm", (1,))

    def _final_lstm(self, input: Tensor, lengths: Tensor, own: Mapping[str, Tensor]) -> Tensor:
        S, _, B, _ = input.shape

        def ends(input: Tensor, lengths: Tensor, weights: Mapping[str, Tensor]) -> Tensor:
            hidden = lstm.run(input, *_lstm_weights(weights), lengths)
            return hidden[torch.arange(len(hidden)), lengths - 1]

        if B == 1:
            return ends(input[:, :, 0], lengths[:, 0], own)[:, None]
        # one network on B sequences is B networks that share their weights
        final = [
            ends(
                input[s].transpose(0, 1),
                lengths[s],
                {name: value[s].expand(B, *value.shape[1:]) for name, value in own.items()},
            )
            for s in range(S)
        ]
        return torch.stack(final)

    def decide(self, input: Tensor, lengths: Tensor) -> Tensor:
        """The outputs (S, B, O) at the ends of B sequences for each network; arguments as `final_states`."""
        return self._read(self.final_states(input, lengths))

    def outputs(self, input: Tensor) -> Tensor:
        """The outputs (S, T, O) for the input (S, T, I)."""
        return self._read(self.states(input))

    def _own(self) -> dict[str, Tensor]:
        """The parameters and fixed weights of the hidden layers, by their names in the layer."""
        own = {name.removeprefix("layer."): value for name, value in self.parameters.items() if "layer." in name}
        return {**own, **self._fixed}

    def _kernel_arguments(self) -> tuple[AnyLayer, tuple[Tensor, Tensor, Tensor], dict[str, Any]]:
        """The layer of one network, and the weights and options of all for the kernel."""
        layer, own = self.shape.layer, self._own()
        assert isinstance(layer, ClockworkLayer)
        weights = own["weight_ih_l0"], own["weight_hh_l0"], own["bias_l0"]
        return layer, weights, {"cell": layer.cell, "weight_ch": own.get("weight_ch_l0")}

    def _read(self, hidden: Tensor) -> Tensor:
        """The outputs (S, T, O) of the states (S, T, N)."""
        weight, bias = self.parameters["readout.weight"], self.parameters["readout.bias"]
        if loader.refuse(hidden.device, hidden.dtype) is None:
            outputs = readout_kernel.run(hidden, weight, bias)
        else:
            outputs = torch.einsum("stn,son->sto", hidden, weight) + bias[:, None]
        return outputs.log_softmax(-1) if self.shape.softmax else outputs


def _stack_fixed_weights(networks: Sequence[Network]) -> dict[str, Tensor]:
    """The weights of S models that are not trained, (S, ...), by their names in the layer."""
    layers = [network.layer for network in networks]
    if not isinstance(layers[0], ModelLayer):
        return {}
    names = layers[0].state_dict().keys() - dict(layers[0].named_parameters()).keys()
    return {name: torch.stack([layer.get_buffer(name) for layer in layers]) for name in sorted(names)}


def _lstm_weights(own: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    """The weights of S LSTMs as `lstm.run` takes them."""
    peepholes = own.get("weight_ch_l0")
    if peepholes is not None:
        peepholes = peepholes.unflatten(-1, (3, -1))
    return own["weight_ih_l0"], own["weight_hh_l0"], peepholes, own["bias_l0"]
