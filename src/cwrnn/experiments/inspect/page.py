"""The page about one trained network. It is self-contained: figures are inside, and nothing is fetched.

For one network and its data it answers the question of the paper's future work: how the network allocates its
resources. The same network and data give the same bytes.
"""

from pathlib import Path
from typing import Any

from ... import __version__
from ...cells import NONLINEARITIES
from ...inspection import Inspection, compute_outputs, compute_states, measure_spectrum
from ...schedule import Schedule
from ...writing import write_files
from ..report.numbers import format_count, format_error
from ..report.svg import inline_figure
from ..report.templates import make_template_environment
from . import figures
from .inspected import InspectedNetwork
from .measuring import choose_remembered
from .sentences import (
    MEASURES,
    describe_inspection,
    format_frequency,
    format_measure,
    format_operations,
    format_share,
)

TITLES = {
    "activations": "What each module does",
    "spectra": "How fast each module changes",
    "memories": "How far back each module remembers",
    "silences": "What the output loses without a module",
    "weights": "The weights",
    "costs": "Multiply-adds",
}
"""The titles of the figures, in the order of the page."""


def draw_figures(network: InspectedNetwork, inspection: Inspection) -> dict[str, Any]:
    """Return the figures by name, as matplotlib Figures."""
    shown = [network.inputs[network.shown]]
    states = compute_states(network.layer, shown)[0]
    output = None if network.readout is None else compute_outputs(network.layer, network.readout, shown)[0]
    signal = network.display.signal
    target = None if signal is None else measure_spectrum([signal[:, None]], Schedule((1,), (1,)))
    return {
        "activations": figures.draw_activations(network, states, output),
        "spectra": figures.draw_spectra(inspection, target),
        "memories": figures.draw_memories(inspection),
        "silences": figures.draw_silences(inspection, "readout" if output is not None else "rest of the model"),
        "weights": figures.draw_weights(network),
        "costs": figures.draw_costs(inspection),
    }


def write_page(network: InspectedNetwork, inspection: Inspection, path: Path) -> None:
    """Write the page to `path`, whole or not at all."""
    environment = make_template_environment()
    environment.filters |= {
        "error": format_error,
        "share": format_share,
        "operations": format_operations,
        "frequency": format_frequency,
    }
    drawings = {
        name: inline_figure(figure, name, TITLES[name]) for name, figure in draw_figures(network, inspection).items()
    }
    cell = network.layer.cell
    page = environment.get_template("inspect/page.html.j2").render(
        network=network,
        remembered=_describe_remembered(network),
        has_input=network.layer.input_size > 0,
        units=f"the {cell} of each unit" if cell in NONLINEARITIES else "each gate of a unit",
        has_readout=network.readout is not None,
        readers="readout" if network.readout is not None else "rest of the model",
        many=max(inspection.schedule.sizes) > figures.MOST_LINES,
        format_measure=format_measure,
        sentences=describe_inspection(inspection),
        inspection=inspection,
        measures={name: MEASURES[name] for name in inspection.intact},
        titles=TITLES,
        drawings=drawings,
        version=__version__,
    )
    write_files({path: page.encode()})


def _describe_remembered(network: InspectedNetwork) -> str:
    """Return the sequences on which the memory was measured, as a caption names them."""
    sequences, _ = choose_remembered(network.layer, network.inputs)
    if len(sequences) == len(network.inputs) and len(sequences[0]) == len(network.inputs[0]):
        return network.display.scope
    steps = max(len(sequence) for sequence in sequences)
    return f"{format_count(len(sequences), 'sequence')} of {steps} steps, because the layer is large"
