"""The paper's experiments can be called from Python."""

import json
import os

import numpy as np
import pytest
from support import small_sweeps
from support.made_corpora import make_corpus

from cwrnn import experiments
from cwrnn.commands.main import main
from cwrnn.experiments import paper, reproduction_result
from cwrnn.experiments.errors import ArgumentError
from cwrnn.experiments.reproduction import reproduce, reproduce_generation, reproduce_words
from cwrnn.experiments.sweep.store import Store, StoreError
from cwrnn.experiments.task import all_tasks, find_task, find_task_of_data

TINY = {"sizes": [100], "runs": 2, "epochs": 3, "workers": 1}


@pytest.fixture
def without_page(monkeypatch):
    monkeypatch.setattr(reproduction_result, "write_page", lambda store, folder: folder / "index.html")


def test_the_package_exports_the_functions():
    functions = experiments.reproduce, experiments.reproduce_generation, experiments.reproduce_words
    assert functions == (reproduce, reproduce_generation, reproduce_words)
    assert {function.__name__ for function in functions} <= set(dir(experiments))


def test_generation_needs_no_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    reports = []
    result = reproduce_generation(small_sweeps.wave(), methods=["cw", "srn"], progress=reports.append, **TINY)
    assert [(row.method, row.size, row.runs) for row in result.rows] == [("srn", 100, 2), ("cw", 100, 2)]
    assert (result.store, result.page, result.failures) == (None, None, ())
    assert "CW-RNN" in str(result)
    assert "page" not in str(result)
    assert (reports[0].activity, reports[0].done, reports[0].total) == ("training", 0, 4)
    assert (reports[-1].done, reports[-1].fraction, reports[-1].seconds_left) == (4, 1.0, 0.0)
    assert os.listdir(tmp_path) == []


def test_words_may_be_a_corpus():
    result = reproduce_words(make_corpus(), methods="cw", sizes=[500], runs=1, epochs=1, workers=1)
    (row,) = result.rows
    assert (row.method, row.size, row.settings.noise) == ("cw", 500, paper.WORDS_NOISE)
    assert "taken for another word" in str(result)
    assert result.to_dict()["data"] == [make_corpus().name]


def test_words_of_a_corpus_can_be_chosen():
    corpus = make_corpus()
    chosen = corpus.words[:2]
    result = reproduce_words(corpus, words=chosen, methods="cw", sizes=[500], runs=1, epochs=1, workers=1)
    assert result.tasks[0].data[0].words == chosen


def test_data_sets_keep_the_order_of_their_sources():
    first, last = small_sweeps.wave("first"), small_sweeps.wave("last")
    loaded = find_task("generation").load_data([first, "bundle", last])
    assert [loaded[0].name, loaded[-1].name, len(loaded)] == ["first", "last", 7]


def test_both_tasks_are_one_result(without_page, tmp_path):
    result = reproduce(methods=["srn"], runs=1, epochs=1, workers=1, out=tmp_path)
    assert [task.task.name for task in result.tasks] == ["generation", "words"]
    assert [task["task"] for task in result.to_dict()["tasks"]] == ["generation", "words"]
    assert len(result.records) == len(paper.GENERATION_SIZES) * 5 + 2
    assert str(result).endswith(f"The page is {tmp_path / 'index.html'}")


def test_to_dict_is_what_the_command_prints(without_page, tmp_path, capsys):
    arguments = [
        "--methods",
        "cw",
        "--sizes",
        "100",
        "--runs",
        "1",
        "--epochs",
        "3",
        "--length",
        "20",
        "--workers",
        "1",
    ]
    assert main(["reproduce", "generation", *arguments, "--out", str(tmp_path), "--json", "--quiet"]) == 0
    printed = json.loads(capsys.readouterr().out)
    options = {"methods": ["cw"], "sizes": [100], "runs": 1, "epochs": 3, "length": 20, "workers": 1}
    result = reproduce_generation(**options, out=tmp_path, resume=True)
    expected = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert printed.pop("seconds") > expected.pop("seconds") > 0
    assert printed == expected


def test_the_result_prints_the_table_of_the_command(without_page, tmp_path, capsys):
    arguments = [
        "--methods",
        "cw",
        "--sizes",
        "100",
        "--runs",
        "1",
        "--epochs",
        "3",
        "--length",
        "20",
        "--workers",
        "1",
    ]
    assert main(["reproduce", "generation", *arguments, "--out", str(tmp_path), "--quiet"]) == 0
    result = reproduce_generation(methods=["cw"], sizes=[100], runs=1, epochs=3, length=20, workers=1)
    assert capsys.readouterr().out == f"{result}\n\nThe page is {tmp_path / 'index.html'}\n"


def test_resume_trains_nothing_twice(without_page, tmp_path):
    first = reproduce_generation(small_sweeps.wave(), out=tmp_path, command="mine", **TINY)
    with pytest.raises(ArgumentError, match="6 runs already") as refused:
        reproduce_generation(small_sweeps.wave(), out=tmp_path, **TINY)
    assert refused.value.argument == "out"
    reports = []
    again = reproduce_generation(small_sweeps.wave(), out=tmp_path, resume=True, progress=reports.append, **TINY)
    assert [(report.done, report.total, report.fraction) for report in reports] == [(6, 6, 1.0)]
    assert [record.finished_at for record in again.records] == [record.finished_at for record in first.records]
    with Store.read(tmp_path) as store:
        assert store.command == "mine"


def test_a_result_without_a_folder_can_write_its_page_later(tmp_path):
    result = reproduce_generation(small_sweeps.wave(steps=40), methods=["cw"], **TINY)
    with pytest.raises(StoreError, match="there is no store"):
        Store.read(tmp_path)
    page = result.write_page(tmp_path)
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    with Store.read(tmp_path) as store:
        assert [record.key for record in store.records()] == [record.key for record in result.records]


@pytest.mark.parametrize(
    ("options", "argument", "message"),
    [
        ({"methods": ["rnn"]}, "methods", "expected some of srn, lstm, cw, gru, .*, mingru, got 'rnn'"),
        ({"methods": []}, "methods", "expected some of"),
        ({"sizes": [0, 100]}, "sizes", "1 or more, got 0, 100"),
        ({"sizes": []}, "sizes", "1 or more, got none"),
        ({"sizes": [2]}, "sizes", "size must be at least"),
        ({"sizes": [10**10]}, "sizes", "at most 1000000000"),
        ({"runs": 0}, "runs", "at least 1, got 0"),
        ({"epochs": 0}, "epochs", "at least 1, got 0"),
        ({"seed": -1}, "seed", "at least 0"),
        ({"learning_rate": -1.0}, "learning_rate", "above 0, got -1"),
        ({"learning_rate": {"cw": float("nan")}}, "learning_rate", "above 0, got nan"),
        ({"learning_rate": {"gru": 1.0}}, "learning_rate", "expected methods among srn, lstm, cw, got 'gru'"),
        ({"learning_rate": [0.1, 0.2]}, "learning_rate", "a list is for a search"),
        ({"learning_rate": {"cw": 0.1}, "search": True}, "learning_rate", "expected a list of numbers"),
        ({"paper": True, "search": True}, "paper", "cannot be combined with search"),
        ({"schedule": "1:x"}, "schedule", "1:x"),
        ({"engine": "cloud"}, "engine", "expected one of local, dask, got 'cloud'"),
        ({"scheduler": "tcp://x:1"}, "scheduler", "needs the engine dask"),
        ({"workers": 0}, "workers", "at least 1, got 0"),
        ({"data": "nowhere.wav"}, "data", "there is no such file or folder"),
        ({"data": []}, "data", "expected one or more sources of generation, got 0"),
        ({"data": make_corpus()}, "data", "expected data of sequence generation"),
        ({"data": [small_sweeps.wave(), small_sweeps.wave()]}, "data", "2 data sets named 'wave'"),
        ({"length": 1}, "length", "at least 2"),
        ({"offset": float("inf")}, "offset", "a number of seconds"),
    ],
)
def test_an_argument_that_cannot_be_used_is_named(tmp_path, options, argument, message):
    with pytest.raises(ArgumentError, match=message) as refused:
        reproduce_generation(**{"out": tmp_path / "out", **options})
    assert refused.value.argument == argument
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("noise", [-0.1, float("nan")])
def test_noise_is_a_standard_deviation(noise):
    with pytest.raises(ArgumentError, match="expected a standard deviation") as refused:
        reproduce_words(noise=noise)
    assert refused.value.argument == "noise"


def test_a_search_tries_every_learning_rate_once():
    result = reproduce_generation(
        small_sweeps.wave(), search=True, methods=["srn"], learning_rate=[1e-3, 1e-4, 1e-3], **TINY
    )
    assert [row.settings.learning_rate for row in result.rows] == [1e-4, 1e-3]
    (task,) = result.tasks
    assert task.is_search
    assert task.best_learning_rates.keys() == {("srn", 100)}
    assert sum(row["chosen"] for row in result.to_dict()["rows"]) == 1


def test_every_task_is_found_by_its_names_and_its_data():
    names = [name for task in all_tasks() for name in task.stored_names]
    of_words = ["words", "words search", "clocks words"]
    of_regression = ["regression", "regression search", "clocks regression"]
    evaluations = ("adding", "copy", "sequential-mnist", "permuted-mnist", "characters")
    of_evaluations = [name for task in evaluations for name in (task, f"{task} search", f"clocks {task}")]
    assert names == ["generation", "search", "clocks generation", *of_words, *of_regression, *of_evaluations]
    assert {find_task(name).name for name in names} == {"generation", "words", "regression", *evaluations}
    assert find_task_of_data(small_sweeps.wave()).name == "generation"
    assert find_task_of_data(make_corpus()).name == "words"
    with pytest.raises(ValueError, match="task must be one of generation, words, regression, adding, .* got 'chess'"):
        find_task("chess")


def test_a_task_packs_and_unpacks_its_data():
    for data in (small_sweeps.wave(), make_corpus()):
        task = find_task_of_data(data)
        again = task.unpack(data.name, data.source, *task.pack(data))
        assert (again.name, again.source, again.digest) == (data.name, data.source, data.digest)
        assert np.isfinite(task.signal(data)).all()


@pytest.mark.parametrize("argument", ["runs", "epochs", "seed", "length", "workers"])
def test_a_count_has_an_upper_bound_and_is_an_integer(argument):
    with pytest.raises(ArgumentError, match="expected at most") as refused:
        reproduce_generation(**{argument: 10**30})
    assert refused.value.argument == argument
    with pytest.raises(ArgumentError, match="expected an integer, got 1.5"):
        reproduce_generation(**{argument: 1.5})


def test_a_sweep_has_a_largest_number_of_runs():
    with pytest.raises(ArgumentError, match="at most 200000 runs in all, got 6000000"):
        reproduce_generation(runs=100_000)


@pytest.mark.parametrize("path", ["", "a\0b", b"bytes", 3])
def test_a_path_that_no_folder_can_have_is_refused(path):
    with pytest.raises(ArgumentError) as refused:
        reproduce_generation(methods=["cw"], sizes=[100], runs=1, epochs=1, length=20, workers=1, out=path)
    assert refused.value.argument == "out"
