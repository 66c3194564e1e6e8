"""The networks that `tools/sanitize_gpu.py` runs under compute-sanitizer: they reach the programs that they are for."""

import importlib.util
from pathlib import Path

import pytest
from support import emulated_gpu

from cwrnn.backends import BACKENDS
from cwrnn.cells import CELLS
from cwrnn.kernels.gpu import scan, small, stepping

FILE = Path(__file__).parents[2] / "tools" / "sanitize_gpu.py"
CELL_NAMES = {"ClockworkLSTM": "lstm", "ClockworkGRU": "gru"}
H200 = 132, 227 * 1024
"""Its multiprocessors, and the bytes of shared memory that a block may have."""

emulated = pytest.mark.skipif(not emulated_gpu.has_compiler(), reason="the emulator needs g++ on x86-64")


@pytest.fixture
def tool():
    spec = importlib.util.spec_from_file_location("sanitize_gpu", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def emulator(monkeypatch):
    with emulated_gpu.emulating(large=False) as device:
        monkeypatch.setattr(stepping, "refuse_programs", lambda: None)
        monkeypatch.setitem(BACKENDS, "cuda", BACKENDS["cuda"]._replace(refuse=lambda device, dtype: None))
        yield device


def find_cell(network):
    return CELL_NAMES.get(network.layer.__name__, network.options.get("nonlinearity", "tanh"))


def choose_layout(network):
    products = 3 if network.dtype.itemsize == 4 and not network.tf32 else 1
    gates = CELLS[find_cell(network)].gates
    return scan.choose_layout(max(network.schedule.sizes), network.dtype.itemsize, products, gates)


def test_a_group_has_all_cells(tool):
    for networks in tool.NETWORKS.values():
        assert {find_cell(network) for network in networks} == set(CELLS)


def test_a_group_reaches_its_programs(tool):
    for network in tool.NETWORKS["small"]:
        assert small.takes(network.schedule, find_cell(network), network.dtype)
    for group in ("scanned", "spread"):
        for network in tool.NETWORKS[group]:
            assert not small.takes(network.schedule, find_cell(network), network.dtype)
            assert choose_layout(network).spread == (group == "spread")


def test_blocks_compute_several_tiles_by_turns(tool):
    *others, last = tool.NETWORKS["spread"]
    assert scan.is_vector(last.schedule, last.dtype.itemsize)

    def count_turns(network, backward):
        tiles = -(-network.batch // scan.SEQUENCES)
        return choose_layout(network).choose_turns(max(network.schedule.sizes), tiles, *H200, backward)

    assert [count_turns(last, backward) for backward in (False, True)] == [4, 4]
    assert {count_turns(network, True) for network in others} == {1}


@emulated
@pytest.mark.parametrize(("group", "program"), [("small", "run_small_backward"), ("steps", "compute_step")])
def test_right_results_are_called_right(tool, emulator, capsys, group, program):
    assert tool.check(group, tool.NETWORKS[group][0], "cpu", 3)
    assert program in {name for name, *_ in emulator.launched}
    assert capsys.readouterr().out.startswith(f"{group}: ClockworkRNN, (9, 20, 33) units, periods (1, 2, 5), float32: ")


@emulated
@pytest.mark.parametrize("value", [0.0, float("nan")])
def test_wrong_results_are_called_wrong(tool, emulator, monkeypatch, capsys, value):
    def run(layer, values):
        results = run_steps(layer, values)
        return results if layer.backend == "torch" else results | {"second step": results["second step"] * value}

    run_steps = tool.run_steps
    monkeypatch.setattr(tool, "run_steps", run)
    assert not tool.check("steps", tool.NETWORKS["steps"][0], "cpu", 3)
    assert "WRONG, second step off by" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"), [(["large"], "there is no group 'large'"), (["--length", "0"], "--length is 0")]
)
def test_wrong_arguments_are_refused(tool, monkeypatch, capsys, arguments, message):
    monkeypatch.setattr("sys.argv", ["sanitize_gpu.py", *arguments])
    with pytest.raises(SystemExit, match="2"):
        tool.main()
    assert message in capsys.readouterr().err
