"""Learned clocks: both kinds of networks are trained in the same way, and the result says which is better."""

import errno
import json
import math
import os
from dataclasses import replace

import numpy as np
import pytest
import torch
from support import made_corpora

from cwrnn import ClockworkRNN, Schedule
from cwrnn.experiments.clocks import training
from cwrnn.experiments.clocks.figures import draw_learning
from cwrnn.experiments.clocks.learned_clocks import LearnedClocks, choose_best, explains_period
from cwrnn.experiments.clocks.learning import learn_clocks
from cwrnn.experiments.clocks.square_waves import make_square_waves
from cwrnn.experiments.clocks.training import Errors, LearningSettings, NetworkBatch, TrainedNetwork, train_networks
from cwrnn.experiments.errors import ArgumentError, ExperimentError
from cwrnn.experiments.generation.objective import SequenceObjective
from cwrnn.experiments.report.drawing import NMSE
from cwrnn.experiments.words import objective as word_objective
from cwrnn.experiments.words.objective import WordObjective

SHORT = LearningSettings(hidden=12, modules=4, longest=10, epochs=140, learning_rate=0.03)
FEW = LearningSettings(hidden=8, modules=4, longest=10, epochs=4, learning_rate=0.03)


def make_waves(*periods, count=1, steps=42, noise=0.0):
    return [make_square_waves(periods, seed, steps=steps, noise=noise) for seed in range(count)]


def test_a_clock_explains_a_period_that_it_divides():
    assert explains_period(21, (7, 8))
    assert not explains_period(3, (1, 2))
    assert not explains_period(7, (2, 3, 14))


def test_planted_periods_are_found_and_hardening_changes_nothing():
    networks = train_networks(SequenceObjective(make_waves(3, 7, count=4)), SHORT, range(4), learned=True)
    successful = [network for network in networks if {3, 7} <= set(network.schedule.periods)]
    assert len(successful) >= 3
    assert np.median([network.hard.reported for network in successful]) < 0.05
    for network in networks:
        assert network.hard.reported == pytest.approx(network.soft.reported, rel=0.01, abs=1e-6)
        assert network.change_by_hardening < 0.01
        # the trace goes from all periods to those of the schedule
        assert network.trace.shape == (71, 10)
        np.testing.assert_allclose(network.trace.sum(1), 4, rtol=1e-5)
        assert network.trace[0].max() < 0.5
        assert set(np.flatnonzero(network.trace[-1]) + 1) == set(network.schedule.periods)


@pytest.mark.parametrize("learned", [False, True])
def test_a_network_is_the_same_alone_and_among_others(learned, monkeypatch):
    # several batches; the network that has the longest word differs from batch to batch
    monkeypatch.setattr(word_objective, "BATCH", 3)
    data, corpus = make_waves(3, 7, count=3, noise=0.1), made_corpora.make_corpus()
    for whole, part in (
        (SequenceObjective(data), SequenceObjective(data[1:2])),
        (WordObjective(corpus), WordObjective(corpus)),
    ):
        together, (alone,) = (
            train_networks(objective, FEW, seeds, learned=learned)
            for objective, seeds in ((whole, [0, 1, 2]), (part, [1]))
        )
        assert together[1].hard.train == pytest.approx(alone.hard.train, rel=1e-3)
        assert together[1].schedule == alone.schedule
        assert together[0].hard.train != pytest.approx(together[1].hard.train, rel=1e-3)


def test_every_draw_of_the_clocks_has_the_words_of_its_network(close):
    objective = WordObjective(made_corpora.make_corpus())
    networks, again = (NetworkBatch(objective, FEW, [0, 1], learned=True) for _ in range(2))
    (loss,) = objective.losses(networks)
    # the same states, divided into draws, with the labels in each network's own order
    _, lengths, labels = objective.train
    kept = []
    whole = again.states
    again.states = lambda x: kept.append(whole(x)) or kept[-1]
    next(objective.losses(again))
    orders = [np.random.default_rng([seed, 2]).permutation(len(labels)) for seed in (0, 1)]
    for network, order in enumerate(orders):
        own = []
        for states in kept[0][:, network].split(len(labels), dim=1):
            last = states[lengths[order] - 1, torch.arange(len(labels))]
            outputs = last @ again.parameters["weight"][network].T + again.parameters["bias"][network]
            own.append(torch.nn.functional.cross_entropy(outputs, labels[order]))
        assert len(own) == training.DRAWS
        close(torch.stack(own).mean(), loss[network])


def test_both_kinds_start_with_the_same_weights_and_data():
    objective = WordObjective(made_corpora.make_corpus())
    exponential, learned = (NetworkBatch(objective, FEW, [0, 1], learned=kind) for kind in (False, True))
    for name, value in exponential.parameters.items():
        if name != "clocks":
            assert torch.equal(value, learned.parameters[name]), name
    inputs = []
    for networks in (exponential, learned):
        networks.states = lambda x: inputs.append(x) or torch.zeros(*x.shape[:3], FEW.hidden)
        for _ in objective.losses(networks):
            pass
    (first, second) = inputs
    assert torch.equal(first, second)
    # every network has an order and noise of its own
    assert not torch.equal(first[:, 0], first[:, 1])


def test_an_exponential_network_is_a_clockwork_rnn(close):
    # the longest period of learned clocks does not matter: 10 is not in the series
    networks = NetworkBatch(SequenceObjective(make_waves(3)), FEW, [0], learned=False)
    ((rnn, _),) = networks.networks
    hardened, report = rnn.harden()
    assert type(hardened) is ClockworkRNN
    assert hardened.schedule.periods == (1, 2, 4, 8)
    assert report.units.tolist() == list(range(8))
    nothing = torch.zeros(40, 1, 0)
    close(hardened(nothing)[0], networks.states(nothing[:, None])[:, 0])


def test_hard_clocks_do_not_change():
    """This holds for all networks, and where two candidates are equally probable."""
    networks = NetworkBatch(SequenceObjective(make_waves(3) * 3), FEW, range(3), learned=True)
    with torch.no_grad():
        networks.parameters["clocks"].zero_()
    networks.sharpen(0.5)
    largest = networks.parameters["clocks"].topk(2).values
    assert (largest[..., 0] - largest[..., 1] == 1).all()
    assert not networks.parameters["clocks"].requires_grad
    assert networks.probabilities().sum(1)[:, 0].tolist() == [4.0] * 3


def test_the_last_frame_of_a_word_decides():
    corpus = made_corpora.make_corpus()
    objective = WordObjective(corpus)
    lengths = [len(each.features) for each in corpus.test]

    def answer(input):
        """Outputs that are right at the last frame of each word, and wrong elsewhere."""
        output = torch.zeros(*input.shape[:2], len(corpus.words))
        if input.shape[1] == len(lengths):
            for row, (length, (_, label)) in enumerate(zip(lengths, corpus.normalised("test"), strict=True)):
                output[:, row, label] = -1.0
                output[length - 1, row, label] = 1.0
        return output

    assert objective.measure_errors(0, answer).reported == 0.0
    assert objective.measure_errors(0, lambda x: -answer(x)).reported == 1.0
    assert objective.measure_errors(0, answer).train == pytest.approx(math.log(len(corpus.words)))


def make_network(train, *, data="a", periods=(1, 2), reported=0.5):
    schedule = Schedule(tuple(periods), (2,) * len(periods))
    errors = Errors(train, reported)
    return TrainedNetwork(data, 0, errors, errors, schedule, np.full((3, 8), 0.25, np.float32))


def test_the_best_is_chosen_by_the_training_error_relative_to_the_exponential_series():
    exponential = [make_network(error, data="hard") for error in (0.7, 0.8, math.nan, 0.9)]
    exponential.append(make_network(0.1, data="easy"))
    good, easy = make_network(0.2, data="hard", reported=0.9), make_network(0.05, data="easy", reported=0.01)
    assert choose_best([easy, make_network(math.nan, data="hard"), good], exponential) is good


def test_the_figure_shows_periods_and_errors():
    exponential = [make_network(0.5, reported=0.2), make_network(0.5, data="b", reported=math.nan)]
    learned = [
        make_network(0.5, periods=(3, 7), reported=0.001),
        make_network(0.1, data="b", periods=(3, 5), reported=0.1),
    ]
    during, end, errors = draw_learning(exponential, learned, NMSE, planted=[3, 7]).axes
    assert [text.get_text() for text in during.get_yticklabels()] == ["3", "7"]
    shares = {line.get_gid(): line.get_xdata()[1] for line in end.lines if line.get_gid()}
    assert shares == {"found-3": 100.0, "found-5": 50.0, "found-7": 50.0}
    assert errors.get_yscale() == "log"


def make_result(exponential, learned):
    """A result whose networks have these errors."""
    return LearnedClocks(
        task="generation",
        data=tuple(make_waves(2, 3)),
        settings=replace(FEW, modules=3),
        exponential=tuple(make_network(error, reported=error) for error in exponential),
        learned=tuple(make_network(error, reported=error, periods=(3, 5)) for error in learned),
        use="cwrnn ...",
        seconds=1.0,
    )


def test_learned_clocks_that_are_worse_are_called_worse():
    result = make_result([0.00023, 0.0002, 0.5], [0.014, 0.0001, math.nan])
    assert result.verdict.worse
    sentence = "The learned clocks are worse than 1, 2, 4: median NMSE 0.014 against 0.00023. Use the series."
    assert sentence in str(result).splitlines()
    assert "To use it all the same:" in str(result)
    verdict = result.to_dict()["verdict"]
    assert (verdict["worse"], verdict["error"], verdict["series error"]) == (True, 0.014, 0.00023)
    assert verdict["sentence"] == sentence


def test_learned_clocks_that_are_better_are_called_better():
    result = make_result([0.014, 0.01, 0.5], [0.00023, 0.0001, math.nan])
    assert result.verdict.better
    sentence = "The learned clocks are better than 1, 2, 4: median NMSE 0.00023 against 0.014."
    assert sentence in str(result).splitlines()
    assert "To use it:" in str(result)
    verdict = result.to_dict()["verdict"]
    assert (verdict["better"], verdict["error"], verdict["series error"]) == (True, 0.00023, 0.014)


TINY = {"size": 120, "modules": 3, "longest": 6, "epochs": 4, "runs": 2}


def test_learn_clocks_needs_no_folder(tmp_path):
    reports = []
    result = learn_clocks(data=make_waves(2, 3), **TINY, progress=reports.append)
    assert [network.seed for network in result.learned] == [network.seed for network in result.exponential] == [0, 1]
    assert result.schedule in [network.schedule for network in result.learned]
    assert (reports[-1].done, reports[-1].fraction, len(reports)) == (8, 1.0, 8)
    assert result.figures == ()
    assert f"The best schedule is {result.schedule.spec}, with " in str(result)
    assert f'cwrnn.ClockworkRNN(0, {result.schedule.hidden_size}, schedule="{result.schedule.spec}")' in str(result)
    assert sorted(path.name for path in result.draw(tmp_path)) == ["learned.png", "learned.svg"]
    json.dumps(result.to_dict(), allow_nan=False)


def test_networks_that_all_diverge_are_an_error(tmp_path):
    with pytest.raises(ExperimentError, match="all networks diverged: try a lower --learning-rate"):
        learn_clocks(data=make_waves(2, 3), **TINY, learning_rate=1e30, out=tmp_path)
    assert not (tmp_path / "learned.json").exists()


@pytest.mark.parametrize(
    ("arguments", "argument"),
    [
        ({"task": "chess"}, "task"),
        ({"epochs": 1}, "epochs"),
        ({"longest": 1}, "longest"),
        ({"modules": 60}, "modules"),
        ({"size": 5}, "size"),
        ({"data": "squares:x"}, "data"),
    ],
)
def test_bad_arguments_are_named(arguments, argument, tmp_path):
    with pytest.raises(ArgumentError) as error:
        learn_clocks(**{"data": "squares:3", "out": tmp_path / "none", **arguments})
    assert error.value.argument == argument
    assert not (tmp_path / "none").exists()


def test_a_folder_that_is_a_file_is_refused_before_the_training(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ArgumentError, match="cannot make the folder") as error:
        learn_clocks(data="squares:3", out=tmp_path / "file")
    assert error.value.argument == "out"


def test_a_full_disk_leaves_no_part_of_the_results(tmp_path, monkeypatch):
    result = learn_clocks(data=make_waves(2, 3), **TINY)
    calls = []

    def fail_at_the_second_file(descriptor):
        calls.append(descriptor)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail_at_the_second_file)
    with pytest.raises(OSError, match="No space left"):
        result.write(tmp_path)
    assert list(tmp_path.iterdir()) == []
