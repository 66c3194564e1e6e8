"""The memory of tensors whose addresses were asked for: what an emulated program may access."""

from bisect import bisect_left, bisect_right
from itertools import chain

from cwrnn.kernels.gpu.tables import round_up

GAP = 128
"""Numbers of 4 bytes between the parts of one piece of memory."""


class _Placed(int):
    """The size of a piece of memory that has parts."""

    parts: list[tuple[int, int]]


class PassedMemory:
    """Knows the memory of every tensor whose `data_ptr` was called.

    The parts that `scan._place` puts into one piece of memory get gaps between them, which no program may access.
    """

    def __init__(self):
        self._starts, self._pieces = [], []

    def follow(self, data_ptr):
        """A `Tensor.data_ptr` that remembers the memory of the tensor."""

        def data_ptr_followed(tensor):
            storage = tensor.untyped_storage()
            start = storage.data_ptr()
            if start != 0 and storage.nbytes() > 0:
                parts = getattr(tensor, "_parts_of_memory", [(0, storage.nbytes())])
                self._remember(start, start + storage.nbytes(), [(start + at, start + end) for at, end in parts])
            return data_ptr(tensor)

        return data_ptr_followed

    def _remember(self, start, end, parts):
        # what lay there before was freed
        first = bisect_right(self._starts, start)
        first -= first > 0 and self._pieces[first - 1][0] > start
        last = bisect_left(self._starts, end)
        self._starts[first:last] = [start]
        self._pieces[first:last] = [(end, parts)]

    def list_bounds(self, call):
        """Where the memory begins and ends that a call may access: the call itself, and that of its addresses."""
        address, numbers = call.buffer_info()
        ranges = set()
        for number in call:
            at = bisect_right(self._starts, number) - 1
            if at >= 0 and number < self._pieces[at][0]:
                ranges.update(self._pieces[at][1])
        return [address, address + numbers * call.itemsize, *chain.from_iterable(sorted(ranges))]

    def place(self, *counts):
        """`scan._place` with gaps before, between and behind the parts."""
        places, parts, end = [], [], GAP
        for count in counts:
            places.append(4 * end)
            parts.append((4 * end, 4 * (end + count)))
            end += round_up(count, 128) + GAP
        size = _Placed(end)
        size.parts = parts
        return *places, size

    def make_empty(self, empty):
        """A `torch.empty` that remembers the parts of its memory."""

        def empty_in_parts(*size, **options):
            if len(size) == 1 and isinstance(size[0], _Placed):
                tensor = empty(int(size[0]), **options)
                tensor._parts_of_memory = size[0].parts
                return tensor
            return empty(*size, **options)

        return empty_in_parts
