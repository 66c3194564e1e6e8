"""The task of regression: networks read columns of a table, and return another column at every row.

The paper has no such task. It is there so that clocks can be compared, evolved and learned on the data of a user.
"""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError
from ..limits import LARGEST_LENGTH, check_count
from ..networks.result import TrainingResult
from ..networks.settings import TrainingSettings
from ..progress import ProgressCallback
from ..report.numbers import format_count
from ..sweep.run import Record, Run
from ..tables import Table, is_table, open_table
from ..task import Task
from . import plan, training
from .columns import Columns, read_columns
from .objective import ColumnObjective

if TYPE_CHECKING:
    from ..inspect.inspected import InspectedNetwork, InspectionOptions
    from ..report.chapter import Chapter
    from ..sweep.store import Store


SECONDS_PER_STEP = (1.1e-6, 3e-10)
"""The seconds of a row of training: for the network, and for each of its parameters."""


class Regression(Task[Columns]):
    """Columns in, a column out. The error is the NMSE of the test part, the last fifth of the rows."""

    name, search_name, title = "regression", "regression search", "columns of a table"
    error_name, error_is_a_share = "NMSE", False
    table_title = "Columns of a table: the error of the predicted column"
    data_kind, selects = Columns.kind, ("target", "inputs", "offset", "length")
    settings = training.RegressionSettings
    most_epochs = training.MOST_EPOCHS
    clocks_size, sizes, modules = plan.SIZE, (plan.SIZE,), training.MODULES
    learning_rates, paper_learning_rates = plan.LEARNING_RATES, {}
    paper_errors: ClassVar[Mapping[tuple[str, int], str]] = {}
    learned_epochs, learned_rate, choice_name = 200, 0.01, "NMSE of the validation part"
    choice_part, errors_caption, has_reproduction = "validation", "NMSE of the test part", False
    searched_learning_rates = (1e-3, 3e-3, 1e-2, 3e-2)

    def load(
        self,
        sources: Sequence[str | Table],
        progress: ProgressCallback | None = None,
        *,
        inputs: Sequence[str] | None = None,
        target: str | None = None,
        offset: float = 0.0,
        length: int | None = None,
        **options: Any,
    ) -> list[Columns]:
        """The columns of each table."""
        if not 0 <= offset < math.inf:
            raise ArgumentError("offset", f"expected a row, 0 or more, got {offset}")
        if length is not None:
            check_count("length", length, LARGEST_LENGTH, least=2)
        for source in sources:
            if not is_table(source):
                raise ArgumentError("data", f"expected CSV or NumPy files with columns to read, got {source!r}")
        return [
            read_columns(open_table(source), inputs=inputs, target=target, offset=offset, length=length)
            for source in sources
        ]

    def plan(self, data: Sequence[Columns], **options: Any) -> list[Run]:
        """Every run: each method in each size on each data set with each seed."""
        return plan.plan(data, **options)

    def plan_search(self, data: Sequence[Columns], **options: Any) -> list[Run]:
        """Every run of the search: those of `plan` with each learning rate."""
        return plan.plan_search(data, **options)

    def train(
        self, runs: Sequence[Run], data: Sequence[Columns], progress: Callable[[float], None] | None = None
    ) -> list[TrainingResult]:
        """The results of runs that differ in nothing but the seed."""
        first = runs[0]
        assert isinstance(first.settings, training.RegressionSettings)
        seeds = [run.seed for run in runs]
        return training.train_many(first.method, first.hidden, data[0], seeds, first.settings, progress=progress)

    def choice_error(self, record: Record) -> float:
        """The lowest NMSE of the validation part, which is the second column of the curve."""
        assert record.curve is not None
        return float(record.curve[:, 1].min())

    def make_objectives(
        self, data: Sequence[Columns], runs: int, seed: int
    ) -> Sequence[tuple[ColumnObjective, list[int]]]:
        """All networks learn the columns of each data set at once."""
        return [
            (ColumnObjective(columns), list(range(seed + place * runs, seed + (place + 1) * runs)))
            for place, columns in enumerate(data)
        ]

    def batch_key(self, data: Columns) -> Hashable:
        """Runs on the same columns are trained at once."""
        return data.digest

    def estimate_seconds(self, run: Run, data: Columns) -> float:
        """The usual number of epochs times the rows times the cost of a row."""
        fixed, per_parameter = SECONDS_PER_STEP
        return run.settings.usual_epochs * len(data.target) * (fixed + per_parameter * run.parameters)

    def network_shape(self, data: Columns) -> tuple[int, int]:
        """One input per column, one output."""
        return data.inputs.shape[1], 1

    def signal(self, data: Columns) -> NDArray[np.float64]:
        """(time, I + 1): the normalised columns of the training part, the target last."""
        inputs, targets = data.parts["training"]
        return np.column_stack((inputs.reshape(-1, inputs.shape[2]).astype(np.float64), targets.ravel()))

    def describe_errors(self, data: Sequence[Columns], runs: int, settings: TrainingSettings) -> str:
        """The caption: the meaning of the NMSE, and the runs that it covers."""
        return (
            f"NMSE of the test part over the runs that finished: {format_count(len(data), 'table')} times {runs} "
            "initial weights. 0 is perfect, 1 is what the mean achieves; ± is the standard deviation."
        )

    def inspect_record(
        self, record: Record, data: Columns, facts: Mapping[str, str], options: "InspectionOptions"
    ) -> "InspectedNetwork":
        """The network, with the test part of its columns or with another table."""
        # imported here because the figures take long to import
        from .inspected import inspect_record

        return inspect_record(record, data, facts, options)

    def pack(self, data: Columns) -> tuple[dict[str, Any], bytes]:
        """The names of the columns and the length of a sequence, and the numbers as float64."""
        about = {"inputs": list(data.input_columns), "target": data.target_column, "length": data.length}
        numbers = np.column_stack((data.inputs, data.target))
        return about, np.ascontiguousarray(numbers, dtype="<f8").tobytes()

    def unpack(self, name: str, source: str, about: dict[str, Any], numbers: bytes) -> Columns:
        """The columns that were packed."""
        inputs, target, length = about["inputs"], about["target"], about["length"]
        if not isinstance(inputs, list) or not all(isinstance(column, str) for column in [*inputs, target]):
            raise ValueError(f"the columns of {name!r} must have names")
        if type(length) is not int:
            raise ValueError(f"the length of the sequences of {name!r} must be an integer, got {length!r}")
        values = np.frombuffer(numbers, dtype="<f8").reshape(-1, len(inputs) + 1)
        return Columns(name, source, values[:, :-1], values[:, -1], tuple(inputs), target, length)

    def make_chapter(self, store: "Store") -> "Chapter | None":
        """There is no chapter: the clocks have one."""
        return None

    @property
    def figure_titles(self) -> Mapping[str, str]:
        """There are no figures beside those of the clocks."""
        return {}


REGRESSION = Regression()
