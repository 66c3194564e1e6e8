"""Graphs: nodes and constants of an ONNX model, added one after another."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...extras import require

PURPOSE = "the export to ONNX"


def require_onnx(module: str = "onnx") -> Any:
    """The package onnx or one of its modules, or an ImportError that names the extra."""
    return require(module, extra="onnx", purpose=PURPOSE)


class Graph:
    """The nodes and constants of a graph. Values are referred to by their names, which every method returns.

    >>> graph = Graph()
    >>> graph.add("Add", "input", graph.constant(np.float32(1)))
    'add_2'
    >>> [node.op_type for node in graph.nodes], [constant.name for constant in graph.constants]
    (['Add'], ['constant_1'])
    """

    def __init__(self, parent: "Graph | None" = None) -> None:
        self.helper = require_onnx("onnx.helper")
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self._parent = parent
        self._names = 0
        self._known: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    def name(self, word: str) -> str:
        """A name that nothing else in the graph has, nor in a body of one of its nodes."""
        if self._parent is not None:
            return self._parent.name(word)
        self._names += 1
        return f"{word}_{self._names}"

    def constant(self, array: NDArray[Any] | np.generic) -> str:
        """A constant. The bodies of nodes see the constants of the whole graph, and equal ones are stored once."""
        if self._parent is not None:
            return self._parent.constant(array)
        array = np.asarray(array)
        key = array.dtype.str, array.shape, array.tobytes()
        if key not in self._known:
            self._known[key] = self.name("constant")
            to_tensor = require_onnx("onnx.numpy_helper").from_array
            # not `ascontiguousarray`, which gives a number an axis
            self.constants.append(to_tensor(np.array(array, order="C"), self._known[key]))
        return self._known[key]

    def integer(self, value: int) -> str:
        """A constant without axes."""
        return self.constant(np.int64(value))

    def integers(self, *values: int) -> str:
        """A constant with one axis."""
        return self.constant(np.array(values, dtype=np.int64))

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """The output of a new node."""
        (output,) = self.add_all(operator, inputs, 1, **attributes)
        return output

    def add_all(self, operator: str, inputs: Sequence[str], outputs: int, **attributes: Any) -> list[str]:
        """All outputs of a new node."""
        names = [self.name(operator.lower()) for _ in range(outputs)]
        self.nodes.append(self.helper.make_node(operator, list(inputs), names, name=self.name("node"), **attributes))
        return names

    def rename(self, value: str, name: str) -> None:
        """Gives a value the name of an output of the graph."""
        self.nodes.append(self.helper.make_node("Identity", [value], [name], name=self.name("node")))

    def split(self, value: str, sizes: Sequence[int], axis: int) -> list[str]:
        """The parts of a value along an axis; a single part is the value itself."""
        if len(sizes) == 1:
            return [value]
        return self.add_all("Split", [value, self.integers(*sizes)], len(sizes), axis=axis)

    def concat(self, values: Sequence[str], axis: int) -> str:
        """The values side by side along an axis; a single one is itself the result."""
        return values[0] if len(values) == 1 else self.add("Concat", *values, axis=axis)

    def sum(self, first: str, *others: str | None) -> str:
        """The sum of values; None stands for 0."""
        for other in others:
            first = first if other is None else self.add("Add", first, other)
        return first

    def squeeze(self, value: str, axis: int) -> str:
        """The value without an axis of length 1."""
        return self.add("Squeeze", value, self.integers(axis))

    def unsqueeze(self, value: str, axis: int) -> str:
        """The value with one more axis."""
        return self.add("Unsqueeze", value, self.integers(axis))


def describe_tensor(name: str, kind: str, shape: Sequence[int | str]) -> Any:
    """The name, type ("FLOAT", "INT64" or "BOOL") and shape of an input or output; a text is an axis of any length."""
    onnx = require_onnx()
    return onnx.helper.make_tensor_value_info(name, getattr(onnx.TensorProto, kind), list(shape))
