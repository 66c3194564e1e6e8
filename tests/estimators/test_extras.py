"""Without their packages, the estimators name the extra that installs them."""

import subprocess
import sys

import pytest

import cwrnn.estimators


@pytest.mark.parametrize(("missing", "module", "message"), [
    ("sklearn", "cwrnn.estimators", "cwrnn.estimators needs sklearn: pip install 'cwrnn[estimators]'"),
    ("pandas", "cwrnn.estimators", "cwrnn.estimators needs pandas: pip install 'cwrnn[estimators]'"),
    ("sktime", "cwrnn.estimators.sktime", "cwrnn.estimators.sktime needs sktime: pip install 'cwrnn[sktime]'"),
])  # fmt: skip
def test_the_error_names_the_extra(missing, module, message):
    code = f"import sys; sys.modules[{missing!r}] = None; import cwrnn; import {module}"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stderr.rstrip().endswith(f"ImportError: {message}")


def test_public_names():
    for name in cwrnn.estimators.__all__:
        assert getattr(cwrnn.estimators, name).__doc__
    assert dir(cwrnn.estimators) == cwrnn.estimators.__all__
    with pytest.raises(AttributeError, match="has no attribute 'ClockworkTransformer'"):
        cwrnn.estimators.ClockworkTransformer  # noqa: B018
