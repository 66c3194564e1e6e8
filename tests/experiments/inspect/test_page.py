"""`cwrnn inspect`: the right network with the right data, a page that is whole, and sentences that are true."""

import dataclasses
import json
import math
import re

import numpy as np
import pytest
import torch
from support import made_corpora as speech
from support import small_sweeps as sweeps
from support.html_pages import Page

from cwrnn import ClockworkRNN
from cwrnn.commands import main as cli
from cwrnn.experiments.inspect import figures as portrait_figures
from cwrnn.experiments.inspect import loading as subject
from cwrnn.experiments.inspect import page as portrait
from cwrnn.experiments.inspect.loading import Spoken, Subject, SubjectError
from cwrnn.experiments.networks import build as models
from cwrnn.experiments.report import drawing
from cwrnn.experiments.report.svg import VARIABLES
from cwrnn.experiments.sweep.batches import make_batches
from cwrnn.experiments.sweep.driver import train_missing
from cwrnn.experiments.sweep.run import Dataset
from cwrnn.experiments.sweep.store import Store
from cwrnn.experiments.sweep.workers import train_locally
from cwrnn.experiments.words import plan as words
from cwrnn.experiments.words.bundle import load_bundled_corpus
from cwrnn.experiments.words.recogniser.model import DEVIATION, MEAN, Recogniser
from cwrnn.inspection import Silenced
from cwrnn.network import Network
from cwrnn.saved import SavedNetwork

HOSTILE = '<script>alert("1")</script> & $x_{ {{ 7 * 7 }}'


def sequence_store(path, name="wave", **options):
    data = sweeps.wave(name, steps=40)
    sweeps.sweep(path, [data], sweeps.plan([data], **options))
    return path


def word_store(path, **options):
    corpus = speech.corpus()
    planned = words.plan(corpus, **{"methods": ["cw"], "sizes": [700], "runs": 1, "epochs": 2, **options})
    with Store.open(path, create=True) as store:
        store.add_dataset(corpus)
        train_missing(
            store, make_batches(planned, [corpus]), lambda batches: train_locally(batches, 1), lambda event: None
        )
    return path


@pytest.fixture(scope="module")
def sequences(tmp_path_factory):
    """Networks that generate, of all three kinds."""
    return sequence_store(tmp_path_factory.mktemp("sequences"), HOSTILE, methods=["srn", "lstm", "cw"])


@pytest.fixture(scope="module")
def spoken(tmp_path_factory):
    """Networks that tell four words apart."""
    return word_store(tmp_path_factory.mktemp("spoken"), methods=["srn", "cw"], sizes=[600, 700])


@pytest.fixture
def run(capsys):
    def inspect(*arguments):
        code = cli.main(["inspect", "--quiet", *map(str, arguments)])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return inspect


def records(path, task="generation"):
    with Store.read(path) as store:
        return store.records(task)


def recogniser(path, corpus=None):
    """A saved one that knows the words of a corpus, and has learnt nothing."""
    corpus = corpus or load_bundled_corpus()
    network = (
        models.build_network("cw", 8, 13, len(corpus.words), softmax=True, modules=3).float().requires_grad_(False)
    )
    about = {"words": corpus.words, "clusters": dict(corpus.clusters),
             "features": dataclasses.asdict(corpus.settings)}  # fmt: skip
    Recogniser(SavedNetwork("words", "cw", network, {MEAN: corpus.mean, DEVIATION: corpus.deviation}, about)).save(path)
    return path


# which network


def test_the_best_clockwork_rnn_of_the_largest_size(sequences):
    best = min(
        (each for each in records(sequences) if (each.run.method, each.run.size) == ("cw", 250)), key=lambda r: r.error
    )
    found = subject.load(sequences)
    assert found.facts["run"] == best.key[:12]
    np.testing.assert_array_equal(found.layer.weight_hh_l0.detach().numpy(), best.weights["layer.weight_hh_l0"])
    inspected = portrait.inspect(found)
    # what the store says, from its weights again
    assert inspected.intact["nmse"] == pytest.approx(best.error, rel=1e-5)
    assert inspected.schedule.spec == best.schedule


def test_an_srn_where_there_is_no_clockwork_rnn(tmp_path):
    found = subject.load(sequence_store(tmp_path, methods=["srn"], sizes=[100], runs=1))
    assert (found.method, found.layer.schedule.periods) == ("srn", (1,))


def test_a_run_by_its_key(sequences):
    wanted = next(each for each in records(sequences) if each.run.method == "srn")
    assert subject.load(sequences, run=wanted.key[:10]).facts["run"] == wanted.key[:12]


def test_words_are_measured_as_in_training(spoken):
    best = min((each for each in records(spoken, "words") if each.run.size == 700 and each.run.method == "cw"),
               key=lambda r: r.error)  # fmt: skip
    found = subject.load(spoken)
    assert found.facts["run"] == best.key[:12]
    intact = portrait.inspect(found).intact
    labels = [speech.corpus().words.index(each.word) for each in speech.corpus().test]
    assert intact["error"] == pytest.approx(best.error)
    expected = -best.output[np.arange(len(labels)), labels].mean()
    assert intact["cross_entropy"] == pytest.approx(float(expected), rel=1e-5)


def test_the_word_that_is_drawn(spoken):
    found = subject.load(spoken, word="word2")
    assert isinstance(found.scene, Spoken)
    assert found.scene.words[found.scene.label] == "word2"
    corpus = speech.corpus()
    expected = next(each for each in corpus.test if each.word == "word2")
    assert found.scene.speaker == expected.speaker
    np.testing.assert_allclose(
        found.inputs[found.shown], (expected.features - corpus.mean) / corpus.deviation, rtol=1e-5, atol=1e-6
    )


def test_other_data_are_normalised_as_the_training_data_were(spoken, monkeypatch):
    other = speech.corpus(seed=5)
    asked = {}
    monkeypatch.setattr(subject.corpora, "load_corpus", lambda source, **options: asked.update(options) or other)
    found = subject.load(spoken, data="folder:elsewhere")
    trained = speech.corpus()
    assert asked["words"] == trained.words
    expected = (other.test[0].features - trained.mean) / trained.deviation
    np.testing.assert_allclose(found.inputs[0], expected, rtol=1e-5, atol=1e-6)


def test_a_saved_recogniser_with_the_bundled_words(tmp_path):
    found = subject.load(recogniser(tmp_path / "words.safetensors"))
    assert len(found.inputs) == len(load_bundled_corpus().test)
    np.testing.assert_array_equal(found.inputs[3], load_bundled_corpus().normalised("test")[3][0])
    assert "trained on" not in found.facts


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"run": "xyz"}, "no run with a key that begins with 'xyz'"),
        ({"run": ""}, "runs with a key that begins with ''"),
        ({"task": "words"}, "there are no runs of the task words"),
        ({"data": "bundle"}, "--data is for networks that tell words apart"),
        ({"word": "making"}, "--word is for networks that tell words apart"),
    ],
)
def test_what_is_refused(sequences, options, message):
    with pytest.raises(SubjectError, match=re.escape(message)):
        subject.load(sequences, **options)


def test_an_lstm_has_no_clocks(sequences, tmp_path):
    [first, *_] = [each for each in records(sequences) if each.run.method == "lstm"]
    with pytest.raises(SubjectError, match="is an LSTM, which has no clocks"):
        subject.load(sequences, run=first.key)
    with pytest.raises(SubjectError, match="no CW-RNN or SRN finished; an LSTM has no clocks"):
        subject.load(sequence_store(tmp_path, methods=["lstm"], sizes=[100], runs=1))


def test_a_word_that_it_does_not_know(spoken):
    with pytest.raises(SubjectError, match="--word must be one of word0, word1, word2, word3, got 'word9'"):
        subject.load(spoken, word="word9")


def test_both_tasks_in_one_store(tmp_path):
    word_store(sequence_store(tmp_path, methods=["cw"], sizes=[100], runs=1))
    with pytest.raises(SubjectError, match="add --task generation or --task words"):
        subject.load(tmp_path)
    assert subject.load(tmp_path, task="words").task == "words"
    assert subject.load(tmp_path, task="generation").task == "generation"


def test_a_recogniser_has_nothing_to_choose(tmp_path):
    path = recogniser(tmp_path / "words.safetensors")
    for name in ("task", "run"):
        with pytest.raises(SubjectError, match=f"there is no {name} to choose"):
            subject.load(path, **{name: "words"})


def test_features_that_do_not_fit(spoken, monkeypatch):
    corpus = speech.corpus()
    other = dataclasses.replace(corpus, settings=dataclasses.replace(corpus.settings, step=5.0))
    monkeypatch.setattr(subject.corpora, "load_corpus", lambda source, **options: other)
    with pytest.raises(SubjectError, match="not those that the network was trained with"):
        subject.load(spoken, data="bundle")


# the command


@pytest.mark.parametrize("kind", ["sequences", "spoken"])
def test_the_page_is_whole(kind, run, request, tmp_path):
    store = request.getfixturevalue(kind)
    code, out, err = run(store, "--out", tmp_path / "deep" / "page.html")
    assert (code, err) == (0, "")
    text = (tmp_path / "deep" / "page.html").read_text(encoding="utf-8")
    assert out.splitlines()[-1] == f"The page is {tmp_path / 'deep' / 'page.html'}"
    page = Page(text)
    assert "script" not in page.tags
    assert all(link.startswith(("#", "data:image/png;base64,")) for link in page.links)
    assert len(page.ids) == len(set(page.ids))
    assert "http" not in page.styles
    for name in portrait.TITLES:
        assert name in page.ids
    for sentence in out.splitlines()[:-1]:
        assert sentence in page.text
    assert page.tags.count("svg") == len(portrait.TITLES)
    for colour in VARIABLES:
        assert colour not in "".join(re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL))


@pytest.fixture
def unwritten(monkeypatch):
    """Where a page would have been written, and of what: drawing takes its time."""
    found = []
    monkeypatch.setattr(portrait, "write", lambda subject, inspected, path: found.append((subject, path)))
    return found


def test_the_page_lies_beside_the_network(run, unwritten, spoken, tmp_path):
    assert run(spoken)[0] == 0
    assert run(spoken / "runs.sqlite")[0] == 0
    assert run(recogniser(tmp_path / "words.safetensors", speech.corpus()), "--data", "bundle")[0] == 1
    assert run(recogniser(tmp_path / "words.safetensors"), "--word", "making")[0] == 0
    assert [path for _, path in unwritten] == [spoken / "inspect.html"] * 2 + [tmp_path / "inspect.html"]
    scene = unwritten[-1][0].scene
    assert scene.words[scene.label] == "making"


def test_json_has_the_numbers(run, unwritten, sequences, tmp_path):
    code, out, err = run(sequences, "--json", "--out", tmp_path / "page.html")
    assert (code, err) == (0, "")
    told = json.loads(out)
    found = subject.load(sequences)
    inspected = portrait.inspect(found)
    assert told["intact"] == dict(inspected.intact)
    assert [each["reach"] for each in told["modules"]] == [each.reach for each in inspected.modules]
    assert told["sentences"] == portrait.sentences(inspected)
    np.testing.assert_array_equal(np.array(told["memory"], dtype=float), inspected.memory.norms)
    assert told["blocks"][1][0] is None
    assert told["page"] == str(tmp_path / "page.html")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nowhere"], 1, "nowhere: cannot be read"),
        ([".."], 1, "there is no store"),
        (["{store}", "--run", "xyz"], 1, "no run with a key that begins with 'xyz'"),
        (["{store}", "--task", "dancing"], 2, "--task"),
        (["{store}", "--out", "{store}"], 2, "is a folder: name a file"),
        ([], 2, "MODEL"),
    ],
)
def test_errors_are_told(run, sequences, tmp_path, monkeypatch, arguments, code, message):
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    found, out, err = run(*(word.format(store=sequences) for word in arguments))
    assert (found, out) == (code, "")
    assert message in " ".join(err.split())


def test_help_has_examples(capsys):
    assert cli.main(["inspect", "--help"]) == 0
    out = capsys.readouterr().out
    for option in ("task", "run", "data", "word", "out", "json"):
        assert f"--{option}" in out
    assert "examples:" in out


# sentences and figures


@pytest.fixture(scope="module")
def inspected(sequences):
    return portrait.inspect(subject.load(sequences))


def changed(inspected, **fields):
    """With other modules: each field a list, one value for each."""
    modules = [
        dataclasses.replace(module, **{name: values[i] for name, values in fields.items()})
        for i, module in enumerate(inspected.modules[: len(next(iter(fields.values())))])
    ]
    return dataclasses.replace(inspected, modules=modules)


def without(*errors):
    return [Silenced(*[{"nmse": error}] * 4) for error in errors]


def test_sentences_on_worth(inspected):
    intact = dataclasses.replace(inspected, intact={"nmse": 0.1})
    told = " ".join(portrait.sentences(changed(intact, silenced=without(0.5, 2.0, 0.2), share=[0.7, 0.2, 0.1])))
    assert "needs the module of period 2 the most, which makes 20 % of the multiply-adds" in told
    assert "the NMSE is 2.0 instead of 0.10" in told
    assert "The module of period 4, with 10 % of the multiply-adds, is needed the least: 0.20" in told
    told = " ".join(portrait.sentences(changed(intact, silenced=without(0.1, 2.0, 0.05), share=[0.7, 0.2, 0.1])))
    assert "The modules of periods 1 and 4, with 80 % of the multiply-adds, are of no use on these data" in told


def test_sentences_on_work(inspected):
    told = portrait.sentences(changed(inspected, share=[0.3, 0.2, 0.5], units=[3, 2, 1]))[0]
    assert "50 % of them are those of the module of period 4" in told
    told = portrait.sentences(changed(inspected, share=[0.4, 0.3, 0.3]))[0]
    assert "70 % of them are those of the modules of periods 1 and 2" in told


def test_sentences_on_memory(inspected):
    told = " ".join(portrait.sentences(changed(inspected, reach=[0, 9, None], reach_is_open=[False, True, False])))
    assert "The module of period 2 remembers at least 9 steps, the module of period 1 remembers 0 steps. " in told
    assert "1 of 3 modules remember beyond" in told
    told = " ".join(portrait.sentences(changed(inspected, reach=[1, 7, 7], reach_is_open=[False] * 3)))
    assert "The modules of periods 2 and 4 remember 7 steps, the module of period 1 remembers 1 step. " in told
    assert "No module hears an input." in portrait.sentences(changed(inspected, reach=[None, None]))


def test_sentences_on_speed(inspected):
    # of forty steps: modules of a period up to five tick often enough
    told = portrait.sentences(changed(inspected, median_frequency=[0.3, 0.1, 0.01, 0.4], in_band=[1.0] * 4))[-1]
    assert told.startswith(
        "Short of ticks is of those that tick at least 8 times in a sequence the module of period 1:"
    )
    told = portrait.sentences(changed(inspected, median_frequency=[0.1, 0.1], in_band=[1.0] * 2))[-1]
    assert told.startswith("None of the modules is short of ticks")
    assert "ticks" not in portrait.sentences(changed(inspected, in_band=[math.nan]))[-1]


def stand_in(layer, scene, inputs, outputs=2):
    network = Network(layer, outputs)
    return Subject("words", "cw", network, inputs, lambda found: {"nmse": float(found[0][-1, 0] ** 2)}, 0, scene,
                   "10 ms", {})  # fmt: skip


@pytest.mark.parametrize(
    ("schedule", "inputs", "steps"),
    [([1], 0, 2), ([3, 5], 2, 1), ([1, 64], 1, 9)],
)
def test_odd_networks_are_drawn_too(schedule, inputs, steps, tmp_path):
    layer = ClockworkRNN(inputs, 2 * len(schedule), schedule=schedule)
    scene = Dataset("odd", 8000, np.linspace(-1, 1, steps), "") if inputs == 0 else Spoken(["a", "_b"], 1, "$s")
    drawn = stand_in(layer, scene, [np.random.default_rng(0).standard_normal((steps, inputs))])
    portrait.write(drawn, portrait.inspect(drawn), tmp_path / "page.html")
    assert Page((tmp_path / "page.html").read_text(encoding="utf-8")).tags.count("svg") == len(portrait.TITLES)


def test_a_network_that_is_dead_is_drawn():
    layer = ClockworkRNN(1, 4, schedule=2)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
    drawn = stand_in(layer, Spoken(["a", "b"], 0, "s"), [np.ones((9, 1))])
    inspected = portrait.inspect(drawn)
    assert [each.reach for each in inspected.modules] == [None, None]
    assert "No module hears an input." in portrait.sentences(inspected)
    for draw in (portrait_figures.spectra, portrait_figures.memories, portrait_figures.silences):
        assert drawing.render(draw(inspected), "svg")


def test_what_is_drawn_are_the_numbers(sequences, inspected):
    figure = portrait_figures.memories(inspected)
    [panel] = figure.axes
    for i in range(inspected.schedule.modules):
        [line] = [each for each in panel.lines if each.get_gid() == f"memory-{i}"]
        known = np.isfinite(line.get_ydata())
        assert known.any()
        np.testing.assert_array_equal(line.get_ydata()[known], inspected.memory.norms[i][known])
    figure = portrait_figures.silences(inspected)
    tops = [bar.get_y() + bar.get_height() for bar in figure.axes[1].patches]
    expected = [each.silenced.mean_readout["nmse"] for each in inspected.modules]
    expected += [each.silenced.mean["nmse"] for each in inspected.modules]
    np.testing.assert_allclose(tops, expected)
    figure = portrait_figures.costs(inspected)
    lengths = np.reshape([patch.get_width() for patch in figure.axes[0].patches], (-1, inspected.schedule.modules))
    np.testing.assert_allclose(lengths.sum(axis=0), inspected.cost.total)
    found = subject.load(sequences)
    image = portrait_figures.weights(found, inspected.schedule).axes[0].images[0].get_array()
    np.testing.assert_array_equal(np.ma.getmaskarray(image), ~inspected.schedule.mask())
    expected = np.abs(found.layer.weight_hh_l0.detach().numpy())[inspected.schedule.mask()]
    np.testing.assert_allclose(image.compressed(), expected)
