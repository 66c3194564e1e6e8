"""Inspection of a network that generates a sequence."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...inspection import Array
from ..inspect.inspected import NMSE, InspectedNetwork, InspectionOptions, check_finite, explain_weights, get_layer
from ..networks.methods import METHODS
from ..report.drawing import COLOURS, TARGET, fit_label
from ..sweep.run import Dataset, Record
from . import training
from .figures import describe_step


@dataclass(frozen=True, eq=False)
class GeneratedSequence:
    """The sequence that a network was trained to generate."""

    dataset: Dataset
    scope = ""
    caption = (
        "The top panel shows the sequence that the network generates (solid) and the sequence that it was trained to "
        "generate (dotted)."
    )

    @property
    def purpose(self) -> str:
        """The name of the sequence."""
        return f"that generates {self.dataset.name}"

    @property
    def signal(self) -> NDArray[np.float64]:
        """(T,): the sequence."""
        return self.dataset.samples

    def draw(self, panel: Any, time: NDArray[Any], input: NDArray[Any], output: Array | None) -> None:
        """Draw the sequence, and the output over it."""
        assert output is not None
        panel.plot(time, self.dataset.samples, linestyle=(0, (1, 1.1)), linewidth=1.3, color=TARGET, label="target")
        panel.plot(time, output[:, 0], color=COLOURS["cw"], label="output")
        panel.set_ylim(-1.25, 1.25)
        panel.set_title(fit_label(self.dataset.name, 40), loc="left", fontsize=9)


def inspect_record(
    record: Record, dataset: Dataset, facts: Mapping[str, str], options: InspectionOptions
) -> InspectedNetwork:
    """Return the network of a run, which generates the sequence."""
    options.refuse(("data", "word"), "is for networks that tell words apart, but this one has no input")
    options.refuse(("inputs", "target", "length"), "is for networks with input, but this one has none")
    assert record.weights is not None
    run = record.run
    with explain_weights(f"{facts['store']}: the weights of the run {record.key[:12]}"):
        network = training.load_network(run.method, run.hidden, record.weights, run.settings)

    def measure(outputs: Sequence[Array]) -> dict[str, float]:
        check_finite(outputs, "the outputs of the network")
        return {NMSE: training.nmse(outputs[0][:, 0], dataset.samples)}

    return InspectedNetwork(
        task="generation",
        name=METHODS[run.method].label,
        layer=get_layer(network),
        readout=network.readout,
        inputs=[np.empty((len(dataset.samples), 0))],
        measure=measure,
        shown=0,
        display=GeneratedSequence(dataset),
        facts=facts,
        step=describe_step(dataset),
    )
