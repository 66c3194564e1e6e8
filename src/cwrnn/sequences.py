"""Layout: the forms in which torch's RNNs take sequences, brought to (T, B, ...) and back."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from .checks import check_lengths


class Layout(NamedTuple):
    """The form of an input sequence, which its results must have as well.

    `lengths` (B,) is None if all sequences are as long as the input. `packed` is the input if it is a PackedSequence:
    its batch is sorted by length inside, and in the user's order outside.
    """

    batched: bool
    batch_first: bool
    lengths: Tensor | None = None
    packed: PackedSequence | None = None

    def sequence_out(self, value: Tensor) -> "Tensor | PackedSequence":
        """`value` (T, B, ...) in the form of the input."""
        if self.packed is not None:
            assert self.lengths is not None
            data = pack_padded_sequence(value, self.lengths.cpu()).data
            packed = self.packed
            return PackedSequence(data, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices)
        if not self.batched:
            return value.squeeze(1)
        return value.transpose(0, 1) if self.batch_first else value

    def hidden_in(self, h: Tensor) -> Tensor:
        """The user's hidden state as (layers, B, N), in the order of the sequences inside."""
        if self.packed is not None and self.packed.sorted_indices is not None:
            return h.index_select(1, self.packed.sorted_indices)
        return h if self.batched else h.unsqueeze(1)

    def hidden_out(self, h: Tensor) -> Tensor:
        """A hidden state (layers, B, N) in the order and the form that the user expects; the inverse of `hidden_in`."""
        if self.packed is not None and self.packed.unsorted_indices is not None:
            return h.index_select(1, self.packed.unsorted_indices)
        return h if self.batched else h.squeeze(1)

    def clocks_in(self, clocks: Tensor) -> Tensor:
        """The user's clocks (B,), in the order of the sequences inside."""
        if self.packed is not None and self.packed.sorted_indices is not None:
            return clocks.index_select(0, self.packed.sorted_indices.to(clocks.device))
        return clocks

    def count_steps(self, T: int) -> int | Tensor:
        """The number of steps of all sequences in a batch of T steps.

        If they differ, it is a tensor (B,) on the CPU, in the order that the user expects. Inside a graph,
        where lengths cannot be compared, it is always a tensor if there are lengths.
        """
        if self.lengths is None or self.lengths.numel() == 0:
            return T
        if torch.compiler.is_compiling() and self.packed is None:
            return self.lengths.cpu()
        if self.packed is not None:
            # they lie on the CPU, sorted
            sizes = self.packed.batch_sizes
            shortest, longest = int((sizes == sizes[0]).sum()), T
        else:
            shortest, longest = int(self.lengths.min()), int(self.lengths.max())
        if shortest == longest:
            return longest
        lengths = self.lengths
        if self.packed is not None and self.packed.unsorted_indices is not None:
            lengths = lengths.index_select(0, self.packed.unsorted_indices)
        return lengths.cpu()

    def mask(self, value: Tensor) -> Tensor:
        """`value` (T, B, ...) with zeros beyond each sequence's end."""
        return mask(value, self.lengths)

    def reverse(self, value: Tensor) -> Tensor:
        """`value` (T, B, ...) with each sequence reversed within its own length; this is its own inverse."""
        if self.lengths is None:
            return value.flip(0)
        step = torch.arange(value.shape[0], device=value.device)[:, None]
        source = torch.where(step < self.lengths, self.lengths - 1 - step, step)
        return value.gather(0, source[..., None].expand_as(value))


def add_steps(t0: int | Tensor, steps: int | Tensor) -> int | Tensor:
    """The clocks after `steps` steps from t0; a tensor, on the device of t0, if one of them is a tensor."""
    if type(t0) is not int and isinstance(t0, Tensor) and isinstance(steps, Tensor):
        steps = steps.to(t0.device)
    return t0 + steps


def mask(value: Tensor, lengths: Tensor | None) -> Tensor:
    """`value` (T, B, ...) with zeros beyond each sequence's end, even where `value` is NaN there."""
    if lengths is None:
        return value
    inside = torch.arange(value.shape[0], device=value.device)[:, None] < lengths
    return torch.where(inside[..., None], value, 0)


def arrange(
    input: Tensor | PackedSequence, lengths: Tensor | Sequence[int] | None, batch_first: bool
) -> tuple[Tensor, Layout]:
    """The sequences of `input` as (T, B, I), a packed batch sorted by length, and their layout.

    Refuses lengths that do not fit the input.
    """
    if isinstance(input, PackedSequence):
        if lengths is not None:
            raise ValueError("a PackedSequence has lengths of its own: pass it without lengths")
        padded, own_lengths = pad_packed_sequence(PackedSequence(input.data, input.batch_sizes))
        return padded, Layout(True, False, own_lengths.to(padded.device), input)
    batched = input.dim() == 3
    x = input if batched else input.unsqueeze(1)
    if batched and batch_first:
        x = x.transpose(0, 1)
    if lengths is not None:
        if not batched:
            raise ValueError("lengths belong to a batch: an unbatched input has its own length")
        lengths = check_lengths(lengths, x.shape[0], x.shape[1], x.device)
    return x, Layout(batched, batch_first, lengths)
