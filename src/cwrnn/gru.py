"""ClockworkGRU: the layer with the cells of a GRU, as a drop-in for torch.nn.GRU."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .layer import ClockworkLayer
from .schedule import Schedule
from .step import State


class ClockworkGRU(ClockworkLayer[Tensor, State]):
    r"""A Clockwork RNN with GRU cells: the hidden layer is split into modules with clocks of their own.

    .. code-block:: none

        for each module i with t mod P_i == 0, and each gate k of r, z, n:
            a^k    = W_ih^k[i] x(t) + b^k[i]
            m^k    = sum over j >= i of W_hh^k[i, j] h_j(t - 1)
            n      = tanh( a^n + s(a^r + m^r) (m^n + d[i]) )
            z      = s(a^z + m^z)
            h_i(t) = (1 - z) n + z h_i(t - 1)
        every other module holds: h_i(t) = h_i(t - 1)

    s is the logistic function. The messages of slower modules to gate n stand inside the reset product, as those of the
    module itself do.

    Arguments, shapes and errors are those of :class:`torch.nn.GRU`, with these differences: there is one bias with four
    parts (torch has two biases of three parts; only the sums count for r and z); ``input_size`` may be 0 (a network
    that generates); a sequence may have no steps (an empty chunk of a stream). With one module of period 1 both layers
    compute the same.

    Args:
        input_size: I, the number of features of the input; 0 if there is none
        hidden_size: N, the number of hidden units
        num_layers: the number of layers; each reads the output of the one below, and all share one clock. Default: 1
        bias: if ``False``, there is no bias. Default: ``True``
        batch_first: if ``True``, input and output are (B, T, ...). Default: ``False``
        dropout: the probability of dropout on the output of every layer except the last. Default: 0
        bidirectional: if ``True``, a second network reads the sequence from its end; its clock counts from there,
            starting at 0. Default: ``False``
        schedule: a :class:`Schedule`, or its text form, ``"1:4,2:4"`` for two modules of 4 units with periods 1 and
            2; or a sequence of periods, over which the units are split evenly; or the number of modules, with periods
            1, 2, 4, ...; or None for ``min(8, hidden_size)`` of those
        backend: ``"auto"``, ``"cpu"``, ``"cuda"``, ``"cudnn"``, ``"torch"`` or ``"reference"``. Default:
            ``"auto"``, the first of these that can run on the device with the dtype

    Inputs: input, hx, t0, lengths, return_state
        * **input**: (T, B, I), (B, T, I) with ``batch_first``, (T, I) unbatched, or a
          :class:`~torch.nn.utils.rnn.PackedSequence`
        * **hx**: (layers * directions, B, N), without B if unbatched: the state before the first step.
          Default: zeros. Or the :class:`State` of a stream that this call continues, which knows its clock
        * **t0**: the clock at the first step, unless `hx` is a :class:`State`. To continue a stream from a tensor, pass
          the number of steps before this call. A tensor (B,) of integers gives every sequence its own clock. Default: 0
        * **lengths**: B integers, if the sequences of a padded batch have different lengths
        * **return_state**: if ``True``, the second output is a :class:`State` even if `hx` is not one.
          Its `t` is an int if `t0` is one clock and all sequences are equally long, and otherwise a tensor (B,).
          Default: ``False``

    Outputs: output, h_n
        * **output**: (T, B, directions * N), in the form of the input: the state of the last layer at every step,
          zero beyond a sequence's end
        * **h_n**: (layers * directions, B, N), without B if unbatched: the state at each sequence's own end. If `hx` is
          a :class:`State`, or with `return_state`, it is a :class:`State` with the clock after the last step, for the
          next call of the layer or of `step`. If the clocks of the sequences differ, it has a tensor (B,) of them

    Variables:
        * **weight_ih_l[k]** (3 N, I): the weights from the input of layer k: those of gate r, then z and n
        * **weight_hh_l[k]** (3 N, N): the recurrent weights of layer k, in the same order of gates, stored dense. In
          each gate, the blocks below the diagonal, from fast modules to slow ones, are zero, are never read and get no
          gradient. They are not parameters of the model, though ``numel()`` counts them: 44 % of ``weight_hh`` with 8
          modules of equal size. `count_parameters` counts the parameters that exist
        * **bias_l[k]** (4 N): the biases of layer k: those of gate r, then z and n, then d

        The reverse direction has the same variables with the suffix ``_reverse``. In layers k > 0, the input has
        directions * N features instead of I. Initial values are uniform in +-1 / sqrt(N), as torch's. The
        ``state_dict`` also holds the schedule: loading it into a layer with other clocks is an error.

    Examples::

        >>> gru = ClockworkGRU(13, 104, schedule=8)  # periods 1, 2, 4, ..., 128
        >>> x = torch.randn(200, 4, 13)
        >>> output, h_n = gru(x)
        >>> output.shape, h_n.shape
        (torch.Size([200, 4, 104]), torch.Size([1, 4, 104]))
        >>> first, state = gru(x[:77], return_state=True)  # the same sequence as a stream of two chunks
        >>> second, state = gru(x[77:], state)
        >>> torch.allclose(output, torch.cat([first, second]), atol=1e-6)
        True
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        schedule: Schedule | str | Sequence[int] | int | None = None,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        self._build(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device, dtype, schedule,
            backend,
        )  # fmt: skip

    @property
    def cell(self) -> str:
        """The name of the cell: "gru"."""
        return "gru"

    @classmethod
    def from_gru(cls, gru: nn.GRU) -> "ClockworkGRU":
        """A layer with one module of period 1 that computes the same as `gru`.

        >>> gru, x = nn.GRU(3, 5), torch.randn(7, 2, 3)
        >>> torch.allclose(ClockworkGRU.from_gru(gru)(x)[0], gru(x)[0], atol=1e-6)
        True
        """
        if not isinstance(gru, nn.GRU):
            raise TypeError(f"from_gru takes a torch.nn.GRU, got {type(gru).__name__}")
        return cls._convert_from(gru)

    def to_gru(self) -> nn.GRU:
        """The `torch.nn.GRU` that computes the same as this layer, if it has a single module of period 1."""
        return self._convert_to(nn.GRU)
