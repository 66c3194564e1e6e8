"""The parameters of a layer: their names and initial values, how many exist, and how they are loaded."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from .backends import release_weights
from .cells import CELLS, PEEPHOLES
from .schedule import Schedule
from .state_dicts import clear_forbidden, pack_integers, prepare_entries


class LayerParameters(nn.Module):
    """The parameters of all layers and directions of a layer, whose class documents them.

    They are named as those of torch's layers: `weight_ih_l0`, `weight_hh_l0`, `bias_l0`, `weight_ih_l0_reverse`, ...
    """

    input_size: int
    hidden_size: int
    num_layers: int
    bias: bool
    bidirectional: bool
    schedule: Schedule
    weight_ih_l0: Tensor
    weight_hh_l0: Tensor
    peepholes: bool = False
    """Whether the layer has peepholes, as only an LSTM can."""

    @property
    def cell(self) -> str:
        """The name of the layer's cell: "tanh", "relu", "lstm" or "gru"."""
        raise NotImplementedError

    def _create_parameters(self, device: torch.device | str | int | None, dtype: torch.dtype | None) -> None:
        gates, biases, _ = CELLS[self.cell]
        for layer in range(self.num_layers):
            features = self.input_size if layer == 0 else self.hidden_size * self.num_directions
            shapes: dict[str, tuple[int, ...]] = {
                "weight_ih": (gates * self.hidden_size, features),
                "weight_hh": (gates * self.hidden_size, self.hidden_size),
            }
            if self.bias:
                shapes["bias"] = (biases * self.hidden_size,)
            if self.peepholes:
                shapes["weight_ch"] = (PEEPHOLES * self.hidden_size,)
            for suffix in self._suffixes(layer):
                for name, shape in shapes.items():
                    value = torch.empty(shape, device=device, dtype=dtype)
                    self.register_parameter(f"{name}{suffix}", nn.Parameter(value))

    @property
    def num_directions(self) -> int:
        """2 if the layer is bidirectional, else 1."""
        return 2 if self.bidirectional else 1

    def reset_parameters(self) -> None:
        """Draws new initial values, uniform in +-1 / sqrt(hidden_size) as torch does."""
        bound = 1.0 / math.sqrt(self.hidden_size)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)
        self.clear_forbidden_weights()

    @torch.no_grad()
    def clear_forbidden_weights(self) -> None:
        """Sets the weights from fast modules to slow ones to zero.

        No computation reads them. Call this after you fill `weight_hh` yourself, if you look at it or save it.
        """
        for suffix in self._all_suffixes():
            # torch.nn.utils.prune keeps the weight under the second name
            for name in (f"weight_hh{suffix}", f"weight_hh{suffix}_orig"):
                parameter = self._parameters.get(name)
                if parameter is not None:
                    clear_forbidden(parameter, self.schedule, CELLS[self.cell].gates)

    def count_parameters(self) -> int:
        """The number of parameters that exist: weights from fast modules to slow ones are not counted.

        >>> import cwrnn
        >>> rnn = cwrnn.ClockworkRNN(13, 104, schedule=8)
        >>> rnn.count_parameters(), sum(parameter.numel() for parameter in rnn.parameters())
        (7540, 12272)
        """
        gates, biases, _ = CELLS[self.cell]
        others = self.hidden_size * (biases * self.bias + PEEPHOLES * self.peepholes)
        layers = 0
        for layer in range(self.num_layers):
            features = self.input_size if layer == 0 else self.hidden_size * self.num_directions
            layers += gates * (self.hidden_size * features + self.schedule.recurrent_parameter_count()) + others
        return layers * self.num_directions

    def _apply(self, fn: Any, recurse: bool = True) -> "LayerParameters":
        # `to` may swap the parameters for new ones, which torch refuses while anything refers to them weakly
        release_weights(self.parameters())
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self

    def get_extra_state(self) -> Tensor:
        """The schedule, for the state_dict: the periods and the sizes of the modules, (2, G)."""
        return pack_integers((self.schedule.periods, self.schedule.sizes))

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        # load_state_dict has copied the dict, so that entries may be replaced
        problem = prepare_entries(state_dict, prefix, self.schedule, self._all_suffixes(), self.bias, self.cell)
        if problem is not None:
            error_msgs.append(problem)
            return
        # loading may swap the parameters as well
        release_weights(self.parameters())
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )

    def _suffixes(self, layer: int) -> list[str]:
        return [f"_l{layer}", f"_l{layer}_reverse"][: self.num_directions]

    def _all_suffixes(self) -> list[str]:
        return [suffix for layer in range(self.num_layers) for suffix in self._suffixes(layer)]

    def _parameter(self, name: str) -> Tensor:
        # as getattr, but faster; with a parametrization or pruning there is no such parameter, but an attribute
        value = self._parameters.get(name)
        return getattr(self, name) if value is None else value
