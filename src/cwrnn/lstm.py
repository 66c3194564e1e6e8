"""ClockworkLSTM: the layer with the cells of an LSTM, as a drop-in for torch.nn.LSTM."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .layer import ClockworkLayer
from .schedule import Schedule
from .step import LSTMState


class ClockworkLSTM(ClockworkLayer[tuple[Tensor, Tensor], LSTMState]):
    r"""A Clockwork RNN with LSTM cells: the hidden layer is split into modules with clocks of their own.

    .. code-block:: none

        for each module i with t mod P_i == 0, and each gate k of i, f, g, o:
            a^k    = W_ih^k[i] x(t) + b^k[i] + sum over j >= i of W_hh^k[i, j] h_j(t - 1)
            c_i(t) = s(a^f) c_i(t - 1) + s(a^i) tanh(a^g)
            h_i(t) = s(a^o) tanh(c_i(t))
        every other module holds: h_i(t) = h_i(t - 1) and c_i(t) = c_i(t - 1)

    s is the logistic function. c never leaves its module. With peepholes, p^i c_i(t - 1) is added to a^i,
    p^f c_i(t - 1) to a^f, and p^o c_i(t) to a^o.

    Arguments, shapes and errors are those of :class:`torch.nn.LSTM`, with these differences: there is one bias (torch
    has two, of which only the sum matters); projections are not supported; ``input_size`` may be 0 (a network that
    generates); a sequence may have no steps (an empty chunk of a stream). With one module of period 1 both layers
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
        proj_size: must be 0: projections are not supported
        peepholes: if ``True``, the gates i, f and o of every unit see its c. Default: ``False``
        schedule: a :class:`Schedule`, or its text form, ``"1:4,2:4"`` for two modules of 4 units with periods 1 and
            2; or a sequence of periods, over which the units are split evenly; or the number of modules, with periods
            1, 2, 4, ...; or None for ``min(8, hidden_size)`` of those
        backend: ``"auto"``, ``"cpu"``, ``"cuda"``, ``"cudnn"``, ``"torch"`` or ``"reference"``. Default:
            ``"auto"``, the first of these that can run on the device with the dtype

    Inputs: input, hx, t0, lengths, return_state
        * **input**: (T, B, I), (B, T, I) with ``batch_first``, (T, I) unbatched, or a
          :class:`~torch.nn.utils.rnn.PackedSequence`
        * **hx**: a pair (h_0, c_0), both (layers * directions, B, N), without B if unbatched: the state before the
          first step. Default: zeros. Or the :class:`LSTMState` of a stream that this call continues, which knows its
          clock
        * **t0**: the clock at the first step, unless `hx` is an :class:`LSTMState`. To continue a stream from a pair of
          tensors, pass the number of steps before this call. A tensor (B,) of integers gives every sequence its own
          clock. Default: 0
        * **lengths**: B integers, if the sequences of a padded batch have different lengths
        * **return_state**: if ``True``, the second output is an :class:`LSTMState` even if `hx` is not one.
          Its `t` is an int if `t0` is one clock and all sequences are equally long, and otherwise a tensor (B,).
          Default: ``False``

    Outputs: output, (h_n, c_n)
        * **output**: (T, B, directions * N), in the form of the input: h of the last layer at every step, zero beyond a
          sequence's end
        * **h_n**, **c_n**: (layers * directions, B, N), without B if unbatched: the state at each sequence's own end.
          If `hx` is an :class:`LSTMState`, or with `return_state`, the pair is an :class:`LSTMState` with the clock
          after the last step, for the next call of the layer or of `step`. If the clocks of the sequences differ, it
          has a tensor (B,) of them

    Variables:
        * **weight_ih_l[k]** (4 N, I): the weights from the input of layer k: those of gate i, then f, g and o
        * **weight_hh_l[k]** (4 N, N): the recurrent weights of layer k, in the same order of gates, stored dense. In
          each gate, the blocks below the diagonal, from fast modules to slow ones, are zero, are never read and get no
          gradient. They are not parameters of the model, though ``numel()`` counts them: 44 % of ``weight_hh`` with 8
          modules of equal size. `count_parameters` counts the parameters that exist
        * **bias_l[k]** (4 N): the biases of layer k, in the same order of gates
        * **weight_ch_l[k]** (3 N): with peepholes, those of the gates i, f and o

        The reverse direction has the same variables with the suffix ``_reverse``. In layers k > 0, the input has
        directions * N features instead of I. Initial values are uniform in +-1 / sqrt(N), as torch's. The
        ``state_dict`` also holds the schedule: loading it into a layer with other clocks is an error.

    Examples::

        >>> lstm = ClockworkLSTM(13, 104, schedule=8)  # periods 1, 2, 4, ..., 128
        >>> x = torch.randn(200, 4, 13)
        >>> output, (h_n, c_n) = lstm(x)
        >>> output.shape, c_n.shape
        (torch.Size([200, 4, 104]), torch.Size([1, 4, 104]))
        >>> first, state = lstm(x[:77], return_state=True)  # the same sequence as a stream of two chunks
        >>> second, state = lstm(x[77:], state)
        >>> torch.allclose(output, torch.cat([first, second]), atol=1e-6)
        True
    """

    _state_type = LSTMState

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        peepholes: bool = False,
        schedule: Schedule | str | Sequence[int] | int | None = None,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        if isinstance(proj_size, bool) or not isinstance(proj_size, int):
            raise TypeError(f"proj_size should be of type int, got: {type(proj_size).__name__}")
        if proj_size != 0:
            raise ValueError(f"proj_size must be 0: a ClockworkLSTM has no projections, got {proj_size}")
        if not isinstance(peepholes, bool):
            raise TypeError(f"peepholes should be of type bool, got: {type(peepholes).__name__}")
        self.proj_size = proj_size
        self.peepholes = peepholes
        self._build(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device, dtype, schedule,
            backend,
        )  # fmt: skip

    @property
    def cell(self) -> str:
        """The name of the cell: "lstm"."""
        return "lstm"

    @classmethod
    def from_lstm(cls, lstm: nn.LSTM) -> "ClockworkLSTM":
        """A layer with one module of period 1 that computes the same as `lstm`, which must have no projections.

        >>> lstm, x = nn.LSTM(3, 5), torch.randn(7, 2, 3)
        >>> torch.allclose(ClockworkLSTM.from_lstm(lstm)(x)[0], lstm(x)[0], atol=1e-6)
        True
        """
        if not isinstance(lstm, nn.LSTM):
            raise TypeError(f"from_lstm takes a torch.nn.LSTM, got {type(lstm).__name__}")
        if lstm.proj_size != 0:
            raise ValueError(f"a ClockworkLSTM has no projections, got a torch.nn.LSTM with proj_size={lstm.proj_size}")
        return cls._convert_from(lstm)

    def to_lstm(self) -> nn.LSTM:
        """The `torch.nn.LSTM` that computes the same as this layer, if it has a single module of period 1.

        A torch.nn.LSTM has no peepholes, so a layer with peepholes is refused.
        """
        if self.peepholes:
            raise ValueError("a torch.nn.LSTM has no peepholes, but this layer does")
        return self._convert_to(nn.LSTM)
