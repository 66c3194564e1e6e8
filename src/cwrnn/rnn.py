"""ClockworkRNN: the layer, as a drop-in for torch.nn.RNN."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .checks import check_nonlinearity
from .layer import ClockworkLayer
from .schedule import Schedule
from .step import State


class ClockworkRNN(ClockworkLayer[Tensor, State]):
    r"""A Clockwork RNN: an Elman RNN whose hidden layer is split into modules with clocks of their own.

    .. code-block:: none

        for each module i with t mod P_i == 0:
            h_i(t) = tanh( W_ih[i] x(t) + b[i] + sum over j >= i of W_hh[i, j] h_j(t - 1) )
        every other module holds: h_i(t) = h_i(t - 1)

    Arguments, shapes and errors are those of :class:`torch.nn.RNN`, with these differences: there is one bias (torch
    has two, of which only the sum matters); ``input_size`` may be 0 (a network that generates); a sequence may have no
    steps (an empty chunk of a stream). With one module of period 1 both layers compute the same.

    Args:
        input_size: I, the number of features of the input; 0 if there is none
        hidden_size: N, the number of hidden units
        num_layers: the number of layers; each reads the output of the one below, and all share one clock. Default: 1
        nonlinearity: ``"tanh"`` or ``"relu"``. Default: ``"tanh"``
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
        * **weight_ih_l[k]** (N, I): the weights from the input of layer k
        * **weight_hh_l[k]** (N, N): the recurrent weights of layer k, stored dense. The blocks below the diagonal, from
          fast modules to slow ones, are zero, are never read and get no gradient. They are not parameters of the
          model, though ``numel()`` counts them: 44 % of ``weight_hh`` with 8 modules of equal size. `count_parameters`
          counts the parameters that exist
        * **bias_l[k]** (N): the biases of layer k

        The reverse direction has the same variables with the suffix ``_reverse``. In layers k > 0, the input has
        directions * N features instead of I. Initial values are uniform in +-1 / sqrt(N), as torch's. The
        ``state_dict`` also holds the schedule: loading it into a layer with other clocks is an error.

    Examples::

        >>> rnn = ClockworkRNN(13, 104, schedule=8)  # periods 1, 2, 4, ..., 128
        >>> x = torch.randn(200, 4, 13)
        >>> output, h_n = rnn(x)
        >>> output.shape, h_n.shape
        (torch.Size([200, 4, 104]), torch.Size([1, 4, 104]))
        >>> first, state = rnn(x[:77], return_state=True)  # the same sequence as a stream of two chunks
        >>> second, state = rnn(x[77:], state)
        >>> torch.allclose(output, torch.cat([first, second]), atol=1e-6)
        True
    """

    _defaults = {"num_layers": 1, "nonlinearity": "tanh", "bias": True, "batch_first": False, "dropout": 0.0,
                 "bidirectional": False}  # fmt: skip

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
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
        check_nonlinearity(nonlinearity)
        self.nonlinearity = nonlinearity
        self._build(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device, dtype, schedule,
            backend,
        )  # fmt: skip

    @property
    def cell(self) -> str:
        """The name of the cell: "tanh" or "relu", the layer's `nonlinearity`."""
        return self.nonlinearity

    @classmethod
    def from_rnn(cls, rnn: nn.RNN) -> "ClockworkRNN":
        """A layer with one module of period 1 that computes the same as `rnn`.

        >>> rnn, x = nn.RNN(3, 5), torch.randn(7, 2, 3)
        >>> torch.allclose(ClockworkRNN.from_rnn(rnn)(x)[0], rnn(x)[0], atol=1e-6)
        True
        """
        if not isinstance(rnn, nn.RNN):
            raise TypeError(f"from_rnn takes a torch.nn.RNN, got {type(rnn).__name__}")
        return cls._convert_from(rnn)

    def to_rnn(self) -> nn.RNN:
        """The `torch.nn.RNN` that computes the same as this layer, if it has a single module of period 1."""
        return self._convert_to(nn.RNN)
