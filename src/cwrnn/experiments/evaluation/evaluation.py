"""The evaluation of methods on a yardstick, as a Python function.

    from cwrnn.experiments import evaluate

    result = evaluate("adding", lengths=[200, 1000], methods=["cw", "gru"], out="out/adding", progress=print)
    print(result)                          # the table
    result.rows[0].error                   # its numbers
    result.page                            # the page with figures

Training uses one process per core. In a script, call it under ``if __name__ == "__main__":``, because every process
imports the script; or choose ``workers=1``.
"""

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike, fspath
from typing import Any

import torch

from ...schedule import Schedule
from .. import reproduction_result
from ..errors import ArgumentError
from ..limits import (
    LARGEST_EPOCHS,
    LARGEST_MODULES,
    LARGEST_RUNS,
    LARGEST_SEED,
    LARGEST_SIZE,
    check_count,
    check_plan,
)
from ..networks.methods import ALL_METHODS, METHODS
from ..networks.models.table import check_methods
from ..progress import ProgressCallback
from ..sweep.driver import LOCAL, check_engine, open_sweep
from .examples import Examples
from .plan import PERIODS, parse_size
from .result import EvaluationResult
from .task import EVALUATIONS, Evaluation

LARGEST_BATCH = 1_000_000
"""The most sequences of an update."""
LARGEST_INPUT = 2**29
"""The most numbers in the input of an update: 2 GiB."""
RUNS = 3
"""Trainings of each method and size, unless given."""


def evaluate(
    task: str,
    data: "str | PathLike[str] | Examples | None" = None,
    *,
    lengths: Sequence[int] | int | None = None,
    methods: Sequence[str] | str = tuple(METHODS),
    sizes: Sequence[int | str] | int | str | None = None,
    runs: int = RUNS,
    epochs: int | None = None,
    updates: int | None = None,
    batch: int | None = None,
    learning_rate: float | Mapping[str, float] | None = None,
    periods: Sequence[int] | Mapping[str, Sequence[int]] | None = None,
    device: str = "cpu",
    seed: int = 0,
    engine: str = LOCAL,
    scheduler: str | None = None,
    workers: int | None = None,
    out: str | PathLike[str] | None = None,
    resume: bool = False,
    command: str = "",
    progress: ProgressCallback | None = None,
) -> EvaluationResult:
    """Trains networks on one of the yardsticks by which recurrent networks are judged, at equal numbers of parameters.

    Args:
        task: "adding", "copy", "sequential-mnist", "permuted-mnist" or "characters"
        data: for the images, the folder of the four idx files of MNIST or of a set like it; for characters, "bundle"
            (Moby Dick) or a text file. Adding and copy make their data
        lengths: for adding, the steps of the sequences, for copy the delays; one or several. Default: 200
        methods: names of `cwrnn.experiments.networks.methods.ALL_METHODS`. Default: networks of simple, LSTM and GRU
            cells, without clocks and with clocks
        sizes: numbers of parameters, as numbers or as texts such as "70k". Default: 10k; for images 70k; for
            characters 300k
        runs: initial weights for each method, size and length
        epochs: the epochs of each run. Adding and copy: 100 updates each. Default: 10; adding and copy 20
        updates: the most updates of each run. Default: those of all epochs
        batch: sequences of an update. Default: 128; characters 32
        learning_rate: one for all methods, or a dictionary by method. Default: on the images, those of networks with
            clocks come from a few validation runs; the others are usual values that were hardly searched
        periods: of the networks with clocks: one list for all, or a dictionary by method. Default: for images, from a
            few validation runs; else 1, 2, 4, ..., 128
        device: "cpu" or "cuda", or "cuda:1"
        seed: the seed of the first run; the others count from there
        engine: "local" for the cores of this machine, "dask" for a Dask cluster
        scheduler: the address of an existing Dask cluster. Default: one on this machine
        workers: processes on this machine, each of which trains one network at a time on one thread. Default: one per
            core, and one with a GPU
        out: the folder of store, page and figures. Default: none of them are kept, and all records are in the result
        resume: go on with the store in `out`: runs that it has are not trained again
        command: how to repeat this; kept in the store
        progress: called with a `Progress` value while networks are trained

    Returns:
        An `EvaluationResult`: ``print(result)`` shows the table, ``result.rows`` has its numbers.

    Raises:
        ArgumentError: an argument has a value that cannot be used
        ExperimentError: the networks cannot be trained, or the store cannot be used
        ImportError: a method needs a package that is not installed

    >>> result = evaluate("adding", lengths=20, methods="cw", sizes=500, runs=1, updates=2, periods=[1, 2], workers=1)
    >>> [(row.data, row.method, row.size, row.runs) for row in result.rows]
    [('adding 20', 'cw', 500, 1)]
    """
    chosen = find_evaluation(task)
    device = check_device(device)
    if workers is None and device != "cpu":
        workers = 1
    check_engine(engine, scheduler, workers)
    recipe = chosen.recipe()
    names = check_methods(methods)
    check_probabilities(names, chosen)
    budgets = check_sizes(recipe.sizes if sizes is None else sizes)
    asked: dict[str, Any] = {
        "methods": names,
        "sizes": budgets,
        "runs": check_count("runs", runs, LARGEST_RUNS),
        "seed": check_count("seed", seed, LARGEST_SEED, least=0),
        "epochs": check_count("epochs", recipe.epochs if epochs is None else epochs, LARGEST_EPOCHS),
        "updates": None if updates is None else check_count("updates", updates, LARGEST_EPOCHS),
        "batch": check_count("batch", recipe.batch if batch is None else batch, LARGEST_BATCH),
        "device": device,
        "learning_rates": check_learning_rates(learning_rate, names, chosen),
        "periods": check_periods(periods, names, chosen),
    }
    examples = chosen.load_data(list_sources(chosen, data, lengths), progress)
    for each in examples:
        if each.length * asked["batch"] * each.inputs > LARGEST_INPUT:
            raise ArgumentError(
                "batch",
                f"expected at most {LARGEST_INPUT} numbers in a batch, got {asked['batch']} sequences of {each.length} "
                f"steps with {each.inputs} inputs",
            )
    check_plan(len(names) * len(budgets) * len(examples) * runs)
    try:
        planned = chosen.plan(examples, **asked)
    except ValueError as error:
        raise ArgumentError("sizes", str(error)) from error
    if out is not None:
        reproduction_result.require_page_packages()
    with open_sweep(out, command=command, engine=engine, scheduler=scheduler, workers=workers, resume=resume) as sweep:
        started = time.monotonic()
        sweep.train(examples, planned, progress=progress)
        seconds = time.monotonic() - started
        records = tuple(sweep.select(planned))
        if out is None:
            return EvaluationResult(chosen, records, seconds)
        page = reproduction_result.write_page(sweep.store, sweep.folder)
        return EvaluationResult(chosen, records, seconds, sweep.store.path, page)


def find_evaluation(name: str) -> Evaluation:
    """The evaluation task of this name; an ArgumentError if there is none."""
    for task in EVALUATIONS:
        if task.name == name:
            return task
    raise ArgumentError("task", f"expected one of {', '.join(task.name for task in EVALUATIONS)}, got {name!r}")


def list_sources(
    task: Evaluation, data: "str | PathLike[str] | Examples | None", lengths: Sequence[int] | int | None
) -> "list[str | Examples]":
    """The sources that the arguments name; an ArgumentError if they do not fit the task."""
    if task.takes_lengths:
        if data is not None and not isinstance(data, Examples):
            raise ArgumentError("data", f"the task {task.name} makes its data: choose lengths, got {data!r}")
        if lengths is not None:
            numbers = _list_values(lengths)
            if not numbers or data is not None:
                raise ArgumentError("lengths", "expected at least one, and no data beside them")
            return [str(length) for length in dict.fromkeys(numbers)]
    elif lengths is not None:
        raise ArgumentError("lengths", f"the task {task.name} takes none: the data decide them")
    if data is not None:
        return [data if isinstance(data, Examples) else fspath(data)]
    if not task.default_sources:
        raise ArgumentError("data", f"the task {task.name} needs {task.describe_sources()}: --data DIR (data=DIR)")
    return list(task.default_sources)


def check_device(device: str) -> str:
    """The name of the device; an ArgumentError if networks cannot be trained on it."""
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ArgumentError("device", f"expected cpu or cuda, got {device!r}") from error
    if found.type == "cpu":
        return "cpu"
    if found.type != "cuda":
        raise ArgumentError("device", f"expected cpu or cuda, got {device!r}")
    if not torch.cuda.is_available():
        raise ArgumentError("device", f"torch finds no GPU on this machine, got {device!r}")
    if (found.index or 0) >= torch.cuda.device_count():
        raise ArgumentError("device", f"torch finds {torch.cuda.device_count()} GPUs on this machine, got {device!r}")
    return str(found)


def check_probabilities(methods: Sequence[str], task: Evaluation) -> None:
    """Raises an ArgumentError if the task needs probabilities that a method does not give."""
    for name in methods:
        if task.needs_probabilities and ALL_METHODS[name].is_fixed:
            raise ArgumentError(
                "methods", f"{name} cannot learn {task.name}: its readout is fitted by least squares, which gives no "
                "probabilities"
            )  # fmt: skip


def check_sizes(sizes: Sequence[int | str] | int | str) -> tuple[int, ...]:
    """The numbers of parameters, in increasing order."""
    numbers = [parse_size(size) if isinstance(size, str) else size for size in _list_values(sizes)]
    if not numbers:
        raise ArgumentError("sizes", "expected numbers of parameters, got none")
    return tuple(sorted({check_count("sizes", number, LARGEST_SIZE) for number in numbers}))


def check_learning_rates(
    learning_rate: float | Mapping[str, float] | None, methods: Sequence[str], task: Evaluation
) -> dict[str, float]:
    """The learning rate of each method."""
    rates = {method: task.recipe().learning_rate(method) for method in methods}
    if isinstance(learning_rate, Mapping):
        for method in learning_rate:
            if method not in methods:
                raise ArgumentError("learning_rate", f"expected methods among {', '.join(methods)}, got {method!r}")
        rates |= learning_rate
    elif learning_rate is not None:
        rates = dict.fromkeys(methods, learning_rate)
    return {method: _check_rate(rate) for method, rate in rates.items()}


def _check_rate(rate: Any) -> float:
    """A learning rate as a float, because the integer 1 would make another run than 1.0."""
    try:
        number = float(rate)
    except (TypeError, ValueError) as error:
        raise ArgumentError("learning_rate", f"expected one number, or one for each method, got {rate!r}") from error
    if not (number > 0 and math.isfinite(number)):
        raise ArgumentError("learning_rate", f"expected numbers above 0, got {number:g}")
    return number


def check_periods(
    periods: Sequence[int] | Mapping[str, Sequence[int]] | None, methods: Sequence[str], task: Evaluation
) -> dict[str, tuple[int, ...]]:
    """The periods of each method with clocks."""
    clocked = [method for method in methods if ALL_METHODS[method].has_clocks]
    chosen = {method: task.recipe().periods.get(method, PERIODS) for method in clocked}
    if isinstance(periods, Mapping):
        for method in periods:
            if method not in clocked:
                expected = ", ".join(clocked) or "none, as no method has clocks"
                raise ArgumentError("periods", f"expected methods with clocks among {expected}, got {method!r}")
        chosen |= {method: tuple(_list_values(given)) for method, given in periods.items()}
    elif periods is not None:
        chosen = dict.fromkeys(clocked, tuple(_list_values(periods)))
    for given in chosen.values():
        if not 1 <= len(given) <= LARGEST_MODULES:
            raise ArgumentError("periods", f"expected 1 to {LARGEST_MODULES} periods, got {len(given)}")
        try:
            found = Schedule.from_periods(len(given), given).periods
        except (TypeError, ValueError) as error:
            raise ArgumentError("periods", str(error)) from error
        if len(found) < len(given):
            raise ArgumentError("periods", f"expected different periods, got {', '.join(map(str, given))}")
    return chosen


def _list_values(values: Any) -> list[Any]:
    """Several values as a list, or a single one, which may be a text, as a list of one."""
    return list(values) if isinstance(values, Iterable) and not isinstance(values, str) else [values]
