"""Ctrl-C during a sweep: no interrupt is lost, and worker processes are not interrupted themselves."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from typing import Any


class Interrupts:
    """Remembers Ctrl-C: Python drops a KeyboardInterrupt that is raised where none can be caught, as in `__del__`."""

    def __init__(self) -> None:
        self._interrupted = False

    @contextmanager
    def remember(self) -> Iterator[None]:
        """While this context is open, `check` knows of every SIGINT that has come."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._interrupted = False
        before = signal.signal(signal.SIGINT, self._handle)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
            self._interrupted = False

    def check(self) -> None:
        """Raises the KeyboardInterrupt that Python dropped, if there was one."""
        if self._interrupted:
            raise KeyboardInterrupt

    def _handle(self, number: int, frame: Any) -> None:
        self._interrupted = True
        raise KeyboardInterrupt


interrupts = Interrupts()


@contextmanager
def hold_interrupts() -> Iterator[None]:
    """Delays SIGINT until the context ends. Processes that are started inside never receive it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    # multiprocessing starts its resource tracker before the first process, and unblocks SIGINT afterwards
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
