"""On an emulated Cortex-M4F: which weights a step reads, and how many instructions it takes."""

import itertools

import numpy as np
import pytest
import torch

from cwrnn import ClockworkGRU, ClockworkLSTM, ClockworkRNN
from cwrnn.export.c import cost
from cwrnn.export.c.cost import load_emulator, measure_cost
from cwrnn.export.c.plan import plan_network
from cwrnn.export.model import read_model
from cwrnn.export.rivals import make_rivals
from cwrnn.network import Network


def collect_parts(plan):
    """Return the range of bytes of every part of every module, by (layer, module, text)."""
    parts = {}
    for module in plan.modules:
        ends = [4 * end for end in itertools.accumulate(part.values.size for part in module.parts)]
        for part, start, end in zip(module.parts, [0, *ends], ends, strict=False):
            parts[module.layer, module.number, part.text] = range(start, end, 4)
    return parts


def list_heard(schedule, i, t):
    """Return the modules that have ticked since the last tick of module i before its tick at t."""
    return [
        j
        for j in range(i, schedule.modules)
        if any(s % schedule.periods[j] == 0 for s in range(max(0, t - schedule.periods[i]), t))
    ]


@pytest.mark.parametrize(
    "network",
    [
        ClockworkRNN(13, 102, schedule=6),
        ClockworkRNN(2, 11, schedule="3:5,4:2,7:3,11:1"),
        ClockworkLSTM(3, 8, 2, schedule="1:4,2:2,4:2", peepholes=True),
        ClockworkGRU(2, 9, schedule="2:4,3:5"),
    ],
    ids=["tanh", "other periods", "lstm", "gru"],
)
@pytest.mark.parametrize("idle", [False, True], ids=["", "idle"])
def test_only_due_modules_are_read(network, idle, tmp_path):
    plan = plan_network(read_model(network))
    emulator = load_emulator(plan, tmp_path)
    arrays = {f"weights_{module.layer}_{module.number}": module for module in plan.modules}
    reads = set()
    emulator.watch_reads(arrays, lambda name, byte: reads.add((arrays[name].layer, arrays[name].number, byte)))
    state, input = (emulator.symbols[name].address for name in ("state", "input"))
    emulator.call("network_reset", state)
    parts = collect_parts(plan)
    schedule = network.schedule
    for t in range(70):
        reads.clear()
        if idle:
            emulator.call("network_idle", state)
            # everything is there: a second call has nothing to do
            before = set(reads)
            reads.clear()
            emulator.call("network_idle", state)
            assert not reads
            reads |= before
        emulator.call("network_step", state, input)
        assert {(layer, number) for layer, number, _ in reads} == {
            (layer + 1, i + 1) for layer in range(len(plan.model.layers)) for i in schedule.due(t)
        }
        for (layer, number, text), numbers in parts.items():
            # which biases a GRU or a chain of sums reads depends on its design
            if "biases" in text:
                continue
            read = {byte for byte in numbers if (layer, number, byte) in reads}
            is_due = t % schedule.periods[number - 1] == 0
            if "messages" in text:
                heard = [number - 1] if t == 0 else list_heard(schedule, number - 1, t)
                is_due = is_due and int(text.split()[-1]) - 1 in heard
            assert read == (set(numbers) if is_due else set()), (t, layer, number, text)


def test_instructions_stay_below_their_bars():
    model = read_model(Network(ClockworkRNN(13, 102, schedule=6), 25))
    rivals = make_rivals(model)
    own, dense, lstm = (
        measure_cost(network, "", count=True)
        for network in (model, rivals["RNN, same units"], rivals["LSTM, same parameters"])
    )
    assert (own.mean_multiply_adds, own.worst_multiply_adds) == (pytest.approx(1518.84, abs=0.01), 3060)
    assert (dense.units, dense.worst_multiply_adds, lstm.units) == (102, 11730, 41)
    assert own.mean_instructions <= 0.17 * dense.mean_instructions
    assert own.worst_instructions <= 0.36 * dense.worst_instructions
    assert own.mean_instructions <= 0.19 * lstm.mean_instructions
    assert own.code_bytes <= 1500
    assert own.state_bytes <= 2500


@pytest.mark.parametrize("schedule", ["1:3,2:4,2048:9", "3:6,5:4,512:6", "2:4,4:3,1024:2,4096:7"])
def test_the_worst_step_of_a_long_cycle_is_emulated(schedule, monkeypatch):
    torch.manual_seed(0)
    model = read_model(ClockworkRNN(2, 16, schedule=schedule))
    found = measure_cost(model, "", count=True).worst_instructions
    # the whole cycle
    monkeypatch.setattr(cost, "MOST_STEPS", 10_000)
    monkeypatch.setattr(cost, "count_worst_steps", lambda emulator, program: [0])
    assert found == measure_cost(model, "", count=True).worst_instructions


def test_idle_leaves_the_inputs_to_the_step(tmp_path):
    plan = plan_network(read_model(ClockworkRNN(13, 102, schedule=6)))
    emulator = load_emulator(plan, tmp_path)
    state, input = (emulator.symbols[name].address for name in ("state", "input"))
    counts = {False: [], True: []}
    for idle, found in counts.items():
        emulator.call("network_reset", state)
        for _ in range(33):
            if idle:
                emulator.call("network_idle", state)
            found.append(emulator.call("network_step", state, input).instructions)
    # 1,326 multiply-adds in place of 3,060
    assert max(counts[True]) < 0.6 * max(counts[False])


def test_instructions_are_counted_one_by_one(tmp_path):
    emulator = load_emulator(plan_network(read_model(ClockworkLSTM(3, 7, schedule=[1, 2]))), tmp_path)
    steps = []
    emulator._cpu.hook_add(emulator._unicorn.UC_HOOK_CODE, lambda cpu, address, size, data: steps.append(address))
    state, input = (emulator.symbols[name].address for name in ("state", "input"))
    emulator.call("network_reset", state)
    steps.clear()
    assert emulator.call("network_step", state, input).instructions == len(steps) > 1000


def test_an_emulated_program_computes(tmp_path, close):
    torch.manual_seed(3)
    layer = ClockworkRNN(2, 6, schedule=[1, 2])
    emulator = load_emulator(plan_network(read_model(layer)), tmp_path)
    state, input, output = (emulator.symbols[name].address for name in ("state", "input", "output"))
    emulator.call("network_reset", state)
    emulator.write("input", np.array([0.5, -1.0], np.float32))
    emulator.call("network_step", state, input)
    emulator.call("network_output", state, output)
    with torch.no_grad():
        expected = layer(torch.tensor([[[0.5, -1.0]]]))[0][0, 0]
    close(torch.from_numpy(emulator.read("output").copy()), expected)
