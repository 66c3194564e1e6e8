"""Without their packages, the estimators name the extra that installs them."""

import pytest
from support.python_processes import run_python

import cwrnn.estimators

ERRORS = {
    ("sklearn", "cwrnn.estimators"): "cwrnn.estimators needs sklearn: pip install 'cwrnn[estimators]'",
    ("pandas", "cwrnn.estimators"): "cwrnn.estimators needs pandas: pip install 'cwrnn[estimators]'",
    ("sktime", "cwrnn.estimators.sktime"): "cwrnn.estimators.sktime needs sktime: pip install 'cwrnn[sktime]'",
    ("aeon", "cwrnn.estimators.aeon"): "cwrnn.estimators.aeon needs aeon: pip install 'cwrnn[aeon]'",
}
"""The error of importing a module without a package."""

IMPORT_WITHOUT = f"""
import importlib, sys
import cwrnn
for package, module in {list(ERRORS)}:
    sys.modules[package] = None
    try:
        importlib.import_module(module)
    except ImportError as error:
        print(error)
    del sys.modules[package]
"""


def test_the_error_names_the_extra():
    result = run_python(IMPORT_WITHOUT)
    assert (result.stdout.splitlines(), result.stderr) == (list(ERRORS.values()), "")


def test_public_names():
    for name in cwrnn.estimators.__all__:
        assert getattr(cwrnn.estimators, name).__doc__
    assert dir(cwrnn.estimators) == cwrnn.estimators.__all__
    with pytest.raises(AttributeError, match="has no attribute 'ClockworkTransformer'"):
        cwrnn.estimators.ClockworkTransformer  # noqa: B018
