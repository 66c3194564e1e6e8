"""The verdict says which clocks are better; the command that uses a schedule runs on the same data."""

import math
import shlex

import pytest
import typer.main
from support import made_corpora

from cwrnn.commands.app import app
from cwrnn.experiments.clocks.square_waves import make_square_waves
from cwrnn.experiments.clocks.verdict import CROSS_ENTROPY, ERROR_RATE, NMSE, Verdict, format_use
from cwrnn.experiments.networks.build import schedule_parameter_count
from cwrnn.rnn import ClockworkRNN
from cwrnn.schedule import Schedule

SERIES = Schedule.exponential(16, 4)


@pytest.mark.parametrize(
    ("verdict", "sentence"),
    [
        (
            Verdict("learned", SERIES, 0.014, 0.00023, NMSE),
            "The learned clocks are worse than 1, 2, 4, 8: median NMSE 0.014 against 0.00023. Use the series.",
        ),
        (
            Verdict("evolved", SERIES, 0.3, 0.4, CROSS_ENTROPY),
            "The evolved clocks are better than 1, 2, 4, 8: median cross entropy 0.30 against 0.40.",
        ),
        (
            Verdict("learned", SERIES, 0.125, 0.125, ERROR_RATE),
            "The learned clocks are as good as 1, 2, 4, 8: median error rate 12.5 % against 12.5 %.",
        ),
        (
            Verdict("learned", SERIES, 1.0, 0.99971, NMSE),
            "The learned clocks are worse than 1, 2, 4, 8: median NMSE 1.000 against 0.9997. Use the series.",
        ),
        (
            Verdict("learned", SERIES, math.inf, 0.5, NMSE),
            "The learned clocks are worse than 1, 2, 4, 8: median NMSE none (half of the networks or more did not "
            "finish) against 0.50. Use the series.",
        ),
    ],
)
def test_the_sentence_says_which_clocks_are_better(verdict, sentence):
    assert str(verdict) == sentence
    assert verdict.to_dict()["sentence"] == sentence
    assert verdict.to_dict()["worse"] == ("worse" in sentence)
    assert verdict.to_dict()["better"] == ("better" in sentence)


def parse_command(text):
    """Parse a printed command with the real command line, and return the name and the parameters of its command."""
    program, *words = shlex.split(text)
    assert program == "cwrnn"
    command = typer.main.get_command(app)
    context = command.make_context("cwrnn", words)
    while hasattr(context.command, "commands"):
        name, command, words = context.command.resolve_command(context, [*context._protected_args, *context.args])
        context = command.make_context(name, words, parent=context)
    return context.command_path, context.params


FOUND = Schedule((1, 5), (3, 4))
SEQUENCES = {"shape": (0, 1), "modules": 4}


def test_the_command_repeats_the_users_sequences():
    text = format_use("generation", ["my songs/one.wav", "two's.flac"], FOUND, **SEQUENCES, out="out/x/trained")
    path, parameters = parse_command(text)
    assert path == "cwrnn reproduce generation"
    assert list(parameters["data"]) == ["my songs/one.wav", "two's.flac"]
    assert (parameters["methods"], parameters["schedule"]) == ("cw", FOUND.spec)
    assert str(parameters["out"]) == "out/x/trained"


def test_the_command_repeats_the_users_words():
    path, parameters = parse_command(format_use("words", ["folder:my words"], FOUND, shape=(13, 25), modules=7))
    assert path == "cwrnn reproduce words"
    assert (parameters["data"], parameters["schedule"]) == ("folder:my words", FOUND.spec)


def test_square_waves_have_a_command_that_takes_them():
    path, parameters = parse_command(format_use("generation", ["squares:3,7x2", "a.wav"], FOUND, **SEQUENCES))
    assert path == "cwrnn clocks compare"
    assert list(parameters["data"]) == ["squares:3,7x2", "a.wav"]
    assert (list(parameters["schedule"]), parameters["series"]) == ([FOUND.spec], "exponential-2")
    # the schedule and the series fit into the budget
    assert parameters["modules"] == 4
    assert parameters["size"] >= FOUND.parameter_count(0, 1)
    assert parameters["size"] >= Schedule.exponential(4, 4).parameter_count(0, 1)


@pytest.mark.parametrize("method", ["cw-lstm", "cw-gru"])
def test_the_command_names_another_method(method):
    _, parameters = parse_command(format_use("generation", ["a.wav"], FOUND, **SEQUENCES, method=method))
    assert parameters["methods"] == method
    _, parameters = parse_command(format_use("generation", ["squares:3"], FOUND, **SEQUENCES, method=method))
    assert parameters["method"] == method
    assert parameters["size"] >= schedule_parameter_count(method, FOUND, 0, 1) > FOUND.parameter_count(0, 1)


@pytest.mark.parametrize(
    ("task", "data", "shape"),
    [("generation", make_square_waves([3]), (0, 1)), ("words", made_corpora.make_corpus(), (13, 4))],
)
def test_data_that_have_no_name_get_a_line_of_python(task, data, shape):
    import cwrnn

    layer = eval(format_use(task, [data], FOUND, shape=shape, modules=4), {"cwrnn": cwrnn})
    assert isinstance(layer, ClockworkRNN)
    assert (layer.input_size, layer.schedule) == (shape[0], FOUND)
