"""The dispatch: an explicit choice that cannot run raises, and "auto" logs once why it passed over a backend."""

import logging

import pytest
import torch

from cwrnn import ClockworkLSTM, ClockworkRNN, backends
from cwrnn.backends import BACKENDS, Backend, select_backend

CPU = torch.device("cpu")


@pytest.fixture
def picky(monkeypatch):
    """A backend, first in the order, that takes float16 only; the list of its runs."""
    runs = []

    def run(*arguments):
        runs.append(True)
        return BACKENDS["torch"].run(*arguments)

    refuse = lambda device, dtype: None if dtype == torch.float16 else "it takes float16 only"  # noqa: E731
    monkeypatch.setattr(backends, "BACKENDS", {"picky": Backend("picky", refuse, run), **BACKENDS})
    backends._log_refusal.cache_clear()
    return runs


def test_an_explicit_choice_that_cannot_run_raises_with_the_reason(picky):
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


def test_auto_takes_the_first_that_can_run_and_logs_the_others_once(picky, caplog):
    rnn = ClockworkRNN(2, 8)
    with caplog.at_level(logging.DEBUG, logger="cwrnn"):
        rnn(torch.randn(3, 1, 2))
        rnn(torch.randn(3, 1, 2))
    found = [record.getMessage() for record in caplog.records if "picky" in record.getMessage()]
    assert found == ["backend 'picky' refused on cpu with torch.float32: it takes float16 only"]
    assert caplog.records[0].levelno == logging.DEBUG
    assert not picky
    assert select_backend("auto", CPU, torch.float16).name == "picky"


@pytest.mark.parametrize("peepholes", [False, True])
@pytest.mark.parametrize("lengths", [None, torch.tensor([3, 2])], ids=["plain", "lengths"])
def test_advice_does_not_move_an_lstm_with_peepholes(picky, monkeypatch, peepholes, lengths):
    """The backends after the kernel compute peepholes in plain operations, which no advice is meant for."""
    advised = BACKENDS["torch"]._replace(
        name="advised", run=backends.BACKENDS["picky"].run, advise_against=lambda *call: "another is faster"
    )
    monkeypatch.setattr(backends, "BACKENDS", {"advised": advised, "torch": BACKENDS["torch"]})
    ClockworkLSTM(2, 8, schedule=2, peepholes=peepholes)(torch.randn(3, 2, 2), lengths=lengths)
    assert bool(picky) == peepholes


def test_an_unknown_name_is_refused():
    with pytest.raises(
        ValueError, match="Unknown backend 'fast'. Select from 'auto', 'cpu', 'cuda', 'cudnn', 'torch', 'reference'"
    ):
        select_backend("fast", CPU, torch.float32)


def test_auto_raises_if_no_backend_can_run(monkeypatch):
    monkeypatch.setattr(backends, "BACKENDS", {"no": Backend("no", lambda device, dtype: "never", None)})
    with pytest.raises(RuntimeError, match="no backend can run on cpu with torch.float32"):
        select_backend("auto", CPU, torch.float32)


def test_explicit_backend_is_the_one_that_runs(monkeypatch):
    used = []

    def spy(backend):
        def run(*arguments):
            used.append(backend.name)
            return backend.run(*arguments)

        return Backend(backend.name, backend.refuse, run)

    monkeypatch.setattr(backends, "BACKENDS", {name: spy(backend) for name, backend in BACKENDS.items()})
    usable = [name for name, backend in BACKENDS.items() if backend.refuse(CPU, torch.float32) is None]
    for name in usable:
        ClockworkRNN(2, 8, backend=name)(torch.randn(3, 1, 2))
    ClockworkRNN(2, 8)(torch.randn(3, 1, 2))
    assert used == [*usable, usable[0]]
