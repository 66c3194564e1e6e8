"""The page about one trained network. It is self-contained: figures are inside, and nothing is fetched.

For one network and its data it answers the question of the paper's future work: how the network allocates its
resources. The same network and data give the same bytes.
"""

from pathlib import Path
from typing import Any

from ... import __version__
from ...inspection import Inspection, compute_outputs, compute_states, measure_spectrum
from ...schedule import Schedule
from ...writing import write_files
from ..report.numbers import format_error
from ..report.svg import inline_figure
from ..report.templates import make_template_environment
from ..sweep.run import Dataset
from . import figures
from .loading import InspectedNetwork
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
    output = compute_outputs(network.layer, network.network.readout, shown)[0]
    target = None
    if isinstance(network.target, Dataset):
        target = measure_spectrum([network.target.samples[:, None]], Schedule((1,), (1,)))
    return {
        "activations": figures.draw_activations(network, states, output),
        "spectra": figures.draw_spectra(inspection, target),
        "memories": figures.draw_memories(inspection),
        "silences": figures.draw_silences(inspection),
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
    page = environment.get_template("inspect/page.html.j2").render(
        network=network,
        generates=isinstance(network.target, Dataset),
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
