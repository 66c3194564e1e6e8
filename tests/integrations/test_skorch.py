"""skorch fits, saves, restores and searches over networks."""

import pytest
import torch
from support.delayed_input import I, make_examples, make_network
from torch import nn

skorch = pytest.importorskip("skorch", reason="install the extra: pip install 'cwrnn[integrations]'")
model_selection = pytest.importorskip("sklearn.model_selection")

pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("ignore")]


class DelayedInput(nn.Module):
    """A network that reads and writes tables, one row per sequence, as scikit-learn's scores expect."""

    def __init__(self, schedule="1:8,2:8"):
        super().__init__()
        self.network = make_network(schedule)

    def forward(self, x):
        return self.network(x.unflatten(1, (-1, I))).flatten(1)


def make_regressor(epochs):
    return skorch.NeuralNetRegressor(
        DelayedInput, optimizer=torch.optim.Adam, lr=0.01, max_epochs=epochs, batch_size=16, train_split=None, verbose=0
    )


def make_tables(count):
    return [examples.flatten(1).numpy() for examples in make_examples(count)]


def test_a_fit_lowers_the_error():
    regressor = make_regressor(epochs=10)
    regressor.fit(*make_tables(64))
    assert regressor.history[-1, "train_loss"] < 0.9 * regressor.history[0, "train_loss"]


@pytest.mark.parametrize("use_safetensors", [False, True], ids=["torch", "safetensors"])
def test_saved_parameters_restore_the_predictions(tmp_path, use_safetensors):
    regressor = make_regressor(epochs=1)
    regressor.fit(*make_tables(16))
    regressor.save_params(f_params=tmp_path / "network", use_safetensors=use_safetensors)
    restored = make_regressor(epochs=1).initialize()
    restored.load_params(f_params=tmp_path / "network", use_safetensors=use_safetensors)
    x, _ = make_tables(5)
    assert (restored.predict(x) == regressor.predict(x)).all()


def test_a_grid_search_runs_over_schedules():
    schedules = ["1:16", "1:8,2:8"]
    search = model_selection.GridSearchCV(
        make_regressor(epochs=2),
        {"module__schedule": schedules},
        cv=2,
        scoring="neg_mean_squared_error",
        error_score="raise",
    )
    search.fit(*make_tables(32))
    assert search.best_params_["module__schedule"] in schedules
