"""Records of networks on the evaluation tasks that nobody trained, for tests of figures and pages."""

import math

import numpy as np
from support.made_records import ENVIRONMENT

from cwrnn.experiments.evaluation.adding import make_adding
from cwrnn.experiments.evaluation.copying import make_copying
from cwrnn.experiments.evaluation.examples import Examples
from cwrnn.experiments.evaluation.plan import PERIODS, fit_settings
from cwrnn.experiments.evaluation.training import EvaluationSettings
from cwrnn.experiments.sweep.run import Record, Run


def make_examples(task: str = "adding", length: int = 200) -> Examples:
    """Return the data of a task that makes its data: "adding" or "copy"."""
    return {"adding": make_adding, "copy": make_copying}[task](length)


def make_evaluation_record(
    error: float,
    *,
    method="cw",
    size=1000,
    seed=0,
    data=None,
    status="finished",
    validation=None,
    seconds=100.0,
    epochs=5,
    traceback=None,
    **settings,
) -> Record:
    """Return a record with this test error, whose validation error falls to `validation`, by default to the same.

    The epochs take the same time. The errors of the validation part fall by the same factor in each of them.
    """
    data = data or make_examples()
    values = {"learning_rate": 2e-3, "epochs": epochs, "inputs": data.inputs, "outputs": data.outputs, **settings}
    hidden, fitted = fit_settings(method, size, EvaluationSettings(**values), PERIODS[:4])
    run = Run(data.kind, data.name, data.digest, method, size, hidden, seed, fitted)
    final = error if validation is None else validation
    failed, finished = status == "failed", status == "finished"
    made = np.arange(1, epochs + 1)
    falling = (final or 1e-3) * 4.0 ** (1 - made / epochs) if math.isfinite(final) else np.full(epochs, np.nan)
    curve = np.stack([made, seconds * made / epochs, falling, falling], axis=1).astype(np.float32)
    return Record(
        run=run,
        parameters=run.parameters,
        schedule=run.schedule,
        status=status,
        error=error if finished else math.nan,
        best_error=error if finished else math.nan,
        best_epoch=epochs if finished else 0,
        epochs=0 if failed else epochs if finished else 2,
        curve=None if failed else curve if finished else curve[:1],
        output=None if failed else np.array([final, error], dtype=np.float32),
        weights=None if failed else {"readout.bias": np.zeros(1, np.float32)},
        seconds=seconds,
        traceback=traceback if failed else None,
        environment=ENVIRONMENT,
        finished_at="2026-01-01T00:00:00+00:00",
    )
