"""Methods can be compared on the yardsticks from Python: the table, its numbers, stores, and errors."""

import json
import math
import os
import re
import sys
from itertools import pairwise

import numpy as np
import pytest
import torch
from support.made_images import make_arrays, write_images

from cwrnn import experiments
from cwrnn.experiments import reproduction_result
from cwrnn.experiments.errors import ArgumentError, DataError, ExperimentError
from cwrnn.experiments.evaluation import evaluation, training
from cwrnn.experiments.evaluation.adding import make_adding
from cwrnn.experiments.evaluation.characters import LEAST_LENGTH
from cwrnn.experiments.evaluation.copying import make_copying
from cwrnn.experiments.evaluation.evaluation import evaluate
from cwrnn.experiments.evaluation.result import order_name, summarise_evaluation
from cwrnn.experiments.networks.cost import count_multiply_adds
from cwrnn.experiments.networks.methods import ALL_METHODS
from cwrnn.experiments.sweep import driver
from cwrnn.experiments.sweep.store import Store

TINY = {"lengths": 8, "methods": ["cw", "srn"], "sizes": 300, "runs": 2, "updates": 3, "batch": 4, "periods": [1, 2],
        "workers": 1}  # fmt: skip


@pytest.fixture
def without_page(monkeypatch):
    monkeypatch.setattr(reproduction_result, "write_page", lambda store, folder: folder / "index.html")


@pytest.fixture
def untrained(monkeypatch):
    """Fail if a training or a sweep begins."""

    def refuse(*arguments, **options):
        raise AssertionError("a training has begun")

    for module, name in ((training, "train"), (driver, "train_missing"), (evaluation, "open_sweep")):
        monkeypatch.setattr(module, name, refuse)


def finishing_times(folder):
    """When each run on the adding problem was finished, by key."""
    with Store.read(folder) as store:
        return {record.key: record.finished_at for record in store.records("adding")}


def rows_of(result):
    return [(row.data, row.method, row.size, row.runs) for row in result.rows]


def test_the_package_exports_the_function():
    assert experiments.evaluate is evaluate
    assert {"evaluate", "EvaluationResult"} <= set(dir(experiments))


def test_the_result_has_a_row_for_each_length_method_and_size(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    reports = []
    result = evaluate("adding", **TINY | {"lengths": [12, 8], "sizes": ["1k", 300]}, progress=reports.append)
    names = [("adding 8", "srn"), ("adding 8", "cw"), ("adding 12", "srn"), ("adding 12", "cw")]
    assert rows_of(result) == [(*name, size, 2) for name in names for size in (300, 1000)]
    assert (result.store, result.page, result.failures) == (None, None, ())
    assert (reports[0].activity, reports[0].done, reports[0].total) == ("training", 0, 16)
    assert (reports[-1].done, reports[-1].fraction) == (16, 1.0)
    assert all(report.done <= later.done <= report.done + 1 for report, later in pairwise(reports))
    assert os.listdir(tmp_path) == []
    for row in result.rows:
        mine = [record for record in result.records if record.run.data == row.data
                and (record.run.method, record.run.size) == (row.method, row.size)]  # fmt: skip
        assert [record.run.seed for record in mine] == [0, 1]
        errors = [record.error for record in mine]
        assert row.error == pytest.approx(np.mean(errors))
        assert row.deviation == pytest.approx(np.std(errors, ddof=1))
        assert row.best == min(errors)
        assert row.validation == pytest.approx(np.mean([record.output[0] for record in mine]))
        assert row.seconds == pytest.approx(np.median([record.seconds for record in mine]))
        assert row.parameters == mine[0].parameters <= row.size
        assert row.periods == ((1, 2) if row.method == "cw" else ())
        assert row.multiply_adds == count_multiply_adds(row.method, row.hidden, 2, 1, mine[0].schedule)
        assert (row.diverged, row.failed, row.epochs) == (0, 0, 1)


def test_the_result_prints_a_table():
    text = str(evaluate("adding", **TINY))
    lines = text.splitlines()
    assert lines[0].startswith("The sum of two marked numbers: mean squared error")
    rows = [line for line in lines if line.startswith("adding 8 ")]
    assert [re.search(r"SRN|CW-RNN", line)[0] for line in rows] == ["SRN", "CW-RNN"]
    assert re.search(r"CW-RNN +\d+ +\d+ +1,2 +\d+ +2 +[\d.]+ +[\d.]+ ± [\d.]+ +0$", rows[1])
    assert "diverged" not in text
    assert "over 2 initial weights" in " ".join(lines)
    assert "mean ± std" in text
    assert "The page is" not in text


def test_one_run_has_no_deviation():
    text = str(evaluate("adding", **TINY | {"runs": 1}))
    assert re.search(r"CW-RNN +\d+ +\d+ +1,2 +\d+ +1 +[\d.]+ +[\d.]+ +0$", text, re.MULTILINE)
    assert "±" not in text
    assert "deviation" not in text
    assert "initial weights" not in text


def test_names_of_data_with_any_digits_can_be_sorted():
    assert sorted(["a " + "9" * 9999, "a 10", "a 9", "a"], key=order_name) == ["a", "a 9", "a 10", "a " + "9" * 9999]


@pytest.mark.parametrize("task", ["copy", "sequential-mnist", "permuted-mnist", "characters"])
def test_every_task_can_be_evaluated(tmp_path, task):
    options = TINY | {"runs": 1, "methods": "cw", "sizes": "2k", "lengths": None}
    if task == "copy":
        options["lengths"] = [1]
    elif task == "characters":
        options["data"] = tmp_path / "text.txt"
        options["data"].write_text("abcde fgh. " * (LEAST_LENGTH // 11 + 1))
    else:
        options["data"] = write_images(tmp_path / "images")
    result = evaluate(task, **options)
    (row,) = result.rows
    assert row.diverged == 0
    assert math.isfinite(row.error)
    expected = {"copy": (0, 1), "characters": (2, 6)}.get(task, (0, 1))
    assert expected[0] <= row.error <= expected[1]
    assert row.data in str(result)
    assert result.to_dict()["task"] == task


def test_a_result_is_json():
    result = evaluate("adding", **TINY | {"learning_rate": {"srn": 1e30}, "updates": 10})
    text = json.dumps(result.to_dict(), allow_nan=False)
    found = json.loads(text)
    assert (found["task"], found["runs"], found["failed"], found["store"], found["page"]) == (
        "adding",
        4,
        0,
        None,
        None,
    )
    srn, cw = found["rows"]
    # a diverged method has no error, and the others go on
    assert (srn["method"], srn["diverged"], srn["error"], srn["validation"]) == ("srn", 2, None, None)
    assert cw["diverged"] == 0
    assert cw["error"] > 0
    assert cw["periods"] == [1, 2]
    assert {record.status for record in result.records if record.run.method == "srn"} == {"diverged"}
    # one "none" for the error; validation and seconds are empty
    assert re.search(r"SRN .* 2, 0 +none$", str(result), re.MULTILINE)
    assert "nan" not in str(result)
    assert found["environment"]["torch"]


def test_learning_rates_and_periods_belong_to_methods():
    options = TINY | {"methods": ["srn", "cw", "cw-gru"], "runs": 1, "sizes": 500, "updates": 1}
    given = evaluate("adding", **options | {"learning_rate": {"cw": 0.5}, "periods": {"cw": [1, 3]}})
    rows = {row.method: row for row in given.rows}
    recipe = evaluation.find_evaluation("adding").recipe()
    assert rows["cw"].learning_rate == 0.5
    assert rows["srn"].learning_rate == recipe.learning_rate("srn")
    assert rows["cw"].periods == (1, 3)
    assert rows["cw-gru"].periods == (1, 2, 4, 8, 16, 32, 64, 128)
    one = evaluate("adding", **options | {"learning_rate": 1})
    assert [row.learning_rate for row in one.rows] == [1.0] * 3
    assert [record.key for record in one.records] == [
        record.key for record in evaluate("adding", **options | {"learning_rate": np.float32(1)}).records
    ]


def test_examples_can_be_passed_as_data():
    result = evaluate("adding", make_adding(9), **TINY | {"lengths": None, "runs": 1})
    assert {row.data for row in result.rows} == {"adding 9"}


def test_one_value_may_stand_for_a_list():
    first = evaluate("adding", **TINY | {"methods": "cw", "sizes": "300"})
    second = evaluate("adding", **TINY | {"methods": ["cw"], "sizes": [300], "lengths": ["8"]})
    third = evaluate("adding", **TINY | {"methods": ["cw"], "sizes": np.int64(300), "lengths": np.int64(8)})
    keys = [[record.key for record in result.records] for result in (first, second, third)]
    assert keys[0] == keys[1] == keys[2]
    assert [record.error for record in first.records] == [record.error for record in second.records]


def test_the_seed_is_that_of_the_first_run():
    all_runs = evaluate("adding", **TINY | {"methods": "cw", "runs": 2, "seed": 3})
    last = evaluate("adding", **TINY | {"methods": "cw", "runs": 1, "seed": 4})
    assert [record.run.seed for record in all_runs.records] == [3, 4]
    assert all_runs.records[1].error == last.records[0].error


@pytest.mark.usefixtures("without_page")
def test_resume_trains_nothing_twice(tmp_path, monkeypatch):
    first = evaluate("adding", out=tmp_path, command="mine", **TINY)
    assert first.store == tmp_path / "runs.sqlite"
    assert str(first).endswith(f"The page is {tmp_path / 'index.html'}")
    with pytest.raises(ArgumentError, match="4 runs already") as refused:
        evaluate("adding", out=tmp_path, **TINY)
    assert refused.value.argument == "out"
    trained = []
    train = training.train

    def remember(*arguments, **options):
        trained.append(arguments[0])
        return train(*arguments, **options)

    monkeypatch.setattr(training, "train", remember)
    again = evaluate("adding", out=tmp_path, resume=True, **TINY)
    assert trained == []
    assert [record.finished_at for record in again.records] == [record.finished_at for record in first.records]
    more = evaluate("adding", out=tmp_path, resume=True, **TINY | {"runs": 3})
    assert sorted(trained) == ["cw", "srn"]
    assert [row.runs for row in more.rows] == [3, 3]
    # other settings are other runs, and the store keeps both
    other = evaluate("adding", out=tmp_path, resume=True, **TINY | {"updates": 2, "methods": "cw"})
    assert len(trained) == 4
    assert [row.runs for row in other.rows] == [2]
    with Store.read(tmp_path) as store:
        assert store.command == "mine"
        assert len(store.records("adding")) == 8


@pytest.mark.usefixtures("without_page")
def test_the_data_of_a_store_are_those_of_the_runs(tmp_path):
    images = write_images(tmp_path / "images")
    options = TINY | {"lengths": None, "methods": "cw", "runs": 1, "sizes": 500}
    evaluate("sequential-mnist", images, out=tmp_path / "out", **options)
    evaluate("permuted-mnist", images, out=tmp_path / "out", resume=True, **options)
    with Store.read(tmp_path / "out") as store:
        for task in ("sequential-mnist", "permuted-mnist"):
            (record,) = store.records(task)
            assert store.load_all_data()[record.run.data].digest == record.run.digest
    # other images under the same name
    write_images(images, make_arrays(seed=5))
    with pytest.raises(ExperimentError, match="images of images"):
        evaluate("sequential-mnist", images, out=tmp_path / "out", resume=True, **options)


@pytest.mark.usefixtures("without_page")
def test_a_run_that_fails_is_reported_and_tried_again(tmp_path, monkeypatch):
    train = training.train

    def touchy(method, hidden, examples, measure_error, seed, settings, *, progress=None):
        if (method, seed) == ("srn", 1):
            raise ZeroDivisionError("seed 1 is not to my liking")
        return train(method, hidden, examples, measure_error, seed, settings, progress=progress)

    monkeypatch.setattr(training, "train", touchy)
    result = evaluate("adding", out=tmp_path, **TINY)
    (failure,) = result.failures
    assert "ZeroDivisionError: seed 1 is not to my liking" in failure.traceback
    assert [(row.method, row.runs, row.failed) for row in result.rows] == [("srn", 2, 1), ("cw", 2, 0)]
    # the error is that of the other run
    (other,) = [record for record in result.records if (record.run.method, record.run.seed) == ("srn", 0)]
    assert result.rows[0].error == other.error
    assert math.isnan(result.rows[0].deviation)
    assert result.to_dict()["failed"] == 1
    assert "0, 1" in str(result)
    before = finishing_times(tmp_path)
    monkeypatch.undo()
    monkeypatch.setattr(reproduction_result, "write_page", lambda store, folder: folder / "index.html")
    again = evaluate("adding", out=tmp_path, resume=True, **TINY)
    assert again.failures == ()
    after = finishing_times(tmp_path)
    assert [key for key in before if before[key] != after[key]] == [failure.key]


@pytest.mark.usefixtures("without_page")
def test_an_interrupted_evaluation_goes_on(tmp_path, monkeypatch):
    train, trained = training.train, []

    def remember(*arguments, **options):
        trained.append((arguments[0], arguments[4]))
        return train(*arguments, **options)

    def interrupt(report):
        if report.done == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(training, "train", remember)
    with pytest.raises(KeyboardInterrupt):
        evaluate("adding", out=tmp_path, progress=interrupt, **TINY)
    finished = finishing_times(tmp_path)
    assert len(finished) == 2
    trained.clear()
    result = evaluate("adding", out=tmp_path, resume=True, **TINY)
    assert len(trained) == 2
    assert finished.items() <= finishing_times(tmp_path).items()
    whole = evaluate("adding", **TINY)
    assert {record.key: record.error for record in result.records} == {
        record.key: record.error for record in whole.records
    }


@pytest.mark.parametrize(
    ("task", "options", "argument", "message"),
    [
        ("mnist", {}, "task", "expected one of adding, copy, sequential-mnist, .*, characters, got 'mnist'"),
        ("adding", {"methods": ["cw", "rnn"]}, "methods", "expected some of srn, lstm, cw, .*, mingru, got 'rnn'"),
        ("adding", {"methods": []}, "methods", "expected some of"),
        ("adding", {"sizes": 20}, "sizes", r"size must be at least \d+ parameters for a CW-RNN of 8 modules, got 20"),
        ("adding", {"sizes": 1, "methods": "lru"}, "sizes", "size must be at least"),
        ("adding", {"sizes": "70q"}, "sizes", "such as 10k,70k or 3M, got '70q'"),
        ("adding", {"sizes": []}, "sizes", "expected numbers of parameters, got none"),
        ("adding", {"sizes": [0]}, "sizes", "at least 1, got 0"),
        ("adding", {"sizes": 1.5}, "sizes", "expected an integer, got 1.5"),
        ("adding", {"sizes": 10**10}, "sizes", "at most"),
        ("adding", {"runs": 0}, "runs", "at least 1, got 0"),
        ("adding", {"runs": 100_000, "sizes": [1000, 2000, 3000]}, "runs", "at most 200000 runs in all"),
        ("adding", {"epochs": 0}, "epochs", "at least 1"),
        ("adding", {"updates": 0}, "updates", "at least 1"),
        ("adding", {"batch": 0}, "batch", "at least 1"),
        ("adding", {"batch": 10**9}, "batch", "at most 1000000"),
        ("adding", {"seed": -1}, "seed", "at least 0"),
        ("adding", {"learning_rate": {"gru": 1.0}}, "learning_rate", "expected methods among cw, got 'gru'"),
        ("adding", {"learning_rate": 0}, "learning_rate", "above 0, got 0"),
        ("adding", {"learning_rate": -1.0}, "learning_rate", "above 0, got -1"),
        ("adding", {"learning_rate": {"cw": math.nan}}, "learning_rate", "above 0, got nan"),
        ("adding", {"learning_rate": math.inf}, "learning_rate", "above 0, got inf"),
        ("adding", {"learning_rate": [0.1, 0.2]}, "learning_rate", "one number, or one for each method"),
        ("adding", {"learning_rate": {"cw": "fast"}}, "learning_rate", "one number, or .*, got 'fast'"),
        ("adding", {"periods": []}, "periods", "expected 1 to 1024 periods, got 0"),
        ("adding", {"periods": [0]}, "periods", "got 0"),
        ("adding", {"periods": [1, -1]}, "periods", "got -1"),
        ("adding", {"periods": [1.5]}, "periods", "1.5"),
        ("adding", {"periods": [2, 2]}, "periods", "expected different periods, got 2, 2"),
        ("adding", {"periods": "2,2"}, "periods", "'2,2'"),
        ("adding", {"periods": [2**41]}, "periods", "at most"),
        ("adding", {"periods": range(1, 1026)}, "periods", "expected 1 to 1024 periods, got 1025"),
        ("adding", {"periods": {"srn": [1]}}, "periods", "expected methods with clocks among cw, got 'srn'"),
        ("adding", {"methods": "srn", "periods": {"cw": [1]}}, "periods", "as no method has clocks"),
        ("adding", {"device": "tpu"}, "device", "expected cpu or cuda, got 'tpu'"),
        ("adding", {"device": "meta"}, "device", "expected cpu or cuda, got 'meta'"),
        ("adding", {"device": ""}, "device", "expected cpu or cuda"),
        ("adding", {"engine": "cloud"}, "engine", "expected one of local, dask, got 'cloud'"),
        ("adding", {"workers": 0}, "workers", "at least 1"),
        ("adding", {"data": "numbers.csv"}, "data", "adding makes its data: choose lengths, got 'numbers.csv'"),
        ("adding", {"data": make_copying(5)}, "data", "expected data of the sum of two marked numbers, got 'copy 5'"),
        ("adding", {"data": make_adding(9), "lengths": 9}, "lengths", "no data beside them"),
        ("adding", {"lengths": []}, "lengths", "expected at least one"),
        ("adding", {"lengths": [200, 3]}, "lengths", "at least 4, got 3"),
        ("adding", {"lengths": -5}, "lengths", "such as 200,1000, got '-5'"),
        ("adding", {"lengths": 20.5}, "lengths", "got '20.5'"),
        ("adding", {"lengths": 10**11}, "lengths", "at most"),
        ("copy", {"lengths": 0}, "lengths", "at least 1, got 0"),
        ("characters", {"lengths": 20}, "lengths", "the task characters takes none"),
        ("characters", {"methods": "esn"}, "methods", "esn cannot learn characters: its readout is fitted"),
        ("sequential-mnist", {}, "data", "needs the folder of the four idx files"),
        ("permuted-mnist", {"data": "nowhere", "lengths": 784}, "lengths", "the data decide them"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("untrained")
def test_an_argument_that_cannot_be_used_is_named_before_anything_is_trained(
    tmp_path, task, options, argument, message
):
    with pytest.raises(ArgumentError, match=message) as refused:
        evaluate(task, **{"methods": ["cw"], "out": tmp_path / "out", **options})
    assert refused.value.argument == argument
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("untrained")
def test_data_that_cannot_be_read_are_named_before_anything_is_trained(tmp_path):
    out = tmp_path / "out"
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.txt").write_text("a" * LEAST_LENGTH)
    (tmp_path / "short.txt").write_text("ab")
    (tmp_path / "bytes").write_bytes(b"\xff" * 100)
    for task, name, message in [
        ("sequential-mnist", "empty", "there is no file train-images-idx3-ubyte; expected the files"),
        ("permuted-mnist", "nowhere", "there is no such folder; expected the files"),
        ("sequential-mnist", "a.txt", "there is no such folder"),
        ("characters", "a.txt", "expected a text of 2 to 512 different characters, got 1"),
        ("characters", "short.txt", f"expected at least {LEAST_LENGTH} characters, got 2"),
        ("characters", "bytes", "the text is not UTF-8"),
        ("characters", "nowhere", "there is no such file"),
    ]:
        with pytest.raises(DataError, match=message) as refused:
            evaluate(task, tmp_path / name, methods="cw", out=out)
        assert str(tmp_path / name) in str(refused.value)
    assert not out.exists()


@pytest.mark.usefixtures("untrained")
def test_a_missing_gpu_is_named(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ArgumentError, match="torch finds no GPU on this machine, got 'cuda'"):
        evaluate("adding", device="cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ArgumentError, match="torch finds 1 GPUs on this machine, got 'cuda:1'"):
        evaluate("adding", device="cuda:1")
    assert evaluation.check_device("cuda:0") == "cuda:0"
    assert evaluation.check_device("cpu:0") == "cpu"


@pytest.mark.usefixtures("untrained")
def test_a_missing_package_is_named_with_its_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "reservoirpy", None)
    with pytest.raises(ImportError, match=r"the method esn needs reservoirpy: pip install 'cwrnn\[models\]'"):
        evaluate("adding", methods=["cw", "esn"], out=tmp_path / "out")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install 'cwrnn\[experiments\]'"):
        evaluate("adding", methods="cw", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_without_a_folder_no_package_for_pages_is_needed(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert len(evaluate("adding", **TINY | {"runs": 1, "methods": "cw"}).records) == 1


def test_rows_are_in_the_order_of_all_methods():
    result = evaluate("adding", **TINY | {"methods": ["mingru", "cw", "leaky"], "runs": 1, "updates": 1})
    assert [row.method for row in result.rows] == ["cw", "leaky", "mingru"]
    assert [row.method for row in summarise_evaluation(reversed(result.records))] == ["cw", "leaky", "mingru"]
    labels = [ALL_METHODS[name].label for name in ("cw", "leaky", "mingru")]
    text = str(result)
    assert sorted(labels, key=text.index) == labels
