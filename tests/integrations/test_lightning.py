"""Lightning trains a network, and its checkpoints hold schedules and states."""

import pytest
import torch
from support.delayed_input import make_examples, make_network, mean_squared_error
from torch.utils.data import DataLoader, TensorDataset

from cwrnn import Schedule, State

lightning = pytest.importorskip("lightning", reason="install the extra: pip install 'cwrnn[integrations]'")

# Lightning warns about everything that a small fit leaves out: workers, loggers, checkpoints
pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("ignore")]


class DelayedInput(lightning.LightningModule):
    """A network, and a stream that goes on from batch to batch of validation."""

    def __init__(self, schedule: Schedule):
        super().__init__()
        self.save_hyperparameters()
        self.network = make_network(schedule)
        self.stream = None

    def training_step(self, batch, index):
        return mean_squared_error(self.network, batch)

    def validation_step(self, batch, index):
        x, _ = batch
        _, self.stream = self.network.layer.step(x[:, 0], self.stream)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)

    def on_save_checkpoint(self, checkpoint):
        checkpoint["stream"] = self.stream

    def on_load_checkpoint(self, checkpoint):
        self.stream = checkpoint["stream"]


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A module before and after a fit, and its checkpoint."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("lightning")
    module = DelayedInput(Schedule.parse("1:8,2:8"))
    loader = DataLoader(TensorDataset(*make_examples(64)), batch_size=16)
    before = mean_squared_error(module.network, make_examples(32)).item()
    trainer = lightning.Trainer(
        max_epochs=10, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=folder, num_sanity_val_steps=0,
    )  # fmt: skip
    trainer.fit(module, loader, loader)
    trainer.save_checkpoint(folder / "last.ckpt")
    return before, module, folder / "last.ckpt"


def test_a_fit_lowers_the_error(fitted):
    before, module, _ = fitted
    assert mean_squared_error(module.network, make_examples(32)).item() < 0.9 * before


def test_a_checkpoint_restores_network_schedule_and_stream(fitted):
    _, module, path = fitted
    restored = DelayedInput.load_from_checkpoint(path)
    x, _ = make_examples(5)
    torch.testing.assert_close(restored.network(x), module.network(x), rtol=0, atol=0)
    assert restored.hparams.schedule == module.hparams.schedule
    assert isinstance(restored.stream, State)
    assert restored.stream.t == module.stream.t > 0
    torch.testing.assert_close(restored.stream.h, module.stream.h, rtol=0, atol=0)


def test_a_checkpoint_is_read_without_running_code(fitted):
    *_, path = fitted
    checkpoint = torch.load(path, weights_only=True)
    assert isinstance(checkpoint["stream"], State)
    assert checkpoint["hyper_parameters"]["schedule"] == Schedule.parse("1:8,2:8")
