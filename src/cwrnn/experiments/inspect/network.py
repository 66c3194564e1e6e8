"""`inspect_network`: look inside one trained network, and write a page about what its modules do."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...inspection import Inspection, inspect
from ..errors import ArgumentError
from ..file_names import check_path, format_page_path, is_folder, replace_undecodable
from ..json_safe import make_json_safe
from ..networks.descent import use_one_thread
from ..progress import ProgressCallback
from ..task import check_task
from .loading import InspectedNetwork, load_network
from .sentences import describe_inspection

LONGEST_LAG = 1000
"""The longest lag of the memory, in steps, at most."""


@dataclass(frozen=True, eq=False)
class NetworkInspection:
    """The result of `inspect_network`."""

    network: InspectedNetwork
    """The network and its data."""
    inspection: Inspection
    """All measurements."""
    page: Path | None = None
    """The page, if one was written."""

    @property
    def sentences(self) -> list[str]:
        """The measurements in sentences."""
        return describe_inspection(self.inspection)

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers except the states, for JSON; numbers that are not finite are None."""
        inspection = self.inspection
        numbers: dict[str, Any] = make_json_safe(
            {
                "network": self.network.description,
                "task": self.network.task,
                "schedule": inspection.schedule.spec,
                "facts": dict(self.network.facts),
                "sequences": len(self.network.inputs),
                "intact": dict(inspection.intact),
                "modules": [asdict(module) for module in inspection.modules],
                "multiply_adds": {
                    "recurrent": inspection.cost.recurrent.tolist(),
                    "input": inspection.cost.input.tolist(),
                    "readout": inspection.cost.readout.tolist(),
                    "dense": inspection.cost.dense,
                },
                "memory": inspection.memory.norms.tolist(),
                "spectrum": {
                    "frequencies": inspection.spectrum.frequencies.tolist(),
                    "density": inspection.spectrum.density.tolist(),
                },
                "blocks": inspection.weights.recurrent.tolist(),
                "sentences": self.sentences,
                "page": None if self.page is None else replace_undecodable(str(self.page.resolve())),
            }
        )
        return numbers

    def draw(self, folder: str | Path) -> list[Path]:
        """Write all figures into the folder as SVG and PNG, and return their paths."""
        # importing matplotlib takes long
        from ..report.drawing import write_figure
        from .page import draw_figures

        figures = draw_figures(self.network, self.inspection)
        return [path for name, figure in figures.items() for path in write_figure(figure, Path(folder), name)]

    def __str__(self) -> str:
        lines = self.sentences
        if self.page is not None:
            lines.append(format_page_path(self.page))
        return "\n".join(lines)


def inspect_network(
    model: str | Path,
    *,
    task: str | None = None,
    run: str | None = None,
    data: str | None = None,
    word: str | None = None,
    out: str | Path | None = None,
    progress: ProgressCallback | None = None,
) -> NetworkInspection:
    """Look inside one trained network: measure what each of its modules does, and write a page about it.

    The measurements are the states over time, the spectrum of each module compared with its clock, how far back it
    remembers, how the output changes without it, the weights, and the multiply-adds.

    Args:
        model: the folder or file of a store, or a recogniser that `train_recogniser` wrote
        task: for a store that has networks of both tasks, "generation" or "words"
        run: for a store, the first digits of a run's key; None for the best Clockwork RNN of the largest size
        data: for a network that tells words apart, where to take test words from, as `load_corpus` does; None for the
            data in the store, or the bundled words
        word: the word that the figures show; None for the first
        out: the page to write; None to write none
        progress: called while words are read

    Raises:
        ArgumentError: there is no such `task`, or `out` is a folder
        ExperimentError: there is no network that can be inspected, or its data cannot be loaded
        ModelError: the file `model` is not a recogniser

    Example::

        result = cwrnn.experiments.inspect_network("out/generation", out="inspect.html")
        print(result)
        print(result.inspection.modules[0].share)
    """
    if task is not None:
        check_task(task)
    page = None if out is None else check_path("out", out)
    if page is not None and is_folder(page):
        raise ArgumentError("out", f"{page} is a folder: name a file")
    with use_one_thread():
        network = load_network(check_path("model", model), task=task, run=run, data=data, word=word, progress=progress)
        inspection = measure_network(network)
        if page is not None:
            # importing matplotlib takes long
            from .page import write_page

            write_page(network, inspection, page)
    return NetworkInspection(network, inspection, page)


def measure_network(network: InspectedNetwork) -> Inspection:
    """Return all measurements of a network. Lags go up to the median length of the sequences."""
    median_length = int(np.median([len(sequence) for sequence in network.inputs]))
    longest = max(0, min(LONGEST_LAG, median_length - 1))
    return inspect(network.layer, network.network.readout, network.inputs, network.measure, longest=longest)


def find_default_page(model: Path) -> Path:
    """Return the path of the page that `cwrnn inspect` writes by default: beside the network."""
    return (model if is_folder(model) else model.parent) / "inspect.html"
