"""The layer itself: arguments of the constructor, and tensors of any shape, dtype and device in any call."""

import json
import warnings
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch.nn.utils.rnn import pack_sequence

from cwrnn import ClockworkRNN, LearnedClockworkRNN, Readout

from ..door import Door, require
from ..mutation import INTEGERS
from .schedules import SPECS, build_value, make_value

DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "bool", "complex64")
FILLS = ("normal", "normal", "normal", "zero", "nan", "inf", "large", "no memory", "freed", "expanded", "flipped",
         "packed",
         "grad", "sparse", "negative")  # fmt: skip
CALLS = ("forward", "forward", "step", "step", "ticks", "readout", "load", "backward", "to_rnn", "repr")
LARGEST_SIZE = 2**16
"""No tensor of a case has more elements: a layer of 10^9 units is no mistake, and needs its memory."""


def make_tensor(random: Random, usual: list[int]) -> Any:
    """Return the description of a tensor that has nearly the usual shape."""
    shape = list(usual)
    kind = random.randrange(8)
    if kind == 0 and shape:
        shape[random.randrange(len(shape))] = random.choice((0, 1, 2, 5, 33))
    elif kind == 1:
        shape.insert(random.randrange(len(shape) + 1), random.choice((1, 2)))
    elif kind == 2 and shape:
        del shape[random.randrange(len(shape))]
    mostly = random.random() < 0.8
    return {
        "shape": shape,
        "dtype": "float32" if mostly else random.choice(DTYPES),
        "device": "cpu" if random.random() < 0.9 else "meta",
        "fill": random.choice(FILLS) if random.random() < 0.5 else "normal",
    }


def build_tensor(description: Any) -> Any:
    """Return the tensor, or the other value, that a description stands for."""
    if not isinstance(description, dict) or "shape" not in description:
        return build_value(description)
    shape = [min(abs(int(size)), 64) for size in description["shape"]][:6]
    if torch.Size(shape).numel() > LARGEST_SIZE:
        shape = shape[:2]
    dtype = getattr(torch, description.get("dtype", "float32"))
    fill, device = description.get("fill", "normal"), description.get("device", "cpu")
    if fill == "no memory":
        return torch._efficientzerotensor(shape, dtype=dtype, device=device)
    value = torch.randn(shape, dtype=torch.float64) * (1e38 if fill == "large" else 1)
    if fill in ("zero", "nan", "inf"):
        value = torch.full(shape, {"zero": 0.0, "nan": float("nan"), "inf": float("inf")}[fill], dtype=torch.float64)
    value = (value if dtype.is_floating_point or dtype.is_complex else value.nan_to_num(0, 0, 0).clamp(-100, 100)).to(
        dtype
    )
    if fill == "expanded" and shape:
        value = value[:1].expand(shape) if shape[0] else value
    if fill == "flipped" and shape:
        value = value.transpose(0, -1)
    if fill == "negative" and dtype.is_complex:
        value = value.conj()
    if fill == "sparse":
        return value.to_sparse()
    value = value.to(device)
    if fill == "grad" and dtype.is_floating_point:
        value.requires_grad_(True)
    if fill == "freed" and device == "cpu":
        value.untyped_storage().resize_(0)
    if fill == "packed" and value.dim() >= 2 and value.shape[0] and value.shape[1]:
        return pack_sequence(list(value), enforce_sorted=False)
    return value


def make_case(random: Random) -> bytes:
    """Return a layer and some calls as JSON."""
    inputs, units, layers, batch, steps = (
        random.choice(sizes) for sizes in ((0, 1, 3), (1, 4, 9), (1, 1, 2), (0, 1, 2, 5), (0, 1, 2, 9))
    )
    layer: dict[str, Any] = {"input_size": inputs, "hidden_size": units, "num_layers": layers}
    if random.random() < 0.6:
        layer["schedule"] = random.choice((None, 1, [1], [3], f"1:{units}", f"5:{units}", *SPECS, make_value(random)))
    for name, values in {
        "nonlinearity": ("tanh", "relu", "sigmoid", "", None), "bias": (True, False, 1, None, "no"),
        "batch_first": (True, False, 1), "dropout": (0, 0.5, 1.0, -1, 2, True, "a"), "bidirectional": (True, False, 1),
        "backend": ("auto", "cpu", "torch", "reference", "cuda", "cudnn", "", 3),
        "device": ("cpu", "meta", "nowhere", 99),
        "input_size": (-1, 0, True, "3", 2.0), "hidden_size": (0, -1, 1, 2.0, None, "4"), "num_layers": (0, -1, 3, 1.5),
    }.items():  # fmt: skip
        if random.random() < 0.05:
            layer[name] = random.choice((*values, make_value(random)))
    # a layer that is only large is no mistake
    for name in ("input_size", "hidden_size", "num_layers"):
        if isinstance(layer[name], int) and layer[name] > 100:
            layer[name] = 5
    calls = []
    for _ in range(random.choice((1, 1, 2, 3))):
        name = random.choice(CALLS)
        usual = [batch, inputs] if name == "step" else [steps, batch, inputs]
        call: dict[str, Any] = {
            "call": name,
            "input": make_tensor(random, usual) if random.random() < 0.95 else make_value(random),
        }
        if random.random() < 0.4:
            call["hx"] = make_tensor(random, [layers, batch, units])
        if random.random() < 0.3:
            call["t0"] = random.choice((0, 1, 5, 2**31, 2**62, 2**63, 2**80, -1, True, make_value(random), *INTEGERS))
        if random.random() < 0.1:
            call["t0"] = make_tensor(random, [batch]) | {"dtype": random.choice(("int64", "int64", *DTYPES))}
        if random.random() < 0.2:
            call["lengths"] = random.choice(
                ([steps] * batch, [1] * batch, [0], [-1], [10**9], make_tensor(random, [batch]), make_value(random))
            )
        calls.append(call)
    return json.dumps({"kind": random.choice(("cw", "cw", "cw", "learned")), "layer": layer, "calls": calls}).encode()


def use_layer(case: bytes, folder: Path) -> None:
    """Build the layer, and make the calls."""
    request = json.loads(case)
    torch.manual_seed(0)
    # the warning of torch.nn.RNN
    warnings.filterwarnings("ignore", "dropout option adds dropout")
    arguments = {name: build_value(value) for name, value in request.get("layer", {}).items()}
    if request.get("kind") == "learned":
        arguments = {
            name: value
            for name, value in arguments.items()
            if name in ("input_size", "hidden_size", "bias", "batch_first", "device", "nonlinearity")
        }
        run_calls(LearnedClockworkRNN(**arguments, modules=2, candidates=8), request.get("calls", []))
        return
    run_calls(ClockworkRNN(**arguments), request.get("calls", []))


def run_calls(layer: Any, calls: list[Any]) -> None:
    """Call the layer. An error of one call does not hide those of the next."""
    first: Exception | None = None
    for call in calls:
        try:
            run_call(layer, call)
        except (ValueError, TypeError, RuntimeError) as error:
            first = first or error
    if first is not None:
        raise first


def run_call(layer: Any, call: Any) -> None:
    """Make one call, and check the shape of its result."""
    name, input = call.get("call"), build_tensor(call.get("input"))
    hx = build_tensor(call["hx"]) if "hx" in call else None
    options = {name: build_tensor(call[name]) for name in ("t0", "lengths") if name in call}
    if name == "step" and hasattr(layer, "step"):
        with torch.no_grad() if call.get("t0") else torch.enable_grad():
            output, state = layer.step(input, None if hx is None else (hx, options.get("t0", 0)))
            require(output.shape[-1] == layer.hidden_size, f"an output of shape {tuple(output.shape)}")
            layer.step(input, state)
    elif name == "ticks" and hasattr(layer, "ticks"):
        layer.ticks(input, hx, **options)
    elif name == "readout" and hasattr(layer, "ticks"):
        readout = Readout(layer.hidden_size, 2)
        readout(layer.ticks(input, hx, **options)[0])
    elif name == "load" and '"freed"' not in json.dumps(call):
        # torch itself reads a freed tensor at address 0 when it copies it
        layer.load_state_dict(
            dict.fromkeys(layer.state_dict(), input) if torch.is_tensor(input) else layer.state_dict()
        )
    elif name == "to_rnn" and hasattr(layer, "to_rnn"):
        ClockworkRNN.from_rnn(layer.to_rnn())
    elif name == "repr":
        repr(layer)
    elif name in ("forward", "backward"):
        output, _ = layer(input, hx, **options)
        if torch.is_tensor(output):
            require(output.shape[-1] % layer.hidden_size == 0, f"an output of shape {tuple(output.shape)}")
        if name == "backward" and torch.is_tensor(output) and output.requires_grad and output.device.type == "cpu":
            output.sum().backward()


DOORS = (
    Door(
        "layer",
        "ClockworkRNN, LearnedClockworkRNN and their calls",
        (ValueError, TypeError, RuntimeError),
        make_case,
        use_layer,
    ),
)
