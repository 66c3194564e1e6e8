"""The commands `cwrnn clocks compare`, `evolve` and `learn`: output, exit codes, files and the command they print."""

import json
import shlex

import numpy as np
import pytest
from support import made_corpora, sound_files

from cwrnn.commands.main import main
from cwrnn.experiments.clocks.series import SERIES
from cwrnn.experiments.generation import training
from cwrnn.experiments.inspect.loading import load_network
from cwrnn.experiments.sweep.interrupts import interrupts
from cwrnn.experiments.sweep.store import Store
from cwrnn.experiments.words.task import WORDS
from cwrnn.schedule import Schedule

TINY = ("--size", "120", "--modules", "3", "--epochs", "3", "--workers", "1", "--quiet")
LEARN_TINY = ("--modules", "3", "--size", "120", "--epochs", "4", "--longest", "6")
SEARCH = ("evolve", "--data", "squares:3", "--runs", "3", "--generations", "2", "--population", "4", *TINY[:-1])


def run(capsys, *arguments):
    """Run `cwrnn clocks` and return its exit code, its output and its errors."""
    code = main(["clocks", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def write_report(folder):
    """Return the page of a folder, and the numbers of its only chapter."""
    assert main(["report", str(folder)]) == 0
    numbers = json.loads((folder / "summary.json").read_text())
    (chapter,) = numbers.keys() & {"generation", "words", "clocks-generation", "clocks-words"}
    return (folder / "index.html").read_text(), numbers[chapter]


def use_small_corpus(monkeypatch):
    monkeypatch.setattr(WORDS, "load", lambda sources, progress=None: [made_corpora.make_corpus()])


def fail_for_seeds(seeds):
    """A training function that fails for these seeds."""
    train_many = training.train_many

    def train(method, hidden, targets, run_seeds, *rest, **options):
        if set(run_seeds) & set(seeds):
            raise RuntimeError("no luck")
        return train_many(method, hidden, targets, run_seeds, *rest, **options)

    return train


def find_printed_command(out):
    """The command below the line "To use it:"."""
    lines = out.splitlines()
    (place,) = [number for number, line in enumerate(lines) if line.startswith("To use it")]
    return lines[place + 1].strip()


def test_compare_prints_stores_and_draws_every_series(tmp_path, capsys):
    arguments = ("compare", "--data", "squares:3,5x2", "--runs", "2", "--schedule", "1:2,5:3", *TINY, "--out", tmp_path)
    code, out, err = run(capsys, *arguments)
    assert (code, err) == (0, "")
    for name in (*SERIES, "own 1:2,5:3"):
        assert name in out
    assert f"The picture is {tmp_path / 'figures' / 'clocks.png'}" in out
    assert (tmp_path / "figures" / "clocks.png").read_bytes().startswith(b"\x89PNG")
    code, out, err = run(capsys, *arguments, "--resume", "--json")
    numbers = json.loads(out)
    assert (code, len(numbers["series"]), numbers["series"][0]["p"]) == (0, 9, None)
    assert [each["finished"] for each in numbers["series"]] == [4] * 9
    planned = {name: numbers[name] for name in ("size", "modules", "runs", "epochs", "learning_rate", "seed")}
    assert planned == {"size": 120, "modules": 3, "runs": 2, "epochs": 3, "learning_rate": 3e-4, "seed": 0}
    with Store.read(tmp_path) as store:
        records = store.records("clocks generation")
    # a schedule that two series share is trained once
    assert {record.schedule for record in records} == {spec for each in numbers["series"] for spec in each["schedules"]}
    assert len(records) < 4 * 9
    assert all(0 <= each["p"] <= 1 for each in numbers["series"][1:])
    # the networks can be inspected
    assert load_network(tmp_path).facts["store"].startswith(str(tmp_path))
    page, chapter = write_report(tmp_path)
    assert chapter["compared"]
    assert [(each["name"], each["p"]) for each in chapter["series"]] == [
        (each["name"], each["p"]) for each in numbers["series"]
    ]
    for each in numbers["series"]:
        assert all(f"<td>{text}</td>" in page for text in (each["name"], "; ".join(each["schedules"])))
    assert "other clocks than the paper's.</p>" in page
    assert (tmp_path / "figures" / "clocks-generation" / "series.svg").exists()
    code, out, err = run(capsys, *arguments)
    assert code == 2
    assert "--resume" in err


def test_evolve_finds_the_same_schedule_if_it_is_interrupted(tmp_path, capsys):
    arguments = ("evolve", "--data", "squares:3,5", "--runs", "1", "--generations", "2", "--population", "4", *TINY)
    code, out, err = run(capsys, *arguments, "--out", tmp_path / "a")
    assert (code, err) == (0, "")
    spec = (tmp_path / "a" / "schedule.txt").read_text().strip()
    assert f"The best schedule is {spec}" in out
    assert " than 1, 2, 4: median NMSE " in out
    Schedule.parse(spec)
    # a search that is interrupted after the first generation and resumed ends in the same way
    first = run(capsys, *arguments, "--generations", "1", "--out", tmp_path / "b")
    assert first[0] == 0
    with Store.read(tmp_path / "b") as store:
        before = {record.key: record.finished_at for record in store.records("clocks generation")}
    code, out, err = run(capsys, *arguments, "--resume", "--json", "--out", tmp_path / "b")
    numbers = json.loads(out)
    assert (code, numbers["schedule"]) == (0, spec)
    assert numbers["verdict"]["error"] == numbers["error"]
    with Store.read(tmp_path / "b") as store:
        after = {record.key: record.finished_at for record in store.records("clocks generation")}
    assert before.items() <= after.items()
    assert len(after) > len(before)
    page, chapter = write_report(tmp_path / "b")
    assert min(each["box"]["median"] for each in chapter["series"]) == chapter["series"][0]["box"]["median"]
    assert chapter["series"][0]["name"] in (spec, numbers["verdict"]["series"])
    assert "chose them by these very runs" in page
    assert not chapter["compared"]


def test_evolve_reports_runs_that_fail(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(training, "train_many", fail_for_seeds({2}))
    code, out, err = run(capsys, *SEARCH, "--json", "--out", tmp_path)
    assert code == 1
    failed = json.loads(out)["failed"]
    assert failed > 0
    assert "generation 1 of 2: best" in err
    assert "4 of 12 runs failed" in err
    assert f"{failed} runs failed; --resume tries them again" in err
    assert "no luck" in err
    monkeypatch.undo()
    code, out, err = run(capsys, *SEARCH, "--resume", "--out", tmp_path)
    assert code == 0
    assert "failed" not in err


def test_evolve_stops_if_every_run_fails(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(training, "train_many", fail_for_seeds({0, 1, 2}))
    code, out, err = run(capsys, *SEARCH, "--out", tmp_path)
    assert (code, out) == (1, "")
    assert "every run failed; the first one:" in err
    assert "no luck" in err
    assert "generation 1" not in err


def test_evolve_stops_if_every_run_diverges(tmp_path, capsys):
    code, out, err = run(capsys, *SEARCH, "--learning-rate", "1e30", "--out", tmp_path)
    assert (code, out) == (1, "")
    assert "generation 1 of 2: no usable candidate yet; 12 of 12 runs diverged" in " ".join(err.split())
    assert "try a lower --learning-rate" in err


def test_words_can_be_compared_and_evolved(tmp_path, capsys, monkeypatch):
    use_small_corpus(monkeypatch)
    options = ("--task", "words", "--size", "400", "--modules", "3", "--epochs", "2", "--workers", "1", "--quiet")
    compared = ("compare", *options, "--runs", "1", "--series", "linear,spectrum")
    code, out, _ = run(capsys, *compared, "--out", tmp_path / "c")
    assert code == 0
    assert "error %" in out
    evolved = ("evolve", *options, "--runs", "1", "--generations", "1", "--population", "4")
    code, out, _ = run(capsys, *evolved, "--out", tmp_path / "e")
    assert code == 0
    assert "median cross entropy" in out
    assert find_printed_command(out).startswith("cwrnn reproduce words --data bundle --methods cw --schedule ")


def test_learn_writes_its_schedule_numbers_and_picture(tmp_path, capsys):
    arguments = ("learn", "--data", "squares:2,3x2", "--runs", "2", *LEARN_TINY, "--out", tmp_path / "a")
    code, out, err = run(capsys, *arguments)
    # the planned work, and nothing else
    assert (code, err) == (0, "4 networks, half of them with learned clocks, for every sequence; for words, in all\n")
    spec = (tmp_path / "a" / "schedule.txt").read_text().strip()
    assert f"The best schedule is {spec}, with " in out
    assert " than 1, 2, 4: median NMSE " in out
    assert "The period 2 is in the data: " in out
    assert "and 4 with the exponential series" in out
    assert (tmp_path / "a" / "figures" / "learned.png").read_bytes().startswith(b"\x89PNG")
    numbers = json.loads((tmp_path / "a" / "learned.json").read_text())
    learned = [network for network in numbers["networks"] if network["clocks"] == "learned"]
    assert [network["seed"] for network in learned] == [0, 1, 2, 3]
    assert spec == min(learned, key=lambda network: network["training error"])["schedule"]
    exponential, other = numbers["clocks"]
    assert other["median"] == pytest.approx(np.median([network["error"] for network in learned]))
    assert (numbers["verdict"]["error"], numbers["verdict"]["series error"]) == (other["median"], exponential["median"])
    assert exponential["parameters"][0] <= 120
    # results are not overwritten
    code, _, err = run(capsys, *arguments)
    assert code == 2
    assert "choose another folder" in err
    code, out, err = run(capsys, *arguments[:-1], tmp_path / "b", "--json", "--quiet", "--seed", "2")
    again = json.loads(out)
    assert (code, err) == (0, "")
    assert [network["seed"] for network in again["networks"]] == [2, 3, 4, 5] * 2
    assert again["schedule"] == (tmp_path / "b" / "schedule.txt").read_text().strip()


def test_clocks_can_be_learned_for_words(tmp_path, capsys, monkeypatch):
    use_small_corpus(monkeypatch)
    sized = (*LEARN_TINY[:3], "300", *LEARN_TINY[4:])
    code, out, _ = run(capsys, "learn", "--task", "words", "--runs", "2", *sized, "--out", tmp_path)
    assert code == 0
    assert "error %" in out
    assert "cwrnn reproduce words" in out
    Schedule.parse((tmp_path / "schedule.txt").read_text().strip())


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("command", ["learn", "evolve"])
def test_the_printed_command_runs_on_the_users_data(command, tmp_path, capsys):
    song = sound_files.write_sound(tmp_path / "my song.wav", sound_files.make_voice(0))
    options = {
        "learn": LEARN_TINY,
        "evolve": ("--generations", "1", "--population", "4", *TINY),
    }[command]
    code, out, _ = run(capsys, command, "--data", song, "--runs", "1", *options, "--out", tmp_path / "found")
    assert code == 0
    text = find_printed_command(out)
    assert f"--data '{song}'" in text
    program, *words = shlex.split(text)
    assert program == "cwrnn"
    assert main([*words, "--runs", "1", "--epochs", "2", "--workers", "1", "--quiet", "--json"]) == 0
    numbers = json.loads(capsys.readouterr().out)
    spec = (tmp_path / "found" / "schedule.txt").read_text().strip()
    assert numbers["data"] == ["my song"]
    with Store.read(tmp_path / "found" / "trained") as store:
        assert {record.schedule for record in store.records("generation")} == {spec}


@pytest.mark.usefixtures("undrawn")
def test_the_printed_command_runs_on_square_waves(tmp_path, capsys):
    learned = ("learn", "--data", "squares:2,3", "--runs", "1", *LEARN_TINY, "--out", tmp_path / "found")
    code, out, _ = run(capsys, *learned)
    assert code == 0
    program, *words = shlex.split(find_printed_command(out))
    assert (program, *words[:4]) == ("cwrnn", "clocks", "compare", "--data", "squares:2,3")
    assert main([*words, "--runs", "1", "--epochs", "2", "--workers", "1", "--quiet", "--json"]) == 0
    spec = (tmp_path / "found" / "schedule.txt").read_text().strip()
    numbers = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in numbers["series"]] == ["exponential-2", f"own {spec}"]


def test_an_interruption_ends_learn(tmp_path, capsys, monkeypatch):
    calls = []

    def check():
        calls.append(None)
        if len(calls) == 5:
            raise KeyboardInterrupt

    monkeypatch.setattr(interrupts, "check", check)
    code, out, err = run(capsys, "learn", "--data", "squares:2,3", *LEARN_TINY, "--out", tmp_path)
    assert (code, out, err.splitlines()[-1]) == (130, "", "Interrupted.")
    assert not (tmp_path / "learned.json").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compare", "--series", "cubic"], "--series: expected some of exponential-2"),
        (["compare", "--size", "5"], "--size: expected at least 73 parameters for 9 modules, got 5"),
        (
            ["compare", "--modules", "60", "--size", "9999"],
            "--modules: exponential-2 with 60 modules: periods must be at",
        ),
        (["compare", "--schedule", "1;2"], "a schedule is written"),
        (
            ["compare", "--schedule", "1:9,2:9", "--size", "200"],
            "--schedule: expected at most 200 parameters, the size",
        ),
        (["compare", "--schedule", "1:9,2:9", "--size", "200"], "got 1:9,2:9 with 282"),
        (["compare", "--data", "squares:x"], "--data: expected squares:"),
        (["compare", "--data", "squares:3", "--data", "squares:3"], "2 data sets named 'squares 3 #0'"),
        (["compare", "--learning-rate", "-1"], "--learning-rate: expected a number above 0, up to 1e30, got -1"),
        (["evolve", "--size", "5"], "--size: expected at least"),
        (["evolve", "--modules", "1"], "--modules: expected at least 2 modules to search, got 1"),
        (["evolve", "--task", "words", "--data", "bundle", "--data", "bundle"], "--data: expected one source of words"),
        (["evolve", "--scheduler", "tcp://x:1"], "--scheduler: needs the engine dask"),
        (["learn", "--size", "5"], "--size: expected at least"),
        (["learn", "--data", "squares:x"], "--data: expected squares:"),
        (["learn", "--learning-rate", "0"], "--learning-rate: expected a number above 0, up to 1e30, got 0"),
        (["learn", "--longest", "1"], "--longest"),
        (["learn", "--task", "words", "--data", "bundle", "--data", "bundle"], "--data: expected one source of words"),
    ],
)
def test_wrong_usage_names_option_value_and_expectation(arguments, message, tmp_path, capsys):
    code, _, err = run(capsys, *arguments, "--out", tmp_path / "none")
    assert code == 2
    assert message in " ".join(err.split())
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("command", ["compare", "evolve", "learn"])
def test_help_has_examples_and_exit_codes(command, capsys):
    code, out, _ = run(capsys, command, "--help")
    assert code == 0
    assert f"cwrnn clocks {command} --data" in out
    assert "exit codes: 0" in out


@pytest.mark.parametrize("method", ["cw-lstm", "cw-gru"])
def test_gated_cells_with_clocks_are_compared_and_evolved(tmp_path, capsys, method):
    """The command that evolution prints trains the same method with the schedule that was found."""
    data = ("--method", method, "--data", "squares:3", "--runs", "1")
    series = ("--series", "exponential-2,linear", "--out", tmp_path / "series")
    code, out, _ = run(capsys, "compare", *data, *series, *TINY, "--json")
    compared = json.loads(out)
    assert (code, compared["method"], [each["name"] for each in compared["series"]]) == (
        0, method, ["exponential-2", "linear"],
    )  # fmt: skip
    assert all(each["parameters"] <= 120 for each in compared["series"])
    page, _ = write_report(tmp_path / "series")
    assert f"{method.removeprefix('cw-').upper()}s with clocks" in page
    code, out, _ = run(capsys, "evolve", *data, "--generations", "1", "--population", "4", *TINY, "--out",
                       tmp_path / "found")  # fmt: skip
    assert code == 0
    command = shlex.split(find_printed_command(out))
    assert command[:5] == ["cwrnn", "clocks", "compare", "--method", method]
    with Store.read(tmp_path / "found") as store:
        records = store.records("clocks generation")
    assert {record.run.method for record in records} == {method}
    assert all(record.parameters <= 120 for record in records)


def test_only_methods_with_clocks_have_clocks(capsys):
    code, _, err = run(capsys, "compare", "--method", "lstm", *TINY)
    assert code == 2
    assert "--method: expected one of cw, cw-lstm, cw-gru, got 'lstm'" in " ".join(err.split())
