"""The way of a call through the files of the package: down from the layer to the kernel, and never back up."""

import sys
from itertools import groupby
from pathlib import Path

import pytest
import torch

import cwrnn
from cwrnn import ClockworkRNN
from cwrnn.backends import BACKENDS

ROOT = Path(cwrnn.__file__).parent
HAS_KERNEL = BACKENDS["cpu"].refuse(torch.device("cpu"), torch.float32) is None


def record_paths(call):
    """For every function of the package that `call` enters: the files of the functions that it is called through."""
    paths = set()

    def observe(frame, event, argument):
        if event == "call" and Path(frame.f_code.co_filename).is_relative_to(ROOT):
            files = []
            while frame is not None:
                file = Path(frame.f_code.co_filename)
                if file.is_relative_to(ROOT):
                    files.append(file.relative_to(ROOT).as_posix())
                frame = frame.f_back
            paths.add(tuple(file for file, _ in groupby(reversed(files))))

    sys.setprofile(observe)
    try:
        call()
    finally:
        sys.setprofile(None)
    return paths


def make_calls():
    layer, x = ClockworkRNN(3, 8, schedule=4), torch.randn(20, 2, 3)

    def step():
        with torch.no_grad():
            _, state = layer.step(x[0])
            layer.step(x[1], state)

    return {
        "forward with gradients": lambda: layer(x),
        "inference": torch.no_grad()(lambda: layer(x)),
        "step": step,
    }


@pytest.mark.skipif(not HAS_KERNEL, reason="the CPU kernel is not built")
@pytest.mark.parametrize("name", make_calls())
def test_a_call_passes_at_most_five_files_and_enters_none_twice(name):
    """A sixth file may only be a leaf: its functions call none of another file."""
    call = make_calls()[name]
    # the first call fills caches
    call()
    paths = record_paths(call)
    assert paths
    for path in paths:
        assert len(set(path)) == len(path), f"comes back to a file that it has left: {' -> '.join(path)}"
        assert len(path) <= 6, f"passes too many files: {' -> '.join(path)}"
    if name == "forward with gradients":
        longest = ("layer.py", "backends.py", "kernels/backend.py", "kernels/autograd.py", "kernels/cpu/sequence.py")
        assert {path[:5] for path in paths if len(path) == 6} == {longest}
