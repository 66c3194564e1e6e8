"""Learned clocks on data: both kinds are trained alike, and what is said of the networks is true."""

import json
import math

import numpy as np
import pytest
import torch
from support import made_corpora as speech

from cwrnn import ClockworkRNN, Schedule
from cwrnn.commands import main as cli
from cwrnn.experiments.clocks import learning
from cwrnn.experiments.clocks import square_waves as planted
from cwrnn.experiments.clocks.learning import (
    Errors,
    Networks,
    Outcome,
    Sequences,
    Settings,
    Words,
    best,
    explained,
    train,
)
from cwrnn.experiments.clocks.learning_figures import learned_plot
from cwrnn.experiments.report.drawing import NMSE

SHORT = Settings(hidden=12, modules=4, longest=10, epochs=140, learning_rate=0.03)
FEW = Settings(hidden=8, modules=4, longest=10, epochs=4, learning_rate=0.03)


def squares(*periods, count=1, steps=42, noise=0.0):
    return [planted.squares(periods, seed, steps=steps, noise=noise) for seed in range(count)]


def test_square_waves_switch_at_their_periods():
    waves = planted.waves([3, 7], 84)
    assert set(waves.tolist()) == {-2.0, 0.0, 2.0}
    switches = set((np.flatnonzero(np.diff(waves)) + 1).tolist())
    one = {t for t in range(1, 84) if (t % 3 == 0) != (t % 7 == 0)}
    # where both switch, one goes up and the other down, or both go the same way
    both = {t for t in range(1, 84) if t % 21 == 0}
    assert one <= switches <= one | both


def test_what_was_planted_is_known_without_its_noise():
    (data,) = squares(3, 7, steps=210, noise=0.1)
    assert data.periods == (3, 7)
    difference = data.samples - data.clean
    # the waves fill [-2, 2] and the noise, which has a deviation of 0.1, was shrunk with them
    assert difference.std() == pytest.approx(0.1 * np.ptp(data.clean) / 4, rel=0.2)
    assert abs(np.corrcoef(difference, data.clean)[0, 1]) < 0.2
    levels = np.unique(data.clean.round(9))
    assert len(levels) == 3
    np.testing.assert_allclose(np.diff(levels), np.ptp(data.clean) / 2)


def test_explained():
    assert explained(21, (7, 8))
    assert not explained(3, (1, 2))
    assert not explained(7, (2, 3, 14))


def test_planted_periods_are_found_and_hardening_changes_nothing():
    outcomes = train(Sequences(squares(3, 7, count=4)), SHORT, range(4), learned=True)
    found = [outcome for outcome in outcomes if {3, 7} <= set(outcome.schedule.periods)]
    assert len(found) >= 3
    assert np.median([outcome.hard.reported for outcome in found]) < 0.05
    for outcome in outcomes:
        assert outcome.hard.reported == pytest.approx(outcome.soft.reported, rel=0.01, abs=1e-6)
        assert outcome.changed < 0.01
        # from all periods to those of the schedule
        assert outcome.trace.shape == (71, 10)
        np.testing.assert_allclose(outcome.trace.sum(1), 4, rtol=1e-5)
        assert outcome.trace[0].max() < 0.5
        assert set(np.flatnonzero(outcome.trace[-1]) + 1) == set(outcome.schedule.periods)


@pytest.mark.parametrize("learned", [False, True])
def test_a_network_is_the_same_alone_and_among_others(learned, monkeypatch):
    # several batches, in which the longest word is now one network's, now another's
    monkeypatch.setattr(learning, "BATCH", 3)
    data, corpus = squares(3, 7, count=3, noise=0.1), speech.corpus()
    for whole, part in ((Sequences(data), Sequences(data[1:2])), (Words(corpus), Words(corpus))):
        together, (alone,) = (
            train(task, FEW, seeds, learned=learned) for task, seeds in ((whole, [0, 1, 2]), (part, [1]))
        )
        assert together[1].hard.train == pytest.approx(alone.hard.train, rel=1e-3)
        assert together[1].schedule == alone.schedule
        assert together[0].hard.train != pytest.approx(together[1].hard.train, rel=1e-3)


def test_every_draw_of_the_clocks_has_the_words_of_its_network(close):
    task = Words(speech.corpus())
    networks, again = (Networks(task, FEW, [0, 1], learned=True) for _ in range(2))
    (loss,) = task.losses(networks)
    # the same states, cut into draws, beside the labels in each network's own order
    _, lengths, labels = task.train
    kept = []
    whole = again.states
    again.states = lambda x: kept.append(whole(x)) or kept[-1]
    next(task.losses(again))
    orders = [np.random.default_rng([seed, 2]).permutation(len(labels)) for seed in (0, 1)]
    for network, order in enumerate(orders):
        own = []
        for states in kept[0][:, network].split(len(labels), dim=1):
            last = states[lengths[order] - 1, torch.arange(len(labels))]
            outputs = last @ again.parameters["weight"][network].T + again.parameters["bias"][network]
            own.append(torch.nn.functional.cross_entropy(outputs, labels[order]))
        assert len(own) == learning.DRAWS
        close(torch.stack(own).mean(), loss[network])


def test_both_kinds_begin_alike_and_hear_alike():
    task = Words(speech.corpus())
    usual, learned = (Networks(task, FEW, [0, 1], learned=kind) for kind in (False, True))
    for name, value in usual.parameters.items():
        if name != "clocks":
            assert torch.equal(value, learned.parameters[name]), name
    heard = []
    for networks in (usual, learned):
        networks.states = lambda x: heard.append(x) or torch.zeros(*x.shape[:3], FEW.hidden)
        for _ in task.losses(networks):
            pass
    (first, second) = heard
    assert torch.equal(first, second)
    # another order and other noise for each network
    assert not torch.equal(first[:, 0], first[:, 1])


def test_an_exponential_network_is_a_clockwork_rnn(close):
    # a longest period that the series has, or has not, makes no difference
    networks = Networks(Sequences(squares(3)), FEW, [0], learned=False)
    ((rnn, _),) = networks.networks
    hardened, report = rnn.harden()
    assert type(hardened) is ClockworkRNN
    assert hardened.schedule.periods == (1, 2, 4, 8)
    assert report.units.tolist() == list(range(8))
    nothing = torch.zeros(40, 1, 0)
    close(hardened(nothing)[0], networks.states(nothing[:, None])[:, 0])


def test_hard_clocks_of_all_networks_stay():
    """Also of those that the first one's layer knows nothing of, and where two candidates are equal."""
    networks = Networks(Sequences(squares(3) * 3), FEW, range(3), learned=True)
    with torch.no_grad():
        networks.parameters["clocks"].zero_()
    networks.sharpen(0.5)
    largest = networks.parameters["clocks"].topk(2).values
    assert (largest[..., 0] - largest[..., 1] == 1).all()
    assert not networks.parameters["clocks"].requires_grad
    assert networks.probabilities().sum(1)[:, 0].tolist() == [4.0] * 3


def test_words_are_decided_at_their_last_frames():
    corpus = speech.corpus()
    task = Words(corpus)
    lengths = [len(each.features) for each in corpus.test]

    def answer(input):
        """At the last frame of each word, and there only, the right one."""
        output = torch.zeros(*input.shape[:2], len(corpus.words))
        if input.shape[1] == len(lengths):
            for row, (length, (_, label)) in enumerate(zip(lengths, corpus.normalised("test"), strict=True)):
                output[:, row, label] = -1.0
                output[length - 1, row, label] = 1.0
        return output

    assert task.errors(0, answer).reported == 0.0
    assert task.errors(0, lambda x: -answer(x)).reported == 1.0
    assert task.errors(0, answer).train == pytest.approx(math.log(len(corpus.words)))


def outcome(train, *, data="a", periods=(1, 2), reported=0.5):
    schedule = Schedule(tuple(periods), (2,) * len(periods))
    return Outcome(
        data, 0, Errors(train, reported), Errors(train, reported), schedule, np.full((3, 8), 0.25, np.float32)
    )


def test_the_best_is_chosen_by_the_training_error_beside_the_exponential_series():
    usual = [outcome(error, data="hard") for error in (0.7, 0.8, math.nan, 0.9)] + [outcome(0.1, data="easy")]
    good, easy = outcome(0.2, data="hard", reported=0.9), outcome(0.05, data="easy", reported=0.01)
    assert best([easy, outcome(math.nan, data="hard"), good], usual) is good


def test_the_picture():
    usual = [outcome(0.5, reported=0.2), outcome(0.5, data="b", reported=math.nan)]
    found = [outcome(0.5, periods=(3, 7), reported=0.001), outcome(0.1, data="b", periods=(3, 5), reported=0.1)]
    way, end, errors = learned_plot(usual, found, NMSE, planted=[3, 7]).axes
    assert [text.get_text() for text in way.get_yticklabels()] == ["3", "7"]
    shares = {line.get_gid(): line.get_xdata()[1] for line in end.lines if line.get_gid()}
    assert shares == {"found-3": 100.0, "found-5": 50.0, "found-7": 50.0}
    assert errors.get_yscale() == "log"


def run(capsys, *arguments):
    code = cli.main(["clocks", "learn", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


TINY = ("--modules", "3", "--size", "120", "--epochs", "4", "--longest", "6")


def test_from_the_command_line(tmp_path, capsys):
    arguments = ("--data", "squares:2,3x2", "--runs", "2", *TINY, "--out", tmp_path / "a")
    code, out, err = run(capsys, *arguments)
    assert (code, err) == (0, "")
    spec = (tmp_path / "a" / "schedule.txt").read_text().strip()
    assert f"The best schedule is {spec}, of " in out
    assert f"cwrnn reproduce generation --methods cw --schedule {spec}" in out
    assert "2 was planted: found by" in out
    assert "of the exponential series by 4" in out
    assert (tmp_path / "a" / "figures" / "learned.png").read_bytes().startswith(b"\x89PNG")
    numbers = json.loads((tmp_path / "a" / "learned.json").read_text())
    learned = [each for each in numbers["networks"] if each["clocks"] == "learned"]
    assert [each["seed"] for each in learned] == [0, 1, 2, 3]
    assert spec == min(learned, key=lambda each: each["training error"])["schedule"]
    (exponential, other) = numbers["clocks"]
    assert other["median"] == pytest.approx(np.median([each["error"] for each in learned]))
    assert exponential["parameters"][0] <= 120
    # what is there is not overwritten
    code, _, err = run(capsys, *arguments)
    assert code == 2
    assert "choose another folder" in err
    code, out, err = run(capsys, *arguments[:-1], tmp_path / "b", "--json", "--quiet", "--seed", "2")
    again = json.loads(out)
    assert (code, err) == (0, "")
    assert [each["seed"] for each in again["networks"]] == [2, 3, 4, 5] * 2
    assert again["schedule"] == (tmp_path / "b" / "schedule.txt").read_text().strip()


def test_words_from_the_command_line(tmp_path, capsys, monkeypatch):
    from cwrnn.commands import clocks_options

    monkeypatch.setattr(clocks_options, "load_corpus", lambda source, words, quiet: speech.corpus())
    code, out, _ = run(capsys, "--task", "words", "--runs", "2", *TINY[:3], "300", *TINY[4:], "--out", tmp_path)
    assert code == 0
    assert "error %" in out
    assert "cwrnn reproduce words" in out
    Schedule.parse((tmp_path / "schedule.txt").read_text().strip())


def test_an_interruption_ends_it(tmp_path, capsys, monkeypatch):
    calls = []

    def check():
        calls.append(None)
        if len(calls) == 5:
            raise KeyboardInterrupt

    from cwrnn.experiments.sweep.interrupts import interrupts

    monkeypatch.setattr(interrupts, "check", check)
    code, out, err = run(capsys, "--data", "squares:2,3", *TINY, "--out", tmp_path)
    assert (code, out, err.strip()) == (130, "", "Interrupted.")
    assert not (tmp_path / "learned.json").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--size", "5"], "size must be at least"),
        (["--data", "squares:x"], "expected squares:"),
        (["--learning-rate", "0"], "expected a number above 0"),
        (["--longest", "1"], "--longest"),
        (["--task", "words", "--data", "bundle", "--data", "bundle"], "one source of words"),
    ],
)
def test_wrong_usage(arguments, message, tmp_path, capsys):
    code, _, err = run(capsys, *arguments, "--out", tmp_path / "none")
    assert code == 2
    assert message in " ".join(err.split())
    assert not (tmp_path / "none").exists()
