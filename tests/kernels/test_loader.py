"""The compiled library: the choice of an instruction set, and the reasons not to call it."""

import pytest
import torch
from support.python_processes import run_python

from cwrnn import ClockworkRNN
from cwrnn.backends import BACKENDS, select_backend
from cwrnn.kernels.cpu import loader

pytestmark = pytest.mark.skipif(loader.current_isa() is None, reason="the kernel was not built")

ISAS = loader.executable_isas()
DTYPES = [torch.float32, torch.float64]


def test_environment_forces_an_instruction_set(monkeypatch):
    code = "from cwrnn.kernels.cpu import loader; print(loader.current_isa())"
    assert run_python(code, CWRNN_CPU_ISA=ISAS[-1]).stdout.strip() == ISAS[-1]
    usual = loader.current_isa()
    for isa in (*ISAS[:-1], ""):
        monkeypatch.setenv("CWRNN_CPU_ISA", isa)
        loader._load()
        assert loader.current_isa() == (isa or ISAS[0])
    monkeypatch.setenv("CWRNN_CPU_ISA", "avx1024")
    with pytest.warns(RuntimeWarning, match="CWRNN_CPU_ISA=avx1024 is ignored: the CPU kernel cannot use 'avx1024' he"):
        loader._load()
    assert loader.current_isa() == ISAS[0]
    loader.use_isa(usual)


def test_a_library_that_cannot_be_called_is_refused_with_the_reason(monkeypatch, tmp_path):
    built = loader.LIBRARY
    monkeypatch.setattr(loader._Loaded, "missing", None)
    monkeypatch.setattr(loader._Loaded, "library", loader._Loaded.library)
    monkeypatch.setattr(loader, "LIBRARY", tmp_path / "libcpu.so")
    loader._load()
    assert select_backend("auto", torch.device("cpu"), torch.float32).name == "torch"
    with pytest.raises(RuntimeError, match="its compiled part is missing: the package was installed without a"):
        ClockworkRNN(2, 4, backend="cpu")(torch.randn(3, 1, 2))
    monkeypatch.setattr(loader, "LIBRARY", built)
    monkeypatch.setattr(loader, "ABI", loader.ABI + 1)
    loader._load()
    with pytest.raises(RuntimeError, match="its compiled part is that of another version: install the package again"):
        ClockworkRNN(2, 4, backend="cpu")(torch.randn(3, 1, 2))
    monkeypatch.setattr(loader, "LIBRARY", tmp_path / "libcpu.so")
    loader.LIBRARY.write_bytes(b"not a library")
    loader._load()
    with pytest.raises(RuntimeError, match="its compiled part cannot be loaded"), torch.no_grad():
        ClockworkRNN(2, 4, backend="cpu")(torch.randn(3, 1, 2))


def test_auto_takes_the_cpu_kernel_for_float32_and_float64_and_half_precision():
    device = torch.device("cpu")
    for dtype in (*DTYPES, torch.bfloat16, torch.float16):
        assert select_backend("auto", device, dtype).name == "cpu"
    assert select_backend("auto", device, torch.float8_e4m3fn).name == "torch"
    with pytest.raises(RuntimeError, match=r"cannot run on cpu with torch.float8_e4m3fn: it takes float32 and float64"):
        select_backend("cpu", device, torch.float8_e4m3fn)
    assert BACKENDS["cpu"].refuse(torch.device("cuda"), torch.float32) == "it runs on the CPU only"
