"""The training loop: one seed, one result; it stops where it should, and keeps the best weights."""

import math
import re

import numpy as np
import pytest
import torch
from torch import nn

from cwrnn.estimators import training
from cwrnn.estimators.training import (
    TrainingError,
    TrainingSettings,
    fit_network,
    measure_loss,
    seed_torch,
    select_device,
    show_training,
)

CPU = torch.device("cpu")
ITEMS = torch.arange(50)


class Line(nn.Module):
    """A line through noisy points, with dropout: every source of random numbers counts."""

    def __init__(self):
        super().__init__()
        self.linear, self.dropout = nn.Linear(3, 1), nn.Dropout(0.1)
        random = np.random.default_rng(0)
        self.x = torch.from_numpy(random.normal(size=(50, 3))).float()
        self.y = self.x.sum(1, keepdim=True)

    def loss(self, items):
        return (self.linear(self.dropout(self.x[items])) - self.y[items]).square().mean()


class Point(nn.Module):
    """One number. In training it moves towards 1; the held-out loss is lowest at 0.5."""

    def __init__(self):
        super().__init__()
        self.place = nn.Parameter(torch.zeros(()))

    def loss(self, items):
        return (self.place - (1.0 if self.training else 0.5)).square()


def fit_line(seed=0, **options):
    with seed_torch(seed, CPU):
        line = Line()
    curve = fit_network(line, line.loss, ITEMS[:40], ITEMS[40:], TrainingSettings(**options), seed=seed)
    return line, curve


def test_the_same_seed_gives_the_same_bits():
    options = {"max_epochs": 5, "batch_size": 7, "rate_shape": "one-cycle"}
    one, first = fit_line(3, **options)
    torch.rand(17)
    other, second = fit_line(3, **options)
    assert first.train == second.train
    assert first.validation == second.validation
    assert torch.equal(one.linear.weight, other.linear.weight)
    assert fit_line(4, **options)[1].train != first.train


def test_the_global_generators_stay_as_they_are():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    fit_line(max_epochs=2)
    assert torch.equal(torch.rand(3), expected)


def test_the_best_weights_are_kept_and_training_stops():
    point = Point()
    settings = TrainingSettings(learning_rate=0.02, max_epochs=100, batch_size=50, patience=4)
    curve = fit_network(point, point.loss, ITEMS, ITEMS, settings, seed=0)
    assert curve.stopped == "patience"
    assert curve.epochs == curve.best_epoch + 4
    assert curve.best_loss == min(curve.validation) == measure_loss(point, point.loss, ITEMS, 50)
    assert abs(point.place.item() - 0.5) < 0.02
    assert not point.training


def test_a_tolerance_demands_more():
    point = Point()
    settings = TrainingSettings(learning_rate=1e-6, max_epochs=100, patience=3, tolerance=0.5)
    assert fit_network(point, point.loss, ITEMS, ITEMS, settings, seed=0).epochs == 4


def test_without_held_out_items_the_last_weights_stay():
    point = Point()
    settings = TrainingSettings(learning_rate=0.02, max_epochs=7, batch_size=50)
    curve = fit_network(point, point.loss, ITEMS, None, settings, seed=0)
    assert (curve.stopped, curve.epochs, curve.best_epoch, curve.validation) == ("max_epochs", 7, 7, ())
    assert curve.best_loss == curve.train[-1]
    assert point.place.item() > 0.1
    empty = fit_network(Point(), point.loss, ITEMS, ITEMS[:0], settings, seed=0)
    assert empty.validation == ()


def record_places(point, monkeypatch):
    """The list of the places of a Point, to which each update adds one."""
    places, change = [], training._Loop._change_weights

    def record(loop):
        change(loop)
        places.append(point.place.item())

    monkeypatch.setattr(training._Loop, "_change_weights", record)
    return places


def average(places):
    """The mean in which the n-th place has the weight n."""
    return float(np.average(places, weights=np.arange(1, len(places) + 1)))


@pytest.mark.parametrize("held_out", [ITEMS, None])
def test_the_mean_of_the_weights_is_kept(held_out, monkeypatch):
    point = Point()
    places = record_places(point, monkeypatch)
    settings = TrainingSettings(learning_rate=0.02, max_epochs=7, batch_size=25, average=True)
    curve = fit_network(point, point.loss, ITEMS, held_out, settings, seed=0)
    assert curve.best_epoch == 7
    assert len(places) == 14
    assert point.place.item() == pytest.approx(average(places))
    # the updates go on from the weights and not from their mean
    assert places == sorted(places)
    assert places[-1] == pytest.approx(14 * 0.02, rel=0.05)


def test_the_held_out_items_measure_the_mean(monkeypatch):
    point = Point()
    places = record_places(point, monkeypatch)
    settings = TrainingSettings(learning_rate=0.05, max_epochs=100, batch_size=50, patience=4, average=True)
    curve = fit_network(point, point.loss, ITEMS, ITEMS, settings, seed=0)
    expected = [(average(places[:epoch]) - 0.5) ** 2 for epoch in range(1, curve.epochs + 1)]
    assert curve.validation == pytest.approx(expected, abs=1e-6)
    assert curve.best_loss == min(curve.validation) == measure_loss(point, point.loss, ITEMS, 50)
    assert point.place.item() == pytest.approx(average(places[: curve.best_epoch]))


def test_a_time_limit_stops_training_and_lowers_the_rate(monkeypatch):
    clock = iter(range(1000))
    monkeypatch.setattr(training.time, "monotonic", lambda: next(clock))
    point, rates = Point(), []
    monkeypatch.setattr(
        torch.optim.AdamW,
        "step",
        lambda self, closure=None: rates.append(self.param_groups[0]["lr"]),
    )
    settings = TrainingSettings(max_epochs=50, batch_size=5, max_seconds=20, rate_shape="cosine", learning_rate=1.0)
    curve = fit_network(point, point.loss, ITEMS, ITEMS, settings, seed=0)
    assert curve.stopped == "max_seconds"
    # the clock counts each look at it, and there are two for each batch
    assert curve.epochs < 3
    assert len(rates) == 10
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] < 0.2


@pytest.mark.parametrize(("shape", "expected"), [
    ("constant", [1, 1, 1, 1]), ("cosine", [1, 0.8550, 0.1550, 0.01]), ("one-cycle", [0.04, 0.9337, 0.1868, 0.01]),
])  # fmt: skip
def test_rate_shapes(shape, expected):
    assert [training._scale_rate(shape, x) for x in (0, 0.25, 0.75, 1)] == pytest.approx(expected, abs=1e-4)


def test_a_loss_that_is_not_finite_at_first_is_an_error():
    point = Point()
    with pytest.raises(TrainingError, match=r"the loss is nan after the first epoch: learning_rate=0\.003 may be too"):
        fit_network(point, lambda items: point.place * math.nan, ITEMS, ITEMS, seed=0)


def test_a_loss_that_is_not_finite_later_ends_the_training():
    point, calls = Point(), []

    def compute_loss(items):
        calls.append(len(items))
        return point.loss(items) * (math.nan if len(calls) > 6 else 1.0)

    settings = TrainingSettings(learning_rate=0.02, max_epochs=50, batch_size=50)
    curve = fit_network(point, compute_loss, ITEMS, ITEMS, settings, seed=0)
    assert (curve.stopped, curve.best_epoch, curve.epochs) == ("diverged", 3, 4)
    assert math.isfinite(point.place.item())


def test_the_loss_is_the_mean_over_items_not_batches():
    point, values = Point(), torch.arange(50.0)
    mean = measure_loss(point, lambda items: values[items].mean() + 0 * point.place, ITEMS, 8)
    assert mean == pytest.approx(24.5)
    settings = TrainingSettings(max_epochs=1, batch_size=8)
    curve = fit_network(point, lambda items: values[items].mean() + 0 * point.place, ITEMS, None, settings, seed=0)
    assert curve.train[0] == pytest.approx(24.5)


def test_the_gradient_is_clipped(monkeypatch):
    steps = []
    monkeypatch.setattr(torch.optim.AdamW, "step", lambda self, closure=None: steps.append(point.place.grad.item()))
    point = Point()
    for clip, expected in ((0.1, -0.1), (None, -2000.0)):
        fit_network(point, lambda items: 1000 * point.loss(items), ITEMS, None,
                    TrainingSettings(max_epochs=1, batch_size=50, clip=clip), seed=0)  # fmt: skip
        assert steps.pop() == pytest.approx(expected, rel=1e-3)


def test_parameters_learn_at_their_share_of_the_rate():
    plain, shared = Point(), Point()
    # AdamW's first step is as long as the learning rate, whatever the gradient
    settings = TrainingSettings(max_epochs=1, batch_size=len(ITEMS), learning_rate=0.01)
    start = plain.place.item()
    fit_network(plain, plain.loss, ITEMS, None, settings, seed=0)
    fit_network(shared, shared.loss, ITEMS, None, settings, seed=0, rate_shares={shared.place: torch.tensor(0.25)})
    assert abs(plain.place.item() - start) == pytest.approx(0.01, rel=1e-3)
    assert shared.place.item() - start == pytest.approx(0.25 * (plain.place.item() - start), rel=1e-4)


def test_progress_is_reported_after_each_batch():
    point, reports = Point(), []
    fit_network(point, point.loss, ITEMS, ITEMS, TrainingSettings(max_epochs=2, batch_size=25), seed=0,
                progress=reports.append)  # fmt: skip
    assert [report.epoch for report in reports] == [1, 1, 2, 2]
    assert [report.fraction for report in reports] == [0.25, 0.5, 0.75, 1.0]
    assert reports[1].train_loss is None
    assert reports[2].train_loss > 0
    assert reports[2].validation_loss > 0


def test_an_exception_in_the_callback_stops_training():
    def stop(progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit_network(Point(), Point().loss, ITEMS, seed=0, progress=stop)


def test_the_bar_is_drawn_on_standard_error(capsys):
    with show_training(False) as progress:
        assert progress is None
    with show_training(True, "a title") as progress:
        line = Line()
        fit_network(line, line.loss, ITEMS[:40], ITEMS[40:], TrainingSettings(max_epochs=2), seed=0, progress=progress)
    output = capsys.readouterr()
    assert output.out == ""
    assert "a title, epoch 2 of at most 2" in output.err
    assert "100%" in output.err


def test_nothing_to_learn_from_is_an_error():
    with pytest.raises(ValueError, match="train_items is empty, expected at least one item"):
        fit_network(Point(), Point().loss, ITEMS[:0], seed=0)


@pytest.mark.parametrize(("options", "message"), [
    ({"learning_rate": 0}, "learning_rate must be above 0, got 0"),
    ({"learning_rate": math.nan}, "learning_rate must be a finite number, got nan"),
    ({"learning_rate": "fast"}, "learning_rate must be a finite number, got 'fast'"),
    ({"max_epochs": 2.5}, "max_epochs must be an integer of at least 1, got 2.5"),
    ({"batch_size": True}, "batch_size must be an integer of at least 1, got True"),
    ({"patience": 0}, "patience must be an integer of at least 1, got 0"),
    ({"weight_decay": -1.0}, "weight_decay must be at least 0, got -1.0"),
    ({"clip": 0.0}, "clip must be above 0, got 0.0"),
    ({"max_seconds": -3}, "max_seconds must be above 0, got -3"),
    ({"rate_shape": "round"}, "rate_shape must be one of constant, cosine, one-cycle, got 'round'"),
])  # fmt: skip
def test_settings_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        TrainingSettings(**options)


def test_devices():
    assert select_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert select_device(CPU) == CPU
    with pytest.raises(ValueError, match="device must be 'auto' or the name of a device of torch, got 'toaster'"):
        select_device("toaster")
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="device='cuda' cannot be used: torch finds no GPU"):
            select_device("cuda")
