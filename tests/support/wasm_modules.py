"""Exported networks that run: the module in wasmtime, and the C program as a library of this machine."""

import ctypes
import hashlib
import re
from pathlib import Path

import numpy as np
import wasmtime

from cwrnn.export.c.compilers import LIBRARY, compile_program, find_compiler


class WasmNetwork:
    """A module in wasmtime, with the exports that NAME.js uses."""

    def __init__(self, module: bytes, inputs: int, outputs: int) -> None:
        self.inputs, self.outputs = inputs, outputs
        self._store = wasmtime.Store()
        self.module = wasmtime.Module(self._store.engine, module)
        self._exports = wasmtime.Instance(self._store, self.module, []).exports(self._store)
        self.stream = self.call("open")

    def call(self, function, *arguments):
        return self._exports[function](self._store, *arguments)

    def step(self, numbers, stream=None):
        memory, start = self._exports["memory"], self.call("input")
        memory.write(self._store, np.asarray(numbers, "<f4").tobytes(), start)
        self.call("step", self.stream if stream is None else stream)

    def output(self, stream=None):
        start = self.call("output", self.stream if stream is None else stream)
        data = self._exports["memory"].read(self._store, start, start + 4 * self.outputs)
        return np.frombuffer(bytes(data), "<f4")


class NativeNetwork:
    """The C program of a network, compiled for this machine."""

    def __init__(self, source: Path, name: str, inputs: int, outputs: int) -> None:
        self.inputs, self.outputs = inputs, outputs
        library = compile_program(find_compiler(), [source], source.with_suffix(".so"), *LIBRARY)
        self._library, self._name = ctypes.CDLL(str(library)), name
        # the state is smaller than the source
        self._state = ctypes.create_string_buffer(source.stat().st_size)
        self.call("reset", self._state)

    def call(self, function, *arguments):
        return getattr(self._library, f"{self._name}_{function}")(*arguments)

    def step(self, numbers):
        self.call("step", self._state, np.asarray(numbers, np.float32).tobytes())

    def output(self):
        output = np.empty(self.outputs, np.float32)
        self.call("output", self._state, output.ctypes.data_as(ctypes.c_void_p))
        return output


class NativeIntegerNetwork(NativeNetwork):
    """The C program of a network in int8, with real numbers in and out as the module has them."""

    def __init__(self, source: Path, name: str, inputs: int, outputs: int) -> None:
        super().__init__(source, name, inputs, outputs)
        scale = re.search(r"_OUTPUT_SCALE (\S+)f\n", source.with_suffix(".h").read_text())
        self._scale = np.float32(scale[1])

    def step(self, numbers):
        quantised = np.empty(self.inputs, np.int16)
        place = quantised.ctypes.data_as(ctypes.c_void_p)
        self.call("quantise", np.asarray(numbers, np.float32).tobytes(), place)
        self.call("step", self._state, place)

    def output(self):
        integers = np.empty(self.outputs, np.int32)
        self.call("output", self._state, integers.ctypes.data_as(ctypes.c_void_p))
        return integers.astype(np.float32) * self._scale


def hash_outputs(network, steps, seed=0):
    """Return a hash of the outputs after every step, for random inputs."""
    random, digest = np.random.default_rng(seed), hashlib.sha256()
    for row in random.normal(0, 1, (steps, network.inputs)).astype(np.float32):
        network.step(row)
        digest.update(network.output().astype("<f4").tobytes())
    return digest.hexdigest()
