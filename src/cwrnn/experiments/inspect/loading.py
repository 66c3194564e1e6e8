"""Loading the network that is to be inspected, and the data to inspect it with.

a run of a store      has the weights, and the data that they were trained on
a saved recogniser    a file that `train_recogniser` wrote; it has the words, but no data
any saved network     a file that `SavedNetwork.save` wrote; a table of the user has the data
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...saved import ModelError, SavedNetwork
from ...untrusted import escape_controls
from ..file_names import is_folder, replace_undecodable
from ..networks.methods import ALL_METHODS, CLOCKED, METHODS
from ..report.statistics import best_record
from ..sweep.run import FINISHED, Record
from ..sweep.store import Store
from ..tables import is_table
from ..task import Data, all_tasks, find_task_of_data
from .columns import inspect_on_table
from .inspected import InspectedNetwork, InspectionError, InspectionOptions


def load_network(path: Path, *, task: str | None = None, run: str | None = None, **options: Any) -> InspectedNetwork:
    """Return the network at `path` with the data to inspect it with.

    Raises the error of the file that could not be read, or an InspectionError.

    Args:
        path: the folder or the file of a store, or a saved network
        task: for a store, the name of a task; needed if it has runs of several and no run is named
        run: for a store, the first digits of a run's key; None for the best network of the largest size: a
            Clockwork RNN, else one with clocks, else an SRN, LSTM or GRU. Models of other papers cannot be inspected
        options: the fields of `InspectionOptions`
    """
    asked = InspectionOptions(**options)
    if is_folder(path) or path.suffix == ".sqlite":
        return _load_from_store(path, task, run, asked)
    for name, value in (("task", task), ("run", run)):
        if value is not None:
            raise InspectionError(f"{path}: is not a store but a single network: there is no {name} to choose")
    saved = SavedNetwork.load(path)
    shown = escape_controls(replace_undecodable(str(path)))
    facts = {"model": shown}
    if is_table(asked.data):
        return inspect_on_table(saved, facts, asked)
    known = next((task for task in all_tasks() if task.name == saved.kind), None)
    if known is None or not known.inspects_saved:
        raise InspectionError(
            f"{shown}: a network of the kind {saved.kind!r} has no data of its own: name a table with data"
        )
    try:
        return known.inspect_saved(saved, facts, asked)
    except ModelError as error:
        raise ModelError(f"{shown}: {error}") from error


def _load_from_store(path: Path, task: str | None, run: str | None, options: InspectionOptions) -> InspectedNetwork:
    with Store.read(path) as store:
        records = {known.name: [*store.records(known.name), *store.records(known.clocks_name)] for known in all_tasks()}
        if run is not None:
            records |= {known.search_name: store.records(known.search_name) for known in all_tasks()}
        record = _choose_best(store.path, records, task) if run is None else _find_run(store.path, records, run)
        _require_modules(store.path, record)
        all_data: Mapping[str, Data] = store.load_all_data()
    if record.run.data not in all_data:
        raise InspectionError(f"{path}: the data set {record.run.data!r} is of a kind that this version does not know")
    trained = all_data[record.run.data]
    facts = {"run": record.key[:12], "store": replace_undecodable(str(store.path)), "data": trained.source}
    if record.status != FINISHED:
        facts["status"] = f"{record.status}: the weights are those of its lowest training loss"
    return find_task_of_data(trained).inspect_record(record, trained, facts, options)


def _require_modules(path: Path, record: Record) -> None:
    """Raise an InspectionError if the network is a model of another paper, which has no modules to look at."""
    method = ALL_METHODS[record.run.method]
    if method.model:
        known = ", ".join(method.label for method in METHODS.values())
        raise InspectionError(
            f"{path}: the run {record.key[:12]} is {method.article} {method.label}, which cannot be inspected: "
            f"expected one of {known}"
        )


def _find_run(path: Path, records: Mapping[str, Sequence[Record]], run: str) -> Record:
    matching = [record for of_task in records.values() for record in of_task if record.key.startswith(run)]
    if len(matching) != 1:
        count = "no run" if not matching else f"{len(matching)} runs"
        raise InspectionError(f"{path}: {count} with a key that begins with {run!r}")
    [record] = matching
    if record.weights is None:
        raise InspectionError(f"{path}: the run {run} failed: it has no weights")
    return record


def _choose_best(path: Path, records: Mapping[str, Sequence[Record]], task: str | None) -> Record:
    """Return the best network of the largest size: a Clockwork RNN if there is one, else another method.

    Methods with clocks come first, models of other papers last.
    """
    tasks = [name for name in records if records[name] and task in (None, name)]
    if not tasks:
        raise InspectionError(f"{path}: there are no runs{'' if task is None else f' of the task {task}'}")
    if len(tasks) > 1:
        raise InspectionError(f"{path}: has networks of several tasks: choose the task {' or '.join(tasks)}")
    for method in dict.fromkeys([*CLOCKED, *ALL_METHODS]):
        finished = [record for record in records[tasks[0]] if (record.run.method, record.status) == (method, FINISHED)]
        largest = max((record.run.size for record in finished), default=0)
        best = best_record(record for record in finished if record.run.size == largest)
        if best is not None:
            return best
    raise InspectionError(f"{path}: no network finished")
