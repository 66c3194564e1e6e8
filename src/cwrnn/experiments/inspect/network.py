"""`inspect_network`: look inside one trained network, and write a page about what its modules do."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from ...inspection import Inspection
from ..errors import ArgumentError
from ..file_names import check_path, format_page_path, is_folder, replace_undecodable
from ..json_safe import make_json_safe
from ..networks.descent import use_one_thread
from ..progress import ProgressCallback
from ..task import check_task
from .inspected import InspectedNetwork
from .loading import load_network
from .measuring import measure_network
from .sentences import describe_inspection


@dataclass(frozen=True, eq=False)
class NetworkInspection:
    """The result of `cwrnn.inspect` and of `inspect_network`. Printing it shows the measurements in sentences."""

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
    inputs: Sequence[str] | None = None,
    target: str | None = None,
    length: int | None = None,
    out: str | Path | None = None,
    progress: ProgressCallback | None = None,
) -> NetworkInspection:
    """Look inside one trained network: measure what each of its modules does, and write a page about it.

    The measurements are the states over time, the spectrum of each module compared with its clock, how far back it
    remembers, how the output changes without it, the weights, and the multiply-adds.

    Args:
        model: the folder or file of a store, a recogniser that `train_recogniser` wrote, or any other saved network
        task: for a store that has networks of several tasks, the name of one
        run: for a store, the first digits of a run's key; None for the best network of the largest size: a
            Clockwork RNN, else one with clocks, else any
        data: for a network that tells words apart, where to take test words from, as `load_corpus` does; for any other
            network with input, and for any saved network, a CSV or NumPy file; None for the data in the store, or the
            bundled words
        word: the word that the figures show; None for the first
        inputs: the columns of the table that the network reads. Default: those that it was trained on; for a saved
            network, all except the target
        target: the column of the table that the output is compared with. Default: the one that it was trained on; a
            saved network without target is judged by how much its output changes
        length: the rows of the table in each sequence. Default: as in training; for a saved network 320, or all rows of
            a shorter table
        out: the page to write; None to write none
        progress: called while words are read

    Raises:
        ArgumentError: there is no such `task`, or `out` is a folder
        ExperimentError: there is no network that can be inspected, or its data cannot be loaded
        ModelError: the file `model` is not a saved network

    Example::

        result = cwrnn.experiments.inspect_network("out/generation", out="inspect.html")
        print(result)
        print(result.inspection.modules[0].share)
    """
    if task is not None:
        check_task(task)

    def load() -> InspectedNetwork:
        return load_network(
            check_path("model", model),
            task=task,
            run=run,
            data=data,
            word=word,
            inputs=inputs,
            target=target,
            length=length,
            progress=progress,
        )

    return finish_inspection(load, out)


def finish_inspection(load: Callable[[], InspectedNetwork], out: str | PathLike[str] | None) -> NetworkInspection:
    """Load a network, measure it, and write a page about it unless `out` is None."""
    page = None if out is None else check_path("out", out)
    if page is not None and is_folder(page):
        raise ArgumentError("out", f"{page} is a folder: name a file")
    with use_one_thread():
        network = load()
        inspection = measure_network(network)
        if page is not None:
            # importing matplotlib takes long
            from .page import write_page

            write_page(network, inspection, page)
    return NetworkInspection(network, inspection, page)


def find_default_page(model: Path) -> Path:
    """Return the path of the page that `cwrnn inspect` writes by default: beside the network."""
    return (model if is_folder(model) else model.parent) / "inspect.html"
