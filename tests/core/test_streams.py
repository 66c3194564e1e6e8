"""StreamPool: each of its streams equals the same stream alone, whatever the others do."""

import copy
import io
import pickle
from threading import Thread

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.network_cases import USABLE
from support.rnn_pairs import CLOCKWORK, MAKERS, is_lstm, join
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from cwrnn import LearnedClockworkRNN, LSTMState, Schedule, State, StreamPool
from cwrnn.kernels.cpu import slots
from cwrnn.kernels.cpu.stepping import FIELD_PACKED
from cwrnn.streams import _PlainMemory


def make(maker="tanh", **options):
    return MAKERS[maker](2, 9, **({"schedule": (1, 2, 3), "dtype": torch.float64} | options)).eval()


def randn(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def make_state(layer, h, t):
    return LSTMState(h, h.flip(-1), t) if is_lstm(layer) else State(h, t)


class Alone:
    """The same streams, each stepped by its layer alone."""

    def __init__(self, layer):
        self.layer = layer
        self.states = {}

    @torch.no_grad()
    def step(self, keys, x):
        outputs = []
        for key, own in zip(keys, x, strict=True):
            y, self.states[key] = self.layer.step(own, self.states[key])
            outputs.append(y)
        return torch.stack(outputs) if outputs else x.new_zeros(0, self.layer.hidden_size)


actions = st.lists(st.tuples(st.sampled_from(["open", "resume", "close", "step", "weights"]), st.integers(0, 10**6)),
                   min_size=5, max_size=40)  # fmt: skip


@pytest.mark.parametrize("backend", USABLE)
@settings(max_examples=25)
@given(maker=st.sampled_from(list(MAKERS)), layers=st.integers(1, 2), actions=actions)
def test_streams_come_and_go_and_equal_themselves_alone(backend, maker, layers, actions, close):
    layer = make(maker, num_layers=layers, backend=backend)
    pool, alone = StreamPool(layer, capacity=1), Alone(layer)
    for number, (action, seed) in enumerate(actions):
        generator = torch.Generator().manual_seed(seed)
        open_keys = list(pool)
        if action == "open":
            alone.states[pool.open(f"stream {number}")] = None
        elif action == "resume":
            state = make_state(layer, torch.randn(layers, 9, generator=generator, dtype=torch.float64), seed)
            assert pool.open((number, seed), state) == (number, seed)
            alone.states[number, seed] = state
        elif action == "close" and open_keys:
            key = open_keys[seed % len(open_keys)]
            state, expected = pool.close(key), alone.states.pop(key)
            assert key not in pool
            if expected is not None:
                close(join(state[:-1]), join(expected[:-1]))
                assert (type(state), state.t) == (type(make_state(layer, state.h, 0)), expected.t)
        elif action == "weights":
            with torch.no_grad():
                layer.weight_hh_l0.mul_(0.9)
        else:
            order = torch.randperm(len(open_keys), generator=generator).tolist()
            keys = [open_keys[i] for i in order[: 1 + seed % 5]]
            x = torch.randn(len(keys), 2, generator=generator, dtype=torch.float64)
            close(pool.step(keys, x), alone.step(keys, x))
        assert len(pool) == len(alone.states)
    for key, expected in alone.states.items():
        if expected is not None:
            close(join(pool.state(key)[:-1]), join(expected[:-1]))


@pytest.mark.skipif("cpu" not in USABLE, reason="the kernel was not built")
def test_streams_of_the_kernel_have_the_bits_of_each_stream_alone():
    layer = CLOCKWORK["RNN"](3, 40, schedule=5).eval()
    pool, alone = StreamPool(layer), Alone(layer)
    for number in range(100):
        state = State(torch.randn(1, 40), 7 * number)
        alone.states[pool.open(number, state)] = state
    for _ in range(20):
        x = torch.randn(100, 3)
        assert torch.equal(pool.step(range(100), x), alone.step(range(100), x))
    assert pool.capacity == 128


def test_the_pool_chooses_keys():
    pool = StreamPool(make())
    assert [pool.open(), pool.open(), pool.open(2), pool.open("a"), pool.open()] == [0, 1, 2, "a", 3]
    pool.close(1)
    # a key that was given to a stream is not given to another one by the pool
    assert pool.open() == 4
    assert (list(pool), len(pool), 1 in pool, "a" in pool) == ([0, 2, "a", 3, 4], 5, False, True)
    assert repr(pool) == f"StreamPool({pool.layer!r}, 5 streams)"


def test_a_closed_stream_makes_no_step(close):
    layer, x = make(), randn(4, 2, 2)
    pool = StreamPool(layer)
    pool.open("a"), pool.open("b")
    pool.step(["a", "b"], x[0])
    pool.close("a")
    with pytest.raises(KeyError, match="there is no stream 'a'"):
        pool.step(["a", "b"], x[1])
    # another stream gets its slot, and begins from zero
    pool.open("a")
    found = pool.step(["a", "b"], torch.stack((x[0, 0], x[1, 1])))
    whole = layer(x)[0].detach()
    close(found, torch.stack((whole[0, 0], whole[1, 1])))


def test_a_closed_stream_goes_on_in_another_pool(close, kind):
    layer = CLOCKWORK[kind](2, 9, 2, schedule=(1, 2, 5), dtype=torch.float64)
    x, pool = randn(12, 2), StreamPool(layer)
    pool.open("a")
    outputs = [pool.step(["a"], x_t[None])[0] for x_t in x[:5]]
    other = StreamPool(layer)
    other.open("b", pool.close("a"))
    outputs += [other.step(["b"], x_t[None])[0] for x_t in x[5:9]]
    # and in the layer, unbatched
    rest, _ = layer(x[9:], other.close("b"))
    close(torch.cat((torch.stack(outputs), rest)), layer(x)[0])


def test_a_batch_of_one_is_a_stream(close):
    layer, x = make(), randn(6, 1, 2)
    with torch.no_grad():
        whole, _ = layer(x)
        for t in (3, torch.tensor([3])):
            state = layer(x[:3], return_state=True)[1]._replace(t=t)
            pool = StreamPool(layer)
            pool.open("a", state)
            close(pool.step(["a"], x[3]), whole[3])


def test_a_state_is_a_copy(close):
    layer, pool = make(), StreamPool(make())
    pool = StreamPool(layer)
    pool.open("a")
    x = randn(3, 1, 2)
    pool.step(["a"], x[0])
    state = pool.state("a")
    kept = state.h.clone()
    pool.step(["a"], x[1])
    assert torch.equal(state.h, kept)
    state.h.zero_()
    close(pool.step(["a"], x[2]), layer(x)[0][2].detach())


@pytest.mark.parametrize(
    "duplicate",
    [pickle.dumps, copy.deepcopy, copy.copy, lambda pool: torch.save(pool, io.BytesIO())],
    ids=["pickle", "deepcopy", "copy", "torch.save"],
)
@pytest.mark.parametrize("backend", USABLE)
def test_a_pool_cannot_be_copied(backend, duplicate):
    pool = StreamPool(make(backend=backend))
    pool.open("a")
    with pytest.raises(TypeError, match=r"cannot be pickled or copied: save pool.state\(key\) of every stream"):
        duplicate(pool)


@pytest.mark.skipif("cpu" not in USABLE, reason="the kernel was not built")
def test_no_address_of_the_packed_weights_outlives_a_call(close):
    layer, x = make(), randn(3, 1, 2)
    pool = StreamPool(layer)
    pool.open("a")
    (own,) = pool._memory._slots
    outputs, stale = [], []
    for x_t in x:
        # other memory with the same numbers, as a copy of the slots has. The old memory must not keep its numbers, nor
        # be used for anything else
        stale.append(own.packed.values)
        own.packed.values = own.packed.values.clone()
        stale[-1].fill_(torch.nan)
        assert own.fields[FIELD_PACKED] == stale[-1].data_ptr()
        outputs.append(pool.step(["a"], x_t))
    close(torch.stack(outputs), layer(x)[0].detach())


def test_gradients_end_at_the_pool():
    layer, pool = make(), StreamPool(make())
    _, state = layer(randn(3, 1, 2), return_state=True)
    pool.open("a", state)
    assert not pool.step(["a"], randn(1, 2).requires_grad_()).requires_grad
    assert not pool.close("a").h.requires_grad


@pytest.mark.parametrize(
    "change",
    [
        lambda layer: layer.weight_hh_l0.mul_(0.5),
        lambda layer: layer.weight_ih_l1.data.mul_(0.5),
        lambda layer: layer.bias_l0.data.add_(1),
        lambda layer: setattr(layer, "weight_hh_l1", nn.Parameter(layer.weight_hh_l1 * 0.5)),
        lambda layer: layer.load_state_dict(make("lstm", num_layers=2).state_dict()),
        lambda layer: layer.weight_ih_l0.copy_(-torch.zeros_like(layer.weight_ih_l0)),
        lambda layer: layer.flatten_parameters(),
    ],
    ids=["counted", "not counted", "bias", "replaced", "loaded", "negative zeros", "same"],
)
@torch.no_grad()
def test_changed_weights_are_noticed(change, close):
    layer = make("lstm", num_layers=2)
    layer.weight_ih_l0.zero_()
    pool, alone = StreamPool(layer), Alone(layer)
    for number in range(3):
        pool.open(number)
        alone.states[number] = None
    for step in range(9):
        if step == 4:
            change(layer)
            # the layer notices the same changes, but `Alone` need not rely on that
            alone.states = {
                key: LSTMState(*map(torch.clone, state[:-1]), state.t) for key, state in alone.states.items()
            }
        x = randn(3, 2)
        close(pool.step(range(3), x), alone.step(range(3), x))


@pytest.mark.skipif("cpu" not in USABLE, reason="the kernel was not built")
def test_weights_that_keep_changing_are_refused(monkeypatch):
    layer = make()
    pool = StreamPool(layer)
    pool.open("a")
    monkeypatch.setattr(slots, "invoke", lambda *arguments: False)
    with pytest.raises(RuntimeError, match="the weights of the layer changed while it made a step"):
        pool.step(["a"], randn(1, 2))


def test_inference_mode_comes_and_goes(close):
    layer = make(num_layers=2)
    x, pool = randn(5, 3, 2), None
    with torch.inference_mode():
        pool = StreamPool(layer, capacity=1)
        outputs = []
        for number in range(3):
            pool.open(number)
        outputs.append(pool.step(range(3), x[0]))
    layer.weight_hh_l0.data.mul_(0.5)
    layer.weight_hh_l0.data.mul_(2)
    outputs.append(pool.step(range(3), x[1]))
    pool.open("more")
    with torch.inference_mode():
        outputs.append(pool.step(range(3), x[2]))
    close(torch.stack(outputs), layer(x)[0][:3].detach())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_stepped_by_the_layer(dtype):
    layer = make(dtype=dtype)
    pool, alone = StreamPool(layer), Alone(layer)
    assert isinstance(pool._memory, _PlainMemory)
    for number in range(4):
        state = State(torch.randn(1, 9).to(dtype), number)
        alone.states[pool.open(number, state)] = state
    for _ in range(4):
        x = torch.randn(4, 2).to(dtype)
        torch.testing.assert_close(pool.step(range(4), x), alone.step(range(4), x))


def test_computed_weights_are_stepped_by_the_layer(close):
    layer = weight_norm(make(), "weight_hh_l0")
    pool, alone = StreamPool(layer), Alone(layer)
    for number in range(3):
        pool.open(number)
        alone.states[number] = None
    for _ in range(4):
        x = randn(3, 2)
        close(pool.step(range(3), x), alone.step(range(3), x))


def test_autocast_does_not_apply(close):
    for backend in ("auto", "torch"):
        layer = make(backend=backend, dtype=torch.float32)
        pool, x = StreamPool(layer), torch.randn(3, 1, 2)
        pool.open(0)
        with torch.autocast("cpu", torch.bfloat16):
            found = torch.stack([pool.step([0], x_t) for x_t in x])
        close(found, layer(x)[0].detach())


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda pool, x: pool.step(["a", "x"], x), KeyError, r"there is no stream 'x' in the pool"),
        (lambda pool, x: pool.step(["a", "a"], x), ValueError, r"keys has 'a' twice"),
        (lambda pool, x: pool.step("ab", x), TypeError, r"keys should be a sequence of keys, got: str"),
        (lambda pool, x: pool.step(None, x), TypeError, r"keys should be a sequence of keys, got: NoneType"),
        (lambda pool, x: pool.step(torch.tensor([1, 2]), x), TypeError, r"keys should be a sequence .* got: Tensor"),
        (lambda pool, x: pool.open(torch.tensor(1)), TypeError, r"key should not be a Tensor"),
        (lambda pool, x: pool.step(["a"], x), ValueError, r"one row per key, shape \(1, 2\), got \(2, 2\)"),
        (lambda pool, x: pool.step(["a"], x[0]), ValueError, r"one row per key, shape \(1, 2\), got \(2,\)"),
        (lambda pool, x: pool.step(["a"], [1.0, 2.0]), TypeError, r"input should be a Tensor, got: list"),
        (lambda pool, x: pool.step(["a", "b"], x[:, :1]), RuntimeError, r"Expected 2, got 1"),
        (lambda pool, x: pool.step(["a", "b"], x.float()), ValueError, r"input must be torch.float64, .* got torch.f"),
        (lambda pool, x: pool.step(["a", "b"], x.to("meta")), RuntimeError, r"not at the same device"),
        (lambda pool, x: pool.open("a"), ValueError, r"the stream 'a' is open already"),
        (lambda pool, x: pool.open([1]), TypeError, r"unhashable"),
        (lambda pool, x: pool.close("x"), KeyError, r"there is no stream 'x'"),
        (lambda pool, x: pool.state("x"), KeyError, r"there is no stream 'x'"),
        (lambda pool, x: pool.open("c", x), TypeError, r"state should be of type State, got: Tensor"),
        (lambda pool, x: pool.open("c", State(randn(9), 0)), ValueError, r"state must have tensors \(num_layers, N\)"),
        (lambda pool, x: pool.open("c", State(randn(2, 9), 0)), ValueError, r"\(1, 9\) of torch.float64 .* \(2, 9\)"),
        (lambda pool, x: pool.open("c", State(randn(1, 3, 9), 0)), ValueError, r"\(1, 9\) .* got \(1, 3, 9\)"),
        (lambda pool, x: pool.open("c", State(torch.zeros(1, 9), 0)), ValueError, r"got \(1, 9\) of torch.float32"),
        (lambda pool, x: pool.open("c", State(randn(1, 9), -1)), ValueError, r"state.t must be zero or greater"),
        (lambda pool, x: pool.open("c", State(randn(1, 9), 2**63)), ValueError, r"state.t must be at most 2\*\*62"),
        (lambda pool, x: pool.open("c", State(randn(1, 9), torch.tensor([1, 2]))), ValueError, r"one clock per seq"),
        (
            lambda pool, x: torch.func.vmap(lambda x: pool.step(["a", "b"], x))(x[None]),
            RuntimeError,
            r"memory of their own|vmap",
        ),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_changes(call, error, message, close):
    layer, x = make(), randn(4, 2, 2)
    pool = StreamPool(layer)
    pool.open("a"), pool.open("b")
    pool.step(["a", "b"], x[0])
    with pytest.raises(error, match=message):
        call(pool, x[1])
    assert list(pool) == ["a", "b"]
    close(pool.step(["a", "b"], x[1]), layer(x)[0][1].detach())
    assert pool.state("a").t == pool.state("b").t == 2


def test_an_input_of_a_subclass_with_memory_is_taken(close):
    class Named(torch.Tensor):
        pass

    layer, x = make(), randn(1, 1, 2)
    pool = StreamPool(layer)
    pool.open("a")
    close(pool.step(["a"], x[0].as_subclass(Named)).as_subclass(torch.Tensor), layer(x)[0][0].detach())


def test_no_streams_make_a_step():
    pool = StreamPool(make())
    assert pool.step([], randn(0, 2)).shape == (0, 9)


def test_layers_that_cannot_be_stepped_are_refused():
    with pytest.raises(RuntimeError, match="a bidirectional layer reads a sequence from its end"):
        StreamPool(make(bidirectional=True))
    for layer in (nn.RNN(2, 9), LearnedClockworkRNN(2, 9)):
        with pytest.raises(TypeError, match="layer should be a ClockworkRNN, ClockworkLSTM or ClockworkGRU, got"):
            StreamPool(layer)
    with pytest.raises(ValueError, match="capacity must be at least 1, got 0"):
        StreamPool(make(), 0)
    with pytest.raises(TypeError, match="capacity should be of type int, got: float"):
        StreamPool(make(), 2.0)
    layer = make(num_layers=2, dropout=0.5).train()
    pool = StreamPool(layer)
    pool.open("a")
    with pytest.raises(RuntimeError, match=r"training mode with dropout=0.5: call layer.eval\(\) first"):
        pool.step(["a"], randn(1, 2))
    layer.eval()
    assert pool.step(["a"], randn(1, 2)).shape == (1, 9)


def test_a_layer_that_was_converted_is_refused():
    layer = make()
    pool = StreamPool(layer)
    pool.open("a")
    layer.float()
    for call in (lambda: pool.step(["a"], torch.randn(1, 2)), lambda: pool.open("b")):
        with pytest.raises(RuntimeError, match=r"are now torch.float32 on cpu, but the states .* torch.float64 on cpu"):
            call()
    assert pool.close("a").h.dtype == torch.float64


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("schedule", Schedule.resolve((1, 5, 7), 9), r"now has schedule=.*5.*7.*, but the pool was made for .*2.*3"),
        ("backend", "reference", r"backend='reference' .*, but the pool was made for .*, 'auto' and"),
        ("nonlinearity", "relu", r"the cell 'relu', but the pool was made for .* and 'tanh'"),
    ],
)
def test_a_layer_that_is_another_one_is_refused(name, value, message):
    layer = make()
    pool = StreamPool(layer)
    pool.open("a")
    setattr(layer, name, value)
    for call in (lambda: pool.step(["a"], randn(1, 2)), lambda: pool.open("b")):
        with pytest.raises(RuntimeError, match=message):
            call()
    assert pool.close("a").t == 0


class Taken:
    """A lock that another thread holds: to wait for it is an error."""

    def __enter__(self):
        raise BlockingIOError("another thread holds the lock")

    def __exit__(self, *arguments):
        pass


@pytest.mark.parametrize("name", ["open", "close", "state", "step"])
def test_calls_wait_for_each_other(name):
    pool = StreamPool(make())
    pool.open("a")
    pool._lock = Taken()
    with pytest.raises(BlockingIOError):
        getattr(pool, name)(*{"open": ("b",), "step": (["a"], randn(1, 2))}.get(name, ("a",)))


def test_threads_share_a_pool(close):
    layer, x = make("lstm"), randn(50, 3, 60, 2)
    pool = StreamPool(layer, capacity=1)
    outputs = {}

    def serve(number):
        keys = [pool.open((number, place)) for place in range(60)]
        outputs[number] = torch.stack([pool.step(keys, x_t) for x_t in x[:, number]])

    threads = [Thread(target=serve, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(3):
        close(outputs[number], layer(x[:, number])[0].detach())


@pytest.mark.skipif("cpu" not in USABLE, reason="the kernel was not built")
@torch.no_grad()
def test_a_layer_that_no_longer_fits_changes_no_stream(close):
    layer, x = make(num_layers=2), randn(2, 1, 2)
    pool, whole = StreamPool(layer), layer(x)[0]
    pool.open("a")
    close(pool.step(["a"], x[0]), whole[0])
    kept = layer.weight_hh_l1
    layer.weight_hh_l1 = nn.Parameter(kept[:-1].clone())
    with pytest.raises(ValueError, match=r"weight_hh must be torch.float64 torch.Size\(\[9, 9\]\), got .* \(8, 9\)"):
        pool.step(["a"], x[1])
    layer.weight_hh_l1 = kept
    close(pool.step(["a"], x[1]), whole[1])
    weight_norm(layer, "weight_hh_l1")
    with pytest.raises(RuntimeError, match="any more, because they are computed anew for every call"):
        pool.step(["a"], x[1])
    assert pool.close("a").t == 2


def test_memory_stays_in_place():
    """A step allocates no new memory for the streams, however many of them have input."""
    pool = StreamPool(make("lstm"), capacity=50)
    for number in range(50):
        pool.open(number)
    if isinstance(pool._memory, _PlainMemory):
        tensors = [pool._memory._states]
    else:
        (own,) = pool._memory._slots
        tensors = [own.values, own.c, own.made]
    addresses = [tensor.data_ptr() for tensor in (*tensors, pool._clocks)]
    for keys in (range(50), range(0, 50, 7), [3], range(50)):
        pool.step(keys, randn(len(keys), 2))
    assert [tensor.data_ptr() for tensor in (*tensors, pool._clocks)] == addresses
