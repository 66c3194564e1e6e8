"""The fuzzer sees every kind of failure, makes the same cases for the same seed, and its findings stay mended."""

import json
import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from fuzz.command import main
from fuzz.door import Door
from fuzz.doors.table import DOORS
from fuzz.findings import keep_finding, list_findings, read_finding
from fuzz.mutation import mutate_bytes, mutate_json, mutate_text
from fuzz.planted import digest_cases
from fuzz.shrinking import shrink
from fuzz.worker import Verdict
from hypothesis import given, settings
from hypothesis import strategies as st

TESTS = Path(__file__).parent.parent


def run_fuzz(*arguments, **environment):
    """Run a module of the fuzzer in a process of its own, because it forks."""
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path, **environment},
    )


def test_every_finding_stays_mended():
    result = run_fuzz("fuzz", "--replay", str(TESTS / "fuzz" / "findings"))
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.fixture(scope="module")
def planted():
    result = run_fuzz("fuzz.planted", PYTHONHASHSEED="1")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_every_kind_of_failure_is_seen(planted):
    assert planted["verdicts"] == {name: name.split()[0] for name in planted["verdicts"]}


def test_the_same_seed_makes_the_same_cases_in_every_process(planted):
    assert digest_cases() == planted["cases"]


def test_another_seed_makes_other_cases():
    door = DOORS["schedule-text"]
    assert [door.make_case(0, i) for i in range(9)] != [door.make_case(1, i) for i in range(9)]


def test_a_campaign_that_breaks_nothing_returns_0():
    result = run_fuzz("fuzz", "--seconds", "1", "--doors", "schedule-text", "--seed", "0")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "nothing broke" in result.stdout


@pytest.mark.parametrize("arguments", [("--doors", "window"), ("--replay", "nowhere"), ("--seconds", "x")])
def test_wrong_usage_returns_2(arguments):
    with pytest.raises(SystemExit, match="2"):
        main(arguments)


@pytest.mark.parametrize("size", [10, 5000])
def test_a_finding_is_read_as_it_was_kept(tmp_path, size):
    case = bytes(size) + b"\xff\n"
    path = keep_finding("sound", case, Verdict("crash", "signal 11"), tmp_path)
    assert path.name.startswith("crash-signal-11-")
    assert list(list_findings(tmp_path)) == [path]
    assert read_finding(path) == ("sound", case)


def test_every_finding_has_a_door():
    assert {read_finding(path)[0] for path in list_findings()} <= set(DOORS)


@given(st.binary(max_size=200), st.integers(0, 10))
def test_shrinking_keeps_the_failure(case, byte):
    case = case + bytes([byte])
    small = shrink(case, lambda tried: bytes([byte]) in tried)
    assert small == bytes([byte])


@settings(max_examples=30)
@given(st.randoms(use_true_random=False), st.binary(max_size=300), st.text(max_size=100))
def test_mutations_take_anything(random, data, text):
    assert isinstance(mutate_bytes(random, data, [b"other"]), bytes)
    assert isinstance(mutate_text(random, text), str)
    assert isinstance(mutate_json(random, text), str)


def test_a_time_of_day_is_mutated_although_it_has_no_keys():
    assert all(isinstance(mutate_json(Random(seed), "2026-11-16T17:30:00"), str) for seed in range(20))


def test_the_doors_have_names_entries_and_errors():
    assert all(
        isinstance(door, Door) and door.entry and (door.errors or name == "cache") for name, door in DOORS.items()
    )
