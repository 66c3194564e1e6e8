"""State dicts: the schedule is kept with the weights, and the caller's tensors stay as they are."""

import copy
import io
from itertools import permutations

import pytest
import torch
from support.rnn_pairs import CLOCKWORK, TORCHS, make_pair
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.utils import parametrizations, prune

from cwrnn import LearnedClockworkRNN, Readout, Schedule
from cwrnn.inspection import count_operations

OLD, OTHER = Schedule((1, 2), (4, 5)), Schedule((1, 4), (4, 5))


def make(schedule=OLD, kind="RNN", **options):
    return CLOCKWORK[kind](3, 9, schedule=schedule, **options)


def without_schedule(state):
    """The state_dict as earlier versions saved it."""
    return {name: value for name, value in state.items() if not name.endswith("_extra_state")}


def test_weights_of_other_clocks_are_refused_and_both_schedules_are_named(kind):
    rnn = make(OTHER, kind)
    before = copy.deepcopy(dict(rnn.named_parameters()))
    with pytest.raises(RuntimeError, match=r'mismatch for "_extra_state".* schedule 1:4,2:5, .* schedule 1:4,4:5'):
        rnn.load_state_dict(make(kind=kind).state_dict())
    for name, parameter in rnn.named_parameters():
        assert torch.equal(parameter, before[name])


@pytest.mark.parametrize("strict", [True, False])
def test_every_layer_of_a_model_reports_its_own_mismatch(strict):
    model = nn.Sequential(make(OTHER), nn.ModuleDict({"a": make(), "b": make(OTHER)}), Readout(9, 1))
    state = nn.Sequential(make(), nn.ModuleDict({"a": make(), "b": make()}), Readout(9, 1)).state_dict()
    with pytest.raises(RuntimeError) as error:
        model.load_state_dict(state, strict=strict)
    assert [f'"{name}_extra_state"' in str(error.value) for name in ("0.", "1.a.", "1.b.")] == [True, False, True]


def test_weights_of_other_clocks_load_where_their_schedule_is_removed():
    old, rnn = make(), make(OTHER)
    rnn.load_state_dict(without_schedule(old.state_dict()))
    assert torch.equal(rnn.weight_hh_l0, old.weight_hh_l0)


@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}, {"bias": False}], ids=str)
def test_state_dicts_of_earlier_versions_load(options):
    old, rnn = make(**options), make(**options)
    result = rnn.load_state_dict(without_schedule(old.state_dict()), strict=True)
    assert (result.missing_keys, result.unexpected_keys) == ([], [])
    x = torch.randn(7, 2, 3)
    assert torch.equal(rnn(x)[0], old(x)[0])


def average_in_place(value):
    average = value.clone()
    for _ in range(2000):
        average.mul_(0.999).add_(value, alpha=0.001)
    return average.lerp_(value, 0.1)


@pytest.mark.parametrize(
    "change",
    [
        lambda state: {name: (value + value) / 2 for name, value in state.items()},
        lambda state: {name: 0.9 * value + 0.1 * value for name, value in state.items()},
        lambda state: {name: torch.stack([value, value]).mean(0) for name, value in state.items()},
        lambda state: {name: average_in_place(value) for name, value in state.items()},
        lambda state: {name: value.bfloat16() for name, value in state.items()},
        lambda state: {name: value.to("meta") if "extra" in name else value for name, value in state.items()},
    ],
    ids=["averaged", "moving average", "mean", "moving average in place", "bfloat16", "meta"],
)
def test_a_schedule_that_was_averaged_or_cast_with_the_weights_is_recognised(change):
    schedule = Schedule((1, 3, 1000), (2, 3, 4))
    make(schedule).load_state_dict(change(make(schedule).state_dict()))


@pytest.mark.parametrize(
    "stored",
    [
        "1:4,2:5",
        None,
        torch.zeros(0),
        torch.zeros(2, 0),
        torch.tensor([[1, 2]]),
        torch.tensor([[0, -1], [1, 1]]),
        torch.full((2, 2), torch.nan),
        torch.ones(2, 2, dtype=torch.complex64),
        torch.ones(2, 2).to_sparse(),
    ],
    ids=str,
)
def test_an_unreadable_schedule_is_refused(stored):
    with pytest.raises(RuntimeError, match="saved with the schedule unreadable: "):
        make().load_state_dict(make().state_dict() | {"_extra_state": stored})


def test_the_truth_of_every_number_is_no_schedule():
    with pytest.raises(RuntimeError, match="schedule mismatch"):
        make().load_state_dict(make().state_dict() | {"_extra_state": torch.ones(2, 2, dtype=torch.bool)})


def test_fake_tensors_load():
    with FakeTensorMode():
        rnn = make()
        rnn.load_state_dict(rnn.state_dict())
        assert rnn(torch.randn(7, 2, 3))[0].shape == (7, 2, 9)


def test_a_state_dict_has_the_schedule_as_a_tensor_and_the_layer_has_no_buffer():
    with torch.device("meta"):
        rnn = make()
        state = rnn.state_dict()
    assert state["_extra_state"].tolist() == [[1, 2], [4, 5]]
    assert list(rnn.buffers()) == []


def test_a_layer_on_the_meta_device_gets_the_weights_that_are_assigned():
    rnn, old = make(device="meta"), make()
    rnn.load_state_dict(old.state_dict(), assign=True)
    x = torch.randn(7, 2, 3)
    assert torch.equal(rnn(x)[0], old(x)[0])
    empty = make(device="meta").to_empty(device="cpu")
    empty.load_state_dict(old.state_dict())
    assert torch.equal(empty(x)[0], old(x)[0])


def test_assigning_does_not_write_into_the_callers_tensors(kind):
    dense, rnn = make(1, kind), make([1, 2, 4], kind)
    state = without_schedule(dense.state_dict())
    x = torch.randn(7, 2, 3)
    expected, before = dense(x)[0], copy.deepcopy(state)
    with pytest.warns(UserWarning, match="loaded as zeros"):
        rnn.load_state_dict(state, assign=True)
    assert torch.equal(dense(x)[0], expected)
    assert all(torch.equal(state[name], before[name]) for name in before)
    assert (rnn.weight_hh_l0.view(-1, 9, 9)[:, torch.from_numpy(~rnn.schedule.mask())] == 0).all()
    # the weights that need no change are those of the caller, as assigning promises
    assert rnn.weight_ih_l0.data_ptr() == dense.weight_ih_l0.data_ptr()
    same = make([1, 2, 4], kind)
    same.load_state_dict(rnn.state_dict(), assign=True)
    assert same.weight_hh_l0.data_ptr() == rnn.weight_hh_l0.data_ptr()


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated:FutureWarning")
@pytest.mark.parametrize("normalise", [nn.utils.weight_norm, parametrizations.weight_norm, prune.identity])
def test_a_normalised_or_pruned_layer_loads_its_state_dict(normalise, kind):
    rnn, other = make(kind=kind), make(kind=kind)
    for layer in (rnn, other):
        normalise(layer, "weight_hh_l0")
    x = torch.randn(7, 2, 3)
    assert not torch.equal(other(x)[0], rnn(x)[0])
    other.load_state_dict(rnn.state_dict())
    assert torch.equal(other(x)[0], rnn(x)[0])


@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}, {"bias": False}], ids=str)
@pytest.mark.parametrize("kind", ["RNN", "relu", "LSTM", "GRU"])
def test_the_state_dict_of_torchs_layer_loads_into_one_module_of_period_1(options, close, kind):
    options = {"dtype": torch.float32} | options | ({"nonlinearity": "relu"} if kind == "relu" else {})
    rnn, converted = make_pair(3, 9, kind=kind, **options)
    kind = kind if kind in CLOCKWORK else "RNN"
    ours = make(1, kind, **options)
    state = rnn.state_dict()
    names = list(state)
    result = ours.load_state_dict(state, strict=True)
    assert (result.missing_keys, result.unexpected_keys) == ([], [])
    assert list(state) == names
    x = torch.randn(7, 2, 3)
    close(ours(x)[0], rnn(x)[0])
    assigned = make(1, kind, **options)
    assigned.load_state_dict(state, assign=True)
    close(assigned(x)[0], rnn(x)[0])
    close(converted(x)[0], rnn(x)[0])
    assert converted.state_dict().keys() == ours.state_dict().keys()


def test_the_state_dict_of_torchs_layer_is_refused_by_other_clocks(kind):
    theirs = TORCHS[kind](3, 9)
    model, other = nn.Sequential(theirs), nn.Sequential(make(OTHER, kind))
    with pytest.raises(RuntimeError, match=rf'for "0.bias_ih_l0": .* torch.nn.{kind}, .* schedule 1:4,4:5'):
        other.load_state_dict(model.state_dict())
    with pytest.raises(RuntimeError, match=rf"torch.nn.{kind}, .* schedule 1:4,4:5"):
        make(OTHER, kind, bias=False).load_state_dict(theirs.state_dict())
    with pytest.raises(RuntimeError, match='Unexpected key.*"bias_ih_l0", "bias_hh_l0"'):
        make(1, kind, bias=False).load_state_dict(theirs.state_dict())


def test_half_of_torchs_biases_is_refused(kind):
    state = TORCHS[kind](3, 9).state_dict()
    del state["bias_hh_l0"]
    with pytest.raises(RuntimeError, match=r'Missing key\(s\) in state_dict: "bias_l0"'):
        make(1, kind).load_state_dict(state)


@pytest.mark.parametrize(("theirs", "ours"), [*permutations(CLOCKWORK, 2)])
def test_the_weights_of_another_cell_are_refused(theirs, ours):
    with pytest.raises(RuntimeError, match="size mismatch for weight_ih_l0"):
        make(1, ours).load_state_dict(TORCHS[theirs](3, 9).state_dict())
    with pytest.raises(RuntimeError, match="size mismatch for weight_ih_l0"):
        make(OLD, ours).load_state_dict(make(OLD, theirs).state_dict())


def test_a_saved_state_dict_keeps_the_schedule():
    file = io.BytesIO()
    torch.save(make().state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    make().load_state_dict(state)
    with pytest.raises(RuntimeError, match="schedule mismatch"):
        make(OTHER).load_state_dict(state)


def test_a_model_in_a_safetensors_file_keeps_the_schedule(tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    old, rnn = make(), make()
    safetensors.save_model(old, str(tmp_path / "model"))
    assert safetensors.load_model(rnn, str(tmp_path / "model")) == (set(), [])
    assert torch.equal(rnn.weight_hh_l0, old.weight_hh_l0)
    with pytest.raises(RuntimeError, match="schedule mismatch"):
        safetensors.load_model(make(OTHER), str(tmp_path / "model"))


def test_a_learned_layer_keeps_the_sizes_of_its_modules():
    old = LearnedClockworkRNN(3, 9, modules=[4, 5], candidates=4)
    same = LearnedClockworkRNN(3, 9, modules=[4, 5], candidates=4)
    same.load_state_dict(old.state_dict())
    same.load_state_dict(without_schedule(old.state_dict()))
    assert torch.equal(same.clocks, old.clocks)
    other = LearnedClockworkRNN(3, 9, modules=[5, 4], candidates=4)
    with pytest.raises(RuntimeError, match=r"modules of the sizes \[4, 5\], .* sizes \[5, 4\]"):
        other.load_state_dict(old.state_dict())
    with pytest.raises(RuntimeError, match="saved with modules of the sizes 'text'"):
        other.load_state_dict(old.state_dict() | {"_extra_state": "text"})
    with pytest.raises(RuntimeError, match="saved with modules of the sizes tensor.*meta"):
        other.load_state_dict(old.state_dict() | {"_extra_state": torch.zeros(1, 3, device="meta")})


def test_an_averaged_model_computes_and_loads():
    rnn = make()
    average = torch.optim.swa_utils.AveragedModel(rnn)
    average.update_parameters(rnn)
    x = torch.randn(7, 2, 3)
    assert torch.equal(average(x)[0], rnn(x)[0])
    torch.optim.swa_utils.AveragedModel(make()).load_state_dict(average.state_dict())
    with pytest.raises(RuntimeError, match='mismatch for "module._extra_state"'):
        torch.optim.swa_utils.AveragedModel(make(OTHER)).load_state_dict(average.state_dict())


@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}, {"bias": False}], ids=str)
@pytest.mark.parametrize(("kind", "peepholes"), [("RNN", False), ("LSTM", False), ("LSTM", True), ("GRU", False)])
def test_counted_parameters_are_those_that_get_a_gradient(options, kind, peepholes):
    options = options | ({"peepholes": True} if peepholes else {})
    rnn = make([1, 2, 4], kind, **options)
    rnn(torch.randn(9, 2, 3))[0].square().sum().backward()
    assert rnn.count_parameters() == sum(int(p.grad.count_nonzero()) for p in rnn.parameters())
    if rnn.num_layers == 1:
        cell = {"cell": rnn.cell, "peepholes": peepholes, "bias": rnn.bias}
        assert count_operations(rnn.schedule, 3, 0, **cell).parameters.sum() == rnn.count_parameters()
        readout = Readout(9, 2, bias=False)
        total = rnn.count_parameters() + readout.weight.numel()
        assert count_operations(rnn.schedule, 3, 2, **cell).parameters.sum() == total


@pytest.mark.parametrize("several", [False, True])
def test_a_pruned_share_counts_the_weights_that_exist(several):
    """Pruning by size takes the zeros of weights that do not exist first, unless a mask excludes them."""
    rnn = make([1, 2, 4])
    exists = torch.from_numpy(rnn.schedule.mask())
    naive = copy.deepcopy(rnn)
    prune.l1_unstructured(naive, "weight_hh_l0", amount=1 / 3)
    assert torch.equal(naive.weight_hh_l0, rnn.weight_hh_l0)
    prune.custom_from_mask(rnn, "weight_hh_l0", exists)
    if several:
        prune.global_unstructured([(rnn, "weight_hh_l0")], prune.L1Unstructured, amount=0.5)
    else:
        prune.l1_unstructured(rnn, "weight_hh_l0", amount=0.5)
    assert int(rnn.weight_hh_l0.count_nonzero()) == int(exists.sum()) // 2
