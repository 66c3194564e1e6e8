"""An interrupt is never lost."""

import os
import signal
import sys

import pytest

from cwrnn.experiments.sweep.interrupts import Interrupts


def test_an_interrupt_that_python_drops_is_raised_later(monkeypatch):
    dropped = []
    monkeypatch.setattr(sys, "unraisablehook", dropped.append)

    class Destroyed:
        def __del__(self):
            os.kill(os.getpid(), signal.SIGINT)
            # the signal arrives during this loop at the latest
            for _ in range(1000):
                pass

    interrupts = Interrupts()
    with interrupts.remember():
        interrupts.check()
        Destroyed()
        assert len(dropped) == 1
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()
    interrupts.check()
