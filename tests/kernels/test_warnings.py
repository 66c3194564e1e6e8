"""The C files of the kernels and of the sanitizers' driver compile without a warning. `make sanitize` looks further."""

import shutil
import subprocess
import sys

import pytest
from sanitize.run import KERNELS, PLANTS, PRECISIONS, THRESHOLDS, WARNINGS, list_compilations

pytestmark = pytest.mark.skipif(
    shutil.which("gcc") is None or sys.platform != "linux", reason="needs Linux and gcc, whose warnings are meant"
)


def compile_files(*words):
    result = subprocess.run(["gcc", *WARNINGS, "-fsyntax-only", *words], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_the_kernels_compile_without_a_warning():
    for isa in (None, "baseline"):
        for words in list_compilations(isa):
            compile_files(*words)


@pytest.mark.parametrize("bits", PRECISIONS)
def test_the_driver_compiles_without_a_warning(bits):
    driver = KERNELS.parents[3] / "tests" / "sanitize" / "driver.c"
    compile_files(f"-I{KERNELS}", f"-DREAL={PRECISIONS[bits]}", f"-DREAL_BITS={bits}", driver)


def test_every_plant_and_threshold_names_one_place_in_the_code():
    places = [(plant.file, plant.old) for plant in PLANTS]
    places += [(file, old) for file, replacements in THRESHOLDS.items() for old, _ in replacements]
    assert [place for place in places if (KERNELS / place[0]).read_text().count(place[1]) != 1] == []
