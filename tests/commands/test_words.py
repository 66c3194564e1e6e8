"""`cwrnn words train` and `cwrnn words recognise` do what their help says."""

import copy
import dataclasses
import io
import json
import os
import re
import shlex
import sys
from contextlib import suppress

import numpy as np
import pytest
import torch
from support.made_recognisers import WORDS
from support.sound_files import make_voice, write_sound, write_word_folders

from cwrnn.commands import words
from cwrnn.commands.main import main
from cwrnn.experiments.words.features import mfcc, resample
from cwrnn.experiments.words.recogniser import training
from cwrnn.experiments.words.recogniser.model import Recogniser, trim_silence
from cwrnn.experiments.words.sound_files import decode_sound
from cwrnn.saved import SavedNetwork


@pytest.fixture
def command(capsys, monkeypatch):
    """Run `cwrnn words`; return its exit code, and the texts that it prints on stdout and stderr."""
    monkeypatch.setenv("COLUMNS", "80")

    def run(*arguments):
        code = main(["words", *map(str, arguments)])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


@pytest.fixture
def pipe(command, monkeypatch, tmp_path):
    """Run `cwrnn words recognise` with these bytes on standard input."""

    def run(data, *arguments):
        path = tmp_path / "input.raw"
        path.write_bytes(data)
        with path.open() as file:
            monkeypatch.setattr(sys, "stdin", file)
            return command("recognise", *arguments)

    return run


@pytest.fixture(autouse=True)
def use_temporary_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


TINY = ["--schedule", "1:4,2:3", "--epochs", "2", "--learning-rate", "0.01"]


def encode_pcm(samples):
    return np.rint(samples * 32768).astype("<i2").tobytes()


def test_train_then_recognise(command, recordings, tmp_path, capsys):
    out = tmp_path / "new" / "model.safetensors"
    code, printed, err = command("train", "--data", f"folder:{recordings}", *TINY, "--runs", 2, "--out", out)
    assert (code, err) == (0, "")
    lines = printed.splitlines()
    assert lines[0].startswith("3 words (")
    assert "a Clockwork RNN of 2 modules with 7 units" in lines[0]
    assert "chosen by the cross entropy of the training words: run" in lines[1]
    assert "of 6 taken for another word" in lines[2]
    assert lines[-4:-2] == [f"The model is {out}", "To use it:"]
    # the commands run as they are printed
    for line in lines[-2:]:
        program, *arguments = shlex.split(line)
        assert (program, main(arguments)) == ("cwrnn", 0)
    capsys.readouterr()
    recogniser = Recogniser.load(out)
    assert set(recogniser.words) == set(WORDS)

    files = [recordings / "yes" / "s0.wav", recordings / "no" / "s1.wav"]
    code, printed, err = command("recognise", out, *files, "--top", 2)
    assert (code, err) == (0, "")
    for line, file in zip(printed.splitlines(), files, strict=True):
        sample_rate, samples = decode_sound(file.read_bytes())
        (first, p), (second, q) = recogniser.recognise(samples, sample_rate)[:2]
        assert line == f"{file}: {first} {100 * p:.1f} %, {second} {100 * q:.1f} %"


def test_train_prints_json(command, recordings, tmp_path):
    out = tmp_path / "model.safetensors"
    arguments = ["--method", "srn", "--hidden", "4", "--epochs", "1", "--words", "no,yes", "--seed", "7"]
    code, printed, _ = command("train", "--data", f"folder:{recordings}", *arguments, "--out", out, "--json")
    assert code == 0
    found = json.loads(printed)
    assert (found["method"], found["schedule"], found["words"]) == ("srn", "1:4", ["no", "yes"])
    assert (found["seed"], found["runs"], found["model"]) == (7, 1, str(out))
    assert sum(each["count"] for each in found["mistakes"]) == round(4 * found["test_error"])
    assert Recogniser.load(out).training["seed"] == 7


def test_same_training_gives_the_same_network(command, recordings, tmp_path):
    weights = []
    for name in ("a", "b"):
        assert command("train", "--data", f"folder:{recordings}", *TINY, "--out", tmp_path / name)[0] == 0
        weights.append(SavedNetwork.load(tmp_path / name).network.state_dict())
    for name, value in weights[0].items():
        assert torch.equal(value, weights[1][name])


def test_existing_file_is_replaced_only_with_force(command, recordings, model):
    before = model.read_bytes()
    arguments = ["train", "--data", f"folder:{recordings}", *TINY, "--out", model]
    code, out, err = command(*arguments)
    assert (code, out) == (2, "")
    assert f"{model} exists already: add --force (force=True) to replace it" in " ".join(err.split()).replace("- ", "-")
    assert model.read_bytes() == before
    assert command(*arguments, "--force")[0] == 0
    assert model.read_bytes() != before
    assert Recogniser.load(model).saved.schedule.spec == "1:4,2:3"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--method", "rnn"], "--method: expected one of srn, lstm, cw, gru, cw-lstm, cw-gru, got 'rnn'"),
        (["--size", "100", "--hidden", "10"], "--hidden: expected only one of size and hidden"),
        (["--size", "100"], "--size: size must be at least"),
        (["--hidden", "6"], "--hidden:"),
        (["--schedule", "1,2,4"], "--schedule: a schedule is written period:size"),
        (["--schedule", "1:2,2:2", "--method", "srn"], "--schedule: an SRN has one module of period 1, got 1:2,2:2"),
        (["--schedule", "1:2,2:2", "--method", "gru"], "--schedule: a GRU has one module of period 1, got 1:2,2:2"),
        (["--learning-rate", "0"], "--learning-rate: expected a number above 0, got 0"),
        (["--noise", "inf"], "--noise: expected a standard deviation, 0 or more, got inf"),
        (["--runs", "0"], "'--runs'"),
        (["--runs", "33"], "'--runs'"),
        (["--words", "no,maybe"], "--words:"),
        (["--data", "folder:/nowhere"], "--data:"),
        (["--out", "."], "--out: . is a folder: name a file"),
        (["--out", os.devnull], "--out: /dev/null is not a regular file, so it cannot be replaced"),
        (["--out", "m" * 256], "cannot be written: File name too long"),
        (["--out", "m" * 5000], "cannot be written: File name too long"),
        (["--out", "m\0"], "embedded null byte"),
        (["--data", "folder:" + "d" * 5000], "there is no such folder"),
        (["--data", "timit:" + "d" * 5000], "there is no such folder"),
        (["--data", "timit:d\0"], "there is no such folder"),
        (["--data", "folder:d\0"], "there is no such folder"),
        (["--data", "d" * 5000], "or an existing folder"),
    ],
)
def test_wrong_usage_of_train_exits_with_2(command, recordings, tmp_path, arguments, message):
    out = [] if "--out" in arguments else ["--out", tmp_path / "model"]
    code, printed, err = command("train", "--data", f"folder:{recordings}", *out, *arguments)
    assert (code, printed) == (2, "")
    assert message in " ".join(err.split())
    assert not (tmp_path / "model").exists()


def test_folder_that_cannot_be_made_is_reported(command, model, recordings):
    code, _, err = command("train", "--data", f"folder:{recordings}", "--out", model / "x")
    assert code == 2
    assert "--out: cannot make its folder" in err


def test_training_that_diverges_exits_with_1(command, recordings, tmp_path):
    arguments = ["--data", f"folder:{recordings}", *TINY, "--learning-rate", "1e30", "--out", tmp_path / "model"]
    code, out, err = command("train", *arguments)
    assert (code, out) == (1, "")
    assert err == (
        "cwrnn: nothing was learnt: no run reached a lower cross entropy than its initial weights; "
        "try a lower learning rate, less noise, or more epochs\n"
    )
    assert not (tmp_path / "model").exists()


def test_words_with_control_characters_are_refused(command, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "train_many", None)
    data = write_word_folders(tmp_path / "recordings", ("yes", "n\to"), 3)
    code, out, err = command("train", "--data", data, *TINY, "--out", tmp_path / "model")
    assert (code, out, err) == (1, "", "cwrnn: the word 'n\\to' has control characters\n")


def test_interrupted_training_writes_nothing(command, recordings, tmp_path, monkeypatch):
    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "fit_recogniser", interrupt)
    code, out, err = command("train", "--data", f"folder:{recordings}", *TINY, "--out", tmp_path / "model")
    assert (code, out, err) == (130, "", "Interrupted.\n")
    assert not (tmp_path / "model").exists()


def test_missing_safetensors_is_reported_before_the_training(command, recordings, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    monkeypatch.setattr(training, "fit_recogniser", None)
    code, _, err = command("train", "--data", f"folder:{recordings}", *TINY, "--out", tmp_path / "model")
    assert code == 1
    assert "saving networks needs safetensors: pip install 'cwrnn[experiments]'" in err


def test_bad_files_are_reported_and_good_ones_recognised(command, model, recordings, tmp_path):
    good = recordings / "yes" / "s0.wav"
    silent = write_sound(tmp_path / "silent.wav", np.zeros(8000))
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


def test_files_that_never_end_are_reported(command, model, recordings, tmp_path):
    os.mkfifo(tmp_path / "pipe.wav")
    bad = [tmp_path / "pipe.wav", "/dev/zero", tmp_path / ("a" * 5000)]
    code, out, err = command("recognise", model, *bad, recordings / "yes" / "s0.wav")
    assert code == 1
    assert out.count("\n") == 1
    reasons = ["it is not a regular file", "it is not a regular file", "File name too long"]
    assert err.splitlines() == [
        f"cwrnn: {file}: cannot be read: {reason}" for file, reason in zip(bad, reasons, strict=True)
    ]
    for path in bad:
        code, out, err = command("recognise", path, recordings / "yes" / "s0.wav")
        assert (code, out) == (1, "")
        assert err.startswith(f"cwrnn: {path}: cannot be read: ")


def test_sample_that_cannot_be_used_is_reported(command, model, tmp_path):
    samples = make_voice(1)
    samples[77] = 1e30
    loud = write_sound(tmp_path / "loud.wav", samples, subtype="FLOAT")
    message = "has samples that are too large: sample 77 is 1e+30, but full scale is 1"
    assert command("recognise", model, loud) == (1, "", f"cwrnn: {loud}: {message}\n")
    code, out, _ = command("recognise", model, loud, "--json")
    assert code == 1
    assert json.loads(out) == {"files": [{"file": str(loud), "error": message}]}


def test_model_of_absurd_numbers_prints_no_probability(command, pipe, recogniser, recordings, tmp_path):
    saved = copy.deepcopy(recogniser.saved)
    saved.tensors["features.deviation"][:] = 1e-300
    Recogniser(saved).save(tmp_path / "absurd")
    good = recordings / "yes" / "s0.wav"
    message = "the network computes probabilities that are not finite: its numbers are too large"
    assert command("recognise", tmp_path / "absurd", good) == (1, "", f"cwrnn: {good}: {message}\n")
    code, out, _ = command("recognise", tmp_path / "absurd", good, "--json")
    assert (code, json.loads(out)) == (1, {"files": [{"file": str(good), "error": message}]})
    for arguments in ([], ["--json"]):
        code, out, err = pipe(encode_pcm(make_voice(9)), tmp_path / "absurd", "--stream", *arguments)
        assert (code, out, err) == (1, "", f"cwrnn: standard input: {message}\n")


NASTY = "[red]$x$<b>\x1b[31m\u202e\r\n"
ESCAPED = r"[red]$x$<b>\x1b[31m\u202e\r\n"


def test_terminal_obeys_no_name_of_a_file(command, model, recordings, tmp_path):
    good = tmp_path / f"{NASTY}.wav"
    good.write_bytes((recordings / "yes" / "s0.wav").read_bytes())
    code, out, err = command("recognise", model, good, tmp_path / f"{NASTY}.flac")
    assert code == 1
    assert out.startswith(f"{tmp_path}/{ESCAPED}.wav: ")
    assert out.count("\n") == 1
    assert err == f"cwrnn: {tmp_path}/{ESCAPED}.flac: cannot be read: No such file or directory\n"
    code, out, err = command("recognise", good, good)
    assert (code, out) == (1, "")
    assert err == f"cwrnn: {tmp_path}/{ESCAPED}.wav: this is not a safetensors file\n"
    code, _, err = command("train", "--data", recordings, "--out", good)
    assert code == 2
    assert ESCAPED in err
    assert "\x1b" not in err


def test_terminal_obeys_no_word(command, model, recogniser, recordings):
    saved = copy.deepcopy(recogniser.saved)
    about = {**saved.about, "words": ["yes\u202e", "no[red]", "\u2028"]}
    about["clusters"] = dict.fromkeys(about["words"], 1)
    Recogniser(dataclasses.replace(saved, about=about)).save(model)
    code, out, _ = command("recognise", model, recordings / "yes" / "s0.wav")
    assert code == 0
    assert out.count("\n") == 1
    for word in ("yes\\u202e ", "no[red] ", "\\u2028 "):
        assert word in out


def test_terminal_obeys_no_speaker(command, tmp_path):
    data = write_word_folders(tmp_path / "recordings", ("yes", "no[red]"), 3)
    (data / "yes" / f"{NASTY}.wav").write_bytes(b"no sound")
    code, out, err = command("train", "--data", data, *TINY, "--out", tmp_path / "model")
    assert (code, out) == (2, "")
    assert f"yes/{ESCAPED}.wav: not a sound file that can be read" in err
    (data / "yes" / f"{NASTY}.wav").unlink()
    code, out, err = command("train", "--data", data, *TINY, "--out", tmp_path / "\x1b[2J")
    assert code == 0
    assert f"The model is {tmp_path}/\\x1b[2J" in out
    assert "\x1b" not in out + err


def test_trim_leaves_out_silence(command, model, recordings, tmp_path, recogniser):
    word = 0.5 * np.sin(np.arange(4800) / 3)
    padded = write_sound(tmp_path / "padded.wav", np.concatenate([np.zeros(9000), word, np.zeros(9000)]))
    found = json.loads(command("recognise", model, padded, "--trim", "--json")[1])["files"][0]["words"]
    sample_rate, samples = decode_sound(padded.read_bytes())
    expected = recogniser.recognise(trim_silence(samples, sample_rate), sample_rate)
    assert [(each["word"], each["probability"]) for each in found] == expected
    assert expected != recogniser.recognise(samples, sample_rate)


@pytest.mark.parametrize(
    "content", [b"", b"RIFF" * 10, bytes(100), b"\x80\x04K\x01."], ids=["empty", "wav", "zeros", "pickle"]
)
def test_file_that_is_no_model_is_refused(command, pipe, tmp_path, recordings, content):
    path = tmp_path / "model"
    path.write_bytes(content)
    for run in (lambda: command("recognise", path, recordings / "yes" / "s0.wav"), lambda: pipe(b"", path, "--stream")):
        code, out, err = run()
        assert (code, out) == (1, "")
        assert err.startswith(f"cwrnn: {path}: ")
        assert "Traceback" not in err


def test_damaged_model_is_refused(command, model, recordings):
    model.write_bytes(model.read_bytes()[:-1])
    code, out, err = command("recognise", model, recordings / "yes" / "s0.wav")
    assert (code, out) == (1, "")
    assert err.startswith(f"cwrnn: {model}: damaged: ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "FILE: name at least one, or read standard input with --stream"),
        (["--stream", "a.wav"], "--stream: reads standard input, and takes no FILE"),
        (["--stream", "--trim"], "--trim: cannot be used with --stream"),
        (["--rate", "16000", "a.wav"], "--rate: needs --stream"),
        (["--stream", "--rate", "4000"], "'--rate'"),
        (["--top", "0", "a.wav"], "'--top'"),
    ],
)
def test_wrong_usage_of_recognise_exits_with_2(command, model, arguments, message):
    code, out, err = command("recognise", model, *arguments)
    assert (code, out) == (2, "")
    assert message in " ".join(err.split())


def test_terminal_is_refused_as_a_stream(command, model, monkeypatch):
    monkeypatch.setattr(sys, "stdin", type("Terminal", (io.StringIO,), {"isatty": lambda self: True})())
    code, _, err = command("recognise", model, "--stream")
    assert code == 2
    assert "standard input is a terminal" in " ".join(err.split())


@pytest.mark.parametrize("rate", [16000, 44100])
def test_stream_prints_every_frame_as_json(pipe, model, recogniser, rate):
    data = encode_pcm(make_voice(9, 12000, rate))
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
    assert re.fullmatch(rf"{12000 / rate:.2f} s of sound, \d+\.\d+ s of one core: 0\.\d+ of real time\n", err)


def test_stream_prints_a_line_when_the_word_changes(pipe, model):
    data = encode_pcm(np.concatenate([make_voice(seed) for seed in (9, 10, 11)]))
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


def test_stream_on_a_terminal_is_one_line(pipe, model, monkeypatch, capsys):
    monkeypatch.setattr(words.StreamDisplay, "is_terminal", staticmethod(lambda: True))
    code, out, _ = pipe(encode_pcm(make_voice(9)), model, "--stream")
    assert code == 0
    assert out.count("\n") == 1
    assert out.count("\r\x1b[K") >= 3
    assert out.endswith("in the end\n")


def test_stream_that_ends_within_a_sample_is_reported(pipe, model):
    data = encode_pcm(make_voice(9))
    code, out, err = pipe(data[:-1], model, "--stream", "--json")
    assert code == 0
    assert out == pipe(data[:-2], model, "--stream", "--json")[1]
    assert "standard input ends within a sample: its last byte is left out" in err


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "standard input: too short: 0 ms, expected at least one window of 25 ms"),
        (bytes(200), "standard input: too short: 6.25 ms, expected at least one window of 25 ms"),
        (
            b"RIFF" + bytes(5000),
            "standard input: this is a sound file, but a stream must be raw samples: recognise it as a file",
        ),
    ],
)
def test_stream_without_a_frame_exits_with_1(pipe, model, data, message):
    code, out, err = pipe(data, model, "--stream")
    assert (code, out) == (1, "")
    assert err == f"cwrnn: {message}\n"


def test_interrupted_stream_prints_the_last_decision(pipe, model, monkeypatch):
    data = encode_pcm(make_voice(9))
    expected = pipe(data, model, "--stream")[1].splitlines()[-1]
    recognise_stream = words.recognise_stream

    def interrupt_at_the_end(recogniser, stream, **options):
        def read_chunks():
            yield stream.read()
            raise KeyboardInterrupt

        return recognise_stream(recogniser, read_chunks(), **options)

    monkeypatch.setattr(words, "recognise_stream", interrupt_at_the_end)
    code, out, err = pipe(data, model, "--stream")
    assert code == 130
    assert out.splitlines()[-1] == expected
    assert err == "Interrupted.\n"


def test_closed_output_is_no_error_message(pipe, model, monkeypatch):
    """The reader closes the pipe early, as `| head -1` does."""
    read, write = os.pipe()
    os.close(read)
    broken = os.fdopen(write, "w")
    monkeypatch.setattr(sys, "stdout", broken)
    code, _, err = pipe(encode_pcm(make_voice(9)), model, "--stream")
    assert (code, err) == (1, "")
    with suppress(BrokenPipeError):
        broken.close()


def test_help_has_examples(capsys):
    for name, options in (
        ("train", "--data --words --size --runs --force"),
        ("recognise", "--stream --trim --top --json"),
    ):
        assert main(["words", name, "--help"]) == 0
        out = capsys.readouterr().out
        for word in [*options.split(), "examples:", "exit codes:"]:
            assert word in out
