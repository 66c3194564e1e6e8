"""A sweep that is killed loses no finished run: SIGKILL at random moments, two processes at once, Ctrl-C.

Run as a script, this file imports everything once and then forks a process for every command that it is asked to run:
a process that imports torch takes seconds to start.
"""

import contextlib
import importlib
import io
import json
import os
import random
import signal
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

KILLS = 10
OPTIONS = ["--data", "bundle", "--length", "20", "--epochs", "3", "--runs", "1", "--methods", "srn,cw"]
ARGUMENTS = ["reproduce", "generation", *OPTIONS, "--sizes", ",".join(map(str, range(100, 340, 20)))]
BATCHES = 2 * 12
RUNS = 5 * BATCHES
HERE = [*ARGUMENTS, "--workers", "1", "--resume"]


def run(arguments, calls, path):
    """Run the command, and kill it at the `calls`-th call or return of a function after it opened the store.

    A command that is not killed writes its exit code, its errors, and the number of calls until each batch was added.
    """
    import warnings

    from cwrnn.commands import app
    from cwrnn.experiments import reproduction_result
    from cwrnn.experiments.sweep.store import Store

    warnings.simplefilter("error")
    # no page is written: it takes long, and needs nothing but the store
    reproduction_result.write_page = lambda store, folder: folder
    count = 0
    batches = []

    def profile(frame, event, argument):
        nonlocal count
        count += count > 0 or frame.f_code is Store.open.__func__.__code__
        if count == calls > 0:
            os.kill(os.getpid(), signal.SIGKILL)
        if event == "return" and frame.f_code is Store.add.__code__:
            batches.append(count)

    errors = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
        sys.setprofile(profile)
        code = app.run(arguments)
        sys.setprofile(None)
    Path(path).write_text(json.dumps({"code": code, "batches": batches, "errors": errors.getvalue()}))


def serve():
    """Read lines of jobs. Run the jobs of a line at once, each in its own process, and print their exit codes."""
    for module in ("cwrnn.commands.app", "jinja2", "matplotlib"):
        importlib.import_module(module)

    for line in sys.stdin:
        processes = []
        for job in json.loads(line):
            process = os.fork()
            if process == 0:
                try:
                    run(**job)
                except BaseException:
                    traceback.print_exc()
                    os._exit(1)
                os._exit(0)
            processes.append(process)
        codes = [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in processes]
        print(json.dumps(codes), flush=True)


@pytest.fixture(scope="module")
def commands():
    """A function that runs commands at once: (arguments, the call at which it is killed, the file that it writes)."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "error", __file__]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:

        def run(*jobs):
            named = [dict(zip(("arguments", "calls", "path"), job, strict=True)) for job in jobs]
            process.stdin.write(json.dumps(named, default=str) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        yield run
        process.stdin.close()


@pytest.fixture(scope="module")
def undisturbed(commands, tmp_path_factory):
    """The contents of the store of an undisturbed sweep, and the number of calls until each batch was stored."""
    from support import small_sweeps

    folder = tmp_path_factory.mktemp("undisturbed")
    assert commands(([*HERE, "--out", folder], 0, folder / "end.json")) == [0]
    end = json.loads((folder / "end.json").read_text())
    assert end["code"] == 0, end["errors"]
    contents = small_sweeps.contents(folder)
    assert len(contents[0]) == RUNS
    assert len(end["batches"]) == BATCHES
    return contents, end["batches"]


def test_a_sweep_killed_again_and_again_loses_no_finished_run(commands, undisturbed, tmp_path):
    from support import small_sweeps

    expected, batches = undisturbed
    chance = random.Random(0)
    finished = {}
    for kill in range(KILLS):
        # some kills come before the first batch is stored; the others come early enough to leave batches for the last
        moment = chance.randrange(1, batches[0]) if kill % 4 == 0 else chance.randrange(batches[0], batches[2])
        assert commands(([*HERE, "--out", tmp_path], moment, tmp_path / "end.json")) == [-signal.SIGKILL]
        # finished runs are neither lost nor repeated
        now = small_sweeps.times(tmp_path)
        assert {key: now[key] for key in finished} == finished
        finished = now
    assert 0 < len(finished) < RUNS
    assert commands(([*HERE, "--out", tmp_path], 0, tmp_path / "end.json")) == [0]
    assert json.loads((tmp_path / "end.json").read_text())["code"] == 0
    assert small_sweeps.contents(tmp_path) == expected
    now = small_sweeps.times(tmp_path)
    assert {key: now[key] for key in finished} == finished


def test_two_processes_share_a_store(commands, undisturbed, tmp_path):
    from support import small_sweeps

    jobs = [([*HERE, "--out", tmp_path], 0, tmp_path / f"end{place}.json") for place in range(2)]
    assert commands(*jobs) == [0, 0]
    for place in range(2):
        end = json.loads((tmp_path / f"end{place}.json").read_text())
        assert end["code"] == 0, end["errors"]
    assert small_sweeps.contents(tmp_path) == undisturbed[0]


@pytest.mark.parametrize("kill", [signal.SIGINT, signal.SIGKILL])
def test_a_killed_command_leaves_no_workers_and_whole_records(commands, undisturbed, tmp_path, kill):
    """Ctrl-C reaches all processes of a terminal, SIGKILL only one; no process is left in either case."""
    from support import small_sweeps

    command = [sys.executable, "-W", "error", "-m", "cwrnn", *ARGUMENTS, "--workers", "2", "--out", tmp_path]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        # wait until the first batch is stored
        next(line for line in process.stderr if "%" in line)
        (os.killpg if kill == signal.SIGINT else os.kill)(process.pid, kill)
        # the workers hold the pipe as well, so it ends with the last of them
        rest = process.stderr.read()
    assert process.returncode == (130 if kill == signal.SIGINT else -kill)
    if kill == signal.SIGINT:
        assert "Traceback" not in rest
        assert "To go on:" in rest
        assert rest.splitlines()[-1].strip().endswith(f"--out {tmp_path} --resume")
    finished = small_sweeps.times(tmp_path)
    assert 0 < len(finished) < RUNS
    assert commands(([*HERE, "--out", tmp_path], 0, tmp_path / "end.json")) == [0]
    assert small_sweeps.contents(tmp_path) == undisturbed[0]
    now = small_sweeps.times(tmp_path)
    assert {key: now[key] for key in finished} == finished


if __name__ == "__main__":
    serve()
