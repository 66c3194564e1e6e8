"""Every method trains on a GPU as on the CPU. `make gpu` runs these tests on a CUDA device."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from cwrnn.experiments.evaluation.adding import make_adding
from cwrnn.experiments.evaluation.evaluation import find_evaluation
from cwrnn.experiments.evaluation.plan import fit_settings
from cwrnn.experiments.evaluation.training import COLUMNS, EvaluationSettings, train
from cwrnn.experiments.networks.methods import ALL_METHODS
from cwrnn.experiments.networks.models.table import find_layer_class

COMPARED = [COLUMNS.index("loss"), COLUMNS.index("validation error")]
"""The columns of a learning curve that do not depend on the speed of a device."""


def train_twice(method, devices):
    """The results of two updates on the adding problem, one result per device."""
    chosen = ALL_METHODS[method]
    for package in find_layer_class(chosen).packages if chosen.model else ():
        pytest.importorskip(package)
    examples = make_adding(40)
    settings = EvaluationSettings(1e-2, 1, batch=4, updates=2, inputs=examples.inputs, outputs=examples.outputs)
    hidden, settings = fit_settings(method, 600, settings, (1, 2, 4))
    measure_error = find_evaluation("adding").measure_error
    return [train(method, hidden, examples, measure_error, 0, replace(settings, device=device)) for device in devices]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("method", ALL_METHODS)
def test_two_updates_give_the_curve_of_the_cpu(method):
    cpu, cuda = train_twice(method, ("cpu", "cuda"))
    assert cuda.status == cpu.status == "finished"
    assert np.isfinite(cuda.error)
    # the loss of a layer that is fitted by least squares is not a number
    np.testing.assert_allclose(cuda.curve[:, COMPARED], cpu.curve[:, COMPARED], rtol=1e-3, atol=1e-5)
    assert cuda.error == pytest.approx(cpu.error, rel=1e-3, abs=1e-5)
