"""What torch's own tests ask of every module (its test_modules and test_nn), asked of all layers."""

import copy
import gc
import io
import pickle
import weakref
from functools import partial

import pytest
import torch
from support.rnn_pairs import CLOCKWORK, LAYERS, B, I, N, T, randn
from torch import nn
from torch.nn.utils import clip_grad_norm_, parameters_to_vector, vector_to_parameters

from cwrnn import ClockworkGRU, ClockworkLSTM, ClockworkRNN, LearnedClockworkRNN

KINDS = LAYERS | {
    "modules": partial(ClockworkRNN, schedule=(1, 2, 4)),
    "modules of an LSTM": partial(ClockworkLSTM, schedule=(1, 2, 4), peepholes=True),
    "modules of a GRU": partial(ClockworkGRU, schedule=(1, 2, 4)),
    "learned": partial(LearnedClockworkRNN, modules=2),
}


@pytest.fixture(params=KINDS)
def kind(request):
    """Run the test with layers of torch and of this package."""
    return KINDS[request.param]


def output_of(layer, x):
    output, _ = layer(x)
    return output


def tensors_of(layer):
    return {**dict(layer.named_parameters()), **dict(layer.named_buffers())}


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_factory_arguments_reach_every_parameter_and_buffer(kind, device, dtype):
    layer = kind(I, 6, device=device, dtype=dtype)
    assert {parameter.dtype for parameter in layer.parameters()} == {dtype}
    for name, tensor in tensors_of(layer).items():
        assert tensor.device.type == device, name
        assert tensor.dtype == dtype or not tensor.is_floating_point(), name


def test_a_device_context_reaches_every_parameter_and_buffer(kind):
    with torch.device("meta"):
        layer = kind(I, 6)
    assert all(tensor.is_meta for tensor in tensors_of(layer).values())


@pytest.mark.parametrize("swap", [False, True], ids=["data", "swapped"])
def test_conversions_keep_the_outputs_and_the_identity_of_parameters(kind, close, swap):
    layer, x = kind(I, 6, dtype=torch.float64), randn(T, B, I)
    expected = output_of(layer, x).detach()
    names = [name for name, _ in layer.named_parameters()]
    identities = [id(parameter) for parameter in layer.parameters()]
    if swap and isinstance(layer, nn.RNNBase):
        pytest.skip("torch's layers keep weak references to their weights, which cannot be swapped")
    previous = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(swap)
    try:
        layer.to(torch.float32).to(torch.float64).to("cpu")
        layer.load_state_dict(layer.state_dict())
    finally:
        torch.__future__.set_swap_module_params_on_conversion(previous)
    torch.testing.assert_close(output_of(layer, x), expected, rtol=1e-5, atol=1e-5)
    assert [name for name, _ in layer.named_parameters()] == names
    assert [id(parameter) for parameter in layer.parameters()] == identities


def test_a_meta_layer_gets_memory_and_weights(kind):
    layer, x = kind(I, 6), randn(T, B, I, dtype=torch.float32)
    empty = kind(I, 6, device="meta").to_empty(device="cpu")
    empty.load_state_dict(layer.state_dict())
    assert torch.equal(output_of(empty, x), output_of(layer, x))
    assigned = kind(I, 6, device="meta")
    assigned.load_state_dict(layer.state_dict(), assign=True)
    assert torch.equal(output_of(assigned, x), output_of(layer, x))


@pytest.mark.parametrize("layer_class", CLOCKWORK.values())
def test_skipped_initialisation_can_be_made_up_for(layer_class):
    layer = nn.utils.skip_init(layer_class, I, 6, schedule=(1, 2, 4))
    layer.reset_parameters()
    assert output_of(layer, randn(T, B, I, dtype=torch.float32)).isfinite().all()
    by_gate = layer.weight_hh_l0.view(-1, 6, 6)
    assert by_gate[:, torch.from_numpy(~layer.schedule.mask())].count_nonzero() == 0


def test_assigned_parameters_are_those_of_the_state_dict_and_keep_their_values(kind):
    source, target, x = kind(I, 6), kind(I, 6), randn(T, B, I, dtype=torch.float32)
    with torch.no_grad():
        # weights from fast modules to slow ones do not exist; whatever a caller has written there stays
        source.weight_hh_l0.fill_(0.25)
    values = {name: value.clone() for name, value in source.named_parameters()}
    expected = output_of(source, x).detach()
    target.load_state_dict(source.state_dict(), assign=True)
    assert torch.equal(output_of(target, x), expected)
    assert torch.equal(output_of(source, x), expected)
    for name, parameter in source.named_parameters():
        assert torch.equal(parameter, values[name]), name


def test_pickled_and_copied_layers_compute_the_same(kind):
    layer, x = kind(I, 6), randn(T, B, I, dtype=torch.float32)
    expected = output_of(layer, x)
    buffer = io.BytesIO()
    torch.save(layer, buffer)
    buffer.seek(0)
    copies = [pickle.loads(pickle.dumps(layer)), copy.deepcopy(layer), torch.load(buffer, weights_only=False)]
    for duplicate in copies:
        assert torch.equal(output_of(duplicate, x), expected)
        assert repr(duplicate) == repr(layer)


def test_a_layer_is_freed_with_its_last_reference(kind):
    layer = kind(I, 6)
    output_of(layer, randn(T, B, I, dtype=torch.float32)).sum().backward()
    reference = weakref.ref(layer)
    del layer
    gc.collect()
    assert reference() is None


@pytest.mark.parametrize("strided", ["input", "gradient"])
def test_strided_tensors_give_the_same_gradients(kind, close, strided):
    layer = kind(I, 6, dtype=torch.float64)
    x, gradient = randn(T, B, I), randn(T, B, 6)

    def spread(tensor):
        return tensor.repeat_interleave(2, dim=-1)[..., ::2]

    def gradients(x, gradient):
        x = x.detach().requires_grad_()
        return torch.autograd.grad(output_of(layer, x), (x, *layer.parameters()), gradient, materialize_grads=True)

    expected = gradients(x, gradient)
    actual = gradients(spread(x), gradient) if strided == "input" else gradients(x, spread(gradient))
    for one, other in zip(actual, expected, strict=True):
        close(one, other)


def test_train_and_eval_compute_the_same_without_dropout(kind):
    layer, x = kind(I, 6), randn(T, B, I, dtype=torch.float32)
    assert torch.equal(output_of(layer.train(), x), output_of(layer.eval(), x))


def test_hooks_see_arguments_and_results(kind):
    layer, x = kind(I, 6), randn(T, B, I, dtype=torch.float32, requires_grad=True)
    seen = []
    layer.register_forward_pre_hook(lambda module, arguments, options: seen.append("before"), with_kwargs=True)
    layer.register_forward_hook(lambda module, arguments, result: seen.append(tuple(result[0].shape)))
    layer.register_full_backward_pre_hook(lambda module, gradients: seen.append("backward"))
    layer.register_full_backward_hook(lambda module, inputs, outputs: seen.append(tuple(inputs[0].shape)))
    output_of(layer, x).sum().backward()
    assert seen == ["before", (T, B, 6), "backward", (T, B, I)]


def test_a_layer_used_twice_sums_its_gradients(kind, close):
    layer, x = kind(6, 6, dtype=torch.float64), randn(T, B, 6)
    output_of(layer, output_of(layer, x)).sum().backward()
    first, second = copy.deepcopy(layer), copy.deepcopy(layer)
    first.zero_grad()
    second.zero_grad()
    output_of(second, output_of(first, x)).sum().backward()
    for shared, one, other in zip(layer.parameters(), first.parameters(), second.parameters(), strict=True):
        if shared.grad is not None:
            close(shared.grad, one.grad + other.grad)


def test_parameters_become_a_vector_and_return(kind, close):
    layer, x = kind(I, 6, dtype=torch.float64), randn(T, B, I)
    expected = output_of(layer, x).detach()
    vector = parameters_to_vector(layer.parameters()).detach()
    vector_to_parameters(torch.zeros_like(vector), layer.parameters())
    vector_to_parameters(vector, layer.parameters())
    close(output_of(layer, x), expected)


@pytest.mark.parametrize("foreach", [False, True])
def test_clipping_bounds_the_norm_of_all_gradients(kind, foreach):
    layer = kind(I, 6, dtype=torch.float64)
    (1000 * output_of(layer, randn(T, B, I))).sum().backward()
    clip_grad_norm_(layer.parameters(), 1.0, foreach=foreach)
    total = torch.stack([p.grad.norm() for p in layer.parameters() if p.grad is not None]).norm()
    torch.testing.assert_close(total.item(), 1.0, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "make_optimizer",
    [
        partial(torch.optim.SGD, lr=0.1, momentum=0.9, nesterov=True),
        partial(torch.optim.Adam, lr=0.01, fused=True),
        partial(torch.optim.AdamW, lr=0.01, foreach=True),
        partial(torch.optim.RMSprop, lr=0.01, centered=True),
        partial(torch.optim.Adagrad, lr=0.1),
        partial(torch.optim.LBFGS, lr=0.5, max_iter=3),
    ],
    ids=["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "LBFGS"],
)
def test_optimizers_lower_the_loss(kind, make_optimizer):
    layer, x = kind(I, 6, dtype=torch.float64), randn(T, B, I)
    target = 0.5 * randn(T, B, 6).tanh()
    optimizer = make_optimizer(layer.parameters())

    def closure():
        optimizer.zero_grad()
        loss = (output_of(layer, x) - target).square().mean()
        loss.backward()
        return loss

    first = closure().item()
    for _ in range(5):
        optimizer.step(closure)
    assert closure().item() < first


def test_averaged_models_average_the_weights(kind, close):
    first, x = kind(I, 6, dtype=torch.float64), randn(T, B, I)
    averaged = torch.optim.swa_utils.AveragedModel(first, use_buffers=True)
    averaged.update_parameters(first)
    expected = parameters_to_vector(first.parameters()).detach().clone()
    with torch.no_grad():
        for parameter in first.parameters():
            parameter.mul_(3)
    averaged.update_parameters(first)
    close(parameters_to_vector(averaged.module.parameters()), 2 * expected)
    assert output_of(averaged, x).isfinite().all()
    averaged.load_state_dict(averaged.state_dict())


def test_shared_memory_keeps_the_outputs(kind):
    layer, x = kind(I, 6), randn(T, B, I, dtype=torch.float32)
    expected = output_of(layer, x)
    assert all(parameter.is_shared() for parameter in layer.share_memory().parameters())
    assert torch.equal(output_of(layer, x), expected)


def test_apply_visits_the_layer_and_initialises_it(kind):
    layer, x = kind(I, 6), randn(T, B, I, dtype=torch.float32)

    def initialise(module):
        for name, parameter in module.named_parameters():
            if "weight_hh" in name:
                nn.init.orthogonal_(parameter)
            elif parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)

    layer.apply(initialise)
    assert output_of(layer, x).isfinite().all()


def test_zero_grad_and_requires_grad_act_on_all_parameters(kind):
    layer, x = kind(I, 6), randn(T, B, I, dtype=torch.float32)
    output_of(layer, x).sum().backward()
    layer.zero_grad()
    assert all(parameter.grad is None for parameter in layer.parameters())
    layer.requires_grad_(False)
    assert not output_of(layer, x).requires_grad


def test_state_dicts_have_one_prefix_per_level(kind):
    layer = kind(I, N + 1)
    stack = nn.ModuleDict({"inner": nn.ModuleList([layer])})
    state = stack.state_dict()
    assert {f"inner.0.{name}" for name, _ in layer.named_parameters()} <= state.keys()
    stack.load_state_dict(state, strict=True)


def test_a_missing_or_unknown_key_is_named(kind):
    layer = kind(I, 6)
    state = layer.state_dict()
    del state["weight_hh_l0"]
    with pytest.raises(RuntimeError, match=r"Missing key.*weight_hh_l0"):
        layer.load_state_dict(state)
    with pytest.raises(RuntimeError, match=r"Unexpected key.*other"):
        layer.load_state_dict(layer.state_dict() | {"other": torch.zeros(1)})
    assert layer.load_state_dict(state, strict=False).missing_keys == ["weight_hh_l0"]
