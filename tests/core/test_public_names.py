"""Every public name has a docstring with an example, and the version is the same everywhere."""

import re
from pathlib import Path

import pytest

import cwrnn

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", cwrnn.__all__)
def test_a_public_name_has_a_docstring_with_an_example(name):
    docstring = getattr(cwrnn, name).__doc__
    assert docstring.strip().splitlines()[0].endswith((".", ":"))
    assert ">>> " in docstring


def test_the_package_offers_its_public_names_and_modules_only():
    classes_and_functions = {
        name
        for name, value in vars(cwrnn).items()
        if getattr(value, "__module__", "").startswith("cwrnn") and not name.startswith("_")
    }
    assert classes_and_functions | {"init", "inspect"} == set(cwrnn.__all__)


def test_the_citation_has_the_version_of_the_package():
    assert re.findall(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE) == [cwrnn.__version__]
