"""The dispatch: an explicit choice that cannot run raises, an automatic one says why, once."""

import logging

import pytest
import torch

from cwrnn import ClockworkRNN
from cwrnn import backends as recurrence
from cwrnn.backends import BACKENDS, Backend, select

CPU = torch.device("cpu")


@pytest.fixture
def picky(monkeypatch):
    """A backend, first in the order, that only takes float16, and counts how often it is loaded."""
    loaded = []

    def load():
        loaded.append(True)
        return BACKENDS["torch"].load()

    refuse = lambda device, dtype: None if dtype == torch.float16 else "it takes float16 only"  # noqa: E731
    monkeypatch.setattr(recurrence, "BACKENDS", {"picky": Backend(refuse, load), **BACKENDS})
    recurrence._log_refusal.cache_clear()
    return loaded


def test_explicit_choice_that_cannot_run(picky):
    rnn = ClockworkRNN(2, 8, backend="picky")
    with pytest.raises(RuntimeError) as caught:
        rnn(torch.randn(3, 1, 2))
    usable = [name for name, backend in BACKENDS.items() if backend.refuse(CPU, torch.float32) is None]
    assert str(caught.value) == (
        "backend 'picky' cannot run on cpu with torch.float32: it takes float16 only. "
        f"Usable here: {', '.join(map(repr, ['auto', *usable]))}."
    )
    assert not picky
    rnn.half()(torch.randn(3, 1, 2).half())
    assert picky


def test_auto_takes_the_first_that_can_and_says_why_once(picky, caplog):
    rnn = ClockworkRNN(2, 8)
    with caplog.at_level(logging.DEBUG, logger="cwrnn"):
        rnn(torch.randn(3, 1, 2))
        rnn(torch.randn(3, 1, 2))
    found = [record.getMessage() for record in caplog.records if "picky" in record.getMessage()]
    assert found == ["backend 'picky' refused on cpu with torch.float32: it takes float16 only"]
    assert caplog.records[0].levelno == logging.DEBUG
    assert not picky
    select("auto", CPU, torch.float16)
    assert picky


def test_unknown_name():
    with pytest.raises(
        ValueError, match="Unknown backend 'fast'. Select from 'auto', 'cpu', 'triton', 'torch', 'reference'"
    ):
        select("fast", CPU, torch.float32)


def test_nobody_can(monkeypatch):
    monkeypatch.setattr(recurrence, "BACKENDS", {"no": Backend(lambda device, dtype: "never", lambda: None)})
    with pytest.raises(RuntimeError, match="no backend can run on cpu with torch.float32"):
        select("auto", CPU, torch.float32)


def test_explicit_backend_is_the_one_that_runs(monkeypatch):
    used = []

    def spy(name):
        run = BACKENDS[name].load()
        return Backend(BACKENDS[name].refuse, lambda: lambda *arguments: (used.append(name), run(*arguments))[1])

    monkeypatch.setattr(recurrence, "BACKENDS", {name: spy(name) for name in BACKENDS})
    usable = [name for name, backend in BACKENDS.items() if backend.refuse(CPU, torch.float32) is None]
    for name in usable:
        ClockworkRNN(2, 8, backend=name)(torch.randn(3, 1, 2))
    ClockworkRNN(2, 8)(torch.randn(3, 1, 2))
    assert used == [*usable, usable[0]]
