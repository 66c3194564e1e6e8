"""Tasks that networks learn. A task loads its data, plans its runs, trains them and measures their errors.

The sweep (runs, store, engines) knows nothing of music or words: it asks the task of a run. A task is an instance of
`Task` in the module `task` of its own folder; `all_tasks` is the registry.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cache
from itertools import groupby
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from .errors import ArgumentError
from .networks.result import TrainingResult
from .networks.settings import TrainingSettings
from .progress import ProgressCallback
from .report.numbers import format_error, format_percent
from .tables import Table

if TYPE_CHECKING:
    from ..saved import SavedNetwork
    from .clocks.training import Objective
    from .inspect.inspected import InspectedNetwork, InspectionOptions
    from .report.chapter import Chapter
    from .report.draws import DrawSummary
    from .sweep.run import Record, Run
    from .sweep.store import Store


class Data(Protocol):
    """One data set, on which a run is trained."""

    @property
    def name(self) -> str:
        """The name, by which runs and stores know the data set."""

    @property
    def source(self) -> str:
        """Where the data set comes from, for people to read."""

    @property
    def digest(self) -> str:
        """The hash of the numbers."""

    @property
    def kind(self) -> str:
        """The `Task.data_kind` of the task that reads this data set from a store."""


D = TypeVar("D", bound=Data)


class Task(ABC, Generic[D]):
    """A task, with data sets of the type D."""

    name: ClassVar[str]
    """The name in stores, in commands and in Python."""
    search_name: ClassVar[str]
    """The name, in stores, of runs that search for the learning rate. Their records are kept apart."""
    title: ClassVar[str]
    """The title, for people to read."""
    error_name: ClassVar[str]
    """The name of the error that the task measures."""
    error_is_a_share: ClassVar[bool]
    """Whether the error is a share, to be written in percent."""
    table_title: ClassVar[str]
    """The title of a table of errors."""
    data_kind: ClassVar[str]
    """The kind of the data sets, as stores know it."""
    selects: ClassVar[tuple[str, ...]] = ()
    """The options of `load` that choose a part of the data: "target", "inputs", "offset" and "length"."""
    takes_one_source: ClassVar[bool] = False
    """Whether all networks are trained on one data set, so that there can be only one source."""
    settings: ClassVar[type[TrainingSettings]]
    """The type of the hyper-parameters of a run."""
    sizes: ClassVar[tuple[int, ...]]
    """Parameters of the paper's networks."""
    clocks_size: ClassVar[int]
    """Parameters of the networks that compare clocks, unless given."""
    modules: ClassVar[int]
    """Modules of the paper's Clockwork RNN."""
    most_epochs: ClassVar[int]
    """The most epochs of a run, unless given."""
    learning_rates: ClassVar[Mapping[str, float]]
    """The learning rates unless given, by method: the paper's, and ours for the methods that it does not have."""
    paper_learning_rates: ClassVar[Mapping[str, float]]
    """The paper's learning rates, by method."""
    searched_learning_rates: ClassVar[tuple[float, ...]]
    """The learning rates that a search tries."""
    learned_epochs: ClassVar[int]
    """Epochs of a training that learns clocks, unless given."""
    learned_rate: ClassVar[float]
    """The learning rate of the weights in a training that learns clocks, unless given."""
    choice_name: ClassVar[str]
    """The name of the error by which clocks and learning rates are chosen: `choice_error`."""
    choice_part: ClassVar[str] = "training"
    """The part of the data by whose error clocks and learning rates are chosen."""
    errors_caption: ClassVar[str]
    """Which errors a table about learned clocks shows."""
    inspects_saved: ClassVar[bool] = False
    """Whether there are data to inspect a saved network with, unless the user names some."""
    trains_together: ClassVar[bool] = True
    """Whether `train` gains from several runs at once; otherwise a batch has one run."""
    has_clock_commands: ClassVar[bool] = True
    """Whether the commands about clocks and `cwrnn inspect` take the task."""
    has_reproduction: ClassVar[bool] = True
    """Whether `cwrnn reproduce` has a command of the task's name."""
    paper_errors: ClassVar[Mapping[tuple[str, int], str]]
    """Mean and deviation of the error in the paper, by method and size: table 3."""

    @property
    def error_header(self) -> str:
        """The name of the error above a column of numbers that `format_error` made."""
        return "error %" if self.error_is_a_share else self.error_name

    @property
    def choice_header(self) -> str | None:
        """The name of `choice_error` above a column of numbers; None if it is the error that tables show anyway."""
        return None if self.choice_name == self.error_name else f"{self.choice_part} {self.choice_name}"

    def format_error(self, error: float) -> str:
        """An error as tables show it: in two significant digits, or in percent without the sign."""
        return format_percent(error, unit="") if self.error_is_a_share else format_error(error)

    @property
    def clocks_name(self) -> str:
        """The name, in stores, of runs that compare or evolve clocks."""
        return f"clocks {self.name}"

    @property
    def stored_names(self) -> tuple[str, ...]:
        """All names that runs of this task have in stores."""
        return self.name, self.search_name, self.clocks_name

    def load_data(
        self,
        data: "str | PathLike[str] | Table | Data | Sequence[str | PathLike[str] | Table | Data]",
        progress: ProgressCallback | None = None,
        **options: Any,
    ) -> list[D]:
        """The data sets that an argument `data` names, in its order: one source or data set, or several.

        Raises an ArgumentError if one cannot be loaded, is for another task, or has the name of another.
        """
        is_one = isinstance(data, (str, PathLike, Table)) or hasattr(data, "digest")
        sources: list[Any] = [data] if is_one else list(data)  # type: ignore[arg-type]
        if not sources or (self.takes_one_source and len(sources) > 1):
            expected = "one source" if self.takes_one_source else "one or more sources"
            raise ArgumentError("data", f"expected {expected} of {self.name}, got {len(sources)}")
        datasets: list[D] = []
        # neighbouring sources are loaded at once
        for is_data, neighbours in groupby(sources, key=lambda source: hasattr(source, "digest")):
            group = list(neighbours)
            named = [source if isinstance(source, Table) or is_data else fspath(source) for source in group]
            datasets += named if is_data else self.load(named, progress, **options)
        for dataset in datasets:
            if dataset.kind != self.data_kind:
                raise ArgumentError("data", f"expected data of {self.title}, got {dataset.name!r}: {dataset.kind}")
        for name, count in Counter(dataset.name for dataset in datasets).items():
            if count > 1:
                raise ArgumentError("data", f"expected different names, got {count} data sets named {name!r}")
        return datasets

    @abstractmethod
    def load(
        self, sources: "Sequence[str | Table]", progress: ProgressCallback | None = None, **options: Any
    ) -> list[D]:
        """The data sets of the sources; an ArgumentError if they cannot be loaded."""

    @abstractmethod
    def plan(self, data: Sequence[D], **options: Any) -> "list[Run]":
        """The runs on these data sets. The options are those of the function `plan` in the task's folder."""

    @abstractmethod
    def plan_search(self, data: Sequence[D], **options: Any) -> "list[Run]":
        """The runs of a search for the learning rate on these data sets."""

    @abstractmethod
    def train(
        self, runs: "Sequence[Run]", data: Sequence[D], progress: Callable[[float], None] | None = None
    ) -> list[TrainingResult]:
        """The results of runs that differ in nothing but seed and data, with one data set per run."""

    def choice_error(self, record: "Record") -> float:
        """The error by which clocks and learning rates are chosen; the test set must have no part in it."""
        return record.error

    @abstractmethod
    def make_objectives(self, data: Sequence[D], runs: int, seed: int) -> "Sequence[tuple[Objective, list[int]]]":
        """What networks with learned clocks are trained on at once, each with the seeds of its networks.

        Args:
            data: the data sets
            runs: the networks for each data set
            seed: the seed of the first network; the next ones count from there
        """

    @abstractmethod
    def batch_key(self, data: D) -> Hashable:
        """A value that the data sets of runs must share to be trained at once."""

    @abstractmethod
    def estimate_seconds(self, run: "Run", data: D) -> float:
        """The approximate number of seconds that a run takes in a full batch. Progress estimates correct it."""

    @abstractmethod
    def network_shape(self, data: D) -> tuple[int, int]:
        """The inputs and outputs of a network for this data set."""

    @abstractmethod
    def signal(self, data: D) -> NDArray[np.float64]:
        """(time,) or (time, channels): the training data as one signal, whose spectrum can suggest periods."""

    @abstractmethod
    def describe_errors(self, data: Sequence[D], runs: int, settings: TrainingSettings) -> str:
        """The caption of a table of errors: their measure, data and runs."""

    def summarise_draws(self, records: "Sequence[Record]", data: Sequence[D]) -> "DrawSummary | None":
        """The spread of the errors over draws of the data, and tests over them; None if nothing was drawn."""
        return None

    @abstractmethod
    def inspect_record(
        self, record: "Record", data: D, facts: Mapping[str, str], options: "InspectionOptions"
    ) -> "InspectedNetwork":
        """The network of a record, with the data to inspect it with.

        Args:
            record: the record, which has weights
            data: the data set that it was trained on
            facts: where the network comes from, for people to read
            options: what the user asks for
        """

    def inspect_saved(
        self, saved: "SavedNetwork", facts: Mapping[str, str], options: "InspectionOptions"
    ) -> "InspectedNetwork":
        """A saved network of this task with data of its own; only if `inspects_saved`."""
        raise NotImplementedError

    @abstractmethod
    def pack(self, data: D) -> tuple[dict[str, Any], bytes]:
        """A data set as a store keeps it, besides name, source and digest: JSON values, and the numbers."""

    @abstractmethod
    def unpack(self, name: str, source: str, about: dict[str, Any], numbers: bytes) -> D:
        """The data set that was packed."""

    @abstractmethod
    def make_chapter(self, store: "Store") -> "Chapter | None":
        """The chapter about this task in the report of a store; None if the store has no runs of this task."""

    @property
    @abstractmethod
    def figure_titles(self) -> Mapping[str, str]:
        """The titles of all figures that the chapter can have, by the names of their files."""


@cache
def all_tasks() -> tuple[Task[Any], ...]:
    """Every task. To add one, make a folder for it and add its instance here."""
    # imported here because the tasks import this module
    from .evaluation.task import EVALUATIONS
    from .generation.task import GENERATION
    from .regression.task import REGRESSION
    from .words.task import WORDS

    return GENERATION, WORDS, REGRESSION, *EVALUATIONS


def clock_tasks() -> tuple[Task[Any], ...]:
    """The tasks of the commands about clocks and of `cwrnn inspect`."""
    return tuple(task for task in all_tasks() if task.has_clock_commands)


def find_task(name: str) -> Task[Any]:
    """The task whose runs have this name in stores.

    >>> find_task("search").name, find_task("clocks words").name
    ('generation', 'words')
    """
    for task in all_tasks():
        if name in task.stored_names:
            return task
    raise ValueError(f"task must be one of {', '.join(task.name for task in all_tasks())}, got {name!r}")


def check_task(name: str) -> Task[Any]:
    """The task of this name, for the commands about clocks; an ArgumentError if there is none."""
    names = [task.name for task in clock_tasks()]
    if name not in names:
        raise ArgumentError("task", f"expected one of {', '.join(names)}, got {name!r}")
    return find_task(name)


def find_task_of_data(data: Data) -> Task[Any]:
    """The task that a data set is for."""
    return next(task for task in all_tasks() if task.data_kind == data.kind)
