"""Layout: the guises in which torch's RNNs take sequences, brought to (T, B, ...) and back."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence


class Layout(NamedTuple):
    """How a sequence came in, and so how its results go out.

    `lengths` (B,) is None where all sequences are as long as the input. `packed` is the PackedSequence that came
    in, whose batch is sorted by length inside, and in the user's order outside.
    """

    batched: bool
    batch_first: bool
    lengths: Tensor | None = None
    packed: PackedSequence | None = None

    def sequence_out(self, value: Tensor) -> "Tensor | PackedSequence":
        """(T, B, ...) in the guise of the input."""
        if self.packed is not None:
            assert self.lengths is not None
            data = pack_padded_sequence(value, self.lengths.cpu()).data
            packed = self.packed
            return PackedSequence(data, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices)
        if not self.batched:
            return value.squeeze(1)
        return value.transpose(0, 1) if self.batch_first else value

    def hidden_in(self, h: Tensor) -> Tensor:
        """A hidden state of the user's as (layers, B, N) in the order of the sequences inside."""
        if self.packed is not None and self.packed.sorted_indices is not None:
            return h.index_select(1, self.packed.sorted_indices)
        return h if self.batched else h.unsqueeze(1)

    def hidden_out(self, h: Tensor) -> Tensor:
        """The inverse of `hidden_in`."""
        if self.packed is not None and self.packed.unsorted_indices is not None:
            return h.index_select(1, self.packed.unsorted_indices)
        return h if self.batched else h.squeeze(1)

    def mask(self, value: Tensor) -> Tensor:
        """`value` (T, B, ...) with zeros beyond each sequence's end, whatever stood there."""
        return mask(value, self.lengths)

    def reverse(self, value: Tensor) -> Tensor:
        """`value` (T, B, ...) with each sequence turned round within its own length; its own inverse."""
        if self.lengths is None:
            return value.flip(0)
        step = torch.arange(value.shape[0], device=value.device)[:, None]
        source = torch.where(step < self.lengths, self.lengths - 1 - step, step)
        return value.gather(0, source[..., None].expand_as(value))


def mask(value: Tensor, lengths: Tensor | None) -> Tensor:
    """`value` (T, B, ...) with zeros beyond each sequence's end, whatever stood there."""
    if lengths is None:
        return value
    inside = torch.arange(value.shape[0], device=value.device)[:, None] < lengths
    return torch.where(inside[..., None], value, 0)


def unpack(input: PackedSequence) -> tuple[Tensor, Layout]:
    """The sequences of `input` as (T, B, I), sorted by length as inside it, and their layout."""
    padded, lengths = pad_packed_sequence(PackedSequence(input.data, input.batch_sizes))
    return padded, Layout(True, False, lengths.to(padded.device), input)
