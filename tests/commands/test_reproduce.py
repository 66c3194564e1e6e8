"""`cwrnn reproduce` prints tables and writes pages; its errors have messages and exit codes."""

import json
import os
import re
import sqlite3
import sys
from contextlib import contextmanager

import numpy as np
import pytest
import soundfile
from support import small_sweeps

from cwrnn.commands import reproduce
from cwrnn.commands.main import main
from cwrnn.experiments import reproduction_result
from cwrnn.experiments.generation import training
from cwrnn.experiments.generation.training import train_many
from cwrnn.experiments.sweep import driver
from cwrnn.experiments.sweep.store import Store

TINY = ["--sizes", "100", "--runs", "2", "--epochs", "3", "--length", "20", "--workers", "1"]


@pytest.fixture
def generate(tmp_path, capsys, monkeypatch):
    """Runs `cwrnn reproduce generation` without a page, and returns exit code, output and errors."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(reproduction_result, "write_page", lambda store, folder: folder / "index.html")

    def run(*arguments, out=tmp_path / "out", tiny=TINY):
        code = main(["reproduce", "generation", *tiny, "--out", str(out), *map(str, arguments)])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


@pytest.fixture
def song(tmp_path):
    path = tmp_path / "song.flac"
    soundfile.write(path, np.sin(np.arange(3000) / 7)[:, None] * [0.5, 0.25], 22050)
    return path


def test_the_table_has_one_row_per_method_and_size(generate, tmp_path):
    code, out, err = generate()
    assert code == 0
    rows = [line.split() for line in out.splitlines() if re.match("SRN|LSTM|CW-RNN", line)]
    assert [row[:5] for row in rows] == [
        ["SRN", "100", "9", "100", "10"],
        ["LSTM", "100", "4", "97", "10"],
        ["CW-RNN", "100", "11", "100", "10"],
    ]
    for row in rows:
        mean, plus_minus, deviation, median, diverged = row[5:]
        assert 0 < float(deviation) < float(mean)
        assert float(median) > 0
        assert (plus_minus, diverged) == ("±", "0")
    assert "30 runs; the store is" in err
    assert re.search(r"100 %  30 of 30 runs, \d+:\d\d gone, about 0:00 left", err)
    with Store.read(tmp_path / "out") as store:
        assert len(store.records()) == 30
        assert store.command.startswith("cwrnn reproduce generation --sizes 100")
    assert max(len(line) for line in out.splitlines() if "page" not in line) <= 80


def test_the_largest_networks_have_the_papers_error_beside_theirs(generate):
    _, out, _ = generate("--sizes", "250,1000", "--runs", "1", "--methods", "cw")
    rows = [line.split() for line in out.splitlines() if line.startswith("CW-RNN")]
    assert [row[1:4] for row in rows] == [["250", "19", "249"], ["1000", "40", "980"]]
    assert len(rows[0]) == 10
    assert rows[1][10:] == ["0.007", "±", "0.004"]


def test_json_prints_one_object_and_the_table_goes_to_stderr(generate, tmp_path):
    code, out, err = generate("--json", "--learning-rate", "srn=1e9,cw=1e-3", "--epochs", "60")
    assert code == 0
    found = json.loads(out)
    names = ["method", "size", "hidden", "parameters", "runs", "diverged", "mean", "std", "median"]
    rows = {row["method"]: [row[name] for name in names] for row in found["rows"]}
    assert list(rows) == ["srn", "lstm", "cw"]
    assert rows["srn"] == ["srn", 100, 9, 100, 10, 10, None, None, None]
    assert rows["lstm"][:6] == ["lstm", 100, 4, 97, 10, 0]
    assert all(value > 0 for value in rows["lstm"][6:])
    assert {row["method"]: row["learning_rate"] for row in found["rows"]} == {"srn": 1e9, "lstm": 3e-5, "cw": 1e-3}
    assert found["store"] == str(tmp_path / "out" / "runs.sqlite")
    assert len(found["data"]) == 5
    assert "SRN" in err


def test_quiet_with_json_prints_only_the_page_on_stderr(generate, tmp_path):
    _, out, err = generate("--json", "--quiet")
    assert json.loads(out)["runs"] == 30
    assert err.splitlines() == [f"The page is {tmp_path / 'out' / 'index.html'}"]


def test_resume_and_quiet_do_not_change_the_numbers(generate):
    rows = [json.loads(generate("--json", *more)[1])["rows"] for more in ((), ("--resume",), ("--resume", "--quiet"))]
    assert rows[0] == rows[1] == rows[2]


def test_a_store_with_runs_needs_resume(generate, tmp_path):
    assert generate()[0] == 0
    before = (tmp_path / "out" / "runs.sqlite").read_bytes()
    code, out, err = generate("--runs", "3")
    assert (code, out) == (2, "")
    assert "30 runs already: add --resume (resume=True) to go on with them, or choose another folder" in " ".join(
        err.split()
    )
    assert (tmp_path / "out" / "runs.sqlite").read_bytes() == before

    finished = small_sweeps.times(tmp_path / "out")
    code, _, err = generate("--runs", "3", "--resume", "--methods", "cw")
    assert code == 0
    assert "15 runs, 10 of them there already" in err
    later = small_sweeps.times(tmp_path / "out")
    assert len(later) == 35
    assert {key: later[key] for key in finished} == finished


def test_other_samples_under_the_name_of_a_stored_data_set_are_refused(generate, song, tmp_path):
    assert generate("--data", song)[0] == 0
    code, _, err = generate("--data", song, "--offset", "0.05", "--resume")
    assert code == 1
    assert "the data set 'song' in the store has other numbers than" in err


@pytest.mark.parametrize(
    "content", [b"not a store " * 100, b"SQLite format 3\x00" + bytes(200)], ids=["text", "foreign"]
)
def test_a_file_that_is_no_store_is_refused_and_left_alone(generate, tmp_path, content):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "runs.sqlite").write_bytes(content)
    for more in ((), ("--resume",)):
        code, out, err = generate(*more)
        assert (code, out) == (1, "")
        assert "this is not a store of cwrnn" in err
    assert main(["report", str(tmp_path / "out")]) == 1
    assert (tmp_path / "out" / "runs.sqlite").read_bytes() == content
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["runs.sqlite"]


def test_data_may_be_several_files_and_the_bundle(generate, song, tmp_path):
    other = tmp_path / "other.wav"
    soundfile.write(other, np.sin(np.arange(3000) / 5), 8000)
    # as a shell expands --data *.wav
    code, out, _ = generate("--data", song, other, "--data", "bundle", "--offset", "0.001", "--json")
    assert code == 0
    data = json.loads(out)["data"]
    assert sorted(data)[-2:] == ["other", "song"]
    assert len(data) == 7
    with Store.read(tmp_path / "out") as store:
        assert store.datasets()["song"].rate == 22050
        assert len(store.datasets()["song"].samples) == 20


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "nowhere.wav"], "--data: nowhere.wav: there is no such file or folder"),
        (["--data", __file__], "not a sound file that can be read"),
        (["--length", "321"], "too short: 321 samples from 0 s on (sample 0) are needed, 320 are there"),
        (["--methods", "srn,rnn"], "--methods: expected some of srn, lstm, cw, gru, cw-lstm, cw-gru, leaky, delays,"),
        (["--sizes", "many"], "--sizes: expected numbers of parameters, such as 100,250, got 'many'"),
        (["--sizes", "0,100"], "--sizes: expected numbers of parameters"),
        (["--sizes", "2"], "--sizes:"),
        (["--runs", "0"], "'--runs'"),
        (["--epochs", "0"], "'--epochs'"),
        (["--seed", "-1"], "'--seed'"),
        (
            ["--learning-rate", "fast"],
            "--learning-rate: expected numbers above 0, or METHOD=NUMBER,METHOD=NUMBER, got 'fast'",
        ),
        (["--learning-rate", "-1"], "--learning-rate: expected numbers above 0, got -1"),
        (["--learning-rate", "gru=1"], "--learning-rate: expected methods among srn, lstm, cw, got 'gru'"),
        (
            ["--learning-rate", "1e-4,2e-4"],
            "--learning-rate: expected one number, or one for each method; a list is for a search",
        ),
        (["--learning-rate", "cw=1e-4,cw=2e-4"], "--learning-rate: names a method twice: 'cw=1e-4,cw=2e-4'"),
        (["--data", ""], "--data: expected a file, a folder or 'bundle', got ''"),
        (["--offset", "inf"], "--offset: expected a number of seconds, 0 or more, got inf"),
        (["--sizes", "100,99999999999999999999"], "--sizes: expected at most 1000000000 parameters, got 9999"),
        (["--paper", "--search"], "--paper: cannot be combined with search"),
        (["--scheduler", "tcp://127.0.0.1:1"], "--scheduler: needs the engine dask"),
        (["--engine", "cloud"], "'--engine'"),
        (["--workers", "0"], "'--workers'"),
        (["--sneaky"], "--sneaky"),
    ],
)
def test_wrong_usage_exits_with_2_and_makes_no_folder(generate, tmp_path, arguments, message):
    code, out, err = generate(*arguments)
    assert (code, out) == (2, "")
    assert message in " ".join(err.split())
    assert not (tmp_path / "out").exists()


def test_an_out_that_cannot_be_made_is_named(generate, song):
    code, _, err = generate(out=song / "out")
    assert code == 2
    assert "--out: cannot make the folder" in err


@pytest.mark.parametrize("name", ["o_[/x]", "o_[red]:smile:"])
def test_brackets_and_colons_in_a_path_are_printed_as_they_are(generate, tmp_path, name):
    out = tmp_path / name
    code, printed, err = generate("--methods", "cw", "--runs", "1", out=out)
    assert code == 0
    assert f"The page is {out / 'index.html'}" in printed
    assert f"the store is {out / 'runs.sqlite'}" in err
    code, _, err = generate("--data", "bundle", "--offset", "0.001", "--resume", out=out)
    assert code == 1
    assert str(out / "runs.sqlite") in err


def test_a_folder_in_place_of_the_store_is_an_error(generate, tmp_path):
    (tmp_path / "out" / "runs.sqlite").mkdir(parents=True)
    code, out, err = generate()
    assert (code, out) == (1, "")
    assert f"cwrnn: {tmp_path / 'out' / 'runs.sqlite'}: cannot be read: Is a directory" in err
    assert list((tmp_path / "out" / "runs.sqlite").iterdir()) == []


def test_a_conflicting_data_set_keeps_all_others_out(generate, song, tmp_path):
    assert generate("--data", song)[0] == 0
    other = tmp_path / "other.wav"
    soundfile.write(other, np.sin(np.arange(3000) / 5), 8000)
    assert generate("--data", other, song, "--offset", "0.05", "--resume")[0] == 1
    with Store.read(tmp_path / "out") as store:
        assert list(store.datasets()) == ["song"]


def test_a_file_name_that_is_not_utf_8_is_printed_with_question_marks(generate, song, tmp_path):
    bad = tmp_path / os.fsdecode(b"bad\xff.flac")
    try:
        song.rename(bad)
    except OSError:
        pytest.skip("no such names here")
    code, out, _ = generate("--data", bad, "--methods", "cw", "--json")
    assert code == 0
    assert json.loads(out)["data"] == ["bad?"]
    with Store.read(tmp_path / "out") as store:
        assert "bad?.flac" in store.command


@pytest.mark.usefixtures("undrawn")
def test_a_page_that_cannot_be_written_says_how_to_resume(generate, tmp_path, monkeypatch):
    page = tmp_path / "out" / "index.html"
    monkeypatch.setattr(reproduction_result, "write_page", lambda store, folder: page.write_text("the page"))
    page.mkdir(parents=True)
    code, out, err = generate("--methods", "cw")
    assert (code, out) == (1, "")
    assert f"cwrnn: {page}: Is a directory\nThe runs that were trained are in the store. To go on:\n" in err
    assert err.endswith("--methods cw --resume\n")
    assert main(["report", str(tmp_path / "out")]) == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a disk that is full")
@pytest.mark.parametrize("more", [["--json", "--quiet"], []], ids=["json", "table"])
def test_a_full_disk_behind_standard_output_is_an_error(generate, monkeypatch, more):
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        code, _, err = generate("--methods", "cw", *more)
        # nothing is left that would fail when it is flushed
        full.flush()
    assert code == 1
    assert "cwrnn: standard output: No space left on device\nThe runs that were trained are in the store." in err


def test_failed_runs_are_reported_and_tried_again(generate, monkeypatch):
    def broken(*arguments, **options):
        raise RuntimeError("no luck")

    monkeypatch.setattr(training, "train_many", broken)
    code, out, err = generate("--methods", "srn")
    assert code == 1
    assert "diverged failed" in out
    assert "10 runs failed" in err
    assert "RuntimeError: no luck" in err
    monkeypatch.setattr(training, "train_many", train_many)
    code, out, _ = generate("--methods", "srn", "--resume")
    assert code == 0
    assert "diverged failed" not in out


def test_an_interrupt_prints_the_command_that_resumes(generate, monkeypatch):
    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(driver, "train_missing", interrupt)
    monkeypatch.setattr(sys, "argv", ["/somewhere/bin/cwrnn"])
    code, out, err = generate("--runs", "4", "--data", "bundle")
    assert (code, out) == (130, "")
    assert "Interrupted" in err
    again = err.splitlines()[-1].strip()
    assert again.startswith("/somewhere/bin/cwrnn reproduce generation --sizes 100")
    assert again.endswith("--runs 4 --data bundle --resume")
    assert generate("--resume")[2].splitlines()[-1].count("--resume") == 1


def test_search_prints_one_row_per_learning_rate(generate, tmp_path):
    code, out, _ = generate(
        "--search", "--learning-rate", "1e9,1e-3,3e-4", "--methods", "srn", "--epochs", "60", "--runs", "1"
    )
    assert code == 0
    rows = [line.split() for line in out.splitlines() if line.startswith("SRN")]
    assert [row[:4] for row in rows] == [["SRN", "100", rate, "5"] for rate in ("0.0003", "0.001", "1e+09")]
    assert rows[2][4:] == ["none", "100", "%"]
    assert sum("*" in row for row in rows) >= 1
    assert rows[0][-1] == "*"
    with Store.read(tmp_path / "out") as store:
        assert store.records() == []
        assert len(store.records("search")) == 15
    found = json.loads(generate("--search", "--learning-rate", "1e9,1e-3,3e-4", "--methods", "srn", "--epochs", "60",
                                "--runs", "1", "--resume", "--json")[1])  # fmt: skip
    assert [(row["learning_rate"], row["diverged"]) for row in found["rows"]] == [(3e-4, 0), (1e-3, 0), (1e9, 5)]
    assert sum(row["chosen"] for row in found["rows"]) == 1


@pytest.mark.usefixtures("undrawn")
def test_report_writes_the_same_page_from_the_store_alone(tmp_path, capsys):
    arguments = [*TINY, "--out", str(tmp_path), "--methods", "cw", "--runs", "1", "--quiet"]
    assert main(["reproduce", "generation", *arguments]) == 0
    page = tmp_path / "index.html"
    assert f"The page is {page}" in capsys.readouterr().out
    expected = page.read_bytes()
    for path in [page, *(tmp_path / "figures").rglob("*.*")]:
        path.unlink()
    store = (tmp_path / "runs.sqlite").read_bytes()
    assert main(["report", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"The page is {page}\n"
    assert page.read_bytes() == expected
    assert (tmp_path / "runs.sqlite").read_bytes() == store


@pytest.mark.usefixtures("undrawn")
def test_report_shows_its_progress(generate, tmp_path, monkeypatch):
    shown = []

    @contextmanager
    def record_progress(**options):
        yield shown.append

    assert generate("--methods", "cw", "--runs", "1", "--quiet")[0] == 0
    monkeypatch.setattr("cwrnn.commands.report.show_progress", record_progress)
    assert main(["report", str(tmp_path / "out")]) == 0
    assert {progress.activity for progress in shown} == {"drawing"}
    assert shown[-1].fraction == 1.0


def test_report_needs_a_store_with_runs(tmp_path, capsys):
    assert main(["report", str(tmp_path)]) == 1
    assert "there is no store" in capsys.readouterr().err
    Store.open(tmp_path, create=True).close()
    assert main(["report", str(tmp_path)]) == 1
    assert "there are no runs yet" in capsys.readouterr().err


def test_a_locked_store_is_an_error(generate, tmp_path, monkeypatch):
    assert generate()[0] == 0
    monkeypatch.setattr("cwrnn.experiments.sweep.store_file.LOCK_SECONDS", 0.0)
    other = sqlite3.connect(tmp_path / "out" / "runs.sqlite", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    code, _, err = generate("--resume")
    other.close()
    assert code == 1
    assert "the store cannot be used: database is locked" in err


def test_help_lists_all_options_examples_and_exit_codes(capsys):
    assert main(["reproduce", "generation", "--help"]) == 0
    out = capsys.readouterr().out
    options = "data methods sizes runs epochs paper search engine scheduler workers out resume seed learning-rate"
    for option in f"{options} no-peepholes offset length json quiet".split():
        assert f"--{option}" in out
    assert "examples:" in out
    assert "exit codes:" in out
    assert "[OPTIONS] [DATA]...\n" in out
    assert "list[str]" not in out


@pytest.mark.parametrize("task", ["generation", "words"])
def test_help_says_what_a_search_chooses_by(task, capsys):
    assert main(["reproduce", task, "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "lowest error on the training data" in text
    assert "Test errors have no part in the choice." in text


def test_the_examples_of_the_help_name_options_that_exist(monkeypatch):
    examples = (reproduce.BOTH_EXAMPLES + reproduce.GENERATION_EXAMPLES + reproduce.WORDS_EXAMPLES).splitlines()
    lines = [line for line in examples if line.startswith("cwrnn reproduce") and "--help" not in line]
    assert len(lines) >= 15
    called = []

    def stop(*arguments, **options):
        called.append(options["out"])
        raise ZeroDivisionError

    for name in ("reproduce", "reproduce_generation", "reproduce_words"):
        monkeypatch.setattr(reproduce, name, stop)
    for line in lines:
        with pytest.raises(ZeroDivisionError):
            main(line.split("   ")[0].split()[1:])
    assert len(called) == len(lines)


@pytest.mark.parametrize("package", ["typer", "rich", "soundfile", "matplotlib", "jinja2"])
def test_the_extra_that_is_missing_is_named(generate, monkeypatch, package):
    # None in sys.modules makes the import fail as if the package were not installed
    monkeypatch.setitem(sys.modules, package, None)
    code, out, err = generate()
    assert (code, out) == (1, "")
    assert "pip install 'cwrnn[experiments]'" in err


def test_the_dask_engine_names_its_own_extra(generate, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    code, _, err = generate("--engine", "dask")
    assert code == 1
    assert "pip install 'cwrnn[dask]'" in err


def test_options_before_the_name_are_refused(capsys, tmp_path):
    """There they would have no effect: they belong to the command that runs both experiments."""
    assert main(["reproduce", "--out", str(tmp_path / "a"), "generation", "--runs", "1"]) == 2
    assert "options go after the name: cwrnn reproduce generation" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "a").exists()
