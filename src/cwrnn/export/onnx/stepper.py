"""OnnxStepper: a stream through a network that was exported to ONNX, one time step at a time.

This file needs only numpy and onnxruntime. `cwrnn.export.to_onnx` writes a copy of it beside the models, so that the
folder can be used without cwrnn and torch:

    from stepper import OnnxStepper

    stepper = OnnxStepper("folder")
    for x in stream:                        # x: (batch, inputs), float32
        y = stepper.step(x)                 # (batch, outputs)
"""

import json
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["OnnxStepper"]


class OnnxStepper:
    """A stream through an exported network. At every step, only the modules that may be due are computed.

    Args:
        folder: the folder that `cwrnn.export.to_onnx` wrote
        name: the name of the network in that folder
        batch: B, the number of streams side by side
        threads: the threads of onnxruntime. More than one pays only for large networks or many streams

    Raises a ValueError if the description in the folder does not fit the models, and a FileNotFoundError if a file is
    missing.
    """

    h: NDArray[np.float32]
    """The hidden state, (layers, B, N)."""
    c: NDArray[np.float32] | None
    """The cell state of an LSTM, (layers, B, N); None for other networks."""
    t: int
    """The number of steps that the stream has made."""

    def __init__(self, folder: str | PathLike[str], name: str = "network", *, batch: int = 1, threads: int = 1) -> None:
        try:
            import onnxruntime
        except ImportError as error:
            raise ImportError("OnnxStepper needs onnxruntime: pip install onnxruntime") from error
        if batch < 1 or threads < 1:
            raise ValueError(f"batch and threads must be at least 1, got {batch} and {threads}")
        path = Path(folder) / f"{name}.json"
        description = _read_description(path)
        self.labels: list[str] = description["labels"]
        """The name of each output; empty if outputs have none."""
        self._periods: list[int] = description["periods"]
        self._inputs: int = description["inputs"]
        self._shape = description["layers"], batch, sum(description["sizes"])
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads

        def load(file: str, slowest: int | None) -> Any:
            model = path.with_name(file)
            if not model.exists():
                raise FileNotFoundError(f"{path} describes a network whose model {file} is missing")
            session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
            values = [*session.get_inputs(), *session.get_outputs()[:1]]
            # before anything is allocated that has the described sizes
            if {value.name: value.shape for value in values} != _list_shapes(description, slowest):
                raise ValueError(f"{path} does not describe the model {file} beside it")
            return session

        self._sessions = [load(f"{name}_step_{i}.onnx", i) for i in range(len(self._periods))]
        self._hold: Any = load(f"{name}_hold.onnx", None) if self._periods[0] > 1 else None
        modules = np.repeat(np.arange(len(self._periods)), description["sizes"])
        self._unit_periods: list[NDArray[np.int64] | None] = [
            np.array(self._periods, dtype=np.int64)[modules[modules <= i]]
            if any(value.name == "due" for value in session.get_inputs())
            else None
            for i, session in enumerate(self._sessions)
        ]
        self._has_cells = description["cell"] == "lstm"
        self.reset()

    def reset(self) -> None:
        """Starts a new stream: the state is zero, and so is the clock."""
        self.h = np.zeros(self._shape, np.float32)
        self.c = np.zeros(self._shape, np.float32) if self._has_cells else None
        self.t = 0

    def set_state(self, h: ArrayLike, c: ArrayLike | None = None, *, t: int) -> None:
        """Continues a stream that has made t steps.

        Args:
            h: (layers, B, N), the hidden state, as the model for whole sequences returns it
            c: (layers, B, N), the cell state of an LSTM
            t: the number of steps that the stream has made
        """
        if (c is not None) != self._has_cells:
            raise ValueError("an LSTM needs c" if self._has_cells else "only an LSTM has c")
        if t < 0:
            raise ValueError(f"t must be zero or greater, got {t}")
        states = [np.asarray(state, np.float32).copy() for state in (h, c) if state is not None]
        for name, state in zip("hc", states, strict=False):
            if state.shape != self._shape:
                raise ValueError(f"{name} must have the shape {self._shape}, got {state.shape}")
        self.h, self.c, self.t = states[0], states[1] if self._has_cells else None, t

    def step(self, input: ArrayLike) -> NDArray[np.float32]:
        """The output (B, O) for the input (B, I) of the next time step."""
        x = np.asarray(input, np.float32)
        if x.shape != (self._shape[1], self._inputs):
            raise ValueError(f"input must have the shape {(self._shape[1], self._inputs)}, got {x.shape}")
        values: dict[str, Any] = {"h": self.h}
        if self.c is not None:
            values["c"] = self.c
        slowest = None
        for i, period in enumerate(self._periods):
            if self.t % period == 0:
                slowest = i
        if slowest is None:
            session = self._hold
        else:
            session, periods = self._sessions[slowest], self._unit_periods[slowest]
            values["input"] = x
            if periods is not None:
                values["due"] = self.t % periods == 0
        output: NDArray[np.float32]
        output, *states = session.run(None, values)
        self.h, self.c = states[0], states[1] if self._has_cells else None
        self.t += 1
        return output


def _read_description(path: Path) -> dict[str, Any]:
    """The description of the network; a ValueError if the file is not one."""
    try:
        description = json.loads(path.read_bytes())
        periods, sizes, labels = description["periods"], description["sizes"], description["labels"]
        positive = [*periods, *sizes, description["layers"], description["inputs"] + 1, description["outputs"]]
        if (
            all(type(value) is int and 0 < value <= 2**40 for value in positive)
            and len(periods) == len(sizes) > 0
            and periods == sorted(periods)
            and type(labels) is list
            and all(type(label) is str for label in labels)
            and len(labels) in (0, description["outputs"])
            and type(description["cell"]) is str
        ):
            return dict(description)
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    raise ValueError(f"{path} does not describe a network that cwrnn exported to ONNX")


def _list_shapes(description: dict[str, Any], slowest: int | None) -> dict[str, list[int | str]]:
    """The shapes of the inputs and of the output of a model for single steps, by their names.

    Args:
        description: the description of the network
        slowest: the slowest module that is due; None if no module is
    """
    periods, sizes = description["periods"], description["sizes"]
    state: list[int | str] = [description["layers"], "batch", sum(sizes)]
    shapes: dict[str, list[int | str]] = {"h": state, "output": ["batch", description["outputs"]]}
    if description["cell"] == "lstm":
        shapes["c"] = state
    if slowest is not None:
        shapes["input"] = ["batch", description["inputs"]]
        # a model has the input `due` if a faster module may not be due
        if any(periods[slowest] % period for period in periods[:slowest]):
            shapes["due"] = [sum(sizes[: slowest + 1])]
    return shapes
