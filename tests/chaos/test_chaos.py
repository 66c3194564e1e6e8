"""The guard `make chaos` notices what it looks for: lost, changed and repeated runs, and files left behind.

The library of faults kills a process, or fills its disk, at the operation that was chosen.
"""

import errno
import json
import shutil
import signal
import sqlite3
import subprocess
import sys
from dataclasses import replace

import pytest
from support import small_sweeps

from chaos import faults
from chaos.snapshot import check_kept, compare, take_snapshot
from chaos.table import format_markdown
from chaos.trial import Comparison, FaultQueue, Trial
from cwrnn.experiments.sweep.store_file import FILE

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux's /proc")


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweep")
    waves = [small_sweeps.wave()]
    small_sweeps.sweep(folder, waves, small_sweeps.plan(waves, methods=["srn"], sizes=[100], runs=2))
    (folder / "summary.json").write_text(json.dumps({"created": "today", "rows": [{"mean": 1.0, "seconds": 2.0}]}))
    return folder


@pytest.fixture
def copy(sweep, tmp_path):
    return shutil.copytree(sweep, tmp_path / "copy")


def change(folder, statement):
    connection = sqlite3.connect(folder / FILE)
    connection.execute("PRAGMA foreign_keys = ON")
    with connection:
        connection.execute(statement)
    connection.close()


def test_sweeps_that_differ_in_times_only_are_equal(sweep, copy):
    (copy / "summary.json").write_text('{"created": "later", "rows": [{"mean": 1.0, "seconds": 3.0}]}')
    assert compare(take_snapshot(sweep), take_snapshot(copy)) == []


def test_a_missing_run_is_noticed(sweep, copy):
    change(copy, "DELETE FROM runs WHERE seed = 1")
    (problem,) = compare(take_snapshot(sweep), take_snapshot(copy))
    assert problem.startswith("1 runs are missing")
    (problem,) = compare(take_snapshot(copy), take_snapshot(sweep))
    assert problem.startswith("1 runs are too many")
    (problem,) = check_kept(take_snapshot(sweep), take_snapshot(copy))
    assert problem.startswith("1 finished runs are lost")


def test_a_changed_bit_is_noticed(sweep):
    expected = take_snapshot(sweep)
    key, (values, arrays) = next(iter(expected.runs.items()))
    dtype, shape, data = arrays["curve"]
    changed = {**arrays, "curve": (dtype, shape, bytes([data[0] ^ 1]) + data[1:])}
    (problem,) = compare(expected, replace(expected, runs={**expected.runs, key: (values, changed)}))
    assert problem.startswith("1 runs have other contents")


def test_a_run_that_was_trained_again_is_noticed(sweep):
    before = take_snapshot(sweep)
    key = next(iter(before.finished))
    (problem,) = check_kept(before, replace(before, finished={**before.finished, key: "later"}))
    assert problem.startswith("1 finished runs were trained again")


def test_damage_is_noticed(copy):
    change(copy, "DELETE FROM arrays WHERE name = 'curve'")
    # the records have no longer their digests, so the store leaves them out
    with pytest.raises(ValueError, match="of which 0 can be read"):
        take_snapshot(copy)
    (copy / FILE).unlink()
    (copy / "index.html").write_text("<html> half of a pa")
    with pytest.raises(ValueError, match="index.html is cut off"):
        take_snapshot(copy)


def test_other_numbers_and_files_left_behind_are_noticed(sweep, copy):
    (copy / "summary.json").write_text('{"rows": [{"mean": 1.5}]}')
    (copy / ".left.part").write_text("half of a page")
    assert compare(take_snapshot(sweep), take_snapshot(copy)) == [
        "summary.json has other numbers",
        "files are left behind: ['.left.part']",
    ]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return faults.build_library(tmp_path_factory.mktemp("library")) or pytest.skip("there is no C compiler")


# makes a file, writes to it, reports the error of the write, and removes it
SCRIPT = """
import os, sys
file = os.open(sys.argv[1] + "/page", os.O_WRONLY | os.O_CREAT)
try:
    print(os.write(file, b"0123456789"), os.write(file, b"0123456789"))
except OSError as error:
    print(error.errno)
os.unlink(sys.argv[1] + "/page")
"""


@pytest.mark.parametrize(
    ("fault", "at", "code", "operation", "left"),
    [
        ("none", 0, 0, "", None),
        (faults.BEFORE, 1, -signal.SIGKILL, "create page", None),
        (faults.BEFORE, 2, -signal.SIGKILL, "write page", b""),
        (faults.BEFORE, 4, -signal.SIGKILL, "unlink page", b"01234567890123456789"),
        (faults.HALF, 1, -signal.SIGKILL, "write page", b"01234"),
        (faults.HALF, 3, -signal.SIGKILL, "write page", b"012345678901234"),
        (faults.FULL, 2, 0, "write page", None),
        # a removal needs no space
        (faults.FULL, 4, 0, "", None),
    ],
)
def test_a_fault_comes_at_its_operation(library, tmp_path, fault, at, code, operation, left):
    folder = tmp_path / "watched"
    folder.mkdir()
    environment = faults.plan_fault(library, folder, tmp_path / "count", fault, at)
    ended = subprocess.run(
        [sys.executable, "-S", "-c", SCRIPT, str(folder)], env=environment, capture_output=True, start_new_session=True
    )
    assert ended.returncode == code, ended.stderr
    count = faults.read_count(tmp_path / "count")
    assert (count.has_hit, count.operation) == (bool(operation), operation)
    assert (folder / "page").read_bytes() == left if left is not None else not (folder / "page").exists()
    if code == 0:
        assert count.operations == 4
        assert ended.stdout.split() == ([b"%d" % errno.ENOSPC] if at == 2 else [b"10", b"10"])


def test_a_fault_that_comes_too_late_is_made_again():
    queue = FaultQueue(["first", "second"], tries=1)
    assert queue.take() == "first"
    queue.put_back("first")
    assert [queue.take(), queue.take()] == ["second", "first"]
    queue.put_back("first")
    assert not queue.has_more()
    assert queue.take() is None


def test_the_table_counts_faults_and_names_problems():
    trials = [
        Trial("reproduce words", "Ctrl-C", "words-1", "training", "1.000 s"),
        Trial("reproduce words", "Ctrl-C", "words-2", "drawing", "2.000 s", problems=["a traceback"]),
    ]
    about = {"date": "today", "commit": "0", "machine": "Linux", "seed": 0, "minutes": 1.0}
    text = format_markdown(about, trials, [Comparison("reproduce words", "words-1", 2)], ["A note."])
    assert "| `reproduce words` | Ctrl-C | 2 | training 1, drawing 1 | 1 |" in text
    assert "| `reproduce words` | 1 | 2, 2 | 0 |" in text
    assert "* `reproduce words`, Ctrl-C at 2.000 s: a traceback (words-2)" in text
    assert "* A note." in text
