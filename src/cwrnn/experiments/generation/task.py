"""The task of sequence generation (section 4.1 of the paper): networks without input learn a sequence by heart."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .. import paper
from ..networks.methods import MODELS
from ..networks.result import TrainingResult
from ..networks.settings import TrainingSettings
from ..progress import ProgressCallback
from ..report.numbers import format_count
from ..sweep.run import SEQUENCE, Dataset, Record, Run
from ..tables import Table
from ..task import Task
from . import plan, training
from .music import load_sequences
from .objective import SequenceObjective, make_objectives

if TYPE_CHECKING:
    from ..inspect.inspected import InspectedNetwork, InspectionOptions
    from ..report.chapter import Chapter
    from ..sweep.store import Store


SECONDS_PER_STEP = {
    "srn": (0.3e-6, 1.5e-10),
    "lstm": (0.13e-6, 2.0e-10),
    "cw": (0.26e-6, 2.5e-10),
    "gru": (0.19e-6, 2.0e-10),
    "cw-lstm": (0.36e-6, 0.7e-10),
    "cw-gru": (0.29e-6, 0.9e-10),
    # no kernel runs the models, so the number of their steps counts for more than their size
    **dict.fromkeys(MODELS, (15e-6, 3e-10)),
    # fitted in one pass, whatever the number of epochs
    "esn": (5e-8, 0.0),
}
"""The seconds of a time step of training, by method: for the network, and for each of its parameters."""


class Generation(Task[Dataset]):
    """Sequence generation. Its error is the NMSE of the generated sequence."""

    name, search_name, title = "generation", "search", "sequence generation"
    error_name, error_is_a_share = "NMSE", False
    table_title = "Sequence generation: the error of the generated sequences"
    data_kind, selects = SEQUENCE, ("target", "offset", "length")
    settings = training.GenerationSettings
    most_epochs = paper.GENERATION_EPOCHS
    clocks_size = paper.GENERATION_SIZES[-1]
    sizes, modules = paper.GENERATION_SIZES, paper.GENERATION_MODULES
    learning_rates, paper_learning_rates = plan.LEARNING_RATES, paper.GENERATION_LEARNING_RATES
    paper_errors = paper.GENERATION_ERRORS
    learned_epochs, learned_rate, choice_name = 1000, 0.02, "NMSE"
    errors_caption = "NMSE; of square waves, without their noise"
    searched_learning_rates = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3)

    def load(
        self,
        sources: Sequence[str | Table],
        progress: ProgressCallback | None = None,
        *,
        offset: float = 0.0,
        length: int | None = None,
        target: str | None = None,
        **options: Any,
    ) -> list[Dataset]:
        """The sequences of "bundle", files, folders and tables."""
        return load_sequences(sources, offset=offset, length=length, target=target)

    def plan(self, data: Sequence[Dataset], **options: Any) -> list[Run]:
        """Every run: each method in each size on each sequence with each seed."""
        return plan.plan(data, **options)

    def plan_search(self, data: Sequence[Dataset], **options: Any) -> list[Run]:
        """Every run of the search: those of `plan` with each learning rate."""
        return plan.plan_search(data, **options)

    def train(
        self, runs: Sequence[Run], data: Sequence[Dataset], progress: Callable[[float], None] | None = None
    ) -> list[TrainingResult]:
        """The results of runs that differ in nothing but seed and sequence."""
        first = runs[0]
        targets, seeds = np.stack([dataset.samples for dataset in data]), [run.seed for run in runs]
        return training.train_many(first.method, first.hidden, targets, seeds, first.settings, progress=progress)

    def make_objectives(
        self, data: Sequence[Dataset], runs: int, seed: int
    ) -> Sequence[tuple[SequenceObjective, list[int]]]:
        """Sequences of one length are learned at once."""
        return make_objectives(data, runs, seed)

    def batch_key(self, data: Dataset) -> Hashable:
        """Sequences of one length are trained at once."""
        return len(data.samples)

    def estimate_seconds(self, run: Run, data: Dataset) -> float:
        """Epochs times steps times the cost of a step."""
        fixed, per_parameter = SECONDS_PER_STEP[run.method]
        return run.settings.epochs * len(data.samples) * (fixed + per_parameter * run.parameters)

    def network_shape(self, data: Dataset) -> tuple[int, int]:
        """No inputs, one output."""
        return paper.GENERATION_INPUTS, paper.GENERATION_OUTPUTS

    def signal(self, data: Dataset) -> NDArray[np.float64]:
        """(time,): the samples."""
        return data.samples

    def describe_errors(self, data: Sequence[Dataset], runs: int, settings: TrainingSettings) -> str:
        """The caption: the meaning of the NMSE, and the runs that it covers."""
        return (
            f"NMSE over the runs that finished: {format_count(len(data), 'sequence')} times {runs} initial weights, "
            f"{settings.epochs} epochs. 0 is perfect, 1 is what the mean achieves; ± is the standard deviation. "
            f"Paper: mean and deviation over {paper.RUNS} runs of its largest networks, on other music (table 3)."
        )

    def inspect_record(
        self, record: Record, data: Dataset, facts: Mapping[str, str], options: "InspectionOptions"
    ) -> "InspectedNetwork":
        """The network, which generates its sequence."""
        # imported here because the figures take long to import, and import this module
        from .inspected import inspect_record

        return inspect_record(record, data, facts, options)

    def pack(self, data: Dataset) -> tuple[dict[str, Any], bytes]:
        """The sample rate, and the samples as float64."""
        return {"rate": data.rate}, np.ascontiguousarray(data.samples, dtype="<f8").tobytes()

    def unpack(self, name: str, source: str, about: dict[str, Any], numbers: bytes) -> Dataset:
        """The sequence that was packed."""
        rate = about["rate"]
        if type(rate) is not int or rate < 1:
            raise ValueError(f"the sample rate of {name!r} must be a positive integer, got {rate!r}")
        return Dataset(name, rate, np.frombuffer(numbers, dtype="<f8"), source)

    def make_chapter(self, store: "Store") -> "Chapter | None":
        """The chapter of `chapter.py`."""
        # imported here because the chapter imports this module
        from .chapter import make_chapter

        return make_chapter(store)

    @property
    def figure_titles(self) -> Mapping[str, str]:
        """The titles of `chapter.py`."""
        from .chapter import TITLES

        return TITLES


GENERATION = Generation()
