"""The recogniser: what it hears frame by frame is what it hears at once, and its command does what its help says."""

import io
import json
import os
import re
import sys
from contextlib import suppress

import numpy as np
import pytest
import torch
from support import sound_files as recordings

from cwrnn.commands import main as cli
from cwrnn.commands import words as words_command
from cwrnn.experiments.words import training as classification
from cwrnn.experiments.words.corpus import load_corpus
from cwrnn.experiments.words.features import mfcc, resample
from cwrnn.experiments.words.recogniser import NothingLearntError, Recogniser, cross_entropy, train, trimmed
from cwrnn.experiments.words.sound_files import SoundError, decode_sound
from cwrnn.saved import ModelError, SavedNetwork
from cwrnn.schedule import Schedule

CLOCKS = Schedule((1, 2, 5), (6, 4, 3))
WORDS = ("yes", "no", "née")


def settings(**options):
    return classification.Settings(**{"learning_rate": 0.01, "epochs": 6, "inputs": 13, "outputs": 3} | options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return recordings.write_word_folders(tmp_path_factory.mktemp("recordings"), WORDS, 4)


@pytest.fixture(scope="module")
def corpus(folder):
    return load_corpus(f"folder:{folder}", cache=False)


@pytest.fixture(scope="module")
def trained(corpus):
    return train(corpus, CLOCKS, settings(), seeds=[3, 4])


@pytest.fixture(scope="module")
def recogniser(trained):
    return trained.recogniser


@pytest.fixture
def model(recogniser, tmp_path):
    path = tmp_path / "model.safetensors"
    recogniser.save(path)
    return path


def probabilities(ranked):
    return dict(ranked)


def test_it_is_the_best_learner_of_the_training_words(corpus, trained):
    data = corpus.normalised("train"), corpus.normalised("test")
    losses = []
    for result, seed in zip(trained.results, [3, 4], strict=True):
        [alone] = classification.train_many("cw", 13, *data, [seed], settings(schedule=CLOCKS.spec))
        assert alone.error == result.error
        losses.append(cross_entropy(result))
    assert losses[trained.chosen] == min(losses)
    assert losses[0] != losses[1]
    about = trained.recogniser.training
    assert about["seed"] == [3, 4][trained.chosen]
    assert about["cross_entropy"] == min(losses)
    assert about["test_error"] == trained.result.error
    assert about["corpus"]["digest"] == corpus.digest


def test_the_paper_s_network_is_that_of_the_experiment(corpus):
    """With the same seed, `words train` and `reproduce words` make the same network."""
    data = corpus.normalised("train"), corpus.normalised("test")
    [result] = classification.train_many("cw", 14, *data, [5], settings(epochs=2))
    found = train(corpus, Schedule.exponential(14, 7), settings(epochs=2), seeds=[5])
    for name, value in found.recogniser.saved.network.state_dict().items():
        np.testing.assert_array_equal(value, result.weights[name])


def test_it_decides_as_in_training(corpus, folder, trained):
    """From the recording on: features, normalisation and network are those of the training."""
    for each, expected in zip(corpus.test, trained.result.output, strict=True):
        word, speaker = each.word, each.speaker
        rate, samples = decode_sound((folder / word / f"{speaker}.wav").read_bytes())
        found = probabilities(trained.recogniser.recognise(samples, rate))
        np.testing.assert_allclose([found[word] for word in corpus.words], np.exp(expected), rtol=1e-5)


def test_ranked(recogniser):
    ranked = recogniser.recognise(recordings.make_voice(1), 16000)
    assert sorted(word for word, _ in ranked) == sorted(WORDS)
    values = [value for _, value in ranked]
    assert values == sorted(values, reverse=True)
    assert sum(values) == pytest.approx(1)
    assert values[0] > values[-1]


def test_round_trip(recogniser, model):
    after = Recogniser.load(model)
    samples = recordings.make_voice(2)
    assert after.recognise(samples, 16000) == recogniser.recognise(samples, 16000)
    assert (after.words, after.clusters, after.settings) == (recogniser.words, recogniser.clusters, recogniser.settings)
    assert after.training == recogniser.training
    assert after.saved.schedule == CLOCKS


def test_srn(corpus):
    found = train(corpus, Schedule((1,), (5,)), settings(epochs=1)).recogniser
    assert found.saved.method == "srn"
    assert len(found.recognise(recordings.make_voice(1), 16000)) == 3


@pytest.mark.parametrize("rate", [16000, 8000, 44100])
@pytest.mark.parametrize("chunk", [1, 7, 160, 1024, 10**6])
def test_a_stream_decides_as_the_whole(recogniser, rate, chunk):
    samples = recordings.make_voice(5, 2500 if chunk == 1 else 9000, rate)
    listener = recogniser.listen(rate)
    decisions = []
    for start in range(0, len(samples), chunk):
        decisions += listener.accept(samples[start : start + chunk])
    decisions += listener.finish()
    whole = resample(samples, rate, 16000)
    assert len(decisions) == len(mfcc(whole))
    expected = recogniser.recognise(samples, rate)
    assert listener.decision == decisions[-1]
    assert (decisions[-1].word, decisions[-1].probability) == decisions[-1].ranked[0]
    assert decisions[-1].word == expected[0][0]
    found = probabilities(decisions[-1].ranked)
    np.testing.assert_allclose([found[word] for word, _ in expected], [p for _, p in expected], rtol=1e-5)
    assert [d.time for d in decisions[:2]] == pytest.approx([0.025, 0.035])
    # the running decision is that of what was heard so far
    middle = len(decisions) // 2
    so_far = recogniser.recognise(whole[: 400 + 160 * middle], 16000)
    found = probabilities(decisions[middle].ranked)
    np.testing.assert_allclose([found[word] for word, _ in so_far], [p for _, p in so_far], rtol=1e-5)


def test_two_streams_do_not_disturb_each_other(recogniser):
    one, other = recogniser.listen(), recogniser.listen()
    samples = recordings.make_voice(6), recordings.make_voice(7)
    for start in range(0, 4800, 480):
        one.accept(samples[0][start : start + 480])
        other.accept(samples[1][start : start + 480])
    for listener, each in zip((one, other), samples, strict=True):
        word, probability = recogniser.recognise(each, 16000)[0]
        assert listener.decision.word == word
        assert listener.decision.probability == pytest.approx(probability, rel=1e-5)


def test_nothing_to_hear(recogniser):
    for samples, reason in ((np.zeros(0), "no samples"), (np.zeros(16000), "silent"), (np.ones(8) / 9, "silent")):
        with pytest.raises(SoundError, match=reason):
            recogniser.recognise(samples, 16000)
    with pytest.raises(SoundError, match="too short: 10 ms, expected at least one window of 25 ms"):
        recogniser.recognise(recordings.make_voice(1, 160), 16000)
    with pytest.raises(SoundError, match="the sample rate is 4000 Hz"):
        recogniser.recognise(recordings.make_voice(1), 4000)
    listener = recogniser.listen()
    assert listener.accept(np.zeros(399)) == listener.finish() == []
    assert listener.decision is None
    with pytest.raises(ValueError, match="the sample rate is 4000 Hz"):
        recogniser.listen(4000)


def test_trimmed():
    word = np.sin(np.arange(4800))
    for rate in (16000, 8000):
        silence = 0.001 * np.sin(np.arange(rate))
        found = trimmed(np.concatenate([silence, word, silence]), rate)
        assert len(found) == pytest.approx(4800 + 0.04 * rate, abs=0.021 * rate)
        margin = round(0.02 * rate)
        np.testing.assert_array_equal(found[margin : margin + 4800], word)
    np.testing.assert_array_equal(trimmed(word, 16000), word)
    np.testing.assert_array_equal(trimmed(word[:100], 16000), word[:100])
    np.testing.assert_array_equal(trimmed(np.zeros(500), 16000), np.zeros(500))


@pytest.mark.parametrize("rate", [1e3, 1e30, 1e300])
def test_nothing_learnt(corpus, rate):
    with pytest.raises(NothingLearntError, match="nothing was learnt"):
        train(corpus, CLOCKS, settings(learning_rate=rate))


def edited(model, about=None, tensors=None, **changes):
    """Writes a model that is sound as a saved network, and says something else."""
    old = SavedNetwork.load(model)
    about = {**old.about, **(about or {})}
    about = {name: value for name, value in about.items() if value is not ...}
    values = {**old.tensors, **(tensors or {})}
    values = {name: value for name, value in values.items() if value is not ...}
    SavedNetwork(changes.get("kind", old.kind), old.method, changes.get("network", old.network), values, about).save(
        model
    )


FEATURES = {"rate": 16000, "window": 25.0, "step": 10.0, "preemphasis": 0.97, "cepstra": 12, "filters": 26,
            "lifter": 22.0, "high": 8000.0}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "generation"}, "a network of the kind 'generation', not a recogniser of words"),
        ({"about": {"words": ...}}, "its words are not a list of texts"),
        ({"about": {"words": ["yes", "no", 3]}}, "its words are not a list of texts"),
        ({"about": {"words": ["yes", "no", "no"]}}, "its words are not two or more different ones"),
        ({"about": {"words": ["yes", "no", "\x1b[2J"]}}, r"its word '\x1b[2J' has control characters"),
        ({"about": {"words": ["yes", "no", "nay"]}}, "its clusters are not a number for each of its words"),
        (
            {"about": {"words": ["yes", "no"], "clusters": {"yes": 1, "no": 1}}},
            "expected a softmax of 2 words, the network has 3 outputs",
        ),
        ({"about": {"clusters": {"yes": 1, "no": 0, "née": 1}}}, "its clusters are not"),
        ({"about": {"features": ...}}, "its feature settings must be rate, window"),
        ({"about": {"features": FEATURES | {"dither": 1}}}, "its feature settings must be rate, window"),
        ({"about": {"features": FEATURES | {"rate": "16000"}}}, "the feature setting rate must be of type int"),
        ({"about": {"features": FEATURES | {"rate": 16000.5}}}, "the feature setting rate must be of type int"),
        ({"about": {"features": FEATURES | {"window": True}}}, "the feature setting window must be of type float"),
        ({"about": {"features": FEATURES | {"rate": 1}}}, "its feature settings make no sense: rate must be from 8000"),
        ({"about": {"features": FEATURES | {"cepstra": 11}}}, "expected 12 inputs, as the features have, got 13"),
        ({"tensors": {"features.mean": ...}}, "expected the tensors features.mean and features.deviation"),
        ({"tensors": {"more": np.ones(1)}}, "expected the tensors features.mean and features.deviation"),
        ({"tensors": {"features.mean": np.zeros(12)}}, "must be (13,)"),
        ({"tensors": {"features.deviation": np.zeros(13)}}, "the deviation above 0"),
    ],
)
def test_what_does_not_fit_is_refused(model, changes, message):
    edited(model, **changes)
    with pytest.raises(ModelError) as caught:
        Recogniser.load(model)
    assert str(caught.value).startswith(f"{model}: ")
    assert message in str(caught.value)


def test_what_was_edited_by_the_tests_is_loaded(model):
    """The way of the test above, without a change."""
    edited(model, {"features": FEATURES})
    Recogniser.load(model)


# the command


@pytest.fixture
def command(capsys, monkeypatch):
    """What `cwrnn words` ends with and prints."""
    monkeypatch.setenv("COLUMNS", "80")

    def run(*arguments):
        code = cli.main(["words", *map(str, arguments)])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


@pytest.fixture
def pipe(command, monkeypatch, tmp_path):
    """The same, with these bytes on standard input."""

    def run(data, *arguments):
        path = tmp_path / "input.raw"
        path.write_bytes(data)
        with path.open() as file:
            monkeypatch.setattr(sys, "stdin", file)
            return command("recognise", *arguments)

    return run


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


TINY = ["--schedule", "1:4,2:3", "--epochs", "2", "--learning-rate", "0.01"]


def pcm(samples):
    return np.rint(samples * 32768).astype("<i2").tobytes()


def test_train_then_recognise(command, folder, tmp_path):
    out = tmp_path / "new" / "model.safetensors"
    code, printed, err = command("train", "--data", f"folder:{folder}", *TINY, "--runs", 2, "--out", out)
    assert (code, err) == (0, "")
    lines = printed.splitlines()
    assert lines[0].startswith("3 words (")
    assert "a Clockwork RNN of 2 modules with 7 units" in lines[0]
    assert "chosen by the cross entropy of the training words: run" in lines[1]
    assert "of 6 taken for another word" in lines[2]
    assert lines[-1] == f"The model is {out}"
    recogniser = Recogniser.load(out)
    assert set(recogniser.words) == set(WORDS)

    files = [folder / "yes" / "s0.wav", folder / "no" / "s1.wav"]
    code, printed, err = command("recognise", out, *files, "--top", 2)
    assert (code, err) == (0, "")
    for line, file in zip(printed.splitlines(), files, strict=True):
        rate, samples = decode_sound(file.read_bytes())
        (first, p), (second, q) = recogniser.recognise(samples, rate)[:2]
        assert line == f"{file}: {first} {100 * p:.1f} %, {second} {100 * q:.1f} %"


def test_train_says_it_in_json(command, folder, tmp_path):
    out = tmp_path / "model.safetensors"
    arguments = ["--method", "srn", "--hidden", "4", "--epochs", "1", "--words", "no,yes", "--seed", "7"]
    code, printed, _ = command("train", "--data", f"folder:{folder}", *arguments, "--out", out, "--json")
    assert code == 0
    found = json.loads(printed)
    assert (found["method"], found["schedule"], found["words"]) == ("srn", "1:4", ["no", "yes"])
    assert (found["seed"], found["runs"], found["model"]) == (7, 1, str(out))
    assert sum(each["count"] for each in found["mistakes"]) == round(4 * found["test_error"])
    assert Recogniser.load(out).training["seed"] == 7


def test_the_same_training_gives_the_same_network(command, folder, tmp_path):
    weights = []
    for name in ("a", "b"):
        assert command("train", "--data", f"folder:{folder}", *TINY, "--out", tmp_path / name)[0] == 0
        weights.append(SavedNetwork.load(tmp_path / name).network.state_dict())
    for name, value in weights[0].items():
        assert torch.equal(value, weights[1][name])


def test_nothing_is_overwritten(command, folder, model):
    before = model.read_bytes()
    arguments = ["train", "--data", f"folder:{folder}", *TINY, "--out", model]
    code, out, err = command(*arguments)
    assert (code, out) == (2, "")
    assert f"{model} is there already: add --force to replace it" in " ".join(err.split()).replace("- ", "-")
    assert model.read_bytes() == before
    assert command(*arguments, "--force")[0] == 0
    assert model.read_bytes() != before
    assert Recogniser.load(model).saved.schedule.spec == "1:4,2:3"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--method", "lstm"], "--method: expected one of srn, cw, got 'lstm'"),
        (["--size", "100", "--hidden", "10"], "--hidden: give one of --size and --hidden"),
        (["--size", "100"], "--size: size must be at least"),
        (["--hidden", "6"], "--hidden:"),
        (["--schedule", "1,2,4"], "--schedule: a schedule is written period:size"),
        (["--schedule", "1:2,2:2", "--method", "srn"], "--schedule: an SRN has one module of period 1, got 1:2,2:2"),
        (["--learning-rate", "0"], "--learning-rate: expected a number above 0, got 0"),
        (["--noise", "inf"], "--noise: expected a standard deviation, got inf"),
        (["--runs", "0"], "'--runs'"),
        (["--runs", "33"], "'--runs'"),
        (["--words", "no,maybe"], "--words:"),
        (["--data", "folder:/nowhere"], "--data:"),
        (["--out", "."], "--out: . is a folder: name a file"),
        (["--out", os.devnull], "--out: /dev/null is no file that could be replaced"),
        (["--out", "m" * 201], "--out: a name of at most 200 bytes, please"),
    ],
)
def test_wrong_usage_of_train(command, folder, tmp_path, arguments, message):
    out = [] if "--out" in arguments else ["--out", tmp_path / "model"]
    code, printed, err = command("train", "--data", f"folder:{folder}", *out, *arguments)
    assert (code, printed) == (2, "")
    assert message in " ".join(err.split())
    assert not (tmp_path / "model").exists()


def test_a_folder_that_cannot_be(command, model, folder):
    code, _, err = command("train", "--data", f"folder:{folder}", "--out", model / "x")
    assert code == 2
    assert "--out: cannot make its folder" in err


def test_training_that_diverges(command, folder, tmp_path):
    arguments = ["--data", f"folder:{folder}", *TINY, "--learning-rate", "1e30", "--out", tmp_path / "model"]
    code, out, err = command("train", *arguments)
    assert (code, out) == (1, "")
    assert err == (
        "cwrnn: nothing was learnt: no run came below the cross entropy of its initial weights; "
        "try a lower --learning-rate, less --noise, or more --epochs\n"
    )
    assert not (tmp_path / "model").exists()


def test_words_that_cannot_be_printed(command, tmp_path, monkeypatch):
    monkeypatch.setattr(classification, "train_many", None)
    data = recordings.write_word_folders(tmp_path / "recordings", ("yes", "n\to"), 3)
    code, out, err = command("train", "--data", data, *TINY, "--out", tmp_path / "model")
    assert (code, out, err) == (1, "", "cwrnn: its word 'n\\to' has control characters\n")


def test_interrupted_training_writes_nothing(command, folder, tmp_path, monkeypatch):
    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(words_command, "train", interrupt)
    code, out, err = command("train", "--data", f"folder:{folder}", *TINY, "--out", tmp_path / "model")
    assert (code, out, err) == (130, "", "Interrupted.\n")
    assert not (tmp_path / "model").exists()


def test_safetensors_is_named_before_the_training(command, folder, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    monkeypatch.setattr(words_command, "train", None)
    code, _, err = command("train", "--data", f"folder:{folder}", *TINY, "--out", tmp_path / "model")
    assert code == 1
    assert "saving networks needs safetensors: pip install 'cwrnn[experiments]'" in err


def test_bad_files_are_told_and_good_ones_printed(command, model, folder, tmp_path):
    good = folder / "yes" / "s0.wav"
    silent = recordings.write_sound(tmp_path / "silent.wav", np.zeros(8000))
    (tmp_path / "empty.wav").touch()
    cut = tmp_path / "cut.wav"
    cut.write_bytes(good.read_bytes()[:-100])
    bad = [silent, tmp_path / "empty.wav", cut, tmp_path / "nowhere.wav", tmp_path, model]
    code, out, err = command("recognise", model, *bad[:3], good, *bad[3:])
    assert code == 1
    assert out.startswith(f"{good}: ")
    assert out.count("\n") == 1
    reasons = [
        "silent",
        "the file is empty",
        "truncated",
        "cannot be read: No such",
        "cannot be read: Is a",
        "not a sound",
    ]
    for line, file, reason in zip(err.splitlines(), bad, reasons, strict=True):
        assert line.startswith(f"cwrnn: {file}: {reason}")

    code, out, err = command("recognise", model, "--json", good, silent)
    assert code == 1
    first, second = json.loads(out)["files"]
    assert first["file"] == str(good)
    assert sum(each["probability"] for each in first["words"]) == pytest.approx(1)
    assert second == {"file": str(silent), "error": "silent"}


def test_trim(command, model, folder, tmp_path, recogniser):
    word = 0.5 * np.sin(np.arange(4800) / 3)
    padded = recordings.write_sound(tmp_path / "padded.wav", np.concatenate([np.zeros(9000), word, np.zeros(9000)]))
    found = json.loads(command("recognise", model, padded, "--trim", "--json")[1])["files"][0]["words"]
    rate, samples = decode_sound(padded.read_bytes())
    expected = recogniser.recognise(trimmed(samples, rate), rate)
    assert [(each["word"], each["probability"]) for each in found] == expected
    assert expected != recogniser.recognise(samples, rate)


@pytest.mark.parametrize(
    "content", [b"", b"RIFF" * 10, bytes(100), b"\x80\x04K\x01."], ids=["empty", "wav", "zeros", "pickle"]
)
def test_what_is_no_model_is_refused(command, pipe, tmp_path, folder, content):
    path = tmp_path / "model"
    path.write_bytes(content)
    for run in (lambda: command("recognise", path, folder / "yes" / "s0.wav"), lambda: pipe(b"", path, "--stream")):
        code, out, err = run()
        assert (code, out) == (1, "")
        assert err.startswith(f"cwrnn: {path}: ")
        assert "Traceback" not in err


def test_a_damaged_model_is_refused(command, model, folder):
    model.write_bytes(model.read_bytes()[:-1])
    code, out, err = command("recognise", model, folder / "yes" / "s0.wav")
    assert (code, out) == (1, "")
    assert err.startswith(f"cwrnn: {model}: damaged: ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "FILE: name at least one, or hear standard input with --stream"),
        (["--stream", "a.wav"], "--stream: hears standard input, and takes no FILE"),
        (["--stream", "--trim"], "--trim: is not for --stream"),
        (["--rate", "16000", "a.wav"], "--rate: is for --stream"),
        (["--stream", "--rate", "4000"], "'--rate'"),
        (["--top", "0", "a.wav"], "'--top'"),
    ],
)
def test_wrong_usage_of_recognise(command, model, arguments, message):
    code, out, err = command("recognise", model, *arguments)
    assert (code, out) == (2, "")
    assert message in " ".join(err.split())


def test_a_terminal_is_no_stream(command, model, monkeypatch):
    monkeypatch.setattr(sys, "stdin", type("Terminal", (io.StringIO,), {"isatty": lambda self: True})())
    code, _, err = command("recognise", model, "--stream")
    assert code == 2
    assert "standard input is a terminal" in " ".join(err.split())


@pytest.mark.parametrize("rate", [16000, 44100])
def test_stream_says_every_frame_in_json(pipe, model, recogniser, rate):
    data = pcm(recordings.make_voice(9, 12000, rate))
    code, out, err = pipe(data, model, "--stream", "--json", "--rate", rate)
    assert code == 0
    *frames, end = map(json.loads, out.splitlines())
    samples = np.frombuffer(data, "<i2") / 32768
    assert len(frames) == len(mfcc(resample(samples, rate, 16000)))
    assert end["final"] is True
    assert end["time"] == frames[-1]["time"]
    expected = recogniser.recognise(samples, rate)
    assert [each["word"] for each in end["words"]] == [word for word, _ in expected]
    np.testing.assert_allclose([each["probability"] for each in end["words"]], [p for _, p in expected], rtol=1e-5)
    assert frames[-1]["word"] == expected[0][0]
    assert re.fullmatch(rf"{12000 / rate:.2f} s heard, \d+\.\d+ s of one core: 0\.\d+ of real time\n", err)


def test_stream_says_when_the_word_changes(pipe, model):
    data = pcm(np.concatenate([recordings.make_voice(seed) for seed in (9, 10, 11)]))
    frames = [json.loads(line) for line in pipe(data, model, "--stream", "--json")[1].splitlines()][:-1]
    changes = [
        each for last, each in zip([{"word": None}, *frames], frames, strict=False) if last["word"] != each["word"]
    ]
    code, out, _ = pipe(data, model, "--stream", "--top", 1)
    assert code == 0
    *lines, last = out.splitlines()
    assert lines == [f"{e['time']:7.3f} s  {e['word']} {100 * e['probability']:.1f} %" for e in changes]
    assert last.startswith(f"{frames[-1]['time']:7.3f} s  {frames[-1]['word']} ")
    assert last.endswith("in the end")


def test_a_terminal_shows_one_line(pipe, model, monkeypatch, capsys):
    monkeypatch.setattr(words_command._Display, "is_terminal", staticmethod(lambda: True))
    code, out, _ = pipe(pcm(recordings.make_voice(9)), model, "--stream")
    assert code == 0
    assert out.count("\n") == 1
    assert out.count("\r\x1b[K") >= 3
    assert out.endswith("in the end\n")


def test_a_stream_that_is_cut_off(pipe, model):
    data = pcm(recordings.make_voice(9))
    code, out, err = pipe(data[:-1], model, "--stream", "--json")
    assert code == 0
    assert out == pipe(data[:-2], model, "--stream", "--json")[1]
    assert "standard input ends within a sample: its last byte is left out" in err


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "standard input: too short: 0 ms, one window is 25 ms"),
        (bytes(200), "standard input: too short: 6.25 ms, one window is 25 ms"),
        (
            b"RIFF" + bytes(5000),
            "standard input: this is a sound file, and --stream hears raw samples: name it as FILE",
        ),
    ],
)
def test_streams_without_a_word(pipe, model, data, message):
    code, out, err = pipe(data, model, "--stream")
    assert (code, out) == (1, "")
    assert err == f"cwrnn: {message}\n"


def test_interrupted_streams_decide(pipe, model, monkeypatch):
    data = pcm(recordings.make_voice(9))
    expected = pipe(data, model, "--stream")[1].splitlines()[-1]
    chunks = words_command._chunks

    def interrupted():
        yield from chunks()
        raise KeyboardInterrupt

    monkeypatch.setattr(words_command, "_chunks", interrupted)
    code, out, err = pipe(data, model, "--stream")
    assert code == 130
    assert out.splitlines()[-1] == expected
    assert err == "Interrupted.\n"


def test_who_reads_may_have_read_enough(pipe, model, monkeypatch):
    """As `| head -1` has: no news."""
    read, write = os.pipe()
    os.close(read)
    broken = os.fdopen(write, "w")
    monkeypatch.setattr(sys, "stdout", broken)
    code, _, err = pipe(pcm(recordings.make_voice(9)), model, "--stream")
    assert (code, err) == (1, "")
    with suppress(BrokenPipeError):
        broken.close()


def test_help_has_examples(capsys):
    for name, words in (
        ("train", "--data --words --size --runs --force"),
        ("recognise", "--stream --trim --top --json"),
    ):
        assert cli.main(["words", name, "--help"]) == 0
        out = capsys.readouterr().out
        for word in [*words.split(), "examples:", "exit codes:"]:
            assert word in out
